"""How one kernel calls another: as part of it.

Numba makes of every compiled function something that Python can call, with machine code of its own, also where only
another compiled function calls it; then it links and optimises the caller, which holds all of it again. Most kernels
are never called from Python. So a kernel has two sides: `Kernel`, which Python calls, and `_Inner`, its twin for
callers that are kernels, which stops at code that is not optimised yet. What Python calls is optimised once, as one:
nobody else can call what is linked into it, so an inner function with one caller melts into that, and of the arrays
that others are handed only the words they read are passed. An array is seven words or more; handing all of them over,
several arrays for each agent, took a third of a step.

Only `artifacts/compile.py` imports this, after it has set Numba's switches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numba.core import codegen, compiler, dispatcher, registry, sigutils
from numba.core.compiler_lock import global_compiler_lock

# Numba's own modules are not typed.
_compiler: Any = compiler
_signatures: Any = sigutils
_Dispatcher: Any = registry.CPUDispatcher
_FunctionCompiler: Any = dispatcher._FunctionCompiler  # type: ignore[attr-defined]
_Library: Any = codegen.JITCodeLibrary


class Kernel(_Dispatcher):  # type: ignore[misc]
    """A kernel as Python calls it, compiled with Numba's options of `options`."""

    _cache: Any

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        super().__init__(function, targetoptions=dict(options))
        self._compiler = _KernelCompiler(function, self.targetdescr, self.targetoptions, {}, compiler.Compiler)
        self._inner = _Inner(function, options)

    def get_call_template(self, args: tuple[Any, ...], kws: Mapping[str, Any]) -> Any:
        """What a kernel that calls this one is to call, and with which types."""
        return self._inner.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """The name of the code that such a call goes to."""
        return self._inner.get_overload(sig)


class _Inner(_Dispatcher):  # type: ignore[misc]
    """A kernel as kernels call it: no entry for Python, no machine code."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        super().__init__(function, targetoptions=dict(options))
        self._compiler = _InnerCompiler(function, self.targetdescr, self.targetoptions, {}, compiler.Compiler)

    def compile(self, sig: Any) -> None:
        with global_compiler_lock, self._compiling_counter:
            args, return_type = _signatures.normalize_signature(sig)
            if tuple(args) not in self.overloads:
                result = self._compiler.compile(args, return_type)
                self.overloads[tuple(args)] = result
                self.targetctx.insert_user_function(result.library, result.fndesc, [result.library])

    def get_overload(self, sig: Any) -> Any:
        args, _ = _signatures.normalize_signature(sig)
        return self.overloads[tuple(args)].library


class _KernelCompiler(_FunctionCompiler):  # type: ignore[misc]
    """Compiles into a library of one's own choice."""

    def _compile_core(self, args: tuple[Any, ...], return_type: Any) -> Any:
        target = self.targetdescr.target_context
        return _compiler.compile_extra(
            self.targetdescr.typing_context,
            target,
            self.py_func,
            args=args,
            return_type=return_type,
            flags=self._flags(),
            locals=self.locals,
            library=self._library(target.codegen(), self.py_func.__qualname__),
        )

    def _flags(self) -> Any:
        flags = _compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        return flags

    def _library(self, codegen: Any, name: str) -> Any:
        library = _WholeLibrary(codegen, name)
        library.enable_object_caching()
        return library


class _InnerCompiler(_KernelCompiler):
    """Compiles into code that waits for a caller."""

    def _flags(self) -> Any:
        flags = super()._flags()
        flags.no_compile = flags.no_cpython_wrapper = True
        return flags

    def _library(self, codegen: Any, name: str) -> Any:
        return _InnerLibrary(codegen, name)


class _WholeLibrary(_Library):  # type: ignore[misc]
    """Code that Python calls, with all that is linked into it."""

    def _optimize_final_module(self) -> None:
        linked = {function.name for library in self._linking_libraries for function in library.get_defined_functions()}
        for function in self._final_module.functions:
            if function.name in linked and not function.is_declaration:
                function.linkage = "internal"
        super()._optimize_final_module()


class _InnerLibrary(_Library):  # type: ignore[misc]
    """Code that waits to be part of another library."""

    def _optimize_final_module(self) -> None:
        """Nothing: the library that takes it in is optimised as one."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

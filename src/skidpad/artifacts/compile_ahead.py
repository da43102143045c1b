"""Several kernels compiled at once, each in a process of its own, because Numba compiles under one lock.

The processes write into the kernel cache and this process reads from it. Where that cannot help (one core, no usable
cache, nothing to compile) nothing happens, and each kernel is compiled at its first call as always: compiling ahead
changes when something is compiled, never what.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from skidpad.artifacts.compile import kernel_cache

Listener = Callable[[int, int], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While entered, `listener(done, total)` hears of kernels being compiled, from 0 on."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def compile_ahead(calls: Sequence[tuple[Any, tuple[Any, ...]]]) -> None:
    """Compile the kernels of some calls that are about to be made, as far as the cache does not hold them.

    calls  (kernel, its positional arguments), the slowest to compile first
    """
    if kernel_cache() is None or (os.cpu_count() or 1) < 2:
        return
    waiting = [(kernel, types) for kernel, types in map(_typed, calls) if types is not None]
    if len(waiting) > 1:
        _compile_all(waiting)


def _typed(call: tuple[Any, tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...] | None]:
    """The kernel and the types of its arguments; None for them where there is nothing to compile."""
    kernel, arguments = call
    if getattr(kernel, "signatures", True):  # a plain function under NUMBA_DISABLE_JIT, or compiled already
        return kernel, None
    types = tuple(kernel.typeof_pyval(argument) for argument in arguments)
    cache, target = kernel._cache, kernel.targetctx
    there = cache._cache_file.load(cache._index_key(types, target.codegen())) is not None
    return kernel, None if there else types


def _compile_all(waiting: Sequence[tuple[Any, tuple[Any, ...]]]) -> None:
    jobs, running, done = list(waiting), list[subprocess.Popen[bytes]](), 0
    _tell(0, len(waiting))
    try:
        while jobs or running:
            while jobs and len(running) < (os.cpu_count() or 1):
                running.append(_start(*jobs.pop(0)))
            running[0].wait()
            still = [process for process in running if process.poll() is None]
            done += len(running) - len(still)
            running = still
            _tell(done, len(waiting))
    finally:
        for process in running:
            process.kill()
            process.wait()


def _start(kernel: Any, types: tuple[Any, ...]) -> subprocess.Popen[bytes]:
    # A process that fails leaves nothing in the cache: the kernel is then compiled here, and fails where it is called.
    command = [sys.executable, "-m", "skidpad.artifacts.compile_ahead"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    try:
        process.stdin.write(pickle.dumps((kernel.__module__, kernel.__name__, types)))
        process.stdin.close()
    except BrokenPipeError:
        pass
    return process


def _tell(done: int, total: int) -> None:
    for listener in _listeners:
        listener(done, total)


def main() -> None:
    """Compile the one kernel that the parent process names on standard input."""
    gc.disable()  # An eighth of compiling is the search for cycles, in a process that ends with it.
    module, name, types = pickle.loads(sys.stdin.buffer.read())
    getattr(importlib.import_module(module), name).compile(types)


if __name__ == "__main__":
    main()

"""The one door to Numba: one set of options for every kernel, and a disk cache that never serves stale code.

Numba's own cache notices neither an edit in a callee's module nor a flipped `NUMBA_*` switch, and loads a damaged file
without a question. Here the folder is named by a digest of all kernel sources, the versions, the processor and the
switches; each entry carries its own checksum; and a folder that cannot be used costs one warning, not a run.

Import this module before Numba: the superword vectoriser is read from the environment when Numba is imported, and
without it the 8-lane observation rows are slower than naive code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
import re
import shutil
import stat
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("NUMBA_SLP_VECTORIZE", "1")

import llvmlite
import numba
from llvmlite import binding
from numba.core import caching

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.dispatch import Kernel
from skidpad.artifacts.files import is_private, private_folder_problem, replace, user_cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])

# No fastmath: it drops NaN checks and changes last bits between processors. error_model "numpy": x / 0 is inf or NaN,
# and division vectorises. _nrt off: no reference is counted. A kernel allocates nothing and its caller holds every
# array, so the counts would only cost: atomic additions, several for each array an inner function is handed.
# no_cfunc_wrapper: nobody calls a kernel through a C function pointer, and making one costs a 20th of compiling.
OPTIONS: Mapping[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": False,
    "_nrt": False,
    "no_cfunc_wrapper": True,
}

# Every module with a kernel, and every module of ours that such a module imports. A test walks the imports and fails
# when one is missing here.
KERNEL_SOURCES = (
    "artifacts/compile.py",
    "artifacts/dispatch.py",
    "evaluation/metrics/realism_kernels.py",
    "scenes/events.py",
    "scenes/index.py",
    "scenes/index_kernels.py",
    "scenes/lane_kernels.py",
    "scenes/scene.py",
    "simulation/kernels/*.py",
    "simulation/layout.py",
    "simulation/layout_table.py",
    "simulation/state.py",
    "simulation/coefficients.py",
    "simulation/rewards.py",
    "simulation/random.py",
    "simulation/tally.py",
    "simulation/slots.py",
)

_PACKAGE = Path(__file__).resolve().parents[1]
_SEAL_BYTES = 32

FOLDER_DIGITS = 32
KEPT_FOLDERS = 8
UNUSED_SECONDS = 7 * 86400.0


def kernel(function: Function) -> Function:
    """Compile a function, at its first call, with the one declared option set and the cache of this module.

    Under NUMBA_DISABLE_JIT=1 the plain function comes back. A function outside `KERNEL_SOURCES` is compiled in every
    process, because the folder's name would not notice its edits.
    """
    config: Any = numba.config
    if config.DISABLE_JIT:
        return function
    dispatcher = Kernel(function, {"nopython": True, **OPTIONS})
    if Path(function.__code__.co_filename) in _cached_files() and kernel_cache() is not None:
        dispatcher._cache = _KernelCache(function)
    return dispatcher


@cache
def _cached_files() -> frozenset[Path]:
    return frozenset(kernel_sources())


def kernel_sources(package: Path = _PACKAGE) -> list[Path]:
    """The files whose text decides which compiled code is valid, in a fixed order."""
    return [path for pattern in KERNEL_SOURCES for path in sorted(package.glob(pattern))]


def kernel_digest(package: Path = _PACKAGE, environ: Mapping[str, str] | None = None) -> str:
    """Identity of compiled code: all kernel sources, versions, processor and `NUMBA_*` switches."""
    environ = os.environ if environ is None else environ
    return digest_value(
        {
            "sources": {str(path.relative_to(package)): path.read_bytes() for path in kernel_sources(package)},
            "python": list(sys.version_info[:3]),
            "numba": numba.__version__,
            "llvmlite": llvmlite.__version__,
            "machine": platform.machine(),
            "cpu": binding.get_host_cpu_name(),
            "cpu_features": binding.get_host_cpu_features().flatten(),
            "switches": {name: value for name, value in environ.items() if name.startswith("NUMBA_")},
        },
        "kernels",
    )


@cache
def kernel_cache() -> Path | None:
    """The user-private folder of compiled kernels, made if absent; None, with one warning, where it cannot be.

    The entries are pickles: a folder that somebody else may write is a way to run their code.
    """
    base = user_cache_folder("kernels")
    folder = base / kernel_digest()[:FOLDER_DIGITS]
    problem = private_folder_problem(folder)
    if problem is not None:
        _warn_once(problem)
        return None
    with contextlib.suppress(OSError):  # A folder's time says when it was last wanted.
        os.utime(folder)
        prune_kernel_folders(base)
    return folder


def prune_kernel_folders(base: Path) -> list[Path]:
    """Remove kernel folders of other code that nobody has wanted for `UNUSED_SECONDS`, but for the `KEPT_FOLDERS` most
    recently wanted; returns those removed.

    A process that still runs such code finds its entries gone and compiles; nothing else depends on them. A folder is
    renamed before it is emptied, so that nobody meets half of one.
    """
    pattern = re.compile(rf"[0-9a-f]{{{FOLDER_DIGITS}}}(\.gone)?")
    found = []
    for path in base.iterdir():
        status = path.lstat()
        if pattern.fullmatch(path.name) and stat.S_ISDIR(status.st_mode) and is_private(status):
            found.append((status.st_mtime, path))
    removed = []
    oldest = time.time() - UNUSED_SECONDS
    for wanted, path in sorted(found, reverse=True)[KEPT_FOLDERS:]:
        if wanted < oldest:
            gone = path if path.suffix else path.with_suffix(".gone")
            with contextlib.suppress(OSError):  # Another process removes the same folder.
                path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            removed.append(path)
    return removed


_warned: list[str] = []


def _warn_once(reason: str) -> None:
    if _warned:
        return
    _warned.append(reason)
    warnings.warn(
        f"kernels are compiled anew in every process, because their cache is not usable ({reason}). "
        "Free the folder, or set XDG_CACHE_HOME to a private, writable one.",
        RuntimeWarning,
        stacklevel=3,
    )


class _Entries:
    """One sealed file per kernel and signature; what Numba calls an index-data cache file.

    A file is SHA-256 of the rest, then the pickle of (key, payload). Anything that does not fit counts as absent.
    """

    def __init__(self, folder: Path, base: str) -> None:
        self._folder = folder
        self._base = base

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._base}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.bin"

    def load(self, key: object) -> Any:
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data[_SEAL_BYTES:]).digest() != data[:_SEAL_BYTES]:
            return None
        stored_key, payload = pickle.loads(data[_SEAL_BYTES:])
        return payload if stored_key == key else None

    def save(self, key: object, payload: object) -> None:
        from numba.core.serialize import dumps

        data: bytes = dumps((key, payload))  # type: ignore[no-untyped-call]
        try:
            replace(self._path(key), hashlib.sha256(data).digest() + data)
        except OSError as error:  # Disk full or read-only: the compiled code is in memory, so go on.
            _warn_once(f"{self._folder}: {error.strerror}")

    def flush(self) -> None:
        for path in self._folder.glob(f"{self._base}-*.bin"):
            path.unlink(missing_ok=True)


class _Locator(caching._CacheLocator):
    """Tells Numba where entries lie. The folder's name already covers every source, so there is no stamp to compare."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function)

    def ensure_cache_path(self) -> None:
        """Nothing: `_Entries.save` meets the missing folder and warns."""

    def get_cache_path(self) -> str:
        return str(kernel_cache())

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Results(caching.CompileResultCacheImpl):
    _locator_classes: Any = (_Locator,)


class _KernelCache(caching.FunctionCache):
    """Numba's function cache over `_Entries`."""

    _impl_class = _Results

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        module = function.__module__.removeprefix("skidpad.")
        self._cache_file: Any = _Entries(Path(self._cache_path), f"{module}.{self._impl.filename_base}")

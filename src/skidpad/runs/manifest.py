"""The manifest: what ran, and with which code, data, settings and machine. Written first, exclusively, never changed.

Its `identity` decides whether a run may be resumed: the digests of sections, metric definitions, scenes, checkpoint
and code, and nothing about the machine. Environment variables are never stored.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import skidpad
from skidpad.artifacts.digests import canonical_json, digest_bytes, digest_value
from skidpad.artifacts.files import create
from skidpad.errors import AlreadyThereError
from skidpad.runs.folder import RunFolder, read_document

MANIFEST_SCHEMA = "skidpad.manifest/1"
_LIBRARIES = ("numpy", "numba", "llvmlite", "scipy", "torch", "safetensors", "pydantic", "opencv-python-headless")
_PACKAGE = Path(skidpad.__file__).parent


@cache
def code_digests(package: Path = _PACKAGE) -> Mapping[str, str]:
    """Digests of the package's Python sources: "code" over all of them, "kernels" over those that are compiled.

    Read once per process: what runs is what was imported, not what an editor has saved since.
    """
    sources = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    digests = {name: digest_bytes(sources[name].read_bytes()) for name in sorted(sources)}
    kernels = {name: digest for name, digest in digests.items() if name.startswith("simulation/kernels/")}
    return MappingProxyType(
        {"code": digest_value(digests, "code tree"), "kernels": digest_value(kernels, "kernel sources")}
    )


def environment(threads: int) -> dict[str, Any]:
    """The machine and the libraries a run used: recorded and shown, no part of its identity."""
    return {
        "skidpad": skidpad.__version__,
        **_commit(_PACKAGE),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "device": "cpu",
        "precision": "float32",
        "threads": threads,
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _commit(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the checkout the package lies in; None where there is none."""
    try:
        commit = _git(folder, "rev-parse", "HEAD").strip()
        dirty = bool(_git(folder, "status", "--porcelain", "--", ".").strip())
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": dirty}


def _git(folder: Path, *arguments: str) -> str:
    # An installed package may lie inside somebody else's checkout; --show-prefix would not tell. The question is
    # only asked where the sources are tracked, which `ls-files --error-unmatch` answers by failing.
    base = ["git", "-C", str(folder)]
    subprocess.run([*base, "ls-files", "--error-unmatch", "__init__.py"], check=True, capture_output=True, timeout=10)
    return subprocess.run([*base, *arguments], check=True, capture_output=True, text=True, timeout=10).stdout


def write_manifest(
    folder: RunFolder,
    *,
    identity: Mapping[str, Any],
    evaluators: Mapping[str, Any],
    suite: Mapping[str, Any],
    reproduce: str,
    threads: int,
) -> dict[str, Any]:
    """Write a new manifest, or check that the one in the folder describes the same run. Returns the one that holds.

    Raises AlreadyThereError listing what differs, both sides, when the folder was started as another run.
    """
    if folder.is_started:
        manifest = read_manifest(folder)
        if differences := identity_differences(manifest["identity"], identity):
            raise AlreadyThereError(
                f"{folder.path}: was started as another run, so its records cannot be continued:\n  "
                + "\n  ".join(differences)
                + "\nRestore what changed, or choose another --out."
            )
        return manifest
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "identity": identity,
        "suite": suite,
        "evaluators": evaluators,
        "environment": environment(threads),
        "run": {"started": utc_now(), "host": socket.gethostname(), "pid": os.getpid()},
        "reproduce": reproduce,
    }
    create(folder.manifest, canonical_json(manifest).encode())
    return manifest


def read_manifest(folder: RunFolder) -> dict[str, Any]:
    """The manifest of a run. Raises IntegrityError when the file is not one."""
    return read_document(folder.manifest, MANIFEST_SCHEMA)


def identity_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """One line per leaf that differs between two identities, each with both values."""
    a, b = _leaves(there, ""), _leaves(here, "")
    return [
        f"{path}: the folder has {a.get(path, 'nothing')}, this run has {b.get(path, 'nothing')}"
        for path in sorted(a.keys() | b.keys())
        if a.get(path) != b.get(path) or (path in a) != (path in b)
    ]


def _leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, item in value.items():
            found |= _leaves(item, f"{path}.{key}" if path else key)
        return found
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {path: ", ".join(str(item) for item in value)}
    return {path: value}


def utc_now() -> str:
    """The time of day for people, in UTC whatever the machine's zone."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

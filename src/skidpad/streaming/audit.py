"""Which files of a dataset a process opens, and in which phase; what a phase may not open is refused at the open.

Python announces every `open` to audit hooks. One hook per process watches the folder of the run's episodes while a
watch is on: outside `opening` nothing below that folder may be opened, so code that runs while frames arrive reads no
frame early and no vault at all. It guards against mistakes and cheats in Python, not against native code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skidpad.errors import RefusedError


@dataclass
class Watch:
    """What was opened below `folder` since the watch began.

    paths    relative to the folder, in order
    refused  those that were not allowed
    """

    folder: str
    phase: str
    paths: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    allowed: str | None = None

    def row(self, pair: str | None) -> dict[str, Any]:
        """As `opened.jsonl` holds it."""
        return {"phase": self.phase, "pair": pair, "paths": list(self.paths), "refused": list(self.refused)}

    def check(self) -> None:
        """Raises RefusedError when something was refused: whoever tried may have caught the error of the open."""
        if self.refused:
            raise RefusedError(f"{self.phase}: opened {self.refused[0]}, which is not to be read in this phase.")


_installed = False
_watch: Watch | None = None


def _hook(event: str, args: tuple[Any, ...]) -> None:
    watch = _watch
    if watch is None or event != "open" or not isinstance(args[0], (str, bytes, os.PathLike)):
        return
    path = os.path.realpath(os.fsdecode(args[0]))
    if not path.startswith(watch.folder + os.sep):
        return
    name = Path(path).relative_to(watch.folder).as_posix()
    if watch.allowed is not None and (path == watch.allowed or path.startswith(watch.allowed.rstrip(os.sep) + os.sep)):
        watch.paths.append(name)
        return
    watch.refused.append(name)
    raise RefusedError(
        f"{watch.phase}: {name} was about to be opened; in this phase only the house reads, and only what has arrived."
    )


@contextlib.contextmanager
def watching(folder: Path, phase: str) -> Iterator[Watch]:
    """Watch `folder` while the block runs: nothing in it may be opened but inside `opening`. Not to be nested."""
    global _installed, _watch
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True
    if _watch is not None:
        raise RuntimeError(f"already watching, in phase {_watch.phase}")
    _watch = Watch(os.path.realpath(folder), phase)
    try:
        yield _watch
    finally:
        _watch = None


@contextlib.contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Files below `folder` may be opened while the block runs."""
    watch = _watch
    if watch is None:
        yield
        return
    before, watch.allowed = watch.allowed, os.path.realpath(folder)
    try:
        yield
    finally:
        watch.allowed = before

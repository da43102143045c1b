"""A folder of scenes sorted into behaviour classes, one list file each: behind `skidpad scenes classify`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from skidpad.artifacts.files import replace
from skidpad.errors import SkidpadError, UsageError
from skidpad.scenes.behaviours import BEHAVIOURS, Shown, behaviours
from skidpad.scenes.convert import open_scene

LIST_SUFFIX = ".txt"


class Classified(NamedTuple):
    """One scene file: the behaviours it shows, or why it could not be read."""

    path: Path
    shown: tuple[Shown, ...]
    error: SkidpadError | None

    def summary(self) -> str:
        """One line per behaviour, or one that says that there is none."""
        if self.error is not None:
            return f"{self.path.name}: failed. {self.error}"
        if not self.shown:
            return f"{self.path.name}: none"
        return "\n".join(f"{self.path.name}: {one.behaviour} at {one.second:.1f} s, {one.why}" for one in self.shown)


def classify_files(files: Sequence[Path]) -> Iterator[Classified]:
    """The classes of each scene, in order. One that cannot be read is reported and does not keep the others."""
    for path in files:
        try:
            yield Classified(path, tuple(behaviours(open_scene(path))), None)
        except SkidpadError as error:
            yield Classified(path, (), error)


def write_lists(found: Sequence[Classified], out: Path) -> dict[str, Path]:
    """Write `<class>.txt` into a folder for each class that some scene shows: its scenes, one a line, relative to the
    list, so that a folder can be moved with them. Lists of an earlier call for classes that nobody shows now are
    removed. Returns the lists by class.

    Raises UsageError when `out` is a file.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file, expected a folder for the lists.")
    out.mkdir(parents=True, exist_ok=True)
    written = {}
    for name in BEHAVIOURS:
        paths = [one.path for one in found if any(shown.behaviour == name for shown in one.shown)]
        target = out / f"{name}{LIST_SUFFIX}"
        if paths:
            lines = [Path(os.path.relpath(path.absolute(), out.absolute())).as_posix() for path in paths]
            replace(target, ("\n".join(lines) + "\n").encode())
            written[name] = target
        else:
            target.unlink(missing_ok=True)
    return written

"""Drivers with weights among `eval.baselines`: shipped ones by their name, others as `NAME=FILE.safetensors`.

Which names there are is checked when a suite is loaded, and that the files are there. What they hold is for their
reader to say, before anything runs.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from skidpad.errors import nearest
from skidpad.settings.scene_paths import expanded
from skidpad.settings.schema import BASELINE_NAMES

SUFFIX = ".safetensors"
TAKEN = frozenset({*BASELINE_NAMES, "policy", "pdm"})
"""Names that mean somebody already: the baselines, the driver under test, and the planner of `eval.plan_reference`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Weights(NamedTuple):
    """A driver with weights, the name its records stand under, and its file."""

    name: str
    path: pathlib.Path


def name_of(entry: str) -> str:
    """The name of one entry of `eval.baselines`."""
    return entry.partition("=")[0]


def mistake(entry: str, shipped: Collection[str]) -> str | None:
    """What is wrong with an entry as it is written, as the end of a sentence; None where nothing is.

    shipped  names of the drivers that come with the package
    """
    name, has_file, file = entry.partition("=")
    if entry in BASELINE_NAMES or entry in shipped:
        return None
    if not has_file and entry.endswith(SUFFIX):
        return f"names the file {entry!r} without a name for its driver; write NAME={entry}"
    if not has_file:
        known = (*BASELINE_NAMES, *shipped)
        near = nearest(entry, known)
        return f"names {entry!r}, which is no driver; known are {', '.join(known)}, and NAME=FILE{SUFFIX}{near}"
    if not _NAME.fullmatch(name):
        return f"names a driver {name!r}; expected letters and digits, and '_', '-' and '.' between them"
    if name in TAKEN or name in shipped:
        return f"names a file {name!r}, which is another driver's name; choose another"
    if not file.endswith(SUFFIX):
        return f"names the file {file!r}; expected one that ends in {SUFFIX}"
    return None


def find_weights(
    entry: str, folder: pathlib.Path, environ: Mapping[str, str], shipped: Mapping[str, pathlib.Path]
) -> Weights | None:
    """The file of an entry without a mistake; None for a baseline.

    folder  what a relative path is relative to

    Raises ValueError where no file is there.
    """
    name, has_file, file = entry.partition("=")
    if not has_file:
        return Weights(name, shipped[name]) if name in shipped else None
    path = folder.absolute() / expanded(file, environ)
    if not path.is_file():
        raise ValueError(f"{str(path)!r} is not there")
    return Weights(name, path)

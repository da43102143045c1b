"""`skidpad verify`: every figure of a run derived again from what lies in its folder, trusting nobody.

A check collects what does not hold and goes on, so that one pass lists all of it. The folder of a run that was
interrupted is checked as far as it goes. What hashes cannot show: a whole chain rebuilt by its owner is consistent with
itself, and only a head kept elsewhere tells it from the first one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skidpad.artifacts.digests import canonical_json, digest_file
from skidpad.artifacts.files import parse_json
from skidpad.errors import EXIT_FAILED, EXIT_INTEGRITY, EXIT_OK, EXIT_USAGE, IntegrityError, SkidpadError, UsageError
from skidpad.runs.chain import read_chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import read_manifest

Page = Callable[[RunFolder, dict[str, Any]], str]
MAX_SHOWN = 3  # leaves shown of two values that differ
# What reading JSON of another form ends in: whoever changed a file can have changed any of it.
MISSHAPEN = (KeyError, TypeError, ValueError, IndexError, AttributeError, OSError)


@dataclass
class Findings:
    """What a verification found.

    problems  what does not hold; any of them means exit code 3
    undone    what was asked for and cannot be done here, and why
    notes     what else could not be checked, and why
    done      what was checked, for the reader
    complete  the run is finished and every pair or case in it has a result
    """

    problems: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def exit_code(self) -> int:
        """0 all holds, 1 all holds but the run is incomplete, 2 something that was asked for cannot be done here, 3
        something does not hold."""
        if self.problems:
            return EXIT_INTEGRITY
        if self.undone:
            return EXIT_USAGE
        return EXIT_OK if self.complete else EXIT_FAILED

    def add(self, error: SkidpadError) -> None:
        """Note an error as what it says: something does not hold, or something cannot be done here."""
        told = self.problems if isinstance(error, IntegrityError) else self.undone
        if str(error) not in told:
            told.append(str(error))

    def compare(self, what: str, there: Any, derived: Any) -> None:
        """Note each leaf in which the folder departs from what follows from its records."""
        if canonical_json(there) != canonical_json(derived):
            self.problems += differing(what, there, derived)


def differing(what: str, there: Any, derived: Any) -> list[str]:
    """The first few leaves in which two JSON values differ, as lines."""
    lines: list[str] = []

    def walk(path: str, a: Any, b: Any) -> None:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            for key in sorted(set(a) | set(b)):
                walk(f"{path}.{key}", a.get(key), b.get(key))
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            for number, (one, other) in enumerate(zip(a, b, strict=True)):
                walk(f"{path}[{number}]", one, other)
        elif isinstance(a, list) and isinstance(b, list):
            lines.append(f"{path}: {len(a)} entries, {len(b)} follow from the records")
        elif a != b or type(a) is not type(b):
            lines.append(f"{path}: {_short(a)}, but {_short(b)} follows from the records")

    walk(what, there, derived)
    more = [f"{what}: and {len(lines) - MAX_SHOWN} more"] if len(lines) > MAX_SHOWN else []
    return lines[:MAX_SHOWN] + more


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def verify_run(
    path: Path,
    *,
    assets: Path | None = None,
    checkpoints: Path | None = None,
    replay: int = 0,
    page: Page | None = None,
) -> Findings:
    """Check a run folder, of drivers or of a sealed evaluation.

    assets       folder of scenes, to hash every scene and all weights of the run again; of a sealed run that of the
                 dataset (its index.json), to hash every array again
    checkpoints  folder of weight files, where weights are looked for first; of a sealed run to hash them again
    replay       cases to run again with every driver, drawn by the chain head; of a sealed run pairs, and then both
                 folders are needed
    page         makes the page of a sealed run, to compare bytes

    Raises UsageError for a folder that is no run, and for options that mean nothing here.
    """
    folder = RunFolder(path)
    if not folder.is_started:
        raise UsageError(f"{path}: no manifest.json, so this is not a run folder.")
    found = Findings()
    try:
        manifest = read_manifest(folder)
    except SkidpadError as error:
        found.problems.append(str(error))
        return found
    is_sealed = "registration" in manifest["identity"]
    if is_sealed and replay and (assets is None or checkpoints is None):
        raise UsageError("--replay runs pairs of a sealed run again, so it needs both --assets and --checkpoints.")
    try:
        if is_sealed:
            from skidpad.evaluation.verify_sealed import verify_sealed

            verify_sealed(folder, manifest, found, assets=assets, checkpoints=checkpoints, replay=replay, page=page)
        else:
            from skidpad.evaluation.verify_drivers import verify_drivers

            verify_drivers(folder, manifest, found, assets=assets, checkpoints=checkpoints, replay=replay)
    except MISSHAPEN as error:
        if not found.problems:
            raise  # nothing was changed: this is a fault of ours
        found.notes.append(f"stopped early: what is left cannot be read ({type(error).__name__}: {error}).")
    return found


def checked_chain(folder: RunFolder, found: Findings) -> list[dict[str, Any]]:
    """The events of the chain; the first line that breaks it is a problem, and then there are none."""
    try:
        return read_chain(folder.chain)
    except (SkidpadError, OSError) as error:
        found.problems.append(str(error))
        return []


def drawn(names: Sequence[str], count: int, head: str) -> list[str]:
    """What to run again, by name: whoever fixed the chain head did not choose it."""
    return sorted(random.Random(head).sample(sorted(names), min(count, len(names))))


def read_json(path: Path, found: Findings) -> dict[str, Any] | None:
    """The object of a JSON file, or None with a problem."""
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        found.problems.append(f"{path}: cannot be read as JSON ({error}).")
        return None
    if not isinstance(value, dict):
        found.problems.append(f"{path}: not an object.")
        return None
    return value


def check_files(folder: RunFolder, expected: Mapping[str, str], found: Findings) -> None:
    """Every file with its digest, none missing and none more."""
    there = {item.relative_to(folder.path).as_posix(): item for item in folder.files()}
    for name in sorted(expected.keys() - there.keys()):
        found.problems.append(f"{name}: is missing.")
    for name in sorted(there.keys() - expected.keys()):
        found.problems.append(f"{name}: is no file of this run.")
    for name in sorted(expected.keys() & there.keys()):
        if digest_file(there[name]) != expected[name]:
            found.problems.append(f"{name}: was changed after the run had closed.")

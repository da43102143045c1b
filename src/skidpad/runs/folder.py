"""The run folder: where each file of a run lies, and what state the run is in.

    manifest.json        written first, exclusively: what runs
    chain.jsonl          hash-chained events
    records.jsonl        one line per (evaluator, checkpoint, case, arm)
    traces/<evaluator>/<case>@<arm>_step<N>.trace
    <evaluator>/episodes.csv, summary.csv
    renders/<evaluator>/ clips and pages of the cases that a section with `render = true` draws
    eval_summary.csv
    checkpoints/, training.csv   of training: the weights of its moments, and one line per update
    report.html
    report.json          written last of all, exclusively: the run is finished and never changes
    run.lock, progress.json   of the running process; no part of the result

A folder without `report.json` may be resumed and is never read as a result.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skidpad.artifacts.files import parse_json, run_lock
from skidpad.errors import AlreadyThereError, IntegrityError, SkidpadError, UsageError

REPORT_SCHEMA = "skidpad.report/3"
_PROCESS_FILES = frozenset({"run.lock", "progress.json"})
# Training saves the weights that evaluation is registered for, and runs what comes before it in folders of their own.
_BEFORE_THE_MANIFEST = _PROCESS_FILES | {"checkpoints", "stages"}
_TEMPORARY = re.compile(r".+\.tmp-\d+-[0-9a-f]{8}")


class RunFolder:
    """Paths of a run and its state. Creating one touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = path / "manifest.json"
        self.chain = path / "chain.jsonl"
        self.records = path / "records.jsonl"
        self.report = path / "report.json"
        self.page = path / "report.html"
        self.progress = path / "progress.json"

    def evaluator(self, name: str) -> Path:
        """Folder of an evaluator's tables."""
        return self.path / name

    def trace(self, evaluator: str, case: str, arm: str, step: int) -> Path:
        """Where the trace of one (case, arm) lies, if it was kept."""
        return self.traces(evaluator) / f"{case}@{arm}_step{step}.trace"

    def traces(self, evaluator: str) -> Path:
        """Folder of an evaluator's kept traces."""
        return self.path / "traces" / evaluator

    def renders(self, evaluator: str) -> Path:
        """Folder of an evaluator's clips and pages."""
        return self.path / "renders" / evaluator

    @property
    def is_finished(self) -> bool:
        """A finished run never changes."""
        return _exists(self.report)

    @property
    def is_started(self) -> bool:
        """A manifest says what runs here."""
        return _exists(self.manifest)

    @contextlib.contextmanager
    def held(self) -> Iterator[RunFolder]:
        """Create the folder if needed, hold its lock, and clear what a killed run left half-written.

        Raises AlreadyThereError when the run is finished or another runner holds the folder, UsageError when the
        folder holds something that is not a run or cannot be written.
        """
        if self.is_finished:
            raise self._finished()
        self._refuse_strangers()
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(run_lock(self.path))
            except OSError as error:
                if isinstance(error, SkidpadError):
                    raise
                raise UsageError(f"{self.path}: cannot be written ({error.strerror}). Choose another --out.") from None
            if self.is_finished:  # by the runner that held the lock a moment ago
                raise self._finished()
            self._sweep()
            yield self

    def _finished(self) -> AlreadyThereError:
        return AlreadyThereError(f"{self.path}: this run is finished and never changes. Choose another --out.")

    def _refuse_strangers(self) -> None:
        if not _exists(self.path):
            return
        if not self.path.is_dir():
            raise UsageError(f"{self.path}: is a file, expected a folder. Choose another --out.")
        if not self.is_started:
            for item in sorted(self.path.iterdir()):
                if item.name not in _BEFORE_THE_MANIFEST and not _TEMPORARY.fullmatch(item.name):
                    raise UsageError(
                        f"{self.path}: holds {item.name!r} but no manifest.json, so it is not a run. "
                        "Choose an empty --out."
                    )

    def _sweep(self) -> None:
        for item in sorted(self.path.rglob("*.tmp-*")):
            if _TEMPORARY.fullmatch(item.name):
                shutil.rmtree(item) if item.is_dir() else item.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """The files of the result, report.json apart, sorted by their path inside the folder."""
        found = [
            item
            for item in self.path.rglob("*")
            if item.is_file()
            and not any(_TEMPORARY.fullmatch(part) for part in item.relative_to(self.path).parts)
            and not (item.parent == self.path and item.name in {*_PROCESS_FILES, "report.json"})
        ]
        return sorted(found, key=lambda item: item.relative_to(self.path).as_posix())

    def read_report(self) -> dict[str, Any]:
        """The report of a finished run.

        Raises UsageError when the run is not finished, IntegrityError when the file is not a report.
        """
        if not self.path.is_dir():
            raise UsageError(f"{self.path}: no such folder, expected a run folder.")
        if not self.is_finished:
            state = "an unfinished run; resume it with the command that started it" if self.is_started else "not a run"
            raise UsageError(f"{self.path}: no report.json, so this is {state}.")
        return read_document(self.report, REPORT_SCHEMA)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have, for example one too long
        return False


def read_document(path: Path, schema: str) -> dict[str, Any]:
    """A JSON file of ours, checked for its schema. Raises IntegrityError when it is not one."""
    try:
        value = parse_json(path.read_bytes())
    except ValueError as error:
        raise IntegrityError(f"{path}: not JSON ({error}). The file was damaged after it was written.") from None
    if not isinstance(value, dict) or value.get("schema") != schema:
        found = value.get("schema") if isinstance(value, dict) else type(value).__name__
        raise IntegrityError(f"{path}: schema {found!r}, expected {schema!r}.")
    return value

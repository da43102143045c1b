"""Records that outlive a run: what a baseline or a checkpoint does in a case depends on the section, the metrics, the
code, the libraries and the weights alone, so later passes over the same cases take it from here and cost nothing (E71,
E104).

One file per (definition, arm, weights) in the user's cache folder, replaced whole. Records that failed are not kept,
nor are those of policy objects, whose code nobody knows, and of drivers whose rows depend on their batch. What is taken
is checked where it matters: cases that are shown are simulated again, and must give the trace that the record names.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.files import replace as replace_file
from skidpad.errors import IntegrityError
from skidpad.evaluation.evaluator import Arm, Evaluator
from skidpad.runs.manifest import code_digests
from skidpad.runs.records import Record, first_difference, read_records

LIBRARIES = ("numpy", "numba", "scipy")
MOST_FILES = 512


class KeptRecords:
    """Records in a folder.

    rerun  take nothing; what is run is compared with what is kept
    """

    def __init__(self, folder: Path, *, rerun: bool = False) -> None:
        self.folder = folder
        self.rerun = rerun

    def path(self, evaluator: Evaluator, arm: Arm) -> Path:
        """The file of what an arm does under one definition of an evaluation."""
        libraries = (*LIBRARIES, *(["torch"] if arm.checkpoint else []))
        identity = {
            "section": evaluator.section_digest(),
            "metrics": evaluator.metric_digest(),
            **code_digests(),
            "libraries": {name: metadata.version(name) for name in libraries},
            "arm": arm.name,
            "checkpoint": arm.checkpoint,
        }
        return self.folder / f"{digest_value(identity, 'kept records')}.jsonl"

    def load(self, evaluator: Evaluator, arm: Arm) -> dict[str, Record]:
        """Records by case id; none where there are none, or where the file does not hold together."""
        return {} if self.rerun else self._read(self.path(evaluator, arm))

    def save(self, evaluator: Evaluator, arm: Arm, records: Iterable[Record]) -> None:
        """Keep those that ended well. Raises IntegrityError, naming the first field that differs, where one differs
        from the record that is kept of its case (E104)."""
        path = self.path(evaluator, arm)
        there = self._read(path)
        new = {record.case: record for record in records if record.status == "ok"}
        for case, record in new.items():
            if case in there and (field := first_difference(_bare(there[case]), _bare(record))):
                raise IntegrityError(
                    f"case {case}, arm {arm.name!r}: run again it differs from the kept record in {field}. The driver "
                    f"or the simulator is not deterministic, or {path} was made on another machine; remove it."
                )
        if new.keys() <= there.keys():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        both = {**there, **new}
        replace_file(path, "".join(f"{_bare(both[case]).line()}\n" for case in sorted(both)).encode())
        files = sorted(self.folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
        for old in files[:-MOST_FILES]:
            old.unlink(missing_ok=True)

    def _read(self, path: Path) -> dict[str, Record]:
        try:
            return {record.case: record for record in read_records(path)}
        except (IntegrityError, OSError):
            return {}  # A cache: what cannot be read is made again.


def _bare(record: Record) -> Record:
    """A record without what belongs to the run it was made in."""
    return Record(**{**vars(record), "evaluator": "", "epoch": 0, "step": 0, "case_index": 0, "cost": {}})

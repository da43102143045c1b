"""Records: one line per (evaluator, checkpoint, case, arm), the only thing that statistics are computed from.

A record has a deterministic part and a cost. Byte equality is promised for everything except `cost`: two runs of the
same case give equal `deterministic(record)`, whatever machine, batch, order or interruption lay between. This module
writes lines, reads them back, and merges them without regard to order; it computes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from skidpad.artifacts.digests import canonical_json
from skidpad.artifacts.files import LineFile, parse_json, read_lines
from skidpad.errors import IntegrityError

RECORD_SCHEMA = "skidpad.record/1"
Status = Literal["ok", "error", "timeout", "stalled", "crashed", "invalid", "refused"]
STATUSES: tuple[str, ...] = get_args(Status)


class RecordKey(NamedTuple):
    """What makes a record the only one of its kind. Baselines depend on no checkpoint: theirs is empty."""

    evaluator: str
    checkpoint: str
    case: str
    arm: str


@dataclass(frozen=True)
class Record:
    """What one arm did in one case.

    checkpoint    content digest of the weights, "" for arms without
    case_index    position in the evaluator's cases, which are sorted by id
    ego           track under test in one-ego cases, -1 otherwise; `ego_rule` says how it was chosen
    error         None, or {"type", "message", "traceback"}
    result        {"n_agents", "steps", "metrics": {name: {"value", "valid", "numerator", "denominator", "reason"}},
                  "clipped_actions", "trace_digest", "state_hash"}; None unless status is "ok"
    cost          seconds, host, process: whatever differs between two equal runs
    """

    evaluator: str
    epoch: int
    step: int
    checkpoint: str
    case: str
    arm: str
    case_index: int
    scene_id: str
    scene_digest: str
    seed: int
    benchmark_seed: int
    replicate: int
    ego: int
    ego_rule: str
    status: Status
    error: Mapping[str, str] | None
    result: Mapping[str, Any] | None
    cost: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> RecordKey:
        return RecordKey(self.evaluator, self.checkpoint, self.case, self.arm)

    def line(self) -> str:
        """The record as one line of canonical JSON. Raises ValueError for NaN or infinity."""
        return canonical_json({"schema": RECORD_SCHEMA, **vars(self)})


_FIELD_NAMES = frozenset(Record.__dataclass_fields__)


def deterministic(record: Record) -> str:
    """The part of a record that two runs of the same case share, as canonical JSON: everything except `cost`."""
    return canonical_json({key: value for key, value in vars(record).items() if key != "cost"})


def parse_record(line: str, where: str) -> Record:
    """The record on a line. Raises IntegrityError naming `where` when the line is not one."""
    try:
        value = parse_json(line)
    except ValueError as error:
        raise IntegrityError(f"{where}: not a record ({error}). The file was damaged after it was written.") from None
    if not isinstance(value, dict) or value.pop("schema", None) != RECORD_SCHEMA or set(value) != _FIELD_NAMES:
        raise IntegrityError(f"{where}: not a {RECORD_SCHEMA} record.")
    if value["status"] not in STATUSES:
        raise IntegrityError(f"{where}: unknown status {value['status']!r}.")
    return Record(**value)


def read_records(path: Path) -> Iterator[Record]:
    """Records in the order written; a torn last line is left out, an absent file is empty.

    Raises IntegrityError for a line that is not a record.
    """
    if path.exists():
        for number, line in read_lines(path):
            yield parse_record(line, f"{path}:{number}")


def merge(records: Iterable[Record]) -> dict[RecordKey, Record]:
    """Records by key, sorted by key, whatever order they came in.

    Two records of one key with equal deterministic parts are one (shards may overlap). Raises IntegrityError, naming
    the first field that differs, when they are not equal.
    """
    found: dict[RecordKey, Record] = {}
    for record in records:
        other = found.setdefault(record.key, record)
        if other is not record and deterministic(other) != deterministic(record):
            raise IntegrityError(
                f"evaluator {record.evaluator!r}, case {record.case}, arm {record.arm!r}: two records that differ in "
                f"{first_difference(other, record)}. The same case must give the same record; run it again alone."
            )
    return {key: found[key] for key in sorted(found)}


def first_difference(a: Record, b: Record) -> str | None:
    """The first field, in order, in which the deterministic parts of two records differ; None where they are equal."""
    # As one text first: a walk spells every leaf apart, and records nearly always agree.
    return None if _spelled(a) == _spelled(b) else _walk(vars(a), vars(b), "")


def _spelled(record: Record) -> str:
    return canonical_json({name: value for name, value in vars(record).items() if name != "cost"})


def _walk(a: Any, b: Any, path: str) -> str | None:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if path == "" and key == "cost":
                continue
            inner = f"{path}.{key}" if path else key
            if (key in a) != (key in b):
                return inner
            if found := _walk(a[key], b[key], inner):
                return found
        return None
    return None if canonical_json(a) == canonical_json(b) else path


class RecordFile:
    """The record file of a run being written: remembers which keys are there, so that resuming skips them.

    Passes in several threads may write into one. `torn_bytes` counts what a kill left of a last line; it is cut on
    opening.
    """

    def __init__(self, path: Path) -> None:
        self._writing = threading.Lock()
        self._lines = LineFile(path)
        self.torn_bytes = self._lines.torn_bytes
        try:
            self.records = merge(read_records(path))
        except BaseException:
            self._lines.close()
            raise

    def __contains__(self, key: RecordKey) -> bool:
        return key in self.records

    def append(self, *records: Record) -> None:
        """Write the records of cases that finished together, a line each, and sync them. Raises IntegrityError, and
        writes none, when a key is already there."""
        with self._writing:
            new = {record.key: record for record in records}
            for record in records:
                if record.key in self.records or new[record.key] is not record:
                    raise IntegrityError(f"case {record.case}, arm {record.arm!r}: recorded twice.")
            self._lines.append(*(record.line() for record in records))
            self.records |= new

    def of(self, evaluator: str) -> list[Record]:
        """The records of an evaluator, as far as they are there."""
        with self._writing:
            return [record for record in self.records.values() if record.evaluator == evaluator]

    def close(self) -> None:
        self._lines.close()

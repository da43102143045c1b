"""Verification of a run of drivers: everything from its records, its metrics from the traces that it kept and, where
that is asked for, its scenes and weights hashed and some of its cases driven once more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from skidpad.artifacts.digests import canonical_json
from skidpad.artifacts.files import parse_json
from skidpad.errors import SkidpadError
from skidpad.evaluation.again import REPEATABLE, Again
from skidpad.evaluation.run_files import check_scene_file, found_weights
from skidpad.evaluation.verify import Findings, check_files, checked_chain, drawn, read_json
from skidpad.runs.folder import REPORT_SCHEMA, RunFolder
from skidpad.runs.records import Record, merge, read_records
from skidpad.runs.trace import Trace
from skidpad.runs.trace_file import read_trace

TOGETHER = 64
"""Kept traces that are measured at a time."""


def verify_drivers(
    folder: RunFolder,
    manifest: Mapping[str, Any],
    found: Findings,
    *,
    assets: Path | None,
    checkpoints: Path | None,
    replay: int,
) -> None:
    """Check a run of drivers; options as `verify_run`."""
    chain = checked_chain(folder, found)
    report = read_json(folder.report, found) if folder.is_finished else None
    if report is None:
        found.complete = False
        said = "the run is not finished: it has no report yet."
        (found.undone if replay or assets is not None else found.notes).append(said)
        return
    if report.get("schema") != REPORT_SCHEMA:
        found.problems.append(f"report.json: schema {report.get('schema')!r}, expected {REPORT_SCHEMA!r}.")
        return
    check_files(folder, report.get("files", {}), found)
    if chain and report.get("chain_head") != chain[-1]["hash"]:
        found.problems.append("report.json: its chain head is not the head of chain.jsonl.")
    from skidpad.evaluation.summary import build_report
    from skidpad.evaluation.tables import tables_of

    try:
        records = list(merge(read_records(folder.records)).values())
        built = build_report(folder, records)
    except SkidpadError as error:
        found.problems.append(str(error))
        return
    derived = parse_json(canonical_json(built))
    kept = {key: value for key, value in report.items() if key not in ("files", "chain_head")}
    found.compare("report", kept, derived)
    for name, table in tables_of(manifest["evaluators"], records, built).items():
        path = folder.path / name
        if path.exists() and path.read_bytes() != table:
            found.problems.append(f"{name}: does not follow from the records.")
    found.complete = bool(report.get("ok"))
    done = "report and tables from the records"
    found.done.append(f"{len(report.get('files', {}))} files, {len(chain)} events, {done}")
    again = Again(
        folder,
        manifest,
        assets=[] if assets is None else [assets],
        checkpoints=[] if checkpoints is None else [checkpoints],
    )
    check_traces(again, records, found)
    if assets is not None:
        check_scenes(again, found)
        check_weights(again, records, found, checkpoints)
    if replay:
        sensitive = {name for name, part in built["evaluators"].items() if part["batch_sensitive"] is not None}
        head = chain[-1]["hash"] if chain else ""
        drive_again(again, records, sensitive, replay, head, found)


def check_traces(again: Again, records: Sequence[Record], found: Findings) -> None:
    """Each kept trace is the one that its record was measured on, and measures to the same now."""
    measured = 0
    by_evaluator: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.result is not None:
            by_evaluator[record.evaluator].append(record)
    for name, own in by_evaluator.items():
        try:
            traces = _kept(again, own, found)
            while part := list(islice(traces, TOGETHER)):
                measured += len(part)
                for record, difference in again.measure(part):
                    if difference is not None:
                        _accuse(again, found, record, f"its trace measures to another {difference}", found.notes)
        except SkidpadError as error:
            found.notes.append(f"traces of {name} were not measured again: {error}")
    if measured:
        found.done.append(f"metrics of {measured} kept traces")


def _kept(again: Again, records: Sequence[Record], found: Findings) -> Iterator[tuple[Record, Trace]]:
    for record in records:
        path = again.folder.trace(record.evaluator, record.case, record.arm, record.step)
        if not path.is_file():
            continue
        try:
            trace = read_trace(path)
        except SkidpadError as error:
            found.problems.append(str(error))
            continue
        assert record.result is not None
        if trace.digest != record.result["trace_digest"]:
            found.problems.append(f"{path.name}: is not the trace that its record was measured on.")
        elif record.scene_digest in again.found:
            yield record, trace
        else:
            found.notes.append(f"{path.name}: not measured again, its scene {record.scene_id} was not found.")


def check_scenes(again: Again, found: Findings) -> None:
    """Hash every byte of every scene."""
    held = 0
    for digest in sorted(again.named):
        try:
            again.check_scene(digest)
            check_scene_file(again.found[digest], again.sources)
            held += 1
        except (SkidpadError, OSError) as error:
            found.add(error) if isinstance(error, SkidpadError) else found.undone.append(str(error))
    found.done.append(f"{held} of {len(again.named)} scenes, every byte")


def check_weights(again: Again, records: Sequence[Record], found: Findings, checkpoints: Path | None) -> None:
    """Find and hash the weights of every driver."""
    wanted = {record.checkpoint: record.evaluator for record in records if record.checkpoint}
    held = 0
    for digest, evaluator in sorted(wanted.items()):
        part = again.manifest["evaluators"][evaluator]
        try:
            found_weights(digest, again.folder, part, [] if checkpoints is None else [checkpoints])
            held += 1
        except SkidpadError as error:
            found.add(error)
    if wanted:
        found.done.append(f"{held} of {len(wanted)} weights")


def drive_again(
    again: Again, records: Sequence[Record], sensitive: set[str], count: int, head: str, found: Findings
) -> None:
    """Simulate drawn cases with every driver that had them; records must come out equal, to the last bit."""
    by_case: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.status in REPEATABLE:
            by_case[f"{record.evaluator}/{record.case}"].append(record)
    chosen = drawn(list(by_case), count, head)
    equal, driven = 0, 0
    for repeat in again.drive(record for case in chosen for record in by_case[case]):
        if repeat.problem is not None:
            found.add(repeat.problem)
            continue
        driven += 1
        equal += repeat.difference is None
        if repeat.difference is None:
            continue
        record, said = repeat.record, f"simulated again it gives another {repeat.difference}"
        if record.evaluator in sensitive and record.checkpoint:
            found.undone.append(f"{repeat.where}: {said}; its driver is batch_sensitive, so nothing follows.")
        else:
            _accuse(again, found, record, said, found.undone)
    where = f" ({again.elsewhere})" if again.elsewhere else ""
    found.done.append(f"{driven} records of {len(chosen)} cases simulated again, {equal} repeat exactly{where}")


def _accuse(again: Again, found: Findings, record: Record, said: str, otherwise: list[str]) -> None:
    """A difference is a problem where it cannot come from this being another installation or machine."""
    text = f"{record.evaluator}, case {record.case}, arm {record.arm!r}: {said}"
    if again.elsewhere:
        otherwise.append(f"{text}; this is not what the run was made with, so nothing follows ({again.elsewhere}).")
    else:
        found.problems.append(f"{text}.")

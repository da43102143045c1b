"""Scoring what already happened: traces, and rollouts as arrays, without running anything.

Traces may come from run folders or from anybody who writes the format; their scenes are found by digest. A score file
of an earlier call can stand beside them, unless one of its metrics has another version or definition: values of two
definitions never share an axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from skidpad.artifacts.files import parse_json
from skidpad.errors import CaseError, FormatError, UsageError, listed
from skidpad.evaluation.metrics.carla_score import spread
from skidpad.evaluation.metrics.peer import PEER, compute_peer
from skidpad.evaluation.metrics.registry import Metric, MetricValue, compute, digest_of, selected
from skidpad.evaluation.statistics import Column, estimate, intervals
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import read_manifest
from skidpad.runs.trace import Trace
from skidpad.runs.trace_file import read_trace
from skidpad.scenes.convert import file_stem, find_scenes, open_scene
from skidpad.scenes.library import library_scenes
from skidpad.scenes.scene import Scene

SCORE_SCHEMA = "skidpad.score/1"


class ScoredCase(NamedTuple):
    """One trace and what it scored, `agents` being those under test."""

    case: str
    arm: str
    evaluator: str
    scene_id: str
    scene_digest: str
    trace_digest: str
    agents: int
    metrics: Mapping[str, MetricValue]


class Failure(NamedTuple):
    """A trace that could not be scored, and why."""

    case: str
    arm: str
    why: str


def score_case(trace: Trace, scene: Scene, names: Iterable[str] | None = None, *, peer: bool = False) -> ScoredCase:
    """Every metric of one trace, or those named; with `peer` also the peer's own values, as `puffer/...`.

    Raises UsageError for an unknown metric, ProtocolError for a trace of another scene, CaseError for a value outside
    its declared range.
    """
    values = compute(trace, scene, names)
    if peer:
        values |= compute_peer(trace, scene)
    meta = trace.meta
    return ScoredCase(
        meta.case,
        meta.arm,
        meta.evaluator,
        meta.scene_id,
        meta.scene_digest,
        trace.digest,
        len(trace["scored"]),
        values,
    )


def score_files(
    files: Sequence[Path], scenes: Sequence[str] = (), names: Iterable[str] | None = None, *, peer: bool = False
) -> dict[str, Any]:
    """The score table of traces and earlier score files, as `skidpad score --json` prints it.

    files   trace files, run folders or folders of traces, and score files
    scenes  scene files, folders or library:<glob>, searched before the library and the paths of run folders

    Raises UsageError for a trace whose scene is not found, for the same case and arm twice, and for a score file whose
    metrics are defined otherwise.
    """
    chosen = None if names is None else list(names)
    stored = [path for path in files if path.suffix == ".json"]
    traces = find_traces([path for path in files if path.suffix != ".json"])
    shelf = Shelf(scenes, [path for path in files if (path / "manifest.json").is_file()])
    cases: list[ScoredCase] = []
    failures: list[Failure] = []
    for path in traces:
        trace = read_trace(path)
        try:
            cases.append(score_case(trace, shelf.scene_of(trace, path), chosen, peer=peer))
        except CaseError as error:
            failures.append(Failure(trace.meta.case, trace.meta.arm, str(error)))
    table = score_table(cases, selected(chosen) + ([entry.metric for entry in PEER.values()] if peer else []))
    table["failed"] = [failure._asdict() for failure in failures]
    for path in stored:
        table["arms"] |= beside(table, read_score(path), path)
    return table


def score_table(cases: Sequence[ScoredCase], metrics: Sequence[Metric]) -> dict[str, Any]:
    """Values of every arm over its cases, with both weightings, an interval over scenes and the spread over cases.

    Raises UsageError for two traces of one case and arm.
    """
    several = len({case.evaluator for case in cases}) > 1
    arms: dict[str, dict[str, ScoredCase]] = {}
    for case in cases:
        members = arms.setdefault(f"{case.evaluator}: {case.arm}" if several else case.arm, {})
        if case.case in members:
            raise UsageError(f"two traces of case {case.case} by {case.arm}. Score one run at a time.")
        members[case.case] = case
    return {
        "schema": SCORE_SCHEMA,
        "metrics": {metric.name: line_of(metric) for metric in metrics},
        "arms": {arm: _arm(list(arms[arm].values()), metrics) for arm in sorted(arms)},
        "cases": [_case(case) for case in cases],
    }


def line_of(metric: Metric) -> dict[str, Any]:
    """What a reader of a score file needs to know about a metric; `digest` is its definition's identity."""
    return {
        "version": metric.version,
        "unit": metric.unit,
        "direction": metric.direction,
        "aggregation": metric.aggregation,
        "digest": digest_of([metric]),
    }


def _case(case: ScoredCase) -> dict[str, Any]:
    return {**case._asdict(), "metrics": {name: value.as_record() for name, value in case.metrics.items()}}


def _arm(cases: Sequence[ScoredCase], metrics: Sequence[Metric]) -> dict[str, Any]:
    columns = {metric.name: _column(metric, cases) for metric in metrics}
    bounds = intervals(columns, [case.scene_digest for case in cases])
    entries = {}
    for metric in metrics:
        column, bound = columns[metric.name], bounds[metric.name]
        found = [case.metrics[metric.name] for case in cases]
        value = estimate(*column)
        values = [item.value for item in found if item.value is not None]
        reasons = sorted(item.reason for item in found if item.reason is not None)
        entries[metric.name] = {
            "value": value,
            "valid": value is not None,
            "reason": max(reasons, key=reasons.count) if value is None and reasons else None,
            "by_agent": estimate(column.numerators, column.denominators, "by_agent"),
            "n": len(values),
            "interval": None if bound.low is None else [bound.low, bound.high],
            "interval_reason": bound.reason,
            "spread": spread(values),
        }
    return {
        "cases": len(cases),
        "scenes": len({case.scene_digest for case in cases}),
        "agents": sum(case.agents for case in cases),
        "metrics": entries,
    }


def _column(metric: Metric, cases: Sequence[ScoredCase]) -> Column:
    """A metric's values over cases. An exposure metric keeps its numerator where it is not valid: metres without an
    infraction still count."""
    values = [case.metrics[metric.name] for case in cases]
    exposure = metric.shape == "exposure"
    return Column(
        [value.numerator if value.valid or exposure else 0.0 for value in values],
        [value.denominator if value.valid else 0.0 for value in values],
        metric.aggregation,
    )


# -- files --------------------------------------------------------------------------------------------------------


def holds_traces(path: Path) -> bool:
    """Whether a path names traces (a folder, a trace file) or a table of them, and not rollouts."""
    if path.is_dir() or path.suffix == ".trace":
        return True
    if path.suffix != ".json" or not path.is_file():
        return False
    found = parse_json(path.read_bytes())
    return isinstance(found, dict) and found.get("schema") == SCORE_SCHEMA


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """Trace files named by paths and folders, in order, each once. Raises UsageError for a path without any."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = sorted(path.rglob("*.trace")) if path.is_dir() else [path] if path.is_file() else []
        if not inside:
            raise UsageError(
                f"{path}: no trace there. Name .trace files, or a run folder whose suite has keep_traces = "
                '"all" or "selected".'
            )
        found.update(dict.fromkeys(inside))
    return list(found)


class Shelf:
    """Scenes by digest, opened when a trace asks for them."""

    def __init__(self, patterns: Sequence[str], runs: Sequence[Path]) -> None:
        """`patterns` as `find_scenes` takes them, `runs` are run folders whose manifests name scene files."""
        self._given = find_scenes(patterns) if patterns else []
        self._told = [
            Path(entry["path"])
            for run in runs
            for part in read_manifest(RunFolder(run))["evaluators"].values()
            for entry in part["scenes"].values()
        ]
        self._open: dict[Path, Scene] = {}

    def scene_of(self, trace: Trace, where: Path) -> Scene:
        """The scene that a trace names. Raises UsageError if it is not found."""
        stem = file_stem(trace.meta.scene_id)
        # Most names are right, so files of that name are opened first and the others only if they must be.
        known = dict.fromkeys([*self._given, *library_scenes(), *self._told])
        places = sorted(known, key=lambda path: path.stem != stem)
        for path in places:
            if path.is_file() and self._opened(path).digest == trace.meta.scene_digest:
                return self._opened(path)
        raise UsageError(
            f"{where}: recorded in scene {trace.meta.scene_id} ({trace.meta.scene_digest[:12]}), which is none of the "
            f"{len(places)} looked at. Pass its file with --scenes."
        )

    def _opened(self, path: Path) -> Scene:
        if path not in self._open:
            self._open[path] = open_scene(path)
        return self._open[path]


def read_score(path: Path) -> dict[str, Any]:
    """A score table from a file. Raises FormatError for anything else."""
    found = parse_json(path.read_bytes())
    if not isinstance(found, dict) or found.get("schema") != SCORE_SCHEMA:
        raise FormatError(f"{path}: expected a score file, JSON with schema {SCORE_SCHEMA!r}.")
    return found


def beside(table: Mapping[str, Any], other: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The arms of another score table, to stand in `table`; metrics that only the other has are left out.

    Raises UsageError where a metric is defined otherwise there: two definitions never share an axis.
    """
    common = [name for name in table["metrics"] if name in other["metrics"]]
    differ = []
    for name in common:
        here, there = table["metrics"][name], other["metrics"][name]
        if here["version"] != there["version"]:
            differ.append(f"{name} (version {there['version']} there, {here['version']} here)")
        elif here["digest"] != there["digest"]:
            differ.append(f"{name} (other parameters or golden values)")
    if differ:
        raise UsageError(
            f"{path}: {listed(differ)}: values of two definitions do not share an axis. Score its traces again with "
            "this version, or leave these metrics out with --metric."
        )
    return {
        f"{path.stem}: {arm}": {**part, "metrics": {name: part["metrics"][name] for name in common}}
        for arm, part in other["arms"].items()
    }

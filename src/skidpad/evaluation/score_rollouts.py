"""Scoring rollouts of any program: realism scores with what belongs beside them, from files of arrays.

A rollouts file (npz, JSON) holds its case; the public submission layout holds only what was simulated, and the case
with the same id comes from a case file or a scene.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skidpad.errors import UsageError, listed
from skidpad.evaluation.metrics.realism import BUCKETS, RealismResult, configuration
from skidpad.evaluation.metrics.realism_context import BASELINES, RealismContext, realism_in_context
from skidpad.evaluation.metrics.registry import MetricValue
from skidpad.evaluation.metrics.rollout_registry import (
    PEER_ROLLOUT_METRICS,
    compute_rollouts,
    rollout_spec_digest,
    selected_rollout_metrics,
)
from skidpad.evaluation.rollout_files import ZIP_MAGIC, read_case, read_rollouts
from skidpad.evaluation.rollout_scenes import scene_case
from skidpad.evaluation.rollouts import RolloutCase, Rollouts, check_rollouts
from skidpad.evaluation.statistics import Column, intervals
from skidpad.evaluation.submission import read_submission
from skidpad.scenes.convert import find_scenes, open_scene

ROLLOUT_SCORE_SCHEMA = "skidpad.score.rollouts/1"
SUBMITTED = "rollouts"


class ScoredRollouts(NamedTuple):
    """One scenario and what its rollouts scored.

    context  the realism score with what belongs beside it; None where the peer's value was asked for, which never
             stands in one table with it
    """

    scenario_id: str
    file: str
    rollouts: int
    not_standard: tuple[str, ...]
    values: Mapping[str, MetricValue]
    context: RealismContext | None

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **self._asdict(),
            "not_standard": list(self.not_standard),
            "values": {name: value.as_record() for name, value in self.values.items()},
            "context": None if self.context is None else self.context.as_record(),
        }


def score_rollouts(
    files: Sequence[Path],
    *,
    cases: Sequence[Path] = (),
    scenes: Sequence[str] = (),
    year: str = "2025",
    not_standard: bool = False,
    official_light: bool = False,
    peer: bool = False,
) -> dict[str, Any]:
    """Metrics of rollout files, as `skidpad score --json` prints them: realism among its baselines, or the peer's.

    files           rollouts (npz, JSON) or submissions
    cases, scenes   where the cases of submissions are: case files, and scenes as `find_scenes` takes them
    year            configuration of the realism score
    not_standard    score what is not the standard task too; the table says so
    official_light  search the nearest lane as the official code does
    peer            only the peer's realism value

    Raises UsageError for a submission whose case is not found, for a scenario twice, and for standard and other tasks
    in one table.
    """
    chosen = configuration(year)
    names = list(PEER_ROLLOUT_METRICS) if peer else [
        line.name
        for line in selected_rollout_metrics()
        if not line.name.startswith("realism_") or line.name == chosen.name
    ]  # fmt: skip
    found = []
    for path, case, rollouts in each_rollouts(files, cases, scenes):
        values = compute_rollouts(case, rollouts, names, not_standard=not_standard, official_light=official_light)
        context = None if peer else realism_in_context(
            rollouts, case.log, case.edges, case.lights, year,
            not_standard=not_standard, official_light=official_light,
        )  # fmt: skip
        deviations = check_rollouts(rollouts, case.log, not_standard=not_standard).not_standard
        found.append(ScoredRollouts(case.scenario_id, str(path), rollouts.count, deviations, values, context))
    _check_one_axis(found)
    contexts = [entry.context for entry in found if entry.context is not None]
    ids = [entry.scenario_id for entry in found]
    return {
        "schema": ROLLOUT_SCORE_SCHEMA,
        "name": names[0],
        "standard": all(not entry.not_standard for entry in found),
        "official_light": official_light,
        "metrics": {
            line.name: {
                "version": line.version,
                "unit": line.unit,
                "direction": line.direction,
                "digest": rollout_spec_digest([line.name]),
            }
            for line in selected_rollout_metrics(names)
        },
        "values": {name: _mean([entry.values[name].value for entry in found]) for name in names},
        "realism": {
            SUBMITTED: _row([context.result for context in contexts], ids),
            **{arm: _row([context.baselines[arm] for context in contexts], ids) for arm in BASELINES},
        }
        if contexts
        else None,
        "halves": _halves(contexts),
        "scenarios": [entry.as_record() for entry in found],
    }


def _check_one_axis(found: Sequence[ScoredRollouts]) -> None:
    twice = [name for name, count in Counter(entry.scenario_id for entry in found).items() if count > 1]
    if twice:
        raise UsageError(f"scenario {listed(twice)} occurs twice. Score one set of rollouts at a time.")
    if len({not entry.not_standard for entry in found}) > 1:
        other = [entry.scenario_id for entry in found if entry.not_standard]
        raise UsageError(
            f"standard and other tasks in one table ({listed(other)} deviate): no mean is comparable. Score them apart."
        )


def each_rollouts(
    files: Sequence[Path], cases: Sequence[Path], scenes: Sequence[str]
) -> Iterator[tuple[Path, RolloutCase, Rollouts]]:
    """Every scenario of the files with its case. Raises UsageError for a submitted one without."""
    known: dict[str, RolloutCase] | None = None
    for path in files:
        head = path.read_bytes()[:512] if path.is_file() else b""
        if not head:
            raise UsageError(f"{path}: no such file, or an empty one. Name rollouts (npz, JSON) or a submission.")
        if head.startswith(ZIP_MAGIC) or head.lstrip().startswith(b"{"):
            yield path, *read_rollouts(path)
            continue
        if known is None:
            known = {case.scenario_id: case for case in map(read_case, cases)}
            known |= {case.scenario_id: case for case in (scene_case(open_scene(at)) for at in _paths(scenes))}
        for name, rollouts in read_submission(path).items():
            if name not in known:
                raise UsageError(
                    f"{path}: scenario {name!r} is none of the {len(known)} cases given. A submission holds no log: "
                    "pass its case with --case, or its scene with --scenes."
                )
            yield path, known[name], rollouts


def _paths(scenes: Sequence[str]) -> list[Path]:
    return find_scenes(scenes) if scenes else []


def _row(results: Sequence[RealismResult], scenarios: Sequence[str]) -> dict[str, Any]:
    """Means over scenarios of one simulator, as published tables have them, and how many were dropped and why."""
    values = [result.value for result in results]
    bound = intervals({"": _column(values)}, scenarios)[""]
    names = tuple(results[0].rates) if results else ()
    return {
        "value": _mean(values),
        "n": sum(value is not None for value in values),
        "dropped": dict(Counter(result.reason for result in results if result.value is None)),
        "interval": None if bound.low is None else [bound.low, bound.high],
        "interval_reason": bound.reason,
        "buckets": {bucket: _mean([result.buckets[bucket] for result in results]) for bucket in BUCKETS},
        "rates": {name: _mean([result.rates[name] for result in results]) for name in names},
        "min_ade_official": _mean([result.min_ade for result in results]),
    }


def _column(values: Sequence[float | None]) -> Column:
    return Column(
        [0.0 if value is None else value for value in values], [0.0 if value is None else 1.0 for value in values]
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _halves(contexts: Sequence[RealismContext]) -> list[float | None] | None:
    """Mean scores of the even and of the odd rollouts: how far chance moves the number."""
    halves = [context.halves for context in contexts if context.halves is not None]
    return [_mean([pair[side].value for pair in halves]) for side in (0, 1)] if halves else None

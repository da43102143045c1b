"""The part of a report that a realism score is read with (Q29): of the same scenes, from records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skidpad.evaluation.statistics import Column, intervals
from skidpad.runs.records import Record

BUCKETS = ("kinematic", "interactive", "map_based")
Scores = Sequence[tuple[str, Mapping[str, Any]]]


def realism_part(by_arm: Mapping[str, Sequence[Record]], part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arms, baselines made of the log, deviations from the standard task and settings of the task; None for evaluators
    that measure no realism."""
    if part["type"] != "realism":
        return None
    done = {arm: [(r.scene_digest, r.result) for r in records if r.result] for arm, records in by_arm.items()}
    scores = {arm: [(scene, result["realism"]) for scene, result in results] for arm, results in done.items()}
    made: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for scene, result in done.get("log", []):
        for name, one in result["baselines"].items():
            made.setdefault(name, []).append((scene, one))
    knobs = part["settings"]["eval"]
    reasons = Counter(reason for _, one in scores.get(part["focus"], []) for reason in one["not_standard"])
    names = [one["name"] for row in scores.values() for _, one in row]
    return {
        "name": names[0] if names else knobs["primary"],
        "goals": part["settings"]["env"]["goal_source"] or "log",
        "rollouts": knobs["rollouts"],
        "not_standard": [f"{reason} ({count})" for reason, count in sorted(reasons.items())],
        "arms": {arm: {**_row(scores[arm], knobs), "halves": _halves(done[arm])} for arm in part["arms"]},
        "baselines": {name: _row(row, knobs) for name, row in made.items()},
    }


def _row(scores: Scores, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Means over scenes, as published tables have them, and how many have no value and why."""
    values = [one["value"] for _, one in scores]
    column = Column(
        [0.0 if value is None else value for value in values], [float(value is not None) for value in values]
    )
    bound = intervals(
        {"": column}, [scene for scene, _ in scores], method=knobs["interval_method"], resamples=knobs["resamples"]
    )[""]
    rates = scores[0][1]["rates"] if scores else {}
    return {
        "value": _mean(values),
        "n": sum(value is not None for value in values),
        "dropped": dict(Counter(one["reason"] for _, one in scores if one["value"] is None)),
        "interval": None if bound.low is None else [bound.low, bound.high],
        "interval_reason": bound.reason,
        "buckets": {bucket: _mean([one["buckets"][bucket] for _, one in scores]) for bucket in BUCKETS},
        "rates": {name: _mean([one["rates"][name] for _, one in scores]) for name in rates},
        "min_ade": _mean([one["min_ade"] for _, one in scores]),
    }


def _halves(results: Scores) -> list[float] | None:
    """Mean scores of the even and of the odd rollouts: how far chance moves the number."""
    pairs = [one["halves"] for _, one in results if one["halves"] and None not in one["halves"]]
    return [float(np.mean(side)) for side in zip(*pairs, strict=True)] if pairs else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None

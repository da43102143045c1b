"""Distributional realism of simulated agents (`realism_2023`, `realism_2024`, `realism_2025`, `realism_2025_gen`).

How probable is what was logged under what was simulated? Ten features, each with a likelihood between 0 and 1, in one
weighted sum, as arXiv 2305.12032 defines them and the configurations of three years weigh them. A perfect log does not
score 1 and a parked world can beat a moving one, so the number is never shown alone: see `realism_context.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skidpad.errors import UsageError, listed
from skidpad.evaluation.metrics.displacement_sets import ade_official
from skidpad.evaluation.metrics.realism_estimators import (
    F64,
    Bins,
    bernoulli_log_likelihood,
    histogram_log_likelihood,
    likelihood,
)
from skidpad.evaluation.metrics.realism_features import (
    INDICATIONS,
    SERIES,
    Features,
    Validity,
    logged_features,
    simulated_features,
    validity,
)
from skidpad.evaluation.rollouts import Bool, Lights, Log, RoadEdges, Rollouts, Task, check_rollouts

BUCKETS: Mapping[str, tuple[str, ...]] = {
    "kinematic": ("linear_speed", "linear_acceleration", "angular_speed", "angular_acceleration"),
    "interactive": ("distance_to_nearest_object", "collision_indication", "time_to_collision"),
    "map_based": ("distance_to_road_edge", "offroad_indication", "traffic_light_violation"),
}
FEATURES = tuple(name for names in BUCKETS.values() for name in names)
# What a feature needs of the case, and the reason where that is missing.
_NEEDS = {"distance_to_road_edge": "no_map", "offroad_indication": "no_map", "traffic_light_violation": "no_signal"}


class Term(NamedTuple):
    """One feature in one configuration.

    weight  share of the meta value
    bins    None for events
    pooled  one estimator for all objects instead of one each
    """

    weight: float
    bins: Bins | None
    pooled: bool = False


@dataclass(frozen=True)
class Configuration:
    """Which terms a year has; a version of the metric is a configuration."""

    name: str
    version: int
    terms: Mapping[str, Term]


_DISTANCES = {
    "distance_to_nearest_object": Bins(-5.0, 40.0, 10),
    "time_to_collision": Bins(0.0, 5.0, 10),
    "distance_to_road_edge": Bins(-20.0, 40.0, 10),
}
_BINS_2023 = _DISTANCES | {
    "linear_speed": Bins(0.0, 35.0, 10),
    "linear_acceleration": Bins(-15.0, 15.0, 10),
    "angular_speed": Bins(-31.5, 31.5, 10),
    "angular_acceleration": Bins(-31.5, 31.5, 10),
}
_BINS_2024 = _DISTANCES | {
    "linear_speed": Bins(0.0, 25.0, 10),
    "linear_acceleration": Bins(-12.0, 12.0, 11),
    "angular_speed": Bins(-0.628, 0.628, 11),
    "angular_acceleration": Bins(-3.14, 3.14, 11),
}
# In the order of FEATURES; the weights of 2023 sum to .99, as configured.
_WEIGHTS_2023 = (0.09, 0.09, 0.09, 0.09, 0.09, 0.18, 0.09, 0.09, 0.18)
_WEIGHTS_2024 = (0.05, 0.05, 0.05, 0.05, 0.10, 0.25, 0.10, 0.10, 0.25, 0.0)
_WEIGHTS_2025 = (0.05, 0.05, 0.05, 0.05, 0.10, 0.25, 0.10, 0.05, 0.25, 0.05)


def _configuration(
    year: str, weights: tuple[float, ...], bins: Mapping[str, Bins], pooled: tuple[str, ...] = ()
) -> Configuration:
    terms = {
        feature: Term(weight, bins.get(feature), feature in pooled)
        for feature, weight in zip(FEATURES, weights, strict=False)
    }
    return Configuration(f"realism_{year}", 1, terms)


CONFIGURATIONS: Mapping[str, Configuration] = {
    "2023": _configuration("2023", _WEIGHTS_2023, _BINS_2023),
    "2024": _configuration("2024", _WEIGHTS_2024, _BINS_2024),
    "2025": _configuration("2025", _WEIGHTS_2025, _BINS_2024),
    "2025_gen": _configuration("2025_gen", _WEIGHTS_2025, _BINS_2024, FEATURES[:-1]),
}


@dataclass(frozen=True, eq=False)
class Compared:
    """Log and simulation of one task, ready to be scored by any configuration.

    The features are the expensive part, so one of these serves all years, intervals and displacement values.
    """

    task: Task
    simulated: Features
    logged: Features
    valid: Validity
    official_light: bool


@dataclass(frozen=True)
class RealismResult:
    """One realism score of one case.

    name            the metric: "realism_2025"
    version         of its definition
    value           the weighted sum of likelihoods; None where a term that weighs something is missing
    reason          why it is missing
    likelihoods     per feature, in (0, 1]; None where missing
    reasons         why, for the missing ones
    buckets         "kinematic", "interactive", "map_based": weight-normalised means
    rates           share of (rollout, scored object) with a simulated contact, off-road row, red light
    ade             [m]  `ade_official`, the mean over rollouts and objects
    min_ade         [m]  `min_ade_official`, of the best rollout as a whole
    official_light  the nearest lane was searched as the official code does
    not_standard    how the task deviates; empty = comparable with published values
    """

    name: str
    version: int
    value: float | None
    reason: str | None
    likelihoods: Mapping[str, float | None]
    reasons: Mapping[str, str]
    buckets: Mapping[str, float | None]
    rates: Mapping[str, float | None]
    ade: float
    min_ade: float
    official_light: bool
    not_standard: tuple[str, ...]

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON; what is missing is null, beside its reason."""
        found = {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}
        return found | {"not_standard": list(self.not_standard)}


def realism(
    rollouts: Rollouts,
    log: Log,
    edges: RoadEdges | None,
    lights: Lights | None,
    year: str = "2025",
    *,
    not_standard: bool = False,
    official_light: bool = False,
) -> RealismResult:
    """Realism score of one case from arrays alone.

    edges           None where the source has no road edges: the map terms and the score are then missing
    lights          None where the source cannot carry lights; a map without lights has `Lights` without signals
    year            "2023", "2024", "2025" or "2025_gen"
    not_standard    score a task that is not the standard one; the result says how it deviates
    official_light  search the nearest lane as the official code does (Q24)

    Raises UsageError for an unknown year, ProtocolError for rollouts and log that are no standard task.
    """
    configuration(year)
    task = check_rollouts(rollouts, log, not_standard=not_standard)
    return score(compare(task, edges, lights, official_light=official_light), year)


def configuration(year: str) -> Configuration:
    """The configuration of a year. Raises UsageError for an unknown one."""
    if year not in CONFIGURATIONS:
        raise UsageError(f"unknown year {year!r} of the realism score, expected one of {listed(CONFIGURATIONS)}.")
    return CONFIGURATIONS[year]


def compare(task: Task, edges: RoadEdges | None, lights: Lights | None, *, official_light: bool = False) -> Compared:
    """Features of the rollouts and of their log."""
    simulated = simulated_features(task.rollouts, task.log, edges, lights, official_light=official_light)
    logged = logged_features(task.log, edges, lights, official_light=official_light)
    return Compared(task, simulated, logged, validity(task.log), official_light)


def score(compared: Compared, year: str) -> RealismResult:
    """The score of one configuration. Raises UsageError for an unknown year."""
    chosen = configuration(year)
    found = {
        name: term_likelihood(compared.simulated, compared.logged, compared.valid, name, term)
        for name, term in chosen.terms.items()
    }
    values = {name: value for name, (value, _) in found.items()}
    reasons = {name: reason for name, (_, reason) in found.items() if reason is not None}
    weights = {name: term.weight for name, term in chosen.terms.items()}
    official = ade_official(compared.task)
    return RealismResult(
        name=chosen.name,
        version=chosen.version,
        value=weighted_sum(values, weights),
        reason=next((reasons[name] for name in reasons if weights[name] > 0), None),
        likelihoods=values,
        reasons=reasons,
        buckets={bucket: bucket_value(values, weights, names) for bucket, names in BUCKETS.items()},
        rates=simulated_rates(compared.simulated, compared.valid),
        ade=float(official.mean()),
        min_ade=float(official.mean(axis=1).min()),
        official_light=compared.official_light,
        not_standard=compared.task.not_standard,
    )


def term_likelihood(
    simulated: Features, logged: Features, valid: Validity, feature: str, term: Term
) -> tuple[float | None, str | None]:
    """Likelihood of one feature, in (0, 1], or None and the reason."""
    found = log_likelihoods(simulated, logged, valid, feature, term)
    if found is None:
        return None, _NEEDS[feature]
    values, compared = found
    value = likelihood(values, compared)
    if value is not None:
        return value, None
    judged = valid.vehicle if feature in ("time_to_collision", "traffic_light_violation") else np.True_
    return None, "too_short" if np.any(judged) else "not_applicable"


def log_likelihoods(
    simulated: Features, logged: Features, valid: Validity, feature: str, term: Term
) -> tuple[F64, Bool] | None:
    """Log-likelihoods of one feature and which of them are compared: (E, F) f64 and bool for quantities, (E,) for
    events. None where the case lacks what the feature is about."""
    if feature in INDICATIONS:
        rows, own = happened(simulated, valid, feature), happened(logged, valid, feature)
        if rows is None or own is None:
            return None
        compared = valid.vehicle if feature == "traffic_light_violation" else np.ones(len(valid.vehicle), dtype=bool)
        # A scene without a single valid row has seen nothing: that nothing happened would score 1.
        compared = compared & valid.present.any()
        return bernoulli_log_likelihood(rows, own[0], pooled_objects=term.pooled), compared
    series, own_series = getattr(simulated, feature), getattr(logged, feature)
    if series is None or own_series is None or term.bins is None:
        return None
    values = histogram_log_likelihood(series, own_series[0], term.bins, pooled_objects=term.pooled)
    return values, valid.of(feature)


def happened(features: Features, valid: Validity, indication: str) -> Bool | None:
    """(R, E) bool, whether the thing happened at any row that is valid in the log; None where it cannot be known."""
    rows = features.steps(indication)
    return None if rows is None else np.asarray((rows & valid.present).any(axis=2))


def weighted_sum(values: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """Sum of weight x likelihood; None where a term with weight is missing: weights are never shared out silently."""
    total = 0.0
    for name, weight in weights.items():
        value = values[name]
        if weight == 0:
            continue
        if value is None:
            return None
        total += weight * value
    return total


def bucket_value(
    values: Mapping[str, float | None], weights: Mapping[str, float], names: tuple[str, ...]
) -> float | None:
    """Weighted mean of the terms of one bucket that the configuration has."""
    own = {name: weights[name] for name in names if name in weights}
    total = weighted_sum(values, own)
    return None if total is None else total / sum(own.values())


def simulated_rates(simulated: Features, valid: Validity) -> dict[str, float | None]:
    """Share of (rollout, scored object) in which each indication happened; lights over all scored objects too."""
    found = {}
    for name in INDICATIONS:
        rows = happened(simulated, valid, name)
        found[name] = None if rows is None else float(rows.mean())
    return found


def data_set_mean(results: list[RealismResult]) -> tuple[float | None, dict[str, int]]:
    """Plain mean of the scores over the scenes that have one, and how many were dropped, by reason (Q27, Q29).

    Raises UsageError where results of different metrics or tasks would be mixed.
    """
    kinds = {(result.name, result.version, result.official_light, not result.not_standard) for result in results}
    if len(kinds) > 1:
        raise UsageError(
            f"{len(kinds)} kinds of realism results in one mean, expected one metric, version, rule for lights and "
            "kind of task. Average them apart."
        )
    values = [result.value for result in results if result.value is not None]
    reasons = [result.reason for result in results if result.value is None and result.reason is not None]
    dropped = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    return (float(np.mean(values)) if values else None), dropped


__all__ = [
    "BUCKETS",
    "CONFIGURATIONS",
    "FEATURES",
    "SERIES",
    "Compared",
    "Configuration",
    "RealismResult",
    "Term",
    "bucket_value",
    "compare",
    "configuration",
    "data_set_mean",
    "happened",
    "log_likelihoods",
    "realism",
    "score",
    "simulated_rates",
    "term_likelihood",
    "weighted_sum",
]

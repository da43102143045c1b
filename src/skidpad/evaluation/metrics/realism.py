"""Distributional realism of simulated agents (`realism_2023`, `realism_2024`, `realism_2025`, `realism_2025_gen`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skidpad.evaluation.rollouts import Lights, Log, RoadEdges, Rollouts


@dataclass(frozen=True)
class RealismResult:
    """One realism score of one case.

    name          the metric: "realism_2025"
    value         the weighted sum of likelihoods; None where a term with weight is missing
    reason        why it is missing
    likelihoods   per feature, in (0, 1]; None where missing
    reasons       why, for the missing ones
    buckets       "kinematic", "interactive", "map_based": weight-normalised means
    rates         share of (rollout, object) with a simulated collision, off-road step, red light
    not_standard  how the task deviates; empty = comparable with published values
    """

    name: str
    value: float | None
    reason: str | None
    likelihoods: Mapping[str, float | None]
    reasons: Mapping[str, str]
    buckets: Mapping[str, float | None]
    rates: Mapping[str, float | None]
    ade_official: float | None
    min_ade_official: float | None
    official_light: bool
    not_standard: tuple[str, ...]


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
    """Realism score of one case from arrays alone."""
    raise NotImplementedError

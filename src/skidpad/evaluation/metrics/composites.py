"""Composite scores of PufferDrive and V-Max, for people who migrate from them; ours are apart in the registry.

Both are a gate times a weighted mean of nineteen parts, and both are described as nuPlan's score, which they are not.
V-Max's is built from its paper and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from skidpad.evaluation.metrics.comfort import NUPLAN_BOUNDS, comfort_nuplan, comfort_violations
from skidpad.evaluation.metrics.contacts import at_fault_collision_rate
from skidpad.evaluation.metrics.nuplan_score import combined, nuplan_direction, nuplan_speed
from skidpad.evaluation.metrics.progress import metres_driven, progress_ratio
from skidpad.evaluation.metrics.rules import OFF
from skidpad.evaluation.metrics.ttc import ttc_puffer, ttc_vmax
from skidpad.evaluation.metrics.view import F64, AgentValues, CaseView, measured
from skidpad.scenes.events import Event

WEIGHTS = {"ttc": 5.0, "progress": 5.0, "speed": 4.0, "lanes": 3.0, "comfort": 2.0}
# nuPlan's bounds with the three that V-Max's paper sets otherwise.
VMAX_BOUNDS: Mapping[str, tuple[float, float]] = {
    **NUPLAN_BOUNDS,
    "lateral_acceleration": (-2.0, 2.0),
    "longitudinal_jerk": (-8.3, 8.3),
    "yaw_acceleration": (-2.2, 2.2),
}
# Registry parameters. Bearings: what lies within the peer's cone of 340 degrees, and ahead by nuPlan's 30.
PUFFER = {
    "threshold": 0.95,
    "reach": 50.0,
    "behind": math.radians(170.0),
    "pace": 10.0,
    "gate": 0.2,
    "assumed_limit": 15.0,
    "straddle_m": 2.05,
    "moving": 0.2,
    "patience_s": 10.0,
}
VMAX = {
    "threshold": 0.95,
    "ahead": math.radians(30.0),
    "sample": 0.1,
    "samples": 50.0,
    "stopped": 0.005,
    "gate": 0.2,
    "min_reference_m": 1.0,
    "worst": 2.23,
    "window": 1.0,
    "compliant": 2.0,
    "violation": 6.0,
    "straddle_m": 2.05,
    "moving": 0.2,
}


def weighted(parts: Mapping[str, F64]) -> F64:
    """Mean of the parts named in WEIGHTS, each (M,) f64 in 0..1, by their weights."""
    total = sum((WEIGHTS[name] * parts[name] for name in WEIGHTS), np.zeros_like(parts["ttc"]))
    return np.asarray(total / sum(WEIGHTS.values()))


def multi_lane_seconds(view: CaseView, straddle_m: float, moving: float) -> F64:
    """(M,) f64 [s], time with a side more than `straddle_m` [m] from the lane's centre, faster than `moving` [m/s]."""
    side = np.abs(view.ends("lane_offset")) + view.ends("width") / 2
    straddling = view.on_lane & (side > straddle_m) & (np.abs(view.ends("speed")) > moving)
    return np.asarray(straddling.sum(axis=1) * view.dt)


def stepped(amount: F64, full: float, half: float) -> F64:
    """1 up to `full`, 0.5 up to `half`, else 0."""
    return np.where(amount <= full, 1.0, np.where(amount <= half, 0.5, 0.0))


def wrong_way_metres(view: CaseView) -> F64:
    """(M,) f64 [m], driven against the lane at any speed."""
    against = view.on_lane & (np.cos(view.ends("lane_heading_error")) < 0)
    return np.asarray(np.where(against, view.step_length, 0.0).sum(axis=1))


def _clean(view: CaseView, *bits: int) -> F64:
    return np.asarray(~np.any([view.happened(bit).any(axis=1) for bit in bits], axis=0), dtype=np.float64)


def puffer_score(view: CaseView, **parameters: float) -> AgentValues:
    """PufferDrive's composite, 0..1: 0 after a fault, off the road, on red, or without a fifth of the progress; else
    time to collision, progress, speed, lane keeping and comfort, 5, 5, 4, 3 and 2 of nineteen parts."""
    return _puffer_score(view, compat=False, **parameters)


def puffer_score_compat(view: CaseView, **parameters: float) -> AgentValues:
    """The same as published: comfort is 1 for every car, because its counter is never raised."""
    return _puffer_score(view, compat=True, **parameters)


def _puffer_score(
    view: CaseView,
    *,
    compat: bool,
    threshold: float,
    reach: float,
    behind: float,
    pace: float,
    gate: float,
    assumed_limit: float,
    straddle_m: float,
    moving: float,
    teleport_m: float,
    patience_s: float,
    longitudinal: float,
    lateral: float,
    jerk: float,
) -> AgentValues:
    seconds = view.active.sum(axis=1) * view.dt
    progress = metres_driven(view, teleport_m=teleport_m) / np.maximum(pace * seconds, 1e-9)
    limit = np.where(np.isfinite(view.limit), view.limit, assumed_limit)
    over = np.where(view.driven, np.maximum(np.abs(view.ends("speed")) - limit, 0.0), 0.0)
    steps = np.maximum(view.driven.sum(axis=1), 1)
    violations = comfort_violations(view, longitudinal=longitudinal, lateral=lateral, jerk=jerk).value * steps
    comfort = np.clip(1.0 - violations / np.maximum(np.ceil(seconds / patience_s - 1e-9), 1.0), 0.0, 1.0)
    parts = {
        "ttc": ttc_puffer(view, threshold=threshold, reach=reach, behind=behind).value,
        "progress": np.minimum(progress, 1.0),
        "speed": np.maximum(0.0, 1.0 - over.sum(axis=1) / steps),
        "lanes": stepped(multi_lane_seconds(view, straddle_m, moving), 3.4, 5.7),
        "comfort": np.ones(view.count) if compat else comfort,
    }
    allowed = _clean(view, Event.AT_FAULT, OFF, Event.RED_LIGHT) * (progress > gate)
    score = allowed * stepped(wrong_way_metres(view), 2.0, 6.0) * weighted(parts)
    return measured(
        score,
        1.0,
        (view.never_active | ~view.driven.any(axis=1), "no_exposure"),
        (not view.has_lanes, "no_lane"),
    )


def vmax_score(
    view: CaseView,
    *,
    threshold: float,
    ahead: float,
    sample: float,
    samples: float,
    stopped: float,
    gate: float,
    min_reference_m: float,
    worst: float,
    window: float,
    compliant: float,
    violation: float,
    straddle_m: float,
    moving: float,
    level_gate: float,
    **bounds: float,
) -> AgentValues:
    """V-Max's composite, 0..1: the same nineteen parts with a time to collision over 5 s, comfort bounds of its own and
    progress along the recorded route."""
    progress = progress_ratio(view, min_reference_m=min_reference_m)
    comfort = comfort_nuplan(view, **bounds)
    fault = at_fault_collision_rate(view, level_gate=level_gate)
    speed = nuplan_speed(view, worst=worst)
    direction = nuplan_direction(view, window=window, compliant=compliant, violation=violation)
    parts = {
        "ttc": ttc_vmax(view, threshold=threshold, ahead=ahead, sample=sample, samples=samples, stopped=stopped).value,
        "progress": np.minimum(progress.value, 1.0),
        "speed": speed.value,
        "lanes": stepped(multi_lane_seconds(view, straddle_m, moving), 3.4, 5.7),
        "comfort": comfort.value,
    }
    allowed = _clean(view, OFF, Event.RED_LIGHT) * (1.0 - fault.value) * (progress.value >= gate)
    score = allowed * direction.value * weighted(parts)
    return combined(score, (fault, direction, progress, comfort, speed))

"""Keeping to the lane, its direction and its limit. Steps that end off every lane are not measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, mean_over, measured


def _on_lane_mean(view: CaseView, values: F64 | Bool) -> AgentValues:
    """Mean over steps that end on a lane; `no_lane` where there is none."""
    off = ~view.on_lane.any(axis=1)
    return mean_over(values, view.on_lane, (view.never_active, "no_exposure"), (off, "no_lane"))


def _cos_error(view: CaseView) -> F64:
    return np.asarray(np.cos(view.ends("lane_heading_error")))


def velocity_progress(view: CaseView, *, above: float) -> AgentValues:
    """Mean of max(cos(heading error), 0) where the agent is faster than `above` [m/s], 0 where it is not."""
    return _on_lane_mean(view, np.where(view.ends("speed") > above, np.maximum(_cos_error(view), 0.0), 0.0))


def lane_center_rate(view: CaseView, *, within: float) -> AgentValues:
    """Share of steps closer than `within` [m] to the lane's centre line."""
    return _on_lane_mean(view, np.abs(view.ends("lane_offset")) < within)


def lane_offset(view: CaseView) -> AgentValues:
    """Mean distance [m] from the lane's centre line."""
    return _on_lane_mean(view, np.abs(view.ends("lane_offset")))


def wrong_way_distance(view: CaseView, *, above: float) -> AgentValues:
    """Metres [m] driven against the lane, faster than `above` [m/s]."""
    wrong = view.on_lane & (view.ends("speed") > above) & (_cos_error(view) < 0)
    off = ~view.on_lane.any(axis=1)
    metres = np.where(wrong, view.step_length, 0.0).sum(axis=1)
    return measured(metres, 1.0, (view.never_active, "no_exposure"), (off, "no_lane"))


def _over(view: CaseView) -> tuple[F64, Bool, list[tuple[Any, str]]]:
    """(M, U) speed above the limit [m/s], where it is known, and what makes an agent's value missing."""
    known = view.on_lane & np.isfinite(view.limit)
    missing: list[tuple[Any, str]] = [
        (view.never_active, "no_exposure"),
        (~view.on_lane.any(axis=1), "no_lane"),
        (~known.any(axis=1), "no_limit"),
    ]
    return np.where(known, view.ends("speed") - view.limit, 0.0), known, missing


def overspeed(view: CaseView) -> AgentValues:
    """Mean speed [m/s] above the limit, over steps with a known limit; steps below it count 0."""
    over, known, missing = _over(view)
    return mean_over(np.maximum(over, 0.0), known, *missing)


def overspeed_share(view: CaseView, *, tolerance: float) -> AgentValues:
    """Share of steps with a known limit that are faster than it by more than `tolerance` [m/s]."""
    over, known, missing = _over(view)
    return mean_over(over > tolerance, known, *missing)

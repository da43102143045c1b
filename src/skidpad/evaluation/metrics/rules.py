"""Rules of the road: off-road, red lights, stop signs, yields, and infractions of any kind.

All of them count event bits of the trace, which are found whatever the policy observes and whatever else happened in
the same step. What a scene cannot show (no lights, no map) is missing, not zero.
"""

from __future__ import annotations

import numpy as np

from skidpad.evaluation.metrics.contacts import collision_events
from skidpad.evaluation.metrics.progress import metres_driven
from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, measured, shared
from skidpad.scenes.events import INFRACTION, Event

OFF = Event.OFFROAD | Event.OFF_MAP


def ever(view: CaseView, bits: int, *missing: tuple[object, str]) -> AgentValues:
    """1 where any of the event bits was set in an active step, else 0."""
    return measured(view.happened(bits).any(axis=1), 1.0, (view.never_active, "no_exposure"), *missing)


def onsets(happened: Bool) -> F64:
    """(M,) f64, how many unbroken intervals of True steps the rows of (M, U) bool `happened` hold."""
    before = np.zeros_like(happened)
    before[:, 1:] = happened[:, :-1]
    return np.asarray((happened & ~before).sum(axis=1), dtype=np.float64)


def _no_road(view: CaseView) -> bool:
    # The mode decides what off-road is measured against; a map without that cannot show it.
    mode = view.meta.settings.get("offroad", "auto")
    by_edges, by_area = view.has_edges, view.has_lanes
    return not {"edges": by_edges, "area": by_area}.get(mode, by_edges or by_area)


def offroad_rate(view: CaseView) -> AgentValues:
    """1 where the agent left the road, or the map, in an active step."""
    return ever(view, OFF, (_no_road(view), "no_map"))


def offroad_time(view: CaseView) -> AgentValues:
    """Seconds [s] spent off the road in active steps."""
    seconds = view.happened(OFF).sum(axis=1) * view.dt
    return measured(seconds, 1.0, (view.never_active, "no_exposure"), (_no_road(view), "no_map"))


def red_light_rate(view: CaseView) -> AgentValues:
    """1 where the agent crossed a stop line on red, or drove round it."""
    return ever(view, Event.RED_LIGHT, (not view.has_lights, "no_signal"))


def stop_sign_rate(view: CaseView) -> AgentValues:
    """1 where the agent crossed the line of a stop sign without having stopped."""
    return ever(view, Event.STOP_SIGN, (not view.has_stop_signs, "no_signal"))


def yield_failure_rate(view: CaseView) -> AgentValues:
    """1 where the agent crossed the line of a yield sign in front of somebody who goes first."""
    return ever(view, Event.YIELD, (not view.has_yields, "no_signal"))


def infraction_rate(view: CaseView) -> AgentValues:
    """1 where the agent collided, left the road, ran a red light or a stop sign."""
    return ever(view, INFRACTION)


@shared
def count_infractions(view: CaseView) -> F64:
    """(M,) f64, contacts, stays off the road, red lights and stop signs, each counted once."""
    passages = view.happened(Event.RED_LIGHT).sum(axis=1) + view.happened(Event.STOP_SIGN).sum(axis=1)
    return np.asarray(collision_events(view).numerator + onsets(view.happened(OFF)) + passages)


def infraction_events(view: CaseView) -> AgentValues:
    """How many infractions the agent had."""
    return measured(count_infractions(view), 1.0, (view.never_active, "no_exposure"))


def infractions_per_km(view: CaseView, *, teleport_m: float) -> AgentValues:
    """Infractions over kilometres driven."""
    kilometres = metres_driven(view, teleport_m=teleport_m) / 1000
    return measured(count_infractions(view), kilometres, (view.never_active, "no_exposure"))


def infractions_per_hour(view: CaseView) -> AgentValues:
    """Infractions over hours driven."""
    hours = view.active.sum(axis=1) * view.dt / 3600
    return measured(count_infractions(view), hours, (view.never_active, "no_exposure"))


def distance_per_infraction(view: CaseView, *, teleport_m: float) -> AgentValues:
    """Metres driven over infractions; missing where there was none, though its metres still count in sums."""
    metres = metres_driven(view, teleport_m=teleport_m)
    return measured(metres, count_infractions(view), (view.never_active, "no_exposure"))

"""nuPlan's closed-loop score (`nuplan_cls/1`) and its eight terms, of every agent under test.

    CLS = C x D x M x W x (5 P + 5 T + 4 S + 2 F) / 16

The weights are those of nuPlan's shipped configuration: its documents list the driving direction W as a mean's term and
a progress floor of 0.1 m, the configuration multiplies by W and has 2 m. Whether the score is reactive or not lies in
who drives the others; the formula is the same. Comfort F is `comfort_nuplan`, time to collision T is `ttc.nuplan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from skidpad.evaluation.metrics.comfort import comfort_nuplan
from skidpad.evaluation.metrics.contacts import is_static, judge_contacts
from skidpad.evaluation.metrics.road_area import CENTRE, box_places
from skidpad.evaluation.metrics.ttc import ttc_nuplan
from skidpad.evaluation.metrics.view import F64, REASONS, AgentValues, Bool, CaseView, kept, measured, shared
from skidpad.scenes.scene import RoadMap

# nuPlan forgives one contact with an object, none with a road user.
ALLOWED_OBJECTS = 1


def _missing(view: CaseView) -> tuple[tuple[object, str], ...]:
    nothing = view.never_active | ~view.driven.any(axis=1)
    return (nothing, "no_exposure"), (not view.has_lanes, "no_lane")


@shared
def nuplan_no_fault(view: CaseView, *, level_gate: float) -> AgentValues:
    """Term C: 1 without contacts of the agent's own fault (fault.nuplan/1), 0.5 after one with an object, else 0.

    `level_gate` [m]: lanes further above or below do not hold a box.
    """
    users, objects = np.zeros(view.count), np.zeros(view.count)
    for verdict in judge_contacts(view, level_gate) if view.has_lanes else []:
        if verdict.fault:
            (objects if is_static(view, verdict.contact) else users)[verdict.contact.agent] += 1
    value = np.where(users > 0, 0.0, np.maximum(0.0, 1 - objects / (ALLOWED_OBJECTS + 1)))
    return measured(value, 1.0, *_missing(view))


@shared
def nuplan_drivable(view: CaseView, *, tolerance: float) -> AgentValues:
    """Term D: 1 while all corners stay within `tolerance` [m] of the road, at the ends of driven steps."""
    inside = np.ones(view.count)
    for row in range(view.count if view.has_lanes else 0):
        outside = box_places(view, row).outside_m[1:, :CENTRE].max(axis=1)
        # At the tolerance is outside, except that a tolerance of zero allows touching.
        out = (outside >= tolerance) & (outside > 0)
        inside[row] = not (out & view.driven[row]).any()
    return measured(inside, 1.0, *_missing(view))


# -- along lanes and routes ---------------------------------------------------------------------------------------


def trailing(steps: F64, count: int) -> F64:
    """Sums over the last `count` steps, fewer at the beginning: (..., U) f64 of (..., U) f64 in the same unit."""
    total = np.cumsum(steps, axis=-1)
    return np.concatenate([total[..., :count], total[..., count:] - total[..., :-count]], axis=-1)


@shared
def lane_progress(view: CaseView) -> F64:
    """(M, U) f64 [m], displacement of each driven step along the lane it began on; negative against it, 0 off lanes."""
    heading = view.states("heading") - view.states("lane_heading_error")
    on_lane = view.states("lane") >= 0
    forward = np.where(on_lane[:, :-1], heading[:, :-1], heading[:, 1:])
    dx, dy = np.diff(view.states("x")), np.diff(view.states("y"))
    known = view.driven & (on_lane[:, :-1] | on_lane[:, 1:])
    return np.where(known, dx * np.cos(forward) + dy * np.sin(forward), 0.0)


def graded(metres: F64, compliant: float, violation: float) -> F64:
    """(M,) f64: 1 below `compliant` [m], 0.5 below `violation` [m], else 0, for (M,) f64 [m] driven the wrong way."""
    return np.where(metres < compliant, 1.0, np.where(metres < violation, 0.5, 0.0))


@shared
def nuplan_direction(view: CaseView, *, window: float, compliant: float, violation: float) -> AgentValues:
    """Term W: 1, 0.5 or 0 by the most metres driven against the lane within `window` [s]; bounds [m] as in `graded`."""
    sums = trailing(lane_progress(view), max(round(window / view.dt), 1))
    against = np.maximum(-sums.min(axis=1, initial=0.0), 0.0)
    return measured(graded(against, compliant, violation), 1.0, *_missing(view))


class Progress(NamedTuple):
    """Metres along the expert's route in the same time, and where they are not known.

    ego, expert  (M,)  f64 [m]  signed
    routed       (M,)  bool     the expert has a route
    logged       (M,)  bool     the expert was recorded for two states or more
    """

    ego: F64
    expert: F64
    routed: Bool
    logged: Bool


def along_route(x: F64, y: F64, road: RoadMap, lanes: Sequence[int]) -> float:
    """Signed metres that a path makes along the lanes of a route.

    Each piece of the path counts by its component along the lane segment nearest to its middle, so that a route that
    changes lanes or crosses itself needs no care.

    x, y   (K,)  f64 [m]
    lanes  lane numbers in driving order
    """
    if len(x) < 2:
        return 0.0
    start_x, start_y, ux, uy, length = kept(road, ("segments", *lanes), partial(_segments, road, lanes))
    from_x = ((x[1:] + x[:-1]) / 2)[:, None] - start_x
    from_y = ((y[1:] + y[:-1]) / 2)[:, None] - start_y
    along = from_x * ux + from_y * uy
    past = along - np.minimum(np.maximum(along, 0.0), length)
    nearest = ((from_y * ux - from_x * uy) ** 2 + past**2).argmin(axis=1)
    return float((np.diff(x) * ux[nearest] + np.diff(y) * uy[nearest]).sum())


def _segments(road: RoadMap, lanes: Sequence[int]) -> tuple[F64, F64, F64, F64, F64]:
    """Where the segments of lanes begin, x and y [m], their directions and lengths [m], each (S,) f64."""
    spans = [road.lane_points(lane) for lane in lanes]
    start = np.concatenate([road.xyz[span.start : span.stop - 1, :2] for span in spans]).astype(np.float64)
    step = np.concatenate([np.diff(road.xyz[span, :2].astype(np.float64), axis=0) for span in spans])
    length = np.maximum(np.hypot(step[:, 0], step[:, 1]), 1e-9)
    return start[:, 0].copy(), start[:, 1].copy(), step[:, 0] / length, step[:, 1] / length, length


def expert_progress(view: CaseView) -> Progress:
    """Progress of the agents under test and of their own logs."""
    return view.once("expert progress", _expert_progress)


def _expert_progress(view: CaseView) -> Progress:
    log_x, log_y, _, valid = view.log_rows
    x, y, road = view.states("x"), view.states("y"), view.scene.road
    ego, expert, routed = np.zeros(view.count), np.zeros(view.count), np.zeros(view.count, dtype=bool)
    experts: dict[int, float] = {}  # The same expert stands behind every case of its agent.
    for row, agent in enumerate(view.agents.tolist()):
        lanes = view.scene.tracks.route(agent).tolist()
        routed[row] = bool(lanes)
        if lanes:
            known = np.zeros(x.shape[1], dtype=bool)
            known[1:] = view.driven[row]
            known[:-1] |= view.driven[row]
            ego[row] = along_route(x[row, known], y[row, known], road, lanes)
            if agent not in experts:
                experts[agent] = along_route(log_x[row, valid[row]], log_y[row, valid[row]], road, lanes)
            expert[row] = experts[agent]
    return Progress(ego, expert, routed, np.asarray(valid.sum(axis=1) >= 2))


@shared
def nuplan_progress(view: CaseView, *, floor: float) -> AgentValues:
    """Term P: metres along the expert's route as a share of the expert's, both at least `floor` [m]; 0 for more than
    that backwards, 1 where the expert has no route."""
    ego, expert, routed, logged = expert_progress(view)
    ratio = np.minimum(np.maximum(ego, floor) / np.maximum(expert, floor), 1.0)
    value = np.where(routed, np.where(ego < -floor, 0.0, ratio), 1.0)
    return measured(value, 1.0, *_missing(view), (~logged, "no_log"))


def nuplan_making_progress(view: CaseView, *, floor: float, least: float) -> AgentValues:
    """Term M: 1 where `nuplan_progress` is at least `least`."""
    progress = nuplan_progress(view, floor=floor)
    return progress._replace(numerator=np.where(progress.valid, progress.value >= least, 0.0))


# -- speed --------------------------------------------------------------------------------------------------------


def lane_limits(road: RoadMap) -> F64:
    """(L,) f64 [m/s], limit of each lane; in a junction the largest known one of the lanes it connects, else its own.
    NaN = unknown."""
    own = road.speed_limit.astype(np.float64)
    limits = own.copy()
    for lane in np.flatnonzero(road.lane_junction >= 0).tolist():
        around = own[np.concatenate([road.entries(lane), road.exits(lane)])]
        if np.isfinite(around).any():
            limits[lane] = np.nanmax(around)
    return limits


@shared
def overspeed(view: CaseView) -> tuple[F64, Bool]:
    """(M, U) f64 [m/s] above the limit, at least 0, and (M, U) bool, driven steps that end on a lane with a limit."""
    if not view.has_lanes:
        return np.zeros(view.lane.shape), np.zeros(view.lane.shape, dtype=bool)
    limit = kept(view.scene.road, "limits", partial(lane_limits, view.scene.road))[np.maximum(view.lane, 0)]
    known = view.on_lane & np.isfinite(limit)
    excess = np.abs(view.ends("speed")) - np.where(known, limit, np.inf)
    return np.maximum(excess, 0.0), known


def _speed_share(view: CaseView, worst: float) -> F64:
    excess, _ = overspeed(view)
    duration = np.maximum(view.driven.sum(axis=1), 1) * view.dt
    return np.asarray(np.maximum(0.0, 1 - (excess * view.dt).sum(axis=1) / (worst * duration)))


@shared
def nuplan_speed(view: CaseView, *, worst: float) -> AgentValues:
    """Term S: 1 less the mean excess over the speed limit as a share of `worst` [m/s], at least 0.

    Steps without a lane or a known limit have no excess, but count as time driven.
    """
    _, known = overspeed(view)
    missing = (~view.on_lane.any(axis=1), "no_lane"), (~known.any(axis=1), "no_limit")
    return measured(_speed_share(view, worst), 1.0, *_missing(view), *missing)


# -- the score ----------------------------------------------------------------------------------------------------


def combined(value: F64, terms: Sequence[AgentValues]) -> AgentValues:
    """A value of its terms: missing where a term is, for the first such term's reason.

    value  (M,)  f64
    """
    codes = np.zeros(value.shape, dtype=np.uint8)
    for term in terms:
        codes = np.where(codes == 0, term.reason, codes)
    return measured(value, 1.0, *((codes == code, REASONS[code]) for code in np.unique(codes[codes > 0])))


def nuplan_cls(
    view: CaseView, *, level_gate: float, tolerance: float, window: float, compliant: float, violation: float,
    floor: float, least: float, worst: float, threshold: float, ahead: float, behind: float, sample: float,
    samples: float, stopped: float, **comfort: float,
) -> AgentValues:  # fmt: skip
    """Closed-loop score, 0 to 1, higher is better. Parameters as in its terms; `comfort` as in `comfort_nuplan`.

    A map without any speed limit has none to break, and S is 1 there, as in nuPlan's own code; every other term that
    is missing leaves the score missing.
    """
    multipliers = (
        nuplan_no_fault(view, level_gate=level_gate),
        nuplan_drivable(view, tolerance=tolerance),
        nuplan_making_progress(view, floor=floor, least=least),
        nuplan_direction(view, window=window, compliant=compliant, violation=violation),
    )
    progress = nuplan_progress(view, floor=floor)
    rule = {"ahead": ahead, "behind": behind, "sample": sample, "samples": samples, "stopped": stopped}
    collision = ttc_nuplan(view, threshold=threshold, level_gate=level_gate, **rule)
    comfortable = comfort_nuplan(view, **comfort)
    weighted = 5 * progress.value + 5 * collision.value + 4 * _speed_share(view, worst) + 2 * comfortable.value
    product = np.prod([term.value for term in multipliers], axis=0)
    return combined(product * weighted / 16, (*multipliers, progress, collision, comfortable))

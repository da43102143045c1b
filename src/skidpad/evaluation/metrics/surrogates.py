"""Surrogates of safety beside time to collision: headway to the leader, encroachment of paths, braking required.

A leader is the nearest agent ahead on the lanes of the agent's route, by the lanes the trace has assigned; its gap is
measured along the lanes. Whoever never follows anybody has no headway, and whose path nobody crosses no encroachment:
both are missing then, since a large number would look like a safe drive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skidpad.evaluation.metrics.contacts import bodies
from skidpad.evaluation.metrics.fault import corners, overlapping
from skidpad.evaluation.metrics.ttc import I64, motion
from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, measured
from skidpad.scenes.lanes import lane_lengths, neighbours
from skidpad.scenes.scene import RoadMap


class Leaders(NamedTuple):
    """Whom each agent under test follows at the end of each driven step.

    gap      (M, U)  f64 [m]    between the bodies along the route, at least 0; +inf without leader
    closing  (M, U)  f64 [m/s]  how fast it shrinks; 0 without leader
    """

    gap: F64
    closing: F64


def route_starts(road: RoadMap, lanes: I64) -> dict[int, float]:
    """Metres [m] along a route at which each of its lanes begins; lanes beside one another begin together.

    lanes  (K,)  i64  in driving order; of a lane visited twice the first visit counts
    """
    lengths, here = lane_lengths(road), 0.0
    starts: dict[int, float] = {}
    for position, lane in enumerate(lanes.tolist()):
        if position:
            before = int(lanes[position - 1])
            here += 0.0 if lane in neighbours(road, before) else float(lengths[before])
        starts.setdefault(lane, here)
    return starts


def leaders(view: CaseView) -> Leaders:
    """The leaders of all agents under test."""
    return view.once("leaders", _leaders)


def _leaders(view: CaseView) -> Leaders:
    gap, closing = np.full(view.driven.shape, np.inf), np.zeros(view.driven.shape)
    boxes, moving, trace = view.once("bodies", bodies), view.once("motion", motion), view.trace
    for row, agent in enumerate(view.agents.tolist()):
        route, steps = view.scene.tracks.route(agent).astype(np.int64), np.flatnonzero(view.driven[row])
        if not len(route) or not len(steps):
            continue
        states = steps + 1
        start = np.full(view.scene.road.lane_count + 1, np.nan)  # the last for agents on no lane
        for lane, metres in route_starts(view.scene.road, route).items():
            start[lane] = metres
        place = start[trace["lane"][0][states]] + trace["lane_arc"][0][states]
        mine = place[:, [agent]]
        ahead = boxes["body"][states] & (place > mine)
        distance = np.where(ahead, place - mine, np.inf)
        leader, order = distance.argmin(axis=1), np.arange(len(steps))
        found = np.isfinite(distance[order, leader])
        length, speed = boxes["length"][states], boxes["speed"][states]
        bodies_m = (length[:, agent] + length[order, leader]) / 2
        gap[row, steps] = np.where(found, np.maximum(distance[order, leader] - bodies_m, 0.0), np.inf)
        # The leader's speed along the agent's own direction: one that turns away goes no faster along the route.
        cos, sin = moving["cos"][states, agent], moving["sin"][states, agent]
        theirs = moving["vx"][states][order, leader] * cos + moving["vy"][states][order, leader] * sin
        closing[row, steps] = np.where(found, speed[:, agent] - theirs, 0.0)
    return Leaders(gap, closing)


def _missing(view: CaseView) -> tuple[tuple[object, str], ...]:
    return (view.never_active, "no_exposure"), (not view.has_lanes, "no_lane")


def thw(view: CaseView, *, above: float) -> AgentValues:
    """Least time headway [s] of the drive: gap to the leader over the own speed, in steps faster than `above` [m/s]."""
    gap, speed = leaders(view).gap, view.ends("speed")
    follows = np.isfinite(gap) & (speed >= above)
    headway = np.where(follows, gap, np.inf) / np.where(follows, speed, 1.0)
    least = headway.min(axis=1, initial=np.inf)
    found = np.isfinite(least)
    return measured(np.where(found, least, 0.0), 1.0, *_missing(view), (~found, "no_exposure"))


def drac(view: CaseView, *, least_gap: float) -> AgentValues:
    """Largest deceleration [m/s^2] that avoiding the leader required: closing speed squared over twice the gap, which
    counts as `least_gap` [m] where it is smaller; 0 behind a leader that was never closer to being met."""
    gap, closing = leaders(view)
    follows = np.isfinite(gap)
    required = np.where(closing > 0, closing, 0.0) ** 2 / (2 * np.maximum(np.where(follows, gap, np.inf), least_gap))
    alone = ~follows.any(axis=1)
    return measured(required.max(axis=1, initial=0.0), 1.0, *_missing(view), (alone, "no_exposure"))


def pet(view: CaseView, *, horizon: float, crossing: float) -> AgentValues:
    """Least post-encroachment time [s]: from one body's leaving a place to another's entering it, to the next step.

    horizon   [s]    longer times are no encroachment
    crossing  [rad]  paths that meet at a smaller angle follow each other and have a headway instead
    """
    least = np.array([_pet_of(view, row, round(horizon / view.dt), crossing) for row in range(view.count)])
    found = np.isfinite(least)
    return measured(
        np.where(found, least, 0.0) * view.dt, 1.0, (view.never_active, "no_exposure"), (~found, "no_exposure")
    )


def _pet_of(view: CaseView, row: int, lags: int, crossing: float) -> float:
    """Least number of steps between the agent's being somewhere and another's, in either order; +inf above `lags`."""
    boxes, agent = view.once("bodies", bodies), int(view.agents[row])
    mine = np.zeros(len(boxes["x"]), dtype=bool)
    mine[1:] = view.driven[row]
    mine[:-1] |= view.driven[row]
    states = np.flatnonzero(mine)
    # Who stands in the agent as it begins was not met on any path.
    others = np.ones(boxes["x"].shape[1], dtype=bool)
    others[agent] = False
    others[_who_meets(view, agent, states[:1], states[:1], others, 0.0)] = False
    for lag in range(min(lags, len(mine) - 1) + 1):
        later = np.arange(lag, len(mine))
        for own, theirs in ((later - lag, later), (later, later - lag)):
            if len(_who_meets(view, agent, own[mine[own]], theirs[mine[own]], others, crossing)):
                return float(lag)
    return np.inf


def _who_meets(view: CaseView, agent: int, own: I64, theirs: I64, others: Bool, crossing: float) -> I64:
    """Which of `others` (N,), at the state of `theirs` (K,) in its place, overlap the agent at a state of `own` (K,),
    turned by at least `crossing` [rad]."""
    boxes = view.once("bodies", bodies)
    dx = boxes["x"][theirs] - boxes["x"][own, agent][:, None]
    dy = boxes["y"][theirs] - boxes["y"][own, agent][:, None]
    near = dx * dx + dy * dy <= (boxes["reach"][theirs] + boxes["reach"][own, agent][:, None]) ** 2
    which, other = np.nonzero(near & boxes["body"][theirs] & others)
    own, theirs = own[which], theirs[which]
    meets = np.cos(boxes["heading"][theirs, other] - boxes["heading"][own, agent]) <= np.cos(crossing)
    if view.scene.meta.has_z:
        apart = np.abs(boxes["z"][theirs, other] - boxes["z"][own, agent])
        meets &= apart <= (boxes["height"][theirs, other] + boxes["height"][own, agent]) / 2
    own, theirs, other = own[meets], theirs[meets], other[meets]
    shape = ("x", "y", "heading", "length", "width")
    mine = corners(*(boxes[name][own, agent] for name in shape))
    return np.asarray(other[overlapping(mine, corners(*(boxes[name][theirs, other] for name in shape)))])

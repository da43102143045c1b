"""Surrogates of safety beside time to collision: headway to the leader, encroachment of paths, braking required.

A leader is the nearest agent ahead on the lanes of the agent's route, by the lanes the trace has assigned; its gap is
measured along the lanes. Whoever never follows anybody has no headway, and whose path nobody crosses no encroachment:
both are missing then, since a large number would look like a safe drive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.contacts import bodies
from skidpad.evaluation.metrics.fault import corners, overlapping
from skidpad.evaluation.metrics.ttc import motion
from skidpad.evaluation.metrics.view import F64, I64, AgentValues, Bool, CaseView, kept, measured
from skidpad.scenes.lanes import lane_lengths, neighbours
from skidpad.scenes.scene import RoadMap

# What `bodies` knows of one case: each (T, N).
Boxes = Mapping[str, NDArray[Any]]


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
    for rows in view.blocks():
        gap[rows], closing[rows] = _leaders_of(view, rows)
    return Leaders(gap, closing)


def _leaders_of(view: CaseView, rows: slice) -> tuple[F64, F64]:
    boxes, moving = view.once("bodies", bodies), view.once("motion", motion)
    start = np.stack([_route_metres(view, agent) for agent in view.agents[rows].tolist()])
    lane, arc = view.around(view.crowd("lane"), rows), view.around(view.crowd("lane_arc"), rows)
    place = start[np.arange(len(start))[:, None, None], lane] + arc
    agents = view.agents[rows][:, None, None]
    mine = np.take_along_axis(place, np.broadcast_to(agents, (*place.shape[:2], 1)), axis=2)
    ahead = view.around(boxes["body"], rows) & view.driven[rows][:, :, None] & (place > mine)
    distance = np.where(ahead, place - mine, np.inf)
    leader = distance.argmin(axis=2)[:, :, None]

    def of_leader(array: F64) -> F64:
        return np.asarray(np.take_along_axis(array, leader, axis=2)[:, :, 0])

    nearest = of_leader(distance)
    found = np.isfinite(nearest)
    length, speed, cos, sin = (
        view.own(array, rows)[:, :, 0] for array in (boxes["length"], boxes["speed"], moving["cos"], moving["sin"])
    )
    bodies_m = (length + of_leader(view.around(boxes["length"], rows))) / 2
    gap = np.where(found, np.maximum(nearest - bodies_m, 0.0), np.inf)
    # The leader's speed along the agent's own direction: one that turns away goes no faster along the route.
    vx, vy = (of_leader(view.around(moving[name], rows)) for name in ("vx", "vy"))
    return gap, np.where(found, speed - (vx * cos + vy * sin), 0.0)


def _route_metres(view: CaseView, agent: int) -> F64:
    """(L + 1,) f64 [m] along an agent's route at which each lane begins; NaN for lanes that are none of it, and last
    for agents on no lane."""

    def make() -> F64:
        start = np.full(view.scene.road.lane_count + 1, np.nan)
        for lane, metres in route_starts(view.scene.road, view.scene.tracks.route(agent).astype(np.int64)).items():
            start[lane] = metres
        return start

    return kept(view.scene, ("route metres", agent), make)


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
    least, lags = np.full(view.count, np.inf), round(horizon / view.dt)
    there = np.zeros((view.count, view.steps + 1), dtype=bool)
    there[:, 1:] = view.driven
    there[:, :-1] |= view.driven
    for rows in view.blocks():
        for row, others in zip(range(view.count)[rows], _crossers(view, rows, there, crossing), strict=True):
            least[row] = _pet_of(view, row, np.flatnonzero(there[row]), np.flatnonzero(others), lags, crossing)
    found = np.isfinite(least)
    return measured(
        np.where(found, least, 0.0) * view.dt, 1.0, (view.never_active, "no_exposure"), (~found, "no_exposure")
    )


def _pet_of(view: CaseView, row: int, states: I64, others: I64, lags: int, crossing: float) -> float:
    """Least number of steps between the agent's being somewhere and another's, in either order; +inf above `lags`."""
    case, agent = int(view.case[row]), int(view.agents[row])
    boxes = {name: array[case] for name, array in view.once("bodies", bodies).items()}
    has_z = view.scene.meta.has_z
    least, first = lags + 1, states[:1]
    for other in others.tolist():
        theirs = np.flatnonzero(boxes["body"][:, other])
        lag = _least_lag(boxes, has_z, agent, states, other, theirs, crossing, least)
        # Who overlaps the agent as it begins was not met on any path.
        if lag < least and not (boxes["body"][first, other] & _overlap(boxes, has_z, agent, first, other, first)).any():
            least = lag
    return float(least) if least <= lags else np.inf


def _crossers(view: CaseView, rows: slice, there: Bool, crossing: float) -> Bool:
    """(R, N) bool, whose path, ever, comes near the box around an agent's path, and may be turned by `crossing` [rad]
    to it. Nobody's for agents that are never there, (M, T) bool."""
    boxes, case, agent = view.once("bodies", bodies), view.case[rows], view.agents[rows]
    mine, row = there[rows], np.arange(len(agent))
    body = boxes["body"][case]
    apart: Bool = np.asarray(~body.any(axis=1)) | ~np.asarray(mine.any(axis=1))[:, None]
    reach = boxes["reach"][case]
    for axis in ("x", "y"):
        place = boxes[axis][case]
        low, high = np.where(body, place - reach, np.inf), np.where(body, place + reach, -np.inf)
        own_low, own_high = low[row, :, agent], high[row, :, agent]
        apart |= low.min(axis=1) > np.where(mine, own_high, -np.inf).max(axis=1)[:, None]
        apart |= high.max(axis=1) < np.where(mine, own_low, np.inf).min(axis=1)[:, None]
    # No two headings differ by more than the sum of how far each departs from a common one.
    heading = boxes["heading"][case]
    turned = heading - heading[row, mine.argmax(axis=1), agent][:, None, None]
    turned = np.abs(np.remainder(turned + np.pi, 2 * np.pi) - np.pi)
    own_turn = np.where(mine, turned[row, :, agent], 0.0).max(axis=1)
    apart |= np.where(body, turned, 0.0).max(axis=1) + own_turn[:, None] < crossing - 1e-6
    apart[row, agent] = True
    return np.asarray(~apart)


def _least_lag(
    boxes: Boxes, has_z: bool, agent: int, mine: I64, other: int, theirs: I64, crossing: float, below: int
) -> int:
    """Least number of steps, less than `below`, between a state of `mine` (K,) and one of `theirs` (J,) at which the
    two overlap turned by at least `crossing` [rad]; else `below`."""
    dx, dy = (boxes[axis][theirs, other] - boxes[axis][mine, agent][:, None] for axis in ("x", "y"))
    reach = boxes["reach"][theirs, other] + boxes["reach"][mine, agent][:, None]
    own, their = np.nonzero(dx * dx + dy * dy <= reach * reach)
    lag = np.abs(theirs[their] - mine[own])
    turn = np.cos(boxes["heading"][theirs[their], other] - boxes["heading"][mine[own], agent])
    some = (turn <= np.cos(crossing)) & (lag < below)
    if not some.any():
        return below
    # The shortest lags first, a few at a time: one that meets ends the search.
    order = np.argsort(lag[some], kind="stable")
    own, their, lag = own[some][order], their[some][order], lag[some][order]
    first, size = 0, 32
    while first < len(own):
        rows = slice(first, first + size)
        meets = _overlap(boxes, has_z, agent, mine[own[rows]], other, theirs[their[rows]])
        if meets.any():
            return int(lag[rows][meets.argmax()])
        first, size = first + size, size * 8
    return below


def _overlap(boxes: Boxes, has_z: bool, agent: int, own: I64, other: int, theirs: I64) -> Bool:
    """(K,) bool, the agent at its states `own` (K,) overlaps the other at its states `theirs` (K,)."""
    shape = ("x", "y", "heading", "length", "width")
    level = np.ones(len(own), dtype=bool)
    if has_z:
        apart = np.abs(boxes["z"][theirs, other] - boxes["z"][own, agent])
        level = apart <= (boxes["height"][theirs, other] + boxes["height"][own, agent]) / 2
    mine = corners(*(boxes[name][own, agent] for name in shape))
    return level & overlapping(mine, corners(*(boxes[name][theirs, other] for name in shape)))

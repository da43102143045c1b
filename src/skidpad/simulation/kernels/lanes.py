"""On which lane is an agent, where on it, and how does it stand to it (S70)?

An agent stays on its lane, following exits, while its centre is within half the lane's width and its heading within 45
degrees; otherwise the nearby lane that fits best in distance and heading wins. The state depends on the map and the
agent's own past only, never on other agents, edges or rewards. Vehicles are assigned to drivable lanes, everybody else
to any lane.

Arrays with the name of a field of `LaneMap` have its shape and unit; `near` is the list of one cell. `gate` [m] is how
far above or below a lane may be; x, y, z [m] and cos, sin are the centre and heading of one agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Event
from skidpad.scenes.index import Grid, LaneMap
from skidpad.scenes.scene import F32, I32, TYPE_VEHICLE, U8, Bool
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import first_bit
from skidpad.simulation.kernels.trig import arctan2

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

LANE_LOST, LANE_CHANGED = np.uint32(Event.LANE_LOST), np.uint32(Event.LANE_CHANGED)
NONE = np.int32(-1)
HINT_HOPS = 4  # segments that one step may pass before all of the lane are asked
MAX_HOPS = 16  # lanes that one step may pass; a chain of shorter ones is found by the search instead
COS_STAY = 0.7071067811865476  # heading error of 45 degrees
WIDTHS = 3.0  # the search reaches this many widths of the agent
DISTANCE_WEIGHT, ANGLE_WEIGHT, CHANGE_COST = 0.7 / 4.0, 0.3 / np.pi, 0.05
WORD = 64
NO_BITS, ONE_BIT = np.uint64(0), np.uint64(1)
ROOM, ROOM_M2 = 1.0 + 1e-9, 1e-6
WRONG_WAY_SPEED = 2.5  # m/s, S75
OVERSPEED_MARGIN, UNKNOWN_LIMIT = 2.0, 15.0  # m/s, S76


class LaneState(NamedTuple):
    """Where each agent is on the lanes; flat arrays over agents. `lane` and `previous` are read and written, the rest
    written. Before the first step of an episode both are -1.

    lane        (A,)  i32         -1 = none within reach
    previous    (A,)  i32         the lane it was on before the present one; kept while there is none
    arc         (A,)  f32 [m]     position along the lane, the scene's `arc`; 0 without lane
    offset      (A,)  f32 [m]     from the centre line, left is positive; 0 without lane
    cos, sin    (A,)  f32         of the heading error, heading minus the lane's; 1, 0 without lane
    half_width  (A,)  f32 [m]     of the lane there; 0 without lane
    limit       (A,)  f32 [m/s]   NaN = unknown or no lane
    height      (A,)  f32 [m]     of the lane there; the agent's own z without lane
    segment     (A,)  i32         lane segment it is at, -1 = none: where the next look begins. Never changes a result
    """

    lane: I32
    previous: I32
    arc: F32
    offset: F32
    cos: F32
    sin: F32
    half_width: F32
    limit: F32
    height: F32
    segment: I32


@kernel
def cell_of(grid: Grid, x: float, y: float) -> int:
    """Number of the cell that holds (x, y) [m]; -1 off the map, also for NaN."""
    column = np.floor((x - grid.x) * grid.inverse)
    row = np.floor((y - grid.y) * grid.inverse)
    if column >= 0 and column < grid.columns and row >= 0 and row < grid.rows:
        return int(row) * grid.columns + int(column)
    return -1


@kernel
def project(segment: F32, m: Any, x: float, y: float) -> tuple[float, float]:
    """Squared distance [m^2] of (x, y) to lane segment m, and its projection on it: 0 at the start, 1 at the end, not
    clipped."""
    ax = np.float64(segment[m, 0])
    ay = np.float64(segment[m, 1])
    dx = segment[m, 2] - ax
    dy = segment[m, 3] - ay
    px = x - ax
    py = y - ay
    t = (px * dx + py * dy) / (dx * dx + dy * dy)
    u = min(max(t, 0.0), 1.0)
    ex = px - u * dx
    ey = py - u * dy
    return ex * ex + ey * ey, t


@kernel
def between(a: Any, b: Any, t: float) -> float:
    """The f32 value at t in [0, 1], t clipped, of what runs evenly from a to b."""
    u = min(max(t, 0.0), 1.0)
    return float(np.float64(a) + u * (np.float64(b) - a))


@kernel
def nearest_on_lane(
    near: I32, segment: F32, first: Any, last: Any, x: float, y: float, z: float, gate: float
) -> tuple[Any, float, float]:
    """The segment nearest to (x, y) among those of `near` on the lane of segments [first, last]: its number (-1 = none
    on this level), the squared distance and the projection. Of equals the first."""
    best = np.int64(-1)
    least = np.inf
    where = 0.0
    for k in range(near.shape[0]):
        m = np.int64(near[k])
        if m < first or m > last:
            continue
        square, t = project(segment, m, x, y)
        if square < least and abs(between(segment[m, 4], segment[m, 5], t) - z) <= gate:
            best = m
            least = square
            where = t
    return best, least, where


@kernel
def nearest_to_hint(
    segment: F32, clear: F32, first: int, last: int, hint: Any, x: float, y: float, z: float, gate: float
) -> tuple[Any, float, float]:
    """What `nearest_on_lane` finds on the lane of segments [first, last], from the neighbours of segment `hint`; the
    number -1 where they do not decide it, so that all must be asked.

    Within `clear` of a segment on this level nothing but it and its neighbours on the lane can be nearest. `clear` is
    at most LANE_REACH_M, so every list of the place holds the three.
    """
    m: Any = np.int64(hint)
    for _ in range(HINT_HOPS if first <= m <= last else 0):
        best = np.int64(-1)
        least = np.inf
        where = 0.0
        own = np.inf
        for k in range(int(max(m - 1, first)), int(min(m + 1, last)) + 1):
            square, t = project(segment, k, x, y)
            if not abs(between(segment[k, 4], segment[k, 5], t) - z) <= gate:
                continue
            if k == m:
                own = square
            if square < least:
                best, least, where = np.int64(k), square, t
        if own < np.float64(clear[m]) * clear[m]:
            return best, least, where
        if best < 0 or best == m:
            break
        m = best
    return np.int64(-1), 0.0, 0.0


@kernel
def stays(segment: F32, m: Any, square: float, t: float, cos: float, sin: float) -> bool:
    """Whether an agent that far from segment m is still on its lane."""
    if m < 0:
        return False
    half = between(segment[m, 8], segment[m, 9], t)
    return square <= half * half and segment[m, 10] * cos + segment[m, 11] * sin >= COS_STAY


@kernel
def misfit(segment: F32, m: Any, square: float, cos: float, sin: float) -> float:
    """How badly a lane fits: 0.7 of distance / 4 m and 0.3 of heading error / pi."""
    c = segment[m, 10] * cos + segment[m, 11] * sin
    s = segment[m, 10] * sin - segment[m, 11] * cos
    turn = arctan2(np.float32(s), np.float32(c))
    return float(DISTANCE_WEIGHT * np.sqrt(square) + ANGLE_WEIGHT * abs(np.float64(turn)))


@kernel
def leads_to(exit_offset: I32, exit_lane: I32, lane: Any, other: Any) -> bool:
    """Whether one drives straight on from `lane` into `other`, directly or through one lane between them."""
    for k in range(exit_offset[lane], exit_offset[lane + 1]):
        middle = exit_lane[k]
        if middle == other:
            return True
        for i in range(exit_offset[middle], exit_offset[middle + 1]):
            if exit_lane[i] == other:
                return True
    return False


@kernel
def follow(
    near: I32,
    start: I32,
    cell: Any,
    segment_lane: I32,
    segment: F32,
    clear: F32,
    lane_first: I32,
    exit_offset: I32,
    exit_lane: I32,
    route_lane: I32,
    route0: int,
    route1: int,
    lane: Any,
    hint: Any,
    x: float,
    y: float,
    z: float,
    cos: float,
    sin: float,
    gate: float,
) -> tuple[int, float, float]:
    """The segment on which an agent that was on `lane` still is, on that lane or down its exits; number, squared
    distance and projection, the number -1 when it left them.

    An exit on the agent's route comes before others, then the one that fits best, then the lower number. `hint` is a
    segment of `lane` or -1. `near` holds the lists of all cells here: that of `cell` is looked up where it is needed.
    """
    first, last = lane_first[lane], lane_first[lane + 1] - 1
    m, square, t = nearest_to_hint(segment, clear, first, last, hint, x, y, z, gate)
    if m < 0:
        listed = near[start[cell] : start[cell + 1]]
        m, square, t = nearest_on_lane(listed, segment, first, last, x, y, z, gate)
    for _ in range(MAX_HOPS):
        if m < 0 or t <= 1 or m != lane_first[lane + 1] - 1:
            break
        best = -1
        best_square = 0.0
        best_t = 0.0
        least = np.inf
        for k in range(exit_offset[lane], exit_offset[lane + 1]):
            ahead = exit_lane[k]
            begin, end = lane_first[ahead], lane_first[ahead + 1] - 1
            n, n_square, n_t = nearest_to_hint(segment, clear, begin, end, begin, x, y, z, gate)
            if n < 0:
                listed = near[start[cell] : start[cell + 1]]
                n, n_square, n_t = nearest_on_lane(listed, segment, begin, end, x, y, z, gate)
            if not stays(segment, n, n_square, n_t, cos, sin):
                continue
            cost = misfit(segment, n, n_square, cos, sin)
            for r in range(route0, route1):
                if route_lane[r] == ahead:
                    cost -= np.float64(1e6)
                    break
            if cost < least or (cost == least and ahead < segment_lane[best]):
                best = n
                best_square = n_square
                best_t = n_t
                least = cost
        if best < 0:
            break
        m = best
        square = best_square
        t = best_t
        lane = segment_lane[m]
    return (m, square, t) if stays(segment, m, square, t, cos, sin) else (-1, square, t)


@kernel
def may_be_within(segment: F32, m: Any, x: float, y: float, square: float) -> Any:
    """Whether (x, y) may be within a distance, whose square is given [m^2], of segment m. Of those within it none is
    missed, since `square` leaves room for rounding; without a branch or a division, as most of a list are not."""
    ax, ay = np.float64(segment[m, 0]), np.float64(segment[m, 1])
    dx, dy, px, py = segment[m, 2] - ax, segment[m, 3] - ay, x - ax, y - ay
    along, length = px * dx + py * dy, dx * dx + dy * dy
    across, beyond = px * dy - py * dx, max(max(along - length, -along), 0.0)
    return across * across + beyond * beyond <= square * length


@kernel
def search(
    near: I32,
    segment_lane: I32,
    segment: F32,
    drivable: Bool,
    any_lane: bool,
    lane: Any,
    x: float,
    y: float,
    z: float,
    cos: float,
    sin: float,
    reach: float,
    gate: float,
) -> tuple[Any, float]:
    """The segment of the lane that fits best among all within `reach` [m] on this level; number (-1 = none) and
    projection. Each lane is judged at its nearest segment; ties go to the lower lane.

    Segments out of reach decide nothing, nor at what a lane is judged, so they are left out first, a bit for each of a
    word's worth of the list.
    """
    best, best_t, least = np.int64(-1), 0.0, np.inf
    group, usable = np.int64(-1), False
    m, square, t = np.int64(-1), np.inf, 0.0
    for first in range(0, near.shape[0], WORD):
        mask = NO_BITS
        for k in range(min(near.shape[0] - first, WORD)):
            within = may_be_within(segment, np.int64(near[first + k]), x, y, reach * reach * ROOM + ROOM_M2)
            mask |= np.uint64(within) << np.uint64(k)
        while mask != NO_BITS:
            n = np.int64(near[first + first_bit(mask)])
            mask &= mask - ONE_BIT
            here = np.int64(segment_lane[n])
            if here != group:
                cost = lane_cost(segment, m, square, cos, sin, reach, 0.0 if group == lane else CHANGE_COST, least)
                if cost < least:
                    best, best_t, least = m, t, cost
                group, usable = here, any_lane or drivable[here]
                m, square = np.int64(-1), np.inf
            if usable:
                n_square, n_t = project(segment, n, x, y)
                if n_square < square and abs(between(segment[n, 4], segment[n, 5], n_t) - z) <= gate:
                    m, square, t = n, n_square, n_t
    cost = lane_cost(segment, m, square, cos, sin, reach, 0.0 if group == lane else CHANGE_COST, least)
    return (m, t) if cost < least else (best, best_t)


@kernel
def lane_cost(
    segment: F32, m: Any, square: float, cos: float, sin: float, reach: float, change: float, least: float
) -> float:
    """`misfit` of the lane whose nearest segment is m, and what it costs to change to it; infinite where there is none
    within reach, or where the distance alone costs `least`."""
    if m < 0 or not square < reach * reach or not DISTANCE_WEIGHT * np.sqrt(square) + change < least:
        return np.inf
    return misfit(segment, m, square, cos, sin) + change


@kernel
def offset_from(segment: F32, m: Any, first: int, last: int, t: float, x: float, y: float) -> float:
    """Signed distance [m] of (x, y) from the centre line at segment m, left positive.

    Beyond either end of the lane it is the distance from the line's extension; in the outer angle between two segments
    it is the distance from their common vertex.
    """
    ax = np.float64(segment[m, 0])
    ay = np.float64(segment[m, 1])
    dx = segment[m, 2] - ax
    dy = segment[m, 3] - ay
    cross = dx * (y - ay) - dy * (x - ax)
    if (t < 0 and m > first) or (t > 1 and m < last):
        distance = np.sqrt(project(segment, m, x, y)[0])
        return float(distance if cross >= 0 else -distance)
    return float(cross / np.sqrt(dx * dx + dy * dy))


@kernel
def assign_lanes(
    lane_map: LaneMap,
    x: F32,
    y: F32,
    z: F32,
    cos: F32,
    sin: F32,
    width: F32,
    type: U8,
    body: U8,
    first: int,
    end: int,
    level_gate: float,
    route_lane: I32,
    route_start: I64,
    route_size: I32,
    state: LaneState,
    events: U32,
) -> None:
    """Bring `state` of the agents [first, end) of one world up to their poses; add LANE_LOST, LANE_CHANGED to events.

    x, y, z       (A,)  f32 [m]   centre
    cos, sin      (A,)  f32       heading
    width         (A,)  f32 [m]
    type, body    (A,)  u8        as in the scene; 1 where the agent is there. Agents without a body lose their lane
    level_gate    [m]             lanes further above or below are other roads; infinite where the map has no heights
    route_*                       agent a prefers the exits among the route_size[a] lanes from route_start[a] on
    events        (A,)  u32

    LANE_LOST is added in every step without a lane within reach (three widths, at most LANE_REACH_M); LANE_CHANGED
    when the new lane is not one that the old one leads to, or that leads to the old one.
    """
    grid, start, near = lane_map.grid, lane_map.start, lane_map.near
    segment, segment_lane, lane_first = lane_map.segment, lane_map.segment_lane, lane_map.lane_first
    exit_offset, exit_lane, drivable = lane_map.exit_offset, lane_map.exit_lane, lane_map.drivable
    speed_limit = lane_map.speed_limit
    lane_of, previous, arc, offset = state.lane, state.previous, state.arc, state.offset
    lane_cos, lane_sin, half_width, limit = state.cos, state.sin, state.half_width, state.limit
    height, at, clear = state.height, state.segment, lane_map.clear
    for a in range(first, end):
        lane = lane_of[a]
        m = -1
        t = 0.0
        px, py, pz = np.float64(x[a]), np.float64(y[a]), np.float64(z[a])
        c, s = np.float64(cos[a]), np.float64(sin[a])
        if body[a]:
            cell = cell_of(grid, px, py)
            if cell >= 0:
                if lane >= 0:
                    m, _, t = follow(
                        near,
                        start,
                        cell,
                        segment_lane,
                        segment,
                        clear,
                        lane_first,
                        exit_offset,
                        exit_lane,
                        route_lane,
                        route_start[a],
                        route_start[a] + route_size[a],
                        lane,
                        at[a],
                        px,
                        py,
                        pz,
                        c,
                        s,
                        level_gate,
                    )
                if m < 0:
                    m, t = search(
                        near[start[cell] : start[cell + 1]],
                        segment_lane,
                        segment,
                        drivable,
                        type[a] != TYPE_VEHICLE,
                        lane,
                        px,
                        py,
                        pz,
                        c,
                        s,
                        WIDTHS * width[a],
                        level_gate,
                    )
            if m < 0:
                events[a] |= LANE_LOST
        at[a] = m
        if m < 0:
            if lane >= 0:
                previous[a] = lane
            lane_of[a] = NONE
            arc[a], offset[a], half_width[a] = 0.0, 0.0, 0.0
            lane_cos[a], lane_sin[a], limit[a], height[a] = 1.0, 0.0, np.nan, z[a]
            continue
        found = segment_lane[m]
        if found != lane:
            if lane >= 0:
                previous[a] = lane
                if not leads_to(exit_offset, exit_lane, lane, found) and not leads_to(
                    exit_offset, exit_lane, found, lane
                ):
                    events[a] |= LANE_CHANGED
            lane_of[a] = found
        arc[a] = between(segment[m, 6], segment[m, 7], t)
        offset[a] = offset_from(segment, m, lane_first[found], lane_first[found + 1] - 1, t, px, py)
        lane_cos[a] = segment[m, 10] * c + segment[m, 11] * s
        lane_sin[a] = segment[m, 10] * s - segment[m, 11] * c
        half_width[a] = between(segment[m, 8], segment[m, 9], t)
        limit[a] = speed_limit[found]
        height[a] = between(segment[m, 4], segment[m, 5], t)


@kernel
def wrong_way(speed: float, cos_error: float, lane: Any) -> bool:
    """Whether an agent drives forward against its lane (S75). speed [m/s]; cos_error: cosine of the heading error."""
    return lane >= 0 and speed > WRONG_WAY_SPEED and cos_error < 0


@kernel
def overspeed(speed: float, limit: float, lane: Any) -> bool:
    """Whether an agent is above its lane's limit by more than 2 m/s (S76). speed, limit [m/s]; an unknown limit (NaN)
    counts as 15 m/s."""
    known = UNKNOWN_LIMIT if np.isnan(limit) else limit
    return lane >= 0 and speed > known + OVERSPEED_MARGIN


@kernel
def ribbon_gap(lane_map: LaneMap, x: float, y: float, z: float, level_gate: float) -> float:
    """How far (x, y, z) [m] lies outside the ribbons of all lanes a vehicle may be on; 0 or less inside, infinite where
    none is near.

    A ribbon is what lies within half the width of the centre line, its ends rounded.
    """
    cell = cell_of(lane_map.grid, x, y)
    gap = np.inf
    if cell < 0:
        return gap
    segment, segment_lane, road, near = lane_map.segment, lane_map.segment_lane, lane_map.road, lane_map.near
    for k in range(lane_map.start[cell], lane_map.start[cell + 1]):
        m = np.int64(near[k])
        if road[segment_lane[m]]:
            square, t = project(segment, m, x, y)
            if abs(between(segment[m, 4], segment[m, 5], t) - z) <= level_gate:
                gap = min(gap, np.sqrt(square) - between(segment[m, 8], segment[m, 9], t))
    return gap

"""Goals: reaching them, swept over the step so that no speed flies past one (S77), and making new ones (S59, S61).

A goal has its point and its place on the lanes, and where its route was known when it was made, the hop of that route.
New goals are made from the place of the one that was reached, never from where the agent happens to stand, so making
them depends on the agent's key, the step and the map alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Event
from skidpad.scenes.index import LaneMap
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.routes import (
    drop_lanes,
    go_along,
    lane_length,
    lane_place,
    length_left,
    walk_on,
)
from skidpad.simulation.kernels.slots import f32_2, f32_3, i32_1, i32_2, i64_1
from skidpad.simulation.random import Purpose, unit, words
from skidpad.simulation.slots import (
    B_GOAL_ARC,
    B_GOAL_COUNT,
    B_GOAL_HOP,
    B_GOAL_LANE,
    B_GOALS,
    B_ROUTE_LANE,
    B_ROUTE_SIZE,
    B_ROUTE_START,
)
from skidpad.simulation.state import (
    BEFORE_X,
    BEFORE_Y,
    GOAL_BEHAVIOUR,
    GOAL_INDEX,
    GOAL_NEXT,
    GOAL_SETS,
    GOAL_SLOT,
    GOAL_SOURCE,
    GOALS_FINITE,
    GOALS_LOG,
    GOALS_MAP,
    GOALS_NEW,
    GOALS_PAID,
    GOALS_ROLLING,
    KEY,
    LANE,
    LANE_ARC,
    SPACING_HIGH,
    SPACING_LOW,
    SPEED,
    X,
    Y,
    Z,
)

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
ZERO, ONE = np.float32(0.0), np.float32(1.0)
REACHED, REACHED_SLOW, NOTHING = np.uint32(Event.GOAL), np.uint32(Event.GOAL_SLOW), np.uint32(0)
GOAL = int(Purpose.GOAL)
GOING, SET_DONE, NO_GOAL = range(3)  # what `renew_goals` finds
REBUILDS = 4  # walks tried for a way on that is longer than the rest of a dead end
NEW_AHEAD_M = 40.0
UNSEEN, START = np.int32(-2), np.int32(-1)


class GoalTable(NamedTuple):
    """Goals of all agents that have some; an agent's row is its `goal_slot`, its next goal column `goal_next`.

    points  (M, G, 3)  f32 [m]
    lane    (M, G)     i32      the lane it lies on, -1 = none known
    arc     (M, G)     f32 [m]  along that lane
    hop     (M, G)     i32      which lane of the agent's route that is, -1 = unknown
    size    (M,)       i32      columns in use
    """

    points: F32
    lane: I32
    arc: F32
    hop: I32
    size: I32


class RouteTable(NamedTuple):
    """Routes of all agents of all worlds.

    lane    flat      i32   agent a owns lane[start[a] : start[a + 1]], of which the first size[a] are its route
    start   (A + 1,)  i64
    size    (A,)      i32
    """

    lane: I32
    start: I64
    size: I32


@kernel
def goal_table(batch: I64) -> GoalTable:
    """The goals of a batch."""
    return GoalTable(
        f32_3(batch, B_GOALS),
        i32_2(batch, B_GOAL_LANE),
        f32_2(batch, B_GOAL_ARC),
        i32_2(batch, B_GOAL_HOP),
        i32_1(batch, B_GOAL_COUNT),
    )


@kernel
def route_table(batch: I64) -> RouteTable:
    """The routes of a batch."""
    return RouteTable(i32_1(batch, B_ROUTE_LANE), i64_1(batch, B_ROUTE_START), i32_1(batch, B_ROUTE_SIZE))


@kernel
def reach_goals(
    i: int,
    f4: F32,
    i4: I32,
    goals: F32,
    goal_count: I32,
    radius: np.float32,
    gate: np.float32,
    gate_all: bool,
    level_gate: np.float32,
) -> np.uint32:
    """Count the goals that agent i reached in the step, in their order, and return its event bits. Those reached within
    the speed gate are added to GOALS_PAID.

    goals       (M, G, 3)  f32 [m]   rows by `goal_slot`
    goal_count  (M,)       i32
    radius [m], gate [m/s]           of the agent

    A goal is reached where the segment from the last to the present position comes nearer than the radius, on its
    level. The speed gate is that of the last goal, or of every one; without a gate (0) every reach is within it.
    """
    slot = i4[GOAL_SLOT, i]
    if slot < 0:
        return NOTHING
    x0, y0 = f4[BEFORE_X, i], f4[BEFORE_Y, i]
    dx, dy = f4[X, i] - x0, f4[Y, i] - y0
    square = dx * dx + dy * dy
    events = NOTHING
    while i4[GOAL_NEXT, i] < goal_count[slot]:
        index = i4[GOAL_NEXT, i]
        gx, gy = goals[slot, index, 0] - x0, goals[slot, index, 1] - y0
        share = min(max((gx * dx + gy * dy) / square, ZERO), ONE) if square > ZERO else ZERO
        ox, oy = gx - share * dx, gy - share * dy
        if not (ox * ox + oy * oy < radius * radius):
            break
        if abs(goals[slot, index, 2] - f4[Z, i]) >= level_gate:
            break
        i4[GOAL_NEXT, i] = index + 1
        i4[GOAL_INDEX, i] += 1
        events |= REACHED
        gated = gate_all or index + 1 == goal_count[slot]
        if not gated or gate == ZERO or abs(f4[SPEED, i]) <= gate:
            events |= REACHED_SLOW
            i4[GOALS_PAID, i] += 1
    return events


@kernel
def set_goal(goals: GoalTable, slot: int, n: int, lane: Any, arc: float, hop: int, lanes: LaneMap) -> None:
    """Make (lane, arc) goal n of a row."""
    x, y, z, _ = lane_place(lanes.segment, lanes.lane_first, lane, arc)
    goals.points[slot, n, 0], goals.points[slot, n, 1], goals.points[slot, n, 2] = x, y, z
    goals.lane[slot, n], goals.arc[slot, n], goals.hop[slot, n] = lane, np.float32(arc), hop


@kernel
def append_goals(
    seed: int,
    episode: int,
    key: int,
    step: int,
    route: I32,
    count: int,
    hop: int,
    arc: float,
    goals: GoalTable,
    slot: int,
    first: int,
    parameters: F32,
    lanes: LaneMap,
) -> int:
    """Fill the columns of a row from `first` on with goals along a route beyond the place (hop, arc); how many columns
    are then in use.

    Each is U(SPACING_LOW, SPACING_HIGH) [m] beyond the one before, less where the route ends sooner; the row stays
    short where less than SPACING_LOW is left of it.
    """
    low, high = np.float64(parameters[SPACING_LOW]), np.float64(parameters[SPACING_HIGH])
    left = length_left(route, count, hop, arc, lanes.segment, lanes.lane_first)
    used = first
    for n in range(first, goals.points.shape[1]):
        if left < low:
            break
        share = np.float64(unit(words(seed, episode, key, step, GOAL, n)[0]))
        distance = low + share * (min(high, left) - low)
        hop, arc = go_along(route, count, hop, arc, distance, lanes.segment, lanes.lane_first)
        left -= distance
        set_goal(goals, slot, n, route[hop], arc, hop, lanes)
        used = n + 1
    return used


@kernel
def start_route(
    seed: int,
    episode: int,
    key: int,
    step: int,
    route: I32,
    count: int,
    lane: Any,
    arc: float,
    trial: int,
    lanes: LaneMap,
) -> int:
    """Bring a route to begin on `lane`, and walk on from `arc` [m] there: what it has from that lane on is kept, a
    route that does not hold the lane is given up. Its new number of lanes."""
    kept = 0
    for r in range(count):
        if route[r] == lane:
            kept = drop_lanes(route, count, r)
            break
    if kept == 0:
        route[0] = lane
        kept = 1
    return walk_on(
        seed,
        episode,
        key,
        step,
        route,
        kept,
        arc,
        trial,
        lanes.segment,
        lanes.lane_first,
        lanes.exit_offset,
        lanes.exit_lane,
        lanes.drivable,
    )


@kernel
def route_to_anywhere(
    seed: int,
    episode: int,
    key: int,
    step: int,
    route: I32,
    lane: Any,
    arc: float,
    lanes: LaneMap,
    before: I32,
    queue: I32,
) -> tuple[int, Any, float]:
    """A place drawn by length over all drivable lanes that can be reached from (lane, arc), and the way there over the
    fewest lanes: the route's number of lanes, the goal's lane and arc. The lane is -1 where nothing lies ahead.

    route          (R,)    i32   written; the way ends early where it has more lanes than fit
    before, queue  (>= L,) i32   scratch
    """
    exit_offset, exit_lane, drivable = lanes.exit_offset, lanes.exit_lane, lanes.drivable
    before[: drivable.shape[0]] = UNSEEN
    before[lane] = START
    queue[0] = lane
    found, done = 1, 0
    total = max(lane_length(lanes.segment, lanes.lane_first, lane) - arc, 0.0)
    while done < found:
        here = queue[done]
        done += 1
        for k in range(exit_offset[here], exit_offset[here + 1]):
            ahead = exit_lane[k]
            if before[ahead] == UNSEEN and drivable[ahead]:
                before[ahead] = here
                queue[found] = ahead
                found += 1
                total += lane_length(lanes.segment, lanes.lane_first, ahead)
    if total <= 0.0:
        return 0, UNSEEN, 0.0
    where = np.float64(unit(words(seed, episode, key, step, GOAL, 0)[0])) * total
    goal, goal_arc = lane, arc + where
    where -= max(lane_length(lanes.segment, lanes.lane_first, lane) - arc, 0.0)
    n = 1
    while where >= 0.0 and n < found:
        goal, goal_arc = queue[n], where
        where -= lane_length(lanes.segment, lanes.lane_first, goal)
        n += 1
    hops, here = 1, goal
    while before[here] != START:
        here = before[here]
        hops += 1
    here = goal
    for r in range(hops - 1, -1, -1):
        if r < route.shape[0]:
            route[r] = here
        here = before[here]
    return min(hops, route.shape[0]), goal, goal_arc


@kernel
def new_goals(
    a: int,
    seed: int,
    episode: int,
    step: int,
    lane: Any,
    arc: float,
    i4: I32,
    goals: GoalTable,
    routes: RouteTable,
    parameters: F32,
    lanes: LaneMap,
    before: I32,
    queue: I32,
) -> None:
    """A new set of goals for agent a, and its route, from (lane, arc) on; none where none can be made. The agent may
    have no row of goals: it gets a route only."""
    slot, key = i4[GOAL_SLOT, a], i4[KEY, a]
    route = routes.lane[routes.start[a] : routes.start[a + 1]]
    count = routes.size[a]
    i4[GOAL_NEXT, a] = 0
    i4[GOAL_SETS, a] += 1
    if lane < 0:
        routes.size[a] = 0
        if slot >= 0:
            goals.size[slot] = 0
        return
    if slot < 0 or parameters[GOAL_SOURCE] != GOALS_MAP:
        count = start_route(seed, episode, key, step, route, count, lane, arc, 0, lanes)
        routes.size[a] = count
        if slot >= 0:
            goals.size[slot] = append_goals(
                seed, episode, key, step, route, count, 0, arc, goals, slot, 0, parameters, lanes
            )
        return
    count, goal, goal_arc = route_to_anywhere(seed, episode, key, step, route, lane, arc, lanes, before, queue)
    routes.size[a], goals.size[slot] = count, 0
    if goal < 0:
        return
    known = route[count - 1] == goal
    set_goal(goals, slot, 0, goal, goal_arc, count - 1 if known else -1, lanes)
    goals.size[slot] = 1
    if known:  # The way fitted: the next goals follow it.
        hop = count - 1
        count = start_route(seed, episode, key, step, route, count, lane, arc, 0, lanes)
        routes.size[a] = count
        goals.size[slot] = append_goals(
            seed, episode, key, step, route, count, hop, goal_arc, goals, slot, 1, parameters, lanes
        )


@kernel
def goal_ahead(a: int, lane: Any, arc: float, i4: I32, goals: GoalTable, routes: RouteTable, lanes: LaneMap) -> None:
    """Peer v2: one goal NEW_AHEAD_M further along the lanes; at each branch the exit numbered by the agent modulo the
    number of exits. None where the lanes end before."""
    slot, key = i4[GOAL_SLOT, a], i4[KEY, a]
    route = routes.lane[routes.start[a] : routes.start[a + 1]]
    i4[GOAL_NEXT, a] = 0
    i4[GOAL_SETS, a] += 1
    goals.size[slot], routes.size[a] = 0, 0
    if lane < 0:
        return
    route[0] = lane
    count, arc_there = 1, arc + NEW_AHEAD_M
    length = lane_length(lanes.segment, lanes.lane_first, lane)
    while arc_there > length:
        begin, exits = lanes.exit_offset[lane], lanes.exit_offset[lane + 1] - lanes.exit_offset[lane]
        if exits == 0 or count == route.shape[0]:
            return
        arc_there -= length
        lane = lanes.exit_lane[begin + key % exits]
        length = lane_length(lanes.segment, lanes.lane_first, lane)
        route[count] = lane
        count += 1
    set_goal(goals, slot, 0, lane, arc_there, count - 1, lanes)
    goals.size[slot], routes.size[a] = 1, count


@kernel
def roll_goals(
    a: int,
    seed: int,
    episode: int,
    step: int,
    i4: I32,
    goals: GoalTable,
    routes: RouteTable,
    parameters: F32,
    lanes: LaneMap,
    spare: I32,
) -> bool:
    """Drop the goals that were reached, bring the rest to the front and append new ones behind; False where the hop of
    a goal is not known and the set has to be made anew.

    Where the route ends so soon that no goal fits behind, REBUILDS other walks are tried from the goal that was
    reached, and the longest way replaces it.
    """
    slot, key = i4[GOAL_SLOT, a], i4[KEY, a]
    reached, count = i4[GOAL_NEXT, a], goals.size[slot]
    hop = goals.hop[slot, reached - 1]
    if hop < 0:
        return False
    arc = float(goals.arc[slot, reached - 1])
    route = routes.lane[routes.start[a] : routes.start[a + 1]]
    lanes_left = drop_lanes(route, routes.size[a], hop)
    left = count - reached
    for n in range(left):
        for axis in range(3):
            goals.points[slot, n, axis] = goals.points[slot, reached + n, axis]
        goals.lane[slot, n], goals.arc[slot, n] = goals.lane[slot, reached + n], goals.arc[slot, reached + n]
        goals.hop[slot, n] = goals.hop[slot, reached + n] - hop
    i4[GOAL_NEXT, a] = 0
    i4[GOAL_SETS, a] += 1
    first, first_arc = 0, arc
    if left > 0:
        first, first_arc = int(goals.hop[slot, left - 1]), float(goals.arc[slot, left - 1])
    lanes_left = start_route(seed, episode, key, step, route, lanes_left, route[0], arc, 0, lanes)
    used = append_goals(
        seed, episode, key, step, route, lanes_left, first, first_arc, goals, slot, left, parameters, lanes
    )
    if used == left:
        longest = length_left(route, lanes_left, 0, arc, lanes.segment, lanes.lane_first)
        rebuilt = False
        for trial in range(1, REBUILDS + 1):
            there = start_route(seed, episode, key, step, spare, 0, route[0], arc, trial, lanes)
            length = length_left(spare, there, 0, arc, lanes.segment, lanes.lane_first)
            if length > longest:
                longest = length
                rebuilt = True
                for r in range(there):
                    route[r] = spare[r]
                lanes_left = there
        if rebuilt:
            used = append_goals(seed, episode, key, step, route, lanes_left, 0, arc, goals, slot, 0, parameters, lanes)
    goals.size[slot], routes.size[a] = used, lanes_left
    return True


@kernel
def renew_goals(
    a: int,
    seed: int,
    episode: int,
    step: int,
    f4: F32,
    i4: I32,
    goals: GoalTable,
    routes: RouteTable,
    parameters: F32,
    lanes: LaneMap,
    spare: I32,
    before: I32,
    queue: I32,
) -> int:
    """What follows when agent a has reached goals in a step (S61): GOING while its set goes on, SET_DONE when that was
    the last one (with rolling goals: at each), NO_GOAL when a new one was due and cannot be made.

    step                   the world's step; new goals are drawn for it
    spare, before, queue   scratch: (ROUTE_LANES,), (>= L,), (>= L,) i32
    """
    slot, behaviour = i4[GOAL_SLOT, a], parameters[GOAL_BEHAVIOUR]
    last = i4[GOAL_NEXT, a] - 1
    lane, arc = int(goals.lane[slot, last]), float(goals.arc[slot, last])
    if behaviour == GOALS_ROLLING:
        if roll_goals(a, seed, episode, step, i4, goals, routes, parameters, lanes, spare):
            return SET_DONE if goals.size[slot] > 0 else NO_GOAL
    elif last + 1 < goals.size[slot]:
        return GOING
    elif behaviour == GOALS_NEW:
        if lane < 0:  # A logged goal beside the lanes: on from where the agent is.
            lane, arc = int(i4[LANE, a]), float(f4[LANE_ARC, a])
        goal_ahead(a, lane, arc, i4, goals, routes, lanes)
        return SET_DONE if goals.size[slot] > 0 else NO_GOAL
    elif behaviour != GOALS_FINITE or parameters[GOAL_SOURCE] == GOALS_LOG:
        return SET_DONE
    new_goals(a, seed, episode, step, lane, arc, i4, goals, routes, parameters, lanes, before, queue)
    return SET_DONE if goals.size[slot] > 0 else NO_GOAL

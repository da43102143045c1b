"""Driving on along exits: random routes, and places on them (S60).

A route is a list of lanes of which each leads into the next; a place on it is (hop, arc): which of its lanes, and how
far along that one. Routes and places are plain numbers, so an agent gets new ones inside a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.random import Purpose, below, words

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

ROUTE_LANES = 64
ROUTE_M = 1000.0
ROUTE = int(Purpose.ROUTE)
NOWHERE = np.int32(-1)


@kernel
def lane_length(segment: F32, lane_first: I32, lane: Any) -> float:
    """Length of a lane [m]; its arc positions run from 0 to this."""
    last = lane_first[lane + 1] - 1
    return np.float64(segment[last, 7]) if last >= lane_first[lane] else 0.0


@kernel
def lane_place(segment: F32, lane_first: I32, lane: Any, arc: float) -> tuple[Any, Any, Any, Any]:
    """Where `arc` [m] along a lane is: x, y, z [m] as f32, and the segment of `scenes.index.LaneMap` that holds it. The
    lane has segments; arcs beyond its ends are its ends."""
    low, high = np.int64(lane_first[lane]), np.int64(lane_first[lane + 1]) - 1
    while low < high:  # the first segment that ends beyond the arc, else the last one
        middle = (low + high) // 2
        if segment[middle, 7] > arc:
            high = middle
        else:
            low = middle + 1
    span = np.float64(segment[low, 7]) - segment[low, 6]
    share = min(max((arc - segment[low, 6]) / span, 0.0), 1.0) if span > 0 else 0.0
    x = segment[low, 0] + share * (np.float64(segment[low, 2]) - segment[low, 0])
    y = segment[low, 1] + share * (np.float64(segment[low, 3]) - segment[low, 1])
    z = segment[low, 4] + share * (np.float64(segment[low, 5]) - segment[low, 4])
    return np.float32(x), np.float32(y), np.float32(z), low


@kernel
def random_exit(
    word: Any, route: I32, count: int, exit_offset: I32, exit_lane: I32, lane_first: I32, drivable: Bool
) -> Any:
    """One of the drivable exits of the route's last lane, lanes that the route has not visited first; -1 at a dead
    end. `word` u64 below 2^32 decides among equals."""
    lane = route[count - 1]
    fresh, known = 0, 0
    for k in range(exit_offset[lane], exit_offset[lane + 1]):
        candidate = exit_lane[k]
        if drivable[candidate] and lane_first[candidate + 1] > lane_first[candidate]:
            if visited(route, count, candidate):
                known += 1
            else:
                fresh += 1
    if fresh + known == 0:
        return NOWHERE
    left = below(word, fresh if fresh > 0 else known)
    for k in range(exit_offset[lane], exit_offset[lane + 1]):
        candidate = exit_lane[k]
        if drivable[candidate] and lane_first[candidate + 1] > lane_first[candidate]:
            if fresh == 0 or not visited(route, count, candidate):
                if left == 0:
                    return candidate
                left -= 1
    return NOWHERE


@kernel
def visited(route: I32, count: int, lane: Any) -> bool:
    """Whether a lane is among the first `count` of a route."""
    found = False
    for r in range(count):
        found |= route[r] == lane
    return found


@kernel
def walk_on(
    seed: int,
    episode: int,
    key: int,
    step: int,
    route: I32,
    count: int,
    arc: float,
    trial: int,
    segment: F32,
    lane_first: I32,
    exit_offset: I32,
    exit_lane: I32,
    drivable: Bool,
) -> int:
    """Lengthen a route at random until it runs ROUTE_M [m] from `arc` on its first lane, holds as many lanes as fit, or
    ends at a dead end; its new number of lanes.

    route           (>= 1,)  i32   the first `count` >= 1 lanes are given, the rest is written
    seed, episode, key, step       of the agent's draws (purpose ROUTE, one per lane appended)
    trial                          0, or the number of another walk in the same step
    others                         as in `scenes.index.LaneMap`
    """
    length = -arc
    for r in range(count):
        length += lane_length(segment, lane_first, route[r])
    while count < route.shape[0] and length < ROUTE_M:
        word = words(seed, episode, key, step, ROUTE, trial * ROUTE_LANES + count)[0]
        lane = random_exit(word, route, count, exit_offset, exit_lane, lane_first, drivable)
        if lane < 0:
            break
        route[count] = lane
        count += 1
        length += lane_length(segment, lane_first, lane)
    return count


@kernel
def drop_lanes(route: I32, count: int, hops: int) -> int:
    """Take the first `hops` lanes off a route; its new number of lanes."""
    if hops > 0:
        for r in range(hops, count):
            route[r - hops] = route[r]
    return count - hops


@kernel
def length_left(route: I32, count: int, hop: int, arc: float, segment: F32, lane_first: I32) -> float:
    """Metres from a place on a route to its end."""
    left = -arc
    for r in range(hop, count):
        left += lane_length(segment, lane_first, route[r])
    return left


@kernel
def go_along(
    route: I32, count: int, hop: int, arc: float, distance: float, segment: F32, lane_first: I32
) -> tuple[int, float]:
    """The place `distance` [m] further along a route; its end where the route is shorter."""
    arc += distance
    while hop < count - 1:
        length = lane_length(segment, lane_first, route[hop])
        if arc < length:
            break
        arc -= length
        hop += 1
    return hop, min(arc, lane_length(segment, lane_first, route[hop]))

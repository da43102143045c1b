"""Loops over the lane graph, compiled: how far the goals of a map are from every lane that can reach them soon (S3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.compile import kernel

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@kernel
def reach_back(
    goal: int, reach: float, length: F32, entry_offset: I32, entry_lane: I32, metres: F32, queue: I32, waiting: Any
) -> int:
    """Lanes from whose end the start of lane `goal` can be reached within `reach` [m]: how many; `queue` names them
    and `metres` holds the distance of each.

    length   (L,)  f32 [m]   of each lane
    metres   (L,)  f32 [m]   written for the lanes found; infinite before, except what is found here
    queue    (L,)  i32       written: the lanes found, in the order of finding
    waiting  (2, L) i32      scratch: [0] is 1 while a lane waits to be looked at (0 before and after), [1] the ring of
                             those that do

    Distances are corrected until none gets shorter (Bellman, Ford, Moore); sums run from the goal backwards.
    """
    lanes = length.shape[0]
    found, head, count = 0, 0, 0
    for k in range(entry_offset[goal], entry_offset[goal + 1]):
        lane = entry_lane[k]
        if metres[lane] != np.float32(0.0):
            metres[lane] = np.float32(0.0)
            queue[found] = lane
            found += 1
            waiting[0, lane] = 1
            waiting[1, (head + count) % lanes] = lane
            count += 1
    while count > 0:
        here = waiting[1, head]
        head = (head + 1) % lanes
        count -= 1
        waiting[0, here] = 0
        through = metres[here] + length[here]
        if through > reach:
            continue
        for k in range(entry_offset[here], entry_offset[here + 1]):
            lane = entry_lane[k]
            if through < metres[lane]:
                if metres[lane] == np.float32(np.inf):
                    queue[found] = lane
                    found += 1
                metres[lane] = through
                if waiting[0, lane] == 0:
                    waiting[0, lane] = 1
                    waiting[1, (head + count) % lanes] = lane
                    count += 1
    return found


@kernel
def reach_all(
    reach: float,
    length: F32,
    entry_offset: I32,
    entry_lane: I32,
    start: I64,
    lane: I32,
    away: F32,
    metres: F32,
    queue: I32,
    waiting: Any,
) -> None:
    """`reach_back` for every lane as the goal, as CSR: with an empty `lane` the lengths of the rows are written to
    start[goal + 1], else the rows themselves, each from start[goal] on."""
    metres[:] = np.float32(np.inf)
    waiting[0] = 0
    for goal in range(length.shape[0]):
        found = reach_back(goal, reach, length, entry_offset, entry_lane, metres, queue, waiting)
        if lane.shape[0] == 0:
            start[goal + 1] = found
        for n in range(found):
            if lane.shape[0] > 0:
                lane[start[goal] + n] = queue[n]
                away[start[goal] + n] = metres[queue[n]]
            metres[queue[n]] = np.float32(np.inf)


@kernel
def spread(goal: Any, start: I64, lane: I32, away: F32, to_goal: F32) -> None:
    """Lay the distances to a goal lane out by lane. to_goal (>= L,) f32 [m]: infinite before; `clear` undoes it."""
    for k in range(start[goal], start[goal + 1]):
        to_goal[lane[k]] = away[k]


@kernel
def clear(goal: Any, start: I64, lane: I32, to_goal: F32) -> None:
    """Make `to_goal` infinite again after `spread` for the same goal lane."""
    for k in range(start[goal], start[goal + 1]):
        to_goal[lane[k]] = np.float32(np.inf)


@kernel
def metres_to_goal(lane: Any, left: Any, arc: Any, goal: Any, goal_arc: Any, to_goal: F32) -> Any:
    """Metres to drive from a place on a lane to the goal, infinite where that is farther than the table reaches (S91).

    lane, arc, left   the lane, how far along it the place is, and how much of it is left [m]
    goal, goal_arc    the goal's lane and how far along that it lies [m]
    to_goal           as `spread` leaves it
    """
    if lane == goal and arc <= goal_arc:
        return goal_arc - arc
    return left + to_goal[lane] + goal_arc

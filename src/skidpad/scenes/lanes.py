"""The lane graph: walking along exits, and how far it is to drive from one place on it to another (S3).

Distances to a goal come from one reverse Dijkstra per goal lane, kept in a bounded cache; there is no L x L matrix.
What cannot be reached is +inf away, never a negative number. Matching logged tracks to lanes is `routes.py`.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.scene import I32, RoadMap

F64 = NDArray[np.float64]

LANE_CHANGE_M = 5.0
CACHE_BYTES = 64 << 20


def lane_lengths(road: RoadMap) -> F64:
    """Length of each lane: (L,) f64 [m]."""
    return road.arc[road.element_points[road.lane_element + 1] - 1].astype(np.float64)


def neighbours(road: RoadMap, lane: int) -> list[int]:
    """Same-direction neighbours of a lane, left ones first."""
    left = road.left_lane[road.left_offset[lane] : road.left_offset[lane + 1]]
    right = road.right_lane[road.right_offset[lane] : road.right_offset[lane + 1]]
    return [*left.tolist(), *right.tolist()]


def shortest_path(road: RoadMap, first: int, last: int, reach_m: float = math.inf) -> list[int] | None:
    """The lanes of the shortest way along exits from one lane to another, both included; None beyond `reach_m`.

    From a lane to itself it is the lane alone. The distance is from start to start.
    """
    lengths = lane_lengths(road)
    before: dict[int, int] = {}
    done: set[int] = set()
    heap: list[tuple[float, int, int]] = [(0.0, first, -1)]
    while heap:
        distance, here, came_from = heapq.heappop(heap)
        if here in done:
            continue
        done.add(here)
        before[here] = came_from
        if here == last:
            path = [here]
            while before[path[-1]] >= 0:
                path.append(before[path[-1]])
            return path[::-1]
        beyond = distance + float(lengths[here])
        if beyond <= reach_m:
            for following in road.exits(here).tolist():
                if following not in done:
                    heapq.heappush(heap, (beyond, following, here))
    return None


class LaneDistances:
    """Driving distances on one map, along exits, and with `lane_changes` across same-direction neighbours too.

    A lane change costs LANE_CHANGE_M and keeps the share of the lane that has been driven. Each goal lane costs one
    search and 4 bytes per lane; the least recently used goals are dropped above `cache_bytes`. The arrays handed out
    are read-only and may be shared. Not for use by several threads at once.
    """

    def __init__(self, road: RoadMap, *, lane_changes: bool = False, cache_bytes: int = CACHE_BYTES) -> None:
        self._road = road
        self._lane_changes = lane_changes
        self._lengths = lane_lengths(road)
        self._goals: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        # What leads to a lane and at which cost, as Python lists: a search visits each lane once, and slicing arrays
        # would take most of its time.
        lengths = self._lengths.tolist()
        self._before = [[(one, lengths[one]) for one in road.entries(lane).tolist()] for lane in range(road.lane_count)]
        if lane_changes:
            for lane, before in enumerate(self._before):
                before += [(one, LANE_CHANGE_M) for one in neighbours(road, lane)]
        self._capacity = max(1, cache_bytes // max(4 * road.lane_count, 1))

    @property
    def cached_bytes(self) -> int:
        return sum(array.nbytes for array in self._goals.values())

    def to(self, goal: int) -> NDArray[np.float32]:
        """Distance from the start of every lane to the start of lane `goal`: (L,) f32 [m], read-only."""
        if goal in self._goals:
            self._goals.move_to_end(goal)
            return self._goals[goal]
        found = self._search(goal)
        self._goals[goal] = found
        while len(self._goals) > self._capacity:
            self._goals.popitem(last=False)
        return found

    def between(self, lane: int, arc: float, goal: int, goal_arc: float) -> float:
        """Distance [m] from a place on a lane to a place on another, each given by its arc [m] along the lane."""
        to_goal = self.to(goal)
        best = math.inf
        for here, hops in self._beside(lane):
            at = arc * float(self._lengths[here] / self._lengths[lane])
            cost = hops * LANE_CHANGE_M
            if here == goal and goal_arc >= at:
                best = min(best, cost + goal_arc - at)
            exits = self._road.exits(here)
            if len(exits):
                onward = float(to_goal[exits].min())
                best = min(best, cost + float(self._lengths[here]) - at + onward + goal_arc)
        return best

    def _beside(self, lane: int) -> list[tuple[int, int]]:
        """A lane and, with lane changes, the lanes beside it with the number of changes to get there."""
        reached = {lane: 0}
        if self._lane_changes:
            queue = [lane]
            for here in queue:
                for beside in neighbours(self._road, here):
                    if beside not in reached:
                        reached[beside] = reached[here] + 1
                        queue.append(beside)
        return list(reached.items())

    def _search(self, goal: int) -> NDArray[np.float32]:
        distance = [math.inf] * self._road.lane_count
        distance[goal] = 0.0
        heap = [(0.0, goal)]
        while heap:
            here_to_goal, here = heapq.heappop(heap)
            if here_to_goal > distance[here]:
                continue  # a shorter way to `here` has been found since this one was noted
            for lane, length in self._before[here]:
                through = here_to_goal + length
                if through < distance[lane]:
                    distance[lane] = through
                    heapq.heappush(heap, (through, lane))
        found = np.array(distance, np.float32)
        found.flags.writeable = False
        return found


class GoalReach(NamedTuple):
    """For every lane as a goal, the lanes from which it can be reached soon; what kernels read (S91).

    Goal lane g owns the entries start[g] : start[g + 1].

    start   (L + 1,)  i64
    lane    (n,)      i32      a lane from which g can be reached
    metres  (n,)      f32 [m]  from the end of that lane to the start of g, within the reach; g itself where a loop
                               leads back to it
    """

    start: NDArray[np.int64]
    lane: I32
    metres: NDArray[np.float32]


def goal_reach(road: RoadMap, reach_m: float = 500.0) -> GoalReach:
    """Distances to every lane of a map from all lanes within `reach_m`; grows with the map's length, not its square."""
    from skidpad.scenes.lane_kernels import reach_all

    count = road.lane_count
    length = lane_lengths(road).astype(np.float32)
    start = np.zeros(count + 1, np.int64)
    lane, metres = np.empty(0, np.int32), np.empty(0, np.float32)
    scratch = np.empty(count, np.float32), np.empty(count, np.int32), np.zeros((2, count), np.int32)
    reach_all(reach_m, length, road.entry_offset, road.entry_lane, start, lane, metres, *scratch)
    np.cumsum(start, out=start)
    if start[-1]:
        lane, metres = np.empty(int(start[-1]), np.int32), np.empty(int(start[-1]), np.float32)
        reach_all(reach_m, length, road.entry_offset, road.entry_lane, start, lane, metres, *scratch)
    found = GoalReach(start, lane, metres)
    for array in found:
        array.flags.writeable = False
    return found


def connected(road: RoadMap, one: int, other: int) -> bool:
    """Does a route go from one lane straight to the other: along an exit, or by a lane change?"""
    return other in road.exits(one) or other in neighbours(road, one)


def route_gaps(road: RoadMap, route: I32) -> list[int]:
    """Positions in a route after which the next lane is not connected; empty for a good route."""
    pairs = zip(route[:-1].tolist(), route[1:].tolist(), strict=True)
    return [index for index, (one, other) in enumerate(pairs) if not connected(road, one, other)]

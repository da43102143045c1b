"""Where a yield sign must be obeyed, and by whom: the conflict points behind each (S74).

Behind the line of a sign lie the movements of the lanes that it controls. Whoever crosses one of them, or merges with
it, and does not come from behind a stop or yield sign itself, goes first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes import polyline
from skidpad.scenes.junctions import LEVEL_GATE_M, Movement, lane_crossing, movements
from skidpad.scenes.lanes import lane_lengths
from skidpad.scenes.scene import SIGNAL_STOP, SIGNAL_YIELD, RoadMap, Scene

REACH_M = 100.0  # how far before the conflict somebody is looked for
Row = tuple[tuple[int, int, int], tuple[float, float]]


def yield_table(scene: Scene) -> dict[str, NDArray[np.int32] | NDArray[np.float32]]:
    """The fields of `kernels.signals.Yields`."""
    signals = scene.signals
    found: list[list[Row]] = [[] for _ in range(signals.count)]
    signs = np.flatnonzero(signals.kind == SIGNAL_YIELD).tolist()
    if signs:
        ruled = (signals.kind == SIGNAL_STOP) | (signals.kind == SIGNAL_YIELD)
        minor = frozenset(lane for s in np.flatnonzero(ruled).tolist() for lane in signals.lanes(s).tolist())
        finder = _Conflicts(scene.road, minor, LEVEL_GATE_M if scene.meta.has_z else np.inf)
        for s in signs:
            middle = scene.signals.line[s, :, :2].astype(np.float64).mean(axis=0)
            for lane in signals.lanes(s).tolist():
                found[s] += finder.rows(lane, middle)
    rows = [row for some in found for row in some]
    return {
        "yield_start": np.concatenate([[0], np.cumsum([len(some) for some in found])]).astype(np.int32),
        "yield_lane": np.array([lanes for lanes, _ in rows], np.int32).reshape(-1, 3),
        "yield_metres": np.array([metres for _, metres in rows], np.float32).reshape(-1, 2),
    }


class _Conflicts:
    """Finds who goes first where a controlled lane leads to."""

    def __init__(self, road: RoadMap, minor: frozenset[int], gate: float) -> None:
        self._road, self._minor, self._gate = road, minor, gate
        self._length = lane_lengths(road)
        xy = [road.xyz[road.lane_points(lane), :2] for lane in range(road.lane_count)]
        self._low = np.array([points.min(axis=0) for points in xy])
        self._high = np.array([points.max(axis=0) for points in xy])

    def rows(self, lane: int, line: NDArray[np.float64]) -> Iterator[Row]:
        """The rows of a controlled lane whose sign has its line about (x, y) [m]."""
        road = self._road
        where = road.lane_points(lane)
        place = polyline.project(road.xyz[where].astype(np.float64), line[None])
        k = int(place.segment[0])
        arc = road.arc[where].astype(np.float64)
        line_arc = float(arc[k] + place.fraction[0] * (arc[k + 1] - arc[k]))
        ways = movements(road, [lane])
        for way in ways:
            before = -line_arc if way.lanes[0] == lane else float(self._length[lane]) - line_arc
            for own in way.lanes:
                for own_arc, other, other_arc in self._points(way, own):
                    metres = before + own_arc
                    if metres >= 0.0:
                        sure = -1 if len(ways) == 1 else own
                        for place_, via, to_go in self._upstream(other, other_arc, way, lane):
                            yield (sure, place_, via), (metres, to_go)
                before += float(self._length[own])

    def _points(self, way: Movement, own: int) -> Iterator[tuple[float, int, float]]:
        """Conflicts on a lane of a movement: arc [m] on it, the other lane, arc on that."""
        road, last = self._road, own == way.lanes[-1]
        merging = {int(one) for ahead in road.exits(own).tolist() for one in road.entries(ahead).tolist()}
        near = (self._low <= self._high[own]).all(axis=1) & (self._high >= self._low[own]).all(axis=1)
        for other in sorted(set(np.flatnonzero(near & road.drivable).tolist()) | (merging if last else set())):
            apart = not set(road.entries(other).tolist()) & set(road.entries(own).tolist())
            if other in way.lanes or not road.drivable[other] or not apart or self._gives_way(other):
                continue
            if last and other in merging:
                yield float(self._length[own]), other, float(self._length[other])
                continue
            crossing = lane_crossing(road, own, other, self._gate)
            # A lane that only follows on this one touches it at an end.
            if crossing is not None and other not in road.exits(own) and other not in road.entries(own):
                yield crossing[0], other, crossing[1]

    def _gives_way(self, lane: int) -> bool:
        entries = self._road.entries(lane).tolist()
        return lane in self._minor or (bool(entries) and all(before in self._minor for before in entries))

    def _upstream(self, lane: int, arc: float, way: Movement, own: int) -> Iterator[tuple[int, int, float]]:
        """Lanes from which a conflict on `lane` at `arc` is reached: the lane, the lane that a route must hold to lead
        there (-1: it leads nowhere else), and the way there from the lane's start [m]."""
        road = self._road
        waiting, seen = [(lane, arc, True)], {lane, own, *way.lanes}
        while waiting:
            here, to_go, sure = waiting.pop(0)
            yield here, -1 if sure else lane, to_go
            if to_go >= REACH_M:
                continue
            for before in road.entries(here).tolist():
                if before not in seen and before not in self._minor:
                    seen.add(before)
                    waiting.append((before, to_go + float(self._length[before]), sure and len(road.exits(before)) == 1))

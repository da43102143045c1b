"""Which lanes hold a point, and how far a point is from the road, for whole drives at once.

Scores ask this of five points of a box in every state of a drive, so the answer comes in blocks of states, each against
the few lane segments around it. The road is the ribbons of its lanes: drivable ones and shoulders. Areas between
ribbons that a map leaves out are not road here, and lanes that end at the map's edge go on a little.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.contacts import bodies
from skidpad.evaluation.metrics.fault import corners
from skidpad.evaluation.metrics.view import F64, Bool, CaseView
from skidpad.scenes.scene import LANE_SHOULDER, RoadMap

I64 = NDArray[np.int64]

# Points further from the road than this [m] are all the same distance away: nobody asks for more.
FAR_M = 2.0
# Lanes further above or below [m] do not hold a point.
LEVEL_GATE_M = 4.0
# A map is cut where its makers stopped: a lane that leads nowhere goes on straight for this far [m], so that a box
# whose centre is still on the map does not leave the road with its front.
MAP_END_M = 10.0
# States looked at together: long enough to save calls, short enough that few segments are near all of them.
_BLOCK = 12
CENTRE = 4


class Places(NamedTuple):
    """Where K x C points are on the road.

    lanes      (k,)       i64      lanes near any of the points, ascending
    inside     (K, C, k)  bool     lane j holds the point
    outside_m  (K, C)     f64 [m]  from the point to the nearest ribbon, 0 inside one, at most FAR_M
    """

    lanes: I64
    inside: Bool
    outside_m: F64


class RoadArea:
    """The ribbons of a road, one row per segment of a centre line. Build it through `road_area`."""

    def __init__(self, road: RoadMap) -> None:
        kinds = road.element_type[road.lane_element]
        lanes = np.flatnonzero(road.drivable | (kinds == LANE_SHOULDER))
        first = road.element_points[road.lane_element[lanes]].astype(np.int64)
        count = road.element_points[road.lane_element[lanes] + 1].astype(np.int64) - first - 1
        within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        point = np.repeat(first, count) + within
        xyz, half = road.xyz.astype(np.float64), road.width.astype(np.float64) / 2
        self._lane = np.repeat(lanes, count)
        self._opens, self._closes = within == 0, within == np.repeat(count, count) - 1
        x, y = xyz[point, 0], xyz[point, 1]
        dx, dy = xyz[point + 1, 0] - x, xyz[point + 1, 1] - y
        length = np.maximum(np.hypot(dx, dy), 1e-6)
        before = np.where(self._opens & (np.diff(road.entry_offset)[self._lane] == 0), MAP_END_M / length, 0.0)
        beyond = np.where(self._closes & (np.diff(road.exit_offset)[self._lane] == 0), MAP_END_M / length, 0.0)
        self._x, self._y = x - before * dx, y - before * dy
        self._dx, self._dy = dx * (1 + before + beyond), dy * (1 + before + beyond)
        self._length = length * (1 + before + beyond)
        self._z = (xyz[point, 2] + xyz[point + 1, 2]) / 2
        self._half, self._widens = half[point], half[point + 1] - half[point]
        reach = np.maximum(half[point], half[point + 1]) + FAR_M
        self._low_x, self._high_x = self._spans(self._x, self._dx, reach)
        self._low_y, self._high_y = self._spans(self._y, self._dy, reach)

    @staticmethod
    def _spans(start: F64, step: F64, reach: F64) -> tuple[F64, F64]:
        return np.minimum(start, start + step) - reach, np.maximum(start, start + step) + reach

    def places(self, points: F64, z: F64) -> Places:
        """Where points are; a lane holds what is beside its centre line within half its width, square at its ends.

        points  (K, C, 2)  f64 [m]
        z       (K,)       f64 [m]
        """
        near = self._near(points, z, np.arange(len(self._lane)))
        found = []
        for start in range(0, len(points), _BLOCK):
            rows = slice(start, start + _BLOCK)
            found.append((rows, *self._block(points[rows], z[rows], self._near(points[rows], z[rows], near))))
        lanes = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(block for _, block, _ in found)]))
        inside = np.zeros((*points.shape[:2], len(lanes)), dtype=bool)
        outside = np.full(points.shape[:2], FAR_M)
        for rows, block, excess in found:
            if len(block):
                inside[rows, :, np.searchsorted(lanes, block)] = excess <= 0.0
                outside[rows] = np.clip(excess.min(axis=-1), 0.0, FAR_M)
        return Places(lanes, inside, outside)

    def _near(self, points: F64, z: F64, among: I64) -> I64:
        if not points.size:
            return among[:0]
        (low_x, low_y), (high_x, high_y) = points.min(axis=(0, 1)), points.max(axis=(0, 1))
        keep = (self._low_x[among] <= high_x) & (self._high_x[among] >= low_x)
        keep &= (self._low_y[among] <= high_y) & (self._high_y[among] >= low_y)
        keep &= (self._z[among] >= z.min() - LEVEL_GATE_M) & (self._z[among] <= z.max() + LEVEL_GATE_M)
        return np.asarray(among[keep])

    def _block(self, points: F64, z: F64, near: I64) -> tuple[I64, F64]:
        """The lanes of the segments `near`, and metres outside each: (K, C, lanes) f64, at most 0 inside."""
        lane = self._lane[near]
        if not len(near):
            return lane, np.zeros((*points.shape[:2], 0))
        x, y = points[..., :1] - self._x[near], points[..., 1:] - self._y[near]
        ux, uy = self._dx[near] / self._length[near], self._dy[near] / self._length[near]
        along, across = x * ux + y * uy, np.abs(y * ux - x * uy)
        length = self._length[near]
        before, beyond = np.maximum(-along, 0.0), np.maximum(along - length, 0.0)
        share = np.clip(along / length, 0.0, 1.0)
        beside = across - (self._half[near] + share * self._widens[near])
        past = before + beyond
        # Round between the segments of a bend, square at the two ends of the lane.
        square = ((before > 0) & self._opens[near]) | ((beyond > 0) & self._closes[near])
        round_gap = np.hypot(across, past) + (beside - across)
        excess = np.where(square, np.hypot(np.maximum(beside, 0.0), past), np.where(past > 0, round_gap, beside))
        excess[np.abs(self._z[near] - z[:, None, None]).repeat(points.shape[1], axis=1) > LEVEL_GATE_M] = np.inf
        starts = np.flatnonzero(np.concatenate([[True], np.diff(lane) != 0]))
        return lane[starts], np.minimum.reduceat(excess, starts, axis=-1)


@lru_cache(maxsize=16)
def road_area(road: RoadMap) -> RoadArea:
    """The ribbons of a road, kept for the next case on the same one."""
    return RoadArea(road)


def box_places(view: CaseView, row: int) -> Places:
    """Where the four corners and, last, the centre of an agent under test are in all T states (K = T, C = 5); nowhere
    while it has no body."""
    return view.once(f"places {row}", lambda view: _box_places(view, row))


def share_places(view: CaseView, other: CaseView) -> None:
    """Let `other`, whose states are the first ones of `view`, find its boxes where `view` does: looking for them takes
    most of the time of what looks at them."""
    for row in range(view.count):
        found, count = box_places(view, row), other.trace.steps + 1
        cut = Places(found.lanes, found.inside[:count], found.outside_m[:count])
        other.once(f"places {row}", partial(_given, cut))


def _given(places: Places, _: CaseView) -> Places:
    return places


def _box_places(view: CaseView, row: int) -> Places:
    boxes, agent = view.once("bodies", bodies), int(view.agents[row])
    # Who has no body stands at the origin, where half the map may lie between one state and the next.
    states = np.flatnonzero(boxes["body"][:, agent])
    x, y, z, heading, length, width = (
        boxes[name][states, agent] for name in ("x", "y", "z", "heading", "length", "width")
    )
    centre = np.stack([x, y], axis=-1)[:, None]
    points = np.concatenate([corners(x, y, heading, length, width), centre], axis=1)
    found = road_area(view.scene.road).places(points, z)
    inside = np.zeros((len(boxes["x"]), CENTRE + 1, len(found.lanes)), dtype=bool)
    outside = np.full(inside.shape[:2], FAR_M)
    inside[states], outside[states] = found.inside, found.outside_m
    return Places(found.lanes, inside, outside)


def straddling(places: Places, road: RoadMap) -> Bool:
    """(K,) bool, the four corners are not all inside one lane, or inside lanes that lead into each other.

    places  of boxes, as `box_places` gives them
    """
    inside = places.inside[:, :CENTRE]
    apart = np.asarray(~inside.all(axis=1).any(axis=-1))
    on_road = np.asarray(inside.any(axis=-1)).all(axis=1)
    for state in np.flatnonzero(apart & on_road):
        apart[state] = not _in_a_chain([set(places.lanes[here].tolist()) for here in inside[state]], road)
    return apart


def _in_a_chain(found: list[set[int]], road: RoadMap) -> bool:
    for first in sorted(set().union(*found)):
        for second in (first, *road.exits(first).tolist()):
            for third in (second, *road.exits(second).tolist()):
                chain = {first, second, third}
                if all(chain & here for here in found):
                    return True
    return False


def in_junction(places: Places, road: RoadMap) -> Bool:
    """(K,) bool, a lane of a junction holds the centre of the box.

    places  of boxes, as `box_places` gives them
    """
    return np.asarray(places.inside[:, CENTRE, road.lane_junction[places.lanes] >= 0].any(axis=-1))

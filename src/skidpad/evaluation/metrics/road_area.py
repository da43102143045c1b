"""Which lanes hold a point, and how far a point is from the road, for whole drives at once.

Scores ask this of five points of a box in every state of a drive, so the answer comes in blocks of states, each against
the few lane segments around it. The road is the ribbons of its lanes: drivable ones and shoulders. Areas between
ribbons that a map leaves out are not road here, and lanes that end at the map's edge go on a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.contacts import bodies
from skidpad.evaluation.metrics.fault import corners
from skidpad.evaluation.metrics.view import F64, I64, MOST_NUMBERS, Bool, CaseView
from skidpad.scenes.scene import LANE_SHOULDER, RoadMap

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

    def places(self, paths: Sequence[tuple[F64, F64]]) -> list[Places]:
        """Where the points of each path are; a lane holds what is beside its centre line within half its width, square
        at its ends.

        paths  points (K, C, 2) f64 [m] and their heights (K,) f64 [m]; K differs, C does not
        """
        counts = [-(-len(z) // _BLOCK) for _, z in paths]
        blocks = sum(counts)
        if not blocks:
            nowhere = np.zeros(0, dtype=np.int64)
            return [
                Places(nowhere, np.zeros((*p.shape[:2], 0), dtype=bool), np.full(p.shape[:2], FAR_M)) for p, _ in paths
            ]
        # The last block of a path repeats its last state.
        rows = [np.minimum(np.arange(count * _BLOCK), len(z) - 1) for count, (_, z) in zip(counts, paths, strict=True)]
        chosen = [(p[row], z[row]) for row, (p, z) in zip(rows, paths, strict=True)]
        points = np.concatenate([p for p, _ in chosen]).reshape(blocks, _BLOCK, -1, 2)
        z = np.concatenate([z for _, z in chosen]).reshape(blocks, _BLOCK)
        block, lane, excess = self._blocks(points, z, *self._near(points, z))
        outside = np.full(points.shape[:3], FAR_M)
        if len(block):
            starts = np.flatnonzero(np.concatenate([[True], np.diff(block) != 0]))
            outside[block[starts]] = np.clip(np.minimum.reduceat(excess, starts, axis=0), 0.0, FAR_M)
        found, first = [], 0
        for count, (p, _) in zip(counts, paths, strict=True):
            mine = slice(*np.searchsorted(block, [first, first + count]))
            lanes, column = np.unique(lane[mine], return_inverse=True)
            inside = np.zeros((count, len(lanes), *points.shape[1:3]), dtype=bool)
            inside[block[mine] - first, column] = excess[mine] <= 0.0
            # Blocks, lanes, states, points: to states, points, lanes.
            inside = inside.transpose(0, 2, 3, 1).reshape(count * _BLOCK, p.shape[1], len(lanes))[: len(p)]
            found.append(
                Places(lanes, inside, outside[first : first + count].reshape(count * _BLOCK, p.shape[1])[: len(p)])
            )
            first += count
        return found

    def _near(self, points: F64, z: F64) -> tuple[I64, I64]:
        """Blocks of states and the segments that may be near them, one pair a row, by block and segment.

        points  (B, S, C, 2)  f64 [m]
        z       (B, S)        f64 [m]
        """
        low, high = points.min(axis=(1, 2)), points.max(axis=(1, 2))
        bottom, top = z.min(axis=1), z.max(axis=1)

        def reached(among: slice | I64, low: F64, high: F64, bottom: F64, top: F64) -> Bool:
            near = (self._low_x[among] <= high[..., 0]) & (self._high_x[among] >= low[..., 0])
            near &= (self._low_y[among] <= high[..., 1]) & (self._high_y[among] >= low[..., 1])
            near &= (self._z[among] >= bottom - LEVEL_GATE_M) & (self._z[among] <= top + LEVEL_GATE_M)
            return np.asarray(near)

        among = np.flatnonzero(reached(slice(None), low.min(axis=0), high.max(axis=0), bottom.min(), top.max()))
        near = reached(among, low[:, None], high[:, None], bottom[:, None], top[:, None])
        block, segment = np.nonzero(near)
        return block, among[segment]

    def _blocks(self, points: F64, z: F64, block: I64, near: I64) -> tuple[I64, I64, F64]:
        """Of each block the lanes near it, (P,) and (P,), and metres outside each of them: (P, S, C) f64, at most 0
        inside; arguments as `_near` takes and gives them."""
        lane = self._lane[near]
        starts = np.flatnonzero(np.concatenate([[len(near) > 0], (np.diff(lane) != 0) | (np.diff(block) != 0)]))
        found = np.empty((len(starts), *points.shape[1:3]))
        # So many segments at a time as stay in a processor's caches, cut where a lane ends.
        most = max(1, MOST_NUMBERS // 8 // points[0, ..., 0].size)
        first = 0
        while first < len(starts):
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + most)))
            stop = starts[last] if last < len(starts) else len(near)
            rows = slice(starts[first], stop)
            excess = self._excess(points[block[rows]], z[block[rows]], near[rows])
            found[first:last] = np.minimum.reduceat(excess, starts[first:last] - starts[first], axis=0)
            first = last
        return block[starts], lane[starts], found

    def _excess(self, points: F64, z: F64, near: I64) -> F64:
        """Metres of (P, S, C) points outside the ribbon of one segment each, at most 0 inside."""

        def of(values: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(values[near][:, None, None])

        x, y = points[..., 0] - of(self._x), points[..., 1] - of(self._y)
        length = of(self._length)
        ux, uy = of(self._dx) / length, of(self._dy) / length
        along, across = x * ux + y * uy, np.abs(y * ux - x * uy)
        before, beyond = np.maximum(-along, 0.0), np.maximum(along - length, 0.0)
        share = np.clip(along / length, 0.0, 1.0)
        beside = across - (of(self._half) + share * of(self._widens))
        past = before + beyond
        # Round between the segments of a bend, square at the two ends of the lane.
        square = ((before > 0) & of(self._opens)) | ((beyond > 0) & of(self._closes))
        round_gap = np.hypot(across, past) + (beside - across)
        excess = np.where(square, np.hypot(np.maximum(beside, 0.0), past), np.where(past > 0, round_gap, beside))
        return np.where(np.abs(of(self._z) - z[:, :, None]) > LEVEL_GATE_M, np.inf, excess)


@lru_cache(maxsize=16)
def road_area(road: RoadMap) -> RoadArea:
    """The ribbons of a road, kept for the next case on the same one."""
    return RoadArea(road)


def box_places(view: CaseView, row: int) -> Places:
    """Where the four corners and, last, the centre of an agent under test are in all T states (K = T, C = 5); nowhere
    while it has no body."""
    return view.once("places", _box_places)[row]


def share_places(view: CaseView, other: CaseView) -> None:
    """Let `other`, whose states are the first ones of `view`, find its boxes where `view` does: looking for them takes
    most of the time of what looks at them."""
    count = other.steps + 1
    other.once("places", lambda _: [
        Places(found.lanes, found.inside[:count], found.outside_m[:count]) for found in view.once("places", _box_places)
    ])  # fmt: skip


def _box_places(view: CaseView) -> list[Places]:
    boxes = view.once("bodies", bodies)
    x, y, z, heading, length, width, body = (
        boxes[name][view.case, :, view.agents] for name in ("x", "y", "z", "heading", "length", "width", "body")
    )
    points = np.concatenate([corners(x, y, heading, length, width), np.stack([x, y], axis=-1)[:, :, None]], axis=2)
    # Who has no body stands at the origin, where half the map may lie between one state and the next.
    states = [np.flatnonzero(there) for there in body]
    area = road_area(view.scene.road)
    found = area.places([(points[row, mine], z[row, mine]) for row, mine in enumerate(states)])
    for row, mine in enumerate(states):
        if len(mine) < view.steps + 1:
            lanes, inside, outside = found[row]
            everywhere = np.zeros((view.steps + 1, *inside.shape[1:]), dtype=bool)
            nowhere = np.full((view.steps + 1, CENTRE + 1), FAR_M)
            everywhere[mine], nowhere[mine] = inside, outside
            found[row] = Places(lanes, everywhere, nowhere)
    return found


def straddling(places: Places, road: RoadMap) -> Bool:
    """(K,) bool, the four corners are not all inside one lane, or inside lanes that lead into each other.

    places  of boxes, as `box_places` gives them
    """
    inside = places.inside[:, :CENTRE]
    apart = np.asarray(~inside.all(axis=1).any(axis=-1))
    on_road = np.asarray(inside.any(axis=-1)).all(axis=1)
    known: dict[bytes, bool] = {}  # A car between two lanes is between them for many states.
    for state in np.flatnonzero(apart & on_road):
        which = inside[state].tobytes()
        if which not in known:
            known[which] = not _in_a_chain([set(places.lanes[here].tolist()) for here in inside[state]], road)
        apart[state] = known[which]
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

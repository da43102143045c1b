"""The areas that lanes cover, in a grid, to ask which points lie in one: what road edges are derived with.

A lane's ribbon is what lies between its two borders, as a chain of quadrilaterals. Everything is float64 and in one
frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes import polyline

F64 = NDArray[np.float64]
Indices = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LEVEL_M = 4.0  # the simulator's level gate (S9): an edge closer in height than this would stop traffic of that lane

_STATION_M = 4.0  # longest piece of a ribbon, and the smallest grid cell
_MAX_CELL_ENTRIES = 4_000_000
_MAX_TESTS = 400_000_000  # point against ribbon piece; CARLA Town03 needs about 1 % of it
_TESTS_AT_ONCE = 1_000_000


@dataclass(frozen=True, eq=False)
class LaneShape:
    """A lane as edges see it. The borders run in the direction of the lane.

    centre    (n, 3)  f64 [m]
    left      (m, 3)  f64 [m]
    right     (k, 3)  f64 [m]
    kind      lane type of the scene model, 0-9
    drivable  whether motor vehicles drive here
    """

    centre: F64
    left: F64
    right: F64
    kind: int
    drivable: bool


class Ribbons:
    """The areas of all lanes as quadrilaterals in a grid, to ask which points lie in one."""

    def __init__(self, lanes: Sequence[LaneShape]) -> None:
        quads = np.concatenate([_quads(lane) for lane in lanes])
        self._xy, self._height = quads[:, :, :2], quads[:, :, 2].mean(axis=1)
        low, high = self._xy.min(axis=1), self._xy.max(axis=1)
        self._box = np.concatenate([low, high], axis=1)
        self._origin = low.min(axis=0) - 1.0 if len(low) else np.zeros(2)
        self._cell = _STATION_M
        while True:
            first, last = self._cell_of(low), self._cell_of(high)
            extent = last - first + 1
            entries = extent[:, 0] * extent[:, 1]
            if int(entries.sum()) <= max(_MAX_CELL_ENTRIES, len(entries)):
                break
            self._cell *= 2.0
        quad = np.repeat(np.arange(len(entries)), entries)
        within = np.arange(len(quad)) - np.repeat(np.cumsum(entries) - entries, entries)
        cells = first[quad] + np.stack([within % extent[quad, 0], within // extent[quad, 0]], axis=1)
        keys = self._key(cells)
        order = np.argsort(keys, kind="stable")
        self._cell_keys, self._cell_start = np.unique(keys[order], return_index=True)
        self._cell_start = np.append(self._cell_start, len(keys))
        self._cell_quads = quad[order]

    def _cell_of(self, xy: F64) -> Indices:
        return np.floor((xy - self._origin) / self._cell).astype(np.int64)

    @staticmethod
    def _key(cells: Indices) -> Indices:
        keys: Indices = cells[:, 0] * (1 << 31) + cells[:, 1]
        return keys

    def cover(self, points: F64) -> BoolArray:
        """(n,) bool: which points (n, 3) f64 [m] lie in the ribbon of some lane, within LEVEL_M of its height."""
        covered = np.zeros(len(points), np.bool_)
        if len(self._cell_keys) == 0 or len(points) == 0:
            return covered
        keys = self._key(self._cell_of(points[:, :2]))
        at = np.minimum(np.searchsorted(self._cell_keys, keys), len(self._cell_keys) - 1)
        counts = np.where(self._cell_keys[at] == keys, self._cell_start[at + 1] - self._cell_start[at], 0)
        ends = np.cumsum(counts)
        if int(ends[-1]) > _MAX_TESTS:
            raise FormatError(
                f"lanes overlap so densely that deriving road edges takes {int(ends[-1])} tests, the limit is "
                f"{_MAX_TESTS}. Check the lane borders of the map."
            )
        begin = 0
        while begin < len(points):
            done = int(ends[begin] - counts[begin])
            end = max(int(np.searchsorted(ends, done + _TESTS_AT_ONCE, side="right")), begin + 1)
            point = np.repeat(np.arange(begin, end), counts[begin:end])
            within = np.arange(len(point)) - np.repeat(ends[begin:end] - counts[begin:end] - done, counts[begin:end])
            quad = self._cell_quads[self._cell_start[at[point]] + within]
            # Most pairs fall to their boxes, at a fraction of what the sides of a quadrilateral cost.
            box, place = self._box[quad], points[point]
            near = np.all((place[:, :2] >= box[:, :2]) & (place[:, :2] <= box[:, 2:]), axis=1)
            near &= np.abs(place[:, 2] - self._height[quad]) <= LEVEL_M
            point, quad, place = point[near], quad[near], place[near]
            covered[point[_inside(place[:, :2], self._xy[quad])]] = True
            begin = end
        return covered


def _quads(lane: LaneShape) -> NDArray[np.float64]:
    """(q, 4, 3) f64 [m]: a lane's area, cut at every vertex of either border and at least every _STATION_M.

    The corners are left, next left, next right, right.
    """
    left, right = polyline.drop_short_segments(lane.left)[0], polyline.drop_short_segments(lane.right)[0]
    if len(left) < 2 and len(right) < 2:
        return np.empty((0, 4, 3))
    shares = [shares_of_length(left), shares_of_length(right)]
    longest = max(polyline.arc_lengths(left)[-1], polyline.arc_lengths(right)[-1])
    shares.append(np.linspace(0.0, 1.0, int(np.ceil(longest / _STATION_M)) + 1))
    stations = np.unique(np.concatenate(shares))
    on_left, on_right = at_share(left, stations), at_share(right, stations)
    return np.stack([on_left[:-1], on_left[1:], on_right[1:], on_right[:-1]], axis=1)


def _inside(xy: F64, quads: NDArray[np.float64]) -> BoolArray:
    """(n,) bool: does each point (n, 2) f64 [m] lie in its quadrilateral (n, 4, 2), taken as two triangles?"""
    x, y = (quads - xy[:, None]).transpose(2, 1, 0)  # (4, n) each: corners as seen from the point

    def side(a: int, b: int) -> F64:
        cross: F64 = x[a] * y[b] - x[b] * y[a]
        return cross

    one, two, three, four, diagonal = side(0, 1), side(1, 2), side(2, 3), side(3, 0), side(0, 2)
    first = ((one >= 0) & (two >= 0) & (diagonal <= 0)) | ((one <= 0) & (two <= 0) & (diagonal >= 0))
    second = ((diagonal >= 0) & (three >= 0) & (four >= 0)) | ((diagonal <= 0) & (three <= 0) & (four <= 0))
    # A triangle of no area (a lane that begins at width 0) has no inside; its sides would all be zero.
    first &= one + two != diagonal
    second &= three + four != -diagonal
    inside: BoolArray = first | second
    return inside


# Two lines of different length, point for point


def shares_of_length(points: F64) -> F64:
    """(n,) f64: how much of a polyline's length lies before each point, 0 to 1; evenly spread where it has none."""
    arc = polyline.arc_lengths(points)
    return arc / arc[-1] if arc[-1] > 0 else np.linspace(0.0, 1.0, len(arc))


def at_share(points: F64, share: F64) -> F64:
    """(m, 3) f64 [m]: the points of a polyline at shares of its length (m,) f64, 0 to 1."""
    shares = shares_of_length(points)
    return np.stack([np.interp(share, shares, points[:, axis]) for axis in range(3)], axis=1)

"""Polylines in float64: cleaning, length, direction, offset lines, and where a point projects.

Shapes here are (n, 3) f64 [m]; lengths and distances are in the plane, heights are carried along.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

# The float32 step at the largest extent a scene may have (16,384 m): shorter segments have no direction.
SHORTEST_SEGMENT_M = 1e-3
# Points times segments looked at together: two lanes of 20,000 vertices must not ask for gigabytes.
_PROJECT_CELLS = 1 << 20


class Projection(NamedTuple):
    """Where points fall on a polyline.

    segment   (m,)  i64      index of the nearest segment
    fraction  (m,)  f64      position within it, 0..1
    distance  (m,)  f64 [m]  from the point to the polyline
    """

    segment: NDArray[np.int64]
    fraction: F64
    distance: F64


def drop_short_segments(points: F64) -> tuple[F64, NDArray[np.bool_]]:
    """The points that stay when segments shorter than SHORTEST_SEGMENT_M are dropped, and which they were (n,) bool.

    Both end points stay; one point is left of a polyline that goes nowhere.
    """
    count = len(points)
    keep = np.ones(count, np.bool_)
    if count < 2:
        return points, keep
    step = np.diff(points[:, :2], axis=0)
    if np.all(np.hypot(step[:, 0], step[:, 1]) >= SHORTEST_SEGMENT_M):
        return points, keep
    # Against the last point kept, not against the neighbour: a fine curve of 0.5 mm steps is thinned, not dropped.
    kept = [0]
    for row in range(1, count):
        if _gap(points, kept[-1], row) >= SHORTEST_SEGMENT_M:
            kept.append(row)
    if kept[-1] != count - 1:
        while len(kept) > 1 and _gap(points, kept[-1], count - 1) < SHORTEST_SEGMENT_M:
            kept.pop()
        if _gap(points, kept[-1], count - 1) >= SHORTEST_SEGMENT_M:
            kept.append(count - 1)
    keep[:] = False
    keep[kept] = True
    return points[keep], keep


def _gap(points: F64, one: int, other: int) -> float:
    return float(np.hypot(points[other, 0] - points[one, 0], points[other, 1] - points[one, 1]))


def arc_lengths(points: F64) -> F64:
    """Cumulative length from the first point: (n,) f64 [m]."""
    step = np.diff(points[:, :2], axis=0)
    arc = np.zeros(len(points))
    np.cumsum(np.hypot(step[:, 0], step[:, 1]), out=arc[1:])
    return arc


def directions(points: F64) -> F64:
    """Unit vector of the segment that starts at each point, the last repeating its predecessor: (n, 2) f64.

    Every segment must have a length; `drop_short_segments` sees to it.
    """
    step = np.diff(points[:, :2], axis=0)
    unit = step / np.hypot(step[:, 0], step[:, 1])[:, None]
    return np.concatenate([unit, unit[-1:]])


def normals(points: F64) -> F64:
    """Unit vector to the left at each point, the mean of the segments that meet there: (n, 2) f64."""
    forward = directions(points)
    mean = forward.copy()
    mean[1:-1] += forward[:-2]
    size = np.hypot(mean[:, 0], mean[:, 1])
    turned_back = size < 1e-9  # a segment folded onto its predecessor has no mean; its own direction stands
    mean[turned_back], size[turned_back] = forward[turned_back], 1.0
    mean /= size[:, None]
    return np.stack([-mean[:, 1], mean[:, 0]], axis=1)


def shifted(points: F64, left_m: F64) -> F64:
    """The line that runs `left_m` (n,) f64 [m] to the left of each point."""
    moved = points.copy()
    moved[:, :2] += normals(points) * left_m[:, None]
    return moved


def project(points: F64, xy: F64) -> Projection:
    """Nearest place on a polyline for each of the points xy (m, 2) f64 [m]; the lower segment on a tie."""
    start, step = points[:-1, :2], np.diff(points[:, :2], axis=0)
    length2 = np.maximum(np.einsum("sd,sd->s", step, step), 1e-300)
    rows = max(1, _PROJECT_CELLS // len(step))
    parts = [_project_rows(start, step, length2, xy[row : row + rows]) for row in range(0, max(len(xy), 1), rows)]
    return Projection(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _project_rows(start: F64, step: F64, length2: F64, xy: F64) -> Projection:
    toward = xy[:, None, :] - start[None, :, :]
    fraction = np.clip(np.einsum("msd,sd->ms", toward, step) / length2, 0.0, 1.0)
    gap = toward - fraction[:, :, None] * step[None, :, :]
    distance2 = np.einsum("msd,msd->ms", gap, gap)
    segment = distance2.argmin(axis=1)
    rows = np.arange(len(xy))
    return Projection(segment, fraction[rows, segment], np.sqrt(distance2[rows, segment]))


def at(points: F64, segment: int, fraction: float) -> F64:
    """The point (3,) f64 [m] at a place that `project` found."""
    place: F64 = points[segment] + fraction * (points[segment + 1] - points[segment])
    return place

"""What is worth saying of a scene that breaks no rule: `skidpad scenes inspect` prints it beside the findings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.check import Finding
from skidpad.scenes.scene import EDGE_UNKNOWN, LINE_UNKNOWN, RoadMap, Scene

F64 = NDArray[np.float64]

# Paint of a lane is half a lane width from its centre line, beside a shoulder or a turning lane at most two.
PAINT_REACH_M = 5.0
_SAMPLE_M = 1.0


def scene_notes(scene: Scene) -> list[Finding]:
    """Notes on a scene that passes its checks."""
    found = paint_without_lanes(scene.road)
    if not len(found):
        return []
    metres = sum(float(scene.road.arc[scene.road.points(int(line))][-1]) for line in found)
    message = (
        f"{len(found)} painted lines, {metres:.1f} m in all, are more than {PAINT_REACH_M:g} m from every lane, the "
        f"first is element {found[0]}; the file has a road there without lanes that a scene knows"
    )
    return [Finding("note", "paint", f"element {found[0]}", message)]


def paint_without_lanes(road: RoadMap) -> NDArray[np.intp]:
    """Elements that are painted lines with no lane within PAINT_REACH_M of any place on them."""
    from scipy.spatial import cKDTree

    lines = np.flatnonzero((road.element_type >= LINE_UNKNOWN) & (road.element_type < EDGE_UNKNOWN))
    if not len(lines) or not road.lane_count:
        return lines[:0]
    tree = cKDTree(np.concatenate([_sampled(road, int(element)) for element in road.lane_element]))
    places = [_sampled(road, int(line)) for line in lines]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in places])[:-1]])
    gaps, _ = tree.query(np.concatenate(places), distance_upper_bound=PAINT_REACH_M)  # infinite beyond
    return lines[np.isinf(np.minimum.reduceat(gaps, starts))]


def _sampled(road: RoadMap, element: int) -> F64:
    """Places (n, 2) f64 [m] on an element, at most _SAMPLE_M apart."""
    rows = road.points(element)
    arc = road.arc[rows].astype(float)
    at = np.union1d(arc, np.arange(0.0, arc[-1], _SAMPLE_M))
    return np.column_stack([np.interp(at, arc, road.xyz[rows, axis]) for axis in (0, 1)])

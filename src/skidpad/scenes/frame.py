"""The local frame of a scene (S8): where its origin lies, and everything moved there before it becomes float32."""

from __future__ import annotations

import numpy as np

from skidpad.scenes.formats.source import Limits
from skidpad.scenes.pieces import Pieces
from skidpad.scenes.polyline import F64


def recentre(pieces: Pieces, *, has_z: bool, limits: Limits, where: str) -> F64:
    """Choose the origin (3,) f64 [m] and move all map pieces and signals to it, in place; tracks move when packed.

    The origin is the middle of the lanes, else of the edges, else of the tracks, in whole metres: never of the
    traffic where there is a map, so that two logs on one map share it. Without `has_z` every height becomes 0.

    Raises FormatError for a place farther from the origin than the limit `extent_m`.
    """
    origin = _origin(pieces)
    if not has_z:
        origin[2] = 0.0

    def moved(points: F64, name: str) -> F64:
        local = points - origin
        if not has_z:
            local[:, 2] = 0.0
        limits.check("extent_m", float(np.abs(local[:, :2]).max()), f"{where}: {name}")
        # Rounded to what will be stored, before lengths and directions are taken: those must be of the stored
        # vertices, or a scene could not be checked from its own arrays.
        return local.astype(np.float32).astype(np.float64)

    for lane in pieces.lanes:
        lane.centre = moved(lane.centre, lane.name)
        lane.left = None if lane.left is None else moved(lane.left, lane.name)
        lane.right = None if lane.right is None else moved(lane.right, lane.name)
    for other in pieces.others:
        other.points = moved(other.points, other.name)
    for number, signal in enumerate(pieces.signals):
        signal.line = None if signal.line is None else moved(signal.line, f"signal {number}")
        signal.point = None if signal.point is None else moved(signal.point[None], f"signal {number}")[0]
    for rows in pieces.tracks:
        if not has_z:
            rows.values["z"][:] = 0.0
        if rows.valid.any():
            reach = [np.abs(rows.values[axis][rows.valid] - origin[index]).max() for index, axis in enumerate("xy")]
            limits.check("extent_m", float(max(reach)), f"{where}: {rows.name}")
    return origin


def _origin(pieces: Pieces) -> F64:
    shapes = [lane.centre for lane in pieces.lanes]
    shapes = shapes or [other.points for other in pieces.others if other.is_edge]
    if not shapes:
        for rows in pieces.tracks:
            shapes.append(np.stack([rows.values[axis][rows.valid] for axis in "xyz"], axis=1))
    shapes = [shape for shape in shapes if len(shape)] or [other.points for other in pieces.others]
    if not shapes:
        return np.zeros(3)
    low = np.min([shape.min(axis=0) for shape in shapes], axis=0)
    high = np.max([shape.max(axis=0) for shape in shapes], axis=0)
    origin: F64 = np.floor(0.5 * (low + high) + 0.5)
    return origin

"""Rows of `deferred/1` made whole: the road rows that the kernel left out, gathered from the map (S94).

An agent's road rows are a pure function of its list cell, its heading sector and its pose in that cell. A learner that
holds the maps can therefore receive the nine numbers of the reference instead of 1,400, and gather the rest itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError
from skidpad.scenes.index import LIST_INVERSE, LIST_X, LIST_Y, RowMap
from skidpad.scenes.scene import F32
from skidpad.simulation.layout_table import Layout

I64 = NDArray[np.int64]


def expand(rows: F32, layout: Layout, maps: Mapping[int, RowMap], level_gate: float) -> F32:
    """Rows of the layout that `layout` defers, from its own.

    rows        (N, D)   f32   of `deferred/1` or `deferred_32/1`; rows of absent agents, all zero, stay so
    maps        slot number -> the road rows of that map
    level_gate  [m]      as the simulator's; infinite for maps without heights

    Returns (N, D') f32: what the kernel would have written, to 1e-6.

    Raises ProtocolError for rows of another width, or a slot that `maps` lacks.
    """
    if rows.ndim != 2 or rows.shape[1] != layout.size:
        raise ProtocolError(f"rows are {rows.shape}; {layout.id} has {layout.size} numbers in each")
    block = layout.lists[0]
    width = len(block.features)
    at = layout.span("road reference")
    out = np.zeros((len(rows), at.start + block.size), np.float32)
    out[:, : at.start] = rows[:, : at.start]
    live = np.flatnonzero(rows.any(axis=1))
    for number in np.unique(rows[live, at.start]).astype(np.int64).tolist():
        if number not in maps:
            raise ProtocolError(f"rows of map slot {number}, which is not among the {len(maps)} maps given")
        here = live[rows[live, at.start] == number]
        out[here, at.start :] = _road(maps[number], rows[here, at], level_gate, block.rows, width, block.features[0][2])
    return out


def _road(road: RowMap, reference: F32, gate: float, slots: int, width: int, reach: float) -> F32:
    """Road rows (n, slots * width) of agents on one map, from their references (n, 9)."""
    ids, used = listed_rows(road, reference[:, 1:4].astype(np.int64), slots)
    column, line = reference[:, 1].astype(np.float64), reference[:, 2].astype(np.float64)
    side = 1.0 / road.numbers[LIST_INVERSE]
    middle_x = road.numbers[LIST_X] + (column + 0.5) * side
    middle_y = road.numbers[LIST_Y] + (line + 0.5) * side
    cos, sin = reference[:, 7, None], reference[:, 8, None]
    found = road.row[ids]
    x = (found[:, :, 0] - middle_x[:, None]).astype(np.float32) - reference[:, 4, None]
    y = (found[:, :, 1] - middle_y[:, None]).astype(np.float32) - reference[:, 5, None]
    scale = np.float32(1.0 / reach)
    shown = np.empty((*ids.shape, width), np.float32)
    shown[..., 0], shown[..., 1] = (x * cos + y * sin) * scale, (y * cos - x * sin) * scale
    shown[..., 2:] = found[:, :, 2:width]
    c, s = found[:, :, 4], found[:, :, 5]
    shown[..., 4], shown[..., 5] = c * cos + s * sin, s * cos - c * sin
    kept = (np.arange(slots) < used[:, None]) & ~(np.abs(found[:, :, 7] - reference[:, 6, None]) > gate)
    # Rows of another level leave no gap: what is kept moves up, in its order.
    order = np.argsort(~kept, axis=1, kind="stable")
    shown = np.take_along_axis(np.where(kept[..., None], shown, np.float32(0.0)), order[..., None], axis=1)
    return shown.reshape(len(reference), slots * width)


def listed_rows(road: RowMap, cells: I64, slots: int) -> tuple[I64, I64]:
    """Neighbour lists (n, slots) of cells (n, 3) column, row and sector, and how many of each are used (n,): those that
    are stored, and the others computed as the kernel computes them."""
    from skidpad.scenes.index_kernels import nearest_rows

    grid, (column, line, sectors) = road.list_grid, cells.T
    inside = (column >= 0) & (column < grid.columns) & (line >= 0) & (line < grid.rows) & (len(road.slot) > 0)
    stored = np.full(len(cells), -1, np.int64)
    stored[inside] = road.slot[line[inside] * grid.columns + column[inside]]
    ids, used = np.zeros((len(cells), slots), np.int64), np.zeros(len(cells), np.int64)
    known = stored >= 0
    ids[known], used[known] = road.ids[stored[known], sectors[known]], road.used[stored[known], sectors[known]]
    one, squares = np.zeros(slots, np.int32), np.zeros(slots)
    for k in np.flatnonzero(~known):
        x, y = grid.x + (column[k] + 0.5) / grid.inverse, grid.y + (line[k] + 0.5) / grid.inverse
        cos, sin = road.middle[sectors[k]]
        used[k], _ = nearest_rows(road.mid, road.start, road.numbers, x, y, cos, sin, one, squares)
        ids[k] = one
    return ids, used

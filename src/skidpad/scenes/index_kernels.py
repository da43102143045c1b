"""The loops behind `index.py`: thinning polylines, listing segments by cell, and the nearest rows of a window.

`nearest_rows` both fills the stored neighbour lists and computes a list that is not stored, so the two cannot differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skidpad.artifacts.compile import kernel
from skidpad.scenes.index import F64, Grid, RowMap
from skidpad.scenes.scene import I32, I64, Bool

FAR_M = 1e8  # nothing is within a window of a position further out; keeps cell numbers inside int64


@kernel
def thin(point: F64, element_points: I32, tolerance: float, keep: Bool, stack: I64) -> None:
    """Mark the vertices to keep so that no dropped one lies further than `tolerance` from the chord over it
    (Douglas and Peucker 1973).

    point           (P, 4)  f64 [m]  x, y, z and half width: a border moves no more than a centre line
    element_points  (E + 1,)  i32
    keep            (P,)    bool     written; first and last vertices of each element are kept
    stack           (>= longest element, 2)  i64  scratch
    """
    for e in range(element_points.shape[0] - 1):
        first, last = element_points[e], element_points[e + 1] - 1
        if last < first:
            continue
        keep[first] = True
        keep[last] = True
        depth = 1
        stack[0, 0] = first
        stack[0, 1] = last
        while depth > 0:
            depth -= 1
            a, b = stack[depth, 0], stack[depth, 1]
            worst = -1
            most = tolerance * tolerance
            for k in range(a + 1, b):
                square = chord_distance(point, a, b, k)
                if not square <= most:
                    worst = k
                    most = square
            if worst >= 0:
                keep[worst] = True
                stack[depth, 0] = a
                stack[depth, 1] = worst
                stack[depth + 1, 0] = worst
                stack[depth + 1, 1] = b
                depth += 2


@kernel
def chord_distance(point: F64, a: int, b: int, k: int) -> float:
    """Squared distance of point k to the straight piece from point a to point b, in all four columns."""
    along = 0.0
    length = 0.0
    for d in range(4):
        chord = point[b, d] - point[a, d]
        along += (point[k, d] - point[a, d]) * chord
        length += chord * chord
    t = min(max(along / length, 0.0), 1.0) if length > 0 else 0.0
    square = 0.0
    for d in range(4):
        off = point[k, d] - point[a, d] - t * (point[b, d] - point[a, d])
        square += off * off
    return square


@kernel
def square_distance(x0: float, y0: float, x1: float, y1: float, cx: float, cy: float, half: float) -> float:
    """Squared distance [m^2] between a segment and an axis-aligned square of half side `half` about (cx, cy); 0 where
    they meet."""
    low, high = 0.0, 1.0
    for axis in range(2):
        p = x0 - cx if axis == 0 else y0 - cy
        q = x1 - x0 if axis == 0 else y1 - y0
        if q == 0:
            if abs(p) > half:
                high = -1.0
        else:
            a, b = (-half - p) / q, (half - p) / q
            low, high = max(low, min(a, b)), min(high, max(a, b))
    if low <= high:
        return 0.0
    ax, ay = max(abs(x0 - cx) - half, 0.0), max(abs(y0 - cy) - half, 0.0)
    bx, by = max(abs(x1 - cx) - half, 0.0), max(abs(y1 - cy) - half, 0.0)
    least = min(ax * ax + ay * ay, bx * bx + by * by)
    dx, dy = x1 - x0, y1 - y0
    length = dx * dx + dy * dy
    for corner in range(4):
        px = cx + (half if corner % 2 == 0 else -half) - x0
        py = cy + (half if corner < 2 else -half) - y0
        t = min(max((px * dx + py * dy) / length, 0.0), 1.0) if length > 0 else 0.0
        ex, ey = px - t * dx, py - t * dy
        least = min(least, ex * ex + ey * ey)
    return least


@kernel
def list_segments(segment: F64, grid: Grid, reach: float, start: I64, items: I32) -> None:
    """List, per cell, the segments within `reach` of the cell, in order of their numbers.

    segment  (M, 4)    f64 [m]  x0, y0, x1, y1
    start    (C + 2,)  i64      with `items` empty: written, start[c + 2] = length of the list of c. Else: read and
                                written, start[c + 1] = where the list of c begins, moved to its end
    items    (n,)      i32      written, unless empty
    """
    side = 1.0 / grid.inverse
    counting = items.shape[0] == 0
    for m in range(segment.shape[0]):
        x0, y0, x1, y1 = segment[m, 0], segment[m, 1], segment[m, 2], segment[m, 3]
        column0 = np.int64(max(np.floor((min(x0, x1) - reach - grid.x) * grid.inverse), 0.0))
        column1 = np.int64(min(np.floor((max(x0, x1) + reach - grid.x) * grid.inverse), grid.columns - 1.0))
        row0 = np.int64(max(np.floor((min(y0, y1) - reach - grid.y) * grid.inverse), 0.0))
        row1 = np.int64(min(np.floor((max(y0, y1) + reach - grid.y) * grid.inverse), grid.rows - 1.0))
        for row in range(row0, row1 + 1):
            cy = grid.y + (row + 0.5) * side
            for column in range(column0, column1 + 1):
                cx = grid.x + (column + 0.5) * side
                if square_distance(x0, y0, x1, y1, cx, cy, 0.5 * side) <= reach * reach:
                    cell = row * grid.columns + column
                    if counting:
                        start[cell + 2] += 1
                    else:
                        items[start[cell + 1]] = m
                        start[cell + 1] += 1


@kernel
def nearest_rows(
    mid: F64, start: I32, grid: Grid, window: F64, x: float, y: float, cos: float, sin: float, ids: Any, squares: F64
) -> tuple[int, int]:
    """The rows in a window, nearest to (x, y) first, ties by row: how many were written and how many there are.

    mid          (2, M)    f64 [m]  middles
    start, grid                     rows by cell of their middle
    window       (3,)      f64 [m]  behind, ahead, side; seen from (x, y) along (cos, sin)
    ids          (K,)      int      written; the nearest K
    squares      (>= K,)   f64      scratch
    """
    behind, ahead, side = window[0], window[1], window[2]
    slots = ids.shape[0]
    # The box around the turned window.
    ax, bx = min(-behind * cos, ahead * cos), max(-behind * cos, ahead * cos)
    ay, by = min(-behind * sin, ahead * sin), max(-behind * sin, ahead * sin)
    wx, wy = side * abs(sin), side * abs(cos)
    column0 = np.int64(max(np.floor((x + ax - wx - grid.x) * grid.inverse), 0.0))
    column1 = np.int64(min(np.floor((x + bx + wx - grid.x) * grid.inverse), grid.columns - 1.0))
    row0 = np.int64(max(np.floor((y + ay - wy - grid.y) * grid.inverse), 0.0))
    row1 = np.int64(min(np.floor((y + by + wy - grid.y) * grid.inverse), grid.rows - 1.0))
    count = 0
    total = 0
    for row in range(row0, row1 + 1):
        if column1 < column0:
            break
        base = row * grid.columns
        for m in range(start[base + column0], start[base + column1 + 1]):
            dx, dy = mid[0, m] - x, mid[1, m] - y
            forward = dx * cos + dy * sin
            if forward < -behind or forward > ahead or abs(dy * cos - dx * sin) > side:
                continue
            total += 1
            square = dx * dx + dy * dy
            if count == slots and not (
                square < squares[count - 1] or (square == squares[count - 1] and m < ids[count - 1])
            ):
                continue
            k = count if count < slots else count - 1
            while k > 0 and (square < squares[k - 1] or (square == squares[k - 1] and m < ids[k - 1])):
                squares[k] = squares[k - 1]
                ids[k] = ids[k - 1]
                k -= 1
            squares[k] = square
            ids[k] = m
            if count < slots:
                count += 1
    return count, total


@kernel
def fill_lists(rows: RowMap, stored: I32, squares: F64) -> None:
    """Fill `rows.ids`, `rows.used` and `rows.total` for the list cells `stored` (B,) i32.

    squares  (K,)  f64  scratch
    """
    mid, start, grid, window, middle = rows.mid, rows.start, rows.grid, rows.window, rows.middle
    ids, counts, totals = rows.ids, rows.used, rows.total
    list_grid = rows.list_grid
    side = 1.0 / list_grid.inverse
    for b in range(stored.shape[0]):
        x = list_grid.x + (stored[b] % list_grid.columns + 0.5) * side
        y = list_grid.y + (stored[b] // list_grid.columns + 0.5) * side
        for k in range(middle.shape[0]):
            count, total = nearest_rows(mid, start, grid, window, x, y, middle[k, 0], middle[k, 1], ids[b, k], squares)
            counts[b, k] = count
            totals[b, k] = total


@kernel
def sector_of(bound: F64, cos: float, sin: float) -> int:
    """The heading sector of (cos, sin): the k with the heading in [bound[k], bound[k + 1]); 0 for NaN."""
    sectors = bound.shape[0]
    for k in range(sectors):
        after = k + 1 if k + 1 < sectors else 0
        if bound[k, 0] * sin - bound[k, 1] * cos >= 0 and bound[after, 0] * sin - bound[after, 1] * cos < 0:
            return k
    return 0


@kernel
def road_rows(rows: RowMap, x: float, y: float, cos: float, sin: float, ids: Any, squares: F64) -> tuple[int, int]:
    """The neighbour list of the list cell and heading sector that a pose is in: stored or computed, the same rows.

    x, y, cos, sin      pose [m]; any position has a list, far from the map it is empty
    ids      (K,)  i32  written: rows of `rows.row`, K = slots
    squares  (K,)  f64  scratch

    Returns how many ids were written and how many rows lie in the window.
    """
    if not abs(x) + abs(y) < FAR_M:
        return 0, 0
    grid = rows.list_grid
    column = np.floor((x - grid.x) * grid.inverse)
    row = np.floor((y - grid.y) * grid.inverse)
    sector = sector_of(rows.bound, cos, sin)
    if rows.slot.shape[0] > 0 and column >= 0 and column < grid.columns and row >= 0 and row < grid.rows:
        b = rows.slot[np.int64(row) * grid.columns + np.int64(column)]
        if b >= 0:
            count = rows.used[b, sector]
            stored = rows.ids[b, sector]
            for k in range(count):
                ids[k] = stored[k]
            return count, rows.total[b, sector]
    side = 1.0 / grid.inverse
    return nearest_rows(
        rows.mid,
        rows.start,
        rows.grid,
        rows.window,
        grid.x + (column + 0.5) * side,
        grid.y + (row + 0.5) * side,
        rows.middle[sector, 0],
        rows.middle[sector, 1],
        ids,
        squares,
    )

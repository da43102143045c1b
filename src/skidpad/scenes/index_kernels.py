"""The loops behind `index.py`: thinning polylines, listing segments by cell, and the nearest rows of a window.

`nearest_rows` both fills the stored neighbour lists and computes a list that is not stored, so the two cannot differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.compile import kernel
from skidpad.scenes.index import (
    AHEAD,
    BEHIND,
    EXACT_ORDER,
    F64,
    LIST_COLUMNS,
    LIST_INVERSE,
    LIST_ROWS,
    LIST_SLOTS,
    LIST_X,
    LIST_Y,
    ORDER,
    ROW_COLUMNS,
    ROW_INVERSE,
    ROW_ROWS,
    ROW_X,
    ROW_Y,
    SIDE,
    SPIRAL_ORDER,
    SPIRAL_RINGS,
    Grid,
)
from skidpad.scenes.scene import F32, I32, I64, Bool

U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]

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
def segment_gap(segment: F64, a: int, b: int) -> float:
    """Distance [m] between two segments x0, y0, x1, y1 of rows a and b; 0 where they cross."""
    ax, ay, bx, by = segment[a, 0], segment[a, 1], segment[a, 2], segment[a, 3]
    cx, cy, dx, dy = segment[b, 0], segment[b, 1], segment[b, 2], segment[b, 3]
    ux, uy, vx, vy = bx - ax, by - ay, dx - cx, dy - cy
    side0, side1 = ux * (cy - ay) - uy * (cx - ax), ux * (dy - ay) - uy * (dx - ax)
    side2, side3 = vx * (ay - cy) - vy * (ax - cx), vx * (by - cy) - vy * (bx - cx)
    if side0 * side1 < 0 and side2 * side3 < 0:
        return 0.0
    least = min(square_distance(ax, ay, bx, by, cx, cy, 0.0), square_distance(ax, ay, bx, by, dx, dy, 0.0))
    least = min(least, square_distance(cx, cy, dx, dy, ax, ay, 0.0))
    return float(np.sqrt(min(least, square_distance(cx, cy, dx, dy, bx, by, 0.0))))


@kernel
def segment_clearance(segment: F64, lane_first: I32, most: float, clear: F32) -> None:
    """Half the distance from each segment to the segments of its lane that do not touch it, at most `most` [m]: by the
    triangle inequality, whoever is nearer than that to a segment is further from all of those.

    segment     (M, 4)    f64 [m]  x0, y0, x1, y1
    lane_first  (L + 1,)  i32      lane l owns rows lane_first[l] : lane_first[l + 1]
    clear       (M,)      f32 [m]  written; a millimetre less, for rounding
    """
    for lane in range(lane_first.shape[0] - 1):
        for m in range(lane_first[lane], lane_first[lane + 1]):
            least = 2 * most
            for other in range(lane_first[lane], lane_first[lane + 1]):
                if abs(other - m) > 1:
                    least = min(least, segment_gap(segment, m, other))
            clear[m] = max(0.5 * least - 1e-3, 0.0)


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
def sink(ids: I32, squares: F64, at: int, count: int) -> None:
    """Restore a heap of `count` rows, furthest first, ties by row, whose entry `at` may be too near."""
    row, square = ids[at], squares[at]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and (
            squares[child + 1] > squares[child]
            or (squares[child + 1] == squares[child] and ids[child + 1] > ids[child])
        ):
            child += 1
        if squares[child] < square or (squares[child] == square and ids[child] < row):
            break
        ids[at], squares[at] = ids[child], squares[child]
        at = child
    ids[at], squares[at] = row, square


@kernel
def nearest_rows(
    mid: F64, start: I32, numbers: F64, x: float, y: float, cos: float, sin: float, ids: I32, squares: F64
) -> tuple[int, int]:
    """The rows in a window, nearest to (x, y) first, ties by row: how many were written and how many there are.

    mid             (2, M)    f64 [m]  middles
    start, numbers                     rows by cell of their middle; grid and window of `RowMap`. The window is seen
                                       from (x, y) along (cos, sin)
    ids             (>= K,)   i32      written; the nearest K
    squares         (>= K,)   f64      scratch
    """
    behind, ahead, side = numbers[BEHIND], numbers[AHEAD], numbers[SIDE]
    inverse, columns = numbers[ROW_INVERSE], np.int64(numbers[ROW_COLUMNS])
    slots = np.int64(numbers[LIST_SLOTS])
    # The box around the turned window.
    ax, bx = min(-behind * cos, ahead * cos), max(-behind * cos, ahead * cos)
    ay, by = min(-behind * sin, ahead * sin), max(-behind * sin, ahead * sin)
    wx, wy = side * abs(sin), side * abs(cos)
    column0 = np.int64(max(np.floor((x + ax - wx - numbers[ROW_X]) * inverse), 0.0))
    column1 = np.int64(min(np.floor((x + bx + wx - numbers[ROW_X]) * inverse), numbers[ROW_COLUMNS] - 1.0))
    row0 = np.int64(max(np.floor((y + ay - wy - numbers[ROW_Y]) * inverse), 0.0))
    row1 = np.int64(min(np.floor((y + by + wy - numbers[ROW_Y]) * inverse), numbers[ROW_ROWS] - 1.0))
    count = 0
    total = 0
    for row in range(row0, row1 + 1):
        if column1 < column0:
            break
        base = row * columns
        for m in range(start[base + column0], start[base + column1 + 1]):
            dx, dy = mid[0, m] - x, mid[1, m] - y
            forward = dx * cos + dy * sin
            if forward < -behind or forward > ahead or abs(dy * cos - dx * sin) > side:
                continue
            total += 1
            square = dx * dx + dy * dy
            if count < slots:
                # Rows come in ascending order: among equals the new one is the furthest.
                at = count
                count += 1
                while at > 0 and square >= squares[(at - 1) // 2]:
                    ids[at], squares[at] = ids[(at - 1) // 2], squares[(at - 1) // 2]
                    at = (at - 1) // 2
                ids[at], squares[at] = m, square
            elif square < squares[0]:
                ids[0], squares[0] = m, square
                sink(ids, squares, 0, count)
    for last in range(count - 1, 0, -1):
        furthest, square = ids[0], squares[0]
        ids[0], squares[0] = ids[last], squares[last]
        sink(ids, squares, 0, last)
        ids[last], squares[last] = furthest, square
    return count, total


@kernel
def spiral_rows(start: I32, numbers: F64, x: float, y: float, ids: I32) -> tuple[int, int]:
    """The rows of cells in a square spiral around the cell of (x, y), first come first kept: how many were written and
    how many there are. The spiral goes right, up, left, down, ever further; rows of one cell by their numbers.

    start, numbers     rows by cell of their middle; grid and rings of `RowMap`
    ids      (>= K,) i32  written
    """
    columns, rows = np.int64(numbers[ROW_COLUMNS]), np.int64(numbers[ROW_ROWS])
    column = np.int64(np.floor((x - numbers[ROW_X]) * numbers[ROW_INVERSE]))
    row = np.int64(np.floor((y - numbers[ROW_Y]) * numbers[ROW_INVERSE]))
    rings, slots = np.int64(numbers[SPIRAL_RINGS]), np.int64(numbers[LIST_SLOTS])
    across, up, count, total = 1, 0, 0, 0
    steps = 1
    side = 2 * rings + 1
    walked, leg = 0, 0
    for _ in range(side * side):
        if 0 <= column < columns and 0 <= row < rows:
            cell = row * columns + column
            for m in range(start[cell], start[cell + 1]):
                if count < slots:
                    ids[count] = m
                    count += 1
                total += 1
        column += across
        row += up
        walked += 1
        if walked == steps:  # a corner: turn left, and every second leg is longer by one
            across, up = -up, across
            walked = 0
            leg += 1
            if leg % 2 == 0:
                steps += 1
    return count, total


@kernel
def fill_lists(
    stored: I32,
    mid: F64,
    start: I32,
    numbers: F64,
    ids16: U16,
    ids32: U32,
    used: I32,
    total: I32,
    middle: F64,
    ids: I32,
    squares: F64,
) -> None:
    """Fill the lists of a `RowMap` for the list cells `stored` (B,) i32.

    ids, squares  (K,)  i32, f64  scratch
    """
    columns = np.int64(numbers[LIST_COLUMNS])
    side = 1.0 / numbers[LIST_INVERSE]
    for b in range(stored.shape[0]):
        x = numbers[LIST_X] + (stored[b] % columns + 0.5) * side
        y = numbers[LIST_Y] + (stored[b] // columns + 0.5) * side
        for k in range(middle.shape[0]):
            if numbers[ORDER] == SPIRAL_ORDER:
                used[b, k], total[b, k] = spiral_rows(start, numbers, x, y, ids)
            else:
                used[b, k], total[b, k] = nearest_rows(
                    mid, start, numbers, x, y, middle[k, 0], middle[k, 1], ids, squares
                )
            for n in range(used[b, k]):
                if ids32.shape[0] > 0:
                    ids32[b, k, n] = ids[n]
                else:
                    ids16[b, k, n] = ids[n]


@kernel
def sector_of(bound: F64, cos: float, sin: float) -> int:
    """The heading sector of (cos, sin): the k with the heading in [bound[k], bound[k + 1]); 0 for NaN."""
    sectors, found = bound.shape[0], 0
    beyond = bound[0, 0] * sin - bound[0, 1] * cos >= 0
    for k in range(sectors):  # one of them holds; which one is as good as random, so no branch asks
        after = k + 1 if k + 1 < sectors else 0
        beyond_after = bound[after, 0] * sin - bound[after, 1] * cos >= 0
        found += k if beyond & (not beyond_after) else 0
        beyond = beyond_after
    return found


@kernel
def road_rows(
    mid: F64,
    start: I32,
    numbers: F64,
    slot: I32,
    ids16: U16,
    ids32: U32,
    used: I32,
    total: I32,
    lowest: F32,
    highest: F32,
    bound: F64,
    middle: F64,
    x: float,
    y: float,
    z: np.float32,
    gate: np.float32,
    cos: float,
    sin: float,
    ids: I32,
    squares: F64,
) -> tuple[int, int, bool]:
    """The neighbour list of a pose: of its list cell and heading sector, stored or computed, the same rows; or its own.

    mid ... middle      arrays of a `RowMap`
    x, y, z, cos, sin   pose [m]; any position has a list, far from the map it is empty
    gate                [m] what lies within this height is on the level of the pose
    ids      (>= K,)  i32  written: rows of `RowMap.row`
    squares  (>= K,)  f64  scratch

    Returns how many ids were written, how many rows lie in the window, and whether all of the first are known to be on
    the level.
    """
    if not abs(x) + abs(y) < FAR_M:
        return 0, 0, True
    if numbers[ORDER] == EXACT_ORDER:
        count, listed = nearest_rows(mid, start, numbers, x, y, cos, sin, ids, squares)
        return count, listed, False
    column = np.floor((x - numbers[LIST_X]) * numbers[LIST_INVERSE])
    row = np.floor((y - numbers[LIST_Y]) * numbers[LIST_INVERSE])
    sector = np.uintp(sector_of(bound, cos, sin))
    if slot.shape[0] > 0 and column >= 0 and column < numbers[LIST_COLUMNS] and row >= 0 and row < numbers[LIST_ROWS]:
        b = slot[np.uintp(row * numbers[LIST_COLUMNS] + column)]
        if b >= 0:
            at = np.uintp(b)
            count = used[at, sector]
            if ids32.shape[0] > 0:
                for k in range(np.uintp(count)):
                    ids[k] = ids32[at, sector, k]
            else:
                for k in range(np.uintp(count)):
                    ids[k] = ids16[at, sector, k]
            level = (abs(lowest[at, sector] - z) <= gate) & (abs(highest[at, sector] - z) <= gate)
            return count, total[at, sector], level
    side = 1.0 / numbers[LIST_INVERSE]
    cx, cy = numbers[LIST_X] + (column + 0.5) * side, numbers[LIST_Y] + (row + 0.5) * side
    if numbers[ORDER] == SPIRAL_ORDER:
        count, listed = spiral_rows(start, numbers, cx, cy, ids)
    else:
        count, listed = nearest_rows(mid, start, numbers, cx, cy, middle[sector, 0], middle[sector, 1], ids, squares)
    return count, listed, False

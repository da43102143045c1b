"""Who may be near whom: the agents of one world, sorted into square cells.

Up to GRID_AGENTS agents nobody is sorted: comparing all pairs, eight at a time, is faster than any list. Above, agents
are counting-sorted into 10 m cells; cells double until there are no more than four per agent, so that a world spread
over a whole town costs no more memory than a jam. What is found does not depend on the path: cells only leave out
pairs that are too far apart (S20).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

GRID_AGENTS = 48
CELL_M = 10.0
CELLS_PER_AGENT = 4
GRID_SLOTS = CELLS_PER_AGENT + 2  # integers of scratch per agent, and two more
BLOCK = 8  # float32 of one vector; so many columns of NaN stand behind the agents
X, Y, REACH, SORTED_X, SORTED_Y, SORTED_REACH = range(6)
TTC_X, TTC_Y, VELOCITY_X, VELOCITY_Y, RADIUS = range(6, 11)  # in the order of `places`; `ttc.py`
GRID_ROWS = 11
FAR_M = 1e8  # nobody is near a position further out; keeps cell numbers inside int64


@kernel
def sort_agents(n: int, scratch: F32, places: I32) -> tuple[float, float, float, Any, Any]:
    """Order n agents by cell: (x, y of the grid's corner [m], cell side [m], columns, rows).

    scratch  (GRID_ROWS, >= n + BLOCK)  f32 [m]  rows X, Y, REACH are read: centres, and how far each may matter;
                                            SORTED_* are written, in the order of `places`, NaN behind them
    places   (GRID_SLOTS * n + 2,) i32      written: [0, n) the agents in order, [n, 2 n) the cell of each agent in that
                                            order, then the cell starts: cell c holds [start[c], start[c + 1])

    Agents of one cell keep their order. Without a finite position an agent is in the first cell and near nobody. Up to
    GRID_AGENTS agents there is one cell and the order is their own.
    """
    x, y, reach = scratch[X], scratch[Y], scratch[REACH]
    order, cell_of, start = places[:n], places[n : 2 * n], places[2 * n :]
    low_x, low_y, high_x, high_y = np.inf, np.inf, -np.inf, -np.inf
    side = CELL_M
    columns = rows = np.int64(1)
    if n > GRID_AGENTS:
        for k in range(n):
            if abs(x[k]) + abs(y[k]) < FAR_M:
                low_x, high_x = min(low_x, x[k]), max(high_x, x[k])
                low_y, high_y = min(low_y, y[k]), max(high_y, y[k])
        if low_x <= high_x:
            columns = np.int64(np.floor((high_x - low_x) / side)) + 1
            rows = np.int64(np.floor((high_y - low_y) / side)) + 1
            while columns * rows > CELLS_PER_AGENT * n:
                side *= 2
                columns = np.int64(np.floor((high_x - low_x) / side)) + 1
                rows = np.int64(np.floor((high_y - low_y) / side)) + 1
    for k in range(n, n + BLOCK):
        scratch[SORTED_X, k] = np.nan
    cells = columns * rows
    if cells == 1:
        start[0], start[1] = 0, n
        for k in range(n):
            order[k], cell_of[k] = k, 0
            scratch[SORTED_X, k], scratch[SORTED_Y, k], scratch[SORTED_REACH, k] = x[k], y[k], reach[k]
        return low_x, low_y, side, 1, 1
    # Counting sort: start[c + 1] counts, then runs, and ends as the start of cell c + 1.
    start[: cells + 2] = 0
    for k in range(n):
        start[_cell(x[k], y[k], low_x, low_y, side, columns) + 2] += 1
    for c in range(2, cells + 2):
        start[c] += start[c - 1]
    for k in range(n):
        c = _cell(x[k], y[k], low_x, low_y, side, columns)
        p = start[c + 1]
        start[c + 1] = p + 1
        order[p], cell_of[p] = k, c
        scratch[SORTED_X, p], scratch[SORTED_Y, p], scratch[SORTED_REACH, p] = x[k], y[k], reach[k]
    return low_x, low_y, side, columns, rows


@kernel
def _cell(x: float, y: float, low_x: float, low_y: float, side: float, columns: Any) -> int:
    """Number of the cell at (x, y); the first for a position that is not finite."""
    if abs(x) + abs(y) < FAR_M:
        return int(np.int64(np.floor((y - low_y) / side)) * columns + np.int64(np.floor((x - low_x) / side)))
    return 0


@kernel
def row_of(cell: int, columns: Any) -> int:
    """The row of a cell; a division costs more than comparing with all agents of a small world."""
    return cell if columns == 1 else int(cell // columns)


@kernel
def last_row(cell: int, span: int, columns: Any, rows: Any) -> int:
    """Last row of cells within `span` cells of the row of `cell`."""
    return int(min(row_of(cell, columns) + span, rows - 1))


@kernel
def stretch(p: int, row: int, span: int, columns: Any, n: int, places: I32) -> tuple[int, int]:
    """Where, in the order, the agents stand that come after agent p and lie within `span` cells in one row of cells:
    first and end. Rows from that of p to `last_row` together hold each pair once."""
    cell = places[n + p]
    own = row_of(cell, columns)
    column = cell - own * columns
    base = 2 * n + row * columns
    end = places[base + min(column + span, columns - 1) + 1]
    if row == own:
        return p + 1, end
    return places[base + max(column - span, 0)], end

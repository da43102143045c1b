"""Fetching ahead: what a phase will read of the next world, and of the map, begins its way into the caches while the
present world is at work.

Between two steps observing writes more than the caches hold, so nearly all that detection reads first comes from
memory; asked for one by one, each waits for the one before. Nothing here changes a result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import LIST_COLUMNS, LIST_INVERSE, LIST_ROWS, LIST_X, LIST_Y, EdgeMap, LaneMap
from skidpad.scenes.index_kernels import sector_of
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.lanes import cell_of
from skidpad.simulation.kernels.machine import fetch
from skidpad.simulation.state import COS, LANE_SEGMENT, SIN, X, Y

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
U = np.uintp
WORDS, BYTES = 16, 64  # of a cache line
SEGMENT_FLOATS, EDGE_ROWS = 12, 5


@kernel
def fetch_agents(first: int, end: int, f4: F32, i4: I32, u1: U8, more: F32) -> None:
    """Fetch the agents [first, end) of a world: their state blocks, and one block more that a phase reads."""
    for k in range(first, end + WORDS - 1, WORDS):
        at = U(min(k, end - 1))
        for field in range(f4.shape[0]):
            fetch(f4[field], at)
        for field in range(i4.shape[0]):
            fetch(i4[field], at)
        for field in range(more.shape[0]):
            fetch(more[field], at)
    for k in range(first, end + BYTES - 1, BYTES):
        at = U(min(k, end - 1))
        for field in range(u1.shape[0]):
            fetch(u1[field], at)


@kernel
def fetch_map(a: int, f4: F32, i4: I32, lanes: LaneMap, edges: EdgeMap) -> None:
    """Fetch what agent a will most likely ask of the map: the lane segments about its last one, the edges of its
    cell."""
    m = np.int64(i4[LANE_SEGMENT, a])
    if 0 <= m < len(lanes.clear):  # A map without lanes has no first segment either.
        fetch(lanes.clear, U(m))
        flat = lanes.segment[m if m == 0 else m - 1]
        for k in range(0, 4 * SEGMENT_FLOATS, SEGMENT_FLOATS):
            fetch(flat, U(k))
    cell = cell_of(edges.grid, np.float64(f4[X, a]), np.float64(f4[Y, a]))
    if cell >= 0:
        for k in range(edges.start[cell], edges.start[cell + 1], WORDS):
            for row in range(EDGE_ROWS):
                fetch(edges.edge[row], U(k))


@kernel
def fetch_list(
    a: int,
    f4: F32,
    numbers: F64,
    slot: I32,
    ids16: U16,
    ids32: U32,
    used: I32,
    total: I32,
    lowest: F32,
    highest: F32,
    bound: F64,
) -> None:
    """Fetch the stored neighbour list that `index_kernels.road_rows` finds for agent a; its arrays."""
    column = np.floor((np.float64(f4[X, a]) - numbers[LIST_X]) * numbers[LIST_INVERSE])
    row = np.floor((np.float64(f4[Y, a]) - numbers[LIST_Y]) * numbers[LIST_INVERSE])
    if slot.shape[0] == 0 or not (0 <= column < numbers[LIST_COLUMNS] and 0 <= row < numbers[LIST_ROWS]):
        return
    b = slot[U(row * numbers[LIST_COLUMNS] + column)]
    if b < 0:
        return
    at = U(b)
    sector = U(sector_of(bound, np.float64(f4[COS, a]), np.float64(f4[SIN, a])))
    fetch(used[at], sector)
    fetch(total[at], sector)
    fetch(lowest[at], sector)
    fetch(highest[at], sector)
    if ids32.shape[0] > 0:
        for k in range(0, ids32.shape[2], WORDS):
            fetch(ids32[at, sector], U(k))
    else:
        for k in range(0, ids16.shape[2], 2 * WORDS):
            fetch(ids16[at, sector], U(k))

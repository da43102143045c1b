"""Fetching ahead: what a phase will read of the next world, and of the map, begins its way into the caches while the
present world is at work.

Between two steps observing writes more than the caches hold, so nearly all that detection reads first comes from
memory; asked for one by one, each waits for the one before. Nothing here changes a result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import EdgeMap, LaneMap
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.lanes import cell_of
from skidpad.simulation.kernels.machine import fetch
from skidpad.simulation.state import GOAL_NEXT, GOAL_SLOT, LANE_SEGMENT, X, Y

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
U = np.uintp
DOUBLES, WORDS, BYTES = 8, 16, 64  # of a cache line
SEGMENT_FLOATS = 12


@kernel
def fetch_fields(first: int, end: int, block: Any, field0: int, field1: int) -> None:
    """Fetch the fields [field0, field1) of the agents [first, end): a block of four bytes a number."""
    for k in range(first, end + WORDS - 1, WORDS):
        at = U(min(k, end - 1))
        for field in range(field0, field1):
            fetch(block[field], at)


@kernel
def fetch_agents(first: int, end: int, f4: F32, i4: I32, u1: U8) -> None:
    """Fetch the state blocks of the agents [first, end) of a world."""
    fetch_fields(first, end, f4, 0, f4.shape[0])
    fetch_fields(first, end, i4, 0, i4.shape[0])
    for k in range(first, end + BYTES - 1, BYTES):
        at = U(min(k, end - 1))
        for field in range(u1.shape[0]):
            fetch(u1[field], at)


@kernel
def fetch_rows(first: int, end: int, rows: Any, line: int) -> None:
    """Fetch the rows [first, end) of a table; `line`: how many of its numbers fill a cache line."""
    width = rows.shape[1]
    for k in range(first * width, end * width + line - 1, line):
        fetch(rows, U(k))


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
        for b in range(U(edges.start[cell]), U(edges.start[cell + 1])):
            block = edges.edge[b]
            fetch(block, U(0))
            fetch(block, U(WORDS))


@kernel
def fetch_goal(a: int, i4: I32, goal_points: F32, goal_size: I32) -> None:
    """Fetch the next goal of agent a."""
    slot, index = i4[GOAL_SLOT, a], i4[GOAL_NEXT, a]
    if slot >= 0 and index < goal_size[slot]:
        fetch(goal_points[slot, index], U(0))

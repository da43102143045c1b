"""The road that an agent sees: its list, what dropout leaves of it, and rows of segments (S17, S91, S92)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import EXACT_ORDER, LIST_COLUMNS, LIST_INVERSE, LIST_ROWS, LIST_X, LIST_Y, ORDER
from skidpad.scenes.index_kernels import sector_of
from skidpad.scenes.lane_kernels import metres_to_goal
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import fetch
from skidpad.simulation.kernels.observe_rows import (
    F32,
    F64,
    I32,
    INFINITE,
    ONE,
    U8,
    ZERO,
    F,
    U,
    clear,
)
from skidpad.simulation.kernels.observe_turn import turn
from skidpad.simulation.random import Purpose, uniform
from skidpad.simulation.state import COS, SIN, X, Y

U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
DROPOUT = int(Purpose.DROPOUT)
WORDS = 16  # of a cache line


@kernel
def find_list(numbers: F64, slot: I32, bound: F64, x: float, y: float, cosine: float, sine: float) -> tuple[int, int]:
    """The stored neighbour list that `index_kernels.road_rows` finds for a pose, as row and sector of the list arrays;
    a row of -1 where none is stored. The arrays are those of a `RowMap`."""
    column = np.floor((x - numbers[LIST_X]) * numbers[LIST_INVERSE])
    row = np.floor((y - numbers[LIST_Y]) * numbers[LIST_INVERSE])
    if slot.shape[0] == 0 or numbers[ORDER] == EXACT_ORDER:
        return -1, 0
    if not (0 <= column < numbers[LIST_COLUMNS] and 0 <= row < numbers[LIST_ROWS]):
        return -1, 0
    return slot[U(row * numbers[LIST_COLUMNS] + column)], sector_of(bound, cosine, sine)


@kernel
def fetch_list(at: Any, sector: Any, ids16: U16, ids32: U32, used: I32, total: I32, lowest: F32, highest: F32) -> None:
    """Begin to bring a stored neighbour list into the caches."""
    fetch(used[at], sector)
    fetch(total[at], sector)
    fetch(lowest[at], sector)
    fetch(highest[at], sector)
    for k in range(0, ids32.shape[2], WORDS):
        fetch(ids32[at, sector], U(k))
    for k in range(0, ids16.shape[2], 2 * WORDS):
        fetch(ids16[at, sector], U(k))


@kernel
def drop_rows(
    lane: I32,
    ids: I32,
    count: int,
    lane_share: np.float32,
    edge_share: np.float32,
    seed: int,
    episode: int,
    key: int,
    step: int,
    first: int,
) -> int:
    """Keep int(n (1 - share)) of the n lane rows and of the n others, a random subset of each in their order (S92);
    returns how many ids remain. Selection sampling (Knuth, TAOCP 2, algorithm 3.4.2 S): one draw a row.

    lane   (M,)  i32  -1 for rows that are no lanes
    first             index of the first draw
    """
    lanes = 0
    for k in range(count):
        lanes += lane[ids[k]] >= 0
    left_lanes, left_edges = lanes, count - lanes
    want_lanes = int(F(left_lanes) * (ONE - lane_share))
    want_edges = int(F(left_edges) * (ONE - edge_share))
    kept = 0
    for k in range(count):
        u = uniform(seed, episode, key, step, DROPOUT, first + k)
        if lane[ids[k]] >= 0:
            keep = u * F(left_lanes) < F(want_lanes)
            left_lanes -= 1
            want_lanes -= keep
        else:
            keep = u * F(left_edges) < F(want_edges)
            left_edges -= 1
            want_edges -= keep
        if keep:
            ids[kept] = ids[k]
            kept += 1
    return kept


@kernel
def keep_level(z_column: int, row: F32, ids: I32, count: int, z: np.float32, gate: np.float32) -> int:
    """Keep the rows that are within `gate` [m] of height z, in their order; returns how many ids remain."""
    kept = 0
    for k in range(U(count)):
        one = ids[k]
        ids[kept] = one
        kept += abs(row[U(one), z_column] - z) <= gate
    return kept


@kernel
def write_road(
    pair: int,
    row: F32,
    ids: I32,
    count: int,
    a: int,
    f4: F32,
    z: np.float32,
    scale: np.float32,
    z_scale: np.float32,
    low: np.float32,
    high: np.float32,
    out: F32,
    start: int,
    slots: int,
    width: int,
) -> None:
    """Write the first of the rows `ids` into the slots of a block, `width` numbers each; zero what is left. The last
    row may run over into what is written later.

    pair  as in `turn`
    z     [m] height of the agent where rows show one, in their third column; else 0
    """
    x, y, cosine, sine = f4[X, a], f4[Y, a], f4[COS, a], f4[SIN, a]
    o, step = U(start), U(width)
    for k in range(U(min(count, slots))):
        turn(pair, row, U(ids[k]), x, y, z, ZERO, ZERO, scale, z_scale, cosine, sine, low, high, out, o)
        o += step
    clear(out, o, start + slots * width)


@kernel
def mark_route(route: I32, first: int, count: int, value: int, mark: U8) -> None:
    """Set the marks of the lanes route[first : first + count]."""
    for k in range(first, first + count):
        mark[route[k]] = value


@kernel
def write_distances(
    ids: I32,
    count: int,
    lane: I32,
    along: F32,
    goal: int,
    goal_arc: np.float32,
    own: np.float32,
    to_goal: F32,
    scale: np.float32,
    out: F32,
    start: int,
    width: int,
    column: int,
) -> None:
    """Write into each of `count` lane rows how far it is to the goal, and how much farther than from where the agent is
    (S91): 1 and 1 where there is no way.

    ids            rows of the map, as `write_road` leaves them
    goal, goal_arc lane of the goal, -1 = none known, and position on it [m]
    own            [m] left to drive from the agent's own place; infinite without one
    to_goal        as `lane_kernels.spread` leaves it
    column         of the first of the two numbers in a row
    """
    o = start + column
    nearest = min(own * scale, ONE)
    for k in range(count):
        r = ids[k]
        metres = INFINITE
        if goal >= 0:
            metres = F(metres_to_goal(lane[r], along[1, r], along[0, r], goal, goal_arc, to_goal))
        far = min(metres * scale, ONE)
        out[o] = far
        out[o + 1] = far - nearest
        o += width

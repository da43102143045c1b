"""What all observing kernels share: types, constants, the working memory of a thread, and clipping."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Status
from skidpad.simulation.kernels.compile import kernel

F = np.float32
ACTIVE = int(Status.ACTIVE)  # an agent that has left, or stands for good, sees nothing
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
U: Any = np.uintp

ZERO, HALF, ONE = F(0.0), F(0.5), F(1.0)
INFINITE = F(np.inf)
LINES = 8  # rows of an observation under way in one thread


class Sight(NamedTuple):
    """Working memory of one thread for observing; contents mean nothing between worlds.

    ids      (K,)           i32   rows of a neighbour list
    squares  (K,)           f64
    near     (A + 1,)       i32   agents in range
    value    (A + 32,)      f32   their squared distances
    square   (A + 8,)       f32   of all agents of the world
    hidden   (A,)           f32   0, or infinite for an agent that nobody sees
    packed   (A, 16)        f32   agents as rows of the layout
    order    (A or slots,)  i32   what fills the slots of a block, nearest first; the larger of the two
    reach    (slots,)       f32   squared distances of stop lines
    lines    (LINES, D + 8) f32   rows that are being written; a block may run over by less than 8 numbers
    noted    (LINES, 3)     i32   what is to be remembered of each
    mark     (L,)           u8    lanes of the agent's route; all zero between agents
    to_goal  (L,)           f32   [m] from the end of each lane to the start of a goal's; all infinite between agents
    """

    ids: I32
    squares: F64
    near: I32
    value: F32
    square: F32
    hidden: F32
    packed: F32
    order: I32
    reach: F32
    lines: F32
    noted: I32
    mark: U8
    to_goal: F32


# Columns of the overflow block, (N, 4) i32: partners, rows of the first and of the second road block, and stop lines
# that were in range and found no slot (S21).
LEFT_PARTNERS, LEFT_ROAD, LEFT_EDGES, LEFT_SIGNALS = range(4)
LEFT_COLUMNS = 4


@kernel
def signed(value: np.float32) -> np.float32:
    """Clipped to [-1, 1]."""
    return min(max(value, F(-1.0)), F(1.0))


@kernel
def share(value: np.float32) -> np.float32:
    """Clipped to [0, 1]."""
    return min(max(value, F(0.0)), F(1.0))


@kernel
def clear(out: F32, start: int, stop: int) -> None:
    """Zero out[start:stop]."""
    for k in range(U(start), U(stop)):
        out[k] = ZERO

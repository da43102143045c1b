"""One row of an observation: eight numbers loaded, moved and turned into the agent's frame, and stored at once.

Every layout keeps its rows, of road segments and of agents, in eight columns in the order in which it shows them, so
that this is the only place that turns anything (S16, S85). Written as eight loads, eight equal formulas and eight
stores, it becomes vector code under NUMBA_SLP_VECTORIZE=1; `one` and `zero` must therefore be values that the compiler
does not know.
"""

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


class Sight(NamedTuple):
    """Working memory of one thread for observing; contents mean nothing between worlds.

    ids      (K,)           i32   rows of a neighbour list
    squares  (K,)           f64
    near     (A + 1,)       i32   agents in range
    value    (A + 32,)      f32   their squared distances
    square   (A,)           f32   of all agents of the world
    hidden   (A,)           f32   0, or infinite for an agent that nobody sees
    packed   (A, 16)        f32   agents as rows of the layout
    order    (A or slots,)  i32   what fills the slots of a block, nearest first; the larger of the two
    reach    (slots,)       f32   squared distances of stop lines
    tail     (16,)          f32   one row; its entries 14 and 15 hold 1 and 0
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
    tail: F32
    mark: U8
    to_goal: F32


ONE_AT, ZERO_AT = 14, 15  # of `Sight.tail`

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


@kernel
def turn(
    pair: int,
    source: F32,
    s: int,
    px: np.float32,
    py: np.float32,
    pz: np.float32,
    p6: np.float32,
    p7: np.float32,
    scale: np.float32,
    z_scale: np.float32,
    cosine: np.float32,
    sine: np.float32,
    one: np.float32,
    zero: np.float32,
    low: np.float32,
    high: np.float32,
    out: F32,
    o: int,
) -> None:
    """Write source[s] into out[o : o + 8]: columns 0 and 1 minus (px, py), times `scale`; column 2 minus pz, times
    `z_scale`; columns 6 and 7 minus p6 and p7; columns 0 and 1 and those of `pair` turned by (cosine, -sine); all
    clipped to [low, high].

    pair  first of the two columns that hold a direction: 2, 3, 4 or 5; 36 = 3, and a vector in 6 and 7 as well. A
          constant where this is called: one of the branches remains.
    """
    back = -sine
    v0, v1 = (source[s, 0] - px) * scale, (source[s, 1] - py) * scale
    v2, v3 = (source[s, 2] - pz) * z_scale, (source[s, 3] - zero) * one
    v4, v5 = (source[s, 4] - zero) * one, (source[s, 5] - zero) * one
    v6, v7 = (source[s, 6] - p6) * one, (source[s, 7] - p7) * one
    a2, a3, a4, a5, a6, a7 = one, one, one, one, one, one
    b2, b3, b4, b5, b6, b7 = zero, zero, zero, zero, zero, zero
    w2, w3, w4, w5, w6, w7 = v3, v2, v5, v4, v7, v6
    if pair == 2:
        a2, b2, a3, b3 = cosine, sine, cosine, back
    elif pair == 3 or pair == 36:
        w2, w3, w4, w5 = v2, v4, v3, v5
        a3, b3, a4, b4 = cosine, sine, cosine, back
        if pair == 36:
            a6, b6, a7, b7 = cosine, sine, cosine, back
    elif pair == 4:
        a4, b4, a5, b5 = cosine, sine, cosine, back
    else:
        w4, w5, w6, w7 = v4, v6, v5, v7
        a5, b5, a6, b6 = cosine, sine, cosine, back
    r0, r1 = v0 * cosine + v1 * sine, v1 * cosine + v0 * back
    r2, r3 = v2 * a2 + w2 * b2, v3 * a3 + w3 * b3
    r4, r5 = v4 * a4 + w4 * b4, v5 * a5 + w5 * b5
    r6, r7 = v6 * a6 + w6 * b6, v7 * a7 + w7 * b7
    out[o] = min(max(r0, low), high)
    out[o + U(1)] = min(max(r1, low), high)
    out[o + U(2)] = min(max(r2, low), high)
    out[o + U(3)] = min(max(r3, low), high)
    out[o + U(4)] = min(max(r4, low), high)
    out[o + U(5)] = min(max(r5, low), high)
    out[o + U(6)] = min(max(r6, low), high)
    out[o + U(7)] = min(max(r7, low), high)

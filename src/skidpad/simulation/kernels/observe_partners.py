"""Which agents an agent sees, and in which order (S90): nearest first by distance in space, ties by key."""

from __future__ import annotations

from typing import Any

import numpy as np

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import below_eight
from skidpad.simulation.kernels.observe_rows import F32, I32, INFINITE, U8, ZERO, U
from skidpad.simulation.state import BODY, GHOST, KEY, X, Y, Z

# Counting runs over whole strides of a known length: a loop of unknown length does its last steps one by one, slowly.
STRIDE = U(32)
EIGHT = U(8)
ZERO_RANK: Any = np.int32(0)


@kernel
def hide(a0: int, a1: int, u1: U8, hidden: F32) -> None:
    """Write into `hidden` who of the agents a0 to a1 of a world cannot be seen: those without a body, and ghosts."""
    for b in range(a0, a1):
        hidden[b - a0] = ZERO if u1[BODY, b] != 0 and u1[GHOST, b] == 0 else INFINITE


@kernel
def rank_partners(
    a: int,
    a0: int,
    a1: int,
    f4: F32,
    i4: I32,
    reach: np.float32,
    gate: np.float32,
    hidden: F32,
    square: F32,
    near: I32,
    value: F32,
    order: I32,
) -> int:
    """Write the agents (numbers in their world) that agent a sees into `order`; returns how many there are: within
    `reach` in the plane, and `gate` in height.

    hidden, square, near, value, order   as in `Sight`
    """
    base, count = U(a0), U(a1 - a0)
    most = reach * reach
    x, y, z = f4[X, a], f4[Y, a], f4[Z, a]
    for b in range(count):
        dx, dy, dz = f4[X, base + b] - x, f4[Y, base + b] - y, f4[Z, base + b] - z
        flat = dx * dx + dy * dy
        square[b] = INFINITE if (flat > most) | (abs(dz) > gate) else flat + dz * dz + hidden[b]
    square[U(a) - base] = INFINITE
    for b in range(count, count + EIGHT):
        square[b] = INFINITE
    found = U(0)
    for first in range(U(0), count, EIGHT):
        if below_eight(square, first, INFINITE) != 0:
            for b in range(first, first + EIGHT):  # no branch: half of them may be in range, in no order
                near[found] = b
                value[found] = square[b]
                found += U(square[b] < INFINITE)
    if found < U(2):
        order[0] = near[0]
        return int(found)
    padded = (found + STRIDE - U(1)) & ~(STRIDE - U(1))
    for k in range(found, padded):
        value[k] = INFINITE
    ranks = 0
    for i in range(found):
        mine, rank = value[i], ZERO_RANK
        for stride in range(U(0), padded, STRIDE):
            for j in range(STRIDE):
                rank += np.int32(value[stride + j] < mine)
        ranks += rank
        order[U(rank)] = near[i]
    count_found = int(found)
    if ranks != count_found * (count_found - 1) // 2:  # somebody is as far as somebody else
        for i in range(found):
            mine, rank = value[i], ZERO_RANK
            for j in range(found):
                nearer = i4[KEY, base + U(near[j])] < i4[KEY, base + U(near[i])]
                rank += np.int32(value[j] < mine or (value[j] == mine and nearer))
            order[U(rank)] = near[i]
    return count_found

"""The stop lines that an agent sees: the next one that rules it (`compact/1`), or the nearest (S87, S88)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.observe_rows import F32, HALF, I32, ONE, U8, ZERO, F, signed
from skidpad.simulation.state import (
    COS,
    LANE,
    SIGNAL_COS,
    SIGNAL_NX,
    SIGNAL_NY,
    SIGNAL_REACH,
    SIGNAL_SIN,
    SIGNAL_X,
    SIGNAL_Y,
    SIGNAL_Z,
    SIN,
    X,
    Y,
    Z,
)

LIGHT, STOP_KIND, YIELD_KIND = 1, 2, 3
RED, YELLOW, GREEN = 1, 2, 3
PASSED = F(-5.0)  # m: a stop line further behind is no longer the next one
HALF_LINE = F(1.0 / 1.5)  # of `SIGNAL_REACH`, which is half of the line extended 1.5 times (S72)


class Lines(NamedTuple):
    """Stop lines of a scene at one state.

    line           (S, 8)   f32  columns of `state`
    kind, state    (S,)     u8   as in the scene
    offset, lane            CSR over S of the controlled lanes
    exit_offset, exit_lane  CSR over L of the road
    """

    line: F32
    kind: U8
    state: U8
    offset: I32
    lane: I32
    exit_offset: I32
    exit_lane: I32


@kernel
def next_line(
    a: int,
    f4: F32,
    i4: I32,
    line: F32,
    offset: I32,
    controlled: I32,
    exit_offset: I32,
    exit_lane: I32,
    gate: np.float32,
    reach: np.float32,
) -> int:
    """The stop line that rules agent a's lane or one of its exits: the nearest not yet passed, ties by number; -1 where
    there is none."""
    lane = i4[LANE, a]
    best, least = -1, reach * reach
    if lane < 0:
        return best
    for s in range(line.shape[0]):
        dx, dy = line[s, SIGNAL_X] - f4[X, a], line[s, SIGNAL_Y] - f4[Y, a]
        square = dx * dx + dy * dy
        if square >= least or abs(line[s, SIGNAL_Z] - f4[Z, a]) > gate:
            continue
        if dx * line[s, SIGNAL_NX] + dy * line[s, SIGNAL_NY] < PASSED:
            continue
        rules = False
        for c in range(offset[s], offset[s + 1]):
            if controlled[c] == lane:
                rules = True
            for e in range(exit_offset[lane], exit_offset[lane + 1]):
                if exit_lane[e] == controlled[c]:
                    rules = True
        if rules:
            best, least = s, square
    return best


@kernel
def observe_next_line(
    a: int, f4: F32, line: F32, kinds: U8, states: U8, best: int, scale: np.float32, out: F32, o: int
) -> None:
    """Write the 8 numbers of the signal block of `compact/1`: stop line `best`, -1 = none."""
    for k in range(8):
        out[o + k] = ZERO
    if best < 0:
        return
    cosine, sine = f4[COS, a], f4[SIN, a]
    dx, dy = line[best, SIGNAL_X] - f4[X, a], line[best, SIGNAL_Y] - f4[Y, a]
    out[o] = signed((dx * cosine + dy * sine) * scale)
    out[o + 1] = signed((dy * cosine - dx * sine) * scale)
    out[o + 2] = signed(line[best, SIGNAL_COS] * cosine + line[best, SIGNAL_SIN] * sine)
    out[o + 3] = signed(line[best, SIGNAL_SIN] * cosine - line[best, SIGNAL_COS] * sine)
    if kinds[best] == LIGHT:
        state = states[best]
        out[o + 4] = ONE if state == RED else ZERO
        out[o + 5] = ONE if state == YELLOW else ZERO
        out[o + 6] = ONE if state == GREEN else ZERO
    else:
        out[o + 7] = ONE if kinds[best] == STOP_KIND else HALF


@kernel
def nearest_lines(
    a: int, f4: F32, line: F32, gate: np.float32, reach: np.float32, slots: int, order: I32, square: F32
) -> int:
    """Write the nearest stop lines to agent a into `order`, by their middles, ties by number; returns how many are in
    reach.

    order, square   (>= slots,)  i32, f32   written
    """
    x, y, z = f4[X, a], f4[Y, a], f4[Z, a]
    found = 0
    for s in range(line.shape[0]):
        dx, dy = line[s, SIGNAL_X] - x, line[s, SIGNAL_Y] - y
        far = dx * dx + dy * dy
        if far > reach * reach or abs(line[s, SIGNAL_Z] - z) > gate:
            continue
        at = min(found, slots)
        found += 1
        while at > 0 and far < square[at - 1]:
            if at < slots:
                order[at], square[at] = order[at - 1], square[at - 1]
            at -= 1
        if at < slots:
            order[at], square[at] = s, far
    return found


@kernel
def observe_line(a: int, f4: F32, line: F32, s: int, scale: np.float32, z_scale: np.float32, out: F32, o: int) -> None:
    """Write both ends of stop line s, left then right, and its height, seen by agent a: five numbers."""
    cosine, sine = f4[COS, a], f4[SIN, a]
    x, y = line[s, SIGNAL_X] - f4[X, a], line[s, SIGNAL_Y] - f4[Y, a]
    half = line[s, SIGNAL_REACH] * HALF_LINE
    left_x, left_y = -line[s, SIGNAL_NY] * half, line[s, SIGNAL_NX] * half
    lx, ly, rx, ry = x + left_x, y + left_y, x - left_x, y - left_y
    out[o] = (lx * cosine + ly * sine) * scale
    out[o + 1] = (ly * cosine - lx * sine) * scale
    out[o + 2] = (rx * cosine + ry * sine) * scale
    out[o + 3] = (ry * cosine - rx * sine) * scale
    out[o + 4] = (line[s, SIGNAL_Z] - f4[Z, a]) * z_scale

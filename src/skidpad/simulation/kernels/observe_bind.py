"""What observing reads and writes, bound once per world or stretch; and rows made small for memory (S94)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.observe_rows import F32, I64, ONE, ONE_AT, ZERO, ZERO_AT, F, Sight, U
from skidpad.simulation.kernels.observe_self import Reach
from skidpad.simulation.kernels.observe_signals import Lines
from skidpad.simulation.kernels.slots import (
    f32_1,
    f32_2,
    f64_1,
    i8_2,
    i32_1,
    i64_1,
    u8_1,
    u8_2,
    u16_2,
)
from skidpad.simulation.slots import (
    B_LIGHT_START,
    B_LIGHTS,
    B_OBS8,
    B_OBS16,
    B_PACKING,
    S_EXIT_LANE,
    S_EXIT_OFFSET,
    S_LANE_LENGTH,
    S_REACH_LANE,
    S_REACH_METRES,
    S_REACH_START,
    S_SIGNAL,
    S_SIGNAL_KIND,
    S_SIGNAL_LANE,
    S_SIGNAL_OFFSET,
    T_HIDDEN,
    T_IDS,
    T_MARK,
    T_NEAR,
    T_PACKED,
    T_REACH,
    T_SLOTS,
    T_SQUARE,
    T_SQUARES,
    T_TAIL,
    T_TO_GOAL,
    T_VALUE,
)

I8 = NDArray[np.int8]
U16 = NDArray[np.uint16]
BFLOAT16, FLOAT16, INT8 = range(3)  # what a row becomes; -1 = it stays as it is
WORD_1, WORD_13, WORD_16 = np.uint32(1), np.uint32(13), np.uint32(16)
SIGN16, ODD16, INFINITE16, QUIET16 = np.uint32(0x8000), np.uint32(0x7FFF), np.uint32(0x7C00), np.uint32(0x7E00)
MAGNITUDE = np.uint32(0x7FFFFFFF)
LARGEST16, SMALLEST16, INFINITE32 = np.uint32(0x477FF000), np.uint32(0x38800000), np.uint32(0x7F800000)
REBIAS, ODD13 = np.uint32(112 << 23), np.uint32(0xFFF)
STEPS = F(127.0)


@kernel
def bind_sight(scratch: I64) -> Sight:
    """The working memory of a thread."""
    tail = f32_1(scratch, T_TAIL)
    tail[ONE_AT], tail[ZERO_AT] = ONE, ZERO
    return Sight(
        i32_1(scratch, T_IDS),
        f64_1(scratch, T_SQUARES),
        i32_1(scratch, T_NEAR),
        f32_1(scratch, T_VALUE),
        f32_1(scratch, T_SQUARE),
        f32_1(scratch, T_HIDDEN),
        f32_2(scratch, T_PACKED),
        i32_1(scratch, T_SLOTS),
        f32_1(scratch, T_REACH),
        tail,
        u8_1(scratch, T_MARK),
        f32_1(scratch, T_TO_GOAL),
    )


@kernel
def bind_lines(batch: I64, slot: I64, w: int, step: int) -> Lines:
    """The stop lines of a slot, with their states in world w at its present step."""
    lights, start = u8_2(batch, B_LIGHTS), i64_1(batch, B_LIGHT_START)
    return Lines(
        f32_2(slot, S_SIGNAL),
        u8_1(slot, S_SIGNAL_KIND),
        lights[step & 1, start[w] : start[w + 1]],
        i32_1(slot, S_SIGNAL_OFFSET),
        i32_1(slot, S_SIGNAL_LANE),
        i32_1(slot, S_EXIT_OFFSET),
        i32_1(slot, S_EXIT_LANE),
    )


@kernel
def bind_reach(slot: I64) -> Reach:
    """What leads to which lane of a slot."""
    return Reach(
        i64_1(slot, S_REACH_START), i32_1(slot, S_REACH_LANE), f32_1(slot, S_REACH_METRES), f32_1(slot, S_LANE_LENGTH)
    )


@kernel
def packing_of(batch: I64) -> int:
    """How rows are packed, -1 = not at all."""
    return int(i32_1(batch, B_PACKING)[0])


@kernel
def to_bfloat16(row: F32, out: U16) -> None:
    """Round to the nearest number whose lower 16 bits are zero, ties to even, and keep the upper ones."""
    bits = row.view(np.uint32)
    for k in range(U(row.shape[0])):
        word = bits[k]
        out[k] = np.uint16((word + ODD16 + ((word >> WORD_16) & WORD_1)) >> WORD_16)


@kernel
def to_float16(row: F32, out: U16) -> None:
    """Round to IEEE 754 binary16, nearest, ties to even; beyond 65,504 it is infinite."""
    bits = row.view(np.uint32)
    for k in range(U(row.shape[0])):
        word = bits[k]
        sign, size = (word >> WORD_16) & SIGN16, word & MAGNITUDE
        if size > INFINITE32:
            out[k] = np.uint16(sign | QUIET16)
        elif size >= LARGEST16:
            out[k] = np.uint16(sign | INFINITE16)
        elif size >= SMALLEST16:
            half = size - REBIAS
            out[k] = np.uint16(sign | ((half + ODD13 + ((half >> WORD_13) & WORD_1)) >> WORD_13))
        else:  # a subnormal half: whole units of 2^-24
            units = np.rint(abs(row[k]) * F(16777216.0))
            out[k] = np.uint16(sign | np.uint32(units))


@kernel
def to_int8(row: F32, out: I8) -> None:
    """Round to steps of 1/127; for values in [-1, 1]."""
    for k in range(U(row.shape[0])):
        out[k] = np.int8(np.rint(row[k] * STEPS))


@kernel
def pack_rows(batch: I64, packing: int, rows: F32, r0: int, r1: int) -> None:
    """Write rows (r1 - r0, D), which are of 32 bits, into the caller's rows r0 to r1, which are smaller."""
    for r in range(r0, r1):
        if packing == BFLOAT16:
            to_bfloat16(rows[r - r0], u16_2(batch, B_OBS16)[r])
        elif packing == FLOAT16:
            to_float16(rows[r - r0], u16_2(batch, B_OBS16)[r])
        else:
            to_int8(rows[r - r0], i8_2(batch, B_OBS8)[r])

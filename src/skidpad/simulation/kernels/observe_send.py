"""A finished observation row on its way into the caller's memory: copied, streamed, or made smaller (S94)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import address_of, store_eight
from skidpad.simulation.kernels.observe_rows import F32, I64, F, U
from skidpad.simulation.kernels.slots import f32_2, i8_2, i32_1, u16_2
from skidpad.simulation.slots import B_OBS, B_OBS8, B_OBS16, B_PACKING

I8 = NDArray[np.int8]
U16 = NDArray[np.uint16]
FLOAT32, BFLOAT16, FLOAT16, INT8, STREAMED = range(5)  # `results.PACKINGS`, and one that the kernel chooses
# Rows of a batch as large as this leave the caches before anybody reads them: they are written past the caches, which
# spares reading each line before it is overwritten.
STREAM_BYTES = 8 << 20
GROUP, HALF_GROUP = U(16), U(8)  # floats of a cache line, and of one store
LINE_MASK, FLOAT_SHIFT = U(63), U(2)
WORD_1, WORD_13, WORD_16 = np.uint32(1), np.uint32(13), np.uint32(16)
SIGN16, ODD16, INFINITE16, QUIET16 = np.uint32(0x8000), np.uint32(0x7FFF), np.uint32(0x7C00), np.uint32(0x7E00)
MAGNITUDE = np.uint32(0x7FFFFFFF)
LARGEST16, SMALLEST16, INFINITE32 = np.uint32(0x477FF000), np.uint32(0x38800000), np.uint32(0x7F800000)
REBIAS, ODD13 = np.uint32(112 << 23), np.uint32(0xFFF)
STEPS = F(127.0)


@kernel
def packing_of(batch: I64) -> int:
    """How rows are written."""
    packing = int(i32_1(batch, B_PACKING)[0])
    if packing == FLOAT32 and 4 * f32_2(batch, B_OBS).size >= STREAM_BYTES:
        return STREAMED
    return packing


@kernel
def send(batch: I64, packing: int, line: F32, r: int) -> None:
    """Write a row, which stands at the beginning of `line`, into row r of the caller's."""
    if packing == STREAMED:
        stream(line, f32_2(batch, B_OBS)[r])
    elif packing == FLOAT32:
        out = f32_2(batch, B_OBS)[r]
        for k in range(U(out.shape[0])):
            out[k] = line[k]
    elif packing == BFLOAT16:
        to_bfloat16(line, u16_2(batch, B_OBS16)[r])
    elif packing == FLOAT16:
        to_float16(line, u16_2(batch, B_OBS16)[r])
    else:
        to_int8(line, i8_2(batch, B_OBS8)[r])


@kernel
def stream(line: F32, out: F32) -> None:
    """Copy past the caches: whole cache lines at a time, as they take no others."""
    size = U(out.shape[0])
    lead = min(((U(64) - (address_of(out) & LINE_MASK)) & LINE_MASK) >> FLOAT_SHIFT, size)
    for k in range(lead):
        out[k] = line[k]
    groups = (size - lead) // GROUP
    for group in range(groups):
        k = lead + group * GROUP
        store_eight(line, k, out)
        store_eight(line, k + HALF_GROUP, out)
    for k in range(lead + groups * GROUP, size):
        out[k] = line[k]


@kernel
def to_bfloat16(line: F32, out: U16) -> None:
    """Round to the nearest number whose lower 16 bits are zero, ties to even, and keep the upper ones."""
    bits = line.view(np.uint32)
    for k in range(U(out.shape[0])):
        word = bits[k]
        out[k] = np.uint16((word + ODD16 + ((word >> WORD_16) & WORD_1)) >> WORD_16)


@kernel
def to_float16(line: F32, out: U16) -> None:
    """Round to IEEE 754 binary16, nearest, ties to even; beyond 65,504 it is infinite."""
    bits = line.view(np.uint32)
    for k in range(U(out.shape[0])):
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
            units = np.rint(abs(line[k]) * F(16777216.0))
            out[k] = np.uint16(sign | np.uint32(units))


@kernel
def to_int8(line: F32, out: I8) -> None:
    """Round to steps of 1/127; for values in [-1, 1]."""
    for k in range(U(out.shape[0])):
        out[k] = np.int8(np.rint(line[k] * STEPS))

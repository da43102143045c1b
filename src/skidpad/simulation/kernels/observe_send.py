"""A finished observation row on its way into the caller's memory: copied, streamed, or made smaller (S94)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import (
    CHECKED,
    COMPILED,
    address_of,
    store_eight,
    store_four,
    stream_sevens,
    stream_sevens_led,
)
from skidpad.simulation.kernels.observe_rows import F32, I64, F, U, clear
from skidpad.simulation.kernels.slots import f32_2, i8_2, i32_1, u16_2
from skidpad.simulation.slots import B_OBS, B_OBS8, B_OBS16, B_PACKING

I8 = NDArray[np.int8]
U16 = NDArray[np.uint16]
FLOAT32, BFLOAT16, FLOAT16, INT8, STREAMED = range(5)  # `results.PACKINGS`, and one that the kernel chooses
# Rows of a batch as large as this leave the caches before anybody reads them: they are written past the caches, which
# spares reading each line before it is overwritten.
STREAM_BYTES = 8 << 20
VECTOR, LEAD = U(8), U(4)  # floats of one store, and of half a one
VECTOR_BYTES, HALF_BYTES, FLOAT_SHIFT = U(32), U(16), U(2)
SEVEN, EIGHT_ROWS = U(7), U(56)
NOTHING = np.zeros(8, np.float32)
DIRECT = COMPILED and not CHECKED
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
def lead_of(out: F32, k: Any, unit: Any) -> Any:
    """How many floats from out[k] on stand before the next multiple of `unit` bytes."""
    return (
        (U(unit) - ((address_of(out) + (U(k) << FLOAT_SHIFT)) & (U(unit) - U(1)))) & (U(unit) - U(1))
    ) >> FLOAT_SHIFT


@kernel
def stream(line: F32, out: F32) -> None:
    """Copy a row past the caches."""
    stream_part(line, U(1), U(0), U(out.shape[0]), out)


@kernel
def stream_part(source: F32, step: Any, start: Any, stop: Any, out: F32) -> None:
    """Write out[start:stop] past the caches: with a step of 1 the same part of `source`, with a step of 0 its first
    eight numbers over and over. What is less than half a vector at either end goes through the caches."""
    whole = min(start + lead_of(out, start, HALF_BYTES), stop)
    for k in range(start, whole):
        out[k] = source[k * step]
    if stop - whole >= LEAD and lead_of(out, whole, VECTOR_BYTES) == LEAD:
        store_four(source, whole * step, out, whole)
        whole += LEAD
    rest = stop - (stop - whole) % VECTOR
    for k in range(whole, rest, VECTOR):
        store_eight(source, k * step, out, k)
    if stop - rest >= LEAD:
        store_four(source, rest * step, out, rest)
        rest += LEAD
    for k in range(rest, stop):
        out[k] = source[k * step]


@kernel
def sevens_fit(packing: int, width: int, slots: int, obs: F32, r: int, road_at: int) -> bool:
    """Whether `stream_road` may write row r of `obs`: rows are streamed, the slots of road rows are eights of seven
    numbers, and they begin where a vector does or in the middle of one."""
    lead = lead_of(obs, U(r) * U(obs.shape[1]) + U(road_at), VECTOR_BYTES)
    fits = width == SEVEN and U(slots) % VECTOR == U(0)
    return DIRECT and packing == STREAMED and fits and (lead == U(0) or lead == LEAD)


@kernel
def stream_head(line: F32, written: int, stop: int, out: F32) -> None:
    """Write out[:stop] past the caches: line[:written], and zeros; the next eight numbers of `line` are lost."""
    clear(line, written, written + VECTOR)
    begin = min(U(written) + lead_of(out, written, VECTOR_BYTES), U(stop))
    stream_part(line, U(1), U(0), begin, out)
    stream_part(NOTHING, U(0), begin, U(stop), out)


@kernel
def stream_road(
    row: F32,
    ids: Any,
    count: int,
    x: np.float32,
    y: np.float32,
    scale: np.float32,
    cosine: np.float32,
    sine: np.float32,
    start: int,
    slots: int,
    out: F32,
) -> None:
    """Write out[start:] past the caches: the rows `ids`, seven numbers each, as `observe_road.write_road` with pair 4
    and without heights or bounds, which go from registers to memory (`machine.stream_sevens`); then zeros.

    ids  (>= count,)  u16 or i32
    """
    begin, shown = U(start), U(min(count, slots))
    if shown > U(0):
        if lead_of(out, begin, VECTOR_BYTES) == U(0):
            stream_sevens(row, ids, shown, x, y, scale, cosine, sine, out, begin)
        else:
            stream_sevens_led(row, ids, shown, x, y, scale, cosine, sine, out, begin)
    begin += (shown + VECTOR - U(1)) // VECTOR * EIGHT_ROWS
    stream_part(NOTHING, U(0), begin, U(out.shape[0]), out)


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

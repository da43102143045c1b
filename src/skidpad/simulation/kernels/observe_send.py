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
    stream_sevens,
    stream_sevens_led,
)
from skidpad.simulation.kernels.observe_rows import F32, I32, I64, INFINITE, ONE, ZERO, F, U, clear
from skidpad.simulation.kernels.observe_turn import turn
from skidpad.simulation.kernels.slots import f32_2, i8_2, i32_1, u16_2
from skidpad.simulation.slots import B_OBS, B_OBS8, B_OBS16, B_PACKING

I8 = NDArray[np.int8]
U16 = NDArray[np.uint16]
FLOAT32, BFLOAT16, FLOAT16, INT8, STREAMED = range(5)  # `results.PACKINGS`, and one that the kernel chooses
# Rows of a batch as large as this leave the caches before anybody reads them: they are written past the caches, which
# spares reading each line before it is overwritten.
STREAM_BYTES = 8 << 20
GROUP, VECTOR = U(16), U(8)  # floats of a cache line, and of one store
LINE_BYTES, VECTOR_BYTES, FLOAT_SHIFT = U(64), U(32), U(2)
SEVEN, EIGHT_ROWS, LEAD = U(7), U(56), U(4)
DIRECT = COMPILED and not CHECKED
LOWEST = F(-np.inf)
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
    """Copy past the caches: whole cache lines at a time, as they take no others."""
    size = U(out.shape[0])
    lead = min(lead_of(out, 0, LINE_BYTES), size)
    last = size - (size - lead) % GROUP
    copy(line, U(0), lead, out)
    copy_past(line, lead, last, out)
    copy(line, last, size, out)


@kernel
def copy(line: F32, start: Any, stop: Any, out: F32) -> None:
    """Copy line[start:stop] to the same place of `out`."""
    for k in range(start, stop):
        out[k] = line[k]


@kernel
def copy_past(line: F32, start: Any, stop: Any, out: F32) -> None:
    """The same past the caches; out[start] stands at a multiple of 32 bytes, and stop - start is a multiple of 8."""
    for k in range(start, stop, VECTOR):
        store_eight(line, k, out)


@kernel
def sevens_fit(packing: int, width: int, obs: F32, r: int, road_at: int) -> bool:
    """Whether `stream_road` may write row r of `obs`: rows are streamed, road rows are seven numbers, and they begin
    where a vector does or in the middle of one."""
    lead = lead_of(obs, U(r) * U(obs.shape[1]) + U(road_at), VECTOR_BYTES)
    return DIRECT and packing == STREAMED and width == SEVEN and (lead == U(0) or lead == LEAD)


@kernel
def stream_road(
    row: F32,
    ids: I32,
    count: int,
    x: np.float32,
    y: np.float32,
    scale: np.float32,
    cosine: np.float32,
    sine: np.float32,
    line: F32,
    road_at: int,
    slots: int,
    out: F32,
) -> None:
    """Write an observation whose road rows, seven numbers each, are its last block, past the caches: first what stands
    in line[:road_at], then the rows `ids`, as `observe_road.write_road` with pair 4 and without heights or bounds.

    All but the last rows go from registers to memory (`machine.stream_sevens`); `line` takes those.
    """
    size, begin = U(out.shape[0]), U(road_at)
    shown = U(min(count, slots))
    eights = (max(shown, U(1)) - U(1)) // VECTOR
    lead = lead_of(out, road_at, VECTOR_BYTES)
    o = begin + eights * EIGHT_ROWS
    for k in range(eights * VECTOR, shown):
        turn(4, row, U(ids[k]), x, y, ZERO, ZERO, ZERO, scale, ONE, cosine, sine, LOWEST, INFINITE, line, o)
        o += SEVEN
    clear(line, o, size)
    if eights == U(0):
        stream(line, out)
        return
    turn(4, row, U(ids[0]), x, y, ZERO, ZERO, ZERO, scale, ONE, cosine, sine, LOWEST, INFINITE, line, begin)
    edge = lead_of(out, 0, LINE_BYTES)
    begin += lead
    copy(line, U(0), edge, out)
    copy_past(line, edge, begin, out)
    if lead == U(0):
        stream_sevens(row, ids, eights, x, y, scale, cosine, sine, out, begin)
    else:
        stream_sevens_led(row, ids, eights, x, y, scale, cosine, sine, out, begin)
    begin += eights * EIGHT_ROWS
    last = max(begin, size - (size - edge) % GROUP)
    copy_past(line, begin, last, out)
    copy(line, last, size, out)


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

"""What is kept of an episode for its rows (S114), and the watch over finite states (S116)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import first_bit
from skidpad.simulation.state import CLIPPED, LANE_LIMIT, LIVE

Bool = NDArray[np.bool_]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

NO_BITS, MAGNITUDE, INFINITE = np.int32(0), np.int32(0x7FFFFFFF), np.int32(0x7F800000)
NO_EVENT, ONE_EVENT = np.uint64(0), np.uint64(1)
SIX = 6
ONE, TWO, THREE, FOUR, FIVE = (np.uintp(n) for n in range(1, SIX))


@kernel
def size(f4_bits: I32, field: Any, a: Any) -> Any:
    """The bits of a field without their sign; 0 for a lane's limit. Not widened, so that eight fit a vector."""
    return np.int32(f4_bits[field, a] & (NO_BITS if field == LANE_LIMIT else MAGNITUDE))


@kernel
def broken_agent(f4_bits: I32, first: int, end: int) -> int:
    """The first agent in [first, end) with a state that is not finite, else -1. NaN as a lane's limit means unknown.

    f4_bits  (fields, A) i32   the float block's bits: without its sign, a float that is not finite is the bits of
                               infinity or more, and a greatest integer is found eight at a time
    """
    greatest = np.int32(0)
    fields = f4_bits.shape[0]
    for n in range(0, fields, SIX):
        k = np.uintp(min(n, fields - SIX))  # the last six may overlap those before
        for a in range(np.uintp(first), np.uintp(end)):
            low = max(size(f4_bits, k, a), size(f4_bits, k + ONE, a))
            middle = max(size(f4_bits, k + TWO, a), size(f4_bits, k + THREE, a))
            high = max(size(f4_bits, k + FOUR, a), size(f4_bits, k + FIVE, a))
            greatest = max(greatest, max(low, max(middle, high)))
    if greatest < INFINITE:
        return -1
    for a in range(first, end):
        for field in range(f4_bits.shape[0]):
            if field != LANE_LIMIT and f4_bits[field, a] & MAGNITUDE >= INFINITE:
                return a
    return -1


@kernel
def count_events(first: int, end: int, step: int, events: U32, count: I32, earliest: I32) -> None:
    """Count the events of the agents [first, end) in a step, and note when each kind came first.

    events           (A,)               u32
    count, earliest  (len(Event), A)    i32   how often, and in which step first, 0 = never; written
    """
    for a in range(first, end):
        bits = np.uint64(events[a])
        while bits != NO_EVENT:
            kind = first_bit(bits)
            bits &= bits - ONE_EVENT
            count[kind, a] += 1
            if earliest[kind, a] == 0:
                earliest[kind, a] = step


@kernel
def add_rows(
    first: int,
    end: int,
    flags: Bool,
    reward: F32,
    terms: F32,
    overflow: I32,
    reward_sum: F64,
    term_sum: F64,
    overflow_sum: I64,
    clipped_sum: I32,
) -> None:
    """Add what the rows [first, end) got in a step to the sums of their episode. Rows that are not live got nothing:
    they are silent, all zeros, so nobody asks, and the rows are one stretch of numbers.

    reward_sum (N,) f64, term_sum (N, K) f64, overflow_sum (N, blocks) i64, clipped_sum (N,) i32   written
    """
    for r in range(np.uintp(first), np.uintp(end)):
        reward_sum[r] += reward[r]
        clipped_sum[r] += np.int32(flags[CLIPPED, r] & flags[LIVE, r])
    width, blocks = terms.shape[1], overflow.shape[1]
    term, term_total = terms.reshape(terms.size), term_sum.reshape(term_sum.size)
    for k in range(np.uintp(first * width), np.uintp(end * width)):
        term_total[k] += term[k]
    over, over_total = overflow.reshape(overflow.size), overflow_sum.reshape(overflow_sum.size)
    for k in range(np.uintp(first * blocks), np.uintp(end * blocks)):
        over_total[k] += over[k]

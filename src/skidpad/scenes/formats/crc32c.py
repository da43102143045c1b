"""CRC-32C, the checksum of TFRecord files (R18): Castagnoli polynomial, reflected, in numpy.

Long data are cut into pieces of equal length whose sums grow side by side, a byte of each at a time. They are joined
because a sum is linear: what follows it only moves it along, by a fixed map of its four bytes.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_PIECE = 512
_SHORT = 4096  # below this the loop over bytes is faster than setting up pieces


def crc32c(data: bytes | memoryview) -> int:
    """The sum of some bytes."""
    if len(data) < _SHORT:
        return _rest(data, 0xFFFFFFFF) ^ 0xFFFFFFFF
    count = len(data) // _PIECE
    pieces = np.frombuffer(data, np.uint8, count * _PIECE).reshape(count, _PIECE).T.astype(np.uint32)
    state = np.zeros(count, np.uint32)
    state[0] = 0xFFFFFFFF
    table = _table()
    for column in pieces:
        state = table[(state ^ column) & 0xFF] ^ (state >> 8)
    one, two, three, four = _beyond_a_piece()
    total, *others = state.tolist()
    for other in others:
        total = one[total & 0xFF] ^ two[total >> 8 & 0xFF] ^ three[total >> 16 & 0xFF] ^ four[total >> 24] ^ other
    return _rest(data[count * _PIECE :], total) ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """A sum as TFRecord files store it: rotated and moved, so that a sum over sums stays a good one."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _rest(data: bytes | memoryview, state: int) -> int:
    table = _small_table()
    for byte in bytes(data):
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


@cache
def _table() -> U32:
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = np.where(state & 1, state >> 1 ^ np.uint32(_POLYNOMIAL), state >> 1).astype(np.uint32)
    return state


@cache
def _small_table() -> list[int]:
    return [int(value) for value in _table()]


@cache
def _beyond_a_piece() -> list[list[int]]:
    """What _PIECE zero bytes make of each value of each of the four bytes of a sum."""
    state = (np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]).astype(np.uint32)
    table = _table()
    for _ in range(_PIECE):
        state = table[state & 0xFF] ^ (state >> 8)
    return [[int(value) for value in row] for row in state]

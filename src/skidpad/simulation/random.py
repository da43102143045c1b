"""Random numbers that depend on who needs them and for what, never on who asked first.

A draw is a pure function of (world seed, episode, agent, step, purpose, index): Philox 4x32-10 (Salmon, Moraes, Dror,
Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"), keyed by the world seed, with the rest as its counter. There
is no state to save, to share or to advance, so batches, threads and order cannot matter. `agent` is the agent's stable
key (its track or spawn number), not its slot.

The scalar functions are kernels; `uniform_array` and `words_array` are the same numbers for whole arrays in NumPy.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.compile import kernel


class Purpose(IntEnum):
    """What a number is drawn for. Numbers are part of every result: append, never renumber."""

    POPULATION = 0
    SIZE = 1
    SPAWN = 2
    ROUTE = 3
    GOAL = 4
    COEF = 5
    SIGNAL = 6
    START = 7
    BLIND = 8
    BRAKE = 9
    DROPOUT = 10
    CONTROLLER = 11
    CHOICE = 12


_MULTIPLY_0 = np.uint64(0xD2511F53)
_MULTIPLY_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_16 = np.uint64(16)
_8 = np.uint64(8)
_UNIT = np.float32(2.0**-24)


# Words are u64 scalars in kernels and u64 arrays in NumPy: no one type says both, hence Any.


@kernel
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> tuple[Any, Any, Any, Any]:
    """Philox 4x32-10 of a counter and a key; all words are u64 below 2^32 (scalars in kernels, arrays in NumPy)."""
    for _ in range(10):
        p0 = _MULTIPLY_0 * c0
        p1 = _MULTIPLY_1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@kernel
def words(seed: int, episode: int, agent: int, step: int, purpose: int, index: int) -> tuple[Any, Any, Any, Any]:
    """Four independent 32-bit words, as u64.

    seed     u64             of the world
    episode, agent, step     in [0, 2^32)
    purpose, index           in [0, 2^16) each
    """
    key = np.uint64(seed)
    return philox(
        np.uint64(episode),
        np.uint64(agent),
        np.uint64(step),
        (np.uint64(purpose) << _16) | np.uint64(index),
        key & _LOW,
        key >> _32,
    )


@kernel
def unit(word: Any) -> Any:
    """A 32-bit word as f32 in [0, 1), from its upper 24 bits, so that every value is exact."""
    return np.float32(word >> _8) * _UNIT


@kernel
def below(word: Any, count: int) -> Any:
    """A 32-bit word as an integer in [0, count), by multiply and shift; count below 2^32."""
    return np.int64((word * np.uint64(count)) >> _32)


@kernel
def uniform(seed: int, episode: int, agent: int, step: int, purpose: int, index: int) -> Any:
    """The f32 in [0, 1) of a draw: its first word."""
    return unit(words(seed, episode, agent, step, purpose, index)[0])


@kernel
def integer(seed: int, episode: int, agent: int, step: int, purpose: int, index: int, count: int) -> Any:
    """The integer in [0, count) of a draw: its first word."""
    return below(words(seed, episode, agent, step, purpose, index)[0], count)


def words_array(seed: Any, episode: Any, agent: Any, step: Any, purpose: Any, index: Any) -> NDArray[np.uint32]:
    """`words` over arrays that broadcast: (4, ...) u32."""
    key, *counter = np.broadcast_arrays(
        *(np.asarray(part, np.uint64) for part in (seed, episode, agent, step, purpose, index))
    )
    episode, agent, step, purpose, index = counter
    plain = getattr(philox, "py_func", philox)  # The same lines, run by NumPy on whole arrays.
    found = plain(episode, agent, step, (purpose << _16) | index, key & _LOW, key >> _32)
    return np.stack(found).astype(np.uint32)


def uniform_array(seed: Any, episode: Any, agent: Any, step: Any, purpose: Any, index: Any) -> NDArray[np.float32]:
    """`uniform` over arrays that broadcast: (...) f32."""
    first = words_array(seed, episode, agent, step, purpose, index)[0]
    return np.asarray((first >> np.uint32(8)).astype(np.float32) * _UNIT)

"""Drawing the coefficients of an episode, by each agent's key (S95)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.coefficients import (
    DEFAULT,
    DEFAULT_SEEN,
    HIGH,
    KIND,
    LOG,
    LOG_RATIO,
    LOW,
    MIXED,
    SEEN,
)
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.trig import exponential
from skidpad.simulation.random import Purpose, unit, words

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
ONE, TWO = F(1.0), F(2.0)
COEF = int(Purpose.COEF)
COIN = np.uint64(1)


@kernel
def draw_coefficients(a0: int, a1: int, seed: int, episode: int, key: I32, drawn: U8, table: F32, coef: F32) -> None:
    """Write the coefficients of the agents [a0, a1) of a world for an episode.

    key     (A,)     i32   stable names
    drawn   (A,)     u8    1 where the agent draws its own, else it has the settings'
    table   (18, 6)  f32   `coefficients.coefficient_table`
    coef    (36, A)  f32   written: values, then what is seen of them
    """
    for a in range(a0, a1):
        for c in range(table.shape[0]):
            low, high = table[c, LOW], table[c, HIGH]
            if drawn[a] == 0:
                coef[c, a], coef[SEEN + c, a] = table[c, DEFAULT], table[c, DEFAULT_SEEN]
                continue
            word, coin, _, _ = words(seed, episode, key[a], 0, COEF, c)
            u = unit(word)
            if table[c, KIND] == MIXED:
                value = ONE + u * (high - ONE) if coin & COIN else low + u * (ONE - low)
                share = (value - low) / (high - low)
            elif table[c, KIND] == LOG:
                value, share = low * exponential(u * table[c, LOG_RATIO]), u
            else:
                value, share = low + u * (high - low), u
            coef[c, a], coef[SEEN + c, a] = value, TWO * share - ONE

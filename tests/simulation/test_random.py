"""Random numbers that depend on who needs them and for what (S32, S33)."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.simulation import random
from skidpad.simulation.random import Purpose

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
U16 = st.integers(0, 2**16 - 1)

# First word of draw(seed 2025, episode 1, agent 2, step 3, purpose, index 4).
GOLDEN = {
    "POPULATION": 0x9390E9F3,
    "SIZE": 0x0E5C4A82,
    "SPAWN": 0xA7837901,
    "ROUTE": 0x6FEDA2E0,
    "GOAL": 0x75D9EE21,
    "COEF": 0x45543FF8,
    "SIGNAL": 0x66E72891,
    "START": 0x42D38240,
    "BLIND": 0x72411EEF,
    "BRAKE": 0x9CF96434,
    "DROPOUT": 0x55957F98,
    "CONTROLLER": 0xB40B3CE2,
    "CHOICE": 0x78FFA02F,
}


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter, key, expected):
    """The three published vectors: a transposed word would still look random."""
    assert tuple(map(int, random.philox(*map(np.uint64, (*counter, *key))))) == expected
    assert naive.philox(counter, key) == expected


@settings(max_examples=200, deadline=None)
@given(U64, U32, U32, U32, U16, U16)
def test_words_equal_the_twin(seed, episode, agent, step, purpose, index):
    """The kernel, the NumPy version and Python integers give the same words for every input in range (S32)."""
    expected = naive.words(seed, episode, agent, step, purpose, index)
    place = (episode, agent, step, purpose, index)
    assert tuple(map(int, random.words(np.uint64(seed), *map(np.int64, place)))) == expected
    assert tuple(map(int, random.words_array(seed, *place))) == expected


def test_arrays_broadcast_to_the_same_numbers():
    """One call for many agents draws what each agent would draw alone: batches must not matter (S34)."""
    agents, steps = np.arange(5), np.arange(3)[:, None]
    many = random.uniform_array(7, 0, agents, steps, Purpose.SPAWN, 1)
    for (step, agent), value in np.ndenumerate(many):
        assert value == np.float32(random.uniform(np.uint64(7), 0, agent, step, int(Purpose.SPAWN), 1))


def test_unit_and_below_stay_in_range():
    """The largest word must give a number below 1 and an integer below the count."""
    assert float(random.unit(np.uint64(0))) == 0.0
    assert float(random.unit(np.uint64(2**32 - 1))) == 1 - 2.0**-24
    assert int(random.below(np.uint64(2**32 - 1), 10)) == 9
    assert int(random.below(np.uint64(0), 10)) == 0
    assert int(random.integer(np.uint64(3), 0, 0, 0, 0, 0, 1)) == 0


def test_purposes_keep_their_numbers():
    """Golden draws: renumbering a purpose, or adding one in the middle, would change every recorded result (S33)."""
    drawn = {p.name: int(random.words_array(2025, 1, 2, 3, p, 4)[0]) for p in Purpose}
    assert drawn == GOLDEN


def test_no_two_places_share_a_stream():
    """Any two of (episode, agent, step, purpose, index) that differ in one place give unrelated words."""
    place = [1, 2, 3, 4, 5]
    seen = {tuple(random.words_array(9, *place))}
    for k in range(5):
        for value in range(200):
            seen.add(tuple(random.words_array(9, *place[:k], 1000 + value, *place[k + 1 :])))
    assert len(seen) == 1001


@pytest.mark.parametrize("purpose", Purpose)
def test_uniforms_are_uniform(purpose):
    """Chi-square over 64 bins along agents, steps and indices; the bound is exceeded once in 10^6 by chance."""
    for draws in (
        random.uniform_array(1, 0, np.arange(20_000), 0, purpose, 0),
        random.uniform_array(1, 0, 0, np.arange(20_000), purpose, 0),
        random.uniform_array(np.arange(20_000), 0, 0, 0, purpose, 0),
    ):
        expected = len(draws) / 64
        chi_square = (((np.bincount((draws * 64).astype(int), minlength=64)) - expected) ** 2 / expected).sum()
        assert 20 < chi_square < 129  # 63 degrees of freedom

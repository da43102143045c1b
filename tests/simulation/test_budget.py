"""Exact agent budgets (S53): sums always fit, bounds always hold, and what cannot be is an error before it starts."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.errors import SettingsError
from skidpad.simulation.budget import cut_budget, fill_worlds


def test_a_thousand_random_budgets_are_met_exactly():
    """S53: for 1,000 random (B, min, max) the sizes add up to B and none leaves [min, max], or no sizes exist and the
    error says so; whether they exist is decided by trying all numbers of worlds."""
    random = np.random.default_rng(53)
    met, refused = 0, 0
    for case in range(1000):
        low = int(random.integers(1, 40))
        high = low + int(random.integers(0, 40))
        budget = int(random.integers(1, 3000 if case % 2 else 90))
        possible = [n for n in range(1, budget + 1) if n * low <= budget <= n * high]
        asked = None if case % 3 else int(random.integers(1, 30))
        fits = bool(possible) if asked is None else asked in possible
        if not fits:
            with pytest.raises(SettingsError, match=f"budget of {budget}"):
                cut_budget(budget, low, high, seed=case, worlds=asked)
            refused += 1
            continue
        count = cut_budget(budget, low, high, seed=case, worlds=asked)
        assert count.sum() == budget
        assert ((count >= low) & (count <= high)).all()
        assert len(count) in possible
        assert asked is None or len(count) == asked
        met += 1
    assert met > 400
    assert refused > 50


def test_sizes_are_drawn_evenly():
    """S53: U[min, max]: over a large budget every size occurs about as often."""
    count = cut_budget(200_000, 8, 24, seed=1)
    often = np.bincount(count, minlength=25)[8:]
    assert len(often) == 17
    assert often.min() > 0.75 * often.mean()
    assert (cut_budget(200_000, 8, 24, seed=1) == count).all()
    assert (cut_budget(200_000, 8, 24, seed=2)[:50] != count[:50]).any()


@pytest.mark.parametrize(("low", "high"), [(0, 3), (4, 3)])
def test_bounds_that_are_none(low, high):
    """S53: a minimum of nobody, or above the maximum, is refused with both numbers."""
    with pytest.raises(SettingsError, match=f"{low} to {high}"):
        cut_budget(12, low, high, seed=0)


def test_worlds_of_logs_are_filled_to_the_budget():
    """S53: scenes come in their order, again and again, those without anybody are passed over, and only the last world
    is limited; for 1,000 random sets the limits add up exactly."""
    random = np.random.default_rng(7)
    for _ in range(1000):
        rows = random.integers(0, 9, int(random.integers(1, 12)))
        rows[random.integers(0, len(rows))] = 3
        budget = int(random.integers(1, 200))
        case, limit = fill_worlds(budget, rows.tolist(), [str(n) for n in range(len(rows))])
        assert limit.sum() == budget
        assert (limit[:-1] == rows[case[:-1]]).all()
        assert 1 <= limit[-1] <= rows[case[-1]]
        usable = np.flatnonzero(rows)
        assert (case == np.resize(usable, len(case))).all()


def test_nobody_to_control_is_an_error_naming_the_maps():
    """S53: a set without any controllable agent ends in a sentence, never in a loop (peer: an endless one)."""
    with pytest.raises(SettingsError, match=r"empty-1, empty-2"):
        fill_worlds(8, [0, 0], ["empty-1", "empty-2"])
    with pytest.raises(SettingsError, match="budget of 0"):
        fill_worlds(0, [2], ["one"])

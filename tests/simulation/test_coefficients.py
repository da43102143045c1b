"""Coefficients: ranges, draws by key, and what an agent sees of its own (S42, S95)."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.settings.schema import CompatSettings, EnvSettings, RewardSettings
from skidpad.simulation import coefficients as c
from skidpad.simulation.coefficients import COEFFICIENTS, coefficient_table, seen
from skidpad.simulation.kernels.coefficients import draw_coefficients
from skidpad.simulation.random import Purpose, words_array

AGENTS = 20_000


def drawn(settings, *, keys=None, seed=7, episode=0, randomise=True):
    """(36, A) coefficients of the agents with these keys."""
    keys = np.arange(AGENTS, dtype=np.int32) if keys is None else np.asarray(keys, np.int32)
    coef = np.full((c.COEF_ROWS, len(keys)), np.nan, np.float32)
    drawn_by_all = np.full(len(keys), randomise, np.uint8)
    draw_coefficients(0, len(keys), seed, episode, keys, drawn_by_all, coefficient_table(settings), coef)
    return coef


def test_the_table_is_that_of_the_specification():
    """S95: names, order and ranges; a conditioned checkpoint reads them by position."""
    assert [(one.name, round(one.low, 6), round(one.high, 6)) for one in COEFFICIENTS] == [
        ("goal radius", 2, 12),
        ("goal speed", 0, 20),
        ("collision", 0, 3),
        ("off-road", 0, 3),
        ("comfort", 1e-5, 0.1),
        ("lane align", 2.5e-4, 2.5e-2),
        ("velocity align", 0, 1),
        ("lane centre", 2.5e-4, 7.5e-3),
        ("centre bias", -0.5, 0.5),
        ("velocity", 0, 5e-3),
        ("reverse", 2.5e-4, 7.5e-3),
        ("stop line", 0, 1),
        ("timestep", 0, 5e-5),
        ("overspeed", 0, 1),
        ("throttle", 0.8, 1.25),
        ("steer", 0.8, 1.25),
        ("acceleration", 0.666667, 1.5),
        ("speed", 0.666667, 1.5),
    ]
    starred = [one.name for one in COEFFICIENTS if one.may_be_log]
    assert starred == ["comfort", "lane align", "lane centre", "reverse"]


@pytest.mark.parametrize("kind", [c.UNIFORM, c.LOG])
def test_end_points_are_seen_as_one(kind):
    """S95: the ends of a range are seen as -1 and 1, its middle as 0 (on the scale it is drawn on), and what lies
    beyond as the ends."""
    for one in COEFFICIENTS:
        if kind == c.LOG and not one.may_be_log:
            continue
        middle = np.sqrt(one.low * one.high) if kind == c.LOG else (one.low + one.high) / 2
        got = [seen(one, value, kind) for value in (one.low, middle, one.high, one.low - 1, one.high + 1)]
        assert got == pytest.approx([-1, 0, 1, -1, 1], abs=1e-9)


def test_without_randomisation_everybody_has_the_settings():
    """S95, S100: defaults reach every agent to the bit, and a vehicle's own coefficients are exactly 1, so that nothing
    is scaled."""
    settings = EnvSettings(goal_radius=3.5, goal_speed=1.5, reward=RewardSettings(comfort=0.02, centre_bias=-0.1))
    coef = drawn(settings, keys=range(5), randomise=False)
    assert (coef == coef[:, :1]).all()
    assert coef[c.C_GOAL_RADIUS, 0] == np.float32(3.5)
    assert coef[c.C_GOAL_SPEED, 0] == np.float32(1.5)
    assert coef[c.C_COMFORT, 0] == np.float32(0.02)
    assert coef[c.C_CENTRE_BIAS, 0] == np.float32(-0.1)
    assert (coef[[c.C_THROTTLE, c.C_STEER, c.C_ACCELERATION, c.C_SPEED]] == 1).all()
    assert coef[c.SEEN + c.C_CENTRE_BIAS, 0] == pytest.approx(-0.2)


def test_v2_weights():
    """S98: `compat.reward = v2` knows two weights, whatever the settings say of others; goals keep theirs."""
    coef = drawn(EnvSettings(compat=CompatSettings(reward="v2")), keys=range(1), randomise=False)[:18, 0]
    rewards = [row for row, one in enumerate(COEFFICIENTS) if one.key.startswith("reward.")]
    assert {COEFFICIENTS[row].name: coef[row] for row in rewards if coef[row]} == {
        "collision": np.float32(0.5),
        "off-road": np.float32(0.2),
    }
    assert coef[c.C_GOAL_RADIUS] == 2


@pytest.mark.parametrize("log", [False, True])
def test_draws_fill_their_ranges_evenly(log):
    """S42, S95: each coefficient is even over its range, in its logarithm where asked, or a fair coin between the two
    sides of 1 and even on each; what is seen is the map of what was drawn. Chi-square over 20 bins."""
    coef = drawn(EnvSettings(log_coefficients=log))
    for row, one in enumerate(COEFFICIENTS):
        kind = c.LOG if log and one.may_be_log else c.MIXED if one.mixed else c.UNIFORM
        values = coef[row].astype(np.float64)
        assert values.min() >= one.low * (1 - 1e-6) - 1e-9
        assert values.max() <= one.high * (1 + 1e-6)
        assert coef[c.SEEN + row] == pytest.approx([seen(one, float(v), kind) for v in values], abs=3e-6)
        if kind == c.MIXED:
            share = np.where(values < 1, (values - one.low) / (1 - one.low), 1 + (values - 1) / (one.high - 1)) / 2
        elif kind == c.LOG:
            share = np.log(values / one.low) / np.log(one.high / one.low)
        else:
            share = (values - one.low) / (one.high - one.low)
        counts = np.histogram(share, 20, (0, 1))[0]
        assert ((counts - AGENTS / 20) ** 2 / (AGENTS / 20)).sum() < 50  # 19 degrees of freedom, p < 1e-4


def test_draws_belong_to_the_agent_and_the_episode():
    """S32, S34, S95: a coefficient is a function of seed, episode and key, never of the place in the batch."""
    settings = EnvSettings()
    all_ = drawn(settings, keys=range(50))
    picked = drawn(settings, keys=[31, 4])
    assert (picked == all_[:, [31, 4]]).all()
    assert (drawn(settings, keys=range(50), episode=1) != all_).mean() > 0.99
    assert (drawn(settings, keys=range(50), seed=8) != all_).mean() > 0.99
    word = words_array(7, 0, np.arange(50), 0, int(Purpose.COEF), c.C_COLLISION)[0]
    assert all_[c.C_COLLISION] == pytest.approx(3.0 * (word >> 8) * 2.0**-24, rel=1e-6)

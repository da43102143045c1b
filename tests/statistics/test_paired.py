"""Paired differences: hand examples, enumeration, intervals and what is stated where there is none (E110)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from skidpad.errors import UsageError
from skidpad.evaluation.significance import sign_flip_p
from skidpad.evaluation.statistics import Column, interval, paired, paired_many

NAMES = [f"s{k:02d}" for k in range(12)]


def column(values, weighting="by_scene") -> Column:
    return Column(np.asarray(values, dtype=float), np.ones(len(values)), weighting)


def test_hand_example() -> None:
    """Three pairs: 3-1, 2-2, 5-6: difference 1/3, one win, one tie, one loss; flips of (2, -1): |sum| >= 1 always."""
    found = paired(column([3, 2, 5]), column([1, 2, 6]), ["a", "b", "c"])
    assert found.difference == pytest.approx(1 / 3)
    assert (found.n, found.wins, found.ties, found.losses) == (3, 1, 1, 1)
    assert (found.p, found.p_method) == (1.0, "exact")
    assert found.interval.clusters == 3


def test_direction_decides_who_wins() -> None:
    """M80: fewer collisions is better; wins must follow the direction, the difference must not."""
    arm, reference = column([0, 0, 1]), column([1, 1, 1])
    lower = paired(arm, reference, ["a", "b", "c"], direction="lower")
    assert (lower.wins, lower.losses, lower.difference) == (2, 0, pytest.approx(-2 / 3))
    higher = paired(arm, reference, ["a", "b", "c"], direction="higher")
    assert (higher.wins, higher.losses) == (0, 2)


def test_interval_is_that_of_the_differences() -> None:
    """E110: by scene a paired difference is the interval of one column of differences, to the digit."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(1, 1, 12), rng.normal(0, 1, 12)
    found = paired(column(a), column(b), NAMES)
    alone = interval(a - b, np.ones(12), NAMES)
    assert found.interval == alone
    assert found.p == sign_flip_p(a - b).p


def test_pairs_are_the_cases_that_both_measured() -> None:
    """E110: a case that only one arm finished is no pair, and is counted."""
    arm = Column(np.array([1.0, 0.0, 3.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0]))
    reference = Column(np.array([0.5, 2.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0]))
    found = paired(arm, reference, list("abcd"))
    assert (found.n, found.excluded, found.difference) == (1, 2, 0.5)
    assert found.interval.reason == "1 cluster"


def test_ratio_of_sums_is_paired_as_such() -> None:
    """E106: per km the difference is of sums over sums: 3/6 - 1/5 here, not the mean of (1/1 - 0/2, 2/5 - 1/3)."""
    arm = Column([1.0, 2.0], [1.0, 5.0], "by_agent")
    reference = Column([0.0, 1.0], [2.0, 3.0], "by_agent")
    found = paired(arm, reference, ["a", "b"], direction="lower")
    assert found.difference == pytest.approx(3 / 6 - 1 / 5)
    assert (found.wins, found.losses) == (0, 2)


def test_swapping_ratios_is_enumeration() -> None:
    """E110: for ratios whole clusters swap arms; against all 2^6 swaps done by hand."""
    rng = np.random.default_rng(2)
    a, b = rng.poisson(2, 6) + 0.0, rng.uniform(1, 5, 6)
    c, d = rng.poisson(4, 6) + 0.0, rng.uniform(1, 5, 6)
    observed = abs(a.sum() / b.sum() - c.sum() / d.sum())
    values = []
    for swap in itertools.product((False, True), repeat=6):
        swap = np.array(swap)
        top, bottom = np.where(swap, c, a).sum(), np.where(swap, d, b).sum()
        top2, bottom2 = np.where(swap, a, c).sum(), np.where(swap, b, d).sum()
        values.append(abs(top / bottom - top2 / bottom2) >= observed * (1 - 1e-9))
    found = paired(Column(a, b, "by_agent"), Column(c, d, "by_agent"), list("abcdef"))
    assert found.p == pytest.approx(np.mean(values))


def test_a_swap_that_takes_all_events_away_is_extreme() -> None:
    """E110: metres per event, one event each in different scenes: two of four swaps leave an arm without events."""
    arm, reference = Column([100.0, 50.0], [1.0, 0.0], "by_agent"), Column([80.0, 40.0], [0.0, 1.0], "by_agent")
    assert paired(arm, reference, ["a", "b"]).p == 1.0


def test_yes_no_pairs_have_mcnemar() -> None:
    """E110: one-agent binary outcomes get the exact test, 22/1024 for 1 against 9; other values do not."""
    arm = column([1] * 9 + [0] + [1] * 5)
    reference = column([0] * 9 + [1] + [1] * 5)
    names = [f"s{k}" for k in range(15)]
    assert paired(arm, reference, names).mcnemar_p == pytest.approx(22 / 1024)
    assert paired(column([0.5] * 15), reference, names).mcnemar_p is None
    assert paired(Column(np.zeros(15), np.full(15, 2.0)), reference, names).mcnemar_p is None


@pytest.mark.parametrize(
    ("arm", "reference", "names", "reason", "difference", "p"),
    [
        ([], [], [], "no cases", None, None),
        ([1.0, 2.0], [1.0, 2.0], ["a", "b"], "all ties", 0.0, 1.0),
        ([2.0, 3.0], [1.0, 2.0], ["a", "b"], "all ties", 1.0, 0.5),
        ([2.0, 3.0], [1.0, 1.0], ["a", "a"], "1 cluster", 1.5, 1.0),
    ],
)
def test_degenerate_pairs_are_stated(arm, reference, names, reason, difference, p) -> None:
    """E109, F44, EF37: equal arms, one cluster or no pair have no interval, never one of width zero."""
    found = paired(column(arm), column(reference), names)
    expected = "constant difference" if difference == 1.0 else reason
    assert (found.interval.low, found.interval.high, found.interval.reason) == (None, None, expected)
    assert (found.difference, found.p) == (difference, p)


def test_undefined_bca_falls_back_and_says_so() -> None:
    """E107: two clusters with equal differences of ratios but other sums have an equal jackknife: BCa is 0 / 0."""
    arm = Column([1.0, 3.0], [1.0, 4.0], "by_agent")
    reference = Column([1.0, 1.0], [2.0, 4.0], "by_agent")
    found = paired(arm, reference, ["a", "b"])
    assert found.interval.method == "percentile (bca undefined)"
    assert found.interval.low == pytest.approx(4 / 5 - 2 / 6)
    assert found.interval.high == pytest.approx(0.5)


def test_arm_without_events_has_no_difference_of_distances() -> None:
    """E108: metres per infraction without an infraction is a bound, so nothing can be subtracted from it."""
    arm = Column([100.0, 200.0, 300.0], [0.0, 0.0, 0.0], "by_agent")
    reference = Column([100.0, 200.0, 300.0], [1.0, 0.0, 1.0], "by_agent")
    found = paired(arm, reference, list("abc"))
    assert (found.difference, found.interval.reason, found.p) == (None, "no exposure in one arm", None)
    rare = paired(reference, Column([90.0, 10.0, 20.0], [1.0, 1.0, 1.0], "by_agent"), list("abc"))
    assert rare.difference is not None
    assert rare.interval.reason == "no exposure in some resamples"


def test_alone_and_among_others_is_the_same() -> None:
    """Batch layout must not show in intervals or p, drawn or enumerated."""
    rng = np.random.default_rng(3)
    names = [f"s{k:02d}" for k in range(30)]
    pairs = {}
    for key, weighting in (("a", "by_scene"), ("b", "by_agent"), ("c", "by_scene")):
        arm, reference = (Column(rng.gamma(2, 1, 30), rng.uniform(1, 3, 30), weighting) for _ in range(2))
        pairs[key] = (arm, reference, "higher")
    pairs["tie"] = (pairs["a"][0], pairs["a"][0], "higher")
    together = paired_many(pairs, names, resamples=500)
    assert together["a"].p_method == "10000 draws"
    for key, (arm, reference, direction) in pairs.items():
        assert paired(arm, reference, names, direction=direction, resamples=500) == together[key]


def test_order_of_cases_means_nothing() -> None:
    """Records come in any order; differences, intervals and p must be the same bytes."""
    rng = np.random.default_rng(4)
    names = [f"s{k % 7}" for k in range(25)]
    order = rng.permutation(25)
    for weighting in ("by_scene", "by_agent"):
        arm, reference = (Column(rng.gamma(2, 1, 25), rng.uniform(1, 3, 25), weighting) for _ in range(2))
        shuffled = (Column(c.numerators[order], c.denominators[order], weighting) for c in (arm, reference))
        there = paired(*shuffled, [names[k] for k in order], resamples=500)
        assert there == paired(arm, reference, names, resamples=500)


def test_worse_policy_is_found_worse() -> None:
    """M80: a planted difference of one standard deviation over 40 scenes; its mirror image has the mirrored ends."""
    rng = np.random.default_rng(5)
    names = [f"s{k:02d}" for k in range(40)]
    base = rng.normal(0, 1, 40)
    found = paired(column(base - 1 + rng.normal(0, 0.5, 40)), column(base), names)
    assert found.interval.high < 0
    assert found.p < 0.001


def test_columns_of_different_weighting_do_not_pair() -> None:
    """E106: a mean of cases minus a ratio of sums is no difference of anything."""
    with pytest.raises(UsageError, match="by_agent"):
        paired(column([1, 2]), column([1, 2], "by_agent"), ["a", "b"])

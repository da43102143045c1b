"""Exact small-sample statistics against hand numbers and enumeration, and the words at their boundaries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.evaluation.significance import (
    bound,
    holm,
    mcnemar,
    sign_flip_p,
    size_note,
    variance_components,
    verdict,
    wilson,
    zero_event_bound,
)


@pytest.mark.parametrize(("n", "percent"), [(8, "31 %"), (250, "1.2 %"), (1000, "0.30 %")])
def test_zero_events_are_a_bound(n: int, percent: str) -> None:
    """E108: "0 %" from eight scenarios is compatible with 31 %; the three values of the requirement."""
    assert zero_event_bound(n) == pytest.approx(1 - 0.05 ** (1 / n), rel=1e-12)
    assert bound(np.zeros(n), np.ones(n), n, kind="rate") == f"below {percent} at 95 %"


def test_bound_counts_clusters_and_not_agents() -> None:
    """E107, E108: fifty cars of one scene share its fate; 8 scenes bound a rate at 31 %, however many cars drove."""
    assert bound(np.zeros(8), np.full(8, 50.0), 8, kind="rate") == "below 31 % at 95 %"


def test_bound_of_exposure() -> None:
    """E108: no infraction over d is "more than d/3 between", never d; the same turned round for a rate per km."""
    assert bound([1200.0, 1800.0], [0, 0], 2, kind="exposure_per_event", unit="m") == "more than 1,000 m at 95 %"
    assert bound([0, 0], [1.2, 1.8], 2, kind="per_exposure", unit="1/km") == "below 1 1/km at 95 %"
    assert bound([0.0], [0.0], 1, kind="exposure_per_event", unit="m") == "nothing was driven"
    assert bound([0.0], [0.0], 1, kind="per_exposure", unit="1/km") == "nothing was driven"


def test_no_bound_where_something_happened() -> None:
    """A bound beside a measured rate would contradict its interval; without cases there is nothing to bound."""
    assert bound([0, 1], [1, 1], 2, kind="rate") is None
    assert bound([5.0], [1.0], 1, kind="exposure_per_event", unit="m") is None
    assert bound([], [], 0, kind="rate") is None


def test_wilson_is_textbook() -> None:
    """Wilson 1927; 10 of 100 is 5.5 to 17.4 %, and 0 of 10 reaches 27.8 % (a normal interval would have width 0)."""
    assert wilson(10, 100) == pytest.approx((0.05522914, 0.17436566), abs=1e-7)
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753280), abs=1e-7)
    assert (wilson(0, 10)[0], wilson(10, 10)[1]) == (0.0, 1.0)
    with pytest.raises(ValueError):
        wilson(0, 0)


def test_mcnemar_by_hand() -> None:
    """1 against 9 discordant pairs: 2 (1 + 10) / 1024; none at all: 1; equal numbers: 1."""
    assert mcnemar(1, 9) == mcnemar(9, 1) == pytest.approx(22 / 1024)
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0


@pytest.mark.parametrize("pair", [(1100, 1000), (1400, 0), (560, 520)])
def test_mcnemar_of_many_pairs(pair: tuple[int, int]) -> None:
    """E110: beyond 1,023 discordant pairs 2^n is no float; p is still the binomial test's."""
    from scipy.stats import binomtest

    assert mcnemar(*pair) == pytest.approx(binomtest(pair[0], sum(pair)).pvalue, rel=1e-9)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_sign_flip_is_exact_for_few(differences: list[int]) -> None:
    """E110: against enumeration up to n = 8; zeros do not change p, since their flips change nothing."""
    total = abs(sum(differences))
    flipped = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    found = sign_flip_p(differences)
    assert found.p == pytest.approx(np.mean([value >= total for value in flipped]))
    assert found.method == "exact"


def test_sign_flip_by_hand() -> None:
    """Five differences of one sign: 2 of 32 flips are as extreme; all ties: 1."""
    assert sign_flip_p([1.0, 2.0, 1.0, 3.0, 0.5]).p == 2 / 32
    assert sign_flip_p([0.0, 0.0]).p == sign_flip_p([]).p == 1.0


def test_sign_flip_moves_clusters_as_one() -> None:
    """E110: sixty cases of three scenes are three flips, p >= 2/8; taken as independent they would prove anything."""
    differences, clusters = np.ones(60), [f"s{k % 3}" for k in range(60)]
    assert sign_flip_p(differences, clusters).p == 2 / 8
    assert sign_flip_p(differences).p < 0.001


def test_drawn_flips_agree_with_exact_ones() -> None:
    """10,000 draws of p = 0.05 have a standard error of 0.002; 14 are enumerated, 15 with a zero-like one drawn."""
    rng = np.random.default_rng(3)
    values = rng.normal(0.45, 1, 14)
    exact = sign_flip_p(values)
    drawn = sign_flip_p([*values, 1e-9])
    assert (exact.method, drawn.method) == ("exact", "10000 draws")
    assert drawn.p == pytest.approx(exact.p, abs=4 * math.sqrt(exact.p / 10_000))
    assert sign_flip_p(np.full(40, 1.0)).p == 1 / 10_001  # the observed one counts: p is never 0


def test_sign_flip_has_no_order() -> None:
    """The same numbers in any order give the same p to the last digit."""
    rng = np.random.default_rng(4)
    values = rng.normal(0.1, 1, 40)
    assert sign_flip_p(values) == sign_flip_p(values[::-1]) == sign_flip_p(np.sort(values))


def test_holm_by_hand() -> None:
    """E112: 0.01 x 3, then 0.03 x 2 and 0.04 x 1, kept monotone: 0.03, 0.06, 0.06; never above 1."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_finds_the_one_true_effect() -> None:
    """E112: of forty metrics one differs; unadjusted, two of the others would be headlines on average."""
    rng = np.random.default_rng(5)
    p_values = [sign_flip_p(rng.normal(2.0 if k == 7 else 0.0, 1, 40)).p for k in range(40)]
    assert [k for k, p in enumerate(holm(p_values)) if p <= 0.05] == [7]
    assert sum(p <= 0.05 for p in p_values) > 1


@pytest.mark.parametrize(
    ("low", "high", "direction", "words"),
    [
        (0.03, 0.05, "higher", "better"),
        (0.03, 0.05, "lower", "worse"),
        (-0.05, -0.03, "higher", "worse"),
        (-0.05, -0.03, "lower", "better"),
        (0.02, 0.05, "higher", "not established"),  # touches the margin
        (-0.02, 0.02, "higher", "equivalent within the margin"),
        (-0.02, 0.021, "higher", "not established"),
        (0.001, 0.015, "higher", "equivalent within the margin"),  # beyond 0, but below what anybody cares about
        (-0.5, 0.5, "higher", "not established"),
        (-0.5, -0.01, "lower", "not established"),
        (0.01, 0.5, "lower", "not established"),
        (0.03, 0.05, "none", "not ranked"),
        (None, None, "higher", "not established"),
        (0.03, None, "higher", "not established"),
    ],
)
def test_verdict_at_the_boundaries(low, high, direction: str, words: str) -> None:
    """E112: the wording decides what people do; a margin of 0.02 in both directions."""
    assert verdict(low, high, margin=0.02, direction=direction, clusters=20) == words


def test_verdict_needs_clusters_and_an_adjusted_p() -> None:
    """E107, E112: below 6 clusters an interval is a guess; above 0.05 after Holm a difference is one of many."""
    sure = {"margin": 0.02, "direction": "higher"}
    assert verdict(0.03, 0.05, clusters=5, **sure) == "not established"
    assert verdict(0.03, 0.05, clusters=6, **sure) == "better"
    assert verdict(0.03, 0.05, clusters=20, p=0.06, **sure) == "not established"
    assert verdict(0.03, 0.05, clusters=20, p=0.05, **sure) == "better"
    assert verdict(-0.01, 0.01, clusters=20, p=0.9, **sure) == "equivalent within the margin"


@pytest.mark.parametrize(
    ("cases", "clusters", "note"),
    [
        (50, 5, "5 clusters: the interval is a guess"),
        (50, 6, "few clusters (6)"),
        (50, 9, "few clusters (9)"),
        (99, 10, "n small (99)"),
        (100, 10, None),
    ],
)
def test_size_is_said(cases: int, clusters: int, note: str | None) -> None:
    """E68, E107, E109: each threshold from both sides."""
    assert size_note(cases, clusters) == note


def test_variance_components_by_hand() -> None:
    """E113: scenes (0, 2) and (4, 6): within 2, between means 1 and 5: mean square 16, (16 - 2) / 2 = 7."""
    assert variance_components([0, 2, 4, 6], ["a", "a", "b", "b"]) == (7.0, 2.0)
    assert variance_components([1, 2, 4], ["a", "b", "c"]) == (pytest.approx(7 / 3), None)
    assert variance_components([1, 3], ["a", "a"]) == (None, 2.0)
    assert variance_components([0, 9, 0, 9], ["a", "a", "b", "b"]).between_scenes == 0.0


def test_variance_components_of_a_nested_model() -> None:
    """E113: 2,000 scenes of variance 4 with 3 seeds of variance 1 each; standard errors are about 0.15 and 0.02."""
    rng = np.random.default_rng(6)
    scene = np.repeat(rng.normal(0, 2, 2000), 3)
    found = variance_components(scene + rng.normal(0, 1, 6000), [f"s{k // 3}" for k in range(6000)])
    assert found.between_scenes == pytest.approx(4, abs=0.6)
    assert found.between_seeds == pytest.approx(1, abs=0.08)

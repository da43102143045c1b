"""Clusters drawn once for all statistics: against plain loops, scipy, other orders, other company, other threads."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skidpad.evaluation.resampling import Pieces, Sums, flipped, limits
from skidpad.evaluation.significance import FLIP_DRAWS, drawn_signs
from skidpad.evaluation.statistics import Column, Sample, intervals, paired_many, resampled


def sums_of(seed: int, count: int) -> list[Sums]:
    """Means of reals, rates of counts, and a difference of ratios."""
    rng = np.random.default_rng(seed)
    ones, agents = np.ones(count), rng.integers(1, 9, count) + 0.0
    return [
        Sums(np.stack([rng.gamma(2, 1, count) * 10.0 ** rng.integers(-3, 4), ones])),
        Sums(np.stack([rng.binomial(agents.astype(int), 0.2) + 0.0, agents])),
        Sums(rng.uniform(1, 2, (4, count))),
    ]


def test_each_resample_is_a_plain_loop() -> None:
    """E107: the twin draws clusters one resample at a time and adds what it drew: percentile limits agree to the last
    digits a float64 of such a sum has."""
    count, resamples, seed = 23, 500, 11
    found = limits(sums_of(1, count), count, "percentile", resamples, seed)
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    for one, (low, high, _) in zip(sums_of(1, count), found, strict=True):
        values = []
        for row in drawn:
            totals = [0.0] * len(one.rows)
            for cluster in row:
                totals = [total + float(number) for total, number in zip(totals, one.rows[:, cluster], strict=True)]
            value = totals[0] / totals[1]
            values.append(value - totals[2] / totals[3] if len(totals) == 4 else value)
        assert (low, high) == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])), rel=1e-13)


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_limits_are_scipys(method) -> None:
    """E107: with the same generator `scipy.stats.bootstrap` gives these limits, bias, acceleration and all."""
    count, seed = 40, 5
    one = sums_of(2, count)[1]

    def rate(drawn, axis=-1):
        drawn = drawn.astype(int)
        return one.rows[0][drawn].sum(axis=axis) / one.rows[1][drawn].sum(axis=axis)

    theirs = stats.bootstrap(
        (np.arange(count),),
        rate,
        n_resamples=2000,
        method="BCa" if method == "bca" else "percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    assert limits([one], count, method, 2000, seed)[0][:2] == pytest.approx(tuple(theirs), rel=1e-12)


@given(
    st.lists(
        st.tuples(st.floats(-1e9, 1e9).map(lambda x: x if abs(x) > 1e-9 else 0.0), st.integers(0, 40)),
        min_size=1,
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_sums_have_no_order(terms, random) -> None:
    """E107: sums of pieces are those of fractions to what lies 2^70 below the largest number, and equal to the bit in
    any order: a matrix product may add as it likes."""
    numbers, weights = (np.array(side, float) for side in zip(*terms, strict=True))
    most = np.array([int(weights.sum())])
    pieces = Pieces(numbers[None], most)
    found = pieces.whole(weights[None] @ pieces.integers)[0, 0]
    exact = sum((Fraction(a) * Fraction(b) for a, b in zip(numbers, weights, strict=True)), Fraction())
    slack = Fraction(float(np.abs(numbers).max())) * int(weights.sum() + 1) / 2**70
    assert abs(Fraction(float(found)) - exact) <= slack + abs(exact) / 2**52
    order = list(range(len(terms)))
    random.shuffle(order)
    other = Pieces(numbers[order][None], most)
    assert other.whole(weights[order][None] @ other.integers)[0, 0] == found


def test_no_company_shows() -> None:
    """E107: limits are equal to the bit alone, among a hundred others, and in blocks of another size."""
    count = 37
    all_of_them = [one for seed in range(40) for one in sums_of(seed, count)]
    together = limits(all_of_them, count, "bca", 1000, 3)
    for place in (0, 1, 2, 77, 119):
        assert limits([all_of_them[place]], count, "bca", 1000, 3) == [together[place]]


def test_drivers_share_a_drawing_and_nothing_else() -> None:
    """E110: what is asked of several drivers at once, over cases that only some of them finished, is what is asked one
    by one."""
    rng = np.random.default_rng(4)
    names = [f"s{k:02d}" for k in range(30)]
    samples = {}
    for arm, cases in (("a", 30), ("b", 30), ("c", 21)):
        valid = (rng.random((3, cases)) < 0.8) + 0.0
        columns = {str(k): Column(rng.gamma(2, 1, cases) * own, own) for k, own in enumerate(valid)}
        pairs = {"0": (columns["0"], columns["1"], "lower"), "2": (columns["2"], columns["0"], "higher")}
        samples[arm] = Sample(names[:cases], columns, pairs)
    together = resampled(samples, resamples=400)
    for arm, sample in samples.items():
        assert together[arm].intervals == intervals(sample.columns, sample.clusters, resamples=400)
        assert together[arm].paired == paired_many(sample.pairs, sample.clusters, resamples=400)


def test_flips_of_a_cluster_are_the_same_for_everybody() -> None:
    """E110: signs depend on a cluster's place alone, so that one drawing serves statistics over 5, 140 and 300; sums
    are those of a plain loop over draws."""
    rng = np.random.default_rng(6)
    rows = [rng.normal(size=n) for n in (5, 300, 140)]
    signs = {n: np.concatenate([block for _, block in drawn_signs(n)]) for n in (5, 140, 300)}
    assert signs[300].shape == (300, FLIP_DRAWS)
    assert np.array_equal(signs[300][:140], signs[140])
    assert np.array_equal(signs[300][:5], signs[5])
    assert abs(signs[300].mean()) < 0.005
    for row, total in zip(rows, flipped(rows), strict=True):
        assert np.array_equal(total, flipped([row])[0])
        for draw in (0, 77, FLIP_DRAWS - 1):
            assert total[draw] == pytest.approx(sum(a * b for a, b in zip(row, signs[300][:, draw], strict=False)))


THREADS = """
import numpy as np
from skidpad.evaluation.statistics import Column, paired_many
rng = np.random.default_rng(1)
pairs = {str(k): (*(Column(rng.gamma(2, 1, 700), rng.uniform(1, 3, 700), "by_agent") for _ in range(2)), "lower")
         for k in range(12)}
print(paired_many(pairs, [f"s{k}" for k in range(700)], resamples=1000))
"""


def test_threads_do_not_show() -> None:
    """E107, E46: a matrix product on one thread, on two and on seven gives one and the same report."""
    said = set()
    for threads in ("1", "2", "7"):
        count = {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", THREADS], env={**os.environ, **count}, capture_output=True, text=True, check=True
        )
        said.add(done.stdout)
    assert len(said) == 1

"""Histograms, Bernoulli and their reductions by hand (Q26 to Q28, Q30, Q31)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidpad.evaluation.metrics.realism import BUCKETS, CONFIGURATIONS, bucket_value, weighted_sum
from skidpad.evaluation.metrics.realism_context import PUBLISHED, PUBLISHED_LABEL
from skidpad.evaluation.metrics.realism_estimators import (
    Bins,
    bernoulli_log_likelihood,
    bin_edges,
    bin_numbers,
    histogram_log_likelihood,
    likelihood,
)
from skidpad.evaluation.metrics.realism_peer import WEIGHT_SUM, mean_of_exponentials

ANGULAR = Bins(-0.628, 0.628, 11)


def test_edges_are_no_linspace() -> None:
    """Q26: low + i x step in float32; numpy's linspace puts some edges one bit elsewhere, and values on them change
    bin."""
    for bins in (ANGULAR, Bins(-12.0, 12.0, 11), Bins(-31.5, 31.5, 10)):
        step = np.float32((bins.high - bins.low) / bins.number)
        wanted = [np.float32(bins.low) + np.float32(np.float32(i) * step) for i in range(bins.number + 1)]
        assert bin_edges(bins).tolist() == wanted
    assert bin_edges(Bins(-12.0, 12.0, 11)).tolist() != np.linspace(-12, 12, 12, dtype=np.float32).tolist()


def test_bins_are_closed_below_and_the_last_above() -> None:
    """Q26: [a, b), the last one closed, values outside clipped to the float32 edges: float32(0.628) lies above
    0.628."""
    bins = Bins(0.0, 5.0, 10)
    values = np.array([-1.0, 0.0, 0.49, 0.5, 4.99, 5.0, 7.0, np.inf, -np.inf], dtype=np.float32)
    assert bin_numbers(values, bins).tolist() == [0, 0, 0, 1, 9, 9, 9, 9, 0]
    top = np.array([0.628, 0.7], dtype=np.float32)
    assert bin_numbers(top, ANGULAR).tolist() == [10, 10]
    edges = bin_edges(ANGULAR)
    assert bin_numbers(edges[:-1], ANGULAR).tolist() == list(range(11))
    assert bin_numbers(np.nextafter(edges[1:-1], np.float32(-9)), ANGULAR).tolist() == list(range(10))


def test_undefined_values_count_in_the_top_bin() -> None:
    """Q26: dropping them changes single log-likelihoods by up to 6."""
    simulated = np.full((4, 1, 5), 1.0, dtype=np.float32)
    simulated[:, :, -1] = np.nan
    bins = Bins(0.0, 10.0, 10)
    found = histogram_log_likelihood(simulated, np.array([[1.0, 9.5, 1.0, 1.0, 1.0]], dtype=np.float32), bins)
    assert np.exp(found[0, :2]) == pytest.approx([(16 + 0.1) / (20 + 1), (4 + 0.1) / (20 + 1)])


def test_histograms_pool_rows_or_objects_or_neither() -> None:
    """Q26: three ways of pooling give three likelihoods of one value; mixing them up is silent."""
    simulated = np.array([[[0.5, 1.5], [2.5, 2.5]], [[0.5, 1.5], [2.5, 0.5]]], dtype=np.float32)
    logged = np.array([[0.5, 0.5], [2.5, 0.5]], dtype=np.float32)
    bins = Bins(0.0, 3.0, 3)

    def share(count: float, samples: float) -> float:
        return math.log((count + 0.1) / (samples + 0.3))

    each = histogram_log_likelihood(simulated, logged, bins)
    assert np.allclose(each, [[share(2, 4), share(2, 4)], [share(3, 4), share(1, 4)]])
    pooled = histogram_log_likelihood(simulated, logged, bins, pooled_objects=True)
    assert np.allclose(pooled, [[share(3, 8), share(3, 8)], [share(3, 8), share(3, 8)]])
    rows = histogram_log_likelihood(simulated, logged, bins, independent_steps=False)
    assert np.allclose(rows, [[share(2, 2), share(0, 2)], [share(2, 2), share(1, 2)]])
    both = histogram_log_likelihood(simulated, logged, bins, pooled_objects=True, independent_steps=False)
    assert np.allclose(both, [[share(2, 4), share(1, 4)], [share(2, 4), share(1, 4)]])


def of_counts(counts: list[int], logged: list[bool]) -> float | None:
    happened = np.arange(32)[:, None] < np.array(counts)
    return likelihood(bernoulli_log_likelihood(happened, np.array(logged)), np.ones(len(counts), dtype=bool))


def test_bernoulli_by_hand() -> None:
    """Q27: 32 rollouts in which 0, 24, 32, 32 times something happened, logged no, no, yes, no: 0.052868. Off-road 32,
    0, 0, 2 times, never logged: 0.073568."""
    assert of_counts([0, 24, 32, 32], [False, False, True, False]) == pytest.approx(0.052868, abs=5e-7)
    assert of_counts([32, 0, 0, 2], [False] * 4) == pytest.approx(0.073568, abs=5e-7)


@pytest.mark.parametrize(("n", "wanted"), [(2, 0.0056), (4, 0.0748), (8, 0.273), (16, 0.523)])
def test_one_wrong_object_of_n(n: int, wanted: float) -> None:
    """Q28: the geometric mean punishes one wrong object in all rollouts far more than the arithmetic one of the
    peer."""
    found = of_counts([32] + [0] * (n - 1), [False] * n)
    assert found == pytest.approx(wanted, abs=5e-4)
    assert found < 1 - 1 / n


def test_all_right_is_not_one() -> None:
    """Q28: pseudo-counts leave 32.001 / 32.002."""
    assert of_counts([0, 0], [False, False]) == pytest.approx(32.001 / 32.002, abs=1e-12)


def test_pooled_bernoulli() -> None:
    """Q26: in `_gen` one share for all objects and rollouts."""
    happened = np.array([[True, False], [False, False]])
    found = bernoulli_log_likelihood(happened, np.array([True, False]), pooled_objects=True)
    assert np.exp(found) == pytest.approx([1.001 / 4.002, 3.001 / 4.002])


def test_one_mean_over_all_pairs() -> None:
    """Q27: objects weigh by their valid rows; a mean per object first is another number."""
    values = np.log(np.array([[0.5, 0.5, 0.5], [0.1, 0.9, 0.9]]))
    valid = np.array([[True, True, True], [True, False, False]])
    assert likelihood(values, valid) == pytest.approx((0.5**3 * 0.1) ** 0.25)
    assert likelihood(values, valid) != pytest.approx(math.sqrt(0.5 * 0.1))
    assert likelihood(values, np.zeros_like(valid)) is None


def test_weights_sum_as_configured() -> None:
    """Q27: those of 2023 sum to .99, the others to 1; nobody renormalises them."""
    sums = {year: sum(term.weight for term in c.terms.values()) for year, c in CONFIGURATIONS.items()}
    assert sums == pytest.approx({"2023": 0.99, "2024": 1.0, "2025": 1.0, "2025_gen": 1.0})


def test_published_rows_add_up() -> None:
    """Q30: .20 kinematic + .45 interactive + .35 map gives each published value to 1e-4, from our own weights; the
    first five rows lie within .0018."""
    rows = [row for row in PUBLISHED if row.metric == "realism_2025"]
    weights = {name: term.weight for name, term in CONFIGURATIONS["2025"].terms.items()}
    for row in rows:
        total = sum(sum(weights[name] for name in names) * getattr(row, bucket) for bucket, names in BUCKETS.items())
        assert total == pytest.approx(row.value, abs=1e-4), row.method
    assert len(rows) == 7
    assert rows[0].value - rows[4].value == pytest.approx(0.0018)
    assert PUBLISHED_LABEL == "published, other scenes"


def test_buckets_are_weighted_means() -> None:
    """Q27: missing terms make a bucket missing; a term without weight does not."""
    values: dict[str, float | None] = dict.fromkeys(CONFIGURATIONS["2024"].terms, 0.5)
    values |= {"collision_indication": 1.0, "traffic_light_violation": None}
    weights = {name: term.weight for name, term in CONFIGURATIONS["2024"].terms.items()}
    assert bucket_value(values, weights, BUCKETS["interactive"]) == pytest.approx((0.05 + 0.25 + 0.05) / 0.45)
    assert bucket_value(values, weights, BUCKETS["map_based"]) == pytest.approx(0.5)
    assert weighted_sum(values, weights) == pytest.approx(0.5 + 0.125)
    values["offroad_indication"] = None
    assert bucket_value(values, weights, BUCKETS["map_based"]) is None
    assert weighted_sum(values, weights) is None


def test_the_peers_arithmetic() -> None:
    """Q31: its published table obeys (.20 kin + .45 inter + .30 map) / .95, and its mean is that of exponentials."""
    weights = {name: term.weight for name, term in CONFIGURATIONS["2025"].terms.items()}
    sums = [sum(weights[name] for name in names if name != "traffic_light_violation") for names in BUCKETS.values()]
    assert sums == pytest.approx([0.20, 0.45, 0.30])
    assert sum(sums) == pytest.approx(WEIGHT_SUM)
    values = np.log(np.array([[0.5, 0.5], [0.1, 0.9]]))
    found = mean_of_exponentials(values, np.array([[True, True], [True, False]]))
    assert found == pytest.approx((0.5 + 0.1) / 2)
    assert mean_of_exponentials(values, np.zeros((2, 2), dtype=bool)) is None


@given(st.lists(st.lists(st.floats(-12.0, 0.0), min_size=3, max_size=3), min_size=1, max_size=6))
def test_the_peers_mean_is_never_lower(values: list[list[float]]) -> None:
    """Q31: the mean of exponentials is at least the exponential of the mean, where all objects have as many rows."""
    array = np.array(values)
    mask = np.ones(array.shape, dtype=bool)
    assert mean_of_exponentials(array, mask) >= likelihood(array, mask) * (1 - 1e-12)


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=12),
    st.floats(-30, 30, width=32),
    st.sampled_from([ANGULAR, Bins(-12.0, 12.0, 11), Bins(0.0, 25.0, 10)]),
)
def test_likelihoods_are_shares(samples: list[float], value: float, bins: Bins) -> None:
    """Q41: each in (0, 1], and over all bins they sum to 1."""
    simulated = np.array(samples, dtype=np.float32)[:, None, None]
    found = np.exp(histogram_log_likelihood(simulated, np.array([[value]], dtype=np.float32), bins))
    assert 0 < found[0, 0] <= 1
    middles = ((bin_edges(bins)[1:] + bin_edges(bins)[:-1]) / 2)[None]
    everywhere = histogram_log_likelihood(np.repeat(simulated, bins.number, axis=2), middles, bins)
    assert np.exp(everywhere).sum() == pytest.approx(1.0)

"""Clustered intervals: against scipy on plain data, a naive resampler, coverage by simulation, degenerate inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skidpad.errors import UsageError
from skidpad.evaluation.statistics import Column, Interval, estimate, interval, intervals


def clustered(seed: int, cases: int = 60, clusters: int = 20) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, clusters, cases)
    agents = rng.integers(1, 12, cases).astype(float)
    shift = rng.normal(0, 0.5, clusters)[group]
    return agents * (2 + shift + rng.normal(0, 0.3, cases)), agents, [f"scene {k}" for k in group]


def naive(top, bottom, names, weighting: str, seed: int, resamples: int = 2000) -> np.ndarray:
    """2.5 and 97.5 % points, one resample at a time, from the words of E107."""
    rng = np.random.default_rng(seed)
    members = [[k for k, other in enumerate(names) if other == name] for name in sorted(set(names))]
    values = []
    for _ in range(resamples):
        drawn = [k for pick in rng.integers(0, len(members), len(members)) for k in members[pick]]
        if weighting == "by_agent":
            values.append(top[drawn].sum() / bottom[drawn].sum())
        else:
            values.append(np.mean(top[drawn] / bottom[drawn]))
    return np.percentile(values, [2.5, 97.5])


@pytest.mark.parametrize("weighting", ["by_scene", "by_agent"])
def test_interval_is_the_naive_resamplers(weighting) -> None:
    """E107: within the seed-to-seed band of the naive one, taken as four of its standard deviations over 8 seeds."""
    top, bottom, names = clustered(1)
    bands = np.array([naive(top, bottom, names, weighting, seed) for seed in range(8)])
    found = interval(top, bottom, names, weighting=weighting, method="percentile")
    assert np.all(np.abs(np.array(found[:2]) - bands.mean(axis=0)) <= 4 * bands.std(axis=0, ddof=1))
    assert (found.reason, found.method, found.cases, found.clusters) == (None, "percentile", 60, len(set(names)))


def test_interval_is_scipys_on_plain_data() -> None:
    """E107: one case of one agent per cluster is the textbook bootstrap of a mean; both of scipy's seeds and ours lie
    in one band (4 standard deviations over 10 seeds)."""
    rng = np.random.default_rng(2)
    values = rng.gamma(1.5, 2.0, 40)
    names = [f"s{k:02d}" for k in range(40)]
    for method, theirs in (("bca", "BCa"), ("percentile", "percentile")):
        limits = np.array(
            [
                tuple(
                    stats.bootstrap(
                        (values,), np.mean, n_resamples=10_000, method=theirs, rng=np.random.default_rng(seed)
                    ).confidence_interval
                )
                for seed in range(10)
            ]
        )
        found = interval(values, np.ones(40), names, method=method)
        assert np.all(np.abs(np.array(found[:2]) - limits.mean(axis=0)) <= 4 * limits.std(axis=0, ddof=1)), method


def test_naive_agents_would_be_far_too_sure() -> None:
    """E107's trap: when the agents of a scene share its fate, resampling agents gives a fraction of the true width."""
    rng = np.random.default_rng(3)
    hit = (rng.random(40) < 0.3).astype(float)
    top, bottom = hit * 50, np.full(40, 50.0)
    wide = interval(top, bottom, [f"s{k}" for k in range(40)])
    alone = interval(np.repeat(hit, 50), np.ones(2000), [f"a{k}" for k in range(2000)])
    assert wide.high - wide.low > 5 * (alone.high - alone.low)


@pytest.mark.parametrize(("weighting", "nominal"), [("by_scene", (0.92, 0.98)), ("by_agent", (0.92, 0.98))])
def test_coverage(weighting, nominal) -> None:
    """E107: 93 to 97 % at 100 clusters; 600 simulated runs add a standard error of 0.9 %, hence the wider gate."""
    rng = np.random.default_rng(4)
    runs, clusters = 600, 100
    agents = rng.integers(1, 10, (runs, clusters)).astype(float)
    rate = rng.beta(2, 6, (runs, clusters))  # mean 0.25, independent of the number of agents
    events = rng.binomial(agents.astype(int), rate).astype(float)
    columns = {str(run): Column(events[run], agents[run], weighting) for run in range(runs)}
    found = intervals(columns, [f"s{k:03d}" for k in range(clusters)], resamples=2000)
    covered = np.mean([item.low <= 0.25 <= item.high for item in found.values()])
    assert nominal[0] <= covered <= nominal[1]


def test_weightings_by_hand() -> None:
    """E106: 100 agents with 10 events and 1 agent with 1: by scene (0.1 + 1) / 2, by agent 11 / 101."""
    assert estimate([10, 1], [100, 1], "by_scene") == pytest.approx(0.55)
    assert estimate([10, 1], [100, 1], "by_agent") == pytest.approx(11 / 101)
    assert estimate([0, 0], [0, 0], "by_scene") is estimate([], [], "by_agent") is None


def test_wilson_for_yes_no_cases() -> None:
    """E107: one agent, one case per scene, yes or no: Wilson, exact at small n; two cases in a scene are clustered."""
    top = np.array([1.0] * 3 + [0.0] * 17)
    names = [f"s{k}" for k in range(20)]
    found = interval(top, np.ones(20), names)
    assert found.method == "wilson"
    theirs = stats.binomtest(3, 20).proportion_ci(method="wilson")
    assert found[:2] == pytest.approx((theirs.low, theirs.high), rel=1e-9)
    assert interval(top, np.ones(20), ["s1", *names[1:]]).method == "bca"


@pytest.mark.parametrize(
    ("top", "bottom", "names", "reason"),
    [
        ([], [], [], "no cases"),
        ([0.0, 0.0], [0.0, 0.0], ["a", "b"], "no cases"),
        ([3.0], [1.0], ["a"], "1 cluster"),
        ([3.0, 5.0], [1.0, 1.0], ["a", "a"], "1 cluster"),
        ([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], ["a", "b", "c"], "constant"),
        ([0.1 * 3, 0.3], [1.0, 1.0], ["a", "b"], "constant"),  # equal but for rounding
        ([0.0] * 5, [1.0] * 5, list("abcde"), "constant"),
        ([1.0] * 5, [1.0] * 5, list("abcde"), "constant"),
        ([0.0, 0.0], [2.0, 5.0], ["a", "b"], "constant"),
    ],
)
@pytest.mark.parametrize("weighting", ["by_scene", "by_agent"])
def test_degenerate_inputs_are_stated(top, bottom, names, reason: str, weighting) -> None:
    """E109, F44, EF37: never an interval of width zero, never a NaN, always the reason."""
    found = interval(top, bottom, names, weighting=weighting)
    assert (found.low, found.high, found.reason) == (None, None, reason)


def test_size_of_the_sample_is_noted() -> None:
    """E109: below 10 clusters few, below 6 a guess; only clusters with a value count."""
    top, bottom, names = clustered(5, cases=40, clusters=8)
    assert interval(top, bottom, names).note == "few clusters (8)"
    top, bottom = top * 1.0, bottom.copy()
    gone = np.array([int(name[-1]) >= 5 for name in names])
    top[gone] = bottom[gone] = 0.0
    found = interval(top, bottom, names)
    assert (found.clusters, found.note) == (5, "5 clusters: the interval is a guess")


def test_missing_cases_do_not_weigh() -> None:
    """Q3: the interval over valid cases is that of a set without the others, to the last digit."""
    top, bottom, names = clustered(6)
    more = interval([*top, 0.0, 0.0], [*bottom, 0.0, 0.0], [*names, names[0], "scene without value"])
    assert more == interval(top, bottom, names)


@given(st.integers(0, 1000), st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_order_of_cases_means_nothing(seed: int, random) -> None:
    """E107: any order of records gives the same bytes; floating-point sums must not leak it."""
    top, bottom, names = clustered(seed, cases=30, clusters=8)
    order = list(range(30))
    random.shuffle(order)
    shuffled = [names[k] for k in order]
    for weighting in ("by_scene", "by_agent"):
        here = interval(top, bottom, names, weighting=weighting, resamples=200)
        there = interval(top[order], bottom[order], shuffled, weighting=weighting, resamples=200)
        assert here == there
        assert estimate(top, bottom, weighting) == estimate(top[order], bottom[order], weighting)


def test_alone_and_among_others_is_the_same() -> None:
    """Batch layout must not show: metrics with other missing cases get their own drawing, each its own as if alone."""
    top, bottom, names = clustered(7)
    partly = np.where(np.arange(60) < 50, bottom, 0.0)
    columns = {
        "all": Column(top, bottom),
        "part": Column(np.where(partly > 0, top, 0.0), partly, "by_agent"),
        "constant": Column(bottom, bottom),
        "more": Column(top**2, bottom, "by_agent"),
    }
    together = intervals(columns, names)
    assert list(together) == list(columns)
    for name, column in columns.items():
        alone = interval(column.numerators, column.denominators, names, weighting=column.weighting)
        assert alone == together[name], name


def test_distance_per_event_turns_the_interval_round() -> None:
    """E106: cases without an event have an exposure and no denominator; metres per event is one over events per
    metre, ends exchanged, and has no upper end where no event remains possible."""
    rng = np.random.default_rng(8)
    metres, events = rng.uniform(100, 900, 30), rng.poisson(0.7, 30).astype(float)
    names = [f"s{k:02d}" for k in range(30)]
    rate = interval(events, metres, names, weighting="by_agent")
    found = interval(metres, events, names, weighting="by_agent")
    assert found[:2] == pytest.approx((1 / rate.high, 1 / rate.low))
    assert estimate(metres, events, "by_agent") == pytest.approx(metres.sum() / events.sum())
    rare = interval(metres, np.eye(30)[0], names, weighting="by_agent", method="percentile")
    assert rare.high is None
    assert rare.low is not None
    assert rare.reason is None


def test_no_event_at_all_has_no_interval() -> None:
    """E108: without an event the bound is all there is."""
    found = interval([100.0, 200.0], [0.0, 0.0], ["a", "b"], weighting="by_agent")
    assert found == Interval(None, None, "constant", "bca", 2, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: interval([1.0], [1.0, 1.0], ["a", "b"]),
        lambda: interval([1.0, 2.0], [1.0, 1.0], ["a"]),
        lambda: interval([float("nan"), 1.0], [1.0, 1.0], ["a", "b"]),
        lambda: interval([1.0, 2.0], [-1.0, 1.0], ["a", "b"]),
        lambda: interval([1.0, 2.0], [1.0, 1.0], ["a", "b"], resamples=10),
        lambda: interval([1.0, 2.0], [1.0, 1.0], ["a", "b"], method="basic"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused(call) -> None:
    """Style 6: lengths, finiteness and knobs are checked at the boundary, not somewhere inside scipy."""
    with pytest.raises(UsageError):
        call()

"""Exact small-sample statistics and the words for them: bounds, tests, corrections, verdicts.

Nothing here draws random numbers, except the sign-flip test on more clusters than can be enumerated, whose draws are
the same for everybody. Resampling is in `statistics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value

F64 = NDArray[np.float64]
Verdict = Literal["better", "worse", "equivalent within the margin", "not established", "not ranked"]
BoundKind = Literal["rate", "per_exposure", "exposure_per_event"]

CONFIDENCE = 0.95
FEW_CLUSTERS, GUESS_CLUSTERS, SMALL_CASES = 10, 6, 100
EXACT_FLIPS = 14  # clusters up to which all 2^n sign flips are tried
FLIP_DRAWS = 10_000
_SIGNS_AT_ONCE = 128  # clusters; another number here draws other signs
_Z = 1.959963984540054  # 97.5 % point of the normal distribution


def wilson(events: int, n: int) -> tuple[float, float]:
    """95 % interval of a share of independent yes-no cases (Wilson 1927). Raises ValueError for n = 0."""
    if n <= 0:
        raise ValueError("0 cases have no share")
    share, z2 = events / n, _Z * _Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # At the ends the formula gives 0 and 1 but for rounding.
    return 0.0 if events == 0 else centre - half, 1.0 if events == n else centre + half


def zero_event_bound(n: int) -> float:
    """Largest rate that 0 events in n independent cases leave possible at 95 %: 1 - 0.05^(1/n). 1 for n = 0."""
    return -math.expm1(math.log(1 - CONFIDENCE) / n) if n > 0 else 1.0


def bound(numerators: Any, denominators: Any, clusters: int, *, kind: BoundKind, unit: str = "") -> str | None:
    """What can be said when no event happened, as words; None when one did.

    numerators    (C,)  f64   per case; events, except for kind "exposure_per_event", where it is the exposure
    denominators  (C,)  f64   per case; agents or exposure; for "exposure_per_event", events
    clusters      independent groups of cases that were measured
    kind          "rate": events over agents, "per_exposure": events over exposure, "exposure_per_event": the inverse

    Agents of one scene share its fate, so a rate is bounded by the number of clusters and not of agents.
    """
    top, bottom = float(np.sum(numerators)), float(np.sum(denominators))
    if kind == "exposure_per_event":
        if bottom > 0:
            return None
        return f"more than {_number(top / 3)} {unit} at 95 %" if top > 0 else "nothing was driven"
    if top > 0 or clusters == 0:
        return None
    if kind == "per_exposure":
        return f"below {_number(3 / bottom)} {unit} at 95 %" if bottom > 0 else "nothing was driven"
    return f"below {_percent(zero_event_bound(clusters))} at 95 %"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %" if percent >= 1 else f"{percent:.2f} %"


def size_note(cases: int, clusters: int) -> str | None:
    """What a reader must know about the size of a sample; None when there is nothing to say."""
    if clusters < GUESS_CLUSTERS:
        return f"{clusters} clusters: the interval is a guess"
    if clusters < FEW_CLUSTERS:
        return f"few clusters ({clusters})"
    return f"n small ({cases})" if cases < SMALL_CASES else None


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p of McNemar's test from the numbers of discordant pairs; 1 when there is none."""
    n, fewer = only_first + only_second, min(only_first, only_second)
    # Integers: beyond 1,023 pairs neither side fits into a float, and their ratio does.
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / (1 << n))


class SignFlip(NamedTuple):
    """Two-sided p of the sign-flip permutation test, and how it was found: "exact" or the number of draws."""

    p: float
    method: str


def sign_flip_p(differences: Any, clusters: Sequence[str] | None = None) -> SignFlip:
    """Sign-flip permutation test of differences being symmetric about 0; a cluster flips as one.

    differences  (C,)  f64  per case
    clusters     (C,)  of each case; None = every case its own

    All flips are tried up to 14 clusters that differ at all; above that 10,000 are drawn, counting the observed one:
    the same for everybody, the smallest sum first. p is 1 when nothing differs.
    """
    values = np.asarray(differences, dtype=np.float64)
    sums = values
    if clusters is not None:
        _, group = np.unique(np.asarray(clusters), return_inverse=True)
        sums = np.bincount(group, weights=values).astype(np.float64)
    # Sorted, so that neither the order of cases nor the names of clusters can show.
    sums = np.sort(sums[sums != 0.0])
    n = len(sums)
    if n == 0:
        return SignFlip(1.0, "exact")
    if n <= EXACT_FLIPS:
        return SignFlip(float(np.mean(as_extreme(np.einsum("rc,c->r", all_signs(n), sums), sums))), "exact")
    from skidpad.evaluation.resampling import flipped

    return SignFlip(drawn_p(as_extreme(flipped([sums])[0], sums)), f"{FLIP_DRAWS} draws")


def drawn_p(extreme: NDArray[np.bool_]) -> float:
    """p of (10,000,) bool drawn flips, counting the observed one."""
    return (1 + int(extreme.sum())) / (1 + FLIP_DRAWS)


def all_signs(n: int) -> F64:
    """(2^n, n) f64, every row of +1 and -1."""
    return (1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)).astype(np.float64)


def drawn_signs(n: int) -> Iterator[tuple[int, F64]]:
    """Signs of n clusters in 10,000 draws, some clusters at a time: number of the first, and (c, 10000) f64 of +1 and
    -1. Cluster k has the same signs whatever n is."""
    rng = np.random.default_rng(int(digest_value("sign flip", "sign flip")[:16], 16))
    for start in range(0, n, _SIGNS_AT_ONCE):
        drawn = rng.integers(0, 256, size=(_SIGNS_AT_ONCE, FLIP_DRAWS // 8), dtype=np.uint8)
        yield start, (1.0 - 2.0 * np.unpackbits(drawn[: n - start], axis=1)).astype(np.float64, copy=False)


def as_extreme(flipped: F64, sums: F64) -> NDArray[np.bool_]:
    """(R,) bool, which of (R,) f64 flipped totals are at least as far from 0 as the total of (n,) f64 `sums`."""
    # Totals that are equal on paper differ in the last digits by the order of signs; they count as equal.
    slack = 1e-12 * np.abs(sums).sum()
    return np.asarray(np.abs(flipped) >= abs(sums.sum()) - slack)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm 1979), in the order given; each at most 1."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def verdict(
    low: float | None, high: float | None, *, margin: float, direction: str, clusters: int, p: float | None = None
) -> Verdict:
    """What an interval of a difference says, given the smallest effect of interest.

    low, high   95 % interval of (arm minus reference); None = there is none
    margin      smallest difference of interest, >= 0, in the metric's unit
    direction   "higher", "lower", or "none": then nothing is better
    clusters    below 6 the interval is a guess and establishes nothing
    p           adjusted for the family where there is one; above 0.05 no difference is established

    Better or worse when the whole interval lies beyond the margin on that side, equivalent when it lies inside.
    """
    if direction == "none":
        return "not ranked"
    if low is None or high is None or clusters < GUESS_CLUSTERS:
        return "not established"
    if direction == "lower":
        low, high = -high, -low
    if -margin <= low and high <= margin:
        return "equivalent within the margin"
    significant = p is None or p <= 1 - CONFIDENCE + 1e-12
    if low > margin and significant:
        return "better"
    if high < -margin and significant:
        return "worse"
    return "not established"


class Components(NamedTuple):
    """Where the spread of replicated results comes from (one-way random effects).

    between_scenes  variance of the scenes' true means, >= 0
    between_seeds   variance of replicates within a scene, None without replicates
    """

    between_scenes: float | None
    between_seeds: float | None


def variance_components(values: Any, scenes: Sequence[str]) -> Components:
    """Splits the variance of replicated results into scenes and seeds.

    values  (C,)  f64  result of each case
    scenes  (C,)  its scene
    """
    results = np.asarray(values, dtype=np.float64)
    _, group = np.unique(np.asarray(scenes), return_inverse=True)
    counts = np.bincount(group).astype(np.float64)
    k, n = len(counts), len(results)
    if k < 2:
        within = float(results.var(ddof=1)) if n > 1 else None
        return Components(None, within)
    means = np.bincount(group, weights=results) / counts
    if n == k:
        return Components(float(means.var(ddof=1)), None)
    within = float(((results - means[group]) ** 2).sum() / (n - k))
    between = float((counts * (means - results.mean()) ** 2).sum() / (k - 1))
    typical = (n - (counts**2).sum() / n) / (k - 1)  # replicates per scene, for unequal numbers of them
    return Components(max(0.0, (between - within) / typical), within)

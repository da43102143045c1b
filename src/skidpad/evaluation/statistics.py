"""How sure a number is: intervals of published values and of paired differences, resampled by cluster.

Cases of one scene share its fate, so scenes (or whatever the caller names as clusters) are drawn, never cases or
agents. Every estimate is a ratio of sums over clusters; a resample is a vector of how often each cluster was drawn, so
all metrics of an arm share one drawing and cost two sums each. The drawing and the interval are those of
`scipy.stats.bootstrap`, handed cluster numbers as its data.

The seed is the digest of the clusters' names and the number of resamples, or one that was registered beforehand: an
interval is the same alone or among others, in any order of cases, on any number of workers. Exact tests, bounds and
words are in `significance.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
from skidpad.errors import UsageError
from skidpad.evaluation.significance import (
    CONFIDENCE,
    EXACT_FLIPS,
    FLIP_DRAWS,
    as_extreme,
    flips,
    mcnemar,
    size_note,
    wilson,
)

F64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
Weighting = Literal["by_scene", "by_agent"]
Method = Literal["bca", "percentile"]

RESAMPLES = 10_000
_BATCH_ITEMS = 4_000_000  # counts held at once; a function of the number of clusters alone, so that draws repeat


class Column(NamedTuple):
    """One metric of one arm over C cases.

    numerators    (C,)  f64  sum over agents, or the counted part of an exposure; 0 where nothing was measured
    denominators  (C,)  f64  agents measured, or the exposure; 0 where nothing was measured
    weighting     "by_scene": mean over measured cases of numerator / denominator; "by_agent": sum over sum, which is
                  the only one for exposure metrics
    """

    numerators: Any
    denominators: Any
    weighting: Weighting = "by_scene"


class Interval(NamedTuple):
    """A 95 % interval, or why there is none.

    low, high  None where there is no interval; `high` alone is None where it has no end
    reason     why there is none: "no cases", "1 cluster", "constant", "all ties", "constant difference",
               "no exposure in one arm", "no exposure in some resamples", "resamples do not vary"
    method     "bca", "percentile", "wilson", or "percentile (bca undefined)"
    cases      cases with a value
    clusters   independent groups among them
    """

    low: float | None
    high: float | None
    reason: str | None
    method: str
    cases: int
    clusters: int

    @property
    def note(self) -> str | None:
        """What the reader must know about the size of the sample, or None."""
        return size_note(self.cases, self.clusters)


class Paired(NamedTuple):
    """Arm minus reference over the cases that both measured.

    n           pairs of cases
    excluded    cases that only one of the two measured
    difference  None without pairs
    interval    of the difference
    p           two-sided, of the sign-flip test by clusters; None without pairs
    p_method    "exact", "10000 draws", or "" without pairs
    mcnemar_p   exact McNemar test, for yes-no outcomes of one agent; None for others
    wins        pairs in which the arm is better (higher, where no direction is); ties and losses likewise
    """

    n: int
    excluded: int
    difference: float | None
    interval: Interval
    p: float | None
    p_method: str
    mcnemar_p: float | None
    wins: int
    ties: int
    losses: int


class _Sums(NamedTuple):
    """A statistic as sums over clusters: top / bottom, minus top2 / bottom2 for a difference of ratios.

    rows  (K, C)  f64, K = 2 or 4: top, bottom, top2, bottom2
    """

    rows: F64
    inverted: bool = False

    def of(self, totals: F64) -> F64:
        """The statistic from (K, ...) f64 totals."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = totals[0] / totals[1]
            return np.asarray(value if len(totals) == 2 else value - totals[2] / totals[3])


def estimate(numerators: Any, denominators: Any, weighting: Weighting) -> float | None:
    """The published value of a column, None where no case was measured."""
    top, bottom = _parts(Column(numerators, denominators, weighting))
    measured = bottom > 0
    if weighting == "by_scene":
        return float(np.mean(np.sort(top[measured] / bottom[measured]))) if measured.any() else None
    return float(np.sort(top).sum() / np.sort(bottom).sum()) if measured.any() else None


def interval(
    numerators: Any,
    denominators: Any,
    clusters: Sequence[str],
    *,
    weighting: Weighting = "by_scene",
    method: Method = "bca",
    resamples: int = RESAMPLES,
) -> Interval:
    """95 % interval of `estimate`.

    numerators    (C,)  f64   as in Column
    denominators  (C,)  f64
    clusters      (C,)  name of each case's cluster

    Raises UsageError for lengths that differ, for values that are not finite and for fewer than 100 resamples.
    """
    column = Column(numerators, denominators, weighting)
    return intervals({"": column}, clusters, method=method, resamples=resamples)[""]


def intervals(
    columns: Mapping[str, Column],
    clusters: Sequence[str],
    *,
    method: Method = "bca",
    resamples: int = RESAMPLES,
    seed: int | None = None,
) -> dict[str, Interval]:
    """`interval` of many columns over the same cases, sharing the drawing of clusters; same results as one by one.

    seed  registered beforehand; None = from the clusters' names
    """
    names, group = _grouped(clusters)
    found: dict[str, Interval] = {}
    waiting: dict[str, tuple[_Sums, Bool, int]] = {}
    for key, column in columns.items():
        top, bottom = _parts(column, len(group))
        used = bottom > 0 if column.weighting == "by_scene" else (bottom > 0) | (top != 0)
        if column.weighting == "by_scene":
            top, bottom = np.divide(top, bottom, out=np.zeros_like(top), where=used), used.astype(np.float64)
        cases, present = int(used.sum()), np.bincount(group[used], minlength=len(names)) > 0
        settled = _settled(cases, int(present.sum()), method) or _wilson(column, group, used, method)
        if settled:
            found[key] = settled
            continue
        # A ratio whose denominator can vanish in a resample is resampled upside down: intervals turn with it.
        inverted = column.weighting == "by_agent" and bool(np.any(bottom[used] == 0))
        sums = _Sums(_cluster_sums([bottom, top] if inverted else [top, bottom], group, used, present), inverted)
        if _is_constant(sums):
            found[key] = Interval(None, None, "constant", method, cases, int(present.sum()))
        else:
            waiting[key] = sums, present, cases
    found.update(_resampled(waiting, names, method, resamples, seed))
    return {key: found[key] for key in columns}


def paired(
    arm: Column,
    reference: Column,
    clusters: Sequence[str],
    *,
    direction: str = "higher",
    method: Method = "bca",
    resamples: int = RESAMPLES,
) -> Paired:
    """Arm minus reference, case by case.

    clusters   (C,)  name of each case's cluster; the columns are over the same cases in the same order
    direction  "higher", "lower" or "none": which sign is a win

    Raises UsageError as `interval` does, and for columns of different weighting.
    """
    pairs = {"": (arm, reference, direction)}
    return paired_many(pairs, clusters, method=method, resamples=resamples)[""]


def paired_many(
    pairs: Mapping[str, tuple[Column, Column, str]],
    clusters: Sequence[str],
    *,
    method: Method = "bca",
    resamples: int = RESAMPLES,
    seed: int | None = None,
) -> dict[str, Paired]:
    """`paired` of many (arm, reference, direction) over the same cases, sharing the drawing of clusters; same results
    as one by one. `seed` as in `intervals`."""
    names, group = _grouped(clusters)
    found: dict[str, Interval] = {}
    waiting: dict[str, tuple[_Sums, Bool, int]] = {}
    sums_of: dict[str, _Sums] = {}
    for key, (arm, reference, _) in pairs.items():
        if arm.weighting != reference.weighting:
            raise UsageError(f"cannot pair a column weighted {arm.weighting} with one weighted {reference.weighting}.")
        rows, used = _pair_rows(arm, reference, len(group))
        cases, present = int(used.sum()), np.bincount(group[used], minlength=len(names)) > 0
        sums = _Sums(_cluster_sums(rows, group, used, present))
        sums_of[key] = sums
        settled = _settled(cases, int(present.sum()), method)
        if settled is None and not np.isfinite(sums.of(sums.rows.sum(axis=1))):
            settled = Interval(None, None, "no exposure in one arm", method, cases, int(present.sum()))
        if settled is None and _is_constant(sums):
            tied = not sums.rows[0].any() if len(rows) == 2 else np.array_equal(sums.rows[:2], sums.rows[2:])
            why = "all ties" if tied else "constant difference"
            settled = Interval(None, None, why, method, cases, int(present.sum()))
        if settled is None:
            waiting[key] = sums, present, cases
        else:
            found[key] = settled
    found.update(_resampled(waiting, names, method, resamples, seed))
    p_values = _swap_p(sums_of)
    return {
        key: _paired(arm, reference, direction, sums_of[key], found[key], p_values[key])
        for key, (arm, reference, direction) in pairs.items()
    }


def _paired(
    arm: Column, reference: Column, direction: str, sums: _Sums, interval: Interval, p: tuple[float, str] | None
) -> Paired:
    top, bottom = _parts(arm)
    top2, bottom2 = _parts(reference)
    both, either = (bottom > 0) & (bottom2 > 0), (bottom > 0) | (bottom2 > 0)
    first, second = top[both] / bottom[both], top2[both] / bottom2[both]
    gain = second - first if direction == "lower" else first - second
    total = float(sums.of(sums.rows.sum(axis=1))) if sums.rows.size else float("nan")
    yes_no = both.any() and all(
        np.all(d[both] == 1) and np.all((t[both] == 0) | (t[both] == 1)) for t, d in ((top, bottom), (top2, bottom2))
    )
    return Paired(
        n=int(both.sum()),
        excluded=int(either.sum() - both.sum()),
        difference=total if np.isfinite(total) else None,
        interval=interval,
        p=p[0] if p else None,
        p_method=p[1] if p else "",
        mcnemar_p=mcnemar(int((first > second).sum()), int((second > first).sum())) if yes_no else None,
        wins=int((gain > 0).sum()),
        ties=int((gain == 0).sum()),
        losses=int((gain < 0).sum()),
    )


def _grouped(clusters: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Sorted cluster names, and (C,) i8 the position of each case's."""
    names = sorted(set(clusters))
    position = {name: index for index, name in enumerate(names)}
    return names, np.array([position[name] for name in clusters], dtype=np.int64)


def _parts(column: Column, cases: int | None = None) -> tuple[F64, F64]:
    top = np.asarray(column.numerators, dtype=np.float64)
    bottom = np.asarray(column.denominators, dtype=np.float64)
    if top.ndim != 1 or top.shape != bottom.shape or (cases is not None and len(top) != cases):
        raise UsageError(
            f"numerators {top.shape}, denominators {bottom.shape} and clusters ({cases},) differ: one of each per case."
        )
    if not (np.isfinite(top).all() and np.isfinite(bottom).all() and (bottom >= 0).all()):
        raise UsageError("numerators and denominators must be finite, denominators not negative; missing is 0 over 0.")
    return top, bottom


def _pair_rows(arm: Column, reference: Column, cases: int) -> tuple[list[F64], Bool]:
    """What is summed over clusters, per case, and which cases take part."""
    top, bottom = _parts(arm, cases)
    top2, bottom2 = _parts(reference, cases)
    if arm.weighting == "by_scene":
        used = (bottom > 0) & (bottom2 > 0)
        one = np.ones_like(top)
        value, value2 = (np.divide(t, d, out=np.zeros_like(t), where=used) for t, d in ((top, bottom), (top2, bottom2)))
        return [value - value2, one], np.asarray(used)
    # Sums over sums: a case takes part when each arm measured something in it, if only an exposure.
    used = ((bottom > 0) | (top != 0)) & ((bottom2 > 0) | (top2 != 0))
    return [top, bottom, top2, bottom2], np.asarray(used)


def _cluster_sums(rows: Sequence[F64], group: NDArray[np.int64], used: Bool, present: Bool) -> F64:
    """(K, C') f64, sums of (cases,) rows over the clusters that are present."""
    table = np.stack(rows)[:, used]
    group = group[used]
    # Additions in one order whatever the order of cases: floating-point sums must not depend on it.
    order = np.lexsort((*table, group))
    table, group = table[:, order], group[order]
    position = np.cumsum(present) - 1
    count = int(present.sum())
    sums = [np.bincount(position[group], weights=row, minlength=count) for row in table]
    return np.stack(sums) if count else np.zeros((len(rows), 0))


def _settled(cases: int, clusters: int, method: str) -> Interval | None:
    """The answer where there are too few clusters to resample."""
    if clusters >= 2:
        return None
    return Interval(None, None, "1 cluster" if clusters else "no cases", method, cases, clusters)


def _wilson(column: Column, group: NDArray[np.int64], used: Bool, method: str) -> Interval | None:
    """Wilson's interval where every cluster is one case of one agent with a yes-no outcome."""
    top, bottom = _parts(column)
    n = int(used.sum())
    yes_no = np.all(bottom[used] == 1) and np.all((top[used] == 0) | (top[used] == 1))
    if not yes_no or len(np.unique(group[used])) != n:
        return None
    events = int(top[used].sum())
    if events in (0, n):
        return Interval(None, None, "constant", method, n, n)
    return Interval(*wilson(events, n), None, "wilson", n, n)


def _resampled(
    waiting: Mapping[str, tuple[_Sums, Bool, int]],
    names: Sequence[str],
    method: Method,
    resamples: int,
    seed: int | None,
) -> dict[str, Interval]:
    """Intervals of all statistics; those over the same clusters share one drawing."""
    if method not in ("bca", "percentile") or resamples < 100:
        raise UsageError(f"method {method!r} with {resamples} resamples; expected 'bca' or 'percentile', 100 or more.")
    found: dict[str, Interval] = {}
    groups: dict[bytes, list[str]] = {}
    for key, (_, present, _) in waiting.items():
        groups.setdefault(present.tobytes(), []).append(key)
    for keys in groups.values():
        present = waiting[keys[0]][1]
        drawn = [name for name, there in zip(names, present, strict=True) if there]
        chosen = _seed(drawn, resamples) if seed is None else seed
        limits = _bootstrap([waiting[key][0] for key in keys], len(drawn), method, resamples, chosen)
        for key, (low, high, used_method) in zip(keys, limits, strict=True):
            found[key] = _as_interval(waiting[key][0], low, high, used_method, waiting[key][2], len(drawn))
    return found


def _is_constant(sums: _Sums) -> bool:
    # Every cluster on its own gives what all give together: no drawing can differ.
    total = sums.rows.sum(axis=1)
    scale = np.abs(sums.rows).max(initial=0.0)
    ratios = [(0, 1)] if len(total) == 2 else [(0, 1), (2, 3)]
    residue = [sums.rows[top] * total[bottom] - sums.rows[bottom] * total[top] for top, bottom in ratios]
    return all(np.abs(part).max(initial=0.0) <= 1e-12 * scale * max(1.0, np.abs(total).max()) for part in residue)


def _as_interval(sums: _Sums, low: float, high: float, method: str, cases: int, clusters: int) -> Interval:
    if not (np.isfinite(low) and np.isfinite(high)):
        return Interval(None, None, "no exposure in some resamples", method, cases, clusters)
    if low == high:
        return Interval(None, None, "resamples do not vary", method, cases, clusters)
    if sums.inverted:
        return Interval(1 / high, 1 / low if low > 0 else None, None, method, cases, clusters)
    return Interval(low, high, None, method, cases, clusters)


def _seed(names: Sequence[str], resamples: int) -> int:
    return int(digest_value([list(names), resamples], "resampled clusters")[:16], 16)


def _bootstrap(
    statistics: Sequence[_Sums], count: int, method: Method, resamples: int, seed: int
) -> list[tuple[float, float, str]]:
    """Low, high and method of each statistic; NaN where a resample has none."""
    from scipy import stats

    def values(drawn: Any, axis: int = -1) -> F64:
        rows = np.atleast_2d(np.asarray(drawn)).astype(np.int64)
        times = np.bincount((rows + count * np.arange(len(rows))[:, None]).ravel(), minlength=count * len(rows))
        times = times.reshape(len(rows), count).astype(np.float64)
        # einsum and not a matrix product: one order of additions whatever the thread count or number of statistics.
        result = np.stack([s.of(np.stack([np.einsum("rc,c->r", times, row) for row in s.rows])) for s in statistics])
        return result[:, 0] if np.ndim(drawn) == 1 else result

    def run(chosen: str, previous: Any = None) -> Any:
        with warnings.catch_warnings():
            # Degenerate and non-finite distributions come back as NaN and are stated by the caller.
            warnings.simplefilter("ignore")
            return stats.bootstrap(
                (np.arange(count),),
                values,
                method="BCa" if chosen == "bca" else "percentile",
                n_resamples=0 if previous is not None else resamples,
                batch=max(1, _BATCH_ITEMS // count),
                confidence_level=CONFIDENCE,
                vectorized=True,
                rng=np.random.default_rng(seed),
                bootstrap_result=previous,
            )

    result = run(method)
    finite = np.isfinite(result.bootstrap_distribution).all(axis=-1)
    low, high = result.confidence_interval
    undefined = finite & ~(np.isfinite(low) & np.isfinite(high))
    if undefined.any():
        other_low, other_high = run("percentile", result).confidence_interval
        low, high = np.where(undefined, other_low, low), np.where(undefined, other_high, high)
    low, high = np.where(finite, low, np.nan), np.where(finite, high, np.nan)
    return [
        (float(a), float(b), "percentile (bca undefined)" if bad else method)
        for a, b, bad in zip(low, high, undefined, strict=True)
    ]


def _swap_p(statistics: Mapping[str, _Sums]) -> dict[str, tuple[float, str] | None]:
    """Two-sided p of every paired statistic under swapping arm and reference in whole clusters.

    Of a mean of differences that is the sign-flip test. Clusters in which the arms are equal are left out.
    """
    found: dict[str, tuple[float, str] | None] = {}
    drawn: dict[int, list[tuple[str, F64, F64]]] = {}
    for key, sums in statistics.items():
        rows = sums.rows
        half = len(rows) // 2
        # mean +- change / 2: a swapped cluster turns the sign of its change.
        if len(rows) == 2:
            mean, change = np.zeros(1), rows[:1]
        else:
            mean, change = (rows[:half] + rows[half:]).sum(axis=1) / 2, (rows[:half] - rows[half:]) / 2
        change = change[:, np.any(change != 0, axis=0)]
        change = change[:, np.lexsort(change)] if change.size else change
        n = change.shape[1]
        if rows.shape[1] == 0 or not np.isfinite(sums.of(rows.sum(axis=1))):
            found[key] = None
        elif n == 0:
            found[key] = 1.0, "exact"
        elif n <= EXACT_FLIPS:
            signs = next(flips(n))
            found[key] = float(np.mean(_swapped(signs, mean, change))), "exact"
        else:
            drawn.setdefault(n, []).append((key, mean, change))
    for n, members in drawn.items():
        extreme = dict.fromkeys((key for key, *_ in members), 0)
        for signs in flips(n):
            for key, mean, change in members:
                extreme[key] += int(_swapped(signs, mean, change).sum())
        found.update({key: ((1 + count) / (1 + FLIP_DRAWS), f"{FLIP_DRAWS} draws") for key, count in extreme.items()})
    return found


def _swapped(signs: F64, mean: F64, change: F64) -> Bool:
    """(R,) bool, whether a swapping is at least as extreme as what was observed."""
    moved = np.stack([np.einsum("rc,c->r", signs, row) for row in change])
    if len(change) == 1:
        return as_extreme(moved[0], change[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        up, down = mean[:, None] + moved, mean[:, None] - moved
        value = up[0] / up[1] - down[0] / down[1]
        total = change.sum(axis=1)
        observed = (mean[0] + total[0]) / (mean[1] + total[1]) - (mean[0] - total[0]) / (mean[1] - total[1])
    # A swapping that leaves an arm without a denominator is infinitely far off, which counts against significance.
    return np.asarray(np.abs(value) >= abs(observed) * (1 - 1e-12))

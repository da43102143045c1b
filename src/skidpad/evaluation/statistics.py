"""How sure a number is: intervals of published values and of paired differences, resampled by cluster.

Cases of one scene share its fate, so scenes (or whatever the caller names as clusters) are drawn, never cases or
agents. Every estimate is a ratio of sums over clusters, and all that have values in the same clusters share one drawing
(`resampling.py`), whose intervals are those of `scipy.stats.bootstrap`.

The seed is the digest of the clusters' names and the number of resamples, or one that was registered beforehand: an
interval is the same alone or among others, in any order of cases, on any number of workers. Exact tests, bounds and
words are in `significance.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
from skidpad.errors import UsageError
from skidpad.evaluation.resampling import Method, Sums, flipped, limits
from skidpad.evaluation.significance import (
    EXACT_FLIPS,
    FLIP_DRAWS,
    all_signs,
    as_extreme,
    drawn_p,
    mcnemar,
    size_note,
    wilson,
)

F64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
Weighting = Literal["by_scene", "by_agent"]
T = TypeVar("T", bound=Hashable)
Place = tuple[Hashable, str, bool]
"""What an answer is to: a sample, the name of a column or pair in it, and whether it is a pair."""

RESAMPLES = 10_000


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


class Sample(NamedTuple):
    """What is asked of some cases.

    clusters  (C,)  name of each case's cluster
    columns   by name, to have an interval
    pairs     by name, (arm, reference, direction) to be compared; direction "higher", "lower" or "none": which sign is
              a win
    """

    clusters: Sequence[str]
    columns: Mapping[str, Column] = {}
    pairs: Mapping[str, tuple[Column, Column, str]] = {}


class Told(NamedTuple):
    """What is found of a sample, by the names of its columns and pairs."""

    intervals: dict[str, Interval]
    paired: dict[str, Paired]


class _Waiting(NamedTuple):
    """A statistic that must be resampled: what is known of its interval already."""

    sums: Sums
    clusters: list[str]
    cases: int


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
    asked = {"": Sample(clusters, columns)}
    return resampled(asked, method=method, resamples=resamples, seed=seed)[""].intervals


def resampled(
    samples: Mapping[T, Sample],
    *,
    method: Method = "bca",
    resamples: int = RESAMPLES,
    seed: int | None = None,
) -> dict[T, Told]:
    """Everything that is asked of several samples, by their names; the results are those of asking one by one, but
    whatever has values in the same clusters shares one drawing.

    Raises UsageError as `interval` and `paired` do.
    """
    found: dict[Place, Interval] = {}
    waiting: dict[Place, _Waiting] = {}
    sums_of: dict[Place, Sums] = {}
    for name, sample in samples.items():
        names, group = _grouped(sample.clusters)
        for key, column in sample.columns.items():
            _ask_interval((name, key, False), column, names, group, method, found, waiting)
        for key, (arm, reference, _) in sample.pairs.items():
            place = (name, key, True)
            sums_of[place] = _ask_difference(place, arm, reference, names, group, method, found, waiting)
    found |= _resampled(waiting, method, resamples, seed)
    p_values = _swap_p(sums_of)
    return {
        name: Told(
            {key: found[name, key, False] for key in sample.columns},
            {
                key: _paired(*pair, sums_of[name, key, True], found[name, key, True], p_values[name, key, True])
                for key, pair in sample.pairs.items()
            },
        )
        for name, sample in samples.items()
    }


def _ask_interval(
    place: Place,
    column: Column,
    names: list[str],
    group: NDArray[np.int64],
    method: str,
    found: dict[Place, Interval],
    waiting: dict[Place, _Waiting],
) -> None:
    """Put a column's interval among those that are found, or what it takes to resample it among those that wait."""
    top, bottom = _parts(column, len(group))
    used = bottom > 0 if column.weighting == "by_scene" else (bottom > 0) | (top != 0)
    if column.weighting == "by_scene":
        top, bottom = np.divide(top, bottom, out=np.zeros_like(top), where=used), used.astype(np.float64)
    cases, present = int(used.sum()), np.bincount(group[used], minlength=len(names)) > 0
    settled = _settled(cases, int(present.sum()), method) or _wilson(column, group, used, method)
    if settled:
        found[place] = settled
        return
    # A ratio whose denominator can vanish in a resample is resampled upside down: intervals turn with it.
    inverted = column.weighting == "by_agent" and bool(np.any(bottom[used] == 0))
    sums = Sums(_cluster_sums([bottom, top] if inverted else [top, bottom], group, used, present), inverted)
    if _is_constant(sums):
        found[place] = Interval(None, None, "constant", method, cases, int(present.sum()))
    else:
        waiting[place] = _Waiting(sums, _there(names, present), cases)


def _ask_difference(
    place: Place,
    arm: Column,
    reference: Column,
    names: list[str],
    group: NDArray[np.int64],
    method: str,
    found: dict[Place, Interval],
    waiting: dict[Place, _Waiting],
) -> Sums:
    """The same for the difference of two columns; returns its sums."""
    if arm.weighting != reference.weighting:
        raise UsageError(f"cannot pair a column weighted {arm.weighting} with one weighted {reference.weighting}.")
    rows, used = _pair_rows(arm, reference, len(group))
    cases, present = int(used.sum()), np.bincount(group[used], minlength=len(names)) > 0
    sums = Sums(_cluster_sums(rows, group, used, present))
    settled = _settled(cases, int(present.sum()), method)
    if settled is None and not np.isfinite(sums.of(sums.rows.sum(axis=1))):
        settled = Interval(None, None, "no exposure in one arm", method, cases, int(present.sum()))
    if settled is None and _is_constant(sums):
        tied = not sums.rows[0].any() if len(rows) == 2 else np.array_equal(sums.rows[:2], sums.rows[2:])
        why = "all ties" if tied else "constant difference"
        settled = Interval(None, None, why, method, cases, int(present.sum()))
    if settled is None:
        waiting[place] = _Waiting(sums, _there(names, present), cases)
    else:
        found[place] = settled
    return sums


def _there(names: Sequence[str], present: Bool) -> list[str]:
    return [name for name, there in zip(names, present, strict=True) if there]


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
    asked = {"": Sample(clusters, {}, pairs)}
    return resampled(asked, method=method, resamples=resamples, seed=seed)[""].paired


def _paired(
    arm: Column, reference: Column, direction: str, sums: Sums, interval: Interval, p: tuple[float, str] | None
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
    waiting: Mapping[Place, _Waiting], method: Method, resamples: int, seed: int | None
) -> dict[Place, Interval]:
    """Intervals of all statistics; those over the same clusters share one drawing."""
    if method not in ("bca", "percentile") or resamples < 100:
        raise UsageError(f"method {method!r} with {resamples} resamples; expected 'bca' or 'percentile', 100 or more.")
    found: dict[Place, Interval] = {}
    groups: dict[tuple[str, ...], list[Place]] = {}
    for place, one in waiting.items():
        groups.setdefault(tuple(one.clusters), []).append(place)
    for drawn, places in groups.items():
        chosen = _seed(drawn, resamples) if seed is None else seed
        ends = limits([waiting[place].sums for place in places], len(drawn), method, resamples, chosen)
        for place, (low, high, used_method) in zip(places, ends, strict=True):
            found[place] = _as_interval(waiting[place].sums, low, high, used_method, waiting[place].cases, len(drawn))
    return found


def _is_constant(sums: Sums) -> bool:
    # Every cluster on its own gives what all give together: no drawing can differ.
    total = sums.rows.sum(axis=1)
    scale = np.abs(sums.rows).max(initial=0.0)
    ratios = [(0, 1)] if len(total) == 2 else [(0, 1), (2, 3)]
    residue = [sums.rows[top] * total[bottom] - sums.rows[bottom] * total[top] for top, bottom in ratios]
    return all(np.abs(part).max(initial=0.0) <= 1e-12 * scale * max(1.0, np.abs(total).max()) for part in residue)


def _as_interval(sums: Sums, low: float, high: float, method: str, cases: int, clusters: int) -> Interval:
    if not (np.isfinite(low) and np.isfinite(high)):
        return Interval(None, None, "no exposure in some resamples", method, cases, clusters)
    if low == high:
        return Interval(None, None, "resamples do not vary", method, cases, clusters)
    if sums.inverted:
        return Interval(1 / high, 1 / low if low > 0 else None, None, method, cases, clusters)
    return Interval(low, high, None, method, cases, clusters)


def _seed(names: Sequence[str], resamples: int) -> int:
    return int(digest_value([list(names), resamples], "resampled clusters")[:16], 16)


def _swap_p(statistics: Mapping[T, Sums]) -> dict[T, tuple[float, str] | None]:
    """Two-sided p of every paired statistic under swapping arm and reference in whole clusters.

    Of a mean of differences that is the sign-flip test. Clusters in which the arms are equal are left out.
    """
    found: dict[T, tuple[float, str] | None] = {}
    drawn: dict[T, tuple[F64, F64]] = {}
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
            moved = np.stack([np.einsum("rc,c->r", all_signs(n), row) for row in change])
            found[key] = float(np.mean(_swapped(moved, mean, change))), "exact"
        else:
            drawn[key] = mean, change
    moved_rows = iter(flipped([row for _, change in drawn.values() for row in change]))
    for key, (mean, change) in drawn.items():
        moved = np.stack([next(moved_rows) for _ in change])
        found[key] = drawn_p(_swapped(moved, mean, change)), f"{FLIP_DRAWS} draws"
    return found


def _swapped(moved: F64, mean: F64, change: F64) -> Bool:
    """(R,) bool, whether a swapping, whose signs sum the changes to (K, R) f64 `moved`, is at least as extreme as what
    was observed."""
    if len(change) == 1:
        return as_extreme(moved[0], change[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        up, down = mean[:, None] + moved, mean[:, None] - moved
        value = up[0] / up[1] - down[0] / down[1]
        total = change.sum(axis=1)
        observed = (mean[0] + total[0]) / (mean[1] + total[1]) - (mean[0] - total[0]) / (mean[1] - total[1])
    # A swapping that leaves an arm without a denominator is infinitely far off, which counts against significance.
    return np.asarray(np.abs(value) >= abs(observed) * (1 - 1e-12))

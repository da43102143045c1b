"""Drawing clusters again, thousands of times, for all statistics at once.

A resample says how often each cluster was drawn. Sums over what was drawn are then a matrix product of those counts and
the sums of each cluster, one drawing and one product for every metric of every driver that has values in the same
clusters.

A matrix product adds in an order that depends on threads and on how many columns there are, and rounding shows the
order. So numbers are cut into integers that are short enough for every sum of them to be exact (`Pieces`): a statistic
comes out the same alone or among others, on any number of threads, in any order of clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.significance import CONFIDENCE, FLIP_DRAWS, drawn_signs

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Method = Literal["bca", "percentile"]

_MOST_COUNTS = 1 << 20  # counts held at once
_MOST_VALUES = 1 << 22  # values of statistics, or sums of clusters, held at once
_FEW = 14  # bits of the largest number of clusters for which nothing is lost that a float64 of the sum would show
_EXACT = 52  # bits of integers that a float64 holds, with one to spare
_NORMAL = NormalDist()


class Sums(NamedTuple):
    """A statistic as sums over clusters: top / bottom, minus top2 / bottom2 for a difference of ratios.

    rows      (K, C)  f64, K = 2 or 4: top, bottom, top2, bottom2
    inverted  it is resampled upside down, since its denominator can vanish
    """

    rows: F64
    inverted: bool = False

    def of(self, totals: F64) -> F64:
        """The statistic from (K, ...) f64 totals."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = totals[0] / totals[1]
            return np.asarray(value if len(totals) == 2 else value - totals[2] / totals[3])


class Pieces:
    """Numbers as two integers each, times powers of two, whose sums are exact.

    rows  (K, C)  f64  finite
    most  (K,)    i64  the most that magnitudes of weights add up to, below 2^30; C where left out

    What lies 2^76 below the largest number of a row is dropped (2^62 for a million clusters).
    """

    def __init__(self, rows: F64, most: I64 | None = None) -> None:
        count, clusters = rows.shape
        spare = np.full(count, clusters, np.int64) if most is None else most
        bits = _EXACT - np.maximum(_FEW, np.frexp(spare.astype(np.float64))[1])
        exponent = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1]
        rest = np.ldexp(rows, (bits - exponent)[:, None])
        high = np.trunc(rest)
        low = np.trunc(np.ldexp(rest - high, bits[:, None]))
        self._fine = np.flatnonzero(low.any(axis=1))  # counts and truths need one integer only
        self._count = count
        self._high, self._low = exponent - bits, (exponent - 2 * bits)[self._fine]
        self.integers = np.ascontiguousarray(np.concatenate([high, low[self._fine]]).T)
        """(C, P) f64"""

    def whole(self, sums: F64) -> F64:
        """(K, B) f64, sums of the numbers from those of their integers (B, P)."""
        total: F64 = np.ldexp(sums[:, : self._count].T, self._high[:, None])
        total[self._fine] += np.ldexp(sums[:, self._count :].T, self._low[:, None])
        return total


def limits(
    statistics: Sequence[Sums], count: int, method: Method, resamples: int, seed: int
) -> list[tuple[float, float, str]]:
    """Low and high end of the 95 % interval of each statistic over `count` clusters, and the method that gave them;
    NaN where a resample has no value. Drawing and interval are those of `scipy.stats.bootstrap`."""
    at_once = max(8, _MOST_VALUES // max(count, resamples))
    found = []
    for start in range(0, len(statistics), at_once):
        part = statistics[start : start + at_once]
        values, observed, left_out = _spread(part, count, resamples, seed)
        found += [_ends(*one, method) for one in zip(values, observed, left_out, strict=True)]
    return found


def _spread(statistics: Sequence[Sums], count: int, resamples: int, seed: int) -> tuple[F64, F64, list[F64]]:
    """Of S statistics: (S, R) f64 in each resample, (S,) f64 as observed, and (C,) f64 each with one cluster left
    out."""
    # Many metrics are means over the same cases: their denominators are one row.
    index: dict[bytes, int] = {}
    places = [[index.setdefault(row.tobytes(), len(index)) for row in one.rows] for one in statistics]
    rows = np.stack([np.frombuffer(row) for row in index])
    pieces = Pieces(rows)
    values = np.empty((len(statistics), resamples))
    for start, counts in _counts(count, resamples, seed):
        totals = pieces.whole(counts @ pieces.integers)
        for one, place, out in zip(statistics, places, values, strict=True):
            out[start : start + len(counts)] = one.of(totals[place])
    whole = pieces.integers.sum(axis=0)
    total, others = pieces.whole(whole[None]), pieces.whole(whole - pieces.integers)
    observed = [float(one.of(total[place])[0]) for one, place in zip(statistics, places, strict=True)]
    left_out = [one.of(others[place]) for one, place in zip(statistics, places, strict=True)]
    return values, np.array(observed), left_out


def _counts(count: int, resamples: int, seed: int) -> Iterator[tuple[int, F64]]:
    """Number of the first resample of a block, and (B, C) f64, how often each cluster was drawn in each of them."""
    rng = np.random.default_rng(seed)
    block = max(1, _MOST_COUNTS // count)  # the stream is the same however it is cut
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = rng.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        yield start, times.astype(np.float64)


def _ends(values: F64, observed: float, left_out: F64, method: Method) -> tuple[float, float, str]:
    if not np.isfinite(values).all():
        return np.nan, np.nan, method
    ordered = np.sort(values)
    tail = (1 - CONFIDENCE) / 2
    levels = _bca(ordered, observed, left_out, tail) if method == "bca" else (tail, 1 - tail)
    said: str = method
    if levels is None:
        levels, said = (tail, 1 - tail), "percentile (bca undefined)"
    low, high = (_quantile(ordered, level) for level in levels)
    return low, high, said


def _bca(ordered: F64, observed: float, left_out: F64, tail: float) -> tuple[float, float] | None:
    """Levels of the bias-corrected and accelerated interval (Efron and Tibshirani 1993, 14.3), None where they are not
    defined."""
    n = len(ordered)
    below = (np.searchsorted(ordered, observed, "left") + np.searchsorted(ordered, observed, "right")) / (2 * n)
    far = (len(left_out) - 1) * (left_out.mean() - left_out)
    spread = float((far**2).sum())
    if not (0 < below < 1 and np.isfinite(spread) and spread > 0):
        return None
    acceleration = float((far**3).sum()) / (6 * spread**1.5)
    bias = _NORMAL.inv_cdf(float(below))
    moved = (bias + z for z in (_NORMAL.inv_cdf(tail), -_NORMAL.inv_cdf(tail)))
    low, high = (_NORMAL.cdf(bias + z / (1 - acceleration * z)) for z in moved)
    return low, high


def _quantile(ordered: F64, level: float) -> float:
    place = level * (len(ordered) - 1)
    first = min(int(place), len(ordered) - 2)
    a, b = float(ordered[first]), float(ordered[first + 1])
    return a + (b - a) * (place - first)


def flipped(rows: Sequence[F64]) -> list[F64]:
    """Sums of numbers whose signs are drawn, of rows of any lengths: (10,000,) f64 each. A row's signs are those of
    `drawn_signs`, however long others are."""
    found: list[F64] = []
    at_once = max(8, _MOST_VALUES // FLIP_DRAWS)
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        lengths = np.array([len(row) for row in part], np.int64)
        table = np.zeros((len(part), int(lengths.max())))
        for line, row in zip(table, part, strict=True):
            line[: len(row)] = row
        pieces = Pieces(table, lengths)
        sums = np.zeros((FLIP_DRAWS, pieces.integers.shape[1]))
        for first, signs in drawn_signs(table.shape[1]):
            sums += signs.T @ pieces.integers[first : first + len(signs)]
        found += list(pieces.whole(sums))
    return found

"""The mathematics of OpenDRIVE: where a road's reference line runs, and cubics along it.

A reference line is a chain of plan-view pieces (line, arc, spiral, poly3, paramPoly3), each followed by its true arc
length; widths, offsets and heights are piecewise cubics. Everything is float64 and vectorised over the samples. What
the file calls these things, and what roads are made of them, is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

CHORD_M = 0.05  # largest distance between a curve and its polyline (R17)
_AIM = 0.7  # the step rule neglects products of small terms; aiming lower keeps the bound
SHORTEST_STEP_M = 0.05  # a cusp has no curvature to follow; a chord this short is within the bound anyway
SPIRAL_CHANGE = 1e-9  # [1/m] a spiral whose curvature changes by less is an arc or a line (R17)
LARGEST_TURN = 1000.0  # [rad] of one piece: 160 full circles; a garage ramp turns a tenth of it

# Ten nodes integrate cos of a quadratic over half a radian to the last bits of float64.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_SPIRAL_TURN = 0.5  # [rad] largest turn between two knots of a spiral
_ARC_INTERVALS = 64  # of the arc-length table of a cubic
_NEWTON_STEPS = 6


class Shape(Protocol):
    """The course of a piece in its own frame: it starts near the origin, heading along u.

    curvature  [1/m]  largest absolute curvature on the piece
    """

    @property
    def curvature(self) -> float: ...

    def at(self, distance: F64) -> tuple[F64, F64, F64]:
        """u, v (n,) f64 [m] and heading (n,) f64 [rad] after `distance` (n,) f64 [m] along the piece."""
        ...


class Bend:
    """Constant curvature [1/m]: an arc, or a line when it is 0."""

    def __init__(self, curvature: float) -> None:
        self._signed = curvature
        self.curvature = abs(curvature)

    def at(self, distance: F64) -> tuple[F64, F64, F64]:
        half = 0.5 * self._signed * distance
        # The chord of an arc; sinc keeps full precision down to curvature 0, where 1/curvature has none.
        chord = distance * np.sinc(half / math.pi)
        return chord * np.cos(half), chord * np.sin(half), 2.0 * half


class Spiral:
    """Curvature [1/m] that changes linearly along the piece, by Gauss-Legendre quadrature between knots."""

    def __init__(self, start: float, end: float, length: float) -> None:
        self.curvature = max(abs(start), abs(end))
        self._start, self._rate = start, (end - start) / length
        count = max(1, math.ceil(self.curvature * length / _SPIRAL_TURN))
        self._knots = np.linspace(0.0, length, count + 1)
        u, v = self._step(self._knots[:-1], self._knots[1:])
        self._u, self._v = np.concatenate(([0.0], np.cumsum(u))), np.concatenate(([0.0], np.cumsum(v)))

    def _heading(self, distance: F64) -> F64:
        heading: F64 = (self._start + 0.5 * self._rate * distance) * distance
        return heading

    def _step(self, low: F64, high: F64) -> tuple[F64, F64]:
        half = 0.5 * (high - low)
        heading = self._heading((0.5 * (low + high))[:, None] + half[:, None] * _NODES)
        return half * (np.cos(heading) @ _WEIGHTS), half * (np.sin(heading) @ _WEIGHTS)

    def at(self, distance: F64) -> tuple[F64, F64, F64]:
        knot = np.clip(np.searchsorted(self._knots, distance, side="right") - 1, 0, len(self._knots) - 2)
        u, v = self._step(self._knots[knot], distance)
        return self._u[knot] + u, self._v[knot] + v, self._heading(distance)


class Parametric:
    """A cubic curve u(p), v(p), followed by arc length.

    u, v    (4,)  f64  coefficients, constant first
    length  [m]   what the file says
    last    parameter at the end; None where `length` decides it (poly3, whose u is not bounded by the file)

    Where `last` is given, distances are scaled so that the piece ends at `last` even if its true arc length
    (`true_length`) is not the file's: the next piece starts there.
    """

    def __init__(self, u: Sequence[float], v: Sequence[float], length: float, last: float | None) -> None:
        self._u, self._v = np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64)
        # The arc over [0, p] is at least u(p) = p for poly3, so its parameter ends at or before `length`.
        self._knots = np.linspace(0.0, length if last is None else last, _ARC_INTERVALS + 1)
        steps = self._arc(self._knots[:-1], self._knots[1:])
        self._arcs = np.concatenate(([0.0], np.cumsum(steps)))
        self.true_length = length if last is None else float(self._arcs[-1])
        self._scale = self.true_length / length
        self.curvature = float(np.max(self._curvature(self._knots)))

    def _arc(self, low: F64, high: F64) -> F64:
        half = 0.5 * (high - low)
        p = (0.5 * (low + high))[:, None] + half[:, None] * _NODES
        arc: F64 = half * (self._speed(p) @ _WEIGHTS)
        return arc

    def _speed(self, p: F64) -> F64:
        return np.hypot(_slope(self._u, p), _slope(self._v, p))

    def _curvature(self, p: F64) -> F64:
        u1, v1, u2, v2 = _slope(self._u, p), _slope(self._v, p), _second(self._u, p), _second(self._v, p)
        curvature: F64 = np.abs(u1 * v2 - v1 * u2) / np.maximum(np.hypot(u1, v1), 1e-9) ** 3
        return curvature

    def _parameter(self, distance: F64) -> F64:
        target = np.clip(distance * self._scale, 0.0, self._arcs[-1])
        knot = np.clip(np.searchsorted(self._arcs, target, side="right") - 1, 0, _ARC_INTERVALS - 1)
        low, high, rest = self._knots[knot], self._knots[knot + 1], target - self._arcs[knot]
        step = self._arcs[knot + 1] - self._arcs[knot]
        p = low + (high - low) * rest / np.maximum(step, 1e-300)
        for _ in range(_NEWTON_STEPS):
            # At a cusp the speed is 0 and a Newton step has no size: staying inside the interval bounds it.
            p = np.clip(p - (self._arc(low, p) - rest) / np.maximum(self._speed(p), 1e-9), low, high)
        parameter: F64 = p
        return parameter

    def at(self, distance: F64) -> tuple[F64, F64, F64]:
        p = self._parameter(distance)
        return _value(self._u, p), _value(self._v, p), np.arctan2(_slope(self._v, p), _slope(self._u, p))


def _value(c: F64, p: F64) -> F64:
    value: F64 = c[0] + p * (c[1] + p * (c[2] + p * c[3]))
    return value


def _slope(c: F64, p: F64) -> F64:
    slope: F64 = c[1] + p * (2.0 * c[2] + p * (3.0 * c[3]))
    return slope


def _second(c: F64, p: F64) -> F64:
    second: F64 = 2.0 * c[2] + p * (6.0 * c[3])
    return second


def spiral(start: float, end: float, length: float) -> Shape:
    """A spiral from curvature `start` to `end` [1/m], or the arc or line it does not differ from."""
    if abs(end - start) < SPIRAL_CHANGE:
        return Bend(0.5 * (start + end))
    return Spiral(start, end, length)


class Piece(NamedTuple):
    """One plan-view record: `shape` placed at x, y [m] with `heading` [rad], from s for `length` [m]."""

    s: float
    x: float
    y: float
    heading: float
    length: float
    shape: Shape

    def at(self, s: F64) -> Course:
        u, v, heading = self.shape.at(s - self.s)
        cos, sin = math.cos(self.heading), math.sin(self.heading)
        xy = np.stack((self.x + cos * u - sin * v, self.y + sin * u + cos * v), axis=-1)
        return Course(xy, self.heading + heading)


class Course(NamedTuple):
    """Samples of a reference line.

    xy       (n, 2)  f64 [m]
    heading  (n,)    f64 [rad]  not wrapped
    """

    xy: F64
    heading: F64


class ReferenceLine:
    """A chain of pieces in ascending s; `length` [m] is where the last one ends."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)
        self.starts = np.array([piece.s for piece in pieces])
        self.curvatures = np.array([piece.shape.curvature for piece in pieces])
        self.length = pieces[-1].s + pieces[-1].length

    def at(self, s: F64) -> Course:
        """The line at s (n,) f64 [m] in ascending order; where two pieces meet, the later one counts."""
        xy, heading = np.empty((len(s), 2)), np.empty(len(s))
        index = np.clip(np.searchsorted(self.starts, s, side="right") - 1, 0, len(self.pieces) - 1)
        bounds = np.flatnonzero(np.diff(index, prepend=-1, append=-1))
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            xy[low:high], heading[low:high] = self.pieces[index[low]].at(s[low:high])
        return Course(xy, heading)

    def gaps(self) -> list[float]:
        """[m] between the end of each piece and the start of the next."""
        found = []
        for piece, following in pairwise(self.pieces):
            end = piece.at(np.array([following.s])).xy[0]
            found.append(math.hypot(end[0] - following.x, end[1] - following.y))
        return found


class Cubics:
    """Piecewise cubics a + b d + c d^2 + d d^3 of the distance d from each record's start.

    starts        (k,)    f64 [m]  ascending
    coefficients  (k, 4)  f64      a, b, c, d

    Before the first record the value is 0.
    """

    def __init__(self, starts: Sequence[float], coefficients: Sequence[Sequence[float]]) -> None:
        order = sorted(range(len(starts)), key=lambda i: starts[i])  # stable: of equal starts the last one counts
        self.starts = np.array([starts[i] for i in order], dtype=np.float64)
        self.coefficients = np.array([coefficients[i] for i in order], dtype=np.float64).reshape(len(starts), 4)

    def at(self, s: F64, *, end: float = math.inf) -> F64:
        """Values at s (n,) f64 [m]. From `end` on, the record that was valid before it still counts: a section is
        evaluated from inside, because the next one may start with a step."""
        index = np.searchsorted(self.starts, s, side="right") - 1
        index = np.where(s >= end, np.searchsorted(self.starts, end, side="left") - 1, index)
        if len(self.starts) == 0:
            return np.zeros(len(s))
        row = self.coefficients[np.maximum(index, 0)]
        d = s - self.starts[np.maximum(index, 0)]
        value = row[:, 0] + d * (row[:, 1] + d * (row[:, 2] + d * row[:, 3]))
        return np.where(index >= 0, value, 0.0)

    def steps(self, low: float, high: float) -> F64:
        """Jumps (m,) f64 of the value at the records that start inside (low, high)."""
        inner = np.flatnonzero((self.starts > low) & (self.starts < high) & (np.arange(len(self.starts)) > 0))
        d = self.starts[inner] - self.starts[inner - 1]
        row = self.coefficients[inner - 1]
        before = row[:, 0] + d * (row[:, 1] + d * (row[:, 2] + d * row[:, 3]))
        jumps: F64 = self.coefficients[inner, 0] - before
        return jumps

    def bend(self, low: float, high: float) -> float:
        """Largest absolute second derivative [1/m] between low and high."""
        if len(self.starts) == 0:
            return 0.0
        ends = np.append(self.starts[1:], np.inf)
        inside = (self.starts < high) & (ends > low)
        rows = self.coefficients[inside]
        near, far = np.maximum(low, self.starts[inside]), np.minimum(high, ends[inside])
        start, end = near - self.starts[inside], far - self.starts[inside]
        second = np.maximum(
            np.abs(2 * rows[:, 2] + 6 * rows[:, 3] * start), np.abs(2 * rows[:, 2] + 6 * rows[:, 3] * end)
        )
        return float(np.max(second, initial=0.0))


def step_counts(breaks: F64, curvature: F64, reach: float, bend: float) -> F64:
    """Into how many equal steps each interval between `breaks` (k + 1,) f64 [m] is cut so that no polyline at a lateral
    distance up to `reach` [m] from the reference line leaves its curve by more than CHORD_M.

    curvature  (k,)  f64 [1/m]  of the reference line in each interval
    bend       [1/m]  largest second derivative of the lateral distance or the height

    A chord of length h leaves a curve of curvature c by c h^2 / 8. At lateral distance r the curvature of an arc is
    c / (1 - c r) and its step is stretched by (1 - c r); together c (1 - c r), at most c (1 + c r).
    """
    length = np.diff(breaks)
    total = curvature * (1.0 + curvature * reach) + bend
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.ceil(length * np.sqrt(total / (8.0 * _AIM * CHORD_M)))
    counts: F64 = np.clip(wanted, 1.0, np.ceil(length / SHORTEST_STEP_M).clip(min=1.0))
    return counts


def samples(breaks: F64, counts: F64) -> F64:
    """The s (n,) f64 [m] of all breaks and of the equal steps between them.

    breaks  (k + 1,)  f64 [m]
    counts  (k,)      f64      from `step_counts`, already checked against the limits
    """
    repeat = counts.astype(np.int64)
    start = np.repeat(np.cumsum(repeat) - repeat, repeat)
    fraction = (np.arange(len(start)) - start) / np.repeat(counts, repeat)
    s = np.repeat(breaks[:-1], repeat) + np.repeat(np.diff(breaks), repeat) * fraction
    return np.append(s, breaks[-1])

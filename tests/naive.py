"""Slow, obvious versions of what the kernels compute, written from the specification and never from the kernels.

Everything is Python numbers and float64 NumPy, without grids, lists, early exits or state machines shared with the
code under test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

# ---------------------------------------------------------------------------------------------- random numbers (S32)


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 of Salmon et al. 2011, in Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(product1 >> 32) ^ c[1] ^ k[0], product1 % 2**32, (product0 >> 32) ^ c[3] ^ k[1], product0 % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c[0], c[1], c[2], c[3]


def words(seed: int, episode: int, agent: int, step: int, purpose: int, index: int) -> tuple[int, int, int, int]:
    """The four words of a draw: counter (episode, agent, step, purpose << 16 | index), key the world seed."""
    return philox((episode, agent, step, purpose * 2**16 + index), (seed % 2**32, seed >> 32))


# ------------------------------------------------------------------------------------------------------- boxes (S69)


def corners(x, y, heading, length, width):
    """Corners of boxes: (..., 4, 2) [m]."""
    c, s = np.cos(heading), np.sin(heading)
    signs = [(1, 1), (1, -1), (-1, -1), (-1, 1)]
    return np.stack(
        [
            np.stack([x + a * length / 2 * c - b * width / 2 * s, y + a * length / 2 * s + b * width / 2 * c], -1)
            for a, b in signs
        ],
        -2,
    )


def _outside(points, x, y, heading, length, width):
    """Distance of points (..., 4, 2) from boxes (...,); 0 inside."""
    dx, dy = points[..., 0] - x[..., None], points[..., 1] - y[..., None]
    c, s = np.cos(heading)[..., None], np.sin(heading)[..., None]
    along = np.maximum(abs(dx * c + dy * s) - np.asarray(length)[..., None] / 2, 0)
    aside = np.maximum(abs(dy * c - dx * s) - np.asarray(width)[..., None] / 2, 0)
    return np.hypot(along, aside)


def separation(a, b):
    """Gap between boxes [m] where they are apart, minus the penetration depth where they overlap.

    a, b: tuples of arrays x, y, heading, length, width. Two convex shapes are nearest at a corner of one of them; the
    depth is the least shift along a face normal that would part them.
    """
    a, b = (tuple(np.broadcast_arrays(*(np.asarray(v, np.float64) for v in box))) for box in (a, b))
    ca, cb = corners(*a), corners(*b)
    depth = np.full(np.broadcast_shapes(a[0].shape, b[0].shape), np.inf)
    for heading in (a[2], a[2] + math.pi / 2, b[2], b[2] + math.pi / 2):
        axis = np.stack([np.cos(heading), np.sin(heading)], -1)[..., None, :]
        pa, pb = (ca * axis).sum(-1), (cb * axis).sum(-1)
        depth = np.minimum(depth, np.minimum(pa.max(-1) - pb.min(-1), pb.max(-1) - pa.min(-1)))
    gap = np.minimum(_outside(ca, *b).min(-1), _outside(cb, *a).min(-1))
    return np.where(depth >= 0, -depth, gap)


def wrap(angle):
    return (np.asarray(angle) + math.pi) % (2 * math.pi) - math.pi


@dataclass(frozen=True)
class Move:
    """A box that moves straight and turns the short way from one pose (x, y, heading) to another."""

    start: tuple[float, float, float]
    stop: tuple[float, float, float]
    length: float
    width: float

    def at(self, t):
        """The box at times t in [0, 1]."""
        x0, y0, h0 = self.start
        x1, y1, h1 = self.stop
        return x0 + t * (x1 - x0), y0 + t * (y1 - y0), h0 + t * wrap(h1 - h0), self.length, self.width


def separations(a: Move, b: Move, samples: int = 1001):
    """Separation of two moving boxes at evenly spaced times of the step."""
    t = np.linspace(0, 1, samples)
    return separation(a.at(t), b.at(t))


# ------------------------------------------------------------------------------------------------- lanes (S70, S71)


@dataclass(frozen=True)
class Foot:
    """The point of a polyline nearest to a position: distance [m], segment, share of it, not clipped share."""

    distance: float
    segment: int
    share: float
    raw: float


def foot(points, x, y, z=None, gate=math.inf) -> Foot | None:
    """Nearest segment of a polyline (n, 3) on the level of z; the first of equals."""
    best = None
    for i in range(len(points) - 1):
        a, b = points[i], points[i + 1]
        d = b[:2] - a[:2]
        raw = float(np.dot(np.array([x, y]) - a[:2], d) / np.dot(d, d))
        share = min(max(raw, 0.0), 1.0)
        near = a[:2] + share * d
        distance = math.hypot(x - near[0], y - near[1])
        if z is not None and abs(a[2] + share * (b[2] - a[2]) - z) > gate:
            continue
        if best is None or distance < best.distance:
            best = Foot(distance, i, share, raw)
    return best


def lane_heading(points, segment) -> float:
    """Heading of a lane at a segment: directions of it and its neighbours weighted by length, 2 : 1 : 1."""
    total = np.zeros(2)
    for other, weight in ((segment - 1, 1), (segment, 2), (segment + 1, 1)):
        if 0 <= other < len(points) - 1:
            d = points[other + 1][:2] - points[other][:2]
            total += weight * math.hypot(*d) * (d / math.hypot(*d))
    return math.atan2(total[1], total[0])


@dataclass(frozen=True)
class OnLane:
    """Where an agent is on a lane, as `LaneState`."""

    lane: int
    arc: float
    offset: float
    error: float
    half_width: float
    score: float


def on_lane(road, lane, x, y, z, heading, gate) -> OnLane | None:
    """Projection of a pose on one lane; None where no part of it is on this level."""
    rows = road.lane_points(lane)
    points, arc = road.xyz[rows].astype(np.float64), road.arc[rows].astype(np.float64)
    half = road.width[rows].astype(np.float64) / 2
    at = foot(points, x, y, z, gate)
    if at is None:
        return None
    i, t = at.segment, at.share
    error = float(wrap(heading - lane_heading(points, i)))
    d = points[i + 1][:2] - points[i][:2]
    lateral = float((d[0] * (y - points[i][1]) - d[1] * (x - points[i][0])) / math.hypot(*d))
    beyond = (at.raw < 0 and i == 0) or (at.raw > 1 and i == len(points) - 2)
    offset = lateral if 0 <= at.raw <= 1 or beyond else math.copysign(at.distance, lateral)
    return OnLane(
        lane,
        float(arc[i] + t * (arc[i + 1] - arc[i])),
        offset,
        error,
        float(half[i] + t * (half[i + 1] - half[i])),
        0.7 * at.distance / 4 + 0.3 * abs(error) / math.pi,
    )


def distance_to_lane(road, lane, x, y, z, gate) -> float:
    at = foot(road.xyz[road.lane_points(lane)].astype(np.float64), x, y, z, gate)
    return math.inf if at is None else at.distance


def best_lane(road, current, x, y, z, heading, reach, gate, lanes) -> tuple[OnLane | None, float]:
    """The search of S70 over `lanes`, and by how much the winner leads: small leads are decided by rounding."""
    scored = []
    for lane in lanes:
        found = on_lane(road, lane, x, y, z, heading, gate)
        if found is not None and distance_to_lane(road, lane, x, y, z, gate) < reach:
            scored.append((found.score + (0.05 if lane != current else 0.0), lane, found))
    scored.sort(key=lambda item: item[:2])
    if not scored:
        return None, math.inf
    return scored[0][2], scored[1][0] - scored[0][0] if len(scored) > 1 else math.inf


def ribbon_gap(road, x, y, z, gate, lanes) -> float:
    """How far a position lies outside the union of lane ribbons [m]."""
    gap = math.inf
    for lane in lanes:
        rows = road.lane_points(lane)
        points, half = road.xyz[rows].astype(np.float64), road.width[rows].astype(np.float64) / 2
        for i in range(len(points) - 1):
            at = foot(points[i : i + 2], x, y, z, gate)
            if at is not None:
                gap = min(gap, at.distance - (half[i] + at.share * (half[i + 1] - half[i])))
    return gap


# --------------------------------------------------------------------------------------------------- map index (S13+)


def segment_to_square(x0, y0, x1, y1, cx, cy, half) -> float:
    """Distance between a segment and a square, by dense sampling of the segment: an upper bound, off by at most half a
    sample's spacing."""
    t = np.linspace(0, 1, 2001)
    px, py = x0 + t * (x1 - x0), y0 + t * (y1 - y0)
    return float(np.hypot(np.maximum(abs(px - cx) - half, 0), np.maximum(abs(py - cy) - half, 0)).min())


def chord_deviation(original, kept) -> float:
    """Largest distance of any original vertex from the kept polyline's piece over it; both (n, d), ends shared."""
    worst, at = 0.0, 0
    index = [next(i for i in range(len(original)) if (original[i] == point).all()) for point in kept]
    assert index == sorted(index)
    for a, b in pairwise(index):
        d = original[b] - original[a]
        for k in range(a + 1, b):
            t = min(max(np.dot(original[k] - original[a], d) / np.dot(d, d), 0.0), 1.0) if np.dot(d, d) else 0.0
            worst = max(worst, float(np.linalg.norm(original[k] - original[a] - t * d)))
        at = b
    assert at == len(original) - 1
    return worst


def neighbour_list(mid, cx, cy, heading, window, slots) -> tuple[list[int], int]:
    """S17: rows in the window at the cell's centre along the sector's middle, nearest first, ties by row."""
    behind, ahead, side = window
    found = []
    for row, (x, y) in enumerate(mid):
        dx, dy = x - cx, y - cy
        forward = dx * math.cos(heading) + dy * math.sin(heading)
        left = dy * math.cos(heading) - dx * math.sin(heading)
        if -behind <= forward <= ahead and abs(left) <= side:
            found.append((dx * dx + dy * dy, row))
    found.sort()
    return [row for _, row in found[:slots]], len(found)

"""Slow, obvious versions of the realism kernels, written from their docstrings: plain Python, one box at a time."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np


def corners(x, y, heading, length, width):
    """Four corners of a box, counter-clockwise."""
    c, s = math.cos(heading), math.sin(heading)
    signs = ((0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5), (0.5, -0.5))
    return [(x + u * length * c - v * width * s, y + u * length * s + v * width * c) for u, v in signs]


def point_segment(p, a, b):
    """Distance of a point from a segment, and where along it (0 to 1) the nearest point lies."""
    d = (b[0] - a[0], b[1] - a[1])
    square = d[0] ** 2 + d[1] ** 2
    t = 0.0 if square == 0 else min(max(((p[0] - a[0]) * d[0] + (p[1] - a[1]) * d[1]) / square, 0.0), 1.0)
    return math.hypot(p[0] - a[0] - t * d[0], p[1] - a[1] - t * d[1]), t


def polygon_distance(one, two):
    """Signed distance of two convex polygons by projections on all their normals, and by all vertices and sides."""
    deepest = -math.inf
    for polygon in (one, two):
        for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            size = math.hypot(b[0] - a[0], b[1] - a[1])
            if size == 0:
                continue
            n = ((b[1] - a[1]) / size, (a[0] - b[0]) / size)
            spans = [[q[0] * n[0] + q[1] * n[1] for q in shape] for shape in (one, two)]
            deepest = max(deepest, min(spans[1]) - max(spans[0]), min(spans[0]) - max(spans[1]))
    if deepest <= 0:
        return deepest
    sides = [(p, a, b) for p in one for a, b in zip(two, two[1:] + two[:1], strict=True)]
    sides += [(p, a, b) for p in two for a, b in zip(one, one[1:] + one[:1], strict=True)]
    return min(point_segment(*side)[0] for side in sides)


def nearest_object(x, y, heading, length, width, valid, a):
    """Signed distance from object a to the nearest other one at one moment, corners rounded."""
    best = 1e10
    for b in range(len(x)):
        if b == a or not valid[b]:
            continue
        inner, radius = [], 0.0
        for n in (a, b):
            r = 0.7 * min(length[n], width[n]) / 2
            inner.append(corners(x[n], y[n], heading[n], length[n] - 2 * r, width[n] - 2 * r))
            radius += r
        best = min(best, polygon_distance(*inner) - radius)
    return best


def time_to_collision(x, y, heading, speed, length, width, valid, a):
    """Seconds to the nearest object in front of object a at one moment."""
    candidates = []
    for b in range(len(x)):
        if b == a or not valid[b]:
            continue
        turn = (heading[b] - heading[a] + math.pi) % (2 * math.pi) - math.pi
        c, s = math.cos(heading[a]), math.sin(heading[a])
        ahead, aside = (x[b] - x[a]) * c + (y[b] - y[a]) * s, (y[b] - y[a]) * c - (x[b] - x[a]) * s
        half_long = 0.5 * (length[b] * abs(math.cos(turn)) + width[b] * abs(math.sin(turn)))
        half_lat = 0.5 * (length[b] * abs(math.sin(turn)) + width[b] * abs(math.cos(turn)))
        gap = ahead - length[a] / 2 - half_long
        overlap = width[a] / 2 + half_lat - abs(aside)
        aligned = overlap > 0.5 or abs(turn) <= math.radians(10)
        if gap > 0 and abs(turn) <= math.radians(75) and overlap > 0 and aligned:
            candidates.append((gap, b))
    if not candidates:
        return 5.0
    gap, b = min(candidates)
    closing = speed[a] - speed[b]
    return min(gap / closing, 5.0) if closing > 0 else 5.0


def edge_distance(point, height, polylines):
    """(signed distance of a point from the nearest of all polylines, polyline, position along it in segments).

    A polyline is (P, 3) points; positive on the right; inner vertices are decided by both sides.
    """
    best = (math.inf, -1, 0, 0.0)
    for number, line in enumerate(polylines):
        for k in range(len(line) - 1):
            distance, t = point_segment(point, line[k], line[k + 1])
            z = line[k][2] + t * (line[k + 1][2] - line[k][2])
            apart = math.hypot(distance, 3 * (height - z))
            if apart < best[0]:
                best = (apart, number, k, t)
    _, number, k, t = best
    line = polylines[number]
    ring = math.hypot(line[0][0] - line[-1][0], line[0][1] - line[-1][1]) < 1 and len(line) > 3
    last = len(line) - 2

    def right(i):
        d = (line[i + 1][0] - line[i][0], line[i + 1][1] - line[i][1])
        return 1 if d[0] * (point[1] - line[i][1]) - d[1] * (point[0] - line[i][0]) < 0 else -1

    def left_turn(i, j):
        a = (line[i + 1][0] - line[i][0], line[i + 1][1] - line[i][1])
        b = (line[j + 1][0] - line[j][0], line[j + 1][1] - line[j][1])
        return a[0] * b[1] - a[1] * b[0] > 0

    pair = None
    if t <= 0 and (k > 0 or ring):
        pair = (k - 1 if k > 0 else last, k)
    elif t >= 1 and (k < last or ring):
        pair = (k, k + 1 if k < last else 0)
    if pair:
        sign = (max if left_turn(*pair) else min)(right(pair[0]), right(pair[1]))
    else:
        sign = right(k)
    return sign * point_segment(point, line[k], line[k + 1])[0], number, k + t


def closing_vertex(number, position, polylines):
    """Whether a position lies where a ring closes: there the official sign depends on rounding (Q23)."""
    line = polylines[number]
    ring = math.hypot(line[0][0] - line[-1][0], line[0][1] - line[-1][1]) < 1 and len(line) > 3
    return ring and (position <= 0 or position >= len(line) - 1)


def pieces(points, offset):
    """Polylines (P, 3) of concatenated points, z 0 where there is none."""
    points = np.asarray(points, dtype=float)
    points = np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
    return [points[a:b] for a, b in pairwise(offset)]

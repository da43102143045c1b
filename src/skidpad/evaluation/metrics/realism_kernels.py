"""The loops of the realism features: nearest box, time to collision, nearest road edge, red lights.

Poses are (R, T, N), so that the objects of one moment lie side by side; numbers are float64, computed from the float32
of the input. Every search is exact: a bound only skips what cannot be nearer, and ties go to the lower index, so no
result depends on order or on where a search began.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.compile import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

NO_OBJECT_M = 1e10
CORNER_RADIUS = 0.35  # share of the smaller side that is rounded off, per side
MAX_TTC_S = 5.0
MIN_OVERLAP_M = 0.5
COS_75, COS_10 = math.cos(math.radians(75.0)), math.cos(math.radians(10.0))
Z_STRETCH = 3.0
RUN = 8  # segments under one bounding box, and boxes under one outer box


@kernel
def point_box_square(px: float, py: float, half_x: float, half_y: float) -> float:
    """Squared distance [m^2] of a point from an axis-aligned box about the origin; 0 inside."""
    dx = max(abs(px) - half_x, 0.0)
    dy = max(abs(py) - half_y, 0.0)
    return dx * dx + dy * dy


@kernel
def box_distance(
    x: float, y: float, c: float, s: float, ax: float, ay: float, bx: float, by: float
) -> float:  # fmt: skip
    """Signed distance [m] of two boxes: Euclidean where apart, minus the smallest penetration where they overlap.

    x, y    [m]  centre of box b in the frame of box a
    c, s         cosine, sine of b's heading in that frame
    ax, ay  [m]  half length, half width of a
    bx, by  [m]  the same of b
    """
    # Separation along the four axes; by the separating-axis theorem the largest is minus the penetration depth.
    cc, ss = abs(c), abs(s)
    gap = max(abs(x) - ax - bx * cc - by * ss, abs(y) - ay - bx * ss - by * cc)
    u, v = x * c + y * s, y * c - x * s  # the same centre offset in b's axes
    gap = max(gap, max(abs(u) - bx - ax * cc - ay * ss, abs(v) - by - ax * ss - ay * cc))
    if gap <= 0.0:
        return gap
    # Apart: the nearest points of two convex polygons include a vertex of one of them.
    best = np.inf
    for i in (-1.0, 1.0):
        for j in (-1.0, 1.0):
            px, py = x + i * bx * c - j * by * s, y + i * bx * s + j * by * c
            best = min(best, point_box_square(px, py, ax, ay))
            qx, qy = i * ax - x, j * ay - y
            best = min(best, point_box_square(qx * c + qy * s, qy * c - qx * s, bx, by))
    return math.sqrt(best)


@kernel
def nearest_object(
    x: F64, y: F64, cos: F64, sin: F64, length: F64, width: F64, valid: Bool, scored: I64, out: F64
) -> None:
    """Signed distance from each scored object to the nearest other object, boxes having rounded corners.

    x, y, cos, sin  (R, T, N)  f64 [m, m, 1, 1]
    length, width   (N,)       f64 [m]
    valid           (T, N)     bool     objects that are there
    scored          (E,)       i64
    out             (R, T, E)  f64 [m]  written; 1e10 where nobody else is there
    """
    objects = x.shape[2]
    for r in range(x.shape[0]):
        for t in range(x.shape[1]):
            for e in range(scored.shape[0]):
                a = scored[e]
                ra = CORNER_RADIUS * min(length[a], width[a])
                ax, ay = 0.5 * length[a] - ra, 0.5 * width[a] - ra
                reach = math.sqrt(ax * ax + ay * ay) + ra
                ca, sa = cos[r, t, a], sin[r, t, a]
                best = NO_OBJECT_M
                for b in range(objects):
                    if b == a or not valid[t, b]:
                        continue
                    dx, dy = x[r, t, b] - x[r, t, a], y[r, t, b] - y[r, t, a]
                    rb = CORNER_RADIUS * min(length[b], width[b])
                    bx, by = 0.5 * length[b] - rb, 0.5 * width[b] - rb
                    # No two points are nearer than the circles about both boxes.
                    limit = best + reach + rb + math.sqrt(bx * bx + by * by)
                    if limit > 0.0 and dx * dx + dy * dy >= limit * limit:
                        continue
                    c = ca * cos[r, t, b] + sa * sin[r, t, b]
                    s = ca * sin[r, t, b] - sa * cos[r, t, b]
                    apart = box_distance(dx * ca + dy * sa, dy * ca - dx * sa, c, s, ax, ay, bx, by)
                    best = min(best, apart - ra - rb)
                out[r, t, e] = best


@kernel
def time_to_collision(
    x: F64, y: F64, cos: F64, sin: F64, speed: F64, length: F64, width: F64, valid: Bool, scored: I64, out: F64
) -> None:
    """Time until each scored object, keeping its speed, meets the nearest object in front of it (`ttc.gap/1`).

    x, y, cos, sin  (R, T, N)  f64 [m, m, 1, 1]
    speed           (R, T, N)  f64 [m/s]  in the plane; NaN counts as not closing
    length, width   (N,)       f64 [m]
    valid           (T, N)     bool
    scored          (E,)       i64
    out             (R, T, E)  f64 [s]  written; 5 where nothing is in front, nothing closes, or it takes longer
    """
    objects = x.shape[2]
    for r in range(x.shape[0]):
        for t in range(x.shape[1]):
            for e in range(scored.shape[0]):
                a = scored[e]
                ca, sa = cos[r, t, a], sin[r, t, a]
                nearest = np.inf
                found = -1
                for b in range(objects):
                    if b == a or not valid[t, b]:
                        continue
                    dx, dy = x[r, t, b] - x[r, t, a], y[r, t, b] - y[r, t, a]
                    ahead = dx * ca + dy * sa
                    if ahead <= 0.5 * length[a]:
                        continue
                    c = ca * cos[r, t, b] + sa * sin[r, t, b]
                    if c < COS_75:
                        continue
                    s = abs(ca * sin[r, t, b] - sa * cos[r, t, b])
                    gap = ahead - 0.5 * (length[a] + length[b] * c + width[b] * s)
                    overlap = 0.5 * (width[a] + length[b] * s + width[b] * c) - abs(dy * ca - dx * sa)
                    facing = overlap > MIN_OVERLAP_M or (overlap > 0.0 and c >= COS_10)
                    if facing and 0.0 < gap < nearest:
                        nearest = gap
                        found = b
                out[r, t, e] = MAX_TTC_S
                if found >= 0:
                    closing = speed[r, t, a] - speed[r, t, found]
                    if closing > 0.0:
                        out[r, t, e] = min(nearest / closing, MAX_TTC_S)


@kernel
def box_square(px: float, py: float, pz: float, bounds: F64, i: int) -> float:
    """Squared distance [m^2] of a point from bounding box i, in a space whose z is stretched already.

    bounds  (B, 6)  f64 [m]  lowest x, y, z and highest x, y, z
    """
    dx = max(max(bounds[i, 0] - px, px - bounds[i, 3]), 0.0)
    dy = max(max(bounds[i, 1] - py, py - bounds[i, 4]), 0.0)
    dz = max(max(bounds[i, 2] - pz, pz - bounds[i, 5]), 0.0)
    return float(dx * dx + dy * dy + dz * dz)


@kernel
def foot(px: float, py: float, segment: F64, k: int) -> float:
    """Where along segment k (0 to 1) the point is nearest in the plane; 0 on a segment without length.

    segment  (S, 6)  f64 [m]  start x, y, z and direction x, y, z, z stretched
    """
    dx, dy = segment[k, 3], segment[k, 4]
    square = dx * dx + dy * dy
    if square <= 0.0:
        return 0.0
    return float(min(max(((px - segment[k, 0]) * dx + (py - segment[k, 1]) * dy) / square, 0.0), 1.0))


@kernel
def segment_square(px: float, py: float, pz: float, segment: F64, k: int) -> float:
    """Squared distance [m^2] of a point from segment k, in the space with stretched z, at its foot in the plane.

    segment  (S, 6)  f64 [m]
    """
    t = foot(px, py, segment, k)
    dx = px - segment[k, 0] - t * segment[k, 3]
    dy = py - segment[k, 1] - t * segment[k, 4]
    dz = pz - segment[k, 2] - t * segment[k, 5]
    return float(dx * dx + dy * dy + dz * dz)


@kernel
def nearest_segment(px: float, py: float, pz: float, segment: F64, inner: F64, outer: F64, first: int) -> int:
    """Number of the segment nearest to a point, the lowest among equals.

    segment  (S, 6)  f64 [m]  S >= 1
    inner    (B, 6)  f64 [m]  bounds of RUN segments each
    outer    (C, 6)  f64 [m]  bounds of RUN inner boxes each
    first                     a guess to start from; a good one only makes it faster
    """
    best = segment_square(px, py, pz, segment, first)
    found = first
    # A box is skipped only when it is farther by more than rounding can be, so that equals inside it are still seen.
    slack = 1.0 + 1e-9
    for o in range(outer.shape[0]):
        if box_square(px, py, pz, outer, o) > best * slack:
            continue
        for i in range(o * RUN, min((o + 1) * RUN, inner.shape[0])):
            if box_square(px, py, pz, inner, i) > best * slack:
                continue
            for k in range(i * RUN, min((i + 1) * RUN, segment.shape[0])):
                square = segment_square(px, py, pz, segment, k)
                if square < best or (square == best and k < found):
                    best = square
                    found = k
    return found


@kernel
def side(px: float, py: float, segment: F64, k: int) -> float:
    """1 on the right of segment k's line, -1 on its left and on it.

    segment  (S, 6)  f64 [m]
    """
    left = segment[k, 3] * (py - segment[k, 1]) - segment[k, 4] * (px - segment[k, 0])
    return 1.0 if left < 0.0 else -1.0


@kernel
def signed_edge_distance(px: float, py: float, segment: F64, joint: I64, k: int) -> float:
    """Distance [m] in the plane from segment k, positive on its right.

    At a vertex both segments that meet there decide: the larger sign where the edge turns left, else the smaller.

    segment  (S, 6)  f64 [m]
    joint    (S, 2)  i64      segments that end where k begins, and begin where it ends; -1 = none
    """
    t = foot(px, py, segment, k)
    distance = math.hypot(px - segment[k, 0] - t * segment[k, 3], py - segment[k, 1] - t * segment[k, 4])
    sign = side(px, py, segment, k)
    other = joint[k, 0] if t <= 0.0 else (joint[k, 1] if t >= 1.0 else -1)
    if other >= 0:
        turn = segment[k, 3] * segment[other, 4] - segment[k, 4] * segment[other, 3]
        if t <= 0.0:
            turn = -turn
        theirs = side(px, py, segment, other)
        sign = max(sign, theirs) if turn > 0.0 else min(sign, theirs)
    return sign * distance


@kernel
def segments_within(
    px: float, py: float, pz: float, limit: float, segment: F64, inner: F64, outer: F64, near: I64, away: F64
) -> int:
    """Number of segments within `limit` [m] of a point; they are written to `near`, the nearest first.

    segment       (S, 6)  f64 [m]
    inner, outer  (*, 6)  f64 [m]
    near          (S,)    i64      written, numbers of segments
    away          (S,)    f64 [m]  written, their distances
    """
    square = limit * limit
    count = 0
    for o in range(outer.shape[0]):
        if box_square(px, py, pz, outer, o) > square:
            continue
        for i in range(o * RUN, min((o + 1) * RUN, inner.shape[0])):
            if box_square(px, py, pz, inner, i) > square:
                continue
            for k in range(i * RUN, min((i + 1) * RUN, segment.shape[0])):
                found = segment_square(px, py, pz, segment, k)
                if found <= square:
                    near[count] = k
                    away[count] = math.sqrt(found)
                    count += 1
    sort_by_distance(near, away, count)
    return count


@kernel
def sort_by_distance(near: I64, away: F64, count: int) -> None:
    """Sort the first `count` entries of both arrays by `away`, in place (Shell 1959, gaps halved), allocating nothing.

    near  (S,)  i64
    away  (S,)  f64 [m]
    """
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            number, distance = near[i], away[i]
            j = i
            while j >= gap and away[j - gap] > distance:
                near[j] = near[j - gap]
                away[j] = away[j - gap]
                j -= gap
            near[j] = number
            away[j] = distance
        gap //= 2


@kernel
def nearest_of(px: float, py: float, pz: float, moved: float, segment: F64, near: I64, away: F64, count: int) -> int:
    """Number of the segment nearest to a point among those found around another point, the lowest among equals.

    moved         [m]  how much nearer a segment can be to this point than to the other one
    segment  (S, 6)    f64 [m]
    near     (S,)      i64      as `segments_within` wrote them, count >= 1
    away     (S,)      f64 [m]
    """
    best = np.inf
    found = -1
    for c in range(count):
        least = away[c] - moved
        # All that follow are farther still. The slack is for rounding, so that equals are seen.
        if least > 0.0 and least * least > best * (1.0 + 1e-9):
            break
        square = segment_square(px, py, pz, segment, near[c])
        if square < best or (square == best and near[c] < found):
            best = square
            found = near[c]
    return found


@kernel
def road_edge(
    pose: F64, size: F64, order: I64, start: I64, centre: F64, radius: F64, growth: float, segment: F64, joint: I64,
    inner: F64, outer: F64, near: I64, away: F64, out: F64,
) -> None:  # fmt: skip
    """Signed distance of the bottom corners of boxes from the nearest road edge, the largest of the four.

    Boxes come in groups that lie close together, so that the few segments which can be nearest to any of their corners
    are found once for all.

    pose          (B, 5)    f64 [m, m, m, 1, 1]  x, y, z, cos, sin
    size          (B, 3)    f64 [m]  length, width, height
    order         (B,)      i64      boxes, group after group
    start         (G + 1,)  i64      group g owns order[start[g] : start[g + 1]]
    centre        (G, 3)    f64 [m]  z stretched
    radius        (G,)      f64 [m]  how far a corner can be from the centre
    growth                           how fast the distance to a segment can grow per metre moved
    segment       (S, 6)    f64 [m]  S >= 1
    joint         (S, 2)    i64
    inner, outer  (*, 6)    f64 [m]
    near, away    (S,)      i64 f64  scratch
    out           (B,)      f64 [m]  written; positive = a corner is off the road
    """
    guess = 0
    for g in range(radius.shape[0]):
        cx, cy, cz = centre[g, 0], centre[g, 1], centre[g, 2]
        guess = nearest_segment(cx, cy, cz, segment, inner, outer, guess)
        limit = math.sqrt(segment_square(cx, cy, cz, segment, guess)) + 2.0 * growth * radius[g]
        count = segments_within(cx, cy, cz, limit, segment, inner, outer, near, away)
        for i in range(start[g], start[g + 1]):
            b = order[i]
            worst = -np.inf
            pz = (pose[b, 2] - 0.5 * size[b, 2]) * Z_STRETCH
            for u in (-0.5, 0.5):
                for v in (-0.5, 0.5):
                    along, aside = u * size[b, 0], v * size[b, 1]
                    px = pose[b, 0] + along * pose[b, 3] - aside * pose[b, 4]
                    py = pose[b, 1] + along * pose[b, 4] + aside * pose[b, 3]
                    moved = math.sqrt((px - cx) * (px - cx) + (py - cy) * (py - cy) + (pz - cz) * (pz - cz)) * growth
                    found = nearest_of(px, py, pz, moved, segment, near, away, count)
                    worst = max(worst, signed_edge_distance(px, py, segment, joint, found))
            out[b] = worst


@kernel
def crooked_square(px: float, py: float, segment: F64, k: int) -> float:
    """Squared distance [m^2] as the official light search has it: the foot is added where it must be subtracted.

    segment  (S, 6)  f64 [m]
    """
    t = foot(px, py, segment, k)
    dx = px - segment[k, 0] + t * segment[k, 3]
    dy = py - segment[k, 1] + t * segment[k, 4]
    return float(dx * dx + dy * dy)


@kernel
def red_light(
    x: F64, y: F64, valid: Bool, scored: I64, segment: F64, owner: I64, inner: F64, outer: F64, signal: F64, lane: I64,
    stop: Bool, crooked: bool, out: Bool,
) -> None:  # fmt: skip
    """Whether each scored object passes, between the row before and this one, the stop point of its nearest lane while
    that lane's signal says stop.

    x, y          (R, T, N)  f64 [m]
    valid         (T, N)     bool     both rows must hold a pose
    scored        (E,)       i64
    segment       (S, 6)     f64 [m]  of the lanes on which lights count; S >= 1
    owner         (S,)       i64      lane of each segment
    inner, outer  (*, 6)     f64 [m]
    signal        (G, 4)     f64 [m]  stop point x, y and direction x, y of its lane there
    lane          (G,)       i64      lane that each signal controls
    stop          (T, G)     bool
    crooked                           search the nearest lane as the official code does
    out           (R, T, E)  bool     written; row 0 is False
    """
    guess = 0
    for r in range(x.shape[0]):
        for e in range(scored.shape[0]):
            n = scored[e]
            for t in range(1, x.shape[1]):
                if not (valid[t - 1, n] and valid[t, n]):
                    continue
                px, py = x[r, t, n], y[r, t, n]
                own = -1
                for g in range(lane.shape[0]):
                    if not stop[t, g] or out[r, t, e]:
                        continue
                    before = (x[r, t - 1, n] - signal[g, 0]) * signal[g, 2] + (y[r, t - 1, n] - signal[g, 1]) * signal[
                        g, 3
                    ]
                    after = (px - signal[g, 0]) * signal[g, 2] + (py - signal[g, 1]) * signal[g, 3]
                    if not (before < 0.0 <= after):
                        continue
                    # The lane is looked up only for the few that pass a stop point.
                    if own < 0:
                        guess = nearest_segment(px, py, 0.0, segment, inner, outer, guess)
                        if crooked:
                            best = np.inf
                            for k in range(segment.shape[0]):
                                square = crooked_square(px, py, segment, k)
                                if square < best:
                                    best = square
                                    guess = k
                        own = owner[guess]
                    out[r, t, e] = own == lane[g]

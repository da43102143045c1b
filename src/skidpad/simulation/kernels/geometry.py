"""Boxes that move and turn: when does one first touch another during a step?

Lengths are float64 inside, so that a pair of boxes near the edge of a large map is as exact as one near the origin. A
NaN or infinity among the inputs of a contact test gives no contact.
"""

from __future__ import annotations

import numpy as np

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.trig import arctan2, sincos

NEVER = np.float64(np.inf)
PIECE_M = np.float64(0.02)  # how far the corners of a pair may turn, together, within one piece of a step
MAX_PIECES = np.float64(256.0)
FAR = np.float64(1e30)  # sums of finite inputs stay below; NaN and infinity do not


@kernel
def turned(cos: float, sin: float, angle: float) -> tuple[float, float]:
    """The direction (cos, sin) turned by an angle [rad]."""
    s, c = sincos(np.float32(angle))
    return float(cos * c - sin * s), float(sin * c + cos * s)


@kernel
def turn_between(c0: float, s0: float, c1: float, s1: float) -> float:
    """Angle [rad] in (-pi, pi] from direction 0 to direction 1."""
    c = np.float64(c0) * c1 + np.float64(s0) * s1
    s = np.float64(c0) * s1 - np.float64(s0) * c1
    return np.float64(arctan2(np.float32(s), np.float32(c)))


@kernel
def clip_axis(low: float, high: float, p: float, q: float, reach: float) -> tuple[float, float]:
    """The part of [low, high] in which |p + q t| <= reach; low > high when there is none."""
    if q == 0:
        return (low, high) if abs(p) <= reach else (NEVER, low)
    a = (-reach - p) / q
    b = (reach - p) / q
    return max(low, min(a, b)), min(high, max(a, b))


@kernel
def sliding_boxes(
    rx: float,
    ry: float,
    vx: float,
    vy: float,
    ci: float,
    si: float,
    li: float,
    wi: float,
    cj: float,
    sj: float,
    lj: float,
    wj: float,
    low: float,
    high: float,
) -> tuple[float, float]:
    """When, within [low, high], two boxes overlap that move but do not turn; the first is larger than the second when
    never.

    rx, ry   [m]         centre of j minus centre of i at t = 0
    vx, vy   [m]         change of that in one unit of t
    c, s     1           orientation of each box
    l, w     [m]         half length and half width of each box; a segment is a box of half width 0

    Separating axes: the two of each box. Exchanging i and j (and the signs of r and v) gives the same bits.
    """
    c = abs(ci * cj + si * sj)
    s = abs(ci * sj - si * cj)
    low, high = clip_axis(low, high, rx * ci + ry * si, vx * ci + vy * si, li + (lj * c + wj * s))
    if low > high:
        return low, high
    low, high = clip_axis(low, high, ry * ci - rx * si, vy * ci - vx * si, wi + (lj * s + wj * c))
    if low > high:
        return low, high
    low, high = clip_axis(low, high, rx * cj + ry * sj, vx * cj + vy * sj, lj + (li * c + wi * s))
    if low > high:
        return low, high
    return clip_axis(low, high, ry * cj - rx * sj, vy * cj - vx * sj, wj + (li * s + wi * c))


@kernel
def turning_boxes(
    rx: float,
    ry: float,
    vx: float,
    vy: float,
    ci: float,
    si: float,
    li: float,
    wi: float,
    turn_i: float,
    cj: float,
    sj: float,
    lj: float,
    wj: float,
    turn_j: float,
) -> float:
    """First time in [0, 1] at which two boxes touch that move straight and turn evenly; NEVER when they do not (S69).

    rx, ry   [m]     centre of j minus centre of i at t = 0
    vx, vy   [m]     change of that over the step
    c, s     1       orientation of each box at t = 0
    l, w     [m]     half length and half width of each box
    turn     [rad]   by how much each box turns over the step

    The step is cut into equal pieces, each with the orientation of its middle, so that the corners of both boxes
    together turn by at most PIECE_M within a piece: the contact found is never wrong by more than half of that. Boxes
    grown by what their corners turn over half the step are tested first; they bound the pieces worth a look.
    """
    motion = abs(rx) + abs(ry) + abs(vx) + abs(vy) + abs(turn_i) + abs(turn_j)
    shape = abs(ci) + abs(si) + abs(cj) + abs(sj) + abs(li) + abs(wi) + abs(lj) + abs(wj)
    if not motion + shape < FAR:
        return NEVER
    if turn_i == 0 and turn_j == 0:
        low, high = sliding_boxes(rx, ry, vx, vy, ci, si, li, wi, cj, sj, lj, wj, 0.0, 1.0)
        return low if low <= high else NEVER
    swing_i = np.sqrt(li * li + wi * wi) * abs(turn_i)
    swing_j = np.sqrt(lj * lj + wj * wj) * abs(turn_j)
    grow_i = 0.5 * swing_i
    grow_j = 0.5 * swing_j
    ai, bi = turned(ci, si, 0.5 * turn_i)
    aj, bj = turned(cj, sj, 0.5 * turn_j)
    low, high = sliding_boxes(
        rx, ry, vx, vy, ai, bi, li + grow_i, wi + grow_i, aj, bj, lj + grow_j, wj + grow_j, 0.0, 1.0
    )
    if not low <= high:
        return NEVER
    pieces = min(max(np.ceil((swing_i + swing_j) / PIECE_M), 1.0), MAX_PIECES)
    piece = np.floor(low * pieces)
    last = min(np.floor(high * pieces), pieces - 1)
    while piece <= last:
        middle = (piece + 0.5) / pieces
        ai, bi = turned(ci, si, middle * turn_i)
        aj, bj = turned(cj, sj, middle * turn_j)
        low, high = sliding_boxes(rx, ry, vx, vy, ai, bi, li, wi, aj, bj, lj, wj, piece / pieces, (piece + 1) / pieces)
        if low <= high:
            return low
        piece += 1
    return NEVER


@kernel
def boxes_overlap(
    rx: float,
    ry: float,
    ci: float,
    si: float,
    li: float,
    wi: float,
    cj: float,
    sj: float,
    lj: float,
    wj: float,
) -> bool:
    """Whether two boxes at rest overlap or touch. Arguments as in `turning_boxes`."""
    return turning_boxes(rx, ry, 0.0, 0.0, ci, si, li, wi, 0.0, cj, sj, lj, wj, 0.0) == 0

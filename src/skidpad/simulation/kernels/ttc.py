"""Time to collision: when would two bodies touch if nobody changed speed or heading (S79)?

The swept test of section 7, with seconds for the share of the step: exact for boxes that move straight. Whoever is
asked about, others within 50 m that are not behind count; a body behind is its own driver's concern.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.agent_grid import (
    BLOCK,
    RADIUS,
    TTC_X,
    TTC_Y,
    VELOCITY_X,
    VELOCITY_Y,
    last_row,
    row_of,
    stretch,
)
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.contact import Bodies, same_level
from skidpad.simulation.kernels.geometry import NEVER, sliding_boxes
from skidpad.simulation.kernels.machine import approach_eight

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

HORIZON_S = 5.0
RANGE_M = 50.0
# Slower than 0.1 m/s nobody comes 0.5 m nearer within the horizon; faster, a cross product in float32 is wrong by less
# than 0.5 m of radius makes up for.
HALF, GROWN_M = np.float32(0.5), np.float32(0.5)
FARTHEST = np.float32((RANGE_M + 0.01) ** 2)
BEHIND_COS = -0.984807753012208  # cos 170 degrees


@kernel
def time_to_collision(
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
) -> float:
    """First time [s] up to HORIZON_S at which boxes i and j touch, moving straight; NEVER when they do not.

    rx, ry  [m]    centre of j minus centre of i now      vx, vy  [m/s]  velocity of j minus that of i
    c, s           heading of each                        l, w    [m]    half length and half width
    """
    low, high = sliding_boxes(rx, ry, vx, vy, ci, si, li, wi, cj, sj, lj, wj, 0.0, HORIZON_S)
    return low if low <= high else NEVER


@kernel
def closest_times(
    bodies: Bodies,
    first: int,
    end: int,
    level_gate: float,
    most: float,
    side: float,
    columns: int,
    rows: int,
    touching: U8,
    scratch: F32,
    places: I32,
    time: F32,
) -> None:
    """Time to collision of the agents [first, end) of one world after the step.

    level_gate  [m]        infinite where the map has no heights
    most        [m]        how far anybody reaches from the middle of its step
    side, columns, rows    of the cells that `agent_grid.sort_agents` made; its `scratch` and `places`
    touching    (A,)  u8   1 while it touches another: the time is 0 then
    time        (A,)  f32 [s]  written; infinite where nobody is met within the horizon
    """
    n = end - first
    for p in range(n):
        a = first + places[p]
        time[a] = np.float32(0.0) if touching[a] else np.float32(NEVER)
        scratch[TTC_X, p], scratch[TTC_Y, p] = bodies.x[a], bodies.y[a]
        if bodies.after[a] == 0:
            scratch[TTC_X, p] = np.nan  # Comparisons with NaN are false: nobody is near.
        scratch[VELOCITY_X, p], scratch[VELOCITY_Y, p] = (
            bodies.speed[a] * bodies.cos[a],
            bodies.speed[a] * bodies.sin[a],
        )
        scratch[RADIUS, p] = HALF * np.sqrt(bodies.length[a] * bodies.length[a] + bodies.width[a] * bodies.width[a])
    for p in range(n, n + BLOCK):
        scratch[TTC_X, p] = np.nan
    # In a world of one cell every row and column is its own.
    span = 0 if columns * rows == 1 else int(np.ceil((RANGE_M + 2.0 * most) / side))
    xs, ys, us, vs, radii = scratch[TTC_X], scratch[TTC_Y], scratch[VELOCITY_X], scratch[VELOCITY_Y], scratch[RADIUS]
    for p in range(n):
        x, y, u, v, radius = xs[p], ys[p], us[p], vs[p], radii[p]
        for row in range(row_of(places[n + p], columns), last_row(places[n + p], span, columns, rows) + 1):
            q0, q1 = stretch(p, row, span, columns, n, places)
            q, last = np.uintp(q0), np.uintp(q1)
            while q < last:
                # Whoever is no candidate here never touches: circles are grown by more than float32 rounds, and are
                # close to each other, or approach so that they will meet.
                mask = approach_eight(xs, ys, us, vs, radii, q, x, y, u, v, radius, GROWN_M, FARTHEST)
                k = q
                while mask and k < last:
                    if mask & 1:
                        compare(bodies, first + places[p], first + places[k], level_gate, time)
                    mask >>= 1
                    k += np.uintp(1)
                q += np.uintp(BLOCK)


@kernel
def compare(bodies: Bodies, i: int, j: int, level_gate: float, time: F32) -> None:
    """Let two agents that approach lower each other's time, unless the other is behind."""
    rx, ry = np.float64(bodies.x[j]) - bodies.x[i], np.float64(bodies.y[j]) - bodies.y[i]
    if not rx * rx + ry * ry <= RANGE_M * RANGE_M:
        return
    z, height = bodies.z, bodies.height
    if not same_level(z[i], z[i], z[j], z[j], height[i], height[j], level_gate):
        return
    ci, si, cj, sj = (
        np.float64(bodies.cos[i]),
        np.float64(bodies.sin[i]),
        np.float64(bodies.cos[j]),
        np.float64(bodies.sin[j]),
    )
    vi, vj = np.float64(bodies.speed[i]), np.float64(bodies.speed[j])
    when = time_to_collision(
        rx,
        ry,
        vj * cj - vi * ci,
        vj * sj - vi * si,
        ci,
        si,
        0.5 * np.float64(bodies.length[i]),
        0.5 * np.float64(bodies.width[i]),
        cj,
        sj,
        0.5 * np.float64(bodies.length[j]),
        0.5 * np.float64(bodies.width[j]),
    )
    if when == NEVER:
        return
    behind = BEHIND_COS * np.sqrt(rx * rx + ry * ry)
    if rx * ci + ry * si >= behind:
        time[i] = min(time[i], np.float32(when))
    if -(rx * cj + ry * sj) >= behind:
        time[j] = min(time[j], np.float32(when))

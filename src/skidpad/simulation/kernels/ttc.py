"""Time to collision: when would two bodies touch if nobody changed speed or heading (S79)?

The swept test of section 7, with seconds for the share of the step: exact for boxes that move straight. Whoever is
asked about, others within 50 m that are not behind count; a body behind is its own driver's concern.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.agent_grid import (
    FLAG,
    RADIUS,
    TTC_X,
    TTC_Y,
    VELOCITY_X,
    VELOCITY_Y,
    last_row,
    stretch,
)
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.contact import Bodies, same_level
from skidpad.simulation.kernels.geometry import NEVER, sliding_boxes

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

HORIZON_S = 5.0
RANGE_M = 50.0
ROUNDING = 1.0 + 1e-9  # of circles, so that no touch is lost
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
    scratch: F64,
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
    x, y, vx, vy, radius = scratch[TTC_X], scratch[TTC_Y], scratch[VELOCITY_X], scratch[VELOCITY_Y], scratch[RADIUS]
    flag = scratch[FLAG]
    for p in range(n):
        a = first + places[p]
        time[a] = np.float32(0.0) if touching[a] else np.float32(NEVER)
        x[p], y[p] = bodies.x[a], bodies.y[a]
        if bodies.after[a] == 0:
            x[p] = np.nan  # Comparisons with NaN are false: nobody is near.
        vx[p], vy[p] = bodies.speed[a] * bodies.cos[a], bodies.speed[a] * bodies.sin[a]
        radius[p] = 0.5 * np.sqrt(np.float64(bodies.length[a]) ** 2 + np.float64(bodies.width[a]) ** 2)
    span = int(np.ceil((RANGE_M + 2.0 * most) / side))
    for p in range(n):
        xp, yp, vxp, vyp, rp = x[p], y[p], vx[p], vy[p], radius[p]
        for row in range(places[n + p] // columns, last_row(places[n + p], span, columns, rows) + 1):
            q0, q1 = stretch(p, row, span, columns, n, places)
            found = 0
            for q in range(q0, q1):
                # Circles that overlap, or approach so that they will: one that is no candidate here never touches.
                dx, dy, wx, wy = x[q] - xp, y[q] - yp, vx[q] - vxp, vy[q] - vyp
                square, cross = dx * dx + dy * dy, dx * wy - dy * wx
                meet = (radius[q] + rp) * (radius[q] + rp) * ROUNDING
                nears = (square <= meet) | ((dx * wx + dy * wy < 0) & (cross * cross <= meet * (wx * wx + wy * wy)))
                flag[q] = np.float64(nears & (square <= RANGE_M * RANGE_M))
                found += nears & (square <= RANGE_M * RANGE_M)
            if found == 0:
                continue
            for q in range(q0, q1):
                if flag[q] != 0.0:
                    compare(bodies, first + places[p], first + places[q], level_gate, time)


@kernel
def compare(bodies: Bodies, i: int, j: int, level_gate: float, time: F32) -> None:
    """Let two agents that approach lower each other's time, unless the other is behind."""
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
    rx, ry = np.float64(bodies.x[j]) - bodies.x[i], np.float64(bodies.y[j]) - bodies.y[i]
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

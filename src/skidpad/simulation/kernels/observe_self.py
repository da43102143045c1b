"""What an agent knows of itself and of where it is to go: the blocks of the native layouts (S88, S89)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.lane_kernels import metres_to_goal
from skidpad.simulation.coefficients import SEEN
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.observe_rows import F32, I32, INFINITE, ONE, ZERO, F, share, signed
from skidpad.simulation.layout import COMPACT, CONDITIONING
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    COS,
    GOAL_NEXT,
    GOAL_SLOT,
    LANE,
    LANE_ARC,
    LANE_COS,
    LANE_LIMIT,
    LANE_OFFSET,
    LANE_SIN,
    LENGTH,
    SIN,
    SPEED,
    STEERING,
    STOPPED_S,
    WIDTH,
    YAW_RATE,
    X,
    Y,
    Z,
)

I64 = NDArray[np.int64]
SHOWN = len(CONDITIONING.features)

# Factors, not divisors: a division by no power of two is not turned into a product, and costs several. `default/1` has
# the same ego block.
(
    SPEED_SCALE,
    RATIO_SCALE,
    STEER_SCALE,
    ALONG_SCALE,
    ASIDE_SCALE,
    YAW_SCALE,
    LENGTH_SCALE,
    WIDTH_SCALE,
    OFFSET_SCALE,
    _,
    _,
    LIMIT_SCALE,
    _,
    STOPPED_SCALE,
    _,
    DT_SCALE,
) = (F(1.0 / feature.divisor) for feature in COMPACT.block("ego").features)


class Reach(NamedTuple):
    """What leads to which lane, for how far it is to a goal (S91): `scenes.lanes.GoalReach`, and lengths.

    start, lane, metres  CSR over goal lanes: i64, i32, f32 [m]
    length               (L,)  f32 [m]  of each lane
    """

    start: I64
    lane: I32
    metres: F32
    length: F32


@kernel
def observe_coefficients(a: int, coef: F32, out: F32, o: int) -> None:
    """Write the coefficients that agent a is conditioned on, in [-1, 1]."""
    for k in range(SHOWN):
        out[o + k] = coef[SEEN + k, a]


@kernel
def own_metres(a: int, f4: F32, i4: I32, goal: int, goal_arc: np.float32, length: F32, to_goal: F32) -> np.float32:
    """Metres left to drive from where agent a is on its lane; infinite without a lane, a goal lane or a way."""
    lane = i4[LANE, a]
    if lane < 0 or goal < 0:
        return INFINITE
    arc = f4[LANE_ARC, a]
    left = max(length[lane] - arc, ZERO)
    return F(metres_to_goal(lane, left, arc, goal, goal_arc, to_goal))


@kernel
def observe_ego(a: int, f4: F32, i4: I32, dt: np.float32, margin: np.float32, out: F32, o: int) -> None:
    """Write the 16 numbers of the ego block of agent a; `margin` [m] is added to each of its sides."""
    on_lane = i4[LANE, a] >= 0
    limit = f4[LANE_LIMIT, a]
    known = on_lane and limit > ZERO
    out[o] = signed(f4[SPEED, a] * SPEED_SCALE)
    out[o + 1] = signed(f4[SPEED, a] / limit * RATIO_SCALE) if known else ZERO
    out[o + 2] = signed(f4[STEERING, a] * STEER_SCALE)
    out[o + 3] = signed(f4[ACCEL_LONG, a] * ALONG_SCALE)
    out[o + 4] = signed(f4[ACCEL_LAT, a] * ASIDE_SCALE)
    out[o + 5] = signed(f4[YAW_RATE, a] * YAW_SCALE)
    out[o + 6] = share((f4[LENGTH, a] + F(2.0) * margin) * LENGTH_SCALE)
    out[o + 7] = share((f4[WIDTH, a] + F(2.0) * margin) * WIDTH_SCALE)
    out[o + 8] = signed(f4[LANE_OFFSET, a] * OFFSET_SCALE) if on_lane else ZERO
    out[o + 9] = signed(f4[LANE_COS, a]) if on_lane else ZERO
    out[o + 10] = signed(f4[LANE_SIN, a]) if on_lane else ZERO
    out[o + 11] = share(limit * LIMIT_SCALE) if known else ZERO
    out[o + 12] = ONE if known else ZERO
    out[o + 13] = share(f4[STOPPED_S, a] * STOPPED_SCALE)
    out[o + 14] = ONE if on_lane else ZERO
    out[o + 15] = share(dt * DT_SCALE)


@kernel
def next_goal(a: int, i4: I32, size: I32) -> tuple[int, int]:
    """The row of agent a in the goal table and the column of its next goal; a row of -1 where none is left."""
    slot, index = i4[GOAL_SLOT, a], i4[GOAL_NEXT, a]
    if slot < 0 or index >= size[slot]:
        return -1, 0
    return slot, index


@kernel
def observe_goal(
    a: int, f4: F32, points: F32, slot: int, index: int, scale: np.float32, z_scale: np.float32, out: F32, o: int
) -> None:
    """Write x, y and z of one goal, seen by agent a; beyond the reach of `scale` the direction, of length 1."""
    dx, dy = points[slot, index, 0] - f4[X, a], points[slot, index, 1] - f4[Y, a]
    factor = min(scale, ONE / np.sqrt(dx * dx + dy * dy))
    out[o] = signed((dx * f4[COS, a] + dy * f4[SIN, a]) * factor)
    out[o + 1] = signed((dy * f4[COS, a] - dx * f4[SIN, a]) * factor)
    out[o + 2] = (points[slot, index, 2] - f4[Z, a]) * z_scale

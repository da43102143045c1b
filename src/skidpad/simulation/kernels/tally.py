"""Adding a step to the running quantities of a world (S81). The table is `simulation/tally.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Status
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.lanes import UNKNOWN_LIMIT, wrong_way
from skidpad.simulation.kernels.replay import logged_pose
from skidpad.simulation.state import (
    BEFORE_BODY,
    BEFORE_X,
    BEFORE_Y,
    BODY,
    LANE,
    LANE_COS,
    LANE_LIMIT,
    LANE_OFFSET,
    LOG_X,
    LOG_Y,
    SPEED,
    STATUS,
    WIDTH,
    X,
    Y,
)
from skidpad.simulation.tally import (
    ACTIVE_S,
    DISTANCE,
    LOG_ERROR,
    LOG_STEPS,
    MIN_TTC,
    MULTI_LANE_S,
    OVERSPEED,
    TTC,
    WRONG_WAY,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

ZERO, HALF = F(0.0), F(0.5)
ACTIVE = np.uint8(Status.ACTIVE)
MULTI_LANE_M = F(2.05)  # S81
MOVING = F(0.2)  # m/s
NO_LIMIT = F(UNKNOWN_LIMIT)


@kernel
def begin_tally(first: int, end: int, tally: F32) -> None:
    """Zero the quantities of the agents [first, end) of a world whose episode starts; nobody is close yet."""
    tally[:, first:end] = ZERO
    tally[TTC, first:end] = np.inf
    tally[MIN_TTC, first:end] = np.inf


@kernel
def add_step(
    first: int,
    end: int,
    f4: F32,
    i4: I32,
    u1: U8,
    log: F32,
    row: int,
    share: np.float32,
    row_s: np.float32,
    dt: np.float32,
    pose: F32,
    tally: F32,
) -> None:
    """Add the step just taken to the quantities of the agents [first, end) of one world, before its outcomes.

    f4, i4, u1  state blocks of `state`          log, row, share, row_s   where the log is after the step: `logged_pose`
    dt          [s]                              pose  (12,)  f32         scratch
    tally       (TALLY_ROWS, A)  f32             row TTC is read, the sums are added to
    """
    for a in range(first, end):
        if u1[BODY, a] == 0 or u1[STATUS, a] != ACTIVE:
            continue
        tally[MIN_TTC, a] = min(tally[MIN_TTC, a], tally[TTC, a])
        if u1[BEFORE_BODY, a] == 0:
            continue
        dx, dy = f4[X, a] - f4[BEFORE_X, a], f4[Y, a] - f4[BEFORE_Y, a]
        way = np.sqrt(dx * dx + dy * dy)
        speed = f4[SPEED, a]
        tally[DISTANCE, a] += way
        tally[ACTIVE_S, a] += dt
        if logged_pose(log, np.int64(a - first), row, share, row_s, pose):
            ex, ey = f4[X, a] - pose[LOG_X], f4[Y, a] - pose[LOG_Y]
            tally[LOG_ERROR, a] += np.sqrt(ex * ex + ey * ey)
            tally[LOG_STEPS, a] += F(1.0)
        if i4[LANE, a] < 0:
            continue
        if wrong_way(speed, f4[LANE_COS, a], i4[LANE, a]):
            tally[WRONG_WAY, a] += way
        if abs(f4[LANE_OFFSET, a]) + HALF * f4[WIDTH, a] > MULTI_LANE_M and abs(speed) > MOVING:
            tally[MULTI_LANE_S, a] += dt
        limit = f4[LANE_LIMIT, a]
        excess = speed - (NO_LIMIT if np.isnan(limit) else limit)
        if excess > ZERO:
            tally[OVERSPEED, a] += excess * dt

"""Reaching goals, swept over the step so that no speed flies past one (S77)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Event
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.state import (
    BEFORE_X,
    BEFORE_Y,
    GOAL_INDEX,
    GOAL_RADIUS,
    GOAL_SLOT,
    GOAL_SPEED,
    LEVEL_GATE,
    SPEED,
    X,
    Y,
    Z,
)

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
ZERO, ONE = np.float32(0.0), np.float32(1.0)
GOAL, GOAL_SLOW, NOTHING = np.uint32(Event.GOAL), np.uint32(Event.GOAL_SLOW), np.uint32(0)


@kernel
def reach_goals(i: int, f4: F32, i4: I32, goals: F32, goal_count: I32, parameters: F32) -> np.uint32:
    """Count the goals that agent i reached in the step, in their order, and return its event bits.

    goals       (M, G, 3)  f32 [m]   rows by `goal_slot`
    goal_count  (M,)       i32

    A goal is reached where the segment from the last to the present position comes nearer than the radius, on its
    level. The speed gate is that of the last goal; without a gate (0) every reach is within it.
    """
    slot = i4[GOAL_SLOT, i]
    if slot < 0:
        return NOTHING
    radius, gate = parameters[GOAL_RADIUS], parameters[GOAL_SPEED]
    x0, y0 = f4[BEFORE_X, i], f4[BEFORE_Y, i]
    dx, dy = f4[X, i] - x0, f4[Y, i] - y0
    square = dx * dx + dy * dy
    events = NOTHING
    while i4[GOAL_INDEX, i] < goal_count[slot]:
        index = i4[GOAL_INDEX, i]
        gx, gy = goals[slot, index, 0] - x0, goals[slot, index, 1] - y0
        share = min(max((gx * dx + gy * dy) / square, ZERO), ONE) if square > ZERO else ZERO
        ox, oy = gx - share * dx, gy - share * dy
        if not (ox * ox + oy * oy < radius * radius):
            break
        if abs(goals[slot, index, 2] - f4[Z, i]) >= parameters[LEVEL_GATE]:
            break
        i4[GOAL_INDEX, i] = index + 1
        events |= GOAL
        is_last = index + 1 == goal_count[slot]
        if not is_last or gate == ZERO or abs(f4[SPEED, i]) <= gate:
            events |= GOAL_SLOW
    return events

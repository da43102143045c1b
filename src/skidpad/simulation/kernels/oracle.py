"""Log to action: the command that keeps a vehicle closest to its log over the next half second (S47).

Inverting one step exactly diverges on real logs once a limit binds, so each candidate command is held for five steps
through the dynamics and the first step of the best is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.coefficients import C_ACCELERATION, C_SPEED, C_STEER, C_THROTTLE
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import command_of, moved, scale_row
from skidpad.simulation.kernels.replay import logged_pose
from skidpad.simulation.kernels.trig import wrap
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    BODY,
    COS,
    HEADING,
    LENGTH,
    LOG_HEADING,
    LOG_SPEED,
    LOG_X,
    LOG_Y,
    MODEL,
    P_DT,
    RESETS_ON_STOP,
    SIN,
    SPEED,
    START_ROW,
    STEERING,
    STEP,
    X,
    Y,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
ZERO = F(0.0)
LOOK_AHEAD = 5  # steps
HEADING_WEIGHT, SPEED_WEIGHT = F(0.2), F(0.05)  # m^2/rad^2, s^2
GRID = 17  # candidates per axis of the continuous search
REFINEMENTS = 2
WORST = F(3e38)


@kernel
def held_cost(
    a: Any,
    f4: F32,
    u1: U8,
    coef: F32,
    parameters: F32,
    first: np.float32,
    second: np.float32,
    target: F32,
    count: int,
) -> np.float32:
    """Sum over the next `count` steps of squared errors against the log when agent a holds one command.

    first, second          the command, in the units of the agent's model
    target         (5, 4)  f32  x, y [m], heading [rad], speed [m/s] of the log after each step
    """
    x, y, cosine, sine, heading = f4[X, a], f4[Y, a], f4[COS, a], f4[SIN, a], f4[HEADING, a]
    speed, steering, along, aside = f4[SPEED, a], f4[STEERING, a], f4[ACCEL_LONG, a], f4[ACCEL_LAT, a]
    cost = ZERO
    for step in range(count):
        x, y, cosine, sine, speed, steering, along, aside, turn = moved(
            np.int64(u1[MODEL, a]),
            x,
            y,
            cosine,
            sine,
            speed,
            steering,
            along,
            aside,
            f4[LENGTH, a],
            first,
            second,
            coef[C_THROTTLE, a],
            coef[C_STEER, a],
            coef[C_ACCELERATION, a],
            coef[C_SPEED, a],
            parameters[RESETS_ON_STOP] > ZERO,
            parameters[P_DT],
        )
        heading = heading + turn
        ex, ey = x - target[step, 0], y - target[step, 1]
        off, slip = wrap(heading - target[step, 2]), speed - target[step, 3]
        cost += ex * ex + ey * ey + HEADING_WEIGHT * off * off + SPEED_WEIGHT * slip * slip
    return cost


@kernel
def follow_log(
    row_agent: I32,
    row_world: I32,
    world_agents: I32,
    world: I64,
    f4: F32,
    u1: U8,
    coef: F32,
    parameters: F32,
    log: F32,
    row_us: int,
    dt_us: int,
    scales: F32,
    box: F32,
    discrete: bool,
    scratch: F32,
    choice: I32,
    command: F32,
    first: int,
    end: int,
) -> None:
    """Actions of the rows [first, end), which are worlds of one scene, that follow their logs.

    row_agent, row_world  (N,)   i32   agent in its world, and world, of each row
    world    (WORLD_ROWS, W)     i64   per-world numbers
    coef     (36, A)             f32   `coefficients`
    parameters  (PARAMETERS,)    f32
    log      (T, N, 12)          f32   packed log of the scene
    scales   (3, 2, 2)           f32   `actions.action_scales`
    box      (K, 2)              f32   discrete actions as points of the box; ties go to the lower index
    scratch  (6, 12)             f32   overwritten
    choice   (N,)                i32   written: index into `box` (discrete)
    command  (N, 2)              f32   written: in [-1, 1] (continuous)

    Without a logged pose for the next step the vehicle brakes to rest.
    """
    row_s = F(row_us * 1e-6)
    target, pose = scratch[:LOOK_AHEAD], scratch[LOOK_AHEAD]
    for row in range(first, end):
        w = row_world[row]
        agent = np.int64(row_agent[row])
        a = np.int64(world_agents[w]) + agent
        command[row, 0], command[row, 1], choice[row] = ZERO, ZERO, 0
        if u1[BODY, a] == 0:
            continue
        scale = scales[scale_row(np.int64(u1[MODEL, a]))]
        count = 0
        for step in range(LOOK_AHEAD):
            tick = (world[STEP, w] + step + 1) * dt_us
            at = world[START_ROW, w] + tick // row_us
            if not logged_pose(log, agent, at, F(tick % row_us) / F(row_us), row_s, pose):
                break
            target[step, 0], target[step, 1] = pose[LOG_X], pose[LOG_Y]
            target[step, 2], target[step, 3] = pose[LOG_HEADING], pose[LOG_SPEED]
            count += 1
        if count == 0:
            target[0, 0], target[0, 1], target[0, 2], target[0, 3] = f4[X, a], f4[Y, a], f4[HEADING, a], ZERO
            count = 1
        best = WORST
        if discrete:
            for k in range(box.shape[0]):
                accel, steer = command_of(box[k, 0], scale, 0), command_of(box[k, 1], scale, 1)
                cost = held_cost(a, f4, u1, coef, parameters, accel, steer, target, count)
                if cost < best:
                    best = cost
                    choice[row] = k
            continue
        middle0, middle1, reach = ZERO, ZERO, F(1.0)
        for _ in range(REFINEMENTS + 1):
            spacing = F(2.0) * reach / F(GRID - 1)
            centre0, centre1 = middle0, middle1
            for i in range(GRID):
                u = min(max(centre0 - reach + F(i) * spacing, F(-1.0)), F(1.0))
                for j in range(GRID):
                    v = min(max(centre1 - reach + F(j) * spacing, F(-1.0)), F(1.0))
                    accel, steer = command_of(u, scale, 0), command_of(v, scale, 1)
                    cost = held_cost(a, f4, u1, coef, parameters, accel, steer, target, count)
                    if cost < best:
                        best = cost
                        middle0, middle1 = u, v
            reach = spacing
        command[row, 0], command[row, 1] = middle0, middle1

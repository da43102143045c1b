"""Log to action: the command that keeps a vehicle closest to its log over the next half second (S47).

Inverting one step exactly diverges on real logs once a limit binds, so each candidate command is held for five steps
through the dynamics and the first step of the best is taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import classic
from skidpad.simulation.kernels.replay import logged_pose
from skidpad.simulation.kernels.trig import wrap
from skidpad.simulation.state import (
    BODY,
    HEADING,
    LENGTH,
    LOG_HEADING,
    LOG_SPEED,
    LOG_X,
    LOG_Y,
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
ZERO, HALF = F(0.0), F(0.5)
LOOK_AHEAD = 5  # steps
HEADING_WEIGHT, SPEED_WEIGHT = F(0.2), F(0.05)  # m^2/rad^2, s^2
GRID = 17  # candidates per axis of the continuous search
REFINEMENTS = 2
WORST = F(3e38)


@kernel
def held_cost(
    x: np.float32,
    y: np.float32,
    heading: np.float32,
    speed: np.float32,
    steering: np.float32,
    length: np.float32,
    accel: np.float32,
    steer: np.float32,
    dt: np.float32,
    target: F32,
    count: int,
) -> np.float32:
    """Sum over the next `count` steps of squared errors against the log when one command is held.

    target  (5, 4)  f32  x, y [m], heading [rad], speed [m/s] of the log after each step
    """
    cost = ZERO
    for step in range(count):
        x, y, heading, speed, steering = classic(x, y, heading, speed, steering, length, accel, steer, dt)
        ex, ey = x - target[step, 0], y - target[step, 1]
        turn, slip = wrap(heading - target[step, 2]), speed - target[step, 3]
        cost += ex * ex + ey * ey + HEADING_WEIGHT * turn * turn + SPEED_WEIGHT * slip * slip
    return cost


@kernel
def follow_log(
    row_agent: I32,
    row_world: I32,
    world_agents: I32,
    world: I64,
    f4: F32,
    u1: U8,
    log: F32,
    row_us: int,
    dt_us: int,
    scale: F32,
    table: F32,
    discrete: bool,
    scratch: F32,
    choice: I32,
    command: F32,
    first: int,
    end: int,
) -> None:
    """Commands of the rows [first, end), which are worlds of one scene, that follow their logs.

    row_agent, row_world  (N,)   i32   agent in its world, and world, of each row
    world    (WORLD_ROWS, W)     i64   per-world numbers
    log      (T, N, 12)          f32   packed log of the scene
    scale    (2,)                f32   [m/s^2, rad] corner of the continuous box
    table    (K, 2)              f32   [m/s^2, rad] discrete actions; ties go to the lower index
    scratch  (6, 12)             f32   overwritten
    choice   (N,)                i32   written: index into `table` (discrete)
    command  (N, 2)              f32   written: in [-1, 1] (continuous)

    Without a logged pose for the next step the vehicle brakes to rest.
    """
    dt, row_s = F(dt_us * 1e-6), F(row_us * 1e-6)
    target, pose = scratch[:LOOK_AHEAD], scratch[LOOK_AHEAD]
    for row in range(first, end):
        w = row_world[row]
        agent = np.int64(row_agent[row])
        a = np.int64(world_agents[w]) + agent
        command[row, 0], command[row, 1], choice[row] = ZERO, ZERO, 0
        if u1[BODY, a] == 0:
            continue
        x, y, heading = f4[X, a], f4[Y, a], f4[HEADING, a]
        speed, steering, length = f4[SPEED, a], f4[STEERING, a], f4[LENGTH, a]
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
            for column in range(4):
                target[0, column] = ZERO
            target[0, 0], target[0, 1], target[0, 2] = x, y, heading
            count = 1
        best = WORST
        if discrete:
            for k in range(table.shape[0]):
                cost = held_cost(x, y, heading, speed, steering, length, table[k, 0], table[k, 1], dt, target, count)
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
                    cost = held_cost(
                        x, y, heading, speed, steering, length, u * scale[0], v * scale[1], dt, target, count
                    )
                    if cost < best:
                        best = cost
                        middle0, middle1 = u, v
            reach = spacing
        command[row, 0], command[row, 1] = middle0, middle1

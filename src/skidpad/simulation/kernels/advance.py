"""First half of a step: everybody decides on the state before it, then all move (S107).

One call covers a run of worlds on one scene. Nothing is detected here; poses before the step are kept for that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Controller, Status
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import classic
from skidpad.simulation.kernels.idm import drive
from skidpad.simulation.kernels.replay import logged_pose
from skidpad.simulation.kernels.trig import sincos, wrap
from skidpad.simulation.random import Purpose, uniform
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    AGE,
    BEFORE_ACCEL,
    BEFORE_BODY,
    BEFORE_COS,
    BEFORE_HEADING,
    BEFORE_SIN,
    BEFORE_SPEED,
    BEFORE_X,
    BEFORE_Y,
    BEFORE_Z,
    BLIND_ONSET,
    BLIND_SHARE,
    BLIND_STEPS,
    BODY,
    BRAKE_ONSET,
    BRAKE_SHARE,
    BRAKE_STEPS,
    BRAKED,
    COMMAND_ACCEL,
    COMMAND_STEER,
    CONTROLLER,
    COS,
    DONE,
    EPISODE,
    FAULT,
    FAULT_AGENT,
    GOAL_SLOT,
    HEADING,
    HEIGHT,
    KEY,
    LATCH_STEPS,
    LENGTH,
    LOG_COS,
    LOG_HEADING,
    LOG_HEIGHT,
    LOG_LENGTH,
    LOG_SIN,
    LOG_SPEED,
    LOG_WIDTH,
    LOG_X,
    LOG_Y,
    LOG_Z,
    P_DT,
    RETIRES,
    SIN,
    SPEED,
    START_ROW,
    STATUS,
    STEERING,
    STEP,
    WIDTH,
    YAW_RATE,
    X,
    Y,
    Z,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]

ZERO = F(0.0)
NONE, POLICY, REPLAY, IDM, STATIC = (
    int(Controller.NONE),
    int(Controller.POLICY),
    int(Controller.REPLAY),
    int(Controller.IDM),
    int(Controller.STATIC),
)
ACTIVE, ABSENT, RETIRED = np.uint8(Status.ACTIVE), np.uint8(Status.ABSENT), np.uint8(Status.RETIRED)
BLIND, BRAKE = int(Purpose.BLIND), int(Purpose.BRAKE)
FULL_BRAKE = F(-4.0)  # m/s^2, the strongest command of the action box
NOT_FINITE = 1  # value of the world block's FAULT


@kernel
def place(a: int, f4: F32, u1: U8, pose: F32) -> None:
    """Put the body of agent a where its log has it; `pose` (12,) f32 as `replay.logged_pose` writes it."""
    f4[X, a], f4[Y, a], f4[Z, a] = pose[LOG_X], pose[LOG_Y], pose[LOG_Z]
    f4[HEADING, a], f4[COS, a], f4[SIN, a] = pose[LOG_HEADING], pose[LOG_COS], pose[LOG_SIN]
    f4[SPEED, a], f4[STEERING, a] = pose[LOG_SPEED], ZERO
    f4[LENGTH, a], f4[WIDTH, a], f4[HEIGHT, a] = pose[LOG_LENGTH], pose[LOG_WIDTH], pose[LOG_HEIGHT]
    u1[STATUS, a], u1[BODY, a] = ACTIVE, np.uint8(1)


@kernel
def remove(a: int, status: np.uint8, f4: F32, u1: U8) -> None:
    """Take the body of agent a away: nobody can meet or see it, and its pose is zero."""
    for field in (X, Y, Z, HEADING, SIN, SPEED, STEERING, LENGTH, WIDTH, HEIGHT, ACCEL_LONG, ACCEL_LAT, YAW_RATE):
        f4[field, a] = ZERO
    f4[COS, a] = F(1.0)
    u1[STATUS, a], u1[BODY, a] = status, np.uint8(0)


@kernel
def latch(seed: int, episode: int, key: int, step: int, purpose: int, share: np.float32, onset: np.float32) -> bool:
    """Whether a perturbation begins for an agent at a step: in `share` of the episodes, with chance `onset` a step."""
    if share <= ZERO or uniform(seed, episode, key, 0, purpose, 0) >= share:
        return False
    return bool(uniform(seed, episode, key, step, purpose, 1) < onset)


@kernel
def advance(
    worlds: I32,
    world_agents: I32,
    world_rows: I32,
    row_flat: I32,
    world: I64,
    seeds: U64,
    f4: F32,
    i4: I32,
    u1: U8,
    commands: F32,
    log: F32,
    last_row: I32,
    row_us: int,
    dt_us: int,
    route_offset: I32,
    route_lane: I32,
    segment: F32,
    lane_first: I32,
    exit_offset: I32,
    exit_lane: I32,
    speed_limit: F32,
    signal: F32,
    signal_kind: U8,
    signal_state: U8,
    signal_offset: I32,
    signal_lane: I32,
    parameters: F32,
    path: F32,
    path_lane: I32,
    pose: F32,
) -> None:
    """Take one step with the worlds of one scene that have not ended: decide, move, count the step.

    worlds        (n,)       i32   numbers of the worlds
    world_agents  (W + 1,)   i32   agents of world w: world_agents[w] : world_agents[w + 1]
    world_rows    (W + 1,)   i32   policy rows of world w, likewise
    row_flat      (N,)       i32   agent of each policy row
    world         (WORLD_ROWS, W)  i64   per-world block of `state`; FAULT is set where a state is not finite
    seeds         (W,)       u64
    f4, i4, u1    (fields, A)      state blocks of `state`
    commands      (N, 2)     f32   [m/s^2, rad] of the policy rows
    log           (T, N, 12) f32   packed log of the scene, a row every `row_us` microseconds
    last_row      (N,)       i32   last row of each track that has it; -1 = none
    route_*                        CSR of the tracks' routes
    segment, lane_first, exit_*, speed_limit    lanes, as in `scenes.index.LaneMap`
    signal_state  (K + 1, S) u8    of every state of the episode
    parameters    (PARAMETERS,)  f32
    path, path_lane, pose          scratch (80, 4) f32, (80,) i32, (12,) f32
    """
    dt, row_s = parameters[P_DT], F(row_us * 1e-6)
    for n in range(worlds.shape[0]):
        w = worlds[n]
        if world[DONE, w]:
            continue
        a0, a1 = world_agents[w], world_agents[w + 1]
        step = world[STEP, w]
        for r in range(world_rows[w], world_rows[w + 1]):
            a = row_flat[r]
            f4[COMMAND_ACCEL, a], f4[COMMAND_STEER, a] = commands[r, 0], commands[r, 1]
            u1[BRAKED, a] = 0
            if i4[BRAKE_STEPS, a] > 0:
                # To rest and no further: a command that would drive backwards is cut at standstill.
                speed = f4[SPEED, a]
                f4[COMMAND_ACCEL, a] = max(FULL_BRAKE, -max(speed, ZERO) / dt)
                f4[COMMAND_STEER, a] = ZERO
                u1[BRAKED, a] = 1
        for a in range(a0, a1):
            if u1[CONTROLLER, a] == IDM and u1[BODY, a]:
                t = a - a0
                f4[COMMAND_ACCEL, a], f4[COMMAND_STEER, a] = drive(
                    a,
                    a0,
                    a1,
                    f4,
                    i4,
                    u1,
                    route_lane[route_offset[t] : route_offset[t + 1]],
                    segment,
                    lane_first,
                    exit_offset,
                    exit_lane,
                    speed_limit,
                    signal,
                    signal_kind,
                    signal_state[step],
                    signal_offset,
                    signal_lane,
                    parameters,
                    path,
                    path_lane,
                )

        tick = (step + 1) * dt_us
        row = world[START_ROW, w] + tick // row_us
        share = F(tick % row_us) / F(row_us)
        for a in range(a0, a1):
            controller = u1[CONTROLLER, a]
            if controller == NONE:
                continue
            f4[BEFORE_X, a], f4[BEFORE_Y, a], f4[BEFORE_Z, a] = f4[X, a], f4[Y, a], f4[Z, a]
            f4[BEFORE_HEADING, a], f4[BEFORE_COS, a], f4[BEFORE_SIN, a] = f4[HEADING, a], f4[COS, a], f4[SIN, a]
            f4[BEFORE_SPEED, a], f4[BEFORE_ACCEL, a] = f4[SPEED, a], f4[ACCEL_LONG, a]
            had_body = u1[BODY, a]
            u1[BEFORE_BODY, a] = had_body
            if u1[STATUS, a] == RETIRED:
                continue
            beyond = row + (share > ZERO) > last_row[a - a0]
            driven = controller == POLICY or controller == IDM
            # Traffic that stands for ever stays; whoever is under test drives as long as its log did.
            leaves = beyond and parameters[RETIRES] > ZERO and (driven or i4[GOAL_SLOT, a] >= 0)
            if had_body and leaves and controller != REPLAY:
                remove(a, RETIRED, f4, u1)
            elif had_body and driven:
                f4[X, a], f4[Y, a], f4[HEADING, a], f4[SPEED, a], f4[STEERING, a] = classic(
                    f4[X, a],
                    f4[Y, a],
                    f4[HEADING, a],
                    f4[SPEED, a],
                    f4[STEERING, a],
                    f4[LENGTH, a],
                    f4[COMMAND_ACCEL, a],
                    f4[COMMAND_STEER, a],
                    dt,
                )
                f4[SIN, a], f4[COS, a] = sincos(f4[HEADING, a])
            elif had_body and controller == STATIC:
                pass
            elif logged_pose(log, np.int64(a - a0), row, share, row_s, pose):
                place(a, f4, u1, pose)
                if controller == STATIC:
                    f4[SPEED, a] = ZERO
            else:
                remove(a, ABSENT, f4, u1)
            if u1[BODY, a] == 0:
                continue
            if had_body:
                f4[ACCEL_LONG, a] = (f4[SPEED, a] - f4[BEFORE_SPEED, a]) / dt
                f4[YAW_RATE, a] = wrap(f4[HEADING, a] - f4[BEFORE_HEADING, a]) / dt
                f4[ACCEL_LAT, a] = f4[SPEED, a] * f4[YAW_RATE, a]
                i4[AGE, a] += 1
            else:
                f4[ACCEL_LONG, a], f4[YAW_RATE, a], f4[ACCEL_LAT, a] = ZERO, ZERO, ZERO
                i4[AGE, a] = 0
            if not np.isfinite(f4[X, a] + f4[Y, a] + f4[Z, a] + f4[HEADING, a] + f4[SPEED, a] + f4[STEERING, a]):
                world[FAULT, w], world[FAULT_AGENT, w] = NOT_FINITE, a - a0
        world[STEP, w] = step + 1

        if parameters[BLIND_SHARE] <= ZERO and parameters[BRAKE_SHARE] <= ZERO:
            continue
        seed, episode, hold = seeds[w], world[EPISODE, w], np.int32(parameters[LATCH_STEPS])
        for r in range(world_rows[w], world_rows[w + 1]):
            a = row_flat[r]
            if i4[BLIND_STEPS, a] > 0:
                i4[BLIND_STEPS, a] -= 1
            elif latch(seed, episode, i4[KEY, a], step + 1, BLIND, parameters[BLIND_SHARE], parameters[BLIND_ONSET]):
                i4[BLIND_STEPS, a] = hold
            if i4[BRAKE_STEPS, a] > 0:
                i4[BRAKE_STEPS, a] -= 1
            elif latch(seed, episode, i4[KEY, a], step + 1, BRAKE, parameters[BRAKE_SHARE], parameters[BRAKE_ONSET]):
                i4[BRAKE_STEPS, a] = hold

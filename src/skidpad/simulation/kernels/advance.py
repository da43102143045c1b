"""First half of a step: all move, by the commands that were decided on the state before it (S107).

Nothing is detected here; poses before the step are kept for that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Controller, Status
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import RAILS
from skidpad.simulation.kernels.lights import light_world
from skidpad.simulation.kernels.motion import hold_brake, move_all
from skidpad.simulation.kernels.replay import logged_pose
from skidpad.simulation.kernels.slots import f32_1, f32_2, f32_3, f64_1, i32_1, i32_2, i64_1, i64_2, u8_2, u64_1
from skidpad.simulation.kernels.trig import wrap
from skidpad.simulation.random import Purpose, uniform
from skidpad.simulation.slots import (
    B_COEF,
    B_COMMANDS,
    B_F4,
    B_I4,
    B_LIGHT_START,
    B_LIGHTS,
    B_ORDER,
    B_PROGRAMME,
    B_ROW_FLAT,
    B_SEEDS,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    B_WORLD_ROWS,
    DT_US,
    ROW_US,
    S_LAST_ROW,
    S_LOG,
    S_NUMBERS,
    S_PARAMETERS,
    T_BLOCK,
    T_MOVERS,
    T_POSE,
)
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
    GOAL_SLOT,
    HEADING,
    HEIGHT,
    JERK_LAT,
    JERK_LONG,
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
    MODEL,
    P_DT,
    RETIRES,
    SIN,
    SLOT,
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
NONE, POLICY, REPLAY, IDM, PDM, STATIC = (
    int(Controller.NONE),
    int(Controller.POLICY),
    int(Controller.REPLAY),
    int(Controller.IDM),
    int(Controller.PDM),
    int(Controller.STATIC),
)
ACTIVE, ABSENT, RETIRED = np.uint8(Status.ACTIVE), np.uint8(Status.ABSENT), np.uint8(Status.RETIRED)
EMPTY, STOPPED, REMOVED = int(Status.EMPTY), int(Status.STOPPED), int(Status.REMOVED)
BLIND, BRAKE = int(Purpose.BLIND), int(Purpose.BRAKE)


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
def advance(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Take one step with the worlds order[first:end] that have not ended: move, count the step. The commands of
    planners stand ready (`planners`).

    batch    (fields, ENTRY)         i64   row of `slots.BATCH`
    slots    (slots, fields, ENTRY)  i64   table of `slots.SLOT`
    scratch  (fields, ENTRY)         i64   row of `slots.SCRATCH`
    """
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    world_agents, world_rows = i32_1(batch, B_WORLD_AGENTS), i32_1(batch, B_WORLD_ROWS)
    row_flat = i32_1(batch, B_ROW_FLAT)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    commands, coef = f32_2(batch, B_COMMANDS), f32_2(batch, B_COEF)
    movers, block = i32_1(scratch, T_MOVERS), f32_1(scratch, T_BLOCK)
    lights, light_start = u8_2(batch, B_LIGHTS), i64_1(batch, B_LIGHT_START)
    programme = i64_2(batch, B_PROGRAMME)
    pose = f32_1(scratch, T_POSE)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w]:
            continue
        slot = slots[world[SLOT, w]]
        numbers, parameters = f64_1(slot, S_NUMBERS), f32_1(slot, S_PARAMETERS)
        dt_us, row_us = np.int64(numbers[DT_US]), np.int64(numbers[ROW_US])
        dt, row_s = parameters[P_DT], F(row_us * 1e-6)
        log, last_row = f32_3(slot, S_LOG), i32_1(slot, S_LAST_ROW)
        a0, a1 = world_agents[w], world_agents[w + 1]
        step = world[STEP, w]
        for r in range(world_rows[w], world_rows[w + 1]):
            a = row_flat[r]
            f4[COMMAND_ACCEL, a], f4[COMMAND_STEER, a] = commands[r, 0], commands[r, 1]
            u1[BRAKED, a] = 0
            if i4[BRAKE_STEPS, a] > 0:
                hold_brake(a, f4, u1, coef, dt)
        tick = (step + 1) * dt_us
        row = world[START_ROW, w] + tick // row_us
        share = F(tick % row_us) / F(row_us)
        driving = 0
        for a in range(a0, a1):
            controller = u1[CONTROLLER, a]
            if controller == NONE or u1[STATUS, a] == EMPTY:
                continue
            f4[BEFORE_X, a], f4[BEFORE_Y, a], f4[BEFORE_Z, a] = f4[X, a], f4[Y, a], f4[Z, a]
            f4[BEFORE_HEADING, a], f4[BEFORE_COS, a], f4[BEFORE_SIN, a] = f4[HEADING, a], f4[COS, a], f4[SIN, a]
            f4[BEFORE_SPEED, a], f4[BEFORE_ACCEL, a] = f4[SPEED, a], f4[ACCEL_LONG, a]
            had_body = u1[BODY, a]
            u1[BEFORE_BODY, a] = had_body
            if u1[STATUS, a] == RETIRED or u1[STATUS, a] == STOPPED or u1[STATUS, a] == REMOVED:
                continue
            f4[JERK_LAT, a] = f4[ACCEL_LAT, a]  # until the acceleration after the step is known
            beyond = row + (share > ZERO) > last_row[a - a0]
            driven = controller == POLICY or controller == IDM or controller == PDM
            # Traffic that stands for ever stays; whoever is under test drives as long as its log did.
            leaves = beyond and parameters[RETIRES] > ZERO and (driven or i4[GOAL_SLOT, a] >= 0)
            if had_body and leaves and controller != REPLAY:
                remove(a, RETIRED, f4, u1)
            elif had_body and driven:
                if u1[MODEL, a] != RAILS:
                    movers[driving] = a
                    driving += 1
            elif had_body and controller == STATIC:
                pass
            elif logged_pose(log, np.int64(a - a0), row, share, row_s, pose):
                place(a, f4, u1, pose)
                if controller == STATIC:
                    f4[SPEED, a] = ZERO
            else:
                remove(a, ABSENT, f4, u1)
        move_all(movers, driving, f4, u1, coef, parameters, block)
        for a in range(a0, a1):
            controller = u1[CONTROLLER, a]
            if controller == NONE or u1[BODY, a] == 0 or u1[STATUS, a] == STOPPED:
                continue
            if u1[BEFORE_BODY, a]:
                if controller != POLICY and controller != IDM and controller != PDM:
                    f4[ACCEL_LONG, a] = (f4[SPEED, a] - f4[BEFORE_SPEED, a]) / dt
                    f4[YAW_RATE, a] = wrap(f4[HEADING, a] - f4[BEFORE_HEADING, a]) / dt
                    f4[ACCEL_LAT, a] = f4[SPEED, a] * f4[YAW_RATE, a]
                i4[AGE, a] += 1
            else:
                f4[ACCEL_LONG, a], f4[YAW_RATE, a], f4[ACCEL_LAT, a] = ZERO, ZERO, ZERO
                i4[AGE, a] = 0
            known = i4[AGE, a] > 1  # no acceleration before the first step
            f4[JERK_LONG, a] = (f4[ACCEL_LONG, a] - f4[BEFORE_ACCEL, a]) / dt if known else ZERO
            f4[JERK_LAT, a] = (f4[ACCEL_LAT, a] - f4[JERK_LAT, a]) / dt if known else ZERO
        world[STEP, w] = step + 1
        light_world(w, slot, world, programme, light_start, lights)

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

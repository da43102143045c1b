"""Third part of a step: all events are known, and now they have consequences.

Order, for each world: rewards of what happened, running quantities, goals that are replaced, agents that stop or leave,
and whether the world ends. What the policy rows are told is written last.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Ending, Status
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.consequences import apply_events
from skidpad.simulation.kernels.goals import goal_table, route_table
from skidpad.simulation.kernels.rewards import reward_rows
from skidpad.simulation.kernels.slots import (
    bool_1,
    bool_2,
    f32_1,
    f32_2,
    f32_3,
    f64_1,
    i32_1,
    i32_2,
    i64_2,
    lane_map,
    u8_2,
    u32_1,
    u64_1,
)
from skidpad.simulation.slots import (
    B_COEF,
    B_DONE,
    B_EVENTS,
    B_F4,
    B_FLAGS,
    B_I4,
    B_OBS,
    B_ORDER,
    B_OVERFLOW,
    B_REWARD,
    B_ROW_EVENTS,
    B_ROW_FLAT,
    B_SEEDS,
    B_TERMS,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    B_WORLD_ROWS,
    DT_US,
    ROW_US,
    S_LOG,
    S_NUMBERS,
    S_PARAMETERS,
    T_LANE_BEFORE,
    T_LANE_QUEUE,
    T_POSE,
    T_SPARE,
)
from skidpad.simulation.state import (
    BLIND_STEPS,
    BRAKE_STEPS,
    DONE,
    ENDED,
    ENDING,
    FAULT,
    LIVE,
    MASK,
    RUNNING,
    SILENT,
    SLOT,
    START_ROW,
    STATUS,
    STEP,
    STEPS,
    TERMINAL,
    TRUNCATED,
)

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
Bool = NDArray[np.bool_]
ZERO, NOTHING = np.float32(0.0), np.uint32(0)
ACTIVE = int(Status.ACTIVE)
NOTHING_ENDS, LENGTH, NOT_FINITE = int(Ending.NONE), int(Ending.LENGTH), int(Ending.NOT_FINITE)


@kernel
def silence(r: int, flags: Bool, row_events: U32, reward: F32, terms: F32, obs: F32, overflow: I32) -> None:
    """Leave nothing in row r: its agent has left, or its world has ended."""
    for k in range(obs.shape[1]):
        obs[r, k] = ZERO
    row_events[r] = NOTHING
    reward[r] = ZERO
    for k in range(terms.shape[1]):
        terms[r, k] = ZERO
    overflow[r, 0], overflow[r, 1] = 0, 0
    flags[TERMINAL, r], flags[TRUNCATED, r], flags[MASK, r] = False, False, False


@kernel
def outcomes(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> int:
    """Apply what happened to the worlds order[first:end]; returns how many ended because a state is not finite.
    Arguments as in `advance.advance`."""
    order, world, done = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), bool_1(batch, B_DONE)
    world_rows, row_flat = i32_1(batch, B_WORLD_ROWS), i32_1(batch, B_ROW_FLAT)
    i4, u1, events = i32_2(batch, B_I4), u8_2(batch, B_U1), u32_1(batch, B_EVENTS)
    flags, row_events = bool_2(batch, B_FLAGS), u32_1(batch, B_ROW_EVENTS)
    obs, overflow = f32_2(batch, B_OBS), i32_2(batch, B_OVERFLOW)
    f4, seeds, world_agents = f32_2(batch, B_F4), u64_1(batch, B_SEEDS), i32_1(batch, B_WORLD_AGENTS)
    goals, routes = goal_table(batch), route_table(batch)
    spare, before = i32_1(scratch, T_SPARE), i32_1(scratch, T_LANE_BEFORE)
    queue = i32_1(scratch, T_LANE_QUEUE)
    coef, reward, terms = f32_2(batch, B_COEF), f32_1(batch, B_REWARD), f32_2(batch, B_TERMS)
    pose = f32_1(scratch, T_POSE)
    broken = 0
    for n in range(first, end):
        w = order[n]
        r0, r1 = world_rows[w], world_rows[w + 1]
        if world[DONE, w] == SILENT:
            continue
        if world[DONE, w] == RUNNING and world[FAULT, w]:
            broken += 1
            world[ENDING, w] = NOT_FINITE
        if world[DONE, w] == ENDED or world[FAULT, w]:
            world[DONE, w], done[w] = SILENT, True
            for r in range(r0, r1):
                silence(r, flags, row_events, reward, terms, obs, overflow)
            continue
        slot = slots[world[SLOT, w]]
        numbers, parameters = f64_1(slot, S_NUMBERS), f32_1(slot, S_PARAMETERS)
        row_us, time_us = np.int64(numbers[ROW_US]), world[STEP, w] * np.int64(numbers[DT_US])
        reward_rows(
            r0,
            r1,
            row_flat,
            world_agents[w],
            events,
            f4,
            i4,
            u1,
            coef,
            parameters,
            routes,
            f32_3(slot, S_LOG),
            world[START_ROW, w] + time_us // row_us,
            np.float32(time_us % row_us) / np.float32(row_us),
            np.float32(row_us * 1e-6),
            pose,
            reward,
            terms,
        )
        apply_events(
            w,
            world_agents[w],
            world_agents[w + 1],
            seeds[w],
            world,
            f4,
            i4,
            u1,
            events,
            goals,
            routes,
            parameters,
            lane_map(slot),
            spare,
            before,
            queue,
        )
        if world[ENDING, w] == NOTHING_ENDS and world[STEP, w] >= world[STEPS, w]:
            world[ENDING, w] = LENGTH
        if world[ENDING, w] != NOTHING_ENDS:
            world[DONE, w], done[w] = ENDED, True
        for r in range(r0, r1):
            a = row_flat[r]
            live, here = flags[LIVE, r], u1[STATUS, a] == ACTIVE
            if not live:
                silence(r, flags, row_events, reward, terms, obs, overflow)
                continue
            row_events[r] = events[a]
            flags[TERMINAL, r] = not here
            flags[TRUNCATED, r] = here and done[w]
            flags[MASK, r] = i4[BLIND_STEPS, a] == 0 and i4[BRAKE_STEPS, a] == 0
    return broken

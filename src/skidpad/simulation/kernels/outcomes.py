"""Third part of a step: all events are known, and now they have consequences.

Order, for each world: rewards of what happened, running quantities, goals that are replaced, agents that stop or leave,
and whether the world ends. What the policy rows are told is written last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Ending, Status
from skidpad.simulation.coefficients import C_COLLISION, C_OVERSPEED
from skidpad.simulation.kernels.accounts import add_rows, broken_agent, count_events
from skidpad.simulation.kernels.ahead import DOUBLES, WORDS, fetch_agents, fetch_fields, fetch_rows
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
    f64_2,
    i32_1,
    i32_2,
    i64_2,
    lane_map,
    u8_2,
    u32_1,
    u64_1,
)
from skidpad.simulation.slots import (
    B_CLIPPED_SUM,
    B_COEF,
    B_DONE,
    B_EVENT_COUNT,
    B_EVENT_FIRST,
    B_EVENTS,
    B_F4,
    B_FLAGS,
    B_I4,
    B_MASK,
    B_OBS_BYTES,
    B_ORDER,
    B_OVERFLOW,
    B_OVERFLOW_SUM,
    B_REWARD,
    B_REWARD_SUM,
    B_ROW_EVENTS,
    B_ROW_FLAT,
    B_SEEDS,
    B_TERM_SUM,
    B_TERMINAL,
    B_TERMS,
    B_TRUNCATED,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    B_WORLD_ROWS,
    DT_US,
    ROW_US,
    S_LOG,
    S_NUMBERS,
    S_PARAMETERS,
    T_CONTACTS,
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
    FAULT_AGENT,
    LIVE,
    RUNNING,
    SILENT,
    SLOT,
    START_ROW,
    STATUS,
    STEP,
    STEPS,
)

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
Bool = NDArray[np.bool_]
ZERO, NOTHING = np.float32(0.0), np.uint32(0)
ACTIVE = int(Status.ACTIVE)
NOTHING_ENDS, LENGTH, NOT_FINITE = int(Ending.NONE), int(Ending.LENGTH), int(Ending.NOT_FINITE)


class Told(NamedTuple):
    """What the policy rows are told, as in `slots.BATCH`."""

    terminal: Bool
    truncated: Bool
    mask: Bool
    events: U32
    reward: F32
    terms: F32
    obs: U8
    overflow: I32


@kernel
def told(batch: I64) -> Told:
    """Bind it."""
    return Told(
        bool_1(batch, B_TERMINAL),
        bool_1(batch, B_TRUNCATED),
        bool_1(batch, B_MASK),
        u32_1(batch, B_ROW_EVENTS),
        f32_1(batch, B_REWARD),
        f32_2(batch, B_TERMS),
        u8_2(batch, B_OBS_BYTES),
        i32_2(batch, B_OVERFLOW),
    )


@kernel
def silence(r: int, row: Told) -> None:
    """Leave nothing in row r: its agent has left, or its world has ended."""
    for k in range(row.obs.shape[1]):
        row.obs[r, k] = 0
    for k in range(row.terms.shape[1]):
        row.terms[r, k] = ZERO
    for k in range(row.overflow.shape[1]):
        row.overflow[r, k] = 0
    row.events[r], row.reward[r] = NOTHING, ZERO
    row.terminal[r], row.truncated[r], row.mask[r] = False, False, False


@kernel
def outcomes(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> int:
    """Apply what happened to the worlds order[first:end]; returns how many ended because a state is not finite.
    Arguments as in `advance.advance`."""
    order, world, done = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), bool_1(batch, B_DONE)
    world_agents = i32_1(batch, B_WORLD_AGENTS)
    world_rows, row_flat = i32_1(batch, B_WORLD_ROWS), i32_1(batch, B_ROW_FLAT)
    i4, u1, events = i32_2(batch, B_I4), u8_2(batch, B_U1), u32_1(batch, B_EVENTS)
    f4, seeds = f32_2(batch, B_F4), u64_1(batch, B_SEEDS)
    goals, routes = goal_table(batch), route_table(batch)
    spare, before = i32_1(scratch, T_SPARE), i32_1(scratch, T_LANE_BEFORE)
    queue = i32_1(scratch, T_LANE_QUEUE)
    f4_bits = i32_2(batch, B_F4)
    flags, row = bool_2(batch, B_FLAGS), told(batch)
    event_count, event_first = i32_2(batch, B_EVENT_COUNT), i32_2(batch, B_EVENT_FIRST)
    reward_sum, term_sum = f64_1(batch, B_REWARD_SUM), f64_2(batch, B_TERM_SUM)
    overflow_sum, clipped_sum = i64_2(batch, B_OVERFLOW_SUM), i32_1(batch, B_CLIPPED_SUM)
    coef, pose = f32_2(batch, B_COEF), f32_1(scratch, T_POSE)
    centred = f32_2(scratch, T_CONTACTS)[0]  # scratch of detection, which is over
    broken = 0
    for n in range(first, end):
        w = order[n]
        a0, a1, r0, r1 = world_agents[w], world_agents[w + 1], world_rows[w], world_rows[w + 1]
        if n + 1 < end:
            after = order[n + 1]
            b0, b1, q0, q1 = world_agents[after], world_agents[after + 1], world_rows[after], world_rows[after + 1]
            fetch_agents(b0, b1, f4, i4, u1)
            fetch_fields(b0, b1, coef, C_COLLISION, C_OVERSPEED + 1)
            fetch_rows(q0, q1, row.terms, WORDS)
            fetch_rows(q0, q1, term_sum, DOUBLES)
            fetch_rows(q0, q1, overflow_sum, DOUBLES)
        if world[DONE, w] == SILENT:
            continue
        if world[DONE, w] == RUNNING:
            fault = broken_agent(f4_bits, a0, a1)
            if fault >= 0:
                broken += 1
                world[FAULT, w], world[FAULT_AGENT, w], world[ENDING, w] = 1, fault - a0, NOT_FINITE
        if world[DONE, w] == ENDED or world[FAULT, w]:
            world[DONE, w], done[w] = SILENT, True
            for r in range(r0, r1):
                silence(r, row)
            continue
        slot = slots[world[SLOT, w]]
        numbers, parameters = f64_1(slot, S_NUMBERS), f32_1(slot, S_PARAMETERS)
        row_us, time_us = np.int64(numbers[ROW_US]), world[STEP, w] * np.int64(numbers[DT_US])
        reward_rows(
            r0,
            r1,
            row_flat,
            a0,
            a1,
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
            centred,
            row.reward,
            row.terms,
        )
        apply_events(
            w,
            a0,
            a1,
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
                silence(r, row)
                continue
            row.events[r] = events[a]
            row.terminal[r] = not here
            row.truncated[r] = here and done[w]
            row.mask[r] = i4[BLIND_STEPS, a] == 0 and i4[BRAKE_STEPS, a] == 0
        count_events(a0, a1, world[STEP, w], events, event_count, event_first)
        add_rows(r0, r1, flags, row.reward, row.terms, row.overflow, reward_sum, term_sum, overflow_sum, clipped_sum)
    return broken

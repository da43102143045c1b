"""State 0 of worlds: everything is set back, then lights, places and first goals.

Kernels around the first detection: lights and places come before it, and goals after it, because they begin on the lane
that it finds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Controller, Reason, Status
from skidpad.simulation.kernels.advance import place
from skidpad.simulation.kernels.coefficients import draw_coefficients
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.goals import goal_table, new_goals, route_table
from skidpad.simulation.kernels.lights import draw_programmes, light_world
from skidpad.simulation.kernels.slots import (
    bool_1,
    edge_map,
    f32_1,
    f32_2,
    f32_3,
    f64_1,
    f64_2,
    i32_1,
    i32_2,
    i64_1,
    i64_2,
    lane_map,
    u8_1,
    u8_2,
    u64_1,
)
from skidpad.simulation.kernels.spawn import spawn
from skidpad.simulation.slots import (
    B_CLIPPED_SUM,
    B_COEF,
    B_COEF_TABLE,
    B_DONE,
    B_DRAWN,
    B_EVENT_COUNT,
    B_EVENT_FIRST,
    B_F4,
    B_GOAL_ARC,
    B_GOAL_COUNT,
    B_GOAL_HOP,
    B_GOAL_LANE,
    B_GOALS,
    B_I4,
    B_LIGHT_START,
    B_LIGHTS,
    B_LOG_GOAL_ARC,
    B_LOG_GOAL_COUNT,
    B_LOG_GOAL_LANE,
    B_LOG_GOALS,
    B_LOG_ROUTE_LANE,
    B_LOG_ROUTE_SIZE,
    B_ORDER,
    B_OVERFLOW_SUM,
    B_PROGRAMME,
    B_REWARD_SUM,
    B_ROUTE_LANE,
    B_ROUTE_SIZE,
    B_ROUTE_START,
    B_SEEDS,
    B_TERM_SUM,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    B_WORLD_GOALS,
    B_WORLD_ROWS,
    S_LIGHT_GROUP,
    S_LIGHT_PHASE,
    S_LIGHT_PHASES,
    S_LIGHT_SOURCE,
    S_LOG,
    S_NUMBERS,
    S_PARAMETERS,
    S_SIGNAL,
    S_SIGNAL_KIND,
    S_SPAWN_END,
    S_SPAWN_LANE,
    T_LANE_BEFORE,
    T_LANE_QUEUE,
    USE_AREA,
)
from skidpad.simulation.state import (
    BEFORE_LANE,
    BODY,
    BYTE_STATE,
    CONTACT_PARTNER,
    CONTROLLER,
    COS,
    DONE,
    ENDING,
    EPISODE,
    EXCLUSION,
    FAULT,
    FAULT_AGENT,
    GOAL_SLOT,
    HEADING,
    INT_STATE,
    KEY,
    LANE,
    LANE_ARC,
    LANE_COS,
    LIGHT_MODE,
    LOG_LENGTH,
    MODEL,
    PREVIOUS_LANE,
    REASON,
    RED_SIGNAL,
    SLOT,
    SPEED,
    START_HEADING,
    START_ROW,
    START_SPEED,
    START_X,
    START_Y,
    START_Z,
    STATUS,
    STEP,
    STOP_SIGNAL,
    SUBTYPE,
    TYPE,
    WATCHED,
    X,
    Y,
    Z,
)

I64 = NDArray[np.int64]
ACTIVE, EMPTY, ABSENT = np.uint8(Status.ACTIVE), np.uint8(Status.EMPTY), np.uint8(Status.ABSENT)
NONE, STATIC = int(Controller.NONE), int(Controller.STATIC)
ZERO, ONE = np.float32(0.0), np.float32(1.0)
# Rows of the integer block where -1 is nothing, and rows of the byte block that hold for every episode.
NUMBERS_SOMETHING = tuple(
    k in {LANE, PREVIOUS_LANE, BEFORE_LANE, CONTACT_PARTNER, RED_SIGNAL, STOP_SIGNAL} for k in range(len(INT_STATE))
)
STAYS = tuple(k in {CONTROLLER, EXCLUSION, TYPE, SUBTYPE, WATCHED, MODEL} for k in range(len(BYTE_STATE)))
NOT_SPAWNED = np.int32(Reason.NOT_SPAWNED)


@kernel
def set_back(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Clear the worlds order[first:end] for a new episode: clocks, agents, goals, routes, sums; nobody has a body yet.
    Arguments as in `advance.advance`."""
    order, world, done = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), bool_1(batch, B_DONE)
    world_agents, world_rows = i32_1(batch, B_WORLD_AGENTS), i32_1(batch, B_WORLD_ROWS)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    seeds, drawn, table, coef = (
        u64_1(batch, B_SEEDS),
        u8_1(batch, B_DRAWN),
        f32_2(batch, B_COEF_TABLE),
        f32_2(batch, B_COEF),
    )
    goal_start, goals, goal_count = i64_1(batch, B_WORLD_GOALS), f32_3(batch, B_GOALS), i32_1(batch, B_GOAL_COUNT)
    log_goals, log_goal_count = f32_3(batch, B_LOG_GOALS), i32_1(batch, B_LOG_GOAL_COUNT)
    log_goal_lane, log_goal_arc = i32_2(batch, B_LOG_GOAL_LANE), f32_2(batch, B_LOG_GOAL_ARC)
    goal_lane, goal_arc, goal_hop = i32_2(batch, B_GOAL_LANE), f32_2(batch, B_GOAL_ARC), i32_2(batch, B_GOAL_HOP)
    route_lane, route_size, route_start = (
        i32_1(batch, B_ROUTE_LANE),
        i32_1(batch, B_ROUTE_SIZE),
        i64_1(batch, B_ROUTE_START),
    )
    log_lane, log_size = i32_1(batch, B_LOG_ROUTE_LANE), i32_1(batch, B_LOG_ROUTE_SIZE)
    counts, firsts = i32_2(batch, B_EVENT_COUNT), i32_2(batch, B_EVENT_FIRST)
    rewards, terms = f64_1(batch, B_REWARD_SUM), f64_2(batch, B_TERM_SUM)
    overflows, clipped = i64_2(batch, B_OVERFLOW_SUM), i32_1(batch, B_CLIPPED_SUM)
    for n in range(first, end):
        w = order[n]
        for k in (STEP, DONE, FAULT, FAULT_AGENT, ENDING):
            world[k, w] = 0
        done[w] = False
        a0, a1 = world_agents[w], world_agents[w + 1]
        for k in range(f4.shape[0]):
            for a in range(a0, a1):
                f4[k, a] = ONE if k == COS or k == LANE_COS else ZERO
        for k in range(i4.shape[0]):
            if k != KEY and k != GOAL_SLOT:
                nothing = np.int32(-1) if NUMBERS_SOMETHING[k] else np.int32(0)
                for a in range(a0, a1):
                    i4[k, a] = nothing
        for k in range(u1.shape[0]):
            if not STAYS[k]:
                for a in range(a0, a1):
                    u1[k, a] = 0
        for a in range(a0, a1):
            u1[STATUS, a] = EMPTY if u1[CONTROLLER, a] == NONE else ABSENT
        draw_coefficients(a0, a1, seeds[w], world[EPISODE, w], i4[KEY], drawn, table, coef)
        for g in range(goal_start[w], goal_start[w + 1]):
            goal_count[g] = log_goal_count[g]
            for k in range(goals.shape[1]):
                goal_lane[g, k], goal_arc[g, k], goal_hop[g, k] = log_goal_lane[g, k], log_goal_arc[g, k], -1
                for c in range(3):
                    goals[g, k, c] = log_goals[g, k, c]
        for a in range(a0, a1):
            route_size[a] = log_size[a]
            for k in range(route_start[a], route_start[a] + log_size[a]):
                route_lane[k] = log_lane[k]
        for k in range(counts.shape[0]):
            for a in range(a0, a1):
                counts[k, a], firsts[k, a] = 0, 0
        for r in range(world_rows[w], world_rows[w + 1]):
            rewards[r], clipped[r] = 0.0, 0
            for k in range(terms.shape[1]):
                terms[r, k] = 0.0
            for k in range(overflows.shape[1]):
                overflows[r, k] = 0


@kernel
def place_logged(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Put the agents of the worlds order[first:end] where their log has them. Arguments as in `advance.advance`."""
    order, world, world_agents = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), i32_1(batch, B_WORLD_AGENTS)
    f4, u1 = f32_2(batch, B_F4), u8_2(batch, B_U1)
    for n in range(first, end):
        w = order[n]
        log = f32_3(slots[world[SLOT, w]], S_LOG)
        for a in range(world_agents[w], world_agents[w + 1]):
            pose = log[world[START_ROW, w], a - world_agents[w]]
            if u1[CONTROLLER, a] != NONE and pose[LOG_LENGTH] > ZERO:
                place(a, f4, u1, pose)
                if u1[CONTROLLER, a] == STATIC:
                    f4[SPEED, a] = ZERO


@kernel
def start_lights(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Draw the light programmes of the worlds order[first:end], and show their first states. Arguments as in
    `advance.advance`."""
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    programme, lights = i64_2(batch, B_PROGRAMME), u8_2(batch, B_LIGHTS)
    light_start = i64_1(batch, B_LIGHT_START)
    for n in range(first, end):
        w = order[n]
        slot = slots[world[SLOT, w]]
        draw_programmes(
            seeds[w],
            world[EPISODE, w],
            int(f32_1(slot, S_PARAMETERS)[LIGHT_MODE]),
            u8_1(slot, S_LIGHT_SOURCE),
            i32_1(slot, S_LIGHT_GROUP),
            i32_1(slot, S_LIGHT_PHASE),
            i32_1(slot, S_LIGHT_PHASES),
            programme[:, light_start[w] : light_start[w + 1]],
        )
        light_world(w, slot, world, programme, light_start, lights)


@kernel
def spawn_agents(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Put the agents of the worlds order[first:end] onto their maps, in the order of their numbers; who finds no place
    stays EMPTY with its reason. Arguments as in `advance.advance`."""
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    world_agents, lights = i32_1(batch, B_WORLD_AGENTS), u8_2(batch, B_LIGHTS)
    light_start = i64_1(batch, B_LIGHT_START)
    for n in range(first, end):
        w = order[n]
        slot = slots[world[SLOT, w]]
        lanes, edges = lane_map(slot), edge_map(slot)
        a0, a1 = world_agents[w], world_agents[w + 1]
        for a in range(a0, a1):
            found = spawn(
                seeds[w],
                world[EPISODE, w],
                a0,
                a,
                a1,
                f4,
                i4,
                u1,
                i32_1(slot, S_SPAWN_LANE),
                f64_1(slot, S_SPAWN_END),
                lanes,
                edges,
                f64_1(slot, S_NUMBERS)[USE_AREA] != 0.0,
                f32_2(slot, S_SIGNAL),
                u8_1(slot, S_SIGNAL_KIND),
                lights[0, light_start[w] : light_start[w + 1]],
                f32_1(slot, S_PARAMETERS),
            )
            u1[STATUS, a] = ACTIVE if found else EMPTY
            i4[REASON, a] = 0 if found else NOT_SPAWNED


@kernel
def start_goals(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """First routes and goals of everybody with a body in the worlds order[first:end], from the lane it is on. Arguments
    as in `advance.advance`."""
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    world_agents = i32_1(batch, B_WORLD_AGENTS)
    goals, routes = goal_table(batch), route_table(batch)
    before, queue = i32_1(scratch, T_LANE_BEFORE), i32_1(scratch, T_LANE_QUEUE)
    for n in range(first, end):
        w = order[n]
        slot = slots[world[SLOT, w]]
        lanes, parameters = lane_map(slot), f32_1(slot, S_PARAMETERS)
        for a in range(world_agents[w], world_agents[w + 1]):
            if u1[BODY, a] == 0:
                continue
            lane, arc = int(i4[LANE, a]), float(f4[LANE_ARC, a])
            new_goals(a, seeds[w], world[EPISODE, w], 0, lane, arc, i4, goals, routes, parameters, lanes, before, queue)


@kernel
def note_starts(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Note the pose and speed of state 0, where a ghost is put back to (S58). Arguments as in `advance.advance`."""
    order, world_agents = i32_1(batch, B_ORDER), i32_1(batch, B_WORLD_AGENTS)
    f4 = f32_2(batch, B_F4)
    for n in range(first, end):
        w = order[n]
        for a in range(world_agents[w], world_agents[w + 1]):
            f4[START_X, a], f4[START_Y, a], f4[START_Z, a] = f4[X, a], f4[Y, a], f4[Z, a]
            f4[START_HEADING, a], f4[START_SPEED, a] = f4[HEADING, a], f4[SPEED, a]

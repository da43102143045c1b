"""State 0 of worlds: lights, spawned agents, first goals. The log's own agents are put in place by Python.

Two kernels around the first detection: lights and places come before it, and goals after it, because they begin on the
lane that it finds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Reason, Status
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.goals import goal_table, new_goals, route_table
from skidpad.simulation.kernels.lights import draw_programmes, light_world
from skidpad.simulation.kernels.slots import (
    edge_map,
    f32_1,
    f32_2,
    f64_1,
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
    B_F4,
    B_I4,
    B_LIGHT_START,
    B_LIGHTS,
    B_ORDER,
    B_PROGRAMME,
    B_SEEDS,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    S_LIGHT_GROUP,
    S_LIGHT_PHASE,
    S_LIGHT_PHASES,
    S_LIGHT_SOURCE,
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
    BODY,
    EPISODE,
    HEADING,
    LANE,
    LANE_ARC,
    LIGHT_MODE,
    REASON,
    SLOT,
    SPEED,
    START_HEADING,
    START_SPEED,
    START_X,
    START_Y,
    START_Z,
    STATUS,
    X,
    Y,
    Z,
)

I64 = NDArray[np.int64]
ACTIVE, EMPTY = np.uint8(Status.ACTIVE), np.uint8(Status.EMPTY)
NOT_SPAWNED = np.int32(Reason.NOT_SPAWNED)


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

"""Whoever is driven by a rule decides before anybody moves (S107): one phase for each planner, run only where it drives
somebody; and the one body that no dynamics move.

A planner reads the state before the step and leaves its command in COMMAND_ACCEL and COMMAND_STEER.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Controller, Status
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import RAILS
from skidpad.simulation.kernels.idm import drive, slide
from skidpad.simulation.kernels.pdm import plan
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
)
from skidpad.simulation.slots import (
    B_F4,
    B_I4,
    B_LIGHT_START,
    B_LIGHTS,
    B_ORDER,
    B_ROUTE_LANE,
    B_ROUTE_SIZE,
    B_ROUTE_START,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    S_NUMBERS,
    S_PARAMETERS,
    S_SIGNAL,
    S_SIGNAL_KIND,
    S_SIGNAL_LANE,
    S_SIGNAL_OFFSET,
    T_PATH,
    T_PATH_LANE,
    T_PLAN_BLOCK,
    T_PLAN_SCORES,
    T_PLAN_WAYS,
    USE_AREA,
)
from skidpad.simulation.state import (
    BEFORE_BODY,
    BODY,
    COMMAND_ACCEL,
    COMMAND_STEER,
    CONTROLLER,
    DONE,
    MODEL,
    SLOT,
    STATUS,
    STEP,
)

I64 = NDArray[np.int64]
IDM, PDM = int(Controller.IDM), int(Controller.PDM)
ACTIVE = int(Status.ACTIVE)


@kernel
def plan_idm(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Commands of the IDM agents of the worlds order[first:end] that have not ended. Arguments as in
    `advance.advance`."""
    order, world, world_agents = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), i32_1(batch, B_WORLD_AGENTS)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    route_lane, route_start = i32_1(batch, B_ROUTE_LANE), i64_1(batch, B_ROUTE_START)
    route_size = i32_1(batch, B_ROUTE_SIZE)
    lights, light_start = u8_2(batch, B_LIGHTS), i64_1(batch, B_LIGHT_START)
    path, path_lane = f32_2(scratch, T_PATH), i32_1(scratch, T_PATH_LANE)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w]:
            continue
        slot = slots[world[SLOT, w]]
        lanes = lane_map(slot)
        a0, a1 = world_agents[w], world_agents[w + 1]
        for a in range(a0, a1):
            if u1[CONTROLLER, a] == IDM and u1[BODY, a]:
                f4[COMMAND_ACCEL, a], f4[COMMAND_STEER, a] = drive(
                    a,
                    a0,
                    a1,
                    f4,
                    i4,
                    u1,
                    route_lane[route_start[a] : route_start[a] + route_size[a]],
                    lanes.segment,
                    lanes.lane_first,
                    lanes.exit_offset,
                    lanes.exit_lane,
                    lanes.speed_limit,
                    f32_2(slot, S_SIGNAL),
                    u8_1(slot, S_SIGNAL_KIND),
                    lights[world[STEP, w] & 1, light_start[w] : light_start[w + 1]],
                    i32_1(slot, S_SIGNAL_OFFSET),
                    i32_1(slot, S_SIGNAL_LANE),
                    f32_1(slot, S_PARAMETERS),
                    path,
                    path_lane,
                )


@kernel
def plan_pdm(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Commands of the PDM agents, likewise."""
    order, world, world_agents = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), i32_1(batch, B_WORLD_AGENTS)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    route_lane, route_start = i32_1(batch, B_ROUTE_LANE), i64_1(batch, B_ROUTE_START)
    route_size = i32_1(batch, B_ROUTE_SIZE)
    lights, light_start = u8_2(batch, B_LIGHTS), i64_1(batch, B_LIGHT_START)
    path, path_lane = f32_2(scratch, T_PATH), i32_1(scratch, T_PATH_LANE)
    block, ways, scores = f32_2(scratch, T_PLAN_BLOCK), f32_2(scratch, T_PLAN_WAYS), f32_2(scratch, T_PLAN_SCORES)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w]:
            continue
        slot = slots[world[SLOT, w]]
        a0, a1 = world_agents[w], world_agents[w + 1]
        for a in range(a0, a1):
            if u1[CONTROLLER, a] == PDM and u1[BODY, a]:
                f4[COMMAND_ACCEL, a], f4[COMMAND_STEER, a], _ = plan(
                    a,
                    a0,
                    a1,
                    f4,
                    i4,
                    u1,
                    edge_map(slot),
                    lane_map(slot),
                    f64_1(slot, S_NUMBERS)[USE_AREA] != 0.0,
                    route_lane[route_start[a] : route_start[a] + route_size[a]],
                    f32_2(slot, S_SIGNAL),
                    u8_1(slot, S_SIGNAL_KIND),
                    lights[world[STEP, w] & 1, light_start[w] : light_start[w + 1]],
                    i32_1(slot, S_SIGNAL_OFFSET),
                    i32_1(slot, S_SIGNAL_LANE),
                    f32_1(slot, S_PARAMETERS),
                    path,
                    path_lane,
                    block,
                    ways,
                    scores,
                )


@kernel
def slide_all(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Move the agents on rails (`compat.idm`) of the worlds order[first:end], which `advance` has left where they were.
    Arguments as in `advance.advance`."""
    order, world, world_agents = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), i32_1(batch, B_WORLD_AGENTS)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    route_lane, route_start = i32_1(batch, B_ROUTE_LANE), i64_1(batch, B_ROUTE_START)
    route_size = i32_1(batch, B_ROUTE_SIZE)
    path, path_lane = f32_2(scratch, T_PATH), i32_1(scratch, T_PATH_LANE)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w]:
            continue
        slot = slots[world[SLOT, w]]
        lanes, parameters = lane_map(slot), f32_1(slot, S_PARAMETERS)
        for a in range(world_agents[w], world_agents[w + 1]):
            if u1[MODEL, a] == RAILS and u1[BODY, a] and u1[BEFORE_BODY, a] and u1[STATUS, a] == ACTIVE:
                slide(
                    a,
                    f4,
                    i4,
                    route_lane[route_start[a] : route_start[a] + route_size[a]],
                    lanes.segment,
                    lanes.lane_first,
                    lanes.exit_offset,
                    lanes.exit_lane,
                    parameters,
                    path,
                    path_lane,
                )

"""Second half of a step: all have moved, and everything that happened is found at the same time (section 7 of the
specification). Bits are independent; none hides another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Controller, Event
from skidpad.simulation.coefficients import C_GOAL_RADIUS, C_GOAL_SPEED
from skidpad.simulation.kernels.ahead import fetch_agents, fetch_fields, fetch_goal, fetch_map
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.contact import (
    Bodies,
    Contacts,
    agent_contacts,
    start_contacts,
)
from skidpad.simulation.kernels.goals import RouteTable, reach_goals
from skidpad.simulation.kernels.lanes import LaneState, assign_lanes, overspeed, wrong_way
from skidpad.simulation.kernels.offroad import area_contacts, edge_contacts
from skidpad.simulation.kernels.signals import pass_signals, yield_map
from skidpad.simulation.kernels.slots import (
    edge_map,
    f32_1,
    f32_2,
    f32_3,
    f64_1,
    i32_1,
    i32_2,
    i64_1,
    i64_2,
    lane_map,
    u8_1,
    u8_2,
    u32_1,
)
from skidpad.simulation.kernels.tally import add_step, begin_tally
from skidpad.simulation.kernels.trig import arctan2
from skidpad.simulation.kernels.ttc import closest_times
from skidpad.simulation.slots import (
    B_COEF,
    B_EVENTS,
    B_F4,
    B_GOAL_COUNT,
    B_GOALS,
    B_I4,
    B_LIGHT_START,
    B_LIGHTS,
    B_ORDER,
    B_PAIR,
    B_PAIR_START,
    B_ROUTE_LANE,
    B_ROUTE_SIZE,
    B_ROUTE_START,
    B_TALLY,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    DT_US,
    ROW_US,
    S_LAST_ROW,
    S_LOG,
    S_NUMBERS,
    S_PARAMETERS,
    S_RULED_OFFSET,
    S_RULED_SIGNAL,
    S_SIGNAL,
    S_SIGNAL_KIND,
    T_CONTACTS,
    T_PLACES,
    T_POSE,
    USE_AREA,
)
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    AGE,
    BEFORE_ACCEL,
    BEFORE_BODY,
    BEFORE_COS,
    BEFORE_LANE,
    BEFORE_SIN,
    BEFORE_X,
    BEFORE_Y,
    BEFORE_Z,
    BLIND_STEPS,
    BODY,
    BRAKED,
    CONTACT_PARTNER,
    CONTACT_TIME,
    CONTROLLER,
    COS,
    DONE,
    GATE_ALL,
    GHOST,
    GOALS_PAID,
    HEIGHT,
    KEY,
    LANE,
    LANE_ARC,
    LANE_COS,
    LANE_HALF_WIDTH,
    LANE_HEADING_ERROR,
    LANE_HEIGHT,
    LANE_LIMIT,
    LANE_OFFSET,
    LANE_SEGMENT,
    LANE_SIN,
    LENGTH,
    LEVEL_GATE,
    P_DT,
    PREVIOUS_LANE,
    SIN,
    SLOT,
    SOLID,
    SPEED,
    START_ROW,
    STEP,
    STOPPED_S,
    SUBTYPE,
    TOUCHING,
    TYPE,
    WATCHED,
    WIDTH,
    X,
    Y,
    Z,
)
from skidpad.simulation.tally import TTC

F = np.float32
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]

ZERO = F(0.0)
POLICY, IDM, PDM = int(Controller.POLICY), int(Controller.IDM), int(Controller.PDM)
WRONG_WAY, OVERSPEED, COMFORT = np.uint32(Event.WRONG_WAY), np.uint32(Event.OVERSPEED), np.uint32(Event.COMFORT)
PHANTOM_BRAKING, BLIND, NOTHING = np.uint32(Event.PHANTOM_BRAKING), np.uint32(Event.BLIND), np.uint32(0)
COMFORT_ACCEL, COMFORT_JERK = F(3.0), F(5.0)  # m/s^2, m/s^3; S80
STANDING = F(0.2)  # m/s
NO_LOG = np.int32(np.iinfo(np.int32).max)  # last row of spawned agents


@kernel
def bind_lanes(f4: F32, i4: I32) -> LaneState:
    """Where the agents of all worlds are on the lanes."""
    return LaneState(
        i4[LANE],
        i4[PREVIOUS_LANE],
        f4[LANE_ARC],
        f4[LANE_OFFSET],
        f4[LANE_COS],
        f4[LANE_SIN],
        f4[LANE_HALF_WIDTH],
        f4[LANE_LIMIT],
        f4[LANE_HEIGHT],
        i4[LANE_SEGMENT],
    )


@kernel
def bind_bodies(f4: F32, i4: I32, u1: U8, after: U8) -> Bodies:
    """The boxes of all agents; `after` (A,) u8 says who has one after the step."""
    return Bodies(
        f4[BEFORE_X],
        f4[BEFORE_Y],
        f4[BEFORE_Z],
        f4[BEFORE_COS],
        f4[BEFORE_SIN],
        f4[X],
        f4[Y],
        f4[Z],
        f4[COS],
        f4[SIN],
        f4[LENGTH],
        f4[WIDTH],
        f4[HEIGHT],
        u1[BEFORE_BODY],
        after,
        u1[TYPE],
        u1[SUBTYPE],
        f4[SPEED],
        i4[KEY],
    )


@kernel
def detect(start_only: bool, batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Bring lanes, events, goals and clocks of the worlds order[first:end] up to their present poses.

    start_only   state 0 was just set: find lanes and boxes that overlap already; nothing has happened yet
    others       as in `advance.advance`
    """
    order, world = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD)
    world_agents = i32_1(batch, B_WORLD_AGENTS)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    coef = f32_2(batch, B_COEF)
    events, pair, pair_start = u32_1(batch, B_EVENTS), u8_1(batch, B_PAIR), i64_1(batch, B_PAIR_START)
    goals, goal_count = f32_3(batch, B_GOALS), i32_1(batch, B_GOAL_COUNT)
    route_lane, route_start = i32_1(batch, B_ROUTE_LANE), i64_1(batch, B_ROUTE_START)
    route_size = i32_1(batch, B_ROUTE_SIZE)
    routes = RouteTable(route_lane, route_start, route_size)
    lights, light_start = u8_2(batch, B_LIGHTS), i64_1(batch, B_LIGHT_START)
    contact_scratch, places, pose = f32_2(scratch, T_CONTACTS), i32_1(scratch, T_PLACES), f32_1(scratch, T_POSE)
    tally = f32_2(batch, B_TALLY)
    lanes, bodies = bind_lanes(f4, i4), bind_bodies(f4, i4, u1, u1[SOLID])
    on_road = bind_bodies(f4, i4, u1, u1[BODY])  # A ghost meets nobody, but edges it does.
    contacts = Contacts(events, i4[CONTACT_PARTNER], f4[CONTACT_TIME], u1[TOUCHING])
    for n in range(first, end):
        w = order[n]
        if world[DONE, w]:
            continue
        slot = slots[world[SLOT, w]]
        numbers, parameters = f64_1(slot, S_NUMBERS), f32_1(slot, S_PARAMETERS)
        use_area = numbers[USE_AREA] != 0.0
        gate, dt = np.float64(parameters[LEVEL_GATE]), parameters[P_DT]
        lane_lists, edge_lists = lane_map(slot), edge_map(slot)
        signal, signal_kind = f32_2(slot, S_SIGNAL), u8_1(slot, S_SIGNAL_KIND)
        ruled_offset, ruled_signal, yields = i32_1(slot, S_RULED_OFFSET), i32_1(slot, S_RULED_SIGNAL), yield_map(slot)
        a0, a1 = world_agents[w], world_agents[w + 1]
        pairs = pair[pair_start[w] : pair_start[w + 1]]
        for a in range(a0, a1):
            fetch_map(a, f4, i4, lane_lists, edge_lists)
            fetch_goal(a, i4, goals, goal_count)
        if n + 1 < end:
            after = order[n + 1]
            b0, b1 = world_agents[after], world_agents[after + 1]
            fetch_agents(b0, b1, f4, i4, u1)
            fetch_fields(b0, b1, tally, 0, tally.shape[0])
            fetch_fields(b0, b1, coef, C_GOAL_RADIUS, C_GOAL_SPEED + 1)
        for a in range(a0, a1):
            events[a] = NOTHING
            i4[GOALS_PAID, a] = 0
            i4[BEFORE_LANE, a] = i4[LANE, a]
            u1[SOLID, a] = u1[BODY, a] != 0 and u1[GHOST, a] == 0
        assign_lanes(
            lane_lists,
            f4[X],
            f4[Y],
            f4[Z],
            f4[COS],
            f4[SIN],
            f4[WIDTH],
            u1[TYPE],
            u1[BODY],
            a0,
            a1,
            gate,
            route_lane,
            route_start,
            route_size,
            lanes,
            events,
        )
        for a in range(a0, a1):
            # Driven bodies follow the road up and down (S9); the log has heights of its own.
            driver = u1[CONTROLLER, a]
            if np.isfinite(gate) and (driver == POLICY or driver == IDM or driver == PDM):
                f4[Z, a] = f4[LANE_HEIGHT, a]
        for a in range(np.uintp(a0), np.uintp(a1)):
            f4[LANE_HEADING_ERROR, a] = arctan2(f4[LANE_SIN, a], f4[LANE_COS, a])
        if start_only:
            start_contacts(bodies, a0, a1, gate, pairs)
            begin_tally(a0, a1, tally)
            for a in range(a0, a1):
                events[a] = NOTHING
            continue
        most, side, columns, rows = agent_contacts(
            bodies, lanes, a0, a1, gate, pairs, contact_scratch, places, contacts
        )
        closest_times(
            bodies,
            a0,
            a1,
            gate,
            most,
            side,
            columns,
            rows,
            u1[TOUCHING],
            contact_scratch,
            places,
            tally[TTC],
        )
        if use_area:
            area_contacts(lane_lists, on_road, a0, a1, gate, u1[WATCHED], events)
        else:
            edge_contacts(edge_lists, on_road, a0, a1, gate, u1[WATCHED], events)
        # The lights as everybody saw them when the step began.
        states = lights[(world[STEP, w] - 1) & 1, light_start[w] : light_start[w + 1]]
        for a in range(a0, a1):
            if u1[BODY, a] == 0:
                f4[STOPPED_S, a] = ZERO
                continue
            bits = NOTHING
            speed = f4[SPEED, a]
            if wrong_way(speed, f4[LANE_COS, a], i4[LANE, a]):
                bits |= WRONG_WAY
            if overspeed(speed, f4[LANE_LIMIT, a], i4[LANE, a]):
                bits |= OVERSPEED
            if i4[AGE, a] > 0:
                along, aside = f4[ACCEL_LONG, a], f4[ACCEL_LAT, a]
                harsh = abs(along) > COMFORT_ACCEL or abs(aside) > COMFORT_ACCEL
                if harsh or (i4[AGE, a] > 1 and abs(along - f4[BEFORE_ACCEL, a]) > COMFORT_JERK * dt):
                    bits |= COMFORT
                if u1[WATCHED, a]:
                    bits |= pass_signals(
                        a,
                        a0,
                        a1,
                        f4,
                        i4,
                        u1,
                        i4[BEFORE_LANE, a],
                        signal,
                        signal_kind,
                        states,
                        ruled_offset,
                        ruled_signal,
                        yields,
                        routes,
                        parameters,
                    )
                bits |= reach_goals(
                    a,
                    f4,
                    i4,
                    goals,
                    goal_count,
                    coef[C_GOAL_RADIUS, a],
                    coef[C_GOAL_SPEED, a],
                    parameters[GATE_ALL] > ZERO,
                    parameters[LEVEL_GATE],
                )
            if u1[BRAKED, a]:
                bits |= PHANTOM_BRAKING
            if i4[BLIND_STEPS, a] > 0:
                bits |= BLIND
            f4[STOPPED_S, a] = f4[STOPPED_S, a] + dt if abs(speed) < STANDING else ZERO
            events[a] |= bits
        # Where the log is now.
        tick = world[STEP, w] * np.int64(numbers[DT_US])
        row_us = np.int64(numbers[ROW_US])
        row = world[START_ROW, w] + tick // row_us
        if a1 > a0 and i32_1(slot, S_LAST_ROW)[0] == NO_LOG:
            row = np.int64(-1)
        share = F(tick % row_us) / F(row_us)
        add_step(a0, a1, f4, i4, u1, f32_3(slot, S_LOG), row, share, F(numbers[ROW_US] * 1e-6), dt, pose, tally)

"""What follows from a step's events, once all of them are found: stopping, removing, retiring, new goals, and whether
the episode is over (S61 to S64).

Everybody's events are known before anybody's outcome is applied, so who comes first in a world decides nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import COLLISION as COLLISION_BITS
from skidpad.scenes.events import Controller, Ending, Event, Reason, Status
from skidpad.scenes.index import LaneMap
from skidpad.simulation.kernels.advance import remove
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.goals import NO_GOAL, SET_DONE, GoalTable, RouteTable, renew_goals
from skidpad.simulation.kernels.trig import sincos
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    ACTIVE_AGENTS,
    ACTIVE_STEPS,
    AGE,
    BEFORE_ACCEL,
    COLLISION_BEHAVIOUR,
    CONTROLLER,
    COS,
    EGO,
    END_ON_GOAL,
    ENDING,
    EPISODE,
    GHOST,
    GOAL_BEHAVIOUR,
    GOAL_NEXT,
    GOAL_SLOT,
    GOALS_RESPAWN,
    GOALS_RETIRE,
    GOALS_STOP,
    GONE_AGENTS,
    HEADING,
    IGNORE,
    INACTIVE_THRESHOLD,
    LANE,
    LANE_ARC,
    LANE_COS,
    LANE_HALF_WIDTH,
    LANE_HEADING_ERROR,
    LANE_HEIGHT,
    LANE_LIMIT,
    LANE_OFFSET,
    LANE_SIN,
    OFFROAD_BEHAVIOUR,
    PREVIOUS_LANE,
    REASON,
    RED_LIGHT_BEHAVIOUR,
    REMOVE,
    SIN,
    SPEED,
    START_HEADING,
    START_SPEED,
    START_X,
    START_Y,
    START_Z,
    STATUS,
    STEERING,
    STEP,
    STOP_SIGN_BEHAVIOUR,
    YAW_RATE,
    X,
    Y,
    Z,
)

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
ZERO, ONE = np.float32(0.0), np.float32(1.0)

ACTIVE, STOPPED, REMOVED, RETIRED = (
    np.uint8(Status.ACTIVE),
    np.uint8(Status.STOPPED),
    np.uint8(Status.REMOVED),
    np.uint8(Status.RETIRED),
)
POLICY, IDM, PDM = int(Controller.POLICY), int(Controller.IDM), int(Controller.PDM)
COLLISION, OFFROAD = np.uint32(COLLISION_BITS), np.uint32(Event.OFFROAD | Event.OFF_MAP)
RED_LIGHT, STOP_SIGN, GOAL = np.uint32(Event.RED_LIGHT), np.uint32(Event.STOP_SIGN), np.uint32(Event.GOAL)
NOTHING = np.uint32(0)
BY_COLLISION, BY_OFFROAD, BY_RED_LIGHT, BY_STOP_SIGN, AT_GOAL, WITHOUT_GOAL, LOG_END = (
    np.int32(Reason.COLLISION),
    np.int32(Reason.OFFROAD),
    np.int32(Reason.RED_LIGHT),
    np.int32(Reason.STOP_SIGN),
    np.int32(Reason.GOAL),
    np.int32(Reason.NO_GOAL),
    np.int32(Reason.LOG_END),
)
INACTIVE_ENDING, GOAL_ENDING, NO_ENDING = int(Ending.INACTIVE), int(Ending.GOAL), int(Ending.NONE)


@kernel
def verdict(events: np.uint32, parameters: F32) -> tuple[int, np.int32]:
    """The strongest behaviour that an agent's events call for, and the first reason with it (S63)."""
    strongest, reason = IGNORE, np.int32(0)
    if events & COLLISION and parameters[COLLISION_BEHAVIOUR] > strongest:
        strongest, reason = int(parameters[COLLISION_BEHAVIOUR]), BY_COLLISION
    if events & OFFROAD and parameters[OFFROAD_BEHAVIOUR] > strongest:
        strongest, reason = int(parameters[OFFROAD_BEHAVIOUR]), BY_OFFROAD
    if events & RED_LIGHT and parameters[RED_LIGHT_BEHAVIOUR] > strongest:
        strongest, reason = int(parameters[RED_LIGHT_BEHAVIOUR]), BY_RED_LIGHT
    if events & STOP_SIGN and parameters[STOP_SIGN_BEHAVIOUR] > strongest:
        strongest, reason = int(parameters[STOP_SIGN_BEHAVIOUR]), BY_STOP_SIGN
    return strongest, reason


@kernel
def hold(a: int, reason: np.int32, f4: F32, i4: I32, u1: U8) -> None:
    """Stop agent a where it is, for the rest of the episode; its body stays."""
    for field in (SPEED, STEERING, ACCEL_LONG, ACCEL_LAT, YAW_RATE):
        f4[field, a] = ZERO
    u1[STATUS, a], i4[REASON, a] = STOPPED, reason


@kernel
def put_back(a: int, f4: F32, i4: I32, u1: U8) -> None:
    """Peer v2: agent a goes back to its start as a ghost, which nobody meets or sees, with its goals before it (S58).
    Its lane is found in the next step."""
    f4[X, a], f4[Y, a], f4[Z, a] = f4[START_X, a], f4[START_Y, a], f4[START_Z, a]
    f4[HEADING, a], f4[SPEED, a] = f4[START_HEADING, a], f4[START_SPEED, a]
    f4[SIN, a], f4[COS, a] = sincos(f4[HEADING, a])
    for field in (STEERING, ACCEL_LONG, ACCEL_LAT, YAW_RATE, BEFORE_ACCEL):
        f4[field, a] = ZERO
    for field in (LANE_OFFSET, LANE_HEADING_ERROR, LANE_SIN, LANE_ARC, LANE_HALF_WIDTH):
        f4[field, a] = ZERO
    f4[LANE_COS, a], f4[LANE_LIMIT, a], f4[LANE_HEIGHT, a] = ONE, np.float32(np.nan), f4[Z, a]
    i4[LANE, a], i4[PREVIOUS_LANE, a] = -1, -1
    i4[AGE, a], i4[GOAL_NEXT, a] = 0, 0
    u1[GHOST, a] = 1


@kernel
def apply_events(
    w: int,
    a0: int,
    a1: int,
    seed: int,
    world: I64,
    f4: F32,
    i4: I32,
    u1: U8,
    events: U32,
    goals: GoalTable,
    routes: RouteTable,
    parameters: F32,
    lanes: LaneMap,
    spare: I32,
    before: I32,
    queue: I32,
) -> None:
    """Apply the events of the step that led to the present state to the agents [a0, a1) of world w, then count who is
    left. Only those who drive (policy, idm, pdm) are stopped, removed or retired; the log is not to be stopped.

    world  (WORLD_ROWS, W) i64    ENDING, ACTIVE_AGENTS and GONE_AGENTS are written
    spare, before, queue          scratch of `goals.renew_goals`
    """
    step, episode = world[STEP, w], world[EPISODE, w]
    active, gone = 0, 0
    world[ENDING, w] = NO_ENDING
    for a in range(a0, a1):
        controller = u1[CONTROLLER, a]
        driven = controller == POLICY or controller == IDM or controller == PDM
        # A body that left in this step took the step; it is not active after it.
        if u1[STATUS, a] == RETIRED and i4[REASON, a] == 0:
            i4[REASON, a] = LOG_END
        if u1[STATUS, a] == ACTIVE:
            i4[ACTIVE_STEPS, a] += 1
            if driven:
                behaviour, reason = verdict(events[a], parameters)
                if behaviour == REMOVE:
                    remove(a, REMOVED, f4, u1)
                    i4[REASON, a] = reason
                elif behaviour != IGNORE:
                    hold(a, reason, f4, i4, u1)
        if u1[STATUS, a] == ACTIVE and i4[GOAL_SLOT, a] >= 0 and events[a] & GOAL != NOTHING:
            found = renew_goals(a, seed, episode, step, f4, i4, goals, routes, parameters, lanes, spare, before, queue)
            if found == NO_GOAL and driven:
                remove(a, RETIRED, f4, u1)
                i4[REASON, a] = WITHOUT_GOAL
            elif found == SET_DONE and driven and parameters[GOAL_BEHAVIOUR] == GOALS_STOP:
                hold(a, AT_GOAL, f4, i4, u1)
            elif found == SET_DONE and driven and parameters[GOAL_BEHAVIOUR] == GOALS_RETIRE:
                remove(a, RETIRED, f4, u1)
                i4[REASON, a] = AT_GOAL
            elif found == SET_DONE and driven and parameters[GOAL_BEHAVIOUR] == GOALS_RESPAWN:
                put_back(a, f4, i4, u1)
            if found == SET_DONE and parameters[END_ON_GOAL] > ZERO and a - a0 == world[EGO, w]:
                world[ENDING, w] = GOAL_ENDING
        if driven:
            if u1[STATUS, a] == ACTIVE:
                active += 1
            elif u1[STATUS, a] == STOPPED or u1[STATUS, a] == REMOVED or i4[REASON, a] == WITHOUT_GOAL:
                gone += 1
    world[ACTIVE_AGENTS, w], world[GONE_AGENTS, w] = active, gone
    if world[ENDING, w] == NO_ENDING and np.float32(gone) > parameters[INACTIVE_THRESHOLD] * np.float32(active):
        world[ENDING, w] = INACTIVE_ENDING

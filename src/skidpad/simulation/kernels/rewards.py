"""Reward terms of one agent and step, from its state and events (S97 to S99)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import COLLISION as ANY_COLLISION
from skidpad.scenes.events import Event, Status
from skidpad.simulation.coefficients import (
    C_CENTRE_BIAS,
    C_COLLISION,
    C_COMFORT,
    C_LANE_ALIGN,
    C_LANE_CENTRE,
    C_OFFROAD,
    C_OVERSPEED,
    C_REVERSE,
    C_STOP_LINE,
    C_TIMESTEP,
    C_VELOCITY,
    C_VELOCITY_ALIGN,
)
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.goals import RouteTable
from skidpad.simulation.kernels.replay import logged_pose
from skidpad.simulation.kernels.trig import exponential
from skidpad.simulation.rewards import (
    T_ADE,
    T_COLLISION,
    T_COMFORT,
    T_GOAL,
    T_LANE_ALIGN,
    T_LANE_CENTRE,
    T_NOT_YIELDING,
    T_OFFROAD,
    T_OVERSPEED,
    T_PROGRESS,
    T_REVERSE,
    T_STOP_LINE,
    T_TIMESTEP,
    T_VELOCITY,
)
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    AGE,
    BEFORE_X,
    BEFORE_Y,
    BODY,
    COS,
    GHOST,
    GOALS_PAID,
    JERK_LONG,
    LANE,
    LANE_COS,
    LANE_HEADING_ERROR,
    LANE_OFFSET,
    LANE_SIN,
    LOG_X,
    LOG_Y,
    OFF_ROAD,
    P_DT,
    R_ADE,
    R_COMFORT_S,
    R_EACH_STEP,
    R_GOAL,
    R_GOAL_AGAIN,
    R_IMPACT,
    R_NOT_YIELDING,
    R_PROGRESS,
    SIN,
    SPEED,
    STATUS,
    TOUCHING,
    X,
    Y,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
ZERO, HALF, ONE = F(0.0), F(0.5), F(1.0)
COLLISION, OFFROAD, YIELD = np.uint32(ANY_COLLISION), np.uint32(Event.OFFROAD), np.uint32(Event.YIELD)
RED_LIGHT, STOP_SIGN = np.uint32(Event.RED_LIGHT), np.uint32(Event.STOP_SIGN)
STOP_LINE, OVERSPEED = RED_LIGHT | STOP_SIGN, np.uint32(Event.OVERSPEED)
NOTHING = np.uint32(0)
ACTIVE = int(Status.ACTIVE)
ALIGN_BONUS, INVERSE_QUARTER_TURN = F(0.0025), F(2 / np.pi)
CENTRE_BONUS = F(0.05)
CRUISING, REVERSING, STANDING = F(2.5), F(-0.01), F(0.2)  # m/s
HARSH, HARSH_JERK = F(3.0), F(5.0)  # m/s^2, m/s^3; S80


@kernel
def centring(first: int, end: int, f4: F32, coef: F32, found: F32) -> None:
    """exp(0.5 - away) of the agents [first, end), found (>= n,) f32; away [m] is how far each is from where it prefers
    to be on its lane. A loop of its own finds it for eight at a time; one by one, each waits for a long series."""
    offset, bias = f4[LANE_OFFSET], coef[C_CENTRE_BIAS]
    for k in range(np.uintp(end - first)):
        a = np.uintp(first) + k
        found[k] = exponential(HALF - abs(offset[a] - bias[a]))


@kernel
def lane_terms(
    speed: np.float32,
    cosine: np.float32,
    angle: np.float32,
    away: np.float32,
    centred: np.float32,
    velocity_align: np.float32,
) -> tuple[np.float32, np.float32, np.float32]:
    """The three terms of an agent on a lane, per second and weight: lane align, lane centre, velocity.

    cosine, angle [rad]  of the heading error
    away [m], centred    from the lane's centre, or from what the agent prefers to it; as `centring` finds it
    velocity_align       share of speed against the lane
    """
    against = min(cosine, ZERO) + velocity_align * min(speed * cosine, ZERO)
    align = against + ALIGN_BONUS * (ONE - abs(angle) * INVERSE_QUARTER_TURN)
    cost = (away if cosine > HALF else ZERO) - CENTRE_BONUS * centred
    return align, -cost, max(cosine, ZERO) if speed > CRUISING else ZERO


@kernel
def progress(a: int, f4: F32, i4: I32, route: I32) -> np.float32:
    """Metres along the lane in the step, if the lane is one of the route, (n,) i32; else 0."""
    lane = i4[LANE, a]
    for r in range(route.shape[0]):
        if route[r] == lane:
            # The lane's direction is the heading turned back by the heading error.
            cosine = f4[COS, a] * f4[LANE_COS, a] + f4[SIN, a] * f4[LANE_SIN, a]
            sine = f4[SIN, a] * f4[LANE_COS, a] - f4[COS, a] * f4[LANE_SIN, a]
            along: np.float32 = (f4[X, a] - f4[BEFORE_X, a]) * cosine + (f4[Y, a] - f4[BEFORE_Y, a]) * sine
            return along
    return ZERO


@kernel
def log_distance(
    a: int, track: Any, f4: F32, log: F32, row: int, share: np.float32, row_s: np.float32, pose: F32
) -> np.float32:
    """Metres from agent a to where its track is now, as `replay.logged_pose` takes the log; 0 where it is nowhere.
    pose (12,) f32 is scratch."""
    if not logged_pose(log, track, row, share, row_s, pose):
        return ZERO
    dx, dy = f4[X, a] - pose[LOG_X], f4[Y, a] - pose[LOG_Y]
    return F(np.sqrt(dx * dx + dy * dy))


@kernel
def reward_agent(
    agent: int,
    bits: np.uint32,
    f4: F32,
    i4: I32,
    u1: U8,
    coef: F32,
    parameters: F32,
    travelled: np.float32,
    log_error: np.float32,
    centred: np.float32,
    terms: F32,
) -> np.float32:
    """Write the reward terms of an agent for the step, and return their sum, added in pairs.

    bits        u32            events of the step
    f4, i4, u1  (fields, A)    state blocks after the step; OFF_ROAD is brought up to date
    coef        (36, A)  f32   `coefficients`
    parameters  (PARAMETERS,)  f32
    travelled   [m]            `progress`, or 0 where it has no weight; log_error [m]: `log_distance`, likewise
    centred     of `centring`
    terms       (14,)    f32   written
    """
    a = np.uintp(agent)
    dt, speed = parameters[P_DT], f4[SPEED, a]
    each_step = parameters[R_EACH_STEP] > ZERO
    collision = off = stop = goal = align = centre = velocity = comfort = over = reverse = waiting = ZERO
    if bits & COLLISION != NOTHING or (each_step and u1[TOUCHING, a] != 0):
        collision = -(coef[C_COLLISION, a] + parameters[R_IMPACT] * abs(speed))
    off_road = bits & OFFROAD != NOTHING
    if off_road and (each_step or u1[OFF_ROAD, a] == 0):
        off = -coef[C_OFFROAD, a]
    u1[OFF_ROAD, a] = np.uint8(off_road)
    if bits & STOP_LINE != NOTHING:
        passed = F(bits & RED_LIGHT != NOTHING) + F(bits & STOP_SIGN != NOTHING)
        stop = -coef[C_STOP_LINE, a] * passed
    if i4[GOALS_PAID, a] > 0:
        goal = F(i4[GOALS_PAID, a]) * parameters[R_GOAL_AGAIN if u1[GHOST, a] else R_GOAL]
    if i4[LANE, a] >= 0:
        away = abs(f4[LANE_OFFSET, a] - coef[C_CENTRE_BIAS, a])
        angle = f4[LANE_HEADING_ERROR, a]
        align, centre, velocity = lane_terms(speed, f4[LANE_COS, a], angle, away, centred, coef[C_VELOCITY_ALIGN, a])
        align *= coef[C_LANE_ALIGN, a] * dt
        centre *= coef[C_LANE_CENTRE, a] * dt
        velocity *= coef[C_VELOCITY, a] * dt
    if i4[AGE, a] > 0:
        harsh = F(abs(f4[ACCEL_LONG, a]) > HARSH) + F(abs(f4[ACCEL_LAT, a]) > HARSH)
        comfort = -coef[C_COMFORT, a] * parameters[R_COMFORT_S] * (harsh + F(abs(f4[JERK_LONG, a]) > HARSH_JERK))
    if bits & OVERSPEED != NOTHING:
        over = -coef[C_OVERSPEED, a] * parameters[R_COMFORT_S]
    if speed < REVERSING:
        reverse = -coef[C_REVERSE, a] * dt
    if abs(speed) >= STANDING:
        waiting = -coef[C_TIMESTEP, a] * dt
    careless = -parameters[R_NOT_YIELDING] if bits & YIELD != NOTHING else ZERO
    along = parameters[R_PROGRESS] * travelled
    astray = parameters[R_ADE] * dt * log_error
    terms[T_COLLISION], terms[T_OFFROAD], terms[T_STOP_LINE], terms[T_GOAL] = collision, off, stop, goal
    terms[T_LANE_ALIGN], terms[T_LANE_CENTRE], terms[T_VELOCITY], terms[T_COMFORT] = align, centre, velocity, comfort
    terms[T_OVERSPEED], terms[T_REVERSE], terms[T_TIMESTEP], terms[T_NOT_YIELDING] = over, reverse, waiting, careless
    terms[T_PROGRESS], terms[T_ADE] = along, astray
    happened = (collision + off) + (stop + goal)
    lane = (align + centre) + (velocity + comfort)
    reward: np.float32 = happened + lane + ((over + reverse) + (waiting + careless)) + (along + astray)
    return reward


@kernel
def reward_rows(
    first: int,
    end: int,
    row_flat: I32,
    a0: int,
    a1: int,
    events: U32,
    f4: F32,
    i4: I32,
    u1: U8,
    coef: F32,
    parameters: F32,
    routes: RouteTable,
    log: F32,
    log_row: int,
    share: np.float32,
    row_s: np.float32,
    pose: F32,
    centred: F32,
    reward: F32,
    terms: F32,
) -> None:
    """Rewards and terms of the policy rows [first, end), which are those of one world, for the step just taken.

    row_flat         (N,)    i32   agent of each row; the world has the agents [a0, a1), and agent a is track a - a0
    events           (A,)    u32
    log, log_row, share, row_s     the log, and where in it the world is, as `replay.logged_pose` takes them
    pose, centred    (12,), (>= a1 - a0,)  f32   scratch
    reward, terms    (N,), (N, 14)  f32   written: 0 for whoever was not active
    """
    centring(a0, a1, f4, coef, centred)
    for r in range(first, end):
        a = row_flat[r]
        if u1[BODY, a] == 0 or u1[STATUS, a] != ACTIVE:
            reward[r] = ZERO
            for k in range(terms.shape[1]):
                terms[r, k] = ZERO
            continue
        t = np.int64(a - a0)
        travelled = log_error = ZERO
        if parameters[R_PROGRESS] != ZERO:
            start = routes.start[a]
            travelled = progress(a, f4, i4, routes.lane[start : start + routes.size[a]])
        if parameters[R_ADE] != ZERO:
            log_error = log_distance(a, t, f4, log, log_row, share, row_s, pose)
        reward[r] = reward_agent(a, events[a], f4, i4, u1, coef, parameters, travelled, log_error, centred[t], terms[r])

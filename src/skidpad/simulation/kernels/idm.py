"""The intelligent driver along its lane, driving through the dynamics (S102).

Acceleration is that of Treiber, Hennecke and Helbing (2000), "Congested traffic states in empirical observations and
microscopic simulations", equation 2 with 4 as exponent; steering is pure pursuit of the lane's centre line. The
published model knows no bends: the desired speed is capped where the lane ahead turns, so that the vehicle can follow
it. All formulas are in metres and seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import STEER_LIMIT, WHEELBASE_SHARE, turned_direction
from skidpad.simulation.kernels.trig import arctan2, wrap
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    AGE,
    BODY,
    COMMAND_ACCEL,
    COS,
    DWELL_S,
    GHOST,
    HEADING,
    IDM_ACCELERATION,
    IDM_DECELERATION,
    IDM_DESIRED_SPEED,
    IDM_HEADWAY,
    IDM_MIN_GAP,
    JERK_LAT,
    JERK_LONG,
    LANE,
    LANE_ARC,
    LANE_OFFSET,
    LENGTH,
    LEVEL_GATE,
    P_DT,
    SIGNAL_NX,
    SIGNAL_NY,
    SIGNAL_REACH,
    SIGNAL_X,
    SIGNAL_Y,
    SIGNAL_Z,
    SIN,
    SPEED,
    STEERING,
    STOP_SIGNAL,
    WIDTH,
    YAW_RATE,
    X,
    Y,
    Z,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

ZERO, HALF, ONE, TWO = F(0.0), F(0.5), F(1.0), F(2.0)
PATH_STEP = F(1.0)  # m between path points
PATH_POINTS = 400  # planning at 40 m/s for 8 s; following looks 40 m ahead of its bumper
PATH_X, PATH_Y, PATH_COS, PATH_SIN = range(4)
NO_LANE_BRAKE = F(-3.0)  # m/s^2
ACCEL_LIMIT = F(4.0)  # m/s^2: the action box, the same vehicle as a policy drives
INFLATION = F(0.05)  # m, added to the swept width
FORESIGHT = F(1.5)  # s, how far others are extended along their heading
LIGHT, STOP = 1, 2  # signal kinds, as in the scene
RED, YELLOW = 1, 2  # signal states, as in the scene
STOP_SECONDS = F(1.0)
BEND_ACCEL = F(2.5)  # m/s^2, lateral: below the 3 m/s^2 that count as discomfort (S80)
BEND_WINDOW = 8  # path points over which a bend is measured: polylines turn at their vertices only
CRAWL = F(2.0)  # m/s, no bend asks for less
NEAREST_GAP = F(0.1)  # m
REFINEMENTS = 8  # halvings of a path step: 4 mm
SEG_X0, SEG_Y0, SEG_X1, SEG_Y1 = range(4)
SEG_ARC0, SEG_ARC1 = 6, 7  # columns of `scenes.index.LaneMap.segment`
FAR = F(1e9)
RAILS_ASIDE, RAILS_TURN = F(0.5), F(0.5)  # m/s, rad/s


@kernel
def next_lane(lane: Any, route: I32, segment: F32, lane_first: I32, exit_offset: I32, exit_lane: I32) -> Any:
    """The exit that the route takes, else the straightest one (ties by order), else -1 at a dead end."""
    lane = np.int64(lane)  # One width of integer, one compiled version.
    place = -1
    for r in range(route.shape[0]):
        if route[r] == lane:
            place = r
            break
    best, best_place = np.int64(-1), route.shape[0]
    straight, best_dot = np.int64(-1), -TWO
    a = segment[lane_first[lane + 1] - 1]
    ax, ay = a[SEG_X1] - a[SEG_X0], a[SEG_Y1] - a[SEG_Y0]
    a_length = np.sqrt(ax * ax + ay * ay)
    for e in range(exit_offset[lane], exit_offset[lane + 1]):
        candidate = np.int64(exit_lane[e])
        for r in range(place + 1, best_place):
            if route[r] == candidate:
                best, best_place = candidate, r
                break
        b = segment[lane_first[candidate]]
        bx, by = b[SEG_X1] - b[SEG_X0], b[SEG_Y1] - b[SEG_Y0]
        dot = (ax * bx + ay * by) / (a_length * np.sqrt(bx * bx + by * by))
        if dot > best_dot:
            straight, best_dot = candidate, dot
    return best if best >= 0 else straight


@kernel
def sample_path(
    lane: Any,
    arc: np.float32,
    reach: np.float32,
    route: I32,
    segment: F32,
    lane_first: I32,
    exit_offset: I32,
    exit_lane: I32,
    path: F32,
    path_lane: I32,
) -> int:
    """Points every metre along the lane and its continuation, from `arc` to `reach` metres ahead; returns how many.

    path       (PATH_POINTS, 4)  f32 [m]  written: x, y, and cos, sin of the direction
    path_lane  (PATH_POINTS,)    i32      written: lane of each point
    """
    s = max(arc, ZERO)
    lane = np.int64(lane)
    at, end = np.int64(lane_first[lane]), np.int64(lane_first[lane + 1])
    count = 0
    while count < path.shape[0] and F(count) * PATH_STEP <= reach:
        while s > segment[at, SEG_ARC1]:
            if at + 1 < end:
                at += 1
                continue
            following = next_lane(lane, route, segment, lane_first, exit_offset, exit_lane)
            if following < 0:
                return count
            s -= segment[at, SEG_ARC1]
            lane = following
            at, end = np.int64(lane_first[lane]), np.int64(lane_first[lane + 1])
        a = segment[at]
        dx, dy = a[SEG_X1] - a[SEG_X0], a[SEG_Y1] - a[SEG_Y0]
        length = np.sqrt(dx * dx + dy * dy)
        share = (s - a[SEG_ARC0]) / (a[SEG_ARC1] - a[SEG_ARC0])
        path[count, PATH_X] = a[SEG_X0] + share * dx
        path[count, PATH_Y] = a[SEG_Y0] + share * dy
        path[count, PATH_COS] = dx / length
        path[count, PATH_SIN] = dy / length
        path_lane[count] = lane
        count += 1
        s += PATH_STEP
    return count


@kernel
def beside_path(path: F32, s: np.float32, count: int, offset: np.float32) -> tuple[F, F, F, F]:
    """x, y [m] and cos, sin, s metres along a path and `offset` metres to its left; straight on beyond its end."""
    p = min(max(int(s / PATH_STEP), 0), count - 1)
    rest = s - F(p) * PATH_STEP
    c, n = path[p, PATH_COS], path[p, PATH_SIN]
    return path[p, PATH_X] + rest * c - offset * n, path[p, PATH_Y] + rest * n + offset * c, c, n


@kernel
def _clearance(px: np.float32, py: np.float32, f4: F32, j: int, extension: np.float32) -> np.float32:
    """Distance [m] from a point to the box of agent j, extended forwards; 0 inside."""
    dx, dy = px - f4[X, j], py - f4[Y, j]
    lx = dx * f4[COS, j] + dy * f4[SIN, j] - HALF * extension
    ly = dy * f4[COS, j] - dx * f4[SIN, j]
    ox = max(abs(lx) - HALF * (f4[LENGTH, j] + extension), ZERO)
    oy = max(abs(ly) - HALF * f4[WIDTH, j], ZERO)
    return F(np.sqrt(ox * ox + oy * oy))


@kernel
def leader(
    i: int, a0: int, a1: int, f4: F32, u1: U8, level_gate: np.float32, path: F32, count: int
) -> tuple[np.float32, np.float32]:
    """(gap [m] from the front bumper, speed [m/s] along the path) of the first body that meets the path.

    A disc of the vehicle's width runs along the path. Bodies ahead are extended by 1.5 s of their speed, so that
    crossing traffic is met before it is in the way; those behind are not, or a follower would brake its leader.
    """
    radius = HALF * f4[WIDTH, i] + INFLATION
    half = HALF * f4[LENGTH, i]
    first = max(int(half - radius), 0)  # the disc's front is then at most a metre inside the own bumper
    reach = F(count) * PATH_STEP
    gap, speed = FAR, ZERO
    for j in range(a0, a1):
        if j == i or u1[BODY, j] == 0 or u1[GHOST, j] or abs(f4[Z, j] - f4[Z, i]) > level_gate:
            continue
        dx, dy = f4[X, j] - f4[X, i], f4[Y, j] - f4[Y, i]
        ahead = dx * f4[COS, i] + dy * f4[SIN, i] > ZERO
        extension = max(f4[SPEED, j], ZERO) * FORESIGHT if ahead else ZERO
        span = reach + f4[LENGTH, j] + extension
        if dx * dx + dy * dy > span * span:
            continue
        for p in range(first, count):
            if F(p) * PATH_STEP + radius - half >= gap:
                break
            if _clearance(path[p, PATH_X], path[p, PATH_Y], f4, j, extension) > radius:
                continue
            low, high = ZERO, ONE  # between point p - 1 and p
            if p > first:
                bx, by = path[p - 1, PATH_X], path[p - 1, PATH_Y]
                for _ in range(REFINEMENTS):
                    middle = HALF * (low + high)
                    mx, my = bx + middle * (path[p, PATH_X] - bx), by + middle * (path[p, PATH_Y] - by)
                    if _clearance(mx, my, f4, j, extension) > radius:
                        low = middle
                    else:
                        high = middle
            found = (F(p - 1) + high) * PATH_STEP + radius - half
            if found < gap:
                gap = found
                along = f4[COS, j] * path[p, PATH_COS] + f4[SIN, j] * path[p, PATH_SIN]
                speed = max(f4[SPEED, j] * along, ZERO)
            break
    return gap, speed


@kernel
def stop_line_gap(
    i: int,
    f4: F32,
    i4: I32,
    path: F32,
    path_lane: I32,
    count: int,
    signal: F32,
    signal_kind: U8,
    signal_state: U8,
    signal_offset: I32,
    signal_lane: I32,
    level_gate: np.float32,
) -> np.float32:
    """Gap [m] from the front bumper to the nearest stop line on the path that asks to stop: red and yellow lights, and
    stop signs where the vehicle has not stood for a second."""
    half = HALF * f4[LENGTH, i]
    nearest = FAR
    for s in range(signal.shape[0]):
        if signal_kind[s] == LIGHT:
            if signal_state[s] != RED and signal_state[s] != YELLOW:
                continue
        elif signal_kind[s] != STOP or (i4[STOP_SIGNAL, i] == s and f4[DWELL_S, i] >= STOP_SECONDS):
            continue
        if abs(signal[s, SIGNAL_Z] - f4[Z, i]) > level_gate:
            continue
        rules = False
        for c in range(signal_offset[s], signal_offset[s + 1]):
            for p in range(count):
                if path_lane[p] == signal_lane[c]:
                    rules = True
                    break
        if not rules:
            continue
        for p in range(1, count):
            ax, ay = path[p - 1, PATH_X] - signal[s, SIGNAL_X], path[p - 1, PATH_Y] - signal[s, SIGNAL_Y]
            bx, by = path[p, PATH_X] - signal[s, SIGNAL_X], path[p, PATH_Y] - signal[s, SIGNAL_Y]
            before = ax * signal[s, SIGNAL_NX] + ay * signal[s, SIGNAL_NY]
            after = bx * signal[s, SIGNAL_NX] + by * signal[s, SIGNAL_NY]
            if before < ZERO and after >= ZERO:
                share = before / (before - after)
                cx, cy = ax + share * (bx - ax), ay + share * (by - ay)
                if abs(cy * signal[s, SIGNAL_NX] - cx * signal[s, SIGNAL_NY]) <= signal[s, SIGNAL_REACH]:
                    gap = (F(p - 1) + share) * PATH_STEP - half
                    if ZERO <= gap < nearest:
                        nearest = gap
                    break
    return nearest


@kernel
def follow_acceleration(
    speed: np.float32, desired: np.float32, gap: np.float32, leader_speed: np.float32, parameters: F32
) -> np.float32:
    """IDM acceleration [m/s^2] towards `desired` behind a leader `gap` metres ahead (equation 2)."""
    a0, b = parameters[IDM_ACCELERATION], parameters[IDM_DECELERATION]
    ratio = speed / desired
    free = ONE - ratio * ratio * ratio * ratio
    closing = speed * (speed - leader_speed) / (TWO * np.sqrt(a0 * b))
    wanted = parameters[IDM_MIN_GAP] + max(ZERO, speed * parameters[IDM_HEADWAY] + closing)
    share = wanted / max(gap, NEAREST_GAP)
    accel: np.float32 = a0 * (free - share * share)
    return accel


@kernel
def pursuit_angle(
    x: np.float32,
    y: np.float32,
    cosine: np.float32,
    sine: np.float32,
    length: np.float32,
    tx: np.float32,
    ty: np.float32,
) -> np.float32:
    """Steering angle [rad] of the arc through a target (Coulter 1992, "Implementation of the pure pursuit path tracking
    algorithm"), for a pose at the centre of the wheelbase.

    The arc must be tangent to the velocity, which leans by beta from the heading: with r = wb / distance,
    sin(beta) = r sin(alpha - beta), hence tan(beta) = r sin(alpha) / (1 + r cos(alpha)), and the angle is
    atan(2 tan(beta)).
    """
    dx, dy = tx - x, ty - y
    forward, left = dx * cosine + dy * sine, dy * cosine - dx * sine
    square = forward * forward + left * left
    if square < ONE:
        return ZERO
    wheelbase = WHEELBASE_SHARE * length
    angle = arctan2(TWO * wheelbase * left, max(square + wheelbase * forward, ZERO))
    return min(max(angle, -STEER_LIMIT), STEER_LIMIT)


@kernel
def bend_speed(path: F32, count: int, desired: np.float32, deceleration: np.float32) -> np.float32:
    """Highest speed [m/s] now from which every bend ahead can still be met at 2.5 m/s^2 of lateral acceleration."""
    square = desired * desired
    for p in range(count - BEND_WINDOW):
        a, b = path[p], path[p + BEND_WINDOW]
        sine = abs(a[PATH_COS] * b[PATH_SIN] - a[PATH_SIN] * b[PATH_COS])
        if a[PATH_COS] * b[PATH_COS] + a[PATH_SIN] * b[PATH_SIN] < ZERO:
            sine = ONE
        curvature = sine / (F(BEND_WINDOW) * PATH_STEP)
        if curvature * square > BEND_ACCEL:
            allowed = BEND_ACCEL / curvature + TWO * deceleration * F(p) * PATH_STEP
            square = min(square, allowed)
    speed: np.float32 = max(np.sqrt(square), CRAWL)
    return speed


@kernel
def drive(
    i: int,
    a0: int,
    a1: int,
    f4: F32,
    i4: I32,
    u1: U8,
    route: I32,
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
) -> tuple[np.float32, np.float32]:
    """Command (acceleration [m/s^2], steering angle [rad]) of one IDM agent on the state before the step.

    i       the agent, among the agents [a0, a1) of its world        route  (n,) i32  its lanes, in driving order
    signal  (S, 8) f32  `state` columns         signal_state  (S,) u8  now
    path    (PATH_POINTS, 4) f32, path_lane  (PATH_POINTS,) i32    scratch
    """
    speed, dt = f4[SPEED, i], parameters[P_DT]
    lane = i4[LANE, i]
    rest = -speed / dt
    if lane < 0:
        return max(NO_LANE_BRAKE, rest), ZERO
    half = HALF * f4[LENGTH, i]
    look = half + min(max(F(5.0) * speed, F(20.0)), F(40.0))
    count = sample_path(
        lane, f4[LANE_ARC, i], look, route, segment, lane_first, exit_offset, exit_lane, path, path_lane
    )
    if count < 2:
        return max(NO_LANE_BRAKE, rest), ZERO
    limit = speed_limit[lane]
    desired = limit if limit > ZERO else parameters[IDM_DESIRED_SPEED]
    desired = bend_speed(path, count, desired, HALF * parameters[IDM_DECELERATION])
    gap, leader_speed = leader(i, a0, a1, f4, u1, parameters[LEVEL_GATE], path, count)
    line = stop_line_gap(
        i, f4, i4, path, path_lane, count, signal, signal_kind, signal_state, signal_offset, signal_lane,
        parameters[LEVEL_GATE],
    )  # fmt: skip
    forward_speed = max(speed, ZERO)
    accel = follow_acceleration(forward_speed, desired, gap, leader_speed, parameters)
    if line < FAR:
        accel = min(accel, follow_acceleration(forward_speed, desired, line, ZERO, parameters))
    accel = max(min(max(accel, -ACCEL_LIMIT), ACCEL_LIMIT), rest)

    ahead = min(max(F(0.6) * speed, F(3.0)), F(15.0))
    at = min(ahead / PATH_STEP, F(count - 1))
    p = min(int(at), count - 2)
    share = at - F(p)
    tx = path[p, PATH_X] + share * (path[p + 1, PATH_X] - path[p, PATH_X])
    ty = path[p, PATH_Y] + share * (path[p + 1, PATH_Y] - path[p, PATH_Y])
    steer = pursuit_angle(f4[X, i], f4[Y, i], f4[COS, i], f4[SIN, i], f4[LENGTH, i], tx, ty)
    return accel, steer


@kernel
def slide(
    i: int,
    f4: F32,
    i4: I32,
    route: I32,
    segment: F32,
    lane_first: I32,
    exit_offset: I32,
    exit_lane: I32,
    parameters: F32,
    path: F32,
    path_lane: I32,
) -> None:
    """Move agent i along its lane's centre line by what its COMMAND_ACCEL makes of its speed, as the peer's traffic
    does (`compat.idm`): it comes nearer to the line at 0.5 m/s and turns into it at 0.5 rad/s at most. Without a lane
    it goes straight on. Arguments as in `drive`.
    """
    dt = parameters[P_DT]
    speed = max(f4[SPEED, i] + f4[COMMAND_ACCEL, i] * dt, ZERO)
    travel = speed * dt
    lane = i4[LANE, i]
    count = 0
    if lane >= 0:
        count = sample_path(
            lane, f4[LANE_ARC, i], travel + PATH_STEP, route, segment, lane_first, exit_offset, exit_lane, path,
            path_lane,
        )  # fmt: skip
    turn = ZERO
    if count > 0:
        offset = f4[LANE_OFFSET, i]
        offset -= min(max(offset, -RAILS_ASIDE * dt), RAILS_ASIDE * dt)
        f4[X, i], f4[Y, i], c, s = beside_path(path, travel, count, offset)
        turn = arctan2(s * f4[COS, i] - c * f4[SIN, i], c * f4[COS, i] + s * f4[SIN, i])
        turn = min(max(turn, -RAILS_TURN * dt), RAILS_TURN * dt)
    else:
        f4[X, i] += travel * f4[COS, i]
        f4[Y, i] += travel * f4[SIN, i]
    f4[COS, i], f4[SIN, i] = turned_direction(f4[COS, i], f4[SIN, i], turn)
    f4[HEADING, i] = wrap(f4[HEADING, i] + turn)
    along, aside = (speed - f4[SPEED, i]) / dt, speed * turn / dt
    if i4[AGE, i] > 1:  # no acceleration before the first step
        f4[JERK_LONG, i], f4[JERK_LAT, i] = (along - f4[ACCEL_LONG, i]) / dt, (aside - f4[ACCEL_LAT, i]) / dt
    f4[SPEED, i], f4[STEERING, i], f4[YAW_RATE, i] = speed, ZERO, turn / dt
    f4[ACCEL_LONG, i], f4[ACCEL_LAT, i] = along, aside

"""How a body moves in one step (S37 to S43), and which command made it move so (S47).

Every model takes a pose at the centre of the box and two commands, and none knows slip or load. Positive angles turn
left. `wheelbase` is 0.6 of the length, with the centre half a wheelbase ahead of the rear axle. Directions are turned
and renormalised, so that no error of the heading builds up; the heading is read from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.trig import (
    QUARTER_PI,
    arctan2,
    hyperbolic_tangent,
    sincos,
    small_cosine,
    small_sine,
    wrap,
)

F = np.float32
F32 = NDArray[np.float32]
ZERO, HALF, ONE, THREE_HALVES, TWO, FOUR = F(0.0), F(0.5), F(1.0), F(1.5), F(2.0), F(4.0)

# Values of the state's MODEL; `actions.models` chooses. v2 and v2b: rules of older simulators, under `compat.dynamics`.
# RAILS: no dynamics, `idm.slide`.
CLASSIC, CYCLIST, PEDESTRIAN, CLASSIC_V2, CLASSIC_V2B, JERK, JERK_V2, RAILS = range(8)

WHEELBASE_SHARE = F(0.6)
STEER_RATE = F(0.6)  # rad/s
STEER_LIMIT = F(0.667)  # rad
SPEED_LIMIT = F(40.0)  # m/s, both ways
ACCEL_BOX = F(4.0)  # m/s^2, the strongest command of the classic box
CYCLIST_ACCEL, CYCLIST_SPEED = F(3.0), F(12.0)
WALKING_SPEED, WALKING_RATE = F(3.0), F(np.pi)  # m/s, rad/s
V2_SPEED_LIMIT = F(100.0)
JERK_BRAKE, JERK_ACCEL, JERK_LATERAL = F(-5.0), F(2.5), F(4.0)  # m/s^2
JERK_STEER_LIMIT = F(0.55)  # rad
JERK_REVERSE, JERK_V2_SPEED = F(-2.0), F(20.0)  # m/s
STRAIGHT = F(1e-5)  # 1/m and rad: below it an arc is a line
REST_DISTANCE = F(0.02)  # m; a log that moves less in one step stands
DAMPING = F(0.25)  # of the alternating sign of an exactly inverted trapezoid


@kernel
def turned_direction(cosine: np.float32, sine: np.float32, turn: np.float32) -> tuple[np.float32, np.float32]:
    """(cos, sin) of a direction after a turn [rad], brought back to length 1 by one Newton step."""
    if abs(turn) < QUARTER_PI:
        s, c = small_sine(turn), small_cosine(turn)
    else:
        s, c = sincos(turn)
    x, y = cosine * c - sine * s, sine * c + cosine * s
    scale = THREE_HALVES - HALF * (x * x + y * y)
    return x * scale, y * scale


@kernel
def classic(
    x: np.float32,
    y: np.float32,
    cosine: np.float32,
    sine: np.float32,
    speed: np.float32,
    steering: np.float32,
    wheelbase: np.float32,
    accel: np.float32,
    steer: np.float32,
    slowest: np.float32,
    fastest: np.float32,
    dt: np.float32,
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32]:
    """x, y, cos, sin, signed speed, steering and turn [rad] after one step of the kinematic bicycle (S37).

    accel [m/s^2], steer [rad]   the command; the wheel follows it at 0.6 rad/s
    slowest, fastest [m/s]       limits of the signed speed

    With q = tan(steering') / 2 the slip angle is beta = atan(q), so cos(beta) = 1 / sqrt(1 + q^2) and
    sin(beta) = q cos(beta): no arc tangent is taken.
    """
    slew = STEER_RATE * dt
    steering = steering + min(max(steer - steering, -slew), slew)
    steering = min(max(steering, -STEER_LIMIT), STEER_LIMIT)
    speed = min(max(speed + accel * dt, slowest), fastest)
    q = HALF * small_sine(steering) / small_cosine(steering)
    cos_beta = ONE / np.sqrt(ONE + q * q)
    sin_beta = q * cos_beta
    travel = speed * dt
    x = x + travel * (cosine * cos_beta - sine * sin_beta)
    y = y + travel * (sine * cos_beta + cosine * sin_beta)
    turn = TWO * travel / wheelbase * sin_beta  # in this order the division does not wait for the angles
    cosine, sine = turned_direction(cosine, sine, turn)
    return x, y, cosine, sine, speed, steering, turn


@kernel
def classic_v2(
    x: np.float32,
    y: np.float32,
    cosine: np.float32,
    sine: np.float32,
    speed: np.float32,
    length: np.float32,
    accel: np.float32,
    steer: np.float32,
    signed: bool,
    dt: np.float32,
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32]:
    """x, y, cos, sin, speed and turn [rad] after one step of the older simulators' bicycle (S38).

    The wheel stands at the command at once, the slip angle is a hyperbolic tangent, and the whole length stands for
    the wheelbase. Unless `signed` (v2b), a speed enters without its sign: braking at rest goes back and forth. There,
    a speed has the sign of the velocity along the new heading.
    """
    speed = (speed if signed else abs(speed)) + accel * dt
    speed = min(max(speed, -V2_SPEED_LIMIT), V2_SPEED_LIMIT)
    wheel_sine, wheel_cosine = sincos(steer)
    tangent = wheel_sine / wheel_cosine
    sin_beta, cos_beta = sincos(hyperbolic_tangent(HALF * tangent))
    travel = speed * dt
    x = x + travel * (cosine * cos_beta - sine * sin_beta)
    y = y + travel * (sine * cos_beta + cosine * sin_beta)
    turn = travel * cos_beta * tangent / length
    turn_sine, turn_cosine = sincos(turn)
    if signed and cos_beta * turn_cosine + sin_beta * turn_sine < ZERO:
        speed = -speed
    cosine, sine = turned_direction(cosine, sine, turn)
    return x, y, cosine, sine, speed, turn


@kernel
def arc(
    x: np.float32,
    y: np.float32,
    cosine: np.float32,
    sine: np.float32,
    distance: np.float32,
    turn: np.float32,
    straight: Any,
) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """x, y, cos, sin at the end of an arc of a length [m] and a turn [rad]; `straight` moves along a line instead.

    The chord has length distance sin(h) / h, h = turn / 2, and lies h from the first heading.
    """
    s, c = sincos(HALF * turn)
    along, aside = distance, ZERO
    if not straight:
        chord = distance * s / (HALF * turn)
        along, aside = chord * c, chord * s
    x = x + along * cosine - aside * sine
    y = y + along * sine + aside * cosine
    cosine, sine = turned_direction(cosine, sine, turn)
    return x, y, cosine, sine


@kernel
def walk(
    x: np.float32,
    y: np.float32,
    cosine: np.float32,
    sine: np.float32,
    speed: np.float32,
    accel: np.float32,
    rate: np.float32,
    dt: np.float32,
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32]:
    """x, y, cos, sin, speed and turn [rad] of a point on foot (S41): `accel` [m/s^2], heading rate [rad/s]."""
    speed = min(max(speed + accel * dt, ZERO), WALKING_SPEED)
    turn = min(max(rate, -WALKING_RATE), WALKING_RATE) * dt
    x, y, cosine, sine = arc(x, y, cosine, sine, speed * dt, turn, abs(turn) < STRAIGHT)
    return x, y, cosine, sine, speed, turn


@kernel
def jerked(accel: np.float32, change: np.float32, low: np.float32, high: np.float32) -> np.float32:
    """An acceleration after a change: 0 where it would turn its sign, else within its limits."""
    after = accel + change
    if after * accel < ZERO:
        return ZERO
    return min(max(after, low), high)


@kernel
def jerk(
    x: np.float32,
    y: np.float32,
    cosine: np.float32,
    sine: np.float32,
    speed: np.float32,
    steering: np.float32,
    along: np.float32,
    aside: np.float32,
    wheelbase: np.float32,
    jerk_long: np.float32,
    jerk_lat: np.float32,
    accel_limit: np.float32,
    fastest: np.float32,
    v2: bool,
    resets: bool,
    dt: np.float32,
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32]:
    """x, y, cos, sin, signed speed, steering, longitudinal and lateral acceleration and turn [rad] after one step of
    the jerk model (S39); `v2` takes curvature as the older simulators do (S40).

    along, aside      [m/s^2]  accelerations before the step, aside positive to the left
    jerk_long, _lat   [m/s^3]  the command
    resets                     both accelerations become 0 where the speed is stopped by its change of sign
    """
    before, along_before = speed, along
    along = jerked(along, jerk_long * dt, JERK_BRAKE, accel_limit)
    aside = jerked(aside, jerk_lat * dt, -JERK_LATERAL, JERK_LATERAL)
    speed = before + HALF * (along + along_before) * dt
    stops = speed * before < ZERO
    speed = ZERO if stops else min(max(speed, JERK_REVERSE), fastest)
    if v2:
        curvature = aside / max(speed * speed, STRAIGHT)
        if abs(curvature) < STRAIGHT:
            curvature = -STRAIGHT if curvature < ZERO else STRAIGHT
    else:
        pace = max(abs(speed), ONE)
        curvature = aside / (pace * pace)
    slew = STEER_RATE * dt
    wanted = arctan2(curvature * wheelbase, ONE)
    steering = steering + min(max(wanted - steering, -slew), slew)
    steering = min(max(steering, -JERK_STEER_LIMIT), JERK_STEER_LIMIT)
    curvature = small_sine(steering) / (small_cosine(steering) * wheelbase)
    aside = speed * speed * curvature
    distance = HALF * (speed + before) * dt
    turn = distance * curvature
    x, y, cosine, sine = arc(x, y, cosine, sine, distance, turn, abs(curvature) < STRAIGHT or abs(turn) < STRAIGHT)
    if stops and resets:
        along, aside = ZERO, ZERO
    return x, y, cosine, sine, speed, steering, along, aside, turn


@kernel
def moved(
    model: Any,
    x: np.float32,
    y: np.float32,
    cosine: np.float32,
    sine: np.float32,
    speed: np.float32,
    steering: np.float32,
    along: np.float32,
    aside: np.float32,
    length: np.float32,
    first: np.float32,
    second: np.float32,
    throttle: np.float32,
    steer_gain: np.float32,
    accel_gain: np.float32,
    speed_gain: np.float32,
    resets: bool,
    dt: np.float32,
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32]:
    """What `jerk` returns, under any model.

    first, second    the two commands, in the units of the model: `actions`
    throttle, ...    the agent's coefficients (S42), which act on vehicles: on what the first and the second command ask
                     for, on the strongest acceleration and on the highest speed
    """
    if model == JERK or model == JERK_V2:
        v2 = model == JERK_V2
        return jerk(
            x,
            y,
            cosine,
            sine,
            speed,
            steering,
            along,
            aside,
            WHEELBASE_SHARE * length,
            first if v2 else throttle * first,
            second if v2 else steer_gain * second,
            JERK_ACCEL if v2 else JERK_ACCEL * accel_gain,
            JERK_V2_SPEED if v2 else SPEED_LIMIT * speed_gain,
            v2,
            resets,
            dt,
        )
    before = speed
    if model == CLASSIC_V2 or model == CLASSIC_V2B:
        steering = second
        x, y, cosine, sine, speed, turn = classic_v2(
            x, y, cosine, sine, speed, length, first, second, model == CLASSIC_V2B, dt
        )
    elif model == PEDESTRIAN:
        steering = ZERO
        x, y, cosine, sine, speed, turn = walk(x, y, cosine, sine, speed, first, second, dt)
    else:
        if model == CYCLIST:
            accel, steer = min(max(first, -CYCLIST_ACCEL), CYCLIST_ACCEL), second
            slowest, fastest = ZERO, CYCLIST_SPEED
        else:
            accel, steer = min(throttle * first, ACCEL_BOX * accel_gain), steer_gain * second
            fastest = SPEED_LIMIT * speed_gain
            slowest = -fastest
        x, y, cosine, sine, speed, steering, turn = classic(
            x, y, cosine, sine, speed, steering, WHEELBASE_SHARE * length, accel, steer, slowest, fastest, dt
        )
    return x, y, cosine, sine, speed, steering, (speed - before) / dt, speed * (turn / dt), turn


@kernel
def scale_row(model: Any) -> int:
    """Which of the three scales of `actions.action_scales` a motion model reads its actions through."""
    return 1 if model == CYCLIST else 2 if model == PEDESTRIAN else 0


@kernel
def command_of(u: np.float32, scale: F32, column: int) -> np.float32:
    """Physical value of one coordinate of the action box.

    scale  (2, 2)  f32   sizes of the corners -1 and 1, by column
    """
    size = scale[0, column] if u < ZERO else scale[1, column]
    value: np.float32 = u * size
    return value


@kernel
def displacement(
    x: np.float32, y: np.float32, heading: np.float32, next_x: np.float32, next_y: np.float32
) -> tuple[np.float32, np.float32, np.float32]:
    """(forward, left, signed distance) [m] from a pose to a point; the sign is that of forward."""
    dx, dy = next_x - x, next_y - y
    sine, cosine = sincos(heading)
    forward, left = dx * cosine + dy * sine, dy * cosine - dx * sine
    distance = np.sqrt(dx * dx + dy * dy)
    return forward, left, distance if forward >= ZERO else -distance


@kernel
def invert_heading(
    x: np.float32,
    y: np.float32,
    heading: np.float32,
    speed: np.float32,
    length: np.float32,
    next_x: np.float32,
    next_y: np.float32,
    next_heading: np.float32,
    dt: np.float32,
) -> tuple[np.float32, np.float32]:
    """(acceleration, steering angle) that take one classic step to the next pose, exact in distance and heading (S47).

    For motion of the model itself the realised command comes back; on real logs it diverges once a limit binds, which
    is why the oracle looks ahead instead.
    """
    _, _, distance = displacement(x, y, heading, next_x, next_y)
    if abs(distance) < REST_DISTANCE:
        return -speed / dt, ZERO
    next_speed = distance / dt
    accel = (next_speed - speed) / dt
    q = wrap(next_heading - heading) * WHEELBASE_SHARE * length / distance
    root = FOUR - q * q  # |q| < 2 for every steering angle below 90 degrees
    if root <= ZERO:
        return accel, STEER_LIMIT if q > ZERO else -STEER_LIMIT
    return accel, arctan2(TWO * q, np.sqrt(root))


@kernel
def invert_position(
    x: np.float32,
    y: np.float32,
    heading: np.float32,
    speed: np.float32,
    next_x: np.float32,
    next_y: np.float32,
    dt: np.float32,
) -> tuple[np.float32, np.float32]:
    """(acceleration, steering angle) that take one classic step to the next position, whatever its heading (S47)."""
    forward, left, distance = displacement(x, y, heading, next_x, next_y)
    if abs(distance) < REST_DISTANCE:
        return -speed / dt, ZERO
    side = left if forward >= ZERO else -left
    return (distance / dt - speed) / dt, arctan2(TWO * side, abs(forward))


@kernel
def invert_jerk(
    x: np.float32,
    y: np.float32,
    heading: np.float32,
    speed: np.float32,
    along: np.float32,
    aside: np.float32,
    next_x: np.float32,
    next_y: np.float32,
    next_heading: np.float32,
    throttle: np.float32,
    steer_gain: np.float32,
    dt: np.float32,
) -> tuple[np.float32, np.float32]:
    """(longitudinal, lateral jerk) [m/s^3] that take one jerk step to the next pose (S47).

    Solving the trapezoid of accelerations exactly gives a command that alternates in sign from step to step, so the
    acceleration is drawn towards the step's mean; lateral motion is exact.
    """
    _, _, distance = displacement(x, y, heading, next_x, next_y)
    next_speed, lateral = ZERO, ZERO
    if abs(distance) >= REST_DISTANCE:
        turn = wrap(next_heading - heading)
        sine, _ = sincos(HALF * turn)
        length = distance * (HALF * turn / sine if sine != ZERO else ONE)
        next_speed = TWO * length / dt - speed
        pace = max(abs(next_speed), ONE)
        lateral = turn / length * pace * pace
    half = HALF * dt
    mean = (next_speed - speed) / dt
    weight = DAMPING * dt * dt
    wanted = (half * (next_speed - speed - half * along) + weight * mean) / (half * half + weight)
    return (wanted - along) / (throttle * dt), (lateral - aside) / (steer_gain * dt)

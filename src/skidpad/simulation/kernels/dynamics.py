"""How a vehicle moves: one step of the classic kinematic model (S37), and its inversion (S47).

Positive angles turn left. `wb` is the wheelbase, 0.6 of the length; the pose is the centre of the box, half a
wheelbase ahead of the rear axle. No slip, no load: the limits are those of steering rate, steering angle and speed.
"""

from __future__ import annotations

import numpy as np

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.trig import arctan2, sincos, wrap

F = np.float32
ZERO, HALF, ONE, TWO, FOUR = F(0.0), F(0.5), F(1.0), F(2.0), F(4.0)
WHEELBASE_SHARE = F(0.6)
STEER_RATE = F(0.6)  # rad/s
STEER_LIMIT = F(0.667)  # rad
SPEED_LIMIT = F(40.0)  # m/s, both ways
REST_DISTANCE = F(0.02)  # m; a log that moves less in one step stands


@kernel
def classic(
    x: np.float32,
    y: np.float32,
    heading: np.float32,
    speed: np.float32,
    steering: np.float32,
    length: np.float32,
    accel: np.float32,
    steer: np.float32,
    dt: np.float32,
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32]:
    """Pose, signed speed and steering after one step of `dt` seconds (S37).

    x, y      [m]              heading, steering  [rad]      speed  [m/s]
    accel     [m/s^2]  steer  [rad]  the command; the wheel follows it at 0.6 rad/s

    With q = tan(steering') / 2 the slip angle is beta = atan(q), so cos(beta) = 1 / sqrt(1 + q^2) and
    sin(beta) = q cos(beta): no arc tangent is taken.
    """
    slew = STEER_RATE * dt
    steering = steering + min(max(steer - steering, -slew), slew)
    steering = min(max(steering, -STEER_LIMIT), STEER_LIMIT)
    speed = min(max(speed + accel * dt, -SPEED_LIMIT), SPEED_LIMIT)
    sine, cosine = sincos(steering)
    q = HALF * sine / cosine
    cos_beta = ONE / np.sqrt(ONE + q * q)
    sin_beta = q * cos_beta
    sin_heading, cos_heading = sincos(heading)
    travel = speed * dt
    x = x + travel * (cos_heading * cos_beta - sin_heading * sin_beta)
    y = y + travel * (sin_heading * cos_beta + cos_heading * sin_beta)
    heading = wrap(heading + travel * TWO * sin_beta / (WHEELBASE_SHARE * length))
    return x, y, heading, speed, steering


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
    """(acceleration, steering angle) that take one step to the next pose, exact in distance and heading (S47).

    For motion of the model itself the realised command comes back; on real logs it diverges once a limit binds, which
    is why the oracle looks ahead instead.
    """
    dx, dy = next_x - x, next_y - y
    distance = np.sqrt(dx * dx + dy * dy)
    if distance < REST_DISTANCE:
        return -speed / dt, ZERO
    sine, cosine = sincos(heading)
    next_speed = distance / dt if dx * cosine + dy * sine >= ZERO else -distance / dt
    accel = (next_speed - speed) / dt
    q = wrap(next_heading - heading) * WHEELBASE_SHARE * length / (next_speed * dt)
    root = FOUR - q * q  # |q| < 2 for every steering angle below 90 degrees
    if root <= ZERO:
        return accel, STEER_LIMIT if q > ZERO else -STEER_LIMIT
    return accel, arctan2(TWO * q, np.sqrt(root))

"""What a car would drive that tracks a plan: the linear-quadratic tracker and bicycle that NAVSIM's scores presume.

A plan is poses; scores are of the motion of a car that follows them, so that a plan no car can follow does not score as
if it were driven. Structure and constants are those of nuPlan's tracker and of its kinematic bicycle (Apache-2.0);
written from their description, without a published test to hold it against.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skidpad.errors import ProtocolError
from skidpad.evaluation.metrics.fault import REAR_AXLE_SHARE
from skidpad.evaluation.metrics.view import F64

# nuPlan's car: a wheelbase of 3.089 m at 5.176 m of length.
WHEELBASE_SHARE = 3.089 / 5.176
LOOKAHEAD = 10  # steps over which one command is optimised
SPEED_WEIGHT, ACCELERATION_WEIGHT = 10.0, 1.0
LATERAL_WEIGHTS = np.diag([1.0, 10.0, 0.0])  # offset, heading error, steering angle
STEERING_RATE_WEIGHT = 1.0
JERK_PENALTY, CURVATURE_RATE_PENALTY = 1e-4, 1e-2
STOPPING_SPEED, STOPPING_GAIN = 0.2, 0.5
ACCELERATION_LAG_S, STEERING_LAG_S = 0.2, 0.05
STEERING_LIMIT = np.pi / 3


class Motion(NamedTuple):
    """States of a car, each (T,) f64: centre of the box [m], heading [rad], signed speed [m/s]."""

    x: F64
    y: F64
    heading: F64
    speed: F64


def tracked(x: F64, y: F64, heading: F64, *, speed: float, length: float, dt: float = 0.1) -> Motion:
    """The motion of a car that tracks a plan, from the plan's first pose at `speed`, wheels straight.

    x, y     (T,)  f64 [m]    centre of the box
    heading  (T,)  f64 [rad]
    speed    [m/s] of the car now
    length   [m] of its box, from which its axles follow
    dt       [s] between poses

    Raises ProtocolError for fewer than two poses.
    """
    if len(x) < 2:
        raise ProtocolError(f"a plan of {len(x)} poses cannot be tracked, expected 2 or more")
    axle, wheelbase = REAR_AXLE_SHARE * length, WHEELBASE_SHARE * length
    turned = np.unwrap(np.asarray(heading, dtype=np.float64))
    rear_x, rear_y = x - axle * np.cos(turned), y - axle * np.sin(turned)
    plan_speed, curvature = profile(rear_x, rear_y, turned, dt)
    state = np.array([rear_x[0], rear_y[0], turned[0], speed])
    acceleration = steering = 0.0
    states = [state]
    for step in range(len(x) - 1):
        offset, error = _errors(state, rear_x[step], rear_y[step], turned[step])
        last = min(step + LOOKAHEAD, len(plan_speed) - 1)
        wanted, rate = command(
            float(state[3]), offset, error, steering, float(plan_speed[last]),
            curvature[np.minimum(np.arange(step, step + LOOKAHEAD), len(curvature) - 1)], wheelbase, dt,
        )  # fmt: skip
        acceleration += dt / (dt + ACCELERATION_LAG_S) * (wanted - acceleration)
        steering_wanted = steering + rate * dt
        eased = steering + dt / (dt + STEERING_LAG_S) * (steering_wanted - steering)
        yaw_rate = state[3] * np.tan(steering) / wheelbase
        change = np.array([state[3] * np.cos(state[2]), state[3] * np.sin(state[2]), yaw_rate, acceleration])
        state = state + dt * change
        steering = float(np.clip(eased, -STEERING_LIMIT, STEERING_LIMIT))
        states.append(state)
    driven = np.array(states)
    forward = driven[:, 2]
    return Motion(driven[:, 0] + axle * np.cos(forward), driven[:, 1] + axle * np.sin(forward), forward, driven[:, 3])


def profile(x: F64, y: F64, heading: F64, dt: float) -> tuple[F64, F64]:
    """Speed [m/s] and curvature [1/m] between the poses of a plan, each (T - 1,) f64: least squares with a penalty on
    jerk and on the rate of curvature, so that noisy poses give a calm command.

    x, y     (T,)  f64 [m]    rear axle
    heading  (T,)  f64 [rad]  unwrapped
    """
    moved = np.diff(x) * np.cos(heading[:-1]) + np.diff(y) * np.sin(heading[:-1])
    # Jerk is the second derivative of speed.
    speed = _smooth(np.full(len(moved), dt), moved, dt, 2, JERK_PENALTY)
    return speed, _smooth(speed * dt, np.diff(heading), dt, 1, CURVATURE_RATE_PENALTY)


def _smooth(scale: F64, target: F64, dt: float, order: int, penalty: float) -> F64:
    """The (n,) f64 series s that makes the squares of `scale * s - target` and `penalty` times those of its derivative
    of `order` least."""
    count = len(target)
    order = min(order, count - 1)
    derivative = np.diff(np.eye(count), n=order, axis=0) / dt**order if order else np.zeros((0, count))
    # A little pull to zero decides where a standing plan leaves the curvature open.
    rows = np.concatenate([np.diag(scale), np.sqrt(penalty) * derivative, 1e-5 * np.eye(count)])
    return np.asarray(np.linalg.lstsq(rows, np.concatenate([target, np.zeros(len(rows) - count)]), rcond=None)[0])


def _errors(state: F64, x: float, y: float, heading: float) -> tuple[float, float]:
    """Lateral offset [m] and heading error [rad] of the car from a pose of the plan."""
    offset = (state[1] - y) * np.cos(heading) - (state[0] - x) * np.sin(heading)
    return float(offset), float(np.remainder(state[2] - heading + np.pi, 2 * np.pi) - np.pi)


def command(
    speed: float, offset: float, error: float, steering: float, speed_ahead: float, curvature: F64, wheelbase: float,
    dt: float,
) -> tuple[float, float]:  # fmt: skip
    """Acceleration [m/s^2] and steering rate [rad/s], each held over LOOKAHEAD steps, of least quadratic cost.

    speed, speed_ahead  [m/s]  of the car, and of the plan at the end of the look-ahead
    offset, error       [m], [rad]  of the car from the plan
    curvature           (LOOKAHEAD,)  f64 [1/m]  of the plan
    """
    if speed <= STOPPING_SPEED and speed_ahead <= STOPPING_SPEED:
        return -STOPPING_GAIN * (speed - speed_ahead), 0.0
    span = LOOKAHEAD * dt
    acceleration = SPEED_WEIGHT * span * (speed_ahead - speed) / (SPEED_WEIGHT * span**2 + ACCELERATION_WEIGHT)
    # Errors after the look-ahead, linear in the one steering rate: state = start + response x rate.
    start, response = np.array([offset, error, steering]), np.zeros(3)
    for step in range(LOOKAHEAD):
        pace = (speed + acceleration * step * dt) * dt
        moves = np.array([[1.0, pace, 0.0], [0.0, 1.0, pace / wheelbase], [0.0, 0.0, 1.0]])
        start = moves @ start - np.array([0.0, pace * curvature[step], 0.0])
        response = moves @ response + np.array([0.0, 0.0, dt])
    start[1] = np.remainder(start[1] + np.pi, 2 * np.pi) - np.pi
    rate = -(response @ LATERAL_WEIGHTS @ start) / (response @ LATERAL_WEIGHTS @ response + STEERING_RATE_WEIGHT)
    return float(acceleration), float(rate)

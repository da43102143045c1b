"""Hand-worked cases and pairs of the composite scores, as in `hand_worked.py`."""

from __future__ import annotations

import numpy as np
from driving import car, lane, scene_of, trace_of
from hand_worked import RED, STOP, VEHICLE, events

ROAD = lane([(0, 0), (400, 0)], limit=10.0)
STEPS = 50


def on_route(share=1.0, happened=(), *, log_step=2.0, beside=None, steps=STEPS, **arrays):
    """A car whose log makes `log_step` m a step along x, and which itself makes `share` of that.

    happened  (state, bits) of the car; contacts are with car 1, far away, which stands
    beside    speed [m/s] of car 2, which starts 5 m beside it; without it nobody is near
    """
    t = np.arange(steps + 1)
    cars = [car(x=log_step * t, vx=10 * log_step, route=[0]), car(y=500.0)]
    x, y = [share * log_step * t, 0 * t], [0 * t, 0 * t + 500]
    speed = [0 * t + share * log_step * 10, 0 * t]
    if beside is not None:
        cars.append(car(x=beside * 0.1 * t, y=5.0))
        x, y, speed = [*x, beside * 0.1 * t], [*y, 0 * t + 5], [*speed, 0 * t + beside]
    bits = events(len(cars), steps, *((0, state, bit) for state, bit in happened))
    partner = np.where(bits & VEHICLE, 1, -1)
    scene = scene_of(cars, [ROAD], edges=True, lights=1, stop_signs=1)
    rows = {"x": np.array(x), "y": np.array(y), "speed": np.array(speed), "events": bits, "contact_partner": partner}
    return trace_of(scene, rows | arrays, scored=[0]), scene


SPOILED = ((10, RED), (20, RED), (30, VEHICLE))


def hand_carla_ds_2_0():
    """80 m of 100 m, two red lights, one car: 80 x 0.7 x 0.7 x 0.6 = 23.52. Nobody is near, so no speed is missing."""
    return *on_route(0.8, SPOILED), [(23.52, 1)]


def pair_carla_ds_2_0():
    return on_route(0.8), on_route(0.8, [(10, STOP)])


def hand_carla_ds_2_1():
    """80 / (1 + 0.4 + 0.4 + 0.7) = 32."""
    return *on_route(0.8, SPOILED), [(32, 1)]


def pair_carla_ds_2_1():
    return on_route(0.8), on_route(0.7)


def hand_b2d_driving_score():
    """The same 23.52, and here the car beside, at 40 m/s, changes nothing."""
    return *on_route(0.8, SPOILED, beside=40.0), [(23.52, 1)]


def pair_b2d_driving_score():
    return on_route(1.0), on_route(1.0, [(10, RED)])


def hand_b2d_success():
    """100 m of 100 m at half the speed of the car beside, and no infraction: 1."""
    return *on_route(1.0, beside=40.0), [(1, 1)]


def pair_b2d_success():
    return on_route(1.0), on_route(1.0, [(10, STOP)])


def hand_b2d_efficiency():
    """10 m/s beside 8 m/s, 50 m in 20 checks of 2.5 m, the other never more than 11.2 m away: 125 % at each."""
    return *on_route(1.0, log_step=1.0, beside=8.0), [(125, 1)]


def pair_b2d_efficiency():
    return on_route(1.0, beside=8.0), on_route(1.0, beside=9.0)


def turning(rate, begin=0, steps=40):
    """A car that turns at `rate` rad/s from step `begin` on."""
    heading = rate * 0.1 * np.maximum(np.arange(steps + 1) - begin, 0)
    return on_route(steps=steps, heading=np.stack([heading, 0 * heading]))


def hand_b2d_smoothness():
    """Two segments of 20 steps; 1.2 rad/s from step 28 on is above 0.95 in the second alone, whose filters of 7 samples
    do not reach back to the first: 1 of 2."""
    return *turning(1.2, begin=28), [(0.5, 1)]


def pair_b2d_smoothness():
    return turning(0.9), turning(1.0)


def hand_b2d_smoothness_compat():
    """0.1 rad/s are 5.73 degrees per second, and 5.73 > 0.95: 0 of 2."""
    return *turning(0.1), [(0, 1)]


def pair_b2d_smoothness_compat():
    return turning(0.01), turning(0.02)  # 0.573 and 1.146 degrees per second


HAND = {name.removeprefix("hand_"): make for name, make in list(globals().items()) if name.startswith("hand_")}
PAIRS = {name.removeprefix("pair_"): make for name, make in list(globals().items()) if name.startswith("pair_")}

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


def in_lane(share=0.8, **arrays):
    """12 s on the lane, with a log of 10 m/s; 1.2 m beside its centre in steps 41 to 80, which with half a width of 1 m
    is 2.2 m, above 2.05 m."""
    offset = np.zeros((2, 121))
    offset[0, 41:81] = 1.2
    return on_route(share, log_step=1.0, steps=120, **{"lane": 0, "lane_offset": offset, **arrays})


def sideways(amount, steps=slice(None)):
    lateral = np.zeros((2, 121))
    lateral[0, steps] = amount
    return lateral


def hand_puffer_score():
    """8 m/s for 12 s: nobody near 5, progress 0.8 x 5, no excess 4, 4 s between lanes 0.5 x 3, one violated clause over
    ceil(12 / 10) = 2: 0.5 x 2. (5 + 4 + 4 + 1.5 + 1) / 19."""
    return *in_lane(accel_lat=sideways(3.5, 60)), [(15.5 / 19, 1)]


def pair_puffer_score():
    return in_lane(), in_lane(accel_lat=sideways(3.5, 60))


def hand_puffer_score_compat():
    """The same drive, comfort 1 for nothing: (5 + 4 + 4 + 1.5 + 2) / 19."""
    return *in_lane(accel_lat=sideways(3.5, 60)), [(16.5 / 19, 1)]


def pair_puffer_score_compat():
    return in_lane(0.8), in_lane(0.7)


def hand_vmax_score():
    """The same drive in a steady turn of 3 m/s^2, above V-Max's 2.0: (5 + 0.8 x 5 + 4 + 0.5 x 3 + 0) / 19."""
    return *in_lane(accel_lat=sideways(3.0)), [(14.5 / 19, 1)]


def pair_vmax_score():
    return in_lane(accel_lat=sideways(1.9)), in_lane(accel_lat=sideways(2.1))


HAND = {name.removeprefix("hand_"): make for name, make in list(globals().items()) if name.startswith("hand_")}
PAIRS = {name.removeprefix("pair_"): make for name, make in list(globals().items()) if name.startswith("pair_")}

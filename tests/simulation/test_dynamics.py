"""Every model moves as its equations say, for ever and at any dt (S37 to S43), and can be inverted (S47)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from skidpad.simulation.kernels.dynamics import (
    CLASSIC,
    CLASSIC_V2,
    CLASSIC_V2B,
    CYCLIST,
    JERK,
    JERK_V2,
    PEDESTRIAN,
    invert_heading,
    invert_jerk,
    invert_position,
    moved,
)
from skidpad.simulation.kernels.trig import arctan2, exponential, hyperbolic_tangent, sincos, wrap

F = np.float32
GAINS = (1.0, 1.0, 1.0, 1.0)


def naive_classic(x, y, theta, v, delta, length, a, delta_cmd, dt, slowest=-40.0, fastest=40.0):
    """S37 in float64, as printed."""
    wb = 0.6 * length
    delta = np.clip(delta + np.clip(delta_cmd - delta, -0.6 * dt, 0.6 * dt), -0.667, 0.667)
    v = np.clip(v + a * dt, slowest, fastest)
    beta = np.arctan(0.5 * np.tan(delta))
    omega = v * np.cos(beta) * np.tan(delta) / wb
    return (
        x + v * dt * np.cos(theta + beta),
        y + v * dt * np.sin(theta + beta),
        np.angle(np.exp(1j * (theta + omega * dt))),
        v,
        delta,
    )


def naive_classic_v2(x, y, theta, v, length, a, delta, dt, signed):
    """S38 in float64; `signed` is the later of the two older forms."""
    v = np.clip((v if signed else abs(v)) + a * dt, -100.0, 100.0)
    beta = np.tanh(0.5 * np.tan(delta))
    x, y = x + v * dt * np.cos(theta + beta), y + v * dt * np.sin(theta + beta)
    after = theta + v * np.cos(beta) * np.tan(delta) / length * dt
    if signed and np.cos(theta + beta - after) < 0:
        v = -v
    return x, y, np.angle(np.exp(1j * after)), v, delta


def naive_jerk(x, y, theta, v, delta, al, at, length, jl, jt, dt, *, v2=False, gains=GAINS, resets=False):
    """S39 in float64, as printed; `v2` is S40."""
    throttle, steer, acceleration, speed = gains
    wb = 0.6 * length
    al1, at1 = al + throttle * jl * dt, at + steer * jt * dt
    al1 = 0.0 if al1 * al < 0 else np.clip(al1, -5, 2.5 * acceleration)
    at1 = 0.0 if at1 * at < 0 else np.clip(at1, -4, 4)
    v1 = v + 0.5 * (al1 + al) * dt
    stops = v1 * v < 0
    v1 = 0.0 if stops else np.clip(v1, -2, 20 if v2 else 40 * speed)
    if v2:
        k = at1 / max(v1 * v1, 1e-5)
        k = math.copysign(max(abs(k), 1e-5), k)
    else:
        k = at1 / max(abs(v1), 1) ** 2
    delta = np.clip(delta + np.clip(math.atan(k * wb) - delta, -0.6 * dt, 0.6 * dt), -0.55, 0.55)
    k = math.tan(delta) / wb
    at1 = v1 * v1 * k
    d = 0.5 * (v1 + v) * dt
    phi = d * k
    forward, left = (d, 0.0) if abs(k) < 1e-5 or abs(phi) < 1e-5 else (math.sin(phi) / k, (1 - math.cos(phi)) / k)
    if stops and resets:
        al1, at1 = 0.0, 0.0
    return (
        x + forward * math.cos(theta) - left * math.sin(theta),
        y + forward * math.sin(theta) + left * math.cos(theta),
        math.remainder(theta + phi, 2 * math.pi),
        v1,
        delta,
        al1,
        at1,
    )


def step(model, x, y, heading, speed, steering, length, first, second, dt, *, along=0, aside=0, gains=GAINS, resets=0):
    """One step of `moved` as float64: x, y, heading, speed, steering, along, aside, and cos, sin."""
    heading = F(heading)
    sine, cosine = sincos(heading)
    state = (x, y, cosine, sine, speed, steering, along, aside, length, first, second, *gains)
    x, y, cosine, sine, speed, steering, along, aside, _ = moved(model, *map(F, state), bool(resets), F(dt))
    return np.array([x, y, arctan2(F(sine), F(cosine)), speed, steering, along, aside, cosine, sine], np.float64)


def run(state, length, command, dt, steps, model=CLASSIC):
    """States x, y, heading, speed, steering and cos, sin under one held command, from the first five."""
    x, y, heading, speed, steering = (F(value) for value in state)
    sine, cosine = sincos(heading)
    full = (x, y, cosine, sine, speed, steering, F(0), F(0))
    states = [(x, y, heading, speed, steering, cosine, sine)]
    for _ in range(steps):
        commands = (F(length), F(command[0]), F(command[1]), *(F(gain) for gain in GAINS))
        full = tuple(F(value) for value in moved(model, *full, *commands, False, F(dt))[:8])
        states.append((full[0], full[1], arctan2(full[3], full[2]), *full[4:6], full[2], full[3]))
    return np.array(states, np.float64)


def assert_close(got, want, limits, row):
    """Compare step by step, the third number being an angle."""
    error = np.abs(np.array(got) - np.array(want))
    error[2] = abs(math.remainder(got[2] - want[2], 2 * math.pi))
    assert (error <= limits).all(), (row, got, want)


# float32 at 500 m has a step of 3e-5; headings and speeds are small numbers.
LIMITS = np.array([6e-5, 6e-5, 1e-5, 1e-5, 1e-6])


def test_classic_equals_the_equations():
    """The kernel avoids arc tangents and libm; 10,000 random steps stay within float32 rounding of S37 (1e-5), and the
    heading stays in (-pi, pi]."""
    generator = np.random.default_rng(1)
    low = [-500, -500, -math.pi, -42, -0.667, 1.0, -6, -1, 0.01]
    high = [500, 500, math.pi, 42, 0.667, 20.0, 4, 1, 0.5]
    for row in generator.uniform(low, high, (10_000, 9)).astype(np.float32):
        got = step(CLASSIC, *row)[:5]
        assert_close(got, naive_classic(*row.astype(np.float64)), LIMITS, row)
        assert -math.pi < got[2] <= F(math.pi)


@pytest.mark.parametrize("model", [CLASSIC_V2, CLASSIC_V2B])
def test_classic_v2_equals_the_equations(model):
    """S38: no slew, tanh, the whole length; v2b keeps the sign of speed. 5,000 random steps."""
    generator = np.random.default_rng(2)
    low = [-500, -500, -math.pi, -30, 0.0, 2.0, -4, -1, 0.05]
    high = [500, 500, math.pi, 30, 0.0, 10.0, 4, 1, 0.2]
    for row in generator.uniform(low, high, (5_000, 9)).astype(np.float32):
        x, y, heading, speed, _, length, accel, steer, dt = row.astype(np.float64)
        signed = model == CLASSIC_V2B
        want = naive_classic_v2(x, y, heading, speed, length, accel, steer, dt, signed)
        assert_close(step(model, *row)[:5], want, LIMITS, row)


def test_braking_at_rest_goes_back_and_forth_in_v2():
    """S38: a negative speed enters the next step without its sign; v2b drives backwards instead."""
    bounce = run((0, 0, 0, 0, 0), 4.5, (-4, 0), 0.1, 4, CLASSIC_V2)[:, 3]
    assert bounce == pytest.approx([0, -0.4, 0, -0.4, 0], abs=1e-6)
    reverse = run((0, 0, 0, 0, 0), 4.5, (-4, 0), 0.1, 4, CLASSIC_V2B)[:, 3]
    assert reverse == pytest.approx([0, -0.4, -0.8, -1.2, -1.6], abs=1e-6)


def jerk_rows(seed, count):
    """Random states and commands of a jerk step, some at rest, without steering or command."""
    generator = np.random.default_rng(seed)
    low = [-500, -500, -math.pi, -2, -0.55, -5, -4, 2.0, -15, -4, 0.02]
    high = [500, 500, math.pi, 20, 0.55, 2.5, 4, 10.0, 4, 4, 0.5]
    rows = generator.uniform(low, high, (count, 11))
    for column in (3, 4, 5, 6, 8, 9):
        rows[generator.random(count) < 0.1, column] = 0.0
    return rows.astype(np.float32)


@pytest.mark.parametrize("model", [JERK, JERK_V2])
@pytest.mark.parametrize("resets", [False, True])
def test_jerk_equals_the_equations(model, resets):
    """S39, S40: 5,000 random steps, with coefficients in the first and without any in the older form. Where a speed
    just reaches 0, an acceleration just turns its sign or an arc is just straight, float32 may fall on the other side;
    such rows are left out."""
    generator = np.random.default_rng(3)
    compared = 0
    for row in jerk_rows(4, 5_000):
        x, y, heading, speed, steering, al, at, length, jl, jt, dt = row.astype(np.float64)
        gains = tuple(generator.uniform([0.8, 0.8, 0.67, 0.67], [1.25, 1.25, 1.5, 1.5]).astype(np.float32))
        plain = gains if model == JERK else GAINS
        edge = abs(speed + 0.5 * (al + al + plain[0] * jl * dt) * dt) < 1e-4 and speed != 0
        if edge or abs(al + plain[0] * jl * dt) < 1e-4 < abs(al) or abs(at + plain[1] * jt * dt) < 1e-4 < abs(at):
            continue
        state = (x, y, heading, speed, steering, al, at, length, jl, jt, dt)
        want = naive_jerk(*state, v2=model == JERK_V2, gains=np.float64(plain), resets=resets)
        curvature = abs(math.tan(want[4]) / (0.6 * length))
        turn = curvature * abs(want[3] + speed) / 2 * dt
        if 0.9e-5 < curvature < 1.1e-5 or 0.9e-5 < turn < 1.1e-5:
            continue  # A line on one side of the threshold, an arc on the other.
        got = step(model, *row[:5], length, jl, jt, dt, along=al, aside=at, gains=gains, resets=resets)[:7]
        # A lateral acceleration is v^2 times a curvature, at up to 60 m/s; an older form divides by v^2 down to 1e-5.
        assert_close(got, want, [8e-5, 8e-5, 2e-5, 1e-5, 5e-6, 1e-5, 2e-3], row)
        compared += 1
    assert compared > 4_500


def test_jerk_arc_length_is_exact():
    """S39: the chord of an arc of length d and angle phi, not d, is how far the centre moves; at any dt."""
    for dt in (0.05, 0.1, 0.3, 0.5):
        got = step(JERK, 0, 0, 0.3, 10, 0.4, 4.5, 0, 0, dt, aside=10**2 * math.tan(0.4) / 2.7)
        curvature = math.tan(got[4]) / 2.7
        phi = 10 * dt * curvature
        assert math.remainder(got[2] - 0.3 - phi, 2 * math.pi) == pytest.approx(0, abs=2e-6)
        assert math.hypot(got[0], got[1]) == pytest.approx(abs(2 * math.sin(phi / 2) / curvature), rel=1e-5)


def test_reset_on_stop_zeroes_both_accelerations():
    """`reset_accel_on_stop`: braking through 0 leaves the brake on unless asked to release it (S39)."""
    state = (JERK, 0, 0, 0, 0.1, 0.2, 4.5, 0, 0, 0.1)
    kept, released = step(*state, along=-4, aside=0.1), step(*state, along=-4, aside=0.1, resets=1)
    assert kept[3] == released[3] == 0
    assert (kept[5], released[5], released[6]) == (-4, 0, 0)


@pytest.mark.parametrize("steering", [0.667, -0.3, 0.05])
def test_circle_for_ten_thousand_steps(steering):
    """S37: radius wb / (cos(beta) tan(delta)) within 0.1 %, and a direction of length 1 within 1e-6, in every one of
    10,000 steps: neither heading nor direction drifts."""
    length, speed = 4.5, 5.0
    states = run((0, 0, 0, speed, steering), length, (0, steering), 0.1, 10_000)
    beta = math.atan(0.5 * math.tan(steering))
    radius = 0.6 * length / (math.cos(beta) * math.tan(steering))
    # Chords of a circle: the centre is where the bisectors meet, found by least squares over the last laps.
    x, y = states[5_000:, 0], states[5_000:, 1]
    solution = np.linalg.lstsq(np.stack([2 * x, 2 * y, np.ones_like(x)], 1), x**2 + y**2, rcond=None)[0]
    measured = math.sqrt(solution[2] + solution[0] ** 2 + solution[1] ** 2)
    # A polygon of steps of v dt has a circumradius of v dt / (2 sin(omega dt / 2)).
    omega = speed / radius
    assert measured == pytest.approx(abs(speed * 0.1 / (2 * math.sin(omega * 0.05))), rel=1e-3)
    assert measured == pytest.approx(abs(radius), rel=1e-3)
    assert np.abs((states[:, 5:] ** 2).sum(axis=1) - 1).max() < 1e-6
    after = math.remainder(states[-1, 2] - 10_000 * omega * 0.1, 2 * math.pi)
    assert abs(after) < 1e-7 * 10_000  # a float32 angle a step


@pytest.mark.parametrize("model", [CLASSIC, JERK, CYCLIST, PEDESTRIAN])
def test_halving_dt_converges(model):
    """S43: for dt <= 0.1 a 5 s trajectory changes by less than 2 % of its length, less the smaller dt is."""
    command, speed = ((0.2, 0.4), 8.0) if model == JERK else ((0.5, 0.2), 2.0 if model == PEDESTRIAN else 8.0)
    ends = [
        run((0, 0, 0, speed, 0), 4.5, command, dt, round(5 / dt), model)[-1, :2] for dt in (0.1, 0.05, 0.025, 0.0125)
    ]
    steps = [np.hypot(*(b - a)) for a, b in pairwise(ends)]
    assert steps[0] < 0.02 * (13.0 if model == PEDESTRIAN else 44.0)
    assert steps[0] > steps[2]


def test_limits_hold():
    """Steering follows at 0.6 rad/s up to 0.667 rad, and speed stays within 40 m/s both ways, whatever is asked."""
    states = run((0, 0, 0, 0, 0), 4.5, (4, 9), 0.5, 40)
    assert np.diff(run((0, 0, 0, 0, 0), 4.5, (4, 9), 0.1, 40)[:, 4]).max() <= 0.06 + 1e-6
    assert states[-1, 4] == F(0.667)
    assert states[-1, 3] == 40
    assert run((0, 0, 0, 0, 0), 4.5, (-50, 0), 0.1, 40)[-1, 3] == -40


def test_small_types_have_their_own_limits():
    """S41: a cyclist pulls at most 3 m/s^2 and rides 0 to 12 m/s; a pedestrian walks 0 to 3 m/s and turns on the spot,
    at most at pi rad/s."""
    ride = run((0, 0, 0, 0, 0), 1.8, (4, 0), 0.1, 60, CYCLIST)[:, 3]
    assert ride[1] == pytest.approx(0.3)
    assert ride[-1] == 12
    assert run((0, 0, 0, 1, 0), 1.8, (-4, 0), 0.1, 20, CYCLIST)[-1, 3] == 0
    walk = run((0, 0, 0, 0, 0), 0.5, (4, 9), 0.1, 5, PEDESTRIAN)
    assert walk[1, 2] == pytest.approx(0.1 * math.pi, abs=1e-6)
    assert walk[-1, 3] == pytest.approx(2.0)
    assert run((0, 0, 0, 0, 0), 0.5, (4, 0), 0.5, 5, PEDESTRIAN)[-1, 3] == 3
    turning = run((0, 0, 0, 0, 0), 0.5, (0, -2), 0.1, 5, PEDESTRIAN)
    assert turning[-1, :4] == pytest.approx([0, 0, -1.0, 0], abs=1e-6)


def test_a_walk_is_an_arc():
    """S41: the way of a pedestrian that turns is the arc of its speed and heading rate."""
    got = step(PEDESTRIAN, 1, 2, 0.5, 1.5, 0, 0.5, 0, 2.0, 0.5)
    angles = 0.5 + 2.0 * np.linspace(0, 0.5, 100_001)
    assert got[0] == pytest.approx(1 + 1.5 * 0.5 * np.cos(angles).mean(), abs=1e-5)
    assert got[1] == pytest.approx(2 + 1.5 * 0.5 * np.sin(angles).mean(), abs=1e-5)


def test_gains_scale_the_command_and_the_limits():
    """S42: throttle and steer multiply the commands, acceleration and speed their limits; compatible models and small
    types have none."""
    gains = (1.25, 0.8, 0.667, 1.5)
    got = step(CLASSIC, 0, 0, 0, 50, 0.0, 4.5, 1.0, 0.05, 0.1, gains=gains)
    assert got[3] == pytest.approx(50.125)
    assert got[4] == pytest.approx(0.04)
    assert step(CLASSIC, 0, 0, 0, 0, 0, 4.5, 4.0, 0, 0.1, gains=gains)[3] == pytest.approx(0.1 * 4 * 0.667)
    assert step(JERK, 0, 0, 0, 5, 0, 4.5, 4, 0, 0.5, along=2, gains=gains)[5] == pytest.approx(2.5 * 0.667)
    for model in (CLASSIC_V2, CLASSIC_V2B, JERK_V2, CYCLIST, PEDESTRIAN):
        state = (model, 0, 0, 0, 2, 0, 4.5, 1, 1, 0.1)
        assert (step(*state, gains=gains) == step(*state)).all()


def test_inversion_recovers_the_command():
    """S47: for motion of the model itself the acceleration and angle that made it come back, to 1e-4, whether the step
    is inverted through its heading or its position."""
    generator = np.random.default_rng(2)
    for _ in range(2_000):
        heading, speed, steering = generator.uniform([-3.1, 2, -0.6], [3.1, 20, 0.6]).astype(np.float32)
        speed *= F(generator.choice([-1, 1]))
        length, a, dt = F(4.5), F(generator.uniform(-4, 4)), F(0.1)
        # float64 poses: in float32 the rounding of a position would be read as acceleration.
        x, y, theta, v, _ = naive_classic(
            0.0, 0.0, float(heading), float(speed), float(steering), 4.5, float(a), float(steering), 0.1
        )
        if abs(v) * 0.1 < 0.05:
            continue
        for accel, angle in (
            invert_heading(F(0), F(0), heading, speed, length, F(x), F(y), F(theta), dt),
            invert_position(F(0), F(0), heading, speed, F(x), F(y), dt),
        ):
            # (v' - v) / dt amplifies float32 rounding of v (2e-6) and D by 10-100.
            assert accel == pytest.approx(a, abs=2e-3)
            assert angle == pytest.approx(steering, abs=1e-4 + 3e-6 / (abs(v) * 0.1))


def test_jerk_inversion_recovers_the_command():
    """S47: with a constant longitudinal acceleration the damped inversion is exact, and the lateral jerk always is
    while the wheel follows in time."""
    generator = np.random.default_rng(5)
    for _ in range(500):
        heading, speed, steering, along = generator.uniform([-3.1, 3, -0.2, -2], [3.1, 12, 0.2, 2])
        aside = speed**2 * math.tan(steering) / 2.7
        jerk = generator.uniform(-2, 2)
        if abs(aside) > 3.5 or (aside + 0.1 * jerk) * aside < 0:
            continue
        x, y, theta, v, *_ = naive_jerk(0, 0, heading, speed, steering, along, aside, 4.5, 0, jerk, 0.1)
        pose = (F(x), F(y), F(theta))
        got = invert_jerk(F(0), F(0), F(heading), F(speed), F(along), F(aside), *pose, F(1), F(1), F(0.1))
        # Rounding of a pose (1e-7) over dt^3, and of the damping.
        assert got[0] * 0.1 == pytest.approx(0, abs=5e-3)
        wanted = math.atan((aside + 0.1 * jerk) / v**2 * 2.7)
        if abs(wanted - steering) < 0.059:
            assert got[1] * 0.1 == pytest.approx(0.1 * jerk * v * v / v**2, abs=5e-3)


def test_inversion_brakes_to_rest_where_the_log_stands():
    """S47: below 0.02 m there is no direction to read; the vehicle is brought to rest with the wheels straight."""
    assert invert_heading(F(0), F(0), F(0.3), F(2), F(4.5), F(0.01), F(0), F(0.3), F(0.1)) == (F(-20), F(0))
    assert invert_position(F(0), F(0), F(0.3), F(2), F(0.01), F(0), F(0.1)) == (F(-20), F(0))
    along, aside = invert_jerk(F(0), F(0), F(0.3), F(2), F(0), F(1), F(0.01), F(0), F(0.3), F(1), F(1), F(0.1))
    assert along < 0
    assert aside == pytest.approx(-10)


def test_angles_are_polynomials_within_float32():
    """S35: libm differs between machines, so angles are ours; they must still be as good as float32 allows."""
    for angle in np.concatenate([np.linspace(-20, 20, 4001), np.arange(-8, 9) * np.pi / 4]).astype(np.float32):
        sine, cosine = sincos(angle)
        assert sine == pytest.approx(math.sin(angle), abs=2e-7)
        assert cosine == pytest.approx(math.cos(angle), abs=2e-7)
    for y, x in np.random.default_rng(3).normal(size=(4000, 2)).astype(np.float32):
        assert arctan2(y, x) == pytest.approx(math.atan2(y, x), abs=3e-7)
    for y, x in [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1)]:
        assert arctan2(F(y), F(x)) == pytest.approx(math.atan2(y, x), abs=3e-7)


def test_exponential_is_a_polynomial_within_float32():
    """S35: e^x and tanh(x) without libm, still as good as float32 allows."""
    for x in np.concatenate([np.linspace(-80, 80, 4001), np.linspace(-1, 1, 2001)]).astype(np.float32):
        assert exponential(x) == pytest.approx(math.exp(float(x)), rel=3e-7 + 6e-8 * abs(float(x)))
    for x in np.linspace(-12, 12, 4001).astype(np.float32):
        assert hyperbolic_tangent(x) == pytest.approx(math.tanh(x), abs=2e-7)
    assert exponential(F(-200)) == exponential(F(-80))


def test_wrap_keeps_the_bits_of_a_wrapped_angle():
    """Replay is bit-equal only because an angle in (-pi, pi] is not touched (S55)."""
    for angle in np.random.default_rng(4).uniform(-np.pi, np.pi, 1000).astype(np.float32):
        assert wrap(angle) == angle
    assert wrap(F(np.pi)) == F(np.pi)
    assert wrap(F(-np.pi)) == F(np.pi)
    assert wrap(F(7.0)) == pytest.approx(7.0 - 2 * np.pi, abs=1e-6)

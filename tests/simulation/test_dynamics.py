"""The classic model moves as its equations say, for ever and at any dt (S37, S43), and can be inverted (S47)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from skidpad.simulation.kernels.dynamics import classic, invert_heading
from skidpad.simulation.kernels.trig import arctan2, sincos, wrap

F = np.float32


def naive_classic(x, y, theta, v, delta, length, a, delta_cmd, dt):
    """S37 in float64, as printed."""
    wb = 0.6 * length
    delta = np.clip(delta + np.clip(delta_cmd - delta, -0.6 * dt, 0.6 * dt), -0.667, 0.667)
    v = np.clip(v + a * dt, -40.0, 40.0)
    beta = np.arctan(0.5 * np.tan(delta))
    omega = v * np.cos(beta) * np.tan(delta) / wb
    return (
        x + v * dt * np.cos(theta + beta),
        y + v * dt * np.sin(theta + beta),
        np.angle(np.exp(1j * (theta + omega * dt))),
        v,
        delta,
    )


def run(state, length, command, dt, steps):
    """States of the kernel under one held command."""
    states = [tuple(F(value) for value in state)]
    for _ in range(steps):
        states.append(classic(*states[-1], F(length), F(command[0]), F(command[1]), F(dt)))
    return np.array(states, np.float64)


def test_equals_the_equations():
    """The kernel avoids arc tangents and libm; 10,000 random steps stay within float32 rounding of S37 (1e-5)."""
    generator = np.random.default_rng(1)
    low = [-500, -500, -math.pi, -42, -0.667, 1.0, -6, -1, 0.01]
    high = [500, 500, math.pi, 42, 0.667, 20.0, 6, 1, 0.5]
    for row in generator.uniform(low, high, (10_000, 9)).astype(np.float32):
        got = np.array(classic(*row), np.float64)
        want = np.array(naive_classic(*row.astype(np.float64)))
        error = np.abs(got - want)
        error[2] = abs(math.remainder(got[2] - want[2], 2 * math.pi))
        # float32 at 500 m has a step of 3e-5; headings and speeds are small numbers.
        assert (error <= [6e-5, 6e-5, 1e-5, 1e-5, 1e-6]).all(), (row, got, want)
        assert -math.pi < got[2] <= F(math.pi)


@pytest.mark.parametrize("steering", [0.667, -0.3, 0.05])
def test_circle_for_ten_thousand_steps(steering):
    """S37: radius wb / (cos(beta) tan(delta)) within 0.1 %, so neither heading nor direction drifts."""
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
    sine, cosine = np.array([sincos(F(heading)) for heading in states[:, 2]]).T
    assert np.abs(sine.astype(np.float64) ** 2 + cosine.astype(np.float64) ** 2 - 1).max() < 1e-6


def test_halving_dt_converges():
    """S43: for dt <= 0.1 a 5 s trajectory changes by less than 2 % of its length, less the smaller dt is."""
    ends = [run((0, 0, 0, 8, 0), 4.5, (0.5, 0.2), dt, round(5 / dt))[-1, :2] for dt in (0.1, 0.05, 0.025, 0.0125)]
    steps = [np.hypot(*(b - a)) for a, b in pairwise(ends)]
    assert steps[0] < 0.02 * 46.25
    assert steps[0] > steps[1] > steps[2]


def test_limits_hold():
    """Steering follows at 0.6 rad/s up to 0.667 rad, and speed stays within 40 m/s both ways, whatever is asked."""
    states = run((0, 0, 0, 0, 0), 4.5, (50, 9), 0.1, 40)
    assert np.diff(states[:, 4]).max() <= 0.06 + 1e-6
    assert states[-1, 4] == F(0.667)
    assert states[-1, 3] == 40
    assert run((0, 0, 0, 0, 0), 4.5, (-50, 0), 0.1, 40)[-1, 3] == -40


def test_inversion_recovers_the_command():
    """S47: for motion of the model itself the acceleration and angle that made it come back, to 1e-4."""
    generator = np.random.default_rng(2)
    for _ in range(2_000):
        heading, speed, steering = generator.uniform([-3.1, 2, -0.6], [3.1, 20, 0.6]).astype(np.float32)
        speed *= F(generator.choice([-1, 1]))
        length, a, dt = F(4.5), F(generator.uniform(-4, 4)), F(0.1)
        # float64 poses: in float32 the rounding of a position would be read as acceleration.
        x, y, theta, v, _ = naive_classic(
            0.0, 0.0, float(heading), float(speed), float(steering), 4.5, float(a), float(steering), 0.1
        )
        accel, angle = invert_heading(F(0), F(0), heading, speed, length, F(x), F(y), F(theta), dt)
        if abs(v) * 0.1 < 0.05:
            continue
        assert accel == pytest.approx(
            a, abs=2e-3
        )  # (v' - v) / dt amplifies float32 rounding of v (2e-6) and D by 10-100
        assert angle == pytest.approx(steering, abs=1e-4 + 3e-6 / (abs(v) * 0.1))


def test_inversion_brakes_to_rest_where_the_log_stands():
    """S47: below 0.02 m there is no direction to read; the vehicle is brought to rest with the wheels straight."""
    assert invert_heading(F(0), F(0), F(0.3), F(2), F(4.5), F(0.01), F(0), F(0.3), F(0.1)) == (F(-20), F(0))


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


def test_wrap_keeps_the_bits_of_a_wrapped_angle():
    """Replay is bit-equal only because an angle in (-pi, pi] is not touched (S55)."""
    for angle in np.random.default_rng(4).uniform(-np.pi, np.pi, 1000).astype(np.float32):
        assert wrap(angle) == angle
    assert wrap(F(np.pi)) == F(np.pi)
    assert wrap(F(-np.pi)) == F(np.pi)
    assert wrap(F(7.0)) == pytest.approx(7.0 - 2 * np.pi, abs=1e-6)

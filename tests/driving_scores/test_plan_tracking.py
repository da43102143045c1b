"""The car that tracks a plan: where it must follow exactly, where it must converge, and what it cannot do."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.errors import ProtocolError
from skidpad.evaluation.metrics.plan_tracking import REAR_AXLE_SHARE, WHEELBASE_SHARE, command, profile, tracked

T = np.arange(61) * 0.1
ZERO = np.zeros(61)
LENGTH = 4.5


@pytest.mark.parametrize("speed", [0.0, 0.1, 3.0, 25.0])
def test_straight_plan_at_its_own_speed_is_driven_exactly(speed: float) -> None:
    """Nothing to correct, so nothing is: a standing car does not creep, a fast one does not weave."""
    driven = tracked(speed * T, ZERO, ZERO, speed=speed, length=LENGTH)
    assert driven.x == pytest.approx(speed * T, abs=1e-3)
    assert np.abs(driven.y).max() < 1e-9
    assert driven.speed == pytest.approx(np.full(61, speed), abs=1e-3)


def test_plan_beside_the_car_is_approached() -> None:
    """A plan that jumps 1 m aside after its first pose: half of it in 1.5 s, within 0.2 m after 6 s, and at most a
    quarter too far: a tracker that turned away, or swung, would score a good plan badly."""
    driven = tracked(10 * T, np.where(T > 0, 1.0, 0.0), ZERO, speed=10.0, length=LENGTH)
    assert driven.y[15] > 0.5
    assert driven.y.max() < 1.25
    assert abs(driven.y[-1] - 1.0) < 0.2
    mirrored = tracked(10 * T, np.where(T > 0, -1.0, 0.0), ZERO, speed=10.0, length=LENGTH)
    assert mirrored.y == pytest.approx(-driven.y, abs=1e-9)


def test_circle_of_the_rear_axle_is_held() -> None:
    """A bicycle turns about a point beside its rear axle: 8 m/s on 25 m. The wheels are straight at first,
    which costs a metre of radius; half of that is left after 4.5 s, a tenth after 5.5 s."""
    angle, axle = 8 * T / 25, REAR_AXLE_SHARE * LENGTH
    x = 25 * np.sin(angle) + axle * np.cos(angle)
    y = 25 - 25 * np.cos(angle) + axle * np.sin(angle)
    driven = tracked(x, y, angle, speed=8.0, length=LENGTH)
    radius = np.hypot(driven.x - axle * np.cos(driven.heading), driven.y - axle * np.sin(driven.heading) - 25)
    assert np.abs(radius - 25).max() < 1.1
    assert np.abs(radius[45:] - 25).max() < 0.5
    assert np.abs(radius[55:] - 25).max() < 0.12


def test_plan_that_slows_is_followed_in_speed() -> None:
    """Speed is tracked a second ahead, position is not: at -2 m/s^2 the car is within 1 m/s of the plan throughout."""
    plan = np.where(T < 4, 10 - 2 * T, 2.0)
    driven = tracked(np.where(T < 4, 10 * T - T**2, 24 + 2 * (T - 4)), ZERO, ZERO, speed=10.0, length=LENGTH)
    assert np.abs(driven.speed - plan).max() < 1.0


def test_profile_of_a_smooth_plan_is_the_plan() -> None:
    """Constant speed and curvature have neither jerk nor curvature rate, so the penalties leave them alone. Chords of
    0.8 m on a circle of 25 m are 1.3e-4 shorter than along the first heading."""
    angle = 8 * T / 25
    speed, curvature = profile(25 * np.sin(angle), 25 - 25 * np.cos(angle), angle, 0.1)
    assert speed == pytest.approx(np.full(60, 8.0), rel=1e-3)
    assert curvature == pytest.approx(np.full(60, 1 / 25), rel=1e-3)


def test_profile_calms_noise() -> None:
    """5 cm of noise in positions is 0.7 m/s in their differences; the car must not be jerked about for it."""
    noisy = 10 * T + np.random.default_rng(0).normal(0, 0.05, 61)
    speed, _ = profile(noisy, ZERO, ZERO, 0.1)
    assert np.diff(noisy).std() / 0.1 > 0.5
    assert speed.std() < 0.25


def test_command_by_hand() -> None:
    """2 m/s to gain over a second: 10 x 2 / (10 + 1). On the plan's line nothing is steered; left of it to the right.
    Both below 0.2 m/s: half the difference."""
    wheelbase, straight = WHEELBASE_SHARE * LENGTH, np.zeros(10)
    acceleration, rate = command(8.0, 0.0, 0.0, 0.0, 10.0, straight, wheelbase, 0.1)
    assert (acceleration, rate) == (pytest.approx(20 / 11), 0.0)
    assert command(8.0, 0.5, 0.0, 0.0, 8.0, straight, wheelbase, 0.1)[1] < 0
    assert command(8.0, 0.0, 0.1, 0.0, 8.0, straight, wheelbase, 0.1)[1] < 0
    assert command(8.0, 0.0, 0.0, 0.0, 8.0, straight + 0.05, wheelbase, 0.1)[1] > 0
    assert command(0.1, 1.0, 0.0, 0.0, 0.0, straight, wheelbase, 0.1) == (pytest.approx(-0.05), 0.0)


def test_heading_may_pass_half_a_turn() -> None:
    """Style 9.3: the same plan turned to drive towards -x, headings on both sides of pi."""
    y = 0.05 * np.sin(T)
    heading = np.arctan2(0.05 * np.cos(T), 10.0)
    here = tracked(10 * T, y, heading, speed=10.0, length=LENGTH)
    turned = np.remainder(heading + np.pi + np.pi, 2 * np.pi) - np.pi
    there = tracked(-10 * T, -y, turned, speed=10.0, length=LENGTH)
    assert there.x == pytest.approx(-here.x, abs=1e-6)
    assert there.y == pytest.approx(-here.y, abs=1e-6)


def test_one_pose_is_no_plan() -> None:
    """Said, not scored."""
    with pytest.raises(ProtocolError, match="expected 2 or more"):
        tracked(np.zeros(1), np.zeros(1), np.zeros(1), speed=1.0, length=LENGTH)
    short = tracked(np.array([0.0, 1.0]), np.zeros(2), np.zeros(2), speed=10.0, length=LENGTH)
    assert short.x[-1] == pytest.approx(1.0, abs=1e-2)

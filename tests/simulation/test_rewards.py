"""Reward terms: one hand-computed case per term and branch (S97 to S99)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skidpad.scenes.events import Event
from skidpad.settings.schema import CompatSettings, EnvSettings, RewardSettings
from skidpad.simulation import state as at
from skidpad.simulation.coefficients import COEF_ROWS, coefficient_table
from skidpad.simulation.kernels.coefficients import draw_coefficients
from skidpad.simulation.kernels.rewards import centring, log_distance, progress, reward_agent
from skidpad.simulation.rewards import TERM_COUNT, TERMS
from skidpad.simulation.stage import parameters

F = np.float32


class Driver:
    """One agent on a lane, centred and at rest, whose step is rewarded by the settings."""

    def __init__(self, dt=0.1, compat="none", **weights) -> None:
        settings = EnvSettings(reward=RewardSettings(**weights), compat=CompatSettings(reward=compat))
        self.parameters = parameters(settings, round(dt * 1e6), False)
        self.coef = np.zeros((COEF_ROWS, 1), F)
        draw_coefficients(
            0, 1, 0, 0, np.zeros(1, np.int32), np.zeros(1, np.uint8), coefficient_table(settings), self.coef
        )
        self.f4 = np.zeros((len(at.FLOAT_STATE), 1), F)
        self.i4 = np.zeros((len(at.INT_STATE), 1), np.int32)
        self.u1 = np.zeros((len(at.BYTE_STATE), 1), np.uint8)
        self.i4[at.AGE] = 2
        self.on_lane(0.0)

    def on_lane(self, theta, offset=0.0) -> Driver:
        """Put it on a lane with this heading error."""
        self.f4[at.LANE_HEADING_ERROR], self.f4[at.LANE_OFFSET] = theta, offset
        self.f4[at.LANE_COS], self.f4[at.LANE_SIN] = math.cos(theta), math.sin(theta)
        self.i4[at.LANE] = 0
        return self

    def off_lane(self) -> Driver:
        """Take it off any lane, as the lane kernel leaves the state."""
        self.on_lane(0.0).i4[at.LANE] = -1
        return self

    def set(self, **fields) -> Driver:
        """Write state rows by name."""
        for name, value in fields.items():
            for table, block in ((at.FLOAT_STATE, self.f4), (at.INT_STATE, self.i4), (at.BYTE_STATE, self.u1)):
                for row, field in enumerate(table):
                    if field.name == name:
                        block[row] = value
        return self

    def terms(self, events=0, travelled=0.0, log_error=0.0):
        """name -> term of one step; their sum is what the kernel returns (S97)."""
        terms = np.full(TERM_COUNT, np.nan, F)
        blocks = (self.f4, self.i4, self.u1, self.coef, self.parameters)
        centred = np.zeros(1, F)
        centring(0, 1, self.f4, self.coef, centred)
        total = reward_agent(0, np.uint32(events), *blocks, F(travelled), F(log_error), centred[0], terms)
        assert total == pytest.approx(terms.astype(np.float64).sum(), rel=1e-6, abs=1e-9)
        return {term.name: float(value) for term, value in zip(TERMS, terms, strict=True)}

    def only(self, name, **step):
        """One term of a step."""
        return self.terms(**step)[name]


def close(value):
    """Equal up to float32 rounding."""
    return pytest.approx(value, rel=2e-6, abs=1e-10)


def test_collision():
    """-(w + 0.1 |v|) at any kind of contact, forwards or backwards; nothing without one."""
    driver = Driver(collision=1.2)
    for event in (Event.COLLISION_VEHICLE, Event.COLLISION_VRU, Event.COLLISION_STATIC):
        assert driver.set(speed=5.0).only("collision", events=event) == close(-1.7)
        assert driver.set(speed=-5.0).only("collision", events=event) == close(-1.7)
    assert driver.only("collision", events=Event.OFFROAD | Event.HIT_FROM_BEHIND) == 0


def test_a_contact_of_twenty_steps_is_charged_once():
    """S99: the event stands at the step in which a contact begins; under `collision_each_step` each of the 20 steps is
    charged. The same holds for lasting off-road contact."""
    steps = [(Event.COLLISION_VEHICLE | Event.OFFROAD, 1)] + [(Event.OFFROAD, 1)] * 19 + [(0, 0)] * 3
    for each, count in ((False, 1), (True, 20)):
        driver = Driver(collision_each_step=each)
        found = [driver.set(touching=touching).terms(events=events) for events, touching in steps]
        assert sum(step["collision"] for step in found) == close(-1.5 * count)
        assert sum(step["off-road"] for step in found) == close(-1.5 * count)
        # Back on the road and off again: charged again.
        assert driver.terms(events=Event.OFFROAD)["off-road"] == close(-1.5)


def test_stop_lines():
    """-w per red light or stop sign passed, both in one step twice; failing to yield has its own weight."""
    driver = Driver(stop_line=0.7, not_yielding=0.3)
    assert driver.only("stop line", events=Event.RED_LIGHT) == close(-0.7)
    assert driver.only("stop line", events=Event.STOP_SIGN) == close(-0.7)
    assert driver.only("stop line", events=Event.STOP_SIGN | Event.RED_LIGHT) == close(-1.4)
    assert driver.terms(events=Event.YIELD) | {"stop line": 0} == driver.terms(events=Event.YIELD)
    assert driver.only("not yielding", events=Event.YIELD) == close(-0.3)
    assert Driver().only("not yielding", events=Event.YIELD) == 0


def test_goals():
    """+w per paid goal; a goal that is not paid (passed too fast) gives nothing."""
    driver = Driver(goal=0.8)
    assert driver.set(goals_paid=2).only("goal", events=Event.GOAL) == close(1.6)
    assert driver.set(goals_paid=0).only("goal", events=Event.GOAL) == 0


def test_lane_align():
    """w dt (min(cos, 0) + w_v min(v cos, 0) + 0.0025 (1 - |theta| / (pi/2))): a bonus along the lane, a cost against it
    that grows with speed, both by the second."""
    driver = Driver(lane_align=0.02, velocity_align=0.5)
    assert driver.on_lane(0.5).set(speed=8.0).only("lane align") == close(
        0.02 * 0.1 * 0.0025 * (1 - 0.5 / (math.pi / 2))
    )
    theta = -2.5
    want = math.cos(theta) + 0.5 * 8 * math.cos(theta) + 0.0025 * (1 - 2.5 / (math.pi / 2))
    assert driver.on_lane(theta).only("lane align") == close(0.002 * want)
    # Reversing along the lane: heading with it, motion against it.
    want = 0.5 * -3 * math.cos(0.1) + 0.0025 * (1 - 0.1 / (math.pi / 2))
    assert driver.on_lane(0.1).set(speed=-3.0).only("lane align") == close(0.002 * want)


def test_lane_centre():
    """-w dt ([cos > 0.5] |x - c| - 0.05 exp(0.5 - |x - c|)): least at the bias; across the lane the bonus only."""
    driver = Driver(lane_centre=0.004, centre_bias=0.3)
    want = -0.0004 * (0.9 - 0.05 * math.exp(0.5 - 0.9))
    assert driver.on_lane(0.2, offset=1.2).only("lane centre") == close(want)
    assert driver.on_lane(0.2, offset=-0.6).only("lane centre") == close(want)
    assert driver.on_lane(1.2, offset=1.2).only("lane centre") == close(0.0004 * 0.05 * math.exp(-0.4))
    assert driver.on_lane(0.0, offset=0.3).only("lane centre") == close(0.0004 * 0.05 * math.exp(0.5))


def test_velocity():
    """w dt max(cos, 0) above 2.5 m/s: not at it, not against the lane."""
    driver = Driver(velocity=0.003)
    assert driver.on_lane(0.4).set(speed=2.6).only("velocity") == close(0.0003 * math.cos(0.4))
    assert driver.set(speed=2.5).only("velocity") == 0
    assert driver.on_lane(2.0).set(speed=5.0).only("velocity") == 0


def test_without_a_lane_there_is_nothing_to_align_with():
    """The state without a lane looks like perfect alignment; it must not be paid for."""
    found = Driver().off_lane().set(speed=10.0).terms()
    assert (found["lane align"], found["lane centre"], found["velocity"]) == (0, 0, 0)


def test_comfort():
    """-w dt for each broken limit of S80, on either side; not in the step that brought the agent."""
    driver = Driver(comfort=0.04)
    assert driver.only("comfort") == 0
    for field, value in (("accel_long", 3.1), ("accel_long", -3.1), ("accel_lat", -3.1), ("jerk_long", 5.1)):
        one = Driver(comfort=0.04).set(**{field: value})
        assert one.only("comfort") == close(-0.004)
        assert one.set(**{field: math.copysign(abs(value) - 0.2, value)}).only("comfort") == 0
    assert driver.set(accel_long=-4, accel_lat=4, jerk_long=-9).only("comfort") == close(-0.012)
    assert driver.set(age=0).only("comfort") == 0


def test_overspeed_reverse_and_time():
    """-w dt on the overspeed event; below -0.01 m/s; while moving."""
    driver = Driver(overspeed=0.06, reverse=0.007, timestep=3e-5)
    assert driver.only("overspeed", events=Event.OVERSPEED) == close(-0.006)
    assert driver.set(speed=-0.02).only("reverse") == close(-0.0007)
    assert driver.set(speed=-0.01).only("reverse") == 0
    assert driver.set(speed=-0.2).only("timestep") == close(-3e-6)
    assert driver.set(speed=0.1).only("timestep") == 0


def test_progress_and_log_distance():
    """Metres along a lane of the route, and distance to the log by the second; without weight, nothing."""
    driver = Driver(progress=0.5, ade=-0.2)
    assert driver.only("progress", travelled=1.5) == close(0.75)
    assert driver.only("ade", log_error=2.0) == close(-0.04)
    found = Driver().terms(travelled=1.5, log_error=2.0)
    assert (found["progress"], found["ade"]) == (0, 0)


def test_progress_is_along_the_lane():
    """Motion is projected on the lane's direction, whatever the heading, backwards counts against, and a lane off the
    route does not count."""
    driver = Driver()
    heading, lane = 0.7, 0.2
    driver.set(cos=math.cos(heading), sin=math.sin(heading), x=4.0, y=3.0, before_x=3.0, before_y=2.5).on_lane(
        heading - lane
    )
    want = 1.0 * math.cos(lane) + 0.5 * math.sin(lane)
    assert progress(0, driver.f4, driver.i4, np.array([5, 0, 3], np.int32)) == close(want)
    assert progress(0, driver.f4, driver.i4, np.array([5, 3], np.int32)) == 0
    driver.set(x=2.0, y=2.0)
    assert progress(0, driver.f4, driver.i4, np.array([0], np.int32)) == close(-want)


def test_distance_to_the_log():
    """The log's pose at the same time; 0 where the track is absent."""
    driver = Driver().set(x=3.0, y=4.0)
    log = np.zeros((2, 1, at.LOG_COLUMNS), F)
    log[0, 0, at.LOG_LENGTH] = 4.0
    pose = np.zeros(at.LOG_COLUMNS, F)
    assert log_distance(0, 0, driver.f4, log, 0, F(0), F(0.1), pose) == 5
    assert log_distance(0, 0, driver.f4, log, 1, F(0), F(0.1), pose) == 0


def test_v2_has_three_terms():
    """S98: collision -0.5, off-road -0.2, goal 1 or 0.25 after a respawn, and no other term whatever happens."""
    everything = Event.COLLISION_VEHICLE | Event.OFFROAD | Event.RED_LIGHT | Event.OVERSPEED | Event.YIELD | Event.GOAL
    driver = Driver(compat="v2", goal=7.0, comfort=0.9, progress=3.0, not_yielding=1.0, ade=1.0)
    driver.on_lane(2.0, offset=1.0).set(speed=-9.0, accel_long=9.0, goals_paid=1)
    found = driver.terms(events=everything, travelled=1.0, log_error=1.0)
    assert {name: value for name, value in found.items() if value} == {
        "collision": -0.5,
        "off-road": close(-0.2),
        "goal": 1.0,
    }
    assert driver.set(ghost=1).only("goal") == 0.25


def test_v3_charges_comfort_and_overspeed_by_the_step():
    """S98: those two terms do not know the length of the step, the others do."""
    for dt in (0.1, 0.3):
        plain, v3 = Driver(dt), Driver(dt, compat="v3")
        for driver in (plain, v3):
            driver.set(speed=5.0, accel_long=4.0).on_lane(2.0)
        a, b = plain.terms(events=Event.OVERSPEED), v3.terms(events=Event.OVERSPEED)
        assert b["comfort"] == close(-0.05)
        assert b["overspeed"] == close(-0.05)
        assert a["comfort"] == close(-0.05 * dt)
        assert {name for name in a if a[name] != b[name]} == {"comfort", "overspeed"}


def test_rates_do_not_depend_on_the_step():
    """S98: the same 9.9 s of driving, sampled at 0.05, 0.1 and 0.3 s, is worth the same in every rate term within 5 %,
    and an event is worth the same at any of them."""

    def worth(dt):
        totals = dict.fromkeys((term.name for term in TERMS), 0.0)
        driver = Driver(dt)
        for t in (np.arange(round(9.9 / dt)) + 0.5) * dt:
            fast = 2.1 < t < 5.1
            driver.on_lane(2.5 if 3.0 < t < 6.0 else 0.4 * math.sin(t), offset=math.sin(t / 2))
            driver.set(speed=-3.0 if t > 7.5 else 6 + math.cos(t), accel_long=4.0 if t < 6 else 0.0)
            for name, value in driver.terms(events=Event.OVERSPEED if fast else 0).items():
                totals[name] += value
        return totals

    fine, middle, coarse = worth(0.05), worth(0.1), worth(0.3)
    for term in TERMS:
        if term.kind == "rate" and term.name != "ade":
            assert fine[term.name] != 0
            assert middle[term.name] == pytest.approx(fine[term.name], rel=0.05)
            assert coarse[term.name] == pytest.approx(fine[term.name], rel=0.05)
    for dt in (0.05, 0.3):
        assert Driver(dt).only("off-road", events=Event.OFFROAD) == close(-1.5)

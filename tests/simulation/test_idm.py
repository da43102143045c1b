"""IDM keeps its distance, follows its lane through the dynamics, and stops where one stops (S102)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from worlds import ROWS, car, case_of, history, simulator, straight_road

from skidpad.scenes.events import Event
from skidpad.scenes.scene import SIGNAL_STOP, STATE_GREEN, STATE_RED
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import CompatSettings, EnvSettings, IdmSettings
from skidpad.simulation.kernels.idm import follow_acceleration
from skidpad.simulation.stage import parameters

STAY = EnvSettings(beyond_log="stay")
BAD = Event.COLLISION_VEHICLE | Event.OFFROAD | Event.LANE_LOST


def long_log(x, speed, rows):
    """A car whose log has more rows than the usual 91."""
    t = np.arange(rows) * 0.1
    track = car(x, speed=speed)
    for name in ("heading", "vx", "vy", "valid"):
        track[name] = np.full(rows, track[name][0])
    return track | {"x": x + speed * t, "y": np.zeros(rows), "valid": np.ones(rows, bool)}


def test_acceleration_is_the_published_formula():
    """Treiber 2000, equation 2, with the settings' numbers: the twin, term by term."""
    settings = EnvSettings(
        idm=IdmSettings(max_acceleration=1.4, comfortable_deceleration=2.0, min_gap=1.5, headway=1.2)
    )
    numbers = parameters(settings, 100_000, False)
    for v, v0, gap, lead in np.random.default_rng(5).uniform([0, 5, 0.5, 0], [30, 30, 80, 30], (500, 4)):
        wanted = 1.5 + max(0.0, v * 1.2 + v * (v - lead) / (2 * math.sqrt(1.4 * 2.0)))
        want = 1.4 * (1 - (v / v0) ** 4 - (wanted / gap) ** 2)
        got = follow_acceleration(*np.float32([v, v0, gap, lead]), numbers)
        assert got == pytest.approx(want, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("speed", [4.0, 8.0])
def test_equilibrium_gap(speed):
    """Behind a leader at constant speed the gap settles where the acceleration is zero, within 2 %."""
    rows = 900
    scene = straight_road([long_log(30.0, speed, rows), long_log(60.0, speed, rows)], length=1000.0, limit=10.0)
    sim = simulator(scene, cases=[case_of(scene, ego=0)], substitute="idm")
    found = history(sim)
    gap = found["x"][-1, 1] - found["x"][-1, 0] - 4.5
    assert found["speed"][-1, 0] == pytest.approx(speed, rel=0.01)
    assert gap == pytest.approx((1.0 + 1.5 * speed) / math.sqrt(1 - (speed / 10.0) ** 4), rel=0.02)


def test_platoon_is_stable():
    """Twenty cars behind one that brakes and drives on: nobody touches, and the disturbance dies out."""
    rows = 1000
    pace = np.full(rows, 8.0)
    pace[100:140] = np.linspace(8, 3, 40)
    pace[140:180] = 3.0
    pace[180:220] = np.linspace(3, 8, 40)
    leader = long_log(500.0, 8.0, rows) | {"x": 500.0 + np.concatenate([[0], np.cumsum(pace[1:] * 0.1)]), "vx": pace}
    platoon = [long_log(500.0 - 21.5 * n, 8.0, rows) for n in range(1, 21)]
    scene = straight_road([leader, *platoon], length=1400.0, limit=10.0, sdc=0)
    settings = EnvSettings(sdc_controller="replay", vehicle_controller="idm")
    found = history(simulator(scene, settings))
    assert not (found["events"] & np.uint32(BAD)).any()
    assert found["speed"].min() > 0
    assert found["speed"][-1, 1:] == pytest.approx(8.0, abs=0.4)
    slowest = found["speed"][:, 1:].min(axis=0)
    assert slowest[-1] > slowest[0]


@pytest.mark.parametrize("name", ["curve", "roundabout", "merge", "crossing"])
def test_stays_on_the_road(name):
    """S102: it drives through the dynamics, so it could leave the road; it does not."""
    scene = synthetic(name)
    sim = simulator(scene, STAY, substitute="idm")
    found = history(sim, names=("events", "lane_offset", "speed", "status"))
    assert not (found["events"] & np.uint32(Event.OFFROAD)).any()
    assert np.abs(found["lane_offset"]).max() < 1.0
    assert found["speed"].max() > 3.0


def test_rails_come_nearer_at_half_a_metre_a_second():
    """S102, compat: on rails a car beside its line and askew moves along it by its speed, half a metre a second nearer
    and half a radian a second straighter; the twin is two lines."""
    scene = straight_road([car(50.0, y=1.0, speed=8.0, heading=0.3)])
    settings = STAY.model_copy(update={"compat": CompatSettings(idm="rails")})
    found = history(simulator(scene, settings, substitute="idm"), names=("x", "y", "heading", "speed", "lane_offset"))
    steps = np.arange(len(found["x"]))
    assert found["y"][:, 0] == pytest.approx(np.maximum(1.0 - 0.05 * steps, 0.0), abs=1e-4)
    assert found["heading"][:, 0] == pytest.approx(np.maximum(0.3 - 0.05 * steps, 0.0), abs=1e-4)
    assert np.diff(found["x"][:, 0]) == pytest.approx(found["speed"][1:, 0] * 0.1, abs=2e-3)


@pytest.mark.parametrize("name", ["curve", "roundabout"])
def test_rails_never_leave_the_line(name):
    """S102, compat: whatever the bend asks for, the car slides along the centre line as fast as IDM likes, beyond the
    lateral acceleration that tyres and steering would follow; nothing is jumped over."""
    settings = STAY.model_copy(update={"compat": CompatSettings(idm="rails")})
    sim = simulator(synthetic(name), settings, substitute="idm")
    found = history(sim, names=("x", "y", "heading", "speed", "lane_offset", "events", "accel_long", "steering"))
    assert np.abs(found["lane_offset"]).max() < 0.2  # where lanes join
    assert not (found["events"] & np.uint32(Event.OFFROAD | Event.LANE_LOST)).any()
    turned = np.remainder(np.diff(found["heading"], axis=0) + np.pi, 2 * np.pi) - np.pi
    assert 0.02 < np.abs(turned).max() <= 0.05 + 1e-5
    way = np.hypot(np.diff(found["x"], axis=0), np.diff(found["y"], axis=0))
    assert way == pytest.approx(found["speed"][1:] * 0.1, abs=0.03)
    assert found["accel_long"][1:] == pytest.approx(np.diff(found["speed"], axis=0) / 0.1, abs=1e-3)
    assert not found["steering"].any()


def test_returns_to_its_lane():
    """Pure pursuit brings a vehicle that starts beside the centre line, and askew, back onto it."""
    scene = straight_road([car(50.0, y=1.0, speed=8.0, heading=0.15)])
    found = history(simulator(scene, STAY, substitute="idm"), names=("lane_offset", "lane_heading_error", "events"))
    assert abs(found["lane_offset"][-1, 0]) < 0.1
    assert abs(found["lane_heading_error"][-1, 0]) < 0.02


def test_stops_at_red_and_goes_on_green():
    """S102: red lines are standing leaders; the front stays behind the line until it turns."""
    states = np.where(np.arange(ROWS) < 70, STATE_RED, STATE_GREEN)
    light = {"kind": 1, "line": [(200.0, 1.75, 0.0), (200.0, -1.75, 0.0)], "heading": 0.0, "states": states}
    scene = straight_road([car(165.0, speed=8.0)], signals=[light])
    found = history(simulator(scene, STAY, substitute="idm"))
    line = scene.signals.line[0, 0, 0]
    assert (found["x"][:71, 0] + 2.25 < line).all()
    assert found["speed"][70, 0] < 0.5
    assert found["speed"].min() >= 0
    assert found["speed"][-1, 0] > 1.0
    assert not (found["events"] & np.uint32(Event.RED_LIGHT)).any()


def test_stops_at_a_stop_sign_then_drives_on():
    """S102, S73: a stop of a second, then off; no violation."""
    sign = {"kind": SIGNAL_STOP, "line": [(80.0, 1.75, 0.0), (80.0, -1.75, 0.0)], "heading": 0.0}
    rows = 300
    scene = straight_road([long_log(40.0, 8.0, rows) | {"x": 40.0 + 0.5 * np.arange(rows)}], signals=[sign])
    found = history(simulator(scene, STAY, substitute="idm"))
    assert found["speed"].min() < 0.2
    assert found["x"][-1, 0] - 2.25 > scene.signals.line[0, 0, 0]
    assert not (found["events"] & np.uint32(Event.STOP_SIGN)).any()


def test_waits_behind_a_wall_without_backing_off():
    """Braking harder than rest needs would drive it backwards; closer than its gap, it stands where it came to rest."""
    scene = straight_road([car(165.0, speed=1.0), car(169.8)])
    found = history(simulator(scene, STAY, cases=[case_of(scene, ego=0)], substitute="idm"))
    assert found["speed"][:, 0].min() > -1e-6  # v + (-v / dt) dt, rounded
    assert found["speed"][-1, 0] == 0.0
    assert 0.0 < found["x"][-1, 1] - found["x"][-1, 0] - 4.5 < 0.3


def test_without_a_lane_it_brakes_to_rest():
    """S102: off every lane there is nothing to follow: 3 m/s^2 down to standstill, never backwards."""
    scene = straight_road([car(50.0, y=60.0, speed=8.0)])
    found = history(simulator(scene, STAY, substitute="idm"))
    assert found["speed"][10, 0] == pytest.approx(5.0, abs=1e-3)
    assert found["speed"].min() == 0.0
    assert found["speed"][-1, 0] == 0.0


def test_a_follower_does_not_brake_its_leader():
    """Bodies behind are not extended forwards: a fast car behind must leave the one ahead alone."""
    alone = straight_road([car(100.0, speed=8.0)])
    chased = straight_road([car(100.0, speed=8.0), car(80.0, speed=14.0)])
    runs = [
        history(
            simulator(scene, cases=[case_of(scene, ego=0)], substitute="idm", settings=EnvSettings(scenario_length=20))
        )
        for scene in (alone, chased)
    ]
    assert runs[0]["x"][:, 0].tobytes() == runs[1]["x"][:, 0].tobytes()

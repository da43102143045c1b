"""Log replay is the log: bit-equal at its rows, smooth between them, absent where it is (S55, S105, S106)."""

from __future__ import annotations

import numpy as np
import pytest
from bare_maps import shown
from worlds import DT_US, ROWS, car, case_of, history, simulator, straight_road

from skidpad.scenes.events import Status
from skidpad.scenes.scene import STATE_GREEN, STATE_RED, STATE_UNKNOWN
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation import state as at

POSE = ("x", "y", "z", "heading", "length", "width", "height")


def replayed(scene, **settings):
    """History of a world in which everybody follows the log."""
    sim = simulator(scene, EnvSettings(**settings), substitute="replay")
    return history(sim, names=(*POSE, "speed", "status"))


@pytest.mark.parametrize("name", ["straight", "curve", "crossing", "overpass"])
def test_rows_come_back_bit_by_bit(name):
    """At dt = log dt every pose of the log is reproduced exactly; an interpolation 'at 0' would round."""
    scene = synthetic(name)
    found = replayed(scene)
    there = scene.tracks.valid.T
    for field in POSE:
        want = np.where(there, getattr(scene.tracks, field).T, np.float32(0))
        assert found[field].tobytes() == np.ascontiguousarray(want).tobytes(), field
    assert ((found["status"] == Status.ACTIVE) == there).all()


def test_coarse_steps_take_every_third_row():
    """dt 0.3 on a 0.1 s log: exactly rows 0, 3, 6, ..."""
    scene = synthetic("curve")
    found = replayed(scene, dt=0.3)
    valid = scene.tracks.valid[:, ::3].T
    assert found["x"].shape[0] == 31
    assert found["x"][valid].tobytes() == scene.tracks.x[:, ::3].T[valid].tobytes()


def naive_between(track, row, share, dt):
    """Cubic Hermite of position, shortest arc of heading: S55 in float64."""
    a = {name: np.asarray(values, np.float64)[row] for name, values in track.items()}
    b = {name: np.asarray(values, np.float64)[row + 1] for name, values in track.items()}
    u = share
    weights = 2 * u**3 - 3 * u**2 + 1, u**3 - 2 * u**2 + u, -2 * u**3 + 3 * u**2, u**3 - u**2
    place = [
        weights[0] * a[p] + weights[1] * dt * a[v] + weights[2] * b[p] + weights[3] * dt * b[v]
        for p, v in (("x", "vx"), ("y", "vy"))
    ]
    turn = (b["heading"] - a["heading"] + np.pi) % (2 * np.pi) - np.pi
    return place[0], place[1], a["heading"] + u * turn


@pytest.mark.parametrize("dt", [0.05, 0.04])
def test_fine_steps_equal_the_twin(dt):
    """Between rows the pose is the cubic of S55, and even states are rows, bit by bit."""
    scene = synthetic("curve", seed=2)
    found = replayed(scene, dt=dt)
    tracks = scene.tracks
    for state in range(0, len(found["x"]), 7):
        row, rest = divmod(state * round(dt * 1e6), DT_US)
        for agent in range(tracks.count):
            if row + 1 >= ROWS or not tracks.valid[agent, row : row + 2].all():
                continue
            if rest == 0:
                assert found["x"][state, agent] == tracks.x[agent, row]
                continue
            track = {name: getattr(tracks, name)[agent] for name in ("x", "y", "vx", "vy", "heading")}
            x, y, heading = naive_between(track, row, rest / DT_US, DT_US * 1e-6)
            assert found["x"][state, agent] == pytest.approx(x, abs=3e-5)  # float32 at some 100 m
            assert found["y"][state, agent] == pytest.approx(y, abs=3e-5)
            turn = found["heading"][state, agent] - heading
            assert abs((turn + np.pi) % (2 * np.pi) - np.pi) < 1e-5


def test_heading_takes_the_short_way_round():
    """Between 3.1 and -3.1 rad a car turns by 0.08 rad, not by 6.2."""
    heading = np.where(np.arange(ROWS) % 2 == 0, 3.1, -3.1)
    scene = straight_road([car(100.0, heading=0.0, goal=(300.0, 0.0, 0.0)) | {"heading": heading}])
    found = replayed(scene, dt=0.05)
    assert (np.abs(found["heading"][:, 0]) > 3.09).all()


def test_size_is_that_of_the_nearest_row():
    """S5: sizes are per row; between rows the nearer one counts, never a mixture."""
    length = np.where(np.arange(ROWS) < 50, 4.0, 6.0)
    scene = straight_road([car(100.0, speed=5.0, length=length)])
    found = replayed(scene, dt=0.04)
    # State 123 is at 4.92 s, nearer to row 49; state 124 at 4.96 s, nearer to row 50.
    assert (found["length"][:124, 0] == 4.0).all()
    assert (found["length"][124:, 0] == 6.0).all()


def test_absent_is_absent():
    """A gap in the log is a gap in the world: no body, zero pose, and the agent comes back afterwards."""
    valid = np.ones(ROWS, bool)
    valid[20:30] = False
    scene = straight_road([car(50.0, speed=5.0, valid=valid), car(200.0, speed=5.0)])
    sim = simulator(scene, cases=[case_of(scene, ego=1)])
    found = history(sim, names=("x", "speed", "status", "heading", "lane"))
    assert (found["status"][20:30, 0] == Status.ABSENT).all()
    assert (found["status"][[19, 30], 0] == Status.ACTIVE).all()
    assert (found["x"][20:30, 0] == 0).all()
    assert (found["lane"][20:30, 0] == -1).all()


def test_a_static_agent_keeps_its_bits():
    """S106: who stands for ever has the same pose after the episode, and no speed, though its log drives."""
    scene = straight_road([car(50.0, speed=5.0), car(200.0, speed=8.0)])
    sim = simulator(scene, EnvSettings(vehicle_controller="static"), cases=[case_of(scene, ego=0)])
    found = history(sim)
    for name in ("x", "y", "heading"):
        assert (found[name][:, 1] == found[name][0, 1]).all(), name
    assert (found["speed"][:, 1] == 0).all()


def test_a_static_agent_stays_for_a_thousand_steps():
    """S106: far beyond its log too, in the last bit, and as everybody sees it: an observer who stands as well sees one
    row that never changes, with no speed in it."""
    scene = straight_road([car(50.0), car(60.0, speed=8.0)])
    settings = EnvSettings(
        vehicle_controller="static", scenario_length=1000, allow_beyond_log=True, beyond_log="stay", goal_source="route"
    )
    sim = simulator(scene, settings, cases=[case_of(scene, ego=0)])
    sim.reset()
    partners = sim.layout.block("partners")
    speed = [feature.name for feature in partners.features].index("speed")
    speeds = sim.layout.span("partners").start + speed + len(partners.features) * np.arange(partners.rows)
    x, y, heading = (sim.agent[name][1].copy() for name in ("x", "y", "heading"))
    for _ in range(1000):
        obs = sim.step(np.zeros((1, 2), np.float32)).obs
        assert (sim.agent["x"][1], sim.agent["y"][1], sim.agent["heading"][1]) == (x, y, heading)
        assert sim.agent["speed"][1] == 0 == np.abs(obs[0, speeds]).max()
    assert sim.done.all()


def test_lights_hold_for_two_seconds():
    """S105: a gap of 1 s keeps the last known state, a gap of 3 s becomes unknown after 2 s."""
    states = np.full(ROWS, STATE_RED)
    states[10:20] = STATE_UNKNOWN  # 1 s
    states[40:70] = STATE_UNKNOWN  # 3 s
    states[70:] = STATE_GREEN
    light = {"kind": 1, "line": [(200.0, 1.75, 0.0), (200.0, -1.75, 0.0)], "heading": 0.0, "states": states}
    scene = straight_road([car(50.0, speed=5.0)], signals=[light])
    table = shown(scene, at.LIGHTS_FIXED, steps=ROWS)[:, 0]
    assert (table[:60] == STATE_RED).all()  # row 39 + 2 s, inclusive
    assert (table[60:70] == STATE_UNKNOWN).all()
    assert (table[70:] == STATE_GREEN).all()
    assert (shown(scene, at.LIGHTS_FIXED, steps=31, dt_us=300_000)[:, 0] == table[::3]).all()
    assert (shown(scene, at.LIGHTS_FIXED, steps=21, start_row=35)[:, 0] == table[35:56]).all()


def test_lights_without_a_log_follow_their_programme():
    """S6: position (t - offset) mod cycle, t from log row 0, whatever row the world starts at."""
    light = {
        "kind": 1, "line": [(200.0, 1.75, 0.0), (200.0, -1.75, 0.0)], "heading": 0.0,
        "program": [(2.0, STATE_RED), (1.0, STATE_GREEN)], "cycle_offset": 0.5,
    }  # fmt: skip
    scene = straight_road([car(50.0, speed=5.0)], signals=[light])
    for start in (0, 7):
        table = shown(scene, at.LIGHTS_FIXED, steps=81, start_row=start)[:, 0]
        for state, got in enumerate(table):
            phase = ((start + state) * 100 - 500) % 3000
            assert got == (STATE_RED if phase < 2000 else STATE_GREEN), state

"""Goals and stop lines: swept over the step, once per passage, whatever is observed (S59, S72, S73, S77, S80)."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import ROWS, car, case_of, history, simulator, straight_road

from skidpad.scenes.events import Event
from skidpad.scenes.scene import SIGNAL_STOP, STATE_GREEN, STATE_OFF, STATE_RED, STATE_YELLOW
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.traffic import log_goals

LINE = {"line": [(200.0, 1.75, 0.0), (200.0, -1.75, 0.0)], "heading": 0.0}


def bits(found, event, agent=0):
    """States at which an agent has an event."""
    return np.flatnonzero(found["events"][:, agent] & np.uint32(event))


def light(state):
    """A light over the road at x = 200 that always shows one state, or one state per row."""
    return LINE | {"kind": 1, "states": np.broadcast_to(state, ROWS)}


def logged(scene, **settings):
    """History of a world that replays the log."""
    return history(simulator(scene, EnvSettings(**settings), substitute="replay"))


# ------------------------------------------------------------------------------------------------------- goals


def test_goals_are_spaced_in_rows_and_end_at_the_files():
    """S59: num_goals rows, evenly spaced; the last is the file's goal, wherever that is."""
    scene = straight_road([car(10.0, speed=3.0, goal=(350.0, 0.0, 0.0))])
    goals = log_goals(scene, np.array([0], np.int32), 0, 3)
    assert goals.assigned.tolist() == [3]
    assert goals.points[0, :, 0] == pytest.approx(
        [scene.tracks.x[0, 30], scene.tracks.x[0, 60], scene.tracks.goal[0, 0]]
    )
    late = log_goals(scene, np.array([0], np.int32), 30, 2)
    assert late.points[0, 0, 0] == scene.tracks.x[0, 60]


@pytest.mark.parametrize("name", ["straight", "curve", "crossing", "roundabout", "merge"])
def test_the_log_reaches_its_own_goals(name):
    """The truth check of goals: who follows the log passes through every point of it."""
    scene = synthetic(name)
    sim = simulator(scene, substitute="replay")
    found = history(sim)
    assert (found["goal_index"][-1][sim.scored(0)] == 3).all()
    assert (np.diff(found["goal_index"], axis=0) >= 0).all()


def test_no_speed_flies_past_a_goal():
    """S77: 30 m/s at dt 0.3 moves 9 m a step; a radius of 2 m is still met, once."""
    scene = straight_road([car(20.0, speed=30.0, goal=(204.5, 1.9, 0.0))], length=400.0)
    found = logged(scene, dt=0.3, num_goals=1)
    assert len(bits(found, Event.GOAL)) == 1
    assert found["goal_index"][-1, 0] == 1
    missed = straight_road([car(20.0, speed=30.0, goal=(204.5, 2.1, 0.0))])
    assert len(bits(logged(missed, dt=0.3, num_goals=1), Event.GOAL)) == 0


@pytest.mark.parametrize(("gate", "slow"), [(0.0, True), (29.0, False), (31.0, True)])
def test_speed_gate_is_that_of_the_last_goal(gate, slow):
    """S77: bit 10 tells a reach within the gate; goals before the last have none, and 0 switches it off."""
    scene = straight_road([car(20.0, speed=30.0, goal=(250.0, 0.0, 0.0))])
    found = logged(scene, num_goals=2, goal_speed=gate, scenario_length=85)
    first, last = bits(found, Event.GOAL)
    assert found["events"][first, 0] & Event.GOAL_SLOW
    assert bool(found["events"][last, 0] & Event.GOAL_SLOW) == slow


# ------------------------------------------------------------------------------------------------- red lights


@pytest.mark.parametrize(
    ("state", "charged"), [(STATE_RED, 1), (STATE_YELLOW, 0), (STATE_GREEN, 0), (STATE_OFF, 0), (0, 0)]
)
def test_only_red_counts_and_once(state, charged):
    """S72: yellow, green, off and unknown are no violation; red is one per passage, when the front crosses."""
    scene = straight_road([car(150.0, speed=10.0)], signals=[light(state)])
    found = logged(scene)
    states = bits(found, Event.RED_LIGHT)
    assert len(states) == charged
    if charged:
        line, half = scene.signals.line[0, 0, 0], 2.25
        assert found["x"][states[0] - 1, 0] + half < line <= found["x"][states[0], 0] + half


def test_yellow_counts_where_somebody_says_so():
    """S72: with `yellow_counts` yellow is charged like red, once; green, off and unknown still are not."""
    for state, charged in ((STATE_RED, 1), (STATE_YELLOW, 1), (STATE_GREEN, 0), (STATE_OFF, 0), (0, 0)):
        scene = straight_road([car(150.0, speed=10.0)], signals=[light(state)])
        assert len(bits(logged(scene, yellow_counts=True), Event.RED_LIGHT)) == charged


def test_the_light_that_counts_is_the_one_that_was_seen():
    """A light that turns red while the front crosses was green to whoever decided; the other way it was red."""
    scene = straight_road([car(150.0, speed=10.0)], signals=[light(STATE_RED)])
    crossing = bits(logged(scene), Event.RED_LIGHT)[0]
    for turned, charged in ((crossing, 0), (crossing - 1, 1)):
        states = np.where(np.arange(ROWS) >= turned, STATE_RED, STATE_GREEN)
        scene = straight_road([car(150.0, speed=10.0)], signals=[light(states)])
        assert len(bits(logged(scene), Event.RED_LIGHT)) == charged


@pytest.mark.parametrize("why", ["stops short", "reverses over it", "other road", "wrong heading"])
def test_no_charge(why):
    """S72: the front must cross, from upstream, along the light's direction, on a lane that it controls."""
    if why == "stops short":
        tracks = [car(150.0, speed=10.0) | {"x": np.minimum(150.0 + np.arange(ROWS), 197.0)}]
    elif why == "reverses over it":
        tracks = [car(230.0, speed=-10.0)]
    elif why == "other road":
        tracks = [car(150.0, y=-3.5, speed=10.0)]
    else:
        tracks = [car(250.0, speed=10.0, heading=np.pi)]
    scene = straight_road(tracks, lanes=2, signals=[light(STATE_RED)])
    assert len(bits(logged(scene), Event.RED_LIGHT)) == 0


@pytest.mark.parametrize(("heading", "charged"), [(0.7, 1), (0.9, 0)])
def test_only_who_drives_along_the_light_passes_it(heading, charged):
    """S72: within 45 degrees of the light's direction; a car that slides over the line sideways does not pass it."""
    scene = straight_road([car(150.0, speed=10.0) | {"heading": np.full(ROWS, heading)}], signals=[light(STATE_RED)])
    assert len(bits(logged(scene), Event.RED_LIGHT)) == charged


@pytest.mark.parametrize(("back", "charged"), [(1.0, 1), (8.0, 2)])
def test_rocking_over_the_line_is_one_passage(back, charged):
    """S72: once per light and passage; only who goes back well behind the line can pass it again."""
    x = 150.0 + np.arange(ROWS, dtype=np.float64)
    x[50:] -= back + 3.0  # the front is 2.25 m past the line at row 50
    scene = straight_road([car(150.0, speed=10.0) | {"x": x}], signals=[light(STATE_RED)])
    assert len(bits(logged(scene), Event.RED_LIGHT)) == charged


def test_cutting_in_just_past_the_line_counts():
    """S72: changing onto a controlled lane within 10 m past its red line is passing it; 30 m past it is not."""
    for past, charged in ((3.0, 1), (30.0, 0)):
        x = 150.0 + np.arange(ROWS)
        front = x + 2.25
        y = np.where(front < 200.0 + past, -3.5, 0.0)
        scene = straight_road([car(150.0, speed=10.0) | {"x": x, "y": y}], lanes=2, signals=[light(STATE_RED)])
        assert len(bits(logged(scene), Event.RED_LIGHT)) == charged


# ------------------------------------------------------------------------------------------------- stop signs


def drive_and_stand(stop_at, rows):
    """x [m] of a car from 150 m at 10 m/s that stands for `rows` rows with its centre at `stop_at`."""
    x = 150.0 + np.arange(ROWS, dtype=np.float64)
    reached = int(np.searchsorted(x, stop_at))
    x[reached : reached + rows] = stop_at
    x[reached + rows :] = stop_at + np.arange(1, ROWS - reached - rows + 1)
    speed = np.gradient(x, 0.1)
    speed[reached : reached + rows] = 0.0
    return {"x": x, "vx": speed}


@pytest.mark.parametrize(
    ("stop_at", "rows", "charged"),
    [(195.0, 0, 1), (195.0, 3, 1), (195.0, 7, 0), (170.0, 30, 1)],
    ids=["rolling", "too short", "correct", "long but far away"],
)
def test_stop_sign(stop_at, rows, charged):
    """S73: at least 0.5 s below 0.2 m/s within the last 10 m before the line."""
    scene = straight_road(
        [car(150.0, speed=10.0) | drive_and_stand(stop_at, rows)], signals=[LINE | {"kind": SIGNAL_STOP}]
    )
    assert len(bits(logged(scene), Event.STOP_SIGN)) == charged


# -------------------------------------------------------------------------------------------------- comfort


@pytest.mark.parametrize("dt", [0.1, 0.3])
def test_comfort_has_a_clause_for_each_quantity(dt):
    """S80: 3 m/s^2 along, 3 m/s^2 across, 5 m/s^3 of jerk, realised, at any dt."""
    scene = straight_road([car(50.0, speed=5.0)], length=800.0)
    settings = EnvSettings(dt=dt, beyond_log="stay")

    def under(command):
        sim = simulator(scene, settings)
        return bits(history(sim, lambda sim, _: np.float32([command(int(sim.steps_taken[0]))])), Event.COMFORT)

    assert len(under(lambda _: (0.0, 0.0))) == 0
    assert set(under(lambda _: (0.9, 0.0))) >= {2, 3, 4}  # 3.6 m/s^2
    assert 1 not in under(lambda _: (0.5, 0.0))  # the first step has no step before it to jerk against
    jerky = under(lambda step: (0.4 if step // 2 % 2 else -0.4, 0.0))  # 3.2 m/s^2 within a step
    assert len(jerky) > 3
    assert len(under(lambda _: (0.5, 0.02))) < len(under(lambda _: (0.5, 0.9)))


def test_events_of_one_step_do_not_hide_each_other():
    """Peer weakness 13: collision, off-road, red light and goal in one step are four bits."""
    x = 195.0 + np.array([0.0, 6.0, *([6.0] * (ROWS - 2))])
    y = np.array([0.0, 2.0, *([2.0] * (ROWS - 2))])
    tracks = [
        car(195.0, speed=10.0, goal=(201.0, 2.0, 0.0)) | {"x": x, "y": y, "vx": np.full(ROWS, 40.0)},
        car(203.0, y=0.5, heading=1.0),
    ]
    scene = straight_road(tracks, signals=[light(STATE_RED)])
    sim = simulator(scene, EnvSettings(num_goals=1), cases=[case_of(scene, ego=0)], substitute="replay")
    found = history(sim)
    wanted = Event.COLLISION_VEHICLE | Event.OFFROAD | Event.RED_LIGHT | Event.GOAL
    assert Event(int(found["events"][1, 0])) & wanted == wanted

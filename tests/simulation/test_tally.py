"""Time to collision and the running quantities of an episode (S79, S81, S68)."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from stage import Actor, World, bodies_of
from worlds import ROWS, car, case_of, coast, history, simulator, straight_road

from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.kernels.ttc import closest_times
from skidpad.simulation.tally import TALLY, TALLY_ROWS


def standing(x, y, heading, speed, **kind):
    """An actor as it is at the end of a step: where it stands, and how fast."""
    return Actor((x, y, heading), (x, y, heading), speed=speed, **kind)


def times(actors, gate=math.inf):
    """Time to collision of each."""
    world, time = World(len(actors), gate=gate), np.full(len(actors), 7, np.float32)
    found = world.step(actors)
    n = len(actors)
    closest_times(bodies_of(actors), 0, n, gate, *world.grid, found.touching, world.scratch, world.places, time)
    return time


CLOSED = {
    "head-on": (standing(0, 0, 0, 10), standing(34, 0, math.pi, 5), 30 / 15, 30 / 15),
    "following": (standing(0, 0, 0, 10), standing(24, 0, 0, 5), 20 / 5, math.inf),
    "followed": (standing(24, 0, 0, 5), standing(0, 0, 0, 10), math.inf, 20 / 5),
    "falling behind": (standing(0, 0, 0, 5), standing(24, 0, 0, 10), math.inf, math.inf),
    "beyond the horizon": (standing(0, 0, 0, 10), standing(34, 0, 0, 4.1), math.inf, math.inf),
    "beyond 50 m": (standing(0, 0, 0, 20), standing(51, 0, math.pi, 20), math.inf, math.inf),
    "crossing": (standing(0, 0, 0, 10), standing(20, -20, math.pi / 2, 10), 1.7, 1.7),
    "crossing late": (standing(0, 0, 0, 10), standing(20, -30, math.pi / 2, 10), math.inf, math.inf),
    "next lane": (standing(0, 0, 0, 10), standing(30, 3.5, math.pi, 10), math.inf, math.inf),
    "overlapping": (standing(0, 0, 0, 0), standing(1, 1, 1, 0), 0.0, 0.0),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name):
    """S79: head-on, following and crossing by hand, also turned by 2 rad; 4 x 2 m boxes."""
    a, b, mine, other = CLOSED[name]
    for turn in (0.0, 2.0):
        c, s = math.cos(turn), math.sin(turn)
        pair = [
            standing(p.stop[0] * c - p.stop[1] * s, p.stop[0] * s + p.stop[1] * c, p.stop[2] + turn, p.speed)
            for p in (a, b)
        ]
        assert times(pair).tolist() == pytest.approx([mine, other], abs=1e-4)


def test_levels_and_absent_bodies_are_apart():
    """S79 uses the swept test of S69: no contact across levels, or with the absent."""
    ego = standing(0, 0, 0, 10)
    assert times([ego, standing(14, 0, math.pi, 10, z=6.0)], gate=4.0)[0] == math.inf
    assert times([ego, standing(14, 0, math.pi, 10, after=False)])[0] == math.inf


@pytest.mark.parametrize("count", [12, 60])
def test_times_equal_the_twin(count):
    """S79 against sampled poses, pair by pair, on both paths of the agent grid."""
    rng = np.random.default_rng(count)
    compared = 0
    for _ in range(6):
        spread = 10.0 * math.sqrt(count)
        actors = [
            standing(*rng.uniform(-spread, spread, 2), rng.uniform(-math.pi, math.pi), rng.uniform(-2, 15))
            for _ in range(count)
        ]
        got = times(actors)
        for i, a in enumerate(actors):
            least, doubtful = math.inf, False
            for j, b in enumerate(actors):
                x, y = b.stop[0] - a.stop[0], b.stop[1] - a.stop[1]
                distance = math.hypot(x, y)
                bearing = abs(float(naive.wrap(math.atan2(y, x) - a.stop[2])))
                doubtful |= i != j and (abs(distance - 50) < 0.01 or abs(bearing - math.radians(170)) < 0.001)
                if i == j or distance > 50:
                    continue
                moves = [
                    naive.Move(
                        p.stop,
                        (
                            p.stop[0] + 5 * p.speed * math.cos(p.stop[2]),
                            p.stop[1] + 5 * p.speed * math.sin(p.stop[2]),
                            p.stop[2],
                        ),
                        4.0,
                        2.0,
                    )
                    for p in (a, b)
                ]
                gaps = naive.separations(*moves, 501)
                doubtful |= bool(-0.2 < gaps.min() < 0.05)
                if gaps.min() <= 0 and (bearing <= math.radians(170) or gaps[0] <= 0):
                    least = min(least, 5 * int(np.argmax(gaps <= 0)) / 500)
            if doubtful:
                continue
            compared += 1
            assert got[i] == pytest.approx(least, abs=0.011)
    assert compared > 20


def driven(scene, actions=None, **options):
    """Run to the end: the simulator, and per step what the twin sums."""
    settings = EnvSettings(**({"beyond_log": "stay"} | options.pop("settings", {})))
    sim = simulator(scene, settings, **options)
    names = ("x", "y", "speed", "status", "lane", "lane_offset", "lane_heading_error", "width")
    return sim, history(sim, actions, names)


def test_sums_equal_the_twin():
    """S81: every sum again from the recorded states, in float64, on traffic that swerves, speeds and turns round."""
    rng = np.random.default_rng(2)
    scene = straight_road(
        [car(40.0, speed=12.0), car(60.0, y=-3.5, speed=9.0), car(90.0, speed=6.0, heading=math.pi)],
        lanes=2,
        limit=8.0,
        length=600.0,
    )

    def actions(sim, _):
        return rng.uniform(-1, 1, (len(sim.row_world), 2)).astype(np.float32)

    sim, found = driven(scene, actions)
    way = np.hypot(np.diff(found["x"], axis=0), np.diff(found["y"], axis=0)).astype(np.float64)
    on, speed = found["lane"][1:] >= 0, found["speed"][1:].astype(np.float64)
    side = abs(found["lane_offset"][1:]) + found["width"][1:] / 2
    against = (speed > 2.5) & (np.cos(found["lane_heading_error"][1:]) < 0) & on
    excess = np.maximum(speed - 8.0, 0) * on
    log = np.stack([np.hypot(found["x"][k].T - scene.tracks.x[:, k], found["y"][k].T - scene.tracks.y[:, k])
                    for k in range(1, ROWS)])  # fmt: skip
    twin = {
        "distance": way.sum(axis=0),
        "active_s": np.full(3, 9.0),
        "log_error": log.sum(axis=0),
        "log_steps": np.full(3, 90.0),
        "wrong_way": (way * against).sum(axis=0),
        "multi_lane_s": 0.1 * ((side > 2.05) & on & (abs(speed) > 0.2)).sum(axis=0),
        "overspeed": 0.1 * excess.sum(axis=0),
    }
    for name, values in twin.items():
        assert sim.tally[name] == pytest.approx(values, rel=1e-4, abs=1e-3), name


def test_following_the_log_has_no_displacement():
    """S81: the floor of the ADE; the log is followed exactly and at every row."""
    sim, _ = driven(synthetic("curve"), substitute="replay")
    assert (sim.tally["log_error"] == 0).all()
    assert (sim.tally["log_steps"] > 0).any()


def test_least_time_to_collision_lasts():
    """S79, S81: a near miss is remembered after it is over, and a new episode forgets it."""
    scene = straight_road([car(40.0, speed=10.0), car(70.0, speed=6.0)])
    sim = simulator(scene, EnvSettings(scenario_length=20), cases=[case_of(scene, ego=0)], substitute="replay")
    sim.reset()
    seen = []
    while not sim.done.all():
        sim.step(coast(sim))
        seen.append(float(sim.tally["ttc"][0]))
    assert min(seen) == pytest.approx((30 - 4.5 - 0.4 * 20) / 4, abs=1e-2)
    assert sim.tally["min_ttc"][0] == min(seen)
    assert sim.tally["ttc"][1] == math.inf  # the follower is behind
    sim.reset()
    assert sim.tally["min_ttc"][0] == math.inf
    assert (sim.tally["distance"] == 0).all()


def test_no_quantity_is_dead():
    """S81: over a small corpus every exported quantity takes more than one value; one that nobody fills fails here."""
    assert len(TALLY) == TALLY_ROWS
    values = {quantity.name: set() for quantity in TALLY}
    rng = np.random.default_rng(4)
    close = straight_road([car(40.0, speed=20.0), car(90.0, speed=8.0, heading=math.pi)])
    for scene, steps in ((synthetic("crossing"), None), (close, None), (close, 8)):
        sim = simulator(scene, EnvSettings(beyond_log="stay", scenario_length=steps))
        sim.reset()
        while not sim.done.all():
            sim.step(rng.uniform(-1, 1, (len(sim.row_world), 2)).astype(np.float32))
            values["ttc"].update(np.round(sim.tally["ttc"], 3).tolist())
        for name, seen in values.items():
            seen.update(np.round(sim.tally[name], 3).tolist())
    assert [name for name, seen in values.items() if len(seen) < 2] == []

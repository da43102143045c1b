"""Yield signs: who takes another's right of way, by time to the point where their ways meet (S74)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from worlds import DT_US, ROWS, case_of, history, simulator

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.events import Event
from skidpad.scenes.scene import LANE_STREET, SIGNAL_YIELD, SUBTYPE_CAR, TYPE_VEHICLE
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings, RewardSettings
from skidpad.simulation.yields import yield_table

SLOW, FAST = 5.0, 10.0  # m/s, on the minor and on the main road
HALF_M, LINE_Y = 2.25, -6.0
CROSSED = 20  # the row in which the minor car's front has just passed its line


def along(points):
    """A track that is on each of the given (x, y, heading) in turn, one a row."""
    x, y, heading = np.array(points, float).T
    speed = np.hypot(np.gradient(x, 0.1), np.gradient(y, 0.1))
    return {
        "x": x, "y": y, "heading": heading, "vx": speed * np.cos(heading), "vy": speed * np.sin(heading),
        "length": 4.5, "width": 1.8, "height": 1.5, "valid": np.ones(ROWS, bool),
    }  # fmt: skip


def crossroads(main=(), *, turns_off=False):
    """A main road along x and a minor one along y that gives way at y = -6; their lines meet at the origin. The minor
    car's front passes its line in row CROSSED; `main` are distances [m] of the fronts of main cars before the origin in
    that row. `turns_off`: they leave the main road 4 m before the origin."""
    builder = SceneBuilder("crossroads", "test", "test", "1", "0" * 64, DT_US)

    def lane(key, *ends, junction=None):
        builder.lane(key, np.array([(*end, 0.0) for end in ends], float), width=3.5, kind=LANE_STREET,
                     speed_limit=13.9, junction=junction)  # fmt: skip

    lane("main in", (-150, 0), (-8, 0))
    lane("main through", (-8, 0), (8, 0), junction="x")
    lane("main out", (8, 0), (150, 0))
    lane("main right", (-8, 0), (-4, -4), (-4, -8), junction="x")
    lane("right out", (-4, -8), (-4, -120))
    lane("minor in", (0, -80), (0, -6))
    lane("minor through", (0, -6), (0, 8), junction="x")
    lane("minor out", (0, 8), (0, 120))
    for way in (
        "main in, main through, main out",
        "main in, main right, right out",
        "minor in, minor through, minor out",
    ):
        for one, other in itertools.pairwise(way.split(", ")):
            builder.connect(one, other)
    line = [(-1.75, LINE_Y, 0.0), (1.75, LINE_Y, 0.0)]
    builder.signal(SIGNAL_YIELD, ["minor in"], line=line, heading=np.pi / 2)
    t = (np.arange(ROWS) - CROSSED) * 0.1
    builder.track(
        1, TYPE_VEHICLE, SUBTYPE_CAR, **along([(0.0, LINE_Y + 0.2 - HALF_M + SLOW * s, np.pi / 2) for s in t])
    )
    for number, before in enumerate(main):
        centre = -before - HALF_M + FAST * t
        points = [(x, 0.0, 0.0) for x in centre]
        if turns_off:
            points = [(x, 0.0, 0.0) if x < -8 else (-4.0, min(-8.0, -8.0 - (x + 8)), -np.pi / 2) for x in centre]
        builder.track(2 + number, TYPE_VEHICLE, SUBTYPE_CAR, **along(points))
    return builder.finish(has_z=False)


def failures(scene, **settings):
    """States at which the minor car took somebody's right of way."""
    sim = simulator(scene, EnvSettings(**settings), cases=[case_of(scene, ego=0)], substitute="replay")
    return np.flatnonzero(history(sim, names=("events",))["events"][:, 0] & np.uint32(Event.YIELD)).tolist()


@pytest.mark.parametrize("gap", [-3.0, -1.4, -1.0, 0.0, 1.0, 1.4, 1.6, 3.0])
def test_who_comes_within_a_second_and_a_half_goes_first(gap):
    """S74: the minor front has 5.8 m to the point, 1.16 s; another is there `gap` seconds later, by the same measure.
    Charged once, when the line is passed."""
    mine = (-LINE_Y - 0.2) / SLOW
    scene = crossroads([FAST * (mine + gap)])
    # At -1.4 its front is past the point, and its body still on it.
    assert failures(scene) == ([CROSSED] if abs(gap) <= 1.5 else [])


def test_nobody_there():
    """S74: an empty main road, one with a car far away, and one with a car that has long passed."""
    assert failures(crossroads()) == []
    assert failures(crossroads([90.0])) == []
    assert failures(crossroads([-30.0])) == []


def test_who_turns_off_before_is_no_reason_to_wait():
    """S74: the lane before the junction leads to two places; the route tells which; one meets the minor way."""
    near = FAST * 1.5
    assert failures(crossroads([near])) == [CROSSED]
    assert failures(crossroads([near], turns_off=True)) == []


def test_it_is_paid_for_where_somebody_says_so():
    """S74, S97: weight 0 by default; with one, the step costs it, in a column of its own."""
    scene = crossroads([FAST * 1.5])
    for weight in (0.0, 2.0):
        # The minor car coasts, which keeps its log's speed.
        settings = EnvSettings(reward=RewardSettings(not_yielding=weight))
        sim = simulator(scene, settings, cases=[case_of(scene, ego=0)])
        sim.reset()
        column = sim.term_names.index("not yielding")
        paid = [float(sim.step(np.zeros((1, 2), np.float32)).reward_terms[0, column]) for _ in range(40)]
        assert sum(paid) == -weight
        if weight:
            assert paid.index(-weight) + 1 == CROSSED


def test_a_roundabout_gives_way_to_the_ring():
    """S74: at each of four entries the ring is the other way, where both end; the entries do not wait for each other,
    and neither do those behind another sign."""
    scene = synthetic("roundabout", traffic=False)
    table = yield_table(scene)
    names = {int(source) - 1: lane for lane, source in enumerate(scene.road.source_id[scene.road.lane_element])}
    keys = [*(f"{way}{arm}" for arm in range(4) for way in ("out", "in")), *(
        f"ring{arm}{part}" for arm in range(4) for part in ("at", "after"))]  # fmt: skip
    lane_of = {key: names[number] for number, key in enumerate(keys)}
    for arm in range(4):
        rows = slice(table["yield_start"][arm], table["yield_start"][arm + 1])
        others = table["yield_lane"][rows, 1].tolist()
        assert lane_of[f"ring{arm}at"] in others
        assert lane_of[f"ring{(arm - 1) % 4}after"] in others
        assert not {lane_of[f"in{k}"] for k in range(4)} & set(others)


def test_a_sign_has_rows_and_a_map_without_signs_has_none():
    """S74: `stop_yield`, arm 3: the main road crosses its way straight on; arm 1, which stops, has no right of way."""
    scene = synthetic("stop_yield", traffic=False)
    table = yield_table(scene)
    assert table["yield_start"].tolist() == [0, 0, len(table["yield_lane"])]
    assert len(table["yield_lane"]) > 4
    stops = scene.signals.lanes(0)
    behind = set(stops.tolist()) | {int(lane) for one in stops for lane in scene.road.exits(int(one))}
    assert not behind & set(table["yield_lane"][:, 1].tolist())
    assert len(yield_table(synthetic("crossing", traffic=False))["yield_lane"]) == 0

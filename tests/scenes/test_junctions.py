"""Which lights may be green together (S104), and how far goals are for kernels (S3, S91)."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from skidpad.scenes.archive import load_scene
from skidpad.scenes.junctions import conflicts, lanes_cross, movements, signal_phases
from skidpad.scenes.lanes import LaneDistances, goal_reach, lane_lengths
from skidpad.scenes.scene import SIGNAL_LIGHT
from skidpad.scenes.synthetic import synthetic

TOWNS = ["Town01", "Town03", "Town05", "Town10HD"]


def town(name):
    return load_scene((files("skidpad.scenes.library") / f"{name}.scene").read_bytes())


@pytest.mark.parametrize("name", TOWNS)
def test_lights_of_one_phase_never_conflict(name):
    """S104: the colouring is one: within a junction two lights of one phase have no movements that cross or merge, and
    every light has a phase. Crossings are found anew, by sampling both paths every 0.25 m."""
    scene = town(name)
    found = signal_phases(scene)
    lights = np.flatnonzero(scene.signals.kind == SIGNAL_LIGHT)
    assert (found.phase[lights] >= 0).all()
    assert (found.group[scene.signals.kind != SIGNAL_LIGHT] == -1).all()
    assert (found.phase[lights] < found.phases[found.group[lights]]).all()
    for group in range(len(found.phases)):
        members = np.flatnonzero(found.group == group)
        assert len(set(scene.signals.junction[members].tolist())) == 1
        for i, one in enumerate(members):
            for other in members[i + 1 :]:
                if found.phase[one] == found.phase[other]:
                    assert not meets(scene, int(one), int(other))


def path(road, lanes):
    """A way sampled every 0.25 m: (n, 2) [m]."""
    points = np.concatenate([road.xyz[road.lane_points(lane), :2] for lane in lanes]).astype(float)
    arc = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    place = np.arange(0, arc[-1], 0.25)
    return np.stack([np.interp(place, arc, points[:, axis]) for axis in range(2)], axis=1)


def meets(scene, one, other):
    """Do the ways behind two lights come within 0.25 m of each other, other than at a common start?"""
    road = scene.road
    for a in movements(road, scene.signals.lanes(one).tolist()):
        for b in movements(road, scene.signals.lanes(other).tolist()):
            if a.entries & b.entries:
                continue
            p, q = path(road, a.lanes), path(road, b.lanes)
            if np.hypot(*(p[:, None] - q[None]).transpose(2, 0, 1)).min() < 0.25:
                return True
    return False


def test_a_crossing_has_conflicts_that_everybody_knows():
    """S104: on the four-arm crossing opposite arms cross only by their left turns, neighbouring arms always do."""
    scene = synthetic("crossing", traffic=False)
    lights = np.flatnonzero(scene.signals.kind == SIGNAL_LIGHT).tolist()
    conflict = conflicts(scene, lights)
    assert (conflict == conflict.T).all()
    assert not conflict.diagonal().any()
    heading = scene.signals.heading[lights]
    turn = np.cos(heading[:, None] - heading[None])
    assert conflict[np.abs(turn) < 0.5].all()
    assert signal_phases(scene).phases.min() >= 2


def test_levels_do_not_cross():
    """S9, S104: on the overpass the roads cross in the plane and not in space."""
    road = synthetic("overpass", traffic=False).road
    pairs = [(a, b) for a in range(road.lane_count) for b in range(a)]
    flat = {pair for pair in pairs if lanes_cross(road, *pair, np.inf)}
    assert flat
    assert not {pair for pair in flat if lanes_cross(road, *pair, 4.0)}


@pytest.mark.parametrize("name", ["crossing", "roundabout", "dead_end", "Town03"])
def test_goal_reach_equals_the_graph(name):
    """S3, S91: from the end of each lane to the start of each goal lane within 500 m the table has what the Dijkstra of
    `LaneDistances` finds through its exits, and nothing else."""
    road = (town(name) if name.startswith("Town") else synthetic(name, traffic=False)).road
    table, twin = goal_reach(road), LaneDistances(road)
    assert not any(array.flags.writeable for array in table)
    for goal in range(0, road.lane_count, 1 if road.lane_count < 100 else 37):
        to_goal = twin.to(goal)
        wanted = {}
        for lane in range(road.lane_count):
            exits = road.exits(lane)
            if len(exits) and to_goal[exits].min() <= 499.9:
                wanted[lane] = float(to_goal[exits].min())
        rows = slice(int(table.start[goal]), int(table.start[goal + 1]))
        found = dict(zip(table.lane[rows].tolist(), table.metres[rows].tolist(), strict=True))
        assert {lane for lane, metres in found.items() if metres <= 499.9} == set(wanted)
        for lane, metres in wanted.items():
            assert found[lane] == pytest.approx(metres, abs=0.05)


def test_metres_to_goal_follow_the_lanes():
    """S91: left on the row's lane, then the graph, then the goal's place on its lane; behind it on its own lane it
    is the way round; what cannot be reached is infinite. Scratch is clean afterwards."""
    from skidpad.scenes.lane_kernels import clear, metres_to_goal, spread

    road = town("Town03").road
    table, twin, lengths = goal_reach(road), LaneDistances(road), lane_lengths(road)
    to_goal = np.full(road.lane_count, np.inf, np.float32)
    random = np.random.default_rng(1)
    finite = 0
    for goal in random.choice(np.flatnonzero(road.drivable), 40).tolist():
        spread(goal, table.start, table.lane, table.metres, to_goal)
        goal_arc = random.uniform(0, lengths[goal])
        for lane in [goal, *random.choice(np.flatnonzero(road.drivable), 40).tolist()]:
            arc = random.uniform(0, lengths[lane])
            found = metres_to_goal(lane, lengths[lane] - arc, arc, goal, goal_arc, to_goal)
            wanted = twin.between(lane, arc, goal, goal_arc)
            if min(found, wanted) < 500.0:
                assert found == pytest.approx(wanted, abs=0.1)
                finite += 1
        clear(goal, table.start, table.lane, to_goal)
        assert np.isinf(to_goal).all()
    assert finite > 100

"""Off the road and off the map: swept contact with edges, and corners outside the lanes (S71)."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import naive
import numpy as np
import pytest
from stage import Actor, bodies_of, driving

from skidpad.scenes.events import Event
from skidpad.scenes.index import IndexParams, build_index
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_WALKWAY
from skidpad.scenes.synthetic import synthetic
from skidpad.simulation.kernels.offroad import area_contacts, edge_contacts

OFFROAD, OFF_MAP = int(Event.OFFROAD), int(Event.OFF_MAP)
WHOLE = IndexParams(map_tolerance=0.0, max_segment=1e9)


def edge_events(index, actors, gate=math.inf, watched=True):
    events = np.zeros(len(actors), np.uint32)
    flags = np.full(len(actors), watched, np.uint8)
    edge_contacts(index.edges, bodies_of(actors), 0, len(actors), gate, flags, events)
    return events


def area_events(index, actors, gate=math.inf, watched=True):
    events = np.zeros(len(actors), np.uint32)
    flags = np.full(len(actors), watched, np.uint8)
    area_contacts(index.lanes, bodies_of(actors), 0, len(actors), gate, flags, events)
    return events


def edges_of(road):
    """End points (m, 4) and middle heights of all edge segments."""
    rows = []
    for e in range(road.element_count):
        if road.element_type[e] // 10 == 2:
            p = road.xyz[road.points(e)].astype(np.float64)
            rows += [(*a[:2], *b[:2], (a[2] + b[2]) / 2) for a, b in pairwise(p)]
    return np.array(rows)


def clearance(actor, edges, samples=101):
    """Least separation of a moving box from any of the edges, by sub-sampling (a box of width 0 is a segment); capped
    at 1 m, so that far edges can be left out."""
    middle, half = (edges[:, :2] + edges[:, 2:4]) / 2, np.hypot(*(edges[:, 2:4] - edges[:, :2]).T) / 2
    path = np.linspace(actor.start[:2], actor.stop[:2], 11)[:, None]
    distance = np.hypot(*np.moveaxis(path - middle, -1, 0)).min(axis=0) - half - math.hypot(actor.length, actor.width)
    edges = edges[distance < 2]
    if not len(edges):
        return 1.0
    box = naive.Move(actor.start, actor.stop, actor.length, actor.width).at(np.linspace(0, 1, samples)[:, None])
    x0, y0, x1, y1 = edges[:, :4].T
    length = np.hypot(x1 - x0, y1 - y0)
    segments = (x0 + x1) / 2, (y0 + y1) / 2, np.arctan2(y1 - y0, x1 - x0), length, 0 * length
    return min(naive.separation(box, segments).min(), 1.0)


@pytest.mark.parametrize("name", ["crossing", "roundabout", "overpass"])
def test_edges_equal_the_twin(name):
    """Cell lists, broad phase and pieces together find what testing every edge by samples finds (S71)."""
    scene = synthetic(name, traffic=False)
    index = build_index(scene, WHOLE)
    edges = edges_of(scene.road)
    gate = 4.0 if name == "overpass" else math.inf
    rng = np.random.default_rng(1)
    actors, expected = [], []
    while len(actors) < 60:
        at = edges[rng.integers(len(edges))]
        t = rng.random()
        x, y = at[:2] + t * (at[2:4] - at[:2]) + rng.normal(0, 2.5, 2)
        actor = driving(
            x, y, rng.uniform(-3, 3), rng.uniform(0, 30), turn=rng.normal(0, 0.1), z=float(at[4] + rng.normal(0, 2))
        )
        actor = dataclasses.replace(actor, z=float(np.float32(actor.z)))
        near = edges[abs(edges[:, 4] - actor.z) <= gate]
        if len(near) and (abs(abs(edges[:, 4] - actor.z) - gate) > 0.01).all():
            least = clearance(actor, near)
            if not -0.02 < least < 0.02:
                actors.append(actor)
                expected.append(OFFROAD if least < 0 else 0)
    assert (edge_events(index, actors, gate) & OFFROAD).tolist() == expected
    assert 10 < sum(map(bool, expected)) < 55


def test_long_sweeps_walk_the_cells():
    """S14: a sweep larger than the lists' reach asks every cell under it; flags as from a list that reaches."""
    scene = synthetic("crossing", traffic=False)
    short = build_index(scene, dataclasses.replace(WHOLE, reach=1.0))
    long = build_index(scene, dataclasses.replace(WHOLE, reach=60.0))
    rng = np.random.default_rng(2)
    actors = [
        driving(*rng.uniform(-60, 60, 2), rng.uniform(-3, 3), rng.uniform(0, 300), turn=rng.normal(0, 0.2))
        for _ in range(400)
    ]
    assert edge_events(short, actors).tolist() == edge_events(long, actors).tolist()
    assert 50 < (edge_events(long, actors) & OFFROAD > 0).sum() < 350


def test_a_thin_median_is_not_jumped_over():
    """An edge is a line without thickness; at 30 m/s with dt 0.3 a car is wholly past it after one step (S71)."""
    scene = synthetic("straight", traffic=False)
    index = build_index(scene, IndexParams())
    x0, y0, x1, y1 = max(edges_of(scene.road)[:, :4], key=lambda e: math.hypot(e[2] - e[0], e[3] - e[1]))
    across = math.atan2(y1 - y0, x1 - x0) + math.pi / 2
    x, y = (x0 + x1) / 2 - 4.5 * math.cos(across), (y0 + y1) / 2 - 4.5 * math.sin(across)
    jump = driving(x, y, across, 30.0, 0.3)
    ends = [Actor(pose, pose) for pose in (jump.start, jump.stop)]
    assert (edge_events(index, ends) & OFFROAD).tolist() == [0, 0]
    assert edge_events(index, [jump])[0] & OFFROAD


def test_edges_of_another_level_are_no_edges():
    """S9: 6 m up, on the bridge, the kerbs of the road below are not in the way."""
    scene = synthetic("overpass", traffic=False)
    index = build_index(scene, WHOLE)
    edges = edges_of(scene.road)
    low = edges[np.argmin(edges[:, 4])]
    pose = ((low[0] + low[2]) / 2, (low[1] + low[3]) / 2, 0.0)
    free = float(low[4]) + 30.0
    assert edge_events(index, [Actor(pose, pose, z=float(low[4]))], 4.0)[0] == OFFROAD
    assert edge_events(index, [Actor(pose, pose, z=free)], 4.0)[0] == 0
    assert edge_events(index, [Actor(pose, pose, z=free)])[0] == OFFROAD  # a map without heights has one level


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, where nothing is compiled
def test_off_the_map():
    """Beyond the grid an agent is off the map and off the road, watched or not; a broken pose is nowhere (F27)."""
    scene = synthetic("straight", traffic=False)
    index = build_index(scene, IndexParams())
    places = [(1e4, 0, 0), (0, -1e7, 0), (math.inf, 0, 0), (math.nan, 0, 0)]
    actors = [Actor(p, p) for p in places]
    for events in (edge_events, area_events):
        for watched in (True, False):
            assert events(index, actors, watched=watched).tolist() == [OFFROAD | OFF_MAP] * 4
        gone = [dataclasses.replace(a, after=False) for a in actors]
        assert events(index, gone).tolist() == [0] * 4


def test_dense_edges_are_all_seen():
    """5,000 edges in one cell: no list has a capacity (S21)."""
    scene = synthetic("dense", traffic=False)
    index = build_index(scene, WHOLE)
    edges = edges_of(scene.road)
    rng = np.random.default_rng(3)
    centre = edges[:, :4].reshape(-1, 2).mean(axis=0)
    actors = [
        driving(*(centre + rng.uniform(-9, 9, 2)), rng.uniform(-3, 3), 5.0, length=0.3, width=0.2) for _ in range(60)
    ]
    least = np.array([clearance(actor, edges, 11) for actor in actors])
    sure = abs(least) > 0.02
    found = edge_events(index, actors) & OFFROAD > 0
    assert sure.sum() > 10
    assert (found[sure] == (least[sure] < 0)).all()


def test_only_the_watched_are_tested():
    """Pedestrians cross kerbs: the simulator says for whom edges matter."""
    scene = synthetic("straight", traffic=False)
    index = build_index(scene, WHOLE)
    edge = edges_of(scene.road)[0]
    pose = ((edge[0] + edge[2]) / 2, (edge[1] + edge[3]) / 2, 0.0)
    assert edge_events(index, [Actor(pose, pose)], watched=False)[0] == 0
    assert area_events(index, [Actor((pose[0], pose[1] + 25, 0), (pose[0], pose[1] + 25, 0))], watched=False)[0] == 0


@pytest.mark.parametrize("name", ["crossing", "curve", "overpass"])
def test_area_equals_the_twin(name):
    """A corner more than 0.3 m outside the union of ribbons is off the road (S71, maps without edges)."""
    scene = synthetic(name, traffic=False)
    road = scene.road
    index = build_index(scene, WHOLE)
    lanes = range(road.lane_count)
    gate = 4.0 if name == "overpass" else math.inf
    rng = np.random.default_rng(4)
    compared = off = 0
    for _ in range(60):
        rows = road.lane_points(int(rng.integers(road.lane_count)))
        at = road.xyz[rows][rng.integers(rows.stop - rows.start)].astype(np.float64)
        pose = (*(at[:2] + rng.normal(0, 2.0, 2)), rng.uniform(-3, 3))
        actor = Actor(pose, pose, z=float(at[2]))
        box = np.array([[np.float32(v)] for v in pose], np.float64)
        points = naive.corners(box[0], box[1], box[2], 4.0, 2.0)[0]
        gap = max(naive.ribbon_gap(road, *p, actor.z, gate, lanes) for p in points)
        if abs(gap - 0.3) > 1e-3:
            compared += 1
            off += gap > 0.3
            assert bool(area_events(index, [actor], gate)[0] & OFFROAD) == (gap > 0.3)
    assert compared > 50
    assert 10 < off < compared - 10


def test_a_walkway_is_not_road():
    """A car on the pavement is off the road although it is on a lane ribbon."""
    scene = synthetic("straight", traffic=False)
    kinds = scene.road.element_type.copy()
    kinds[scene.road.lane_element] = LANE_WALKWAY
    pavement = dataclasses.replace(scene, road=dataclasses.replace(scene.road, element_type=kinds))
    rows = scene.road.lane_points(0)
    x, y = scene.road.xyz[rows][2, :2].astype(float)
    actor = Actor((x, y, 0), (x, y, 0), length=1.0, width=0.5)
    assert area_events(build_index(scene, IndexParams()), [actor])[0] == 0
    assert area_events(build_index(pavement, IndexParams()), [actor])[0] == OFFROAD
    assert EDGE_BOUNDARY // 10 == 2

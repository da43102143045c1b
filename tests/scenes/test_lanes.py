"""The lane graph: distances, walks, and the lanes that logged tracks drove."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest

from skidpad.scenes import polyline
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import read_scene
from skidpad.scenes.lanes import (
    LANE_CHANGE_M,
    LaneDistances,
    lane_lengths,
    neighbours,
    route_gaps,
    shortest_path,
)
from skidpad.scenes.scene import LANE_STREET, TYPE_PEDESTRIAN, TYPE_VEHICLE, RoadMap, Scene
from skidpad.scenes.synthetic import synthetic


def random_road(random: Random, lanes: int, links: int, beside: int = 0) -> RoadMap:
    """A road whose links have nothing to do with its geometry, as Floyd-Warshall needs none."""
    build = SceneBuilder("random", "", "", "", "0" * 64)
    for lane in range(lanes):
        build.lane(lane, [(0, 0), (random.uniform(1, 100), 0)], width=3.0, kind=LANE_STREET)
    for _ in range(links):
        one, other = random.randrange(lanes), random.randrange(lanes)
        if one != other:
            build.connect(one, other)
    for _ in range(beside):
        one, other = random.sample(range(lanes), 2)
        build.neighbours(one, other)
    return build.finish(has_z=False).road


def floyd_warshall(road: RoadMap, lane_changes: bool) -> np.ndarray:
    """Distances between the starts of all lanes, (from, to), the obvious way."""
    lengths = lane_lengths(road)
    table = np.full((road.lane_count, road.lane_count), np.inf)
    np.fill_diagonal(table, 0.0)
    for lane in range(road.lane_count):
        for other in road.exits(lane):
            table[lane, other] = min(table[lane, other], lengths[lane])
        for other in neighbours(road, lane) if lane_changes else ():
            table[lane, other] = min(table[lane, other], LANE_CHANGE_M)
    for middle in range(road.lane_count):
        table = np.minimum(table, table[:, middle, None] + table[None, middle])
    return table


@pytest.mark.parametrize("lane_changes", [False, True])
def test_distances_equal_floyd_warshall(lane_changes: bool) -> None:
    """S3: on 200 random graphs, cycles and unreachable parts included; unreachable is +inf, never negative."""
    random = Random(7)
    for _ in range(100):
        lanes = random.randint(2, 12)
        road = random_road(random, lanes, random.randint(0, 24), random.randint(0, 4) if lane_changes else 0)
        distances = LaneDistances(road, lane_changes=lane_changes)
        table = floyd_warshall(road, lane_changes)
        for goal in range(lanes):
            found = distances.to(goal)
            assert found.dtype == np.float32
            assert np.allclose(found, table[:, goal], rtol=1e-6), goal
            assert not found.flags.writeable


def test_shortest_path_has_the_shortest_distance() -> None:
    """S3: the path is connected and as long as the distance says; None exactly where that is infinite."""
    random = Random(8)
    for _ in range(60):
        road = random_road(random, random.randint(2, 10), random.randint(0, 20))
        distances = LaneDistances(road)
        lengths = lane_lengths(road)
        first, last = random.randrange(road.lane_count), random.randrange(road.lane_count)
        path = shortest_path(road, first, last)
        distance = float(distances.to(last)[first])
        if path is None:
            assert math.isinf(distance)
        else:
            assert (path[0], path[-1]) == (first, last)
            assert route_gaps(road, np.array(path, np.int32)) == []
            assert sum(lengths[path[:-1]]) == pytest.approx(distance)
            assert shortest_path(road, first, last, reach_m=distance + 1e-3) == path
            if distance > 0:
                assert shortest_path(road, first, last, reach_m=distance - 1e-3) is None


def test_between_places() -> None:
    """S3: from a place to a place: ahead on one lane directly, behind only around, beside with a lane change."""
    build = SceneBuilder("between", "", "", "", "0" * 64)
    build.lane("a", [(0, 0), (100, 0)], width=3.5, kind=LANE_STREET)
    build.lane("beside", [(0, 3.5), (50, 3.5)], width=3.5, kind=LANE_STREET)
    build.lane("b", [(100, 0), (140, 0)], width=3.5, kind=LANE_STREET)
    build.connect("a", "b")
    build.neighbours("beside", "a")
    road = build.finish(has_z=False).road
    straight, changing = LaneDistances(road), LaneDistances(road, lane_changes=True)
    assert straight.between(0, 10.0, 0, 30.0) == 20.0
    assert math.isinf(straight.between(0, 30.0, 0, 10.0))
    assert straight.between(0, 10.0, 2, 5.0) == 95.0
    assert math.isinf(straight.between(1, 10.0, 2, 5.0))
    # 10 m of the 50 m beside are 20 m of the 100 m of `a`: 5 m for the change, 80 m, 5 m.
    assert changing.between(1, 10.0, 2, 5.0) == 90.0
    assert changing.between(1, 10.0, 0, 60.0) == 45.0


def test_cache_is_bounded_and_keeps_the_recent() -> None:
    """S3: the least recently used goals go when the bound is reached, and what is handed out stays valid."""
    road = random_road(Random(10), 20, 40)
    distances = LaneDistances(road, cache_bytes=5 * 4 * 20)
    first = distances.to(0)
    for goal in range(1, 5):
        distances.to(goal)
    assert distances.to(0) is first
    distances.to(5)  # pushes out 1, not 0
    assert distances.to(0) is first
    again = distances.to(1)
    for goal in range(20):
        distances.to(goal)
        assert distances.cached_bytes <= 5 * 4 * 20
    assert again[1] == 0.0


@pytest.mark.slow
def test_memory_stays_under_the_bound_on_a_town(shared: Path) -> None:
    """S3: 10,000 random goals on Town03 in the default 64 MiB."""
    road = read_scene(shared / "data/carla_towns/Town03.xodr.gz").road
    distances = LaneDistances(road, cache_bytes=1 << 20)
    random = Random(11)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(10_000):
        distances.to(random.randrange(road.lane_count))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert distances.cached_bytes <= 1 << 20
    assert after - before < 2 << 20


# Routes


def drive(scene: Scene, path: list[tuple[float, float]], kind: int = TYPE_VEHICLE, noise: float = 0.0) -> list[int]:
    """The route of a track through points in the local frame of a scene, 1 m per row."""
    from skidpad.scenes.routes import match_routes

    points = np.array([(*point, 0.0) for point in path])
    arc = polyline.arc_lengths(points)
    at = np.arange(0.0, arc[-1], 1.0)
    forward = polyline.directions(points)[np.searchsorted(arc, at, "right") - 1]
    random = np.random.default_rng(1)
    columns = {
        "x": np.interp(at, arc, points[:, 0])[None] + noise * random.standard_normal(len(at)),
        "y": np.interp(at, arc, points[:, 1])[None] + noise * random.standard_normal(len(at)),
        "z": 0 * at[None],
        "heading": np.arctan2(forward[:, 1], forward[:, 0])[None],
        "valid": np.ones((1, len(at)), bool),
        "type": np.array([kind], np.uint8),
    }
    offset, lane, visited = match_routes(scene.road, columns)
    assert visited.tolist() == np.diff(offset).tolist()
    return lane.tolist()


def test_routes_of_generated_traffic() -> None:
    """S60: at a crossing, where the branches begin on top of each other, the branch is right from its first metre."""
    scene = synthetic("crossing", seed=4)
    for track in range(4):  # two straight on and two right turns
        route = scene.tracks.route(track)
        assert route_gaps(scene.road, route) == []
        rows = np.flatnonzero(scene.tracks.valid[track])
        last = np.array([[scene.tracks.x[track, rows[-1]], scene.tracks.y[track, rows[-1]]]], float)
        centre = scene.road.xyz[scene.road.lane_points(int(route[-1]))].astype(float)
        assert polyline.project(centre, last).distance[0] < 0.3


def test_lane_changes_are_in_the_route() -> None:
    """S60: a route may go to a neighbour where the log changes lanes, and not where it only sways."""
    scene = synthetic("straight", traffic=False)
    assert drive(scene, [(-140, -1.75), (-60, -1.75), (-20, -5.25), (100, -5.25)]) == [0, 1]
    sway = [(-140, -1.75), (-60, -1.75), (-50, -3.4), (-40, -1.75), (60, -1.75)]
    assert drive(scene, sway) == [0]
    assert drive(scene, [(140, 1.75), (-100, 1.75)], noise=0.3) == [2]


def test_routes_against_the_lanes_and_off_the_road() -> None:
    """S60: nobody is matched to the oncoming lane, and someone on no lane has no route."""
    scene = synthetic("straight", traffic=False)
    assert drive(scene, [(-100, 40), (100, 40)]) == []
    assert drive(scene, [(-140, -1.75), (-100, -1.75)], kind=TYPE_PEDESTRIAN) == []
    # On the left half of a two-way road, driving as that lane does not: the own lane is 3.5 m away and fits.
    assert drive(scene, [(-100, 1.75), (100, 1.75)]) == [0]


def test_gaps_are_bridged() -> None:
    """S60: lanes between two sightings are filled in along exits."""
    scene = synthetic("crossing", traffic=False)
    in_west, out_east = [(-80, -1.75), (-40, -1.75)], [(40, -1.75), (80, -1.75)]
    from skidpad.scenes.routes import match_routes

    xy = np.array([*np.linspace(*in_west, 20), *np.linspace(*out_east, 20)])
    columns = {
        "x": xy[None, :, 0],
        "y": xy[None, :, 1],
        "z": 0 * xy[None, :, 0],
        "heading": 0 * xy[None, :, 0],
        "valid": np.ones((1, 40), bool),
        "type": np.array([TYPE_VEHICLE], np.uint8),
    }
    _, lane, _ = match_routes(scene.road, columns)
    assert len(lane) == 3
    assert route_gaps(scene.road, lane) == []


NGSIM = ["USA_Lanker-1_1_T-1", "USA_Peach-4_8_T-1", "USA_US101-3_1_T-1", "USA_US101-3_3_T-1"]


@pytest.mark.parametrize("name", NGSIM)
def test_ngsim_routes_cover_the_log(shared: Path, name: str) -> None:
    """S60: consecutive lanes are connected, and routes cover 95 % of the rows that lie on any lane of the map."""
    scene = read_scene(shared / f"data/ngsim/{name}.xml.gz")
    road, tracks = scene.road, scene.tracks
    on_any = on_route = 0
    for track in range(tracks.count):
        assert route_gaps(road, tracks.route(track)) == []
        rows = np.flatnonzero(tracks.valid[track])
        xy = np.stack([tracks.x[track, rows], tracks.y[track, rows]], axis=1).astype(float)
        heading = tracks.heading[track, rows]
        on_lane = {}
        for lane in range(road.lane_count):
            where = road.lane_points(lane)
            place = polyline.project(road.xyz[where].astype(float), xy)
            forward = road.direction[where][place.segment]
            along = np.cos(heading) * forward[:, 0] + np.sin(heading) * forward[:, 1] > 0.0
            on_lane[lane] = (place.distance <= 0.5 * road.width[where][place.segment]) & along
        on_any += int(np.logical_or.reduce(list(on_lane.values())).sum())
        route = tracks.route(track).tolist()
        on_route += int(np.logical_or.reduce([on_lane[lane] for lane in route]).sum()) if route else 0
    assert on_route >= 0.95 * on_any > 0

"""The OpenDRIVE reader on real files: CARLA's towns and the unit files of esmini."""

from __future__ import annotations

import gzip
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from skidpad.scenes.check import check_scene
from skidpad.scenes.formats import opendrive
from skidpad.scenes.formats.source import Limits, read_source
from skidpad.scenes.scene import LANE_BUS, LANE_FREEWAY, LANE_STREET, SIGNAL_LIGHT, Scene

# roads, junctions, kilometres: R17
TOWNS = {
    "Town01": (122, 12, 4.2),
    "Town02": (84, 8, 2.0),
    "Town03": (369, 35, 11.3),
    "Town04": (276, 27, 10.8),
    "Town05": (323, 21, 9.2),
    "Town07": (277, 31, 5.4),
    "Town10HD": (108, 9, 3.4),
}
SMALL_TOWNS = ("Town01", "Town02", "Town10HD")
TOWN_PARAMETERS = [name if name in SMALL_TOWNS else pytest.param(name, marks=pytest.mark.slow) for name in TOWNS]
# Links of the files themselves that lead over a gap.
COUNTED_GAPS = {"Town03": 3, "Town07": 3}

_UNITS = (
    "crest-curve curve_road_mixed curves direct_junction_simple e6mini fabriksgatan_traffic_lights "
    "four_lanes_with_offset highway_merge highway_split_lht jolengatan lane_offset_intersection lane_width_and_offset "
    "multi_lanesections parking_demo simple_4way_intersection soderleden straight_500m_signs straight_500m_signs_lht "
    "two_plus_one velodrome"
)
UNITS = _UNITS.split()


@cache
def scene_of(path: Path) -> Scene:
    return opendrive.read(read_source(path), Limits(), {})


def town(shared: Path, name: str) -> tuple[Scene, Path]:
    path = shared / "data" / "carla_towns" / f"{name}.xodr.gz"
    return scene_of(path), path


def unit(shared: Path, name: str) -> Scene:
    return scene_of(shared / "data" / "opendrive_units" / f"{name}.xodr")


def ends(scene: Scene, lane: int) -> tuple[np.ndarray, np.ndarray]:
    points = scene.road.xyz[scene.road.lane_points(lane)].astype("f8")
    return points[0], points[-1]


def link_gaps(scene: Scene) -> list[float]:
    """[m] between the end of each lane and the start of each of its exits."""
    return [
        float(np.linalg.norm(ends(scene, lane)[1] - ends(scene, int(following))[0]))
        for lane in range(scene.road.lane_count)
        for following in scene.road.exits(lane)
    ]


def place(scene: Scene, lane: int) -> tuple[str, int, int] | None:
    """Road, section and lane of the file."""
    value = int(scene.road.source_id[scene.road.lane_element[lane]])
    return None if value < 0 else (str(value // 1_000_000), value // 1000 % 1000, value % 1000 - 500)


@pytest.mark.parametrize("name", TOWN_PARAMETERS)
def test_town_has_the_roads_junctions_and_kilometres_of_its_file(shared, name):
    """R17: the numbers of the specification, which `scenes inspect` prints from the labels."""
    scene, _ = town(shared, name)
    roads, junctions, kilometres = TOWNS[name]
    labels = scene.meta.labels
    assert (labels["roads"], labels["junctions"]) == (roads, junctions)
    assert labels["road_km"] == pytest.approx(kilometres, abs=0.05)


@pytest.mark.parametrize("name", TOWN_PARAMETERS)
def test_town_lanes_meet_where_they_are_linked(shared, name):
    """R17: lane ends meet the starts of their exits within 0.1 m, and what does not is counted. A wrong contact point
    or direction shows here as a gap of a road's length."""
    scene, _ = town(shared, name)
    wide = [gap for gap in link_gaps(scene) if gap > 0.1]
    counted = scene.meta.loss.get("assumed_link_over_gap")
    # Some counted links end in lanes of a centimetre, which the builder merges away.
    assert len(wide) <= (counted.count if counted else 0) == COUNTED_GAPS.get(name, 0)
    # Nobody turns by 30 degrees from one lane into the next.
    for lane in np.flatnonzero(scene.road.drivable):
        out = scene.road.direction[scene.road.lane_points(int(lane))][-1]
        for following in scene.road.exits(int(lane)):
            into = scene.road.direction[scene.road.lane_points(int(following))][0]
            assert float(out @ into) > np.cos(np.radians(30)), f"{place(scene, int(lane))} to {place(scene, following)}"


def linked_ends(path: Path) -> set[tuple[str, int, int, int]]:
    """(road, section, lane, end) of every lane end that a link or a junction of the file mentions, read by other code
    than the reader's; end 1 is where s is largest."""
    data = path.read_bytes()
    root = ET.fromstring(gzip.decompress(data) if path.suffix == ".gz" else data)
    found = set()
    roads = {road.get("id"): road for road in root.findall("road")}
    sections = {id: road.findall("lanes/laneSection") for id, road in roads.items()}
    for id, road in roads.items():
        for index, section in enumerate(sections[id]):
            for lane in section.iter("lane"):
                for end, tag in enumerate(("predecessor", "successor")):
                    outer = index == (0, len(sections[id]) - 1)[end]
                    link = road.find(f"link/{tag}")
                    if lane.find(f"link/{tag}") is not None and not (outer and link is None):
                        found.add((id, index, int(lane.get("id")), end))
    for junction in root.findall("junction"):
        for connection in junction.findall("connection"):
            name, incoming = connection.get("connectingRoad"), connection.get("incomingRoad")
            end = int(connection.get("contactPoint") == "end")
            for link in connection.findall("laneLink"):
                found.add((name, end and len(sections[name]) - 1, int(link.get("to")), end))
                for side, tag in enumerate(("predecessor", "successor")):
                    target = roads[incoming].find(f"link/{tag}")
                    if target is not None and target.get("elementId") == junction.get("id"):
                        found.add((incoming, side and len(sections[incoming]) - 1, int(link.get("from")), side))
    return found


@pytest.mark.parametrize("name", TOWN_PARAMETERS)
def test_every_driving_lane_is_reachable_or_a_dead_end_in_the_file(shared, name):
    """R17: a lane without entries or exits is one that the file links to nothing there."""
    scene, path = town(shared, name)
    linked = linked_ends(path)
    for lane in np.flatnonzero(scene.road.drivable).tolist():
        where = place(scene, lane)
        if where is None:
            continue  # the second direction of a bidirectional lane
        along = where[2] < 0
        if len(scene.road.entries(lane)) == 0:
            assert (*where, 0 if along else 1) not in linked
        if len(scene.road.exits(lane)) == 0:
            assert (*where, 1 if along else 0) not in linked


def segments(scene: Scene, numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends (n, 3) f64 [m] of all segments of some elements."""
    pieces = [scene.road.xyz[scene.road.points(number)].astype("f8") for number in numbers]
    return np.concatenate([piece[:-1] for piece in pieces]), np.concatenate([piece[1:] for piece in pieces])


def cells(start: np.ndarray, end: np.ndarray, size: float) -> dict[tuple[int, int], list[int]]:
    low = np.floor(np.minimum(start, end)[:, :2] / size).astype(int)
    high = np.floor(np.maximum(start, end)[:, :2] / size).astype(int)
    found: dict[tuple[int, int], list[int]] = {}
    for i, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        for x in range(a[0], b[0] + 1):
            for y in range(a[1], b[1] + 1):
                found.setdefault((x, y), []).append(i)
    return found


def crossings(a, b, c, d) -> list[tuple[float, ...]]:
    """Where segments a-b cross segments c-d on the same level (within 4 m), by a grid of 10 m cells."""
    first, second = cells(a, b, 10.0), cells(c, d, 10.0)
    found = []
    for cell in first.keys() & second.keys():
        i, j = (grid.ravel() for grid in np.meshgrid(first[cell], second[cell]))
        u, v, w = b[i] - a[i], d[j] - c[j], c[j] - a[i]
        area = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
        safe = np.where(area == 0.0, 1.0, area)
        s = (w[:, 0] * v[:, 1] - w[:, 1] * v[:, 0]) / safe
        t = (w[:, 0] * u[:, 1] - w[:, 1] * u[:, 0]) / safe
        hit = (area != 0.0) & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
        hit &= np.abs(a[i, 2] + s * u[:, 2] - c[j, 2] - t * v[:, 2]) < 4.0
        found += [tuple((a[n] + share * step).tolist()) for n, share, step in zip(i[hit], s[hit], u[hit], strict=True)]
    return found


def test_crossings_are_found():
    """The grid test below must see a crossing, and not one of two levels."""
    a, b = np.array([[0.0, 0, 0]]), np.array([[30.0, 0, 0]])
    c, d = np.array([[15.0, -40, 1], [15.0, -40, 9]]), np.array([[15.0, 40, 1], [15.0, 40, 9]])
    assert set(crossings(a, b, c, d)) == {(15.0, 0.0, 0.0)}


@pytest.mark.parametrize("name", TOWN_PARAMETERS)
def test_no_driving_lane_crosses_an_edge(shared, name):
    """R17, R10 a: kerbs built from lane borders must not lie across the lanes of a junction."""
    scene, _ = town(shared, name)
    kinds = scene.road.element_type
    lanes = [int(n) for n in scene.road.lane_element if kinds[n] in (LANE_FREEWAY, LANE_STREET, LANE_BUS)]
    edges = [n for n in range(len(kinds)) if 20 <= kinds[n] < 30]
    assert len(edges) > 50
    assert crossings(*segments(scene, lanes), *segments(scene, edges)) == []


@pytest.mark.parametrize("name", TOWN_PARAMETERS)
def test_every_stop_line_lies_at_the_start_of_its_lanes(shared, name):
    """R17, S6: in the CARLA towns lights are referenced on connecting roads; the line crosses the controlled lanes at
    their start, at right angles, from left to right."""
    scene, path = town(shared, name)
    signals = scene.signals
    root = ET.fromstring(gzip.decompress(path.read_bytes()))
    referenced = {reference.get("id") for reference in root.iter("signalReference")}
    assert signals.count >= len(referenced) > 0
    assert (signals.kind == SIGNAL_LIGHT).any()
    assert (signals.junction >= 0).all()
    for number in range(signals.count):
        left, right = signals.line[number].astype("f8")
        across = (right - left)[:2] / np.linalg.norm((right - left)[:2])
        heading = signals.heading[number]
        assert across @ [np.sin(heading), -np.cos(heading)] > np.cos(np.radians(15))
        assert len(signals.lanes(number)) > 0
        for lane in signals.lanes(number):
            start, _ = ends(scene, int(lane))
            direction = scene.road.direction[scene.road.lane_points(int(lane))][0]
            assert direction @ [np.cos(heading), np.sin(heading)] > np.cos(np.radians(15))
            assert abs((start - left)[:2] @ [np.cos(heading), np.sin(heading)]) < 2.0
            assert 0.0 < (start - left)[:2] @ across < np.linalg.norm(right - left)


@pytest.mark.parametrize("name", TOWN_PARAMETERS)
def test_town_passes_every_check(shared, name):
    """S11: real maps are sound in every respect that the scene checks know, stop lines included."""
    assert check_scene(town(shared, name)[0]) == []


@pytest.mark.parametrize("name", UNITS)
def test_unit_file_is_read(shared, name):
    """All 20 files parse; links meet, lane directions are continuous, and nothing is of unknown kind."""
    scene = unit(shared, name)
    assert check_scene(scene) == []
    assert scene.road.drivable.any()
    assert not [kind for kind in scene.meta.loss if kind.startswith("unknown_") and kind != "unknown_mark"]
    counted = scene.meta.loss.get("assumed_link_over_gap")
    assert len([gap for gap in link_gaps(scene) if gap > 0.1]) == (counted.count if counted else 0)


# Lanes, successors: counted in the files by hand, once.
GRAPHS = {
    "curve_road_mixed": (6, 4),
    "direct_junction_simple": (8, 5),
    "simple_4way_intersection": (20, 24),
    "velodrome": (3, 3),
    "two_plus_one": (17, 12),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_unit_file_graph(shared, name):
    """Contact points of all combinations, a direct junction, a crossing, a ring, lanes that appear and end."""
    road = unit(shared, name).road
    assert (road.lane_count, len(road.exit_lane)) == GRAPHS[name]


def test_left_hand_traffic_merges_where_right_hand_traffic_would_split(shared):
    """R17: with rule LHT the right lanes of the split run against s, so roads 1 and 2 lead into road 0; a reader that
    ignores the rule turns the whole graph around."""
    scene = unit(shared, "highway_split_lht")
    found = {
        (place(scene, lane)[::2], place(scene, int(following))[::2])
        for lane in range(scene.road.lane_count)
        for following in scene.road.exits(lane)
    }
    assert found == {
        (("1", -1), ("3", -1)),
        (("2", -1), ("4", -1)),
        (("3", -1), ("0", -1)),
        (("4", -1), ("0", -2)),
    }


def test_file_lengths_of_curves_are_kept(shared):
    """Spirals, arcs and paramPoly3 in real files: the centre of a lane is as long as its reference line, give or take
    what its distance from it turns; a wrong parametrisation would lengthen or shorten it by metres."""
    for name in ("jolengatan", "e6mini", "curves"):
        scene = unit(shared, name)
        for lane in range(scene.road.lane_count):
            points = scene.road.lane_points(lane)
            direction = scene.road.direction[points].astype("f8")
            turn = np.ptp(np.unwrap(np.arctan2(direction[:, 1], direction[:, 0])))
            arc = float(scene.road.arc[points][-1])
            assert arc == pytest.approx(scene.meta.labels["road_km"] * 1000, abs=abs(turn) * 25.0 + 2.0)

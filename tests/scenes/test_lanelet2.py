"""Lanelet2 maps (R22): how lanelets are turned, joined and ruled, on hand-made maps and the one that is at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lanelet2_files import Map, small_map

from skidpad.errors import FormatError
from skidpad.scenes.formats import read_scene
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    EDGE_BOUNDARY,
    LINE_BROKEN_WHITE,
    LINE_DOUBLE_WHITE,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    Scene,
)


def links(scene: Scene) -> set[tuple[int, int]]:
    """Pairs of lanelet ids that follow each other; a lanelet driven both ways is itself and minus itself."""
    road = scene.road
    names = road.source_id[road.lane_element].tolist()
    signed = [-name if name in names[:at] else name for at, name in enumerate(names)]
    return {(signed[one], signed[other]) for one in range(road.lane_count) for other in road.exits(one).tolist()}


def test_a_map_comes_back() -> None:
    """R22: borders are turned the way one drives, ends that share nodes follow each other, kerbs and paint, limits of
    rules and tags, a light at its line, a stop at the end."""
    scene = read_scene(small_map())
    road = scene.road
    names = road.source_id[road.lane_element].tolist()
    assert names == [11, 14, 12, 13, 13]
    assert links(scene) == {(11, 12), (11, 13)}
    start = road.xyz[road.element_points[:5]] + scene.meta.origin
    np.testing.assert_allclose(start, [(0, 0, 7), (50, 3.7, 7), (50, 0, 7), (50, 0, 7), (80, 10, 7)], atol=1e-4)
    np.testing.assert_allclose(road.width[:4], 3.7, atol=1e-4)
    np.testing.assert_allclose(road.speed_limit[:2], (50 / 3.6, 30 * 0.44704), rtol=1e-6)
    assert np.isnan(road.speed_limit[2:]).all()
    kinds = road.element_type[5:].tolist()
    assert sorted(kinds) == [LINE_BROKEN_WHITE, EDGE_BOUNDARY, EDGE_BOUNDARY, EDGE_BOUNDARY, AREA_CROSSWALK]
    assert scene.signals.kind.tolist() == [SIGNAL_LIGHT, SIGNAL_STOP]
    assert scene.signals.lane.tolist() == [0, 3]
    np.testing.assert_allclose(scene.signals.line[0, :, 0] + scene.meta.origin[0], 49.0, atol=1e-4)
    assert scene.meta.has_z
    assert scene.tracks.count == 0


def test_kerbs_have_the_road_on_their_left() -> None:
    """Decision 0005: edges run with the road on their left, whichever way the file drew them."""
    scene = read_scene(small_map())
    road = scene.road
    for element in np.flatnonzero(road.element_type == EDGE_BOUNDARY):
        edge = road.xyz[road.points(element)][:, :2].astype(float)
        forward, middle = edge[1] - edge[0], edge.mean(axis=0)
        lanes = road.xyz[: road.element_points[5], :2].astype(float)
        nearest = min(
            (lanes[n : n + 2].mean(axis=0) for n in range(0, 10, 2)), key=lambda m: float(np.hypot(*(m - middle)))
        )
        assert forward[0] * (nearest - middle)[1] - forward[1] * (nearest - middle)[0] > 0.0


def test_degrees_are_projected_around_their_mean() -> None:
    """R22: without local metres for every node, latitude and longitude are; shape and size are kept."""
    metres, degrees = read_scene(small_map()), read_scene(small_map(local=False))
    stretch = np.diff(degrees.road.xyz[:2, 0])[0] / np.diff(metres.road.xyz[:2, 0])[0]
    assert stretch == pytest.approx(np.cos(np.radians(49.0)) * 111_320.0 / 111_000.0, rel=3e-3)
    assert links(degrees) == links(metres)


def test_heights_of_some_nodes_are_no_heights() -> None:
    """R22: four of 2,258 nodes of the sample have one; half a mountain is worse than none."""
    osm = Map()
    osm.lanelet(1, osm.way((0, 2), (50, 2)), osm.way((0, -2), (50, -2)))
    osm._ele = None
    osm.lanelet(2, osm.way((50, 2), (90, 2)), osm.way((50, -2), (90, -2)))
    scene = read_scene(osm.text)
    assert not scene.meta.has_z
    assert scene.meta.loss["ignored_ele"].count == 4


def test_neighbours_share_a_border_and_a_direction() -> None:
    """R22: two lanes along one way are neighbours, oncoming ones are not."""
    osm = Map()
    upper, middle, lower = (osm.way((0, y), (50, y), type="line_thick", subtype="solid_solid") for y in (4, 0, -4))
    osm.lanelet(1, upper, middle)
    osm.lanelet(2, middle, lower)
    osm.lanelet(3, upper, osm.way((0, 8), (50, 8)))
    scene = read_scene(osm.text)
    assert scene.road.left_lane.tolist() == [0]
    assert scene.road.right_lane.tolist() == [1]
    assert (scene.road.element_type == LINE_DOUBLE_WHITE).sum() == 3


@pytest.mark.parametrize(
    ("tags", "drivable"),
    [
        ({}, True),
        ({"participant:pedestrian": "yes"}, False),
        ({"participant:vehicle": "no"}, False),
        ({"participant:vehicle:car": "yes"}, True),
        ({"subtype": "walkway"}, False),
        ({"subtype": "highway"}, True),
        ({"subtype": "spaceport"}, False),
    ],
)
def test_who_may_drive(tags: dict[str, str], drivable: bool) -> None:
    """R22: participants say who may use a lanelet, whatever its kind."""
    osm = Map()
    osm.lanelet(1, osm.way((0, 2), (50, 2)), osm.way((0, -2), (50, -2)), **tags)
    scene = read_scene(osm.text)
    assert scene.road.drivable.tolist() == [drivable]
    assert ("unknown_lanelet_subtype" in scene.meta.loss) == (tags.get("subtype") == "spaceport")


def test_rules_without_lines_and_with_signs() -> None:
    """R22: who yields stops at the line near its end, else at its end; 205 yields, 206 stops; others are counted."""
    osm = Map()
    for n in range(3):
        osm.lanelet(
            n + 1, osm.way((0, 100 * n + 2), (50, 100 * n + 2)), osm.way((0, 100 * n - 2), (50, 100 * n - 2)), [20]
        )
    line = osm.way((50, 2), (50, -2), type="stop_line")
    give, stop = (osm.way((60, y), (61, y), type="traffic_sign", subtype=f"de{y}") for y in (205, 206))
    osm.rule(
        10,
        "right_of_way",
        [("way", line, "ref_line"), ("relation", 1, "yield"), ("relation", 2, "yield"), ("way", give, "refers")],
    )
    osm.rule(20, "traffic_sign", [("way", stop, "refers")])
    osm.rule(21, "no_parking", [("relation", 77, "yield")])
    scene = read_scene(osm.text)
    assert scene.signals.kind.tolist() == [SIGNAL_YIELD, SIGNAL_YIELD, SIGNAL_STOP, SIGNAL_STOP, SIGNAL_STOP]
    assert scene.signals.lane.tolist() == [0, 1, 0, 1, 2]
    assert scene.meta.loss["assumed_stop_line_at_end"].count == 4
    assert scene.meta.loss["ignored_rule"].count == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50", 50 / 3.6),
        ("50 km/h", 50 / 3.6),
        ("30mph", 30 * 0.44704),
        ("13.9 m/s", 13.9),
        ("walk", np.nan),
        ("0", np.nan),
    ],
)
def test_speed_limits_have_units(text: str, expected: float) -> None:
    """R22: km/h unless another unit is given; legal defaults are not guessed."""
    osm = Map()
    osm.lanelet(1, osm.way((0, 2), (50, 2)), osm.way((0, -2), (50, -2)), speed_limit=text)
    scene = read_scene(osm.text)
    np.testing.assert_allclose(scene.road.speed_limit, [expected], rtol=1e-6)
    assert ("dropped_speed_limit" in scene.meta.loss) == np.isnan(expected)


def test_three_losses_are_three_entries() -> None:
    """R7: an unknown tag, a known one that is not used, a border that is not there."""
    osm = Map()
    ways = osm.way((0, 2), (50, 2)), osm.way((0, -2), (50, -2))
    osm.lanelet(1, *ways, colour="red", region="de")
    osm.lanelet(2, ways[0], 777)
    loss = read_scene(osm.text).meta.loss
    assert {kind for kind in loss if kind != "ignored_border"} == {
        "unknown_tag",
        "ignored_region",
        "dropped_lanelet_without_border",
    }


def test_what_an_editor_deleted_is_gone() -> None:
    """R8: JOSM keeps deleted things in the file, marked."""
    osm = Map()
    osm.lanelet(1, osm.way((0, 2), (50, 2)), osm.way((0, -2), (50, -2)))
    text = osm.text.replace(b"</osm>", b'<relation id="2" action="delete"><member x="1"/></relation></osm>')
    assert read_scene(text).meta.loss["dropped_deleted"].count == 1


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'lat="49', b'lat="149', "expected one within"),
        (b'lat="49', b'lat="4,9', "expected a number"),
        (b'lon="8', b'lon="x', "expected a number"),
        (b'node id="1"', b'node id="99999999999999999999"', "expected an integer of 64 bits"),
        (b'relation id="2"', b'relation id="1"', "is there twice"),
        (b'v="yes"', b'v="perhaps"', "expected yes, no, true or false"),
        (b'nd ref="1"', b"nd", "'ref' is missing"),
        (b"<osm ", b"<osn ", "none of the known formats"),
        (b'v="lanelet"', b'v="footpath"', "expected a Lanelet2 map"),
    ],
)
def test_hostile_maps_are_refused_in_words(old: bytes, new: bytes, says: str) -> None:
    """R3, R5, F9: each with its line."""
    osm = Map(local=False)
    ways = osm.way((0, 2), (50, 2)), osm.way((0, -2), (50, -2))
    osm.lanelet(1, *ways)
    osm.lanelet(2, *ways)
    with pytest.raises(FormatError, match=r"map\.osm") as caught:
        read_scene(osm.text.replace(old, new).replace(b"</osn>", b"</osm>"), name="map.osm")
    assert says in str(caught.value)


def test_limits_hold() -> None:
    """R3: nodes, ways and lanes are counted before arrays are made."""
    for limit in ("map_points", "elements", "lanes"):
        with pytest.raises(FormatError, match=limit.replace("_", " ")):
            read_scene(small_map(), limits=Limits(**{limit: 2}))


def test_the_sample(shared: Path) -> None:
    """R22 on `mapping_example.osm`: 2,258 nodes, 371 lanelets (8 of them crosswalks), 9 rules, 93 of the lanes the
    other direction of one that is not one-way."""
    scene = read_scene(shared / "data" / "lanelet2" / "mapping_example.osm")
    road = scene.road
    assert scene.meta.labels["lanelets"] == 363
    assert (road.element_type == AREA_CROSSWALK).sum() == 8
    assert road.lane_count == 456
    assert scene.signals.kind.tolist().count(SIGNAL_LIGHT) == 6
    assert len(road.exit_lane) == 398
    assert not scene.meta.has_z

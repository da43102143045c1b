"""GPUDrive and Nocturne JSON (R19): what the reader makes of each member, and what the known files do differently."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from gpudrive_files import document, gpudrive_json
from small_world import assert_same_world, small_world

from skidpad.errors import FormatError
from skidpad.scenes.formats import format_of, read_scene
from skidpad.scenes.formats.source import Limits, read_source
from skidpad.scenes.scene import SIGNAL_LIGHT, SIGNAL_STOP, STATE_GREEN, STATE_RED, STATE_UNKNOWN, Scene
from skidpad.scenes.synthetic import synthetic


@pytest.fixture(scope="module")
def world() -> Scene:
    return small_world()


def read(value: Any, limits: Limits | None = None) -> Scene:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return read_scene(data, name="small.json", limits=limits)


def test_a_file_comes_back(world: Scene) -> None:
    """R19, R26: lanes, paint, edges, lights, signs, rows, goals and whom the file singles out, written and read; the
    graph is built from where lanes end, and what is lost is said."""
    scene = read(gpudrive_json(world))
    assert_same_world(scene, world)
    assert scene.tracks.expert.tolist() == [False, False, True]
    assert scene.tracks.source_id.tolist() == [101, 102, 103]
    assert np.isnan(scene.road.speed_limit).all()
    assert {kind: entry.count for kind, entry in scene.meta.loss.items()} == {
        "assumed_lane_width": 3,
        "assumed_stop_sign_lane": 1,
        "ignored_difficulty": 2,
    }
    assert scene.meta.scene_id == "small"


@pytest.mark.parametrize("columns", [False, True])
def test_degrees_and_radians_are_one_scene(world: Scene, columns: bool) -> None:
    """R19: no file says its unit; the rows that move do. Both forms of places, both units: the same arrays."""
    one, other = (read(gpudrive_json(world, degrees=degrees, columns=columns)) for degrees in (False, True))
    np.testing.assert_allclose(one.tracks.heading, other.tracks.heading, atol=1e-6)
    assert_same_world(other, world)


def test_unit_of_a_world_in_which_nobody_moves(world: Scene) -> None:
    """R19: with no row above 3 m/s the size of the largest heading decides, and that is counted as assumed."""
    for heading, expected in ((90.0, np.pi / 2), (1.5, 1.5)):
        file = document(world)
        for one in file["objects"]:
            one["velocity"] = [{"x": 0.0, "y": 0.0}] * 4
            one["heading"] = [heading] * 4
        scene = read(file)
        assert scene.tracks.heading[0, 0] == pytest.approx(expected)
        assert scene.meta.loss["assumed_heading_unit"].count == 1


def test_files_without_ids_heights_and_codes(world: Scene) -> None:
    """R19: 63 of the known files; the word is the type, a light is of the nearest lane; both are counted."""
    scene = read(gpudrive_json(world, ids=False))
    assert scene.meta.has_z is False
    assert scene.road.element_type.tolist() == [2, 2, 2, 10, 20, 31]
    assert scene.signals.kind.tolist() == [SIGNAL_LIGHT, SIGNAL_STOP]
    assert scene.tracks.source_id.tolist() == [-1, -1, -1]
    assert scene.meta.objects_of_interest == (1,)
    assert {"assumed_light_lane", "assumed_height", "assumed_stop_sign_lane"} <= set(scene.meta.loss)


def test_short_objects_are_padded(world: Scene) -> None:
    """R19: 213 objects of the known files have 11 rows where the others have 91; series of one object must agree."""
    file = document(world)
    for name in ("position", "velocity", "heading", "valid"):
        file["objects"][1][name] = file["objects"][1][name][:2]
    scene = read(file)
    assert scene.tracks.valid[1].tolist() == [True, True, False, False]
    assert scene.meta.loss["assumed_absent_rows"].count == 2
    file["objects"][1]["heading"].append(0.0)
    with pytest.raises(FormatError, match=r"small\.json.*objects\[1\]: series of different lengths"):
        read(file)


def test_rows_marked_as_absent_are_not_believed(world: Scene) -> None:
    """R19: some files call a row at x = -10000 valid; it is no place anybody was."""
    file = document(world)
    file["objects"][0]["position"][3] = {"x": -10000.0, "y": -10000.0, "z": 0.0}
    scene = read(file)
    assert scene.tracks.valid[0].tolist() == [True, True, True, False]
    assert scene.meta.loss["repaired_absent_row"].count == 1


def test_missing_velocity_is_that_of_the_places(world: Scene) -> None:
    """S5: central differences where a file has none; one object's choice is not another's."""
    file = document(world)
    del file["objects"][0]["velocity"]
    np.testing.assert_allclose(read(file).tracks.vx[0], 10.0, atol=1e-3)


def test_lights_have_rows_and_lanes(world: Scene) -> None:
    """R19: states stand at `time_index`; rows not named are unknown, a light of a lane that is not there is dropped."""
    file = document(world)
    light = file["tl_states"]["12"]
    light |= {axis: light[axis][:2] for axis in ("state", "x", "y", "z", "lane_id")} | {"time_index": [3, 9]}
    light["state"] = ["flashing_stop", "go"]
    file["tl_states"]["77"] = {"state": ["go"], "time_index": [0], "x": [1.0], "y": [1.0]}
    file["tl_states"]["11"] = {"state": ["dancing"], "time_index": [1]}
    scene = read(file)
    assert scene.signals.state[scene.signals.kind == SIGNAL_LIGHT].tolist() == [
        [STATE_UNKNOWN, STATE_UNKNOWN, STATE_UNKNOWN, STATE_RED],
        [STATE_UNKNOWN] * 4,
    ]
    for kind in ("dropped_light_row", "dropped_signal_without_lane", "unknown_light_state"):
        assert scene.meta.loss[kind].count == 1, kind
    file["traffic_lights"] = [file["tl_states"].pop("12") | {"state": ["go", "go"], "lane_id": 12}]
    assert STATE_GREEN in read(file).signals.state


def test_three_losses_are_three_entries(world: Scene) -> None:
    """R7: one unknown member, one that is known and unused, one index that names nobody, beside what every file has."""
    file = document(world)
    file["objects"][0] |= {"colour": "red", "vbd_trajectory": []}
    file["metadata"]["tracks_to_predict"].append({"track_index": 40})
    found, usual = read(file).meta.loss, read(document(world)).meta.loss
    assert {kind for kind in found if kind not in usual} == {
        "unknown_key",
        "ignored_vbd_trajectory",
        "dropped_track_to_predict",
    }


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("objects", 0, "heading"), [0, 0, 0, "1,5"], "expected a number"),
        (("objects", 0, "heading"), None, "expected an array"),
        (("objects", 0, "valid"), [1, 1, 1, 2], "expected true, false, 1 or 0"),
        (("objects", 0, "width"), True, "expected a number"),
        (("objects", 0, "id"), 1.5, "expected an integer"),
        (("objects", 0, "type"), 1, "expected a text"),
        (("objects", 0, "position"), [{"x": 1.0}] * 4, "'y' is missing"),
        (("objects", 0, "position"), {"x": [1.0], "y": []}, "expected the same"),
        (("objects", 0), [], "expected an object"),
        (("objects",), {}, "expected an array"),
        (("roads", 0, "geometry"), [{"x": 0.0, "y": []}], "expected a number"),
        (("roads", 0, "geometry"), [{"x": 1e300, "y": 0.0}, {"x": 0.0, "y": 0.0}], "coordinate m"),
        (("roads", 1, "id"), 11, "is there twice"),
        (("roads", 0, "type"), None, "expected a text"),
        (("tl_states",), 5, "expected an object, or an array"),
        (("tl_states", "12", "time_index"), [0], "expected as many"),
        (("tl_states", "12", "lane_id"), "here", "expected the id of a lane"),
        (("metadata", "sdc_track_index"), "first", "expected an integer"),
        (("metadata", "objects_of_interest"), [[]], "expected an integer"),
    ],
)
def test_broken_members_are_refused_in_words(world: Scene, path: tuple[Any, ...], value: Any, says: str) -> None:
    """R5, F9: a member of the wrong kind is named with its place; none is a KeyError of ours."""
    file = copy.deepcopy(document(world))
    holder = file
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(FormatError, match=r"small\.json") as caught:
        read(file)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"objects":[NaN]}', "NaN is not JSON"),
        (b'{"objects":[],"objects":[]}', "duplicate key"),
        (b'{"objects":[123456789012345678901234567890]}', "does not fit into 64 bits"),
        (b'{"objects":[' + b"[" * 100_000, "json depth is"),
        (b'{"objects":["' + b"x" * 70_000 + b'"]}', "json string bytes is"),
        (b'{"objects":["' + b'\\"' * 40_000 + b'"]}', "json string bytes is"),
        (b'{"objects":[],"roads":[]}', "neither lanes nor tracks"),
        (b'{"objects":[1,', "not a JSON file"),
        (b'{"objects":[]}', "'roads' is missing"),
        (b'{"objects":["\xff"]}', "not a JSON file"),
    ],
)
def test_hostile_json_is_refused(data: bytes, says: str) -> None:
    """R3, R4: what Python's parser would take, or build first and count then."""
    with pytest.raises(FormatError, match="small") as caught:
        read(data)
    assert says in str(caught.value)


def test_counts_are_bounded_before_arrays_are_made(world: Scene) -> None:
    """R3: values of the file, tracks, rows."""
    for limit, value in (("json_values", 100), ("tracks", 2), ("rows", 3), ("track_rows", 11)):
        with pytest.raises(FormatError, match=limit.replace("_", " ")):
            read(gpudrive_json(world), Limits(**{limit: value}))


def test_content_tells_the_format(world: Scene, shared: Any) -> None:
    """R2: by members, whatever the name; other JSON is nobody's."""
    assert format_of(read_source(gpudrive_json(world), name="x.dat")) == "gpudrive"
    with pytest.raises(FormatError, match="none of the known formats"):
        read(b'{"map_features": {}}')


def test_the_hand_made_sample(shared: Any) -> None:
    """R19 on `gpudrive_json`: two vehicles of one row, headings in degrees, a stop sign beside no lane."""
    scene = read_scene(shared / "data" / "gpudrive_json" / "scenario_test.json")
    np.testing.assert_allclose(scene.tracks.heading[:, 0], [np.pi / 2, 0.0], atol=1e-6)
    assert scene.meta.loss["dropped_stop_sign_without_lane"].count == 1
    assert scene.road.element_type.tolist() == [20]


def test_the_synthetic_town(shared: Any) -> None:
    """R19 and R10b on the town that comes with the recordings: 124 lanes, all of whose ends lead on."""
    scene = read_scene(shared / "oracles" / "pufferdrive" / "town01_parity.json.gz")
    road = scene.road
    assert (road.lane_count, scene.tracks.count, scene.meta.steps, len(road.exit_lane)) == (124, 15, 91, 160)
    dead_ends = int((np.diff(road.exit_offset) == 0).sum())
    assert dead_ends == 0, dead_ends
    assert scene.meta.sdc == 0


@pytest.mark.parametrize("name", ["straight", "curve", "crossing", "merge", "roundabout", "overpass"])
def test_graph_of_synthetic_scenes_is_rebuilt(name: str) -> None:
    """R10 b: the links of a scene, taken away, come back from its centre lines, on their own level."""
    from skidpad.scenes.formats.derive import connections

    road = synthetic(name, traffic=False).road
    centres = [road.xyz[road.lane_points(lane)].astype(float) for lane in range(road.lane_count)]
    expected = [(lane, other) for lane in range(road.lane_count) for other in sorted(road.exits(lane).tolist())]
    assert connections(centres) == expected


def test_lanes_on_one_place_are_refused() -> None:
    """R3: a thousand lanes whose ends all meet would be a million links."""
    from skidpad.scenes.formats.derive import connections

    heap = [np.array([(0.0, 0.0, 0.0), (0.3, 0.0, 0.0)])] * 1000
    with pytest.raises(FormatError, match="too many to tell"):
        connections(heap)

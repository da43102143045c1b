"""Argoverse 2 scenarios and maps (R21). pyarrow is an extra: what it does not touch is tested without it."""

from __future__ import annotations

import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from argoverse_files import columns, document, map_json
from small_world import small_world

from skidpad.errors import FormatError, MissingExtraError, SettingsError
from skidpad.scenes.formats import argoverse, read_scene
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    EDGE_BOUNDARY,
    LINE_DOUBLE_YELLOW,
    LINE_SOLID_WHITE,
    TYPE_PEDESTRIAN,
    TYPE_VEHICLE,
    Scene,
)

PARQUET = b"PAR1 as far as this test goes"


@pytest.fixture(scope="module")
def world() -> Scene:
    return small_world()


@pytest.fixture
def folder(world: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario with its map beside it, whose columns are handed over as pyarrow would."""
    (tmp_path / "scenario_small.parquet").write_bytes(PARQUET)
    (tmp_path / "log_map_archive_small.json").write_bytes(map_json(world))
    give(monkeypatch, columns(world))
    return tmp_path


def give(monkeypatch: pytest.MonkeyPatch, table: dict[str, Any]) -> None:
    def as_read(source: Source, limits: Limits) -> dict[str, Any]:
        return {
            name: np.asarray(values, float) if name in argoverse._NUMBERS else values for name, values in table.items()
        }

    monkeypatch.setattr(argoverse, "_table", as_read)


def test_a_scenario_comes_back(world: Scene, folder: Path) -> None:
    """R21, R26: rows, the recording vehicle, focal before scored, the moment now; lanes, graph, widths, heights."""
    scene = read_scene(folder / "scenario_small.parquet")
    tracks, road = scene.tracks, scene.road
    np.testing.assert_array_equal(tracks.valid, world.tracks.valid)
    for axis, at in (("x", 0), ("y", 1)):
        found = getattr(tracks, axis).astype(float) + scene.meta.origin[at]
        expected = getattr(world.tracks, axis).astype(float) + world.meta.origin[at]
        np.testing.assert_allclose(found[tracks.valid], expected[tracks.valid], atol=1e-4)
    np.testing.assert_allclose(tracks.vy, world.tracks.vy, atol=1e-6)
    assert tracks.type.tolist() == [TYPE_VEHICLE, TYPE_PEDESTRIAN, TYPE_VEHICLE]
    assert tracks.source_id.tolist() == [-1, 102, 103]
    assert (tracks.length[:, 3].tolist(), tracks.width[0, 0]) == (
        [np.float32(4.6), np.float32(0.7), np.float32(4.6)],
        2.0,
    )
    assert (scene.meta.sdc, scene.meta.tracks_to_predict, scene.meta.current_step) == (0, (2, 0), 1)
    assert (scene.meta.scene_id, scene.meta.dt_us, scene.meta.labels["city"]) == ("small", 100_000, "austin")
    assert "NC" in scene.meta.licence
    assert "Argo AI" in scene.meta.attribution
    lanes = road.source_id[road.lane_element].tolist()
    assert lanes == [11, 12, 13, 14]
    assert road.exit_lane.tolist() == [1, 2]
    assert road.lane_junction.tolist() == [-1, 0, 0, -1]
    np.testing.assert_allclose(road.width[:6], 3.7, atol=2e-3)
    assert scene.meta.has_z
    assert scene.meta.origin[2] == 7.0
    assert not tracks.z.any()
    assert [
        int((road.element_type == kind).sum()) for kind in (LINE_DOUBLE_YELLOW, LINE_SOLID_WHITE, AREA_CROSSWALK)
    ] == [1, 1, 1]
    assert scene.meta.loss["assumed_size"].count == 3
    assert scene.meta.loss["ignored_oncoming_neighbour"].count == 2
    assert len(road.left_lane) == 0


def test_edges_stop_at_the_crop_and_at_seams(folder: Path) -> None:
    """R21: areas are cut at the border of the crop and into tiles; neither cut is a kerb, and what is left has the
    road on its left."""
    scene = read_scene(folder / "scenario_small.parquet")
    road = scene.road
    edges = [
        road.xyz[road.points(n)][:, :2] + scene.meta.origin[:2]
        for n in np.flatnonzero(road.element_type == EDGE_BOUNDARY)
    ]
    assert edges == []  # both areas fill the crop: all their sides are cuts or seams
    file = json.loads((folder / "log_map_archive_small.json").read_bytes())
    file["drivable_areas"]["3"] = {
        "id": 3,
        "area_boundary": [{"x": x, "y": y, "z": 7.0} for x, y in ((-20, -9), (120, -9), (120, -8), (-20, -8))],
    }
    file["drivable_areas"]["4"] = {
        "id": 4,
        "area_boundary": [{"x": x, "y": y, "z": 7.0} for x, y in ((-20, 30), (120, 30), (120, 29), (-20, 29))],
    }
    (folder / "log_map_archive_small.json").write_text(json.dumps(file))
    scene = read_scene(folder / "scenario_small.parquet")
    road = scene.road
    edges = [
        road.xyz[road.points(n)][:, :2] + scene.meta.origin[:2]
        for n in np.flatnonzero(road.element_type == EDGE_BOUNDARY)
    ]
    around = [edge for edge in edges if abs(edge[:, 1] - 8.5).max() < 12.0]
    assert len(around) == 2
    for edge in around:  # each area is open towards the other one
        assert not any(np.all(np.abs(edge[k : k + 2, 0] - 50.0) < 0.1) for k in range(len(edge) - 1))
        step = edge[1] - edge[0]
        middle = edge.mean(axis=0) - edge[0]
        assert step[0] * middle[1] - step[1] * middle[0] >= 0.0


def test_order_of_rows_does_not_matter(world: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R21: rows are placed by track and time, not by where they stand."""
    first = read_scene(folder / "scenario_small.parquet").tracks
    give(monkeypatch, columns(world, shuffle=True))
    second = read_scene(folder / "scenario_small.parquet")
    order = [second.tracks.source_id.tolist().index(identity) for identity in first.source_id.tolist()]
    np.testing.assert_array_equal(second.tracks.x[order], first.x)


def test_maps_of_sensor_logs_have_no_centre_line(folder: Path, world: Scene) -> None:
    """R21: where the file has none it is the mean of the borders."""
    file = document(world)
    for lane in file["lane_segments"].values():
        del lane["centerline"]
    whole = read_scene(folder / "scenario_small.parquet")
    (folder / "log_map_archive_small.json").write_text(json.dumps(file))
    np.testing.assert_allclose(read_scene(folder / "scenario_small.parquet").road.xyz, whole.road.xyz, atol=2e-3)


def test_the_map_is_beside_or_named(world: Scene, folder: Path) -> None:
    """R21: left out, it is looked for beside the scenario; nobody drives on nothing without having said so."""
    (folder / "log_map_archive_small.json").rename(folder / "other.json")
    with pytest.raises(SettingsError, match=r"no log_map_archive_small\.json beside it"):
        read_scene(folder / "scenario_small.parquet")
    named = read_scene(folder / "scenario_small.parquet", options={"map": str(folder / "other.json")})
    assert named.road.lane_count == 4
    bare = read_scene(folder / "scenario_small.parquet", options={"map": "none"})
    assert (bare.road.lane_count, bare.meta.has_z) == (0, False)


@pytest.mark.parametrize(
    ("column", "at", "value", "says"),
    [
        ("timestep", 0, 0.5, "expected whole numbers from 0"),
        ("timestep", 0, -1.0, "expected whole numbers from 0"),
        ("timestep", 0, 1e6, "rows is"),
        ("timestep", 0, np.nan, "expected whole numbers from 0"),
        ("scenario_id", 0, "x", "expected one scenario in a file"),
    ],
)
def test_hostile_columns_are_refused_in_words(
    world: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch, column: str, at: int, value: Any, says: str
) -> None:
    """R3, R5: times that are none, or that would make a million rows of a short file."""
    table: dict[str, Any] = columns(world)
    table[column] = table[column].astype(object if isinstance(value, str) else float)
    table[column][at] = value
    give(monkeypatch, table)
    with pytest.raises(FormatError, match=r"scenario_small\.parquet") as caught:
        read_scene(folder / "scenario_small.parquet")
    assert says in str(caught.value)


def test_odd_rows_are_counted(world: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R5, R7: a place that is none invalidates its row; doubled rows and unknown words are counted."""
    table: dict[str, Any] = {name: np.append(values, values[:1]) for name, values in columns(world).items()}
    table["position_x"][1] = np.nan
    table["object_type"] = table["object_type"].astype(object)
    table["object_type"][4] = "tank"
    table["colour"] = np.zeros(0)
    give(monkeypatch, table)
    scene = read_scene(folder / "scenario_small.parquet")
    assert scene.tracks.valid[0].tolist() == [True, False, True, True]
    for kind in ("dropped_row_not_finite", "dropped_doubled_row", "unknown_object_type", "unknown_column"):
        assert scene.meta.loss[kind].count == 1, kind


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("lane_segments",), {}, "expected lanes"),
        (("lane_segments", "11", "id"), "11", "expected an integer"),
        (("lane_segments", "11", "left_lane_boundary"), [{"x": 0.0, "y": 0.0}], "expected at least 2"),
        (("lane_segments", "11", "right_lane_boundary"), 5, "expected an array"),
        (("lane_segments", "11", "centerline"), [{"x": 0.0, "y": 1e300}, {"x": 1.0, "y": 0.0}], "coordinate m"),
        (("lane_segments", "11", "is_intersection"), 1, "expected true or false"),
        (("lane_segments", "11", "successors"), ["12"], "expected an integer"),
        (("lane_segments", "11", "left_neighbor_id"), "14", "expected an integer"),
        (("lane_segments", "12", "id"), 11, "is there twice"),
        (("drivable_areas", "1", "area_boundary"), [{"x": 0.0}], "'y' is missing"),
        (("pedestrian_crossings", "23"), [], "expected an object"),
    ],
)
def test_broken_maps_are_refused_in_words(
    world: Scene, folder: Path, path: tuple[str, ...], value: Any, says: str
) -> None:
    """R5, F9: the member, and the file that holds it."""
    file = copy.deepcopy(document(world))
    holder = file
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    (folder / "log_map_archive_small.json").write_text(json.dumps(file))
    with pytest.raises(FormatError, match=r"log_map_archive_small\.json") as caught:
        read_scene(folder / "scenario_small.parquet")
    assert says in str(caught.value)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: the extra is named in one sentence."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "s.parquet").write_bytes(PARQUET)
    with pytest.raises(MissingExtraError, match=r"pip install 'skidpad\[argoverse\]'"):
        read_scene(tmp_path / "s.parquet")


def parquet_bytes(table: dict[str, Any]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, the extra `argoverse`, is not installed")
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({name: values.tolist() for name, values in table.items()}), sink)
    return bytes(sink.getvalue())


def test_parquet_files_whole_cut_and_flipped(world: Scene, tmp_path: Path) -> None:
    """R6 with pyarrow: the file comes back; cut or flipped it is refused or is a scene that passes check_scene."""
    data = parquet_bytes(columns(world))
    (tmp_path / "log_map_archive_small.json").write_bytes(map_json(world))
    path = tmp_path / "scenario_small.parquet"
    path.write_bytes(data)
    assert read_scene(path).tracks.count == 3
    draw = random.Random(4)
    for cut in draw.sample(range(4, len(data)), 40):
        with pytest.raises(FormatError, match="not a whole Parquet file"):
            read_scene(data[:cut], options={"map": "none"})
    for place in draw.sample(range(4, len(data)), 60):
        broken = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        try:
            read_scene(broken, options={"map": "none"})
        except FormatError as error:
            assert "<bytes>" in str(error)  # noqa: PT017
    with pytest.raises(FormatError, match="without the columns"):
        read_scene(parquet_bytes({"x": np.zeros(3)}), options={"map": "none"})


def test_the_sample(shared: Path) -> None:
    """R21 on the one scenario at hand: 58 tracks, 110 rows, 71 lanes, 28 oncoming neighbours; no edge lies
    across a road, but two stubs that end with their area reach a hand's breadth beyond it."""
    pytest.importorskip("pyarrow", reason="pyarrow, the extra `argoverse`, is not installed")
    (path,) = (shared / "data" / "argoverse2").glob("*/scenario_*.parquet")
    scene = read_scene(path)
    road = scene.road
    assert (scene.tracks.count, scene.meta.steps, road.lane_count) == (58, 110, 71)
    assert scene.meta.loss["ignored_oncoming_neighbour"].count == 28
    assert scene.meta.current_step == 49
    segments = [
        road.xyz[road.points(n)][:, :2].astype(float) for n in np.flatnonzero(road.element_type == EDGE_BOUNDARY)
    ]
    crossing = set()
    for lane in np.flatnonzero(road.drivable):
        centre = road.xyz[road.lane_points(lane)][:, :2].astype(float)
        if any(_cross(centre, edge) for edge in segments):
            crossing.add(int(road.source_id[road.lane_element[lane]]))
    assert crossing == {205119403, 205119618}


def _cross(one: np.ndarray, other: np.ndarray) -> bool:
    p, q = one[:-1, None], one[1:, None]
    a, b = other[None, :-1], other[None, 1:]

    def side(u: np.ndarray, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        return (v[..., 0] - u[..., 0]) * (w[..., 1] - u[..., 1]) - (v[..., 1] - u[..., 1]) * (w[..., 0] - u[..., 0])

    return bool(((side(p, q, a) * side(p, q, b) < 0) & (side(a, b, p) * side(a, b, q) < 0)).any())

"""nuPlan logs and maps (R25), on a synthetic database: rows by time, frames, lights, crops; and hostile databases."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nuplan_files import EPSG, SHIFT, city_map, geometry, nuplan_log, to_degrees, token
from small_world import small_world

from skidpad.errors import FormatError, SettingsError
from skidpad.scenes.formats import read_scene, read_scenes
from skidpad.scenes.formats.geopackage import shape
from skidpad.scenes.formats.projection import transverse_mercator, utm
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import AREA_CROSSWALK, SIGNAL_LIGHT, SIGNAL_STOP, TYPE_PEDESTRIAN, TYPE_VEHICLE, Scene


@pytest.fixture(scope="module")
def world() -> Scene:
    return small_world()


@pytest.fixture(scope="module")
def maps(world: Scene, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("maps")
    forms = {"metres": city_map(world), "degrees": city_map(world, degrees=True), "multi": city_map(world, multi=True)}
    for name, data in forms.items():
        (folder / f"{name}.gpkg").write_bytes(data)
    return {name: str(folder / f"{name}.gpkg") for name in forms}


def test_a_log_comes_back(world: Scene, maps: dict[str, str]) -> None:
    """R25: the box of the recording car, 20 Hz halved by time, boxes of others, lights, tags, goal, borders, graph."""
    scene = read_scene(nuplan_log(world), options={"map": maps["metres"]})
    tracks, there = scene.tracks, world.tracks
    order = [0, 1, 2]
    np.testing.assert_array_equal(tracks.valid, there.valid[order])
    for axis, shift in zip("xy", SHIFT, strict=False):
        at = "xy".index(axis)
        found = getattr(tracks, axis).astype(float) + scene.meta.origin[at] - shift
        expected = getattr(there, axis).astype(float) + world.meta.origin[at]
        np.testing.assert_allclose(found[tracks.valid], expected[there.valid], atol=2e-3)
    np.testing.assert_allclose(tracks.heading, there.heading, atol=1e-6)
    np.testing.assert_allclose(tracks.vx, there.vx, atol=1e-5)
    assert tracks.type.tolist() == [TYPE_VEHICLE, TYPE_PEDESTRIAN, TYPE_VEHICLE]
    assert tracks.length[0, 0] == pytest.approx(5.176)
    np.testing.assert_allclose(tracks.length[1:], there.length[1:])
    assert tracks.source_id[1] == int.from_bytes(token(3, 1), "big")
    assert (scene.meta.sdc, scene.meta.dt_us, scene.meta.steps, scene.meta.has_z) == (0, 100_000, 4, False)
    assert scene.meta.scene_id == "log-7-scene-001"
    assert scene.meta.labels["tags"] == ["starting_left_turn from row 1"]
    goal = tracks.goal[0, :2] + np.array(scene.meta.origin[:2]) - SHIFT[:2]
    np.testing.assert_allclose(goal, (88.539, 0.0), atol=1e-3)
    road = scene.road
    assert road.source_id[road.lane_element].tolist() == [11, 12, 13]
    assert road.exit_lane.tolist() == [1, 2]
    assert road.lane_junction.tolist() == [-1, 0, 0]
    np.testing.assert_allclose(road.width[:6], 3.7, atol=1e-3)
    np.testing.assert_allclose(road.speed_limit, 13.9, rtol=1e-6)
    assert AREA_CROSSWALK in road.element_type
    assert scene.signals.kind.tolist() == [SIGNAL_LIGHT, SIGNAL_STOP]
    assert scene.signals.state[0].tolist() == world.signals.state[0].tolist()
    assert scene.signals.lane.tolist() == [1, 0]
    assert "non-commercial" in scene.meta.licence
    for kind in ("assumed_size", "dropped_dangling_link", "ignored_carpark_areas", "assumed_stop_lane"):
        assert kind in scene.meta.loss, kind


def test_maps_in_degrees_and_in_parts_are_the_same(world: Scene, maps: dict[str, str]) -> None:
    """R25: layers in latitude and longitude are projected into the map's zone; multi-part lines are read."""
    data = nuplan_log(world)
    plain, *others = (read_scene(data, options={"map": maps[name]}) for name in ("metres", "degrees", "multi"))
    for scene in others:
        assert scene.meta.origin == plain.meta.origin
        np.testing.assert_allclose(scene.road.xyz, plain.road.xyz, atol=5e-3)


def test_every_scene_of_a_log(world: Scene) -> None:
    """R25: an entry of the table is a scene; one may be named; a map must be named, or said to be none."""
    data = nuplan_log(world, scenes=("a", "b"))
    found = list(read_scenes(data, options={"map": "none"}))
    assert [scene.meta.scene_id for scene in found] == ["log-7-a", "log-7-b"]
    assert found[0].road.lane_count == 0
    assert read_scene(data, options={"map": "none", "scenario": "b"}).meta.scene_id == "log-7-b"
    with pytest.raises(SettingsError, match="option map is missing"):
        read_scene(data)
    with pytest.raises(SettingsError, match="no scene of the log"):
        read_scene(data, options={"map": "none", "scenario": "c"})


def test_gaps_and_odd_rows_are_counted(world: Scene) -> None:
    """R25, R5: a row without a cloud is absent for all; a number that is none invalidates its row; a spaceship is
    unknown."""
    more = (
        "DELETE FROM lidar_pc WHERE timestamp BETWEEN 1620000000180000 AND 1620000000220000;"
        "UPDATE lidar_box SET x = NULL WHERE rowid = 1;"
        "UPDATE track SET category_token = (SELECT token FROM category WHERE name = 'spaceship') WHERE rowid = 1;"
    )
    scene = read_scene(nuplan_log(world, more=more), options={"map": "none"})
    assert scene.tracks.valid.tolist()[:2] == [[True, True, False, True], [False, True, False, True]]
    for kind in ("assumed_absent_in_gap", "dropped_row_not_finite", "unknown_object_type"):
        assert kind in scene.meta.loss, kind


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("CREATE VIEW v AS SELECT * FROM log;", "has the view 'v'"),
        ("CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log; END;", "has the trigger 't'"),
        ("DROP TABLE track;", "no table 'track'"),
        ("DROP TABLE track; CREATE VIRTUAL TABLE track USING fts5(token, category_token);", "no ordinary table"),
        ("ALTER TABLE log DROP COLUMN location;", "no column location"),
        ("DELETE FROM log;", "'log' is empty"),
        ("DELETE FROM scene;", "'scene' is empty"),
        ("DELETE FROM lidar_pc;", "no lidar clouds"),
        ("DELETE FROM ego_pose;", "no cloud of the scene has an ego pose"),
        ("UPDATE lidar_pc SET timestamp = 'noon' WHERE rowid = 3;", "expected an integer"),
        ("UPDATE lidar_pc SET timestamp = 9000000000000000 WHERE rowid = 7;", "rows is"),
        ("UPDATE lidar_box SET y = 'there' WHERE rowid = 1;", "expected numbers"),
        ("UPDATE lidar_box SET track_token = x'01' WHERE rowid = 1;", "expected 8"),
        ("UPDATE traffic_light_status SET lane_connector_id = 'x';", "expected an integer"),
        ("UPDATE log SET logfile = zeroblob(3000);", "too big"),
    ],
)
def test_hostile_logs_are_refused_in_words(world: Scene, more: str, says: str) -> None:
    """R25, R3, F9: views, triggers, virtual tables, huge values and values of the wrong kind."""
    try:
        data = nuplan_log(world, more=more)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot make the file: {error}")
    limits = Limits(message_bytes=2000) if "zeroblob" in more else Limits()
    with pytest.raises(FormatError, match=r"x\.db") as caught:
        read_scene(data, name="x.db", options={"map": "none"}, limits=limits)
    assert says in str(caught.value)


def test_nothing_but_the_named_tables_can_be_asked(world: Scene) -> None:
    """R25: the authorizer refuses writing, other tables, attaching and settings."""
    from skidpad.scenes.formats.source import read_source
    from skidpad.scenes.formats.sqlite_file import Database
    from skidpad.scenes.loss import LossReport

    source = read_source(nuplan_log(world), name="x.db")
    with Database(source, ("log",), Limits(), LossReport(), plain=True) as database:
        assert len(list(database.rows("SELECT * FROM log"))) == 1
        for query in (
            "SELECT * FROM scene",
            "DELETE FROM log",
            "ATTACH ':memory:' AS other",
            "PRAGMA table_info(log)",
            "CREATE TABLE x (y)",
            "SELECT * FROM sqlite_master",
        ):
            with pytest.raises(FormatError, match="SQLite says"):
                list(database.rows(query))


def test_a_log_in_write_ahead_mode(world: Scene) -> None:
    """R25: the header asks for a second file that is not here; the file is read as it stands, counted."""
    data = bytearray(nuplan_log(world))
    data[18:20] = b"\x02\x02"
    scene = read_scene(bytes(data), options={"map": "none"})
    assert scene.meta.loss["repaired_journal_mode"].count == 1


def test_utm_on_known_places() -> None:
    """R22, R25: the meridian arc to 60 degrees, integrated step by step; false east; both hemispheres; true scale."""
    a, f = 6_378_137.0, 1.0 / 298.257223563
    e2 = f * (2.0 - f)
    latitude = np.radians(np.linspace(0.0, 60.0, 200_001))
    radius = a * (1.0 - e2) / (1.0 - e2 * np.sin(latitude) ** 2) ** 1.5
    arc = float(np.sum(0.5 * (radius[1:] + radius[:-1]) * np.diff(latitude)))
    x, y = utm(np.array([60.0, -60.0]), np.array([3.0, 3.0]), 32631)
    np.testing.assert_allclose(x, 500_000.0, atol=1e-6)
    np.testing.assert_allclose(y, (0.9996 * arc, -0.9996 * arc), atol=1e-3)
    assert utm(np.array([-60.0]), np.array([3.0]), 32731)[1][0] == pytest.approx(1e7 - 0.9996 * arc, abs=1e-3)
    # A transverse Mercator map is conformal: one step north and one step east are stretched alike and stay square.
    step = 1e-6
    where = np.array([36.1, 36.1 + step, 36.1]), np.array([-115.2, -115.2, -115.2 + step])
    x, y = transverse_mercator(*where, -117.0)
    sine = math.sin(math.radians(36.1))
    north_m = a * (1 - e2) / (1 - e2 * sine**2) ** 1.5 * math.radians(step)
    east_m = a / math.sqrt(1 - e2 * sine**2) * math.cos(math.radians(36.1)) * math.radians(step)
    north, east = np.array([x[1] - x[0], y[1] - y[0]]) / north_m, np.array([x[2] - x[0], y[2] - y[0]]) / east_m
    assert np.hypot(*north) == pytest.approx(np.hypot(*east), rel=1e-5)
    assert abs(north @ east) < 1e-5
    np.testing.assert_allclose(
        np.column_stack(utm(*to_degrees(SHIFT[None, :2]).T[::-1], EPSG)), SHIFT[None, :2], atol=1e-3
    )
    with pytest.raises(FormatError, match="expected one within"):
        utm(np.array([36.1]), np.array([10.0]), EPSG)
    with pytest.raises(FormatError, match="expected a UTM zone"):
        utm(np.array([36.1]), np.array([10.0]), 4326)


@pytest.mark.parametrize("polygon", [False, True])
@pytest.mark.parametrize("z", [False, True])
def test_geometries(polygon: bool, z: bool) -> None:
    """R25: lines and outer rings with and without heights come back; cut, flipped and absurd ones are refused."""
    points = np.array([(1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0, 9.0, 8.0)])
    blob = geometry(points, polygon=polygon, z=z)
    found = shape(blob, "here", Limits())
    np.testing.assert_array_equal(found[:3], points * (1.0, 1.0, float(z)))
    for cut in range(len(blob)):
        with pytest.raises(FormatError, match="here"):
            shape(blob[:cut], "here", Limits())
    for place in range(8, len(blob)):
        for flip in (0x01, 0x80):
            try:
                shape(blob[:place] + bytes([blob[place] ^ flip]) + blob[place + 1 :], "here", Limits())
            except FormatError as error:
                assert "here" in str(error)  # noqa: PT017
    nested = blob[:8] + b"\x01\x07\x00\x00\x00\x01\x00\x00\x00" * 50
    with pytest.raises(FormatError, match="expected a line or a polygon"):
        shape(nested, "here", Limits())


def test_broken_maps_are_refused_in_words(world: Scene, tmp_path: Path) -> None:
    """R25: a map that is no database, lacks a layer or names no zone says so, with its own name."""
    file = tmp_path / "map.gpkg"
    data = nuplan_log(world)

    def edited(statements: str) -> bytes:
        base = sqlite3.connect(":memory:", isolation_level=None)
        base.deserialize(city_map(world))
        base.executescript(statements)
        found = base.serialize()
        base.close()
        return found

    for content, says in (
        (b"nothing", "expected an SQLite database"),
        (city_map(world)[:-100], "The file is cut"),
        (edited("DELETE FROM meta"), "names no projectedCoordSystem"),
        (edited("DROP TABLE boundaries"), "no table 'boundaries'"),
        (edited("UPDATE gpkg_geometry_columns SET srs_id = 2056"), "coordinate system 2056"),
        (edited("DELETE FROM baseline_paths"), "expected lanes"),
        (edited("UPDATE baseline_paths SET geom = x'4750'"), "no GeoPackage geometry"),
        (edited("UPDATE baseline_paths SET lane_fid = 'x'"), "expected an integer"),
    ):
        file.write_bytes(content)
        with pytest.raises(FormatError, match=r"map\.gpkg") as caught:
            read_scene(data, options={"map": str(file)})
        assert says in str(caught.value)


MEASURED = """
import resource, sys
from skidpad.scenes.formats import read_scenes

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

small, large = sys.argv[1:]
for path in (small, small):
    digests = [scene.digest for scene in read_scenes(path, options={"map": "none"})]
before = peak()
found = [scene.digest for scene in read_scenes(large, options={"map": "none"})]
assert found == digests * (len(found) // len(digests)), "the same scene again and again"
print(len(found), peak() - before)
"""


def test_a_log_is_not_held_in_memory(world: Scene, tmp_path: Path) -> None:
    """R25: logs of hours are larger than memory. What reading needs does not grow with the file: neither with boxes of
    other scenes nor with what nobody asks for."""
    names = tuple(f"scene-{n:03d}" for n in range(12))
    strangers = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) INSERT INTO lidar_box "
        "SELECT randomblob(8), randomblob(8), i, i, i, 0.5, 2.0, 4.0, 1.5, 0.25, 0.75 FROM n; "
        "CREATE INDEX ix_box ON lidar_box (lidar_pc_token); CREATE INDEX ix_cloud ON lidar_pc (scene_token);"
        "CREATE TABLE image (content BLOB); INSERT INTO image VALUES (zeroblob(60000000))"
    )
    (tmp_path / "small.db").write_bytes(nuplan_log(world))
    (tmp_path / "large.db").write_bytes(nuplan_log(world, scenes=names, more=strangers))
    size = (tmp_path / "large.db").stat().st_size
    arguments = [sys.executable, "-c", MEASURED, str(tmp_path / "small.db"), str(tmp_path / "large.db")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scenes, grown = (int(word) for word in done.stdout.split())
    assert scenes == len(names)
    assert size > 80_000_000
    assert grown < 12_000_000, f"{grown} bytes more for a file of {size}"


def test_a_log_that_changes_while_it_is_read_is_refused(world: Scene, tmp_path: Path) -> None:
    """R9, R25: pages of two states are no database; the file is never locked, so it is looked at again."""
    path = tmp_path / "log.db"
    path.write_bytes(nuplan_log(world, scenes=("one", "two")))
    scenes = read_scenes(path, options={"map": "none"})
    assert next(scenes).meta.scene_id == "log-7-one"
    path.write_bytes(path.read_bytes() + b"\0" * 512)
    with pytest.raises(FormatError, match=r"log\.db: was written to while it was read"):
        next(scenes)


def test_write_ahead_files_are_read_without_their_log(world: Scene, tmp_path: Path) -> None:
    """R25: as from memory, with nothing written beside the file."""
    path = tmp_path / "log.db"
    data = nuplan_log(world)
    path.write_bytes(data[:18] + b"\x02\x02" + data[20:])
    scene = read_scene(path, options={"map": "none"})
    assert scene.meta.loss["repaired_journal_mode"].count == 1
    assert scene.digest == read_scene(data, options={"map": "none"}).digest
    assert [file.name for file in tmp_path.iterdir()] == ["log.db"]

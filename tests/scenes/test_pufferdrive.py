"""PufferDrive `.bin` files (R20): which of five layouts a file has, what each says, and the one that is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pufferdrive_files import LAYOUTS, OLD, floats, ints, new_bin, pufferdrive_bin, with_tails
from small_world import assert_same_tracks, assert_same_world, small_world

from skidpad.errors import EXIT_USAGE, FormatError
from skidpad.scenes.formats import pufferdrive_layouts, read_scene
from skidpad.scenes.formats.pufferdrive_write import pufferdrive_bytes
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import SIGNAL_STOP, SUBTYPE_STATIC, Scene
from skidpad.scenes.synthetic import synthetic


@pytest.fixture(scope="module")
def world() -> Scene:
    return small_world()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_told_by_parsing(world: Scene, layout: str) -> None:
    """R20: exactly one layout consumes the file, and none of the others."""
    data = pufferdrive_bin(world, layout)
    assert pufferdrive_layouts.parse(data, Limits(), "x").layout == layout
    scene = read_scene(data, name="map.dat")
    assert (scene.meta.source_format, scene.meta.source_version) == ("pufferdrive", layout)


@pytest.mark.parametrize("layout", OLD)
def test_old_layouts(world: Scene, layout: str) -> None:
    """R20: types 1 to 10, size as width, length, height, rows at -10000, goals; the graph by R10b, signs by place."""
    scene = read_scene(pufferdrive_bin(world, layout), name="town.bin")
    assert scene.road.element_type.tolist() == [2, 2, 2, 10, 20, 31]
    assert scene.road.exit_lane.tolist() == world.road.exit_lane.tolist()
    assert scene.signals.kind.tolist() == [SIGNAL_STOP]
    assert scene.signals.lane.tolist() == [2]
    assert scene.meta.scene_id == "town"
    assert scene.tracks.expert.tolist() == [False, False, True]
    assert scene.tracks.source_id.tolist() == ([-1] * 3 if layout == "F0" else [101, 102, 103])
    assert (scene.meta.sdc, scene.meta.tracks_to_predict) == ((0, (2, 0)) if layout == "F1" else (-1, ()))
    for name in ("length", "width", "height", "vx", "vy", "heading", "valid"):
        np.testing.assert_allclose(getattr(scene.tracks, name), getattr(world.tracks, name), atol=1e-6, err_msg=name)
    assert scene.meta.loss["assumed_time_step"].count == 1


@pytest.mark.parametrize("layout", ["F2", "F2b"])
def test_new_layouts(world: Scene, layout: str) -> None:
    """R20, R26: types, graph, limits, signals and rows come back; its distances are nonsense and not trusted."""
    scene = read_scene(pufferdrive_bin(world, layout))
    assert_same_world(scene, world)
    np.testing.assert_allclose(scene.road.speed_limit, 13.9, rtol=1e-6)
    assert (scene.meta.scene_id, scene.meta.dataset, scene.meta.dt_us) == ("small", "test", 100_000)
    assert ("assumed_lane_width" in scene.meta.loss) == (layout == "F2")


def test_additions_in_either_order_once(world: Scene) -> None:
    """R20: an unknown tag, one that comes twice, and a byte too many are errors with their place."""
    plain = new_bin(world)
    one, other = (with_tails(world, plain, order=order) for order in (("TLPHASE1", "LANEWID1"), ("LANEWID1",)))
    np.testing.assert_array_equal(read_scene(one).road.width, read_scene(other).road.width)
    for broken in (
        with_tails(world, plain, order=("LANEWID1", "LANEWID1")),
        plain + b"NEWTAG01",
        one + b"\0",
        plain + b"LANEWID1",
    ):
        with pytest.raises(FormatError, match=r"F2: byte \d+"):
            read_scene(broken)


def test_phases_and_junctions(world: Scene) -> None:
    """R20: TLPHASE1 groups lights; lights of one junction stay together."""
    data = new_bin(world) + b"TLPHASE1" + ints(4, 1, 4, -1)
    signals = read_scene(data).signals
    assert signals.junction.tolist() == [0, 0]
    assert signals.phase.tolist() == [1, -1]


def test_static_objects_are_tracks(world: Scene) -> None:
    """R20: objects of F2 stand beside the agents; their numbers are not those of agents."""
    scene = read_scene(new_bin(world, static=True))
    assert scene.tracks.count == 4
    assert scene.tracks.subtype[3] == SUBTYPE_STATIC
    assert scene.tracks.source_id.tolist() == [0, 1, 2, -1]


@pytest.mark.parametrize("name", ["crossing", "merge", "overpass", "stop_yield"])
def test_what_is_written_is_read(name: str) -> None:
    """R20: read(write(scene)) has the road, the graph, the widths, signals and rows of the scene to the last bit."""
    scene = synthetic(name)
    data, _ = pufferdrive_bytes(scene)
    found = read_scene(data, name="out.bin")
    for path, array in scene.arrays().items():
        part, _, column = path.partition(".")
        if column in ("source_id", "lane_flags", "lane_junction", "subtype", "junction") or "program" in column:
            continue
        if column in ("cycle_offset",) or column.startswith(("left_", "right_")):
            continue
        there = found.arrays()[path]
        if part == "signals" and column == "state":
            there = there * (scene.signals.kind == 1)[:, None]
            array = array * (scene.signals.kind == 1)[:, None]
        if column == "heading":  # the largest float32 below pi may come back as the smallest above -pi
            there, array = np.cos(there), np.cos(array)
        np.testing.assert_array_equal(there, array, err_msg=path)
    again = pufferdrive_bytes(found)[0]
    assert pufferdrive_bytes(read_scene(again))[0] == again


def test_the_recording_vehicle_becomes_agent_0() -> None:
    """R20: its simulator takes agent 0 for it; who is to be predicted moves along, and nobody else becomes it."""
    world = small_world()
    meta = world.meta.__class__(**{**world.meta.__dict__, "sdc": 2})
    moved = Scene(world.road, world.tracks, world.signals, meta)
    scene = read_scene(pufferdrive_bytes(moved)[0])
    assert scene.meta.sdc == 0
    assert scene.meta.tracks_to_predict == (0, 1)
    np.testing.assert_array_equal(scene.tracks.x[0], moved.tracks.x[2])
    nobody = Scene(world.road, world.tracks, world.signals, meta.__class__(**{**meta.__dict__, "sdc": -1}))
    data, lost = pufferdrive_bytes(nobody)
    assert read_scene(data).meta.sdc == -1
    assert lost["dropped_route"].count == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (ints(1, 1, 1, 0), "no layout of a .bin file fits"),
        (ints(20_001, 0, 1, 1, 1, 1, 1), "objects is 20001, expected 0 to 20000"),
        (ints(1, 0, 1, 2**31 - 1) + floats(*[0.0] * 60), "rows of object 0 is 2147483647, expected 1 to 20000"),
        (ints(1, 0, 1, 19_000) + floats(*[0.0] * 60), "rows of object 0 is 19000, of 32 bytes at least"),
        (ints(1, 1, 1, 1) + floats(*[0.0] * 7) + ints(2), "valid of object 0 is 2, expected 0 to 1"),
        (ints(1, 0, 1, 1) + floats(np.nan, *[0.0] * 6) + ints(1), "object 0, x is nan, expected a finite number"),
    ],
)
def test_files_that_fit_nothing_are_refused_in_words(data: bytes, says: str) -> None:
    """R3, R20: what each layout met first, with its byte; counts are compared with what is left before anything is
    made."""
    padded = data + b"\0" * max(0, 100 - len(data))
    with pytest.raises(FormatError) as caught:
        pufferdrive_layouts.parse(padded, Limits(), "x.bin")
    assert says in str(caught.value)


def test_a_file_of_two_layouts_is_refused(world: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """R20: where two layouts consume a file it could be either scene."""
    layouts = dict(pufferdrive_layouts.LAYOUTS)
    monkeypatch.setattr(pufferdrive_layouts, "LAYOUTS", layouts | {"F9": layouts["F0"]})
    with pytest.raises(FormatError, match="fits the layouts F0 and F0"):
        read_scene(pufferdrive_bin(world, "F0"))


def test_the_town_of_the_recordings(shared: Path) -> None:
    """R20 on `town01_parity.bin.gz`, an F1, which holds what the JSON of the same name does."""
    folder = shared / "oracles" / "pufferdrive"
    scene, other = (read_scene(folder / f"town01_parity.{form}.gz") for form in ("bin", "json"))
    assert scene.meta.source_version == "F1"
    assert_same_tracks(scene, other)
    np.testing.assert_array_equal(scene.road.exit_lane, other.road.exit_lane)


def test_convert_to_bin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R20: `skidpad scenes convert X --to bin` writes F2b and says what that cannot hold; twice is as once."""
    from skidpad.cli import run

    file = tmp_path / "small.bin"
    file.write_bytes(pufferdrive_bin(small_world(), "F2b"))
    arguments = ["scenes", "convert", str(file), "--to", "bin", "--out", str(tmp_path / "out"), "--licence", "L"]
    assert run(arguments) == 0
    assert run(arguments) == 0
    assert "dropped_licence: 1" in capsys.readouterr().out
    back = read_scene(tmp_path / "out" / "small.bin")
    np.testing.assert_array_equal(back.road.xyz[:, :2], small_world().road.xyz[:, :2])
    np.testing.assert_array_equal(back.road.exit_lane, small_world().road.exit_lane)
    (tmp_path / "out" / "small.bin").write_bytes(b"another")
    assert run(arguments) == EXIT_USAGE

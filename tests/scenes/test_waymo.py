"""Waymo motion scenarios (R18): frame and checksums, the wire in all its freedom, and what becomes of each message."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import assert_same_world, small_world
from waymo_files import (
    WaymoWriter,
    double,
    integer,
    message,
    naive_crc32c,
    naive_mask,
    single,
    tfrecord,
    waymo_file,
)

from skidpad.errors import EXIT_USAGE, FormatError, SettingsError
from skidpad.scenes.formats import read_scene, read_scenes
from skidpad.scenes.formats.crc32c import crc32c, masked
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.wire_table import FLOAT, INTEGER, Spans, columns
from skidpad.scenes.scene import SIGNAL_LIGHT, TYPE_UNKNOWN, Scene


@pytest.fixture(scope="module")
def world() -> Scene:
    return small_world()


def named(scene: Scene, name: str) -> Scene:
    return Scene(scene.road, scene.tracks, scene.signals, replace(scene.meta, scene_id=name))


def test_checksum_equals_its_twin() -> None:
    """R18: CRC-32C of the standard's example and of lengths around every border of the fast path."""
    assert crc32c(b"123456789") == 0xE3069283
    data = random.Random(1).randbytes(9000)
    for size in (0, 1, 511, 4095, 4096, 4097, 4608, 5000, 9000):
        assert crc32c(data[:size]) == naive_crc32c(data[:size]), size
        assert masked(crc32c(data[:size])) == naive_mask(naive_crc32c(data[:size]))


def test_a_scenario_comes_back(world: Scene) -> None:
    """R18, R26: map, graph, limits, lights, signs, rows and choices, written and read; only widths are unknown."""
    scene = read_scene(waymo_file(world))
    assert_same_world(scene, world, goals=False)
    np.testing.assert_allclose(scene.road.speed_limit, 13.9, rtol=1e-6)
    assert scene.tracks.source_id.tolist() == [101, 102, 103]
    assert (scene.meta.scene_id, scene.meta.dt_us, scene.meta.labels["difficulty"]) == ("small", 100_000, [1, 2])
    assert {kind: entry.count for kind, entry in scene.meta.loss.items()} == {"assumed_lane_width": 3}
    assert "Non-Commercial" in scene.meta.licence
    assert "waymo.com/open" in scene.meta.attribution


@pytest.mark.parametrize("shuffle", [None, 1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_any_order_and_packing_is_one_scene(world: Scene, shuffle: int | None, packed: bool) -> None:
    """R18: fields may come in any order and repeated numbers packed or not; unknown ones are skipped and counted."""
    plain = read_scene(waymo_file(world))
    data = tfrecord(WaymoWriter(shuffle=shuffle, packed=packed).record(world))
    assert read_scene(data).digest == plain.digest
    more = read_scene(tfrecord(WaymoWriter(shuffle=shuffle, packed=packed, extra=True).record(world)))
    assert more.digest == plain.digest
    assert more.meta.loss["unknown_field"].count > 30


def test_sizes_may_differ_by_row(world: Scene) -> None:
    """S5: WOMD gives sizes per row; an average would hide what the labels say."""
    length = world.tracks.length.copy()
    length[0, 2] = 4.9
    scene = read_scene(waymo_file(Scene(world.road, replace(world.tracks, length=length), world.signals, world.meta)))
    np.testing.assert_allclose(scene.tracks.length[0], [4.5, 4.5, 4.9, 4.5], rtol=1e-6)


def test_the_last_value_wins_and_others_are_counted(world: Scene) -> None:
    """R18, R7: a scalar that comes twice; an object type, a light and a lane of the reader's tomorrow."""
    record = WaymoWriter().record(world) + integer(6, 1)
    track = message(
        2, integer(1, 9), integer(2, 4), message(3, integer(11, 1), double(2, 1.0), single(5, 1.0), single(6, 1.0))
    )
    light = message(7, message(1, integer(1, 12), integer(2, 77)))
    line = message(8, integer(1, 70), message(4, integer(1, 55), *[message(2, double(1, x)) for x in (0.0, 9.0)]))
    scene = read_scene(tfrecord(record + track + light + line + integer(10, 1)))
    assert scene.meta.sdc == 1
    assert scene.meta.current_step == 1
    assert scene.tracks.type[3] == TYPE_UNKNOWN
    assert scene.tracks.valid[3].tolist() == [True, False, False, False]
    for kind in ("unknown_line_type", "dropped_light_row", "assumed_absent_rows"):
        assert kind in scene.meta.loss, kind


def test_unseen_lights_are_unknown_and_dangling_ones_dropped(world: Scene) -> None:
    """R18: a light is a lane id seen in any step; before it is seen its state is unknown, never red."""
    record = WaymoWriter().record(world)
    rows = [message(7)] * 3 + [message(7, message(1, integer(1, 11), integer(2, 7)), message(1, integer(1, 99)))]
    without = Scene(world.road, world.tracks, read_scene(tfrecord(_without_lights(record))).signals, world.meta)
    assert SIGNAL_LIGHT not in without.signals.kind
    scene = read_scene(tfrecord(_without_lights(record) + b"".join(rows)))
    assert scene.signals.state[scene.signals.kind == SIGNAL_LIGHT].tolist() == [[0, 0, 0, 1]]
    assert scene.meta.loss["dropped_signal_without_lane"].count == 1


def _without_lights(record: bytes) -> bytes:
    from skidpad.artifacts.wire import fields

    found = list(fields(memoryview(record)))
    ends = [field.offset for field in found[1:]] + [len(record)]
    return b"".join(record[one.offset : end] for one, end in zip(found, ends, strict=True) if one.number != 7)


def test_oncoming_neighbours_are_none(world: Scene) -> None:
    """R18: a neighbour of the other direction is no lane to change to."""

    def lane(identity: int, y: float, xs: tuple[float, float], *more: bytes) -> bytes:
        points = [message(8, double(1, x), double(2, y)) for x in xs]
        return message(8, integer(1, identity), message(3, integer(2, 2), *points, *more))

    left, right = message(11, integer(1, 2), integer(2, 0)), message(12, integer(1, 3))
    record = lane(1, 0.0, (0.0, 50.0), left, right) + lane(2, 3.5, (50.0, 0.0)) + lane(3, -3.5, (0.0, 50.0))
    scene = read_scene(tfrecord(record))
    assert scene.road.right_lane.tolist() == [2]
    assert scene.road.left_lane.tolist() == [0]
    assert scene.meta.loss["ignored_oncoming_neighbour"].count == 1
    assert not scene.meta.has_z


def test_clock_is_the_median_in_whole_milliseconds(world: Scene) -> None:
    """R18: real files jitter by half a millisecond; a gap of more than five is counted, a clock that stands refused."""
    track = message(2, integer(1, 1), integer(2, 1), *[message(3, integer(11, 1), single(5, 1.0), single(6, 1.0))] * 4)
    scene = read_scene(tfrecord(b"".join(double(1, t) for t in (0.0, 0.1004, 0.2, 0.32)) + track))
    assert scene.meta.dt_us == 100_000
    assert scene.meta.loss["repaired_jitter"].count == 1
    for times in ((1.0, 1.0, 1.0), (0.0, float("nan"), 0.2)):
        with pytest.raises(FormatError, match="expected finite seconds that grow"):
            read_scene(tfrecord(b"".join(double(1, t) for t in times) + track))


def test_a_file_of_many_scenarios(world: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R6: whole records before a cut are delivered, then the error; one of them may be named; convert takes all."""
    from skidpad.cli import run

    records = [WaymoWriter().record(named(world, name)) for name in ("one", "two", "three")]
    data = tfrecord(*records)
    assert [scene.meta.scene_id for scene in read_scenes(data)] == ["one", "two", "three"]
    assert read_scene(data, options={"scenario": "two"}).meta.scene_id == "two"
    with pytest.raises(SettingsError, match="none of the file's scenarios"):
        read_scene(data, options={"scenario": "four"})
    with pytest.raises(FormatError, match="several scenes"):
        read_scene(data)
    found = []
    with pytest.raises(FormatError, match=r"cut\.tfrecord: byte \d+"):  # noqa: PT012
        for scene in read_scenes(data[:-10], name="cut.tfrecord"):
            found.append(scene.meta.scene_id)
    assert found == ["one", "two"]
    file = tmp_path / "cut.tfrecord"
    file.write_bytes(data[:-10])
    assert run(["scenes", "convert", str(file), "--out", str(tmp_path)]) == EXIT_USAGE
    assert sorted(path.name for path in tmp_path.glob("*.scene")) == ["one.scene", "two.scene"]
    assert "three" not in capsys.readouterr().out


def test_example_records_are_refused_with_a_hint() -> None:
    """R18: tf.Example files of the same data set look alike from outside and hold no scenario."""
    feature = message(1, message(1, b"roadgraph_samples/xyz"), message(2, message(2, single(1, 1.0))))
    with pytest.raises(FormatError, match=r"tf\.Example"):
        read_scene(tfrecord(message(1, feature)))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (b"\x0b\x0c", "wire type 3"),
        (b"\xff" * 11, "varint"),
        (message(2, integer(3, 1)) + b"\x12\x7f", "are left"),
        (message(2, message(3, integer(2, 1))), "field 2 is no double"),
        (message(2, message(3, b"\x11\x00")), "are left"),
        (message(8, integer(1, 1), message(3, integer(1, 5), message(8, double(1, 1.0)))), "expected a 64-bit float"),
        (
            message(8, integer(1, 1), message(3, double(1, -1.0), message(8, double(1, 1.0)))),
            "expected a number from 0",
        ),
        (message(8, integer(1, 1), message(3, message(8, double(1, float("inf")), double(2, 0.0)))), "finite"),
        (message(8, double(1, 1.0)), "is no integer"),
        (message(1, b"123"), "no 64-bit floats"),
        (b"", "neither lanes nor tracks"),
    ],
)
def test_hostile_records_are_refused_in_words(record: bytes, says: str) -> None:
    """R3, R5: groups, endless varints, lengths beyond the record, kinds that do not fit; each with its byte."""
    with pytest.raises(FormatError, match=r"x\.tfrecord") as caught:
        read_scene(tfrecord(record), name="x.tfrecord")
    assert says in str(caught.value)


def test_limits_hold(world: Scene) -> None:
    """R3: a record, tracks, rows and lights are counted before arrays are made."""
    for limit, value in (("message_bytes", 100), ("tracks", 2), ("rows", 3), ("track_rows", 11), ("signals", 1)):
        with pytest.raises(FormatError, match=limit.replace("_", " ")):
            read_scene(waymo_file(world), limits=Limits(**{limit: value}))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1) | st.none(),
            st.floats(width=32, allow_nan=False) | st.none(),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_columns_equal_one_message_at_a_time(rows: list[tuple[int | None, float | None, bool]]) -> None:
    """R18: messages of many shapes decoded together are what they are one by one."""
    record, starts, sizes = b"", [], []
    for number, value, swap in rows:
        parts = [b"" if number is None else integer(1, number), b"" if value is None else single(2, value)]
        body = b"".join(parts[::-1] if swap else parts)
        starts.append(len(record))
        sizes.append(len(body))
        record += body
    data = np.frombuffer(record + b"\0", np.uint8)
    found, unknown = columns(data, Spans(np.array(starts), np.array(sizes)), {1: INTEGER, 2: FLOAT})
    assert found[1].value.tolist() == [number or 0 for number, _, _ in rows]
    assert found[2].value.tolist() == [value or 0.0 for _, value, _ in rows]
    assert found[1].present.tolist() == [number is not None for number, _, _ in rows]
    assert unknown == {}

"""The builder: what readers hand over becomes arrays that keep the promises of S1 to S8."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.errors import FormatError
from skidpad.scenes import csr, polyline
from skidpad.scenes.build import LossReport, SceneBuilder
from skidpad.scenes.check import check_scene
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.rows import wrapped
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    EDGE_BOUNDARY,
    LANE_HAS_STOP_SIGN,
    LANE_STREET,
    LANE_WALKWAY,
    LANE_WIDTH_UNKNOWN,
    LINE_SOLID_WHITE,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    STATE_RED,
    TYPE_VEHICLE,
    Scene,
)

ROWS = 6


def builder(**limits: Any) -> SceneBuilder:
    return SceneBuilder("test", "tests", "none", "1", "0" * 64, limits=Limits(**limits))


def street(build: SceneBuilder, key: Any, *points: tuple[float, ...], **more: Any) -> None:
    build.lane(key, np.array(points), **({"width": 3.5, "kind": LANE_STREET} | more))


def track(build: SceneBuilder, source_id: int = 1, **columns: Any) -> int:
    """A car that drives 1 m per row along x, with some columns replaced."""
    row = np.arange(ROWS, dtype=float)
    usual = {"x": row, "y": 0 * row, "heading": 0 * row, "vx": 0 * row + 10, "vy": 0 * row}
    usual |= {"length": 4.5, "width": 1.8, "height": 1.5, "valid": np.ones(ROWS, bool)}
    return build.track(source_id, TYPE_VEHICLE, 1, **(usual | columns))


def finished(build: SceneBuilder, **more: Any) -> Scene:
    scene = build.finish(**({"has_z": False} | more))
    assert [finding.message for finding in check_scene(scene)] == []
    return scene


def losses(scene: Scene) -> dict[str, int]:
    return {kind: entry.count for kind, entry in scene.meta.loss.items()}


# Map


def test_lanes_come_first_and_in_order() -> None:
    """S2: lane number = position of `lane` calls, whatever was added between; readers and tests count on it."""
    build = builder()
    build.line([(0, 2), (10, 2)], LINE_SOLID_WHITE)
    street(build, "b", (0, 0), (10, 0), source_id=7)
    build.edge([(0, -2), (10, -2)], EDGE_BOUNDARY)
    street(build, "a", (10, 0), (20, 0), source_id=5)
    build.area([(0, 0), (2, 0), (2, 2), (0, 0)], AREA_CROSSWALK)
    road = finished(build).road
    assert road.element_type.tolist() == [2, 2, 12, 21, 31]
    assert road.lane_element.tolist() == [0, 1]
    assert road.source_id.tolist() == [7, 5, -1, -1, -1]
    assert np.diff(road.element_points).tolist() == [2, 2, 2, 2, 3]  # the area is opened


@given(
    steps=st.lists(st.tuples(st.floats(-30, 30), st.floats(-30, 30), st.floats(-1, 1)), min_size=1, max_size=30),
    corner=st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)),
)
@settings(max_examples=80, deadline=None)
def test_arc_and_direction_equal_the_twin(steps: list[tuple[float, float, float]], corner: tuple[float, float]) -> None:
    """S2: arc to 1e-4 m and direction to 1e-6 of a loop in plain Python over the stored vertices."""
    build = builder()
    points = np.cumsum(np.array([(*corner, 0.0), *steps]), axis=0)
    street(build, "a", (corner[0], corner[1]), (corner[0] + 1, corner[1]))
    build.line(points, LINE_SOLID_WHITE)
    road = build.finish(has_z=True).road
    for element in range(road.element_count):
        xyz = road.xyz[road.points(element)].astype(float)
        arc = 0.0
        for row in range(len(xyz) - 1):
            step = xyz[row + 1] - xyz[row]
            length = math.hypot(step[0], step[1])
            index = int(road.element_points[element]) + row
            assert abs(road.arc[index] - arc) <= 1e-4 + 1e-7 * arc
            assert np.allclose(road.direction[index], step[:2] / length, atol=1e-6)
            arc += length
        last = int(road.element_points[element + 1]) - 1
        assert road.direction[last].tolist() == road.direction[last - 1].tolist()


def test_far_coordinates_are_recentred_in_float64() -> None:
    """S8, F11: near (5e5, 5.4e6) m float32 alone would be off by half a metre; after recentring it is 1 mm."""
    points = np.array([(500_000.123, 5_400_000.456), (500_010.789, 5_400_020.987), (500_300.001, 5_400_100.002)])
    build = builder()
    street(build, "a", *points)
    scene = finished(build)
    world = scene.road.xyz[:, :2] + np.array(scene.meta.origin[:2])
    assert np.abs(world - points).max() < 1e-3
    assert scene.meta.origin == (500_150.0, 5_400_050.0, 0.0)


def test_origin_does_not_depend_on_traffic() -> None:
    """S8: two logs on one map share origin and map digest, and with them the index; a track far out moves nothing."""
    scenes = []
    for far in (0.0, 3000.0):
        build = builder()
        street(build, "a", (0, 0), (101, 0))
        track(build, x=np.arange(ROWS) + far)
        scenes.append(finished(build))
    assert scenes[0].meta.origin == scenes[1].meta.origin == (51.0, 0.0, 0.0)
    assert scenes[0].map_digest == scenes[1].map_digest
    assert scenes[0].digest != scenes[1].digest


def test_origin_without_lanes() -> None:
    """S8: else the edges give the origin, else the tracks."""
    build = builder()
    build.edge([(100, 0), (120, 0)], EDGE_BOUNDARY)
    track(build)
    assert finished(build).meta.origin[0] == 110.0
    build = builder()
    track(build, x=np.arange(ROWS) + 50.0)
    assert finished(build).meta.origin[0] == 53.0  # 52.5, rounded up


def test_heights() -> None:
    """S2, S9: without meaningful heights all are 0; with them they are kept and recentred."""
    for has_z, expected in ((False, [0.0, 0.0]), (True, [-1.0, 1.0])):
        build = builder()
        build.lane("a", [(0, 0, 4.0), (10, 0, 6.0)], width=3.0, kind=LANE_STREET)
        track(build, z=np.full(ROWS, 5.5))
        scene = finished(build, has_z=has_z)
        assert scene.road.xyz[:, 2].tolist() == expected
        assert scene.tracks.z[0].tolist() == [0.5 if has_z else 0.0] * ROWS


def test_zero_length_segments_are_dropped() -> None:
    """S2, F10: doubled vertices are dropped and counted; both ends stay, and a fine curve is thinned, not lost."""
    build = builder()
    street(build, "a", (0, 0), (0, 0), (5, 0), (5, 0), (10, 0), (10, 0))
    fine = np.linspace(0, 1, 4001)
    build.line(np.stack([fine, fine * 0], axis=1), LINE_SOLID_WHITE)  # 0.25 mm steps
    scene = finished(build)
    lane = scene.road.xyz[scene.road.lane_points(0)]
    assert (lane[:, 0] + scene.meta.origin[0]).tolist() == [0, 5, 10]
    line = scene.road.xyz[scene.road.points(1), 0] + scene.meta.origin[0]
    assert line[0] == 0.0
    assert line[-1] == 1.0
    assert np.diff(line).max() < 2.5e-3
    assert losses(scene)["dropped_zero_length_segment"] == 3 + 4001 - len(line)


def test_shapes_without_extent() -> None:
    """F10: what has no length or area is dropped and counted, not stored as an element of one point."""
    build = builder()
    street(build, "a", (0, 0), (10, 0))
    build.line([(1, 1)], LINE_SOLID_WHITE)
    build.edge([(1, 1), (1, 1)], EDGE_BOUNDARY)
    build.area([(1, 1), (2, 2), (1, 1)], AREA_CROSSWALK)
    scene = finished(build)
    assert scene.road.element_count == 1
    assert losses(scene)["dropped_shape_without_extent"] == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize("shape", ["lane", "left", "line", "edge", "area", "stop line"])
def test_geometry_must_be_finite(shape: str, value: float) -> None:
    """R5, F10: a non-finite number in geometry is an error with element and index, wherever it stands."""
    build = builder()
    points = [(0.0, 0.0), (value, 1.0), (2.0, 2.0)]
    calls: dict[str, Callable[[], object]] = {
        "lane": lambda: street(build, "a", *points),
        "left": lambda: street(build, "a", (0, 0), (1, 0), left=points),
        "line": lambda: build.line(points, LINE_SOLID_WHITE),
        "edge": lambda: build.edge(points, EDGE_BOUNDARY),
        "area": lambda: build.area(points, AREA_CROSSWALK),
        "stop line": lambda: build.signal(SIGNAL_LIGHT, ["a"], line=points[:2]),
    }
    with pytest.raises(FormatError, match=r"point 1 is|coordinate m is"):
        calls[shape]()


def test_widths() -> None:
    """S2: given, from the borders, or unknown with its flag and count; negative or NaN widths are errors."""
    build = builder()
    street(build, "given", (0, 0), (10, 0), width=[3.0, 4.0])
    street(build, "borders", (0, 9), (10, 9), width=None, left=[(0, 11), (10, 11)], right=[(0, 8), (10, 8)])
    street(build, "unknown", (0, 20), (10, 20), width=None)
    scene = finished(build)
    road = scene.road
    assert [road.width[road.lane_points(lane)].tolist() for lane in range(3)] == [
        [3.0, 4.0],
        [3.0, 3.0],
        [np.float32(3.7), np.float32(3.7)],
    ]
    assert road.lane_flags.tolist() == [0, 0, LANE_WIDTH_UNKNOWN]
    assert losses(scene) == {"assumed_lane_width": 1}
    for width in (-1.0, math.nan):
        with pytest.raises(FormatError, match="width"):
            street(builder(), "a", (0, 0), (10, 0), width=width)


def test_drivable_by_type_or_by_word() -> None:
    """S4: `drivable` is an array, not a type test: readers may decide otherwise for any lane."""
    build = builder()
    for key, kind, drivable in (("a", LANE_STREET, None), ("b", LANE_WALKWAY, None), ("c", LANE_WALKWAY, True)):
        street(build, key, (0, 0), (10, 0), kind=kind, drivable=drivable)
    assert finished(build).road.drivable.tolist() == [True, False, True]


def test_limits() -> None:
    """R3: each bound stops the file with a message that names limit and value, before arrays are made."""
    build = builder(lanes=1, elements=1)
    street(build, "a", (0, 0), (1, 0))
    with pytest.raises(FormatError, match="lanes is 2, the limit is 1"):
        street(build, "b", (0, 0), (1, 0))
    with pytest.raises(FormatError, match="elements is 2"):
        build.line([(0, 0), (1, 0)], LINE_SOLID_WHITE)
    with pytest.raises(FormatError, match="map points is 3"):
        street(builder(map_points=2), "a", (0, 0), (1, 0), (2, 0))
    with pytest.raises(FormatError, match=r"coordinate m is 2e\+07"):
        street(builder(), "a", (0, 0), (2e7, 0))
    build = builder()
    street(build, "a", (0, 0), (40_000, 0))
    with pytest.raises(FormatError, match="extent m is 20000"):
        build.finish(has_z=False)
    build = builder()
    street(build, "a", (0, 0), (1, 0))
    track(build, x=np.arange(ROWS) + 20_000.0)
    with pytest.raises(FormatError, match="track 1: extent m"):
        build.finish(has_z=False)
    for limit, rows in (("tracks", 0), ("rows", ROWS - 1), ("track_rows", ROWS - 1)):
        with pytest.raises(FormatError, match=limit.replace("_", " ")):
            track(builder(**{limit: rows}))
    with pytest.raises(FormatError, match="signals is 1"):
        builder(signals=0).signal(SIGNAL_LIGHT, ["a"])
    with pytest.raises(FormatError, match="program phases is 2"):
        builder(program_phases=1).signal(SIGNAL_LIGHT, ["a"], program=[(1.0, 1), (1.0, 2)])


def test_doubled_lane_is_an_error() -> None:
    """R8, F16: two lanes of one id cannot both be meant by what refers to it."""
    build = builder()
    street(build, "a", (0, 0), (1, 0))
    with pytest.raises(FormatError, match="lane 'a' is there twice"):
        street(build, "a", (5, 0), (6, 0))


def test_nothing_is_no_scene() -> None:
    """F17: an empty file must not become a world with nobody in it."""
    with pytest.raises(FormatError, match="neither lanes nor tracks"):
        builder().finish(has_z=False)


# Graph


def test_links() -> None:
    """S2, R8: links said from both sides count once; what dangles is dropped and counted, never followed."""
    build = builder()
    street(build, "a", (0, 0), (10, 0))
    street(build, "b", (10, 0), (20, 0))
    street(build, "c", (10, 0), (20, 5))
    for one, other in (("a", "c"), ("a", "b"), ("a", "b"), ("b", "gone"), ("gone", "a")):
        build.connect(one, other)
    build.neighbours("b", "gone")
    build.signal(SIGNAL_LIGHT, ["gone"])
    build.signal(SIGNAL_LIGHT, ["a", "gone"])
    scene = finished(build)
    road = scene.road
    assert csr.unpack(road.exit_offset, road.exit_lane) == [[1, 2], [], []]
    assert csr.unpack(road.entry_offset, road.entry_lane) == [[], [0], [0]]
    assert scene.signals.count == 1
    assert losses(scene) == {
        "dropped_dangling_link": 2,
        "dropped_dangling_neighbour": 1,
        "dropped_dangling_signal_lane": 2,
        "dropped_signal_without_lane": 1,
    }


def test_own_successor() -> None:
    """F13: a lane that follows itself is a ring when its ends meet, else a mistake."""
    build = builder()
    angle = np.linspace(0, 2 * np.pi, 40)
    street(build, "ring", *np.stack([20 * np.cos(angle), 20 * np.sin(angle)], axis=1))
    street(build, "no ring", (0, 0), (10, 0))
    build.connect("ring", "ring")
    build.connect("no ring", "no ring")
    scene = finished(build)
    assert csr.unpack(scene.road.exit_offset, scene.road.exit_lane) == [[0], []]
    assert losses(scene)["dropped_own_successor"] == 1


def test_short_lanes_are_merged() -> None:
    """S2: a lane below 0.1 m goes into its only entry or exit, and the graph stays connected through it."""
    build = builder()
    street(build, "a", (0, 0), (10, 0))
    street(build, "short", (10, 0), (10.05, 0))
    street(build, "b", (10.05, 0), (20, 0))
    street(build, "c", (10.05, 0), (20, 5))
    for pair in (("a", "short"), ("short", "b"), ("short", "c")):
        build.connect(*pair)
    build.signal(SIGNAL_STOP, ["short"])
    scene = finished(build)
    road = scene.road
    assert csr.unpack(road.exit_offset, road.exit_lane) == [[1, 2], [], []]
    assert road.xyz[road.lane_points(0), 0] + scene.meta.origin[0] == pytest.approx([0, 10, 10.05], abs=1e-5)
    assert scene.signals.lanes(0).tolist() == [0]  # what the short lane carried went along
    assert losses(scene)["repaired_short_lane"] == 1


def test_short_lane_goes_into_its_exit() -> None:
    """S2: with two entries and one exit the exit takes it; the exit starts where the short lane did."""
    build = builder()
    street(build, "a", (0, 0), (10, 0))
    street(build, "b", (0, 5), (10, 0))
    street(build, "short", (10, 0), (10.05, 0))
    street(build, "c", (10.05, 0), (20, 0))
    for pair in (("a", "short"), ("b", "short"), ("short", "c")):
        build.connect(*pair)
    scene = finished(build)
    assert csr.unpack(scene.road.entry_offset, scene.road.entry_lane) == [[], [], [0, 1]]
    assert scene.road.xyz[scene.road.lane_points(2), 0][0] + scene.meta.origin[0] == pytest.approx(10.0)


def test_short_lane_between_many_is_kept_or_dropped() -> None:
    """S2: with several entries and exits a short lane stays and is reported; one without length cannot stay."""
    for end, kind, lanes in ((10.05, "ignored_short_lane", 5), (10.0, "dropped_lane_without_length", 4)):
        build = builder()
        street(build, "a", (0, 0), (10, 0))
        street(build, "b", (0, 5), (10, 0))
        street(build, "short", (10, 0), (end, 0))
        street(build, "c", (end, 0), (20, 0))
        street(build, "d", (end, 0), (20, 5))
        for pair in (("a", "short"), ("b", "short"), ("short", "c"), ("short", "d")):
            build.connect(*pair)
        scene = finished(build)
        assert scene.road.lane_count == lanes
        assert losses(scene)[kind] == 1


def test_neighbour_ranges() -> None:
    """S2: ranges say where two neighbours touch, on both sides the same; neighbours far apart are no neighbours."""
    build = builder()
    street(build, "left", (0, 3.5), (10, 3.5), (20, 3.5), (30, 3.5))
    street(build, "right", (10, 0), (20, 0), (60, -20))
    street(build, "far", (0, 500), (10, 500))
    build.neighbours("left", "right")
    build.neighbours("far", "left")
    scene = finished(build)
    road = scene.road
    assert csr.unpack(road.left_offset, road.left_lane) == [[], [0], []]
    assert csr.unpack(road.right_offset, road.right_lane) == [[1], [], []]
    assert road.right_range.tolist() == [[1, 2, 4, 5]]
    assert road.left_range.tolist() == [[4, 5, 1, 2]]
    assert losses(scene) == {"dropped_neighbours_apart": 1}


@given(st.integers(0, 1 << 32))
@settings(max_examples=50, deadline=None)
def test_relations_round_trip(seed: int) -> None:
    """S2: 2,000 random relations packed, unpacked, and transposed twice are themselves, empty rows anywhere."""
    random = Random(seed)
    for _ in range(40):
        lanes = random.randint(1, 12)
        pairs = [(random.randrange(lanes), random.randrange(lanes)) for _ in range(random.randint(0, 30))]
        offset, items = csr.from_pairs(pairs, lanes)
        rows = csr.unpack(offset, items)
        assert rows == [sorted({item for row, item in pairs if row == lane}) for lane in range(lanes)]
        assert [part.tolist() for part in csr.pack(rows)] == [offset.tolist(), items.tolist()]
        turned = csr.transpose(offset, items)
        assert csr.unpack(*turned) == [sorted({row for row, item in pairs if item == lane}) for lane in range(lanes)]
        assert [part.tolist() for part in csr.transpose(*turned)] == [offset.tolist(), items.tolist()]


# Signals


def test_stop_lines() -> None:
    """S6: a line is built across the lane at a point, or at the lane's end, and runs from the driver's left to the
    right even when the file has it the other way round."""
    build = builder()
    street(build, "a", (0, 0), (20, 0), width=4.0)
    build.signal(SIGNAL_LIGHT, ["a"], point=(15, 1))
    build.signal(SIGNAL_LIGHT, ["a"])
    build.signal(SIGNAL_LIGHT, ["a"], line=[(18, -3), (18, 3)])
    scene = finished(build)
    line = scene.signals.line[:, :, :2] + np.array(scene.meta.origin[:2])
    assert line.tolist() == [[[15, 2], [15, -2]], [[20, 2], [20, -2]], [[18, 3], [18, -3]]]
    assert scene.signals.heading.tolist() == [0, 0, 0]
    assert losses(scene) == {}


def test_doubtful_stop_line_is_counted() -> None:
    """S6: a line that does not cross its lane within 15 degrees of square is kept, and is in the loss report."""
    for points, doubtful in (
        ([(10, 2), (10, -2)], False),
        ([(10, 2), (11, -2)], False),  # 14 degrees
        ([(10, 2), (11.2, -2)], True),  # 17 degrees
        ([(10, 9), (10, 5)], True),  # beside the lane
        ([(21.5, 2), (21.5, -2)], False),  # just beyond its end
    ):
        build = builder()
        street(build, "a", (0, 0), (20, 0))
        build.signal(SIGNAL_LIGHT, ["a"], line=points)
        assert losses(finished(build)) == ({"assumed_stop_line": 1} if doubtful else {})


def test_signal_states_and_programmes() -> None:
    """S6: logged states are padded with unknown where a signal has none; programmes keep their phases."""
    build = builder()
    street(build, "a", (0, 0), (20, 0), junction="j")
    track(build)
    build.signal(SIGNAL_LIGHT, ["a"], states=[STATE_RED] * ROWS, junction="j", phase=3, program=[(2.5, 1), (1.5, 3)])
    build.signal(SIGNAL_STOP, ["a"])
    scene = finished(build)
    assert scene.signals.state.tolist() == [[1] * ROWS, [0] * ROWS]
    assert csr.unpack(scene.signals.program_offset, scene.signals.program_duration) == [[2.5, 1.5], []]
    assert scene.signals.junction.tolist() == [scene.road.lane_junction[0], -1]
    assert scene.signals.phase.tolist() == [3, -1]
    assert scene.road.lane_flags.tolist() == [LANE_HAS_STOP_SIGN]
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    track(build)
    build.signal(SIGNAL_LIGHT, ["a"], states=[STATE_RED] * 3)
    with pytest.raises(ValueError, match="rows"):
        build.finish(has_z=False)


def test_map_only_scene_has_one_row() -> None:
    """S7: a map without a log still has a current step, so that a world can start on it."""
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    scene = finished(build)
    assert scene.meta.steps == 1
    assert scene.tracks.x.shape == (0, 1)


# Tracks

DEFECTS: dict[str, tuple[dict[str, list[float]], str]] = {
    "not finite": ({"x": [0, 1, math.nan, 3, 4, 5]}, "dropped_row_not_finite"),
    "infinite heading": ({"heading": [0, 0, math.inf, 0, 0, 0]}, "dropped_row_not_finite"),
    "no velocity": ({"vx": [10, 10, math.nan, 10, 10, 10]}, "dropped_row_not_finite"),
    "no length": ({"length": [4, 4, 0, 4, 4, 4]}, "dropped_row_size"),
    "too wide": ({"width": [2, 2, 61, 2, 2, 2]}, "dropped_row_size"),
    "negative height": ({"height": [2, 2, -1, 2, 2, 2]}, "dropped_row_size"),
    "jump and back": ({"y": [0, 0, 20, 0, 0, 0]}, "dropped_row_speed"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_row_rules(defect: str) -> None:
    """S5: a row that is not finite, of no possible size, or reached faster than 70 m/s becomes invalid, zero and
    counted; the rows around it stay."""
    columns, kind = DEFECTS[defect]
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    track(build, **{name: np.array(column, float) for name, column in columns.items()})
    scene = finished(build)
    assert scene.tracks.valid.tolist() == [[True, True, False, True, True, True]]
    assert scene.tracks.x[0, 2] == scene.tracks.length[0, 2] == 0.0
    assert losses(scene) == {kind: 1}


@pytest.mark.parametrize(
    ("x", "valid"),
    [
        ([500, 1, 2, 3, 4, 5], [0, 1, 1, 1, 1, 1]),  # the first row is the wrong one
        ([0, 1, 2, 3, 4, 500], [1, 1, 1, 1, 1, 0]),
        ([0, 1, 2, 12, 13, 14], [1, 1, 1, 0, 1, 1]),  # 10 m: too far for one row, not for two
        ([0, 6.9, 13.8, 20.7, 27.6, 34.5], [1, 1, 1, 1, 1, 1]),  # 69 m/s
    ],
)
def test_jumps(x: list[float], valid: list[int]) -> None:
    """S5: at an end of a track the lone row falls, not the whole rest of it."""
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    track(build, x=np.array(x, float))
    assert finished(build).tracks.valid[0].tolist() == [bool(flag) for flag in valid]


def test_velocities_by_differences() -> None:
    """S5: velocity that the file lacks is the central difference of valid neighbours, one-sided at the ends."""
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    x = np.array([0, 1, 3, 6, 10, 15], float)
    track(build, x=x, vx=None, vy=None)
    scene = finished(build)
    assert scene.tracks.vx[0] == pytest.approx([10, 15, 25, 35, 45, 50])
    assert scene.tracks.vy[0].tolist() == [0] * ROWS


def test_sizes_per_row_and_heading_wrap() -> None:
    """S5: constant sizes are broadcast, headings wrapped into (-pi, pi]."""
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    track(build, heading=np.array([0, 4, -4, math.pi, -math.pi, 9 * math.pi]), length=np.arange(ROWS) + 1.0)
    scene = finished(build)
    assert scene.tracks.length[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert scene.tracks.width[0].tolist() == [np.float32(1.8)] * ROWS
    top = np.float32(math.pi)
    assert scene.tracks.heading[0] == pytest.approx([0, 4 - 2 * math.pi, 2 * math.pi - 4, top, top, top], abs=1e-6)


@given(st.floats(-1e6, 1e6))
def test_wrapped_angles_stay_in_range(angle: float) -> None:
    """S5: float32 pi is above pi; the bound is meant in float32, and -pi is never stored."""
    single = float(wrapped(np.array([angle]))[0])
    assert -np.float32(np.pi) < single <= np.float32(np.pi)
    assert math.cos(single) == pytest.approx(math.cos(angle), abs=1e-5 + 1e-9 * abs(angle))


def test_goals() -> None:
    """S5: the goal is the file's, else the last valid position; one that is not finite is no goal."""
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    valid = np.array([1, 1, 1, 1, 0, 0], bool)
    track(build, 1, goal=(12, 1, 0))
    track(build, 2, valid=valid)
    track(build, 3, valid=valid, goal=(math.nan, 0, 0))
    scene = finished(build)
    goal = scene.tracks.goal + np.array(scene.meta.origin)
    assert goal.tolist() == [[12, 1, 0], [3, 0, 0], [3, 0, 0]]
    assert scene.tracks.last.tolist() == [5, 3, 3]
    assert losses(scene) == {"dropped_goal": 1}
    with pytest.raises(FormatError, match=r"goal of track 4: coordinate m is 1e\+300"):
        track(builder(), 4, goal=(1e300, 0, 0))


def test_dropped_tracks_renumber_the_others() -> None:
    """S5, S7, R8: the first of a doubled id wins, a track that never was is dropped, and SDC and chosen tracks follow
    the new numbers; what pointed at a dropped track is counted."""
    build = builder()
    street(build, "a", (0, 0), (20, 0))
    never = track(build, 4, valid=np.zeros(ROWS, bool))
    kept = track(build, 5)
    doubled = track(build, 5)
    last = track(build, 6)
    scene = finished(build, sdc=last, tracks_to_predict=[kept, doubled, last], objects_of_interest=[never])
    assert scene.tracks.source_id.tolist() == [5, 6]
    assert scene.meta.sdc == 1
    assert scene.meta.tracks_to_predict == (0, 1)
    assert scene.meta.objects_of_interest == ()
    assert losses(scene) == {
        "dropped_object_of_interest": 1,
        "dropped_track_doubled": 1,
        "dropped_track_to_predict": 1,
        "dropped_track_without_rows": 1,
    }


def test_order_of_links_does_not_matter() -> None:
    """R9: the digest depends on what is connected, not on the order in which the file says so."""
    digests = set()
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    for order in (pairs, pairs[::-1]):
        build = builder()
        for key, y in (("a", 0), ("b", 1), ("c", 2)):
            street(build, key, (0, y), (10, y))
        for pair in order:
            build.connect(*pair)
        digests.add(finished(build).digest)
    assert len(digests) == 1


# Loss report


def test_loss_report() -> None:
    """R7: counted by kind, five examples each, cut to a length that fits a table; kinds have a known prefix."""
    loss = LossReport()
    for index in range(7):
        loss.count("dropped_thing", f"thing {index}" + "x" * 500)
    loss.count("assumed_size", "none", 0)
    entry = loss.entries()["dropped_thing"]
    assert entry.count == 7
    assert len(entry.examples) == 5
    assert max(map(len, entry.examples)) == 200
    assert list(loss.entries()) == ["dropped_thing"]
    with pytest.raises(ValueError, match="lost_thing"):
        loss.count("lost_thing", "")


# Polylines


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=2, max_size=12), st.floats(-60, 60))
@settings(deadline=None)
def test_projection_is_the_nearest_place(points: list[tuple[float, float]], x: float) -> None:
    """The projection of a point is nearer than 200 samples along the polyline, and lies on it."""
    line = np.column_stack([np.array(points), np.zeros(len(points))])
    here = np.array([[x, 1.0]])
    place = polyline.project(line, here)
    on = polyline.at(line, int(place.segment[0]), float(place.fraction[0]))
    assert math.hypot(*(on[:2] - here[0])) == pytest.approx(place.distance[0], abs=1e-9)
    share = np.linspace(0, 1, 200)[:, None, None]
    samples = (line[None, :-1, :2] * (1 - share) + line[None, 1:, :2] * share).reshape(-1, 2)
    assert place.distance[0] <= np.hypot(*(samples - here[0]).T).min() + 1e-9


def test_shifted_line() -> None:
    """A border is half a width to the side of its centre line; the inside of a corner is on the other side of it."""
    line = np.array([(0, 0, 0), (10, 0, 0), (10, 10, 0)], float)
    left = polyline.shifted(line, np.full(3, 1.0))
    assert left[0] == pytest.approx([0, 1, 0])
    assert left[2] == pytest.approx([9, 10, 0])
    half = math.sqrt(0.5)
    assert left[1] == pytest.approx([10 - half, half, 0])

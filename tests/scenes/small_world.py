"""One small world that the test writers of every format write down: what comes back is compared with it (R26)."""

from __future__ import annotations

import numpy as np

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    EDGE_BOUNDARY,
    LANE_STREET,
    LINE_BROKEN_WHITE,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    STATE_GREEN,
    STATE_RED,
    STATE_UNKNOWN,
    STATE_YELLOW,
    SUBTYPE_CAR,
    SUBTYPE_NONE,
    TYPE_PEDESTRIAN,
    TYPE_VEHICLE,
    Scene,
)

ROWS = 4
CENTRES = {11: [(0.0, 0.0), (50.0, 0.0)], 12: [(50.0, 0.0), (100.0, 0.0)], 13: [(50.0, 0.0), (80.0, 10.0)]}
LINKS = [(11, 12), (11, 13)]
STATES = [STATE_RED, STATE_RED, STATE_YELLOW, STATE_GREEN]


def lifted(points, z):
    return [(*point, z) for point in points]


def small_world(*, z: float = 7.0) -> Scene:
    """Three lanes that fork, a light, a stop sign, paint, an edge, a crosswalk; a car, a walker, a second car."""
    builder = SceneBuilder("small", "test", "test", "1", "0" * 64)
    for key, centre in CENTRES.items():
        builder.lane(key, lifted(centre, z), width=3.7, kind=LANE_STREET, source_id=key, speed_limit=13.9)
    for one, other in LINKS:
        builder.connect(one, other)
    builder.line(lifted([(0.0, 1.85), (50.0, 1.85)], z), LINE_BROKEN_WHITE, 21)
    builder.edge(lifted([(0.0, -2.5), (100.0, -2.5)], z), EDGE_BOUNDARY, 22)
    builder.area(lifted([(40.0, -2.0), (44.0, -2.0), (44.0, 2.0), (40.0, 2.0)], z), AREA_CROSSWALK, 23)
    builder.signal(SIGNAL_LIGHT, [12], point=(50.0, 0.0, z), states=STATES)
    builder.signal(SIGNAL_STOP, [13], point=(71.0, 7.0, z))
    t = 0.1 * np.arange(ROWS)
    still = np.zeros(ROWS)
    common = {"z": np.full(ROWS, z), "valid": np.ones(ROWS, bool)}
    builder.track(
        101, TYPE_VEHICLE, SUBTYPE_CAR, x=20.0 + 10.0 * t, y=still, heading=still, vx=still + 10.0, vy=still,
        length=4.5, width=1.9, height=1.5, goal=(90.0, 0.0, z), **common,
    )  # fmt: skip
    builder.track(
        102, TYPE_PEDESTRIAN, SUBTYPE_NONE, x=still + 42.0, y=-3.0 + 1.5 * t, heading=still + np.pi / 2, vx=still,
        vy=still + 1.5, length=0.5, width=0.6, height=1.7, goal=(42.0, 3.0, z), **common,
    )  # fmt: skip
    common["valid"] = np.array([False, True, True, True])
    builder.track(
        103, TYPE_VEHICLE, SUBTYPE_CAR, x=56.0 + 6.0 * t, y=2.0 + 2.0 * t, heading=still + np.arctan2(2.0, 6.0),
        vx=still + 6.0, vy=still + 2.0, length=5.0, width=2.0, height=2.0, goal=(71.0, 7.0, z), expert=True, **common,
    )  # fmt: skip
    return builder.finish(has_z=True, sdc=0, tracks_to_predict=[2, 0], objects_of_interest=[1])


def world_points(scene: Scene, element: int) -> np.ndarray:
    """(n, 3) f64 [m]: the vertices of an element in the frame of the file."""
    return scene.road.xyz[scene.road.points(element)].astype(float) + scene.meta.origin


def assert_same_world(found: Scene, expected: Scene, *, widths: bool = True, goals: bool = True) -> None:
    """Lanes, kinds, graph, signals and tracks of two scenes agree, each in the frame of its own file."""
    assert found.meta.has_z == expected.meta.has_z
    np.testing.assert_array_equal(found.road.element_type, expected.road.element_type)
    np.testing.assert_array_equal(found.road.element_points, expected.road.element_points)
    np.testing.assert_allclose(found.road.xyz + found.meta.origin, expected.road.xyz + expected.meta.origin, atol=1e-3)
    np.testing.assert_array_equal(found.road.exit_offset, expected.road.exit_offset)
    np.testing.assert_array_equal(found.road.exit_lane, expected.road.exit_lane)
    if widths:
        np.testing.assert_allclose(found.road.width, expected.road.width, atol=1e-4)
    np.testing.assert_array_equal(found.signals.kind, expected.signals.kind)
    np.testing.assert_array_equal(found.signals.lane, expected.signals.lane)
    line = found.signals.line + found.meta.origin - (expected.signals.line + expected.meta.origin)
    np.testing.assert_allclose(line, 0.0, atol=2e-3)
    np.testing.assert_array_equal(found.signals.state, expected.signals.state)
    assert_same_tracks(found, expected, goals=goals)


def assert_same_tracks(found: Scene, expected: Scene, *, goals: bool = True) -> None:
    """Rows, sizes, types, goals and who is singled out agree."""
    ours, theirs = found.tracks, expected.tracks
    np.testing.assert_array_equal(ours.valid, theirs.valid)
    for axis, shift, other in zip("xyz", found.meta.origin, expected.meta.origin, strict=True):
        moved = np.where(ours.valid, getattr(ours, axis) + shift, 0.0)
        np.testing.assert_allclose(moved, np.where(ours.valid, getattr(theirs, axis) + other, 0.0), atol=1e-3)
    for name in ("heading", "vx", "vy", "length", "width", "height"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(ours.type, theirs.type)
    if not goals:  # the last place of each track
        last = np.stack([np.where(ours.valid, getattr(ours, axis), np.nan)[:, -1] for axis in "xyz"], axis=1)
        np.testing.assert_array_equal(ours.goal, last)
    else:
        goal, other_goal = ours.goal + found.meta.origin, theirs.goal + expected.meta.origin
        np.testing.assert_allclose(goal, other_goal, atol=1e-3)
    assert found.meta.sdc == expected.meta.sdc
    assert found.meta.tracks_to_predict == expected.meta.tracks_to_predict
    assert found.meta.objects_of_interest == expected.meta.objects_of_interest


__all__ = ["ROWS", "STATE_UNKNOWN", "assert_same_tracks", "assert_same_world", "small_world", "world_points"]

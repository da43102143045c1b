"""check_scene: each of the twenty checks finds what it is for, and nothing in a good scene."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from skidpad.cli import run
from skidpad.scenes.check import CHECKS, STRUCTURE_CHECKS, check_scene, structural_findings
from skidpad.scenes.notes import scene_notes
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import synthetic

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def scene() -> Scene:
    return synthetic("crossing")


@pytest.fixture(scope="module")
def wide() -> Scene:
    return synthetic("straight")  # with neighbours


def corrupted(scene: Scene, change: Change | None = None, **meta: Any) -> Scene:
    """A copy of a scene with writable arrays for `change`, and other meta."""
    arrays: dict[str, Any] = {path: array.copy() for path, array in scene.arrays().items()}
    if change:
        change(arrays)
    return Scene.from_arrays(arrays, replace(scene.meta, **meta))


def put(path: str, index: Any, value: Any) -> Change:
    """A change of one element."""

    def change(arrays: dict[str, Any]) -> None:
        arrays[path][index] = value

    return change


def cut(path: str) -> Change:
    """The last entry of an array goes."""

    def change(arrays: dict[str, Any]) -> None:
        arrays[path] = arrays[path][:-1].copy()

    return change


def doubled_point(arrays: dict[str, Any]) -> None:
    arrays["road.xyz"][1] = arrays["road.xyz"][0]


# check -> (change, meta, what the message names)
CORRUPTIONS: list[tuple[str, Change | None, dict[str, Any], str]] = [
    ("shapes", cut("road.width"), {}, "road.width"),
    ("shapes", None, {"steps": 7}, "tracks.x"),
    ("offsets", put("road.exit_offset", 2, 99), {}, "road.exit_offset"),
    ("offsets", put("signals.lane_offset", 0, 1), {}, "signals.lane_offset"),
    ("offsets", cut("tracks.route_lane"), {}, "tracks.route_lane"),
    ("indices", put("road.exit_lane", 0, 400), {}, "400"),
    ("indices", put("signals.lane", 0, -1), {}, "-1"),
    ("elements", put("road.element_type", 0, 9), {}, "element 0 is 9"),
    ("elements", put("road.element_points", 1, 1), {}, "element 0 is 1"),
    ("lane_elements", put("road.lane_element", 3, 4), {}, "element 3 is 0"),
    ("lane_elements", put("road.element_type", 0, 11), {}, "lane 0"),
    ("clock", None, {"dt_us": 0}, "dt_us is 0"),
    ("clock", None, {"current_step": 91}, "current_step is 91"),
    ("chosen", None, {"sdc": 8}, "sdc is 8"),
    ("chosen", None, {"tracks_to_predict": (0, 9)}, "9"),
    ("chosen", None, {"objects_of_interest": (-1,)}, "-1"),
    ("finite", put("road.xyz", (5, 2), np.nan), {}, "road.xyz 5"),
    ("finite", put("tracks.vx", (1, 1), np.inf), {}, "tracks.vx 1"),
    ("extent", put("road.xyz", (5, 0), 20_000), {}, "point 5"),
    ("extent", put("tracks.x", (2, 5), -20_000), {}, "track 2"),
    ("extent", put("road.xyz", (5, 2), 1.0), {}, "height 0"),
    ("zero_length", doubled_point, {}, "point 0"),
    ("measures", put("road.arc", 4, 0.0), {}, "arc of point 4"),
    ("measures", put("road.direction", (4, 0), 0.5), {}, "direction of point 4"),
    ("lane_values", put("road.width", 0, -1.0), {}, "width of point 0 is -1"),
    ("lane_values", put("road.width", -1, 1.0), {}, "width of point"),
    ("lane_values", put("road.speed_limit", 0, 0.0), {}, "speed limit of lane 0 is 0"),
    ("graph", put("road.exit_lane", 0, 19), {}, "link of one side"),
    ("graph", put("road.exit_lane", 1, 11), {}, "ascending"),
    ("track_ids", put("tracks.source_id", 2, 1), {}, "id of track 2 is 1"),
    ("track_rows", put("tracks.type", 0, 4), {}, "type of track 0 is 4"),
    ("track_rows", put("tracks.subtype", 0, 6), {}, "subtype of track 0 is 6"),
    ("track_rows", put("tracks.valid", 0, False), {}, "track 0"),
    ("track_rows", put("tracks.valid", (0, 5), False), {}, "zeros"),
    ("track_rows", put("tracks.width", (0, 5), 0.0), {}, "sizes"),
    ("track_rows", put("tracks.heading", (0, 5), 3.2), {}, "(-pi, pi]"),
    ("track_rows", put("tracks.first", 0, 3), {}, "first row of track 0 is 3"),
    ("track_rows", put("tracks.last", 0, 3), {}, "last row of track 0 is 3"),
    ("track_speed", put("tracks.y", (0, 5), 90.0), {}, "track 0 jumps"),
    ("signals", put("signals.kind", 1, 4), {}, "kind of signal 1 is 4"),
    ("signals", put("signals.lane_offset", 1, 0), {}, "controlled lane"),
    ("signals", put("signals.state", (1, 7), 5), {}, "state of signal 1 is 5"),
    ("signals", put("signals.program_duration", 2, 0.0), {}, "programme phase 2"),
    ("signals", put("signals.program_state", 2, 5), {}, "programme phase 2"),
    ("signal_lines", put("signals.heading", 0, 0.0), {}, "stop line 0"),
    ("signal_lines", put("signals.line", 1, 5.0), {}, "stop line 1"),
    ("routes", put("tracks.route_gt_lanes", 0, 4), {}, "route_gt_lanes of track 0"),
    ("routes", put("tracks.route_lane", 1, 0), {}, "does not lead to"),
]


@pytest.mark.parametrize(("check", "change", "meta", "named"), CORRUPTIONS)
def test_each_check_finds_its_fault(
    scene: Scene, check: str, change: Change | None, meta: dict[str, Any], named: str
) -> None:
    """S11: one corrupted scene per fault; the finding names check, element and value."""
    findings = check_scene(corrupted(scene, change, **meta))
    mine = [finding for finding in findings if finding.check == check]
    assert mine, findings
    assert any(named in finding.message for finding in mine), mine


NEIGHBOURS: list[tuple[Change, str]] = [
    (put("road.left_lane", 0, 3), "does not agree"),
    (put("road.left_lane", 0, 1), "another lane"),
    (put("road.left_range", (0, 1), 100), "points of both lanes"),
    (put("road.right_range", (0, 0), 3), "does not agree"),
]


@pytest.mark.parametrize(("change", "named"), NEIGHBOURS)
def test_neighbours(wide: Scene, change: Change, named: str) -> None:
    """S2, S11: neighbours are mutual with the same ranges, or a lane change could be seen from one side only."""
    assert wide.road.left_lane.tolist() == [0, 2]
    findings = check_scene(corrupted(wide, change))
    assert any(finding.check == "neighbours" and named in finding.message for finding in findings), findings


def test_every_check_has_a_corrupted_scene() -> None:
    """S11: twenty checks, none of which could rot unnoticed."""
    assert len(CHECKS) == 20
    assert {check for check, *_ in CORRUPTIONS} | {"neighbours"} == set(CHECKS)


def test_structure_comes_first(scene: Scene) -> None:
    """S11: when arrays do not fit together only that is reported: other checks would index out of bounds."""

    def both(arrays: dict[str, Any]) -> None:
        arrays["road.exit_lane"][0] = 400
        arrays["road.arc"][4] = 0.0

    findings = check_scene(corrupted(scene, both))
    assert {finding.check for finding in findings} == {"indices"}
    assert structural_findings(corrupted(scene, both)) == findings
    assert structural_findings(scene) == []
    assert "indices" in STRUCTURE_CHECKS


def test_long_lists_are_cut(scene: Scene) -> None:
    """S11: of one fault five elements are listed and the rest counted: a page of 5,000 findings is read by nobody."""

    def all_arcs(arrays: dict[str, Any]) -> None:
        arrays["road.arc"] += 1.0

    findings = check_scene(corrupted(scene, all_arcs))
    assert len(findings) == 5
    assert findings[-1].message.endswith(f"(and {len(scene.road.xyz) - 5} more)")


def test_likely_wrong_unit_is_a_warning(scene: Scene) -> None:
    """R16: 50 as a limit is km/h in most files, but a legal m/s: somebody should look, and the scene still runs."""
    findings = check_scene(corrupted(scene, put("road.speed_limit", 2, 50.0)))
    assert [(finding.severity, finding.element) for finding in findings] == [("warning", "speed limit of lane 2")]


def test_paint_that_no_lane_belongs_to_is_noted(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """R7: CARLA's Town03 has roads with markings and no lanes a scene knows; nothing is wrong, and whoever wonders why
    nobody drives there is told. Paint of other roads is that of a lane."""
    assert run(["scenes", "inspect", "library:Town03"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "note: paint" in line]
    assert len(notes) == 1
    assert "4 painted lines, 66." in notes[0] or "4 painted lines, 67." in notes[0]
    assert scene_notes(scene) == []

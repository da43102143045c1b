"""R26: one world written in every format and read back. What is the same, what is assumed or made up, and what is lost
stands in a table of `docs/formats.md`, which this test derives anew: no reader can lose more, or less, unnoticed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from argoverse_files import columns, document
from gpudrive_files import gpudrive_json
from nuplan_files import SHIFT, city_map, nuplan_log
from pufferdrive_files import pufferdrive_bin
from scenarionet_files import scenarionet_pickle
from small_world import small_world
from waymo_files import waymo_file
from world_writers import commonroad_xml, lanelet2_osm, opendrive_xodr, sumo_net

from skidpad.scenes import polyline
from skidpad.scenes.archive import scene_bytes
from skidpad.scenes.formats import argoverse, read_scene
from skidpad.scenes.formats.pufferdrive_write import pufferdrive_bytes
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    LANE_WIDTH_UNKNOWN,
    LINE_UNKNOWN,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    Scene,
)

YES, SHAPE, MADE, NO = "yes", "shape", "made", "–"
NEAR_M = 0.02


def _argoverse(folder: Path, world: Scene, patch: pytest.MonkeyPatch) -> Scene:
    """With the columns handed over as pyarrow would, which is an extra."""
    table = {
        name: np.asarray(values, float) if name in argoverse._NUMBERS else values
        for name, values in columns(world).items()
    }
    patch.setattr(argoverse, "_table", lambda source, limits: table)
    (folder / "scenario_small.parquet").write_bytes(b"PAR1")
    city = document(world)
    for corner in city["drivable_areas"]["2"]["area_boundary"]:  # a kerb that is no cut of the crop
        corner["y"] = min(corner["y"], 15.0)
    (folder / "log_map_archive_small.json").write_text(json.dumps(city))
    return read_scene(folder / "scenario_small.parquet")


def _nuplan(folder: Path, world: Scene, patch: pytest.MonkeyPatch) -> Scene:
    (folder / "map.gpkg").write_bytes(city_map(world))
    return read_scene(nuplan_log(world), options={"map": str(folder / "map.gpkg")})


def _of(write: Callable[[Scene], bytes]) -> Callable[[Path, Scene, pytest.MonkeyPatch], Scene]:
    return lambda folder, world, patch: read_scene(write(world), name="small")


FORMATS = {
    "archive `.scene`": _of(scene_bytes),
    "CommonRoad": _of(commonroad_xml),
    "OpenDRIVE": _of(opendrive_xodr),
    "GPUDrive, Nocturne": _of(gpudrive_json),
    "`.bin` F0": _of(lambda world: pufferdrive_bin(world, "F0")),
    "`.bin` F0i": _of(lambda world: pufferdrive_bin(world, "F0i")),
    "`.bin` F1": _of(lambda world: pufferdrive_bin(world, "F1")),
    "`.bin` F2": _of(lambda world: pufferdrive_bin(world, "F2")),
    "`.bin` F2b": _of(lambda world: pufferdrive_bin(world, "F2b")),
    "`--to bin`": _of(lambda world: pufferdrive_bytes(world)[0]),
    "Waymo": _of(waymo_file),
    "ScenarioNet": _of(scenarionet_pickle),
    "Argoverse 2": _argoverse,
    "nuPlan": _nuplan,
    "Lanelet2": _of(lanelet2_osm),
    "SUMO": _of(sumo_net),
}


class Seen:
    """What came back, beside what was written. `number` maps lanes of the world to lanes of the scene, -1 if lost."""

    def __init__(self, found: Scene, world: Scene, shift: np.ndarray) -> None:
        self.found, self.world = found, world
        self.shift = np.array(found.meta.origin) - shift
        self.number = [self._lane(n) for n in range(world.road.lane_count)]

    def points(self, element: int) -> np.ndarray:
        road = self.found.road
        return road.xyz[road.points(element)].astype(float) + self.shift

    def theirs(self, element: int) -> np.ndarray:
        road = self.world.road
        return road.xyz[road.points(element)].astype(float) + self.world.meta.origin

    def _lane(self, n: int) -> int:
        wanted = self.theirs(n)
        for lane in range(self.found.road.lane_count):
            points = self.points(int(self.found.road.lane_element[lane]))
            ends = np.abs(points[[0, -1], :2] - wanted[[0, -1], :2]).max()
            if ends < NEAR_M and polyline.project(wanted, points[:, :2]).distance.max() < NEAR_M:
                return lane
        return -1

    def same_points(self, element: int, kinds: range) -> list[int]:
        """Types of the elements that look like one of the world."""
        wanted, road = self.theirs(element)[:, :2], self.found.road
        found = []
        for other in np.flatnonzero(np.isin(road.element_type, list(kinds))).tolist():
            points = self.points(other)[:, :2]
            gaps = np.abs(points[:, None] - wanted[None]).max(axis=2)
            if gaps.min(axis=0).max() < NEAR_M and gaps.min(axis=1).max() < NEAR_M:
                found.append(int(road.element_type[other]))
        return found

    def signal(self, kind: int) -> int | None:
        """The signal of a kind that controls the lane it should; None if there is none."""
        (wanted,) = np.flatnonzero(self.world.signals.kind == kind).tolist()
        lane = self.number[int(self.world.signals.lanes(wanted)[0])]
        for n in np.flatnonzero(self.found.signals.kind == kind).tolist():
            if self.found.signals.lanes(n).tolist() == [lane]:
                return int(n)
        return None

    def signal_mark(self, kind: int) -> str:
        n = self.signal(kind)
        if n is None:
            return MADE if (self.found.signals.kind == kind).any() else NO
        (wanted,) = np.flatnonzero(self.world.signals.kind == kind).tolist()
        ours = self.found.signals.line[n, :, :2] + self.shift[:2]
        theirs = self.world.signals.line[wanted, :, :2] + self.world.meta.origin[:2]
        return YES if np.abs(ours - theirs).max() < NEAR_M else MADE

    def tracks(self, *names: str, atol: float) -> bool:
        ours, theirs = self.found.tracks, self.world.tracks
        if not np.array_equal(ours.valid, theirs.valid):
            return False
        for name in names:
            moved = {"x": 0, "y": 1, "z": 2}
            add = self.shift[moved[name]] if name in moved else 0.0
            other = self.world.meta.origin[moved[name]] if name in moved else 0.0
            gap = np.abs(getattr(ours, name) + add - getattr(theirs, name) - other)
            if gap[ours.valid].max() > atol:
                return False
        return True


def _lanes(seen: Seen) -> str:
    kinds = [seen.found.road.element_type[seen.found.road.lane_element[n]] for n in seen.number if n >= 0]
    same = len(kinds) == len(seen.number) and kinds == seen.world.road.element_type[: len(kinds)].tolist()
    return YES if same else NO if -1 in seen.number else SHAPE


def _widths(seen: Seen) -> str:
    road = seen.found.road
    widths = np.array([road.width[road.lane_points(n)][-1] for n in seen.number])
    unknown = (road.lane_flags[seen.number] & LANE_WIDTH_UNKNOWN).any()
    return MADE if unknown else YES if np.abs(widths - 3.7).max() < 1e-3 else NO


def _limits(seen: Seen) -> str:
    limits = seen.found.road.speed_limit[seen.number]
    return YES if np.allclose(limits, 13.9, atol=1e-3) else NO


def _links(seen: Seen) -> str:
    road = seen.found.road
    back = {n: number for number, n in enumerate(seen.number)}
    found = {(a, back.get(int(b), -1)) for a, n in enumerate(seen.number) for b in road.exits(n)}
    return YES if found == {(0, 1), (0, 2)} else NO


def _paint(seen: Seen) -> str:
    kinds = seen.same_points(3, range(10, 20))
    return NO if not kinds else YES if 11 in kinds else SHAPE if LINE_UNKNOWN in kinds else NO


def _edges(seen: Seen) -> str:
    kinds = seen.same_points(4, range(20, 30))
    if kinds:
        return YES if 21 in kinds else SHAPE
    return MADE if ((seen.found.road.element_type // 10) == 2).any() else NO


def _crossing(seen: Seen) -> str:
    return YES if AREA_CROSSWALK in seen.same_points(5, range(30, 40)) else NO


def _states(seen: Seen) -> str:
    """What the light shows in row after row: logged, or by a programme."""
    n, signals = seen.signal(SIGNAL_LIGHT), seen.found.signals
    if n is None:
        return NO
    (wanted,) = np.flatnonzero(seen.world.signals.kind == SIGNAL_LIGHT).tolist()
    expected = seen.world.signals.state[wanted].tolist()
    if signals.state[n].tolist() == expected:
        return YES
    phases = slice(int(signals.program_offset[n]), int(signals.program_offset[n + 1]))
    ends = np.cumsum(signals.program_duration[phases]) + signals.cycle_offset[n]
    shown = [
        int(signals.program_state[phases][np.searchsorted(ends, 0.1 * row + 1e-3)]) for row in range(len(expected))
    ] if len(ends) else []  # fmt: skip
    return YES if shown == expected else NO


def _heights(seen: Seen) -> str:
    if not seen.found.meta.has_z:
        return NO
    return YES if all(np.abs(seen.points(int(seen.found.road.lane_element[n]))[:, 2] - 7.0).max() < 1e-3
                      for n in seen.number) else NO  # fmt: skip


def _rows(seen: Seen) -> str:
    if not seen.found.tracks.count:
        return NO
    return YES if seen.tracks("x", "y", "heading", "vx", "vy", atol=2e-3) else NO


def _sizes(seen: Seen) -> str:
    if not seen.found.tracks.count:
        return NO
    return YES if seen.tracks("length", "width", atol=1e-4) else MADE


def _types(seen: Seen) -> str:
    return YES if seen.found.tracks.type.tolist() == seen.world.tracks.type.tolist() else NO


def _ids(seen: Seen) -> str:
    return YES if seen.found.tracks.source_id.tolist() == seen.world.tracks.source_id.tolist() else NO


def _goals(seen: Seen) -> str:
    if not seen.found.tracks.count:
        return NO
    gap = seen.found.tracks.goal[:, :2] + seen.shift[:2] - seen.world.tracks.goal[:, :2] - seen.world.meta.origin[:2]
    return YES if np.abs(gap).max() < NEAR_M else MADE


def _recording(seen: Seen) -> str:
    return YES if seen.found.meta.sdc == seen.world.meta.sdc else NO


def _predicted(seen: Seen) -> str:
    return YES if seen.found.meta.tracks_to_predict == seen.world.meta.tracks_to_predict else NO


ASPECTS: dict[str, Callable[[Seen], str]] = {
    "lanes": _lanes,
    "widths": _widths,
    "limits": _limits,
    "links": _links,
    "paint": _paint,
    "edges": _edges,
    "crossing": _crossing,
    "light": lambda seen: seen.signal_mark(SIGNAL_LIGHT),
    "its states": _states,
    "stop sign": lambda seen: seen.signal_mark(SIGNAL_STOP),
    "heights": _heights,
    "rows": _rows,
    "sizes": _sizes,
    "types": _types,
    "ids": _ids,
    "goals": _goals,
    "recording": _recording,
    "to predict": _predicted,
}


def table(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    world = small_world()
    lines = [f"| format | {' | '.join(ASPECTS)} |", "|---" * (len(ASPECTS) + 1) + "|"]
    for name, read in FORMATS.items():
        place = folder / str(len(lines))
        place.mkdir()
        found = read(place, world, patch)
        shift = SHIFT if name == "nuPlan" else np.array(world.meta.origin) * (-1.0 if name == "`--to bin`" else 0.0)
        seen = Seen(found, world, shift)
        lines.append(f"| {name} | {' | '.join(mark(seen) for mark in ASPECTS.values())} |")
    return lines


def test_what_every_format_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R26: lanes, graph, widths, signals and tracks agree within each format's declared loss, which is the table in the
    documentation; a line that differs is what to write there, or what has broken."""
    docs = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    declared = re.findall(r"^\| format \| lanes .*\n(?:\|.*\n)+", docs, re.MULTILINE)
    assert len(declared) == 1, "docs/formats.md has no table of what formats keep"
    derived = table(tmp_path, monkeypatch)
    assert declared[0].splitlines() == derived, "\n" + "\n".join(derived)
    for line in derived[2:]:
        assert line.split(" | ")[1].strip() == YES, "every format keeps the lanes"
        assert line.split(" | ")[4].strip() == YES, "every format keeps the graph"


def test_an_archive_keeps_everything() -> None:
    """R13, R26: byte for byte, so its digest too."""
    world = small_world()
    assert read_scene(scene_bytes(world)).digest == world.digest


def test_a_flat_map_loses_its_height_in_bin() -> None:
    """R20, R26: `.bin` files are written in the local frame, so a map at one height has none afterwards; it is said."""
    world = small_world(z=7.0)
    data, loss = pufferdrive_bytes(world)
    assert world.meta.has_z
    assert not read_scene(data).meta.has_z
    assert loss["dropped_height"].count == 1
    assert "dropped_height" not in pufferdrive_bytes(small_world(z=0.0))[1]

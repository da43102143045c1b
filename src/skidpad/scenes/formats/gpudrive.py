"""GPUDrive and Nocturne JSON (R19): logged traffic with polylines of a map, and no lane graph.

Objects are `gpudrive_tracks.py`; this file reads the road and the lights and puts the scene together. The graph is
built from where lanes end and begin. Lights name their lane by id; where roads carry no ids, and for stop signs, which
never name one, it is the nearest lane, and that is counted.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive, json_file
from skidpad.scenes.formats.gpudrive_tracks import add_tracks, chosen_tracks
from skidpad.scenes.formats.motion_codes import DT_US, LIGHT_WORDS
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.unnamed_lanes import add_stop_signs
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    AREA_DRIVEWAY,
    AREA_SPEED_BUMP,
    AREA_UNKNOWN,
    EDGE_UNKNOWN,
    LANE_STREET,
    LINE_UNKNOWN,
    SIGNAL_LIGHT,
    STATE_UNKNOWN,
    Scene,
)

F64 = NDArray[np.float64]

FORMAT = "gpudrive"
OPTIONS: frozenset[str] = frozenset()

STOP_SIGN = -1  # of no element type: a place
_BY_WORD = {
    "lane": LANE_STREET,
    "road_line": LINE_UNKNOWN,
    "road_edge": EDGE_UNKNOWN,
    "stop_sign": STOP_SIGN,
    "crosswalk": AREA_CROSSWALK,
    "speed_bump": AREA_SPEED_BUMP,
    "driveway": AREA_DRIVEWAY,
}
# `map_element_id`: lanes keep their numbers, lines begin at 5, edges at 14.
_BY_CODE = {
    **{code: code for code in range(4)},
    **{code: code + 5 for code in range(5, 14)},
    **{code: code + 6 for code in range(14, 17)},
    17: STOP_SIGN,
    18: AREA_CROSSWALK,
    19: AREA_SPEED_BUMP,
    20: AREA_DRIVEWAY,
}
_HEAD = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{.*?"(?:objects|roads)"\s*:\s*\[', re.DOTALL)


@dataclass(eq=False)
class _Road:
    """The polylines of a file: lanes with their keys, stop signs, and whether anything has a height."""

    keys: list[Hashable] = field(default_factory=list)
    centres: list[F64] = field(default_factory=list)
    signs: list[tuple[str, F64]] = field(default_factory=list)
    has_ids: bool = False
    has_z: bool = False

    def on_the_map(self, point: F64) -> F64:
        """A place (3,) f64 [m] without its height where the map has no heights."""
        return point if self.has_z else point * (1.0, 1.0, 0.0)


def sniff(head: bytes, name: str) -> float:
    """1 for a JSON object with an array of objects or of roads, else 0."""
    return 1.0 if _HEAD.match(head) else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of a file. Rows are 0.1 s apart: the format says nothing about time.

    Raises FormatError, with the member, where the file breaks its format or a limit.
    """
    root = json_file.load_json(source, limits)
    loss = LossReport()
    used = ("name", "scenario_id", "objects", "roads", "tl_states", "traffic_lights", "metadata")
    json_file.count_keys(loss, "file", root, used)
    builder = SceneBuilder(
        _scene_id(root, source), "", FORMAT, "nocturne", source.digest, DT_US, loss=loss, limits=limits
    )
    road = _read_roads(json_file.required(root, "roads", list, "file"), builder, loss)
    objects = json_file.required(root, "objects", list, "file")
    steps = add_tracks(objects, builder, loss, limits)
    _add_lights(root, road, steps, builder, loss)
    signs = [(where, road.on_the_map(point)) for where, point in road.signs]
    add_stop_signs(signs, road.centres, road.keys, builder)
    sdc, predict, interest = chosen_tracks(root, objects, loss)
    return builder.finish(
        has_z=road.has_z,
        sdc=sdc,
        tracks_to_predict=predict,
        objects_of_interest=interest,
        labels={"scenario_id": root["scenario_id"]} if isinstance(root.get("scenario_id"), str) else None,
    )


def _scene_id(root: Mapping[str, Any], source: Source) -> str:
    for key in ("scenario_id", "name"):
        if key in root:
            text = json_file.expect(root[key], str, f"file.{key}").strip().removesuffix(".json")
            if text:
                return text
    return source.stem


# Roads


def _read_roads(items: list[Any], builder: SceneBuilder, loss: LossReport) -> _Road:
    road = _Road()
    for index, value in enumerate(items):
        where = f"roads[{index}]"
        item = json_file.expect(value, dict, where)
        json_file.count_keys(loss, where, item, ("id", "type", "map_element_id", "geometry"))
        identity = json_file.expect(item["id"], int, f"{where}.id") if "id" in item else -1
        points, has_z = json_file.points(json_file.required(item, "geometry", list, where), f"{where}.geometry", loss)
        if not len(points):
            loss.count("dropped_shape_without_extent", f"{where}: 0 points")
            continue
        road.has_z |= has_z and bool(np.any(points[:, 2]))
        kind = _kind(item, where, loss)
        if kind == STOP_SIGN:
            road.signs.append((where, points[0]))
        elif kind < LINE_UNKNOWN:
            key: Hashable = identity if identity >= 0 else where
            builder.lane(key, points, kind=kind, source_id=identity)
            road.has_ids |= identity >= 0
            road.keys.append(key)
            road.centres.append(points)
        elif kind < EDGE_UNKNOWN:
            builder.line(points, kind, identity)
        elif kind < AREA_UNKNOWN:
            builder.edge(points, kind, identity)
        else:
            builder.area(points, kind, identity)
    for one, other in derive.connections(road.centres):
        builder.connect(road.keys[one], road.keys[other])
    return road


def _kind(item: Mapping[str, Any], where: str, loss: LossReport) -> int:
    """Element type: of the code where it is known and of the family that the word names, else of the word."""
    word = json_file.required(item, "type", str, where)
    code = json_file.expect(item.get("map_element_id", -1), int, f"{where}.map_element_id")
    by_code = _BY_CODE.get(code)
    if word not in _BY_WORD:
        loss.count("unknown_road_type", f"{where}: {word[:80]!r}")
        return AREA_UNKNOWN if by_code is None else by_code
    by_word = _BY_WORD[word]
    if by_code is None:
        return by_word
    if by_code // 10 != by_word // 10:
        loss.count("repaired_road_type", f"{where}: map_element_id {code} of a {word}; the word stands")
        return by_word
    return by_code


# Signals


def _add_lights(root: Mapping[str, Any], road: _Road, steps: int, builder: SceneBuilder, loss: LossReport) -> None:
    lights: dict[str, Any] = {}
    for key in ("tl_states", "traffic_lights"):
        value = root.get(key, {})
        if not isinstance(value, (dict, list)):
            raise FormatError(f"file.{key}: expected an object, or an array, of lights.")
        items = value.items() if isinstance(value, dict) else enumerate(value)
        lights.update({f"{key}.{name}": light for name, light in items})
    for where, value in lights.items():
        light = json_file.expect(value, dict, where)
        json_file.count_keys(loss, where, light, ("state", "x", "y", "z", "time_index", "lane_id"))
        point = _light_place(light, where)
        lane = _light_lane(light, where, point, road, loss)
        if lane is not None:
            builder.signal(SIGNAL_LIGHT, [lane], point=point, states=_states(light, where, steps, loss))


def _light_place(light: Mapping[str, Any], where: str) -> F64 | None:
    """The first place of a light that is not the mark of absence (3,) f64 [m]; None where it has none."""
    if "x" not in light or "y" not in light:
        return None
    axes = [json_file.numbers(light[axis], f"{where}.{axis}") for axis in ("x", "y")]
    axes.append(json_file.numbers(light["z"], f"{where}.z") if "z" in light else np.zeros(len(axes[0])))
    if len({len(axis) for axis in axes}) != 1:
        raise FormatError(f"{where}: x, y and z of {[len(axis) for axis in axes]} entries, expected the same.")
    rows = np.stack(axes, axis=1)
    rows = rows[np.isfinite(rows).all(axis=1) & (np.abs(rows[:, 0]) < 1e7) & (rows[:, 0] != -10_000.0)]
    return rows[0] if len(rows) else None


def _light_lane(
    light: Mapping[str, Any], where: str, point: F64 | None, road: _Road, loss: LossReport
) -> Hashable | None:
    if road.has_ids:
        named = light.get("lane_id", where.rpartition(".")[2])
        if isinstance(named, list):
            named = named[0] if named else where.rpartition(".")[2]
        text = str(named)
        if not text.lstrip("-").isdecimal() or len(text) > 19:
            raise FormatError(f"{where}: names lane {text[:60]!r}, expected the id of a lane.")
        return int(text)  # one that is not there is dropped and counted by the builder
    lane = None if point is None else derive.nearest_lane(road.centres, road.on_the_map(point))
    if lane is None:
        loss.count("dropped_light_without_lane", f"{where}: no lane within {derive.NEAREST_LANE_M:g} m")
        return None
    loss.count("assumed_light_lane", f"{where}: the nearest lane, {road.keys[lane]!r}")
    return road.keys[lane]


def _states(light: Mapping[str, Any], where: str, steps: int, loss: LossReport) -> NDArray[np.uint8]:
    """(steps,) u8: what a light showed; unknown where the file says nothing."""
    words = json_file.required(light, "state", list, where)
    rows = json_file.expect(light.get("time_index", list(range(len(words)))), list, f"{where}.time_index")
    if len(rows) != len(words):
        raise FormatError(f"{where}: {len(words)} states at {len(rows)} times, expected as many.")
    states = np.full(steps, STATE_UNKNOWN, np.uint8)
    for row, word in zip(rows, words, strict=True):
        at = json_file.expect(row, int, f"{where}.time_index")
        name = json_file.expect(word, str, f"{where}.state").lower()
        if name not in LIGHT_WORDS:
            loss.count("unknown_light_state", f"{where}: {name[:80]!r}")
        elif not 0 <= at < steps:
            loss.count("dropped_light_row", f"{where}: row {at} of {steps}")
        else:
            states[at] = LIGHT_WORDS[name]
    return states

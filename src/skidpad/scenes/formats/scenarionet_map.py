"""Map features and lights of a ScenarioNet scenario (R24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes import polyline
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive, pickle_values
from skidpad.scenes.formats.json_file import count_keys
from skidpad.scenes.formats.motion_codes import LIGHT_WORDS
from skidpad.scenes.formats.waymo_map import MPH_M_S, add_neighbours
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    AREA_DRIVEWAY,
    AREA_SPEED_BUMP,
    AREA_UNKNOWN,
    EDGE_BOUNDARY,
    EDGE_MEDIAN,
    EDGE_UNKNOWN,
    LANE_BICYCLE,
    LANE_FREEWAY,
    LANE_STREET,
    LANE_UNKNOWN,
    LINE_UNKNOWN,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    STATE_GREEN,
    STATE_RED,
    STATE_UNKNOWN,
    STATE_YELLOW,
    UNKNOWN_LANE_WIDTH_M,
)

F64 = NDArray[np.float64]

_STOP_SIGN = "STOP_SIGN"
_LANES = {
    "LANE_UNKNOWN": LANE_UNKNOWN,
    "LANE_FREEWAY": LANE_FREEWAY,
    "LANE_SURFACE_STREET": LANE_STREET,
    "LANE_SURFACE_UNSTRUCTURE": LANE_STREET,  # those of junctions
    "LANE_BIKE_LANE": LANE_BICYCLE,
}
_LINES = (
    *("UNKNOWN", "BROKEN_SINGLE_WHITE", "SOLID_SINGLE_WHITE", "SOLID_DOUBLE_WHITE", "BROKEN_SINGLE_YELLOW"),
    *("BROKEN_DOUBLE_YELLOW", "SOLID_SINGLE_YELLOW", "SOLID_DOUBLE_YELLOW", "PASSING_DOUBLE_YELLOW"),
)
_OTHERS = {
    **{f"ROAD_LINE_{word}": LINE_UNKNOWN + number for number, word in enumerate(_LINES)},
    "UNKNOWN_LINE": LINE_UNKNOWN,
    "UNKNOWN": EDGE_UNKNOWN,
    "ROAD_EDGE_UNKNOWN": EDGE_UNKNOWN,
    "ROAD_EDGE_BOUNDARY": EDGE_BOUNDARY,
    "ROAD_EDGE_MEDIAN": EDGE_MEDIAN,
    "ROAD_EDGE_SIDEWALK": AREA_UNKNOWN,
    "CROSSWALK": AREA_CROSSWALK,
    "SPEED_BUMP": AREA_SPEED_BUMP,
    "DRIVEWAY": AREA_DRIVEWAY,
}
_SIDES = {"left_neighbor": "left", "right_neighbor": "right"}
_LANE_USED = ("type", "polyline", "polygon", "width", "speed_limit_mph", "speed_limit_kmh", "entry_lanes", "exit_lanes")
_LANE_UNUSED = ("left_boundaries", "right_boundaries", "interpolating")
_LIGHTS = {f"lane_state_{word}": state for word, state in LIGHT_WORDS.items()} | {
    "traffic_light_red": STATE_RED,
    "traffic_light_yellow": STATE_YELLOW,
    "traffic_light_green": STATE_GREEN,
    "traffic_light_unknown": STATE_UNKNOWN,
}
_POLYGON_REACH_M = 15.0
_ROUNDING = 1e-9  # of a share: the ends of a lane lie on corners of its outline
_CROSSINGS_AT_ONCE = 500_000
_MOST_CROSSINGS = 20_000_000  # of centre points with sides of outlines; a junction of real files has a million


class _Outlines:
    """Borders of lanes from their outlines, as long as that can be afforded: a file may name one outline a thousand
    times."""

    def __init__(self) -> None:
        self._left = _MOST_CROSSINGS

    def borders(self, centre: F64, outline: F64) -> tuple[F64 | None, F64 | None]:
        """Left and right border (n, 3) f64 [m] of a lane whose outline is known (m, 2 or 3) f64 [m]: where the normals
        of the centre line leave it. None where they do not, as with a centre line outside its lane.
        """
        centre, _ = polyline.drop_short_segments(centre)
        self._left -= len(centre) * len(outline)
        if self._left < 0 or len(centre) < 2 or len(outline) < 3 or not np.isfinite(outline).all():
            return None, None
        normal = polyline.normals(centre)
        rows = max(1, _CROSSINGS_AT_ONCE // len(outline))
        blocks = [
            _reach(centre[at : at + rows, :2], normal[at : at + rows], outline[:, :2])
            for at in range(0, len(centre), rows)
        ]
        found = []
        for side, reach in zip((1.0, -1.0), np.concatenate(blocks, axis=1), strict=True):
            there = np.isfinite(reach)
            if not there.any():
                return None, None
            at = np.arange(len(reach))
            reach = np.interp(at, at[there], reach[there])  # at the ends a normal may miss its own outline
            found.append(centre + np.column_stack([side * reach[:, None] * normal, np.zeros(len(centre))]))
        return found[0], found[1]


def _reach(points: F64, normal: F64, outline: F64) -> F64:
    """(2, n) f64 [m]: how far an outline (m, 2) lies to the left and to the right of points (n, 2), along their
    normals (n, 2); infinite where it does not."""
    step = np.roll(outline, -1, axis=0) - outline
    # point + s normal = corner + t step, of every point with every side
    aside = outline[None] - points[:, None]
    with np.errstate(all="ignore"):
        across = normal[:, None, 0] * step[None, :, 1] - normal[:, None, 1] * step[None, :, 0]
        s = (aside[..., 0] * step[None, :, 1] - aside[..., 1] * step[None, :, 0]) / across
        t = (aside[..., 0] * normal[:, None, 1] - aside[..., 1] * normal[:, None, 0]) / across
        hit = (t >= -_ROUNDING) & (t <= 1.0 + _ROUNDING) & (np.abs(s) < _POLYGON_REACH_M)
        sides = [np.where(hit & (s * side > 0.0), s * side, np.inf).min(axis=1) for side in (1.0, -1.0)]
    return np.stack(sides)


def add_map(features: Mapping[str, Any], builder: SceneBuilder) -> tuple[bool, bool]:
    """Hand every map feature to the builder; whether anything has a height, and whether there are road edges."""
    lanes: dict[str, F64] = {}
    links: list[tuple[str, str]] = []
    neighbours: list[tuple[str, str, str]] = []
    has_z = has_edges = False
    outlines = _Outlines()
    for name, value in features.items():
        where = f"map_features[{name[:60]!r}]"
        feature = pickle_values.record(value, where)
        word = pickle_values.text(feature.get("type", ""), f"{where}.type")
        if word == _STOP_SIGN:
            _add_stop_sign(feature, where, builder)
            continue
        if word not in _LANES and word not in _OTHERS:
            builder.loss.count("unknown_feature_type", f"{where}: {word[:60]!r}")
            continue
        is_area = word in _OTHERS and _OTHERS[word] >= AREA_UNKNOWN
        points = _points(feature, where, ("polygon", "polyline") if is_area else ("polyline", "polygon"))
        if not len(points):
            builder.loss.count("dropped_shape_without_extent", f"{where}: 0 points")
            continue
        has_z |= bool(np.any(points[:, 2]))
        if word in _LANES:
            _add_lane(name, where, feature, points, _LANES[word], outlines, builder)
            lanes[name] = points
            links += [(other, name) for other in _ids(feature, "entry_lanes", where)]
            links += [(name, other) for other in _ids(feature, "exit_lanes", where)]
            neighbours += [
                (name, other, side) for member, side in _SIDES.items() for other in _ids(feature, member, where)
            ]
            continue
        count_keys(builder.loss, where, feature, ("type", "polyline", "polygon"))
        kind, identity = _OTHERS[word], _number(name)
        has_edges |= EDGE_UNKNOWN <= kind < AREA_UNKNOWN
        (builder.line if kind < EDGE_UNKNOWN else builder.edge if kind < AREA_UNKNOWN else builder.area)(
            points, kind, identity
        )
    if not links and len(lanes) > 1:
        keys = list(lanes)
        links = [(keys[one], keys[other]) for one, other in derive.connections(list(lanes.values()))]
        builder.loss.count("assumed_links", "no lane names another: from where lanes end and begin", len(links))
    for one, other in links:
        builder.connect(one, other)
    add_neighbours(lanes, neighbours, builder)
    return has_z, has_edges


def _points(feature: Mapping[str, Any], where: str, members: tuple[str, ...]) -> F64:
    """(n, 3) f64 [m]: the first of the members that is there, at height 0 where it is flat."""
    for member in members:
        if feature.get(member) is not None:
            found = pickle_values.table(feature[member], f"{where}.{member}", (3, 2))
            return found if found.shape[1] == 3 else np.column_stack([found, np.zeros(len(found))])
    raise FormatError(f"{where}: no {members[0]!r}, expected points.")


def _number(name: str) -> int:
    return int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else -1


def _ids(feature: Mapping[str, Any], member: str, where: str) -> list[str]:
    """Ids of other lanes: texts, integers, or records with a `feature_id`."""
    found = []
    for index, value in enumerate(pickle_values.items(feature.get(member) or (), f"{where}.{member}")):
        at = f"{where}.{member}[{index}]"
        found.append(pickle_values.text(value.get("feature_id") if type(value) is dict else value, at))
    return found


def _add_lane(
    name: str,
    where: str,
    feature: Mapping[str, Any],
    points: F64,
    kind: int,
    outlines: _Outlines,
    builder: SceneBuilder,
) -> None:
    count_keys(builder.loss, where, feature, (*_LANE_USED, *_SIDES), _LANE_UNUSED)
    width, left, right = None, None, None
    if feature.get("width") is not None:
        width = _width(feature["width"], len(points), where, builder)
    elif feature.get("polygon") is not None:
        outline = pickle_values.table(feature["polygon"], f"{where}.polygon", (3, 2))
        left, right = outlines.borders(points, outline)
    builder.lane(
        name,
        points,
        width=width,
        kind=kind,
        source_id=_number(name),
        speed_limit=_limit(feature, where, builder),
        left=left,
        right=right,
    )


def _width(value: Any, count: int, where: str, builder: SceneBuilder) -> F64 | None:
    """(n,) f64 [m]: what lies to the left plus what lies to the right; 0 means that nobody knows."""
    sides = pickle_values.table(value, f"{where}.width", (2,))
    if len(sides) != count or not (np.isfinite(sides).all() and (sides >= 0.0).all()):
        raise FormatError(f"{where}.width: {len(sides)} rows for {count} points, expected one each, numbers from 0.")
    known = (sides > 0.0).any(axis=1)
    if not known.any():
        return None
    if not known.all():
        builder.loss.count("assumed_lane_width", f"{where}: {UNKNOWN_LANE_WIDTH_M} m in places", int((~known).sum()))
    return np.where(known, np.clip(sides.sum(axis=1), *derive.WIDTH_RANGE_M), UNKNOWN_LANE_WIDTH_M)


def _limit(feature: Mapping[str, Any], where: str, builder: SceneBuilder) -> float | None:
    for member, unit in (("speed_limit_kmh", 1.0 / 3.6), ("speed_limit_mph", MPH_M_S)):
        if feature.get(member) is None:
            continue
        value = pickle_values.number(feature[member], f"{where}.{member}") * unit
        if np.isfinite(value) and value > 0.0:
            return value
        builder.loss.count("dropped_speed_limit", f"{where}: {value:g} m/s", int(value != 0.0))
    return None


def _add_stop_sign(feature: Mapping[str, Any], where: str, builder: SceneBuilder) -> None:
    count_keys(builder.loss, where, feature, ("type", "lane", "position"))
    point = _place(feature.get("position"), f"{where}.position")
    builder.signal(SIGNAL_STOP, _ids(feature, "lane", where), point=point)


def _place(value: Any, where: str) -> F64 | None:
    """(3,) f64 [m]; None where a file has none."""
    if value is None:
        return None
    found = pickle_values.numbers(value, where)
    if len(found) not in (2, 3):
        raise FormatError(f"{where}: {len(found)} numbers, expected 2 or 3.")
    return np.append(found, 0.0)[:3] if np.isfinite(found).all() else None


def add_lights(found: Mapping[str, Any], steps: int, builder: SceneBuilder) -> None:
    """A light for every entry; rows without a word are unknown."""
    builder.limits.check("signals", len(found), "dynamic_map_states")
    builder.limits.check("track_rows", len(found) * steps, "dynamic_map_states")
    for name, value in found.items():
        where = f"dynamic_map_states[{name[:60]!r}]"
        light = pickle_values.record(value, where)
        count_keys(builder.loss, where, light, ("type", "state", "lane", "stop_point"), ("metadata",))
        state = pickle_values.record(light.get("state"), f"{where}.state")
        count_keys(builder.loss, where, state, ("object_state",))
        words = pickle_values.items(state.get("object_state"), f"{where}.object_state")
        if len(words) > steps:
            builder.loss.count("dropped_light_row", f"{where}: {len(words)} rows of {steps}", len(words) - steps)
        series = np.full(steps, STATE_UNKNOWN, np.uint8)
        for row, word in enumerate(words[:steps]):
            known = _LIGHTS.get(word.lower()) if type(word) is str else STATE_UNKNOWN if word is None else None
            if known is None:
                builder.loss.count("unknown_light_state", f"{where}: {pickle_values.described(word)}")
            series[row] = STATE_UNKNOWN if known is None else known
        lane = name if light.get("lane") is None else pickle_values.text(light["lane"], f"{where}.lane")
        builder.signal(SIGNAL_LIGHT, [lane], point=_place(light.get("stop_point"), where), states=series)

"""The road of a nuPlan scene (R25): lanes and connectors of a GeoPackage, as far as the recording vehicle can see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.geopackage import SYSTEM_TABLES, Feature, layer
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.sqlite_file import Database
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import AREA_CROSSWALK, LANE_STREET, SIGNAL_LIGHT, SIGNAL_STOP, SIGNAL_YIELD

F64 = NDArray[np.float64]

CROP_M = 200.0  # around the way of the recording vehicle; a map is a city

_LAYERS = {
    "baseline_paths": ("lane_fid", "lane_connector_fid"),
    "lanes_polygons": ("lane_fid", "left_boundary_fid", "right_boundary_fid", "speed_limit_mps"),
    "lane_connectors": ("fid", "exit_lane_fid", "entry_lane_fid", "intersection_fid", "speed_limit_mps"),
    "gen_lane_connectors_scaled_width_polygons": ("lane_connector_fid", "left_boundary_fid", "right_boundary_fid"),
    "boundaries": ("fid",),
    "crosswalks": ("fid",),
    "stop_polygons": ("fid", "stop_polygon_type_fid"),
}
_STOP_KINDS = {1: SIGNAL_STOP, 4: SIGNAL_YIELD}
_STOP_REACH_M = 3.0
_UNUSED = ("carpark_areas", "walkways", "generic_drivable_areas")


@dataclass(eq=False)
class _Way:
    """A lane or connector: centre line, ids of its borders, what it joins."""

    centre: F64
    left: int | None = None
    right: int | None = None
    limit: float | None = None
    before: int | None = None
    after: int | None = None
    junction: int | None = None


@dataclass(eq=False)
class CityMap:
    """All of a map, in metres. Keys of `ways`: ("lane" or "connector", id)."""

    ways: dict[tuple[str, int], _Way] = field(default_factory=dict)
    borders: dict[int, F64] = field(default_factory=dict)
    crosswalks: list[tuple[int, F64]] = field(default_factory=list)
    stops: list[tuple[int, F64]] = field(default_factory=list)
    unused: dict[str, int] = field(default_factory=dict)


def read_map(source: Source, limits: Limits) -> CityMap:
    """A whole map. Raises FormatError where the GeoPackage lacks a layer or breaks its format."""
    tables = (*_LAYERS, *SYSTEM_TABLES, *_UNUSED, "meta")
    with Database(source, tables, limits, LossReport(), plain=False) as database:
        database.require("meta", ("key", "value"))
        epsg = _epsg(source, database)

        def features(table: str) -> list[Feature]:
            database.require(table, _LAYERS[table][:1])
            return list(layer(database, table, _LAYERS[table], epsg, limits))

        city = CityMap()
        for one in features("boundaries"):
            if one.points is not None:
                city.borders[_id(one.values["fid"], source)] = one.points
        for one in features("baseline_paths"):
            for word, column in (("lane", "lane_fid"), ("connector", "lane_connector_fid")):
                if one.values[column] is not None and one.points is not None:
                    key = word, _id(one.values[column], source)
                    if key in city.ways:
                        raise FormatError(f"{source.name}: {word} {key[1]} has two baseline paths, expected one.")
                    city.ways[key] = _Way(one.points)
        for one in features("lanes_polygons"):
            _fill(city, "lane", "lane_fid", one.values, source)
        for one in features("lane_connectors"):
            _fill(city, "connector", "fid", one.values, source)
        for one in features("gen_lane_connectors_scaled_width_polygons"):
            _fill(city, "connector", "lane_connector_fid", one.values, source)
        for one in features("crosswalks"):
            if one.points is not None:
                city.crosswalks.append((_id(one.values["fid"], source), one.points))
        for one in features("stop_polygons"):
            if one.points is not None and one.values["stop_polygon_type_fid"] in _STOP_KINDS:
                city.stops.append((_STOP_KINDS[one.values["stop_polygon_type_fid"]], one.points))
        for table in _UNUSED:
            if table in database.columns:
                city.unused[table] = len(list(database.rows(f'SELECT 1 FROM "{table}"')))
    if not city.ways:
        raise FormatError(f"{source.name}: no baseline path has a geometry, expected lanes.")
    return city


def _epsg(source: Source, database: Database) -> int:
    for key, value in list(database.rows('SELECT "key", "value" FROM "meta"')):
        if key == "projectedCoordSystem":
            text = str(value).lower().removeprefix("epsg:")
            if text.isdecimal() and len(text) < 7:
                return int(text)
    raise FormatError(f"{source.name}: 'meta' names no projectedCoordSystem, expected epsg:<number>.")


def _id(value: Any, source: Source) -> int:
    """An id, which the layers give as integers, as texts of them, or as whole floats."""
    try:
        number = int(value)
        if float(value) == number and -(1 << 63) <= number < 1 << 63:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise FormatError(f"{source.name}: id {str(value)[:40]!r}, expected an integer.")


def _fill(city: CityMap, word: str, column: str, values: Mapping[str, Any], source: Source) -> None:
    way = city.ways.get((word, _id(values[column], source)))
    if way is None:
        return
    names = {
        "left_boundary_fid": "left",
        "right_boundary_fid": "right",
        "exit_lane_fid": "before",
        "entry_lane_fid": "after",
        "intersection_fid": "junction",
    }
    for key, name in names.items():
        if values.get(key) is not None:
            setattr(way, name, _id(values[key], source))
    limit = values.get("speed_limit_mps")
    if isinstance(limit, (int, float)) and np.isfinite(limit) and limit > 0:
        way.limit = float(limit)


def add_map(city: CityMap, path: F64, lights: Mapping[int, NDArray[np.uint8]], builder: SceneBuilder) -> bool:
    """Hand what lies within CROP_M of a path (n, 2) f64 [m] to the builder; whether it has heights.

    lights  states (T,) u8 by connector; one without a connector near by is dropped and counted
    """
    low, high = path.min(axis=0) - CROP_M, path.max(axis=0) + CROP_M

    def is_near(points: F64) -> bool:
        return bool(np.all(points[:, :2].max(axis=0) >= low) and np.all(points[:, :2].min(axis=0) <= high))

    near = {key: way for key, way in city.ways.items() if len(way.centre) and is_near(way.centre)}
    builder.loss.count("dropped_beyond_crop", f"lanes farther than {CROP_M:g} m", len(city.ways) - len(near))
    for name, count in city.unused.items():
        builder.loss.count(f"ignored_{name}", "of the whole map", count)
    by_border: dict[int, list[tuple[str, int]]] = {}
    has_z = False
    for key, way in near.items():
        left, right = (_border(city, border, way.centre) for border in (way.left, way.right))
        if left is None or right is None:
            left = right = None
        builder.lane(
            key,
            way.centre,
            kind=LANE_STREET,
            source_id=key[1],
            speed_limit=way.limit,
            junction=None if way.junction is None else way.junction,
            left=left,
            right=right,
        )
        has_z |= bool(np.any(way.centre[:, 2]))
        if way.left is not None and key[0] == "lane":
            by_border.setdefault(way.left, []).append(key)
    for key, way in near.items():
        if way.before is not None:
            builder.connect(("lane", way.before), key)
        if way.after is not None:
            builder.connect(key, ("lane", way.after))
        # The right border of one is the left border of the next, and both run the same way.
        for other in by_border.get(way.right, []) if way.right is not None and key[0] == "lane" else []:
            if other != key and _along(way.centre) @ _along(near[other].centre) > 0.0:
                builder.neighbours(key, other)
    for identity, points in city.crosswalks:
        if len(points) and is_near(points):
            builder.area(points, AREA_CROSSWALK, identity)
    _add_signals(city, near, lights, builder)
    return has_z


def _border(city: CityMap, identity: int | None, centre: F64) -> F64 | None:
    """A border in the direction of its lane; None where it is not in the map."""
    if identity is None or identity not in city.borders or len(city.borders[identity]) < 2:
        return None
    points = city.borders[identity]
    ahead = np.hypot(*(points[0] - centre[0])[:2]) + np.hypot(*(points[-1] - centre[-1])[:2])
    back = np.hypot(*(points[-1] - centre[0])[:2]) + np.hypot(*(points[0] - centre[-1])[:2])
    return points if ahead <= back else points[::-1].copy()


def _along(centre: F64) -> F64:
    way: F64 = centre[-1, :2] - centre[0, :2]
    return way


def _add_signals(
    city: CityMap, near: Mapping[tuple[str, int], _Way], lights: Mapping[int, NDArray[np.uint8]], builder: SceneBuilder
) -> None:
    for connector, states in lights.items():
        way = near.get(("connector", connector))
        point = None if way is None else way.centre[0]
        junction = None if way is None else way.junction
        builder.signal(SIGNAL_LIGHT, [("connector", connector)], point=point, states=states, junction=junction)
    for kind, polygon in city.stops:
        if not len(polygon):
            continue
        low, high = polygon[:, :2].min(axis=0) - _STOP_REACH_M, polygon[:, :2].max(axis=0) + _STOP_REACH_M
        lanes = [
            key
            for key, way in near.items()
            if key[0] == "lane" and np.all(way.centre[-1, :2] >= low) and np.all(way.centre[-1, :2] <= high)
        ]
        for key in lanes:
            builder.loss.count("assumed_stop_lane", f"{key[0]} {key[1]} ends where a stop polygon lies")
            builder.signal(kind, [key])

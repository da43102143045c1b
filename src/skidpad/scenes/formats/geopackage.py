"""Layers of a GeoPackage (R25): lines and polygons out of their binary form, in metres of one UTM zone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.formats.projection import utm
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.sqlite_file import Database

F64 = NDArray[np.float64]

WGS_84 = 4326
SYSTEM_TABLES = ("gpkg_geometry_columns",)
_ENVELOPE_BYTES = {0: 0, 1: 32, 2: 48, 3: 48, 4: 64}
_POINT, _LINE, _POLYGON, _MULTI = 1, 2, 3, (4, 5, 6, 7)
_DEEPEST = 4


class Feature(NamedTuple):
    """One row of a layer: its first line or outer ring (n, 3) f64 [m], None without geometry, and other columns."""

    points: F64 | None
    values: dict[str, Any]


def layer(database: Database, table: str, columns: tuple[str, ...], epsg: int, limits: Limits) -> Iterator[Feature]:
    """The features of a layer; columns that it does not have are None.

    epsg  UTM zone of the result; layers in latitude and longitude are projected, others must be in it

    Raises FormatError for a geometry that is cut or of an unknown kind, and another coordinate system.
    """
    database.require("gpkg_geometry_columns", ("table_name", "column_name", "srs_id"))
    found = list(database.rows("SELECT column_name, srs_id FROM gpkg_geometry_columns WHERE table_name = ?", (table,)))
    geometry, system = found[0] if found else (None, epsg)
    if system not in (WGS_84, epsg):
        raise FormatError(f"layer {table!r} is in coordinate system {system}, expected {WGS_84} or {epsg}.")
    there = [column for column in columns if column in database.columns[table]]
    if geometry is not None:
        database.require(table, (str(geometry),))
    asked = ", ".join(f'"{name}"' for name in ([] if geometry is None else [geometry]) + there)
    for number, row in enumerate(database.rows(f'SELECT {asked} FROM "{table}"')):
        limits.check("elements", number + 1, f"layer {table!r}")
        values = dict.fromkeys(columns) | dict(zip(there, row[len(row) - len(there) :], strict=True))
        if geometry is None or row[0] is None:
            yield Feature(None, values)
            continue
        points = shape(row[0], f"layer {table!r}, feature {number}", limits)
        if system == WGS_84 and len(points):
            points[:, 0], points[:, 1] = utm(points[:, 1].copy(), points[:, 0].copy(), epsg)
        yield Feature(points, values)


def shape(blob: Any, where: str, limits: Limits) -> F64:
    """The first line or outer ring of a geometry: (n, 3) f64. Raises FormatError where it is malformed."""
    if not isinstance(blob, bytes) or len(blob) < 8 or blob[:2] != b"GP":
        raise FormatError(f"{where}: no GeoPackage geometry.")
    head = 8 + _ENVELOPE_BYTES.get(blob[3] >> 1 & 7, len(blob))
    try:
        return _well_known(blob, head, where, limits, 0)[0]
    except struct.error:
        raise FormatError(f"{where}: the geometry is cut, {len(blob)} bytes.") from None


def _well_known(blob: bytes, at: int, where: str, limits: Limits, depth: int) -> tuple[F64, int]:
    order = "<" if struct.unpack_from("B", blob, at)[0] == 1 else ">"
    (code,) = struct.unpack_from(f"{order}I", blob, at + 1)
    at += 5
    has_z, has_m = code // 1000 in (1, 3) or bool(code & 0x80000000), code // 1000 in (2, 3) or bool(code & 0x40000000)
    kind, width = (code & 0xFFFF) % 1000, 2 + has_z + has_m
    if kind == _POINT:
        return _numbers(blob, at, 1, width, order, has_z, where), at + 8 * width
    (count,) = struct.unpack_from(f"{order}I", blob, at)
    at += 4
    if kind == _LINE:
        limits.check("map_points", count, where)
        return _numbers(blob, at, count, width, order, has_z, where), at + 8 * width * count
    if kind == _POLYGON and count:
        (points,) = struct.unpack_from(f"{order}I", blob, at)
        limits.check("map_points", points, where)
        return _numbers(blob, at + 4, points, width, order, has_z, where), len(blob)
    if kind in _MULTI and count and depth < _DEEPEST:
        return _well_known(blob, at, where, limits, depth + 1)
    if count == 0:
        return np.zeros((0, 3)), at
    raise FormatError(f"{where}: geometry of kind {code}, expected a line or a polygon.")


def _numbers(blob: bytes, at: int, count: int, width: int, order: str, has_z: bool, where: str) -> F64:
    if count * width * 8 > len(blob) - at:
        raise FormatError(f"{where}: {count} points in {len(blob) - at} bytes.")
    table = np.frombuffer(blob, f"{order}f8", count * width, at).reshape(count, width).astype(np.float64)
    return np.column_stack([table[:, :2], table[:, 2] if has_z else np.zeros(count)])

"""Map features and lights of a Waymo motion scenario (R18)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.wire import FIXED64, Field, fields
from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.derive import same_direction
from skidpad.scenes.formats.motion_codes import LIGHT_STATES
from skidpad.scenes.formats.wire_table import (
    DOUBLE,
    INTEGER,
    MESSAGE,
    U8,
    Spans,
    columns,
    doubles,
    head_bytes,
    integers,
    split,
)
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    AREA_DRIVEWAY,
    AREA_SPEED_BUMP,
    EDGE_MEDIAN,
    EDGE_UNKNOWN,
    LANE_BICYCLE,
    LANE_UNKNOWN,
    LINE_PASSING_YELLOW,
    LINE_UNKNOWN,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    STATE_UNKNOWN,
)

F64 = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

MPH_M_S = 0.44704

_LANE, _LINE, _EDGE, _STOP_SIGN = 3, 4, 5, 7
_AREAS = {8: AREA_CROSSWALK, 9: AREA_SPEED_BUMP, 10: AREA_DRIVEWAY}
_POLYLINE_OF = {_LANE: 8, _LINE: 2, _EDGE: 2, **dict.fromkeys(_AREAS, 1)}
_POINT = {1: DOUBLE, 2: DOUBLE, 3: DOUBLE}
_LIMIT, _TYPE, _INTERPOLATING, _ENTRIES, _EXITS = 1, 2, 3, 9, 10
_SIDES = {11: "left", 12: "right"}
_BOUNDARIES = (13, 14)
_LIGHT = {1: INTEGER, 2: INTEGER, 3: MESSAGE}


def add_map(record: U8, items: Sequence[Field], builder: SceneBuilder) -> bool:
    """Hand every map feature to the builder; whether anything has a height."""
    has_z = False
    lanes: dict[int, F64] = {}
    neighbours: list[tuple[int, int, str]] = []
    for item in items:
        identity, kind, body = -1, 0, None
        for field in fields(item.message(), item.offset + head_bytes(record, item.offset)):
            if field.number == 1:
                identity = field.integer()
            elif field.number in _POLYLINE_OF or field.number == _STOP_SIGN:
                kind, body = field.number, field
            else:
                builder.loss.count("unknown_field", f"map feature {identity}, field {field.number}")
        if body is None:
            builder.loss.count("dropped_empty_feature", f"map feature {identity}")
        elif kind == _STOP_SIGN:
            _add_stop_sign(record, body, builder)
        else:
            points, others = _polyline(record, body, _POLYLINE_OF[kind], builder.loss)
            if not len(points):
                builder.loss.count("dropped_shape_without_extent", f"map feature {identity}: 0 points")
                continue
            has_z |= bool(np.any(points[:, 2]))
            if kind == _LANE:
                _add_lane(record, identity, points, others, neighbours, builder)
                lanes[identity] = points
            elif kind in _AREAS:
                builder.area(points, _AREAS[kind], identity)
                _count_unknown(others, "area", builder.loss)
            else:
                base, last = (LINE_UNKNOWN, LINE_PASSING_YELLOW) if kind == _LINE else (EDGE_UNKNOWN, EDGE_MEDIAN)
                what = "line" if kind == _LINE else "edge"
                code = base + _one_integer(others, 1, what, builder.loss)
                if not base <= code <= last:
                    builder.loss.count(f"unknown_{what}_type", f"map feature {identity}: type {code - base}")
                    code = base
                (builder.line if kind == _LINE else builder.edge)(points, code, identity)
    add_neighbours(lanes, neighbours, builder)
    return has_z


def _polyline(record: U8, body: Field, number: int, loss: LossReport) -> tuple[F64, list[Field]]:
    """The points (n, 3) f64 [m] of a feature, and its other fields."""
    start = body.offset + head_bytes(record, body.offset)
    spans, others = split(record, start, len(body.message()), number)
    return _points(record, spans, loss), others


def _points(record: U8, spans: Spans, loss: LossReport) -> F64:
    found, unknown = columns(record, spans, _POINT)
    for other, count in unknown.items():
        loss.count("unknown_field", f"point, field {other}", count)
    return np.stack([found[axis].value for axis in (1, 2, 3)], axis=1).astype(np.float64)


def _count_unknown(others: Sequence[Field], what: str, loss: LossReport) -> None:
    for field in others:
        loss.count("unknown_field", f"{what}, field {field.number}")


def _one_integer(others: Sequence[Field], number: int, what: str, loss: LossReport) -> int:
    """The last value of one field, 0 where it is absent; other fields are counted as unknown."""
    _count_unknown([field for field in others if field.number != number], what, loss)
    return next((field.integer() for field in reversed(others) if field.number == number), 0)


def _add_lane(
    record: U8,
    identity: int,
    points: F64,
    others: Sequence[Field],
    neighbours: list[tuple[int, int, str]],
    builder: SceneBuilder,
) -> None:
    limit, kind = 0.0, LANE_UNKNOWN
    for field in others:
        if field.number == _LIMIT:
            if field.kind != FIXED64:
                raise FormatError(f"lane {identity}: speed limit of wire type {field.kind}, expected a 64-bit float.")
            limit = float(doubles(field)[0])
        elif field.number == _TYPE:
            kind = field.integer()
        elif field.number == _INTERPOLATING:
            builder.loss.count("ignored_interpolating", f"lane {identity}", int(field.integer() != 0))
        elif field.number == _ENTRIES:
            for other in integers(field):
                builder.connect(other, identity)
        elif field.number == _EXITS:
            for other in integers(field):
                builder.connect(identity, other)
        elif field.number in _SIDES:
            inner = {one.number: one for one in fields(field.message(), field.offset)}
            other = inner[1].integer() if 1 in inner else -1
            neighbours.append((identity, other, _SIDES[field.number]))
        elif field.number in _BOUNDARIES:
            builder.loss.count("ignored_boundary", f"lane {identity}: which lines and edges lie beside it")
        else:
            builder.loss.count("unknown_field", f"lane, field {field.number}")
    if not LANE_UNKNOWN <= kind <= LANE_BICYCLE:
        builder.loss.count("unknown_lane_type", f"lane {identity}: type {kind}")
        kind = LANE_UNKNOWN
    limit = limit * MPH_M_S
    if not np.isfinite(limit) or limit < 0.0:
        raise FormatError(f"lane {identity}: speed limit {limit:g} m/s, expected a number from 0.")
    builder.lane(identity, points, kind=kind, source_id=identity, speed_limit=limit or None)


def add_neighbours(lanes: Mapping[Key, F64], found: Sequence[tuple[Key, Key, str]], builder: SceneBuilder) -> None:
    """Hand over who lies "left" or "right" of whom, as (lane, other, side), but for lanes of the other direction.

    lanes  centre lines (n, 3) f64 [m] by key
    """
    for lane, other, side in found:
        if other in lanes and not same_direction(lanes[lane], lanes[other]):
            builder.loss.count("ignored_oncoming_neighbour", f"lane {lane} and lane {other}")
        else:
            builder.neighbours(*((other, lane) if side == "left" else (lane, other)))


def _add_stop_sign(record: U8, body: Field, builder: SceneBuilder) -> None:
    lanes: list[int] = []
    point = None
    for field in fields(body.message(), body.offset + head_bytes(record, body.offset)):
        if field.number == 1:
            lanes += integers(field)
        elif field.number == 2:
            start = field.offset + head_bytes(record, field.offset)
            spans = Spans(np.array([start]), np.array([len(field.message())]))
            point = _points(record, spans, builder.loss)[0]
        else:
            builder.loss.count("unknown_field", f"stop sign, field {field.number}")
    builder.signal(SIGNAL_STOP, lanes, point=point)


# Lights


def add_lights(record: U8, items: Sequence[Field], steps: int, builder: SceneBuilder) -> None:
    """A light for every lane id that is seen in any step; steps in which it is not seen are unknown."""
    states: dict[int, NDArray[np.uint8]] = {}
    points: dict[int, F64] = {}
    if len(items) > steps:
        builder.loss.count("dropped_light_row", f"{len(items)} rows of lights, {steps} of tracks", len(items) - steps)
    for row, item in enumerate(items[:steps]):
        start = item.offset + head_bytes(record, item.offset)
        spans, others = split(record, start, len(item.message()), 1)
        _count_unknown(others, "light states", builder.loss)
        found, unknown = columns(record, spans, _LIGHT)
        for other, count in unknown.items():
            builder.loss.count("unknown_field", f"light state, field {other}", count)
        for at, (lane, code) in enumerate(zip(found[1].value.tolist(), found[2].value.tolist(), strict=True)):
            if lane not in states:
                builder.limits.check("signals", len(states) + 1, "lights")
                builder.limits.check("track_rows", (len(states) + 1) * steps, "lights")
                states[lane] = np.full(steps, STATE_UNKNOWN, np.uint8)
            if not 0 <= code < len(LIGHT_STATES):
                builder.loss.count("unknown_light_state", f"lane {lane}: state {code}")
                continue
            states[lane][row] = LIGHT_STATES[int(code)]
            if lane not in points and found[3].present[at]:
                where = Spans(found[3].value[at : at + 1].astype(np.int64), found[3].size[at : at + 1])
                points[lane] = _points(record, where, builder.loss)[0]
    for lane, series in states.items():
        builder.signal(SIGNAL_LIGHT, [lane], point=points.get(lane), states=series)

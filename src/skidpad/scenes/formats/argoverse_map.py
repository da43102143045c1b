"""Vector maps of Argoverse 2 (R21): lane segments, drivable areas and crossings, cut out of a city."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes import polyline
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive, json_file
from skidpad.scenes.formats.ribbons import at_share, shares_of_length
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    EDGE_BOUNDARY,
    LANE_BICYCLE,
    LANE_BUS,
    LANE_STREET,
    LINE_BROKEN_WHITE,
    LINE_BROKEN_YELLOW,
    LINE_DOUBLE_BROKEN_YELLOW,
    LINE_DOUBLE_WHITE,
    LINE_DOUBLE_YELLOW,
    LINE_PASSING_YELLOW,
    LINE_SOLID_WHITE,
    LINE_SOLID_YELLOW,
    LINE_UNKNOWN,
)

F64 = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_KINDS = {"VEHICLE": LANE_STREET, "BUS": LANE_BUS, "BIKE": LANE_BICYCLE}
_MARKS = {
    "DASHED_WHITE": LINE_BROKEN_WHITE,
    "DOUBLE_DASH_WHITE": LINE_BROKEN_WHITE,
    "SOLID_WHITE": LINE_SOLID_WHITE,
    "SOLID_DASH_WHITE": LINE_SOLID_WHITE,
    "DASH_SOLID_WHITE": LINE_SOLID_WHITE,
    "DOUBLE_SOLID_WHITE": LINE_DOUBLE_WHITE,
    "DASHED_YELLOW": LINE_BROKEN_YELLOW,
    "DOUBLE_DASH_YELLOW": LINE_DOUBLE_BROKEN_YELLOW,
    "SOLID_YELLOW": LINE_SOLID_YELLOW,
    "DOUBLE_SOLID_YELLOW": LINE_DOUBLE_YELLOW,
    "SOLID_DASH_YELLOW": LINE_PASSING_YELLOW,
    "DASH_SOLID_YELLOW": LINE_PASSING_YELLOW,
    "SOLID_BLUE": LINE_UNKNOWN,
    "UNKNOWN": LINE_UNKNOWN,
}
_NO_MARK = "NONE"
_LANE_KEYS = (
    *("id", "lane_type", "is_intersection", "centerline", "predecessors", "successors"),
    *("left_lane_boundary", "right_lane_boundary", "left_lane_mark_type", "right_lane_mark_type"),
    *("left_neighbor_id", "right_neighbor_id"),
)

_PIECE_M = 0.5  # edges are asked this often whether the road goes on beyond them
_BEYOND_M = 0.3
_ON_THE_CUT_M = 0.02


def add_map(root: Mapping[str, Any], builder: SceneBuilder) -> F64:
    """Hand a map to the builder; places (n, 3) f64 [m] of its lanes. Raises FormatError, with the member, where it
    breaks its format, and without lanes."""
    loss = builder.loss
    json_file.count_keys(loss, "map", root, ("lane_segments", "drivable_areas", "pedestrian_crossings"))
    lanes = json_file.required(root, "lane_segments", dict, "map")
    if not lanes:
        raise FormatError("map.lane_segments is empty, expected lanes.")
    centres: dict[int, F64] = {}
    drawn: set[bytes] = set()
    segments = {key: json_file.expect(value, dict, f"lane_segments.{key}") for key, value in lanes.items()}
    junctions = _junctions(segments)
    for key, lane in segments.items():
        where = f"lane_segments.{key}"
        json_file.count_keys(loss, where, lane, _LANE_KEYS)
        identity = json_file.required(lane, "id", int, where)
        left, right = (_line(lane, f"{side}_lane_boundary", where, loss) for side in ("left", "right"))
        centre = _centre(lane, left, right, where, loss)
        word = json_file.required(lane, "lane_type", str, where)
        if word not in _KINDS:
            loss.count("unknown_lane_type", f"{where}: {word[:60]!r}")
        builder.lane(
            identity,
            centre,
            kind=_KINDS.get(word, LANE_STREET),
            source_id=identity,
            junction=junctions.get(identity),
            left=left,
            right=right,
        )
        centres[identity] = centre
        for other in _ids(lane, "successors", where):
            builder.connect(identity, other)
        for other in _ids(lane, "predecessors", where):
            builder.connect(other, identity)
        for side, border in (("left", left), ("right", right)):
            _add_mark(json_file.required(lane, f"{side}_lane_mark_type", str, where), border, drawn, builder, where)
    _add_neighbours(segments, centres, builder)
    _add_edges(root, builder)
    _add_crossings(root, builder)
    return np.concatenate(list(centres.values()))


def _add_crossings(root: Mapping[str, Any], builder: SceneBuilder) -> None:
    for key, value in json_file.expect(root.get("pedestrian_crossings", {}), dict, "map").items():
        where = f"pedestrian_crossings.{key}"
        crossing = json_file.expect(value, dict, where)
        json_file.count_keys(builder.loss, where, crossing, ("id", "edge1", "edge2"))
        one, other = (_line(crossing, edge, where, builder.loss) for edge in ("edge1", "edge2"))
        if (one[-1] - one[0])[:2] @ (other[-1] - other[0])[:2] < 0.0:
            other = other[::-1]
        identity = json_file.required(crossing, "id", int, where)
        builder.area(np.concatenate([one, other[::-1]]), AREA_CROSSWALK, identity)


def _line(holder: Mapping[str, Any], key: str, where: str, loss: LossReport) -> F64:
    if key not in holder:
        raise FormatError(f"{where}: {key!r} is missing, expected places.")
    points, _ = json_file.points(holder[key], f"{where}.{key}", loss)
    if len(points) < 2:
        raise FormatError(f"{where}.{key}: {len(points)} places, expected at least 2.")
    return points


def _centre(lane: Mapping[str, Any], left: F64, right: F64, where: str, loss: LossReport) -> F64:
    """The centre line at the height of the borders; their mean where the file has none, as in maps of sensor logs."""
    middle = derive.centre_line(left, right)
    if "centerline" not in lane:
        return middle
    centre = _line(lane, "centerline", where, loss)
    if np.isfinite(centre).all() and np.isfinite(middle).all():
        centre[:, 2] = at_share(middle, shares_of_length(centre))[:, 2]
    return centre


def _ids(lane: Mapping[str, Any], key: str, where: str) -> list[int]:
    items = json_file.required(lane, key, list, where)
    return [json_file.expect(item, int, f"{where}.{key}") for item in items]


def _add_mark(word: str, border: F64, drawn: set[bytes], builder: SceneBuilder, where: str) -> None:
    """Paint on a border; lanes that share one name it both."""
    if word == _NO_MARK:
        return
    if word not in _MARKS:
        builder.loss.count("unknown_mark", f"{where}: {word[:60]!r}")
    shape = min(border.tobytes(), border[::-1].tobytes())
    if shape not in drawn:
        drawn.add(shape)
        builder.line(border, _MARKS.get(word, LINE_UNKNOWN))


def _add_neighbours(segments: Mapping[str, Any], centres: Mapping[int, F64], builder: SceneBuilder) -> None:
    for key, lane in segments.items():
        for side in ("left", "right"):
            other = lane.get(f"{side}_neighbor_id")
            if other is None:
                continue
            other = json_file.expect(other, int, f"lane_segments.{key}.{side}_neighbor_id")
            if other in centres and not derive.same_direction(centres[lane["id"]], centres[other]):
                builder.loss.count("ignored_oncoming_neighbour", f"lane {lane['id']} and lane {other}")
            else:
                builder.neighbours(*((other, lane["id"]) if side == "left" else (lane["id"], other)))


def _junctions(segments: Mapping[str, Any]) -> dict[int, int]:
    """Lane id to the least id of its intersection: lanes of intersections that share an end belong together."""
    leader: dict[int, int] = {}

    def find(one: int) -> int:
        while leader[one] != one:
            leader[one] = leader[leader[one]]
            one = leader[one]
        return one

    meeting: dict[tuple[str, int], int] = {}
    inside = {}
    for key, lane in segments.items():
        where = f"lane_segments.{key}"
        if json_file.required(lane, "is_intersection", bool, where):
            inside[json_file.required(lane, "id", int, where)] = lane, where
    for one in inside:
        leader[one] = one
    for one, (lane, where) in inside.items():
        for key in ("predecessors", "successors"):
            for other in _ids(lane, key, where):
                first = meeting.setdefault((key, other), one)
                for same in (first, other) if other in leader else (first,):
                    low, high = sorted((find(one), find(same)))
                    leader[high] = low
    return {one: find(one) for one in leader}


# Edges


def _add_edges(root: Mapping[str, Any], builder: SceneBuilder) -> None:
    """Boundaries of drivable areas, without the sides at which the crop cut them and without seams between areas."""
    areas = []
    for key, value in json_file.expect(root.get("drivable_areas", {}), dict, "map.drivable_areas").items():
        where = f"drivable_areas.{key}"
        area = json_file.expect(value, dict, where)
        json_file.count_keys(builder.loss, where, area, ("id", "area_boundary"))
        ring = _line(area, "area_boundary", where, builder.loss)
        if not np.all(np.abs(ring) <= builder.limits.coordinate_m):
            raise FormatError(f"{where}: a place that is not finite or beyond {builder.limits.coordinate_m:g} m.")
        ring = polyline.drop_short_segments(ring)[0]
        if len(ring) > 2:
            ring = ring if _turns_left(ring) else ring[::-1]
            areas.append((json_file.expect(area.get("id", -1), int, where), np.concatenate([ring, ring[:1]])))
    if not areas:
        builder.loss.count("dropped_edges", "the map has no drivable areas")
        return
    low, high = (at([at(ring[:, :2], axis=0) for _, ring in areas], axis=0) for at in (np.min, np.max))
    for number, (identity, ring) in enumerate(areas):
        others = [ring for index, (_, ring) in enumerate(areas) if index != number]
        for points in _kept(polyline.drop_short_segments(ring)[0], low, high, others, builder.loss):
            builder.edge(points, EDGE_BOUNDARY, identity)


def _turns_left(ring: F64) -> bool:
    x, y = (ring[:, :2] - ring[0, :2]).T
    return float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) > 0.0


def _kept(ring: F64, low: F64, high: F64, others: Sequence[F64], loss: LossReport) -> list[F64]:
    """The parts of a closed ring (n, 3) f64 [m], road on its left, that are kerbs."""
    length = np.hypot(*np.diff(ring[:, :2], axis=0).T)
    pieces = np.maximum(np.ceil(length / _PIECE_M), 1).astype(np.int64)
    segment = np.repeat(np.arange(len(length)), pieces)
    within = np.arange(len(segment)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    step = np.diff(ring, axis=0)[segment]
    start = ring[segment] + step * (within / pieces[segment])[:, None]
    end = ring[segment] + step * ((within + 1) / pieces[segment])[:, None]
    outward = np.stack([step[:, 1], -step[:, 0]], axis=1) / length[segment][:, None]
    beyond = 0.5 * (start + end)[:, :2] + _BEYOND_M * outward
    cut = np.zeros(len(start), np.bool_)
    for axis in (0, 1):
        for side in (low[axis], high[axis]):
            cut |= (np.abs(start[:, axis] - side) < _ON_THE_CUT_M) & (np.abs(end[:, axis] - side) < _ON_THE_CUT_M)
    seam = np.zeros(len(start), np.bool_)
    for other in others:
        seam |= _inside(beyond, other)
    loss.count("dropped_cut_edge", f"{int(cut.sum()) * _PIECE_M:g} m at the border of the crop", int(cut.sum()))
    loss.count("dropped_seam_edge", "between two drivable areas", int((seam & ~cut).sum()))
    good = ~(cut | seam)
    kept, at = [], 0
    while at < len(good):
        if not good[at]:
            at += 1
            continue
        first = at
        while at < len(good) and good[at]:
            at += 1
        corners = np.concatenate([[True], segment[first + 1 : at] != segment[first : at - 1]])
        kept.append(np.concatenate([start[first:at][corners], end[at - 1 : at]]))
    if len(kept) > 1 and good[0] and good[-1]:  # the ring was opened within a kerb
        kept[0] = np.concatenate([kept.pop()[:-1], kept[0]])
    return kept


def _inside(xy: F64, ring: F64) -> BoolArray:
    """(n,) bool: which points (n, 2) f64 [m] lie in a closed ring (m, 3) f64 [m], by the even-odd rule."""
    found = np.zeros(len(xy), np.bool_)
    near = np.all((xy >= ring[:, :2].min(axis=0)) & (xy <= ring[:, :2].max(axis=0)), axis=1)
    x, y = xy[near].T
    odd = np.zeros(len(x), np.bool_)
    for (x0, y0), (x1, y1) in zip(ring[:-1, :2], ring[1:, :2], strict=True):
        if y0 != y1:
            odd ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) / (y1 - y0) * (x1 - x0))
    found[near] = odd
    return found

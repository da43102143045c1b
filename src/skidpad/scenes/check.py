"""check_scene: twenty questions that every scene must answer well before anything is simulated on it (S11).

The structural checks come first: only when the arrays fit together may the others index through them. A finding names
the check, the element and the value. Readers and builders are tested by this file; so are scenes that users bring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes import csr
from skidpad.scenes.lanes import route_gaps
from skidpad.scenes.rows import FASTEST_M_S, LARGEST_SIZE_M
from skidpad.scenes.scene import (
    AREA_DRIVEWAY,
    AREA_UNKNOWN,
    EDGE_MEDIAN,
    EDGE_UNKNOWN,
    LANE_OTHER,
    LINE_PASSING_YELLOW,
    LINE_UNKNOWN,
    SCENE_ARRAYS,
    SIGNAL_YIELD,
    STATE_OFF,
    SUBTYPE_STATIC,
    TYPE_CYCLIST,
    Scene,
)

Severity = Literal["error", "warning", "note"]

EXTENT_M = 16_384.0
# A float32 vertex at the largest extent is 1 mm off, so a length between two of them is up to 1.4 mm off.
ARC_TOLERANCE_M = 2e-3
DIRECTION_TOLERANCE = 1e-5
WIDEST_LANE_M = 60.0
LIKELY_LIMIT_M_S = 45.0
# Rounding of positions to float32 may add this much to a distance driven.
_ROUNDING_M = 4e-3
_SHOWN = 5


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a scene.

    severity  "error": the scene cannot be simulated; "warning": it can, and somebody should look; "note": nothing is
              wrong, and it is good to know (`notes.py`)
    check     name of the check, one of CHECKS, or what a note is about
    element   what is wrong, e.g. "lane 3"
    message   the element, its value, and what was expected
    """

    severity: Severity
    check: str
    element: str
    message: str


Mask = NDArray[np.bool_]
Findings = Iterator[tuple[Severity, str, str]]


def check_scene(scene: Scene) -> list[Finding]:
    """Everything that is wrong with a scene, in the order of CHECKS; empty for a good one.

    Where the arrays do not fit together only that is reported. Of one fault the first five elements are listed, the
    last with the count of the rest.
    """
    return structural_findings(scene) or _run(VALUE_CHECKS, scene)


def structural_findings(scene: Scene) -> list[Finding]:
    """What makes a scene's arrays unsafe to index through: shapes, offsets, numbers out of range. Cheap."""
    # Each check relies on those before it.
    for name, check in STRUCTURE_CHECKS.items():
        if found := _run({name: check}, scene):
            return found
    return []


def _run(checks: dict[str, Callable[[Scene], Findings]], scene: Scene) -> list[Finding]:
    return [Finding(severity, name, *rest) for name, check in checks.items() for severity, *rest in check(scene)]


def _each(
    bad: Mask | NDArray[np.intp], what: str, values: NDArray[Any] | None, expected: str, severity: Severity = "error"
) -> Findings:
    """Findings for the elements of a mask (n,), with their values (n, ...) if given."""
    found = np.flatnonzero(bad) if bad.dtype == np.bool_ else bad
    for position, index in enumerate(found[:_SHOWN].tolist()):
        value = "" if values is None else f" is {_plain(values[index])}"
        rest = f" (and {len(found) - _SHOWN} more)" if position == _SHOWN - 1 and len(found) > _SHOWN else ""
        yield severity, f"{what} {index}", f"{what} {index}{value}, expected {expected}{rest}"


def _any_in_row(mask: NDArray[np.bool_]) -> Mask:
    """(n, ...) to (n,): is any entry of the row set?"""
    found: Mask = np.asarray(mask.any(axis=tuple(range(1, mask.ndim))))
    return found


def _plain(value: Any) -> str:
    return str(value.tolist() if hasattr(value, "tolist") else value)


# Structure


def _shapes(scene: Scene) -> Findings:
    """Every array has the dtype and the shape of its row in SCENE_ARRAYS."""
    sizes = {"T": scene.meta.steps}
    arrays = scene.arrays()
    for letter, path in _AXIS_OWNERS.items():
        if arrays[path].ndim == 0:
            yield "error", path, f"{path} has no axis, expected {letter} entries"
            return
        sizes[letter] = arrays[path].shape[0]
    for spec in SCENE_ARRAYS:
        array = arrays[spec.path]
        expected = [_size(axis, sizes) for axis in spec.shape.split(",")]
        fits = array.ndim == len(expected) and all(
            size is None or size == found for size, found in zip(expected, array.shape, strict=True)
        )
        if array.dtype != np.dtype(spec.dtype) or not fits:
            found = f"{array.dtype} {array.shape}"
            yield "error", spec.path, f"{spec.path} is {found}, expected {np.dtype(spec.dtype)} ({spec.shape})"


_AXIS_OWNERS = {
    "E": "road.element_type",
    "P": "road.xyz",
    "L": "road.lane_element",
    "N": "tracks.type",
    "S": "signals.kind",
}


def _size(axis: str, sizes: dict[str, int]) -> int | None:
    if axis == "*":
        return None
    if axis.endswith("+1"):
        return sizes[axis[:-2]] + 1
    return sizes[axis] if axis in sizes else int(axis)


# offsets -> what they cut up
_OFFSETS = {
    "road.element_points": ("road.xyz", "road.arc", "road.direction", "road.width"),
    "road.entry_offset": ("road.entry_lane",),
    "road.exit_offset": ("road.exit_lane",),
    "road.left_offset": ("road.left_lane", "road.left_range"),
    "road.right_offset": ("road.right_lane", "road.right_range"),
    "tracks.route_offset": ("tracks.route_lane",),
    "signals.lane_offset": ("signals.lane",),
    "signals.program_offset": ("signals.program_duration", "signals.program_state"),
}


def _offsets(scene: Scene) -> Findings:
    """Offsets start at 0, never fall, and end at the number of items."""
    arrays = scene.arrays()
    for path, owned in _OFFSETS.items():
        offset = arrays[path]
        if len(offset) == 0 or offset[0] != 0 or (np.diff(offset.astype(np.int64)) < 0).any():
            yield "error", path, f"{path} is {_plain(offset[:4])}..., expected offsets that start at 0 and never fall"
            continue
        for item in owned:
            if len(arrays[item]) != offset[-1]:
                yield "error", item, f"{item} has {len(arrays[item])} entries, {path} ends at {offset[-1]}"


def _indices(scene: Scene) -> Findings:
    """Every number that points at an element, lane or point is in range."""
    arrays = scene.arrays()
    lanes, points = scene.road.lane_count, len(scene.road.xyz)
    bounds = {
        "road.lane_element": scene.road.element_count,
        "road.entry_lane": lanes,
        "road.exit_lane": lanes,
        "road.left_lane": lanes,
        "road.right_lane": lanes,
        "tracks.route_lane": lanes,
        "signals.lane": lanes,
        "road.left_range": points,
        "road.right_range": points,
    }
    for path, bound in bounds.items():
        array = arrays[path]
        yield from _each(_any_in_row((array < 0) | (array >= bound)), path, array, f"0 to {bound - 1}")


def _elements(scene: Scene) -> Findings:
    """Element types are known, and every element has the points its type needs."""
    kind = scene.road.element_type
    known = np.zeros(256, np.bool_)
    for first, last in ((0, LANE_OTHER), (LINE_UNKNOWN, LINE_PASSING_YELLOW), (EDGE_UNKNOWN, EDGE_MEDIAN)):
        known[first : last + 1] = True
    known[AREA_UNKNOWN : AREA_DRIVEWAY + 1] = True
    yield from _each(~known[kind], "element", kind, "a known type")
    count = np.diff(scene.road.element_points)
    least = np.where(kind >= AREA_UNKNOWN, 3, 2)
    yield from _each(count < least, "element", count, "2 points, of areas 3")


def _lane_elements(scene: Scene) -> Findings:
    """Lanes and elements of lane type belong to each other one to one."""
    road = scene.road
    yield from _each(road.element_type[road.lane_element] >= LINE_UNKNOWN, "lane", road.lane_element, "a lane element")
    owners = np.bincount(road.lane_element, minlength=road.element_count)
    is_lane = road.element_type < LINE_UNKNOWN
    yield from _each(is_lane & (owners != 1), "element", owners, "exactly one lane number")


def _clock(scene: Scene) -> Findings:
    """Time runs forwards, and the current step is a row."""
    meta = scene.meta
    if meta.dt_us <= 0:
        yield "error", "dt_us", f"dt_us is {meta.dt_us}, expected a positive number of microseconds"
    if meta.steps < 1:
        yield "error", "steps", f"steps is {meta.steps}, expected at least 1"
    elif not 0 <= meta.current_step < meta.steps:
        yield "error", "current_step", f"current_step is {meta.current_step}, expected 0 to {meta.steps - 1}"


def _chosen(scene: Scene) -> Findings:
    """The SDC, the tracks to predict and the objects of interest are tracks."""
    count = scene.tracks.count
    if not -1 <= scene.meta.sdc < count:
        yield "error", "sdc", f"sdc is {scene.meta.sdc}, expected -1 to {count - 1}"
    for name in ("tracks_to_predict", "objects_of_interest"):
        chosen = np.array(getattr(scene.meta, name), np.int64)
        yield from _each((chosen < 0) | (chosen >= count), name, chosen, f"0 to {count - 1}")


# Values


def _finite(scene: Scene) -> Findings:
    """No NaN and no infinity, but for unknown speed limits."""
    for path, array in scene.arrays().items():
        if array.dtype.kind == "f" and path != "road.speed_limit":
            yield from _each(_any_in_row(~np.isfinite(array)), path, array, "finite numbers")


def _extent(scene: Scene) -> Findings:
    """Everything lies within reach of float32, and heights are 0 where they mean nothing."""
    xyz, tracks = scene.road.xyz, scene.tracks
    expected = f"{EXTENT_M:g} m from the origin at most"
    yield from _each(_any_in_row(np.abs(xyz[:, :2]) > EXTENT_M), "point", xyz, expected)
    far = (np.abs(tracks.x) > EXTENT_M) | (np.abs(tracks.y) > EXTENT_M)
    yield from _each(_any_in_row(far), "track", None, expected)
    if not scene.meta.has_z:
        yield from _each(xyz[:, 2] != 0.0, "point", xyz, "height 0 in a scene without heights")
        yield from _each(_any_in_row(tracks.z != 0.0), "track", None, "height 0 in a scene without heights")


def _segments(scene: Scene) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """First point of every segment, and its step (n, 2) f64 [m]."""
    inside = np.ones(len(scene.road.xyz), np.bool_)
    inside[scene.road.element_points[1:] - 1] = False
    first = np.flatnonzero(inside)
    xy = scene.road.xyz[:, :2].astype(np.float64)
    return first, xy[first + 1] - xy[first]


def _zero_length(scene: Scene) -> Findings:
    """No two points that follow each other are the same."""
    first, step = _segments(scene)
    yield from _each(first[(step == 0.0).all(axis=1)], "point", scene.road.xyz, "to differ from the next one")


def _measures(scene: Scene) -> Findings:
    """`arc` and `direction` are those of the vertices."""
    road = scene.road
    first, step = _segments(scene)
    length = np.hypot(step[:, 0], step[:, 1])
    total = np.zeros(len(road.xyz))
    total[first + 1] = length
    along = np.cumsum(total)
    start = road.element_points[:-1]
    along -= np.repeat(along[start] if len(start) else along[:0], np.diff(road.element_points))
    # 1e-6 of the length: float32 itself. A NaN compares as wrong.
    bad = ~(np.abs(along - road.arc) <= ARC_TOLERANCE_M + 1e-6 * np.abs(along))
    yield from _each(bad, "arc of point", road.arc, "the length from its element's first point")
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = step / length[:, None]
        wrong = ~(np.abs(unit - road.direction[first]).max(axis=1, initial=0.0) <= DIRECTION_TOLERANCE)
    wrong &= length > 0.0
    yield from _each(first[wrong], "direction of point", road.direction, "that of the segment starting there")
    last = road.element_points[1:] - 1
    repeats = (road.direction[last] == road.direction[last - 1]).all(axis=1)
    yield from _each(last[~repeats], "direction of point", road.direction, "to repeat that of the point before")


def _lane_values(scene: Scene) -> Findings:
    """Widths and speed limits are possible, and only lanes are wide."""
    road = scene.road
    kind = np.repeat(road.element_type, np.diff(road.element_points))
    with np.errstate(invalid="ignore"):
        bad = np.where(kind < LINE_UNKNOWN, (road.width < 0.0) | (road.width > WIDEST_LANE_M), road.width != 0.0)
        yield from _each(bad, "width of point", road.width, f"0 to {WIDEST_LANE_M:g} m on lanes, 0 elsewhere")
        yield from _each(road.speed_limit <= 0.0, "speed limit of lane", road.speed_limit, "more than 0 m/s or NaN")
        fast = road.speed_limit > LIKELY_LIMIT_M_S
    expected = f"at most {LIKELY_LIMIT_M_S:g} m/s; is the unit m/s?"
    yield from _each(fast, "speed limit of lane", road.speed_limit, expected, "warning")


def _graph(scene: Scene) -> Findings:
    """Entries are the transpose of exits, each link stands once, in ascending order."""
    road = scene.road
    for name, offset, items in (
        ("exits", road.exit_offset, road.exit_lane),
        ("entries", road.entry_offset, road.entry_lane),
    ):
        rows = csr.row_of_item(offset)
        falls = (np.diff(rows) == 0) & (np.diff(items) <= 0)
        yield from _each(falls, f"{name}: item", items, "each lane once, in ascending order")
    offset, items = csr.transpose(road.exit_offset, road.exit_lane)
    missing = set(_pairs(offset, items)) ^ set(_pairs(road.entry_offset, road.entry_lane))
    for lane, other in sorted(missing)[:_SHOWN]:
        yield "error", f"lane {lane}", f"lane {other} to lane {lane} is a link of one side only ({len(missing)} such)"


def _pairs(offset: NDArray[np.int32], items: NDArray[np.int32]) -> list[tuple[int, int]]:
    return list(zip(csr.row_of_item(offset).tolist(), items.tolist(), strict=True))


def _neighbours(scene: Scene) -> Findings:
    """Left of one is right of the other, with the same ranges, which lie on the two lanes."""
    road = scene.road
    tables = {}
    for side, offset, lane, ranges in (
        ("left", road.left_offset, road.left_lane, road.left_range),
        ("right", road.right_offset, road.right_lane, road.right_range),
    ):
        own = csr.row_of_item(offset)
        yield from _each(own == lane, f"{side} neighbour", lane, "another lane")
        start, end = road.element_points[road.lane_element], road.element_points[road.lane_element + 1]
        inside = (ranges[:, 0] >= start[own]) & (ranges[:, 1] < end[own]) & (ranges[:, 0] <= ranges[:, 1])
        inside &= (ranges[:, 2] >= start[lane]) & (ranges[:, 3] < end[lane]) & (ranges[:, 2] <= ranges[:, 3])
        yield from _each(~inside, f"{side} neighbour range", ranges, "points of both lanes, in order")
        order = [0, 1, 2, 3] if side == "left" else [2, 3, 0, 1]
        ends = (own, lane) if side == "left" else (lane, own)
        tables[side] = set(zip(*(end.tolist() for end in ends), map(tuple, ranges[:, order].tolist()), strict=True))
    odd = tables["left"] ^ tables["right"]
    for one, other, _ in sorted(odd)[:_SHOWN]:
        yield (
            "error",
            f"lane {one}",
            f"lane {one} has lane {other} on its left, which does not agree ({len(odd)} such)",
        )


def _track_ids(scene: Scene) -> Findings:
    """No two tracks have one id."""
    ids = scene.tracks.source_id
    named = np.flatnonzero(ids != -1)
    _, first = np.unique(ids[named], return_index=True)
    repeated = np.ones(len(named), np.bool_)
    repeated[first] = False
    yield from _each(named[repeated], "id of track", ids, "an id of its own")


def _track_rows(scene: Scene) -> Findings:
    """Codes, sizes and headings are possible; invalid rows are zero; first and last are right; somebody was there."""
    tracks = scene.tracks
    yield from _each(tracks.type > TYPE_CYCLIST, "type of track", tracks.type, f"0 to {TYPE_CYCLIST}")
    yield from _each(tracks.subtype > SUBTYPE_STATIC, "subtype of track", tracks.subtype, f"0 to {SUBTYPE_STATIC}")
    valid = tracks.valid
    yield from _each(~_any_in_row(valid), "track", None, "at least one valid row")
    rows = [tracks.x, tracks.y, tracks.z, tracks.heading, tracks.vx, tracks.vy]
    rows += [tracks.length, tracks.width, tracks.height]
    ghosts = np.logical_or.reduce([row != 0.0 for row in rows]) & ~valid
    yield from _each(_any_in_row(ghosts), "track", None, "zeros in its invalid rows")
    with np.errstate(invalid="ignore"):
        sizes = np.stack([tracks.length, tracks.width])
        impossible = ((sizes <= 0.0) | (sizes > LARGEST_SIZE_M)).any(axis=0) | (tracks.height < 0.0)
        turned = (tracks.heading > np.float32(np.pi)) | (tracks.heading <= -np.float32(np.pi))
    yield from _each(_any_in_row(impossible & valid), "track", None, f"sizes above 0 and up to {LARGEST_SIZE_M:g} m")
    yield from _each(_any_in_row(turned & valid), "track", None, "headings in (-pi, pi]")
    some = _any_in_row(valid)
    first = np.where(some, valid.argmax(axis=1), -1)
    last = np.where(some, scene.meta.steps - 1 - valid[:, ::-1].argmax(axis=1), -1)
    yield from _each(tracks.first != first, "first row of track", tracks.first, "its first valid row, -1 if none")
    yield from _each(tracks.last != last, "last row of track", tracks.last, "its last valid row, -1 if none")


def _track_speed(scene: Scene) -> Findings:
    """Nobody is farther from where they were last seen than FASTEST_M_S allows."""
    tracks = scene.tracks
    for track in range(tracks.count):
        seen = np.flatnonzero(tracks.valid[track])
        x, y = tracks.x[track, seen].astype(float), tracks.y[track, seen].astype(float)
        gap = np.hypot(np.diff(x), np.diff(y))
        jumps = gap > FASTEST_M_S * scene.meta.dt * np.diff(seen) + _ROUNDING_M
        if jumps.any():
            row = int(seen[np.flatnonzero(jumps)[0] + 1])
            yield (
                "error",
                f"track {track}",
                f"track {track} jumps {gap[jumps][0]:.1f} m to reach row {row}",
            )


def _signals(scene: Scene) -> Findings:
    """Kinds, states and programmes are possible, and every signal controls a lane."""
    signals = scene.signals
    kind = signals.kind
    yield from _each((kind < 1) | (kind > SIGNAL_YIELD), "kind of signal", kind, f"1 to {SIGNAL_YIELD}")
    yield from _each(np.diff(signals.lane_offset) == 0, "signal", None, "at least one controlled lane")
    worst = signals.state.max(axis=1, initial=0)
    yield from _each(worst > STATE_OFF, "state of signal", worst, f"0 to {STATE_OFF}")
    bad = (signals.program_state > STATE_OFF) | ~(signals.program_duration > 0.0)
    yield from _each(bad, "programme phase", signals.program_duration, f"a positive time and a state 0 to {STATE_OFF}")


def _signal_lines(scene: Scene) -> Findings:
    """Stop lines have a length and run from the driver's left to the right."""
    signals = scene.signals
    across = signals.line[:, 0, :2].astype(float) - signals.line[:, 1, :2]
    left = np.stack([-np.sin(signals.heading), np.cos(signals.heading)], axis=1)
    leftward = np.einsum("sd,sd->s", across, left)
    yield from _each(~(leftward > 0.0), "stop line", signals.line, "to run from the driver's left to the right")


def _routes(scene: Scene) -> Findings:
    """Routes hold together, and no log has seen more of one than there is."""
    tracks = scene.tracks
    length = np.diff(tracks.route_offset)
    bad = (tracks.route_gt_lanes < 0) | (tracks.route_gt_lanes > length)
    yield from _each(bad, "route_gt_lanes of track", tracks.route_gt_lanes, "0 to the length of its route")
    for track in np.flatnonzero(length).tolist():
        route = tracks.route(track)
        if gaps := route_gaps(scene.road, route):
            one, other = route[gaps[0] : gaps[0] + 2].tolist()
            yield (
                "warning",
                f"track {track}",
                f"route of track {track}: lane {one} does not lead to lane {other}",
            )


STRUCTURE_CHECKS: dict[str, Callable[[Scene], Findings]] = {
    "shapes": _shapes,
    "offsets": _offsets,
    "indices": _indices,
    "elements": _elements,
    "lane_elements": _lane_elements,
    "clock": _clock,
    "chosen": _chosen,
}
VALUE_CHECKS: dict[str, Callable[[Scene], Findings]] = {
    "finite": _finite,
    "extent": _extent,
    "zero_length": _zero_length,
    "measures": _measures,
    "lane_values": _lane_values,
    "graph": _graph,
    "neighbours": _neighbours,
    "track_ids": _track_ids,
    "track_rows": _track_rows,
    "track_speed": _track_speed,
    "signals": _signals,
    "signal_lines": _signal_lines,
    "routes": _routes,
}
CHECKS = STRUCTURE_CHECKS | VALUE_CHECKS

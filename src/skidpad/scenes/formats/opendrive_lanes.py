"""From OpenDRIVE records to lanes in the plane: strips, their neighbours, their painted lines, and who follows whom.

A strip is one lane of one section, sampled along the road. A joint says that one end of a strip meets an end of
another; which of the two leads into the other follows from how they are driven, so links, contact points, connections
and left-hand traffic all reduce to joints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.build import LossReport, SceneBuilder
from skidpad.scenes.formats.opendrive_geometry import F64, Course, samples, step_counts
from skidpad.scenes.formats.opendrive_network import Connection, Lane, Link, Mark, Network, Road, Section
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import (
    LANE_BICYCLE,
    LANE_BUILT_BY_READER,
    LANE_BUS,
    LANE_FREEWAY,
    LANE_OTHER,
    LANE_SHOULDER,
    LANE_STREET,
    LANE_WALKWAY,
    LINE_BROKEN_WHITE,
    LINE_BROKEN_YELLOW,
    LINE_DOUBLE_BROKEN_YELLOW,
    LINE_DOUBLE_WHITE,
    LINE_DOUBLE_YELLOW,
    LINE_SOLID_WHITE,
    LINE_SOLID_YELLOW,
    LINE_UNKNOWN,
)

BIDIRECTIONAL = "bidirectional"
_STREET = "driving entry exit onRamp offRamp connectingRamp stop slipLane mwyEntry mwyExit bidirectional"
_OTHER = "rail tram restricted special1 special2 special3 roadWorks HOV taxi shared"
LANE_KINDS: dict[str, int] = {
    **dict.fromkeys(_STREET.split(), LANE_STREET),
    **dict.fromkeys(_OTHER.split(), LANE_OTHER),
    "bus": LANE_BUS,
    "biking": LANE_BICYCLE,
    "shoulder": LANE_SHOULDER,
    "parking": LANE_SHOULDER,
    "sidewalk": LANE_WALKWAY,
    "walking": LANE_WALKWAY,
}
# Ground beside or between lanes on which nothing moves: no lane of a scene.
NOT_LANES = frozenset({"none", "border", "median", "curb"})

_WHITE = {
    "solid": LINE_SOLID_WHITE,
    "broken": LINE_BROKEN_WHITE,
    "botts dots": LINE_BROKEN_WHITE,
    "solid solid": LINE_DOUBLE_WHITE,
    "solid broken": LINE_SOLID_WHITE,
    "broken solid": LINE_SOLID_WHITE,
    "broken broken": LINE_BROKEN_WHITE,
}
_YELLOW = {
    "solid": LINE_SOLID_YELLOW,
    "broken": LINE_BROKEN_YELLOW,
    "botts dots": LINE_BROKEN_YELLOW,
    "solid solid": LINE_DOUBLE_YELLOW,
    "solid broken": LINE_SOLID_YELLOW,
    "broken solid": LINE_SOLID_YELLOW,
    "broken broken": LINE_DOUBLE_BROKEN_YELLOW,
}
MARK_KINDS = {"standard": _WHITE, "white": _WHITE, "yellow": _YELLOW}

_DRIVEN = frozenset({LANE_FREEWAY, LANE_STREET, LANE_BICYCLE, LANE_BUS})

ZERO_WIDTH_M = 0.01
SHORTEST_BREAK_M = 0.001  # records closer than this are one place
SHORTEST_LINE_M = 0.1
CLOSE_JOINT_M = 0.1  # ends farther apart than this are counted (R17)
LARGEST_JOINT_M = 5.0  # no lane is left there and entered here in one step of driving
_PROBES = 8  # per interval, for the widest place of a section

StripKey = tuple[str, int, int]  # road, section, lane
LaneKey = tuple[str, int, int, bool]  # and whether it is driven along s
End = tuple[StripKey, int]  # 0 where s is small, 1 where it is large


@dataclass(frozen=True, eq=False)
class Strip:
    """One lane of one section in the plane, sampled along the road (not along its traffic).

    kind    lane type of the scene model
    along   for each scene lane made of it: whether it is driven along s
    s       (n,)    f64 [m]
    inner   (n, 3)  f64 [m]  border on the side of lane 0
    outer   (n, 3)  f64 [m]  the other border
    centre  (n, 3)  f64 [m]
    width   (n,)    f64 [m]
    frame   headings of the reference line, for `unfolded`
    """

    key: StripKey
    lane: Lane
    kind: int
    along: tuple[bool, ...]
    s: F64
    inner: F64
    outer: F64
    centre: F64
    width: F64
    heading: F64

    def borders(self, along: bool) -> tuple[F64, F64]:
        """Left and right border (n, 3) f64 [m] in the direction in which the lane is driven."""
        inner_is_left = (self.key[2] < 0) == along
        left, right = (self.inner, self.outer) if inner_is_left else (self.outer, self.inner)
        return (left, right) if along else (left[::-1], right[::-1])

    def keys(self) -> list[LaneKey]:
        return [(*self.key, along) for along in self.along]

    def crossing(self, s: float, along: bool) -> tuple[F64, F64]:
        """Left and right end (3,) f64 [m] of a line across the lane at s [m]."""
        left, right = self.borders(along)
        grid = self.s if along else self.s[::-1]
        order = slice(None) if along else slice(None, None, -1)
        ends = [np.array([np.interp(s, grid[order], side[order, axis]) for axis in range(3)]) for side in (left, right)]
        return ends[0], ends[1]


class Strips(NamedTuple):
    """All strips by key; and the outer border of every lane of the file, lane 0 included, as (s, points): paint also
    lies beside what is no lane of the scene."""

    lanes: dict[StripKey, Strip]
    borders: dict[StripKey, tuple[F64, F64]]


# Strips


def cut_strips(network: Network, loss: LossReport, limits: Limits) -> Strips:
    """Every lane with a width, sampled so that its borders keep within 5 cm of the file's curves.

    Raises FormatError where the samples would be more than the limits allow.
    """
    found = Strips({}, {})
    points = 0.0
    for road in network.roads.values():
        for index, section in enumerate(road.sections):
            breaks = _breaks(road, section)
            counts = _counts(road, section, breaks)
            points += float(np.sum(counts)) * (3 * len(section.lanes) + 1)
            limits.check("map_points", points, f"road {road.id}")
            _cut_section(road, index, section, samples(breaks, counts), found, loss)
    return found


def _breaks(road: Road, section: Section) -> F64:
    """Where a record of any kind starts inside a section, and its two ends: (k,) f64 [m]."""
    widths = [cubics.starts for lane in section.lanes.values() for cubics in (lane.width, lane.border) if cubics]
    starts = np.concatenate([road.course.starts, road.elevation.starts, road.offset.starts, *widths])
    inner = np.unique(starts[(starts > section.start) & (starts < section.end)])
    # The end must stay, so what lies just before it goes.
    inner = inner[inner < section.end - SHORTEST_BREAK_M]
    inner = inner[np.diff(inner, prepend=section.start) > SHORTEST_BREAK_M]
    return np.concatenate([[section.start], inner, [section.end]])


def _counts(road: Road, section: Section, breaks: F64) -> F64:
    middle = 0.5 * (breaks[1:] + breaks[:-1])
    probes = np.concatenate([breaks, *(breaks[:-1] + np.diff(breaks) * k / _PROBES for k in range(1, _PROBES))])
    reach = max(float(np.max(np.abs(lateral))) for lateral in _laterals(road, section, np.sort(probes)).values())
    bends = [road.offset.bend(section.start, section.end), road.elevation.bend(section.start, section.end)]
    for side in (1, -1):
        lanes = [lane for id, lane in section.lanes.items() if id * side > 0]
        bends[0] += sum(lane.width.bend(section.start, section.end) for lane in lanes if lane.width)
        bends += [lane.border.bend(section.start, section.end) for lane in lanes if lane.border]
    piece = np.clip(np.searchsorted(road.course.starts, middle, side="right") - 1, 0, None)
    return step_counts(breaks, road.course.curvatures[piece], reach, sum(bends))


def _laterals(road: Road, section: Section, s: F64) -> dict[int, F64]:
    """Lateral distance t (n,) f64 [m] of the outer border of every lane, and of lane 0."""
    offset = road.offset.at(s, end=section.end)
    found = {0: offset}
    for side in (1, -1):
        outer = offset
        for id in sorted((id for id in section.lanes if id * side > 0), key=abs):
            lane = section.lanes[id]
            if lane.width is not None:
                outer = outer + side * np.maximum(lane.width.at(s, end=section.end), 0.0)
            elif lane.border is not None:
                # Exporters disagree whether borders of right lanes are negative; the side is known from the id.
                border = np.abs(lane.border.at(s, end=section.end))
                outer = side * np.maximum(side * outer, side * offset + border)
            found[id] = outer
    return found


def _cut_section(road: Road, index: int, section: Section, s: F64, found: Strips, loss: LossReport) -> None:
    course = road.course.at(s)
    height = road.elevation.at(s, end=section.end)
    normal = np.stack((-np.sin(course.heading), np.cos(course.heading)), axis=-1)
    laterals = _laterals(road, section, s)

    def placed(t: F64) -> F64:
        return np.concatenate((course.xy + normal * t[:, None], height[:, None]), axis=1)

    _count_steps(road, section, loss)
    found.borders[road.id, index, 0] = (s, placed(laterals[0]))
    motorway = _road_type(road, section) == "motorway"
    for id, lane in section.lanes.items():
        key = (road.id, index, id)
        inner, outer = laterals[_inward(section, id)], laterals[id]
        width = np.abs(outer - inner)
        found.borders[key] = (s, placed(outer))
        kind = _kind(lane, motorway, width, key, loss)
        if kind is None:
            continue
        centre = placed(0.5 * (inner + outer))
        if not _progress(centre, course.heading) > 0.0:
            loss.count("dropped_folded_lane", f"road {road.id}, section {index}, lane {id}: inside of a tighter curve")
            continue
        found.lanes[key] = Strip(
            key=key,
            lane=lane,
            kind=kind,
            along=_driven(road, lane),
            s=s,
            inner=placed(inner),
            outer=found.borders[key][1],
            centre=centre,
            width=width,
            heading=course.heading,
        )


def _progress(points: F64, heading: F64) -> float:
    """How far [m] a polyline gets in the direction of the road; negative where a curve folds it over as a whole."""
    step = np.diff(points[:, :2], axis=0)
    middle = 0.5 * (heading[1:] + heading[:-1])
    return float(np.sum(step[:, 0] * np.cos(middle) + step[:, 1] * np.sin(middle)))


def _count_steps(road: Road, section: Section, loss: LossReport) -> None:
    jumps = np.abs(road.offset.steps(section.start, section.end))
    for jump in jumps[jumps > CLOSE_JOINT_M]:
        loss.count("repaired_offset_step", f"road {road.id}: lanes step aside by {jump:.2f} m inside a section")


def _inward(section: Section, id: int) -> int:
    """The next lane towards lane 0; ids may be missing."""
    return (
        max((other for other in section.lanes if 0 < other < id), default=0) if id > 0 else _inward_right(section, id)
    )


def _inward_right(section: Section, id: int) -> int:
    return min((other for other in section.lanes if id < other < 0), default=0)


def _kind(lane: Lane, motorway: bool, width: F64, key: StripKey, loss: LossReport) -> int | None:
    """Type in the scene model; None, counted, for what is no lane of a scene."""
    where = f"road {key[0]}, section {key[1]}, lane {key[2]} (line {lane.line})"
    if lane.type in NOT_LANES:
        loss.count(f"ignored_lane_{lane.type}", where)
        return None
    if float(np.max(width)) < ZERO_WIDTH_M:
        loss.count("dropped_lane_without_width", where)
        return None
    kind = LANE_KINDS.get(lane.type)
    if kind is None:
        loss.count("unknown_lane_type", f"{where}: {lane.type[:60]}")
        return None
    return LANE_FREEWAY if motorway and kind == LANE_STREET else kind


def _driven(road: Road, lane: Lane) -> tuple[bool, ...]:
    along = (lane.id < 0) != road.left_hand
    if lane.both or lane.type == BIDIRECTIONAL:
        return (along, not along)
    return (along != lane.against,)


def _road_type(road: Road, section: Section) -> str:
    middle = 0.5 * (section.start + section.end)
    return next((type for s, type, _ in reversed(road.types) if s <= middle), "")


# Lanes of the scene


def add_lanes(network: Network, strips: Strips, builder: SceneBuilder, loss: LossReport) -> None:
    """Hand every strip to the builder, in its direction or in both, with its limit, neighbours and painted lines."""
    for key, strip in strips.lanes.items():
        road = network.roads[key[0]]
        section = road.sections[key[1]]
        limit = _speed_limit(road, section, strip.lane, loss)
        for along in strip.along:
            order = slice(None) if along else slice(None, None, -1)
            heading = strip.heading if along else strip.heading[::-1] + math.pi
            left, right = strip.borders(along)
            kept = unfolded(strip.centre[order], heading)
            folded = not kept.all()
            left, right = (side[unfolded(side, heading)] for side in (left, right))
            if folded or len(left) < len(strip.s) or len(right) < len(strip.s):
                loss.count("repaired_folded_lane", f"road {key[0]}, section {key[1]}, lane {key[2]}")
            first = along == strip.along[0]
            builder.lane(
                (*key, along),
                strip.centre[order][kept],
                width=strip.width[order][kept],
                kind=strip.kind,
                source_id=_source_id(key) if first else -1,
                speed_limit=limit,
                junction=road.junction,
                left=left,
                right=right,
                flags=0 if first else LANE_BUILT_BY_READER,
            )
    for road in network.roads.values():
        for index, section in enumerate(road.sections):
            for left_key, right_key in _neighbours(road.id, index, section, strips.lanes):
                builder.neighbours(left_key, right_key)
            _add_lines(road.id, index, section, strips, builder, loss)


def unfolded(points: F64, heading: F64) -> NDArray[np.bool_]:
    """Which points (n,) bool of a border or centre line go on in the direction of the road.

    points   (n, 3)  f64 [m]
    heading  (n,)    f64 [rad]  of travel along the reference line

    Inside of a curve that is tighter than the lane is far out, a border runs backwards for a while. The first and the
    last point always stay.
    """
    step = np.diff(points[:, :2], axis=0)
    middle = 0.5 * (heading[1:] + heading[:-1])
    if not np.any(step[:, 0] * np.cos(middle) + step[:, 1] * np.sin(middle) < 0.0):
        return np.ones(len(points), dtype=np.bool_)
    kept = [0]
    for i in range(1, len(points)):
        while True:
            ahead = points[i, :2] - points[kept[-1], :2]
            forward = ahead[0] * math.cos(heading[i]) + ahead[1] * math.sin(heading[i])
            if forward > 0.0:
                kept.append(i)
            elif i == len(points) - 1 and len(kept) > 1:
                kept.pop()
                continue
            elif i == len(points) - 1:
                kept.append(i)
            break
    mask = np.zeros(len(points), dtype=np.bool_)
    mask[kept] = True
    return mask


def _source_id(key: StripKey) -> int:
    """Road 467, section 2, lane -1 is 467_002_499; -1 where the road's id is no number that leaves room."""
    road, section, lane = key
    if not (road.isascii() and road.isdigit() and len(road) <= 12 and section < 1000 and abs(lane) < 500):
        return -1
    return (int(road) * 1000 + section) * 1000 + lane + 500


def _speed_limit(road: Road, section: Section, lane: Lane, loss: LossReport) -> float | None:
    """The limit that holds on the longest part of a lane; the lane's own records win over the road's."""
    records: Sequence[tuple[float, float | None]] = lane.limits or [(s, limit) for s, _, limit in road.types]
    share: dict[float | None, float] = {}
    ends = [*(start for start, _ in records[1:]), math.inf]
    for (start, limit), end in zip(records, ends[: len(records)], strict=True):
        length = min(end, section.end) - max(start, section.start)
        if length > 0.0:
            share[limit] = share.get(limit, 0.0) + length
    if not share:
        return None
    if len(share) > 1:
        loss.count("assumed_speed_limit", f"road {road.id}, lane {lane.id}: several limits, the longest counts")
    return max(share, key=lambda limit: share[limit])


def _neighbours(
    road: str, index: int, section: Section, strips: Mapping[StripKey, Strip]
) -> Iterator[tuple[LaneKey, LaneKey]]:
    """Pairs (left, right) of lanes that touch and are driven the same way; what separates them is a lane too."""
    present = [id for id, lane in section.lanes.items() if (road, index, id) in strips or lane.type in NOT_LANES]
    for low, high in pairwise(present):  # ids grow to the left
        right, left = strips.get((road, index, low)), strips.get((road, index, high))
        if right is None or left is None or LANE_WALKWAY in (right.kind, left.kind):
            continue
        for along in set(right.along) & set(left.along):
            pair = (*left.key, along), (*right.key, along)
            yield pair if along else (pair[1], pair[0])


def _add_lines(
    road: str, index: int, section: Section, strips: Strips, builder: SceneBuilder, loss: LossReport
) -> None:
    for id, marks in ((0, section.centre), *((id, lane.marks) for id, lane in section.lanes.items())):
        s, border = strips.borders[road, index, id]
        _add_marks(marks, section, s, border, builder, loss, f"road {road}, section {index}, lane {id}")


def _add_marks(
    marks: Iterable[Mark],
    section: Section,
    s: F64,
    border: F64,
    builder: SceneBuilder,
    loss: LossReport,
    where: str,
) -> None:
    runs: list[tuple[float, int | None]] = []
    for mark in marks:
        kind = _mark_kind(mark, where, loss)
        if not runs or runs[-1][1] != kind:
            runs.append((mark.s, kind))
    ends = [*(start for start, _ in runs[1:]), section.end]
    for (start, kind), end in zip(runs, ends[: len(runs)], strict=True):
        low, high = max(start, section.start), min(end, section.end)
        if kind is None or high <= low:
            continue
        if high - low < SHORTEST_LINE_M:
            loss.count("dropped_short_line", f"{where}: {high - low:.2g} m")
            continue
        builder.line(_between(s, border, low, high), kind)


def _mark_kind(mark: Mark, where: str, loss: LossReport) -> int | None:
    if mark.type == "none":
        return None
    if mark.type in ("curb", "edge", "grass"):
        loss.count(f"ignored_mark_{mark.type}", where)  # not paint: the road's edges are built from its lanes
        return None
    kinds = MARK_KINDS.get(mark.colour)
    if kinds is None or mark.type not in kinds:
        loss.count("unknown_mark", f"{where}: {mark.colour[:60]} {mark.type[:60]}")
        return LINE_UNKNOWN
    return kinds[mark.type]


def _between(s: F64, points: F64, low: float, high: float) -> F64:
    inside = (s > low) & (s < high)
    ends = [[np.interp(at, s, points[:, axis]) for axis in range(3)] for at in (low, high)]
    return np.concatenate([ends[:1], points[inside], ends[1:]])


# Who follows whom


def connect_lanes(network: Network, strips: Strips, builder: SceneBuilder, loss: LossReport) -> None:
    """Announce every successor to the builder; count links that lead nowhere, against the traffic, or over a gap."""
    seen: set[frozenset[End]] = set()
    for first, second, where in _joints(network, strips, loss):
        pair = frozenset((first, second))
        if pair in seen or len(pair) < 2:
            continue
        seen.add(pair)
        _connect(first, second, where, strips.lanes, builder, loss)


def _connect(
    first: End, second: End, where: str, strips: Mapping[StripKey, Strip], builder: SceneBuilder, loss: LossReport
) -> None:
    one, other = strips.get(first[0]), strips.get(second[0])
    if one is None or other is None:
        if one is not other:
            loss.count("dropped_link_to_no_lane", where)
        return
    gap = float(np.linalg.norm(_end_point(one, first[1]) - _end_point(other, second[1])))
    if gap > LARGEST_JOINT_M:
        loss.count("dropped_link_over_gap", f"{where}: {gap:.1f} m")
        return
    if gap > CLOSE_JOINT_M:
        loss.count("assumed_link_over_gap", f"{where}: {gap:.2f} m")
    connected = False
    for along in one.along:
        for other_along in other.along:
            leaves, enters = along == (first[1] == 1), other_along == (second[1] == 0)
            if leaves and enters:
                builder.connect((*one.key, along), (*other.key, other_along))
            elif not leaves and not enters:
                builder.connect((*other.key, other_along), (*one.key, along))
            connected |= leaves == enters
    if not connected:
        # Pavements and shoulders of a corner are joined head to head: nothing is lost that is driven.
        driven = one.kind in _DRIVEN and other.kind in _DRIVEN
        loss.count("dropped_link_against_traffic" if driven else "ignored_link_head_to_head", where)


def _end_point(strip: Strip, end: int) -> F64:
    point: F64 = strip.centre[-1 if end else 0]
    return point


def _joints(network: Network, strips: Strips, loss: LossReport) -> Iterator[tuple[End, End, str]]:
    for road in network.roads.values():
        last = len(road.sections) - 1
        for index, section in enumerate(road.sections):
            for id, lane in section.lanes.items():
                here = (road.id, index, id)
                where = f"road {road.id}, section {index}, lane {id} (line {lane.line})"
                for end, ids in ((0, lane.predecessors), (1, lane.successors)):
                    inside = index > 0 if end == 0 else index < last
                    if inside:
                        for target in ids:
                            there = (road.id, index + (1 if end else -1), target)
                            if target in road.sections[there[1]].lanes:
                                yield (here, end), (there, 1 - end), where
                            elif target != 0:
                                loss.count("dropped_dangling_link", f"{where}: no lane {target} follows")
                    else:
                        yield from _road_joints(network, strips, road.ends[end], (here, end), ids, where, loss)
    for junction in network.junctions.values():
        for connection in junction.connections:
            yield from _connection_joints(network, strips, junction.id, connection, loss)


def _road_joints(
    network: Network, strips: Strips, link: Link | None, here: End, ids: Iterable[int], where: str, loss: LossReport
) -> Iterator[tuple[End, End, str]]:
    """Joints of a lane at an end of its road with the lanes of the road linked there."""
    if link is None or link.junction:
        return  # a junction's connections say where its lanes lead
    other = network.roads.get(link.target)
    if other is None:
        loss.count("dropped_dangling_link", f"{where}: no road {link.target[:60]}")
        return
    end = link.end
    if end is None:
        end = _nearer_end(other, _road_end(network.roads[here[0][0]], here[1]))
        loss.count("assumed_contact_point", f"{where}: road {link.target[:60]}, the nearer end")
    for target in ids:
        for id in _lanes_at(other, end, target):
            yield here, ((other.id, _section_at(other, end), id), end), where
        if not _lanes_at(other, end, target) and target != 0:
            loss.count("dropped_dangling_link", f"{where}: no lane {target} in road {link.target[:60]}")


def _connection_joints(
    network: Network, strips: Strips, junction: str, connection: Connection, loss: LossReport
) -> Iterator[tuple[End, End, str]]:
    where = f"junction {junction[:60]}, road {connection.incoming[:60]} (line {connection.line})"
    incoming, road = network.roads.get(connection.incoming), network.roads.get(connection.road)
    if incoming is None or road is None:
        loss.count(
            "dropped_dangling_link", f"{where}: no road {(connection.road, connection.incoming)[incoming is None]}"
        )
        return
    end = connection.end
    if end is None:
        loss.count("assumed_contact_point", f"{where}: road {road.id[:60]}, its start")
        end = 0
    incoming_end = _incoming_end(incoming, junction, _road_end(road, end), where, loss)
    for from_id, to_id in connection.lanes:
        starts, ends = _lanes_at(incoming, incoming_end, from_id), _lanes_at(road, end, to_id)
        if not starts or not ends:
            loss.count("dropped_dangling_link", f"{where}: lane {from_id} to {to_id} of road {road.id[:60]}")
        for start in starts:
            for target in ends:
                yield (
                    ((incoming.id, _section_at(incoming, incoming_end), start), incoming_end),
                    ((road.id, _section_at(road, end), target), end),
                    where,
                )


def _incoming_end(road: Road, junction: str, meeting: F64, where: str, loss: LossReport) -> int:
    """At which of its ends a road enters a junction: as its links say, else where it is nearer to `meeting`."""
    ends = [end for end in (0, 1) if (link := road.ends[end]) and link.junction and link.target == junction]
    if len(ends) == 1:
        return ends[0]
    if not ends:
        loss.count("assumed_contact_point", f"{where}: the road names no such junction, the nearer end")
    return _nearer_end(road, meeting)


def _road_end(road: Road, end: int) -> F64:
    point: F64 = road.course.at(np.array([road.length if end else 0.0])).xy[0]
    return point


def _nearer_end(road: Road, point: F64) -> int:
    start, end = (float(np.linalg.norm(_road_end(road, end) - point)) for end in (0, 1))
    return int(end < start)


def _section_at(road: Road, end: int) -> int:
    return len(road.sections) - 1 if end else 0


def _lanes_at(road: Road, end: int, id: int) -> tuple[int, ...]:
    """The lanes at an end of a road that another road means by `id`; none if there is none."""
    if road.aliases[end]:
        return road.aliases[end].get(id, ())
    return (id,) if id in road.sections[_section_at(road, end)].lanes else ()


def course_at(road: Road, s: float) -> Course:
    """The reference line at one place, inside the road: xy (1, 2) f64 [m], heading (1,) f64 [rad]."""
    return road.course.at(np.array([min(max(s, 0.0), road.length)]))

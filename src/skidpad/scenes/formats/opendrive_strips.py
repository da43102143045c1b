"""From OpenDRIVE records to lanes in the plane: each lane of each section becomes a strip, sampled along the road."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skidpad.scenes.build import LossReport
from skidpad.scenes.formats.opendrive_geometry import F64, Course, samples, step_counts
from skidpad.scenes.formats.opendrive_records import Lane, Network, Road, Section
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import (
    LANE_BICYCLE,
    LANE_BUS,
    LANE_FREEWAY,
    LANE_OTHER,
    LANE_SHOULDER,
    LANE_STREET,
    LANE_WALKWAY,
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

ZERO_WIDTH_M = 0.01
WIDEST_LANE_M = 60.0  # the scene model's bound
SHORTEST_BREAK_M = 0.001  # records closer than this are one place
COUNTED_STEP_M = 0.1
_PROBES = 8  # per interval, for the widest place of a section

StripKey = tuple[str, int, int]  # road, section, lane
LaneKey = tuple[str, int, int, bool]  # and whether it is driven along s


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
    heading (n,)    f64 [rad]  of the reference line, without jumps
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
    heading = np.unwrap(course.heading)  # pieces may differ by full turns: -3.13 rad, then 3.14 rad

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
        if float(np.max(width)) > WIDEST_LANE_M:
            # A square written as a lane: its borders stay where they are, but no lane of a scene is as wide.
            loss.count(
                "repaired_wide_lane", f"road {road.id}, section {index}, lane {id}: {float(np.max(width)):.4g} m"
            )
            width = np.minimum(width, WIDEST_LANE_M)
        centre = placed(0.5 * (inner + outer))
        if not _progress(centre, heading) > 0.0:
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
            heading=heading,
        )


def _progress(points: F64, heading: F64) -> float:
    """How far [m] a polyline gets in the direction of the road; negative where a curve folds it over as a whole."""
    step = np.diff(points[:, :2], axis=0)
    middle = 0.5 * (heading[1:] + heading[:-1])
    return float(np.sum(step[:, 0] * np.cos(middle) + step[:, 1] * np.sin(middle)))


def _count_steps(road: Road, section: Section, loss: LossReport) -> None:
    jumps = np.abs(road.offset.steps(section.start, section.end))
    for jump in jumps[jumps > COUNTED_STEP_M]:
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


def course_at(road: Road, s: float) -> Course:
    """The reference line at one place, inside the road: xy (1, 2) f64 [m], heading (1,) f64 [rad]."""
    return road.course.at(np.array([min(max(s, 0.0), road.length)]))

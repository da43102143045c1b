"""The road of a CommonRoad file: lanelets, line markings, signs, lights and intersections (R16).

A lanelet's stop line without points lies at its end; where a lanelet inside an intersection has none at all, its signs
and lights hold for entering it, at its start. A sign or light is one signal for all lanelets side by side that
refer to it, with one line across them; where the same one is referred to from several approaches, each gets its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes import polyline
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.xml import Element, parse_float, shown
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    LANE_BICYCLE,
    LANE_BUS,
    LANE_FREEWAY,
    LANE_HAS_STOP_SIGN,
    LANE_SHOULDER,
    LANE_STREET,
    LANE_UNKNOWN,
    LANE_WALKWAY,
    LINE_BROKEN_WHITE,
    LINE_DOUBLE_WHITE,
    LINE_SOLID_WHITE,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    STATE_GREEN,
    STATE_OFF,
    STATE_RED,
    STATE_UNKNOWN,
    STATE_YELLOW,
)

F64 = NDArray[np.float64]

# In order of precedence: a lanelet may have several types, and the narrower use wins.
_KINDS: tuple[tuple[int, frozenset[str]], ...] = (
    (LANE_WALKWAY, frozenset({"crosswalk", "sidewalk"})),
    (LANE_BICYCLE, frozenset({"bicycleLane"})),
    (LANE_BUS, frozenset({"busLane"})),
    (LANE_SHOULDER, frozenset({"shoulder", "parking"})),
    (LANE_FREEWAY, frozenset({"highway", "interstate", "accessRamp", "exitRamp"})),
    (LANE_STREET, frozenset({"urban", "intersection"})),
)
_DRIVABLE_UNKNOWN = frozenset({"country", "driveWay", "mainCarriageWay", "unknown"})
_OTHER_TYPES = frozenset({"country", "driveWay", "mainCarriageWay", "unknown", "busStop", "border", "restricted"})
_TYPES = _OTHER_TYPES.union(*(names for _, names in _KINDS))
_MOTOR_USERS = frozenset({"vehicle", "car", "truck", "taxi", "motorcycle"})
_LINES = {
    "dashed": LINE_BROKEN_WHITE,
    "broad_dashed": LINE_BROKEN_WHITE,
    "dashed_dashed": LINE_BROKEN_WHITE,
    "solid": LINE_SOLID_WHITE,
    "broad_solid": LINE_SOLID_WHITE,
    "solid_dashed": LINE_SOLID_WHITE,
    "dashed_solid": LINE_SOLID_WHITE,
    "solid_solid": LINE_DOUBLE_WHITE,
}
_NO_LINES = frozenset({"no_marking"})
_SPEED_SIGNS = frozenset({"274", "R2-1"})
_STOP_SIGNS = frozenset({"206", "R1-1"})
_YIELD_SIGNS = frozenset({"205", "R1-2"})
_COLOURS = {
    "red": STATE_RED,
    "redYellow": STATE_RED,
    "yellow": STATE_YELLOW,
    "green": STATE_GREEN,
    "inactive": STATE_OFF,
}
LIKELY_LIMIT_M_S = 45.0  # above 162 km/h a limit in m/s was probably meant in another unit
IMPOSSIBLE_LIMIT_M_S = 343.0  # sound

# Stop lines belong together where their ends nearly meet and their traffic goes the same way.
_LINE_GAP_M = 1.0
_SAME_WAY_RAD = 0.35


@dataclass(eq=False)
class Lanelet:
    """One lanelet as the file has it.

    left, right, centre  (n, 3)  f64 [m]
    stop                 (2, 3)  f64 [m]  its stop line where the file gives points
    has_stop_line        whether the file gives it one, with or without points
    """

    id: int
    element: Element
    left: F64
    right: F64
    centre: F64
    types: list[str]
    users: list[str]
    speed_limit: float | None
    predecessors: list[int]
    successors: list[int]
    left_neighbour: int | None
    right_neighbour: int | None
    signs: list[int]
    lights: list[int]
    stop: F64 | None
    has_stop_line: bool
    junction: int | None = None
    has_stop_sign: bool = False

    @property
    def kind(self) -> int:
        """Lane type of the scene model."""
        if not self.types:
            return LANE_STREET
        return next((kind for kind, names in _KINDS if names.intersection(self.types)), LANE_UNKNOWN)

    @property
    def is_drivable(self) -> bool:
        """May motor vehicles drive here, by type and, where the file names users, by those."""
        if self.users and not _MOTOR_USERS.intersection(self.users):
            return False
        known = self.kind in (LANE_FREEWAY, LANE_STREET)
        return known or (self.kind == LANE_UNKNOWN and bool(_DRIVABLE_UNKNOWN.intersection(self.types)))


@dataclass(eq=False)
class Light:
    """One traffic light: its cycle in time steps, as (steps, state); without one its states are unknown."""

    element: Element
    cycle: list[tuple[int, int]]
    offset: int

    def states(self, rows: int) -> NDArray[np.uint8]:
        """(rows,) u8: the state at each time step, by integer arithmetic on steps."""
        if not self.cycle:
            return np.full(rows, STATE_UNKNOWN, np.uint8)
        ends = np.cumsum([steps for steps, _ in self.cycle])
        position = (np.arange(rows) - self.offset) % int(ends[-1])
        colours = np.array([state for _, state in self.cycle], np.uint8)
        return colours[np.searchsorted(ends, position, side="right")]


@dataclass(eq=False)
class RoadFile:
    """Everything about the road that a file says."""

    name: str
    lanelets: dict[int, Lanelet] = field(default_factory=dict)
    signs: dict[int, list[tuple[str, Element]]] = field(default_factory=dict)
    lights: dict[int, Light] = field(default_factory=dict)
    incoming: dict[int, int] = field(default_factory=dict)  # lanelet to the intersection it leads into
    has_z: bool = False


# Reading


def read_map(root: Element, loss: LossReport, limits: Limits) -> RoadFile:
    """The road as the file has it. Raises FormatError for broken geometry and for two lanelets of one id."""
    road = RoadFile(root.source)
    for element in root.all("lanelet"):
        limits.check("lanes", len(road.lanelets) + 1, element.place)
        lanelet = _lanelet(element, road, loss)
        if lanelet.id in road.lanelets:
            first = road.lanelets[lanelet.id].element.line
            raise element.error(f"id {lanelet.id} is also that of the lanelet in line {first}, expected unique ids")
        road.lanelets[lanelet.id] = lanelet
    for element in root.all("trafficSign"):
        sign_id = element.require_int("id")
        if _is_first(element, sign_id, road.signs, loss):
            road.signs[sign_id] = _sign(element, loss)
    for element in root.all("trafficLight"):
        light_id = element.require_int("id")
        if _is_first(element, light_id, road.lights, loss):
            road.lights[light_id] = _light(element, loss, limits)
    for element in root.all("intersection"):
        _intersection(element, road, loss)
    return road


def _is_first(element: Element, identity: int, known: Iterable[int], loss: LossReport) -> bool:
    if identity not in known:
        return True
    loss.count("dropped_doubled_id", f"{element.at}: {element.tag} {identity}, the first one wins")
    element.skip()
    return False


def _lanelet(element: Element, road: RoadFile, loss: LossReport) -> Lanelet:
    sides = [_border(element.only(tag), road) for tag in ("leftBound", "rightBound")]
    types = []
    for child in element.all("laneletType"):
        types.append(child.text)
        if child.text not in _TYPES:
            loss.count("unknown_lanelet_type", f"{child.at}: {shown(child.text)}")
    limit = element.first("speedLimit")
    stop, stop_signs, stop_lights = _stop_line(element, road)
    for child in element.all("userBidirectional"):
        loss.count("ignored_userBidirectional", f"{child.at}: {shown(child.text)}")
    return Lanelet(
        id=element.require_int("id"),
        element=element,
        left=sides[0],
        right=sides[1],
        centre=derive.centre_line(sides[0], sides[1]),
        types=types,
        users=[child.text for child in element.all("userOneWay", "userBidirectional")],
        speed_limit=None if limit is None else _speed(limit, limit.text_float(), loss),
        predecessors=_references(element, "predecessor"),
        successors=_references(element, "successor"),
        left_neighbour=_neighbour(element, "adjacentLeft", loss),
        right_neighbour=_neighbour(element, "adjacentRight", loss),
        signs=_references(element, "trafficSignRef") + stop_signs,
        lights=_references(element, "trafficLightRef") + stop_lights,
        stop=stop,
        has_stop_line=element.first("stopLine") is not None,
    )


def _border(element: Element, road: RoadFile) -> F64:
    points = read_points(element, road)
    if len(points) < 2:
        raise element.error(f"{len(points)} points, expected at least 2")
    return points


def read_points(element: Element, road: RoadFile | None = None) -> F64:
    """(n, 3) f64 [m]: the `point` children of an element; height 0 where the file has none, which the road notes."""
    return np.array([read_point(point, road) for point in element.all("point")], np.float64).reshape(-1, 3)


def read_point(element: Element, road: RoadFile | None = None) -> tuple[float, float, float]:
    """x, y and z [m] of a `point` or `center`, all finite."""
    z = element.first("z")
    if z is not None and road is not None:
        road.has_z = True
    return element.only("x").text_float(), element.only("y").text_float(), 0.0 if z is None else z.text_float()


def _references(element: Element, tag: str) -> list[int]:
    return [child.require_int("ref") for child in element.all(tag)]


def _neighbour(element: Element, tag: str, loss: LossReport) -> int | None:
    """The lanelet beside this one where it has the same direction."""
    child = element.first(tag)
    if child is None:
        return None
    direction, other = child.require("drivingDir"), child.require_int("ref")
    if direction == "same":
        return other
    kind = "ignored_opposite_neighbour" if direction == "opposite" else "unknown_driving_direction"
    loss.count(kind, f"{child.at}: {tag} {other}, {shown(direction)}")
    return None


def _stop_line(element: Element, road: RoadFile) -> tuple[F64 | None, list[int], list[int]]:
    """Points of a lanelet's stop line if it has some, and the signs and lights it names."""
    child = element.first("stopLine")
    if child is None:
        return None, [], []
    points = read_points(child, road)
    if len(points) not in (0, 2):
        raise child.error(f"{len(points)} points, expected 2, or none for the end of the lanelet")
    has_extent = len(points) == 2 and bool(np.any(points[0, :2] != points[1, :2]))
    signs, lights = _references(child, "trafficSignRef"), _references(child, "trafficLightRef")
    return points if has_extent else None, signs, lights


def _speed(element: Element, speed: float | None, loss: LossReport) -> float | None:
    """A speed limit [m/s], or None where it cannot be one, which is counted."""
    where = f"{element.at}: {shown(element.text)}"
    if speed is None or not 0 < speed <= IMPOSSIBLE_LIMIT_M_S:
        loss.count("dropped_speed_limit", f"{where}, no speed in m/s")
        return None
    if speed > LIKELY_LIMIT_M_S:
        loss.count("assumed_high_speed_limit", f"{where} m/s, kept; is it in km/h?")
    return speed


def _sign(element: Element, loss: LossReport) -> list[tuple[str, Element]]:
    """The signs on one post that mean something here, by their national number."""
    found = []
    for part in element.all("trafficSignElement"):
        number = part.only("trafficSignID").text
        if number in _SPEED_SIGNS | _STOP_SIGNS | _YIELD_SIGNS:
            found.append((number, part))
        else:
            loss.count("ignored_traffic_sign", f"{part.at}: {shown(number)}")
            part.skip()
    return found


def _light(element: Element, loss: LossReport, limits: Limits) -> Light:
    where = f"{element.at}: trafficLight"
    direction, active = element.first("direction"), element.first("active")
    if direction is not None and direction.text != "all":
        loss.count("ignored_light_direction", f"{where} for {shown(direction.text)}, taken for all directions")
    if active is not None and active.text not in ("true", "false", "0", "1"):
        raise active.error(f"text is {shown(active.text)!r}, expected true or false")
    holder = element.first("cycle")
    cycle: list[tuple[int, int]] = []
    offset = 0
    if holder is not None:
        phases = holder.all("cycleElement")
        limits.check("program_phases", len(phases), holder.place)
        for phase in phases:
            steps, colour = phase.only("duration").text_int(), phase.only("color").text
            if steps < 0:
                raise phase.error(f"duration is {steps} time steps, expected 0 or more")
            if colour not in _COLOURS:
                loss.count("unknown_light_colour", f"{phase.at}: {shown(colour)}")
            if steps > 0:
                cycle.append((steps, _COLOURS.get(colour, STATE_UNKNOWN)))
            else:
                loss.count("dropped_empty_phase", f"{phase.at}: {colour} for 0 time steps")
        shift = holder.first("timeOffset")
        offset = 0 if shift is None else shift.text_int()
    if active is not None and active.text in ("false", "0"):
        cycle, offset = [(1, STATE_OFF)], 0
    return Light(element, cycle, offset)


def _intersection(element: Element, road: RoadFile, loss: LossReport) -> None:
    """Lanelets inside an intersection get its id as junction; those that lead into it are remembered for signals."""
    intersection = element.require_int("id")
    for incoming in element.all("incoming"):
        for lanelet_id in _references(incoming, "incomingLanelet"):
            if _known(lanelet_id, incoming, road, loss):
                road.incoming.setdefault(lanelet_id, intersection)
        for tag in ("successorsLeft", "successorsStraight", "successorsRight"):
            for lanelet_id in _references(incoming, tag):
                if _known(lanelet_id, incoming, road, loss):
                    road.lanelets[lanelet_id].junction = intersection


def _known(lanelet_id: int, element: Element, road: RoadFile, loss: LossReport) -> bool:
    if lanelet_id in road.lanelets:
        return True
    loss.count("dropped_dangling_reference", f"{element.at}: {element.tag} to lanelet {lanelet_id}")
    return False


# Building


def add_map(road: RoadFile, builder: SceneBuilder, rows: int, dt_us: int, limits: Limits) -> None:
    """Hand the road to the builder; lights get their state at each of `rows` time steps."""
    limits.check("track_rows", len(road.lights) * rows, f"{road.name}: states of traffic lights")
    signs = _signals_of_signs(road, builder.loss)
    for lanelet in road.lanelets.values():
        builder.lane(
            lanelet.id,
            lanelet.centre,
            kind=lanelet.kind,
            source_id=lanelet.id,
            speed_limit=lanelet.speed_limit,
            drivable=lanelet.is_drivable,
            junction=lanelet.junction,
            left=lanelet.left,
            right=lanelet.right,
            flags=LANE_HAS_STOP_SIGN if lanelet.has_stop_sign else 0,
        )
        for other in lanelet.predecessors:
            builder.connect(other, lanelet.id)
        for other in lanelet.successors:
            builder.connect(lanelet.id, other)
        if lanelet.left_neighbour is not None:
            builder.neighbours(lanelet.left_neighbour, lanelet.id)
        if lanelet.right_neighbour is not None:
            builder.neighbours(lanelet.id, lanelet.right_neighbour)
        if "crosswalk" in lanelet.types:
            outline = np.concatenate([lanelet.left, lanelet.right[::-1]])
            builder.area(outline, AREA_CROSSWALK, lanelet.id)
    _add_lines(road, builder)
    for kind, members in signs:
        for line, heading, group in _side_by_side(members):
            builder.signal(kind, [one.id for one in group], line=line, heading=heading, junction=_leads_to(group, road))
    _add_lights(road, builder, rows, dt_us)


def _add_lines(road: RoadFile, builder: SceneBuilder) -> None:
    """Painted lines, once where two lanelets share a border and both describe it."""
    drawn: set[tuple[bytes, int]] = set()
    for lanelet in road.lanelets.values():
        for tag, points in (("leftBound", lanelet.left), ("rightBound", lanelet.right)):
            marking = lanelet.element.only(tag).first("lineMarking")
            if marking is None or marking.text in _NO_LINES:
                continue
            kind = _LINES.get(marking.text)
            if kind is None:
                lost = "ignored_unknown_marking" if marking.text == "unknown" else "unknown_line_marking"
                builder.loss.count(lost, f"{marking.at}: {shown(marking.text)}")
                continue
            key = (min(points.tobytes(), points[::-1].tobytes()), kind)
            if key not in drawn:
                drawn.add(key)
                builder.line(points, kind, lanelet.id)


def _signals_of_signs(road: RoadFile, loss: LossReport) -> list[tuple[int, list[Lanelet]]]:
    """Speed limits onto the lanelets; what is left are stop and yield signs with the lanelets they stand at."""
    users = _users(road, "sign", loss)
    found = []
    for sign_id, parts in road.signs.items():
        members = users.get(sign_id, [])
        for number, part in parts:
            if number in _SPEED_SIGNS:
                _limit_speed(part, members, loss)
            elif members:
                found.append((SIGNAL_STOP if number in _STOP_SIGNS else SIGNAL_YIELD, members))
            if not members:
                loss.count("dropped_sign_without_lane", f"{part.at}: sign {sign_id} ({number})")
            if number in _STOP_SIGNS:
                for lanelet in members:
                    lanelet.has_stop_sign = True
    return found


def _limit_speed(part: Element, members: Sequence[Lanelet], loss: LossReport) -> None:
    value = part.first("additionalValue")
    # By its schema this is free text (place names on sign 310, "30kmh" in one file), not a number.
    speed = None if value is None else _speed(value, parse_float(value.text), loss)
    if value is None:
        loss.count("dropped_speed_limit", f"{part.at}: a sign without a value")
    for lanelet in members:
        if speed is not None:
            lanelet.speed_limit = speed if lanelet.speed_limit is None else min(speed, lanelet.speed_limit)


def _users(road: RoadFile, what: str, loss: LossReport) -> dict[int, list[Lanelet]]:
    """The lanelets that refer to each sign or light, in file order; references to nothing are counted."""
    known: Iterable[int] = road.signs if what == "sign" else road.lights
    users: dict[int, list[Lanelet]] = {}
    for lanelet in road.lanelets.values():
        for reference in dict.fromkeys(lanelet.signs if what == "sign" else lanelet.lights):
            if reference in known:
                users.setdefault(reference, []).append(lanelet)
            else:
                at = f"{lanelet.element.at}"
                loss.count("dropped_dangling_reference", f"{at}: lanelet {lanelet.id} to {what} {reference}")
    return users


def _add_lights(road: RoadFile, builder: SceneBuilder, rows: int, dt_us: int) -> None:
    users = _users(road, "light", builder.loss)
    dt = dt_us * 1e-6
    for light_id, light in road.lights.items():
        if light_id not in users:
            at = f"{light.element.at}"
            builder.loss.count("dropped_light_without_lane", f"{at}: light {light_id}")
            continue
        for line, heading, group in _side_by_side(users[light_id]):
            builder.signal(
                SIGNAL_LIGHT,
                [lanelet.id for lanelet in group],
                line=line,
                heading=heading,
                junction=_leads_to(group, road),
                states=light.states(rows),
                cycle_offset=light.offset * dt,
                program=[(steps * dt, state) for steps, state in light.cycle],
            )


def _leads_to(group: Sequence[Lanelet], road: RoadFile) -> int | None:
    return next((road.incoming[lanelet.id] for lanelet in group if lanelet.id in road.incoming), None)


def _side_by_side(members: Sequence[Lanelet]) -> list[tuple[F64 | None, float | None, list[Lanelet]]]:
    """Lanelets whose stop lines form one line across the road, with that line (2, 3) f64 [m] and its heading [rad].

    A lanelet without length has no line; the builder drops it and says so.
    """
    groups: list[tuple[list[Lanelet], list[F64], float]] = []
    lost = [lanelet for lanelet in members if len(polyline.drop_short_segments(lanelet.centre)[0]) < 2]
    for lanelet in members:
        if lanelet in lost:
            continue
        width = derive.widths_from_borders(lanelet.centre, lanelet.left, lanelet.right)
        point = None if lanelet.stop is None else lanelet.stop.mean(axis=0)
        if lanelet.junction is not None and not lanelet.has_stop_line:
            point = lanelet.centre[0]
        line, heading = derive.stop_line(lanelet.centre, width, point)
        line = line if lanelet.stop is None else lanelet.stop
        for group, lines, way in groups:
            turned = abs(np.arctan2(np.sin(heading - way), np.cos(heading - way)))
            if turned <= _SAME_WAY_RAD and any(_nearly_meet(line, other) for other in lines):
                group.append(lanelet)
                lines.append(line)
                break
        else:
            groups.append(([lanelet], [line], heading))
    found: list[tuple[F64 | None, float | None, list[Lanelet]]] = []
    for group, lines, way in groups:
        ends = np.concatenate(lines)
        aside = ends[:, :2] @ np.array([-np.sin(way), np.cos(way)])
        found.append((ends[[int(np.argmax(aside)), int(np.argmin(aside))]], way, group))
    return found + ([(None, None, lost)] if lost else [])


def _nearly_meet(one: F64, other: F64) -> bool:
    gaps = one[:, None, :2] - other[None, :, :2]
    return bool(np.hypot(gaps[:, :, 0], gaps[:, :, 1]).min() <= _LINE_GAP_M)

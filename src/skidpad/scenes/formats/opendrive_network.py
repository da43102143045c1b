"""What an OpenDRIVE file says, as plain records: roads, sections, lanes, junctions, signals, crosswalks.

This is the only module that reads OpenDRIVE elements. It checks ids and numbers, turns positions into s along the road,
and repairs what every reader of such files has to repair: sections shorter than a centimetre, geometry records out of
order, gaps of millimetres. Where lanes run and how they connect is worked out from these records elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from skidpad.scenes.build import LossReport
from skidpad.scenes.formats.opendrive_geometry import (
    LARGEST_TURN,
    Bend,
    Cubics,
    Parametric,
    Piece,
    ReferenceLine,
    Shape,
    spiral,
)
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.xml import Element, report_unread, shown

SHORTEST_SECTION_M = 0.01
LARGEST_GAP_M = 0.1  # between plan-view pieces: above it the file is broken
COUNTED_GAP_M = 0.001
SUPPORTED_MINORS = range(4, 8)
SPEED_UNITS = {"m/s": 1.0, "km/h": 1.0 / 3.6, "mph": 0.44704}
NO_LIMIT = frozenset({"no limit", "undefined"})

# Known to the format and not used by a scene; counted as ignored_<name>, everything else is unknown.
_IGNORED = """
userData include dataQuality CRGSurface CRG surface railroad station junctionGroup objectReference tunnel bridge
crossfall shape crossSectionSurface object material visibility access rule height dependency reference
positionInertial positionRoad priority surface neighbor sway explicit roadMark/type elevationGrid boundary
license defaultRegulations offset crossPath roadSection trafficIsland laneReference materials
@name header@date header@vendor header@north header@south header@east header@west header@version
laneSection@singleSide lane@level lane@roadWorks lane@advisory lane@dynamicLaneDirection
lane@dynamicLaneType roadMark@weight roadMark@material roadMark@width roadMark@laneChange roadMark@height
type@country link@sOffset signal@zOffset signal@hOffset signal@pitch signal@roll signal@height signal@width
signal@text signal@unit signal@value signal@countryRevision signal@subtype signal@length
signal@temporary signal@t signalReference@t controller@sequence controller@name controller@type
control@type junction@orientation junction@sStart junction@sEnd junction@mainRoad connection@id connection@type
laneLink@overlapZone object@roll object@pitch object@height object@orientation object@dynamic
object@validLength object@radius object@subtype object@perpToRoad outline@id outline@fillType outline@laneType
outline@outer cornerLocal@height cornerLocal@id cornerRoad@height cornerRoad@id object/repeat
object/validity object/parkingSpace object/markings object/borders object/surface
predecessor@elementS predecessor@elementDir successor@elementS successor@elementDir
predecessor@layer successor@layer outline@closed
"""
IGNORED = frozenset(_IGNORED.split())
# An unused width of a painted line must not read like an unused width of a lane.
_KINDS = {name: f"ignored_{name.replace('@', '_')}" for name in IGNORED if name.rpartition("@")[0]}


@dataclass(frozen=True)
class Link:
    """What a road's end is joined to.

    junction  whether `target` is a junction, else a road
    end       0 the start of the target road, 1 its end, None not said
    """

    junction: bool
    target: str
    end: int | None
    line: int


@dataclass(frozen=True)
class Mark:
    """A painted line on the outer border of a lane, from s [m] on."""

    s: float
    type: str
    colour: str


@dataclass(frozen=True)
class Lane:
    """One lane of one section.

    width, border  cubics over road s; without a width the border says where the lane ends
    against        the 1.8 attribute `direction` reverses the lane
    both           it is driven in both directions
    limits         (s [m], limit [m/s] or None) where its speed limit changes
    """

    id: int
    type: str
    width: Cubics | None
    border: Cubics | None
    marks: tuple[Mark, ...]
    limits: tuple[tuple[float, float | None], ...]
    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    against: bool
    both: bool
    line: int


@dataclass(frozen=True)
class Section:
    """A stretch [start, end) [m] of road with one set of lanes, by id; `centre` are the marks of lane 0."""

    start: float
    end: float
    lanes: dict[int, Lane]
    centre: tuple[Mark, ...]


@dataclass(frozen=True)
class Signal:
    """A light or sign beside a road, or a reference to one from another road.

    id          of the light or sign itself
    kind        (dynamic, country, type) of the light or sign; None in a reference
    s           [m]
    direction   1 for traffic along s, -1 against, 0 both
    validity    lane id ranges it is valid for; empty = all lanes of its direction
    """

    id: str
    kind: tuple[bool, str, str] | None
    s: float
    direction: int
    validity: tuple[tuple[int, int], ...]
    line: int


@dataclass(frozen=True)
class Crosswalk:
    """A crosswalk at s, t [m], turned by `heading` [rad] against the road, `z` [m] above it.

    corners  (u, v, z) [m] in its own frame, or (s, t, z) [m] on the road when `on_road`
    """

    id: str
    s: float
    t: float
    z: float
    heading: float
    corners: tuple[tuple[float, float, float], ...]
    on_road: bool
    line: int


Aliases = tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]


@dataclass
class Road:
    """One road.

    left_hand  its traffic keeps to the left
    types      (s [m], type, limit [m/s] or None)
    aliases    at its start and end: lane ids that other roads may use, and the lanes meant (see `_bridge_short`)
    ends       what its start and its end are joined to
    """

    id: str
    junction: str | None
    left_hand: bool
    course: ReferenceLine
    elevation: Cubics
    offset: Cubics
    types: list[tuple[float, str, float | None]]
    sections: list[Section]
    aliases: Aliases
    ends: tuple[Link | None, Link | None]
    signals: list[Signal]
    references: list[Signal]
    crosswalks: list[Crosswalk]
    line: int

    @property
    def length(self) -> float:
        return self.course.length


@dataclass(frozen=True)
class Connection:
    """Lanes (from, to) of an incoming road that lead into the `end` (0 start, 1 end) of another road."""

    incoming: str
    road: str
    end: int | None
    lanes: tuple[tuple[int, int], ...]
    line: int


@dataclass(frozen=True)
class Junction:
    id: str
    connections: tuple[Connection, ...]
    controllers: tuple[str, ...]


@dataclass
class Network:
    """A whole file. `controllers` maps a controller's id to the ids of the signals it switches together."""

    version: str
    name: str
    geo_reference: str
    roads: dict[str, Road] = field(default_factory=dict)
    junctions: dict[str, Junction] = field(default_factory=dict)
    controllers: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_network(root: Element, loss: LossReport, limits: Limits) -> Network:
    """The records of a parsed file; what was not read is counted.

    Raises FormatError, with file and line, for a missing or malformed attribute, a doubled road or lane id, a gap of
    more than 0.1 m in a reference line, or an OpenDRIVE of another major version.
    """
    if root.tag != "OpenDRIVE":
        raise root.error("expected an <OpenDRIVE> document")
    network = _header(root.only("header"), loss)
    for element in root.all("road"):
        road = _road(element, loss, limits)
        if road.id in network.roads:
            raise element.error(f"road id {shown(road.id)!r} is there twice, expected unique ids")
        network.roads[road.id] = road
    for element in root.all("junction"):
        junction = _junction(element, loss)
        if network.junctions.setdefault(junction.id, junction) is not junction:
            loss.count("dropped_doubled_junction", f"{_at(element)}: junction {shown(junction.id)}")
    for element in root.all("controller"):
        network.controllers.setdefault(
            element.require("id"), tuple(control.require("signalId") for control in element.all("control"))
        )
    report_unread(root, loss.count, IGNORED, _KINDS)
    return network


def _at(element: Element) -> str:
    return f"{element.source}:{element.line}"


def _header(element: Element, loss: LossReport) -> Network:
    major, minor = element.require_int("revMajor"), element.require_int("revMinor")
    version = f"{major}.{minor}"
    if major != 1:
        raise element.error(f"OpenDRIVE {version}, expected 1.4 to 1.8")
    if minor not in SUPPORTED_MINORS:
        loss.count("assumed_version", f"{_at(element)}: OpenDRIVE {version} is read as 1.7")
    reference = element.first("geoReference")
    return Network(version, element.get("name") or "", reference.text if reference else "")


# Roads


def _road(element: Element, loss: LossReport, limits: Limits) -> Road:
    name, junction = element.require("id"), element.get("junction")
    course = _course(element, loss, limits)
    length = element.require_float("length")
    if abs(length - course.length) > SHORTEST_SECTION_M:
        loss.count("repaired_road_length", f"{_at(element)}: {length:g} m, its geometry {course.length:g} m")
    rule = element.get("rule")
    if rule not in (None, "RHT", "LHT"):
        raise element.error(f"attribute 'rule' is {shown(rule or '')!r}, expected RHT or LHT")
    lanes = element.only("lanes")
    profile = element.first("elevationProfile")
    _lateral_profile(element, loss)
    link, signals, objects = element.first("link"), element.first("signals"), element.first("objects")
    sections, aliases = _sections(lanes, course.length, loss)
    return Road(
        id=name,
        junction=None if junction in (None, "-1") else junction,
        left_hand=rule == "LHT",
        course=course,
        elevation=_cubics(profile.all("elevation") if profile else [], 0.0, "s"),
        offset=_cubics(lanes.all("laneOffset"), 0.0, "s"),
        types=sorted((_road_type(item, loss) for item in element.all("type")), key=lambda item: item[0]),
        sections=sections,
        aliases=aliases,
        ends=(_road_link(link, "predecessor"), _road_link(link, "successor")),
        signals=[_signal(item, reference=False) for item in signals.all("signal")] if signals else [],
        references=[_signal(item, reference=True) for item in signals.all("signalReference")] if signals else [],
        crosswalks=[_crosswalk(item) for item in objects.children if _is_crosswalk(item)] if objects else [],
        line=element.line,
    )


def _road_link(link: Element | None, name: str) -> Link | None:
    element = link.first(name) if link else None
    if element is None:
        return None
    kind = element.require("elementType")
    if kind not in ("road", "junction"):
        raise element.error(f"attribute 'elementType' is {shown(kind)!r}, expected road or junction")
    return Link(kind == "junction", element.require("elementId"), _contact_point(element), element.line)


def _contact_point(element: Element) -> int | None:
    value = element.get("contactPoint")
    if value not in (None, "start", "end"):
        raise element.error(f"attribute 'contactPoint' is {shown(value or '')!r}, expected start or end")
    return None if value is None else int(value == "end")


def _road_type(element: Element, loss: LossReport) -> tuple[float, str, float | None]:
    speed = element.first("speed")
    return element.require_float("s"), element.require("type"), _limit(speed, loss) if speed else None


def _limit(element: Element, loss: LossReport) -> float | None:
    """A speed limit in m/s; None where the file sets none."""
    text, unit = element.require("max"), element.get("unit")
    if text in NO_LIMIT:
        return None
    value = element.require_float("max")
    scale = SPEED_UNITS.get(unit or "m/s")
    if scale is None or value <= 0.0:
        loss.count("dropped_speed_limit", f"{_at(element)}: {shown(text)} {shown(unit or '')}")
        return None
    return value * scale


def _lateral_profile(road: Element, loss: LossReport) -> None:
    profile = road.first("lateralProfile")
    for element in profile.all("superelevation") if profile else []:
        element.require_float("s")
        if any(element.require_float(name) != 0.0 for name in "abcd"):
            loss.count("ignored_superelevation", _at(element))
            element.skip()


# Plan view


def _course(road: Element, loss: LossReport, limits: Limits) -> ReferenceLine:
    view = road.only("planView")
    pieces: list[Piece] = []
    for element in view.all("geometry"):
        piece = _piece(element, loss, limits)
        if piece.length > 0.0:
            pieces.append(piece)
        else:
            loss.count("dropped_geometry", f"{_at(element)}: length 0")
    if not pieces:
        raise view.error("expected at least one <geometry> with a length")
    ordered = sorted(pieces, key=lambda piece: piece.s)
    if ordered != pieces:
        loss.count("repaired_geometry_order", f"{_at(view)}: road {shown(road.require('id'))}")
    for piece, following in pairwise(ordered):
        if abs(piece.s + piece.length - following.s) > COUNTED_GAP_M:
            loss.count("repaired_geometry_s", f"{_at(view)}: s {following.s:g} after {piece.s + piece.length:g}")
    course = ReferenceLine(ordered)
    for gap, following in zip(course.gaps(), ordered[1:], strict=True):
        if not gap <= LARGEST_GAP_M:
            raise view.error(
                f"the reference line of road {shown(road.require('id'))!r} has a gap of {gap:.3g} m at s = "
                f"{following.s:g} m, expected at most {LARGEST_GAP_M} m. Export the map again"
            )
        if gap > COUNTED_GAP_M:
            loss.count("repaired_geometry_gap", f"{_at(view)}: {gap:.3g} m at s {following.s:g} m")
    return course


def _piece(element: Element, loss: LossReport, limits: Limits) -> Piece:
    s, x, y, heading, length = (element.require_float(name) for name in ("s", "x", "y", "hdg", "length"))
    if length < 0.0 or s < 0.0:
        raise element.error(f"s is {s:g} m and length is {length:g} m, expected no negative numbers")
    for value in (s, x, y, length):
        limits.check("coordinate_m", abs(value), _at(element))
    if abs(heading) > LARGEST_TURN:
        raise element.error(f"attribute 'hdg' is {heading:g}, expected an angle in radians")
    shapes = element.all(*_SHAPES)
    if len(shapes) != 1:
        raise element.error(f"expected exactly one of {', '.join(_SHAPES)}, found {len(shapes)}")
    shape = _SHAPES[shapes[0].tag](shapes[0], length) if length > 0.0 else Bend(0.0)
    if not math.isfinite(shape.curvature):
        raise element.error("its coefficients are too large, expected a curve of finite curvature")
    if isinstance(shape, Parametric) and abs(shape.true_length - length) > max(0.01, 0.001 * length):
        loss.count("repaired_curve_length", f"{_at(element)}: {length:g} m, truly {shape.true_length:g} m")
    return Piece(s, x, y, heading, length, shape)


def _bounded(element: Element, curvature: float, length: float) -> float:
    if abs(curvature) * length > LARGEST_TURN:
        raise element.error(f"curvature {curvature:g} 1/m over {length:g} m, expected a turn of {LARGEST_TURN:g} rad")
    return curvature


def _arc(element: Element, length: float) -> Shape:
    return Bend(_bounded(element, element.require_float("curvature"), length))


def _spiral(element: Element, length: float) -> Shape:
    start, end = (_bounded(element, element.require_float(name), length) for name in ("curvStart", "curvEnd"))
    return spiral(start, end, length)


def _poly3(element: Element, length: float) -> Shape:
    return Parametric((0.0, 1.0, 0.0, 0.0), [element.require_float(name) for name in "abcd"], length, None)


def _param_poly3(element: Element, length: float) -> Shape:
    u, v = ([element.require_float(letter + axis) for letter in "abcd"] for axis in "UV")
    p_range = element.get("pRange")
    if p_range not in (None, "arcLength", "normalized"):
        raise element.error(f"attribute 'pRange' is {shown(p_range or '')!r}, expected arcLength or normalized")
    shape = Parametric(u, v, length, length if p_range == "arcLength" else 1.0)
    if not shape.true_length > 0.0:
        raise element.error("its curve has no length, expected coefficients that describe one")
    return shape


_SHAPES: dict[str, Callable[[Element, float], Shape]] = {
    "line": lambda _element, _length: Bend(0.0),
    "arc": _arc,
    "spiral": _spiral,
    "poly3": _poly3,
    "paramPoly3": _param_poly3,
}


def _cubics(elements: Iterable[Element], start: float, name: str) -> Cubics:
    """Records a, b, c, d whose attribute `name` counts from `start` [m], as cubics over road s."""
    starts, coefficients = [], []
    for element in elements:
        starts.append(start + element.require_float(name))
        coefficients.append([element.require_float(letter) for letter in "abcd"])
    return Cubics(starts, coefficients)


# Lanes


def _sections(lanes: Element, length: float, loss: LossReport) -> tuple[list[Section], Aliases]:
    elements = sorted(lanes.all("laneSection"), key=lambda element: element.require_float("s"))
    if not elements:
        raise lanes.error("expected at least one <laneSection>")
    starts = [element.require_float("s") for element in elements]
    sections = []
    for element, start, end in zip(elements, starts, [*starts[1:], length], strict=True):
        if start < 0.0:
            raise element.error(f"attribute 's' is {start:g} m, expected no negative number")
        sections.append(_section(element, start, min(end, length), loss))
    return _bridge_short(sections, lanes, loss)


def _section(element: Element, start: float, end: float, loss: LossReport) -> Section:
    lanes: dict[int, Lane] = {}
    centre: tuple[Mark, ...] = ()
    for side in element.all("left", "center", "right"):
        for item in side.all("lane"):
            lane = _lane(item, start, loss)
            if lane.id == 0:
                centre += lane.marks
            elif lane.id in lanes:
                raise item.error(f"lane id {lane.id} is there twice in one section, expected unique ids")
            else:
                lanes[lane.id] = lane
            if side.tag != ("center" if lane.id == 0 else "left" if lane.id > 0 else "right"):
                loss.count("repaired_lane_side", f"{_at(item)}: lane {lane.id} under <{side.tag}>")
    return Section(start, end, dict(sorted(lanes.items())), centre)


def _lane(element: Element, start: float, loss: LossReport) -> Lane:
    link = element.first("link")
    widths, borders = element.all("width"), element.all("border")
    marks = [
        Mark(start + item.require_float("sOffset"), item.require("type"), item.get("color") or "standard")
        for item in element.all("roadMark")
    ]
    limits = [(start + item.require_float("sOffset"), _limit(item, loss)) for item in element.all("speed")]
    if widths and borders:
        loss.count("ignored_border", f"{_at(element)}: the lane has widths too", len(borders))
    direction = element.get("direction")
    return Lane(
        id=element.require_int("id"),
        type=element.get("type") or "none",
        width=_cubics(widths, start, "sOffset") if widths else None,
        border=_cubics(borders, start, "sOffset") if borders else None,
        marks=tuple(sorted(marks, key=lambda mark: mark.s)),
        limits=tuple(sorted(limits, key=lambda limit: limit[0])),
        predecessors=tuple(item.require_int("id") for item in link.all("predecessor")) if link else (),
        successors=tuple(item.require_int("id") for item in link.all("successor")) if link else (),
        against=direction == "reversed",
        both=direction == "both",
        line=element.line,
    )


def _bridge_short(sections: list[Section], lanes: Element, loss: LossReport) -> tuple[list[Section], Aliases]:
    """Sections without those shorter than a centimetre: links that led into them lead through them.

    Also returned, for the start and the end of the road: lanes that other roads may name because they stand in a
    dropped first or last section, and the lanes of the first or last kept one that take their place.
    """
    if all(section.end - section.start < SHORTEST_SECTION_M for section in sections):
        longest = max(sections, key=lambda section: section.end - section.start)
        if not longest.end > longest.start:
            raise lanes.error("no <laneSection> lies on the road, expected one")
        return [longest], ({}, {})
    kept: list[Section] = []
    short: list[Section] = []
    start_alias: dict[int, tuple[int, ...]] = {}
    end_alias: dict[int, tuple[int, ...]] = {}
    for section in sections:
        if section.end - section.start < SHORTEST_SECTION_M:
            length = section.end - section.start
            loss.count("dropped_short_section", f"{_at(lanes)}: {length:.3g} m at s {section.start:g} m")
            short.append(section)
            continue
        if short:
            section = _led_through(section, short[::-1], "predecessors")
            if kept:
                kept[-1] = _led_through(kept[-1], short, "successors")
            else:
                start_alias = _chain(short, "successors")
        kept.append(section)
        short = []
    if short:
        kept[-1] = _led_through(kept[-1], short, "successors")
        end_alias = _chain(short[::-1], "predecessors")
    return kept, (start_alias, end_alias)


def _chain(sections: Sequence[Section], side: str) -> dict[int, tuple[int, ...]]:
    """Where each lane of the first section leads, behind the last one."""
    ends: dict[int, tuple[int, ...]] = {id: getattr(lane, side) for id, lane in sections[0].lanes.items()}
    for section in sections[1:]:
        lanes = section.lanes
        ends = {
            id: tuple(end for middle in middles if middle in lanes for end in getattr(lanes[middle], side))
            for id, middles in ends.items()
        }
    return ends


def _led_through(section: Section, short: Sequence[Section], side: str) -> Section:
    chain = _chain(short, side)
    lanes = {}
    for id, lane in section.lanes.items():
        ends = tuple(end for middle in getattr(lane, side) for end in chain.get(middle, ()))
        lanes[id] = replace(lane, predecessors=ends) if side == "predecessors" else replace(lane, successors=ends)
    return replace(section, lanes=lanes)


# Signals, objects, junctions

_DIRECTIONS = {"+": 1, "-": -1, "none": 0}


def _signal(element: Element, *, reference: bool) -> Signal:
    orientation = element.get("orientation") or "none"
    if orientation not in _DIRECTIONS:
        raise element.error(f"attribute 'orientation' is {shown(orientation)!r}, expected +, - or none")
    kind = None
    if not reference:
        kind = (element.get("dynamic") == "yes", element.get("country") or "", element.get("type") or "")
    validity = [(item.require_int("fromLane"), item.require_int("toLane")) for item in element.all("validity")]
    return Signal(
        element.require("id"),
        kind,
        element.require_float("s"),
        _DIRECTIONS[orientation],
        tuple((min(pair), max(pair)) for pair in validity),
        element.line,
    )


def _is_crosswalk(element: Element) -> bool:
    if element.tag != "object" or element.get("type") != "crosswalk":
        return False
    element.taken = True
    return True


def _crosswalk(element: Element) -> Crosswalk:
    corners, on_road = _corners(element)
    length, width = element.get_float("length") or 0.0, element.get_float("width") or 0.0
    if len(corners) < 3:
        corners, on_road = (
            [(u * length / 2, v * width / 2, 0.0) for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1))],
            False,
        )
    return Crosswalk(
        element.get("id") or "",
        element.require_float("s"),
        element.require_float("t"),
        element.get_float("zOffset") or 0.0,
        element.get_float("hdg") or 0.0,
        tuple(corners),
        on_road,
        element.line,
    )


def _corners(element: Element) -> tuple[Sequence[tuple[float, float, float]], bool]:
    holder = element.first("outlines") or element
    outline = holder.first("outline")
    if outline is None:
        return [], False
    local = [
        (item.require_float("u"), item.require_float("v"), item.get_float("z") or 0.0)
        for item in outline.all("cornerLocal")
    ]
    if local:
        return local, False
    return [
        (item.require_float("s"), item.require_float("t"), item.get_float("dz") or 0.0)
        for item in outline.all("cornerRoad")
    ], True


def _junction(element: Element, loss: LossReport) -> Junction:
    kind = element.get("type") or "default"
    if kind not in ("default", "direct"):
        # A virtual junction joins the middle of a road; a crossing joins nothing that cars drive.
        loss.count("ignored_junction_type", f"{_at(element)}: {shown(kind)}", len(element.all("connection")))
        element.skip()
        return Junction(element.require("id"), (), ())
    connections = []
    for item in element.all("connection"):
        target = item.get("linkedRoad") if kind == "direct" else item.get("connectingRoad")
        incoming = item.get("incomingRoad")
        if target is None or incoming is None:
            loss.count("dropped_connection", f"{_at(item)}: it names no incoming or no connecting road")
            item.skip()
            continue
        links = tuple((link.require_int("from"), link.require_int("to")) for link in item.all("laneLink"))
        connections.append(Connection(incoming, target, _contact_point(item), links, item.line))
    controllers = tuple(item.require("id") for item in element.all("controller"))
    return Junction(element.require("id"), tuple(connections), controllers)

"""What an OpenDRIVE file says, read into records: roads, sections, lanes, junctions, signals, crosswalks.

Ids and numbers are checked, positions become s along the road, and sections shorter than a centimetre are bridged, as
every reader of such files has to. Where lanes run and how they connect is worked out from the records elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from skidpad.scenes.build import LossReport
from skidpad.scenes.formats.opendrive_planview import at_line, read_course, read_cubics
from skidpad.scenes.formats.opendrive_records import (
    Aliases,
    Connection,
    Crosswalk,
    Junction,
    Lane,
    Link,
    Mark,
    Network,
    Road,
    Section,
    Signal,
)
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.xml import Element, report_unread, shown

SHORTEST_SECTION_M = 0.01
SUPPORTED_MINORS = range(4, 8)
SPEED_UNITS = {"m/s": 1.0, "km/h": 1.0 / 3.6, "mph": 0.44704}
LARGEST_LIMIT = 150.0  # [m/s] 540 km/h; beyond it the number is no speed limit
NO_LIMIT = frozenset({"no limit", "undefined"})

# Known to the format and not used by a scene; counted as ignored_<name>, everything else is unknown.
_IGNORED = """
userData include dataQuality CRGSurface CRG surface railroad station junctionGroup objectReference tunnel bridge
crossfall shape crossSectionSurface object material visibility access rule height dependency reference
positionInertial positionRoad priority surface neighbor sway explicit roadMark/type elevationGrid boundary
license defaultRegulations offset crossPath roadSection trafficIsland laneReference materials
@name header@date header@vendor header@north header@south header@east header@west header@version
lane@level lane@roadWorks lane@advisory lane@dynamicLaneDirection
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
            loss.count("dropped_doubled_junction", f"{at_line(element)}: junction {shown(junction.id)}")
    for element in root.all("controller"):
        network.controllers.setdefault(
            element.require("id"), tuple(control.require("signalId") for control in element.all("control"))
        )
    report_unread(root, loss.count, IGNORED, _KINDS)
    return network


def _header(element: Element, loss: LossReport) -> Network:
    major, minor = element.require_int("revMajor"), element.require_int("revMinor")
    version = f"{major}.{minor}"
    if major != 1:
        raise element.error(f"OpenDRIVE {version}, expected 1.4 to 1.8")
    if minor not in SUPPORTED_MINORS:
        loss.count("assumed_version", f"{at_line(element)}: OpenDRIVE {version} is read as 1.7")
    reference = element.first("geoReference")
    return Network(version, element.get("name") or "", reference.text if reference else "")


# Roads


def _road(element: Element, loss: LossReport, limits: Limits) -> Road:
    name, junction = element.require("id"), element.get("junction")
    course = read_course(element, loss, limits)
    length = element.require_float("length")
    if abs(length - course.length) > SHORTEST_SECTION_M:
        loss.count("repaired_road_length", f"{at_line(element)}: {length:g} m, its geometry {course.length:g} m")
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
        elevation=read_cubics(profile.all("elevation") if profile else [], 0.0, "s"),
        offset=read_cubics(lanes.all("laneOffset"), 0.0, "s"),
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
    if scale is None or not 0.0 < value * scale <= LARGEST_LIMIT:
        loss.count("dropped_speed_limit", f"{at_line(element)}: {shown(text)} {shown(unit or '')}")
        return None
    return value * scale


def _lateral_profile(road: Element, loss: LossReport) -> None:
    profile = road.first("lateralProfile")
    for element in profile.all("superelevation") if profile else []:
        element.require_float("s")
        if any(element.require_float(name) != 0.0 for name in "abcd"):
            loss.count("ignored_superelevation", at_line(element))
            element.skip()


# Lanes


def _sections(lanes: Element, length: float, loss: LossReport) -> tuple[list[Section], Aliases]:
    elements = sorted(lanes.all("laneSection"), key=lambda element: element.require_float("s"))
    if not elements:
        raise lanes.error("expected at least one <laneSection>")
    starts = [element.require_float("s") for element in elements]
    sections: list[Section] = []
    for element, start, end in zip(elements, starts, [*starts[1:], length], strict=True):
        if start < 0.0:
            raise element.error(f"attribute 's' is {start:g} m, expected no negative number")
        section = _section(element, start, min(end, length), loss)
        if element.get("singleSide") == "true" and sections:
            sections[-1], section = _carry_over(sections[-1], section)
        sections.append(section)
    return _bridge_short(sections, lanes, loss)


def _carry_over(before: Section, section: Section) -> tuple[Section, Section]:
    """A section that holds one side only leaves the lanes of the other side as they were: they go on in it."""
    left_out = {id for id in before.lanes if not any(id * other > 0 for other in section.lanes)}
    ended = {id: replace(lane, successors=(id,)) if id in left_out else lane for id, lane in before.lanes.items()}
    going_on = {id: replace(before.lanes[id], predecessors=(id,)) for id in left_out}
    lanes = dict(sorted({**section.lanes, **going_on}.items()))
    return replace(before, lanes=ended), replace(section, lanes=lanes)


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
                loss.count("repaired_lane_side", f"{at_line(item)}: lane {lane.id} under <{side.tag}>")
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
        loss.count("ignored_border", f"{at_line(element)}: the lane has widths too", len(borders))
    direction = element.get("direction")
    return Lane(
        id=element.require_int("id"),
        type=element.get("type") or "none",
        width=read_cubics(widths, start, "sOffset") if widths else None,
        border=read_cubics(borders, start, "sOffset") if borders else None,
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
            loss.count("dropped_short_section", f"{at_line(lanes)}: {length:.3g} m at s {section.start:g} m")
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
        loss.count("ignored_junction_type", f"{at_line(element)}: {shown(kind)}", len(element.all("connection")))
        element.skip()
        return Junction(element.require("id"), (), ())
    connections = []
    for item in element.all("connection"):
        target = item.get("linkedRoad") if kind == "direct" else item.get("connectingRoad")
        incoming = item.get("incomingRoad")
        if target is None or incoming is None:
            loss.count("dropped_connection", f"{at_line(item)}: it names no incoming or no connecting road")
            item.skip()
            continue
        links = tuple((link.require_int("from"), link.require_int("to")) for link in item.all("laneLink"))
        connections.append(Connection(incoming, target, _contact_point(item), links, item.line))
    controllers = tuple(item.require("id") for item in element.all("controller"))
    return Junction(element.require("id"), tuple(connections), controllers)

"""OpenDRIVE signals and crosswalks: which lanes a light or sign controls, and where its stop line lies.

A light usually stands on a pole that controls nothing by itself; references on other roads say what it controls. On a
connecting road of a junction the stop line is where the controlled lane starts, elsewhere it lies at the signal's s.
References of one light that share an approach become one signal with one line across all their lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from skidpad.scenes.build import LossReport, SceneBuilder
from skidpad.scenes.formats.opendrive_geometry import F64
from skidpad.scenes.formats.opendrive_records import Crosswalk, Network, Road, Signal
from skidpad.scenes.formats.opendrive_strips import LaneKey, Strip, Strips, course_at
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    LANE_OTHER,
    LANE_SHOULDER,
    LANE_WALKWAY,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
)

# Lights of the OpenDRIVE catalogue that do not speak to motor vehicles: for walking, walking and cycling, cycling.
OTHER_LIGHTS = frozenset({"1000002", "1000007", "1000013"})
LIGHT = "1000001"
SIGNS = {"206": SIGNAL_STOP, "205": SIGNAL_YIELD}
US_SIGNS = {"R1-1": SIGNAL_STOP, "R1-2": SIGNAL_YIELD}
# Countries whose sign numbers are the German ones; CARLA's towns say OpenDRIVE.
SIGN_COUNTRIES = frozenset({"", "opendrive", "de", "deu", "germany"})

SAME_APPROACH_RAD = 0.35
SAME_LINE_M = 2.0  # along the road; the starts of connecting lanes that fan out from one stop line differ by less
SAME_APPROACH_M = 30.0  # across: wider than any approach
NARROWEST_LINE_M = 0.5
_UNCONTROLLED = frozenset({LANE_SHOULDER, LANE_WALKWAY, LANE_OTHER})


@dataclass(frozen=True, eq=False)
class _Stop:
    """Where one lane has to stop: ends (3,) f64 [m] of the line, seen by the driver, and the direction of travel."""

    key: LaneKey
    left: F64
    right: F64
    heading: float
    junction: str | None


def add_signals(network: Network, strips: Strips, builder: SceneBuilder, loss: LossReport) -> None:
    """Hand every light, stop sign and yield that controls a lane to the builder; count the others."""
    kinds = _kinds(network, loss)
    stops: dict[str, list[_Stop]] = {id: [] for id in kinds}
    for road in network.roads.values():
        for signal in (*road.signals, *road.references):
            if signal.kind is None and signal.id not in kinds:
                if not any(signal.id == item.id for other in network.roads.values() for item in other.signals):
                    loss.count("dropped_dangling_signal", f"line {signal.line}: no signal {signal.id[:60]}")
            elif signal.id in kinds:
                stops[signal.id].extend(_stops(network, road, signal, strips, loss))
    phases = _phases(network, {id for id, kind in kinds.items() if kind == SIGNAL_LIGHT and stops[id]}, loss)
    for id, kind in kinds.items():
        if not stops[id]:
            loss.count("dropped_signal_without_lane", f"signal {id[:60]}")
        for group in _approaches(stops[id]):
            line, heading = _line(group)
            keys = list(dict.fromkeys(stop.key for stop in group))
            junction = group[0].junction
            builder.signal(kind, keys, line=line, heading=heading, junction=junction, phase=phases.get(id, -1))


def _kinds(network: Network, loss: LossReport) -> dict[str, int]:
    """Kind of every signal that a scene knows, by id, in file order."""
    found: dict[str, int] = {}
    seen: set[str] = set()
    for road in network.roads.values():
        for signal in road.signals:
            assert signal.kind is not None, "a signal knows its type, only references do not"
            dynamic, country, type = signal.kind
            if signal.id in seen:
                loss.count("dropped_doubled_signal", f"line {signal.line}: signal {signal.id[:60]}")
                continue
            seen.add(signal.id)
            kind = _kind(dynamic, country.lower(), type)
            if kind is None:
                loss.count("ignored_signal_type", f"line {signal.line}: type {type[:60]!r} of {country[:60]!r}")
            else:
                found[signal.id] = kind
    return found


def _kind(dynamic: bool, country: str, type: str) -> int | None:
    if type in OTHER_LIGHTS:
        return None
    if dynamic or type == LIGHT:
        return SIGNAL_LIGHT
    return (SIGNS if country in SIGN_COUNTRIES else US_SIGNS).get(type)


def _stops(network: Network, road: Road, signal: Signal, strips: Strips, loss: LossReport) -> Iterator[_Stop]:
    index = max((i for i, section in enumerate(road.sections) if section.start <= signal.s), default=0)
    ids = road.sections[index].lanes
    for id in ids:
        strip = strips.lanes.get((road.id, index, id))
        if strip is None or strip.kind in _UNCONTROLLED or not _valid(signal, id):
            continue
        for along in strip.along:
            # A stated validity is trusted over the orientation: in the CARLA towns the two contradict each other.
            if not signal.validity and signal.direction == (-1 if along else 1):
                continue
            yield _stop(network, road, signal, strips, strip, along)


def _valid(signal: Signal, id: int) -> bool:
    return not signal.validity or any(low <= id <= high for low, high in signal.validity)


def _stop(network: Network, road: Road, signal: Signal, strips: Strips, strip: Strip, along: bool) -> _Stop:
    if road.junction is not None:
        strip = strips.lanes.get((road.id, 0 if along else len(road.sections) - 1, strip.key[2]), strip)
        s = float(strip.s[0] if along else strip.s[-1])
    else:
        s = min(max(signal.s, float(strip.s[0])), float(strip.s[-1]))
    left, right = strip.crossing(s, along)
    heading = float(np.interp(s, strip.s, strip.heading)) + (0.0 if along else math.pi)
    if float(np.linalg.norm((left - right)[:2])) < NARROWEST_LINE_M:
        # The lane opens or closes here: the line is as wide as the lane becomes.
        aside = 0.5 * float(np.max(strip.width)) * np.array([-math.sin(heading), math.cos(heading), 0.0])
        middle = 0.5 * (left + right)
        left, right = middle + aside, middle - aside
    return _Stop((*strip.key, along), left, right, heading, _junction_ahead(network, road, along))


def _junction_ahead(network: Network, road: Road, along: bool) -> str | None:
    if road.junction is not None:
        return road.junction
    link = road.ends[1 if along else 0]
    return link.target if link is not None and link.junction and link.target in network.junctions else None


def _approaches(stops: Iterable[_Stop]) -> list[list[_Stop]]:
    """Stops of one light, grouped by the stop line they share."""
    groups: list[list[_Stop]] = []
    for stop in stops:
        for group in groups:
            if _same_line(group[0], stop):
                group.append(stop)
                break
        else:
            groups.append([stop])
    return groups


def _same_line(one: _Stop, other: _Stop) -> bool:
    turn = math.remainder(other.heading - one.heading, 2.0 * math.pi)
    apart = 0.5 * (other.left + other.right - one.left - one.right)
    forward = apart[0] * math.cos(one.heading) + apart[1] * math.sin(one.heading)
    across = -apart[0] * math.sin(one.heading) + apart[1] * math.cos(one.heading)
    return (
        one.junction == other.junction
        and abs(turn) <= SAME_APPROACH_RAD
        and abs(forward) <= SAME_LINE_M
        and abs(across) <= SAME_APPROACH_M
    )


def _line(group: list[_Stop]) -> tuple[F64, float]:
    """The line (2, 3) f64 [m] from the leftmost to the rightmost end of all stops, and their direction [rad]."""
    cos, sin = (sum(f(stop.heading) for stop in group) for f in (math.cos, math.sin))
    heading = math.atan2(sin, cos)
    ends = np.array([end for stop in group for end in (stop.left, stop.right)])
    across = -ends[:, 0] * math.sin(heading) + ends[:, 1] * math.cos(heading)
    return ends[[int(np.argmax(across)), int(np.argmin(across))]], heading


def _phases(network: Network, lights: set[str], loss: LossReport) -> dict[str, int]:
    """Phase of each light, numbered per junction in the order of its controllers.

    Controllers say something about phases only where they share out a junction's lights, each to one controller, and
    one of them holds several. In the CARLA towns every light is in several controllers: those are counted as ignored.
    """
    found: dict[str, int] = {}
    for junction in network.junctions.values():
        groups = [[id for id in network.controllers.get(name, ()) if id in lights] for name in junction.controllers]
        groups = [group for group in groups if group]
        members = [id for group in groups for id in group]
        shared_out = len(members) == len(set(members)) and not set(members) & set(found)
        if shared_out and any(len(group) > 1 for group in groups):
            found.update({id: phase for phase, group in enumerate(groups) for id in group})
        elif junction.controllers:
            loss.count("ignored_controllers", f"junction {junction.id[:60]}: no phases", len(junction.controllers))
    return found


# Crosswalks


def add_crosswalks(roads: Mapping[str, Road], builder: SceneBuilder, loss: LossReport) -> None:
    """Hand every crosswalk to the builder as an area."""
    for road in roads.values():
        for crosswalk in road.crosswalks:
            points = _outline(road, crosswalk)
            extent = np.ptp(points[:, :2], axis=0)
            if len(points) < 3 or not float(np.max(extent)) > 0.1:
                loss.count("dropped_crosswalk", f"line {crosswalk.line}: it has no extent")
                continue
            id = crosswalk.id
            number = int(id) if id.isascii() and id.isdigit() and len(id) <= 18 else -1
            builder.area(points, AREA_CROSSWALK, source_id=number)


def _outline(road: Road, crosswalk: Crosswalk) -> F64:
    corners = np.array(crosswalk.corners, dtype=np.float64)
    if crosswalk.on_road:
        return np.array([_on_road(road, s, t, z) for s, t, z in corners])
    origin = _on_road(road, crosswalk.s, crosswalk.t, crosswalk.z)
    heading = float(course_at(road, crosswalk.s).heading[0]) + crosswalk.heading
    cos, sin = math.cos(heading), math.sin(heading)
    turned = np.stack(
        (cos * corners[:, 0] - sin * corners[:, 1], sin * corners[:, 0] + cos * corners[:, 1], corners[:, 2]), axis=1
    )
    return origin + turned


def _on_road(road: Road, s: float, t: float, z: float) -> F64:
    course = course_at(road, s)
    heading = float(course.heading[0])
    height = float(road.elevation.at(np.array([s]))[0])
    x, y = course.xy[0]
    return np.array([x - t * math.sin(heading), y + t * math.cos(heading), height + z])

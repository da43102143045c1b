"""SUMO road networks, `.net.xml` (R23): lanes, what leads where, light programmes. Traffic is not read.

Lanes of an edge are numbered from the right (`lefthand`: from the left). A connection leads over an internal lane of
its junction, which may lead to a further one. Lights and rules of way belong to connections, so they control the
internal lane, and their stop line is where it begins. Road edges come from lane borders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.xml import Element, parse_float, parse_xml, report_unread, shown
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    LANE_BICYCLE,
    LANE_BUS,
    LANE_OTHER,
    LANE_STREET,
    LANE_WALKWAY,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    STATE_GREEN,
    STATE_OFF,
    STATE_RED,
    STATE_UNKNOWN,
    STATE_YELLOW,
    Scene,
)

F64 = NDArray[np.float64]

FORMAT = "sumo"
OPTIONS: frozenset[str] = frozenset()

WIDTH_M = 3.2  # of a lane that gives none
_HEAD = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<net[\s>]", re.DOTALL)
_LETTERS = {
    **dict.fromkeys("ru", STATE_RED),
    **dict.fromkeys("yY", STATE_YELLOW),
    **dict.fromkeys("Gg", STATE_GREEN),
    **dict.fromkeys("oO", STATE_OFF),
    "s": STATE_YELLOW,  # green after a stop
}
_WAYS = {"m": SIGNAL_YIELD, "s": SIGNAL_STOP, "w": SIGNAL_STOP}
_FUNCTIONS = ("normal", "internal", "connector")
_UNUSED = frozenset(
    {
        *("junction", "request", "type", "param", "roundabout", "neigh", "stopOffset"),
        *("lane@length", "lane@type", "lane@acceleration", "lane@customShape", "lane@endOffset", "lane@changeLeft"),
        *("lane@changeRight", "edge@from", "edge@to", "edge@priority", "edge@type", "edge@shape", "edge@name"),
        *("edge@spreadType", "edge@bidi", "edge@length", "edge@distance", "connection@dir", "connection@uncontrolled"),
        *("connection@keepClear", "connection@contPos", "connection@allow", "connection@disallow", "connection@pass"),
        *(
            "connection@visibility",
            "connection@speed",
            "connection@shape",
            "connection@length",
            "connection@linkIndex2",
        ),
        *("phase@minDur", "phase@maxDur", "phase@name", "phase@next", "location@convBoundary", "location@origBoundary"),
        *("location@projParameter", "net@junctionCornerDetail", "net@rectangularLaneCut", "net@limitTurnSpeed"),
        *("net@walkingareas", "net@junctionLinkDetail", "net@avoidOverlap", "net@checkLaneFoes.all"),
        "net@xsi:noNamespaceSchemaLocation",
    }
)


@dataclass(eq=False)
class _Programme:
    """Phases of a traffic light as (duration [s], a letter for each connection); when the first one begins [s]."""

    offset: float
    phases: list[tuple[float, str]]
    where: str


def sniff(head: bytes, name: str) -> float:
    """1 when the first element is <net>, else 0."""
    return 1.0 if _HEAD.match(head) else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of a network. Raises FormatError, with the line, where it breaks its format or a limit."""
    loss = LossReport()
    root = parse_xml(source.data, source.name, limits)
    if root.tag != "net":
        raise root.error("is the outermost element, expected <net>")
    version, left_hand = root.get("version") or "", (root.get("lefthand") or "") in ("true", "1", "yes")
    stem = source.stem.removesuffix(".net")
    builder = SceneBuilder(stem, "sumo", FORMAT, version, source.digest, loss=loss, limits=limits)
    shift = _net_offset(root)
    ends: dict[str, F64] = {}
    has_z = False
    for edge in root.all("edge"):
        has_z |= _add_edge(edge, shift, left_hand, ends, builder)
    if not ends:
        raise root.error("no edge with lanes inside, expected at least one")
    _add_connections(root, ends, _programmes(root, limits, loss), builder)
    report_unread(root, loss.count, _UNUSED)
    return builder.finish(has_z=has_z, edges_from_borders=True, labels={"lefthand": left_hand})


def _net_offset(root: Element) -> F64:
    location = root.first("location")
    if location is None:
        return np.zeros(3)
    text = location.get("netOffset") or "0,0"
    values = [parse_float(part.strip()) for part in text.split(",")]
    if len(values) != 2 or values[0] is None or values[1] is None or not np.isfinite(np.array(values, float)).all():
        raise location.error(f"netOffset is {shown(text)!r}, expected two numbers")
    return np.array([values[0], values[1], 0.0])


# Lanes


def _add_edge(edge: Element, shift: F64, left_hand: bool, ends: dict[str, F64], builder: SceneBuilder) -> bool:
    """Add the lanes of an edge; whether one has heights."""
    identity, function = edge.require("id"), edge.get("function") or "normal"
    if function not in _FUNCTIONS:
        builder.loss.count(
            f"ignored_{function}" if function in ("crossing", "walkingarea") else "unknown_edge", edge.at
        )
        edge.skip()
        return False
    junction = identity[1:].rpartition("_")[0] if function == "internal" else None
    has_z = False
    keys: dict[int, str] = {}
    for lane in edge.all("lane"):
        key, index = lane.require("id"), lane.require_int("index")
        points = _shape(lane) - shift
        kind, drivable = _use(lane)
        speed, width = lane.require_float("speed"), lane.get_float("width")
        if width is None or width <= 0.0:
            builder.loss.count("assumed_lane_width", f"{lane.at}: lane {shown(key)}: {WIDTH_M} m")
            width = WIDTH_M
        builder.lane(
            key,
            points,
            width=width,
            kind=kind,
            source_id=-1,
            speed_limit=speed if speed > 0.0 else None,
            drivable=drivable,
            junction=junction,
        )
        ends[key] = points[-1]
        keys[index] = key
        has_z |= bool(np.any(points[:, 2]))
    for index, key in keys.items():
        if index + 1 in keys:
            builder.neighbours(*((key, keys[index + 1]) if left_hand else (keys[index + 1], key)))
    return has_z


def _shape(lane: Element) -> F64:
    """The centre line (n, 3) f64 [m] as the file has it, still shifted by its offset."""
    rows = []
    for place in lane.require("shape").split():
        values = [parse_float(part) for part in place.split(",")]
        if len(values) not in (2, 3) or any(value is None or not np.isfinite(value) for value in values):
            raise lane.error(f"shape has the place {shown(place)!r}, expected x,y or x,y,z")
        rows.append([*values, 0.0][:3])
    if len(rows) < 2:
        raise lane.error(f"shape of {len(rows)} places, expected at least 2")
    return np.array(rows, np.float64)


def _use(lane: Element) -> tuple[int, bool]:
    """Lane type, and whether passenger cars may drive there."""
    allow, disallow = (lane.get("allow") or "").split(), (lane.get("disallow") or "").split()

    def may(what: str) -> bool:
        return what in allow or "all" in allow if allow else what not in disallow and "all" not in disallow

    if may("passenger"):
        return LANE_STREET, True
    for what, kind in (("bus", LANE_BUS), ("bicycle", LANE_BICYCLE), ("pedestrian", LANE_WALKWAY)):
        if may(what):
            return kind, False
    return LANE_OTHER, False


# Connections


def _add_connections(
    root: Element, ends: Mapping[str, F64], programmes: Mapping[str, _Programme], builder: SceneBuilder
) -> None:
    connections = root.all("connection")
    leading = {f"{one.require('from')}_{one.require('fromLane')}" for one in connections}
    for one in connections:
        start, end = (
            f"{one.require(edge)}_{one.require(lane)}" for edge, lane in (("from", "fromLane"), ("to", "toLane"))
        )
        via, state, light = one.get("via"), one.get("state") or "", one.get("tl")
        index = one.require_int("linkIndex") if light is not None else -1
        if via is None:
            builder.connect(start, end)
        else:
            builder.connect(start, via)
            if via not in leading:
                builder.connect(via, end)
        if start.startswith(":"):
            continue  # within a junction: who waited at its border has waited
        controlled, where = via if via is not None else end, ends.get(start)
        junction = controlled[1:].rpartition("_")[0].rpartition("_")[0] if controlled.startswith(":") else None
        if light is not None:
            phases = _phases(programmes.get(light), index, one, builder.loss)
            offset = programmes[light].offset if light in programmes else 0.0
            builder.signal(
                SIGNAL_LIGHT, [controlled], point=where, junction=junction, cycle_offset=offset, program=phases
            )
        elif state in _WAYS:
            builder.signal(_WAYS[state], [controlled], point=where, junction=junction)


def _phases(programme: _Programme | None, index: int, one: Element, loss: LossReport) -> list[tuple[float, int]]:
    """The programme of one connection, phases of the same state joined."""
    found: list[tuple[float, int]] = []
    if programme is None:
        loss.count("dropped_dangling_programme", f"{one.at}: no tlLogic of that name")
        return found
    for duration, letters in programme.phases:
        if not 0 <= index < len(letters):
            loss.count("dropped_dangling_programme", f"{programme.where}: no letter {index} in {shown(letters)!r}")
            return []
        letter = letters[index]
        if letter == "s":
            loss.count("assumed_yellow", f"{programme.where}: green after a stop")
        elif letter not in _LETTERS:
            loss.count("unknown_light_state", f"{programme.where}: {letter!r}")
        state = _LETTERS.get(letter, STATE_UNKNOWN)
        if found and found[-1][1] == state:
            found[-1] = (found[-1][0] + duration, state)
        else:
            found.append((duration, state))
    return found


def _programmes(root: Element, limits: Limits, loss: LossReport) -> dict[str, _Programme]:
    """The first programme of each light."""
    found: dict[str, _Programme] = {}
    for logic in root.all("tlLogic"):
        identity, kind = logic.require("id"), logic.get("type") or "static"
        programme, offset = logic.get("programID"), logic.get_float("offset") or 0.0
        phases = []
        for phase in logic.all("phase"):
            duration = phase.require_float("duration")
            letters = phase.require("state")
            if duration > 0.0:
                phases.append((duration, letters))
            else:
                loss.count("dropped_phase", f"{phase.at}: {duration:g} s")
        limits.check("program_phases", len(phases), logic.place)
        if identity in found:
            loss.count("ignored_programme", f"{logic.at}: a further one of light {shown(identity)}, {programme}")
            continue
        if kind != "static":
            loss.count("assumed_static_programme", f"{logic.at}: {shown(kind)}")
        found[identity] = _Programme(offset, phases, logic.at)
    return found

"""Lanelet2 maps in OSM XML (R22): lanelets between two ways, without traffic.

`lanelet2_file` reads nodes, ways and relations; this file turns lanelets the way they are driven and makes lanes of
them. A lanelet that is not one-way is two lanes on the same ground. Rules (`lanelet2_rules`) become lights, stop signs
and yields. Legal speed limits are not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive
from skidpad.scenes.formats.lanelet2_file import Lane, Osm, Relation, place_nodes, read_osm
from skidpad.scenes.formats.lanelet2_rules import add_rules, limits_of, speed
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.xml import parse_xml, report_unread
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    EDGE_BOUNDARY,
    LANE_BICYCLE,
    LANE_BUS,
    LANE_FREEWAY,
    LANE_OTHER,
    LANE_STREET,
    LANE_WALKWAY,
    LINE_BROKEN_WHITE,
    LINE_DOUBLE_WHITE,
    LINE_SOLID_WHITE,
    Scene,
)

FORMAT = "lanelet2"
OPTIONS: frozenset[str] = frozenset()

_ROOT = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<osm[\s>]", re.DOTALL)
_KINDS = {
    "road": LANE_STREET,
    "exit": LANE_STREET,
    "play_street": LANE_STREET,
    "highway": LANE_FREEWAY,
    "bicycle_lane": LANE_BICYCLE,
    "bus_lane": LANE_BUS,
    "walkway": LANE_WALKWAY,
    "shared_walkway": LANE_WALKWAY,
    "stairs": LANE_WALKWAY,
    "rail": LANE_OTHER,
    "emergency_lane": LANE_OTHER,
}
_CROSSWALK = "crosswalk"
_EDGES = frozenset({"curbstone", "road_border", "guard_rail", "wall", "fence"})
_LINES = frozenset({"line_thin", "line_thick"})
_MARKS = {"dashed": LINE_BROKEN_WHITE, "solid_solid": LINE_DOUBLE_WHITE, "double_solid": LINE_DOUBLE_WHITE}
_YELLOWS = {LINE_BROKEN_WHITE: 14, LINE_SOLID_WHITE: 16, LINE_DOUBLE_WHITE: 17}
_UNUSED = frozenset({"@version", "@changeset", "@timestamp", "@user", "@uid", "@generator", "@upload"})
_LANELET_TAGS = frozenset({"type", "subtype", "one_way", "speed_limit"})
_UNUSED_TAGS = frozenset({"location", "region", "turn_direction", "road_type", "road_surface", "dynamic", "name"})


def sniff(head: bytes, name: str) -> float:
    """1 when the first element is <osm>, else 0."""
    return 1.0 if _ROOT.match(head) else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of a map.

    Raises FormatError, with the line, where it breaks its format or a limit, and where it has no lanelet.
    """
    loss = LossReport()
    root = parse_xml(source.data, source.name, limits)
    osm = read_osm(root, loss, limits)
    version = root.get("version") or ""
    report_unread(root, loss.count, _UNUSED | {"bounds"})
    has_z = place_nodes(osm, loss)
    builder = SceneBuilder(source.stem, "", FORMAT, version, source.digest, loss=loss, limits=limits)
    lanes = _lanes(osm, builder)
    if not lanes:
        raise FormatError(f"{source.name}: no lanelet with both borders, expected a Lanelet2 map.")
    _connect(lanes, builder)
    _add_borders(osm, lanes, builder)
    add_rules(osm, lanes, builder)
    for relation in osm.relations.values():
        if relation.kind == "multipolygon":
            loss.count("ignored_multipolygon", f"{relation.where}: {relation.subtype[:60]}")
        elif relation.kind not in ("lanelet", "regulatory_element"):
            loss.count("unknown_relation", f"{relation.where}: {relation.kind[:60]!r}")
    return builder.finish(has_z=has_z, labels={"lanelets": len({lane.relation for lane in lanes})})


# Lanes


def _lanes(osm: Osm, builder: SceneBuilder) -> list[Lane]:
    lanes: list[Lane] = []
    limits = limits_of(osm, builder.loss)
    for relation in osm.relations.values():
        if relation.kind != "lanelet":
            continue
        ways = [_border(osm, relation, role) for role in ("left", "right")]
        if ways[0] is None or ways[1] is None:
            builder.loss.count("dropped_lanelet_without_border", relation.where)
            continue
        lane = _turned(osm, relation.id, ways[0], ways[1])
        _count_tags(relation, builder.loss)
        left, right = osm.line(lane.left), osm.line(lane.right)
        if relation.subtype == _CROSSWALK:
            builder.area(np.concatenate([left, right[::-1]]), AREA_CROSSWALK, relation.id)
            continue
        if relation.subtype not in _KINDS:
            builder.loss.count("unknown_lanelet_subtype", f"{relation.where}: {relation.subtype[:60]!r}")
        kind = _KINDS.get(relation.subtype, LANE_OTHER)
        limit = limits.get(relation.id)
        if "speed_limit" in relation.tags:
            limit = speed(relation.tags["speed_limit"], relation.where, builder.loss) or limit
        one_way = _yes(relation, "one_way", True)
        for one in (lane,) if one_way else (lane, lane.reversed()):
            left, right = osm.line(one.left), osm.line(one.right)
            builder.lane(
                one.key,
                derive.centre_line(left, right),
                kind=kind,
                source_id=relation.id,
                speed_limit=limit,
                drivable=_drivable(relation, kind),
                left=left,
                right=right,
            )
            lanes.append(one)
    return lanes


def _border(osm: Osm, relation: Relation, role: str) -> int | None:
    """The one way of a role, or None where it is missing, doubled, or has no length."""
    ways = [member for kind, member, given in relation.members if (kind, given) == ("way", role)]
    if len(ways) != 1 or ways[0] not in osm.ways or len(osm.ways[ways[0]].nodes) < 2:
        return None
    return ways[0]


def _turned(osm: Osm, relation: int, left: int, right: int) -> Lane:
    """A lanelet with its borders in the direction in which one drives: the left one is on the left."""
    one, other = osm.line((left, True))[:, :2], osm.line((right, True))[:, :2]

    def gap(a: Any, b: Any) -> float:
        return float(np.hypot(*(a - b)))

    same = gap(one[0], other[0]) + gap(one[-1], other[-1]) <= gap(one[0], other[-1]) + gap(one[-1], other[0])
    across = other if same else other[::-1]
    # The area between the borders, run along the left one and back along the right one: clockwise where left is left.
    ring = np.concatenate([one, across[::-1]]) - one[0]
    x, y = ring.T
    ahead = float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) <= 0.0
    return Lane(relation, True, (left, ahead), (right, ahead == same)).with_nodes(osm)


def _drivable(relation: Relation, kind: int) -> bool:
    """By kind, unless the lanelet says who may use it: then vehicles must be among them."""
    who = {key: value for key, value in relation.tags.items() if key.startswith("participant")}
    by_kind = kind in (LANE_STREET, LANE_FREEWAY)
    if not who:
        return by_kind
    vehicles = [key for key in who if key == "participant" or key.startswith("participant:vehicle")]
    return by_kind and any(_yes(relation, key, False) for key in vehicles)


def _yes(relation: Relation, key: str, absent: bool) -> bool:
    value = relation.tags.get(key)
    if value is None:
        return absent
    if value.lower() not in ("yes", "true", "no", "false", "1", "0"):
        raise FormatError(f"{relation.where}: {key} is {value[:60]!r}, expected yes, no, true or false.")
    return value.lower() in ("yes", "true", "1")


def _count_tags(relation: Relation, loss: LossReport) -> None:
    for key in relation.tags:
        if key in _UNUSED_TAGS:
            loss.count(f"ignored_{key}", relation.where)
        elif key not in _LANELET_TAGS and not key.startswith("participant"):
            loss.count("unknown_tag", f"{relation.where}: {key[:60]!r}")


def _connect(lanes: list[Lane], builder: SceneBuilder) -> None:
    """Successors share the nodes at both ends, neighbours a border that both run along the same way."""
    starting: dict[tuple[int, int], list[Lane]] = {}
    on_left: dict[tuple[int, bool], list[Lane]] = {}
    for lane in lanes:
        starting.setdefault(lane.start, []).append(lane)
        on_left.setdefault(lane.left, []).append(lane)
    for lane in lanes:
        for other in starting.get(lane.end, []):
            builder.connect(lane.key, other.key)
        for other in on_left.get(lane.right, []):
            builder.neighbours(lane.key, other.key)


def _add_borders(osm: Osm, lanes: list[Lane], builder: SceneBuilder) -> None:
    """Kerbs and paint: each way once, a kerb with the road on its left."""
    used: dict[int, tuple[int, bool]] = {}
    for lane in lanes:
        for way, ahead in ((lane.left[0], not lane.left[1]), lane.right):
            used.setdefault(way, (way, ahead))
    for way, oriented in used.items():
        kind, subtype = osm.ways[way].tags.get("type", ""), osm.ways[way].tags.get("subtype", "")
        if kind in _EDGES:
            builder.edge(osm.line(oriented), EDGE_BOUNDARY, way)
        elif kind in _LINES:
            mark = _MARKS.get(subtype, LINE_SOLID_WHITE)
            is_yellow = osm.ways[way].tags.get("color", "") == "yellow"
            builder.line(osm.line((way, True)), _YELLOWS[mark] if is_yellow else mark, way)
        elif kind != "virtual":
            builder.loss.count("ignored_border", f"way {way}: {kind[:60]!r}")
    for way in osm.ways:
        if way not in used:
            builder.loss.count("ignored_way", f"way {way}: {osm.ways[way].tags.get('type', '')[:60]!r} is no border")

"""Regulatory elements of a Lanelet2 map (R22): who waits where, and how fast one may go."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.lanelet2_file import Lane, Osm, Relation
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import SIGNAL_LIGHT, SIGNAL_STOP, SIGNAL_YIELD

F64 = NDArray[np.float64]

_NEAR_M = 10.0  # a stop line farther from a lanelet's end is of another one
_UNITS = {"": 1 / 3.6, "km/h": 1 / 3.6, "kmh": 1 / 3.6, "kph": 1 / 3.6, "mph": 0.44704, "m/s": 1.0, "mps": 1.0}
_SPEED = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z/]*)\s*", re.IGNORECASE)
_SIGN_SPEED = re.compile(r"[a-z]{2}:?274[-.:]([0-9]{1,3})", re.IGNORECASE)
_STOP, _YIELD = re.compile(r"206|r1-1|stop", re.IGNORECASE), re.compile(r"205|r1-2|yield", re.IGNORECASE)


def speed(text: str, where: str, loss: LossReport) -> float | None:
    """A speed limit [m/s] from a tag, in km/h unless it says otherwise; None, counted, where it is none."""
    found = _SPEED.fullmatch(text)
    scale = _UNITS.get(found[2].lower()) if found else None
    if found is None or scale is None or float(found[1]) <= 0.0:
        loss.count("dropped_speed_limit", f"{where}: {text[:60]!r}")
        return None
    return float(found[1]) * scale


def limits_of(osm: Osm, loss: LossReport) -> dict[int, float]:
    """Speed limits [m/s] by lanelet, of the rules that it names."""
    found: dict[int, float] = {}
    for relation in osm.relations.values():
        for rule in _rules(osm, relation):
            if rule.subtype == "speed_limit":
                limit = _limit_of_rule(osm, rule, loss)
                if limit is not None:
                    found[relation.id] = limit
    return found


def _limit_of_rule(osm: Osm, rule: Relation, loss: LossReport) -> float | None:
    for key in ("speed_limit", "limit"):
        if key in rule.tags:
            return speed(rule.tags[key], rule.where, loss)
    for sign in [rule.tags.get("sign_type", ""), *_signs(osm, rule)]:
        if found := _SIGN_SPEED.fullmatch(sign):
            return float(found[1]) / 3.6
    loss.count("dropped_speed_limit", f"{rule.where}: no value of its own or of its signs")
    return None


def _rules(osm: Osm, lanelet: Relation) -> list[Relation]:
    """The rules that a lanelet names and that are there."""
    if lanelet.kind != "lanelet":
        return []
    named = [member for kind, member, role in lanelet.members if (kind, role) == ("relation", "regulatory_element")]
    return [osm.relations[one] for one in named if one in osm.relations]


def _signs(osm: Osm, rule: Relation) -> list[str]:
    """Subtypes of the signs that a rule refers to."""
    ways = [member for kind, member, role in rule.members if kind == "way" and role == "refers" and member in osm.ways]
    return [osm.ways[way].tags.get("subtype", "") for way in ways]


def add_rules(osm: Osm, lanes: Sequence[Lane], builder: SceneBuilder) -> None:
    """Lights, stop signs and yields, in the order of the file."""
    by_lanelet: dict[int, list[Lane]] = {}
    for lane in lanes:
        by_lanelet.setdefault(lane.relation, []).append(lane)
    naming: dict[int, list[int]] = {}
    for relation in osm.relations.values():
        for rule in _rules(osm, relation):
            naming.setdefault(rule.id, []).append(relation.id)
    for rule in osm.relations.values():
        if rule.kind != "regulatory_element" or rule.subtype == "speed_limit":
            continue
        yielding = [member for kind, member, role in rule.members if kind == "relation" and role == "yield"]
        signs = " ".join(_signs(osm, rule))
        if rule.subtype == "traffic_light":
            _add(osm, rule, SIGNAL_LIGHT, naming.get(rule.id, []), by_lanelet, builder)
        elif rule.subtype in ("right_of_way", "all_way_stop") and yielding:
            stops = rule.subtype == "all_way_stop" or (_STOP.search(signs) and not _YIELD.search(signs))
            _add(osm, rule, SIGNAL_STOP if stops else SIGNAL_YIELD, yielding, by_lanelet, builder)
        elif rule.subtype == "traffic_sign" and (_STOP.search(signs) or _YIELD.search(signs)):
            kind = SIGNAL_STOP if _STOP.search(signs) else SIGNAL_YIELD
            _add(osm, rule, kind, naming.get(rule.id, []), by_lanelet, builder)
        else:
            builder.loss.count("ignored_rule", f"{rule.where}: {rule.subtype[:60]!r} {signs[:60]}")


def _add(
    osm: Osm,
    rule: Relation,
    kind: int,
    lanelets: Sequence[int],
    by_lanelet: dict[int, list[Lane]],
    builder: SceneBuilder,
) -> None:
    """A signal over all lanes that end at the rule's stop line, and one at the end of each other lane."""
    references = [member for what, member, role in rule.members if what == "way" and role == "ref_line"]
    lines = [osm.line((way, True)) for way in references if way in osm.ways and len(osm.ways[way].nodes) > 1]
    line = lines[0][[0, -1]] if lines else None
    waiting: list[Lane] = []
    for lanelet in lanelets:
        both = by_lanelet.get(lanelet, [])
        if not both:
            builder.loss.count("dropped_dangling_signal_lane", f"{rule.where}: lanelet {lanelet}")
            continue
        # Of a lanelet that is driven both ways, the lane that ends nearer to the line is meant.
        waiting.append(both[0] if line is None else min(both, key=lambda one: _gap(osm, one, line)))
    at_line = [lane for lane in waiting if line is not None and _gap(osm, lane, line) <= _NEAR_M]
    if at_line:
        builder.signal(kind, [lane.key for lane in at_line], line=line)
    for lane in waiting:
        if lane not in at_line:
            builder.loss.count("assumed_stop_line_at_end", f"{rule.where}: lanelet {lane.relation}")
            builder.signal(kind, [lane.key])


def _gap(osm: Osm, lane: Lane, line: F64 | None) -> float:
    """Metres from the end of a lane to the middle of a line."""
    end = 0.5 * (osm.place[lane.end[0]] + osm.place[lane.end[1]])
    return 0.0 if line is None else float(np.hypot(*(end - line.mean(axis=0))[:2]))

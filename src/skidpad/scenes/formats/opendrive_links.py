"""Which OpenDRIVE lanes follow which: links, contact points, junction connections and the rule of the traffic.

All of them reduce to joints. A joint says that one end of a strip meets an end of another; which of the two leads into
the other follows from how they are driven.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from skidpad.scenes.build import LossReport, SceneBuilder
from skidpad.scenes.formats.opendrive_geometry import F64
from skidpad.scenes.formats.opendrive_records import Connection, Link, Network, Road
from skidpad.scenes.formats.opendrive_strips import Strip, StripKey, Strips
from skidpad.scenes.scene import LANE_BICYCLE, LANE_BUS, LANE_FREEWAY, LANE_STREET

CLOSE_JOINT_M = 0.1  # ends farther apart than this are counted (R17)
LARGEST_JOINT_M = 5.0  # no lane is left there and entered here in one step of driving
_DRIVEN = frozenset({LANE_FREEWAY, LANE_STREET, LANE_BICYCLE, LANE_BUS})

End = tuple[StripKey, int]  # 0 where s is small, 1 where it is large


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
    connected = False
    for along in one.along:
        for other_along in other.along:
            leaves, enters = along == (first[1] == 1), other_along == (second[1] == 0)
            if leaves and enters:
                builder.connect((*one.key, along), (*other.key, other_along))
            elif not leaves and not enters:
                builder.connect((*other.key, other_along), (*one.key, along))
            connected |= leaves == enters
    if connected and gap > CLOSE_JOINT_M:
        loss.count("assumed_link_over_gap", f"{where}: {gap:.2f} m")
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

"""From what a builder collected to the arrays of a road map: keys to numbers, links, short lanes, neighbours.

Pieces are float64 and already in the local frame.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes import csr, polyline
from skidpad.scenes.formats import derive
from skidpad.scenes.formats.ribbons import LaneShape
from skidpad.scenes.loss import LossReport
from skidpad.scenes.pieces import LanePiece, OtherPiece, Pieces, SignalPiece
from skidpad.scenes.polyline import F64
from skidpad.scenes.scene import AREA_UNKNOWN, LANE_HAS_STOP_SIGN, SIGNAL_STOP, RoadMap

SHORTEST_LANE_M = 0.1
# A lane that is its own successor is a ring only if its ends meet.
RING_GAP_M = 0.5
# Neighbours touch where their centre lines are no farther apart than their half widths and this.
TOUCH_GAP_M = 1.0


@dataclass(eq=False)
class LaneGraph:
    """Links between lane numbers while lanes are still merged: who follows whom, and where merged lanes went."""

    exits: list[set[int]]
    entries: list[set[int]]
    gone: dict[int, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]], lanes: int) -> LaneGraph:
        graph = cls([set() for _ in range(lanes)], [set() for _ in range(lanes)])
        for one, other in pairs:
            graph.link(one, other)
        return graph

    def link(self, one: int, other: int) -> None:
        self.exits[one].add(other)
        self.entries[other].add(one)

    def remove(self, lane: int, into: int | None) -> None:
        for other in self.exits[lane]:
            self.entries[other].discard(lane)
        for other in self.entries[lane]:
            self.exits[other].discard(lane)
        self.exits[lane], self.entries[lane] = set(), set()
        self.gone[lane] = into

    def successor_of(self, lane: int) -> int | None:
        """Where a lane went: itself, the lane it was merged into, or None when it was dropped."""
        current: int | None = lane
        while current is not None and current in self.gone:
            current = self.gone[current]
        return current


def drop_false_rings(lanes: Sequence[LanePiece], pairs: list[tuple[int, int]], loss: LossReport) -> None:
    """Take out lanes that name themselves as successor although their ends do not meet, in place."""
    for pair in [pair for pair in pairs if pair[0] == pair[1]]:
        lane = lanes[pair[0]]
        gap = float(np.hypot(*(lane.centre[-1, :2] - lane.centre[0, :2])))
        if gap > RING_GAP_M:
            pairs.remove(pair)
            loss.count("dropped_own_successor", f"{lane.name}: its ends are {gap:.1f} m apart")


def merge_short_lanes(lanes: Sequence[LanePiece], graph: LaneGraph, loss: LossReport) -> None:
    """Merge each lane shorter than SHORTEST_LANE_M into its only entry or its only exit, in place (S2).

    A short lane with several of both is kept and counted, unless it has no length at all.
    """
    for index, lane in enumerate(lanes):
        length = lane.length
        if length >= SHORTEST_LANE_M:
            continue
        entries, exits = graph.entries[index] - {index}, graph.exits[index] - {index}
        if len(entries) == 1:
            (into,) = entries
            if graph.exits[into] == {index}:
                _append(lanes[into], lane, at_end=True)
            links = [(into, other) for other in exits]
        elif len(exits) == 1:
            (into,) = exits
            if graph.entries[into] == {index}:
                _append(lanes[into], lane, at_end=False)
            links = [(other, into) for other in entries]
        elif length >= polyline.SHORTEST_SEGMENT_M:
            loss.count("ignored_short_lane", f"{lane.name}: {length * 100:.1f} cm long, kept")
            continue
        else:
            graph.remove(index, None)
            loss.count("dropped_lane_without_length", lane.name)
            continue
        graph.remove(index, into)
        for one, other in links:
            graph.link(one, other)
        loss.count("repaired_short_lane", f"{lane.name}: {length * 100:.1f} cm long, merged into {lanes[into].name}")


def _append(lane: LanePiece, short: LanePiece, *, at_end: bool) -> None:
    def joined(one: Any, other: Any) -> Any:
        return np.concatenate([one, other] if at_end else [other, one])

    if lane.left is not None and short.left is not None:
        lane.left = joined(lane.left, short.left)
    if lane.right is not None and short.right is not None:
        lane.right = joined(lane.right, short.right)
    lane.centre = joined(lane.centre, short.centre)
    lane.width = joined(lane.width, short.width)


class ResolvedLanes(NamedTuple):
    """Lanes by number: what is left of them after merging.

    lanes       cleaned pieces, in the order they were added
    exits       (from, to) lane numbers
    neighbours  (left, right) lane numbers
    signals     signals that control at least one lane, their `lanes` filled in
    """

    lanes: list[LanePiece]
    exits: list[tuple[int, int]]
    neighbours: list[tuple[int, int]]
    signals: list[SignalPiece]


def resolve(pieces: Pieces, loss: LossReport) -> ResolvedLanes:
    """Resolve keys to numbers, drop and count what dangles (R8), merge short lanes, and clean the rest."""
    exits = _known(pieces, pieces.links, "dropped_dangling_link", loss)
    neighbours = _known(pieces, pieces.neighbours, "dropped_dangling_neighbour", loss)
    drop_false_rings(pieces.lanes, exits, loss)
    graph = LaneGraph.of(exits, len(pieces.lanes))
    merge_short_lanes(pieces.lanes, graph, loss)
    left = [index for index in range(len(pieces.lanes)) if index not in graph.gone]
    number = {index: row for row, index in enumerate(left)}
    lanes = [pieces.lanes[index] for index in left]
    for lane in lanes:
        lane.centre, keep = polyline.drop_short_segments(lane.centre)
        lane.width = lane.width[keep]
        loss.count("dropped_zero_length_segment", lane.name, int((~keep).sum()))
    signals = []
    for position, signal in enumerate(pieces.signals):
        if _resolve_signal(signal, f"signal {position}", pieces, graph, number, loss):
            signals.append(signal)
            for lane_number in signal.lanes if signal.kind == SIGNAL_STOP else ():
                lanes[lane_number].flags |= LANE_HAS_STOP_SIGN
    links = [(number[one], number[other]) for one in left for other in sorted(graph.exits[one])]
    pairs = [(number[one], number[other]) for one, other in neighbours if one in number and other in number]
    return ResolvedLanes(lanes, links, pairs, signals)


def _known(
    pieces: Pieces, pairs: Iterable[tuple[Hashable, Hashable]], kind: str, loss: LossReport
) -> list[tuple[int, int]]:
    known = []
    for one, other in pairs:
        if one in pieces.lane_of_key and other in pieces.lane_of_key:
            known.append((pieces.lane_of_key[one], pieces.lane_of_key[other]))
        else:
            loss.count(kind, f"lane {one!r} and lane {other!r}")
    return known


def _resolve_signal(
    signal: SignalPiece, name: str, pieces: Pieces, graph: LaneGraph, number: Mapping[int, int], loss: LossReport
) -> bool:
    """Fill in the lane numbers of a signal; False when it controls no lane."""
    lost = [key for key in signal.keys if key not in pieces.lane_of_key]
    if lost:
        loss.count("dropped_dangling_signal_lane", f"{name}: lane {lost[0]!r}", len(lost))
    found = [graph.successor_of(pieces.lane_of_key[key]) for key in signal.keys if key in pieces.lane_of_key]
    signal.lanes = list(dict.fromkeys(number[lane] for lane in found if lane is not None))
    if not signal.lanes:
        loss.count("dropped_signal_without_lane", name)
    return bool(signal.lanes)


def clean_others(others: Iterable[OtherPiece], loss: LossReport) -> list[OtherPiece]:
    """Clean lines, edges and areas in place; those of which something is left. Areas are opened."""
    kept = []
    for other in others:
        points, least = other.points, 2
        if other.kind >= AREA_UNKNOWN:
            least = 3
            if len(points) > 1 and np.array_equal(points[0], points[-1]):
                points = points[:-1]
        other.points, keep = polyline.drop_short_segments(points)
        loss.count("dropped_zero_length_segment", other.name, int((~keep).sum()))
        if len(other.points) >= least:
            kept.append(other)
        else:
            loss.count("dropped_shape_without_extent", f"{other.name}: {len(other.points)} points")
    return kept


def derived_edges(lanes: Sequence[LanePiece], loss: LossReport) -> list[OtherPiece]:
    """Road edges from the outer lane borders (R10 a), cleaned."""
    shapes = [LaneShape(lane.centre, lane.border(True), lane.border(False), lane.kind, lane.drivable) for lane in lanes]
    found = [
        OtherPiece(points.astype(np.float32).astype(np.float64), kind, -1)
        for points, kind in derive.edges_from_borders(shapes)
    ]
    return clean_others(found, loss)


def touching_ranges(one: LanePiece, other: LanePiece) -> tuple[int, int, int, int] | None:
    """Where two neighbours touch: first and last point of the one, first and last of the other; None if nowhere.

    Points are counted from 0 within each lane.
    """
    reach = 0.5 * (float(one.width.max()) + float(other.width.max())) + TOUCH_GAP_M
    own = np.flatnonzero(polyline.project(other.centre, one.centre[:, :2]).distance <= reach)
    its = np.flatnonzero(polyline.project(one.centre, other.centre[:, :2]).distance <= reach)
    if not len(own) or not len(its):
        return None
    return int(own[0]), int(own[-1]), int(its[0]), int(its[-1])


def pack_road(
    lanes: Sequence[LanePiece],
    others: Sequence[OtherPiece],
    exits: Sequence[tuple[int, int]],
    neighbours: Sequence[tuple[int, int]],
    loss: LossReport,
) -> RoadMap:
    """Concatenate everything into a RoadMap.

    lanes, others  cleaned pieces: >= 2 points, no segment shorter than polyline.SHORTEST_SEGMENT_M
    exits          (from, to) lane numbers
    neighbours     (left, right) lane numbers
    """
    shapes = [lane.centre for lane in lanes] + [other.points for other in others]
    counts = [len(shape) for shape in shapes]
    element_points = np.zeros(len(shapes) + 1, np.int32)
    np.cumsum(counts, out=element_points[1:])
    width = np.zeros(int(element_points[-1]))
    if lanes:
        width[: element_points[len(lanes)]] = np.concatenate([lane.width for lane in lanes])
    exit_offset, exit_lane = csr.from_pairs(exits, len(lanes))
    entry_offset, entry_lane = csr.transpose(exit_offset, exit_lane)
    left, right = _neighbour_tables(lanes, neighbours, element_points, loss)
    return RoadMap(
        element_type=np.array([lane.kind for lane in lanes] + [other.kind for other in others], np.uint8),
        element_points=element_points,
        xyz=_joined(shapes, 3),
        arc=_joined([polyline.arc_lengths(shape) for shape in shapes], 0),
        direction=_joined([polyline.directions(shape) for shape in shapes], 2),
        width=width.astype(np.float32),
        lane_element=np.arange(len(lanes), dtype=np.int32),
        speed_limit=np.array([lane.speed_limit for lane in lanes], np.float32),
        drivable=np.array([lane.drivable for lane in lanes], np.bool_),
        lane_junction=np.array([lane.junction for lane in lanes], np.int32),
        lane_flags=np.array([lane.flags for lane in lanes], np.uint8),
        entry_offset=entry_offset,
        entry_lane=entry_lane,
        exit_offset=exit_offset,
        exit_lane=exit_lane,
        left_offset=left[0],
        left_lane=left[1],
        left_range=left[2],
        right_offset=right[0],
        right_lane=right[1],
        right_range=right[2],
        source_id=np.array([lane.source_id for lane in lanes] + [other.source_id for other in others], np.int64),
    )


def _joined(parts: Sequence[F64], columns: int) -> NDArray[np.float32]:
    empty = np.zeros((0, columns) if columns else 0)
    return np.concatenate([empty, *parts]).astype(np.float32)


NeighbourTable = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


def _neighbour_tables(
    lanes: Sequence[LanePiece], pairs: Sequence[tuple[int, int]], first: NDArray[np.int32], loss: LossReport
) -> tuple[NeighbourTable, NeighbourTable]:
    left: list[tuple[int, int, list[int]]] = []
    right: list[tuple[int, int, list[int]]] = []
    for left_lane, right_lane in sorted(set(pairs)):
        touch = touching_ranges(lanes[left_lane], lanes[right_lane])
        if touch is None:
            loss.count("dropped_neighbours_apart", f"{lanes[left_lane].name} and {lanes[right_lane].name}")
            continue
        its = [int(first[left_lane]) + touch[0], int(first[left_lane]) + touch[1]]
        own = [int(first[right_lane]) + touch[2], int(first[right_lane]) + touch[3]]
        left.append((right_lane, left_lane, own + its))
        right.append((left_lane, right_lane, its + own))
    return _table(left, len(lanes)), _table(right, len(lanes))


def _table(rows: list[tuple[int, int, list[int]]], lanes: int) -> NeighbourTable:
    rows.sort(key=lambda row: row[:2])
    offset, lane = csr.from_pairs([(row[0], row[1]) for row in rows], lanes)
    return offset, lane, np.array([row[2] for row in rows], np.int32).reshape(-1, 4)

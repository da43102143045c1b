"""Which lanes a logged track drove (S60): the cheapest explanation of all its rows at once.

Row by row, several lanes may fit, above all where the branches of a junction lie on each other; knowing the whole log,
the branch that fits in the end is the right one from its start. So the lanes of a track are chosen together, by
dynamic programming over (row, lane): a row costs what the lane assignment of the simulator would charge (S70), staying
and following an exit cost next to nothing, a lane change more, a jump most. Gaps are bridged along exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes import csr, polyline
from skidpad.scenes.lanes import connected, neighbours, shortest_path
from skidpad.scenes.scene import (
    I32,
    LANE_BICYCLE,
    LANE_OTHER,
    LANE_WALKWAY,
    TYPE_CYCLIST,
    TYPE_VEHICLE,
    RoadMap,
    Tracks,
)

F64 = NDArray[np.float64]

# Scores of S70: 0.7 per 4 m of distance, 0.3 per half turn of heading.
_DISTANCE_COST, _HEADING_COST = 0.7 / 4.0, 0.3 / np.pi
LEVEL_GATE_M = 4.0
# Farther than this from its centre line nobody drives on a lane.
REACH_M = 9.0
MOST_TURNED_RAD = np.pi / 2.0
# Being on no lane costs more than the farthest lane that is still worth considering, so it is the last resort.
_NO_LANE_COST = 2.0
_EXIT_COST, _LANE_CHANGE_COST, _JUMP_COST = 0.05, 1.0, 4.0
# A gap is bridged only where the log could have driven it.
_BRIDGE_M = 500.0

# Lanes are found by samples of their centre lines: a point within REACH_M of a lane is within
# REACH_M + _SAMPLE_M / 2 < _CELL_M of a sample, hence in one of the 3 x 3 cells around it.
_CELL_M, _SAMPLE_M = 16.0, 8.0
_MOST_SAMPLES = 20_000_000


def match_routes(road: RoadMap, tracks: Mapping[str, NDArray[Any]]) -> tuple[I32, I32, I32]:
    """Routes of logged tracks.

    tracks  the (N, T) arrays x, y, z, heading, valid of `Tracks`, and type (N,)

    Returns route_offset (N + 1,), route_lane and route_gt_lanes (N,), all i32. Consecutive lanes of a route are
    connected by an exit, or are neighbours where the log changes lanes. Only vehicles and cyclists have routes. A
    track that leaves the road for good has the part of its route that explains the most rows.
    """
    routes: list[list[int]] = []
    finder = _LaneFinder(road) if road.lane_count and len(tracks["type"]) else None
    for track, kind in enumerate(tracks["type"].tolist()):
        rows = np.flatnonzero(tracks["valid"][track])
        if finder is None or kind not in (TYPE_VEHICLE, TYPE_CYCLIST) or not len(rows):
            routes.append([])
            continue
        xyz = np.stack([tracks[axis][track, rows] for axis in ("x", "y", "z")], axis=1).astype(float)
        lanes = _allowed(road, finder.near(xyz), kind)
        matched = _match(road, lanes, xyz, tracks["heading"][track, rows].astype(float))
        routes.append(_bridged(road, matched))
    offset, lane = csr.pack(routes)
    # Bridges lie between lanes that the log visited, so the log supports all of a route.
    return offset, lane, np.diff(offset).astype(np.int32)


def lanes_of_rows(road: RoadMap, tracks: Tracks, track: int) -> I32:
    """The lane a logged vehicle or cyclist is on at each row, chosen as for its route: (T,) i32, -1 where it is on none
    or not there."""
    found = np.full(tracks.valid.shape[1], -1, np.int32)
    rows = np.flatnonzero(tracks.valid[track])
    if not road.lane_count or not len(rows):
        return found
    xyz = np.stack([getattr(tracks, axis)[track, rows] for axis in ("x", "y", "z")], axis=1).astype(float)
    lanes = _allowed(road, _LaneFinder(road).near(xyz), int(tracks.type[track]))
    runs = _match(road, lanes, xyz, tracks.heading[track, rows].astype(float))
    found[rows] = np.repeat([lane for lane, _ in runs], [count for _, count in runs])
    return found


def _allowed(road: RoadMap, lanes: I32, kind: int) -> I32:
    types = road.element_type[road.lane_element[lanes]]
    foreign = np.isin(types, [LANE_WALKWAY, LANE_OTHER])
    if kind == TYPE_VEHICLE:
        foreign |= types == LANE_BICYCLE
    return lanes[~foreign]


def _match(road: RoadMap, lanes: I32, xyz: F64, heading: F64) -> list[tuple[int, int]]:
    """The lane of each row as runs of (lane, rows); -1 = on no lane."""
    count = len(lanes)
    costs = np.full((len(xyz), count + 1), _NO_LANE_COST)
    for column, lane in enumerate(lanes.tolist()):
        costs[:, column] = _row_costs(road, lane, xyz, heading)
    change = np.full((count + 1, count + 1), _JUMP_COST)
    position = {lane: column for column, lane in enumerate(lanes.tolist())}
    for lane, column in position.items():
        for other in neighbours(road, lane):
            if other in position:
                change[column, position[other]] = _LANE_CHANGE_COST
        for other in road.exits(lane).tolist():
            if other in position:
                change[column, position[other]] = _EXIT_COST
    np.fill_diagonal(change, 0.0)
    runs: list[tuple[int, int]] = []
    for column in _cheapest_path(costs, change):
        lane = int(lanes[column]) if column < count else -1
        if runs and runs[-1][0] == lane:
            runs[-1] = (lane, runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return runs


def _row_costs(road: RoadMap, lane: int, xyz: F64, heading: F64) -> F64:
    """(rows,) f64: what it costs to be on a lane, +inf where it is out of reach, on another level or turned away."""
    where = road.lane_points(lane)
    points = road.xyz[where].astype(float)
    place = polyline.project(points, xyz[:, :2])
    forward = road.direction[where][place.segment]
    turned = np.abs(np.remainder(heading - np.arctan2(forward[:, 1], forward[:, 0]) + np.pi, 2.0 * np.pi) - np.pi)
    level = points[place.segment, 2] + place.fraction * (points[place.segment + 1, 2] - points[place.segment, 2])
    cost = _DISTANCE_COST * place.distance + _HEADING_COST * turned
    out = (place.distance > REACH_M) | (turned > MOST_TURNED_RAD) | (np.abs(xyz[:, 2] - level) > LEVEL_GATE_M)
    return np.where(out, np.inf, cost)


def _cheapest_path(costs: F64, change: F64) -> list[int]:
    """Column of each row that makes the sum of costs (T, C) and changes (C, C) least; lower columns on ties."""
    steps, columns = costs.shape
    came_from = np.zeros((steps, columns), np.intp)
    total = costs[0]
    for row in range(1, steps):
        through = total[:, None] + change
        came_from[row] = through.argmin(axis=0)
        total = through[came_from[row], np.arange(columns)] + costs[row]
    path = [int(total.argmin())]
    for row in range(steps - 1, 0, -1):
        path.append(int(came_from[row, path[-1]]))
    return path[::-1]


def _bridged(road: RoadMap, runs: list[tuple[int, int]]) -> list[int]:
    """Connect the runs along exits; where that is impossible keep the connected part with the most rows."""
    parts: list[tuple[int, list[int]]] = []
    for lane, rows in runs:
        if lane < 0:
            continue
        if parts:
            count, route = parts[-1]
            way = [route[-1], lane] if connected(road, route[-1], lane) else _way(road, route[-1], lane)
            if way is not None:
                parts[-1] = (count + rows, route + way[1:])
                continue
        parts.append((rows, [lane]))
    return max(parts, key=lambda part: part[0])[1] if parts else []


def _way(road: RoadMap, one: int, other: int) -> list[int] | None:
    return shortest_path(road, one, other, _BRIDGE_M)


class _LaneFinder:
    """Finds the lanes near a path, through a hash of cells."""

    def __init__(self, road: RoadMap) -> None:
        segments = np.diff(road.element_points) - 1
        element = road.lane_element.astype(np.int64)
        count = segments[element]
        lane = np.repeat(np.arange(road.lane_count), count)
        start = np.repeat(road.element_points[element].astype(np.int64), count) + _within(count)
        length = (road.arc[start + 1] - road.arc[start]).astype(float)
        pieces = np.maximum(np.ceil(length / _SAMPLE_M), 1).astype(np.int64)
        if int(pieces.sum()) > _MOST_SAMPLES:
            raise FormatError(
                f"its lanes are {length.sum() / 1000:.0f} km long together, too much to match tracks to. Cut the map."
            )
        row = np.repeat(np.arange(len(start)), pieces)
        share = (_within(pieces) + 0.5) / pieces[row]
        first = road.xyz[start[row], :2].astype(float)
        xy = first + share[:, None] * (road.xyz[start[row] + 1, :2] - first)
        pairs = np.unique(np.stack([_cell_key(xy), lane[row]], axis=1), axis=0)
        self._key, self._lane = pairs[:, 0], pairs[:, 1].astype(np.int32)

    def near(self, xyz: F64) -> I32:
        """Every lane that has a point within REACH_M of one of the places, and others near by: ascending (k,) i32."""
        around = np.array([(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]) * _CELL_M
        keys = np.unique(_cell_key((xyz[:, None, :2] + around).reshape(-1, 2)))
        first, last = np.searchsorted(self._key, keys, "left"), np.searchsorted(self._key, keys, "right")
        found = [self._lane[one:other] for one, other in zip(first.tolist(), last.tolist(), strict=True)]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int32)


def _within(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... count[0] - 1, 0, 1, ... count[1] - 1, and so on."""
    total = int(count.sum())
    return np.arange(total) - np.repeat(np.cumsum(count) - count, count)


def _cell_key(xy: F64) -> NDArray[np.int64]:
    cell = np.floor(xy / _CELL_M).astype(np.int64)
    return (cell[:, 0] << 32) + cell[:, 1]

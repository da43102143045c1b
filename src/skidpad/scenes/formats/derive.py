"""What some formats lack and the simulator needs, built from what they have (R10): road edges from lane borders, the
lane graph from centre lines, widths from borders, stop lines from a point, velocities from positions.

Everything here is float64, in the frame of the file or in the local one; nothing is read from a Scene. Routes (R10 f)
are `scenes/routes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes import polyline
from skidpad.scenes.formats.ribbons import LEVEL_M, LaneShape, Ribbons, at_share, shares_of_length
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_OTHER, LANE_WALKWAY

F64 = NDArray[np.float64]
Indices = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

INSIDE_M = 0.1  # how deep an edge may lie inside another lane
# Hand-drawn neighbours leave gaps of some decimetres between them (CHN_Roundabout-1), and no vehicle fits into such a
# strip: no edge stands where the next lane begins at one of these distances.
GAPS_M = (INSIDE_M, 0.3, 0.5)
SHORTEST_EDGE_M = 0.5
WIDTH_RANGE_M = (0.5, 20.0)

# The smallest kerbed island that AASHTO's Green Book allows in towns is 50 square feet; smaller holes between the
# turning lanes of a junction are asphalt that no lane happens to cover.
SMALLEST_ISLAND_M2 = 4.6

# A lane goes on in one that begins this near its end, in nearly its direction.
LINK_GAP_M = 0.5
LINK_TURN_RAD = 0.35
# A sign or light without a lane belongs to the nearest one within this reach, the width of a few lanes.
NEAREST_LANE_M = 15.0
_LINKS_PER_LANE = 64  # ends and starts that meet in one place: a real junction has fewer than ten

_SAMPLE_M = 0.5  # a border is probed at least this often before its cuts are refined
_REFINEMENTS = 6  # halvings of a sample interval: cuts are found to 1 cm
_JOIN_M = 1.0  # pieces of one island end this close to each other: corners narrower than GAPS_M are cut off
_MAX_SAMPLES = 25_000_000  # 12,500 km of borders; CARLA Town03 has about 100 km


# Road edges (R10 a)


def edges_from_borders(lanes: Sequence[LaneShape]) -> list[tuple[F64, int]]:
    """Road edges as (points (n, 3) f64 [m], element type): the lane borders beyond which no other lane lies.

    A border is asked every half metre what lies GAPS_M beyond it. If that is another lane (a neighbour that shares the
    border, whatever its direction; a crossing lane of a junction), the road goes on there and the piece is no edge.
    Borders on which several lanes end side by side (two branches of a fork) give one edge, of the first lane. Pieces
    shorter than SHORTEST_EDGE_M and islands below SMALLEST_ISLAND_M2 are dropped. Walkways and rails are no roadway:
    they neither have edges nor hide any.
    The road lies to the left of an edge's direction, as in the logs that bring their own edges.

    Raises FormatError where lanes overlap so densely that the work could not be done in reasonable time.
    """
    road = [lane for lane in lanes if lane.kind not in (LANE_WALKWAY, LANE_OTHER)]
    borders = [border for index, lane in enumerate(road) for border in _borders(lane, index)]
    if not borders:
        return []
    ribbons = Ribbons(road)
    samples = _sample(borders)
    is_edge = ~_goes_on(borders, ribbons, samples.border, samples.segment, samples.middle)
    is_edge &= ~_repeated(borders, samples, is_edge)
    edges: list[F64] = []
    for number, start, end in _runs(borders, samples, is_edge, ribbons):
        points = _cut(borders[number], start, end)
        if len(points) >= 2 and end - start >= SHORTEST_EDGE_M:
            edges.append(points if not borders[number].is_left else points[::-1].copy())
    return [(points, EDGE_BOUNDARY) for points in _without_small_islands(edges)]


class _Border(NamedTuple):
    """One border of a lane, without doubled points.

    points   (n, 3)      f64 [m]
    arc      (n,)        f64 [m]  2D length from the first point
    outward  (n - 1, 2)  f64      unit normal of each segment, away from the lane
    owner    lane number
    is_left  whether the lane lies to the right of the border's direction
    """

    points: F64
    arc: F64
    outward: F64
    owner: int
    is_left: bool


def _borders(lane: LaneShape, owner: int) -> list[_Border]:
    found = []
    for points, other, nominal in ((lane.left, lane.right, True), (lane.right, lane.left, False)):
        points, _ = polyline.drop_short_segments(points)
        if len(points) < 2:
            continue
        arc, forward = polyline.arc_lengths(points), polyline.directions(points)[:-1]
        left_normal = np.stack([-forward[:, 1], forward[:, 0]], axis=1)
        # Which side is outside is asked of the other border, because files exist whose borders are exchanged.
        middle = 0.5 * (arc[1:] + arc[:-1]) / arc[-1]
        across = 0.5 * (points[1:, :2] + points[:-1, :2]) - at_share(other, middle)[:, :2]
        lean = float(np.sum(np.sum(left_normal * across, axis=1) * np.diff(arc)))
        is_left = lean > 0 if lean != 0 else nominal
        found.append(_Border(points, arc, left_normal if is_left else -left_normal, owner, is_left))
    return found


class _Samples(NamedTuple):
    """Pieces of all borders, each short enough to be an edge or none as a whole.

    border, segment, owner  (n,)  i64
    start, middle, end      (n,)  f64 [m]  arc on the border
    """

    border: Indices
    segment: Indices
    owner: Indices
    start: F64
    middle: F64
    end: F64


def _sample(borders: Sequence[_Border]) -> _Samples:
    lengths = np.concatenate([np.diff(border.arc) for border in borders])
    starts = np.concatenate([border.arc[:-1] for border in borders])
    counts = [len(border.arc) - 1 for border in borders]
    number = np.repeat(np.arange(len(borders)), counts)
    segment = np.concatenate([np.arange(count) for count in counts])
    owner = np.array([border.owner for border in borders])[number]
    pieces = np.maximum(np.ceil(lengths / _SAMPLE_M), 1).astype(np.int64)
    if int(pieces.sum()) > _MAX_SAMPLES:
        raise FormatError(
            f"lane borders are {lengths.sum() / 1000:.0f} km long together, too much to derive road edges from; "
            "cut the map, or use a format that brings its edges."
        )
    rows = np.repeat(np.arange(len(lengths)), pieces)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = starts[rows] + lengths[rows] * (within / pieces[rows])
    end = starts[rows] + lengths[rows] * ((within + 1) / pieces[rows])
    return _Samples(number[rows], segment[rows], owner[rows], start, 0.5 * (start + end), end)


def _goes_on(borders: Sequence[_Border], ribbons: Ribbons, number: Indices, segment: Indices, arc: F64) -> BoolArray:
    """(n,) bool: does a lane lie just beyond these places on borders?

    The border's own lane counts too: it lies there only where a border is folded back onto itself.
    """
    on, outward = _on_border(borders, number, segment, arc)
    covered = np.zeros(len(on), np.bool_)
    for gap in GAPS_M:
        rows = np.flatnonzero(~covered)
        probe = on[rows]
        probe[:, :2] += gap * outward[rows]
        covered[rows] = ribbons.cover(probe)
    return covered


def _on_border(borders: Sequence[_Border], number: Indices, segment: Indices, arc: F64) -> tuple[F64, F64]:
    first_row = np.concatenate([[0], np.cumsum([len(border.arc) for border in borders])])[:-1]
    points = np.concatenate([border.points for border in borders])
    arcs = np.concatenate([border.arc for border in borders])
    outward = np.concatenate([border.outward for border in borders])
    row = first_row[number] + segment
    share = ((arc - arcs[row]) / (arcs[row + 1] - arcs[row]))[:, None]
    return points[row] + share * (points[row + 1] - points[row]), outward[row - number]


def _repeated(borders: Sequence[_Border], samples: _Samples, is_edge: BoolArray) -> BoolArray:
    """Which edge samples lie on an edge of an earlier lane, looking the same way."""
    from scipy.spatial import cKDTree

    rows = np.flatnonzero(is_edge)
    repeated = np.zeros(len(is_edge), np.bool_)
    if len(rows) == 0:
        return repeated
    points, outward = _on_border(borders, samples.border[rows], samples.segment[rows], samples.middle[rows])
    pairs = cKDTree(points).query_pairs(_SAMPLE_M, output_type="ndarray")
    owner = samples.owner[rows[pairs]]
    first = np.where(owner[:, 0] <= owner[:, 1], pairs[:, 0], pairs[:, 1])
    second = np.where(owner[:, 0] <= owner[:, 1], pairs[:, 1], pairs[:, 0])
    aside = np.abs(np.sum((points[second, :2] - points[first, :2]) * outward[first], axis=1))
    same = np.sum(outward[first] * outward[second], axis=1) > 0.9
    repeated[rows[second[(owner[:, 0] != owner[:, 1]) & (aside <= INSIDE_M) & same]]] = True
    return repeated


def _runs(
    borders: Sequence[_Border], samples: _Samples, is_edge: BoolArray, ribbons: Ribbons
) -> list[tuple[int, float, float]]:
    """(border, first arc, last arc) of each unbroken stretch of edge samples, its ends refined by bisection."""
    joined = np.zeros(len(is_edge) + 1, np.bool_)  # is sample i the continuation of sample i - 1?
    joined[1:-1] = is_edge[1:] & is_edge[:-1] & (samples.border[1:] == samples.border[:-1])
    first = np.flatnonzero(is_edge & ~joined[:-1])
    last = np.flatnonzero(is_edge & ~joined[1:])
    starts = _refined(borders, samples, ribbons, first, -1)
    ends = _refined(borders, samples, ribbons, last, +1)
    return list(zip(samples.border[first].tolist(), starts.tolist(), ends.tolist(), strict=True))


def _refined(borders: Sequence[_Border], samples: _Samples, ribbons: Ribbons, edge: Indices, towards: int) -> F64:
    """(n,) f64 [m]: where on its border each edge sample's stretch ends, before (-1) or after (+1) it."""
    limit = (samples.start if towards < 0 else samples.end)[edge].copy()
    beyond = edge + towards
    inner = (beyond >= 0) & (beyond < len(samples.border))
    inner[inner] = samples.border[beyond[inner]] == samples.border[edge[inner]]
    rows = np.flatnonzero(inner)
    good, bad = samples.middle[edge[rows]].copy(), samples.middle[beyond[rows]].copy()
    corner = limit[rows]
    for _ in range(_REFINEMENTS):
        middle = 0.5 * (good + bad)
        own = (middle - corner) * towards <= 0  # still in the edge sample's segment?
        sample = np.where(own, edge[rows], beyond[rows])
        covered = _goes_on(borders, ribbons, samples.border[sample], samples.segment[sample], middle)
        good, bad = np.where(covered, good, middle), np.where(covered, middle, bad)
    limit[rows] = good
    return limit


def _cut(border: _Border, start: float, end: float) -> F64:
    """(n, 3) f64 [m]: the border between two arcs, with its own points in between."""
    inside = (border.arc > start + 1e-6) & (border.arc < end - 1e-6)
    ends = np.array([start, end])
    tips = np.stack([np.interp(ends, border.arc, border.points[:, axis]) for axis in range(3)], axis=1)
    return np.concatenate([tips[:1], border.points[inside], tips[1:]])


def _without_small_islands(edges: Sequence[F64]) -> list[F64]:
    """The edges except those that close a ring around less than SMALLEST_ISLAND_M2 with the road outside."""
    from scipy.spatial import cKDTree

    if not edges:
        return []
    gap, follower = cKDTree([edge[0, :2] for edge in edges]).query([edge[-1, :2] for edge in edges])
    after = np.where(gap <= _JOIN_M, follower, -1).tolist()
    small: set[int] = set()
    ring_of: dict[int, int] = {}  # edge to the edge that its walk began with
    for start in range(len(edges)):
        walk, at = [], start
        while at >= 0 and at not in ring_of:
            ring_of[at] = start
            walk.append(at)
            at = after[at]
        if at >= 0 and ring_of[at] == start:
            ring = walk[walk.index(at) :]
            loop = np.concatenate([edges[index] for index in ring])[:, :2]
            if polyline.arc_lengths(loop)[-1] > 2 * _JOIN_M and 0 <= -_area(loop) < SMALLEST_ISLAND_M2:
                small.update(ring)
    return [edge for index, edge in enumerate(edges) if index not in small]


def _area(loop: F64) -> float:
    """Signed area of a closed polygon [m^2], positive where it runs counter-clockwise."""
    x, y = (loop - loop[0]).T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))


# The lane graph (R10 b)


def connections(centres: Sequence[F64]) -> list[tuple[int, int]]:
    """Which lane goes on in which, told from where they lie: (from, to) in ascending order.

    centres  (n, 3)  f64 [m]  centre lines in driving direction; one without length has no links

    A lane is followed by those that begin within LINK_GAP_M of its end, within LINK_TURN_RAD of its direction there and
    on its level.

    Raises FormatError where so many lanes meet in one place that the graph could not be held.
    """
    from scipy.spatial import cKDTree

    cleaned = [polyline.drop_short_segments(centre)[0] for centre in centres]
    number = np.array([index for index, centre in enumerate(cleaned) if len(centre) > 1], np.int64)
    if not len(number):
        return []
    starts, ends = (np.array([cleaned[index][at] for index in number]) for at in (0, -1))
    first = np.array([cleaned[index][1, :2] - cleaned[index][0, :2] for index in number])
    last = np.array([cleaned[index][-1, :2] - cleaned[index][-2, :2] for index in number])
    tree, leaving = cKDTree(starts[:, :2]), cKDTree(ends[:, :2])
    most = _LINKS_PER_LANE * len(number)
    if (meeting := int(leaving.count_neighbors(tree, LINK_GAP_M))) > most:
        raise FormatError(
            f"{meeting} pairs of lane ends meet within {LINK_GAP_M} m, too many to tell which lane follows which; the "
            f"limit is {most}. Check the map for lanes that lie on each other."
        )
    found = []
    for one, others in enumerate(leaving.query_ball_tree(tree, LINK_GAP_M)):
        for other in others:
            cross = last[one, 0] * first[other, 1] - last[one, 1] * first[other, 0]
            turned = abs(np.arctan2(cross, float(last[one] @ first[other])))
            level = abs(ends[one, 2] - starts[other, 2]) <= LEVEL_M
            if one != other and turned <= LINK_TURN_RAD and level:
                found.append((int(number[one]), int(number[other])))
    return sorted(found)


def nearest_lane(centres: Sequence[F64], point: F64) -> int | None:
    """The number of the lane whose centre line passes nearest to a place on its level; None beyond NEAREST_LANE_M.

    centres  (n, 3)  f64 [m]
    point    (3,)    f64 [m]
    """
    best, reach = None, NEAREST_LANE_M
    for index, centre in enumerate(centres):
        low, high = centre[:, :2].min(axis=0) - reach, centre[:, :2].max(axis=0) + reach
        if len(centre) < 2 or np.any(point[:2] < low) or np.any(point[:2] > high):
            continue
        place = polyline.project(centre, point[None, :2])
        height = polyline.at(centre, int(place.segment[0]), float(place.fraction[0]))[2]
        if place.distance[0] < reach and abs(height - point[2]) <= LEVEL_M:
            best, reach = index, float(place.distance[0])
    return best


def same_direction(one: F64, other: F64) -> bool:
    """Whether two lanes beside each other run the same way: files call oncoming lanes neighbours too.

    one, other  (n, 3)  f64 [m]  centre lines
    """
    one, other = polyline.drop_short_segments(one)[0], polyline.drop_short_segments(other)[0]
    if len(one) < 2 or len(other) < 2:
        return True
    middle = (len(one) - 1) // 2
    place = polyline.project(other, one[middle : middle + 1, :2])
    return bool(polyline.directions(one)[middle] @ polyline.directions(other)[int(place.segment[0])] > 0.0)


# Centre lines and widths (R10 c)


def centre_line(left: F64, right: F64) -> F64:
    """(n, 3) f64 [m]: the mean of both borders, point by point; by share of length where their counts differ.

    left   (m, 3)  f64 [m]
    right  (k, 3)  f64 [m]
    """
    if len(left) != len(right):
        finer, coarser = (left, right) if len(left) > len(right) else (right, left)
        return 0.5 * (finer + at_share(coarser, shares_of_length(finer)))
    return 0.5 * (left + right)


def widths_from_borders(centre: F64, left: F64, right: F64) -> F64:
    """(n,) f64 [m]: at each centre point the distance to the left plus that to the right border, within WIDTH_RANGE_M.

    centre  (n, 3)  f64 [m]
    left    (m, 3)  f64 [m]
    right   (k, 3)  f64 [m]
    """
    to_left = polyline.project(left, centre[:, :2]).distance
    to_right = polyline.project(right, centre[:, :2]).distance
    return np.clip(to_left + to_right, *WIDTH_RANGE_M)


# Stop lines (R10 d)


def stop_line(centre: F64, width: F64, point: F64 | None = None) -> tuple[F64, float]:
    """A line across a lane, left to right as its driver sees it, and the direction of travel through it [rad].

    centre  (n, 3)  f64 [m]  at least two different points
    width   (n,)    f64 [m]
    point   (3,)    f64 [m]  where to stop, moved onto the centre line; None = at the end of the lane

    Returns line (2, 3) f64 [m], at right angles to the lane and as wide as it is there.
    """
    centre, kept = polyline.drop_short_segments(centre)
    segment, share = len(centre) - 2, 1.0
    if point is not None:
        nearest = polyline.project(centre, point[None, :2])
        segment, share = int(nearest.segment[0]), float(nearest.fraction[0])
    forward = polyline.directions(centre)[segment]
    width_there = (1.0 - share) * width[kept][segment] + share * width[kept][segment + 1]
    aside = 0.5 * width_there * np.array([-forward[1], forward[0], 0.0])
    middle = polyline.at(centre, segment, share)
    return np.stack([middle + aside, middle - aside]), float(np.arctan2(forward[1], forward[0]))


# Velocities (R10 e)


def velocities(x: F64, y: F64, valid: BoolArray, dt: float) -> tuple[F64, F64]:
    """Velocity by differences of the valid neighbours: central where both exist, one-sided at the ends, else 0.

    x, y   (T,)  f64 [m]
    valid  (T,)  bool
    dt     [s]

    Returns vx, vy (T,) f64 [m/s], zero in invalid rows.
    """
    rows = np.arange(len(x))
    before = np.where(np.concatenate([[False], valid[:-1]]), rows - 1, rows)
    after = np.where(np.concatenate([valid[1:], [False]]), rows + 1, rows)
    span = (after - before) * dt
    moving = valid & (span > 0)
    found = []
    for position in (x, y):
        clean = np.where(valid, position, 0.0)
        found.append(np.divide(clean[after] - clean[before], span, out=np.zeros(len(x)), where=moving))
    return found[0], found[1]

"""Derived pieces (R10): each helper rebuilds what was taken away, on drawn geometry and on the synthetic scenes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from skidpad.errors import FormatError
from skidpad.scenes import polyline
from skidpad.scenes.formats import derive, ribbons
from skidpad.scenes.formats.derive import edges_from_borders
from skidpad.scenes.formats.ribbons import LaneShape, Ribbons
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_OTHER, LANE_STREET, LANE_WALKWAY, Scene
from skidpad.scenes.synthetic import synthetic

F64 = NDArray[np.float64]
TOLERANCE_M = 0.2  # R10


def lane(
    centre: list[tuple[float, ...]] | F64, width: float = 4.0, kind: int = LANE_STREET, z: float = 0.0
) -> LaneShape:
    points = np.array(centre, np.float64)
    if points.shape[1] == 2:
        points = np.column_stack([points, np.full(len(points), z)])
    half = np.full(len(points), width / 2)
    return LaneShape(points, polyline.shifted(points, half), polyline.shifted(points, -half), kind, True)


def dense(points: F64, step: float = 0.1) -> F64:
    arc = polyline.arc_lengths(points)
    at = np.linspace(0.0, arc[-1], max(2, int(arc[-1] / step) + 1))
    return np.stack([np.interp(at, arc, points[:, axis]) for axis in range(3)], axis=1)


def points_of(edges: list[tuple[F64, int]]) -> F64:
    return np.concatenate([dense(points) for points, _ in edges]) if edges else np.empty((0, 3))


def length_of(edges: list[tuple[F64, int]]) -> float:
    return sum(float(polyline.arc_lengths(points)[-1]) for points, _ in edges)


def inside_count(lanes: list[LaneShape], edges: list[tuple[F64, int]]) -> int:
    """How many points of the edges lie deeper than allowed in a lane: kerbs across a road."""
    shrunk = []
    for shape in lanes:
        narrow = min(2 * (derive.INSIDE_M + 0.01) / float(np.hypot(*(shape.left - shape.right)[:, :2].T).min()), 1.0)
        left = shape.left + 0.5 * narrow * (shape.right - shape.left)
        right = shape.right + 0.5 * narrow * (shape.left - shape.right)
        shrunk.append(LaneShape(shape.centre, left, right, shape.kind, shape.drivable))
    return int(Ribbons(shrunk).cover(points_of(edges)).sum())


# Edges (R10 a)


def test_single_lane_has_two_edges_with_the_road_on_their_left() -> None:
    """The side of an edge is what realism metrics read: both edges must have the road on the same side."""
    edges = edges_from_borders([lane([(0, 0), (100, 0)])])
    assert [kind for _, kind in edges] == [EDGE_BOUNDARY, EDGE_BOUNDARY]
    (left, _), (right, _) = sorted(edges, key=lambda edge: -edge[0][0, 1])
    np.testing.assert_allclose(left[:, :2], [(100, 2), (0, 2)])
    np.testing.assert_allclose(right[:, :2], [(0, -2), (100, -2)])


@pytest.mark.parametrize("opposite", [False, True])
def test_shared_border_is_no_edge_whatever_its_direction(opposite: bool) -> None:
    """The centre line of a two-way road is shared by lanes of opposite direction: no kerb may stand there."""
    second = [(0, 4), (100, 4)]
    edges = edges_from_borders([lane([(0, 0), (100, 0)]), lane(second[::-1] if opposite else second)])
    assert sorted({float(y) for points, _ in edges for y in points[:, 1]}) == [-2.0, 6.0]
    assert length_of(edges) == pytest.approx(200.0)


@pytest.mark.parametrize(("gap", "edges"), [(0.0, 2), (0.05, 2), (0.3, 2), (0.49, 2), (0.8, 4), (3.0, 4)])
def test_gaps_between_neighbours(gap: float, edges: int) -> None:
    """Hand-drawn neighbours leave gaps of decimetres (CHN_Roundabout-1), a median is wider: only that has kerbs."""
    assert len(edges_from_borders([lane([(0, 0), (50, 0)]), lane([(0, 4 + gap), (50, 4 + gap)])])) == edges


@pytest.mark.parametrize("overlap", [0.05, 0.5, 2.0, 3.9])
def test_overlapping_neighbours_leave_no_edge_inside(overlap: float) -> None:
    """R10 a: what lies inside another lane's ribbon is removed."""
    lanes = [lane([(0, 0), (50, 0)]), lane([(0, 4 - overlap), (50, 4 - overlap)])]
    edges = edges_from_borders(lanes)
    assert inside_count(lanes, edges) == 0
    outer = [points for points, _ in edges if abs(points[0, 1] + 2) < 1e-9 or abs(points[0, 1] - 6 + overlap) < 1e-9]
    assert sum(float(polyline.arc_lengths(points)[-1]) for points in outer) == pytest.approx(100.0)


@pytest.mark.parametrize("angle", [25.0, 60.0, 90.0, 130.0])
def test_crossing_roads_open_into_each_other(angle: float) -> None:
    """Without removal every junction would have kerbs across it: four edges end where the other road begins."""
    turn = np.radians(angle)
    lanes = [
        lane([(-60, 0), (60, 0)]),
        lane([(-60 * np.cos(turn), -60 * np.sin(turn)), (60 * np.cos(turn), 60 * np.sin(turn))]),
    ]
    edges = edges_from_borders(lanes)
    assert len(edges) == 8
    assert inside_count(lanes, edges) == 0
    # Each border loses the width of the other road, measured along it; cuts lie 10 cm inside at most, and the tips of
    # the four acute corners are closed where they are narrower than the widest gap.
    open_m = 4.0 / np.sin(turn)
    slack = 8 * 0.15 / np.sin(turn) + 4 * derive.GAPS_M[-1] / abs(np.tan(turn))
    assert length_of(edges) == pytest.approx(4 * 120.0 - 4 * open_m, abs=slack)


def test_roads_on_two_levels_do_not_open() -> None:
    """S9: a bridge 6 m above has kerbs of its own, and the road below keeps its own."""
    lanes = [lane([(-50, 0), (50, 0)]), lane([(0, -50), (0, 50)], z=6.0)]
    edges = edges_from_borders(lanes)
    assert len(edges) == 4
    assert length_of(edges) == pytest.approx(400.0)


def test_fork_has_one_edge_where_branches_run_together() -> None:
    """Two branches begin with the same borders: kept twice, each wall would be hit twice; kept never, it is missing."""
    lanes = [lane([(0, 0), (80, 0)]), lane([(0, 0), (20, 0), (80, -30)])]
    edges = edges_from_borders(lanes)
    assert inside_count(lanes, edges) == 0
    common = [points for points, _ in edges if points[:, 0].min() < 5.0]
    assert len(common) == 2
    cloud = points_of(edges)
    for x in (5.0, 15.0):
        assert sorted({round(float(y), 6) for y in cloud[np.abs(cloud[:, 0] - x) < 0.06][:, 1]}) == [-2.0, 2.0]


def test_turned_and_exchanged_borders_make_no_difference() -> None:
    """Files exist whose left border is on the right: outside is asked of the geometry, not of the name."""
    right = lane([(0, 0), (100, 0)])
    wrong = LaneShape(right.centre, right.right, right.left, right.kind, True)
    expected, found = points_of(edges_from_borders([right])), points_of(edges_from_borders([wrong]))
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(expected, axis=0))


def test_border_that_doubles_back_gives_no_kerb_inside() -> None:
    """A border of CHN_Roundabout-1 runs back on itself for 3 m; its way back looks like an outer border."""
    inner = lane([(0, -4), (40, -4)])
    folded = np.array([(0, -2, 0), (20, -2, 0), (17, -2.01, 0), (40, -2, 0)], float)
    plain = lane([(0, 0), (40, 0)])
    lanes = [inner, LaneShape(plain.centre, plain.left, folded, plain.kind, True)]
    edges = edges_from_borders(lanes)
    assert {round(float(y), 6) for points, _ in edges for y in points[:, 1]} == {2.0, -6.0}


def test_walkways_and_rails_neither_have_edges_nor_hide_any() -> None:
    """A crosswalk crosses the road: its borders would be kerbs across it, its area would open the road's."""
    road = lane([(0, 0), (100, 0)])
    for kind in (LANE_WALKWAY, LANE_OTHER):
        edges = edges_from_borders([road, lane([(50, -10), (50, 10)], kind=kind)])
        assert len(edges) == 2
        assert length_of(edges) == pytest.approx(200.0)


def triangle(size: float) -> list[LaneShape]:
    """Three straight lanes around a triangular hole whose inner side is `size`."""
    corners = size / np.sqrt(3) * np.array([(np.cos(a), np.sin(a)) for a in np.radians([90, 210, 330])])
    lanes = []
    for one, other in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        along = (other - one) / np.linalg.norm(other - one)
        outward = np.array([along[1], -along[0]])
        lanes.append(lane([tuple(one - 30 * along + 2 * outward), tuple(other + 30 * along + 2 * outward)]))
    return lanes


@pytest.mark.parametrize(("size", "is_island"), [(2.0, False), (3.0, False), (4.5, True), (12.0, True)])
def test_small_holes_between_turning_lanes_are_no_islands(size: float, is_island: bool) -> None:
    """Junction interiors leave holes that no lane covers; a hole below the smallest legal island is asphalt."""
    cloud = points_of(edges_from_borders(triangle(size)))
    assert bool((np.hypot(cloud[:, 0], cloud[:, 1]) < size).any()) == is_island
    assert np.sqrt(3) / 4 * 3.0**2 < derive.SMALLEST_ISLAND_M2 < np.sqrt(3) / 4 * 4.5**2


def test_short_pieces_are_dropped() -> None:
    """R10 a: pieces below 0.5 m are remains of cutting, not kerbs."""
    assert edges_from_borders([lane([(0, 0), (0.4, 0)])]) == []
    assert len(edges_from_borders([lane([(0, 0), (0.6, 0)])])) == 2


def test_own_vertices_stay_and_cuts_are_fine() -> None:
    """Edges keep the vertices of the file (R10); the cut at a crossing lane is found to centimetres."""
    bent = lane([(0, 0), (10, 0), (20, 1), (60, 1)])
    edges = edges_from_borders([bent, lane([(40, -30), (40, 30)])])
    vertices = {tuple(np.round(point, 9)) for points, _ in edges for point in points}
    assert {tuple(np.round(point, 9)) for point in (*bent.left[:3], *bent.right[:3])} <= vertices
    ends = sorted(float(points[:, 0].max()) for points, _ in edges if points[0, 1] < 4 and points[:, 0].max() < 39)
    np.testing.assert_allclose(ends[:2], [38.0, 38.0], atol=0.12)


def test_same_edges_in_the_frame_of_the_file() -> None:
    """F11: coordinates near 1e7 m; the cuts must not depend on where the map lies."""
    here = triangle(12.0)
    move = np.array([9_000_000.0, -5_000_000.0, 0.0])
    there = [LaneShape(s.centre + move, s.left + move, s.right + move, s.kind, True) for s in here]
    for (points, _), (moved, _) in zip(edges_from_borders(here), edges_from_borders(there), strict=True):
        np.testing.assert_allclose(moved - move, points, atol=1e-2)


def test_degenerate_lanes_are_harmless() -> None:
    """F10: a lane without length, one without width and none at all give no edges and no warnings."""
    assert edges_from_borders([]) == []
    point = np.zeros((2, 3))
    assert edges_from_borders([LaneShape(point, point, point, LANE_STREET, True)]) == []
    line = np.array([(0.0, 0, 0), (30.0, 0, 0)])
    assert len(edges_from_borders([LaneShape(line, line, line, LANE_STREET, True)])) <= 2


def test_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """F12: the work is counted before it is done; the message names the count and the limit."""
    lanes = [lane([(0, 0), (100, 0)]) for _ in range(30)]
    monkeypatch.setattr(ribbons, "_MAX_TESTS", 1000)
    with pytest.raises(FormatError, match="the limit is 1000"):
        edges_from_borders(lanes)
    monkeypatch.setattr(derive, "_MAX_SAMPLES", 100)
    with pytest.raises(FormatError, match="too much to derive road edges from"):
        edges_from_borders(lanes)


def test_grid_grows_when_lanes_are_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flipped byte makes a lane kilometres wide; cells must grow instead of filling memory, with the same answer."""
    lanes = [lane([(0, 0), (400, 0)]), lane([(200, -300), (200, 300)], width=150.0)]
    expected = edges_from_borders(lanes)
    monkeypatch.setattr(ribbons, "_MAX_CELL_ENTRIES", 300)
    found = edges_from_borders(lanes)
    assert Ribbons(lanes)._cell > ribbons._STATION_M
    for (points, _), (other, _) in zip(expected, found, strict=True):
        np.testing.assert_array_equal(points, other)


def naive_inside(point: F64, shape: LaneShape) -> bool:
    """Even-odd rule on the outline of a lane."""
    outline = np.concatenate([shape.left, shape.right[::-1]])[:, :2]
    inside = False
    for (x0, y0), (x1, y1) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if (y0 > point[1]) != (y1 > point[1]) and point[0] < x0 + (point[1] - y0) / (y1 - y0) * (x1 - x0):
            inside = not inside
    return inside


def test_cover_equals_its_naive_twin() -> None:
    """Grid, boxes and triangles together say what the outline says, on curved lanes of different border counts."""
    random = np.random.default_rng(5)
    lanes = []
    for _ in range(4):
        start, turn = random.uniform(-40, 40, 2), random.uniform(-0.06, 0.06)
        heading = random.uniform(-np.pi, np.pi) + turn * np.arange(12)
        path = start + np.cumsum(4.0 * np.stack([np.cos(heading), np.sin(heading)], axis=1), axis=0)
        lanes.append(lane(path, width=random.uniform(2.5, 5.0)))
    points = np.column_stack([random.uniform(-50, 50, (1500, 2)), np.zeros(1500)])
    expected = np.array([any(naive_inside(point, shape) for shape in lanes) for point in points])
    assert 50 < expected.sum() < 1450
    np.testing.assert_array_equal(Ribbons(lanes).cover(points), expected)


def lanes_of(scene: Scene) -> list[LaneShape]:
    road = scene.road
    shapes = []
    for index in range(road.lane_count):
        rows = road.lane_points(index)
        centre, half = road.xyz[rows].astype(np.float64), 0.5 * road.width[rows].astype(np.float64)
        kind = int(road.element_type[road.lane_element[index]])
        left, right = polyline.shifted(centre, half), polyline.shifted(centre, -half)
        shapes.append(LaneShape(centre, left, right, kind, bool(road.drivable[index])))
    return shapes


def apart(one: F64, other: F64) -> F64:
    found: F64 = cKDTree(other).query(one)[0]
    return found


@pytest.mark.parametrize("name", ["straight", "curve", "crossing", "overpass", "stop_yield"])
def test_synthetic_edges_are_rebuilt(name: str) -> None:
    """R10: the edges of the scene, taken away, come back from its lanes within 0.2 m, and nothing else does."""
    scene = synthetic(name, traffic=False)
    edges = edges_from_borders(lanes_of(scene))
    road = scene.road
    given = np.concatenate(
        [
            dense(road.xyz[road.points(e)].astype(float))
            for e in range(road.element_count)
            if 20 <= road.element_type[e] < 30
        ]
    )
    assert apart(points_of(edges), given).max() <= TOLERANCE_M
    assert apart(given, points_of(edges)).max() <= TOLERANCE_M


@pytest.mark.parametrize("name", ["merge", "dead_end"])
def test_synthetic_edges_but_for_what_no_border_tells(name: str) -> None:
    """The last metres of a gore are closed as a gap, and no border runs across a dead end: all else is rebuilt."""
    scene = synthetic(name, traffic=False)
    edges = edges_from_borders(lanes_of(scene))
    road = scene.road
    given = np.concatenate(
        [
            dense(road.xyz[road.points(e)].astype(float))
            for e in range(road.element_count)
            if 20 <= road.element_type[e] < 30
        ]
    )
    assert apart(points_of(edges), given).max() <= TOLERANCE_M
    assert np.mean(apart(given, points_of(edges)) > TOLERANCE_M) < 0.05


@pytest.mark.parametrize("name", ["crossing", "roundabout", "merge", "stop_yield"])
def test_no_kerb_across_a_synthetic_lane(name: str) -> None:
    """Junction interiors are open: no derived edge lies inside a lane."""
    lanes = lanes_of(synthetic(name, traffic=False))
    assert inside_count(lanes, edges_from_borders(lanes)) == 0


# Centre lines and widths (R10 c)


def test_centre_line_of_equal_and_of_different_counts() -> None:
    """R16: point by point where counts agree, by share of length where not."""
    left, right = np.array([(0.0, 2, 1), (5, 2, 1), (10, 2, 1)]), np.array([(0.0, -2, 0), (10, -2, 0)])
    np.testing.assert_allclose(derive.centre_line(left, right), [(0, 0, 0.5), (5, 0, 0.5), (10, 0, 0.5)])
    np.testing.assert_allclose(derive.centre_line(right, left), [(0, 0, 0.5), (5, 0, 0.5), (10, 0, 0.5)])
    np.testing.assert_allclose(derive.centre_line(left[[0, 2]], right), [(0, 0, 0.5), (10, 0, 0.5)])


def test_widths_are_measured_across_and_clipped() -> None:
    """Borders whose points are not opposite each other must not make a lane wider than it is."""
    centre = np.array([(0.0, 0, 0), (5, 0, 0), (10, 0, 0)])
    left, right = np.array([(-3.0, 2, 0), (14, 2, 0)]), np.array([(-9.0, -1.5, 0), (2, -1.5, 0), (11, -1.5, 0)])
    np.testing.assert_allclose(derive.widths_from_borders(centre, left, right), 3.5)
    np.testing.assert_allclose(derive.widths_from_borders(centre, centre, centre), 0.5)
    np.testing.assert_allclose(derive.widths_from_borders(centre, centre + np.array([0, 50, 0]), centre), 20.0)


@pytest.mark.parametrize("name", ["straight", "curve", "crossing", "merge"])
def test_synthetic_widths_are_rebuilt(name: str) -> None:
    """R10 c on the fixtures: the widths that made the borders come back from them."""
    scene = synthetic(name, traffic=False)
    for index, shape in enumerate(lanes_of(scene)):
        given = scene.road.width[scene.road.lane_points(index)]
        found = derive.widths_from_borders(shape.centre, shape.left, shape.right)
        # At bends of a polyline the nearest point of a border is up to 1 - cos of half the bend nearer.
        np.testing.assert_allclose(found, given, rtol=0.03)


# Stop lines (R10 d)


def test_stop_line_crosses_the_lane_at_the_point() -> None:
    """S6: at right angles, left end first as the driver sees it, as wide as the lane is there."""
    centre, width = np.array([(0.0, 0, 1), (10, 0, 1), (10, 10, 3)]), np.array([3.0, 4.0, 5.0])
    line, heading = derive.stop_line(centre, width, np.array([5.0, 0.7, 0]))
    np.testing.assert_allclose(line, [(5, 1.75, 1), (5, -1.75, 1)])
    assert heading == pytest.approx(0.0)
    line, heading = derive.stop_line(centre, width)
    np.testing.assert_allclose(line, [(7.5, 10, 3), (12.5, 10, 3)])
    assert heading == pytest.approx(np.pi / 2)
    line, _ = derive.stop_line(centre, width, np.array([-4.0, 3.0, 0]))
    np.testing.assert_allclose(line, [(0, 1.5, 1), (0, -1.5, 1)])


# Velocities (R10 e)


def test_velocities_by_differences_of_valid_neighbours() -> None:
    """S5: central inside, one-sided at gaps and ends, zero where a row stands alone or is invalid."""
    t = np.arange(8) * 0.1
    x = 3.0 * t + 5.0 * t**2
    valid = np.array([True, True, True, True, False, True, False, False])
    x[~valid] = np.nan
    vx, vy = derive.velocities(x, np.zeros(8), valid, 0.1)
    assert vx[1:3] == pytest.approx(3.0 + 10.0 * t[1:3])
    assert vx[0] == pytest.approx(3.5)
    assert vx[3] == pytest.approx(3.0 + 10.0 * 0.25)
    np.testing.assert_array_equal(vx[4:], 0.0)
    np.testing.assert_array_equal(vy, 0.0)

"""The map index: lists hold everything they promise, and nothing depends on how they are stored (S10, S13 to S19)."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import naive
import numpy as np
import pytest

from skidpad.errors import SettingsError
from skidpad.scenes import index as indexing
from skidpad.scenes.index import IndexParams, RowParams, build_index
from skidpad.scenes.index_kernels import road_rows, sector_of
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.synthetic import synthetic
from skidpad.simulation.kernels.lanes import cell_of

MAPS = ("crossing", "overpass", "roundabout", "merge")
WHOLE = IndexParams(map_tolerance=0.0, max_segment=1e9)
SCALES = (0.02, 0.02, 0.01, 0.1, 1.0, 1.0, 0.5, 0.25)
COLUMNS = tuple((name, scale) for (name, _), scale in zip(RowParams().columns, SCALES, strict=True))


def look_up(rows, x, y, cos, sin, ids, squares):
    """`road_rows` with the arrays of a RowMap."""
    arrays = rows.mid, rows.start, rows.numbers, rows.slot, rows.ids16, rows.ids32, rows.used, rows.total
    heights = rows.lowest, rows.highest
    level = np.float32(0.0), np.float32(4.0)
    return road_rows(*arrays, *heights, rows.bound, rows.middle, x, y, *level, cos, sin, ids, squares)[:2]


def block(**changes):
    """Parameters of one road block."""
    return (RowParams()._replace(**changes),)


@pytest.fixture(scope="module", params=MAPS)
def scene(request):
    return synthetic(request.param, traffic=False)


def parts(index, element):
    """Points (n, 4) of one element of an index: x, y, z, arc."""
    return index.points[index.element_points[element] : index.element_points[element + 1]].astype(np.float64)


def segments(index, road, kinds):
    """All segments (m, 4) of elements of some kinds, in element order, and their elements."""
    rows, element = [], []
    for e in range(road.element_count):
        if road.element_type[e] // 10 in kinds:
            for a, b in pairwise(parts(index, e)):
                rows.append((*a[:2], *b[:2], (a[2] + b[2]) / 2))
                element.append(e)
    return np.array(rows).reshape(-1, 5), element


# ---------------------------------------------------------------------------------------------------- resampling, S10


@pytest.mark.parametrize("tolerance", [0.02, 0.1, 1.0])
def test_thinning_stays_within_the_tolerance(scene, tolerance):
    """S10: no dropped vertex further than the tolerance from the polyline, ends kept, and vertices really dropped."""
    road = scene.road
    index = build_index(scene, IndexParams(map_tolerance=tolerance, max_segment=1e9))
    for e in range(road.element_count):
        rows = road.points(e)
        original = np.column_stack([road.xyz[rows], road.arc[rows]]).astype(np.float64)
        kept = parts(index, e)
        assert (kept[0] == original[0]).all()
        assert (kept[-1] == original[-1]).all()
        xyz = naive.chord_deviation(original[:, :3], kept[:, :3])
        assert xyz <= tolerance + 1e-6
    assert len(index.points) < len(road.xyz)


def test_thinning_keeps_a_taper():
    """A lane that only changes its width is straight in x, y, z; dropping the vertices would move its borders."""
    from skidpad.scenes.index_kernels import thin

    x = np.linspace(0, 40, 9)
    point = np.column_stack([x, 0 * x, 0 * x, np.where(x < 20, 2.0, 1.0)])
    keep = np.zeros(9, np.bool_)
    thin(point, np.array([0, 9], np.int32), 0.1, keep, np.empty((11, 2), np.int64))
    assert keep.tolist() == [True, False, False, True, True, False, False, False, True]


def test_zero_tolerance_is_the_identity(scene):
    """S10: `map_tolerance` 0 keeps every vertex, bit for bit."""
    index = build_index(scene, WHOLE)
    assert index.points[:, :3].tobytes() == scene.road.xyz.tobytes()
    assert index.points[:, 3].tobytes() == scene.road.arc.tobytes()
    assert index.element_points.tolist() == scene.road.element_points.tolist()


def test_long_segments_are_split_evenly(scene):
    """S10: no segment above `max_segment`; splitting moves nothing and keeps arc positions proportional."""
    index = build_index(scene, IndexParams(map_tolerance=0.0, max_segment=3.0))
    for e in range(scene.road.element_count):
        points = parts(index, e)
        assert np.hypot(*np.diff(points[:, :2], axis=0).T).max() <= 3.0 + 1e-4
        original = scene.road.xyz[scene.road.points(e)].astype(np.float64)
        assert max(naive.foot(original, *p[:2]).distance for p in points) < 1e-5
        assert (np.diff(points[:, 3]) > 0).all()


# ----------------------------------------------------------------------------------------------- grid and lists, S13+


def test_contact_lists_hold_all_edges_in_reach(scene):
    """S14: a circle of the reach around any point meets no edge but those of the point's cell; long segments stand in
    every cell they touch, not in that of their middle."""
    rng = np.random.default_rng(1)
    params = IndexParams(max_segment=60.0)
    index = build_index(scene, params)
    edges, _ = segments(index, scene.road, (2,))
    grid, listed = index.edges.grid, index.edges.edge
    assert len(edges)
    for _ in range(300):
        x, y = rng.uniform(grid.x, grid.x + grid.columns / grid.inverse), rng.uniform(grid.y, grid.y + 240)
        cell = cell_of(grid, x, y)
        blocks = slice(index.edges.start[cell], index.edges.start[cell + 1])
        here = set(map(tuple, listed[blocks].transpose(0, 2, 1).reshape(-1, 4).tolist()))
        for row in edges.astype(np.float32):
            foot = naive.foot(np.array([[*row[:2], 0], [*row[2:4], 0]], np.float64), x, y)
            if foot.distance <= params.reach:
                assert tuple(row[:4].tolist()) in here


def test_edges_lie_in_whole_blocks(scene):
    """S14: what a list leaves of its last block of eight is NaN, which meets nothing; a block is two cache lines."""
    edges = build_index(scene, IndexParams()).edges
    assert edges.edge.ctypes.data % 64 == 0
    assert edges.edge.strides == (128, 32, 4)
    used = ~np.isnan(edges.height)
    assert (used == ~np.isnan(edges.edge).any(axis=1)).all()
    assert (used[:, :-1] >= used[:, 1:]).all()
    full = used.all(axis=1)
    last = edges.start[1:][np.diff(edges.start) > 0] - 1
    assert used[:, 0].all()
    assert full[~np.isin(np.arange(len(full)), last)].all()


def test_lists_hold_little_else(scene):
    """A list of everything would pass the test above and be useless."""
    index = build_index(scene, IndexParams())
    grid, side = index.lanes.grid, 1 / index.lanes.grid.inverse
    rng = np.random.default_rng(2)
    busy = np.flatnonzero(np.diff(index.lanes.start))
    for cell in rng.choice(busy, 20):
        cx, cy = grid.x + (cell % grid.columns + 0.5) * side, grid.y + (cell // grid.columns + 0.5) * side
        for m in index.lanes.near[index.lanes.start[cell] : index.lanes.start[cell + 1]]:
            assert naive.segment_to_square(*index.lanes.segment[m, :4].astype(float), cx, cy, side / 2) < 8.01


def test_nearest_lane_of_the_list_is_the_nearest_of_all(scene):
    """S15: within 8 m, the nearest lane segment stands in the list of the point's cell."""
    index = build_index(scene, IndexParams())
    rng = np.random.default_rng(3)
    lanes = index.lanes.segment[:, :4].astype(np.float64)
    tested = 0
    for _ in range(200):
        x, y = lanes[rng.integers(len(lanes)), :2] + rng.normal(0, 4, 2)
        distance = [naive.foot(np.array([[*r[:2], 0], [*r[2:], 0]]), x, y).distance for r in lanes]
        nearest = int(np.argmin(distance))
        if distance[nearest] < 8.0:
            cell = cell_of(index.lanes.grid, x, y)
            assert nearest in index.lanes.near[index.lanes.start[cell] : index.lanes.start[cell + 1]]
            tested += 1
    assert tested > 100


def test_cells_are_found_by_floor():
    """S13: negative coordinates are real, and a point 0.1 cells outside is off the map, not in cell 0."""
    grid = build_index(synthetic("straight", traffic=False), IndexParams()).edges.grid
    assert cell_of(grid, grid.x, grid.y) == 0
    assert cell_of(grid, grid.x - 0.5, grid.y + 1) == -1
    assert cell_of(grid, grid.x + 1, grid.y - 0.5) == -1
    last = (grid.x + (grid.columns - 0.5) / grid.inverse, grid.y + (grid.rows - 0.5) / grid.inverse)
    assert cell_of(grid, *last) == grid.columns * grid.rows - 1
    for bad in (math.nan, math.inf, -math.inf, 1e30):
        assert cell_of(grid, bad, grid.y + 1) == -1
        assert cell_of(grid, grid.x + 1, bad) == -1


def test_a_map_too_large_gets_larger_cells():
    """S13: the cell doubles until 4,000,000 cells hold the map; it is not an error."""
    grid = indexing._grid((0.0, 0.0, 30_000.0, 30_000.0), 5.0)
    assert grid.inverse == 1 / 20
    assert grid.columns * grid.rows <= indexing.MAX_CELLS


def test_a_scene_without_a_road():
    """Tracks alone are a scene; every position is then off the map, and no list is asked out of bounds."""
    scene = synthetic("straight", traffic=False)
    road = scene.road
    empty = {f.name: getattr(road, f.name)[:0].copy() for f in dataclasses.fields(road)}
    for name in ("element_points", "entry_offset", "exit_offset", "left_offset", "right_offset"):
        empty[name] = np.zeros(1, np.int32)
    bare = dataclasses.replace(scene, road=type(road)(**empty))
    index = build_index(bare, IndexParams())
    assert not index.has_edges
    assert cell_of(index.edges.grid, 0.0, 0.0) == -1
    assert look_up(index.rows[0], 0.0, 0.0, 1.0, 0.0, np.zeros(32, np.int32), np.zeros(32)) == (0, 0)


# -------------------------------------------------------------------------------------------- rows and neighbour lists


def test_rows_are_the_geometry_scaled(scene):
    """S16: each segment of the shown kinds once, eight numbers times their scales, every row on a 32-byte boundary."""
    params = IndexParams(rows=block(columns=COLUMNS, kinds=(0, 1, 2)))
    index = build_index(scene, params)
    rows = index.rows[0].row / np.array(SCALES)
    expected, element = segments(index, scene.road, (0, 1, 2))
    assert index.rows[0].row.ctypes.data % 32 == 0
    assert index.rows[0].row.strides == (32, 4)

    def key(mid_x, mid_y, kind):
        return round(float(mid_x), 2), round(float(mid_y), 2), int(kind)

    found = {key(r[0], r[1], round(r[6])): r for r in rows}
    assert len(rows) == len(expected)
    for (x0, y0, x1, y1, z), e in zip(expected, element, strict=True):
        kind = scene.road.element_type[e] // 10
        row = found[key((x0 + x1) / 2, (y0 + y1) / 2, kind)]
        length = math.hypot(x1 - x0, y1 - y0)
        geometry = (x0 + x1) / 2, (y0 + y1) / 2, length / 2, (x1 - x0) / length, (y1 - y0) / length, z
        np.testing.assert_allclose(row[[0, 1, 2, 4, 5, 7]], geometry, atol=1e-5)
        assert (row[3] > 1) == (kind == 0)
    assert ((index.rows[0].lane >= 0) == (np.round(rows[:, 6]) == 0)).all()


@pytest.mark.parametrize("name", ["crossing", "overpass", "merge"])
@pytest.mark.parametrize("kinds", [(0, 2), (2,)])
def test_lists_equal_brute_force(name, kinds):
    """S17: for every stored (cell, sector) the list is the window's rows by distance from the cell's centre."""
    params = IndexParams(rows=block(kinds=kinds, slots=20), list_cell=20.0)
    rows = build_index(synthetic(name, traffic=False), params).rows[0]
    side = 1 / rows.list_grid.inverse
    cells = np.flatnonzero(rows.slot >= 0)
    assert len(cells)
    full = 0
    for cell in cells:
        x = rows.list_grid.x + (cell % rows.list_grid.columns + 0.5) * side
        y = rows.list_grid.y + (cell // rows.list_grid.columns + 0.5) * side
        for sector in range(params.sectors):
            heading = (sector + 0.5) * 2 * math.pi / params.sectors
            b = rows.slot[cell]
            expected, total = naive.neighbour_list(rows.mid.T, x, y, heading, params.window, params.rows[0].slots)
            assert rows.ids[b, sector, : rows.used[b, sector]].tolist() == expected
            assert rows.total[b, sector] == total
            full += total > params.rows[0].slots
    assert full  # some list is cut, so that "the nearest K" is tested


def test_stored_and_computed_lists_are_the_same(scene):
    """S18: `lists` changes speed, never a row; also where nothing is stored: off the road, off the map."""
    rng = np.random.default_rng(4)
    stored = build_index(scene, IndexParams(lists="stored"))
    computed = build_index(scene, IndexParams(lists="computed"))
    assert (stored.lists, computed.lists) == ("stored", "computed")
    assert stored.rows[0].row.tobytes() == computed.rows[0].row.tobytes()
    scratch = np.empty(32)
    kept = 0
    for _ in range(2000):
        x, y, heading = *rng.uniform(-200, 200, 2), rng.uniform(-math.pi, math.pi)
        ids = np.full((2, 32), -1, np.int32)
        pose = x, y, math.cos(heading), math.sin(heading)
        assert look_up(stored.rows[0], *pose, ids[0], scratch) == look_up(computed.rows[0], *pose, ids[1], scratch)
        assert ids[0].tolist() == ids[1].tolist()
        kept += ids[0, 0] >= 0
    assert 200 < kept < 1950


def test_scratch_may_be_longer_than_a_list():
    """S18: blocks of one layout share scratch of the longest; a computed list as long as that would be another list."""
    rows = build_index(synthetic("crossing", traffic=False), IndexParams(rows=block(slots=7), lists="computed")).rows[0]
    ids = np.full((2, 32), -1, np.int32)
    short = look_up(rows, 0.0, 0.0, 1.0, 0.0, ids[0][:7], np.empty(7))
    assert short == look_up(rows, 0.0, 0.0, 1.0, 0.0, ids[1], np.empty(32)) == (7, short[1])
    assert ids[0].tolist() == [*ids[1][:7].tolist(), *[-1] * 25]


def test_a_list_far_away_is_empty():
    """1e7 m, infinity and NaN are positions too: no rows, no access out of bounds."""
    rows = build_index(synthetic("crossing", traffic=False), IndexParams()).rows[0]
    ids, scratch = np.zeros(32, np.int32), np.empty(32)
    for x, y in ((1e7, 0.0), (-1e7, 1e7), (math.inf, 0.0), (0.0, math.nan), (1e30, 1e30)):
        assert look_up(rows, x, y, 1.0, 0.0, ids, scratch) == (0, 0)
    assert look_up(rows, 0.0, 0.0, math.nan, math.nan, ids, scratch)[0] > 0  # sector 0


def test_order_bounds_of_cell_lists():
    """S19: against the agent's own distance, a kept row is further than a left-out one by at most a cell's diagonal."""
    rng = np.random.default_rng(5)
    params = IndexParams(rows=block(slots=16))
    rows = build_index(synthetic("roundabout", traffic=False), params).rows[0]
    scratch, ids = np.empty(16), np.zeros(16, np.int32)
    for _ in range(300):
        x, y, heading = *rng.uniform(-60, 60, 2), rng.uniform(-math.pi, math.pi)
        count, total = look_up(rows, x, y, math.cos(heading), math.sin(heading), ids, scratch)
        sector = sector_of(rows.bound, math.cos(heading), math.sin(heading))
        middle = (sector + 0.5) * math.pi / 4
        assert abs(naive.wrap(heading - middle)) <= math.pi / 8 + 1e-9
        if total > count:
            own = np.hypot(rows.mid[0] - x, rows.mid[1] - y)
            cell = np.floor((np.array([x, y]) - rows.list_grid[:2]) / 10) * 10 + rows.list_grid[:2] + 5
            everything, _ = naive.neighbour_list(rows.mid.T, *cell, middle, params.window, total)
            left_out = sorted(set(everything) - set(ids[:count].tolist()))
            assert own[ids[:count]].max() <= own[left_out].min() + 10 * math.sqrt(2)


def test_sectors_are_half_open():
    """Each heading has one sector; a boundary belongs to the sector it begins."""
    for sectors in (4, 8, 16):
        params = IndexParams(sectors=sectors, window=(20, 60, 60))
        bound = build_index(synthetic("straight", traffic=False), params).rows[0].bound
        for k in range(sectors):
            assert sector_of(bound, *bound[k]) == k
            heading = (k + 0.99) * 2 * math.pi / sectors
            assert sector_of(bound, math.cos(heading), math.sin(heading)) == k


def test_few_sectors_are_refused():
    """S17: with front * sin(pi / n) > side the road ahead would leave the window; the message helps."""
    with pytest.raises(SettingsError, match="Use at least 13 sectors"):
        IndexParams(sectors=8, window=(20.0, 120.0, 30.0))
    IndexParams(sectors=13, window=(20.0, 120.0, 30.0))


def test_lists_above_the_budget():
    """S18: `stored` over the budget is an error naming both figures; `auto` computes instead."""
    scene = synthetic("crossing", traffic=False)
    with pytest.raises(SettingsError, match=r"need .* MiB, above the budget of 0\.01 MiB"):
        build_index(scene, IndexParams(lists="stored", list_budget_mib=0.01))
    auto = build_index(scene, IndexParams(list_budget_mib=0.01))
    assert auto.lists == "computed"
    assert auto.rows[0].ids.nbytes == 0


# --------------------------------------------------------------------------------------------------------- one per map


def test_scenes_on_one_map_share_an_index():
    """The key is the map's digest: traffic does not build a second index, parameters do (S23)."""
    quiet, busy = synthetic("merge", traffic=False), synthetic("merge", seed=3)
    assert quiet.digest != busy.digest
    cache = MapCache(None)
    assert cache.index(quiet, IndexParams()) is cache.index(busy, IndexParams())
    assert cache.index(quiet, IndexParams(rows=block(slots=31))) is not cache.index(quiet, IndexParams())


def test_every_parameter_is_in_the_key():
    """S23: a parameter outside the key would hand out an index built for another value."""
    other = {"window": (20.0, 60.0, 40.0), "rows": block(kinds=(2,)), "lists": "computed", "order": "exact"}
    digests = {IndexParams().digest}
    for field in dataclasses.fields(IndexParams):
        value = other.get(field.name, field.default * 2 if not isinstance(field.default, (tuple, str)) else None)
        digests.add(dataclasses.replace(IndexParams(), **{field.name: value}).digest)
    assert len(digests) == 1 + len(dataclasses.fields(IndexParams))


def test_an_index_is_read_only(scene):
    """S31: worlds and threads share it; a kernel that wrote into it would change its neighbours' results."""
    index = build_index(scene, IndexParams())
    assert len(index.arrays) > 20
    for array in index.arrays:
        assert not array.flags.writeable


def test_building_twice_gives_the_same_bytes(scene):
    """Nothing of an index depends on what was built before."""
    first, second = build_index(scene, IndexParams()), build_index(scene, IndexParams())
    for a, b in zip(first.arrays, second.arrays, strict=True):
        assert a.tobytes() == b.tobytes()

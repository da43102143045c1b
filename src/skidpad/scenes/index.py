"""MapIndex: what is computed once per map so that a step never searches it.

A grid of square cells answers three questions by one look-up: which edges can a body in this cell touch, which lanes
may it be on, and which road segments does it see (the nearest K rows in a window, per cell and heading sector, one list
for each block of road rows that a layout has). The index thins and splits polylines (S10) but never moves an end point,
and arc positions stay those of the scene. Everything here is arrays; the loops are in `index_kernels.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
from skidpad.errors import SettingsError
from skidpad.scenes.scene import EDGE_MEDIAN, F32, I32, LANE_OTHER, LANE_WALKWAY, Bool, RoadMap, Scene

F64 = NDArray[np.float64]
Order = Literal["cell", "exact", "spiral"]

MARGIN_M = 30.0  # the grid reaches this far beyond the map; further out is off the map
MAX_CELLS = 4_000_000
LIST_REACH_M = 25.0  # neighbour lists are stored for cells this close to a drivable lane
LANE_REACH_M = 8.0
EIGHT = 8  # float32 of one vector
CACHE_LINE = 64  # bytes


QUANTITIES = ("x", "y", "z", "half length", "width", "cos", "sin", "kind", "side", "median", "one", "zero")
"""What a column of a row may hold: middle [m], half length [m], lane width [m], direction, kind (0 lane, 1 line, 2
edge), side (1 lane, 0 line, -1 edge), 1 where the edge is a median, and the constants 1 and 0."""


class RowParams(NamedTuple):
    """One block of road rows of a layout.

    kinds    what it shows: 0 lanes, 1 lines, 2 edges (element type // 10)
    slots    longest neighbour list
    columns  eight pairs of quantity and factor; x, y and z come unscaled, since they are differences in an observation
    """

    kinds: tuple[int, ...] = (0, 2)
    slots: int = 32
    columns: tuple[tuple[str, float], ...] = (
        ("x", 1.0),
        ("y", 1.0),
        ("half length", 1.0),
        ("width", 1.0),
        ("cos", 1.0),
        ("sin", 1.0),
        ("kind", 1.0),
        ("z", 1.0),
    )


@dataclass(frozen=True)
class IndexParams:
    """What an index depends on besides the map. Lengths in metres.

    cell            side of the cells of contact and lane lists
    list_cell       side of the cells of neighbour lists
    sectors         heading sectors of a neighbour list; sector k holds headings in [k, k + 1) * 2 pi / sectors
    window          (behind, ahead, to each side): what a list shows, seen from the cell's centre along the sector's
                    middle
    order           "cell": nearest to the cell's centre first. "exact": window and order by the pose itself. "spiral":
                    cells in a square spiral around the pose's own, as far as the window's longest reach (S19)
    rows            the blocks of road rows
    reach           edges this close to a cell are in its contact list; no body reaches further from its centre
    map_tolerance   how far a thinned polyline may leave the original; 0 keeps all vertices
    max_segment     longer segments are split
    lists           "stored", "computed" at each look-up, or "auto": stored where the budget allows. Never changes a row
    list_budget_mib most memory of the stored lists of one map

    Raises SettingsError where the sectors are so few that the road straight ahead could fall out of the window.
    """

    cell: float = 5.0
    list_cell: float = 10.0
    sectors: int = 8
    window: tuple[float, float, float] = (20.0, 60.0, 30.0)
    order: Order = "cell"
    rows: tuple[RowParams, ...] = (RowParams(),)
    reach: float = 10.0
    map_tolerance: float = 0.1
    max_segment: float = 10.0
    lists: Literal["stored", "computed", "auto"] = "auto"
    list_budget_mib: float = 32.0

    def __post_init__(self) -> None:
        _, ahead, side = self.window
        if self.order == "cell" and (self.sectors < 4 or ahead * math.sin(math.pi / self.sectors) > side):
            need = math.pi / math.asin(min(1.0, side / ahead)) if side > 0 else math.inf
            raise SettingsError(
                f"{self.sectors} heading sectors do not keep the road {ahead:g} m ahead inside a window of "
                f"{side:g} m to each side. Use at least {max(4, math.ceil(need))} sectors."
            )

    @cached_property
    def digest(self) -> str:
        """Identity of the parameters."""
        return digest_value({field.name: getattr(self, field.name) for field in fields(self)}, "index parameters")


class Grid(NamedTuple):
    """Square cells over the map. Cell (i, j) has number j * columns + i.

    x, y       [m]    lower left corner
    inverse    [1/m]  cells per metre
    columns, rows     how many; a position outside is off the map
    """

    x: float
    y: float
    inverse: float
    columns: int
    rows: int


class EdgeMap(NamedTuple):
    """Contact lists (S14): per cell, every edge segment within `reach`, in blocks of eight. A block is two cache lines
    and is tested at once; where a list ends within one, the rest is NaN, which meets nothing.

    reach   [m]                        a circle no larger than this meets no edges but those of its centre's cell
    start   (C + 1,)          i32      cell c owns blocks start[c] : start[c + 1]
    edge    (B, 4, EIGHT)     f32 [m]  rows x0, y0, x1, y1
    height  (B, EIGHT)        f32 [m]  of the middles
    """

    grid: Grid
    reach: float
    start: I32
    edge: F32
    height: F32


class LaneMap(NamedTuple):
    """Lane lists (S15): per cell, every lane segment within 8 m; and what the lane search reads besides.

    start          (C + 1,)  i32   cell c owns near[start[c] : start[c + 1]]
    near           (n,)      i32   lane segments, ascending, so that those of one lane stand together
    segment        (M, 12)   f32   x0, y0, x1, y1, z0, z1, arc0, arc1, half width0, half width1 [m], and cos, sin of
                                   the lane's heading there: length-weighted over the segment and its neighbours, 1:2:1
    segment_lane   (M,)      i32   lane of each segment
    lane_first     (L + 1,)  i32   lane l owns segments lane_first[l] : lane_first[l + 1]
    exit_offset, exit_lane         CSR over L, the scene's
    drivable       (L,)      bool  the scene's
    road           (L,)      bool  a vehicle on its ribbon is on the road: every lane but walkways and rails
    speed_limit    (L,)      f32   [m/s] NaN = unknown
    clear          (M,)      f32 [m]   whoever is nearer to a segment than this is nearest, of all segments of its lane,
                                   to this one or the one before or after it
    """

    grid: Grid
    start: I32
    near: I32
    segment: F32
    segment_lane: I32
    lane_first: I32
    exit_offset: I32
    exit_lane: I32
    drivable: Bool
    road: Bool
    speed_limit: F32
    clear: F32


# What `RowMap.numbers` holds.
ROW_X, ROW_Y, ROW_INVERSE, ROW_COLUMNS, ROW_ROWS, LIST_X, LIST_Y, LIST_INVERSE, LIST_COLUMNS, LIST_ROWS = range(10)
BEHIND, AHEAD, SIDE, ORDER, SPIRAL_RINGS, LIST_SLOTS = range(10, 16)
ORDERS: tuple[Order, ...] = ("cell", "exact", "spiral")
CELL_ORDER, EXACT_ORDER, SPIRAL_ORDER = range(3)


class RowMap(NamedTuple):
    """Segment rows (S16) and neighbour lists (S17) of one block. Look-ups: `index_kernels.road_rows`.

    Arrays only, so that a kernel finds them by their addresses.

    row         (M, 8)       f32   the block's columns; 32-byte aligned; ordered by cell
    mid         (2, M)       f64   [m] mid x, mid y
    start       (C + 1,)     i32   cell c of `grid` holds the middles of rows start[c] : start[c + 1]
    lane        (M,)         i32   lane of each row, -1 for lines and edges
    along       (2, M)       f32   [m] position of the middle along its lane, and what is left of the lane from there;
                                   0 for lines and edges
    numbers     (16,)        f64   the grid of rows, the list cells (the lists of a cell exist for any (i, j), also
                                   outside), the window, the order, how many rings its spiral has, and K
    slot        (list C,)    i32   stored lists of a cell, -1 = computed at look-up; empty where none is stored
    ids16       (B, sectors, K)  u16  rows of each list, nearest to the cell's centre first, ties by row; empty where
                                   rows need 32 bits
    ids32       (B, sectors, K)  u32  the same for more than 65,535 rows; else empty
    used        (B, sectors) i32   how many of K are ids
    total       (B, sectors) i32   how many rows lie in the window
    lowest, highest  (B, sectors) f32  [m] heights of the rows of each list; inf, -inf where it is empty
    bound       (sectors, 2) f64   cos, sin where each sector begins
    middle      (sectors, 2) f64   cos, sin of each sector's middle
    """

    row: F32
    mid: F64
    start: I32
    lane: I32
    along: F32
    numbers: F64
    slot: I32
    ids16: NDArray[np.uint16]
    ids32: NDArray[np.uint32]
    used: I32
    total: I32
    lowest: F32
    highest: F32
    bound: F64
    middle: F64

    @property
    def list_grid(self) -> Grid:
        """The cells that own lists."""
        x, y, inverse, columns, rows = self.numbers[LIST_X : LIST_ROWS + 1].tolist()
        return Grid(x, y, inverse, int(columns), int(rows))

    @property
    def ids(self) -> NDArray[np.uint16] | NDArray[np.uint32]:
        """The stored lists, whatever their width."""
        return self.ids32 if self.ids32.size else self.ids16


@dataclass(frozen=True, eq=False)
class MapIndex:
    """Everything the kernels read of one map under one set of parameters. All arrays are read-only.

    map_digest, params   the key
    rows                 one for each block of road rows
    lists                "stored" or "computed": which one "auto" became
    element_points       (E + 1,)  i32  points of each element after thinning and splitting
    points               (P, 4)    f32  [m] x, y, z, and arc position of the scene's element
    """

    map_digest: str
    params: IndexParams
    edges: EdgeMap
    lanes: LaneMap
    rows: tuple[RowMap, ...]
    lists: Literal["stored", "computed"]
    element_points: I32
    points: F32

    @property
    def has_edges(self) -> bool:
        """Whether off-road can be told from edges."""
        return bool(len(self.edges.edge))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """Everything that is an array."""
        blocks = [part for rows in self.rows for part in rows]
        parts = (*self.edges, *self.lanes, *blocks, self.element_points, self.points)
        return [part for part in parts if isinstance(part, np.ndarray)]


def build_index(scene: Scene, params: IndexParams) -> MapIndex:
    """The index of a scene's map, computed now; `MapCache.index` keeps what it computes.

    Raises SettingsError when `lists` is "stored" and the lists are above the budget.
    """
    road = scene.road
    lines = _resample(scene, params)
    box = _bounds(road.xyz)
    grid = _grid(box, params.cell)
    stored = _stored_cells(lines, road, params, _list_grid(box, params))
    index = MapIndex(
        map_digest=scene.map_digest,
        params=params,
        edges=_edges(lines, road, params, grid),
        lanes=_lanes(lines, road, grid),
        rows=tuple(_rows(lines, road, params, block, box, stored) for block in params.rows),
        lists="stored" if len(stored) else "computed",
        element_points=lines.element_points,
        points=lines.point[:, :4].copy(),
    )
    for array in index.arrays:
        array.flags.writeable = False
    return index


class _Lines(NamedTuple):
    """All elements after thinning and splitting, and their segments.

    element_points  (E + 1,)  i32
    point           (P, 5)    f32 [m]  x, y, z, arc, width
    first           (M,)      i64      point where each segment begins; it ends at the next
    element         (M,)      i64      element of each segment
    """

    element_points: I32
    point: F32
    first: NDArray[np.int64]
    element: NDArray[np.int64]


def _resample(scene: Scene, params: IndexParams) -> _Lines:
    """Thin and split every element (S10). End points, and with tolerance 0 all points, keep their bits."""
    from skidpad.scenes import index_kernels

    road = scene.road
    value = np.concatenate([road.xyz, road.arc[:, None], road.width[:, None]], axis=1).astype(np.float64)
    keep = np.ones(len(value), np.bool_)
    if params.map_tolerance > 0 and len(value):
        keep[:] = False
        shape = np.concatenate([value[:, :3], 0.5 * value[:, 4:5]], axis=1)
        longest = int(np.diff(road.element_points).max(initial=0))
        index_kernels.thin(shape, road.element_points, params.map_tolerance, keep, np.empty((longest + 2, 2), np.int64))
    element = np.repeat(np.arange(road.element_count), np.diff(road.element_points))[keep]
    value = value[keep]
    ends = np.ones(len(value), np.bool_)
    ends[:-1] = element[1:] != element[:-1]
    after = np.where(ends, np.arange(len(value)), np.arange(len(value)) + 1)
    length = np.hypot(*(value[after, :2] - value[:, :2]).T) if len(value) else np.zeros(0)
    pieces = np.maximum(np.ceil(length / params.max_segment - 1e-9), 1).astype(np.int64)
    at = np.repeat(np.arange(len(value)), pieces)
    part = np.arange(len(at)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    share = (part / pieces[at])[:, None]
    point = np.where(share > 0, value[at] + share * (value[after[at]] - value[at]), value[at]).astype(np.float32)
    element = element[at]
    element_points = np.searchsorted(element, np.arange(road.element_count + 1)).astype(np.int32)
    first = np.flatnonzero(element[1:] == element[:-1])
    moved = (point[first + 1, :2] != point[first, :2]).any(axis=1)  # A vertical piece has no direction.
    first = first[moved]
    return _Lines(element_points, np.ascontiguousarray(point), first, element[first])


def _bounds(xyz: F32) -> tuple[float, float, float, float]:
    """Lower left and upper right corner of the grid [m]; an empty box where there is no map."""
    if len(xyz) == 0:
        return 0.0, 0.0, 0.0, 0.0
    low = xyz[:, :2].min(axis=0).astype(np.float64) - MARGIN_M
    high = xyz[:, :2].max(axis=0).astype(np.float64) + MARGIN_M
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _grid(box: tuple[float, float, float, float], cell: float) -> Grid:
    """Cells of a side that is `cell`, doubled until MAX_CELLS hold the box (S13)."""
    while True:
        columns, rows = math.ceil((box[2] - box[0]) / cell), math.ceil((box[3] - box[1]) / cell)
        if columns * rows <= MAX_CELLS:
            return Grid(box[0], box[1], 1.0 / cell, columns, rows)
        cell *= 2


def _cell_lists(ends: F64, grid: Grid, reach: float) -> tuple[I32, I32]:
    """Segments (M, 4) by cell: CSR offsets (C + 1,) and items."""
    from skidpad.scenes.index_kernels import list_segments

    start = np.zeros(grid.columns * grid.rows + 2, np.int64)
    list_segments(ends, grid, reach, start, np.empty(0, np.int32))
    start = np.cumsum(start)
    items = np.empty(int(start[-1]), np.int32)
    if len(items):
        list_segments(ends, grid, reach, start, items)
    return start[:-1].astype(np.int32), items


def _ends(lines: _Lines, segment: NDArray[np.int64]) -> F64:
    """x0, y0, x1, y1 of segments [m]."""
    first = lines.first[segment]
    return np.concatenate([lines.point[first, :2], lines.point[first + 1, :2]], axis=1).astype(np.float64)


def _edges(lines: _Lines, road: RoadMap, params: IndexParams, grid: Grid) -> EdgeMap:
    kind = road.element_type[lines.element] // 10
    segment = np.flatnonzero(kind == 2)
    ends = _ends(lines, segment)
    start, items = _cell_lists(ends, grid, params.reach)
    first = lines.first[segment]
    height = 0.5 * (lines.point[first, 2] + lines.point[first + 1, 2])
    packed = np.concatenate([ends, height[:, None]], axis=1).astype(np.float32)[items]
    count = np.diff(start)
    blocks = np.concatenate([[0], np.cumsum(-(-count // EIGHT))]).astype(np.int32)
    place = np.arange(len(items)) + np.repeat(EIGHT * blocks[:-1] - start[:-1], count)
    padded = np.full((EIGHT * blocks[-1], 5), np.nan, np.float32)
    padded[place] = packed
    padded = padded.reshape(-1, EIGHT, 5).transpose(0, 2, 1)
    edge = _aligned(blocks[-1], 4 * EIGHT).reshape(-1, 4, EIGHT)
    edge[:] = padded[:, :4]
    return EdgeMap(grid, params.reach, blocks, edge, np.ascontiguousarray(padded[:, 4]))


def _lanes(lines: _Lines, road: RoadMap, grid: Grid) -> LaneMap:
    lane_of = np.full(road.element_count, -1, np.int64)
    lane_of[road.lane_element] = np.arange(road.lane_count)
    lane = lane_of[lines.element]
    order = np.argsort(lane, kind="stable")
    order = order[lane[order] >= 0]
    lane = lane[order]
    first = lines.first[order]
    a, b = lines.point[first], lines.point[first + 1]
    segment = np.empty((len(order), 12), np.float32)
    segment[:, 0:2], segment[:, 2:4] = a[:, :2], b[:, :2]
    segment[:, 4], segment[:, 5] = a[:, 2], b[:, 2]
    segment[:, 6], segment[:, 7] = a[:, 3], b[:, 3]
    segment[:, 8], segment[:, 9] = 0.5 * a[:, 4], 0.5 * b[:, 4]
    segment[:, 10:12] = _lane_headings((b[:, :2] - a[:, :2]).astype(np.float64), lane)
    ends = segment[:, :4].astype(np.float64)
    start, near = _cell_lists(ends, grid, LANE_REACH_M)
    lane_first = np.searchsorted(lane, np.arange(road.lane_count + 1)).astype(np.int32)
    clear = np.empty(len(order), np.float32)
    if len(order):
        from skidpad.scenes.index_kernels import segment_clearance

        segment_clearance(ends, lane_first, LANE_REACH_M, clear)
    kind = road.element_type[road.lane_element]
    return LaneMap(
        grid=grid,
        start=start,
        near=near,
        segment=segment,
        segment_lane=lane.astype(np.int32),
        lane_first=lane_first,
        exit_offset=road.exit_offset.copy(),
        exit_lane=road.exit_lane.copy(),
        drivable=road.drivable.copy(),
        road=(kind != LANE_WALKWAY) & (kind != LANE_OTHER),
        speed_limit=road.speed_limit.copy(),
        clear=clear,
    )


def _lane_headings(step: F64, lane: NDArray[np.int64]) -> F64:
    """cos, sin of the heading at each segment: its neighbours on the lane weigh half as much per metre (S70)."""
    total = 2 * step
    same = (lane[1:] == lane[:-1])[:, None]
    total[1:] += np.where(same, step[:-1], 0)
    total[:-1] += np.where(same, step[1:], 0)
    length = np.hypot(total[:, 0], total[:, 1])
    folded = length < 1e-6  # The neighbours cancel the segment: its own direction is all there is.
    total[folded] = step[folded]
    return np.asarray(total / np.hypot(total[:, 0], total[:, 1])[:, None])


def _rows(
    lines: _Lines,
    road: RoadMap,
    params: IndexParams,
    block: RowParams,
    box: tuple[float, float, float, float],
    stored: I32,
) -> RowMap:
    """Segment rows of one block (S16) and the neighbour lists over them (S17, S18)."""
    kind = road.element_type[lines.element] // 10
    segment = np.flatnonzero(np.isin(kind, block.kinds))
    mid = _ends(lines, segment)
    mid = 0.5 * (mid[:, :2] + mid[:, 2:])
    grid = _grid(box, params.list_cell)
    cell = np.floor((mid[:, 1] - grid.y) * grid.inverse) * grid.columns + np.floor((mid[:, 0] - grid.x) * grid.inverse)
    order = np.argsort(cell, kind="stable")
    segment, mid, cell = segment[order], mid[order], cell[order]
    lane_of = np.full(road.element_count, -1, np.int32)
    lane_of[road.lane_element] = np.arange(road.lane_count)
    angle = np.arange(2 * params.sectors) * (math.pi / params.sectors)
    turn = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    cells = _list_grid(box, params)
    rings = math.ceil(max(params.window) * grid.inverse)
    numbers = [*grid, *cells, *params.window, ORDERS.index(params.order), rings, block.slots]
    shape = (len(stored), params.sectors, block.slots)
    narrow = len(segment) < 1 << 16
    rows = RowMap(
        row=_row_block(lines, road, segment, block),
        mid=np.ascontiguousarray(mid.T),
        start=np.searchsorted(cell, np.arange(grid.columns * grid.rows + 1)).astype(np.int32),
        lane=lane_of[lines.element[segment]],
        along=_along(lines, segment, lane_of),
        numbers=np.array(numbers, np.float64),
        slot=np.full(cells.columns * cells.rows if len(stored) else 0, -1, np.int32),
        ids16=np.zeros(shape if narrow else (0, 0, 0), np.uint16),
        ids32=np.zeros((0, 0, 0) if narrow else shape, np.uint32),
        used=np.zeros(shape[:2], np.int32),
        total=np.zeros(shape[:2], np.int32),
        lowest=np.full(shape[:2], np.inf, np.float32),
        highest=np.full(shape[:2], -np.inf, np.float32),
        bound=turn[0::2].copy(),
        middle=turn[1::2].copy(),
    )
    if len(stored):
        from skidpad.scenes.index_kernels import fill_lists

        rows.slot[stored] = np.arange(len(stored))
        ids, squares = np.empty(block.slots, np.int32), np.empty(block.slots, np.float64)
        lists = rows.ids16, rows.ids32, rows.used, rows.total
        fill_lists(stored, rows.mid, rows.start, rows.numbers, *lists, rows.middle, ids, squares)
        heights = np.append(_heights(lines, segment), 0.0).astype(np.float32)
        for sector in range(params.sectors):  # a sector at a time: the table of all heights would be large
            shown = np.arange(block.slots) < rows.used[:, sector, None]
            height = heights[np.where(shown, rows.ids[:, sector], len(segment))]
            rows.lowest[:, sector] = np.min(height, axis=1, initial=np.inf, where=shown)
            rows.highest[:, sector] = np.max(height, axis=1, initial=-np.inf, where=shown)
    return rows


def _heights(lines: _Lines, segment: NDArray[np.int64]) -> F64:
    """Heights of the middles of segments (M,) [m]."""
    first = lines.first[segment]
    return np.asarray(0.5 * (lines.point[first, 2].astype(np.float64) + lines.point[first + 1, 2]))


def _list_grid(box: tuple[float, float, float, float], params: IndexParams) -> Grid:
    """The cells that own lists; never doubled, since a list is a pure function of its cell."""
    columns, rows = (math.ceil((box[i + 2] - box[i]) / params.list_cell) for i in (0, 1))
    return Grid(box[0], box[1], 1.0 / params.list_cell, columns, rows)


def _along(lines: _Lines, segment: NDArray[np.int64], lane_of: I32) -> F32:
    """Arc of the middles of segments, and of what is left of their lanes (2, M) f32 [m]."""
    first = lines.first[segment]
    arc = 0.5 * (lines.point[first, 3].astype(np.float64) + lines.point[first + 1, 3])
    last = lines.point[lines.element_points[1:] - 1, 3][lines.element[segment]]
    along = np.stack([arc, last - arc]).astype(np.float32)
    along[:, lane_of[lines.element[segment]] < 0] = 0.0
    return along


def _stored_cells(lines: _Lines, road: RoadMap, params: IndexParams, grid: Grid) -> I32:
    """The list cells whose lists are kept: those near drivable lanes, if the budget allows; ascending."""
    if params.lists == "computed" or params.order == "exact" or grid.columns * grid.rows > MAX_CELLS:
        return np.empty(0, np.int32)  # an exact list belongs to a pose, not to a cell
    drivable = np.zeros(road.element_count, np.bool_)
    drivable[road.lane_element] = road.drivable
    start, _ = _cell_lists(_ends(lines, np.flatnonzero(drivable[lines.element])), grid, LIST_REACH_M)
    stored = np.flatnonzero(np.diff(start) > 0).astype(np.int32)
    size = 2 if len(lines.first) < 1 << 16 else 4
    slots = sum(block.slots for block in params.rows)
    need = len(stored) * params.sectors * slots * size / (1 << 20)
    if need <= params.list_budget_mib:
        return stored
    if params.lists == "stored":
        raise SettingsError(
            f"neighbour lists of this map need {need:.1f} MiB, above the budget of {params.list_budget_mib:g} MiB. "
            'Use lists = "auto", which computes them at each look-up, or raise list_budget_mib.'
        )
    return np.empty(0, np.int32)


def _row_block(lines: _Lines, road: RoadMap, segment: NDArray[np.int64], block: RowParams) -> F32:
    first = lines.first[segment]
    a, b = lines.point[first].astype(np.float64), lines.point[first + 1].astype(np.float64)
    step = b[:, :2] - a[:, :2]
    length = np.hypot(step[:, 0], step[:, 1])
    middle = 0.5 * (a + b)
    kind = road.element_type[lines.element[segment]]
    values = {
        "x": middle[:, 0],
        "y": middle[:, 1],
        "z": middle[:, 2],
        "half length": 0.5 * length,
        "width": middle[:, 4],
        "cos": step[:, 0] / length,
        "sin": step[:, 1] / length,
        "kind": kind // 10,
        "side": 1.0 - kind // 10,
        "median": kind == EDGE_MEDIAN,
        "one": np.ones(len(segment)),
        "zero": np.zeros(len(segment)),
    }
    rows = _aligned(len(segment), 8)
    for column, (quantity, factor) in enumerate(block.columns):
        rows[:, column] = values[quantity] * np.float64(factor)
    return rows


def _aligned(count: int, floats: int) -> F32:
    """(count, floats) f32 that begins with a cache line: a row of 8 is one vector load, one of 32 two lines."""
    raw = np.empty(count * floats * 4 + CACHE_LINE, np.uint8)
    shift = -raw.ctypes.data % CACHE_LINE
    return raw[shift : shift + count * floats * 4].view(np.float32).reshape(count, floats)

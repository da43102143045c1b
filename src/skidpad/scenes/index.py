"""MapIndex: what is computed once per map so that a step never searches it.

A grid of square cells answers three questions by one look-up: which edges can a body in this cell touch, which lanes
may it be on, and which road segments does it see (`compact/1`: the nearest K rows in a window, per cell and heading
sector). The index thins and splits polylines (S10) but never moves an end point, and arc positions stay those of the
scene. Everything here is arrays; the loops are in `index_kernels.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
from skidpad.errors import SettingsError
from skidpad.scenes.scene import F32, I32, Bool, Scene

F64 = NDArray[np.float64]
ListId = NDArray[np.uint16] | NDArray[np.uint32]

INDEX_VERSION = 1
MARGIN_M = 30.0  # the grid reaches this far beyond the map; further out is off the map
MAX_CELLS = 4_000_000
LIST_REACH_M = 25.0  # neighbour lists are stored for cells this close to a drivable lane
LANE_REACH_M = 8.0


@dataclass(frozen=True)
class IndexParams:
    """What an index depends on besides the map. Lengths in metres.

    cell            side of the cells of contact and lane lists
    list_cell       side of the cells of neighbour lists
    sectors         heading sectors of a neighbour list; sector k holds headings in [k, k + 1) * 2 pi / sectors
    window          (behind, ahead, to each side): what a list shows, seen from the cell's centre along the sector's
                    middle
    slots           longest neighbour list
    kinds           what rows show: 0 lanes, 1 lines, 2 edges (element type // 10)
    scales          factors of the eight features of a row: x, y, half length, width, cos, sin, kind, z
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
    slots: int = 32
    kinds: tuple[int, ...] = (0, 2)
    scales: tuple[float, float, float, float, float, float, float, float] = (1.0,) * 8
    reach: float = 10.0
    map_tolerance: float = 0.1
    max_segment: float = 10.0
    lists: Literal["stored", "computed", "auto"] = "auto"
    list_budget_mib: float = 32.0

    def __post_init__(self) -> None:
        _, ahead, side = self.window
        if self.sectors < 4 or ahead * math.sin(math.pi / self.sectors) > side:
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
    """Contact lists (S14): per cell, every edge segment within `reach`, packed.

    reach  [m]                a circle no larger than this meets no edges but those of its centre's cell
    start  (C + 1,)  i32      cell c owns columns start[c] : start[c + 1]
    edge   (5, n)    f32 [m]  rows x0, y0, x1, y1, z (of the middle)
    """

    grid: Grid
    reach: float
    start: I32
    edge: F32


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


class RowMap(NamedTuple):
    """Segment rows (S16) and neighbour lists (S17). Look-ups: `index_kernels.road_rows`.

    row         (M, 8)       f32   mid x, mid y, half length, width, cos, sin, kind (0 lane, 1 line, 2 edge), z; each
                                   times its scale; 32-byte aligned; ordered by cell
    mid         (2, M)       f64   [m] mid x, mid y, unscaled
    start       (C + 1,)     i32   cell c of `grid` holds the middles of rows start[c] : start[c + 1]
    lane        (M,)         i32   lane of each row, -1 for lines and edges
    window      (3,)         f64   [m] behind, ahead, side
    list_grid   Grid               the list cells; the lists of a cell exist for any (i, j), also outside
    slot        (list C,)    i32   stored lists of a cell, -1 = computed at look-up; empty where none is stored
    list        (B, sectors, K)  u16 or u32   rows, nearest to the cell's centre first, ties by row
    count       (B, sectors) i32   how many of K are used
    total       (B, sectors) i32   how many rows lie in the window
    bound       (sectors, 2) f64   cos, sin where each sector begins
    """

    grid: Grid
    row: F32
    mid: F64
    start: I32
    lane: I32
    window: F64
    list_grid: Grid
    slot: I32
    list: ListId
    count: I32
    total: I32
    bound: F64


@dataclass(frozen=True, eq=False)
class MapIndex:
    """Everything the kernels read of one map under one set of parameters. All arrays are read-only.

    map_digest, params   the key
    lists                "stored" or "computed": which one "auto" became
    element_points       (E + 1,)  i32  points of each element after thinning and splitting
    points               (P, 4)    f32  [m] x, y, z, and arc position of the scene's element
    """

    map_digest: str
    params: IndexParams
    edges: EdgeMap
    lanes: LaneMap
    rows: RowMap
    lists: Literal["stored", "computed"]
    element_points: I32
    points: F32

    @property
    def has_edges(self) -> bool:
        """Whether off-road can be told from edges."""
        return self.edges.edge.shape[1] > 0

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        parts = (*self.edges, *self.lanes, *self.rows, self.element_points, self.points)
        return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))


def build_index(scene: Scene, params: IndexParams) -> MapIndex:
    """The index of a scene's map; built once per process for each map and parameters.

    Raises SettingsError when `lists` is "stored" and the lists are above the budget.
    """
    raise NotImplementedError

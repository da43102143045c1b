"""Road lists for layouts that leave road rows out (S94): which list an agent's reference names, and its rows in the
list's own frame, where they are the same for everybody who reads it.

The frame of a list has its origin in the middle of the list cell, x along the middle of the heading sector, and its
height at the middle of a level: heights are cut into levels of half the gate, so that agents over and under a bridge
read two lists. Rows further from the level than the gate are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError
from skidpad.scenes.index import LIST_INVERSE, LIST_X, LIST_Y, RowMap
from skidpad.scenes.scene import F32
from skidpad.simulation.deferred import listed_rows
from skidpad.simulation.layout_table import Block, Layout

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

NOBODY = -1  # the key of an absent agent, who reads no list
ACROSS_M = np.float32(10.0)
FAR_CELLS, FAR_LEVELS, SECTORS = 1 << 15, 1 << 9, 16
MAP, COLUMN, ROW, SECTOR, X, Y, Z, COS, SIN = range(9)


class MapLists(NamedTuple):
    """One map: the row map of each block, and the level gate [m] that its worlds have."""

    rows: tuple[RowMap, ...]
    gate: float


class Roads:
    """The road lists of some maps, by the numbers that references give them.

    blocks  of road rows that the layout defers
    """

    def __init__(self, layout: Layout, maps: Mapping[int, MapLists]) -> None:
        self.layout, self.blocks, self._maps = layout, layout.lists, dict(maps)
        self._at = layout.span("road reference")
        self._frames = [_Frame(block) for block in self.blocks]

    def keys(self, rows: F32) -> I64:
        """Which list each row reads, (N,) i64; NOBODY for absent agents.

        rows  (N, D)  f32  observations

        Raises ProtocolError for a reference that is not finite, or to a map or sector that there is not.
        """
        reference = rows[:, self._at]
        if not np.isfinite(reference).all():
            wrong = int(np.flatnonzero(~np.isfinite(reference).all(axis=1))[0])
            raise ProtocolError(f"row {wrong}: its reference to a road list is not finite: {reference[wrong].tolist()}")
        live = (reference[:, COS] != 0) | (reference[:, SIN] != 0)
        named = np.where(live[:, None], reference[:, : SECTOR + 1], 0).astype(np.int64)
        number, sector = named[:, MAP], named[:, SECTOR]
        known, level = (sector >= 0) & (sector < self.layout.sectors), np.zeros(len(rows), np.int64)
        found = np.zeros(len(rows), np.bool_)
        for one, lists in self._maps.items():
            here = number == one
            found |= here
            if np.isfinite(lists.gate):
                level[here] = np.floor(reference[here, Z] / (0.5 * lists.gate)).clip(-FAR_LEVELS, FAR_LEVELS - 1)
        if (live & ~(known & found)).any():
            wrong = int(np.flatnonzero(live & ~(known & found))[0])
            raise ProtocolError(
                f"row {wrong} reads the road list of map {number[wrong]}, heading sector {sector[wrong]}; there are "
                f"maps {', '.join(map(str, self._maps)) or 'none'} and {self.layout.sectors} sectors. Rows are read "
                "beside the maps of the simulator that wrote them."
            )
        column, row = (named[:, k].clip(-FAR_CELLS, FAR_CELLS - 1) + FAR_CELLS for k in (COLUMN, ROW))
        place = (number * 2 * FAR_CELLS + column) * 2 * FAR_CELLS + row
        return np.where(live, (place * SECTORS + sector) * 2 * FAR_LEVELS + level + FAR_LEVELS, NOBODY)

    def rows(self, keys: I64) -> tuple[F32, ...]:
        """The rows of lists in their own frames, (n, R, F) f32 for each block.

        F are the features of the block that the map's index holds, on the layout's scales and within its bounds, and
        how far the line through the segment passes left of the origin, in 10 m. Slots that no row fills are zero.
        """
        rest, level = np.divmod(keys, 2 * FAR_LEVELS)
        rest, sector = np.divmod(rest, SECTORS)
        rest, row = np.divmod(rest, 2 * FAR_CELLS)
        number, column = np.divmod(rest, 2 * FAR_CELLS)
        cells = np.stack([column - FAR_CELLS, row - FAR_CELLS, sector], 1)
        every = [np.zeros((len(keys), block.rows, frame.features), np.float32) for block, frame in self._both()]
        for one in np.unique(number[keys != NOBODY]).tolist():
            lists, here = self._maps[one], np.flatnonzero((number == one) & (keys != NOBODY))
            height = (level[here] - FAR_LEVELS + 0.5) * 0.5 * lists.gate if np.isfinite(lists.gate) else np.zeros(1)
            for found, (block, frame), road in zip(every, self._both(), lists.rows, strict=True):
                ids, used = listed_rows(road, cells[here], block.rows)
                found[here] = frame.shown(road, ids, used, cells[here], height, lists.gate)
        return tuple(every)

    def _both(self) -> Iterator[tuple[Block, _Frame]]:
        return zip(self.blocks, self._frames, strict=True)


def features_of(block: Block) -> int:
    """Features of a row in its list's frame."""
    return _Frame(block).features


class _Frame:
    """Where the numbers of a block's row are in the map's index, and how they are shown."""

    def __init__(self, block: Block) -> None:
        names = [feature.name for feature in block.features]
        quantities = [quantity for quantity, _ in block.columns]
        self._held = sum(quantity != "zero" for quantity in quantities[: len(names)])
        self.features = self._held + 1
        self._heading, self._height = names.index("cos"), quantities.index("z")
        self._scale = np.float32(1.0 / block.features[0].divisor)
        self._z_scale = np.float32(1.0 / block.features[2].divisor) if names[2] == "z" else None
        shown = block.features[: self._held]
        self._low = np.array([*(feature.low for feature in shown), -1.0], np.float32)
        self._high = np.array([*(feature.high for feature in shown), 1.0], np.float32)

    def shown(self, road: RowMap, ids: I64, used: I64, cells: I64, height: F64, gate: float) -> F32:
        """Rows (n, R, F) f32 of lists ids (n, R), used (n,) of each, in cells (n, 3), at heights (n,) or (1,) [m]."""
        side = 1.0 / road.numbers[LIST_INVERSE]
        middle_x = road.numbers[LIST_X] + (cells[:, 0] + 0.5) * side
        middle_y = road.numbers[LIST_Y] + (cells[:, 1] + 0.5) * side
        cos, sin = road.middle[cells[:, 2]].T.astype(np.float32)[:, :, None]
        row, at = road.row[ids], self._heading
        x, y = (
            (row[..., 0] - middle_x[:, None]).astype(np.float32),
            (row[..., 1] - middle_y[:, None]).astype(np.float32),
        )
        x, y = x * cos + y * sin, y * cos - x * sin
        along, aside = row[..., at] * cos + row[..., at + 1] * sin, row[..., at + 1] * cos - row[..., at] * sin
        over = row[..., self._height] - height[:, None].astype(np.float32)
        shown = np.empty((*ids.shape, self.features), np.float32)
        shown[..., 2 : self._held] = row[..., 2 : self._held]
        shown[..., 0], shown[..., 1], shown[..., at], shown[..., at + 1] = (
            x * self._scale,
            y * self._scale,
            along,
            aside,
        )
        if self._z_scale is not None:
            shown[..., 2] = over * self._z_scale
        shown[..., self._held] = (along * y - aside * x) / ACROSS_M
        np.clip(shown, self._low, self._high, out=shown)
        shown[~((np.arange(ids.shape[1]) < used[:, None]) & (np.abs(over) <= gate))] = 0
        return shown

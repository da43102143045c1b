"""Ragged lists as two arrays: row r owns items[offset[r] : offset[r + 1]].

offset  (n + 1,)  i32   starts at 0, never falls
items   (k,)            one after the other
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

I32 = NDArray[np.int32]


def pack(rows: Sequence[Sequence[Any]], dtype: DTypeLike = np.int32) -> tuple[I32, NDArray[Any]]:
    """Offsets and items of a list of lists."""
    offset = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offset[1:])
    return offset, np.array([item for row in rows for item in row], dtype)


def unpack(offset: I32, items: NDArray[Any]) -> list[list[Any]]:
    """The inverse of `pack`."""
    return [items[first:last].tolist() for first, last in pairwise(offset.tolist())]


def from_pairs(pairs: Iterable[tuple[int, int]], rows: int) -> tuple[I32, I32]:
    """Offsets and items of a relation given as (row, item): each pair once, items ascending within a row."""
    unique = np.array(sorted(set(pairs)), np.int32).reshape(-1, 2)
    offset = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(unique[:, 0], minlength=rows), out=offset[1:])
    return offset, unique[:, 1].copy()


def row_of_item(offset: I32) -> I32:
    """The row that owns each item: (k,) i32."""
    return np.repeat(np.arange(len(offset) - 1, dtype=np.int32), np.diff(offset))


def transpose(offset: I32, items: I32) -> tuple[I32, I32]:
    """The relation the other way round, over the same number of rows; items ascending within a row.

    A relation in which each pair stands once, with items ascending, is its own double transpose.
    """
    rows = row_of_item(offset)
    order = np.lexsort((rows, items))
    turned = np.zeros(len(offset), np.int32)
    np.cumsum(np.bincount(items, minlength=len(offset) - 1), out=turned[1:])
    return turned, rows[order]

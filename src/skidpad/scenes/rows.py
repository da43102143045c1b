"""What a logged track must obey (S5), row by row, in float64: finite, of a possible size, at a possible speed.

A row that breaks a rule becomes invalid and is counted; nothing is interpolated here. Invalid rows hold zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.formats import derive
from skidpad.scenes.loss import LossReport
from skidpad.scenes.pieces import TrackRows

F64 = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LARGEST_SIZE_M = 60.0
FASTEST_M_S = 70.0
NO_ID = -1
_LARGEST = float(np.finfo(np.float32).max)

ROW_FIELDS = ("x", "y", "z", "heading", "vx", "vy", "length", "width", "height")


def wrapped(angle: F64) -> NDArray[np.float32]:
    """Angles in (-pi, pi] as float32, where pi is the float32 nearest to it."""
    turned = np.remainder(angle + np.pi, 2.0 * np.pi) - np.pi
    single = turned.astype(np.float32)
    single[single == -np.float32(np.pi)] = np.float32(np.pi)
    return single


def apply_row_rules(rows: TrackRows, dt: float) -> dict[str, int]:
    """Invalidate the rows that break a rule and zero all invalid rows, in place; says how many fell to each rule."""
    fallen = {}
    # Nothing above float32, which a scene is made of, is a number of one.
    finite = np.logical_and.reduce([np.abs(rows.values[name]) <= _LARGEST for name in ROW_FIELDS])
    fallen["dropped_row_not_finite"] = _invalidate(rows, ~finite)
    size = np.stack([rows.values["length"], rows.values["width"]])
    with np.errstate(invalid="ignore"):  # what is not finite has fallen already; comparing it is harmless
        impossible = np.any((size <= 0.0) | (size > LARGEST_SIZE_M), axis=0) | (rows.values["height"] < 0.0)
    fallen["dropped_row_size"] = _invalidate(rows, impossible)
    fallen["dropped_row_speed"] = _drop_jumps(rows, dt)
    for name in ROW_FIELDS:
        rows.values[name][~rows.valid] = 0.0
    return {kind: count for kind, count in fallen.items() if count}


def kept_tracks(tracks: Sequence[TrackRows], dt: float, loss: LossReport) -> list[int]:
    """Apply the row rules to all tracks and fill in missing velocities, in place; the numbers of those that are kept.

    Of tracks with one id the first is kept; a track without a valid row is not.
    """
    kept = []
    seen: set[int] = set()
    for number, rows in enumerate(tracks):
        if rows.source_id != NO_ID and rows.source_id in seen:
            loss.count("dropped_track_doubled", f"{rows.name}: the first of this id wins")
            continue
        seen.add(rows.source_id)
        for kind, count in apply_row_rules(rows, dt).items():
            loss.count(kind, f"{rows.name}: {count} rows", count)
        if not rows.valid.any():
            loss.count("dropped_track_without_rows", rows.name)
            continue
        if not rows.has_velocity:
            x, y = rows.values["x"], rows.values["y"]
            rows.values["vx"], rows.values["vy"] = derive.velocities(x, y, rows.valid, dt)
        kept.append(number)
    return kept


def _invalidate(rows: TrackRows, broken: BoolArray) -> int:
    hit = rows.valid & broken
    rows.valid &= ~broken
    return int(hit.sum())


def _drop_jumps(rows: TrackRows, dt: float) -> int:
    """Invalidate rows that could only be reached faster than FASTEST_M_S from the last row that stands.

    The first row falls when the jump is its own, that is when the rows after it agree with each other.
    """
    x, y = rows.values["x"], rows.values["y"]
    index = np.flatnonzero(rows.valid)

    def jumps(one: int, other: int) -> bool:
        return bool(np.hypot(x[other] - x[one], y[other] - y[one]) > FASTEST_M_S * dt * (other - one))

    if len(index) < 2 or not np.any(np.hypot(np.diff(x[index]), np.diff(y[index])) > FASTEST_M_S * dt * np.diff(index)):
        return 0
    kept = [int(index[0])]
    if len(index) > 2 and jumps(index[0], index[1]) and not jumps(index[1], index[2]):
        kept = [int(index[1])]
    for row in index[index > kept[0]]:
        if not jumps(kept[-1], row):
            kept.append(int(row))
    rows.valid[:] = False
    rows.valid[kept] = True
    return len(index) - len(kept)


def pack_rows(tracks: list[TrackRows], steps: int, origin: F64) -> dict[str, NDArray[Any]]:
    """The (N, T) arrays of `Tracks` and the per-track columns, in the local frame."""
    count = len(tracks)
    table = {name: np.zeros((count, steps)) for name in ROW_FIELDS}
    valid = np.zeros((count, steps), np.bool_)
    for index, rows in enumerate(tracks):
        valid[index] = rows.valid
        for name in ROW_FIELDS:
            table[name][index] = rows.values[name]
    for axis, name in enumerate(("x", "y", "z")):
        table[name][valid] -= origin[axis]
    arrays: dict[str, NDArray[Any]] = {name: table[name].astype(np.float32) for name in ROW_FIELDS}
    arrays["heading"] = wrapped(table["heading"])
    arrays["valid"] = valid
    if steps:
        some = valid.any(axis=1)
        arrays["first"] = np.where(some, valid.argmax(axis=1), -1).astype(np.int32)
        arrays["last"] = np.where(some, steps - 1 - valid[:, ::-1].argmax(axis=1), -1).astype(np.int32)
    arrays["type"] = np.array([rows.type for rows in tracks], np.uint8)
    arrays["subtype"] = np.array([rows.subtype for rows in tracks], np.uint8)
    arrays["source_id"] = np.array([rows.source_id for rows in tracks], np.int64)
    arrays["expert"] = np.array([rows.expert for rows in tracks], np.bool_)
    arrays["goal"] = _goals(tracks, arrays, origin)
    arrays["goal_valid"] = np.ones(count, np.bool_)
    return arrays


def _goals(tracks: list[TrackRows], arrays: dict[str, NDArray[Any]], origin: F64) -> NDArray[np.float32]:
    goal = np.zeros((len(tracks), 3), np.float32)
    for index, rows in enumerate(tracks):
        if rows.goal is not None:
            goal[index] = rows.goal - origin
        else:
            row = arrays["last"][index]
            goal[index] = [arrays[name][index, row] for name in ("x", "y", "z")]
    return goal

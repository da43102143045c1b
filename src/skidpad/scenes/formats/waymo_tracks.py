"""Tracks, clock and choices of a Waymo motion scenario (R18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skidpad.artifacts.wire import Field, fields
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.motion_codes import TRACK_TYPES, time_step
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.wire_table import (
    DOUBLE,
    FLOAT,
    INTEGER,
    U8,
    Spans,
    columns,
    doubles,
    head_bytes,
    integers,
    split,
)
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import SUBTYPE_CAR, SUBTYPE_NONE, TYPE_UNKNOWN, TYPE_VEHICLE

_ID, _TYPE, _STATES = 1, 2, 3
_VALID = 11
# Field of a state -> column of a track.
_STATE = {2: "x", 3: "y", 4: "z", 5: "length", 6: "width", 7: "height", 8: "heading", 9: "vx", 10: "vy"}
_STATE_KINDS = {number: DOUBLE if number <= 4 else FLOAT for number in _STATE} | {_VALID: INTEGER}
_SDC, _INTEREST, _PREDICT = 6, 4, 11


@dataclass(eq=False)
class TrackIds:
    """The tracks as the file numbers them: ids in order, and the rows of the scene."""

    steps: int
    ids: list[int] = field(default_factory=list)


def clock(timestamps: Sequence[Field], loss: LossReport) -> tuple[int, int]:
    """Microseconds between rows, a whole number of milliseconds, and how many rows the clock has.

    Raises FormatError for times that are not finite or do not run forwards.
    """
    times = np.concatenate([np.zeros(0), *(doubles(one) for one in timestamps)])
    return time_step(times, loss), len(times)


def add_tracks(record: U8, items: Sequence[Field], rows: int, builder: SceneBuilder, limits: Limits) -> TrackIds:
    """Hand every track to the builder; rows are those of the longest track, or of the clock where there is none."""
    limits.check("tracks", len(items), "tracks")
    parsed = []
    for number, item in enumerate(items):
        message = item.message()
        start = item.offset + head_bytes(record, item.offset)
        states, others = split(record, start, len(message), _STATES)
        limits.check("rows", len(states.start), f"track {number}")
        parsed.append((number, states, _last_integers(others, builder.loss)))
    steps = max([1, *(len(states.start) for _, states, _ in parsed)]) if parsed else max(1, rows)
    limits.check("track_rows", steps * len(parsed), "tracks")
    if parsed and rows and rows != steps:
        builder.loss.count("repaired_clock", f"{rows} timestamps, {steps} rows")
    tracks = TrackIds(steps)
    for number, states, (identity, kind) in parsed:
        _add_track(record, number, states, identity, kind, steps, builder)
        tracks.ids.append(identity)
    return tracks


def _last_integers(others: Sequence[Field], loss: LossReport) -> tuple[int, int]:
    """Id and type of a track."""
    identity, kind = -1, 0
    for one in others:
        if one.number == _ID:
            identity = one.integer()
        elif one.number == _TYPE:
            kind = one.integer()
        else:
            loss.count("unknown_field", f"track, field {one.number}")
    return identity, kind


def _add_track(
    record: U8, number: int, states: Spans, identity: int, kind: int, steps: int, builder: SceneBuilder
) -> None:
    found, unknown = columns(record, states, _STATE_KINDS)
    for other, count in unknown.items():
        builder.loss.count("unknown_field", f"state, field {other}", count)
    padding = (0, steps - len(states.start))
    builder.loss.count("assumed_absent_rows", f"track {identity}: {len(states.start)} rows of {steps}", padding[1])
    if not 0 <= kind < len(TRACK_TYPES):
        builder.loss.count("unknown_object_type", f"track {identity}: type {kind}")
    type_ = TRACK_TYPES[kind] if 0 <= kind < len(TRACK_TYPES) else TYPE_UNKNOWN
    rows: dict[str, Any] = {name: np.pad(found[number].value, padding) for number, name in _STATE.items()}
    builder.track(
        identity,
        type_,
        SUBTYPE_CAR if type_ == TYPE_VEHICLE else SUBTYPE_NONE,
        valid=np.pad(found[_VALID].value != 0, padding),
        **rows,
    )


def chosen(
    top: Mapping[int, list[Field]], tracks: TrackIds, loss: LossReport
) -> tuple[int, list[int], list[int], list[int]]:
    """Numbers of the recording vehicle (-1 if none), of the tracks to predict and of the objects of interest, and the
    difficulty of each track to predict.

    The file gives the first two as numbers and the last as ids.
    """
    count = len(tracks.ids)
    sdc = top[_SDC][-1].integer() if _SDC in top else -1
    if not -1 <= sdc < count:
        loss.count("dropped_sdc", f"track {sdc} of {count}")
        sdc = -1
    predict, difficulty = [], []
    for item in top.get(_PREDICT, []):
        values = {one.number: one.integer() for one in fields(item.message(), item.offset)}
        index = values.get(1, 0)
        if 0 <= index < count:
            predict.append(index)
            difficulty.append(values.get(2, 0))
        else:
            loss.count("dropped_track_to_predict", f"track {index} of {count}")
    number_of = {identity: number for number, identity in reversed(list(enumerate(tracks.ids)))}
    interest = []
    for item in top.get(_INTEREST, []):
        for identity in integers(item):
            if identity in number_of:
                interest.append(number_of[identity])
            else:
                loss.count("dropped_object_of_interest", f"no track has id {identity}")
    return sdc, predict, interest, difficulty

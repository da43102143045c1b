"""Who drove in a ScenarioNet scenario (R24), and whom its metadata single out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import pickle_values
from skidpad.scenes.formats.json_file import count_keys
from skidpad.scenes.formats.motion_codes import TRACK_WORDS
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import SUBTYPE_CAR, SUBTYPE_NONE, SUBTYPE_STATIC, TYPE_UNKNOWN, TYPE_VEHICLE

F64 = NDArray[np.float64]

_TYPES = {
    word.upper(): (kind, SUBTYPE_CAR if kind == TYPE_VEHICLE else SUBTYPE_NONE) for word, kind in TRACK_WORDS.items()
} | dict.fromkeys(("TRAFFIC_CONE", "TRAFFIC_BARRIER", "TRAFFIC_OBJECT"), (TYPE_UNKNOWN, SUBTYPE_STATIC))
# Length, width, height [m] where a file has none: of a car, a person, anything else.
_ASSUMED_M = {"VEHICLE": (4.6, 2.0, 1.5), "CYCLIST": (1.8, 0.7, 1.7), "PEDESTRIAN": (0.7, 0.7, 1.7)}
_OTHER_M = (1.0, 1.0, 1.0)
_STATE = ("position", "heading", "velocity", "valid", "length", "width", "height")


@dataclass(eq=False)
class TrackNames:
    """The tracks as the file names them, in its order, and the rows of the scene."""

    steps: int
    ids: list[str] = field(default_factory=list)

    @property
    def are_numbers(self) -> bool:
        return all(_source_id(name) != -1 for name in self.ids)


def _source_id(name: str) -> int:
    """Ids that are no numbers, as those of nuScenes, have none in a scene; its labels keep them."""
    return int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else -1


def add_tracks(found: Mapping[str, Any], rows: int, builder: SceneBuilder) -> TrackNames:
    """Hand every track to the builder; `rows` are those of the clock, 0 where it is absent.

    Raises FormatError for series that differ in length from each other or from the clock.
    """
    limits = builder.limits
    limits.check("tracks", len(found), "tracks")
    tracks = TrackNames(rows)
    for name, value in found.items():
        where = f"tracks[{name[:60]!r}]"
        track = pickle_values.record(value, where)
        count_keys(builder.loss, where, track, ("type", "state"), ("metadata",))
        state = pickle_values.record(track.get("state"), f"{where}.state")
        count_keys(builder.loss, where, state, _STATE)
        for series in ("position", "heading"):
            if series not in state:
                raise FormatError(f"{where}: state {series!r} is missing, expected a row for every time.")
        position = pickle_values.table(state["position"], f"{where}.position", (3, 2))
        tracks.steps = tracks.steps or len(position)
        limits.check("rows", len(position), where)
        limits.check("track_rows", (len(tracks.ids) + 1) * tracks.steps, where)
        _add_track(name, where, track, state, position, tracks.steps, builder)
        tracks.ids.append(name)
    tracks.steps = max(1, tracks.steps)
    return tracks


def _add_track(
    name: str,
    where: str,
    track: Mapping[str, Any],
    state: Mapping[str, Any],
    position: F64,
    steps: int,
    builder: SceneBuilder,
) -> None:
    word = pickle_values.text(track.get("type", "UNSET"), f"{where}.type")
    if word not in _TYPES:
        builder.loss.count("unknown_object_type", f"{where}: {word[:60]!r}")
    kind, subtype = _TYPES.get(word, (TYPE_UNKNOWN, SUBTYPE_NONE))
    series = {"position": position}
    for column in ("heading", "valid", "length", "width", "height"):
        if column in state:
            series[column] = pickle_values.numbers(state[column], f"{where}.{column}")
    if "velocity" in state:
        series["velocity"] = pickle_values.table(state["velocity"], f"{where}.velocity", (2, 3))
    if wrong := [f"{column} {len(rows)}" for column, rows in series.items() if len(rows) != steps]:
        raise FormatError(f"{where}: {', '.join(wrong)} rows, expected {steps} as the clock or the first track has.")
    valid = np.ones(steps, np.bool_)
    if "valid" in series:
        if not np.isin(series["valid"], (0.0, 1.0)).all():
            raise FormatError(f"{where}.valid: expected true, false, 1 or 0.")
        valid = series["valid"] == 1.0
    else:
        builder.loss.count("assumed_valid", f"{where}: all rows")
    sizes: dict[str, Any] = {}
    for column, assumed in zip(("length", "width", "height"), _ASSUMED_M.get(word, _OTHER_M), strict=True):
        if column not in series:
            builder.loss.count("assumed_size", f"{where}: {column} {assumed:g} m")
        sizes[column] = series.get(column, assumed)
    velocity = series.get("velocity")
    builder.track(
        _source_id(name),
        kind,
        subtype,
        x=position[:, 0],
        y=position[:, 1],
        z=position[:, 2] if position.shape[1] == 3 else None,
        heading=series["heading"],
        vx=None if velocity is None else velocity[:, 0],
        vy=None if velocity is None else velocity[:, 1],
        valid=valid,
        **sizes,
    )


def chosen_tracks(
    metadata: Mapping[str, Any], tracks: TrackNames, loss: LossReport
) -> tuple[int, list[int], list[int]]:
    """Numbers of the recording vehicle (-1 if none), of the tracks to predict and of the objects of interest; the
    file names all of them by id."""
    number = {name: index for index, name in enumerate(tracks.ids)}
    sdc = -1
    if metadata.get("sdc_id") is not None:
        name = pickle_values.text(metadata["sdc_id"], "metadata.sdc_id")
        sdc = number.get(name, -1)
        if sdc < 0:
            loss.count("dropped_sdc", f"no track has id {name[:60]!r}")
    wanted = {}
    for member in ("tracks_to_predict", "objects_of_interest"):
        value = metadata.get(member) or ()
        where = f"metadata.{member}"
        names = list(pickle_values.by_id(value, where)) if type(value) is dict else pickle_values.items(value, where)
        wanted[member] = _numbers(names, number, member.replace("tracks_", "track_").replace("objects", "object"), loss)
        if type(value) is dict and value:
            loss.count("ignored_difficulty", f"{where}: what else is said of a track", len(value))
    return sdc, wanted["tracks_to_predict"], wanted["objects_of_interest"]


def _numbers(names: list[Any], number: Mapping[str, int], what: str, loss: LossReport) -> list[int]:
    found = []
    for value in names:
        name = pickle_values.text(value, f"metadata, {what}")
        if name in number:
            found.append(number[name])
        else:
            loss.count(f"dropped_{what}", f"no track has id {name[:60]!r}")
    return found

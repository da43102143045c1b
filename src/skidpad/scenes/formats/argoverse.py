"""Argoverse 2 motion forecasting (R21): a Parquet file of tracks, and the JSON of the map around them.

Needs pyarrow, the extra `argoverse`. The data have no sizes: they are assumed by type, and counted. Motion maps give
centre lines at height 0 and borders with true heights; heights come from the borders, those of tracks from the lanes.

Option `map`: the map's file, or `none`; left out, it is `log_map_archive_<scenario>.json` beside the scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError, MissingExtraError, SettingsError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.argoverse_map import add_map
from skidpad.scenes.formats.json_file import load_json
from skidpad.scenes.formats.motion_codes import DT_US
from skidpad.scenes.formats.source import Limits, Source, read_source
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    SUBTYPE_BUS,
    SUBTYPE_CAR,
    SUBTYPE_MOTORCYCLE,
    SUBTYPE_NONE,
    SUBTYPE_STATIC,
    TYPE_CYCLIST,
    TYPE_PEDESTRIAN,
    TYPE_UNKNOWN,
    TYPE_VEHICLE,
    Scene,
)

F64 = NDArray[np.float64]

FORMAT = "argoverse2"
OPTIONS = frozenset({"map"})
NO_MAP = "none"
LICENCE = "CC BY-NC-SA 4.0"
ATTRIBUTION = "Argoverse 2, (c) 2022 Argo AI, LLC"

_MAGIC = b"PAR1"
_RECORDING = "AV"
_SCORED, _FOCAL = 2, 3
_NUMBERS = ("timestep", "object_category", "position_x", "position_y", "heading", "velocity_x", "velocity_y")
_COLUMNS = (*_NUMBERS, "observed", "track_id", "object_type", "scenario_id", "city")
_UNUSED = ("start_timestamp", "end_timestamp", "num_timestamps", "focal_track_id", "map_id", "slice_id")

# Type, subtype and assumed length, width, height [m].
_OTHER = (TYPE_UNKNOWN, SUBTYPE_STATIC, (1.0, 1.0, 1.0))
_TYPES = {
    "vehicle": (TYPE_VEHICLE, SUBTYPE_CAR, (4.6, 2.0, 1.5)),
    "bus": (TYPE_VEHICLE, SUBTYPE_BUS, (12.0, 2.9, 3.2)),
    "motorcyclist": (TYPE_VEHICLE, SUBTYPE_MOTORCYCLE, (2.2, 0.8, 1.5)),
    "cyclist": (TYPE_CYCLIST, SUBTYPE_NONE, (1.8, 0.7, 1.7)),
    "pedestrian": (TYPE_PEDESTRIAN, SUBTYPE_NONE, (0.7, 0.7, 1.7)),
    **dict.fromkeys(("static", "background", "construction"), _OTHER),
    **dict.fromkeys(("riderless_bicycle", "unknown"), (TYPE_UNKNOWN, SUBTYPE_NONE, (1.0, 1.0, 1.0))),
}


def sniff(head: bytes, name: str) -> float:
    """1 for a Parquet file, which is what only this reader knows; its columns are checked when it is read."""
    return 1.0 if head.startswith(_MAGIC) else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of a scenario.

    Raises MissingExtraError without pyarrow, FormatError where a file breaks its format or a limit, SettingsError where
    no map is named and none lies beside the file.
    """
    table = _table(source, limits)
    loss = LossReport()
    for name in _UNUSED:
        loss.count(f"ignored_{name}", "a column of every row", int(name in table))
    for name in sorted(set(table) - {*_COLUMNS, *_UNUSED}):
        loss.count("unknown_column", name)
    rows = _row_numbers(table, limits)
    scenario = _only(table["scenario_id"], "scenario_id")
    builder = SceneBuilder(scenario, "argoverse2", FORMAT, "motion", source.digest, DT_US, loss=loss, limits=limits)
    heights = _add_map(source, scenario, limits, options, builder)
    ids, sdc, categories = _add_tracks(table, rows, heights, builder, limits)
    observed = rows[np.asarray(table["observed"], np.bool_)]
    predict = [track for wanted in (_FOCAL, _SCORED) for track in range(len(ids)) if categories[track] == wanted]
    return builder.finish(
        has_z=heights is not None,
        current_step=int(observed.max(initial=0)),
        sdc=sdc,
        tracks_to_predict=predict,
        labels={"city": _only(table["city"], "city"), "tracks": ids},
        licence=LICENCE,
        attribution=ATTRIBUTION,
    )


def _table(source: Source, limits: Limits) -> dict[str, NDArray[Any]]:
    """The columns of the file by name; numbers as (rows,) f64, others as objects."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("Argoverse 2 scenarios need pyarrow: pip install 'skidpad[argoverse]'") from None
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(source.data))
        limits.check("track_rows", file.metadata.num_rows, source.name)
        limits.check("elements", file.metadata.num_columns, source.name)
        names = file.schema_arrow.names
        missing = [name for name in _COLUMNS if name not in names]
        if missing:
            raise FormatError(
                f"{source.name}: a Parquet file without the columns {', '.join(missing)}, expected a scenario of "
                "Argoverse 2."
            )
        read = file.read(columns=list(_COLUMNS))
        found = {name: read.column(name).to_numpy(zero_copy_only=False) for name in _COLUMNS}
        found |= {name: np.zeros(0) for name in names if name not in found}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        text = str(error).partition("\n")[0][:200]
        raise FormatError(f"{source.name}: not a whole Parquet file: {text}. Copy the file again.") from None
    for name in _NUMBERS:
        try:
            found[name] = np.asarray(found[name], np.float64)
        except (TypeError, ValueError):
            raise FormatError(f"{source.name}: column {name!r} does not hold numbers.") from None
    if not len(found["timestep"]):
        raise FormatError(f"{source.name}: no rows, expected tracks.")
    return found


def _row_numbers(table: Mapping[str, NDArray[Any]], limits: Limits) -> NDArray[np.int64]:
    steps = table["timestep"]
    if not np.all(np.isfinite(steps) & (steps >= 0) & (steps == np.floor(steps))):
        raise FormatError("column 'timestep': expected whole numbers from 0.")
    limits.check("rows", float(steps.max()) + 1, "column 'timestep'")
    return steps.astype(np.int64)


def _only(column: NDArray[Any], what: str) -> str:
    values = {str(value) for value in column}
    if len(values) != 1:
        raise FormatError(f"column {what!r} holds {len(values)} different values, expected one scenario in a file.")
    return values.pop()


def _add_map(
    source: Source, scenario: str, limits: Limits, options: Mapping[str, Any], builder: SceneBuilder
) -> F64 | None:
    """Places (n, 3) f64 [m] of the lanes, from which tracks have their heights; None without a map."""
    given = options.get("map")
    if given == NO_MAP:
        return None
    path = Path(str(given)) if given is not None else Path(source.name).with_name(f"log_map_archive_{scenario}.json")
    if given is None and not path.is_file():
        raise SettingsError(
            f"{source.name}: no {path.name} beside it. Name the map with the option map=FILE, or say map={NO_MAP} for "
            "traffic without a road."
        )
    file = read_source(path, limits)
    try:
        return add_map(load_json(file, limits), builder)
    except FormatError as error:
        if file.name in str(error):
            raise
        raise FormatError(f"{file.name}: {error}") from error


def _add_tracks(
    table: Mapping[str, NDArray[Any]],
    rows: NDArray[np.int64],
    heights: F64 | None,
    builder: SceneBuilder,
    limits: Limits,
) -> tuple[list[str], int, list[int]]:
    """Ids of the tracks in the order of the file, the number of the recording vehicle (-1 if none), and categories."""
    names = np.array([str(value) for value in table["track_id"]], object)
    ids = list(dict.fromkeys(names.tolist()))
    steps = int(rows.max()) + 1
    limits.check("tracks", len(ids), "tracks")
    limits.check("track_rows", len(ids) * steps, "tracks")
    number = {name: index for index, name in enumerate(ids)}
    track = np.array([number[name] for name in names.tolist()])
    columns = ("position_x", "position_y", "heading", "velocity_x", "velocity_y")
    values = np.zeros((len(columns), len(ids), steps))
    valid = np.zeros((len(ids), steps), np.bool_)
    twice = len(rows) - len(np.unique(track * steps + rows))
    builder.loss.count("dropped_doubled_row", "two rows of a track at one time, the last one wins", twice)
    for index, column in enumerate(columns):
        values[index, track, rows] = table[column]
    valid[track, rows] = True
    z = np.zeros((len(ids), steps))
    if heights is not None:
        from scipy.spatial import cKDTree

        where = valid & np.isfinite(values[:2]).all(axis=0)
        nearest = cKDTree(heights[:, :2]).query(np.stack([values[0][where], values[1][where]], axis=1))[1]
        z[where] = heights[nearest, 2]
        builder.loss.count("assumed_height_of_track", "that of the nearest lane", len(ids))
    first = {int(one): row for row, one in reversed(list(enumerate(track.tolist())))}
    categories = []
    for index, name in enumerate(ids):
        word = str(table["object_type"][first[index]])
        if word not in _TYPES:
            builder.loss.count("unknown_object_type", f"track {name}: {word[:60]!r}")
        kind, subtype, size = _TYPES.get(word, _TYPES["unknown"])
        builder.loss.count("assumed_size", f"track {name}, {word}: {' x '.join(map(str, size))} m")
        category = table["object_category"][first[index]]
        categories.append(int(category) if np.isfinite(category) else 0)
        builder.track(
            int(name) if name.isdecimal() and len(name) < 19 else -1,
            kind,
            subtype,
            x=values[0, index],
            y=values[1, index],
            z=z[index],
            heading=values[2, index],
            vx=values[3, index],
            vy=values[4, index],
            length=size[0],
            width=size[1],
            height=size[2],
            valid=valid[index],
        )
    return ids, number.get(_RECORDING, -1), categories

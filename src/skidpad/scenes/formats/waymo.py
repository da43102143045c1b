"""Waymo motion `Scenario` records in TFRecord files (R18), without TensorFlow; field numbers: schema under Apache-2.0.

A file holds many scenarios; `waymo_map` and `waymo_tracks` make one scene of each. Option `scenario`: the id of the one
that is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from skidpad.artifacts.wire import LENGTH, Field, fields
from skidpad.errors import FormatError, SettingsError, SkidpadError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.tfrecord import is_tfrecord, records
from skidpad.scenes.formats.waymo_map import add_lights, add_map
from skidpad.scenes.formats.waymo_tracks import add_tracks, chosen, clock
from skidpad.scenes.formats.wire_table import U8
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import Scene

FORMAT = "waymo"
OPTIONS = frozenset({"scenario"})

LICENCE = "Waymo Dataset License Agreement for Non-Commercial Use"
ATTRIBUTION = (
    "This scene was made using the Waymo Open Dataset, provided by Waymo LLC under license terms available at "
    "waymo.com/open."
)

TIMESTAMPS, TRACKS, INTEREST, SCENARIO_ID, SDC, LIGHTS, FEATURES, NOW, PREDICT = 1, 2, 4, 5, 6, 7, 8, 10, 11
_USED = frozenset({TIMESTAMPS, TRACKS, INTEREST, SCENARIO_ID, SDC, LIGHTS, FEATURES, NOW, PREDICT})
_EXAMPLE_DEPTH = 3  # tf.Example: features, of feature, of a name


def sniff(head: bytes, name: str) -> float:
    """1 where a file begins as a TFRecord does, which a checksum tells; else 0."""
    return 1.0 if is_tfrecord(head) else 0.0


def read_each(source: Source, limits: Limits, options: Mapping[str, Any]) -> Iterator[Scene]:
    """The scenes of a file, in its order: all, or the one that the option `scenario` names.

    Raises FormatError at the first record that is cut, corrupted or no scenario; the scenes before it are whole.
    SettingsError where the wanted scenario is not there.
    """
    wanted = options.get("scenario")
    found = False
    for offset, record in records(source, limits):
        where = f"record at byte {offset}"
        try:
            top = _top(record, offset)
            scenario = bytes(top[SCENARIO_ID][-1].message()).decode("utf-8", "replace") if SCENARIO_ID in top else ""
            if wanted is not None and scenario != wanted:
                continue
            found = True
            yield _scene(record, top, scenario, source, limits)
        except SkidpadError as error:
            raise type(error)(f"{source.name}: {where}: {error}") from error
    if wanted is not None and not found:
        raise SettingsError(f"{source.name}: option scenario is {wanted!r}, which is none of the file's scenarios.")


def _top(record: memoryview, offset: int) -> dict[int, list[Field]]:
    top: dict[int, list[Field]] = {}
    for field in fields(record):
        top.setdefault(field.number, []).append(field)
    if set(top) == {1} and _is_example(top[1][0].value):
        raise FormatError(
            "a tf.Example, which holds only what somebody chose of a scenario, expected a Scenario. Take the files of "
            "the folder `scenario` of the motion data set."
        )
    return top


def _is_example(value: memoryview | int) -> bool:
    """Whether bytes are the features of a tf.Example: messages of messages that begin with a printable name."""
    try:
        for _ in range(_EXAMPLE_DEPTH - 1):
            if isinstance(value, int):
                return False
            first = next(fields(value))
            if (first.number, first.kind) != (1, LENGTH):
                return False
            value = first.value
    except (FormatError, StopIteration):
        return False
    return not isinstance(value, int) and len(value) > 0 and bytes(value).decode("ascii", "replace").isprintable()


def _scene(record: memoryview, top: Mapping[int, list[Field]], scenario: str, source: Source, limits: Limits) -> Scene:
    loss = LossReport()
    for number in sorted(set(top) - _USED):
        loss.count("unknown_field", f"scenario, field {number}", len(top[number]))
    data: U8 = np.frombuffer(record, np.uint8)
    dt_us, rows = clock(top.get(TIMESTAMPS, []), loss)
    builder = SceneBuilder(
        scenario or source.stem, "waymo_motion", FORMAT, "scenario", source.digest, dt_us, loss=loss, limits=limits
    )
    tracks = add_tracks(data, top.get(TRACKS, []), rows, builder, limits)
    add_lights(data, top.get(LIGHTS, []), tracks.steps, builder)
    has_z = add_map(data, top.get(FEATURES, []), builder)
    sdc, predict, interest, difficulty = chosen(top, tracks, loss)
    now = top[NOW][-1].integer() if NOW in top else 0
    return builder.finish(
        has_z=has_z,
        current_step=now,
        sdc=sdc,
        tracks_to_predict=predict,
        objects_of_interest=interest,
        labels={"scenario_id": scenario, "difficulty": difficulty},
        licence=LICENCE,
        attribution=ATTRIBUTION,
    )

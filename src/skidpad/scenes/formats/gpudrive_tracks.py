"""Objects of a GPUDrive or Nocturne file (R19): columns of rows, and whom the file singles out.

Headings are degrees in most files and radians in some, and no file says which. Whoever moves faster than 3 m/s shows
it: a heading in the right unit agrees with the velocity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import json_file
from skidpad.scenes.formats.motion_codes import ABSENT_M, ASSUMED_HEIGHT_M, TRACK_WORDS
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import SUBTYPE_CAR, SUBTYPE_NONE, TYPE_UNKNOWN, TYPE_VEHICLE

F64 = NDArray[np.float64]

_MOVING_M_S = 3.0
_LARGEST_RADIANS = 6.4
_USED = (
    *("id", "type", "position", "velocity", "heading", "valid", "width", "length", "height"),
    *("goalPosition", "mark_as_expert"),
)
_UNUSED = ("vbd_trajectory",)


@dataclass(eq=False)
class _Object:
    """One object as the file has it: T rows, headings in the unit of the file."""

    where: str
    id: int
    type: int
    position: F64
    velocity: F64 | None
    heading: F64
    valid: NDArray[np.bool_]
    size: tuple[float, float, float]
    goal: F64 | None
    expert: bool


def add_tracks(items: Sequence[Any], builder: SceneBuilder, loss: LossReport, limits: Limits) -> int:
    """Hand every object to the builder, in file order; the number of rows, at least 1.

    Shorter series are padded with invalid rows. Raises FormatError for series of one object that differ in length.
    """
    limits.check("tracks", len(items), "objects")
    objects = [_object(item, f"objects[{index}]", loss) for index, item in enumerate(items)]
    steps = max([1, *(len(one.valid) for one in objects)])
    limits.check("rows", steps, "objects")
    limits.check("track_rows", steps * len(objects), "objects")
    unit = np.pi / 180.0 if _in_degrees(objects, loss) else 1.0
    for one in objects:
        rows = len(one.valid)
        padding = (0, steps - rows)
        velocity = None if one.velocity is None else np.pad(one.velocity, (padding, (0, 0)))
        if rows < steps:
            loss.count("assumed_absent_rows", f"{one.where}: {rows} rows of {steps}", steps - rows)
        position = np.pad(one.position, (padding, (0, 0)))
        builder.track(
            one.id,
            one.type,
            SUBTYPE_CAR if one.type == TYPE_VEHICLE else SUBTYPE_NONE,
            x=position[:, 0],
            y=position[:, 1],
            z=position[:, 2],
            heading=np.pad(one.heading * unit, padding),
            vx=None if velocity is None else velocity[:, 0],
            vy=None if velocity is None else velocity[:, 1],
            length=one.size[0],
            width=one.size[1],
            height=one.size[2],
            valid=np.pad(one.valid, padding),
            goal=one.goal,
            expert=one.expert,
        )
    return steps


def _object(value: Any, where: str, loss: LossReport) -> _Object:
    item = json_file.expect(value, dict, where)
    json_file.count_keys(loss, where, item, _USED, _UNUSED)
    word = json_file.required(item, "type", str, where)
    if word not in TRACK_WORDS:
        loss.count("unknown_object_type", f"{where}: {word[:80]!r}")
    kind = TRACK_WORDS.get(word, TYPE_UNKNOWN)
    if "position" not in item:
        raise FormatError(f"{where}: 'position' is missing, expected places.")
    position, _ = json_file.points(item["position"], f"{where}.position", loss)
    heading = json_file.numbers(json_file.required(item, "heading", list, where), f"{where}.heading")
    valid = json_file.flags(json_file.required(item, "valid", list, where), f"{where}.valid")
    series = {"position": len(position), "heading": len(heading), "valid": len(valid)}
    velocity = None
    if "velocity" in item:
        velocity = json_file.points(item["velocity"], f"{where}.velocity", loss)[0][:, :2]
        series["velocity"] = len(velocity)
    if len(set(series.values())) != 1:
        lengths = ", ".join(f"{name} {length}" for name, length in series.items())
        raise FormatError(f"{where}: series of different lengths ({lengths}), expected the same.")
    absent = valid & (position[:, 0] == ABSENT_M)
    if absent.any():
        loss.count("repaired_absent_row", f"{where}: {int(absent.sum())} rows at x = {ABSENT_M:g} m", int(absent.sum()))
        valid &= ~absent
    size = [json_file.number(item.get(name), f"{where}.{name}") for name in ("length", "width")]
    if "height" not in item:
        loss.count("assumed_height", f"{where}: {ASSUMED_HEIGHT_M[kind]:g} m")
    height = json_file.number(item.get("height", ASSUMED_HEIGHT_M[kind]), f"{where}.height")
    goal = json_file.place(item["goalPosition"], f"{where}.goalPosition") if "goalPosition" in item else None
    expert = item.get("mark_as_expert", False)
    if expert not in (0, 1):
        raise FormatError(f"{where}.mark_as_expert: expected true, false, 1 or 0.")
    identity = json_file.expect(item.get("id", -1), int, f"{where}.id")
    return _Object(
        where, identity, kind, position, velocity, heading, valid, (size[0], size[1], height), goal, bool(expert)
    )


def _in_degrees(objects: Sequence[_Object], loss: LossReport) -> bool:
    """Are headings degrees? Asked of every row that moves; without one, of how large they are."""
    as_degrees, as_radians = [], []
    largest = 0.0
    for one in objects:
        heading = one.heading[one.valid]
        heading = heading[np.isfinite(heading)]
        largest = max(largest, float(np.abs(heading).max(initial=0.0)))
        if one.velocity is None:
            continue
        moving = one.valid & np.isfinite(one.heading) & np.isfinite(one.velocity).all(axis=1)
        moving[moving] = np.hypot(*one.velocity[moving].T) > _MOVING_M_S
        course = np.arctan2(one.velocity[moving, 1], one.velocity[moving, 0])
        as_degrees.append(np.cos(np.radians(one.heading[moving]) - course))
        as_radians.append(np.cos(one.heading[moving] - course))
    if sum(map(len, as_degrees)):
        degrees, radians = float(np.concatenate(as_degrees).mean()), float(np.concatenate(as_radians).mean())
        if degrees != radians:
            return degrees > radians
    if objects:
        unit = "degrees" if largest > _LARGEST_RADIANS else "radians"
        loss.count("assumed_heading_unit", f"{unit}: nobody moves, and the largest heading is {largest:g}")
    return largest > _LARGEST_RADIANS


def chosen_tracks(root: Mapping[str, Any], items: Sequence[Any], loss: LossReport) -> tuple[int, list[int], list[int]]:
    """Numbers of the recording vehicle (-1 if none), of the tracks to predict and of the objects of interest.

    The last are ids where each of them is the id of an object, else numbers.
    """
    metadata = json_file.expect(root.get("metadata", {}), dict, "metadata")
    used = ("sdc_track_index", "tracks_to_predict", "objects_of_interest")
    json_file.count_keys(loss, "metadata", metadata, used)
    sdc = json_file.expect(metadata.get("sdc_track_index", -1), int, "metadata.sdc_track_index")
    if not -1 <= sdc < len(items):
        loss.count("dropped_sdc", f"metadata: object {sdc} of {len(items)}")
        sdc = -1
    predict = []
    for index, value in enumerate(json_file.expect(metadata.get("tracks_to_predict", []), list, "metadata")):
        where = f"metadata.tracks_to_predict[{index}]"
        if isinstance(value, dict):
            json_file.count_keys(loss, where, value, ("track_index",), ("difficulty",))
            value = json_file.required(value, "track_index", int, where)
        predict.append(json_file.expect(value, int, where))
    given = json_file.expect(metadata.get("objects_of_interest", []), list, "metadata.objects_of_interest")
    named = [json_file.expect(value, int, "metadata.objects_of_interest") for value in given]
    number = {item["id"]: index for index, item in reversed(list(enumerate(items))) if "id" in item}
    interest = [number[value] for value in named] if all(value in number for value in named) else named
    return (
        sdc,
        _in_range(predict, items, "track_to_predict", loss),
        _in_range(interest, items, "object_of_interest", loss),
    )


def _in_range(numbers: Sequence[int], items: Sequence[Any], what: str, loss: LossReport) -> list[int]:
    for number in numbers:
        if not 0 <= number < len(items):
            loss.count(f"dropped_{what}", f"object {number} of {len(items)}")
    return [number for number in numbers if 0 <= number < len(items)]

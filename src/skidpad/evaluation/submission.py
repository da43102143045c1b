"""Rollouts in the public submission layout of the realism challenge: the files people have already.

The layout is a protocol-buffer message (field numbers: schema under Apache-2.0): scenarios 1 of (id 1, joint scenes 2
of (trajectories 1 of (x 2, y 3, z 4, heading 5, object id 6))). It holds what was simulated and nothing else; the log
and the map come from a scene or a case file with the same scenario id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from skidpad.artifacts.wire import Field, fields
from skidpad.errors import FormatError, SkidpadError, listed
from skidpad.evaluation.rollouts import F32, POSE, Rollouts, make_rollouts
from skidpad.scenes.formats.source import Limits, read_source

_SCENARIO, _SCENARIO_ID, _SCENE, _TRAJECTORY, _OBJECT_ID = 1, 1, 2, 1, 6
_POSE_FIELDS = dict(zip((2, 3, 4, 5), POSE, strict=True))
_TAR_MAGIC = b"ustar"

Trajectory = tuple[int, tuple[F32, ...]]


def read_submission(path: Path | str | bytes, *, limits: Limits | None = None, name: str = "") -> dict[str, Rollouts]:
    """Rollouts by scenario id, in the order of the file, whose fields may come in any order, packed or not.

    path    a file, also one compressed with gzip or xz, or its bytes
    limits  bounds on bytes, objects and rows
    name    what messages call it

    Raises FormatError for a file that is cut or hostile, a scenario that occurs twice or has no id, rollouts of one
    scenario with different objects or lengths, and values that are not finite.
    """
    limits = limits or Limits()
    source = read_source(path, limits, name=name)
    if source.data[257:262] == _TAR_MAGIC:
        raise FormatError(f"{source.name}: a tar archive. Unpack it and name the files in it.")
    found: dict[str, Rollouts] = {}
    try:
        for field in fields(memoryview(source.data)):
            if field.number == _SCENARIO:
                scenario, rollouts = _scenario(field, limits)
                if scenario in found:
                    raise FormatError(f"byte {field.offset}: scenario {scenario!r} occurs twice.")
                found[scenario] = rollouts
    except SkidpadError as error:
        raise FormatError(f"{source.name}: {error} Expected a submission of simulated scenarios.") from None
    if not found:
        raise FormatError(f"{source.name}: no scenario in it, expected a submission of simulated scenarios.")
    return found


def _inside(field: Field) -> Iterator[Field]:
    return fields(field.message(), field.offset)


def _scenario(field: Field, limits: Limits) -> tuple[str, Rollouts]:
    name, scenes = "", []
    for inner in _inside(field):
        if inner.number == _SCENARIO_ID:
            name = bytes(inner.message()).decode("utf-8", "replace")
        elif inner.number == _SCENE:
            scenes.append(_joint_scene(inner, limits))
    where = f"byte {field.offset}: scenario {name!r}"
    if not name or not scenes:
        raise FormatError(f"{where} has no {'joint scene' if name else 'id'}.")
    ids = sorted(scenes[0])
    for number, scene in enumerate(scenes):
        if sorted(scene) != ids:
            differ = sorted(scene.keys() ^ scenes[0].keys())
            raise FormatError(f"{where}: rollout {number} has other objects than the first ({listed(differ)}).")
    lengths = sorted({len(series) for scene in scenes for poses in scene.values() for series in poses})
    if len(lengths) != 1:
        raise FormatError(f"{where}: series of different lengths ({listed(lengths)} rows).")
    poses = [np.stack([[scene[i][axis] for i in ids] for scene in scenes]) for axis in range(len(POSE))]
    return name, make_rollouts(ids, *poses)


def _joint_scene(field: Field, limits: Limits) -> dict[int, tuple[F32, ...]]:
    found: dict[int, tuple[F32, ...]] = {}
    for inner in _inside(field):
        if inner.number != _TRAJECTORY:
            continue
        number, poses = _trajectory(inner, limits)
        if number in found:
            raise FormatError(f"byte {inner.offset}: object {number} has two trajectories in one rollout.")
        found[number] = poses
        limits.check("tracks", len(found), f"byte {inner.offset}")
    return found


def _trajectory(field: Field, limits: Limits) -> Trajectory:
    number: int | None = None
    series = {name: bytearray() for name in POSE}
    for inner in _inside(field):
        if inner.number == _OBJECT_ID:
            number = inner.integer()
        elif inner.number in _POSE_FIELDS:
            series[_POSE_FIELDS[inner.number]] += inner.floats()
    if number is None:
        raise FormatError(f"byte {field.offset}: a trajectory without object id.")
    limits.check("rows", max(len(run) for run in series.values()) // 4, f"byte {field.offset}")
    return number, tuple(np.frombuffer(bytes(series[name]), dtype="<f4").astype(np.float32) for name in POSE)

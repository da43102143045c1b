"""Rollouts as arrays: several joint simulations of one recorded moment, the log they continue, and the map around it.

This is the input of the realism scores, and all of it: no trace, no scene, no simulator, so that trajectories from any
program can be scored. `check_rollouts` decides what is the standard task (ten steps a second, eleven rows of history,
eighty simulated ones, thirty-two rollouts of every object that is valid now) and what may only be scored when somebody
says that it is not. Files of these arrays are read by `rollout_files.py`.

Letters: R rollouts, N objects, H rows of history (the last one is "now"), F simulated rows, T = H + F, E scored
objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError, listed

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]

ROLLOUTS, HISTORY, FUTURE, STEP_US = 32, 11, 80, 100_000
# Positions are float32: at 100 km a centimetre is lost, and with it every speed.
EXTENT_M = 100_000.0
MAX_VALUES = 1 << 28
POSE = ("x", "y", "z", "heading")


@dataclass(frozen=True, eq=False)
class Rollouts:
    """What was simulated, from the row after "now" on.

    object_id  (N,)       i64
    x, y, z    (R, N, F)  f32 [m]    centres of the boxes, in the frame of the log
    heading    (R, N, F)  f32 [rad]
    """

    object_id: I64
    x: F32
    y: F32
    z: F32
    heading: F32

    @property
    def count(self) -> int:
        """R."""
        return int(self.x.shape[0])

    @property
    def steps(self) -> int:
        """F."""
        return int(self.x.shape[2])

    def select(self, chosen: Sequence[int] | slice | NDArray[Any]) -> Rollouts:
        """Some of the rollouts, for example a half of them."""
        return Rollouts(self.object_id, *(getattr(self, name)[chosen] for name in POSE))


@dataclass(frozen=True, eq=False)
class Log:
    """What was recorded: the rows of history and those that the rollouts are compared with.

    object_id              (N,)    i64
    object_type            (N,)    u1       1 vehicle, 2 pedestrian, 3 cyclist, 0 other
    length, width, height  (N,)    f32 [m]  as seen now
    x, y, z                (N, T)  f32 [m]
    heading                (N, T)  f32 [rad]
    valid                  (N, T)  bool     rows that hold a pose
    scored                 (E,)    i32      rows of the objects to score
    current_step                            row "now" is H - 1
    dt_us                                   integer microseconds between rows
    """

    object_id: I64
    object_type: U8
    length: F32
    width: F32
    height: F32
    x: F32
    y: F32
    z: F32
    heading: F32
    valid: Bool
    scored: I32
    current_step: int = HISTORY - 1
    dt_us: int = STEP_US

    @property
    def count(self) -> int:
        """N."""
        return len(self.object_id)

    @property
    def dt(self) -> float:
        """Seconds between rows."""
        return self.dt_us * 1e-6


@dataclass(frozen=True, eq=False)
class RoadEdges:
    """Edges of the road, each with the drivable side on the left of its direction.

    points  (P, 3)    f32 [m]  vertices, end to end
    offset  (K + 1,)  i32      edge k owns points[offset[k] : offset[k + 1]]
    """

    points: F32
    offset: I32


@dataclass(frozen=True, eq=False)
class Lights:
    """Traffic lights and the lanes they may stop. `signal_lane` is empty on a map without lights.

    lane_points  (P, 2)    f32 [m]  vertices of all centre lines, end to end
    lane_offset  (L + 1,)  i32      lane l owns lane_points[lane_offset[l] : lane_offset[l + 1]]
    lane_street  (L,)      bool     surface streets; only there does a light count
    signal_lane  (S,)      i32      the lane each signal controls
    stop_point   (S, 2)    f32 [m]
    stop         (T, S)    bool     rows at which the signal says stop (steady, round or arrow; flashing does not count)
    """

    lane_points: F32
    lane_offset: I32
    lane_street: Bool
    signal_lane: I32
    stop_point: F32
    stop: Bool


@dataclass(frozen=True, eq=False)
class RolloutCase:
    """One recorded moment to be continued. `edges` or `lights` are None where the source cannot carry them."""

    scenario_id: str
    log: Log
    edges: RoadEdges | None = None
    lights: Lights | None = None


class Task(NamedTuple):
    """Rollouts and log brought onto the same objects, in the order of the log, and what is unusual about them.

    rollouts      its N objects are those of `log`
    log           objects valid now that were simulated; rows padded as invalid to H + F, invalid rows hold zeros
    not_standard  why the score is not comparable with published ones; empty for the standard task
    """

    rollouts: Rollouts
    log: Log
    not_standard: tuple[str, ...]


def make_rollouts(object_id: Any, x: Any, y: Any, z: Any, heading: Any) -> Rollouts:
    """Rollouts of array-likes in any real dtype.

    object_id         (N,)       i64
    x, y, z, heading  (R, N, F)  f32 [m, m, m, rad]

    Raises ProtocolError where shapes disagree or a value is not finite.
    """
    poses = [
        as_array(array, np.float32, f"rollouts.{name}") for name, array in zip(POSE, (x, y, z, heading), strict=True)
    ]
    ids = as_array(object_id, np.int64, "rollouts.object_id")
    made = Rollouts(ids, *poses)
    _check_shapes("rollouts", made, {"object_id": "N", **dict.fromkeys(POSE, "R,N,F")})
    for name, pose in zip(POSE, poses, strict=True):
        _check_finite(f"rollouts.{name}", pose)
    return made


def make_log(**arrays: Any) -> Log:
    """A log of array-likes, its fields by name. Values of invalid rows are replaced by zeros: nobody may read them.

    Raises ProtocolError where shapes disagree or a valid value is not finite.
    """
    given: dict[str, Any] = {
        name: _whole(arrays.pop(name), name) for name in ("current_step", "dt_us") if name in arrays
    }
    dtypes = {"object_id": np.int64, "object_type": np.uint8, "valid": np.bool_, "scored": np.int32}
    given |= {name: as_array(value, dtypes.get(name, np.float32), f"log.{name}") for name, value in arrays.items()}
    made = Log(**given)
    axes = dict.fromkeys(("object_id", "object_type", "length", "width", "height"), "N")
    _check_shapes("log", made, axes | dict.fromkeys((*POSE, "valid"), "N,T") | {"scored": "E"})
    zeroed: dict[str, Any] = {name: np.where(made.valid, getattr(made, name), np.float32(0)) for name in POSE}
    for name, array in (zeroed | {name: getattr(made, name) for name in ("length", "width", "height")}).items():
        _check_finite(f"log.{name}", array)
    if made.scored.size and not (made.scored.min() >= 0 and made.scored.max() < made.count):
        raise ProtocolError(f"log.scored names row {made.scored.max()}, the log has {made.count} objects.")
    if not 0 <= made.current_step < made.valid.shape[1] or made.dt_us <= 0:
        raise ProtocolError(
            f"log: current_step {made.current_step} of {made.valid.shape[1]} rows at dt_us {made.dt_us}; expected a "
            "row of the log, and a positive step."
        )
    return replace(made, **zeroed)


def make_edges(points: Any, offset: Any) -> RoadEdges:
    """Road edges of array-likes; points without height get 0.

    points  (P, 3) or (P, 2)  f32 [m]
    offset  (K + 1,)          i32

    Raises ProtocolError for a wrong shape or a value that is not finite.
    """
    xyz = with_height(as_array(points, np.float32, "edges.points"), "edges.points")
    _check_finite("edges.points", xyz)
    return RoadEdges(xyz, _offsets(offset, len(xyz), "edges.offset"))


def make_lights(
    lane_points: Any, lane_offset: Any, lane_street: Any, signal_lane: Any, stop_point: Any, stop: Any
) -> Lights:
    """Lights of array-likes; fields as in `Lights`, points may carry a height that is not read.

    lane_points  (P, 2) or (P, 3)  f32 [m]
    lane_offset  (L + 1,)          i32
    lane_street  (L,)              bool
    signal_lane  (S,)              i32
    stop_point   (S, 2) or (S, 3)  f32 [m]
    stop         (T, S)            bool

    Raises ProtocolError for a wrong shape or a value that is not finite.
    """
    points = with_height(as_array(lane_points, np.float32, "lights.lane_points"), "lights.lane_points")[:, :2]
    stops = with_height(as_array(stop_point, np.float32, "lights.stop_point"), "lights.stop_point")[:, :2]
    made = Lights(
        np.ascontiguousarray(points),
        _offsets(lane_offset, len(points), "lights.lane_offset"),
        as_array(lane_street, np.bool_, "lights.lane_street"),
        as_array(signal_lane, np.int32, "lights.signal_lane"),
        np.ascontiguousarray(stops),
        as_array(stop, np.bool_, "lights.stop"),
    )
    for name in ("lane_points", "stop_point"):
        _check_finite(f"lights.{name}", getattr(made, name))
    lanes = len(made.lane_offset) - 1
    known = made.signal_lane
    if made.lane_street.shape != (lanes,) or (known.size and not (known.min() >= 0 and known.max() < lanes)):
        raise ProtocolError(f"lights: {lanes} lanes; lane_street needs one value each and signal_lane a lane number.")
    if len(known) != len(stops) or made.stop.ndim != 2 or made.stop.shape[1] != len(known):
        raise ProtocolError(
            f"lights: {len(known)} signals, stop_point has {len(stops)} and stop has shape {made.stop.shape}; expected "
            "(S, 2) and (T, S)."
        )
    return made


def check_rollouts(rollouts: Rollouts, log: Log, *, not_standard: bool = False) -> Task:
    """Bring rollouts and log onto the same objects, refusing what is not the standard task unless `not_standard` (Q21).

    The standard task: 32 rollouts of 80 rows at 10 Hz after 11 rows of history, 91 rows of log, every object that is
    valid now simulated and no other, scored objects among them. Otherwise the log is padded or cut to H + F rows, and
    objects that only one side knows are left out.

    Raises ProtocolError for ids that occur twice, for positions too far out for float32, where nothing can be scored,
    and for any deviation that was not announced.
    """
    for name, ids in (("rollouts", rollouts.object_id), ("log", log.object_id)):
        if len(np.unique(ids)) != len(ids):
            raise ProtocolError(
                f"{name}: an object id occurs twice; one trajectory per object and rollout is expected."
            )
    now, steps = log.current_step, log.current_step + 1 + rollouts.steps
    present = {int(i) for i in log.object_id[log.valid[:, now]]}
    simulated = {int(i) for i in rollouts.object_id}
    missing, extra = sorted(present - simulated), sorted(simulated - present)
    lost = sorted(int(i) for i in log.object_id[log.scored] if int(i) in present - simulated)
    absent = sorted(int(i) for i in log.object_id[log.scored] if int(i) not in present)
    deviations = [
        (rollouts.count != ROLLOUTS, f"{rollouts.count} rollouts instead of {ROLLOUTS}"),
        (rollouts.steps != FUTURE, f"{rollouts.steps} simulated rows instead of {FUTURE}"),
        (log.dt_us != STEP_US, f"a step of {log.dt_us} us instead of {STEP_US}"),
        (now != HISTORY - 1, f"{now + 1} rows of history instead of {HISTORY}"),
        (log.valid.shape[1] != steps, f"{log.valid.shape[1]} rows of log instead of {steps}"),
        (bool(missing), f"objects valid now but not simulated: {listed(missing)}"),
        (bool(extra), f"simulated objects that are not valid now: {listed(extra)}"),
        (bool(lost), f"scored objects that were not simulated: {listed(lost)}"),
        (bool(absent), f"scored objects that are not valid now: {listed(absent)}"),
    ]
    found = tuple(text for wrong, text in deviations if wrong)
    if found and not not_standard:
        raise ProtocolError(
            f"not the standard realism task: {'; '.join(found)}. Complete the rollouts, or mark the run not_standard: "
            "its score is then not comparable with published ones."
        )
    rows = np.flatnonzero(log.valid[:, now] & np.isin(log.object_id, rollouts.object_id))
    scored = np.flatnonzero(np.isin(rows, log.scored))
    if not len(scored) or not rollouts.count or not rollouts.steps:
        raise ProtocolError(
            f"nothing to score: {len(scored)} scored objects, {rollouts.count} rollouts, {rollouts.steps} rows; "
            "expected at least one of each. Name objects that are valid now and were simulated."
        )
    column = {int(i): k for k, i in enumerate(rollouts.object_id)}
    chosen = np.array([column[int(i)] for i in log.object_id[rows]], dtype=np.int64)
    kept = Rollouts(log.object_id[rows], *(np.ascontiguousarray(getattr(rollouts, name)[:, chosen]) for name in POSE))
    return Task(kept, _cut_log(log, rows, scored, steps), found)


def _cut_log(log: Log, rows: NDArray[np.intp], scored: NDArray[np.intp], steps: int) -> Log:
    """The log of some objects, cut or padded as invalid to a number of rows."""
    series: dict[str, Any] = {}
    for name in (*POSE, "valid"):
        array = getattr(log, name)[rows, :steps]
        series[name] = np.pad(array, ((0, 0), (0, steps - array.shape[1])))
    fixed: dict[str, Any] = {
        name: getattr(log, name)[rows] for name in ("object_id", "object_type", "length", "width", "height")
    }
    return replace(log, **fixed, **series, scored=scored.astype(np.int32))


def as_array(value: Any, dtype: Any, name: str) -> NDArray[Any]:
    """A contiguous array (any shape) of a dtype, refusing what does not convert without loss of kind: text, objects,
    fractions as integers."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ProtocolError(f"{name}: not a rectangular array ({error}).") from None
    wanted = np.dtype(dtype)
    if array.size == 0:
        return np.zeros(array.shape, dtype=wanted)
    if array.dtype.kind not in "biuf" or array.size > MAX_VALUES:
        raise ProtocolError(
            f"{name}: {array.size} values of type {array.dtype}, expected at most {MAX_VALUES} numbers."
        )
    if wanted.kind in "iub" and not np.array_equal(array.astype(wanted), array):
        raise ProtocolError(f"{name}: holds values that are no {wanted}, expected whole numbers in its range.")
    return np.asarray(array, dtype=wanted, order="C")


def _whole(value: Any, name: str) -> int:
    number = as_array(value, np.int64, f"log.{name}")
    if number.ndim:
        raise ProtocolError(f"log.{name}: shape {number.shape}, expected one whole number.")
    return int(number)


def with_height(points: F32, name: str) -> F32:
    """(P, 3) f32 [m] of points (P, 2) or (P, 3) f32 [m]; height 0 where there is none."""
    if points.size == 0:
        return np.zeros((0, 3), dtype=np.float32)
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise ProtocolError(f"{name}: shape {points.shape}, expected (P, 2) or (P, 3).")
    return np.ascontiguousarray(np.pad(points, ((0, 0), (0, 3 - points.shape[1]))))


def _offsets(value: Any, count: int, name: str) -> I32:
    offset = as_array(value, np.int32, name)
    if offset.ndim != 1 or not len(offset) or offset[0] != 0 or offset[-1] != count or np.any(np.diff(offset) < 0):
        raise ProtocolError(f"{name}: expected ascending numbers from 0 to the {count} points.")
    return offset


def _check_shapes(what: str, made: Any, axes: Mapping[str, str]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for name, letters in axes.items():
        shape = getattr(made, name).shape
        if len(shape) != letters.count(",") + 1:
            raise ProtocolError(f"{what}.{name}: shape {shape}, expected ({letters}).")
        for letter, size in zip(letters.split(","), shape, strict=True):
            known, where = sizes.setdefault(letter, (size, name))
            if known != size:
                raise ProtocolError(
                    f"{what}.{name}: shape {shape}, expected ({letters}) with {letter} = {known} as in {where}."
                )


def _check_finite(name: str, array: F32) -> None:
    # A NaN compares false, so it fails this too.
    if not bool(np.all(np.abs(array) <= EXTENT_M)):
        raise ProtocolError(
            f"{name}: holds a value that is not finite or above {EXTENT_M:g}, expected metres or radians in a local "
            "frame. Move the origin near the scene before rounding to float32."
        )

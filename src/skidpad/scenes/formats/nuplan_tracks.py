"""Who drove in a nuPlan scene (R25): the recording vehicle, boxes of others, and what the lights showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.sqlite_file import Database
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    STATE_GREEN,
    STATE_RED,
    STATE_UNKNOWN,
    STATE_YELLOW,
    SUBTYPE_CAR,
    SUBTYPE_NONE,
    SUBTYPE_STATIC,
    TYPE_CYCLIST,
    TYPE_PEDESTRIAN,
    TYPE_UNKNOWN,
    TYPE_VEHICLE,
)

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# The recording car, a Chrysler Pacifica: box, and from the rear axle forward to its middle [m].
EGO_SIZE_M = (5.176, 2.297, 1.777)
REAR_AXLE_TO_MIDDLE_M = 1.461

_CATEGORIES = {
    "vehicle": (TYPE_VEHICLE, SUBTYPE_CAR),
    "bicycle": (TYPE_CYCLIST, SUBTYPE_NONE),
    "pedestrian": (TYPE_PEDESTRIAN, SUBTYPE_NONE),
    **dict.fromkeys(("traffic_cone", "barrier", "czone_sign", "generic_object"), (TYPE_UNKNOWN, SUBTYPE_STATIC)),
}
_STATES = {"red": STATE_RED, "yellow": STATE_YELLOW, "green": STATE_GREEN, "unknown": STATE_UNKNOWN}
_JITTER_US = 5_000
_COLUMNS = ("x", "y", "z", "heading", "length", "width", "height", "vx", "vy")


@dataclass(frozen=True)
class Clock:
    """Rows of a scene: the time of each, -1 where no cloud is within a quarter of a row.

    start  [us]  time of row 0
    step   [us]  between rows
    time   (T,)  i64 [us]
    """

    start: int
    step: int
    time: I64

    @staticmethod
    def of(times: I64, step: int, loss: LossReport) -> Clock:
        """The clouds (n,) i64 [us], ascending, that lie nearest to each row: 20 Hz are halved by time, not by count."""
        start = int(times[0])
        row = np.rint((times - start) / step).astype(np.int64)
        off = np.abs(times - start - row * step)
        chosen = np.full(int(row[-1]) + 1, -1, np.int64)
        for index in np.argsort(-off, kind="stable").tolist():
            if off[index] <= step // 4:
                chosen[row[index]] = times[index]
        late = off[np.isin(times, chosen)] > _JITTER_US
        loss.count("repaired_jitter", f"clouds more than {_JITTER_US / 1000:g} ms off their row", int(late.sum()))
        loss.count("assumed_absent_in_gap", "rows without a cloud", int((chosen < 0).sum()))
        return Clock(start, step, chosen)

    def row(self, time: int) -> int:
        """The row of a cloud; -1 where it is not one of the chosen."""
        row = self.nearest(time)
        return row if self.time[row] == time else -1

    def nearest(self, time: int) -> int:
        """The row nearest to a time."""
        return int(np.clip(round((time - self.start) / self.step), 0, len(self.time) - 1))


def add_ego(database: Database, token: bytes, goal: bytes | None, clock: Clock, builder: SceneBuilder) -> F64:
    """The recording vehicle as track 0; its way (n, 2) f64 [m]."""
    pose = "e.x, e.y, e.z, e.qw, e.qx, e.qy, e.qz, e.vx, e.vy, e.angular_rate_z"
    query = f"SELECT p.timestamp, {pose} FROM lidar_pc p JOIN ego_pose e ON e.token = p.ego_pose_token "
    table = np.zeros((len(clock.time), 10))
    valid = np.zeros(len(table), np.bool_)
    for time, *values in database.rows(query + "WHERE p.scene_token = ? ORDER BY p.timestamp", (token,)):
        row = clock.row(_integer(time))
        if row >= 0:
            table[row], valid[row] = _numbers(values, "ego pose"), True
    usable = valid & np.isfinite(table).all(axis=1)
    if not usable.any():
        raise FormatError("no cloud of the scene has an ego pose, expected one in every row.")
    x, y, z, qw, qx, qy, qz, forward, leftward, turning = table.T
    with np.errstate(invalid="ignore", over="ignore"):
        heading = np.arctan2(2.0 * (qw * qz + qx * qy), 1.0 - 2.0 * (qy * qy + qz * qz))
        cos, sin = np.cos(heading), np.sin(heading)
        # Velocities are those of the rear axle in the frame of the car; the middle of the box swings around it.
        leftward = leftward + turning * REAR_AXLE_TO_MIDDLE_M
        middle = np.stack([x + REAR_AXLE_TO_MIDDLE_M * cos, y + REAR_AXLE_TO_MIDDLE_M * sin], axis=1)
    builder.loss.count("assumed_size", f"recording vehicle: {' x '.join(map(str, EGO_SIZE_M))} m")
    builder.track(
        -1,
        TYPE_VEHICLE,
        SUBTYPE_CAR,
        x=middle[:, 0],
        y=middle[:, 1],
        z=z,
        heading=heading,
        vx=forward * cos - leftward * sin,
        vy=forward * sin + leftward * cos,
        length=EGO_SIZE_M[0],
        width=EGO_SIZE_M[1],
        height=EGO_SIZE_M[2],
        valid=valid,
        goal=_goal(database, goal),
    )
    return middle[usable]


def _goal(database: Database, token: bytes | None) -> F64 | None:
    if token is None:
        return None
    found = database.first("SELECT x, y, z FROM ego_pose WHERE token = ?", (token,))
    return None if found is None else _numbers(found, "goal")


def add_boxes(database: Database, token: bytes, clock: Clock, builder: SceneBuilder, limits: Limits) -> None:
    """Every tracked box as a track, in the order of their first rows, then of their tokens."""
    kinds = {
        _token(track): str(name)
        for track, name in database.rows(
            "SELECT t.token, c.name FROM track t JOIN category c ON c.token = t.category_token"
        )
    }
    columns = "b.x, b.y, b.z, b.yaw, b.length, b.width, b.height, b.vx, b.vy"
    query = (
        f"SELECT p.timestamp, b.track_token, {columns} FROM lidar_box b JOIN lidar_pc p ON p.token = b.lidar_pc_token "
    )
    tables: dict[bytes, F64] = {}
    steps = len(clock.time)
    for time, track, *values in database.rows(
        query + "WHERE p.scene_token = ? ORDER BY p.timestamp, b.track_token", (token,)
    ):
        row = clock.row(_integer(time))
        if row < 0:
            continue
        track = _token(track)
        if track not in tables:
            limits.check("tracks", len(tables) + 1, "boxes")
            limits.check("track_rows", (len(tables) + 1) * steps, "boxes")
            tables[track] = np.full((steps, len(_COLUMNS) + 1), np.nan)
        tables[track][row, :-1], tables[track][row, -1] = _numbers(values, "box"), 1.0
    for track, table in tables.items():
        name = kinds.get(track, "")
        if name not in _CATEGORIES:
            builder.loss.count("unknown_object_type", f"track {track.hex()}: category {name[:60]!r}")
        kind, subtype = _CATEGORIES.get(name, (TYPE_UNKNOWN, SUBTYPE_NONE))
        rows: dict[str, Any] = {column: table[:, at] for at, column in enumerate(_COLUMNS)}
        builder.track(_id(track), kind, subtype, valid=table[:, -1] == 1.0, **rows)


def lights_of(
    database: Database, token: bytes, clock: Clock, loss: LossReport, limits: Limits
) -> dict[int, NDArray[np.uint8]]:
    """States (T,) u8 of the lights by lane connector; rows without a word are unknown."""
    query = (
        "SELECT p.timestamp, s.lane_connector_id, s.status FROM traffic_light_status s "
        "JOIN lidar_pc p ON p.token = s.lidar_pc_token WHERE p.scene_token = ? ORDER BY p.timestamp"
    )
    found: dict[int, NDArray[np.uint8]] = {}
    for time, connector, status in database.rows(query, (token,)):
        row = clock.row(_integer(time))
        if row < 0:
            continue
        number = _integer(connector)
        if number not in found:
            limits.check("signals", len(found) + 1, "lights")
            found[number] = np.full(len(clock.time), STATE_UNKNOWN, np.uint8)
        if status not in _STATES:
            loss.count("unknown_light_state", f"lane connector {number}: {str(status)[:60]!r}")
        found[number][row] = _STATES.get(status, STATE_UNKNOWN)
    return found


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise FormatError(f"{str(value)[:40]!r}, expected an integer.")
    return value


def _numbers(values: Any, what: str) -> F64:
    """Numbers of a row; what is absent is not a number, which invalidates a row."""
    found = [np.nan if value is None else value for value in values]
    if not all(isinstance(value, (int, float)) for value in found):
        raise FormatError(f"{what}: {str(found)[:60]}, expected numbers.")
    return np.array(found, np.float64)


def _token(value: Any) -> bytes:
    """A track token as the file has it; SQLite says what a value is, not what its column should hold."""
    if not isinstance(value, bytes):
        raise FormatError(f"track token {str(value)[:40]!r}, expected 8 bytes.")
    return value


def _id(token: bytes) -> int:
    """A track token of 8 bytes as a signed integer."""
    if len(token) != 8:
        raise FormatError(f"track token of {len(token)} bytes, expected 8.")
    return int.from_bytes(token, "big", signed=True)

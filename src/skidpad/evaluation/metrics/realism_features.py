"""The ten features of the realism scores, per rollout, scored object and simulated row (Q22 to Q25).

Motion is differentiated in float32, in the order in which the reference does it: a car at constant speed then has the
same last bits, and with them the same histogram bin at an edge. Geometry runs in float64 in `realism_kernels.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics import realism_kernels as kernels
from skidpad.evaluation.rollouts import F32, POSE, Bool, Lights, Log, RoadEdges, Rollouts

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

VEHICLE = 1
RING_GAP_M = 1.0
GROUP_M = 4.0  # side of the cells in which boxes look for road edges together
SERIES = (
    "linear_speed",
    "linear_acceleration",
    "angular_speed",
    "angular_acceleration",
    "distance_to_nearest_object",
    "time_to_collision",
    "distance_to_road_edge",
)
INDICATIONS = ("collision_indication", "offroad_indication", "traffic_light_violation")


@dataclass(frozen=True, eq=False)
class Features:
    """Features of R rollouts (1 for the log), F rows.

    linear_speed                (R, E, F)  f32 [m/s]      NaN in the last row: it needs the row after
    linear_acceleration         (R, E, F)  f32 [m/s^2]    NaN in the last two rows
    angular_speed               (R, E, F)  f32 [rad/s]    NaN in the last row
    angular_acceleration        (R, E, F)  f32 [rad/s^2]  NaN in the last two rows
    distance_to_nearest_object  (R, E, F)  f32 [m]        negative = contact
    time_to_collision           (R, E, F)  f32 [s]
    distance_to_road_edge       (R, E, F)  f32 [m]        positive = off the road; None without edges
    traffic_light_violation     (R, E, F)  bool           None where the source carries no lights
    """

    linear_speed: F32
    linear_acceleration: F32
    angular_speed: F32
    angular_acceleration: F32
    distance_to_nearest_object: F32
    time_to_collision: F32
    distance_to_road_edge: F32 | None
    traffic_light_violation: Bool | None

    def select(self, rollouts: slice | NDArray[np.intp]) -> Features:
        """Features of some rollouts, also of one several times."""
        chosen: dict[str, Any] = {
            name: None if array is None else array[rollouts] for name, array in vars(self).items()
        }
        return Features(**chosen)

    def steps(self, indication: str) -> Bool | None:
        """(R, E, F) bool, rows at which the thing happened; None where it cannot be known."""
        if indication == "collision_indication":
            return np.asarray(self.distance_to_nearest_object < 0)
        if indication == "traffic_light_violation":
            return self.traffic_light_violation
        edge = self.distance_to_road_edge
        return None if edge is None else np.asarray(edge > 0)


@dataclass(frozen=True, eq=False)
class Validity:
    """Which rows of which scored objects are compared, from the log alone; the same for log and simulation.

    present       (E, F)  bool  the log has a pose
    speed         (E, F)  bool  so have both neighbouring rows, within the simulated ones
    acceleration  (E, F)  bool  that rule twice
    vehicle       (E,)    bool  time to collision and lights are those of vehicles
    """

    present: Bool
    speed: Bool
    acceleration: Bool
    vehicle: Bool

    def of(self, feature: str) -> Bool:
        """(E, F) bool, rows at which a histogram feature is compared."""
        if feature.endswith("_speed"):
            return self.speed
        if feature.endswith("_acceleration"):
            return self.acceleration
        return self.present & self.vehicle[:, None] if feature == "time_to_collision" else self.present


def validity(log: Log) -> Validity:
    """Rows to compare. `log` has H + F rows."""
    present = log.valid[log.scored, log.current_step + 1 :]
    speed = _neighbours(present)
    return Validity(present, speed, _neighbours(speed), log.object_type[log.scored] == VEHICLE)


def _neighbours(valid: Bool) -> Bool:
    both = np.zeros_like(valid)
    both[:, 1:-1] = valid[:, 2:] & valid[:, :-2]
    return both


def simulated_features(
    rollouts: Rollouts, log: Log, edges: RoadEdges | None, lights: Lights | None, *, official_light: bool = False
) -> Features:
    """Features of the rollouts, whose objects are those of the log; all of them are there at every row."""
    history = log.current_step + 1
    poses = {}
    for name in POSE:
        past = np.broadcast_to(getattr(log, name)[:, :history], (rollouts.count, log.count, history))
        poses[name] = np.concatenate([past, getattr(rollouts, name)], axis=2)
    there = np.ones((log.count, history + rollouts.steps), dtype=bool)
    return _features(poses, there, log, edges, lights, official_light)


def logged_features(
    log: Log, edges: RoadEdges | None, lights: Lights | None, *, official_light: bool = False
) -> Features:
    """Features of the log itself, R = 1."""
    poses = {name: getattr(log, name)[None] for name in POSE}
    return _features(poses, log.valid, log, edges, lights, official_light)


def _features(
    poses: dict[str, F32], valid: Bool, log: Log, edges: RoadEdges | None, lights: Lights | None, official_light: bool
) -> Features:
    """Features of trajectories (R, N, T) with their history; `valid` (N, T) says who is there."""
    history = log.current_step + 1
    dt = np.float32(log.dt)
    flat = np.hypot(*(_central(poses[name]) for name in ("x", "y"))) / dt
    own = {name: pose[:, log.scored] for name, pose in poses.items()}
    step = [_central(own[name]) for name in ("x", "y", "z")]
    speed = np.sqrt(step[0] ** 2 + step[1] ** 2 + step[2] ** 2) / dt
    turn = _wrapped(_central(own["heading"]))  # rad per row: wrapped before it is divided by time, both times
    geometry = _Moments(poses, valid, log, history)
    return Features(
        linear_speed=speed[:, :, history:],
        linear_acceleration=(_central(speed) / dt)[:, :, history:],
        angular_speed=(turn / dt)[:, :, history:],
        angular_acceleration=(_wrapped(_central(turn)) / dt / dt)[:, :, history:],
        distance_to_nearest_object=geometry.nearest_object(),
        time_to_collision=geometry.time_to_collision(flat),
        distance_to_road_edge=None if edges is None else geometry.road_edge(edges),
        traffic_light_violation=None if lights is None else geometry.red_light(poses, lights, official_light),
    )


def _central(series: F32) -> F32:
    """Half the difference between the row after and the row before; NaN in the first and last row."""
    half = np.full_like(series, np.nan)
    half[..., 1:-1] = (series[..., 2:] - series[..., :-2]) / np.float32(2)
    return half


def _wrapped(half_turn: F32) -> F32:
    """Half a difference of headings, of the difference by the shorter way."""
    turn, whole = half_turn * np.float32(2), np.float32(2 * np.pi)
    half = np.float32(np.pi)
    return np.asarray((np.remainder(turn + half, whole) - half) / np.float32(2), dtype=np.float32)


class _Moments:
    """The simulated rows of all objects, laid out for the kernels."""

    def __init__(self, poses: dict[str, F32], valid: Bool, log: Log, history: int) -> None:
        self.history = history
        x, y, z, heading = (_by_moment(poses[name][:, :, history:]) for name in POSE)
        self.x, self.y, self.z, self.cos, self.sin = x, y, z, np.cos(heading), np.sin(heading)
        self.all_valid = valid
        self.valid = np.ascontiguousarray(valid[:, history:].T)
        self.size = np.stack([log.length, log.width, log.height], axis=1).astype(np.float64)
        self.length, self.width = (np.ascontiguousarray(self.size[:, axis]) for axis in (0, 1))
        self.scored = log.scored.astype(np.int64)
        self.shape = (x.shape[0], x.shape[1], len(log.scored))

    def nearest_object(self) -> F32:
        out = np.empty(self.shape)
        kernels.nearest_object(
            self.x, self.y, self.cos, self.sin, self.length, self.width, self.valid, self.scored, out
        )  # fmt: skip
        return _by_object(out)

    def time_to_collision(self, speed: F32 | F64) -> F32:
        out = np.empty(self.shape)
        kernels.time_to_collision(
            self.x, self.y, self.cos, self.sin, _by_moment(speed[:, :, self.history :]), self.length, self.width,
            self.valid, self.scored, out,
        )  # fmt: skip
        return _by_object(out)

    def road_edge(self, edges: RoadEdges) -> F32 | None:
        segment, joint = edge_segments(edges)
        if not len(segment):
            return None
        own = (array[:, :, self.scored].ravel() for array in (self.x, self.y, self.z, self.cos, self.sin))
        pose = np.stack(list(own), axis=1)
        size = np.tile(self.size[self.scored], (len(pose) // len(self.scored), 1))
        out = np.empty(len(pose))
        kernels.road_edge(
            pose, size, *edge_groups(pose, size, segment), segment, joint, *bounds(segment),
            np.empty(len(segment), dtype=np.int64), np.empty(len(segment)), out,
        )  # fmt: skip
        return _by_object(out.reshape(self.shape))

    def red_light(self, poses: dict[str, F32], lights: Lights, official: bool) -> Bool:
        # The row before the first simulated one is needed: a car may pass in the first step.
        before = self.history - 1
        x, y = (_by_moment(poses[name][:, :, before:]) for name in ("x", "y"))
        valid = np.ascontiguousarray(self.all_valid[:, before:].T)
        out = np.zeros((x.shape[0], x.shape[1], len(self.scored)), dtype=bool)
        segment, owner = lane_segments(lights, official)
        signal, lane, stop = stop_lines(lights, before, x.shape[1])
        if len(segment) and len(lane):
            kernels.red_light(
                x, y, valid, self.scored, segment, owner, *bounds(segment), signal, lane, stop, official, out
            )  # fmt: skip
        return np.ascontiguousarray(np.moveaxis(out[:, 1:], 1, 2))


def _by_moment(series: F32 | F64) -> F64:
    """(R, T, N) f64 of (R, N, T)."""
    return np.ascontiguousarray(np.moveaxis(series, 1, 2), dtype=np.float64)


def _by_object(out: F64) -> F32:
    """(R, E, T) f32 of (R, T, E)."""
    return np.ascontiguousarray(np.moveaxis(out, 1, 2), dtype=np.float32)


def edge_segments(edges: RoadEdges) -> tuple[F64, I64]:
    """Segments of all edges and which of them meet.

    Returns (S, 6) f64 [m], start and direction with z stretched, and (S, 2) i64, the segments before and after each
    one, -1 = none. Segments without length in the plane are dropped; an edge whose ends are closer than 1 m is a ring.
    """
    points, line = edges.points.astype(np.float64), np.repeat(np.arange(len(edges.offset) - 1), np.diff(edges.offset))
    step = np.diff(points, axis=0)
    kept = np.flatnonzero((line[1:] == line[:-1]) & (step[:, :2] != 0).any(axis=1)) if len(points) else line
    segment = np.concatenate([points[kept], step[kept]], axis=1) if len(kept) else np.zeros((0, 6))
    segment[:, [2, 5]] *= kernels.Z_STRETCH
    number, owner = np.arange(len(kept)), line[kept]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    last = np.append(first[1:], len(kept))[: len(first)] - 1
    joint = np.stack([number - 1, number + 1], axis=1)
    joint[first, 0] = joint[last, 1] = -1
    ends = points[edges.offset[owner[last] + 1] - 1, :2] - points[edges.offset[owner[first]], :2]
    ring = (last - first > 1) & (np.hypot(ends[:, 0], ends[:, 1]) < RING_GAP_M)
    joint[first[ring], 0], joint[last[ring], 1] = last[ring], first[ring]
    return segment, joint.astype(np.int64)


def edge_groups(pose: F64, size: F64, segment: F64) -> tuple[I64, I64, F64, F64, float]:
    """Boxes by cell of a grid: order (B,) i64, start (G + 1,) i64, centre (G, 3) f64 [m], radius (G,) f64 [m],
    growth, as `realism_kernels.road_edge` wants them.

    pose     (B, 5)  f64 [m, m, m, 1, 1]  x, y, z, cos, sin
    size     (B, 3)  f64 [m]  length, width, height
    segment  (S, 6)  f64 [m]
    """
    stretch = np.array([1.0, 1.0, kernels.Z_STRETCH])
    point = (pose[:, :3] - [0, 0, 0.5] * size) * stretch
    cell = np.floor(point / GROUP_M).astype(np.int64)
    # 21 bits an axis hold 4,000 km of cells: far more than positions may be out.
    key = np.bitwise_or.reduce((cell + (1 << 20)) << np.array([42, 21, 0]), axis=1)
    order = np.argsort(key, kind="stable")
    start = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] - 1))
    centre = (cell[order[start]] + 0.5) * GROUP_M
    reach = np.maximum.reduceat(np.hypot(size[order, 0], size[order, 1]) / 2, start)
    # The distance to a segment grows no faster than the point moves, but where segments climb: its foot is taken in the
    # plane, so there the foot moves along the slope as well.
    slope = np.abs(segment[:, 5]) / np.hypot(segment[:, 3], segment[:, 4])
    growth = 1.0 if not slope.any() else 1.0 + float(np.hypot(1.0, slope.max()))
    radius = (reach + np.sqrt(3) / 2 * GROUP_M) * (1 + 1e-9)
    return order, np.append(start, len(order)), centre, radius, growth


def lane_segments(lights: Lights, official: bool = False) -> tuple[F64, I64]:
    """Segments of the surface streets, (S, 6) f64 [m], and the lane of each, (S,) i64.

    official  also the segment that the reference draws, by padding, from the end of every shorter lane to the origin
    """
    pieces, owners = [], []
    sizes = np.diff(lights.lane_offset)
    longest = int(sizes[lights.lane_street].max(initial=0))
    for lane in np.flatnonzero(lights.lane_street):
        points = lights.lane_points[lights.lane_offset[lane] : lights.lane_offset[lane + 1]].astype(np.float64)
        if official and 0 < len(points) < longest:
            points = np.concatenate([points, np.zeros((1, 2))])
        if len(points) < 2:
            continue
        step = np.diff(points, axis=0)
        flat = np.zeros((len(step), 1))
        pieces.append(np.concatenate([points[:-1], flat, step, flat], axis=1))
        owners.append(np.full(len(step), lane, dtype=np.int64))
    if not pieces:
        return np.zeros((0, 6)), np.zeros(0, dtype=np.int64)
    return np.concatenate(pieces), np.concatenate(owners)


def stop_lines(lights: Lights, first: int, rows: int) -> tuple[F64, I64, Bool]:
    """Where each signal stops whom: (S, 4) f64 [m], stop point and direction of the lane there; (S,) i64 lanes;
    (T, S) bool rows at which it says stop, from row `first` on, False beyond its record."""
    found = np.zeros((len(lights.signal_lane), 4))
    segment, owner = lane_segments(lights)
    for g, lane in enumerate(lights.signal_lane):
        own = segment[owner == lane]
        point = lights.stop_point[g].astype(np.float64)
        found[g, :2] = point
        if len(own):
            square = [kernels.segment_square(point[0], point[1], 0.0, own, k) for k in range(len(own))]
            direction = own[int(np.argmin(square)), 3:5]
            found[g, 2:] = direction / max(np.hypot(*direction), 1e-12)
    stop = np.zeros((rows, len(lights.signal_lane)), dtype=bool)
    known = lights.stop[first : first + rows]
    stop[: len(known)] = known
    return found, lights.signal_lane.astype(np.int64), stop


def bounds(segment: F64) -> tuple[F64, F64]:
    """Bounding boxes, (B, 6) f64 [m], of runs of segments, and of runs of those."""
    ends = segment[:, :3] + segment[:, 3:]
    boxes = np.concatenate([np.minimum(segment[:, :3], ends), np.maximum(segment[:, :3], ends)], axis=1)
    inner = _runs(boxes)
    return inner, _runs(inner)


def _runs(boxes: F64) -> F64:
    starts = np.arange(0, len(boxes), kernels.RUN)
    low = np.minimum.reduceat(boxes[:, :3], starts)
    return np.concatenate([low, np.maximum.reduceat(boxes[:, 3:], starts)], axis=1)

"""One street episode: which car carries the sensor, where the queries stand, and the labels of the driving task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skidpad.errors import UsageError
from skidpad.scenes import polyline
from skidpad.scenes import scene as codes
from skidpad.scenes.scene import Scene, Tracks
from skidpad.streaming import streets
from skidpad.streaming.camera import F64, Camera, look, pinhole
from skidpad.streaming.labels import U8, Bool, Draft, TaskLabels, View
from skidpad.streaming.streets import Boxes, Ground

SENSOR_HEIGHT_M = 1.6
FOV_RAD = 1.5
SPHERE_UP_RAD, SPHERE_DOWN_RAD = np.radians(15.0), np.radians(25.0)
MOVED_M = 0.2
PATH_M, HALF_WIDTH_M = 20.0, 1.75
BEV_CELL_M, BEV_CELLS = 0.5, 80
SOLID_LOW_M, SOLID_HIGH_M = 0.2, 2.0
BEV_HEIGHT_M, BEV_AHEAD_M = 22.0, 8.0
VOXEL_M = 0.4
ORDER = ("interpolated", "lateral", "ahead", "other_agent", "bev")
Sensor = Literal["pinhole", "spherical"]


@dataclass(frozen=True, eq=False)
class Street:
    """A scene with its traffic, ready to be looked at; `dt_s` between rows of the tracks."""

    scene: Scene
    tracks: Tracks
    dt_s: float
    ego: int
    rows: list[int]
    ground: Ground
    fixed: Boxes

    def position(self, row: int) -> F64:
        """(2,) f64 [m] of the ego."""
        return np.array([self.tracks.x[self.ego, row], self.tracks.y[self.ego, row]], np.float64)

    def heading(self, row: int) -> float:
        """Of the ego [rad]."""
        return float(self.tracks.heading[self.ego, row])


def open_street(scene: Scene, tracks: Tracks, dt_s: float, frames: int, frame_step_s: float) -> Street:
    """Choose the ego and the rows of its frames, paint the ground, and set the surroundings.

    The ego is the recording vehicle if its log is long enough, else the vehicle that drives farthest.
    Raises UsageError when no vehicle gives enough frames.
    """
    ego, rows = _ego(scene, tracks, dt_s, frames, frame_step_s)
    valid = tracks.valid[ego]
    xy = np.stack([tracks.x[ego, valid], tracks.y[ego, valid]], 1).astype(np.float64)
    low, high = xy.min(0) - streets.MARGIN_M, xy.max(0) + streets.MARGIN_M
    if np.prod((high - low) / streets.CELL_M) > streets.MAX_CELLS:
        raise UsageError(f"scene {scene.meta.scene_id}: the ego covers {(high - low).round().tolist()} m, too far.")
    ground = streets.paint_ground(scene.road, low, high)
    return Street(scene, tracks, dt_s, ego, rows, ground, streets.surroundings(scene, ground))


def _ego(scene: Scene, tracks: Tracks, dt_s: float, frames: int, frame_step_s: float) -> tuple[int, list[int]]:
    best: tuple[float, int, list[int]] | None = None
    for track in np.flatnonzero(tracks.type == codes.TYPE_VEHICLE):
        rows = frame_rows(tracks, int(track), dt_s, frames, frame_step_s)
        if rows is None:
            continue
        if track == scene.meta.sdc:
            return int(track), rows
        xy = np.stack([tracks.x[track, rows], tracks.y[track, rows]], 1).astype(np.float64)
        driven = float(np.linalg.norm(np.diff(xy, axis=0), axis=1).sum())
        if best is None or driven > best[0]:
            best = driven, int(track), rows
    if best is None:
        raise UsageError(
            f"scene {scene.meta.scene_id}: no vehicle moves through {frames} frames {frame_step_s:g} s apart in "
            f"{tracks.valid.shape[1] * dt_s:g} s of traffic. Use a longer log, fewer frames, or a shorter frame_step_s."
        )
    return best[1], best[2]


def frame_rows(tracks: Tracks, track: int, dt_s: float, frames: int, frame_step_s: float) -> list[int] | None:
    """Rows of a track's frames: `frame_step_s` apart, and farther where it has not moved MOVED_M; None if too few."""
    stride = max(1, round(frame_step_s / dt_s))
    first, last = int(tracks.first[track]), int(tracks.last[track])
    if first < 0:
        return None
    rows = [first]
    row = first + stride
    while len(rows) < frames and row <= last:
        step = np.hypot(
            tracks.x[track, row] - tracks.x[track, rows[-1]], tracks.y[track, row] - tracks.y[track, rows[-1]]
        )
        if tracks.valid[track, row] and step >= MOVED_M:
            rows.append(row)
            row += stride
        else:
            row += 1
    return rows if len(rows) == frames else None


def street_draft(
    street: Street,
    *,
    warmup: int,
    queries: int,
    dynamic: bool,
    sensor: Sensor,
    height: int,
    width: int,
    seed: int,
) -> Draft:
    """The whole episode. `seed` draws where the queries stand; frames depend on the street alone."""
    intrinsics = _intrinsics(sensor, height, width)
    begin, seal = street.rows[0], street.rows[-1]

    def boxes(row: int) -> Boxes:
        return street.fixed.joined(streets.agent_boxes(street.tracks, row if dynamic else begin, street.ego))

    frames = []
    for row in street.rows:
        camera = Camera(sensor, intrinsics, sensor_pose(street.position(row), street.heading(row)))
        rgb, depth, _ = streets.render(camera, height, width, street.ground, boxes(row))
        frames.append(View(round((row - begin) * street.dt_s, 6), camera, rgb, depth))
    world = boxes(seal)
    moved = _moved(street.tracks, street.rows[warmup], seal) if dynamic else None
    rng = np.random.default_rng([seed, 2])
    hidden: list[View] = []
    offset = int(rng.integers(len(ORDER)))
    poses = [frame.camera.world_from_camera for frame in frames]
    for number in range(queries):
        for attempt in range(64):
            # A place that does not exist here (no other agent, no neighbour lane) gives way to the next kind.
            placement = ORDER[(number + offset + attempt // 8) % len(ORDER)]
            found = _placed(street, placement, world, seal if dynamic else begin, rng)
            if found is None:
                continue
            pose, carrier = found
            camera = Camera("pinhole", pinhole(height, width, FOV_RAD), pose)
            camera = camera if placement == "bev" else Camera(sensor, intrinsics, pose)
            rgb, depth, agent = streets.render(camera, height, width, street.ground, world.without(carrier))
            moving = None if moved is None else (agent >= 0) & moved[agent]
            view = View(round((seal - begin) * street.dt_s, 6), camera, rgb, depth, placement, moving)
            apart = min(float(np.abs(pose - other).max()) for other in poses)
            if view.is_usable and apart > 0.01:
                hidden.append(view)
                poses.append(pose)
                break
        else:
            raise UsageError(f"scene {street.scene.meta.scene_id}: no place for query {number} was found in 64 tries.")
    task = _task(street, seal, world)
    convention: Literal["z", "ray"] = "z" if sensor == "pinhole" else "ray"
    return Draft(frames[:warmup], frames[warmup:], hidden, convention, ("rgb", "depth"), VOXEL_M, task)


def _intrinsics(sensor: Sensor, height: int, width: int) -> F64:
    if sensor == "pinhole":
        return pinhole(height, width, FOV_RAD)
    per_radian = height / (SPHERE_UP_RAD + SPHERE_DOWN_RAD)
    return np.array([width / (2 * np.pi), per_radian, width / 2, SPHERE_UP_RAD * per_radian])


def sensor_pose(position: F64, heading: float, up: float = SENSOR_HEIGHT_M) -> F64:
    """(4, 4) pose that looks along a heading [rad] from a point (2,) [m], `up` [m] above the ground."""
    return look(np.append(position, up), np.array([np.cos(heading), np.sin(heading), 0.0]))


def _moved(tracks: Tracks, first: int, last: int) -> Bool:
    """(N,) which tracks moved between two rows; one that was not there before did."""
    far = np.hypot(tracks.x[:, last] - tracks.x[:, first], tracks.y[:, last] - tracks.y[:, first]) > MOVED_M
    turned = np.abs(np.sin((tracks.heading[:, last] - tracks.heading[:, first]) / 2.0)) > 0.05
    moved: Bool = far | turned | ~tracks.valid[:, first]
    return moved


def _placed(street: Street, placement: str, world: Boxes, row: int, rng: np.random.Generator) -> tuple[F64, int] | None:
    """A pose of one kind and the agent that carries it (-2: none), or None where this draw has none."""
    last = street.rows[-1]
    if placement == "bev":
        heading = street.heading(last) + rng.uniform(-0.2, 0.2)
        ahead = np.array([np.cos(heading), np.sin(heading)])
        centre = street.position(last) + BEV_AHEAD_M * rng.uniform(0.5, 1.5) * ahead
        up = BEV_HEIGHT_M + rng.uniform(-2.0, 2.0)
        down = np.array([0.0, 0.0, -1.0])
        return look(np.append(centre, up), down, (float(ahead[0]), float(ahead[1]), 0.0)), -2
    if placement == "other_agent":
        tracks = street.tracks
        there = tracks.valid[:, row] & (tracks.type == codes.TYPE_VEHICLE)
        there[street.ego] = False
        xy = np.stack([tracks.x[:, row], tracks.y[:, row]], 1).astype(np.float64)
        there &= np.linalg.norm(xy - street.position(last), axis=1) < 40.0
        if not there.any():
            return None
        agent = int(rng.choice(np.flatnonzero(there)))
        roof = max(float(tracks.height[agent, row]), 1.5) + 0.2
        return sensor_pose(xy[agent], float(tracks.heading[agent, row]), roof), agent
    if placement == "interpolated":
        k = int(rng.integers(len(street.rows) - 1))
        share = rng.uniform(0.3, 0.7)
        one, other = street.rows[k], street.rows[k + 1]
        xy = (1.0 - share) * street.position(one) + share * street.position(other)
        turn = np.angle(np.exp(1j * (street.heading(other) - street.heading(one))))
        heading = street.heading(one) + share * float(turn) + rng.uniform(-0.05, 0.05)
    elif placement == "lateral":
        at = street.rows[int(rng.integers(len(street.rows)))]
        heading = street.heading(at)
        offset = rng.uniform(1.5, 3.5) * (1.0 if rng.random() < 0.5 else -1.0)
        xy = street.position(at) + offset * np.array([-np.sin(heading), np.cos(heading)])
    else:
        path = planned_path(street, last)
        along = rng.uniform(5.0, 15.0)
        arc = polyline.arc_lengths(np.column_stack([path, np.zeros(len(path))]))
        xy = np.array([np.interp(along, arc, path[:, 0]), np.interp(along, arc, path[:, 1])])
        k = min(int(np.searchsorted(arc, along, "right")), len(path) - 1)
        heading = float(np.arctan2(*(path[k] - path[k - 1])[::-1]))
    if not bool(street.ground.is_drivable(xy)) or _inside(world, np.append(xy, SENSOR_HEIGHT_M), 0.4):
        return None
    return sensor_pose(xy, heading), -2


def _inside(world: Boxes, point: F64, margin: float) -> bool:
    """Whether a point (3,) lies in a box made larger by `margin` [m]."""
    if not len(world):
        return False
    pose = world.pose
    dx, dy, dz = (point - pose[:, :3]).T
    c, s = np.cos(pose[:, 6]), np.sin(pose[:, 6])
    local = np.abs(np.stack([c * dx + s * dy, c * dy - s * dx, dz], 1))
    return bool((local <= pose[:, 3:6] + margin).all(1).any())


def planned_path(street: Street, row: int) -> F64:
    """(n, 2) f64 [m] the ego's way from a row on, PATH_M long in steps of 0.5 m: its log, then straight ahead."""
    later = np.arange(row, int(street.tracks.last[street.ego]) + 1)
    later = later[street.tracks.valid[street.ego, later]]
    xy = np.stack([street.tracks.x[street.ego, later], street.tracks.y[street.ego, later]], 1).astype(np.float64)
    heading = street.heading(int(later[-1]))
    beyond = xy[-1] + (PATH_M + 1.0) * np.array([np.cos(heading), np.sin(heading)])
    path, _ = polyline.drop_short_segments(np.column_stack([np.vstack([xy, beyond]), np.zeros(len(xy) + 1)]))
    arc = polyline.arc_lengths(path)
    at = np.arange(0.0, PATH_M + 0.25, 0.5)
    return np.stack([np.interp(at, arc, path[:, axis]) for axis in range(2)], axis=1)


def _task(street: Street, row: int, world: Boxes) -> TaskLabels:
    path = planned_path(street, row)
    solid = np.column_stack([path, np.zeros(len(path))])
    sides = [polyline.shifted(solid, np.full(len(path), side))[:, :2] for side in (HALF_WIDTH_M, -HALF_WIDTH_M)]
    corridor = np.vstack([sides[0], sides[1][::-1]])
    origin = np.floor(street.position(row) / BEV_CELL_M) * BEV_CELL_M - BEV_CELL_M * (BEV_CELLS // 2)
    bottom, top = world.pose[:, 2] - world.pose[:, 5], world.pose[:, 2] + world.pose[:, 5]
    stands = (bottom < SOLID_HIGH_M) & (top > SOLID_LOW_M)
    occupancy = footprints(world.pose[stands], origin)
    agents = footprints(world.pose[stands & (world.agent >= 0)], origin)
    return TaskLabels(0.0, path, corridor, origin, BEV_CELL_M, occupancy, agents)


def footprints(pose: F64, origin: F64) -> U8:
    """(BEV_CELLS, BEV_CELLS) u8: cells that some box (K, 7) covers in part, sampled every 0.1 m."""
    fine = 5
    step = BEV_CELL_M / fine
    side = BEV_CELLS * fine
    covered = np.zeros((side, side), np.bool_)
    for x, y, _, hx, hy, _, turn in pose.tolist():
        reach = np.hypot(hx, hy)
        spans = []
        for centre, start in ((x, origin[0]), (y, origin[1])):
            low = int(np.clip(np.floor((centre - reach - start) / step), 0, side))
            spans.append((low, int(np.clip(np.ceil((centre + reach - start) / step), low, side))))
        (left, right), (bottom, top) = spans
        u, v = np.meshgrid((np.arange(left, right) + 0.5) * step, (np.arange(bottom, top) + 0.5) * step)
        dx, dy = u + origin[0] - x, v + origin[1] - y
        c, s = np.cos(turn), np.sin(turn)
        covered[bottom:top, left:right] |= (np.abs(c * dx + s * dy) <= hx) & (np.abs(c * dy - s * dx) <= hy)
    cells = covered.reshape(BEV_CELLS, fine, BEV_CELLS, fine).any(axis=(1, 3))
    return np.asarray(cells, np.uint8)

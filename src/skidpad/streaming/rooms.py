"""Generated rooms: an analytic distance field of a shell and its furniture, rendered by sphere tracing.

A room is drawn from its seed alone: half-extents 1.6 to 2.4 m, height 2.4 to 2.9 m, turned by any angle about the
vertical, moved, sometimes L-shaped, sometimes with a missing wall, with 4 to 9 boxes, cylinders and spheres. The
furniture keeps a metre from the middle unless it is low, so that cameras find room there.

Distances (Quilez, "Distance functions") are positive in free space and exact there. Room frame: origin in the middle of
the floor, walls along its axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import UsageError
from skidpad.streaming.camera import F64, Camera, look, own_depth, pinhole, rays

GENERATOR, VERSION = "rooms", "1"
U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]

MAX_RANGE_M = 12.0
CLEARANCE_M = 0.25
FOV_RAD = 1.31
SKY = (0.78, 0.86, 0.95)
_BEYOND_M = 20.0  # how far the shell goes on behind a missing wall; rays stop at the opening
_HIT_M = 1e-4
_MAX_STEPS = 160
_CLEAR_MIDDLE_M = 1.0
_LOW_M = 0.8


@dataclass(frozen=True, eq=False)
class Room:
    """One room. Arrays in the room frame, f64 [m], angles [rad].

    outline    (4 or 6, 2) corners, counter-clockwise, the missing wall moved out by `_BEYOND_M`
    opening    (3,) a, b, c of the missing wall: beyond it is where a x + b y > c; zeros where all walls stand
    boxes      (B, 7) centre x, y, z, half-extents x, y, z, turn
    cylinders  (C, 5) centre x, y, z, radius, half height
    spheres    (S, 4) centre x, y, z, radius
    paint      (K, 2, 3) two colours in [0, 1] of the floor, the ceiling, each wall, box, cylinder and sphere, in turn
    checker    (K, 7) period of its pattern, its phase along x, y, z, and which of x, y, z it varies along
    middle     (2,) the point that cameras go around
    """

    seed: int
    yaw: float
    offset: F64
    height: float
    outline: F64
    opening: F64
    boxes: F64
    cylinders: F64
    spheres: F64
    paint: F64
    checker: F64
    middle: F64

    @staticmethod
    def random(seed: int) -> Room:
        """The room of a seed."""
        return _drawn(seed)

    def to_room(self, points: F64) -> F64:
        """World points (..., 3) in the room frame."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        x, y = points[..., 0] - self.offset[0], points[..., 1] - self.offset[1]
        return np.stack([c * x + s * y, c * y - s * x, points[..., 2]], axis=-1)

    def to_world(self, points: F64) -> F64:
        """Room points (..., 3) in the world: the inverse of `to_room`."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        x, y = points[..., 0], points[..., 1]
        return np.stack([c * x - s * y + self.offset[0], s * x + c * y + self.offset[1], points[..., 2]], axis=-1)

    def signed_distance(self, points: F64) -> F64:
        """(...) f64 distance [m] of world points (..., 3) to the nearest surface, negative inside what is solid."""
        flat = self.to_room(np.asarray(points, np.float64).reshape(-1, 3))
        edges, inside = _outline_distances(self.outline, flat[:, 0], flat[:, 1])
        wall = np.where(inside, edges.min(axis=0), -edges.min(axis=0))
        shell = np.minimum(wall, np.minimum(flat[:, 2], self.height - flat[:, 2]))
        nearest: F64 = np.minimum(shell, self._furniture_distances(flat).min(axis=0))
        return nearest.reshape(points.shape[:-1])

    def colour(self, points: F64) -> F64:
        """(..., 3) f64 in [0, 1]: the paint of the surface nearest to world points (..., 3)."""
        flat = self.to_room(np.asarray(points, np.float64).reshape(-1, 3))
        part = np.abs(self._distances(flat)).argmin(axis=0)
        pattern = self.checker[part]
        cells = np.floor((flat * pattern[:, 4:] + pattern[:, 1:4]) / pattern[:, :1]).sum(axis=1)
        paint: F64 = self.paint[part, np.mod(cells, 2.0).astype(np.intp)]
        return paint.reshape((*points.shape[:-1], 3))

    def render(self, camera: Camera, height: int, width: int) -> tuple[U8, F32]:
        """(height, width, 3) u8 colours and (height, width) f32 [m] the camera's own depth, 0 where nothing is met."""
        origin, direction, _ = rays(camera, height, width)
        lengths = self.trace(np.broadcast_to(origin, (height * width, 3)), direction.reshape(-1, 3))
        rgb = np.broadcast_to(np.array(SKY), (height * width, 3)).copy()
        hit = lengths > 0.0
        rgb[hit] = self.colour(origin + direction.reshape(-1, 3)[hit] * lengths[hit, None])
        depth = own_depth(camera, lengths.reshape(height, width)).astype(np.float32)
        return np.round(rgb * 255.0).astype(np.uint8).reshape(height, width, 3), depth

    def trace(self, origins: F64, directions: F64) -> F64:
        """(n,) f64 ray lengths [m] to the first surface along unit directions (n, 3) from points (n, 3) in the room; 0
        where there is none.

        The shell is met in closed form; up to there the furniture is sphere-traced: each step is the distance to the
        nearest piece, which cannot be overshot. (Tracing the shell as well would take a hundred steps along a wall.)
        """
        start = self.to_room(np.asarray(origins, np.float64))
        way = self.to_room(np.asarray(directions, np.float64) + np.append(self.offset, 0.0))
        shell = self._shell_lengths(start, way)
        lengths = shell.copy()
        active = np.arange(len(start))
        p, d, t, limit = start, way, np.zeros(len(start)), shell
        for _ in range(_MAX_STEPS):
            near = self._furniture_distances(p + d * t[:, None]).min(axis=0)
            t = t + near
            hit = near <= _HIT_M
            lengths[active[hit]] = t[hit]
            going = ~hit & (t < limit)
            active, p, d, t, limit = active[going], p[going], d[going], t[going], limit[going]
            if not len(active):
                break
        end = start + way * lengths[:, None]
        beyond = end[:, :2] @ self.opening[:2] > self.opening[2]
        return np.where((lengths < MAX_RANGE_M) & ~beyond, lengths, 0.0)

    def _shell_lengths(self, start: F64, way: F64) -> F64:
        """(n,) f64 ray lengths [m] from inside to floor, ceiling or wall."""
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = np.where(way[:, 2] < 0.0, -start[:, 2], self.height - start[:, 2]) / way[:, 2]
            lengths = np.where(lengths > 0.0, lengths, np.inf)
            for a, b in zip(self.outline, np.roll(self.outline, -1, axis=0), strict=True):
                across = int(a[0] != b[0])  # walls lie along the axes: the coordinate that is constant on this one
                t = (a[across] - start[:, across]) / way[:, across]
                along = start[:, 1 - across] + t * way[:, 1 - across]
                low, high = sorted((a[1 - across], b[1 - across]))
                meets = (t > 0.0) & (along >= low - 1e-9) & (along <= high + 1e-9)
                lengths = np.where(meets & (t < lengths), t, lengths)
        return lengths

    def _distances(self, p: F64) -> F64:
        """(parts, n) distances of room points (n, 3) to each part, in the order of `paint`."""
        x, y, z = p[:, 0], p[:, 1], p[:, 2]
        edges, inside = _outline_distances(self.outline, x, y)
        walls = np.where(inside, edges, -edges)
        return np.stack([z, self.height - z, *walls, *self._furniture_distances(p)])

    def _furniture_distances(self, p: F64) -> F64:
        """(pieces, n) distances of room points (n, 3) to boxes, cylinders and spheres, in turn."""
        x, y, z = p[:, 0], p[:, 1], p[:, 2]
        return np.concatenate([self._to_boxes(x, y, z), self._to_cylinders(x, y, z), self._to_spheres(x, y, z)])

    def _to_boxes(self, x: F64, y: F64, z: F64) -> F64:
        cx, cy, cz, hx, hy, hz, turn = self.boxes.T[:, :, None]
        c, s = np.cos(turn), np.sin(turn)
        dx, dy = x - cx, y - cy
        qx, qy, qz = np.abs(c * dx + s * dy) - hx, np.abs(c * dy - s * dx) - hy, np.abs(z - cz) - hz
        ox, oy, oz = np.maximum(qx, 0.0), np.maximum(qy, 0.0), np.maximum(qz, 0.0)
        return np.asarray(np.sqrt(ox * ox + oy * oy + oz * oz) + np.minimum(np.maximum(np.maximum(qx, qy), qz), 0.0))

    def _to_cylinders(self, x: F64, y: F64, z: F64) -> F64:
        cx, cy, cz, radius, half = self.cylinders.T[:, :, None]
        dx, dy = x - cx, y - cy
        q, qz = np.sqrt(dx * dx + dy * dy) - radius, np.abs(z - cz) - half
        out, oz = np.maximum(q, 0.0), np.maximum(qz, 0.0)
        return np.asarray(np.sqrt(out * out + oz * oz) + np.minimum(np.maximum(q, qz), 0.0))

    def _to_spheres(self, x: F64, y: F64, z: F64) -> F64:
        cx, cy, cz, radius = self.spheres.T[:, :, None]
        dx, dy, dz = x - cx, y - cy, z - cz
        return np.asarray(np.sqrt(dx * dx + dy * dy + dz * dz) - radius)


def _outline_distances(outline: F64, x: F64, y: F64) -> tuple[F64, NDArray[np.bool_]]:
    """(edges, n) unsigned distances of points to the edges of a polygon, and (n,) whether they are inside."""
    rows = []
    inside = np.zeros(len(x), np.bool_)
    for (ax, ay), (bx, by) in zip(outline.tolist(), np.roll(outline, -1, axis=0).tolist(), strict=True):
        ex, ey = bx - ax, by - ay
        dx, dy = x - ax, y - ay
        along = np.clip((dx * ex + dy * ey) / (ex * ex + ey * ey), 0.0, 1.0)
        ox, oy = dx - along * ex, dy - along * ey
        rows.append(np.sqrt(ox * ox + oy * oy))
        if ey:  # edges lie along the axes: only those along y are crossed by a ray along x
            inside ^= ((y >= ay) != (y >= by)) & (x < ax)
    return np.stack(rows), inside


def _drawn(seed: int) -> Room:
    if seed < 0:
        raise UsageError(f"room seed {seed}: expected 0 or more.")
    rng = np.random.default_rng([seed, 0])
    hx, hy = rng.uniform(1.6, 2.4, 2)
    height = float(rng.uniform(2.4, 2.9))
    yaw = float(rng.uniform(-np.pi, np.pi))
    offset = rng.uniform(-2.0, 2.0, 2)
    outline = np.array([[-hx, -hy], [hx, -hy], [hx, hy], [-hx, hy]])
    middle = rng.uniform(-0.1, 0.1, 2)
    if rng.random() < 0.35:
        outline, middle = _l_shape(rng, outline, hx, hy)
    opening = np.zeros(3)
    if rng.random() < 0.2:
        outline, opening = _without_wall(rng, outline)
    boxes, cylinders, spheres = _furniture(rng, hx, hy, middle)
    walls = [[0.0, 1.0, 1.0] if abs(edge[0]) < 1e-12 else [1.0, 0.0, 1.0] for edge in np.roll(outline, -1, 0) - outline]
    pieces = len(boxes) + len(cylinders) + len(spheres)
    axes = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], *walls, *([[1.0, 1.0, 1.0]] * pieces)])
    period = rng.uniform(0.25, 0.7, (len(axes), 1))
    checker = np.concatenate([period, rng.random((len(axes), 3)) * period, axes], axis=1)
    base = rng.uniform(0.15, 0.95, (len(axes), 3))
    other = np.clip(base + rng.uniform(-0.3, 0.3, (len(axes), 3)), 0.05, 0.95)
    paint = np.stack([base, other], axis=1)
    return Room(seed, yaw, offset, height, outline, opening, boxes, cylinders, spheres, paint, checker, middle)


def _l_shape(rng: np.random.Generator, outline: F64, hx: float, hy: float) -> tuple[F64, F64]:
    """A rectangle without one corner, and a point in its middle that is clear of the cut."""
    cut_x, cut_y = hx * rng.uniform(0.5, 0.75), hy * rng.uniform(0.5, 0.75)
    inner_x, inner_y = hx - cut_x, hy - cut_y
    corners = np.array([[-hx, -hy], [hx, -hy], [hx, inner_y], [inner_x, inner_y], [inner_x, hy], [-hx, hy]])
    middle = np.array([-0.5 * cut_x, -0.5 * cut_y])
    flip = np.where(rng.random(2) < 0.5, -1.0, 1.0)
    corners, middle = corners * flip, middle * flip
    return (corners[::-1] if flip.prod() < 0.0 else corners), middle


def _without_wall(rng: np.random.Generator, outline: F64) -> tuple[F64, F64]:
    """The outline with one of its outermost walls moved far out, and the line where that wall stood."""
    edges = np.roll(outline, -1, axis=0) - outline
    outward = np.stack([edges[:, 1], -edges[:, 0]], axis=1) / np.linalg.norm(edges, axis=1, keepdims=True)
    place = (outline * outward).sum(axis=1)
    outermost = [k for k in range(len(outline)) if place[k] >= (outline @ outward[k]).max() - 1e-9]
    wall = outermost[int(rng.integers(len(outermost)))]
    moved = outline.copy()
    for corner in (wall, (wall + 1) % len(outline)):
        moved[corner] += _BEYOND_M * outward[wall]
    return moved, np.append(outward[wall], place[wall] + 1e-6)


def _furniture(rng: np.random.Generator, hx: float, hy: float, middle: F64) -> tuple[F64, F64, F64]:
    """4 to 9 pieces that are low or keep clear of the middle: boxes (B, 7), cylinders (C, 5), spheres (S, 4)."""
    boxes: list[list[float]] = []
    cylinders: list[list[float]] = []
    spheres: list[list[float]] = []
    wanted = int(rng.integers(4, 10))
    bulk = float(rng.uniform(0.7, 1.3))
    while len(boxes) + len(cylinders) + len(spheres) < wanted:
        x, y = rng.uniform(-1.0, 1.0, 2) * (hx, hy)
        kind = rng.random()
        half = bulk * rng.uniform(0.12, 0.45, 2)
        tall = float(rng.uniform(0.3, 1.9))
        turn = float(rng.uniform(-np.pi, np.pi) if rng.random() < 0.5 else 0.0)
        reach = float(np.hypot(*half) if kind < 0.6 else half[0])
        top = tall if kind < 0.85 else 2.0 * half[0]
        if top > _LOW_M and np.hypot(x - middle[0], y - middle[1]) - reach < _CLEAR_MIDDLE_M:
            continue
        if kind < 0.6:
            boxes.append([x, y, tall / 2, half[0], half[1], tall / 2, turn])
        elif kind < 0.85:
            cylinders.append([x, y, tall / 2, half[0], tall / 2])
        else:
            spheres.append([x, y, half[0], half[0]])
    parts = ((boxes, 7), (cylinders, 5), (spheres, 4))
    one, two, three = (np.array(rows).reshape(-1, columns) for rows, columns in parts)
    return one, two, three


class RoomViews(NamedTuple):
    """Cameras of one episode; `placements` has one word per query, interpolated or extrapolated."""

    frames: list[Camera]
    queries: list[Camera]
    placements: list[str]


def room_views(room: Room, frames: int, queries: int, height: int, width: int, attempt: int = 0) -> RoomViews:
    """Cameras on an arc around the middle, looking across it; half of the queries between them, half beyond the arc.

    attempt  another one draws other views of the same room
    Every camera keeps CLEARANCE_M from all surfaces and stands 1.1 to 1.7 m high.
    """
    rng = np.random.default_rng([room.seed, 1, attempt])
    intrinsics = pinhole(height, width, FOV_RAD)
    begin, step = rng.uniform(-np.pi, np.pi), rng.uniform(0.10, 0.20) * (1.0 if rng.random() < 0.5 else -1.0)
    radius, eye = rng.uniform(0.35, 0.6), rng.uniform(1.2, 1.6)
    spread = 0.03
    arc = step * (frames - 1)

    def camera(angle: float, spread: float, turn: float) -> Camera:
        for _ in range(1000):
            around = radius + rng.uniform(-spread, spread)
            up = float(np.clip(eye + rng.uniform(-spread, spread), 1.1, 1.7))
            heading = angle + np.pi + rng.uniform(-turn, turn)
            pitch = rng.uniform(-0.35, -0.05)
            at = np.array([room.middle[0] + around * np.cos(angle), room.middle[1] + around * np.sin(angle), up])
            at = room.to_world(at)
            if room.signed_distance(at[None])[0] < CLEARANCE_M:
                continue
            azimuth = heading + room.yaw
            forward = np.array([np.cos(azimuth), np.sin(azimuth), 0.0]) * np.cos(pitch)
            return Camera("pinhole", intrinsics, look(at, forward + np.array([0.0, 0.0, np.sin(pitch)])))
        raise RuntimeError(f"room {room.seed}: no place for a camera")  # the clear middle makes this impossible

    shown = [camera(begin + step * k, spread, 0.08) for k in range(frames)]
    inside = (queries + 1) // 2
    hidden, placements = [], []
    for k in range(queries):
        if k < inside:
            angle, word = begin + arc * rng.uniform(0.05, 0.95), "interpolated"
        else:
            past = rng.uniform(0.35, 1.4) * np.sign(step)
            angle, word = (begin + arc + past if rng.random() < 0.5 else begin - past), "extrapolated"
        hidden.append(camera(angle, 0.1, 0.25))
        placements.append(word)
    return RoomViews(shown, hidden, placements)

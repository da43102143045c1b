"""A street made of a scene: ground with markings, traffic as boxes, buildings, poles and trees along the road.

The ground lies at height 0. Solid things are boxes turned about the vertical. Rays are cast in closed form: against the
ground plane, and against every box whose bounding sphere they pass. The surroundings are drawn from the map's digest
alone, so they are the same in every episode on that map. The ego is the sensor's platform and never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes import polyline
from skidpad.scenes import scene as codes
from skidpad.scenes.scene import RoadMap, Scene, Tracks
from skidpad.streaming.camera import F64, Camera, own_depth, rays

GENERATOR, VERSION = "streets", "1"
U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

CELL_M = 0.2
MAX_RANGE_M = 80.0
MARGIN_M = 60.0
MAX_CELLS = 1 << 25
SKY = (196, 216, 240)
VERGE, ASPHALT, WHITE, YELLOW, CROSSING = range(5)
_GROUND = np.array([[112, 132, 84], [84, 86, 90], [226, 226, 222], [222, 178, 60], [150, 150, 150]], np.uint8)
_SHADE = np.array([0.72, 0.86, 1.0])  # faces across the box, along it, and on top
_BROKEN = {codes.LINE_BROKEN_WHITE, codes.LINE_BROKEN_YELLOW, codes.LINE_DOUBLE_BROKEN_YELLOW}


@dataclass(frozen=True, eq=False)
class Ground:
    """What covers the ground, in cells of CELL_M; cell (row, column) covers origin + [column, row] * CELL_M.

    kind  (rows, columns) u8: VERGE, ASPHALT, WHITE, YELLOW, CROSSING
    """

    origin: F64
    kind: U8

    def at(self, points: F64) -> U8:
        """(...) u8 kind under points (..., >= 2) [m]; VERGE outside."""
        cell = np.floor((points[..., :2] - self.origin) / CELL_M).astype(np.int64)
        rows, columns = self.kind.shape
        inside = (cell >= 0).all(-1) & (cell[..., 0] < columns) & (cell[..., 1] < rows)
        cell = np.where(inside[..., None], cell, 0)
        return np.where(inside, self.kind[cell[..., 1], cell[..., 0]], VERGE).astype(np.uint8)

    def is_drivable(self, points: F64) -> Bool:
        """(...) whether points (..., >= 2) lie on the road."""
        drivable: Bool = self.at(points) != VERGE
        return drivable


@dataclass(frozen=True, eq=False)
class Boxes:
    """Solid boxes. K of them.

    pose    (K, 7) f64: centre x, y, z, half-extents x, y, z [m], turn [rad]
    colour  (K, 3) u8
    agent   (K,) i64 track they belong to, -1 for what stands still for ever
    """

    pose: F64
    colour: U8
    agent: I64

    def __len__(self) -> int:
        return len(self.pose)

    def joined(self, other: Boxes) -> Boxes:
        """Both sets, this one first."""
        return Boxes(*(np.concatenate([getattr(self, k), getattr(other, k)]) for k in ("pose", "colour", "agent")))

    def without(self, agent: int) -> Boxes:
        """All but the boxes of one agent."""
        keep = self.agent != agent
        return Boxes(self.pose[keep], self.colour[keep], self.agent[keep])


def paint_ground(road: RoadMap, low: F64, high: F64) -> Ground:
    """The ground between corners `low` and `high` (2,) f64 [m]: lanes, crossings, lines."""
    import cv2

    origin = np.floor(low / CELL_M) * CELL_M
    columns, rows = (int(count) for count in np.ceil((high - origin) / CELL_M))
    kind = np.zeros((rows, columns), np.uint8)

    def cells(points: F64) -> NDArray[np.int32]:
        # OpenCV takes 1/16 cells; its pixel centres are whole numbers.
        return np.round(((points[:, :2] - origin) / CELL_M - 0.5) * 16.0).astype(np.int32)

    def near(points: F64) -> bool:
        return bool((points[:, :2].max(0) > low - 10.0).all() and (points[:, :2].min(0) < high + 10.0).all())

    borders: list[F64] = []
    for lane in np.flatnonzero(road.drivable):
        part = road.lane_points(int(lane))
        path, kept = polyline.drop_short_segments(road.xyz[part].astype(np.float64))
        if len(path) < 2 or not near(path):
            continue
        half = road.width[part][kept].astype(np.float64) / 2.0
        left, right = polyline.shifted(path, half), polyline.shifted(path, -half)
        for k in range(len(path) - 1):
            quad = np.stack([left[k], left[k + 1], right[k + 1], right[k]])
            cv2.fillPoly(kind, [cells(quad)], ASPHALT, shift=4)
        borders += [left, right]
    lines: list[tuple[F64, int, bool]] = []
    for element in range(road.element_count):
        code = int(road.element_type[element])
        points = road.xyz[road.points(element)].astype(np.float64)
        if len(points) < 2 or not near(points):
            continue
        if code == codes.AREA_CROSSWALK:
            cv2.fillPoly(kind, [cells(points)], CROSSING, shift=4)
        elif codes.LINE_UNKNOWN <= code < codes.EDGE_UNKNOWN:
            yellow = codes.LINE_BROKEN_YELLOW <= code <= codes.LINE_PASSING_YELLOW
            lines.append((points, YELLOW if yellow else WHITE, code in _BROKEN))
    # Maps of lanes alone still have painted borders on the real road.
    for points, paint, broken in lines or [(border, WHITE, True) for border in borders]:
        for piece in _dashes(points) if broken else [points]:
            cv2.polylines(kind, [cells(piece)], False, paint, 1, cv2.LINE_8, 4)
    return Ground(origin, kind)


def _dashes(points: F64) -> list[F64]:
    """3 m of line, 3 m of none."""
    path, _ = polyline.drop_short_segments(points)
    if len(path) < 2:
        return []
    arc = polyline.arc_lengths(path)
    found = []
    for begin in np.arange(0.0, arc[-1], 6.0):
        at = np.linspace(begin, min(begin + 3.0, float(arc[-1])), 4)
        found.append(np.stack([np.interp(at, arc, path[:, axis]) for axis in range(3)], axis=1))
    return found


def surroundings(scene: Scene, ground: Ground) -> Boxes:
    """Buildings, trees and poles beside the lanes; none stands on the road or in another."""
    rng = np.random.default_rng(int(scene.map_digest[:16], 16))
    road = scene.road
    pose: list[list[float]] = []
    colour: list[F64] = []
    taken = np.zeros(ground.kind.shape, np.bool_)
    for lane in np.flatnonzero(road.drivable):
        part = road.lane_points(int(lane))
        path, kept = polyline.drop_short_segments(road.xyz[part].astype(np.float64))
        if len(path) < 2:
            continue
        arc, ahead = polyline.arc_lengths(path), polyline.directions(path)
        for at in np.arange(2.0, arc[-1], 6.0):
            draw = rng.random(8)  # drawn for every place, so that the area that is looked at changes nothing
            k = int(np.searchsorted(arc, at, "right")) - 1
            foot = np.array([np.interp(at, arc, path[:, 0]), np.interp(at, arc, path[:, 1])])
            out = np.array([ahead[k, 1], -ahead[k, 0]])
            turn = float(np.arctan2(ahead[k, 1], ahead[k, 0]))
            edge = float(road.width[part][kept][k]) / 2.0
            if draw[0] < 0.45:
                half = np.array([4.0 + 5.0 * draw[1], 3.0 + 4.0 * draw[2], 2.0 + 5.0 * draw[3]])
                set_back = edge + 3.0 + 5.0 * draw[4] + half[1]
                pieces = [(half, half[2], 0.35 + 0.5 * draw[5:8])]
            elif draw[0] < 0.75:
                crown = 0.8 + 0.8 * draw[1]
                set_back = edge + 1.5 + 3.0 * draw[4] + crown
                pieces = [
                    (np.array([0.15, 0.15, 1.2]), 1.2, np.array([0.36, 0.26, 0.18])),
                    (np.array([crown, crown, crown]), 2.4 + crown, np.array([0.15, 0.35 + 0.25 * draw[6], 0.15])),
                ]
            else:
                set_back = edge + 1.0 + draw[4]
                pieces = [(np.array([0.08, 0.08, 2.0 + draw[1]]), 2.0 + draw[1], np.array([0.5, 0.5, 0.52]))]
            centre = foot + set_back * out
            reach = max(piece[0][0] for piece in pieces), max(piece[0][1] for piece in pieces)
            if not _is_free(ground, taken, centre, reach, turn):
                continue
            for half, z, paint in pieces:
                pose.append([*centre, z, *half, turn])
                colour.append(paint)
    paints = np.round(np.array(colour).reshape(-1, 3) * 255.0).astype(np.uint8)
    return Boxes(np.array(pose).reshape(-1, 7), paints, np.full(len(pose), -1, np.int64))


def _is_free(ground: Ground, taken: Bool, centre: F64, reach: tuple[float, float], turn: float) -> bool:
    """Whether a footprint with half a metre around it lies in the area, off the road and clear of others; takes it."""
    u, v = (np.arange(-half - 0.5, half + 0.5 + CELL_M, CELL_M) for half in reach)
    u, v = np.meshgrid(u, v)
    c, s = np.cos(turn), np.sin(turn)
    cell = np.floor((np.stack([centre[0] + c * u - s * v, centre[1] + s * u + c * v], -1) - ground.origin) / CELL_M)
    x, y = cell[..., 0].astype(np.int64), cell[..., 1].astype(np.int64)
    rows, columns = ground.kind.shape
    if x.min() < 0 or y.min() < 0 or x.max() >= columns or y.max() >= rows:
        return False
    if (ground.kind[y, x] != VERGE).any() or taken[y, x].any():
        return False
    taken[y, x] = True
    return True


def agent_boxes(tracks: Tracks, row: int, ego: int) -> Boxes:
    """Every agent but the ego that is there at a row: body, cabin and four wheels, or one box on foot and on a bike."""
    pose: list[list[float]] = []
    colour: list[F64] = []
    agent: list[int] = []
    for track in np.flatnonzero(tracks.valid[:, row]):
        if track == ego:
            continue
        length, width, height = (float(array[track, row]) for array in (tracks.length, tracks.width, tracks.height))
        height = height if height > 0.0 else 1.5
        heading = float(tracks.heading[track, row])
        # A colour of its own, by its number: the golden ratio keeps neighbours apart.
        paint = 0.25 + 0.7 * np.mod(0.618034 * (track + 1) * np.array([1.0, 2.0, 3.0]), 1.0)
        parts: list[tuple[tuple[float, ...], tuple[float, ...], F64]]
        if tracks.type[track] in (codes.TYPE_PEDESTRIAN, codes.TYPE_CYCLIST):
            parts = [((0.0, 0.0, height / 2), (length / 2, width / 2, height / 2), paint)]
        else:
            wheel = min(0.35, 0.25 * height)
            top = 0.6 * height
            parts = [
                ((0.0, 0.0, (wheel + top) / 2), (length / 2, width / 2, (top - wheel) / 2), paint),
                ((-0.05 * length, 0.0, (top + height) / 2), (0.28 * length, 0.45 * width, 0.2 * height), 0.6 * paint),
            ]
            black = np.array([0.08, 0.08, 0.09])
            for along in (-0.3, 0.3):
                for across in (-0.5, 0.5):
                    place = (along * length, across * (width - 0.25), wheel)
                    parts.append((place, (wheel, 0.12, wheel), black))
        c, s = np.cos(heading), np.sin(heading)
        for (dx, dy, z), half, tint in parts:
            x = float(tracks.x[track, row]) + c * dx - s * dy
            y = float(tracks.y[track, row]) + s * dx + c * dy
            pose.append([x, y, z, *half, heading])
            colour.append(tint)
            agent.append(int(track))
    paints = np.round(np.array(colour).reshape(-1, 3) * 255.0).astype(np.uint8)
    return Boxes(np.array(pose).reshape(-1, 7), paints, np.array(agent, np.int64))


def cast(origin: F64, directions: F64, boxes: Boxes) -> tuple[F64, I64, I64]:
    """Nearest surface along unit directions (n, 3) from a point (3,) above the ground.

    Returns ray lengths (n,) f64 [m], inf where nothing is met within MAX_RANGE_M; the box that is met (n,) i64, -1 for
    the ground and for nothing; the axis (n,) i64 of the face, in the box's frame.
    """
    with np.errstate(divide="ignore"):
        down = np.where(directions[:, 2] < 0.0, -origin[2] / directions[:, 2], np.inf)
    lengths = np.where(down < MAX_RANGE_M, down, np.inf)
    box = np.full(len(directions), -1, np.int64)
    axis = np.full(len(directions), 2, np.int64)
    if not len(boxes):
        return lengths, box, axis
    to = boxes.pose[:, :3] - origin
    radius2 = (boxes.pose[:, 3:6] ** 2).sum(1)
    square = (to**2).sum(1)
    closest = directions @ to.T
    passes = (square - closest**2 <= radius2) & ((closest > 0.0) | (square <= radius2))
    passes &= square < (MAX_RANGE_M + np.sqrt(radius2)) ** 2
    ray, which = np.nonzero(passes)
    c, s = np.cos(boxes.pose[which, 6]), np.sin(boxes.pose[which, 6])
    d, o = directions[ray], -to[which]
    way = np.stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], d[:, 2]], 1)
    start = np.stack([c * o[:, 0] + s * o[:, 1], c * o[:, 1] - s * o[:, 0], o[:, 2]], 1)
    half = boxes.pose[which, 3:6]
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = (-half - start) / way, (half - start) / way
    # Along an axis: a ray that runs parallel and outside never meets, parallel and inside is not bounded (0 / 0).
    enter = np.where(np.isnan(one), -np.inf, np.minimum(one, other))
    leave = np.where(np.isnan(one), np.inf, np.maximum(one, other))
    first, last = enter.max(1), leave.min(1)
    meets = (first <= last) & (first > 0.0) & (first < MAX_RANGE_M)
    ray, which, first, face = ray[meets], which[meets], first[meets], enter[meets].argmax(1)
    order = np.lexsort((which, first, ray))
    ray, which, first, face = ray[order], which[order], first[order], face[order]
    head = np.ones(len(ray), np.bool_)
    head[1:] = ray[1:] != ray[:-1]
    ray, which, first, face = ray[head], which[head], first[head], face[head]
    nearer = first < lengths[ray]
    lengths[ray[nearer]], box[ray[nearer]], axis[ray[nearer]] = first[nearer], which[nearer], face[nearer]
    return lengths, box, axis


def render(camera: Camera, height: int, width: int, ground: Ground, boxes: Boxes) -> tuple[U8, F32, I64]:
    """(height, width, 3) u8 colours, (height, width) f32 [m] the camera's own depth, 0 where only sky is, and
    (height, width) i64 the agent in each pixel, -1 where there is none."""
    origin, directions, _ = rays(camera, height, width)
    flat = directions.reshape(-1, 3)
    lengths, box, axis = cast(origin, flat, boxes)
    rgb = np.broadcast_to(np.array(SKY, np.uint8), (height * width, 3)).copy()
    met = np.isfinite(lengths)
    floor = met & (box < 0)
    rgb[floor] = _GROUND[ground.at(origin + flat[floor] * lengths[floor, None])]
    solid = box >= 0
    rgb[solid] = np.round(boxes.colour[box[solid]] * _SHADE[axis[solid], None]).astype(np.uint8)
    agent = np.full(height * width, -1, np.int64)
    agent[solid] = boxes.agent[box[solid]]
    depth = own_depth(camera, np.where(met, lengths, 0.0).reshape(height, width)).astype(np.float32)
    return rgb.reshape(height, width, 3), depth, agent.reshape(height, width)

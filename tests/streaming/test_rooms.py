"""Generated rooms: the distance field, sphere tracing, cameras, and what a sensor does to them (M12, M17)."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.streaming import noise as noises
from skidpad.streaming.camera import Camera, look, pinhole, points_of, rays
from skidpad.streaming.compile import room_draft
from skidpad.streaming.rooms import CLEARANCE_M, Room, room_views
from skidpad.streaming.schemas import NoiseFields


def box_hit(origin: np.ndarray, way: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Ray length to a box from outside, inf where it is missed: slabs, one axis after the other."""
    first, last = 0.0, np.inf
    for axis in range(3):
        if way[axis] == 0.0:
            if not low[axis] <= origin[axis] <= high[axis]:
                return np.inf
            continue
        one, other = sorted(((low[axis] - origin[axis]) / way[axis], (high[axis] - origin[axis]) / way[axis]))
        first, last = max(first, one), min(last, other)
    return first if 0.0 < first <= last else np.inf


def sphere_hit(origin: np.ndarray, way: np.ndarray, centre: np.ndarray, radius: float) -> float:
    b = way @ (origin - centre)
    root = b * b - ((origin - centre) @ (origin - centre) - radius**2)
    return -b - np.sqrt(root) if root > 0.0 and -b > np.sqrt(root) else np.inf


def cylinder_hit(origin: np.ndarray, way: np.ndarray, centre: np.ndarray, radius: float, half: float) -> float:
    best = np.inf
    o, d = origin - centre, way
    a, b, c = d[0] ** 2 + d[1] ** 2, o[0] * d[0] + o[1] * d[1], o[0] ** 2 + o[1] ** 2 - radius**2
    if a > 0.0 and b * b - a * c > 0.0:
        t = (-b - np.sqrt(b * b - a * c)) / a
        if t > 0.0 and abs(o[2] + t * d[2]) <= half:
            best = t
    if d[2] != 0.0:
        t = (np.sign(o[2]) * half - o[2]) / d[2]
        if t > 0.0 and np.hypot(o[0] + t * d[0], o[1] + t * d[1]) <= radius:
            best = min(best, t)
    return best


def slow_hit(room: Room, origin: np.ndarray, way: np.ndarray) -> float:
    """Closed-form ray length in the room frame, one part after the other; 0 where the ray leaves by a missing wall."""
    best = np.inf
    for z in (0.0, room.height):
        if way[2] != 0.0 and (z - origin[2]) / way[2] > 0.0:
            best = min(best, (z - origin[2]) / way[2])
    for a, b in zip(room.outline, np.roll(room.outline, -1, axis=0), strict=True):
        matrix = np.array([way[:2], a - b]).T
        if abs(np.linalg.det(matrix)) > 1e-12:
            t, share = np.linalg.solve(matrix, a - origin[:2])
            if t > 0.0 and -1e-9 <= share <= 1.0 + 1e-9:
                best = min(best, t)
    for x, y, z, hx, hy, hz, turn in room.boxes:
        c, s = np.cos(turn), np.sin(turn)
        back = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        half = np.array([hx, hy, hz])
        best = min(best, box_hit(back @ (origin - [x, y, z]), back @ way, -half, half))
    for x, y, z, radius, half in room.cylinders:
        best = min(best, cylinder_hit(origin, way, np.array([x, y, z]), radius, half))
    for x, y, z, radius in room.spheres:
        best = min(best, sphere_hit(origin, way, np.array([x, y, z]), radius))
    end = origin + best * way
    return 0.0 if room.opening[:2].any() and end[:2] @ room.opening[:2] > room.opening[2] else best


def rotated(room: Room, points: np.ndarray) -> np.ndarray:
    """World directions in the room frame."""
    c, s = np.cos(room.yaw), np.sin(room.yaw)
    return points @ np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]]).T


def interesting_seeds() -> list[int]:
    """A room of each shape: a plain one, an L, one with a missing wall."""
    rooms = [Room.random(seed) for seed in range(60)]
    l_shape = next(room.seed for room in rooms if len(room.outline) == 6 and not room.opening.any())
    open_wall = next(room.seed for room in rooms if room.opening.any() and len(room.spheres) and len(room.cylinders))
    plain = next(room.seed for room in rooms if len(room.outline) == 4 and len(room.spheres) and len(room.boxes) > 2)
    return [plain, l_shape, open_wall]


@pytest.mark.parametrize("seed", interesting_seeds())
def test_tracing_against_closed_form(seed: int) -> None:
    """M12: sphere tracing meets boxes, cylinders, spheres and walls where closed forms do, to 1 mm. Rays that graze an
    edge may meet either side of it: at most one in two hundred."""
    room = Room.random(seed)
    missed = 0
    for camera in room_views(room, 3, 1, 16, 20).frames:
        origin, direction, _ = rays(camera, 16, 20)
        flat = direction.reshape(-1, 3)
        found = room.trace(np.broadcast_to(origin, flat.shape), flat)
        start = room.to_room(origin)
        wanted = np.array([slow_hit(room, start, way) for way in rotated(room, flat)])
        wrong = np.abs(found - wanted) > 1e-3
        missed += int(wrong.sum())
    assert missed <= 3 * 16 * 20 // 200


def test_hits_lie_on_the_surface() -> None:
    """M12: at every hit the distance field is 0 within 0.2 mm, and half-way to it positive: free space is positive."""
    for seed in range(12):
        room = Room.random(seed)
        camera = room_views(room, 1, 1, 12, 16).frames[0]
        _, depth = room.render(camera, 12, 16)
        hit = depth > 0.0
        points = points_of(camera, depth.astype(np.float64))
        assert np.abs(room.signed_distance(points[hit])).max() < 5e-4
        assert (room.signed_distance((camera.position + points[hit]) / 2.0) > 0.0).all()


def test_distances_of_a_known_room() -> None:
    """M12: distances worked out by hand in a 4 x 3 x 2.5 m room with one box and one sphere, turned by 90 degrees."""
    square = np.array([[-2.0, -1.5], [2.0, -1.5], [2.0, 1.5], [-2.0, 1.5]])
    room = Room(
        seed=0,
        yaw=np.pi / 2,
        offset=np.array([1.0, 0.0]),
        height=2.5,
        outline=square,
        opening=np.zeros(3),
        boxes=np.array([[1.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.0]]),
        cylinders=np.zeros((0, 5)),
        spheres=np.array([[-1.0, 0.0, 1.0, 0.25]]),
        paint=np.zeros((8, 2, 3)),
        checker=np.ones((8, 7)),
        middle=np.zeros(2),
    )
    inside = np.array(
        [[0.0, 0.0, 1.5], [-1.0, 0.0, 2.0], [1.0, 0.0, 0.5], [-1.9, 1.4, 1.0], [2.5, 0.0, 1.0], [0.0, 0.0, -1.0]]
    )
    wanted = [np.hypot(0.5, 0.5), 0.5, -0.5, 0.1, -0.5, -1.0]
    np.testing.assert_allclose(room.signed_distance(room.to_world(inside)), wanted, atol=1e-12)
    np.testing.assert_allclose(room.to_world(np.array([2.0, 0.0, 1.0])), [1.0, 2.0, 1.0], atol=1e-12)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_thousand_rooms(count: int) -> None:
    """M12: over 1,000 seeds no camera is inside or near anything, heights are as said, and yaw is uniform (chi-square):
    a generator of axis-aligned rooms teaches a network the room shell and nothing else."""
    yaws, shapes, opened, pieces = [], 0, 0, []
    for seed in range(count):
        room = Room.random(seed)
        yaws.append(room.yaw)
        shapes += len(room.outline) == 6
        opened += bool(room.opening.any())
        pieces.append(len(room.boxes) + len(room.cylinders) + len(room.spheres))
        views = room_views(room, 4, 2, 8, 8)
        at = np.array([camera.position for camera in [*views.frames, *views.queries]])
        assert room.signed_distance(at).min() >= CLEARANCE_M, seed
        assert at[:, 2].min() >= 1.1
        assert at[:, 2].max() <= 1.7
    counts = np.histogram(yaws, 20, (-np.pi, np.pi))[0]
    assert ((counts - count / 20) ** 2 / (count / 20)).sum() < 43.8  # 0.1 % of chi-square with 19 degrees of freedom
    assert 0.22 < shapes / count < 0.5
    assert 0.08 < opened / count < 0.32
    assert set(pieces) == set(range(4, 10))


def test_views_share_an_arc() -> None:
    """M12: frames follow one arc around the middle; half of the queries lie within it and half beyond its ends."""
    for seed in range(20):
        room = Room.random(seed)
        views = room_views(room, 8, 4, 8, 8)

        def angles(cameras: list[Camera], room: Room = room) -> np.ndarray:
            at = room.to_room(np.array([camera.position for camera in cameras]))[:, :2] - room.middle
            return np.arctan2(at[:, 1], at[:, 0])

        along = np.unwrap(angles(views.frames))
        assert (np.diff(along) > 0.0).all() or (np.diff(along) < 0.0).all()
        middle, half = (along[0] + along[-1]) / 2.0, abs(along[-1] - along[0]) / 2.0
        off = np.abs(np.angle(np.exp(1j * (angles(views.queries) - middle))))
        assert views.placements == ["interpolated", "interpolated", "extrapolated", "extrapolated"]
        assert (off[:2] < half).all()
        assert (off[2:] > half).all()


def test_colour_is_of_the_surface() -> None:
    """M12: two cameras that see one point see one colour: paint is a property of the place, not of the view."""
    room = Room.random(7)
    one, other = room_views(room, 2, 1, 48, 64).frames
    rgb, depth = room.render(one, 48, 64)
    points = points_of(one, depth.astype(np.float64))[depth > 0.0]
    colour = np.round(room.colour(points) * 255.0)
    agree = (np.abs(colour - rgb[depth > 0.0]).max(axis=1) <= 1.0).mean()
    assert agree > 0.97  # float32 depth may cross the border of a checker cell
    assert len(np.unique(rgb.reshape(-1, 3), axis=0)) >= 4
    assert not np.array_equal(one.world_from_camera, other.world_from_camera)


def test_axial_noise() -> None:
    """M17: the empirical spread of depth per bin is 0.0012 + 0.0019 (z - 0.4)^2 within 5 %."""
    rng = np.random.default_rng(5)
    for z in (0.5, 1.5, 3.0, 5.0):
        depth = np.full((200, 300), z, np.float32)
        noisy = noises.noisy_depth(noises.SENSOR, depth, rng)
        spread = float((noisy[noisy > 0.0] - z).std())
        assert abs(spread / (0.0012 + 0.0019 * (z - 0.4) ** 2) - 1.0) < 0.05
        assert abs(float((noisy == 0.0).mean()) - 0.02) < 0.004


def test_depth_is_lost_at_jumps() -> None:
    """M17: both pixels beside a jump in depth have no return, as on a real sensor; flat parts keep theirs."""
    depth = np.full((6, 8), 1.0, np.float32)
    depth[:, 4:] = 2.0
    only_jumps = noises.NONE.model_copy(update={"edge_jump_m": 0.1})
    noisy = noises.noisy_depth(only_jumps, depth, np.random.default_rng(0))
    assert (noisy[:, 3:5] == 0.0).all()
    assert (noisy[:, :3] == 1.0).all()
    assert (noisy[:, 5:] == 2.0).all()


def test_pose_and_exposure_noise() -> None:
    """M17: poses are shifted by 5 mm and turned by 0.3 deg (one sigma), exposure changes by up to 10 %."""
    camera = Camera("pinhole", pinhole(8, 8, 1.0), look(np.array([1.0, 2.0, 1.5]), np.array([1.0, 1.0, 0.0])))
    rng = np.random.default_rng(9)
    shaken = [noises.noisy_camera(noises.SENSOR, camera, rng) for _ in range(3000)]
    shift = np.array([one.position - camera.position for one in shaken])
    cosine = np.array([(np.trace(one.rotation.T @ camera.rotation) - 1.0) / 2.0 for one in shaken])
    turn = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
    assert abs(shift.std() / 0.005 - 1.0) < 0.05
    assert abs(np.sqrt((turn**2).mean()) / 0.3 - 1.0) < 0.05
    grey = np.full((4, 4, 3), 100, np.uint8)
    levels = [int(noises.noisy_colour(noises.SENSOR, grey, rng)[0, 0, 0]) for _ in range(500)]
    assert 90 <= min(levels) <= 91
    assert 109 <= max(levels) <= 110


def test_no_noise_is_the_clean_room() -> None:
    """M17: a noise of zeros gives exactly the clean bytes; real noise changes every frame and no query."""
    clean, none, noisy = (room_draft(3, (12, 16), (2, 2, 2), noise) for noise in (None, noises.NONE, noises.SENSOR))
    for one, two, three in zip(clean.frames, none.frames, noisy.frames, strict=True):
        np.testing.assert_array_equal(one.rgb, two.rgb)
        np.testing.assert_array_equal(one.depth, two.depth)
        np.testing.assert_array_equal(one.camera.world_from_camera, two.camera.world_from_camera)
        assert not np.array_equal(one.depth, three.depth)
        assert not np.array_equal(one.camera.world_from_camera, three.camera.world_from_camera)
    for one, three in zip(clean.queries, noisy.queries, strict=True):
        np.testing.assert_array_equal(one.depth, three.depth)
        np.testing.assert_array_equal(one.rgb, three.rgb)
    assert isinstance(noises.SENSOR, NoiseFields)

"""Streets: casting, ground, traffic, frames, where queries stand, and the labels of the task (M13, M14, M15)."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from skidpad.errors import UsageError
from skidpad.scenes.scene import TYPE_VEHICLE, Scene
from skidpad.scenes.synthetic import synthetic
from skidpad.streaming.camera import Camera, look, pinhole
from skidpad.streaming.labels import Draft
from skidpad.streaming.street_episode import (
    BEV_CELL_M,
    HALF_WIDTH_M,
    MOVED_M,
    PATH_M,
    Street,
    footprints,
    frame_rows,
    open_street,
    street_draft,
)
from skidpad.streaming.streets import (
    ASPHALT,
    VERGE,
    YELLOW,
    Boxes,
    agent_boxes,
    cast,
    paint_ground,
    render,
    surroundings,
)


def random_boxes(rng: np.random.Generator, count: int) -> Boxes:
    pose = np.concatenate(
        [
            rng.uniform(-20.0, 20.0, (count, 2)),
            rng.uniform(0.2, 3.0, (count, 1)),
            rng.uniform(0.1, 3.0, (count, 3)),
            rng.uniform(-np.pi, np.pi, (count, 1)),
        ],
        axis=1,
    )
    pose[0, 6] = 0.0  # one along the axes, so that rays run parallel to its faces
    return Boxes(pose, np.zeros((count, 3), np.uint8), np.arange(count))


def slow_cast(origin: np.ndarray, way: np.ndarray, boxes: Boxes) -> tuple[float, int]:
    """One ray against the ground and one box after the other: where it enters each pair of faces."""
    best, met = (-origin[2] / way[2] if way[2] < 0.0 else np.inf), -1
    if best >= 80.0:
        best = np.inf
    for number, (x, y, z, *half, turn) in enumerate(boxes.pose.tolist()):
        c, s = np.cos(turn), np.sin(turn)
        back = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        start, local = back @ (origin - [x, y, z]), back @ way
        first, last = -np.inf, np.inf
        for axis in range(3):
            if local[axis] == 0.0:
                if abs(start[axis]) > half[axis]:
                    first = np.inf
                continue
            pair = sorted(((-half[axis] - start[axis]) / local[axis], (half[axis] - start[axis]) / local[axis]))
            first, last = max(first, pair[0]), min(last, pair[1])
        if 0.0 < first <= last and first < min(best, 80.0):
            best, met = first, number
    return best, met


def test_casting_against_slow_twin() -> None:
    """M13: rays against ground and boxes as a loop over rays and boxes has them, to 1 mm, and the same box is met."""
    rng = np.random.default_rng(11)
    for _ in range(6):
        boxes = random_boxes(rng, 12)
        origin = np.array([*rng.uniform(-5.0, 5.0, 2), rng.uniform(0.5, 4.0)])
        ways = rng.normal(size=(60, 3))
        ways[:8, rng.integers(0, 2)] = 0.0
        ways[0] = [1.0, 0.0, 0.0]
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        lengths, box, _ = cast(origin, ways, boxes)
        for k, way in enumerate(ways):
            wanted, met = slow_cast(origin, way, boxes)
            assert (np.isinf(wanted) and np.isinf(lengths[k])) or abs(wanted - lengths[k]) < 1e-3
            assert met == box[k]


def test_empty_world() -> None:
    """M13: with no box there is ground below the horizon and sky, no return, above it."""
    nothing = Boxes(np.zeros((0, 7)), np.zeros((0, 3), np.uint8), np.zeros(0, np.int64))
    ground = crossing()[1].ground
    camera = Camera("pinhole", pinhole(10, 12, 1.2), look(np.array([0.0, 0.0, 1.5]), np.array([1.0, 0.0, 0.0])))
    _, depth, agent = render(camera, 10, 12, ground, nothing)
    assert (depth[:5] == 0.0).all()
    assert (depth[6:] > 0.0).all()
    assert (agent == -1).all()


@functools.cache
def crossing() -> tuple[Scene, Street]:
    scene = synthetic("crossing", 3)
    return scene, open_street(scene, scene.tracks, scene.meta.dt, 12, 0.5)


@functools.cache
def drafted(dynamic: bool, seed: int, name: str = "crossing") -> Draft:
    scene = synthetic(name, 3)
    street = crossing()[1] if name == "crossing" else open_street(scene, scene.tracks, scene.meta.dt, 12, 0.5)
    return street_draft(street, warmup=4, queries=5, dynamic=dynamic, sensor="pinhole", height=24, width=48, seed=seed)


def test_ground_follows_the_map() -> None:
    """M13: centre lines lie on asphalt, the middle line is painted yellow, and 10 m beside a road there is none."""
    road = synthetic("straight", 1).road
    ground = paint_ground(road, np.array([-40.0, -30.0]), np.array([40.0, 30.0]))
    along = np.arange(-35.0, 35.0, 0.5)
    for lane in range(road.lane_count):
        y = float(road.xyz[road.lane_points(lane)][0, 1])
        assert (ground.at(np.stack([along, np.full_like(along, y)], 1)) == ASPHALT).all()
    assert (ground.at(np.stack([along, np.zeros_like(along)], 1)) == YELLOW).mean() > 0.9
    for y in (17.0, -17.0):
        assert (ground.at(np.stack([along, np.full_like(along, y)], 1)) == VERGE).all()
    assert ground.at(np.array([1000.0, 0.0])) == VERGE


def test_nothing_stands_on_the_road() -> None:
    """M13: buildings, trees and poles keep off the drivable area and come out the same twice."""
    scene, street = crossing()
    for x, y, _, hx, hy, _, turn in street.fixed.pose:
        u, v = np.meshgrid(np.linspace(-hx, hx, 9), np.linspace(-hy, hy, 9))
        c, s = np.cos(turn), np.sin(turn)
        assert not street.ground.is_drivable(np.stack([x + c * u - s * v, y + s * u + c * v], -1)).any()
    again = surroundings(scene, street.ground)
    np.testing.assert_array_equal(again.pose, street.fixed.pose)
    assert len(street.fixed) > 40


def test_agents_are_the_tracks() -> None:
    """M13: the agents of a frame are exactly the valid tracks but the ego: body, cabin and four wheels each, within
    the box of the track, standing on the ground."""
    scene, street = crossing()
    tracks = scene.tracks
    for row in (0, 30, 60):
        boxes = agent_boxes(tracks, row, street.ego)
        wanted = set(np.flatnonzero(tracks.valid[:, row])) - {street.ego}
        assert set(boxes.agent) == wanted
        for agent in wanted:
            pose = boxes.pose[boxes.agent == agent]
            assert len(pose) == 6
            assert abs((pose[:, 2] - pose[:, 5]).min()) < 1e-9
            height = max(float(tracks.height[agent, row]), 1.5)
            assert abs((pose[:, 2] + pose[:, 5]).max() - height) < 1e-6
            offset = pose[:, :2] - [tracks.x[agent, row], tracks.y[agent, row]]
            heading = float(tracks.heading[agent, row])
            along = offset @ [np.cos(heading), np.sin(heading)]
            assert np.abs(along).max() < tracks.length[agent, row] / 2.0


def test_frame_rows() -> None:
    """M13: frames are 0.5 s apart, and farther where the ego stands: each pair is at least 0.2 m apart."""
    scene = synthetic("stop_yield", 2)
    tracks = scene.tracks
    standing = [track for track in range(tracks.count) if np.hypot(tracks.vx[track], tracks.vy[track]).min() < 0.05]
    assert standing
    for track in range(tracks.count):
        rows = frame_rows(tracks, track, 0.1, 8, 0.5)
        if rows is None:
            continue
        assert (np.diff(rows) >= 5).all()
        steps = np.hypot(np.diff(tracks.x[track, rows]), np.diff(tracks.y[track, rows]))
        assert steps.min() >= MOVED_M
    assert frame_rows(tracks, 0, 0.1, 200, 0.5) is None


def test_too_short_a_log() -> None:
    """M13: a log without enough frames is refused in a sentence that says what to change."""
    scene = synthetic("straight", 1)
    with pytest.raises(UsageError, match="frame_step_s"):
        open_street(scene, scene.tracks, scene.meta.dt, 60, 0.5)
    empty = synthetic("straight", 1, traffic=False)
    with pytest.raises(UsageError, match="no vehicle"):
        open_street(empty, empty.tracks, empty.meta.dt, 3, 0.5)


def test_every_placement_occurs() -> None:
    """M14: each kind of query occurs over a few draws; those on the road are on it, `ahead` beyond the last pose,
    `lateral` 1.5 to 3.5 m beside the way, `bev` above, `other_agent` on a vehicle."""
    _, street = crossing()
    seen: set[str] = set()
    tracks, last = street.tracks, street.rows[-1]
    way = np.array([street.position(row) for row in range(street.rows[0], last + 1)])
    for seed in range(4):
        for query in drafted(True, seed).queries:
            seen.add(query.placement)
            at = query.camera.position
            if query.placement == "bev":
                assert at[2] > 15.0
                assert query.camera.rotation[2, 2] < -0.999
            elif query.placement == "other_agent":
                gap = np.hypot(tracks.x[:, last] - at[0], tracks.y[:, last] - at[1])
                assert gap[(tracks.type == TYPE_VEHICLE) & tracks.valid[:, last]].min() < 0.01
            else:
                assert street.ground.is_drivable(at[:2])
            if query.placement == "lateral":
                assert 1.0 < np.linalg.norm(way - at[:2], axis=1).min() < 3.6
            if query.placement == "ahead":
                assert 4.5 < np.linalg.norm(at[:2] - street.position(last)) < 15.5
            if query.placement == "interpolated":
                assert np.linalg.norm(way - at[:2], axis=1).min() < 1.0
    assert seen == {"interpolated", "lateral", "ahead", "other_agent", "bev"}


def test_static_and_dynamic_traffic() -> None:
    """M13, M15: a static street freezes its traffic, so frames of one pose agree; a dynamic one lets it move, and
    `moving` marks pixels of agents that moved, and only those. On static tracks it is None."""
    frozen, moving = drafted(False, 1), drafted(True, 1)
    assert all(query.moving is None for query in frozen.queries)
    assert [view.time_s for view in moving.frames] == [0.5 * k for k in range(12)]
    assert {query.time_s for query in moving.queries} == {5.5}
    np.testing.assert_array_equal(frozen.frames[0].depth, moving.frames[0].depth)
    assert any(not np.array_equal(a.depth, b.depth) for a, b in zip(frozen.frames, moving.frames, strict=True))
    marked = [query.moving for query in moving.queries]
    assert all(mask is not None for mask in marked)
    assert sum(int(mask.sum()) for mask in marked if mask is not None) > 0
    _, street = crossing()
    world = street.fixed.joined(agent_boxes(street.tracks, street.rows[-1], street.ego))
    for query in moving.queries:
        if query.placement == "other_agent":
            continue
        _, _, agent = render(query.camera, 24, 48, street.ground, world)
        assert query.moving is not None
        for number in np.unique(agent[agent >= 0]):
            rows = [street.rows[4], street.rows[-1]]
            far = np.hypot(np.diff(street.tracks.x[number, rows]), np.diff(street.tracks.y[number, rows]))[0] > MOVED_M
            new = not street.tracks.valid[number, rows[0]]
            if far or new:
                assert query.moving[agent == number].all()
        assert not query.moving[agent < 0].any()


def test_same_street_twice() -> None:
    """M13, M11: the same traffic and seed give the same bytes."""
    one = drafted(True, 2)
    drafted.cache_clear()
    two = drafted(True, 2)
    for a, b in zip([*one.frames, *one.queries], [*two.frames, *two.queries], strict=True):
        np.testing.assert_array_equal(a.rgb, b.rgb)
        np.testing.assert_array_equal(a.depth, b.depth)


def test_task_labels() -> None:
    """M15: path 20 m long in steps of 0.5 m from the last pose; a corridor 1.75 m to each side; agents are part of what
    is occupied, and the cells of an agent are where it stands."""
    _, street = crossing()
    task = drafted(True, 1).task
    assert task is not None
    np.testing.assert_allclose(task.path[0], street.position(street.rows[-1]), atol=1e-6)
    steps = np.linalg.norm(np.diff(task.path, axis=0), axis=1)
    assert abs(steps.sum() - PATH_M) < 0.5
    assert steps.max() <= 0.5 + 1e-6
    side = np.linalg.norm(task.corridor[: len(task.path)] - task.path, axis=1)
    np.testing.assert_allclose(side, HALF_WIDTH_M, atol=0.05)
    assert (task.occupancy >= task.agents).all()
    tracks, row = street.tracks, street.rows[-1]
    for agent in np.flatnonzero(tracks.valid[:, row]):
        cell = np.floor((np.array([tracks.x[agent, row], tracks.y[agent, row]]) - task.bev_origin) / BEV_CELL_M)
        if agent != street.ego and (cell >= 0).all() and (cell < task.agents.shape[0]).all():
            assert task.agents[int(cell[1]), int(cell[0])] == 1


def test_footprints_by_hand() -> None:
    """M15: a box 2 x 1 m along the axes covers 4 x 2 cells of 0.5 m; a thin pole covers one."""
    pose = np.array([[1.0, 0.5, 1.0, 1.0, 0.5, 1.0, 0.0], [5.25, 5.25, 1.0, 0.08, 0.08, 1.0, 0.4]])
    cells = footprints(pose, np.zeros(2))
    assert cells[:2, :4].all()
    assert cells.sum() == 4 * 2 + 1
    assert cells[10, 10] == 1

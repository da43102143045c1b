"""The generated scenes: frozen, clean, and roads one can drive on."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.errors import UsageError
from skidpad.scenes import polyline
from skidpad.scenes.check import check_scene
from skidpad.scenes.lanes import LaneDistances
from skidpad.scenes.scene import SIGNAL_LIGHT, STATE_GREEN, STATE_YELLOW, Scene
from skidpad.scenes.synthetic import FIXTURES, synthetic

DIGESTS = {
    "straight": "00a5e395e162964d41301e6ea3a71bc52948ca4d0ef58981e8bc5a7b86be8b3b",
    "curve": "4aca104f6786fc1887ccbd3071f259bca14deae01cae45a1ae7baa432ae8295e",
    "crossing": "4e426a19b8d38348f9b617deac784d25789883ea08daf0828235bda80dd8a7cc",
    "roundabout": "769e453c2708267eb073d0f2b8600f212a73a42f5375b7c928d251fbd8364c2e",
    "overpass": "9b520fd648184a80617d2215c3c3ffc62ac666545df2eb22ad67b3f8943fe4b8",
    "merge": "6963d3f1724d6994dcc2df2f7d717335133126b942845dee03158f84df665c9d",
    "dead_end": "a4af2384ad9f1fa1ba954725fca2000a484df9630fd2d0a2ea50c74a425f743b",
    "stop_yield": "8cb99e72878ded8ea47ee9125092fd8831ebbf2a3b1f784d3894c059ee24a76e",
    "dense": "97332ea4648c2c85d143c9f368f0b288c39549e47724d3bddcb895320119866a",
}

scenes = pytest.mark.parametrize("name", FIXTURES)


@pytest.mark.parametrize("name", FIXTURES)
def test_digests_are_frozen(name: str) -> None:
    """S12, R9: the same scene on every machine and with every Python; golden results elsewhere are made on them."""
    assert synthetic(name).digest == DIGESTS[name]


@scenes
@pytest.mark.parametrize("traffic", [True, False])
def test_clean(name: str, traffic: bool) -> None:
    """S12: check_scene finds nothing, nothing was lost, and without traffic the map is the same."""
    scene = synthetic(name, seed=3, traffic=traffic)
    assert check_scene(scene) == []
    assert scene.meta.loss == {}
    assert (scene.tracks.count > 0) == traffic
    if name != "dense":  # whose edges are drawn from the seed
        assert scene.map_digest == synthetic(name).map_digest


@scenes
def test_seed_moves_the_traffic(name: str) -> None:
    """S12: seeds give different scenes, and a seed the same one twice."""
    assert synthetic(name, 1).digest == synthetic(name, 1).digest != synthetic(name, 2).digest


def crossings(one: np.ndarray, other: np.ndarray) -> int:
    """How often two polylines of one level cross: for every pair of segments, do both have the other's ends on
    different sides?"""

    def sides(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """(segments of a, points of b): on which side of each segment lies each point."""
        step = np.diff(a[:, :2], axis=0)
        toward = b[None, :, :2] - a[:-1, None, :2]
        return step[:, None, 0] * toward[:, :, 1] - step[:, None, 1] * toward[:, :, 0] > 0

    ours, theirs = sides(one, other), sides(other, one)
    level = np.abs(one[:-1, None, 2] - other[None, :-1, 2]) <= 4.0
    return int((level & (ours[:, 1:] != ours[:, :-1]) & (theirs[:, 1:] != theirs[:, :-1]).T).sum())


@pytest.mark.parametrize("name", sorted(set(FIXTURES) - {"dense"}))
def test_no_lane_crosses_an_edge(name: str) -> None:
    """S12: a car on its lane never touches a kerb, so every off-road event on these scenes is somebody's fault."""
    road = synthetic(name).road
    edges = [road.xyz[road.points(element)] for element in np.flatnonzero(road.element_type // 10 == 2).tolist()]
    assert edges
    for lane in range(road.lane_count):
        centre = road.xyz[road.lane_points(lane)].astype(float)
        # Ends of lanes may touch the edge that closes the road.
        centre[0, :2] += 0.01 * polyline.directions(centre)[0]
        centre[-1, :2] -= 0.01 * polyline.directions(centre)[-1]
        for edge in edges:
            assert crossings(centre, edge) == 0, (lane, edge[0])


@scenes
def test_cars_keep_apart_and_on_their_lanes(name: str) -> None:
    """S12: logged traffic drives on lanes without touching, or a log replay on a fixture would collide by itself."""
    scene = synthetic(name, seed=5)
    tracks = scene.tracks
    for row in range(scene.meta.steps):
        here = np.flatnonzero(tracks.valid[:, row])
        for index, one in enumerate(here):
            for other in here[index + 1 :]:
                gap = np.hypot(tracks.x[one, row] - tracks.x[other, row], tracks.y[one, row] - tracks.y[other, row])
                assert gap > 3.0 or abs(tracks.z[one, row] - tracks.z[other, row]) > 4.0, (row, one, other)
    for track in range(tracks.count):
        rows = np.flatnonzero(tracks.valid[track])
        xy = np.stack([tracks.x[track, rows], tracks.y[track, rows]], axis=1).astype(float)
        route = [scene.road.xyz[scene.road.lane_points(lane)].astype(float) for lane in tracks.route(track)]
        nearest = np.min([polyline.project(centre, xy).distance for centre in route], axis=0)
        assert nearest.max() < 0.3


def test_logged_velocity_is_that_of_the_positions() -> None:
    """S12: braking cars too, so that fixtures can serve as truth for dynamics and metrics."""
    tracks = synthetic("crossing").tracks
    for track in range(tracks.count):
        rows = np.flatnonzero(tracks.valid[track])
        speed = np.hypot(tracks.vx[track, rows], tracks.vy[track, rows])
        driven = np.hypot(np.diff(tracks.x[track, rows]), np.diff(tracks.y[track, rows])) / 0.1
        assert np.abs(driven - 0.5 * (speed[1:] + speed[:-1])).max() < 0.35  # chords of turns, and the braking point


def states(scene: Scene) -> np.ndarray:
    return scene.signals.state[scene.signals.kind == SIGNAL_LIGHT]


def test_lights_of_a_crossing_exclude_each_other() -> None:
    """S12, S104: in no row are both roads green or yellow; and somebody has green in most rows."""
    scene = synthetic("crossing")
    open_ = np.isin(states(scene), [STATE_GREEN, STATE_YELLOW])
    phase = scene.signals.phase
    assert not (open_[phase == 0].any(axis=0) & open_[phase == 1].any(axis=0)).any()
    assert open_.any(axis=0).mean() > 0.8
    assert states(synthetic("crossing", traffic=False)).shape == (4, 1)


def test_dense_is_dense() -> None:
    """S12, S21: 5,000 edge segments in a square of 10 m."""
    road = synthetic("dense").road
    edges = np.flatnonzero(road.element_type // 10 == 2)
    points = np.concatenate([road.xyz[road.points(element)] for element in edges.tolist()])
    assert sum(np.diff(road.element_points)[edges] - 1) == 5000
    assert np.ptp(points[:, :2], axis=0).max() <= 10.0


def test_overpass_has_two_levels() -> None:
    """S9, S12: the roads cross in plan, 6 m apart in height, and the cars know their level."""
    scene = synthetic("overpass")
    assert scene.meta.has_z
    assert sorted({round(float(z)) for z in scene.tracks.z[scene.tracks.valid]}) == [-3, 3]


@pytest.mark.parametrize("name", ["crossing", "roundabout", "stop_yield"])
def test_every_way_out_can_be_reached(name: str) -> None:
    """S12, S3: from each arm into a junction every other arm out of it can be driven to."""
    road = synthetic(name).road
    distances = LaneDistances(road)
    starts = [lane for lane in range(road.lane_count) if not len(road.entries(lane))]
    ends = [lane for lane in range(road.lane_count) if not len(road.exits(lane))]
    assert len(starts) == len(ends) == 4
    for end in ends:
        reached = np.isfinite(distances.to(end))[starts]
        assert reached.sum() >= 3  # u-turns at a crossing are not offered


def test_unknown_name() -> None:
    """F1: a mistyped name lists the nine that exist."""
    with pytest.raises(UsageError, match=r"no synthetic scene 'ring'.*roundabout"):
        synthetic("ring")

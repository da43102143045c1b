"""Realism kernels against their slow twins, on random and on nasty input (Q22, Q23)."""

from __future__ import annotations

import numpy as np
import pytest
from realism_twins import edge_distance, nearest_object, pieces, time_to_collision
from rollout_world import square_edges, straight, world

from skidpad.evaluation.metrics.realism_features import edge_segments, logged_features, simulated_features
from skidpad.evaluation.rollouts import RoadEdges, check_rollouts, make_edges, make_log


def at(log, row: int) -> dict[str, np.ndarray]:
    """Poses of one row in float64, as the kernels see them."""
    return {name: getattr(log, name)[:, row].astype(float) for name in ("x", "y", "z", "heading")}


def crowd(seed: int, *, spread: float = 12.0, shift: float = 0.0):
    """Twenty boxes of one moment, many of them overlapping, three without a pose; the row before tells their speeds."""
    rng = np.random.default_rng(seed)
    n = 20
    heading = rng.choice([0.0, np.pi / 2, np.pi, -3.1, 3.1, 0.3], n) + rng.normal(0, 0.2, n) * (rng.random(n) < 0.5)
    x, y = rng.uniform(-spread, spread, (2, n)) + shift
    speed = rng.uniform(0, 15, n)
    rows = np.arange(-2, 2) * 0.1
    valid = np.ones((n, 4), dtype=bool)
    valid[:3] = False
    return make_log(
        object_id=np.arange(n),
        object_type=np.ones(n),
        length=rng.uniform(0.3, 12, n),
        width=rng.uniform(0.3, 3, n),
        height=rng.uniform(0.5, 3, n),
        x=x[:, None] + speed[:, None] * np.cos(heading)[:, None] * rows,
        y=y[:, None] + speed[:, None] * np.sin(heading)[:, None] * rows,
        z=np.repeat(rng.choice([0.0, 6.0], n)[:, None], 4, axis=1),
        heading=np.repeat(heading[:, None], 4, axis=1),
        valid=valid,
        scored=np.arange(3, n),
        current_step=0,
    )


@pytest.mark.parametrize("seed", range(6))
def test_nearest_object_and_time_to_collision(seed: int) -> None:
    """Q22: the bounds that skip far boxes must not skip the nearest one: overlapping crowds and sparse ones, turned by
    multiples of 90 degrees, across the cut of the heading."""
    log = crowd(seed, spread=6.0 if seed % 2 else 25.0)
    found = logged_features(log, None, None)
    pose = at(log, 2)
    speed = np.hypot(*((getattr(log, a)[:, 3] - getattr(log, a)[:, 1]).astype(float) / 0.2 for a in ("x", "y")))
    size = log.length.astype(float), log.width.astype(float)
    for e, a in enumerate(log.scored):
        near = nearest_object(pose["x"], pose["y"], pose["heading"], *size, log.valid[:, 2], a)
        assert found.distance_to_nearest_object[0, e, 1] == pytest.approx(near, abs=1e-4)
        ttc = time_to_collision(pose["x"], pose["y"], pose["heading"], speed, *size, log.valid[:, 2], a)
        assert found.time_to_collision[0, e, 1] == pytest.approx(ttc, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_road_edge(seed: int) -> None:
    """Q22, Q23: rings, bridges, a zigzag and doubled vertices; groups and bounds must not lose the nearest segment."""
    rng = np.random.default_rng(seed)
    zigzag = np.stack([np.arange(60) * 0.7 - 20, rng.uniform(-3, 3, 60), np.full(60, 0.0)], axis=1)
    bridge = np.stack([np.linspace(-30, 30, 20), np.linspace(-10, 12, 20), np.linspace(0, 6, 20)], axis=1)
    ring = 18 * np.stack(
        [np.cos(np.linspace(0, 2 * np.pi, 30)), np.sin(np.linspace(0, 2 * np.pi, 30)), np.zeros(30)], axis=1
    )
    edges = make_edges(np.concatenate([zigzag, bridge, ring]), [0, 60, 80, 110])
    log = crowd(seed, spread=25.0)
    found = logged_features(log, edges, None).distance_to_road_edge
    lines = pieces(edges.points, edges.offset)
    pose = at(log, 2)
    assert found is not None
    for e, a in enumerate(log.scored):
        c, s = np.cos(pose["heading"][a]), np.sin(pose["heading"][a])
        values = []
        for u in (-0.5, 0.5):
            for v in (-0.5, 0.5):
                along, aside = u * float(log.length[a]), v * float(log.width[a])
                corner = (pose["x"][a] + along * c - aside * s, pose["y"][a] + along * s + aside * c)
                values.append(edge_distance(corner, pose["z"][a] - float(log.height[a]) / 2, lines)[0])
        assert found[0, e, 1] == pytest.approx(max(values), abs=1e-4)


def probe(x: float, y: float, edges: RoadEdges) -> float:
    """Signed distance of a box of no size."""
    zero = np.zeros((1, 2))
    log = make_log(
        object_id=[1], object_type=[1], length=[0], width=[0], height=[0], x=zero + x, y=zero + y, z=zero, heading=zero,
        valid=zero + 1, scored=[0], current_step=0,
    )  # fmt: skip
    found = logged_features(log, edges, None).distance_to_road_edge
    assert found is not None
    return float(found[0, 0, 0])


@pytest.mark.parametrize(("x", "y", "wanted"), [(0, 0, -5), (7, 0, 2), (8, 9, 5), (-8, -9, 5), (4, 4, -1), (-6, -5, 1)])
def test_a_ring_of_our_own(x: float, y: float, wanted: float) -> None:
    """Q23: a square of side 10 with its inside on the left; all four vertices, the closing one (-5, -5) too, are
    outside corners: 3, 4, 5 away from them is 5 m off the road, not on it."""
    assert probe(x, y, square_edges(5.0)) == pytest.approx(wanted, abs=1e-6)


def test_a_right_turn_takes_the_smaller_sign() -> None:
    """Q23: around an inside corner (the edge turns right) a point behind the vertex is on the road, on both sides of
    the extended lines."""
    edge = make_edges([(-10, 0), (0, 0), (0, -10)], [0, 3])
    assert probe(3, 4, edge) == pytest.approx(-5)
    assert probe(-1, -1, edge) == pytest.approx(1)
    assert probe(5, -0.5, edge) == pytest.approx(-5)


def test_the_level_of_an_edge_counts_three_times() -> None:
    """Q22: an edge 1 m above is 3 m away when the nearest is chosen, and its plane distance is what is reported."""
    edges = make_edges([(-10, 1, 1), (10, 1, 1), (10, -2, 0), (-10, -2, 0)], [0, 2, 4])
    assert probe(0, 0, edges) == pytest.approx(2)  # the lower one, 2 m to its right
    same = make_edges([(-10, 1, 0), (10, 1, 0), (10, -2, 0), (-10, -2, 0)], [0, 2, 4])
    assert probe(0, 0, same) == pytest.approx(1)


def test_edges_without_length_or_none() -> None:
    """Nothing to measure from is a missing feature, not a distance of 0."""
    log = make_log(**straight(1))
    assert logged_features(log, make_edges([(1, 1), (1, 1)], [0, 2]), None).distance_to_road_edge is None
    assert logged_features(log, make_edges(np.zeros((0, 2)), [0]), None).distance_to_road_edge is None
    assert logged_features(log, None, None).distance_to_road_edge is None
    doubled = np.repeat(square_edges(5.0).points, 2, axis=0)
    ours, plain = edge_segments(make_edges(doubled, [0, 10])), edge_segments(square_edges(5.0))
    assert all(np.array_equal(a, b) for a, b in zip(ours, plain, strict=True))


def test_ties_of_edges_do_not_depend_on_company() -> None:
    """Two edges at the same distance: the first one decides, wherever the search began and whoever is near."""
    edges = make_edges([(-50, 1), (50, 1), (-50, -1), (50, -1)], [0, 2, 4])
    fields = straight(8, apart=0.0, speed=0.0)
    fields["x"] = np.repeat(np.linspace(-40, 40, 8)[:, None], 91, axis=1)
    fields["length"] = fields["width"] = fields["height"] = np.zeros(8)
    together = logged_features(make_log(**fields), edges, None).distance_to_road_edge
    assert together is not None
    assert np.all(together == together[0, 0, 0])
    assert {float(probe(x, 0.0, edges)) for x in np.linspace(-40, 40, 8)} == {float(together[0, 0, 0])}


def test_one_object_has_nobody_near() -> None:
    """Q22: alone in the world the distance is 1e10, which counts in the top bin, and nothing is ahead."""
    found = logged_features(make_log(**straight(1)), None, None)
    assert np.all(found.distance_to_nearest_object == np.float32(1e10))
    assert np.all(found.time_to_collision == 5)


def test_a_box_inside_another() -> None:
    """Q22: coincident boxes 4 x 2 m: inner boxes 2.6 x 0.6 overlap by 0.6 m at least, minus twice 0.7: -2."""
    log = make_log(**straight(2, apart=0.0))
    assert np.allclose(logged_features(log, None, None).distance_to_nearest_object, -2.0)


def test_time_to_collision_by_hand() -> None:
    """Q22: 10 m/s behind 5 m/s, centres 14 m apart, 4 m long: gap 10 m, closing 5 m/s: 2 s when the gap is that
    wide."""
    fields = straight(2, apart=0.0)
    rows = np.arange(91) * 0.1
    fields["x"] = np.stack([10 * rows, 14 + 5 * rows])
    found = logged_features(make_log(**fields), None, None).time_to_collision[0]
    gap = 10 - 5 * rows[11:]
    ahead = (gap > 0.01) & (np.arange(80) < 79)
    assert np.allclose(found[0, ahead], (gap / 5)[ahead], atol=1e-4)
    assert np.all(found[1] == 5)  # nobody in front of the slower one, and later it is behind


def test_a_batch_of_rollouts_is_that_many_rollouts() -> None:
    """Kernels go over rollouts in one call: each must get what it gets alone, to the last bit."""
    case, rollouts = world(1, count=5)
    task = check_rollouts(rollouts, case.log, not_standard=True)
    whole = simulated_features(task.rollouts, task.log, case.edges, case.lights)
    for r in range(5):
        alone = simulated_features(task.rollouts.select([r]), task.log, case.edges, case.lights)
        for name, array in vars(alone).items():
            assert np.array_equal(array[0], getattr(whole, name)[r], equal_nan=array.dtype != bool), name

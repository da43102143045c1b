"""Spawning on bare maps (S57): every rule on 10,000 spawns, against boxes written anew in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from bare_maps import SEED, Bare, town
from naive import separation

from skidpad.scenes.index import IndexParams, build_index
from skidpad.scenes.scene import STATE_GREEN, STATE_RED
from skidpad.simulation import state as at

TRAINING = {"length": (0.8, 7.0), "width": (0.8, 2.7)}


def crosses(a, b, x, y, heading, length, width):
    """Which segments from a to b, (n, 2) [m] each, meet a box: clipped against its slabs."""
    c, s = np.cos(heading), np.sin(heading)
    turn = np.array([[c, -s], [s, c]])
    p, q = (a - [x, y]) @ turn, (b - [x, y]) @ turn
    half = np.array([length / 2, width / 2])
    with np.errstate(divide="ignore", invalid="ignore"):
        t0, t1 = (-half - p) / (q - p), (half - p) / (q - p)
    still = q == p
    enter = np.where(still, np.where(abs(p) <= half, -np.inf, np.inf), np.minimum(t0, t1)).max(axis=1)
    leave = np.where(still, np.where(abs(p) <= half, np.inf, -np.inf), np.maximum(t0, t1)).min(axis=1)
    return (np.maximum(enter, 0) <= np.minimum(leave, 1)) & (enter <= 1) & (leave >= 0)


def edge_segments(scene):
    """All edge segments of the index's geometry: (n, 2), (n, 2) [m], and the height of their middles (n,) [m]."""
    index = build_index(scene, IndexParams(lists="computed"))
    pieces = []
    for element in np.flatnonzero(scene.road.element_type // 10 == 2):
        points = index.points[index.element_points[element] : index.element_points[element + 1], :3].astype(float)
        pieces.append(np.concatenate([points[:-1], points[1:]], axis=1))
    both = np.concatenate(pieces)
    return both[:, :2], both[:, 3:5], (both[:, 2] + both[:, 5]) / 2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "worlds", "agents"), [("Town10HD", 160, 32), ("Town03", 80, 64)])
def test_ten_thousand_spawns_obey_every_rule(name, worlds, agents):
    """S57: on a drivable lane, along it, at its height; 0.3 m from everybody; no edge under a box a tenth larger; no
    red or yellow line under the box; sizes in range. A cheap shortcut in any of them would go unseen in traffic."""
    scene = town(name)
    bare = Bare(scene, agents)
    bare.parameters[[at.SPAWN_LENGTH_LOW, at.SPAWN_LENGTH_HIGH]] = TRAINING["length"]
    bare.parameters[[at.SPAWN_WIDTH_LOW, at.SPAWN_WIDTH_HIGH]] = TRAINING["width"]
    bare.parameters[at.SPAWN_SPEED] = 3.0
    red = np.arange(scene.signals.count) % 2 == 0
    bare.lights[:] = np.where(red, STATE_RED, STATE_GREEN)
    red &= bare.kind == 1
    lines = scene.signals.line[red].astype(float)
    a, b, height = edge_segments(scene)
    gate = 4.0 if scene.meta.has_z else np.inf
    failed = 0
    for episode in range(worlds):
        bare.u1[:] = 0
        placed = np.array([bare.spawn(n, episode=episode) for n in range(agents)])
        assert (placed == bare.u1[at.BODY]).all()
        failed += int((~placed).sum())
        x, y, z, length, width = (bare.f4[row].astype(float) for row in (at.X, at.Y, at.Z, at.LENGTH, at.WIDTH))
        heading = np.arctan2(bare.f4[at.SIN], bare.f4[at.COS]).astype(float)
        assert (length[~placed] == 0).all()
        live = np.flatnonzero(placed)
        assert ((length[live] >= 0.8) & (length[live] < 7.0) & (width[live] >= 0.8) & (width[live] < 2.7)).all()
        assert (width[live] <= length[live] + 1e-6).all()
        assert (bare.f4[at.SPEED, live] == 3.0).all()
        assert (bare.f4[at.HEIGHT, live] == 1.5).all()
        i, j = np.triu_indices(len(live), 1)
        i, j = live[i], live[j]
        level = abs(z[i] - z[j]) <= gate
        boxes = (
            tuple(v[i[level]] for v in (x, y, heading, length, width)),
            tuple(v[j[level]] for v in (x, y, heading, length, width)),
        )
        assert (separation(*boxes) > 0.3 - 1e-4).all()
        for n in live:
            lane = bare.i4[at.LANE, n]
            assert scene.road.drivable[lane]
            points = scene.road.xyz[scene.road.lane_points(lane), :2].astype(float)
            step, to = np.diff(points, axis=0), [x[n], y[n]] - points[:-1]
            share = np.clip((to * step).sum(axis=1) / (step**2).sum(axis=1), 0, 1)
            # Thinning may have moved the centre line by 0.1 m.
            assert np.hypot(*(to - share[:, None] * step).T).min() < 0.15
            near = np.hypot(*(0.5 * (a + b) - [x[n], y[n]]).T) < 15.0
            near &= abs(height - z[n]) <= gate
            assert not crosses(
                a[near], b[near], x[n], y[n], heading[n], 1.1 * length[n] - 1e-3, 1.1 * width[n] - 1e-3
            ).any()
            closed = abs(lines[:, :, 2].mean(axis=1) - z[n]) <= gate
            assert not crosses(
                lines[closed, 0, :2], lines[closed, 1, :2], x[n], y[n], heading[n], length[n] - 1e-3, width[n] - 1e-3
            ).any()
    assert failed < 0.05 * worlds * agents


def test_the_place_is_on_the_lane_and_drawn_by_length():
    """S57: lateral 0, lane heading, and lanes are met in proportion to their length (chi-square over 5,120 places)."""
    from skidpad.simulation.kernels.spawn import draw_lane

    bare = Bare(town("crossing"), 1)
    share = np.diff(bare.spawn_end, prepend=0.0) / bare.spawn_end[-1]
    count = np.zeros(len(bare.spawn_lane))
    for episode in range(5120):
        lane, along = draw_lane(SEED, episode, 0, 0, bare.spawn_lane, bare.spawn_end)
        count[np.flatnonzero(bare.spawn_lane == lane)] += 1
        assert 0 <= along < 1
    expected = share * 5120
    assert ((count - expected) ** 2 / expected).sum() < len(share) + 5 * np.sqrt(2 * len(share))
    assert bare.spawn(0)
    lane = bare.i4[at.LANE, 0]
    points = bare.scene.road.xyz[bare.scene.road.lane_points(lane), :2].astype(float)
    at_x, at_y = bare.f4[[at.X, at.Y], 0].astype(float)
    offset = min(
        abs((q - p)[0] * (at_y - p[1]) - (q - p)[1] * (at_x - p[0])) / np.hypot(*(q - p)) for p, q in pairwise(points)
    )
    assert offset < 0.15  # thinning may move the centre line by 0.1 m


def test_nobodys_failure_moves_another():
    """S57: draws belong to the agent, so that blocking one agent (here: giving it no try at all) leaves the others'
    sizes and first places as they were."""
    full, partial = Bare(town("Town01"), 24), Bare(town("Town01"), 24)
    for a in range(24):
        full.spawn(a)
        if a != 7:
            partial.spawn(a)
    others = np.arange(24) != 7
    assert (full.f4[at.LENGTH, others] == partial.f4[at.LENGTH, others]).all()
    same = (full.f4[[at.X, at.Y]] == partial.f4[[at.X, at.Y]]).all(axis=0)
    assert (~same & others).sum() <= 2  # Only who had to give way to agent 7 may stand elsewhere.


def test_a_full_map_leaves_slots_empty():
    """S57: on 100 m of road not everybody fits; who does not has no body and no size, and the kernel ends."""
    bare = Bare(town("dead_end"), 200)
    placed = np.array([bare.spawn(a) for a in range(200)])
    assert 0 < placed.sum() < 200
    assert (bare.u1[at.BODY] == placed).all()
    assert (bare.f4[at.LENGTH, ~placed] == 0).all()
    x, y, h, length, width = (
        bare.f4[row, placed].astype(float) for row in (at.X, at.Y, at.HEADING, at.LENGTH, at.WIDTH)
    )
    i, j = np.triu_indices(int(placed.sum()), 1)
    boxes = tuple(v[i] for v in (x, y, h, length, width)), tuple(v[j] for v in (x, y, h, length, width))
    assert (separation(*boxes) > 0.3 - 1e-4).all()

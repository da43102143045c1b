"""Worlds of any size: the agent grid leaves out far pairs and nothing else (S20, S21)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from stage import Actor, World, driving

from skidpad.simulation.kernels import agent_grid
from skidpad.simulation.kernels.agent_grid import (
    BLOCK,
    GRID_AGENTS,
    GRID_ROWS,
    GRID_SLOTS,
    last_row,
    sort_agents,
    stretch,
)
from skidpad.simulation.kernels.contact import pair_count


def crowd(rng, count, spread):
    """Cars and a few lorries, driving anywhere within a square."""
    return [
        driving(
            *rng.uniform(-spread, spread, 2),
            rng.uniform(-math.pi, math.pi),
            rng.uniform(0, 20),
            turn=rng.normal(0, 0.05),
            length=18.0 if rng.random() < 0.05 else rng.uniform(3, 6),
            width=rng.uniform(1.5, 2.5),
            before=rng.random() > 0.05,
            after=rng.random() > 0.05,
        )
        for _ in range(count)
    ]


def alone(actors):
    """What testing every pair in a world of two finds: events and touch of all, and states of the pairs."""
    count = len(actors)
    events, touching = np.zeros(count, np.uint32), np.zeros(count, np.uint8)
    pairs = np.zeros(pair_count(count), np.uint8)
    k = 0
    for i in range(count):
        for j in range(i + 1, count):
            world = World(2)
            found = world.step([actors[i], actors[j]])
            events[[i, j]] |= found.events
            touching[[i, j]] |= found.touching
            pairs[k] = world.pair[0]
            k += 1
    return events, touching, pairs


@pytest.mark.parametrize("count", [1, 2, 47, 48, 49, 50, 80])
def test_both_paths_find_what_pairs_alone_find(count):
    """S20: below and above the threshold every pair within reach is met, and no other."""
    rng = np.random.default_rng(count)
    for spread in (15.0, 60.0):
        actors = crowd(rng, count, spread)
        world = World(count)
        found = world.step(actors)
        events, touching, pairs = alone(actors)
        assert found.events.tolist() == events.tolist()
        assert found.touching.tolist() == touching.tolist()
        assert world.pair.tolist() == pairs.tolist()


@pytest.mark.parametrize("count", [49, 120, 300])
@pytest.mark.parametrize("spread", [8.0, 40.0, 3000.0])
def test_a_sorted_world_is_an_unsorted_one(count, spread):
    """S20: in a jam, in a town and over a country the pairs of the grid are those within reach, each once."""
    rng = np.random.default_rng(count)
    x, y = rng.uniform(-spread, spread, (2, count))
    x[::17] = np.nan
    scratch, places = np.zeros((GRID_ROWS, count + BLOCK), np.float32), np.zeros(GRID_SLOTS * count + 2, np.int32)
    scratch[[agent_grid.X, agent_grid.Y], :count], scratch[agent_grid.REACH] = (x, y), 3.0
    _, _, side, columns, rows = sort_agents(count, scratch, places)
    assert sorted(places[:count]) == list(range(count))
    assert columns * rows <= 4 * count
    for reach in (6.0, 50.0):
        found = []
        for p in range(count):
            span = math.ceil(reach / side)
            for row in range(places[count + p] // columns, last_row(places[count + p], span, columns, rows) + 1):
                q0, q1 = stretch(p, row, span, columns, count, places)
                found += [tuple(sorted((places[p], places[q]))) for q in range(q0, q1)]
        assert len(found) == len(set(found))
        near = {
            (i, j)
            for i in range(count)
            for j in range(i + 1, count)
            if math.hypot(x[i] - x[j], y[i] - y[j]) <= reach  # False for NaN
        }
        assert near <= set(found)
    if spread == 3000.0:
        assert len(found) < count * count / 8  # it does leave out


def test_a_jam_keeps_every_pair():
    """S20, S21: 200 agents within 30 m touch dozens at once; a buffer of fixed size would lose some."""
    rng = np.random.default_rng(0)
    at = rng.uniform(-15, 15, (200, 2))
    actors = [Actor((x, y, 0.0), (x, y, 0.0)) for x, y in at]
    world = World(200)
    world.step(actors)
    k, touching = 0, 0
    for i in range(200):
        rest = np.array([[a.start[0], a.start[1]] for a in actors[i + 1 :]]).reshape(-1, 2)
        apart = (abs(rest[:, 0] - at[i, 0]) > 4.0 + 1e-5) | (abs(rest[:, 1] - at[i, 1]) > 2.0 + 1e-5)
        assert (world.pair[k : k + len(rest)] > 0).tolist() == (~apart).tolist()
        touching += int((~apart).sum())
        k += len(rest)
    assert touching > 400


def test_order_does_not_matter_in_a_large_world():
    """S36 above the threshold: permuting 60 agents permutes the results, whatever cell they are sorted into."""
    rng = np.random.default_rng(3)
    actors = crowd(rng, 60, 25.0)
    plain = World(60).step(actors)
    order = rng.permutation(60)
    mixed = World(60, keys=order).step([actors[k] for k in order])
    assert mixed.events.tobytes() == plain.events[order].tobytes()
    assert mixed.time.tobytes() == plain.time[order].tobytes()
    assert [order[p] if p >= 0 else -1 for p in mixed.partner] == plain.partner[order].tolist()


def test_states_of_pairs_last_in_a_large_world():
    """S99 above the threshold: a contact that lasts is one event, and one that ended is forgotten."""
    rest = [Actor((100.0 + 20 * k, 50.0, 0), (100.0 + 20 * k, 50.0, 0)) for k in range(GRID_AGENTS)]
    world = World(GRID_AGENTS + 2)
    hit, lasts = driving(0, 0, 0, 10), driving(1, 0, 0, 0)
    wall = Actor((4.5, 0, 0), (4.5, 0, 0))
    assert world.step([hit, wall, *rest]).events[:2].all()
    again = world.step([lasts, wall, *rest])
    assert again.events[:2].tolist() == [0, 0]
    assert again.touching[:2].tolist() == [1, 1]
    assert not world.step([driving(-30, 0, 0, 0), wall, *rest]).touching.any()
    assert not world.pair.any()

"""Routes and goals made inside the simulation (S59, S60, S61) on towns and fixtures, against walks in plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from bare_maps import SEED, Bare, town
from naive import words
from worlds import simulator

from skidpad.scenes.lanes import LaneDistances, lane_lengths
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.kernels.goals import GOING, NO_GOAL, SET_DONE

MAPS = ["crossing", "roundabout", "dead_end", "Town03", "Town05"]


def unit(word):
    return (word >> 8) * 2.0**-24


def walk(road, lane, arc, key, step=0, seed=SEED):
    """A random route as S60 says it: over drivable exits, unvisited ones first, to 1,000 m or 64 lanes."""
    lengths = lane_lengths(road)
    route, left = [lane], lengths[lane] - arc
    while len(route) < 64 and left < 1000.0:
        exits = [int(e) for e in road.exits(route[-1]) if road.drivable[e]]
        fresh = [e for e in exits if e not in route]
        choose = fresh or exits
        if not choose:
            break
        word = words(seed, 0, key, step, 3, len(route))[0]
        route.append(choose[word * len(choose) >> 32])
        left += lengths[route[-1]]
    return route


def spaced(road, route, arc, key, count, step=0, seed=SEED):
    """Goals as S59 says them: (lane, arc, driven metres) each U(20, 200) on, or less where the route ends."""
    lengths = lane_lengths(road)
    total = sum(lengths[lane] for lane in route) - arc
    at_m, found = 0.0, []
    for n in range(count):
        if total - at_m < 20.0:
            break
        at_m += 20.0 + unit(words(seed, 0, key, step, 4, n)[0]) * (min(200.0, total - at_m) - 20.0)
        place, hop = arc + at_m, 0
        while hop < len(route) - 1 and place >= lengths[route[hop]]:
            place -= lengths[route[hop]]
            hop += 1
        found.append((route[hop], place, at_m))
    return found


def starts(bare, count, seed=5):
    """Places to begin at: (lane, arc [m])."""
    random = np.random.default_rng(seed)
    lengths = lane_lengths(bare.scene.road)
    for lane in random.choice(bare.spawn_lane, count):
        yield int(lane), float(np.float32(random.uniform(0, lengths[lane])))


@pytest.mark.parametrize("name", MAPS)
def test_routes_and_goals_equal_their_twin(name):
    """S59, S60: the kernel's walk and its goals are those of the plain one: lanes equal, places within a millimetre
    per hundred metres of float32 arc, consecutive lanes connected."""
    bare = Bare(town(name), 1)
    road = bare.scene.road
    for key, (lane, arc) in enumerate(starts(bare, 60)):
        bare.i4[at.KEY, 0] = key
        bare.routes.size[0] = 0
        bare.new_goals(0, lane, arc)
        route = walk(road, lane, arc, key)
        assert bare.route(0) == route
        assert all(b in road.exits(a) for a, b in itertools.pairwise(route))
        wanted = spaced(road, route, arc, key, 3)
        assert bare.goals.size[0] == len(wanted)
        for n, (goal_lane, goal_arc, _) in enumerate(wanted):
            if abs(goal_arc - lane_lengths(road)[goal_lane]) > 0.01 and goal_arc > 0.01:
                assert bare.goals.lane[0, n] == goal_lane
                assert bare.goals.arc[0, n] == pytest.approx(goal_arc, abs=0.01)
            points = road.xyz[road.lane_points(goal_lane)].astype(float)
            where = road.arc[road.lane_points(goal_lane)].astype(float)
            there = [np.interp(goal_arc, where, points[:, axis]) for axis in range(3)]
            assert bare.goals.points[0, n] == pytest.approx(there, abs=0.15)  # thinning: 0.1 m


@pytest.mark.parametrize("name", ["Town03", "merge", "crossing"])
def test_map_goals_can_be_reached_and_are_spread_by_length(name):
    """S59: `map` goals lie on lanes that the graph reaches, the following ones along a route from the first; on a map
    that reaches itself the lanes are met in proportion to their length."""
    bare = Bare(town(name), 1)
    bare.parameters[at.GOAL_SOURCE] = at.GOALS_MAP
    road, lengths = bare.scene.road, lane_lengths(bare.scene.road)
    distances = LaneDistances(road)
    met: dict[int, int] = {}
    lane, arc = next(starts(bare, 1))
    reachable = [int(g) for g in bare.spawn_lane if np.isfinite(distances.between(lane, arc, int(g), lengths[g]))]
    for key in range(300):
        bare.i4[at.KEY, 0] = key
        bare.routes.size[0] = 0
        bare.new_goals(0, lane, arc)
        assert bare.goals.size[0] >= 1
        first = int(bare.goals.lane[0, 0])
        assert first in reachable
        met[first] = met.get(first, 0) + 1
        before = first, float(bare.goals.arc[0, 0])
        for n in range(1, bare.goals.size[0]):
            goal = int(bare.goals.lane[0, n]), float(bare.goals.arc[0, n])
            gap = distances.between(*before, *goal)
            assert gap <= 200.01  # a shorter way than the route's may exist
            before = goal
        route = bare.route(0)
        assert route[0] == lane
        assert all(b in road.exits(a) for a, b in itertools.pairwise(route))
    share = np.array([lengths[g] for g in reachable])
    count = np.array([met.get(g, 0) for g in reachable])
    start = reachable.index(lane) if lane in reachable else None
    if start is not None:
        share[start] = max(share[start] - arc, 1e-9)
    expected = share / share.sum() * 300
    assert ((count - expected) ** 2 / np.maximum(expected, 0.3)).sum() < len(share) * 2 + 60


def reach(bare, a=0):
    """Let an agent reach its next goal."""
    bare.i4[at.GOAL_NEXT, a] += 1
    bare.i4[at.GOAL_INDEX, a] += 1


def test_a_finite_set_is_renewed_when_all_are_reached():
    """S61 `finite`: nothing changes before the last goal; then a new set begins where the old one ended."""
    bare = Bare(town("Town05"), 1)
    lane, arc = next(starts(bare, 1))
    bare.new_goals(0, lane, arc)
    old = bare.goals.points[0].copy()
    last = int(bare.goals.lane[0, 2]), float(bare.goals.arc[0, 2])
    for n in range(2):
        reach(bare)
        assert bare.renew(0, step=5 + n) == GOING
        assert (bare.goals.points[0] == old).all()
    reach(bare)
    assert bare.renew(0, step=9) == SET_DONE
    assert bare.i4[at.GOAL_NEXT, 0] == 0
    assert bare.i4[at.GOAL_INDEX, 0] == 3
    assert bare.route(0)[0] == last[0]
    found = LaneDistances(bare.scene.road).between(*last, int(bare.goals.lane[0, 0]), float(bare.goals.arc[0, 0]))
    assert 0 < found <= 200.01


def test_rolling_goals_keep_what_was_ahead():
    """S61 `rolling`: after each reach the next goals are those that were ahead, and a new one stands behind them, all
    in driving order along one connected route; 200 reaches in a row."""
    bare = Bare(town("Town03"), 1)
    bare.parameters[at.GOAL_BEHAVIOUR] = at.GOALS_ROLLING
    road = bare.scene.road
    lane, arc = next(starts(bare, 1))
    bare.new_goals(0, lane, arc)
    kept = 0
    for step in range(1, 201):
        ahead = bare.goals.points[0, 1 : bare.goals.size[0]].copy()
        reach(bare)
        found = bare.renew(0, step=step)
        if found == NO_GOAL:
            break
        assert bare.i4[at.GOAL_NEXT, 0] == 0
        size = int(bare.goals.size[0])
        kept += size > len(ahead) - 1 and (bare.goals.points[0, : len(ahead)] == ahead).all()
        route = bare.route(0)
        assert all(b in road.exits(a) for a, b in itertools.pairwise(route))
        hops = bare.goals.hop[0, :size].tolist()
        assert hops == sorted(hops)
        assert [route[h] for h in hops] == bare.goals.lane[0, :size].tolist()
    assert kept > 0.9 * step
    assert step > 20


def test_a_dead_end_leaves_no_goal():
    """S61: where nothing lies ahead, `no_goal` is reported and no goal is left that could never be reached."""
    bare = Bare(town("straight"), 1)
    road = bare.scene.road
    end = int(next(lane for lane in bare.spawn_lane if not len(road.exits(lane))))
    bare.new_goals(0, end, float(lane_lengths(road)[end]) - 5.0)
    assert bare.goals.size[0] == 0
    for behaviour in (at.GOALS_FINITE, at.GOALS_ROLLING, at.GOALS_NEW):
        bare.parameters[at.GOAL_BEHAVIOUR] = behaviour
        bare.routes.size[0] = 0
        bare.new_goals(0, end, float(lane_lengths(road)[end]) - 30.0)
        assert bare.goals.size[0] == 1
        reach(bare)
        assert bare.renew(0) == NO_GOAL
        assert bare.goals.size[0] == 0


def test_new_goals_of_the_peer_lie_forty_metres_on():
    """S61 `new` (compat v2): 40 m ahead, at each branch the exit numbered by the agent modulo the exits."""
    bare = Bare(town("crossing"), 1)
    bare.parameters[at.GOAL_BEHAVIOUR] = at.GOALS_NEW
    road, lengths = bare.scene.road, lane_lengths(bare.scene.road)
    for key in range(3):
        bare.i4[at.KEY, 0] = key
        bare.goals.lane[0, 0], bare.goals.arc[0, 0] = 1, np.float32(lengths[1] - 10.0)
        bare.goals.size[0], bare.i4[at.GOAL_NEXT, 0] = 1, 1
        assert bare.renew(0) == SET_DONE
        lane, left = 1, 40.0 - 10.0
        while True:
            exits = road.exits(lane)
            lane = int(exits[key % len(exits)])
            if left <= lengths[lane]:
                break
            left -= lengths[lane]
        assert bare.goals.lane[0, 0] == lane
        assert bare.goals.arc[0, 0] == pytest.approx(left, abs=1e-3)


def test_a_route_begins_with_what_the_log_drove():
    """S60: with goals along routes, a logged track's route is its own as far as the log supports it, and is walked on
    from there; what the log never drove comes after."""
    scene = synthetic("crossing", seed=3)
    sim = simulator(scene, EnvSettings(goal_source="route"))
    sim.reset()
    table, tracks, compared = sim._batch.held(0), scene.tracks, 0
    for agent in sim.scored(0):
        start, size = int(table["route_start"][agent]), int(table["route_size"][agent])
        route = table["route_lane"][start : start + size].tolist()
        supported = tracks.route(agent)[: tracks.route_gt_lanes[agent]].tolist()
        ahead = supported[supported.index(route[0]) :]
        assert route[: len(ahead)] == ahead
        compared += len(ahead)
        assert all(other in scene.road.exits(lane) for lane, other in itertools.pairwise(route))
    assert (tracks.route_gt_lanes <= np.diff(tracks.route_offset)).all()
    assert compared > len(sim.scored(0))


def test_logged_goals_are_made_once():
    """S59, S61: a log has one set; when it is reached nothing follows and nobody is retired for it."""
    bare = Bare(town("Town01"), 1)
    bare.parameters[at.GOAL_SOURCE] = at.GOALS_LOG
    bare.goals.size[0], bare.i4[at.GOAL_NEXT, 0] = 3, 3
    assert bare.renew(0) == SET_DONE
    assert bare.i4[at.GOAL_NEXT, 0] == 3

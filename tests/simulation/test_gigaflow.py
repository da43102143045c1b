"""Self-play on bare maps through the Simulator (S48, S57, S59 to S65): towns of the library and synthetic fixtures."""

from __future__ import annotations

import numpy as np
import pytest
from bare_maps import town
from worlds import case_of

from skidpad.errors import SettingsError
from skidpad.scenes.events import Reason, Status
from skidpad.settings.schema import EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.simulator import Simulator

NAMES = ("x", "y", "heading", "speed", "status", "lane", "goal_index", "events")


def worlds(names, settings, replicates=1):
    scenes = [town(name) for name in names]
    cases = [case_of(scene, replicate=n) for scene in scenes for n in range(replicates)]
    return Simulator(cases, settings, scenes={scene.digest: scene for scene in scenes})


def bare(**more):
    return EnvSettings(
        **({"simulation_mode": "gigaflow", "min_agents_per_world": 12, "max_agents_per_world": 12} | more)
    )


def drive(sim, steps, seed=0):
    """Random actions; the history of some fields, (steps + 1, A) each, and masks."""
    random = np.random.default_rng(seed)
    sim.reset()
    found = {name: [sim.agent[name].copy()] for name in NAMES}
    terminal = np.zeros(len(sim.row_world), int)
    for _ in range(steps):
        if sim.done.all():
            break
        actions = random.uniform((-0.2, -0.15), (0.6, 0.15), (len(sim.row_world), 2)).astype(np.float32)
        result = sim.step(actions)
        terminal += result.terminal
        assert np.isfinite(result.obs).all()
        for name in NAMES:
            found[name].append(sim.agent[name].copy())
    return {name: np.array(values) for name, values in found.items()}, terminal


@pytest.mark.parametrize("name", ["Town01", "Town03", "crossing", "roundabout", "overpass", "straight"])
def test_every_map_takes_self_play(name):
    """S48: agents stand on lanes in state 0, have goals, move, and the world runs; a policy row for each of them."""
    sim = worlds([name], bare())
    found, _ = drive(sim, 20)
    assert len(sim.row_world) == len(sim.scored(0)) == 12
    placed = found["status"][0] == Status.ACTIVE
    assert placed.sum() >= 10
    assert (found["lane"][0, placed] >= 0).all()
    assert (found["speed"][0] == 0).all()
    assert np.hypot(*(found[axis][-1] - found[axis][0] for axis in ("x", "y")))[placed].max() > 1.0
    counts = sim.goal_count(0)
    assert (counts[placed] > 0).mean() > 0.7
    for slot in np.flatnonzero(counts):
        assert np.isfinite(sim.goals(0)[slot, : counts[slot]]).all()


def test_a_world_is_its_case_whatever_the_batch():
    """S34, S35: the same case alone and among others of other maps gives the same bytes; a replicate gives others; a
    second reset starts the same episode again."""
    settings = bare(goal_behaviour="rolling", collision_behaviour="stop", offroad_behaviour="remove")
    alone, _ = drive(worlds(["Town01"], settings), 40)
    many = worlds(["Town03", "Town01", "crossing"], settings)
    random = np.random.default_rng(0)
    for _ in range(2):
        many.reset()
        random = np.random.default_rng(0)
        mine = many.row_world == 1
        a = slice(int(many.world_agents[1]), int(many.world_agents[2]))
        for step in range(40):
            for name in NAMES:
                np.testing.assert_array_equal(many.agent[name][a], alone[name][step], err_msg=f"{name} {step}")
            actions = np.zeros((len(mine), 2), np.float32)
            actions[mine] = random.uniform((-0.2, -0.15), (0.6, 0.15), (mine.sum(), 2)).astype(np.float32)
            many.step(actions)
    other = worlds(["Town01"], settings, replicates=2)
    other.reset()
    x = other.agent["x"]
    assert (x[:12] == alone["x"][0]).all()
    assert (x[12:] != x[:12]).all()


def test_infractions_stop_and_remove_once():
    """S62 to S65: terminal at most once per agent, nobody returns, rows of who left are silent, and the episode ends
    early with its reason when too few are left."""
    sim = worlds(["Town01", "Town03"], bare(collision_behaviour="stop", offroad_behaviour="remove"))
    found, terminal = drive(sim, 400)
    assert terminal.max() == 1
    status = found["status"].astype(int)
    left = np.isin(status, (Status.STOPPED, Status.REMOVED, Status.RETIRED))
    assert left.any()
    assert (status[1:][left[:-1]] == status[:-1][left[:-1]]).all()
    assert {sim.end_reason(w) for w in range(2)} <= {"inactive", "length", ""}
    assert "inactive" in {sim.end_reason(w) for w in range(2)}
    active = sim._i4[at.ACTIVE_STEPS]
    assert (active <= sim.steps_taken.max()).all()
    assert (sim._i4[at.REASON][: left.shape[1]][left[-1]] != Reason.NONE).all()


def test_goals_are_reached_and_renewed():
    """S61: planners that follow their routes reach goals, and their next goals are always ahead in the table."""
    settings = bare(vehicle_controller="idm", sdc_controller="idm", goal_behaviour="rolling", goal_radius=4.0)
    sim = worlds(["Town05"], settings)
    sim.reset()
    nothing = np.zeros((0, 2), np.float32)
    for _ in range(500):
        if sim.done.all():
            break
        sim.step(nothing)
    reached = sim.agent["goal_index"]
    assert reached.mean() > 0.5
    agents = int(sim.world_agents[-1])  # state blocks have spare columns
    assert (sim._i4[at.GOAL_NEXT, :agents] == 0).all()
    assert (sim._i4[at.GOAL_SETS, :agents] >= 1).all()


def test_a_bare_map_has_no_log():
    """S49: who asks for the log's driver, or its tracks to predict, gets a sentence instead of an empty world."""
    for wrong in ({"vehicle_controller": "replay"}, {"control": "tracks_to_predict"}):
        with pytest.raises(SettingsError, match="log"):
            worlds(["straight"], bare(**wrong))


def test_one_ego_among_planners():
    """S49, S51: with control = sdc agent 0 is under test; everybody else is driven by the vehicles' controller."""
    sim = worlds(["Town01"], bare(control="sdc", vehicle_controller="idm"))
    assert sim.scored(0).tolist() == sim.policy_agents(0).tolist() == [0]
    assert sim.ego(0) == (0, "scene")
    found, _ = drive(sim, 30)
    assert found["speed"][-1, 1:].max() > 1.0

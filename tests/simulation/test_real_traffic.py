"""On real NGSIM traffic the log reaches its goals exactly, and the vehicle model can follow it (S47, issue 2)."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import coast, simulator

from skidpad.scenes.events import Event
from skidpad.scenes.formats import read_scene
from skidpad.settings.schema import EnvSettings

# Median over agents of the mean displacement [m], continuous and discrete; frozen as measured (S47), within a
# centimetre. The specification's own measurement on such scenes: 0.03-0.30 and 0.05-0.32 m.
MEDIANS = {
    "USA_US101-3_1_T-1": (0.035, 0.170),
    "USA_US101-4_1_T-1": (0.043, 0.094),
    "USA_Lanker-1_1_T-1": (0.089, 0.125),
    "USA_Peach-4_8_T-1": (0.221, 0.244),
}


@pytest.fixture(scope="module")
def scenes(shared):
    """The NGSIM scenes, read once."""
    return {name: read_scene(shared / "data" / "ngsim" / f"{name}.xml.gz") for name in MEDIANS}


def displacements(sim):
    """(steps, scored) distance [m] of the agents under test from their logs, NaN where there is none."""
    scene, scored = sim.scene(0), sim.scored(0)
    found = []
    sim.reset()
    while not sim.done.all():
        sim.step(sim.log_actions() if len(sim.row_world) else coast(sim))
        row = int(sim.steps_taken[0])
        off = np.hypot(sim.agent["x"] - scene.tracks.x[:, row], sim.agent["y"] - scene.tracks.y[:, row])
        found.append(np.where(scene.tracks.valid[:, row], off, np.nan)[scored])
    return np.array(found)


@pytest.mark.parametrize("name", MEDIANS)
def test_the_log_is_at_zero_and_reaches_its_goals(scenes, name):
    """The floor of the data: replay has no displacement at all and every goal, and hardly leaves the road."""
    sim = simulator(scenes[name], substitute="replay")
    assert np.nanmax(displacements(sim)) == 0
    assert (sim.agent["goal_index"][sim.scored(0)] == 3).all()


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize("name", MEDIANS)
def test_the_vehicle_model_can_follow(scenes, name, action_type):
    """S47: the five-step oracle keeps every track below 2 m, and medians are frozen."""
    off = np.nanmean(displacements(simulator(scenes[name], EnvSettings(action_type=action_type))), axis=0)
    assert off.max() < 2.0
    assert np.median(off) == pytest.approx(MEDIANS[name][action_type == "discrete"], abs=0.01)


# The same under jerk dynamics, which the specification had not measured: accelerations begin at 0 and steering follows
# them, so the worst track is 3.2 m away (Lanker-1), and the others stay below 3.
JERK_MEDIANS = {
    "USA_US101-3_1_T-1": (0.040, 0.048),
    "USA_US101-4_1_T-1": (0.061, 0.084),
    "USA_Lanker-1_1_T-1": (0.301, 0.306),
    "USA_Peach-4_8_T-1": (0.605, 0.606),
}


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize("name", JERK_MEDIANS)
def test_the_jerk_model_can_follow(scenes, name, action_type):
    """S47: the oracle drives the jerk model too; medians are frozen as measured."""
    settings = EnvSettings(dynamics="jerk", action_type=action_type)
    off = np.nanmean(displacements(simulator(scenes[name], settings)), axis=0)
    assert off.max() < 3.3
    assert np.median(off) == pytest.approx(JERK_MEDIANS[name][action_type == "discrete"], abs=0.01)


def test_idm_touches_nobody_on_the_motorway(scenes):
    """S102 on real traffic: with every car driven by IDM nobody collides, leaves the road or loses the lane."""
    bad = np.uint32(Event.COLLISION_VEHICLE | Event.OFFROAD | Event.LANE_LOST)
    sim = simulator(scenes["USA_US101-3_1_T-1"], substitute="idm")
    sim.reset()
    while not sim.done.all():
        sim.step(coast(sim))
        assert not (sim.agent["events"][sim.scored(0)] & bad).any()


def test_the_oracle_is_the_best_of_its_grid(scenes):
    """S47: on one state, no command of the discrete table does better over five held steps than the one chosen."""
    from skidpad.simulation.kernels.dynamics import classic

    scene = scenes["USA_US101-3_1_T-1"]
    sim = simulator(scene, EnvSettings(action_type="discrete"))
    sim.reset()
    for _ in range(10):
        sim.step(sim.log_actions())
    chosen, tracks, row = sim.log_actions(), scene.tracks, 10
    for place in range(0, len(chosen), 7):
        n = int(sim.row_agent[place])
        costs = []
        for accel, steer in sim.actions.table:
            x, y, angle, speed, wheel = (sim.agent[name][n] for name in ("x", "y", "heading", "speed", "steering"))
            state, cost = (x, y, np.cos(angle), np.sin(angle), speed, wheel), 0.0
            rules = (np.float32(0.6) * sim.agent["length"][n], accel, steer, *np.float32([-40, 40, 0.1]))
            for ahead in range(1, 6):
                state = classic(*map(np.float32, state), *rules)[:6]
                if row + ahead > tracks.last[n]:
                    break
                heading = float(tracks.heading[n, row + ahead])
                along = tracks.vx[n, row + ahead] * np.cos(heading) + tracks.vy[n, row + ahead] * np.sin(heading)
                turn = (np.arctan2(state[3], state[2]) - heading + np.pi) % (2 * np.pi) - np.pi
                cost += (state[0] - tracks.x[n, row + ahead]) ** 2 + (state[1] - tracks.y[n, row + ahead]) ** 2
                cost += 0.2 * turn**2 + 0.05 * (state[4] - along) ** 2
            costs.append(cost)
        assert costs[chosen[place]] == pytest.approx(min(costs), rel=1e-3, abs=1e-6)

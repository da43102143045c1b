"""The baselines do what their names say, in either action space, and keep the contract of a policy (E71)."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.policies.baselines import BASELINES
from skidpad.policies.check import check_policy
from skidpad.policies.policy import Policy
from skidpad.policies.streams import IdentityStreams
from skidpad.scenes.case import Case
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator

POLICIES = [name for name, baseline in BASELINES.items() if baseline.policy]


def world(name="straight", **settings):
    """A simulator over one synthetic scene."""
    scene = synthetic(name)
    env = EnvSettings(beyond_log="stay", **settings)
    return Simulator([Case(scene.digest, scene.meta.scene_id, 3)], env, scenes={scene.digest: scene})


def drive(policy, sim):
    """Histories of speed, heading and y of the policy's agents."""
    result, found = sim.reset(), []
    while True:
        found.append([sim.agent[name][sim.row_agent].copy() for name in ("speed", "heading", "y")])
        if sim.done.all():
            return np.array(found)
        streams = IdentityStreams(sim.row_seed, sim.row_key, sim.steps_taken[sim.row_world])
        rows = len(sim.row_world)
        actions, _ = policy.act(
            result.obs, None, np.zeros(rows, bool), selection="deterministic", streams=streams, simulator=sim
        )
        result = sim.step(actions)


def test_all_are_there_and_each_is_one_kind():
    """E71: the six names; a baseline is a policy or a controller, never both or neither."""
    assert list(BASELINES) == ["stationary", "constant_velocity", "random", "idm", "log", "log_actions"]
    for name, baseline in BASELINES.items():
        assert baseline.name == name
        assert (baseline.policy is None) != (baseline.controller is None)
    assert BASELINES["log_actions"].policy().spec.needs_state


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
@pytest.mark.parametrize("name", POLICIES)
def test_they_keep_the_contract(name, action_type):
    """The check that users run over their policies passes over ours."""
    policy = BASELINES[name].policy(action_type)
    assert isinstance(policy, Policy)
    assert check_policy(policy, EnvSettings(action_type=action_type)) == []


@pytest.mark.parametrize("dt", [0.1, 0.3])
def test_stationary_brakes_to_rest_and_stays(dt):
    """It must not oscillate about rest: with actions of the box it stands at exactly 0 for the rest of the episode."""
    speed = drive(BASELINES["stationary"].policy(), world(dt=dt))[:, 0]
    assert (speed[0] > 5).all()
    stands = speed == 0
    assert stands[-1].all()
    assert (stands[1:] >= stands[:-1]).all()
    assert (np.diff(speed, axis=0) >= -4.0 * dt - 1e-5).all()


def test_stationary_on_the_table_stands_as_well_as_the_table_can():
    """The weakest brake is 1.333 m/s^2: speeds below half of it times dt cannot be told from rest."""
    speed = drive(BASELINES["stationary"].policy("discrete"), world(action_type="discrete"))[:, 0]
    assert np.abs(speed[-1]).max() <= 1.333 * 0.1 / 2 + 1e-4
    assert (speed[-1] == speed[-10]).all()


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_constant_velocity_keeps_its_bits(action_type):
    """Speed and heading of state 0 to the last bit: an action near zero would drift."""
    found = drive(BASELINES["constant_velocity"].policy(action_type), world("curve", action_type=action_type))
    assert (found[:, 0] == found[0, 0]).all()
    assert (found[:, 1] == found[0, 1]).all()


@pytest.mark.parametrize("action_type", ["continuous", "discrete"])
def test_random_is_a_function_of_identity(action_type):
    """E52: alone, in a batch and in reverse order a row draws the same; and it uses the whole action space."""
    policy = BASELINES["random"].policy(action_type)
    seeds, agents = np.arange(400, dtype=np.uint64), np.arange(400, dtype=np.uint32) % 7
    steps = np.arange(400, dtype=np.int64) % 90
    before = np.random.get_state()[1].tobytes()

    def ask(rows):
        observation = np.zeros((len(seeds[rows]), 284), np.float32)
        streams = IdentityStreams(seeds[rows], agents[rows], steps[rows])
        return policy.act(observation, None, np.zeros(len(observation), bool), selection="sample", streams=streams)[0]

    everybody = ask(slice(None))
    assert (ask(slice(None, None, -1)) == everybody[::-1]).all()
    assert all((ask([row])[0] == everybody[row]).all() for row in (0, 5, 399))
    assert np.random.get_state()[1].tobytes() == before
    if action_type == "discrete":
        assert len(np.unique(everybody)) == 63
    else:
        assert everybody.min() < -0.95
        assert everybody.max() > 0.95
        assert abs(everybody.mean()) < 0.1


def test_rollouts_draw_differently():
    """E52: the rollout index is part of the identity, or thirty-two rollouts would be one."""
    seeds, agents, steps = np.zeros(3, np.uint64), np.arange(3, dtype=np.uint32), np.zeros(3, np.int64)
    first, second = (IdentityStreams(seeds, agents, steps, rollout).uniform(4) for rollout in (0, 1))
    assert (first != second).all()

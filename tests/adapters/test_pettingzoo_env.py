"""The PettingZoo environment: the library's own tests, and what it refuses (S118)."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from skidpad.adapters import SkidpadParallelEnv
from skidpad.errors import ActionError, CaseError, ProtocolError
from skidpad.scenes.synthetic import synthetic
from skidpad.simulation.training import training_settings

SCENES = [synthetic(name) for name in ("crossing", "straight")]
LOG = training_settings(scenario_length=30)
SELF_PLAY = training_settings(
    simulation_mode="gigaflow", min_agents_per_world=5, max_agents_per_world=5, scenario_length=30
)


@pytest.mark.parametrize("keys", [{}, {"action_type": "discrete"}], ids=["continuous", "discrete"])
@pytest.mark.parametrize("settings", [LOG, SELF_PLAY], ids=["log", "self_play"])
def test_the_official_tests_are_content(settings, keys):
    """S118: parallel_api_test and parallel_seed_test; the one scene gives every possible agent a life and an end."""
    settings = settings.model_copy(update=keys)
    parallel_api_test(SkidpadParallelEnv(SCENES[:1], settings), num_cycles=200)
    parallel_seed_test(lambda: SkidpadParallelEnv(SCENES, settings), num_cycles=200)


def test_agents_leave_one_by_one():
    """S64, S118: an agent that has left is in no later answer, each ends once, and who reaches the end is truncated."""
    env = SkidpadParallelEnv(SCENES[:1], LOG)
    random = np.random.default_rng(3)
    seen, ended, steps = set(), {}, 0
    observations, infos = env.reset(seed=5)
    assert set(env.agents) == set(observations) == set(infos) == set(env.possible_agents)
    assert {info["scene"] for info in infos.values()} == {SCENES[0].meta.scene_id}
    assert len({info["track"] for info in infos.values()}) == len(env.agents)
    while env.agents:
        there = list(env.agents)
        given = {name: random.uniform(-1, 1, 2).astype(np.float32) for name in there}
        answers = env.step(given)
        assert all(set(answer) == set(there) for answer in answers)
        seen |= set(there)
        for name in there:
            assert answers[0][name] in env.observation_space(name)
            if answers[2][name] or answers[3][name]:
                assert name not in ended
                ended[name] = "left" if answers[2][name] else "cut off"
        steps += 1
    assert set(ended) == seen == set(env.possible_agents)
    assert set(ended.values()) == {"left", "cut off"}
    assert steps <= 30


def test_what_a_parallel_environment_refuses():
    """S115, S118: missing and unknown agents, wrong actions, calls out of order, scenes without anybody."""
    with pytest.raises(CaseError, match="nobody to test"):
        SkidpadParallelEnv([synthetic("straight", traffic=False)])
    with pytest.raises(ProtocolError, match="no scene"):
        SkidpadParallelEnv([])
    env = SkidpadParallelEnv(SCENES[:1], LOG)
    with pytest.raises(ProtocolError, match="call reset"):
        env.step({})
    env.reset(seed=1)
    zero = {name: np.zeros(2, np.float32) for name in env.agents}
    first = env.agents[0]
    with pytest.raises(ProtocolError, match=f"missing: {first}, not there: none"):
        env.step({name: action for name, action in zero.items() if name != first})
    with pytest.raises(ProtocolError, match="not there: agent_77"):
        env.step(zero | {"agent_77": zero[first]})
    with pytest.raises(ProtocolError, match="due are numbers"):
        env.step(zero | {first: np.zeros(3, np.float32)})
    with pytest.raises(ActionError, match=r"agent \d+ \(row 0, track \d+\) is NaN at step 0"):
        env.step(zero | {first: np.full(2, np.nan, np.float32)})
    env.step(zero)
    env.close()
    env.close()
    with pytest.raises(ProtocolError, match="closed"):
        env.reset()
    with pytest.raises(ProtocolError, match="call reset"):
        env.step(zero)

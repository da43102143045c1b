"""Checkpoints of drivers: refused where they do not fit, and the same action for a row whoever shares its batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skidpad.artifacts.weights import load_weights, save_weights
from skidpad.errors import CheckpointError
from skidpad.policies.checkpoint import (
    CheckpointPolicy,
    architecture_for,
    load_checkpoint,
    read_architecture,
    save_checkpoint,
)
from skidpad.policies.network import ActorCritic
from skidpad.policies.policy import Policy
from skidpad.policies.shape import tensor_shapes
from skidpad.settings.schema import EnvSettings, NetworkSettings
from skidpad.simulation.actions import SPACES
from skidpad.simulation.layout import COMPACT


class Numbers:
    """Streams whose numbers are given."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def uniform(self, count: int) -> np.ndarray:
        return self.values[:, :count]


def sizes(gru: int, hidden: tuple[int, ...] = (16, 8)) -> NetworkSettings:
    return NetworkSettings(encoder=4, hidden=hidden, memory="gru" if gru else "none", memory_width=gru or 1)


def written(path: Path, env: EnvSettings, *, gru: int = 0, head: Any = None, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    architecture = architecture_for(env, sizes(gru), head=head)
    save_checkpoint(path, ActorCritic(architecture.network), architecture, step=5, run="r")
    return path


def policy_of(path: Path, env: EnvSettings, selection: Any = "deterministic", infer_batch: int = 8) -> CheckpointPolicy:
    return CheckpointPolicy(load_checkpoint(path), env, selection, infer_batch)


def rows(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, COMPACT.size)).astype(np.float32)


CONTINUOUS = EnvSettings(action_type="continuous")
DISCRETE = EnvSettings(action_type="discrete")


@pytest.mark.parametrize("gru", [0, 6])
@pytest.mark.parametrize(
    ("env", "head"), [(CONTINUOUS, "continuous"), (DISCRETE, "discrete"), (CONTINUOUS, "discrete")]
)
def test_actions_have_the_shape_the_world_takes(tmp_path: Path, env: EnvSettings, head: Any, gru: int) -> None:
    """E51: feed-forward and recurrent, both heads: indices into the table or points of the box."""
    policy = policy_of(written(tmp_path / "a", env, gru=gru, head=head), env)
    assert isinstance(policy, Policy)
    for selection in ("deterministic", "sample"):
        action, state = policy.act(
            rows(5),
            policy.initial_state(5),
            np.ones(5, bool),
            selection=selection,
            streams=Numbers(rows(5) * 0.49 + 0.5),
        )
        if env.action_type == "discrete":
            assert action.dtype == np.int32
            assert action.shape == (5,)
            assert ((action >= 0) & (action < 63)).all()
        else:
            assert action.dtype == np.float32
            assert action.shape == (5, 2)
            assert (np.abs(action) <= 1).all()
        assert (state is None) == (gru == 0)


@pytest.mark.parametrize("gru", [0, 6])
@pytest.mark.parametrize("selection", ["deterministic", "sample"])
def test_a_row_does_not_see_its_companions(tmp_path: Path, gru: int, selection: Any) -> None:
    """E48: one row alone, first, last and among strangers gives the same bytes, which padding to one shape buys."""
    policy = policy_of(written(tmp_path / "a", CONTINUOUS, gru=gru), CONTINUOUS)
    observation, numbers = rows(21), np.random.default_rng(0).uniform(0, 1, (21, 4)).astype(np.float32)
    memory = None if gru == 0 else np.random.default_rng(3).normal(size=(21, gru)).astype(np.float32)
    reset = np.zeros(21, bool)

    def act(order: list[int]) -> np.ndarray:
        state = None if memory is None else memory[order]
        return policy.act(
            observation[order], state, reset[order], selection=selection, streams=Numbers(numbers[order])
        )[0]

    together = act(list(range(21)))
    backwards = act(list(range(20, -1, -1)))
    assert np.array_equal(together, backwards[::-1])
    for row in (0, 7, 8, 20):
        assert np.array_equal(act([row])[0], together[row])


def test_memory_is_forgotten_exactly_where_asked(tmp_path: Path) -> None:
    """E53: resetting one row must not touch another's memory, and a reset row acts as if it had seen nothing."""
    policy = policy_of(written(tmp_path / "a", CONTINUOUS, gru=6), CONTINUOUS)
    observation = rows(4)
    fresh, _ = policy.act(
        observation, policy.initial_state(4), np.ones(4, bool), selection="deterministic", streams=Numbers(rows(4))
    )
    _, state = policy.act(
        rows(4, 9), policy.initial_state(4), np.ones(4, bool), selection="deterministic", streams=Numbers(rows(4))
    )
    kept, _ = policy.act(observation, state, np.zeros(4, bool), selection="deterministic", streams=Numbers(rows(4)))
    mixed, _ = policy.act(
        observation, state, np.array([True, False, True, False]), selection="deterministic", streams=Numbers(rows(4))
    )
    assert not np.array_equal(fresh, kept)
    assert np.array_equal(mixed[[0, 2]], fresh[[0, 2]])
    assert np.array_equal(mixed[[1, 3]], kept[[1, 3]])


def test_discrete_head_means_the_same_in_both_worlds(tmp_path: Path) -> None:
    """S46: an index and its entry of the table are one action; 'expected' is their mean by probability."""
    path = written(tmp_path / "a", DISCRETE)
    index, _ = policy_of(path, DISCRETE).act(
        rows(6), None, np.ones(6, bool), selection="deterministic", streams=Numbers(rows(6))
    )
    point, _ = policy_of(path, CONTINUOUS).act(
        rows(6), None, np.ones(6, bool), selection="deterministic", streams=Numbers(rows(6))
    )
    space = SPACES["classic", "none"]
    np.testing.assert_allclose(space.physical(point), space.table[index], rtol=1e-6)
    expected, _ = policy_of(path, CONTINUOUS, "expected").act(
        rows(6), None, np.ones(6, bool), selection="expected", streams=Numbers(rows(6))
    )
    network = policy_of(path, DISCRETE).network
    with torch.no_grad():
        probability = torch.softmax(network(torch.from_numpy(rows(6)), None)[0], dim=1).numpy()
    np.testing.assert_allclose(space.physical(expected), probability @ space.table, atol=1e-5)


def test_sampling_follows_the_numbers_of_the_row(tmp_path: Path) -> None:
    """E52: draws come from the row's own stream; the lowest number gives the first entry, the highest the last."""
    policy = policy_of(written(tmp_path / "a", DISCRETE), DISCRETE)
    before = torch.get_rng_state()
    low, _ = policy.act(
        rows(3), None, np.ones(3, bool), selection="sample", streams=Numbers(np.zeros((3, 1), np.float32))
    )
    high, _ = policy.act(
        rows(3), None, np.ones(3, bool), selection="sample", streams=Numbers(np.full((3, 1), 1 - 2**-24, np.float32))
    )
    assert low.tolist() == [0, 0, 0]
    assert high.tolist() == [62, 62, 62]
    many = np.random.default_rng(0).uniform(size=(4000, 1)).astype(np.float32)
    drawn, _ = policy.act(
        np.repeat(rows(1), 4000, axis=0), None, np.ones(4000, bool), selection="sample", streams=Numbers(many)
    )
    with torch.no_grad():
        probability = torch.softmax(policy.network(torch.from_numpy(rows(1)), None)[0], dim=1).numpy()[0]
    # 63 shares of 4000 draws: 5 standard errors of the largest possible share bound them all.
    assert np.abs(np.bincount(drawn, minlength=63) / 4000 - probability).max() < 5 * 0.5 / np.sqrt(4000)
    assert torch.equal(torch.get_rng_state(), before)


def test_gaussian_samples_have_the_stated_spread(tmp_path: Path) -> None:
    """E51: the continuous sample is the mean plus the network's own deviation, clipped to the box, not the mean."""
    path = written(tmp_path / "a", CONTINUOUS)
    weights = load_weights(path)
    narrow = {**weights.arrays, "log_std": np.full(2, np.log(0.05), np.float32)}
    save_weights(tmp_path / "b", narrow, dict(weights.meta))
    policy = policy_of(tmp_path / "b", CONTINUOUS)
    observation = np.repeat(rows(1), 4000, axis=0)
    numbers = np.random.default_rng(0).uniform(size=(4000, 4)).astype(np.float32)
    drawn, _ = policy.act(observation, None, np.ones(4000, bool), selection="sample", streams=Numbers(numbers))
    mean, _ = policy.act(observation[:1], None, np.ones(1, bool), selection="deterministic", streams=Numbers(numbers))
    np.testing.assert_allclose(drawn.mean(axis=0), mean[0], atol=5 * 0.05 / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(axis=0), 0.05, rtol=0.06)


def test_each_module_gets_its_own_flag_back(tmp_path: Path) -> None:
    """E55: dropout that stays off, or on, after a pass changes training; also when inference raises."""
    policy = policy_of(written(tmp_path / "a", CONTINUOUS), CONTINUOUS)
    policy.network.train()
    policy.network.trunk.eval()
    flags = [module.training for module in policy.network.modules()]
    assert True in flags
    assert False in flags
    threads = torch.get_num_threads()
    policy.act(rows(2), None, np.ones(2, bool), selection="deterministic", streams=Numbers(rows(2)))
    assert [module.training for module in policy.network.modules()] == flags
    with pytest.raises(ValueError):
        policy.act(rows(2)[:, :5], None, np.ones(2, bool), selection="deterministic", streams=Numbers(rows(2)))
    assert [module.training for module in policy.network.modules()] == flags
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_architecture_travels_to_the_suite(tmp_path: Path) -> None:
    """E16: layout, dynamics and goals come from the checkpoint; a discrete head leaves the action type open."""
    continuous = read_architecture(written(tmp_path / "a", CONTINUOUS))
    assert continuous == {
        "env.layout": "compact/1",
        "env.dynamics": "classic",
        "env.compat.dynamics": "none",
        "env.num_goals": 3,
        "env.action_type": "continuous",
    }
    assert "env.action_type" not in read_architecture(written(tmp_path / "b", DISCRETE))


def test_worlds_that_do_not_fit_are_refused_with_both_sides(tmp_path: Path) -> None:
    """E16, F32: another layout, other goals, another action type: no error would come from the weights themselves."""
    path = written(tmp_path / "a", CONTINUOUS)
    with pytest.raises(CheckpointError, match="num_goals is 3 in the file, 5 in the world"):
        policy_of(path, EnvSettings(num_goals=5))
    with pytest.raises(CheckpointError, match="takes an index"):
        policy_of(path, DISCRETE)
    with pytest.raises(CheckpointError, match="head is continuous"):
        policy_of(path, CONTINUOUS, "expected")
    checkpoint = load_checkpoint(path)
    other = replace(checkpoint, architecture=replace(checkpoint.architecture, layout_digest="0" * 64))
    with pytest.raises(CheckpointError, match="layout_digest is '0000"):
        CheckpointPolicy(other, CONTINUOUS, "deterministic", 8)


def test_files_that_do_not_hold_together_are_refused(tmp_path: Path) -> None:
    """F32: another kind, missing fields, absurd sizes, tensors of another network, NaN: nothing is loaded."""
    weights = load_weights(written(tmp_path / "good", CONTINUOUS))
    meta = dict(weights.meta)
    architecture = meta["architecture"]
    network = architecture["network"]

    def refused(name: str, arrays: Any, changed: Any, match: str) -> None:
        save_weights(tmp_path / name, arrays, changed)
        with pytest.raises(CheckpointError, match=match):
            load_checkpoint(tmp_path / name)

    refused("kind", weights.arrays, {**meta, "kind": "mapper/1"}, "mapper/1")
    refused("short", weights.arrays, {key: meta[key] for key in ("kind", "step")}, "incomplete")
    huge = {**meta, "architecture": {**architecture, "network": {**network, "hidden": [10**9]}}}
    refused("huge", weights.arrays, huge, "out of range")
    odd = {**meta, "architecture": {**architecture, "network": {**network, "head": "mixed"}}}
    refused("odd", weights.arrays, odd, "neither discrete nor continuous")
    fewer = {name: array for name, array in weights.arrays.items() if name != "actor.bias"}
    refused("fewer", fewer, meta, "actor.bias is absent")
    nan = {**weights.arrays, "actor.bias": np.full(2, np.nan, np.float32)}
    refused("nan", nan, meta, "not finite: actor.bias")


@pytest.mark.parametrize("gru", [0, 6])
@pytest.mark.parametrize("head", ["discrete", "continuous"])
def test_expected_tensors_are_the_networks(gru: int, head: Any) -> None:
    """F32: the table of names and shapes is checked before torch is imported, so it must be the network's own."""
    shape = architecture_for(CONTINUOUS, sizes(gru, (12, 7, 5)), head=head).network
    state = ActorCritic(shape).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == tensor_shapes(shape)


@pytest.mark.parametrize("env", [CONTINUOUS, DISCRETE])
def test_thoughts_are_the_numbers_acted_on(tmp_path: Path, env: EnvSettings) -> None:
    """E94: the recorded distribution is the one the action came from: its best entry, or its mean, is the action."""
    policy = policy_of(written(tmp_path / "a", env), env, infer_batch=4)
    action, _ = policy.act(rows(9), None, np.ones(9, bool), selection="deterministic", streams=Numbers(rows(9)))
    thought = policy.thought
    assert thought is not None
    assert thought.value.shape == (9, 1)
    if env.action_type == "discrete":
        assert np.array_equal(thought.distribution.argmax(axis=1), action)
        assert np.allclose(thought.distribution.sum(axis=1), 1, atol=1e-6)
    else:
        assert np.array_equal(thought.distribution[:, :2], action)
        assert (thought.distribution[:, 2:] > 0).all()
    import torch

    with torch.inference_mode():
        _, value, _ = policy.network(torch.from_numpy(rows(9)), None)
    assert np.allclose(thought.value[:, 0], value.numpy(), atol=1e-6)

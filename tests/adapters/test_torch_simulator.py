"""torch's adapter: tensors over the simulator's memory, never copies of it (S119)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skidpad.adapters import TorchSimulator
from skidpad.errors import ActionError, ProtocolError
from skidpad.scenes.synthetic import synthetic
from skidpad.simulation.training import training_settings, training_simulator

SCENES = [synthetic(name) for name in ("straight", "crossing")]


def simulator(**keys):
    """Six rows over two scenes."""
    return training_simulator(SCENES, training_settings(scenario_length=20, **keys), rows=6, seed=2)


@pytest.mark.parametrize("obs_dtype", ["float32", "bfloat16", "float16", "int8"])
def test_same_memory(obs_dtype):
    """S119: every tensor lies where the simulator writes, in its shape, and a step is visible in it."""
    sim = simulator(obs_dtype=obs_dtype)
    batch = TorchSimulator(sim)
    shown = batch.reset()
    for name, array in sim.result._asdict().items():
        tensor = getattr(shown, name)
        assert tensor.shape == array.shape, name
        assert tensor.data_ptr() == array.ctypes.data or tensor.numel() == 0, name
    assert shown.obs.dtype == getattr(torch, obs_dtype)
    assert shown.events.dtype == torch.int32
    before = shown.obs.clone()
    batch.actions.fill_(0.5)
    again = batch.step()
    assert again is shown
    assert (shown.obs != before).any()
    if obs_dtype == "bfloat16":
        bits = shown.obs.view(torch.int16).numpy().view(np.uint16)
        assert (bits == sim.result.obs).all()
    else:
        assert (shown.obs.numpy() == sim.result.obs).all()


def test_same_bytes_as_numpy():
    """S119, S35: a run driven through tensors is the one driven through arrays, actions in place or handed over."""
    plain, through = simulator(), TorchSimulator(simulator())
    first = plain.reset().obs.copy()
    assert (through.reset().obs.numpy() == first).all()
    random = np.random.default_rng(1)
    for step in range(40):
        actions = random.uniform(-1, 1, (6, 2)).astype(np.float32)
        expected = plain.step(actions)
        if step % 2:
            through.actions.copy_(torch.from_numpy(actions))
            shown = through.step()
        else:
            shown = through.step(torch.from_numpy(actions).requires_grad_())
        for name in ("obs", "reward", "terminal", "truncated", "mask", "final_obs", "reward_terms"):
            assert (getattr(shown, name).numpy() == getattr(expected, name)).all(), (step, name)
        assert (shown.events.numpy().view(np.uint32) == expected.events).all()


def test_discrete_actions():
    """S44, S119: indices are i32, and an index outside the table is named as the simulator names it."""
    batch = TorchSimulator(simulator(action_type="discrete"))
    batch.reset()
    assert batch.actions.dtype == torch.int32
    batch.step(torch.full((6,), 31, dtype=torch.int32))
    with pytest.raises(ActionError, match="outside the table of 63"):
        batch.step(torch.full((6,), 63, dtype=torch.int32))


def test_what_the_adapter_refuses():
    """S115, S119: other shapes and dtypes, and pinned memory where there is no device to copy to."""
    batch = TorchSimulator(simulator())
    batch.reset()
    with pytest.raises(ProtocolError, match=r"due are torch.float32 \(6, 2\)"):
        batch.step(torch.zeros(6, 2, dtype=torch.float64))
    with pytest.raises(ProtocolError, match=r"actions are torch.float32 \(5, 2\)"):
        batch.step(torch.zeros(5, 2))
    if not torch.cuda.is_available():
        with pytest.raises(ProtocolError, match="needs a CUDA device"):
            TorchSimulator(batch.simulator, pinned=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a CUDA device")
def test_pinned_memory():
    """S119: pinned on demand: the simulator then writes into page-locked memory, and a copy to the device sees it."""
    sim = simulator()
    sim.reset()
    before = sim.result.obs.copy()
    batch = TorchSimulator(sim, pinned=True)
    assert (batch.result.obs.numpy() == before).all()
    assert all(tensor.is_pinned() for tensor in batch.result if tensor is not None)
    assert batch.result.obs.data_ptr() == sim.result.obs.ctypes.data
    shown = batch.step(torch.zeros(6, 2, device="cuda"))
    assert (shown.obs.to("cuda", non_blocking=True).cpu() == shown.obs).all()


def test_results_move_into_memory_of_the_caller():
    """S111: `write_to` carries over what is shown and writes there from then on, also after resampling."""
    sim, twin = simulator(), simulator()
    sim.reset()
    twin.reset()
    mine = np.zeros_like(sim.result.obs)
    result = sim.write_to({"obs": mine})
    assert result.obs is mine
    assert (mine == twin.result.obs).all()
    for _ in range(25):
        sim.step(np.full((6, 2), 0.3, np.float32))
        twin.step(np.full((6, 2), 0.3, np.float32))
        assert (mine == twin.result.obs).all()
    with pytest.raises(ProtocolError, match="is due"):
        sim.write_to({"obs": np.zeros((5, 5), np.float32)})

"""Networks on layouts that defer road rows: lists encoded once for all readers are what each would encode alone."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from skidpad.errors import CheckpointError, ProtocolError
from skidpad.policies.check import check_policy
from skidpad.policies.checkpoint import CheckpointPolicy, architecture_for, load_checkpoint, save_checkpoint
from skidpad.policies.lists import KEPT, Lists, near
from skidpad.policies.network import ActorCritic
from skidpad.policies.shape import shape_from
from skidpad.policies.streams import IdentityStreams
from skidpad.scenes.case import Case
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings, NetworkSettings
from skidpad.simulation.deferred import expand
from skidpad.simulation.roads import Roads
from skidpad.simulation.simulator import Simulator

ENV = EnvSettings(layout="deferred_32/1", beyond_log="stay", action_type="discrete")


@pytest.fixture(scope="module")
def worlds() -> Simulator:
    """Two maps, one of them with heights, driven for a while by noise."""
    scenes = [synthetic("crossing", seed=4), synthetic("overpass", seed=4)]
    cases = [Case(scene.digest, scene.meta.scene_id, 0) for scene in scenes]
    sim = Simulator(cases, ENV, scenes={scene.digest: scene for scene in scenes})
    sim.reset()
    generator = np.random.default_rng(3)
    for _ in range(20):
        sim.step(generator.integers(0, 63, len(sim.row_world)).astype(np.int32))
    return sim


def network_of(memory: str = "none", seed: int = 0) -> ActorCritic:
    sizes = NetworkSettings(encoder=16, hidden=(16, 8), memory=memory, memory_width=4)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ActorCritic(architecture_for(ENV, sizes).network)


def rows_seen(sim: Simulator, row: int) -> np.ndarray:
    """The road rows (R, F) f64 of one agent as they look to it, made whole by `expand`, which kernels hold."""
    maps = {number: one.rows[0] for number, one in sim.roads._maps.items()}
    start = sim.layout.span("road reference").start
    gate = sim.roads._maps[int(sim.result.obs[row, start])].gate
    seen = expand(sim.result.obs[[row]], sim.layout, maps, gate)[0, start:]
    return seen.reshape(sim.layout.lists[0].rows, -1).astype(np.float64)


def alone(network: ActorCritic, sim: Simulator, row: int) -> Tensor:
    """The encoding (L,) f64 of the list of one agent: its rows turned back into the list's frame, one by one."""
    reference = sim.result.obs[row, sim.layout.span("road reference")].astype(np.float64)
    middle = (2 * reference[3] + 1) * np.pi / sim.layout.sectors
    turn = np.exp(1j * (np.arctan2(reference[8], reference[7]) - middle))
    place = (reference[4] + 1j * reference[5]) * np.exp(-1j * middle)
    outs = []
    for one in rows_seen(sim, row):
        shown = np.zeros(len(one) + 1)
        if one[4:6].any():
            at, along = (one[0] + 1j * one[1]) * 50.0 * turn + place, (one[4] + 1j * one[5]) * turn
            across = along.real * at.imag - along.imag * at.real
            shown[:7] = at.real / 50, at.imag / 50, *one[2:4], along.real, along.imag, one[6]
            shown[7] = np.clip(across / 10, -1, 1)
        outs.append(network.lists.blocks[0](near(torch.from_numpy(shown))))
    return torch.relu(torch.stack(outs).max(0).values)


def on_first_map(sim: Simulator) -> np.ndarray:
    """Rows of live agents on the map without bridges: elsewhere lists are cut by levels, not by the agent's height."""
    return np.flatnonzero(sim.result.mask & (sim.result.obs[:, sim.layout.span("road reference").start] == 0))


def test_shared_lists_are_what_every_reader_encodes_alone(worlds: Simulator) -> None:
    """S94: outputs and gradients of every weight equal a twin in float64 that makes each agent's road rows whole and
    encodes them one by one, row by row; a frame that is turned wrongly, or a gradient that stops at the lists, differs.
    """
    network, rows = network_of(), np.repeat(on_first_map(worlds), 2)  # somebody shares each list
    seen = torch.from_numpy(worlds.result.obs[rows])
    slow = copy.deepcopy(network).double().eval()
    out, value, _ = network(seen, None, Lists(worlds.roads, network.lists))
    vectors = torch.stack([alone(slow, worlds, row) for row in rows])
    expected, worth = slow.heads(slow.encode(seen.double(), vectors))
    torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(value.double(), worth, atol=2e-5, rtol=1e-4)
    weights = torch.linspace(-1, 1, out.shape[1])
    ((out * weights).sum() + value.sum()).backward()
    ((expected * weights).sum() + worth.sum()).backward()
    for (name, one), other in zip(network.named_parameters(), slow.parameters(), strict=True):
        assert one.grad is not None, name
        assert other.grad is not None, name
        torch.testing.assert_close(one.grad.double(), other.grad, atol=2e-4, rtol=2e-3, msg=name)
        assert one.grad.any(), name


def test_training_and_evaluation_read_the_same(worlds: Simulator) -> None:
    """Training leaves out rows that nothing fills, evaluation reads all in one shape: the numbers agree, with and
    without gradients, though they are other sums."""
    network, seen = network_of(), torch.from_numpy(worlds.result.obs)
    found = []
    for training in (True, False):
        network.train(training)
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                found.append(network(seen, None, Lists(worlds.roads, network.lists))[0].detach())
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], atol=1e-5, rtol=1e-4)


def test_no_encoding_outlives_its_weights(worlds: Simulator) -> None:
    """Whatever changes a weight, in place or by loading, the next look sees it: an update that forgot its lists would
    drive on roads as they looked before."""
    network, seen = network_of(), torch.from_numpy(worlds.result.obs)
    lists = Lists(worlds.roads, network.lists)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.1)

    def looked(kept: Lists) -> Tensor:
        with torch.inference_mode():
            return kept.read(seen)

    before = looked(lists)
    assert torch.equal(looked(lists), before)
    network(seen, None, lists)[1].sum().backward()
    optimiser.step()
    stepped = looked(lists)
    assert not torch.equal(stepped, before)
    assert torch.equal(stepped, looked(Lists(worlds.roads, network.lists)))
    network.load_state_dict(network_of(seed=1).state_dict())
    assert torch.equal(looked(lists), looked(Lists(worlds.roads, network.lists)))
    network.lists.blocks[0][0].weight = torch.nn.Parameter(torch.ones_like(network.lists.blocks[0][0].weight))
    assert torch.equal(looked(lists), looked(Lists(worlds.roads, network.lists)))
    network.lists.blocks[0][2].weight.data = torch.ones_like(network.lists.blocks[0][2].weight)
    assert torch.equal(looked(lists), looked(Lists(worlds.roads, network.lists)))


@pytest.mark.slow
def test_a_compiled_network_reads_the_same(worlds: Simulator) -> None:
    """S94: `train.compile` compiles around the lists, not into them: the same numbers, and what is new is found."""
    from torch._dynamo.testing import CompileCounter

    network, seen = network_of(), torch.from_numpy(worlds.result.obs)
    expected = network(seen, None, Lists(worlds.roads, network.lists))[0].detach()
    counter = CompileCounter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, while it compiles
        network.compile(backend=counter)
        found = network(seen, None, Lists(worlds.roads, network.lists))[0].detach()
    assert counter.frame_count > 0
    torch.testing.assert_close(found, expected)


def test_who_compiles_nothing_loads_no_compiler() -> None:
    """torch._dynamo takes as long to load as torch: no evaluation pays for it."""
    code = "import sys, skidpad.policies.network, skidpad.policies.lists; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_lists_are_forgotten_before_they_fill_the_memory(worlds: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run over many maps reads more lists than it should keep: what is dropped is encoded again, the same."""
    network, seen = network_of().eval(), torch.from_numpy(worlds.result.obs)
    assert KEPT > 1000
    monkeypatch.setattr("skidpad.policies.lists.KEPT", 3)
    lists = Lists(worlds.roads, network.lists)
    with torch.inference_mode():
        parts = [lists.read(one) for one in torch.split(seen, 2)]
        assert torch.equal(torch.cat(parts), Lists(worlds.roads, network.lists).read(seen))


@pytest.mark.parametrize(("column", "value", "said"), [(0, 7.0, "map 7"), (3, 11.0, "heading sector 11")])
def test_a_reference_to_nothing_is_refused(worlds: Simulator, column: int, value: float, said: str) -> None:
    """An observation beside other maps than those it was written for would read some other road without an error."""
    rows = worlds.result.obs.copy()
    live = int(np.flatnonzero(worlds.result.mask)[0])
    rows[live, worlds.layout.span("road reference").start + column] = value
    with pytest.raises(ProtocolError, match=f"row {live} reads .*{said}"):
        worlds.roads.keys(rows)
    rows[live, worlds.layout.span("road reference").start + column] = np.nan
    with pytest.raises(ProtocolError, match=f"row {live}: .* is not finite"):
        worlds.roads.keys(rows)
    with pytest.raises(ProtocolError, match="maps none"):
        Roads(worlds.layout, {}).keys(worlds.result.obs)


def test_levels_are_apart(worlds: Simulator) -> None:
    """S94: under a bridge and on it are two lists of one cell, and none holds rows beyond the gate from its level."""
    at = worlds.layout.span("road reference")
    row = worlds.result.obs[np.flatnonzero(worlds.result.obs[:, at.start] == 1)[:1]]
    gate = ENV.level_gate
    both = np.repeat(row, 2, axis=0)
    both[:, at.start + 6] = 0.1, 0.1 + 3 * gate
    low, high = worlds.roads.keys(both)
    assert low != high
    found = worlds.roads.rows(np.array([low, high]))[0]
    assert found[0].any()
    assert not found[1].any() or (found[0] != found[1]).any()
    assert not worlds.roads.rows(np.array([-1]))[0].any()  # who is absent reads nothing


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_checkpoint_drives_as_its_network(worlds: Simulator, tmp_path: Path, memory: str) -> None:
    """E16, E48: what was trained drives in evaluation, read back from its file; it keeps the policy contract, a row's
    action does not depend on its batch, and a world that shows its rows is refused."""
    network, path = network_of(memory), tmp_path / "driver"
    architecture = architecture_for(ENV, NetworkSettings(encoder=16, hidden=(16, 8), memory=memory, memory_width=4))  # type: ignore[arg-type]
    save_checkpoint(path, network, architecture)
    loaded = load_checkpoint(path)
    assert loaded.architecture == architecture
    assert shape_from(architecture.network.described()) == architecture.network
    policy = CheckpointPolicy(loaded, ENV, "deterministic", 8)
    assert check_policy(policy, ENV) == []
    seen, rows = worlds.result.obs, len(worlds.row_world)
    streams = IdentityStreams(worlds.row_seed, worlds.row_key, np.zeros(rows, np.int64))
    action, _ = policy.act(
        seen,
        policy.initial_state(rows),
        np.ones(rows, bool),
        selection="deterministic",
        streams=streams,
        simulator=worlds,
    )
    state = torch.zeros(rows, network.shape.state_width) if network.shape.state_width else None
    with torch.no_grad():
        out = network.eval()(torch.from_numpy(seen), state, Lists(worlds.roads, network.lists))[0]
    best = out.max(1).values - out[torch.arange(rows), torch.from_numpy(action).long()]
    assert (best[torch.from_numpy(worlds.result.mask)] < 1e-5).all()
    with pytest.raises(CheckpointError, match="layout is 'deferred_32/1'"):
        CheckpointPolicy(loaded, ENV.model_copy(update={"layout": "wide_32/1"}), "deterministic", 8)

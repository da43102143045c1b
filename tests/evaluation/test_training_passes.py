"""Evaluation inside training: which weights are evaluated, who writes, and that training does not notice."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stub_evaluator import STUBS

from skidpad.engines.usage import files_of, memory_of_group
from skidpad.errors import ProtocolError, SettingsError, UsageError
from skidpad.evaluation.checkpoints import CheckpointFolder, latest_checkpoint
from skidpad.evaluation.isolation import undisturbed
from skidpad.evaluation.manager import EvalManager
from skidpad.policies.checkpoint import architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.policies.policy import PolicySpec
from skidpad.runs.records import read_records
from skidpad.settings.schema import EnvSettings, NetworkSettings

STUB = """
    [eval.{name}]
    type = "stub"
    interval = {interval}
    mode = "{mode}"
    keep_traces = "none"
    env.scenes = "{scenes}/straight-*.scene"
    eval.resamples = 100
"""
ARCHITECTURE = architecture_for(EnvSettings(), NetworkSettings(hidden=(8,), encoder=4, memory="none"))


def section(name: str, interval: int, mode: str = "inline") -> str:
    return STUB.replace("{name}", name).replace("{interval}", str(interval)).replace("{mode}", mode)


def saved(path: Path, step: int, run: str = "r", seed: int = 0) -> str:
    """A checkpoint of a training run; its digest."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = ActorCritic(ARCHITECTURE.network)
    return save_checkpoint(path, network, ARCHITECTURE, step=step, epoch=step, run=run)


def test_save_before_subprocess(load, tmp_path: Path) -> None:
    """save_before_subprocess E39: training saves first exactly when something that runs elsewhere is due: true at 100,
    false at 25 and 50, and what is disabled does not count."""
    suite = load(
        section("often", 25)
        + section("seldom", 100, "subprocess")
        + section("off", 10, "pool")
        + "    enabled = false\n"
    )
    manager = EvalManager(suite, tmp_path / "run", evaluators=STUBS)
    assert [manager.has_subprocess_evals_at(epoch) for epoch in (25, 50, 100, 0)] == [False, False, True, False]
    assert manager.has_subprocess_evals_at(33, force=True)


def test_newest_by_step_not_time(tmp_path: Path, capsys) -> None:
    """newest_by_step_not_time, falls_back_to_load_path, torn_checkpoint_skipped E40, F36, EF13: the largest step of
    this run wins, whatever the times of files say; a half-written, a damaged and a foreign file are passed over with
    the reason; the weights a run started from are taken only where it has saved none."""
    assert latest_checkpoint(tmp_path, "r") is None
    saved(tmp_path / "start", 0, run="other")
    start = latest_checkpoint(tmp_path, "r", tmp_path / "start")
    assert start is not None
    assert start.run == "other"
    for step in (10, 30, 20):
        saved(tmp_path / f"{step:03d}.safetensors", step)
    os.utime(tmp_path / "010.safetensors", (2e9, 2e9))
    saved(tmp_path / "foreign.safetensors", 99, run="other")
    whole = (tmp_path / "030.safetensors").read_bytes()
    (tmp_path / "torn.safetensors").write_bytes(whole[: len(whole) // 2].replace(b'"step":30', b'"step":77'))
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    (tmp_path / "zflipped.safetensors").write_bytes(flipped)
    (tmp_path / "short.safetensors").write_bytes(b"abc")
    found = latest_checkpoint(tmp_path, "r", tmp_path / "start")
    assert found is not None
    assert (found.step, found.path.name) == (30, "030.safetensors")
    told = capsys.readouterr().err
    for name in ("torn", "zflipped", "short", "foreign"):
        assert f"{name}.safetensors: passed over: " in told
    assert "it is of run 'other', this is 'r'" in told


def test_rank_zero_writes_once(load, tmp_path: Path) -> None:
    """rank_zero_writes_once E28: the other ranks get nothing, hold nothing and write nothing; an inline section that
    they would not wait for is refused before anything runs."""
    suite = load(section("often", 1))
    with EvalManager(suite, tmp_path / "run", evaluators=STUBS, rank=1, ranks=2) as other:
        assert other.maybe_run(1, 10) == {}
        assert not (tmp_path / "run").exists()
        with EvalManager(suite, tmp_path / "run", evaluators=STUBS, rank=0, ranks=2) as first:
            assert list(first.maybe_run(1, 10)) == ["often"]
            assert other.maybe_run(1, 10) == {}
    with pytest.raises(SettingsError, match=r"the other ranks wait 60 s"):
        EvalManager(suite, tmp_path / "b", evaluators=STUBS, ranks=2, collective_timeout=60.0)
    short = load(section("often", 1), "timeout_seconds=30")
    EvalManager(short, tmp_path / "b", evaluators=STUBS, ranks=2, collective_timeout=60.0)


@pytest.mark.slow
def test_the_saved_weights_are_the_ones(load, tmp_path: Path) -> None:
    """E25, E38, E40: a file that was just saved is what is evaluated and what records name; other weights than those
    of the file, and an object where only a file can go, are refused."""

    class Standing:
        spec = PolicySpec("standing", None, None)

    digest = saved(tmp_path / "a.safetensors", 10)
    with EvalManager(load(section("often", 1)), tmp_path / "run", evaluators=STUBS) as manager:
        assert manager.maybe_run(1, 10, checkpoint=tmp_path / "a.safetensors")["often"].ok
        shutil.copy(tmp_path / "a.safetensors", tmp_path / "renamed.safetensors")
        assert manager.maybe_run(2, 20, checkpoint=tmp_path / "renamed.safetensors")["often"].cached
        with pytest.raises(UsageError, match="holds weights of digest"):
            manager.maybe_run(3, 30, policy=Standing(), policy_digest="x", checkpoint=tmp_path / "a.safetensors")
        assert {r.checkpoint for r in read_records(manager.folder.records)} == {digest, ""}
    remote = load(section("often", 1, "subprocess"))
    with (
        EvalManager(remote, tmp_path / "run-2", evaluators=STUBS) as manager,
        pytest.raises(ProtocolError, match="Save a checkpoint"),
    ):
        manager.maybe_run(1, 10, policy=Standing(), policy_digest="x")
    folder = CheckpointFolder(tmp_path, "r")
    with EvalManager(remote, tmp_path / "run-3", evaluators=STUBS, checkpoints=folder) as manager:
        assert manager.maybe_run(1, 10, policy=Standing())["often"].ok
        assert digest in {r.checkpoint for r in read_records(manager.folder.records)}


def test_cost_is_a_chart(load, tmp_path: Path, stub, capsys) -> None:
    """E33, E77: with a clock of our own, the share of time that evaluation took is right, primary metrics and ok stand
    over all evaluators, and one line, once, names the evaluator that costs most."""
    now = [0.0]
    stub.after = staticmethod(lambda: now.__setitem__(0, now[0] + 1.0))
    suite = load(section("dear", 1) + section("cheap", 1) + "    eval.num_scenarios = 1\n    vec.num_worlds = 1\n")
    with EvalManager(suite, tmp_path / "run", evaluators=STUBS, clock=lambda: now[0]) as manager:
        assert manager.summary_values({}) == {}
        now[0] = 40.0
        results = manager.maybe_run(1, 10)
        took = now[0] - 40.0
        values = manager.summary_values(results)
        assert values["eval_summary/wall_share"] == took / now[0]
        assert values["eval_summary/ok"] == 1.0
        assert values["eval_summary/dear"] == results["dear"].values["dear/score"]
        manager.summary_values(results)
    told = capsys.readouterr().err
    assert told.count("more than eval_budget_share = 0.1") == 1


class Vandal:
    """A driver that moves whatever is global, and then raises."""

    spec = PolicySpec("vandal", None, None)

    def __init__(self, elsewhere: Path) -> None:
        self.elsewhere = elsewhere
        self.network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
        self.network[1].eval()

    def vandalise(self) -> None:
        assert not any(module.training for module in self.network.modules())
        self.network.train()
        random.seed(1)
        np.random.default_rng().random()
        np.random.seed(1)
        np.seterr(over="ignore")
        torch.manual_seed(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_num_threads(1 + torch.get_num_threads())
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        torch.set_autocast_enabled("cpu", True)
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        torch.backends.cudnn.deterministic = not torch.backends.cudnn.deterministic
        os.chdir(self.elsewhere)
        os.environ["SKIDPAD_VANDAL"] = "1"
        os.environ.pop("HOME", None)
        os.umask(0o012)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        warnings.simplefilter("ignore")
        raise ZeroDivisionError


def everything(policy: Vandal) -> dict[str, Any]:
    """All that evaluation might move."""
    mask = os.umask(0)
    os.umask(mask)
    legacy: Any = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (legacy[0], legacy[1].tobytes(), *legacy[2:]),
        "errors": np.geterr(),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "switches": (
            torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(),
            torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled(),
            torch.is_autocast_enabled("cpu"), torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
        ),
        "process": (os.getcwd(), dict(os.environ), mask, signal.getsignal(signal.SIGUSR1), list(warnings.filters)),
        "modules": [module.training for module in policy.network.modules()],
    }  # fmt: skip


def test_nothing_is_left_moved(tmp_path: Path) -> None:
    """E31, E55, EF17: whatever an evaluator moves before it raises is where it was: generators, torch's switches,
    directory, environment, umask, handlers, filters, and each submodule's own train flag."""
    policy = Vandal(tmp_path)
    before = everything(policy)
    with pytest.raises(ZeroDivisionError), undisturbed(policy):
        policy.vandalise()
    assert everything(policy) == before


REAL = """
    [eval.a]
    type = "human_replay"
    interval = 1
    mode = "{mode}"
    env.scenes = "{scenes}/straight-0.scene"
    env.scenario_length = 8
    eval.resamples = 100
    eval.worst_n = 1
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
"""


class Loop:
    """The smallest training there is: a recurrent network, dropout, noise of all generators, Adam with a schedule."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.network = ActorCritic(ARCHITECTURE.network).train()
        self.network.trunk.append(torch.nn.Dropout(0.1))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9)
        self.epoch = 0

    def train(self) -> None:
        self.epoch += 1
        batch = torch.randn(4, ARCHITECTURE.network.observation) + random.random() + np.random.random()
        out, value, _ = self.network(batch, None)
        self.optimizer.zero_grad()
        (out.square().mean() + value.square().mean()).backward()
        self.optimizer.step()
        self.scheduler.step()

    def state(self) -> dict[str, Any]:
        legacy: Any = np.random.get_state()
        moments = [value.numpy().tobytes() for part in self.optimizer.state.values() for value in part.values()]
        return {
            "weights": {name: tensor.numpy().tobytes() for name, tensor in self.network.state_dict().items()},
            "moments": moments,
            "schedule": self.scheduler.state_dict(),
            "generators": (torch.get_rng_state().numpy().tobytes(), random.getstate(), legacy[1].tobytes(), legacy[2:]),
            "modes": [module.training for module in self.network.modules()],
            "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
            "next": torch.randn(3).numpy().tobytes(),
        }


class Plain:
    """The network of a training as a driver."""

    spec = PolicySpec("plain", "compact/1", "continuous")

    def __init__(self, network: ActorCritic) -> None:
        self.network = network

    def initial_state(self, rows: int) -> None:
        return None

    def act(self, observation, state, reset, *, selection, streams, simulator=None):
        assert not self.network.training
        with torch.no_grad():
            out, _, _ = self.network(torch.from_numpy(observation.copy()), None)
        torch.rand(1)
        np.random.random()
        return out.numpy(), state


@pytest.mark.parametrize(
    "mode",
    ["inline", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("pool", "background"))],
)
def test_training_bit_equal_with_and_without(load, tmp_path: Path, mode: str) -> None:
    """training_bit_equal_with_and_without E31, E21, E35: weights, moments, schedule, generators, modes and next batch
    are byte for byte those of a training that never evaluated, though its driver draws from every global generator."""
    alone = Loop()
    for _ in range(3):
        alone.train()
    expected = alone.state()
    evaluated = Loop()
    apart = mode == "background"
    suite = load(REAL.replace("{mode}", "pool" if apart else mode), *(["blocking=false"] if apart else []))
    with EvalManager(suite, tmp_path / "run") as manager:
        for epoch in range(1, 4):
            evaluated.train()
            path = tmp_path / f"{epoch}.safetensors"
            if manager.has_subprocess_evals_at(epoch):
                save_checkpoint(path, evaluated.network, ARCHITECTURE, step=epoch)
                results = manager.maybe_run(epoch, epoch, checkpoint=path)
            else:
                results = manager.maybe_run(
                    epoch, epoch, policy=Plain(evaluated.network), policy_digest=f"weights {epoch}"
                )
            assert apart or results["a"].ok, results["a"].error
        state = evaluated.state()
        manager.maybe_run(3, 3, force=True, checkpoint=path if mode != "inline" else None)
    assert state == expected
    steps = {record.step for record in read_records(tmp_path / "run" / "records.jsonl") if record.arm == "policy"}
    assert steps == {1, 2, 3} or (apart and {1, 3} <= steps)  # the second may be due while the first still runs


@pytest.mark.slow
def test_twenty_passes_leave_nothing_behind(load, tmp_path: Path) -> None:
    """E37, EF16: over twenty inline passes, every third of a driver that raises, open descriptors stay as many as they
    were and memory stays where it is after the first few; the peer's jobs ran out of it."""

    class Now(Plain):
        def act(self, observation, state, reset, **rest):
            if self.raises:
                raise RuntimeError("on purpose")
            return super().act(observation, state, reset, **rest)

    driver = Now(ActorCritic(ARCHITECTURE.network).eval())
    held: list[tuple[int, int]] = []
    with EvalManager(load(REAL.replace("{mode}", "inline")), tmp_path / "run") as manager:
        for epoch in range(1, 21):
            driver.raises = epoch % 3 == 0
            result = manager.maybe_run(epoch, epoch, policy=driver, policy_digest=f"weights {epoch}")["a"]
            assert result.ok != driver.raises
            gc.collect()
            held.append((files_of(os.getpid()), memory_of_group(os.getpgrp())))
    assert len({files for files, _ in held[1:]}) == 1
    assert held[-1][1] - held[4][1] < 8 << 20


def test_a_compiled_policy_is_evaluated_as_written(load, tmp_path: Path, stub) -> None:
    """E34: while an evaluation drives with a network that training has compiled, in any batch shape, nothing is
    compiled, and training finds its own compilation afterwards; a wrapper that torch.compile returned is saved under
    the names of the network inside."""
    from torch._dynamo.testing import CompileCounter

    warnings.simplefilter("ignore")  # torch's own, while it compiles
    counter = CompileCounter()
    network = ActorCritic(ARCHITECTURE.network)
    network.compile(backend=counter)
    batch = torch.zeros(4, ARCHITECTURE.network.observation)
    before = network(batch, None)[0]
    assert counter.frame_count > 0
    compiled, rows = counter.frame_count, []

    class Watched(Plain):
        def act(self, observation, *rest, **named):
            rows.append(len(observation))
            return super().act(observation, *rest, **named)

    with EvalManager(load(section("often", 1)), tmp_path / "run", evaluators=STUBS) as manager:
        for epoch in (1, 2):
            driver = Watched(network)
            assert manager.maybe_run(epoch, epoch, policy=driver, policy_digest=str(epoch))["often"].ok
    assert set(rows) - {4}
    assert torch.equal(network(batch, None)[0], before)
    assert counter.frame_count == compiled
    plain = save_checkpoint(tmp_path / "plain", network, ARCHITECTURE)
    wrapped: Any = torch.compile(ActorCritic(ARCHITECTURE.network), backend=counter)
    wrapped.load_state_dict({f"_orig_mod.{name}": tensor for name, tensor in network.state_dict().items()})
    assert save_checkpoint(tmp_path / "wrapped", wrapped, ARCHITECTURE) == plain

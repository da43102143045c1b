"""`skidpad train` as a whole: stopped and resumed, evaluated or not, killed and refused."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from failing_files import every_fault

from skidpad.artifacts.weights import load_weights
from skidpad.cli import run as command
from skidpad.cli import shipped_suite
from skidpad.errors import AlreadyThereError, CheckpointError, SettingsError
from skidpad.evaluation.evaluators import TYPES
from skidpad.evaluation.interrupts import Interrupts
from skidpad.policies.checkpoint import architecture_for, import_weights, load_checkpoint
from skidpad.runs.tracking import Trackers
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.suite import Suite, load_suite
from skidpad.training.checkpoints import POLICY, TRAINER, Checkpoints
from skidpad.training.ppo import minibatches
from skidpad.training.run import train_suite
from skidpad.training.stages import stages_of
from skidpad.training.trainer import Trainer

SUITE = """
[env]
simulation_mode = "gigaflow"
action_type = "discrete"
num_goals = 1
goal_spacing = [10.0, 25.0]
dt = 0.2

[train]
env.scenes = "crossing.scene"
env.scenario_length = 20
env.min_agents_per_world = 4
env.max_agents_per_world = 4
rows = 8
horizon = 8
total_steps = 300
minibatches = 2
save_every = 2

[policy]
encoder = 4
hidden = [8]
"""
EVALUATED = """
[eval.watch]
type = "multi_scenario"
interval = 2
at_start = true
env.scenes = "crossing.scene"
env.scenario_length = 8
env.min_agents_per_world = 3
env.max_agents_per_world = 3
eval.skip_metrics = ["nuplan_*", "pdms_*", "epdms_*", "carla_*", "b2d_*", "vmax_score", "puffer_score*", "ttc.*", "pet"]
keep_traces = "none"
"""


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenes") / "crossing.scene"
    save_scene(synthetic("crossing", traffic=False), path)
    return path


@pytest.fixture
def suite_of(crossing: Path, tmp_path: Path) -> Callable[..., Suite]:
    def made(*overrides: str, text: str = SUITE) -> Suite:
        path = tmp_path / "suite.toml"
        path.write_text(text.replace("crossing.scene", str(crossing)), encoding="utf-8")
        return load_suite(path, overrides, types=TYPES)

    return made


def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("epoch_*"))


def same_training(one: Path, other: Path) -> None:
    """Weights, optimiser, generators and worlds of two runs' newest checkpoints are the same bytes."""
    assert newest(one).name == newest(other).name
    for name in (POLICY, TRAINER):
        assert (newest(one) / name).read_bytes() == (newest(other) / name).read_bytes(), name


class StopAfter(Interrupts):
    """Asks to stop when the run has shown itself so many times."""

    def __init__(self, updates: int) -> None:
        super().__init__()
        self.left = updates

    def __call__(self, text: str, done: int, total: int) -> None:
        if text.startswith("training"):
            self.left -= 1
            if self.left == 0:
                self.ask()


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_stopped_and_resumed_is_never_stopped(suite_of: Callable[..., Suite], tmp_path: Path, memory: str) -> None:
    """Ctrl-C saves and ends with 130; going on ends in the same bytes as a run nobody stopped: weights, optimiser,
    generators, worlds, memories and the table. Whatever is left out of a checkpoint shows here."""
    suite = suite_of(f"policy.memory={memory}", "train.resample=2")
    whole = train_suite(suite, tmp_path / "whole")
    assert whole.exit_code == 0
    stop = StopAfter(3)
    stopped = train_suite(suite, tmp_path / "parts", progress=stop, interrupts=stop)
    assert stopped.exit_code == 130
    assert stopped.checkpoint is not None
    with pytest.raises(AlreadyThereError, match="--resume"):
        train_suite(suite, tmp_path / "parts")
    assert train_suite(suite, tmp_path / "parts", resume=True).exit_code == 0
    same_training(tmp_path / "whole", tmp_path / "parts")

    def table(folder: Path) -> list[list[str]]:
        with (folder / "training.csv").open(encoding="utf-8") as file:
            return [row[:16] for row in csv.reader(file)]  # without the times

    assert table(tmp_path / "whole") == table(tmp_path / "parts")


def test_being_evaluated_changes_nothing(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """E21, E31: a run with an evaluator and one without end in the same bytes; the driver is evaluated at its epochs
    from the file that was just saved, and at the end."""
    plain = train_suite(suite_of(), tmp_path / "plain")
    watched = train_suite(suite_of(text=SUITE + EVALUATED), tmp_path / "watched")
    assert plain.exit_code == watched.exit_code == 0
    same_training(tmp_path / "plain", tmp_path / "watched")
    assert watched.report is not None
    lines = (tmp_path / "watched" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum('"arm":"policy"' in line for line in lines) >= 3
    assert sum('"arm":"idm"' in line for line in lines) == 1  # baselines do not change


def test_the_command_line_trains_and_evaluates(suite_of: Callable[..., Suite], tmp_path: Path, capsys: Any) -> None:
    """End to end: `train` prints the file that `eval --checkpoint` drives with."""
    suite = suite_of(text=SUITE + EVALUATED)
    assert command(["train", str(suite.path), "eval.watch.enabled=false", "--out", str(tmp_path / "run")]) == 0
    weights = Path(capsys.readouterr().out.strip().splitlines()[-1])
    assert load_checkpoint(weights).architecture.network.encoder == 4
    evaluated = ["eval", str(suite.path), "--checkpoint", str(weights), "--out", str(tmp_path / "scored")]
    assert command(evaluated) == 0
    assert "policy" in (tmp_path / "scored" / "watch" / "summary.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.minibatches=65", "there are 64 steps in a batch"),
        ("train.total_steps=10", "less than one batch"),
        ("train.env.obs_dtype=bfloat16", "learns from float32"),
        ("train.keep_every=3", "no multiple of train.save_every = 2"),
        ("train.device=cuda", "torch sees no GPU"),
        ("train.best=watch/score", "no evaluator 'watch' runs"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    suite_of: Callable[..., Suite], tmp_path: Path, override: str, said: str
) -> None:
    """Before anything is allocated or written, with the key and what it contradicts."""
    if "cuda" in override and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(SettingsError, match=said):
        train_suite(suite_of(override), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_ranks_must_share_the_rows(suite_of: Callable[..., Suite], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under torchrun every rank drives as many rows; others would wait in a collective for ever."""
    from skidpad.training.trainer import check_training

    spec = suite_of().training
    assert spec is not None
    with pytest.raises(SettingsError, match="cannot be shared by 3 ranks"):
        check_training(spec, 3)


def test_another_training_is_not_resumed(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """F34: other settings would go on as something that neither command describes; both are named."""
    stop = StopAfter(1)
    train_suite(suite_of(), tmp_path / "run", progress=stop, interrupts=stop)
    with pytest.raises(CheckpointError, match="these settings and scenes are training"):
        train_suite(suite_of("train.gamma=0.5"), tmp_path / "run", resume=True)


def test_a_run_of_other_code_is_refused_before_it_learns(
    suite_of: Callable[..., Suite], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F34: what cannot be continued is refused at once, not when the first records are to be added."""
    suite = suite_of(text=SUITE + EVALUATED)
    stop = StopAfter(1)
    train_suite(suite, tmp_path / "run", progress=stop, interrupts=stop)
    monkeypatch.setattr("skidpad.evaluation.manager.code_digests", lambda: {"code": "other"})
    before = (tmp_path / "run" / "training.csv").read_bytes()
    with pytest.raises(AlreadyThereError, match="code"):
        train_suite(suite, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "training.csv").read_bytes() == before


def test_old_checkpoints_go_and_the_best_stays(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """The newest ones, those of every K-th update and the best are kept; the pointer names the newest."""
    spec = suite_of().training
    assert spec is not None
    trainer = Trainer(spec)
    kept = Checkpoints(tmp_path / "checkpoints", trainer.run, keep_last=2, keep_every=3)
    for epoch in range(8):
        trainer.counters = type(trainer.counters)(epoch, epoch * 10)
        trainer.save(kept)
        if epoch == 1:
            kept.note_best(0.5, 1)
    assert kept.epochs() == [0, 1, 3, 6, 7]
    found = kept.newest(print)
    assert found is not None
    assert found[1].meta["best"] == [0.5, 1]


def test_a_broken_newest_is_passed_over(suite_of: Callable[..., Suite], tmp_path: Path, capsys: Any) -> None:
    """F30, F36: a damaged file, a pointer that is gone: the one before, and the reason is said."""
    spec = suite_of().training
    assert spec is not None
    trainer = Trainer(spec)
    kept = Checkpoints(tmp_path / "checkpoints", trainer.run, keep_last=3, keep_every=0)
    for epoch in range(3):
        trainer.counters = type(trainer.counters)(epoch, epoch)
        trainer.save(kept)
    damaged = tmp_path / "checkpoints" / "epoch_0000002" / TRAINER
    data = bytearray(damaged.read_bytes())
    data[-5] ^= 1
    damaged.write_bytes(data)
    (tmp_path / "checkpoints" / "latest.json").unlink()
    said: list[str] = []
    found = kept.newest(said.append)
    assert found is not None
    assert found[0].name == "epoch_0000001"
    assert len(said) == 2


def test_no_fault_of_the_disk_loses_a_checkpoint(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """F28, F29: a full disk at any call of a save: what was newest before still loads, or the new one does."""
    spec = suite_of().training
    assert spec is not None
    trainer = Trainer(spec)
    kept = Checkpoints(tmp_path / "checkpoints", trainer.run, keep_last=1, keep_every=0)
    trainer.save(kept)
    epoch = 0

    def save() -> None:
        nonlocal epoch
        epoch += 1
        trainer.counters = type(trainer.counters)(epoch, epoch)
        trainer.save(kept)

    for _ in every_fault(save):
        found = kept.newest(lambda text: None)
        assert found is not None
        assert int(found[1].meta["epoch"]) in (epoch - 1, epoch) or found[0].name in {
            f"epoch_{one:07d}" for one in kept.epochs()
        }
        assert not list((tmp_path / "checkpoints").glob("*.tmp-*"))


KILLED = """
import os, signal, sys
from pathlib import Path
k = int(sys.argv[3])
calls = 0
def counted(call):
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == k:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)
    return wrapped
from skidpad.evaluation.evaluators import TYPES
from skidpad.settings.suite import load_suite
from skidpad.training.checkpoints import Checkpoints, Counters
from skidpad.training.trainer import Trainer
trainer = Trainer(load_suite(Path(sys.argv[1]), (), types=TYPES).training)
kept = Checkpoints(Path(sys.argv[2]), trainer.run, keep_last=1, keep_every=0)
trainer.counters = Counters(1, 1)
trainer.save(kept)
for name in ("open", "write", "fsync", "replace", "rename", "link", "unlink", "rmdir", "sync"):
    setattr(os, name, counted(getattr(os, name)))
trainer.counters = Counters(2, 2)
trainer.save(kept)
print("whole", calls)
"""


def test_learning_in_bfloat16_comes_near_and_keeps_float32_weights(
    suite_of: Callable[..., Suite], tmp_path: Path
) -> None:
    """`train.precision`: the products are made in bfloat16, so the weights are others, but near; files hold float32."""
    ends = {}
    for precision in ("float32", "bfloat16"):
        assert train_suite(suite_of(f"train.precision={precision}"), tmp_path / precision).exit_code == 0
        ends[precision] = load_checkpoint(newest(tmp_path / precision) / POLICY).arrays
    for name, array in ends["float32"].items():
        other = ends["bfloat16"][name]
        assert other.dtype == np.float32
        np.testing.assert_allclose(other, array, atol=0.02)
    assert any((ends["bfloat16"][name] != array).any() for name, array in ends["float32"].items())


@pytest.mark.slow
def test_killed_at_any_call_a_checkpoint_loads(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """F28: kill -9 before each call of the file system that a save makes; the old or the new checkpoint loads whole."""
    suite = suite_of()
    assert suite.training is not None
    trainer = Trainer(suite.training)
    for k in range(1, 200):
        folder = tmp_path / f"killed-{k}"
        words = [sys.executable, "-c", KILLED, str(suite.path), str(folder), str(k)]
        done = subprocess.run(words, capture_output=True, text=True, env=os.environ)
        found = Checkpoints(folder, trainer.run, keep_last=1, keep_every=0).newest(lambda text: None)
        assert found is not None, done.stderr
        assert int(found[1].meta["epoch"]) in (1, 2)
        if done.returncode == 0:
            assert int(found[1].meta["epoch"]) == 2
            return
        assert done.returncode == -signal.SIGKILL, done.stderr
    raise AssertionError("a save makes more than 200 calls")


def test_a_tracker_that_fails_is_dropped_once(tmp_path: Path, capsys: Any) -> None:
    """E79, F35, EF34: training goes on without a tracker that is missing, cannot start or breaks; one warning each."""

    class Broken:
        def __init__(self, folder: Path, run: str) -> None:
            self.calls = 0

        def log(self, values: Mapping[str, float], step: int) -> None:
            raise BrokenPipeError("pipe")

        def files(self, files: Any, step: int) -> None:
            raise AssertionError("was dropped")

        def close(self) -> None:
            raise AssertionError("was dropped")

    class Seen(Broken):
        got: ClassVar[list[tuple[dict[str, float], int]]] = []

        def log(self, values: Mapping[str, float], step: int) -> None:
            self.got.append((dict(values), step))

        def close(self) -> None:
            pass

    def absent(folder: Path, run: str) -> Broken:
        raise ImportError("no module")

    sinks: Any = {"broken": Broken, "seen": Seen, "absent": absent}
    trackers = Trackers(("broken", "absent", "seen"), tmp_path, "run", sinks)
    trackers.log({"train/loss": 1.0}, 3)
    trackers.log({"train/loss": 2.0}, 4)
    trackers.close()
    said = capsys.readouterr().err
    assert said.count("broken failed (pipe)") == 1
    assert said.count("absent is not installed") == 1
    assert Seen.got == [({"train/loss": 1.0}, 3), ({"train/loss": 2.0}, 4)]


def test_a_loss_that_is_no_number_stops_the_run(suite_of: Callable[..., Suite]) -> None:
    """F33: the digest of what was being learnt from and the seed are said, and no counter moves."""
    from skidpad.errors import CaseError

    spec = suite_of().training
    assert spec is not None
    trainer = Trainer(spec)
    trainer.advance()
    with torch.no_grad():
        trainer.network.critic.bias.fill_(float("inf"))
    with pytest.raises(CaseError, match=r"update 2: .* has digest [0-9a-f]{64}; the seed is 0"):
        trainer.advance()
    assert trainer.counters.epoch == 1


def test_foreign_weights_are_imported_as_numbers(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """F31: a state_dict becomes a checkpoint with the same numbers; a pickle that runs something does not run."""
    suite = suite_of()
    assert suite.training is not None
    network = Trainer(suite.training).network
    torch.save({"state_dict": {f"module.{k}": v for k, v in network.state_dict().items()}}, tmp_path / "own.pt")
    words = ["checkpoints", "import", "--suite", str(suite.path)]
    assert command([*words, str(tmp_path / "own.pt"), "--out", str(tmp_path / "own.safetensors")]) == 0
    found = load_weights(tmp_path / "own.safetensors").arrays
    for name, tensor in network.state_dict().items():
        assert np.array_equal(found[name], tensor.numpy())

    class Hostile:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'owned'}",)

    torch.save({"actor.weight": Hostile()}, tmp_path / "hostile.pt")
    assert command([*words, str(tmp_path / "hostile.pt"), "--out", str(tmp_path / "x.safetensors")]) == 2
    assert not (tmp_path / "owned").exists()
    foreign = load_weights(tmp_path / "own.safetensors")
    other = suite_of("policy.encoder=5").training
    assert other is not None
    architecture = architecture_for(other.env, other.network)
    with pytest.raises(CheckpointError, match=r"encoders.0.out.bias is \(4,\), expected \(5,\)"):
        import_weights(tmp_path / "x.safetensors", foreign, architecture, "own.pt")
    assert not (tmp_path / "x.safetensors").exists()


TWO = """
import sys
from pathlib import Path
from skidpad.evaluation.evaluators import TYPES
from skidpad.settings.suite import load_suite
from skidpad.training.ppo import minibatches
from skidpad.training.run import train_suite
result = train_suite(load_suite(Path(sys.argv[1]), (), types=TYPES), Path(sys.argv[2]))
sys.exit(result.exit_code)
"""


@pytest.mark.slow
def test_two_ranks_train_one_driver(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """E28: under torchrun two ranks end with one driver, written once by rank 0, with the steps of both counted."""
    suite = suite_of(text=SUITE + EVALUATED + "timeout_seconds = 600\n")  # others wait for rank 0, so it must end
    script = tmp_path / "two.py"
    script.write_text(TWO, encoding="utf-8")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(
        [*words, str(suite.path), str(tmp_path / "run")], capture_output=True, text=True, env=os.environ, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    state = load_weights(newest(tmp_path / "run") / TRAINER)
    assert state.meta["ranks"] == 2
    assert {"rank0.worlds", "rank1.worlds"} <= set(state.arrays)
    with (tmp_path / "run" / "training.csv").open(encoding="utf-8") as file:
        epochs = [int(row["epoch"]) for row in csv.DictReader(file)]
    assert epochs == list(range(1, len(epochs) + 1))


def test_training_begins_with_given_weights(suite_of: Callable[..., Suite], tmp_path: Path) -> None:
    """`train.start`: the first checkpoint holds those very weights, the run is another training than from drawn ones,
    and a checkpoint of another network is refused with both sides; so is a shipped driver that there is not."""
    spec = suite_of().training
    assert spec is not None
    first = Trainer(spec)
    with torch.no_grad():
        first.network.critic.bias.fill_(7.0)
    path = first.save(Checkpoints(tmp_path / "first", first.run, keep_last=1, keep_every=0))
    begun = suite_of(f"train.start={path}").training
    assert begun is not None
    trainer = Trainer(begun)
    assert float(trainer.network.critic.bias.detach()) == 7.0
    assert trainer.run != first.run
    other = suite_of(f"train.start={path}", "policy.encoder=5").training
    assert other is not None
    with pytest.raises(CheckpointError, match=r"encoder=4.* this training needs .*encoder=5"):
        Trainer(other)
    unknown = suite_of("train.start=library:nobody").training
    assert unknown is not None
    with pytest.raises(SettingsError, match=r"the shipped drivers are .*selfplay_small"):
        Trainer(unknown)


def test_shipped_suites_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    """`train library:NAME` reads the suites that the shipped drivers come from, in stages that each begin where the one
    before ended, with one architecture; a name that is none is refused with the list."""
    expected = {
        "selfplay_small": ["selfplay_start", "selfplay_minute", "selfplay_small"],
        "logs_small": ["selfplay_start", "selfplay_minute", "logs_small"],
    }
    for name, stems in expected.items():
        stages = stages_of(shipped_suite(Path(f"library:{name}")), [])
        assert [suite.path.stem for suite in stages] == stems
        specs = [suite.training for suite in stages]
        assert len({architecture_for(spec.env, spec.network) for spec in specs if spec is not None}) == 1
    assert command(["train", "library:selfplay"]) == 2
    assert "there are demo, driving, logs_small" in capsys.readouterr().err


def test_road_lists_are_learnt_from_by_the_layout_alone(suite_of: Callable[..., Suite]) -> None:
    """S94, T1: `env.layout` alone makes training encode lists once for all: every weight learns, also those of the
    lists; a minibatch is whole stretches, and all live steps come once in a pass."""
    spec = suite_of('env.layout="deferred_32/1"').training
    assert spec is not None
    trainer = Trainer(spec)
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    assert "lists.blocks.0.0.weight" in before
    for _ in range(2):
        assert np.isfinite(list(trainer.advance().values.values())).all()
    assert all(not torch.equal(value, before[name]) for name, value in trainer.network.state_dict().items())
    assert trainer.collector is not None
    batch, _ = trainer.collector.collect(0.99, 0.95)
    batch = batch._replace(value=torch.arange(batch.value.numel(), dtype=torch.float32).view_as(batch.value))
    parts = list(minibatches(batch, 3, trainer.network, torch.Generator()))
    rows = [set((part.value.long() % batch.value.shape[1]).tolist()) for part in parts]
    assert sum(map(len, rows)) == len(set().union(*rows))  # of this horizon a stretch is a row
    assert sorted(torch.cat([part.value for part in parts]).tolist()) == sorted(batch.value[batch.learn].tolist())
    with pytest.raises(SettingsError, match="there are 8 stretches of 8 steps, and a network that reads"):
        Trainer(suite_of('env.layout="deferred_32/1"', "train.minibatches=9").training)  # type: ignore[arg-type]

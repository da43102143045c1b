"""`train.after`: a training in stages is what its suites, trained by hand one after the other, come to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_training_run import SUITE, newest

from skidpad.cli import run as command
from skidpad.errors import AlreadyThereError, SettingsError
from skidpad.evaluation.evaluators import TYPES
from skidpad.policies.checkpoint import load_checkpoint
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.suite import load_suite
from skidpad.training.checkpoints import POLICY, TRAINER
from skidpad.training.run import train_suite
from skidpad.training.stages import STAGES, stages_of, train_stages

SECOND = """
extends = "first.toml"

[train]
after = "first.toml"
env.scenario_length = 30
total_steps = 150
"""


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    """A folder with first.toml and second.toml, which comes after it."""
    folder = tmp_path / "suites"
    folder.mkdir()
    save_scene(synthetic("crossing", traffic=False), folder / "crossing.scene")
    (folder / "first.toml").write_text(SUITE, encoding="utf-8")
    (folder / "second.toml").write_text(SECOND, encoding="utf-8")
    return folder


def test_stages_are_what_their_suites_come_to_by_hand(suites: Path, tmp_path: Path) -> None:
    """T3: one command and two, with `train.start` between them, end in the same bytes, optimiser and worlds included;
    overrides hold for both stages."""
    told = ["train.seed=3"]
    staged = train_stages(suites / "second.toml", told, tmp_path / "staged")
    first = train_suite(load_suite(suites / "first.toml", told, types=TYPES), tmp_path / "first")
    begin = f"train.start={first.checkpoint}"
    second = train_suite(load_suite(suites / "second.toml", [*told, begin], types=TYPES), tmp_path / "second")
    assert staged.exit_code == first.exit_code == second.exit_code == 0
    assert staged.checkpoint == newest(tmp_path / "staged") / POLICY
    pairs = [(tmp_path / "staged" / STAGES / "first", tmp_path / "first"), (tmp_path / "staged", tmp_path / "second")]
    for one, other in pairs:
        for name in (POLICY, TRAINER):
            assert (newest(one) / name).read_bytes() == (newest(other) / name).read_bytes()


def test_interrupted_in_any_stage_it_goes_on(suites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped in its first stage and again in its last, and goes on each time, ends as one that is not;
    begun once more without `resume` it is refused before anything is learnt."""
    whole = train_stages(suites / "second.toml", [], tmp_path / "whole")
    left = 0

    def stopped(text: str, done: int, total: int) -> None:
        nonlocal left
        left -= text.startswith("training")
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)

    codes = []
    for updates in (2, 2, 1000):
        left = updates
        ended = train_stages(suites / "second.toml", [], tmp_path / "parts", resume=True, progress=stopped)
        codes.append(ended.exit_code)
    assert codes == [130, 130, 0]
    assert whole.checkpoint is not None
    assert ended.checkpoint is not None
    assert load_checkpoint(ended.checkpoint).digest == load_checkpoint(whole.checkpoint).digest
    with pytest.raises(AlreadyThereError, match="--resume"):
        train_stages(suites / "second.toml", [], tmp_path / "parts")


def test_what_begins_with_weights_has_no_stage_before_it(suites: Path, tmp_path: Path) -> None:
    """`train.start` says what training begins with, so what `after` would make is not made."""
    weights = train_stages(suites / "first.toml", [], tmp_path / "first").checkpoint
    ended = train_stages(suites / "second.toml", [f"train.start={weights}"], tmp_path / "second")
    assert ended.exit_code == 0
    assert not (tmp_path / "second" / STAGES).exists()


def test_stages_that_cannot_be_are_refused_before_the_first(
    suites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A circle, a file that is not there and a stage that cannot work each end with code 2 and words that name them,
    and nothing is written; nor does a function that trains one suite pass a stage over in silence."""
    run = tmp_path / "run"
    cases = [
        (SECOND.replace('after = "first.toml"', 'after = "second.toml"'), "Each needs a name of its own"),
        (SECOND.replace('after = "first.toml"', 'after = "third.toml"'), "third.toml"),
        (SECOND.replace("total_steps = 150", "total_steps = 10"), "less than one batch"),
    ]
    for text, said in cases:
        (suites / "second.toml").write_text(text, encoding="utf-8")
        assert command(["train", str(suites / "second.toml"), "--out", str(run)]) == 2
        assert said in capsys.readouterr().err
        assert not run.exists()
    (suites / "second.toml").write_text(SECOND, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"first\.toml"):
        train_suite(stages_of(suites / "second.toml", [])[-1], run)


@pytest.mark.slow
def test_ranks_meet_once_for_all_stages(suites: Path, tmp_path: Path) -> None:
    """Two processes under torchrun train both stages; the second begins with what the first rank wrote last."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "skidpad"]
    told = ["train", str(suites / "second.toml"), "--out", str(tmp_path / "run")]
    done = subprocess.run([*words, *told], capture_output=True, text=True, env=os.environ, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    first = load_checkpoint(newest(tmp_path / "run" / STAGES / "first") / POLICY)
    begun = load_checkpoint(min((tmp_path / "run" / "checkpoints").glob("epoch_*")) / POLICY)
    assert newest(tmp_path / "run").name > "epoch_0000001"
    assert first.architecture == begun.architecture

"""Records that outlive their run: a second run of the same definition takes them and runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from stub_evaluator import STUBS

from skidpad.evaluation import kept as kept_module
from skidpad.evaluation import remote
from skidpad.evaluation.evaluators import EVALUATORS
from skidpad.evaluation.kept import KeptRecords
from skidpad.evaluation.manager import EvalManager
from skidpad.evaluation.schedule import EvalResult
from skidpad.evaluation.sources import SceneSources
from skidpad.evaluation.summary import deterministic_report
from skidpad.policies.baselines import Stationary
from skidpad.policies.checkpoint import architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.runs.records import deterministic
from skidpad.settings.schema import EnvSettings, NetworkSettings

SUITE = """
    [eval.a]
    type = "stub"
    env.scenes = ["{scenes}/straight-0.scene", "{scenes}/crossing.scene"]
    keep_traces = "none"
    eval.worst_n = 0
    eval.resamples = 100
"""
BASELINES = {"stationary", "constant_velocity", "random", "idm", "log", "log_actions"}
Run = Callable[..., tuple[EvalResult, EvalManager]]


@pytest.fixture
def run(load, tmp_path: Path, stub) -> Run:
    """run(kept, *overrides): one run of the suite into a folder of its own, with a policy under test."""
    count = iter(range(100))

    def once(
        kept: KeptRecords | None, *overrides: str, text: str = SUITE, checkpoint: Path | None = None
    ) -> tuple[EvalResult, EvalManager]:
        stub.ran.clear()
        folder = tmp_path / f"run{next(count)}"
        driver: dict[str, Any] = {"policy": Stationary("continuous"), "policy_digest": "weights"}
        if checkpoint is not None:
            driver = {"checkpoint": checkpoint}
        with EvalManager(load(text, *overrides), folder, evaluators=STUBS, kept=kept, **driver) as manager:
            result = manager.run_all()["a"]
            if result.error is None:
                manager.finish()
        return result, manager

    return once


def test_baselines_cost_nothing_the_second_time(run: Run, stub, tmp_path: Path) -> None:
    """E71, E104: the second run of one definition, in another folder and under another name, drives the policy alone;
    everything but cost is what the first run found."""
    kept = KeptRecords(tmp_path / "kept")
    first = run(kept)[1]
    assert {arm for _, arm, _ in stub.ran} == {*BASELINES, "policy"}
    second = run(kept)[1]
    assert {arm for _, arm, _ in stub.ran} == {"policy"}
    one, other = (deterministic_report(manager.folder.read_report()) for manager in (first, second))
    assert one == other
    rows = [manager.folder.evaluator("a").joinpath("episodes.csv").read_bytes() for manager in (first, second)]
    assert rows[0] == rows[1]
    renamed = run(kept, text=SUITE.replace("eval.a]", "eval.b]").replace("[eval.b]", "[eval.a]"))[1]
    assert {arm for _, arm, _ in stub.ran} == {"policy"}
    assert renamed.folder.read_report()["ok"]


@pytest.mark.parametrize("change", ["section", "code", "library", "torn", "all traces"])
def test_anything_else_runs_again(run: Run, stub, tmp_path: Path, monkeypatch, change: str) -> None:
    """E71: a kept record is of one section, one code tree and one set of libraries; a file that does not hold together
    is no record, and where every trace is to be kept a record alone is not enough."""
    kept = KeptRecords(tmp_path / "kept")
    run(kept)
    overrides = []
    if change == "section":
        overrides = ["env.goal_radius=3.0"]
    elif change == "code":
        monkeypatch.setattr(kept_module, "code_digests", lambda: {"code": "other", "kernels": "other"})
    elif change == "library":
        monkeypatch.setattr(kept_module.metadata, "version", lambda name: "0")
    elif change == "torn":
        for path in (tmp_path / "kept").glob("*.jsonl"):
            path.write_bytes(b"{}\n" + path.read_bytes()[:-40])
    else:
        overrides = ["keep_traces=all"]
    run(kept, *overrides)
    assert {arm for _, arm, _ in stub.ran} == {*BASELINES, "policy"}


def driver_file(path: Path, seed: int) -> Path:
    """A small network with random weights."""
    architecture = architecture_for(EnvSettings(), NetworkSettings(hidden=(4,), encoder=2, memory="none"))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_checkpoint(path, ActorCritic(architecture.network), architecture)
    return path


def test_a_checkpoint_costs_nothing_the_second_time(run: Run, stub, tmp_path: Path, monkeypatch) -> None:
    """E104: the same weights, under whatever file name, are taken from the store like a baseline: the second run takes
    no step, and its report is the first one's. Other weights, another torch and a driver whose rows depend on their
    batch run."""
    kept = KeptRecords(tmp_path / "kept")
    first = run(kept, checkpoint=driver_file(tmp_path / "a", 1))[1]
    assert {arm for _, arm, _ in stub.ran} == {*BASELINES, "policy"}
    (tmp_path / "a").rename(tmp_path / "b")
    second = run(kept, checkpoint=tmp_path / "b")[1]
    assert stub.ran == []
    one, other = (deterministic_report(manager.folder.read_report()) for manager in (first, second))
    assert one["evaluators"] == other["evaluators"]
    run(kept, checkpoint=driver_file(tmp_path / "c", 2))
    assert {arm for _, arm, _ in stub.ran} == {"policy"}
    found = kept_module.metadata.version
    monkeypatch.setattr(kept_module.metadata, "version", lambda name: "0" if name == "torch" else found(name))
    run(kept, checkpoint=tmp_path / "b")
    assert {arm for _, arm, _ in stub.ran} == {"policy"}
    monkeypatch.undo()
    monkeypatch.setattr(remote, "batch_sensitivity_of", lambda arm, spec: "rows depend on the batch")
    run(kept, checkpoint=tmp_path / "b")
    assert {arm for _, arm, _ in stub.ran} == {"policy"}


def test_failures_are_not_kept(run: Run, stub, tmp_path: Path) -> None:
    """E71: a case that failed may succeed tomorrow, so nobody remembers its failure."""
    kept = KeptRecords(tmp_path / "kept")
    stub.failing = {0}
    run(kept, "eval.max_failed_cases=2")
    stub.failing = set()
    result, _ = run(kept, "eval.max_failed_cases=2")
    assert {position for _, arm, position in stub.ran if arm != "policy"} == {0}
    assert result.ok


@pytest.mark.parametrize("name", ["idm", "policy"])
def test_rerun_finds_what_does_not_repeat(load, run: Run, stub, tmp_path: Path, name: str) -> None:
    """E104: run again on request, a baseline or a checkpoint that does something else than it did is an error that
    names the first field, not a new truth."""
    kept, driver = KeptRecords(tmp_path / "kept"), driver_file(tmp_path / "driver", 1)
    _, manager = run(kept, checkpoint=driver)
    evaluator = STUBS["stub"](load(SUITE).spec("a"), SceneSources())
    path = kept.path(evaluator, next(arm for arm in manager._registered["a"].arms if arm.name == name))
    path.write_text(path.read_text().replace('"n_agents":2', '"n_agents":3'))
    result, _ = run(KeptRecords(tmp_path / "kept", rerun=True), checkpoint=driver)
    assert {arm for _, arm, _ in stub.ran} >= {*BASELINES, "policy"}
    assert result.error is not None
    assert result.error["type"] == "IntegrityError"
    assert f"arm {name!r}: run again it differs from the kept record in result.n_agents" in result.error["message"]


def test_a_real_baseline_is_taken_as_it_was(load, tmp_path: Path) -> None:
    """E71 (real): records of real worlds, taken from the store, are equal in everything but cost, and the traces of
    the cases shown are still made and compared with them (E105)."""
    text = SUITE.replace("stub", "human_replay").replace('keep_traces = "none"', "env.scenario_length = 5")
    text = text.replace(
        "eval.worst_n = 0", 'eval.worst_n = 2\n    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]'
    )
    text += '    eval.skip_metrics = ["nuplan_*", "*dms_*", "carla_*", "b2d_*", "vmax_*", "puffer_*", "ttc.*"]\n'
    kept, found = KeptRecords(tmp_path / "kept"), []
    for name in ("one", "two"):
        with EvalManager(load(text), tmp_path / name, evaluators=EVALUATORS, kept=kept) as manager:
            assert manager.run_all()["a"].ok
            manager.finish()
            found.append(manager)
    records = [sorted(map(deterministic, manager._records.records.values())) for manager in found]
    assert records[0] == records[1]
    assert all(record.cost == {"seconds": 0.0, "kept": True} for record in found[1]._records.records.values())
    assert len(list((tmp_path / "two" / "traces" / "a").glob("*.trace"))) == 8

"""`blocking = false`: a snapshot is evaluated while training goes on, and what is said of it is at its step."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_evaluator import HostileEvaluator
from stub_evaluator import STUBS

from skidpad.evaluation.evaluators import TYPES
from skidpad.evaluation.manager import EvalManager
from skidpad.policies.checkpoint import architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.runs.chain import read_chain
from skidpad.runs.records import read_records
from skidpad.settings.schema import EnvSettings, NetworkSettings
from skidpad.settings.suite import load_suite

KINDS = {**STUBS, "hostile": HostileEvaluator}
SECTION = """
    [eval.{name}]
    type = "hostile"
    mode = "pool"
    blocking = false
    interval = 2
    keep_traces = "none"
    env.scenes = ["{scenes}/straight-0.scene", "{scenes}/straight-1.scene"]
    vec.workers = 1
    eval.resamples = 100
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
"""
ARCHITECTURE = architecture_for(EnvSettings(), NetworkSettings(hidden=(8,), encoder=4, memory="none"))


def snapshot(path: Path, step: int) -> tuple[Path, str]:
    """A checkpoint of a training at a step, and its digest."""
    with torch.random.fork_rng():
        torch.manual_seed(step)
        network = ActorCritic(ARCHITECTURE.network)
    return path, save_checkpoint(path, network, ARCHITECTURE, step=step, epoch=step // 10, run="r")


@pytest.fixture
def training(load, tmp_path: Path, monkeypatch):
    """training(*names): a manager over background sections of these names, and the gate that `waits` waits for."""
    gate = tmp_path / "gate"
    monkeypatch.setenv("SKIDPAD_GATE", str(gate))
    monkeypatch.setitem(TYPES, "hostile", HostileEvaluator.TYPE)  # type: ignore[arg-type]

    def made(*names: str) -> tuple[EvalManager, Path]:
        load("".join(SECTION.replace("{name}", name) for name in names))
        suite = load_suite(tmp_path / "suite.toml", types=TYPES)
        return EvalManager(suite, tmp_path / "run", evaluators=KINDS), gate

    return made


def test_background_logs_snapshot_step(training, tmp_path: Path) -> None:
    """background_logs_snapshot_step E35, EF33: training goes on through three epochs meanwhile; passes of two sections
    queue in order; one that is due while its last pass runs is skipped and says so; the end waits, and results stand
    at the step of their weights, whose file may be gone by then. A section that raises hurts nobody else (E29)."""
    manager, gate = training("waits", "well", "raises")
    first, early = snapshot(tmp_path / "a.safetensors", 20)
    with manager:
        assert manager.maybe_run(2, 20, checkpoint=first) == {}
        first.unlink()
        assert manager.maybe_run(3, 30) == {}
        busy = manager.maybe_run(4, 40, checkpoint=snapshot(tmp_path / "b.safetensors", 40)[0])
        said = {name: (one.status, one.step, one.ok) for name, one in busy.items()}
        assert said == dict.fromkeys(("waits", "well", "raises"), ("skipped_busy", 40, True))
        assert busy["well"].values == {"well/skipped_busy": 1.0}
        assert manager.summary_values(busy) == {}
        gate.touch()
        last, late = snapshot(tmp_path / "c.safetensors", 60)
        results = manager.maybe_run(6, 60, force=True, checkpoint=last)
        assert list(results) == ["waits@20", "well@20", "raises@20", "waits", "well", "raises"]
        assert [(one.epoch, one.step, one.status) for one in results.values()] == [
            *((2, 20, status) for status in ("ok", "ok", "error")),
            *((6, 60, status) for status in ("ok", "ok", "error")),
        ]
        assert manager.summary_values({"waits@20": results["waits@20"]})["eval_summary/waits"] > 0
        assert manager.exit_code == 1
        manager.finish()
    records = [record for record in read_records(manager.folder.records) if record.arm == "policy"]
    assert {(record.evaluator, record.step, record.checkpoint) for record in records} >= {
        (name, *weights) for name in ("waits", "well") for weights in ((20, early), (60, late))
    }
    events = [event["event"] for event in read_chain(manager.folder.chain)]
    assert events.count("skipped_busy") == 3
    assert not list(manager.folder.path.glob("pass.tmp-*"))


@pytest.mark.parametrize("at_once", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_leaving_ends_what_runs(training, tmp_path: Path, at_once: bool) -> None:
    """E35, F60: a training that stops lets the running cases finish and begins no others; stopped once more while it
    waits, it ends them. Nothing temporary and no worker is left, and what was recorded stays."""
    manager, gate = training("waits")
    opened = threading.Timer(3.0, gate.touch)
    workers: list[Any] = []

    def stop() -> None:
        with manager:
            manager.maybe_run(2, 20, checkpoint=snapshot(tmp_path / "a.safetensors", 20)[0])
            (engine,) = manager._places._kept.values()
            while not workers:
                workers.extend(engine._busy.values())  # type: ignore[attr-defined]
            if at_once:
                signal.signal(signal.SIGALRM, signal.default_int_handler)
                signal.alarm(2)
            else:
                opened.start()
            raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt if at_once else ZeroDivisionError):
        stop()
    opened.cancel()
    assert all(not worker.is_alive for worker in workers)
    assert not list(manager.folder.path.glob("pass.tmp-*"))
    assert [event["event"] for event in read_chain(manager.folder.chain)][-1] == "interrupted"
    assert len(list(read_records(manager.folder.records))) < 10

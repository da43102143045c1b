"""Sealed runs on a failing disk, and with workers that die."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from failing_files import every_fault
from sealed_runs import make_world, remembered, run_sealed, settings_of

from skidpad.evaluation.evaluators import sealed_stream
from skidpad.evaluation.sealed_pool import Pool
from skidpad.streaming.arms import Arm
from skidpad.streaming.episode import load_episode_index
from skidpad.streaming.provenance import validate_episodes
from skidpad.streaming.sealed import StreamJob


@pytest.mark.slow
def test_every_write_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M43, F29: whichever file call fails, there is no report of it, and the same call ends in the same result."""
    world = make_world(tmp_path, count=1)
    remembered(monkeypatch)
    real, found = sealed_stream.conclude, dict[int, Any]()
    monkeypatch.setattr(
        sealed_stream, "conclude", lambda *given: found[0] if 0 in found else found.setdefault(0, real(*given))
    )
    whole = run_sealed(world, tmp_path / "whole")["result_digest"]
    tries = [0]

    def work() -> None:
        tries[0] += 1
        run_sealed(world, tmp_path / f"run-{tries[0]}")

    for raised in every_fault(work, stride=7):
        out = tmp_path / f"run-{tries[0]}"
        if (out / "report.json").exists():  # the fault came after it, or where the run goes on without (the ledger)
            continue
        assert raised
        assert run_sealed(world, out)["result_digest"] == whole
    assert tries[0] > 10


class Deadly(StreamJob):
    """A job that ends the process that unpacks it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


@pytest.mark.slow
def test_a_worker_dies(tmp_path: Path) -> None:
    """M45, F38, F56: a worker that dies takes no other job with it; its own runs once more alone, then is `crashed`."""
    world = make_world(tmp_path, count=1)
    source = validate_episodes(load_episode_index(world[0]).select())[0]
    good = StreamJob(source.online, Arm("OFF", "OFF"), 1)
    deadly = Deadly(source.online, Arm("FUSE", "FUSE"), 1)
    with Pool(settings_of(world), 1) as pool:
        found = {done.job.pair: done.result for done in pool.run([deadly, good])}
    assert found[good.pair].status == "ok"
    assert found[deadly.pair].status == "crashed"
    assert found[deadly.pair].error is not None
    assert "also when it ran alone" in found[deadly.pair].error["message"]

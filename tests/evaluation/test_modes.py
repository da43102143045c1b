"""Where an evaluation runs is no input: the same records inline, in a process of its own and on a pool of workers,
and whatever happens to a worker costs no more than its share.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_evaluator import HostileEvaluator
from stub_evaluator import STUBS

from skidpad.evaluation.manager import evaluate_suite
from skidpad.evaluation.summary import deterministic_report
from skidpad.policies.checkpoint import architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import deterministic, read_records
from skidpad.settings.schema import EnvSettings

KINDS = {**STUBS, "hostile": HostileEvaluator}
REAL = """
    [eval.a]
    type = "human_replay"
    env.scenes = "{scenes}/*.scene"
    env.scenario_length = 12
    eval.egos = "each"
    eval.num_scenarios = 4
    eval.resamples = 100
    eval.worst_n = 1
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
"""
HOSTILE = """
    [eval.{name}]
    type = "hostile"
    mode = "{mode}"
    keep_traces = "none"
    env.scenes = "{scenes}/*.scene"
    vec.num_worlds = 2
    vec.workers = 2
    eval.resamples = 100
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
"""


def network_file(path: Path, seed: int = 0) -> tuple[str, dict[str, Any]]:
    """A small recurrent driver with random weights; its digest and what it fixes in a suite."""
    torch.manual_seed(seed)
    architecture = architecture_for(EnvSettings(), hidden=(16,), gru=8)
    digest = save_checkpoint(path, ActorCritic(architecture.network), architecture, step=3)
    return digest, architecture.settings()


def lasting(folder: Path) -> dict[str, Any]:
    """What must not depend on where a run was done: every file but for times."""
    run = RunFolder(folder)
    report = run.read_report()
    names = [path.relative_to(folder).as_posix() for path in run.files()]
    return {
        "records": {record.key: deterministic(record) for record in read_records(run.records)},
        "report": deterministic_report(report)["evaluators"],
        "names": [name for name in names if not name.endswith("summary.csv")],
        "bytes": [
            (folder / name).read_bytes()
            for name in names
            if name.startswith("traces/") or name.endswith("episodes.csv")
        ],
    }


@pytest.mark.slow
def test_four_modes_equal_records(load, tmp_path: Path) -> None:
    """four_modes_equal_records E36, E46, EF30: records, traces, tables and report of a recurrent network and its
    baselines are byte for byte those of an inline run, whoever did it and whatever the shares were."""
    _, fixed = network_file(tmp_path / "driver")
    found = {}
    for name, overrides in {
        "inline": [],
        "subprocess": ['mode="subprocess"', "vec.num_worlds=3"],
        "pool-1": ['mode="pool"', "vec.workers=1"],
        "pool-2": ['mode="pool"', "vec.workers=2", 'keep_traces="selected"'],
        "pool-7": ['mode="pool"', "vec.workers=7", "vec.num_worlds=2"],
    }.items():
        suite = load(REAL, *overrides, architecture=fixed)
        result = evaluate_suite(suite, tmp_path / name, checkpoint=tmp_path / "driver")
        assert (result.ok, result.exit_code) == (True, 0), result.report
        found[name] = lasting(tmp_path / name)
        assert not list((tmp_path / name).glob("pass.tmp-*"))
    for name, run in found.items():
        assert run == found["inline"], name

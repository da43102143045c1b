"""`skidpad verify` and `skidpad replay` of runs of drivers: cases that are driven again repeat, and what is gone or was
changed is said by name.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skidpad.artifacts.digests import digest_file
from skidpad.artifacts.files import parse_json
from skidpad.cli import run as command_line
from skidpad.evaluation import again
from skidpad.evaluation.evaluators import TYPES
from skidpad.evaluation.manager import EvalManager
from skidpad.evaluation.verify import Findings, verify_run
from skidpad.policies.checkpoint import architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.policies.policy import PolicySpec
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import read_records
from skidpad.runs.trace_file import read_trace
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings, NetworkSettings
from skidpad.settings.suite import load_suite, recorded_spec

SUITE = """
    [eval.a]
    type = "human_replay"
    env.scenes = ["own/straight.scene", "own/crossing.scene"]
    env.scenario_length = 12
    eval.worst_n = 1
    eval.resamples = 100
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
    [eval.b]
    type = "multi_scenario"
    env.scenes = "own/crossing.scene"
    env.scenario_length = 8
    keep_traces = "none"
    eval.replicates = 2
    eval.resamples = 100
    eval.skip_metrics = ["nuplan_*", "pdms_*", "epdms_*"]
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
"""


class Home:
    """A finished run of a network, beside its scenes and weights, which tests change."""

    def __init__(self, path: Path) -> None:
        self.path, self.run, self.weights = path, path / "run", path / "driver.safetensors"
        self.scenes = path / "own"

    def verify(self, **asked: Any) -> Findings:
        return verify_run(self.run, **asked)

    def rewrite(self, name: str, old: str, new: str) -> None:
        """Change a file of the run, and its digest in the report with it."""
        path, report = self.run / name, self.run / "report.json"
        before, text = digest_file(path), path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        report.write_text(report.read_text().replace(before, digest_file(path)))


def write_network(path: Path, seed: int = 0) -> dict[str, Any]:
    """A small driver with random weights; what it fixes in a suite."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        architecture = architecture_for(EnvSettings(), NetworkSettings(hidden=(16,), encoder=8, memory="none"))
        save_checkpoint(path, ActorCritic(architecture.network), architecture, overwrite=True)
    return architecture.settings()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `Home`, as it was left by `skidpad eval`."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "own").mkdir()
    for name in ("straight", "crossing"):
        save_scene(synthetic(name), folder / "own" / f"{name}.scene")
    write_network(folder / "driver.safetensors")
    (folder / "suite.toml").write_text(SUITE)
    out = folder / "run"
    command = [
        "eval",
        str(folder / "suite.toml"),
        "--checkpoint",
        str(folder / "driver.safetensors"),
        "--out",
        str(out),
    ]
    assert command_line(command) == 0
    return folder


@pytest.fixture
def home(finished: Path, tmp_path: Path) -> Home:
    """A copy of the run; scenes and weights lie where the run found them, until a test says otherwise."""
    shutil.copytree(finished, tmp_path / "home")
    home = Home(tmp_path / "home")
    manifest, report = home.run / "manifest.json", home.run / "report.json"
    before = digest_file(manifest)
    for path in (manifest, report):
        path.write_text(path.read_text().replace(str(finished), str(home.path)))
    report.write_text(report.read_text().replace(before, digest_file(manifest)))
    return home


def test_any_row_replays_exactly(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """any_row_replays_exactly E105, E116 (real): every record of a run, a network's and the baselines', comes out equal
    when its case is simulated again, and so do scenes, weights and the metrics of every kept trace."""
    run = finished / "run"
    assert command_line(["verify", str(run), "--replay", "1000", "--assets", str(finished / "own")]) == 0
    said = capsys.readouterr().out
    rows = len(list(read_records(RunFolder(run).records)))
    assert rows == 4 * 5
    assert f"{rows} records of 4 cases simulated again, {rows} repeat exactly" in said
    assert "2 of 2 scenes, every byte" in said
    assert "1 of 1 weights" in said
    kept = len(list((run / "traces").rglob("*.trace")))
    assert f"metrics of {kept} kept traces" in said
    record = next(r for r in read_records(RunFolder(run).records) if r.evaluator == "b" and r.arm == "policy")
    out = tmp_path / "out"
    assert (
        command_line(["replay", str(run), record.case[:12], "--evaluator", "b", "--arm", "policy", "--out", str(out)])
        == 0
    )
    assert "repeats exactly" in capsys.readouterr().out
    (path,) = out.rglob("*.trace")
    assert read_trace(path).digest == record.result["trace_digest"]
    assert command_line(["replay", str(run), "", "--arm", "policy"]) == 2
    assert "begins 3 cases" in capsys.readouterr().err
    assert command_line(["replay", str(run), record.case, "--arm", "polcy"]) == 2


def test_as_many_as_asked_for(finished: Path) -> None:
    """E116: K cases are drawn by the head of the chain, the same every time, each with every driver that had it."""
    one, other = (verify_run(finished / "run", replay=1) for _ in range(2))
    assert one.done == other.done
    assert one.exit_code == 0
    assert "5 records of 1 cases simulated again, 5 repeat exactly" in one.done


def gone(home: Home) -> None:
    home.weights.unlink()


def moved(home: Home) -> None:
    (home.path / "elsewhere").mkdir()
    home.weights.rename(home.path / "elsewhere" / "other.safetensors")


def other_weights(home: Home) -> None:
    write_network(home.weights, seed=1)


def scene_gone(home: Home) -> None:
    (home.scenes / "straight.scene").unlink()


def scene_changed(home: Home) -> None:
    (home.scenes / "straight.scene").unlink()
    save_scene(synthetic("straight", 5), home.scenes / "straight.scene")


def scene_flipped(home: Home) -> None:
    path = home.scenes / "straight.scene"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


FAULTS: dict[str, tuple[Callable[[Home], None], int, str]] = {
    "weights gone": (gone, 2, "are in no file at"),
    "weights moved": (moved, 0, ""),
    "other weights": (other_weights, 3, "holds weights"),
    "scene gone": (scene_gone, 2, "is not at"),
    "scene changed": (scene_changed, 3, "holds scene"),
    "scene damaged": (scene_flipped, 3, "straight.scene"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_gone_or_changed_is_named(home: Home, name: str) -> None:
    """E116, EF10, EF13: weights and scenes that are gone cannot be checked (exit 2), others in their place are a
    difference (exit 3), each in a sentence with the file; where they moved to is searched. What does not depend on them
    is driven and checked all the same."""
    fault, code, said = FAULTS[name]
    fault(home)
    elsewhere = home.path / "elsewhere"
    found = home.verify(assets=home.scenes, checkpoints=elsewhere if elsewhere.exists() else None, replay=1000)
    assert found.exit_code == code, (found.problems, found.undone)
    told = found.problems if code == 3 else found.undone
    assert any(said in line for line in told) == bool(said), told
    assert any("repeat exactly" in line for line in found.done)
    if code == 2:
        assert found.problems == []


def test_a_record_that_its_case_does_not_give(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """E105, E116: a record changed with every digest over it holds until its case is driven again. Driven by other code
    the same difference says nothing, and an equal record still says that it repeats."""
    record = next(r for r in read_records(RunFolder(home.run).records) if r.evaluator == "b" and r.arm == "idm")
    right = record.result["state_hash"]
    home.rewrite("records.jsonl", record.line(), record.line().replace(right, "0" * len(right)))
    assert home.verify().problems == []
    found = home.verify(replay=1000)
    assert found.exit_code == 3
    text = f"b, case {record.case}, arm 'idm': simulated again it gives another result.state_hash."
    assert found.problems == [text]
    monkeypatch.setattr(again, "code_digests", lambda: {"code": "0", "kernels": "0"})
    found = home.verify(replay=1000)
    assert found.exit_code == 2
    (line,) = found.undone
    assert "nothing follows (code " in line
    assert any("19 repeat exactly (code" in line for line in found.done)


def test_traces_are_those_of_their_records(home: Home) -> None:
    """E116: a kept trace exchanged for another of the run is not the one that was scored; a record that says other
    numbers than its trace measures to is found without driving anything."""
    one, other = sorted((home.run / "traces" / "a").iterdir())[:2]
    report = home.run / "report.json"
    a, b = digest_file(one), digest_file(other)
    text = report.read_text().replace(a, "%").replace(b, a).replace("%", b)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    report.write_text(text)
    found = home.verify()
    assert len([line for line in found.problems if "is not the trace that its record was measured on" in line]) == 2


def test_a_record_is_measured_again(home: Home) -> None:
    """E116: metrics of kept traces are recomputed: a value changed in a record is accused by its trace."""
    records = list(read_records(RunFolder(home.run).records))
    record = next(r for r in records if RunFolder(home.run).trace("a", r.case, r.arm, 0).exists() and r.arm == "idm")
    line = record.line()
    assert '"n_agents":1' in line
    home.rewrite("records.jsonl", line, line.replace('"n_agents":1', '"n_agents":2'))
    found = home.verify()
    text = f"a, case {record.case}, arm 'idm': its trace measures to another result.n_agents."
    assert text in found.problems


class Straight:
    """An object that drives, and lies in no file."""

    spec = PolicySpec("straight", "compact/1", "continuous")

    def initial_state(self, rows: int) -> None:
        return None

    def act(self, observation, state, reset, *, selection, streams, simulator=None):
        return np.zeros((len(observation), 2), np.float32), state


def test_a_driver_that_was_an_object(home: Home) -> None:
    """E116: what was handed over as an object cannot drive again: exit 2 for its rows, while the others repeat."""
    suite = load_suite(home.path / "suite.toml", ["eval.b.enabled=false"], types=TYPES)
    with EvalManager(suite, home.path / "other", policy=Straight(), policy_digest="w") as manager:
        manager.run_all()
        manager.finish()
    found = verify_run(home.path / "other", replay=1000)
    assert found.exit_code == 2
    assert found.undone == [
        "weights w are in no file that the run names. Say --checkpoints with a folder that holds them."
    ]
    assert "8 records of 2 cases simulated again, 8 repeat exactly" in found.done


def test_settings_that_are_not_the_registered_ones(home: Home) -> None:
    """E116: a setting edited in the manifest, and the report with it, is not what the section's digest says."""
    home.rewrite("manifest.json", '"scenario_length":8', '"scenario_length":9')
    found = home.verify(replay=1000)
    assert "manifest.json: the settings of b are not those of its section digest." in found.problems
    assert found.exit_code == 3


def test_a_section_survives_its_manifest(finished: Path) -> None:
    """E17, E18: the section read back from a manifest has the digest that it was registered with, for every type."""
    manifest = parse_json((finished / "run" / "manifest.json").read_bytes())
    for name, part in manifest["evaluators"].items():
        spec = recorded_spec(name, json.loads(json.dumps(part["settings"])), TYPES[part["type"]])
        assert spec.section_digest(list(part["scenes"])) == part["digests"]["section"]
        assert spec.tree == part["settings"]


def test_unfinished_runs_are_not_replayed(home: Home) -> None:
    """E99, E116: a run without report has nothing to be held against: exit 2 where driving again was asked for."""
    (home.run / "report.json").unlink()
    assert home.verify().exit_code == 1
    assert home.verify(replay=1).exit_code == 2

"""Whole runs on real worlds: a report with every file, repeatable from any row, whatever went wrong on the way."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skidpad.errors import CheckpointError
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.evaluation.manager import EvalManager, evaluate_suite
from skidpad.evaluation.metrics.registry import METRICS, compute
from skidpad.evaluation.summary import deterministic_report
from skidpad.policies.checkpoint import architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.policies.policy import PolicySpec
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import deterministic, read_records
from skidpad.runs.trace_file import read_trace
from skidpad.scenes.archive import load_scene
from skidpad.settings.schema import EnvSettings, NetworkSettings
from skidpad.settings.suite import load_suite

ARMS = ["stationary", "constant_velocity", "random", "idm", "log", "log_actions"]
SUITE = """
    [eval.a]
    type = "{type}"
    env.scenes = ["{scenes}/straight-0.scene", "{scenes}/straight-1.scene", "{scenes}/crossing.scene"]
    env.scenario_length = 20
    eval.worst_n = 1
    eval.resamples = 200
"""


FEWER = 'eval.baselines=["stationary", "constant_velocity", "idm", "log"]'


def text() -> str:
    return SUITE.replace("{type}", "human_replay")


def both() -> str:
    """human_replay as `a`, all traces kept, and every vehicle of one scene in turn as `b`."""
    second = SUITE.replace("{type}", "multi_scenario").replace("eval.a", "eval.b")
    second = second.replace('"{scenes}/straight-0.scene", "{scenes}/straight-1.scene", ', "")
    return text() + '    keep_traces = "all"\n' + second + '    eval.egos = "each"\n'


class Poisoned:
    """Drives straight on; in worlds of one scene it raises, or gives something that is no action."""

    spec = PolicySpec("poisoned", "compact/1", "continuous", needs_state=True)

    def __init__(self, scene: str, poison: Any) -> None:
        self.scene, self.poison = scene, poison

    def initial_state(self, rows: int) -> None:
        return None

    def act(self, observation, state, reset, *, selection, streams, simulator=None):
        actions = np.zeros((len(observation), 2), np.float32)
        rows = [row for row, world in enumerate(simulator.row_world) if simulator.cases[world].scene_id == self.scene]
        if rows and int(simulator.steps_taken.max()) == 3:
            return self.poison(actions, rows), state
        return actions, state


@pytest.fixture(scope="module")
def finished(scene_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run of human_replay and of multi_scenario over three scenes, all traces of the first kept."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "suite.toml").write_text(both().replace("{scenes}", str(scene_folder)))
    suite = load_suite(folder / "suite.toml", types=TYPES)
    result = evaluate_suite(
        suite, folder / "run", page=lambda folder, report: f"<p>{report['verdict']}</p>", reproduce="again"
    )
    assert (result.ok, result.exit_code) == (True, 0), result.report
    return result.folder


def test_a_run_leaves_every_file(finished: RunFolder) -> None:
    """E80, E99: manifest, chain, records, tables, page and report; the report lists the digests of all others."""
    names = {path.relative_to(finished.path).as_posix() for path in finished.files()}
    expected = {
        "manifest.json", "chain.jsonl", "records.jsonl", "eval_summary.csv", "report.html",
        "a/episodes.csv", "a/summary.csv", "b/episodes.csv", "b/summary.csv",
    }  # fmt: skip
    assert expected <= names
    report = finished.read_report()
    assert set(report["files"]) == names
    assert report["reproduce"] == "again"
    assert set(report["evaluators"]) == {"a", "b"}
    for part in report["evaluators"].values():
        assert set(part["arms"]) == set(ARMS)
        assert set(part["arms"]["idm"]["metrics"]) == set(METRICS)
        assert part["coverage"]["complete"]
        assert part["few_clusters"]
        assert set(part["floor"]) == {"collision_rate", "offroad_rate"}
        assert part["seconds"]["eval_seconds"] > 0


def test_every_scene_has_its_rows(finished: RunFolder) -> None:
    """E66, E76: one case per scene and arm, one vehicle each, its choice in the record; with `each`, more."""
    with (finished.path / "a" / "episodes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(ARMS)
    assert {row["n_agents"] for row in rows} == {"1"}
    assert {row["ego_rule"] for row in rows} <= {"scene", "longest_valid"}
    assert all(int(row["ego"]) >= 0 for row in rows)
    with (finished.path / "b" / "episodes.csv").open(newline="") as file:
        each = list(csv.DictReader(file))
    assert {row["ego_rule"] for row in each} == {"each"}
    assert len(each) > len(rows)


def test_the_log_is_the_floor(finished: RunFolder) -> None:
    """Issue 2, truth check: the log reaches its own goals without displacement, whoever else is worse."""
    for part in finished.read_report()["evaluators"].values():
        log, standing = part["arms"]["log"]["metrics"], part["arms"]["stationary"]["metrics"]
        assert log["ade_log"]["value"] == pytest.approx(0, abs=1e-4)
        assert log["progress_ratio"]["value"] == pytest.approx(1, abs=0.01)
        assert standing["progress_ratio"]["value"] < 0.9


def test_metrics_from_disk_equal_those_recorded(finished: RunFolder, scene_folder: Path) -> None:
    """E118, Q1: every metric of a trace read back from disk is the one in the record, to the last bit."""
    scenes = {scene.digest: scene for scene in (load_scene(path) for path in scene_folder.iterdir())}
    kept = 0
    for record in read_records(finished.records):
        path = finished.trace(record.evaluator, record.case, record.arm, record.step)
        if record.evaluator == "a":
            trace = read_trace(path)
            assert trace.digest == record.result["trace_digest"]
            again = {name: value.as_record() for name, value in compute(trace, scenes[record.scene_digest]).items()}
            assert again == record.result["metrics"]
            kept += 1
    assert kept == 3 * len(ARMS)


def test_selected_traces_are_kept_for_every_arm(finished: RunFolder) -> None:
    """E78, E100: by default the worst and the random cases can be looked at, driven by every arm, and no others."""
    part = finished.read_report()["evaluators"]["b"]
    chosen = {entry["case"] for entry in part["worst"] + part["random"]}
    assert chosen
    for entry in part["worst"] + part["random"]:
        assert set(entry["arms"]) == set(ARMS)
        assert all((finished.path / path).is_file() for path in entry["arms"].values())
    names = {path.name.partition("@")[0] for path in (finished.path / "traces" / "b").iterdir()}
    assert names == chosen


def test_results_do_not_depend_on_batches(load, tmp_path: Path, finished: RunFolder) -> None:
    """E46, E52, EF30: worlds per batch and threads are no input: records, tables and the report are equal."""
    folder = tmp_path / "other"
    suite = load(both(), "vec.num_worlds=2", "vec.threads=2")
    assert evaluate_suite(suite, folder, page=lambda folder, report: "p").ok
    whole = {record.key: deterministic(record) for record in read_records(finished.records)}
    assert {record.key: deterministic(record) for record in read_records(folder / "records.jsonl")} == whole
    for name in ("a", "b"):
        assert (folder / name / "episodes.csv").read_bytes() == (finished.path / name / "episodes.csv").read_bytes()
    one, other = deterministic_report(finished.read_report()), deterministic_report(RunFolder(folder).read_report())
    assert one["evaluators"] == other["evaluators"]


def test_checkpoints_drive(load, tmp_path: Path) -> None:
    """E16, E80, E48: a checkpoint file is evaluated beside all baselines, its digest is in every record of its arm, and
    its actions do not depend on the batch."""
    torch.manual_seed(0)
    architecture = architecture_for(
        EnvSettings(), NetworkSettings(encoder=4, hidden=(16,), memory="gru", memory_width=8)
    )
    digest = save_checkpoint(tmp_path / "driver", ActorCritic(architecture.network), architecture, step=3)
    suite = load(text(), FEWER, "vec.infer_batch=4", architecture=architecture.settings())
    result = evaluate_suite(suite, tmp_path / "run", checkpoint=tmp_path / "driver")
    assert (result.ok, result.exit_code) == (True, 0)
    part = result.report["evaluators"]["a"]
    assert set(part["arms"]) == {"policy", "stationary", "constant_velocity", "idm", "log"}
    assert part["focus"] == "policy"
    assert part["batch_sensitive"] is None
    assert {r.checkpoint for r in read_records(result.folder.records) if r.arm == "policy"} == {digest}
    assert {r.checkpoint for r in read_records(result.folder.records) if r.arm != "policy"} == {""}
    refused = load(text(), "env.num_goals=5")
    with pytest.raises(CheckpointError, match="num_goals is 3 in the file, 5 in the world"):
        evaluate_suite(refused, tmp_path / "refused", checkpoint=tmp_path / "driver")
    assert not (tmp_path / "refused" / "manifest.json").exists()


def boom(actions: np.ndarray, rows: list[int]) -> np.ndarray:
    raise ZeroDivisionError("the policy divides by zero")


def with_nan(actions: np.ndarray, rows: list[int]) -> np.ndarray:
    actions[rows[0]] = np.nan
    return actions


@pytest.mark.parametrize(
    ("poison", "kind"),
    [(boom, "ZeroDivisionError"), (with_nan, "ActionError"), (lambda a, rows: a[:-1], "ProtocolError")],
)
def test_one_bad_case_leaves_the_others(load, tmp_path: Path, scene_folder: Path, poison: Any, kind: str) -> None:
    """E30, E60, EF15, F37: a policy that raises, gives NaN or a wrong shape in one scene fails that case, with its
    traceback in the record; the other cases are those of a run without it, the exit code is 1."""
    scene = load_scene(scene_folder / "crossing.scene").meta.scene_id
    with EvalManager(
        load(text(), FEWER), tmp_path / "run", policy=Poisoned(scene, poison), policy_digest="w"
    ) as manager:
        result = manager.run_all()["a"]
        report = manager.finish()
    assert manager.exit_code == 1
    assert (result.ok, result.status) == (False, "failed")
    records = {r.scene_id: r for r in read_records(RunFolder(tmp_path / "run").records) if r.arm == "policy"}
    assert records[scene].status == "error"
    assert records[scene].error["type"] == kind
    assert "Traceback" in records[scene].error["traceback"]
    assert report["evaluators"]["a"]["coverage"]["failed"] == {kind: 1}
    straight = {
        r.scene_id: r for r in read_records(RunFolder(tmp_path / "run").records) if r.arm == "constant_velocity"
    }
    for name, record in records.items():
        if name != scene:
            assert record.status == "ok"
            # Driving straight on is what constant_velocity does; only the names of the arms differ.
            assert record.result["metrics"] == straight[name].result["metrics"]


def test_scene_that_changes_under_the_run(load, tmp_path: Path, scene_folder: Path) -> None:
    """F46, EF10: a scene exchanged after the manifest fails its cases with both digests; the others finish."""
    own = tmp_path / "own"
    own.mkdir()
    for name in ("straight-0", "crossing", "curve"):
        shutil.copy(scene_folder / f"{name}.scene", own / f"{name}.scene")
    before = load_scene(own / "curve.scene").digest
    suite = load(
        text().replace(
            '["{scenes}/straight-0.scene", "{scenes}/straight-1.scene", "{scenes}/crossing.scene"]', f'"{own}"'
        )
    )
    with EvalManager(suite, tmp_path / "run") as manager:
        manager._register(["a"])
        (own / "curve.scene").unlink()
        shutil.copy(scene_folder / "straight-3.scene", own / "curve.scene")
        (own / "crossing.scene").unlink()
        result = manager.run_all()["a"]
    after = load_scene(own / "curve.scene").digest
    assert not result.ok
    statuses = {
        r.scene_id: (r.status, r.error) for r in read_records(RunFolder(tmp_path / "run").records) if r.arm == "log"
    }
    by_status = sorted(status for status, _ in statuses.values())
    assert by_status == ["error", "invalid", "ok"]
    message = next(error["message"] for status, error in statuses.values() if status == "invalid")
    assert before in message
    assert after in message


def test_unreadable_scene_is_an_error_row(load, tmp_path: Path, scene_folder: Path) -> None:
    """EF11, F37: a scene that does not load is a row with its reason for every arm; the rest finishes; exit 1."""
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(scene_folder / "straight-0.scene", own)
    (own / "broken.scene").write_bytes((scene_folder / "curve.scene").read_bytes()[:3000])
    suite = load(
        text().replace(
            '["{scenes}/straight-0.scene", "{scenes}/straight-1.scene", "{scenes}/crossing.scene"]', f'"{own}"'
        )
    )
    result = evaluate_suite(suite, tmp_path / "run")
    assert (result.ok, result.exit_code) == (False, 1)
    broken = [r for r in read_records(result.folder.records) if r.scene_id == "broken"]
    assert len(broken) == len(ARMS)
    assert {r.error["type"] for r in broken} == {"CaseError"}
    assert all("broken.scene" in r.error["message"] for r in broken)
    assert result.report["evaluators"]["a"]["arms"]["idm"]["n_cases"] == 1


class Drifting:
    """Not deterministic: each call drives a little harder than the one before."""

    spec = PolicySpec("drifting", "compact/1", "continuous")

    def __init__(self) -> None:
        self.calls = 0

    def initial_state(self, rows: int) -> None:
        return None

    def act(self, observation, state, reset, *, selection, streams, simulator=None):
        self.calls += 1
        return np.full((len(observation), 2), 1e-4 * self.calls, np.float32), state


def test_a_driver_that_does_not_repeat_is_found(load, tmp_path: Path, capsys) -> None:
    """E105, E104: simulated again, a kept case must give the recorded trace; if not, the page would show another drive
    than the one that was scored. Verification failed: exit 3."""
    with EvalManager(load(text(), FEWER), tmp_path / "run", policy=Drifting(), policy_digest="w") as manager:
        result = manager.run_all()["a"]
    assert not result.ok
    assert result.error["type"] == "IntegrityError"
    assert "simulated again it gives trace" in result.error["message"]
    assert manager.exit_code == 3
    assert "IntegrityError" in capsys.readouterr().err


def test_types_are_registered_once() -> None:
    """E10, E63: the settings and the manager know the same types, by their own names."""
    assert {name: kind.TYPE for name, kind in EVALUATORS.items()} == dict(TYPES)
    assert set(TYPES) == {"multi_scenario", "human_replay", "behavior_class", "realism"}

"""When evaluators run, and that one which fails leaves the others alone; on stubs that simulate nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stub_evaluator import STUBS, StubEvaluator

from skidpad.errors import ProtocolError, SettingsError, UsageError
from skidpad.evaluation.manager import EvalManager
from skidpad.evaluation.schedule import EvalResult, is_due
from skidpad.policies.policy import PolicySpec
from skidpad.runs.chain import read_chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import read_records

THREE = """
    [eval.often]
    type = "stub"
    interval = 25
    keep_traces = "none"
    env.scenes = "{scenes}/straight-*.scene"
    [eval.seldom]
    inherits = "often"
    interval = 250
    [eval.never]
    inherits = "often"
    interval = 0
"""


class Standing:
    """A policy object that is never asked to act: the stub evaluator simulates nothing."""

    spec = PolicySpec("standing", None, None)

    def initial_state(self, rows: int) -> None:
        return None

    def act(self, observation: Any, state: Any, reset: Any, **rest: Any) -> Any:
        raise AssertionError("nothing is simulated here")


@pytest.fixture
def manager(load, tmp_path: Path, stub):
    """manager(text, *overrides, **options): an entered EvalManager over stubs; left when the test ends."""
    entered: list[EvalManager] = []

    def build(text: str = THREE, *overrides: str, **options: Any) -> EvalManager:
        folder = tmp_path / f"run-{len(entered)}"
        made = EvalManager(load(text, *overrides), folder, evaluators=STUBS, **options)
        entered.append(made.__enter__())
        return made

    yield build
    for item in entered:
        item.__exit__(None, None, None)


def test_fires_by_interval_and_enabled(load) -> None:
    """E22: intervals count epochs; 0 is never, not always; a disabled one never fires on schedule."""
    suite = load(THREE + '    [eval.off]\n    inherits = "often"\n    enabled = false\n')

    def due(epoch: int) -> list[str]:
        return [name for name in suite.names if is_due(suite.spec(name), epoch, force=False)]

    assert due(25) == ["often"]
    assert due(250) == ["often", "seldom"]
    assert due(50) == ["often"]
    assert due(33) == []


def test_epoch_zero_needs_at_start(load) -> None:
    """E23: zero is divisible by everything, so the first epoch needs a word of its own."""
    assert not is_due(load(THREE).spec("often"), 0, force=False)
    assert is_due(
        load(THREE.replace("interval = 25\n", "interval = 25\n    at_start = true\n")).spec("often"), 0, force=False
    )


def test_end_runs_once_per_checkpoint(manager) -> None:
    """E24, E25: at the end only what has an interval runs, and not again on weights that were just scored."""
    training = manager(policy=Standing(), policy_digest="one")
    assert list(training.maybe_run(250, 1000)) == ["often", "seldom"]
    count = len(StubEvaluator.ran)
    results = training.maybe_run(250, 1000, force=True)
    assert list(results) == ["often", "seldom"]
    assert all(result.cached for result in results.values())
    assert len(StubEvaluator.ran) == count
    final = training.maybe_run(260, 1040, force=True, policy=Standing(), policy_digest="two")
    assert not any(result.cached for result in final.values())
    # Baselines depend on no weights: the second pass runs the policy's arm alone.
    assert {arm for _, arm, _ in StubEvaluator.ran[count:]} == {"policy"}
    assert {record.step for record in read_records(training.folder.records) if record.checkpoint == "two"} == {1040}


def test_interval_zero_only_by_name(manager) -> None:
    """E22, E26: an evaluator without interval, or a disabled one, still runs when named; unknown names are listed."""
    assert manager().run_one_by_name("never").ok
    text = THREE + '    [eval.off]\n    inherits = "often"\n    enabled = false\n'
    assert manager(text).run_one_by_name("off").ok
    with pytest.raises(SettingsError, match="oftn"):
        manager().run_one_by_name("oftn")


def test_a_folder_is_registered_for_its_evaluators(manager) -> None:
    """E99: the manifest says first what runs; something else needs a folder of its own, not a silent addition."""
    first = manager()
    first.run_one_by_name("never")
    with pytest.raises(ProtocolError, match="was started for never; run often, seldom into a folder"):
        first.run_all()


def test_one_failure_leaves_the_others(manager, stub, capsys) -> None:
    """E29, F37, EF24: the middle one raises: ok is 1, 0, 1, its traceback is printed and kept, the exit code is 1."""
    stub.broken = {"seldom"}
    run = manager()
    results = run.run_all()
    assert {name: result.ok for name, result in results.items()} == {"often": True, "seldom": False, "never": True}
    assert [results[name].values[f"{name}/ok"] for name in results] == [1.0, 0.0, 1.0]
    assert "ZeroDivisionError: seldom is broken" in results["seldom"].error["traceback"]
    assert "ZeroDivisionError: seldom is broken" in capsys.readouterr().err
    report = run.finish()
    assert run.exit_code == 1
    assert not report["ok"]
    assert report["evaluators"]["seldom"]["error"]["type"] == "ZeroDivisionError"
    assert report["evaluators"]["never"]["ok"]
    assert "ended by ZeroDivisionError" in report["verdict"]
    events = [event["event"] for event in read_chain(run.folder.chain)]
    assert events.count("evaluator_failed") == 1


def test_all_may_fail(manager, stub) -> None:
    """EF25: training goes on with a result per evaluator, none of them ok."""
    stub.broken = {"often", "seldom", "never"}
    results = manager().run_all()
    assert len(results) == 3
    assert not any(result.ok for result in results.values())


def test_fail_fast_stops_at_the_first(manager, stub) -> None:
    """E29: whoever debugs a suite wants the first failure, not the last."""
    stub.broken = {"often"}
    run = manager("[eval]\nfail_fast = true\n" + THREE)
    assert list(run.run_all()) == ["often"]
    report = run.finish()
    assert report["evaluators"]["seldom"]["status"] == "incomplete"


def test_failed_case_is_a_row(manager, stub) -> None:
    """E30: one of four cases fails: its rows are there, coverage is incomplete, ok is 0, the others have values."""
    stub.failing = {2}
    run = manager()
    result = run.run_all()["often"]
    assert not result.ok
    assert result.status == "failed"
    assert result.coverage["failed"] == {"CaseError": 6}
    assert not result.coverage["complete"]
    records = [record for record in read_records(run.folder.records) if record.evaluator == "often"]
    assert sorted(record.status for record in records if record.arm == "idm") == ["error", "ok", "ok", "ok"]
    assert run.finish()["evaluators"]["often"]["arms"]["idm"]["metrics"]["score"]["n"] == 3
    assert run.exit_code == 1


def test_order_of_sections_is_no_input(manager) -> None:
    """E27: an evaluator that moved shared state would change its successor."""
    one, other = manager(), manager()
    for name in ("often", "seldom"):
        one._register(["often", "seldom"])
        one.run_one_by_name(name)
    for name in ("seldom", "often"):
        other._register(["often", "seldom"])
        other.run_one_by_name(name)

    def lines(run: EvalManager) -> list[str]:
        return sorted(record.line() for record in read_records(run.folder.records))

    assert lines(one) == lines(other)


def test_baselines_stand_beside_every_driver(manager) -> None:
    """E71: a bare score means nothing: the same cases are driven by every baseline, whoever is under test."""
    arms = ["stationary", "constant_velocity", "random", "idm", "log", "log_actions"]
    run = manager()
    run.run_one_by_name("never")
    part = run.finish()["evaluators"]["never"]
    assert list(part["arms"]) == arms
    assert part["focus"] == "idm"
    named = manager(policy_name="constant_velocity")
    named.run_one_by_name("never")
    assert named.finish()["evaluators"]["never"]["focus"] == "constant_velocity"
    dropped = manager(THREE, 'eval.baselines=["stationary", "constant_velocity", "idm", "log"]', policy_name="random")
    dropped.run_one_by_name("never")
    assert next(iter(dropped.finish()["evaluators"]["never"]["arms"])) == "random"
    own = manager(policy=Standing(), policy_digest="w")
    own.run_one_by_name("never")
    assert list(own.finish()["evaluators"]["never"]["arms"]) == ["policy", *arms]


class Crowd(Standing):
    """Acts by how many there are, which no driver may know."""

    def act(self, observation: Any, state: Any, reset: Any, **rest: Any) -> Any:
        return np.full((len(observation), 2), len(observation) / 100, np.float32), state


def test_row_dependent_driver_is_marked(manager) -> None:
    """E48, EF18: actions that change with the batch make every promise of equality void, so the report says it; a
    driver that cannot be asked is not taken for a good one."""
    for policy, said in ((Crowd(), "depend on the batch"), (Standing(), "could not be checked (AssertionError")):
        run = manager(policy=policy, policy_digest="w")
        run.run_one_by_name("never")
        assert said in run.finish()["evaluators"]["never"]["batch_sensitive"]
    plain = manager()
    plain.run_one_by_name("never")
    assert plain.finish()["evaluators"]["never"]["batch_sensitive"] is None


def test_one_driver_under_test(load, tmp_path: Path) -> None:
    """E80: two drivers under test, an unknown one, and weights without an identity are told before anything runs."""
    suite = load(THREE)
    with pytest.raises(UsageError, match="give one driver"):
        EvalManager(suite, tmp_path / "r", policy_name="idm", checkpoint=tmp_path / "x")
    with pytest.raises(UsageError, match=r"unknown policy 'idmm'; did you mean 'idm'"):
        EvalManager(suite, tmp_path / "r", policy_name="idmm")
    with pytest.raises(UsageError, match="policy_digest"):
        EvalManager(suite, tmp_path / "r", policy=Standing())
    assert not (tmp_path / "r").exists()


def test_tracker_values_are_numbers(manager) -> None:
    """E74, E75: keys are "<evaluator>/<metric>", with both weightings, the number of invalid cases, ok and timings."""
    values = manager().run_one_by_name("never").values
    for key in ("score", "score_by_scene", "score_by_agent", "score_invalid", "ok"):
        assert f"never/{key}" in values
    for key in ("eval_seconds", "setup_seconds", "rollout_seconds", "metric_seconds", "cases_per_second"):
        assert f"never/{key}" in values
    assert all(type(value) is float for value in values.values())


def test_progress_is_told_and_written(manager, stub) -> None:
    """E49: a callback with (text, done, total), and a file for other readers that goes when the run is finished."""
    told: list[tuple[str, int, int]] = []
    run = manager(progress=lambda text, done, total: told.append((text, done, total)))
    stub.after = staticmethod(lambda: None)
    run.run_one_by_name("never")
    assert told[0] == ("never", 0, 24)
    assert told[-1] == ("never", 24, 24)
    assert '"done":24' in run.folder.progress.read_text()
    run.finish()
    assert not run.folder.progress.exists()


def test_finished_folders_say_so_to_the_next(manager) -> None:
    """F41: a second run into a finished folder would change a result that was published."""
    run = manager()
    run.run_one_by_name("never")
    run.finish()
    run.__exit__(None, None, None)
    with pytest.raises(UsageError, match="finished"), RunFolder(run.folder.path).held():
        pass


def test_sealed_sections_run_beside_the_suites(manager) -> None:
    """E22, E28: one call of training runs what is due of both kinds, and on other ranks neither."""

    class Passes:
        def maybe_run(self, epoch: int, step: int, *, force: bool = False) -> dict[str, EvalResult]:
            return {"mapper": EvalResult("mapper", True, "ok", {"step": step, "force": force}, {})} if epoch else {}

    both = manager(policy=Standing(), policy_digest="a", sealed=Passes())
    assert both.maybe_run(0, 0) == {}
    results = both.maybe_run(25, 7)
    assert list(results) == ["often", "mapper"]
    assert results["mapper"].values == {"step": 7, "force": False}
    assert manager(policy=Standing(), policy_digest="a", sealed=Passes(), rank=1, ranks=2).maybe_run(25, 7) == {}

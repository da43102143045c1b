"""The realism evaluator: joint rollouts of everybody, scored among baselines of the same scenes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skidpad.errors import CaseError, SettingsError
from skidpad.evaluation.evaluator import Arm, Finished, Plan
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.evaluation.evaluators.realism import Realism
from skidpad.evaluation.manager import evaluate_suite
from skidpad.evaluation.metrics import rollout_registry
from skidpad.evaluation.metrics.rollout_registry import compute_rollouts
from skidpad.evaluation.rollout import joined
from skidpad.evaluation.rollout_scenes import scene_case, trace_rollouts
from skidpad.evaluation.rollouts import POSE, Rollouts
from skidpad.evaluation.sources import SceneSources
from skidpad.evaluation.verify import verify_run
from skidpad.policies.baselines import BASELINES
from skidpad.reporting.report import run_page
from skidpad.runs.records import deterministic
from skidpad.runs.trace_file import encode_trace, read_trace
from skidpad.scenes.archive import load_scene
from skidpad.scenes.library import library_scenes
from skidpad.settings.suite import load_suite

SCENES = [library_scenes("behaviours/yielding-0")[0], library_scenes("behaviours/lane_change-1")[0]]
FEW = "eval.rollouts = 4\neval.not_standard = true\n"


def section(folder: Path, *lines: str, kind: str = "realism") -> Any:
    listed = json.dumps([str(path) for path in SCENES])
    (folder / "suite.toml").write_text("\n".join([f'[eval.r]\ntype = "{kind}"\nenv.scenes = {listed}', *lines]))
    return load_suite(folder / "suite.toml", types=TYPES)


def evaluator_of(folder: Path, *lines: str) -> Realism:
    found = EVALUATORS["realism"](section(folder, *lines).spec("r"), SceneSources())
    assert isinstance(found, Realism)
    return found


def arm(name: str) -> Arm:
    baseline = BASELINES[name]
    return Arm(name, baseline.policy("continuous", "classic", "none") if baseline.policy else None, baseline.controller)


def by_scene(finished: list[Finished]) -> dict[str, Finished]:
    return {one.record.scene_id: one for one in finished}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Finished]]:
    """Two scenes with four arms, four rollouts each where there is chance."""
    evaluator = evaluator_of(tmp_path_factory.mktemp("realism"), FEW)
    names = ("log", "stationary", "constant_velocity", "random")
    return {name: by_scene(evaluator.run(arm(name), evaluator.plan.cases)) for name in names}


def value(one: Finished, metric: str) -> float:
    assert one.record.result is not None, one.record.error
    found: float = one.record.result["metrics"][metric]["value"]
    return found


def test_scores_that_contradict_each_other_are_no_record(
    ran: dict[str, dict[str, Finished]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q41: the cross-checks run over every case; one that fails is an error of that case and no number."""
    evaluator = evaluator_of(tmp_path, FEW)
    one = next(iter(ran["stationary"].values()))
    assert one.trace is not None
    scene = next(scene for scene in map(load_scene, SCENES) if scene.digest == one.trace.meta.scene_digest)
    monkeypatch.setattr(f"{rollout_registry.__name__}.rollout_cross_checks", lambda values, results: ["up is down"])
    with pytest.raises(CaseError, match=r"arm 'stationary': its scores contradict each other: up is down\."):
        evaluator._measured([one.trace], scene)


def test_everybody_there_is_driven_on(ran: dict[str, dict[str, Finished]]) -> None:
    """E69, Q21: one case per scene; all objects valid at the eleventh row are under test and driven for eighty steps,
    and nobody is told where to go."""
    for path in SCENES:
        scene = load_scene(path)
        trace = ran["random"][scene.meta.scene_id].trace
        assert trace is not None
        assert set(trace["scored"]) == set(np.flatnonzero(scene.tracks.valid[:, 10]))
        assert (trace.steps, trace.meta.start_row) == (80, 10)
        assert not trace["goal_count"].any()
        assert trace.meta.settings["goal_source"] == "none"


def test_rollouts_are_drawn_by_identity(ran: dict[str, dict[str, Finished]], tmp_path: Path) -> None:
    """E52, E69: rollouts of one case differ, those of a driver without chance are one; and they are the same alone, in
    a batch and in another order, or nobody could repeat one."""
    for one in ran["random"].values():
        assert one.trace is not None
        assert one.trace["x"].shape[0] == 4
        ends = one.trace["x"][:, -1].tolist()
        assert len({tuple(row) for row in ends}) == 4
        assert read_trace(encode_trace(one.trace)).digest == one.trace.digest
        assert len(one.trace.meta.state_hash) == 4 * 81
    assert all(one.trace is not None and one.trace["x"].shape[0] == 1 for one in ran["log"].values())
    evaluator = evaluator_of(tmp_path, FEW)
    for item in evaluator.plan.cases[::-1]:
        (alone,) = evaluator.run(arm("random"), [item])
        assert deterministic(alone.record) == deterministic(ran["random"][item.case.scene_id].record)


def test_log_is_best_and_parked_is_no_progress(ran: dict[str, dict[str, Finished]]) -> None:
    """E71, Q29, acceptance 8: the log, held at its end, is the best of the arms and equals that row of the table made
    from the log alone, to the last bit, so simulating a log and reading it are one thing."""
    for scene, one in ran["log"].items():
        assert one.record.result is not None
        assert value(one, "realism_2025") == one.record.result["baselines"]["log_hold_last"]["value"]
        assert set(one.record.result["baselines"]) == {
            "log", "log_hold_last", "stationary", "constant_velocity", "random",
        }  # fmt: skip
        others = [value(ran[name][scene], "realism_2025") for name in ("stationary", "constant_velocity", "random")]
        assert value(one, "realism_2025") > max(others)
        assert value(one, "ade") < 1e-4
        assert value(ran["stationary"][scene], "ade") > 1.0
        assert value(ran["random"][scene], "diversity") > 1.0
        assert value(one, "diversity") == 0.0


def test_ground_truth_substitution_monotone(tmp_path: Path) -> None:
    """ground_truth_substitution_monotone E69 (real): the more of 32 rollouts are replaced by the log, the likelier is
    the log, feature by feature, and the lower the error."""
    evaluator = evaluator_of(tmp_path, "eval.num_scenarios = 1")
    (item,) = evaluator.plan.cases
    (outcome,) = evaluator.simulate(arm("random"), [item]).outcomes
    assert outcome.trace is not None
    scene = evaluator.sources.load(item.case.scene_digest)
    case = scene_case(scene, now=10)
    rollouts = trace_rollouts([outcome.trace], scene, now=10, hold=True)
    assert rollouts.count == 32
    rows = np.searchsorted(case.log.object_id, rollouts.object_id)
    last = np.maximum.accumulate(np.where(case.log.valid, np.arange(case.log.valid.shape[1]), 0), axis=1)[rows, 11:]
    logged = {name: np.take_along_axis(getattr(case.log, name)[rows], last, axis=1) for name in POSE}
    values, errors = [], []
    for replaced in (0, 1, 2, 8, 16, 32):
        poses = {name: getattr(rollouts, name).copy() for name in POSE}
        for name in POSE:
            poses[name][:replaced] = logged[name]
        found = compute_rollouts(case, Rollouts(rollouts.object_id, **poses), ["realism_2025", "ade"])
        values.append(found["realism_2025"].value)
        errors.append(found["ade"].value)
    assert values == sorted(values)
    assert len(set(values)) == 6
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4


def test_what_is_not_the_task_is_dropped_with_its_reason(tmp_path: Path) -> None:
    """E69, E30, Q21: a scene that is not the standard task is an error row with the deviation, unless the section says
    that it may be scored; the peer dropped scenes without a word."""
    evaluator = evaluator_of(tmp_path, "eval.rollouts = 4", "eval.num_scenarios = 1")
    (one,) = evaluator.run(arm("log"), evaluator.plan.cases)
    assert one.record.status == "error"
    assert one.record.error is not None
    assert "4 rollouts instead of 32" in one.record.error["message"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('env.control = "sdc"', "env.control does not fit realism"),
        ('env.simulation_mode = "gigaflow"\nenv.goal_source = "route"', "env.simulation_mode does not fit"),
        ("env.init_spread = true", "env.init_spread does not fit"),
        ('eval.egos = "each"', "eval.egos does not fit"),
        ('eval.primary = "score"', "'score' is not a metric"),
        ("eval.rollouts = 1", "eval.rollouts = 1"),
    ],
)
def test_sections_that_cannot_be_realism(tmp_path: Path, line: str, said: str) -> None:
    """E11, E69: settings that make another task of it are refused before anything runs."""
    with pytest.raises(SettingsError, match=said):
        evaluator_of(tmp_path, line)


def test_the_name_of_the_peer_suggests_ours(tmp_path: Path) -> None:
    """E69: whoever writes `wosac` is told what it is called here."""
    with pytest.raises(SettingsError, match=r"unknown type .wosac.*realism"):
        section(tmp_path, kind="wosac")


def test_rollouts_of_other_lengths_do_not_join(ran: dict[str, dict[str, Finished]]) -> None:
    """E69: joint rollouts are of one length; one that ended early is named instead of being padded with nothing."""
    import dataclasses

    from skidpad.runs.trace import TRACE_ARRAYS

    trace = next(iter(ran["log"].values())).trace
    assert trace is not None
    arrays = {
        spec.name: trace[spec.name][:, :-1] if spec.shape.startswith(("R,T", "R,U")) else trace[spec.name]
        for spec in TRACE_ARRAYS
    }
    with pytest.raises(CaseError, match="end after 79 to 80 steps"):
        joined([trace, dataclasses.replace(trace, arrays=arrays)])


def test_a_run_reads_in_perspective(tmp_path: Path) -> None:
    """E69, E71, E114, E116, Q29: a whole run: baselines of both kinds, buckets, rates, halves, the goals setting and
    deviations stand in the report and on its page, and the report follows from the records."""
    suite = section(tmp_path, FEW, "eval.num_scenarios = 1", "eval.worst_n = 1", "eval.resamples = 200")
    result = evaluate_suite(suite, tmp_path / "run", page=run_page)
    assert result.ok
    assert result.report is not None
    part = result.report["evaluators"]["r"]
    realism = part["realism"]
    assert (part["primary"], part["scale"]["upper"]) == ("realism_2025", "log")
    assert (realism["goals"], realism["rollouts"]) == ("none", 4)
    assert realism["not_standard"] == ["4 rollouts instead of 32 (1)"]
    assert set(realism["arms"]) == {"stationary", "constant_velocity", "random", "idm", "log", "log_actions"}
    assert len(realism["arms"]["random"]["halves"]) == 2
    page = result.folder.page.read_text()
    for words in ("realism_2025 in perspective", "everybody parked", "nobody is told where to go", "4 rollouts"):
        assert words in page, words
    assert verify_run(result.folder.path).exit_code == 0
    assert isinstance(EVALUATORS["realism"](suite.spec("r"), SceneSources()).plan, Plan)

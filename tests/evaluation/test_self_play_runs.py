"""Self-play as an evaluation: episodes on bare maps as cases, goals that follow one another, no log to compare with."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from skidpad.errors import SettingsError, UsageError
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.evaluation.manager import EvalManager, evaluate_suite
from skidpad.evaluation.metrics.registry import METRICS, compute
from skidpad.evaluation.metrics.view import CaseView
from skidpad.evaluation.rollout import Labels, rollout
from skidpad.evaluation.sources import SceneSources
from skidpad.evaluation.verify import verify_run
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import read_records
from skidpad.runs.trace import Trace
from skidpad.runs.trace_file import encode_trace, read_trace
from skidpad.scenes.archive import load_scene, save_scene
from skidpad.scenes.case import Case
from skidpad.scenes.events import Event, Status
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.settings.suite import load_suite
from skidpad.simulation.simulator import Simulator

BARE = """
    [eval.a]
    type = "multi_scenario"
    env.scenes = ["{scenes}/crossing.scene", "{scenes}/curve.scene", "{scenes}/straight-0.scene"]
    env.simulation_mode = "gigaflow"
    env.min_agents_per_world = 3
    env.max_agents_per_world = 3
"""


def self_play(**keys: object) -> tuple[Trace, Scene]:
    """Six cars driven by IDM on the generated crossing for a minute."""
    scene = synthetic("crossing", traffic=False)
    case = Case(scene.digest, "crossing", 3)
    env = EnvSettings(
        simulation_mode="gigaflow",
        min_agents_per_world=6,
        max_agents_per_world=6,
        scenario_length=400,
        goal_spacing=(15.0, 30.0),
        inactive_threshold=10.0,
        **keys,  # type: ignore[arg-type]
    )
    with Simulator([case], env, scenes={scene.digest: scene}, substitute="idm") as simulator:
        (outcome,) = rollout(
            simulator, [case], None, env=env, selection="deterministic", labels=Labels("test", "idm", "clean")
        )
    assert outcome.trace is not None, outcome.failure
    return outcome.trace, scene


@pytest.mark.parametrize(
    "keys",
    [{"goal_behaviour": "rolling"}, {"goal_behaviour": "finite", "num_goals": 2}, {"goal_behaviour": "respawn"}],
    ids=["rolling", "finite", "respawn"],
)
def test_goals_of_an_episode_are_all_in_its_trace(keys: dict[str, object]) -> None:
    """E118, E72, S61: sets of goals replace each other, and a trace that kept the last set only could show neither what
    was reached nor how many there were. Every goal event must happen at the goal that the history says was due."""
    trace, scene = self_play(**keys)
    index, goals, count = trace["goal_index"][0], trace["goals"][0], trace["goal_count"][0]
    assert (count >= trace["goal_first"][0]).all()
    assert (index[-1, trace["scored"]] <= count).all()
    more = 0
    for m, agent in enumerate(trace["scored"].tolist()):
        assert not np.isnan(goals[m, : count[m]]).any()
        assert np.isnan(goals[m, count[m] :]).all()
        more += int(index[-1, agent] > trace["goal_first"][0, m])
        for k in np.flatnonzero(np.diff(index[:, agent])) + 1:
            assert trace["events"][0, k, agent] & Event.GOAL
            for number in range(index[k - 1, agent], index[k, agent]):
                # Where it was heading: who respawns or retires in the step is elsewhere after it.
                x0, y0, heading, speed = (
                    float(trace[name][0, k - 1, agent]) for name in ("x", "y", "heading", "speed")
                )
                ahead = np.linspace(0.0, max(speed, 1.0) * 0.12, 201)
                gap = np.hypot(
                    x0 + ahead * np.cos(heading) - goals[m, number, 0],
                    y0 + ahead * np.sin(heading) - goals[m, number, 1],
                )
                assert gap.min() < 2.1
    assert more, "nobody got past its first set, so nothing was tested"
    assert trace.meta.settings["goal_behaviour"] == keys["goal_behaviour"], "what follows the last goal is recorded"
    assert read_trace(encode_trace(trace)).digest == trace.digest
    values = compute(trace, scene, ["goals_reached", "goal_rate", "score"])
    assert values["goal_rate"].numerator == index[-1, trace["scored"]].sum()
    assert values["goal_rate"].denominator == count.sum()


def test_a_journey_ends_at_its_last_goal() -> None:
    """S61, S62: with `retire` a set of goals is all there is, so that `goal_rate` is a share that can be whole: every
    car of IDM arrives, and from then on it neither drives, nor counts as driving, nor stands in anybody's way."""
    trace, scene = self_play(goal_behaviour="retire", num_goals=2)
    values = compute(trace, scene, ["goal_rate", "score", "goals_reached"])
    assert values["goal_rate"].value == 1.0
    assert values["goals_reached"].value == pytest.approx(trace["goal_first"][0].mean())
    status, events = trace["status"][0], trace["events"][0]
    for agent in trace["scored"].tolist():
        arrived = int(np.flatnonzero(status[:, agent] == Status.RETIRED)[0])
        assert events[arrived, agent] & Event.GOAL
        assert (status[arrived:, agent] == Status.RETIRED).all()
        assert not events[arrived + 1 :, agent].any()
    view = CaseView(trace, scene)
    last = [int(np.flatnonzero(row)[-1]) for row in view.active]
    assert max(last) < len(status) - 1, "exposure ends where the journey does"


def test_a_log_that_lies_about_is_no_reference() -> None:
    """Q19, E64: a map may carry a log of its own. Its agents are not those of self-play; every metric that needs a log
    must say that there is none instead of measuring against strangers."""
    scene = synthetic("crossing")
    assert scene.tracks.count
    case = Case(scene.digest, "crossing", 0)
    env = EnvSettings(simulation_mode="gigaflow", min_agents_per_world=2, max_agents_per_world=2, scenario_length=60)
    with Simulator([case], env, scenes={scene.digest: scene}, substitute="idm") as simulator:
        (outcome,) = rollout(
            simulator, [case], None, env=env, selection="deterministic", labels=Labels("test", "idm", "clean")
        )
    assert outcome.trace is not None
    values = compute(outcome.trace, scene)
    for name, metric in METRICS.items():
        if "log" in metric.needs:
            assert not values[name].valid, name
            assert values[name].value is None, name
    assert values["ade_log"].reason == values["progress_ratio"].reason == values["nuplan_cls"].reason == "no_log"
    assert values["distance"].valid
    assert values["goals_reached"].valid


@pytest.mark.parametrize("count", [1, 16, 17, 20])
def test_exactly_n_distinct_episodes(load, count: int) -> None:
    """E64, E65: N episodes over three maps are N different cases with as many agents as were asked for; a set of more
    holds the smaller one, whatever the order of the maps."""
    suite = load(BARE, f"eval.num_scenarios={count}")
    plan = EVALUATORS["multi_scenario"](suite.spec("a"), SceneSources()).plan
    assert len({item.case.id for item in plan.cases}) == len({item.case.seed for item in plan.cases}) == count
    per_map = [sum(item.case.scene_digest == digest for item in plan.cases) for digest in plan.entries]
    assert max(per_map) - min(per_map) <= 1
    more = load(
        BARE.replace(
            '"{scenes}/crossing.scene", "{scenes}/curve.scene"', '"{scenes}/curve.scene", "{scenes}/crossing.scene"'
        ),
        "eval.num_scenarios=25",
    )
    wider = EVALUATORS["multi_scenario"](more.spec("a"), SceneSources()).plan
    assert {item.case.id for item in plan.cases} <= {item.case.id for item in wider.cases}


def test_episodes_of_every_map_by_default(load) -> None:
    """E64: without a number each map has one episode, and `replicates` gives each several."""
    suite = load(BARE, "eval.replicates=4")
    plan = EVALUATORS["multi_scenario"](suite.spec("a"), SceneSources()).plan
    assert len(plan.cases) == 12
    assert {item.case.replicate for item in plan.cases} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ('eval.baselines=["stationary", "constant_velocity", "idm", "log"]', "names log, which follow a log"),
        ('eval.baselines=["idm"]', "must keep stationary, constant_velocity"),
        ("eval.reference=log", "is 'log', which is not among eval.baselines"),
        ("eval.cluster=log", "expected case or map in gigaflow"),
        ("eval.egos=each", "no recorded vehicles"),
        (("eval.num_scenarios=4", "eval.replicates=2"), "keep one of them"),
        (("env.simulation_mode=replay", "eval.cluster=map"), "expected log on logs"),
    ],
)
def test_what_a_bare_map_does_not_have_is_refused_at_load(load, override: str | tuple[str, ...], said: str) -> None:
    """E11, E71, E107: a baseline, a reference or a unit of resampling that the mode lacks would otherwise be found
    when the pass has been paid for."""
    with pytest.raises(SettingsError, match=said):
        load(BARE, *((override,) if isinstance(override, str) else override))


def test_modes_choose_their_own_defaults(load) -> None:
    """E71, E107: the log is a baseline, and the reference, exactly where there is one."""
    bare, logged = load(BARE).spec("a"), load(BARE, "env.simulation_mode=replay").spec("a")
    assert set(logged.eval.baselines) - set(bare.eval.baselines) == {"log", "log_actions"}
    assert (bare.eval.reference, logged.eval.reference) == ("idm", "log")
    assert (bare.eval.cluster, logged.eval.cluster) == ("case", "log")


def test_human_replay_needs_a_log(load, tmp_path: Path) -> None:
    """E66: who drives in a recorded vehicle's place cannot do so on a bare map, nor can a driver that follows the log;
    both are refused before anything runs."""
    suite = load(BARE.replace("multi_scenario", "human_replay"))
    with pytest.raises(SettingsError, match="drives a recorded vehicle"):
        EVALUATORS["human_replay"](suite.spec("a"), SceneSources())
    with (
        EvalManager(load(BARE), tmp_path / "run", policy_name="log") as manager,
        pytest.raises(UsageError, match="follows a log"),
    ):
        manager.run_all()


def test_a_run_of_self_play_from_end_to_end(tmp_path: Path) -> None:
    """E64, E71, E73, E76, E116: rows with as many agents as were asked for, absent log metrics as empty cells, no log
    among the arms, intervals over episodes, a page, and a folder that verifies; the numbers do not depend on how many
    worlds share a batch (E48)."""
    for name in ("crossing", "curve"):
        save_scene(synthetic(name, traffic=False), tmp_path / f"{name}.scene")
    text = (
        '[eval.a]\ntype = "multi_scenario"\nenv.scenes = "."\nenv.simulation_mode = "gigaflow"\n'
        'env.goal_behaviour = "rolling"\nenv.min_agents_per_world = 3\nenv.max_agents_per_world = 3\n'
        "env.scenario_length = 40\neval.num_scenarios = 3\neval.worst_n = 1\neval.resamples = 200\n"
        'eval.baselines = ["stationary", "constant_velocity", "idm"]\n'
    )
    (tmp_path / "suite.toml").write_text(text)
    from skidpad.reporting.report import run_page

    folder = RunFolder(tmp_path / "run")
    result = evaluate_suite(load_suite(tmp_path / "suite.toml", types=TYPES), folder.path, page=run_page)
    assert result.ok, result.report
    part = result.report["evaluators"]["a"]  # type: ignore[index]
    assert set(part["arms"]) == {"stationary", "constant_velocity", "idm"}
    assert (part["clusters"], part["cluster"], part["cases"]) == (3, "case", 3)
    assert part["floor"] is None
    assert part["arms"]["idm"]["metrics"]["ade_log"]["reason"] == "no_log"
    rows = list(csv.DictReader(folder.evaluator("a").joinpath("episodes.csv").read_text().splitlines()))
    assert len(rows) == 9
    assert {row["n_agents"] for row in rows} == {"3"}
    assert {row["ade_log"] for row in rows} == {""}
    assert {row["ade_log_valid"] for row in rows} == {"0"}
    assert "self-play on 2 maps" in folder.page.read_text()
    assert verify_run(folder.path).exit_code == 0
    kept = sorted((folder.path / "traces" / "a").glob("*.trace"))
    by_digest = {load_scene(path).digest: load_scene(path) for path in tmp_path.glob("*.scene")}
    records = {(record.case, record.arm): record for record in read_records(folder.records)}
    for path in kept:
        trace = read_trace(path)
        again = compute(trace, by_digest[trace.meta.scene_digest])
        record = records[trace.meta.case, trace.meta.arm]
        assert {name: value.as_record() for name, value in again.items()} == record.result["metrics"]  # type: ignore[index]
    alone = evaluate_suite(load_suite(tmp_path / "suite.toml", ["vec.num_worlds=1"], types=TYPES), tmp_path / "alone")
    assert alone.ok
    csv_of = [one.evaluator("a").joinpath("episodes.csv").read_bytes() for one in (folder, alone.folder)]
    assert csv_of[0] == csv_of[1]

"""Which cases an evaluator has: the same ones on every machine, exactly as many as asked for, none twice."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from skidpad.errors import SettingsError
from skidpad.evaluation.evaluator import Evaluator
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.evaluation.metrics.registry import BY_LOG, BY_PDM
from skidpad.evaluation.sources import SceneSources
from skidpad.scenes.archive import load_scene
from skidpad.settings.suite import load_suite

SUITE = """
    [eval.a]
    type = "multi_scenario"
    env.scenes = "{scenes}/*.scene"
"""


def planned(load, *overrides: str, text: str = SUITE) -> Evaluator:
    spec = load(text, *overrides).spec("a")
    return EVALUATORS[spec.type](spec, SceneSources())


def at(tmp_path: Path, folder: Path, *overrides: str) -> Evaluator:
    path = tmp_path / "elsewhere.toml"
    path.write_text(f'[eval.a]\ntype = "multi_scenario"\nenv.scenes = "{folder}/*.scene"\n')
    return EVALUATORS["multi_scenario"](load_suite(path, list(overrides), types=TYPES).spec("a"), SceneSources())


@pytest.mark.parametrize("count", [1, 4, 5, 6])
def test_exactly_n_distinct(load, count: int) -> None:
    """E65: a hidden cap once evaluated 16 of N files in silence; N scenes are N distinct ones."""
    evaluator = planned(load, f"eval.num_scenarios={count}")
    assert len({item.case.scene_digest for item in evaluator.plan.cases}) == count == len(evaluator.plan.cases)


def test_more_than_present_is_refused_with_both_numbers(load, tmp_path: Path, scene_folder: Path) -> None:
    """E65, EF8: asking for more than there is must not quietly repeat scenes; two files of one scene are one."""
    with pytest.raises(SettingsError, match=r"num_scenarios = 7.* 6 scenes"):
        planned(load, "eval.num_scenarios=7")
    copies = tmp_path / "copies"
    copies.mkdir()
    for name in ("one", "two"):
        shutil.copy(scene_folder / "curve.scene", copies / f"{name}.scene")
    with pytest.raises(SettingsError, match=r"num_scenarios = 2, but env\.scenes holds 1 distinct"):
        at(tmp_path, copies, "eval.num_scenarios=2")


def test_replicates_run_each_scene_again(load) -> None:
    """E61, E65: replicates are cases of their own, with seeds of their own, on the same scenes."""
    evaluator = planned(load, "eval.num_scenarios=2", "eval.replicates=3")
    cases = [item.case for item in evaluator.plan.cases]
    assert len(cases) == 6
    assert len({case.seed for case in cases}) == 6
    assert len({case.scene_digest for case in cases}) == 2


def test_sample_is_stable_and_nested(load, tmp_path: Path, scene_folder: Path) -> None:
    """E67: a fresh sample looks like progress; ours survives renames, other folders and added files, and grows by
    adding."""
    samples = [
        {item.case.scene_digest for item in planned(load, f"eval.num_scenarios={n}").plan.cases} for n in range(1, 7)
    ]
    for smaller, larger in pairwise(samples):
        assert smaller < larger
    other = tmp_path / "renamed"
    other.mkdir()
    for number, path in enumerate(sorted(scene_folder.iterdir(), reverse=True)):
        shutil.copy(path, other / f"{number}.scene")
    again = {item.case.scene_digest for item in at(tmp_path, other, "eval.num_scenarios=3").plan.cases}
    assert again == samples[2]
    next(other.iterdir()).unlink()
    fewer = {item.case.scene_digest for item in at(tmp_path, other, "eval.num_scenarios=3").plan.cases}
    assert len(fewer & samples[2]) >= 2


def test_same_scene_under_two_names_is_one_case(load, tmp_path: Path, scene_folder: Path) -> None:
    """EF9: a copied file would count twice in every mean; it runs once and is listed."""
    other = tmp_path / "copies"
    other.mkdir()
    for name in ("one", "two"):
        shutil.copy(scene_folder / "curve.scene", other / f"{name}.scene")
    plan = at(tmp_path, other).plan
    assert len(plan.cases) == 1
    assert len(plan.duplicates) == 1
    assert "two.scene" in plan.duplicates[0]
    assert "one.scene" in plan.duplicates[0]


def test_each_vehicle_in_turn(load, scene_folder: Path) -> None:
    """Issue 2, `egos = "each"`: every eligible vehicle of a scene is a case of its own, with its scene as cluster."""
    from skidpad.simulation.population import eligible

    evaluator = planned(load, 'eval.egos="each"')
    expected = {
        (scene.digest, int(track))
        for scene in (load_scene(path) for path in scene_folder.iterdir())
        for track in eligible(scene, evaluator.spec.env)
    }
    assert {(item.case.scene_digest, item.case.ego) for item in evaluator.plan.cases} == expected
    assert len(evaluator.plan.cases) == len(expected) > 6


def test_cases_depend_on_scene_and_benchmark_seed_only(load) -> None:
    """E61: batches, workers and order are no part of a case; seed 0 is a seed and differs from 42."""
    base = [item.case.id for item in planned(load).plan.cases]
    assert [item.case.id for item in planned(load, "vec.num_worlds=3", "vec.threads=2").plan.cases] == base
    zero = [item.case.id for item in planned(load, "eval.a.seed=0").plan.cases]
    assert zero == base
    assert not set(base) & {item.case.id for item in planned(load, "eval.a.seed=42").plan.cases}


def test_batches_cover_the_cases_once(load) -> None:
    """E46: whatever the batch size and whatever is already there, batches are disjoint and together the rest."""
    evaluator = planned(load, 'eval.egos="each"', "vec.num_worlds=5")
    rest = list(evaluator.plan.cases)[3:]
    batches = list(evaluator.batches(rest))
    assert all(len(batch) <= 5 for batch in batches)
    assert sorted(item.position for batch in batches for item in batch) == [item.position for item in rest]


def test_unreadable_scene_is_a_case_with_its_reason(load, tmp_path: Path, scene_folder: Path) -> None:
    """EF11, F9: a broken file among many becomes an error row that names it, and keeps its identity when resumed."""
    other = tmp_path / "broken"
    other.mkdir()
    shutil.copy(scene_folder / "curve.scene", other / "good.scene")
    data = (scene_folder / "crossing.scene").read_bytes()
    (other / "cut.scene").write_bytes(data[: len(data) // 2])
    (other / "text.scene").write_text("hello")
    cases = at(tmp_path, other).plan.cases
    assert len(cases) == 3
    problems = {item.case.scene_id: item.problem for item in cases if item.problem}
    assert set(problems) == {"cut", "text"}
    assert "FormatError" in problems["cut"]
    assert "cut.scene" in problems["cut"]
    assert [item.case.id for item in at(tmp_path, other).plan.cases] == [item.case.id for item in cases]


def test_metrics_of_a_section_are_checked_before_anything_runs(load) -> None:
    """E11, F1: a misspelt metric would otherwise show after the whole run; so would one without a better side."""
    with pytest.raises(SettingsError, match=r"'scor' is not a metric; did you mean 'score'"):
        planned(load, 'eval.primary="scor"')
    with pytest.raises(SettingsError, match=r"worst_metric = 'avg_speed' has no better or worse"):
        planned(load, 'eval.worst_metric="avg_speed"')
    with pytest.raises(SettingsError, match=r"'score' is among eval\.skip_metrics"):
        planned(load, 'eval.skip_metrics=["sc*"]')
    with pytest.raises(SettingsError, match=r"'offroad_rte' names no metric; did you mean 'offroad_rate'"):
        planned(load, 'eval.skip_metrics=["offroad_rte"]')


def test_skipped_metrics_are_not_computed(load) -> None:
    """A glob leaves out what it names and nothing else: the dear ones cost more than the simulation."""
    everything, fewer = planned(load).metrics(), planned(load, 'eval.skip_metrics=["pdms*", "pet"]').metrics()
    assert set(everything) - set(fewer) == {"pet", "pdms_by_log"}


def test_plans_are_held_against_one_reference(load) -> None:
    """Q8, E11: by_log and by_pdm never stand in one section, the digest of its metrics says which it is, and where
    several vehicles are under test there is no planner to hold them against."""
    text = SUITE.replace("multi_scenario", "human_replay")
    by_log, by_pdm = planned(load, text=text), planned(load, 'eval.plan_reference="pdm"', text=text)
    assert set(by_log.metrics()) ^ set(by_pdm.metrics()) == {*BY_LOG, *BY_PDM}
    assert set(BY_PDM) <= set(by_pdm.metrics())
    assert by_log.metric_digest() != by_pdm.metric_digest()
    with pytest.raises(SettingsError, match=r"'pdms_by_log' .* not what eval\.plan_reference = 'pdm' measures"):
        planned(load, 'eval.plan_reference="pdm"', 'eval.primary="pdms_by_log"', text=text)
    with pytest.raises(SettingsError, match="takes the place of one recorded vehicle"):
        planned(load, 'eval.plan_reference="pdm"')


def test_human_replay_drives_one_vehicle(load) -> None:
    """E66: putting all vehicles under test would be another evaluation under this name."""
    text = SUITE.replace("multi_scenario", "human_replay")
    assert planned(load, text=text).spec.env.control == "sdc"
    with pytest.raises(SettingsError, match=r"env\.control = 'vehicles', but human_replay drives one"):
        planned(load, 'env.control="vehicles"', text=text)

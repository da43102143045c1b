"""PDMS against a planner that drives the same cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from skidpad.evaluation.evaluator import PLAN_REFERENCE, Arm
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.evaluation.metrics.navsim_score import plan_terms
from skidpad.evaluation.metrics.plan import window
from skidpad.evaluation.metrics.view import CaseView
from skidpad.evaluation.sources import SceneSources
from skidpad.settings.suite import load_suite

SUITE = """
[eval.planned]
type = "human_replay"
env.scenes = "library:DEU_*"
env.num_goals = 1
eval.egos = "each"
eval.plan_reference = "pdm"
"""


@pytest.mark.slow
def test_the_planner_has_all_of_its_own_progress(tmp_path: Path) -> None:
    """Q32: held against itself the planner's term EP is 1, so its PDMS is its other terms; and all arms are held
    against one drive, which is made once."""
    (tmp_path / "suite.toml").write_text(SUITE)
    spec = load_suite(tmp_path / "suite.toml", types=TYPES).spec("planned")
    sources = SceneSources()
    evaluator = EVALUATORS["human_replay"](spec, sources)
    cases = evaluator.plan.cases
    planner = evaluator.run(PLAN_REFERENCE, cases)
    known = dict(evaluator._references)
    assert set(known) == {item.case.id for item in cases}
    for one in planner:
        assert one.record.result is not None, one.record.error
        assert one.trace is not None
        terms = plan_terms(window(CaseView(one.trace, sources.load(one.record.scene_digest)), 4.0))
        others = 5 + 5 * terms.ttc.value[0] + 2 * terms.comfort.value[0]
        expected = terms.no_fault.value[0] * terms.drivable.value[0] * others / 12
        found = one.record.result["metrics"]["pdms_by_pdm"]
        assert found["value"] == (pytest.approx(expected) if found["valid"] else None)
        assert "pdms_by_log" not in one.record.result["metrics"]
    log = evaluator.run(Arm("log", None, "replay"), cases)
    assert all(evaluator._references[case] is terms for case, terms in known.items())
    assert any(one.record.result["metrics"]["pdms_by_pdm"]["valid"] for one in log if one.record.result)

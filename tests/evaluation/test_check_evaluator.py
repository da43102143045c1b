"""check_evaluator passes our types and names what is wrong with sabotaged ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skidpad.evaluation.check import check_evaluator
from skidpad.evaluation.evaluator import Arm, Evaluator, Finished, Plan, PlannedCase
from skidpad.evaluation.evaluators import EVALUATORS
from skidpad.evaluation.evaluators.multi_scenario import MultiScenario
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType


@pytest.fixture(scope="module")
def two(scene_folder: Path) -> list[Path]:
    return [scene_folder / "straight-0.scene", scene_folder / "crossing.scene"]


@pytest.mark.parametrize("name", sorted(EVALUATORS))
def test_our_types_keep_the_contract(name: str, two: list[Path]) -> None:
    """E63: every registered type has all of it: cases, batches, isolation, timings, metrics."""
    assert check_evaluator(EVALUATORS[name], two) == []


class NoType(MultiScenario):
    TYPE = None  # type: ignore[assignment]


class NoSelection(MultiScenario):
    TYPE = EvaluatorType("no_selection", EvalKnobs, {})


class FileOrder(MultiScenario):
    """Takes the first scene of the list."""

    def _plan(self) -> Plan:
        plan = super()._plan()
        first = self.sources.entry(self.spec.scenes[0]).digest
        kept = [item for item in plan.cases if item.case.scene_digest == first]
        return replace(plan, cases=tuple(item._replace(position=n) for n, item in enumerate(kept)))


class Forgetful(MultiScenario):
    def batches(self, planned: Any) -> Any:
        for batch in super().batches(planned):
            yield batch[1:]


class OddMetric(MultiScenario):
    def metrics(self) -> tuple[str, ...]:
        return ("collision_rate", "no_such_metric")

    def _result(self, trace: Any, scene: Any) -> Any:
        return {"n_agents": 1, "steps": 1, "metrics": {}, "trace_digest": "", "state_hash": ""}


class Untimed(MultiScenario):
    def run(self, arm: Arm, planned: Sequence[PlannedCase], **when: int) -> list[Finished]:
        return [one._replace(record=replace(one.record, cost={})) for one in super().run(arm, planned, **when)]


class Crowded(MultiScenario):
    def run(self, arm: Arm, planned: Sequence[PlannedCase], **when: int) -> list[Finished]:
        finished = super().run(arm, planned, **when)
        return [one._replace(record=replace(one.record, ego_rule=str(len(planned)))) for one in finished]


class Fragile(MultiScenario):
    def _alone(self, arm: Arm, item: PlannedCase, scenes: Any) -> Any:
        return self._attempt(arm, [item], scenes)[0]


class Silent(MultiScenario):
    def run(self, arm: Arm, planned: Sequence[PlannedCase], **when: int) -> list[Finished]:
        finished = super().run(arm, planned, **when)
        return [one._replace(record=replace(one.record, status="ok", error=None)) for one in finished]


@pytest.mark.parametrize(
    ("kind", "check", "said"),
    [
        (NoType, "type", "must be an EvaluatorType"),
        (NoSelection, "type", "action_selection"),
        (FileOrder, "cases", "another order"),
        (Forgetful, "batches", "every case exactly once"),
        (OddMetric, "metrics", "no_such_metric"),
        (OddMetric, "metrics", "primary metric 'score'"),
        (Untimed, "timings", "setup_seconds"),
        (Crowded, "batches", "records differ"),
        (Fragile, "isolation", "RuntimeError: asked to fail"),
        (Silent, "isolation", "error record"),
    ],
)
def test_sabotage_is_named(kind: type[Evaluator], check: str, said: str, two: list[Path]) -> None:
    """E63: a check that passes everything is none; each broken promise is found under its name."""
    found = [finding for finding in check_evaluator(kind, two) if finding.check == check]
    assert any(said in finding.message for finding in found), found

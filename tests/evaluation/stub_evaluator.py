"""An evaluator that simulates nothing, for tests of scheduling, of folders and of faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from skidpad.artifacts.digests import digest_value
from skidpad.evaluation.evaluator import Arm, Evaluator, Finished, PlannedCase
from skidpad.evaluation.evaluators import EVALUATORS
from skidpad.runs.records import Record
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType


class StubEvaluator(Evaluator):
    """Measures a number that depends on case and arm only, and simulates nothing.

    `broken` sections raise; `failing` case positions give error records; `ran` lists (section, arm, position);
    `after` is called when a batch has run.
    """

    TYPE: ClassVar[EvaluatorType] = EvaluatorType("stub", EvalKnobs, {"action_selection": "deterministic"})
    broken: ClassVar[set[str]] = set()
    failing: ClassVar[set[int]] = set()
    ran: ClassVar[list[tuple[str, str, int]]] = []
    after: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def run(self, arm: Arm, planned: Sequence[PlannedCase], *, epoch: int = 0, step: int = 0) -> list[Finished]:
        if self.spec.name in self.broken:
            raise ZeroDivisionError(f"{self.spec.name} is broken")
        self.ran.extend((self.spec.name, arm.name, item.position) for item in planned)
        finished = [Finished(self._stub_record(arm, item, epoch, step), None) for item in planned]
        type(self).after()
        return finished

    def _stub_record(self, arm: Arm, item: PlannedCase, epoch: int, step: int) -> Record:
        failed = item.position in self.failing
        value = int(digest_value([item.case.id, arm.name, arm.checkpoint], "stub")[:4], 16) / 65536
        metrics = {name: _metric(value, 2) for name in ("score", "collision_rate", "offroad_rate")}
        return Record(
            evaluator=self.spec.name,
            epoch=epoch,
            step=step,
            checkpoint=arm.checkpoint,
            case=item.case.id,
            arm=arm.name,
            case_index=item.position,
            scene_id=item.case.scene_id,
            scene_digest=item.case.scene_digest,
            seed=item.case.seed,
            benchmark_seed=item.case.benchmark_seed,
            replicate=item.case.replicate,
            ego=item.case.ego,
            ego_rule="",
            status="error" if failed else "ok",
            error={"type": "CaseError", "message": "asked to", "traceback": "none"} if failed else None,
            result=None
            if failed
            else {"n_agents": 2, "steps": 9, "metrics": metrics, "trace_digest": "0", "state_hash": "0"},
            cost={"seconds": 0.001},
        )


def forget() -> None:
    """Undo what earlier tests made the stub do."""
    StubEvaluator.broken, StubEvaluator.failing, StubEvaluator.ran = set(), set(), []
    StubEvaluator.after = staticmethod(lambda: None)


def _metric(value: float, agents: int) -> dict[str, Any]:
    return {
        "value": value,
        "valid": True,
        "numerator": value * agents,
        "denominator": float(agents),
        "reason": None,
    }


STUBS: Mapping[str, type[Evaluator]] = {**EVALUATORS, "stub": StubEvaluator}

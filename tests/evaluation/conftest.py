"""Small scenes, suites over them, and an evaluator that simulates nothing, for tests of scheduling and of folders."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from skidpad.artifacts.digests import digest_value
from skidpad.evaluation.evaluator import Arm, Evaluator, Finished, PlannedCase
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.runs.records import Record
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType, Suite, load_suite

LoadSuite = Callable[..., Suite]


class StubEvaluator(Evaluator):
    """Measures a number that depends on case and arm only, and simulates nothing.

    `broken` sections raise; `failing` case positions give error records; `ran` lists (section, arm, position).
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


def _metric(value: float, agents: int) -> dict[str, Any]:
    return {
        "value": value,
        "valid": True,
        "numerator": value * agents,
        "denominator": float(agents),
        "reason": None,
    }


STUBS: Mapping[str, type[Evaluator]] = {**EVALUATORS, "stub": StubEvaluator}


@pytest.fixture
def stub() -> type[StubEvaluator]:
    """The stub evaluator, forgetting what earlier tests made it do."""
    StubEvaluator.broken, StubEvaluator.failing, StubEvaluator.ran = set(), set(), []
    StubEvaluator.after = staticmethod(lambda: None)
    return StubEvaluator


@pytest.fixture(scope="session")
def scene_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six archives: `straight-<seed>.scene` for seeds 0 to 3 and one `crossing` and `curve` each."""
    folder = tmp_path_factory.mktemp("scenes")
    for seed in range(4):
        save_scene(synthetic("straight", seed), folder / f"straight-{seed}.scene")
    for name in ("crossing", "curve"):
        save_scene(synthetic(name), folder / f"{name}.scene")
    return folder


@pytest.fixture
def load(tmp_path: Path, scene_folder: Path) -> LoadSuite:
    """load(text, *overrides): writes a suite beside a link `scenes` to the scene folder, and loads it.

    `{scenes}` in the text stands for the folder.
    """

    def write_and_load(text: str, *overrides: str, **options: Any) -> Suite:
        path = tmp_path / "suite.toml"
        path.write_text(textwrap.dedent(text).replace("{scenes}", str(scene_folder)), "utf-8")
        types = {**TYPES, "stub": StubEvaluator.TYPE}
        return load_suite(path, list(overrides), types=types, **options)

    return write_and_load

"""check_evaluator: does an evaluator type keep the contract of `Evaluator`?

It plans and runs the type over a few scenes, with a driver that stands still and one that raises, and reports what it
finds instead of raising, so that one run shows everything. Our own types are checked by the tests; run it on yours.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from skidpad.errors import SkidpadError
from skidpad.evaluation.evaluator import Arm, Evaluator, Finished
from skidpad.evaluation.sources import SceneSources
from skidpad.policies.policy import PolicySpec
from skidpad.runs.records import deterministic
from skidpad.settings.suite import EvaluatorSpec, EvaluatorType, load_suite

TIMINGS = frozenset({"seconds", "setup_seconds", "rollout_seconds", "metric_seconds"})
LENGTH = 10  # steps: enough for every part of a rollout to run


class Finding(NamedTuple):
    """One broken promise: which check, and what to do about it."""

    check: str
    message: str


class _Raising:
    """A driver that fails at its first decision."""

    spec = PolicySpec("raising", None, None)

    def initial_state(self, rows: int) -> None:
        return None

    def act(self, observation: Any, state: Any, reset: Any, **rest: Any) -> Any:
        raise RuntimeError("asked to fail by check_evaluator")


def check_evaluator(kind: type[Evaluator], scenes: Sequence[Path]) -> list[Finding]:
    """Everything in which an evaluator type breaks the contract, over files of recorded scenes; empty when nothing.

    Two scenes or more make the checks of order and of batches mean something.
    """
    if not isinstance(getattr(kind, "TYPE", None), EvaluatorType):
        return [Finding("type", f"{kind.__name__}.TYPE must be an EvaluatorType: name, settings, baseline")]
    with tempfile.TemporaryDirectory() as folder:
        try:
            spec = _spec(kind, scenes, Path(folder))
            evaluator = kind(spec, SceneSources())
        except SkidpadError as error:
            return [Finding("type", f"a section of type {kind.TYPE.name!r} with scenes alone is refused: {error}")]
        return [*_check_plan(kind, spec, evaluator), *_check_metrics(evaluator), *_check_runs(kind, spec, evaluator)]


def _spec(kind: type[Evaluator], scenes: Sequence[Path], folder: Path) -> EvaluatorSpec:
    listed = json.dumps([str(path.absolute()) for path in scenes])
    suite = folder / "suite.toml"
    lines = (f'type = "{kind.TYPE.name}"', f"env.scenes = {listed}", f"env.scenario_length = {LENGTH}")
    suite.write_text("\n".join(["[eval.checked]", *lines, *kind.CHECKED_WITH, ""]), "utf-8")
    return load_suite(suite, types={kind.TYPE.name: kind.TYPE}).spec("checked")


def _check_plan(kind: type[Evaluator], spec: EvaluatorSpec, evaluator: Evaluator) -> list[Finding]:
    found = []
    cases = evaluator.plan.cases
    ids = [item.case.id for item in cases]
    if ids != sorted(set(ids)) or [item.position for item in cases] != list(range(len(cases))):
        found.append(Finding("cases", "cases must be distinct and sorted by id, each at its own position"))
    backwards = kind(replace(spec, scenes=spec.scenes[::-1]), SceneSources())
    if [item.case.id for item in backwards.plan.cases] != ids:
        found.append(Finding("cases", "listing the scenes in another order gives other cases; choose them by digest"))
    batched = [item.position for batch in evaluator.batches(cases) for item in batch]
    if sorted(batched) != list(range(len(cases))):
        found.append(Finding("batches", "batches must hold every case exactly once"))
    return found


def _check_metrics(evaluator: Evaluator) -> list[Finding]:
    names = evaluator.metrics()
    unknown = sorted(set(names) - evaluator.lines().keys())
    found = [Finding("metrics", f"unknown metric {name!r}; add it to the registry") for name in unknown]
    if evaluator.spec.eval.primary not in names:
        found.append(Finding("metrics", f"the primary metric {evaluator.spec.eval.primary!r} is not among metrics()"))
    return found


def _check_runs(kind: type[Evaluator], spec: EvaluatorSpec, evaluator: Evaluator) -> list[Finding]:
    from skidpad.policies.baselines import BASELINES

    make = BASELINES["stationary"].policy
    assert make is not None
    standing = Arm("stationary", make(spec.env.action_type, spec.env.dynamics, spec.env.compat.dynamics))
    alone = kind(replace(spec, vec=spec.vec.model_copy(update={"num_worlds": 1})), SceneSources())
    together, single = _run(evaluator, standing), _run(alone, standing)
    found = [
        Finding("records", f"case {one.record.case} ended as {one.record.status}: {one.record.error}")
        for one in together
        if one.record.status != "ok"
    ]
    if [deterministic(one.record) for one in together] != [deterministic(one.record) for one in single]:
        found.append(Finding("batches", "records differ between one world at a time and all of them together"))
    missing = sorted({key for one in together for key in TIMINGS - one.record.cost.keys()})
    if missing:
        found.append(Finding("timings", f"records lack the timings {', '.join(missing)} in their cost"))
    try:
        failed = _run(evaluator, Arm("policy", _Raising(), None, "raising"))
    except Exception as error:  # That it escapes is the finding.
        return [
            *found,
            Finding("isolation", f"a driver that raises ends the evaluator: {type(error).__name__}: {error}"),
        ]
    if any(one.record.status != "error" or not one.record.error for one in failed):
        found.append(
            Finding("isolation", "a driver that raises must leave an error record with its traceback per case")
        )
    return found


def _run(evaluator: Evaluator, arm: Arm) -> list[Finished]:
    finished = [one for batch in evaluator.batches(evaluator.plan.cases) for one in evaluator.run(arm, batch)]
    return sorted(finished, key=lambda one: one.record.case_index)

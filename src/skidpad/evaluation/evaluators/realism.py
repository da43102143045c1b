"""realism: are joint rollouts of everybody distributed as the log says? (E69; metrics.md, section 6)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from skidpad.artifacts.digests import digest_value
from skidpad.errors import CaseError, SettingsError
from skidpad.evaluation.evaluator import Arm, Evaluator
from skidpad.settings.schema import BASELINE_NAMES, EvalKnobs
from skidpad.settings.suite import EvaluatorSpec, EvaluatorType

if TYPE_CHECKING:
    from skidpad.evaluation.metrics.registry import Metric
    from skidpad.runs.trace import Trace
    from skidpad.scenes.scene import Scene

NOW, FUTURE = 10, 80  # the task: eleven rows of history, eighty to simulate
WITHOUT_CHANCE = frozenset(BASELINE_NAMES) - {"random"}
"""Drivers whose rollouts of a case are all equal: one is simulated and counts for all of them."""


class RealismKnobs(EvalKnobs):
    """`eval.*` of realism."""

    primary: str = Field("realism_2025", min_length=1, description="metric of the headline")
    rollouts: Annotated[int, Field(ge=2, le=1024)] = Field(32, description="joint rollouts of each scene")
    not_standard: bool = Field(False, description="score scenes that are not the standard task, and say so")
    official_light: bool = Field(False, description="search the nearest lane as the official code does")


class Realism(Evaluator):
    """Every object that is there now is driven on, several times, with nobody told where to go. A case is a scene; its
    trace holds all rollouts. Beside the drivers stand trajectories made from the log, since a number alone says little:
    a perfect log does not score 1."""

    TYPE: ClassVar[EvaluatorType] = EvaluatorType(
        name="realism",
        settings=RealismKnobs,
        baseline={
            "env.control": "agents",
            "env.other_controller": "policy",
            "env.init_step": NOW,
            "env.scenario_length": FUTURE,
            "env.allow_beyond_log": True,
            "env.beyond_log": "stay",
            "env.goal_source": "none",
            "action_selection": "sample",
        },
    )

    CHECKED_WITH: ClassVar[tuple[str, ...]] = ("eval.not_standard = true", "eval.rollouts = 2")

    @classmethod
    def lines(cls) -> Mapping[str, Metric]:
        from skidpad.evaluation.metrics.rollout_registry import ROLLOUT_METRICS

        return ROLLOUT_METRICS

    @classmethod
    def check(cls, spec: EvaluatorSpec) -> None:
        super().check(spec)
        wrong = {
            "env.simulation_mode": spec.env.simulation_mode != "replay",
            "env.control": spec.env.control in ("sdc", "none"),
            "env.init_spread": spec.env.init_spread,
            "eval.egos": spec.eval.egos != "scene",
        }
        for key, is_wrong in wrong.items():
            if is_wrong:
                raise SettingsError(
                    f"[eval.{spec.name}]: {key} does not fit realism, which drives everybody in a log on from one row. "
                    "Remove the key."
                )

    @property
    def knobs(self) -> RealismKnobs:
        assert isinstance(self.spec.eval, RealismKnobs)
        return self.spec.eval

    def rollouts(self, arm: Arm) -> int:
        return 1 if arm.name in WITHOUT_CHANCE else self.knobs.rollouts

    def metric_digest(self) -> str:
        from skidpad.evaluation.metrics.rollout_registry import rollout_spec_digest

        return rollout_spec_digest(self.metrics())

    @property
    def year(self) -> str:
        """The configuration of the realism score that is broken down: that of the headline, else the latest."""
        primary = self.knobs.primary
        return primary.removeprefix("realism_") if primary.startswith("realism_") else "2025"

    def _measured(self, traces: Sequence[Trace], scene: Scene) -> list[dict[str, Any]]:
        return [self._scored(trace, scene) for trace in traces]

    def _scored(self, trace: Trace, scene: Scene) -> dict[str, Any]:
        import numpy as np

        from skidpad.evaluation.metrics.realism_context import baseline_scores, split_half
        from skidpad.evaluation.metrics.rollout_registry import RolloutView, rollout_cross_checks, value_of
        from skidpad.evaluation.rollout_scenes import scene_case, trace_rollouts

        now, future = self.spec.env.init_step, trace.steps
        rollouts = trace_rollouts([trace], scene, future=future, now=now, hold=True)
        if rollouts.count == 1:
            rollouts = rollouts.select(np.zeros(self.knobs.rollouts, np.intp))
        case = scene_case(scene, future=future, now=now)
        view = RolloutView(
            case, rollouts, not_standard=self.knobs.not_standard, official_light=self.knobs.official_light
        )
        lines = self.lines()
        values = {name: value_of(lines[name], view) for name in sorted(self.metrics())}
        if problems := rollout_cross_checks(values, view.results.values()):
            raise CaseError(
                f"case {trace.meta.case}, arm {trace.meta.arm!r}: its scores contradict each other: "
                f"{'; '.join(problems[:5])}. One of the metrics is wrong."
            )
        halves = split_half(view.compared, self.year)
        made = (
            baseline_scores(view.compared, case.edges, case.lights, self.year, seed=self.spec.benchmark_seed)
            if trace.meta.arm == "log"  # Of the log alone, whoever is compared with it: once for each case.
            else {}
        )
        return {
            "n_agents": len(view.task.log.scored),
            "steps": trace.steps,
            "metrics": {name: value.as_record() for name, value in values.items()},
            "realism": view.results[self.year].as_record(),
            "halves": None if halves is None else [half.value for half in halves],
            "baselines": {name: result.as_record() for name, result in made.items()},
            "trace_digest": trace.digest,
            "state_hash": digest_value(trace.hashes, "state hashes"),
        }

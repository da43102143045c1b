"""human_replay: the driver in one recorded vehicle's place, everybody else as they really drove."""

from __future__ import annotations

from typing import ClassVar

from skidpad.errors import SettingsError
from skidpad.evaluation.evaluator import Evaluator
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorSpec, EvaluatorType


class HumanReplay(Evaluator):
    """One controlled vehicle per case: the scene's ego, or each eligible vehicle in turn. The log does not react, so
    collisions are told apart by fault, and the log's own row is the floor of the data."""

    TYPE: ClassVar[EvaluatorType] = EvaluatorType(
        name="human_replay",
        settings=EvalKnobs,
        baseline={"env.control": "sdc", "action_selection": "deterministic"},
    )

    @classmethod
    def check(cls, spec: EvaluatorSpec) -> None:
        super().check(spec)
        if spec.env.simulation_mode != "replay":
            raise SettingsError(
                f"[eval.{spec.name}]: env.simulation_mode = {spec.env.simulation_mode!r}, but {spec.type} drives a "
                "recorded vehicle. Remove the key, or use type = 'multi_scenario'."
            )
        if spec.env.control != "sdc":
            raise SettingsError(
                f"[eval.{spec.name}]: env.control = {spec.env.control!r}, but {spec.type} drives one vehicle. "
                "Remove the key, or use type = 'multi_scenario'."
            )

"""multi_scenario: the driver on many scenes, every eligible vehicle under test together or one at a time."""

from __future__ import annotations

from typing import ClassVar

from skidpad.evaluation.evaluator import Evaluator
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType


class MultiScenario(Evaluator):
    """On logs one case per scene with all its vehicles under test (`egos = "scene"`), or one per vehicle (`"each"`). On
    bare maps (`env.simulation_mode = "gigaflow"`) one case per episode, with every agent of it under test."""

    TYPE: ClassVar[EvaluatorType] = EvaluatorType(
        name="multi_scenario", settings=EvalKnobs, baseline={"action_selection": "deterministic"}
    )

"""behavior_class: human_replay over the scenes of one behaviour, as `skidpad scenes classify` sorts them."""

from __future__ import annotations

from typing import ClassVar

from skidpad.evaluation.evaluators.human_replay import HumanReplay
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType


class BehaviorClass(HumanReplay):
    """The driver in the recorded vehicle's place, in scenes that show one behaviour. With `eval.num_scenarios` they are
    a sample by digest, so a pass sees the same scenes as the last one and progress is the driver's own. Reports pool
    all sections of this type beside each of them, since single classes are small (E68)."""

    TYPE: ClassVar[EvaluatorType] = EvaluatorType(
        name="behavior_class",
        settings=EvalKnobs,
        baseline={"env.control": "sdc", "action_selection": "deterministic"},
    )

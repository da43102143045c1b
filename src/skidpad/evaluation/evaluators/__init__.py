"""The evaluator types. Importing this loads no simulator and no network: the settings are checked before either."""

from __future__ import annotations

from collections.abc import Mapping

from skidpad.evaluation.evaluator import Evaluator
from skidpad.evaluation.evaluators.behavior_class import BehaviorClass
from skidpad.evaluation.evaluators.human_replay import HumanReplay
from skidpad.evaluation.evaluators.multi_scenario import MultiScenario
from skidpad.evaluation.evaluators.realism import Realism
from skidpad.settings.suite import EvaluatorType

EVALUATORS: Mapping[str, type[Evaluator]] = {
    kind.TYPE.name: kind for kind in (MultiScenario, HumanReplay, BehaviorClass, Realism)
}
TYPES: Mapping[str, EvaluatorType] = {name: kind.TYPE for name, kind in EVALUATORS.items()}

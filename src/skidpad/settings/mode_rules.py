"""What an evaluator's knobs mean on a log and on a bare map, where there is none (E64, E71, E107).

Which baselines exist, what results are compared with and what intervals resample depends on the mode of the world, so
it is decided where both are known, and refused there with the line at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from skidpad.settings.leaves import Key, Leaves, Origin, Problems
from skidpad.settings.schema import BASELINE_NAMES, OPTIONAL_BASELINES, EnvSettings, EvalKnobs, baselines_of
from skidpad.settings.weights import mistake, name_of

BASELINES: Key = ("eval", "baselines")
REFERENCE: Key = ("eval", "reference")
CLUSTER: Key = ("eval", "cluster")


def fitted_to_mode(
    name: str,
    env: EnvSettings,
    knobs: EvalKnobs,
    leaves: Leaves,
    origin_of: Callable[[Key], Origin],
    problems: Problems,
    shipped: Collection[str],
) -> EvalKnobs:
    """The knobs with the defaults of the section's mode; what the mode does not have goes to `problems`.

    leaves   what the section's layers set: a value that stands in none of them is a default
    shipped  names of the drivers that come with the package
    """
    bare = env.simulation_mode == "gigaflow"
    there = baselines_of(env.simulation_mode)
    update: dict[str, Any] = {}
    if bare and BASELINES not in leaves:
        update["baselines"] = there
    if bare and REFERENCE not in leaves:
        update["reference"] = "idm"
    if bare and CLUSTER not in leaves:
        update["cluster"] = "case"
    fitted = knobs.model_copy(update=update)

    def refuse(key: Key, sentence: str) -> None:
        problems.add(origin_of(key), f"eval.{key[1]} of [eval.{name}] {sentence}")

    names = [name_of(entry) for entry in fitted.baselines]
    if wrong := next((said for entry in fitted.baselines if (said := mistake(entry, shipped))), None):
        refuse(BASELINES, wrong)
    elif lost := [one for one in names if one in BASELINE_NAMES and one not in there]:
        refuse(BASELINES, f"names {', '.join(lost)}, which follow a log, and a bare map has none; leave them out")
    elif missing := [one for one in there if one not in fitted.baselines and one not in OPTIONAL_BASELINES]:
        refuse(BASELINES, f"must keep {', '.join(missing)}; only random and log_actions may be dropped")
    elif fitted.reference not in names:
        refuse(REFERENCE, f"is {fitted.reference!r}, which is not among eval.baselines, {', '.join(names)}")
    if bare != (fitted.cluster != "log"):
        refuse(CLUSTER, f"is {fitted.cluster!r}; expected {'case or map in gigaflow' if bare else 'log on logs'}")
    if bare and fitted.egos == "each":
        refuse(("eval", "egos"), 'is "each", and a bare map has no recorded vehicles to take turns; remove it')
    if bare and fitted.num_scenarios is not None and fitted.replicates > 1:
        refuse(("eval", "replicates"), "and eval.num_scenarios both say how many episodes there are; keep one of them")
    return fitted

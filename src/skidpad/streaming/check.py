"""check_write_policy and check_carrier: does somebody's policy or mapper keep the contract?

Both report what they find instead of raising, so that one run shows everything; an empty list means that all holds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from skidpad.errors import SkidpadError
from skidpad.streaming.budget import BudgetProtocol
from skidpad.streaming.episode import Observation
from skidpad.streaming.mapper_file import Mapper, RenderProtocol, content_hash
from skidpad.streaming.policies import FEATURES, Action, Feedback, Fixed, WritePolicy
from skidpad.streaming.runner import MapperRunner, declared_costs
from skidpad.streaming.seal import SealedState

STEPS = 6
_UNITS = {Action.OFF: 0, Action.FUSE: 2_000, Action.COMPLETE: 50_000, Action.ALL: 52_000}
_OBSERVED = ("distance", "weight", "colour", "colour_weight", "last_seen")


class Finding(NamedTuple):
    """One broken promise: which check, and what is probably wrong."""

    check: str
    message: str


def made_up_feedback(seed: int, steps: int = STEPS) -> list[Feedback]:
    """Arrivals of an episode that never was."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return [
        Feedback(
            dict(zip(FEATURES, rng.uniform(-1, 1, len(FEATURES)).tolist(), strict=True)),
            float(rng.uniform(0, 1)),
            step,
            steps - step + 1,
            1e6,
            _UNITS,
        )
        for step in range(1, steps + 1)
    ]


def _choices(policy: WritePolicy, told: Sequence[Feedback]) -> list[Action]:
    fresh = copy.deepcopy(policy)
    return [fresh.choose(feedback, tuple(Action)) for feedback in told]


def check_write_policy(policy: WritePolicy) -> list[Finding]:
    """Everything in which `policy` breaks the contract of `policies.WritePolicy`.

    Its units are a whole number of at least 1 and stay the same; it chooses among the feasible actions, also where only
    OFF is; a fixed policy does what its name says; and its choices follow from what it was told so far and from nothing
    else: not from a clock, a generator, an earlier episode or what is to come.
    """
    found = []
    before = policy.units
    if type(before) is not int or before < 1:
        found.append(Finding("units", f"units is {before!r}; declare a whole number of at least 1 at construction"))
    told = made_up_feedback(0)
    first = _choices(policy, told)
    if _choices(policy, told) != first:
        found.append(
            Finding("determinism", "told the same twice it chose differently; it reads a clock or a generator")
        )
    other = [*told[: STEPS // 2], *made_up_feedback(1)[STEPS // 2 :]]
    if _choices(policy, other)[: STEPS // 2] != first[: STEPS // 2]:
        found.append(Finding("prefix", "equal prefixes gave other choices; it knows something about later frames"))
    for feasible in ((Action.OFF,), (Action.OFF, Action.FUSE), tuple(Action)):
        chosen = [copy.deepcopy(policy).choose(feedback, feasible) for feedback in told]
        if outside := [action for action in chosen if action not in feasible]:
            names = ", ".join(map(str, feasible))
            found.append(Finding("feasible", f"chose {outside[0]!r} out of ({names}); choose among `feasible`"))
    if policy.fixed and any(str(action) != policy.name for action in first):
        found.append(Finding("fixed", f"is fixed and named {policy.name}, and chose {', '.join(map(str, first))}"))
    if policy.units != before:
        found.append(Finding("units", f"units went from {before} to {policy.units}; they are fixed before reset"))
    return found


def check_carrier(
    mapper: Mapper, arrivals: Sequence[Observation], warmup: int, ids: Mapping[str, str]
) -> list[Finding]:
    """Everything in which a mapper breaks the contract of the fast state, on a given episode.

    Two resets give equal hashes; OFF leaves the state alone; COMPLETE changes the layer only; the slow weights are the
    same after as before; declared units do not depend on what was seen.
    """
    found: list[Finding] = []
    loaded = content_hash(mapper.carrier, mapper.write_rule)

    def run(action: Action, order: Sequence[Observation]) -> SealedState | None:
        runner = MapperRunner(
            mapper, Fixed(action), render_protocol=RenderProtocol(samples=16), budget_protocol=BudgetProtocol()
        )
        try:
            runner.reset(order[:warmup], ids, len(order) - warmup, 1)
            opened = runner.state
            for arrival in order[warmup:]:
                runner.step(arrival)
            sealed = runner.seal()
        except SkidpadError as error:
            found.append(Finding("run", f"{action} failed: {error}"))
            return None
        if action is Action.OFF and sealed.state.hash() != opened.hash():
            found.append(Finding("off", "OFF changed the fast state; feedback must read it, and nothing else"))
        if action is Action.COMPLETE:
            changed = [n for n in _OBSERVED if not _equal(sealed.state.tensors[n], opened.tensors[n])]
            if changed:
                found.append(
                    Finding("complete", f"COMPLETE changed {', '.join(changed)}; it may replace the layer only")
                )
        return sealed

    sealed = {action: run(action, arrivals) for action in Action}
    again = run(Action.ALL, arrivals)
    first = sealed[Action.ALL]
    if first is not None and again is not None and first.state_hash != again.state_hash:
        found.append(Finding("hash", "two runs of one episode sealed different states; something is not deterministic"))
    if content_hash(mapper.carrier, mapper.write_rule) != loaded:
        found.append(Finding("weights", "the loaded weights changed; each pair gets a copy, which shares no tensor"))
    blank = [replace(arrival, rgb=arrival.rgb * 0.5) for arrival in arrivals]
    other = run(Action.ALL, blank)
    if first is not None and other is not None and first.ledger.spent != other.ledger.spent:
        found.append(Finding("units", "units depend on what was seen; declare constants known at reset"))
    policy_costs = declared_costs(mapper, Fixed(Action.ALL), RenderProtocol())
    if any(type(units) is not int or units < 1 for units in policy_costs.values()):
        found.append(Finding("units", f"declared units {policy_costs}: expected whole numbers of at least 1"))
    return found


def _equal(a: Any, b: Any) -> bool:
    return bool((a == b).all())

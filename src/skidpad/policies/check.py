"""check_policy: does somebody's policy keep the contract?

It drives the policy with made-up observations, never a world, and reports what it finds instead of raising, so that
one run shows everything. `batch_sensitivity` is the part that evaluation asks about every driver (E48): whether a row's
action depends on who shares its batch.
"""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import nearest
from skidpad.policies.policy import ActionSelection, Policy, PolicySpec
from skidpad.policies.streams import IdentityStreams
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.actions import action_space
from skidpad.simulation.check import Finding
from skidpad.simulation.layout import LAYOUTS, layout_of
from skidpad.simulation.layout_table import Layout
from skidpad.simulation.roads import features_of

F32 = NDArray[np.float32]
ROWS, STEPS = 7, 3  # an odd number of rows, so that vector loops have a remainder; steps enough for memory to matter


class _Batch(NamedTuple):
    """Made-up rows of a few steps; row i is the same whoever stands beside it.

    observation  (STEPS, rows, D)  f32
    seeds        (rows,)           u64
    agents       (rows,)           u32
    world        what stands for a simulator where observations refer to road lists, else None
    """

    observation: F32
    seeds: NDArray[np.uint64]
    agents: NDArray[np.uint32]
    world: Any

    def take(self, rows: Any) -> _Batch:
        return _Batch(self.observation[:, rows].copy(), self.seeds[rows], self.agents[rows], self.world)


class _MadeUpWorld:
    """Road lists made up like the observations: whatever a reference says, there is one (`simulation.roads.Roads`)."""

    def __init__(self, layout: Layout) -> None:
        self.roads = self
        self._column = layout.span("road reference").start + 1
        self._shapes = [(block.rows, features_of(block)) for block in layout.lists]

    def keys(self, rows: F32) -> NDArray[np.int64]:
        return np.floor(8 * np.clip(rows[:, self._column], -1, 1)).astype(np.int64) + 8

    def rows(self, keys: NDArray[np.int64]) -> tuple[F32, ...]:
        drawn = {int(key): np.random.default_rng(int(key)) for key in keys}
        return tuple(
            np.array([drawn[int(key)].uniform(-1, 1, shape) for key in keys], np.float32).reshape(-1, *shape)
            for shape in self._shapes
        )


def check_policy(policy: Policy, env: EnvSettings, *, selection: ActionSelection = "deterministic") -> list[Finding]:
    """Everything in which `policy` breaks the contract of `policies.policy.Policy` in worlds of these settings.

    An empty list means: its spec fits, its actions have the right shape, dtype and range for any observation, the same
    question gives the same answer, arguments are left alone, a reset forgets, rows do not see each other, and no global
    generator or torch switch moves. Policies with `needs_state` are asked for their spec only: they read a world.
    """
    found = _check_spec(policy, env)
    if found or policy.spec.needs_state:
        return found
    batch = _batch(env, ROWS)
    first = _run(policy, batch, selection)  # also the call in which a policy may still load its libraries
    before = _globals()
    second = _run(policy, batch, selection)
    moved = [name for name, value in _globals().items() if value != before[name]]
    if moved:
        found.append(Finding("globals", f"act changed {', '.join(moved)}; draw from `streams`, and restore switches"))
    for step, actions in enumerate(first):
        found += _check_actions(actions, env, ROWS, f"step {step}")
    if found:
        return found
    if not _same(first, second):
        found.append(Finding("determinism", "the same rows, asked twice from fresh memory, got other actions"))
    found += _check_arguments(policy, batch, selection)
    found += _check_reset(policy, batch, selection)
    found += _check_extremes(policy, env, selection)
    actions, _ = _act(policy, batch.take(slice(0, 0)), policy.initial_state(0), 0, selection)
    found += _check_actions(actions, env, 0, "no rows")
    sensitive = batch_sensitivity(policy, env, selection=selection)
    if sensitive is not None:
        found.append(Finding("rows", sensitive))
    return found


def batch_sensitivity(policy: Policy, env: EnvSettings, *, selection: ActionSelection = "deterministic") -> str | None:
    """How an action depends on the batch around its row, or None where the bytes agree.

    One row is sent alone, at the front, in the middle and at the end, among different companions.
    """
    if policy.spec.needs_state:
        return None
    everybody = _batch(env, 4 * ROWS)
    alone = _run(policy, everybody.take([0]), selection)
    companions = list(range(1, 4 * ROWS))
    for size in (2, ROWS, 4 * ROWS):
        for place in sorted({0, size // 2, size - 1}):
            others = companions[-(size - 1) :] if place else companions[: size - 1]
            rows = [*others[:place], 0, *others[place:]]
            together = _run(policy, everybody.take(rows), selection)
            for step in range(STEPS):
                if together[step][place].tobytes() != alone[step][0].tobytes():
                    return (
                        f"the action of a row alone is {alone[step][0]}, and {together[step][place]} as row {place} of "
                        f"{size} at step {step}; records of this policy depend on the batch"
                    )
    return None


def _check_spec(policy: Policy, env: EnvSettings) -> list[Finding]:
    spec = getattr(policy, "spec", None)
    if not isinstance(spec, PolicySpec):
        return [Finding("spec", f"`spec` is {type(spec).__name__}, expected a PolicySpec")]
    found = []
    if spec.layout is not None and spec.layout not in LAYOUTS:
        found.append(Finding("spec", f"layout {spec.layout!r} does not exist{nearest(spec.layout, LAYOUTS)}"))
    elif spec.layout is not None and spec.layout != env.layout:
        found.append(Finding("spec", f"reads {spec.layout}, the world shows {env.layout}"))
    if spec.action_type is not None and spec.action_type != env.action_type:
        found.append(Finding("spec", f"gives {spec.action_type} actions, the world takes {env.action_type} ones"))
    return found


def _check_actions(actions: Any, env: EnvSettings, rows: int, when: str) -> list[Finding]:
    discrete, space = env.action_type == "discrete", action_space(env)
    shape, dtype = space.shape(rows, discrete)
    if not isinstance(actions, np.ndarray) or actions.shape != shape or actions.dtype != dtype:
        given = f"{actions.dtype} {actions.shape}" if isinstance(actions, np.ndarray) else type(actions).__name__
        return [Finding("actions", f"{when}: actions are {given}, expected {np.dtype(dtype)} {shape}")]
    if discrete:
        inside = (actions >= 0) & (actions < (space.factors[0] if actions.ndim == 1 else space.factors))
    else:
        inside = np.isfinite(actions) & (np.abs(actions) <= 1)
    if not inside.all():
        return [Finding("actions", f"{when}: {actions[~inside][0]} is outside the {env.action_type} action space")]
    return []


def _check_arguments(policy: Policy, batch: _Batch, selection: ActionSelection) -> list[Finding]:
    observation, reset = batch.observation[0].copy(), np.zeros(ROWS, np.bool_)
    streams = IdentityStreams(batch.seeds, batch.agents, np.zeros(ROWS, np.int64))
    state = policy.initial_state(ROWS)
    policy.act(observation, state, reset, selection=selection, streams=streams, **_beside(policy, batch))
    if observation.tobytes() != batch.observation[0].tobytes() or reset.any():
        return [Finding("arguments", "act wrote into its arguments; they belong to the simulator")]
    return []


def _check_reset(policy: Policy, batch: _Batch, selection: ActionSelection) -> list[Finding]:
    """A row reset after two steps answers as one that has seen nothing; its neighbours remember."""
    half = np.arange(ROWS) % 2 == 0
    again, _ = _act(policy, batch, _remembered(policy, batch, selection), STEPS - 1, selection, reset=half)
    fresh, _ = _act(policy, batch, policy.initial_state(ROWS), STEPS - 1, selection)
    kept, _ = _act(policy, batch, _remembered(policy, batch, selection), STEPS - 1, selection)
    if again[half].tobytes() != fresh[half].tobytes():
        return [Finding("reset", "a reset row does not act like one that has seen nothing")]
    if again[~half].tobytes() != kept[~half].tobytes():
        return [Finding("reset", "resetting a row changed what its neighbours remember")]
    return []


def _remembered(policy: Policy, batch: _Batch, selection: ActionSelection) -> Any:
    state = policy.initial_state(ROWS)
    for step in range(STEPS - 1):
        _, state = _act(policy, batch, state, step, selection)
    return state


def _check_extremes(policy: Policy, env: EnvSettings, selection: ActionSelection) -> list[Finding]:
    batch = _batch(env, 3)
    low, high = layout_of(env).bounds()
    batch.observation[:] = np.stack([low, high, np.zeros_like(low)])
    actions, _ = _act(policy, batch, policy.initial_state(3), 0, selection)
    return _check_actions(actions, env, 3, "extreme observations")


def _batch(env: EnvSettings, rows: int) -> _Batch:
    generator = np.random.default_rng(20_240_601)
    layout = layout_of(env)
    low, high = layout.bounds()
    low, high = np.where(np.isfinite(low), low, -1), np.where(np.isfinite(high), high, 1)
    observation = generator.uniform(low, high, (STEPS, rows, len(low))).astype(np.float32)
    seeds = generator.integers(0, 2**63, rows).astype(np.uint64)
    world = _MadeUpWorld(layout) if layout.lists else None
    return _Batch(observation, seeds, np.arange(rows, dtype=np.uint32), world)


def _beside(policy: Policy, batch: _Batch) -> dict[str, Any]:
    """What else `act` is given."""
    return {"simulator": batch.world} if policy.spec.needs_roads else {}


def _act(
    policy: Policy,
    batch: _Batch,
    state: Any,
    step: int,
    selection: ActionSelection,
    reset: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[Any], Any]:
    rows = len(batch.seeds)
    return policy.act(
        batch.observation[step].copy(),
        state,
        np.zeros(rows, np.bool_) if reset is None else reset.copy(),
        selection=selection,
        streams=IdentityStreams(batch.seeds, batch.agents, np.full(rows, step, np.int64)),
        **_beside(policy, batch),
    )


def _run(policy: Policy, batch: _Batch, selection: ActionSelection) -> list[NDArray[Any]]:
    """Actions of all steps, from fresh memory."""
    state, found = policy.initial_state(len(batch.seeds)), []
    for step in range(STEPS):
        actions, state = _act(policy, batch, state, step, selection)
        found.append(actions)
    return found


def _same(first: list[NDArray[Any]], second: list[NDArray[Any]]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


def _globals() -> dict[str, Any]:
    """What no policy may move: the global generators, and torch's switches where torch is loaded."""
    legacy: Any = np.random.get_state()
    found: dict[str, Any] = {
        "Python's global generator": random.getstate(),
        "NumPy's global generator": (legacy[0], legacy[1].tobytes(), *legacy[2:]),
        "NumPy's error handling": tuple(np.geterr().items()),
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        found |= {
            "torch's global generator": torch.get_rng_state().numpy().tobytes(),
            "torch's thread count": torch.get_num_threads(),
            "torch's gradient mode": torch.is_grad_enabled(),
            "torch's default dtype": str(torch.get_default_dtype()),
            "torch's deterministic switch": torch.are_deterministic_algorithms_enabled(),
        }
    return found

"""The only rollout loop: a policy drives a batch of worlds to their ends, and every case leaves a trace.

States are copied from the simulator's flat agent arrays into one buffer per array, (T + 1, A) for all worlds
together, and cut per world at the end, so recording many cases costs one copy per array and step. A world whose case
fails leaves the batch; the others go on. Nothing here knows what is measured or written.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ActionError, CaseError, ProtocolError
from skidpad.evaluation.goal_history import GoalHistory
from skidpad.policies.policy import ActionSelection, Policy, Thought
from skidpad.policies.streams import IdentityStreams
from skidpad.runs.records import Status
from skidpad.runs.trace import TRACE_ARRAYS, Trace, TraceMeta
from skidpad.scenes.case import Case
from skidpad.settings.schema import EnvSettings, RecordLevel

if TYPE_CHECKING:
    from skidpad.simulation.simulator import Simulator, StepResult

STALL_FACTOR = 3
"""A pass in which no world ends for this many scenario lengths is stalled (E58)."""

LENGTH_REACHED = "length"
"""What the simulator calls the end of a world that ran its course."""

STATE_ARRAYS = tuple(spec for spec in TRACE_ARRAYS if spec.shape == "R,T,N")
STATE_BYTES = sum(np.dtype(spec.dtype).itemsize for spec in STATE_ARRAYS)
"""Of one agent in one state."""
STATE_HASH_LENGTH = 16


@dataclass(frozen=True)
class Labels:
    """What traces say about the pass they come from."""

    evaluator: str
    arm: str
    profile: str


class Failure(NamedTuple):
    """Why a case has no trace: the error's class, its message in one line, and its full traceback."""

    type: str
    message: str
    traceback: str

    @staticmethod
    def of(error: BaseException) -> Failure:
        text = "".join(traceback.format_exception(error))
        return Failure(type(error).__name__, " ".join(str(error).split()), text)


class Outcome(NamedTuple):
    """How one case ended: a trace when `status` is "ok", a failure otherwise."""

    status: Status
    trace: Trace | None
    failure: Failure | None


def rollout(
    simulator: Simulator,
    cases: Sequence[Case],
    policy: Policy | None,
    *,
    env: EnvSettings,
    selection: ActionSelection,
    labels: Labels,
    record: RecordLevel = "states",
    numbers: NDArray[np.int64] | None = None,
) -> list[Outcome]:
    """Run every world of a simulator to its end, once, and return one outcome per case in order.

    `env` are the settings that the simulator was built with. `policy` drives the rows; None where no agent has one
    (a controller drives all of them). Selection has no default: the deterministic and the sampled policy are
    different drivers. With `record` "observations" a trace also holds what the policy saw, expected and weighed.
    `numbers` (W,) says which rollout of its case each world is, where a case is run several times at once: random
    numbers of drivers depend on it. A failure that names its world ends that case only; any other error of the policy
    or the simulator is raised.
    """
    run = _Run(simulator, cases, policy, env, selection, record, numbers)
    run.to_the_end()
    return [run.outcome(world, labels) for world in range(len(cases))]


class _Run:
    def __init__(
        self,
        simulator: Simulator,
        cases: Sequence[Case],
        policy: Policy | None,
        env: EnvSettings,
        selection: ActionSelection,
        record: RecordLevel,
        numbers: NDArray[np.int64] | None,
    ) -> None:
        self._simulator = simulator
        self._numbers = np.zeros(len(cases), np.int64) if numbers is None else numbers
        self._cases = cases
        self._policy = policy
        self._settings = env.model_dump(mode="json")
        self._selection = selection
        self._failures: dict[int, Failure] = {}
        self._steps = int(simulator.world_steps.max())
        self._rows = len(simulator.row_world)
        if policy is None and self._rows:
            raise ProtocolError(f"{self._rows} agents wait for a policy, but none was given.")
        self._discrete = env.action_type == "discrete"
        self._states = {
            spec.name: np.zeros((self._steps + 1, int(simulator.world_agents[-1])), spec.dtype) for spec in STATE_ARRAYS
        }
        self._signals = [
            np.zeros((self._steps + 1, len(simulator.signal_state(world))), np.uint8) for world in range(len(cases))
        ]
        self._lit = [world for world, signals in enumerate(self._signals) if signals.shape[1]]
        self._goals = GoalHistory(simulator)
        width = 1 if self._discrete else 2
        self._action = np.zeros((self._steps, self._rows, width), np.float32)
        self._applied = np.zeros((self._steps, self._rows, 2), np.float32)
        self._clipped = np.zeros((self._steps, self._rows), np.bool_)
        self._records_observations = record == "observations"
        width = simulator.result.obs.shape[1] if self._records_observations else 0
        self._seen = {
            "observation": np.zeros((self._steps, self._rows, width), np.float32),
            "value": np.zeros((self._steps, self._rows, 0), np.float32),
            "distribution": np.zeros((self._steps, self._rows, 0), np.float32),
        }

    def to_the_end(self) -> None:
        simulator = self._simulator
        result = simulator.reset()
        self._record(0)
        memory = self._policy.initial_state(self._rows) if self._policy else None
        reset = np.ones(self._rows, np.bool_)
        for step in range(STALL_FACTOR * self._steps):
            if simulator.done.all():
                return
            self._check_observations(result, step)
            actions, memory = self._decide(result, memory, reset)
            if self._records_observations and step < self._steps:
                self._record_thought(step, result)
            result = self._advance(actions)
            # Memory is forgotten before the next decision, for exactly the agents whose episode ended here (E53).
            reset = result.terminal | result.truncated
            if step < self._steps:
                self._record(step + 1)
                if self._rows:
                    self._action[step] = np.asarray(actions, np.float32).reshape(self._rows, -1)
                    self._applied[step] = simulator.applied_actions
                    self._clipped[step] = simulator.clipped

    def _record(self, k: int) -> None:
        simulator = self._simulator
        for name, buffer in self._states.items():
            buffer[k] = simulator.agent[name]
        self._goals.record()
        if self._lit:
            taken = simulator.steps_taken.tolist()
            for world in self._lit:
                if taken[world] == k:
                    self._signals[world][k] = simulator.signal_state(world)

    def _record_thought(self, step: int, result: StepResult) -> None:
        """What the policy was given for this step, and what it made of it, before the simulator writes over it."""
        self._seen["observation"][step] = result.obs
        thought: Thought | None = getattr(self._policy, "thought", None)
        for name, values in thought._asdict().items() if thought is not None else ():
            if self._seen[name].shape[2] != values.shape[1]:
                self._seen[name] = np.zeros((self._steps, self._rows, values.shape[1]), np.float32)
            self._seen[name][step] = values

    def _decide(self, result: StepResult, memory: Any, reset: NDArray[np.bool_]) -> tuple[NDArray[Any], Any]:
        if self._policy is None:
            return np.zeros((0,) if self._discrete else (0, 2), np.int32 if self._discrete else np.float32), None
        simulator = self._simulator
        steps = simulator.steps_taken[simulator.row_world]
        rollouts = self._numbers[simulator.row_world]
        streams = IdentityStreams(simulator.row_seed, simulator.row_key, steps, rollouts)
        spec = self._policy.spec
        return self._policy.act(
            result.obs,
            memory,
            reset,
            selection=self._selection,
            streams=streams,
            simulator=simulator if spec.needs_state or spec.needs_roads else None,
        )

    def _advance(self, actions: NDArray[Any]) -> StepResult:
        simulator = self._simulator
        while not simulator.done.all():
            try:
                return simulator.step(actions)
            except ActionError as error:
                if error.world is None:
                    raise
                self._fail(error.world, error)  # The state is untouched: step again without that world.
            except CaseError as error:
                # The step was taken; one world or more have ended in it, and the error names the first.
                for world in np.flatnonzero(simulator.done):
                    if simulator.end_reason(int(world)) != LENGTH_REACHED:
                        self._failures.setdefault(int(world), Failure.of(error))
                break
        return simulator.result

    def _check_observations(self, result: StepResult, step: int) -> None:
        if np.isfinite(result.obs).all():
            return
        rows = np.flatnonzero(~np.isfinite(result.obs).all(axis=1))
        for row in rows:
            world = int(self._simulator.row_world[row])
            if world not in self._failures:
                track = int(self._simulator.row_agent[row])
                case = self._cases[world]
                self._fail(
                    world,
                    CaseError(
                        f"observation of agent {track} in scene {case.scene_id} is not finite at step {step}.",
                        world=world,
                    ),
                )

    def _fail(self, world: int, error: BaseException) -> None:
        self._failures[world] = Failure.of(error)
        self._simulator.end(world, "failed")

    def outcome(self, world: int, labels: Labels) -> Outcome:
        if world in self._failures:
            return Outcome("error", None, self._failures[world])
        steps = int(self._simulator.steps_taken[world])
        if not self._simulator.done[world] or steps > self._steps:
            length = int(self._simulator.world_steps[world])
            message = (
                f"scene {self._cases[world].scene_id} did not end within {STALL_FACTOR} times its {length} steps; "
                "the simulator must end every world."
            )
            return Outcome("stalled", None, Failure("CaseError", message, message + "\n"))
        return Outcome("ok", self._trace(world, steps, labels), None)

    def _trace(self, world: int, steps: int, labels: Labels) -> Trace:
        simulator = self._simulator
        agents = slice(int(simulator.world_agents[world]), int(simulator.world_agents[world + 1]))
        rows = np.flatnonzero(simulator.row_world == world)
        arrays: dict[str, NDArray[Any]] = {
            name: np.ascontiguousarray(buffer[: steps + 1, agents])[None] for name, buffer in self._states.items()
        }
        hashes = state_hashes(arrays)
        arrays |= {
            **self._goals.arrays(world),
            "signal_state": np.ascontiguousarray(self._signals[world][: steps + 1])[None],
            "scored": np.array(simulator.scored(world), np.int32),
            **simulator.identity(world),
            "controller": np.array(simulator.controller(world), np.uint8),
            "exclusion": np.array(simulator.exclusion(world), np.uint8),
            "policy_agent": np.array(simulator.policy_agents(world), np.int32),
            "action": np.ascontiguousarray(self._action[:steps, rows])[None],
            "action_applied": np.ascontiguousarray(self._applied[:steps, rows])[None],
            "action_clipped": np.ascontiguousarray(self._clipped[:steps, rows])[None],
            **{name: np.ascontiguousarray(buffer[:steps, rows])[None] for name, buffer in self._seen.items()},
        }
        case = self._cases[world]
        ego, rule = simulator.ego(world)
        meta = TraceMeta(
            case=case.id,
            arm=labels.arm,
            evaluator=labels.evaluator,
            scene_id=case.scene_id,
            scene_digest=case.scene_digest,
            dt_us=int(simulator.dt_us[world]),
            start_row=int(simulator.start_row(world)),
            action_selection=self._selection,
            profile=labels.profile,
            ego=int(ego),
            ego_rule=rule,
            end_reason=simulator.end_reason(world),
            settings=self._settings,
            observed=observed(simulator) if self._records_observations else {},
            state_hash=hashes,
        )
        return Trace(meta, arrays)


def joined(traces: Sequence[Trace]) -> Trace:
    """Several rollouts of one case as one trace, in their order.

    Raises CaseError where they did not run equally long.
    """
    first = traces[0]
    lengths = [trace.steps for trace in traces]
    if len(set(lengths)) > 1:
        raise CaseError(
            f"case {first.meta.case}, arm {first.meta.arm!r}: its rollouts end after {min(lengths)} to {max(lengths)} "
            "steps. Joint rollouts are of one length: raise env.inactive_threshold, or let no infraction stop a driver."
        )
    goals = max(trace["goals"].shape[2] for trace in traces)
    arrays = dict(first.arrays)
    for spec in TRACE_ARRAYS:
        if spec.shape.startswith("R,"):
            parts = [trace[spec.name] for trace in traces]
            if spec.name == "goals":
                pads = [((0, 0), (0, 0), (0, goals - part.shape[2]), (0, 0)) for part in parts]
                parts = [np.pad(part, pad, constant_values=np.nan) for part, pad in zip(parts, pads, strict=True)]
            arrays[spec.name] = np.concatenate(parts)
    hashes = tuple(one for trace in traces for one in trace.meta.state_hash)
    return Trace(replace(first.meta, state_hash=hashes), arrays)


def observed(simulator: Simulator) -> dict[str, Any]:
    """What the columns of recorded observations and distributions are, as JSON values: the layout's blocks in order,
    and the physical values of the discrete actions."""
    layout = simulator.layout
    return {
        "layout": layout.id,
        "blocks": [
            {
                "name": block.name,
                "rows": block.rows,
                "features": [
                    [f.name, f.unit, float(f.divisor), _finite(f.low), _finite(f.high)] for f in block.features
                ],
            }
            for block in layout.blocks
        ],
        "actions": [[float(value) for value in row] for row in simulator.actions.table],
        "action_units": list(simulator.actions.units),
        "action_scale": [float(value) for value in simulator.actions.positive],
        "action_scale_negative": [float(value) for value in simulator.actions.negative],
    }


def _finite(bound: float) -> float | None:
    """A bound as a JSON value; None where there is none."""
    return float(bound) if np.isfinite(bound) else None


def state_hashes(arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """One digest per state over all agents and state arrays: equal runs have equal hashes at every step.

    arrays  (R, T, N) each, the state arrays of a trace by name
    """
    first = arrays[STATE_ARRAYS[0].name]
    states = first.shape[0] * first.shape[1]
    packed = np.concatenate(
        [np.ascontiguousarray(arrays[spec.name]).reshape(states, -1).view(np.uint8) for spec in STATE_ARRAYS], axis=1
    )
    data, size = packed.tobytes(), packed.shape[1]
    return tuple(
        hashlib.sha256(data[start : start + size]).hexdigest()[:STATE_HASH_LENGTH]
        for start in range(0, states * size, size)
    )

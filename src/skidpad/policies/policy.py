"""The policy protocol: observations to actions for a batch of agent rows, with an opaque recurrent state.

A policy never draws from a global generator. What it may draw comes from `RowStreams`, whose numbers depend on the
identity of the row (case seed, rollout, agent, step, purpose) and on nothing else, so no result depends on who shares
the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

ActionSelection = Literal["deterministic", "expected", "sample"]
State = Any  # an opaque tree owned by the policy; None for a policy without memory


class RowStreams(Protocol):
    """Random numbers for a batch of rows, by identity."""

    def uniform(self, count: int) -> NDArray[np.float32]:
        """(rows, count) f32 in [0, 1), a function of each row's case seed, rollout, agent and step."""
        ...


class Thought(NamedTuple):
    """What a policy computed beside its last actions: recorded where somebody wants to see why it acted.

    value         (rows, V)  f32   expected return; V is 0 for a policy without one
    distribution  (rows, K)  f32   probability of each discrete action, or means then deviations in the box
    """

    value: NDArray[np.float32]
    distribution: NDArray[np.float32]


@dataclass(frozen=True)
class PolicySpec:
    """What a policy needs from a world before it can drive in it.

    layout        observation layout id, for example "compact/1"; None when the policy reads no observation
    action_type   "discrete" or "continuous"; None when it can do both
    needs_state   the loop hands the simulator to `act`: a diagnostic that reads more than its observation
    needs_roads   the loop hands the simulator to `act` for its `roads`: observations refer to lists of them
    """

    name: str
    layout: str | None
    action_type: Literal["discrete", "continuous"] | None
    needs_state: bool = False
    needs_roads: bool = False


@runtime_checkable
class Policy(Protocol):
    """Drives a batch of agents.

    A policy may keep a `thought` (Thought) of its last `act`: what is recorded are the very numbers acted on.
    """

    spec: PolicySpec

    def initial_state(self, rows: int) -> State:
        """Memory of `rows` agents that have seen nothing yet."""
        ...

    def act(
        self,
        observation: NDArray[np.float32],
        state: State,
        reset: NDArray[np.bool_],
        *,
        selection: ActionSelection,
        streams: RowStreams,
        simulator: Any = None,
    ) -> tuple[NDArray[Any], State]:
        """Actions of every row, and the memory after them.

        observation  (rows, D)  f32   as the layout declares
        reset        (rows,)    bool  True where the memory of the row is forgotten before this call
        returns      (rows,) i32 for a discrete world, (rows, 2) f32 in [-1, 1] for a continuous one

        Row i depends on row i of the arguments only. `simulator` is given only to policies whose spec says
        `needs_state` or `needs_roads`.
        """
        ...

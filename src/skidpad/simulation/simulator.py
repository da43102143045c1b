"""Simulator: worlds being simulated, stepped together. (Signatures published early; bodies follow.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.case import Case
from skidpad.scenes.events import Controller
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import ControllerName, EnvSettings


class StepResult(NamedTuple):
    """What policy rows get back; views into the simulator's buffers, valid until the next call.

    obs        (N, D)  f32   as `layout` declares; zero rows for ended worlds
    terminal   (N,)    bool  the agent left in this step (never while infractions are ignored)
    truncated  (N,)    bool  the world ended in this step
    mask       (N,)    bool  the row is live and its observation untampered (S65)
    events     (N,)    u32   skidpad.scenes.events.Event, of the step that led here
    """

    obs: NDArray[np.float32]
    terminal: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    mask: NDArray[np.bool_]
    events: NDArray[np.uint32]


class Simulator:
    """Worlds over cases, in the caller's order.

    `substitute`: who drives the agents under test instead of the policy ("idm", "replay", "static"): how baseline arms
    run on the very same agents of the same cases; everybody else keeps the settings' controllers.

    row_world      (N,)     i32    world of each policy row
    row_agent      (N,)     i32    agent inside its world (= track of the scene)
    row_seed       (N,)     u64    case seed of the row's world; with row_key, the identity of its random stream
    row_key        (N,)     u32    stable key of the agent
    world_agents   (W + 1,) i32    offsets of worlds in the flat agent arrays
    agent          name -> (A,)    live views: every (R, T, N) array of a trace except what is derived there
    world_steps    (W,)     i64    steps each world runs
    done           (W,)     bool   the world has ended
    steps_taken    (W,)     i64
    dt_us          (W,)     i64    microseconds per step of each world
    applied_actions (N, 2)  f32    [m/s^2, rad] command of the last step after clipping
    clipped        (N,)     bool   the last action lay outside the box
    """

    row_world: NDArray[np.int32]
    row_agent: NDArray[np.int32]
    row_seed: NDArray[np.uint64]
    row_key: NDArray[np.uint32]
    world_agents: NDArray[np.int32]
    agent: Mapping[str, NDArray[Any]]
    world_steps: NDArray[np.int64]
    done: NDArray[np.bool_]
    steps_taken: NDArray[np.int64]
    dt_us: NDArray[np.int64]
    applied_actions: NDArray[np.float32]
    clipped: NDArray[np.bool_]

    def __init__(
        self,
        cases: Sequence[Case],
        settings: EnvSettings,
        *,
        scenes: Mapping[str, Scene],
        threads: int = 1,
        substitute: ControllerName | None = None,
    ) -> None:
        """Open one world per case; `scenes` by digest. Raises CaseError (with `.world`) where a case has nobody under
        test, ProtocolError for a missing scene or no case."""
        raise NotImplementedError

    def reset(self, worlds: Sequence[int] | None = None) -> StepResult:
        """Start the named worlds again (all by default); the others are untouched."""
        raise NotImplementedError

    def step(self, actions: NDArray[Any]) -> StepResult:
        """One step of every world that has not ended. Actions: (N, 2) f32 in [-1, 1] for a continuous world, (N,) i32
        for a discrete one; rows of ended worlds are ignored. Raises ActionError (with `.world`), state untouched."""
        raise NotImplementedError

    def end(self, world: int, reason: str) -> None:
        """End one world now, for example because its case failed; the others go on."""
        raise NotImplementedError

    def signal_state(self, world: int) -> NDArray[np.uint8]:
        """(S,) u8 signal states at the world's current step."""
        raise NotImplementedError

    def scored(self, world: int) -> NDArray[np.int32]:
        """(M,) i32 agents under test, ascending."""
        raise NotImplementedError

    def policy_agents(self, world: int) -> NDArray[np.int32]:
        """(Q,) i32 agents that own rows, ascending."""
        raise NotImplementedError

    def goals(self, world: int) -> NDArray[np.float32]:
        """(M, G, 3) f32 [m] goals of the agents under test, in order; NaN beyond `goal_count`."""
        raise NotImplementedError

    def goal_count(self, world: int) -> NDArray[np.int32]:
        """(M,) i32 goals assigned."""
        raise NotImplementedError

    def controller(self, world: int) -> NDArray[np.uint8]:
        """(N,) u8 skidpad.scenes.events.Controller of each agent."""
        raise NotImplementedError

    def exclusion(self, world: int) -> NDArray[np.uint8]:
        """(N,) u8 skidpad.scenes.events.Exclusion of each agent."""
        raise NotImplementedError

    def start_row(self, world: int) -> int:
        """Log row of state 0."""
        raise NotImplementedError

    def end_reason(self, world: int) -> str:
        """Why the world ended: "length", or what `end` was told; "" while it runs."""
        raise NotImplementedError

    def ego(self, world: int) -> tuple[int, str]:
        """(track, rule) of a one-ego world, rule "scene", "each" or "longest_valid"; (-1, "") elsewhere."""
        raise NotImplementedError

    def close(self) -> None:
        """Release threads; closing twice is harmless, use after it raises ProtocolError."""
        raise NotImplementedError

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


__all__ = ["Controller", "Simulator", "StepResult"]

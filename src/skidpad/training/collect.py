"""Experience: a policy drives worlds for a number of steps, and everything a learner needs is written down.

Observations, rewards and flags are written by the simulator straight into the buffers of their step. What is random in
the choice of actions is drawn for all rows of all ranks by every rank, which then takes its own: so the actions of a
row do not depend on how many ranks share the worlds. This is no evaluation: episodes start anew where others end, and
nothing is recorded of a case.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skidpad.policies.lists import Lists
from skidpad.policies.network import ActorCritic
from skidpad.scenes.events import COLLISION, Event
from skidpad.training.distributions import draw, log_probability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skidpad.simulation.results import StepResult
    from skidpad.simulation.roads import Roads
    from skidpad.training.ranks import Ranks

F32 = NDArray[np.float32]
STEP_FIELDS = ("reward", "terminal", "truncated", "mask", "events")


class Worlds(Protocol):
    """What is asked of a simulator: `Simulator` with autoreset "same_step", or a small world of known optimum."""

    result: StepResult

    @property
    def roads(self) -> Roads: ...
    @property
    def row_world(self) -> NDArray[np.int32]: ...
    @property
    def steps_taken(self) -> NDArray[np.int64]: ...
    def reset(self) -> Any: ...
    def step(self, actions: NDArray[Any]) -> Any: ...
    def write_to(self, buffers: Mapping[str, Any]) -> Any: ...


class Batch(NamedTuple):
    """T steps of N rows.

    obs           (T, N, D)     f32   what was seen
    action        (T, N)  i64, or (T, N, 2)  f32 before it was clipped to the box
    log_prob      (T, N)        f32   of the action when it was chosen
    value         (T, N)        f32   expected then
    advantage     (T, N)        f32
    target        (T, N)        f32   what the value should have been: advantage + value
    learn         (T, N)        bool  rows that were live
    reset         (T, N)        bool  the memory was empty before this step
    memory        (N, H)        f32   before the first step; None without memory
    lists         what references of the observations refer to; None for a network that reads none
    """

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    learn: Tensor
    reset: Tensor
    memory: Tensor | None
    lists: Lists | None = None


class Driven(NamedTuple):
    """What became of the drives that ended in a batch: counts, over all of this rank's worlds.

    drives    agents that left, or whose world ended
    goals     reached, also by drives that go on
    crashes, departures   drives that ended in a collision, off the road
    steps     live agent-steps
    reward    their sum
    """

    drives: int
    goals: int
    crashes: int
    departures: int
    steps: int
    reward: float

    def over(self, ranks: Ranks) -> Driven:
        """Their sums over all ranks."""
        totals = dict(zip(self._fields, ranks.total(list(self)), strict=True))
        return Driven(reward=totals.pop("reward"), **{name: int(count) for name, count in totals.items()})


def advantages(
    reward: F32,
    value: F32,
    after: F32,
    terminal: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    gae_lambda: float,
) -> F32:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16), (T, N) f32.

    reward     (T, N)  f32
    value      (T, N)  f32   of what was seen before each step
    after      (T, N)  f32   of what was seen after it, in the old episode where one ended
    terminal   (T, N)  bool  nothing follows
    truncated  (T, N)  bool  something would have followed: `after` stands for it, and the sum ends
    """
    found = np.zeros_like(reward)
    running = np.zeros_like(reward[0])
    for step in range(len(reward) - 1, -1, -1):
        follows = ~terminal[step]
        delta = reward[step] + np.float32(gamma) * after[step] * follows - value[step]
        running = delta + np.float32(gamma * gae_lambda) * running * (follows & ~truncated[step])
        found[step] = running
    return found


class Collector:
    """Drives worlds with a network, `horizon` steps at a time.

    worlds     as `Worlds`, reset or restored; results go into the collector's memory from now on
    memory     (N, H) f32   of the rows, on the device of the network; None without memory
    reset      (N,)   bool  whose memory is empty
    bootstrap  whether a drive that is cut off is worth, after the cut, what was seen last; else nothing
    """

    def __init__(
        self,
        worlds: Worlds,
        network: ActorCritic,
        horizon: int,
        generator: torch.Generator,
        ranks: Ranks,
        *,
        bootstrap: bool = True,
    ) -> None:
        self._bootstraps = bootstrap
        self.worlds, self.network, self._generator, self._ranks = worlds, network, generator, ranks
        self._horizon = horizon
        shown = worlds.result
        rows, width = shown.obs.shape
        self._rows = rows
        self._obs = np.zeros((horizon + 1, rows, width), np.float32)
        self._flags: dict[str, NDArray[Any]] = {
            name: np.zeros((horizon, rows), getattr(shown, name).dtype) for name in STEP_FIELDS
        }
        self._value, self._after = np.zeros((2, horizon, rows), np.float32)
        discrete = network.shape.head == "discrete"
        self._action = torch.zeros((horizon, rows), dtype=torch.int64) if discrete else torch.zeros(horizon, rows, 2)
        self._log_prob = torch.zeros(horizon, rows)
        self._was_reset = np.zeros((horizon, rows), np.bool_)
        self._device = next(network.parameters()).device
        width = network.shape.state_width
        self.memory = torch.zeros(rows, width, device=self._device) if width else None
        self.reset = np.ones(rows, np.bool_)
        self._factors = _factors(worlds)
        self._lists = Lists(worlds.roads, network.lists) if network.shape.lists else None
        self.simulate_seconds = self.act_seconds = 0.0

    def collect(self, gamma: float, gae_lambda: float) -> tuple[Batch, Driven]:
        """The next `horizon` steps. The batch is valid until the next call."""
        first = None if self.memory is None else self.memory.clone()
        np.copyto(self._obs[0], self.worlds.result.obs)
        with torch.inference_mode():
            for step in range(self._horizon):
                self._step(step)
            last = self._values(self._obs[-1], self._forgotten())
        flags = self._flags
        ended = flags["terminal"] | flags["truncated"]
        self._after[:-1] = np.where(ended[:-1], self._after[:-1], self._value[1:])
        self._after[-1] = np.where(ended[-1], self._after[-1], last)
        # A network that has diverged gives values that are no numbers; the update says so, with what it was given.
        with np.errstate(invalid="ignore", over="ignore"):
            advantage = advantages(
                flags["reward"], self._value, self._after, flags["terminal"], flags["truncated"], gamma, gae_lambda
            )
        batch = Batch(
            obs=torch.from_numpy(self._obs[:-1]),
            action=self._action,
            log_prob=self._log_prob,
            value=torch.from_numpy(self._value),
            advantage=torch.from_numpy(advantage),
            target=torch.from_numpy(advantage + self._value),
            learn=torch.from_numpy(flags["mask"]),
            reset=torch.from_numpy(self._was_reset),
            memory=first,
            lists=self._lists,
        )
        return batch, self._driven()

    def _step(self, step: int) -> None:
        began = time.perf_counter()
        self._was_reset[step] = self.reset
        seen = torch.from_numpy(self._obs[step]).to(self._device)
        out, value, self.memory = self.network(seen, self._forgotten(), self._lists)
        action = draw(out, self.network.log_std, self._uniform())
        self._action[step] = action
        self._log_prob[step] = log_probability(out, self.network.log_std, action)
        self._value[step] = value.float().cpu().numpy()
        taken = self._taken(action)
        acted = time.perf_counter()
        buffers = {name: array[step] for name, array in self._flags.items()}
        self.worlds.write_to({"obs": self._obs[step + 1], **buffers})
        self.worlds.step(taken)
        self.act_seconds += acted - began
        self.simulate_seconds += time.perf_counter() - acted
        self._bootstrap(step)
        fresh = self.worlds.steps_taken[self.worlds.row_world] == 0
        self.reset = fresh | self._flags["terminal"][step]

    def _bootstrap(self, step: int) -> None:
        """The value of what a row saw last in an episode that was cut off, not of the first row of the next; without
        bootstrapping, 0."""
        rows = np.flatnonzero(self._flags["truncated"][step])
        if not len(rows):
            return
        if not self._bootstraps:
            self._after[step, rows] = 0.0
            return
        final = self.worlds.result.final_obs
        assert final is not None
        memory = None if self.memory is None else self.memory[torch.from_numpy(rows)]
        self._after[step, rows] = self._values(final[rows], memory)

    def _values(self, seen: F32, memory: Tensor | None) -> F32:
        value: F32 = self.network(torch.from_numpy(seen).to(self._device), memory, self._lists)[1].float().cpu().numpy()
        return value

    def _forgotten(self) -> Tensor | None:
        if self.memory is None:
            return None
        return self.memory * torch.from_numpy(~self.reset).to(self._device)[:, None]

    def _uniform(self) -> Tensor:
        """(N, 4) f32 in [0, 1): this rank's rows of the numbers of all ranks."""
        every = torch.rand(self._ranks.count * self._rows, 4, generator=self._generator)
        return every[self._ranks.number * self._rows :][: self._rows].to(self._device)

    def _taken(self, action: Tensor) -> NDArray[Any]:
        """The action as the simulator takes it."""
        if action.dtype.is_floating_point:
            return action.clamp(-1, 1).cpu().numpy()
        index = action.to(torch.int32).cpu().numpy()
        if len(self._factors) < 2:
            return index
        return np.stack(np.unravel_index(index, self._factors), axis=1).astype(np.int32)

    def _driven(self) -> Driven:
        flags = self._flags
        live, events = flags["mask"], flags["events"]
        ended = flags["terminal"] | flags["truncated"]
        return Driven(
            drives=int(ended.sum()),
            goals=int((events[live] & Event.GOAL != 0).sum()),
            crashes=int((events[flags["terminal"]] & int(COLLISION) != 0).sum()),
            departures=int((events[flags["terminal"]] & int(Event.OFFROAD | Event.OFF_MAP) != 0).sum()),
            steps=int(live.sum()),
            reward=float(flags["reward"][live].sum(dtype=np.float64)),
        )


def _factors(worlds: Worlds) -> tuple[int, ...]:
    space = getattr(worlds, "actions", None)
    return space.factors if space is not None else ()

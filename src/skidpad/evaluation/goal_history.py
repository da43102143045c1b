"""Goals over a whole episode: what each agent under test reached, in order, and what still lay ahead at the end.

A simulator holds the goals of the moment. Where sets regenerate (S61) the earlier ones are gone by the end, so whoever
records an episode keeps them as they are replaced. Goals that were dropped unreached leave no mark: no agent was asked
for them in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from skidpad.simulation.simulator import Simulator

F32 = NDArray[np.float32]


class GoalHistory:
    """Of all worlds of a simulator: call `record` in state 0 and after every step, `arrays` at the end."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        worlds = range(len(simulator.world_agents) - 1)
        scored = [simulator.scored(world) for world in worlds]
        self._start = np.concatenate([[0], np.cumsum([len(agents) for agents in scored])]).astype(np.int64)
        self._world = np.repeat(np.arange(len(scored)), np.diff(self._start))
        self._flat = np.concatenate([simulator.world_agents[w] + scored[w] for w in worlds]).astype(np.int64)
        self._known: list[F32] = []  # (K, 3) per agent under test, world after world
        self._first = np.zeros(len(self._flat), np.int32)
        self._behind = np.zeros(len(self._flat), np.int64)

    def _reached(self) -> NDArray[np.int64]:
        """(M,) goals of earlier sets: it rises exactly when a set is replaced."""
        simulator = self._simulator
        index = simulator.agent["goal_index"][self._flat].astype(np.int64)
        earlier: NDArray[np.int64] = index - simulator.goal_next[self._flat]
        return earlier

    def record(self) -> None:
        """Note what has been replaced since the last call."""
        simulator = self._simulator
        if not self._known:
            for world in range(len(self._start) - 1):
                goals, count = simulator.goals(world), simulator.goal_count(world)
                self._known += [goals[m, : count[m]].copy() for m in range(len(count))]
            self._first[:] = [len(goals) for goals in self._known]
            self._behind[:] = self._reached()
            return
        behind = self._reached()
        for k in np.flatnonzero(behind != self._behind):
            world = int(self._world[k])
            m = int(k - self._start[world])
            reached, next_ = int(simulator.agent["goal_index"][self._flat[k]]), int(simulator.goal_next[self._flat[k]])
            ahead = simulator.goals(world)[m, next_ : simulator.goal_count(world)[m]]
            self._known[k] = np.concatenate([self._known[k][:reached], ahead])
        self._behind = behind

    def arrays(self, world: int) -> dict[str, NDArray[Any]]:
        """The trace arrays `goals`, `goal_count` and `goal_first` of one world."""
        own = slice(int(self._start[world]), int(self._start[world + 1]))
        known = self._known[own]
        count = np.array([len(goals) for goals in known], np.int32)
        width = max(int(count.max(initial=0)), self._simulator.goals(world).shape[1])
        goals = np.full((len(known), width, 3), np.nan, np.float32)
        for m, points in enumerate(known):
            goals[m, : len(points)] = points
        return {"goals": goals[None], "goal_count": count[None], "goal_first": self._first[own][None].copy()}

"""SkidpadParallelEnv: all policy-driven agents of one world, as a PettingZoo parallel environment (S118)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from skidpad.adapters import spaces
from skidpad.adapters.episodes import OneWorld, about, driving
from skidpad.errors import ProtocolError, listed
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.training import training_settings

Shown = dict[str, NDArray[Any]]


class SkidpadParallelEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Drivers of one world. Every episode is on the next of `scenes`, in an order that belongs to the seed.

    scenes    what is driven on
    settings  by default `training_settings()`: every eligible vehicle is an agent
    cache     where map indexes come from, as in Simulator

    Agents are called "agent_0", "agent_1", ... in the order of policy rows; `possible_agents` are those of the fullest
    scene. An agent that has left is not among `agents` any more. `infos[agent]` holds `scene`, `case`, `start_row` and
    `track` after a reset, `events` and `mask` after a step, as in SkidpadEnv.

    Raises ProtocolError for no scene, a step before reset, after the end of an episode or after close, for a missing
    agent or one that is not there, and actions of a wrong shape; ActionError for values that are none; CaseError where
    no scene has anybody to drive.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "skidpad", "render_modes": [], "is_parallelizable": True}

    def __init__(
        self, scenes: Sequence[Scene], settings: EnvSettings | None = None, *, cache: MapCache | None = None
    ) -> None:
        self.settings = training_settings() if settings is None else settings
        self.render_mode = None
        self._world = OneWorld(scenes, self.settings, cache)
        names = [f"agent_{k}" for k in range(self._world.most_rows())]
        self.possible_agents = names
        self.agents: list[str] = []
        self._observation = {name: spaces.observations(self.settings) for name in names}
        self._action = {name: spaces.actions(self.settings) for name in names}
        self._random = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        """The box of an agent's observation."""
        return self._observation[agent]

    def action_space(self, agent: str) -> Any:
        """What an agent may do."""
        return self._action[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Shown, dict[str, dict[str, Any]]]:
        """The next episode; with a seed, the first of the order that belongs to it. There are no options."""
        if seed is not None:
            self._world.seed(spaces.checked_seed(seed))
        elif not self._world.seeded:
            self._world.seed(int(self._random.integers(2**32)))
        simulator, result = self._world.next_episode()
        self._rows = {f"agent_{row}": row for row in np.flatnonzero(driving(simulator)).tolist()}
        self.agents = list(self._rows)
        common, names = about(simulator), simulator.identity(0)["source_id"]
        infos = {name: common | {"track": int(names[simulator.row_agent[row]])} for name, row in self._rows.items()}
        return {name: result.obs[row].copy() for name, row in self._rows.items()}, infos

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[Shown, dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One step of the world. `actions` has one entry for each of `agents`."""
        simulator = self._world.simulator
        if simulator is None or not self.agents:
            raise ProtocolError("no agent is there: call reset() before the next step")
        if set(actions) != set(self.agents):
            missing, unknown = set(self.agents) - set(actions), set(actions) - set(self.agents)
            raise ProtocolError(
                f"actions for every agent that is there are due; missing: {listed(sorted(missing)) or 'none'}, "
                f"not there: {listed(sorted(unknown)) or 'none'}"
            )
        discrete = self.settings.action_type == "discrete"
        given = np.zeros(*simulator.actions.shape(len(simulator.row_world), discrete))
        for name in self.agents:
            row = self._rows[name]
            given[row] = spaces.as_actions(np.asarray(actions[name])[None], simulator.actions, 1, discrete)[0]
        result = simulator.step(given)
        there, rows = self.agents, self._rows
        terminated = {name: bool(result.terminal[rows[name]]) for name in there}
        truncated = {name: bool(result.truncated[rows[name]]) for name in there}
        infos = {
            name: {"events": int(result.events[rows[name]]), "mask": bool(result.mask[rows[name]])} for name in there
        }
        self.agents = [name for name in there if not (terminated[name] or truncated[name])]
        observations = {name: result.obs[rows[name]].copy() for name in there}
        rewards = {name: float(result.reward[rows[name]]) for name in there}
        return observations, rewards, terminated, truncated, infos

    def close(self) -> None:
        """Release the world; twice is harmless."""
        self.agents = []
        self._world.close()

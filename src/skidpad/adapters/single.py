"""SkidpadEnv: one agent of one world, as a Gymnasium environment (S117)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from skidpad.adapters import spaces
from skidpad.adapters.episodes import OneWorld, about
from skidpad.errors import ProtocolError, SettingsError
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator, StepResult
from skidpad.simulation.training import training_settings


class SkidpadEnv(gymnasium.Env[NDArray[Any], Any]):
    """One driver among traffic. Every episode is on the next of `scenes`, in an order that belongs to the seed.

    scenes    what is driven on
    settings  by default those of training with the ego under test: `training_settings(control="sdc")`. They must leave
              exactly one agent to the policy, on a bare map for example with `vehicle_controller = "idm"`
    cache     where map indexes come from, as in Simulator

    Observations are copies, (D,), as the layout declares them. `info` holds `scene`, `case`, `start_row` and `track`
    after a reset; `events` (the bits of `skidpad.scenes.events.Event`) and `mask` (False while the observation or the
    action is tampered with) after a step, and `episode_rows` (the rows of `Simulator.rows`) after the last one.

    Raises ProtocolError for no scene, a step before reset, after the end of an episode or after close, and actions of
    a wrong shape; ActionError for values that are none; SettingsError for settings that leave another number of
    agents to the policy than one; CaseError where no scene has anybody to drive.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as the base class declares it

    def __init__(
        self, scenes: Sequence[Scene], settings: EnvSettings | None = None, *, cache: MapCache | None = None
    ) -> None:
        settings = training_settings(control="sdc") if settings is None else settings
        self.observation_space = spaces.observations(settings)
        self.action_space = spaces.actions(settings)
        self.render_mode = None
        self._world = OneWorld(scenes, settings, cache)
        self._running = False

    @property
    def simulator(self) -> Simulator:
        """The world of the present episode. Raises ProtocolError before the first reset."""
        if self._world.simulator is None:
            raise ProtocolError("no world before reset: call reset() first")
        return self._world.simulator

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """The next episode; with a seed, the first of the order that belongs to it. There are no options."""
        super().reset(seed=None if seed is None else spaces.checked_seed(seed))
        if seed is not None:
            self._world.seed(int(seed))
        elif not self._world.seeded:
            self._world.seed(int(self.np_random.integers(2**32)))
        self._running = False
        simulator, result = self._world.next_episode()
        if len(simulator.row_world) != 1:
            raise SettingsError(
                f"scene {simulator.cases[0].scene_id} has {len(simulator.row_world)} agents for the policy, and this "
                'environment drives one. Set env.control = "sdc" (on a bare map also env.vehicle_controller = "idm"), '
                "or use SkidpadVectorEnv or SkidpadParallelEnv."
            )
        self._running = True
        track = int(simulator.identity(0)["source_id"][simulator.row_agent[0]])
        return result.obs[0].copy(), about(simulator) | {"track": track}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """One step of the world, with everybody in it."""
        simulator = self.simulator
        if not self._running:
            raise ProtocolError("the episode has ended: call reset() before the next step")
        discrete = self._world.settings.action_type == "discrete"
        result: StepResult = simulator.step(spaces.as_actions(np.asarray(action)[None], simulator.actions, 1, discrete))
        terminated, truncated = bool(result.terminal[0]), bool(result.truncated[0])
        info: dict[str, Any] = {"events": int(result.events[0]), "mask": bool(result.mask[0])}
        if terminated or truncated:
            self._running = False
            info["episode_rows"] = simulator.rows()
        return result.obs[0].copy(), float(result.reward[0]), terminated, truncated, info

    def close(self) -> None:
        """Release the world; twice is harmless."""
        self._running = False
        self._world.close()

"""SkidpadVectorEnv: every policy row of a batch of worlds, as a Gymnasium vector environment (S117)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from skidpad.adapters import spaces
from skidpad.errors import ProtocolError
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator, StepResult
from skidpad.simulation.training import training_settings, training_simulator

MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "off": AutoresetMode.DISABLED,
}


class SkidpadVectorEnv(VectorEnv[NDArray[Any], Any, NDArray[Any]]):
    """A batch of worlds in one process, stepped by kernels; each policy row is a sub-environment.

    scenes      what the worlds are of
    settings    by default `training_settings()`: every eligible vehicle is a row
    rows        sub-environments, exactly
    worlds      how many worlds they lie in; by default what the rows take (`training.training_simulator`)
    seed        of the worlds until a reset names another
    autoreset   what is declared in `metadata["autoreset_mode"]`
    copy        observations are copies; without, views that the next call overwrites, at no cost
    options     of Simulator: threads, cache, resample_every, reward, ...

    A world starts anew as a whole. Where each has one agent (`control = "sdc"`) that is Gymnasium's contract to the
    letter. Where it has several, a row whose agent has left (`terminations` True, once) is silent until its world ends:
    zeros, and False in `infos["mask"]`, by which a learner leaves it out.

    `infos` hold `mask` (N,) bool, `events` (N,) u32, and, under "same_step" when episodes have ended, `final_obs`
    (N, D) with `_final_obs` (N,) bool, the rows it holds for.

    Raises SettingsError at construction for a budget that no worlds meet; ProtocolError and ActionError as the
    simulator does, naming world and agent.
    """

    def __init__(
        self,
        scenes: Sequence[Scene],
        settings: EnvSettings | None = None,
        *,
        rows: int,
        worlds: int | None = None,
        seed: int = 0,
        autoreset: Literal["next_step", "same_step", "off"] = "next_step",
        copy: bool = True,
        **options: Any,
    ) -> None:
        if autoreset not in MODES:
            raise ProtocolError(f"autoreset is {autoreset!r}; one of {', '.join(MODES)} is due")
        self.settings = training_settings() if settings is None else settings
        self._scenes, self._copy = tuple(scenes), copy
        self._options: dict[str, Any] = {"rows": rows, "worlds": worlds, "autoreset": autoreset, **options}
        self.num_envs = rows
        self.single_observation_space = spaces.observations(self.settings)
        self.single_action_space = spaces.actions(self.settings)
        self.observation_space = batch_space(self.single_observation_space, rows)
        self.action_space = batch_space(self.single_action_space, rows)
        self.metadata = {"render_modes": [], "autoreset_mode": MODES[autoreset]}
        self.render_mode = None
        self.simulator = self._worlds(spaces.checked_seed(seed))

    def _worlds(self, seed: int) -> Simulator:
        return training_simulator(self._scenes, self.settings, seed=seed, **self._options)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start all worlds: with a seed, those that belong to it, else the next episode of those there are.

        options  `reset_mask` (N,) bool, with autoreset "off" only: the rows whose worlds start; each world with all
                 its rows or none
        """
        self._check_open()
        super().reset(seed=None if seed is None else spaces.checked_seed(seed))
        worlds = self._named(options or {})
        if seed is not None and worlds is not None:
            raise ProtocolError("reset takes a seed for all worlds or a reset_mask for some, not both")
        if seed is not None:
            self.simulator.close()
            self.simulator = self._worlds(int(seed))
        result = self.simulator.reset(worlds, anew=True)
        return self._shown(result), self._infos(result)

    def _named(self, options: dict[str, Any]) -> list[int] | None:
        """Worlds of the mask; None without one."""
        mask = options.get("reset_mask")
        if mask is None:
            return None
        if self.metadata["autoreset_mode"] != AutoresetMode.DISABLED:
            raise ProtocolError('reset_mask needs autoreset "off": worlds that start by themselves need no mask')
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ProtocolError(f"reset_mask is no bool array of shape ({self.num_envs},)")
        of_row = self.simulator.row_world
        named = np.unique(of_row[mask])
        if np.isin(of_row[~mask], named).any():
            raise ProtocolError("reset_mask names some rows of a world and not others; a world starts as a whole")
        return [int(w) for w in named]

    def step(
        self, actions: Any
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One step of every world."""
        self._check_open()
        discrete = self.settings.action_type == "discrete"
        result = self.simulator.step(spaces.as_actions(actions, self.simulator.actions, self.num_envs, discrete))
        infos = self._infos(result)
        ended = result.terminal | result.truncated
        if result.final_obs is not None and ended.any():
            again = self.simulator.steps_taken[self.simulator.row_world] == 0
            infos["final_obs"] = np.where(again[:, None], result.final_obs, result.obs)
            infos["_final_obs"] = ended
        reward = result.reward.astype(np.float64)
        return self._shown(result), reward, result.terminal.copy(), result.truncated.copy(), infos

    def _shown(self, result: StepResult) -> NDArray[Any]:
        return result.obs.copy() if self._copy else result.obs

    def _infos(self, result: StepResult) -> dict[str, Any]:
        return {"mask": result.mask.copy(), "events": result.events.copy()}

    def _check_open(self) -> None:
        if self.closed:
            raise ProtocolError("this environment is closed: construct a new one")

    def close_extras(self, **kwargs: Any) -> None:
        """Called by `close`, once."""
        self.simulator.close()

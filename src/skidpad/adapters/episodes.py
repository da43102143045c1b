"""One world at a time: the scenes of a list in a seeded order, each episode a case of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import CaseError, ProtocolError, listed
from skidpad.scenes.case import Case
from skidpad.scenes.events import Status
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.episodes import Draws
from skidpad.simulation.population import select
from skidpad.simulation.simulator import Simulator, StepResult


class OneWorld:
    """A world that is left for the next one when its episode ends.

    simulator  of the present episode; None before the first
    """

    def __init__(self, scenes: Sequence[Scene], settings: EnvSettings, cache: MapCache | None) -> None:
        if not scenes:
            raise ProtocolError("no scene: an environment needs at least one")
        self._scenes = {scene.digest: scene for scene in scenes}
        self.settings, self._cache = settings, cache
        self._draws: Draws | None = None
        self._closed = False
        self.simulator: Simulator | None = None

    @property
    def seeded(self) -> bool:
        """Whether an order of scenes is running."""
        return self._draws is not None

    def seed(self, seed: int) -> None:
        """Begin the order of scenes that belongs to a seed."""
        self._draws = Draws([Case(s.digest, s.meta.scene_id, seed) for s in self._scenes.values()], seed)

    def most_rows(self) -> int:
        """Policy rows of the fullest world these scenes can give. Raises CaseError where none gives any."""
        most, why = 0, ""
        for scene in self._scenes.values():
            case = Case(scene.digest, scene.meta.scene_id, 0)
            if self.settings.init_spread:  # Who is there depends on the row drawn; no more than there are tracks.
                most = max(most, scene.tracks.count)
                continue
            spawned = self.settings.max_agents_per_world if self.settings.simulation_mode == "gigaflow" else None
            try:
                most = max(most, len(select(scene, case, self.settings, limit=spawned).policy))
            except CaseError as error:
                why = str(error)
        if not most:
            raise CaseError(why or "no agent of any scene is driven by a policy. Choose other controllers.")
        return most

    def next_episode(self) -> tuple[Simulator, StepResult]:
        """The next scene that has somebody for a policy to drive, in state 0.

        Raises CaseError where none of the scenes has; ProtocolError after close.
        """
        if self._closed:
            raise ProtocolError("this environment is closed: construct a new one")
        assert self._draws is not None
        if self.simulator is not None:
            self.simulator.close()
        refused: dict[str, str] = {}
        for _ in self._scenes:
            case = next(self._draws)
            scenes = {case.scene_digest: self._scenes[case.scene_digest]}
            try:
                simulator = Simulator([case], self.settings, scenes=scenes, cache=self._cache)
                result = simulator.reset()
            except CaseError as error:
                refused[case.scene_id] = str(error)
                continue
            if driving(simulator).any():
                self.simulator = simulator
                return simulator, result
            refused[case.scene_id] = f"scene {case.scene_id}: nobody whom a policy drives found a place to start"
        raise CaseError(f"no episode on any of {listed(refused)}: {next(iter(refused.values()))}")

    def close(self) -> None:
        """Release the world; twice is harmless."""
        if self.simulator is not None:
            self.simulator.close()
        self._closed = True


def driving(simulator: Simulator) -> NDArray[np.bool_]:
    """(N,) bool policy rows whose agent is there and drives."""
    status: NDArray[Any] = simulator.agent["status"]
    here: NDArray[np.bool_] = status[simulator.world_agents[simulator.row_world] + simulator.row_agent] == Status.ACTIVE
    return here


def about(simulator: Simulator) -> dict[str, Any]:
    """What an episode is: `scene`, `case`, `start_row`."""
    case = simulator.cases[0]
    return {"scene": case.scene_id, "case": case.id, "start_row": simulator.start_row(0)}

"""Where the agents of all worlds are going, and which lights they meet: the buffers of goals, routes and signals.

Kernels write into them during an episode; what a log prescribes is kept beside them, and copied over at each start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.settings.schema import EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.layout import layout_of
from skidpad.simulation.population import Population, Span, with_goals
from skidpad.simulation.stage import Stage
from skidpad.simulation.traffic import Goals, goal_places, log_goals


@dataclass(frozen=True, eq=False)
class Ways:
    """Buffers of a batch; worlds own stretches of them.

    arrays       name -> array: the fields of `slots.BATCH` that are kept here
    goals        (M, G, 3)  f32 [m]  NaN beyond `goal_count`
    goal_count   (M,)       i32
    """

    arrays: dict[str, NDArray[Any]]
    goals: NDArray[np.float32]
    goal_count: NDArray[np.int32]
    _slot_start: NDArray[np.int64]

    @staticmethod
    def allocate(
        settings: EnvSettings,
        populations: Sequence[Population],
        stages: Sequence[Stage],
        spans: Sequence[Span],
        *,
        keep: bool,
    ) -> Ways:
        """Buffers for worlds of these populations. An agent has room for the route of its track, and where routes are
        walked, for ROUTE_LANES lanes. `keep`: the populations live as long as their stages, which keep what is made
        for them."""
        from skidpad.simulation.kernels.routes import ROUTE_LANES

        log = settings.goals_from == "log"
        given = log and settings.goal_source != "none"
        walked = ROUTE_LANES if not log or settings.goal_behaviour == "new" else 0
        goals: list[PlacedGoals | None] = []
        routes: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
        for population, stage, one in zip(populations, stages, spans, strict=True):
            key = id(population), one.start_row
            if key not in stage.prepared or not keep:
                made = _placed(stage, population, one.start_row, settings) if given else None
                prepared = made, _routes_of(stage, population)
                if keep:
                    stage.prepared[key] = prepared
            else:
                prepared = stage.prepared[key]
            made, route = prepared
            goals.append(made)
            routes.append(route)
        slot_start = _starts([len(with_goals(population)) for population in populations])
        agent_start = _starts([len(population.exists) for population in populations])
        light_start = _starts([stage.scene.signals.count for stage in stages])
        route_start = _starts(np.maximum(np.concatenate([size for size, _ in routes]), walked))
        shape = int(slot_start[-1]), settings.num_goals
        points, count = np.full((*shape, 3), np.nan, np.float32), np.zeros(shape[0], np.int32)
        arrays: dict[str, NDArray[Any]] = {
            "goals": points,
            "goal_count": count,
            "goal_lane": np.full(shape, -1, np.int32),
            "goal_arc": np.zeros(shape, np.float32),
            "goal_hop": np.full(shape, -1, np.int32),
            "route_lane": np.zeros(int(route_start[-1]), np.int32),
            "route_start": route_start,
            "route_size": np.zeros(int(agent_start[-1]), np.int32),
            "lights": np.zeros((2, int(light_start[-1])), np.uint8),
            "light_start": light_start,
            "world_goals": slot_start,
            "programme": np.zeros((at.PROGRAMME_ROWS, int(light_start[-1])), np.int64),
        }
        for w, made in enumerate(goals):
            if made is not None:
                rows = slice(int(slot_start[w]), int(slot_start[w + 1]))
                points[rows], count[rows] = made.goals
                arrays["goal_lane"][rows], arrays["goal_arc"][rows] = made.lane, made.arc
        for w, (size, lane) in enumerate(routes):
            agents = slice(int(agent_start[w]), int(agent_start[w + 1]))
            before = np.cumsum(size) - size
            where = np.repeat(route_start[:-1][agents] - before, size) + np.arange(len(lane))
            arrays["route_size"][agents] = size
            arrays["route_lane"][where] = lane
        kept = ("goals", "goal_count", "goal_lane", "goal_arc", "route_lane", "route_size")
        arrays |= {f"log_{name}": arrays[name].copy() for name in kept}
        return Ways(arrays, points, count, slot_start)

    def slots(self, world: int) -> slice:
        """Rows of the goal table that belong to a world: those of the agents under test first."""
        return slice(int(self._slot_start[world]), int(self._slot_start[world + 1]))

    def bounds(self, world_agents: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        """Where each world's goals, lanes of routes and lights begin, (W + 1,) each."""
        return {
            "goal": self._slot_start,
            "route": self.arrays["route_start"][world_agents],
            "light": self.arrays["light_start"],
        }

    def lights(self, world: int, step: int) -> NDArray[np.uint8]:
        """(S,) u8 states of a world's signals at its present step."""
        start = self.arrays["light_start"]
        return self.arrays["lights"][step & 1, start[world] : start[world + 1]]


class PlacedGoals(NamedTuple):
    """Goals of the log, and where they lie on lanes: `traffic.goal_places`."""

    goals: Goals
    lane: NDArray[np.int32]
    arc: NDArray[np.float32]


def _placed(stage: Stage, population: Population, start_row: int, settings: EnvSettings) -> PlacedGoals:
    """Goals of the agents under test; on no lane where the layout does not ask how far they are."""
    goals = log_goals(stage.scene, population.scored, start_row, settings.num_goals)
    if layout_of(settings).shows_distances:
        return PlacedGoals(goals, *goal_places(stage.index.lanes, goals.points))
    shape = goals.points.shape[:2]
    return PlacedGoals(goals, np.full(shape, -1, np.int32), np.zeros(shape, np.float32))


def _routes_of(stage: Stage, population: Population) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sizes (N,) and lanes of the agents' routes: those of the log's tracks, none for spawned ones."""
    tracks = stage.scene.tracks
    if population.spawned:
        return np.zeros(len(population.exists), np.int32), np.zeros(0, np.int32)
    return np.diff(tracks.route_offset).astype(np.int32), tracks.route_lane


def _starts(counts: Any) -> NDArray[np.int64]:
    """Offsets of stretches of these lengths."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)

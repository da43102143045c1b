"""Maps without traffic as kernels read them, for the tests of spawning, routes, goals and outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from skidpad.scenes.archive import load_scene
from skidpad.scenes.index import IndexParams, build_index
from skidpad.scenes.synthetic import synthetic
from skidpad.simulation import state as at
from skidpad.simulation.kernels.goals import GoalTable, RouteTable
from skidpad.simulation.traffic import pack_lights, pack_signals, spawn_lanes

SEED = 20260731


@cache
def town(name):
    """A town of the library, or a synthetic fixture without traffic."""
    path = files("skidpad.scenes.library") / f"{name}.scene"
    return load_scene(path.read_bytes()) if path.is_file() else synthetic(name, traffic=False)


@dataclass
class Bare:
    """One world on a map, its blocks empty."""

    scene: object
    agents: int
    num_goals: int = 3

    def __post_init__(self):
        self.index = build_index(self.scene, IndexParams(lists="computed"))
        self.lanes, self.edges = self.index.lanes, self.index.edges
        self.spawn_lane, self.spawn_end = spawn_lanes(self.lanes)
        self.signal, self.kind = pack_signals(self.scene), self.scene.signals.kind
        self.lights = np.zeros(self.scene.signals.count, np.uint8)
        n = self.agents
        self.f4 = np.zeros((len(at.FLOAT_STATE), n), np.float32)
        self.i4 = np.zeros((len(at.INT_STATE), n), np.int32)
        self.u1 = np.zeros((len(at.BYTE_STATE), n), np.uint8)
        self.i4[at.KEY] = self.i4[at.GOAL_SLOT] = np.arange(n)
        self.i4[[at.LANE, at.PREVIOUS_LANE]] = -1
        self.world = np.zeros((at.WORLD_ROWS, 1), np.int64)
        self.world[at.EGO] = -1
        self.events = np.zeros(n, np.uint32)
        shape = n, self.num_goals
        self.goals = GoalTable(
            np.full((*shape, 3), np.nan, np.float32),
            np.full(shape, -1, np.int32),
            np.zeros(shape, np.float32),
            np.full(shape, -1, np.int32),
            np.zeros(n, np.int32),
        )
        self.routes = RouteTable(
            np.full(64 * n, -1, np.int32), np.arange(n + 1, dtype=np.int64) * 64, np.zeros(n, np.int32)
        )
        self.parameters = np.zeros(at.PARAMETERS, np.float32)
        self.parameters[at.LEVEL_GATE] = 4.0 if self.scene.meta.has_z else np.inf
        self.parameters[[at.SPACING_LOW, at.SPACING_HIGH]] = 20.0, 200.0
        self.parameters[[at.SPAWN_LENGTH_LOW, at.SPAWN_LENGTH_HIGH]] = 2.0, 5.5
        self.parameters[[at.SPAWN_WIDTH_LOW, at.SPAWN_WIDTH_HIGH]] = 1.5, 2.5
        self.parameters[at.GOAL_SOURCE] = at.GOALS_ROUTE
        self.parameters[at.INACTIVE_THRESHOLD] = np.inf
        lanes = self.scene.road.lane_count
        self.scratch = np.zeros(64, np.int32), np.zeros(lanes, np.int32), np.zeros(lanes, np.int32)

    def spawn(self, a, seed=SEED, episode=0, use_area=False):
        from skidpad.simulation.kernels.spawn import spawn

        signals = self.signal, self.kind, self.lights
        return spawn(
            seed, episode, 0, a, self.agents, self.f4, self.i4, self.u1,
            self.spawn_lane, self.spawn_end, self.lanes, self.edges, use_area, *signals, self.parameters,
        )  # fmt: skip

    def new_goals(self, a, lane, arc, seed=SEED, step=0):
        from skidpad.simulation.kernels.goals import new_goals

        _, before, queue = self.scratch
        tables = self.i4, self.goals, self.routes, self.parameters, self.lanes
        new_goals(a, seed, 0, step, lane, arc, *tables, before, queue)

    def renew(self, a, seed=SEED, step=1):
        from skidpad.simulation.kernels.goals import renew_goals

        tables = self.f4, self.i4, self.goals, self.routes, self.parameters, self.lanes
        return renew_goals(a, seed, 0, step, *tables, *self.scratch)

    def outcomes(self, seed=SEED):
        from skidpad.simulation.kernels.consequences import apply_events

        apply_events(
            0, 0, self.agents, seed, self.world, self.f4, self.i4, self.u1, self.events,
            self.goals, self.routes, self.parameters, self.lanes, *self.scratch,
        )  # fmt: skip

    def route(self, a):
        return self.routes.lane[64 * a : 64 * a + self.routes.size[a]].tolist()

    def lights_of(self, *, generate=True):
        return pack_lights(self.scene, generate=generate)


def shown(scene, mode, *, episode=0, steps=900, generate=True, start_row=0, dt_us=100_000, seed=SEED):
    """States of a scene's lights over the steps of an episode: (steps, S) u8."""
    from skidpad.simulation.kernels.lights import draw_programmes, show_lights

    packed = pack_lights(scene, generate=generate)
    programme = np.zeros((at.PROGRAMME_ROWS, scene.signals.count), np.int64)
    draw_programmes(seed, episode, mode, packed.source, packed.group, packed.phase, packed.phases, programme)
    states = np.zeros((steps, scene.signals.count), np.uint8)
    for step in range(steps):
        show_lights(step, start_row, scene.meta.dt_us, dt_us, *packed[:7], programme, states[step])
    return states

"""Stage: one scene prepared for its worlds under one set of settings; shared by all of them, never written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import IndexParams, RowParams
from skidpad.scenes.lanes import goal_reach, lane_lengths
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import F32, Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation import slots
from skidpad.simulation import state as at
from skidpad.simulation.layout import layout_of
from skidpad.simulation.population import step_us
from skidpad.simulation.rewards import reward_parameters
from skidpad.simulation.traffic import pack_lights, pack_log, pack_signals, signals_by_lane, spawn_lanes
from skidpad.simulation.yields import yield_table

BEHAVIOURS = {"ignore": at.IGNORE, "stop": at.STOP, "remove": at.REMOVE}
GOAL_SOURCES = {"log": at.GOALS_LOG, "route": at.GOALS_ROUTE, "map": at.GOALS_MAP}
GOAL_BEHAVIOURS = {
    "finite": at.GOALS_FINITE,
    "rolling": at.GOALS_ROLLING,
    "respawn": at.GOALS_RESPAWN,
    "new": at.GOALS_NEW,
    "stop": at.GOALS_STOP,
    "retire": at.GOALS_RETIRE,
}
# Least and most length and width [m] of spawned agents (S57).
SPAWN_SIZES = {"training": (0.8, 7.0, 0.8, 2.7), "evaluation": (2.0, 5.5, 1.5, 2.5)}


class Stage:
    """A scene as kernels read it.

    dt_us         microseconds per step
    index         MapIndex under the layout's window and slots
    log           (T, N, 12)      f32   packed tracks
    signal        (S, 8)          f32   stop lines
    lights        where the states of the signals come from
    parameters    (PARAMETERS,)   f32   numbers of the settings, rates per step
    use_area      off-road is judged by lane areas, not by edges
    arrays        name -> array: the fields of `slots.SLOT`
    members       who takes part, by ego and limit, where all worlds of the scene are alike: `batch.Batch`
    prepared      what their log says of goals and routes: `ways.Ways`
    """

    def __init__(self, scene: Scene, settings: EnvSettings, cache: MapCache) -> None:
        self.scene = scene
        self.dt_us = step_us(scene, settings)
        self.index = cache.index(scene, index_params(settings))
        self.log = pack_log(scene)
        self.signal = pack_signals(scene)
        self.lights = pack_lights(scene, generate=settings.simulation_mode == "gigaflow")
        self.parameters = parameters(settings, self.dt_us, scene.meta.has_z)
        self.use_area = settings.offroad == "area" or (settings.offroad == "auto" and not self.index.has_edges)
        self.ruled = signals_by_lane(scene)
        self.arrays = self._arrays(settings)
        self.members: dict[tuple[int, int | None], Any] = {}
        self.prepared: dict[tuple[int, int], Any] = {}

    def _arrays(self, settings: EnvSettings) -> dict[str, NDArray[Any]]:
        tracks, signals = self.scene.tracks, self.scene.signals
        lanes, edges, rows = self.index.lanes, self.index.edges, self.index.rows
        lights, (spawn_lane, spawn_end) = self.lights, spawn_lanes(lanes)
        last_row = tracks.last
        if settings.simulation_mode == "gigaflow":  # No log that could end; as many agents as there may be.
            last_row = np.full(settings.max_agents_per_world, np.iinfo(np.int32).max, np.int32)
        numbers = np.zeros(slots.NUMBERS, np.float64)
        numbers[slots.DT_US], numbers[slots.ROW_US] = self.dt_us, self.scene.meta.dt_us
        numbers[slots.USE_AREA], numbers[slots.EDGE_REACH] = self.use_area, edges.reach
        numbers[slots.GRID_AT :] = lanes.grid
        blocks: dict[str, NDArray[Any]] = {
            f"rows{block}.{name}": getattr(rows[min(block, len(rows) - 1)], name)  # a layout may have fewer
            for block in range(slots.ROW_BLOCKS)
            for name, _, _ in slots.ROW_MAP
        }
        found: dict[str, NDArray[Any]] = {
            "numbers": numbers,
            "parameters": self.parameters,
            "log": self.log,
            "last_row": last_row,
            "lane_start": lanes.start,
            "lane_near": lanes.near,
            "segment": lanes.segment,
            "segment_lane": lanes.segment_lane,
            "lane_first": lanes.lane_first,
            "exit_offset": lanes.exit_offset,
            "exit_lane": lanes.exit_lane,
            "drivable": lanes.drivable,
            "road": lanes.road,
            "speed_limit": lanes.speed_limit,
            "edge_start": edges.start,
            "edge": edges.edge,
            "edge_height": edges.height,
            "signal": self.signal,
            "signal_kind": signals.kind,
            "signal_offset": signals.lane_offset,
            "signal_lane": signals.lane,
            "light_source": lights.source,
            "light_logged": lights.logged,
            "light_known": lights.known_row,
            "cycle_offset": lights.cycle_offset,
            "program_offset": lights.program_offset,
            "program_end": lights.program_end,
            "program_state": lights.program_state,
            "light_group": lights.group,
            "light_phase": lights.phase,
            "light_phases": lights.phases,
            "spawn_lane": spawn_lane,
            "spawn_end": spawn_end,
            "clear": lanes.clear,
            "ruled_offset": self.ruled[0],
            "ruled_signal": self.ruled[1],
            **yield_table(self.scene),
            **self._reach(settings),
        }
        return found | blocks

    def _reach(self, settings: EnvSettings) -> dict[str, NDArray[Any]]:
        """What leads to which lane, for layouts that show how far a goal is; else nothing."""
        if not layout_of(settings).shows_distances:
            none = np.empty(0, np.float32)
            return {
                "reach_start": np.zeros(1, np.int64),
                "reach_lane": np.empty(0, np.int32),
                "reach_metres": none,
                "lane_length": none,
            }
        road = self.scene.road
        start, lane, metres = goal_reach(road)
        length = lane_lengths(road).astype(np.float32)
        return {"reach_start": start, "reach_lane": lane, "reach_metres": metres, "lane_length": length}


def index_params(settings: EnvSettings) -> IndexParams:
    """What the index of a map depends on, from the layout and the settings."""
    layout = layout_of(settings)
    return IndexParams(
        list_cell=layout.list_cell,
        sectors=layout.sectors,
        window=layout.window,
        order=layout.order,
        rows=tuple(RowParams(block.kinds, block.listed or block.rows, block.columns) for block in layout.road_blocks),
        map_tolerance=settings.map_tolerance,
        max_segment=settings.max_segment,
        lists=settings.lists,
        list_budget_mib=settings.list_budget_mib,
    )


def parameters(settings: EnvSettings, dt_us: int, has_z: bool) -> F32:
    """The plain numbers that kernels read, (PARAMETERS,) f32; without heights every level gate is open."""
    dt = dt_us * 1e-6
    idm, perturbation = settings.idm, settings.perturbation
    values = np.zeros(at.PARAMETERS, np.float32)
    values[at.P_DT] = dt
    values[at.LEVEL_GATE] = settings.level_gate if has_z else np.inf
    values[at.GOAL_RADIUS], values[at.GOAL_SPEED] = settings.goal_radius, settings.goal_speed
    values[at.IDM_ACCELERATION] = idm.max_acceleration
    values[at.IDM_DECELERATION] = idm.comfortable_deceleration
    values[at.IDM_MIN_GAP], values[at.IDM_HEADWAY] = idm.min_gap, idm.headway
    values[at.IDM_DESIRED_SPEED] = idm.desired_speed
    # A rate per second is a chance per step, so that frequencies agree for every dt (S108).
    values[at.BLIND_SHARE] = perturbation.blindness
    values[at.BLIND_ONSET] = -np.expm1(-perturbation.blindness_rate * dt)
    values[at.BRAKE_SHARE] = perturbation.phantom_braking
    values[at.BRAKE_ONSET] = -np.expm1(-perturbation.phantom_braking_rate * dt)
    values[at.LATCH_STEPS] = max(1, round(perturbation.perturbation_seconds / dt))
    values[at.RETIRES] = settings.beyond_log == "retire"
    values[at.OWN_MARGIN] = settings.own_size_margin
    values[at.LANE_DROPOUT], values[at.EDGE_DROPOUT] = perturbation.lane_dropout, perturbation.edge_dropout
    values[at.COLLISION_BEHAVIOUR] = BEHAVIOURS[settings.collision_behaviour]
    values[at.OFFROAD_BEHAVIOUR] = BEHAVIOURS[settings.offroad_behaviour]
    values[at.RED_LIGHT_BEHAVIOUR] = BEHAVIOURS[settings.red_light_behaviour]
    values[at.STOP_SIGN_BEHAVIOUR] = BEHAVIOURS[settings.stop_sign_behaviour]
    values[at.INACTIVE_THRESHOLD] = settings.inactive_threshold
    values[at.GOAL_SOURCE] = GOAL_SOURCES[settings.goals_from]
    values[at.GOAL_BEHAVIOUR] = GOAL_BEHAVIOURS[settings.goal_behaviour]
    values[at.SPACING_LOW], values[at.SPACING_HIGH] = settings.goal_spacing
    values[at.GATE_ALL], values[at.END_ON_GOAL] = settings.gate_all, settings.end_on_goal
    sizes = SPAWN_SIZES[settings.spawn_sizes]
    values[[at.SPAWN_LENGTH_LOW, at.SPAWN_LENGTH_HIGH, at.SPAWN_WIDTH_LOW, at.SPAWN_WIDTH_HIGH]] = sizes
    values[at.SPAWN_SPEED] = settings.spawn_speed
    values[at.LIGHT_MODE] = at.LIGHTS_RANDOM if perturbation.light_randomisation else at.LIGHTS_FIXED
    if settings.compat.lights == "independent":
        values[at.LIGHT_MODE] = at.LIGHTS_INDEPENDENT
    values[at.PDM_HORIZON], values[at.PDM_STEP] = settings.pdm.horizon_seconds, settings.pdm.step_seconds
    values[at.YELLOW_COUNTS] = settings.yellow_counts
    values[at.RESETS_ON_STOP] = settings.reset_accel_on_stop
    values[at.R_GOAL : at.R_ADE + 1] = reward_parameters(settings, dt)
    values.flags.writeable = False
    return values

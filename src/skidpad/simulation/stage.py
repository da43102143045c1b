"""Stage: one scene prepared for its worlds under one set of settings; shared by all of them, never written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import IndexParams, RowParams
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import F32, Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation import slots
from skidpad.simulation import state as at
from skidpad.simulation.layout import layout_of
from skidpad.simulation.population import span
from skidpad.simulation.traffic import pack_log, pack_signals, signal_states


class Stage:
    """A scene as kernels read it.

    span          which rows and steps its worlds run
    index         MapIndex under the layout's window and slots
    log           (T, N, 12)      f32   packed tracks
    signal        (S, 8)          f32   stop lines
    signal_state  (steps + 1, S)  u8    of every state
    parameters    (PARAMETERS,)   f32   numbers of the settings, rates per step
    use_area      off-road is judged by lane areas, not by edges
    arrays        name -> array: the fields of `slots.SLOT`

    Raises CaseError where the log is too short for what the settings ask.
    """

    def __init__(self, scene: Scene, settings: EnvSettings, cache: MapCache) -> None:
        self.scene = scene
        self.span = span(scene, settings)
        self.index = cache.index(scene, index_params(settings))
        self.log = pack_log(scene)
        self.signal = pack_signals(scene)
        self.signal_state = signal_states(scene, *self.span)
        self.parameters = parameters(settings, self.span.dt_us, scene.meta.has_z)
        self.use_area = settings.offroad == "area" or (settings.offroad == "auto" and not self.index.has_edges)
        self.arrays = self._arrays()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        tracks, signals = self.scene.tracks, self.scene.signals
        lanes, edges, rows = self.index.lanes, self.index.edges, self.index.rows
        numbers = np.zeros(slots.NUMBERS, np.float64)
        numbers[slots.DT_US], numbers[slots.ROW_US] = self.span.dt_us, self.scene.meta.dt_us
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
            "last_row": tracks.last,
            "route_offset": tracks.route_offset,
            "route_lane": tracks.route_lane,
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
            "signal": self.signal,
            "signal_kind": signals.kind,
            "signal_state": self.signal_state,
            "signal_offset": signals.lane_offset,
            "signal_lane": signals.lane,
        }
        return found | blocks


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
    values.flags.writeable = False
    return values

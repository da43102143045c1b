"""What a scene's log says about agents, goals and signals, prepared once per scene as the arrays that kernels read.

The formulas of driving are kernels: `dynamics.py`, `idm.py`, `oracle.py`, `replay.py`. Here stands what is looked up
by time or by row and does not change while worlds run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import LaneMap
from skidpad.scenes.junctions import signal_phases
from skidpad.scenes.scene import SIGNAL_LIGHT, STATE_UNKNOWN, Scene
from skidpad.simulation import state as at

GOAL_OFF_M = 4.0  # a goal further from every lane, or on another level, is on none
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
LINE_EXTENSION = 1.5  # S72


class Goals(NamedTuple):
    """Goals of the agents under test of one world.

    points    (M, G, 3)  f32 [m]  in order; NaN beyond `assigned`
    assigned  (M,)       i32      how many each agent has
    """

    points: F32
    assigned: NDArray[np.int32]


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def pack_log(scene: Scene) -> F32:
    """The tracks as (T, N, 12) f32, columns of `state`: all that one step reads lies together. A row without a body
    has length 0. Exact: the scene's own values, besides cos, sin and the speed along the heading."""
    tracks = scene.tracks
    log = np.zeros((scene.meta.steps, tracks.count, at.LOG_COLUMNS), np.float32)
    columns = {
        at.LOG_X: tracks.x,
        at.LOG_Y: tracks.y,
        at.LOG_Z: tracks.z,
        at.LOG_HEADING: tracks.heading,
        at.LOG_VX: tracks.vx,
        at.LOG_VY: tracks.vy,
        at.LOG_LENGTH: tracks.length,
        at.LOG_WIDTH: tracks.width,
        at.LOG_HEIGHT: tracks.height,
    }
    for column, values in columns.items():
        log[:, :, column] = values.T
    heading = tracks.heading.T.astype(np.float64)
    cos, sin = np.cos(heading), np.sin(heading)
    log[:, :, at.LOG_COS], log[:, :, at.LOG_SIN] = cos, sin
    log[:, :, at.LOG_SPEED] = tracks.vx.T * cos + tracks.vy.T * sin
    log[~tracks.valid.T] = 0.0
    return _frozen(log)


def pack_signals(scene: Scene) -> F32:
    """Stop lines as (S, 8) f32, columns of `state`."""
    signals = scene.signals
    line = signals.line.astype(np.float64)
    left, right = line[:, 0], line[:, 1]
    along = right[:, :2] - left[:, :2]
    length = np.hypot(along[:, 0], along[:, 1])
    safe = np.where(length > 0, length, 1.0)
    normal = np.stack([-along[:, 1] / safe, along[:, 0] / safe], axis=1)
    travel = np.stack([np.cos(signals.heading), np.sin(signals.heading)], axis=1).astype(np.float64)
    normal = np.where(length[:, None] > 0, normal, travel)
    normal *= np.where((normal * travel).sum(axis=1) >= 0, 1.0, -1.0)[:, None]
    packed = np.empty((signals.count, at.SIGNAL_COLUMNS), np.float32)
    packed[:, [at.SIGNAL_X, at.SIGNAL_Y, at.SIGNAL_Z]] = line.mean(axis=1)
    packed[:, [at.SIGNAL_NX, at.SIGNAL_NY]] = normal
    packed[:, at.SIGNAL_REACH] = LINE_EXTENSION * length / 2
    packed[:, [at.SIGNAL_COS, at.SIGNAL_SIN]] = travel
    return _frozen(packed)


def signals_by_lane(scene: Scene) -> tuple[I32, I32]:
    """The signals that control each lane, ascending: CSR offsets (L + 1,) and items."""
    signals = scene.signals
    signal = np.repeat(np.arange(signals.count), np.diff(signals.lane_offset))
    pairs = np.unique(np.stack([signals.lane, signal], axis=1), axis=0)
    offset = np.searchsorted(pairs[:, 0], np.arange(scene.road.lane_count + 1))
    return _frozen(offset.astype(np.int32)), _frozen(pairs[:, 1].astype(np.int32))


class Lights(NamedTuple):
    """Where the states of a scene's signals come from, as `kernels.lights` reads it.

    source          (S,)    u8        LIGHT_* of `state`
    logged          (T, S)  u8        states of each log row
    known_row       (T, S)  i32       last row up to each with a known state, -1 = none
    cycle_offset    (S,)    i64 [us]  of the file's programmes
    program_offset, program_end, program_state    (S + 1,) i32, (n,) i64 [us], (n,) u8: where each phase ends in its
                                      cycle, and its state
    group, phase, phases              `scenes.junctions.Phases`
    """

    source: NDArray[np.uint8]
    logged: NDArray[np.uint8]
    known_row: NDArray[np.int32]
    cycle_offset: NDArray[np.int64]
    program_offset: NDArray[np.int32]
    program_end: NDArray[np.int64]
    program_state: NDArray[np.uint8]
    group: NDArray[np.int32]
    phase: NDArray[np.int32]
    phases: NDArray[np.int32]


def pack_lights(scene: Scene, *, generate: bool) -> Lights:
    """A light that was ever logged follows its log, any other the file's programme, and where there is none either, a
    generated one if `generate` (S104). Beside logged traffic nothing should be generated: it would not obey."""
    signals = scene.signals
    is_light = signals.kind == SIGNAL_LIGHT
    logged = np.ascontiguousarray(np.where(is_light[None], signals.state.T, STATE_UNKNOWN), np.uint8)
    row = np.arange(len(logged), dtype=np.int32)[:, None]
    known = np.ascontiguousarray(np.maximum.accumulate(np.where(logged != STATE_UNKNOWN, row, np.int32(-1)), axis=0))
    duration = np.round(signals.program_duration.astype(np.float64) * 1e6).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(duration)])
    begin, end = signals.program_offset[:-1], signals.program_offset[1:]
    phase_of = np.repeat(begin, end - begin)
    source = np.full(signals.count, at.LIGHT_NONE, np.uint8)
    if generate:
        source[is_light] = at.LIGHT_GENERATED
    source[is_light & (total[end] > total[begin])] = at.LIGHT_FILE
    source[is_light & (known[-1] >= 0)] = at.LIGHT_LOGGED
    lights = Lights(
        source,
        logged,
        known,
        np.round(signals.cycle_offset.astype(np.float64) * 1e6).astype(np.int64),
        signals.program_offset,
        total[1:] - total[phase_of],
        signals.program_state,
        *signal_phases(scene),
    )
    for array in lights:
        array.flags.writeable = False
    return lights


def spawn_lanes(lanes: LaneMap) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Drivable lanes (K,) i32, and where each ends (K,) f64 [m] when all are laid end to end (S57)."""
    first, last = lanes.lane_first[:-1], lanes.lane_first[1:]
    lane = np.flatnonzero(lanes.drivable & (last > first)).astype(np.int32)
    end = np.cumsum(lanes.segment[last[lane] - 1, 7].astype(np.float64))
    end.flags.writeable = lane.flags.writeable = False
    return lane, end


def log_goals(scene: Scene, agents: NDArray[np.int32], start_row: int, count: int) -> Goals:
    """`count` goals per agent, evenly spaced in rows from the start to the agent's last row; the last is the track's
    goal (S59). A row without the agent stands for the last one before it that has it."""
    tracks = scene.tracks
    points = np.full((len(agents), count, 3), np.nan, np.float32)
    for m, agent in enumerate(agents):
        valid = np.flatnonzero(tracks.valid[agent, start_row:]) + start_row
        last = int(valid[-1])
        wanted = start_row + np.round(np.arange(1, count) * (last - start_row) / count).astype(np.int64)
        rows = valid[np.searchsorted(valid, wanted, side="right") - 1]
        points[m, :-1] = np.stack([tracks.x[agent, rows], tracks.y[agent, rows], tracks.z[agent, rows]], axis=1)
        points[m, -1] = tracks.goal[agent]
    return Goals(points, np.full(len(agents), count, np.int32))


def goal_places(lanes: LaneMap, points: F32) -> tuple[NDArray[np.int32], F32]:
    """Where goals lie on lanes, so that the way to them has a length (S91): the lane of each, -1 where none is near,
    and the position along it [m].

    points  (M, G, 3)  f32 [m]  NaN = no goal

    The nearest drivable lane within 4 m, on the goal's level; ties by segment.
    """
    grid, lane, arc = lanes.grid, np.full(points.shape[:2], -1, np.int32), np.zeros(points.shape[:2], np.float32)
    for at_ in zip(*np.nonzero(np.isfinite(points[..., 0])), strict=True):
        x, y, z = points[at_].astype(np.float64)
        column, row = int((x - grid.x) * grid.inverse // 1), int((y - grid.y) * grid.inverse // 1)
        if not (0 <= column < grid.columns and 0 <= row < grid.rows):
            continue
        cell = row * grid.columns + column
        near = lanes.near[lanes.start[cell] : lanes.start[cell + 1]]
        near = near[lanes.drivable[lanes.segment_lane[near]]]
        if not len(near):
            continue
        x0, y0, x1, y1, z0, z1, arc0, arc1 = lanes.segment[near, :8].astype(np.float64).T
        dx, dy = x1 - x0, y1 - y0
        share = np.clip(((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
        off = np.hypot(x0 + share * dx - x, y0 + share * dy - y)
        off[np.abs(z0 + share * (z1 - z0) - z) > GOAL_OFF_M] = np.inf
        best = int(off.argmin())
        if off[best] <= GOAL_OFF_M:
            lane[at_] = lanes.segment_lane[near[best]]
            arc[at_] = arc0[best] + share[best] * (arc1[best] - arc0[best])
    return lane, arc

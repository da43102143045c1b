"""Putting agents onto an empty map (S57).

A place is drawn by length over all drivable lanes and taken if it is free: no other agent within 0.3 m, no edge under a
box a tenth larger, no red or yellow line under it. Draws depend on the agent's key and the number of the try alone, so
nobody's failure moves another's place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import EdgeMap, LaneMap
from skidpad.scenes.scene import SIGNAL_LIGHT, STATE_RED, STATE_YELLOW
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.geometry import boxes_overlap
from skidpad.simulation.kernels.lanes import cell_of, ribbon_gap
from skidpad.simulation.kernels.offroad import RIBBON_M, touches_edge
from skidpad.simulation.kernels.routes import lane_length, lane_place
from skidpad.simulation.kernels.trig import arctan2
from skidpad.simulation.random import Purpose, unit, words
from skidpad.simulation.state import (
    BODY,
    COS,
    HEADING,
    HEIGHT,
    KEY,
    LANE,
    LENGTH,
    LEVEL_GATE,
    SIGNAL_NX,
    SIGNAL_NY,
    SIGNAL_REACH,
    SIGNAL_X,
    SIGNAL_Y,
    SIGNAL_Z,
    SIN,
    SPAWN_LENGTH_HIGH,
    SPAWN_LENGTH_LOW,
    SPAWN_SPEED,
    SPAWN_WIDTH_HIGH,
    SPAWN_WIDTH_LOW,
    SPEED,
    WIDTH,
    X,
    Y,
    Z,
)

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

SPAWN, SIZE = int(Purpose.SPAWN), int(Purpose.SIZE)
TRIES = 30
GAP_M = 0.3
EDGE_GROWTH = 1.1
LINE_EXTENSION = 1.5  # of SIGNAL_REACH over the line itself
HEIGHT_M = np.float32(1.5)
LIGHT, RED, YELLOW = SIGNAL_LIGHT, STATE_RED, STATE_YELLOW


@kernel
def draw_size(seed: int, episode: int, key: int, parameters: F32) -> tuple[Any, Any]:
    """Length and width [m] of an agent, evenly from the ranges of the settings; never wider than long."""
    draw = words(seed, episode, key, 0, SIZE, 0)
    low, high = parameters[SPAWN_LENGTH_LOW], parameters[SPAWN_LENGTH_HIGH]
    length = low + unit(draw[0]) * (high - low)
    low, high = parameters[SPAWN_WIDTH_LOW], min(parameters[SPAWN_WIDTH_HIGH], length)
    return length, low + unit(draw[1]) * (high - low)


@kernel
def draw_lane(seed: int, episode: int, key: int, trial: int, spawn_lane: I32, spawn_end: F64) -> tuple[Any, float]:
    """A drivable lane, drawn by its length, and the share of it at which the agent stands.

    spawn_lane, spawn_end  (K,) i32, (K,) f64 [m]   drivable lanes and where each ends when all are laid end to end
    """
    draw = words(seed, episode, key, 0, SPAWN, trial)
    where = np.float64(unit(draw[0])) * spawn_end[-1]
    low, high = 0, spawn_end.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if spawn_end[middle] > where:
            high = middle
        else:
            low = middle + 1
    return spawn_lane[low], np.float64(unit(draw[1]))


@kernel
def near_agent(
    first: int, a: int, end: int, x: float, y: float, z: float, c: float, s: float, f4: F32, u1: U8, gate: float
) -> bool:
    """Whether a box of the size of agent a at (x, y, z) [m] with heading (c, s) comes within GAP_M of another agent
    among [first, end) on its level."""
    length, width = 0.5 * np.float64(f4[LENGTH, a]) + GAP_M, 0.5 * np.float64(f4[WIDTH, a]) + GAP_M
    for b in range(first, end):
        if b == a or u1[BODY, b] == 0 or not abs(f4[Z, b] - z) <= gate:
            continue
        rx, ry = np.float64(f4[X, b]) - x, np.float64(f4[Y, b]) - y
        half_length, half_width = 0.5 * np.float64(f4[LENGTH, b]), 0.5 * np.float64(f4[WIDTH, b])
        reach = length + width + half_length + half_width
        if rx * rx + ry * ry <= reach * reach and boxes_overlap(
            rx, ry, c, s, length, width, np.float64(f4[COS, b]), np.float64(f4[SIN, b]), half_length, half_width
        ):
            return True
    return False


@kernel
def off_the_road(
    use_area: bool,
    edge_map: EdgeMap,
    lane_map: LaneMap,
    x: float,
    y: float,
    z: float,
    c: float,
    s: float,
    half_length: float,
    half_width: float,
    gate: float,
) -> bool:
    """Whether a box at rest touches an edge of its level, or, with `use_area`, has a corner outside the lanes (S71)."""
    if use_area:
        for corner in range(4):
            along = half_length if corner < 2 else -half_length
            aside = half_width if corner % 2 == 0 else -half_width
            if ribbon_gap(lane_map, x + along * c - aside * s, y + along * s + aside * c, z, gate) > RIBBON_M:
                return True
        return False
    cell = cell_of(edge_map.grid, x, y)
    if cell < 0:
        return True
    # A spawned box is far smaller than the reach of the lists: its centre's cell knows every edge near it.
    return bool(
        touches_edge(
            edge_map,
            cell,
            x,
            y,
            z,
            0.0,
            0.0,
            c,
            s,
            half_length,
            half_width,
            0.0,
            gate,
        )
    )


@kernel
def over_closed_line(
    x: float,
    y: float,
    z: float,
    c: float,
    s: float,
    half_length: float,
    half_width: float,
    signal: F32,
    signal_kind: U8,
    lights: U8,
    gate: float,
) -> bool:
    """Whether a box stands over the line of a red or yellow light of its level.

    signal  (S, 8) f32  `state` columns     lights  (S,) u8  now
    """
    for i in range(signal.shape[0]):
        if signal_kind[i] != LIGHT or (lights[i] != RED and lights[i] != YELLOW):
            continue
        if not abs(signal[i, SIGNAL_Z] - z) <= gate:
            continue
        half = np.float64(signal[i, SIGNAL_REACH]) / LINE_EXTENSION
        rx, ry = np.float64(signal[i, SIGNAL_X]) - x, np.float64(signal[i, SIGNAL_Y]) - y
        nx, ny = np.float64(signal[i, SIGNAL_NX]), np.float64(signal[i, SIGNAL_NY])
        if boxes_overlap(rx, ry, c, s, half_length, half_width, -ny, nx, half, 0.0):
            return True
    return False


@kernel
def spawn(
    seed: int,
    episode: int,
    first: int,
    a: int,
    end: int,
    f4: F32,
    i4: I32,
    u1: U8,
    spawn_lane: I32,
    spawn_end: F64,
    lane_map: LaneMap,
    edge_map: EdgeMap,
    use_area: bool,
    signal: F32,
    signal_kind: U8,
    lights: U8,
    parameters: F32,
) -> bool:
    """Put agent a of the world [first, end) onto a lane; False, and no body, where TRIES places were all taken.

    Written: its size, pose, speed and lane, and BODY. Others of the world stand where f4 has them; without BODY they
    are not there yet.
    """
    key = i4[KEY, a]
    gate = np.float64(parameters[LEVEL_GATE])
    f4[LENGTH, a], f4[WIDTH, a] = draw_size(seed, episode, key, parameters)
    half_length, half_width = 0.5 * np.float64(f4[LENGTH, a]), 0.5 * np.float64(f4[WIDTH, a])
    segment, lane_first = lane_map.segment, lane_map.lane_first
    for trial in range(TRIES if spawn_end.shape[0] else 0):
        lane, share = draw_lane(seed, episode, key, trial, spawn_lane, spawn_end)
        x4, y4, z4, m = lane_place(segment, lane_first, lane, share * lane_length(segment, lane_first, lane))
        x, y, z = np.float64(x4), np.float64(y4), np.float64(z4)
        c, s = np.float64(segment[m, 10]), np.float64(segment[m, 11])
        if near_agent(first, a, end, x, y, z, c, s, f4, u1, gate):
            continue
        grown_length, grown_width = EDGE_GROWTH * half_length, EDGE_GROWTH * half_width
        if off_the_road(use_area, edge_map, lane_map, x, y, z, c, s, grown_length, grown_width, gate):
            continue
        if over_closed_line(x, y, z, c, s, half_length, half_width, signal, signal_kind, lights, gate):
            continue
        f4[X, a], f4[Y, a], f4[Z, a] = x4, y4, z4
        f4[COS, a], f4[SIN, a] = segment[m, 10], segment[m, 11]
        f4[HEADING, a] = arctan2(segment[m, 11], segment[m, 10])
        f4[HEIGHT, a], f4[SPEED, a] = HEIGHT_M, parameters[SPAWN_SPEED]
        i4[LANE, a] = lane
        u1[BODY, a] = 1
        return True
    f4[LENGTH, a], f4[WIDTH, a] = np.float32(0.0), np.float32(0.0)
    return False

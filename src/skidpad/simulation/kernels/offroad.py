"""Who left the road: swept boxes against edges, or corners outside the lanes (S71).

Contact with an edge, and being off the road or the map, is an event in every step in which it is so. Edges are those of
the map alone; no lane, light or agent is read here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Event
from skidpad.scenes.index import EIGHT, EdgeMap, LaneMap
from skidpad.scenes.scene import F32, U8
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.contact import MARGIN_M, Bodies
from skidpad.simulation.kernels.geometry import NEVER, turn_between, turned, turning_boxes
from skidpad.simulation.kernels.lanes import cell_of, ribbon_gap

U32 = NDArray[np.uint32]

A_X, A_Y, B_X, B_Y = (np.uintp(row) for row in range(4))  # rows of a block of edges
OFFROAD, OFF_MAP = np.uint32(Event.OFFROAD), np.uint32(Event.OFF_MAP)
RIBBON_M = np.float64(0.3)  # how far a corner may leave the lanes
ZERO, HALF, QUARTER_TURN = np.float32(0.0), np.float32(0.5), np.float32(1.5708)
# Over a piece of the exact test corners turn by PIECE_M together: a box smaller by INNER_M is in the boxes of the last
# piece, as long as MAX_PIECES are enough.
INNER_M, MILD_TURN_M = np.float32(0.05), np.float32(2.0)
SLACK_M, SLACK_SHARE = np.float32(1e-3), np.float32(1e-6)  # float32 rounding, larger far from the origin


@kernel
def edge_contacts(
    edge_map: EdgeMap, bodies: Bodies, first: int, end: int, level_gate: float, watched: U8, events: U32
) -> None:
    """Add OFFROAD to agents whose swept box touches an edge of their level, or that leave the map; OFF_MAP to the
    latter (S71).

    level_gate  [m]        infinite where the map has no heights
    watched     (A,)  u8   1 where edges matter; leaving the map matters for everybody
    events      (A,)  u32
    """
    grid, start, edge, height, list_reach = (
        edge_map.grid,
        edge_map.start,
        edge_map.edge,
        edge_map.height,
        edge_map.reach,
    )
    x0, y0, x1, y1 = bodies.x0, bodies.y0, bodies.x, bodies.y
    cos0, sin0, cos1, sin1 = bodies.cos0, bodies.sin0, bodies.cos, bodies.sin
    length, width, before, after = bodies.length, bodies.width, bodies.before, bodies.after
    for a in range(first, end):
        if after[a] == 0:
            continue
        x, y = np.float64(x1[a]), np.float64(y1[a])
        if cell_of(grid, x, y) < 0:
            events[a] |= OFF_MAP | OFFROAD
        if watched[a] == 0:
            continue
        c, s, turns = cos1[a], sin1[a], ZERO
        if before[a] != 0:
            x, y = 0.5 * (x + x0[a]), 0.5 * (y + y0[a])
            turns = abs(c - cos0[a]) + abs(s - sin0[a])
            c, s = cos0[a], sin0[a]
        cell = cell_of(grid, x, y)
        dx, dy = np.float32(2.0) * (x1[a] - np.float32(x)), np.float32(2.0) * (y1[a] - np.float32(y))
        half_length, half_width = HALF * length[a], HALF * width[a]
        # No corner turns by more than (pi / 2) (|change of cos| + |change of sin|) of its distance from the centre.
        slack = SLACK_M + SLACK_SHARE * np.float32(abs(x) + abs(y))
        slack += QUARTER_TURN * turns * (half_length + half_width)
        hull_length = half_length + slack + HALF * abs(dx * c + dy * s)
        hull_width = half_width + slack + HALF * abs(dy * c - dx * s)
        if cell >= 0 and hull_length + hull_width <= list_reach:
            b0, b1 = np.uintp(start[cell]), np.uintp(start[cell + 1])
            near = np.int32(0)
            b = b0
            while b < b1 and near == 0:
                near = meets_any(edge, b, np.float32(x), np.float32(y), c, s, hull_length, hull_width)
                b += np.uintp(1)
            if near == 0:
                continue
            # Mostly it lies across an edge when the step ends, which is told at once from a box within its own.
            inner = INNER_M + SLACK_SHARE * (abs(x1[a]) + abs(y1[a]))
            if (
                turns * (half_length + half_width) < MILD_TURN_M
                and half_width > inner
                and half_length > inner
                and lies_across(
                    edge,
                    height,
                    b0,
                    b1,
                    x1[a],
                    y1[a],
                    bodies.z[a],
                    cos1[a],
                    sin1[a],
                    half_length - inner,
                    half_width - inner,
                    level_gate,
                )
            ):
                events[a] |= OFFROAD
                continue
        if sweeps_edge(edge_map, bodies, a, level_gate):
            events[a] |= OFFROAD


@kernel
def meets(
    ax: np.float32,
    ay: np.float32,
    bx: np.float32,
    by: np.float32,
    x: np.float32,
    y: np.float32,
    c: np.float32,
    s: np.float32,
    half_length: np.float32,
    half_width: np.float32,
) -> Any:
    """`may_touch` in float32: whether the segment from (ax, ay) to (bx, by) [m] meets the box about (x, y)."""
    ux, uy, vx, vy = ax - x, ay - y, bx - x, by - y
    px, py, qx, qy = ux * c + uy * s, uy * c - ux * s, vx * c + vy * s, vy * c - vx * s
    ex, ey = qx - px, qy - py
    return (
        (min(px, qx) <= half_length)
        & (max(px, qx) >= -half_length)
        & (min(py, qy) <= half_width)
        & (max(py, qy) >= -half_width)
        & (abs(px * ey - py * ex) <= half_length * abs(ey) + half_width * abs(ex))
    )


@kernel
def meets_any(
    edge: F32,
    block: Any,
    x: np.float32,
    y: np.float32,
    c: np.float32,
    s: np.float32,
    half_length: np.float32,
    half_width: np.float32,
) -> Any:
    """How many of the edges of a block meet the box about (x, y) [m], one vector wide."""
    found = np.int32(0)
    for lane in range(EIGHT):
        k = np.uintp(lane)
        ax, ay, bx, by = edge[block, A_X, k], edge[block, A_Y, k], edge[block, B_X, k], edge[block, B_Y, k]
        found += np.int32(meets(ax, ay, bx, by, x, y, c, s, half_length, half_width))
    return found


@kernel
def lies_across(
    edge: F32,
    height: F32,
    b0: Any,
    b1: Any,
    x: np.float32,
    y: np.float32,
    z: np.float32,
    c: np.float32,
    s: np.float32,
    half_length: np.float32,
    half_width: np.float32,
    level_gate: float,
) -> bool:
    """Whether an edge among blocks b0:b1, of the level of z [m], meets the box about (x, y)."""
    for b in range(b0, b1):
        if meets_any(edge, b, x, y, c, s, half_length, half_width) == 0:
            continue
        for lane in range(EIGHT):
            k = np.uintp(lane)
            ax, ay, bx, by = edge[b, A_X, k], edge[b, A_Y, k], edge[b, B_X, k], edge[b, B_Y, k]
            if meets(ax, ay, bx, by, x, y, c, s, half_length, half_width):
                if abs(height[b, k] - np.float64(z)) <= level_gate:
                    return True
    return False


@kernel
def sweeps_edge(edge_map: EdgeMap, bodies: Bodies, a: int, level_gate: float) -> bool:
    """Whether the box of agent a touched an edge of its level at any time of the step; exact, and slower than
    `edge_contacts` can afford for everybody."""
    grid, list_reach = edge_map.grid, edge_map.reach
    x1, y1 = np.float64(bodies.x[a]), np.float64(bodies.y[a])
    x0, y0, c, s, turn = x1, y1, np.float64(bodies.cos[a]), np.float64(bodies.sin[a]), 0.0
    if bodies.before[a] != 0:
        x0, y0, c, s = bodies.x0[a], bodies.y0[a], bodies.cos0[a], bodies.sin0[a]
        turn = turn_between(bodies.cos0[a], bodies.sin0[a], bodies.cos[a], bodies.sin[a])
    half_length, half_width = 0.5 * np.float64(bodies.length[a]), 0.5 * np.float64(bodies.width[a])
    dx, dy = x1 - x0, y1 - y0
    radius = np.sqrt(half_length * half_length + half_width * half_width)
    radius += 0.5 * np.sqrt(dx * dx + dy * dy) + MARGIN_M
    mx, my = 0.5 * (x0 + x1), 0.5 * (y0 + y1)
    # One cell answers for a swept circle no larger than the lists' reach; a larger one asks all cells under it.
    wide = 0.0 if radius <= list_reach else radius
    column0 = max(np.floor((mx - wide - grid.x) * grid.inverse), 0.0)
    column1 = min(np.floor((mx + wide - grid.x) * grid.inverse), grid.columns - 1.0)
    row0 = max(np.floor((my - wide - grid.y) * grid.inverse), 0.0)
    row1 = min(np.floor((my + wide - grid.y) * grid.inverse), grid.rows - 1.0)
    row = row0
    while row <= row1:
        column = column0
        while column <= column1:
            cell = np.int64(row) * grid.columns + np.int64(column)
            if touches_edge(
                edge_map,
                cell,
                x0,
                y0,
                np.float64(bodies.z[a]),
                dx,
                dy,
                c,
                s,
                half_length,
                half_width,
                turn,
                level_gate,
            ):
                return True
            column += 1
        row += 1
    return False


@kernel
def may_touch(
    ax: float,
    ay: float,
    bx: float,
    by: float,
    x: float,
    y: float,
    c: float,
    s: float,
    half_length: float,
    half_width: float,
) -> bool:
    """Whether the segment from (ax, ay) to (bx, by) [m] meets the box about (x, y) with heading (c, s). Without
    branches or divisions, so that a loop over edges is vectorised."""
    px, py = (ax - x) * c + (ay - y) * s, (ay - y) * c - (ax - x) * s
    qx, qy = (bx - x) * c + (by - y) * s, (by - y) * c - (bx - x) * s
    return (
        (min(px, qx) <= half_length)
        & (max(px, qx) >= -half_length)
        & (min(py, qy) <= half_width)
        & (max(py, qy) >= -half_width)
        & (abs(px * qy - py * qx) <= half_length * abs(qy - py) + half_width * abs(qx - px))
    )


@kernel
def touches_edge(
    edge_map: EdgeMap,
    cell: Any,
    x: float,
    y: float,
    z: float,
    dx: float,
    dy: float,
    c: float,
    s: float,
    half_length: float,
    half_width: float,
    turn: float,
    level_gate: float,
) -> bool:
    """Whether a box that moves by (dx, dy) and turns by `turn` touches an edge of a cell's list.

    x, y, z [m] and c, s: pose at the start. A box that holds the whole motion is tested first: the one in the middle of
    the step, grown by half the way and by what its corners turn over half the step.
    """
    mx, my = x + 0.5 * dx, y + 0.5 * dy
    hc, hs = turned(c, s, 0.5 * turn)
    grow = 0.5 * abs(turn) * np.sqrt(half_length * half_length + half_width * half_width) + MARGIN_M
    hull_length = half_length + grow + 0.5 * abs(dx * hc + dy * hs)
    hull_width = half_width + grow + 0.5 * abs(dy * hc - dx * hs)
    edge, height = edge_map.edge, edge_map.height
    for b in range(np.uintp(edge_map.start[cell]), np.uintp(edge_map.start[cell + 1])):
        near = np.int64(0)
        for lane in range(EIGHT):
            k = np.uintp(lane)
            px, py = np.float64(edge[b, A_X, k]), np.float64(edge[b, A_Y, k])
            qx, qy = np.float64(edge[b, B_X, k]), np.float64(edge[b, B_Y, k])
            near += np.int64(may_touch(px, py, qx, qy, mx, my, hc, hs, hull_length, hull_width))
        if near == 0:
            continue
        for lane in range(EIGHT):
            k = np.uintp(lane)
            px, py = np.float64(edge[b, A_X, k]), np.float64(edge[b, A_Y, k])
            qx, qy = np.float64(edge[b, B_X, k]), np.float64(edge[b, B_Y, k])
            if not may_touch(px, py, qx, qy, mx, my, hc, hs, hull_length, hull_width):
                continue
            if not abs(height[b, k] - z) <= level_gate:
                continue
            ux, uy = qx - px, qy - py
            span = np.sqrt(ux * ux + uy * uy)
            rx, ry = px + 0.5 * ux - x, py + 0.5 * uy - y
            when = turning_boxes(
                rx, ry, -dx, -dy, c, s, half_length, half_width, turn, ux / span, uy / span, 0.5 * span, 0.0, 0.0
            )
            if when != NEVER:
                return True
    return False


@kernel
def area_contacts(
    lane_map: LaneMap, bodies: Bodies, first: int, end: int, level_gate: float, watched: U8, events: U32
) -> None:
    """Add OFFROAD to agents with a corner more than 0.3 m outside all lanes, for maps without edges (S71); OFF_MAP and
    OFFROAD to those that leave the map. Arguments as in `edge_contacts`."""
    for a in range(first, end):
        if bodies.after[a] == 0:
            continue
        x, y, z = np.float64(bodies.x[a]), np.float64(bodies.y[a]), np.float64(bodies.z[a])
        if cell_of(lane_map.grid, x, y) < 0:
            events[a] |= OFF_MAP | OFFROAD
        if watched[a] == 0:
            continue
        ux, uy = 0.5 * bodies.length[a] * bodies.cos[a], 0.5 * bodies.length[a] * bodies.sin[a]
        nx, ny = -0.5 * bodies.width[a] * bodies.sin[a], 0.5 * bodies.width[a] * bodies.cos[a]
        for corner in range(4):
            along = 1.0 if corner < 2 else -1.0
            aside = 1.0 if corner % 2 == 0 else -1.0
            if ribbon_gap(lane_map, x + along * ux + aside * nx, y + along * uy + aside * ny, z, level_gate) > RIBBON_M:
                events[a] |= OFFROAD
                break

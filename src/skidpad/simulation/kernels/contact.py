"""Who touched whom, and what, during a step.

All agents have moved when this runs; nobody's contact depends on another's. A kernel works on the agents of one world,
`first` up to `end` of the flat arrays. Pairs are visited once and charged twice, so contact is mutual by construction.
Contact with an agent is an event when it begins; while it lasts, `touching` says so. Contact with an edge, and being
off the road or the map, is an event in every step in which it is so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Event
from skidpad.scenes.index import EdgeMap, LaneMap
from skidpad.scenes.scene import F32, I32, SUBTYPE_STATIC, TYPE_UNKNOWN, TYPE_VEHICLE, U8
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.geometry import NEVER, boxes_overlap, turned, turning_boxes
from skidpad.simulation.kernels.lanes import LaneState, cell_of, ribbon_gap
from skidpad.simulation.kernels.trig import arctan2

F64 = NDArray[np.float64]
U32 = NDArray[np.uint32]

SCRATCH_ROWS = 4
APART, TOUCHING, OVERLAPPING = np.uint8(0), np.uint8(1), np.uint8(2)

NO_EVENT = np.uint32(0)
VEHICLE, VRU = np.uint32(Event.COLLISION_VEHICLE), np.uint32(Event.COLLISION_VRU)
STATIC = np.uint32(Event.COLLISION_STATIC)
OFFROAD, OFF_MAP = np.uint32(Event.OFFROAD), np.uint32(Event.OFF_MAP)
AT_FAULT, HIT_FROM_BEHIND = np.uint32(Event.AT_FAULT), np.uint32(Event.HIT_FROM_BEHIND)

MARGIN_M = 1e-6  # rounding of the broad phase
STOPPED = np.float64(0.2)  # m/s; S78
BEHIND_COS = np.float64(-0.8660254037844387)  # cos 150 degrees; S78
STRADDLE_M = np.float64(0.2)  # S78
FACE_M = np.float64(0.05)  # two faces this close at first contact are in contact; covers PIECE_M and rounding
RIBBON_M = np.float64(0.3)  # S71: how far a corner may leave the lanes
LASTING = np.float32(2.0)  # ranks contacts that began earlier behind those of this step


class Bodies(NamedTuple):
    """The boxes of all agents of all worlds, before (0) and after the step; flat arrays over agents.

    x0, y0, z0         (A,)  f32 [m]    centre of the box before
    cos0, sin0         (A,)  f32        its heading
    x, y, z, cos, sin  (A,)  f32        after
    length, width, height  (A,)  f32 [m]  after
    before, after      (A,)  u8         1 where the agent has a body then: others can meet it
    type, subtype      (A,)  u8         as in the scene
    speed              (A,)  f32 [m/s]  signed, after
    key                (A,)  i32        stable name of the agent in its world (its track): breaks ties
    """

    x0: F32
    y0: F32
    z0: F32
    cos0: F32
    sin0: F32
    x: F32
    y: F32
    z: F32
    cos: F32
    sin: F32
    length: F32
    width: F32
    height: F32
    before: U8
    after: U8
    type: U8
    subtype: U8
    speed: F32
    key: I32


class Contacts(NamedTuple):
    """What is found about contact with other agents; flat arrays over agents, written.

    events    (A,)  u32   bits are added
    partner   (A,)  i32   whom it met first in this step, else whom it still touches: index in the world, -1 = nobody
    time      (A,)  f32   share of the step at which that contact began; 0 where it began earlier or there is none
    touching  (A,)  u8    1 while it touches anybody
    """

    events: U32
    partner: I32
    time: F32
    touching: U8


@kernel
def pair_count(agents: int) -> int:
    """Length of the pair state of a world."""
    return agents * (agents - 1) // 2


@kernel
def collision_bit(type: int, subtype: int) -> Any:
    """The event of colliding with an agent of this kind: vehicle; pedestrian or cyclist; thing that never moves."""
    if subtype == SUBTYPE_STATIC or type == TYPE_UNKNOWN:
        return STATIC
    return VEHICLE if type == TYPE_VEHICLE else VRU


@kernel
def same_level(z0i: float, zi: float, z0j: float, zj: float, height_i: float, height_j: float, gate: float) -> bool:
    """Whether two boxes meet in height, before or after the step; heights that no map gives are never in the way."""
    apart = min(abs(z0i - z0j), abs(zi - zj))
    return gate == NEVER or (apart <= gate and apart <= 0.5 * (height_i + height_j))


@kernel
def fault_bits(
    rx: float,
    ry: float,
    c: float,
    s: float,
    half_length: float,
    half_width: float,
    speed: float,
    other_c: float,
    other_s: float,
    other_half_length: float,
    other_half_width: float,
    other_speed: float,
    leaves_lane: bool,
) -> Any:
    """AT_FAULT, HIT_FROM_BEHIND or neither, for one side of a collision (S78); the first rule that applies decides.

    rx, ry      [m]   other's centre minus own, when contact began
    c, s              own heading then; other_c, other_s the other's
    leaves_lane       own box reaches beyond its lane, or has none

    1 own speed <= 0.2 m/s: no. 2 other's speed <= 0.2 m/s: yes. 3 the other is behind (bearing above 150 degrees): no,
    hit from behind. 4 own front face touches: yes. 5 yes when leaving the lane.
    """
    if abs(speed) <= STOPPED:
        return NO_EVENT
    if abs(other_speed) <= STOPPED:
        return AT_FAULT
    if rx * c + ry * s < BEHIND_COS * np.sqrt(rx * rx + ry * ry):
        return HIT_FROM_BEHIND
    front = boxes_overlap(
        rx - c * half_length,
        ry - s * half_length,
        c,
        s,
        0.0,
        half_width,
        other_c,
        other_s,
        other_half_length + FACE_M,
        other_half_width + FACE_M,
    )
    if front or leaves_lane:
        return AT_FAULT
    return NO_EVENT


@kernel
def meet(contacts: Contacts, first: int, a: int, b: int, time: Any, key: I32) -> None:
    """Note that `a` touches `b`, unless it met another one earlier; of two at the same time the lower key."""
    partner = contacts.partner[a]
    known = contacts.time[a]
    if partner < 0 or time < known or (time == known and key[b] < key[first + partner]):
        contacts.partner[a] = b - first
        contacts.time[a] = time


@kernel
def start_contacts(bodies: Bodies, first: int, end: int, level_gate: float, pair: U8) -> None:
    """Mark the pairs of one world that overlap where the episode starts; they are not reported until they have
    separated once (S54).

    level_gate  [m]                  infinite where the map has no heights
    pair        (n (n - 1) / 2,)  u8  state of each pair of the world, written
    """
    x, y, z = bodies.x, bodies.y, bodies.z
    length, width, height, body = bodies.length, bodies.width, bodies.height, bodies.after
    k = 0
    for i in range(first, end):
        for j in range(i + 1, end):
            overlap = (
                body[i] != 0
                and body[j] != 0
                and same_level(z[i], z[i], z[j], z[j], height[i], height[j], level_gate)
                and boxes_overlap(
                    np.float64(x[j]) - x[i],
                    np.float64(y[j]) - y[i],
                    np.float64(bodies.cos[i]),
                    np.float64(bodies.sin[i]),
                    0.5 * length[i],
                    0.5 * width[i],
                    np.float64(bodies.cos[j]),
                    np.float64(bodies.sin[j]),
                    0.5 * length[j],
                    0.5 * width[j],
                )
            )
            pair[k] = OVERLAPPING if overlap else APART
            k += 1


@kernel
def agent_contacts(
    bodies: Bodies,
    lanes: LaneState,
    first: int,
    end: int,
    level_gate: float,
    pair: U8,
    scratch: F64,
    contacts: Contacts,
) -> None:
    """Find all contacts among the agents [first, end) of one world in one step (S69), and who was at fault (S78).

    lanes       where the agents are after the step
    level_gate  [m]                   boxes further apart in height do not meet; infinite where the map has no heights
    pair        (n (n - 1) / 2,)  u8  state of each pair of the world, read and written; `start_contacts` begins it
    scratch     (SCRATCH_ROWS, >= n)  f64

    A contact that begins gives both a collision bit, one of the kind of the other, and lasts until a step without
    touch. An agent that appears on top of another is treated as one that overlapped at the start: no driving led to it.
    """
    x0, y0, z0, cos0, sin0 = bodies.x0, bodies.y0, bodies.z0, bodies.cos0, bodies.sin0
    x1, y1, z1, cos1, sin1 = bodies.x, bodies.y, bodies.z, bodies.cos, bodies.sin
    length, width, height = bodies.length, bodies.width, bodies.height
    before, after, type, subtype = bodies.before, bodies.after, bodies.type, bodies.subtype
    speed, key = bodies.speed, bodies.key
    events, partner, time, touching = contacts.events, contacts.partner, contacts.time, contacts.touching
    n = end - first
    mid_x, mid_y, reach, gap = scratch[0], scratch[1], scratch[2], scratch[3]
    for k in range(n):
        a = first + k
        partner[a] = -1
        time[a] = 0.0
        touching[a] = 0
        radius = 0.5 * np.sqrt(np.float64(length[a]) * length[a] + np.float64(width[a]) * width[a])
        if after[a] == 0:
            mid_x[k] = np.nan  # Comparisons with NaN are false: without a body nobody is near.
            mid_y[k] = np.nan
            reach[k] = 0.0
        elif before[a] == 0:
            mid_x[k] = x1[a]
            mid_y[k] = y1[a]
            reach[k] = radius + MARGIN_M
        else:
            dx = 0.5 * (np.float64(x1[a]) - x0[a])
            dy = 0.5 * (np.float64(y1[a]) - y0[a])
            mid_x[k] = x0[a] + dx
            mid_y[k] = y0[a] + dy
            reach[k] = radius + np.sqrt(dx * dx + dy * dy) + MARGIN_M

    row = 0
    for ki in range(n - 1):
        i = first + ki
        xi, yi, ri = mid_x[ki], mid_y[ki], reach[ki]
        close = 0
        for kj in range(ki + 1, n):
            dx = mid_x[kj] - xi
            dy = mid_y[kj] - yi
            rr = reach[kj] + ri
            gap[kj] = dx * dx + dy * dy - rr * rr
            close += gap[kj] <= 0
        for kj in range(ki + 1, n):
            p = row + kj - ki - 1
            if close == 0 or not gap[kj] <= 0:
                pair[p] = APART
                continue
            j = first + kj
            fresh = before[i] == 0 or before[j] == 0
            ci, si, cj, sj = np.float64(cos0[i]), np.float64(sin0[i]), np.float64(cos0[j]), np.float64(sin0[j])
            li, wi = 0.5 * np.float64(length[i]), 0.5 * np.float64(width[i])
            lj, wj = 0.5 * np.float64(length[j]), 0.5 * np.float64(width[j])
            ex, ey = np.float64(x1[j]) - x1[i], np.float64(y1[j]) - y1[i]
            meets = same_level(z0[i], z1[i], z0[j], z1[j], height[i], height[j], level_gate)
            if fresh or pair[p] == OVERLAPPING:
                # What overlaps now has overlapped since one of them came; it counts once they have been apart.
                ci, si, cj, sj = np.float64(cos1[i]), np.float64(sin1[i]), np.float64(cos1[j]), np.float64(sin1[j])
                stuck = meets and boxes_overlap(ex, ey, ci, si, li, wi, cj, sj, lj, wj)
                pair[p] = OVERLAPPING if stuck else APART
                continue
            rx, ry = np.float64(x0[j]) - x0[i], np.float64(y0[j]) - y0[i]
            vx, vy = ex - rx, ey - ry
            turn_i = turn_between(cos0[i], sin0[i], cos1[i], sin1[i])
            turn_j = turn_between(cos0[j], sin0[j], cos1[j], sin1[j])
            when: float = NEVER
            if meets:
                when = turning_boxes(rx, ry, vx, vy, ci, si, li, wi, turn_i, cj, sj, lj, wj, turn_j)
            if when == NEVER:
                pair[p] = APART
                continue
            touching[i] = 1
            touching[j] = 1
            if pair[p] == TOUCHING:
                meet(contacts, first, i, j, LASTING, key)
                meet(contacts, first, j, i, LASTING, key)
                continue
            pair[p] = TOUCHING
            meet(contacts, first, i, j, np.float32(when), key)
            meet(contacts, first, j, i, np.float32(when), key)
            hi, ui = turned(ci, si, when * turn_i)
            hj, uj = turned(cj, sj, when * turn_j)
            mx, my = rx + when * vx, ry + when * vy
            leaves = leaves_lane(lanes.lane[i], lanes.offset[i], lanes.half_width[i], wi)
            events[i] |= collision_bit(type[j], subtype[j]) | fault_bits(
                mx, my, hi, ui, li, wi, speed[i], hj, uj, lj, wj, speed[j], leaves
            )
            leaves = leaves_lane(lanes.lane[j], lanes.offset[j], lanes.half_width[j], wj)
            events[j] |= collision_bit(type[i], subtype[i]) | fault_bits(
                -mx, -my, hj, uj, lj, wj, speed[j], hi, ui, li, wi, speed[i], leaves
            )
        row += n - 1 - ki
    for a in range(first, end):
        if time[a] == LASTING:
            time[a] = 0.0


@kernel
def turn_between(c0: float, s0: float, c1: float, s1: float) -> float:
    """Angle [rad] in (-pi, pi] from direction 0 to direction 1."""
    c = np.float64(c0) * c1 + np.float64(s0) * s1
    s = np.float64(c0) * s1 - np.float64(s0) * c1
    return np.float64(arctan2(np.float32(s), np.float32(c)))


@kernel
def leaves_lane(lane: int, offset: float, lane_half_width: float, half_width: float) -> bool:
    """Whether a box is on no lane, or reaches beyond its lane by more than 0.2 m (S78)."""
    return lane < 0 or bool(abs(offset) + half_width > lane_half_width + STRADDLE_M)


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
    grid, start, edge, list_reach = edge_map.grid, edge_map.start, edge_map.edge, edge_map.reach
    for a in range(first, end):
        if bodies.after[a] == 0:
            continue
        x1, y1 = np.float64(bodies.x[a]), np.float64(bodies.y[a])
        if cell_of(grid, x1, y1) < 0:
            events[a] |= OFF_MAP | OFFROAD
        if watched[a] == 0:
            continue
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
        hit = False
        row = row0
        while row <= row1 and not hit:
            column = column0
            while column <= column1 and not hit:
                cell = np.int64(row) * grid.columns + np.int64(column)
                hit = touches_edge(
                    edge,
                    start[cell],
                    start[cell + 1],
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
                )
                column += 1
            row += 1
        if hit:
            events[a] |= OFFROAD


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
    edge: F32,
    k0: int,
    k1: int,
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
    """Whether a box that moves by (dx, dy) and turns by `turn` touches an edge among columns k0:k1 of `edge`.

    x, y, z [m] and c, s: pose at the start. A box that holds the whole motion is tested first: the one in the middle of
    the step, grown by half the way and by what its corners turn over half the step.
    """
    mx, my = x + 0.5 * dx, y + 0.5 * dy
    hc, hs = turned(c, s, 0.5 * turn)
    grow = 0.5 * abs(turn) * np.sqrt(half_length * half_length + half_width * half_width) + MARGIN_M
    hull_length = half_length + grow + 0.5 * abs(dx * hc + dy * hs)
    hull_width = half_width + grow + 0.5 * abs(dy * hc - dx * hs)
    ax, ay, bx, by, ez = edge[0, k0:k1], edge[1, k0:k1], edge[2, k0:k1], edge[3, k0:k1], edge[4, k0:k1]
    near = 0
    for k in range(ax.shape[0]):
        near += may_touch(
            np.float64(ax[k]),
            np.float64(ay[k]),
            np.float64(bx[k]),
            np.float64(by[k]),
            mx,
            my,
            hc,
            hs,
            hull_length,
            hull_width,
        )
    if near == 0:
        return False
    for k in range(ax.shape[0]):
        px, py, qx, qy = np.float64(ax[k]), np.float64(ay[k]), np.float64(bx[k]), np.float64(by[k])
        if not may_touch(px, py, qx, qy, mx, my, hc, hs, hull_length, hull_width):
            continue
        if not abs(ez[k] - z) <= level_gate:
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

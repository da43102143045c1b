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
from skidpad.scenes.scene import F32, I32, SUBTYPE_STATIC, TYPE_UNKNOWN, TYPE_VEHICLE, U8
from skidpad.simulation.kernels.agent_grid import (
    BLOCK,
    FAR_M,
    GRID_SLOTS,
    REACH,
    SORTED_REACH,
    SORTED_X,
    SORTED_Y,
    last_row,
    row_of,
    sort_agents,
    stretch,
)
from skidpad.simulation.kernels.agent_grid import X as MID_X
from skidpad.simulation.kernels.agent_grid import Y as MID_Y
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.geometry import NEVER, boxes_overlap, turn_between, turned, turning_boxes
from skidpad.simulation.kernels.lanes import LaneState
from skidpad.simulation.kernels.machine import meet_eight

U32 = NDArray[np.uint32]

CONTACT_SLOTS = GRID_SLOTS + 1  # the grid, and a list of who is close to one agent
APART, TOUCHING, OVERLAPPING = np.uint8(0), np.uint8(1), np.uint8(2)

NO_EVENT = np.uint32(0)
VEHICLE, VRU = np.uint32(Event.COLLISION_VEHICLE), np.uint32(Event.COLLISION_VRU)
STATIC = np.uint32(Event.COLLISION_STATIC)
AT_FAULT, HIT_FROM_BEHIND = np.uint32(Event.AT_FAULT), np.uint32(Event.HIT_FROM_BEHIND)

MARGIN_M = 1e-6  # rounding of the broad phase
ZERO, HALF, ROUNDING = np.float32(0.0), np.float32(0.5), np.float32(1.00001)  # a radius in float32 is rounded up
SLACK_M, SLACK_SHARE = np.float32(1e-3), np.float32(1e-6)  # so is one about a centre in float32
QUARTER_TURN = 0.5 * np.pi + 1e-3
STOPPED = np.float64(0.2)  # m/s; S78
BEHIND_COS = np.float64(-0.8660254037844387)  # cos 150 degrees; S78
STRADDLE_M = np.float64(0.2)  # S78
FACE_M = np.float64(0.05)  # two faces this close at first contact are in contact; covers PIECE_M and rounding
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
def place_bodies(bodies: Bodies, first: int, end: int, scratch: F32) -> float:
    """Where the bodies of one world are in the middle of the step, and how far each reaches from there at any time in
    it: rows X, Y, REACH of `scratch`. Returns the largest reach [m].

    Without a body the position is NaN: comparisons are false, so nobody is near.
    """
    x0, y0, x1, y1, length, width = bodies.x0, bodies.y0, bodies.x, bodies.y, bodies.length, bodies.width
    before, after = bodies.before, bodies.after
    mid_x, mid_y, reach = scratch[MID_X], scratch[MID_Y], scratch[REACH]
    most = 0.0
    for k in range(end - first):
        a = first + k
        radius = HALF * np.sqrt(length[a] * length[a] + width[a] * width[a]) * ROUNDING
        if after[a] == 0:
            mid_x[k], mid_y[k], reach[k] = np.nan, np.nan, ZERO
        else:
            radius += SLACK_M + SLACK_SHARE * (abs(x1[a]) + abs(y1[a]))
            if before[a] == 0:
                mid_x[k], mid_y[k], reach[k] = x1[a], y1[a], radius
            else:
                dx, dy = HALF * (x1[a] - x0[a]), HALF * (y1[a] - y0[a])
                mid_x[k], mid_y[k] = x0[a] + dx, y0[a] + dy
                reach[k] = radius + np.sqrt(dx * dx + dy * dy) * ROUNDING
        if reach[k] < FAR_M:
            most = max(most, reach[k])
    return most


@kernel
def close_ones(p: int, q0: int, q1: int, scratch: F32, near: I32, count: int) -> int:
    """Append to near[:count] the places q in [q0, q1) of the order whose circle meets that of place p; the new count.
    Positions that are NaN meet nobody."""
    xs, ys, reaches = scratch[SORTED_X], scratch[SORTED_Y], scratch[SORTED_REACH]
    x, y, reach = xs[p], ys[p], reaches[p]
    q, last = np.uintp(q0), np.uintp(q1)
    while q < last:
        mask = meet_eight(xs, ys, reaches, q, x, y, reach)
        k = q
        while mask and k < last:
            if mask & 1:
                near[count] = k
                count += 1
            mask >>= 1
            k += np.uintp(1)
        q += np.uintp(BLOCK)
    return count


@kernel
def agent_contacts(
    bodies: Bodies,
    lanes: LaneState,
    first: int,
    end: int,
    level_gate: float,
    pair: U8,
    scratch: F32,
    places: I32,
    contacts: Contacts,
) -> tuple[float, float, int, int]:
    """Find all contacts among the agents [first, end) of one world in one step (S69), and who was at fault (S78).

    lanes       where the agents are after the step
    level_gate  [m]                   boxes further apart in height do not meet; infinite where the map has no heights
    pair        (n (n - 1) / 2,)  u8  state of each pair of the world, read and written; `start_contacts` begins it
    scratch     (GRID_ROWS, >= n + BLOCK)  f32, places  (>= CONTACT_SLOTS n + 2,)  i32   as in `agent_grid.sort_agents`

    A contact that begins gives both a collision bit, one of the kind of the other, and lasts until a step without
    touch. An agent that appears on top of another is treated as one that overlapped at the start: no driving led to it.

    Returns the largest reach [m] and the grid of `scratch` and `places`: side of a cell [m], columns, rows.
    """
    x0, y0, z0, cos0, sin0 = bodies.x0, bodies.y0, bodies.z0, bodies.cos0, bodies.sin0
    x1, y1, z1, cos1, sin1 = bodies.x, bodies.y, bodies.z, bodies.cos, bodies.sin
    length, width, height = bodies.length, bodies.width, bodies.height
    before, type, subtype = bodies.before, bodies.type, bodies.subtype
    speed, key = bodies.speed, bodies.key
    events, partner, time, touching = contacts.events, contacts.partner, contacts.time, contacts.touching
    partner[first:end] = -1
    time[first:end] = 0.0
    touching[first:end] = 0
    n = end - first
    most = place_bodies(bodies, first, end, scratch)
    _, _, side, columns, rows = sort_agents(n, scratch, places)
    near = places[GRID_SLOTS * n + 2 :]
    # A state moves to the upper half of its byte; what nobody writes below is APART in the end.
    for k in range(pair.shape[0]):
        pair[k] <<= 4
    for p in range(n):
        if not scratch[SORTED_REACH, p] < FAR_M:
            continue  # No box has such a size.
        span = 0 if columns * rows == 1 else int(np.ceil((scratch[SORTED_REACH, p] + most) / side))
        count = 0
        for row in range(row_of(places[n + p], columns), last_row(places[n + p], span, columns, rows) + 1):
            q0, q1 = stretch(p, row, span, columns, n, places)
            count = close_ones(p, q0, q1, scratch, near, count)
        for c in range(count):
            a, b = places[p], places[near[c]]
            i, j = min(a, b), max(a, b)
            k = i * (2 * n - i - 1) // 2 + j - i - 1
            i, j = first + i, first + j
            known = pair[k] >> 4
            li, wi = 0.5 * np.float64(length[i]), 0.5 * np.float64(width[i])
            lj, wj = 0.5 * np.float64(length[j]), 0.5 * np.float64(width[j])
            ex, ey = np.float64(x1[j]) - x1[i], np.float64(y1[j]) - y1[i]
            meets = same_level(z0[i], z1[i], z0[j], z1[j], height[i], height[j], level_gate)
            if before[i] == 0 or before[j] == 0 or known == OVERLAPPING:
                # What overlaps now has overlapped since one of them came; it counts once they have been apart.
                ci, si, cj, sj = np.float64(cos1[i]), np.float64(sin1[i]), np.float64(cos1[j]), np.float64(sin1[j])
                if meets and boxes_overlap(ex, ey, ci, si, li, wi, cj, sj, lj, wj):
                    pair[k] |= OVERLAPPING
                continue
            ci, si, cj, sj = np.float64(cos0[i]), np.float64(sin0[i]), np.float64(cos0[j]), np.float64(sin0[j])
            rx, ry = np.float64(x0[j]) - x0[i], np.float64(y0[j]) - y0[i]
            vx, vy = ex - rx, ey - ry
            turns = abs(cos1[i] - cos0[i]) + abs(sin1[i] - sin0[i])
            turns += abs(cos1[j] - cos0[j]) + abs(sin1[j] - sin0[j])
            if not meets or parted(rx, ry, vx, vy, ci, si, li, wi, cj, sj, lj, wj, np.float64(turns)):
                continue
            turn_i = turn_between(cos0[i], sin0[i], cos1[i], sin1[i])
            turn_j = turn_between(cos0[j], sin0[j], cos1[j], sin1[j])
            when = turning_boxes(rx, ry, vx, vy, ci, si, li, wi, turn_i, cj, sj, lj, wj, turn_j)
            if when == NEVER:
                continue
            pair[k] |= TOUCHING
            touching[i] = 1
            touching[j] = 1
            if known == TOUCHING:
                meet(contacts, first, i, j, LASTING, key)
                meet(contacts, first, j, i, LASTING, key)
                continue
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
    for k in range(pair.shape[0]):
        pair[k] &= 15
    for a in range(first, end):
        if time[a] == LASTING:
            time[a] = 0.0
    return most, side, columns, rows


@kernel
def parted(
    rx: float,
    ry: float,
    vx: float,
    vy: float,
    ci: float,
    si: float,
    li: float,
    wi: float,
    cj: float,
    sj: float,
    lj: float,
    wj: float,
    turns: float,
) -> bool:
    """Whether two boxes surely stay apart, told without a division or a sine: both with their first orientation, grown
    by what their corners may turn; on one face of either they are on the same side before and after.

    turns   sum of the changes of all four cosines and sines: pi / 2 times it bounds both turns. Others: `turning_boxes`
    """
    grow = QUARTER_TURN * turns * (li + wi + lj + wj) + MARGIN_M
    c, s = abs(ci * cj + si * sj), abs(ci * sj - si * cj)
    for axis in range(4):
        if axis < 2:
            ax, ay = (ci, si) if axis == 0 else (-si, ci)
            reach = li + lj * c + wj * s if axis == 0 else wi + lj * s + wj * c
        else:
            ax, ay = (cj, sj) if axis == 2 else (-sj, cj)
            reach = lj + li * c + wi * s if axis == 2 else wj + li * s + wi * c
        p, q = rx * ax + ry * ay, vx * ax + vy * ay
        if min(p, p + q) > reach + grow or max(p, p + q) < -reach - grow:
            return True
    return False


@kernel
def leaves_lane(lane: int, offset: float, lane_half_width: float, half_width: float) -> bool:
    """Whether a box is on no lane, or reaches beyond its lane by more than 0.2 m (S78)."""
    return lane < 0 or bool(abs(offset) + half_width > lane_half_width + STRADDLE_M)

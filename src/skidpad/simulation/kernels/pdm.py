"""A planner that tries fifteen futures and drives the best of them (S103).

After Dauner, Hallgarten, Geiger and Chitta (2023), "Parting with misconceptions about learning-based vehicle motion
planning", section 4: the centre line of the way ahead and two lines beside it, at five shares of the desired speed, are
driven by the intelligent driver model among others that hold their velocity; each future is scored, and the first
acceleration of the best one and pure pursuit of its line are the command. Numbers and scores are those of the
specification. Nothing is remembered between steps.

Lines are drawn for the centre of the box. A body behind that would run into us is its driver's business: without that,
standing still would look dangerous to whoever is followed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import EdgeMap, LaneMap
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.geometry import sliding_boxes
from skidpad.simulation.kernels.idm import (
    FAR,
    INFLATION,
    NEAREST_GAP,
    NO_LANE_BRAKE,
    PATH_COS,
    PATH_SIN,
    PATH_STEP,
    PATH_X,
    PATH_Y,
    bend_speed,
    beside_path,
    pursuit_angle,
    sample_path,
    stop_line_gap,
)
from skidpad.simulation.kernels.lanes import cell_of, ribbon_gap
from skidpad.simulation.kernels.offroad import RIBBON_M, touches_edge
from skidpad.simulation.state import (
    BODY,
    COS,
    GHOST,
    IDM_DESIRED_SPEED,
    LANE,
    LANE_ARC,
    LENGTH,
    LEVEL_GATE,
    P_DT,
    PDM_HORIZON,
    PDM_STEP,
    SIN,
    SPEED,
    WIDTH,
    X,
    Y,
    Z,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

ZERO, HALF, ONE, TWO = F(0.0), F(0.5), F(1.0), F(2.0)
OFFSETS = (F(0.0), F(-1.0), F(1.0))  # m, left positive
FRACTIONS = (F(1.0), F(0.75), F(0.5), F(0.25), F(0.01))  # of the desired speed
SPEEDS = len(FRACTIONS)
PROPOSALS = len(OFFSETS) * SPEEDS
ACCELERATION, DECELERATION, MIN_GAP, HEADWAY = F(4.0), F(5.0), F(2.0), F(2.0)
PROGRESS, SAFETY, CENTRED, DANGER = F(3.0), F(10.0), F(1.0), F(48.0)
LEAST_DANGER_S, DANGER_M_S2 = F(2.0), F(5.0)  # contact sooner than max(2 s, v / 5 + 0.5 s) is danger
SLOWEST = F(0.1)  # m/s, a desired speed is never less
TICKS = 80  # 8 s in steps of 0.1 s
FARTHEST_POINTS = F(3.0)  # m: no two neighbours of a shifted line are further apart
SCORE, ACCEL, LOOKED_AT = range(3)  # rows of the scores


@kernel
def planned_acceleration(
    speed: np.float32, desired: np.float32, gap: np.float32, leader_speed: np.float32
) -> np.float32:
    """IDM with the planner's own numbers [m/s^2], within [-5, 4]."""
    ratio = speed / desired
    closing = speed * (speed - leader_speed) / (TWO * np.sqrt(ACCELERATION * DECELERATION))
    share = (MIN_GAP + max(ZERO, speed * HEADWAY + closing)) / max(gap, NEAREST_GAP)
    accel = ACCELERATION * (ONE - ratio * ratio * ratio * ratio - share * share)
    return F(min(max(accel, -DECELERATION), ACCELERATION))


@kernel
def matters(i: int, j: int, f4: F32, u1: U8, level_gate: np.float32) -> bool:
    """Whether body j is one to look out for: there, on the level, and not following in the own track."""
    if j == i or u1[BODY, j] == 0 or u1[GHOST, j] or abs(f4[Z, j] - f4[Z, i]) > level_gate:
        return False
    dx, dy = f4[X, j] - f4[X, i], f4[Y, j] - f4[Y, i]
    behind = dx * f4[COS, i] + dy * f4[SIN, i] < -HALF * f4[LENGTH, i]
    aside = abs(dy * f4[COS, i] - dx * f4[SIN, i])
    return not (behind and aside < HALF * (f4[WIDTH, i] + f4[WIDTH, j]))


@kernel
def block_line(
    i: int,
    a0: int,
    a1: int,
    f4: F32,
    u1: U8,
    level_gate: np.float32,
    path: F32,
    count: int,
    offset: np.float32,
    ticks: int,
    tick_s: np.float32,
    block: F32,
) -> None:
    """Where on a shifted line each other body first stands in the way of a disc of the own width, at each tick.

    block  (TICKS + 1, >= a1 - a0)  f32 [m]   written, from the own centre along the line; FAR = nowhere
    """
    radius = HALF * f4[WIDTH, i] + INFLATION
    for j in range(a0, a1):
        length, width, c, s = f4[LENGTH, j], f4[WIDTH, j], f4[COS, j], f4[SIN, j]
        there = matters(i, j, f4, u1, level_gate)
        for k in range(ticks + 1):
            block[k, j - a0] = FAR
            if not there:
                continue
            way = f4[SPEED, j] * tick_s * F(k)
            x, y = f4[X, j] + way * c, f4[Y, j] + way * s
            p = 0
            while p < count:
                px = path[p, PATH_X] - offset * path[p, PATH_SIN] - x
                py = path[p, PATH_Y] + offset * path[p, PATH_COS] - y
                along = max(abs(px * c + py * s) - HALF * length, ZERO)
                aside = max(abs(py * c - px * s) - HALF * width, ZERO)
                free = np.sqrt(along * along + aside * aside) - radius
                if free <= ZERO:
                    block[k, j - a0] = F(p) * PATH_STEP
                    break
                p += 1 + int(free / FARTHEST_POINTS)  # Nothing in between can touch.


@kernel
def contact_in_tick(
    i: int,
    j: int,
    f4: F32,
    start_s: np.float32,
    tick_s: np.float32,
    x: np.float32,
    y: np.float32,
    c: np.float32,
    s: np.float32,
    dx: np.float32,
    dy: np.float32,
) -> np.float32:
    """Time [s] of the first contact with body j while the own box goes by (dx, dy) from (x, y), heading (c, s); FAR
    where there is none. `start_s` [s]: when the tick begins."""
    vx, vy = f4[SPEED, j] * f4[COS, j], f4[SPEED, j] * f4[SIN, j]
    rx, ry = f4[X, j] + vx * start_s - x, f4[Y, j] + vy * start_s - y
    qx, qy = vx * tick_s - dx, vy * tick_s - dy
    reach = HALF * (f4[LENGTH, i] + f4[WIDTH, i] + f4[LENGTH, j] + f4[WIDTH, j]) + abs(qx) + abs(qy)
    if rx * rx + ry * ry > reach * reach:
        return FAR
    low, high = sliding_boxes(
        np.float64(rx),
        np.float64(ry),
        np.float64(qx),
        np.float64(qy),
        np.float64(c),
        np.float64(s),
        0.5 * np.float64(f4[LENGTH, i]),
        0.5 * np.float64(f4[WIDTH, i]),
        np.float64(f4[COS, j]),
        np.float64(f4[SIN, j]),
        0.5 * np.float64(f4[LENGTH, j]),
        0.5 * np.float64(f4[WIDTH, j]),
        0.0,
        1.0,
    )
    return start_s + F(low) * tick_s if low <= high else FAR


@kernel
def roll_out(
    i: int,
    a0: int,
    a1: int,
    f4: F32,
    u1: U8,
    level_gate: np.float32,
    path: F32,
    count: int,
    offset: np.float32,
    desired: np.float32,
    line: np.float32,
    ticks: int,
    tick_s: np.float32,
    block: F32,
    way: F32,
) -> tuple[np.float32, np.float32]:
    """Drive one proposal: (first acceleration [m/s^2], time of its first contact [s], FAR without one).

    line  [m]                     gap from the front to a stop line that asks to stop
    way   (TICKS + 1,)  f32 [m]   written: how far along the path it is at each tick
    """
    half, radius = HALF * f4[LENGTH, i], HALF * f4[WIDTH, i] + INFLATION
    speed, s = max(f4[SPEED, i], ZERO), ZERO
    x, y, c, n = f4[X, i], f4[Y, i], f4[COS, i], f4[SIN, i]
    first, contact = ZERO, FAR
    way[0] = ZERO
    for k in range(ticks):
        gap, leader_speed = FAR, ZERO
        for j in range(a0, a1):
            at = block[k, j - a0]
            # A body beside or behind the own centre is passed; it is no leader.
            if at > s and at + radius - s - half < gap:
                gap = at + radius - s - half
                _, _, tc, tn = beside_path(path, at, count, offset)
                leader_speed = max(f4[SPEED, j] * (f4[COS, j] * tc + f4[SIN, j] * tn), ZERO)
        accel = planned_acceleration(speed, desired, gap, leader_speed)
        if line < FAR:
            accel = min(accel, planned_acceleration(speed, desired, line - s, ZERO))
        after = max(speed + accel * tick_s, ZERO)
        if k == 0:
            first = (after - speed) / tick_s
        s += HALF * (speed + after) * tick_s
        speed = after
        way[k + 1] = s
        x1, y1, c1, n1 = beside_path(path, s, count, offset)
        for j in range(a0, a1):
            if matters(i, j, f4, u1, level_gate):
                contact = min(contact, contact_in_tick(i, j, f4, tick_s * F(k), tick_s, x, y, c, n, x1 - x, y1 - y))
        if contact < FAR:  # What would follow is nobody's plan.
            for later in range(k + 1, ticks):
                way[later + 1] = s
            break
        x, y, c, n = x1, y1, c1, n1
    return first, contact


@kernel
def leaves_road(
    i: int,
    f4: F32,
    edges: EdgeMap,
    lanes: LaneMap,
    use_area: bool,
    level_gate: np.float32,
    path: F32,
    count: int,
    offset: np.float32,
    first: np.float32,
    last: np.float32,
) -> bool:
    """Whether the own box, on a shifted line anywhere from `first` to `last` metres along the path, touches an edge, or
    has a corner off the lanes (`use_area`), or is off the map."""
    half_length, half_width = 0.5 * np.float64(f4[LENGTH, i]), 0.5 * np.float64(f4[WIDTH, i])
    z, gate = np.float64(f4[Z, i]), np.float64(level_gate)
    step = max(HALF * f4[LENGTH, i], PATH_STEP)
    pieces = int(np.ceil((last - first) / step))
    for k in range(pieces + 1):
        x, y, c, s = beside_path(path, first + (last - first) * F(k) / F(max(pieces, 1)), count, offset)
        if use_area:
            for corner in range(4):
                along = half_length if corner < 2 else -half_length
                aside = half_width if corner % 2 == 0 else -half_width
                if ribbon_gap(lanes, x + along * c - aside * s, y + along * s + aside * c, z, gate) > RIBBON_M:
                    return True
            continue
        cell = cell_of(edges.grid, np.float64(x), np.float64(y))
        if cell < 0:
            return True
        cx, sx = np.float64(c), np.float64(s)
        if touches_edge(
            edges, cell, np.float64(x), np.float64(y), z, 0.0, 0.0, cx, sx, half_length, half_width, 0.0, gate
        ):
            return True
    return False


@kernel
def plan(
    i: int,
    a0: int,
    a1: int,
    f4: F32,
    i4: I32,
    u1: U8,
    edges: EdgeMap,
    lanes: LaneMap,
    use_area: bool,
    route: I32,
    signal: F32,
    signal_kind: U8,
    signal_state: U8,
    signal_offset: I32,
    signal_lane: I32,
    parameters: F32,
    path: F32,
    path_lane: I32,
    block: F32,
    ways: F32,
    scores: F32,
) -> tuple[np.float32, np.float32, int]:
    """Command (acceleration [m/s^2], steering angle [rad]) of one agent on the state before the step, and the proposal
    it comes from: SPEEDS times the place in OFFSETS plus the place in FRACTIONS; -1 = none stays on the road, brake.

    block   (TICKS + 1, >= agents)      f32   scratch
    ways    (PROPOSALS, TICKS + 1)      f32   scratch: how far each proposal has come at each tick [m]
    scores  (3, PROPOSALS)              f32   scratch: SCORE, ACCEL, LOOKED_AT
    others                                    as in `idm.drive`
    """
    speed, gate = f4[SPEED, i], parameters[LEVEL_GATE]
    rest = -speed / parameters[P_DT]
    lane = i4[LANE, i]
    if lane < 0:
        return max(NO_LANE_BRAKE, rest), ZERO, -1
    horizon, tick_s = parameters[PDM_HORIZON], parameters[PDM_STEP]
    ticks = min(max(int(horizon / tick_s + HALF), 1), TICKS)
    limit = lanes.speed_limit[lane]
    desired = limit if limit > ZERO else parameters[IDM_DESIRED_SPEED]
    # As far as it can come within the horizon, and what it then keeps its distance from.
    look = HALF * f4[LENGTH, i] + (horizon + TWO) * max(speed, desired) + F(20.0)
    count = sample_path(
        lane,
        f4[LANE_ARC, i],
        look,
        route,
        lanes.segment,
        lanes.lane_first,
        lanes.exit_offset,
        lanes.exit_lane,
        path,
        path_lane,
    )
    if count < 2:
        return max(-DECELERATION, rest), ZERO, -1
    bend = bend_speed(path, count, desired, HALF * DECELERATION)
    line = stop_line_gap(
        i, f4, i4, path, path_lane, count, signal, signal_kind, signal_state, signal_offset, signal_lane, gate
    )
    danger = max(LEAST_DANGER_S, speed / DANGER_M_S2 + HALF)
    for o in range(len(OFFSETS)):
        block_line(i, a0, a1, f4, u1, gate, path, count, OFFSETS[o], ticks, tick_s, block)
        for v in range(SPEEDS):
            k = o * SPEEDS + v
            target = max(min(FRACTIONS[v] * desired, bend), SLOWEST)
            accel, contact = roll_out(
                i, a0, a1, f4, u1, gate, path, count, OFFSETS[o], target, line, ticks, tick_s, block, ways[k]
            )
            score = PROGRESS * FRACTIONS[v] + SAFETY * min(contact, horizon) / horizon
            if o == 0:
                score += CENTRED
            if contact < danger:
                score -= DANGER
            scores[SCORE, k], scores[ACCEL, k], scores[LOOKED_AT, k] = score, accel, ZERO
    accel, chosen, offset = max(-DECELERATION, rest), -1, ZERO
    for _ in range(PROPOSALS):
        best = -1
        for k in range(PROPOSALS):
            if scores[LOOKED_AT, k] == ZERO and (best < 0 or scores[SCORE, k] > scores[SCORE, best]):
                best = k
        scores[LOOKED_AT, best] = ONE
        aside = OFFSETS[best // SPEEDS]
        if not leaves_road(i, f4, edges, lanes, use_area, gate, path, count, aside, ways[best, 1], ways[best, ticks]):
            accel, chosen, offset = max(scores[ACCEL, best], rest), best, aside
            break
    tx, ty, _, _ = beside_path(path, min(max(F(0.6) * speed, F(3.0)), F(15.0)), count, offset)
    steer = pursuit_angle(f4[X, i], f4[Y, i], f4[COS, i], f4[SIN, i], f4[LENGTH, i], tx, ty)
    return accel, steer, chosen

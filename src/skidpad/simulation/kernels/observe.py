"""What an agent sees: rows of `compact/1`, written straight into the caller's buffer (S85, S89).

Positions are relative to the agent and turned into its frame, x forward, y left. Every value is clipped to its
declared range; empty rows are zero. The features, their divisors and their order stand in `layout.py`: a change here is
a new layout version there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index_kernels import road_rows
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.slots import (
    f32_1,
    f32_2,
    f32_3,
    f64_1,
    i32_1,
    i32_2,
    i64_2,
    row_map,
    u8_1,
    u8_2,
    u64_1,
)
from skidpad.simulation.layout import COMPACT
from skidpad.simulation.random import Purpose, uniform
from skidpad.simulation.slots import (
    B_F4,
    B_GOAL_COUNT,
    B_GOALS,
    B_I4,
    B_OBS,
    B_ORDER,
    B_OVERFLOW,
    B_ROW_FLAT,
    B_SEEDS,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    B_WORLD_ROWS,
    S_EXIT_LANE,
    S_EXIT_OFFSET,
    S_PARAMETERS,
    S_SIGNAL,
    S_SIGNAL_KIND,
    S_SIGNAL_LANE,
    S_SIGNAL_OFFSET,
    S_SIGNAL_STATE,
    T_IDS,
    T_NEAR,
    T_NEAR_SQUARE,
    T_SQUARES,
)
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    BLIND_STEPS,
    BODY,
    COS,
    DONE,
    EDGE_DROPOUT,
    EPISODE,
    GOAL_NEXT,
    GOAL_SLOT,
    KEY,
    LANE,
    LANE_COS,
    LANE_DROPOUT,
    LANE_LIMIT,
    LANE_OFFSET,
    LANE_SIN,
    LENGTH,
    LEVEL_GATE,
    P_DT,
    SIGNAL_COS,
    SIGNAL_NX,
    SIGNAL_NY,
    SIGNAL_SIN,
    SIGNAL_X,
    SIGNAL_Y,
    SIGNAL_Z,
    SILENT,
    SIN,
    SLOT,
    SPEED,
    STEERING,
    STEP,
    STOPPED_S,
    TYPE,
    WIDTH,
    YAW_RATE,
    X,
    Y,
    Z,
)

F = np.float32
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]

ZERO, HALF, ONE = F(0.0), F(0.5), F(1.0)
VEHICLE = 1  # track type, as in the scene
LIGHT, STOP_KIND = 1, 2  # signal kinds
RED, YELLOW, GREEN = 1, 2, 3  # signal states
DROPOUT = int(Purpose.DROPOUT)
LANE_SIDE = F(1.0)  # of road rows; edges have -1
ROAD_SIDE, ROAD_Z = 5, 6  # columns of a road row of this layout


def _scales(block: str) -> tuple[np.float32, ...]:
    # Factors, not divisors: a division by no power of two is not turned into a product, and costs several.
    return tuple(F(1.0 / feature.divisor) for feature in COMPACT.block(block).features)


# Bound as constants, so that the table is the only place where a number of the layout stands.
(
    SPEED_SCALE,
    RATIO_SCALE,
    STEER_SCALE,
    ALONG_SCALE,
    ASIDE_SCALE,
    YAW_SCALE,
    LENGTH_SCALE,
    WIDTH_SCALE,
    OFFSET_SCALE,
    _,
    _,
    LIMIT_SCALE,
    _,
    STOPPED_SCALE,
    _,
    DT_SCALE,
) = _scales("ego")
GOAL_SCALE, _, GOAL_Z_SCALE, _ = _scales("goal")
PARTNER_SCALE, _, _, _, PARTNER_SPEED_SCALE, PARTNER_LENGTH_SCALE, PARTNER_WIDTH_SCALE, _ = _scales("partners")
ROAD_SCALE = _scales("road")[0]
SIGNAL_SCALE = _scales("signal")[0]
GOAL_AT, PARTNERS_AT = COMPACT.span("goal").start, COMPACT.span("partners").start
ROAD_AT, SIGNAL_AT, SIZE = COMPACT.span("road").start, COMPACT.span("signal").start, COMPACT.size
PARTNERS, PARTNER_WIDTH = COMPACT.block("partners").rows, len(COMPACT.block("partners").features)
ROAD_WIDTH = len(COMPACT.block("road").features)
PARTNER_REACH = F(COMPACT.block("partners").reach)
SIGNAL_REACH_M = F(COMPACT.block("signal").reach)
PASSED = F(-5.0)  # m: a stop line further behind is no longer the next one


@kernel
def signed(value: np.float32) -> np.float32:
    """Clipped to [-1, 1]."""
    return min(max(value, F(-1.0)), F(1.0))


@kernel
def share(value: np.float32) -> np.float32:
    """Clipped to [0, 1]."""
    return min(max(value, F(0.0)), F(1.0))


@kernel
def observe_self(a: int, f4: F32, i4: I32, goals: F32, goal_count: I32, dt: np.float32, out: F32) -> None:
    """Write the ego and goal blocks of agent a."""
    on_lane = i4[LANE, a] >= 0
    limit = f4[LANE_LIMIT, a]
    known = on_lane and limit > ZERO
    out[0] = signed(f4[SPEED, a] * SPEED_SCALE)
    out[1] = signed(f4[SPEED, a] / limit * RATIO_SCALE) if known else ZERO
    out[2] = signed(f4[STEERING, a] * STEER_SCALE)
    out[3] = signed(f4[ACCEL_LONG, a] * ALONG_SCALE)
    out[4] = signed(f4[ACCEL_LAT, a] * ASIDE_SCALE)
    out[5] = signed(f4[YAW_RATE, a] * YAW_SCALE)
    out[6] = share(f4[LENGTH, a] * LENGTH_SCALE)
    out[7] = share(f4[WIDTH, a] * WIDTH_SCALE)
    out[8] = signed(f4[LANE_OFFSET, a] * OFFSET_SCALE) if on_lane else ZERO
    out[9] = signed(f4[LANE_COS, a]) if on_lane else ZERO
    out[10] = signed(f4[LANE_SIN, a]) if on_lane else ZERO
    out[11] = share(limit * LIMIT_SCALE) if known else ZERO
    out[12] = ONE if known else ZERO
    out[13] = share(f4[STOPPED_S, a] * STOPPED_SCALE)
    out[14] = ONE if on_lane else ZERO
    out[15] = share(dt * DT_SCALE)
    slot, index = i4[GOAL_SLOT, a], i4[GOAL_NEXT, a]
    for k in range(4):
        out[GOAL_AT + k] = ZERO
    if slot >= 0 and index < goal_count[slot]:
        dx, dy = goals[slot, index, 0] - f4[X, a], goals[slot, index, 1] - f4[Y, a]
        scale = min(GOAL_SCALE, ONE / np.sqrt(dx * dx + dy * dy))  # beyond the divisor a direction of length 1
        out[GOAL_AT] = signed((dx * f4[COS, a] + dy * f4[SIN, a]) * scale)
        out[GOAL_AT + 1] = signed((dy * f4[COS, a] - dx * f4[SIN, a]) * scale)
        out[GOAL_AT + 2] = signed((goals[slot, index, 2] - f4[Z, a]) * GOAL_Z_SCALE)
        out[GOAL_AT + 3] = ONE if index + 1 == goal_count[slot] else ZERO


@kernel
def observe_partners(
    a: int, a0: int, a1: int, f4: F32, i4: I32, u1: U8, gate: np.float32, nearest: I32, square: F32, out: F32
) -> int:
    """Write the partners of agent a, nearest first by distance in space, ties by key; returns how many were in range.

    nearest (8,) i32, square (8,) f32   scratch
    """
    x, y, z, cosine, sine = f4[X, a], f4[Y, a], f4[Z, a], f4[COS, a], f4[SIN, a]
    found = 0
    for b in range(a0, a1):
        if b == a or u1[BODY, b] == 0:
            continue
        dx, dy, dz = f4[X, b] - x, f4[Y, b] - y, f4[Z, b] - z
        s = dx * dx + dy * dy
        if s > PARTNER_REACH * PARTNER_REACH or abs(dz) > gate:
            continue
        s += dz * dz
        at = min(found, PARTNERS)
        found += 1
        while at > 0 and (s < square[at - 1] or (s == square[at - 1] and i4[KEY, b] < i4[KEY, nearest[at - 1]])):
            if at < PARTNERS:
                nearest[at], square[at] = nearest[at - 1], square[at - 1]
            at -= 1
        if at < PARTNERS:
            nearest[at], square[at] = b, s
    kept = min(found, PARTNERS)
    for k in range(kept):
        b = nearest[k]
        dx, dy = f4[X, b] - x, f4[Y, b] - y
        o = PARTNERS_AT + k * PARTNER_WIDTH
        out[o] = signed((dx * cosine + dy * sine) * PARTNER_SCALE)
        out[o + 1] = signed((dy * cosine - dx * sine) * PARTNER_SCALE)
        out[o + 2] = signed(f4[COS, b] * cosine + f4[SIN, b] * sine)
        out[o + 3] = signed(f4[SIN, b] * cosine - f4[COS, b] * sine)
        out[o + 4] = signed(f4[SPEED, b] * PARTNER_SPEED_SCALE)
        out[o + 5] = share(f4[LENGTH, b] * PARTNER_LENGTH_SCALE)
        out[o + 6] = share(f4[WIDTH, b] * PARTNER_WIDTH_SCALE)
        out[o + 7] = ONE if u1[TYPE, b] == VEHICLE else F(-1.0)
    for o in range(PARTNERS_AT + kept * PARTNER_WIDTH, ROAD_AT):
        out[o] = ZERO
    return found


@kernel
def drop_rows(
    row: F32,
    ids: I32,
    count: int,
    lane_share: np.float32,
    edge_share: np.float32,
    seed: int,
    episode: int,
    key: int,
    step: int,
) -> int:
    """Keep int(n (1 - share)) of the n lane rows and of the n edge rows, a random subset of each in their order (S92);
    returns how many ids remain. Selection sampling (Knuth, TAOCP 2, algorithm 3.4.2 S): one draw a row."""
    lanes = 0
    for k in range(count):
        lanes += row[ids[k], ROAD_SIDE] == LANE_SIDE
    left_lanes, left_edges = lanes, count - lanes
    want_lanes = int(F(left_lanes) * (ONE - lane_share))
    want_edges = int(F(left_edges) * (ONE - edge_share))
    kept = 0
    for k in range(count):
        u = uniform(seed, episode, key, step, DROPOUT, k)
        if row[ids[k], ROAD_SIDE] == LANE_SIDE:
            keep = u * F(left_lanes) < F(want_lanes)
            left_lanes -= 1
            want_lanes -= keep
        else:
            keep = u * F(left_edges) < F(want_edges)
            left_edges -= 1
            want_edges -= keep
        if keep:
            ids[kept] = ids[k]
            kept += 1
    return kept


@kernel
def observe_road(a: int, f4: F32, row: F32, ids: I32, count: int, gate: np.float32, out: F32) -> None:
    """Write the road rows `ids` of agent a, those of its level."""
    cosine, sine, z = f4[COS, a], f4[SIN, a], f4[Z, a]
    # Positions are subtracted before they are scaled: a factor that is no power of two would round both of them.
    x, y = f4[X, a], f4[Y, a]
    o = ROAD_AT
    for k in range(count):
        r = ids[k]
        if abs(row[r, ROAD_Z] - z) > gate:
            continue
        dx, dy = (row[r, 0] - x) * ROAD_SCALE, (row[r, 1] - y) * ROAD_SCALE
        c, s = row[r, 3], row[r, 4]
        out[o] = signed(dx * cosine + dy * sine)
        out[o + 1] = signed(dy * cosine - dx * sine)
        out[o + 2] = share(row[r, 2])
        out[o + 3] = signed(c * cosine + s * sine)
        out[o + 4] = signed(s * cosine - c * sine)
        out[o + 5] = row[r, ROAD_SIDE]
        o += ROAD_WIDTH
    while o < SIGNAL_AT:
        out[o] = ZERO
        o += 1


@kernel
def observe_signal(
    a: int,
    f4: F32,
    i4: I32,
    signal: F32,
    signal_kind: U8,
    signal_state: U8,
    signal_offset: I32,
    signal_lane: I32,
    exit_offset: I32,
    exit_lane: I32,
    gate: np.float32,
    out: F32,
) -> None:
    """Write the next stop line that rules agent a's lane or one of its exits: the nearest not yet passed, ties by
    number."""
    for k in range(SIGNAL_AT, SIZE):
        out[k] = ZERO
    lane = i4[LANE, a]
    if lane < 0:
        return
    cosine, sine = f4[COS, a], f4[SIN, a]
    best, least = -1, SIGNAL_REACH_M * SIGNAL_REACH_M
    for s in range(signal.shape[0]):
        dx, dy = signal[s, SIGNAL_X] - f4[X, a], signal[s, SIGNAL_Y] - f4[Y, a]
        square = dx * dx + dy * dy
        if square >= least or abs(signal[s, SIGNAL_Z] - f4[Z, a]) > gate:
            continue
        if dx * signal[s, SIGNAL_NX] + dy * signal[s, SIGNAL_NY] < PASSED:
            continue
        rules = False
        for c in range(signal_offset[s], signal_offset[s + 1]):
            if signal_lane[c] == lane:
                rules = True
            for e in range(exit_offset[lane], exit_offset[lane + 1]):
                if exit_lane[e] == signal_lane[c]:
                    rules = True
        if rules:
            best, least = s, square
    if best < 0:
        return
    dx, dy = signal[best, SIGNAL_X] - f4[X, a], signal[best, SIGNAL_Y] - f4[Y, a]
    out[SIGNAL_AT] = signed((dx * cosine + dy * sine) * SIGNAL_SCALE)
    out[SIGNAL_AT + 1] = signed((dy * cosine - dx * sine) * SIGNAL_SCALE)
    out[SIGNAL_AT + 2] = signed(signal[best, SIGNAL_COS] * cosine + signal[best, SIGNAL_SIN] * sine)
    out[SIGNAL_AT + 3] = signed(signal[best, SIGNAL_SIN] * cosine - signal[best, SIGNAL_COS] * sine)
    if signal_kind[best] == LIGHT:
        state = signal_state[best]
        out[SIGNAL_AT + 4] = ONE if state == RED else ZERO
        out[SIGNAL_AT + 5] = ONE if state == YELLOW else ZERO
        out[SIGNAL_AT + 6] = ONE if state == GREEN else ZERO
    else:
        out[SIGNAL_AT + 7] = ONE if signal_kind[best] == STOP_KIND else HALF


@kernel
def observe_compact(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Write the observation rows of the worlds order[first:end], those of the step in which they ended included.
    Arguments as in `advance.advance`."""
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    world_agents, world_rows = i32_1(batch, B_WORLD_AGENTS), i32_1(batch, B_WORLD_ROWS)
    row_flat = i32_1(batch, B_ROW_FLAT)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    goals, goal_count = f32_3(batch, B_GOALS), i32_1(batch, B_GOAL_COUNT)
    obs, overflow = f32_2(batch, B_OBS), i32_2(batch, B_OVERFLOW)
    ids, squares = i32_1(scratch, T_IDS), f64_1(scratch, T_SQUARES)
    near, near_square = i32_1(scratch, T_NEAR), f32_1(scratch, T_NEAR_SQUARE)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w] == SILENT:
            continue
        slot = slots[world[SLOT, w]]
        parameters = f32_1(slot, S_PARAMETERS)
        gate = parameters[LEVEL_GATE]
        drops = parameters[LANE_DROPOUT] > ZERO or parameters[EDGE_DROPOUT] > ZERO
        rows = row_map(slot, 0)
        row = rows.row
        exit_offset, exit_lane = i32_1(slot, S_EXIT_OFFSET), i32_1(slot, S_EXIT_LANE)
        signal, signal_kind = f32_2(slot, S_SIGNAL), u8_1(slot, S_SIGNAL_KIND)
        signal_state = u8_2(slot, S_SIGNAL_STATE)
        signal_offset, signal_lane = i32_1(slot, S_SIGNAL_OFFSET), i32_1(slot, S_SIGNAL_LANE)
        states = signal_state[world[STEP, w]]
        for r in range(world_rows[w], world_rows[w + 1]):
            a = row_flat[r]
            out = obs[r]
            if u1[BODY, a] == 0:
                for k in range(SIZE):
                    out[k] = ZERO
                overflow[r, 0], overflow[r, 1] = 0, 0
                continue
            observe_self(a, f4, i4, goals, goal_count, parameters[P_DT], out)
            if i4[BLIND_STEPS, a] > 0:
                for k in range(PARTNERS_AT, ROAD_AT):
                    out[k] = ZERO
                overflow[r, 0] = 0
            else:
                found = observe_partners(
                    a, world_agents[w], world_agents[w + 1], f4, i4, u1, gate, near, near_square, out
                )
                overflow[r, 0] = max(found - PARTNERS, 0)
            count, total = road_rows(
                rows.mid,
                rows.start,
                rows.numbers,
                rows.slot,
                rows.ids16,
                rows.ids32,
                rows.used,
                rows.total,
                rows.bound,
                rows.middle,
                np.float64(f4[X, a]),
                np.float64(f4[Y, a]),
                np.float64(f4[COS, a]),
                np.float64(f4[SIN, a]),
                ids,
                squares,
            )
            overflow[r, 1] = total - count
            if drops:
                count = drop_rows(
                    row,
                    ids,
                    count,
                    parameters[LANE_DROPOUT],
                    parameters[EDGE_DROPOUT],
                    seeds[w],
                    world[EPISODE, w],
                    i4[KEY, a],
                    world[STEP, w],
                )
            observe_road(a, f4, row, ids, count, gate, out)
            observe_signal(
                a,
                f4,
                i4,
                signal,
                signal_kind,
                states,
                signal_offset,
                signal_lane,
                exit_offset,
                exit_lane,
                gate,
                out,
            )

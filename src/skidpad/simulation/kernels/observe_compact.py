"""Observations of `compact/1`: small rows for training on processors (S89).

The features, their divisors and their order stand in `layout.py`: a change here is a new layout version there.
"""

from __future__ import annotations

import numpy as np

from skidpad.scenes.index import RowMap
from skidpad.scenes.index_kernels import road_rows
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import settle
from skidpad.simulation.kernels.observe_bind import bind_lines, bind_sight
from skidpad.simulation.kernels.observe_partners import hide, rank_partners
from skidpad.simulation.kernels.observe_road import drop_rows, keep_level, write_road
from skidpad.simulation.kernels.observe_rows import (
    ACTIVE,
    F32,
    I32,
    I64,
    LEFT_COLUMNS,
    LEFT_PARTNERS,
    LEFT_ROAD,
    ONE,
    U8,
    ZERO,
    F,
    Sight,
    U,
    clear,
    share,
    signed,
)
from skidpad.simulation.kernels.observe_self import next_goal, observe_ego, observe_goal
from skidpad.simulation.kernels.observe_send import packing_of, send
from skidpad.simulation.kernels.observe_signals import Lines, next_line, observe_next_line
from skidpad.simulation.kernels.observe_turn import turn
from skidpad.simulation.kernels.slots import f32_1, f32_2, f32_3, i32_1, i32_2, i64_2, row_map, u8_2, u64_1
from skidpad.simulation.layout import COMPACT
from skidpad.simulation.slots import (
    B_F4,
    B_GOAL_COUNT,
    B_GOALS,
    B_I4,
    B_ORDER,
    B_OVERFLOW,
    B_ROW_FLAT,
    B_SEEDS,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    B_WORLD_ROWS,
    S_PARAMETERS,
)
from skidpad.simulation.state import (
    BLIND_STEPS,
    COS,
    DONE,
    EDGE_DROPOUT,
    EPISODE,
    GHOST,
    KEY,
    LANE_DROPOUT,
    LENGTH,
    LEVEL_GATE,
    OWN_MARGIN,
    P_DT,
    SILENT,
    SIN,
    SLOT,
    SPEED,
    STATUS,
    STEP,
    TYPE,
    WIDTH,
    X,
    Y,
    Z,
)

VEHICLE = 1  # track type, as in the scene


def _scales(block: str) -> tuple[np.float32, ...]:
    return tuple(F(1.0 / feature.divisor) for feature in COMPACT.block(block).features)


# Bound as constants, so that the table is the only place where a number of the layout stands.
GOAL_SCALE, _, GOAL_Z_SCALE, _ = _scales("goal")
PARTNER_SCALE, _, _, _, SPEED_SCALE, LENGTH_SCALE, WIDTH_SCALE, _ = _scales("partners")
ROAD_SCALE, SIGNAL_SCALE = _scales("road")[0], _scales("signal")[0]
GOAL_AT, PARTNERS_AT = COMPACT.span("goal").start, COMPACT.span("partners").start
ROAD_AT, SIGNAL_AT, SIZE = COMPACT.span("road").start, COMPACT.span("signal").start, COMPACT.size
PARTNERS, ROADS = COMPACT.block("partners").rows, COMPACT.block("road").rows
ROAD_WIDTH = len(COMPACT.block("road").features)
PARTNER_REACH, SIGNAL_REACH_M = F(COMPACT.block("partners").reach), F(COMPACT.block("signal").reach)
Z_COLUMN = 6  # of a road row
LOW, HIGH = F(-1.0), F(1.0)


@kernel
def pack_compact(a0: int, a1: int, f4: F32, u1: U8, packed: F32) -> None:
    """The agents of a world as partner rows: what does not depend on who looks is scaled and clipped once."""
    for b in range(a0, a1):
        row = packed[b - a0]
        row[0], row[1] = f4[X, b], f4[Y, b]
        row[2], row[3] = f4[COS, b], f4[SIN, b]
        row[4] = signed(f4[SPEED, b] * SPEED_SCALE)
        row[5], row[6] = share(f4[LENGTH, b] * LENGTH_SCALE), share(f4[WIDTH, b] * WIDTH_SCALE)
        row[7] = ONE if u1[TYPE, b] == VEHICLE else LOW


@kernel
def observe_compact_world(
    batch: I64,
    packing: int,
    r0: int,
    r1: int,
    a0: int,
    a1: int,
    row_flat: I32,
    step: int,
    episode: int,
    seed: int,
    f4: F32,
    i4: I32,
    u1: U8,
    rows: RowMap,
    goal_points: F32,
    goal_size: I32,
    lines: Lines,
    parameters: F32,
    sight: Sight,
    overflow: I32,
) -> None:
    """Write the observation rows r0 to r1 of one world, whose agents are a0 to a1.

    packing   of `observe_send`
    overflow  (N, 4)    i32   written, columns of `observe_rows`: what was in range and found no slot
    others    as in `advance`
    """
    gate, margin, dt = parameters[LEVEL_GATE], parameters[OWN_MARGIN], parameters[P_DT]
    lane_share, edge_share = parameters[LANE_DROPOUT], parameters[EDGE_DROPOUT]
    row, lane = rows.row, rows.lane
    mid, start, numbers, list_slot = rows.mid, rows.start, rows.numbers, rows.slot
    ids16, ids32, used, total = rows.ids16, rows.ids32, rows.used, rows.total
    lowest, highest = rows.lowest, rows.highest
    bound, middle = rows.bound, rows.middle
    ids, squares, near, value, square = sight.ids, sight.squares, sight.near, sight.value, sight.square
    hidden, packed, order, out = sight.hidden, sight.packed, sight.order, sight.lines[0]
    line, kinds, states, offset, controlled = lines.line, lines.kind, lines.state, lines.offset, lines.lane
    exit_offset, exit_lane = lines.exit_offset, lines.exit_lane
    hide(a0, a1, u1, hidden)
    pack_compact(a0, a1, f4, u1, packed)
    for r in range(r0, r1):
        a = row_flat[r]
        for k in range(LEFT_COLUMNS):
            overflow[r, k] = 0
        if u1[STATUS, a] != ACTIVE:
            clear(out, 0, SIZE)
            send(batch, packing, out, r)
            continue
        observe_ego(a, f4, i4, dt, margin, out, 0)
        clear(out, GOAL_AT, PARTNERS_AT)
        slot, index = next_goal(a, i4, goal_size)
        if slot >= 0:
            observe_goal(a, f4, goal_points, slot, index, GOAL_SCALE, GOAL_Z_SCALE, out, GOAL_AT)
            out[GOAL_AT + 2] = signed(out[GOAL_AT + 2])
            out[GOAL_AT + 3] = ONE if index + 1 == goal_size[slot] else ZERO
        kept = 0
        if i4[BLIND_STEPS, a] == 0 and u1[GHOST, a] == 0:
            found = rank_partners(a, a0, a1, f4, i4, PARTNER_REACH, gate, hidden, square, near, value, order)
            kept = min(found, PARTNERS)
            overflow[r, LEFT_PARTNERS] = found - kept
        x, y, z, cosine, sine = f4[X, a], f4[Y, a], f4[Z, a], f4[COS, a], f4[SIN, a]
        for k in range(kept):
            o = U(PARTNERS_AT + 8 * k)
            s = U(order[k])
            turn(2, packed, s, x, y, ZERO, ZERO, ZERO, PARTNER_SCALE, ONE, cosine, sine, LOW, HIGH, out, o)
        clear(out, PARTNERS_AT + 8 * kept, ROAD_AT)
        count, listed, level = road_rows(
            mid, start, numbers, list_slot, ids16, ids32, used, total,
            lowest, highest, bound, middle,
            np.float64(x), np.float64(y), z, gate, np.float64(cosine), np.float64(sine), ids, squares,
        )  # fmt: skip
        overflow[r, LEFT_ROAD] = listed - count
        if lane_share > ZERO or edge_share > ZERO:
            count = drop_rows(lane, ids, count, lane_share, edge_share, seed, episode, i4[KEY, a], step, 0)
        if not level:
            count = keep_level(Z_COLUMN, row, ids, count, z, gate)
        write_road(3, row, ids, count, a, f4, ZERO, ROAD_SCALE, ONE, LOW, HIGH, out, ROAD_AT, ROADS, ROAD_WIDTH)
        best = next_line(a, f4, i4, line, offset, controlled, exit_offset, exit_lane, gate, SIGNAL_REACH_M)
        observe_next_line(a, f4, line, kinds, states, best, SIGNAL_SCALE, out, SIGNAL_AT)
        send(batch, packing, out, r)


@kernel
def observe_compact(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Write the observation rows of the worlds order[first:end], those of the step in which they ended included.
    Arguments as in `advance.advance`."""
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    world_agents, world_rows = i32_1(batch, B_WORLD_AGENTS), i32_1(batch, B_WORLD_ROWS)
    row_flat = i32_1(batch, B_ROW_FLAT)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    goal_points, goal_size = f32_3(batch, B_GOALS), i32_1(batch, B_GOAL_COUNT)
    overflow = i32_2(batch, B_OVERFLOW)
    sight = bind_sight(scratch)
    packing = packing_of(batch)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w] == SILENT:
            continue
        slot = slots[world[SLOT, w]]
        observe_compact_world(
            batch,
            packing,
            world_rows[w],
            world_rows[w + 1],
            world_agents[w],
            world_agents[w + 1],
            row_flat,
            world[STEP, w],
            world[EPISODE, w],
            seeds[w],
            f4,
            i4,
            u1,
            row_map(slot, 0),
            goal_points,
            goal_size,
            bind_lines(batch, slot, w, world[STEP, w]),
            f32_1(slot, S_PARAMETERS),
            sight,
            overflow,
        )
    settle()

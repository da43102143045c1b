"""Observations of the wide family: `wide/1`, its smaller forms, and `deferred/1` (S86, S94).

One kernel for all of them: partners, rows and the jerk model's numbers are where `Layout.spans` says. Nothing is
clipped, as in the rows of the peer.
"""

from __future__ import annotations

import numpy as np

from skidpad.scenes.events import Event
from skidpad.scenes.index import LIST_INVERSE, LIST_X, LIST_Y, RowMap
from skidpad.scenes.index_kernels import road_rows, sector_of
from skidpad.simulation.kernels.ahead import fetch_goal
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import settle
from skidpad.simulation.kernels.observe_bind import bind_sight
from skidpad.simulation.kernels.observe_partners import hide, rank_partners
from skidpad.simulation.kernels.observe_road import drop_rows, fetch_list, find_list, keep_level, write_road
from skidpad.simulation.kernels.observe_rows import (
    ACTIVE,
    F32,
    F64,
    I32,
    I64,
    INFINITE,
    LEFT_COLUMNS,
    LEFT_PARTNERS,
    LEFT_ROAD,
    LINES,
    ONE,
    U8,
    U32,
    ZERO,
    F,
    Sight,
    U,
    clear,
)
from skidpad.simulation.kernels.observe_self import next_goal
from skidpad.simulation.kernels.observe_send import packing_of, send, sevens_fit, stream_head, stream_road
from skidpad.simulation.kernels.observe_turn import turn
from skidpad.simulation.kernels.slots import f32_1, f32_2, f32_3, i32_1, i32_2, i64_2, row_map, u8_2, u32_1, u64_1
from skidpad.simulation.layout import LAYOUTS, layout_with
from skidpad.simulation.layout_table import EGO, FEATURES, PARTNERS, REFERENCE, ROAD, ROWS, START
from skidpad.simulation.slots import (
    B_EVENTS,
    B_F4,
    B_GOAL_COUNT,
    B_GOALS,
    B_I4,
    B_OBS,
    B_ORDER,
    B_OVERFLOW,
    B_ROW_FLAT,
    B_SEEDS,
    B_SPANS,
    B_U1,
    B_WORLD,
    B_WORLD_AGENTS,
    B_WORLD_ROWS,
    S_PARAMETERS,
)
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
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
    SILENT,
    SIN,
    SLOT,
    SPEED,
    STATUS,
    STEERING,
    STEP,
    TOUCHING,
    WIDTH,
    X,
    Y,
    Z,
)

WIDE = layout_with("wide/1", jerk=True)
GOAL_SCALE, _, SPEED_SCALE, WIDTH_SCALE, LENGTH_SCALE, _, STEER_SCALE, DRIVE_SCALE, ASIDE_SCALE, _ = (
    F(1.0 / feature.divisor) for feature in WIDE.block("ego").features
)
BRAKE_SCALE = F(1.0 / 15.0)
PLACE_SCALE = F(1.0 / WIDE.block("road").features[0].divisor)
Z_SCALE = F(1.0 / LAYOUTS["wide_20/1"].block("road").features[2].divisor)
PARTNER_REACH = F(WIDE.block("partners").reach)
RAISED = 8  # features of a row with a height
OFF_ROAD_NOW = np.uint32(Event.OFFROAD)
LOW, HIGH = F(-np.inf), INFINITE
WRITTEN, LIST, SECTOR = range(3)  # columns of `Sight.noted`: how far a line is written, and where its road is listed


@kernel
def pack_wide(a0: int, a1: int, f4: F32, raised: bool, packed: F32) -> None:
    """The agents of a world as partner rows."""
    for b in range(a0, a1):
        row = packed[b - a0]
        row[0], row[1] = f4[X, b], f4[Y, b]
        o = 2
        if raised:
            row[2] = f4[Z, b]
            o = 3
        row[o], row[o + 1] = f4[WIDTH, b] * WIDTH_SCALE, f4[LENGTH, b] * LENGTH_SCALE
        row[o + 2], row[o + 3] = f4[COS, b], f4[SIN, b]
        row[o + 4] = f4[SPEED, b] * SPEED_SCALE
        if not raised:
            row[7] = ZERO


@kernel
def observe_wide_ego(
    a: int,
    f4: F32,
    i4: I32,
    u1: U8,
    events: U32,
    goal_points: F32,
    goal_size: I32,
    margin: np.float32,
    raised: bool,
    jerk: bool,
    out: F32,
) -> None:
    """Write the 7 to 11 numbers of the ego block of agent a."""
    slot, index = next_goal(a, i4, goal_size)
    cosine, sine = f4[COS, a], f4[SIN, a]
    dx, dy, dz = ZERO, ZERO, ZERO
    if slot >= 0:
        dx, dy = goal_points[slot, index, 0] - f4[X, a], goal_points[slot, index, 1] - f4[Y, a]
        dz = goal_points[slot, index, 2] - f4[Z, a]
    out[0] = (dx * cosine + dy * sine) * GOAL_SCALE
    out[1] = (dy * cosine - dx * sine) * GOAL_SCALE
    o = 2
    if raised:
        out[2] = dz * Z_SCALE
        o = 3
    out[o] = f4[SPEED, a] * SPEED_SCALE
    out[o + 1] = (f4[WIDTH, a] + F(2.0) * margin) * WIDTH_SCALE
    out[o + 2] = (f4[LENGTH, a] + F(2.0) * margin) * LENGTH_SCALE
    out[o + 3] = ONE if u1[TOUCHING, a] != 0 or events[a] & OFF_ROAD_NOW else ZERO
    o += 4
    respawned = ONE if u1[GHOST, a] != 0 else ZERO
    if raised:
        out[o] = respawned
        o += 1
    if jerk:
        along = f4[ACCEL_LONG, a]
        out[o] = f4[STEERING, a] * STEER_SCALE
        out[o + 1] = along * (BRAKE_SCALE if along < ZERO else DRIVE_SCALE)
        out[o + 2] = f4[ACCEL_LAT, a] * ASIDE_SCALE
        o += 3
    if not raised:
        out[o] = respawned


@kernel
def refer(numbers: F64, bound: F64, number: int, a: int, f4: F32, out: F32, o: int) -> None:
    """Write where agent a's road rows can be found: the map, the list cell and sector, and the pose in the cell."""
    column = np.floor((np.float64(f4[X, a]) - numbers[LIST_X]) * numbers[LIST_INVERSE])
    row = np.floor((np.float64(f4[Y, a]) - numbers[LIST_Y]) * numbers[LIST_INVERSE])
    side = 1.0 / numbers[LIST_INVERSE]
    out[o], out[o + 1], out[o + 2] = F(number), F(column), F(row)
    out[o + 3] = F(sector_of(bound, np.float64(f4[COS, a]), np.float64(f4[SIN, a])))
    out[o + 4] = F(np.float64(f4[X, a]) - (numbers[LIST_X] + (column + 0.5) * side))
    out[o + 5] = F(np.float64(f4[Y, a]) - (numbers[LIST_Y] + (row + 0.5) * side))
    out[o + 6], out[o + 7], out[o + 8] = f4[Z, a], f4[COS, a], f4[SIN, a]


@kernel
def observe_wide_world(
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
    events: U32,
    rows: RowMap,
    number: int,
    goal_points: F32,
    goal_size: I32,
    parameters: F32,
    spans: I32,
    sight: Sight,
    overflow: I32,
) -> None:
    """Write the observation rows r0 to r1 of one world, whose agents are a0 to a1.

    number    slot number of the map, for `deferred/1`
    spans     (9, 3)  i32   of the layout
    packing   of `observe_send`
    overflow  (N, 4)  i32   written, columns of `observe_rows`: what was in range and found no slot
    others    as in `advance`
    """
    gate, margin = parameters[LEVEL_GATE], parameters[OWN_MARGIN]
    lane_share, edge_share = parameters[LANE_DROPOUT], parameters[EDGE_DROPOUT]
    row, lane = rows.row, rows.lane
    mid, start, numbers, list_slot = rows.mid, rows.start, rows.numbers, rows.slot
    ids16, ids32, used, total = rows.ids16, rows.ids32, rows.used, rows.total
    lowest, highest = rows.lowest, rows.highest
    bound, middle = rows.bound, rows.middle
    ids, squares, near, value, square = sight.ids, sight.squares, sight.near, sight.value, sight.square
    hidden, packed, order, lines, noted = sight.hidden, sight.packed, sight.order, sight.lines, sight.noted
    partners_at, partners, width = spans[PARTNERS, START], spans[PARTNERS, ROWS], spans[PARTNERS, FEATURES]
    road_at, roads = spans[ROAD, START], spans[ROAD, ROWS]
    partners_end = partners_at + partners * width
    raised = width == RAISED
    jerk = spans[EGO, FEATURES] > width
    dropping = lane_share > ZERO or edge_share > ZERO
    for r in range(r0, r1):
        fetch_goal(row_flat[r], i4, goal_points, goal_size)
    hide(a0, a1, u1, hidden)
    pack_wide(a0, a1, f4, raised, packed)
    for begin in range(r0, r1, LINES):
        end = min(begin + LINES, r1)
        for r in range(begin, end):
            a, out = row_flat[r], lines[r - begin]
            for k in range(LEFT_COLUMNS):
                overflow[r, k] = 0
            if u1[STATUS, a] != ACTIVE:
                clear(out, 0, out.shape[0])
                continue
            x, y, z, cosine, sine = f4[X, a], f4[Y, a], f4[Z, a], f4[COS, a], f4[SIN, a]
            b, sector = find_list(
                numbers, list_slot, bound, np.float64(x), np.float64(y), np.float64(cosine), np.float64(sine)
            )
            if b >= 0:
                fetch_list(U(b), U(sector), ids16, ids32, used, total, lowest, highest)
            observe_wide_ego(a, f4, i4, u1, events, goal_points, goal_size, margin, raised, jerk, out)
            kept = 0
            if i4[BLIND_STEPS, a] == 0 and u1[GHOST, a] == 0:
                found = rank_partners(a, a0, a1, f4, i4, PARTNER_REACH, gate, hidden, square, near, value, order)
                kept = min(found, int(partners))
                overflow[r, LEFT_PARTNERS] = found - kept
            o = U(partners_at)
            for k in range(kept):
                s = U(order[k])
                if raised:
                    turn(5, packed, s, x, y, z, ZERO, ZERO, PLACE_SCALE, Z_SCALE, cosine, sine, LOW, HIGH, out, o)
                else:  # the eighth number falls into the next row or the road block, which are written later
                    turn(4, packed, s, x, y, ZERO, ZERO, ZERO, PLACE_SCALE, ONE, cosine, sine, LOW, HIGH, out, o)
                o += U(width)
            noted[r - begin, WRITTEN], noted[r - begin, LIST], noted[r - begin, SECTOR] = o, b, sector
        for r in range(begin, end):
            a, out = row_flat[r], lines[r - begin]
            if u1[STATUS, a] != ACTIVE:
                send(batch, packing, out, r)
                continue
            x, y, z, cosine, sine = f4[X, a], f4[Y, a], f4[Z, a], f4[COS, a], f4[SIN, a]
            written, listed_at, sector = noted[r - begin, WRITTEN], noted[r - begin, LIST], U(noted[r - begin, SECTOR])
            if spans[REFERENCE, ROWS] > 0:
                clear(out, written, partners_end)
                refer(numbers, bound, number, a, f4, out, spans[REFERENCE, START])
                send(batch, packing, out, r)
                continue
            direct = sevens_fit(packing, width, roads, f32_2(batch, B_OBS), r, road_at)
            if direct and listed_at >= 0 and ids32.shape[0] == 0 and not dropping:
                at = U(listed_at)
                if (abs(lowest[at, sector] - z) <= gate) & (abs(highest[at, sector] - z) <= gate):
                    count, obs = used[at, sector], f32_2(batch, B_OBS)[r]
                    overflow[r, LEFT_ROAD] = total[at, sector] - count
                    stream_head(out, written, road_at, obs)
                    stream_road(row, ids16[at, sector], count, x, y, PLACE_SCALE, cosine, sine, road_at, roads, obs)
                    continue
            count, listed, level = road_rows(
                mid, start, numbers, list_slot, ids16, ids32, used, total,
                lowest, highest, bound, middle,
                np.float64(x), np.float64(y), z, gate, np.float64(cosine), np.float64(sine), ids, squares,
            )  # fmt: skip
            overflow[r, LEFT_ROAD] = listed - count
            if dropping:
                count = drop_rows(lane, ids, count, lane_share, edge_share, seed, episode, i4[KEY, a], step, 0)
            if not level:
                count = keep_level(2 if raised else 7, row, ids, count, z, gate)
            if direct:
                obs = f32_2(batch, B_OBS)[r]
                stream_head(out, written, road_at, obs)
                stream_road(row, ids, count, x, y, PLACE_SCALE, cosine, sine, road_at, roads, obs)
                continue
            clear(out, written, partners_end)
            if raised:
                write_road(5, row, ids, count, a, f4, z, PLACE_SCALE, Z_SCALE, LOW, HIGH, out, road_at, roads, width)
            else:
                write_road(4, row, ids, count, a, f4, ZERO, PLACE_SCALE, ONE, LOW, HIGH, out, road_at, roads, width)
            send(batch, packing, out, r)


@kernel
def observe_wide(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Write the observation rows of the worlds order[first:end], those of the step in which they ended included.
    Arguments as in `advance.advance`."""
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    world_agents, world_rows = i32_1(batch, B_WORLD_AGENTS), i32_1(batch, B_WORLD_ROWS)
    row_flat = i32_1(batch, B_ROW_FLAT)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    goal_points, goal_size = f32_3(batch, B_GOALS), i32_1(batch, B_GOAL_COUNT)
    spans = i32_2(batch, B_SPANS)
    overflow = i32_2(batch, B_OVERFLOW)
    sight = bind_sight(scratch)
    packing = packing_of(batch)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w] == SILENT:
            continue
        slot = slots[world[SLOT, w]]
        observe_wide_world(
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
            u32_1(batch, B_EVENTS),
            row_map(slot, 0),
            world[SLOT, w],
            goal_points,
            goal_size,
            f32_1(slot, S_PARAMETERS),
            spans,
            sight,
            overflow,
        )
    settle()

"""Observations of `v3/1` and `v3_train/1`: the rows of the peer of 2026 (S87). Little is clipped, as there."""

from __future__ import annotations

import numpy as np

from skidpad.scenes.index import RowMap
from skidpad.scenes.index_kernels import road_rows
from skidpad.scenes.lane_kernels import clear as clear_reach
from skidpad.scenes.lane_kernels import spread
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.goals import GoalTable
from skidpad.simulation.kernels.machine import settle
from skidpad.simulation.kernels.observe_bind import bind_lines, bind_reach, bind_sight
from skidpad.simulation.kernels.observe_partners import hide, rank_partners
from skidpad.simulation.kernels.observe_road import drop_rows, keep_level, write_distances, write_road
from skidpad.simulation.kernels.observe_rows import (
    ACTIVE,
    F32,
    I32,
    I64,
    INFINITE,
    LEFT_COLUMNS,
    LEFT_EDGES,
    LEFT_PARTNERS,
    LEFT_ROAD,
    LEFT_SIGNALS,
    U8,
    ZERO,
    F,
    Sight,
    U,
    clear,
    share,
    signed,
)
from skidpad.simulation.kernels.observe_self import (
    Reach,
    next_goal,
    observe_coefficients,
    observe_goal,
    own_metres,
)
from skidpad.simulation.kernels.observe_send import packing_of, send
from skidpad.simulation.kernels.observe_signals import Lines, nearest_lines, observe_line
from skidpad.simulation.kernels.observe_turn import turn
from skidpad.simulation.kernels.slots import f32_1, f32_2, f32_3, i32_1, i32_2, i64_2, row_map, u8_2, u64_1
from skidpad.simulation.layout import LAYOUTS
from skidpad.simulation.layout_table import COEFFICIENTS, COUNTS, EDGES, GOALS, PARTNERS, ROAD, ROWS, SIGNALS, START
from skidpad.simulation.slots import (
    B_COEF,
    B_F4,
    B_GOAL_ARC,
    B_GOAL_COUNT,
    B_GOAL_HOP,
    B_GOAL_LANE,
    B_GOALS,
    B_I4,
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
    LANE,
    LANE_COS,
    LANE_DROPOUT,
    LANE_LIMIT,
    LANE_OFFSET,
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
    STOPPED_S,
    WIDTH,
    X,
    Y,
    Z,
)

V3 = LAYOUTS["v3/1"]
MANY = 1 << 10  # first draw of the second road block: no list is that long


def _scales(block: str) -> tuple[np.float32, ...]:
    return tuple(F(1.0 / feature.divisor) for feature in V3.block(block).features)


# Bound as constants, so that the table is the only place where a number of the layout stands.
(
    SPEED_SCALE,
    WIDTH_SCALE,
    LENGTH_SCALE,
    STEER_SCALE,
    ALONG_SCALE,
    ASIDE_SCALE,
    OFFSET_SCALE,
    _,
    LIMIT_SCALE,
    STOPPED_SCALE,
) = _scales("ego")
NO_LIMIT = F(V3.block("ego").features[8].low)
GOAL_SCALE, _, Z_SCALE = _scales("goals")
PLACE_SCALE, DISTANCE_SCALE = _scales("lanes")[0], _scales("lanes")[7]
GOAL_WIDTH, PARTNER_WIDTH, ROAD_WIDTH, SIGNAL_WIDTH = (
    len(V3.block(block).features) for block in ("goals", "partners", "lanes", "signals")
)
PARTNER_REACH, SIGNAL_REACH_M = F(V3.block("partners").reach), F(V3.block("signals").reach)
LOW, HIGH = F(-np.inf), INFINITE
ROAD_COS = 5  # column of the direction in a road row


@kernel
def pack_v3(a0: int, a1: int, f4: F32, packed: F32) -> None:
    """The agents of a world as partner rows."""
    for b in range(a0, a1):
        row = packed[b - a0]
        row[0], row[1], row[2] = f4[X, b], f4[Y, b], f4[Z, b]
        row[3], row[4] = f4[LENGTH, b] * LENGTH_SCALE, f4[WIDTH, b] * WIDTH_SCALE
        row[5], row[6] = f4[COS, b], f4[SIN, b]
        row[7] = f4[SPEED, b] * SPEED_SCALE
        row[8] = share(f4[STOPPED_S, b] * STOPPED_SCALE)


@kernel
def observe_v3_ego(a: int, f4: F32, i4: I32, margin: np.float32, out: F32) -> None:
    """Write the 10 numbers of the ego block of agent a."""
    on_lane, limit = i4[LANE, a] >= 0, f4[LANE_LIMIT, a]
    out[0] = f4[SPEED, a] * SPEED_SCALE
    out[1] = (f4[WIDTH, a] + F(2.0) * margin) * WIDTH_SCALE
    out[2] = (f4[LENGTH, a] + F(2.0) * margin) * LENGTH_SCALE
    out[3] = f4[STEERING, a] * STEER_SCALE
    out[4] = f4[ACCEL_LONG, a] * ALONG_SCALE
    out[5] = f4[ACCEL_LAT, a] * ASIDE_SCALE
    out[6] = signed(f4[LANE_OFFSET, a] * OFFSET_SCALE) if on_lane else ZERO
    out[7] = f4[LANE_COS, a] if on_lane else ZERO
    out[8] = limit * LIMIT_SCALE if on_lane and limit > ZERO else NO_LIMIT
    out[9] = share(f4[STOPPED_S, a] * STOPPED_SCALE)


@kernel
def observe_v3_world(
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
    coef: F32,
    lanes: RowMap,
    edges: RowMap,
    goals: GoalTable,
    reach: Reach,
    lines: Lines,
    parameters: F32,
    spans: I32,
    sight: Sight,
    overflow: I32,
) -> None:
    """Write the observation rows r0 to r1 of one world, whose agents are a0 to a1.

    coef      (36, A)   f32   of `coefficients`
    spans     (9, 3)    i32   of the layout
    packing   of `observe_send`
    overflow  (N, 4)    i32   written, columns of `observe_rows`: what was in range and found no slot
    others    as in `advance`
    """
    gate, margin = parameters[LEVEL_GATE], parameters[OWN_MARGIN]
    lane_share, edge_share = parameters[LANE_DROPOUT], parameters[EDGE_DROPOUT]
    lane_row, lane, along, edge_row, edge = lanes.row, lanes.lane, lanes.along, edges.row, edges.lane
    lane_mid, lane_start, lane_numbers, lane_slot = lanes.mid, lanes.start, lanes.numbers, lanes.slot
    lane_ids16, lane_ids32, lane_used, lane_total = lanes.ids16, lanes.ids32, lanes.used, lanes.total
    lane_lowest, lane_highest = lanes.lowest, lanes.highest
    lane_bound, lane_middle = lanes.bound, lanes.middle
    edge_mid, edge_start, edge_numbers, edge_slot = edges.mid, edges.start, edges.numbers, edges.slot
    edge_ids16, edge_ids32, edge_used, edge_total = edges.ids16, edges.ids32, edges.used, edges.total
    edge_lowest, edge_highest = edges.lowest, edges.highest
    edge_bound, edge_middle = edges.bound, edges.middle
    goal_points, goal_size, goal_lane, goal_arcs = goals.points, goals.size, goals.lane, goals.arc
    ids, squares, near, value, square = sight.ids, sight.squares, sight.near, sight.value, sight.square
    hidden, packed, order, to_goal = sight.hidden, sight.packed, sight.order, sight.to_goal
    line, kinds, states = lines.line, lines.kind, lines.state
    reach_start, reach_lane, reach_metres, length = reach.start, reach.lane, reach.metres, reach.length
    far = sight.reach
    out = sight.lines[0]
    goals_at, goal_rows = spans[GOALS, START], spans[GOALS, ROWS]
    partners_at, partners = spans[PARTNERS, START], spans[PARTNERS, ROWS]
    lanes_at, lane_rows = spans[ROAD, START], spans[ROAD, ROWS]
    edges_at, edge_rows = spans[EDGES, START], spans[EDGES, ROWS]
    signals_at, signal_rows = spans[SIGNALS, START], spans[SIGNALS, ROWS]
    counts_at = spans[COUNTS, START]
    hide(a0, a1, u1, hidden)
    pack_v3(a0, a1, f4, packed)
    for r in range(r0, r1):
        a = row_flat[r]
        for k in range(LEFT_COLUMNS):
            overflow[r, k] = 0
        if u1[STATUS, a] != ACTIVE:
            clear(out, 0, out.shape[0])
            send(batch, packing, out, r)
            continue
        observe_v3_ego(a, f4, i4, margin, out)

        if spans[COEFFICIENTS, ROWS] > 0:
            observe_coefficients(a, coef, out, spans[COEFFICIENTS, START])
        clear(out, goals_at, partners_at)
        slot, index = next_goal(a, i4, goal_size)
        goal, goal_arc = -1, ZERO
        if slot >= 0:
            first = index // goal_rows * goal_rows
            for k in range(index, min(first + goal_rows, goal_size[slot])):
                o = goals_at + GOAL_WIDTH * (k - first)
                observe_goal(a, f4, goal_points, slot, k, GOAL_SCALE, Z_SCALE, out, o)
            goal, goal_arc = goal_lane[slot, index], goal_arcs[slot, index]

        kept = 0
        if i4[BLIND_STEPS, a] == 0 and u1[GHOST, a] == 0:
            found = rank_partners(a, a0, a1, f4, i4, PARTNER_REACH, gate, hidden, square, near, value, order)
            kept = min(found, int(partners))
            overflow[r, LEFT_PARTNERS] = found - kept
        x, y, z, cosine, sine = f4[X, a], f4[Y, a], f4[Z, a], f4[COS, a], f4[SIN, a]
        o = U(partners_at)
        for k in range(kept):
            s = U(order[k])
            turn(5, packed, s, x, y, z, ZERO, ZERO, PLACE_SCALE, Z_SCALE, cosine, sine, LOW, HIGH, out, o)
            out[o + U(8)] = packed[s, 8]
            o += U(PARTNER_WIDTH)
        clear(out, o, lanes_at)
        out[counts_at] = F(kept)

        count, listed, level = road_rows(
            lane_mid, lane_start, lane_numbers, lane_slot, lane_ids16, lane_ids32, lane_used, lane_total,
            lane_lowest, lane_highest, lane_bound, lane_middle,
            np.float64(x), np.float64(y), z, gate, np.float64(cosine), np.float64(sine), ids, squares,
        )  # fmt: skip
        overflow[r, LEFT_ROAD] = listed - count
        if lane_share > ZERO:
            count = drop_rows(lane, ids, count, lane_share, edge_share, seed, episode, i4[KEY, a], step, 0)
        if not level:
            count = keep_level(2, lane_row, ids, count, z, gate)
        shown = min(count, int(lane_rows))
        overflow[r, LEFT_ROAD] += count - shown
        write_road(
            5, lane_row, ids, count, a, f4, z, PLACE_SCALE, Z_SCALE, LOW, HIGH, out, lanes_at, lane_rows, ROAD_WIDTH
        )
        out[counts_at + 1] = F(shown)
        if goal >= 0:
            spread(goal, reach_start, reach_lane, reach_metres, to_goal)
        own = own_metres(a, f4, i4, goal, goal_arc, length, to_goal)
        write_distances(
            ids, shown, lane, along, goal, goal_arc, own, to_goal, DISTANCE_SCALE, out, lanes_at, ROAD_WIDTH, 7
        )
        if goal >= 0:
            clear_reach(goal, reach_start, reach_lane, to_goal)

        count, listed, level = road_rows(
            edge_mid, edge_start, edge_numbers, edge_slot, edge_ids16, edge_ids32, edge_used, edge_total,
            edge_lowest, edge_highest, edge_bound, edge_middle,
            np.float64(x), np.float64(y), z, gate, np.float64(cosine), np.float64(sine), ids, squares,
        )  # fmt: skip
        overflow[r, LEFT_EDGES] = listed - count
        if edge_share > ZERO:
            count = drop_rows(edge, ids, count, lane_share, edge_share, seed, episode, i4[KEY, a], step, MANY)
        if not level:
            count = keep_level(2, edge_row, ids, count, z, gate)
        overflow[r, LEFT_EDGES] += max(count - edge_rows, 0)
        write_road(
            5, edge_row, ids, count, a, f4, z, PLACE_SCALE, Z_SCALE, LOW, HIGH, out, edges_at, edge_rows, ROAD_WIDTH
        )
        shown = min(count, int(edge_rows))
        out[counts_at + 2] = F(shown)
        for k in range(shown):  # an edge has no direction of travel: it points ahead
            o = edges_at + ROAD_WIDTH * k
            if out[o + ROAD_COS] < ZERO:
                out[o + ROAD_COS], out[o + ROAD_COS + 1] = -out[o + ROAD_COS], -out[o + ROAD_COS + 1]
            out[o + 7], out[o + 8] = ZERO, ZERO

        clear(out, signals_at, counts_at)
        found = nearest_lines(a, f4, line, gate, SIGNAL_REACH_M, signal_rows, order, far)
        shown = min(found, int(signal_rows))
        for k in range(shown):
            s, o = order[k], signals_at + SIGNAL_WIDTH * k
            observe_line(a, f4, line, s, PLACE_SCALE, Z_SCALE, out, o)
            out[o + 5], out[o + 6] = F(kinds[s]), F(states[s])
        overflow[r, LEFT_SIGNALS] = found - shown
        out[counts_at + 3] = F(shown)
        send(batch, packing, out, r)


@kernel
def observe_v3(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
    """Write the observation rows of the worlds order[first:end], those of the step in which they ended included.
    Arguments as in `advance.advance`."""
    order, world, seeds = i32_1(batch, B_ORDER), i64_2(batch, B_WORLD), u64_1(batch, B_SEEDS)
    world_agents, world_rows = i32_1(batch, B_WORLD_AGENTS), i32_1(batch, B_WORLD_ROWS)
    row_flat = i32_1(batch, B_ROW_FLAT)
    f4, i4, u1 = f32_2(batch, B_F4), i32_2(batch, B_I4), u8_2(batch, B_U1)
    goals = GoalTable(
        f32_3(batch, B_GOALS),
        i32_2(batch, B_GOAL_LANE),
        f32_2(batch, B_GOAL_ARC),
        i32_2(batch, B_GOAL_HOP),
        i32_1(batch, B_GOAL_COUNT),
    )
    spans = i32_2(batch, B_SPANS)
    overflow = i32_2(batch, B_OVERFLOW)
    sight = bind_sight(scratch)
    packing = packing_of(batch)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w] == SILENT:
            continue
        slot = slots[world[SLOT, w]]
        observe_v3_world(
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
            f32_2(batch, B_COEF),
            row_map(slot, 0),
            row_map(slot, 1),
            goals,
            bind_reach(slot),
            bind_lines(batch, slot, w, world[STEP, w]),
            f32_1(slot, S_PARAMETERS),
            spans,
            sight,
            overflow,
        )
    settle()

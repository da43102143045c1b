"""Observations of `default/1`: everything a driver can use, in [-1, 1] (S88)."""

from __future__ import annotations

import numpy as np

from skidpad.scenes.index import RowMap
from skidpad.scenes.index_kernels import road_rows
from skidpad.scenes.lane_kernels import clear as clear_reach
from skidpad.scenes.lane_kernels import spread
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.goals import GoalTable, RouteTable
from skidpad.simulation.kernels.machine import settle
from skidpad.simulation.kernels.observe_bind import bind_lines, bind_reach, bind_sight
from skidpad.simulation.kernels.observe_partners import hide, rank_partners
from skidpad.simulation.kernels.observe_road import drop_rows, keep_level, mark_route, write_distances, write_road
from skidpad.simulation.kernels.observe_rows import (
    ACTIVE,
    F32,
    I32,
    I64,
    LEFT_COLUMNS,
    LEFT_EDGES,
    LEFT_PARTNERS,
    LEFT_ROAD,
    LEFT_SIGNALS,
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
from skidpad.simulation.kernels.observe_self import (
    Reach,
    next_goal,
    observe_coefficients,
    observe_ego,
    observe_goal,
    own_metres,
)
from skidpad.simulation.kernels.observe_send import packing_of, send
from skidpad.simulation.kernels.observe_signals import (
    GREEN,
    LIGHT,
    RED,
    STOP_KIND,
    YELLOW,
    YIELD_KIND,
    Lines,
    nearest_lines,
    observe_line,
)
from skidpad.simulation.kernels.observe_turn import turn
from skidpad.simulation.kernels.slots import f32_1, f32_2, f32_3, i32_1, i32_2, i64_1, i64_2, row_map, u8_2, u64_1
from skidpad.simulation.layout import DEFAULT
from skidpad.simulation.layout_table import COEFFICIENTS, EDGES, GOALS, PARTNERS, ROAD, ROWS, SIGNALS, START
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
    B_ROUTE_LANE,
    B_ROUTE_SIZE,
    B_ROUTE_START,
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
    BLIND_STEPS,
    COS,
    DONE,
    EDGE_DROPOUT,
    EPISODE,
    GHOST,
    KEY,
    LANE,
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
    STOPPED_S,
    TYPE,
    WIDTH,
    X,
    Y,
    Z,
)

VEHICLE = 1  # track type, as in the scene
MANY = 1 << 10  # first draw of the second road block: no list is that long


def _scales(block: str) -> tuple[np.float32, ...]:
    return tuple(F(1.0 / feature.divisor) for feature in DEFAULT.block(block).features)


# Bound as constants, so that the table is the only place where a number of the layout stands.
GOAL_SCALE, _, Z_SCALE, _ = _scales("goals")
PARTNER_SCALE, _, _, _, _, SPEED_SCALE, VELOCITY_SCALE, _, LENGTH_SCALE, WIDTH_SCALE, _, STOPPED_SCALE = _scales(
    "partners"
)
ROAD_SCALE, _, _, _, _, _, _, DISTANCE_SCALE, _, _ = _scales("lanes")
SIGNAL_SCALE = _scales("signals")[0]
GOAL_WIDTH, PARTNER_WIDTH, LANE_WIDTH, EDGE_WIDTH, SIGNAL_WIDTH = (
    len(DEFAULT.block(block).features) for block in ("goals", "partners", "lanes", "edges", "signals")
)
PARTNER_REACH, SIGNAL_REACH_M = F(DEFAULT.block("partners").reach), F(DEFAULT.block("signals").reach)
LOW, HIGH = F(-1.0), F(1.0)
TURNED = 8  # numbers that `turn` writes


@kernel
def pack_default(a0: int, a1: int, f4: F32, u1: U8, packed: F32) -> None:
    """The agents of a world as partner rows: what does not depend on who looks is scaled and clipped once."""
    for b in range(a0, a1):
        row = packed[b - a0]
        row[0], row[1], row[2] = f4[X, b], f4[Y, b], f4[Z, b]
        row[3], row[4] = f4[COS, b], f4[SIN, b]
        row[5] = signed(f4[SPEED, b] * SPEED_SCALE)
        row[6], row[7] = f4[SPEED, b] * f4[COS, b] * VELOCITY_SCALE, f4[SPEED, b] * f4[SIN, b] * VELOCITY_SCALE
        row[8], row[9] = share(f4[LENGTH, b] * LENGTH_SCALE), share(f4[WIDTH, b] * WIDTH_SCALE)
        row[10] = ONE if u1[TYPE, b] == VEHICLE else LOW
        row[11] = share(f4[STOPPED_S, b] * STOPPED_SCALE)


@kernel
def observe_lights(
    a: int,
    f4: F32,
    i4: I32,
    line: F32,
    kinds: U8,
    states: U8,
    offset: I32,
    controlled: I32,
    gate: np.float32,
    slots: int,
    order: I32,
    reach: F32,
    out: F32,
    o: int,
) -> int:
    """Write the signal rows of agent a; returns how many stop lines are in range."""
    found = nearest_lines(a, f4, line, gate, SIGNAL_REACH_M, slots, order, reach)
    for k in range(min(found, slots)):
        s = order[k]
        observe_line(a, f4, line, s, SIGNAL_SCALE, Z_SCALE, out, o)
        for c in range(o, o + 5):
            out[c] = signed(out[c])
        kind, state = kinds[s], states[s]
        light = kind == LIGHT
        out[o + 5] = ONE if light and state == RED else ZERO
        out[o + 6] = ONE if light and state == YELLOW else ZERO
        out[o + 7] = ONE if light and state == GREEN else ZERO
        out[o + 8] = ONE if light and state != RED and state != YELLOW and state != GREEN else ZERO
        out[o + 9] = ONE if kind == STOP_KIND else ZERO
        out[o + 10] = ONE if kind == YIELD_KIND else ZERO
        controls = ZERO
        for c in range(offset[s], offset[s + 1]):
            if controlled[c] == i4[LANE, a]:
                controls = ONE
        out[o + 11] = controls
        o += SIGNAL_WIDTH
    return found


@kernel
def observe_default_world(
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
    routes: RouteTable,
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
    gate, margin, dt = parameters[LEVEL_GATE], parameters[OWN_MARGIN], parameters[P_DT]
    lane_share, edge_share = parameters[LANE_DROPOUT], parameters[EDGE_DROPOUT]
    lane_row, lane, along, edge_row, edge = lanes.row, lanes.lane, lanes.along, edges.row, edges.lane
    route, route_start, route_size = routes.lane, routes.start, routes.size
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
    hidden, packed, order, out = sight.hidden, sight.packed, sight.order, sight.lines[0]
    mark, to_goal = sight.mark, sight.to_goal
    line, kinds, states, offset, controlled = lines.line, lines.kind, lines.state, lines.offset, lines.lane
    reach_start, reach_lane, reach_metres, length = reach.start, reach.lane, reach.metres, reach.length
    far = sight.reach
    goals_at, goal_rows = spans[GOALS, START], spans[GOALS, ROWS]
    partners_at, partners = spans[PARTNERS, START], spans[PARTNERS, ROWS]
    lanes_at, lane_rows = spans[ROAD, START], spans[ROAD, ROWS]
    edges_at, edge_rows = spans[EDGES, START], spans[EDGES, ROWS]
    signals_at, signal_rows = spans[SIGNALS, START], spans[SIGNALS, ROWS]
    hide(a0, a1, u1, hidden)
    pack_default(a0, a1, f4, u1, packed)
    for r in range(r0, r1):
        a = row_flat[r]
        for k in range(LEFT_COLUMNS):
            overflow[r, k] = 0
        if u1[STATUS, a] != ACTIVE:
            clear(out, 0, out.shape[0])
            send(batch, packing, out, r)
            continue
        observe_ego(a, f4, i4, dt, margin, out, 0)

        if spans[COEFFICIENTS, ROWS] > 0:
            observe_coefficients(a, coef, out, spans[COEFFICIENTS, START])
        clear(out, goals_at, partners_at)
        slot, index = next_goal(a, i4, goal_size)
        goal, goal_arc = -1, ZERO
        if slot >= 0:
            last = goal_size[slot]
            for k in range(min(goal_rows, last - index)):
                o = goals_at + GOAL_WIDTH * k
                observe_goal(a, f4, goal_points, slot, index + k, GOAL_SCALE, Z_SCALE, out, o)
                out[o + 2] = signed(out[o + 2])
                out[o + 3] = ONE if index + k + 1 == last else ZERO
            goal, goal_arc = goal_lane[slot, index], goal_arcs[slot, index]

        kept = 0
        if i4[BLIND_STEPS, a] == 0 and u1[GHOST, a] == 0:
            found = rank_partners(a, a0, a1, f4, i4, PARTNER_REACH, gate, hidden, square, near, value, order)
            kept = min(found, int(partners))
            overflow[r, LEFT_PARTNERS] = found - kept
        x, y, z, cosine, sine = f4[X, a], f4[Y, a], f4[Z, a], f4[COS, a], f4[SIN, a]
        vx, vy = packed[a - a0, 6], packed[a - a0, 7]
        o = U(partners_at)
        for k in range(kept):
            s = U(order[k])
            turn(36, packed, s, x, y, z, vx, vy, PARTNER_SCALE, Z_SCALE, cosine, sine, LOW, HIGH, out, o)
            for c in range(U(TURNED), U(PARTNER_WIDTH)):
                out[o + c] = packed[s, c]
            o += U(PARTNER_WIDTH)
        clear(out, o, lanes_at)

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
            5, lane_row, ids, count, a, f4, z, ROAD_SCALE, Z_SCALE, LOW, HIGH, out, lanes_at, lane_rows, LANE_WIDTH
        )
        if goal >= 0:
            spread(goal, reach_start, reach_lane, reach_metres, to_goal)
        own = own_metres(a, f4, i4, goal, goal_arc, length, to_goal)
        write_distances(
            ids, shown, lane, along, goal, goal_arc, own, to_goal, DISTANCE_SCALE, out, lanes_at, LANE_WIDTH, TURNED - 1
        )
        if goal >= 0:
            clear_reach(goal, reach_start, reach_lane, to_goal)
        first, size = route_start[a], route_size[a]
        mark_route(route, first, size, 1, mark)
        for k in range(shown):
            out[lanes_at + LANE_WIDTH * k + LANE_WIDTH - 1] = ONE if mark[lane[ids[k]]] != 0 else ZERO
        mark_route(route, first, size, 0, mark)

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
            4, edge_row, ids, count, a, f4, z, ROAD_SCALE, Z_SCALE, LOW, HIGH, out, edges_at, edge_rows, EDGE_WIDTH
        )

        clear(out, signals_at, signals_at + signal_rows * SIGNAL_WIDTH)
        found = observe_lights(
            a, f4, i4, line, kinds, states, offset, controlled, gate, signal_rows, order, far, out, signals_at
        )
        overflow[r, LEFT_SIGNALS] = max(found - signal_rows, 0)
        send(batch, packing, out, r)


@kernel
def observe_default(batch: I64, slots: I64, scratch: I64, first: int, end: int) -> None:
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
    routes = RouteTable(i32_1(batch, B_ROUTE_LANE), i64_1(batch, B_ROUTE_START), i32_1(batch, B_ROUTE_SIZE))
    spans = i32_2(batch, B_SPANS)
    overflow = i32_2(batch, B_OVERFLOW)
    sight = bind_sight(scratch)
    packing = packing_of(batch)
    for n in range(first, end):
        w = order[n]
        if world[DONE, w] == SILENT:
            continue
        slot = slots[world[SLOT, w]]
        observe_default_world(
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
            routes,
            bind_reach(slot),
            bind_lines(batch, slot, w, world[STEP, w]),
            f32_1(slot, S_PARAMETERS),
            spans,
            sight,
            overflow,
        )
    settle()

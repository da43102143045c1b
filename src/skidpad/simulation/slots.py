"""Tables of arrays: where kernels find what they read and write, by address.

A kernel of a phase takes three tables of (address, shape) entries and nothing else: `BATCH`, one row, the arrays of
all worlds; `SLOT`, a row for each scene and population in use, picked by the world's slot number; `SCRATCH`, one row
per thread. So one call covers worlds on any scenes, maps are shared and exchanged without touching a compiled
signature, and an array is added in one place: a field at the end of its table, with its number beside it.

Kernels bind an entry by the reader named like its type and dimensions: `f32_2(batch, B_F4)` (`kernels/slots.py`, the
one unsafe place). It checks nothing, so `ArrayTable.put` does: type, dimensions, contiguity. A table keeps what it
points to alive.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

DTYPES: dict[str, type[np.generic]] = {
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}
MAX_DIMS = 3
CACHE_LINE = 64  # bytes
ENTRY = 1 + MAX_DIMS  # address and shape


class ArrayField(NamedTuple):
    """One column of a table: `type` is a key of DTYPES, `dims` how many axes.

    along, axis   what an axis is divided by among the worlds: "world", "agent", "row" (of a policy), "goal" (row of the
                  goal table), "pair", "route" (lane of one), "light". Such an array is part of a world's state, and of
                  its snapshot; "" = it is not
    """

    name: str
    type: str
    dims: int
    meaning: str
    along: str = ""
    axis: int = 0


BATCH: tuple[ArrayField, ...] = (
    ArrayField("order", "i32", 1, "(W,) worlds in the order they are visited: those of one slot stand together"),
    ArrayField("world", "i64", 2, "(WORLD_ROWS, W) per-world block of `state`", "world", 1),
    ArrayField("seeds", "u64", 1, "(W,)", "world"),
    ArrayField("world_agents", "i32", 1, "(W + 1,) agents of world w: world_agents[w] : world_agents[w + 1]"),
    ArrayField("world_rows", "i32", 1, "(W + 1,) policy rows of world w, likewise"),
    ArrayField("row_flat", "i32", 1, "(N,) agent of each policy row in the flat agent arrays"),
    ArrayField("f4", "f32", 2, "(fields, A) state block of `state.FLOAT_STATE`", "agent", 1),
    ArrayField("i4", "i32", 2, "(fields, A) of `state.INT_STATE`", "agent", 1),
    ArrayField("u1", "u8", 2, "(fields, A) of `state.BYTE_STATE`", "agent", 1),
    ArrayField("events", "u32", 1, "(A,) what happened in the step", "agent"),
    ArrayField("pair", "u8", 1, "states of agent pairs; world w owns pair_start[w] : pair_start[w + 1]", "pair"),
    ArrayField("pair_start", "i64", 1, "(W + 1,)"),
    ArrayField("goals", "f32", 3, "(M, G, 3) [m] rows by `goal_slot`", "goal"),
    ArrayField("goal_count", "i32", 1, "(M,) goals in the table", "goal"),
    ArrayField("box_actions", "f32", 2, "(N, 2) the caller's actions in a continuous world, else (0, 2)"),
    ArrayField("index_actions", "i32", 2, "(N, F) the caller's actions in a discrete world, else (0, F)"),
    ArrayField("action_scales", "f32", 3, "(3, 2, 2) `actions.action_scales`"),
    ArrayField("action_box", "f32", 2, "(K, 2) each discrete action as a point of the box"),
    ArrayField("commands", "f32", 2, "(N, 2) physical commands of the policy rows, after clipping", "row"),
    ArrayField("flags", "bool", 2, "(FLAGS, N) of `state`", "row", 1),
    ArrayField("row_events", "u32", 1, "(N,) events of the policy rows", "row"),
    ArrayField("reward", "f32", 1, "(N,)", "row"),
    ArrayField("terms", "f32", 2, "(N, K) terms of the reward", "row"),
    ArrayField("obs", "f32", 2, "(N, D) observations of 32 bits, else (0, D)"),
    ArrayField("overflow", "i32", 2, "(N, 4) in range without an observation slot: `kernels.observe_rows`"),
    ArrayField("done", "bool", 1, "(W,) the world has ended", "world"),
    ArrayField("spans", "i32", 2, "(9, 3) where the blocks of the layout stand: `layout_table`"),
    ArrayField("obs16", "u16", 2, "(N, D) observations of 16 bits, else (0, D)"),
    ArrayField("packing", "i32", 1, "(1,) how observation rows are written: `kernels.observe_send`"),
    ArrayField("obs8", "i8", 2, "(N, D) observations of 8 bits, else (0, D)"),
    ArrayField("goal_lane", "i32", 2, "(M, G) fields of `kernels.goals.GoalTable` from here", "goal"),
    ArrayField("goal_arc", "f32", 2, "", "goal"),
    ArrayField("goal_hop", "i32", 2, "", "goal"),
    ArrayField("route_lane", "i32", 1, "fields of `kernels.goals.RouteTable` from here", "route"),
    ArrayField("route_start", "i64", 1, ""),
    ArrayField("route_size", "i32", 1, "", "agent"),
    ArrayField("lights", "u8", 2, "(2, sum of S) states of the signals at even and at odd steps", "light", 1),
    ArrayField("light_start", "i64", 1, "(W + 1,) signals of world w: light_start[w] : light_start[w + 1]"),
    ArrayField("programme", "i64", 2, "(PROGRAMME_ROWS, sum of S) generated light programmes of `state`", "light", 1),
    ArrayField("action_factors", "i64", 1, "(F,) choices of each factor of a discrete action"),
    ArrayField("coef", "f32", 2, "(COEF_ROWS, A) `coefficients`: values, and what is seen of them", "agent", 1),
    ArrayField("obs_bytes", "u8", 2, "(N, bytes) observations of any type"),
    ArrayField("terminal", "bool", 1, "(N,) the agent left in this step", "row"),
    ArrayField("truncated", "bool", 1, "(N,) the world ended in this step with the agent in it", "row"),
    ArrayField("mask", "bool", 1, "(N,) the row was live in this step and is not tampered with", "row"),
    ArrayField("event_count", "i32", 2, "(EVENT_KINDS, A) in this episode", "agent", 1),
    ArrayField("event_first", "i32", 2, "(EVENT_KINDS, A) first step with the event, 0 = none", "agent", 1),
    ArrayField("reward_sum", "f64", 1, "(N,) in this episode", "row"),
    ArrayField("term_sum", "f64", 2, "(N, K)", "row"),
    ArrayField("overflow_sum", "i64", 2, "(N, blocks)", "row"),
    ArrayField("clipped_sum", "i32", 1, "(N,)", "row"),
    ArrayField("tally", "f32", 2, "(TALLY_ROWS, A) running quantities of `tally`", "agent", 1),
    ArrayField("world_goals", "i64", 1, "(W + 1,) rows of the goal table of world w, as `world_agents`"),
    ArrayField("log_goals", "f32", 3, "(M, G, 3) what the log prescribes of goals and routes: state 0 of those"),
    ArrayField("log_goal_count", "i32", 1, ""),
    ArrayField("log_goal_lane", "i32", 2, ""),
    ArrayField("log_goal_arc", "f32", 2, ""),
    ArrayField("log_route_lane", "i32", 1, ""),
    ArrayField("log_route_size", "i32", 1, ""),
    ArrayField("drawn", "u8", 1, "(A,) 1 where the agent draws its own coefficients"),
    ArrayField("coef_table", "f32", 2, "(COEF_ROWS / 2, 6) `coefficients.coefficient_table`"),
)
(
    B_ORDER,
    B_WORLD,
    B_SEEDS,
    B_WORLD_AGENTS,
    B_WORLD_ROWS,
    B_ROW_FLAT,
    B_F4,
    B_I4,
    B_U1,
    B_EVENTS,
    B_PAIR,
    B_PAIR_START,
    B_GOALS,
    B_GOAL_COUNT,
    B_BOX_ACTIONS,
    B_INDEX_ACTIONS,
    B_ACTION_SCALES,
    B_ACTION_BOX,
    B_COMMANDS,
    B_FLAGS,
    B_ROW_EVENTS,
    B_REWARD,
    B_TERMS,
    B_OBS,
    B_OVERFLOW,
    B_DONE,
    B_SPANS,
    B_OBS16,
    B_PACKING,
    B_OBS8,
    B_GOAL_LANE,
    B_GOAL_ARC,
    B_GOAL_HOP,
    B_ROUTE_LANE,
    B_ROUTE_START,
    B_ROUTE_SIZE,
    B_LIGHTS,
    B_LIGHT_START,
    B_PROGRAMME,
    B_ACTION_FACTORS,
    B_COEF,
    B_OBS_BYTES,
    B_TERMINAL,
    B_TRUNCATED,
    B_MASK,
    B_EVENT_COUNT,
    B_EVENT_FIRST,
    B_REWARD_SUM,
    B_TERM_SUM,
    B_OVERFLOW_SUM,
    B_CLIPPED_SUM,
    B_TALLY,
    B_WORLD_GOALS,
    B_LOG_GOALS,
    B_LOG_GOAL_COUNT,
    B_LOG_GOAL_LANE,
    B_LOG_GOAL_ARC,
    B_LOG_ROUTE_LANE,
    B_LOG_ROUTE_SIZE,
    B_DRAWN,
    B_COEF_TABLE,
) = range(61)

_SCENE: tuple[ArrayField, ...] = (
    ArrayField("numbers", "f64", 1, "(NUMBERS,) plain numbers of the scene; exact integers among them"),
    ArrayField("parameters", "f32", 1, "(PARAMETERS,) of `state`: numbers of the settings, rates per step"),
    ArrayField("log", "f32", 3, "(T, N, LOG_COLUMNS) packed log"),
    ArrayField("last_row", "i32", 1, "(N,) last row of each track that has it; -1 = none"),
    ArrayField("lane_start", "i32", 1, "fields of `scenes.index.LaneMap` from here"),
    ArrayField("lane_near", "i32", 1, ""),
    ArrayField("segment", "f32", 2, ""),
    ArrayField("segment_lane", "i32", 1, ""),
    ArrayField("lane_first", "i32", 1, ""),
    ArrayField("exit_offset", "i32", 1, ""),
    ArrayField("exit_lane", "i32", 1, ""),
    ArrayField("drivable", "bool", 1, ""),
    ArrayField("road", "bool", 1, ""),
    ArrayField("speed_limit", "f32", 1, ""),
    ArrayField("edge_start", "i32", 1, "fields of `scenes.index.EdgeMap` from here"),
    ArrayField("edge", "f32", 3, ""),
    ArrayField("signal", "f32", 2, "(S, SIGNAL_COLUMNS) stop lines"),
    ArrayField("signal_kind", "u8", 1, "(S,)"),
    ArrayField("signal_offset", "i32", 1, "(S + 1,) CSR of controlled lanes"),
    ArrayField("signal_lane", "i32", 1, ""),
    ArrayField("light_source", "u8", 1, "fields of `traffic.Lights` from here"),
    ArrayField("light_logged", "u8", 2, ""),
    ArrayField("light_known", "i32", 2, ""),
    ArrayField("cycle_offset", "i64", 1, ""),
    ArrayField("program_offset", "i32", 1, ""),
    ArrayField("program_end", "i64", 1, ""),
    ArrayField("program_state", "u8", 1, ""),
    ArrayField("light_group", "i32", 1, ""),
    ArrayField("light_phase", "i32", 1, ""),
    ArrayField("light_phases", "i32", 1, ""),
    ArrayField("spawn_lane", "i32", 1, "(K,) drivable lanes"),
    ArrayField("spawn_end", "f64", 1, "(K,) [m] where each ends when all are laid end to end"),
    ArrayField("reach_start", "i64", 1, "fields of `kernels.observe_self.Reach` from here; empty where none are shown"),
    ArrayField("reach_lane", "i32", 1, ""),
    ArrayField("reach_metres", "f32", 1, ""),
    ArrayField("lane_length", "f32", 1, ""),
    ArrayField("clear", "f32", 1, "(M,) of `scenes.index.LaneMap`"),
    ArrayField("ruled_offset", "i32", 1, "(L + 1,) CSR of the signals that control each lane, ascending"),
    ArrayField("ruled_signal", "i32", 1, ""),
    ArrayField("yield_start", "i32", 1, "fields of `kernels.signals.Yields` from here"),
    ArrayField("yield_lane", "i32", 2, ""),
    ArrayField("yield_metres", "f32", 2, ""),
    ArrayField("edge_height", "f32", 2, "(B, EIGHT) of `scenes.index.EdgeMap`"),
)
(
    S_NUMBERS,
    S_PARAMETERS,
    S_LOG,
    S_LAST_ROW,
    S_LANE_START,
    S_LANE_NEAR,
    S_SEGMENT,
    S_SEGMENT_LANE,
    S_LANE_FIRST,
    S_EXIT_OFFSET,
    S_EXIT_LANE,
    S_DRIVABLE,
    S_ROAD,
    S_SPEED_LIMIT,
    S_EDGE_START,
    S_EDGE,
    S_SIGNAL,
    S_SIGNAL_KIND,
    S_SIGNAL_OFFSET,
    S_SIGNAL_LANE,
    S_LIGHT_SOURCE,
    S_LIGHT_LOGGED,
    S_LIGHT_KNOWN,
    S_CYCLE_OFFSET,
    S_PROGRAM_OFFSET,
    S_PROGRAM_END,
    S_PROGRAM_STATE,
    S_LIGHT_GROUP,
    S_LIGHT_PHASE,
    S_LIGHT_PHASES,
    S_SPAWN_LANE,
    S_SPAWN_END,
    S_REACH_START,
    S_REACH_LANE,
    S_REACH_METRES,
    S_LANE_LENGTH,
    S_CLEAR,
    S_RULED_OFFSET,
    S_RULED_SIGNAL,
    S_YIELD_START,
    S_YIELD_LANE,
    S_YIELD_METRES,
    S_EDGE_HEIGHT,
) = range(43)

# A block of road rows: the fields of `scenes.index.RowMap`, once for each block that a layout may have.
ROW_BLOCKS = 2
ROW_MAP = (
    ("row", "f32", 2),
    ("mid", "f64", 2),
    ("start", "i32", 1),
    ("lane", "i32", 1),
    ("along", "f32", 2),
    ("numbers", "f64", 1),
    ("slot", "i32", 1),
    ("ids16", "u16", 3),
    ("ids32", "u32", 3),
    ("used", "i32", 2),
    ("total", "i32", 2),
    ("lowest", "f32", 2),
    ("highest", "f32", 2),
    ("bound", "f64", 2),
    ("middle", "f64", 2),
)
S_ROWS, ROW_FIELDS = len(_SCENE), len(ROW_MAP)
SLOT = _SCENE + tuple(
    ArrayField(f"rows{block}.{name}", type_, dims, "") for block in range(ROW_BLOCKS) for name, type_, dims in ROW_MAP
)

# Entries of a slot's `numbers`; from GRID_AT on x, y, inverse, columns, rows of the grid of lanes and edges.
DT_US, ROW_US, USE_AREA, EDGE_REACH, GRID_AT = range(5)
NUMBERS = GRID_AT + 5

SCRATCH: tuple[ArrayField, ...] = (
    ArrayField("path", "f32", 2, "(PATH_POINTS, 4)"),
    ArrayField("path_lane", "i32", 1, "(PATH_POINTS,)"),
    ArrayField("pose", "f32", 1, "(LOG_COLUMNS,)"),
    ArrayField("contacts", "f32", 2, "(GRID_ROWS, >= agents of a world + BLOCK) of `kernels.agent_grid`"),
    ArrayField("ids", "i32", 1, "fields of `kernels.observe_rows.Sight` from here"),
    ArrayField("squares", "f64", 1, ""),
    ArrayField("near", "i32", 1, ""),
    ArrayField("value", "f32", 1, ""),
    ArrayField("square", "f32", 1, ""),
    ArrayField("hidden", "f32", 1, ""),
    ArrayField("packed", "f32", 2, ""),
    ArrayField("slots", "i32", 1, ""),
    ArrayField("reach", "f32", 1, ""),
    ArrayField("lines", "f32", 2, ""),
    ArrayField("mark", "u8", 1, ""),
    ArrayField("to_goal", "f32", 1, ""),
    ArrayField("spare", "i32", 1, "(ROUTE_LANES,)"),
    ArrayField("lane_before", "i32", 1, "(>= L,) L = lanes of the largest map"),
    ArrayField("lane_queue", "i32", 1, "(>= L,)"),
    ArrayField("movers", "i32", 1, "(>= agents of a world,) those that are driven in the step"),
    ArrayField("block", "f32", 1, "(motion.BLOCK,)"),
    ArrayField("places", "i32", 1, "(CONTACT_SLOTS A + 2,) A agents of the largest world"),
    ArrayField("plan_block", "f32", 2, "of `kernels.pdm.plan` from here; empty where it drives nobody"),
    ArrayField("plan_ways", "f32", 2, ""),
    ArrayField("plan_scores", "f32", 2, ""),
    ArrayField("noted", "i32", 2, "of `kernels.observe_rows.Sight`"),
)
T_PATH, T_PATH_LANE, T_POSE, T_CONTACTS, T_IDS, T_SQUARES, T_NEAR, T_VALUE, T_SQUARE, T_HIDDEN, T_PACKED = range(11)
T_SLOTS, T_REACH, T_LINES, T_MARK, T_TO_GOAL = range(11, 16)
T_SPARE, T_LANE_BEFORE, T_LANE_QUEUE = range(16, 19)
T_MOVERS, T_BLOCK, T_PLACES = range(19, 22)
T_PLAN_BLOCK, T_PLAN_WAYS, T_PLAN_SCORES, T_NOTED = range(22, 26)


def spread(numbers: int) -> int:
    """Columns of a block for rows of 4-byte numbers, such as the agents of a state block: an odd number of cache lines.

    The fields of one agent are a row apart. Rows of 4 KiB would all compete for one set of the first-level cache, which
    made a step of 2,048 agents more than twice as dear.
    """
    lines = -(-numbers // 16)
    return 16 * (lines + 1 - lines % 2)


def lined_zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros whose first number begins a cache line: so does every row whose length is of `spread`, and the agents of a
    world lie in as few lines as they can."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    block: NDArray[Any] = raw[start : start + size].view(dtype).reshape(shape)
    return block


class ArrayTable:
    """Entries of arrays by row and field; every row is complete or cleared.

    entries  (rows, fields, ENTRY)  i64   what kernels take: a table, or one row of it
    """

    def __init__(self, fields: tuple[ArrayField, ...], rows: int) -> None:
        self._fields = {field.name: (number, field) for number, field in enumerate(fields)}
        self.entries = np.zeros((rows, len(fields), ENTRY), np.int64)
        self._held: list[dict[str, NDArray[Any]]] = [{} for _ in range(rows)]

    def put(self, row: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Point fields of a row at arrays, which stay alive with it.

        Raises TypeError for an array that is not what its field declares: a defect of the caller, not of its input.
        """
        for name, array in arrays.items():
            number, field = self._fields[name]
            if array.dtype != DTYPES[field.type] or array.ndim != field.dims:
                raise TypeError(
                    f"{name} is {array.dtype} with {array.ndim} axes; {field.type} with {field.dims} is due"
                )
            if not (array.flags.c_contiguous and array.flags.aligned):
                raise TypeError(f"{name} is not one aligned stretch of memory")
            self.entries[row, number] = 0
            self.entries[row, number, 0] = array.ctypes.data
            self.entries[row, number, 1 : 1 + array.ndim] = array.shape
            self._held[row][name] = array

    def held(self, row: int) -> Mapping[str, NDArray[Any]]:
        """The arrays of a row by name; none in a cleared one."""
        return self._held[row]

    def clear(self, row: int) -> None:
        """Let go of the arrays of a row; an address of 0 with length 0 stays."""
        self.entries[row] = 0
        self._held[row] = {}

    def grow(self, rows: int) -> None:
        """Add cleared rows up to `rows`."""
        more = np.zeros((rows - len(self._held), *self.entries.shape[1:]), np.int64)
        self.entries = np.concatenate([self.entries, more])
        self._held += [{} for _ in range(len(more))]


class SlotPool:
    """The slot table: a row per key in use; rows that are let go are cleared, and taken again (S29)."""

    def __init__(self) -> None:
        self.table = ArrayTable(SLOT, 1)
        self._slot_of: dict[Hashable, int] = {}
        self._free = [0]

    def claim(self, key: Hashable, arrays: Mapping[str, NDArray[Any]]) -> int:
        """The slot of a key; the arrays are put into a free row where it has none."""
        slot = self._slot_of.get(key)
        if slot is None:
            if not self._free:
                rows = len(self.table.entries)
                self.table.grow(2 * rows)
                self._free = list(range(2 * rows - 1, rows - 1, -1))
            slot = self._slot_of[key] = self._free.pop()
            self.table.put(slot, arrays)
        return slot

    def keep(self, keys: Collection[Hashable]) -> None:
        """Let go of all other keys."""
        for key in [key for key in self._slot_of if key not in keys]:
            slot = self._slot_of.pop(key)
            self.table.clear(slot)
            self._free.append(slot)

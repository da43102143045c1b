"""What observing reads, bound once per world or stretch."""

from __future__ import annotations

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.observe_rows import I64, Sight
from skidpad.simulation.kernels.observe_self import Reach
from skidpad.simulation.kernels.observe_signals import Lines
from skidpad.simulation.kernels.slots import (
    f32_1,
    f32_2,
    f64_1,
    i32_1,
    i32_2,
    i64_1,
    u8_1,
    u8_2,
)
from skidpad.simulation.slots import (
    B_LIGHT_START,
    B_LIGHTS,
    S_EXIT_LANE,
    S_EXIT_OFFSET,
    S_LANE_LENGTH,
    S_REACH_LANE,
    S_REACH_METRES,
    S_REACH_START,
    S_SIGNAL,
    S_SIGNAL_KIND,
    S_SIGNAL_LANE,
    S_SIGNAL_OFFSET,
    T_HIDDEN,
    T_IDS,
    T_LINES,
    T_MARK,
    T_NEAR,
    T_NOTED,
    T_PACKED,
    T_REACH,
    T_SLOTS,
    T_SQUARE,
    T_SQUARES,
    T_TO_GOAL,
    T_VALUE,
)


@kernel
def bind_sight(scratch: I64) -> Sight:
    """The working memory of a thread."""
    return Sight(
        i32_1(scratch, T_IDS),
        f64_1(scratch, T_SQUARES),
        i32_1(scratch, T_NEAR),
        f32_1(scratch, T_VALUE),
        f32_1(scratch, T_SQUARE),
        f32_1(scratch, T_HIDDEN),
        f32_2(scratch, T_PACKED),
        i32_1(scratch, T_SLOTS),
        f32_1(scratch, T_REACH),
        f32_2(scratch, T_LINES),
        i32_2(scratch, T_NOTED),
        u8_1(scratch, T_MARK),
        f32_1(scratch, T_TO_GOAL),
    )


@kernel
def bind_lines(batch: I64, slot: I64, w: int, step: int) -> Lines:
    """The stop lines of a slot, with their states in world w at its present step."""
    lights, start = u8_2(batch, B_LIGHTS), i64_1(batch, B_LIGHT_START)
    return Lines(
        f32_2(slot, S_SIGNAL),
        u8_1(slot, S_SIGNAL_KIND),
        lights[step & 1, start[w] : start[w + 1]],
        i32_1(slot, S_SIGNAL_OFFSET),
        i32_1(slot, S_SIGNAL_LANE),
        i32_1(slot, S_EXIT_OFFSET),
        i32_1(slot, S_EXIT_LANE),
    )


@kernel
def bind_reach(slot: I64) -> Reach:
    """What leads to which lane of a slot."""
    return Reach(
        i64_1(slot, S_REACH_START), i32_1(slot, S_REACH_LANE), f32_1(slot, S_REACH_METRES), f32_1(slot, S_LANE_LENGTH)
    )

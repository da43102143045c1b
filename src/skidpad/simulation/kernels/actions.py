"""From the caller's actions to commands: everything is checked before anything is written (S45, S115)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Status
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import command_of, scale_row
from skidpad.simulation.kernels.slots import bool_2, f32_2, f32_3, i32_1, i32_2, i64_1, i64_2, u8_2
from skidpad.simulation.slots import (
    B_ACTION_BOX,
    B_ACTION_FACTORS,
    B_ACTION_SCALES,
    B_BOX_ACTIONS,
    B_COMMANDS,
    B_FLAGS,
    B_INDEX_ACTIONS,
    B_ROW_FLAT,
    B_U1,
    B_WORLD,
    B_WORLD_ROWS,
)
from skidpad.simulation.state import CLIPPED, DONE, LIVE, MODEL, STATUS

F = np.float32
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
ZERO, ONE = F(0.0), F(1.0)
ACTIVE = int(Status.ACTIVE)


@kernel
def mark_live(world: I64, world_rows: I32, row_flat: I32, u1: U8, flags: Bool) -> None:
    """Mark the rows that take an action: those of active agents in worlds that have not ended."""
    for w in range(world_rows.shape[0] - 1):
        running = world[DONE, w] == 0
        for r in range(world_rows[w], world_rows[w + 1]):
            flags[LIVE, r] = running and u1[STATUS, row_flat[r]] == ACTIVE


@kernel
def take_box(batch: I64) -> int:
    """Turn continuous actions into commands, clipped to the box; returns the first live row whose action is not finite
    with nothing written but LIVE, else -1. `batch` as in `advance.advance`."""
    world_rows, flags, actions = i32_1(batch, B_WORLD_ROWS), bool_2(batch, B_FLAGS), f32_2(batch, B_BOX_ACTIONS)
    commands, scales = f32_2(batch, B_COMMANDS), f32_3(batch, B_ACTION_SCALES)
    row_flat, u1 = i32_1(batch, B_ROW_FLAT), u8_2(batch, B_U1)
    mark_live(i64_2(batch, B_WORLD), world_rows, row_flat, u1, flags)
    for r in range(actions.shape[0]):
        if flags[LIVE, r] and not np.isfinite(actions[r, 0] + actions[r, 1]):
            if not (np.isfinite(actions[r, 0]) and np.isfinite(actions[r, 1])):
                return r
    for r in range(actions.shape[0]):
        flags[CLIPPED, r] = False
        commands[r, 0], commands[r, 1] = ZERO, ZERO
        if flags[LIVE, r]:
            scale = scales[scale_row(np.int64(u1[MODEL, row_flat[r]]))]
            for c in range(2):
                commands[r, c] = command_of(min(max(actions[r, c], -ONE), ONE), scale, c)
                flags[CLIPPED, r] |= abs(actions[r, c]) > ONE
    return -1


@kernel
def take_index(batch: I64) -> int:
    """Look discrete actions up; returns the first live row with an index outside its factor with nothing written but
    LIVE, else -1. `batch` as in `advance.advance`."""
    world_rows, flags, actions = i32_1(batch, B_WORLD_ROWS), bool_2(batch, B_FLAGS), i32_2(batch, B_INDEX_ACTIONS)
    commands, box, scales = f32_2(batch, B_COMMANDS), f32_2(batch, B_ACTION_BOX), f32_3(batch, B_ACTION_SCALES)
    row_flat, u1, factors = i32_1(batch, B_ROW_FLAT), u8_2(batch, B_U1), i64_1(batch, B_ACTION_FACTORS)
    mark_live(i64_2(batch, B_WORLD), world_rows, row_flat, u1, flags)
    for r in range(actions.shape[0]):
        for f in range(factors.shape[0]):
            if flags[LIVE, r] and not 0 <= actions[r, f] < factors[f]:
                return r
    for r in range(actions.shape[0]):
        commands[r, 0], commands[r, 1] = ZERO, ZERO
        if flags[LIVE, r]:
            index = np.int64(0)
            for f in range(factors.shape[0]):
                index = index * factors[f] + actions[r, f]
            scale = scales[scale_row(np.int64(u1[MODEL, row_flat[r]]))]
            for c in range(2):
                commands[r, c] = command_of(box[index, c], scale, c)
    return -1

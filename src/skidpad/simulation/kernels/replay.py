"""Log replay by time (S55): where a track is at any instant, exact at its own rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.trig import sincos, wrap
from skidpad.simulation.state import (
    LOG_COS,
    LOG_HEADING,
    LOG_HEIGHT,
    LOG_LENGTH,
    LOG_SIN,
    LOG_SPEED,
    LOG_VX,
    LOG_VY,
    LOG_WIDTH,
    LOG_X,
    LOG_Y,
    LOG_Z,
)

F = np.float32
ZERO, HALF, ONE, TWO, THREE = F(0.0), F(0.5), F(1.0), F(2.0), F(3.0)


@kernel
def logged_pose(
    log: NDArray[np.float32],
    agent: Any,
    row: Any,
    share: np.float32,
    row_s: np.float32,
    out: NDArray[np.float32],
) -> bool:
    """Write the track's columns at `row` plus `share` of a row; False, and `out` untouched, where it is absent.

    log    (T, N, 12)  f32   packed log, columns of `state.LOG_COLUMNS`; a row without a body has length 0
    share  [0, 1)      f32   0 takes the row as it is, bit by bit
    row_s              f32 [s]  time between rows
    out    (12,)       f32   written, same columns

    Between rows: position by cubic Hermite with the logged velocities (linear where one is not finite), heading by the
    shortest arc, velocity and height linear, size of the nearest row; present only if both rows are.
    """
    if row < 0 or row >= log.shape[0] or log[row, agent, LOG_LENGTH] <= ZERO:
        return False
    a = log[row, agent]
    if share == ZERO:
        for column in range(out.shape[0]):
            out[column] = a[column]
        return True
    if row + 1 >= log.shape[0] or log[row + 1, agent, LOG_LENGTH] <= ZERO:
        return False
    b = log[row + 1, agent]
    rest = ONE - share
    straight = rest * a[LOG_X] + share * b[LOG_X], rest * a[LOG_Y] + share * b[LOG_Y]
    square, cube = share * share, share * share * share
    h00, h01 = TWO * cube - THREE * square + ONE, THREE * square - TWO * cube
    h10, h11 = (cube - TWO * square + share) * row_s, (cube - square) * row_s
    curved_x = h00 * a[LOG_X] + h01 * b[LOG_X] + h10 * a[LOG_VX] + h11 * b[LOG_VX]
    curved_y = h00 * a[LOG_Y] + h01 * b[LOG_Y] + h10 * a[LOG_VY] + h11 * b[LOG_VY]
    out[LOG_X] = curved_x if np.isfinite(curved_x) else straight[0]
    out[LOG_Y] = curved_y if np.isfinite(curved_y) else straight[1]
    out[LOG_Z] = rest * a[LOG_Z] + share * b[LOG_Z]
    out[LOG_VX] = rest * a[LOG_VX] + share * b[LOG_VX]
    out[LOG_VY] = rest * a[LOG_VY] + share * b[LOG_VY]
    out[LOG_HEADING] = wrap(a[LOG_HEADING] + share * wrap(b[LOG_HEADING] - a[LOG_HEADING]))
    sine, cosine = sincos(out[LOG_HEADING])
    out[LOG_SIN], out[LOG_COS] = sine, cosine
    out[LOG_SPEED] = out[LOG_VX] * cosine + out[LOG_VY] * sine
    near = a if share < HALF else b
    out[LOG_LENGTH], out[LOG_WIDTH], out[LOG_HEIGHT] = near[LOG_LENGTH], near[LOG_WIDTH], near[LOG_HEIGHT]
    return True

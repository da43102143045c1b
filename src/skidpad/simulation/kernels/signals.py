"""Stop lines: passing a red light (S72), rolling through a stop sign (S73), taking somebody's right of way (S74).

What counts is the light as the driver saw it when the step began. Rules never depend on what is observed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Event
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.goals import RouteTable
from skidpad.simulation.kernels.slots import f32_2, i32_1, i32_2
from skidpad.simulation.slots import S_YIELD_LANE, S_YIELD_METRES, S_YIELD_START
from skidpad.simulation.state import (
    BEFORE_COS,
    BEFORE_SIN,
    BEFORE_X,
    BEFORE_Y,
    COS,
    DWELL_S,
    LANE,
    LANE_ARC,
    LANE_COS,
    LENGTH,
    LEVEL_GATE,
    P_DT,
    PREVIOUS_LANE,
    RED_SIGNAL,
    SIGNAL_COS,
    SIGNAL_NX,
    SIGNAL_NY,
    SIGNAL_REACH,
    SIGNAL_SIN,
    SIGNAL_X,
    SIGNAL_Y,
    SIGNAL_Z,
    SIN,
    SOLID,
    SPEED,
    STOP_SIGNAL,
    YELLOW_COUNTS,
    X,
    Y,
    Z,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
ZERO, HALF = F(0.0), F(0.5)
LIGHT, STOP, YIELD_KIND, RED, YELLOW = 1, 2, 3, 1, 2  # kinds and states, as in the scene
RED_LIGHT, STOP_SIGN, NOTHING = np.uint32(Event.RED_LIGHT), np.uint32(Event.STOP_SIGN), np.uint32(0)
YIELD = np.uint32(Event.YIELD)
ALIGNED_COS = F(0.70710678)  # cos 45 degrees
PAST_LINE = F(10.0)  # m; S72: changing onto a ruled lane so soon after its line is passing it; S73: where one stops
REARM = F(2.0)  # m upstream of the line from which a light can be passed again
STANDING = F(0.2)  # m/s
STOP_SECONDS = F(0.5)
YIELD_SECONDS = F(1.5)
NO_SIGNAL = np.int64(1 << 31)


class Yields(NamedTuple):
    """Conflict points behind yield signs, a row for each lane that leads to one; `yields.yield_table`.

    start   (S + 1,)  i32      rows of each signal
    lane    (K, 3)    i32      the lane of our way with the point on it, -1 = there is one way only; the lane from which
                               it is reached; the lane that a route from there must hold to lead to it, -1 = any does
    metres  (K, 2)    f32 [m]  from our line to the point, and from the start of the other lane
    """

    start: I32
    lane: I32
    metres: F32


@kernel
def yield_map(slot: I64) -> Yields:
    """The yield signs of a slot."""
    return Yields(i32_1(slot, S_YIELD_START), i32_2(slot, S_YIELD_LANE), f32_2(slot, S_YIELD_METRES))


@kernel
def _next_signal(k: int, lane: Any, ruled_offset: I32, ruled_signal: I32) -> Any:
    """The k-th signal that controls a lane; NO_SIGNAL after the last, and without lane."""
    if lane < 0 or ruled_offset[lane] + k >= ruled_offset[lane + 1]:
        return NO_SIGNAL
    return ruled_signal[ruled_offset[lane] + k]


@kernel
def pass_signals(
    i: int,
    a0: int,
    a1: int,
    f4: F32,
    i4: I32,
    u1: U8,
    before_lane: Any,
    signal: F32,
    signal_kind: U8,
    signal_state: U8,
    ruled_offset: I32,
    ruled_signal: I32,
    yields: Yields,
    routes: RouteTable,
    parameters: F32,
) -> np.uint32:
    """Event bits of the stop lines that agent i's front crossed in the step; updates its memory of them.

    a0, a1                           agents of its world
    before_lane                      lane at the start of the step, -1 = none
    signal        (S, 8)  f32        `state` columns
    signal_state  (S,)    u8         when the step began
    ruled_*                          CSR over lanes: the signals that control each, ascending
    """
    events = NOTHING
    lane, previous = np.int64(i4[LANE, i]), np.int64(i4[PREVIOUS_LANE, i])
    before_lane = np.int64(before_lane)
    now = _next_signal(0, lane, ruled_offset, ruled_signal)
    was = _next_signal(0, before_lane, ruled_offset, ruled_signal)
    past = _next_signal(0, previous, ruled_offset, ruled_signal)
    s = min(now, was, past)
    if s == NO_SIGNAL:
        return events
    half = HALF * f4[LENGTH, i]
    front_x, front_y = f4[X, i] + half * f4[COS, i], f4[Y, i] + half * f4[SIN, i]
    old_x, old_y = f4[BEFORE_X, i] + half * f4[BEFORE_COS, i], f4[BEFORE_Y, i] + half * f4[BEFORE_SIN, i]
    now_k = was_k = past_k = 0
    while s < NO_SIGNAL:
        now_ruled, was_ruled = now == s, was == s
        this = s
        if now_ruled:
            now_k += 1
            now = _next_signal(now_k, lane, ruled_offset, ruled_signal)
        if was_ruled:
            was_k += 1
            was = _next_signal(was_k, before_lane, ruled_offset, ruled_signal)
        if past == s:
            past_k += 1
            past = _next_signal(past_k, previous, ruled_offset, ruled_signal)
        s = min(now, was, past)
        events |= pass_line(
            i,
            a0,
            a1,
            this,
            now_ruled,
            now_ruled and not was_ruled and before_lane >= 0,
            old_x,
            old_y,
            front_x,
            front_y,
            f4,
            i4,
            u1,
            signal,
            signal_kind,
            signal_state,
            yields,
            routes,
            parameters,
        )
    return events


@kernel
def pass_line(
    i: int,
    a0: int,
    a1: int,
    s: Any,
    now_ruled: bool,
    entered: bool,
    old_x: np.float32,
    old_y: np.float32,
    front_x: np.float32,
    front_y: np.float32,
    f4: F32,
    i4: I32,
    u1: U8,
    signal: F32,
    signal_kind: U8,
    signal_state: U8,
    yields: Yields,
    routes: RouteTable,
    parameters: F32,
) -> np.uint32:
    """Event bits of the line of signal s for agent i, whose front moved from `old` to `front` [m].

    now_ruled    the present lane is controlled by it;  entered    and the one before, which there was, was not
    """
    events = NOTHING
    kind = signal_kind[s]
    if abs(signal[s, SIGNAL_Z] - f4[Z, i]) > parameters[LEVEL_GATE]:
        return events
    nx, ny = signal[s, SIGNAL_NX], signal[s, SIGNAL_NY]
    ax, ay = old_x - signal[s, SIGNAL_X], old_y - signal[s, SIGNAL_Y]
    bx, by = front_x - signal[s, SIGNAL_X], front_y - signal[s, SIGNAL_Y]
    before, after = ax * nx + ay * ny, bx * nx + by * ny
    crossed = False
    if before < ZERO and after >= ZERO:
        share = before / (before - after)
        across = (ay + share * (by - ay)) * nx - (ax + share * (bx - ax)) * ny
        aligned = f4[COS, i] * signal[s, SIGNAL_COS] + f4[SIN, i] * signal[s, SIGNAL_SIN] >= ALIGNED_COS
        crossed = abs(across) <= signal[s, SIGNAL_REACH] and aligned
    if kind == LIGHT:
        if i4[RED_SIGNAL, i] == s and after < -REARM:
            i4[RED_SIGNAL, i] = -1
        # A ruled lane entered just past its line: from the side, or along a lane so short that the front was
        # over the line before the centre came onto it.
        cut_in = entered and before >= ZERO and after <= PAST_LINE
        forbidden = signal_state[s] == RED or (signal_state[s] == YELLOW and parameters[YELLOW_COUNTS] > ZERO)
        if forbidden and (crossed or cut_in) and i4[RED_SIGNAL, i] != s:
            events |= RED_LIGHT
            i4[RED_SIGNAL, i] = s
        return events
    if kind == YIELD_KIND:
        if crossed and takes_right_of_way(i, a0, a1, s, after, f4, i4, u1, yields, routes):
            events |= YIELD
        return events
    if crossed:
        if i4[STOP_SIGNAL, i] != s or f4[DWELL_S, i] < STOP_SECONDS:
            events |= STOP_SIGN
        if i4[STOP_SIGNAL, i] == s:
            i4[STOP_SIGNAL, i], f4[DWELL_S, i] = -1, ZERO
    elif now_ruled and -PAST_LINE <= after < ZERO and abs(f4[SPEED, i]) < STANDING:
        if i4[STOP_SIGNAL, i] != s:
            i4[STOP_SIGNAL, i], f4[DWELL_S, i] = s, ZERO
        f4[DWELL_S, i] += parameters[P_DT]
    return events


@kernel
def takes_right_of_way(
    i: int,
    a0: int,
    a1: int,
    s: Any,
    past: np.float32,
    f4: F32,
    i4: I32,
    u1: U8,
    yields: Yields,
    routes: RouteTable,
) -> bool:
    """Whether agent i, whose front is `past` [m] the line of yield sign s, comes within 1.5 s of somebody who goes
    first to a point where their ways meet, both at their present speed (S74).

    Times are those of the fronts; whoever is on the point is there now, whoever stands before it never comes. Where a
    lane leads to several places, the route tells.
    """
    speed = max(f4[SPEED, i], STANDING)
    for k in range(yields.start[s], yields.start[s + 1]):
        own, other, via = yields.lane[k, 0], yields.lane[k, 1], yields.lane[k, 2]
        if own >= 0 and i4[LANE, i] != own and not on_route(i, own, routes):
            continue
        mine = max(yields.metres[k, 0] - past, ZERO) / speed
        for j in range(a0, a1):
            if j == i or u1[SOLID, j] == 0 or i4[LANE, j] != other:
                continue
            length, pace = f4[LENGTH, j], f4[SPEED, j] * f4[LANE_COS, j]
            ahead = yields.metres[k, 1] - f4[LANE_ARC, j] - HALF * length
            if ahead <= -length or (ahead > ZERO and pace <= STANDING):
                continue
            theirs = max(ahead, ZERO) / max(pace, STANDING)
            if abs(theirs - mine) <= YIELD_SECONDS and (via < 0 or on_route(j, via, routes)):
                return True
    return False


@kernel
def on_route(a: int, lane: Any, routes: RouteTable) -> bool:
    """Whether the route of agent a holds a lane."""
    found = False
    for r in range(routes.start[a], routes.start[a] + routes.size[a]):
        found |= routes.lane[r] == lane
    return found

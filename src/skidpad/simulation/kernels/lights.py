"""Traffic lights over time: logged states first, the file's programme next, then generated ones (S104, S105).

A generated programme belongs to a junction. Its lights share out into phases of which no two conflict
(`scenes.junctions`); one cycle gives each phase green, yellow and a while of red for all, and one offset per junction
says where the cycle stands when the episode begins. Times are integer microseconds, so neighbouring phases never
overlap by rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.scene import STATE_GREEN, STATE_OFF, STATE_RED, STATE_UNKNOWN, STATE_YELLOW
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.slots import f64_1, i32_1, i32_2, i64_1, u8_1, u8_2
from skidpad.simulation.random import Purpose, unit, words
from skidpad.simulation.slots import (
    DT_US,
    ROW_US,
    S_CYCLE_OFFSET,
    S_LIGHT_KNOWN,
    S_LIGHT_LOGGED,
    S_LIGHT_SOURCE,
    S_NUMBERS,
    S_PROGRAM_END,
    S_PROGRAM_OFFSET,
    S_PROGRAM_STATE,
)
from skidpad.simulation.state import (
    LIGHT_FILE,
    LIGHT_GENERATED,
    LIGHT_LOGGED,
    LIGHTS_INDEPENDENT,
    LIGHTS_RANDOM,
    PROGRAMME_CYCLE,
    PROGRAMME_GREEN,
    PROGRAMME_OFFSET,
    PROGRAMME_RED,
    PROGRAMME_YELLOW,
    START_ROW,
    STEP,
)

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

SIGNAL = int(Purpose.SIGNAL)
UNKNOWN, RED, YELLOW, GREEN, OFF = STATE_UNKNOWN, STATE_RED, STATE_YELLOW, STATE_GREEN, STATE_OFF
EVERYWHERE = 0xFFFFFFFF  # the agent number of draws about a whole episode; junctions have numbers of their own
ALL_OFF, MAIN_ONLY = np.float32(0.2), np.float32(0.05)  # shares of episodes and of junctions
GREEN_US, YELLOW_US, ALL_RED_US = 10_000_000, 3_000_000, 2_000_000
HOLD_US = 2_000_000  # S105: how long the last known state of a light is believed


@kernel
def drawn_us(word: int, low: float, high: float) -> int:
    """A duration, even in [low, high) s, in whole microseconds."""
    return int((low + float(unit(word)) * (high - low)) * 1e6)


@kernel
def phase_us(seed: int, episode: int, group: int, phase: int, mode: int) -> tuple[int, int, int]:
    """Green, yellow and all-red [us] of one phase of a junction."""
    if mode != LIGHTS_RANDOM:
        return GREEN_US, YELLOW_US, ALL_RED_US
    draw = words(seed, episode, group, 0, SIGNAL, phase + 1)
    return drawn_us(draw[0], 5.0, 20.0), drawn_us(draw[1], 1.5, 3.0), drawn_us(draw[2], 0.5, 2.0)


@kernel
def draw_programmes(
    seed: int, episode: int, mode: int, source: U8, group: I32, phase: I32, phases: I32, programme: I64
) -> None:
    """The programmes of one episode of one world.

    mode       LIGHTS_FIXED: 10, 3, 2 s; LIGHTS_RANDOM: drawn, some episodes all off, some junctions always green for
               their main phase; LIGHTS_INDEPENDENT: each light by itself
    source     (S,) u8   LIGHT_GENERATED where a programme is wanted
    group      (S,) i32  junction of each light among those with generated programmes
    phase      (S,) i32  which of its junction's phases a light belongs to; 0 is the main one
    phases     (J,) i32  phases of each junction, >= 2: where lights never conflict, the last one is nobody's
    programme  (PROGRAMME_ROWS, S) i64  written
    """
    off = mode == LIGHTS_RANDOM and unit(words(seed, episode, EVERYWHERE, 0, SIGNAL, 0)[0]) < ALL_OFF
    for s in range(source.shape[0]):
        if source[s] != LIGHT_GENERATED:
            continue
        programme[PROGRAMME_CYCLE, s] = 0
        if off:
            programme[PROGRAMME_GREEN, s] = OFF
            continue
        if mode == LIGHTS_INDEPENDENT:
            draw = words(seed, episode, s, 0, SIGNAL, 1)
            green = drawn_us(draw[0], 1.0, 10.0)
            yellow = drawn_us(draw[1], 1.5, 2.25)
            cycle = green + yellow + drawn_us(draw[2], 0.3, 10.0)
            begin, start = 0, float(unit(draw[3]))
        else:
            j = group[s]
            draw = words(seed, episode, j, 0, SIGNAL, 0)
            if mode == LIGHTS_RANDOM and unit(draw[1]) < MAIN_ONLY:
                programme[PROGRAMME_GREEN, s] = GREEN if phase[s] == 0 else RED
                continue
            cycle, begin, green, yellow = 0, 0, 0, 0
            for p in range(phases[j]):
                p_green, p_yellow, p_red = phase_us(seed, episode, j, p, mode)
                if p == phase[s]:
                    begin, green, yellow = cycle, p_green, p_yellow
                cycle += p_green + p_yellow + p_red
            start = float(unit(draw[0]))
        programme[PROGRAMME_CYCLE, s] = cycle
        programme[PROGRAMME_OFFSET, s] = int(start * cycle)
        programme[PROGRAMME_GREEN, s] = begin
        programme[PROGRAMME_YELLOW, s] = begin + green
        programme[PROGRAMME_RED, s] = begin + green + yellow


@kernel
def programmed_state(s: int, time_us: int, programme: I64) -> int:
    """State of light s `time_us` after the episode began."""
    cycle = programme[PROGRAMME_CYCLE, s]
    if cycle == 0:
        return int(programme[PROGRAMME_GREEN, s])
    at = (time_us + programme[PROGRAMME_OFFSET, s]) % cycle
    if at < programme[PROGRAMME_GREEN, s] or at >= programme[PROGRAMME_RED, s]:
        return RED
    return GREEN if at < programme[PROGRAMME_YELLOW, s] else YELLOW


@kernel
def show_lights(
    step: int,
    start_row: int,
    row_us: int,
    dt_us: int,
    source: U8,
    logged: U8,
    known_row: I32,
    cycle_offset: I64,
    program_offset: I32,
    program_end: I64,
    program_state: U8,
    programme: I64,
    lights: U8,
) -> None:
    """The states of all signals of a world at a step.

    source          (S,)    u8        where each state comes from, LIGHT_* of `state`
    logged          (T, S)  u8        of each log row, a row every `row_us`
    known_row       (T, S)  i32       last row up to each with a known state, -1 = none
    cycle_offset    (S,)    i64 [us]  of the file's programmes, whose time starts at log row 0
    program_offset, program_end, program_state    CSR of their phases: where each ends in its cycle [us], its state
    programme       (PROGRAMME_ROWS, S) i64       of this episode, as `draw_programmes` leaves them
    lights          (S,)    u8        written; what has no state is 0
    """
    episode_us = step * dt_us
    time_us = start_row * row_us + episode_us
    row = min(time_us // row_us, logged.shape[0] - 1)
    for s in range(source.shape[0]):
        state = UNKNOWN
        if source[s] == LIGHT_LOGGED:
            known = known_row[row, s]
            if known >= 0 and time_us - known * row_us <= HOLD_US:
                state = int(logged[known, s])
        elif source[s] == LIGHT_FILE:
            last = program_offset[s + 1] - 1
            at = (time_us - cycle_offset[s]) % program_end[last]
            p = program_offset[s]
            while p < last and at >= program_end[p]:
                p += 1
            state = int(program_state[p])
        elif source[s] == LIGHT_GENERATED:
            state = programmed_state(s, episode_us, programme)
        lights[s] = state


@kernel
def light_world(w: int, slot: I64, world: I64, programme: I64, light_start: I64, lights: U8) -> None:
    """`show_lights` for world w at its present step, into the row of `lights` that the step's parity picks.

    slot                            row of the slot table
    programme, light_start, lights  arrays of the batch
    """
    numbers = f64_1(slot, S_NUMBERS)
    s0, s1 = light_start[w], light_start[w + 1]
    step = world[STEP, w]
    show_lights(
        step,
        world[START_ROW, w],
        int(numbers[ROW_US]),
        int(numbers[DT_US]),
        u8_1(slot, S_LIGHT_SOURCE),
        u8_2(slot, S_LIGHT_LOGGED),
        i32_2(slot, S_LIGHT_KNOWN),
        i64_1(slot, S_CYCLE_OFFSET),
        i32_1(slot, S_PROGRAM_OFFSET),
        i64_1(slot, S_PROGRAM_END),
        u8_1(slot, S_PROGRAM_STATE),
        programme[:, s0:s1],
        lights[step & 1, s0:s1],
    )

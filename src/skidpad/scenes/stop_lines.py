"""Where a light, stop sign or yield is obeyed: the stop line of each signal, left to right as its driver sees it (S6).

A file gives a line, a point, or neither exactly; what is missing is built across the controlled lane. A line that does
not cross any of its lanes nearly at right angles is kept, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skidpad.scenes import csr, polyline
from skidpad.scenes.formats import derive
from skidpad.scenes.loss import LossReport
from skidpad.scenes.pieces import LanePiece, SignalPiece
from skidpad.scenes.polyline import F64
from skidpad.scenes.rows import wrapped
from skidpad.scenes.scene import STATE_UNKNOWN, Signals

# A stop line this far from square to its lane, or that crosses none of its lanes, is a doubtful one.
SQUARE_RAD = np.radians(15.0)
# Stop lines stand at lane ends: crossing the lane's continuation this far beyond its ends counts.
BEYOND_END_M = 2.0


def place(signal: SignalPiece, lanes: Sequence[LanePiece]) -> tuple[F64, float]:
    """Stop line (2, 3) f64 [m], left to right, and direction of travel [rad] through it."""
    lane = lanes[signal.lanes[0]]
    if signal.line is None:
        line, heading = derive.stop_line(lane.centre, lane.width, signal.point)
    else:
        line, heading = signal.line, lane_heading(lane, signal.line.mean(axis=0))
    if signal.heading is not None:
        heading = signal.heading
    leftward = np.array([-np.sin(heading), np.cos(heading)])
    if (line[0, :2] - line[1, :2]) @ leftward < 0.0:
        line = line[::-1]
    return line, heading


def lane_heading(lane: LanePiece, point: F64) -> float:
    """Direction [rad] of a lane where a point projects on it."""
    segment = int(polyline.project(lane.centre, point[None, :2]).segment[0])
    forward = polyline.directions(lane.centre)[segment]
    return float(np.arctan2(forward[1], forward[0]))


def crosses(line: F64, lane: LanePiece) -> bool:
    """Does a stop line cross a lane's centre line, or its straight continuation, within SQUARE_RAD of a right angle?"""
    forward = polyline.directions(lane.centre)
    first = lane.centre[0, :2] - BEYOND_END_M * forward[0]
    last = lane.centre[-1, :2] + BEYOND_END_M * forward[-1]
    path = np.concatenate([first[None], lane.centre[:, :2], last[None]])
    start, step = path[:-1], np.diff(path, axis=0)
    across = line[1, :2] - line[0, :2]
    toward = line[0, :2] - start
    turn = step[:, 0] * across[1] - step[:, 1] * across[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        along_lane = (toward[:, 0] * across[1] - toward[:, 1] * across[0]) / turn
        along_line = (toward[:, 0] * step[:, 1] - toward[:, 1] * step[:, 0]) / turn
    size = np.hypot(step[:, 0], step[:, 1]) * np.hypot(across[0], across[1])
    square = np.abs(turn) >= np.cos(SQUARE_RAD) * size
    hit = (along_lane >= 0.0) & (along_lane <= 1.0) & (along_line >= 0.0) & (along_line <= 1.0) & square
    return bool(hit.any())


def pack_signals(signals: Sequence[SignalPiece], lanes: Sequence[LanePiece], steps: int, loss: LossReport) -> Signals:
    """Concatenate signals into the arrays of `Signals`."""
    count = len(signals)
    line, heading = np.zeros((count, 2, 3), np.float32), np.zeros(count)
    state = np.full((count, steps), STATE_UNKNOWN, np.uint8)
    for index, signal in enumerate(signals):
        line[index], heading[index] = place(signal, lanes)
        if signal.states is not None:
            state[index] = signal.states
        if not any(crosses(line[index].astype(float), lanes[lane]) for lane in signal.lanes):
            names = ", ".join(lanes[lane].name for lane in signal.lanes[:3])
            loss.count("assumed_stop_line", f"signal {index}: its line does not cross {names} squarely")
    lane_offset, lane = csr.pack([signal.lanes for signal in signals])
    program_offset, duration = csr.pack([[phase[0] for phase in signal.program] for signal in signals], np.float32)
    return Signals(
        kind=np.array([signal.kind for signal in signals], np.uint8),
        line=line,
        heading=wrapped(heading),
        lane_offset=lane_offset,
        lane=lane,
        junction=np.array([signal.junction for signal in signals], np.int32),
        phase=np.array([signal.phase for signal in signals], np.int32),
        state=state,
        cycle_offset=np.array([signal.cycle_offset for signal in signals], np.float32),
        program_offset=program_offset,
        program_duration=duration,
        program_state=csr.pack([[phase[1] for phase in signal.program] for signal in signals], np.uint8)[1],
    )

"""Traffic of a run as tracks: what happened in a trace, in the form of a log."""

from __future__ import annotations

import numpy as np

from skidpad.runs.trace import Trace
from skidpad.scenes.events import Status
from skidpad.scenes.scene import Tracks

WITH_BODY = (Status.ACTIVE, Status.STOPPED)


def tracks_of(trace: Trace) -> Tracks:
    """The agents of a trace's first rollout as tracks, one row per state, valid while they have a body.

    Goals are where they were last; routes are empty.
    """
    status = trace["status"][0].T
    valid = np.isin(status, [int(one) for one in WITH_BODY])

    def column(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.where(valid, trace[name][0].T, 0.0).astype(np.float32)

    heading, speed = column("heading"), column("speed")
    count, rows = valid.shape
    there = np.asarray(valid.any(axis=1), np.bool_)
    first = np.where(there, valid.argmax(axis=1), -1).astype(np.int32)
    last = np.where(there, rows - 1 - valid[:, ::-1].argmax(axis=1), -1).astype(np.int32)
    goal = np.zeros((count, 3), np.float32)
    for axis, name in enumerate("xyz"):
        goal[there, axis] = column(name)[there, last[there]]
    return Tracks(
        x=column("x"),
        y=column("y"),
        z=column("z"),
        heading=heading,
        vx=(speed * np.cos(heading)).astype(np.float32),
        vy=(speed * np.sin(heading)).astype(np.float32),
        length=column("length"),
        width=column("width"),
        height=column("height"),
        valid=valid,
        type=trace["type"],
        subtype=trace["subtype"],
        source_id=trace["source_id"],
        goal=goal,
        goal_valid=there,
        route_offset=np.zeros(count + 1, np.int32),
        route_lane=np.zeros(0, np.int32),
        route_gt_lanes=np.zeros(count, np.int32),
        expert=np.zeros(count, np.bool_),
        first=first,
        last=last,
    )

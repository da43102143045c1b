"""A scene as the case of a realism score, and traces of it as rollouts: our own runs through the same door as others'.

Nothing is measured here; it only lays out what scene and traces hold. What the scene's format could not carry stays
missing (`edges` or `lights` are None), so that the score says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError, listed
from skidpad.evaluation.rollouts import (
    FUTURE,
    HISTORY,
    POSE,
    Lights,
    Log,
    RoadEdges,
    RolloutCase,
    Rollouts,
    make_edges,
    make_lights,
    make_log,
    make_rollouts,
)
from skidpad.runs.trace import Trace
from skidpad.scenes.events import Controller, Status
from skidpad.scenes.scene import EDGE_UNKNOWN, LANE_STREET, SIGNAL_LIGHT, STATE_RED, Scene

# Formats that say where lights stand but not what they showed, or nothing about them.
FORMATS_WITHOUT_LIGHTS = frozenset({"argoverse2", "lanelet2", "opendrive"})


def scene_case(scene: Scene, *, future: int = FUTURE, now: int | None = None) -> RolloutCase:
    """The recorded moment at row `now` (default: the scene's current row), with up to 11 rows of history and `future`
    rows to compare.

    Scored are the tracks to predict and the recording vehicle; where a scene names nobody, all tracks that are valid
    now. Raises ProtocolError for a scene without tracks.
    """
    now = scene.meta.current_step if now is None else now
    log = scene_log(scene, future=future, now=now)
    return RolloutCase(scene.meta.scene_id, log, scene_edges(scene), scene_lights(scene, now=now))


def _first_row(now: int) -> int:
    return max(0, now + 1 - HISTORY)


def scene_log(scene: Scene, *, future: int = FUTURE, now: int | None = None) -> Log:
    """The log part of `scene_case`: objects are the tracks, by their number in the scene."""
    tracks, now = scene.tracks, scene.meta.current_step if now is None else now
    first = _first_row(now)
    if not tracks.count:
        raise ProtocolError(f"scene {scene.meta.scene_id} has no tracks, expected some to compare rollouts with.")
    rows = slice(first, now + 1 + future)
    named = np.array([*scene.meta.tracks_to_predict, scene.meta.sdc], dtype=np.int64)
    scored = np.unique(named[named >= 0])
    return make_log(
        object_id=np.arange(tracks.count),
        object_type=tracks.type,
        length=tracks.length[:, now],
        width=tracks.width[:, now],
        height=tracks.height[:, now],
        **{name: getattr(tracks, name)[:, rows] for name in (*POSE, "valid")},
        scored=scored if len(scored) else np.flatnonzero(tracks.valid[:, now]),
        current_step=now - first,
        dt_us=scene.meta.dt_us,
    )


def scene_edges(scene: Scene) -> RoadEdges | None:
    """Road edges in the order of their points, None where the scene has none."""
    kinds = scene.road.element_type
    chosen = np.flatnonzero((kinds >= EDGE_UNKNOWN) & (kinds < EDGE_UNKNOWN + 10))
    if not len(chosen):
        return None
    pieces = [scene.road.xyz[scene.road.points(int(element))] for element in chosen]
    return make_edges(np.concatenate(pieces), np.cumsum([0, *(len(piece) for piece in pieces)]))


def scene_lights(scene: Scene, *, now: int | None = None) -> Lights | None:
    """Traffic lights, one signal for each lane that a light controls; None where the format has no states."""
    if scene.meta.source_format in FORMATS_WITHOUT_LIGHTS:
        return None
    road, signals = scene.road, scene.signals
    lights = [(s, int(lane)) for s in np.flatnonzero(signals.kind == SIGNAL_LIGHT) for lane in signals.lanes(int(s))]
    pieces = [road.xyz[road.lane_points(lane), :2] for lane in range(road.lane_count)]
    row = np.array([s for s, _ in lights], dtype=np.int64)
    return make_lights(
        np.concatenate([np.zeros((0, 2), dtype=np.float32), *pieces]),
        np.cumsum([0, *(len(piece) for piece in pieces)]),
        road.element_type[road.lane_element] == LANE_STREET,
        [lane for _, lane in lights],
        signals.line[row, :, :2].mean(axis=1),
        signals.state[row, _first_row(scene.meta.current_step if now is None else now) :].T == STATE_RED,
    )


def trace_rollouts(
    traces: Sequence[Trace], scene: Scene, *, future: int = FUTURE, now: int | None = None, hold: bool = False
) -> Rollouts:
    """Rollouts of traces that all start at row `now` (default: the scene's current row); a trace with several rollouts
    counts as several.

    Objects are those that have a body at every simulated row of every rollout: one that vanished was not simulated, and
    `check_rollouts` will say so. With `hold` those that follow their log, and have a body now, stay where it left them.

    Raises ProtocolError for no traces, and for traces of another scene, start row, step length or length.
    """
    if not traces:
        raise ProtocolError("no traces, expected the rollouts of one scene.")
    now = scene.meta.current_step if now is None else now
    steps = min(future, traces[0].steps)
    for trace in traces:
        wrong = [
            what
            for what, here, wanted in (
                ("scene", trace.meta.scene_digest, scene.digest),
                ("start row", trace.meta.start_row, now),
                ("step length", trace.meta.dt_us, scene.meta.dt_us),
                ("number of steps", min(future, trace.steps), steps),
            )
            if here != wanted
        ]
        if wrong:
            raise ProtocolError(
                f"case {trace.meta.case}: another {listed(wrong)} than its scene or the other rollouts, expected joint "
                f"rollouts of {scene.meta.scene_id} from row {now}."
            )
    rows = slice(1, steps + 1)
    there = np.concatenate([_has_body(trace["status"][:, : steps + 1]) for trace in traces])
    poses = {name: np.concatenate([trace[name][:, : steps + 1] for trace in traces]) for name in POSE}
    if hold:
        follows = np.isin(traces[0]["controller"], (Controller.REPLAY, Controller.STATIC)) & there[:, 0].all(axis=0)
        number = np.arange(steps + 1)[None, :, None]
        last = np.where(follows, np.maximum.accumulate(np.where(there, number, 0), axis=1), number)
        poses = {name: np.take_along_axis(pose, last, axis=1) for name, pose in poses.items()}
        there = there | follows
    whole = np.flatnonzero(there[:, rows].all(axis=(0, 1)))
    return make_rollouts(whole, *(np.moveaxis(pose[:, rows, whole], 1, 2) for pose in poses.values()))


def _has_body(status: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray((status == Status.ACTIVE) | (status == Status.STOPPED))

"""A plan, or the log, as a case that scores can look at: arrays in, CaseView out, no simulator.

The agent under test follows the arrays exactly; `plan_tracking.tracked` makes them those of a car that tracks the plan.
Everybody else follows the log. Boxes that overlap at a state are a contact, and a front that crosses a stop line on red
is a red light. The view serves the scores of this folder: events that none of them reads (off-road bits, goals) are not
found, so it is no trace to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError
from skidpad.evaluation.metrics.contacts import Contact, bodies, is_static, overlaps
from skidpad.evaluation.metrics.road_area import CENTRE, box_places, share_places
from skidpad.evaluation.metrics.ttc import motion, share_meetings
from skidpad.evaluation.metrics.view import F64, I64, Bool, CaseView
from skidpad.runs.trace import TRACE_ARRAYS, Trace, TraceMeta
from skidpad.scenes import polyline
from skidpad.scenes.events import Controller, Event, Status
from skidpad.scenes.scene import (
    SIGNAL_LIGHT,
    STATE_RED,
    TYPE_CYCLIST,
    TYPE_PEDESTRIAN,
    Scene,
)

# Lane choice as the simulator's: distance over 4 m, heading over pi, and a bonus for staying.
_DISTANCE, _TURN, _CHANGE = 0.7 / 4.0, 0.3 / np.pi, 0.05
# A stop line is crossed where it would be with half its length more, within 45 degrees of its direction.
_LINE_REACH, _LINE_COS = 1.5, np.cos(np.pi / 4)
_MOTION = ("x", "y", "z", "heading", "speed", "accel_long", "accel_lat", "length", "width", "height")


def log_states(scene: Scene, time_us: I64) -> tuple[dict[str, F64], Bool]:
    """The log of every track at given times: `_MOTION` arrays, each (T, N) f64 in SI units, and (T, N) bool, recorded.

    Between two rows positions are linear and headings turn the shorter way; both rows must be valid.

    time_us  (T,)  i64 [us]  from row 0 of the scene, ascending by one step
    """
    tracks, dt_us = scene.tracks, scene.meta.dt_us
    row, rest = np.divmod(time_us, dt_us)
    after = np.where(rest > 0, row + 1, row)
    inside = (row >= 0) & (after < scene.meta.steps)
    row, after = np.where(inside, row, 0), np.where(inside, after, 0)
    share = (rest / dt_us)[:, None]
    valid = tracks.valid.T[row] & tracks.valid.T[after] & inside[:, None]

    def between(array: NDArray[Any]) -> F64:
        rows = array.T.astype(np.float64)
        return np.where(valid, (1 - share) * rows[row] + share * rows[after], 0.0)

    states = {name: between(getattr(tracks, name)) for name in ("x", "y", "z", "vx", "vy", "length", "width", "height")}
    heading = tracks.heading.T.astype(np.float64)
    states["heading"] = np.where(valid, heading[row] + share * _wrapped(heading[after] - heading[row]), 0.0)
    vx, vy = states.pop("vx"), states.pop("vy")
    states["speed"] = vx * np.cos(states["heading"]) + vy * np.sin(states["heading"])
    dt = float(time_us[1] - time_us[0]) * 1e-6 if len(time_us) > 1 else 1.0
    both = valid.copy()
    both[1:] &= valid[:-1]
    both[0] = False
    states["accel_long"], states["accel_lat"] = _accelerations(states["speed"], states["heading"], dt)
    for name in ("accel_long", "accel_lat"):
        states[name] = np.where(both, states[name], 0.0)
    return states, np.asarray(valid)


def _wrapped(angle: F64) -> F64:
    return np.asarray(np.remainder(angle + np.pi, 2 * np.pi) - np.pi)


def _accelerations(speed: F64, heading: F64, dt: float) -> tuple[F64, F64]:
    """Realised along and across the heading in the step that led to each state; 0 at the first. All (T, ...) f64."""
    along, across = np.zeros_like(speed), np.zeros_like(speed)
    along[1:] = np.diff(speed, axis=0) / dt
    across[1:] = speed[1:] * _wrapped(np.diff(heading, axis=0)) / dt
    return along, across


def plan_view(
    scene: Scene, agent: int, start_row: int, x: F64, y: F64, heading: F64, *, speed: F64 | None = None, dt: float = 0.1
) -> CaseView:
    """One agent on its plan among the log. State 0 is the present, at log row `start_row`.

    x, y     (T,)  f64 [m]    centre of the box, frame of the scene
    heading  (T,)  f64 [rad]
    speed    (T,)  f64 [m/s]  signed, along the heading; by default that of the positions, and at state 0 the log's
    dt       [s] between states

    Raises ProtocolError for arrays of different or too short lengths, values that are no numbers, or an agent that is
    not recorded at `start_row`.
    """
    series = [np.asarray(values, dtype=np.float64) for values in (x, y, heading)]
    lengths = {len(values) for values in (*series, *([] if speed is None else [speed]))}
    if len(lengths) > 1 or min(lengths) < 2:
        raise ProtocolError(f"plan of agent {agent}: arrays of {sorted(lengths)} states, expected one length above 1.")
    if not all(np.isfinite(values).all() for values in (*series, *([] if speed is None else [speed]))):
        raise ProtocolError(f"plan of agent {agent} holds NaN or infinity: give every state of it, or a shorter plan.")
    dt_us = round(dt * 1e6)
    states, valid = log_states(scene, start_row * scene.meta.dt_us + np.arange(len(x), dtype=np.int64) * dt_us)
    if not (0 <= agent < scene.tracks.count and valid[0, agent]):
        raise ProtocolError(
            f"scene {scene.meta.scene_id}: agent {agent} is not recorded at row {start_row}, where its plan begins. "
            "Pass a track that is valid there."
        )
    if speed is None:
        dx, dy = np.diff(series[0]), np.diff(series[1])
        middle = series[2][:-1] + _wrapped(np.diff(series[2])) / 2
        speed = np.append(states["speed"][0, agent], (dx * np.cos(middle) + dy * np.sin(middle)) / dt)
    along, across = _accelerations(np.asarray(speed, dtype=np.float64), series[2], dt)
    planned = dict(zip(("x", "y", "heading"), series, strict=True))
    planned |= {"speed": np.asarray(speed), "accel_long": along, "accel_lat": across}
    for name, values in planned.items():
        states[name][:, agent] = values
    for name in ("z", "length", "width", "height"):  # a plan does not change the body, and outlives the log
        states[name][:, agent] = states[name][0, agent]
    valid[:, agent] = True
    return _view(scene, states, valid, np.array([agent]), start_row, dt_us)


def log_view(scene: Scene, agents: I64, start_row: int, steps: int, dt_us: int) -> CaseView:
    """The log itself as a case: `steps` steps of `dt_us` [us] from log row `start_row`, `agents` (M,) under test."""
    states, valid = log_states(scene, start_row * scene.meta.dt_us + np.arange(steps + 1, dtype=np.int64) * dt_us)
    return _view(scene, states, valid, np.asarray(agents), start_row, dt_us)


def window(view: CaseView, seconds: float) -> CaseView:
    """The first `seconds` [s] of each case, or all of shorter ones."""
    steps = min(round(seconds / view.dt), view.steps)
    lengths = {spec.name: {"R,T": steps + 1, "R,U": steps}.get(spec.shape[:3]) for spec in TRACE_ARRAYS}
    cut = CaseView(
        [
            Trace(
                trace.meta,
                {name: trace[name] if end is None else trace[name][:, :end] for name, end in lengths.items()},
            )
            for trace in view.traces
        ],
        view.scene,
    )
    # What was found of each state holds in the window too, and finding it is most of the work.
    for name, make in (("bodies", bodies), ("motion", motion)):
        cut.once(name, partial(_first_states, view.once(name, make), steps + 1))
    share_places(view, cut)
    share_meetings(view, cut)
    return cut


def _first_states(arrays: Mapping[str, NDArray[Any]], count: int, _: CaseView) -> dict[str, NDArray[Any]]:
    return {name: array[:, :count] for name, array in arrays.items()}


def _view(scene: Scene, states: Mapping[str, F64], valid: Bool, agents: I64, start_row: int, dt_us: int) -> CaseView:
    arrays: dict[str, NDArray[Any]] = {name: states[name][None] for name in _MOTION}
    arrays["status"] = np.where(valid, Status.ACTIVE, Status.ABSENT)[None]
    arrays["controller"] = np.full(scene.tracks.count, Controller.REPLAY)
    arrays |= {name: getattr(scene.tracks, name) for name in ("type", "subtype", "source_id")}
    arrays["scored"] = np.sort(agents)
    row = np.clip(start_row + np.arange(len(valid)) * dt_us // scene.meta.dt_us, 0, max(scene.meta.steps - 1, 0))
    arrays["signal_state"] = scene.signals.state.T[row][None]
    bare = _case(scene, arrays, start_row, dt_us)
    events = np.zeros(valid.shape, dtype=np.uint32)
    partner = np.full(valid.shape, -1)
    for number, agent in enumerate(bare.agents.tolist()):
        _find_contacts(bare, number, events, partner)
        _find_red_lights(bare, agent, events)
        lane, offset, error, arc = _lanes(bare, number)
        for name, values in (("lane", lane), ("lane_offset", offset), ("lane_heading_error", error), ("lane_arc", arc)):
            arrays.setdefault(name, np.full((1, *valid.shape), -1 if name == "lane" else 0.0))[0, :, agent] = values
    arrays |= {"events": events[None], "contact_partner": partner[None], "contact_time": (events > 0)[None]}
    found = _case(scene, arrays, start_row, dt_us)
    share_places(bare, found)
    return found


def _case(scene: Scene, arrays: Mapping[str, NDArray[Any]], start_row: int, dt_us: int) -> CaseView:
    t, n = arrays["x"].shape[1:]
    sizes = {"R": 1, "T": t, "U": t - 1, "N": n, "S": scene.signals.count, "M": len(arrays["scored"])}
    found = {}
    for spec in TRACE_ARRAYS:
        shape = [int(axis) if axis.isdigit() else sizes.get(axis, 0) for axis in spec.shape.split(",")]
        missing = np.full(shape, -1 if spec.name in {"lane", "contact_partner"} else 0)
        found[spec.name] = np.asarray(arrays.get(spec.name, missing)).astype(spec.dtype)
    meta = TraceMeta(
        case="plan",
        arm="plan",
        evaluator="",
        scene_id=scene.meta.scene_id,
        scene_digest=scene.digest,
        dt_us=dt_us,
        start_row=start_row,
        action_selection="",
        profile="",
        ego=-1,
        ego_rule="",
        end_reason="length",
        settings={},
        observed={},
        state_hash=(),
    )
    return CaseView(Trace(meta, found), scene)


def _find_contacts(view: CaseView, number: int, events: NDArray[np.uint32], partner: I64) -> None:
    met, agent = overlaps(view, np.array([number]))[0], int(view.agents[number])
    met[0] = False
    states = np.flatnonzero(met.any(axis=1))
    partner[states, agent] = met[states].argmax(axis=1)
    for other in np.flatnonzero(met.any(axis=0)).tolist():
        kind = view.kinds("type")[0, other]
        bit = Event.COLLISION_VRU if kind in (TYPE_PEDESTRIAN, TYPE_CYCLIST) else Event.COLLISION_VEHICLE
        bit = Event.COLLISION_STATIC if is_static(view, Contact(number, other, 0, 0, 0.0)) else bit
        events[met[:, other], agent] |= np.uint32(bit)


def _find_red_lights(view: CaseView, agent: int, events: NDArray[np.uint32]) -> None:
    x, y, heading, length = (
        view.crowd(name)[0, :, agent].astype(np.float64) for name in ("x", "y", "heading", "length")
    )
    there = view.crowd("status")[0, :, agent] == Status.ACTIVE
    front = np.stack([x + np.cos(heading) * length / 2, y + np.sin(heading) * length / 2], axis=1)
    signals = view.scene.signals
    for signal in np.flatnonzero(signals.kind == SIGNAL_LIGHT).tolist():
        left, right = signals.line[signal, :, :2].astype(np.float64)
        middle, half = (left + right) / 2, (right - left) / 2
        direction = float(signals.heading[signal])
        forward = np.array([np.cos(direction), np.sin(direction)])
        size = float(half @ half)
        if size == 0.0:  # a line without length would be crossed anywhere
            continue
        past = (front - middle) @ forward
        aside = ((front - middle) @ half) / size
        before, after = past[:-1], past[1:]
        crosses = (before < 0) & (after >= 0) & there[1:] & there[:-1]
        share = np.divide(before, before - after, out=np.zeros_like(before), where=crosses)
        crosses &= np.abs(aside[:-1] + share * np.diff(aside)) <= _LINE_REACH
        crosses &= np.cos(heading[1:] - direction) >= _LINE_COS
        crosses &= view.crowd("signal_state")[0, :-1, signal] == STATE_RED
        events[1:][crosses, agent] |= np.uint32(Event.RED_LIGHT)


def _lanes(view: CaseView, number: int) -> tuple[I64, F64, F64, F64]:
    """The lane of an agent under test at each state, -1 for none, its offset [m], heading error [rad] and arc [m]: of
    the lanes that hold its centre the one that fits best."""
    places, road = box_places(view, number), view.scene.road
    x, y, heading = (view.states(name)[number] for name in ("x", "y", "heading"))
    count, held = len(x), places.inside[:, CENTRE]
    lanes = np.flatnonzero(held.any(axis=0))
    offset, error, arc = (np.zeros((len(lanes), count)) for _ in range(3))
    for k, lane in enumerate(places.lanes[lanes].tolist()):
        line = road.xyz[road.lane_points(lane)].astype(np.float64)
        spot = polyline.project(line, np.stack([x, y], axis=1))
        forward = polyline.directions(line)[spot.segment]
        from_x, from_y = x - line[spot.segment, 0], y - line[spot.segment, 1]
        offset[k] = forward[:, 0] * from_y - forward[:, 1] * from_x
        error[k] = _wrapped(heading - np.arctan2(forward[:, 1], forward[:, 0]))
        at = polyline.arc_lengths(line)
        arc[k] = at[spot.segment] + spot.fraction * (at[spot.segment + 1] - at[spot.segment])
    cost = np.where(held[:, lanes].T, _DISTANCE * np.abs(offset) + _TURN * np.abs(error) + _CHANGE, np.inf)
    best = np.full(count, -1)
    for state in range(count if len(lanes) else 0):
        here = cost[:, state].copy()
        if state and best[state - 1] >= 0:
            here[best[state - 1]] -= _CHANGE
        if np.isfinite(here.min()):
            best[state] = here.argmin()
    found, states = best >= 0, np.arange(count)
    if not found.any():
        return best, np.zeros(count), np.zeros(count), np.zeros(count)
    lane = np.where(found, places.lanes[lanes][best], -1)
    offset, error, arc = (np.where(found, values[best, states], 0.0) for values in (offset, error, arc))
    return lane, offset, error, arc

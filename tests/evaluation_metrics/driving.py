"""Scenes and traces written down by hand, for tests of metrics: everything a test does not name stays at rest.

    scene = scene_of([car(x=[0, 1, 2])], lanes=[lane([(0, 0), (100, 0)])])
    trace = trace_of(scene, {"x": [[0, 1, 2]], "speed": 10.0})

Agents are rows here (N, T); `trace_of` turns them. One step is 0.1 s unless said otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skidpad.runs.trace import TRACE_ARRAYS, Trace, TraceMeta
from skidpad.scenes.events import Controller, Event, Status
from skidpad.scenes.scene import (
    EDGE_BOUNDARY,
    LANE_STREET,
    SCENE_ARRAYS,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    STATE_RED,
    SUBTYPE_CAR,
    TYPE_VEHICLE,
    Scene,
    SceneMeta,
)


def lane(points, *, width=3.5, limit=float("nan"), exits=(), drivable=True) -> dict[str, Any]:
    """A lane through (P, 2) or (P, 3) points."""
    return {
        "points": np.array([(*point, 0.0)[:3] for point in points]),
        "width": width,
        "limit": limit,
        "exits": exits,
        "drivable": drivable,
    }


def car(x=0.0, y=0.0, heading=0.0, *, vx=0.0, vy=0.0, valid=True, type=TYPE_VEHICLE, subtype=SUBTYPE_CAR, route=()):
    """A recorded track; series of T rows, or one number for all."""
    series = {"x": x, "y": y, "heading": heading, "vx": vx, "vy": vy, "valid": valid}
    return series | {"type": type, "subtype": subtype, "route": route}


def scene_of(
    tracks=(),
    lanes=(),
    *,
    rows=None,
    dt_us=100_000,
    edges=False,
    lights=0,
    stop_signs=0,
    yields=0,
    has_z=False,
    name="hand",
) -> Scene:
    """A scene of hand-written tracks and lanes; `edges` adds one far away."""
    sized = [np.size(track[key]) for track in tracks for key in ("x", "y", "valid")]
    rows = rows or max(sized, default=1)
    elements = [(LANE_STREET, item["points"], item["width"]) for item in lanes]
    if edges:
        elements.append((EDGE_BOUNDARY, np.array([(-1e3, -1e3, 0.0), (1e3, -1e3, 0.0)]), 0.0))
    counts = [len(points) for _, points, _ in elements]
    xyz = np.concatenate([np.zeros((0, 3)), *(points for _, points, _ in elements)])
    ends = [np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(p[:, :2], axis=0).T))]) for _, p, _ in elements]
    series = {
        key: np.array([np.broadcast_to(np.asarray(track[key], dtype=float), rows) for track in tracks])
        for key in ("x", "y", "heading", "vx", "vy")
    }
    valid = np.array([np.broadcast_to(track["valid"], rows) for track in tracks], dtype=bool)
    n, s = len(tracks), lights + stop_signs + yields
    exits = [list(item["exits"]) for item in lanes]
    values = {
        "road.element_type": [kind for kind, _, _ in elements],
        "road.element_points": np.cumsum([0, *counts]),
        "road.xyz": xyz,
        "road.arc": np.concatenate([np.zeros(0), *ends]),
        "road.direction": np.zeros((len(xyz), 2)),
        "road.width": np.concatenate([np.zeros(0), *(np.full(len(p), w) for _, p, w in elements)]),
        "road.lane_element": np.arange(len(lanes)),
        "road.speed_limit": [item["limit"] for item in lanes],
        "road.drivable": [item["drivable"] for item in lanes],
        "road.lane_junction": [-1] * len(lanes),
        "road.lane_flags": [0] * len(lanes),
        "road.exit_offset": np.cumsum([0, *(len(found) for found in exits)]),
        "road.exit_lane": [lane for found in exits for lane in found],
        "road.source_id": np.arange(len(elements)),
        **{f"road.{side}_offset": np.zeros(len(lanes) + 1) for side in ("entry", "left", "right")},
        **{f"tracks.{key}": array for key, array in series.items()},
        "tracks.z": np.zeros((n, rows)),
        "tracks.length": np.full((n, rows), 4.0),
        "tracks.width": np.full((n, rows), 2.0),
        "tracks.height": np.full((n, rows), 1.5),
        "tracks.valid": valid,
        "tracks.type": [track["type"] for track in tracks],
        "tracks.subtype": [track["subtype"] for track in tracks],
        "tracks.source_id": np.arange(n),
        "tracks.goal_valid": np.ones(n),
        "tracks.goal": np.zeros((n, 3)),
        "tracks.route_offset": np.cumsum([0, *(len(track["route"]) for track in tracks)]),
        "tracks.route_lane": [lane for track in tracks for lane in track["route"]],
        "tracks.route_gt_lanes": [len(track["route"]) for track in tracks],
        "tracks.expert": np.zeros(n),
        "tracks.first": np.zeros(n),
        "tracks.last": np.full(n, rows - 1),
        "signals.kind": [SIGNAL_LIGHT] * lights + [SIGNAL_STOP] * stop_signs + [SIGNAL_YIELD] * yields,
        "signals.state": np.full((s, rows), STATE_RED),
        "signals.line": np.zeros((s, 2, 3)),
        "signals.lane_offset": np.zeros(s + 1),
        "signals.program_offset": np.zeros(s + 1),
        **{f"signals.{key}": np.zeros(s) for key in ("heading", "junction", "phase", "cycle_offset")},
    }
    shapes = {"N,T": (n, rows), "S,T": (s, rows)}
    arrays = {}
    for spec in SCENE_ARRAYS:
        axes = spec.shape.split(",")
        empty = shapes.get(spec.shape, tuple(int(axis) if axis.isdigit() else 0 for axis in axes))
        array = np.asarray(values.get(spec.path, np.zeros(empty)))
        arrays[spec.path] = (array.reshape(empty) if array.size == 0 else array).astype(spec.dtype)
    meta = SceneMeta(name, "hand", "hand", "1", "", dt_us, rows, 0, (0.0, 0.0, 0.0), has_z)
    return Scene.from_arrays(arrays, meta)


def trace_of(
    scene: Scene,
    arrays: dict[str, Any] | None = None,
    *,
    steps=None,
    scored=None,
    goals=1,
    dt_us=None,
    start_row=0,
    settings=None,
    clipped=None,
    controller=Controller.POLICY,
) -> Trace:
    """A trace of every track of the scene; `arrays` hold rows (N, T) or what broadcasts to them.

    steps    by default those of the longest row, 2 where all are constant
    scored   agents under test, all by default; all of them are driven by a policy
    goals    assigned to each agent under test, (M,) or one number
    clipped  (M, U) bool
    """
    arrays = arrays or {}
    n = scene.tracks.count
    scored = np.arange(n) if scored is None else np.asarray(scored)
    if steps is None:
        steps = max((np.shape(array)[-1] for array in arrays.values() if np.ndim(array)), default=1) - 1 or 2
    defaults = {"length": 4.0, "width": 2.0, "height": 1.5, "lane": -1, "status": Status.ACTIVE, "contact_partner": -1}
    m, q = len(scored), len(scored)
    most = int(np.max(goals, initial=0))
    others = {
        "goals": np.zeros((1, m, most, 3)),
        "goal_count": np.broadcast_to(goals, (m,))[None],
        "goal_first": np.broadcast_to(goals, (m,))[None],
        "signal_state": np.full((1, steps + 1, scene.signals.count), STATE_RED),
        "scored": scored,
        "controller": np.broadcast_to(controller, (n,)),
        "type": scene.tracks.type,
        "subtype": scene.tracks.subtype,
        "source_id": scene.tracks.source_id,
        "exclusion": np.zeros(n),
        "policy_agent": scored,
        "action": np.zeros((1, steps, q, 2)),
        "action_applied": np.zeros((1, steps, q, 2)),
        **{name: np.zeros((1, steps, q, 0)) for name in ("observation", "value", "distribution")},
        "action_clipped": np.zeros((1, steps, q)) if clipped is None else np.asarray(clipped).T[None],
    }
    found = {}
    for spec in TRACE_ARRAYS:
        if spec.name in others:
            array = np.asarray(others[spec.name])
        else:
            rows = np.asarray(arrays.get(spec.name, defaults.get(spec.name, 0)))
            array = np.broadcast_to(rows, (n, steps + 1)).T[None]
        found[spec.name] = np.array(array, dtype=spec.dtype)
    meta = TraceMeta(
        case="hand",
        arm="policy",
        evaluator="test",
        scene_id=scene.meta.scene_id,
        scene_digest=scene.digest,
        dt_us=dt_us or scene.meta.dt_us,
        start_row=start_row,
        action_selection="deterministic",
        profile="",
        ego=-1,
        ego_rule="",
        end_reason="length",
        settings=settings or {},
        observed={},
        state_hash=(),
    )
    return Trace(meta, found)


STEPS, AGENTS = 14, 4
# Metrics that need a longer drive than STEPS to have a value.
LONGER = {"b2d_smoothness": 60, "b2d_smoothness_compat": 60}


def drive(seed: int, *, turn: float = 0.0, shift=(0.0, 0.0), order=None, edges=True, steps=STEPS):
    """A random case: four cars that wander, meet, stop, leave; consistent where the simulator is, wild elsewhere.

    `turn` and `shift` move the whole world; `order` permutes the agents.
    """
    rng = np.random.default_rng(seed)
    n, t = AGENTS, steps + 1
    order = np.arange(n) if order is None else np.asarray(order)
    cos, sin = math.cos(turn), math.sin(turn)

    def placed(x, y):
        return cos * x - sin * y + shift[0], sin * x + cos * y + shift[1]

    calm = rng.choice([0.05, 1.0], (n, 1))  # some drive smoothly
    heading = rng.uniform(-3, 3, (n, 1)) + np.cumsum(rng.normal(0, 0.1, (n, t)) * calm, axis=1)
    speed = rng.uniform(-2, 15, (n, 1)) + np.cumsum(rng.normal(0, 1, (n, t)), axis=1)
    x = rng.uniform(-8, 8, (n, 1)) + np.cumsum(speed * np.cos(heading), axis=1) * 0.1
    y = rng.uniform(-8, 8, (n, 1)) + np.cumsum(speed * np.sin(heading), axis=1) * 0.1
    log_x, log_y = x + rng.normal(0, 1, (n, t)), y + rng.normal(0, 1, (n, t))
    status = np.full((n, t), Status.ACTIVE)
    for agent in range(n):
        end = int(rng.integers(1, 2 * t))
        status[agent, end:] = rng.choice([Status.STOPPED, Status.REMOVED, Status.ABSENT])
    hit = rng.random((n, t)) < 0.1
    partner = (np.arange(n)[:, None] + rng.integers(1, n, (n, t))) % n
    bits = np.where(hit, rng.choice([1, 2, 4], (n, t)) | np.where(rng.random((n, t)) < 0.5, int(Event.AT_FAULT), 0), 0)
    for bit in (Event.OFFROAD, Event.RED_LIGHT, Event.STOP_SIGN):
        bits |= np.where(rng.random((n, t)) < 0.05, int(bit), 0)
    goal = (rng.random((n, t)) < 0.3) & (status == Status.ACTIVE)
    goal[:, 0] = False
    bits |= np.where(goal, int(Event.GOAL), 0)
    valid = rng.random((n, t)) < 0.9
    lanes_at = [((-50, 0), (50, 0)), ((0, -50), (0, 50))]
    lanes = [
        lane([placed(*a), placed(*b)], limit=limit) for (a, b), limit in zip(lanes_at, (8.0, math.nan), strict=True)
    ]
    x, y = placed(x, y)
    log_x, log_y = placed(log_x, log_y)
    # Where a permutation gives an agent another number, whoever met it must name the new one.
    new_number = np.argsort(order)
    scene = scene_of(
        [car(x=log_x[a], y=log_y[a], valid=valid[a], route=[int(a) % 2]) for a in order],
        lanes,
        edges=edges,
        lights=1,
        stop_signs=1,
        yields=1,
    )
    rows = {
        "x": x, "y": y, "heading": heading + turn, "speed": speed, "status": status, "events": bits,
        "contact_partner": np.where(hit, new_number[partner], -1), "contact_time": rng.random((n, t)),
        "accel_long": rng.normal(0, 3, (n, t)) * calm, "accel_lat": rng.normal(0, 3, (n, t)) * calm,
        "lane": rng.integers(-1, 2, (n, t)), "lane_offset": rng.normal(0, 1, (n, t)),
        "lane_heading_error": rng.uniform(-math.pi, math.pi, (n, t)), "goal_index": np.cumsum(goal, axis=1),
    }  # fmt: skip
    clipped = rng.random((n, steps)) < 0.2
    goals = rng.integers(0, 4, n)
    controllers = rng.choice([Controller.POLICY, Controller.REPLAY], n)[order]
    bits |= np.where(rng.random((n, t)) < 0.05, int(Event.YIELD), 0)
    arrays = {name: row[order] for name, row in rows.items()}
    return trace_of(scene, arrays, goals=goals[order], clipped=clipped[order], controller=controllers), scene


def cruise(seed: int, *, turn: float = 0.0, shift=(0.0, 0.0), order=None):
    """A random case of cars that mostly behave: two pairs of followers on two lanes that cross. What scores forbid
    (leaving the lane, speeding, cutting in) happens in some of them, so that their values lie between the extremes.

    `turn`, `shift` and `order` as in `drive`.
    """
    rng = np.random.default_rng(seed)
    n, t = AGENTS, np.arange(STEPS + 1) * 0.1
    order = np.arange(n) if order is None else np.asarray(order)
    cos, sin = math.cos(turn), math.sin(turn)

    def placed(x, y):
        return cos * x - sin * y + shift[0], sin * x + cos * y + shift[1]

    lane_of = np.array([0, 0, 1, 1])
    speed = rng.uniform(4, 11, (n, 1)) + rng.uniform(-0.5, 0.5, (n, 1)) * t
    start = rng.uniform(-40, -10, n) + np.array([0.0, 9.0, 0.0, 9.0])
    along = start[:, None] + np.cumsum(speed, axis=1) * 0.1
    aside = rng.normal(0, 0.3, (n, 1)) + rng.choice([0.0, 0.0, 1.0], (n, 1)) * t
    yaw = np.arctan2(np.gradient(aside, 0.1, axis=1), speed)
    x, y = np.where(lane_of[:, None] == 0, [along, aside], [-aside, along])
    log_speed = speed * rng.uniform(0.8, 1.4, (n, 1))
    log_along = start[:, None] + np.cumsum(log_speed, axis=1) * 0.1
    log_x, log_y = np.where(lane_of[:, None] == 0, [log_along, 0 * log_along], [0 * log_along, log_along])
    heading = lane_of[:, None] * np.pi / 2 + yaw
    log_x, log_y = placed(log_x, log_y)
    x, y = placed(x, y)
    log_heading = lane_of * np.pi / 2 + turn
    lanes = [
        lane([placed(*a), placed(*b)], limit=limit)
        for a, b, limit in (((-80, 0), (80, 0), 8.0), ((0, -80), (0, 80), 6.0))
    ]
    cars = [
        car(
            x=log_x[a], y=log_y[a], heading=log_heading[a], route=[lane_of[a]],
            vx=log_speed[a] * math.cos(log_heading[a]), vy=log_speed[a] * math.sin(log_heading[a]),
        )
        for a in order
    ]  # fmt: skip
    scene = scene_of(cars, lanes, edges=True, lights=1, stop_signs=1, yields=1)
    rows = {
        "x": x, "y": y, "heading": heading + turn, "speed": speed, "lane": np.repeat(lane_of[:, None], len(t), axis=1),
        "accel_long": np.gradient(speed, 0.1, axis=1), "lane_offset": aside, "lane_heading_error": yaw,
        "lane_arc": along + 80,
    }  # fmt: skip
    return trace_of(scene, {name: row[order] for name, row in rows.items()}), scene

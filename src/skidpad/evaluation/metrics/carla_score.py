"""CARLA's driving score in two versions, and the figures that Bench2Drive puts beside it.

The route of an agent is the recorded drive's: completion is the share of its route metres. Counts come from the event
bits of the trace, so one contact that lasts is one. What a replayed scene does not have (scenario timeouts, emergency
vehicles) counts zero. Coefficients: leaderboard.carla.org; Bench2Drive: arXiv 2406.03877. No route file is read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from skidpad.errors import UsageError, listed
from skidpad.evaluation.metrics.comfort import NUPLAN_BOUNDS, drives, filter_weights, nuplan_comfortable
from skidpad.evaluation.metrics.contacts import NOBODY, Contact, bodies, find_contacts, is_static
from skidpad.evaluation.metrics.progress import route_progress
from skidpad.evaluation.metrics.rules import OFF, offroad_rate
from skidpad.evaluation.metrics.view import F64, REASONS, AgentValues, CaseView, measured
from skidpad.scenes.events import Event
from skidpad.scenes.scene import TYPE_PEDESTRIAN, TYPE_VEHICLE

# Factor per infraction (2.0) and weight per infraction (2.1).
PENALTIES_2_0: Mapping[str, float] = {
    "pedestrian": 0.5,
    "vehicle": 0.6,
    "static": 0.65,
    "red_light": 0.7,
    "stop_sign": 0.8,
    "scenario_timeout": 0.7,
    "emergency_yield": 0.7,
    "minimum_speed": 0.7,
}
WEIGHTS_2_1: Mapping[str, float] = {
    "pedestrian": 1.0,
    "vehicle": 0.7,
    "static": 0.6,
    "red_light": 0.4,
    "stop_sign": 0.25,
    "scenario_timeout": 0.4,
    "emergency_yield": 0.4,
    "minimum_speed": 0.4,
}
# The route's own: metres below which a recorded drive is no route; how many speed checks; whom they look at.
ROUTE = {"min_reference_m": 1.0}
SPEED_CHECKS = {"checks": 20.0, "radius_m": 30.0}
COMPLETED = 0.99
TOP_PERCENT = 1000.0
SMOOTH = {"segment_s": 2.0, "window": 7.0}
ABILITIES = ("overtaking", "merging", "emergency_brake", "give_way", "traffic_signs")


def driving_score_2_0(
    completion: F64, counts: Mapping[str, F64], offroad: F64, penalties: Mapping[str, float] = PENALTIES_2_0
) -> F64:
    """(M,) f64, 0..100: completion times a factor per infraction.

    completion  (M,)        f64 [1]  share of the route
    counts      each (M,)   f64      infractions by name; those of `minimum_speed` are shortfalls in 0..1
    offroad     (M,)        f64 [1]  share of the route driven off the road
    """
    score = 100.0 * completion * (1.0 - offroad)
    for name, number in counts.items():
        # A shortfall scales its penalty instead of repeating it.
        linear = name == "minimum_speed"
        score = score * (1.0 - (1.0 - penalties[name]) * number if linear else penalties[name] ** number)
    return np.asarray(score)


def driving_score_2_1(
    completion: F64, counts: Mapping[str, F64], offroad: F64, weights: Mapping[str, float] = WEIGHTS_2_1
) -> F64:
    """(M,) f64, 0..100: completion over one plus the weighted sum of infractions. Arguments as in 2.0."""
    burden = sum((weights[name] * number for name, number in counts.items()), np.zeros_like(completion))
    return np.asarray(100.0 * completion * (1.0 - offroad) / (1.0 + burden))


class Drive(NamedTuple):
    """What the scores are made of.

    completion  (M,)       f64 [1]  share of the route, at most 1
    offroad     (M,)       f64 [1]  metres off the road over metres of the route, at most 1
    counts      each (M,)  f64      infractions by name, without `minimum_speed`
    missing     what makes an agent's values missing, as `measured` takes it
    """

    completion: F64
    offroad: F64
    counts: dict[str, F64]
    missing: tuple[tuple[Any, str], ...]


def drive_of(view: CaseView, min_reference_m: float) -> Drive:
    """Completion and infractions of every agent under test; a log shorter than `min_reference_m` [m] is no route."""
    return view.once(f"carla drive {min_reference_m}", lambda view: _drive_of(view, min_reference_m))


def _drive_of(view: CaseView, min_reference_m: float) -> Drive:
    metres, reference, logged = route_progress(view)
    length = np.maximum(reference, min_reference_m)
    off = np.where(view.happened(OFF), view.step_length, 0.0).sum(axis=1)
    counts = {name: np.zeros(view.count) for name in PENALTIES_2_0 if name != "minimum_speed"}
    for contact in find_contacts(view):
        counts[_partner(view, contact)][contact.agent] += 1
    counts["red_light"] += view.happened(Event.RED_LIGHT).sum(axis=1)
    counts["stop_sign"] += view.happened(Event.STOP_SIGN).sum(axis=1)
    no_map = offroad_rate(view).reason == REASONS.index("no_map")
    missing = (
        (view.never_active, "no_exposure"),
        (no_map, "no_map"),
        (~logged, "no_log"),
        (reference < min_reference_m, "no_exposure"),
    )
    return Drive(np.minimum(metres / length, 1.0), np.minimum(off / length, 1.0), counts, missing)


def _partner(view: CaseView, contact: Contact) -> str:
    """The class of what was met; CARLA's cyclists are vehicles."""
    if contact.partner == NOBODY:
        bits = view.events[contact.agent, contact.first]
        if bits & Event.COLLISION_VEHICLE:
            return "vehicle"
        return "pedestrian" if bits & Event.COLLISION_VRU else "static"
    if is_static(view, contact):
        return "static"
    kind = view.kinds("type")[view.case[contact.agent], contact.partner]
    return "pedestrian" if kind == TYPE_PEDESTRIAN else "vehicle"


def speed_percentages(view: CaseView, checks: float, radius_m: float) -> list[F64]:
    """Of every agent, its mean speed [%] of that of the vehicles around it, at each check that it passed.

    The route is cut into `checks` equal pieces; a piece that was driven to its end is a check, over all of whose steps
    and all vehicles within `radius_m` [m] speeds are averaged. Nobody around: no check. Everybody around stands: inf.
    """
    return view.once(f"speed checks {checks} {radius_m}", lambda view: _speed_percentages(view, int(checks), radius_m))


def _speed_percentages(view: CaseView, checks: int, radius_m: float) -> list[F64]:
    boxes = view.once("bodies", bodies)
    vehicle = boxes["body"] & (view.kinds("type") == TYPE_VEHICLE)[:, None, :]
    totals, others = np.zeros(view.driven.shape), np.zeros(view.driven.shape, dtype=np.int64)
    for rows in view.blocks():
        dx, dy = (view.around(boxes[axis], rows) - view.own(boxes[axis], rows) for axis in ("x", "y"))
        around = view.around(vehicle, rows) & (dx**2 + dy**2 <= radius_m**2)
        around[np.arange(len(around)), :, view.agents[rows]] = False
        totals[rows] = np.where(around, np.abs(view.around(boxes["speed"], rows)), 0.0).sum(axis=2)
        others[rows] = around.sum(axis=2)
    own_speed = np.abs(view.ends("speed"))
    reference = np.maximum(route_progress(view).reference, ROUTE["min_reference_m"])
    done = np.cumsum(view.step_length, axis=1) / reference[:, None] * checks
    found = []
    for m in range(view.count):
        began = np.concatenate([[0.0], done[m, :-1]])
        driven, percentages = view.driven[m], []
        # Pieces are driven one after the other, so that each is a run of steps.
        passed = min(checks, math.floor(done[m, -1] + 1e-9))
        bounds = np.searchsorted(np.floor(began + 1e-9), np.arange(passed + 1)).tolist()
        for piece in itertools.starmap(slice, itertools.pairwise(bounds)):
            there = driven[piece]
            steps = slice(None) if there.all() else there
            if (count := np.add.reduce(others[m, piece][steps])) > 0:
                speeds = own_speed[m, piece][steps]
                theirs = np.add.reduce(totals[m, piece][steps]) / count
                mine = np.add.reduce(speeds) / len(speeds)
                percentages.append(100.0 * mine / theirs if theirs > 0 else np.inf)
        found.append(np.array(percentages))
    return found


def _shortfall(view: CaseView, checks: float, radius_m: float) -> F64:
    """(M,) f64 [1], by how much agents fell short of the traffic around them, mean over checks; 0 without checks."""
    each = speed_percentages(view, checks, radius_m)
    return np.array([np.mean(1.0 - np.minimum(found, 100.0) / 100.0) if len(found) else 0.0 for found in each])


def carla_ds_2_0(
    view: CaseView, *, min_reference_m: float, checks: float, radius_m: float, **penalties: float
) -> AgentValues:
    """Driving score 2.0, 0..100: route completion [%] times one factor per infraction."""
    drive = drive_of(view, min_reference_m)
    counts = drive.counts | {"minimum_speed": _shortfall(view, checks, radius_m)}
    score = driving_score_2_0(drive.completion, counts, drive.offroad, penalties)
    return measured(score, 1.0, *drive.missing)


def carla_ds_2_1(
    view: CaseView, *, min_reference_m: float, checks: float, radius_m: float, **weights: float
) -> AgentValues:
    """Driving score 2.1, 0..100: route completion [%] over one plus the weighted sum of infractions."""
    drive = drive_of(view, min_reference_m)
    counts = drive.counts | {"minimum_speed": _shortfall(view, checks, radius_m)}
    score = driving_score_2_1(drive.completion, counts, drive.offroad, weights)
    return measured(score, 1.0, *drive.missing)


def b2d_driving_score(view: CaseView, *, min_reference_m: float, **penalties: float) -> AgentValues:
    """Driving score 2.0 without the minimum speed, 0..100."""
    drive = drive_of(view, min_reference_m)
    return measured(driving_score_2_0(drive.completion, drive.counts, drive.offroad, penalties), 1.0, *drive.missing)


def b2d_success(view: CaseView, *, min_reference_m: float, completed: float) -> AgentValues:
    """1 where at least the share `completed` of the route was driven without any infraction but a low speed."""
    drive = drive_of(view, min_reference_m)
    clean = (sum(drive.counts.values()) == 0) & (drive.offroad == 0)
    return measured(clean & (drive.completion >= completed), 1.0, *drive.missing)


def b2d_efficiency(view: CaseView, *, checks: float, radius_m: float, top: float) -> AgentValues:
    """Mean over checks of the speed [%] of the traffic around; checks above `top` [%] are dropped, as published."""
    each = [found[found <= top] for found in speed_percentages(view, checks, radius_m)]
    means = [float(found.mean()) if len(found) else 0.0 for found in each]
    return measured(
        np.array(means),
        1.0,
        (view.never_active, "no_exposure"),
        (~route_progress(view).logged, "no_log"),
        (np.array([len(found) == 0 for found in each], dtype=bool), "no_exposure"),
    )


def b2d_smoothness(view: CaseView, *, segment_s: float, window: float, **bounds: float) -> AgentValues:
    """Share of segments of `segment_s` [s] whose six series, filtered over `window` samples, keep nuPlan's bounds."""
    return _smoothness(view, segment_s, int(window), bounds, compat=False)


def b2d_smoothness_compat(view: CaseView, *, segment_s: float, window: float, **bounds: float) -> AgentValues:
    """The same as published: the yaw acceleration is the yaw rate filtered once more, and both are in degrees while
    their bounds are in radians."""
    return _smoothness(view, segment_s, int(window), bounds, compat=True)


def _smoothness(
    view: CaseView, segment_s: float, window: int, bounds: Mapping[str, float], compat: bool
) -> AgentValues:
    limits = {name: (bounds[f"{name}_min"], bounds[f"{name}_max"]) for name in NUPLAN_BOUNDS}
    size = max(round(segment_s / view.dt), window)
    good, seen = np.zeros(view.count), np.zeros(view.count)
    for start, stop, rows in drives(view.driven):
        whole = (stop - start) // size
        if whole == 0:
            continue
        taken = slice(start, stop)
        along, across, heading = (view.ends(name)[rows, taken] for name in ("accel_long", "accel_lat", "heading"))
        series = smoothness_series(along, across, heading, view.dt, window, compat=compat)
        for segment in range(whole):
            part = {name: values[..., segment * size : (segment + 1) * size] for name, values in series.items()}
            good[rows] += nuplan_comfortable(part, limits)
        seen[rows] += whole
    share = good / np.maximum(seen, 1.0)
    return measured(share, 1.0, (view.never_active, "no_exposure"), (seen == 0, "too_short"))


def smoothness_series(
    longitudinal: F64, lateral: F64, heading: F64, dt: float, window: int, *, compat: bool
) -> dict[str, F64]:
    """Bench2Drive's six series, by the names of NUPLAN_BOUNDS; n >= window samples.

    longitudinal  (..., n)  f64 [m/s^2]
    lateral       (..., n)  f64 [m/s^2]
    heading       (..., n)  f64 [rad]
    dt            [s] between samples
    """
    n = heading.shape[-1]

    def filtered(values: F64, order: int, derivative: int) -> F64:
        weights = filter_weights(n, window, order, derivative)
        return np.asarray(np.einsum("...i,ij->...j", values, weights) / dt**derivative)

    yaw = np.unwrap(heading)
    magnitude = np.hypot(longitudinal, lateral)
    yaw_rate, yaw_acceleration = filtered(yaw, 2, 1), filtered(yaw, 3, 2)
    if compat:
        yaw_rate = np.degrees(yaw_rate)
        yaw_acceleration = filtered(yaw_rate, 2, 0)
    return {
        "longitudinal_acceleration": filtered(longitudinal, 2, 0),
        "lateral_acceleration": filtered(lateral, 2, 0),
        "jerk": filtered(magnitude, 2, 1),
        "longitudinal_jerk": filtered(longitudinal, 2, 1),
        "yaw_rate": yaw_rate,
        "yaw_acceleration": yaw_acceleration,
    }


# -- tables of many routes ----------------------------------------------------------------------------------------


class RouteResult(NamedTuple):
    """One route of a benchmark: score 0..100, success, efficiency [%] and smoothness [1], None where missing."""

    score: float
    success: bool
    efficiency: float | None = None
    smoothness: float | None = None


def spread(scores: Sequence[float]) -> float | None:
    """Standard deviation over routes with n - 1; None below two."""
    return float(np.std(np.asarray(scores, dtype=np.float64), ddof=1)) if len(scores) > 1 else None


def b2d_table(
    routes: Sequence[str],
    results: Mapping[str, RouteResult],
    classes: Mapping[str, Sequence[str]],
    *,
    compat: bool = False,
) -> dict[str, Any]:
    """Bench2Drive's figures over its routes; a route without a result counts zero.

    routes   every route of the benchmark
    classes  ability to its routes, for example of ABILITIES; which routes test what is configuration
    compat   as published: the traffic signs enter the mean of the abilities twice

    Raises UsageError for results or classes of routes that are not in the benchmark.
    """
    known = set(routes)
    foreign = sorted((set(results) | {route for members in classes.values() for route in members}) - known)
    if foreign or not routes:
        raise UsageError(
            f"routes {listed(foreign) or 'none'}: expected routes of the benchmark, which has {len(routes)}. "
            "List every route of the benchmark in `routes`."
        )
    scores = [results[route].score if route in results else 0.0 for route in routes]
    won = {route for route, result in results.items() if result.success}
    abilities = {name: _share(won, members) for name, members in classes.items()}
    rated = [rate for rate in abilities.values() if rate is not None]
    if compat and (signs := abilities.get("traffic_signs")) is not None:
        rated.append(signs)
    found = list(results.values())
    return {
        "routes": len(routes),
        "missing": len(known - results.keys()),
        "driving_score": float(np.mean(scores)),
        "driving_score_spread": spread(scores),
        "success_rate": len(won) / len(routes),
        "abilities": abilities,
        "ability": float(np.mean(rated)) if rated else None,
        "efficiency": _mean([result.efficiency for result in found]),
        "smoothness": _mean([result.smoothness for result in found]),
    }


def _share(won: set[str], members: Sequence[str]) -> float | None:
    return sum(route in won for route in members) / len(members) if members else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None

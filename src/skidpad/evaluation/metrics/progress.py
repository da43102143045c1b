"""How far an agent got: distance, goals, the outcome of its drive, and progress against its own log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, kept, mean_over, measured, shared
from skidpad.scenes.events import INFRACTION

# Route projection: an arc may change by this much more than the distance moved before it counts as a jump to another
# part of a route that crosses itself.
JUMP_FACTOR, JUMP_M = 1.5, 10.0
SAMPLES = 16


@shared
def metres_driven(view: CaseView, *, teleport_m: float) -> F64:
    """(M,) f64 [m], moved in active steps, without teleports: moves longer by `teleport_m` [m] than the faster of the
    two speeds around them explains."""
    speed = np.abs(view.states("speed"))
    explained = np.maximum(speed[:, :-1], speed[:, 1:]) * view.dt + teleport_m
    return np.asarray(np.where(view.step_length <= explained, view.step_length, 0.0).sum(axis=1))


def distance(view: CaseView, *, teleport_m: float) -> AgentValues:
    """Metres [m] driven, without teleports."""
    return measured(metres_driven(view, teleport_m=teleport_m), 1.0, (view.never_active, "no_exposure"))


def _goals(view: CaseView, name: str = "goal_count") -> tuple[F64, F64]:
    """(M,) goals reached, (M,) goals assigned: all of them, or the first set with `goal_first`."""
    reached = view.states("goal_index").max(axis=1, initial=0.0)
    return reached, view.goals(name).astype(np.float64)


def goals_reached(view: CaseView) -> AgentValues:
    """Goals reached; above the number assigned where sets of goals regenerate."""
    reached, assigned = _goals(view)
    return measured(reached, 1.0, (view.never_active, "no_exposure"), (assigned == 0, "not_applicable"))


def goal_rate(view: CaseView) -> AgentValues:
    """Goals reached over goals assigned; where sets regenerate, over all of them."""
    reached, assigned = _goals(view)
    return measured(reached, assigned, (view.never_active, "no_exposure"), (assigned == 0, "not_applicable"))


def _outcome(view: CaseView, which: str) -> AgentValues:
    # The four outcomes partition the agents that had a goal: infraction, else all, some or no goals of the first set.
    reached, assigned = _goals(view, "goal_first")
    clean = ~view.happened(INFRACTION).any(axis=1)
    happened = {
        "score": clean & (reached >= assigned),
        "partial": clean & (reached > 0) & (reached < assigned),
        "dnf": clean & (reached == 0),
    }[which]
    return measured(happened, 1.0, (view.never_active, "no_exposure"), (assigned == 0, "not_applicable"))


def score(view: CaseView) -> AgentValues:
    """1 where all goals of the first set were reached without any infraction."""
    return _outcome(view, "score")


def partial_rate(view: CaseView) -> AgentValues:
    """1 where some but not all goals were reached, without any infraction."""
    return _outcome(view, "partial")


def dnf_rate(view: CaseView) -> AgentValues:
    """1 where no goal was reached, without any infraction."""
    return _outcome(view, "dnf")


def avg_speed(view: CaseView) -> AgentValues:
    """Mean speed [m/s] at the ends of active steps."""
    return mean_over(np.abs(view.ends("speed")), view.driven)


def stationary_share(view: CaseView, *, below: float) -> AgentValues:
    """Share of active steps that end slower than `below` [m/s]."""
    return mean_over(np.abs(view.ends("speed")) < below, view.driven)


def episode_length(view: CaseView) -> AgentValues:
    """Steps the world ran."""
    return measured(np.full(len(view.traces), view.steps))


def active_time(view: CaseView) -> AgentValues:
    """Seconds [s] the agent drove."""
    return measured(view.active.sum(axis=1) * view.dt)


def clipped_actions(view: CaseView) -> AgentValues:
    """Share of active steps in which the policy's action lay outside the box; only agents that a policy drives."""
    clipped, driven = np.zeros(view.active.shape, dtype=bool), np.zeros(view.count, dtype=bool)
    for case, trace in enumerate(view.traces):
        position = {agent: column for column, agent in enumerate(trace["policy_agent"].tolist())}
        for row in np.flatnonzero(view.case == case):
            column = position.get(int(view.agents[row]))
            if column is not None:
                clipped[row], driven[row] = trace["action_clipped"][0][:, column], True
    return mean_over(clipped, view.active, (~driven, "not_applicable"))


class RouteProgress(NamedTuple):
    """How far agents got along the routes of their recorded drives, in the time they had.

    metres     (M,)  f64 [m]  gained along the route, >= 0
    reference  (M,)  f64 [m]  gained by the recorded drive
    logged     (M,)  bool     False where fewer than two rows of the log cover the drive
    """

    metres: F64
    reference: F64
    logged: Bool


def route_progress(view: CaseView) -> RouteProgress:
    """Metres along the route, of agents and of their logs.

    The route is the lanes matched to the log; a track without one is measured by its path length. Driving backwards
    along the route counts as no progress.
    """
    return view.once("route progress", _route_progress)


def _route_progress(view: CaseView) -> RouteProgress:
    log_x, log_y, _, log_valid = view.log_rows
    x, y = view.states("x"), view.states("y")
    known = np.zeros_like(log_valid)
    known[:, 1:] = view.driven
    known[:, :-1] |= view.active
    metres, reference = np.zeros(view.count), np.zeros(view.count)
    # The same route, and the same recorded drive, stand behind every case of an agent.
    for agent in np.unique(view.agents).tolist():
        route = kept(view.scene, ("route line", agent), partial(_route_line, view, agent))
        rows = np.flatnonzero(view.agents == agent)
        log, log_there = np.stack([log_x[rows[0]], log_y[rows[0]]]), log_valid[rows[0]]
        drives = [np.stack([x[m, known[m]], y[m, known[m]]]) for m in rows]
        gained = _route_metres([*drives, log[:, log_there]], route)
        metres[rows], reference[rows] = gained[:-1], gained[-1]
    return RouteProgress(metres, reference, np.asarray(log_valid.sum(axis=1) >= 2))


@shared
def progress_ratio(view: CaseView, *, min_reference_m: float) -> AgentValues:
    """Route metres of the agent over those of its own log in the same time.

    A log that moved less than `min_reference_m` [m] is no reference.
    """
    metres, reference, logged = route_progress(view)
    return measured(
        metres / np.maximum(reference, min_reference_m),
        1.0,
        (view.never_active, "no_exposure"),
        (~logged, "no_log"),
        (reference < min_reference_m, "no_exposure"),
    )


def _route_line(view: CaseView, agent: int) -> tuple[F64, F64] | None:
    """The centre line of a track's route: (P, 2) f64 [m] vertices and (P,) f64 [m] arc, or None."""
    tracks, road = view.scene.tracks, view.scene.road
    lanes = tracks.route(agent)
    if len(lanes) == 0:
        return None
    line = np.concatenate([road.xyz[road.lane_points(int(lane)), :2] for lane in lanes]).astype(np.float64)
    length = np.hypot(*np.diff(line, axis=0).T)
    keep = np.concatenate([[True], length > 0])  # consecutive lanes share a vertex
    line = line[keep]
    return line, np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])


def _route_metres(drives: Sequence[F64], route: tuple[F64, F64] | None) -> F64:
    """Metres gained along the route from the first to the last point of each drive, >= 0; along their own path if there
    is no route. Drives (2, n) f64 [m], of any lengths."""
    found = np.zeros(len(drives))
    points, paths, rows = [], [], []
    for row, drive in enumerate(drives):
        if drive.shape[1] < 2:
            continue
        path = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(drive)))])
        if route is None or len(route[0]) < 2:
            found[row] = path[-1]
            continue
        chosen = _samples(drive.shape[1])
        points.append(drive[:, chosen])
        paths.append(path[chosen])
        rows.append(row)
    if rows and route is not None:
        arcs = _arcs(points, paths, *route)
        found[rows] = [max(0.0, float(arc[-1] - arc[0])) for arc in arcs]
    return found


@lru_cache(1024)
def _samples(count: int) -> NDArray[np.int64]:
    """Which of so many points are looked at."""
    return np.unique(np.linspace(0, count - 1, SAMPLES).astype(np.int64))


def _arcs(drives: Sequence[F64], paths: Sequence[F64], line: F64, line_arc: F64) -> list[F64]:
    """Arc [m] of the place on the line nearest to each point of some drives, (2, k) f64 each.

    Where a route crosses or repeats itself the nearest place may lie a lap away. If any arc of a drive jumps by more
    than the distance moved allows, its points are walked in order and each searches only where the one before can have
    led. The ends of the line go on straight, so that driving past them still counts.
    """
    # Coordinates apart: (K, P) arrays are several times faster here than (K, P, 2).
    (x0, y0), (dx, dy) = line[:-1].T, np.diff(line, axis=0).T
    squared = dx * dx + dy * dy
    points = np.concatenate(drives, axis=1)
    from_x, from_y = points[0][:, None] - x0, points[1][:, None] - y0
    along = (from_x * dx + from_y * dy) / squared
    low, high = np.zeros(len(squared)), np.ones(len(squared))
    low[0], high[-1] = -np.inf, np.inf
    along = np.minimum(np.maximum(along, low), high)
    gap = (from_x - along * dx) ** 2 + (from_y - along * dy) ** 2
    arcs = line_arc[:-1] + along * np.sqrt(squared)
    best = arcs[np.arange(len(arcs)), gap.argmin(axis=1)]
    found, start = [], 0
    for path in paths:
        own = slice(start, start + len(path))
        start = own.stop
        found.append(_without_jumps(best[own], arcs[own], gap[own], JUMP_FACTOR * np.diff(path) + JUMP_M))
    return found


def _without_jumps(best: F64, arcs: F64, gap: F64, reach: F64) -> F64:
    """Arcs of one drive: the nearest ones, (k,) f64, unless they jump further than (k - 1,) f64 `reach`."""
    if np.all(np.abs(np.diff(best)) <= reach):
        return best
    for row in range(1, len(best)):
        near = np.abs(arcs[row] - best[row - 1]) <= reach[row - 1]
        if near.any():
            best[row] = arcs[row, np.where(near, gap[row], np.inf).argmin()]
        else:
            best[row] = best[row - 1]
    return best

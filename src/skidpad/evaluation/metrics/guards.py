"""Guards against metrics that lie: dead ones, and values that contradict each other or the trace.

A peer published a comfort score that was 1 for every car ever scored, because a counter was never incremented.
`dead_metrics` looks for such numbers over many rows, `cross_checks` for contradictions in one case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from skidpad.evaluation.metrics.registry import METRICS
from skidpad.evaluation.metrics.view import AgentValues, CaseView
from skidpad.runs.records import Record
from skidpad.runs.trace import Trace
from skidpad.scenes.events import COLLISION, Event
from skidpad.scenes.scene import Scene

MIN_ROWS, MIN_SCENES = 200, 20
END_SHARE = 0.995
OUTCOMES = ("score", "infraction_rate", "partial_rate", "dnf_rate")
# (smaller, larger): the first counts a subset of what the second counts.
SUBSETS = (
    ("at_fault_collision_rate", "collision_rate"),
    ("at_fault_skidpad_rate", "collision_rate"),
    ("collision_by_log_rate", "collision_rate"),
    ("collision_vru_rate", "collision_rate"),
    ("collision_rate", "infraction_rate"),
    ("collision_rate", "collision_events"),
    ("collision_events", "infraction_events"),
    ("offroad_rate", "infraction_rate"),
    ("red_light_rate", "infraction_rate"),
    ("stop_sign_rate", "infraction_rate"),
    ("offroad_time", "active_time"),
)


class Dead(NamedTuple):
    """A metric that says nothing.

    why       "constant 1", "99.8 % of rows at 1" or "equal to <metric>"
    expected  the declared reason why that is right here, None if nobody declared one
    """

    metric: str
    why: str
    expected: str | None


def dead_metrics(records: Iterable[Record], expected: Mapping[str, str] | None = None) -> list[Dead]:
    """Metrics that are constant, stuck at an end of their range, or copies of another, over finished records.

    A metric is judged where at least 200 rows of at least 20 scenes hold a valid value. Stuck means more than 99.5 %
    of rows at one end although it is computed from continuous motion; metrics of rare events (`Metric.rare`) are only
    judged by the other two. Copies are reported for the metric that stands later in the registry, and only where
    neither is constant.

    records   as written to a run folder; those without a result are skipped
    expected  metric to the reason why it may be dead on this set, for example that no scene has lights
    """
    allowed = dict(expected or {})
    done = [(record.scene_digest, record.result["metrics"]) for record in records if record.result]
    rows, scenes = [metrics for _, metrics in done], np.array([scene for scene, _ in done], np.str_)
    nothing = {"valid": False}
    # Record by record, since what a record holds lies together in memory; + 0.0 folds -0.0, which equals 0.0.
    held = ((metrics.get(name, nothing) for name in METRICS) for metrics in rows)
    table = np.array([[one["value"] if one["valid"] else np.nan for one in line] for line in held], np.float64) + 0.0
    found: list[Dead] = []
    alive: dict[bytes, str] = {}
    for name, column in zip(METRICS, table.reshape(len(rows), len(METRICS)).T, strict=True):
        valid = np.isfinite(column)
        if valid.sum() < MIN_ROWS or len(np.unique(scenes[valid])) < MIN_SCENES:
            continue
        values = column[valid].tolist()
        other = alive.get(column.tobytes())
        why = _stuck(name, values) or (other and f"equal to {other}")
        if why:
            found.append(Dead(name, why, allowed.get(name)))
        if len(set(values)) > 1:
            alive.setdefault(column.tobytes(), name)
    return found


def _stuck(name: str, values: list[float]) -> str | None:
    distinct = set(values)
    if len(distinct) == 1:
        return f"constant {distinct.pop():g}"
    if METRICS[name].rare:
        return None
    for end in METRICS[name].range:
        share = sum(value == end for value in values) / len(values)
        if share > END_SHARE:
            return f"{100 * share:.1f} % of rows at {end:g}"
    return None


def cross_checks(trace: Trace, scene: Scene, agents: Mapping[str, AgentValues]) -> list[str]:
    """Sentences about what contradicts; empty when all is well. Checks whatever of `agents` is there.

    agents  as `compute_agents` returned it for this trace and scene
    """
    return contradictions(CaseView(trace, scene), agents)


def contradictions(view: CaseView, agents: Mapping[str, AgentValues]) -> list[str]:
    """The same of all cases of a view, `agents` being what `agents_of` returned for it."""
    return [
        *_partition(agents),
        *(line for small, large in SUBSETS for line in _subset(agents, small, large)),
        *_recount(view),
    ]


def _partition(agents: Mapping[str, AgentValues]) -> list[str]:
    if not all(name in agents for name in OUTCOMES):
        return []
    parts = [agents[name] for name in OUTCOMES]
    valid = np.logical_and.reduce([part.valid for part in parts])
    total = np.sum([part.value for part in parts], axis=0)
    return [
        f"outcomes of agent row {row} sum to {total[row]:g}, not 1" for row in np.flatnonzero(valid & (total != 1.0))
    ]


def _subset(agents: Mapping[str, AgentValues], small: str, large: str) -> list[str]:
    if small not in agents or large not in agents:
        return []
    a, b = agents[small], agents[large]
    bad = np.flatnonzero(a.valid & b.valid & (a.value > b.value + 1e-9))
    return [f"{small} {a.value[row]:g} of agent row {row} is above {large} {b.value[row]:g}" for row in bad]


def _recount(view: CaseView) -> list[str]:
    """Event bits against the arrays they are told twice in."""
    problems = []
    hit = view.happened(COLLISION)
    partner = view.whole("contact_partner")[:, 1:]
    for row in np.flatnonzero((hit & (partner < 0)).any(axis=1)):
        problems.append(f"agent row {row} collided in a step without a contact partner")
    for row in np.flatnonzero((view.happened(Event.AT_FAULT) & ~hit).any(axis=1)):
        problems.append(f"agent row {row} is at fault in a step without a collision")
    reached = view.states("goal_index").max(axis=1, initial=0.0)
    for row in np.flatnonzero((reached > 0) & ~view.happened(Event.GOAL | Event.GOAL_SLOW).any(axis=1)):
        problems.append(f"agent row {row} has reached {reached[row]:g} goals without a goal event")
    return problems

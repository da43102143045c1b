"""PufferDrive's metrics under their own definitions, for people who move from one to the other (Q11).

Names that sound like ours count something else there. The table says what, and each name can be computed as the peer
would, on our traces, as `puffer/<name>`. These values enter no report and no comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from skidpad.evaluation.metrics.progress import goals_reached, metres_driven
from skidpad.evaluation.metrics.registry import (
    MOVES,
    POSITIVE,
    RATE,
    Direction,
    Metric,
    MetricValue,
    reduced,
    values_of,
)
from skidpad.evaluation.metrics.view import F64, AgentValues, CaseView, measured
from skidpad.runs.trace import Trace
from skidpad.scenes.events import INFRACTION
from skidpad.scenes.scene import Scene

SOURCE = "PufferDrive, compat only"
FASTER = {"above": 2.5}


class PeerMetric(NamedTuple):
    """One name of the peer: what it is here, and what differs.

    ours     our metric that answers the same question
    differs  one line
    metric   how `puffer/<name>` is computed
    """

    ours: str
    differs: str
    metric: Metric


def _infringed(view: CaseView) -> F64:
    return np.asarray(view.happened(INFRACTION).any(axis=1), dtype=np.float64)


def _of_case(view: CaseView, total: float) -> AgentValues:
    return measured(np.array([total]), 1.0, (view.count == 0, "not_applicable"))


def total_infraction_count(view: CaseView) -> AgentValues:
    """Agents of the case that had any infraction, however many each."""
    return _of_case(view, float(_infringed(view).sum()))


def avg_distance_per_infraction(view: CaseView, *, teleport_m: float) -> AgentValues:
    """Metres [m] of all agents over the agents with an infraction, at least one."""
    return _of_case(view, float(metres_driven(view, teleport_m=teleport_m).sum() / max(_infringed(view).sum(), 1.0)))


def num_goals_reached(view: CaseView) -> AgentValues:
    """Goals reached by all agents of the case together."""
    return _of_case(view, float(goals_reached(view).value.sum()))


def _there(view: CaseView) -> tuple[tuple[object, str], ...]:
    return (view.never_active, "no_exposure"), (not view.has_lanes, "no_lane")


def velocity_progress_sum(view: CaseView, *, above: float) -> AgentValues:
    """Sum over steps of max(cos(heading error), 0) where the agent is faster than `above` [m/s]."""
    moving = view.on_lane & (view.ends("speed") > above)
    gained = np.where(moving, np.maximum(np.cos(view.ends("lane_heading_error")), 0.0), 0.0)
    return measured(gained.sum(axis=1), 1.0, *_there(view))


def lane_center_rate(view: CaseView, *, within: float) -> AgentValues:
    """1 where the last state of the episode is closer than `within` [m] to a lane's centre line."""
    last = (view.lane[:, -1:] >= 0) & (np.abs(view.ends("lane_offset")[:, -1:]) < within)
    return measured(last.any(axis=1), 1.0, *_there(view))


def comfort_violation_count(view: CaseView) -> AgentValues:
    """0: the peer declares this counter and never raises it."""
    return measured(np.zeros(view.count), 1.0, (view.never_active, "no_exposure"))


def completion_rate(view: CaseView) -> AgentValues:
    """1 where a goal was reached, whatever else happened."""
    found = goals_reached(view)
    return found._replace(numerator=np.minimum(found.numerator, 1.0))


def _line(
    name: str,
    unit: str,
    direction: Direction,
    function: Callable[..., AgentValues],
    *,
    joint: bool = False,
    parameters: Mapping[str, float] | None = None,
) -> Metric:
    return Metric(
        f"puffer/{name}",
        unit,
        RATE if unit == "rate" else POSITIVE,
        direction,
        "joint" if joint else "final",
        function,
        "the peer's definition, for migration only",
        parameters=parameters or {},
        source=SOURCE,
    )


PEER: Mapping[str, PeerMetric] = {
    "total_infraction_count": PeerMetric(
        "infraction_events",
        "counts agents with an infraction, not infractions",
        _line("total_infraction_count", "count", "lower", total_infraction_count, joint=True),
    ),
    "avg_distance_per_infraction": PeerMetric(
        "distance_per_infraction",
        "divides by max(agents with an infraction, 1): without any the whole distance is shown as if measured",
        _line("avg_distance_per_infraction", "m", "higher", avg_distance_per_infraction, joint=True, parameters=MOVES),
    ),
    "num_goals_reached": PeerMetric(
        "goals_reached",
        "total of the case instead of a mean per agent; tests positions only, so that a goal passed within one step is "
        "missed there",
        _line("num_goals_reached", "count", "higher", num_goals_reached, joint=True),
    ),
    "velocity_progress_sum": PeerMetric(
        "velocity_progress",
        "a sum over steps, which grows with the length of the episode",
        _line("velocity_progress_sum", "steps", "higher", velocity_progress_sum, parameters=FASTER),
    ),
    "lane_center_rate": PeerMetric(
        "lane_center_rate",
        "looks at the last step only, also of agents that stopped long before",
        _line("lane_center_rate", "rate", "higher", lane_center_rate, parameters={"within": 0.5}),
    ),
    "comfort_violation_count": PeerMetric(
        "comfort_violations",
        "the counter is never raised: 0 for every car ever scored",
        _line("comfort_violation_count", "count", "lower", comfort_violation_count),
    ),
    "completion_rate": PeerMetric(
        "score",
        "one goal is enough, and infractions do not matter",
        _line("completion_rate", "rate", "higher", completion_rate),
    ),
}


def compute_peer(trace: Trace, scene: Scene) -> dict[str, MetricValue]:
    """The peer's values of one case, by name (`puffer/...`). Raises what `registry.compute` raises."""
    view = CaseView(trace, scene)
    return {entry.metric.name: reduced(entry.metric, values_of(entry.metric, view)) for entry in PEER.values()}

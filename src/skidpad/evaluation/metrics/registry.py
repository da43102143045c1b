"""The metrics: one line each, and the two functions that compute them.

The lines are the documentation, the range check and the identity of a metric at once: `metric_spec_digest` hashes
them, so a changed threshold cannot keep its old name. Adding a metric is a function in this folder, a line here, and
its hand-worked value and sensitivity pair in the tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.files import parse_json
from skidpad.errors import CaseError, UsageError, listed, nearest
from skidpad.evaluation.metrics import (
    carla_score,
    comfort,
    composites,
    contacts,
    displacement,
    lane_keeping,
    navsim_score,
    nuplan_score,
    progress,
    rules,
    surrogates,
    ttc,
)
from skidpad.evaluation.metrics.view import MOST_NUMBERS, REASONS, AgentValues, CaseView
from skidpad.runs.trace import Trace
from skidpad.scenes.scene import Scene

Direction = Literal["higher", "lower", "none"]
Shape = Literal["ever", "count", "step", "final", "exposure", "joint"]
Aggregation = Literal["by_scene", "by_agent"]


@dataclass(frozen=True)
class Metric:
    """What a metric is.

    version      any change of result raises it; values of different versions are never compared
    unit         of the value; "rate" is a share in 0..1, "count" a number of things
    range        lowest and highest value of one agent, inclusive; None = unbounded
    direction    which values are better; "none" = neither
    shape        how steps become the value of one agent: "ever" 1 if it happened in the agent's active time, "count"
                 a total, "step" a mean over active steps, "final" one value at the end, "exposure" numerator and
                 denominator kept apart, "joint" one value of the case
    aggregation  the primary one; exposure metrics are sums over sums whatever the weighting
    needs        what a scene must have for a value to exist
    parameters   thresholds handed to `function`, in SI units
    source       where the definition comes from
    aid          one line for people: how to read the number
    rare         its inputs are events that may rightly never happen, so many equal values are no sign of death
    """

    name: str
    unit: str
    range: tuple[float, float | None]
    direction: Direction
    shape: Shape
    function: Callable[..., AgentValues]
    aid: str
    version: int = 1
    aggregation: Aggregation = "by_scene"
    needs: tuple[str, ...] = ()
    parameters: Mapping[str, float] = field(default_factory=dict)
    source: str = "Skidpad"
    rare: bool = False

    def spec(self) -> dict[str, Any]:
        """The registry line as plain values: what `metric_spec_digest` hashes and the documentation prints."""
        return {
            "name": self.name,
            "version": self.version,
            "unit": self.unit,
            "range": list(self.range),
            "direction": self.direction,
            "shape": self.shape,
            "aggregation": self.aggregation,
            "needs": sorted(self.needs),
            "parameters": dict(self.parameters),
            "source": self.source,
        }


class MetricValue(NamedTuple):
    """One metric of one case.

    numerator    sum over the valid agents under test; of an exposure metric, the counted part
    denominator  number of valid agents, or the exposure; 1 for joint metrics
    valid        False = not measured, and `reason` says why
    reason       one of REASONS, or None

    An exposure metric without exposure is not valid but keeps its numerator: `distance_per_infraction` sums metres
    over all cases, also those without an infraction.
    """

    numerator: float
    denominator: float
    valid: bool
    reason: str | None

    @property
    def value(self) -> float | None:
        """Numerator over denominator, None where not valid."""
        return self.numerator / self.denominator if self.valid else None

    def as_record(self) -> dict[str, Any]:
        """As it stands in a record."""
        return {
            "value": self.value,
            "valid": self.valid,
            "numerator": self.numerator,
            "denominator": self.denominator,
            "reason": self.reason,
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> MetricValue:
        """The inverse of `as_record`."""
        return MetricValue(record["numerator"], record["denominator"], record["valid"], record["reason"])


RATE = (0.0, 1.0)
POSITIVE = (0.0, None)
# Simple comfort: |a_long|, |a_lat| [m/s^2], |jerk| [m/s^3].
COMFORT = {"longitudinal": 3.0, "lateral": 3.0, "jerk": 5.0}
NUPLAN = "nuPlan devkit (Apache-2.0), fixtures within 0.01"
FAULT = {"level_gate": 4.0}
MOVES = {"teleport_m": 5.0}
POINTS = (0.0, 100.0)


def bounds_of(pairs: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Lowest and highest values by series, as parameters `<series>_min` and `<series>_max`."""
    return {
        f"{name}_{side}": bound
        for name, pair in pairs.items()
        for side, bound in zip(("min", "max"), pair, strict=True)
    }


COMFORT_BOUNDS = bounds_of(comfort.NUPLAN_BOUNDS)
B2D = "Bench2Drive (arXiv 2406.03877)"
# Rules that several lines share; angles [rad], times [s], lengths [m].
AHEAD, BEHIND, NOT_BEHIND = (float(np.deg2rad(degrees)) for degrees in (30.0, 150.0, 170.0))
NEAR = {"reach": 50.0, "behind": NOT_BEHIND}
TTC_NUPLAN = {"threshold": 0.95, "ahead": AHEAD, "behind": BEHIND, "sample": 0.1, "samples": 29, "stopped": 0.005,
              **FAULT}  # fmt: skip
DIRECTION = {"window": 1.0, "compliant": 2.0, "violation": 6.0}
PROGRESS, SPEED, ON_ROAD = {"floor": 2.0}, {"worst": 2.23}, {"tolerance": 0.3}
NUPLAN_CONFIGURATION = "nuPlan devkit (Apache-2.0), shipped configuration"
NAVSIM = "NAVSIM (Apache-2.0) by the rules of September 2025; reference progress from the log, not PDM-Closed"

_LINES = (
    Metric("collision_rate", "rate", RATE, "lower", "ever", contacts.collision_rate,
           "share of cars that touched anything, whoever was to blame", rare=True),
    Metric("collision_events", "count", POSITIVE, "lower", "count", contacts.collision_events,
           "contacts per car; one that lasts counts once", rare=True),
    Metric("collision_vru_rate", "rate", RATE, "lower", "ever", contacts.collision_vru_rate,
           "share of cars that touched a pedestrian or a cyclist", rare=True),
    Metric("at_fault_collision_rate", "rate", RATE, "lower", "ever", contacts.at_fault_collision_rate,
           "share of cars that caused a contact by nuPlan's rule (fault.nuplan/1)",
           needs=("lanes",), parameters=FAULT, source=NUPLAN, rare=True),
    Metric("at_fault_skidpad_rate", "rate", RATE, "lower", "ever", contacts.at_fault_skidpad_rate,
           "share of cars that caused a contact by the simulator's rule (fault.skidpad/1)", rare=True),
    Metric("collision_by_log_rate", "rate", RATE, "lower", "ever", contacts.collision_by_log_rate,
           "share of cars hit by a replayed one that was to blame: the log cannot brake for a policy",
           needs=("lanes",), parameters=FAULT, source=NUPLAN, rare=True),
    Metric("offroad_rate", "rate", RATE, "lower", "ever", rules.offroad_rate,
           "share of cars that left the road; compare with the log's own row, maps have errors",
           needs=("map",), rare=True),
    Metric("offroad_time", "s", POSITIVE, "lower", "count", rules.offroad_time,
           "seconds per car off the road", needs=("map",), rare=True),
    Metric("red_light_rate", "rate", RATE, "lower", "ever", rules.red_light_rate,
           "share of cars that crossed on red; no data where the scene has no lights", needs=("signals",), rare=True),
    Metric("stop_sign_rate", "rate", RATE, "lower", "ever", rules.stop_sign_rate,
           "share of cars that rolled through a stop sign; no data where there is none", needs=("signals",), rare=True),
    Metric("yield_failure_rate", "rate", RATE, "lower", "ever", rules.yield_failure_rate,
           "share of cars that took somebody's right of way at a yield sign; no data where there is none",
           needs=("signals",), rare=True),
    Metric("infraction_rate", "rate", RATE, "lower", "ever", rules.infraction_rate,
           "share of cars with a collision, off-road, red light or stop sign", rare=True),
    Metric("infraction_events", "count", POSITIVE, "lower", "count", rules.infraction_events,
           "infractions of all kinds per car", rare=True),
    Metric("infractions_per_km", "1/km", POSITIVE, "lower", "exposure", rules.infractions_per_km,
           "all infractions over all kilometres", aggregation="by_agent", parameters=MOVES, rare=True),
    Metric("infractions_per_hour", "1/h", POSITIVE, "lower", "exposure", rules.infractions_per_hour,
           "all infractions over all hours driven", aggregation="by_agent", rare=True),
    Metric("distance_per_infraction", "m", POSITIVE, "higher", "exposure", rules.distance_per_infraction,
           "metres between infractions; without any only a bound can be given",
           aggregation="by_agent", parameters=MOVES, rare=True),
    Metric("distance", "m", POSITIVE, "none", "count", progress.distance,
           "metres driven per car", parameters=MOVES),
    Metric("goals_reached", "count", POSITIVE, "higher", "count", progress.goals_reached,
           "goals reached per car", needs=("goals",)),
    Metric("goal_rate", "rate", POSITIVE, "higher", "exposure", progress.goal_rate,
           "goals reached over goals given", aggregation="by_agent", needs=("goals",)),
    Metric("score", "rate", RATE, "higher", "final", progress.score,
           "share of cars that reached every goal without any infraction", needs=("goals",)),
    Metric("partial_rate", "rate", RATE, "lower", "final", progress.partial_rate,
           "share of cars without infraction that reached some goals but not all", needs=("goals",)),
    Metric("dnf_rate", "rate", RATE, "lower", "final", progress.dnf_rate,
           "share of cars without infraction that reached no goal at all", needs=("goals",)),
    Metric("progress_ratio", "1", POSITIVE, "higher", "final", progress.progress_ratio,
           "metres along the route, as a share of the log's; 1 keeps up with the recorded driver",
           needs=("log",), parameters={"min_reference_m": 1.0}),
    Metric("avg_speed", "m/s", POSITIVE, "none", "step", progress.avg_speed, "mean speed while driving"),
    Metric("stationary_share", "rate", RATE, "none", "step", progress.stationary_share,
           "share of the time at a standstill: shows the parked car that breaks no rule", parameters={"below": 0.2}),
    Metric("velocity_progress", "rate", RATE, "higher", "step", lane_keeping.velocity_progress,
           "share of the time in motion along the lane", needs=("lanes",), parameters={"above": 2.5}),
    Metric("lane_center_rate", "rate", RATE, "higher", "step", lane_keeping.lane_center_rate,
           "share of the time within half a metre of the lane's centre", needs=("lanes",), parameters={"within": 0.5}),
    Metric("lane_offset", "m", POSITIVE, "lower", "step", lane_keeping.lane_offset,
           "mean distance from the lane's centre", needs=("lanes",)),
    Metric("wrong_way_distance", "m", POSITIVE, "lower", "count", lane_keeping.wrong_way_distance,
           "metres per car against the direction of the lane", needs=("lanes",), parameters={"above": 2.5}, rare=True),
    Metric("overspeed", "m/s", POSITIVE, "lower", "step", lane_keeping.overspeed,
           "mean excess over the speed limit; slower counts as no excess", needs=("lanes", "limits")),
    Metric("overspeed_share", "rate", RATE, "lower", "step", lane_keeping.overspeed_share,
           "share of the time more than 2 m/s above the limit",
           needs=("lanes", "limits"), parameters={"tolerance": 2.0}, rare=True),
    Metric("comfort_violations", "count", (0.0, 3.0), "lower", "step", comfort.comfort_violations,
           "violated comfort clauses per step, of three", parameters=COMFORT),
    Metric("comfort_rate", "rate", RATE, "higher", "step", comfort.comfort_rate,
           "share of the time within simple limits of acceleration and jerk", parameters=COMFORT),
    Metric("comfort_nuplan", "rate", RATE, "higher", "final", comfort.comfort_nuplan,
           "share of cars whose whole drive keeps nuPlan's six smoothed comfort bounds",
           parameters=COMFORT_BOUNDS, source=NUPLAN),
    Metric("infeasible_rate", "rate", RATE, "lower", "step", comfort.infeasible_rate,
           "share of the time in motion that no car could have driven",
           parameters={"acceleration": 9.81, "radius": 3.5, "moving": 0.5, "turn_slack": 0.05}, rare=True),
    Metric("ade_log", "m", POSITIVE, "lower", "step", displacement.ade_log,
           "mean distance to the recorded drive at the same time; far is not wrong", needs=("log",)),
    Metric("fde_log", "m", POSITIVE, "lower", "final", displacement.fde_log,
           "distance to the recorded drive at its last moment", needs=("log",)),
    Metric("episode_length", "steps", POSITIVE, "none", "joint", progress.episode_length, "steps the world ran"),
    Metric("active_time", "s", POSITIVE, "none", "count", progress.active_time, "seconds driven per car"),
    Metric("clipped_actions", "rate", RATE, "lower", "step", progress.clipped_actions,
           "share of the time the policy asked for more than the car can do", needs=("actions",), rare=True),
    Metric("carla_ds_2_0", "points", POINTS, "higher", "final", carla_score.carla_ds_2_0,
           "percent of the route, times a factor below 1 per infraction; 100 is a clean, complete drive",
           needs=("log", "map"), parameters={**carla_score.ROUTE, **carla_score.SPEED_CHECKS,
                                             **carla_score.PENALTIES_2_0},
           source="CARLA leaderboard 2.0 (leaderboard.carla.org)"),
    Metric("carla_ds_2_1", "points", POINTS, "higher", "final", carla_score.carla_ds_2_1,
           "percent of the route, divided by 1 plus the weighted infractions; not comparable with 2.0",
           needs=("log", "map"), parameters={**carla_score.ROUTE, **carla_score.SPEED_CHECKS,
                                             **carla_score.WEIGHTS_2_1},
           source="CARLA leaderboard 2.1; coefficients from a secondary source, unconfirmed"),
    Metric("b2d_driving_score", "points", POINTS, "higher", "final", carla_score.b2d_driving_score,
           "the driving score 2.0 without its minimum speed",
           needs=("log", "map"), parameters={**carla_score.ROUTE, **carla_score.PENALTIES_2_0}, source=B2D),
    Metric("b2d_success", "rate", RATE, "higher", "final", carla_score.b2d_success,
           "share of cars that drove the whole route without an infraction other than a low speed",
           needs=("log", "map"), parameters={**carla_score.ROUTE, "completed": carla_score.COMPLETED}, source=B2D),
    Metric("b2d_efficiency", "%", (0.0, carla_score.TOP_PERCENT), "higher", "final", carla_score.b2d_efficiency,
           "speed in percent of the traffic around; above 100 is faster than the others",
           needs=("log",), parameters={**carla_score.SPEED_CHECKS, "top": carla_score.TOP_PERCENT}, source=B2D),
    Metric("b2d_smoothness", "rate", RATE, "higher", "final", carla_score.b2d_smoothness,
           "share of two-second pieces inside nuPlan's comfort bounds",
           parameters={**carla_score.SMOOTH, **COMFORT_BOUNDS}, source=B2D),
    Metric("b2d_smoothness_compat", "rate", RATE, "higher", "final", carla_score.b2d_smoothness_compat,
           "the same with the faults of the published code: nearly every turn fails",
           parameters={**carla_score.SMOOTH, **COMFORT_BOUNDS}, source=B2D),
    Metric("puffer_score", "1", RATE, "higher", "final", composites.puffer_score,
           "the peer's composite with its comfort counted; for migration only",
           needs=("lanes",), parameters={**composites.PUFFER, **MOVES, **COMFORT}, source="PufferDrive"),
    Metric("puffer_score_compat", "1", RATE, "higher", "final", composites.puffer_score_compat,
           "the peer's composite as published: a tenth of it is given for nothing",
           needs=("lanes",), parameters={**composites.PUFFER, **MOVES, **COMFORT}, source="PufferDrive"),
    Metric("vmax_score", "1", RATE, "higher", "final", composites.vmax_score,
           "V-Max's composite; not nuPlan's score, although described so",
           needs=("lanes", "limits", "log"),
           parameters={**composites.VMAX, **FAULT, **bounds_of(composites.VMAX_BOUNDS)},
           source="V-Max's paper, no code seen"),
    Metric("ttc.nuplan", "rate", RATE, "higher", "final", ttc.ttc_nuplan,
           "share of cars that were never within 0.95 s of meeting what is ahead, by nuPlan's samples",
           needs=("lanes",), parameters=TTC_NUPLAN, source=NUPLAN_CONFIGURATION),
    Metric("ttc.navsim", "rate", RATE, "higher", "final", ttc.ttc_navsim,
           "share of cars that would have met nobody at 0, 0.3, 0.6 or 0.9 s ahead at any time",
           needs=("lanes",), parameters={"ahead": AHEAD, "behind": BEHIND, "sample": 0.3, "samples": 4,
                                         "stopped": 0.005}, source="NAVSIM (Apache-2.0)"),
    Metric("ttc.gap", "s", (0.0, 5.0), "higher", "final", ttc.ttc_gap,
           "least gap over closing speed to the car in front; 5 where none was ever closing in",
           parameters={"cap": 5.0, "turned": float(np.deg2rad(75.0)), "aligned": float(np.deg2rad(10.0)),
                       "overlap": 0.5}, source="arXiv 2305.12032"),
    Metric("ttc.sweep", "s", (0.0, 5.0), "higher", "final", ttc.ttc_sweep,
           "least time to a first touch if everybody kept going; 5 where nothing was near, 0 in a contact",
           parameters={**NEAR, "horizon": 5.0}),
    Metric("ttc.sweep_share", "rate", RATE, "higher", "step", ttc.ttc_sweep_share,
           "share of the time with at least 0.95 s to a first touch",
           parameters={**NEAR, "horizon": 5.0, "threshold": 0.95}),
    Metric("ttc.vmax", "rate", RATE, "higher", "final", ttc.ttc_vmax,
           "as ttc.nuplan for what is straight ahead only; for migration",
           parameters={"threshold": 0.95, "ahead": AHEAD, "sample": 0.1, "samples": 50, "stopped": 0.005},
           source="V-Max's paper, no code seen; compat only"),
    Metric("ttc.puffer", "rate", RATE, "higher", "step", ttc.ttc_puffer,
           "share of the time with 0.95 s of corner distance over closing speed; for migration",
           parameters={**NEAR, "threshold": 0.95}, source="PufferDrive; compat only"),
    Metric("thw", "s", POSITIVE, "higher", "final", surrogates.thw,
           "least time gap to the car in front on the route; no data where nobody was followed",
           needs=("lanes",), parameters={"above": 1.0}),
    Metric("pet", "s", (0.0, 5.0), "higher", "final", surrogates.pet,
           "least time between two crossing paths' claims to one place; no data where none crossed",
           parameters={"horizon": 5.0, "crossing": float(np.deg2rad(20.0))}),
    Metric("drac", "m/s^2", POSITIVE, "lower", "final", surrogates.drac,
           "hardest braking that the car in front ever required; above 3.4 is commonly called a conflict",
           needs=("lanes",), parameters={"least_gap": 0.1}),
    Metric("nuplan_no_fault", "rate", RATE, "higher", "final", nuplan_score.nuplan_no_fault,
           "1 without a contact of own fault, 0.5 with one object, 0 with a road user; multiplies the score",
           needs=("lanes",), parameters=FAULT, source=NUPLAN_CONFIGURATION, rare=True),
    Metric("nuplan_drivable", "rate", RATE, "higher", "final", nuplan_score.nuplan_drivable,
           "share of cars that kept all corners within 0.3 m of the lanes; multiplies the score",
           needs=("lanes",), parameters=ON_ROAD, source=NUPLAN_CONFIGURATION),
    Metric("nuplan_making_progress", "rate", RATE, "higher", "final", nuplan_score.nuplan_making_progress,
           "share of cars that made a fifth of the expert's progress; multiplies the score",
           needs=("lanes", "log"), parameters={**PROGRESS, "least": 0.2}, source=NUPLAN_CONFIGURATION),
    Metric("nuplan_direction", "rate", RATE, "higher", "final", nuplan_score.nuplan_direction,
           "1 below 2 m against the lane in a second, 0.5 below 6 m, else 0; multiplies the score",
           needs=("lanes",), parameters=DIRECTION, source=NUPLAN_CONFIGURATION, rare=True),
    Metric("nuplan_progress", "rate", RATE, "higher", "final", nuplan_score.nuplan_progress,
           "metres along the expert's route as a share of the expert's, at most 1",
           needs=("lanes", "log"), parameters=PROGRESS, source=NUPLAN_CONFIGURATION),
    Metric("nuplan_speed", "rate", RATE, "higher", "final", nuplan_score.nuplan_speed,
           "1 less the mean excess over the limit as a share of 2.23 m/s",
           needs=("lanes", "limits"), parameters=SPEED, source=NUPLAN_CONFIGURATION, rare=True),
    Metric("nuplan_cls", "rate", RATE, "higher", "final", nuplan_score.nuplan_cls,
           "nuPlan's closed-loop score; one multiplier at 0 makes it 0, so look at its terms first",
           needs=("lanes", "log"),
           parameters={**TTC_NUPLAN, **DIRECTION, **PROGRESS, **SPEED, **ON_ROAD, "least": 0.2, **COMFORT_BOUNDS},
           source=NUPLAN_CONFIGURATION),
    Metric("pdms_by_log", "rate", RATE, "higher", "final", navsim_score.pdms_by_log,
           "PDMS of the first four seconds; progress is held against the log, so no published row compares",
           needs=("lanes", "log"), parameters={"horizon": 4.0, **navsim_score.PLAN_RULE}, source=NAVSIM),
    Metric("epdms_2025_09_by_log", "rate", RATE, "higher", "final", navsim_score.epdms_by_log,
           "EPDMS of the first four seconds; what the log itself fails is forgiven, no published row compares",
           needs=("lanes", "log"), parameters={"horizon": 4.0, **navsim_score.PLAN_RULE}, source=NAVSIM),
)  # fmt: skip

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _LINES}

NAVSIM_BY_PDM = "NAVSIM (Apache-2.0) by the rules of September 2025; the reference is an own PDM-style planner"
_LINES_BY_PDM = (
    Metric("pdms_by_pdm", "rate", RATE, "higher", "final", navsim_score.pdms_by_pdm,
           "PDMS of the first four seconds; progress is held against a PDM-style planner in the same case",
           needs=("lanes", "log"), parameters={"horizon": 4.0, **navsim_score.PLAN_RULE}, source=NAVSIM_BY_PDM),
    Metric("epdms_2025_09_by_pdm", "rate", RATE, "higher", "final", navsim_score.epdms_by_pdm,
           "EPDMS of the first four seconds against a PDM-style planner; what the log itself fails is forgiven",
           needs=("lanes", "log"), parameters={"horizon": 4.0, **navsim_score.PLAN_RULE}, source=NAVSIM_BY_PDM),
)  # fmt: skip
BY_PDM: Mapping[str, Metric] = {metric.name: metric for metric in _LINES_BY_PDM}
"""Scores that need a planner's drive of the same case (`eval.plan_reference`), and take the place of BY_LOG then."""
BY_LOG = ("pdms_by_log", "epdms_2025_09_by_log")
LINES: Mapping[str, Metric] = {**METRICS, **BY_PDM}


def compute(trace: Trace, scene: Scene, names: Iterable[str] | None = None) -> dict[str, MetricValue]:
    """Metrics of one case, in registry order; all of them by default.

    Raises UsageError for an unknown name, ProtocolError for a trace of another scene, CaseError for a value outside
    its declared range.
    """
    view = CaseView(trace, scene)
    return by_case(view, agents_of(view, names))[0]


def compute_agents(trace: Trace, scene: Scene, names: Iterable[str] | None = None) -> dict[str, AgentValues]:
    """The same before agents are summed up: row m is agent `trace["scored"][m]`; joint metrics have one row."""
    return agents_of(CaseView(trace, scene), names)


def agents_of(view: CaseView, names: Iterable[str] | None = None) -> dict[str, AgentValues]:
    """The same of all cases of a view: row m is agent `view.agents[m]`; joint metrics have one row per case."""
    return {metric.name: values_of(metric, view) for metric in selected(names)}


def together(cases: Sequence[tuple[Trace, Scene]]) -> list[list[int]]:
    """Positions of cases that are measured in one view, because they may be (`CaseView.fits`) and are not too large."""
    groups: dict[Hashable, list[list[int]]] = {}
    for position, (trace, scene) in enumerate(cases):
        alike = groups.setdefault((scene.digest, CaseView.fits(trace)), [[]])
        if alike[-1] and (len(alike[-1]) + 1) * trace["x"].size > MOST_NUMBERS:
            alike.append([])
        alike[-1].append(position)
    return [group for alike in groups.values() for group in alike]


def by_case(view: CaseView, agents: Mapping[str, AgentValues]) -> list[dict[str, MetricValue]]:
    """Values of agents, as `agents_of` returns them, summed up to one value per metric for each case of the view."""
    count = len(view.traces)
    bounds = np.searchsorted(view.case, np.arange(count + 1)).tolist()
    alone = bounds == list(range(count + 1))
    columns = []
    for name, values in agents.items():
        metric = LINES[name]
        if alone or metric.shape == "joint":
            columns.append(_one_each(metric, values))
        else:
            rows = [slice(*pair) for pair in itertools.pairwise(bounds)]
            top, bottom, code = values
            columns.append([reduced(metric, AgentValues(top[row], bottom[row], code[row])) for row in rows])
    return [dict(zip(agents, found, strict=True)) for found in zip(*columns, strict=True)] if columns else [{}] * count


def _one_each(metric: Metric, values: AgentValues) -> list[MetricValue]:
    """What `reduced` gives for each row alone."""
    if metric.shape == "exposure":
        parts = values.numerator.tolist(), values.denominator.tolist()
    else:
        parts = values.value.tolist(), values.valid.astype(np.float64).tolist()
    return [
        MetricValue(numerator, denominator, True, None)
        if denominator > 0
        else MetricValue(numerator, denominator, False, REASONS[code])
        for numerator, denominator, code in zip(*parts, values.reason.tolist(), strict=True)
    ]


def values_of(metric: Metric, view: CaseView) -> AgentValues:
    """One metric of every agent under test. Raises CaseError for a value outside its declared range."""
    values = metric.function(view, **metric.parameters)
    _check_range(metric, values, view)
    return values


def selected(names: Iterable[str] | None = None) -> list[Metric]:
    """Registry lines of the names, in registry order; by default METRICS. Raises UsageError for an unknown one."""
    if names is None:
        return list(METRICS.values())
    wanted = set(names)
    unknown = sorted(wanted - LINES.keys())
    if unknown:
        raise UsageError(f"unknown metric {listed(unknown)}{nearest(unknown[0], LINES)}")
    return [metric for metric in LINES.values() if metric.name in wanted]


def metric_spec_digest(names: Iterable[str] | None = None) -> str:
    """Identity of what a set of metrics means: every registry line with its parameters, and the values it gave on the
    golden cases. Wording does not enter."""
    return digest_of(selected(names))


def digest_of(metrics: Iterable[Metric]) -> str:
    """The same for registry lines, in any order."""
    golden = golden_values()
    lines = [
        metric.spec() | {"golden": golden.get(metric.name)} for metric in sorted(metrics, key=lambda line: line.name)
    ]
    return digest_value(lines, "metric spec")


@cache
def golden_values() -> dict[str, Any]:
    """What each metric gave on the golden cases of the tests, by name: {"version", "values"}. A version has one set of
    values for ever; `tests/evaluation_metrics/golden.py` writes the file and refuses anything else."""
    golden: dict[str, Any] = parse_json(Path(__file__).with_name("golden.json").read_bytes())
    return golden


def reduced(metric: Metric, values: AgentValues) -> MetricValue:
    """The value of the case from those of its agents."""
    valid = values.valid
    if metric.shape == "exposure":
        numerator, denominator = float(values.numerator.sum()), float(values.denominator.sum())
    else:
        numerator, denominator = float(values.value.sum()), float(valid.sum())
    if denominator > 0:
        return MetricValue(numerator, denominator, True, None)
    # Of several reasons the most frequent one, the earlier in the table on ties; without agents nothing applies.
    counts = np.bincount(values.reason, minlength=len(REASONS))
    reason = REASONS[int(counts.argmax())] if len(values.reason) else "not_applicable"
    return MetricValue(numerator, denominator, False, reason)


def _check_range(metric: Metric, values: AgentValues, view: CaseView) -> None:
    low, high = metric.range
    value = values.value
    finite = np.isfinite(values.numerator) & np.isfinite(values.denominator)
    # Rounding may carry a mean of ones past 1 by a few units in the last place.
    outside = values.valid & ((value < low - 1e-9) | (value > (np.inf if high is None else high) + 1e-9))
    bad = np.flatnonzero(~finite | outside)
    if len(bad):
        joint = metric.shape == "joint"
        who = "the case" if joint else f"agent {int(view.agents[bad[0]])}"
        case = view.traces[bad[0] if joint else view.case[bad[0]]].meta.case
        raise CaseError(
            f"metric {metric.name}/{metric.version} of {who} in case {case} is {value[bad[0]]}, "
            f"outside its range {list(metric.range)} {metric.unit}. The trace holds values that cannot be, or the "
            "metric is wrong: replay the case and look at that agent."
        )

"""NAVSIM's scores of a four-second plan, PDMS and EPDMS, from a window of a trace or from a plan given as arrays.

    PDMS  = NC x DAC x (5 EP + 5 TTC + 2 C) / 12
    EPDMS = NC x DAC x DDC x TLC x (5 EP + 5 TTC + 2 LK + 2 HC + 2 EC) / 16

`plan_terms` finds every term but two: ego progress EP needs the progress of a reference, officially that of the planner
PDM-Closed, and extended comfort EC the plan before. The registry's `pdms_by_log` and `epdms_2025_09_by_log` take the
log's drive as the reference, `pdms_by_pdm` and `epdms_2025_09_by_pdm` that of the simulator's PDM-style planner in the
same case; they are named after it. The rules changed in September 2025; the name dates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import UsageError
from skidpad.evaluation.metrics.comfort import MIN_SAMPLES, NUPLAN_BOUNDS, nuplan_comfortable, nuplan_series
from skidpad.evaluation.metrics.contacts import is_static, judge_contacts
from skidpad.evaluation.metrics.nuplan_score import combined, expert_progress, graded, nuplan_drivable, trailing
from skidpad.evaluation.metrics.plan import log_states, log_view, window
from skidpad.evaluation.metrics.road_area import CENTRE, box_places
from skidpad.evaluation.metrics.ttc import ttc_navsim
from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, kept, measured
from skidpad.scenes.events import Event

# Extended comfort: largest root mean square of the differences between consecutive plans, SI.
EXTENDED_BOUNDS: Mapping[str, float] = {
    "acceleration": 0.7,
    "jerk": 0.5,
    "yaw_rate": 0.1,
    "yaw_acceleration": 0.1,
}
# Up to this much progress [m] of the best there is nowhere to go, and everybody has full marks.
NOWHERE_TO_GO_M = 5.0
# Variance scale [m^2] of the weights of second-stage scenes.
STAGE_TWO_VARIANCE = 0.1


class PlanTerms(NamedTuple):
    """The terms of a plan that follow from it and its scene, of every agent under test; all but the last 0 to 1.

    no_fault         NC   0 after a contact of own fault with a road user, 0.5 with an object, else 1
    drivable         DAC  1 while all corners stay on the road, without tolerance
    direction        DDC  1, 0.5 or 0 by the metres driven off the route's lanes and junctions in 1 s
    lights           TLC  0 after crossing a stop line on red
    ttc              TTC  `ttc.navsim`
    comfort          C    nuPlan's bounds over the plan
    lane_keeping     LK   0 after 2 s on end further than 0.5 m from the lane's centre
    history_comfort  HC   nuPlan's bounds over 1.5 s of history and the plan
    progress         [m]  along the route of the log
    """

    no_fault: AgentValues
    drivable: AgentValues
    direction: AgentValues
    lights: AgentValues
    ttc: AgentValues
    comfort: AgentValues
    lane_keeping: AgentValues
    history_comfort: AgentValues
    progress: AgentValues


# What `plan_terms` measures with, in SI units; the time-to-collision rule is that of `ttc.navsim`.
PLAN_RULE: Mapping[str, float] = {
    "level_gate": 4.0,
    "window": 1.0,
    "compliant": 2.0,
    "violation": 6.0,
    "off_centre": 0.5,
    "off_for": 2.0,
    "history": 1.5,
    "ahead": float(np.deg2rad(30.0)),
    "behind": float(np.deg2rad(150.0)),
    "sample": 0.3,
    "samples": 4,
    "stopped": 0.005,
}


def _missing(view: CaseView) -> tuple[tuple[object, str], ...]:
    nothing = view.never_active | ~view.driven.any(axis=1)
    return (nothing, "no_exposure"), (not view.has_lanes, "no_lane")


def plan_terms(view: CaseView, rule: Mapping[str, float] = PLAN_RULE) -> PlanTerms:
    """All terms of a window (`plan.window`) or plan (`plan.plan_view`)."""
    ego, _, routed, _ = expert_progress(view)
    no_route = (~routed, "not_applicable")
    ttc = {name: rule[name] for name in ("ahead", "behind", "sample", "samples", "stopped")}
    return PlanTerms(
        no_fault=measured(_no_fault(view, rule["level_gate"]), 1.0, *_missing(view)),
        drivable=nuplan_drivable(view, tolerance=0.0),
        direction=measured(_direction(view, rule), 1.0, *_missing(view), no_route),
        lights=measured(~view.happened(Event.RED_LIGHT).any(axis=1), 1.0, *_missing(view)),
        ttc=ttc_navsim(view, **ttc),
        comfort=_comfort(view, 0.0),
        lane_keeping=measured(_lane_keeping(view, rule), 1.0, *_missing(view)),
        history_comfort=_comfort(view, rule["history"]),
        progress=measured(ego, 1.0, *_missing(view), no_route),
    )


def _no_fault(view: CaseView, level_gate: float) -> F64:
    value = np.ones(view.count)
    for verdict in judge_contacts(view, level_gate) if view.has_lanes else []:
        if verdict.fault:
            row = verdict.contact.agent
            value[row] = min(value[row], 0.5 if is_static(view, verdict.contact) else 0.0)
    return value


def _direction(view: CaseView, rule: Mapping[str, float]) -> F64:
    off_route = np.zeros(view.driven.shape, dtype=bool)
    for row, agent in enumerate(view.agents.tolist()):
        places, road = box_places(view, row), view.scene.road
        allowed = np.isin(places.lanes, view.scene.tracks.route(agent)) | (road.lane_junction[places.lanes] >= 0)
        off_route[row] = ~places.inside[1:, CENTRE, allowed].any(axis=-1)
    metres = trailing(np.where(off_route, view.step_length, 0.0), max(round(rule["window"] / view.dt), 1))
    return graded(metres.max(axis=1, initial=0.0), rule["compliant"], rule["violation"])


def _lane_keeping(view: CaseView, rule: Mapping[str, float]) -> F64:
    """(M,) f64. Steps in a junction keep the lane whatever their offset; steps on no lane do not."""
    junction = np.zeros(view.lane.shape, dtype=bool)
    if view.has_lanes:
        junction = (view.scene.road.lane_junction[np.maximum(view.lane, 0)] >= 0) & (view.lane >= 0)
    off_centre = (np.abs(view.ends("lane_offset")) > rule["off_centre"]) | (view.lane < 0)
    off = view.driven & off_centre & ~junction
    longest = trailing(off.astype(np.float64), max(round(rule["off_for"] / view.dt), 1))
    return np.where((longest >= round(rule["off_for"] / view.dt)).any(axis=1), 0.0, 1.0)


def _comfort(view: CaseView, history_s: float) -> AgentValues:
    """1 where the six series of the driven states, after `history_s` [s] of log, stay inside nuPlan's bounds."""
    comfortable, long_enough = np.ones(view.count), np.zeros(view.count, dtype=bool)
    by_length: dict[int, list[tuple[int, F64]]] = {}
    for row in range(view.count):
        if (samples := _samples(view, row, history_s)) is not None:
            by_length.setdefault(samples.shape[1], []).append((row, samples))
    for length, found in by_length.items():
        rows = [row for row, _ in found]
        series = nuplan_series(
            np.arange(length, dtype=np.float64) * view.dt, *np.stack([samples for _, samples in found], axis=1)
        )
        comfortable[rows], long_enough[rows] = nuplan_comfortable(series, NUPLAN_BOUNDS), True
    return measured(comfortable, 1.0, *_missing(view), (~long_enough, "too_short"))


def motion_series(view: CaseView, row: int, history_s: float = 0.0) -> dict[str, F64] | None:
    """nuPlan's smoothed series, each (n,) f64 in SI units, of an agent's first unbroken drive; None if too short.

    The log's states in the `history_s` [s] before the case come first, as far as it was recorded without a gap.
    """
    samples = _samples(view, row, history_s)
    return None if samples is None else nuplan_series(np.arange(samples.shape[1], dtype=np.float64) * view.dt, *samples)


def _samples(view: CaseView, row: int, history_s: float) -> F64 | None:
    """(3, n) f64, acceleration along and across [m/s^2] and heading [rad] of what `motion_series` filters."""
    driven = view.driven[row]
    if not driven.any():
        return None
    first = int(driven.argmax())
    rest = driven[first:]
    count = len(rest) if rest.all() else int(rest.argmin())
    if count < MIN_SAMPLES:
        return None
    drive: F64 = view.once("filtered", _filtered)[:, row, first : first + count]
    if history_s > 0.0 and first == 0:
        agent = int(view.agents[row])
        before = view.once(("history", history_s, agent), lambda view: _history(view, agent, history_s))
        return np.concatenate([before, drive], axis=1, dtype=np.float64)
    return drive


def _filtered(view: CaseView) -> F64:
    """(3, M, U) f64, acceleration along and across [m/s^2] and heading [rad] at the end of each step."""
    return np.stack([view.ends(name) for name in ("accel_long", "accel_lat", "heading")])


def _history(view: CaseView, agent: int, seconds: float) -> F64:
    """(3, k) f64: acceleration along and across [m/s^2] and heading [rad] of the log up to and with state 0."""
    meta, count = view.meta, round(seconds / view.dt)
    before = meta.start_row * view.scene.meta.dt_us + np.arange(-count - 1, 1, dtype=np.int64) * meta.dt_us
    states, valid = view.once(f"history {seconds}", lambda view: log_states(view.scene, before))
    # The first of an unbroken record has no acceleration, since nothing led to it.
    gap = int(np.max(np.flatnonzero(~valid[:, agent]), initial=-1))
    return np.stack([states[name][gap + 2 :, agent] for name in ("accel_long", "accel_lat", "heading")])


def extended_comfort(plan: Mapping[str, F64], before: Mapping[str, F64], ahead: int) -> Bool:
    """Term EC: the plan moves like the one before it, where both speak of the same time.

    plan, before  series of `motion_series`, each (n,) f64 in SI units
    ahead         steps by which `plan` begins after `before`

    Raises ValueError if the plans do not overlap.
    """
    overlap = min(len(before["yaw_rate"]) - ahead, len(plan["yaw_rate"]))
    if overlap < 1 or ahead < 0:
        raise ValueError(f"a plan that begins {ahead} steps after the one before shares no moment with it")
    kept = [
        float(np.sqrt(np.mean((plan[name][:overlap] - before[name][ahead : ahead + overlap]) ** 2))) <= bound
        for name, bound in EXTENDED_BOUNDS.items()
    ]
    return np.asarray(all(kept))


def ego_progress(candidate_m: F64, reference_m: F64) -> F64:
    """Term EP, (M,) f64: share of the best progress; 1 where the best is no more than NOWHERE_TO_GO_M.

    candidate_m, reference_m  (M,)  f64 [m]  progress times the multipliers of the score, of the plan and of the
                                             reference (officially PDM-Closed)
    """
    best = np.maximum(candidate_m, reference_m)
    going = best > NOWHERE_TO_GO_M
    return np.where(going, np.clip(candidate_m / np.where(going, best, 1.0), 0.0, 1.0), 1.0)


def pdms(terms: PlanTerms, reference_m: F64) -> AgentValues:
    """PDMS of each plan, 0 to 1, higher is better.

    reference_m  (M,)  f64 [m]  progress of the reference times its own NC and DAC
    """
    multiplier = terms.no_fault.value * terms.drivable.value
    progress = ego_progress(terms.progress.value * multiplier, reference_m)
    weighted = 5 * progress + 5 * terms.ttc.value + 2 * terms.comfort.value
    used = (terms.no_fault, terms.drivable, terms.progress, terms.ttc, terms.comfort)
    return combined(multiplier * weighted / 12, used)


def epdms(terms: PlanTerms, reference_m: F64, extended: F64, human: PlanTerms | None = None) -> AgentValues:
    """EPDMS by the rules of September 2025 of each plan, 0 to 1, higher is better.

    reference_m  (M,)  f64 [m]  progress of the reference times its own NC, DAC, DDC and TLC
    extended     (M,)  f64      term EC, from `extended_comfort`
    human        terms of the recorded driver: a term that is 0 for him is 1 for the plan; None = no such filter
    """
    names = ("no_fault", "drivable", "direction", "lights", "ttc", "lane_keeping", "history_comfort")
    value = {name: getattr(terms, name).value for name in names}
    if human is not None:
        for name in names:
            theirs = getattr(human, name)
            value[name] = np.where(theirs.valid & (theirs.value == 0.0), 1.0, value[name])
    multiplier = value["no_fault"] * value["drivable"] * value["direction"] * value["lights"]
    progress = ego_progress(terms.progress.value * multiplier, reference_m)
    weighted = 5 * (progress + value["ttc"]) + 2 * (value["lane_keeping"] + value["history_comfort"] + extended)
    used = [getattr(terms, name) for name in (*names, "progress")]
    return combined(multiplier * weighted / 16, used)


def two_stage(stage_one: F64, stage_two: F64, distance_m: F64) -> float:
    """Score of a scene: stage one times the weighted stage two, averaged over its frames (officially two).

    stage_one   (F,)    f64
    stage_two   (F, S)  f64      of the synthetic scenes that continue each frame
    distance_m  (F, S)  f64 [m]  from the end of the first-stage plan to the start of each synthetic scene

    Raises ValueError for shapes that do not belong together or a frame without second stage.
    """
    if stage_two.shape != distance_m.shape or stage_two.shape[:1] != stage_one.shape or not stage_two.size:
        raise ValueError(
            f"stage one {stage_one.shape}, stage two {stage_two.shape}, distances {distance_m.shape}: "
            "expected (F,), (F, S), (F, S) with at least one frame and one scene each"
        )
    # Only ratios of weights count, so the nearest scene may have weight 1: none can vanish for all being far.
    exponent = -(distance_m**2) / (2 * STAGE_TWO_VARIANCE)
    weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return float((stage_one * (weight * stage_two).sum(axis=1) / weight.sum(axis=1)).mean())


# -- from a trace, against the log --------------------------------------------------------------------------------


def _windowed(view: CaseView, horizon: float, rule: Mapping[str, float]) -> tuple[PlanTerms, PlanTerms]:
    """Terms of the first `horizon` [s] of the drive, and of the log in the same time."""

    def make(view: CaseView) -> tuple[PlanTerms, PlanTerms]:
        drive = window(view, horizon)
        return plan_terms(drive, rule), _log_terms(drive, rule)

    return view.once(("plan terms", horizon, *sorted(rule.items())), make)


def _log_terms(view: CaseView, rule: Mapping[str, float]) -> PlanTerms:
    """Terms of the log in the time of a view, of each of its agents under test: once for all drivers and replicates."""
    meta = view.meta
    name = ("log terms", meta.start_row, view.steps, meta.dt_us, *sorted(rule.items()))
    known: dict[int, NDArray[np.float64]] = kept(view.scene, name, dict)
    if unknown := sorted(set(view.agents.tolist()) - known.keys()):
        log = log_view(view.scene, np.array(unknown), meta.start_row, view.steps, meta.dt_us)
        known |= zip(unknown, by_agent(plan_terms(log, rule)), strict=True)
    return terms_of([known[agent] for agent in view.agents.tolist()])


def by_agent(terms: PlanTerms) -> F64:
    """(M, terms, 3) f64, numerator, denominator and reason of each term of each agent: what `terms_of` takes."""
    return np.moveaxis(np.array(terms, dtype=np.float64), -1, 0)


def terms_of(agents: Sequence[F64]) -> PlanTerms:
    """The inverse of `by_agent`, of agents from anywhere."""
    rows = np.array(agents, dtype=np.float64).reshape(len(agents), len(PlanTerms._fields), 3)
    return PlanTerms(
        *(AgentValues(top, bottom, code.astype(np.uint8)) for top, bottom, code in rows.transpose(1, 2, 0))
    )


def pdms_by_log(view: CaseView, *, horizon: float, **rule: float) -> AgentValues:
    """PDMS of the first `horizon` [s] of the drive, its progress held against that of the log; `rule` as PLAN_RULE."""
    drive, log = _windowed(view, horizon, rule)
    return _pdms(drive, log)


def epdms_by_log(view: CaseView, *, horizon: float, **rule: float) -> AgentValues:
    """EPDMS of the first `horizon` [s] of the drive, with progress and the human filter from the log; `rule` as
    PLAN_RULE.

    A drive is one motion, not a sequence of plans that may contradict each other, so its extended comfort is 1.
    """
    drive, log = _windowed(view, horizon, rule)
    return _epdms(drive, log, log)


# -- from a trace, against a planner ------------------------------------------------------------------------------

REFERENCE = "plan reference"
"""A view is told the terms of the reference by `view.once(REFERENCE, ...)`, before anybody asks for them."""


def reference_terms(view: CaseView, *, horizon: float, **rule: float) -> F64:
    """Terms of the first `horizon` [s] of a drive that others are held against, as `by_agent` has them."""
    return by_agent(plan_terms(window(view, horizon), rule))


def pdms_by_pdm(view: CaseView, *, horizon: float, **rule: float) -> AgentValues:
    """PDMS of the first `horizon` [s] of the drive, its progress held against that of a PDM-style planner in the same
    case; `rule` as PLAN_RULE."""
    return _pdms(_windowed(view, horizon, rule)[0], _reference(view))


def epdms_by_pdm(view: CaseView, *, horizon: float, **rule: float) -> AgentValues:
    """EPDMS of the first `horizon` [s] of the drive, with progress from a PDM-style planner in the same case and the
    human filter from the log; `rule` as PLAN_RULE. Extended comfort as in `epdms_by_log`."""
    drive, log = _windowed(view, horizon, rule)
    return _epdms(drive, _reference(view), log)


def _reference(view: CaseView) -> PlanTerms:
    def missing(_: CaseView) -> PlanTerms:
        raise UsageError(
            "scores by_pdm are held against a planner's drive of the same case, and traces hold none: run the section "
            'with eval.plan_reference = "pdm", or ask for those by_log.'
        )

    return view.once(REFERENCE, missing)


def _pdms(drive: PlanTerms, reference: PlanTerms) -> AgentValues:
    score = pdms(drive, reference.progress.value * reference.no_fault.value * reference.drivable.value)
    return combined(score.value, (score, reference.progress))


def _epdms(drive: PlanTerms, reference: PlanTerms, human: PlanTerms) -> AgentValues:
    multiplier = np.ones(len(drive.progress.reason))
    for name in ("no_fault", "drivable", "direction", "lights"):
        multiplier = multiplier * getattr(reference, name).value
    score = epdms(drive, reference.progress.value * multiplier, np.ones(len(multiplier)), human)
    return combined(score.value, (score, reference.progress))

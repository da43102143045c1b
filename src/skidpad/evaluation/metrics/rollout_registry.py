"""The metrics of a set of rollouts: one line each, beside the registry of metrics that score one drive.

They have the same kind of line, so lists, pages and digests treat them alike; but they look at rollouts, log and map as
arrays, and their value is of the case as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.files import parse_json
from skidpad.errors import CaseError, UsageError, listed, nearest
from skidpad.evaluation.metrics import displacement_sets as sets
from skidpad.evaluation.metrics.open_loop import HORIZONS_S, MISS_BOUNDS_M
from skidpad.evaluation.metrics.realism import CONFIGURATIONS, Compared, Configuration, RealismResult, compare, score
from skidpad.evaluation.metrics.realism_peer import flattened, puffer_score
from skidpad.evaluation.metrics.registry import POSITIVE, RATE, Metric, MetricValue, reduced
from skidpad.evaluation.metrics.view import F64, AgentValues, measured
from skidpad.evaluation.rollouts import POSE, RolloutCase, Rollouts, Task, check_rollouts

PAPER = "arXiv 2305.12032, numbers of the public evaluator within 1e-5"
PEER_PREFIX = "puffer/"


class RolloutView:
    """Rollouts and the case they continue; what several metrics need is computed once.

    Raises ProtocolError as `check_rollouts` does.
    """

    def __init__(
        self, case: RolloutCase, rollouts: Rollouts, *, not_standard: bool = False, official_light: bool = False
    ) -> None:
        self.case = case
        self.official_light = official_light
        self.task: Task = check_rollouts(rollouts, case.log, not_standard=not_standard)

    @cached_property
    def compared(self) -> Compared:
        """Features of log and simulation; those of equal rollouts are computed once."""
        task, light = self.task, self.official_light
        count = task.rollouts.count
        if count < 2 or not _are_equal(task.rollouts):
            return compare(task, self.case.edges, self.case.lights, official_light=light)
        first = task._replace(rollouts=task.rollouts.select([0]))
        found = compare(first, self.case.edges, self.case.lights, official_light=light)
        return replace(found, task=task, simulated=found.simulated.select(np.zeros(count, np.intp)))

    @cached_property
    def flat(self) -> Compared:
        """The same without heights and lights, as the peer has it."""
        return compare(flattened(self.task), self.case.edges, None)

    @cached_property
    def results(self) -> dict[str, RealismResult]:
        """Realism results by year."""
        return {year: score(self.compared, year) for year in CONFIGURATIONS}

    @cached_property
    def seen(self) -> Any:
        """(E,) bool, scored objects that the log knows after now."""
        return sets.known(self.task)

    def error(self, *, spatial: bool = False) -> F64:
        """(R, E) f64 [m], ADE of the objects that the log knows after now."""
        return sets.ade(self.task, spatial=spatial)[:, self.seen]


def _are_equal(rollouts: Rollouts) -> bool:
    return all(bool((pose == pose[:1]).all()) for pose in (getattr(rollouts, name) for name in POSE))


def one(value: float | None, reason: str | None) -> AgentValues:
    """The value of a case, or why it is missing."""
    return measured(np.array([0.0 if value is None else value]), 1.0, (value is None, reason or "not_applicable"))


def realism_value(view: RolloutView, year: str) -> AgentValues:
    """Weighted sum of the likelihoods of ten logged features under what was simulated; the weights, ranges and bins of
    one year. Each likelihood is exp of the mean log-probability over scored objects and rows that the log has."""
    result = view.results[year]
    return one(result.value, result.reason)


def _of_error(view: RolloutView, reduce: Callable[[F64], float | None], error: F64) -> AgentValues:
    return one(reduce(error) if error.size else None, "not_applicable" if error.size else "no_log")


def _mean(error: F64) -> float:
    return float(error.mean())


def ade(view: RolloutView) -> AgentValues:
    """Mean over rollouts and scored objects of the mean distance [m] in the plane to the log, over its valid rows after
    now."""
    return _of_error(view, _mean, view.error())


def ade_3d(view: RolloutView) -> AgentValues:
    """As `ade`, in space."""
    return _of_error(view, _mean, view.error(spatial=True))


def fde(view: RolloutView) -> AgentValues:
    """Mean over rollouts and scored objects of the distance [m] in the plane to the log at its last valid row."""
    return _of_error(view, _mean, sets.fde(view.task)[:, view.seen])


def miss_rate(view: RolloutView) -> AgentValues:
    """Share of (rollout, scored object) whose distance at the last valid row is above 6, 8 or 16 m, for tracks that end
    within 3, 5 or 8 s and later."""
    log = view.task.log
    future = log.valid[log.scored, log.current_step + 1 :][view.seen]
    last_s = (future.shape[1] - future[:, ::-1].argmax(axis=1)) * log.dt
    horizon = np.minimum(np.searchsorted(np.array(HORIZONS_S), last_s - 1e-9), len(HORIZONS_S) - 1)
    bound = np.array(MISS_BOUNDS_M)[horizon]
    return _of_error(view, lambda error: float((error > bound).mean()), sets.fde(view.task)[:, view.seen])


def min_ade_joint(view: RolloutView) -> AgentValues:
    """`ade` [m] of the best rollout as a whole: minimum over rollouts of the mean over objects."""
    return _of_error(view, sets.min_joint, view.error())


def min_ade_marginal(view: RolloutView) -> AgentValues:
    """`ade` [m] with the best rollout of each object: no single rollout need be that good."""
    return _of_error(view, sets.min_marginal, view.error())


def ade_official(view: RolloutView) -> AgentValues:
    """Mean distance [m] in space to the log, divided by all valid rows of the log, of which those up to now have error
    0."""
    return _of_error(view, _mean, sets.ade_official(view.task) if view.seen.any() else np.zeros((0, 0)))


def min_ade_official(view: RolloutView) -> AgentValues:
    """`ade_official` [m] of the best rollout as a whole."""
    return _of_error(view, sets.min_joint, sets.ade_official(view.task) if view.seen.any() else np.zeros((0, 0)))


def diversity(view: RolloutView) -> AgentValues:
    """Mean over scored objects and pairs of rollouts of the mean distance [m] in the plane between the two."""
    return one(sets.diversity(view.task.rollouts, view.task.log.scored), "not_applicable")


def diversity_final(view: RolloutView) -> AgentValues:
    """The same [m] at the last row."""
    return one(sets.diversity(view.task.rollouts, view.task.log.scored, final=True), "not_applicable")


def spread_ratio(view: RolloutView) -> AgentValues:
    """(ADE - joint minADE) / ADE: 0 for equal rollouts, near 1 where one of many is right."""
    return _of_error(view, sets.spread_ratio, view.error())


def puffer_value(view: RolloutView) -> AgentValues:
    """PufferDrive's reductions: exp per object, arithmetic mean over objects, no lights, weights over .95, flat."""
    result = puffer_score(view.flat)
    return one(result.value, result.reason)


def parameters_of(chosen: Configuration) -> dict[str, float]:
    """Weights, ranges and bins of a configuration, as a registry line has them."""
    found = {}
    for feature, term in chosen.terms.items():
        found[f"{feature}_weight"] = term.weight
        found[f"{feature}_pooled"] = float(term.pooled)
        if term.bins is not None:
            found |= {f"{feature}_{side}": float(bound) for side, bound in term.bins._asdict().items()}
    return found


def _realism_line(year: str, aid: str) -> Metric:
    return Metric(
        f"realism_{year}", "1", RATE, "higher", "joint", partial(realism_value, year=year), aid,
        version=CONFIGURATIONS[year].version, needs=("map", "signals", "log"),
        parameters=parameters_of(CONFIGURATIONS[year]), source=PAPER,
    )  # fmt: skip


_LINES = (
    _realism_line("2023", "how probable the log is under the rollouts, as weighed in 2023; years do not compare"),
    _realism_line("2024", "the same with finer bins and more weight on collisions; years do not compare"),
    _realism_line("2025", "the same with red lights; a perfect log gets .72 to .83, so read the baselines beside it"),
    _realism_line("2025_gen", "the same with all objects in one histogram: for generated scenes"),
    Metric("ade", "m", POSITIVE, "lower", "joint", ade, "mean distance of the rollouts to the log; far is not wrong",
           needs=("log",)),
    Metric("ade_3d", "m", POSITIVE, "lower", "joint", ade_3d, "the same in space", needs=("log",)),
    Metric("fde", "m", POSITIVE, "lower", "joint", fde, "distance to the log at its last row", needs=("log",)),
    Metric("miss_rate", "rate", RATE, "lower", "joint", miss_rate, "share that ends too far from the log",
           needs=("log",), parameters={f"bound_{horizon}_s": bound
                                       for horizon, bound in zip(HORIZONS_S, MISS_BOUNDS_M, strict=True)}),
    Metric("min_ade_joint", "m", POSITIVE, "lower", "joint", min_ade_joint,
           "distance to the log of the best rollout as a whole", needs=("log",)),
    Metric("min_ade_marginal", "m", POSITIVE, "lower", "joint", min_ade_marginal,
           "the same with the best rollout of each object: never higher", needs=("log",)),
    Metric("ade_official", "m", POSITIVE, "lower", "joint", ade_official,
           "distance to the log as published beside realism: rows before now count as perfect", needs=("log",),
           source=PAPER),
    Metric("min_ade_official", "m", POSITIVE, "lower", "joint", min_ade_official,
           "the same of the best rollout as a whole", needs=("log",), source=PAPER),
    Metric("diversity", "m", POSITIVE, "none", "joint", diversity,
           "distance between two rollouts; near 0 means that 32 rollouts are one"),
    Metric("diversity_final", "m", POSITIVE, "none", "joint", diversity_final, "the same at the end"),
    Metric("spread_ratio", "1", RATE, "none", "joint", spread_ratio,
           "how much better the best rollout is than the mean: 0 for equal rollouts", needs=("log",)),
)  # fmt: skip

ROLLOUT_METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _LINES}
# Apart, because its value must not stand beside those of `realism_*`.
PEER_ROLLOUT_METRICS: Mapping[str, Metric] = {
    "puffer/realism": Metric(
        "puffer/realism", "1", RATE, "higher", "joint", puffer_value,
        "PufferDrive's realism value; not comparable with realism_*, mostly higher",
        needs=("map", "log"), parameters=parameters_of(CONFIGURATIONS["2025"]) | {"weight_sum": 0.95},
        source="PufferDrive",
    )
}  # fmt: skip


def compute_rollouts(
    case: RolloutCase,
    rollouts: Rollouts,
    names: Iterable[str] | None = None,
    *,
    not_standard: bool = False,
    official_light: bool = False,
) -> dict[str, MetricValue]:
    """Metrics of one set of rollouts, in registry order; by default all but the peer's.

    Raises UsageError for an unknown name and for the peer's value beside `realism_*`, ProtocolError as
    `check_rollouts`, CaseError for a value outside its declared range.
    """
    chosen = selected_rollout_metrics(names)
    view = RolloutView(case, rollouts, not_standard=not_standard, official_light=official_light)
    return {metric.name: value_of(metric, view) for metric in chosen}


def value_of(metric: Metric, view: RolloutView) -> MetricValue:
    """One metric of one set of rollouts. Raises CaseError for a value outside its declared range."""
    found = reduced(metric, metric.function(view))
    low, high = metric.range
    value = found.value
    # Rounding may carry a sum of likelihoods of 1 past 1 by a few units in the last place.
    if value is not None and not low - 1e-9 <= value <= (np.inf if high is None else high) + 1e-9:
        raise CaseError(
            f"metric {metric.name}/{metric.version} of case {view.case.scenario_id} is {value}, outside its range "
            f"{list(metric.range)} {metric.unit}. The rollouts hold values that cannot be, or the metric is wrong."
        )
    return found


def selected_rollout_metrics(names: Iterable[str] | None = None) -> list[Metric]:
    """Lines of the names, in registry order; by default all but the peer's.

    Raises UsageError for an unknown name, and for the peer's value beside `realism_*`.
    """
    if names is None:
        return list(ROLLOUT_METRICS.values())
    everything = {**ROLLOUT_METRICS, **PEER_ROLLOUT_METRICS}
    wanted = set(names)
    unknown = sorted(wanted - everything.keys())
    if unknown:
        raise UsageError(f"unknown metric of rollouts {listed(unknown)}{nearest(unknown[0], everything)}")
    ours = sorted(name for name in wanted if name.startswith("realism_"))
    theirs = sorted(wanted & PEER_ROLLOUT_METRICS.keys())
    if ours and theirs:
        raise UsageError(
            f"{listed(theirs)} beside {listed(ours)}: two definitions under similar names, whose values differ by up "
            "to 0.17. Ask for them one at a time."
        )
    return [metric for name, metric in everything.items() if name in wanted]


def rollout_spec_digest(names: Iterable[str] | None = None) -> str:
    """Identity of what a set of these metrics means: every line with its parameters, and its golden values."""
    golden = golden_rollout_values()
    lines = sorted(selected_rollout_metrics(names), key=lambda line: line.name)
    return digest_value([line.spec() | {"golden": golden.get(line.name)} for line in lines], "metric spec")


@cache
def golden_rollout_values() -> dict[str, Any]:
    """What each of these metrics gave on the golden cases of the tests, by name: {"version", "values"}, written by
    `tests/realism/golden_rollouts.py`."""
    golden: dict[str, Any] = parse_json(Path(__file__).with_name("golden_rollouts.json").read_bytes())
    return golden


def rollout_cross_checks(values: Mapping[str, MetricValue], results: Iterable[RealismResult] = ()) -> list[str]:
    """Sentences about what contradicts; empty when all is well (Q41). Checks whatever is there."""
    order = ("min_ade_marginal", "min_ade_joint", "ade")
    known = [(name, value) for name in order if name in values and (value := values[name].value) is not None]
    problems = [f"{small} {a:g} is above {large} {b:g}" for (small, a), (large, b) in pairwise(known) if a > b + 1e-9]
    for result in results:
        problems += [
            f"{result.name}: likelihood of {feature} is {value:g}, outside (0, 1]"
            for feature, value in result.likelihoods.items()
            if value is not None and not 0 < value <= 1 + 1e-9
        ]
    return problems

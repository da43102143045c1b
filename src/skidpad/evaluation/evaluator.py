"""Evaluator: one configured evaluation. It says which cases it has and what it measures; running them is the same for
all types and stands here once: batches, isolation of failures, metrics, records, cost.

A type states its baseline settings, its cases and its metrics (E63). When each runs is `manager.py`'s business.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from skidpad.artifacts.digests import digest_value
from skidpad.errors import CaseError, IntegrityError, SettingsError, SkidpadError, nearest
from skidpad.evaluation.sources import SceneEntry, SceneSources
from skidpad.evaluation.worlds import Worlds
from skidpad.policies.policy import Policy
from skidpad.runs.records import Record, Status
from skidpad.scenes.case import SCENE_EGO, Case
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import ControllerName, EnvSettings, EvalKnobs
from skidpad.settings.suite import EvaluatorSpec, EvaluatorType

if TYPE_CHECKING:
    from skidpad.evaluation.metrics.registry import Metric
    from skidpad.evaluation.metrics.view import F64
    from skidpad.evaluation.rollout import Failure, Outcome
    from skidpad.policies.checkpoint import Checkpoint
    from skidpad.runs.trace import Trace

TRACE_BUFFER_BYTES = 512 << 20
"""Traces of one batch are held together until they are measured; batches are cut so that they fit."""


@dataclass(frozen=True)
class Arm:
    """One driver of an evaluation: the policy under test, or one beside it.

    name        "policy" for the one under test, else the name it has in `eval.baselines`
    policy      drives the rows; None when a controller drives the agents under test
    substitute  that controller, or None
    checkpoint  content digest of the weights, "" where there are none
    repeats     what it does follows from code of ours and its checkpoint alone, so that it can be kept (E104)
    weights     of one beside: the file they are from
    env         its own settings of the world, where its weights read other observations than the section has, or act
                otherwise; None: the section's
    """

    name: str
    policy: Policy | None
    substitute: ControllerName | None = None
    checkpoint: str = ""
    repeats: bool = False
    weights: Checkpoint | None = None
    env: EnvSettings | None = None


PLAN_REFERENCE = Arm("pdm", None, "pdm")
"""Who drives the cases that plans are held against with `eval.plan_reference = "pdm"`."""


class PlannedCase(NamedTuple):
    """A case and its position in the evaluator's list, which is sorted by case id. `problem`: why it cannot be run."""

    case: Case
    position: int
    problem: str | None


@dataclass(frozen=True)
class Plan:
    """What an evaluator is going to run.

    cases       sorted by case id
    entries     the file of each scene that runs, by scene digest
    duplicates  files that hold a scene which an earlier file holds too; each scene runs once
    """

    cases: tuple[PlannedCase, ...]
    entries: Mapping[str, SceneEntry]
    duplicates: tuple[str, ...]


class Finished(NamedTuple):
    """A record, and the trace it was measured on when the case ended well."""

    record: Record
    trace: Trace | None


class Simulated(NamedTuple):
    """What cases came to before anything is measured.

    outcomes         one per case, in order
    scenes           those that loaded, by digest
    setup_seconds    reading scenes
    rollout_seconds  building worlds and stepping them
    """

    outcomes: list[Outcome]
    scenes: Mapping[str, Scene]
    setup_seconds: float
    rollout_seconds: float


class Evaluator:
    """Base of all driver evaluators.

    plan    what runs, where that is known already: a worker runs what its manager has planned
    worlds  simulators to use again
    """

    TYPE: ClassVar[EvaluatorType]
    CHECKED_WITH: ClassVar[tuple[str, ...]] = ()
    """Lines that a section of this type needs where `check_evaluator` runs it over a few steps."""

    def __init__(
        self, spec: EvaluatorSpec, sources: SceneSources, *, plan: Plan | None = None, worlds: Worlds | None = None
    ) -> None:
        self.check(spec)
        self._metrics = _kept(self.lines(), spec.eval)
        self._references: dict[str, F64 | Failure] = {}  # what the planner makes of each case, by its id
        self.spec = spec
        self.sources = sources
        self.worlds = worlds or Worlds()
        self.plan = plan or self._plan()

    @classmethod
    def check(cls, spec: EvaluatorSpec) -> None:
        """Raises SettingsError for a section that no run of this type can have. Types add their own checks."""
        knobs, lines = spec.eval, cls.lines()
        for key, name in (("eval.primary", knobs.primary), ("eval.worst_metric", knobs.worst_metric or knobs.primary)):
            where = _where(spec, key)
            if name not in lines:
                raise SettingsError(f"{where}: {key} = {name!r} is not a metric{nearest(name, lines)}")
            if lines[name].direction == "none":
                raise SettingsError(
                    f"{where}: {key} = {name!r} has no better or worse. Choose a metric with a direction."
                )
            if name not in _kept(lines, knobs):
                raise SettingsError(
                    f"{where}: {key} = {name!r} is among eval.skip_metrics, or is not what eval.plan_reference = "
                    f"{knobs.plan_reference!r} measures. Keep it, or choose another."
                )
        if knobs.plan_reference == "pdm" and (spec.env.control != "sdc" or spec.env.simulation_mode != "replay"):
            raise SettingsError(
                f"{_where(spec, 'eval.plan_reference')}: eval.plan_reference = 'pdm', but the planner takes the place "
                "of one recorded vehicle. Use type = 'human_replay' or 'behavior_class', or leave it at 'log'."
            )
        for pattern in knobs.skip_metrics:
            if not any(fnmatchcase(name, pattern) for name in lines):
                where = _where(spec, "eval.skip_metrics")
                raise SettingsError(f"{where}: eval.skip_metrics {pattern!r} names no metric{nearest(pattern, lines)}")

    @classmethod
    def lines(cls) -> Mapping[str, Metric]:
        """Every metric that evaluators of this type know."""
        from skidpad.evaluation.metrics.registry import LINES

        return LINES

    def metric_digest(self) -> str:
        """Identity of what the metrics mean."""
        from skidpad.evaluation.metrics.registry import metric_spec_digest

        return metric_spec_digest(self.metrics())

    def rollouts(self, arm: Arm) -> int:
        """How often a case is run at once with an arm; its trace holds all of them."""
        return 1

    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that are computed of every trace: all registered ones but `eval.skip_metrics`,
        and PDMS against one reference only."""
        return self._metrics

    def section_digest(self) -> str:
        """Identity of the section: its settings, and what its scenes hold."""
        return self.spec.section_digest(sorted(self.plan.entries))

    # -- cases ------------------------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        entries, duplicates = _distinct(self.sources.entry(path) for path in self.spec.scenes)
        if self.spec.env.simulation_mode == "gigaflow":
            chosen, found = self._episodes(entries)
        else:
            chosen = self._chosen(entries)
            found = [one for entry in chosen for one in self._cases_of(entry)]
        cases = sorted(found, key=lambda item: item[0].id)
        planned = tuple(PlannedCase(case, index, problem) for index, (case, problem) in enumerate(cases))
        return Plan(planned, {entry.digest: entry for entry in chosen}, duplicates)

    def _chosen(self, entries: Sequence[SceneEntry]) -> list[SceneEntry]:
        """The scenes that run: all, or the `num_scenarios` with the smallest digest(seed, scene digest), a sample that
        is the same on every machine and grows by adding, never by reshuffling."""
        wanted = self.spec.eval.num_scenarios
        if wanted is None:
            return list(entries)
        if wanted > len(entries):
            raise SettingsError(
                f"[eval.{self.spec.name}]: eval.num_scenarios = {wanted}, but env.scenes holds {len(entries)} distinct "
                "scenes. Lower it; eval.replicates runs each scene several times."
            )
        return self._in_drawn_order(entries)[:wanted]

    def _in_drawn_order(self, entries: Sequence[SceneEntry]) -> list[SceneEntry]:
        seed = self.spec.benchmark_seed
        return sorted(entries, key=lambda entry: digest_value([seed, entry.digest], "scene sample"))

    def _episodes(self, entries: Sequence[SceneEntry]) -> tuple[list[SceneEntry], list[tuple[Case, str | None]]]:
        """Bare maps and their episodes (E64): a case is (map, seed, episode), the episode being its replicate. So many
        as were asked for are dealt to the maps in turn, so that a larger set holds a smaller one."""
        maps = self._in_drawn_order(entries)
        count = self.spec.eval.num_scenarios or len(maps) * self.spec.eval.replicates
        cases = []
        for number in range(count):
            episode, place = divmod(number, len(maps))
            entry = maps[place]
            case = Case(entry.digest, entry.scene_id, self.spec.benchmark_seed, episode)
            cases.append((case, entry.problem))
        return maps[:count], cases

    def _cases_of(self, entry: SceneEntry) -> Iterator[tuple[Case, str | None]]:
        problem, egos = entry.problem, [SCENE_EGO]
        if problem is None and self.spec.eval.egos == "each":
            try:
                egos = eligible_vehicles(self.sources.load(entry.digest), self.spec)
            except (SkidpadError, OSError) as error:
                problem = f"{type(error).__name__}: {error}"
            if problem is None and not egos:
                problem, egos = f"CaseError: scene {entry.scene_id} has no vehicle that can be under test.", [SCENE_EGO]
        for ego in egos:
            for replicate in range(self.spec.eval.replicates):
                yield Case(entry.digest, entry.scene_id, self.spec.benchmark_seed, replicate, ego), problem

    # -- running ----------------------------------------------------------------------------------------------------

    def batches(self, planned: Iterable[PlannedCase], shares: int = 1) -> Iterator[list[PlannedCase]]:
        """Cases in the order they run, scene by scene, cut at `vec.num_worlds` and into at least so many shares of
        about the same work, as the sizes of their scenes say. No result depends on the cuts."""
        ordered = sorted(planned, key=lambda item: (item.case.scene_digest, item.case.ego, item.case.replicate))
        sizes = {item.case.scene_digest: self.sources.size(item.case.scene_digest) for item in ordered}
        share = sum(sizes[item.case.scene_digest] for item in ordered) / shares
        batch: list[PlannedCase] = []
        used = 0.0
        for item in ordered:
            size = sizes[item.case.scene_digest]
            if batch and (len(batch) == self.spec.vec.num_worlds or (shares > 1 and used + size / 2 > share)):
                yield batch
                batch, used = [], 0.0
            batch.append(item)
            used += size
        if batch:
            yield batch

    def simulate(self, arm: Arm, planned: Sequence[PlannedCase]) -> Simulated:
        """Run cases with one arm, in the given order, and measure nothing."""
        from skidpad.evaluation.rollout import Failure, Outcome

        start = time.perf_counter()
        outcomes: dict[int, Outcome] = {}
        ready: list[PlannedCase] = []
        scenes: dict[str, Scene] = {}
        for item in planned:
            try:
                if item.problem is not None:
                    raise CaseError(item.problem)
                scenes[item.case.scene_digest] = self.sources.load(item.case.scene_digest)
                ready.append(item)
            except (SkidpadError, OSError) as error:
                status: Status = "invalid" if isinstance(error, IntegrityError) else "error"
                outcomes[item.position] = Outcome(status, None, Failure.of(error))
        loaded = time.perf_counter()
        for part in _fitting(ready, scenes, arm.env or self.spec.env, self.rollouts(arm)):
            for item, outcome in zip(part, self._outcomes(arm, part, scenes), strict=True):
                outcomes[item.position] = outcome
        rolled = time.perf_counter()
        return Simulated([outcomes[item.position] for item in planned], scenes, loaded - start, rolled - loaded)

    def run(self, arm: Arm, planned: Sequence[PlannedCase], *, epoch: int = 0, step: int = 0) -> list[Finished]:
        """Run cases with one arm and measure them, in the given order. Every case gives a record, failed or not."""
        simulated = self.simulate(arm, planned)
        start = time.perf_counter()
        results = self.results(planned, simulated)
        records = [
            self._record(arm, item, outcome, result, epoch, step)
            for item, outcome, result in zip(planned, simulated.outcomes, results, strict=True)
        ]
        metric_seconds = time.perf_counter() - start
        # Cases of a batch run together, so each is charged its share.
        share = 1.0 / max(1, len(planned))
        seconds = simulated.setup_seconds + simulated.rollout_seconds + metric_seconds
        cost = {
            "seconds": round(seconds * share, 6),
            "setup_seconds": round(simulated.setup_seconds * share, 6),
            "rollout_seconds": round(simulated.rollout_seconds * share, 6),
            "metric_seconds": round(metric_seconds * share, 6),
            "batch": len(planned),
            "host": socket.gethostname(),
            "process": os.getpid(),
        }
        return [
            Finished(replace(record, cost=cost), outcome.trace if record.status == "ok" else None)
            for record, outcome in zip(records, simulated.outcomes, strict=True)
        ]

    def _outcomes(self, arm: Arm, part: Sequence[PlannedCase], scenes: Mapping[str, Scene]) -> list[Outcome]:
        """Outcomes of cases that run together; whichever fails runs once more alone, and that outcome counts, so a
        record never depends on who shared the batch."""
        outcomes: dict[int, Outcome] = {}
        together = list(part)
        while len(together) > 1:
            try:
                found = self._attempt(arm, together, scenes)
            except CaseError as error:
                if error.world is None:
                    break
                del together[error.world // self.rollouts(arm)]
                continue
            except Exception:  # A failure becomes a record: each case shows below whether it was its own.
                break
            outcomes = {item.position: outcome for item, outcome in zip(together, found, strict=True)}
            break
        return [
            outcomes[item.position]
            if item.position in outcomes and outcomes[item.position].status == "ok"
            else self._alone(arm, item, scenes)
            for item in part
        ]

    def _alone(self, arm: Arm, item: PlannedCase, scenes: Mapping[str, Scene]) -> Outcome:
        from skidpad.evaluation.rollout import Failure, Outcome

        try:
            return self._attempt(arm, [item], scenes)[0]
        except Exception as error:  # A failure becomes a record (E30).
            return Outcome("error", None, Failure.of(error))

    def _attempt(self, arm: Arm, part: Sequence[PlannedCase], scenes: Mapping[str, Scene]) -> list[Outcome]:
        import numpy as np

        from skidpad.evaluation.rollout import Labels, rollout

        count = self.rollouts(arm)
        cases = [item.case for item in part for _ in range(count)]
        spec, env = self.spec, arm.env or self.spec.env
        with self.worlds.taken(
            cases,
            env,
            scenes,
            threads=spec.vec.threads,
            cache=self.sources.cache,
            substitute=arm.substitute,
        ) as simulator:
            outcomes = rollout(
                simulator,
                cases,
                arm.policy,
                env=env,
                selection=spec.action_selection,
                labels=Labels(spec.name, arm.name, spec.profile),
                record=spec.record,
                numbers=np.tile(np.arange(count), len(part)),
            )
        return [_together(outcomes[first : first + count]) for first in range(0, len(cases), count)]

    def results(self, planned: Sequence[PlannedCase], simulated: Simulated) -> list[dict[str, Any] | Exception | None]:
        """What each trace measured to, or why it could not be measured; None where there is no trace."""
        from skidpad.evaluation.metrics.registry import together

        found: list[dict[str, Any] | Exception | None] = [None] * len(planned)
        pairs = [
            (position, outcome.trace, simulated.scenes[item.case.scene_digest])
            for position, (item, outcome) in enumerate(zip(planned, simulated.outcomes, strict=True))
            if outcome.trace is not None
        ]
        if self.spec.eval.plan_reference == "pdm":
            self._drive_references([planned[position] for position, _, _ in pairs], simulated.scenes)
        for group in together([(trace, scene) for _, trace, scene in pairs]):
            positions, traces, scenes = zip(*(pairs[number] for number in group), strict=True)
            try:
                results: Sequence[dict[str, Any] | Exception] = self._measured(traces, scenes[0])
            except Exception as error:  # A failure becomes a record (E30), of the one case that it belongs to.
                results = [error] if len(group) == 1 else [self._measured_alone(trace, scenes[0]) for trace in traces]
            for position, result in zip(positions, results, strict=True):
                found[position] = result
        return found

    def _drive_references(self, items: Sequence[PlannedCase], scenes: Mapping[str, Scene]) -> None:
        """Let a PDM-style planner drive cases whose plans are held against it: each once, however many arms there
        are."""
        from skidpad.evaluation.metrics.navsim_score import reference_terms
        from skidpad.evaluation.metrics.registry import BY_PDM
        from skidpad.evaluation.metrics.view import CaseView

        new = [item for item in items if item.case.id not in self._references]
        for part in _fitting(new, scenes, self.spec.env, 1):
            for item, outcome in zip(part, self._outcomes(PLAN_REFERENCE, part, scenes), strict=True):
                if outcome.trace is None:
                    assert outcome.failure is not None
                    self._references[item.case.id] = outcome.failure
                else:
                    view = CaseView(outcome.trace, scenes[item.case.scene_digest])
                    self._references[item.case.id] = reference_terms(view, **BY_PDM["pdms_by_pdm"].parameters)

    def _reference_of(self, trace: Trace) -> F64:
        found = self._references[trace.meta.case]
        if isinstance(found, tuple):
            raise CaseError(
                f"case {trace.meta.case}: the planner that eval.plan_reference = 'pdm' asks for failed in it: "
                f"{found.message} Leave the case out, or hold scores against the log."
            )
        return found

    def _measured_alone(self, trace: Trace, scene: Scene) -> dict[str, Any] | Exception:
        try:
            return self._measured([trace], scene)[0]
        except Exception as error:
            return error

    def _record(
        self,
        arm: Arm,
        item: PlannedCase,
        outcome: Outcome,
        result: dict[str, Any] | Exception | None,
        epoch: int,
        step: int,
    ) -> Record:
        from skidpad.evaluation.rollout import Failure

        status, failure = outcome.status, outcome.failure
        ego, rule = item.case.ego, ""
        if outcome.trace is not None:
            ego, rule = outcome.trace.meta.ego, outcome.trace.meta.ego_rule
        if isinstance(result, Exception):
            status, failure, result = "error", Failure.of(result), None
        case = item.case
        return Record(
            evaluator=self.spec.name,
            epoch=epoch,
            step=step,
            checkpoint=arm.checkpoint,
            case=case.id,
            arm=arm.name,
            case_index=item.position,
            scene_id=case.scene_id,
            scene_digest=case.scene_digest,
            seed=case.seed,
            benchmark_seed=case.benchmark_seed,
            replicate=case.replicate,
            ego=ego,
            ego_rule=rule,
            status=status,
            error=None if failure is None else failure._asdict(),
            result=result,
        )

    def lost(
        self, arm: Arm, item: PlannedCase, status: Status, error: Mapping[str, str], epoch: int, step: int
    ) -> Record:
        """The record of a case that nobody can say more of than `error`."""
        from skidpad.evaluation.rollout import Failure, Outcome

        return self._record(arm, item, Outcome(status, None, Failure(**error)), None, epoch, step)

    def _measured(self, traces: Sequence[Trace], scene: Scene) -> list[dict[str, Any]]:
        """What cases measured to that share a view. Whoever raises for one case raises for all of them."""
        from skidpad.evaluation.metrics.guards import contradictions
        from skidpad.evaluation.metrics.navsim_score import REFERENCE, terms_of
        from skidpad.evaluation.metrics.registry import agents_of, by_case
        from skidpad.evaluation.metrics.view import CaseView

        view = CaseView(traces, scene)
        if self.spec.eval.plan_reference == "pdm":
            references = [agent for trace in traces for agent in self._reference_of(trace)]
            view.once(REFERENCE, lambda _: terms_of(references))
        agents = agents_of(view, self.metrics())
        if problems := contradictions(view, agents):
            meta = traces[0].meta
            raise CaseError(
                f"case {meta.case}, arm {meta.arm!r}: its metrics contradict each other or the trace: "
                f"{'; '.join(problems[:5])}. One of the metrics or an event of the simulator is wrong."
            )
        return [
            {
                "n_agents": len(trace["scored"]),
                "steps": trace.steps,
                "metrics": {name: values[name].as_record() for name in sorted(values)},
                "trace_digest": trace.digest,
                "state_hash": digest_value(trace.hashes, "state hashes"),
            }
            for trace, values in zip(traces, by_case(view, agents), strict=True)
        ]


def _where(spec: EvaluatorSpec, key: str) -> str:
    return spec.origins[key].where if key in spec.origins else f"[eval.{spec.name}]"


def _kept(names: Iterable[str], knobs: EvalKnobs) -> tuple[str, ...]:
    from skidpad.evaluation.metrics.registry import BY_LOG, BY_PDM

    skipped = (*knobs.skip_metrics, *(BY_LOG if knobs.plan_reference == "pdm" else BY_PDM))
    return tuple(name for name in sorted(names) if not any(fnmatchcase(name, pattern) for pattern in skipped))


def eligible_vehicles(scene: Scene, spec: EvaluatorSpec) -> list[int]:
    """Tracks that `egos = "each"` puts under test in turn, ascending: every vehicle that can be controlled."""
    from skidpad.simulation.population import eligible

    return [int(track) for track in eligible(scene, spec.env)]


def _distinct(entries: Iterable[SceneEntry]) -> tuple[list[SceneEntry], tuple[str, ...]]:
    found: dict[str, SceneEntry] = {}
    duplicates = []
    for entry in entries:
        if entry.digest in found:
            duplicates.append(f"{entry.path} holds the scene of {found[entry.digest].path}")
        else:
            found[entry.digest] = entry
    return list(found.values()), tuple(duplicates)


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    """What the rollouts of one case came to: all of them in one trace, or why one of them has none."""
    from skidpad.evaluation.rollout import Failure, Outcome, joined

    failed = next((outcome for outcome in outcomes if outcome.trace is None), None)
    if failed is not None or len(outcomes) == 1:
        return failed or outcomes[0]
    try:
        return Outcome("ok", joined([outcome.trace for outcome in outcomes if outcome.trace is not None]), None)
    except CaseError as error:
        return Outcome("error", None, Failure.of(error))


def _fitting(
    items: Sequence[PlannedCase], scenes: Mapping[str, Scene], env: EnvSettings, rollouts: int
) -> Iterator[list[PlannedCase]]:
    """Runs of cases whose traces fit into TRACE_BUFFER_BYTES together; never an empty one."""
    from skidpad.evaluation.rollout import STATE_BYTES
    from skidpad.simulation.population import most_agents, most_states

    part: list[PlannedCase] = []
    used = 0
    for item in items:
        scene = scenes[item.case.scene_digest]
        size = most_agents(scene, env) * most_states(scene, env) * STATE_BYTES * rollouts
        if part and used + size > TRACE_BUFFER_BYTES:
            yield part
            part, used = [], 0
        part.append(item)
        used += size
    if part:
        yield part

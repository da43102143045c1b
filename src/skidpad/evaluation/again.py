"""Cases of a recorded run of drivers once more: simulated from what its folder says, or measured on the traces that it
kept, by the same code as the first time (E105, E116).

Equal results say that nothing was lost, whatever ran here. Different ones accuse the run only where this is the same
code, with the same libraries, on the same kind of processor: that is what is promised (docs/promises.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from skidpad.errors import IntegrityError, SkidpadError, UsageError, listed
from skidpad.evaluation.drivers import POLICY_ARM, Driver, arm_beside
from skidpad.evaluation.evaluator import Arm, Evaluator, Finished, Plan, PlannedCase, Simulated
from skidpad.evaluation.evaluators import EVALUATORS
from skidpad.evaluation.run_files import absent_scene, found_scenes, found_weights, named_scenes
from skidpad.evaluation.sources import SceneSources
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import code_digests, environment
from skidpad.runs.records import Record, first_difference, merge, read_records
from skidpad.runs.trace import Trace
from skidpad.scenes.case import Case
from skidpad.settings.suite import recorded_spec

REPEATABLE = frozenset({"ok", "error"})
"""How a case ended that ends so again; the others were stopped from outside."""


class Repeat(NamedTuple):
    """A record, and what its case came to now.

    finished    None where it could not be driven, for the reason in `problem`
    difference  the first field that is another one now, None where the records are equal
    """

    record: Record
    finished: Finished | None
    difference: str | None
    problem: SkidpadError | None

    @property
    def where(self) -> str:
        record = self.record
        return f"{record.evaluator}, case {record.case}, arm {record.arm!r}"


class Again:
    """The evaluators of a run as they were, from its manifest.

    assets, checkpoints  folders in which scenes and weights are looked for first
    """

    def __init__(
        self,
        folder: RunFolder,
        manifest: Mapping[str, Any],
        *,
        assets: Sequence[Path] = (),
        checkpoints: Sequence[Path] = (),
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self.sources = SceneSources()
        self.named = named_scenes(manifest)
        self.found = found_scenes(manifest, assets, self.sources)
        self.sources.know({**self.named, **self.found}.values())
        self.elsewhere = elsewhere(manifest)
        self._checkpoints = checkpoints
        self._evaluators: dict[str, Evaluator] = {}
        self._arms: dict[tuple[str, str, str], Mapping[str, Arm]] = {}

    def evaluator(self, name: str) -> Evaluator:
        """An evaluator with its cases. Raises UsageError where this version cannot read its settings, IntegrityError
        where they are not those that the run was registered with."""
        if name not in self._evaluators:
            self._evaluators[name] = self._made(name, self.manifest["evaluators"][name])
        return self._evaluators[name]

    def _made(self, name: str, part: Mapping[str, Any]) -> Evaluator:
        kind = EVALUATORS.get(part["type"])
        if kind is None:
            raise UsageError(f"{name}: is of type {part['type']!r}, which this version does not have.")
        try:
            spec = recorded_spec(name, part["settings"], kind.TYPE)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{name}: this version does not read its settings ({error}).") from None
        planned = []
        for position, said in enumerate(part["cases"]):
            scene = said["scene_digest"]
            case = Case(scene, self.named[scene].scene_id, spec.benchmark_seed, said["replicate"], said["ego"])
            if case.id != said["case"]:
                raise IntegrityError(f"manifest.json: {name}: case {said['case']} is not the one it describes.")
            planned.append(PlannedCase(case, position, None))
        plan = Plan(tuple(planned), {digest: self.named[digest] for digest in part["scenes"]}, ())
        evaluator = kind(spec, self.sources, plan=plan)
        if evaluator.section_digest() != part["digests"]["section"]:
            message = f"manifest.json: the settings of {name} are not those of its section digest"
            if self.elsewhere:
                raise UsageError(f"{message} here ({self.elsewhere}).")
            raise IntegrityError(f"{message}.")
        return evaluator

    def arm(self, record: Record) -> Arm:
        """Who drove a record. Raises UsageError where its weights are not found or it is not known here, IntegrityError
        where other weights lie in their place."""
        key = record.evaluator, record.checkpoint, record.arm if self._is_beside(record) else ""
        if key not in self._arms:
            self._arms[key] = {arm.name: arm for arm in self._arms_of(record)}
        arm = self._arms[key].get(record.arm)
        if arm is None:
            raise UsageError(f"{record.evaluator}: driver {record.arm!r} is not known to this version.")
        return arm

    @staticmethod
    def _is_beside(record: Record) -> bool:
        return bool(record.checkpoint) and record.arm != POLICY_ARM

    def _arms_of(self, record: Record) -> list[Arm]:
        """The driver of a record with weights, else all those without."""
        spec = self.evaluator(record.evaluator).spec
        if not record.checkpoint:
            named = self.manifest["identity"]["policy"]
            return Driver(baseline=None if named == POLICY_ARM else named).arms(spec, [])
        part = self.manifest["evaluators"][record.evaluator]
        checkpoint = found_weights(record.checkpoint, self.folder, part, self._checkpoints)
        if self._is_beside(record):
            return [arm_beside(record.arm, checkpoint, spec)]
        return Driver(checkpoint=checkpoint, digest=checkpoint.digest).arms(spec, [])

    def check_scene(self, digest: str) -> None:
        """Raises as `absent_scene` where no file of a scene was found."""
        if digest not in self.found:
            raise absent_scene(self.named[digest], self.sources)

    def drive(self, records: Iterable[Record]) -> Iterator[Repeat]:
        """Simulate the cases of records again and measure them, each by its own driver. Nothing is raised for one that
        cannot be driven: it says why."""
        groups: defaultdict[tuple[str, str, str], list[Record]] = defaultdict(list)
        for record in records:
            groups[record.evaluator, record.checkpoint, record.arm].append(record)
        for group in groups.values():
            ready = []
            for record in group:
                try:
                    evaluator, arm = self.evaluator(record.evaluator), self.arm(record)
                    self.check_scene(record.scene_digest)
                    ready.append(record)
                except SkidpadError as error:
                    yield Repeat(record, None, None, error)
            if ready:
                yield from _driven(evaluator, arm, ready)

    def measure(self, traces: Sequence[tuple[Record, Trace]]) -> Iterator[tuple[Record, str | None]]:
        """Measure kept traces of one evaluator, whose scenes were found; records, and the first field of their result
        that is another one now. Raises as `evaluator`."""
        from skidpad.evaluation.rollout import Outcome

        evaluator = self.evaluator(traces[0][0].evaluator)
        planned = [evaluator.plan.cases[record.case_index] for record, _ in traces]
        scenes = {record.scene_digest: self.sources.load(record.scene_digest) for record, _ in traces}
        outcomes = [Outcome("ok", trace, None) for _, trace in traces]
        results = evaluator.results(planned, Simulated(outcomes, scenes, 0.0, 0.0))
        for (record, _), result in zip(traces, results, strict=True):
            if isinstance(result, Exception):
                yield record, f"result ({type(result).__name__}: {result})"
            else:
                yield record, first_difference(record, replace(record, result=result))


def records_of(folder: RunFolder, case: str, arms: Sequence[str] = (), evaluator: str | None = None) -> list[Record]:
    """The records of one case of a finished run, of some arms or of all.

    case       its id, or how the id of no other case begins
    evaluator  the one that ran it; None where any may have: a case is the same in all

    Raises UsageError where the run is not finished or has no such case or arm, or several cases begin so.
    """
    folder.read_report()
    records = [
        record
        for record in merge(read_records(folder.records)).values()
        if record.case.startswith(case) and evaluator in (None, record.evaluator)
    ]
    cases = sorted({record.case for record in records})
    if len(cases) != 1 or not case:
        said = f"{case!r} begins {len(cases)} cases, {listed(cases)}; give more of it" if cases else f"no case {case!r}"
        raise UsageError(f"{folder.path}: {said}. episodes.csv lists them.")
    known = sorted({record.arm for record in records})
    if unknown := [arm for arm in arms if arm not in known]:
        raise UsageError(f"{folder.path}: case {cases[0]} has no arm {listed(unknown)}; it has {listed(known)}.")
    return [record for record in records if not arms or record.arm in arms]


def _driven(evaluator: Evaluator, arm: Arm, records: Sequence[Record]) -> Iterator[Repeat]:
    by_position = {record.case_index: record for record in records}
    for batch in evaluator.batches([evaluator.plan.cases[position] for position in sorted(by_position)]):
        for item, finished in zip(batch, evaluator.run(arm, batch), strict=True):
            record = by_position[item.position]
            now = replace(finished.record, epoch=record.epoch, step=record.step)
            yield Repeat(record, finished, first_difference(_told(record), _told(now)), None)


def _told(record: Record) -> Record:
    """A record without what depends on who was in its batch: the calls that an error went through."""
    return record if record.error is None else replace(record, error={**record.error, "traceback": ""})


def elsewhere(manifest: Mapping[str, Any]) -> str:
    """In what this installation and machine differ from those of a run; "" where a run must repeat exactly."""
    there, here = manifest["environment"], environment(1)
    told = {"code": (manifest["identity"]["code"], code_digests()["code"])}
    told |= {key: (there[key], here[key]) for key in ("python", "system", "cpu")}
    told |= {name: (there["libraries"].get(name), version) for name, version in here["libraries"].items()}
    return "; ".join(f"{name} {one} then, {other} now" for name, (one, other) in told.items() if one != other)

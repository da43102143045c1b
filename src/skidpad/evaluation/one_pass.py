"""One pass: an evaluator, its driver at one epoch and step, and what came of it.

It is begun and ended by the manager, in whose thread the chain is written; in between it may be performed in another
one, where it writes records and traces and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from skidpad.errors import EXIT_FAILED, EXIT_INTEGRITY, EXIT_OK
from skidpad.evaluation.drivers import Driver
from skidpad.evaluation.evaluator import Arm, Evaluator, PlannedCase
from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.kept import KeptRecords
from skidpad.evaluation.passes import PassFailed, Running, Show
from skidpad.evaluation.passes import Progress as PassProgress
from skidpad.evaluation.places import Places
from skidpad.evaluation.renders import Draw, RenderJob, cases_to_draw, draw_cases
from skidpad.evaluation.schedule import EvalResult
from skidpad.evaluation.sources import SceneSources
from skidpad.runs.chain import Chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import Record, RecordFile, RecordKey


@dataclass
class Registered:
    """One evaluator of a run: its cases, the arms of a driver under test, and its entry in the manifest."""

    evaluator: Evaluator
    driver: Driver
    arms: list[Arm]
    part: dict[str, Any]
    identity: dict[str, Any] = field(default_factory=dict)

    @property
    def pass_key(self) -> tuple[str, ...]:
        """What makes two passes one (E25)."""
        digests = self.part["digests"]
        name = self.evaluator.spec.name
        return (name, digests["section"], digests["metrics"], *(arm.checkpoint for arm in self.arms))


@dataclass(frozen=True)
class Into:
    """What all passes of a run read from and write into."""

    folder: RunFolder
    records: RecordFile
    chain: Chain
    sources: SceneSources
    draw: Draw | None
    kept: KeptRecords | None


class OnePass:
    """`begin`, `perform` and `end` are called once each, in this order.

    draws      whether its section's pictures are due
    exit_code  of the run, as far as this pass goes, once it has ended
    """

    def __init__(
        self, item: Registered, into: Into, interrupts: Interrupts, epoch: int, step: int, *, draws: bool
    ) -> None:
        self.name, self.item, self.epoch, self.step = item.evaluator.spec.name, item, epoch, step
        self._into, self._interrupts, self._draws = into, interrupts, draws
        self._place = ExitStack()
        self._checked: dict[str, Any] | None = None
        self._shown: list[str] = []
        self._failure: Mapping[str, str] | None = None
        self._raised: BaseException | None = None
        self.exit_code = EXIT_OK

    def begin(self, places: Places, show: Show, progress: PassProgress) -> None:
        """Make its place ready. Raises as `Places.ready`."""
        item, into = self.item, self._into
        into.chain.append("started", self._said())
        where = self._place.enter_context(places.ready(item.evaluator, item.arms, item.driver, self.epoch, self.step))
        self._running = Running(
            item.evaluator,
            item.arms,
            where,
            into.folder,
            into.records,
            self._interrupts,
            show=show,
            progress=progress,
            kept=into.kept,
        )

    def perform(self) -> None:
        """Run its cases and keep its traces. Raises nothing: `end` does."""
        from skidpad.evaluation.summary import selected

        item, running = self.item, self._running
        try:
            with self._place:
                if weights := [arm for arm in item.arms if arm.checkpoint]:
                    said = {arm.name: running.batch_sensitivity(arm) for arm in weights}
                    found = [f"{name}: {text}" for name, text in said.items() if text is not None]
                    self._checked = {"evaluator": self.name, "sensitive": "; ".join(found) or None}
                running.run_cases()
                self._shown = self._cases_to_draw() if self._draws else []
                if item.evaluator.spec.keep_traces == "selected":
                    worst, random = selected(item.part, self._focus_records())
                    running.keep_traces([*worst, *random, *self._shown])
        except PassFailed as failed:
            self._failure = failed.failure
        except BaseException as error:  # It belongs to whoever waits for this pass.
            self._raised = error

    def leave(self) -> None:
        """Give up a pass that has not been performed to its end, where the run is being stopped."""
        self._place.close()
        self._chain("interrupted", {"evaluator": self.name, "records": len(self._into.records.records)})

    def end(self) -> EvalResult:
        """Say in the chain how it went, and draw what is to be drawn. Raises what ended it, unless that is a fault of
        the evaluator: an error of the disk, an interruption."""
        if isinstance(self._raised, KeyboardInterrupt):
            self.leave()
        if self._raised is not None:
            raise self._raised
        if self._checked is not None:
            self._chain("batch_checked", self._checked)
        failure = self._failure
        if failure is not None:
            self._chain("evaluator_failed", {"evaluator": self.name, "error": failure})
            self.exit_code = EXIT_INTEGRITY if failure["type"] == "IntegrityError" else EXIT_FAILED
            print(failure["traceback"] or f"{self.name}: {failure['message']}", file=sys.stderr)
        else:
            self._chain("scored", {"evaluator": self.name, "records": len(self._into.records.records)})
        result = self._result()
        if self._shown and failure is None:
            result = self._render(result)
        if not result.ok:
            self.exit_code = max(self.exit_code, EXIT_FAILED)
        return result

    # -- what came of it --------------------------------------------------------------------------------------------

    def _said(self) -> dict[str, Any]:
        return {"evaluator": self.name, "epoch": self.epoch, "step": self.step}

    def _chain(self, event: str, data: Mapping[str, Any]) -> None:
        self._into.chain.append(event, data)

    def _cases_to_draw(self) -> list[str]:
        spec = self.item.evaluator.spec
        return cases_to_draw(spec, self.item.part, self._focus_records(), self.step) if spec.render else []

    def _key(self, planned: PlannedCase, arm: Arm) -> RecordKey:
        return RecordKey(self.name, arm.checkpoint, planned.case.id, arm.name)

    def _focus_records(self) -> list[Record]:
        """The records of the pass's driver under test, in the order of its cases."""
        records = self._into.records
        focus = next(arm for arm in self.item.arms if arm.name == self.item.part["focus"])
        keys = [self._key(case, focus) for case in self.item.evaluator.plan.cases]
        return [records.records[key] for key in keys if key in records]

    def _result(self) -> EvalResult:
        from skidpad.evaluation.summary import coverage_of, seconds, status_of, values_of

        item, checkpoints = self.item, {arm.checkpoint for arm in self.item.arms}
        records = [r for r in self._into.records.of(self.name) if r.checkpoint in checkpoints]
        coverage = coverage_of(item.part, records)
        failed = len({record.case for record in records if record.status != "ok"})
        status = status_of(self._failure, coverage, failed, item.evaluator.spec.eval.max_failed_cases)
        ok = status == "ok"
        focus = [record for record in records if record.arm == item.part["focus"]]
        values = ({} if status == "mismatch" else values_of(focus)) | seconds(records) | {"ok": float(ok)}
        keyed = {f"{self.name}/{key}": value for key, value in values.items()}
        return EvalResult(self.name, ok, status, keyed, coverage, self._failure, epoch=self.epoch, step=self.step)

    def _render(self, result: EvalResult) -> EvalResult:
        """Draw cases of the pass. A fault of drawing is a fault of the pictures: every record and number stands
        (F57)."""
        self._interrupts.stop_here()
        into, item = self._into, self.item
        assert into.draw is not None
        cases: Sequence[str] = self._shown
        by_key = into.records.records
        planned = {case.case.id: case for case in item.evaluator.plan.cases}
        records = {
            (case, arm.name): by_key[key]
            for case in cases
            for arm in item.arms
            if (key := self._key(planned[case], arm)) in by_key
        }
        spec = item.evaluator.spec
        job = RenderJob(into.folder, spec, item.part, cases, records, into.sources.load, self.epoch, self.step)
        drawn = draw_cases(into.draw, job)
        self._chain("rendered" if drawn.failure is None else "render_failed", drawn.event(job))
        if drawn.failure is not None:
            self.exit_code = EXIT_FAILED
            print(drawn.failure["traceback"], file=sys.stderr)
        values = {**result.values, f"{self.name}/render_seconds": drawn.seconds}
        return replace(result, renders=drawn.files, values=values)

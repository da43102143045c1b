"""One pass of an evaluator: its cases are shared out to wherever it runs, and what comes back is recorded here and
nowhere else.

A share is a set of cases without a record, never a position among workers: for any number of workers, any order and
any restart the shares are disjoint and their union is the set (E46). A worker that dies costs its share, whose cases
are then tried once more, each alone; which of them ends a worker again has crashed (F38).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from skidpad.artifacts.files import replace as replace_file
from skidpad.engines.engine import Done, Engine, Job, PlaceLostError, Task, described
from skidpad.errors import IntegrityError
from skidpad.evaluation.evaluator import Arm, Evaluator, PlannedCase
from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.kept import KeptRecords
from skidpad.evaluation.remote import made_of
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import Record, RecordFile, RecordKey

SHARES_PER_WORKER = 3
"""More than one, so that who is done early takes more; few, because a small batch costs as many network calls."""

TIMEOUT, MISMATCH = "PassTimeout", "PassMismatch"
Failure = Mapping[str, str]
Progress = Callable[[str, int, int], None]
Show = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Where:
    """Where a pass runs, what its replies must say of themselves, and s, how long it may take."""

    engine: Engine
    job: Job
    echo: Mapping[str, Any]
    limit: float | None


class PassFailed(Exception):
    """A pass that ended early; `failure` is what is recorded of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


class Running:
    """One pass into a run folder.

    show      called with (done, failed, total) as records are written
    progress  called with (text, done, total) while traces are made
    kept      where records of drivers that repeat are taken from and left
    """

    def __init__(
        self,
        evaluator: Evaluator,
        arms: Sequence[Arm],
        where: Where,
        folder: RunFolder,
        records: RecordFile,
        interrupts: Interrupts,
        show: Show,
        progress: Progress,
        kept: KeptRecords | None = None,
    ) -> None:
        self._kept = kept if evaluator.spec.keep_traces != "all" else None  # a record alone has no trace to write
        self._evaluator, self._arms, self._where = evaluator, list(arms), where
        self._folder, self._records, self._interrupts, self._show = folder, records, interrupts, show
        self._progress = progress
        self._name = evaluator.spec.name
        self._deadline: float | None = None
        self._sensitive: set[str] = set()
        self._told: set[str] = set()
        self._planned = {item.case.id: item for item in evaluator.plan.cases}

    def key(self, planned: PlannedCase, arm: Arm) -> RecordKey:
        return RecordKey(self._name, arm.checkpoint, planned.case.id, arm.name)

    # -- what is done -----------------------------------------------------------------------------------------------

    def batch_sensitivity(self, arm: Arm) -> str | None:
        """How a driver's actions depend on who shares its batch (E48), None where they do not."""
        said: str | None = "could not be checked (there was no time)"
        for done in self._run([self._task("check", arm, [])]):
            if done.fate == "done":
                said = done.reply.document["sensitive"]
            else:
                said = f"could not be checked ({done.about or done.reply.document['message']})"
        if said is not None:
            self._sensitive.add(arm.name)
        return said

    def run_cases(self) -> None:
        """Run and record every case that has no record yet. Raises PassFailed where something ended the pass early.

        Only the evaluator's own work is guarded: an error of the disk is no fault of an evaluator, and after it nothing
        more may be appended.
        """
        self._count(0, 0)
        self._take_kept()
        lost: list[Task] = []
        for done in self._run(self._shares(self._evaluator.plan.cases, "run", self._is_missing)):
            if done.fate == "died":
                lost.append(done.task)
            else:
                self._take(done)
        for done in self._each_alone(lost):
            if done.fate == "died":
                self._record_lost(done, "crashed", "WorkerDied", "its worker died twice, the second time with it alone")
            else:
                self._take(done)
        self._interrupts.stop_here()
        self._leave_kept()

    def _repeating(self) -> list[Arm]:
        return [arm for arm in self._arms if arm.repeats and arm.name not in self._sensitive]

    def _leave_kept(self) -> None:
        """Keep what drivers did for later runs. Raises PassFailed where a kept record says otherwise."""
        if self._kept is None:
            return
        for arm in self._repeating():
            records = [self._records.records.get(self.key(item, arm)) for item in self._evaluator.plan.cases]
            try:
                self._kept.save(self._evaluator, arm, [record for record in records if record is not None])
            except IntegrityError as error:
                raise PassFailed(described(error)) from error

    def _take_kept(self) -> None:
        """Record what is kept (E71, E104): of the same definition, so only the pass is another."""
        if self._kept is None:
            return
        echo = self._where.echo
        for arm in self._repeating():
            kept = self._kept.load(self._evaluator, arm)
            own = {"evaluator": self._name, "epoch": echo["epoch"], "step": echo["step"]}
            cost = {"seconds": 0.0, "kept": True}
            self._append(
                replace(kept[item.case.id], **own, case_index=item.position, cost=cost)
                for item in self._evaluator.plan.cases
                if item.case.id in kept and self._is_missing(item, arm)
            )

    def keep_traces(self, cases: Iterable[str]) -> None:
        """Simulate cases again with every arm, check that they repeat exactly (E105), and keep their traces. Raises
        PassFailed where they do not, or where it cannot be done."""
        chosen = [self._planned[case] for case in dict.fromkeys(cases)]
        tasks = list(self._shares(chosen, "again", self._lacks_trace))
        total, kept = sum(len(task.document["cases"]) for task in tasks), 0
        lost: list[Task] = []
        for done in self._run(tasks):
            if done.fate == "died":
                lost.append(done.task)
                continue
            kept += self._keep(done)
            self._progress(f"{self._name}: traces", kept, total)
        for done in self._each_alone(lost):
            if done.fate == "died":
                raise PassFailed(
                    _failure("WorkerDied", f"simulating a recorded case again, a worker died ({done.about})")
                )
            self._keep(done)

    # -- sharing out ------------------------------------------------------------------------------------------------

    def _run(self, tasks: Iterable[Task]) -> Iterator[Done]:
        """Tasks at the place of this pass. Raises PassFailed where one raised, answered for another pass, or was still
        due when the time was over."""
        left = 0

        def counted() -> Iterator[Task]:
            nonlocal left
            for task in tasks:
                left += 1
                yield task

        where = self._where
        if self._deadline is None and where.limit is not None:  # counted from when the pass runs, not while it waits
            self._deadline = time.monotonic() + where.limit
        late = False
        asked = closing(where.engine.run(where.job, counted(), deadline=self._deadline, stopped=self._interrupts.look))
        try:
            with asked as ended:
                for done in ended:
                    left -= 1
                    self._check(done)
                    self._tell(done)
                    late |= done.fate == "timeout"
                    yield done
        except PlaceLostError as error:
            raise PassFailed(described(error)) from error
        self._interrupts.stop_here()
        if late or left:
            raise PassFailed(_failure(TIMEOUT, f"the pass took longer than its timeout_seconds = {where.limit:g}"))

    def _tell(self, done: Done) -> None:
        """Say once that a worker leaks."""
        if done.fate == "done" and done.about and done.about not in self._told:
            self._told.add(done.about)
            print(f"{self._name}: {done.about}", file=sys.stderr)

    def _check(self, done: Done) -> None:
        """Raises PassFailed for a task that raised, and for an answer to something that was not asked (E38)."""
        said = done.reply.document
        if done.fate == "raised":
            raise PassFailed(said)
        if done.fate == "done" and said["echo"] != self._where.echo:
            raise PassFailed(
                _failure(MISMATCH, f"asked was {dict(self._where.echo)}, a worker answered {said['echo']}")
            )

    def _task(self, what: str, arm: Arm, cases: Sequence[PlannedCase]) -> Task:
        return Task({"do": what, "arm": arm.name, "cases": [item.position for item in cases]})

    def _shares(
        self, cases: Sequence[PlannedCase], what: str, wanted: Callable[[PlannedCase, Arm], bool]
    ) -> Iterator[Task]:
        workers = self._where.engine.workers
        shares = 1 if workers == 1 else -(-SHARES_PER_WORKER * workers // len(self._arms))
        for batch in self._evaluator.batches(cases, shares):
            for arm in self._arms:
                if missing := [item for item in batch if wanted(item, arm)]:
                    yield self._task(what, arm, missing)

    def _each_alone(self, lost: Sequence[Task]) -> Iterator[Done]:
        """The cases of lost tasks once more, each alone: the next begins when nothing else runs."""
        for task in lost:
            for position in task.document["cases"]:
                yield from self._run([Task({**task.document, "cases": [position]})])

    def _cases(self, done: Done) -> tuple[Arm, list[PlannedCase]]:
        document = done.task.document
        arm = next(arm for arm in self._arms if arm.name == document["arm"])
        return arm, [self._evaluator.plan.cases[position] for position in document["cases"]]

    # -- what came of it --------------------------------------------------------------------------------------------

    def _is_missing(self, item: PlannedCase, arm: Arm) -> bool:
        return self.key(item, arm) not in self._records

    def _take(self, done: Done) -> None:
        if done.fate == "timeout":
            self._record_lost(done, "timeout", "CaseTimeout", "it was running when the time of the pass was over")
            return
        found = made_of(done.reply)
        for made in found:
            if made.trace is not None:
                self._write_trace(made.record, made.trace)
        self._append(made.record for made in found)

    def _record_lost(self, done: Done, status: Any, kind: str, what: str) -> None:
        arm, cases = self._cases(done)
        echo = self._where.echo
        lost = []
        for item in cases:
            message = f"case {item.case.id} of scene {item.case.scene_id}, arm {arm.name!r}: {what} ({done.about})."
            failure = _failure(kind, message)
            lost.append(self._evaluator.lost(arm, item, status, failure, echo["epoch"], echo["step"]))
        self._append(lost)

    def _append(self, records: Iterable[Record]) -> None:
        if new := list(records):
            self._records.append(*new)
            self._count(len(new), sum(record.status != "ok" for record in new))

    def _count(self, done: int, failed: int) -> None:
        """Tell how far the pass is; 0 and 0 count what was there before."""
        if not done:
            keys = [self.key(item, arm) for item in self._evaluator.plan.cases for arm in self._arms]
            there = [self._records.records[key] for key in keys if key in self._records]
            done, failed, self._done, self._failed = len(there), sum(r.status != "ok" for r in there), 0, 0
            self._total = len(keys)
        self._done, self._failed = self._done + done, self._failed + failed
        self._show(self._done, self._failed, self._total)

    def _lacks_trace(self, item: PlannedCase, arm: Arm) -> bool:
        record = self._records.records.get(self.key(item, arm))
        if record is None or record.result is None:
            return False
        return not self._folder.trace(record.evaluator, record.case, record.arm, record.step).exists()

    def _keep(self, done: Done) -> int:
        """Write the traces of a task that repeated its records; how many."""
        if done.fate == "timeout":
            return 0
        arm, cases = self._cases(done)
        for item, digest, trace in zip(cases, done.reply.document["digests"], done.reply.blobs, strict=True):
            record = self._records.records[self.key(item, arm)]
            if (problem := _difference(record, digest)) is not None:
                raise PassFailed(described(IntegrityError(problem)))
            self._write_trace(record, trace)
        return len(cases)

    def _write_trace(self, record: Record, trace: bytes) -> None:
        path = self._folder.trace(record.evaluator, record.case, record.arm, record.step)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, trace)


def _failure(kind: str, message: str) -> Failure:
    return {"type": kind, "message": message, "traceback": ""}


def _difference(record: Record, here: str | None) -> str | None:
    """What is wrong when a recorded case, simulated again, does not give the trace it was scored on (E105)."""
    there = record.result["trace_digest"] if record.result else "none"
    if there == (here or "none"):
        return None
    return (
        f"evaluator {record.evaluator!r}, case {record.case}, arm {record.arm!r}: simulated again it gives trace "
        f"{here}, the record says {there}. The driver or the simulator is not deterministic; the page would show "
        "another drive than the one that was scored."
    )

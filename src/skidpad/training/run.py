"""`skidpad train`: one run folder from the first checkpoint to the report.

The trainer only learns; here it is stopped, saved, evaluated and shown. Evaluation goes through `EvalManager.maybe_run`
alone, after the weights have been saved, from whose file the driver is made: nothing of it reaches training.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from skidpad.errors import EXIT_INTERRUPTED, EXIT_OK, SettingsError, nearest
from skidpad.evaluation.drivers import POLICY_ARM
from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.manager import EvalManager, Page, ProgressCallback
from skidpad.evaluation.metrics.lines import line_of, lines_of
from skidpad.evaluation.metrics.registry import METRICS
from skidpad.evaluation.schedule import EvalResult
from skidpad.runs.tracking import Trackers
from skidpad.training.checkpoints import POLICY, Checkpoints
from skidpad.training.ranks import Ranks
from skidpad.training.table import TrainingTable
from skidpad.training.trainer import Report, Trainer, check_training, device_of

if TYPE_CHECKING:
    from skidpad.evaluation.renders import Draw
    from skidpad.settings.suite import Suite
    from skidpad.settings.training import TrainingSpec
COLLECTIVE_SECONDS = 1800.0
"""How long ranks wait for one another: torch's default."""


class TrainingResult(NamedTuple):
    """How a run ended; `checkpoint` is the newest file of weights."""

    exit_code: int
    checkpoint: Path | None
    report: dict[str, Any] | None


def train_suite(
    suite: Suite,
    folder: Path,
    *,
    resume: bool = False,
    page: Page | None = None,
    draw: Draw | None = None,
    progress: ProgressCallback | None = None,
    reproduce: str = "",
    interrupts: Interrupts | None = None,
    ranks: Ranks | None = None,
) -> TrainingResult:
    """Train what a suite describes, into a folder; with `resume`, go on from its newest checkpoint.

    ranks  that have met already; by default those that torchrun started meet here

    The first Ctrl-C or SIGTERM ends with the running update, the second at once; what was saved stays either way.
    Raises SettingsError for settings that cannot work, AlreadyThereError where training has begun and `resume` is not
    set, CheckpointError for checkpoints of another training.
    """
    spec = trained_by(suite)
    if spec.after is not None:
        raise SettingsError(f"{suite.path}: comes after {spec.after}; train both by `stages.train_stages`.")
    with nullcontext(ranks) if ranks is not None else Ranks.met(device_of(spec.train.device)) as met:
        check_suite(suite, met.count)
        torch.set_num_threads(spec.train.threads)
        notify = (lambda text: print(text, file=sys.stderr)) if met.first else (lambda text: None)
        with interrupts or Interrupts(notify) as asked:
            run = _Run(suite, folder, met, asked, progress, draw, reproduce)
            return run.to_the_end(resume, page)


def trained_by(suite: Suite) -> TrainingSpec:
    """What a suite trains. Raises SettingsError where that is nothing."""
    spec = suite.training
    if spec is None:
        raise SettingsError(f"{suite.path}: has no [train], so there is nothing to train. Write one, or use `eval`.")
    return spec


def check_suite(suite: Suite, ranks: int) -> None:
    """Raises SettingsError for a suite that trains nothing, or cannot on so many ranks."""
    check_training(trained_by(suite), ranks)
    check_best(suite)


def check_best(suite: Suite) -> None:
    """Raises SettingsError where `train.best` names no evaluator that runs while training, or no metric."""
    best = suite.training.train.best if suite.training is not None else None
    if best is not None:
        known_metric(suite, best, during=True)


def known_metric(suite: Suite, key: str, *, during: bool = False) -> bool:
    """Whether higher values of a metric, `<evaluator>/<metric>`, are the better ones.

    during  the evaluator must run while training, not at its end only

    Raises SettingsError where there is no such evaluator or metric, or where no value of it is better.
    """
    evaluator, _, metric = key.partition("/")
    specs = {name: suite.spec(name) for name in suite.names}
    running = [
        name for name, spec in specs.items() if spec.enabled and (spec.interval > 0 or (not during and spec.at_end))
    ]
    if evaluator not in running:
        known = ", ".join(running) or "none"
        near = nearest(evaluator, running)
        raise SettingsError(f"{key!r}: no evaluator {evaluator!r} runs in training{near}; those that do: {known}")
    line = lines_of([metric]).get(metric)
    if line is None:
        raise SettingsError(f"{key!r}: there is no metric {metric!r}{nearest(metric, METRICS)}; see `metrics list`")
    if line.direction == "none":
        raise SettingsError(f"{key!r}: neither high nor low values of {metric} are better; choose another metric")
    return line.direction == "higher"


def final_value(folder: Path, key: str) -> float | None:
    """The mean of a metric of the driver of a finished run, over the cases of its last pass; None where it has none."""
    from skidpad.evaluation.summary import values_of
    from skidpad.runs.folder import RunFolder
    from skidpad.runs.records import read_records

    evaluator, _, metric = key.partition("/")
    records = [r for r in read_records(RunFolder(folder).records) if r.evaluator == evaluator and r.arm == POLICY_ARM]
    last = max((record.step for record in records), default=0)
    return values_of([record for record in records if record.step == last]).get(metric)


class _Run:
    def __init__(
        self,
        suite: Suite,
        folder: Path,
        ranks: Ranks,
        interrupts: Interrupts,
        progress: ProgressCallback | None,
        draw: Draw | None,
        reproduce: str,
    ) -> None:
        assert suite.training is not None
        self._suite, self._ranks, self._interrupts, self._progress = suite, ranks, interrupts, progress
        self._settings = suite.training.train
        self._trainer = Trainer(suite.training, ranks)
        self._folder = folder
        self._checkpoints = Checkpoints(
            folder / "checkpoints",
            self._trainer.run,
            keep_last=self._settings.keep_last,
            keep_every=self._settings.keep_every,
        )
        self._manager = EvalManager(
            suite,
            folder,
            draw=draw,
            reproduce=reproduce,
            progress=progress,
            interrupts=interrupts,
            rank=ranks.number,
            ranks=ranks.count,
            collective_timeout=COLLECTIVE_SECONDS,
        )
        self._trackers = Trackers(self._settings.tracking if ranks.first else (), folder, self._trainer.run)
        self._saved: Path | None = None
        self._saved_epoch = -1
        self._has_evaluated = False
        self._began = self._shown = time.monotonic()
        self._began_at = 0

    def to_the_end(self, resume: bool, page: Page | None) -> TrainingResult:
        with self._manager:
            self._start(resume)
            try:
                report = self._learn(page)
            except KeyboardInterrupt:
                return TrainingResult(EXIT_INTERRUPTED, self._saved, None)
        return TrainingResult(self._manager.exit_code or EXIT_OK, self._saved, report)

    def _start(self, resume: bool) -> None:
        trainer = self._trainer
        if not resume:
            self._checkpoints.refuse_if_any()
        elif (found := self._checkpoints.newest(_say)) is not None:
            at, state, weights = found
            if self._ranks.first:
                self._manager.start(at / POLICY)
            trainer.restore(state, weights)
            best = state.meta["best"]
            self._checkpoints.best = (float(best[0]), int(best[1])) if best else None
            self._saved_epoch = trainer.counters.epoch
            self._saved = self._checkpoints.policy(self._saved_epoch)
        self._began_at = trainer.counters.step

    def _learn(self, page: Page | None) -> dict[str, Any] | None:
        trainer, settings = self._trainer, self._settings
        if trainer.counters.epoch == 0:
            self._save()
        self._evaluate()  # of a run that goes on: what was due when it was stopped
        table = TrainingTable(self._folder / "training.csv", trainer.counters.epoch) if self._ranks.first else None
        try:
            while not trainer.is_done:
                report = trainer.advance()
                if table is not None:
                    table.add(report.values)
                self._trackers.log(
                    {f"train/{name}": value for name, value in report.values.items()}, report.counters.step
                )
                self._show(report)
                stop = self._ranks.agreed(self._interrupts.asked)
                if stop or trainer.is_done or report.counters.epoch % settings.save_every == 0 or self._is_due():
                    self._save()
                if stop:
                    raise KeyboardInterrupt
                self._evaluate()
        finally:
            if table is not None:
                table.close()
        if self._saved_epoch != trainer.counters.epoch:
            self._save()
        self._evaluate(force=True)
        self._trackers.close()
        return self._manager.finish(page) if self._ranks.first else None

    def _is_due(self) -> bool:
        """Whether an evaluator asks for the weights of this epoch."""
        epoch = self._trainer.counters.epoch
        specs = map(self._suite.spec, self._suite.names)
        return any(spec.enabled and spec.interval and epoch % spec.interval == 0 for spec in specs)

    def _save(self) -> None:
        # Every rank knows that something was saved, only the first one where: all must save the same epochs.
        self._saved = self._trainer.save(self._checkpoints)
        self._saved_epoch = self._trainer.counters.epoch

    def _evaluate(self, *, force: bool = False) -> None:
        if not self._ranks.first:
            return
        epoch, step = self._trainer.counters.epoch, self._trainer.counters.step
        is_due = force or epoch == 0 or self._is_due() or not self._has_evaluated
        self._has_evaluated = True
        results = self._manager.maybe_run(epoch, step, force=force, checkpoint=self._saved if is_due else None)
        by_step: dict[int, dict[str, EvalResult]] = {}
        for name, result in results.items():
            by_step.setdefault(result.step, {})[name] = result
        for at, found in sorted(by_step.items()):
            values = {key: value for result in found.values() for key, value in result.values.items()}
            self._trackers.log(values | self._manager.summary_values(found), at)
            for result in found.values():
                self._trackers.files(result.renders, at)
                self._note_best(result)

    def _note_best(self, result: EvalResult) -> None:
        name = self._settings.best
        if name is None or name not in result.values:
            return
        metric = line_of(name.partition("/")[2])
        value, best = result.values[name], self._checkpoints.best
        better = best is None or (value > best[0] if metric.direction == "higher" else value < best[0])
        if better and result.epoch in self._checkpoints.epochs():
            self._checkpoints.note_best(value, result.epoch)

    def _show(self, report: Report) -> None:
        if self._progress is None or not self._ranks.first:
            return
        done, total = report.counters.step, self._settings.total_steps
        rate = (done - self._began_at) / max(time.monotonic() - self._began, 1e-9)
        left = max(total - done, 0) / max(rate, 1e-9)
        self._progress(f"training at {rate:,.0f} agent-steps/s, {_duration(left)} left", done, total)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def _say(text: str) -> None:
    print(text, file=sys.stderr)

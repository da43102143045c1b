"""EvalManager: which evaluators run and when, each isolated from the others, all into one run folder.

A run is started by its manifest and closed by its report. In between, records are appended as cases finish, and
whatever is recorded is never run again: killed at any moment and started again with the same command, a run ends in
the same files. `evaluate_suite` is what the command line calls; training calls `EvalManager.maybe_run`.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skidpad.artifacts.digests import canonical_json, digest_file
from skidpad.artifacts.files import create
from skidpad.artifacts.files import replace as replace_file
from skidpad.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, ProtocolError, SettingsError, listed
from skidpad.evaluation.background import Background
from skidpad.evaluation.checkpoints import CheckpointFolder, latest_checkpoint
from skidpad.evaluation.drivers import Driver, arms_beside
from skidpad.evaluation.evaluator import Arm, Evaluator
from skidpad.evaluation.evaluators import EVALUATORS
from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.isolation import undisturbed
from skidpad.evaluation.kept import KeptRecords
from skidpad.evaluation.one_pass import Into, OnePass, Registered
from skidpad.evaluation.places import Places
from skidpad.evaluation.registration import described
from skidpad.evaluation.renders import Draw, budget_line, check_render, is_render_due
from skidpad.evaluation.schedule import SKIPPED_BUSY, EvalResult, Passes, is_due
from skidpad.evaluation.sources import SceneSources
from skidpad.policies.policy import Policy
from skidpad.runs.chain import Chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import code_digests, write_manifest
from skidpad.runs.records import RecordFile
from skidpad.settings.suite import EvaluatorSpec, Suite

PROGRESS_SCHEMA = "skidpad.progress/1"
PROGRESS_SECONDS = 1.0

if TYPE_CHECKING:
    from skidpad.policies.checkpoint import Checkpoint

ProgressCallback = Callable[[str, int, int], None]
Page = Callable[[RunFolder, dict[str, Any]], str]


class RunResult(NamedTuple):
    """How a run ended. `report` is None when it was interrupted: the folder can be resumed."""

    ok: bool
    exit_code: int
    report: dict[str, Any] | None
    folder: RunFolder


class EvalManager:
    """Runs the evaluators of a suite into a run folder. Use as a context manager: it holds the folder's lock.

    policy         the driver under test as an object; `policy_digest` identifies its weights
    checkpoint     the driver under test as a file
    policy_name    the driver under test as the name of a baseline; with none of the three, the baselines are compared
                   and "idm" is in focus
    evaluators     evaluator types by name
    progress       called with (text, done, total) as cases finish
    draw           draws the cases of a pass that a section with `render = true` asks for
    interrupts     asked between batches whether to stop; see `interrupts.py`
    checkpoints    where the run's checkpoints are found by a pass outside this process, when none was handed in
    sealed         sealed sections that `maybe_run` runs beside the suite's: a `SealedSchedule`
    rank, ranks    of distributed training: only rank 0 evaluates, logs and writes (E28)
    collective_timeout  s, how long the other ranks wait for rank 0: an inline section must end before

    Raises UsageError for an unknown policy, CheckpointError for a checkpoint that does not fit, SettingsError for an
    inline section that the other ranks would not wait for, and for weights among `eval.baselines` that cannot drive.
    """

    def __init__(
        self,
        suite: Suite,
        folder: Path,
        *,
        policy: Policy | None = None,
        policy_digest: str = "",
        policy_name: str | None = None,
        checkpoint: Path | None = None,
        progress: ProgressCallback | None = None,
        draw: Draw | None = None,
        reproduce: str = "",
        interrupts: Interrupts | None = None,
        kept: KeptRecords | None = None,
        evaluators: Mapping[str, type[Evaluator]] = EVALUATORS,
        checkpoints: CheckpointFolder | None = None,
        sealed: Passes | None = None,
        rank: int = 0,
        ranks: int = 1,
        collective_timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.suite = suite
        self.folder = RunFolder(folder)
        self._driver = Driver.of(policy, policy_digest, policy_name, checkpoint)
        self._progress = progress or (lambda text, done, total: None)
        self._draw = draw
        self._reproduce = reproduce
        self._interrupts = interrupts or Interrupts()
        self._kept = kept
        self._types = evaluators
        self._checkpoints = checkpoints
        self._sealed = sealed
        self.rank = rank
        if ranks > 1 and collective_timeout is not None:
            self._check_waiting(collective_timeout)
        self._beside: dict[str, list[Arm]] = {}
        if rank == 0:  # what is wrong with their files is found before there is a folder
            self._beside = {name: arms_beside(suite.spec(name)) for name in self._enabled()}
            for name, beside in self._beside.items():
                self._driver.check_reference(suite.spec(name), beside)
        self._sources = SceneSources()
        self._registered: dict[str, Registered] = {}
        self._results: dict[tuple[str, ...], EvalResult] = {}
        self._background = Background(self._interrupts)
        self._open = ExitStack()
        self._places = Places(self.folder, suite.manager)
        self._progress_written = 0.0
        self._clock, self._began = clock, clock()
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._has_warned = False
        self.exit_code = EXIT_OK

    def __enter__(self) -> EvalManager:
        if self.rank == 0:
            self._open.enter_context(self.folder.held())
            self._open.callback(self._places.close)
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._background.leave()
        finally:
            self._open.close()

    def _check_waiting(self, longest: float) -> None:
        for spec in map(self.suite.spec, self._enabled()):
            if spec.mode == "inline" and (spec.timeout_seconds is None or spec.timeout_seconds > longest):
                raise SettingsError(
                    f"[eval.{spec.name}] is inline with timeout_seconds = {spec.timeout_seconds}, but the other ranks "
                    f"wait {longest:g} s for rank 0. Set a shorter timeout_seconds, or mode = 'subprocess'."
                )

    # -- what to run ------------------------------------------------------------------------------------------------

    def run_all(self) -> dict[str, EvalResult]:
        """Run every enabled evaluator, in file order. One that fails leaves the others alone (E29)."""
        names = self._enabled()
        self._register(names)
        return self._run_each(names, epoch=0, step=0, drawn=set(names))

    def run_one_by_name(self, name: str) -> EvalResult:
        """Run one evaluator, enabled or not. Raises SettingsError, with the list, for an unknown name."""
        self.suite.spec(name)
        self._register([name])
        return self._run_each([name], epoch=0, step=0, drawn={name})[name]

    def maybe_run(
        self,
        epoch: int,
        step: int,
        *,
        force: bool = False,
        policy: Policy | None = None,
        policy_digest: str = "",
        checkpoint: Path | None = None,
    ) -> dict[str, EvalResult]:
        """Run what is due at an epoch; with `force`, what runs at the end of training. Training calls this and nothing
        else, on every rank: others than rank 0 get no results and do nothing.

        `policy` and `checkpoint` replace the driver under test from here on: the weights of the moment as an object,
        for inline evaluation, and as the file that has just been saved, for every other mode (`has_subprocess_evals_at`
        says when one is needed; without it the newest of `checkpoints` is taken). The file's digest is the weights';
        without a file `policy_digest` is. A pass whose section, metrics and weights have been run already returns its
        stored result, marked `cached`.

        A section with `blocking = false` goes on in the background (E35): what its pass came to is returned by a later
        call as "<evaluator>@<step>", with the epoch and step of its weights. One that is due while its last pass still
        runs is skipped, with a result that says so; `force` waits for all of them first.

        Nothing of the process is changed, whatever an evaluator does (E31).
        """
        if self.rank != 0:
            return {}
        due = self._due(epoch, force=force)
        if self._registered and not due and self._sealed is None and self._background.is_empty:
            return {}
        with undisturbed(policy):
            results = self._ended(wait=force)
            saved = self._saved(due, checkpoint)
            if policy is not None or saved is not None:
                self._driver = self._driver.with_policy(policy, policy_digest, saved)
            self._register(self._enabled())
            drawn = {name for name in due if is_render_due(self.suite.spec(name), epoch, force=force)}
            results |= self._run_each(due, epoch=epoch, step=step, drawn=drawn, waits=force)
            sealed = self._sealed.maybe_run(epoch, step, force=force) if self._sealed else {}
            return results | {name: replace(one, epoch=epoch, step=step) for name, one in sealed.items()}

    def summary_values(self, results: Mapping[str, EvalResult]) -> dict[str, float]:
        """What stands over all evaluators of some results, for trackers: "eval_summary/<evaluator>" is the primary
        metric, "eval_summary/ok" whether all are, "eval_summary/wall_share" the share of the time since this manager
        was made that evaluation took. Above `eval_budget_share` a line says once which evaluator costs most (E33, E77).
        """
        results = {one.name: one for one in results.values() if one.status != SKIPPED_BUSY}
        if not results:
            return {}
        values = {
            f"eval_summary/{name}": result.values[key]
            for name, result in results.items()
            if (key := f"{name}/{self.suite.spec(name).eval.primary}") in result.values
        }
        share = sum(self._spent.values()) / max(self._clock() - self._began, 1e-9)
        if share > self.suite.manager.eval_budget_share and not self._has_warned:
            self._has_warned = True
            name, seconds = max(self._spent.items(), key=lambda item: item[1])
            print(
                f"evaluation takes {share:.0%} of the time, more than eval_budget_share = "
                f"{self.suite.manager.eval_budget_share:g}; {name} took {seconds:.0f} s of it. Evaluate it less often, "
                "or elsewhere.",
                file=sys.stderr,
            )
        ok = all(result.ok for result in results.values())
        return {**values, "eval_summary/ok": float(ok), "eval_summary/wall_share": share}

    def has_subprocess_evals_at(self, epoch: int, *, force: bool = False) -> bool:
        """Whether something that runs outside this process is due: training then saves a checkpoint first (E39)."""
        return any(self.suite.spec(name).mode != "inline" for name in self._due(epoch, force=force))

    def _due(self, epoch: int, *, force: bool) -> list[str]:
        return [name for name in self._enabled() if is_due(self.suite.spec(name), epoch, force=force)]

    def _saved(self, due: Sequence[str], checkpoint: Path | None) -> Checkpoint | None:
        """The file with the weights of the moment, where it was given or something due needs one."""
        from skidpad.policies.checkpoint import load_checkpoint

        if checkpoint is not None:
            return load_checkpoint(checkpoint)
        if self._checkpoints is None or all(self.suite.spec(name).mode == "inline" for name in due):
            return None
        folder, run, load_path = self._checkpoints
        return latest_checkpoint(folder, run, load_path)

    def _enabled(self) -> list[str]:
        return [name for name in self.suite.names if self.suite.spec(name).enabled]

    # -- starting ---------------------------------------------------------------------------------------------------

    def start(self, checkpoint: Path) -> None:
        """Plan all that is enabled and start the folder, or check that it was started as this very run.

        The first run does so itself. Who resumes long work asks before, with any checkpoint of it: raises
        AlreadyThereError, listing what differs, where its results could not be continued.
        """
        from skidpad.policies.checkpoint import load_checkpoint

        self._driver = self._driver.with_policy(None, "", load_checkpoint(checkpoint))
        self._register(self._enabled())

    def _register(self, names: Sequence[str]) -> None:
        """Plan the named evaluators and write the manifest, or check that the folder's is the same run."""
        if self._registered:
            if missing := [name for name in names if name not in self._registered]:
                raise ProtocolError(
                    f"{self.folder.path}: was started for {listed(self._registered)}; run {listed(missing)} into a "
                    "folder of its own."
                )
            return
        registered = {name: self._plan(self.suite.spec(name)) for name in names}
        identity = {
            **code_digests(),
            "benchmark_seed": self.suite.manager.benchmark_seed,
            **self._driver.identity,
            "evaluators": {name: item.identity for name, item in registered.items()},
        }
        resumed = self.folder.is_started
        threads = max((item.evaluator.spec.vec.threads for item in registered.values()), default=1)
        manifest = write_manifest(
            self.folder,
            identity=identity,
            evaluators={name: item.part for name, item in registered.items()},
            suite={"name": self.suite.path.name, "path": str(self.suite.path), "config": self.suite.print_config()},
            reproduce=self._reproduce,
            threads=threads,
        )
        self._chain = Chain(self.folder.chain)
        self._open.callback(self._chain.close)
        self._records = RecordFile(self.folder.records)
        self._open.callback(self._records.close)
        self._chain.append(
            "resumed" if resumed else "registered",
            {
                "manifest": digest_file(self.folder.manifest),
                "records": len(self._records.records),
                "torn_bytes": self._chain.torn_bytes + self._records.torn_bytes,
            },
        )
        if torn := self._records.torn_bytes:
            print(f"{self.folder.records}: cut a torn last line of {torn} bytes; its case runs again.", file=sys.stderr)
        self._registered = registered
        self._into = Into(self.folder, self._records, self._chain, self._sources, self._draw, self._kept)
        # Compared and shown from here on is what the manifest says, also after resuming.
        for name, item in registered.items():
            item.part = manifest["evaluators"][name]

    def _plan(self, spec: EvaluatorSpec) -> Registered:
        self._places.check(spec)
        evaluator = self._types[spec.type](spec, self._sources)
        if spec.name not in self._beside:  # a disabled section, asked for by name
            self._beside[spec.name] = arms_beside(spec)
        arms = self._arms(spec)
        for same in filter(self._driver.is_beside, self._beside[spec.name]):
            print(
                f"{spec.name}: {same.name} holds the weights of the driver under test, so it is not run beside it.",
                file=sys.stderr,
            )
        if spec.render:
            known = [case.case.id for case in evaluator.plan.cases]
            check_render(spec, arms, self._driver.focus, known)
            if self._draw is None:
                raise ProtocolError(f"[eval.{spec.name}] has render = true, but the manager was given no `draw`.")
            print(budget_line(spec), file=sys.stderr)
        part, identity = described(evaluator, arms, self._driver)
        return Registered(evaluator, self._driver, arms, part, identity)

    def _arms(self, spec: EvaluatorSpec) -> list[Arm]:
        return self._driver.arms(spec, self._beside[spec.name])

    # -- running ----------------------------------------------------------------------------------------------------

    def _run_each(
        self, names: Iterable[str], *, epoch: int, step: int, drawn: Collection[str], waits: bool = True
    ) -> dict[str, EvalResult]:
        """Results by name; where this does not wait for passes in the background, without those."""
        results: dict[str, EvalResult] = {}
        for name in names:
            item = self._registered[name]
            if item.driver is not self._driver:
                item.driver, item.arms = self._driver, self._arms(item.evaluator.spec)
            if item.pass_key in self._results:
                results[name] = replace(self._results[item.pass_key], cached=True, epoch=epoch, step=step)
                continue
            began = self._clock()
            if waits or item.evaluator.spec.blocking:
                one = OnePass(item, self._into, self._interrupts, epoch, step, draws=name in drawn)
                one.begin(self._places, partial(self._show, name, self._progress), self._progress)
                one.perform()
                results[name] = self._end(one)
            elif self._background.holds(name):
                self._chain.append(SKIPPED_BUSY, {"evaluator": name, "epoch": epoch, "step": step})
                values = {f"{name}/{SKIPPED_BUSY}": 1.0}
                results[name] = EvalResult(name, True, SKIPPED_BUSY, values, {}, epoch=epoch, step=step)
            else:
                one = OnePass(replace(item), self._into, self._background.interrupts, epoch, step, draws=name in drawn)
                one.begin(self._places, partial(self._show, name, _untold), _untold)
                self._background.add(one)
            self._spent[name] += self._clock() - began
            if self.suite.manager.fail_fast and name in results and not results[name].ok:
                break
        return results

    def _end(self, one: OnePass) -> EvalResult:
        result = self._results[one.item.pass_key] = one.end()
        self.exit_code = max(self.exit_code, one.exit_code)
        return result

    def _ended(self, *, wait: bool) -> dict[str, EvalResult]:
        """What passes in the background have come to since this was asked, at the steps of their weights."""
        results = map(self._end, self._background.ended(waits=wait))
        return {f"{result.name}@{result.step}": result for result in results}

    def _show(self, name: str, told: ProgressCallback, done: int, failed: int, total: int) -> None:
        told(name, done, total)
        now = time.monotonic()
        if now - self._progress_written >= PROGRESS_SECONDS or done == total:
            self._progress_written = now
            state = {"schema": PROGRESS_SCHEMA, "evaluator": name, "done": done, "failed": failed, "total": total}
            replace_file(self.folder.progress, canonical_json(state).encode())

    # -- results ----------------------------------------------------------------------------------------------------

    def finish(self, page: Page | None = None) -> dict[str, Any]:
        """Write the tables, the page, and last of all the report, which closes the folder for ever."""
        from skidpad.evaluation.summary import build_report
        from skidpad.evaluation.tables import tables_of

        self._ended(wait=True)
        records = list(self._records.records.values())
        report = build_report(self.folder, records)
        parts = {name: item.part for name, item in self._registered.items()}
        for path, data in tables_of(parts, records, report).items():
            (self.folder.path / path).parent.mkdir(exist_ok=True)
            replace_file(self.folder.path / path, data)
        if page is not None:
            replace_file(self.folder.page, page(self.folder, report).encode())
        self._chain.append("finished", {"ok": report["ok"], "status": report["status"]})
        self.folder.progress.unlink(missing_ok=True)
        report["files"] = {
            path.relative_to(self.folder.path).as_posix(): digest_file(path) for path in self.folder.files()
        }
        report["chain_head"] = self._chain.head
        create(self.folder.report, canonical_json(report).encode())
        return report


def _untold(text: str, done: int, total: int) -> None:
    """What runs in the background tells no terminal how far it is: that line is training's."""


def evaluate_suite(
    suite: Suite,
    folder: Path,
    *,
    policy_name: str | None = None,
    checkpoint: Path | None = None,
    evaluator: str | None = None,
    page: Page | None = None,
    draw: Draw | None = None,
    progress: ProgressCallback | None = None,
    reproduce: str = "",
    kept: KeptRecords | None = None,
) -> RunResult:
    """Run or resume every enabled evaluator of a suite, or the named one, and write its report.

    The folder's lock is held throughout. The first Ctrl-C or SIGTERM lets the running cases finish, the second stops at
    once; either way the exit code is 130 and the same call resumes. Raises UsageError for what the person can fix,
    before anything is run, and IntegrityError when the folder's files do not hold.
    """
    notify = (lambda text: print(text, file=sys.stderr)) if progress is not None else (lambda text: None)
    with Interrupts(notify) as interrupts:
        manager = EvalManager(
            suite,
            folder,
            policy_name=policy_name,
            checkpoint=checkpoint,
            progress=progress,
            draw=draw,
            reproduce=reproduce,
            interrupts=interrupts,
            kept=kept,
        )
        try:
            with manager:
                if evaluator is None:
                    manager.run_all()
                else:
                    manager.run_one_by_name(evaluator)
                report = manager.finish(page)
        except KeyboardInterrupt:
            return RunResult(False, EXIT_INTERRUPTED, None, manager.folder)
        code = manager.exit_code if manager.exit_code or report["ok"] else EXIT_FAILED
        return RunResult(bool(report["ok"]), code, report, manager.folder)

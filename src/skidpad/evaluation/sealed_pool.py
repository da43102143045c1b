"""Where pairs run: in worker processes with one thread each, or in this process where it already computes so.

Only the manager writes: workers take a job and return a value. A worker that dies takes nothing with it but the jobs
it had; each of these runs once more alone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

from skidpad.evaluation.metrics.scene_metrics import depth_absrel
from skidpad.evaluation.sealed_scoring import Scored, ScoreJob, score_pair
from skidpad.streaming.sealed import Equipment, PasteJob, RunSettings, Streamed, StreamJob, paste_layer, stream_pair
from skidpad.streaming.threads import one_thread, require_one_thread

Job = StreamJob | PasteJob | ScoreJob
Result = Streamed | Scored
_equipment: Equipment | None = None


class Done(NamedTuple):
    """A job, what it came to, and the bytes a worker read from nowhere else."""

    job: Job
    result: Result


def perform(equipment: Equipment, job: Job) -> Result:
    """One job, whatever its kind."""
    if isinstance(job, StreamJob):
        return stream_pair(equipment, job, depth_absrel)
    if isinstance(job, PasteJob):
        return paste_layer(equipment, job)
    return score_pair(equipment, job)


def died(job: Job) -> Result:
    """What is recorded of a job whose worker died twice."""
    error = {
        "type": "WorkerDied",
        "message": f"{job.pair}: its worker process ended without an answer, also when it ran alone (out of memory?).",
        "traceback": "",
    }
    return Scored(job.pair, "crashed", error) if isinstance(job, ScoreJob) else Streamed(job.pair, "crashed", error)


def _start(settings: RunSettings) -> None:
    """Before the first operator of a worker: one thread, and Ctrl-C is the manager's business."""
    global _equipment
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    one_thread()
    _equipment = Equipment.load(settings)


def _perform(job: Job) -> Result:
    assert _equipment is not None
    return perform(_equipment, job)


class Pool:
    """Runs jobs. Use as a context manager.

    workers  processes; 0 runs in this process, which must compute with one thread already
    stopped  asked before each job is handed out; what is running then is finished

    Raises UsageError for 0 workers in a process with another thread setting.
    """

    def __init__(self, settings: RunSettings, workers: int, stopped: Callable[[], bool] = lambda: False) -> None:
        self._settings, self._workers, self._stopped = settings, workers, stopped
        self._executor: ProcessPoolExecutor | None = None
        self._here: Equipment | None = None
        if workers == 0:
            require_one_thread()
            self._here = Equipment.load(settings)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Results as they come, in no promised order. Ends early when `stopped` says so."""
        if self._here is not None:
            for job in jobs:
                if self._stopped():
                    return
                yield Done(job, perform(self._here, job))
            return
        yield from self._in_processes(iter(jobs))

    def _in_processes(self, waiting: Iterator[Job]) -> Iterator[Done]:
        running: dict[Future[Result], Job] = {}
        while True:
            while len(running) < 2 * self._workers and not self._stopped():
                job = next(waiting, None)
                if job is None:
                    break
                running[self._submit(job)] = job
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            lost = []
            for future in finished:
                job = running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    lost.append(job)
                    continue
                yield Done(job, result)
            if lost:
                lost += running.values()
                running.clear()
                self._close()
                yield from (self._alone(job) for job in lost)

    def _alone(self, job: Job) -> Done:
        try:
            return Done(job, self._submit(job).result())
        except BrokenProcessPool:
            self._close()
            return Done(job, died(job))

    def _submit(self, job: Job) -> Future[Result]:
        if self._executor is None:
            context: Any = get_context("spawn")
            self._executor = ProcessPoolExecutor(self._workers, context, _start, (self._settings,))
        return self._executor.submit(_perform, job)

    def _close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

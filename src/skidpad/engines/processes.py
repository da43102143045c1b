"""In worker processes: one for one run, or a pool that lives on and serves the next run warm.

Workers are started as new interpreters, never forked: a fork after numba, torch or CUDA were initialised deadlocks, and
nothing a worker needs is in this process's memory. Each is the leader of a process group, which is ended as a whole.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any

from skidpad.engines.engine import LOOK_SECONDS, Done, Fate, Job, Reply, Task
from skidpad.engines.frames import CHUNK, Inbox, Message, encoded
from skidpad.engines.usage import can_tell, files_of, memory_of_group, most_files
from skidpad.errors import UsageError

GRACE_SECONDS = 10.0
"""Between asking a process group to end and killing it."""
LEAVING_SECONDS = 2.0  # what a worker without work may take to notice that it is not needed any more
POLL_SECONDS = 0.02


class Worker:
    """One process, and what it is busy with."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "skidpad.engines.worker", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # Standard output belongs to whoever asked for JSON there.
                    start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                )
            except BaseException:
                ours.close()
                raise
        self.connection = ours
        self.inbox = Inbox()
        self.opened: str | None = None
        self.opening: str | None = None
        self.task: Task | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, document: dict[str, Any]) -> None:
        """Send a message; one that cannot be delivered is noticed where the answer is awaited."""
        with suppress(OSError):
            self.connection.sendall(encoded(document))

    def heard(self) -> list[Message] | None:
        """What has arrived; None when the process is gone or talks nonsense."""
        try:
            data = self.connection.recv(CHUNK)
            if not data:
                return None
            self.inbox.add(data)
            found = []
            while (message := self.inbox.take()) is not None:
                found.append(message)
        except (OSError, ValueError):
            return None
        return found

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self, *, grace: float = 0.0) -> str:
        """End the process and everything in its group; what it died of. `grace` is between asking and killing."""
        if grace:
            self.ask()
            give_up = time.monotonic() + grace
            while self._is_there() and time.monotonic() < give_up:
                self._process.poll()
                time.sleep(POLL_SECONDS)
        self.connection.close()
        self._signal(signal.SIGKILL)
        code = self._process.wait()
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def ask(self) -> None:
        """Ask the process and everything in its group to end."""
        self._signal(signal.SIGTERM)

    def leave(self) -> str:
        """End a process that has nothing to do, or that is ending; what it died of."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVING_SECONDS)
        return self.end()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _is_there(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Processes:
    """Runs tasks in so many worker processes.

    keep    workers serve the next run too; else they end with the run
    memory  bytes that a worker and what it has started may hold: above it they are ended, and their task has died.
            A worker that holds half of it, or half of the descriptors it may open, when its task has ended well is
            replaced, since what it does next would end badly

    Raises UsageError for a limit where the system does not say what a process holds.
    """

    def __init__(self, workers: int, *, keep: bool, memory: int | None = None) -> None:
        if memory is not None and not can_tell():
            raise UsageError("vec.memory_gib needs a system that says what processes hold: Linux. Leave it out.")
        self.workers = workers
        self._keep, self._memory = keep, memory
        self._looked = 0.0
        self._idle: list[Worker] = []
        self._busy: dict[Any, Worker] = {}

    def run(
        self, job: Job, tasks: Iterable[Task], *, deadline: float | None, stopped: Callable[[], bool]
    ) -> Generator[Done, None, None]:
        """As `Engine.run`."""
        waiting, busy = iter(tasks), self._busy
        try:
            with selectors.DefaultSelector() as selector:
                while True:
                    while not stopped() and len(busy) < self.workers:
                        task = next(waiting, None)
                        if task is None:
                            break
                        worker = self._started(job, task)
                        busy[worker.connection] = worker
                        selector.register(worker.connection, selectors.EVENT_READ)
                    if not busy:
                        return
                    left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - time.monotonic())
                    if left <= 0:
                        yield from self._out_of_time()
                        return
                    for key, _ in selector.select(left):
                        worker = busy[key.fileobj]
                        done = self._heard(worker)
                        if done is not None:
                            selector.unregister(key.fileobj)
                            del busy[key.fileobj]
                            yield done
                    for worker, held in self._too_large():
                        selector.unregister(worker.connection)
                        del busy[worker.connection]
                        assert worker.task is not None
                        yield Done(worker.task, "died", Reply({}), f"{worker.end()}: {held}")
        finally:
            self._end_busy()
            if not self._keep:
                self.close()

    def _started(self, job: Job, task: Task) -> Worker:
        """A worker that has been told of the job and of its task."""
        worker = None
        while self._idle and worker is None:
            worker = self._idle.pop()
            if not worker.is_alive:  # it died while nobody needed it
                worker.leave()
                worker = None
        worker = worker or Worker()
        worker.task = task
        if worker.opened != job.digest:
            worker.opened, worker.opening = None, job.digest
            worker.say({"opener": job.opener, "handover": str(job.handover), "digest": job.digest})
        else:
            worker.say({"task": task.document})
        return worker

    def _heard(self, worker: Worker) -> Done | None:
        """What became of a worker's task, if that is known by now; a worker that is well is idle then."""
        task = worker.task
        assert task is not None
        messages = worker.heard()
        if messages is None:
            return Done(task, "died", Reply({}), worker.leave())
        for message in messages:
            fate = message.document["fate"]
            if fate == "opened":
                worker.opened, worker.opening = worker.opening, None
                worker.say({"task": task.document})
                continue
            worker.task = None
            why = self._leaking(worker)
            if why:
                worker.leave()
            else:
                self._idle.append(worker)
            known: Fate = "done" if fate == "done" else "raised"
            return Done(task, known, Reply(message.document["reply"], message.blobs), why)
        return None

    def _too_large(self) -> list[tuple[Worker, str]]:
        """Busy workers that hold more than they may; looked at once in a while."""
        now = time.monotonic()
        if self._memory is None or now - self._looked < LOOK_SECONDS:
            return []
        self._looked = now
        held = [(worker, memory_of_group(worker.pid)) for worker in self._busy.values()]
        return [(worker, _held(size, self._memory)) for worker, size in held if size > self._memory]

    def _leaking(self, worker: Worker) -> str:
        """Why a worker whose task has ended is replaced, "" where it stays."""
        if self._memory is not None and (size := memory_of_group(worker.pid)) > self._memory / 2:
            return f"a worker was replaced after its task: {_held(size, self._memory)}"
        if (files := files_of(worker.pid)) > most_files() / 2:
            return f"a worker was replaced after its task: it held {files} open files of at most {most_files()}"
        return ""

    def _end_busy(self) -> None:
        while self._busy:
            self._busy.popitem()[1].end()

    def _out_of_time(self) -> Iterator[Done]:
        """End everything that runs, at once, and then say so of each."""
        workers = list(self._busy.values())
        self._busy.clear()
        for worker in workers:
            worker.ask()
        give_up = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            about = worker.end(grace=max(POLL_SECONDS, give_up - time.monotonic()))
            assert worker.task is not None
            yield Done(worker.task, "timeout", Reply({}), about)

    def close(self) -> None:
        """End all workers."""
        self._end_busy()
        while self._idle:
            self._idle.pop().leave()


def _held(size: int, limit: int) -> str:
    return f"it held {size / 2**30:.2f} GiB, vec.memory_gib allows {limit / 2**30:g}"

"""On a Ray cluster: one actor per worker, wherever the cluster has room. Records come back to one writer, as from
anywhere else.

Needs the extra `cluster`. Scenes and checkpoints are read where the actors are, so their paths must mean the same on
every node; the hand-over travels with the call.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from skidpad.engines.engine import (
    LOOK_SECONDS,
    Done,
    Fate,
    Job,
    Perform,
    PlaceLostError,
    Reply,
    Task,
    described,
    opened,
)
from skidpad.engines.frames import Inbox, encoded
from skidpad.errors import MissingExtraError, UsageError

LOCAL = "local"
LOOK_FOR_SECONDS = 20.0
PATIENCE = {"RAY_agent_register_timeout_ms": "600000", "RAY_worker_niceness": "0"}
"""How Ray is to start here. It gives the processes it starts half a minute to answer, and runs workers at a niceness of
15: both are too little for a machine that does other things."""


def require_ray() -> None:
    """Raises MissingExtraError where Ray is absent: a cluster that is quietly this machine is worse than none."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("mode = 'ray' needs Ray, which is not installed: pip install 'skidpad[cluster]'")


@contextmanager
def patient() -> Iterator[None]:
    """While entered, Ray that is started here waits longer for its own processes; what the environment says of it
    already is left alone."""
    new = {name: value for name, value in PATIENCE.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


def look_for(address: str) -> None:
    """Raises OSError where nothing listens at a host and port: Ray itself would go on asking for many minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=LOOK_FOR_SECONDS).close()


class Served:
    """What an actor is: a worker that is called instead of written to."""

    def __init__(self) -> None:
        self._perform: Perform | None = None
        self._opened = ""

    def hello(self) -> None:
        """Answered when the actor is there."""

    def answer(self, opener: str, data: bytes, digest: str, task: bytes) -> bytes:
        """A task's answer, as `worker.py` gives it."""
        inbox = Inbox()
        inbox.add(task)
        said = inbox.take()
        assert said is not None
        try:
            if self._opened != digest or self._perform is None:
                self._perform = opened(opener, data, digest)
                self._opened = digest
            reply = self._perform(said.document)
            return encoded({"fate": "done", "reply": reply.document}, reply.blobs)
        except Exception as error:  # What a task raises is its result, here as anywhere.
            return encoded({"fate": "raised", "reply": described(error)})


class Cluster:
    """Runs tasks on so many actors, which stay until `close`. An actor is given a task when it has answered once, so no
    task waits for a node that has no room, or that is gone, while another actor is idle.

    address  of a running cluster as Ray writes it ("auto" finds the one this machine belongs to), or "local": one that
             is started on this machine, and ends with `close`
    cache    folder of the caches on every node; default: the user's own there

    Raises MissingExtraError without Ray, UsageError where no cluster answers.
    """

    def __init__(self, workers: int, *, address: str, cache: str | None = None) -> None:
        require_ray()
        self.workers = workers
        self._ray: Any = importlib.import_module("ray")
        variables = {} if cache is None else {"XDG_CACHE_HOME": cache}
        if address == LOCAL:
            variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            options = {"num_cpus": workers, "include_dashboard": False} if address == LOCAL else {}
            try:
                look_for(address)
                with patient():
                    self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
            except Exception as error:  # Ray raises plain ones where a node does not start in time.
                said = " ".join(str(error).split())
                if address == LOCAL:
                    raise UsageError(
                        f"Ray {self._ray.__version__} did not start on this machine ({said}). Its logs lie in "
                        "/tmp/ray/session_latest/logs; mode = 'pool' needs no Ray."
                    ) from None
                raise UsageError(
                    f"no Ray cluster answers at {address!r} ({said}). Start one, or set ray_address = 'local' under "
                    "[eval] to start one on this machine."
                ) from None
        self._kind = self._ray.remote(Served).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, runtime_env={"env_vars": variables}
        )
        self._idle: list[Any] = []
        self._starting: dict[Any, Any] = {}
        self._busy: dict[Any, tuple[Any, Task]] = {}

    def run(
        self, job: Job, tasks: Iterable[Task], *, deadline: float | None, stopped: Callable[[], bool]
    ) -> Generator[Done, None, None]:
        """As `Engine.run`. Raises PlaceLostError where the cluster does not answer any more."""
        if not self._ray.is_initialized():  # Ray would start one here by itself, and that would be another place
            raise PlaceLostError("the Ray cluster does not answer any more (it was shut down). Start the run again.")
        waiting = iter(tasks)
        ahead: Task | None = next(waiting, None)
        try:
            data = self._ray.put(job.handover.read_bytes())
            while True:
                halted = stopped()
                while ahead is not None and not halted and self._has_idle():
                    actor = self._idle.pop()
                    reference = actor.answer.remote(job.opener, data, job.digest, encoded(ahead.document))
                    self._busy[reference] = actor, ahead
                    ahead, halted = next(waiting, None), stopped()
                if not self._busy and (ahead is None or halted):
                    return
                left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - time.monotonic())
                if left <= 0:
                    yield from self._out_of_time()
                    return
                ready, _ = self._ray.wait([*self._busy, *self._starting], num_returns=1, timeout=left)
                for reference in ready:
                    if reference in self._starting:
                        self._started(reference)
                    else:
                        yield self._done(reference)
        except (self._ray.exceptions.RayError, OSError) as error:
            said = " ".join(str(error).split())[:300]
            raise PlaceLostError(f"the Ray cluster does not answer any more ({said}). Start the run again.") from error
        finally:
            self._end_busy()

    def _has_idle(self) -> bool:
        """Whether an actor is idle. One is asked for where there are fewer than there may be and none comes."""
        there = len(self._idle) + len(self._busy) + len(self._starting)
        if not self._idle and there < self.workers:
            actor = self._kind.remote()
            self._starting[actor.hello.remote()] = actor
        return bool(self._idle)

    def _started(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        try:
            self._ray.get(reference)
        except self._ray.exceptions.ActorDiedError:
            self._end(actor)  # its node is gone; another one is asked for
        else:
            self._idle.append(actor)

    def _done(self, reference: Any) -> Done:
        actor, task = self._busy.pop(reference)
        try:
            data = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._end(actor)
            return Done(task, "died", Reply({}), " ".join(str(error).split())[:500])
        self._idle.append(actor)
        inbox = Inbox()
        inbox.add(data)
        message = inbox.take()
        assert message is not None
        fate: Fate = "done" if message.document["fate"] == "done" else "raised"
        return Done(task, fate, Reply(message.document["reply"], message.blobs))

    def _out_of_time(self) -> Iterator[Done]:
        late = [task for _, task in self._busy.values()]
        self._end_busy()
        for task in late:
            yield Done(task, "timeout", Reply({}), "its actor was ended")

    def _end_busy(self) -> None:
        while self._busy:
            self._end(self._busy.popitem()[1][0])

    def _end(self, actor: Any) -> None:
        if not self._ray.is_initialized():
            return  # Ray ends this process where it is asked about an actor of a cluster that it has left
        with suppress(Exception):  # It may be gone already, and so may the cluster.
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End the actors, and the cluster where it was started here."""
        self._end_busy()
        for actor in [*self._idle, *self._starting.values()]:
            self._end(actor)
        self._idle.clear()
        self._starting.clear()
        if self._is_ours and self._ray.is_initialized():
            self._ray.shutdown()

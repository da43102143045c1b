"""The one protocol of all places to run: tasks go in, what became of each comes out as it ends, in no promised order.

A place knows nothing of what is done there. It hands tasks to idle workers, notices one that dies or is too slow, and
leaves nothing of it behind. What a lost task means, and whether it is tried again, is its caller's business.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from skidpad.artifacts.digests import digest_bytes
from skidpad.errors import CaseError, IntegrityError

LOOK_SECONDS = 1.0
"""How often a place asks whether to stop while nothing comes back."""

Fate = Literal["done", "raised", "died", "timeout"]


class Task(NamedTuple):
    """One piece of work, as a JSON object."""

    document: Mapping[str, Any]


class Reply(NamedTuple):
    """What a task came to: a JSON object, and bytes that are no JSON."""

    document: Mapping[str, Any]
    blobs: tuple[bytes, ...] = ()


class Done(NamedTuple):
    """How a task ended.

    fate   "done": `reply` is its result. "raised": the work raised, `reply` holds {"type", "message", "traceback"}.
           "died": its worker ended without an answer. "timeout": it was running when the time was over
    about  what is known of a worker that was lost, or replaced
    """

    task: Task
    fate: Fate
    reply: Reply
    about: str = ""


Perform = Callable[[Mapping[str, Any]], Reply]
"""Does one task."""


class Job(NamedTuple):
    """What the tasks of one run have in common.

    opener    "module:function" that a worker calls with the bytes of the hand-over file; it returns a `Perform`
    handover  the one file a worker learns everything from
    digest    of its bytes: a worker that reads others refuses them
    """

    opener: str
    handover: Path
    digest: str


class Engine(Protocol):
    """A place to run. `workers` is how many tasks run at once."""

    workers: int

    def run(
        self, job: Job, tasks: Iterable[Task], *, deadline: float | None, stopped: Callable[[], bool]
    ) -> Generator[Done, None, None]:
        """Run tasks; each comes back once, unless `stopped` said so before it was handed out or the time was over.

        deadline  of `time.monotonic()`. When it passes, what is running is ended and comes back as "timeout"
        stopped   asked before each task is handed out, and every LOOK_SECONDS; what is running then is finished, unless
                  it raises

        A generator that is closed or left by an exception ends whatever it had running.
        """
        ...

    def close(self) -> None:
        """End all workers. Closing twice is harmless."""
        ...


def described(error: BaseException) -> dict[str, str]:
    """An error as it is recorded: class, message in one line, full traceback."""
    text = "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "message": " ".join(str(error).split()), "traceback": text}


class HandoverError(IntegrityError):
    """A worker has read another hand-over than was written for it."""


class PlaceLostError(CaseError):
    """A place does not answer any more; what it had running is lost with it."""


def opened(opener: str, data: bytes, digest: str) -> Perform:
    """What a worker does first. Raises HandoverError for bytes that are not those of the hand-over."""
    if digest_bytes(data) != digest:
        raise HandoverError(f"the hand-over was written as {digest} and read as {digest_bytes(data)}.")
    module, _, name = opener.partition(":")
    perform: Perform = getattr(importlib.import_module(module), name)(data)
    return perform

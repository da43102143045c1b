"""In this process, one task after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable

from skidpad.engines.engine import Done, Job, Perform, Reply, Task, described


class Inline:
    """Does tasks where it stands. A running one cannot be ended from outside: the time is looked at between them.

    perform  does them, whatever the job says: what a worker would have to read is there already
    """

    workers = 1

    def __init__(self, perform: Perform) -> None:
        self._perform = perform

    def run(
        self, job: Job, tasks: Iterable[Task], *, deadline: float | None, stopped: Callable[[], bool]
    ) -> Generator[Done, None, None]:
        """As `Engine.run`; a task that is due when the time is over is not begun, and none comes back as "timeout"."""
        for task in tasks:
            if stopped() or (deadline is not None and time.monotonic() >= deadline):
                return
            try:
                reply = self._perform(task.document)
            except Exception as error:  # What a task raises is its result, here as anywhere.
                yield Done(task, "raised", Reply(described(error)))
            else:
                yield Done(task, "done", reply)

    def close(self) -> None:
        """Nothing is kept."""

"""Passes that are performed while training goes on (E35): one thread hands out their work, in the order they were due,
and waits for the workers that do it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.one_pass import OnePass


class Background:
    """Passes in the order they were given, one at a time.

    interrupts  of the run; `interrupts` of this object hears it, and is what its passes ask
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = Interrupts(parent=interrupts)
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[OnePass, Future[None]]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether every pass has come back."""
        return not self._pending

    def holds(self, name: str) -> bool:
        """Whether a pass of an evaluator has not come back yet."""
        return any(one.name == name for one, _ in self._pending)

    def add(self, one: OnePass) -> None:
        """Perform a pass that has begun when those before it have been."""
        self._thread = self._thread or ThreadPoolExecutor(1, "skidpad evaluation")
        self._pending.append((one, self._thread.submit(one.perform)))

    def ended(self, *, waits: bool) -> Iterator[OnePass]:
        """Those that have been performed, each once; with `waits`, all there are."""
        while self._pending and (waits or self._pending[0][1].done()):
            one, work = self._pending[0]
            work.result()
            self._pending.popleft()
            yield one

    def leave(self) -> None:
        """Stop: what is running finishes its cases, unless this is interrupted; what waits is not begun."""
        if self._thread is None:
            return
        self.interrupts.ask()
        running = [work for _, work in self._pending if not work.cancel()]
        try:
            wait(running)
        except BaseException:
            self.interrupts.ask_at_once()
            wait(running)
            raise
        finally:
            self._thread.shutdown()
            self._thread = None
            while self._pending:
                self._pending.popleft()[0].leave()

"""Ctrl-C and SIGTERM: the first asks the run to finish its cases, write them and stop; the second stops it now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and has stopped between cases: everything finished is written."""


class Interrupts:
    """While entered, holds the process's handlers for SIGINT and SIGTERM and gives back what was there.

    Outside the main thread nothing can be installed; `ask` then does what a signal would do.

    parent  is heard too: whoever asks it asks this one
    """

    def __init__(self, notify: Callable[[str], None] = lambda _: None, parent: Interrupts | None = None) -> None:
        self._notify, self._parent = notify, parent
        self._previous: dict[signal.Signals, Any] = {}
        self._asked = self._at_once = False

    @property
    def asked(self) -> bool:
        """Whether to stop when what is running has finished."""
        return self._asked or (self._parent is not None and self._parent.asked)

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.ask()

    def ask(self) -> None:
        """Ask to stop; the second time raises KeyboardInterrupt."""
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        self._notify("interrupted: finishing the running cases; interrupt again to stop now")

    def ask_at_once(self) -> None:
        """Ask another thread to stop in the middle of what is running: `look` raises there."""
        self._asked = self._at_once = True

    def look(self) -> bool:
        """Whether to begin nothing more. Raises Interrupted where what is running is to be left, too."""
        if self._at_once:
            raise Interrupted
        return self.asked

    def stop_here(self) -> None:
        """Raises Interrupted if somebody asked: called where everything finished is written."""
        if self.asked:
            raise Interrupted

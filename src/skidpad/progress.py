"""How far along: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import IO, Any, TypeVar

PLAIN_SECONDS = 30.0
QUIET_SECONDS = 2.0  # work that ends sooner shows nothing

T = TypeVar("T")


class Progress:
    """Shows (text, done, total) as it changes. Nothing appears before QUIET_SECONDS of work.

    On a terminal this is a bar with the time left; elsewhere a plain line every PLAIN_SECONDS, without control
    characters.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, text: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._start < QUIET_SECONDS:
            return
        if self._stream.isatty():
            self._show_bar(text, done, total)
        elif now - self._last >= PLAIN_SECONDS:
            self._last = now
            print(f"{text}: {done} of {total}", file=self._stream, flush=True)

    def compiling(self, done: int, total: int) -> None:
        """Kernels are being compiled: the first run of a version waits for it, and should know why."""
        if done == 0:
            print("compiling kernels, once for this version and machine", file=self._stream, flush=True)
        self("compiling kernels", done, total)

    def _show_bar(self, text: str, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, console=Console(file=self._stream), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(text, total=total)
        self._bar.update(self._task, description=text, completed=done, total=total)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def track(items: Iterable[T], total: int, text: str, stream: IO[str]) -> Iterator[T]:
    """The items, with progress shown on `stream`; there may be more of them than `total` promised."""
    with Progress(stream) as progress:
        for done, item in enumerate(items, start=1):
            yield item
            progress(text, done, max(done, total))

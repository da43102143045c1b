"""The hash-chained event log of a run folder: what happened to the run, in an order that cannot be rearranged.

Each line carries the hash of the line before it, so a line that is edited, removed, added or moved breaks every hash
after it. An event is written before the thing it announces is used. Order is the sequence number; the time in a line
is for people and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from skidpad.artifacts.digests import canonical_json, digest_value
from skidpad.artifacts.files import LineFile, parse_json, read_lines
from skidpad.errors import IntegrityError

CHAIN_SCHEMA = "skidpad.chain/1"
FIRST = "0" * 64


def _link(event: Mapping[str, Any]) -> str:
    return digest_value({key: value for key, value in event.items() if key != "hash"}, "chain event")


class Chain:
    """Appends events to a chain file; continues one that is already there.

    Raises IntegrityError when the file is not an unbroken chain. `torn_bytes` counts what a kill left of a last line.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._lines = LineFile(path)
        self.torn_bytes = self._lines.torn_bytes
        self._clock = clock
        try:
            events = read_chain(path)
        except BaseException:
            self._lines.close()
            raise
        self.length = len(events)
        self.head: str = events[-1]["hash"] if events else FIRST

    def append(self, event: str, data: Mapping[str, Any] | None = None) -> str:
        """Add an event and return its hash, the new head of the chain."""
        line: dict[str, Any] = {
            "schema": CHAIN_SCHEMA,
            "seq": self.length,
            "event": event,
            "data": dict(data or {}),
            "time": round(self._clock(), 3),
            "previous": self.head,
        }
        head = _link(line)
        self._lines.append(canonical_json({**line, "hash": head}))
        self.head = head
        self.length += 1
        return head

    def close(self) -> None:
        self._lines.close()


def read_chain(path: Path) -> list[dict[str, Any]]:
    """All events of a chain, each checked against the one before it; a torn last line is left out.

    Raises IntegrityError naming the first line that does not hold.
    """
    events: list[dict[str, Any]] = []
    previous = FIRST
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            event = parse_json(line)
        except ValueError as error:
            raise IntegrityError(
                f"{where}: not an event ({error}). The chain was damaged after it was written."
            ) from None
        if not isinstance(event, dict) or event.get("schema") != CHAIN_SCHEMA:
            raise IntegrityError(f"{where}: not a {CHAIN_SCHEMA} event.")
        if event.get("seq") != len(events) or event.get("previous") != previous:
            raise IntegrityError(f"{where}: does not follow the line before it. A line was removed, added or moved.")
        if event.get("hash") != _link(event):
            raise IntegrityError(f"{where}: its hash is not the hash of its content. The line was edited.")
        previous = event["hash"]
        events.append(event)
    return events

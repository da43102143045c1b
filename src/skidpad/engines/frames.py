"""Messages between a process and its worker: a JSON object and bytes beside it, over a socket.

Nothing is unpickled on either side. A message is the number of its parts, their lengths, and the parts; the first is
the object.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from skidpad.artifacts.digests import canonical_json
from skidpad.artifacts.files import parse_json

_COUNT = struct.Struct("<I")
MOST_PARTS = 1 << 20
CHUNK = 1 << 20


class Message(NamedTuple):
    """What one side says."""

    document: dict[str, Any]
    blobs: tuple[bytes, ...]


def encoded(document: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """The bytes of a message. Raises ValueError for NaN and TypeError for what JSON cannot hold."""
    parts = [canonical_json(document).encode(), *blobs]
    return b"".join([struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts)), *parts])


class Inbox:
    """Puts messages together from what has arrived."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data

    def take(self) -> Message | None:
        """The next whole message, or None. Raises ValueError for bytes that are none."""
        if len(self._data) < _COUNT.size:
            return None
        (count,) = _COUNT.unpack_from(self._data)
        if not 0 < count <= MOST_PARTS:
            raise ValueError(f"a message of {count} parts")
        at = _COUNT.size + 8 * count
        if len(self._data) < at:
            return None
        sizes = struct.unpack_from(f"<{count}Q", self._data, _COUNT.size)
        if len(self._data) < at + sum(sizes):
            return None
        parts = []
        for size in sizes:
            parts.append(bytes(self._data[at : at + size]))
            at += size
        del self._data[:at]
        document = parse_json(parts[0])
        if not isinstance(document, dict):
            raise ValueError(f"a message that is a {type(document).__name__}")
        return Message(document, tuple(parts[1:]))


def receive(connection: socket.socket, inbox: Inbox) -> Message | None:
    """Wait for the next message; None when the other side is gone."""
    while (message := inbox.take()) is None:
        try:
            data = connection.recv(CHUNK)
        except ConnectionError:
            return None
        if not data:
            return None
        inbox.add(data)
    return message

"""The wire format of protocol buffers, as far as messages of numbers, texts and messages need it, without a schema.

A message is a run of fields; `fields` walks over one and hands out raw values, the caller knows what they mean. Nothing
is sized by what the bytes claim: lengths are checked against what is there, so a hostile file costs no more memory than
it has bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from skidpad.errors import FormatError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class Field(NamedTuple):
    """One field of a message.

    number  as the schema has it
    kind    wire type: VARINT, FIXED64, LENGTH or FIXED32
    value   the bytes of all but VARINT; a varint's unsigned value
    offset  of the field in the file, for messages
    """

    number: int
    kind: int
    value: memoryview | int
    offset: int

    def message(self) -> memoryview:
        """The bytes of a nested message, text or packed run. Raises FormatError for another wire type."""
        if self.kind != LENGTH or isinstance(self.value, int):
            raise FormatError(f"byte {self.offset}: field {self.number} is no message, expected wire type {LENGTH}.")
        return self.value

    def integer(self) -> int:
        """A signed 32-bit or 64-bit integer. Raises FormatError for another wire type."""
        if self.kind != VARINT or not isinstance(self.value, int):
            raise FormatError(f"byte {self.offset}: field {self.number} is no integer, expected wire type {VARINT}.")
        return self.value - (1 << 64) if self.value >> 63 else self.value

    def floats(self) -> memoryview:
        """The bytes of 32-bit floats, packed or a single one. Raises FormatError for anything else."""
        if self.kind not in (LENGTH, FIXED32) or isinstance(self.value, int) or len(self.value) % 4:
            raise FormatError(f"byte {self.offset}: field {self.number} holds no 32-bit floats.")
        return self.value


def fields(data: memoryview, offset: int = 0) -> Iterator[Field]:
    """Fields of one message, in the order in which they were written.

    offset  of the message in its file

    Raises FormatError where bytes are cut, a varint is too long, or a group occurs.
    """
    at = 0
    while at < len(data):
        begin = offset + at
        key, at = _varint(data, at, begin)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at, begin)
            yield Field(number, kind, value, begin)
            continue
        if kind == LENGTH:
            size, at = _varint(data, at, begin)
        elif kind in (FIXED32, FIXED64):
            size = struct.calcsize("<I") if kind == FIXED32 else struct.calcsize("<Q")
        else:
            raise FormatError(f"byte {begin}: wire type {kind} of field {number} is not one of 0, 1, 2, 5.")
        if number == 0 or size > len(data) - at:
            raise FormatError(f"byte {begin}: field {number} of {size} bytes, {len(data) - at} are left.")
        yield Field(number, kind, data[at : at + size], begin)
        at += size


def _varint(data: memoryview, at: int, begin: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >> 64:
                break
            return value, at + count + 1
    raise FormatError(f"byte {begin}: a varint that is cut or above 64 bits.")

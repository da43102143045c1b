"""The frame of TFRecord files (R18): length, its checksum, the record, its checksum. Both sums are checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from skidpad.errors import FormatError
from skidpad.scenes.formats.crc32c import crc32c, masked
from skidpad.scenes.formats.source import Limits, Source

HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")


def is_tfrecord(head: bytes) -> bool:
    """Whether a file begins with a length and the checksum of that length."""
    return len(head) >= HEAD.size and HEAD.unpack_from(head)[1] == masked(crc32c(head[:8]))


def records(source: Source, limits: Limits) -> Iterator[tuple[int, memoryview]]:
    """(offset, bytes) of each record, in file order.

    Raises FormatError at the first record that is cut, corrupted or above the limit; those before it are whole.
    """
    data, at = memoryview(source.data), 0
    while at < len(data):
        if len(data) - at < HEAD.size:
            raise _broken(source, at, f"the frame is cut, {len(data) - at} bytes are left")
        size, check = HEAD.unpack_from(data, at)
        if check != masked(crc32c(data[at : at + 8])):
            raise _broken(source, at, "the checksum of the length does not hold")
        limits.check("message_bytes", size, f"{source.name}, byte {at}")
        begin = at + HEAD.size
        if size + _FOOT.size > len(data) - begin:
            raise _broken(source, at, f"a record of {size} bytes, {len(data) - begin} are left")
        record = data[begin : begin + size]
        if _FOOT.unpack_from(data, begin + size)[0] != masked(crc32c(record)):
            raise _broken(source, at, "the checksum of the record does not hold")
        yield begin, record
        at = begin + size + _FOOT.size


def _broken(source: Source, at: int, what: str) -> FormatError:
    return FormatError(f"{source.name}: byte {at}: {what}, expected a whole TFRecord. Copy the file again.")

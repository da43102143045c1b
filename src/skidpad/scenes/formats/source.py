"""Bytes of a file, bounded before anything is read out of them.

`read_source` opens a file once, checks its size, inflates `.gz` and `.xz` by their content under a cap, and hands the
readers plain bytes with a name for messages. `Limits` is the table of bounds that every reader checks before it makes
an array. What the bytes mean is the readers' business.
"""

from __future__ import annotations

import lzma
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path

from skidpad.artifacts.digests import digest_bytes, digest_file
from skidpad.errors import FormatError

GZIP_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"
SQLITE_MAGIC = b"SQLite format 3\0"
COMPRESSED_SUFFIXES = frozenset({".gz", ".xz"})

_CHUNK = 1 << 20
_DATABASE_HEAD = 1 << 20  # holds the schema, by which a format is told
# Below this a high ratio is no attack: a short map of repeated text inflates 200 times without filling anything.
_RATIO_FREE_BYTES = 1 << 20
# xz -9 needs 65 MiB to inflate; a stream may declare gigabytes.
_XZ_MEMORY_BYTES = 128 << 20


@dataclass(frozen=True)
class Limits:
    """What a file may ask for (R3). Every count is checked with `check` before the array it sizes is made.

    file_bytes           size of the file on disk
    database_bytes       size of a database on disk, of which only what is asked for is read
    decompressed_bytes   size after inflating
    compression_ratio    inflated over compressed bytes, above the first MiB
    xml_depth            nesting of XML elements
    xml_elements         number of XML elements
    xml_attribute_bytes  length of one XML attribute value
    json_depth           nesting of JSON arrays and objects
    json_string_bytes    length of one JSON string
    json_values          values of a JSON file
    message_bytes        size of one protocol-buffer message
    pickle_operations    operations of a pickle
    pickle_memo          values of a pickle that are referred to again
    map_points           vertices of all map elements
    elements             lanes, lines, edges and areas together
    lanes                lanes
    tracks               tracks
    rows                 rows of one track
    track_rows           tracks x rows
    signals              lights, stop signs and yields
    program_phases       phases of one signal programme
    coordinate_m         [m]  largest absolute coordinate before recentring
    extent_m             [m]  largest distance from the origin along one axis, after recentring
    """

    file_bytes: int = 512 << 20
    database_bytes: int = 64 << 30
    decompressed_bytes: int = 1 << 30
    compression_ratio: int = 200
    xml_depth: int = 64
    xml_elements: int = 10_000_000
    xml_attribute_bytes: int = 64 << 10
    json_depth: int = 32
    json_string_bytes: int = 64 << 10
    json_values: int = 20_000_000
    message_bytes: int = 64 << 20
    pickle_operations: int = 20_000_000
    pickle_memo: int = 2_000_000
    map_points: int = 20_000_000
    elements: int = 2_000_000
    lanes: int = 500_000
    tracks: int = 20_000
    rows: int = 20_000
    track_rows: int = 50_000_000
    signals: int = 50_000
    program_phases: int = 256
    coordinate_m: float = 1e7
    extent_m: float = 16_384.0

    def check(self, limit: str, value: float, where: str) -> None:
        """Raise FormatError naming the limit, the value and where, when `value` is above the limit called `limit`.

        A NaN is above every limit.
        """
        bound = getattr(self, limit)
        if not value <= bound:
            raise FormatError(
                f"{where}: {limit.replace('_', ' ')} is {value:g}, the limit is {bound:g}. "
                f"Cut the file, or raise the limit {limit!r}."
            )


@dataclass(frozen=True)
class Source:
    """The bytes of one file, inflated.

    data      what the readers parse; of a database on disk its first bytes only
    name      the file's name, for messages and as a last resort for the scene id
    digest    SHA-256 of the whole: the same for a file and for its compressed copy
    database  the file of a database on disk, which may be larger than memory: SQLite reads pages of it as it needs them
    """

    data: bytes
    name: str
    digest: str
    database: Path | None = None

    @property
    def stem(self) -> str:
        """The name without folder, compression suffix and suffix: `maps/Town01.xodr.gz` gives `Town01`."""
        path = Path(self.name)
        if path.suffix in COMPRESSED_SUFFIXES:
            path = path.with_suffix("")
        return path.stem


def read_source(
    path: Path | str | bytes, limits: Limits | None = None, *, name: str = "", follow_links: bool = True
) -> Source:
    """Read and inflate one file, or take bytes as they are given.

    path          a file, or its content
    limits        bounds; the default ones when left out
    name          what messages call it; the path when left out
    follow_links  False for a file that was found in a data-set folder: a link there may point anywhere (R4)

    Raises FormatError for a missing, empty, irregular or oversized file, for a compressed stream that is cut,
    corrupted, above the limits, or followed by anything, and for a link where links are refused.
    """
    limits = limits or Limits()
    if isinstance(path, bytes):
        name = name or "<bytes>"
        raw = path
        limits.check("file_bytes", len(raw), name)
    else:
        path = Path(path)
        name = name or str(path)
        raw = _read_file(path, limits, name, follow_links)
        if raw.startswith(SQLITE_MAGIC):
            return Source(raw, name, digest_file(path), path)
    if not raw:
        raise FormatError(f"{name}: the file is empty, expected a scene or a map.")
    data = _inflate(raw, limits, name)
    return Source(data, name, digest_bytes(data))


def _read_file(path: Path, limits: Limits, name: str, follow_links: bool) -> bytes:
    # O_NONBLOCK: opening a named pipe would otherwise wait for a writer for ever.
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    if not follow_links and path.is_symlink():
        raise FormatError(f"{name}: a symbolic link in a data set. Put the file itself there.")
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise FormatError(f"{name}: cannot be opened ({error.strerror}), expected a readable file.") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise FormatError(f"{name}: not a regular file, expected a scene or a map.")
    with os.fdopen(descriptor, "rb") as file:
        try:
            if file.peek(len(SQLITE_MAGIC)).startswith(SQLITE_MAGIC):
                limits.check("database_bytes", status.st_size, name)
                return file.read(_DATABASE_HEAD)
            limits.check("file_bytes", status.st_size, name)
            # A file that grows while it is read stays bounded: the count is checked again.
            data = file.read(limits.file_bytes + 1)
        except OSError as error:
            raise FormatError(f"{name}: cannot be read ({error.strerror}).") from None
    limits.check("file_bytes", len(data), name)
    return data


def _inflate(raw: bytes, limits: Limits, name: str) -> bytes:
    if raw.startswith(GZIP_MAGIC):
        return _inflate_gzip(raw, limits, name)
    if raw.startswith(XZ_MAGIC):
        return _inflate_xz(raw, limits, name)
    return raw


def _check_inflated(size: int, compressed: int, limits: Limits, name: str) -> None:
    limits.check("decompressed_bytes", size, name)
    if size > _RATIO_FREE_BYTES:
        limits.check("compression_ratio", size / compressed, name)


def _inflate_gzip(raw: bytes, limits: Limits, name: str) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    size, rest = 0, raw
    while not inflater.eof:
        try:
            part = inflater.decompress(rest, _CHUNK)
        except zlib.error as error:
            raise FormatError(f"{name}: the gzip stream is corrupted ({error}). Copy the file again.") from None
        rest = inflater.unconsumed_tail
        size += len(part)
        _check_inflated(size, len(raw), limits, name)
        parts.append(part)
        if not part and not rest and not inflater.eof:
            raise FormatError(f"{name}: the gzip stream is cut at byte {len(raw)}. Copy the file again.")
    _refuse_trailing(inflater.unused_data, raw, name)
    return b"".join(parts)


def _inflate_xz(raw: bytes, limits: Limits, name: str) -> bytes:
    inflater = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
    parts: list[bytes] = []
    size, rest = 0, raw
    while not inflater.eof:
        try:
            part = inflater.decompress(rest, _CHUNK)
        except lzma.LZMAError as error:
            raise FormatError(f"{name}: the xz stream is corrupted ({error}). Copy the file again.") from None
        rest = b""
        size += len(part)
        _check_inflated(size, len(raw), limits, name)
        parts.append(part)
        if not part and inflater.needs_input and not inflater.eof:
            raise FormatError(f"{name}: the xz stream is cut at byte {len(raw)}. Copy the file again.")
    _refuse_trailing(inflater.unused_data, raw, name)
    return b"".join(parts)


def _refuse_trailing(unused: bytes, raw: bytes, name: str) -> None:
    # A second member would be a second file in one name; trailing bytes are a place to hide things.
    if unused:
        offset = len(raw) - len(unused)
        raise FormatError(f"{name}: {len(unused)} bytes follow the compressed stream, which ends at byte {offset}.")

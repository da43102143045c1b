"""One file of named arrays, checksummed and memory-mapped: the body of scenes, map indexes and traces.

    header   128 bytes, little-endian: magic, version, flags, lengths, SHA-256 of the table, content digest, zeros
    arrays   C order, each at a multiple of 64 bytes, in name order, zeros between
    table    canonical JSON at the end: the caller's `meta`, version and content digest again, and every array's name,
             dtype, shape, offset, length and SHA-256

The same content gives the same bytes. Every byte of a file is either checked against a hash or must be zero, so no
flipped bit goes unnoticed; every number in the table is compared with the file before it is used. Arrays are mapped
read-only, never copied. What the arrays mean is the caller's business, as is the content digest.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import mmap
import os
import stat
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from skidpad.artifacts.digests import canonical_json
from skidpad.artifacts.files import parse_json
from skidpad.errors import FormatError, IntegrityError, listed

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"SKIDSCN\x1a"
MAJOR, MINOR = 1, 0
FLAG_SCENE, FLAG_INDEX, FLAG_TRACE, FLAG_SNAPSHOT = range(4)
KINDS = {FLAG_SCENE: "scene", FLAG_INDEX: "map index", FLAG_TRACE: "trace", FLAG_SNAPSHOT: "snapshot of worlds"}

ALIGNMENT = 64
MOST_TABLE_BYTES = 4 << 20
MOST_AXES = 8
DTYPES = frozenset({"|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8"})

_HEADER = struct.Struct("<8sHHIQQQ32s32s24s")
_ARRAY_KEYS = {"name", "dtype", "shape", "offset", "length", "sha256"}

# Files whose arrays this process has hashed: path -> what would change if the file did.
_hashed: dict[str, tuple[int, int, int, bytes]] = {}


@dataclass(frozen=True, eq=False)
class Container:
    """What a file holds.

    meta            the caller's table, JSON of integers and strings
    arrays          by name, read-only
    content_digest  64 hexadecimal digits, as the writer gave it
    version         (major, minor) of the file
    table           SHA-256 of the table, in which the checksum of every array stands: equal tables, equal contents
    """

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    content_digest: str
    version: tuple[int, int]
    table: bytes


def encode(
    flags: int,
    meta: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    content_digest: str,
    *,
    optional: Collection[str] = (),
) -> bytes:
    """The bytes of a container.

    flags           one of KINDS
    meta            lists and string-keyed mappings of integers and strings; real numbers go in as text
    arrays          by name
    content_digest  64 hexadecimal digits
    optional        names of arrays that a reader of an older minor version may ignore

    Raises TypeError for a dtype outside DTYPES or another value in `meta`, FormatError for a table above 4 MiB.
    """
    import numpy as np

    _refuse_odd_values(meta, "meta")
    body = bytearray()
    entries = []
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(arrays[name].shape)
        if array.dtype.str not in DTYPES:
            raise TypeError(f"array {name!r}: dtype {array.dtype} cannot be stored, expected one of {sorted(DTYPES)}")
        data = array.tobytes()
        body += bytes(-(_HEADER.size + len(body)) % ALIGNMENT)
        entry: dict[str, Any] = {
            "name": name,
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "offset": _HEADER.size + len(body),
            "length": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        if name in optional:
            entry["optional"] = 1
        entries.append(entry)
        body += data
    body += bytes(-(_HEADER.size + len(body)) % ALIGNMENT)
    content = {"version": [MAJOR, MINOR], "meta": meta, "content": content_digest, "arrays": entries}
    table = canonical_json(content).encode()
    if len(table) > MOST_TABLE_BYTES:
        raise FormatError(
            f"the table of this file would take {len(table)} bytes, the limit is {MOST_TABLE_BYTES}. "
            "Shorten the labels or the loss report."
        )
    offset = _HEADER.size + len(body)
    header = _HEADER.pack(
        MAGIC,
        MAJOR,
        MINOR,
        flags,
        offset + len(table),
        offset,
        len(table),
        hashlib.sha256(table).digest(),
        bytes.fromhex(content_digest),
        bytes(24),
    )
    return header + bytes(body) + table


def _refuse_odd_values(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_odd_values(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_odd_values(item, f"{where}[{index}]")
    elif isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{where}: {value!r} is {type(value).__name__}, expected an integer or text")


def open_container(
    source: Path | bytes,
    *,
    flags: int,
    verify: Literal["lazy", "full"] = "lazy",
    known: Collection[str] | None = None,
    name: str = "",
    hold: bool = False,
) -> Container:
    """Check a container and map its arrays.

    source  a file, which is mapped read-only, or its bytes
    flags   the kind of file that is expected
    verify  "lazy" hashes the arrays the first time this process opens the file, and again when its size, time or
            inode have changed; "full" hashes them every time
    known   names of the arrays the caller understands; others must be optional, and are left out. None = all
    name    what messages call the source; its path when left out
    hold    keep a shared lock (flock) on the file while anything of it is mapped, which tells a cache that it is in use

    Raises FormatError for a file that is cut, of another kind or version, or whose table contradicts it, and
    IntegrityError where a checksum does not hold.
    """
    if isinstance(source, bytes):
        name = name or "<bytes>"
        return _open(memoryview(source), name, flags, known, hashing=True)
    name = name or str(source)
    view, identity = _mapped(source, name, hold=hold)
    key = os.fspath(source.absolute())
    table_hash = _table_hash(view)
    hashing = verify == "full" or _hashed.get(key) != (*identity, table_hash)
    container = _open(view, name, flags, known, hashing=hashing)
    _hashed[key] = (*identity, table_hash)
    return container


def read_header(source: Path, *, flags: int) -> tuple[dict[str, Any], str]:
    """`meta` and content digest of a file, from its checked header and table, without touching the arrays.

    Raises as `open_container`.
    """
    view, _ = _mapped(source, str(source))
    _, _, table = _header_and_table(view, str(source), flags)
    return table["meta"], table["content"]


def _mapped(path: Path, name: str, *, hold: bool = False) -> tuple[memoryview, tuple[int, int, int]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise FormatError(f"{name}: cannot be opened ({error.strerror}), expected a readable file.") from None
    try:
        if hold:  # The mapping keeps a duplicate of the descriptor, and with it the lock, until its last view is gone.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{name}: not a regular file.")
        identity = (status.st_size, status.st_mtime_ns, status.st_ino)
        if status.st_size == 0:  # an empty file cannot be mapped
            return memoryview(b""), identity
        return memoryview(mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)), identity
    finally:
        os.close(descriptor)


def _header_and_table(
    view: memoryview, name: str, flags: int, *, spelled: bool = False
) -> tuple[tuple[int, int], int, dict[str, Any]]:
    """Version, offset of the table, and the table, all checked against the file. `spelled`: a table of this hash was
    found to be in its canonical form before."""
    if bytes(view[:8]) != MAGIC[: len(view)] or not len(view):
        raise FormatError(
            f"{name}: is no Skidpad archive, its first 8 bytes differ. Convert it: skidpad scenes convert"
        )
    if len(view) < _HEADER.size:
        raise FormatError(f"{name}: cut at byte {len(view)}, inside the header of {_HEADER.size} bytes. Copy it again.")
    _, major, minor, found, length, offset, table_length, table_hash, content, zeros = _HEADER.unpack(
        view[: _HEADER.size]
    )
    if major != MAJOR:
        raise FormatError(
            f"{name}: version {major}.{minor} of the file format, this release reads {MAJOR}.x. Convert it with a "
            f"release that writes version {major}, or from its source again."
        )
    if found != flags:
        raise FormatError(f"{name}: holds a {KINDS.get(found, 'file of unknown kind')}, expected a {KINDS[flags]}.")
    if len(view) < length:
        raise FormatError(f"{name}: cut at byte {len(view)} of {length}. Copy it again.")
    if len(view) > length:
        raise FormatError(f"{name}: {len(view) - length} bytes follow the end of the file at byte {length}.")
    if table_length > MOST_TABLE_BYTES or offset < _HEADER.size or offset + table_length != length or any(zeros):
        raise IntegrityError(f"{name}: the header contradicts the file (table at {offset}, {table_length} bytes).")
    raw = bytes(view[offset:])
    if hashlib.sha256(raw).digest() != table_hash:
        raise IntegrityError(f"{name}: the checksum of the table does not hold. The file was altered; copy it again.")
    table = _parsed_table(raw, name, spelled)
    # The header itself is under no hash; what it says that nothing else proves stands in the table again.
    if table["content"] != content.hex() or table["version"] != [major, minor]:
        raise IntegrityError(f"{name}: header and table differ in version or content digest. Copy the file again.")
    return (major, minor), offset, table


def _parsed_table(raw: bytes, name: str, spelled: bool) -> dict[str, Any]:
    try:
        table = parse_json(raw)
        canonical = spelled or canonical_json(table).encode() == raw
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: the table is not JSON ({error}).") from None
    keys = {"version": list, "meta": dict, "content": str, "arrays": list}
    if not canonical or not isinstance(table, dict) or set(table) != set(keys):
        raise FormatError(f"{name}: the table is not in its canonical form.")
    for key, kind in keys.items():
        if not isinstance(table[key], kind):
            raise FormatError(f"{name}: {key!r} in the table is {type(table[key]).__name__}, expected {kind.__name__}.")
    return table


def _open(view: memoryview, name: str, flags: int, known: Collection[str] | None, *, hashing: bool) -> Container:
    import numpy as np

    version, table_offset, table = _header_and_table(view, name, flags, spelled=not hashing)
    arrays: dict[str, NDArray[Any]] = {}
    end: int = _HEADER.size
    last: str | None = None
    for entry in table["arrays"]:
        _check_entry(entry, name, end, table_offset, last)
        start, last = entry["offset"], entry["name"]
        if any(view[end:start]):
            raise IntegrityError(f"{name}: the padding at byte {end} is not zero. The file was altered.")
        end = start + entry["length"]
        data = view[start:end]
        if hashing and hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise IntegrityError(
                f"{name}: the checksum of array {last!r} does not hold (bytes {start} to {end}). The file was "
                "altered; copy it again."
            )
        array = np.frombuffer(data, entry["dtype"]).reshape(entry["shape"])
        if hashing and entry["dtype"] == "|b1" and array.view("u1").max(initial=0) > 1:
            raise FormatError(f"{name}: array {last!r} is bool but holds other bytes than 0 and 1.")
        if known is None or last in known:
            arrays[last] = array
        elif "optional" not in entry:
            raise FormatError(
                f"{name}: array {last!r} is not known to this release and is not optional (file version "
                f"{version[0]}.{version[1]}, this release {MAJOR}.{MINOR}). Use a newer release."
            )
    if any(view[end:table_offset]) or table_offset != _aligned(end):
        raise IntegrityError(f"{name}: {table_offset - end} bytes between the last array and the table, not padding.")
    missing = [array for array in known or () if array not in arrays]
    if missing:
        raise FormatError(f"{name}: lacks the arrays {listed(missing)}. Convert it from its source again.")
    return Container(table["meta"], arrays, table["content"], version, _table_hash(view))


def _table_hash(view: memoryview) -> bytes:
    """The checksum of the table, as the header says it."""
    return bytes(view[40:72])


def _aligned(offset: int) -> int:
    return offset + -offset % ALIGNMENT


def _check_entry(entry: Any, name: str, end: int, table_offset: int, last: str | None) -> None:
    """Refuse an array whose description is not sound, before anything is read through it."""

    def refuse(why: str) -> FormatError:
        label = entry.get("name") if isinstance(entry, dict) else entry
        return FormatError(f"{name}: array {label!r} in the table: {why}.")

    if not isinstance(entry, dict) or set(entry) - {"optional"} != _ARRAY_KEYS:
        raise refuse(f"expected the keys {sorted(_ARRAY_KEYS)}")
    if not isinstance(entry["name"], str) or (last is not None and entry["name"] <= last):
        raise refuse(f"names must be text in ascending order, after {last!r}")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise refuse(f"dtype {entry['dtype']!r}, expected one of {sorted(DTYPES)}")
    shape = entry["shape"]
    numbers = [entry["offset"], entry["length"], *(shape if isinstance(shape, list) else [None])]
    if not all(type(number) is int and number >= 0 for number in numbers) or len(shape) > MOST_AXES:
        raise refuse("offset, length and shape must be non-negative integers")
    if math.prod(shape) * int(entry["dtype"][2:]) != entry["length"]:
        raise refuse(f"shape {shape} does not take {entry['length']} bytes")
    if entry["offset"] != _aligned(end) or entry["offset"] + entry["length"] > table_offset:
        raise refuse(f"lies at {entry['offset']}, expected at {_aligned(end)} and before the table at {table_offset}")

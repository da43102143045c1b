"""Canonical, injective content digests.

Two values have the same digest exactly when they are the same value: every part is preceded by its type and its
length, so no concatenation of other parts can collide with it. Text is hashed as UTF-8, numbers by value and not by
spelling, arrays by name, dtype, shape and little-endian bytes. Digests are lower-case SHA-256 hexadecimal.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK = 1 << 20
_LENGTH, _DOUBLE = struct.Struct("<Q").pack, struct.Struct("<d").pack
_HEAD = 9  # bytes of a tag and a length


def canonical_json(value: Any) -> str:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8 characters as they are, no NaN or infinity.

    Raises ValueError for a non-finite number and TypeError for a value or key that JSON cannot hold.
    """
    _refuse_odd_keys(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


_LEAVES, _TEXT = frozenset({str, int, float, bool, type(None)}), frozenset({str})


def _refuse_odd_keys(value: Any) -> None:
    # json.dumps turns the key 1 into "1", so {1: x} and {"1": x} would share a spelling. Most objects are small, of
    # plain text keys and leaves: a look at their types sees that without a loop.
    if isinstance(value, (dict, Mapping)):
        if not _TEXT.issuperset(map(type, value)):
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"object key {key!r} is {type(key).__name__}, expected str")
        items: Any = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    else:
        return
    if not _LEAVES.issuperset(map(type, items)):
        for item in items:
            if type(item) not in _LEAVES:
                _refuse_odd_keys(item)


class Encoded(NamedTuple):
    """The bytes of a value that stands in many others; made by `encoded`, and digested as the value itself."""

    data: bytes


def encoded(value: Any) -> Encoded:
    """The bytes of a value. Raises as `digest_value`."""
    out: list[Any] = []
    _append(value, out)
    return Encoded(b"".join(out))


def _part(tag: bytes, payload: bytes) -> bytes:
    return tag + _LENGTH(len(payload)) + payload


def _append(value: Any, out: list[Any]) -> int:
    """Put the bytes of a value at the end of `out`, in pieces, so that arrays are hashed where they lie; returns their
    length. Every part has a tag and a length."""
    kind = type(value)
    if kind is str:
        return _leaf(b"s", value.encode(), out)
    if value is None:
        return _leaf(b"n", b"", out)
    if kind is float or isinstance(value, float):
        if math.isnan(value):
            raise ValueError("NaN has no digest")
        return _leaf(b"f", _DOUBLE(value + 0.0), out)  # + 0.0 folds -0.0 into 0.0: the two compare equal
    if kind is bool:
        return _leaf(b"b", b"1" if value else b"0", out)
    if kind is int or isinstance(value, int):
        return _leaf(b"i", str(int(value)).encode(), out)
    if kind is Encoded:
        out.append(value.data)
        return len(value.data)
    place, length = len(out), 0
    if isinstance(value, (list, tuple)):
        out.append(b"")
        for item in value:
            if type(item) is str:  # hashes of states: as many as a trace has, and a call for each is dear
                data = item.encode()
                out.append(b"s" + _LENGTH(len(data)) + data)
                length += _HEAD + len(data)
            else:
                length += _append(item, out)
        return _close(b"l", place, length, out)
    if kind is dict or isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"object key {key!r} is {type(key).__name__}, expected str")
        out.append(b"")
        for key in sorted(value):
            out.append(_key(key))
            length += len(out[-1]) + _append(value[key], out)
        return _close(b"d", place, length, out)
    if isinstance(value, str):
        return _leaf(b"s", value.encode(), out)
    if isinstance(value, (bytes, bytearray)):
        return _leaf(b"y", bytes(value), out)
    if (array := _as_array(value)) is not None:
        header = _array_header(array)
        out += [b"", *header, array.reshape(-1).view("u1").data if array.size else b""]
        return _close(b"a", place, sum(map(len, header)) + array.nbytes, out)
    raise TypeError(f"no canonical form for {type(value).__name__}")


@lru_cache(4096)  # keys repeat: a record has hundreds, of a few dozen names
def _key(text: str) -> bytes:
    return _part(b"s", text.encode())


def _leaf(tag: bytes, payload: bytes, out: list[Any]) -> int:
    out.append(tag + _LENGTH(len(payload)) + payload)
    return _HEAD + len(payload)


def _close(tag: bytes, place: int, length: int, out: list[Any]) -> int:
    """Write the head of a part of several pieces into the place that was kept for it."""
    out[place] = tag + _LENGTH(length)
    return _HEAD + length


def _array_header(array: NDArray[Any]) -> tuple[bytes, bytes]:
    return _header(array.dtype.str, array.shape)


@lru_cache(4096)  # traces of one pass have the same arrays, of few shapes
def _header(dtype: str, shape: tuple[int, ...]) -> tuple[bytes, bytes]:
    return _part(b"t", dtype.encode()), _part(b"h", struct.pack(f"<{len(shape)}q", *shape))


def _as_array(value: Any) -> NDArray[Any] | None:
    """Little-endian C-order array of a NumPy array or a torch tensor of any device and strides; None for others."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")  # who holds an array has its library loaded
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _little_endian(value)
    return None


def digest_value(value: Any, kind: str) -> str:
    """Digest of a tree of None, bool, int, float, str, bytes, arrays, tensors, lists and string-keyed mappings.

    `kind` names what is being hashed ("case", "section"), so that equal trees of different meaning differ. Of an array
    dtype, shape and values count; device, strides and byte order do not. Tuples are lists.
    """
    pieces: list[Any] = [_part(b"k", kind.encode())]
    _append(value, pieces)
    return _hashed(pieces)


def digest_arrays(arrays: Mapping[str, NDArray[Any]], kind: str) -> str:
    """Digest of named arrays: name, dtype, shape and little-endian C-order bytes of each, in name order."""
    pieces: list[Any] = [_part(b"k", kind.encode())]
    for name in sorted(arrays):
        array = _little_endian(arrays[name])
        pieces += (_key(name), *_array_header(array), b"a", _LENGTH(array.nbytes))
        if array.size:
            pieces.append(array.reshape(-1).view("u1").data)
    return _hashed(pieces)


def _hashed(pieces: Sequence[Any]) -> str:
    """SHA-256 of pieces one after the other: a call for each large one, and one for all that lies between two."""
    hasher, small = hashlib.sha256(), []
    for piece in pieces:
        if len(piece) < _CHUNK:
            small.append(piece)
        else:
            hasher.update(b"".join(small))
            hasher.update(piece)
            small = []
    hasher.update(b"".join(small))
    return hasher.hexdigest()


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    if array.dtype.str[0] in "<|" and array.flags.c_contiguous and not array.dtype.hasobject:
        return array
    if array.dtype.hasobject:
        raise TypeError("object arrays have no digest")
    array = np.asarray(array, order="C")  # not ascontiguousarray, which gives a scalar array an axis
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def digest_sources(package: Path, patterns: Sequence[str]) -> str:
    """Identity of code: names and text of the files that glob patterns name under a package's folder. It stands in for
    a version that nobody forgets to raise."""
    files = [path for pattern in patterns for path in sorted(package.glob(pattern))]
    return digest_value({path.relative_to(package).as_posix(): path.read_bytes() for path in files}, "sources")


def digest_bytes(data: bytes | memoryview) -> str:
    """SHA-256 of raw bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in chunks."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()

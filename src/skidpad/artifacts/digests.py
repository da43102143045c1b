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
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK = 1 << 20


def canonical_json(value: Any) -> str:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8 characters as they are, no NaN or infinity.

    Raises ValueError for a non-finite number and TypeError for a value or key that JSON cannot hold.
    """
    _refuse_odd_keys(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _refuse_odd_keys(value: Any) -> None:
    # json.dumps turns the key 1 into "1", so {1: x} and {"1": x} would share a spelling. Leaves come first: there are
    # many, and asking a leaf whether it is a Mapping is dear.
    if value is None or isinstance(value, (str, int, float)):
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"object key {key!r} is {type(key).__name__}, expected str")
            _refuse_odd_keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_odd_keys(item)


def _part(tag: bytes, payload: bytes) -> bytes:
    return tag + struct.pack("<Q", len(payload)) + payload


def _encode(value: Any) -> list[Any]:
    """The bytes of a value in pieces, so that arrays are hashed where they lie. Every part has a tag and a length."""
    if value is None:
        return [_part(b"n", b"")]
    if isinstance(value, bool):
        return [_part(b"b", b"1" if value else b"0")]
    if isinstance(value, int):
        return [_part(b"i", str(value).encode())]
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("NaN has no digest")
        return [_part(b"f", struct.pack("<d", value + 0.0))]  # + 0.0 folds -0.0 into 0.0: the two compare equal
    if isinstance(value, str):
        return [_part(b"s", value.encode())]
    if isinstance(value, (bytes, bytearray)):
        return [_part(b"y", bytes(value))]
    if isinstance(value, (list, tuple)):
        return _sequence(b"l", [_encode(item) for item in value])
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"object key {key!r} is {type(key).__name__}, expected str")
        items = sorted(value.items(), key=lambda item: item[0])
        return _sequence(b"d", [part for key, item in items for part in (_encode(key), _encode(item))])
    if (array := _as_array(value)) is not None:
        payload = array.reshape(-1).view("u1").data if array.size else b""
        return _sequence(b"a", [_array_header(array), [payload]])
    raise TypeError(f"no canonical form for {type(value).__name__}")


def _sequence(tag: bytes, parts: list[list[Any]]) -> list[Any]:
    pieces = [piece for part in parts for piece in part]
    return [tag + struct.pack("<Q", sum(len(piece) for piece in pieces)), *pieces]


def _array_header(array: NDArray[Any]) -> list[Any]:
    return [_part(b"t", array.dtype.str.encode()), _part(b"h", struct.pack(f"<{array.ndim}q", *array.shape))]


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
    hasher = hashlib.sha256(_part(b"k", kind.encode()))
    for piece in _encode(value):
        hasher.update(piece)
    return hasher.hexdigest()


def digest_arrays(arrays: Mapping[str, NDArray[Any]], kind: str) -> str:
    """Digest of named arrays: name, dtype, shape and little-endian C-order bytes of each, in name order."""
    hasher = hashlib.sha256(_part(b"k", kind.encode()))
    for name in sorted(arrays):
        array = _little_endian(arrays[name])
        hasher.update(_part(b"s", name.encode()))
        for piece in _array_header(array):
            hasher.update(piece)
        hasher.update(b"a" + struct.pack("<Q", array.nbytes))
        hasher.update(array.reshape(-1).view("u1").data if array.size else b"")
    return hasher.hexdigest()


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

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

"""The arrays of an episode as `.npy` bytes, and the hash tree over its files.

One decoder for all: it compares what the header declares with what the manifest declares before it allocates, and
never reads a pickle. The tree is that of RFC 6962 with the path inside each leaf: leaves and inner nodes are hashed
under different first bytes, an odd node is promoted as it is and never doubled.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_bytes
from skidpad.errors import FormatError, IntegrityError

DTYPES = {"u1": "|u1", "f4": "<f4"}
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<kind>[^']{2,4})', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>[0-9, ]{0,40})\), \} *\n",
    re.DOTALL,
)

Proof = tuple[tuple[Literal["left", "right"], str], ...]


def encode_npy(array: NDArray[Any]) -> bytes:
    """The `.npy` bytes (version 1.0) of a u1 or f4 array; equal arrays give equal bytes."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def decode_npy(data: bytes, dtype: str, shape: Sequence[int], where: str) -> NDArray[Any]:
    """The array of `.npy` bytes, read-only, if it is exactly the declared one.

    dtype  "u1" or "f4"
    Raises FormatError for another format, dtype, shape, order, or length.
    """
    start = _HEADER.match(data)
    # NumPy's own parser of headers falls back to a tokenizer of Python, whose errors have no bound.
    if start is None or start.end() != 10 + int.from_bytes(data[8:10], "little"):
        raise FormatError(f"{where}: not a .npy array of version 1.0. Compile the episodes again.")
    wanted = np.dtype(DTYPES[dtype])
    kind, fortran = start["kind"].decode("latin-1"), start["fortran"] == b"True"
    found = tuple(int(text) for text in start["shape"].replace(b" ", b"").split(b",") if text)
    if kind != wanted.str or fortran or found != tuple(shape):
        order = "Fortran" if fortran else "C"
        raise FormatError(
            f"{where}: holds {kind} {found} in {order} order, the manifest declares {wanted.str} {tuple(shape)} in C "
            "order."
        )
    expected = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
    if len(data) - start.end() != expected:
        raise FormatError(f"{where}: {len(data) - start.end()} bytes of values, expected {expected}.")
    return np.frombuffer(data, wanted, offset=start.end()).reshape(tuple(shape))


def checked_bytes(data: bytes, sha256: str, where: str) -> bytes:
    """The bytes themselves. Raises IntegrityError when they are not those that were validated."""
    found = digest_bytes(data)
    if found != sha256:
        raise IntegrityError(
            f"{where}: has digest {found}, the manifest says {sha256}. The file was changed after it was compiled; "
            "restore it."
        )
    return data


def leaf_hash(path: str, sha256: str) -> bytes:
    """H(00, length of path, path, file digest)."""
    name = path.encode()
    return hashlib.sha256(b"\x00" + struct.pack("<Q", len(name)) + name + bytes.fromhex(sha256)).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _levels(leaves: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[bytes]]]:
    ordered = sorted(leaves, key=lambda leaf: leaf[0].encode())
    if not ordered:
        raise ValueError("a hash tree needs at least one leaf")
    levels = [[leaf_hash(path, sha256) for path, sha256 in ordered]]
    while len(levels[-1]) > 1:
        row = levels[-1]
        above = [_node(row[i], row[i + 1]) for i in range(0, len(row) - 1, 2)]
        levels.append(above + row[len(row) - len(row) % 2 :])
    return [path for path, _ in ordered], levels


def root_of(leaves: Iterable[tuple[str, str]]) -> str:
    """The root over (path, SHA-256) leaves, taken in path order, in hexadecimal."""
    return _levels(leaves)[1][-1][0].hex()


def inclusion_proof(leaves: Iterable[tuple[str, str]], path: str) -> Proof:
    """The siblings from a leaf up to the root: what somebody needs, beside path and digest, to compute the root."""
    paths, levels = _levels(leaves)
    at = paths.index(path)
    proof: list[tuple[Literal["left", "right"], str]] = []
    for row in levels[:-1]:
        sibling = at ^ 1
        if sibling < len(row):
            proof.append(("left" if sibling < at else "right", row[sibling].hex()))
        at //= 2
    return tuple(proof)


def proves(path: str, sha256: str, proof: Proof, root: str) -> bool:
    """Whether a proof leads from (path, digest) to the root."""
    node = leaf_hash(path, sha256)
    for side, sibling in proof:
        other = bytes.fromhex(sibling)
        node = _node(other, node) if side == "left" else _node(node, other)
    return node.hex() == root

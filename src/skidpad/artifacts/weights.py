"""Weights on disk: strict safetensors with one metadata key and a content digest of our own.

safetensors loads a flipped data byte without complaint, and with two metadata keys its files differ from save to
save. So everything we say about the tensors is one canonical JSON document under one key, and it holds a digest of
all names, dtypes, shapes, values and of the document itself, recomputed at every load. Files are read by us and
decoded from memory; pickles are refused by their first bytes and never parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import canonical_json, digest_arrays, digest_value
from skidpad.artifacts.files import create, parse_json, replace
from skidpad.errors import CheckpointError, IntegrityError, listed

WEIGHTS_SCHEMA = "skidpad.weights/1"
KEY = "skidpad"
MAX_FILE_BYTES = 8 << 30
MAX_HEADER_BYTES = 16 << 20
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_DTYPES = _FLOATS | {"I64": "<i8", "I32": "<i4", "I16": "<i2", "U8": "|u1", "BOOL": "|b1"}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_PICKLES = {b"PK": "a zip archive, as torch.save writes it", b"\x80": "a pickle"}


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors by name, what the file says about them, and the digest of both.

    meta    plain JSON values: the kind of checkpoint, its architecture, its step
    digest  content digest; two files with equal content share it, whatever their names
    """

    arrays: Mapping[str, NDArray[Any]]
    meta: Mapping[str, Any]
    digest: str


def content_digest(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> str:
    """Digest of tensors and metadata, independent of how a file spells them."""
    return digest_value({"arrays": digest_arrays(arrays, "weights"), "meta": dict(meta)}, "checkpoint")


def encode_weights(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> tuple[bytes, str]:
    """The bytes of a checkpoint file and its content digest; equal input gives equal bytes.

    arrays  name -> array of any shape, dtype one of f32, f64, f16, i64, i32, i16, u8, bool
    meta    JSON values without NaN or infinity
    Raises TypeError for another dtype.
    """
    from safetensors.numpy import save

    for name, array in arrays.items():
        if np.dtype(array.dtype) not in _NAMES:
            raise TypeError(f"tensor {name!r}: dtype {array.dtype}, expected one of {', '.join(_DTYPES)}")
    digest = content_digest(arrays, meta)
    document = canonical_json({"schema": WEIGHTS_SCHEMA, "digest": digest, "meta": meta})
    ordered = {name: np.asarray(arrays[name], order="C") for name in sorted(arrays)}
    return save(ordered, metadata={KEY: document}), digest


def save_weights(
    path: Path, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, overwrite: bool = False
) -> str:
    """Write a checkpoint file and return its content digest. After any fault the file is absent, old, or new.

    Raises AlreadyThereError when the file exists and `overwrite` is False.
    """
    data, digest = encode_weights(arrays, meta)
    (replace if overwrite else create)(path, data)
    return digest


def load_weights(path: Path) -> Weights:
    """The content of a checkpoint file, nothing of it before its digest is checked.

    Raises CheckpointError when the file is not one of ours (absent, a pickle, another format or schema),
    IntegrityError when it was one and is damaged.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise CheckpointError(f"{path}: {size} bytes, expected at most {MAX_FILE_BYTES}.")
        with path.open("rb") as file:
            start = file.read(9)
            _refuse_foreign(start, path)
            data = start + file.read()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}), expected a checkpoint file.") from None
    return decode_weights(data, str(path))


def _refuse_foreign(start: bytes, path: Path | str) -> None:
    for magic, what in _PICKLES.items():
        # A header length whose lowest byte happens to be 0x80 is told from a pickle by the brace after it.
        if start.startswith(magic) and start[8:9] != b"{":
            raise CheckpointError(
                f"{path}: is {what}, which can run code when loaded; it was not read. Expected safetensors written by "
                "Skidpad."
            )
    if start[8:9] != b"{":
        raise CheckpointError(f"{path}: is not a safetensors file, expected a checkpoint written by Skidpad.")


def describe_weights(data: bytes, where: str) -> Mapping[str, Any]:
    """What a checkpoint's bytes say about themselves (`meta`), read from the header alone: no tensor is touched and
    the digest is not checked yet. Raises as `load_weights`."""
    _refuse_foreign(data[:9], where)
    meta: Mapping[str, Any] = _document(_header(data, where), where)["meta"]
    return meta


def decode_weights(data: bytes, where: str) -> Weights:
    """The content of a checkpoint's bytes. Raises as `load_weights`; `where` names the bytes in messages."""
    from safetensors import SafetensorError, deserialize

    document = _document(_header(data, where), where)
    try:
        parts = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise IntegrityError(f"{where}: damaged ({error}). Restore the file.") from None
    arrays = {}
    for name, part in parts:
        if part["dtype"] not in _DTYPES:
            raise CheckpointError(f"{where}: tensor {name!r} has dtype {part['dtype']}, expected {listed(_DTYPES, 9)}.")
        arrays[name] = np.frombuffer(bytes(part["data"]), _DTYPES[part["dtype"]]).reshape(part["shape"])
    found = content_digest(arrays, document["meta"])
    if found != document["digest"]:
        raise IntegrityError(
            f"{where}: the content has digest {found}, the file says {document['digest']}. Nothing was loaded; "
            "restore the file."
        )
    return Weights(arrays, document["meta"], found)


def _header(data: bytes, where: str) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise IntegrityError(
            f"{where}: header of {length} bytes in a file of {len(data)}. The file was cut or changed."
        )
    try:
        header = parse_json(data[8 : 8 + length])
    except ValueError as error:
        raise IntegrityError(f"{where}: damaged header ({error}). Restore the file.") from None
    if not isinstance(header, dict):
        raise IntegrityError(f"{where}: damaged header ({type(header).__name__}, expected an object).")
    return header


def _document(header: Mapping[str, Any], where: str) -> dict[str, Any]:
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or set(metadata) != {KEY}:
        keys = listed(metadata) if isinstance(metadata, dict) and metadata else "none"
        raise CheckpointError(
            f"{where}: metadata keys are {keys}, expected exactly {KEY!r}. The file was not written by Skidpad."
        )
    try:
        document = parse_json(metadata[KEY])
    except (ValueError, TypeError) as error:
        raise IntegrityError(f"{where}: damaged metadata ({error}). Restore the file.") from None
    if not isinstance(document, dict) or document.get("schema") != WEIGHTS_SCHEMA:
        schema = document.get("schema") if isinstance(document, dict) else None
        raise CheckpointError(f"{where}: schema {schema!r}, expected {WEIGHTS_SCHEMA!r}.")
    if set(document) != {"schema", "digest", "meta"} or not isinstance(document["meta"], dict):
        raise IntegrityError(f"{where}: damaged metadata (fields {listed(sorted(document))}). Restore the file.")
    return document

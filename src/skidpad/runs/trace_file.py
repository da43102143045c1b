"""Traces on disk: one container file (flag bit 1) per trace, named by case, arm and step in the run folder.

A file holds every array of `TRACE_ARRAYS` and the metadata; the scene is named by digest and not copied. The content
digest of the file is the trace's own, recomputed when a file is read, so what a record promised can be checked.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from skidpad.artifacts.container import FLAG_TRACE, encode, open_container
from skidpad.artifacts.digests import canonical_json
from skidpad.artifacts.files import create, parse_json, replace
from skidpad.errors import FormatError, IntegrityError
from skidpad.runs.trace import TRACE_ARRAYS, TRACE_SCHEMA, Trace, TraceMeta

ARRAY_NAMES = frozenset(spec.name for spec in TRACE_ARRAYS)
META_NAMES = frozenset(item.name for item in fields(TraceMeta))


def encode_trace(trace: Trace) -> bytes:
    """The bytes of a trace file; equal traces give equal bytes."""
    meta: dict[str, Any] = {**vars(trace.meta), "schema": TRACE_SCHEMA}
    # The container's table holds integers and text only; settings are numbers of all kinds, kept as one JSON text.
    meta["settings"] = canonical_json(trace.meta.settings)
    meta["observed"] = canonical_json(trace.meta.observed)
    meta["state_hash"] = list(trace.meta.state_hash)
    return encode(FLAG_TRACE, meta, trace.arrays, trace.digest)


def write_trace(trace: Trace, path: Path, *, overwrite: bool = False) -> None:
    """Write a trace file; after any fault it is absent, old, or new. Raises AlreadyThereError when it exists and
    `overwrite` is False."""
    (replace if overwrite else create)(path, encode_trace(trace))


def read_trace(source: Path | bytes) -> Trace:
    """The trace in a file, or in its bytes.

    Raises FormatError when it is not a trace file, IntegrityError when a checksum or the trace's digest does not hold.
    """
    container = open_container(source, flags=FLAG_TRACE, known=ARRAY_NAMES)
    name = "trace" if isinstance(source, bytes) else str(source)
    meta = dict(container.meta)
    schema = meta.pop("schema", None)
    if schema != TRACE_SCHEMA or set(meta) != META_NAMES:
        raise FormatError(f"{name}: schema {schema!r}, expected {TRACE_SCHEMA!r} with its {len(META_NAMES)} fields.")
    try:
        meta["settings"], meta["observed"] = parse_json(meta["settings"]), parse_json(meta["observed"])
        meta["state_hash"] = tuple(meta["state_hash"])
        trace = Trace(TraceMeta(**meta), container.arrays)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{name}: not a trace ({error}).") from None
    if trace.digest != container.content_digest:
        raise IntegrityError(f"{name}: holds trace {trace.digest}, says {container.content_digest}. Record it again.")
    return trace

"""Snapshot: worlds frozen as bytes, to go on in another process or at another place of a batch (S113).

A snapshot is a container (magic, version, checksums: `artifacts/container.py`) of every array of `slots.BATCH` that is
divided among worlds, agents, policy rows and the like, cut down to the worlds in question. The map is not in it, nor
the observations, which are a function of the state. What names a place in a batch is left out as well: places are the
receiver's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.container import FLAG_SNAPSHOT, encode, open_container
from skidpad.artifacts.digests import digest_arrays, digest_value
from skidpad.errors import ProtocolError
from skidpad.scenes.case import Case
from skidpad.simulation import state as at
from skidpad.simulation.slots import BATCH

Arrays = Mapping[str, NDArray[Any]]
Bounds = Mapping[str, NDArray[Any]]

SCHEMA = "skidpad.snapshot/1"
DIVIDED = {field.name: field for field in BATCH if field.along}
# Rows of blocks that name a place of the batch.
PLACES = {"i4": (at.GOAL_SLOT,), "world": (at.SLOT,)}


class Frozen(NamedTuple):
    """A snapshot that was read.

    cases    of its worlds, in their order
    told     what the caller said when it ended each, "" where it did not
    counts   name of a division -> (worlds,) how many agents, rows, ... each world has
    arrays   name -> array, the worlds one after the other along the divided axis
    """

    cases: tuple[Case, ...]
    told: tuple[str, ...]
    counts: Mapping[str, NDArray[np.int64]]
    arrays: Arrays


def tables_digest() -> str:
    """Identity of what the arrays mean: a snapshot of other state tables is no snapshot of ours."""
    tables = (at.FLOAT_STATE, at.INT_STATE, at.BYTE_STATE)
    return digest_value(
        {
            "state": [[field.name for field in table] for table in tables],
            "world": at.WORLD_ROWS,
            "batch": [[name, field.type, field.dims, field.along] for name, field in DIVIDED.items()],
        },
        "state tables",
    )


def freeze(
    worlds: Sequence[int], cases: Sequence[Case], told: Sequence[str], settings: str, arrays: Arrays, bounds: Bounds
) -> bytes:
    """The named worlds as bytes.

    worlds        numbers, in the order they shall have
    cases, told   of those worlds
    settings      digest of the settings they run under
    arrays        of the whole batch, by name
    bounds        name of a division -> (W + 1,) where each world's part of it begins
    """
    counts = {f"count.{name}": np.diff(edges)[list(worlds)].astype(np.int64) for name, edges in bounds.items()}
    parts = {
        name: np.concatenate([_part(arrays[name], field.axis, bounds[field.along], w) for w in worlds], axis=field.axis)
        for name, field in DIVIDED.items()
    }
    meta = {
        "schema": SCHEMA,
        "settings": settings,
        "tables": tables_digest(),
        "cases": [
            {
                "scene_digest": case.scene_digest,
                "scene_id": case.scene_id,
                "benchmark_seed": str(case.benchmark_seed),
                "replicate": case.replicate,
                "ego": case.ego,
            }
            for case in cases
        ],
        "told": list(told),
    }
    content = {name: np.ascontiguousarray(array) for name, array in (counts | parts).items()}
    return encode(FLAG_SNAPSHOT, meta, content, digest_arrays(content, "snapshot"))


def thaw(data: bytes, settings: str) -> Frozen:
    """Read a snapshot.

    Raises FormatError and IntegrityError for bytes that are no snapshot or were altered, ProtocolError for one of other
    settings or of another version of the state.
    """
    container = open_container(data, flags=FLAG_SNAPSHOT, verify="full", name="snapshot")
    meta = container.meta
    if meta.get("schema") != SCHEMA or meta.get("tables") != tables_digest():
        raise ProtocolError("this snapshot is of another version of the simulator: take it and restore it with one.")
    if meta.get("settings") != settings:
        raise ProtocolError("this snapshot is of other env settings: restore it into a simulator with its own.")
    cases = tuple(
        Case(
            case["scene_digest"],
            case["scene_id"],
            int(case["benchmark_seed"]),
            int(case["replicate"]),
            int(case["ego"]),
        )
        for case in meta["cases"]
    )
    counts = {
        name.removeprefix("count."): array for name, array in container.arrays.items() if name.startswith("count.")
    }
    arrays = {name: array for name, array in container.arrays.items() if not name.startswith("count.")}
    return Frozen(cases, tuple(meta["told"]), counts, arrays)


def check_fits(frozen: Frozen, number: int, world: int, bounds: Bounds) -> None:
    """Raises ProtocolError where world `number` of a snapshot and a world of the batch have not as many agents, rows,
    ... each."""
    for name, edges in bounds.items():
        here, there = int(edges[world + 1] - edges[world]), int(frozen.counts[name][number])
        if here != there:
            raise ProtocolError(
                f"world {world} has {here} {name}s, world {number} of the snapshot {there}: restore it into a world of "
                "the same case."
            )


def place(frozen: Frozen, number: int, world: int, arrays: Arrays, bounds: Bounds) -> None:
    """Write world `number` of a snapshot, which fits, over a world of the batch."""
    for name, field in DIVIDED.items():
        target = _part(arrays[name], field.axis, bounds[field.along], world)
        edges = np.concatenate([[0], np.cumsum(frozen.counts[field.along])])
        source = _part(frozen.arrays[name], field.axis, edges, number)
        kept = {row: target[row].copy() for row in PLACES.get(name, ())}
        target[...] = source
        for row, values in kept.items():
            target[row] = values


def _part(array: NDArray[Any], axis: int, edges: NDArray[Any], world: int) -> NDArray[Any]:
    """A world's part of an array: a view."""
    span = slice(int(edges[world]), int(edges[world + 1]))
    return array[(slice(None),) * axis + (span,)]

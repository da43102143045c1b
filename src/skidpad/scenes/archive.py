"""The `.scene` file: a Scene as a checksummed container, mapped read-only (R11 to R14).

The arrays are those of `SCENE_ARRAYS`; the meta table is `SceneMeta` in integers and text. The content digest of the
file is the scene's own digest. The archive's bytes depend on nothing but the scene.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from skidpad.artifacts import files
from skidpad.artifacts.container import FLAG_SCENE, encode, open_container, read_header
from skidpad.artifacts.digests import canonical_json
from skidpad.errors import FormatError, IntegrityError, listed
from skidpad.scenes.check import structural_findings
from skidpad.scenes.scene import SCENE_ARRAYS, LossEntry, Scene, SceneMeta

SUFFIX = ".scene"
_KNOWN = frozenset(spec.path for spec in SCENE_ARRAYS)
_map_digests: dict[bytes, str] = {}
"""Of the archives this process has read, by `Container.table`."""
_TEXT = ("scene_id", "dataset", "source_format", "source_version", "source_digest", "licence", "attribution")
_INTEGERS = ("dt_us", "steps", "current_step", "sdc")
_INDICES = ("tracks_to_predict", "objects_of_interest")
_KEYS = {*_TEXT, *_INTEGERS, *_INDICES, "origin", "has_z", "labels", "loss"}


class SceneHeader(NamedTuple):
    """A scene without its arrays."""

    meta: SceneMeta
    digest: str


def scene_bytes(scene: Scene) -> bytes:
    """The archive of a scene. Raises FormatError for one whose labels or loss report are above 4 MiB."""
    return encode(FLAG_SCENE, meta_to_table(scene.meta), scene.arrays(), scene.digest)


def save_scene(scene: Scene, path: Path, *, overwrite: bool = False) -> None:
    """Write a scene's archive; after any fault the file is absent, old, or new.

    Raises AlreadyThereError when the file exists, unless `overwrite`.
    """
    (files.replace if overwrite else files.create)(path, scene_bytes(scene))


def load_scene(
    source: Path | bytes, *, verify: Literal["lazy", "full"] = "lazy", name: str = "", hold: bool = False
) -> Scene:
    """Map a scene's archive.

    verify  as in `open_container`; "full" also computes the scene's digest and compares it
    hold    as in `open_container`

    Raises FormatError for a file that is no scene archive, is cut, or whose arrays do not fit together;
    IntegrityError where a checksum or the digest does not hold.
    """
    name = name or ("<bytes>" if isinstance(source, bytes) else str(source))
    container = open_container(source, flags=FLAG_SCENE, verify=verify, known=_KNOWN, name=name, hold=hold)
    meta = table_to_meta(container.meta, name)
    try:
        scene = Scene.from_arrays(container.arrays, meta)
    except TypeError as error:
        raise FormatError(f"{name}: {error}. Convert it from its source again.") from None
    if findings := structural_findings(scene):
        raise FormatError(f"{name}: its arrays do not fit together: {listed([item.message for item in findings])}.")
    if verify == "full" and scene.digest != container.content_digest:
        raise IntegrityError(
            f"{name}: the scene's digest is {scene.digest}, the file says {container.content_digest}. "
            "The file was altered; convert it from its source again."
        )
    # Hashing the road takes longer than all the rest of opening a known file.
    known = _map_digests.get(container.table)
    if known is None:
        _map_digests[container.table] = scene.map_digest
    else:
        scene.__dict__["map_digest"] = known
    return scene


def scene_header(path: Path) -> SceneHeader:
    """Meta and digest of an archive, from its checked header and table, without touching the arrays.

    Raises as `load_scene`.
    """
    table, digest = read_header(path, flags=FLAG_SCENE)
    return SceneHeader(table_to_meta(table, str(path)), digest)


def meta_to_table(meta: SceneMeta) -> dict[str, Any]:
    """SceneMeta in integers and text. Real numbers become text that round-trips, labels become JSON text."""
    table: dict[str, Any] = {key: getattr(meta, key) for key in (*_TEXT, *_INTEGERS)}
    table |= {key: list(getattr(meta, key)) for key in _INDICES}
    table["origin"] = [repr(float(value)) for value in meta.origin]
    table["has_z"] = int(meta.has_z)
    table["labels"] = canonical_json(meta.labels)
    table["loss"] = {kind: [entry.count, list(entry.examples)] for kind, entry in meta.loss.items()}
    return table


def table_to_meta(table: Mapping[str, Any], name: str) -> SceneMeta:
    """The inverse of `meta_to_table`. Raises FormatError naming the file and the key that is not as it should be."""
    if set(table) != _KEYS:
        raise FormatError(f"{name}: the meta table differs in the keys {listed(sorted(set(table) ^ _KEYS))}.")
    values: dict[str, Any] = {}
    for key in _KEYS:
        try:
            values[key] = _value(key, table[key])
        except (TypeError, ValueError, KeyError, AttributeError):
            raise FormatError(f"{name}: {key!r} in the meta table is {str(table[key])[:80]!r}.") from None
    return SceneMeta(**values)


def _value(key: str, value: Any) -> Any:
    if key == "origin":
        x, y, z = (_real(text) for text in value)
        return x, y, z
    if key == "labels":
        labels = files.parse_json(value)
        return labels if isinstance(labels, dict) else _refuse()
    if key == "loss":
        return {kind: LossEntry(_integer(n), tuple(map(_text, texts))) for kind, (n, texts) in value.items()}
    if key in _INDICES:
        return tuple(_integer(item) for item in value)
    if key == "has_z":
        return (False, True)[_integer(value)] if value in (0, 1) else _refuse()
    return _text(value) if key in _TEXT else _integer(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse()


def _integer(value: Any) -> int:
    return value if type(value) is int else _refuse()


def _real(value: Any) -> float:
    # float() also takes "1_0", " 1" and "inf": only the spelling that we write is taken.
    number = float(_text(value))
    return number if math.isfinite(number) and repr(number) == value else _refuse()


def _refuse() -> Any:
    raise TypeError

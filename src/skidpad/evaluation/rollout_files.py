"""Files of rollouts and of the cases they continue: `skidpad.rollouts/1`, as npz or as JSON.

Both carry the arrays of `rollouts.py` under the same names. In an npz the names are keys with a dot (`log.x`), in JSON
they are nested (`{"log": {"x": [...]}}`), beside the texts `schema` and `scenario_id`. `rollouts` is absent in a case
file, `edges` where the source has no road edges, `lights` where it cannot carry lights; a map without lights has
`lights` with an empty `signal_lane`. docs/formats.md lists every array.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.files import create, parse_json
from skidpad.errors import FormatError, SkidpadError, listed, nearest
from skidpad.evaluation.rollouts import RolloutCase, Rollouts, make_edges, make_lights, make_log, make_rollouts
from skidpad.scenes.formats.source import Limits, Source, read_source

ROLLOUTS_SCHEMA = "skidpad.rollouts/1"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "rollouts": ("object_id", "x", "y", "z", "heading"),
    "log": (
        "object_id", "object_type", "length", "width", "height", "x", "y", "z", "heading", "valid", "scored",
        "current_step", "dt_us",
    ),
    "edges": ("points", "offset"),
    "lights": ("lane_points", "lane_offset", "lane_street", "signal_lane", "stop_point", "stop"),
}  # fmt: skip
OPTIONAL = frozenset({"current_step", "dt_us"})
TEXTS = ("schema", "scenario_id")
ZIP_MAGIC = b"PK\x03\x04"

Groups = dict[str, dict[str, Any]]


def read_rollouts(
    path: Path | str | bytes, *, limits: Limits | None = None, name: str = ""
) -> tuple[RolloutCase, Rollouts]:
    """A case and its rollouts from one file. Raises FormatError as `read_case`, and for a file without rollouts."""
    case, rollouts, where = _read(path, limits or Limits(), name)
    if rollouts is None:
        raise FormatError(f"{where}: a case without rollouts, expected the arrays rollouts.x and so on.")
    return case, rollouts


def read_case(path: Path | str | bytes, *, limits: Limits | None = None, name: str = "") -> RolloutCase:
    """A case from a file with or without rollouts.

    Raises FormatError, naming the file and the array, for a file that is neither npz nor JSON, has another schema,
    lacks an array or has one too many, is above the limits, or holds arrays that do not fit each other.
    """
    return _read(path, limits or Limits(), name)[0]


def write_rollouts(path: Path, case: RolloutCase, rollouts: Rollouts | None = None) -> None:
    """Write a case, with its rollouts where they are given, as npz. Raises AlreadyThereError for an existing file."""
    arrays: dict[str, Any] = {"schema": np.array(ROLLOUTS_SCHEMA), "scenario_id": np.array(case.scenario_id)}
    for group, made in (("rollouts", rollouts), ("log", case.log), ("edges", case.edges), ("lights", case.lights)):
        if made is not None:
            arrays |= {f"{group}.{name}": np.asarray(getattr(made, name)) for name in GROUPS[group]}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    create(path, buffer.getvalue())


def _read(path: Path | str | bytes, limits: Limits, name: str) -> tuple[RolloutCase, Rollouts | None, str]:
    source = read_source(path, limits, name=name)
    groups = _npz(source, limits) if source.data.startswith(ZIP_MAGIC) else _json(source)
    texts = groups.pop("")
    if texts.get("schema") != ROLLOUTS_SCHEMA:
        raise FormatError(f"{source.name}: schema {texts.get('schema')!r}, expected {ROLLOUTS_SCHEMA!r}.")
    _check_names(source.name, groups)
    try:
        case = RolloutCase(
            str(texts.get("scenario_id", source.stem)),
            make_log(**groups["log"]),
            make_edges(**groups["edges"]) if "edges" in groups else None,
            make_lights(**groups["lights"]) if "lights" in groups else None,
        )
        rollouts = make_rollouts(**groups["rollouts"]) if "rollouts" in groups else None
    except SkidpadError as error:
        raise FormatError(f"{source.name}: {error}") from None
    return case, rollouts, source.name


def _check_names(where: str, groups: Groups) -> None:
    if "log" not in groups:
        raise FormatError(f"{where}: no log in it, expected the arrays log.x, log.valid and so on.")
    for group, arrays in groups.items():
        if group not in GROUPS:
            raise FormatError(f"{where}: unknown group {group!r}{nearest(group, GROUPS)}, expected {listed(GROUPS)}.")
        known = GROUPS[group]
        unknown = sorted(f"{group}.{name}" for name in arrays.keys() - set(known))
        if unknown:
            names = [f"{group}.{name}" for group, names in GROUPS.items() for name in names]
            raise FormatError(f"{where}: unknown array {listed(unknown)}{nearest(unknown[0], names)}.")
        missing = [f"{group}.{name}" for name in known if name not in arrays and name not in OPTIONAL]
        if missing:
            raise FormatError(f"{where}: missing array {listed(missing)}.")


def _json(source: Source) -> Groups:
    try:
        tree = parse_json(source.data)
    except ValueError as error:
        raise FormatError(f"{source.name}: neither npz nor JSON ({error}).") from None
    if not isinstance(tree, dict):
        raise FormatError(f"{source.name}: a JSON {type(tree).__name__}, expected an object.")
    groups: Groups = {"": {name: tree.pop(name) for name in TEXTS if name in tree}}
    for group, arrays in tree.items():
        if arrays is None and group in ("rollouts", "edges", "lights"):
            continue
        if not isinstance(arrays, dict):
            raise FormatError(f"{source.name}: {group!r} is no object of arrays.")
        groups[group] = arrays
    return groups


def _npz(source: Source, limits: Limits) -> Groups:
    groups: Groups = {"": {}}
    try:
        with zipfile.ZipFile(io.BytesIO(source.data)) as archive:
            total = sum(member.file_size for member in archive.infolist())
            limits.check("decompressed_bytes", total, source.name)
            for member in archive.infolist():
                key = member.filename.removesuffix(".npy")
                group, _, name = key.rpartition(".")
                if name in groups.setdefault(group, {}):
                    raise FormatError(f"{source.name}: array {key} occurs twice.")
                array = _npy(archive.read(member), f"{source.name}: array {key}")
                groups[group][name] = str(array) if not group else (array.item() if name in OPTIONAL else array)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, SkidpadError):
            raise
        raise FormatError(f"{source.name}: not a whole npz file ({error}).") from None
    return groups


def _npy(data: bytes, where: str) -> NDArray[Any]:
    """An array whose header claims exactly the bytes that are there."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise FormatError(f"{where}: version {version} of the npy format, expected 1.0 or 2.0.")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(stream)
    count = int(np.prod(shape, dtype=object))
    if dtype.hasobject or dtype.kind not in "biufU" or count < 0 or count * dtype.itemsize != len(data) - stream.tell():
        raise FormatError(f"{where}: {shape} of {dtype} does not fit its {len(data)} bytes, or is no plain array.")
    flat = np.frombuffer(data, dtype=dtype, offset=stream.tell(), count=count)
    return flat.reshape(shape, order="F" if fortran else "C")

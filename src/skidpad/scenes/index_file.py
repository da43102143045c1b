"""A MapIndex and its file: the nested tuples of arrays, written as they are, so that fields may come and go.

The file is a container whose meta table draws the tree: which tuple holds which fields, numbers as text that
round-trips, arrays by their path in the tree. Opening one maps its arrays read-only; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from skidpad.artifacts.container import FLAG_INDEX, encode, open_container
from skidpad.artifacts.digests import digest_sources, digest_value
from skidpad.errors import FormatError
from skidpad.scenes import index as indexing
from skidpad.scenes.index import IndexParams, MapIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIX = ".index"
# Everything whose text decides the bytes of an index, or how they are read.
INDEX_SOURCES = (
    "artifacts/compile.py",
    "artifacts/container.py",
    "artifacts/dispatch.py",
    "scenes/index*.py",
    "scenes/scene.py",
)
_PACKAGE = Path(__file__).resolve().parents[1]
_KEY_FIELDS = ("map_digest", "params")  # whoever opens a file knows these; they are compared, not rebuilt


@cache
def index_version() -> str:
    """Version of the index format: the digest of the code that makes it."""
    return digest_sources(_PACKAGE, INDEX_SOURCES)


def index_key(map_digest: str, params: IndexParams) -> str:
    """Name of an index by everything that its bytes depend on (S23); 64 hexadecimal digits. The byte order of the file
    is fixed, and dtypes are the code's."""
    return digest_value({"map": map_digest, "params": params.digest, "version": index_version()}, "index key")


def index_bytes(index: MapIndex) -> bytes:
    """The file of an index; equal indexes give equal bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = {name: _written(value, name, arrays) for name, value in vars(index).items() if name in _fields(MapIndex)}
    return encode(FLAG_INDEX, {"tree": tree}, arrays, index_key(index.map_digest, index.params))


def open_index(
    path: Path, map_digest: str, params: IndexParams, *, verify: Literal["lazy", "full"] = "lazy"
) -> MapIndex:
    """Map the file of an index, holding it (`open_container`).

    Raises FormatError or IntegrityError for a file that is not that of this map and these parameters, made by this
    code, or is not as it was written.
    """
    container = open_container(path, flags=FLAG_INDEX, verify=verify, hold=True)
    if container.content_digest != index_key(map_digest, params):
        raise FormatError(f"{path}: holds another index than its name says. Remove it; it is built again.")
    try:
        tree = container.meta["tree"]
        parts = {name: _read(tree[name], name, container.arrays) for name in _fields(MapIndex)}
        return MapIndex(map_digest=map_digest, params=params, **parts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: its parts do not make an index ({error}). Remove it; it is built again.") from None


def _fields(kind: type) -> list[str]:
    return [name for name in kind.__dataclass_fields__ if name not in _KEY_FIELDS]  # type: ignore[attr-defined]


def _written(value: Any, where: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """A node of the tree: {tuple's name: its fields}, a list, an array's path, or a number or text."""
    if isinstance(value, np.ndarray):
        arrays[where] = value
        return {"array": where}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        return {type(value).__name__: {name: _written(part, f"{where}.{name}", arrays) for name, part in fields}}
    if isinstance(value, tuple):
        return [_written(part, f"{where}.{number}", arrays) for number, part in enumerate(value)]
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, bool | int | float):
        return f"{type(value).__name__[0]}{float(value).hex() if isinstance(value, float) else int(value)}"
    raise TypeError(f"{where}: {type(value).__name__} has no place in the file of an index")


def _read(node: Any, where: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of `_written`."""
    if isinstance(node, list):
        return tuple(_read(part, f"{where}.{number}", arrays) for number, part in enumerate(node))
    if isinstance(node, str):
        text = node[1:]
        return {"s": str, "b": lambda t: bool(int(t)), "i": int, "f": float.fromhex}[node[0]](text)  # type: ignore[operator]
    ((kind, body),) = node.items()
    if kind == "array":
        return arrays[body]
    fields = {name: _read(part, f"{where}.{name}", arrays) for name, part in body.items()}
    return getattr(indexing, kind)(**fields)

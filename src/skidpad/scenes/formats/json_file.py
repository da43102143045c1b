"""JSON as scene files use it: bounded before it is parsed, strict about numbers, and every key accounted for.

Depth, length of strings and number of values are counted in the bytes (R3), because Python's parser would build it all
first. NaN, infinity, doubled keys and integers beyond 64 bits are refused (R4). Values are asked for by what they must
be; anything else is a FormatError with its place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.files import parse_json
from skidpad.errors import FormatError
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.loss import LossReport

F64 = NDArray[np.float64]
Kind = TypeVar("Kind")

_BLOCK = 1 << 22
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _OPEN, _CLOSE, _COMMA = ord('"'), (ord("["), ord("{")), (ord("]"), ord("}")), ord(",")
_NAMES = {dict: "an object", list: "an array", str: "a text", bool: "true or false", int: "an integer"}


def load_json(source: Source, limits: Limits) -> dict[str, Any]:
    """The object that a file holds. Raises FormatError for anything that is not strict JSON, or above a limit."""
    _bound(source, limits)
    try:
        value = parse_json(source.data, parse_int=_integer)
    except ValueError as error:
        raise FormatError(f"{source.name}: not a JSON file: {error}.") from None
    return expect(value, dict, source.name)


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else None
    if value is None or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"integer {text[:30]} does not fit into 64 bits")
    return value


def _bound(source: Source, limits: Limits) -> None:
    """Check depth, strings and values in the raw bytes, a block at a time."""
    data = source.data
    if b"\\" in data:
        data = _ESCAPE.sub(b"__", data)  # of the same length, so that offsets stay
    quotes = depth = values = 0
    opened = -1
    for start in range(0, len(data), _BLOCK):
        block = np.frombuffer(data, np.uint8, min(_BLOCK, len(data) - start), start)
        is_quote = block == _QUOTE
        outside = ((np.cumsum(is_quote) + quotes) & 1) == 0
        places = np.flatnonzero(is_quote) + start
        ends = places if quotes % 2 == 0 else np.concatenate([[opened], places])
        pairs = ends[: len(ends) // 2 * 2].reshape(-1, 2)
        longest = int(np.diff(pairs, axis=1).max(initial=0))
        quotes += len(places)
        opened = int(ends[-1]) if quotes % 2 else -1
        if opened >= 0:
            longest = max(longest, start + len(block) - opened)
        limits.check("json_string_bytes", longest, f"{source.name}, byte {start} and on")
        opens, closes = np.isin(block, _OPEN) & outside, np.isin(block, _CLOSE) & outside
        nesting = depth + np.cumsum(opens.astype(np.int32) - closes)
        limits.check("json_depth", int(nesting.max(initial=0)), f"{source.name}, byte {start} and on")
        depth = int(nesting[-1])
        values += int(opens.sum()) + int(((block == _COMMA) & outside).sum())
        limits.check("json_values", values, source.name)


# Values


def expect(value: Any, kind: type[Kind], where: str) -> Kind:
    """A value that must be of one kind. Raises FormatError where it is of another."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"{where}: {_shown(value)}, expected {_NAMES[kind]}.")
    return value


def required(holder: Mapping[str, Any], key: str, kind: type[Kind], where: str) -> Kind:
    """A member that must be there and of one kind."""
    if key not in holder:
        raise FormatError(f"{where}: {key!r} is missing, expected {_NAMES[kind]}.")
    return expect(holder[key], kind, f"{where}.{key}")


def number(value: Any, where: str) -> float:
    """A number that must be one; it may be infinite, as 1e999 is."""
    if type(value) not in (int, float):
        raise FormatError(f"{where}: {_shown(value)}, expected a number.")
    return float(value)


def numbers(value: Any, where: str) -> F64:
    """(n,) f64: an array of numbers."""
    items = expect(value, list, where)
    if not {int, float}.issuperset(map(type, items)):
        for index, item in enumerate(items):
            number(item, f"{where}[{index}]")
    return np.array(items, np.float64)


def points(value: Any, where: str, loss: LossReport) -> tuple[F64, bool]:
    """Places (n, 3) f64 [m], and whether heights are given: an array of {x, y, z}, or columns {x: [], y: [], z: []}.

    Without heights they are 0.
    """
    if isinstance(value, dict):
        count_keys(loss, where, value, ("x", "y", "z"))
        columns = [numbers(required(value, axis, list, where), f"{where}.{axis}") for axis in ("x", "y")]
        has_z = "z" in value
        columns.append(numbers(value["z"], f"{where}.z") if has_z else np.zeros(len(columns[0])))
        if len({len(column) for column in columns}) != 1:
            raise FormatError(f"{where}: columns of {[len(column) for column in columns]} entries, expected the same.")
        return np.stack(columns, axis=1), has_z
    items = expect(value, list, where)
    has_z = bool(items) and isinstance(items[0], dict) and "z" in items[0]
    try:
        rows = [(item["x"], item["y"], item.get("z", 0.0)) for item in items]
        flat = [part for row in rows for part in row]
    except (TypeError, KeyError, AttributeError, IndexError):
        flat = None
    if flat is None or not {int, float}.issuperset(map(type, flat)):
        for index, item in enumerate(items):
            place(item, f"{where}[{index}]")
        raise FormatError(f"{where}: places that are not all {{x, y, z}} of numbers.")
    if any(len(item) > 2 + has_z for item in items):
        for index, item in enumerate(items):
            count_keys(loss, f"{where}[{index}]", item, ("x", "y", "z"))
    return np.array(flat, np.float64).reshape(-1, 3), has_z


def place(value: Any, where: str) -> F64:
    """One place {x, y, z} as (3,) f64 [m]; the height is 0 where left out."""
    item = expect(value, dict, where)
    for axis in ("x", "y"):
        if axis not in item:
            raise FormatError(f"{where}: {axis!r} is missing, expected a number.")
    return np.array([number(item.get(axis, 0.0), f"{where}.{axis}") for axis in ("x", "y", "z")])


def flags(value: Any, where: str) -> NDArray[np.bool_]:
    """(n,) bool: an array of true and false, or of 1 and 0."""
    items = expect(value, list, where)
    for index, item in enumerate(items):
        if type(item) not in (bool, int) or item not in (0, 1):
            raise FormatError(f"{where}[{index}]: {_shown(item)}, expected true, false, 1 or 0.")
    return np.array(items, np.bool_)


def count_keys(
    loss: LossReport, where: str, holder: Mapping[str, Any], used: Collection[str], ignored: Collection[str] = ()
) -> None:
    """Count the keys of an object that nobody reads: `ignored_` where they are known, else `unknown_key`."""
    for key in holder:
        if key in ignored:
            loss.count(f"ignored_{key}", where)
        elif key not in used:
            loss.count("unknown_key", f"{where}: {key[:80]!r}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

"""What a reader asks of the values of a pickle (`pickle_data.py`): each for what it must be, else FormatError with its
place."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.formats.pickle_data import PickledArray


def described(value: Any) -> str:
    """A value in a few words: containers by what they are, because they may hold themselves."""
    if isinstance(value, PickledArray):
        return f"an array of shape {value.values.shape}"
    if value is None or type(value) in (bool, int, float, str):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    return f"a {type(value).__name__}"


def record(value: Any, where: str) -> dict[str, Any]:
    """A dictionary of members with names. Raises FormatError for anything else."""
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise FormatError(f"{where}: {described(value)}, expected a dictionary of named members.")
    return value


def by_id(value: Any, where: str) -> dict[str, Any]:
    """A dictionary of things by their ids, which become texts. Raises FormatError for anything else."""
    if type(value) is not dict:
        raise FormatError(f"{where}: {described(value)}, expected a dictionary by id.")
    found = {str(key): item for key, item in value.items()}
    if len(found) != len(value):
        raise FormatError(f"{where}: has an id both as a text and as a number, expected it once.")
    return found


def items(value: Any, where: str) -> list[Any]:
    """The entries of a list, a tuple or an array of one axis. Raises FormatError for anything else."""
    if type(value) is PickledArray and value.values.ndim == 1:
        try:
            listed: list[Any] = value.values.tolist()
        except ValueError:
            raise FormatError(f"{where}: a text of characters that are none. Copy the file again.") from None
        return listed
    if type(value) not in (list, tuple):
        raise FormatError(f"{where}: {described(value)}, expected a list.")
    return list(value)


def number(value: Any, where: str) -> float:
    """A number; a list or an array of one holds one."""
    if type(value) in (list, tuple) and len(value) == 1:
        value = value[0]
    if type(value) is PickledArray and value.values.size == 1 and value.values.dtype.kind in "iuf":
        return float(value.values.reshape(-1)[0])
    if type(value) not in (int, float):
        raise FormatError(f"{where}: {described(value)}, expected a number.")
    return float(value)


def integer(value: Any, where: str) -> int:
    """A whole number; some files write them as texts."""
    if type(value) is str and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    if type(value) is not int:
        raise FormatError(f"{where}: {described(value)}, expected an integer.")
    return value


def text(value: Any, where: str) -> str:
    """A text; ids are integers in some files."""
    if type(value) not in (str, int):
        raise FormatError(f"{where}: {described(value)}, expected a text.")
    return str(value)


def numbers(value: Any, where: str) -> NDArray[np.float64]:
    """(n,) f64: a list, or an array of shape (n,) or (n, 1)."""
    if type(value) is PickledArray:
        table = value.values
        if table.dtype.kind not in "iuf" or not (table.ndim == 1 or (table.ndim == 2 and table.shape[1] == 1)):
            raise FormatError(f"{where}: {described(value)} of {table.dtype}, expected numbers of shape (n,).")
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return table.reshape(-1).astype(np.float64)
    entries = items(value, where)
    if not {int, float, bool}.issuperset(map(type, entries)):
        entries = [number(entry, f"{where}[{index}]") for index, entry in enumerate(entries)]
    return np.array(entries, np.float64)


def table(value: Any, where: str, widths: tuple[int, ...]) -> NDArray[np.float64]:
    """(n, w) f64, w one of `widths`: an array, or a list of rows; without rows (0, w)."""
    found: NDArray[np.float64]
    if type(value) is PickledArray:
        if value.values.dtype.kind not in "iuf":
            raise FormatError(f"{where}: an array of {value.values.dtype}, expected numbers.")
        with np.errstate(invalid="ignore"):
            found = value.values.astype(np.float64)
    else:
        rows = [numbers(row, f"{where}[{index}]") for index, row in enumerate(items(value, where))]
        if len({len(row) for row in rows}) > 1:
            raise FormatError(f"{where}: rows of different lengths, expected the same.")
        found = np.array(rows, np.float64).reshape(len(rows), -1) if rows else np.zeros((0, widths[0]))
    if found.ndim != 2 or found.shape[1] not in widths:
        expected = " or ".join(f"(n, {width})" for width in widths)
        raise FormatError(f"{where}: shape {found.shape}, expected {expected}.")
    return found

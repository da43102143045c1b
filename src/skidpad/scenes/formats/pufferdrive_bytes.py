"""Walking over a file without magic: every number is asked for with the range in which it makes sense (R20)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.formats.source import Limits

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class MisfitError(FormatError):
    """The bytes are not of the layout that is tried."""


class Cursor:
    """Reads little-endian int32 and float32 in turn.

    data    the file, or its beginning
    whole   False where `data` is only the beginning: counts are not compared with what is left
    limits  bounds
    """

    def __init__(self, data: bytes, limits: Limits, *, whole: bool = True) -> None:
        self._data, self._whole = data, whole
        self.limits = limits
        self.at = 0

    @property
    def rest(self) -> int:
        """Bytes that are left."""
        return len(self._data) - self.at

    def take(self, size: int, what: str) -> bytes:
        """The next bytes. Raises MisfitError where there are fewer."""
        if size > self.rest:
            raise MisfitError(f"byte {self.at}: {what} needs {size} bytes, {self.rest} are left")
        self.at += size
        return self._data[self.at - size : self.at]

    def integer(self, low: int, high: int, what: str) -> int:
        """One integer within a range. Raises MisfitError for any other."""
        value = int(np.frombuffer(self.take(4, what), "<i4")[0])
        if not low <= value <= high:
            raise MisfitError(f"byte {self.at - 4}: {what} is {value}, expected {low} to {high}")
        return value

    def count(self, limit: int, item_bytes: int, what: str, low: int = 0) -> int:
        """A number of things of at least `item_bytes` each, which must fit into what is left."""
        value = self.integer(low, limit, what)
        if self._whole and value * item_bytes > self.rest:
            raise MisfitError(
                f"byte {self.at - 4}: {what} is {value}, of {item_bytes} bytes at least; {self.rest} are left"
            )
        return value

    def integers(self, count: int, low: int, high: int, what: str) -> I64:
        """(count,) i64, each within a range."""
        values = np.frombuffer(self.take(4 * count, what), "<i4").astype(np.int64)
        bad = np.flatnonzero((values < low) | (values > high))
        if len(bad):
            place = self.at - 4 * (count - int(bad[0]))
            raise MisfitError(f"byte {place}: {what} is {values[bad[0]]}, expected {low} to {high}")
        return values

    def numbers(self, count: int, what: str, *, finite: bool = True) -> F64:
        """(count,) f64 of as many float32, all finite and of a possible size unless said otherwise."""
        with np.errstate(invalid="ignore"):  # a signalling NaN is a number that is none, like the others
            values = np.frombuffer(self.take(4 * count, what), "<f4").astype(np.float64)
        if finite:
            bad = np.flatnonzero(~(np.abs(values) <= self.limits.coordinate_m))
            if len(bad):
                place = self.at - 4 * (count - int(bad[0]))
                raise MisfitError(f"byte {place}: {what} is {values[bad[0]]:g}, expected a finite number")
        return values

    def columns(self, names: tuple[str, ...], rows: int, what: str) -> dict[str, F64]:
        """A table stored column by column: name -> (rows,) f64."""
        return {name: self.numbers(rows, f"{what}, {name}") for name in names}

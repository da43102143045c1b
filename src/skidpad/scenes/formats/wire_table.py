"""Many small protocol-buffer messages at once, as columns (R18): a million fields one by one would take seconds.

Messages of one kind mostly have one shape: the same fields in the same order and of the same size. Those of one shape
are decoded together; a message of another shape is decoded with its like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.wire import FIXED32, FIXED64, LENGTH, VARINT, Field, fields
from skidpad.errors import FormatError

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

DOUBLE, FLOAT, INTEGER, MESSAGE = "double", "float", "integer", "message"
_WIRE = {DOUBLE: FIXED64, FLOAT: FIXED32, INTEGER: VARINT, MESSAGE: LENGTH}
_LOOK_AHEAD = 512
# Bytes compared while sorting messages by shape: a hostile record of a million shapes would take hours.
_MOST_COMPARED = 1 << 30


class Spans(NamedTuple):
    """Where messages lie in a record.

    start, size  (n,)  i64 [bytes]
    """

    start: I64
    size: I64


class Column(NamedTuple):
    """One field of n messages.

    value    (n,)  f64, or i64 of integers; of messages their start in the record
    size     (n,)  i64  bytes of messages, else 0
    present  (n,)  bool  where it is written; elsewhere `value` is 0
    """

    value: NDArray[Any]
    size: I64
    present: NDArray[np.bool_]


def split(record: U8, start: int, size: int, repeated: int) -> tuple[Spans, list[Field]]:
    """The messages of field `repeated` in a message, and its other fields, both in the order of the bytes.

    Offsets of fields are those in the record. Raises FormatError as `fields` does.
    """
    data = memoryview(record.data)
    at, end = start, start + size
    tag = repeated << 3 | LENGTH
    starts, sizes, others = [], [], []
    while at < end:
        first, length = int(record[at]), int(record[at + 1]) if at + 1 < end else 255
        stride = length + 2
        if first == tag < 0x80 and length < 0x80 and at + stride <= end:
            many = min((end - at) // stride, _LOOK_AHEAD)
            rows = record[at : at + many * stride].reshape(many, stride)[:, :2]
            alike = np.logical_and.accumulate((rows[:, 0] == first) & (rows[:, 1] == length))
            count = int(alike.sum())
            starts.append(at + 2 + stride * np.arange(count, dtype=np.int64))
            sizes.append(np.full(count, length, np.int64))
            at += count * stride
            continue
        field = next(fields(data[at:end], at))
        length = 0 if isinstance(field.value, int) else len(field.value)
        following = _end_of(field, record, at)
        if field.number == repeated and field.kind == LENGTH:
            starts.append(np.array([following - length], np.int64))
            sizes.append(np.array([length], np.int64))
        else:
            others.append(field)
        at = following
    if not starts:
        return Spans(np.zeros(0, np.int64), np.zeros(0, np.int64)), others
    return Spans(np.concatenate(starts), np.concatenate(sizes)), others


def _end_of(field: Field, record: U8, at: int) -> int:
    """Offset behind a field that begins at `at`."""
    at = _behind_varint(record, at)
    if isinstance(field.value, int):
        return _behind_varint(record, at)
    if field.kind == LENGTH:
        at = _behind_varint(record, at)
    return at + len(field.value)


def head_bytes(record: U8, at: int) -> int:
    """Bytes of the tag and the length of the LENGTH field that begins at `at`: its message follows them."""
    return _behind_varint(record, _behind_varint(record, at)) - at


def _behind_varint(record: U8, at: int) -> int:
    while record[at] >= 0x80:
        at += 1
    return at + 1


def columns(record: U8, spans: Spans, wanted: Mapping[int, str]) -> tuple[dict[int, Column], dict[int, int]]:
    """The wanted fields (number -> kind) of messages, and how often each other field occurs. The last value wins.

    Raises FormatError where a message is cut, holds a group, a wanted field is of another kind, or hardly any two have
    the same shape.
    """
    count = len(spans.start)
    found = {
        number: Column(
            np.zeros(count, np.int64 if kind in (INTEGER, MESSAGE) else np.float64),
            np.zeros(count, np.int64),
            np.zeros(count, np.bool_),
        )
        for number, kind in wanted.items()
    }
    unknown: dict[int, int] = {}
    compared = 0
    for size in np.unique(spans.size).tolist():
        left = np.flatnonzero(spans.size == size)
        while len(left) and size:
            compared += size * len(left)
            if compared > _MOST_COMPARED:
                raise FormatError(f"byte {spans.start[left[0]]}: messages of too many shapes. Write the file again.")
            rows = np.lib.stride_tricks.sliding_window_view(record, size)[spans.start[left]]
            shape, alike = _shape(record, int(spans.start[left[0]]), size, rows)
            for field, (begin, stop) in shape:
                if field.number not in wanted:
                    unknown[field.number] = unknown.get(field.number, 0) + int(alike.sum())
                    continue
                if field.kind != _WIRE[wanted[field.number]]:
                    raise FormatError(f"byte {field.offset}: field {field.number} is no {wanted[field.number]}.")
                column, where = found[field.number], left[alike]
                column.present[where] = True
                if field.kind == LENGTH:
                    column.value[where] = spans.start[where] + begin
                    column.size[where] = stop - begin
                else:
                    column.value[where] = _decoded(rows[alike][:, begin:stop], field.kind)
            left = left[~alike]
    return found, unknown


def _shape(
    record: U8, start: int, size: int, rows: U8
) -> tuple[list[tuple[Field, tuple[int, int]]], NDArray[np.bool_]]:
    """The fields of the first message with where their values lie in it, and which messages (n,) have that shape."""
    shape, fixed = [], np.zeros(size, np.bool_)
    varint = np.zeros(size, np.bool_)
    at = start
    for field in fields(memoryview(record.data)[start : start + size], start):
        stop = _end_of(field, record, at)
        begin = _behind_varint(record, at) if isinstance(field.value, int) else stop - len(field.value)
        fixed[at - start : begin - start] = True
        if isinstance(field.value, int):
            varint[begin - start : stop - start] = True
        shape.append((field, (begin - start, stop - start)))
        at = stop
    alike: NDArray[np.bool_] = np.all(rows[:, fixed] == rows[0, fixed], axis=1)
    alike &= np.all((rows[:, varint] >= 0x80) == (rows[0, varint] >= 0x80), axis=1)
    return shape, alike


def _decoded(values: U8, kind: int) -> NDArray[Any]:
    if kind == VARINT:
        total = np.zeros(len(values), np.uint64)
        for place in range(values.shape[1]):
            total |= (values[:, place] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
        return total.astype(np.int64)
    whole = np.ascontiguousarray(values)
    with np.errstate(invalid="ignore"):  # a signalling NaN is a number that is none, like the others
        return whole.view("<f8" if kind == FIXED64 else "<f4")[:, 0].astype(np.float64)


# Repeated numbers of small messages


def integers(field: Field) -> list[int]:
    """The signed integers of a field, one or a packed run. Raises FormatError for another kind."""
    if field.kind != LENGTH:
        return [field.integer()]
    data, found, at = field.message(), [], 0
    while at < len(data):
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise FormatError(f"byte {field.offset}: field {field.number} is no packed run of integers.")
            value |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        if value >> 64:
            raise FormatError(f"byte {field.offset}: an integer of field {field.number} is above 64 bits.")
        found.append(value - (1 << 64) if value >> 63 else value)
    return found


def doubles(field: Field) -> F64:
    """(n,) f64: the 64-bit floats of a field, one or a packed run. Raises FormatError for another kind."""
    if field.kind not in (LENGTH, FIXED64) or isinstance(field.value, int) or len(field.value) % 8:
        raise FormatError(f"byte {field.offset}: field {field.number} holds no 64-bit floats.")
    return np.frombuffer(field.value, "<f8").astype(np.float64)

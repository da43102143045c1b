"""Pickles read as data (R24): a machine of our own that knows values and no calls.

A pickle is a program, and Python's unpickler runs it: whatever it imports and calls has happened before anybody can
look at the result. So no unpickler is used. The machine below knows the operations that build plain values, and the
few names by which NumPy arrays and default dictionaries are written; those names are words to it, not objects, and
what a pickle asks to be done with them is compared with the one form that NumPy writes. Everything else is refused at
its byte. As nothing of the file is ever executed, there is nothing to shut into a process of its own.

Arrays stay views of the file's bytes. Dictionaries have texts and integers as keys; sets become lists.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.formats.source import Limits, Source

PROTOCOLS = range(2, 6)
_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_RECONSTRUCT, _SCALAR, _NDARRAY, _DTYPE, _DEFAULT = "_reconstruct", "scalar", "ndarray", "dtype", "defaultdict"
_FACTORIES = frozenset({"int", "float", "list", "dict", "tuple", "bool"})
_NAMES = {
    **{(module, name): name for module in _MODULES for name in (_RECONSTRUCT, _SCALAR)},
    ("numpy", _NDARRAY): _NDARRAY,
    ("numpy", _DTYPE): _DTYPE,
    ("collections", _DEFAULT): _DEFAULT,
    **{("builtins", name): name for name in _FACTORIES},
}
_CODE = re.compile(r"[iu][1248]|f[248]|b1|U[1-9]\d{0,3}")
_MOST_AXES = 3
_MARK = object()


class _Name:
    """One of the names that are known: a word, never the object it names."""

    def __init__(self, name: str) -> None:
        self.name = name


class PickledType:
    """The type of an array's numbers on its way: `code` as in `f4`, `order` of the bytes."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "<"

    def numpy(self) -> np.dtype[Any]:
        # Truth values as bytes: of any other byte than 0 and 1 NumPy would make a boolean that is neither.
        return np.dtype("u1" if self.code == "b1" else self.order + self.code)


class PickledArray:
    """An array: `values` of up to three axes, a read-only view of the file; truth values are u1, texts U."""

    def __init__(self) -> None:
        self._values: NDArray[Any] | None = None

    @property
    def values(self) -> NDArray[Any]:
        if self._values is None:
            raise FormatError("an array without content, expected numbers.")
        return self._values

    def fill(self, values: NDArray[Any]) -> None:
        self._values = values


def read_pickle(source: Source, limits: Limits) -> Any:
    """The value of a pickle: None, bool, int, float, str, memoryview, list, tuple, dict, PickledArray.

    Raises FormatError, with the byte, for every operation, name or call that only a program needs, for a pickle that
    is cut, or followed by anything, and where a limit is exceeded.
    """
    machine = _Machine(source.data, limits)
    try:
        return machine.run()
    except FormatError as error:
        raise FormatError(f"byte {machine.start}: {error}") from None
    except (IndexError, struct.error):
        raise FormatError(f"byte {machine.start}: the pickle is cut or damaged. Copy the file again.") from None


class _Machine:
    """One run over the bytes. `start` is where the operation in hand begins; `_at` is what comes next."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self._data, self._view, self._limits = data, memoryview(data), limits
        self.start = self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, limit, steps = self._data, self._limits.pickle_operations, 0
        if data[0] != 0x80 or data[1] not in PROTOCOLS:
            raise FormatError(f"begins with {data[:2]!r}, expected a pickle of protocol 2 to 5.")
        self._at = 2
        while True:
            self.start = at = self._at
            code = data[at]
            self._at = at + 1
            if code == 0x2E:  # STOP
                break
            steps += 1
            if steps > limit:
                self._limits.check("pickle_operations", steps, "pickle")
            action = _ACTIONS.get(code)
            if action is None:
                raise FormatError(f"operation {bytes([code])!r}, which no data needs, expected plain values.")
            action(self)
        if self._at != len(data):
            raise FormatError(f"{len(data) - self._at} bytes after the end of the pickle, expected none.")
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise FormatError(f"{len(self._stack)} values, expected one. Copy the file again.")
        return self._stack[0]

    # Bytes

    def _take(self, count: int) -> memoryview:
        at = self._at
        if count > len(self._data) - at:
            raise FormatError(f"{count} bytes are announced, {len(self._data) - at} are left. Copy the file again.")
        self._at = at + count
        return self._view[at : at + count]

    def _unsigned(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> str:
        end = self._data.find(b"\n", self._at, self._at + 200)
        if end < 0:
            raise FormatError("a name without an end, expected one of NumPy's.")
        text = self._data[self._at : end].decode("ascii", "replace")
        self._at = end + 1
        return text

    # Stack

    def pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise FormatError("a value is missing. Copy the file again.")
        return value

    def _top(self, kind: type, what: str) -> Any:
        value = self._stack[-1]
        if type(value) is not kind:
            raise FormatError(f"{what} a {type(value).__name__}, expected to do so to a {kind.__name__}.")
        return value

    def _since_mark(self) -> list[Any]:
        stack = self._stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                found = stack[at + 1 :]
                del stack[at:]
                return found
        raise FormatError("items without a beginning. Copy the file again.")

    # Operations

    def frame(self) -> None:
        size = self._unsigned(8)
        if size > len(self._data) - self._at:
            raise FormatError(f"a frame of {size} bytes, {len(self._data) - self._at} are left. Copy the file again.")

    def number(self, size: int, signed: bool = False) -> None:
        self._stack.append(int.from_bytes(self._take(size), "little", signed=signed))

    def long(self) -> None:
        size = self._unsigned(1)
        value = int.from_bytes(self._take(size), "little", signed=True)
        if not -(1 << 63) <= value < 1 << 63:
            raise FormatError("an integer beyond 64 bits, expected one within.")
        self._stack.append(value)

    def real(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def text(self, size: int) -> None:
        length = self._unsigned(size)
        self._limits.check("json_string_bytes", length, "text")
        try:
            self._stack.append(str(self._take(length), "utf-8"))
        except UnicodeDecodeError:
            raise FormatError("a text that is not UTF-8. Copy the file again.") from None

    def raw(self, size: int) -> None:
        self._stack.append(self._take(self._unsigned(size)))

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def tuple_of(self, count: int) -> None:
        if count:
            found = [self.pop() for _ in range(count)]
            self._stack.append(tuple(found[::-1]))
        else:
            self._stack.append(())

    def tuple_since_mark(self) -> None:
        self._stack.append(tuple(self._since_mark()))

    def append(self) -> None:
        value = self.pop()
        self._top(list, "appends to").append(value)

    def extend(self) -> None:
        values = self._since_mark()
        self._top(list, "appends to").extend(values)

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self._put([key, value])

    def set_items(self) -> None:
        self._put(self._since_mark())

    def _put(self, items: list[Any]) -> None:
        holder = self._top(dict, "puts items into")
        if len(items) % 2:
            raise FormatError("a key without a value. Copy the file again.")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int):
                raise FormatError(f"a {type(key).__name__} as a key, expected texts and integers.")
            if key in holder:
                raise FormatError(f"key {str(key)[:60]!r} is there twice, expected once.")
            holder[key] = value

    def store(self, number: int | None = None) -> None:
        value = self._stack[-1]
        if value is _MARK:
            raise FormatError("a value is missing. Copy the file again.")
        self._memo[len(self._memo) if number is None else number] = value
        self._limits.check("pickle_memo", len(self._memo), "pickle")

    def recall(self, size: int) -> None:
        number = self._unsigned(size)
        if number not in self._memo:
            raise FormatError(f"refers to value {number}, which is not there. Copy the file again.")
        self._stack.append(self._memo[number])

    # Names, and what may be done with them

    def name(self) -> None:
        self._known(self._line(), self._line())

    def name_of_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise FormatError("a name that is no text, expected one of NumPy's.")
        self._known(module, name)

    def _known(self, module: str, name: str) -> None:
        known = _NAMES.get((module, name))
        if known is None:
            raise FormatError(
                f"asks for {f'{module}.{name}'[:80]!r}, which is no data; nothing was run. Save the scenario as plain "
                "values and NumPy arrays, with protocol 4."
            )
        self._stack.append(_Name(known))

    def call(self) -> None:
        arguments, named = self.pop(), self.pop()
        called = named.name if type(named) is _Name else ""
        if type(arguments) is not tuple or called not in _CALLS:
            raise FormatError("a call of something that is no array; nothing was run. Save plain values and arrays.")
        value = _CALLS[called](arguments)
        if value is None:
            raise FormatError(f"a call of {called} in a form that NumPy does not write; nothing was run.")
        self._stack.append(value)

    def build(self) -> None:
        state, built = self.pop(), self._stack[-1]
        if type(built) is PickledType and _is_type_state(state):
            built.order = state[1] if state[1] == ">" else "<"
        elif type(built) is PickledArray and _is_array_state(state):
            _, shape, kind, by_column, content = state
            built.fill(_array(shape, kind, by_column, content, self._limits))
        else:
            raise FormatError("a state that is not an array's of numbers or texts; nothing was run.")


def _is_type_state(state: Any) -> bool:
    """(version, byte order, no subtype, no names, no fields, size, alignment, flags): a plain type."""
    return (
        type(state) is tuple
        and len(state) == 8
        and type(state[0]) is int
        and state[1] in ("<", ">", "|", "=")
        and state[2:5] == (None, None, None)
        and all(type(part) is int for part in state[5:])
    )


def _is_array_state(state: Any) -> bool:
    """(version, shape, type, Fortran order, bytes)."""
    return (
        type(state) is tuple
        and [type(part) for part in state] == [int, tuple, PickledType, bool, memoryview]
        and len(state[1]) <= _MOST_AXES
        and all(type(size) is int and size >= 0 for size in state[1])
    )


def _array(shape: tuple[int, ...], kind: PickledType, by_column: bool, content: memoryview, limits: Limits) -> Any:
    for size in shape:
        limits.check("track_rows", size, "array")
    dtype = kind.numpy()
    size = math.prod(shape)
    if size * dtype.itemsize != len(content):
        raise FormatError(f"an array of {size} {kind.code} in {len(content)} bytes. Copy the file again.")
    values = np.frombuffer(content, dtype) if size else np.zeros(0, dtype)
    return values.reshape(shape, order="F" if by_column else "C")


def _reconstruct(arguments: tuple[Any, ...]) -> PickledArray | None:
    if len(arguments) != 3 or type(arguments[0]) is not _Name or arguments[0].name != _NDARRAY:
        return None
    is_blank = arguments[1] == (0,) and type(arguments[2]) is memoryview and bytes(arguments[2]) == b"b"
    return PickledArray() if is_blank else None


def _dtype(arguments: tuple[Any, ...]) -> PickledType | None:
    code = arguments[0] if len(arguments) == 3 and arguments[1:] in ((False, True), (0, 1)) else None
    return PickledType(code) if type(code) is str and _CODE.fullmatch(code) else None


def _scalar(arguments: tuple[Any, ...]) -> Any:
    if [type(part) for part in arguments] != [PickledType, memoryview]:
        return None
    dtype = arguments[0].numpy()
    if len(arguments[1]) != dtype.itemsize:
        return None
    try:
        return np.frombuffer(arguments[1], dtype)[0].item()
    except ValueError:  # a text of code points that are none
        return None


def _default(arguments: tuple[Any, ...]) -> dict[Any, Any] | None:
    is_plain = len(arguments) == 0 or (
        len(arguments) == 1 and type(arguments[0]) is _Name and arguments[0].name in _FACTORIES
    )
    return {} if is_plain else None


_CALLS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    _RECONSTRUCT: _reconstruct,
    _DTYPE: _dtype,
    _SCALAR: _scalar,
    _DEFAULT: _default,
}

# The operations by their byte, of protocols 2 to 5.
_ACTIONS: dict[int, Callable[[_Machine], None]] = {
    0x95: _Machine.frame,
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    ord("J"): lambda machine: machine.number(4, signed=True),
    ord("K"): lambda machine: machine.number(1),
    ord("M"): lambda machine: machine.number(2),
    0x8A: _Machine.long,
    ord("G"): _Machine.real,
    0x8C: lambda machine: machine.text(1),
    ord("X"): lambda machine: machine.text(4),
    0x8D: lambda machine: machine.text(8),
    ord("C"): lambda machine: machine.raw(1),
    ord("B"): lambda machine: machine.raw(4),
    0x8E: lambda machine: machine.raw(8),
    ord("("): lambda machine: machine.push(_MARK),
    ord("]"): lambda machine: machine.push([]),
    0x8F: lambda machine: machine.push([]),
    ord("}"): lambda machine: machine.push({}),
    ord(")"): lambda machine: machine.tuple_of(0),
    0x85: lambda machine: machine.tuple_of(1),
    0x86: lambda machine: machine.tuple_of(2),
    0x87: lambda machine: machine.tuple_of(3),
    ord("t"): _Machine.tuple_since_mark,
    ord("a"): _Machine.append,
    ord("e"): _Machine.extend,
    0x90: _Machine.extend,
    ord("s"): _Machine.set_item,
    ord("u"): _Machine.set_items,
    ord("q"): lambda machine: machine.store(machine._unsigned(1)),
    ord("r"): lambda machine: machine.store(machine._unsigned(4)),
    0x94: _Machine.store,
    ord("h"): lambda machine: machine.recall(1),
    ord("j"): lambda machine: machine.recall(4),
    ord("c"): _Machine.name,
    0x93: _Machine.name_of_stack,
    ord("R"): _Machine.call,
    ord("b"): _Machine.build,
}

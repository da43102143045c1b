"""From an entry of a table to an array: the one unsafe place.

`f32_2(entries, k)` is the float32 array with 2 axes that entry k of one table row points at; likewise for the other
types. Nothing is checked here; `simulation/slots.py` checks before. Without compilation the same readers go through
ctypes. `lane_map` and its like bind the parts of a scene that functions take together.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.index import EdgeMap, Grid, LaneMap, RowMap
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.slots import (
    DTYPES,
    EDGE_REACH,
    ENTRY,
    GRID_AT,
    ROW_FIELDS,
    S_CLEAR,
    S_DRIVABLE,
    S_EDGE,
    S_EDGE_HEIGHT,
    S_EDGE_START,
    S_EXIT_LANE,
    S_EXIT_OFFSET,
    S_LANE_FIRST,
    S_LANE_NEAR,
    S_LANE_START,
    S_NUMBERS,
    S_ROAD,
    S_ROWS,
    S_SEGMENT,
    S_SEGMENT_LANE,
    S_SPEED_LIMIT,
)

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def _plain_reader(dtype: Any, dims: int) -> Any:
    """The reader without compilation."""
    import ctypes

    def _read(entries: I64, k: int) -> NDArray[Any]:
        address, shape = int(entries[k, 0]), tuple(int(n) for n in entries[k, 1 : 1 + dims])
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size == 0:
            return np.empty(shape, dtype)
        return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)

    return _read


def _compiled_reader(dtype: Any, dims: int) -> Any:
    """The reader as machine code: loads an address and a shape, and is inlined where it is called."""
    from numba.core import cgutils, types
    from numba.extending import intrinsic
    from numba.np import arrayobj

    numpy_arrays: Any = arrayobj  # Numba's own modules are not typed
    builder_tools: Any = cgutils
    element = numba.from_dtype(np.dtype(dtype))
    array_type = types.Array(element, dims, "C")

    def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries = numpy_arrays.make_array(signature.args[0])(context, builder, arguments[0])
        words = builder.bitcast(entries.data, builder_tools.intp_t.as_pointer())
        step = context.get_constant(types.intp, ENTRY)
        start = builder.gep(words, [builder.mul(arguments[1], step)])
        values = [builder.load(builder_tools.gep_inbounds(builder, start, n)) for n in range(1 + dims)]
        array = numpy_arrays.make_array(array_type)(context, builder)
        size = context.get_abi_sizeof(context.get_data_type(element))
        stride = context.get_constant(types.intp, size)
        strides = []
        for extent in reversed(values[1:]):
            strides.append(stride)
            stride = builder.mul(stride, extent)
        numpy_arrays.populate_array(
            array,
            data=builder.inttoptr(values[0], array.data.type),
            shape=values[1:],
            strides=strides[::-1],
            itemsize=context.get_constant(types.intp, size),
            meminfo=None,
        )
        return array._getvalue()

    @intrinsic
    def _read(typingctx: Any, entries: Any, k: Any) -> Any:
        if not isinstance(entries, types.Array) or entries.ndim != 2 or entries.dtype != types.int64:
            return None
        return array_type(entries, types.intp), _lower

    return _read


_config: Any = numba.config
_reader = _plain_reader if _config.DISABLE_JIT else _compiled_reader
f32_1, f32_2, f32_3 = (_reader(DTYPES["f32"], dims) for dims in (1, 2, 3))
f64_1, f64_2 = (_reader(DTYPES["f64"], dims) for dims in (1, 2))
i32_1, i32_2 = (_reader(DTYPES["i32"], dims) for dims in (1, 2))
i64_1, i64_2 = (_reader(DTYPES["i64"], dims) for dims in (1, 2))
u8_1, u8_2 = (_reader(DTYPES["u8"], dims) for dims in (1, 2))
u16_2, u16_3, i8_2 = (_reader(DTYPES[t], d) for t, d in (("u16", 2), ("u16", 3), ("i8", 2)))
u32_1, u32_3, u64_1 = (_reader(DTYPES[t], d) for t, d in (("u32", 1), ("u32", 3), ("u64", 1)))
bool_1, bool_2 = (_reader(DTYPES["bool"], dims) for dims in (1, 2))


@kernel
def grid_of(numbers: F64) -> Grid:
    """The grid of lanes and edges in a slot's numbers."""
    x, y, inverse = numbers[GRID_AT], numbers[GRID_AT + 1], numbers[GRID_AT + 2]
    return Grid(x, y, inverse, int(numbers[GRID_AT + 3]), int(numbers[GRID_AT + 4]))


@kernel
def lane_map(slot: I64) -> LaneMap:
    """The lanes of a slot."""
    return LaneMap(
        grid_of(f64_1(slot, S_NUMBERS)),
        i32_1(slot, S_LANE_START),
        i32_1(slot, S_LANE_NEAR),
        f32_2(slot, S_SEGMENT),
        i32_1(slot, S_SEGMENT_LANE),
        i32_1(slot, S_LANE_FIRST),
        i32_1(slot, S_EXIT_OFFSET),
        i32_1(slot, S_EXIT_LANE),
        bool_1(slot, S_DRIVABLE),
        bool_1(slot, S_ROAD),
        f32_1(slot, S_SPEED_LIMIT),
        f32_1(slot, S_CLEAR),
    )


@kernel
def edge_map(slot: I64) -> EdgeMap:
    """The contact lists of a slot."""
    numbers = f64_1(slot, S_NUMBERS)
    edge, height = f32_3(slot, S_EDGE), f32_2(slot, S_EDGE_HEIGHT)
    return EdgeMap(grid_of(numbers), numbers[EDGE_REACH], i32_1(slot, S_EDGE_START), edge, height)


@kernel
def row_map(slot: I64, block: int) -> RowMap:
    """The segment rows and neighbour lists of one block of a slot."""
    k = S_ROWS + block * ROW_FIELDS
    return RowMap(
        f32_2(slot, k),
        f64_2(slot, k + 1),
        i32_1(slot, k + 2),
        i32_1(slot, k + 3),
        f32_2(slot, k + 4),
        f64_1(slot, k + 5),
        i32_1(slot, k + 6),
        u16_3(slot, k + 7),
        u32_3(slot, k + 8),
        i32_2(slot, k + 9),
        i32_2(slot, k + 10),
        f32_2(slot, k + 11),
        f32_2(slot, k + 12),
        f64_2(slot, k + 13),
        f64_2(slot, k + 14),
    )

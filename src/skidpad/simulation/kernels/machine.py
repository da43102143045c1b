"""What Numba has no words for, as machine code: a row of eight numbers turned at once, stores past the caches, and
fetching what is read soon.

The kernels that use them stand beside plain twins, which take over where nothing is compiled (`COMPILED`) or indices
are checked (`CHECKED`): this code checks none.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
_config: Any = numba.config
COMPILED, CHECKED = not _config.DISABLE_JIT, bool(_config.BOUNDSCHECK)
LANES = 8


def _vector_turn(*pairs: int) -> Any:
    """`turn` for rows in which the pairs of columns that begin at `pairs` turn besides the first, as machine code."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    builder_tools: Any = cgutils  # Numba's own modules are not typed
    f32, i32 = ir.FloatType(), ir.IntType(32)
    vector = ir.VectorType(f32, LANES)

    def _lanes(builder: Any, values: dict[int, Any], rest: float) -> Any:
        """A vector of `rest`, but for some lanes."""
        made = ir.Constant(vector, [rest] * LANES)
        for lane, value in values.items():
            made = builder.insert_element(made, value, ir.Constant(i32, lane))
        return made

    def _pick(builder: Any, one: Any, other: Any, lanes: list[int]) -> Any:
        """Lanes of two vectors; those of the other count from 8."""
        return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(i32, LANES), lanes))

    def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, s, px, py, pz, p6, p7, scale, z_scale, cosine, sine, low, high, out, o = arguments
        rows = context.make_array(signature.args[0])(context, builder, source)
        target = context.make_array(signature.args[13])(context, builder, out)
        at = builder.mul(s, builder.extract_value(rows.strides, 0))
        v = builder.load(builder_tools.pointer_add(builder, rows.data, at, vector.as_pointer()), align=4)
        v = builder.fsub(v, _lanes(builder, {0: px, 1: py, 2: pz, 6: p6, 7: p7}, 0.0))
        v = builder.fmul(v, _lanes(builder, {0: scale, 1: scale, 2: z_scale}, 1.0))
        swapped, mixed = list(range(LANES)), list(range(LANES))
        along: dict[int, Any] = {}
        across: dict[int, Any] = {}
        for k in (0, *pairs):
            swapped[k], swapped[k + 1] = k + 1, k
            mixed[k], mixed[k + 1] = k + LANES, k + 1 + LANES
            along |= {k: cosine, k + 1: cosine}
            across |= {k: sine, k + 1: builder.fneg(sine)}
        turned = builder.fadd(
            builder.fmul(v, _lanes(builder, along, 1.0)),
            builder.fmul(_pick(builder, v, v, swapped), _lanes(builder, across, 0.0)),
        )
        v = _pick(builder, v, turned, mixed)
        lowest, highest = (_lanes(builder, dict.fromkeys(range(LANES), bound), 0.0) for bound in (low, high))
        v = builder.select(builder.fcmp_ordered("<", v, lowest), lowest, v)
        v = builder.select(builder.fcmp_ordered(">", v, highest), highest, v)
        builder.store(v, builder.bitcast(builder.gep(target.data, [o]), vector.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic
    def _turn(
        typingctx: Any, source: Any, s: Any, px: Any, py: Any, pz: Any, p6: Any, p7: Any, scale: Any, z_scale: Any,
        cosine: Any, sine: Any, low: Any, high: Any, out: Any, o: Any,
    ) -> Any:  # fmt: skip
        return types.void(source, types.uintp, *[types.float32] * 11, out, types.uintp), _lower

    return _turn


def _plain_stores() -> tuple[Any, Any, Any]:
    """What `_streaming_stores` does, without its effect on caches."""

    def _store(row: F32, k: Any, out: F32) -> None:
        out[int(k) : int(k) + 8] = row[int(k) : int(k) + 8]

    def _address(array: F32) -> int:
        return int(array.ctypes.data)

    def _settle() -> None:
        return None

    return _store, _address, _settle


def _streaming_stores() -> tuple[Any, Any, Any]:
    """Store eight floats past the caches; the address of an array; and wait until such stores can be seen by all."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    i32 = ir.IntType(32)
    vector = ir.VectorType(ir.FloatType(), 8)

    def _pointer(context: Any, builder: Any, array_type: Any, array: Any, k: Any) -> Any:
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [k]), vector.as_pointer())

    @intrinsic
    def _store(typingctx: Any, row: Any, k: Any, out: Any) -> Any:
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            row, k, out = arguments
            value = builder.load(_pointer(context, builder, signature.args[0], row, k), align=4)
            store = builder.store(value, _pointer(context, builder, signature.args[2], out, k), align=32)
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(i32, 1)]))
            return context.get_dummy_value()

        return types.void(row, types.uintp, out), _lower

    @intrinsic
    def _address(typingctx: Any, array: Any) -> Any:
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            return builder.ptrtoint(data, ir.IntType(64))

        return types.uintp(array), _lower

    @intrinsic
    def _settle(typingctx: Any) -> Any:
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), _lower

    return _store, _address, _settle


def _plain_fetch() -> Any:
    """What `_cache_fetch` does, without its effect on caches."""

    def _fetch(array: Any, k: Any) -> None:
        return None

    return _fetch


def _cache_fetch() -> Any:
    """Begin to bring element k of a flat array into the caches, and wait for nothing; any k will do."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    builder_tools: Any = cgutils  # Numba's own modules are not typed
    i32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()

    @intrinsic
    def _fetch(typingctx: Any, array: Any, k: Any) -> Any:
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values, index = arguments
            data = context.make_array(signature.args[0])(context, builder, values).data
            function_type = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
            function = builder_tools.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
            read, all_levels, of_data = (ir.Constant(i32, value) for value in (0, 3, 1))
            builder.call(function, [builder.bitcast(builder.gep(data, [index]), pointer), read, all_levels, of_data])
            return context.get_dummy_value()

        return types.void(array, types.uintp), _lower

    return _fetch


turn_2, turn_3, turn_36, turn_4, turn_5 = (_vector_turn(*pairs) for pairs in ((2,), (3,), (3, 6), (4,), (5,)))
store_eight, address_of, settle = _streaming_stores() if COMPILED else _plain_stores()
fetch = _cache_fetch() if COMPILED else _plain_fetch()

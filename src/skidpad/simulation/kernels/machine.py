"""What Numba has no words for, as machine code: a row of eight numbers turned at once, stores past the caches, which
of eight are near, the first of some bits, and fetching what is read soon.

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


def _turner(builder: Any, pairs: tuple[int, ...], numbers: Any) -> Any:
    """A function that turns a vector of eight, as `turn` does with a row, but for the bounds; and the vector's type.

    pairs    columns that begin a pair that turns
    numbers  px, py, pz, p6, p7, scale, z_scale, cosine, sine
    """
    from llvmlite import ir

    f32, i32 = ir.FloatType(), ir.IntType(32)
    vector = ir.VectorType(f32, LANES)
    px, py, pz, p6, p7, scale, z_scale, cosine, sine = numbers

    def _lanes(values: dict[int, Any], rest: float) -> Any:
        """A vector of `rest`, but for some lanes."""
        made = ir.Constant(vector, [rest] * LANES)
        for lane, value in values.items():
            made = builder.insert_element(made, value, ir.Constant(i32, lane))
        return made

    swapped, mixed = list(range(LANES)), list(range(LANES))
    along: dict[int, Any] = {}
    across: dict[int, Any] = {}
    for k in pairs:
        swapped[k], swapped[k + 1] = k + 1, k
        mixed[k], mixed[k + 1] = k + LANES, k + 1 + LANES
        along |= {k: cosine, k + 1: cosine}
        across |= {k: sine, k + 1: builder.fneg(sine)}
    origin, factor = _lanes({0: px, 1: py, 2: pz, 6: p6, 7: p7}, 0.0), _lanes({0: scale, 1: scale, 2: z_scale}, 1.0)
    by_cosine, by_sine = _lanes(along, 1.0), _lanes(across, 0.0)

    def _turned(v: Any) -> Any:
        v = builder.fmul(builder.fsub(v, origin), factor)
        turned = builder.fadd(builder.fmul(v, by_cosine), builder.fmul(_pick(builder, v, v, swapped), by_sine))
        return _pick(builder, v, turned, mixed)

    return _turned, vector


def _pick(builder: Any, one: Any, other: Any, lanes: list[int]) -> Any:
    """Lanes of two vectors; those of the other count from 8."""
    from llvmlite import ir

    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes))


def _vector_turn(*pairs: int) -> Any:
    """`turn` for rows in which the pairs of columns that begin at `pairs` turn besides the first, as machine code."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    builder_tools: Any = cgutils  # Numba's own modules are not typed

    def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, s, *numbers, low, high, out, o = arguments
        rows = context.make_array(signature.args[0])(context, builder, source)
        target = context.make_array(signature.args[13])(context, builder, out)
        at = builder.mul(s, builder.extract_value(rows.strides, 0))
        turned, vector = _turner(builder, (0, *pairs), numbers)
        v = turned(builder.load(builder_tools.pointer_add(builder, rows.data, at, vector.as_pointer()), align=4))
        for bound, beyond in ((low, "<"), (high, ">")):
            bounds = ir.Constant(vector, [0.0] * LANES)
            for lane in range(LANES):
                bounds = builder.insert_element(bounds, bound, ir.Constant(ir.IntType(32), lane))
            v = builder.select(builder.fcmp_ordered(beyond, v, bounds), bounds, v)
        builder.store(v, builder.bitcast(builder.gep(target.data, [o]), vector.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic
    def _turn(
        typingctx: Any, source: Any, s: Any, px: Any, py: Any, pz: Any, p6: Any, p7: Any, scale: Any, z_scale: Any,
        cosine: Any, sine: Any, low: Any, high: Any, out: Any, o: Any,
    ) -> Any:  # fmt: skip
        return types.void(source, types.uintp, *[types.float32] * 11, out, types.uintp), _lower

    return _turn


def _streamed_sevens(pair: int, lead: int) -> Any:
    """Turn rows of seven numbers and store them past the caches, as machine code, for `observe_send.stream_road`; the
    last eight are filled up with zeros.

    Eight rows are seven vectors. Each holds the end of one row and the beginning of the next, so that the numbers go
    from registers to memory. Through a buffer they would be stored twice, and a processor stores in order: what goes
    to the buffer waits for what goes past the caches, and who reads it there before it arrived waits as well.

    lead  how many numbers of the first row stand before the first vector, 0 or 4. If 4, the first and the last four
          numbers are half a vector each
    """
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    builder_tools: Any = cgutils  # Numba's own modules are not typed
    width = LANES - 1
    f32, i32 = ir.FloatType(), ir.IntType(32)

    def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, ids, count, px, py, scale, cosine, sine, out, at = arguments
        rows = context.make_array(signature.args[0])(context, builder, source)
        numbers = context.make_array(signature.args[1])(context, builder, ids).data
        target = context.make_array(signature.args[8])(context, builder, out).data
        zero, one = (ir.Constant(f32, value) for value in (0.0, 1.0))
        turned, vector = _turner(builder, (0, pair), (px, py, zero, zero, zero, scale, one, cosine, sine))
        step = builder.extract_value(rows.strides, 0)
        past = builder.module.add_metadata([ir.Constant(i32, 1)])

        def _size(value: int) -> Any:
            return ir.Constant(count.type, value)

        def _row(k: Any) -> Any:
            """Row ids[k], turned."""
            number = builder.zext(builder.load(builder.gep(numbers, [k])), count.type)
            place = builder_tools.pointer_add(builder, rows.data, builder.mul(number, step), vector.as_pointer())
            return turned(builder.load(place, align=4))

        def _store(some: list[Any], start: int, length: int, begin: Any) -> None:
            """Store numbers [start, start + length) of rows whose numbers belong to out[begin] and on."""
            r = start // width
            after = some[min(r + 1, len(some) - 1)]
            lanes = [p % width if p // width == r else p % width + LANES for p in range(start, start + length)]
            part = builder.shuffle_vector(some[r], after, ir.Constant(ir.VectorType(i32, length), lanes))
            place = builder.gep(target, [builder.add(begin, _size(start))])
            pointer = builder.bitcast(place, ir.VectorType(f32, length).as_pointer())
            builder.store(part, pointer, align=4 * length).set_metadata("nontemporal", past)

        if lead:
            _store([_row(_size(0))], 0, lead, at)
        eights = builder.lshr(builder.sub(count, _size(1)) if lead else count, _size(3))
        with builder_tools.for_range(builder, eights) as loop:
            first = builder.mul(loop.index, _size(LANES))
            some = [_row(builder.add(first, _size(k))) for k in range(LANES + (lead > 0))]
            begin = builder.add(at, builder.mul(loop.index, _size(LANES * width)))
            for part in range(width):
                _store(some, LANES * part + lead, LANES, begin)
        first = builder.mul(eights, _size(LANES))
        with builder.if_then(builder.icmp_unsigned("<", first, count)):
            some = []
            for k in range(LANES):
                number = builder.add(first, _size(k))
                there = builder.icmp_unsigned("<", number, count)
                row = _row(builder.select(there, number, _size(0)))
                some.append(builder.select(there, row, ir.Constant(vector, [0.0] * LANES)))
            begin = builder.add(at, builder.mul(eights, _size(LANES * width)))
            for start in range(lead, LANES * width - lead, LANES):
                _store(some, start, LANES, begin)
            if lead:
                _store(some, LANES * width - lead, lead, begin)
        return context.get_dummy_value()

    @intrinsic
    def _stream(
        typingctx: Any, source: Any, ids: Any, count: Any, px: Any, py: Any, scale: Any, cosine: Any, sine: Any,
        out: Any, at: Any,
    ) -> Any:  # fmt: skip
        return types.void(source, ids, types.uintp, *[types.float32] * 5, out, types.uintp), _lower

    return _stream


def _plain_stores() -> tuple[Any, Any, Any, Any]:
    """What `_streaming_stores` does, without its effect on caches."""

    def _store_eight(row: F32, j: Any, out: F32, k: Any) -> None:
        out[int(k) : int(k) + 8] = row[int(j) : int(j) + 8]

    def _store_four(row: F32, j: Any, out: F32, k: Any) -> None:
        out[int(k) : int(k) + 4] = row[int(j) : int(j) + 4]

    def _address(array: F32) -> int:
        return int(array.ctypes.data)

    def _settle() -> None:
        return None

    return _store_eight, _store_four, _address, _settle


def _streaming_stores() -> tuple[Any, Any, Any, Any]:
    """Store eight or four floats past the caches; the address of an array; and wait until such stores can be seen by
    all."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    def _stored(length: int) -> Any:
        vector = ir.VectorType(ir.FloatType(), length)

        def _pointer(context: Any, builder: Any, array_type: Any, array: Any, k: Any) -> Any:
            data = context.make_array(array_type)(context, builder, array).data
            return builder.bitcast(builder.gep(data, [k]), vector.as_pointer())

        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            row, j, out, k = arguments
            value = builder.load(_pointer(context, builder, signature.args[0], row, j), align=4)
            store = builder.store(value, _pointer(context, builder, signature.args[2], out, k), align=4 * length)
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
            return context.get_dummy_value()

        @intrinsic
        def _store(typingctx: Any, row: Any, j: Any, out: Any, k: Any) -> Any:
            return types.void(row, types.uintp, out, types.uintp), _lower

        return _store

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

    return _stored(8), _stored(4), _address, _settle


def _plain_masks() -> tuple[Any, Any, Any]:
    """What `_vector_masks` does, one place after the other."""

    def _meet(xs: F32, ys: F32, reaches: F32, q: Any, x: Any, y: Any, reach: Any) -> int:
        mask = 0
        for lane in range(LANES):
            k = int(q) + lane
            dx, dy, rr = xs[k] - x, ys[k] - y, reaches[k] + reach
            mask |= int(dx * dx + dy * dy <= rr * rr) << lane
        return mask

    def _approach(
        xs: F32, ys: F32, us: F32, vs: F32, radii: F32, q: Any, x: Any, y: Any, u: Any, v: Any, radius: Any, grown: Any,
        farthest: Any,
    ) -> int:  # fmt: skip
        mask = 0
        for lane in range(LANES):
            k = int(q) + lane
            dx, dy, wx, wy = xs[k] - x, ys[k] - y, us[k] - u, vs[k] - v
            both = radii[k] + radius + grown
            square, cross, meet = dx * dx + dy * dy, dx * wy - dy * wx, both * both
            nears = dx * wx + dy * wy < 0 and cross * cross <= meet * (wx * wx + wy * wy)
            mask |= int((square <= meet or nears) and square <= farthest) << lane
        return mask

    def _below(values: F32, q: Any, bound: Any) -> int:
        return sum(int(values[int(q) + lane] < bound) << lane for lane in range(LANES))

    return _meet, _approach, _below


def _vector_masks() -> tuple[Any, Any, Any]:
    """Which of eight places in a row are near enough, as the bits of a number: circles that meet one
    (`contact.close_ones`), bodies that may touch one soon (`ttc.closest_times`), numbers below a bound."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    f32, i32 = ir.FloatType(), ir.IntType(32)
    vector = ir.VectorType(f32, LANES)

    def _loaded(context: Any, builder: Any, array_types: Any, arrays: Any, q: Any) -> list[Any]:
        found = []
        for array_type, array in zip(array_types, arrays, strict=True):
            data = context.make_array(array_type)(context, builder, array).data
            place = builder.bitcast(builder.gep(data, [q]), vector.as_pointer())
            found.append(builder.load(place, align=4))
        return found

    def _spread(builder: Any, value: Any) -> Any:
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(i32, 0))
        return _pick(builder, one, one, [0] * LANES)

    def _bits(builder: Any, yes: Any) -> Any:
        return builder.zext(builder.bitcast(yes, ir.IntType(LANES)), i32)

    def _sum_of_squares(builder: Any, a: Any, b: Any) -> Any:
        return builder.fadd(builder.fmul(a, a), builder.fmul(b, b))

    @intrinsic
    def _meet(typingctx: Any, xs: Any, ys: Any, reaches: Any, q: Any, x: Any, y: Any, reach: Any) -> Any:
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            there = _loaded(context, builder, signature.args[:3], arguments[:3], arguments[3])
            here = [_spread(builder, value) for value in arguments[4:]]
            dx, dy = (builder.fsub(a, b) for a, b in zip(there[:2], here[:2], strict=True))
            rr = builder.fadd(there[2], here[2])
            near = builder.fcmp_ordered("<=", _sum_of_squares(builder, dx, dy), builder.fmul(rr, rr))
            return _bits(builder, near)

        return types.int32(xs, ys, reaches, types.uintp, *[types.float32] * 3), _lower

    @intrinsic
    def _approach(
        typingctx: Any, xs: Any, ys: Any, us: Any, vs: Any, radii: Any, q: Any, x: Any, y: Any, u: Any, v: Any,
        radius: Any, grown: Any, farthest: Any,
    ) -> Any:  # fmt: skip
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            there = _loaded(context, builder, signature.args[:5], arguments[:5], arguments[5])
            here = [_spread(builder, value) for value in arguments[6:]]
            dx, dy, wx, wy = (builder.fsub(a, b) for a, b in zip(there[:4], here[:4], strict=True))
            both = builder.fadd(builder.fadd(there[4], here[4]), here[5])
            meet, square = builder.fmul(both, both), _sum_of_squares(builder, dx, dy)
            cross = builder.fsub(builder.fmul(dx, wy), builder.fmul(dy, wx))
            along = builder.fadd(builder.fmul(dx, wx), builder.fmul(dy, wy))
            passes = builder.fmul(meet, _sum_of_squares(builder, wx, wy))
            nears = builder.and_(
                builder.fcmp_ordered("<", along, ir.Constant(vector, [0.0] * LANES)),
                builder.fcmp_ordered("<=", builder.fmul(cross, cross), passes),
            )
            yes = builder.or_(builder.fcmp_ordered("<=", square, meet), nears)
            return _bits(builder, builder.and_(yes, builder.fcmp_ordered("<=", square, here[6])))

        return types.int32(*[xs] * 5, types.uintp, *[types.float32] * 7), _lower

    @intrinsic
    def _below(typingctx: Any, values: Any, q: Any, bound: Any) -> Any:
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            there = _loaded(context, builder, signature.args[:1], arguments[:1], arguments[1])
            return _bits(builder, builder.fcmp_ordered("<", there[0], _spread(builder, arguments[2])))

        return types.int32(values, types.uintp, types.float32), _lower

    return _meet, _approach, _below


def _plain_first_bit() -> Any:
    """What `_counted_first_bit` does."""

    def _first_bit(mask: Any) -> int:
        word = int(mask)
        return (word & -word).bit_length() - 1

    return _first_bit


def _counted_first_bit() -> Any:
    """The number of the lowest bit that is set in a word, from 0; the word is not 0."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic
    def _first_bit(typingctx: Any, mask: Any) -> Any:
        def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.uint64), _lower

    return _first_bit


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
store_eight, store_four, address_of, settle = _streaming_stores() if COMPILED else _plain_stores()
meet_eight, approach_eight, below_eight = _vector_masks() if COMPILED else _plain_masks()
stream_sevens, stream_sevens_led = (_streamed_sevens(4, lead) for lead in (0, 4))
first_bit = _counted_first_bit() if COMPILED else _plain_first_bit()
fetch = _cache_fetch() if COMPILED else _plain_fetch()

"""Four numbers at once, said outright: for loops too short for the compiler's own vectors.

What the compiler makes of a loop over a vector first asks whether its arrays overlap, and leaves what is not a multiple
of some vectors to a loop by single numbers. Over twenty numbers that takes longer than the arithmetic. Arrays are
contiguous and counted flat, so are the places in them; nothing is checked. Products are added as the compiler does it
elsewhere.
"""

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

FOUR = ir.VectorType(ir.DoubleType(), 4)


class _Vectors:
    """Code for operations on four numbers."""

    def __init__(self, context, builder, signature, arguments):
        self.context, self.builder, self.types, self.arguments = context, builder, signature.args, arguments

    def _address(self, array, place):
        data = self.context.make_array(self.types[array])(self.context, self.builder, self.arguments[array]).data
        return self.builder.bitcast(self.builder.gep(data, [place]), FOUR.as_pointer())

    def place(self, argument):
        return self.context.cast(self.builder, self.arguments[argument], self.types[argument], types.intp)

    def load(self, array, place):
        return self.builder.load(self._address(array, place), align=8)

    def one(self, array, place):
        """A single number."""
        data = self.context.make_array(self.types[array])(self.context, self.builder, self.arguments[array]).data
        return self.builder.load(self.builder.gep(data, [place]))

    def store(self, value, array, place):
        self.builder.store(value, self._address(array, place), align=8)

    def same(self, number):
        """One number four times."""
        one = self.builder.insert_element(ir.Constant(FOUR, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), 4), [0, 0, 0, 0])
        return self.builder.shuffle_vector(one, ir.Constant(FOUR, ir.Undefined), lanes)

    def fma(self, one, other, more):
        """one * other + more, rounded once where the processor can do that."""
        takes = ir.FunctionType(FOUR, [FOUR, FOUR, FOUR])
        function = self.builder.module.declare_intrinsic("llvm.fmuladd.v4f64", (), takes)
        return self.builder.call(function, [one, other, more])

    def number(self, argument):
        return self.same(self.arguments[argument])


@intrinsic
def add_outer(typing_context, out, at, values, i, stride, scales, k, wide, n, rows):
    """out[at + 4 r + j] += the sum over m of values[i + m * stride + j] * scales[k + r + m * wide], for r < n.

    m goes through as many rows as the tuple `rows` has.
    """
    n_rows = len(rows)

    def generate(context, builder, signature, arguments):
        four = _Vectors(context, builder, signature, arguments)
        at_, i_, stride_, k_, wide_ = (four.place(argument) for argument in (1, 3, 4, 6, 7))
        vectors, starts = [], []
        for _ in range(n_rows):
            vectors.append(four.load(2, i_))
            starts.append(k_)
            i_, k_ = builder.add(i_, stride_), builder.add(k_, wide_)
        with cgutils.for_range(builder, four.place(8)) as loop:
            here = builder.add(at_, builder.shl(loop.index, ir.Constant(loop.index.type, 2)))
            total = four.load(0, here)
            for vector, start in zip(vectors, starts, strict=True):
                total = four.fma(four.same(four.one(5, builder.add(start, loop.index))), vector, total)
            four.store(total, 0, here)
        return context.get_dummy_value()

    return types.void(out, at, values, i, stride, scales, k, wide, n, rows), generate


@intrinsic
def scaled_sum(typing_context, out, at, factor, f, number, one, i, other, k):
    """out[at + j] = factor[f + j] * number * (one[i + j] + other[k + j])."""

    def generate(context, builder, signature, arguments):
        four = _Vectors(context, builder, signature, arguments)
        both = builder.fadd(four.load(5, four.place(6)), four.load(7, four.place(8)))
        four.store(builder.fmul(builder.fmul(four.load(2, four.place(3)), four.number(4)), both), 0, four.place(1))
        return context.get_dummy_value()

    return types.void(out, at, factor, f, number, one, i, other, k), generate


@intrinsic
def scaled_line(typing_context, out, at, factor, f, constant, slope, values, i):
    """out[at + j] = factor[f + j] * (constant + slope * values[i + j])."""

    def generate(context, builder, signature, arguments):
        four = _Vectors(context, builder, signature, arguments)
        line = four.fma(four.number(5), four.load(6, four.place(7)), four.number(4))
        four.store(builder.fmul(four.load(2, four.place(3)), line), 0, four.place(1))
        return context.get_dummy_value()

    return types.void(out, at, factor, f, constant, slope, values, i), generate


@intrinsic
def add_product(typing_context, out, at, one, other, i, constant, slope, values, factor, f, product, k):
    """With line = constant + slope * values[i + j]: out[at + j] += (one[i + j] + other[i + j]) * line, and
    product[k + j] = factor[f + j] * line.
    """

    def generate(context, builder, signature, arguments):
        four = _Vectors(context, builder, signature, arguments)
        at_, i_ = four.place(1), four.place(4)
        line = four.fma(four.number(6), four.load(7, i_), four.number(5))
        both = builder.fadd(four.load(2, i_), four.load(3, i_))
        product_ = builder.fmul(four.load(8, four.place(9)), line)
        four.store(four.fma(both, line, four.load(0, at_)), 0, at_)
        four.store(product_, 10, four.place(11))
        return context.get_dummy_value()

    return types.void(out, at, one, other, i, constant, slope, values, factor, f, product, k), generate


if numba.config.DISABLE_JIT:

    def add_outer(out, at, values, i, stride, scales, k, wide, n, rows):
        out, values, scales = out.reshape(-1), values.reshape(-1), scales.reshape(-1)
        for r in range(n):
            for j in range(4):
                for m in range(len(rows)):
                    out[at + 4 * r + j] += values[i + m * stride + j] * scales[k + r + m * wide]

    def scaled_sum(out, at, factor, f, number, one, i, other, k):
        out, factor, one, other = (array.reshape(-1) for array in (out, factor, one, other))
        for j in range(4):
            out[at + j] = factor[f + j] * number * (one[i + j] + other[k + j])

    def scaled_line(out, at, factor, f, constant, slope, values, i):
        out, factor, values = (array.reshape(-1) for array in (out, factor, values))
        for j in range(4):
            out[at + j] = factor[f + j] * (constant + slope * values[i + j])

    def add_product(out, at, one, other, i, constant, slope, values, factor, f, product, k):
        out, one, other, values, factor, product = (
            array.reshape(-1) for array in (out, one, other, values, factor, product)
        )
        for j in range(4):
            line = constant + slope * values[i + j]
            out[at + j] += (one[i + j] + other[i + j]) * line
            product[k + j] = factor[f + j] * line

"""Fresh memory filled on purpose, to find what is read before it is written.

`np.empty` hands out what an earlier owner left: often zeros, now and then anything. Where the
environment has ESPALIER_FILL_MEMORY, `np.empty` and `np.empty_like` hand out the worst there is, in
Python and in compiled kernels alike, and `engine.chain.scratch.Scratch` does with what it kept. Results must not
change. Without it nothing here runs. The compiled kernels of each kind have a cache of their own.
"""

import os

import numpy as np

from espalier.engine.errors import EspalierError

VARIABLE = "ESPALIER_FILL_MEMORY"
# What the even and the odd elements of floating point are filled with. NaN spreads through all arithmetic, but a
# comparison passes over it; a large number does not get lost so.
KINDS = {"zero": (0.0, 0.0), "nan": (np.nan, np.nan), "huge": (1e300, 1e300), "mixed": (np.nan, 1e300)}

_empty, _empty_like = np.empty, np.empty_like


def kind() -> str:
    """How fresh memory is filled, "" for not at all."""
    value = os.environ.get(VARIABLE, "")
    if value and value not in KINDS:
        raise EspalierError(f"{VARIABLE} is {value!r}: expected one of {', '.join(KINDS)}")
    return value


def worst(name: str, dtype: np.dtype) -> tuple:
    """(what even elements hold, what odd elements hold) in memory of this kind."""
    if dtype.kind == "f":
        return tuple(dtype.type(min(value, float(np.finfo(dtype).max))) for value in KINDS[name])
    if dtype.kind == "b":
        return (dtype.type(name != "zero"),) * 2
    if dtype.kind in "iu":
        extreme = np.iinfo(dtype).min // 2 if dtype.kind == "i" else np.iinfo(dtype).max // 2
        return (dtype.type(0 if name == "zero" else extreme),) * 2
    return ()


def fill(array: np.ndarray) -> np.ndarray:
    """The array with the worst in it, or as it is where the switch is off or knows no worst."""
    values = worst(kind(), array.dtype) if kind() else ()
    if values:
        flat = array.ravel("K")  # a view, as fresh memory is in one piece
        flat[0::2], flat[1::2] = values
    return array


def install() -> None:
    """Let `np.empty` and `np.empty_like` of this process fill, before any kernel is compiled."""
    name = kind()
    if not name:
        return

    def empty(shape, dtype=float, **options):
        return fill(_empty(shape, dtype, **options))

    def empty_like(array, dtype=None, **options):
        return fill(_empty_like(array, dtype, **options))

    _overload(name, empty, empty_like)
    np.empty, np.empty_like = empty, empty_like


def _overload(name: str, empty, empty_like) -> None:
    """Teach the compiler both."""
    from numba.extending import overload
    from numba.np import arrayobj  # noqa: F401 - it registers what numba knows under the names as they are now
    from numba.np.numpy_support import as_dtype

    @overload(fill)
    def overload_fill(array):
        values = worst(name, as_dtype(array.dtype))
        if not values:
            return lambda array: array
        even, odd = values

        def compiled_fill(array):
            flat = array.reshape(array.size)
            for i in range(array.size):
                flat[i] = odd if i % 2 else even
            return array

        return compiled_fill

    @overload(empty)
    def overload_empty(shape, dtype=float):
        return lambda shape, dtype=float: fill(_empty(shape, dtype))

    @overload(empty_like)
    def overload_empty_like(array, dtype=None):
        return lambda array, dtype=None: fill(_empty_like(array, dtype))

"""The one decorator of all kernels: compiled lazily, cached on disk, without the GIL.

`reassoc` and `contract` let sums be vectorised; nothing assumes that infinities or
NaN are absent. The order of a sum is then fixed by the machine code, which is made for one
common kind of processor (`engine.runtime.compile_target`): the same bytes each time, whatever the number of threads.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

# Where Intel's library of vector functions is installed numba would take it: other digits than the C library's.
os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")

import numba  # noqa: E402
from numba.core import event  # noqa: E402

from espalier.engine.runtime import compile_target, compiling, fresh_memory  # noqa: E402
from espalier.engine.runtime.kernel_cache import cache_directory, rests_on  # noqa: E402

fresh_memory.install()
# numba reads the environment again at the first compilation after a change of it, and forgets what we set below:
# where another package had imported numba before us, the line above was such a change.
numba.config.reload_config()
compile_target.pin(numba.config)
DIRECTORY = cache_directory()

OPTIONS = {
    "cache": DIRECTORY is not None,
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    # A kernel that is called by several others would be linked into each, optimised in each in
    # its own way, under one name; which copy runs then depends on what was loaded first, and the
    # last bits differ between a run that compiles and one that finds its kernels in the cache.
    "forceinline": True,
    "no_cfunc_wrapper": True,  # nothing here hands a kernel to C
}


# `inlined` reaches into numba's compiler. With versions it was not tried with, kernels are compiled as numba does by
# itself: the same answers, other last bits, half as much compiling again.
INLINES = numba.__version__.startswith("0.68.")


def kernel(function: Callable, **others) -> Callable:
    """The function, compiled when it is first called and kept with the other kernels of its module."""
    if DIRECTORY is None:
        return _compiled(function, others)
    before = numba.config.CACHE_DIR  # numba looks at it when a function is decorated, and not later
    numba.config.CACHE_DIR = str(DIRECTORY / rests_on(Path(function.__code__.co_filename).resolve()))
    try:
        return _compiled(function, others)
    finally:
        numba.config.CACHE_DIR = before


def _compiled(function: Callable, others: dict) -> Callable:
    if not INLINES:
        return numba.njit(**(OPTIONS | others))(function)
    from espalier.engine.runtime import inlined

    whole = numba.njit(**(OPTIONS | others), pipeline_class=inlined.Whole)(function)
    if whole is not function:  # as it is where numba is told to compile nothing
        inlined.give_part(whole)
    return whole


# For a long kernel that is called in several places, or by one that is long itself: compiled once, and called.
apart = partial(kernel, forceinline=False)


class _Events(event.Listener):
    """Tells those who listen of our kernels; what numba compiles inside them is part of them."""

    def on_start(self, told: event.Event) -> None:
        if self._is_ours(told):
            compiling.begins(told.data["dispatcher"].py_func.__name__)

    def on_end(self, told: event.Event) -> None:
        if self._is_ours(told):
            compiling.ends()

    @staticmethod
    def _is_ours(told: event.Event) -> bool:
        module = getattr(told.data["dispatcher"].py_func, "__module__", None)  # generated code may have none
        return (module or "").startswith("espalier.engine.")


event.register("numba:compile", _Events())

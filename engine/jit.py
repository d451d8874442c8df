"""The one decorator of all kernels: compiled lazily, cached on disk, without the GIL.

`reassoc` and `contract` let sums be vectorised; nothing assumes that infinities or
NaN are absent. The order of a sum is then fixed by the machine code, so one
machine gives the same bytes each time, whatever the number of threads.
"""

import numba

from engine.cache import cache_directory

_directory = cache_directory()
if _directory is not None:
    numba.config.CACHE_DIR = str(_directory)

OPTIONS = {
    "cache": _directory is not None,
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    # A kernel that is called by several others would be linked into each, optimised in each in
    # its own way, under one name; which copy runs then depends on what was loaded first, and the
    # last bits differ between a run that compiles and one that finds its kernels in the cache.
    "forceinline": True,
}

kernel = numba.njit(**OPTIONS)

"""One budget of threads for the process, shared by all callers.

Kernels release the GIL and never start threads of their own, so calling the engine
from many threads at once is safe: they all queue for the same pool. Work is cut by
the callers in a way that depends on the data alone; the budget decides only how
many pieces run at the same time, never what is summed in which order.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from espalier.engine.errors import EspalierError

PIECES = 32  # of independent work, enough to balance any number of threads that we meet

_lock = threading.Lock()
_budget: int | None = None
_pool: ThreadPoolExecutor | None = None
_owner: tuple[int, int] | None = None  # (process id, size) of the pool


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The budget: what `set_threads` said, else ESPALIER_THREADS, else the cores of this process."""
    if _budget is not None:
        return _budget
    text = os.environ.get("ESPALIER_THREADS", "")
    if not text:
        return available_cores()
    if not text.isdigit() or int(text) < 1:
        raise EspalierError(f"ESPALIER_THREADS is {text!r}: expected a whole number of at least 1")
    return int(text)


def set_threads(count: int | None) -> None:
    """Set the budget of this process; None goes back to the default."""
    global _budget
    if count is not None and count < 1:
        raise EspalierError(f"threads is {count}: expected at least 1, or null for all cores")
    _budget = count


def _after_fork() -> None:
    """A forked child has the lock as it was at that moment and none of the threads."""
    global _lock, _pool, _owner
    _lock, _pool, _owner = threading.Lock(), None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _executor() -> ThreadPoolExecutor:
    """The pool of this process and this budget; a forked child or a new budget gets a new one."""
    global _pool, _owner
    with _lock:
        wanted = (os.getpid(), threads())
        if _pool is None or _owner != wanted:
            _pool, _owner = ThreadPoolExecutor(wanted[1], thread_name_prefix="espalier"), wanted
        return _pool


def run(function: Callable, pieces: Sequence) -> list:
    """[function(piece) for piece in pieces], on the pool when there is more than one of each."""
    if threads() == 1 or len(pieces) < 2:
        return [function(piece) for piece in pieces]
    return list(_executor().map(function, pieces))


def ranges(total: int, pieces: int) -> list[tuple[int, int]]:
    """[0, total) cut into at most `pieces` runs of nearly equal length, none empty."""
    pieces = max(1, min(pieces, total))
    bounds = [total * i // pieces for i in range(pieces + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def balanced(costs: np.ndarray, pieces: int = PIECES) -> list[tuple[int, int]]:
    """Runs of consecutive items whose costs are about equal; they depend on the costs alone."""
    if len(costs) == 0:
        return []
    total = np.cumsum(costs, dtype=np.float64)
    bounds = np.searchsorted(total, total[-1] * np.arange(1, pieces) / pieces)
    bounds = np.unique(np.concatenate([[0], bounds, [len(costs)]]))
    return [(int(a), int(b)) for a, b in zip(bounds, bounds[1:], strict=False)]

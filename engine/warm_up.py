"""Kernels compiled ahead, several at once.

numba compiles one kernel after the other in a process. So as many processes as there are threads take the recipes
of `engine.recipes`, one after the other, and leave in the cache what they have met. Recipes that run at the same time
share hardly a kernel. Where no process can be started, kernels are compiled when they are met, as ever.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numba

from espalier.engine.optimise.solver_table import SOLVERS
from espalier.engine.runtime import compiling, threads
from espalier.engine.runtime.jit import DIRECTORY
from espalier.engine.runtime.kernel_cache import source_hash

# Its argument is the places of modules, as they are here. With -P no folder is put before them.
CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
CHILD += "from espalier.engine import recipes; recipes.run_those_named()"

# numba tries overloads of a function in turn. It would colour what it says of those that do not fit, unread.
PLAIN = {"NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}

# Recipes of `engine.recipes`, the longest first, and about how many kernels each compiles that are not in those before.
FIRST_FIT = {"descent": 54, "model steps": 6, "steps": 35}  # the last two together take as long as the first
USUAL = FIRST_FIT | {"answers": 12, "gathered": 5, "texts": 12, "smooth descent": 3}
NEW_OF_SOLVERS = {"sbcd": 55, "cd": 3, "iis": 3, "gis": 3}  # the others have all theirs from a default fit
EVERY = {
    "solver sbcd": NEW_OF_SOLVERS["sbcd"], **USUAL, "large blocks": 25, "partly labelled": 12, "weighted tokens": 11,
    "triples": 40, "marginal loss": 16, "exponential loss": 7, "memm": 4, "hmm": 2, "gp": 18, "hmsvm": 9,
    "perceptron": 11, "boosting": 24,
    **{f"solver {name}": NEW_OF_SOLVERS.get(name, 0) for name in SOLVERS},
}  # fmt: skip


def compile_all(recipes: dict[str, int]) -> dict[str, str]:
    """Run the recipes in processes, as many at once as there are threads: {recipe that failed: why}."""
    processes = _Processes()
    with compiling.elsewhere(sum(recipes.values())) as tell:
        pool = ThreadPoolExecutor(min(threads.threads(), len(recipes)))
        try:
            said = list(pool.map(lambda name: processes.run(name, tell), recipes))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.kill()
            pool.shutdown()
            processes.close()
    return {name: words for name, words in zip(recipes, said, strict=True) if words}


class _Processes:
    """Processes that run recipes, each one after the other; one whose recipe fails ends with it."""

    def __init__(self):
        self.all: list[subprocess.Popen] = []
        self.free: list[subprocess.Popen] = []
        self.errors: dict[subprocess.Popen, IO[str]] = {}
        self.ended = False

    def run(self, name: str, tell: Callable[[bool], None]) -> str:
        """Why the recipe failed; nothing where it did not."""
        try:
            process = self.free.pop() if self.free else self._start()
            process.stdin.write(f"{name}\n")
            process.stdin.flush()
        except OSError as error:
            return str(error)
        for line in process.stdout:
            if line == "\n":
                self.free.append(process)
                return ""
            tell(line.startswith("."))
        code = process.wait()
        self.errors[process].seek(0)
        return self.errors[process].read().strip() or f"it ended with {code}"

    def _start(self) -> subprocess.Popen:
        path = json.dumps([place for place in sys.path if isinstance(place, str)])
        errors = tempfile.TemporaryFile("w+")
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", CHILD, path],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | PLAIN,
            )  # fmt: skip
        except OSError:
            errors.close()
            raise
        self.errors[process] = errors
        self.all.append(process)
        if self.ended:
            process.kill()
        return process

    def kill(self) -> None:
        self.ended = True
        for process in self.all:
            process.kill()

    def close(self) -> None:
        for process in self.all:
            with self.errors[process], suppress(OSError), process:
                pass


def before_first_fit() -> None:
    """On a machine that never fitted a model with these kernels: compile what that takes, and wait for who does so."""
    if DIRECTORY is None or numba.config.DISABLE_JIT or threads.threads() < 2 or not _is_python():
        return
    marker = DIRECTORY / f"first-fit-{_kind()}"
    with suppress(OSError):  # the cache was taken away: all is compiled when it is met
        if not marker.exists():
            with _alone(DIRECTORY / "warm-up.lock"):
                if not marker.exists() and not compile_all(FIRST_FIT):
                    marker.touch()


def _is_python() -> bool:
    """Whether the program that runs is an interpreter, and not one that has Python inside."""
    return not getattr(sys, "frozen", False) and Path(sys.executable or "").name.startswith("python")


def _kind() -> str:
    """What compiled kernels are good for, in eight digits: other sources, versions and processors do not share them."""
    parts = source_hash(), numba.__version__, sys.version_info[:3], numba.config.CPU_NAME, numba.config.CPU_FEATURES
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process and thread at a time; a process that dies lets the next one in."""
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""Files that a driver and its workers share: vectors mapped by all, in memory where there is any, and what a job is."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from espalier.engine.runtime import threads
from espalier.engine.weights.layout import Layout

JOBS = ".espalier/jobs"
PREFIX = "espalier-shared-"  # of folders that driver and workers share
CLOCK_SECONDS = 2  # by which the start of a process may seem to move when the clock is set
TWINS = "twins.npy"
PIECES = 8  # of a vector that is copied by several threads


def shared_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """An array over a file. Its space is taken at once: a full disk is an error here, not a dead process later."""
    size = max(8, 8 * int(np.prod(shape)))
    if not path.exists() or path.stat().st_size != size:
        with path.open("wb") as file:
            _take_space(file, size)
    return np.asarray(np.memmap(path, np.float64, "r+", shape=shape)) if np.prod(shape) else np.empty(shape)


class Mapped:
    """Arrays over shared files, one for each use, mapped once: to map a file anew costs as much as to fill it."""

    def __init__(self):
        self._arrays: dict[str, tuple[tuple, np.ndarray]] = {}

    def __call__(self, use: str, path: Path, shape: tuple[int, ...]) -> np.ndarray:
        if use not in self._arrays or self._arrays[use][0] != (path, shape):
            self._arrays.pop(use, None)
            self._arrays[use] = (path, shape), shared_array(path, shape)
        return self._arrays[use][1]


def copy(source: np.ndarray, target: np.ndarray) -> None:
    """target[:] = source, by all threads."""

    def piece(run: tuple[int, int]) -> None:
        target[run[0] : run[1]] = source[run[0] : run[1]]

    threads.run(piece, threads.ranges(len(source), PIECES))


def _take_space(file, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        for begin in range(0, size, 1 << 20):
            file.write(bytes(min(1 << 20, size - begin)))


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A new folder that goes away in the end; those of processes that died go away now.

    Its name says whose it is, and while its maker lives the lock of a file in it is held.
    """
    import fcntl

    parent.mkdir(parents=True, exist_ok=True)
    _clear(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{_owner()}-", dir=parent))
    try:
        with (folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if parent.name == Path(JOBS).name and not any(parent.iterdir()):
            parent.rmdir()


def clear_dead(root: Path) -> None:
    """Remove what drivers that have died left in memory, among temporary files and in the project."""
    for parent in {memory_folder(), Path(tempfile.gettempdir()), root / JOBS}:
        _clear(parent)


def _clear(parent: Path) -> None:
    import fcntl

    for old in parent.glob(f"{PREFIX}*"):
        try:
            if old.stat().st_uid != os.getuid() or _may_live(old.name):
                continue
            with (old / "lock").open("a") as file:  # in another container its maker may have the number of nobody here
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            continue


def _owner() -> str:
    """This process as no other is called, before or after it: by number and start, in seconds."""
    import psutil

    return f"{os.getpid()}-{psutil.Process().create_time():.0f}"


def _may_live(name: str) -> bool:
    """Whether the process that a folder is named after runs; also where the name does not say."""
    import psutil

    owner = re.match(rf"{PREFIX}(\d+)-(\d+)-", name)
    if owner is None:
        return True
    try:
        return abs(psutil.Process(int(owner[1])).create_time() - int(owner[2])) <= CLOCK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OverflowError):
        return True


def memory_folder() -> Path:
    """Where files are memory, else the folder of temporary files."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def write_layout(folder: Path, layout: Layout) -> None:
    for name, value in layout._asdict().items():
        np.save(folder / f"{name}.npy", value)


def read_layout(folder: Path, mapped: bool) -> Layout:
    """Mapped where only a part of it is needed."""
    fields = {name: np.load(folder / f"{name}.npy", mmap_mode="c" if mapped else None) for name in Layout._fields}
    return Layout(**{name: int(value) if value.ndim == 0 else value for name, value in fields.items()})


def write_twins(folder: Path, twins: np.ndarray | None) -> None:
    """What makes observations at the end of sequences, where there are weights for them."""
    if twins is not None:
        np.save(folder / TWINS, twins)


def read_twins(folder: Path) -> np.ndarray | None:
    return np.load(folder / TWINS) if (folder / TWINS).exists() else None

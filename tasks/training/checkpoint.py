"""The state of a training that may be interrupted, in a file found again by a hash of all that decides the result.

A rerun goes on from there and ends with the same bytes. The file is replaced whole, so that
there is always either the earlier state or the later one.
"""

import hashlib
import json
import os
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.monitor import STOP_REASONS
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.runtime.compile_target import compile_target
from espalier.engine.runtime.kernel_cache import source_hash
from espalier.tasks import store
from espalier.tasks.training.job import Options

FOLDER = ".espalier/checkpoints"
MOST = 3  # files of interrupted trainings that are kept; the oldest go
NO_MATTER = ("threads", "cluster", "checkpoint_seconds")  # parameters that change no byte of the result
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, MemoryError, RecursionError,
    NotImplementedError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def key_of(root: Path, options: Options, manifest: dict, shards: dict[str, str], block_tokens: int) -> str:
    """Sixteen hex digits that change with the data, the parameters that matter, the code and what it
    is compiled for. `shards`: name to hash.
    """
    import numba

    chosen = {name: value for name, value in vars(options).items() if name not in NO_MATTER}
    named = {"weights": root / store.WEIGHTS} | ({"initial": root / options.initial} if options.initial else {})
    text = json.dumps(
        [chosen, manifest, shards, {name: store.file_hash(path) for name, path in named.items()}, block_tokens,
         source_hash(), np.__version__, numba.__version__, compile_target()],
        sort_keys=True,
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Checkpoint:
    """Writes what a solver offers when `seconds` have passed since the last time; None writes nothing by itself.

    `times` of the iterations are kept with it, and put back before `went_on` hears the state of an earlier
    run. `also` gives vectors that are kept with a state. A disk that is full ends no training: `say` hears of it, and
    the state before it stays.
    """

    def __init__(
        self, root: Path, key: str, seconds: float | None, say: Callable[[str], None],
        times: list[float] | None = None, went_on: Callable[[SolverState], None] = lambda state: None,
        clock: Callable[[], float] = time.monotonic, also: Callable[[], dict[str, np.ndarray]] = dict,
    ):  # fmt: skip
        self.path, self.seconds, self.say, self.clock = root / FOLDER / f"{key}.npz", seconds, say, clock
        self.times, self.went_on, self.also = [] if times is None else times, went_on, also
        self.written, self.last, self.saved = clock(), None, None

    def earlier(self, size: int | None = None) -> SolverState | None:
        """The state in the file; one that is damaged, or not of `size` weights, is told of and counts as none."""
        for half in self.path.parent.glob(f".{self.path.name}.*.tmp"):  # of a process that was killed while it wrote
            half.unlink(missing_ok=True)
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                meta = json.loads(found["meta"].tobytes())
                pairs = [(found[f"s{i}"], found[f"y{i}"]) for i in range(meta["pairs"])]
                vectors = {name: found[f"v-{name}"] for name in meta["vectors"]}
                state = SolverState(
                    found["theta"], meta["loss"], found["gradient"], meta["iteration"], meta["evaluations"],
                    meta["reason"], pairs, meta["history"], vectors, meta["extra"],
                )  # fmt: skip
                times = meta["times"]
            _check(state, times, size)
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            self.say(f"{self.path} is damaged ({_line(error)}) and will be replaced: training starts anew")
            return None
        self.times[:] = times
        self.last = self.saved = state
        self.say(f"going on after iteration {state.iteration}, where an earlier run was interrupted")
        self.went_on(state)
        return state

    def offer(self, state: SolverState) -> None:
        state.vectors = state.vectors | self.also()
        self.last = state
        if self.seconds is not None and self.clock() - self.written >= self.seconds:
            self.save()

    def save(self) -> bool:
        """Write the last state offered, unless it is written already; whether the file holds it now."""
        if self.last is None:
            return False
        if self.saved is self.last:
            return True
        try:
            with store.replacing(self.path) as temporary, temporary.open("wb") as file:
                np.savez(file, **_arrays(self.last, self.times[: len(self.last.history)]))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.say(f"the state after iteration {self.last.iteration} could not be saved ({_line(error)})")
            return False
        finally:
            self.written = self.clock()
        self.saved = self.last
        self._prune()
        return True

    def forget(self) -> None:
        """After success: nothing is left to go on with."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()

    def add_last_words(self, error: BaseException) -> None:
        """Save the state after the last iteration, and add to an error what an interrupted training leaves behind."""
        refused = isinstance(error, EspalierError) and self.last is None
        if self.seconds is not None and not refused:
            error.add_note(self._last_words())

    def _last_words(self) -> str:
        if self.last is None:
            return "training was interrupted before its first iteration ended; it starts anew the next time"
        iteration = self.last.iteration
        if self.save():
            return f"training was interrupted after iteration {iteration}; the same command goes on from there"
        return f"training was interrupted after iteration {iteration}, which could not be saved"

    def _prune(self) -> None:
        files = sorted(self.path.parent.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-MOST]:
            path.unlink(missing_ok=True)


def _check(state: SolverState, times: list[float], size: int | None) -> None:
    """ValueError unless a solver can go on from the state: a weight that is not a number would end in the model."""
    expected = state.theta.shape if size is None else (size,)
    named = [("theta", state.theta), ("gradient", state.gradient), *state.vectors.items()]
    named += [(f"{name}{i}", v) for i, pair in enumerate(state.pairs) for name, v in zip("sy", pair, strict=True)]
    for name, vector in named:
        if len(expected) != 1 or vector.dtype not in (np.float64, np.bool_):
            raise ValueError(f"{name} is not a row of numbers")
        if vector.shape != expected and name not in state.vectors:  # those may be of blocks
            raise ValueError(f"{name} has {vector.size:,} weights, expected {expected[0]:,}")
        if not np.all(np.isfinite(vector)):
            raise ValueError(f"{name}[{int(np.argmin(np.isfinite(vector)))}] is not finite")
    if not np.isfinite(state.loss) or min(state.iteration, state.evaluations) < 0:
        raise ValueError(f"loss {state.loss} after iteration {state.iteration}")
    if state.reason not in (None, *STOP_REASONS):
        raise ValueError(f"a reason to stop that is not known: {str(state.reason)[:40]!r}")
    for row in state.history:
        if not np.isfinite([row["objective"], row.get("gradient_norm", 0.0), row["iteration"]]).all():
            raise ValueError(f"the record of iteration {row['iteration']} is not finite")
    if len(times) != len(state.history) or not np.isfinite(np.array(times, np.float64)).all():
        raise ValueError(f"{len(times)} times of {len(state.history)} iterations")
    dict(state.extra)


def _arrays(state: SolverState, times: list[float]) -> dict[str, np.ndarray]:
    meta = {"loss": state.loss, "iteration": state.iteration, "evaluations": state.evaluations,
            "reason": state.reason, "pairs": len(state.pairs), "history": state.history, "times": times,
            "vectors": list(state.vectors), "extra": state.extra}  # fmt: skip
    arrays = {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8), "theta": state.theta,
              "gradient": state.gradient}  # fmt: skip
    for i, (s, y) in enumerate(state.pairs):
        arrays |= {f"s{i}": s, f"y{i}": y}
    return arrays | {f"v-{name}": vector for name, vector in state.vectors.items()}


def _line(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]

"""The state of a training that may be interrupted, in a file found again by a hash of all that decides the result.

A rerun goes on from there and ends with the same bytes. The file is replaced whole, so that
there is always either the earlier state or the later one.
"""

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine.cache import source_hash
from engine.state import State
from tasks import store
from tasks.params import Train

FOLDER = ".espalier/checkpoints"
MOST = 3  # files of interrupted trainings that are kept; the oldest go
NO_MATTER = ("threads", "cluster", "checkpoint_seconds")  # parameters that change no byte of the result
UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)


def key_of(root: Path, options: Train, manifest: dict, shards: dict[str, str], block_tokens: int) -> str:
    """Sixteen hex digits that change with the data, the parameters that matter and the code. `shards`: name to hash."""
    import numba

    chosen = {name: value for name, value in vars(options).items() if name not in NO_MATTER}
    named = {"weights": root / store.WEIGHTS} | ({"initial": root / options.initial} if options.initial else {})
    text = json.dumps(
        [chosen, manifest, shards, {name: store.file_hash(path) for name, path in named.items()}, block_tokens,
         source_hash(), np.__version__, numba.__version__],
        sort_keys=True,
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Checkpoint:
    """Writes what a solver offers when `seconds` have passed since the last time; None writes nothing by itself.

    `times` of the iterations are kept with it, and put back before `went_on` hears the state of an earlier
    run. A disk that is full ends no training: `say` hears of it, and the state before it stays.
    """

    def __init__(
        self, root: Path, key: str, seconds: float | None, say: Callable[[str], None],
        times: list[float] | None = None, went_on: Callable[[State], None] = lambda state: None,
        clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self.path, self.seconds, self.say, self.clock = root / FOLDER / f"{key}.npz", seconds, say, clock
        self.times, self.went_on = [] if times is None else times, went_on
        self.written, self.last, self.saved = clock(), None, None

    def earlier(self) -> State | None:
        """The state in the file; a damaged file counts as none."""
        for half in self.path.parent.glob(f".{self.path.name}.*.tmp"):  # of a process that was killed while it wrote
            half.unlink(missing_ok=True)
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                meta = json.loads(found["meta"].tobytes())
                pairs = [(found[f"s{i}"], found[f"y{i}"]) for i in range(meta["pairs"])]
                vectors = {name: found[f"v-{name}"] for name in meta["vectors"]}
                state = State(found["theta"], meta["loss"], found["gradient"], meta["iteration"], meta["evaluations"],
                              meta["reason"], pairs, meta["history"], vectors, meta["extra"])  # fmt: skip
                times = meta["times"]
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            self.say(f"{self.path} is damaged ({_line(error)}): training starts anew")
            return None
        self.times[:] = times
        self.last = self.saved = state
        self.say(f"going on after iteration {state.iteration}, where an earlier run was interrupted")
        self.went_on(state)
        return state

    def offer(self, state: State) -> None:
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

    def _prune(self) -> None:
        files = sorted(self.path.parent.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-MOST]:
            path.unlink(missing_ok=True)


def _arrays(state: State, times: list[float]) -> dict[str, np.ndarray]:
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

"""The peers: python-crfsuite, chaine, libwapiti, hmmlearn, nltk. Each function needs its package alone, else Skip."""

import ctypes
import gzip
import importlib
import logging
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.corpora import QUICK
from benchmarks.job import Skip

PACKAGES = {"pycrfsuite": "python-crfsuite", "chaine": "chaine", "wapiti": "libwapiti", "hmmlearn.hmm": "hmmlearn",
            "nltk": "nltk"}  # fmt: skip
BY_HAND = {"torch": "torch", "torch_struct": "torch-struct"}  # too large to come with the others


def load(module: str):
    """The package of a peer."""
    try:
        return importlib.import_module(module)
    except ImportError:
        cure = f"`pip install {BY_HAND[module]}`" if module in BY_HAND else "`make bench` installs the peers"
        raise Skip(f"{(PACKAGES | BY_HAND)[module]} is not installed: {cure}") from None


def read_text(path: Path, quick: bool) -> list[tuple[list[str], ...]]:
    """Sentences as (words, tags, labels), read as a user of a peer would."""
    sentences, rows = [], []
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields:
                rows.append(fields)
            elif rows:
                sentences.append(tuple(map(list, zip(*rows, strict=True))))
                rows = []
    if rows:
        sentences.append(tuple(map(list, zip(*rows, strict=True))))
    return sentences[:QUICK] if quick else sentences


# ---- python-crfsuite and chaine, which is made of the same C code


@dataclass
class Training:
    """What a peer's training gave."""

    seconds: float
    curve: list[tuple[float, float]] = field(default_factory=list)
    per_gradient: float | None = None
    model: Path | None = None


def train_crfsuite(sentences: list, c1: float, c2: float, iterations: int, folder: str) -> Training:
    """CRFsuite's L-BFGS, OWL-QN where c1 > 0; minimises loss + c1 |w|_1 + c2 |w|_2^2."""
    crfsuite = load("pycrfsuite")
    found = Training(0.0)

    class Trainer(crfsuite.Trainer):
        def on_iteration(self, log, info):
            found.curve.append((time.perf_counter() - begin, info["loss"]))

    trainer = Trainer(algorithm="lbfgs", verbose=True)  # else on_iteration is not called
    trainer.set_params({"c1": c1, "c2": c2, "max_iterations": iterations})
    for items, labels in sentences:
        trainer.append(items, labels)
    found.model = Path(folder) / "model.crfsuite"
    begin = time.perf_counter()
    trainer.train(str(found.model))
    found.seconds = time.perf_counter() - begin
    trials = sum(step["linesearch_trials"] for step in trainer.logparser.iterations[1:])
    found.per_gradient = (found.curve[-1][0] - found.curve[0][0]) / trials if trials else None
    return found


def train_chaine(sentences: list, c1: float, c2: float, iterations: int, folder: str) -> Training:
    """The same of chaine; time runs from where it says that training starts."""
    chaine = load("chaine")
    found, begin = Training(0.0), []

    class Watch(logging.Handler):
        def emit(self, record):
            text = record.getMessage()
            if text.startswith("Start training"):
                begin.append(time.perf_counter())
            elif text.startswith("Iteration"):
                found.curve.append((time.perf_counter() - begin[0], float(text.split(":")[1])))

    for name in ("chaine.crf", "chaine._core.crf"):
        logging.getLogger(name).addHandler(Watch())
    trainer = chaine.Trainer("lbfgs", c1=c1, c2=c2, max_iterations=iterations)
    found.model = Path(folder) / "model.chaine"
    items = [[dict.fromkeys(item, 1.0) for item in sentence] for sentence, _ in sentences]
    trainer.train(items, [labels for _, labels in sentences], model_filepath=found.model)
    found.seconds = time.perf_counter() - begin[0]
    return found


TRAINERS: dict[str, Callable] = {"python-crfsuite": train_crfsuite, "chaine": train_chaine}


def crfsuite_weights(path: Path) -> tuple[dict, dict]:
    """{(attribute, label): weight} and {(previous, label): weight}, to six decimals, as CRFsuite prints them."""
    tagger = load("pycrfsuite").Tagger()
    tagger.open(str(path))
    info = tagger.info()
    return info.state_features, info.transitions


# ---- libwapiti


class _Head(ctypes.Structure):
    """The beginning of Wapiti 1.5's mdl_t, which is what libwapiti 0.2.1 contains."""

    _fields_ = [
        ("opt", ctypes.c_void_p), ("type", ctypes.c_int), ("nlbl", ctypes.c_uint32), ("nobs", ctypes.c_uint64),
        ("nftr", ctypes.c_uint64), ("kind", ctypes.c_void_p), ("uoff", ctypes.c_void_p), ("boff", ctypes.c_void_p),
        ("theta", ctypes.POINTER(ctypes.c_double)),
    ]  # fmt: skip


class Wapiti:
    """A model of Wapiti with its training data; its own gradient can be called and timed alone."""

    def __init__(self, patterns: list[str], sequences: list[str], threads: int, rho1: float, rho2: float, iterations=3):
        wapiti = load("wapiti")
        self.library = importlib.import_module("wapiti.api")._wapiti
        self.model = wapiti.Model(
            patterns="\n".join(patterns), algo="l-bfgs", nthread=threads, rho1=rho1, rho2=rho2, maxiter=iterations
        )
        for sequence in sequences:
            self.model.add_training_sequence(sequence)
        self.library.mdl_sync(self.model._model)

    @property
    def head(self) -> _Head:
        return ctypes.cast(self.model._model, ctypes.POINTER(_Head)).contents

    @property
    def theta(self) -> np.ndarray:
        """Wapiti's own weights, not a copy."""
        return np.ctypeslib.as_array(self.head.theta, (self.head.nftr,))

    def train(self) -> float:
        """Seconds of the training; at the end of each iteration Wapiti also decodes the training data."""
        begin = time.perf_counter()
        self.model.train()
        return time.perf_counter() - begin

    def gradients(self, repeats: int = 3) -> tuple[float, float]:
        """(median seconds of one gradient, objective at the current weights)."""
        self.library.grd_new.restype = ctypes.c_void_p
        self.library.grd_new.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.library.grd_gradient.restype = ctypes.c_double
        self.library.grd_gradient.argtypes = [ctypes.c_void_p]
        self._gradient = np.zeros(self.head.nftr + 8)
        aligned = (self._gradient.ctypes.data + 15) & ~15  # SSE wants sixteen bytes
        state = self.library.grd_new(ctypes.cast(self.model._model, ctypes.c_void_p), aligned)
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            objective = self.library.grd_gradient(state)
            times.append(time.perf_counter() - begin)
        return float(np.median(times)), objective


def wapiti_build() -> str:
    """How the package index's Wapiti was compiled: with the flags of the Python that it was installed for."""
    flags = (sysconfig.get_config_var("CFLAGS") or "").split()
    level = [flag for flag in flags if flag.startswith("-O")]
    return f"built with {level[-1]}" if level else "built without optimisation"


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="espalier-bench-")

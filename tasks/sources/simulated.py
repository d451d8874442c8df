"""Sequences from a known hidden Markov model, so that risks can be computed exactly.

In the spirit of SBCD 6.1: six labels, five symbols, sequences of five; transitions are
uniform except for two pairs, most labels are told by their symbol, two are ambiguous.
"""

import numpy as np
import polars as pl

from tasks.params import Ingest
from tasks.sources import Corpus

NOUNS = {"token": "symbol", "label": "state", "sequence": "sequence"}
LENGTH, DEFAULT_SEQUENCES = 5, 1000


def truth() -> dict:
    """Initial [Y], transition [Y, Y] and emission [Y, X] probabilities."""
    transition = np.full((6, 6), 1 / 6)
    transition[4] = [0.02, 0.02, 0.02, 0.02, 0.02, 0.9]
    transition[5] = [0.02, 0.02, 0.02, 0.02, 0.9, 0.02]
    emission = np.full((6, 5), 0.025)
    for state, symbol in enumerate((0, 1, 2, 3, 4, 4)):
        emission[state, symbol] = 0.9
    return {"initial": [1 / 6] * 6, "transition": transition.tolist(), "emission": emission.tolist(),
            "labels": list("ABCDEF"), "symbols": list("vwxyz"), "length": LENGTH}  # fmt: skip


def draw(model: dict, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States and symbols [count, length]."""
    random = np.random.default_rng(seed)
    states = np.empty((count, model["length"]), np.int64)
    symbols = np.empty_like(states)
    for t in range(model["length"]):
        rows = np.array(model["transition"])[states[:, t - 1]] if t else np.tile(model["initial"], (count, 1))
        states[:, t] = _pick(rows, random)
        symbols[:, t] = _pick(np.array(model["emission"])[states[:, t]], random)
    return states, symbols


def _pick(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One index from each row of probabilities."""
    below = rows.cumsum(axis=1) < random.random((len(rows), 1))
    return np.minimum(below.sum(axis=1), rows.shape[1] - 1)


def read(root, options: Ingest) -> Corpus:
    model = truth()
    states, symbols = draw(model, options.limit or DEFAULT_SEQUENCES, options.seed)
    tokens = pl.DataFrame(
        {
            "sequence": np.repeat(np.arange(len(states), dtype=np.int32), model["length"]),
            "x0": pl.Series(np.array(model["symbols"])[symbols.ravel()]),
            "label": pl.Series(np.array(model["labels"])[states.ravel()]),
        }
    )
    return Corpus({"train": tokens}, "simulated", NOUNS, truth=model)

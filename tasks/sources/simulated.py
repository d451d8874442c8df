"""Sequences from a known hidden Markov model, so that risks can be computed exactly.

In the spirit of SBCD 6.1: six labels, five symbols, sequences of five; transitions are
uniform except for two pairs, most labels are told by their symbol, two are ambiguous.
"""

import numpy as np
import polars as pl

from espalier.tasks.params import Ingest
from espalier.tasks.sources import Corpus, in_one_block

NOUNS = {"token": "symbol", "label": "state", "sequence": "sequence"}
LENGTH, DEFAULT_SEQUENCES = 5, 1000
NOISE = 0.0136  # probability of each symbol that is not the state's own


def truth() -> dict:
    """Initial [Y], transition [Y, Y] and emission [Y, X] probabilities; the Bayes error is 15.4 %."""
    transition = np.full((6, 6), 1 / 6)
    transition[4] = [0.06, 0.06, 0.06, 0.06, 0.06, 0.7]
    transition[5] = [0.18, 0.18, 0.18, 0.18, 0.14, 0.14]
    emission = np.full((6, 5), NOISE)
    for state, symbol in enumerate((0, 1, 2, 3, 4, 4)):
        emission[state, symbol] = 1 - 4 * NOISE
    return {"initial": [1 / 6] * 6, "transition": transition.tolist(), "emission": emission.tolist(),
            "labels": list("ABCDEF"), "symbols": list("vwxyz"), "length": LENGTH}  # fmt: skip


def draw(model: dict, count: int, seed) -> tuple[np.ndarray, np.ndarray]:
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


def tokens_of(model: dict, states: np.ndarray, symbols: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "sequence": np.repeat(np.arange(len(states), dtype=np.int32), model["length"]),
            "x0": pl.Series(np.array(model["symbols"])[symbols.ravel()]),
            "label": pl.Series(np.array(model["labels"])[states.ravel()]),
        },
        schema={"sequence": pl.Int32, "x0": pl.String, "label": pl.String},
    )


def read(root, options: Ingest) -> Corpus:
    """Parts drawn independently: the inputs are few and repeat, so that a split by input would bias them."""
    model, total = truth(), options.most() or DEFAULT_SEQUENCES
    sizes = {name: round(total * options.share(name)) for name in ("dev", "test", "unlabelled")}
    sizes["train"] = max(0, total - sum(sizes.values()))
    parts = {
        name: in_one_block(tokens_of(model, *draw(model, sizes[name], [options.seed, index])))
        for index, name in enumerate(("train", "dev", "test", "unlabelled"))
    }
    return Corpus(parts, "simulated", NOUNS, truth=model)

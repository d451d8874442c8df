"""How likely inputs are under a model that says so: development, test and unlabelled data beside each other.

-log P(x) per token, in nats. Data that are less likely than those held out from training look otherwise than what the
model has learned: other words, other orders of them. Its sequences are the draws, so an interval is that of a ratio of
sums over sequences.
"""

import math
from collections.abc import Iterable

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.families.labeller import Labeller

INTERVAL = 1.96  # standard errors, for 95 %
LEAST = 10  # sequences that are listed


def losses_of_inputs(parts: Iterable[Dataset], model: Labeller) -> tuple[np.ndarray, np.ndarray]:
    """(-log P(x) of each sequence, how many tokens it has) of data in the numbering of the model."""
    found = [(-model.log_likelihood(part), np.diff(part.offsets)) for part in parts]
    losses, lengths = zip(*found, strict=True) if found else ((), ())
    return np.concatenate([np.empty(0), *losses]), np.concatenate([np.empty(0, np.int64), *lengths])


def figures(parts: dict[str, tuple[np.ndarray, np.ndarray]], reference: str) -> dict:
    """Figures of each part that has sequences, the others compared with the reference; the least likely of the test.

    `parts` are what `losses_of_inputs` gives, by the names of splits. Sequences that a model cannot have made are
    counted as `impossible`, and are in no mean.
    """
    impossible = {name: int(np.sum(~np.isfinite(losses))) for name, (losses, _) in parts.items()}
    least = least_likely(*parts["test"])
    parts = {name: (of[0][np.isfinite(of[0])], of[1][np.isfinite(of[0])]) for name, of in parts.items()}
    made = {name: _part(*of) for name, of in parts.items() if len(of[0])}
    error = {name: _standard_error(*of) for name, of in parts.items() if name in made}
    for name, part in made.items():
        part |= _interval("", part["loss"], error[name])
        part |= {"impossible": impossible[name]} if impossible[name] else {}
        if name != reference and reference in made:
            both = None if None in (error[name], error[reference]) else math.hypot(error[name], error[reference])
            difference = part["loss"] - made[reference]["loss"]
            part |= {"difference": difference} | _interval("difference_", difference, both)
    return {"reference": reference, "parts": made, "least": least}


def least_likely(losses: np.ndarray, lengths: np.ndarray, count: int = LEAST) -> list[dict]:
    """The sequences whose tokens are the least likely on the average, by their number."""
    mean = np.where(np.isfinite(losses), losses / lengths, -np.inf)
    order = np.argsort(-mean, kind="stable")[:count]
    return [{"sequence": int(n), "loss": float(mean[n])} for n in order if mean[n] > -np.inf]


def _part(losses: np.ndarray, lengths: np.ndarray) -> dict:
    tokens = int(lengths.sum())
    return {"sequences": len(losses), "tokens": tokens, "loss": math.fsum(losses.tolist()) / tokens}


def _standard_error(losses: np.ndarray, lengths: np.ndarray) -> float | None:
    """Of the mean per token; None where there is one sequence only."""
    n, tokens = len(losses), int(lengths.sum())
    if n < 2:
        return None
    mean = math.fsum(losses.tolist()) / tokens
    squares = math.fsum(((losses - mean * lengths) ** 2).tolist())
    return math.sqrt(squares * n / (n - 1)) / tokens


def _interval(name: str, value: float, error: float | None) -> dict:
    ends = (None, None) if error is None else (value - INTERVAL * error, value + INTERVAL * error)
    return dict(zip((f"{name}low", f"{name}high"), ends, strict=True))

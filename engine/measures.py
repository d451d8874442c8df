"""Measures of predictions: error rates, conlleval scores, calibration, paired bootstrap."""

from typing import NamedTuple

import numpy as np

from engine.errors import EspalierError
from engine.jit import kernel


def token_error(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Share of positions with a wrong label."""
    return float(np.mean(np.asarray(labels) != np.asarray(predicted)))


def sequence_errors(labels: np.ndarray, predicted: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Number of wrong positions in each sequence, int64 [N]."""
    wrong = np.asarray(labels) != np.asarray(predicted)
    return np.add.reduceat(wrong.astype(np.int64), offsets[:-1])


def sequence_error(labels: np.ndarray, predicted: np.ndarray, offsets: np.ndarray) -> float:
    """Share of sequences with at least one wrong label."""
    return float(np.mean(sequence_errors(labels, predicted, offsets) > 0))


class Chunk(NamedTuple):
    sequence: int
    begin: int
    end: int  # first position after the chunk
    kind: str


def is_chunk_scheme(labels: list[str]) -> bool:
    """True when every label is O or begins with B- or I-, and not all are O."""
    return any(label != "O" for label in labels) and all(label == "O" or label[:2] in ("B-", "I-") for label in labels)


def chunks(labels: list[str], offsets: np.ndarray) -> list[Chunk]:
    """Chunks in the sense of conlleval: B- always begins one; I- begins one after O or another kind."""
    found: list[Chunk] = []
    for sequence, (lo, hi) in enumerate(zip(offsets, offsets[1:], strict=False)):
        begin, kind = -1, ""
        for t in range(lo, hi):
            prefix, _, here = labels[t].partition("-")
            goes_on = begin >= 0 and prefix == "I" and here == kind
            if begin >= 0 and not goes_on:
                found.append(Chunk(sequence, begin, t, kind))
                begin = -1
            if prefix != "O" and begin < 0:
                begin, kind = t, here
        if begin >= 0:
            found.append(Chunk(sequence, begin, hi, kind))
    return found


def conlleval(labels: list[str], predicted: list[str], offsets: np.ndarray) -> tuple[dict, dict[str, dict]]:
    """Precision, recall, F1 and counts over all chunks, and the same for each kind of chunk."""
    gold, guess = set(chunks(labels, offsets)), set(chunks(predicted, offsets))
    kinds = sorted({chunk.kind for chunk in gold | guess})
    by_kind = {
        kind: _scores({c for c in gold if c.kind == kind}, {c for c in guess if c.kind == kind}) for kind in kinds
    }
    return _scores(gold, guess), by_kind


def _scores(gold: set, guess: set) -> dict:
    correct = len(gold & guess)
    precision = correct / len(guess) if guess else 0.0
    recall = correct / len(gold) if gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "gold": len(gold), "predicted": len(guess),
            "correct": correct}  # fmt: skip


def calibration(confidence: np.ndarray, correct: np.ndarray, bins: int = 10) -> tuple[float, list[dict]]:
    """Expected calibration error, and for each bin of confidence its mean and the accuracy in it."""
    confidence, correct = np.asarray(confidence, float), np.asarray(correct, float)
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    rows, error = [], 0.0
    for b in range(bins):
        mine = which == b
        count = int(mine.sum())
        mean, accuracy = (float(confidence[mine].mean()), float(correct[mine].mean())) if count else (None, None)
        rows.append({"bin_low": b / bins, "bin_high": (b + 1) / bins, "confidence": mean, "accuracy": accuracy,
                     "count": count})  # fmt: skip
        error += count / max(1, len(confidence)) * abs(mean - accuracy) if count else 0.0
    return error, rows


class Bootstrap(NamedTuple):
    """Difference of mean error, challenger minus champion, with a percentile interval."""

    difference: float
    low: float
    high: float


@kernel
def _resample(first, second, sizes, draws):
    """draws [R, N] of indices -> weighted mean of second - first for each of R resamples."""
    out = np.empty(len(draws))
    for r in range(len(draws)):
        total, size = 0.0, 0.0
        for i in draws[r]:
            total += second[i] - first[i]
            size += sizes[i]
        out[r] = total / size
    return out


def paired_bootstrap(
    champion: np.ndarray, challenger: np.ndarray, sizes: np.ndarray, level: float = 0.95, rounds: int = 2000,
    seed: int = 0,
) -> Bootstrap:  # fmt: skip
    """Resample sequences with both models' error counts together; error is errors / sizes (positions)."""
    champion, challenger, sizes = (np.asarray(a, np.float64) for a in (champion, challenger, sizes))
    if not len(champion) == len(challenger) == len(sizes) or len(sizes) == 0:
        raise EspalierError(
            f"{len(champion)}, {len(challenger)} and {len(sizes)} values: expected the same number, at least one"
        )
    random = np.random.default_rng(seed)
    means = np.concatenate(
        [_resample(champion, challenger, sizes, random.integers(0, len(sizes), (50, len(sizes))))
         for _ in range(max(1, rounds // 50))]
    )  # fmt: skip
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Bootstrap(float((challenger - champion).sum() / sizes.sum()), float(low), float(high))

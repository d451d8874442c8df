"""References cut into fields by hidden Markov models (COURSE, practical part): cells of the experiment `citations`.

States are fields. `counts` learns from labelled references. As the course does, `baum-welch` and `viterbi` then begin
with that model and go on with the same references without their labels. With few labels the others are a pool.
"""

from pathlib import Path

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode
from espalier.engine.families.hmm_options import HmmOptions
from espalier.engine.families.hmm_space import completed
from espalier.engine.families.hmm_training import HmmStart, emitting, fit_tables, space_of
from espalier.engine.optimise.penalty import ElasticNet
from espalier.tasks.experiments.family_fits import Tokens, by_gradient, by_hmm, make_tokens, sequences, tokens_of

WORDS = ["Uw:%X[0,0]"]
OVERLAPPING = [*WORDS, "Us:%w[0,0,1]", 'Up:%m[0,0,"\\p$"]', 'Ub:%m[-1,0,"\\p$"]', "Ue:%S[0,0,3]"]
STREAMS = {"words": WORDS, "overlapping": OVERLAPPING}
WINDOW = ["U-1:%X[-1,0]", "U+1:%X[1,0]", "Us-1:%w[-1,0,1]", "Us+1:%w[1,0,1]"]  # beside them, for a CRF
CONSTANTS = ["U", "B"]
PERCENTS = ("token", "field", "reference")


def folds(count: int, parts: int, seed: int) -> list[np.ndarray]:
    """The numbers of references in each part, ascending."""
    shuffled = np.random.default_rng(seed).permutation(count)
    return [np.sort(shuffled[k::parts]) for k in range(parts)]


def fields(labels: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Runs of one label within a sequence as rows (begin, end, label)."""
    cut = np.ones(len(labels) + 1, bool)
    cut[1:-1] = labels[1:] != labels[:-1]
    cut[offsets] = True
    ends = np.flatnonzero(cut)
    return np.column_stack([ends[:-1], ends[1:], labels[ends[:-1]]])


def accuracies(test: Dataset, said: np.ndarray, names: list[str]) -> dict:
    """Counts of what is right and of all: tokens, fields found exactly, whole references; tokens by field."""
    right = said == test.labels
    gold, found = fields(test.labels, test.offsets), set(map(tuple, fields(said, test.offsets).tolist()))
    whole = np.logical_and.reduceat(right, test.offsets[:-1])
    by_field = {name: [int(right[test.labels == y].sum()), int((test.labels == y).sum())]
                for y, name in enumerate(names)}  # fmt: skip
    return {
        "token": [int(right.sum()), len(right)],
        "field": [sum(tuple(row) in found for row in gold.tolist()), len(gold)],
        "reference": [int(whole.sum()), len(whole)], "by_field": by_field,
    }  # fmt: skip


def cut(corpus: Path, parts: int, fold: int, seed: int, lines: list[str], labelled: int | None = None) -> Tokens:
    """A fold as the test; of the others the first `labelled` in their drawn order, the rest as a pool."""
    tokens = tokens_of(corpus)
    drawn = folds(int(tokens["sequence"].max()) + 1, parts, seed)
    others = np.random.default_rng([seed, fold]).permutation(np.concatenate(drawn[:fold] + drawn[fold + 1 :]))
    few = others if labelled is None else others[:labelled]
    train, test = sequences(tokens, np.sort(few)), sequences(tokens, drawn[fold])
    pool = None if labelled is None else sequences(tokens, np.sort(others[labelled:]))
    return make_tokens(train, test, lines, pool)


def without_labels(tokens: Tokens, training: str, iterations: int, smoothing: float) -> np.ndarray:
    """Labels by a model that begins with the counts and goes on with the same references, labels put away."""
    first = HmmOptions(smoothing=smoothing)
    then = first._replace(training=training, max_iterations=iterations, tolerance=0.0)
    space = space_of(tokens.train, len(tokens.labels), tokens.stream, emitting(tokens.lines), first)
    begun = HmmStart(fit_tables(space, tokens.train, first).probabilities, None, 0.0, 0)
    plain = tokens.train._replace(labels=np.full(len(tokens.train.labels), -1, np.int32))
    found = fit_tables(space, plain, then, start=begun)
    theta = space.theta(found.probabilities)
    return decode.viterbi(completed(tokens.test, space.beside), space.layout, theta)


def labelled(
    way: str, streams: str, iterations: int, smoothing: float, parts: int, seed: int, corpus: Path
) -> dict:  # fmt: skip
    """All folds of one way to learn from all labels of the other folds."""
    rows = []
    for fold in range(parts):
        if way == "crf":
            lines = [*STREAMS[streams], *(WINDOW if streams == "overlapping" else []), *CONSTANTS]
            tokens = cut(corpus, parts, fold, seed, lines)
            said = by_gradient(tokens, "crf", ElasticNet(0.0, 0.5), iterations).labels
        else:
            tokens = cut(corpus, parts, fold, seed, STREAMS[streams])
            said = (by_hmm(tokens, HmmOptions(smoothing=smoothing)).labels if way == "counts"
                    else without_labels(tokens, way, iterations, smoothing))  # fmt: skip
        rows.append(accuracies(tokens.test, said, tokens.labels))
    return added(rows)


def few(
    way: str, streams: str, count: int, weight: float, iterations: int, smoothing: float, parts: int, seed: int,
    corpus: Path,
) -> dict:  # fmt: skip
    """The same from a few labelled references, the others of the training folds as a pool."""
    rows = []
    for fold in range(parts):
        tokens = cut(corpus, parts, fold, seed, STREAMS[streams], count)
        options = HmmOptions(training=way, smoothing=smoothing, max_iterations=iterations)
        rows.append(accuracies(tokens.test, by_hmm(tokens, options, weight).labels, tokens.labels))
    return added(rows)


def added(rows: list[dict]) -> dict:
    """Counts of all folds together, and shares of them; `folds` has the share of tokens in each."""
    sums = {name: np.sum([row[name] for row in rows], axis=0).tolist() for name in PERCENTS}
    names = sorted(set().union(*(row["by_field"] for row in rows)))
    by_field = {name: np.sum([row["by_field"].get(name, [0, 0]) for row in rows], axis=0).tolist() for name in names}
    return {name: right / max(1, every) for name, (right, every) in sums.items()} | {
        "by_field": {name: right / max(1, every) for name, (right, every) in by_field.items()},
        "folds": [row["token"][0] / row["token"][1] for row in rows], "tokens": sums["token"][1],
        "fields": sums["field"][1], "references": sums["reference"][1],
    }  # fmt: skip

"""Parts of speech by hidden Markov models (THESIS 3.4.1, IIS table 2.2): cells of the experiment `hmm-pos`."""

from pathlib import Path

import numpy as np

from espalier.engine.families.hmm_options import HmmOptions
from espalier.engine.optimise.penalty import ElasticNet
from espalier.tasks.experiments.family_fits import (
    FittedLabels,
    Tokens,
    by_gradient,
    by_hmm,
    make_tokens,
    sequences,
    tokens_of,
)

WORDS = ["Uw:%x[0,0]"]
SPELLING = [*WORDS, "Ue:%s[0,0,2]", 'Uc:%t[0,0,"^\\u"]', 'Ud:%t[0,0,"\\d"]', 'Uh:%t[0,0,"-"]']
STREAMS = {"words": WORDS, "spelling": SPELLING}
CONSTANTS = ["U", "B"]  # of chains that gradients train: hidden Markov models have transitions by themselves


def errors(tokens: Tokens, found: FittedLabels) -> dict:
    """Over all, known and unknown words; a tag that the training part lacks counts as wrong."""
    wrong = found.labels != tokens.test.labels
    parts = {"error": wrong, "known": wrong[tokens.known], "unknown": wrong[~tokens.known]}
    rates = {name: float(part.mean()) if len(part) else 0.0 for name, part in parts.items()}
    return rates | {"tokens": len(wrong), "unknown_share": float(1 - tokens.known.mean())} | found.figures


def parts_of(corpus: Path, train: int, test: int, streams: str, more: list[str]) -> Tokens:
    """The first sentences and the last ones."""
    tokens = tokens_of(corpus)
    count = int(tokens["sequence"].max()) + 1
    wanted = np.arange(min(train, count - test)), np.arange(count - test, count)
    return make_tokens(*(sequences(tokens, ids) for ids in wanted), [*STREAMS[streams], *more])


def counted(streams: str, rare: int, train: int, test: int, corpus: Path) -> dict:
    """A hidden Markov model of relative counts; with rare = 0 nothing tells how unknown words are tagged."""
    tokens = parts_of(corpus, train, test, streams, [])
    return errors(tokens, by_hmm(tokens, HmmOptions(rare=rare)))


def trained(family: str, streams: str, rho2: float, iterations: int, train: int, test: int, corpus: Path) -> dict:
    """A crf or memm with the same observations."""
    tokens = parts_of(corpus, train, test, streams, CONSTANTS)
    return errors(tokens, by_gradient(tokens, family, ElasticNet(0.0, rho2), iterations))


def few_labels(
    streams: str, labelled: int, training: str, weights: list[float], pool_texts: bool, iterations: int, train: int,
    test: int, corpus: Path,
) -> dict:  # fmt: skip
    """A training from a few labelled sentences, the others of the training part as a pool that counts so much each."""
    tokens = tokens_of(corpus)
    count = int(tokens["sequence"].max()) + 1
    train = min(train, count - test)
    cuts = np.arange(labelled), np.arange(count - test, count), np.arange(labelled, train)
    few, last, pool = (sequences(tokens, ids) for ids in cuts)
    made = make_tokens(few, last, STREAMS[streams], pool, pool_texts)
    options = HmmOptions(training=training, max_iterations=iterations)
    return {"labelled": labelled, "training": training,
            "rows": [{"weight": w} | errors(made, by_hmm(made, options, w)) for w in weights]}  # fmt: skip

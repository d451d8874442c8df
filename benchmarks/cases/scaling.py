"""How a gradient's time grows with tokens and with labels, on a corpus drawn at random."""

from collections.abc import Iterator

import numpy as np

from benchmarks import ours
from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.data.dataset import make_dataset
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.weights.layout import BIGRAM, UNIGRAM, dense_layout

LENGTH, UNIGRAMS, BIGRAMS, TEMPLATES = 20, 2000, 10, 4
TOKENS, FEW_LABELS = 50_000, 20
LABELS = (10, 20, 50, 100, 200)
SPARSE = 0.05  # share of the bigram weights that are not zero


def rows(context: Context) -> Iterator[dict]:
    tokens = 400 if context.quick else TOKENS
    for times in (1, 2) if context.quick else (1, 2, 4, 8):
        yield from _row(context, f"tokens x{times}", times * tokens, FEW_LABELS, 1.0)
    for share, name in ((1.0, "dense"), (SPARSE, "5 % dense")):
        for labels in (6,) if context.quick else LABELS:
            yield from _row(context, f"bigrams {name}, {labels} labels", tokens, labels, share)


def _row(context: Context, setting: str, tokens: int, labels: int, share: float) -> Iterator[dict]:
    found = context.job("scaling:gradient", OURS, setting, 2, tokens=tokens, labels=labels, share=share)
    if found:
        yield context.row(OURS, f"{setting}, {tokens:,} tokens", found)


def gradient(data: str, quick: bool, tokens: int, labels: int, share: float) -> dict:
    """A few templates of unigram weights and one of bigram weights; theta is drawn at random."""
    random = np.random.default_rng(0)
    unigrams = random.integers(BIGRAMS, BIGRAMS + UNIGRAMS, (tokens, TEMPLATES))
    observations = np.column_stack([random.integers(0, BIGRAMS, tokens), unigrams])
    offsets = np.append(np.arange(0, tokens, LENGTH), tokens)
    dataset = make_dataset(observations, random.integers(0, labels, tokens), offsets)
    layout = dense_layout(labels, np.repeat([BIGRAM, UNIGRAM], [BIGRAMS, UNIGRAMS]), start=False)
    theta = random.normal(scale=0.1, size=layout.size)
    begin = layout.bounds()[1]
    theta[begin:][random.random(layout.size - begin) >= share] = 0.0
    seconds = ours.gradient_seconds(ChainObjective(dataset, layout), theta)
    return {"seconds_per_gradient": seconds, "active": int(np.count_nonzero(theta)),
            "tokens_per_second": tokens / seconds}  # fmt: skip

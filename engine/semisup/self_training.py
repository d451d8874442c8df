"""Self-training (THESIS 4.1): label the pool by the model, keep what it is sure of, train again.

A plain loop around any learner. `fit(chosen, labels)` trains on the labelled data and on the pool's inputs `chosen`
with the labels given, and returns a model; `guess(model)` labels the whole pool and says how sure it is of each input.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from espalier.engine.data.bags import (
    Bags,
    check_instance_weights,
    check_labels,
    join_bags,
    refuse_empty_pool,
    select_bags,
)
from espalier.engine.data.dataset import Dataset, join, select
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.runtime.vectors import exp
from espalier.engine.weights.layout import Layout


@dataclass
class SelfTrained:
    model: object
    rounds: list[dict] = field(default_factory=list)  # chosen inputs, and how many of them are new or relabelled


def self_train(fit: Callable, guess: Callable, threshold: float = 0.9, rounds: int = 10) -> SelfTrained:
    """At most `rounds` rounds; it ends when a round chooses the same inputs with the same labels as the one before.

    An input is chosen when its confidence is at least `threshold`. Each round chooses afresh, so that what was taken
    too early can be left out again.
    """
    if not 0 <= threshold <= 1:
        raise EspalierError(f"threshold is {threshold}: expected a probability, from 0 to 1")
    if rounds < 0:
        raise EspalierError(f"rounds is {rounds}: expected at least 0")
    chosen: dict[int, bytes] = {}
    trained = SelfTrained(fit(np.zeros(0, np.int64), None))
    for _ in range(rounds):
        labels, confidence = guess(trained.model)
        sure = np.flatnonzero(confidence >= threshold)
        now = {int(n): np.asarray(labels[n]).tobytes() for n in sure}
        changed = sum(chosen.get(n) != label for n, label in now.items()) + len(chosen.keys() - now.keys())
        if not changed:
            break
        chosen = now
        trained.model = fit(sure, [labels[n] for n in sure])
        trained.rounds.append({"chosen": len(sure), "changed": changed})
    return trained


def self_train_documents(
    fit: Callable, bags: Bags, labels, pool: Bags, n_classes: int = 2, weights=None, pool_weight: float = 1.0,
    threshold: float = 0.9, rounds: int = 10,
) -> SelfTrained:  # fmt: skip
    """Around a classifier: fit(bags, labels, n_classes, weights) returns a model with `probabilities`.

    The confidence is the probability of the likeliest class; an input of the pool has the weight `pool_weight`.
    """
    labels, weights = check_labels(labels, bags.size, n_classes), check_instance_weights(weights, bags.size)
    refuse_empty_pool(pool)

    def train(chosen, guessed):
        if not len(chosen):
            return fit(bags, labels, n_classes, weights)
        both = join_bags(bags, select_bags(pool, chosen))
        return fit(both, np.concatenate([labels, guessed]), n_classes,
                   np.concatenate([weights, np.full(len(chosen), float(pool_weight))]))  # fmt: skip

    def guess(model):
        probabilities = model.probabilities(pool)
        return probabilities.argmax(axis=1), probabilities.max(axis=1)

    return self_train(train, guess, threshold, rounds)


def self_train_sequences(
    fit: Callable, labelled: Dataset, pool: Dataset, layout: Layout, pool_weight: float = 1.0, threshold: float = 0.9,
    rounds: int = 10,
) -> SelfTrained:  # fmt: skip
    """Around a CRF: fit(dataset) returns theta. The confidence is the probability of the best labelling as a whole."""
    if not len(pool.weights):
        raise EspalierError("the unlabelled pool is empty: expected at least one sequence, or no pool at all")

    def train(chosen, guessed):
        if not len(chosen):
            return fit(labelled)
        extra = select(pool, chosen)
        both = join(labelled, extra._replace(labels=np.concatenate(guessed), weights=pool_weight * extra.weights))
        return fit(both)

    def guess(theta):
        labels = decode.viterbi(pool, layout, theta)
        log_p = decode.sequence_log_probability(pool, layout, theta, labels)
        return np.split(labels, pool.offsets[1:-1]), exp(log_p)

    return self_train(train, guess, threshold, rounds)

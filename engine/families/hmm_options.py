"""How hidden Markov models can be trained, by name; loads neither numpy nor numba, for parameters and help."""

from typing import NamedTuple

TRAININGS = {
    "counts": "relative counts of labelled data",
    "baum-welch": "expectation-maximisation, also from partly labelled and unlabelled data",
    "viterbi": "counts of the likeliest labellings, again and again",
    "stepwise": "expectation-maximisation, the model renewed behind each batch",
    "conditional": "maximise the probability of the labels given the input",
    "mmi": "the same with all probabilities raised to a power",
    "mce": "maximise the expected number of right sequences",
}
DISCRIMINATIVE = frozenset({"conditional", "mmi", "mce"})
NEEDS_LABELS = DISCRIMINATIVE | {"counts"}
ORDERS = ("random", "short", "long")  # in which stepwise training visits sequences: short ones first, long ones first


class HmmOptions(NamedTuple):
    """All that decides a training but the data."""

    training: str = "counts"
    smoothing: float = 1e-5
    rare: int = 1
    restarts: int = 1
    power: float = 0.5  # of mmi
    seed: int = 0
    max_iterations: int = 100
    tolerance: float = 4e-4
    alpha: float = 0.7  # of stepwise
    batch: int = 50  # sequences between two steps of it
    order: str = "random"

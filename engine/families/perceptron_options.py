"""How perceptrons learn from mistakes, by name; loads neither numpy nor numba, for parameters and help."""

from typing import NamedTuple

UPDATES = {
    "perceptron": "by one, whatever the mistake",
    "pa": "passive-aggressive: as far as the mistake asks for, c at most",
    "arow": "less far for weights that were often changed",
}
LEADS = {
    "none": "learn from sequences that are labelled wrong",
    "hamming": "learn until the right labels lead by one for each label that another labelling has otherwise",
}
BOUNDS = ("none", "hard", "soft")  # of a passive-aggressive step: nothing, at most c (PA-I), c against a square (PA-II)
COSTS = ("one", "root", "hamming")  # of d wrong labels: 1, the root of d, d


class PerceptronOptions(NamedTuple):
    """All that decides a training but the data."""

    update: str = "perceptron"
    lead: str = "none"
    c: float = 1.0  # of pa
    gamma: float = 1.0  # of arow
    variance: float = 1.0  # of arow, before the first sequence
    average: bool = True
    epochs: int = 20
    seed: int = 0
    epsilon: float = 0.0  # an epoch with less loss than this for a sequence is the last
    bound: str = "hard"
    cost: str | None = None  # None: hamming for arow and for a margin, else the root
    parts: int = 1  # of the data, each learned from by itself; then their weights are mixed
    degree: int | None = None  # of the kernel (m + 1)^degree of the dual form; None: weights of attributes
    eta: float = 1.0  # what a pair of labels in common adds to that kernel

"""How boosting chooses and moves weights, by name; loads neither numpy nor numba, for parameters and help."""

from typing import NamedTuple

BOUNDS = {
    "exact": "the feature by the tight bound, its step by the loss itself",
    "tight": "a bound for each sequence, by how often the feature can be there",
    "loose": "one bound for all sequences, which long ones decide",
}
EXAMPLES = {
    "sequences": "a sequence against all its other labellings",
    "positions": "each position by itself, without weights for pairs of labels (AdaBoost.MR)",
    "neighbours": "each position given the right label before it (Viterbi-AdaBoost)",
}


class BoostingOptions(NamedTuple):
    """All that decides a training but the data."""

    bound: str = "exact"
    examples: str = "sequences"
    rounds: int = 1000
    pi: float = 0.8
    epsilon: float = 1e-5

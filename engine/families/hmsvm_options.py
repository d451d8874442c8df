"""How hidden Markov support vector machines can be trained, by name; loads neither numpy nor numba."""

from typing import NamedTuple

SLACKS = {
    "sequence": "one for each sequence, its sum weighed by C",
    "squared": "one for each sequence, the sum of squares weighed by C",
    "labelling": "one for each labelling of each sequence, their sum weighed by C",
    "hard": "none: all margins are kept, if that is possible",
}
MARGINS = {
    "one": "1 for every other labelling",
    "hamming": "the number of labels that are wrong",
}


class HmsvmOptions(NamedTuple):
    """All that decides a training but the data."""

    degree: int = 2
    C: float = 1.0
    eta: float = 1.0
    slack: str = "sequence"
    margin: str = "one"
    gap: float = 0.01
    pairs: str = "seen"
    start: bool = True
    max_iterations: int = 100

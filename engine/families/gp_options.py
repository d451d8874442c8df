"""How Gaussian processes can be trained, by name; loads neither numpy nor numba, for parameters and help."""

from typing import NamedTuple

METHODS = {
    "dense": "every row supports every label",
    "sparse": "few rows support few labels, chosen one sequence after the other",
}
PICKS = ("random", "gradient")  # which sequence is next: as chance has it, or the one with the largest gradient


class GpOptions(NamedTuple):
    """All that decides a training but the data."""

    degree: int = 2
    kappa: float = 1.0
    eta: float = 1.0
    method: str = "dense"
    share: float = 0.25
    coordinates: int = 10
    threshold: float = 1e-3
    pick: str = "random"
    pairs: str = "seen"
    start: bool = True
    seed: int = 0
    max_iterations: int = 1000
    tolerance: float = 4e-4

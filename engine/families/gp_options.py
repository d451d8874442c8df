"""How Gaussian processes can be trained, by name; loads neither numpy nor numba, for parameters and help."""

from typing import NamedTuple

METHODS = {
    "dense": "every row supports every label",
    "sparse": "few rows support few labels, chosen one sequence after the other",
}
PRODUCTS = {
    "auto": "as is cheaper",
    "rows": "what each pair of rows has in common is counted, each time",
    "features": "attributes and pairs of them are written out once, for degrees 1 and 2",
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
    products: str = "auto"
    pairs: str = "seen"
    start: bool = True
    seed: int = 0
    max_iterations: int = 1000
    tolerance: float = 4e-4

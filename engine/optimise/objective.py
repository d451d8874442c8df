"""What an objective is to a solver: a size, and the names of what it offers.

An objective states in `offers` what can be asked of it, a solver states in `needs` what it asks for, and the two are
compared once, at the door (`engine.optimise.solvers.minimise`). Nobody looks for attributes. Objectives live in rooms
before and after this one, so they state plain names; `tests/engine/test_objectives.py` holds each of them to its word.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # the table of solvers is read where numpy is not to be loaded
    import numpy as np


class Capability(NamedTuple):
    """Something that an objective may offer."""

    words: str  # as in "cd needs ..."
    attributes: tuple[str, ...]  # that an objective has if it offers this


CAPABILITIES = {
    "gradient": Capability("a gradient", ("value_and_gradient",)),
    "value": Capability("a value without a gradient", ("value",)),
    "counts": Capability("observed counts of the features", ("observed",)),
    "scaling": Capability("the curvature in each weight", ("scaling",)),
    "active": Capability("counts of the active weights", ("active",)),
    "sample": Capability("sequences to begin with", ("sample",)),
    "sequences": Capability(
        "the sequences of a chain objective",
        ("dataset", "layout", "sets", "sparse", "observed", "expectations"),
    ),
    "positions": Capability("the positions of each observation", ("positions", "dataset", "layout", "sets")),
    "blocks": Capability("blocks of weights that move one by one", ("blocks_at",)),
    "hessian": Capability("a Hessian", ("hessian",)),
    "terms": Capability("terms beside the loss of plain sequences", ("terms",)),
}


class Objective(Protocol):
    """A loss over `size` weights. Beyond these two attributes it has those of the `CAPABILITIES` that it offers."""

    size: int

    @property
    def offers(self) -> frozenset[str]:
        """Names of the `CAPABILITIES` that it has."""

    def value_and_gradient(self, theta: "np.ndarray") -> "tuple[float, np.ndarray]":
        """The loss and its gradient at theta; every objective offers it."""


def active_counts(objective: Objective, theta: "np.ndarray") -> dict[str, int]:
    """How many weights of each family are not zero, where the objective knows of families; else nothing."""
    return objective.active(theta) if "active" in objective.offers else {}

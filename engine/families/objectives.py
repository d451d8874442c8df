"""The losses that gradients train: `OBJECTIVES` by the name of the family; one that counts has none."""

from functools import partial

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.memm import MemmObjective
from espalier.engine.labels.scheme import Transitions
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.loss_table import LOG, check_loss
from espalier.engine.weights.layout import Layout

OBJECTIVES = {"crf": ChainObjective, "memm": lambda data, layout, sparse: MemmObjective(data, layout)}


def objective_of(
    family: str, data: Dataset, layout: Layout, sparse: str = "auto", loss: str = LOG, pi: float = 1.0,
    transitions: Transitions | None = None,
):  # fmt: skip
    """The objective of a family over data in this process; `pi` is the length weight of the exponential loss.

    `transitions` are those that are possible at all.
    """
    check_loss(loss, family)
    if transitions is not None:
        from espalier.engine.losses.fixed_transitions import FixedTransitions  # few need it

        if family != "crf":
            raise EspalierError(f"{family} cannot train without forbidden transitions: set family to crf")
        make = partial(objective_of, family, sparse=sparse, loss=loss, pi=pi)
        return FixedTransitions(data, layout, transitions, make, sparse)
    if loss == "marginal":
        from espalier.engine.losses.marginal_loss import MarginalObjective  # a fit loads no loss but its own

        return MarginalObjective(data, layout, sparse)
    if loss == "exponential":
        from espalier.engine.losses.exponential_loss import ExponentialObjective

        return ExponentialObjective(data, layout, sparse, pi)
    return OBJECTIVES[family](data, layout, sparse)

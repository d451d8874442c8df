"""The losses that gradients train: `OBJECTIVES` by the name of the family; one that counts has none."""

from functools import partial

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import require
from espalier.engine.families.memm import MemmObjective
from espalier.engine.labels.scheme import Transitions
from espalier.engine.losses.loss_table import LOG, check_loss
from espalier.engine.losses.triple_objective import loss_of_chain
from espalier.engine.weights.layout import Layout

OBJECTIVES = {"crf": loss_of_chain, "memm": lambda data, layout, sparse: MemmObjective(data, layout)}


def objective_of(
    family: str, data: Dataset, layout: Layout, sparse: str = "auto", loss: str = LOG, pi: float = 1.0,
    transitions: Transitions | None = None,
):  # fmt: skip
    """The objective of a family over data in this process; `pi` is the length weight of the exponential loss.

    `transitions` are those that are possible at all.
    """
    check_loss(loss, family)
    if layout.second_order:
        refuse_triples(family, loss, transitions is not None)
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


def refuse_triples(family: str, loss: str = LOG, scheme: bool = False, setting: str = "family") -> None:
    """Refuse templates that begin with T where a family, a loss or a scheme has no weights for triples of labels."""
    require(family, "triples", "leave out the templates that begin with T", setting)
    if loss != LOG:
        raise EspalierError(
            f"loss is {loss}, and templates that begin with T are trained by the log loss alone: set it to {LOG}, or "
            "leave them out"
        )
    if scheme:
        raise EspalierError(
            "a scheme makes transitions impossible in training, which templates that begin with T do not go with: set "
            "scheme to null and keep to one when labelling, or leave them out"
        )

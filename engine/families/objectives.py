"""The losses that gradients train: `OBJECTIVES` by the name of the family; one that counts has none."""

from espalier.engine.data.dataset import Dataset
from espalier.engine.families.memm import MemmObjective
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.weights.layout import Layout

OBJECTIVES = {"crf": ChainObjective, "memm": lambda data, layout, sparse: MemmObjective(data, layout)}


def objective_of(family: str, data: Dataset, layout: Layout, sparse: str = "auto") -> ChainObjective:
    """The objective of a family over data in this process."""
    return OBJECTIVES[family](data, layout, sparse)

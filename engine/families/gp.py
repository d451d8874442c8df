"""Gaussian process sequence classification as labellers: kernel CRFs, with probabilities."""

from espalier.engine.data.dataset import Dataset
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.gp_training import GpFit, fit_gp
from espalier.engine.families.row_chain import RowChain
from espalier.engine.families.support import SupportLabeller


class GpLabeller(SupportLabeller):
    """A trained model."""

    family = "gp"


def chain_of(dataset: Dataset, n_labels: int, kinds, options: GpOptions) -> RowChain:
    return RowChain(dataset, n_labels, kinds, options.pairs, options.start, options.degree, "gp")


def labeller_of(
    chain: RowChain, found: GpFit, options: GpOptions, observations: list[str], labels: list[str],
    templates: list[str], info: dict,
) -> GpLabeller:  # fmt: skip
    """The model that a training has found."""
    info = info | {
        "degree": options.degree, "kappa": options.kappa, "eta": options.eta, "method": options.method,
        "features": chain.layout.size, "stop_reason": found.stop_reason, "objective": found.objective,
        "iterations": found.trace[-1]["iteration"],
    }  # fmt: skip
    return GpLabeller.of_rows(chain, found.amounts, found.weights, observations, labels, templates, info)


def fit(
    dataset: Dataset, observations: list[str], kinds, labels: list[str], templates: list[str], info: dict,
    options: GpOptions | None = None,
) -> GpLabeller:  # fmt: skip
    """The model of some data."""
    options = options or GpOptions()
    chain = chain_of(dataset, len(labels), kinds, options)
    return labeller_of(chain, fit_gp(chain, options), options, observations, labels, templates, info)

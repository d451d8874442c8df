"""Hidden Markov support vector machines as labellers: scores with a large margin, no probabilities."""

from espalier.engine.data.dataset import Dataset
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.hmsvm_training import HmsvmFit, fit_hmsvm
from espalier.engine.families.row_chain import RowChain
from espalier.engine.families.support import SupportLabeller


class HmsvmLabeller(SupportLabeller):
    """A trained model."""

    family = "hmsvm"


def chain_of(dataset: Dataset, n_labels: int, kinds, options: HmsvmOptions) -> RowChain:
    return RowChain(dataset, n_labels, kinds, options.pairs, options.start, options.degree, "hmsvm")


def labeller_of(
    chain: RowChain, found: HmsvmFit, options: HmsvmOptions, observations: list[str], labels: list[str],
    templates: list[str], info: dict,
) -> HmsvmLabeller:  # fmt: skip
    """The model that a training has found."""
    info = info | {
        "degree": options.degree, "C": options.C, "eta": options.eta, "slack": options.slack,
        "margin": options.margin, "features": chain.layout.size, "stop_reason": found.stop_reason,
        "objective": found.objective, "iterations": found.trace[-1]["iteration"],
        "support_labellings": found.supports, "support_sequences": found.supported,
    }  # fmt: skip
    return HmsvmLabeller.of_rows(chain, found.amounts, found.weights, observations, labels, templates, info)


def fit(
    dataset: Dataset, observations: list[str], kinds, labels: list[str], templates: list[str], info: dict,
    options: HmsvmOptions | None = None,
) -> HmsvmLabeller:  # fmt: skip
    """The model of some data."""
    options = options or HmsvmOptions()
    chain = chain_of(dataset, len(labels), kinds, options)
    return labeller_of(chain, fit_hmsvm(chain, options), options, observations, labels, templates, info)

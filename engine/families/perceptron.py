"""Structured perceptrons as labellers: chains whose scores compare labellings and are no probabilities.

`engine.families.perceptron_training` says how the weights are found, `perceptron_dual` how rows with a kernel are.
"""

from typing import Self

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.perceptron_dual import chain_of, fit_dual
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.row_chain import RowChain
from espalier.engine.families.support import SupportLabeller
from espalier.engine.model_file import ModelFile

OF_ATTRIBUTES = frozenset({"warm_start", "values"})  # what needs weights of attributes


class PerceptronLabeller(CrfLabeller):
    """A trained model of weights; `read` gives one of rows where a file holds that."""

    family = "perceptron"

    @classmethod
    def read(cls, file: ModelFile) -> "PerceptronLabeller | DualPerceptronLabeller":
        return DualPerceptronLabeller.read(file) if "degree" in file.head else super().read(file)


class DualPerceptronLabeller(SupportLabeller):
    """A trained model in its dual form: rows that support labels."""

    family = "perceptron"

    @property
    def can(self) -> frozenset[str]:
        return super().can - OF_ATTRIBUTES

    @classmethod
    def of_theta(
        cls, chain: RowChain, theta: np.ndarray, observations: list[str], labels: list[str], templates: list[str],
        info: dict, options: PerceptronOptions,
    ) -> Self:  # fmt: skip
        """The model of what a training has found: A, and the weights of pairs behind it."""
        amounts, weights = theta[: chain.cells].reshape(-1, chain.n_labels), theta[chain.cells :]
        info = info | {"degree": options.degree, "eta": options.eta}
        return cls.of_rows(chain, amounts, weights, observations, labels, templates, info)


def fit(
    dataset: Dataset, observations: list[str], kinds, labels: list[str], templates: list[str], info: dict,
    options: PerceptronOptions,
) -> DualPerceptronLabeller:  # fmt: skip
    """The model of some data in the dual form, with weights for the pairs of labels that are seen together."""
    chain = chain_of(dataset, len(labels), kinds, options, "seen", True)
    theta = fit_dual(chain, options).theta
    return DualPerceptronLabeller.of_theta(chain, theta, observations, labels, templates, info, options)

"""Structured perceptrons as labellers: chains whose scores compare labellings and are no probabilities.

`engine.families.perceptron_training` says how the weights are found.
"""

from espalier.engine.families.crf import CrfLabeller


class PerceptronLabeller(CrfLabeller):
    """A trained model."""

    family = "perceptron"

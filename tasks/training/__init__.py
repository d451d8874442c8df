"""What surrounds the training of a model: trainers of the families, the plan before them, checkpoints, paths, sweeps.

A trainer is a module here with `plan(job)`, what training will take, and `fit(job)`, which trains; the table below
names the one of each family.
"""

from importlib import import_module
from types import ModuleType

TRAINERS = {
    "crf": "by_gradient", "memm": "by_gradient", "hmm": "hidden_markov", "gp": "kernel_machine",
    "hmsvm": "kernel_machine",
    "perceptron": "perceptrons", "boosting": "boosted",
}  # fmt: skip


def trainer_of(family: str) -> ModuleType:
    """The module that trains a family; loaded when it is asked for."""
    return import_module(f"espalier.tasks.training.{TRAINERS[family]}")

"""The algorithms of CRFsuite and their parameters: names, defaults, help."""

from collections.abc import Callable
from typing import Any, NamedTuple, SupportsInt

from espalier.engine.errors import EspalierError, quoted

UNLIMITED = 2**31 - 1

Setting = bool | int | float | str


class Parameter(NamedTuple):
    """A parameter: what makes its values of others, which it has where none is set, what it is for."""

    kind: Callable[[Any], Setting]
    default: Setting
    help: str


def truth(value: str | SupportsInt) -> bool:
    return bool(int(value))


FEATURES = {
    "feature.minfreq": Parameter(float, 0.0, "Attribute with label, or transition, must occur this often."),
    "feature.possible_states": Parameter(truth, False, "Weights for all pairs of attribute and label."),
    "feature.possible_transitions": Parameter(truth, False, "Weights for all pairs of labels."),
}
UNUSED = "Accepted and not used: the solver here needs none."
STOPPING = {
    "period": Parameter(int, 10, "Iterations that are looked back on to see whether to stop."),
    "delta": Parameter(float, 1e-5, "Stop when they have lowered the objective by less than this share of it."),
}
EPOCHS = {
    "max_iterations": Parameter(int, 100, "The largest number of iterations."),
    "epsilon": Parameter(float, 0.0, "Stop when the mean loss of a sequence in an iteration is less."),
}
ALGORITHMS = {
    "lbfgs": FEATURES
    | {
        "c1": Parameter(float, 0.0, "Strength of the L1 penalty c1 |w|_1."),
        "c2": Parameter(float, 1.0, "Strength of the L2 penalty c2 |w|_2^2."),
        "max_iterations": Parameter(int, UNLIMITED, "The largest number of iterations."),
        "num_memories": Parameter(int, 6, UNUSED),
        "epsilon": Parameter(float, 1e-5, UNUSED),
        **STOPPING,
        "linesearch": Parameter(str, "MoreThuente", UNUSED),
        "max_linesearch": Parameter(int, 20, UNUSED),
    },
    "l2sgd": FEATURES
    | {
        "c2": Parameter(float, 1.0, "Strength of the L2 penalty c2 |w|_2^2."),
        "max_iterations": Parameter(int, 1000, "The largest number of iterations."),
        "period": STOPPING["period"],
        "delta": STOPPING["delta"]._replace(default=1e-6),
        "calibration.eta": Parameter(float, 0.1, UNUSED),
        "calibration.rate": Parameter(float, 2.0, UNUSED),
        "calibration.samples": Parameter(float, 1000.0, UNUSED),
        "calibration.candidates": Parameter(int, 10, UNUSED),
        "calibration.max_trials": Parameter(int, 20, UNUSED),
    },
    "averaged-perceptron": FEATURES | EPOCHS,
    "passive-aggressive": FEATURES
    | {
        "type": Parameter(int, 1, "How far a mistake moves weights: 0 as it asks for, 1 at most c (PA-I), 2 PA-II."),
        "c": Parameter(float, 1.0, "The larger, the further a mistake may move weights."),
        "error_sensitive": Parameter(truth, True, "Whether the cost of a mistake grows with its wrong labels."),
        "averaging": Parameter(truth, True, "Keep the mean of the weights after every sequence."),
        **EPOCHS,
    },
    "arow": FEATURES
    | {
        "variance": Parameter(float, 1.0, "Variance of the weights in the beginning."),
        "gamma": Parameter(float, 1.0, "The larger, the shorter the steps."),
        **EPOCHS,
    },
}
SHORT = {"ap": "averaged-perceptron", "pa": "passive-aggressive"}
UPDATES = {"averaged-perceptron": "perceptron", "passive-aggressive": "pa", "arow": "arow"}  # of a perceptron


def algorithm_named(name: str) -> str:
    """A name of `ALGORITHMS`, or an error that says what else there is."""
    name = SHORT.get(str(name).lower(), str(name).lower())
    if name not in ALGORITHMS:
        raise EspalierError(f"algorithm {quoted(name)} is not known: choose one of {', '.join(ALGORITHMS)}")
    return name

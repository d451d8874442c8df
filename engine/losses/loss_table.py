"""`LOSSES`, what a chain may be trained to minimise; read for a `--help`, so it loads neither numpy nor numba."""

from dataclasses import dataclass
from numbers import Real

from espalier.engine.errors import EspalierError, brief, quoted

LOG = "log"


@dataclass(frozen=True)
class Loss:
    """What a report calls it, and what is said when a training with it begins."""

    title: str
    advice: str = ""


LOSSES = {
    LOG: Loss("log loss"),
    "marginal": Loss(
        "marginal loss, label by label",
        "it is not convex, so that solver auto (hybrid) begins with an epoch of the log loss, and other solvers where "
        "they are told to; decoding label by label goes with it (posterior)",
    ),
    "exponential": Loss(
        "exponential loss",
        "log R is minimised, which is of the size of one sequence's loss: the penalties weigh about as many times as "
        "much as there are sequences, and smaller ones than for the log loss are needed",
    ),
}
# What these need of a solver is a gradient; `engine.optimise.solvers` compares that at the door.
OFFERED = frozenset({"gradient"})


def check_loss(loss: str, family: str = "crf") -> None:
    """Refuse a loss that there is none of, or not for this family."""
    if not isinstance(loss, str) or loss not in LOSSES:
        raise EspalierError(f"loss {quoted(str(loss))} is not known: choose one of {', '.join(LOSSES)}")
    if loss != LOG and family != "crf":
        raise EspalierError(f"{family} cannot minimise the {loss} loss: set family to crf, or loss to {LOG}")


def check_pi(pi: float) -> None:
    """Refuse a length weight that is none."""
    if isinstance(pi, bool) or not isinstance(pi, Real) or not 0.0 < pi <= 1.0:
        raise EspalierError(f"pi is {brief(pi)}: expected a number above 0 and up to 1, by which each position counts")

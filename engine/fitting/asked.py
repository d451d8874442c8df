"""What was asked of a fit: the parameters of the estimator by name, and what is refused among them."""

from numbers import Integral, Real
from types import SimpleNamespace

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families import family as family_of
from espalier.engine.families import require
from espalier.engine.families.gp_options import METHODS, PICKS
from espalier.engine.families.hmm_options import NEEDS_LABELS, ORDERS, TRAININGS
from espalier.engine.families.hmsvm_options import MARGINS, SLACKS
from espalier.engine.families.memm import PER_LABEL, SHARED
from espalier.engine.families.support import MOST_DEGREE
from espalier.engine.losses.loss_table import check_loss, check_pi

Asked = SimpleNamespace  # the parameters of `engine.estimator.CRF`

AUTO = "auto"  # rho1 that held-out sequences choose
NUMBERS = (
    "rho2", "tolerance", "dev_share", "smoothing", "power", "alpha", "kappa", "eta", "share", "threshold", "C",
    "gap", "c", "gamma", "epsilon",
)  # fmt: skip
WHOLE_NUMBERS = (
    "max_iterations", "min_count", "seed", "rare", "restarts", "batch", "coordinates", "epochs", "rounds",
)  # fmt: skip
NO_STOP = {
    "memm": "a label there is normalised given the one before it, and an end that is no label cannot be; leave it out",
    "hmm": "the end of a sequence is one of its events in any case; leave it out",
    "gp": "its weights of pairs are of labels in a row alone; leave it out",
    "hmsvm": "its weights of pairs are of labels in a row alone; leave it out",
}
WITH_SCHEME = ("crf", "boosting")  # that can be trained within the transitions of a scheme


def must(asked: Asked, ability: str, otherwise: str) -> None:
    """Refuse a family that lacks an ability."""
    require(asked.family, ability, otherwise, "family")


def no_search(asked: Asked) -> None:
    """Refuse `rho1="auto"` of a family that has no penalty."""
    if asked.rho1 == AUTO:
        must(asked, "path", "set rho1 to a number, which it does not use")


def is_generative(family: str) -> bool:
    """Whether it is one of inputs and labels together: each template makes one of its observations."""
    return "likelihood" in family_of(family).can


def check(asked: Asked) -> None:
    """Refuse parameters of a wrong kind; what they must be beyond that is said where they are used."""
    require(asked.family, "labels", setting="family")
    if asked.stop and asked.family != "crf":
        why = NO_STOP.get(asked.family, "only a crf has them; leave it out")
        raise EspalierError(f"stop is {asked.stop!r} and family {asked.family!r}: {why}")
    if asked.scheme is not None and (not isinstance(asked.scheme, str) or asked.family not in WITH_SCHEME):
        raise EspalierError(
            f"scheme is {brief(asked.scheme)} and family {asked.family!r}: expected None, or with family "
            f"{' or '.join(map(repr, WITH_SCHEME))} {AUTO!r} or the name of a tagging scheme"
        )
    if not _is_number(asked.rho1, Real) and asked.rho1 != AUTO:
        raise EspalierError(f"rho1 is {quoted(asked.rho1)}: expected a number of at least 0, or {AUTO!r}")
    if asked.weights not in (SHARED, PER_LABEL) or (asked.weights == PER_LABEL and asked.family != "memm"):
        raise EspalierError(
            f"weights is {quoted(asked.weights)} and family {asked.family!r}: expected 'shared', or 'per-label' with "
            "family 'memm'"
        )
    if asked.weights == PER_LABEL and not asked.start:
        raise EspalierError(
            "weights is 'per-label' and start False: the first label of a sequence would have no weight; set start "
            "to True"
        )
    for names, kind, words in ((NUMBERS, Real, "number"), (WHOLE_NUMBERS, Integral, "whole number")):
        for name in names:
            if not _is_number(getattr(asked, name), kind):
                raise EspalierError(f"{name} is {quoted(getattr(asked, name))}: expected a {words} of at least 0")
    for name in ("scale", "average"):
        if not isinstance(getattr(asked, name), bool | np.bool_):
            raise EspalierError(f"{name} is {brief(getattr(asked, name))}: expected True or False")
    check_loss(asked.loss, asked.family)
    check_pi(asked.pi)
    for name, known in (("training", tuple(TRAININGS)), ("order", ORDERS), ("method", tuple(METHODS)),
                        ("pick", PICKS), ("slack", tuple(SLACKS)), ("margin", tuple(MARGINS))):  # fmt: skip
        if getattr(asked, name) not in known:
            raise EspalierError(f"{name} is {quoted(getattr(asked, name))}: expected one of {', '.join(known)}")
    for name, least, most in (
        ("restarts", 1, None), ("batch", 1, None), ("power", 1e-3, None), ("alpha", 0.5, 1),
        ("kappa", 1e-9, None), ("eta", 1e-9, None), ("share", 1e-6, None), ("coordinates", 1, None),
        ("C", 1e-9, None),
    ):  # fmt: skip
        value = getattr(asked, name)
        if value < least or (most is not None and value > most):
            up_to = "" if most is None else f" and at most {most}"
            raise EspalierError(f"{name} is {quoted(value)}: expected a number of at least {least:g}{up_to}")
    if asked.degree is not None and not (_is_number(asked.degree, Integral) and 1 <= asked.degree <= MOST_DEGREE):
        raise EspalierError(
            f"degree is {quoted(asked.degree)}: expected a whole number of at least 1 and at most {MOST_DEGREE}, or "
            "None"
        )
    if not (asked.templates is None or isinstance(asked.templates, str) or _are_texts(asked.templates)):
        raise EspalierError(f"templates is {brief(asked.templates)}: expected a list of lines, a text or None")


def check_taught(asked: Asked, data: Dataset, n_labels: int) -> None:
    """Refuse what an HMM cannot learn from."""
    if len(data.token_weights):
        raise EspalierError(f"{asked.family} counts whole sequences: use sample_weight instead of token_weight")
    if not asked.smoothing:
        raise EspalierError(f"smoothing is {asked.smoothing}: expected a number above 0")
    if not n_labels:
        raise EspalierError("y has no label at all: expected some that are known, since they name the states")
    if asked.training in NEEDS_LABELS and data.labels.min() < 0:
        others = ", ".join(name for name in TRAININGS if name not in NEEDS_LABELS)
        raise EspalierError(
            f"training is {asked.training!r}, which needs every label, and some are not known: expected one of "
            f"{others}, or sequences that have them all"
        )


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and bool(value >= 0)  # type: ignore[operator]


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray) and all(isinstance(text, str) for text in value)

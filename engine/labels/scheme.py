"""What a tagging scheme allows: which label may begin, follow and end.

A label is O, or a prefix, a dash and a kind of chunk (B-NP). In IOB2, which most call
BIO, a chunk begins with B. In IOB1 it begins with I, and with B only where it touches
one of its own kind before it. In BIOES a chunk is S, or begins with B and ends with E.
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.labels.scheme_names import ALIASES, AUTO, PREFIXES

FORBIDDEN = -200.0  # the score of a transition that training makes impossible: e^-200 is lost in any sum with 1


class Transitions(NamedTuple):
    """What may begin, follow and end: True is allowed."""

    start: np.ndarray  # bool [Y]
    pair: np.ndarray  # bool [Y, Y], from y' to y
    end: np.ndarray  # bool [Y]


def named(labels: list[str], scheme: str) -> str:
    """The name of a scheme, auto by the labels; refused where it is not that of the labels."""
    name = _name(labels, True if scheme == AUTO else scheme)
    transitions_of(labels, name)
    return name


def transitions_of(labels: list[str], scheme: str | bool = True) -> Transitions:
    """What the scheme allows among the labels; True takes BIOES where a label has E or S, else IOB2."""
    name = _name(labels, scheme)
    tags = [_split(label, name) for label in labels]
    _check_beginnings(tags, name)
    pair = np.array([[_may_follow(before, here, name) for here in tags] for before in tags], bool)
    start = np.array([_may_follow(("O", ""), here, name) for here in tags], bool)
    end = np.array([_may_follow(before, ("O", ""), name) for before in tags], bool)
    return Transitions(start, pair, end)


def _name(labels: list[str], scheme: str | bool) -> str:
    if scheme is True:
        return "bioes" if any(label[:2] in ("E-", "S-") for label in labels) else "iob2"
    name = str(scheme).lower()
    name = ALIASES.get(name, name)
    if name not in PREFIXES:
        raise EspalierError(f"scheme {scheme!r} is not known: choose one of {', '.join([*PREFIXES, *ALIASES])}")
    return name


def _split(label: str, name: str) -> tuple[str, str]:
    prefix, dash, kind = label.partition("-")
    if label != "O" and not (dash and kind and len(prefix) == 1 and prefix in PREFIXES[name]):
        expected = ", ".join(f"{p}-…" for p in PREFIXES[name])
        raise EspalierError(f"label {label!r} is not one of {name}: expected O, {expected}; predict without a scheme")
    return prefix, kind


def _check_beginnings(tags: list[tuple[str, str]], name: str) -> None:
    """A kind that can go on but not begin could never be predicted: the labels are of another scheme."""
    begun = {kind for prefix, kind in tags if prefix == "B"}
    for prefix, kind in tags:
        if name != "iob1" and prefix in "IE" and kind not in begun:
            raise EspalierError(
                f"label '{prefix}-{kind}' has no 'B-{kind}' beside it: the labels are not {name}; "
                "name another scheme, such as iob1, or predict without one"
            )


def _may_follow(before: tuple[str, str], here: tuple[str, str], name: str) -> bool:
    """Whether tag `here` may stand after `before`; the edges of a sequence are like O."""
    same = before[1] == here[1]
    if name == "iob2":
        return here[0] != "I" or (same and before[0] in "BI")
    if name == "iob1":
        return here[0] != "B" or (same and before[0] in "BI")
    is_open = before[0] in "BI"
    return (same and here[0] in "IE") if is_open else here[0] in "BSO"


def breaks(labels: np.ndarray, offsets: np.ndarray, transitions: Transitions) -> np.ndarray:
    """How many forbidden transitions end at each position or, at last ones, behind it; unknown labels break none."""
    first, last = np.zeros((2, len(labels)), bool)
    first[offsets[:-1]] = last[offsets[1:] - 1] = True
    here, before = np.maximum(labels, 0), np.maximum(np.roll(labels, 1), 0)
    pair = transitions.pair[before, here] | (np.roll(labels, 1) < 0)
    found = (labels >= 0) & ~np.where(first, transitions.start[here], pair)
    return found.astype(np.int64) + ((labels >= 0) & last & ~transitions.end[here])


def both(one: Transitions | None, other: Transitions | None) -> Transitions | None:
    """What two schemes allow together; None allows everything."""
    if one is None or other is None:
        return one or other
    return Transitions(*(a & b for a, b in zip(one, other, strict=True)))

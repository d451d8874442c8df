"""Who competes: families by name, and settings of a family as they would stand behind `--set`."""

import shlex
from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from espalier.engine.errors import EspalierError, quoted
from espalier.engine.families import FAMILIES, family
from espalier.tasks.params import Faults, Params, changed

SHARED = ("train", "evaluate.decode")  # what an entrant may set beside the section of its family
FORM = "expected settings of one family, such as 'crf.rho1=0.1' or 'hmm train.seed=1'"


class Entrant(NamedTuple):
    """One model to train: `settings` are what makes it differ from the family as the parameters have it."""

    name: str
    family: str
    settings: tuple[str, ...]
    params: Params
    asked: bool = True  # for by its name; else it stands here because the family is there


def entrants_of(params: Params, families: Sequence[str] | None = None, settings: Sequence[str] = ()) -> list[Entrant]:
    """The families, or all that there are where None are named, and an entrant for each of `settings`; by name.

    What is not given is taken from the section `tournament` of the parameters.
    """
    families = params.tournament.families if families is None else list(families)
    named = FAMILIES if families is None else families
    faults, found = Faults(), []
    for name in named:
        with faults.collected():
            found.append(_of_family(params, name, families is not None))
    for text in settings or params.tournament.settings or ():
        with faults.collected():
            found.append(_of_settings(params, text))
    for at, entrant in enumerate(found):
        for other in found[:at]:
            with faults.collected():
                _refuse_same(other, entrant)
    faults.tell()
    if not found:
        raise EspalierError(f"no entrant: name one or more of {', '.join(FAMILIES)}, or leave --families out")
    return sorted(found, key=lambda entrant: entrant.name)


def _of_family(params: Params, name: str, asked: bool) -> Entrant:
    family(name)
    return Entrant(name, name, (), _of_its_own(params, name, ()), asked)


def _of_settings(params: Params, text: str) -> Entrant:
    """`crf.rho1=0.1`, `crf crf.rho1=0.1 train.seed=1`: the family may stand first, and must if no setting names it."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise EspalierError(f"entrant {quoted(text)}: {error}; {FORM}") from None
    first = [word for word in words[:1] if "=" not in word]
    settings = words[len(first) :]
    sections = [word.partition("=")[0].partition(".")[0] for word in settings]
    chosen = sorted({*first, *(section for section in sections if section in FAMILIES)})
    if len(chosen) != 1 or not settings:
        raise EspalierError(f"entrant {quoted(text)} names {', '.join(chosen) or 'no family'}: {FORM}")
    name = chosen[0]
    family(name)
    allowed = (name, *SHARED)
    for word, section in zip(settings, sections, strict=True):
        if section not in allowed and word.partition("=")[0] not in allowed:
            raise EspalierError(
                f"entrant {quoted(text)} sets {quoted(word.partition('=')[0])}: entrants have the same features and "
                f"may differ in {', '.join(allowed)} alone; set it for all with --set"
            )
    said = sorted(word.removeprefix(f"{name}.") for word in settings)
    return Entrant(" ".join([name, *said]), name, tuple(settings), _of_its_own(params, name, settings))


def _of_its_own(params: Params, name: str, settings: Sequence[str]) -> Params:
    """Every entrant is trained as a whole, wherever that is, and starts from nothing unless it says otherwise."""
    own = deepcopy(params)
    own.model.family, own.train.initial, own.compute.cluster = name, None, None
    return changed(own, settings, "entrant")


def _refuse_same(first: Entrant, second: Entrant) -> None:
    if first.name == second.name:
        raise EspalierError(f"entrant {quoted(first.name)} is named twice: leave one out")
    if first.params == second.params:
        raise EspalierError(f"entrants {quoted(first.name)} and {quoted(second.name)} are the same: leave one out")

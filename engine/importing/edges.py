"""What other programs call the places beyond the edges of a sequence, and how observations are renamed to ours.

CRF++ writes _B-1 and _B+1 where we write _x-1 and _x+1, and Wapiti has one name, _x-#, for all places more than four
beyond an edge. Which parts of an observation are such names and which are tokens follows from its template: for each
place that a position can have in its sequence, the template says which macros see beyond an edge, and how far.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from espalier.engine.errors import EspalierError
from espalier.engine.text.templates import HERE, Macro, Template

FARTHEST = 32  # positions beyond an edge
MOST_COPIES = 16  # of an observation, on the average


class Form(NamedTuple):
    """An expansion of a template near an edge, in their words and in ours; None stands for any text."""

    theirs: tuple[str | None, ...]
    ours: tuple[str | None, ...]
    edges: int  # how many parts are beyond an edge


def renamed(
    observations: list[str], templates: list[Template], called: Callable[[int], str], marks: tuple[str, ...], name: str
) -> list[list[str]]:
    """For each observation its names in our words: several where we tell places apart that they do not.

    `called` is what they call the place that many positions beyond an edge, below zero before the first position.
    Observations without one of the `marks` in them stay as they are. Where a token is spelt like one of our names for a
    place, such as _x-1, two observations may get the same name: it goes to the one with more places in it.
    """
    forms = [form for template in templates for form in _forms(template, called, name)]
    owner: dict[str, tuple[int, int]] = {}  # (places in it, minus its number) by name
    for number, text in enumerate(observations):
        places, names = _names(text, forms) if forms and any(mark in text for mark in marks) else (0, [text])
        for one in names:
            owner[one] = max(owner.get(one, (-1, 0)), (places, -number))
        if len(owner) > MOST_COPIES * len(observations) + 1000:
            raise EspalierError(f"{name}: its templates look too far beyond the edges; expected rows of -4 to 4")
    found: list[list[str]] = [[] for _ in observations]
    for one, (_, number) in owner.items():
        found[-number].append(one)
    return found


def _names(text: str, forms: list[Form]) -> tuple[int, list[str]]:
    """How many places beyond an edge an observation has in it, and its names."""
    matching = [(form, captured) for form in forms if (captured := match(form.theirs, text)) is not None]
    most = max((form.edges for form, _ in matching), default=0)
    names = [_filled(form.ours, captured) for form, captured in matching if form.edges == most]
    return most, names or [text]


def _forms(template: Template, called: Callable[[int], str], name: str) -> Iterator[Form]:
    """The forms of a template near edges that are not the same in both words."""
    shifts = [macro.shift for macro in template.macros if macro.origin == HERE]
    before, after = -min([0, *shifts]), max([0, *shifts])
    if max(before, after) > FARTHEST:
        far = max(before, after)
        raise EspalierError(f"{name}: `{template.line}` looks {far:,} rows away, expected at most {FARTHEST}")
    for left in range(before + 1):
        for right in range(after + 1):
            theirs, ours, edges = [], [], 0
            for part in template.parts:
                distance = _distance(part, left, right) if isinstance(part, Macro) else 0
                edges += distance != 0
                theirs.append(_part(part, distance, called))
                ours.append(_part(part, distance, lambda distance: f"_x{distance:+d}"))
            if theirs != ours:
                yield Form(tuple(theirs), tuple(ours), edges)


def _distance(macro: Macro, left: int, right: int) -> int:
    """How far beyond an edge it looks with so many positions before and after this one; 0: not at all."""
    if macro.origin != HERE:
        return 0
    return min(0, left + macro.shift) + max(0, macro.shift - right)


def _part(part: str | Macro, distance: int, called: Callable[[int], str]) -> str | None:
    if isinstance(part, str):
        return part
    return part.source.edge(called(distance))[0] if distance else None


def match(parts: tuple[str | None, ...], text: str) -> list[str] | None:
    """What stands for each None where the text is these parts put together, the shortest from the left; else None."""
    captured, at = [], 0
    for i, part in enumerate(parts):
        if part is not None:
            if not text.startswith(part, at):
                return None
            at += len(part)
            continue
        end = _end_of_any(parts, i, text, at)
        if end < at:
            return None
        captured.append(text[at:end])
        at = end
    return captured if at == len(text) else None


def _end_of_any(parts: tuple[str | None, ...], i: int, text: str, at: int) -> int:
    """Where the text for part i ends: before the run of literals behind it, at the very end if nothing else follows."""
    literal, j = "", i + 1
    while j < len(parts) and parts[j] is not None:
        literal, j = literal + parts[j], j + 1
    if j == len(parts):
        return len(text) - len(literal)
    return text.find(literal, at) if literal else at


def _filled(parts: tuple[str | None, ...], captured: list[str]) -> str:
    values = iter(captured)
    return "".join(next(values) if part is None else part for part in parts)

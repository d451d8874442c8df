"""At a glance: promoted or not, the error against the champion's, what changed and what needs a look."""

from collections.abc import Iterator
from typing import Any

from espalier.tasks.judging import headline
from espalier.tasks.judging.slices import Rate
from espalier.tasks.keeping.history import outcome
from espalier.tasks.pages.page import (
    Html,
    capital,
    card,
    cards,
    count,
    join,
    message,
    number,
    percent,
    plural,
    points,
    short,
    signed,
    table,
    tag,
)
from espalier.tasks.pages.verdict import VERDICTS, box
from espalier.tasks.report.confusions import Score
from espalier.tasks.report.record import Run, without_folders
from espalier.tasks.report.words import Metrics, Nouns, code, plain
from espalier.tasks.shapes import active_of

POOR, SUPPORT, NAMED = 0.5, 20, 3  # F1 that is worth a look, of labels that occur so often; how many are named
SURE = 0.05  # a calibration error worth a look
COMPARED = (  # key, name, how to write a figure, how to write a difference; errors stand before them
    ("active", "Active weights", number, signed),
    ("iterations", "Iterations", number, signed),
)
UNDECIDED = "The model has not been compared with the champion yet: `espalier promote` does that"


def glance(run: Run, m: Metrics, found: dict[str, Any], scores: list[Score], error: Rate, nouns: Nouns) -> Html:
    """`found` has the profile and the clusters."""
    parts = [verdict(run.decision), figures(run, m, nouns), tag("h3", "What changed"), changes(run, m, nouns)]
    worries = list(looks(run, m, found, scores, error, nouns))
    shown = tag("ul", *(tag("li", *words) for words in worries), class_="looks")
    calm = message("Nothing stands out.")
    return join([*parts, tag("h3", "What needs a look"), shown if worries else calm])


def verdict(decision: dict[str, Any]) -> Html:
    """The decision in a box."""
    return box(outcome(decision), *headline.why(decision)) if decision else box(None, UNDECIDED, [])


def badge(decision: dict[str, Any], m: Metrics, nouns: Nouns) -> Html:
    """The decision and what it rests on in one line, for the head of the page."""
    style, sign, word = VERDICTS[outcome(decision) if decision else None]
    found = compared(decision, m, nouns)
    told = f"{word}: {found.name} {percent(found.challenger, 2)}"
    if ends := own_ends(found, m, nouns):
        told += f" ({ends[0]} to {ends[1]})"
    if found.champion is not None:
        told += f", champion {percent(found.champion, 2)}"
    return tag("a", tag("span", f"{sign} ", aria_hidden="true"), told, href="#glance", class_=f"badge {style}")


def compared(decision: dict[str, Any], m: Metrics, nouns: Nouns) -> headline.Compared:
    """What the decision rests on; of a model that was not decided on yet, its own figure alone."""
    measure = headline.measure_in(m)
    called = nouns.called(measure)
    if not decision:
        return headline.Compared(called[measure], None, m.get(measure), None, None, None)
    found = headline.compared(decision)
    # An earlier version decided on errors of tokens, and did not say what these data call them.
    return found if decision.get("measure") else found._replace(name=called[headline.TOKEN])


def own_ends(found: headline.Compared, m: Metrics, nouns: Nouns) -> tuple[str, str] | None:
    """The interval of this model's own figure, where the decision rests on the measure of the task."""
    measure = headline.measure_in(m)
    return headline.ends(m, measure) if found.name == nouns.called(measure)[measure] else None


def figures(run: Run, m: Metrics, nouns: Nouns) -> Html:
    """The model and the champion by what the task is judged by; other errors are among the results."""
    found, measure = compared(run.decision, m, nouns), headline.measure_in(m)
    name = nouns.called(measure)
    ends = headline.between(m, measure) if own_ends(found, m, nouns) else None
    shown = [card(capital(found.name), percent(found.challenger, 2), "of this model, on the test data", ends)]
    if found.champion is not None:
        within = f"between {points(found.low)} and {points(found.high)} in resamples of the test data"
        difference = points(found.difference).removesuffix(" points")
        shown.append(card("Champion", percent(found.champion, 2), "the model it was compared with"))
        shown.append(card("Difference", difference, "percentage points", within))
    if measure != headline.TOKEN:
        shown.append(card(capital(name[headline.TOKEN]), percent(m.get(headline.TOKEN), 2), "of this model"))
    return cards(shown)


# What changed ---------------------------------------------------------------------------------------


def changes(run: Run, m: Metrics, nouns: Nouns) -> Html:
    """Against the last retraining before this one."""
    if not run.before:
        return message("There is no earlier retraining on record to compare this one with.")
    active = sum(active_of(m).values())
    measure = headline.measure_in(m)
    called, errors = nouns.called(measure), headline.shown(measure)[:2]
    now = {name: m.get(name) for name in (*errors, "iterations")} | {"active": active}
    lines = [*((key, capital(called[key]), lambda v: percent(v, 2), points) for key in errors), *COMPARED]
    rows = [
        (name, write(run.before[key]), write(now[key]), differ(now[key] - run.before[key]))
        for key, name, write, differ in lines
        if now[key] is not None and run.before.get(key) is not None
    ]
    shown = table("Against the retraining before", ("", "Before", "Now", "Difference"), rows, (1, 2, 3), "changes")
    words = [tag("li", *told) for told in changed_inputs(run)]
    return join([shown, tag("ul", *words, class_="looks") if words else ""])


def changed_inputs(run: Run) -> Iterator[tuple[Any, ...]]:
    """Data and parameters that are not those of the retraining before."""
    old, new = run.before.get("data_version"), run.data_version
    if old and new and old != new:
        yield "New data: version ", code(short(old)), " became ", code(short(new)), "."
    elif old and new:
        yield ("The data are the same as before.",)
    for name, (was, became) in run.changed.items():
        yield code(name), ": ", plain(without_folders(was)), " became ", plain(without_folders(became)), "."
    if run.model and run.before.get("model_sha256") == run.model:
        yield ("The model is the same, byte for byte.",)


# What needs a look ----------------------------------------------------------------------------------


def link(text: str, key: str) -> Html:
    return tag("a", text, href=f"#{key}")


def looks(
    run: Run, m: Metrics, found: dict[str, Any], scores: list[Score], error: Rate, nouns: Nouns
) -> Iterator[tuple[Any, ...]]:
    """What an engineer on call would want to know, the gravest first; each with where to read on."""
    d, drift = run.decision, found.get("clusters") or {}
    if d.get("forced"):
        yield ("The promotion was forced: see why it had been refused above.",)
    for text in d.get("warnings") or ():
        yield (f"{capital(str(text))}.",)
    lost = [row["label"] for row in d.get("labels") or () if isinstance(row, dict) and row.get("regressed")]
    if lost:
        yield "Worse than the champion on ", *named(lost), ": ", link("confusions", "confusions"), "."
    if m.get("stop_reason") in ("max_iterations", "stopped"):
        why = "at the limit of iterations" if m["stop_reason"] == "max_iterations" else "because it was asked to"
        yield f"Training stopped {why}, before it was done: ", link("learning curve", "learning"), "."
    if drift.get("drifted"):
        yield "The unlabelled data have drifted from the labelled ones: ", link("drift", "drift"), "."
    if unknown := m.get("sequences_with_unknown_labels"):
        yield (f"{capital(count(unknown, nouns.sequence))} of the test data with labels that training never saw.",)
    kinds = m.get("chunks") or {}
    poor = [name for name, c in kinds.items() if c["gold"] >= SUPPORT and c["f1"] < POOR] if kinds else [
        s.label for s in scores if s.support >= SUPPORT and s.f1 < POOR]  # fmt: skip
    if poor:
        what = "kind of entity" if kinds else nouns.label
        what = what if len(poor) == 1 else "kinds of entities" if kinds else plural(what)
        place = link("entities", "chunks") if kinds else link("confusions", "confusions")
        yield f"F1 below {percent(POOR, 0)} for {len(poor)} {what}: ", *named(poor), ", ", place, "."
    if error.low is not None and error.low > SURE:
        off = f"Stated confidences are off by {percent(error.value)} on average: "
        yield off, link("calibration", "calibration"), "."
    findings = (found.get("profile") or {}).get("findings") or {}
    for key, text in (("conflicts", "the same input has different labels"),
                      ("illegal_transitions", "labels follow each other against their scheme"),
                      ("strange_characters", "tokens hold control or replacement characters")):  # fmt: skip
        if amount := (findings.get(key) or {}).get("count"):
            yield f"In the data {text}, {'once' if amount == 1 else count(amount, 'time')}: ", link("data", "data"), "."


def named(labels: list[str]) -> Iterator[Any]:
    """The first few as code, the rest as a number."""
    yield join(map(code, labels[:NAMED]), ", ")
    if len(labels) > NAMED:
        yield f" and {number(len(labels) - NAMED)} more"

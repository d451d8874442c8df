"""A tournament for people: a table in the terminal, a page."""

import shlex
from typing import Any

from espalier.engine.families import FAMILIES
from espalier.tasks.pages.page import (
    MISSING,
    Html,
    capital,
    card,
    cards,
    count,
    facts,
    join,
    lead,
    message,
    number,
    page,
    percent,
    plural,
    points,
    section,
    table,
    tag,
    when,
)

PAGE = "reports/tournament.html"
HOW = {"refused": "refused", "left out": "left out, as nobody asked for it", "failed": "failed"}
Figures = dict[str, Any]


def span(found: dict | None) -> str:
    """`+0.31 points (−0.10 to +0.70)`; a dash for what is not compared with itself."""
    if found is None:
        return MISSING
    low = points(found["low"]).removesuffix(" points")
    return f"{points(found['value'])} ({low} to {points(found['high']).removesuffix(' points')})"


def in_a_cell(text: str) -> str:
    """A figure that goes on the next line, where it must, with its interval as a whole."""
    return text.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")


def within(found: dict) -> str:
    return f"{percent(found['value'], 2)} ({percent(found['low'], 2)} to {percent(found['high'], 2)})"


def size(amount: int) -> str:
    """Bytes as a person says them."""
    return f"{amount / 1e6:,.1f} MB" if amount >= 1e5 else f"{amount / 1e3:,.1f} kB"


def seconds(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f} s" if value >= 0.95 else f"{1000 * value:,.0f} ms"


def trained_in(times: dict) -> str:
    return seconds(times["training"]) + ("" if times["alone"] else ", beside others")


def speed(figures: Figures, times: dict) -> str:
    """Tokens of the test data in a second."""
    taken = times.get("tagging")
    return f"{figures['test']['tokens'] / taken:,.0f}" if taken else MISSING


def next_command(figures: Figures) -> str:
    """What puts the winner before the usual gate, with its own parameters on record."""
    return shlex.join(["espalier", "promote", *(word for one in figures["winner_settings"] for word in ("--set", one))])


def verdict(figures: Figures) -> str:
    """The winner, and what it was chosen by."""
    by = f"the best {figures['measure_name']}"
    first = figures["entrants"][0]
    equal = sum(row["chosen"] == first["chosen"] for row in figures["entrants"])
    where = "on the development data" if figures["chosen_by"] == "dev" else (
        "on the test data, as there are no development data: its figures there are those of the luckiest"
    )  # fmt: skip
    shared = f", the smallest of {equal} with the same" if equal > 1 else ""
    return f"of {count(len(figures['entrants']), 'model')} {first['name']} has {by} {where}{shared}"


def as_page(figures: Figures, times: dict[str, dict], project: str, time: str) -> str:
    """One page; `times` are seconds of each entrant, `time` is when it ended."""
    title = "Tournament of models"
    told = facts([("Project", project), ("When (UTC)", when(time)), ("Entrants", number(len(figures["entrants"])))])
    top = join([tag("p", "Espalier tournament", class_="eyebrow"), tag("h1", title), told])
    parts = [
        ("winner", "The winner", _winner(figures, times)),
        ("quality", capital(figures["measure_name"]), _quality(figures)),
        ("cost", "Size and time", _cost(figures, times)),
        ("certainty", "How sure they are", _certainty(figures)),
        ("alone", "What one gets right and others miss", _alone(figures)),
        ("others", "Without a model", _others(figures)),
    ]
    shown = [(key, name, body) for key, name, body in parts if body]
    body = join(section(key, name, body) for key, name, body in shown)
    return page(f"{title}: {project}", body, header_html=top, contents=[(key, name) for key, name, _ in shown])


def _winner(figures: Figures, times: dict) -> Html:
    best = figures["entrants"][0]
    own = times[best["name"]]
    found = [
        card("Winner", best["name"], FAMILIES[best["family"]].called, broad=True),
        card(f"{capital(figures['measure_name'])}, test data", percent(best["test"]["value"], 2),
             f"between {percent(best['test']['low'], 2)} and {percent(best['test']['high'], 2)}"),
        card("Active weights", number(best["active"]), size(best["bytes"])),
        card("Trained in", seconds(own["training"]), "" if own["alone"] else "beside others"),
    ]  # fmt: skip
    gate = tag(
        "p", "It is the candidate now, evaluated and reported. ", tag("code", next_command(figures)),
        " decides whether it becomes the champion.",
    )  # fmt: skip
    return join([lead(f"{capital(verdict(figures))}."), cards(found), gate])


def _quality(figures: Figures) -> Html:
    champion = figures["champion"]
    better = "higher is better" if figures["higher_is_better"] else "lower is better"
    nouns, drawn = figures["nouns"], percent(figures["level"], 0)
    told = lead(
        f"On {count(figures['test']['sequences'], nouns['sequence'])} of the test data; {better}. In brackets what "
        f"{drawn} of resamples of whole {plural(nouns['sequence'])} give, for a difference with the same drawn for "
        "both models."
    )
    by_dev = figures["chosen_by"] == "dev"
    heads = ["Entrant", *(["Development data"] if by_dev else []), "Test data", "Against the winner",
             *(["Against the champion"] if champion else [])]  # fmt: skip
    rows = [
        (row["name"], *((percent(row["chosen"], 2),) if by_dev else ()), in_a_cell(within(row["test"])),
         in_a_cell(span(row["against_winner"])), *((in_a_cell(span(row["against_champion"])),) if champion else ()))
        for row in figures["entrants"]
    ]  # fmt: skip
    if champion:
        rows.append((f"champion ({champion['family']})", *((MISSING,) if by_dev else ()),
                     in_a_cell(within(champion["test"])), MISSING, MISSING))  # fmt: skip
    return join([told, table("The best on top", heads, rows, range(1, len(heads)), "stack wrapped")])


def _cost(figures: Figures, times: dict) -> Html:
    rows = []
    for row in figures["entrants"]:
        own = times[row["name"]]
        rows.append((row["name"], number(row["active"]), size(row["bytes"]), number(row["iterations"]),
                     trained_in(own), speed(figures, own)))  # fmt: skip
    told = lead(
        "Seconds of the clock, on this machine: those of a training by itself are without compiling kernels, those of "
        "one beside others are with whatever it waited for. Models label one after the other."
    )
    heads = ("Entrant", "Active weights", "File", "Iterations", "Trained in", "Tokens a second")
    return join([told, table("As they stand above", heads, rows, range(1, len(heads)), "stack")])


def _certainty(figures: Figures) -> Html:
    rows = [(row["name"], number(row["log_loss"]), percent(row["calibration_error"], 2)) for row in figures["entrants"]]
    told = lead(
        "The calibration error is how far the model's certainty is from its accuracy on the test data; a dash stands "
        "where scores are no probabilities."
    )
    heads = ("Entrant", f"Log-loss, nats per {figures['nouns']['token']}", "Calibration error")
    return join([told, table("As they stand above", heads, rows, (1, 2), "stack")])


def _alone(figures: Figures) -> Html:
    if not figures["alone"]:
        return message("There is one model: nothing to set it beside.")
    units = figures["units"]
    noun = "entity" if units["of"] == "entity" else figures["nouns"]["token"]
    told = lead(
        f"Of {count(units['count'], noun)} {number(units['by_all'])} are right by all models, "
        f"{number(units['by_some'])} by one at least, and {number(units['by_none'])} by none."
    )
    rows = [(row["name"], number(row["right"]), number(row["only"]), number(row["missed"])) for row in figures["alone"]]
    heads = ("Entrant", "Right", "Right alone", "Alone wrong")
    parts = [told, table(f"Counts of {plural(noun)}", heads, rows, (1, 2, 3), "stack")]
    names = [row["name"] for row in figures["alone"]]
    if len(names) > 2:
        pairs = [(row["name"], *(MISSING if k == at else number(n) for at, n in enumerate(row["not_by"])))
                 for k, row in enumerate(figures["alone"])]  # fmt: skip
        caption = f"{capital(plural(noun))} that the model of the row gets right and that of the column does not"
        parts.append(table(caption, ["Right by", *names], pairs, range(1, len(names) + 1), "stack"))
    for row in figures["alone"]:
        if row["examples"]:
            parts += [tag("h3", "Right by ", tag("code", row["name"]), " alone"),
                      tag("ol", *(_example(one) for one in row["examples"]), class_="mistakes")]  # fmt: skip
    return join(parts)


def _example(one: dict) -> Html:
    low, high = one["at"]
    more = tag("span", "…", class_="gap")
    pieces = tag(
        "div", more if one["cut"][0] else "",
        *(_gloss(text, one["gold"][at - low] if low <= at < high else None) for at, text in enumerate(one["tokens"])),
        more if one["cut"][1] else "", class_="glosses",
    )  # fmt: skip
    by_answer: dict[str, list[str]] = {}
    for name, labels in one["said"].items():
        by_answer.setdefault(" ".join(labels), []).append(name)
    said = [join([tag("code", answer), " by ", ", ".join(names)]) for answer, names in by_answer.items()]
    right = tag("code", " ".join(one["gold"]))
    return tag("li", pieces, tag("p", "Right is ", right, "; ", join(said, "; "), "."))


def _gloss(text: str, label: str | None) -> Html:
    if label is None:
        return tag("span", tag("b", text), class_="gloss")
    return tag("span", tag("b", text), tag("i", label), class_="gloss wrong")


def _others(figures: Figures) -> Html | None:
    if not figures["others"]:
        return None
    rows = [(row["name"], HOW[row["how"]], row["why"]) for row in figures["others"]]
    return table("Families and settings that were not compared", ("Entrant", "What became of it", "Why"), rows, (),
                 "stack")  # fmt: skip

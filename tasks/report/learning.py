"""The learning curve: what each iteration of the solver achieved."""

from collections.abc import Iterable, Sequence
from typing import Any

from espalier.tasks.pages import charts
from espalier.tasks.pages.page import Html, figure, join, lead, message, missing, number, percent, table, tag
from espalier.tasks.report.words import Trace

CURVE_POINTS, CURVE_ROWS = 240, 20


def learning(trace: Trace) -> Html | None:
    """Objective, development error, sparsity and distance to the optimum, iteration by iteration.

    Nothing where no solver iterated; of a single iteration the figures alone: a curve of one point shows nothing.
    """
    if len(trace) == 1 and "gradient_norm" not in trace[0]:
        return None
    if not trace:
        return message("The trace is empty: the solver recorded no iteration.")
    trace = [row for row in trace if row["iteration"]] or trace  # 0 is where it started: all weights zero
    if len(trace) == 1:
        return join([lead("The solver made one iteration."), figures(trace)])
    thinned = thin(trace, CURVE_POINTS)
    objective, norm = [("objective", "a", "objective")], [("norm", "a", "gradient_norm")]
    active = [("unigram", "a", "active_unigram"), ("bigram", "b", "active_bigram")]
    if "active_trigram" in trace[-1]:
        active.append(("trigram", "c", "active_trigram"))
    cost, far = "loss on the training data plus penalty", "distance from the conditions of an optimum"
    cost = "loss of each sequence when its turn came" if "mistakes" in trace[0] else cost
    cost = "logarithm of the odds against the right labellings" if "z" in trace[0] else cost
    panels = [
        panel("objective", "Objective", thinned, objective, cost, write=lambda v: number(v, 6)),
        development_panel(thinned, trace),
        panel("sparsity", "Active weights", thinned, active, "weights that are not zero"),
    ]
    panels += [panel("gradient", "Gradient norm", thinned, norm, far)] if "gradient_norm" in trace[0] else []
    opening = lead("What each iteration of the solver achieved. Point at a curve to read its values.")
    return join([opening, tag("div", *panels, class_="panels"), trace_table(trace)])


def thin(rows: list[Any], limit: int) -> list[Any]:
    """At most `limit` rows, evenly spaced, with the first and the last: a screen shows no more."""
    if len(rows) <= limit:
        return rows
    return [rows[round(i * (len(rows) - 1) / (limit - 1))] for i in range(limit)]


def column(rows: Iterable[dict[str, Any]], key: str) -> list[Any]:
    """A column of the trace, None where a figure is missing or not finite."""
    return [None if missing(row.get(key)) else row[key] for row in rows]


def panel(key: str, title: str, trace: Trace, lines: Sequence[tuple[str, str, str]], note: str, **options: Any) -> Html:
    """A chart of columns of the trace, (name, style, column) each; a sentence when they hold nothing."""
    series = [charts.Series(name, style, column(trace, source)) for name, style, source in lines]
    if all(v is None for s in series for v in s.values):
        return figure(title, message(f"This run recorded no {title.lower()}."))
    drawn = charts.line_chart(key, title, "Iteration", column(trace, "iteration"), series, **options)
    return figure(title, join([charts.line_legend(series) if len(series) > 1 else "", drawn]), note)


def development_panel(thinned: Trace, trace: Trace) -> Html:
    """The error on development data, its lowest point marked."""
    errors = zip(column(trace, "dev_token_error"), column(trace, "iteration"), strict=True)
    found = [(error, at) for error, at in errors if error is not None]
    low, at = min(found, default=(None, None))
    note = f"lowest {percent(low, 2)}" + (f" at iteration {number(at)}" if found else "")
    ways = {"write": lambda v: percent(v, 2), "tick": lambda v: f"{100 * v:g}%", "best": at}
    lines = [("error", "b", "dev_token_error")]
    return panel("development", "Development error", thinned, lines, note, **ways)


def trace_table(trace: Trace) -> Html:
    """The same figures to read, for those who cannot see the curves."""
    return tag("details", tag("summary", "The curves as a table"), figures(trace))


def figures(trace: Trace) -> Html:
    kinds = ["unigram", "bigram", *(["trigram"] if "active_trigram" in trace[-1] else [])]
    rows = [
        (number(row["iteration"]), number(row.get("objective"), 6),
         *(number(row.get(f"active_{kind}")) for kind in kinds), percent(row.get("dev_token_error"), 2))
        for row in thin(trace, CURVE_ROWS)
    ]  # fmt: skip
    headings = ("Iteration", "Objective", *map(str.capitalize, kinds), "Dev error")
    title = "Selected iterations" if len(trace) > 1 else "The iteration"
    return table(title, headings, rows, numeric=range(len(headings)))

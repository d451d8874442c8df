"""The states of a model that has them, and what follows what."""

from espalier.engine.families.labeller import States
from espalier.tasks.pages import state_graph
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, plural, table, tag
from espalier.tasks.report.words import Nouns

ROWS = 12  # transitions that are listed


def states(found: States | None, nouns: Nouns) -> Html | None:
    """A drawing and a list of the likeliest transitions; None for a model without states."""
    if found is None or not found.names:
        return None
    graph = state_graph.make_graph(found)
    shown, every = len(graph.nodes) - 2, len(found.names)
    which = f"All {every} {plural(nouns.label)}" if shown == every else (
        f"The {shown} most frequent of {every} {plural(nouns.label)}, which {percent(graph.share)} of the "
        f"{plural(nouns.token)} are expected to have")  # fmt: skip
    if every == 1:
        which = f"The one {nouns.label}"
    opening = lead(
        f"{which}, and what follows what: the wider an arrow, the likelier it is that its {nouns.label} comes next, "
        f"and the thicker a border, that the {nouns.label} stays. Transitions below "
        f"{percent(state_graph.LIKELY, 0)} are not drawn."
    )
    title = "States and transitions"
    drawn = figure(title, state_graph.draw(found, "states-graph", title))
    rows = [(f"{graph.nodes[a].name} → {graph.nodes[b].name}", number(p)) for a, b, p in graph.arrows[:ROWS]]
    heads = "Transition", "Probability"
    listed = table("The likeliest from one to another", heads, rows, numeric=(1,)) if rows else ""
    return join([opening, tag("div", tag("div", drawn), listed, class_="panels")])

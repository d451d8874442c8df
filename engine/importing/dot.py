"""The states of a model as a graph for Graphviz: `dot -Tpdf`."""

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import States


def as_dot(states: States, threshold: float = 0.01) -> str:
    """Start, labels and end, and an edge for each transition at least as likely as the threshold."""
    if not 0.0 <= threshold <= 1.0:
        raise EspalierError(f"the threshold is {threshold:g}: expected a probability from 0 to 1")
    names, end = states.names, len(states.names)
    edges = [("start", f"s{y}", p) for y, p in enumerate(states.start.tolist())]
    for before, (row, last) in enumerate(zip(states.transitions.tolist(), states.final.tolist(), strict=True)):
        edges += [(f"s{before}", "end" if y == end else f"s{y}", p) for y, p in enumerate([*row, last])]
    lines = ["digraph hmm {", "  rankdir=LR;", "  node [shape=circle];"]
    lines += ['  start [label="", shape=point];', '  end [label="", shape=doublecircle, width=0.2];']
    lines += [f"  s{y} [label={_quoted(name)}];" for y, name in enumerate(names)]
    kept = [edge for edge in edges if edge[2] > 0.0 and edge[2] >= threshold]
    lines += [f'  {a} -> {b} [label="{p:.3g}", penwidth={0.5 + 3.5 * p:.2f}];' for a, b, p in kept]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A text that Graphviz shows as it is."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(c if c.isprintable() else " " for c in escaped)}"'

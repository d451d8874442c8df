"""States and the transitions between them, on a ring: `start` below on the left, `end` below on the right.

An arrow is as wide as its transition is likely. How likely a state is to stay is written in it and is the width of its
border, so no arrow needs a loop. Numbers stand where there is room; pointing at an arrow tells its own.
"""

import math
from typing import NamedTuple

import numpy as np

from espalier.engine.families.labeller import States
from espalier.tasks.pages.charts import CHARACTER, drawing, hit, text
from espalier.tasks.pages.page import Html, number, percent, tag

WIDTH, HEIGHT = 440, 460
MOST = 12  # states that are drawn
MOST_ARROWS = 40
LIKELY, WRITTEN = 0.05, 0.2  # transitions that are drawn, and those whose number is written
NAME = 8  # characters of a longer name
WIDE, HIGH = 74.0, 34.0  # of the largest node
STEPS = 60  # pieces of an arrow, to see where it leaves a node
INWARD, ASIDE = 0.45, 0.12  # how far arrows bend to the middle of the ring, and to one side of the way back
START, END = "start", "end"


class Node(NamedTuple):
    """A state at its place; `stays` is None for start and end."""

    name: str
    x: float
    y: float
    width: float
    height: float
    stays: float | None

    def holds(self, x: float, y: float, margin: float = 0.0) -> bool:
        return abs(x - self.x) <= self.width / 2 + margin and abs(y - self.y) <= self.height / 2 + margin


class Arrow(NamedTuple):
    """A transition between two nodes, by their numbers."""

    source: int
    target: int
    probability: float


class Graph(NamedTuple):
    """What is drawn: the start, states, the end."""

    nodes: list[Node]
    arrows: list[Arrow]
    share: float  # of all tokens that the states drawn have


def make_graph(states: States) -> Graph:
    """The most frequent states, each beside one that often follows it, and their likeliest transitions."""
    order = _order(states)
    names = [START, *(states.names[y] for y in order), END]
    stays = [None, *(float(states.transitions[y, y]) for y in order), None]
    nodes = []
    for at, (name, stay) in enumerate(zip(names, stays, strict=True)):
        angle = math.pi / 2 + (at + 0.5) * 2 * math.pi / len(names)
        width = min(WIDE, max(40.0, len(_short(name)) * CHARACTER + 14))
        x = WIDTH / 2 + (WIDTH / 2 - WIDE / 2 - 6) * math.cos(angle)
        y = HEIGHT / 2 + (HEIGHT / 2 - HIGH / 2 - 8) * math.sin(angle)
        nodes.append(Node(name, x, y, width, HIGH if stay is not None else 22.0, stay))
    end, arrows = len(names) - 1, []
    for i, y in enumerate(order, 1):
        arrows += [Arrow(0, i, float(states.start[y])), Arrow(i, end, float(states.final[y]))]
        arrows += [Arrow(i, j, float(states.transitions[y, z])) for j, z in enumerate(order, 1) if i != j]
    likely = sorted((one for one in arrows if one.probability >= LIKELY), key=lambda one: -one.probability)
    total = float(states.visits.sum())
    return Graph(nodes, likely[:MOST_ARROWS], float(states.visits[order].sum()) / total if total > 0.0 else 1.0)


def _order(states: States) -> list[int]:
    """The most frequent states: the likeliest first one, then always the one that follows most often."""
    left = np.argsort(-states.visits, kind="stable")[:MOST].tolist()
    chain = [max(left, key=lambda y: states.start[y])]
    left.remove(chain[0])
    while left:
        chain.append(max(left, key=lambda y: states.transitions[chain[-1], y]))
        left.remove(chain[-1])
    return chain


def draw(states: States, key: str, title: str) -> Html:
    """The graph as a drawing; the likeliest transitions come last, above the others."""
    graph = make_graph(states)
    placed: list[tuple[float, float]] = []
    shafts = [_arrow(graph, arrow, placed) for arrow in graph.arrows]
    numbers = [made for _, made in shafts if made]
    nodes = [_node(node) for node in graph.nodes]
    told = (f"{graph.nodes[a].name} to {graph.nodes[b].name} {percent(p, 0)}" for a, b, p in graph.arrows[:MOST])
    return drawing(key, title, f"The likeliest transitions: {', '.join(told)}.", WIDTH, HEIGHT,
                   *(shaft for shaft, _ in reversed(shafts)), *nodes, *numbers)  # fmt: skip


def _arrow(graph: Graph, arrow: Arrow, placed: list[tuple[float, float]]) -> tuple[Html, Html | None]:
    """A bent arrow from the border of a node to that of another, and its number where there is room."""
    a, b = graph.nodes[arrow.source], graph.nodes[arrow.target]
    dx, dy = b.x - a.x, b.y - a.y
    x, y = (a.x + b.x) / 2, (a.y + b.y) / 2
    bend = x + INWARD * (WIDTH / 2 - x) - ASIDE * dy, y + INWARD * (HEIGHT / 2 - y) + ASIDE * dx
    points = [_between((a.x, a.y), bend, (b.x, b.y), t / STEPS) for t in range(STEPS + 1)]
    outside = [at for at in points if not a.holds(*at) and not b.holds(*at, 5.0)] or points[STEPS // 2 :][:2]
    width = 0.8 + 5.2 * arrow.probability
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in outside)
    head = _head(outside[-2] if len(outside) > 1 else (a.x, a.y), outside[-1], 3.5 + width)
    tip = f"{a.name} → {b.name}: {number(arrow.probability)}"
    shaft = hit(tip, tag("polyline", points=line, class_="arrow", stroke_width=f"{width:.1f}"), head)
    return shaft, _number(graph, outside, arrow.probability, placed)


def _between(a: tuple, bend: tuple, b: tuple, t: float) -> tuple[float, float]:
    """A point of a quadratic curve."""
    u = 1.0 - t
    return tuple(u * u * p + 2 * u * t * q + t * t * r for p, q, r in zip(a, bend, b, strict=True))


def _head(before: tuple, at: tuple, size: float) -> Html:
    """The triangle at the end of an arrow."""
    length = math.hypot(at[0] - before[0], at[1] - before[1]) or 1.0
    x, y = (at[0] - before[0]) / length, (at[1] - before[1]) / length
    tip, back = (at[0] + 5 * x, at[1] + 5 * y), (at[0] - 3 * x, at[1] - 3 * y)
    corners = tip, (back[0] - size * y, back[1] + size * x), (back[0] + size * y, back[1] - size * x)
    return tag("polygon", points=" ".join(f"{px:.1f},{py:.1f}" for px, py in corners), class_="arrow-head")


def _number(graph: Graph, line: list[tuple], probability: float, placed: list[tuple[float, float]]) -> Html | None:
    """The probability on the arrow, near its beginning, where it covers no node and no other number."""
    if probability < WRITTEN:
        return None
    for share in (0.3, 0.4, 0.5, 0.22, 0.6, 0.7):
        x, y = line[min(len(line) - 1, int(share * len(line)))]
        free = all(abs(x - px) > 30 or abs(y - py) > 15 for px, py in placed)
        if free and not any(node.holds(x, y, 11.0) or _beside(node, x, y) for node in graph.nodes):
            placed.append((x, y))
            return text(_brief(probability), x, y + 4, "arrow-number")
    return None


def _beside(node: Node, x: float, y: float) -> bool:
    """Whether a number there would lie over the side of a node."""
    return node.holds(x, y, 17.0) and abs(y - node.y) <= node.height / 2 + 9


def _node(node: Node) -> Html:
    box = {"x": node.x - node.width / 2, "y": node.y - node.height / 2, "width": node.width, "height": node.height}
    if node.stays is None:
        return _box(node, box, 1.0, "state edge", [text(node.name, node.x, node.y + 4, "state-name")], node.name)
    lines = [text(_short(node.name), node.x, node.y - 2, "state-name"),
             text(f"↻ {_brief(node.stays)}", node.x, node.y + 12, "state-stays")]  # fmt: skip
    return _box(node, box, 1.0 + 4.0 * node.stays, "state", lines, f"{node.name}: stays {number(node.stays)}")


def _box(node: Node, box: dict, border: float, class_: str, lines: list[Html], tip: str) -> Html:
    return hit(tip, tag("rect", **box, rx=node.height / 2 if node.stays is None else 7, class_=class_,
                        stroke_width=f"{border:.1f}"), *lines)  # fmt: skip


def _brief(probability: float) -> str:
    """`.42`, and `1` where that is what it rounds to."""
    return f"{probability:.2f}".removeprefix("0").removesuffix(".00") or "0"


def _short(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"

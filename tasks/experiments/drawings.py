"""Drawings and tables that several experiments share."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from espalier.tasks.pages.charts import (
    HEIGHT,
    WIDTH,
    Scale,
    drawing,
    hit,
    level_line,
    log_ticks,
    map_of_sizes,
    size_legend,
    text,
    value_scale,
)
from espalier.tasks.pages.charts import linear_ticks as plain_ticks
from espalier.tasks.pages.page import Html, compact, figure, join, number, percent, table, tag

LEFT, RIGHT, TOP, BOTTOM = 56, 16, 26, 48
LOOKS = (("a", None), ("b", None), ("a", "7 4"), ("b", "7 4"), ("a", "2 4"), ("b", "2 4"))  # colour, dashes
APART = 11.0  # of two marks of a curve at least, so that its line is seen between them
MARKS = "osdxt+"  # circle, square, diamond, cross, triangle, upright cross


class Curve(NamedTuple):
    """Points (x, y) of one name, joined in their order."""

    name: str
    points: Sequence[tuple[float, float]]


def percent_tick(value: float) -> str:
    return f"{100 * value:g}%"


def xy_chart(
    key: str, title: str, x_name: str, curves: Sequence[Curve], write: Callable[[float], str] = number,
    tick: Callable[[float], str] = compact, log_x: bool = False, level: tuple[str, float] | None = None,
) -> Html:  # fmt: skip
    """Curves, each over its own x, told apart by dashes and marks as well as by colour; `level` is a dashed line."""
    points = [p for curve in curves for p in curve.points if not log_x or p[0] > 0]
    if not points:
        return tag("p", "There is nothing to draw.", class_="message")
    bottom = HEIGHT - BOTTOM
    y, y_ticks = value_scale([v for _, v in points] + ([level[1]] if level else []), bottom, TOP)
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    if low == high:
        low, high = (low / 2, high * 2) if log_x else (low - 1, high + 1)
    x = Scale(low, high, LEFT + 8, WIDTH - RIGHT - 8, log_x)
    x_ticks = log_ticks(low, high, 6) if log_x else plain_ticks(low, high, 6)
    grid = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(t), y2=y(t), class_="grid") for t in y_ticks]
    names = [text(tick(t), LEFT - 8, y(t) + 4, anchor="end") for t in y_ticks]
    foot = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis"),
            *(text(compact(t), x(t), bottom + 17) for t in x_ticks),
            text(x_name, (LEFT + WIDTH - RIGHT) / 2, bottom + 36, "axis-name")]  # fmt: skip
    rule = [level_line(y(level[1]), f"{level[0]} {write(level[1])}", LEFT, TOP)] if level else []
    drawn = [_curve(curve, i, x, y, x_name, write, log_x) for i, curve in enumerate(curves)]
    told = "; ".join(
        f"{c.name} from {write(c.points[0][1])} at {number(c.points[0][0])} to {write(c.points[-1][1])} at "
        f"{number(c.points[-1][0])}" for c in curves if c.points
    )  # fmt: skip
    chart = drawing(key, title, f"Against {x_name}: {told}.", WIDTH, HEIGHT, *grid, *names, *foot, *rule, *drawn)
    return join([chart, legend([curve.name for curve in curves])])


def _curve(curve: Curve, place: int, x: Scale, y: Scale, x_name: str, write, log_x: bool) -> Html:
    colour, dashes = LOOKS[place % len(LOOKS)]
    spots = [(a, b, x(a), y(b)) for a, b in curve.points if not log_x or a > 0]
    line = tag("polyline", points=" ".join(f"{px:.1f},{py:.1f}" for _, _, px, py in spots), class_=f"line {colour}",
               stroke_dasharray=dashes)  # fmt: skip
    marks = (
        hit(f"{curve.name}: {write(b)} at {x_name} {number(a)}", _mark(place, px, py, colour))
        for a, b, px, py in _thinned(spots)
    )  # fmt: skip
    return join([line, *marks])


def _thinned(spots: Sequence[tuple[float, float, float, float]]) -> list[tuple[float, float, float, float]]:
    """The first, the last, and those between that are far enough from the one before."""
    kept = list(spots[:1])
    for spot in spots[1:-1]:
        if math.dist(spot[2:], kept[-1][2:]) >= APART and math.dist(spot[2:], spots[-1][2:]) >= APART:
            kept.append(spot)
    return kept + list(spots[1:][-1:])


def _mark(place: int, x: float, y: float, colour: str, r: float = 4.0) -> Html:
    kind = MARKS[place % len(MARKS)]
    if kind == "o":
        return tag("circle", cx=x, cy=y, r=r, class_=f"dot {colour}")
    paths = {
        "s": f"M{x - r:.1f} {y - r:.1f}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z",
        "d": f"M{x:.1f} {y - r - 1:.1f}l{r + 1:g} {r + 1:g}l{-r - 1:g} {r + 1:g}l{-r - 1:g} {-r - 1:g}z",
        "t": f"M{x:.1f} {y - r:.1f}l{r:g} {1.8 * r:g}h{-2 * r:g}z",
        "x": f"M{x - r:.1f} {y - r:.1f}l{2 * r:g} {2 * r:g}m0 {-2 * r:g}l{-2 * r:g} {2 * r:g}",
        "+": f"M{x - r:.1f} {y:.1f}h{2 * r:g}M{x:.1f} {y - r:.1f}v{2 * r:g}",
    }
    return tag("path", d=paths[kind], class_="mark" if kind in "x+" else f"dot {colour}")


def legend(names: Sequence[str]) -> Html:
    """Names beside a stroke and mark as they are drawn."""
    entries = []
    for place, name in enumerate(names):
        colour, dashes = LOOKS[place % len(LOOKS)]
        stroke = tag("line", x1=1, x2=33, y1=6, y2=6, class_=f"line {colour}", stroke_dasharray=dashes)
        icon = tag("svg", stroke, _mark(place, 17, 6, colour), viewBox="0 0 34 12", width=34, height=12,
                   aria_hidden="true")  # fmt: skip
        entries.append(tag("li", icon, name))
    return tag("ul", *entries, class_="legend")


def map_figure(
    key: str, title: str, rows: Sequence[str], columns: Sequence[str], sizes: Sequence[Sequence[float]],
    row_name: str, column_name: str, note: Any = None, cell: int = 13,
) -> Html:  # fmt: skip
    """A map of sizes with its colours explained; a plain sentence where everything is zero."""
    most = max((v for line in sizes for v in line), default=0.0)
    if not most > 0:
        return figure(title, tag("p", "All of these weights are zero.", class_="message"), note)
    drawn = map_of_sizes(key, title, rows, columns, sizes, row_name, column_name, cell)
    return figure(title, join([size_legend(most), tag("div", drawn, class_="scroll")]), note)


def both_signs(
    key: str, title: str, rows: Sequence[str], columns: Sequence[str], values, row_name: str, column_name: str
) -> Html:
    """Positive and negative parts of weights, each in a map of its own."""
    parts = {"positive": [[max(v, 0.0) for v in line] for line in values],
             "negative": [[max(-v, 0.0) for v in line] for line in values]}  # fmt: skip
    return join([
        map_figure(f"{key}-{name}", f"{title}: {name}", rows, columns, sizes, row_name, column_name)
        for name, sizes in parts.items()
    ])  # fmt: skip


def rows_table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Html:
    """A table of figures: all but the first column flush right."""
    return table(caption, headings, rows, range(1, len(headings)))


def minutes(seconds: float) -> str:
    """Time for readers: `12 s`, `3.4 min`."""
    return f"{number(seconds, 2)} s" if seconds < 100 else f"{number(seconds / 60, 2)} min"


def share(value: float, digits: int = 2) -> str:
    return percent(value, digits)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and where it lies at two standard errors."""
    n, mean = len(values), sum(values) / len(values)
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / max(1, n - 1) / n)
    return mean, mean - 2 * error, mean + 2 * error

"""Charts as inline SVG: lines, boxes, ranges, a heat map, a reliability diagram, small bars.

Colours are classes, so that the style sheet sets them for light and dark. A drawing is about as wide as a
phone (440 units) and the page lays several side by side: its text then has nearly the same size on every
screen. What can be pointed at is a group `hit` with a `title`, which browsers show by themselves; the script
only shows it better.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from espalier.tasks.pages.page import Html, compact, join, number, percent, tag

WIDTH, HEIGHT = 440, 264
LEFT, RIGHT, TOP, BOTTOM = 50, 16, 22, 42
STRIP = 70  # height of the bin counts under a reliability diagram
HEAT_STEPS = 7
NAME_LENGTH = 12  # longer labels are cut beside a heat map
CHARACTER = 7.3  # width of one character at the size of axis text, generously
LOG_WORTH = 8.0  # values whose largest is this many times the smallest read better on a log scale
ROUNDING = 1e-9  # relative slack, so that 0.3 / 0.1 counts as 3 steps
NOTHING = 1e-100  # smaller values are drawn as zero: their ratios overflow


class Series(NamedTuple):
    """One line: its name, its style (`a` or `b`) and one value for each x, None where there is none.

    `spread` is how far each value may be off to either side: it is drawn as a band around the line.
    """

    name: str
    style: str
    values: Sequence[float | None]
    spread: Sequence[float] | None = None

    def band(self) -> list[tuple[float, float] | None]:
        """Both ends of the band at each x; None where there is no value or no spread."""
        spread = self.spread or [None] * len(self.values)
        known = zip(self.values, spread, strict=True)
        return [None if v is None or s is None else (v - s, v + s) for v, s in known]


class Scale(NamedTuple):
    """From values in [low, high] to units in [start, end]."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)


# Ticks ----------------------------------------------------------------------------------------------


def nice_step(span: float, wanted: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that cuts `span` into at most `wanted` parts."""
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if raw <= m * power * (1 + ROUNDING))


def linear_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    step = nice_step(high - low, wanted)
    first, last = math.ceil(low / step - ROUNDING), math.floor(high / step + ROUNDING)
    return [_clean(i * step) for i in range(first, last + 1)]


def whole_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Ticks for what is counted: never 2.5 iterations."""
    return [t for t in linear_ticks(low, high, wanted) if t == int(t)]


def log_ticks(low: float, high: float, wanted: int = 7) -> list[float]:
    """1, 2, 5 of every decade, or 1, 3, or powers of ten: the finest that is not crowded."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [t for e in decades for d in digits if low <= (t := _clean(d * 10.0**e)) <= high]
        if len(ticks) <= wanted:
            break
    return ticks[:: math.ceil(len(ticks) / wanted)]


def _clean(value: float) -> float:
    """0.30000000000000004 is 0.3 to a reader."""
    return float(f"{value:.12g}")


def value_scale(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """A scale for y and its ticks: logarithmic where that helps, else rounded out to whole steps."""
    low, high = (v if abs(v) > NOTHING else 0.0 for v in (min(values), max(values)))
    if low > 0 and high / low >= LOG_WORTH:
        scale = Scale(low / 1.2, high * 1.1, start, end, True)
        return scale, log_ticks(scale.low, scale.high)
    if high - low <= ROUNDING * max(abs(high), abs(low)):
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if high else (0.0, 1.0)
    step = nice_step(high - low, 5)
    low, high = math.floor(low / step + ROUNDING) * step, math.ceil(high / step - ROUNDING) * step
    return Scale(low, high, start, end), linear_ticks(low, high)


# Pieces ---------------------------------------------------------------------------------------------


def drawing(
    key: str, title: str, description: str, width: float, height: float, *parts: Any, fixed: bool = False
) -> Html:
    """The svg element with the words that a screen reader says for it; a fixed one is not drawn larger."""
    names = tag("title", title, id=f"{key}-t"), tag("desc", description, id=f"{key}-d")
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}" if fixed else None}
    return tag("svg", *names, *parts, **size, role="img", aria_labelledby=f"{key}-t {key}-d")


def text(
    content: Any, x: float, y: float, class_: str = "tick", anchor: str = "middle", turn: float | None = None
) -> Html:
    rotate = None if turn is None else f"rotate({turn:g} {x:.1f} {y:.1f})"
    return tag("text", content, x=float(x), y=float(y), class_=class_, text_anchor=anchor, transform=rotate)


def hit(tip: str, *parts: Any) -> Html:
    """Something to point at; `tip` is what it says."""
    return tag("g", tag("title", tip), *parts, class_="hit")


def _grid(y: Scale, ticks: Sequence[float], write: Callable[[float], str]) -> Html:
    lines = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(t), y2=y(t), class_="grid") for t in ticks]
    return join([*lines, *(text(write(t), LEFT - 8, y(t) + 4, anchor="end") for t in ticks)])


def _foot(x: Scale, ticks: Sequence[float], write: Callable[[float], str], bottom: float, name: str) -> Html:
    axis = tag("line", x1=x.start, x2=x.end, y1=bottom, y2=bottom, class_="axis")
    marks = (text(write(t), x(t), bottom + 17) for t in ticks)
    return join([axis, *marks, text(name, (x.start + x.end) / 2, bottom + 36, "axis-name")])


# Lines ----------------------------------------------------------------------------------------------


def line_chart(
    key: str,
    title: str,
    x_name: str,
    xs: Sequence[int],
    series: Sequence[Series],
    write: Callable[[float], str] = number,
    tick: Callable[[float], str] = compact,
    best: int | None = None,
    log_x: bool = False,
) -> Html:
    """Lines over iterations; `write` says a value pointed at, `tick` one on the axis, `best` marks an x.

    `log_x` lays x, then ascending and above zero, on a logarithmic scale.
    """
    bottom = HEIGHT - BOTTOM
    reached = [v for s in series for v in s.values if v is not None]
    reached += [end for s in series for ends in s.band() if ends for end in ends]
    y, y_ticks = value_scale(reached, bottom, TOP)
    x, x_ticks = _along(xs, log_x)
    note = text("log scale", WIDTH - RIGHT, TOP - 8, "small", "end") if y.log else ""
    frame = (note, _grid(y, y_ticks, tick), _foot(x, x_ticks, compact, bottom, x_name))
    lines = (join([_band(s, xs, x, y), _line(s, xs, x, y, best)]) for s in series)
    bands = _bands(x_name, xs, series, x, y, write)
    return drawing(key, title, _describe(x_name, xs, series, write), WIDTH, HEIGHT, *frame, *lines, *bands)


def _along(xs: Sequence[int], log: bool = False) -> tuple[Scale, list[float]]:
    """The scale of x with its ticks; a single x stands in the middle."""
    if len(xs) == 1:
        return Scale(xs[0] - 1, xs[0] + 1, LEFT, WIDTH - RIGHT), [xs[0]]
    if log:
        return Scale(xs[0], xs[-1], LEFT + 6, WIDTH - RIGHT - 6, True), log_ticks(xs[0], xs[-1], 6)
    return Scale(xs[0], xs[-1], LEFT + 6, WIDTH - RIGHT - 6), whole_ticks(xs[0], xs[-1])


def _line(s: Series, xs: Sequence[int], x: Scale, y: Scale, best: int | None) -> Html:
    """The line with a dot at its end, and at the best value where that is asked for; gaps are bridged."""
    spots = [(at, x(at), y(v)) for at, v in zip(xs, s.values, strict=True) if v is not None]
    path = " ".join(f"{px:.1f},{py:.1f}" for _, px, py in spots)
    marked = {best, spots[-1][0]} if spots else set()
    dots = (tag("circle", cx=px, cy=py, r=4, class_=f"dot {s.style}") for at, px, py in spots if at in marked)
    return join([tag("polyline", points=path, class_=f"line {s.style}"), *dots])


def _band(s: Series, xs: Sequence[int], x: Scale, y: Scale) -> Html | str:
    """The ground between both ends of each value's spread."""
    ends = [(x(at), y(pair[0]), y(pair[1])) for at, pair in zip(xs, s.band(), strict=True) if pair]
    if not ends:
        return ""
    outline = [(at, low) for at, low, _ in ends] + [(at, high) for at, _, high in reversed(ends)]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in outline)
    return tag("polygon", points=path, class_=f"band {s.style}")


def _bands(
    name: str, xs: Sequence[int], series: Sequence[Series], x: Scale, y: Scale, write: Callable[[float], str]
) -> Iterator[Html]:
    """One upright strip for each x that has a value: pointing anywhere in it tells all values there."""
    found = [[(s, v) for s, v in zip(series, row, strict=True) if v is not None] for row in _rows(series)]
    rows = [(at, here) for at, here in zip(xs, found, strict=True) if here]
    edges = [x.start, *((x(a) + x(b)) / 2 for (a, _), (b, _) in zip(rows, rows[1:], strict=False)), x.end]
    for (at, here), left, right in zip(rows, edges, edges[1:], strict=False):
        tip = f"{name} {number(at)}: " + ", ".join(f"{s.name} {write(v)}" for s, v in here)
        strip = tag("rect", x=left, y=TOP, width=right - left, height=HEIGHT - BOTTOM - TOP, class_="strip")
        rule = tag("line", x1=x(at), x2=x(at), y1=TOP, y2=HEIGHT - BOTTOM, class_="rule")
        spots = (tag("circle", cx=x(at), cy=y(v), r=3.5, class_=f"spot {s.style}") for s, v in here)
        yield hit(tip, strip, rule, *spots)


def _rows(series: Sequence[Series]) -> Iterator[tuple[float | None, ...]]:
    return zip(*(s.values for s in series), strict=True)


def _describe(x_name: str, xs: Sequence[int], series: Sequence[Series], write: Callable[[float], str]) -> str:
    """The curve in one sentence for those who cannot see it."""
    known = [(s.name, [v for v in s.values if v is not None]) for s in series]
    told = (f"{name} from {write(values[0])} to {write(values[-1])}" for name, values in known if values)
    return f"{x_name} {number(xs[0])} to {number(xs[-1])}: {'; '.join(told)}."


# Boxes ----------------------------------------------------------------------------------------------


class Box(NamedTuple):
    """How values are spread: 5, 25, 50, 75 and 95 of a hundred lie below each, and their mean; style `a` or `b`.

    `mark` is a value to compare the mean with.
    """

    name: str
    style: str
    low: float
    lower: float
    median: float
    upper: float
    high: float
    mean: float
    mark: float | None = None


def box_chart(
    key: str,
    title: str,
    x_name: str,
    boxes: Sequence[Box],
    write: Callable[[float], str] = number,
    tick: Callable[[float], str] = compact,
    theory: float | None = None,
    theory_name: str = "theory",
    span: Sequence[float] = (),
) -> Html:
    """Boxes side by side; `theory` is a dashed line with its name, `span` more values that the axis must reach.

    Two drawings that are given each other's values have the same axis.
    """
    bottom = HEIGHT - BOTTOM
    known = [*span, *(v for b in boxes for v in reach(b)), *([] if theory is None else [theory])]
    y, y_ticks = value_scale(known, bottom, TOP)
    slot = (WIDTH - RIGHT - LEFT) / len(boxes)
    x = Scale(0, len(boxes), LEFT, WIDTH - RIGHT)
    note = text("log scale", WIDTH - RIGHT, TOP - 8, "small", "end") if y.log else ""
    names = {i + 0.5: b.name for i, b in enumerate(boxes)}
    frame = (note, _grid(y, y_ticks, tick), _foot(x, list(names), lambda at: names[at], bottom, x_name))
    line = level_line(y(theory), f"{theory_name} {write(theory)}") if theory is not None else ""
    drawn = (_box(b, x(i + 0.5), slot, y, write) for i, b in enumerate(boxes))
    told = "; ".join(f"{b.name}: median {write(b.median)}, mean {write(b.mean)}" for b in boxes)
    expected = f" Dashed: {theory_name} {write(theory)}." if theory is not None else ""
    return drawing(key, title, f"{x_name} {told}.{expected}", WIDTH, HEIGHT, *frame, *drawn, line)


def reach(b: Box) -> list[float]:
    """The values that an axis must reach to show a box."""
    return [v for v in (b.low, b.high, b.mean, b.mark) if v is not None]


def level_line(y: float, name: str, left: float = LEFT, top: float = TOP) -> Html:
    """A dashed line across the drawing; what it is stands in a key above, where no mark can cover it."""
    line = tag("line", x1=left, x2=WIDTH - RIGHT, y1=y, y2=y, class_="theory")
    stroke = tag("line", x1=left, x2=left + 22, y1=top - 12, y2=top - 12, class_="theory key")
    return join([line, stroke, text(name, left + 28, top - 8, "small", "start")])


def _box(b: Box, at: float, slot: float, y: Scale, write: Callable[[float], str]) -> Html:
    """Whiskers, box, median as a line and mean as a dot; pointing anywhere above or below tells the values."""
    half = min(14.0, 0.36 * slot)
    strip = tag("rect", x=at - slot / 2, y=TOP, width=slot, height=HEIGHT - BOTTOM - TOP, class_="strip")
    stem = tag("line", x1=at, x2=at, y1=y(b.low), y2=y(b.high), class_=f"whisker {b.style}")
    ends = (
        tag("line", x1=at - half / 2, x2=at + half / 2, y1=y(v), y2=y(v), class_=f"whisker {b.style}")
        for v in (b.low, b.high)
    )
    back = {"x": at - half, "y": y(b.upper), "width": 2 * half, "height": y(b.lower) - y(b.upper)}
    middle = tag("line", x1=at - half, x2=at + half, y1=y(b.median), y2=y(b.median), class_="median")
    dot = tag("circle", cx=at, cy=y(b.mean), r=3, class_=f"dot {b.style}")
    mark = "" if b.mark is None else tag("path", d=_cross(at, y(b.mark), 4.0), class_="mark")
    whole, body = tag("rect", **back, class_="box ground"), tag("rect", **back, class_=f"box {b.style}")
    tip = f"{b.name}: mean {write(b.mean)}, median {write(b.median)}, half between {write(b.lower)} and "
    tip += f"{write(b.upper)}, nine in ten between {write(b.low)} and {write(b.high)}"
    tip += "" if b.mark is None else f"; expected mean {write(b.mark)}"
    return hit(tip, strip, stem, *ends, whole, body, middle, dot, mark)


def _cross(x: float, y: float, half: float) -> str:
    """A cross, which is told from a dot without colour."""
    return f"M{x - half:.1f} {y - half:.1f}l{2 * half:g} {2 * half:g}m0 {-2 * half:g}l{-2 * half:g} {2 * half:g}"


# Ranges ---------------------------------------------------------------------------------------------

ROW = 27  # height of one range


class Range(NamedTuple):
    """A figure with its interval; `note` stands at the end of its row."""

    name: str
    value: float
    low: float
    high: float
    note: str = ""


def range_chart(
    key: str,
    title: str,
    x_name: str,
    ranges: Sequence[Range],
    write: Callable[[float], str] = percent,
    tick: Callable[[float], str] = "{:.0%}".format,
    whole: float | None = None,
    note_name: str = "",
) -> Html:
    """Figures from 0 up under each other, each a dot on its interval; `whole`, that of all, is a dashed line."""
    left = 16 + CHARACTER * max(len(r.name) for r in ranges)
    right = WIDTH - 10 - 6.6 * max(len(note_name), *(len(r.note) for r in ranges))
    top, bottom = TOP + 6, TOP + 6 + ROW * len(ranges)
    most = max([r.high for r in ranges] + ([] if whole is None else [whole])) or 1.0
    step = nice_step(most, 4)
    x = Scale(0.0, math.ceil(most / step - ROUNDING) * step, left, right)
    ticks = linear_ticks(0.0, x.high, 4)
    lines = (tag("line", x1=x(t), x2=x(t), y1=top, y2=bottom, class_="grid") for t in ticks)
    names = text(note_name, WIDTH, TOP - 8, "small", "end") if note_name else ""
    mean = "" if whole is None else tag("line", x1=x(whole), x2=x(whole), y1=top, y2=bottom, class_="ideal")
    rows = (_range(r, x, top + (i + 0.5) * ROW, write) for i, r in enumerate(ranges))
    told = "; ".join(_range_words(r, write) for r in ranges)
    told += "." if whole is None else f". Dashed: {write(whole)} of all."
    frame = (names, *lines, _foot(x, ticks, tick, bottom, x_name), mean)
    return drawing(key, title, told, WIDTH, bottom + BOTTOM, *frame, *rows)


def _range_words(r: Range, write: Callable[[float], str]) -> str:
    return f"{r.name}: {write(r.value)}, between {write(r.low)} and {write(r.high)}" + (r.note and f", {r.note}")


def _range(r: Range, x: Scale, y: float, write: Callable[[float], str]) -> Html:
    strip = tag("rect", x=0, y=y - ROW / 2, width=WIDTH, height=ROW, class_="strip")
    stem = tag("line", x1=x(r.low), x2=x(r.high), y1=y, y2=y, class_="whisker a")
    ends = (tag("line", x1=x(v), x2=x(v), y1=y - 4, y2=y + 4, class_="whisker a") for v in (r.low, r.high))
    dot = tag("circle", cx=x(r.value), cy=y, r=4.5, class_="dot a")
    names = text(r.name, x.start - 8, y + 4, anchor="end"), text(r.note, WIDTH, y + 4, "small", "end")
    return hit(_range_words(r, write), strip, stem, *ends, dot, *names)


# Legends --------------------------------------------------------------------------------------------


def line_legend(series: Sequence[Series]) -> Html:
    """Names beside a stroke as it is drawn; set in HTML, so that it wraps."""
    strokes = ((tag("line", x1=1, x2=25, y1=5, y2=5, class_=f"line {s.style}"), s.name) for s in series)
    return tag("ul", *(_entry(stroke, name, 26) for stroke, name in strokes), class_="legend")


def bar_legend(names: Sequence[tuple[str, str]]) -> Html:
    """(style, name) of each kind of bar."""
    box = {"x": 0, "y": 0, "width": 14, "height": 10}
    entries = (_entry(tag("rect", **box, class_=f"bar {style}"), name, 14) for style, name in names)
    return tag("ul", *entries, class_="legend")


def _entry(sample: Html, name: str, width: int) -> Html:
    icon = tag("svg", sample, viewBox=f"0 0 {width} 10", width=width, height=10, aria_hidden="true")
    return tag("li", icon, name)


# Heat map -------------------------------------------------------------------------------------------


def heat_map(
    key: str,
    title: str,
    labels: Sequence[str],
    counts: Mapping[tuple[str, str], int],
    row_name: str,
    column_name: str,
    cell: int = 25,
) -> Html:
    """Rows what is right, columns what was said; the diagonal is grey because it would drown the rest."""
    edge = 36 + CHARACTER * min(NAME_LENGTH, max(map(len, labels)))
    side, size = cell * len(labels), edge + cell * len(labels) + 2
    most = max((counts.get((a, b), 0) for a in labels for b in labels if a != b), default=0)
    at = {label: edge + i * cell for i, label in enumerate(labels)}
    cells = (_cell(a, b, at[b], at[a], cell, counts.get((a, b), 0), most) for a in labels for b in labels)
    names = (_names(label, edge, at[label] + cell / 2) for label in labels)
    across = text(clip(column_name, 40), edge + side / 2, 12, "axis-name")
    down = text(clip(row_name, 40), 12, edge + side / 2, "axis-name", turn=-90)
    told = f"Rows: {row_name}, columns: {column_name}. The largest count off the diagonal is {number(most)}."
    return drawing(key, title, told, size, size, across, down, *names, *cells, fixed=True)


def _names(label: str, edge: float, middle: float) -> Html:
    name = clip(label, NAME_LENGTH)
    left = text(name, edge - 6, middle + 4, anchor="end")
    return join([left, text(name, middle + 4, edge - 6, anchor="start", turn=-90)])


def _cell(gold: str, said: str, x: float, y: float, cell: int, amount: int, most: int) -> Html:
    """The diagonal, an empty place, or a count on its colour."""
    box = {"x": x + 1, "y": y + 1, "width": cell - 2, "height": cell - 2, "rx": 3}
    if gold == said:
        return hit(f"{gold} right: {number(amount)}", tag("rect", class_="heat same", **box))
    if not amount:
        return tag("rect", class_="heat none", **box)
    step = heat_step(amount, most)
    shown = text(_two_digits(amount), x + cell / 2, y + cell / 2 + 3.5, f"heat-count on{step}")
    tip = f"{gold} taken for {said}: {number(amount)}"
    return hit(tip, tag("rect", class_=f"heat h{step}", **box), shown)


def map_of_sizes(
    key: str,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    sizes: Sequence[Sequence[float]],
    row_name: str,
    column_name: str,
    cell: int = 15,
) -> Html:
    """Rows by columns, a stronger colour for a larger size; `sizes` has a row for each row and none below zero."""
    parts, width, height = parts_of_map(rows, columns, sizes, row_name, column_name, cell)
    told = map_words(rows, columns, sizes, row_name, column_name)
    return drawing(key, title, told, width, height, *parts, fixed=True)


def map_words(rows: Sequence[str], columns: Sequence[str], sizes, row_name: str, column_name: str) -> str:
    """The map in a sentence for those who cannot see it."""
    told = f"Rows: {row_name}, columns: {column_name}."
    size, row, column = max(
        ((v, r, c) for r, line in zip(rows, sizes, strict=True) for c, v in zip(columns, line, strict=True)),
        key=lambda place: place[0], default=(0.0, "", ""),
    )  # fmt: skip
    return told + (f" The largest size is {number(size)}, of {row} and {column}." if size else " All sizes are zero.")


def parts_of_map(
    rows: Sequence[str], columns: Sequence[str], sizes, row_name: str, column_name: str, cell: int = 15
) -> tuple[list[Html], float, float]:
    """What `map_of_sizes` draws, and its width and height."""
    left = 36 + CHARACTER * min(NAME_LENGTH, max(map(len, rows)))
    top = 36 + CHARACTER * min(NAME_LENGTH, max(map(len, columns)))
    most = max((value for line in sizes for value in line), default=0.0)
    width, height = left + cell * len(columns) + 2, top + cell * len(rows) + 2
    ground = {"x": left, "y": top, "width": cell * len(columns), "height": cell * len(rows), "rx": 3}
    parts = [
        tag("rect", **ground, class_="heat none"),
        text(clip(column_name, 40), left + cell * len(columns) / 2, 12, "axis-name"),
        text(clip(row_name, 40), 12, top + cell * len(rows) / 2, "axis-name", turn=-90),
    ]
    for i, row in enumerate(rows):
        parts.append(text(clip(row, NAME_LENGTH), left - 6, top + (i + 0.5) * cell + 4, anchor="end"))
    for j, column in enumerate(columns):
        name = clip(column, NAME_LENGTH)
        parts.append(text(name, left + (j + 0.5) * cell + 4, top - 6, anchor="start", turn=-90))
    for i, (row, line) in enumerate(zip(rows, sizes, strict=True)):
        box = {"y": top + i * cell + 0.5, "width": cell - 1, "height": cell - 1, "rx": 2}
        parts += [
            hit(f"{row}, {columns[j]}: {number(v)}",
                tag("rect", x=left + j * cell + 0.5, **box, class_=f"heat h{heat_step(v, most)}"))
            for j, v in enumerate(line) if v
        ]  # fmt: skip
    return parts, width, height


def size_legend(most: float) -> Html:
    """The colours of a map of sizes, each with the largest size that it stands for."""
    box = {"x": 0, "y": 0, "width": 14, "height": 10}
    steps = ((s, most * (s / HEAT_STEPS) ** 2) for s in range(1, HEAT_STEPS + 1))
    entries = (_entry(tag("rect", **box, class_=f"heat h{s}"), f"≤ {number(v, 2)}", 14) for s, v in steps)
    return tag("ul", *entries, class_="legend")


def heat_step(amount: float, most: float) -> int:
    """1 to 7 by the square root, so that rare confusions still show."""
    return max(1, math.ceil(HEAT_STEPS * math.sqrt(amount / most) - ROUNDING))


def _two_digits(amount: int) -> str:
    """A count that fits a small place: 86, 910, 1.2k."""
    return compact(float(f"{amount:.2g}") if amount >= 1000 else amount)


def clip(label: str, length: int) -> str:
    """Cut in the middle, because long names often begin alike."""
    tail = (length - 1) // 2
    return label if len(label) <= length else f"{label[: length - 1 - tail]}…{label[-tail:]}"


# Reliability ----------------------------------------------------------------------------------------


def reliability(key: str, title: str, bins: Sequence[dict[str, Any]], unit: str) -> Html:
    """Stated confidence against how often it was right, over bars of how much each bin holds."""
    plot, foot = 300, 300 + STRIP
    x, y = Scale(0, 1, LEFT, WIDTH - RIGHT), Scale(0, 1, plot - 20, TOP + 4)
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    ideal = tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="ideal")
    name = text("how often right", LEFT, TOP - 10, "axis-name", "start")
    whole = "{:.0%}".format
    frame = (name, _grid(y, ticks, whole), _foot(x, ticks, whole, foot, "stated confidence"))
    height = Scale(0, max(b["count"] for b in bins), foot, plot + 20)
    marks = *(_count(b, x, height) for b in bins), *(_point(b, x, y, foot, unit) for b in bins)
    told = "; ".join(_bin_words(b, unit) for b in bins)
    return drawing(key, title, told, WIDTH, foot + BOTTOM, *frame, ideal, *marks)


def _bin_words(b: dict[str, Any], unit: str) -> str:
    between = ""
    if b.get("accuracy_low") is not None:
        between = f" (between {percent(b['accuracy_low'])} and {percent(b['accuracy_high'])})"
    return f"stated {percent(b['confidence'])}, right {percent(b['accuracy'])}{between}: {number(b['count'])} {unit}"


def _point(b: dict[str, Any], x: Scale, y: Scale, foot: float, unit: str) -> Html:
    """The bin as a dot on its interval, or with a line to the diagonal: how far off the statement was."""
    at, left, right = x(b["confidence"]), x(b["bin_low"]), x(b["bin_high"])
    strip = tag("rect", x=left, y=TOP, width=right - left, height=foot - TOP, class_="strip")
    if b.get("accuracy_low") is None:
        shaft = tag("line", x1=at, x2=at, y1=y(b["confidence"]), y2=y(b["accuracy"]), class_="shaft")
    else:
        ends = y(b["accuracy_low"]), y(b["accuracy_high"])
        stem = tag("line", x1=at, x2=at, y1=ends[0], y2=ends[1], class_="whisker a")
        shaft = join([stem, *(tag("line", x1=at - 4, x2=at + 4, y1=v, y2=v, class_="whisker a") for v in ends)])
    dot = tag("circle", cx=at, cy=y(b["accuracy"]), r=5, class_="dot a")
    return hit(_bin_words(b, unit), strip, shaft, dot)


def _count(b: dict[str, Any], x: Scale, y: Scale) -> Html:
    """The bin as a bar, with its number where there is room."""
    left, right, top = x(b["bin_low"]), x(b["bin_high"]), y(b["count"])
    bar = tag("rect", x=left + 1, y=top, width=right - left - 2, height=y.start - top, class_="bar c")
    room = right - left >= 26
    return join([bar, text(_two_digits(b["count"]), (left + right) / 2, top - 4, "small") if room else ""])


# Small bars -----------------------------------------------------------------------------------------


def share_bar(parts: Sequence[tuple[str, float]]) -> Html:
    """One bar cut into (style, value) shares; the numbers stand beside it in words."""
    total, at, pieces = sum(value for _, value in parts), 0.0, []
    for style, value in parts if total else ():
        pieces.append(tag("rect", x=at, y=0, width=100 * value / total, height=6, class_=f"bar {style}"))
        at += 100 * value / total
    return _stretched("share", 6, pieces)


def bars(values: Sequence[tuple[str, float]], most: float) -> Html:
    """One or two (style, value) bars under each other on a common scale, for a table cell."""
    lengths = [(style, max(0.5, 100 * value / (most or 1))) for style, value in values]
    rows = enumerate(lengths)
    pieces = [tag("rect", x=0, y=9 * i, width=w, height=7, class_=f"bar {style}") for i, (style, w) in rows]
    return _stretched(f"bars n{len(values)}", 9 * len(values) - 2, pieces)


def _stretched(class_: str, height: int, pieces: Sequence[Html]) -> Html:
    """A drawing that fills its place whatever its shape; the style sheet sets its height."""
    box = f"0 0 100 {height}"
    return tag("svg", *pieces, viewBox=box, preserveAspectRatio="none", class_=class_, aria_hidden="true")

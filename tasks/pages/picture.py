"""A picture of the weights: |mu| and the sum of |lambda| by value and label (SBCD, figures 1 and 4).

Rows are the values of one template, the most important first chosen and then sorted by name, columns are labels.
Where a model is sparse most places are empty. Everything is made from the table of a model file and its list of
templates, so the report and `espalier inspect` draw the same.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.errors import EspalierError
from espalier.engine.model import Model
from espalier.engine.text.templates import parse
from espalier.tasks.pages import charts
from espalier.tasks.pages.page import (
    Html,
    asset,
    capital,
    figure,
    join,
    lead,
    number,
    page,
    percent,
    plural,
    section,
    tag,
)

ROWS, COLUMNS = 40, 60  # values and labels shown at most
NOUNS = {"token": "token", "label": "label"}
NAMESPACE = "http://www.w3.org/2000/svg"
GAP = 46  # between the two maps of a drawing of its own


class Picture(NamedTuple):
    """Sizes of the weights of one template, V values by Y labels."""

    template: str
    values: list[str]
    labels: list[str]
    unigram: np.ndarray  # float64 [V, Y], |mu|
    bigram: np.ndarray  # float64 [V, Y], the sum of |lambda| over the label before, the start among them
    all_values: int  # with a weight, shown or not
    share: float  # of the size of all weights of the template that is shown


def of_templates(observations: list[str], lines: list[str]) -> list[tuple[str, str] | None]:
    """For each observation the template that it comes from and the text that its macros saw; None where none fits.

    A template without macros is its own observation. Else the text before the first macro tells, the longest that
    fits: lines that begin alike share their observations anyway.
    """
    fixed, prefixes = set(), []
    for template in parse(lines, "the model's templates"):
        first = template.parts[0] if template.parts and isinstance(template.parts[0], str) else ""
        fixed.add(template.line) if not template.macros else prefixes.append((first, template.line))
    prefixes.sort(key=lambda pair: -len(pair[0]))
    found: list[tuple[str, str] | None] = []
    for text in observations:
        if text in fixed:
            found.append((text, ""))
            continue
        fitting = next(((line, text[len(first) :]) for first, line in prefixes if text.startswith(first)), None)
        found.append(fitting)
    return found


def template_sizes(weights: pa.Table, lines: list[str]) -> dict[str, float]:
    """The sum of |weight| of each template that has values: first those with weights of pairs, largest first."""
    observation, size = _column(weights, "observation"), np.abs(weights.column("weight").to_numpy())
    code, count = observation.indices.to_numpy(), len(observation.dictionary)
    pairs = _families(weights) != "unigram"
    sums, sums_of_pairs = np.bincount(code, size, count), np.bincount(code[pairs], size[pairs], count)
    sizes: dict[str, float] = {}
    with_pairs = set()
    places = of_templates(observation.dictionary.to_pylist(), lines)
    for place, whole, part in zip(places, sums.tolist(), sums_of_pairs.tolist(), strict=True):
        if place and place[1]:
            sizes[place[0]] = sizes.get(place[0], 0.0) + whole
            with_pairs |= {place[0]} if part else set()
    return dict(sorted(sizes.items(), key=lambda item: (item[0] not in with_pairs, -item[1])))


def _column(weights: pa.Table, name: str) -> pa.DictionaryArray:
    found = weights.column(name).unify_dictionaries().combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def _families(weights: pa.Table) -> np.ndarray:
    return np.array(weights.column("family").to_pylist(), dtype=object)


def make_picture(
    weights: pa.Table, lines: list[str], template: str | None = None, rows: int = ROWS, columns: int = COLUMNS
) -> Picture | None:
    """The picture of a template, by default of the first of `template_sizes`; None when there is nothing to draw.

    `weights` is the table of a model file: family, observation, previous, label, weight.
    """
    sizes = template_sizes(weights, lines)
    if template is not None and template not in sizes:
        known = ", ".join(f"`{line}`" for line in sizes) or "none"
        raise EspalierError(f"template `{template}` has no weights by value to draw: those with some are {known}")
    if not sizes:
        return None
    line = template or next(iter(sizes))
    observation, label = _column(weights, "observation"), _column(weights, "label")
    places = of_templates(observation.dictionary.to_pylist(), lines)
    names = sorted({place[1] for place in places if place and place[0] == line and place[1]})
    number_of = {name: i for i, name in enumerate(names)}
    row_of = np.array([number_of.get(p[1], -1) if p and p[0] == line else -1 for p in places])
    row = row_of[observation.indices.to_numpy()]
    labels, code = label.dictionary.to_pylist(), label.indices.to_numpy()
    alone = _families(weights) == "unigram"
    size = np.abs(weights.column("weight").to_numpy())
    maps = []
    for mine in (alone & (row >= 0), ~alone & (row >= 0)):
        flat = np.bincount(row[mine] * len(labels) + code[mine], size[mine], len(names) * len(labels))
        maps.append(flat.reshape(len(names), len(labels)))
    return _most_important(line, names, labels, *maps, rows, columns)


def _most_important(line: str, names: list[str], labels: list[str], unigram, bigram, rows: int, columns: int):
    both = unigram + bigram
    keep = np.sort(np.argsort(-both.sum(axis=1), kind="stable")[:rows])
    used = np.flatnonzero(both[keep].any(axis=0))
    used = np.sort(used[np.argsort(-both[keep][:, used].sum(axis=0), kind="stable")[:columns]])
    shown = np.ix_(keep, used)
    total, every = both.sum(), int(both.any(axis=1).sum())
    if not total:
        raise EspalierError(f"the template {line} has no weight to draw: choose another with --template")
    names, labels = [names[i] for i in keep], [labels[i] for i in used]
    return Picture(line, names, labels, unigram[shown], bigram[shown], every, float(both[shown].sum() / total))


# Drawing --------------------------------------------------------------------------------------------


def _maps(picture: Picture, nouns: dict[str, str]) -> list[tuple[str, str, np.ndarray, str]]:
    """(key, title, sizes, what they are) of the maps that have something to show."""
    label = nouns["label"]
    found = (
        ("unigram", f"Weights of a {label}", picture.unigram, f"|μ| of each value and {label}"),
        ("bigram", f"Weights of a pair of {plural(label)}", picture.bigram,
         f"the sum of |λ| over the {label} before, by value and {label}"),
    )  # fmt: skip
    return [one for one in found if one[2].any()]


def section_body(
    weights: pa.Table, templates: list[str], nouns: dict[str, Any] | None = None, template: str | None = None
) -> Html | None:
    """The maps with their words, for a section of a page; None when no template has weights by value."""
    picture = make_picture(weights, templates, template)
    if picture is None:
        return None
    nouns = NOUNS | {key: value for key, value in (nouns or {}).items() if value}
    opening = lead(
        join([
            "How large the weights are, by what ", tag("code", picture.template), f" saw and by {nouns['label']}: ",
            _chosen(picture, nouns), " An empty place is a weight that training left at zero.",
        ])
    )  # fmt: skip
    drawn = (_figure(picture, nouns, *one) for one in _maps(picture, nouns))
    return join([opening, *drawn])


def _chosen(picture: Picture, nouns: dict[str, str]) -> str:
    shown, labels = len(picture.values), plural(nouns["label"])
    if shown == picture.all_values and picture.share == 1:
        return f"all {number(shown)} values and the {number(len(picture.labels))} {labels} that have one."
    of = f"the {number(shown)} most important of {number(picture.all_values)} values"
    share = f"{percent(picture.share, 0)} of the size of all its weights"
    return f"{of} and {number(len(picture.labels))} {labels}, {share}."


def _figure(picture: Picture, nouns: dict[str, str], key: str, title: str, sizes: np.ndarray, note: str) -> Html:
    names = "value", nouns["label"]
    drawn = charts.map_of_sizes(f"weights-{key}", title, picture.values, picture.labels, sizes.tolist(), *names)
    legend = charts.size_legend(float(sizes.max()))
    return figure(title, join([legend, tag("div", drawn, class_="scroll")]), note)


def as_page(model: Model, template: str | None = None) -> str:
    """A page with the maps."""
    nouns = NOUNS | (model.info.get("nouns") or {})
    body = section_body(model.table(), model.templates, nouns, template)
    if body is None:
        raise _nothing()
    return page("Weights by value and label", section("weights", capital(f"weights of a {nouns['label']}"), body))


def as_svg(model: Model, template: str | None = None) -> str:
    """Both maps in one drawing that stands alone, with the colours of our pages in it."""
    picture = make_picture(model.table(), model.templates, template)
    if picture is None:
        raise _nothing()
    nouns, at, width, groups, told = NOUNS | (model.info.get("nouns") or {}), 0.0, 0.0, [], []
    for _, title, sizes, note in _maps(picture, nouns):
        what = picture.values, picture.labels, sizes.tolist(), "value", nouns["label"]
        parts, wide, high = charts.parts_of_map(*what)
        heading = charts.text(f"{title}: {note}", 0, at + 14, "axis-name", "start")
        groups += [heading, tag("g", *parts, transform=f"translate(0 {at + GAP / 2:g})")]
        told.append(f"{title}. {charts.map_words(*what)}")
        at, width = at + high + GAP, max(width, wide, 440.0)
    ground = tag("rect", x=-12, y=-12, width=width + 24, height=at + 24, class_="ground")
    style = tag("style", asset("page.css") + "\n.ground { fill: var(--paper); }\n")
    title = f"Weights of {picture.template}"
    drawn = charts.drawing("weights", title, " ".join(told), width, at, style, ground, *groups, fixed=True)
    head = f'<svg xmlns="{NAMESPACE}" height="{at:g}" '
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + drawn.replace("<svg ", head, 1) + "\n"


def _nothing() -> EspalierError:
    return EspalierError("the model has no weights by value to draw: its templates have no macro, or nothing is active")


def write_picture(path: Path, model: Model, template: str | None = None) -> None:
    """The picture as a page or as a drawing, by how the name ends."""
    from espalier.tasks.store import write_text

    makers = {".html": as_page, ".htm": as_page, ".svg": as_svg}
    if path.suffix.lower() not in makers:
        raise EspalierError(f"{path}: expected a name that ends with .html or .svg")
    write_text(path, makers[path.suffix.lower()](model, template))

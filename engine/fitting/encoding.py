"""A user's sequences as numbers: templates resolved, observations and labels numbered, values scaled."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from espalier.engine.data.dataset import Dataset, check_label_count
from espalier.engine.errors import EspalierError
from espalier.engine.families.memm import PER_LABEL, per_label_kinds
from espalier.engine.families.objectives import refuse_triples
from espalier.engine.fitting.asked import Asked, is_generative, must
from espalier.engine.interface.inputs import codes, possible
from espalier.engine.interface.observations import check_characters, dataset_of, observations_of, rows_of
from espalier.engine.text.gazetteers import read_list
from espalier.engine.text.pattern_sets import is_shipped, shipped_lines
from espalier.engine.text.templates import Template, check_columns, learned_columns, list_files, parse, resolve
from espalier.engine.text.values import scaled_dataset, unit_scales
from espalier.engine.weights.layout import observation_kinds
from espalier.engine.weights.stop_twins import ends_of, with_twin_kinds, with_twin_texts, with_twins

ATTRIBUTES = "U:%a"  # stands in the model file for observations that came from attributes, not templates
WORDS = ["U:%x[0,0]", "B"]  # the templates of an HMM that is given none: a label emits the token


class Encoded(NamedTuple):
    """Training data in numbers, and what the numbers stand for."""

    data: Dataset
    observations: list[str]
    kinds: npt.NDArray[np.uint8]  # what each observation carries, as bits
    labels: list[str]
    lines: list[str]  # the templates
    lists: dict[str, list[str]]  # of names, that the templates speak of
    streams: list[int]  # the template of each observation, where each makes one at every position; else empty
    scales: dict[str, float]  # what the values of observations were multiplied by, where it is not 1


def encoded(
    asked: Asked, sequences: list[list[Any]], labels: list[list[Any]], weights: npt.NDArray[np.float64] | None,
    weights_of_tokens: list[float] | None,
) -> Encoded:  # fmt: skip
    """The training data in numbers; observations and labels are those that occur in them."""
    templates, lists = _resolved(asked, sequences)
    texts = [observations_of(templates, rows, n) for n, rows in enumerate(sequences)]
    counts: dict[str, int] = {}
    for row in (row for rows in texts for row in rows):
        for item in row:
            text = item if isinstance(item, str) else item[0]
            counts[text] = counts.get(text, 0) + 1
    names = [text for text, count in counts.items() if count >= asked.min_count]
    classes = sorted({label for row in labels for value in row for label in possible(value)})
    check_label_count(len(classes))
    check_characters(names, classes, sequences, labels)
    ids, label_sets = codes(labels, classes)
    data = dataset_of(
        texts, {text: i for i, text in enumerate(names)}, ids, weights, label_sets, weights_of_tokens
    )  # fmt: skip
    if len(data.valued):
        must(asked, "values", "leave values out")
        if asked.weights == PER_LABEL:
            raise EspalierError(
                f"weights is {asked.weights!r} and there are values, which have weights for single labels only: "
                "set weights to 'shared' or leave values out"
            )
    scales: dict[str, float] = {}
    if asked.scale and len(data.valued):
        factors = unit_scales([(data.observations, data.valued, data.values)], len(names))
        data = scaled_dataset(data, factors)
        scales = {text: factor for text, factor in zip(names, factors.tolist(), strict=True) if factor != 1.0}
    if any(template.kind == "T" for template in templates):
        refuse_triples(asked.family, asked.loss, asked.scheme is not None)
    streams = _streams(templates, texts, names) if is_generative(asked.family) else []
    lines = [template.line for template in templates] or [ATTRIBUTES, "B"]
    kinds = observation_kinds(names)
    if asked.weights == PER_LABEL:
        kinds = per_label_kinds(kinds)
    if asked.stop:
        data = with_twins(data, ends_of(kinds, "stop"))
        names, kinds = with_twin_texts(names, kinds), with_twin_kinds(kinds)
    return Encoded(data, names, kinds, classes, lines, lists, streams, scales)


def _resolved(asked: Asked, sequences: list[list[Any]]) -> tuple[list[Template], dict[str, list[str]]]:
    """The templates, with what the training data decide, and the lists that they name, read from the files."""
    if asked.templates is None and not is_generative(asked.family):
        return [], {}
    wanted = WORDS if asked.templates is None else asked.templates
    lines = list(wanted)
    if isinstance(wanted, str):
        lines = shipped_lines(wanted) if is_shipped(wanted) else wanted.split("\n")
    lists = {name: read_list(Path(name)) for name in list_files(parse(lines, "templates"))}
    templates = parse(lines, "templates", lists)
    rows = [row for rows in sequences for row in rows_of(rows)]
    if rows:
        check_columns(templates, min(len(row) for row in rows))
    if asked.templates is None and any(len(row) > 1 for row in rows):
        raise EspalierError(f"{asked.family} without templates takes tokens that are texts: columns need templates")
    tallies = {}
    for column in learned_columns(templates):
        counted = Counter(row[column] for row in rows)
        tallies[column] = list(counted), np.array(list(counted.values()))
    return resolve(templates, tallies), lists


def _streams(templates: list[Template], texts: list[list[list[str]]], names: list[str]) -> list[int]:
    """The template of each observation; each template must make one observation at every position."""
    if any(len(row) != len(templates) for rows in texts for row in rows):
        raise EspalierError(
            "a template makes several observations at a position, a hidden Markov model emits one of each: leave out %g"
        )
    of = {text: k for rows in texts for row in rows for k, text in enumerate(row)}
    return [of[name] for name in names]

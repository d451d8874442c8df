"""Models on a file of labelled sequences: the figures of one, and how two of them differ.

The file is read as the model's own files were. What is only partly labelled is left out, and counted.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Predictor
from espalier.engine.labels.measures import BRACKET_F1, TOKEN_ERROR, Measure, measure_of, paired_bootstrap
from espalier.engine.labels.spans import marks_entities
from espalier.tasks import formats, store
from espalier.tasks.answering.own_format import Letters, OwnFormat, format_of
from espalier.tasks.answering.tagging import dataset_of
from espalier.tasks.evaluate import error_figures
from espalier.tasks.formats import Reading, schemes
from espalier.tasks.ingest import partly_labelled, take
from espalier.tasks.judging.regressions import compare_labels
from espalier.tasks.params import Promote
from espalier.tasks.sources.files import NOUNS, tokens_of


class LabelledFile(NamedTuple):
    """The fully labelled sequences of a file."""

    file: Path
    tokens: pl.DataFrame  # sequence, x0, x1, …, label
    gold: list[str]
    offsets: np.ndarray
    left_out: int  # sequences with labels that are not known
    scheme: str | None  # of its labels


def own_reading(model: Predictor, file: Path) -> Reading:
    """How a file is read for a model: as those that it was trained on; another format by its own defaults."""
    own = OwnFormat.of(model.info)
    name = format_of(str(file), None, own)
    how = Reading(format=name, inputs=own.inputs, unknown=own.unknown)
    if name == (own.format or "conll"):
        names = "separator", "comment", "docstart", "label_column", "columns", "label", "sequence", "functions", "bare"
        how = Reading(**vars(how) | {key: getattr(own, key) for key in names})
    return how


def read_labelled(file: Path, how: Reading) -> LabelledFile:
    """What a file holds; fails where no sequence of it is fully labelled."""
    tokens = tokens_of(formats.expand(Path("."), str(file)), how, True)
    partial = partly_labelled(tokens)
    if partial.all():
        raise EspalierError(f"{file}: no sequence is fully labelled, so that no error can be counted; label some")
    tokens = take(tokens, ~partial)
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())
    scheme = formats.scheme_in([tokens])
    return LabelledFile(file, tokens, tokens["label"].to_list(), offsets, int(partial.sum()), scheme)


def answers(model: Predictor, test: LabelledFile) -> list[str]:
    """The label of each token by a model, in the scheme of the file where the model has another."""
    said = model.decoded(dataset_of(model, test.tokens))
    if test.scheme and _has_other_scheme(model, test.scheme):
        letters = Letters(model.labels, test.scheme)
        return pl.Series(letters.names, dtype=pl.String).gather(letters(said, test.offsets)).to_list()
    return model.texts_of(said)


def judged_by(model: Predictor, labels: set[str]) -> Measure:
    """What the task is judged by, as the model tells it."""
    own = OwnFormat.of(model.info)
    trees = {"name": BRACKET_F1, "labelled": not own.bare} if "trees" in model.can else None
    return measure_of(trees, labels)


def _has_other_scheme(model: Predictor, scheme: str) -> bool:
    """Whether a model marks entities by other letters than a scheme, or had its own labels converted."""
    if not marks_entities(model.labels):
        return False
    used = {label[0] for label in model.labels if label != "O"}
    letters = "BIES" if used & set("ES") else "BILU" if used & set("LU") else "BI"
    return bool(OwnFormat.of(model.info).scheme) or letters != schemes.LETTERS[scheme]


def described(test: LabelledFile) -> dict:
    return {"file": str(test.file), "sequences": len(test.offsets) - 1, "tokens": len(test.gold),
            "left_out": test.left_out, "scheme": test.scheme}  # fmt: skip


def figures_of(model: Predictor, test: LabelledFile) -> dict:
    """What `espalier evaluate` tells: the measure of the task with its interval, errors, entities, labels."""
    said = answers(model, test)
    measure = judged_by(model, {*test.gold, *said})
    figures = error_figures(measure, test.gold, said, test.offsets)
    gold, labels = measure.of_tokens(test.gold, said)
    return described(test) | figures | {
        "labels": label_rows(gold, labels), "decode": model.decoder(), "nouns": model.info.get("nouns") or NOUNS,
        "unknown_labels": sorted({*gold} - _sayable(model, test)),
    }  # fmt: skip


def _sayable(model: Predictor, test: LabelledFile) -> set[str]:
    """The labels that a model can answer with."""
    if test.scheme and _has_other_scheme(model, test.scheme):
        return set(Letters(model.labels, test.scheme).names)
    return set(model.labels)


def label_rows(gold: list[str], said: list[str]) -> list[dict]:
    """Precision, recall and F1 of each label, token by token; frequent ones first."""
    wanted, found = Counter(gold), Counter(said)
    right = Counter(label for label, other in zip(gold, said, strict=True) if label == other)
    rows = []
    for label in sorted({*wanted, *found}, key=lambda label: (-wanted[label], label)):
        precision = right[label] / found[label] if found[label] else 0.0
        recall = right[label] / wanted[label] if wanted[label] else 0.0
        f1 = 2 * right[label] / (wanted[label] + found[label])
        rows.append({"label": label, "count": wanted[label], "predicted": found[label], "correct": right[label],
                     "precision": precision, "recall": recall, "f1": f1})  # fmt: skip
    return rows


def comparison(first: Predictor, second: Predictor, test: LabelledFile, options: Promote) -> dict:
    """What `espalier compare` tells: both models, and second minus first with its interval in paired resamples."""
    check_same_columns(first, second)
    if ("trees" in first.can) != ("trees" in second.can):
        raise EspalierError("one model labels tokens and the other puts trees over them: expected two of one kind")
    one, other = answers(first, test), answers(second, test)
    measure = judged_by(first, {*test.gold, *one, *other})
    differences = {}
    for by in dict.fromkeys((measure, TOKEN_ERROR)):
        texts = [(test.gold, said) for said in (one, other)]
        texts = [measure.of_tokens(*some) for some in texts] if by is TOKEN_ERROR else texts
        counts = (by.counts(*some, test.offsets) for some in texts)
        found = paired_bootstrap(*counts, options.level, options.rounds, options.seed)
        differences[by.name] = found._asdict() | {"better": _better(by.higher_is_better, found.low, found.high)}
    rows = compare_labels(test.gold, one, other, test.offsets, options, measure.trees)
    labels = [{"label": row["label"], "count": row["count"], "first_f1": row["champion_f1"],
               "second_f1": row["challenger_f1"], "difference": row["difference"], "low": row["low"],
               "high": row["high"]} for row in rows]  # fmt: skip
    both = {name: error_figures(measure, test.gold, said, test.offsets) for name, said in
            (("first", one), ("second", other))}  # fmt: skip
    same = sum(a == b for a, b in zip(one, other, strict=True))
    return described(test) | both | {
        "measure": measure.name, "differences": differences, "labels": labels, "level": options.level,
        "agreement": same / len(one), "nouns": second.info.get("nouns") or NOUNS,
    }  # fmt: skip


def _better(higher: bool, low: float, high: float) -> str | None:
    """Which model is surely better; None where the interval holds zero."""
    if low <= 0 <= high:
        return None
    return "second" if (low > 0) == higher else "first"


def check_same_columns(first: Predictor, second: Predictor) -> None:
    """Refuse models that were trained on other columns: one file cannot serve both."""
    widths = [OwnFormat.of(model.info).inputs for model in (first, second)]
    if None not in widths and widths[0] != widths[1]:
        raise EspalierError(
            f"the first model reads {widths[0]} input columns, the second {widths[1]}: no file fits both; evaluate "
            "each on a file of its own"
        )

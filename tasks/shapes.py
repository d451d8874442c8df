"""What the JSON files of a project look like: the keys that must be there, and of which kind the values are.

A shape is a `Kind`, a dict of shapes by key, a list with the shape of its items, or a `Table` of any keys. A key with
a `?` behind it may be missing, `*` stands for all other keys; without it they may hold anything. Readers rely on what
is checked here, so that a file that is valid JSON and still not what it should be is an error with a place.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from espalier.engine.errors import quoted
from espalier.engine.labels.measures import NAMES

LARGEST = 10**18  # beyond it no count, time or size is one


class Kind(NamedTuple):
    """What a value must be, in words, and whether it is."""

    words: str
    holds: Callable[[Any], bool]


class Table(NamedTuple):
    """An object of any keys, all with values of one shape."""

    values: Any


class Maybe(NamedTuple):
    """null, or a value of the shape."""

    shape: Any


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_time(value: Any) -> bool:
    try:
        return _is_text(value) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


ANY = Kind("anything", lambda value: True)
TEXT = Kind("a text", _is_text)
NAME = Kind("a text that is not empty", lambda value: _is_text(value) and bool(value))
NUMBER = Kind("a number", _is_number)
FIGURE = Kind("a number, or NaN", lambda value: _is_number(value) or isinstance(value, float))
COUNT = Kind("a whole number from 0 on", _is_count)
POSITIVE = Kind("a whole number from 1 on", lambda value: _is_count(value) and value > 0)
ABOVE_ZERO = Kind("a number above 0", lambda value: _is_number(value) and value > 0)
PLAIN = Kind("a number or a text", lambda value: _is_number(value) or _is_text(value) or isinstance(value, bool))
TRUTH = Kind("true or false", lambda value: isinstance(value, bool))
TIME = Kind("a time such as 2026-11-17T03:15:02+00:00", _is_time)
TWO = Kind("a list of two values", lambda value: isinstance(value, list) and len(value) == 2)
TEXTS = [TEXT]


def fault(value: Any, shape: Any, place: str = "") -> str | None:
    """What is wrong with a value, with its place; None if nothing is."""
    if isinstance(shape, Maybe):
        return None if value is None else fault(value, shape.shape, place)
    if isinstance(shape, Kind):
        return None if shape.holds(value) else f"{place or 'it'} is {quoted(value)}, expected {shape.words}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place or 'it'} is {quoted(value)}, expected a list"
        return next((found for i, item in enumerate(value) if (found := fault(item, shape[0], f"{place}[{i}]"))), None)
    if not isinstance(value, dict):
        return f"{place or 'it'} is {quoted(value)}, expected an object"
    if isinstance(shape, Table):
        shape = {"*": shape.values}
    return _fault_of_keys(value, shape, f"{place}." if place else "")


def _fault_of_keys(value: dict, shape: dict, prefix: str) -> str | None:
    known = {key.removesuffix("?"): item for key, item in shape.items() if key != "*"}
    for key in shape:
        if key != "*" and not key.endswith("?") and key not in value:
            return f"{prefix}{key} is missing"
    others = shape.get("*", ANY)
    for key, item in value.items():
        if not _is_text(key):
            return f"the key {quoted(key)} holds half a character"
        if found := fault(item, known.get(key, others), f"{prefix}{quoted(key)[1:-1]}"):
            return found
    return None


# What a task may be judged by, with its interval.
QUALITY = {f"{name}{end}?": Maybe(NUMBER) for name in NAMES for end in ("", "_low", "_high")} | {
    "measure?": Maybe(TEXT), "sequence_error?": Maybe(NUMBER), "log_loss?": Maybe(NUMBER),
}  # fmt: skip

NOUNS = {"token": TEXT, "label": TEXT, "sequence": TEXT}
SPLIT = {"sequences": COUNT, "tokens": COUNT, "shards": TEXTS}
MANIFEST = {
    "templates": TEXTS, "columns": TEXTS, "kinds": TEXTS, "labels": TEXTS, "label_sets": [TEXTS],
    "nouns": NOUNS | {"*": Kind("no other noun", lambda value: False)}, "observations": COUNT,
    "splits": {"train": SPLIT, "dev": SPLIT, "test": SPLIT, "unlabelled": SPLIT}, "vocabulary_sha256": TEXT,
    "data_version": TEXT, "lists?": Table(ANY), "value_columns?": TEXTS, "scales?": Table(NUMBER),
}  # fmt: skip

PROFILE = {
    "sequences": POSITIVE, "tokens": POSITIVE, "columns": COUNT, "labels": Table(POSITIVE), "files?": TEXTS,
    "scheme": Maybe(TEXT), "unknown_labels": COUNT, "set_labels": COUNT,
    "lengths": {"min": NUMBER, "median": NUMBER, "mean": NUMBER, "p95": NUMBER, "max": NUMBER},
    "imbalance": {"majority": Maybe(NUMBER), "ratio": Maybe(NUMBER), "effective_labels": Maybe(NUMBER)},
    "findings": Table({"count": COUNT, "examples": [{"place": TEXT, "text": TEXT}]}),
    "split?": {"sequences": Table(COUNT), "kept_in_training": Table(COUNT), "overlap": {"test": COUNT, "*": COUNT},
               "pool_share": Maybe(NUMBER)},
}  # fmt: skip

CLUSTER = {
    "cluster": COUNT, "labelled_share": NUMBER, "pool_share": NUMBER, "weight?": Maybe(NUMBER),
    "divergence?": Maybe(NUMBER), "typical?": TEXTS, "examples?": TEXTS,
}  # fmt: skip
CLUSTERS = {
    "method": TEXT, "sequences": COUNT, "effective_sample_size": NUMBER, "clusters?": Maybe([CLUSTER]),
    "jensen_shannon": Maybe(NUMBER), "drift_limit": Maybe(NUMBER), "drifted": Maybe(TRUTH),
    "pool_without_label_share?": Maybe(NUMBER),
}  # fmt: skip

ACTIVE = ("unigram", "start", "bigram", "trigram")  # kinds of weights; of triples where there are some


def active_of(figures: dict) -> dict[str, int]:
    """How many weights of each kind a record counts."""
    return {kind: figures[f"active_{kind}"] or 0 for kind in ACTIVE if f"active_{kind}" in figures}


ITERATION = {
    "iteration": COUNT, "objective": NUMBER, "active_unigram": COUNT, "active_start": COUNT, "active_bigram": COUNT,
    "active_trigram?": COUNT, "dev_token_error?": Maybe(NUMBER), "dev_f1?": Maybe(NUMBER), "loss?": Maybe(NUMBER),
    "minimises?": TEXT, "mistakes?": COUNT, "wrong_labels?": COUNT, "family?": TEXT, "feature?": TEXT,
    "*": Maybe(FIGURE),
}  # fmt: skip
TIMING = {"iteration": COUNT, "seconds": NUMBER}

CHUNKS = {"gold": COUNT, "predicted": COUNT, "correct": COUNT, "precision": NUMBER, "recall": NUMBER, "f1": NUMBER}
PART = Kind("dev or test", ("dev", "test").__contains__)
COMPARED = {
    "token_error": NUMBER, "sequence_error": NUMBER, **{f"{name}?": NUMBER for name in NAMES},
    "*": Kind("no other measure", lambda value: False),
}  # fmt: skip
LIKELIHOOD_PART = {
    "sequences": POSITIVE, "tokens": POSITIVE, "loss": NUMBER, "low": Maybe(NUMBER), "high": Maybe(NUMBER),
    "difference?": NUMBER, "difference_low?": Maybe(NUMBER), "difference_high?": Maybe(NUMBER),
}  # fmt: skip
SPLIT_NAME = Kind("train or dev", ("train", "dev").__contains__)
LIKELIHOOD = {
    "reference": SPLIT_NAME, "least": [{"sequence": COUNT, "loss": NUMBER}],
    "parts": {f"{name}?": LIKELIHOOD_PART for name in ("train", "dev", "test", "unlabelled")},
}  # fmt: skip
ABSTENTION_ROW = {
    "limit": NUMBER, "kept": COUNT, "coverage": NUMBER, "abstained": NUMBER, "precision?": Maybe(NUMBER),
    "recall?": NUMBER, "accuracy?": Maybe(NUMBER),
}  # fmt: skip
ABSTENTION = {"of": Kind("entities or tokens", ("entities", "tokens").__contains__), "rows": [ABSTENTION_ROW]}
METRICS = QUALITY | {
    "abstention?": ABSTENTION,
    "likelihood?": LIKELIHOOD,
    "overlap?": {"sequences": COUNT, "share": NUMBER, "without?": COMPARED},
    "decoders?": {"used": TEXT, "part": PART, "viterbi": COMPARED, "posterior?": COMPARED, "*": COMPARED},
    "token_error": NUMBER, "sequence_error": NUMBER, "objective": NUMBER, "stop_reason": TEXT, "iterations": COUNT,
    "features": COUNT, "active_unigram": COUNT, "active_start": COUNT, "active_bigram": COUNT, "labels": COUNT,
    "train_sequences": COUNT, "train_tokens": COUNT, "test_sequences": COUNT, "test_tokens": COUNT,
    "active_trigram?": COUNT, "precision?": Maybe(NUMBER), "recall?": Maybe(NUMBER),
    "sequence_log_loss?": Maybe(NUMBER), "excess_log_loss?": Maybe(NUMBER), "excess_risk?": Maybe(NUMBER),
    "bayes_error?": Maybe(NUMBER), "calibration_error?": Maybe(NUMBER), "chunks?": Maybe(Table(CHUNKS)),
    "sequences_with_unknown_labels?": Maybe(COUNT), "path_iterations?": Maybe(COUNT),
    "best_iteration?": Maybe(COUNT), "*": Maybe(PLAIN),
}  # fmt: skip

LABEL = {
    "label": TEXT, "regressed": TRUTH, "count": COUNT, "champion_f1": Maybe(NUMBER), "challenger_f1": Maybe(NUMBER),
    "difference": NUMBER, "low": NUMBER, "high": NUMBER,
}  # fmt: skip
CASE = {"line": COUNT, "tokens": TEXTS, "expected": TEXTS, "said": TEXTS, "champion_too": TRUTH}
CASES = {"file": TEXT, "cases": COUNT, "failed": COUNT, "champion_failed": Maybe(COUNT), "wrong": [CASE]}
DRIFT = {"jensen_shannon": Maybe(NUMBER), "limit": Maybe(NUMBER), "drifted": Maybe(TRUTH)}
DECISION = {
    "measure?": Maybe(TEXT), "measure_name?": Maybe(TEXT), "champion_value?": Maybe(NUMBER),
    "challenger_value?": Maybe(NUMBER), "margin?": Maybe(NUMBER),
    "time": TIME, "promoted": TRUTH, "forced": TRUTH, "reason": TEXT, "model_sha256": NAME,
    "challenger_error": Maybe(NUMBER), "champion_error": Maybe(NUMBER), "difference": Maybe(NUMBER),
    "low": Maybe(NUMBER), "high": Maybe(NUMBER), "id?": NAME, "kind?": TEXT, "reasons?": Maybe(TEXTS),
    "warnings?": Maybe(TEXTS), "labels?": Maybe([LABEL]), "labels_compared?": Maybe(COUNT), "cases?": Maybe(CASES),
    "drift?": Maybe(DRIFT), "test_version?": Maybe(TEXT), "data_version?": Maybe(TEXT),
}  # fmt: skip

RUN = QUALITY | {
    "id": NAME, "time": TIME, "kind": TEXT, "outcome": TEXT, "reason?": Maybe(TEXT), "error?": Maybe(TEXT),
    "step?": Maybe(TEXT), "reasons?": Maybe(TEXTS), "forced?": Maybe(TRUTH),
    "model_sha256?": Maybe(TEXT), "data_version?": Maybe(TEXT), "warnings?": TEXTS,
    "active?": Maybe(COUNT), "bytes?": Maybe(COUNT), "iterations?": Maybe(COUNT), "features?": Maybe(COUNT),
    "seconds?": Maybe(Table(NUMBER)), "drift?": Maybe(NUMBER), "drift_limit?": Maybe(NUMBER),
    "drifted?": Maybe(TRUTH), "changed?": Table(TWO), "parameters?": Table(ANY), "tag?": Maybe(TEXT),
}  # fmt: skip

POINT = {
    "rho1": ABOVE_ZERO, "rho2": NUMBER, "active": COUNT, "iterations": COUNT, "objective": NUMBER, "stop_reason": TEXT,
    "standard_error": Maybe(NUMBER), "dev_token_error": NUMBER, **{f"dev_{name}?": Maybe(NUMBER) for name in NAMES},
    "dev_log_loss": Maybe(NUMBER), "train_log_loss": Maybe(NUMBER), "train_token_error": Maybe(NUMBER),
}  # fmt: skip
PATH = {"chosen": Maybe(NUMBER), "points": [POINT]}
SEARCH = {  # of a path that has points
    "chosen": NUMBER, "chosen_rho2": NUMBER, "measure": Kind("a measure", NAMES.__contains__), "points": [POINT],
    "solver": TEXT, "sparser": TRUTH, "where": TEXT, "iterations": COUNT,
}  # fmt: skip

NEWS = {
    "new_labels": TEXTS, "lost_labels": TEXTS, "new_observations": Maybe(COUNT), "lost_observations": Maybe(COUNT),
    "new_sequences": Maybe(COUNT), "lost_sequences": Maybe(COUNT), "relabelled_sequences": Maybe(COUNT),
    "champion_data_version": Maybe(TEXT), "data_version": TEXT, "*": Maybe(COUNT),
}  # fmt: skip

VERSION = {"data_version": NAME}
MARKER = {"time": TIME}

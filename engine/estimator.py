"""A labeller for Python: `CRF().fit(X, y).predict(X)`, with the conventions of scikit-learn.

X is a list of sequences. A token is a text, a list of attribute texts, or a dict of
attributes ({"word": "the", "title": True, "length": 3.0}); each attribute becomes an observation with
unigram weights, beside a label bias and plain transitions. A number is the value of its attribute and multiplies
its weights. With `templates`, a token is
a row of columns and the templates make the observations. An Arrow or Polars table with
the columns sequence, x0, x1, … is taken as rows of columns.

y is a list of rows of labels. A label that is not known is None; where it is one of
several, it is a set (or list, or tuple) of them.
"""

import inspect
import math
import sys
from collections import Counter
from collections.abc import Iterable
from functools import wraps
from pathlib import Path

import numpy as np

from espalier.engine import warm_start, warm_up
from espalier.engine.data.dataset import FIRST_SET, UNKNOWN, Dataset, check_label_count, make_dataset
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families import load as load_model
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.labeller import DECODERS, Labeller
from espalier.engine.labels.scheme import transitions_of
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import fitting, minimise
from espalier.engine.runtime import compiling
from espalier.engine.text.gazetteers import read_list
from espalier.engine.text.templates import (
    Template,
    check_columns,
    expand_rows,
    learned_columns,
    list_files,
    parse,
    resolve,
)
from espalier.engine.text.values import values_of_rows
from espalier.engine.weights.layout import make_layout, observation_kinds

MOST_CELLS = 1 << 31  # of the table of observations, 8 GiB
ATTRIBUTES = "U:%a"  # stands in the model file for observations that came from attributes, not templates


def _says_when_compiling(method):
    """The first use on a machine compiles kernels: a line says so, as `verbose` will have it."""

    @wraps(method)
    def call(self, *arguments, **options):
        with compiling.said(self.verbose):
            return method(self, *arguments, **options)

    return call


class CRF:
    """`verbose` says whether a line on stderr tells that kernels are compiled; None: in a terminal or notebook."""

    def __init__(
        self, templates=None, solver="auto", rho1=0.5, rho2=0.001, pairs="seen", start=True, max_iterations=1000,
        tolerance=4e-4, min_count=1, sparse="auto", verbose=None,
    ):  # fmt: skip
        self.templates, self.solver, self.rho1, self.rho2 = templates, solver, rho1, rho2
        self.pairs, self.start, self.max_iterations, self.tolerance = pairs, start, max_iterations, tolerance
        self.min_count, self.sparse, self.verbose = min_count, sparse, verbose

    def get_params(self, deep: bool = True) -> dict:
        return {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)}

    def set_params(self, **params) -> "CRF":
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise EspalierError(f"unknown parameter {name!r}: known are {', '.join(known)}")
            setattr(self, name, value)
        return self

    @_says_when_compiling
    def fit(self, X, y, sample_weight=None, token_weight=None, start_from=None) -> "CRF":
        """Learn from sequences X and their labels y; a sequence of weight 2 counts as a duplicate.

        `token_weight` has a number for each token, see `engine.losses.token_weights`. `start_from` is
        a fitted CRF, a model or the path of one, whose weights the training starts from.
        """
        sequences = _sequences(X)
        labels = _labels(y, sequences)
        templates, lists = self._resolved(sequences)
        texts = [_observations(templates, rows, n) for n, rows in enumerate(sequences)]
        counts: dict[str, int] = {}
        for row in (row for rows in texts for row in rows):
            for item in row:
                text = item if isinstance(item, str) else item[0]
                counts[text] = counts.get(text, 0) + 1
        names = [text for text, count in counts.items() if count >= self.min_count]
        classes = sorted({label for row in labels for value in row for label in _possible(value)})
        check_label_count(len(classes))
        _check_characters(names, classes, sequences, labels)
        ids, label_sets = _codes(labels, classes)
        data = _dataset(
            texts, {text: i for i, text in enumerate(names)}, ids, sample_weight, label_sets,
            _token_weights(token_weight, sequences),
        )  # fmt: skip
        if fitting(self.solver) == fitting("auto"):
            warm_up.before_first_fit()
        layout = make_layout(self.pairs, data, len(classes), observation_kinds(names), self.start)
        theta0 = None
        if start_from is not None:
            theta0 = warm_start.starting_point(_model_of(start_from), layout, names, classes)
        result = minimise(
            self.solver, ChainObjective(data, layout, self.sparse), ElasticNet(self.rho1, self.rho2), theta0,
            self.max_iterations, self.tolerance,
        )  # fmt: skip
        info = {"solver": fitting(self.solver), "penalty": {"rho1": self.rho1, "rho2": self.rho2},
                "start": self.start, "pairs": self.pairs, "stop_reason": result.stop_reason,
                "iterations": result.iterations, "objective": result.objective, "features": layout.size}  # fmt: skip
        info |= {"lists": lists} if lists else {}
        lines = [template.line for template in templates] or [ATTRIBUTES, "B"]
        self.model_ = CrfLabeller.compact(layout, result.theta, names, classes, lines, info)
        self.trace_, self.stop_reason_ = result.trace, result.stop_reason
        return self

    @property
    def classes_(self) -> list[str]:
        return self._model().labels

    @_says_when_compiling
    def predict(self, X, method: str = "viterbi", scheme: bool | str = False, allowed=None) -> list[list[str]]:
        """The likeliest labelling of each sequence, or with method="posterior" the likeliest label of each position.

        `scheme` keeps to the transitions of the labels' scheme: True, or a name such as "iob1".
        `allowed` says what is known beforehand, in the form of the labels y of `fit`.
        """
        if method not in DECODERS:
            raise EspalierError(f"method is {method!r}: expected one of {', '.join(DECODERS)}")
        model, data = self._prepared(X, allowed)
        ids = model.decoded(data, method, **self._restriction(scheme, allowed))
        return _cut([model.labels[i] for i in ids], data.offsets)

    @_says_when_compiling
    def predict_nbest(self, X, n: int, scheme: bool | str = False, allowed=None) -> list[list[tuple[float, list[str]]]]:
        """Up to n likeliest labellings of each sequence, best first: pairs of log-probability and labels."""
        model, data = self._prepared(X, allowed)
        best = model.nbest(data, n, **self._restriction(scheme, allowed))
        cuts = zip(data.offsets, data.offsets[1:], best.count, best.log_probabilities, strict=False)
        return [
            [(float(log_p[r]), [model.labels[i] for i in best.labels[r, a:b]]) for r in range(count)]
            for a, b, count, log_p in cuts
        ]

    @_says_when_compiling
    def predict_marginals(self, X, scheme: bool | str = False, allowed=None) -> list[np.ndarray]:
        """p(label | sequence) at each position: one array [positions, labels] a sequence, in the order of classes_."""
        model, data = self._prepared(X, allowed)
        found = model.marginals(data, **self._restriction(scheme, allowed))
        return _cut(found, data.offsets)

    def score(self, X, y, sample_weight=None) -> float:
        """Share of positions with the right label, those of a sequence of weight w counted w times.

        A set of labels is met by any of them; positions without a known label do not count.
        """
        labels = _labels(y, _sequences(X))
        weights = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        if len(weights) != len(labels):
            raise EspalierError(f"{len(weights)} weights for {len(labels)} sequences: expected one each")
        right = total = 0.0
        for row, predicted, weight in zip(labels, self.predict(X), weights, strict=True):
            hits = [label in _possible(value) for value, label in zip(row, predicted, strict=True) if value is not None]
            right, total = right + weight * sum(hits), total + weight * len(hits)
        if not total > 0:
            raise EspalierError("no position with a known label has a weight: there is nothing to score")
        return float(right / total)

    def save(self, path: str | Path) -> None:
        self._model().save(path)

    @classmethod
    def load(cls, path: str | Path) -> "CRF":
        """A fitted labeller from a model file."""
        model = load_model(path)
        made = cls(templates=None if ATTRIBUTES in model.templates else model.templates)
        made.model_ = model
        return made

    def _model(self) -> Labeller:
        if not hasattr(self, "model_"):
            raise EspalierError("this CRF has not been fitted: call fit or load first")
        return self.model_

    def _resolved(self, sequences: list[list]) -> tuple[list[Template], dict[str, list[str]]]:
        """The templates, with what the training data decide, and the lists that they name, read from the files."""
        if self.templates is None:
            return [], {}
        lines = self.templates.split("\n") if isinstance(self.templates, str) else list(self.templates)
        lists = {name: read_list(Path(name)) for name in list_files(parse(lines, "templates"))}
        templates = parse(lines, "templates", lists)
        rows = [row for rows in sequences for row in _rows(rows)]
        if rows:
            check_columns(templates, min(len(row) for row in rows))
        tallies = {}
        for column in learned_columns(templates):
            counted = Counter(row[column] for row in rows)
            tallies[column] = list(counted), np.array(list(counted.values()))
        return resolve(templates, tallies), lists

    def _prepared(self, X, allowed=None) -> tuple[Labeller, Dataset]:
        model, sequences = self._model(), _sequences(X)
        templates = [] if ATTRIBUTES in model.templates else model.parsed
        texts = [_observations(templates, rows, n) for n, rows in enumerate(sequences)]
        ids, label_sets = (None, None) if allowed is None else _codes(_labels(allowed, sequences), model.labels)
        return model, _dataset(texts, {text: i for i, text in enumerate(model.observations)}, ids, None, label_sets)

    def _restriction(self, scheme: bool | str, allowed) -> dict:
        transitions = transitions_of(self.classes_, scheme) if scheme else None
        return {"allowed": None if allowed is None else "labels", "transitions": transitions}


def load(path: str | Path) -> CRF:
    """A fitted labeller from a model file."""
    return CRF.load(path)


def _model_of(source) -> Labeller:
    if isinstance(source, CRF):
        return source._model()
    return source if isinstance(source, Labeller) else load_model(source)


def _rows(tokens: list) -> list[tuple[str, ...]]:
    """Tokens as rows of columns."""
    return [(token,) if isinstance(token, str) else tuple(map(str, token)) for token in tokens]


def _observations(templates: list[Template], tokens: list, n: int) -> list[list]:
    """The observations at each position of a sequence: texts, or pairs of a text and its value."""
    if not templates:
        found = []
        for t, token in enumerate(tokens):
            try:
                found.append(["B", "U", *(_observed(item) for item in _attributes(token))])
            except EspalierError as error:
                raise EspalierError(f"token {t} of sequence {n}: {error}") from None
        return found
    rows = _rows(tokens)
    check_columns(templates, min((len(row) for row in rows), default=0))
    texts = expand_rows(templates, rows)
    if not any(template.value for template in templates):
        return texts
    values = values_of_rows(templates, rows, f"sequence {n}")
    return [
        [text if value is None else (text, value) for text, value in zip(*both, strict=True) if value == value]
        for both in zip(texts, values, strict=True)
    ]  # fmt: skip


def _observed(item: str | tuple[str, float]) -> str | tuple[str, float]:
    return f"U:{item}" if isinstance(item, str) else (f"U:{item[0]}", item[1])


def _attributes(token) -> list[str | tuple[str, float]]:
    """The attributes of a token: texts, or pairs of a name and a value."""
    if isinstance(token, str):
        return [token]
    if isinstance(token, dict):
        pairs = ((name, _scalar(name, value)) for name, value in token.items())
        return [
            str(name) if value is True else (str(name), value) if isinstance(value, float) else f"{name}={value}"
            for name, value in pairs
            if value is not None and value is not False
        ]
    return [str(_scalar("an attribute", text)) for text in token]


def _scalar(name, value) -> str | float | bool | None:
    """A text, truth value or None as it is, a number as a float; anything else is refused."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        number = float(value) if abs(value) < sys.float_info.max else math.inf
        if not math.isfinite(number):
            raise EspalierError(f"{quoted(str(name))} is {value}: expected a finite number")
        return number
    raise EspalierError(
        f"{quoted(str(name))} is of the type {type(value).__name__}: expected a text, a number, True, False or None; "
        "write each entry of a list or table as an attribute of its own"
    )


def _sequences(X) -> list[list]:
    """Lists of tokens; a table becomes rows of its input columns."""
    if hasattr(X, "to_arrow"):
        X = X.to_arrow()
    if not hasattr(X, "column_names"):
        sequences = [list(rows) for rows in X]
    else:
        columns = [name for name in X.column_names if name not in ("sequence", "label")]
        if "sequence" not in X.column_names or not columns:
            raise EspalierError(f"the table has the columns {X.column_names}: expected sequence, x0, x1, …")
        rows = list(zip(*(X.column(name).to_pylist() for name in columns), strict=True))
        sequence = X.column("sequence").to_numpy()
        cuts = np.append(np.flatnonzero(np.diff(sequence, prepend=sequence[:1] - 1)), len(rows))
        sequences = [rows[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    for n, rows in enumerate(sequences):
        if not rows:
            raise EspalierError(f"sequence {n} has no token: leave empty sequences out")
    return sequences


def _labels(y, sequences: list[list]) -> list[list[str]]:
    labels = [list(row) for row in y]
    if len(labels) != len(sequences):
        raise EspalierError(f"{len(labels)} rows of labels for {len(sequences)} sequences: expected one each")
    for n, (row, rows) in enumerate(zip(labels, sequences, strict=True)):
        if len(row) != len(rows):
            raise EspalierError(f"sequence {n} has {len(rows)} tokens and {len(row)} labels: expected one each")
    return labels


def _possible(value) -> frozenset:
    """The labels that an entry of y stands for; none for None."""
    if value is None:
        return frozenset()
    return frozenset(value) if isinstance(value, set | frozenset | list | tuple) else frozenset([value])


def _codes(labels: list[list], classes: list[str]) -> tuple[list[int], np.ndarray]:
    """The labels of a data set, and its label sets where there are any."""
    code, sets, ids = {label: i for i, label in enumerate(classes)}, {}, []
    for n, row in enumerate(labels):
        for t, value in enumerate(row):
            possible = _possible(value)
            unknown = [label for label in possible if label not in code]
            if unknown:
                raise EspalierError(
                    f"label {quoted(unknown[0])} of sequence {n} is not known: expected one of {brief(classes)}"
                )
            if value is None:
                ids.append(UNKNOWN)
            elif len(possible) == 1:
                ids.append(code[next(iter(possible))])
            elif possible:
                ids.append(FIRST_SET - sets.setdefault(possible, len(sets)))
            else:
                raise EspalierError(f"token {t} of sequence {n} has an empty set of labels: expected None if unknown")
    table = np.array([[label in members for label in classes] for members in sets], bool)
    return ids, table.reshape(len(sets), len(classes))


def _check_characters(names: list[str], classes: list[str], sequences: list[list], labels: list[list]) -> None:
    """Refuse texts with half a character in them, which no file could hold."""
    if _is_whole(names) and _is_whole(classes):
        return
    for n, (tokens, row) in enumerate(zip(sequences, labels, strict=True)):
        for t, (token, value) in enumerate(zip(tokens, row, strict=True)):
            names = [item if isinstance(item, str) else item[0] for item in _attributes(token)]
            for what, texts in (("token", names), ("label", _possible(value))):
                if not _is_whole(texts):
                    raise EspalierError(
                        f"the {what} {quoted(next(iter(texts)))} at position {t} of sequence {n} holds half a "
                        "character (a lone surrogate): expected whole pairs"
                    )
    raise EspalierError("a template holds half a character (a lone surrogate): expected whole pairs")


def _is_whole(texts: Iterable) -> bool:
    try:
        "".join(map(str, texts)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _token_weights(weights, sequences: list[list]) -> list[float] | None:
    if weights is None:
        return None
    rows = [list(row) for row in weights]
    for n, (row, tokens) in enumerate(zip(rows, sequences, strict=False)):
        if len(row) != len(tokens):
            raise EspalierError(f"sequence {n} has {len(tokens)} tokens and {len(row)} weights: expected one each")
    if len(rows) != len(sequences):
        raise EspalierError(f"{len(rows)} rows of token weights for {len(sequences)} sequences: expected one each")
    return [weight for row in rows for weight in row]


def _dataset(texts: list, ids: dict[str, int], labels, weights, label_sets=None, token_weights=None) -> Dataset:
    """Flat arrays; positions with fewer observations than others are filled up with -1."""
    rows = [row for sequence in texts for row in sequence]
    plain = [[ids.get(item, -1) for item in row if isinstance(item, str)] for row in rows]
    pairs = [[item for item in row if not isinstance(item, str)] for row in rows]
    valued = values = None
    if any(pairs):
        valued = _filled([[ids.get(text, -1) for text, _ in row] for row in pairs], -1, np.int32)
        values = _filled([[value for _, value in row] for row in pairs], 0.0, np.float64)
    offsets = np.cumsum([0, *(len(sequence) for sequence in texts)])
    observations = _filled(plain, -1, np.int32)
    return make_dataset(observations, labels, offsets, weights, label_sets, token_weights, valued, values)


def _filled(rows: list[list], empty, kind) -> np.ndarray:
    """Rows of different lengths as one table."""
    width = max((len(row) for row in rows), default=1)
    if len(rows) * width > MOST_CELLS:
        raise EspalierError(
            f"a token has {width:,} attributes and there are {len(rows):,} tokens, which makes a table of "
            f"{len(rows) * width:,} cells: expected at most {MOST_CELLS:,}; give fewer attributes, or fewer tokens"
        )
    out = np.full((len(rows), width), empty, kind)
    for t, row in enumerate(rows):
        out[t, : len(row)] = row
    return out


def _cut(values, offsets: np.ndarray) -> list:
    return [values[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]

"""A labeller for Python: `CRF().fit(X, y).predict(X)`, with the conventions of scikit-learn.

X is a list of sequences. A token is a text, a list of attribute texts, or a dict of
attributes ({"word": "the", "title": True}); each attribute becomes an observation with
unigram weights, beside a label bias and plain transitions. With `templates`, a token is
a row of columns and the templates make the observations. An Arrow or Polars table with
the columns sequence, x0, x1, … is taken as rows of columns.
"""

import inspect
from pathlib import Path

import numpy as np

from engine import decode
from engine.chain_objective import ChainObjective
from engine.data import Dataset, make_dataset
from engine.errors import EspalierError
from engine.layout import make_layout, observation_kinds
from engine.measures import token_error
from engine.model import Model
from engine.penalty import ElasticNet
from engine.solvers import minimise
from engine.templates import check_columns, expand_one, parse

ATTRIBUTES = "U:%a"  # stands in the model file for observations that came from attributes, not templates


class CRF:
    def __init__(
        self, templates=None, solver="owlqn", rho1=0.5, rho2=0.001, pairs="seen", start=True, max_iterations=100,
        tolerance=1e-4, min_count=1, sparse="auto",
    ):  # fmt: skip
        self.templates, self.solver, self.rho1, self.rho2 = templates, solver, rho1, rho2
        self.pairs, self.start, self.max_iterations, self.tolerance = pairs, start, max_iterations, tolerance
        self.min_count, self.sparse = min_count, sparse

    def get_params(self, deep: bool = True) -> dict:
        return {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)}

    def set_params(self, **params) -> "CRF":
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise EspalierError(f"unknown parameter {name!r}: known are {', '.join(known)}")
            setattr(self, name, value)
        return self

    def fit(self, X, y, sample_weight=None) -> "CRF":
        """Learn from sequences X and their labels y (lists of texts); a weight of 2 counts as a duplicate."""
        sequences = _sequences(X)
        labels = _labels(y, sequences)
        texts = [self._observations(rows) for rows in sequences]
        counts: dict[str, int] = {}
        for row in (row for rows in texts for row in rows):
            for text in row:
                counts[text] = counts.get(text, 0) + 1
        names = [text for text, count in counts.items() if count >= self.min_count]
        classes = sorted({label for row in labels for label in row})
        code = {label: i for i, label in enumerate(classes)}
        ids = [code[label] for row in labels for label in row]
        data = _dataset(texts, {text: i for i, text in enumerate(names)}, ids, sample_weight)
        layout = make_layout(self.pairs, data, len(classes), observation_kinds(names), self.start)
        result = minimise(
            self.solver, ChainObjective(data, layout, self.sparse), ElasticNet(self.rho1, self.rho2), None,
            self.max_iterations, self.tolerance,
        )  # fmt: skip
        info = {"solver": self.solver, "penalty": {"rho1": self.rho1, "rho2": self.rho2}, "start": self.start,
                "pairs": self.pairs, "stop_reason": result.stop_reason, "iterations": result.iterations,
                "objective": result.objective, "features": layout.size}  # fmt: skip
        lines = [template.line for template in self._parsed()] or [ATTRIBUTES, "B"]
        self.model_ = Model.compact(layout, result.theta, names, classes, lines, info)
        self.trace_, self.stop_reason_ = result.trace, result.stop_reason
        return self

    @property
    def classes_(self) -> list[str]:
        return self._model().labels

    def predict(self, X) -> list[list[str]]:
        """The likeliest labelling of each sequence."""
        model, data = self._prepared(X)
        return _cut([model.labels[i] for i in decode.viterbi(data, model.layout, model.theta)], data.offsets)

    def predict_marginals(self, X) -> list[np.ndarray]:
        """p(label | sequence) at each position: one array [positions, labels] a sequence, in the order of classes_."""
        model, data = self._prepared(X)
        return _cut(decode.marginals(data, model.layout, model.theta), data.offsets)

    def score(self, X, y, sample_weight=None) -> float:
        """Share of positions with the right label."""
        predicted = [label for row in self.predict(X) for label in row]
        gold = [label for row in _labels(y, _sequences(X)) for label in row]
        return 1.0 - token_error(np.array(gold), np.array(predicted))

    def save(self, path: str | Path) -> None:
        self._model().save(path)

    @classmethod
    def load(cls, path: str | Path) -> "CRF":
        """A fitted labeller from a model file."""
        model = Model.load(path)
        made = cls(templates=None if ATTRIBUTES in model.templates else model.templates)
        made.model_ = model
        return made

    def _model(self) -> Model:
        if not hasattr(self, "model_"):
            raise EspalierError("this CRF has not been fitted: call fit or load first")
        return self.model_

    def _parsed(self):
        if self.templates is None:
            return []
        lines = self.templates.splitlines() if isinstance(self.templates, str) else list(self.templates)
        return parse(lines, "templates")

    def _observations(self, rows: list) -> list[list[str]]:
        """The observations at each position of a sequence."""
        templates = self._parsed()
        if not templates:
            return [["B", "U", *(f"U:{text}" for text in _attributes(token))] for token in rows]
        rows = [(token,) if isinstance(token, str) else tuple(map(str, token)) for token in rows]
        check_columns(templates, min((len(row) for row in rows), default=0))
        return [[expand_one(template, rows, t) for template in templates] for t in range(len(rows))]

    def _prepared(self, X) -> tuple[Model, Dataset]:
        model = self._model()
        texts = [self._observations(rows) for rows in _sequences(X)]
        return model, _dataset(texts, {text: i for i, text in enumerate(model.observations)}, None, None)


def _attributes(token) -> list[str]:
    if isinstance(token, str):
        return [token]
    if isinstance(token, dict):
        return [name if value is True else f"{name}={value}" for name, value in token.items()
                if value is not None and value is not False]  # fmt: skip
    return [str(text) for text in token]


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


def _dataset(texts: list, ids: dict[str, int], labels, weights) -> Dataset:
    """Flat arrays; positions with fewer observations than others are filled up with -1."""
    rows = [row for sequence in texts for row in sequence]
    width = max((len(row) for row in rows), default=1)
    observations = np.full((len(rows), width), -1, np.int32)
    for t, row in enumerate(rows):
        observations[t, : len(row)] = [ids.get(text, -1) for text in row]
    offsets = np.cumsum([0, *(len(sequence) for sequence in texts)])
    return make_dataset(observations, labels, offsets, weights)


def _cut(values, offsets: np.ndarray) -> list:
    return [values[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]

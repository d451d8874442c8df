"""sklearn-crfsuite's `CRF`."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from espalier.crfsuite.items import Items, ItemSequence, Sequences, Text
from espalier.crfsuite.tagger import ParsedDump, Tagger
from espalier.crfsuite.trainer import Trainer
from espalier.crfsuite.training_log import TrainingLog
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import WeightLabeller

# Parameters of `CRF` that a trainer knows by another name.
TRAINER_NAMES = {"min_freq": "feature.minfreq", "all_possible_states": "feature.possible_states",
                 "all_possible_transitions": "feature.possible_transitions", "pa_type": "type"}  # fmt: skip
OWN = ("algorithm", "verbose", "model_filename", "keep_tempfiles", "trainer_cls")  # are no trainer's
Answer = TypeVar("Answer")  # to one item


class CRF:
    """sklearn-crfsuite's estimator. A parameter that is None has CRFsuite's default; see `Trainer.help` for each."""

    def __init__(
        self, algorithm: str = "lbfgs", min_freq: float | None = None, all_possible_states: bool | None = None,
        all_possible_transitions: bool | None = None, c1: float | None = None, c2: float | None = None,
        max_iterations: int | None = None, num_memories: int | None = None, epsilon: float | None = None,
        period: int | None = None, delta: float | None = None, linesearch: str | None = None,
        max_linesearch: int | None = None, calibration_eta: float | None = None,
        calibration_rate: float | None = None, calibration_samples: int | None = None,
        calibration_candidates: int | None = None, calibration_max_trials: int | None = None,
        pa_type: int | None = None, c: float | None = None, error_sensitive: bool | None = None,
        averaging: bool | None = None, variance: float | None = None, gamma: float | None = None,
        verbose: bool = False, model_filename: str | None = None, keep_tempfiles: bool | None = False,
        trainer_cls: type[Trainer] | None = None,
    ) -> None:  # fmt: skip
        self.algorithm, self.min_freq, self.all_possible_states = algorithm, min_freq, all_possible_states
        self.all_possible_transitions, self.c1, self.c2 = all_possible_transitions, c1, c2
        self.max_iterations, self.num_memories, self.epsilon = max_iterations, num_memories, epsilon
        self.period, self.delta, self.linesearch = period, delta, linesearch
        self.max_linesearch, self.calibration_eta = max_linesearch, calibration_eta
        self.calibration_rate, self.calibration_samples = calibration_rate, calibration_samples
        self.calibration_candidates, self.calibration_max_trials = calibration_candidates, calibration_max_trials
        self.pa_type, self.c, self.error_sensitive = pa_type, c, error_sensitive
        self.averaging, self.variance, self.gamma = averaging, variance, gamma
        self.verbose, self.model_filename, self.keep_tempfiles = verbose, model_filename, keep_tempfiles
        self.trainer_cls = trainer_cls
        self.training_log_: TrainingLog | None = None
        self._tagger: Tagger | None = None

    # What scikit-learn asks of an estimator.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)}

    def set_params(self, **params: Any) -> "CRF":
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise EspalierError(f"unknown parameter {name!r}: known are {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()

    def __repr__(self) -> str:
        other = {name: value for name, value in self.get_params().items() if value not in (None, False, "lbfgs")}
        return f"CRF({', '.join(f'{name}={value!r}' for name, value in other.items())})"

    # Training.

    def fit(
        self, X: Sequences, y: Iterable[Iterable[Text]], X_dev: Sequences | None = None,
        y_dev: Iterable[Iterable[Text]] | None = None,
    ) -> "CRF":  # fmt: skip
        """Learn from sequences X of items and their labels y; X_dev and y_dev are tested on after each iteration."""
        if (X_dev is None) != (y_dev is None):
            raise EspalierError("X_dev without y_dev, or y_dev without X_dev: expected both or neither")
        trainer = self._trainer()
        append_all(trainer, X, y, 0)
        if X_dev is not None and y_dev is not None:
            append_all(trainer, X_dev, y_dev, 1)
        trainer.train(self.model_filename or "", -1 if X_dev is None else 1)
        self.training_log_ = trainer.logparser
        self._tagger = Tagger()
        self._tagger._use(trainer._model(), Path(self.model_filename).stat().st_size if self.model_filename else 0)
        return self

    def _trainer(self) -> Trainer:
        given = {name: value for name, value in self.get_params().items() if name not in OWN and value is not None}
        named = {TRAINER_NAMES.get(name, name.replace("calibration_", "calibration.")): v for name, v in given.items()}
        return (self.trainer_cls or Trainer)(algorithm=self.algorithm, params=named, verbose=self.verbose)

    # Answers.

    def predict(self, X: Sequences) -> list[list[str]]:
        """The likeliest labels of each sequence."""
        return self._cut(X, lambda model, data: [model.labels[i] for i in model.best(data)])

    def predict_single(self, xseq: Items) -> list[str]:
        return self.predict([xseq])[0]

    def predict_marginals(self, X: Sequences) -> list[list[dict[str, float]]]:
        """p(label | sequence) of each label at each item."""

        def answers(model: WeightLabeller, data: Dataset) -> list[dict[str, float]]:
            rows = model.marginals(data).tolist()
            return [dict(zip(model.labels, row, strict=True)) for row in rows]

        return self._cut(X, answers)

    def predict_marginals_single(self, xseq: Items) -> list[dict[str, float]]:
        return self.predict_marginals([xseq])[0]

    def score(self, X: Sequences, y: Iterable[Iterable[str]]) -> float:
        """Share of items with the right label."""
        pairs = list(zip(y, self.predict(X), strict=True))
        total = sum(len(row) for _, row in pairs)
        if not total:
            raise EspalierError("there is no item: expected at least one to score")
        return sum(a == b for right, row in pairs for a, b in zip(right, row, strict=True)) / total

    def _cut(self, X: Sequences, answers: Callable[[WeightLabeller, Dataset], list[Answer]]) -> list[list[Answer]]:
        """The answers to all items, cut into sequences again, those without items among them."""
        tagger, sequences = self._fitted(), [ItemSequence(sequence) for sequence in X]
        data = tagger.data_of(sequences)
        found: Iterator[Answer] = iter(answers(tagger._opened(), data) if len(data.labels) else ())
        return [[next(found) for _ in range(len(sequence))] for sequence in sequences]

    # What was learnt.

    @property
    def tagger_(self) -> Tagger | None:
        """A tagger with the model, or with that of `model_filename`; None before there is one."""
        if self._tagger is None and self.model_filename and Path(self.model_filename).is_file():
            self._tagger = Tagger()
            self._tagger.open(self.model_filename)
        return self._tagger

    def _fitted(self) -> Tagger:
        tagger = self.tagger_
        if tagger is None:
            raise EspalierError("this CRF has not been fitted: call fit, or name a model file in model_filename")
        return tagger

    def _info(self) -> ParsedDump | None:
        return self.tagger_.info() if self.tagger_ else None

    @property
    def classes_(self) -> list[str] | None:
        return self.tagger_.labels() if self.tagger_ else None

    @property
    def size_(self) -> int | None:
        """Bytes of the model file; 0 where none was written."""
        return self.tagger_._size if self.tagger_ else None

    @property
    def num_attributes_(self) -> int | None:
        """How many attributes have a weight that is not zero."""
        info = self._info()
        return None if info is None else len(info.attributes)

    @property
    def attributes_(self) -> list[str] | None:
        """The attributes with a weight that is not zero."""
        info = self._info()
        return None if info is None else list(info.attributes)

    @property
    def state_features_(self) -> dict[tuple[str, str], float] | None:
        """{(attribute, label): weight}"""
        info = self._info()
        return None if info is None else info.state_features

    @property
    def transition_features_(self) -> dict[tuple[str, str], float] | None:
        """{(label before, label): weight}"""
        info = self._info()
        return None if info is None else info.transitions


def append_all(trainer: Trainer, X: Sequences, y: Iterable[Iterable[Text]], group: int) -> None:
    try:
        for items, labels in zip(X, y, strict=True):
            trainer.append(items, labels, group)
    except ValueError as error:
        if isinstance(error, EspalierError):
            raise
        raise EspalierError("X and y have different numbers of sequences: expected one row of labels each") from None

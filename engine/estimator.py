"""A labeller for Python: `CRF().fit(X, y).predict(X)`, with the conventions of scikit-learn.

X is a list of sequences. A token is a text, a list of attribute texts, or a dict of
attributes ({"word": "the", "title": True, "length": 3.0}); each attribute becomes an observation with
unigram weights, beside a label bias and plain transitions. A number is the value of its attribute and multiplies
its weights. With `templates`, a token is
a row of columns and the templates make the observations. A table of pandas, Polars or Arrow with
the columns sequence, x0, x1, … is taken as rows of columns.

y is a list of rows of labels. A label that is not known is None; where it is one of
several, it is a set (or list, or tuple) of them.
"""

from __future__ import annotations  # help(CRF) shows types by their names

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from numbers import Integral
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from espalier.engine import warm_start, warm_up
from espalier.engine.data.dataset import UNKNOWN, Dataset, any_in_sequence, select
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families import load as load_model
from espalier.engine.families.labeller import DECODERS, Labeller, WeightLabeller
from espalier.engine.families.objectives import OBJECTIVES
from espalier.engine.fitting import fits
from espalier.engine.fitting.asked import Asked, check, is_generative, must
from espalier.engine.fitting.encoding import ATTRIBUTES, Encoded, encoded
from espalier.engine.interface.conventions import Conventions, not_fitted
from espalier.engine.interface.fit_line import fit_line
from espalier.engine.interface.inputs import (
    Inputs,
    Labels,
    codes,
    is_table,
    labels_of,
    possible,
    sequence_weights,
    sequences_of,
    token_weights,
)
from espalier.engine.interface.notebook import page_of
from espalier.engine.interface.observations import dataset_of, observations_of, rows_of
from espalier.engine.labels.abstention import check_limit, unsure
from espalier.engine.labels.scheme import transitions_of
from espalier.engine.losses.loss_table import LOG
from espalier.engine.optimise.solver_table import fitting
from espalier.engine.runtime import compiling
from espalier.engine.text.templates import Template, with_room
from espalier.engine.text.values import scaled_dataset

STARTS = {
    "hmm": ("hmm",), "perceptron": ("perceptron", *OBJECTIVES), "boosting": ("boosting", "perceptron", *OBJECTIVES),
}  # whose models are one for a training, if others

P = ParamSpec("P")
R = TypeVar("R")
Estimator = TypeVar("Estimator", bound="CRF")


def _says_when_compiling(method: Callable[Concatenate[Estimator, P], R]) -> Callable[Concatenate[Estimator, P], R]:
    """The first use on a machine compiles kernels: a line says so, as `verbose` will have it."""

    @wraps(method)
    def call(self: Estimator, /, *arguments: P.args, **options: P.kwargs) -> R:
        with compiling.said(self.verbose):
            return method(self, *arguments, **options)

    return call


class CRF(Conventions):
    """A sequence labeller: a conditional random field, or another family of models with the same use.

    Parameters
    ----------
    templates : list of str, str or None
        Feature templates, `["U:%x[0,0]", "B"]`, or some that come along, `"espalier:S3"`; tokens are rows of columns
        then. None: tokens are texts, lists of attributes or dicts of them, where a number multiplies the weights of
        its attribute.
    solver : str
        How the objective is minimised: `auto`, `owlqn`, `pqn`, `lbfgs`, `sbcd`, …
    rho1, rho2 : float
        Strength of the L1 and the L2 penalty. `rho1="auto"` chooses both by a search along paths of `rho1`: a share
        `dev_share` of the sequences, drawn by `seed` from those with all their labels, is held out to judge by (F1
        where labels mark entities, else the error of tokens); then all of them are trained on with what was best.
    pairs : {"seen", "all"}
        Weights for pairs of observation and label that occur in the data, or for all of them.
    start : bool
        Whether the first label of a sequence has weights of its own.
    stop : bool
        Whether the last label of a sequence has weights of its own; `crf` only.
    weights : {"shared", "per-label"}
        Of a `memm`: whether the labels before share the weights of observations, or each has a model of its own.
    scheme : str or None
        Transitions that a tagging scheme forbids are impossible in training and in answers, `crf` only: "auto" (that of
        the labels), "iob2", "iob1" or "bioes".
    max_iterations : int
        Iterations at most.
    tolerance : float
        Stop when the last third of the iterations lowered the objective by less than this share of it.
    min_count : int
        Observations that occur less often have no weights.
    sparse : {"auto", "dense", "sparse"}
        Which recursions; `auto` takes what is cheaper.
    verbose : bool or None
        Whether lines on stderr tell how far training and compiling are; None: in a terminal or notebook.
    family : {"crf", "memm", "hmm", "gp", "hmsvm", "perceptron", "boosting"}
        What is trained: a conditional random field, a maximum-entropy Markov model, a hidden Markov model, a Gaussian
        process, a hidden Markov support vector machine, an averaged perceptron. An HMM has `training` and what stands
        behind it here, but no solver and no penalty; its tokens are texts, or rows of columns with templates. Kernel
        machines have `degree` and what stands behind it. A perceptron has `update`, boosting (sequence AdaBoost) has
        `bound`, and neither says probabilities.
    dev_share : float
        Share of the sequences that `rho1="auto"` is judged by.
    seed : int
        Of the held-out sequences, of the order of sequences in stochastic solvers, of the starts of an HMM.
    smoothing : float
        hmm: added to each count.
    rare : int
        hmm: observations seen so often or less tell how likely unknown ones are.
    scale : bool
        Divide the values of each attribute by how much they vary in the training data. The model keeps the factors.
    loss : {"log", "marginal", "exponential"}
        crf: what is minimised. `log`: minus the log-probability of the labels of a sequence. `marginal`: that of each
        label by itself, the mean over a sequence; it is not convex, `solver="auto"` begins with an epoch of the log
        loss, and `predict(X, "posterior")` goes with it. `exponential`: the log of the summed odds against the
        right labels, as in boosting; its penalties weigh about as many times as much as there are sequences.
    pi : float
        Exponential loss: a sequence of T tokens counts pi ** T; above 0 and up to 1.
    training : {"counts", "baum-welch", "viterbi", "stepwise", "conditional", "mmi", "mce"}
        hmm: how its probabilities are found. `counts` are relative counts of labelled data. `baum-welch`
        (expectation-maximisation), `viterbi` (counts of the likeliest labellings) and `stepwise` (the model renewed
        behind each batch) also learn from sequences whose labels are None, in part or altogether. `conditional`,
        `mmi` and `mce` begin with the counts and go on to tell labellings apart.
    restarts : int
        hmm, baum-welch and viterbi: starts, of which the best is kept; the first is by the labels, others by chance.
    power : float
        hmm, mmi: what all probabilities are raised to.
    alpha : float
        hmm, stepwise: how fast steps shrink, (k + 2)^-alpha behind k of them; from 0.5 to 1.
    batch : int
        hmm, stepwise: sequences between two steps.
    order : {"random", "short", "long"}
        hmm, stepwise: sequences as chance has it, short ones first, or long ones.
    degree : int or None
        gp, hmsvm, perceptron: the kernel of two tokens is (m + 1) ** degree, m being how many attributes they have in
        common; up to 8. None: 2 for gp and hmsvm; a perceptron then has weights of attributes, otherwise tokens of the
        training data vote for labels, as in the other two.
    kappa : float
        gp: weight of the squared norm; above 0.
    eta : float
        gp, hmsvm, perceptron: what a pair of labels in common adds to the kernel; above 0.
    method : {"dense", "sparse"}
        gp: whether every token of the training data supports labels, or few of them, chosen one by one.
    share : float
        gp, sparse: supports at most, a token and a label each, as a share of the distinct tokens.
    coordinates : int
        gp, sparse: supports that a sequence may bring when it is looked at.
    threshold : float
        gp, sparse: sequences with no gradient above it are passed over.
    pick : {"random", "gradient"}
        gp, sparse: the next sequence as chance has it, or the one with the largest gradient.
    C : float
        hmsvm: what a margin that is missed costs; above 0.
    slack : {"sequence", "squared", "labelling", "hard"}
        hmsvm: how missed margins count: as they are, one a sequence, squared, one for each labelling, or not allowed.
    margin : {"one", "hamming"}
        hmsvm: to every other labelling the same, or the number of its wrong labels.
    gap : float
        hmsvm: training stops when primal and dual differ by this share of the dual.
    update : {"perceptron", "pa", "arow"}
        perceptron: how far a mistake moves weights. `perceptron`: by one. `pa` (passive-aggressive): as far as the
        mistake asks for, `c` at most. `arow`: less far where they were often moved, by `gamma`.
    lead : {"none", "hamming"}
        perceptron: what a mistake is, a wrong labelling, or one that the right one does not lead by its wrong labels.
    c, gamma : float
        perceptron, see `update`.
    epochs : int
        perceptron: passes over the sequences, in an order drawn by `seed`; fewer when one finds no mistake.
    average : bool
        perceptron: keep the mean of the weights after every sequence (not with `arow`), or the last ones.
    bound : {"exact", "tight", "loose"}
        boosting: what a round makes smallest. `exact`: the odds against the right labellings, of the weight that the
        tight bound chooses. `tight`: a bound on them for each sequence. `loose`: one bound for all.
    examples : {"sequences", "positions", "neighbours"}
        boosting: what is right or wrong. `positions`: each by itself, without weights for pairs of labels.
        `neighbours`: each given the right label before it.
    rounds : int
        boosting: weights that move, one after the other, at most. A sequence of T tokens counts `pi` to the power of T:
        below 1, say 0.8, long ones do not decide all.
    epsilon : float
        boosting: more of it, shorter steps.

    Attributes
    ----------
    classes_ : list of str
        The labels.
    model_ : Labeller
        The trained model: its weights in words.
    rho1_, rho2_ : float
        The penalties that it was trained with, also where they were chosen; of a CRF or MEMM.
    trace_ : list of dict
        A record of each iteration; not of a loaded model.
    stop_reason_ : str
        Why training ended.

    Examples
    --------
    >>> from espalier import CRF
    >>> X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"]]
    >>> y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"]]
    >>> crf = CRF(rho1=0.01).fit(X, y)
    >>> crf.predict([["a", "dog", "sleeps"]])
    [['D', 'N', 'V']]
    >>> crf.classes_
    ['D', 'N', 'V']

    Tokens with attributes:

    >>> features = [[{"word": word, "last": word[-1]} for word in row] for row in X]
    >>> CRF(rho1=0.01).fit(features, y).score(features, y)
    1.0

    A hidden Markov model that also learns from sequences without labels:

    >>> more = [["the", "cat", "barks"], ["cats", "sleep"]]
    >>> hmm = CRF(family="hmm", training="baum-welch").fit(X + more, y + [[None] * 3, [None] * 2])
    >>> hmm.predict([["cats", "bark"]])
    [['N', 'V']]
    """

    model_: Labeller

    def __init__(
        self, templates: Sequence[str] | str | None = None, solver: str = "auto", rho1: float | str = 0.5,
        rho2: float = 0.001, pairs: str = "seen", start: bool = True, max_iterations: int = 1000,
        tolerance: float = 4e-4, min_count: int = 1, sparse: str = "auto", verbose: bool | None = None,
        family: str = "crf", dev_share: float = 0.1, seed: int = 0, smoothing: float = 1e-5, rare: int = 1,
        scale: bool = False, stop: bool = False, weights: str = "shared", loss: str = LOG, pi: float = 1.0,
        training: str = "counts", restarts: int = 1, power: float = 0.5, alpha: float = 0.7, batch: int = 50,
        order: str = "random", scheme: str | None = None, degree: int | None = None, kappa: float = 1.0,
        eta: float = 1.0, method: str = "dense", share: float = 0.25, coordinates: int = 10, threshold: float = 1e-3,
        pick: str = "random", C: float = 1.0, slack: str = "sequence", margin: str = "one", gap: float = 0.01,
        update: str = "perceptron", lead: str = "none", c: float = 1.0, gamma: float = 1.0,
        epochs: int = 20, average: bool = True, bound: str = "exact", examples: str = "sequences",
        rounds: int = 1000, epsilon: float = 1e-5,
    ):  # fmt: skip
        self.templates, self.solver, self.rho1, self.rho2 = templates, solver, rho1, rho2
        self.pairs, self.start, self.max_iterations, self.tolerance = pairs, start, max_iterations, tolerance
        self.min_count, self.sparse, self.verbose = min_count, sparse, verbose
        self.family, self.dev_share, self.seed = family, dev_share, seed
        self.smoothing, self.rare, self.scale, self.stop, self.weights = smoothing, rare, scale, stop, weights
        self.loss, self.pi, self.scheme = loss, pi, scheme
        self.training, self.restarts, self.power = training, restarts, power
        self.alpha, self.batch, self.order = alpha, batch, order
        self.update, self.lead, self.c, self.gamma = update, lead, c, gamma
        self.epochs, self.average = epochs, average
        self.bound, self.examples, self.rounds, self.epsilon = bound, examples, rounds, epsilon
        self.degree, self.kappa, self.eta, self.method = degree, kappa, eta, method
        self.share, self.coordinates, self.threshold, self.pick = share, coordinates, threshold, pick
        self.C, self.slack, self.margin, self.gap = C, slack, margin, gap

    @_says_when_compiling
    def fit(
        self, X: Inputs, y: Labels, sample_weight: Any = None, token_weight: Any = None,
        start_from: CRF | Labeller | str | Path | None = None,
    ) -> Self:  # fmt: skip
        """Learn from sequences and their labels.

        Parameters
        ----------
        X : list of sequences, or a table
            Each sequence is a list of tokens. A table of pandas, Polars or Arrow has a row for each token, its
            columns are `sequence`, `x0`, `x1`, …; or a row for each sequence with a list in the column `tokens`.
        y : list of rows of labels
            A label is a text, None where it is not known, or a set of texts where it is one of these. Of a table it
            may be a column with a label in each row.
        sample_weight : list of float, optional
            A number for each sequence: one of weight 2 counts as a duplicate.
        token_weight : list of lists of float, optional
            A number for each token.
        start_from : CRF, model or path, optional
            A fitted labeller whose weights the training starts from; of an HMM its probabilities, with training
            `baum-welch`, `viterbi` or `stepwise`.

        Examples
        --------
        >>> from espalier import CRF
        >>> CRF(rho1=0.1).fit([["a", "b"], ["b"]], [["X", "Y"], [None]], sample_weight=[2, 1])
        CRF(rho1=0.1)
        """
        asked = Asked(**self.get_params())
        check(asked)
        sequences = sequences_of(X)
        labels = labels_of(y, sequences, is_table(X))
        train = encoded(
            asked, sequences, labels, sequence_weights(sample_weight, sequences), token_weights(token_weight, sequences)
        )
        if self.family == "crf" and fitting(self.solver) == fitting("auto"):
            warm_up.before_first_fit()
        if start_from is not None:
            must(asked, "warm_start", "leave start_from out")
        if len(train.data.labels) and train.data.labels.min() < 0:
            must(asked, "partial", "leave sequences without labels out")
        if not is_generative(self.family):  # sequences without labels teach nothing
            labelled = np.flatnonzero(any_in_sequence(train.data, train.data.labels != UNKNOWN))
            train = train._replace(data=select(train.data, labelled))
        self._trained(asked, train, None if start_from is None else _model_of(start_from, self.family))
        return self

    @property
    def classes_(self) -> list[str]:
        """The labels, in the order of the columns of `predict_marginals`."""
        return self._model().labels

    @_says_when_compiling
    def predict(
        self, X: Inputs, method: str = "viterbi", scheme: bool | str = False, allowed: Labels | None = None,
        abstain: float | None = None,
    ) -> list[list[str]]:  # fmt: skip
        """The labels of each sequence.

        Parameters
        ----------
        X : list of sequences, or a table
            As in `fit`.
        method : {"viterbi", "posterior"}
            The likeliest labelling of each sequence, or the likeliest label of each position.
        scheme : bool or str
            Keep to the transitions of the labels' scheme: True, or a name such as "iob1".
        allowed : list of rows of labels, optional
            What is known beforehand, in the form of the labels of `fit`.
        abstain : float, optional
            None stands for labels that are less probable than this, and for all labels of an entity that has one.

        Examples
        --------
        >>> from espalier import CRF
        >>> crf = CRF(rho1=0.01).fit([["a", "b"], ["b", "a"]], [["X", "Y"], ["Y", "X"]])
        >>> crf.predict([["a", "a"]])
        [['X', 'X']]
        >>> crf.predict([["a", "a"]], allowed=[["Y", None]])
        [['Y', 'X']]
        """
        if method not in DECODERS:
            raise EspalierError(f"method is {method!r}: expected one of {', '.join(DECODERS)}")
        return self._labelled(sequences_of(X), method, scheme, allowed, abstain)

    @_says_when_compiling
    def predict_nbest(
        self, X: Inputs, n: int, scheme: bool | str = False, allowed: Labels | None = None
    ) -> list[list[tuple[float, list[str]]]]:
        """Up to n likeliest labellings of each sequence, best first: pairs of log-probability and labels.

        Parameters
        ----------
        X, scheme, allowed
            As in `predict`.
        n : int
            How many labellings.

        Examples
        --------
        >>> from espalier import CRF
        >>> crf = CRF(rho1=0.01).fit([["a", "b"], ["b", "a"]], [["X", "Y"], ["Y", "X"]])
        >>> [labels for log_probability, labels in crf.predict_nbest([["a"]], 2)[0]]
        [['X'], ['Y']]
        """
        if not isinstance(n, Integral):
            raise EspalierError(f"n is {quoted(n)}: expected a whole number of at least 1")
        sequences = sequences_of(X)
        model, data = self._prepared(sequences, allowed)
        if not sequences:
            return []
        best = model.nbest(data, n, **self._restriction(scheme, allowed))
        cuts = zip(data.offsets, data.offsets[1:], best.count, best.log_probabilities, strict=False)
        return [
            [(float(log_p[r]), [model.labels[i] for i in best.labels[r, a:b]]) for r in range(count)]
            for a, b, count, log_p in cuts
        ]

    @_says_when_compiling
    def predict_marginals(
        self, X: Inputs, scheme: bool | str = False, allowed: Labels | None = None
    ) -> list[npt.NDArray[np.float64]]:
        """p(label | sequence) at each position: an array [positions, labels] for each sequence.

        Parameters
        ----------
        X, scheme, allowed
            As in `predict`; the columns are in the order of `classes_`.

        Examples
        --------
        >>> from espalier import CRF
        >>> crf = CRF(rho1=0.01).fit([["a", "b"], ["b", "a"]], [["X", "Y"], ["Y", "X"]])
        >>> crf.predict_marginals([["a", "b", "b"]])[0].shape
        (3, 2)
        """
        sequences = sequences_of(X)
        model, data = self._prepared(sequences, allowed)
        if not sequences:
            return []
        return _cut(model.marginals(data, **self._restriction(scheme, allowed)), data.offsets)

    @_says_when_compiling
    def score(self, X: Inputs, y: Labels, sample_weight: Any = None) -> float:
        """Share of positions with the right label, those of a sequence of weight w counted w times.

        A set of labels is met by any of them; positions without a known label do not count.

        Examples
        --------
        >>> from espalier import CRF
        >>> crf = CRF(rho1=0.01).fit([["a", "b"], ["b", "a"]], [["X", "Y"], ["Y", "X"]])
        >>> crf.score([["a", "b"]], [["X", "X"]])
        0.5
        """
        sequences = sequences_of(X)
        labels, weights = labels_of(y, sequences, is_table(X)), sequence_weights(sample_weight, sequences)
        predictions = self._labelled(sequences)
        right = total = 0.0
        weights = np.ones(len(labels)) if weights is None else weights
        for row, predicted, weight in zip(labels, predictions, weights, strict=True):
            hits = [label in possible(value) for value, label in zip(row, predicted, strict=True) if value is not None]
            right, total = right + weight * sum(hits), total + weight * len(hits)
        if not total > 0:
            raise EspalierError("no position with a known label has a weight: there is nothing to score")
        return float(right / total)

    def save(self, path: str | Path) -> None:
        """Write the model to a file, with the parameters that it was fitted with.

        Examples
        --------
        >>> import tempfile
        >>> from espalier import CRF
        >>> crf = CRF(rho1=0.01).fit([["a", "b"]], [["X", "Y"]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     crf.save(f"{folder}/a.model")
        ...     CRF.load(f"{folder}/a.model")
        CRF(rho1=0.01)
        """
        self._model().save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted labeller from a model file, with the parameters that it was fitted with; see `save`.

        A model of the pipeline has those parameters that both share.
        """
        model = _labeller_of(path)
        loaded = cls(**_parameters_of(model, cls._defaults(), path))
        loaded.model_ = model
        loaded._tell(model.info)
        return loaded

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _repr_html_(self) -> str:
        return page_of(repr(self), getattr(self, "model_", None))

    def _model(self) -> Labeller:
        if not hasattr(self, "model_"):
            raise not_fitted("this CRF has not been fitted: call fit or load first")
        return self.model_

    # Training ----------------------------------------------------------------------------------------

    def _trained(self, asked: Asked, train: Encoded, earlier: WeightLabeller | None) -> None:
        """Set `model_` and `trace_`, and tell of it on the way."""
        with fit_line(self.verbose, self.max_iterations) as line:
            self.model_, self.trace_ = fits.fit(asked, train, earlier, line)
            self._tell(self.model_.info)
            if self.verbose:
                record = self.trace_[-1]
                line.say(
                    f"{self.stop_reason_.replace('_', ' ')} after {record['iteration']:,} iterations, "
                    f"objective {record['objective']:,.6g}, {sum(self.model_.sizes().values()):,} active weights of "
                    f"{self.model_.info['features']:,}"
                )

    def _tell(self, info: dict[str, Any]) -> None:
        """The attributes that the info of a model has, too."""
        for name in ("rho1_", "rho2_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        penalty = info.get("penalty")
        if isinstance(penalty, dict):
            self.rho1_, self.rho2_ = penalty.get("rho1"), penalty.get("rho2")
        self.stop_reason_ = str(info.get("stop_reason"))

    # Labelling ---------------------------------------------------------------------------------------

    def _labelled(
        self, sequences: list[list[Any]], method: str = "viterbi", scheme: bool | str = False,
        allowed: Labels | None = None, abstain: float | None = None,
    ) -> list[list[str]]:  # fmt: skip
        model, data = self._prepared(sequences, allowed)
        if abstain is not None:
            check_limit(abstain)
            model.require("probability")
        if not sequences:
            return []
        only = self._restriction(scheme, allowed)
        ids = model.decoded(data, method, **only)
        if abstain is None:
            return _cut([model.labels[i] for i in ids], data.offsets)
        chances = model.marginals(data, **only)[np.arange(len(ids)), ids]
        names: list[Any] = np.array([*model.labels, None], object)[
            np.where(unsure(model.labels, ids, chances, data.offsets, abstain), -1, ids)
        ].tolist()
        return _cut(names, data.offsets)

    def _prepared(self, sequences: list[list[Any]], allowed: Labels | None = None) -> tuple[Labeller, Dataset]:
        model = self._model()
        templates = [] if ATTRIBUTES in model.templates else _with_room(model.parsed, sequences)
        texts = [observations_of(templates, rows, n) for n, rows in enumerate(sequences)]
        known = None if allowed is None else labels_of(allowed, sequences)
        ids, label_sets = (None, None) if known is None else codes(known, model.labels)
        data = dataset_of(texts, {text: i for i, text in enumerate(model.observations)}, ids, None, label_sets)
        return model, scaled_dataset(data, model.scale_of_each()) if model.scales else data

    def _restriction(self, scheme: bool | str, allowed: Labels | None) -> dict[str, Any]:
        transitions = transitions_of(self.classes_, scheme) if scheme else None
        return {"allowed": None if allowed is None else "labels", "transitions": transitions}


def load(path: str | Path) -> CRF:
    """A fitted labeller from a model file."""
    return CRF.load(path)


def _labeller_of(path: str | Path) -> Labeller:
    """The model of a file, which must label tokens."""
    model = load_model(path)
    model.require("labels")
    assert isinstance(model, Labeller)
    return model


def _model_of(source: CRF | Labeller | str | Path, family: str) -> WeightLabeller:
    """The model to start from, whose numbers must be of the same kind."""
    given = source._model() if isinstance(source, CRF) else source
    if not isinstance(given, Labeller | str | Path):
        raise EspalierError(f"start_from is {brief(given)}: expected a fitted CRF, a model or the path of one")
    model = given if isinstance(given, Labeller) else load_model(given)
    starts = STARTS.get(family, tuple(OBJECTIVES))
    if model.family not in starts:
        raise EspalierError(
            f"start_from is a model of the family {model.family}, whose numbers are no start for {family}: expected a "
            f"model of {' or '.join(starts)}"
        )
    warm_start.refuse_rows(model, "start_from is a model", "None")
    assert isinstance(model, WeightLabeller)  # as all of these families are
    return model


def _parameters_of(model: Labeller, known: Iterable[str], path: str | Path) -> dict[str, Any]:
    """The parameters that a model was fitted with, as far as its file tells them."""
    info = model.info
    kept = info.get(fits.PARAMETERS)
    if kept is None:
        penalty = info.get("penalty")
        both = ("solver", "pairs", "start", "stop", "weights", "smoothing", "rare", "loss", "pi", "scheme", "training",
                "update", "lead", "c", "gamma", "epochs", "average", "degree", "kappa", "eta", "method", "C", "slack",
                "margin")  # fmt: skip
        shared = {name: info[name] for name in both if name in info}
        templates = None if ATTRIBUTES in model.templates else list(model.templates)
        kept = {"family": model.family, "templates": templates, "scale": bool(model.scales)} | shared
        kept |= penalty if isinstance(penalty, dict) else {}
    if not isinstance(kept, dict):
        raise EspalierError(f"{path}: its parameters are {brief(kept)}, expected a table; train it again")
    return {name: value for name, value in kept.items() if name in known}


def _with_room(templates: list[Template], sequences: list[list[Any]]) -> list[Template]:
    """The templates with room for all attributes (%a) that the sequences have."""
    return list(with_room(templates, lambda column: {row[column] for rows in sequences for row in rows_of(rows)
                                                     if column < len(row)}))  # fmt: skip


def _cut(values: Any, offsets: npt.NDArray[np.int64]) -> list[Any]:
    return [values[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]

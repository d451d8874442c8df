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

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from espalier.engine import warm_start, warm_up
from espalier.engine.data.dataset import UNKNOWN, Dataset, any_in_sequence, check_label_count, select
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families import family as family_of
from espalier.engine.families import gp, hmm, hmsvm, perceptron_dual, require
from espalier.engine.families import load as load_model
from espalier.engine.families.boosting import ROUNDS, rounds_of
from espalier.engine.families.boosting_options import BoostingOptions
from espalier.engine.families.boosting_training import fit as fit_boosting
from espalier.engine.families.gp_options import METHODS, PICKS, GpOptions
from espalier.engine.families.gp_training import fit_gp
from espalier.engine.families.hmm_options import NEEDS_LABELS, ORDERS, TRAININGS, HmmOptions
from espalier.engine.families.hmm_training import emitting, fit_tables, space_of
from espalier.engine.families.hmsvm_options import MARGINS, SLACKS, HmsvmOptions
from espalier.engine.families.hmsvm_training import fit_hmsvm
from espalier.engine.families.labeller import DECODERS, Labeller
from espalier.engine.families.memm import PER_LABEL, SHARED, per_label_kinds
from espalier.engine.families.objectives import OBJECTIVES, objective_of, refuse_triples
from espalier.engine.families.perceptron import DualPerceptronLabeller
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import fit as fit_perceptron
from espalier.engine.families.support import MOST_DEGREE
from espalier.engine.interface.conventions import Conventions, not_fitted
from espalier.engine.interface.fit_line import FitLine, fit_line
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
from espalier.engine.interface.observations import check_characters, dataset_of, observations_of, rows_of
from espalier.engine.labels.abstention import check_limit, unsure
from espalier.engine.labels.measures import measure_of
from espalier.engine.labels.scheme import Transitions, named, transitions_of
from espalier.engine.losses.chain_objective import active_weights
from espalier.engine.losses.fixed_transitions import refuse_broken
from espalier.engine.losses.loss_table import LOG, check_loss, check_pi
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_table import SOLVERS, fitting
from espalier.engine.optimise.solvers import minimise
from espalier.engine.penalty_search import Development, PathOptions, Search, held_out
from espalier.engine.runtime import compiling
from espalier.engine.text.gazetteers import read_list
from espalier.engine.text.pattern_sets import is_shipped, shipped_lines
from espalier.engine.text.templates import (
    Template,
    check_columns,
    learned_columns,
    list_files,
    parse,
    resolve,
    with_room,
)
from espalier.engine.text.values import scaled_dataset, unit_scales
from espalier.engine.weights.layout import Layout, make_layout, observation_kinds
from espalier.engine.weights.stop_twins import ends_of, with_twin_kinds, with_twin_texts, with_twins

ATTRIBUTES = "U:%a"  # stands in the model file for observations that came from attributes, not templates
WORDS = ["U:%x[0,0]", "B"]  # the templates of an HMM that is given none: a label emits the token
AUTO = "auto"  # rho1 that held-out sequences choose
NUMBERS = (
    "rho2", "tolerance", "dev_share", "smoothing", "power", "alpha", "kappa", "eta", "share", "threshold", "C",
    "gap", "c", "gamma", "epsilon",
)  # fmt: skip
WHOLE_NUMBERS = (
    "max_iterations", "min_count", "seed", "rare", "restarts", "batch", "coordinates", "epochs", "rounds",
)  # fmt: skip
NO_STOP = {
    "memm": "a label there is normalised given the one before it, and an end that is no label cannot be; leave it out",
    "hmm": "the end of a sequence is one of its events in any case; leave it out",
    "gp": "its weights of pairs are of labels in a row alone; leave it out",
    "hmsvm": "its weights of pairs are of labels in a row alone; leave it out",
}
STARTS = {
    "hmm": ("hmm",), "perceptron": ("perceptron", *OBJECTIVES), "boosting": ("boosting", "perceptron", *OBJECTIVES),
}  # whose models are one for a training, if others
WITH_SCHEME = ("crf", "boosting")  # that can be trained within the transitions of a scheme
PARAMETERS = "estimator"  # in a model's info: the parameters that it was fitted with

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
    slack : {"sequence", "squared", "hard"}
        hmsvm: how missed margins count: as they are, one a sequence, squared, or not allowed.
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
        self._check()
        sequences = sequences_of(X)
        labels = labels_of(y, sequences, is_table(X))
        train = self._encoded(
            sequences, labels, sequence_weights(sample_weight, sequences), token_weights(token_weight, sequences)
        )
        if self.family == "crf" and fitting(self.solver) == fitting("auto"):
            warm_up.before_first_fit()
        if start_from is not None:
            self._require("warm_start", "leave start_from out")
        if len(train.data.labels) and train.data.labels.min() < 0:
            self._require("partial", "leave sequences without labels out")
        if not self._generative:  # sequences without labels teach nothing
            labelled = np.flatnonzero(any_in_sequence(train.data, train.data.labels != UNKNOWN))
            train = train._replace(data=select(train.data, labelled))
        self._trained(train, None if start_from is None else _model_of(start_from, self.family))
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

    @property
    def _generative(self) -> bool:
        """Whether its family is one of inputs and labels together: each template makes one of its observations."""
        return "likelihood" in family_of(self.family).can

    def _require(self, ability: str, otherwise: str) -> None:
        require(self.family, ability, otherwise, "family")

    # Training ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Refuse parameters of a wrong kind; what they must be beyond that is said where they are used."""
        require(self.family, "labels", setting="family")
        if self.stop and self.family != "crf":
            why = NO_STOP.get(self.family, "only a crf has them; leave it out")
            raise EspalierError(f"stop is {self.stop!r} and family {self.family!r}: {why}")
        if self.scheme is not None and (not isinstance(self.scheme, str) or self.family not in WITH_SCHEME):
            raise EspalierError(
                f"scheme is {brief(self.scheme)} and family {self.family!r}: expected None, or with family "
                f"{' or '.join(map(repr, WITH_SCHEME))} {AUTO!r} or the name of a tagging scheme"
            )
        if not _is_number(self.rho1, Real) and self.rho1 != AUTO:
            raise EspalierError(f"rho1 is {quoted(self.rho1)}: expected a number of at least 0, or {AUTO!r}")
        if self.weights not in (SHARED, PER_LABEL) or (self.weights == PER_LABEL and self.family != "memm"):
            raise EspalierError(
                f"weights is {quoted(self.weights)} and family {self.family!r}: expected 'shared', or 'per-label' with "
                "family 'memm'"
            )
        if self.weights == PER_LABEL and not self.start:
            raise EspalierError(
                "weights is 'per-label' and start False: the first label of a sequence would have no weight; set start "
                "to True"
            )
        for names, kind, words in ((NUMBERS, Real, "number"), (WHOLE_NUMBERS, Integral, "whole number")):
            for name in names:
                if not _is_number(getattr(self, name), kind):
                    raise EspalierError(f"{name} is {quoted(getattr(self, name))}: expected a {words} of at least 0")
        for name in ("scale", "average"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise EspalierError(f"{name} is {brief(getattr(self, name))}: expected True or False")
        check_loss(self.loss, self.family)
        check_pi(self.pi)
        for name, known in (("training", tuple(TRAININGS)), ("order", ORDERS), ("method", tuple(METHODS)),
                            ("pick", PICKS), ("slack", tuple(SLACKS)), ("margin", tuple(MARGINS))):  # fmt: skip
            if getattr(self, name) not in known:
                raise EspalierError(f"{name} is {quoted(getattr(self, name))}: expected one of {', '.join(known)}")
        for name, least, most in (
            ("restarts", 1, None), ("batch", 1, None), ("power", 1e-3, None), ("alpha", 0.5, 1),
            ("kappa", 1e-9, None), ("eta", 1e-9, None), ("share", 1e-6, None), ("coordinates", 1, None),
            ("C", 1e-9, None),
        ):  # fmt: skip
            value = getattr(self, name)
            if value < least or (most is not None and value > most):
                up_to = "" if most is None else f" and at most {most}"
                raise EspalierError(f"{name} is {quoted(value)}: expected a number of at least {least:g}{up_to}")
        if self.degree is not None and not (_is_number(self.degree, Integral) and 1 <= self.degree <= MOST_DEGREE):
            raise EspalierError(
                f"degree is {quoted(self.degree)}: expected a whole number of at least 1 and at most {MOST_DEGREE}, or "
                "None"
            )
        if not (self.templates is None or isinstance(self.templates, str) or _are_texts(self.templates)):
            raise EspalierError(f"templates is {brief(self.templates)}: expected a list of lines, a text or None")

    def _encoded(
        self, sequences: list[list[Any]], labels: list[list[Any]], weights: npt.NDArray[np.float64] | None,
        weights_of_tokens: list[float] | None,
    ) -> Encoded:  # fmt: skip
        """The training data in numbers; observations and labels are those that occur in them."""
        templates, lists = self._resolved(sequences)
        texts = [observations_of(templates, rows, n) for n, rows in enumerate(sequences)]
        counts: dict[str, int] = {}
        for row in (row for rows in texts for row in rows):
            for item in row:
                text = item if isinstance(item, str) else item[0]
                counts[text] = counts.get(text, 0) + 1
        names = [text for text, count in counts.items() if count >= self.min_count]
        classes = sorted({label for row in labels for value in row for label in possible(value)})
        check_label_count(len(classes))
        check_characters(names, classes, sequences, labels)
        ids, label_sets = codes(labels, classes)
        data = dataset_of(
            texts, {text: i for i, text in enumerate(names)}, ids, weights, label_sets, weights_of_tokens
        )  # fmt: skip
        if len(data.valued):
            self._require("values", "leave values out")
            if self.weights == PER_LABEL:
                raise EspalierError(
                    f"weights is {self.weights!r} and there are values, which have weights for single labels only: "
                    "set weights to 'shared' or leave values out"
                )
        scales: dict[str, float] = {}
        if self.scale and len(data.valued):
            factors = unit_scales([(data.observations, data.valued, data.values)], len(names))
            data = scaled_dataset(data, factors)
            scales = {text: factor for text, factor in zip(names, factors.tolist(), strict=True) if factor != 1.0}
        if any(template.kind == "T" for template in templates):
            refuse_triples(self.family, self.loss, self.scheme is not None)
        streams = _streams(templates, texts, names) if self._generative else []
        lines = [template.line for template in templates] or [ATTRIBUTES, "B"]
        kinds = per_label_kinds(names) if self.weights == PER_LABEL else observation_kinds(names)
        if self.stop:
            data = with_twins(data, ends_of(kinds, "stop"))
            names, kinds = with_twin_texts(names, kinds), with_twin_kinds(kinds)
        return Encoded(data, names, kinds, classes, lines, lists, streams, scales)

    def _trained(self, train: Encoded, earlier: Labeller | None) -> None:
        """Set `model_` and `trace_`, and tell of it on the way."""
        with fit_line(self.verbose, self.max_iterations) as line:
            trainers = {"hmm": self._hidden_markov, "gp": self._by_kernel, "hmsvm": self._by_kernel,
                        "perceptron": self._by_mistakes, "boosting": self._by_rounds}  # fmt: skip
            trainers.get(self.family, self._by_gradient)(train, earlier, line)
            self._tell(self.model_.info)
            if self.verbose:
                record = self.trace_[-1]
                line.say(
                    f"{self.stop_reason_.replace('_', ' ')} after {record['iteration']:,} iterations, "
                    f"objective {record['objective']:,.6g}, {sum(self.model_.sizes().values()):,} active weights of "
                    f"{self.model_.info['features']:,}"
                )

    def _by_gradient(self, train: Encoded, earlier: Labeller | None, line: FitLine) -> None:
        """Minimise the penalised loss of a chain of weights."""
        penalty, theta0 = self._penalty(train, line), None
        layout = make_layout(self.pairs, train.data, len(train.labels), train.kinds, self.start)
        if earlier is not None:
            theta0 = warm_start.starting_point(earlier, layout, train.observations, train.labels, train.scales)
        transitions, keeps = self._transitions(train), {}
        if transitions is not None:
            refuse_broken(train.data, layout, transitions, train.labels, "scheme", "None")
            keeps = {"scheme": named(train.labels, str(self.scheme))}
        solver = fitting(self.solver)
        own: dict[str, Any] = {"seed": self.seed} if solver in SOLVERS and "seed" in SOLVERS[solver].options else {}
        result = minimise(
            solver, self._objective(train.data, layout, transitions), penalty, theta0,
            self.max_iterations, self.tolerance, on_iteration=line, **own,
        )  # fmt: skip
        info = {"solver": solver, "penalty": {"rho1": penalty.rho1, "rho2": penalty.rho2},
                "start": self.start, **({"stop": True} if self.stop else {}), "pairs": self.pairs,
                **keeps, **({"weights": self.weights} if self.weights != SHARED else {}),
                "stop_reason": result.stop_reason,
                "iterations": result.iterations, "objective": result.objective, "features": layout.size}  # fmt: skip
        if self.loss != LOG:
            info |= {"loss": self.loss} | ({"pi": float(self.pi)} if self.loss == "exponential" else {})
        self.model_ = family_of(self.family).labeller.compact(
            layout, result.theta, train.observations, train.labels, train.lines, info | self._described(train)
        )
        self.trace_ = result.trace

    def _by_mistakes(self, train: Encoded, earlier: Labeller | None, line: FitLine) -> None:
        """Epochs of a perceptron; the weights after the last one."""
        if self.rho1 == AUTO:
            self._require("path", "rho1 to a number, which it does not use")
        own = {name: getattr(self, name) for name in ("update", "lead", "c", "gamma", "average", "epochs")}
        options = PerceptronOptions(**own, seed=self.seed)
        options = options._replace(epochs=min(self.epochs, self.max_iterations))
        if self.degree is not None:
            self._by_votes(train, earlier, line, options._replace(degree=int(self.degree), eta=float(self.eta)), own)
            return
        layout, theta0 = make_layout(self.pairs, train.data, len(train.labels), train.kinds, self.start), None
        if earlier is not None:
            theta0 = warm_start.starting_point(earlier, layout, train.observations, train.labels, train.scales)
        result = fit_perceptron(train.data, layout, options, theta0, line)
        info = {name: _kept(value) for name, value in own.items()} | {"pairs": self.pairs, "start": self.start}
        info |= {"stop_reason": result.stop_reason, "iterations": result.iterations, "objective": result.objective,
                 "features": layout.size}  # fmt: skip
        self.model_ = family_of(self.family).labeller.compact(
            layout, result.theta, train.observations, train.labels, train.lines, info | self._described(train)
        )
        self.trace_ = result.trace

    def _by_votes(
        self, train: Encoded, earlier: Labeller | None, line: FitLine, options: PerceptronOptions, own: dict[str, Any]
    ) -> None:
        """Epochs of a perceptron in its dual form: rows of the training data that support labels."""
        if earlier is not None:
            raise EspalierError(
                f"start_from is a model and degree {self.degree}, and a perceptron with a kernel has no weights of "
                "attributes to start from: leave start_from out, or set degree to None"
            )
        chain = perceptron_dual.chain_of(train.data, len(train.labels), train.kinds, options, self.pairs, self.start)
        result = perceptron_dual.fit_dual(chain, options, line)
        info = {name: _kept(value) for name, value in own.items()} | {"pairs": self.pairs, "start": self.start}
        info |= {"stop_reason": result.stop_reason, "iterations": result.iterations, "objective": result.objective,
                 "features": chain.layout.size}  # fmt: skip
        self.model_ = DualPerceptronLabeller.of_training(
            chain, result, train.observations, train.labels, train.lines, info | self._described(train), options
        )
        self.trace_ = result.trace

    def _by_rounds(self, train: Encoded, earlier: Labeller | None, line: FitLine) -> None:
        """Rounds of boosting; the weights after the last one."""
        if self.rho1 == AUTO:
            self._require("path", "rho1 to a number, which it does not use")
        own = {name: getattr(self, name) for name in ("bound", "examples", "pi", "epsilon")}
        options = BoostingOptions(**own, rounds=min(self.rounds, self.max_iterations))
        layout, theta0 = make_layout(self.pairs, train.data, len(train.labels), train.kinds, self.start), None
        if earlier is not None:
            theta0 = warm_start.starting_point(earlier, layout, train.observations, train.labels, train.scales)
        transitions, keeps = self._transitions(train), {}
        if transitions is not None:
            refuse_broken(train.data, layout, transitions, train.labels, "scheme", "None")
            keeps = {"scheme": named(train.labels, str(self.scheme))}
        result = fit_boosting(train.data, layout, options, theta0, line, transitions=transitions)
        info = {name: _kept(value) for name, value in own.items()} | {"pairs": self.pairs, "start": self.start}
        info |= {"stop_reason": result.stop_reason, "iterations": result.iterations, "objective": result.objective,
                 "features": layout.size, "rounds": self.rounds} | keeps  # fmt: skip
        info[ROUNDS] = rounds_of(result.trace, result.iterations, train.observations, train.labels)
        self.model_ = family_of(self.family).labeller.compact(
            layout, result.theta, train.observations, train.labels, train.lines, info | self._described(train)
        )
        self.trace_ = result.trace

    def _objective(self, data: Dataset, layout: Layout, transitions: Transitions | None) -> Any:
        return objective_of(self.family, data, layout, self.sparse, self.loss, float(self.pi), transitions)

    def _transitions(self, train: Encoded) -> Transitions | None:
        """What the scheme that training keeps to allows."""
        return None if self.scheme is None else transitions_of(train.labels, named(train.labels, self.scheme))

    def _hidden_markov(self, train: Encoded, earlier: Labeller | None, line: FitLine) -> None:
        """Counts, expected ones, or what tells labellings apart: see `training`."""
        if self.rho1 == AUTO:
            self._require("path", "rho1 to a number, which it does not use")
        self._check_taught(train.data, len(train.labels))
        own = {name: getattr(self, name) for name in HmmOptions._fields}
        options = HmmOptions(**own)
        streams = np.array(train.streams, np.int64)
        space = space_of(train.data, len(train.labels), streams, emitting(train.lines), options)
        start = None
        if isinstance(earlier, hmm.HmmLabeller):
            start = hmm.start_from(earlier, space, train.observations, train.labels)

        def heard(record: dict[str, Any], theta: npt.NDArray[np.float64], probabilities: Any) -> None:
            record.update(active_weights(space.layout, theta))
            line(record)

        found = fit_tables(space, train.data, options, heard, start)
        info = {name: _kept(own[name]) for name in ("training", "smoothing", "rare")} | self._described(train)
        self.model_ = hmm.labeller_of(found, train.observations, train.labels, train.lines, info)
        self.trace_ = found.trace

    def _by_kernel(self, train: Encoded, earlier: Labeller | None, line: FitLine) -> None:
        """Rows of the training data that support labels."""
        if self.rho1 == AUTO:
            self._require("path", "rho1 to a number, which it does not use")
        kind, make, fit_them = (gp, GpOptions, fit_gp) if self.family == "gp" else (hmsvm, HmsvmOptions, fit_hmsvm)
        options = make(**{name: getattr(self, name) for name in make._fields if getattr(self, name) is not None})
        chain = kind.chain_of(train.data, len(train.labels), train.kinds, options)
        found = fit_them(chain, options, lambda record, amounts, weights: line(record))
        names = train.observations, train.labels, train.lines
        self.model_ = kind.labeller_of(chain, found, options, *names, self._described(train))
        self.trace_ = found.trace

    def _check_taught(self, data: Dataset, n_labels: int) -> None:
        """Refuse what an HMM cannot learn from."""
        if len(data.token_weights):
            raise EspalierError(f"{self.family} counts whole sequences: use sample_weight instead of token_weight")
        if not self.smoothing:
            raise EspalierError(f"smoothing is {self.smoothing}: expected a number above 0")
        if not n_labels:
            raise EspalierError("y has no label at all: expected some that are known, since they name the states")
        if self.training in NEEDS_LABELS and data.labels.min() < 0:
            others = ", ".join(name for name in TRAININGS if name not in NEEDS_LABELS)
            raise EspalierError(
                f"training is {self.training!r}, which needs every label, and some are not known: expected one of "
                f"{others}, or sequences that have them all"
            )

    def _penalty(self, train: Encoded, line: FitLine) -> ElasticNet:
        """The penalty, chosen by held-out sequences where rho1 is auto."""
        if self.rho1 != AUTO:
            return ElasticNet(float(self.rho1), float(self.rho2))
        self._require("path", "rho1 to a number")
        rest, judged = held_out(train.data, self.dev_share, self.seed)
        layout = make_layout(self.pairs, rest, len(train.labels), train.kinds, self.start)
        labeller, transitions = family_of(self.family).labeller, self._transitions(train)
        info = {} if transitions is None else {"scheme": named(train.labels, str(self.scheme))}
        development = Development(
            judged, [train.labels[i] for i in judged.labels], train.labels,
            lambda theta: labeller(train.labels, [], [], layout, theta, info), measure_of(None, train.labels),
        )  # fmt: skip
        search = Search(
            self._objective(rest, layout, transitions), development,
            PathOptions(self.solver, float(self.rho2), self.max_iterations, self.tolerance),
            float(np.sum(rest.weights * np.diff(rest.offsets))),
            lambda point, theta: line.show(f"search: rho1 {point['rho1']:.3g}, {point['active']:,} active weights"),
        )  # fmt: skip
        best = search.run()
        return ElasticNet(float(best["rho1"]), float(best["rho2"]))

    def _described(self, train: Encoded) -> dict[str, Any]:
        """What the model file says of all families: the lists of the templates, scales of values, the parameters."""
        kept = {name: _kept(value) for name, value in self.get_params().items()}
        learned = {"lists": train.lists, "scales": train.scales}
        return {name: value for name, value in learned.items() if value} | {PARAMETERS: kept}

    def _tell(self, info: dict[str, Any]) -> None:
        """The attributes that the info of a model has, too."""
        for name in ("rho1_", "rho2_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        penalty = info.get("penalty")
        if isinstance(penalty, dict):
            self.rho1_, self.rho2_ = penalty.get("rho1"), penalty.get("rho2")
        self.stop_reason_ = str(info.get("stop_reason"))

    def _resolved(self, sequences: list[list[Any]]) -> tuple[list[Template], dict[str, list[str]]]:
        """The templates, with what the training data decide, and the lists that they name, read from the files."""
        if self.templates is None and not self._generative:
            return [], {}
        asked = WORDS if self.templates is None else self.templates
        lines = list(asked)
        if isinstance(asked, str):
            lines = shipped_lines(asked) if is_shipped(asked) else asked.split("\n")
        lists = {name: read_list(Path(name)) for name in list_files(parse(lines, "templates"))}
        templates = parse(lines, "templates", lists)
        rows = [row for rows in sequences for row in rows_of(rows)]
        if rows:
            check_columns(templates, min(len(row) for row in rows))
        if self.templates is None and any(len(row) > 1 for row in rows):
            raise EspalierError(f"{self.family} without templates takes tokens that are texts: columns need templates")
        tallies = {}
        for column in learned_columns(templates):
            counted = Counter(row[column] for row in rows)
            tallies[column] = list(counted), np.array(list(counted.values()))
        return resolve(templates, tallies), lists

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


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and bool(value >= 0)  # type: ignore[operator]


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray) and all(isinstance(text, str) for text in value)


def _labeller_of(path: str | Path) -> Labeller:
    """The model of a file, which must label tokens."""
    model = load_model(path)
    model.require("labels")
    assert isinstance(model, Labeller)
    return model


def _model_of(source: CRF | Labeller | str | Path, family: str) -> Labeller:
    """The model to start from, whose numbers must be of the same kind."""
    model = source._model() if isinstance(source, CRF) else source
    if not isinstance(model, Labeller | str | Path):
        raise EspalierError(f"start_from is {brief(model)}: expected a fitted CRF, a model or the path of one")
    found = model if isinstance(model, Labeller) else load_model(model)
    starts = STARTS.get(family, tuple(OBJECTIVES))
    if found.family not in starts:
        raise EspalierError(
            f"start_from is a model of the family {found.family}, whose numbers are no start for {family}: expected a "
            f"model of {' or '.join(starts)}"
        )
    warm_start.refuse_rows(found, "start_from is a model", "None")
    assert isinstance(found, Labeller)  # as all of these families are
    return found


def _kept(value: Any) -> Any:
    """A parameter as a model file holds it."""
    if isinstance(value, np.generic):
        return value.item()
    return list(map(str, value)) if isinstance(value, list | tuple | np.ndarray) else value


def _parameters_of(model: Labeller, known: Iterable[str], path: str | Path) -> dict[str, Any]:
    """The parameters that a model was fitted with, as far as its file tells them."""
    info = model.info
    kept = info.get(PARAMETERS)
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


def _streams(templates: list[Template], texts: list[list[list[str]]], names: list[str]) -> list[int]:
    """The template of each observation; each template must make one observation at every position."""
    if any(len(row) != len(templates) for rows in texts for row in rows):
        raise EspalierError(
            "a template makes several observations at a position, a hidden Markov model emits one of each: leave out %g"
        )
    of = {text: k for rows in texts for row in rows for k, text in enumerate(row)}
    return [of[name] for name in names]


def _cut(values: Any, offsets: npt.NDArray[np.int64]) -> list[Any]:
    return [values[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]

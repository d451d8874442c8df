"""How each family is fitted to a user's data: its options from what was asked, its model with what it keeps of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from espalier.engine import warm_start
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import family as family_of
from espalier.engine.families import gp, hmm, hmsvm, perceptron_dual
from espalier.engine.families.boosting import ROUNDS, rounds_of
from espalier.engine.families.boosting_options import BoostingOptions
from espalier.engine.families.boosting_training import fit as fit_boosting
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.gp_training import fit_gp
from espalier.engine.families.hmm_options import HmmOptions
from espalier.engine.families.hmm_training import emitting, fit_tables, space_of
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.hmsvm_training import fit_hmsvm
from espalier.engine.families.labeller import Labeller, WeightLabeller
from espalier.engine.families.memm import SHARED
from espalier.engine.families.objectives import objective_of
from espalier.engine.families.perceptron import DualPerceptronLabeller
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import fit as fit_perceptron
from espalier.engine.fitting.asked import AUTO, Asked, check_taught, must, no_search
from espalier.engine.fitting.encoding import Encoded
from espalier.engine.interface.fit_line import FitLine
from espalier.engine.labels.measures import measure_of
from espalier.engine.labels.scheme import Transitions, named, transitions_of
from espalier.engine.losses.chain_objective import active_weights
from espalier.engine.losses.fixed_transitions import refuse_broken
from espalier.engine.losses.loss_table import LOG
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_table import SOLVERS, fitting
from espalier.engine.optimise.solvers import minimise
from espalier.engine.penalty_search import Development, PathOptions, Search, held_out
from espalier.engine.weights.layout import Layout, make_layout

PARAMETERS = "estimator"  # in a model's info: the parameters that it was fitted with
MACHINES: dict[str, tuple[Any, Any, Any]] = {"gp": (gp, GpOptions, fit_gp), "hmsvm": (hmsvm, HmsvmOptions, fit_hmsvm)}


class FittedModel(NamedTuple):
    """What a fit hands back."""

    model: Labeller
    trace: list[dict[str, Any]]


def fit(asked: Asked, train: Encoded, earlier: WeightLabeller | None, line: FitLine) -> FittedModel:
    """The family's training, started from an earlier model where there is one; `line` hears its iterations."""
    return FITS.get(asked.family, by_gradient)(asked, train, earlier, line)


class ChainToFit(NamedTuple):
    """The weights of a chain, before they are trained."""

    layout: Layout
    theta: npt.NDArray[np.float64] | None  # to start from
    transitions: Transitions | None  # what the scheme that training keeps to allows
    keeps: dict[str, Any]  # of the scheme, in the model's info


def _chain(asked: Asked, train: Encoded, earlier: WeightLabeller | None) -> ChainToFit:
    layout, theta = make_layout(asked.pairs, train.data, len(train.labels), train.kinds, asked.start), None
    if earlier is not None:
        theta = warm_start.starting_point(earlier, layout, train.observations, train.labels, train.scales)
    transitions = _transitions(asked, train)
    if transitions is not None:
        refuse_broken(train.data, layout, transitions, train.labels, "scheme", "None")
    return ChainToFit(layout, theta, transitions, _kept_of_scheme(asked, train))


def _kept_of_scheme(asked: Asked, train: Encoded) -> dict[str, Any]:
    return {} if asked.scheme is None else {"scheme": named(train.labels, str(asked.scheme))}


def _of_weights(asked: Asked, train: Encoded, chain: ChainToFit, result: Any, info: dict[str, Any]) -> FittedModel:
    model = _kind(asked.family).compact(
        chain.layout, result.theta, train.observations, train.labels, train.lines, info | _described(asked, train)
    )
    return FittedModel(model, result.trace)


def _kind(family: str) -> type[WeightLabeller]:
    kind = family_of(family).labeller
    assert issubclass(kind, WeightLabeller)
    return kind


def by_gradient(asked: Asked, train: Encoded, earlier: WeightLabeller | None, line: FitLine) -> FittedModel:
    """Minimise the penalised loss of a chain of weights."""
    penalty, chain = _penalty(asked, train, line), _chain(asked, train, earlier)
    solver = fitting(asked.solver)
    own: dict[str, Any] = {"seed": asked.seed} if solver in SOLVERS and "seed" in SOLVERS[solver].options else {}
    result = minimise(
        solver, _objective(asked, train.data, chain.layout, chain.transitions), penalty, chain.theta,
        asked.max_iterations, asked.tolerance, on_iteration=line, **own,
    )  # fmt: skip
    info = {"solver": solver, "penalty": {"rho1": penalty.rho1, "rho2": penalty.rho2},
            "start": asked.start, **({"stop": True} if asked.stop else {}), "pairs": asked.pairs,
            **chain.keeps, **({"weights": asked.weights} if asked.weights != SHARED else {}),
            "stop_reason": result.stop_reason,
            "iterations": result.iterations, "objective": result.objective, "features": chain.layout.size}  # fmt: skip
    if asked.loss != LOG:
        info |= {"loss": asked.loss} | ({"pi": float(asked.pi)} if asked.loss == "exponential" else {})
    return _of_weights(asked, train, chain, result, info)


def by_mistakes(asked: Asked, train: Encoded, earlier: WeightLabeller | None, line: FitLine) -> FittedModel:
    """Epochs of a perceptron; the weights after the last one."""
    no_search(asked)
    own = {name: getattr(asked, name) for name in ("update", "lead", "c", "gamma", "average", "epochs")}
    options = PerceptronOptions(**own, seed=asked.seed)
    options = options._replace(epochs=min(asked.epochs, asked.max_iterations))
    if asked.degree is not None:
        options = options._replace(degree=int(asked.degree), eta=float(asked.eta))
        return _by_votes(asked, train, earlier, line, options, own)
    chain = _chain(asked, train, earlier)
    result = fit_perceptron(train.data, chain.layout, options, chain.theta, line)
    info = {name: _kept(value) for name, value in own.items()} | {"pairs": asked.pairs, "start": asked.start}
    info |= {"stop_reason": result.stop_reason, "iterations": result.iterations, "objective": result.objective,
             "features": chain.layout.size}  # fmt: skip
    return _of_weights(asked, train, chain, result, info)


def _by_votes(
    asked: Asked, train: Encoded, earlier: WeightLabeller | None, line: FitLine, options: PerceptronOptions,
    own: dict[str, Any],
) -> FittedModel:  # fmt: skip
    """Epochs of a perceptron in its dual form: rows of the training data that support labels."""
    if earlier is not None:
        raise EspalierError(
            f"start_from is a model and degree {asked.degree}, and a perceptron with a kernel has no weights of "
            "attributes to start from: leave start_from out, or set degree to None"
        )
    chain = perceptron_dual.chain_of(train.data, len(train.labels), train.kinds, options, asked.pairs, asked.start)
    result = perceptron_dual.fit_dual(chain, options, line)
    info = {name: _kept(value) for name, value in own.items()} | {"pairs": asked.pairs, "start": asked.start}
    info |= {"stop_reason": result.stop_reason, "iterations": result.iterations, "objective": result.objective,
             "features": chain.layout.size}  # fmt: skip
    model = DualPerceptronLabeller.of_theta(
        chain, result.theta, train.observations, train.labels, train.lines, info | _described(asked, train), options
    )
    return FittedModel(model, result.trace)


def by_rounds(asked: Asked, train: Encoded, earlier: WeightLabeller | None, line: FitLine) -> FittedModel:
    """Rounds of boosting; the weights after the last one."""
    no_search(asked)
    own = {name: getattr(asked, name) for name in ("bound", "examples", "pi", "epsilon")}
    options = BoostingOptions(**own, rounds=min(asked.rounds, asked.max_iterations))
    chain = _chain(asked, train, earlier)
    result = fit_boosting(train.data, chain.layout, options, chain.theta, line, transitions=chain.transitions)
    info = {name: _kept(value) for name, value in own.items()} | {"pairs": asked.pairs, "start": asked.start}
    info |= {"stop_reason": result.stop_reason, "iterations": result.iterations, "objective": result.objective,
             "features": chain.layout.size, "rounds": asked.rounds} | chain.keeps  # fmt: skip
    info[ROUNDS] = rounds_of(result.trace, result.iterations, train.observations, train.labels)
    return _of_weights(asked, train, chain, result, info)


def hidden_markov(asked: Asked, train: Encoded, earlier: WeightLabeller | None, line: FitLine) -> FittedModel:
    """Counts, expected ones, or what tells labellings apart: see `training`."""
    no_search(asked)
    check_taught(asked, train.data, len(train.labels))
    own = {name: getattr(asked, name) for name in HmmOptions._fields}
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
    info = {name: _kept(own[name]) for name in ("training", "smoothing", "rare")} | _described(asked, train)
    return FittedModel(hmm.labeller_of(found, train.observations, train.labels, train.lines, info), found.trace)


def by_kernel(asked: Asked, train: Encoded, earlier: WeightLabeller | None, line: FitLine) -> FittedModel:
    """Rows of the training data that support labels."""
    no_search(asked)
    module, make, fit_them = MACHINES[asked.family]
    options = make(**{name: getattr(asked, name) for name in make._fields if getattr(asked, name, None) is not None})
    chain = module.chain_of(train.data, len(train.labels), train.kinds, options)
    found = fit_them(chain, options, lambda record, amounts, weights: line(record))
    names = train.observations, train.labels, train.lines
    return FittedModel(module.labeller_of(chain, found, options, *names, _described(asked, train)), found.trace)


def _penalty(asked: Asked, train: Encoded, line: FitLine) -> ElasticNet:
    """The penalty, chosen by held-out sequences where rho1 is auto."""
    if asked.rho1 != AUTO:
        return ElasticNet(float(asked.rho1), float(asked.rho2))
    must(asked, "path", "set rho1 to a number")
    rest, judged = held_out(train.data, asked.dev_share, asked.seed)
    layout = make_layout(asked.pairs, rest, len(train.labels), train.kinds, asked.start)
    kind, transitions = _kind(asked.family), _transitions(asked, train)
    info = _kept_of_scheme(asked, train)
    development = Development(
        judged, [train.labels[i] for i in judged.labels], train.labels,
        lambda theta: kind(train.labels, [], [], layout, theta, info), measure_of(None, train.labels),
    )  # fmt: skip
    search = Search(
        _objective(asked, rest, layout, transitions), development,
        PathOptions(asked.solver, float(asked.rho2), asked.max_iterations, asked.tolerance),
        float(np.sum(rest.weights * np.diff(rest.offsets))),
        lambda point, theta: line.show(f"search: rho1 {point['rho1']:.3g}, {point['active']:,} active weights"),
    )  # fmt: skip
    best = search.run()
    return ElasticNet(float(best["rho1"]), float(best["rho2"]))


def _objective(asked: Asked, data: Dataset, layout: Layout, transitions: Transitions | None) -> Any:
    return objective_of(asked.family, data, layout, asked.sparse, asked.loss, float(asked.pi), transitions)


def _transitions(asked: Asked, train: Encoded) -> Transitions | None:
    """What the scheme that training keeps to allows."""
    return None if asked.scheme is None else transitions_of(train.labels, named(train.labels, asked.scheme))


def _described(asked: Asked, train: Encoded) -> dict[str, Any]:
    """What the model file says of all families: the lists of the templates, scales of values, the parameters."""
    kept = {name: _kept(value) for name, value in vars(asked).items()}
    learned = {"lists": train.lists, "scales": train.scales}
    return {name: value for name, value in learned.items() if value} | {PARAMETERS: kept}


def _kept(value: Any) -> Any:
    """A parameter as a model file holds it."""
    if isinstance(value, np.generic):
        return value.item()
    return list(map(str, value)) if isinstance(value, list | tuple | np.ndarray) else value


FITS: dict[str, Callable[[Asked, Encoded, WeightLabeller | None, FitLine], FittedModel]] = {
    "hmm": hidden_markov, "gp": by_kernel, "hmsvm": by_kernel, "perceptron": by_mistakes, "boosting": by_rounds,
}  # fmt: skip

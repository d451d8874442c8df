"""What is run to compile kernels ahead: each recipe meets those of one use, on a few tokens.

`engine.warm_up` runs each in a process of its own; its tables name them.
"""

import gc
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from espalier.engine.blockwise.blocks import BlockObjective
from espalier.engine.chain.one_sequence import make_buffers
from espalier.engine.chain.pair_sets import pair_sets
from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.families import gp, hmm, hmsvm, load
from espalier.engine.families import perceptron as perceptrons
from espalier.engine.families.boosting_options import BOUNDS, BoostingOptions
from espalier.engine.families.boosting_training import fit as fit_boosting
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.hmsvm_options import MARGINS, HmsvmOptions
from espalier.engine.families.memm import MemmLabeller, MemmObjective
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import fit as fit_perceptron
from espalier.engine.features import features_of
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.exponential_loss import ExponentialObjective
from espalier.engine.losses.marginal_loss import MarginalObjective
from espalier.engine.losses.triple_objective import TripleObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_table import SOLVERS
from espalier.engine.optimise.solvers import minimise, sgd
from espalier.engine.optimise.solvers.sbcd import visit_large
from espalier.engine.runtime import compiling
from espalier.engine.text import column_text
from espalier.engine.weights.layout import Layout, make_layout, observation_kinds

TEXT = b"a x\nb y\n\nb y\na x\nb x\n"
NAMES, LABELS, TEMPLATES = ["B", "U", "U:a", "U:b"], ["x", "y"], ["B", "U", "U:%x[0,0]"]
SPARSE, SMOOTH = ElasticNet(0.5, 0.001), ElasticNet(0.0, 0.001)
FEW = 3  # iterations


def tiny_problem(pairs: str = "seen") -> tuple[Dataset, Layout]:
    """The tokens of TEXT as `CRF.fit` would have them."""
    word = np.array([2, 3, 3, 2, 3])
    observations = np.column_stack([np.zeros(5, np.int32), np.ones(5, np.int32), word])
    data = make_dataset(observations, [0, 1, 1, 0, 0], [0, 2, 5])
    return data, make_layout(pairs, data, len(LABELS), observation_kinds(NAMES))


def tiny_labeller(kind: type = CrfLabeller):
    """A model of it, and data to label."""
    data, layout = tiny_problem("all")
    theta = np.linspace(-1.0, 1.0, layout.size)
    return kind.compact(layout, theta, NAMES, LABELS, TEMPLATES, {}), data


def steps() -> None:
    """The epoch that the default solver begins with, and labelling: with few of the descent's kernels."""
    data, layout = tiny_problem("all")
    problem = SimpleNamespace(dataset=data, layout=layout, sets=pair_sets(data, layout))
    theta, nothing, order = np.zeros(layout.size), np.zeros(layout.size), np.arange(len(data.weights))
    sgd.epoch(problem, SPARSE, theta, order, 0.1, 0, 0.0, nothing, make_buffers(data, layout, problem.sets))
    model, data = tiny_labeller()
    model.best(data)


class _Parabola:
    """An objective without kernels."""

    offers, size = frozenset({"gradient", "value"}), 2

    def value_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return float(((theta - 3.0) ** 2).sum()), 2.0 * (theta - 3.0)

    def value(self, theta: np.ndarray) -> float:
        return self.value_and_gradient(theta)[0]

    def active(self, theta: np.ndarray) -> dict[str, int]:
        return {}


def model_steps() -> None:
    """The steps of the descent, which `descent` finds compiled when it comes to them."""
    minimise("pqn", _Parabola(), SPARSE, None, FEW)


def descent() -> None:
    """What it goes on with, and the value of the objective by which it judges where to begin."""
    objective = ChainObjective(*tiny_problem())
    objective.value(np.zeros(objective.size))
    minimise("pqn", objective, SPARSE, None, FEW)


def smooth_descent() -> None:
    """The same without an L1 term."""
    minimise("lbfgs", ChainObjective(*tiny_problem()), SMOOTH, None, FEW)


def gathered() -> None:
    """The gradient of a theta that does not fit the cache."""
    objective = ChainObjective(*tiny_problem())
    objective.scattered = False
    minimise("pqn", objective, SPARSE, None, FEW)


def answers() -> None:
    """All else that is asked of a model."""
    model, data = tiny_labeller()
    model.posterior(data)
    model.nbest(data, 2)
    model.scores(data)


def texts() -> None:
    """A model file that labels a text in columns, as `espalier tag` does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.model"
        tiny_labeller()[0].save(path)
        model = load(path)
    fields = column_text.cut(TEXT, "a text")
    labels = model.best(features_of(model, [fields.column(0), fields.column(1)], fields.offsets))
    list(column_text.with_labels(fields, LABELS, labels))


def solver(name: str) -> None:
    penalty = SPARSE if SOLVERS[name].accepts_l1 else SMOOTH
    minimise(name, ChainObjective(*tiny_problem()), penalty, None, FEW)


def large_blocks() -> None:
    """Blocks that occur often enough to be cut into pieces, of which the solver of blocks takes several at once."""
    objective = BlockObjective(*tiny_problem("all"))
    blocks = objective.blocks_at(np.linspace(0.0, 0.1, objective.size))
    blocks.expectations()
    live = np.ones(objective.size, bool)
    for full in (0, objective.size):
        visit_large(blocks, 0, live, SPARSE, np.ones(blocks.count), np.zeros(objective.size), full)


def partly_labelled() -> None:
    """Training with labels that are unknown or one of a set."""
    data, layout = tiny_problem()
    labels = np.array([-1, 1, -2, 0, 0], np.int32)
    minimise("pqn", ChainObjective(data._replace(labels=labels, label_sets=np.ones((1, 2), bool)), layout), SPARSE,
             None, FEW)  # fmt: skip


def weighted_tokens() -> None:
    """Training with a weight for each token."""
    data, layout = tiny_problem()
    weights = np.array([1.0, 0.5, 2.0, 1.0, 0.0])
    minimise("pqn", ChainObjective(data._replace(token_weights=weights), layout), SPARSE, None, FEW)


def triples() -> None:
    """Training with weights for triples of labels, and labelling."""
    data, _ = tiny_problem()
    names = [*NAMES, "T"]
    data = data._replace(observations=np.column_stack([data.observations, np.full(5, 4, np.int32)]))
    layout = make_layout("seen", data, len(LABELS), observation_kinds(names))
    theta = minimise("pqn", TripleObjective(data, layout), SPARSE, None, FEW).theta
    _ask_all(CrfLabeller(LABELS, [*TEMPLATES, "T"], names, layout, np.where(theta == 0.0, 0.1, theta)), data)


def marginal() -> None:
    """Training by the marginal loss, scattered and gathered."""
    for scattered in (True, False):
        objective = MarginalObjective(*tiny_problem())
        objective.chain.scattered = scattered
        minimise("hybrid", objective, SPARSE, None, FEW)


def exponential() -> None:
    """Training by the exponential loss."""
    minimise("hybrid", ExponentialObjective(*tiny_problem()), SPARSE, None, FEW)


def memm() -> None:
    minimise("hybrid", MemmObjective(*tiny_problem()), SPARSE, None, FEW)
    _ask_all(*tiny_labeller(MemmLabeller))


def hidden_markov() -> None:
    data, _ = tiny_problem()
    model = hmm.fit(data, NAMES, np.array([0, 1, 2, 2]), LABELS, TEMPLATES, {})
    _ask_all(model, data)


def perceptron() -> None:
    """Both forms."""
    fit_perceptron(*tiny_problem(), PerceptronOptions(epochs=FEW))
    data, _ = tiny_problem()
    options = PerceptronOptions(epochs=FEW, degree=2)
    perceptrons.fit(data, NAMES, observation_kinds(NAMES), LABELS, TEMPLATES, {}, options).best(data)


def boosting() -> None:
    """All bounds."""
    for bound in BOUNDS:
        fit_boosting(*tiny_problem(), BoostingOptions(bound, rounds=FEW))


def gaussian_process() -> None:
    """Dense and sparse, by rows and by features that are written out."""
    data, _ = tiny_problem()
    for method, products in (("dense", "rows"), ("dense", "features"), ("sparse", "rows"), ("sparse", "features")):
        options = GpOptions(method=method, products=products, max_iterations=FEW)
        _ask_all(gp.fit(data, NAMES, observation_kinds(NAMES), LABELS, TEMPLATES, {}, options), data)


def support_vectors() -> None:
    """Both margins."""
    data, _ = tiny_problem()
    for margin in MARGINS:
        options = HmsvmOptions(margin=margin, max_iterations=FEW)
        model = hmsvm.fit(data, NAMES, observation_kinds(NAMES), LABELS, TEMPLATES, {}, options)
        model.best(data)
        model.nbest(data, 2)


def _ask_all(model, data: Dataset) -> None:
    model.best(data)
    model.posterior(data)
    model.nbest(data, 2)


RECIPES = {
    "descent": descent,
    "model steps": model_steps,
    "steps": steps,
    "gathered": gathered,
    "smooth descent": smooth_descent,
    "answers": answers,
    "texts": texts,
    **{f"solver {name}": lambda name=name: solver(name) for name in SOLVERS},
    "large blocks": large_blocks,
    "partly labelled": partly_labelled,
    "weighted tokens": weighted_tokens,
    "triples": triples,
    "marginal loss": marginal,
    "exponential loss": exponential,
    "memm": memm,
    "hmm": hidden_markov,
    "perceptron": perceptron,
    "boosting": boosting,
    "gp": gaussian_process,
    "hmsvm": support_vectors,
}


def run(name: str) -> None:
    """Run a recipe and write a line when a kernel begins (+) and when one is done (.)."""
    done = 0

    def tell(state: compiling.Compiling) -> None:
        nonlocal done
        print("." if state.kernels > done else "+", flush=True)
        done = state.kernels

    with compiling.hears(tell):
        RECIPES[name]()


def run_those_named() -> None:
    """Run the recipes named in lines of standard input, an empty line after each; the first that fails ends it."""
    gc.freeze()
    gc.set_threshold(500_000, 10, 10)  # compiling makes many objects: looking for them took a tenth of the time
    for line in sys.stdin:
        run(line.strip())
        print(flush=True)

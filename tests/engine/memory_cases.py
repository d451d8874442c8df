"""Every family of kernels on tiny problems, at ordinary and at extreme weights: `python memory_cases.py [CASE…]`.

Prints {case: its numbers} as JSON. Run by `test_fresh_memory` in processes whose fresh memory is filled.
"""

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "engine")]

from chain_problems import pack, random_theta  # noqa: E402
from reference.problems import random_problem  # noqa: E402

import espalier.engine.runtime.jit  # noqa: E402, F401 - before anything else, so that all memory is filled
from espalier.engine.blockwise import blocks  # noqa: E402
from espalier.engine.blockwise.blocks import BlockObjective, Blocks  # noqa: E402
from espalier.engine.data.bags import bags_of_matrix  # noqa: E402
from espalier.engine.data.dataset import UNKNOWN, Dataset  # noqa: E402
from espalier.engine.decoding import decode  # noqa: E402
from espalier.engine.estimator import CRF  # noqa: E402
from espalier.engine.families import gp, hmm, hmsvm, perceptron  # noqa: E402
from espalier.engine.families.boosting_options import BOUNDS, BoostingOptions  # noqa: E402
from espalier.engine.families.boosting_training import fit as fit_boosting  # noqa: E402
from espalier.engine.families.gp_options import METHODS, GpOptions  # noqa: E402
from espalier.engine.families.hmm_options import NEEDS_LABELS, TRAININGS, HmmOptions  # noqa: E402
from espalier.engine.families.hmsvm_options import SLACKS, HmsvmOptions  # noqa: E402
from espalier.engine.families.logistic import LogisticEntropy, LogisticObjective, fit_logistic  # noqa: E402
from espalier.engine.families.memm import MemmLabeller, MemmObjective  # noqa: E402
from espalier.engine.families.naive_bayes import fit_naive_bayes  # noqa: E402
from espalier.engine.families.perceptron_options import UPDATES, PerceptronOptions  # noqa: E402
from espalier.engine.families.perceptron_training import fit as fit_perceptron  # noqa: E402
from espalier.engine.grammar.best import Climber  # noqa: E402
from espalier.engine.grammar.estimation import GrammarOptions, fit  # noqa: E402
from espalier.engine.grammar.expected import Machine  # noqa: E402
from espalier.engine.grammar.generating import generate  # noqa: E402
from espalier.engine.grammar.parsing import Parser  # noqa: E402
from espalier.engine.grammar.rules import full_grammar  # noqa: E402
from espalier.engine.grammar.strings import make_strings  # noqa: E402
from espalier.engine.labels.scheme import Transitions  # noqa: E402
from espalier.engine.lattice import decode as lattice_decode  # noqa: E402
from espalier.engine.lattice.lattice import make_lattice  # noqa: E402
from espalier.engine.lattice.limits import make_limits  # noqa: E402
from espalier.engine.losses import feature_selection  # noqa: E402
from espalier.engine.losses.chain_objective import ChainObjective  # noqa: E402
from espalier.engine.losses.exponential_loss import ExponentialObjective  # noqa: E402
from espalier.engine.losses.marginal_loss import MarginalObjective  # noqa: E402
from espalier.engine.losses.triple_objective import TripleObjective  # noqa: E402
from espalier.engine.optimise.penalty import ElasticNet  # noqa: E402
from espalier.engine.optimise.solvers import SOLVERS, minimise  # noqa: E402
from espalier.engine.optimise.solvers.sbcd import live_slots  # noqa: E402
from espalier.engine.optimise.virtual_weights import minimise_virtual  # noqa: E402
from espalier.engine.parts.sharded_objective import in_process  # noqa: E402
from espalier.engine.semisup import count_tables  # noqa: E402
from espalier.engine.semisup.entropy import ChainEntropy, EntropyRegularised  # noqa: E402
from espalier.engine.semisup.mixture import fit_mixture  # noqa: E402
from espalier.engine.text import column_text, letter_alignment, lookup  # noqa: E402
from espalier.engine.text.templates import parse  # noqa: E402
from espalier.engine.weights.nonzero import active_part  # noqa: E402

DENSITIES = ("auto", "dense", "sparse")
PACKED = [
    pack(random_problem(21, 3, 4, 2, [4, 3, 2, 4, 1, 3, 2])),
    pack(random_problem(5, 5, 3, 3, [3, 1, 5, 2]), "seen"),
]


def weights(size: int) -> dict[str, np.ndarray]:
    signs = np.sign(random_theta(size, 3, 0.5))
    mixed = random_theta(size, 7)
    mixed[::7] = 250.0 * signs[::7]
    return {"ordinary": random_theta(size, 4), "thin": random_theta(size, 5, 0.2), "mixed": mixed, "far": 700.0 * signs}


def everywhere(function):
    """function(packed, theta) on all problems at all weights."""
    return [function(packed, theta) for packed in PACKED for theta in weights(packed.layout.size).values()]


# Objectives -----------------------------------------------------------------------------------------


def twice(objective, theta):
    """The second time with memory that the first has left, and after a gradient elsewhere."""
    first = objective.value_and_gradient(theta)
    objective.value_and_gradient(np.zeros(len(theta)))
    return [first, objective.value_and_gradient(theta), objective.value(theta)]


def chain(packed, theta):
    return [twice(ChainObjective(packed.dataset, packed.layout, sparse), theta) for sparse in DENSITIES]


def block_objective(packed, theta):
    return [twice(BlockObjective(packed.dataset, packed.layout, sparse), theta) for sparse in DENSITIES]


def sharded(packed, theta):
    return twice(in_process(packed.dataset, packed.layout, block_tokens=4), theta)


def partial_data(packed) -> Dataset:
    labels = packed.dataset.labels.copy()
    labels[::3], labels[1::4] = -1, -2
    sets = np.zeros((1, packed.layout.n_labels), bool)
    sets[0, :2] = True
    return packed.dataset._replace(labels=labels, label_sets=sets)


def partial(packed, theta):
    return [twice(ChainObjective(partial_data(packed), packed.layout, sparse), theta) for sparse in DENSITIES]


def weighted_data(packed) -> Dataset:
    tokens = np.random.default_rng(2).choice([0.0, 0.5, 2.0], len(packed.dataset.labels))
    return packed.dataset._replace(token_weights=tokens)


def token_weights(packed, theta):
    return [twice(ChainObjective(weighted_data(packed), packed.layout, sparse), theta) for sparse in DENSITIES]


def entropy(packed, theta):
    found = []
    for sparse in DENSITIES:
        labelled, term = ChainObjective(packed.dataset, packed.layout, sparse), ChainEntropy(*packed[1:], 0.7, sparse)
        found += [twice(EntropyRegularised(labelled, term), theta), term.entropies(theta)]
    return found


def marginal_loss(packed, theta):
    """Scattered and gathered, with labels that are not known and without."""
    unknown = packed.dataset._replace(labels=np.maximum(partial_data(packed).labels, -1))
    found = []
    for sparse in DENSITIES:
        objectives = [MarginalObjective(data, packed.layout, sparse) for data in (packed.dataset, unknown) * 2]
        for k, objective in enumerate(objectives):
            objective.chain.scattered = k < 2
            found += [twice(objective, theta)]
    return found


def exponential_loss(packed, theta):
    datasets = (packed.dataset, partial_data(packed))
    return [twice(ExponentialObjective(data, packed.layout, sparse, 0.7), theta)
            for data in datasets for sparse in DENSITIES]  # fmt: skip


def hessian_product(packed, theta):
    return ChainObjective(packed.dataset, packed.layout).hessian_times(theta, random_theta(len(theta), 6))


def one_block(packed, theta):
    """Derivatives and Hessians of blocks in turn, with one base and with many, with and without room for matrices."""
    found = []
    for sparse in DENSITIES:
        for bases, room in ((1, 0), (2, 2 << 30), (1024, 2 << 30)):
            with mock.patch.object(blocks, "BASES", bases), mock.patch.object(blocks, "DENSE_ROOM", room):
                here = Blocks(ChainObjective(packed.dataset, packed.layout, sparse), theta.copy())
            for x in range(here.count):
                code = live_slots(here.theta, here.layout, np.ones(here.layout.size, bool), x)
                hot = here.visit(x)
                found += [here.evaluate(x, hot, code[2]) if hot else 0.0]
                found += [here.hessian(hot, *code[1:]) if hot else 0.0]
                here.theta[here.slots(x)] *= -0.5
                here.refresh(x)
                found += [here.evaluate(x, hot, code[2], False)[0] if hot else 0.0]
            found += [here.expectations()]
    return found


# Solvers --------------------------------------------------------------------------------------------


def solver(name, packed, theta0, **options):
    penalty = ElasticNet(0.3 if SOLVERS[name].accepts_l1 else 0.0, 0.1)
    objective = ChainObjective(packed.dataset, packed.layout)
    found = minimise(name, objective, penalty, theta0, max_iterations=4, tolerance=0.0, **options)
    return [found.theta, found.objective]


def solvers(name):
    options = [{"hessian": "diagonal"}, {"hessian": "full"}] if name == "sbcd" else [{}]
    return lambda: [everywhere(functools.partial(solver, name, **some)) for some in options]


def sharded_sbcd(packed, theta):
    objective = in_process(packed.dataset, packed.layout, block_tokens=4)
    found = minimise("sbcd", objective, ElasticNet(0.3, 0.1), theta, max_iterations=3, tolerance=0.0)
    return [found.theta, found.objective]


def virtual():
    found = []
    for packed in PACKED:
        kinds, n_labels = packed.problem.kinds, packed.problem.n_labels
        for name in ("sbcd", "pqn"):
            _, result = minimise_virtual(packed.dataset, n_labels, kinds, ElasticNet(0.05, 0.01), name, sweeps=6)
            found += [result.theta, result.objective]
    return found


# Decoders -------------------------------------------------------------------------------------------


def limits(packed):
    """Labels and transitions that leave a way through each sequence."""
    n_labels, rng = packed.layout.n_labels, np.random.default_rng(8)
    allowed = rng.random((len(packed.dataset.labels), n_labels)) < 0.6
    allowed[:, 0] = True
    inner = rng.random((n_labels, n_labels)) < 0.6
    inner[0, 0] = True
    return {"allowed": allowed, "transitions": Transitions(np.ones(n_labels, bool), inner, np.ones(n_labels, bool))}


def decoders(packed, theta):
    found = []
    for given in ({}, limits(packed)):
        arguments = packed.dataset, packed.layout, theta
        found += [decode.pair_marginals(*arguments, **given)]
        for sparse in DENSITIES:
            found += [
                function(*arguments, sparse=sparse, **given)
                for function in (decode.log_partition, decode.marginals, decode.posterior, decode.viterbi)
            ]
            best = decode.nbest(*arguments, 3, sparse=sparse, **given)
            there = np.arange(best.scores.shape[1])[None] < best.count[:, None]
            found += [best.count, best.scores[there], best.log_probabilities[there]]
    found += [decode.sequence_score(*arguments), *decode.score_arrays(*arguments)]
    return [*found, active_part(theta, packed.layout)[0]]


def lattices():
    """All that a lattice is asked, with and without limits, at ordinary and at extreme scores, some impossible."""
    packed, rng, found = PACKED[0], np.random.default_rng(6), []
    tokens, n_labels = len(packed.dataset.labels), packed.layout.n_labels
    which = rng.integers(0, 2, tokens)
    which[packed.dataset.offsets[:-1]] = -1
    some = make_limits(packed.dataset, n_labels, **limits(packed))
    for scale in (1.0, 700.0):
        here, between = scale * rng.normal(size=(tokens, n_labels)), scale * rng.normal(size=(2, n_labels, n_labels))
        here[::3, 1], between[0, 1, 2] = -np.inf, -np.inf
        lattice = make_lattice(here, between, which, packed.dataset.offsets)
        for given in (None, some):
            best = lattice_decode.nbest(lattice, 3, given)
            there = np.arange(3)[None] < best.count[:, None]
            found += [best.count, best.scores[there], best.log_probabilities[there], best.labels]
            found += [
                function(lattice, limits=given)
                for function in (lattice_decode.log_partition, lattice_decode.best, lattice_decode.posterior,
                                 lattice_decode.marginals, lattice_decode.pair_marginals, lattice_decode.entropy)
            ]  # fmt: skip
            found += [lattice_decode.sample(lattice, np.random.default_rng(1), 2, given)]
            found += [lattice_decode.log_probability(lattice, best.labels[0], given)]
    return found


# Other families -------------------------------------------------------------------------------------


def local_models():
    """The loss of a MEMM, what it says of data, and an HMM of the same data."""
    found = []
    for packed in PACKED:
        labels, observations = [str(y) for y in range(packed.layout.n_labels)], packed.layout.n_observations
        for theta in weights(packed.layout.size).values():
            model = MemmLabeller(labels, [], [], packed.layout, theta)
            found += [twice(MemmObjective(packed.dataset, packed.layout), theta), model.best(packed.dataset),
                      model.marginals(packed.dataset)]  # fmt: skip
        names = [f"U{x}" for x in range(observations)]
        lines = [f"U{k}" for k in range(packed.dataset.observations.shape[1])]
        stream = np.zeros(observations, np.int64)
        model = hmm.fit(packed.dataset, names, stream, labels, lines, {})
        local = model.renumbered(packed.dataset, names)
        found += [model.theta, model.marginals(local), model.best(local)]
        for training in TRAININGS:
            options = HmmOptions(training, 0.01, max_iterations=3, batch=2)
            data = packed.dataset if training in NEEDS_LABELS else with_gaps(packed.dataset)
            model = hmm.fit(data, names, stream, labels, lines, {}, options)
            found += [model.theta, model.log_likelihood(local), model.sample(3, longest=9).observations]
    return found


def mistakes(packed, theta):
    """Every update of a perceptron, with a margin and without."""
    return [
        fit_perceptron(*packed[1:], PerceptronOptions(update, margin, epochs=3), theta).theta
        for update in UPDATES for margin in ("none", "hamming")
    ]  # fmt: skip


def boosted(packed, theta):
    """Every bound of boosting, of sequences and of positions."""
    return [
        fit_boosting(*packed[1:], BoostingOptions(bound, examples, rounds=4), theta / 30).theta
        for bound in BOUNDS for examples in ("sequences", "neighbours")
    ]  # fmt: skip


def grammars():
    """Both paths of inside-outside, trees, the k best, training, what a string may be asked, generated strings."""
    grammar, found = full_grammar(3, ["a", "b"], 1), []
    texts, marks = [[0, 1, 1], [1], [0, -1], [0, 1, 0, 1, 1]], [[(0, 2)], [], [], [(1, 3)]]
    strings = make_strings(texts, [1.0, 2.0, 1.0, 0.5], marks)
    for path in ("dense", "sparse"):
        expected, trees = Machine(grammar, path).expected(strings), Climber(grammar, path).trees(strings)
        found += [expected.counts, np.exp(expected.log_p), trees.counts, np.exp(trees.log_p), *trees.nodes]
    for settings in ({}, {"training": "vs"}, {"training": "kvs", "k": 3}, {"stepwise": True, "batch": 2}):
        options = GrammarOptions(**settings)
        found += [fit(grammar, strings, replace(options, max_iterations=2)).grammar.probabilities]
    parser, words = Parser(grammar), [0, 1, 1, 0]
    found += [parser.posteriors(words), *parser.most_recall(words), parser.prefixes(words)]
    found += [parser.several(np.array(words), 9).log_p]
    made = generate(grammar, 5, longest=300).strings
    return [*found, made.words, made.brackets]


def with_gaps(data):
    """The first label of each second sequence is unknown, and all of each third."""
    which, labels = np.repeat(np.arange(len(data.weights)), np.diff(data.offsets)), data.labels.copy()
    labels[data.offsets[:-1][::2]] = UNKNOWN
    labels[which % 3 == 1] = UNKNOWN
    return data._replace(labels=labels)


def kernel_machines():
    """What rows of training data say of the same data."""
    found = []
    for packed in PACKED:
        labels = [str(y) for y in range(packed.layout.n_labels)]
        names = [f"U{x}" for x in range(packed.layout.n_observations)]
        kinds = np.array(packed.problem.kinds, np.uint8)
        for method, degree, products in ((m, *how) for m in METHODS for how in ((3, "rows"), (2, "features"))):
            options = GpOptions(degree, 0.5, method=method, share=2.0, max_iterations=3, products=products)
            model = gp.fit(packed.dataset, names, kinds, labels, ["U"], {}, options)
            local = model.renumbered(packed.dataset, names)
            found += [model.support.weight, model.theta, model.best(local), model.marginals(local)]
        for slack in SLACKS:
            options = HmsvmOptions(2, 0.1, slack=slack, margin="hamming", max_iterations=3)
            model = hmsvm.fit(packed.dataset, names, kinds, labels, ["U"], {}, options)
            found += [model.support.weight, model.theta, model.best(model.renumbered(packed.dataset, names))]
        for update in ("perceptron", "pa"):
            options = PerceptronOptions(update, degree=2, epochs=3)
            model = perceptron.fit(packed.dataset, names, kinds, labels, ["U"], {}, options)
            found += [model.support.weight, model.theta, model.best(model.renumbered(packed.dataset, names))]
    return found


def documents():
    rng = np.random.default_rng(1)
    return bags_of_matrix(rng.poisson(0.6, (14, 6)).astype(float)), np.arange(14) % 3


def logistic():
    bags, labels = documents()
    found = []
    for parametrisation in ("reference", "full"):
        objective = LogisticObjective(bags, labels, 3, None, parametrisation)
        term = LogisticEntropy(bags, 3, 0.5, parametrisation=parametrisation)
        for theta in weights(objective.size).values():
            found += [twice(EntropyRegularised(objective, term), theta), objective.hessian(theta)]
        model = fit_logistic(bags, labels, 3, penalty=ElasticNet(0.0, 0.5), parametrisation=parametrisation)
        found += [model.theta, model.probabilities(bags)]
    return found


def triples():
    """A chain with weights for triples of labels: ordinary weights, and those that go by logarithms."""
    packed = pack(random_problem(7, 3, 5, 2, [4, 6, 1, 2, 5], kinds=[4, 3, 1, 2, 4]), "seen")
    data, found = packed.dataset, []
    for scale in (1.0, 300.0):
        objective, theta = TripleObjective(data, packed.layout), random_theta(packed.layout.size, 1, 0.7, scale)
        found += [objective.value(theta), *objective.value_and_gradient(theta)]
        ask = data, packed.layout, theta
        found += [decode.viterbi(*ask), decode.marginals(*ask), decode.log_partition(*ask), *decode.nbest(*ask, 3)]
        allowed = np.ones((len(data.labels), 3), bool)
        found += [decode.marginals(*ask, allowed=allowed), decode.log_partition(*ask, allowed=allowed)]
    return found


def clusters():
    bags, labels = documents()
    mixture = fit_mixture(bags.indptr, bags.indices, bags.counts, bags.n_features, 3, seed=1)
    bayes = fit_naive_bayes(bags, labels, 3, pool=bags)
    return [mixture.log_weights, mixture.log_probabilities, *mixture.responsibilities(*bags[:3]),
            bayes.log_features, bayes.probabilities(bags)]  # fmt: skip


def small_tables():
    x, sample = np.array([[1.0, 0.0], [0.0, 700.0], [1.0, -1.0]]), np.array([[[0, 1], [2, 3], [4, 1]]] * 2)
    return count_tables.fit_tables(x, count_tables.supervised(sample), np.array([0.1, 0.01]))


def alignment():
    def flat(rows):
        return np.array(sum(rows, []), np.int32), np.cumsum([0, *map(len, rows)]).astype(np.int64)

    words = letter_alignment.Words(*flat([[0, 1], [0], [1, 1, 2], [2]]), *flat([[0, 1], [0], [1, 2], [0, 1]]))
    found = letter_alignment.align(words, 3, 3, pair_count=1, iterations=4)
    return [np.asarray(part, float) for part in found if isinstance(part, np.ndarray)]


def texts():
    """Reading of columns, search of observations, selection, and all of a small estimator."""
    data = b"the DT\ncat NN\n\na DT\ndog NN\nruns VB\n"
    cut = column_text.cut(data, "a test")
    templates = parse(["U:%x[0,0]", "U:%x[-1,0]/%x[0,0]", "B"])
    vocabulary = lookup.make_vocabulary(["U:the", "U:cat", "U:a/dog", "B"])
    found = [lookup.find(vocabulary, templates, [cut.column(0)], cut.offsets), cut.offsets, cut.line]
    found += [list(column_text.with_labels(cut, ["x", "yy"], np.array([0, 1, 1, 0, 1], np.int32)))]
    found += [feature_selection.mutual_information(packed.dataset, packed.layout) for packed in PACKED]
    words, labels = [["a", "b"], ["b"], ["a", "c", "b"]], [["X", "Y"], ["Y"], ["X", "X", "Y"]]
    crf = CRF(["U:%x[0,0]", "B"], rho1=0.1, max_iterations=5).fit(words, labels)
    return [*found, crf.model_.theta, *crf.predict_marginals(words)]


CASES = {
    **{f"{function.__name__}": (lambda function=function: everywhere(function))
       for function in (chain, block_objective, sharded, partial, token_weights, entropy, marginal_loss,
                        exponential_loss, hessian_product, one_block, decoders, mistakes, boosted,
                        sharded_sbcd)},
    **{f"solver {name}": solvers(name) for name in SOLVERS},
    **{function.__name__: function
       for function in (virtual, lattices, local_models, kernel_machines, logistic, triples, clusters,
                        small_tables, grammars, alignment, texts)},
}  # fmt: skip


def numbers(found) -> list[float]:
    """All numbers of nested lists and arrays, in order."""
    if isinstance(found, list | tuple):
        return [number for part in found for number in numbers(part)]
    return np.asarray(found, float).ravel().tolist()


if __name__ == "__main__":
    print(json.dumps({name: numbers(CASES[name]()) for name in sys.argv[1:] or CASES}))

"""Hidden Markov support vector machines: the quadratic programme over all labellings, gaps, working sets."""

from itertools import product as every

import numpy as np
import pytest
from reference import kernels
from scipy.optimize import minimize
from test_gp import COLUMNS, problem

from espalier.engine.errors import EspalierError
from espalier.engine.families import hmsvm
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.hmsvm_step import climb
from espalier.engine.families.hmsvm_training import HmsvmState, fit_hmsvm
from espalier.engine.similarity.overlaps import own_gram

TIGHT = HmsvmOptions(gap=1e-7, pairs="all", max_iterations=3000)
CASES = [
    TIGHT, TIGHT._replace(degree=1, C=0.2, eta=2.0), TIGHT._replace(margin="hamming", C=0.05),
    TIGHT._replace(slack="squared", C=0.3), TIGHT._replace(slack="squared", margin="hamming", degree=3),
]  # fmt: skip


def differences(data, n_labels, options):
    """For each wrong labelling of each sequence: (sequence, features right minus wrong, loss).

    Features are of rows and labels, by the square root of the kernel, and of pairs of labels.
    """
    table = data.observations[:, :COLUMNS].tolist()
    gram = np.array([[kernels.kernel(a, b, options.degree) for b in table] for a in table])
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    found = []
    for n, (lo, hi) in enumerate(zip(data.offsets, data.offsets[1:], strict=False)):

        def psi(y, lo=lo):
            of_rows, of_pairs = np.zeros((len(table), n_labels)), np.zeros((n_labels + 1, n_labels))
            for t, label in enumerate(y):
                of_rows[:, label] += root[lo + t]
                of_pairs[y[t - 1] if t else n_labels, label] += np.sqrt(options.eta)
            return np.concatenate([of_rows.ravel(), of_pairs.ravel()])

        gold = tuple(data.labels[lo:hi].tolist())
        for y in every(range(n_labels), repeat=int(hi - lo)):
            if y != gold:
                wrong = sum(a != b for a, b in zip(y, gold, strict=True))
                found.append((n, psi(gold) - psi(y), 1.0 if options.margin == "one" else float(wrong)))
    return found


def dual_optimum(data, n_labels, options):
    """The maximum of the dual over all labellings, by a general solver."""
    owner, features, losses = (np.array(part) for part in zip(*differences(data, n_labels, options), strict=True))
    q, limit = features @ features.T, options.C * data.weights
    of = (owner[:, None] == np.arange(len(limit))).astype(float)
    if options.slack == "squared":
        q = q + (of / (2.0 * limit)) @ of.T
    limits = [{"type": "ineq", "fun": lambda a: limit - a @ of, "jac": lambda a: -of.T}]
    found = minimize(
        lambda a: 0.5 * a @ q @ a - losses @ a, np.zeros(len(losses)), jac=lambda a: q @ a - losses, method="SLSQP",
        bounds=[(0.0, None)] * len(losses), constraints=limits if options.slack == "sequence" else (),
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    return -found.fun


def tiny(seed):
    data, kinds = problem(seed=seed, sequences=5, weights=True, n_labels=2)
    keep = np.concatenate([np.arange(lo, min(hi, lo + 3)) for lo, hi in
                           zip(data.offsets, data.offsets[1:], strict=False)])  # fmt: skip
    lengths = np.minimum(np.diff(data.offsets), 3)
    return data._replace(observations=data.observations[keep], labels=data.labels[keep],
                         offsets=np.append(0, np.cumsum(lengths))), kinds  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_it_is_the_optimum_over_all_labellings(case):
    data, kinds = tiny(case)
    found = fit_hmsvm(hmsvm.chain_of(data, 2, kinds, CASES[case]), CASES[case])
    expected = dual_optimum(data, 2, CASES[case])
    assert found.trace[-1]["dual"] == pytest.approx(expected, rel=1e-5)
    assert found.trace[-1]["primal"] == pytest.approx(expected, rel=1e-4)


def test_hard_margins_are_those_of_the_programme_and_are_kept():
    options = TIGHT._replace(slack="hard", gap=1e-4)
    data, kinds = tiny(2)
    data = data._replace(labels=(np.maximum(data.observations[:, 0], 0) % 2).astype(np.int32))
    chain = hmsvm.chain_of(data, 2, kinds, options)
    found = fit_hmsvm(chain, options)
    assert found.stop_reason == "optimal" and found.trace[-1]["gradient_norm"] < 1e-3
    assert found.trace[-1]["dual"] == pytest.approx(dual_optimum(data, 2, options._replace(C=1e6)), rel=1e-3)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_dual_rises_at_every_step_and_bounds_are_kept(case):
    options, (data, kinds) = CASES[case], problem(seed=case + 3, weights=True)
    machine = HmsvmState(hmsvm.chain_of(data, 3, kinds, options), options)
    before = 0.0
    for n in [*range(len(data.weights))] * 4:
        if machine.visit(n):
            assert machine.rises > 0
            assert machine.dual() == pytest.approx(before + machine.rises, abs=1e-9)
            before = machine.dual()
    machine.pass_over_sets()
    assert machine.dual() >= before
    for seq in machine.sequences:
        assert np.all(seq.a > 0)
        if options.slack == "sequence":
            assert seq.a.sum() <= seq.limit * (1 + 1e-9)
    amounts = machine.amounts
    np.testing.assert_allclose(machine.scores, machine.chain.gram.product(amounts), atol=1e-9)  # H follows
    np.testing.assert_allclose(amounts.sum(axis=1), 0.0, atol=1e-9)  # what supports a label speaks against others


def test_the_gap_closes_and_is_a_bound():
    data, kinds = problem(seed=9)
    options = TIGHT._replace(gap=1e-5, max_iterations=2000)
    found = fit_hmsvm(hmsvm.chain_of(data, 3, kinds, options), options)
    duals, best = [r["dual"] for r in found.trace], found.trace[-1]["dual"]
    assert np.all(np.diff(duals) >= 0) and all(r["primal"] >= best - 1e-9 for r in found.trace)
    assert found.stop_reason == "optimal" and found.trace[-1]["gap"] <= 1e-5 * max(1.0, best)
    assert found.supported <= len(data.weights) and found.supports >= found.supported


def test_small_programmes_against_a_general_solver():
    random = np.random.default_rng(0)
    for k, limit in ((1, 0.1), (3, 0.5), (5, 10.0), (4, 0.0)):
        root, slope = random.normal(size=(k, k + 1)), random.normal(size=k) + 0.5
        q, a = root @ root.T, np.zeros(k)
        climb(a, limit, q, slope.copy(), 1e-12, 100_000)
        found = minimize(lambda x, q=q, s=slope: 0.5 * x @ q @ x - s @ x, np.zeros(k), bounds=[(0, None)] * k,
                         constraints=[{"type": "ineq", "fun": lambda x, c=limit: c - x.sum()}], method="SLSQP",
                         options={"ftol": 1e-15})  # fmt: skip
        assert 0.5 * a @ q @ a - slope @ a == pytest.approx(found.fun, abs=1e-7) and a.sum() <= limit + 1e-12


def test_the_kernel_of_a_few_rows():
    data, kinds = problem()
    chain = hmsvm.chain_of(data, 3, kinds, TIGHT)
    np.testing.assert_array_equal(own_gram(chain.rows, 2), chain.gram.columns(chain.rows))


def test_what_is_not_known_and_one_label():
    data, kinds = problem(n_labels=1)
    with pytest.raises(EspalierError, match="hmsvm.margin is 'wide': expected one of one, hamming"):
        fit_hmsvm(hmsvm.chain_of(data, 1, kinds, TIGHT), TIGHT._replace(margin="wide"))
    found = fit_hmsvm(hmsvm.chain_of(data, 1, kinds, TIGHT), TIGHT)
    assert found.stop_reason == "optimal" and not found.amounts.any()

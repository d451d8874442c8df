"""Hidden Markov support vector machines: the quadratic programme over all labellings, gaps, working sets."""

from itertools import product as every

import numpy as np
import pytest
from reference import kernels
from scipy.optimize import minimize
from test_gp import COLUMNS, problem

from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import hmsvm
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.hmsvm_pairs import move_pairs, pairs_of_rows
from espalier.engine.families.hmsvm_passes import Hand, pass_over
from espalier.engine.families.hmsvm_search import joined, worst_slacks
from espalier.engine.families.hmsvm_sets import Cuts, renewed, together
from espalier.engine.families.hmsvm_step import climb
from espalier.engine.families.hmsvm_training import HmsvmState, fit_hmsvm
from espalier.engine.runtime import threads
from espalier.engine.similarity.overlaps import own_gram

TIGHT = HmsvmOptions(gap=1e-7, pairs="all", max_iterations=3000)
CASES = [
    TIGHT, TIGHT._replace(degree=1, C=0.2, eta=2.0), TIGHT._replace(margin="hamming", C=0.05),
    TIGHT._replace(slack="squared", C=0.3), TIGHT._replace(slack="squared", margin="hamming", degree=3),
    TIGHT._replace(slack="labelling", C=0.01), TIGHT._replace(slack="labelling", margin="hamming", C=0.02, degree=1),
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
    bounds = [(0.0, limit[n] if options.slack == "labelling" else None) for n in owner]
    found = minimize(
        lambda a: 0.5 * a @ q @ a - losses @ a, np.zeros(len(losses)), jac=lambda a: q @ a - losses, method="SLSQP",
        bounds=bounds, constraints=limits if options.slack == "sequence" else (),
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


def psi(machine, part, m):
    """psi(right) - psi(labelling m): by rows and labels, and of pairs; written out."""
    span, sets, chain = part.span, part.sets, machine.chain
    n = int(np.searchsorted(sets.ptr, m, side="right")) - 1
    begin, end = span.offsets[n], span.offsets[n + 1]
    labels = span.gold[begin:end].copy()
    where = slice(sets.place_ptr[m], sets.place_ptr[m + 1])
    labels[sets.place[where] - begin] = sets.label[where]
    of_rows, of_pairs = np.zeros((chain.rows.count, chain.n_labels)), np.zeros(chain.pair_layout.size)
    for y, sign in ((span.gold[begin:end], 1.0), (labels, -1.0)):
        for t, label in enumerate(y.tolist()):
            of_rows[span.rows[begin + t], label] += sign
            x = chain.paired[span.positions.start + begin + t]
            before = -1 if t == 0 else int(y[t - 1])
            _, observation, previous, after = chain.pair_layout.slots(np.arange(chain.pair_layout.size))
            found = np.isin(observation, x) & (previous == before) & (after == label)
            of_pairs[found] += sign
    return of_rows, of_pairs


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_dual_rises_at_every_step_and_bounds_are_kept(case):
    options, (data, kinds) = CASES[case], problem(seed=case + 3, weights=True)
    machine = HmsvmState(hmsvm.chain_of(data, 3, kinds, options), options)
    before = 0.0
    for _ in range(4):
        for part in machine.parts:
            found, rise = machine.visit(part)
            now = machine.dual(machine.point())
            assert rise >= 0 and now == pytest.approx(before + rise, abs=1e-9)
            before = now
        rise = machine.pass_over_sets()
        now = machine.dual(machine.point())
        assert rise >= 0 and now == pytest.approx(before + rise, abs=1e-9)
        before = now
    point, limits = machine.point(), machine.limits
    for part in machine.parts:
        assert np.all(part.sets.a >= 0)
        if options.slack == "labelling":
            assert np.all(part.sets.a <= part.limits[part.sets.owner] * (1 + 1e-9))
    if options.slack == "sequence":
        assert np.all(machine.used() <= limits * (1 + 1e-9))
    np.testing.assert_allclose(machine.by_label.T, machine.chain.gram.product(point.amounts), atol=1e-9)  # H follows
    np.testing.assert_allclose(point.amounts.sum(axis=1), 0.0, atol=1e-9)  # what supports a label speaks against others


@pytest.mark.parametrize("case", [0, 3, 4, 5])
def test_sums_of_a_pass_are_those_written_out(case):
    """Scores, weights of pairs and the rise behind a pass, from a_y alone; products and margins before it."""
    options, (data, kinds) = CASES[case], problem(seed=case, weights=True)
    machine = HmsvmState(hmsvm.chain_of(data, 3, kinds, options), options)
    for part in machine.parts:
        machine.visit(part)
    gram = machine.chain.gram.columns(machine.chain.rows)
    part = max(machine.parts, key=lambda part: len(part.sets.a))
    part.sets = renewed(part.sets, joined(machine.search(part)), machine.chain, part.span, options.eta, machine.hamming)
    sets, terms, before = part.sets, part.terms, machine.dual(machine.point())
    phi = [psi(machine, part, m) for m in range(len(sets.a))]
    assert len(phi) > 1
    q = np.array([[np.sum(a[0] * (gram @ b[0])) + options.eta * a[1] @ b[1] for b in phi] for a in phi])
    at = 0
    for n in range(len(sets.ptr) - 1):
        some = slice(sets.ptr[n], sets.ptr[n + 1])
        np.testing.assert_allclose(sets.products[at : at + q[some, some].size], q[some, some].ravel(), atol=1e-9)
        at += q[some, some].size
    hand = Hand(part.span.rows[sets.place].astype(np.int64), part.span.gold[sets.place], machine.by_label,
                machine.changed, machine.counts)  # fmt: skip
    old, scores, weights = sets.a.copy(), machine.by_label.copy(), machine.weights.copy()
    rise, made = pass_over(sets, hand, machine.chain.rows, machine.chain.gram.index, options.degree, machine.weights,
                           terms, 0.0, 1e-9, 1000)  # fmt: skip
    step = sets.a - old
    assert made >= 1 and step.any()
    moved = np.einsum("m,mpy->py", step, np.array([one[0] for one in phi]))
    np.testing.assert_allclose(machine.by_label - scores, (gram @ moved).T, atol=1e-9)
    pairs = options.eta * np.einsum("m,mk->k", step, np.array([one[1] for one in phi]))
    np.testing.assert_allclose(machine.weights - weights, pairs, atol=1e-9)
    assert rise == pytest.approx(machine.dual(machine.point()) - before, abs=1e-9) and rise > 0
    assert not machine.changed.any()


def twins():
    """Two sequences with equal rows, whose labels differ in one: only pairs can tell them apart."""
    table, kinds = [[0, 6], [1, 6], [2, 6], [3, 6], [1, 6], [4, 6]], np.array([1] * 6 + [2], np.uint8)
    return make_dataset(np.array(table), np.array([0, 1, 0, 1, 2, 1]), np.array([0, 3, 6])), kinds


def test_steps_of_pairs_leave_scores_alone_and_raise_the_dual():
    options, (data, kinds) = TIGHT, twins()
    machine = HmsvmState(hmsvm.chain_of(data, 3, kinds, options), options)
    cuts = [Cuts(np.array([0]), np.array([0, 1]), np.array([1]), np.array([label], np.int32)) for label in (2, 1)]
    for part, cut in zip(machine.parts, cuts, strict=True):
        part.sets = renewed(part.sets, cut, machine.chain, part.span, options.eta, False)
    sets = together([part.sets for part in machine.parts], [part.span.positions.start for part in machine.parts])
    rows, gold = machine.chain.of_position[sets.place].astype(np.int64), data.labels[sets.place]
    hand = Hand(rows, gold, machine.by_label, machine.changed, machine.counts)
    pairs = pairs_of_rows(sets, hand)
    assert [pairs.one.tolist(), pairs.other.tolist(), pairs.by.tolist()] == [[0], [1], [1.0]]
    used = np.zeros(2)
    rise = move_pairs(pairs, sets, hand, sets.owner, used, machine.weights, machine.terms)
    assert sets.a[0] == sets.a[1] > 0 and used.tolist() == sets.a.tolist()
    for part, a in zip(machine.parts, sets.a, strict=True):
        part.sets.a[:] = a
    np.testing.assert_array_equal(machine.chain.gram.product(machine.point().amounts), 0.0)
    assert machine.dual(machine.point()) == pytest.approx(rise, abs=1e-12) and rise > 0
    again = move_pairs(pairs, sets, hand, sets.owner, used, machine.weights, machine.terms)
    assert again == pytest.approx(0.0, abs=1e-12)  # it was the best step


@pytest.mark.parametrize("margin", ["one", "hamming"])
def test_searches_find_what_counting_all_labellings_finds(margin):
    options, (data, kinds) = TIGHT._replace(margin=margin), problem(seed=4)
    machine = HmsvmState(hmsvm.chain_of(data, 3, kinds, options), options)
    for part in machine.parts:
        machine.visit(part)
    for part in machine.parts:
        lattice, gold = part.lattice(machine), part.span.gold
        cuts = joined(machine.search(part))
        for n, (lo, hi) in enumerate(zip(lattice.offsets, lattice.offsets[1:], strict=False)):

            def score(y, lo=lo, lattice=lattice):
                pairs = (lattice.between[lattice.which[lo + t], y[t - 1], y[t]] for t in range(1, len(y)))
                return sum(lattice.here[lo + t, label] for t, label in enumerate(y)) + sum(pairs)

            right, worst, runs = gold[lo:hi].tolist(), 0.0, {}
            for y in every(range(3), repeat=int(hi - lo)):
                wrong = [t for t in range(len(y)) if y[t] != right[t]]
                if wrong:
                    missed = (len(wrong) if margin == "hamming" else 1.0) + score(y) - score(right)
                    worst = max(worst, missed)
                    if wrong[-1] - wrong[0] + 1 == len(wrong):
                        runs[wrong[-1]] = max(runs.get(wrong[-1], 0.0), missed)
            missed, _ = worst_slacks(lattice, gold, margin == "hamming", 1.0)[:, n]
            assert missed == pytest.approx(worst, abs=1e-9)
            if part.sets.ptr[n] == part.sets.ptr[n + 1]:  # nothing is known: the worst, and the worst run to each end
                mine = np.flatnonzero(cuts.owner == n)
                assert len(mine) >= len([run for run in runs.values() if run > 1e-6])


def test_the_same_bytes_for_any_number_of_threads():
    data, kinds = problem(seed=1, weights=True)
    options, found = TIGHT._replace(max_iterations=3), []
    for count in (1, 3):
        threads.set_threads(count)
        try:
            fit = fit_hmsvm(hmsvm.chain_of(data, 3, kinds, options), options)
        finally:
            threads.set_threads(None)
        found.append((fit.amounts.tobytes(), fit.weights.tobytes(), fit.trace))
    assert found[0] == found[1]


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
        climb(a, limit, np.inf, q, slope.copy(), 1e-12, 100_000)
        found = minimize(lambda x, q=q, s=slope: 0.5 * x @ q @ x - s @ x, np.zeros(k), bounds=[(0, None)] * k,
                         constraints=[{"type": "ineq", "fun": lambda x, c=limit: c - x.sum()}], method="SLSQP",
                         options={"ftol": 1e-15})  # fmt: skip
        assert 0.5 * a @ q @ a - slope @ a == pytest.approx(found.fun, abs=1e-7) and a.sum() <= limit + 1e-12


def test_the_kernel_of_a_few_rows():
    data, kinds = problem()
    chain = hmsvm.chain_of(data, 3, kinds, TIGHT)
    np.testing.assert_array_equal(own_gram(chain.rows, np.arange(chain.rows.count), 2), chain.gram.columns(chain.rows))


def test_what_is_not_known_and_one_label():
    data, kinds = problem(n_labels=1)
    with pytest.raises(EspalierError, match="hmsvm.margin is 'wide': expected one of one, hamming"):
        fit_hmsvm(hmsvm.chain_of(data, 1, kinds, TIGHT), TIGHT._replace(margin="wide"))
    found = fit_hmsvm(hmsvm.chain_of(data, 1, kinds, TIGHT), TIGHT)
    assert found.stop_reason == "optimal" and not found.amounts.any()

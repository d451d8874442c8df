"""Gaussian processes for sequences: the explicit model of the same kernel, first-order conditions, crafted files."""

from dataclasses import replace
from itertools import product as every

import numpy as np
import pytest
from reference import kernels

from espalier.engine import families
from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import gp
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.families.gp_training import FewCoordinates, GpPosterior, SparseState, fit_gp
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.weights.layout import BIGRAM, UNIGRAM, dense_layout

N_LABELS, COLUMNS, VALUES = 3, 4, 5
EXACT = 1e-9  # relative, of objectives at the optimum
TIGHT = GpOptions(tolerance=1e-12, max_iterations=2000, pairs="all")


def problem(seed=0, sequences=12, weights=False, n_labels=N_LABELS):
    """Random sequences; the last observation is that of pairs."""
    random = np.random.default_rng(seed)
    offsets = np.cumsum([0, *random.integers(1, 6, sequences)])
    table = random.integers(0, VALUES, (offsets[-1], COLUMNS)) + VALUES * np.arange(COLUMNS)
    table = np.where(random.random(table.shape) < 0.1, -1, table)
    table = np.append(table, np.full((len(table), 1), VALUES * COLUMNS), axis=1)
    kinds = np.append(np.full(VALUES * COLUMNS, UNIGRAM), BIGRAM).astype(np.uint8)
    labels = (np.maximum(table[:, 0], 0) + random.integers(0, 2, len(table))) % n_labels
    heavy = random.integers(1, 4, sequences).astype(float) if weights else None
    return make_dataset(table, labels, offsets, heavy), kinds


def explicit(data, kinds, degree, options):
    """(scores of all positions, weights of pairs, objective): an L2 CRF whose features are written out.

    A feature of value v is an observation with a value; the weight of pairs, whose squares count 1 / eta, one of value
    sqrt(eta): so one penalty is all, rho2 = 2 kappa.
    """
    rows = [kernels.features(row, degree) for row in data.observations[:, :COLUMNS].tolist()]
    names = {name: i for i, name in enumerate(sorted({f for row in rows for f in row}))}
    widest = max(map(len, rows))
    valued = np.array([[names[f] for f in row] + [-1] * (widest - len(row)) for row in rows])
    values = np.array([[*row.values()] + [0.0] * (widest - len(row)) for row in rows])
    pairs = np.full((len(rows), 1), len(names))
    kinds = np.append(np.full(len(names), UNIGRAM), BIGRAM).astype(np.uint8)
    moved = make_dataset(pairs, data.labels, data.offsets, data.weights, valued=valued, values=values)
    layout = dense_layout(N_LABELS, kinds)
    objective, cells, root = ChainObjective(moved, layout), len(names) * N_LABELS, np.sqrt(options.eta)

    class Scaled:
        size, offers = objective.size, frozenset({"gradient"})

        def value_and_gradient(self, theta):
            scale = np.where(np.arange(self.size) < cells, 1.0, root)
            value, gradient = objective.value_and_gradient(theta * scale)
            return value, gradient * scale

    found = minimise("lbfgs", Scaled(), ElasticNet(0.0, 2.0 * options.kappa), None, 5000, 1e-14)
    weights = found.theta[:cells].reshape(-1, N_LABELS)
    scores = np.array([sum(value * weights[names[f]] for f, value in row.items()) for row in rows])
    return scores, root * found.theta[cells:], found.objective


@pytest.mark.parametrize(("degree", "kappa", "eta"), [(1, 1.0, 1.0), (2, 1.0, 1.0), (2, 0.1, 3.0), (1, 2.0, 0.5)])
def test_it_is_the_crf_on_explicit_features(degree, kappa, eta):
    options = TIGHT._replace(degree=degree, kappa=kappa, eta=eta)
    data, kinds = problem(seed=degree, weights=True)
    chain = gp.chain_of(data, N_LABELS, kinds, options)
    found = fit_gp(chain, options)
    scores, pairs, objective = explicit(data, kinds, degree, options)
    assert found.objective == pytest.approx(objective, rel=EXACT)
    np.testing.assert_allclose(chain.gram.product(found.amounts)[chain.of_position], scores, atol=1e-4)
    np.testing.assert_allclose(found.weights, pairs, atol=1e-4)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_first_order_conditions_hold_and_the_objective_falls(degree):
    options = TIGHT._replace(degree=degree)
    data, kinds = problem(seed=degree + 5)
    chain = gp.chain_of(data, N_LABELS, kinds, options)
    found = fit_gp(chain, options)
    values = [record["objective"] for record in found.trace]
    assert np.all(np.diff(values) < 0) and found.stop_reason == "optimal"
    assert all(record["objective"] - values[-1] <= record["gap"] + 1e-9 for record in found.trace)  # it is a bound
    theta = np.concatenate([chain.gram.product(found.amounts).ravel(), found.weights])
    _, gradient = chain.objective.value_and_gradient(theta)
    residual = found.amounts + gradient[: chain.cells].reshape(-1, N_LABELS) / (2.0 * options.kappa)
    assert np.abs(chain.gram.product(residual)).max() < 1e-3  # G may be singular: not without it
    np.testing.assert_allclose(residual.sum(axis=1), found.amounts.sum(axis=1), atol=1e-9)  # counts sum to zero
    np.testing.assert_allclose(gradient[chain.cells :], -2.0 * found.weights, atol=1e-3)


def test_gradients_are_those_of_differences():
    options = TIGHT._replace(kappa=0.3, eta=2.0)
    data, kinds = problem(seed=3)
    posterior = GpPosterior(gp.chain_of(data, N_LABELS, kinds, options), options)
    random = np.random.default_rng(0)
    z, d = random.normal(size=(2, posterior.size)) * 0.01
    point, step = posterior.at(z, posterior.image(z)), 1e-5
    ahead, behind = (posterior.at(z + s * d, posterior.image(z + s * d)).value for s in (step, -step))
    assert point.gradient @ posterior.image(d) == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def test_gradients_of_few_coordinates_are_those_of_differences():
    options = TIGHT._replace(kappa=0.3, eta=2.0, method="sparse")
    data, kinds = problem(seed=4)
    state = SparseState(gp.chain_of(data, N_LABELS, kinds, options), options)
    state.step(*state.steepest(state.rows_of(0), 3)[:2])
    few, random = FewCoordinates(state, *state.steepest(state.rows_of(1), 4)[:2]), np.random.default_rng(1)
    assert few.value_and_gradient(np.zeros(few.size))[0] == pytest.approx(state.value)
    x, d = random.normal(size=(2, few.size))
    _, gradient = few.value_and_gradient(x)
    ahead, behind = (few.value_and_gradient(x + s * d)[0] for s in (1e-5, -1e-5))
    assert gradient @ d == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("pick", ["random", "gradient"])
def test_a_sparse_training_falls_and_comes_to_the_dense_one(pick):
    data, kinds = problem(seed=6, sequences=5)
    dense = fit_gp(gp.chain_of(data, N_LABELS, kinds, TIGHT), TIGHT)
    options = TIGHT._replace(method="sparse", share=9.0, threshold=0.02, pick=pick, coordinates=20, tolerance=1e-6)
    found = fit_gp(gp.chain_of(data, N_LABELS, kinds, options), options)
    values = [record["objective"] for record in found.trace]
    assert np.all(np.diff(values) <= 1e-9) and found.stop_reason == "flat"
    assert found.objective == pytest.approx(dense.objective, rel=1e-3) and found.objective >= dense.objective - 1e-9


def test_a_sparse_training_stops_at_its_share():
    data, kinds = problem(seed=7)
    options = TIGHT._replace(method="sparse", share=0.5, coordinates=2)
    chain = gp.chain_of(data, N_LABELS, kinds, options)
    found = fit_gp(chain, options)
    most = int(np.ceil(0.5 * chain.rows.count))
    assert found.stop_reason == "chosen" and most <= np.count_nonzero(found.amounts) < most + 2
    other = fit_gp(gp.chain_of(data, N_LABELS, kinds, options), options._replace(seed=1))
    assert not np.array_equal(other.amounts, found.amounts)


def labelled_model(options=TIGHT, seed=8):
    data, kinds = problem(seed=seed)
    names = [f"U{k}:{i}" for k in range(COLUMNS) for i in range(VALUES)] + ["B"]
    lines = [*(f"U{k}:%x[0,{k}]" for k in range(COLUMNS)), "B"]
    model = gp.fit(data, names, kinds, ["X", "Y", "Z"], lines, {}, options)
    return model, data, names


@pytest.mark.parametrize("method", ["dense", "sparse"])
def test_what_it_says_is_by_enumeration_of_what_its_rows_say(method):
    model, data, names = labelled_model(TIGHT._replace(method=method, degree=3))
    local = model.renumbered(data, names)
    rows = [model.support.rows.attribute[a:b].tolist() for a, b in
            zip(model.support.rows.ptr, model.support.rows.ptr[1:], strict=False)]  # fmt: skip
    attributes = {a for row in rows for a in row}
    queries = [[a for a in row if a in attributes] for row in local.observations.tolist()]
    here = np.array(kernels.scores(queries, rows, model.amounts.tolist(), 3))
    pair = {(int(p), int(y)): value for (_, _, p, y), value in
            zip(zip(*model.layout.slots(), strict=True), model.theta.tolist(), strict=True)}  # fmt: skip
    for n in range(4):
        span = range(local.offsets[n], local.offsets[n + 1])
        total = {}
        for y in every(range(3), repeat=len(span)):
            total[y] = sum(here[t, a] for t, a in zip(span, y, strict=True)) + sum(
                pair.get((p, a), 0.0) for p, a in zip((-1, *y[:-1]), y, strict=True))  # fmt: skip
        best = max(total, key=total.get)
        assert tuple(model.best(local)[span.start : span.stop]) == best
        log_z = np.logaddexp.reduce(list(total.values()))
        assert model.log_partition(local)[n] == pytest.approx(log_z, rel=1e-9)


def test_its_rows_explain_its_scores():
    model, data, names = labelled_model()
    local = model.renumbered(data, names)
    here, between = model.scores(local)
    t = int(local.offsets[1]) - 1
    for y in range(3):
        found = list(model.contributions(local.observations[t], 0 if t else -1, y))
        pairs = between[t, 0, y] if t else 0.0
        assert sum(value for _, value in found) == pytest.approx(here[t, y] + pairs, rel=1e-9)
    texts = [model.text_of(weight.observation) for weight, _ in found]
    assert any(text.startswith("like training sequence ") and "token " in text for text in texts)
    assert len(model.listed(1, 5)) == 5 and all(weight.label == 1 for weight, _ in model.listed(1, 5))


def test_the_table_of_what_it_shows_has_rows_and_pairs():
    model, _, _ = labelled_model()
    table = model.shown_table()
    assert table.num_rows == len(model.support.row) + len(model.theta) == sum(model.sizes().values())


def test_values_and_unknown_labels_are_refused():
    data, kinds = problem()
    valued = data._replace(valued=np.zeros((len(data.labels), 1), np.int32), values=np.ones((len(data.labels), 1)))
    with pytest.raises(EspalierError, match="make bins of them with %q, or choose the family crf"):
        gp.chain_of(valued, N_LABELS, kinds, TIGHT)
    gone = data._replace(labels=np.where(np.arange(len(data.labels)) == 3, -1, data.labels).astype(np.int32))
    with pytest.raises(EspalierError, match="gp learns from positions whose labels are known"):
        gp.chain_of(gone, N_LABELS, kinds, TIGHT)
    with pytest.raises(EspalierError, match="gp.method is 'wide': expected one of dense, sparse"):
        fit_gp(gp.chain_of(data, N_LABELS, kinds, TIGHT), TIGHT._replace(method="wide"))


def test_one_label_and_no_attributes():
    data, kinds = problem(n_labels=1)
    found = fit_gp(gp.chain_of(data, 1, kinds, TIGHT), TIGHT)
    assert found.objective == pytest.approx(0.0, abs=1e-9)
    bare = data._replace(observations=np.ascontiguousarray(data.observations[:, -1:]))
    chain = gp.chain_of(bare._replace(labels=np.zeros(len(data.labels), np.int32)), 2, kinds, TIGHT)
    assert chain.rows.count == 1 and fit_gp(chain, TIGHT).stop_reason in ("optimal", "converged")


# ---- files


CRAFTED = {
    "a row that is not there": lambda s: s._replace(row=np.append(s.row[:-1], 10**6).astype(np.int32)),
    "a negative row": lambda s: s._replace(row=np.append(-1, s.row[1:]).astype(np.int32)),
    "a support twice": lambda s: s._replace(row=np.append(s.row[0], s.row[:-1]).astype(np.int32),
                                            label=np.append(s.label[0], s.label[:-1]).astype(np.int32)),
    "attributes out of order": lambda s: s._replace(
        rows=s.rows._replace(attribute=np.ascontiguousarray(s.rows.attribute[::-1]))),
    "a place before the first": lambda s: s._replace(sequence=s.sequence - 10**6),
    "places missing": lambda s: s._replace(sequence=s.sequence[:-1], position=s.position[:-1]),
}  # fmt: skip


@pytest.mark.parametrize("case", CRAFTED)
def test_supports_that_do_not_fit_together_are_refused(tmp_path, case):
    model, _, _ = labelled_model()
    replace(model, support=CRAFTED[case](model.support)).save(tmp_path / "a.model")
    with pytest.raises(EspalierError, match="supporting row|not in order"):
        families.load(tmp_path / "a.model")


@pytest.mark.parametrize("degree", [0, 9, 2.0, None, True])
def test_a_degree_that_is_none(tmp_path, degree):
    model, _, _ = labelled_model()
    model.info["degree"] = degree
    model.save(tmp_path / "a.model")
    with pytest.raises(EspalierError, match="degree is .*, expected a whole number from 1 to 8"):
        families.load(tmp_path / "a.model")


def test_support_that_is_not_finite_is_never_written(tmp_path):
    model, _, _ = labelled_model()
    weight = model.support.weight.copy()
    weight[1] = np.nan
    with pytest.raises(EspalierError, match="weight 1 of its table support is nan, .* nothing was written"):
        replace(model, support=model.support._replace(weight=weight)).save(tmp_path / "a.model")
    assert not list(tmp_path.iterdir())

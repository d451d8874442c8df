"""Transitions that a scheme forbids, impossible in training: the losses against enumeration of what is allowed."""

import math

import numpy as np
import pytest
from chain_problems import pack, random_theta, weights_of
from reference import chain
from reference.problems import random_problem

from espalier import CRF
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.objectives import objective_of
from espalier.engine.labels.scheme import breaks, transitions_of
from espalier.engine.losses.fixed_transitions import FixedTransitions, refuse_broken
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import SOLVERS, minimise

ROUNDING, STEP, DIFFERENCE = 1e-9, 1e-5, 2e-6
IOB2, BIOES = ["O", "B-a", "I-a", "B-b", "I-b"], ["O", "B-a", "I-a", "E-a", "S-a"]
LOSSES = ("log", "marginal", "exponential")
PI = 0.8


def allowed(labels, names):
    """Whether a labelling follows its scheme, read from the letters."""
    tags = [names[y] for y in labels]
    is_bioes, is_open = any(name[0] in "ES" for name in names), ""
    for tag in tags:
        letter, kind = tag[0], tag[2:]
        if letter in "IE" and kind != is_open:
            return False
        if is_bioes and letter not in "IE" and is_open:
            return False
        is_open = kind if letter in "BI" else ""
    return not (is_bioes and is_open)


def possible(x, names, weights):
    scored = [(y, chain.score(x, y, weights)) for y in chain.labellings(len(x), len(names)) if allowed(y, names)]
    log_z = chain.log_sum_exp([s for _, s in scored])
    return [(y, s - log_z) for y, s in scored]


def enumerated(loss, packed, names, theta):
    """The loss over allowed labellings alone."""
    weights, terms, problem = weights_of(packed.layout, theta), [], packed.problem
    for x, gold, w in zip(problem.sequences, problem.labels, problem.weights, strict=True):
        every = possible(x, names, weights)
        l_n = -next(p for y, p in every if list(y) == list(gold))
        if loss == "log":
            terms.append(w * l_n)
        elif loss == "marginal":
            for t, label in enumerate(gold):
                terms.append(-w / len(x) * chain.log_sum_exp([p for y, p in every if y[t] == label]))
        else:
            others = [p for y, p in every if list(y) != list(gold)]
            terms.append(math.log(w) + len(x) * math.log(PI) + chain.log_sum_exp(others) + l_n)
    return chain.log_sum_exp(terms) if loss == "exponential" else math.fsum(terms)


def problem_of(names, layout="dense", seed=3, start=True):
    """Sequences with random weights whose labels follow the scheme."""
    packed = pack(random_problem(seed, len(names), 4, 2, [4, 3, 4, 2]), layout)
    rng, problem = np.random.default_rng(seed), packed.problem
    rows = [[y for y in chain.labellings(len(x), len(names)) if allowed(y, names)] for x in problem.sequences]
    labels = [list(row[rng.integers(len(row))]) for row in rows]
    weights = rng.uniform(0.5, 2.0, len(labels)).tolist()
    return pack(problem._replace(labels=labels, weights=weights, start=start), layout)


def restricted(loss, packed, names):
    how = ("auto", loss, PI) if loss == "exponential" else ("auto", loss)
    return objective_of("crf", packed.dataset, packed.layout, *how, transitions=transitions_of(names))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("names", "layout", "start"), [(IOB2, "dense", True), (IOB2, "seen", False),
                                                        (BIOES, "seen", True), (BIOES, "dense", False)])  # fmt: skip
def test_the_loss_is_that_of_allowed_labellings(loss, names, layout, start):
    packed = problem_of(names, layout, start=start)
    objective = restricted(loss, packed, names)
    theta = random_theta(objective.size, 5)
    value, gradient = objective.value_and_gradient(theta)
    expected = enumerated(loss, packed, names, theta)
    assert value == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)
    assert objective.value(theta) == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)
    free = objective_of("crf", packed.dataset, packed.layout, "auto", loss)
    assert abs(free.value(theta) - value) > 0.01  # it changes Z
    for k in np.random.default_rng(0).permutation(objective.size)[:25]:
        moved = np.repeat(theta[None], 2, axis=0)
        moved[0, k] += STEP
        moved[1, k] -= STEP
        slope = (enumerated(loss, packed, names, moved[0]) - enumerated(loss, packed, names, moved[1])) / (2 * STEP)
        assert gradient[k] == pytest.approx(slope, abs=DIFFERENCE)


def test_labels_that_are_not_known_sum_over_what_is_allowed():
    packed = problem_of(IOB2)
    labels = packed.dataset.labels.copy()
    labels[[1, 5]] = -1
    dataset = packed.dataset._replace(labels=labels)
    objective = objective_of("crf", dataset, packed.layout, transitions=transitions_of(IOB2))
    theta, begin, terms = random_theta(objective.size, 5), 0, []
    weights = weights_of(packed.layout, theta)
    for x, w in zip(packed.problem.sequences, packed.problem.weights, strict=True):
        known = labels[begin : begin + len(x)]
        fits = [p for y, p in possible(x, IOB2, weights) if all(k in (-1, b) for k, b in zip(known, y, strict=True))]
        terms.append(-w * chain.log_sum_exp(fits))
        begin += len(x)
    assert objective.value(theta) == pytest.approx(math.fsum(terms), rel=ROUNDING)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_run_or_are_refused_by_name(loss, solver):
    packed = problem_of(IOB2, "seen")
    objective = restricted(loss, packed, IOB2)
    penalty = ElasticNet(0.01, 0.5) if SOLVERS[solver].accepts_l1 else ElasticNet(0.0, 0.5)
    if not SOLVERS[solver].fits(objective.offers):
        with pytest.raises(EspalierError, match=f"{solver} .*: choose one of "):
            minimise(solver, objective, penalty)
        return
    result = minimise(solver, objective, penalty, max_iterations=3)
    assert np.isfinite(result.objective) and len(result.theta) == packed.layout.size
    assert result.objective < objective.value(np.zeros(objective.size))


def test_the_optimum_is_where_allowed_expectations_meet_counts():
    """No fixed score reaches the weights: what is forbidden is pulled to zero by the penalty alone."""
    packed = problem_of(IOB2)
    objective = restricted("log", packed, IOB2)
    found = minimise("lbfgs", objective, ElasticNet(0.0, 0.1), max_iterations=200, tolerance=0.0)
    assert np.abs(objective.value_and_gradient(found.theta)[1] + 0.1 * found.theta).max() < 1e-4
    family, _, previous, label = packed.layout.slots()
    forbidden = (family == 2) & ~transitions_of(IOB2).pair[np.maximum(previous, 0), label]
    assert forbidden.any() and np.abs(found.theta[forbidden]).max() < 1e-9


# ---- models


def labeller(names, theta_seed=2, size=1.0, **info):
    packed = problem_of(names)
    theta = size * random_theta(packed.layout.size, theta_seed)
    texts = [f"{'UB*'[kind - 1]}{i}" for i, kind in enumerate(packed.problem.kinds)]
    return CrfLabeller(names, [], texts, packed.layout, theta, info), packed


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("names", [IOB2, BIOES])
def test_a_model_keeps_to_its_scheme(names, size):
    """Also where its weights would outweigh any fixed score."""
    model, packed = labeller(names, size=size, scheme="bioes" if names is BIOES else "iob2")
    weights, data = weights_of(packed.layout, model.theta), packed.dataset
    best, gamma, log_p = model.best(data), model.marginals(data), model.log_probability(data)
    nbest = model.nbest(data, 200)
    for n, x in enumerate(packed.problem.sequences):
        lo, hi = data.offsets[n], data.offsets[n + 1]
        every = possible(x, names, weights)
        assert tuple(best[lo:hi]) == tuple(max(every, key=lambda one: one[1])[0])
        for t in range(hi - lo):
            for y in range(len(names)):
                expected = sum(math.exp(p) for row, p in every if row[t] == y)
                assert gamma[lo + t, y] == pytest.approx(expected, abs=1e-9)
        gold = next(p for row, p in every if list(row) == list(packed.problem.labels[n]))
        assert log_p[n] == pytest.approx(gold, rel=1e-9, abs=1e-9)
        assert nbest.count[n] == min(200, len(every))
    assert not breaks(best, data.offsets, transitions_of(names)).any()
    free = CrfLabeller(model.labels, [], model.observations, model.layout, model.theta)
    assert breaks(free.best(data), data.offsets, transitions_of(names)).any()


def test_what_the_scheme_forbids_has_a_finite_log_probability():
    model, packed = labeller(IOB2, scheme="iob2")
    data = packed.dataset._replace(labels=np.full(len(packed.dataset.labels), 2, np.int32))  # I-a everywhere
    assert np.all(model.log_probability(data) < -190.0) and np.all(np.isfinite(model.log_probability(data)))


def test_a_scheme_is_kept_with_the_model_and_its_scores_are_not(tmp_path):
    words, labels = [["x", "y", "z"], ["y", "z"]], [["O", "B-a", "I-a"], ["B-a", "O"]]
    crf = CRF(scheme="auto", rho1=0.0, rho2=0.1).fit(words, labels)
    assert crf.model_.info["scheme"] == "iob2" and np.abs(crf.model_.theta).max() < 100
    crf.save(tmp_path / "a.model")
    model = load(tmp_path / "a.model")
    assert model.transitions is not None and CRF.load(tmp_path / "a.model").scheme == "auto"
    assert crf.predict([["z", "z", "z"]])[0][0] != "I-a"
    plain = CRF(rho1=0.0, rho2=0.1).fit(words, labels)
    assert "scheme" not in plain.model_.info and crf.model_.info["objective"] < plain.model_.info["objective"]
    damaged = CrfLabeller(model.labels, model.templates, model.observations, model.layout, model.theta,
                          model.info | {"scheme": "iob9"})  # fmt: skip
    damaged.save(tmp_path / "b.model")
    with pytest.raises(EspalierError, match="scheme 'iob9' does not fit: .*choose one of iob2"):
        load(tmp_path / "b.model")


def test_a_search_for_penalties_keeps_to_it():
    words = [["x", "y", "z"], ["y", "z"], ["z", "x"]] * 5
    labels = [["O", "B-a", "I-a"], ["B-a", "O"], ["O", "O"]] * 5
    crf = CRF(scheme="auto", rho1="auto", max_iterations=20).fit(words, labels)
    assert crf.model_.info["scheme"] == "iob2"
    assert not any(row[0] == "I-a" or ("O", "I-a") in zip(row, row[1:], strict=False) for row in crf.predict(words))


# ---- refusals


def test_labels_that_break_the_scheme_are_refused():
    with pytest.raises(EspalierError) as refused:
        CRF(scheme="auto").fit([["x", "y"], ["y"]], [["B-a", "I-a"], ["I-a"]])
    assert str(refused.value) == (
        "training sequence 2 has I-a at its beginning, which the scheme forbids: mend its labels, convert them from "
        "another scheme, or set scheme to None"
    )
    with pytest.raises(EspalierError, match="training sequence 1 has I-b after B-a, which the scheme forbids"):
        CRF(scheme="iob2").fit([["x", "y"], ["y"]], [["B-a", "I-b"], ["B-b"]])
    with pytest.raises(EspalierError, match="training sequence 1 has B-a at its end"):
        CRF(scheme="bioes").fit([["x", "y"], ["y"]], [["O", "B-a"], ["O"]])
    with pytest.raises(EspalierError, match="no labelling that its known labels and the scheme allow"):
        CRF(scheme="iob2").fit([["x", "y"], ["y", "z"]], [["O", {"I-a", "I-b"}], ["B-a", "B-b"]])


@pytest.mark.parametrize("wrong", [{"scheme": 1}, {"scheme": True}, {"scheme": "iob2", "family": "memm"}])
def test_parameters_that_are_none(wrong):
    with pytest.raises(EspalierError, match="expected None, or with family 'crf' or 'boosting' 'auto' or the name"):
        CRF(**wrong).fit([["x"]], [["O"]])


def test_names_and_labels_of_a_scheme():
    with pytest.raises(EspalierError, match="scheme 'iob3' is not known"):
        CRF(scheme="iob3").fit([["x"]], [["O"]])
    with pytest.raises(EspalierError, match="label 'N' is not one of iob2"):
        CRF(scheme="auto").fit([["x"]], [["N"]])
    packed = problem_of(IOB2)
    with pytest.raises(EspalierError, match="memm cannot train without forbidden transitions"):
        objective_of("memm", packed.dataset, packed.layout, transitions=transitions_of(IOB2))
    refuse_broken(packed.dataset, packed.layout, transitions_of(IOB2), IOB2, "scheme")
    with pytest.raises(EspalierError, match=r"theta has shape \(3,\): expected the"):
        restricted("log", packed, IOB2).value(np.zeros(3))
    assert isinstance(restricted("log", packed, IOB2), FixedTransitions)
    assert decode.log_partition(packed.dataset, packed.layout, np.zeros(packed.layout.size)).all()

"""Training as a stage: its objective by enumeration, warm starts weight by weight, the same bytes every time."""

import math

import numpy as np
import pytest
from reference import chain, templates
from stage_runs import run_stages, set_options, small_params, tree

from espalier.engine import warm_start
from espalier.engine.data.dataset import make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.optimise.monitor import STOP_REASONS
from espalier.engine.runtime import threads
from espalier.engine.weights.layout import dense_layout, observation_kinds, seen_layout
from espalier.tasks import store, train
from espalier.tasks.params import Ingest, Params
from espalier.tasks.progress import Progress

CLOSE = 1e-8  # relative; sums over a hundred sequences in another order


@pytest.fixture(autouse=True)
def default_threads():
    yield
    threads.set_threads(None)


def by_name(model):
    """{(family, observation, previous, label): weight} in words."""
    family, observation, previous, label = (column.tolist() for column in model.layout.slots())
    return {
        (f, model.observations[o], model.labels[p] if p >= 0 else None, model.labels[y]): w
        for f, o, p, y, w in zip(family, observation, previous, label, model.theta.tolist(), strict=True)
    }


def words_project(root, **train_options):
    """Two labels and short words: small enough to enumerate."""
    rows = [f"{a} {'V' if a in 'ae' else 'C'}" for a in "abecda"]
    words = ["\n".join(rows[i : i + n]) for n in (1, 2, 3) for i in range(7 - n)]
    extra = ["\n".join(f"{a} C" for a in word) for word in ("aa", "ea", "bab", "dd", "cbc", "ae", "db", "bd", "ee")]
    (root / "words.conll").write_text("\n\n".join(words + extra))
    params = Params()
    params.ingest = Ingest(source="conll", path="words.conll", limit=None, dev_share=0.1, test_share=0.2)
    params.ingest.unlabelled_share = 0.2
    params.template.lines = ["*:%x[0,0]", "U:%x[0,0]/%x[1,0]", "B"]
    params.weigh.clusters = 2
    set_options(params, **({"rho1": 0.05, "rho2": 0.1, "max_iterations": 25, "tolerance": 1e-9} | train_options))
    run_stages(root, params, "ingest", "template", "weigh", "train")
    return params


def oracle(model):
    weights = chain.Weights({}, {}, {})
    family, observation, previous, label = (column.tolist() for column in model.layout.slots())
    for f, o, p, y, w in zip(family, observation, previous, label, model.theta.tolist(), strict=True):
        (weights.mu, weights.start, weights.lam)[f][(o, p, y) if f == 2 else (o, y)] = w
    return weights


# ---- what is minimised


@pytest.mark.parametrize(
    "options", [{}, {"pairs": "seen"}, {"start": False}, {"solver": "sbcd"}, {"solver": "lbfgs", "rho1": 0.0}]
)
def test_the_objective_in_the_model_is_that_of_enumeration(tmp_path, options):
    """From the token table, the weights and the model file alone: weighted log-loss plus elastic net."""
    params = words_project(tmp_path, **options)
    model = load_model(tmp_path / store.CANDIDATE)
    tokens = store.read_tokens(tmp_path, "train")[0]
    known = {text: i for i, text in enumerate(model.observations)}
    sequences, labels = [], []
    for _, part in tokens.group_by("sequence", maintain_order=True):
        rows = templates.expand([[[x] for x in part["x0"]]], model.templates)
        sequences.append([[known.get(text, -1) for text in row] for row in rows])
        labels.append([model.labels.index(label) for label in part["label"]])
    weights = store.read_weights(tmp_path)
    assert len(set(weights.tolist())) > 1  # otherwise nothing shows that they are used
    loss = chain.loss(sequences, labels, len(model.labels), oracle(model), weights.tolist())
    penalty = params.crf.rho1 * math.fsum(abs(model.theta)) + params.crf.rho2 / 2 * math.fsum(model.theta**2)
    assert model.info["objective"] == pytest.approx(loss + penalty, rel=CLOSE)
    trace = store.read_jsonl(tmp_path / store.TRACE)
    assert trace[-1]["loss"] == pytest.approx(loss, rel=CLOSE)
    assert trace[-1]["objective"] == model.info["objective"] < trace[0]["objective"]
    assert (len(model.theta) > 0) and (options.get("start", True) or not any(name[0] == 1 for name in by_name(model)))


def test_the_seed_of_the_order_decides_what_sgd_finds(tmp_path):
    found = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / folder).mkdir()
        words_project(tmp_path / folder, solver="sgd", seed=seed, max_iterations=2)
        found.append((tmp_path / folder / store.CANDIDATE).read_bytes())
    assert found[0] == found[1] != found[2]


def test_pairs_seen_gives_weights_only_to_what_was_seen(tmp_path):
    words_project(tmp_path, pairs="seen", rho1=0.0)
    model, tokens = load_model(tmp_path / store.CANDIDATE), store.read_tokens(tmp_path, "train")[0]
    seen = set()
    for _, part in tokens.group_by("sequence", maintain_order=True):
        rows, labels = templates.expand([[[x] for x in part["x0"]]], model.templates), part["label"].to_list()
        for t, row in enumerate(rows):
            for text in row:
                seen |= {(0, text, None, labels[t])} if text[0] in "U*" else set()
                if text[0] in "B*":
                    seen.add((2, text, labels[t - 1], labels[t]) if t else (1, text, None, labels[t]))
    assert model.info["features"] == len(seen)
    assert set(by_name(model)) <= seen


def test_the_trace_has_a_line_for_each_iteration_and_times_are_elsewhere(project):
    trace = store.read_jsonl(project / store.TRACE)
    assert [row["iteration"] for row in trace] == list(range(16))
    assert set(trace[3]) == {"iteration", "objective", "loss", "gradient_norm", "gap", "active_unigram",
                             "active_start", "active_bigram", "evaluations", "dev_token_error"}  # fmt: skip
    assert all(b["objective"] <= a["objective"] for a, b in zip(trace, trace[1:], strict=False))
    timing = store.read_jsonl(project / store.TIMING)
    assert [row["iteration"] for row in timing] == list(range(16))
    assert all(a["seconds"] <= b["seconds"] for a, b in zip(timing, timing[1:], strict=False))


def test_development_error_is_that_of_the_weights_of_the_moment(project):
    """The last line of the trace against the model file, through tagging."""
    from espalier.tasks.answering.tagging import tag

    dev = store.read_tokens(project, "dev")[0]
    guess = tag(load_model(project / store.CANDIDATE), dev)
    wrong = sum(a != b for a, b in zip(dev["label"], guess, strict=True))
    assert store.read_jsonl(project / store.TRACE)[-1]["dev_token_error"] == pytest.approx(wrong / len(dev))


def test_without_development_data_there_is_no_development_error(project):
    params = small_params()
    params.ingest.dev_share = 0.0
    run_stages(project, params, "ingest", "template", "weigh", "train")
    assert {row["dev_token_error"] for row in store.read_jsonl(project / store.TRACE)} == {None}


def test_the_model_says_what_it_is(project):
    info = load_model(project / store.CANDIDATE).info
    manifest = store.read_manifest(project)
    assert info["penalty"] == {"rho1": 0.5, "rho2": 0.001} and info["solver"] == "owlqn"
    assert info["data_version"] == manifest["data_version"] and info["kinds"] == ["*", "U", "B"]
    assert info["features"] == 318 and info["train_sequences"] == 180 and info["train_tokens"] == 900
    assert info["nouns"]["label"] == "state" and info["stop_reason"] in ("max_iterations", "converged")


# ---- the same bytes


def test_two_runs_leave_the_same_bytes(project):
    before = tree(project)
    run_stages(project, small_params(), "train")
    after = tree(project)
    assert {name for name in after if after[name] != before[name]} <= {store.TIMING}


@pytest.mark.parametrize("change", ["one thread", "three threads", "shards"])
def test_threads_and_shards_leave_the_same_bytes(project, change):
    before, params = tree(project), small_params()
    if change == "shards":
        params.template.shard_tokens = 50
        run_stages(project, params, "template")
        assert len(store.read_manifest(project)["splits"]["train"]["shards"]) == 18
    else:
        params.compute.threads = {"one": 1, "three": 3}[change.split()[0]]
    run_stages(project, params, "train")
    assert (project / store.CANDIDATE).read_bytes() == before[store.CANDIDATE]
    assert (project / store.TRACE).read_bytes() == before[store.TRACE]


# ---- warm start


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_a_warm_start_from_its_own_model_begins_where_it_ended(project, pairs):
    params = small_params()
    params.crf.pairs = pairs
    run_stages(project, params, "train")
    (project / store.CANDIDATE).rename(project / "pinned.model")
    end = load_model(project / "pinned.model").info["objective"]
    params.train.initial = "pinned.model"
    run_stages(project, params, "train")
    trace = store.read_jsonl(project / store.TRACE)
    assert trace[0]["objective"] == pytest.approx(end, rel=CLOSE)
    assert trace[-1]["objective"] <= trace[0]["objective"]


def test_a_warm_start_from_nothing_is_a_cold_start(project):
    cold, params = tree(project), small_params()
    params.crf.rho1 = 1e6
    run_stages(project, params, "train")
    assert len(load_model(project / store.CANDIDATE).theta) == 0
    (project / store.CANDIDATE).rename(project / "empty.model")
    params = small_params()
    params.train.initial = "empty.model"
    run_stages(project, params, "train")
    assert (project / store.CANDIDATE).read_bytes() == cold[store.CANDIDATE]
    assert (project / store.TRACE).read_bytes() == cold[store.TRACE]


OLD_OBSERVATIONS, OLD_LABELS = ["*:a", "U:b", "*:gone"], ["X", "Y", "Z"]
NEW_OBSERVATIONS, NEW_LABELS = ["U:new", "U:b", "*:new", "*:a"], ["W", "Z", "X"]


def old_model(path):
    """Every weight its own number, so that a mix-up shows."""
    layout = dense_layout(3, observation_kinds(OLD_OBSERVATIONS))
    model = CrfLabeller.compact(
        layout, np.arange(1.0, layout.size + 1), OLD_OBSERVATIONS, OLD_LABELS, ["U:%x[0,0]"], {}
    )
    model.save(path)
    return model


def new_layout(pairs):
    kinds = observation_kinds(NEW_OBSERVATIONS)
    if pairs == "all":
        return dense_layout(3, kinds)
    observations = np.array([[3], [1], [3], [3], [2], [3], [0]])
    labels, offsets = np.array([2, 1, 2, 1, 0, 2, 0]), np.array([0, 2, 4, 6, 7])
    return seen_layout(make_dataset(observations, labels, offsets), 3, kinds)


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_every_known_weight_is_taken_over_and_every_other_is_zero(tmp_path, pairs):
    model = old_model(tmp_path / "old.model")
    old, layout = by_name(model), new_layout(pairs)
    theta = warm_start.starting_point(model, layout, NEW_OBSERVATIONS, NEW_LABELS)
    names = [
        (f, NEW_OBSERVATIONS[o], NEW_LABELS[p] if p >= 0 else None, NEW_LABELS[y])
        for f, o, p, y in zip(*(column.tolist() for column in layout.slots()), strict=True)
    ]
    assert theta.tolist() == [old.get(name, 0.0) for name in names]
    taken = [name for name in names if name in old]
    assert {name[0] for name in taken} == {0, 1, 2}  # of each family something is shared
    assert any(name not in old for name in names)


def test_a_model_of_another_task_starts_at_zero(tmp_path):
    old = old_model(tmp_path / "old.model")
    layout = dense_layout(2, observation_kinds(["U:q"]))
    assert warm_start.starting_point(old, layout, ["U:q"], ["P", "Q"]).tolist() == [0.0, 0.0]


# ---- refusals


def refuse(project, expected, params=None):
    before = tree(project)
    with pytest.raises(EspalierError, match=expected):
        run_stages(project, params or small_params(), "train")
    assert tree(project) == before


@pytest.mark.parametrize("path", [store.MANIFEST, store.VOCABULARY, store.WEIGHTS, "data/features/train/00000.arrow",
                                  "data/features/dev/00000.arrow"])  # fmt: skip
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_damaged_or_missing_input_changes_nothing(project, path, how):
    whole = (project / path).read_bytes()
    (project / path).unlink()
    if how == "cut":
        (project / path).write_bytes(whole[:-30])
    stage = "weigh" if path == store.WEIGHTS else "template"
    text = "damaged .* again" if how == "cut" else "there is no such file; .* first"
    refuse(project, f"{path}: {text}".replace(".*", f".*`espalier stage {stage}`"))


def test_weights_of_other_data_are_refused(project):
    table, _ = store.read_arrow(project / store.WEIGHTS)
    store.write_arrow(project / store.WEIGHTS, table.slice(0, 50))
    refuse(project, "weights/train.arrow: 50 weights for 180 sequences; run `espalier stage weigh` again")


def test_a_vocabulary_of_another_run_is_refused(project):
    """Of the same length, so that only its hash can tell."""
    vocabulary = store.read_vocabulary(project)
    store.write_arrow(project / store.VOCABULARY, vocabulary.reverse())
    refuse(project, "vocabulary.arrow: damaged .*does not belong to the manifest.*espalier stage template")


def test_a_damaged_initial_model_is_refused(project):
    params = small_params()
    params.train.initial = "pinned.model"
    refuse(project, "pinned.model: there is no such model", params)
    (project / "pinned.model").write_bytes((project / store.CANDIDATE).read_bytes()[:-20])
    refuse(project, "pinned.model: not a readable model file .*train it again or restore it", params)


def test_a_solver_that_cannot_take_the_penalty_is_refused(project):
    params = small_params()
    params.crf.solver = "lbfgs"
    fitting = "owlqn, pqn, hybrid, sbcd, cd, sgd"
    refuse(project, f"lbfgs cannot take rho1 = 0.5: set rho1 to 0 or choose one of {fitting}", params)


def test_progress_hears_every_iteration(project):
    heard = []

    class Listener(Progress):
        def begin(self, total, unit):
            heard.append(("begin", total, unit))

        def step(self, n=1, note=""):
            heard.append(("step", n, note))

        def end(self, note=""):
            heard.append(("end", note))

    train.main(project, small_params(), Listener())
    assert heard[0] == ("begin", 15, "iteration") and len(heard) == 17
    assert all(step[0] == "step" and "objective" in step[2] and "dev error" in step[2] for step in heard[1:-1])
    assert "active weights of 318" in heard[-1][1]


# ---- patience


class Listening(Progress):
    """Remembers the end of a stage; interrupts it after some iterations where asked to."""

    def __init__(self, after=None):
        self.after, self.steps, self.last = after, 0, ""

    def step(self, n=1, note=""):
        self.steps += 1
        if self.steps == self.after:
            raise KeyboardInterrupt

    def end(self, note=""):
        self.last = note


def patient(patience=3, **others):
    params = small_params()
    params.crf.rho1, params.crf.rho2, params.train.tolerance = 0.0, 1e-6, 0.0  # free to learn noise by heart
    params.train.max_iterations, params.train.patience, params.train.checkpoint_seconds = 200, patience, 0
    return set_options(params, **others)


def test_patience_keeps_the_best_model_on_the_development_data(project):
    heard = Listening()
    figures = train.main(project, patient(), heard)
    trace, model = store.read_jsonl(project / store.TRACE), load_model(project / store.CANDIDATE)
    losses = [row["dev_loss"] for row in trace]
    best = losses.index(min(losses))
    assert figures["stop_reason"] == "patience" and len(trace) == best + 4 and model.info["best_iteration"] == best
    assert figures["objective"] == model.info["objective"] == trace[best]["objective"]
    assert heard.last.endswith(f"no better on the development data, stopped after {best + 3} iterations")
    assert "the best model on them was kept" in STOP_REASONS["patience"]
    from espalier.tasks.answering.tagging import tag

    dev = store.read_tokens(project, "dev")[0]
    wrong = sum(a != b for a, b in zip(dev["label"], tag(model, dev), strict=True))
    assert min(losses) == pytest.approx(wrong / len(dev))


def test_patience_survives_an_interruption(project):
    train.main(project, patient(), Listening())
    expected = [(project / path).read_bytes() for path in (store.CANDIDATE, store.TRACE)]
    steps = len(store.read_jsonl(project / store.TRACE)) - 2
    with pytest.raises(KeyboardInterrupt):
        train.main(project, patient(), Listening(after=steps))
    train.main(project, patient(), Listening())
    assert [(project / path).read_bytes() for path in (store.CANDIDATE, store.TRACE)] == expected


def test_without_patience_nothing_is_kept_back(project):
    train.main(project, patient(None, max_iterations=5), Listening())
    trace, model = store.read_jsonl(project / store.TRACE), load_model(project / store.CANDIDATE)
    assert "dev_loss" not in trace[-1] and "best_iteration" not in model.info
    assert model.info["objective"] == trace[-1]["objective"] and model.info["stop_reason"] == "max_iterations"


def test_patience_without_development_figures_is_refused(project):
    with pytest.raises(EspalierError, match="train.patience judges iterations by the development data"):
        train.main(project, patient(dev_every=None), Listening())


# ---- where training ends


@pytest.mark.parametrize("rho1", [0.5, 0.0])
def test_cold_and_warm_the_defaults_end_within_a_thousandth_of_the_optimum(project, rho1):
    params = small_params()
    ours, defaults = params.train, Params().train
    params.crf.rho1, params.crf.rho2, ours.dev_every = rho1, 0.01, None
    params.crf.solver, ours.max_iterations, ours.tolerance = Params().crf.solver, 5000, 1e-9
    optimum = train.main(project, params, Listening())["objective"]
    ours.max_iterations, ours.tolerance = defaults.max_iterations, defaults.tolerance
    params.crf.rho1 = 2 * rho1 + 1  # another model to start from
    train.main(project, params, Listening())
    (project / "other.model").write_bytes((project / store.CANDIDATE).read_bytes())
    for params.crf.rho1, ours.initial in ((rho1, None), (rho1, "other.model")):
        found = train.main(project, params, Listening())
        assert found["stop_reason"] in ("converged", "optimal") and found["iterations"] > 0
        assert optimum * (1 - 1e-8) <= found["objective"] <= optimum * 1.001


@pytest.mark.parametrize("solver, compiles", [("auto", 1), ("owlqn", 0)])
def test_a_training_compiles_ahead_what_a_first_fit_needs(tmp_path, monkeypatch, solver, compiles):
    asked = []
    monkeypatch.setattr(train.warm_up, "before_first_fit", lambda: asked.append(solver))
    params = small_params()
    params.crf.solver = solver
    run_stages(tmp_path, params, "ingest", "template", "weigh", "train")
    assert len(asked) == compiles

"""Training of hidden Markov models in a project: every way of it, with the pool, restarts, and what is refused."""

import pytest
from stage_runs import run_stages, small_params

from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.families.hmm_options import NEEDS_LABELS, TRAININGS
from espalier.tasks import store, train
from espalier.tasks.progress import Progress
from espalier.tasks.training.plan import main as plan

DATA = ("ingest", "template", "weigh")


def hmm_params(**options):
    params = small_params()
    params.model.family, params.train.max_iterations = "hmm", 8
    params.ingest.unlabelled_share = 0.4
    for name, value in options.items():
        setattr(params.hmm if hasattr(params.hmm, name) else params.train, name, value)
    return params


class Heard(Progress):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    root = tmp_path_factory.mktemp("hmm")
    run_stages(root, hmm_params(), *DATA)
    return root


@pytest.mark.parametrize("training", TRAININGS)
def test_every_training_makes_a_model_and_a_trace(features, training):
    progress, params = Heard(), hmm_params(training=training)
    figures = train.main(features, params, progress)
    model, trace = load(features / store.CANDIDATE), store.read_trace(features)
    assert model.info["training"] == training and model.info["objective"] == pytest.approx(trace[-1]["objective"])
    assert figures["iterations"] == trace[-1]["iteration"] and trace[-1]["dev_token_error"] < 0.5
    assert "gradient_norm" not in trace[0]
    pool = [text for text in progress.said if "learning from the unlabelled pool" in text]
    assert bool(pool) == (training not in NEEDS_LABELS)
    assert plan(features, params)["bytes"]["all"] > 0


def test_the_pool_changes_the_model_unless_it_counts_nothing(features):
    seen = {}
    for weight in (0.0, 0.1, 1.0):
        train.main(features, hmm_params(training="baum-welch", pool_weight=weight), Progress())
        seen[weight] = load(features / store.CANDIDATE).theta.tobytes()
    assert len(set(seen.values())) == 3


def test_the_best_of_several_starts_is_kept(features):
    objectives = []
    for restarts in (1, 3):
        train.main(features, hmm_params(training="baum-welch", restarts=restarts), Progress())
        objectives.append(load(features / store.CANDIDATE).info["objective"])
        assert len(store.read_trace(features)) == len((features / store.TIMING).read_text().splitlines())
    assert objectives[1] <= objectives[0]


def test_patience_keeps_the_best_on_development_data(features):
    params = hmm_params(training="viterbi", patience=2, max_iterations=30)
    train.main(features, params, Progress())
    model, trace = load(features / store.CANDIDATE), store.read_trace(features)
    best = min(trace, key=lambda record: record["dev_loss"])
    assert model.info["best_iteration"] == best["iteration"] and model.info["objective"] == best["objective"]
    with pytest.raises(EspalierError, match="hmm.restarts is 2 and train.patience 2: each would choose a model"):
        train.main(features, hmm_params(training="viterbi", patience=2, restarts=2), Progress())


def test_a_model_goes_on_with_the_data_at_hand(features):
    train.main(features, hmm_params(), Progress())
    (features / store.CANDIDATE).replace(features / "earlier.model")
    earlier = load(features / "earlier.model")
    progress, options = Heard(), {"training": "stepwise", "initial": "earlier.model", "max_iterations": 1}
    figures = train.main(features, hmm_params(**options, pool_weight=0.0), progress)
    model = load(features / store.CANDIDATE)
    assert figures["warm"] and any("going on from a model of" in text for text in progress.said)
    assert model.info["hmm"]["weight"] == pytest.approx(2 * earlier.info["hmm"]["weight"])
    assert model.info["hmm"]["updates"] > 0 and model.info["iterations"] == 1


def test_labels_with_gaps_name_the_training_that_takes_them(tmp_path):
    (tmp_path / "words.conll").write_text("a V\nb _\n\nb C\na V\n\n" * 20)
    (tmp_path / "test.conll").write_text("a V\nb C\n")
    params = hmm_params()
    params.ingest.source, params.ingest.path, params.ingest.unknown = "conll", "words.conll", "_"
    params.ingest.test_path, params.ingest.dev_share, params.ingest.unlabelled_share = "test.conll", 0.0, None
    run_stages(tmp_path, params, *DATA)
    with pytest.raises(EspalierError, match="not known: set hmm.training to baum-welch .it is counts."):
        train.main(tmp_path, params, Progress())

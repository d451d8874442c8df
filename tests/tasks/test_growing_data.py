"""Data that grow: parts that stay, news that are told, and a warm start that ends where a cold one does."""

import shutil

import numpy as np
import pytest
from growing_data import growing_params, text_of, words, write_data
from stage_runs import run_stages, tree

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.tasks import store
from espalier.tasks.answering.tagging import tag
from espalier.tasks.ingest import main as ingest
from espalier.tasks.judging import news
from espalier.tasks.progress import Progress

NEAR = 1e-4  # objectives of two runs that stop at a tolerance of 1e-7 over five iterations
STAGES = ("ingest", "template", "weigh", "train")


class Heard(Progress):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def sequences(root, split):
    """The inputs of a part, each as a tuple of letters."""
    tokens = store.read_tokens(root, split)[0]
    return [tuple(x) for x in tokens.group_by("sequence", maintain_order=True).agg("x0")["x0"].to_list()]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A project whose champion was trained on the old words, and that remembers what it was trained on."""
    root = tmp_path_factory.mktemp("growing")
    write_data(root)
    run_stages(root, growing_params(), *STAGES)
    shutil.copy(root / store.CANDIDATE, root / store.CHAMPION)
    assert news.remember(root)
    return root


@pytest.fixture
def root(before, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(before, root)
    return root


def with_more(**train):
    params = growing_params(**train)
    params.ingest.more = ["raw/new.conll"]
    return params


# ---- the parts


def test_added_files_come_behind_and_every_sequence_stays_in_its_part(root):
    old = {split: sequences(root, split) for split in store.SPLITS[:3]}
    counts = ingest(root, with_more(), Progress())
    for split, inputs in old.items():
        now = sequences(root, split)
        assert now[: len(inputs)] == inputs and len(now) > len(inputs)
        assert counts[split] == len(now)
    assert sum(counts[split] for split in old) == 300 + 120


def test_the_order_of_files_and_one_file_of_all_make_the_same_parts(root, tmp_path):
    ingest(root, with_more(), Progress())
    found = {split: sequences(root, split) for split in store.SPLITS[:3]}
    whole = "".join((root / "raw" / name).read_text() + "\n" for name in ("new.conll", "old.conll"))
    (root / "raw" / "whole.conll").write_text(whole)
    params = growing_params()
    params.ingest.path = "raw/whole.conll"
    ingest(root, params, Progress())
    assert {split: sorted(sequences(root, split)) for split in found} == {k: sorted(v) for k, v in found.items()}


def test_a_limit_holds_for_the_first_files_alone_so_that_nothing_is_driven_out(root):
    params = growing_params()
    params.ingest.limit = 200
    ingest(root, params, Progress())
    old = {split: sequences(root, split) for split in store.SPLITS[:3]}
    assert sum(map(len, old.values())) == 200
    params.ingest.more = ["raw/new.conll"]
    ingest(root, params, Progress())
    assert all(set(inputs) <= set(sequences(root, split)) for split, inputs in old.items())
    assert sum(len(sequences(root, split)) for split in old) == 320


def test_patterns_and_several_files(root):
    for i, part in enumerate(("pq", "qr", "rs")):
        (root / "raw" / f"late-{i}.conll").write_text(text_of(words(10, part, i)))
    params = growing_params()
    params.ingest.more = ["raw/late-0.conll", "raw/late-[12].conll"]
    counts = ingest(root, params, Progress())
    assert sum(counts[split] for split in store.SPLITS) == 330


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["raw/none.conll"], "raw/none.conll: there is no such file"),
        (["raw/new.conll", "raw/n*.conll"], "new.conll: ingest.path or ingest.more names this file twice; name it"),
        (["raw/old.conll"], "old.conll: ingest.path or ingest.more names this file twice"),
        (["raw/wide.conll"], "wide.conll has 2 input columns, the training file 1: expected the same"),
    ],
)
def test_what_cannot_be_added_is_refused_and_earlier_parts_stay(root, more, expected):
    (root / "raw" / "wide.conll").write_text("a b C\n")
    before, params = tree(root), growing_params()
    params.ingest.more = more
    with pytest.raises(EspalierError, match=expected):
        ingest(root, params, Progress())
    assert tree(root) == before


def test_other_sources_cannot_be_added_to(root):
    params = with_more()
    params.ingest.source = "simulated"
    with pytest.raises(EspalierError, match="ingest.more names files and ingest.source is simulated.*source: files"):
        ingest(root, params, Progress())


# ---- the news


def test_what_is_new_is_counted_and_named(root):
    old_words, old_names = set(words(300, "abcdefgiou", 0)), set(store.read_vocabulary(root)["observation"])
    run_stages(root, with_more(), "ingest", "template")
    found, names = news.compare(root), set(store.read_vocabulary(root)["observation"])
    assert found["new_labels"] == ["X"] and found["lost_labels"] == []
    assert found["new_observations"] == len(names - old_names) > 0 and found["lost_observations"] == 0
    assert found["new_sequences"] == len(set(words(120, "abcdeixyz", 1)) - old_words)
    assert found["lost_sequences"] == found["relabelled_sequences"] == 0
    assert news.read(root) == found
    assert news.text(found) == (
        f"since the champion: 1 new label, {found['new_observations']:,} new observations, "
        f"{found['new_sequences']} new sequences (X)"
    )


def test_replaced_data_lose_sequences_and_labels_and_relabel_others(root):
    kept = words(300, "abcdefgiou", 0)[:250]
    text = text_of(kept[:240]) + "\n" + text_of(kept[240:], lambda labels: ["C"] * len(labels))
    (root / "raw" / "old.conll").write_text(text.replace(" W", " V"))
    changed = [word for word in kept if "W" in text_of([word])]
    run_stages(root, growing_params(), "ingest", "template")
    found = news.compare(root)
    assert found["lost_labels"] == ["W"] and found["new_sequences"] == 0 and found["lost_sequences"] == 50
    assert len(changed) <= found["relabelled_sequences"] <= len(changed) + 10
    assert found["new_observations"] == 0


def test_the_same_data_are_no_news(root):
    run_stages(root, growing_params(), "ingest", "template")
    found = news.compare(root)
    assert news.figures(found) == {} and news.text(found) == "since the champion: no news"


def test_without_a_champion_or_its_data_less_is_said(root):
    run_stages(root, with_more(), "ingest", "template")
    shutil.rmtree(root / news.KNOWN)
    assert not news.remember(root), "the data on disk are not those of the champion any more"
    found = news.compare(root)
    assert found["new_labels"] == ["X"] and found["new_sequences"] is None
    assert news.text(found).endswith("(X); the data of the champion are not at hand to compare more")
    (root / store.CHAMPION).unlink()
    assert news.compare(root) is None and news.read(root) is None and not news.remember(root)
    assert news.figures(None) == {} and "no champion" in news.text(None)


def test_a_memory_is_of_one_champion(root):
    """A new champion, trained on the new data, is remembered instead of the old one."""
    run_stages(root, with_more(), *STAGES)
    assert news.remember(root) and news.compare(root)["new_sequences"] > 0
    shutil.copy(root / store.CANDIDATE, root / store.CHAMPION)
    assert news.remember(root)
    assert news.figures(news.compare(root)) == {}


# ---- the warm start


def iterations_to(objective, trace):
    """How many it took to come so low; the last digits take as long from anywhere."""
    return next(row["iteration"] for row in trace if row["objective"] <= objective)


@pytest.mark.parametrize("solver", [pytest.param("owlqn", marks=pytest.mark.long), "pqn", "sbcd"])
def test_a_warm_start_with_new_labels_and_features_ends_where_a_cold_one_does_and_sooner(root, solver):
    options = {"solver": solver, "max_iterations": 5000}  # enough to end by the tolerance, which is what is compared
    cold = run_stages(root, with_more(**options), *STAGES)["train"]
    model, way = load_model(root / store.CANDIDATE), store.read_jsonl(root / store.TRACE)
    shutil.copy(root / store.CHAMPION, root / store.START)
    warm = run_stages(root, with_more(initial="champion", **options), "train")["train"]
    other, test = load_model(root / store.CANDIDATE), store.read_tokens(root, "test")[0]
    assert cold["warm"] is False and warm["warm"] is True
    assert warm["objective"] == pytest.approx(cold["objective"], rel=NEAR)
    assert list(tag(other, test)) == list(tag(model, test)) and "X" in other.labels
    trace = store.read_jsonl(root / store.TRACE)
    assert iterations_to(1.001 * cold["objective"], trace) < iterations_to(1.001 * cold["objective"], way)
    assert trace[0]["objective"] > warm["objective"] * 1.01, "it is the new data that it learns from"


def test_without_a_champion_yet_it_starts_from_zero_and_says_so(root):
    from espalier.tasks import train

    heard, params = Heard(), growing_params(initial="champion", max_iterations=5)
    train.main(root, params, heard)
    assert heard.said == ["there is no champion to start from yet: training starts from zero"]
    warm = (root / store.CANDIDATE).read_bytes()
    train.main(root, growing_params(max_iterations=5), Progress())
    assert (root / store.CANDIDATE).read_bytes() == warm


# ---- development error along the way


def test_development_errors_now_and_then_and_on_some_change_nothing_but_the_trace(root):
    found = {}
    for name, options in {"all": {}, "few": {"dev_every": 3, "dev_sequences": 7}, "none": {"dev_every": None}}.items():
        run_stages(root, growing_params(max_iterations=7, **options), "train")
        found[name] = (root / store.CANDIDATE).read_bytes(), store.read_jsonl(root / store.TRACE)
    assert found["all"][0] == found["few"][0] == found["none"][0]
    errors = {name: [row["dev_token_error"] for row in trace] for name, (_, trace) in found.items()}
    assert [e is not None for e in errors["few"]] == [i % 3 == 0 for i in range(len(errors["few"]))]
    assert set(errors["none"]) == {None} and None not in errors["all"]
    dev = sequences(root, "dev")
    some = sum(len(dev[i * len(dev) // 7]) for i in range(7))
    wrong = np.array([e for e in errors["few"] if e is not None]) * some
    assert wrong == pytest.approx(np.round(wrong)) and errors["few"][3] != errors["all"][3]

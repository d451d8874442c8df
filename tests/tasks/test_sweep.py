"""The path of rho1: points that training alone would find, figures as measured elsewhere, a choice that is the best."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from stage_runs import run_stages, small_params, tree

from engine import decode
from engine.errors import EspalierError
from engine.measures import conlleval, token_error
from engine.model import Model
from tasks import path_page, rho1_path, store, sweep
from tasks.progress import Progress
from tasks.tagging import renumber

NEAR = 0.01  # two runs that stop at a tolerance differ in the objective by about that share at most


class Heard(Progress):
    def __init__(self):
        self.total, self.notes, self.last = None, [], None

    def begin(self, total, unit):
        self.total = total

    def step(self, n=1, note=""):
        self.notes.append(note)

    def end(self, note=""):
        self.last = note


@pytest.fixture(scope="module")
def swept(finished_project, tmp_path_factory):
    """A project after a sweep of five points, its figures and what was heard."""
    import shutil

    root = tmp_path_factory.mktemp("swept") / "project"
    shutil.copytree(finished_project, root)
    params, heard = small_params(), Heard()
    params.train.max_iterations = 60
    return root, params, sweep.main(root, params, heard, points=5, largest=8.0, smallest=0.1), heard


def test_the_points_go_down_and_are_told_one_by_one(swept):
    _, _, figures, heard = swept
    values = [p["rho1"] for p in figures["points"]]
    assert values == pytest.approx(np.geomspace(8.0, 0.1, 5)) and heard.total == 5 and len(heard.notes) == 5
    assert re.match(r"rho1 8: \d+ active, dev error \d", heard.notes[0]) and heard.last.startswith("chosen rho1 ")
    active = [p["active"] for p in figures["points"]]
    assert active == sorted(active) and active[0] < active[-1]
    assert all(p["active"] == sum(p[name] for name in rho1_path.ACTIVE) for p in figures["points"])
    losses = [p["train_log_loss"] for p in figures["points"]]
    assert losses == sorted(losses, reverse=True)  # less of a penalty, a better fit


@pytest.mark.parametrize("which", [1, 4])
def test_a_point_is_what_training_alone_finds(swept, tmp_path, which):
    """The stages train and evaluate, with the rho1 of the point: the same objective, and the same errors of a model."""
    import shutil

    root, params, figures, _ = swept
    point, other = figures["points"][which], tmp_path / "other"
    shutil.copytree(root, other)
    params = small_params()
    params.train.max_iterations, params.train.tolerance, params.train.rho1 = 300, 1e-7, point["rho1"]
    alone = run_stages(other, params, "train")["train"]
    assert point["objective"] == pytest.approx(alone["objective"], rel=NEAR)
    assert point["objective"] >= alone["objective"] * (1 - 1e-6)
    model, manifest = Model.load(other / store.CANDIDATE), store.read_manifest(other)
    names = store.read_vocabulary(other)["observation"].to_list()
    dev = renumber(store.read_dataset(other, "dev", manifest), model, names, manifest["labels"])
    error = token_error(dev.labels, decode.viterbi(dev, model.layout, model.theta))
    assert point["dev_token_error"] == pytest.approx(error, abs=0.05)
    weights = store.read_weights(other)
    train = renumber(store.read_dataset(other, "train", manifest, weights), model, names, manifest["labels"])
    log_p = decode.sequence_log_probability(train, model.layout, model.theta)
    loss = -(weights * log_p).sum() / (weights * np.diff(train.offsets)).sum()
    assert point["train_log_loss"] == pytest.approx(loss, rel=0.05)
    loss = -decode.sequence_log_probability(dev, model.layout, model.theta).sum() / len(dev.labels)
    assert point["dev_log_loss"] == pytest.approx(loss, rel=0.1)


def test_what_is_written(swept):
    root, _, figures, _ = swept
    assert store.read_json(root / sweep.SWEEP) == json.loads(json.dumps(figures))
    page = (root / path_page.PAGE).read_text(encoding="utf-8")
    assert page == path_page.as_page(figures) and "Size against quality" in page and page.count("<svg") >= 4
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    text = path_page.as_text(figures, root).split("\n")
    assert len(text) == 1 + 5 + 2 and [line.startswith("→") for line in text[1:6]].count(True) == 1
    assert f"train.rho1={figures['chosen']:.4g}" in text[-2] and text[-1].endswith("sweep.html")


def test_only_the_reports_change(swept, finished_project):
    before, after = tree(finished_project), tree(swept[0])
    assert {path for path in after if after[path] != before.get(path)} == {sweep.SWEEP, path_page.PAGE}


def test_the_same_again_is_the_same_path(swept):
    root, params, _, _ = swept
    points = sweep.follow(root, params, Progress())[1]
    assert points == sweep.follow(root, params, Progress(), len(points))[1]
    assert params.train.rho1 == 0.5


# ---- the choice


def points_of(*rows):
    return [{"rho1": r, "active": a, "loss": loss, "standard_error": 0.01} for r, a, loss in rows]


def test_the_choice_is_the_least_loss_and_of_equals_the_smallest():
    points = points_of((8, 10, 0.3), (4, 20, 0.2), (2, 40, 0.2), (1, 80, 0.25))
    assert sweep.choose(points)["rho1"] == 4
    assert sweep.choose(points_of((2, 20, 0.2), (4, 20, 0.2)))["rho1"] == 4


def test_within_one_standard_error_the_smallest():
    points = points_of((8, 10, 0.3), (4, 20, 0.209), (2, 40, 0.2), (1, 80, 0.25))
    assert sweep.choose(points)["rho1"] == 2 and sweep.choose(points, sparser=True)["rho1"] == 4
    assert sweep.choose(points_of((4, 20, 0.2101), (2, 40, 0.2)), sparser=True)["rho1"] == 2
    with pytest.raises(EspalierError, match="no point to choose from"):
        sweep.choose([])


def test_the_standard_error_of_a_ratio_against_resampling():
    random = np.random.default_rng(0)
    lengths = random.integers(1, 30, 400).astype(float)
    wrong = random.binomial(lengths.astype(int), random.beta(1, 6, 400)).astype(float)
    value, spread = rho1_path.ratio(wrong, lengths)
    draws = random.integers(0, 400, (2000, 400))
    resampled = wrong[draws].sum(axis=1) / lengths[draws].sum(axis=1)
    assert value == pytest.approx(wrong.sum() / lengths.sum()) and spread == pytest.approx(resampled.std(), rel=0.08)
    assert rho1_path.ratio(np.array([1.0]), np.array([2.0])) == (0.5, 0.0)
    assert rho1_path.ratio(np.zeros(2), np.zeros(2)) == (0.0, 0.0)


def test_f1_is_the_ratio_of_what_is_counted_in_each_sequence():
    gold = ["B-N", "I-N", "O", "B-V", "O", "B-N"]
    said = ["B-N", "O", "O", "B-V", "B-N", "B-N"]
    offsets = np.array([0, 3, 4, 6])
    over, under = rho1_path.chunk_counts(gold, said, offsets)
    assert over.tolist() == [0, 2, 2] and under.tolist() == [2, 2, 3]
    assert rho1_path.ratio(over, under)[0] == pytest.approx(conlleval(gold, said, offsets)[0]["f1"])


def test_chunks_are_chosen_by_f1(tmp_path):
    random = np.random.default_rng(1)
    words = {"B-N": "ab", "I-N": "bc", "O": "de"}
    lines = []
    for _ in range(150):
        labels = random.choice([["B-N", "I-N", "O"], ["O", "B-N"], ["B-N", "O", "O"]][random.integers(3)], 3)
        for label in labels:
            lines.append(f"{random.choice(list(words[label]))}{random.integers(40)} {words[label][0]} {label}")
        lines.append("")
    (tmp_path / "raw.conll").write_text("\n".join(lines))
    params = small_params()
    params.ingest.source, params.ingest.path, params.ingest.limit = "conll", "raw.conll", None
    params.template.lines = ["U:%x[0,0]", "U1:%x[0,1]", "B"]
    params.train.pairs = "seen"
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params.as_dict()))
    run_stages(tmp_path, params, "ingest", "template", "weigh")
    figures = sweep.main(tmp_path, params, Progress(), points=3)
    assert figures["measure"] == "f1"
    assert all(p["loss"] == pytest.approx(1 - p["dev_f1"]) for p in figures["points"])
    assert "F1 of chunks" in (tmp_path / path_page.PAGE).read_text()
    assert "dev F1" in path_page.as_text(figures, tmp_path)


# ---- what cannot be


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"points": 0}, "a sweep of 0 points: expected at least 1"),
        ({"largest": -1.0}, "--from is -1.0: expected a number above 0"),
        ({"smallest": float("nan")}, "--to is nan: expected a number above 0"),
        ({"largest": 1.0, "smallest": 2.0}, "--to is 2.0 and --from 1.0: expected the path to go down"),
        ({"smallest": 1e9}, "a path from rho1 = .* to 1e[+]09: expected it to go down"),
    ],
)
def test_a_path_that_cannot_be_is_refused_and_nothing_is_written(project, options, expected):
    before = tree(project)
    with pytest.raises(EspalierError, match=expected):
        sweep.main(project, small_params(), Progress(), **options)
    assert tree(project) == before


def test_a_solver_without_an_l1_term_is_refused(project):
    params = small_params()
    params.train.solver = "lbfgs"
    with pytest.raises(EspalierError, match="lbfgs cannot follow a path of rho1: choose one of owlqn"):
        sweep.main(project, params, Progress(), points=2)


def test_a_path_without_any_active_weight_still_has_a_page(project):
    figures = sweep.main(project, small_params(), Progress(), points=1, largest=1e6)
    assert [p["active"] for p in figures["points"]] == [0]
    assert "No model of this path has an active weight" in (project / path_page.PAGE).read_text(encoding="utf-8")


# ---- train.rho1: auto


@pytest.fixture(scope="module")
def chosen(finished_project, tmp_path_factory):
    """A project trained with `train.rho1: auto`, the figures of the stage and what was heard."""
    import shutil

    root = tmp_path_factory.mktemp("chosen") / "project"
    shutil.copytree(finished_project, root)
    params, heard = small_params(), Heard()
    params.train.max_iterations, params.train.rho1 = 60, "auto"
    from tasks import train

    return root, params, train.main(root, params, heard), heard


def test_a_training_chooses_the_rho1_that_a_sweep_chooses(chosen):
    root, params, figures, heard = chosen
    points = sweep.follow(root, params, Progress())[1]
    rho1 = rho1_path.choose(points)["rho1"]
    path, model = store.read_json(root / store.RHO1_PATH), Model.load(root / store.CANDIDATE)
    assert figures["rho1"] == rho1 == path["chosen"] == model.info["penalty"]["rho1"]
    assert model.info["rho1_chosen"] is True
    kept = ("rho1", "active", "objective", "dev_token_error", "dev_log_loss", "loss", "iterations")
    assert [[p[name] for name in kept] for p in path["points"]] == [[p[name] for name in kept] for p in points]
    assert heard.notes[0].startswith("path 1 of 10: rho1 10: ")


def test_it_goes_on_from_the_chosen_point_and_ends_no_higher_than_training_alone(chosen, tmp_path):
    import shutil

    root, _, figures, _ = chosen
    path, trace = store.read_json(root / store.RHO1_PATH), store.read_jsonl(root / store.TRACE)
    point = path_page.chosen_point(path)
    assert trace[0]["objective"] == pytest.approx(point["objective"], rel=1e-12) and figures["iterations"] < 10
    params, other = small_params(), tmp_path / "other"
    shutil.copytree(root, other)
    params.train.max_iterations, params.train.tolerance, params.train.rho1 = 300, 1e-7, figures["rho1"]
    alone = run_stages(other, params, "train")["train"]
    assert alone["objective"] * (1 - 1e-6) <= figures["objective"] <= alone["objective"] * (1 + NEAR)
    assert store.read_json(other / store.RHO1_PATH) == {"chosen": None, "points": []}, "the path of before is gone"
    assert path_page.section(other) == ""


def test_the_same_bytes_again_and_over_shards(chosen, tmp_path):
    """In one piece and in many blocks the path is the same, and so is the model."""
    import shutil

    from tasks import train

    root, params, _, _ = chosen
    for name, block_tokens in (("again", train.BLOCK_TOKENS), ("blocks", 300)):
        other = tmp_path / name
        shutil.copytree(root, other)
        (other / store.CANDIDATE).unlink()
        train.main(other, params, Progress(), block_tokens)
        model, first = Model.load(other / store.CANDIDATE), Model.load(root / store.CANDIDATE)
        if name == "again":
            assert (other / store.RHO1_PATH).read_bytes() == (root / store.RHO1_PATH).read_bytes()
            assert (other / store.CANDIDATE).read_bytes() == (root / store.CANDIDATE).read_bytes()
        assert model.info["penalty"] == pytest.approx(first.info["penalty"], rel=1e-9)
        assert model.info["objective"] == pytest.approx(first.info["objective"], rel=1e-6)


def test_a_path_begins_with_nothing_whatever_the_training_would_start_from(chosen, tmp_path):
    import shutil

    from tasks import train

    class Said(Progress):
        def say(self, text):
            said.append(text)

    said, (root, params, _, _) = [], chosen
    params, other = replace(params, train=replace(params.train, initial="champion")), tmp_path / "other"
    shutil.copytree(root, other)
    shutil.copy(root / store.CANDIDATE, other / store.START)
    assert train.main(other, params, Said())["warm"] is False
    assert said[0] == "train.rho1 is auto: the path begins with an empty model, not with champion"
    assert (other / store.CANDIDATE).read_bytes() == (root / store.CANDIDATE).read_bytes()


def test_the_section_shows_the_path_with_ids_of_its_own(chosen):
    html = path_page.section(chosen[0])
    assert html.startswith("<section") and 'id="rho1-path"' in html and html.count("<svg") >= 4
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids)) and all(name.startswith("rho1-") for name in ids)
    assert "Train error" not in html and "of 10 values" in html


def test_without_a_path_there_is_no_section(tmp_path):
    assert path_page.section(tmp_path) == ""


def test_auto_without_development_data_is_refused_and_nothing_is_harmed(tmp_path):
    from tasks import train

    params = small_params()
    params.ingest.dev_share = 0.0
    run_stages(tmp_path, params, "ingest", "template", "weigh", "train")
    before = tree(tmp_path)
    params.train.rho1 = "auto"
    with pytest.raises(EspalierError, match="no development data to choose by: set ingest.dev_share"):
        train.main(tmp_path, params, Progress())
    assert tree(tmp_path) == before


def test_auto_needs_a_solver_with_an_l1_term(project):
    from tasks import train

    params = small_params()
    params.train.rho1, params.train.solver = "auto", "lbfgs"
    with pytest.raises(EspalierError, match="lbfgs cannot follow a path of rho1: choose one of owlqn"):
        train.main(project, params, Progress())

"""The path of rho1: points that training alone would find, figures as measured elsewhere, a choice that is the best."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import yaml
from stage_runs import run_stages, small_params, tree

from espalier.engine import penalty_search
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.engine.labels.measures import Counts, token_error
from espalier.engine.optimise.path import Point
from espalier.tasks import store
from espalier.tasks.answering.tagging import renumber
from espalier.tasks.pages import path_page
from espalier.tasks.progress import Progress
from espalier.tasks.report.summary import stop_words
from espalier.tasks.training import sweep
from espalier.tasks.training.job import Options

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
    assert re.match(r"rho1 8, rho2 0.001: \d+ active, dev error \d", heard.notes[0]) and heard.last.startswith(
        "chosen rho1 "
    )
    active = [p["active"] for p in figures["points"]]
    assert active == sorted(active) and active[0] < active[-1]
    assert all(p["active"] == sum(p[name] for name in penalty_search.ACTIVE) for p in figures["points"])
    losses = [p["train_log_loss"] for p in figures["points"]]
    assert losses == sorted(losses, reverse=True)  # less of a penalty, a better fit


@pytest.mark.parametrize("which", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_point_is_what_training_alone_finds(swept, tmp_path, which):
    """The stages train and evaluate, with the rho1 of the point: the same objective, and the same errors of a model."""
    import shutil

    root, params, figures, _ = swept
    point, other = figures["points"][which], tmp_path / "other"
    shutil.copytree(root, other)
    params = small_params()
    params.train.max_iterations, params.train.tolerance, params.crf.rho1 = 5000, 1e-7, point["rho1"]
    alone = run_stages(other, params, "train")["train"]
    assert point["objective"] == pytest.approx(alone["objective"], rel=NEAR)
    assert point["objective"] >= alone["objective"] * (1 - 1e-6)
    model, manifest = load_model(other / store.CANDIDATE), store.read_manifest(other)
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
    time = re.search(r'<time datetime="([^"]+)"', page)[1]
    assert page == path_page.as_page(figures, root.name, time) and page.count("<svg") >= 4
    assert datetime.now(UTC) - datetime.fromisoformat(time) < timedelta(hours=1)
    assert "Size against quality" in page and f"<dd>{root.name}</dd>" in page and page.count('class="band') == 1
    assert "`" not in re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    text = path_page.as_text(figures, root).split("\n")
    assert len(text) == 1 + 5 + 2 and [line.startswith("→") for line in text[1:6]].count(True) == 1
    assert f"crf.rho1={figures['chosen']:.4g}" in text[-2] and text[-1].endswith("sweep.html")


def test_only_the_reports_change(swept, finished_project):
    before, after = tree(finished_project), tree(swept[0])
    assert {path for path in after if after[path] != before.get(path)} == {sweep.SWEEP, path_page.PAGE}


def test_the_same_again_is_the_same_path(swept):
    root, params, _, _ = swept
    points = sweep.follow(root, params, Progress())[1]
    assert points == sweep.follow(root, params, Progress(), len(points))[1]
    assert params.crf.rho1 == 0.5


# ---- the choice


def points_of(*rows):
    return [{"rho1": r, "rho2": 0.0, "active": a, "loss": loss, "standard_error": 0.01} for r, a, loss in rows]


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
    spread = penalty_search.standard_error(Counts(wrong, lengths))
    draws = random.integers(0, 400, (2000, 400))
    resampled = wrong[draws].sum(axis=1) / lengths[draws].sum(axis=1)
    assert spread == pytest.approx(resampled.std(), rel=0.08)
    assert penalty_search.standard_error(Counts(np.array([1.0]), np.array([2.0]))) == 0.0
    assert penalty_search.standard_error(Counts(np.zeros(2), np.zeros(2))) == 0.0


@pytest.mark.parametrize("second", ["I-N", "E-N", "L-N"])
def test_entities_are_chosen_by_f1_in_every_scheme(tmp_path, second):
    random = np.random.default_rng(1)
    words = {"B-N": "ab", second: "bc", "O": "de"}
    lines = []
    for _ in range(150):
        labels = random.choice([["B-N", second, "O"], ["O", "B-N"], ["B-N", "O", "O"]][random.integers(3)], 3)
        for label in labels:
            lines.append(f"{random.choice(list(words[label]))}{random.integers(40)} {words[label][0]} {label}")
        lines.append("")
    (tmp_path / "raw.conll").write_text("\n".join(lines))
    params = small_params()
    params.ingest.source, params.ingest.path, params.ingest.limit = "conll", "raw.conll", None
    params.template.lines = ["U:%x[0,0]", "U1:%x[0,1]", "B"]
    params.crf.pairs = "seen"
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params.as_dict()))
    run_stages(tmp_path, params, "ingest", "template", "weigh")
    figures = sweep.main(tmp_path, params, Progress(), points=3)
    assert figures["measure"] == "f1"
    assert all(p["loss"] == pytest.approx(1 - p["dev_f1"]) for p in figures["points"])
    assert "F1 on the development data" in (tmp_path / path_page.PAGE).read_text()
    assert "dev F1" in path_page.as_text(figures, tmp_path)


def test_a_path_that_is_judged_by_edits_says_so(tmp_path):
    point = {"rho1": 1.0, "rho2": 0.0, "active": 5, "dev_token_error": 0.2, "dev_edit_error": 0.1, "loss": 0.1,
             "standard_error": 0.01, "train_token_error": 0.2, "dev_log_loss": 0.5, "train_log_loss": 0.4,
             "objective": 7.0, "iterations": 3, "stop_reason": "converged"}  # fmt: skip
    figures = {"measure": "edit_error", "sparser": False, "chosen": 1.0, "chosen_rho2": 0.0, "where": "within",
               "iterations": 3, "points": [point], "solver": "owlqn"}  # fmt: skip
    text = path_page.as_text(figures, tmp_path)
    assert "dev edit error" in text and "10.00%" in text and "by the best edit error" in text
    page = path_page.as_page(figures, "words", "2026-01-02T03:04:05+00:00")
    assert "Edit error on the development data" in page and "Dev edit error" in page
    assert "<svg" not in page and "makes no curve" in page, "a curve of one point"
    figures["points"].append(point | {"rho1": 0.5, "active": 9, "dev_edit_error": 0.08})
    page = path_page.as_page(figures, "words", "2026-01-02T03:04:05+00:00")
    panel = page.partition('id="edit-error-t"')[2].partition("</svg>")[0]
    assert page.count('class="band') == panel.count('class="band') == 1


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
    params.crf.solver = "lbfgs"
    with pytest.raises(EspalierError, match="lbfgs cannot follow a path of rho1: choose one of owlqn"):
        sweep.main(project, params, Progress(), points=2)


def test_a_path_without_any_active_weight_still_has_a_page(project):
    figures = sweep.main(project, small_params(), Progress(), points=1, largest=1e6)
    assert [p["active"] for p in figures["points"]] == [0]
    assert "No model of this path has an active weight" in (project / path_page.PAGE).read_text(encoding="utf-8")


# ---- crf.rho1: auto


@pytest.fixture(scope="module")
def chosen(finished_project, tmp_path_factory):
    """A project trained with `crf.rho1: auto`, the figures of the stage and what was heard."""
    import shutil

    root = tmp_path_factory.mktemp("chosen") / "project"
    shutil.copytree(finished_project, root)
    params, heard = small_params(), Heard()
    params.train.max_iterations, params.crf.rho1 = 60, "auto"
    from espalier.tasks import train

    return root, params, train.main(root, params, heard), heard


def test_a_training_chooses_both_penalties_of_what_it_has_tried(chosen):
    root, _, figures, heard = chosen
    path, model = store.read_json(root / store.RHO1_PATH), load_model(root / store.CANDIDATE)
    best = penalty_search.choose(path["points"])
    assert figures["rho1"] == best["rho1"] == path["chosen"] and path["chosen_rho2"] == best["rho2"]
    assert model.info["penalty"] == {"rho1": best["rho1"], "rho2": best["rho2"]} and model.info["rho1_chosen"] is True
    assert {0.001, 0.1, 0.3} <= {p["rho2"] for p in path["points"]}
    assert heard.notes[0].startswith("point 1 of the search: rho1 10, rho2 0.001: ")


def test_the_iterations_of_the_search_are_counted(chosen):
    root, _, figures, _ = chosen
    path, model = store.read_json(root / store.RHO1_PATH), load_model(root / store.CANDIDATE)
    spent = sum(p["iterations"] for p in path["points"])
    assert figures["path_iterations"] == path["iterations"] == model.info["path_iterations"] == spent > 0
    assert "and 161 in the search for the penalties before" in stop_words("converged", 5, 161)


class Bowl:
    """Development data that like log rho1 and log rho2 best at a point; the weights have no say."""

    judged_by, measure = None, "token_error"

    def __init__(self, rho1, rho2):
        self.target, self.asked = np.log([rho1, rho2]), []

    def figures_of(self, point):
        off = np.log([point["rho1"], point["rho2"]]) - self.target
        self.asked.append((point["rho1"], point["rho2"]))
        return {"loss": float(off @ off), "standard_error": 0.0, "dev_token_error": 0.0}


def searched(monkeypatch, rho1, rho2):
    """A search among penalties whose best is known; nothing is solved."""
    bowl = Bowl(rho1, rho2)

    def along(objective, values, development, options, tokens, on_point, theta0):
        points = [Point(v, options.rho2, 1.0, np.arange(0), np.zeros(0), 1, {}, 3, "converged") for v in values]
        found = [{"rho1": p.rho1, "rho2": p.rho2, "active": 1, "iterations": 3} for p in points]
        return points, [f | bowl.figures_of(f) for f in found]

    monkeypatch.setattr(penalty_search, "along", along)
    monkeypatch.setattr(penalty_search, "largest_rho1", lambda objective: 1000.0)
    search = penalty_search.Search(None, bowl, Options.of(small_params()).of_path, 1.0, lambda *_: None)
    best = search.run()
    return best, penalty_search.where(search.found, best), search


@pytest.mark.parametrize(("rho1", "rho2"), [(0.5, 0.001), (0.1, 0.3), (2.0, 0.1), (0.02, 1.0), (0.3, 3.0)])
def test_the_search_finds_a_point_beside_the_best_and_knows_that_it_is_inside(monkeypatch, rho1, rho2):
    best, where, search = searched(monkeypatch, rho1, rho2)
    assert abs(np.log(best["rho1"] / rho1)) <= np.log(search.ratio) / 2 + 1e-9
    assert abs(np.log(best["rho2"] / rho2)) <= np.log(3.0) / 2 + 1e-9
    assert where == "it lies within what was tried"


def test_a_best_point_beyond_the_grid_is_followed_and_the_end_is_told(monkeypatch):
    _, where, search = searched(monkeypatch, 1e-6, 0.001)
    assert min(p["rho1"] for p in search.found) < penalty_search.SMALLEST / search.ratio**3
    assert where == "it has the smallest rho1 that was tried: a better one may lie beyond"
    _, where, search = searched(monkeypatch, 0.5, 1e6)
    assert where == "it has the largest rho2 that was tried: a better one may lie beyond"
    best, where, _ = searched(monkeypatch, 40.0, 0.001)
    assert best["rho1"] > penalty_search.LARGEST and where == "it lies within what was tried"
    assert len(search.found) <= 120, "bounded"


def test_it_goes_on_from_the_chosen_point_and_ends_no_higher_than_training_alone(chosen, tmp_path):
    import shutil

    root, _, figures, _ = chosen
    path, trace = store.read_json(root / store.RHO1_PATH), store.read_jsonl(root / store.TRACE)
    point = path_page.chosen_point(path)
    assert trace[0]["objective"] == pytest.approx(point["objective"], rel=1e-12) and figures["iterations"] < 60
    params, other = small_params(), tmp_path / "other"
    shutil.copytree(root, other)
    params.train.max_iterations, params.train.tolerance = 300, 1e-7
    params.crf.rho1, params.crf.rho2 = path["chosen"], path["chosen_rho2"]
    alone = run_stages(other, params, "train")["train"]
    assert alone["objective"] * (1 - 1e-6) <= figures["objective"] <= alone["objective"] * (1 + NEAR)
    assert store.read_json(other / store.RHO1_PATH) == {"chosen": None, "points": []}, "the path of before is gone"
    assert path_page.section(other) == ""


def test_the_same_bytes_again_and_over_shards(chosen, tmp_path):
    """In one piece and in many blocks the path is the same, and so is the model."""
    import shutil

    from espalier.tasks import train

    root, params, _, _ = chosen
    for name, block_tokens in (("again", train.BLOCK_TOKENS), ("blocks", 300)):
        other = tmp_path / name
        shutil.copytree(root, other)
        (other / store.CANDIDATE).unlink()
        train.main(other, params, Progress(), block_tokens)
        model, first = load_model(other / store.CANDIDATE), load_model(root / store.CANDIDATE)
        if name == "again":
            assert (other / store.RHO1_PATH).read_bytes() == (root / store.RHO1_PATH).read_bytes()
            assert (other / store.CANDIDATE).read_bytes() == (root / store.CANDIDATE).read_bytes()
        assert model.info["penalty"] == pytest.approx(first.info["penalty"], rel=1e-9)
        assert model.info["objective"] == pytest.approx(first.info["objective"], rel=1e-6)


def test_a_path_begins_with_nothing_whatever_the_training_would_start_from(chosen, tmp_path):
    import shutil

    from espalier.tasks import train

    class Said(Progress):
        def say(self, text):
            said.append(text)

    said, (root, params, _, _) = [], chosen
    params, other = replace(params, train=replace(params.train, initial="champion")), tmp_path / "other"
    shutil.copytree(root, other)
    shutil.copy(root / store.CANDIDATE, other / store.START)
    assert train.main(other, params, Said())["warm"] is False
    assert said[0] == "crf.rho1 is auto: the path begins with an empty model, not with champion"
    assert (other / store.CANDIDATE).read_bytes() == (root / store.CANDIDATE).read_bytes()


def test_the_section_shows_the_path_with_ids_of_its_own(chosen):
    html = path_page.section(chosen[0])
    assert html.startswith("<section") and 'id="rho1-path"' in html and html.count("<svg") >= 4
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids)) and all(name.startswith("rho1-") for name in ids)
    assert "Train error" not in html and "pairs of values, by the best " in html
    assert "The search took " in html and "ρ₂" in html


def test_without_a_path_there_is_no_section(tmp_path):
    assert path_page.section(tmp_path) == ""


def test_auto_without_development_data_is_refused_and_nothing_is_harmed(tmp_path):
    from espalier.tasks import train

    params = small_params()
    params.ingest.dev_share = 0.0
    run_stages(tmp_path, params, "ingest", "template", "weigh", "train")
    before = tree(tmp_path)
    params.crf.rho1 = "auto"
    with pytest.raises(EspalierError, match="no development data to choose by: set ingest.dev_share"):
        train.main(tmp_path, params, Progress())
    assert tree(tmp_path) == before


def test_auto_needs_a_solver_with_an_l1_term(project):
    from espalier.tasks import train

    params = small_params()
    params.crf.rho1, params.crf.solver = "auto", "lbfgs"
    with pytest.raises(EspalierError, match="lbfgs cannot follow a path of rho1: choose one of owlqn"):
        train.main(project, params, Progress())

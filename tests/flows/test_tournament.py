"""Models side by side: who competes, what is kept of each, figures as counted by hand, the winner as the candidate."""


import json
import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from small_project import run_python
from stage_runs import run_stages, small_params, tree

from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES, load
from espalier.engine.labels.measures import F1, TOKEN_ERROR, paired_bootstrap
from espalier.flows import competition, permitted
from espalier.flows.locks import lease
from espalier.flows.pipeline import Project
from espalier.tasks import promote, store
from espalier.tasks.pages import tournament_page
from espalier.tasks.progress import Progress
from espalier.tasks.tournament import competing, kept
from espalier.tasks.tournament.entrants import entrants_of
from espalier.tasks.tournament.standings import Gold, alone
from espalier.tasks.training import plan

TWO = ["hmm", "perceptron"]
SETTINGS = ["hmm.smoothing=0.1"]
MADE = {competing.FIGURES, tournament_page.PAGE}


class Heard(Progress):
    def __init__(self):
        self.said, self.notes, self.last = [], [], None

    def step(self, n=1, note=""):
        self.notes.append(note)

    def say(self, text):
        self.said.append(text)

    def end(self, note=""):
        self.last = note


def held(root, params=None, families=TWO, settings=SETTINGS, heard=None):
    """A tournament without Prefect; its figures."""
    project = Project(root, params or small_params(), True)
    heard = heard or Heard()
    return competition.tournament_direct(project, {"families": families, "settings": settings}, lambda name: heard)


def models(root):
    """{key: bytes} of all models that are kept."""
    return {path.parent.name: path.read_bytes() for path in (root / kept.FOLDER).glob("*/candidate.model")}


@pytest.fixture(scope="module")
def finished(finished_project, tmp_path_factory):
    """A project after a tournament, its figures and what was heard; only to look at."""
    root, heard = tmp_path_factory.mktemp("tournament") / "project", Heard()
    shutil.copytree(finished_project, root)
    return root, held(root, heard=heard), heard


# ---- who competes


def test_entrants_are_families_and_settings_in_the_order_of_their_names():
    found = entrants_of(small_params(), ["perceptron", "crf"], ["crf.rho1=4 crf.pairs=seen", "hmm train.seed=3"])
    names = ["crf", "crf pairs=seen rho1=4", "hmm train.seed=3", "perceptron"]
    assert [one.name for one in found] == names and all(one.asked for one in found)
    assert [one.params.model.family for one in found] == ["crf", "crf", "hmm", "perceptron"]
    assert (found[1].params.crf.rho1, found[0].params.crf.rho1, found[2].params.train.seed) == (4.0, 0.5, 3)


def test_nobody_named_is_everybody_and_nobody_asked_for_them():
    found = entrants_of(small_params())
    assert [one.name for one in found] == sorted(FAMILIES) and not any(one.asked for one in found)


def test_the_parameters_can_name_them():
    params = small_params()
    params.tournament.families, params.tournament.settings = ["hmm"], ["crf.rho1=4"]
    assert [one.name for one in entrants_of(params)] == ["crf rho1=4", "hmm"]
    assert [one.name for one in entrants_of(params, ["memm"], ["hmm.rare=2"])] == ["hmm rare=2", "memm"]


@pytest.mark.parametrize(
    ("families", "settings", "text"),
    [
        ([], [], "no entrant: name one or more of crf, memm"),
        (["crff"], [], "family 'crff' is not known: choose one of crf"),
        (["hmm", "crf", "hmm"], [], "entrant 'hmm' is named twice"),
        (["crf"], ["crf.rho1=0.5"], "entrants 'crf' and 'crf rho1=0.5' are the same: leave one out"),
        ([], ["crf.rho1=4 hmm.rare=1"], "names crf, hmm: expected settings of one family"),
        ([], ["train.seed=1"], "names no family: expected settings of one family"),
        ([], ["crf"], "names crf: expected settings"),
        ([], ["crf.rho1=-1"], "entrant: crf.rho1 is -1, expected at least 0"),
        ([], ["crf.rho=1"], "unknown parameter 'crf.rho': did you mean 'crf.rho"),
        ([], ["crf template.min_count=3"], "sets 'template.min_count': entrants have the same features and may differ"),
        ([], ["crf.rho1='4"], "No closing quotation"),
    ],
)
def test_what_cannot_compete_is_refused(families, settings, text):
    with pytest.raises(EspalierError, match=re.escape(text)):
        entrants_of(small_params(), families, settings)


def test_all_that_is_wrong_is_told_together():
    with pytest.raises(EspalierError, match="2 things are wrong:\n  - family 'x' .*\n  - .*'crf.y'"):
        entrants_of(small_params(), ["x"], ["crf.y=1"])


# ---- a tournament


def test_the_figures_are_those_of_training_alone(finished, finished_project, tmp_path):
    """The winner and another one, trained, evaluated and compared by the stages."""
    root, figures, _ = finished
    rows = {row["name"]: row for row in figures["entrants"]}
    assert list(rows)[0] == figures["winner"] and sorted(rows) == ["hmm", "hmm smoothing=0.1", "perceptron"]
    counts = {}
    for family in TWO:
        other, params = tmp_path / family, small_params()
        shutil.copytree(finished_project, other)
        params.model.family = family
        run_stages(other, params, "train", "evaluate")
        assert store.file_hash(other / store.CANDIDATE) == rows[family]["sha256"]
        metrics, model = store.read_metrics(other), load(other / store.CANDIDATE)
        assert rows[family]["test"]["value"] == metrics["token_error"]
        assert rows[family]["log_loss"] == pytest.approx(metrics.get("log_loss"))
        assert rows[family]["calibration_error"] == metrics.get("calibration_error")
        assert rows[family]["active"] == sum(model.sizes().values())
        said, _ = store.read_arrow(other / store.PREDICTIONS)
        gold, guess = (said.column(name).to_pylist() for name in ("label", "predicted"))
        offsets = store.sequence_offsets(said.column("sequence").to_numpy())
        counts[family] = TOKEN_ERROR.counts(gold, guess, offsets)
    first, second = sorted(TWO, key=list(rows).index)
    if first == figures["winner"]:
        found = paired_bootstrap(counts[first], counts[second], rounds=small_params().promote.rounds)
        assert rows[second]["against_winner"] == found._asdict()
    assert rows[figures["winner"]]["against_winner"] is None and figures["champion"] is None
    assert rows["perceptron"]["calibration_error"] is None and rows["perceptron"]["log_loss"] is None


def test_the_winner_is_the_best_on_the_development_data_and_of_equals_the_smallest(finished):
    rows = finished[1]["entrants"]
    assert rows == sorted(rows, key=lambda row: (row["chosen"], row["active"], row["name"]))


def test_the_winner_is_the_candidate_and_nothing_else_has_changed(finished, finished_project):
    root, figures, heard = finished
    assert store.file_hash(root / store.CANDIDATE) == figures["entrants"][0]["sha256"]
    assert store.read_metrics(root)["token_error"] == figures["entrants"][0]["test"]["value"]
    before, after = tree(finished_project), tree(root)
    changed = {name for name in after if after[name] != before.get(name) and not name.startswith(kept.FOLDER)}
    changed = {name for name in changed if not name.startswith(store.CURVES)}
    model = {store.CANDIDATE, store.TRACE, store.TIMING, store.METRICS, store.PREDICTIONS, store.REPORT}
    assert changed <= MADE | model
    assert not (root / store.CHAMPION).exists() and heard.last == f"{figures['winner']} wins, of 3 with a model"


def test_the_candidate_goes_through_the_usual_gate(finished, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(finished[0], root)
    params = small_params()
    params.model.family = "hmm"
    assert promote.main(root, params, Progress())["promoted"]
    again = held(root)
    assert again["champion"]["sha256"] == finished[1]["entrants"][0]["sha256"]
    rows = {row["name"]: row["against_champion"] for row in again["entrants"]}
    assert rows.pop(again["winner"]) is None
    assert rows == {row["name"]: row["against_winner"] for row in again["entrants"][1:]}
    page = (root / tournament_page.PAGE).read_text(encoding="utf-8")
    assert "Against the champion" in page and "champion (" in page


def test_the_page_has_it_all_and_needs_no_network(finished):
    root, figures, _ = finished
    page = (root / tournament_page.PAGE).read_text(encoding="utf-8")
    for row in figures["entrants"]:
        assert row["name"] in page
    for title in ("The winner", "State error", "Size and time", "How sure they are", "What one gets right"):
        assert title in page
    assert not re.search(r'(src|href)="(?!#|data:)', page) and "nan" not in re.sub(r"<(script|style).*?</\1>", "", page,
                                                                                flags=re.DOTALL)  # fmt: skip
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_figures_hold_no_time_and_the_same_bytes_for_any_order_and_threads(finished, finished_project, tmp_path):
    """Another order, another number of threads, several at once."""
    root, figures, _ = finished
    other, params = tmp_path / "project", small_params()
    shutil.copytree(finished_project, other)
    params.compute.threads = 2
    work = competing.Competition.open(other, params, {"families": TWO[::-1], "settings": SETTINGS}, print)
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(work.attempt, one, Progress(), competing.Place(3)) for one in work.entrants[::-1]]
    assert {one.result() for one in done} == {competing.Outcome("trained", now=True)}
    work.finish(Progress())
    assert models(other) == models(root)
    for name in (competing.FIGURES, store.CANDIDATE, store.METRICS, store.PREDICTIONS, store.TRACE):
        assert (other / name).read_bytes() == (root / name).read_bytes()
    assert store.read_json(root / competing.FIGURES) == {k: v for k, v in figures.items() if k != "times"}
    assert ", beside others" in (other / tournament_page.PAGE).read_text(encoding="utf-8")


def test_workers_of_a_cluster_train_the_same(finished, finished_project, tmp_path):
    pytest.importorskip("distributed")
    root, params = tmp_path / "project", small_params()
    shutil.copytree(finished_project, root)
    params.compute.cluster = "local:2"
    figures = held(root, params)
    assert models(root) == models(finished[0]) and not figures["others"]
    assert (root / competing.FIGURES).read_bytes() == (finished[0] / competing.FIGURES).read_bytes()


# ---- what is kept


def test_nothing_is_trained_twice_and_what_has_changed_is(finished, tmp_path):
    root, params = tmp_path / "project", small_params()
    shutil.copytree(finished[0], root)
    figures = held(root, settings=["hmm.smoothing=0.2"])
    now = {name: times["now"] for name, times in figures["times"].items()}
    assert now == {"hmm": False, "perceptron": False, "hmm smoothing=0.2": True}
    params.train.checkpoint_seconds, params.compute.threads, params.evaluate.bins = None, 2, 5
    assert not any(times["now"] for times in held(root, params)["times"].values())
    weights, info = store.read_arrow(root / store.WEIGHTS)
    store.write_arrow(root / store.WEIGHTS, pl.from_arrow(weights).with_columns(pl.col("weight") * 2), info)
    assert all(times["now"] for times in held(root, params)["times"].values())


@pytest.mark.parametrize("name", ["candidate.model", "trained.json", "trace.jsonl", "test.arrow", "dev.arrow"])
def test_what_is_damaged_is_made_again(finished, tmp_path, name):
    root = tmp_path / "project"
    shutil.copytree(finished[0], root)
    before = models(root)
    for path in (root / kept.FOLDER).glob(f"*/{name}"):
        path.write_bytes(path.read_bytes()[:-7] if name != "test.arrow" else b"")
    held(root)
    assert models(root) == before
    assert (root / competing.FIGURES).read_bytes() == (finished[0] / competing.FIGURES).read_bytes()


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from stage_runs import small_params
from test_tournament import Heard, held

class Killing(Heard):
    def step(self, n=1, note=""):
        super().step(n, note)
        if sum("perceptron: objective" in text for text in self.notes) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

params = small_params()
params.train.checkpoint_seconds = 0
held(Path(sys.argv[1]), params, heard=Killing())
"""


def test_killed_it_goes_on_where_it_was(finished, finished_project, tmp_path):
    root, here = tmp_path / "project", os.path.dirname(__file__)
    shutil.copytree(finished_project, root)
    done = run_python("-c", KILLED, str(root), os.path.dirname(here), here, cwd=root, timeout=400)
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = models(root)
    assert len(before) == 2 and store.file_hash(root / store.CANDIDATE) == store.file_hash(
        finished_project / store.CANDIDATE
    )
    heard, params = Heard(), small_params()
    params.train.checkpoint_seconds = 0
    figures = held(root, params, heard=heard)
    assert {name for name, times in figures["times"].items() if times["now"]} == {"perceptron"}
    assert any(text.startswith("perceptron: going on after iteration ") for text in heard.said)
    assert models(root) == models(finished[0])
    assert (root / competing.FIGURES).read_bytes() == (finished[0] / competing.FIGURES).read_bytes()


# ---- what cannot be trained harms no other


def test_what_takes_too_much_memory_is_refused_with_the_words_of_the_plan(project):
    needed = {}
    for family in TWO:
        params = small_params()
        params.model.family = family
        needed[family] = plan.main(project, params)["bytes"]["all"]
    small, large = sorted(TWO, key=needed.get)
    params = small_params()
    params.memory.limit = sum(needed.values()) / 2 / 2**30
    assert needed[small] < needed[large]
    figures = held(project, params, settings=[])
    (refused,) = figures["others"]
    assert (refused["name"], refused["how"], figures["winner"]) == (large, "refused", small)
    assert re.match(r"training would take about 0.3 GiB, .* and memory.limit allows 0.3: ", refused["why"])
    assert f"{refused['why']}</td>" in (project / tournament_page.PAGE).read_text(encoding="utf-8")
    params.memory.limit = 0.1
    with pytest.raises(EspalierError, match="^no entrant has a model:\n  - crf rho1=4 is refused: training would"):
        held(project, params, families=[], settings=["crf.rho1=4"])


def test_families_that_do_not_suit_are_left_out_and_it_is_said_why(project, monkeypatch):
    found = {name: FAMILIES[name] for name in ("hmm", "gp")}
    monkeypatch.setattr("espalier.tasks.tournament.entrants.FAMILIES", found)
    monkeypatch.setattr("espalier.tasks.training.kernel_machine.LONG", 0)
    heard = Heard()
    figures = held(project, families=None, settings=[], heard=heard)
    (row,) = figures["others"]
    expected = "it would take long: [0-9,]+ distinct rows, [0-9,]+ .* an iteration"
    assert row["how"] == "left out" and re.match(expected, row["why"])
    assert f"gp is left out: {row['why']}" in heard.said and "State error" in (
        project / tournament_page.PAGE
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize("at_once", [1, 2])
def test_one_that_fails_does_not_harm_the_others(project, monkeypatch, at_once):
    fit = competing.train_here

    def failing(root, params, *others):
        if params.model.family == "hmm":
            raise OSError(5, "Input/output error")
        return fit(root, params, *others)

    monkeypatch.setattr(competing, "train_here", failing)
    work = competing.Competition.open(project, small_params(), {"families": TWO, "settings": []}, print)
    heard = Heard()
    competition.train_all(work, competing.Place(at_once), heard)
    figures = work.finish(Progress())
    told = "OSError: [Errno 5] Input/output error"
    assert figures["others"] == [{"name": "hmm", "family": "hmm", "how": "failed", "why": told}]
    assert figures["winner"] == "perceptron" and not figures["alone"]
    assert f"hmm is failed: {told}" in heard.said


def test_a_full_disk_ends_in_words_and_leaves_the_candidate(project, monkeypatch):
    before = store.file_hash(project / store.CANDIDATE)
    write = store.write_model

    def full(path, model):
        if kept.FOLDER in str(path):
            raise OSError(28, "No space left on device", str(path))
        return write(path, model)

    monkeypatch.setattr(store, "write_model", full)
    with pytest.raises(EspalierError, match="no entrant has a model:\n  - hmm is failed: OSError: .*No space left"):
        held(project, families=["hmm"], settings=[])
    assert store.file_hash(project / store.CANDIDATE) == before and not (project / competing.FIGURES).exists()


def test_without_development_data_the_test_data_choose_and_it_is_said(tmp_path):
    params = small_params()
    params.ingest.dev_share = 0.0
    run_stages(tmp_path, params, "ingest", "template", "weigh")
    figures = held(tmp_path, params, ["hmm"], [])
    assert figures["chosen_by"] == "test" and "as there are no development data" in (
        tmp_path / tournament_page.PAGE
    ).read_text(encoding="utf-8")


def test_a_damaged_champion_is_told_of_before_anything_is_trained(project):
    (project / store.CHAMPION).write_bytes(b"no model")
    with pytest.raises(EspalierError, match="champion.model"):
        held(project)
    assert not (project / kept.FOLDER).exists()


def test_trainings_share_the_memory():
    """Three of 2 in 5: two at a time; one that needs more than all waits until it is alone."""
    memory, at_work, most = competing.MemoryBudget(5), [], []

    def work(needed):
        with memory.taken(needed):
            at_work.append(needed)
            most.append(sum(at_work))
            at_work.remove(needed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [2, 2, 2, 9] * 20))
    assert memory.free == 5 and max(most) <= 9 and all(n <= 5 or n == 9 for n in most)


# ---- what each gets right that the others miss, beside counting by hand


def contender(name, labels):
    return SimpleNamespace(name=name, test=SimpleNamespace(labels=labels))


def test_what_is_right_alone_is_counted_by_hand():
    rng, n_models = np.random.default_rng(3), 3
    gold = rng.choice(list("abc"), 40).tolist()
    said = [[g if rng.random() < 0.6 else "a" for g in gold] for _ in range(n_models)]
    offsets = np.array([0, 7, 8, 30, 40])
    tokens = pl.DataFrame({"x0": [f"w{t}" for t in range(40)]})
    order = [contender(f"m{k}", labels) for k, labels in enumerate(said)]
    found = alone(TOKEN_ERROR, Gold(tokens, gold, offsets, {}), order)
    right = [[a == b for a, b in zip(gold, labels, strict=True)] for labels in said]
    for k, row in enumerate(found["alone"]):
        others = [other for other in range(n_models) if other != k]
        mine = [t for t in range(40) if right[k][t] and not any(right[other][t] for other in others)]
        assert (row["right"], row["only"]) == (sum(right[k]), len(mine))
        assert row["missed"] == sum(not right[k][t] and all(right[o][t] for o in others) for t in range(40))
        assert row["not_by"] == [sum(right[k][t] and not right[o][t] for t in range(40)) for o in range(n_models)]
        for one, t in zip(row["examples"], mine, strict=False):
            low, high = one["at"]
            assert one["tokens"][low:high] == [f"w{t}"] and one["gold"] == [gold[t]]
            assert one["said"] == {f"m{other}": [said[other][t]] for other in others}
            first = int(offsets[np.searchsorted(offsets, t, side="right") - 1])
            assert one["cut"][0] == (t - 6 > first) and one["sequence"] == np.searchsorted(offsets, t, side="right")
    assert found["units"] == {"of": "token", "count": 40, "by_all": sum(map(all, zip(*right, strict=True))),
                              "by_some": sum(map(any, zip(*right, strict=True))),
                              "by_none": 40 - sum(map(any, zip(*right, strict=True)))}  # fmt: skip


def test_entities_are_right_as_a_whole():
    gold = ["B-X", "I-X", "O", "B-Y"]
    order = [contender("half", ["B-X", "O", "O", "B-Y"]), contender("whole", ["B-X", "I-X", "O", "O"])]
    found = alone(F1, Gold(pl.DataFrame({"x0": list("abcd")}), gold, np.array([0, 4]), {}), order)
    assert found["units"] == {"of": "entity", "count": 2, "by_all": 0, "by_some": 2, "by_none": 0}
    assert [(row["right"], row["only"], row["missed"]) for row in found["alone"]] == [(1, 1, 1), (1, 1, 1)]
    assert found["alone"][1]["examples"][0]["gold"] == ["B-X", "I-X"]
    assert found["alone"][1]["examples"][0]["said"] == {"half": ["B-X", "O"]}


def test_the_next_step_is_a_command_that_a_shell_reads():
    figures = {"winner_settings": ["model.family=crf", "train.initial=a b.model"]}
    assert tournament_page.next_command(figures) == (
        "espalier promote --set model.family=crf --set 'train.initial=a b.model'"
    )


# ---- the command


def test_the_command(espalier, project):
    code, out, err = espalier("-C", project, "tournament", "--direct", "--families", "hmm,perceptron",
                              "--with", "perceptron.update=pa")  # fmt: skip
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:3] == ["entrant", "dev", "state"] and err.startswith("tournament")
    assert {line.split()[0] for line in lines[1:4]} == {"hmm", "perceptron"}
    assert "is the candidate now, and `espalier promote --set model.family=" in lines[4]
    assert lines[5] == f"page {project / tournament_page.PAGE}" and len(lines) == 6
    code, out, err = espalier("-C", project, "tournament", "--direct", "--quiet", "--families", "hmm,perceptron",
                              "--with", "perceptron.update=pa", "--json")  # fmt: skip
    figures = json.loads(out)
    assert code == 0 and err == "" and not any(times["now"] for times in figures["times"].values())
    command = tournament_page.next_command(figures).split()[1:]
    code, out, err = espalier("-C", project, *command)
    assert code == 0 and out == "promoted: the first model: there was no champion\n", err
    assert (project / store.CHAMPION).read_bytes() == (project / store.CANDIDATE).read_bytes()


def test_what_was_asked_for_and_has_no_model_is_exit_code_3(espalier, project):
    settings = "hmm.training=mmi train.initial=gone.model"
    code, out, _ = espalier("-C", project, "tournament", "--direct", "--quiet", "--families", "hmm", "--with", settings)
    (line,) = (line for line in out.splitlines() if line.startswith("hmm train.initial=gone.model training=mmi is "))
    assert code == 3 and "is failed: " in line and "gone.model: there is no such model" in line


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--families", "crff"], "family 'crff' is not known"), (["--families", ","], "no entrant: name one or more"),
        (["--with", "crf.rho1=x"], "crf.rho1 is 'x', expected a number"),
        (["--families", "hmm", "--set", "memory.limit=0.1"], "no entrant has a model"),
    ],
)  # fmt: skip
def test_the_command_refuses_in_words(espalier, project, options, text):
    before = tree(project)
    code, out, err = espalier("-C", project, "tournament", "--direct", "--quiet", *options)
    assert code == 1 and text in err and out == "" and tree(project) == before


def test_it_needs_features(espalier, tmp_path):
    (tmp_path / "params.yaml").write_text("crf: {rho1: 1}\n")
    code, _, err = espalier("-C", tmp_path, "tournament", "--direct", "--quiet")
    assert code == 1 and "manifest.json: there is no such file; run `espalier stage template` first" in err


def test_two_at_once_are_one_after_the_other(espalier, project):
    with lease(project, "a tournament"):
        code, _, err = espalier("-C", project, "tournament", "--direct", "--quiet", "--families", "hmm")
    assert code == 1 and "this project is being worked on (a tournament, process" in err
    assert not (project / kept.FOLDER).exists()


# ---- what a flow run may ask for


def test_a_flow_run_may_set_of_entrants_what_it_may_set_of_others():
    fine = {"families": ["crf"], "settings": ["crf.rho1=2", "hmm train.initial=models/a.model"]}
    assert permitted.checked_entrants(fine) == fine
    assert permitted.checked_entrants({}) == {"families": None, "settings": []}
    with pytest.raises(EspalierError, match="'notify.command' cannot be set by a flow run"):
        permitted.checked_entrants({"settings": ["crf notify.command=ring"]})
    with pytest.raises(EspalierError, match="parameter train.initial is '/etc/x'"):
        permitted.checked_entrants({"settings": ["crf train.initial=/etc/x"]})
    for wrong in ({"root": ["x"]}, {"families": "crf"}, {"settings": [1]}):
        with pytest.raises(EspalierError, match="parameter options: expected texts in families and settings"):
            permitted.checked_entrants(wrong)

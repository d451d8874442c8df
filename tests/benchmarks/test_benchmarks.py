"""The harness of the benchmarks: rows, tables, features that equal the peers', a small case end to end."""

import gzip
import json
import re
import sys

import numpy as np
import polars as pl
import pytest
from tree_data import trees

from benchmarks import __main__ as command
from benchmarks import job, large, ours, peers, rows
from benchmarks.cases import CASES, Context, conll2000, grammar, hmm, memm, suite
from espalier.engine.errors import EspalierError
from espalier.engine.families import pcfg
from espalier.engine.labels.trees import cleaned, read_trees
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.text.pattern_sets import shipped_lines

FIELDS = [
    "case", "system", "setting", "seconds", "seconds_to_1pct", "seconds_to_01pct", "seconds_to_score",
    "seconds_per_gradient", "objective", "error", "f1", "active", "tokens_per_second", "peak_mib", "threads",
]  # fmt: skip
SENTENCES = [
    (["The", "cat", "sat", "on", "mats"], ["DT", "NN", "VB", "IN", "NN"], ["B-NP", "I-NP", "B-VP", "B-PP", "B-NP"]),
    (["Rain"], ["NN"], ["B-NP"]),
    (["It", "sat"], ["PR", "VB"], ["B-NP", "B-VP"]),
]


def row(case="c", system=rows.OURS, setting="a, b", **values):
    return rows.make_row(case, system, setting, values)


@pytest.fixture
def problem():
    table = pl.DataFrame(
        [(n, *token) for n, sentence in enumerate(SENTENCES) for token in zip(*sentence, strict=True)],
        schema={"sequence": pl.Int32, "x0": pl.String, "x1": pl.String, "label": pl.String}, orient="row",
    )  # fmt: skip
    return conll2000.problem_of((table, table))


# ---- rows


def test_a_row_has_exactly_the_fields():
    assert list(row(seconds=1.0)) == FIELDS
    assert row(seconds=1.0)["f1"] is None


def test_a_field_that_is_none_is_refused():
    with pytest.raises(EspalierError, match="'second' is no field of a row: expected some of case, system"):
        row(second=1.0)


def test_new_rows_replace_all_old_ones_of_their_case():
    old = [row("a", setting="1"), row("b", setting="1"), row("a", setting="2")]
    found = rows.merge(old, [row("a", setting="3"), row("c", setting="1")])
    assert [(r["case"], r["setting"]) for r in found] == [("a", "3"), ("b", "1"), ("c", "1")]


def test_rows_are_merged_into_a_file(tmp_path):
    path = tmp_path / "results.json"
    rows.merge_into(path, [row("a", seconds=1.0), row("b", seconds=2.0)])
    rows.merge_into(path, [row("a", seconds=3.0)])
    assert [(r["case"], r["seconds"]) for r in rows.read(path)] == [("a", 3.0), ("b", 2.0)]
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("text", ["{", "{}", '[{"case": "a"}]', "[1]"])
def test_a_file_of_something_else_is_refused_and_kept(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(EspalierError, match="results.json"):
        rows.merge_into(path, [row()])
    assert path.read_text() == text


# ---- the table


def test_a_ratio_below_one_means_that_ours_is_faster():
    peer = row(system="peer", seconds=4.0, seconds_per_gradient=1.0)
    assert rows.ratio(row(seconds=1.0, seconds_per_gradient=2.0), peer) == 0.25
    assert rows.ratio(row(seconds_per_gradient=2.0), peer) == 2.0
    assert rows.ratio(row(tokens_per_second=100.0), row(tokens_per_second=10.0)) == pytest.approx(0.1)
    assert rows.ratio(row(error=0.1), peer) is None


def test_ours_is_compared_with_peers_of_the_same_case_and_group():
    mine = row("a", setting="L2, lbfgs", seconds=1.0)
    others = [
        row("a", "near", "L2, 100 iterations", seconds=2.0),
        row("a", "far", "L1, 100 iterations", seconds=4.0),
        row("b", "elsewhere", "L2, 100 iterations", seconds=8.0),
    ]
    assert rows.ratios(mine, [mine, *others]) == "0.5 near"
    assert rows.ratios(others[0], [mine, *others]) == ""


def test_a_table_shows_figures_and_leaves_empty_columns_out():
    lines = rows.table([row(setting="w|v", error=0.05, f1=0.936, threads=2)]).splitlines()
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == [
        "case",
        "system",
        "setting",
        "threads",
        "error",
        "F1",
    ]
    assert lines[2].split() == ["|", "c", "|", "espalier", "|", "w\\|v", "|", "2", "|", "5.00%", "|", "93.60", "|"]


def test_the_table_of_a_page_is_rewritten_between_the_markers(tmp_path):
    page, file = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text(f"before\n{rows.BEGIN}\nold\n{rows.END}\nafter\n")
    rows.merge_into(file, [row("a", seconds=1.0), row("b", objective=2.0)])
    command.rewrite_table(file, page)
    first = page.read_text()
    assert first.startswith(f"before\n{rows.BEGIN}\n| case") and first.endswith(f"|\n{rows.END}\nafter\n")
    assert "old" not in first and first.count("| case") == 2
    command.rewrite_table(file, page)
    assert page.read_text() == first


def test_a_page_without_markers_is_not_touched(tmp_path):
    with pytest.raises(EspalierError, match="put them back"):
        rows.with_table("no markers", [row()])


def test_our_page_has_the_markers_and_names_every_case():
    text = (command.HERE / "README.md").read_text()
    assert rows.with_table(text, [row()])
    assert [name for name in CASES if f"`{name}`" not in text] == []


# ---- the same model as the peers'


def test_our_observations_are_the_attributes_of_crfsuites_example(problem):
    marks = {conll2000.FIRST: "__BOS__", conll2000.LAST: "__EOS__"}
    names = [marks.get(text, text[1:]) for text in problem.observations]
    found = [{names[x] for x in line if x >= 0} - {""} for line in problem.train.observations]
    wanted = [set(item) for words, tags, _ in SENTENCES for item in conll2000.attributes(words, tags)]
    assert found == wanted
    assert "w[-1]|w[0]=The|cat" in wanted[1] and "__BOS__" in wanted[0] and "__EOS__" in wanted[4]


def test_weights_of_a_peer_find_their_places(problem):
    layout = conll2000.layout_of(problem)
    theta = np.random.default_rng(0).normal(size=layout.size)
    names = {conll2000.FIRST: "__BOS__", conll2000.LAST: "__EOS__"}
    states, transitions = {}, {}
    for weight, family, x, previous, label in zip(theta, *layout.slots(), strict=True):
        text = problem.observations[x]
        if family == 0:
            states[names.get(text, text[1:]), problem.labels[label]] = weight
        else:
            transitions[problem.labels[previous], problem.labels[label]] = weight
    assert np.array_equal(conll2000.weights_in(problem, layout, states, transitions), theta)


def test_a_weight_that_we_have_not_is_another_model(problem):
    with pytest.raises(ValueError, match="expected the same model"):
        conll2000.weights_in(problem, conll2000.layout_of(problem), {("w[0]=Rain", "B-VP"): 1.0}, {})


@pytest.mark.parametrize("implementation", hmm.IMPLEMENTATIONS)
def test_hmmlearn_finds_the_same_likelihood(implementation):
    pytest.importorskip("hmmlearn", reason="hmmlearn is not installed: `make setup-bench` installs it")
    of = hmm.drawn(np.array([0, 1, 2, 1, 0, 2, 2]), np.array([3, 1, 3]), 4)
    model = hmm.hmmlearn_model(of, implementation)
    assert hmm.same_likelihood(of, model) < 0.0
    model.startprob_ = np.roll(model.startprob_, 1)
    with pytest.raises(ValueError, match="expected the same model"):
        hmm.same_likelihood(of, model)


def test_a_sweep_is_of_a_model_without_an_end():
    """Summed over all sequences of two words the likelihood is one: q(F | y) = 1 and all else adds up to one."""
    pairs = np.array([(a, b) for a in range(3) for b in range(3)])
    of = hmm.drawn(pairs.ravel(), np.full(9, 2), 4)
    data, theta = hmm.our_model(of)
    _, log_z = data.free.expectations(theta)
    assert np.exp(log_z).sum() == pytest.approx(1.0, abs=1e-12)
    assert hmm.swept(data, theta)["objective"] == pytest.approx(-log_z.sum())


def test_nltk_finds_the_same_likeliest_tree():
    pytest.importorskip("nltk")
    model = pcfg.fit([cleaned(tree) for tree in read_trees("\n".join(trees(30)))], shipped_lines("trees"))
    (gold,) = read_trees("(TOP (S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .)))")
    data, words = grammar.words_of(model, [gold])
    (mine,) = model.parses(data, words)
    terminals = [model.grammar.words[w] for w in model.strings(data).words]
    theirs = next(grammar.nltk_parser(model.grammar).parse(terminals))
    grammar.same(float(theirs.logprob()) * np.log(2.0), mine.log_p, "nltk")
    assert grammar.whole_tree(theirs, iter(words)) == mine.tree == gold
    with pytest.raises(ValueError, match="nltk's log-probability is -1.0, ours -1.00001: expected the same grammar"):
        grammar.same(-1.0, -1.00001, "nltk")


def test_the_case_of_grammars_runs_on_a_small_treebank(tmp_path, monkeypatch):
    (tmp_path / grammar.FOLDER).mkdir()
    lines = trees(60)
    bare = [re.sub(r"\(\S+ ", "(", re.sub(r"\((\S+) [^\s()]+\)", r"\1", line)) for line in lines]
    for name, some in (("trees-clean.txt.gz", lines), ("brackets-pos.txt.gz", bare)):
        (tmp_path / grammar.FOLDER / name).write_bytes(gzip.compress("\n".join(some).encode()))
    monkeypatch.setattr(grammar, "TRAIN", 40)
    monkeypatch.setattr(grammar, "LONG", (8, 15))
    monkeypatch.setattr(grammar, "TAGS", (6, 7))
    found = [grammar.parsed(str(tmp_path), True), grammar.short_parsed(str(tmp_path), True, grammar.OURS, True),
             grammar.short_parsed(str(tmp_path), True, grammar.OURS, False)]  # fmt: skip
    assert all(rows.make_row("grammar", "espalier", "x", one)["tokens_per_second"] > 0 for one in found)
    assert found[0]["f1"] > 0.7 and "f1" in found[1] and found[2]["objective"] > 0


def test_weights_of_labels_go_by_their_names():
    single, pairs = memm.weights_of(["b", "a", "c"])
    sorted_single, sorted_pairs = memm.weights_of(["a", "b", "c"])
    assert np.array_equal(single, sorted_single[[1, 0, 2]])
    assert np.array_equal(pairs, sorted_pairs[np.ix_([1, 0, 2], [1, 0, 2])])


# ---- our side


def test_seconds_to_a_level_are_those_of_the_first_iteration_there():
    curve = [(1.0, 200.0), (2.0, 100.9), (3.0, 100.05), (4.0, 100.0)]
    assert ours.reached(curve, 100.0) == {"seconds_to_1pct": 2.0, "seconds_to_01pct": 3.0}
    assert ours.seconds_to(curve, 99.0) is None
    assert ours.reached(curve, None) == {}


def test_a_fit_stops_at_its_target(problem):
    layout = conll2000.layout_of(problem)
    start = ChainObjective(problem.train, layout).value(np.zeros(layout.size))
    found = ours.fit(problem.train, layout, "lbfgs", ElasticNet(0.0, 1.0), target=0.8 * start)
    objectives = [objective for _, objective in found.curve]
    assert objectives[-1] <= 0.8 * start < objectives[-2]
    assert [seconds for seconds, _ in found.curve] == sorted(seconds for seconds, _ in found.curve)


def test_solvers_that_we_do_not_have_are_left_out():
    assert ours.solvers("owlqn", "no such solver") == ["owlqn"]


# ---- jobs and the command


def test_a_peer_that_is_not_installed_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    with pytest.raises(job.Skip, match="python-crfsuite is not installed"):
        peers.load("pycrfsuite")


def test_a_job_that_fails_is_reported_and_the_others_go_on():
    said = []
    context = Context("case", "nowhere", True, said.append)
    assert context.job("scaling:no_such_job", "espalier", "setting") is None
    assert context.failed == ["case: espalier, setting"]
    assert "no attribute 'no_such_job'" in said[-1]


def test_without_the_corpora_a_case_says_so(tmp_path, capsys):
    assert command.main(["ngram5", "--data", str(tmp_path)]) == 0
    assert "--data or ESPALIER_DATA" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["nettlak"], "case 'nettlak' is not known"),
        (["table"], "table takes one file"),
        (["table", "no"], "no such file"),
    ],
)
def test_a_wrong_command_is_refused(arguments, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments) == 1
    assert text in capsys.readouterr().err


def test_a_quick_case_from_command_to_file(tmp_path, capsys):
    path = tmp_path / "results.json"
    assert command.main(["scaling", "--quick", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert [list(r) for r in found] == [FIELDS] * 4
    assert {r["system"] for r in found} == {"espalier"} and {r["threads"] for r in found} == {2}
    assert all(r["seconds_per_gradient"] > 0 and r["peak_mib"] > 10 for r in found)
    assert found[0]["setting"] == "tokens x1, 400 tokens"
    assert "| scaling" in capsys.readouterr().out


# ---- the plan of a large training


def scale_row(setting, seconds, tokens_per_second):
    return {"case": "scale", "system": "espalier", "setting": setting, "threads": 2, "seconds_per_gradient": seconds,
            "tokens_per_second": tokens_per_second}  # fmt: skip


def test_constants_come_from_rows_and_the_rest_is_assumed():
    rows = [
        scale_row("shared memory, 1 worker, 159 MiB out and 159 back, 0.100 s (5%) beside the slowest worker", 2, 1e5),
        scale_row("shared memory, 2 workers, 100 MiB out and 1,100 back, 0.500 s (9%) beside the slowest", 1, 2e5),
    ]
    rich = {"case": "rich", "system": "espalier", "setting": "dense theta, 20 features", "tokens_per_second": None}
    rows += [rich | {"threads": count, "seconds_per_gradient": seconds} for count, seconds in ((1, 3.0), (2, 2.0))]
    found = large.constants_of(rows)
    assert found.positions == large.Constant(1e5, "measured") and found.two_threads.value == 1.5
    assert found.driver == large.Constant(1200 * 2**20 / 0.5, "measured") and found.messages.source == "assumed"
    assert large.constants_of([]) == large.Constants()


def test_a_plan_by_hand():
    """A worker has 10^6 positions and a thread makes 10^5 a second: 10 s; 2 * 80 MB come back at 1 GB/s."""
    problem = large.Problem(2 * 10**6, 1, 4, 10**7, workers=2, threads=1, share=1.0, changed=0.5, block=10**6)
    rows = {row.split(" | ")[0].strip("| "): row for row in large.table(large.Constants(), problem).splitlines()}
    assert rows["a worker's gradient"].endswith("10.0 s |")
    assert rows["sums that come back"].endswith("0.2 GB, 0.2 s |")
    assert rows["theta that goes out"].endswith("0.1 GB, 0.1 s |")
    assert rows["an iteration"].endswith("11 s, 93% of it gradients |")


def test_the_page_has_the_table_of_the_figures():
    made = large.table(large.constants_of(json.loads(large.RESULTS.read_text(encoding="utf-8"))))
    page = large.PAGE.read_text(encoding="utf-8")
    assert large.with_table(page, made) == page, "run `python -m benchmarks.large`"


# ---- the suite


def suite_corpus(tmp_path, monkeypatch, columns):
    """A corpus of one file with sentences of one to seven tokens, every tenth of them for the test."""
    words = ["Bramble", "fox", "of", "Elm", "a", "runs", "9"]

    def line(n, t):
        return " ".join([*[words[(n + t) % 7], "XYZ"[t % 3]][:columns], "LM"[n * t % 2]])

    blocks = ["".join(f"{line(n, t)}\n" for t in range(n % 7 + 1)) for n in range(40)]
    (tmp_path / "small.conll").write_text("\n".join(blocks))
    templates = (suite.WORDS, suite.TAGS)[:columns]
    monkeypatch.setitem(suite.CORPORA, "small", suite.Corpus(("small.conll",), templates))
    return str(tmp_path)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("size", ["small", "rich"])
def test_both_sides_of_the_suite_see_the_same(tmp_path, monkeypatch, columns, size):
    data = suite_corpus(tmp_path, monkeypatch, columns)
    train, test = suite.sentences(data, False, "small")
    problem = suite.problem_of(data, False, "small", size)
    assert (len(train), len(test)) == (36, 4) == (len(problem.train.offsets) - 1, len(problem.test.offsets) - 1)
    windows = suite.templates_of("small", size)
    theirs = [set(item) for *read, _ in train for item in suite.attributes(tuple(read), windows)]
    names = [text[1:] for text in problem.observations]
    ours_of = [{names[x] for x in row if x >= 0 and names[x]} for row in problem.train.observations]
    assert ours_of == theirs
    assert [label for *_, labels in test for label in labels] == problem.test_labels


def test_a_headline_has_mean_worst_and_what_was_not_reached():
    settings = (("a L2", 8.0, 1.0), ("b L2", 4.0, 2.0), ("c L2", 4.0, None))
    found = [
        one
        for name, theirs, mine in settings
        for one in (
            row("suite", "python-crfsuite", f"{name}, lbfgs", seconds=theirs, threads=1),
            row("suite", setting=f"{name}, defaults", seconds=mine, threads=2),
        )
    ]
    assert rows.headline(found).splitlines()[0] == (
        "2 threads to the peer's objective: 4.0 times as fast (geometric mean of 2), 2.0 on b L2; not reached: c L2"
    )
    assert rows.headline(found) in rows.with_table(f"{rows.BEGIN}{rows.END}", found)

"""Contracts of families that put trees over sequences: through all stages, and what is refused on the way."""

import json
import re

import numpy as np
import polars as pl
import pytest
from stage_runs import run_stages, tree
from tree_data import strings, trees

from espalier import CRF
from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES, load, pcfg
from espalier.engine.families.pcfg import make_model
from espalier.engine.grammar.estimation import GrammarOptions, fit
from espalier.engine.grammar.rules import make_grammar
from espalier.engine.grammar.strings import make_strings
from espalier.engine.labels.bracket_scores import compare_all
from espalier.engine.labels.trees import Tree, cleaned, leaves, read_trees
from espalier.flows.cli import main as espalier
from espalier.tasks import ingest, store, train
from espalier.tasks.answering import parsing, samples
from espalier.tasks.judging import news
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.training.plan import main as plan

DATA = ("ingest", "template", "weigh")
STAGES = (*DATA, "train", "evaluate", "report", "promote")
ALL = pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if "trees" in one.can])


def params_of(family="pcfg", **options):
    params = Params()
    params.ingest.source, params.ingest.path, params.model.family = "files", "trees.mrg", family
    params.template.file, params.template.lines = "espalier:trees", None
    params.weigh.clusters, params.weigh.method, params.promote.rounds = 0, "none", 100
    params.train.max_iterations = 4
    for name, value in options.items():
        section = next(one for one in (params.of_family, params.train, params.compute, params.ingest, params.template)
                       if hasattr(one, name))  # fmt: skip
        setattr(section, name, value)
    return params


def project(root, family="pcfg", lines=None, **options):
    (root / "trees.mrg").write_text("\n".join(trees(120) if lines is None else lines) + "\n")
    return params_of(family, **options)


@ALL
def test_the_whole_pipeline(tmp_path, family):
    params = project(tmp_path, family)
    found = run_stages(tmp_path, params, *STAGES)
    model, metrics = load(tmp_path / store.CHAMPION), store.read_metrics(tmp_path)
    assert model.family == family and found["promote"]["promoted"]
    assert metrics["measure"] == "bracket_f1" and metrics["bracket_f1_low"] <= metrics["bracket_f1"] > 0.8
    assert metrics["token_error"] == 0.0 and metrics["perplexity"] > 1.0
    predictions, _ = store.read_arrow(tmp_path / store.PREDICTIONS)
    sentences = [cleaned(one) for one in read_trees((tmp_path / "trees.mrg").read_text())]
    by_words = {" ".join(word for _, word in leaves(one)): one for one in sentences}
    tokens = store.read_tokens(tmp_path, "test")[0].group_by("sequence", maintain_order=True).agg("x0")
    texts = [" ".join(row) for row in tokens["x0"]]
    said = list(parsing.TreeAnswers(model, parsing.AskedTrees())(["\n".join(texts).encode()], "test"))
    parsed = [cleaned(one) for one in read_trees(b"".join(said).decode())]
    figures = compare_all([by_words[text] for text in texts], parsed).figures()
    assert metrics["bracket_f1"] == pytest.approx(figures["labelled_f1"])
    assert metrics["brackets"]["unlabelled_f1"] == figures["unlabelled_f1"]
    assert metrics["sequence_error"] == pytest.approx(1 - figures["exact_share"])
    assert metrics["brackets"]["exact_share"] * len(texts) == pytest.approx(metrics["brackets"]["exact"])
    assert len(predictions) == metrics["test_tokens"]
    page = (tmp_path / store.REPORT).read_text(encoding="utf-8")
    assert f"A {FAMILIES[family].called}, trained on" in page
    for part in ('id="brackets"', 'id="lengths"', 'id="trees"', 'id="weights"', "F1 of brackets"):
        assert part in page
    for part in ('id="calibration"', 'id="decoders"', 'id="picture"', ">nan", ">None", "<script src", 'id="mistakes"'):
        assert part not in page
    planned = plan(tmp_path, params)
    assert planned["bytes"]["all"] == sum(v for k, v in planned["bytes"].items() if k != "all") > 0
    assert planned["features"] >= model.grammar.size


@ALL
@pytest.mark.parametrize("options", [{}, {"training": "inside-outside", "max_iterations": 2}], ids=["counts", "io"])
def test_the_same_bytes_for_any_threads_and_shards(tmp_path, family, options):
    params, seen = project(tmp_path, family, **options), set()
    run_stages(tmp_path, params, "ingest")
    for threads, shard_tokens in ((1, 10**6), (2, 300), (8, 100)):
        params.compute.threads, params.template.shard_tokens = threads, shard_tokens
        run_stages(tmp_path, params, "template", "weigh", "train", "evaluate")
        seen.add(tuple((tmp_path / name).read_bytes() for name in (store.CANDIDATE, store.TRACE, store.METRICS)))
    assert len(seen) == 1


@ALL
@pytest.mark.parametrize("training", ["counts", "inside-outside"])
def test_a_tree_of_weight_two_is_a_duplicate(tmp_path, family, training):
    models = []
    for name, more in (("heavy", []), ("twice", trees(60)[:6])):
        root = tmp_path / name
        root.mkdir()
        options = {"training": training, "dev_share": 0.0, "rare": 0, "test_path": "test.mrg"}
        params = project(root, family, [*trees(60), *more], **options)
        (root / "test.mrg").write_text("\n".join(trees(5, 2)))
        run_stages(root, params, *DATA)
        if name == "heavy":
            labels = store.read_tokens(root, "train")[0].group_by("sequence", maintain_order=True).agg("x0", "label")
            first = labels.head(6)
            same = labels.with_row_index().join(first, on=["x0", "label"], how="semi", nulls_equal=True)
            table, info = store.read_arrow(root / store.WEIGHTS)
            weights = np.ones(len(labels))
            weights[:6] = 2.0
            assert len(same) >= 6
            store.write_arrow(root / store.WEIGHTS, pl.from_arrow(table).with_columns(weight=pl.Series(weights)), info)
        run_stages(root, params, "train")
        grammar = load(root / store.CANDIDATE).grammar
        models.append({grammar.rule(n): p for n, p in enumerate(grammar.probabilities.tolist())})
    assert models[0] == pytest.approx(models[1], abs=1e-12)


# ---- estimation from strings


@pytest.mark.parametrize(
    "options",
    [{"training": "viterbi"}, {"training": "k-best", "k": 3, "brackets": False}, {"training": "inside-outside"},
     {"training": "inside-outside", "stepwise": True, "batch": 20, "pool_weight": 1.0}],
    ids=["viterbi", "k-best", "inside-outside", "stepwise"],
)  # fmt: skip
def test_grammars_that_begin_with_the_trees_learn_from_strings_too(tmp_path, options):
    files = {"unlabelled_path": "pool.txt", "format": "brackets"}
    params = project(tmp_path, lines=[*trees(60), *strings(20)], **files, **options)
    (tmp_path / "pool.txt").write_text("\n".join(strings(15, 3)))
    run_stages(tmp_path, params, *STAGES)
    assert store.read_metrics(tmp_path)["bracket_f1"] > 0.8
    trace = store.read_trace(tmp_path)
    assert len(trace) > 1 and all(record["dev_loss"] < 0.4 for record in trace)
    if options["training"] == "inside-outside" and "stepwise" not in options:
        objectives = [record["objective"] for record in trace]
        assert objectives == sorted(objectives, reverse=True)
    assert "likelihood" in store.read_metrics(tmp_path)


def test_symbols_of_their_own_are_learned_within_brackets(tmp_path):
    lines = ["((a b) (a b))", "((a b) b)", "(a b)", "((a b) ((a b) b))", "a b"] * 8
    (tmp_path / "other.mrg").write_text("\n".join(lines[:5]))
    options = {"training": "inside-outside", "symbols": 4, "restarts": 2, "max_iterations": 12, "rare": 0}
    options |= {"test_path": "other.mrg", "dev_path": "other.mrg"}
    params = project(tmp_path, lines=lines, bare=True, **options)
    run_stages(tmp_path, params, *STAGES)
    metrics, model = store.read_metrics(tmp_path), load(tmp_path / store.CHAMPION)
    assert metrics["bracket_f1"] == metrics["brackets"]["unlabelled_f1"] > 0.7 and metrics["token_error"] == 0.0
    assert metrics["brackets"]["labelled_f1"] == metrics["bracket_f1"], "symbols of its own are no wrong labels"
    assert metrics["brackets"]["exact"] > 0 and metrics["sequence_error"] == 1 - metrics["brackets"]["exact_share"]
    assert model.info["symbols"] == 4 and all(label.startswith("N") for label in model.labels)
    assert {record["start"] for record in store.read_trace(tmp_path)} == {0, 1}
    page = (tmp_path / store.REPORT).read_text(encoding="utf-8")
    assert 'id="confusions"' not in page and "4, begun by chance" in page


def test_tags_as_terminals(tmp_path):
    params = project(tmp_path)
    params.template.file, params.template.lines = None, ["U:%x[0,1]"]
    run_stages(tmp_path, params, *STAGES)
    model = load(tmp_path / store.CHAMPION)
    assert sorted(model.observations) == sorted(f"U:{tag}" for tag in ("DT", "NN", "VBZ", "IN", "JJ", "."))
    answers = parsing.TreeAnswers(model, parsing.AskedTrees())
    asked = b"DT NN VBZ DT NN .\n((S (NP (DT a) (NN x)) (VP (VBZ y) (NP (DT b) (NN z))) (. .)))\n"
    first, second = b"".join(answers([asked], "test")).decode().splitlines()
    assert first == "((S (NP (DT DT) (NN NN)) (VP (VBZ VBZ) (NP (DT DT) (NN NN))) (. .)))"
    assert second == "((S (NP (DT a) (NN x)) (VP (VBZ y) (NP (DT b) (NN z))) (. .)))"


def test_the_best_on_the_development_data_is_kept(tmp_path):
    params = project(tmp_path, training="inside-outside", patience=2, max_iterations=30, brackets=False)
    figures = run_stages(tmp_path, params, *DATA, "train")["train"]
    trace, model = store.read_trace(tmp_path), load(tmp_path / store.CANDIDATE)
    best = min(trace, key=lambda record: record["dev_loss"])
    assert model.info["best_iteration"] == best["iteration"] and figures["objective"] == best["objective"]
    assert figures["stop_reason"] in ("patience", "converged", "max_iterations")


# ---- what is refused


@ALL
def test_labels_of_tokens_are_no_trees(tmp_path, family):
    params = params_of(family)
    params.ingest.source, params.ingest.limit = "simulated", 50
    params.template.file, params.template.lines = None, ["U:%x[0,0]"]
    run_stages(tmp_path, params, *DATA)
    with pytest.raises(EspalierError, match=f"^{family} cannot label tokens one by one: .*, or give it trees"):
        run_stages(tmp_path, params, "train")


def test_trees_are_no_labels_of_tokens(tmp_path):
    params = project(tmp_path, "crf")
    run_stages(tmp_path, params, *DATA)
    before = tree(tmp_path)
    with pytest.raises(EspalierError, match="^crf cannot put trees over sequences: set model.family to pcfg, or give"):
        run_stages(tmp_path, params, "train")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "options, told",
    [({"symbols": 3}, "pcfg.symbols is 3 and pcfg.training counts"), ({"restarts": 2}, "pcfg.restarts is 2"),
     ({"lines": ["U:%x[0,0]", "B"], "file": None}, "templates of pcfg say what is seen of a word"),
     ({"cluster": "local:2", "training": "viterbi", "stepwise": True}, "pcfg.stepwise .* compute.cluster is local"),
     ({"initial": "champion"}, "^pcfg cannot start from an earlier model")],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(tmp_path, options, told):
    params = project(tmp_path)
    for name, value in options.items():
        sections = params.template, params.pcfg, params.train, params.compute
        setattr(next(one for one in sections if hasattr(one, name)), name, value)
    run_stages(tmp_path, params, *DATA)
    with pytest.raises(EspalierError, match=told):
        run_stages(tmp_path, params, "train")


def test_strings_without_a_tree_are_not_counted_in_silence(tmp_path):
    params = project(tmp_path, lines=[*trees(30), *strings(3)])
    run_stages(tmp_path, params, *DATA)
    with pytest.raises(EspalierError, match="some labels of the training data are not known: set pcfg.training"):
        run_stages(tmp_path, params, "train")
    with pytest.raises(EspalierError, match="line 2 of .*: words without a tree, and errors cannot be counted"):
        (tmp_path / "test.mrg").write_text(trees(1)[0] + "\nno tree here\n")
        params.ingest.test_path = "test.mrg"
        run_stages(tmp_path, params, "ingest")


def test_what_is_left_out_of_a_treebank_is_said(tmp_path):
    params, said = project(tmp_path, lines=[*trees(40), "(S (NP (-NONE- *T*)))", "rain fell"]), []

    class Heard(Progress):
        def say(self, text):
            said.append(text)

    ingest.main(tmp_path, params, Heard())
    assert said == ["1 tree without a word, or with empty ones alone (-NONE-), left out",
                    "1 line without brackets: words whose tree is not known"]  # fmt: skip


def test_strings_that_cannot_be_derived_are_counted_and_said(tmp_path):
    params = project(tmp_path)
    (tmp_path / "test.mrg").write_text("\n".join([*trees(10, 5), "(S (NP (NN dog)) (NP (NN dog)))", "(S (DT the))"]))
    params.ingest.test_path = "test.mrg"
    run_stages(tmp_path, params, *STAGES)
    metrics = store.read_metrics(tmp_path)
    assert metrics["brackets"]["missing"] == 2 and metrics["likelihood"]["parts"]["test"]["impossible"] == 2
    assert "2 sentences that the grammar cannot derive" in (tmp_path / store.REPORT).read_text(encoding="utf-8")
    params = project(tmp_path, lines=[*trees(60), "dog dog", "every"], training="inside-outside")
    said = []

    class Heard(Progress):
        def say(self, text):
            said.append(text)

    run_stages(tmp_path, params, *DATA)
    figures = train.main(tmp_path, params, Heard())
    assert figures["skipped"] == 2.0 and "strings of weight 2 cannot be derived and were skipped" in said


def test_a_start_that_derives_nothing_is_told(tmp_path):
    params = project(tmp_path, lines=["(S (NN dog) (VB runs))"] * 8 + ["a b c d"] * 8, training="inside-outside",
                     brackets=False)  # fmt: skip
    params.ingest.test_path = params.ingest.dev_path = "test.mrg"
    (tmp_path / "test.mrg").write_text("(S (NN cat) (VB runs))")
    params.template.file, params.template.lines, params.pcfg.rare = None, ["U:%x[0,0]"], 0
    figures = run_stages(tmp_path, params, *DATA, "train")["train"]
    assert figures["skipped"] == 8.0
    nothing = make_grammar(["S", "A"], ["a"], 0, [[0, 1, 0, 1.0]], [[1, 0, 1.0]])
    with pytest.raises(EspalierError, match="the grammar derives none of"):
        fit(nothing, make_strings([[0], [0, 0]]), GrammarOptions())


def test_rules_of_one_symbol_that_go_round_are_exact(tmp_path):
    lines = ["(S (A (B (A (X a)))) (X a))", "(S (A (X a)) (B (X b)))", "(S (B (A (X b))) (X b))"] * 8
    params = project(tmp_path, lines=lines, vertical=1, training="inside-outside", dev_share=0.2, test_share=0.2,
                     brackets=False, max_iterations=3)  # fmt: skip
    params.ingest.test_path = params.ingest.dev_path = "trees.mrg"
    run_stages(tmp_path, params, *DATA, "train", "evaluate")
    model = load(tmp_path / store.CANDIDATE)
    assert len(model.grammar.unary) and store.read_metrics(tmp_path)["brackets"]["missing"] == 0


def test_a_sentence_longer_than_the_memory_is_refused_by_its_line(tmp_path):
    params = project(tmp_path)
    run_stages(tmp_path, params, *DATA, "train")
    model = load(tmp_path / store.CANDIDATE)
    long = ("dog " * (model.longest() + 1)).encode()
    with pytest.raises(EspalierError, match=f"line 2 of test has {model.longest() + 1:,} words, and charts of at most"):
        list(parsing.TreeAnswers(model, parsing.AskedTrees())([b"a dog\n" + long], "test"))
    params.pcfg.training, params.pcfg.symbols = "inside-outside", 100
    (tmp_path / "trees.mrg").write_text("\n".join([*trees(40), "dog " * 4000]))
    run_stages(tmp_path, params, *DATA)
    with pytest.raises(EspalierError, match="a string of 4,000 words needs charts of .* GB .*: expected at most"):
        run_stages(tmp_path, params, "train")


# ---- commands and Python


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    run_stages(root, project(root), *STAGES)
    given = "(S (NP (DT a) (NN dog)) (VP (VBZ likes) (NP (DT the) (NN hill))) (. .))"
    (root / "s.txt").write_text(f"the dog sees a cat .\n\nsees sees\n{given}\n")
    return root


def told(capsysbinary, *arguments):
    code = espalier([str(one) for one in arguments])
    found = capsysbinary.readouterr()
    return code, found.out.decode(), found.err.decode()


def test_parse_answers_line_by_line(trained, capsysbinary):
    code, out, err = told(capsysbinary, "-C", trained, "parse", trained / "s.txt")
    lines = out.splitlines()
    assert code == 3 and "1 of the sentences cannot be derived" in err
    assert lines[0] == "((S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .)))"
    assert lines[1:3] == ["", "()"] and lines[3].startswith("((S (NP (DT a) (NN dog))") and len(lines) == 4
    code, out, _ = told(capsysbinary, "-C", trained, "parse", "--json", "--scores", trained / "s.txt")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["tree"] for row in rows] == [lines[0], None, lines[3]] and code == 3
    assert rows[0]["log_probability"] < 0 < rows[0]["probability"] <= 1.0 and rows[0]["tokens"][-1] == "."
    code, out, _ = told(capsysbinary, "-C", trained, "parse", "--nbest", 2, "--scores", trained / "s.txt")
    assert out.split("\n\n")[0].split("\t")[2] == lines[0]


def answers(model, text, **asked):
    return b"".join(parsing.TreeAnswers(model, parsing.AskedTrees(**asked))([text.encode()], "test")).decode()


def test_a_line_is_a_sentence_whatever_is_in_it(trained):
    model = load(trained / store.CHAMPION)
    odd = "the dog sees\x0ca cat .\nthe\u2028dog sees a\x85cat .\r\n\x1c\nthe dog sees"
    first, second, third, last = answers(model, odd).splitlines()
    assert first == second == answers(model, "the dog sees a cat .").rstrip() != "()"
    assert (third, last) == ("", "()")
    with_bracket = answers(model, "the (dog sees a f(x) .")
    assert [word for _, word in leaves(next(read_trees(with_bracket)))] == "the -LRB-dog sees a f-LRB-x-RRB- .".split()
    with pytest.raises(EspalierError, match="line 2 of test: .*; a word that is a bracket is written -LRB- or -RRB-"):
        answers(model, "the dog\n( the dog ) sees")


def deep(length):
    """A grammar whose trees are as deep as their strings are long, and such a string."""
    lexical = [[1, 0, 1.0], [0, 1, 0.1]]
    grammar = make_grammar(["S", "A", "TOP"], ["U:a", "U:b"], 2, [[0, 1, 0, 0.9]], lexical, [[2, 0, 1.0]])
    return make_model(grammar, ["U:%x[0,0]"], {}), " ".join(["a"] * (length - 1) + ["b"])


def test_sentences_beyond_the_memory_are_refused_with_the_line(monkeypatch):
    model, text = deep(60)
    monkeypatch.setattr(pcfg, "MEMORY", 100_000)
    few, more = model.longest(several=True), model.longest()
    assert few < more < 60
    for asked, most in (({}, more), ({"nbest": 2}, few)):
        with pytest.raises(EspalierError, match=f"line 2 of test has 60 words, and charts of at most {most} fit"):
            answers(model, f"a b\n{text}", **asked)


def test_explain_and_inspect_tell_of_rules(trained, capsysbinary):
    (trained / "one.txt").write_text("the dog sees a cat near a hill in every boat .\n")
    code, out, _ = told(capsysbinary, "-C", trained, "explain", "--json", "--top", 50, trained / "one.txt")
    found = json.loads(out)
    assert code == 0 and found["rest_count"] == 0
    assert sum(row["log_probability"] for row in found["rules"]) == pytest.approx(found["log_probability"])
    assert sum(row["share"] for row in found["rules"]) == pytest.approx(1.0)
    other = found["otherwise"]
    assert sum(row["adds"] for row in other["rules"]) + other["rest"] == pytest.approx(other["difference"])
    assert other["difference"] == pytest.approx(found["log_probability"] - other["log_probability"])
    _, out, _ = told(capsysbinary, "-C", trained, "explain", trained / "s.txt")
    assert "of that of all trees" in out and "the grammar cannot derive it" in out
    _, out, _ = told(capsysbinary, "-C", trained, "inspect", "--label", "NP", "--json", "--top", 3)
    assert [row["rule"].split("^")[0] for row in json.loads(out)["rules"]] == ["NP"] * 3
    code, _, err = told(capsysbinary, "-C", trained, "inspect", "--label", "XX")
    assert code == 1 and "label 'XX' is not one of the model's" in err


def test_commands_of_labels_name_those_of_trees(trained, capsysbinary):
    code, _, err = told(capsysbinary, "-C", trained, "tag", trained / "s.txt")
    assert code == 1 and "a model of pcfg, which cannot label tokens one by one: use `espalier parse`" in err
    with pytest.raises(EspalierError, match="pcfg cannot label tokens one by one"):
        CRF.load(trained / store.CHAMPION)
    said = "says how tokens in columns are read, and a model of pcfg reads sentences"
    for more in (("--words",), ("--separator", ",")):
        code, _, err = told(capsysbinary, "-C", trained, "explain", *more, trained / "s.txt")
        assert code == 1 and f"{more[0]} {said}" in err
    for text, words in (("(S (NN a)", "line 1 of .*never closed"), ("(S (NN a)) (S (NN b))", "has 2 trees")):
        (trained / "bad.txt").write_text(text)
        code, _, err = told(capsysbinary, "-C", trained, "parse", trained / "bad.txt")
        assert code == 1 and re.search(words, err)


def test_trees_are_drawn_from_a_grammar(trained, capsysbinary):
    model = load(trained / store.CHAMPION)
    code, out, _ = told(capsysbinary, "-C", trained, "sample", "-n", 400, "--seed", 2)
    drawn = [cleaned(tree) for tree in read_trees(out)]
    assert code == 0 and len(drawn) == 400 == len(out.splitlines())
    assert told(capsysbinary, "-C", trained, "sample", "-n", 400, "--seed", 2)[1] == out
    assert told(capsysbinary, "-C", trained, "sample", "-n", 400, "--seed", 3)[1] != out
    texts = [" ".join(word for _, word in leaves(tree)) for tree in drawn]
    assert {word for text in texts for word in text.split()} <= {text.removeprefix("U:") for text in model.observations}
    assert "()" not in answers(model, "\n".join(texts[:20]))
    uses = dict(zip(*(model.shown_table().column(name).to_pylist() for name in ("rule", "uses")), strict=True))
    tags = [tag for tree in drawn for tag, _ in leaves(tree)]
    expected = sum(n for rule, n in uses.items() if rule.startswith("NN -> "))
    assert tags.count("NN") / 400 == pytest.approx(expected, rel=0.15)  # five standard deviations
    assert max(len(leaves(tree)) for tree in model.sample(50, 1, longest=9)) <= 9
    for options, words in (({"n": -1}, "n is -1"), ({"n": 5, "longest": 4}, "of 600 trees of the grammar too few end")):
        with pytest.raises(EspalierError, match=words):
            model.sample(**options)
    odd = Tree("S", (Tree("NN", ("a b",)),))
    with pytest.raises(EspalierError, match="the sample has 'a b', which cannot stand in a tree: ask for another seed"):
        list(samples.lines([odd]))


def test_news_are_of_labels_and_not_of_pieces(trained):
    found = news.compare(trained)
    assert found["new_labels"] == found["lost_labels"] == [] and news.text(found).startswith("since the champion: no n")
    manifest = store.read_manifest(trained)
    manifest["labels"].append("(S(NX(FW*)")
    assert news.labels_of(manifest) - news.labels_of(store.read_manifest(trained)) == {"NX", "FW"}
    assert news.labels_of({"trees": True, "labels": ["((*", "*))"]}) == set()


def test_a_challenger_is_judged_by_brackets(trained):
    params = project(trained, horizontal=0, vertical=1, rare=40)
    found = run_stages(trained, params, *DATA, "train", "evaluate", "report", "promote")["promote"]
    assert found["measure"] == "bracket_f1" and found["champion_value"] > found["challenger_value"]
    assert {row["label"] for row in found["labels"]} <= {"S", "NP", "VP", "PP"}
    page = (trained / store.REPORT).read_text(encoding="utf-8")
    assert 'class="tree"' in page and "tree-wrong" in page and 'id="brackets-wide-t"' in page

"""Trees: read and written, made binary and whole again, counted, parsed, scored."""

import gzip
import math
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import brackets as oracle
from reference import grammar as enumeration

from espalier.engine.errors import EspalierError
from espalier.engine.families import pcfg
from espalier.engine.features import features_of
from espalier.engine.grammar.binary_trees import binarised, whole
from espalier.engine.grammar.treebank import TreebankOptions, frequent_terminals, make_treebank, terminals_of
from espalier.engine.labels.bracket_scores import compare, compare_all, spans
from espalier.engine.labels.trees import (
    Tree,
    bracketed,
    cleaned,
    leaves,
    pieces,
    plain_label,
    read_trees,
    tag_of,
    tree_of,
    written,
)
from espalier.engine.text.pattern_sets import shipped_lines

DATA = Path(os.environ.get("ESPALIER_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
CORPUS = DATA / "treebank-sample" / "trees-clean.txt.gz"
EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)
FULL = """( (S (NP-SBJ-1 (DT The) (NN dog))
       (VP (VBZ sees) (NP (NP (DT a) (NN cat)) (PP (IN in) (NP=2 (NN town)))) (NP (-NONE- *T*-1)))
       (. .)) )
(S (NP (-NONE- *)) (VP (VB Go)))"""
WORDS, TAGS, LABELS = ["a", "b", "the"], ["DT", "NN", ",", "."], ["S", "NP", "VP", "PRT", "ADVP"]


def texts():
    return [cleaned(tree) for tree in read_trees(FULL)]


tags = st.builds(lambda tag, word: Tree(tag, (word,)), st.sampled_from(TAGS), st.sampled_from(WORDS))
TREES = st.recursive(
    tags, lambda inner: st.builds(lambda label, children: Tree(label, tuple(children)), st.sampled_from(LABELS),
                                  st.lists(inner, min_size=1, max_size=5)), max_leaves=12,
).map(lambda tree: Tree("TOP", (tree,)))  # fmt: skip


# ---- reading and writing


def test_trees_are_read_on_any_number_of_lines_and_cleaned():
    first, second = texts()
    assert written(first) == (
        "((S (NP (DT The) (NN dog)) (VP (VBZ sees) (NP (NP (DT a) (NN cat)) (PP (IN in) (NP (NN town))))) (. .)))"
    )
    assert written(second) == "((S (VP (VB Go))))"
    kept = cleaned(next(read_trees(FULL)), functions=True)
    assert kept.children[0].children[0].label == "NP-SBJ-1"
    assert [word for _, word in leaves(first)] == "The dog sees a cat in town .".split()
    assert cleaned(next(read_trees("(S (NP (-NONE- *)))"))) is None
    assert [plain_label(x) for x in ("NP-SBJ-1", "NP=2", "-LRB-", "PRT|ADVP")] == ["NP", "NP", "-LRB-", "PRT|ADVP"]


@EXAMPLES
@given(TREES)
def test_what_is_written_is_read_again(tree):
    assert list(read_trees(written(tree) + "\n" + written(tree))) == [tree, tree]


@pytest.mark.parametrize(
    "text, told",
    [("(S (NP (NN a))\n\n(S (NN b))", "line 1 of f: a bracket opens that is never closed"),
     ("(S (NN a))\n)", "line 2 of f: a bracket closes that was not opened"),
     ("(S (NN a))\nword", "line 2 of f: 'word' stands outside of them"),
     ("(S\n())", "line 2 of f: a bracket has nothing in it: expected"),
     ("(S (NN a b))", "line 1 of f: 'a' stands beside others"),
     ("(" * 500, "line 1 of f: brackets nest deeper than 400")],
)  # fmt: skip
def test_broken_brackets_are_named_by_their_line(text, told):
    with pytest.raises(EspalierError, match=told.replace("(", r"\(")):
        list(read_trees(text, "f"))


# ---- binary trees


@EXAMPLES
@given(TREES, st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_binary_trees_become_whole_again(tree, horizontal, vertical, right):
    made = binarised(tree, horizontal, vertical, right)
    assert whole(made) == tree

    def widest(node):
        return 0 if node.word is not None else max(len(node.children), *map(widest, node.children))

    assert widest(made) <= 2 and leaves(made) == leaves(tree)


def test_half_rules_remember_what_went_before():
    tree = next(read_trees("(S (A (X a)) (B (X b)) (C (X c)) (D (X d)))"))
    assert written(binarised(tree, 1)) == "(S (A (X a)) (@S|A (B (X b)) (@S|B (C (X c)) (D (X d)))))"
    mirrored = "(S (@S|D (@S|D_C (A^S (X a)) (B^S (X b))) (C^S (X c))) (D^S (X d)))"
    assert written(binarised(tree, 2, 2, False)) == mirrored
    with pytest.raises(EspalierError, match="the label '@S' has '@' or"):
        pcfg.fit(list(read_trees("(@S (NN a))")), ["U:%x[0,0]"])


# ---- trees as labels of words


def test_trees_are_pieces_as_in_conll_2012():
    first, _ = texts()
    assert pieces(first)[:4] == ["(TOP(S(NP(DT*)", "(NN*))", "(VP(VBZ*)", "(NP(NP(DT*)"]
    assert [tag_of(piece) for piece in pieces(first)] == [tag for tag, _ in leaves(first)]
    assert tag_of("") == tag_of("*") == tag_of("(*)") == "" and tag_of("(NP(*)") == ""
    bare = bracketed("(DT (JJ NN)) VB ((NN))", "f", 1)
    assert pieces(bare) == ["((*", "(*", "*))", "*", "((*)))"]
    assert tree_of(pieces(bare), "DT JJ NN VB NN".split()) == bare


@EXAMPLES
@given(TREES, st.booleans())
def test_pieces_make_the_tree_again(tree, outermost):
    tree = tree if outermost or tree.children[0].word else tree.children[0]
    words = [word for _, word in leaves(tree)]
    assert tree_of(pieces(tree), words) == tree and len(pieces(tree)) == len(words)


@pytest.mark.parametrize(
    "labels", [["(S(A*)", "(B*)"], ["(A*))", "(B*)"], ["(A*)", "(B*)"], ["(S(A*)", ""], ["O", "B-X"]]
)
def test_labels_that_are_no_tree_have_none(labels):
    assert tree_of(labels) is None


def test_labels_that_pieces_cannot_hold_are_refused():
    with pytest.raises(EspalierError, match=r"the label 'N\*' has a bracket or an asterisk"):
        pieces(Tree("S", (Tree("N*", ("a",)),)))


@pytest.mark.parametrize(
    "text, told",
    [("(a (b)", "line 7 of f: a bracket opens that is never closed"), ("a) b", "line 7 of f: a bracket closes that"),
     ("a () b", "line 7 of f: a bracket has nothing in it"), ("(" * 500, "line 7 of f: brackets nest deeper than 400")],
)  # fmt: skip
def test_broken_brackets_without_labels_are_named_by_their_line(text, told):
    with pytest.raises(EspalierError, match=told.replace("(", r"\(")):
        bracketed(text, "f", 7)


# ---- counted and parsed

WORD = ["U:%x[0,0]"]
CLASSES = shipped_lines("espalier:trees")


def small():
    """(S (A a) (B b)) twice, (S (A a) (S (A a) (B b))) once, (S (U (A a))) once."""
    lines = ["(S (A a) (B b))"] * 2 + ["(S (A a) (S (A a) (B b)))", "(S (U (A a)))"]
    return list(read_trees("\n".join(lines)))


def data_of(model, sentences):
    columns = [pa.array([word for words in sentences for word in words], pa.large_string())]
    return features_of(model, columns, np.cumsum([0, *map(len, sentences)]))


def parse(model, sentences):
    words = [word for some in sentences for word in some]
    return [found and found.tree for found in model.parses(data_of(model, sentences), words)]


def test_a_treebank_is_relative_counts():
    grammar = pcfg.fit(small(), WORD, TreebankOptions(vertical=1, rare=0)).grammar
    found = {grammar.rule(n): p for n, p in enumerate(grammar.probabilities.tolist())}
    certain = {"U -> A": 1.0, "A -> 'U:a'": 1.0, "B -> 'U:b'": 1.0}
    assert found == {"S -> A B": 0.6, "S -> A S": 0.2, "S -> U": 0.2} | certain


def test_trees_count_as_much_as_their_weight():
    rows, options = np.array([0, 1] * 2 + [0, 0, 1] + [0])[:, None], TreebankOptions(vertical=1, rare=0)
    twice = make_treebank([*small(), *small()], np.concatenate([rows, rows]), ["a", "b"], options)
    heavy = make_treebank(small(), rows, ["a", "b"], options, [2.0] * 4)
    for one, other in zip(twice.grammar, heavy.grammar, strict=True):
        assert np.array_equal(one, other)
    assert twice.objective == heavy.objective == pytest.approx(-2 * (3 * math.log(0.6) + 2 * math.log(0.2)))


def test_the_likeliest_tree_of_a_treebank_is_that_of_the_enumeration():
    other = next(read_trees("(TOP (S (NP (NN town)) (VP (VBZ sees) (NP (NN dog)))))"))
    model = pcfg.fit([texts()[0], other], WORD, TreebankOptions(rare=0))
    grammar = model.grammar
    rules = enumeration.Rules(
        grammar.start,
        [(int(a), int(b), int(c), p) for a, b, c, p in zip(*grammar[3:7], strict=True)],
        [(int(a), int(w), p) for a, w, p in zip(*grammar[7:10], strict=True)],
        [(int(a), int(b), p) for a, b, p in zip(*grammar[10:13], strict=True)],
    )
    for text in ("town sees dog", "The dog sees a cat in town .", "The cat sees town ."):
        data = data_of(model, [text.split()])
        found = enumeration.best(rules, model.strings(data).words.tolist(), 1, (), 4)
        best = model.parses(data)[0]
        assert (best.log_p if best else -math.inf) == (pytest.approx(math.log(found[0][0])) if found else -math.inf)
    assert parse(model, ["The dog sees a cat in town .".split()]) == texts()[:1]
    assert parse(model, [["dog", "dog"]]) == [None]


def test_rare_words_tell_how_unknown_ones_are_tagged():
    model = pcfg.fit(texts(), CLASSES, TreebankOptions(rare=1))
    assert parse(model, ["The bird sees a cat in town .".split()])[0] is not None
    totals = np.bincount(model.grammar.owners, model.grammar.probabilities)
    assert totals == pytest.approx(np.ones(len(totals)))
    assert np.isfinite(model.log_likelihood(data_of(model, [["The", "x"], ["Go"]]))[1])
    frequent = pcfg.fit([*texts(), *texts()], CLASSES, TreebankOptions(rare=1))  # no word is rare: any tag may be
    assert parse(frequent, ["The bird sees a cat in town .".split()])[0] is not None


def test_words_are_left_to_their_classes_as_far_as_these_are_frequent():
    rows = np.array([[0, 4, 6], [0, 4, 6], [1, 4, 6], [2, 5, 6], [3, -1, 6], [2, 4, 6]])
    assert np.flatnonzero(frequent_terminals(rows, 7, 1)).tolist() == [0, 2, 6]
    assert np.flatnonzero(frequent_terminals(rows[:5], 7, 0)).tolist() == [0, 1, 2, 3]
    rows = np.array([[0, 4, 6], [1, 4, 6], [2, 5, 6], [3, 5, 6], [3, 5, 6], [7, -1, 6], [8, -1, 6]])
    assert np.flatnonzero(frequent_terminals(rows, 9, 1)).tolist() == [3, 4, 6]
    known = np.full(10, -1)
    known[[3, 4, 6]] = 0, 1, 2
    assert terminals_of(rows, known).tolist() == [1, 1, 2, 0, 0, 2, 2]


def test_a_treebank_needs_trees_of_one_kind():
    with pytest.raises(EspalierError, match="there is no tree to count rules of"):
        pcfg.fit([], WORD)
    with pytest.raises(EspalierError, match="trees begin with S, X: expected one label"):
        pcfg.fit(list(read_trees("(S (NN a)) (X (NN a))")), WORD)


# ---- scores


def as_tuple(tree):
    return (tree.label, *(child if isinstance(child, str) else as_tuple(child) for child in tree.children))


@EXAMPLES
@given(TREES, st.data())
def test_scores_are_those_of_the_oracle(gold, data):
    """The other tree is of the same words: another grouping of the same tags, some of them changed."""
    below = [Tree(tag if tag in ",." else data.draw(st.sampled_from([tag, tag, "NN"])), (word,))
             for tag, word in leaves(gold)]  # fmt: skip
    while len(below) > 1:
        i = data.draw(st.integers(0, len(below) - 1))
        j = data.draw(st.integers(i + 1, min(len(below), i + 3)))
        below[i:j] = [Tree(data.draw(st.sampled_from(LABELS)), tuple(below[i:j]))]
        if j == i + 1 and data.draw(st.booleans()):
            break
    predicted = Tree("TOP", tuple(below))
    found = compare(gold, predicted)
    assert found[3:] == oracle.scores(as_tuple(gold), as_tuple(predicted))
    assert found.exact == (sorted(oracle.counted(as_tuple(gold))) == sorted(oracle.counted(as_tuple(predicted))))


def test_trees_may_be_deeper_than_calls_nest():
    """Those that a grammar puts over long sentences."""
    deep = 1200
    tree = Tree("S", (Tree("B", ("b",)),))
    for _ in range(deep - 1):
        tree = Tree("S", (Tree("A", ("a",)), tree))
    assert written(tree) == "(S (A a) " * (deep - 1) + "(S (B b)" + ")" * deep
    made = pieces(tree)
    assert made[0] == "(S(A*)" and made[-1] == "(S(B*)" + ")" * deep
    again = tree_of(made)
    assert compare(again, again)[2:6] == (1, deep, deep, deep)


def test_scores_by_hand():
    gold, other = (next(read_trees(text)) for text in (
        "(TOP (S (NP (DT a) (NN b)) (VP (VB c) (PRT (RP d))) (. .)))",
        "(TOP (S (NP (DT a)) (VP (NN b) (VP (NN c) (ADVP (RP d)))) (. .)))"))  # fmt: skip
    assert spans(gold) == {("S", 0, 4): 1, ("NP", 0, 2): 1, ("VP", 2, 4): 1, ("ADVP", 3, 4): 1}
    counts = compare_all([gold, gold, gold], [other, gold, None])
    assert (counts.sentences, counts.missing, counts.exact) == (3, 1, 1)
    assert (counts.gold, counts.predicted, counts.labelled, counts.crossing) == (12, 9, 7, 1)
    figures = counts.figures()
    assert figures["labelled_f1"] == pytest.approx(2 * 7 / 21) and figures["tag_accuracy"] == pytest.approx(7 / 12)
    assert not set(figures) & set(counts._fields), "shares and counts stand side by side in the metrics"
    spoilt = next(read_trees("(TOP (S (NP (DT a) (NN b)) (VP (VB c) (PRT (RP d))) (X .)))"))
    assert compare(gold, spoilt)[2:8] == compare(gold, gold)[2:8]  # the right tree says what is punctuation
    with pytest.raises(EspalierError, match="expected the same"):
        compare(gold, next(read_trees("(TOP (S (NN z)))")))


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_file(), reason="there is no treebank sample")
def test_the_sample_is_read_binarised_and_parsed_as_well_as_it_was():
    """All 3,914 trees; 100 test sentences of at most 25 words by a grammar of the first 3,000."""
    trees = [cleaned(tree) for tree in read_trees(gzip.decompress(CORPUS.read_bytes()).decode(), CORPUS.name)]
    assert len(trees) == 3_914 and sum(len(leaves(tree)) for tree in trees) == 94_084
    assert all(whole(binarised(tree, 1, 2, side)) == tree for tree in trees[::20] for side in (True, False))
    gold = [tree for tree in trees[3_000:] if len(leaves(tree)) <= 25][:100]
    model = pcfg.fit(trees[:3_000], CLASSES)
    counts = compare_all(gold, parse(model, [[word for _, word in leaves(tree)] for tree in gold]))
    assert counts.missing <= 2 and counts.figures()["labelled_f1"] > 0.72

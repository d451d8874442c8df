"""Trees in the report: how they are drawn, what is marked, and what is said of brackets and rules."""

import re

import pyarrow as pa
import pytest

from espalier.engine.labels.trees import Tree, leaves, pieces, read_trees
from espalier.tasks.pages import tree_picture
from espalier.tasks.report import trees
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.words import NO_ANSWER, Nouns, tagged

NOUNS = Nouns("word", "tag", "sentence")
RIGHT = "((S (NP (DT the) (NN dog)) (VP (VBZ sits) (PRT (RP down)) (PP (IN by) (NP (PRP it)))) (. .)))"
SAID = "((S (NP (DT the) (NN dog)) (VP (VBZ sits) (ADVP (RB down) (PP (IN by) (NP (PRP it))))) (. .)))"


def one(text):
    return next(read_trees(text))


def predictions(*pairs):
    """A table as evaluation writes it, of right and predicted trees; None is no tree."""
    rows = {name: [] for name in ("sequence", "x0", "tree", "predicted_tree")}
    for n, (right, said) in enumerate(pairs):
        words = [word for _, word in leaves(right)]
        rows["sequence"] += [n] * len(words)
        rows["x0"] += words
        rows["tree"] += pieces(right)
        rows["predicted_tree"] += pieces(said) if said else [""] * len(words)
    return pa.table(rows | {"sequence": pa.array(rows["sequence"], pa.int32())})


def texts(drawn, kind):
    found = re.findall(rf'<text x="([0-9.]+)" y="([0-9.]+)" class="tree-{kind}"[^>]*>([^<]*)</text>', str(drawn))
    return [(float(x), float(y), name) for x, y, name in found]


def test_a_word_in_each_row_and_labels_in_that_of_their_first_word():
    drawn = tree_picture.draw(one(RIGHT), "Right tree", lambda *of: of[0] == "VP")
    words, labels = texts(drawn, "word"), texts(drawn, "label")
    assert [name for _, _, name in words] == "the dog sits down by it .".split()
    assert len({y for _, y, _ in words}) == 7 and [y for _, y, _ in words] == sorted(y for _, y, _ in words)
    row = {name: y for _, y, name in words}
    assert [(name, y) for _, y, name in labels] == [
        ("S", row["the"]), ("NP", row["the"]), ("PRT", row["down"]), ("PP", row["by"]), ("NP", row["it"])]  # fmt: skip
    assert [(name, y) for _, y, name in texts(drawn, "wrong")] == [("VP", row["sits"])]
    depth = {name: x for x, _, name in labels}
    assert depth["S"] < depth["PRT"] == depth["PP"] < depth["NP"]
    width, height = (float(found) for found in re.search(r'width="([0-9]+)" height="([0-9]+)"', str(drawn)).groups())
    assert all(x < width and y < height for x, y, _ in words)


def test_two_trees_over_the_same_words_have_the_same_rows():
    rows = [[y for _, y, _ in texts(tree_picture.draw(one(text), "", lambda *of: False), "word")]
            for text in (RIGHT, SAID)]  # fmt: skip
    assert rows[0] == rows[1]


def test_brackets_that_the_other_tree_has_not_are_marked_as_evalb_counts():
    (judged,) = trees.sentences(predictions((one(RIGHT), one(SAID))))
    page = str(trees.worst([judged], NOUNS, 5))
    right, said = page.split("Predicted tree")
    assert [name for *_, name in texts(right, "wrong")] == ["PRT"]  # PRT and ADVP are one, but over other words
    assert [name for *_, name in texts(said, "wrong")] == ["ADVP"]
    same = one(SAID.replace("ADVP", "PRT"))
    (judged,) = trees.sentences(predictions((one(SAID), same)))
    assert judged.counts.exact == 1 and "No sentence has a wrong bracket" in str(trees.worst([judged], NOUNS, 5))


def test_brackets_without_labels_are_compared_without():
    a, b, c = (Tree("", (name,)) for name in "abc")
    right = Tree("", (Tree("", (a, b)), c))
    wrong, same = Tree("N0", (a, Tree("N1", (b, c)))), Tree("N0", (Tree("N2", (a, b)), c))
    first, second = trees.sentences(predictions((right, wrong), (right, same)))
    assert (first.counts.labelled, first.counts.exact, second.counts.labelled, second.counts.exact) == (1, 0, 2, 1)
    page = str(trees.worst([first, second], NOUNS, 5))
    assert "The 1 sentence with the most wrong brackets" in page
    assert len(texts(page, "wrong")) == 2 and {name for *_, name in texts(page, "wrong")} == {tree_picture.DOT}
    brackets = {"gold": 4, "missing": 0, "unlabelled_precision": 0.75, "unlabelled_recall": 0.75,
                "unlabelled_f1": 0.75, "exact_share": 0.5}  # fmt: skip
    told = str(trees.brackets([first, second], {"brackets": brackets}, NOUNS))
    assert "Without labels" in told and "With labels" not in told and "50.00%" in told and "by label" not in told


def test_a_sentence_without_a_tree_says_so():
    found = trees.sentences(predictions((one(RIGHT), None)))
    assert "The grammar cannot derive it. Right:" in str(trees.worst(found, NOUNS, 5))
    table = predictions((one(RIGHT), None))
    columns = {"label": ["DT"] * 7, "predicted": ["DT", *[""] * 6], "confidence": [None] * 7,
               "gold_probability": [None] * 7}  # fmt: skip
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    assert tagged(table)[0].said == ["DT", *[NO_ANSWER] * 6]


def test_rules_of_words_are_told_by_what_is_seen_of_a_word():
    rules = {"S -> NP VP": None, "NN -> 'U:dog'": "U:dog", "NN -> 'U'": "U", "POS -> \"U:'s\"": "U:'s"}
    shown = pa.table({"label": [rule.split()[0] for rule in rules], "rule": list(rules), "word": list(rules.values()),
                      "weight": [1.0, 0.5, 0.5, 1.0], "uses": [1.0] * 4})  # fmt: skip
    told = str(trees.rules(shown, Phrases(["U:%x[0,0]", "U"], NOUNS), NOUNS, 5))
    labels, words = told.split("Rules of words")
    assert "S -&gt; NP VP" in labels and "POS" not in labels
    for text in ("NN -&gt; [dog]", "NN -&gt; any word", "POS -&gt; [&#x27;s]"):
        assert text in words or text.replace("&#x27;", "'") in words
    assert trees.rules(shown, Phrases([], NOUNS), NOUNS, 0) is None


@pytest.mark.parametrize("length, shown", [(40, True), (41, False)])
def test_long_sentences_are_not_drawn(length, shown):
    right = one(f"((S {' '.join('(N w)' for _ in range(length - 1))} (NP (N w))))")
    said = one(f"((S {' '.join('(N w)' for _ in range(length))}))")
    page = str(trees.worst(trees.sentences(predictions((right, said))), NOUNS, 5))
    assert ("<svg" in page) == shown

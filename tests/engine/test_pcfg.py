"""Grammars as models: what is said of data, by enumeration; the file, and files that are none."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from reference import grammar as enumeration
from tree_data import trees

from espalier.engine import families, model_file
from espalier.engine.errors import EspalierError
from espalier.engine.families import pcfg
from espalier.engine.features import features_of
from espalier.engine.grammar.closures import star
from espalier.engine.grammar.rules import expected_uses
from espalier.engine.labels.trees import cleaned, leaves, pieces, read_trees
from espalier.engine.runtime import threads
from espalier.engine.text.pattern_sets import shipped_lines

SENTENCES = ["the dog sees a cat .", "a zeppelin likes every old boat near the hill .", "dog dog", "a",
             "every man finds"]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    kept = [cleaned(tree) for text in trees(40) for tree in read_trees(text)]
    return pcfg.fit(kept, shipped_lines("espalier:trees"))


def data_of(model, sentences=SENTENCES):
    words = [text.split() for text in sentences]
    flat = pa.array([word for some in words for word in some], pa.large_string())
    return features_of(model, [flat], np.cumsum([0, *map(len, words)]))


def rules_of(grammar):
    return enumeration.Rules(
        grammar.start, [(int(a), int(b), int(c), p) for a, b, c, p in zip(*grammar[3:7], strict=True)],
        [(int(a), int(w), p) for a, w, p in zip(*grammar[7:10], strict=True)],
        [(int(a), int(b), p) for a, b, p in zip(*grammar[10:13], strict=True)],
    )  # fmt: skip


def answers(model):
    data = data_of(model)
    said = [tree.log_p for some in model.several(data, 3, ["w"] * len(data.labels)) for tree in some]
    return model.texts_of(model.decoded(data)), model.log_likelihood(data).tolist(), said


def test_trees_and_log_probabilities_are_those_of_the_enumeration(model):
    data, words = data_of(model), [word for text in SENTENCES for word in text.split()]
    best, log_p, several = model.parses(data, words), model.log_likelihood(data), model.several(data, 4, words)
    strings, said = model.strings(data), model.decoded(data)
    for n in range(len(SENTENCES)):
        found = enumeration.best(rules_of(model.grammar), strings.row(n)[0].tolist(), 2, (), 50)
        if not found:
            assert best[n] is None and log_p[n] == -math.inf and several[n] == []
            assert set(said[data.offsets[n] : data.offsets[n + 1]]) == {""}
            continue
        assert best[n].log_p == pytest.approx(math.log(found[0][0]), abs=1e-10)
        assert log_p[n] == pytest.approx(math.log(sum(p for p, _ in found)), abs=1e-10)
        assert [tree.log_p for tree in several[n]] == pytest.approx([math.log(p) for p, _ in found[:4]], abs=1e-10)
        assert [word for _, word in leaves(best[n].tree)] == SENTENCES[n].split()
        assert said[data.offsets[n] : data.offsets[n + 1]].tolist() == pieces(best[n].tree)
    assert [tree is None for tree in best] == [False, False, True, True, True]


def test_a_sentence_is_parsed_as_if_it_were_alone_and_by_any_number_of_threads(model):
    together, alone = answers(model)[0], []
    for text in SENTENCES:
        alone += model.texts_of(model.decoded(data_of(model, [text])))
    assert together == alone
    found = []
    try:
        for count in (1, 2, 8):
            threads.set_threads(count)
            found.append(answers(model))
    finally:
        threads.set_threads(None)
    assert found[0] == found[1] == found[2]
    assert len(model.decoded(data_of(model, []))) == 0 and len(model.log_likelihood(data_of(model, []))) == 0


def test_expected_uses_are_those_of_the_closure(model):
    g = model.grammar
    m = np.zeros((len(g.symbols), len(g.symbols)))
    for a, b, c, p in zip(*g[3:7], strict=True):
        m[a, b] += p
        m[a, c] += p
    for a, b, p in zip(*g[10:13], strict=True):
        m[a, b] += p
    visits = star(m, "symbols")[g.start]
    assert expected_uses(g) == pytest.approx(visits[g.owners] * g.probabilities, abs=1e-7)
    shown = model.shown_table().to_pylist()
    assert [row["uses"] for row in shown] == sorted((row["uses"] for row in shown), reverse=True)
    assert shown[0]["uses"] >= 1.0 and len(shown) == sum(model.sizes().values()) == g.size


# ---- the file


def test_what_is_saved_comes_back_and_says_the_same(model, tmp_path):
    model.save(tmp_path / "a.model")
    again = families.load(tmp_path / "a.model")
    assert isinstance(again, pcfg.PcfgModel) and answers(again) == answers(model)
    again.save(tmp_path / "b.model")
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()


def spoilt(model, path, change=lambda rules: rules, head=lambda head: head):
    """A file whose checksum fits what is wrong in it."""
    rules = {name: model.tables()["rules"].column(name).to_pylist() for name in pcfg.RULES.names}
    changed = change(rules)
    symbols, words = model.grammar.symbols, model.observations
    columns = {}
    for field in pcfg.RULES:
        values = changed[field.name]
        if pa.types.is_dictionary(field.type):
            names = words if field.name == "word" else symbols
            codes = pa.array([None if one is None else names.index(one) for one in values], pa.int32())
            columns[field.name] = pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string()))
        else:
            columns[field.name] = pa.array(values, field.type)
    tables = {"rules": pa.table(columns, schema=pcfg.RULES)}
    told = head(json.loads(json.dumps(model.head())))
    model_file.write(path, told | {"checksum": model_file.checksum(told, tables)}, tables)


def put(column, row, value):
    def change(rules):
        rules[column][row] = value
        return rules

    return change


@pytest.mark.parametrize(
    "change, told",
    [(put("probability", 0, 0.5), "rules of .* sum to"), (put("probability", 0, -0.1), "a rule has probability -0.1"),
     (put("right", 0, None), "rules that are none"), (put("word", 0, "U:the"), "rules that are none"),
     (put("left", -1, None), "rules that are none"),
     (lambda rules: {name: column[::-1] for name, column in rules.items()}, "rules that are none, or not in"),
     (lambda rules: {name: [column[1], column[0], *column[2:]] for name, column in rules.items()}, "not in their"),
     (lambda rules: {name: [column[0], *column] for name, column in rules.items()}, "occurs twice"),
     (lambda rules: {name: [] for name in rules}, "rules that are none")],
)  # fmt: skip
def test_files_of_rules_that_are_none_are_refused(model, tmp_path, change, told):
    path = tmp_path / "a.model"
    spoilt(model, path)
    assert answers(families.load(path)) == answers(model)
    spoilt(model, path, change)
    with pytest.raises(EspalierError, match=f"{path}.*{told}.*train it again"):
        families.load(path)


@pytest.mark.parametrize(
    "head, told",
    [({"start_symbol": "X"}, "start_symbol 'X' is none of its"), ({"start_symbol": 3}, "start_symbol 3 is none"),
     ({"labels": ["S"]}, "its labels are not those of its rules"), ({"labels": []}, "the labels are empty")],
)  # fmt: skip
def test_heads_that_do_not_fit_are_refused(model, tmp_path, head, told):
    spoilt(model, tmp_path / "a.model", head=lambda all_of_it: all_of_it | head)
    with pytest.raises(EspalierError, match=told):
        families.load(tmp_path / "a.model")


def test_what_only_labels_of_tokens_have_is_refused(model):
    with pytest.raises(EspalierError, match="^pcfg cannot label tokens one by one: set model.family to one of crf"):
        model.require("labels")
    with pytest.raises(EspalierError, match="^pcfg cannot say how likely its labels are: "):
        model.require("probability")

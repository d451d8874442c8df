"""Templates evaluated over columns against a look at each token."""

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from reference import templates as reference
from template_cases import LISTS, cases

from espalier.engine.text import lookup
from espalier.engine.text.templates import expand_rows
from espalier.tasks.store import sequence_offsets
from espalier.tasks.templating.expansion import column_names, encode, expand, parse, resolve

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=200)


def table_of(sequences, width=None):
    """Sequences of rows of values as a token table."""
    width = width or len(sequences[0][0])
    columns = {"sequence": pl.Series([n for n, s in enumerate(sequences) for _ in s], dtype=pl.Int32)}
    for i in range(width):
        columns[f"x{i}"] = pl.Series([row[i] for s in sequences for row in s], dtype=pl.String)
    return pl.DataFrame(columns)


@EXAMPLES
@given(cases())
@example(([[["a"]]], ["U"]))
@example(([[["a"]]], ["B", "U:%x[-9,0]%x[9,0]"]))
@example(([[["a"]], [["b"], ["a"]]], ["U:%x[@-9,0]%x[@9,0]%x[@0,0]%x[@2,0]"]))
@example(([[["a"], ["abc"]]], ["U:%g[-1,0,2]/%x[0,0]", "U:%g[0,0,2,2]"]))
def test_three_evaluators_give_what_a_look_at_each_token_gives(case):
    sequences, lines = case
    templates, tokens = parse(lines, lists=LISTS), table_of(sequences)
    expected = reference.expand(sequences, lines, LISTS)
    found = expand(tokens, templates)
    assert found.columns == column_names(templates)
    for codes, texts, _, _ in encode(tokens, templates):
        assert set(codes.tolist()) - {-1} == set(range(len(texts)))  # each text occurs
    assert [[text for text in row if text is not None] for row in found.iter_rows()] == expected
    assert [row for rows in sequences for row in expand_rows(templates, rows)] == expected
    names = sorted({text for row in expected for text in row})
    ids = found_ids(tokens, templates, names[::2])
    assert ids.shape == found.shape
    rows = [[-1 if text is None or text not in names[::2] else names[::2].index(text) for text in row]
            for row in found.iter_rows()]  # fmt: skip
    assert ids.tolist() == rows


def found_ids(tokens, templates, names):
    """Ids by hash, as in tagging."""
    columns = [tokens[name].to_arrow().cast(pa.large_string()) for name in tokens.columns if name != "sequence"]
    offsets = sequence_offsets(tokens["sequence"].to_numpy())
    return lookup.find(lookup.make_vocabulary(names), templates, columns, offsets)


def test_a_block_of_whole_sequences_needs_no_other():
    """What one block yields does not depend on what else is in it."""
    lines = ["U:%x[-4,0]/%x[-1,0]/%x[1,0]/%x[@-1,0]", 'U1:%l[0,0,"names.txt"]', "U2:%g[0,0,2]", "U3:%S[1,0,1]"]
    sequence, other = [["a"], ["b"], ["a"]], [["b"]] * 3
    templates = parse(lines, lists=LISTS)
    alone = expand(table_of([sequence]), templates).rows()
    assert expand(table_of([other, sequence, other]), templates).rows()[3:6] == alone


def test_resolving_looks_at_the_training_tokens():
    train = table_of([[["ab", "1"], ["abcd", "3"]], [["a", "5"], ["b", "x"]]])
    found = resolve(parse(["U:%q[0,1,3]", "U:%g[0,0,3]", "B"]), [train[:1], train[1:]])
    assert [template.line for template in found] == ['U:%q[0,1,"3.0 5.0"]', "U:%g[0,0,3,4]", "B"]
    assert expand(train, found)["t00"].to_list() == ["U:0", "U:1", "U:2", "U:nan"]
    assert expand(train, found).columns == ["t00", "t01", "t01.1", "t01.2", "t01.3", "t02"]
    assert resolve(found, map(pytest.fail, ["nothing is left to decide"])) == found


def test_boundaries_by_hand():
    sequences = [[["a"], ["b"]], [["c"]]]
    found = expand(table_of(sequences), parse(["U:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]"]))
    assert found["t00"].to_list() == ["U:_x-2/_x-1/a/b/_x+1", "U:_x-1/a/b/_x+1/_x+2", "U:_x-2/_x-1/c/_x+1/_x+2"]


def test_nothing_of_a_neighbouring_sequence_is_seen():
    """The same sequence gives the same observations alone and among others."""
    sequence, other = [["a"], ["b"], ["a"]], [["z"]] * 3
    templates = parse(["U:%x[-4,0]/%x[-1,0]/%x[1,0]/%x[4,0]"])
    alone = expand(table_of([sequence]), templates)["t00"].to_list()
    assert expand(table_of([other, sequence, other]), templates)["t00"].to_list()[3:6] == alone
    assert not any("z" in text for text in alone)


def test_templates_with_one_text_share_their_observations():
    """As in CRF++: the name of a template is part of its observations, and only the name tells them apart."""
    found = expand(table_of([[["a"], ["b"]]]), parse(["U:%x[-1,0]", "U:%x[0,0]", "U1:%x[0,0]"]))
    assert found.rows() == [("U:_x-1", "U:a", "U1:a"), ("U:a", "U:b", "U1:b")]


@pytest.mark.parametrize("templates", [["U"], ["U", "B"], ["U", "B:%x[0,0]"], ["U:%x[-1,0]"]])
@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_constant_templates_have_as_many_rows_as_there_are_tokens(templates, tokens):
    found = expand(table_of([[["a"]]] * tokens, width=1), parse(templates))
    assert found.shape == (tokens, len(templates))
    assert set(found.dtypes) == {pl.String}


def test_more_than_a_hundred_templates():
    found = expand(table_of([[["a"]]]), parse([f"U{i}:%x[0,0]" for i in range(103)]))
    assert found.columns[99:] == ["t99", "t100", "t101", "t102"]
    assert found.row(0)[102] == "U102:a"

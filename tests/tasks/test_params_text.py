"""A value written into a parameter file: the file says it, and all else in it is as it was."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from espalier.engine.errors import EspalierError
from espalier.tasks.params import default_yaml, load_params
from espalier.tasks.params_text import with_value

MORE = ["raw/a.conll", "raw/b: c.conll"]


def changed_lines(before, after):
    old = before.splitlines()
    return [line for line in after.splitlines() if line not in old]


def test_the_file_with_all_parameters_changes_in_one_line():
    before = default_yaml()
    after = with_value(before, "ingest", "more", MORE)
    assert changed_lines(before, after) == ['  more: ["raw/a.conll", "raw/b: c.conll"]']
    assert after.replace('more: ["raw/a.conll", "raw/b: c.conll"]', "more: null", 1) == before
    assert with_value(after, "ingest", "more", None) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 'ingest:\n  more: ["x"]\n'),
        ("# mine\n", '# mine\ningest:\n  more: ["x"]\n'),
        ("crf: {rho1: 1}", 'crf: {rho1: 1}\ningest:\n  more: ["x"]\n'),
        ("{crf: {rho1: 1}}", '{crf: {rho1: 1}, ingest: {more: ["x"]}}'),
        ("{}", '{ingest: {more: ["x"]}}'),
        ("ingest:  # mine\ncrf: {rho1: 1}\n", 'ingest:\n  more: ["x"]  # mine\ncrf: {rho1: 1}\n'),
        ("ingest:\n  path: a # why\n\n# crf\ncrf:\n", 'ingest:\n  path: a # why\n  more: ["x"]\n\n# crf\ncrf:\n'),
        ("ingest:\n    more:\n    path: a", 'ingest:\n    more: ["x"]\n    path: a'),
        ("ingest:\n  more: ~ # none\n", 'ingest:\n  more: ["x"] # none\n'),
        ("ingest: {path: a}\n", 'ingest: {path: a, more: ["x"]}\n'),
        ("ingest: {}\n", 'ingest: {more: ["x"]}\n'),
        ("ingest: {more: [b], path: a} # c\n", 'ingest: {more: ["x"], path: a} # c\n'),
        ("ingest:\r\n  more: null\r\n", 'ingest:\r\n  more: ["x"]\r\n'),
        ("ingest:\n  more:  # files\n    - b # old\n  # end\n  path: a\n",
         'ingest:\n  more:  # files\n    ["x"] # old\n  # end\n  path: a\n'),
    ],
)  # fmt: skip
def test_wherever_it_belongs(text, expected):
    found = with_value(text, "ingest", "more", ["x"])
    assert found == expected
    assert yaml.safe_load(found)["ingest"]["more"] == ["x"]


def test_a_list_that_grows_keeps_the_comments_in_it():
    before = "ingest:\n  # added\n  more:\n  - a.conll  # of May\n  - b.conll  # of June\n  # the end\n  path: x\n"
    after = with_value(before, "ingest", "more", ["a.conll", "b.conll", "c.conll"])
    assert after == before.replace("# of June\n", '# of June\n  - "c.conll"\n')


def test_what_cannot_be_written_safely_is_refused():
    with pytest.raises(EspalierError, match="ingest.more cannot be written into this file as it stands: set it to"):
        with_value("ingest: &a {path: x}\nother: *a\n", "ingest", "more", ["x"])


@given(st.text(), st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])), min_size=1))
def test_any_texts_and_comments(comment, more):
    comment = "".join(character for character in comment if character.isprintable())
    before = f"# {comment}\ningest:  # {comment}\n  path: a\ncrf:\n  rho1: 1\n  # {comment}\n"
    after = with_value(before, "ingest", "more", more)
    assert yaml.safe_load(after)["ingest"] == {"path": "a", "more": more}
    assert all(line in after.split("\n") for line in before.split("\n"))


def test_dvc_keeps_comments_too(tmp_path):
    """`dvc exp run -S` writes in a style of its own."""
    from dvc.utils.serialize import modify_yaml

    path = tmp_path / "params.yaml"
    path.write_text(default_yaml(), encoding="utf-8")
    with modify_yaml(str(path)) as data:
        data["crf"]["rho1"] = 2
    comments = [line for line in default_yaml().splitlines() if line.strip().startswith("#")]
    assert [line for line in path.read_text().splitlines() if line.strip().startswith("#")] == comments
    assert load_params(path).crf.rho1 == 2

"""Templates in a file of their own, and the files that templates name."""

import pytest

from espalier.engine.errors import EspalierError
from espalier.tasks.params import TemplateParams
from espalier.tasks.templating.pattern_files import named_lists, read_templates, template_lines


def options(**values):
    return TemplateParams(**({"lines": None} | values))


def refusal(root, **values):
    with pytest.raises(EspalierError) as caught:
        read_templates(root, options(**values))
    return str(caught.value)


def test_lines_or_a_file(tmp_path):
    (tmp_path / "pattern.txt").write_bytes("\ufeff# CRF++\r\nU00:%x[0,0]\r\n\r\nB".encode())
    assert [t.line for t in read_templates(tmp_path, options(file="pattern.txt"))[0]] == ["U00:%x[0,0]", "B"]
    assert [t.line for t in read_templates(tmp_path, options(lines=["U", "B"]))[0]] == ["U", "B"]


def test_both_or_none_are_refused(tmp_path):
    both = "template.file is 'p' and template.lines holds templates too: expected one of them, set the other to null"
    assert refusal(tmp_path, file="p", lines=["U"]) == both
    assert refusal(tmp_path) == "template.lines and template.file are both null: expected templates in one of them"


def test_errors_name_the_file_and_the_line(tmp_path):
    path = tmp_path / "pattern.txt"
    path.write_text("U\n\nQ:%x[0,0]\n", encoding="utf-8")
    assert refusal(tmp_path, file="pattern.txt").startswith("pattern.txt, line 3: `Q:%x[0,0]` begins with 'Q'")
    path.write_text("# nothing\n", encoding="utf-8")
    assert refusal(tmp_path, file="pattern.txt").startswith("pattern.txt: holds no template")
    path.write_bytes(b"U\n\xff")
    assert "pattern.txt, line 2: is not UTF-8; save the file as UTF-8" in refusal(tmp_path, file="pattern.txt")
    assert "none.txt: there is no such file" in refusal(tmp_path, file="none.txt")
    assert "cannot be read" in refusal(tmp_path, file=".")


def test_lists_are_read_from_the_project(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/towns.txt").write_text("Bad Ischl\ttown\nLinz\n", encoding="utf-8")
    (tmp_path / "pattern.txt").write_text('U:%l[0,0,"raw/towns.txt"]\nU:%L[1,0,"raw/towns.txt"]\n', encoding="utf-8")
    templates, lists = read_templates(tmp_path, options(file="pattern.txt"))
    assert lists == {"raw/towns.txt": ["Bad Ischl\ttown", "Linz"]}
    assert all(macro.source.names is not None for t in templates for macro in t.macros)
    assert named_lists(tmp_path, options(file="pattern.txt")) == ["raw/towns.txt"]
    assert named_lists(tmp_path, options(lines=['U:%l[0,0,"a"]', "B"])) == ["a"]
    assert named_lists(tmp_path, options(file="not yet there")) == []
    assert "there is no such list of names" in refusal(tmp_path, lines=['U:%l[0,0,"raw/none.txt"]'])


def test_where_lines_stand(tmp_path):
    assert template_lines(tmp_path, options(lines=["U"])) == (["U"], "template.lines")

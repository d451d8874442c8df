"""Models from and for other programs by the command line: import, export; and sequences that a model draws: sample."""

import pytest
from small_models import model_of

from espalier import CRF
from espalier.engine.families import load
from espalier.flows import cli

COURSE = "HMM 4 3\n1 0 0\n.2 .5 .3 0\n.1 0 .9 0\n0 0 .4 .6\n0 .3 1 0 a\n.3 .6 0 0 b\n.7 .1 0 0 c\n"


@pytest.fixture
def espalier(capsys):
    """Run the command in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        return cli.main([str(argument) for argument in arguments]), *capsys.readouterr()

    return run


@pytest.fixture
def course(tmp_path, espalier):
    (tmp_path / "t0").write_text(COURSE)
    (tmp_path / "names").write_text("author\ntitle\nyear\n")
    model = tmp_path / "t0.model"
    code, out, _ = espalier("import", tmp_path / "t0", "--labels", tmp_path / "names")
    assert code == 0 and out.startswith(f"{model}: ") and "3 labels" in out
    return model


def test_text_goes_in_and_comes_out(course, espalier, tmp_path):
    assert load(course).labels == ["author", "title", "year"]
    code, out, _ = espalier("export", course, "-o", tmp_path / "t1")
    assert code == 0 and out == f"{tmp_path / 't1'}: 3 states, from {course}\n"
    assert (tmp_path / "t1").read_text().startswith("HMM 4 4\n1.0 0.0 0.0\n")
    assert espalier("import", tmp_path / "t1", "-o", tmp_path / "again.model")[0] == 0
    assert load(tmp_path / "again.model").labels == ["0", "1", "2"]
    code, _, err = espalier("export", course, "-o", tmp_path / "t1")
    assert code == 1 and "t1 is there already: name another file with -o, or remove it" in err
    (tmp_path / "t2").write_text(COURSE.replace(".4 .6", ".4 .5"))
    code, _, err = espalier("import", tmp_path / "t2")
    assert code == 1 and "t2: line 5: the transition probabilities of state 2 add up to 0.9, expected 1" in err


def test_a_graph(course, espalier, tmp_path):
    assert espalier("export", course, "-o", tmp_path / "a.dot", "--format", "dot", "--threshold", "0.5")[0] == 0
    text = (tmp_path / "a.dot").read_text()
    assert 's0 -> s1 [label="0.5"' in text and "s0 -> s2" not in text and 'label="author"' in text
    code, _, err = espalier("export", course, "-o", tmp_path / "b.dot", "--format", "dot", "--threshold", "-1")
    assert code == 1 and "the threshold is -1: expected a probability from 0 to 1" in err
    assert not (tmp_path / "b.dot").exists()


def test_samples(course, espalier):
    code, out, _ = espalier("sample", course, "-n", 4, "--seed", 1)
    assert code == 0 and out.endswith("\n\n") and out.count("\n\n") == 4
    assert {line.split("\t")[1] for line in out.splitlines() if line} <= {"author", "title", "year"}
    assert espalier("sample", course, "-n", 4, "--seed", 1)[1] == out != espalier("sample", course, "-n", 4)[1]
    short = espalier("sample", course, "--longest", 2)[1].removesuffix("\n\n").split("\n\n")
    assert max(len(block.split("\n")) for block in short) == 2


def test_what_other_families_cannot(espalier, tmp_path):
    model_of().save(tmp_path / "crf.model")
    code, _, err = espalier("sample", tmp_path / "crf.model")
    assert code == 1 and err == "espalier: crf cannot draw sequences: set model.family to hmm\n"
    code, _, err = espalier("export", tmp_path / "crf.model", "-o", tmp_path / "a")
    assert code == 1 and "crf cannot be written down as states, transitions and emissions: set model.family" in err
    CRF(["U:%x[0,0]", "U1:%x[-1,0]"], family="hmm").fit([["a", "b"]], [["X", "Y"]]).save(tmp_path / "two.model")
    code, _, err = espalier("export", tmp_path / "two.model", "-o", tmp_path / "a")
    assert code == 1 and "the model emits 2 observations at a position" in err and not (tmp_path / "a").exists()

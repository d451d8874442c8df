"""`espalier init`: what it sees in files, what it writes, that it overwrites nothing, and that the project runs."""

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from stage_runs import tree
from tree_data import trees

from espalier.engine.text.pattern_sets import shipped_text
from espalier.engine.text.templates import parse
from espalier.tasks import store
from espalier.tasks.formats import Reading
from espalier.tasks.params import LETTER_TEMPLATES, load_params
from espalier.tasks.starting import texts
from espalier.tasks.starting.guessing import guess, label_column

ROOT = Path(__file__).resolve().parents[2]
ENTITIES = "Ann B-PER\nsaw O\nRome B-LOC\n\nBob B-PER\nran O\n\nLee B-PER\nsaw O\nAnn B-PER\n\nRome B-LOC\nfell O\n"
LETTERS = "c K\na A\nt T\n\nt T\na A\nc K\n\na A\nt T\n\nc K\na A\n"
TAGGED = (("dog", "NOUN"), ("cat", "NOUN"), ("see", "VERB"), ("run", "VERB"), ("cow", "NOUN"))
RECORDS = [{"tokens": [letter, "x"], "labels": ["XY"["ace".find(letter) < 0], "X"]} for letter in "abcdef"]
UD = "".join(f"1\t{word}\t_\t{tag}\tX\t_\t0\troot\t_\t_\n\n" for word, tag in TAGGED)


@pytest.fixture
def espalier(espalier, tmp_path, monkeypatch):
    """Run the command in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    return espalier


def made(folder, content, name="data.conll"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ---- projects that run


def test_a_file_of_entities_becomes_a_project_that_runs(espalier, tmp_path):
    made(tmp_path, ENTITIES, "data/raw/train.conll")
    code, out, err = espalier("init", "data/raw/train.conll")
    assert (code, err) == (0, "")
    for text in (
        "data/raw/train.conll: 4 sequences, 10 tokens", "columns: 2, between blanks or tabs", "label: the last column",
        "3 labels: B-PER, O, B-LOC; tagging scheme iob2, judged by F1 of entities", "tokens are words",
        "templates: 25 lines of words in a window", "penalties: rho1 0.1, rho2 0.3", "next: espalier run",
        "4 sequences are so few that figures will say little", "written: .gitignore, params.yaml, templates.txt",
    ):  # fmt: skip
        assert text in out
    params = load_params(tmp_path / "params.yaml")
    assert params.ingest.path == "data/raw/train.conll" and params.template.file == "templates.txt"
    assert (params.crf.rho1, params.crf.rho2) == texts.PENALTIES["entities"]
    code, out, err = espalier("run", "--direct", "--quiet")
    assert code == 0, err
    assert out.startswith("F1 of entities ") and (tmp_path / store.REPORT).is_file()


@pytest.mark.slow
def test_without_a_file_it_is_the_built_in_task(espalier, tmp_path):
    code, out, _ = espalier("init")
    assert code == 0 and "the built-in task" in out
    params = load_params(tmp_path / "params.yaml")
    assert params.ingest.source == "cmudict" and params.crf == load_params(ROOT / "params.yaml").crf
    lines = (tmp_path / "templates.txt").read_text().splitlines()
    assert [template.line for template in parse(lines, "")] == [one.line for one in parse(LETTER_TEMPLATES, "")]
    code, out, err = espalier(
        "run", "--direct", "--quiet", "--set", "ingest.limit=300", "--set", "train.max_iterations=2",
        "--set", "ingest.align_iterations=2", "--set", "ingest.pair_count=1", "--set", "weigh.clusters=0",
    )  # fmt: skip
    assert code == 0 and out.startswith("phoneme error"), err


def test_letters_have_templates_of_n_grams(espalier, tmp_path):
    made(tmp_path, LETTERS)
    assert "tokens are letters (100.0% of them" in espalier("init", "data.conll")[1]
    lines = (tmp_path / "templates.txt").read_text().splitlines()
    assert [line for line in lines if line and line[0] != "#"] == LETTER_TEMPLATES
    assert espalier("run", "--direct", "--quiet")[0] == 0


@pytest.mark.parametrize("name", ["x.crfsuite", "x.jsonl"])
def test_attributes_are_taken_as_they_are(espalier, tmp_path, name):
    lines = [f"{'NV'[i % 2]}\tw=w{i}\tlen:{i}.5\n" + "\n" * (i % 3 == 2) for i in range(24)]
    records = [{"tokens": [f"w=w{i}\tbias", "end"], "labels": ["N", "V"]} for i in range(12)]
    content = "".join(lines) if name == "x.crfsuite" else "".join(json.dumps(one) + "\n" for one in records)
    made(tmp_path, content, name)
    code, out, err = espalier("init", name)
    assert (code, err) == (0, "")
    assert "tokens are lists of attributes" in out and "templates: 2 lines of attributes as they are" in out
    assert [line for line in (tmp_path / "templates.txt").read_text().splitlines() if line[:1] not in ("", "#")] == [
        "U:%a",
        "B",
    ]
    assert espalier("stage", "ingest", "--quiet")[0] == 0 and espalier("stage", "template", "--quiet")[0] == 0
    observations = set(store.read_vocabulary(tmp_path)["observation"])
    assert observations >= ({"U:len"} if name == "x.crfsuite" else {"U:bias", "U:end"})
    code, _, err = espalier("-C", "other", "init", str(tmp_path / name), "--templates", "S2")
    assert code == 1 and "the templates S2 are for words" in err and "holds attributes" in err


def test_every_parameter_and_group_of_templates_has_a_comment(espalier, tmp_path):
    made(tmp_path, ENTITIES)
    espalier("init", "data.conll")
    lines = (tmp_path / "params.yaml").read_text().splitlines()
    keys = [i for i, line in enumerate(lines) if re.match(r"  \w+:", line)]
    assert len(keys) > 6 and all(lines[i - 1].startswith("  # ") for i in keys)
    groups = (tmp_path / "templates.txt").read_text().split("\n\n")
    assert all(group.startswith("# ") for group in groups)


# ---- what is seen


def ingest_of(folder):
    return yaml.safe_load((folder / "params.yaml").read_text())["ingest"]


PLAIN = {"source": "files", "dev_share": 0.2, "test_share": 0.2}
SEEN = {
    "comments": ("# a text\n" + LETTERS.replace("\n\n", "\n\n# more words here\n"), "x.txt", {"comment": "#"},
                 "comments: lines that begin with # (4 at"),
    "commas": (LETTERS.replace(" ", ","), "x.csv", {"format": "conll", "separator": ","}, "columns: 2, between commas"),
    "tabs": (LETTERS.replace(" ", "\t").replace("K", "K K"), "x.tsv", {"separator": "\t"}, "columns: 2, between tabs"),
    "no name": (LETTERS, "letters", {"format": "conll"}, "format: conll (columns, one token a line), by what the file"),
    "packed": (gzip.compress(ENTITIES.encode()), "x.conll.gz", {}, "4 sequences, 10 tokens"),
    "label first": (re.sub(r"(\S+) (\S+)", r"\2 \1 1", ENTITIES), "x.txt", {"label_column": 0},
                    "label: column 0 (the first is 0), because its values mark entities"),
    "json": ("".join(json.dumps({"words": one["tokens"], "tags": one["labels"]}) + "\n" for one in RECORDS), "x.json",
             {"format": "jsonl", "columns": ["words"], "label": "tags"}, "label: the field 'tags'"),
    "jsonl": ("".join(json.dumps(one) + "\n" for one in RECORDS), "x.jsonl", {}, "tokens are letters"),
    "conllu": (UD, "x.conll", {"format": "conllu", "columns": ["FORM"]}, "label: UPOS; the input is FORM alone"),
    "unknown": (ENTITIES.replace("ran O", "ran _") + "\nRome B-LOC\n", "x.conll", {"unknown": "_"},
                "the label _ says that a label is not known, because all others mark entities"),
    "silent": (LETTERS.replace("a A", "a _"), "x.conll", {}, "the label _ is taken for a label like any other"),
    "sets": (LETTERS.replace("a A", "a A|T", 1), "x.conll", {"set_separator": "|"}, "labels such as A|T say that"),
    "bars": (LETTERS.replace("A", "A|E"), "x.conll", {}, "labels such as A|E are taken as they are"),
}  # fmt: skip


@pytest.mark.parametrize("case", SEEN)
def test_what_files_show_is_told_and_written_and_can_be_read(espalier, tmp_path, case):
    content, name, expected, told = SEEN[case]
    made(tmp_path, content, name)
    code, out, err = espalier("init", name)
    assert code == 0, err
    assert told in out
    found = ingest_of(tmp_path)
    found.pop("seed", None)
    assert found == PLAIN | {"path": name} | expected
    assert espalier("stage", "ingest", "--quiet")[0] == 0
    assert espalier("stage", "template", "--quiet")[0] == 0


def test_parquet(espalier, tmp_path):
    pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "x.data")
    code, out, err = espalier("init", "x.data")
    assert code == 0, err
    assert ingest_of(tmp_path)["format"] == "parquet" and "by what the file holds; its name says columns" in out
    assert espalier("stage", "ingest", "--quiet")[0] == 0


def test_options_are_stronger_than_guesses(espalier, tmp_path):
    made(tmp_path, LETTERS.replace(" ", " x "), "x.txt")
    code, out, err = espalier("init", "x.txt", "--label-column", "0", "--unknown", "q")
    assert code == 0 and "label: " not in out, err
    assert ingest_of(tmp_path)["label_column"] == 0 and ingest_of(tmp_path)["unknown"] == "q"


def test_other_columns_get_templates_by_what_they_hold(espalier, tmp_path):
    numbers = ["_", *(f"{i / 7:.3f}" for i in range(1, 60))]  # the first is not there
    rows = [f"w{i} {'NV'[i % 2]} {number} same B-X" + "\n" * (i % 3 == 2) for i, number in enumerate(numbers)]
    made(tmp_path, "\n".join(rows))
    code, out, _ = espalier("init", "data.conll")
    assert code == 0 and "column 1 with its neighbours; column 2 as numbers by size; column 3 left out" in out
    lines = (tmp_path / "templates.txt").read_text().splitlines()
    assert "U1c-1/0:%x[-1,1]/%x[0,1]" in lines and "U2q:%q[0,2,8]" in lines
    assert not [line for line in lines if re.search(r"%.\[[^,]*,3", line)]
    assert espalier("stage", "ingest", "--quiet")[0] == 0 and espalier("stage", "template", "--quiet")[0] == 0


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([["a", "b"], ["B-X", "O"], ["B-Y", "O"]], 2),
        ([["O", "B-X"], ["a", "b"]], 0),
        ([["a", "b"], ["X", "Y"]], 1),
        ([["X", "Y"] * 20, [str(i) for i in range(40)]], 0),
        ([[str(i) for i in range(40)], ["X", "Y"] * 20], 1),
    ],
)
def test_which_column_is_the_label(columns, expected):
    assert label_column(columns) == expected


# ---- several files


def test_roles_by_name_and_overlap(espalier, tmp_path):
    for name in ("train", "test", "dev", "more"):
        made(tmp_path, ENTITIES if name != "dev" else "Zoe B-ORG\n", f"data/{name}.conll")
    code, out, _ = espalier("-C", "new", "init", *(f"data/{name}.conll" for name in ("dev", "more", "test", "train")))
    assert code == 0
    assert "data/test.conll: test data, by its name" in out and "data/dev.conll: development data, by its name" in out
    assert "data/test.conll: 4 sequences for the test; 4 of them (100.0%) also stand in the training data" in out
    assert "data/dev.conll: 1 sequence for development; 0 of them (0.0%)" in out
    assert "labels that training does not have: B-ORG" in out and "next: espalier -C new run" in out
    assert ingest_of(tmp_path / "new") == {
        "source": "files", "path": "../data/more.conll", "more": ["../data/train.conll"],
        "dev_path": "../data/dev.conll", "test_path": "../data/test.conll",
    }  # fmt: skip
    assert espalier("-C", "new", "run", "--direct", "--quiet")[0] == 0


def test_parts_that_are_named(espalier, tmp_path):
    made(tmp_path, "Ann B-PER\n", "one.conll")
    made(tmp_path, "Ann B-PER\n", "test.conll")
    code, out, err = espalier("init", "one.conll", "--test", "test.conll")
    assert code == 0 and ingest_of(tmp_path)["test_path"] == "test.conll", err


# ---- what is there stays


def test_nothing_is_overwritten(espalier, tmp_path):
    made(tmp_path, ENTITIES)
    made(tmp_path, "mine\n", ".gitignore")
    code, out, _ = espalier("init", "data.conll")
    assert code == 0 and ".gitignore stays as it is; add to it what runs write: /.espalier/ " in out
    assert (tmp_path / ".gitignore").read_text() == "mine\n"
    before = tree(tmp_path)
    code, out, err = espalier("init", "data.conll")
    assert (code, out) == (1, "") and "has params.yaml and templates.txt already, which would be overwritten" in err
    (tmp_path / "params.yaml").unlink()
    before.pop("params.yaml")
    assert "has templates.txt already" in espalier("init")[2] and tree(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "arguments", "expected"),
    [
        ("", [], "data.conll: holds no token"),
        ("a\nb\n", [], "data.conll: holds one column; expected the token and its label"),
        ("a X\n", [], "data.conll: 1 different sequence, too few to split test data off"),
        ("a X\nb\nc d e X\n", [], "line 2 of data.conll has 1 column"),
        (b"\xff\xfe\0", [], "is not UTF-8"),
        (b"\x1f\x8b broken", [], "the gzip data is damaged"),
        ('[{"tokens": ["a"], "labels": ["X"]}]', [], "is a list of JSON; expected an object on each line"),
        (ENTITIES, ["/dev/null"], "/dev/null: is a folder, pipe or device"),
        (ENTITIES, ["--from", "csv"], "format 'csv' is not known"),
        (ENTITIES, ["--test", "none.conll"], "none.conll: there is no such file"),
        (ENTITIES, ["--test", "*.csv"], "*.csv: no file in . matches"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_written(espalier, tmp_path, content, arguments, expected):
    made(tmp_path, content)
    code, out, err = espalier("init", "data.conll", *arguments)
    assert (code, out) == (1, "") and expected in err
    assert [path.name for path in tmp_path.iterdir()] == ["data.conll"]


def test_a_pattern_and_two_test_files(espalier, tmp_path):
    for name in ("a.conll", "b.conll"):
        made(tmp_path, ENTITIES, f"raw/{name}")
    assert espalier("init", "raw/*.conll")[0] == 0
    assert ingest_of(tmp_path)["more"] == ["raw/b.conll"]
    for name in ("a.test.conll", "b.test.conll"):
        made(tmp_path, ENTITIES, name)
    err = espalier("-C", "new", "init", "raw/a.conll", "*.test.conll")[2]
    assert "expected one test file; name it by --test" in err


def test_the_head_of_a_table_is_seen(espalier, tmp_path):
    made(tmp_path, "token,label\n" + LETTERS.replace(" ", ","), "x.csv")
    assert "1 label seen once alone, the first at line 1 of x.csv: label" in espalier("init", "x.csv")[1]


def test_parts_without_a_training_file_and_a_file_for_a_folder(espalier, tmp_path):
    made(tmp_path, ENTITIES)
    assert "name the training file first" in espalier("init", "--test", "data.conll")[2]
    assert "data.conll: is a file; expected a folder" in espalier("-C", "data.conll", "init")[2]


def test_names_that_yaml_would_misread(espalier, tmp_path):
    for i, name in enumerate(("a: b #c.conll", "yes.conll", "'\"\\.conll", "ü [x].conll", "new\nline.conll")):
        made(tmp_path, LETTERS, name)
        code, _, err = espalier("-C", f"p{i}", "init", name)
        assert code == 0, err
        assert load_params(tmp_path / f"p{i}" / "params.yaml").ingest.path == f"../{name}"
        assert espalier("-C", f"p{i}", "stage", "ingest", "--quiet")[0] == 0


def test_versions_begin_where_git_is(espalier, tmp_path):
    assert "git init && dvc init" in espalier("-C", "a", "init")[1]
    (tmp_path / "b" / ".git").mkdir(parents=True)
    assert "versions of data and models: dvc init in" in espalier("-C", "b", "init")[1]
    assert "dvc init --subdir" in espalier("-C", "b/c", "init")[1]
    (tmp_path / "d" / ".dvc").mkdir(parents=True)
    assert "dvc init" not in espalier("-C", "d", "init")[1]


def test_what_runs_write_is_what_the_repository_ignores():
    lines = (ROOT / ".gitignore").read_text().splitlines()
    first = lines.index("# state of runs, pages made on demand")
    last = lines.index("# what the examples make")
    ours = [line for line in lines[first:last] if line and line[0] == "/"]
    assert list(texts.WRITTEN_BY_RUNS) == ours


# ---- trees


def test_a_treebank_becomes_a_project_of_a_grammar_that_runs(espalier, tmp_path):
    made(tmp_path, "\n".join(trees(60)), "raw/train.mrg")
    made(tmp_path, "\n".join(trees(10, 1)), "raw/test.mrg")
    code, out, err = espalier("init", "raw/train.mrg", "--test", "raw/test.mrg")
    assert (code, err) == (0, "")
    for text in (
        "raw/train.mrg: 60 sequences", "4 labels of brackets: NP, PP, S, VP; 6 tags: DT, NN, ",
        "judged by the F1 of labelled brackets",
        "raw/test.mrg: 10 sequences for the test", "templates: 5 lines, what a grammar sees of a word",
        "model: a probabilistic grammar, its rules counted from the trees",
    ):  # fmt: skip
        assert text in out
    for text in ("penalties", "tagging scheme", "labels that training does not have", "seen once alone", "*)"):
        assert text not in out
    params = load_params(tmp_path / "params.yaml")
    assert (params.model.family, params.pcfg.training, params.template.file) == ("pcfg", "counts", "templates.txt")
    assert (tmp_path / "templates.txt").read_text().rstrip() == shipped_text("trees").rstrip()
    code, out, err = espalier("run", "--direct", "--quiet")
    assert code == 0, err
    assert out.startswith("F1 of brackets ") and "\nrules " in out and " binary, " in out
    code, out, _ = espalier("profile")
    assert code == 0 and "DT " in out and "(NP" not in out and "tagging scheme" in out


def test_trees_are_told_by_what_a_file_holds(espalier, tmp_path):
    made(tmp_path, "\n\n".join(tree.replace(" (VP", "\n  (VP") for tree in trees(30)), "bank.txt")
    code, out, _ = espalier("-C", "a", "init", "bank.txt")
    assert code == 0 and "format: brackets (trees in Penn brackets), by what the file holds" in out
    assert ingest_of(tmp_path / "a")["format"] == "brackets" and "bare" not in ingest_of(tmp_path / "a")
    made(tmp_path, "".join(f"((DT NN) (VBZ (w{k} NN)) .)\n" for k in range(60)), "strings.txt")
    code, out, _ = espalier("-C", "b", "init", "strings.txt")
    assert code == 0 and "240 brackets without labels; judged by the F1 of unlabelled brackets" in out
    assert ingest_of(tmp_path / "b")["bare"] is True
    params = load_params(tmp_path / "b" / "params.yaml")
    assert (params.pcfg.training, params.pcfg.symbols, params.pcfg.rare) == ("inside-outside", 14, 0)
    made(tmp_path, "( O\n(S O\n) O\n\n( O\n", "brackets.conll")
    assert "2 labels" not in espalier("-C", "c", "init", "brackets.conll")[1]
    assert guess(tmp_path / "brackets.conll", Reading()).how.format is None


def test_templates_of_labels_are_refused_for_trees(espalier, tmp_path):
    made(tmp_path, "\n".join(trees(30)), "bank.mrg")
    code, _, err = espalier("init", "bank.mrg", "--templates", "S1")
    assert code == 1 and "the templates S1 are for labels of words, and bank.mrg holds trees" in err


def test_a_bracket_without_a_label_names_what_reads_it(espalier, tmp_path):
    made(tmp_path, "\n".join([*trees(5), "(S (NP (DT the) dog))"]), "bank.mrg")
    code, _, err = espalier("init", "bank.mrg")
    assert code == 1 and "line 6 of bank.mrg: 'dog' stands beside others in a bracket" in err and "ingest.bare" in err


# ---- corpora


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["nettalk/train.conll.gz", "nettalk/test.conll.gz"], ["tokens are letters", "51 labels"]),
        (["usaddress/train-labeled.conll.gz"], ["tokens are words", "judged by the error of tokens"]),
        (["conll2002-esp/esp.testa.gz", "conll2002-esp/esp.testb.gz"], ["judged by F1 of entities", "column 1 with"]),
    ],
)
def test_corpora(espalier, corpora, names, expected):
    files = [corpora / name for name in names]
    if not all(path.is_file() for path in files):
        pytest.skip(f"{names[0]} is not here")
    code, out, err = espalier("init", files[0], *(["--test", files[1]] if len(files) > 1 else []))
    assert code == 0 and all(text in out for text in expected), err
    assert ("also stand in the training data" in out) == (len(files) > 1)


def test_templates_that_come_along_are_copied(espalier, tmp_path):
    made(tmp_path, ENTITIES, "data/raw/train.conll")
    code, out, err = espalier("init", "data/raw/train.conll", "--templates", "S2")
    assert (code, err) == (0, "")
    assert "templates: 17 lines of S2, which looks at words alone" in out
    assert len(parse((tmp_path / "templates.txt").read_text().split("\n"))) == 17
    code, _, err = espalier("-C", "other", "init", "--templates", "S2")
    assert code == 1 and "--templates names templates for words of your data" in err
    code, _, err = espalier("-C", "other", "init", "data/raw/train.conll", "--templates", "S9")
    assert code == 1 and "those that come along are espalier:S1" in err and not (tmp_path / "other").exists()

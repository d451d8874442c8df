"""CRFsuite's data as a format: read as it is written, trained on, tagged, and refused in words."""

from pathlib import Path

import pytest
from stage_runs import run_stages, small_params

from espalier.crfsuite import CRF, Tagger
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.flows import cli
from espalier.tasks import formats
from espalier.tasks.answering import stream

TEXT = "B-X\tw=a\\:b\tbias\tk\\\\z:1\nO\tw=c:1.0\tw=d:\n\n\nO\nI-\\:\tw=é\t\tback\\slash\t__EOS__\n"
TABLE = [(0, 1, "w=a:b\tbias\tk\\z", "B-X"), (0, 2, "w=c\tw=d", "O"), (1, 5, "", "O"),
         (1, 6, "w=é\tback\\slash\t__EOS__", "I-:")]  # fmt: skip


def read(path, labelled=True, **options):
    return [row for block in formats.read_located([path], formats.Reading(**options), labelled, 2)
            for row in block.drop("file").rows()]  # fmt: skip


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), TEXT.rstrip("\n"), "\n \n" + TEXT])
def test_lines_are_read_as_crfsuite_reads_them(tmp_path, text):
    path = tmp_path / "a.crfsuite"
    path.write_bytes(text.encode())
    shift = 2 if text.startswith("\n") else 0
    assert read(path) == [(n, line + shift, x, label) for n, line, x, label in TABLE]
    assert read(path, labelled=False) == [(n, line + shift, x) for n, line, x, _ in TABLE]
    path.rename(tmp_path / "a.dat")
    assert read(tmp_path / "a.dat", format="crfsuite") == read(tmp_path / "a.dat", format="crfsuite")


@pytest.mark.parametrize(
    "text, words",
    [
        ("O\ta\nO\tb:2.5\n", "line 2 of {}: the attribute 'b' has the value 2.5, expected 1: put numbers into bins"),
        ("O\tw:b:c\n", "line 1 of {}: the attribute 'w' has the value 'b:c', expected a number; write a colon"),
        ("O\tw:nan\n", "line 1 of {}: the attribute 'w' has the value 'nan', expected a number"),
        ("\ta\n", "line 1 of {} has the label '': expected a text first"),
        ("A:1\ta\n", "line 1 of {} has the label 'A:1': expected a text first, a colon in it as \\:"),
        ("@weight:2\n", "line 1 of {} weighs a sequence (@weight:2), which is not read: leave such lines out"),
        ("\n\n", "{}: holds no token"),
        ("", "{}: holds no token"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_line(tmp_path, text, words):
    path = tmp_path / "a.crfsuite"
    path.write_text(text)
    with pytest.raises(EspalierError) as error:
        read(path)
    assert str(error.value).startswith(words.format(path))


def escaped(text):
    return text.replace("\\", "\\\\").replace(":", "\\:")


def written(items, labels):
    lines = [["\t".join([escaped(y), *map(escaped, x)]) for x, y in zip(*pair, strict=True)]
             for pair in zip(items, labels, strict=True)]  # fmt: skip
    return "\n\n".join("\n".join(rows) for rows in lines) + "\n"


def small_data(n=60):
    words = ["a", "b:c", "d", "\\e", "f"]
    items = [[[f"w={words[(i + t * i) % 5]}", f"i={t % 3}", *(["odd"] if i % 2 else [])] for t in range(1 + i % 4)]
             for i in range(n)]  # fmt: skip
    return items, [["XYZ"[(i + t) % 3] for t in range(len(row))] for i, row in enumerate(items)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A project on such data after training, with its parameters."""
    root = tmp_path_factory.mktemp("attributes")
    (root / "data" / "raw").mkdir(parents=True)
    items, labels = small_data()
    (root / "data" / "raw" / "a.crfsuite").write_text(written(items, labels), encoding="utf-8")
    params = small_params()
    params.ingest.source, params.ingest.dev_share = "files", 0.0
    params.ingest.path = params.ingest.test_path = "data/raw/a.crfsuite"
    params.template.lines = ["U:%a", "B"]
    params.crf.rho1, params.crf.rho2, params.crf.start, params.crf.pairs = 0.05, 0.2, False, "seen"
    params.crf.solver, params.train.max_iterations, params.train.tolerance = "auto", 500, 1e-9
    run_stages(root, params, "ingest", "template", "weigh", "train", "evaluate")
    return root


def test_the_pipeline_trains_what_the_drop_in_trains(trained):
    items, labels = small_data()
    model = load(trained / "models" / "candidate.model")
    assert model.templates == ["U:%a[0,0,3]", "B"]
    crf = CRF(c1=0.05, c2=0.1, delta=1e-9).fit(items, labels)
    rows = {(r["observation"], r["previous"], r["label"]): r["weight"] for r in model.table().to_pylist()}
    for (name, label), weight in crf.state_features_.items():
        assert rows.get((f"U:{name}", None, label), 0.0) == pytest.approx(weight, abs=1e-3)
    for (before, label), weight in crf.transition_features_.items():
        assert rows.get(("B", before, label), 0.0) == pytest.approx(weight, abs=1e-3)


def test_tagging_takes_more_attributes_than_training_had(trained, tmp_path):
    """Those of a token that training had none so rich of count as well."""
    items = [[["new", "more", "unseen", "w=a", "i=0"], ["w=b:c", "i=1", "odd", "new"]]]
    path = tmp_path / "b.crfsuite"
    path.write_text(written(items, [["X", "X"]]), encoding="utf-8")
    tagger = Tagger()
    tagger.open(trained / "models" / "candidate.model")
    model = load(trained / "models" / "candidate.model")
    expected = tagger.tag(items[0])
    assert b"".join(stream.tag_file(model, str(path))).decode() == "\n".join(expected) + "\n\n"
    lines = b"".join(stream.tag_file(model, str(path), stream.Asked(format="jsonl", scores=True))).decode()
    assert f'"labels": ["{expected[0]}", "{expected[1]}"]' in lines


def test_models_made_in_python_are_tagged_with_by_the_command(tmp_path, capsys):
    from espalier import CRF as Estimator

    items, labels = small_data()
    model = Estimator(rho1=0.01).fit(items, labels)
    model.save(tmp_path / "a.model")
    (tmp_path / "a.crfsuite").write_text(written(items, labels), encoding="utf-8")
    asked = stream.Asked(source="crfsuite")
    answer = b"".join(stream.tag_file(load(tmp_path / "a.model"), str(tmp_path / "a.crfsuite"), asked)).decode()
    assert answer == "".join("\n".join(row) + "\n\n" for row in model.predict(items))


def test_the_command_imports_and_overwrites_nothing(tmp_path, capsys):
    wapiti = Path(tmp_path / "w.txt")
    wapiti.write_text("#mdl#2#1\n#rdr#1/0/0\n9:u:%x[0,0],\n#qrk#2\n1:B,\n1:O,\n#qrk#1\n3:u:a,\n1=0x1.8p+1\n")
    assert cli.main(["import", str(wapiti)]) == 0
    out = capsys.readouterr().out
    assert out == f"{tmp_path / 'w.model'}: 1 active weights, 2 labels, from {wapiti}\n"
    assert load(tmp_path / "w.model").table().to_pylist()[0]["weight"] == 3.0
    before = (tmp_path / "w.model").read_bytes()
    assert cli.main(["import", str(wapiti)]) == 1
    assert "w.model is there already: name another file with -o" in capsys.readouterr().err
    assert cli.main(["import", str(wapiti), "-o", str(tmp_path / "new" / "b.model")]) == 0
    assert (tmp_path / "w.model").read_bytes() == before == (tmp_path / "new" / "b.model").read_bytes()
    assert cli.main(["import", str(tmp_path / "w.model"), "-o", str(tmp_path / "c.model")]) == 1
    assert "begins with b'ARROW1" in capsys.readouterr().err

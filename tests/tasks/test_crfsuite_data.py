"""CRFsuite's data as a format: read as it is written, trained on, tagged, and refused in words."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from stage_runs import run_stages, small_params

from espalier.crfsuite import CRF, Tagger
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.features import features_of
from espalier.engine.interface.observations import dataset_of, observations_of
from espalier.engine.text.macros import attributes_in
from espalier.flows import cli
from espalier.tasks import formats, store
from espalier.tasks.answering import explain, stream, tagging

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
        ("O\tw:b:c\n", "line 1 of {}: the attribute 'w' has the value 'b:c', expected a finite number; write a colon"),
        ("O\ta\nO\tw:nan\n", "line 2 of {}: the attribute 'w' has the value 'nan', expected a finite number"),
        ("O\tw:1e999\n", "line 1 of {}: the attribute 'w' has the value '1e999', expected a finite number"),
        ("O\tw\x1f2\n", "line 1 of {}: the attribute 'w\\x1f2' holds the control character 0x1F: remove it"),
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


def test_a_value_stands_behind_its_attribute(tmp_path):
    (tmp_path / "a.crfsuite").write_text("O\tlen:2.50\tw=a\\:b:-1e-1\tone:1\tnone:0\tbias\n")
    (row,) = read(tmp_path / "a.crfsuite")
    assert row[2] == "len\x1f2.5\tw=a:b\x1f-0.1\tone\tnone\x1f0.0\tbias"
    assert attributes_in(row[2]) == [("len", 2.5), ("w=a:b", -0.1), ("one", 1.0), ("none", 0.0), ("bias", 1.0)]


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
    assert cli.main(["inspect", str(tmp_path / "a.model"), "--top", "1"]) == 0
    assert "estimator        {'rho1': 0.01}" in capsys.readouterr().out, "those that are the default go without saying"


def test_attributes_cannot_come_as_columns(trained, capsys):
    assert cli.main(["tag", "--model", str(trained / "models" / "candidate.model")]) == 1
    assert "crfsuite cannot come on standard input: name the file" in capsys.readouterr().err


def test_reasons_name_a_token_by_its_first_attribute(trained, tmp_path, capsys):
    path, records = tmp_path / "a.jsonl", [{"tokens": ["w=a\ti=0\todd", "i=1"]}, {"tokens": ["len\x1f2.5\tw=a"]}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert cli.main(["explain", "--model", str(trained / "models" / "candidate.model"), str(path)]) == 0
    out = capsys.readouterr().out
    assert "\nw=a (+2)  " in out and "\ni=1       " in out and "\nlen:2.5 (+1)  " in out
    assert "\t" not in out


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


# ---- values


SAME_OBJECTIVE = 1e-6  # relative; CRFsuite prints six decimals


def valued_data(n=60, seed=0):
    """Items as dicts of attributes and values: some always 1, some never, one of both kinds."""
    rng, items, labels = np.random.default_rng(seed), [], []
    for _ in range(n):
        numbers = np.round(rng.normal(size=rng.integers(1, 5)), 3).tolist()
        items.append([
            {f"w={rng.choice(['a', 'b:c', 'd'])}": 1.0, "x:y": number, "both": float(rng.choice([1.0, 0.25])),
             **({"odd": 2.0 * t} if t % 2 else {})}
            for t, number in enumerate(numbers)
        ])  # fmt: skip
        labels.append(["P" if number > 0.3 else "N" if rng.random() < 0.8 else "Z" for number in numbers])
    return items, labels


def valued_text(items, labels):
    """The file; where the value is 1, it is left out, or written in one way or another."""
    lines, ones = [], ["", ":", ":1", ":1.0"]
    for row, names in zip(items, labels, strict=True):
        for item, label in zip(row, names, strict=True):
            cells = [escaped(label)]
            for name, value in item.items():
                ones.append(ones.pop(0))
                cells.append(escaped(name) + (ones[0] if value == 1.0 else f":{value}"))
            lines.append("\t".join(cells))
        lines.append("")
    return "\n".join(lines) + "\n"


def valued_params(**template):
    params = small_params()
    params.ingest.source, params.ingest.dev_share = "files", 0.0
    params.ingest.path, params.ingest.test_path = "a.crfsuite", "test.crfsuite"
    params.template.lines = ["U:%a", "B"]
    for name, value in template.items():
        setattr(params.template, name, value)
    params.crf.rho1, params.crf.rho2, params.crf.start, params.crf.pairs = 0.0, 0.2, False, "seen"
    params.crf.solver, params.train.max_iterations, params.train.tolerance = "auto", 1000, 1e-12
    return params


@pytest.fixture(scope="module")
def valued(tmp_path_factory):
    """A project on a file with values after its stages; the test data have more values at a token than training."""
    root = tmp_path_factory.mktemp("values")
    items, labels = valued_data()
    (root / "a.crfsuite").write_text(valued_text(items, labels))
    items, labels = valued_data(20, 1)
    items[0][0] |= {"new": 0.5, "newer": 0.25, "newest": 3.0}
    (root / "test.crfsuite").write_text(valued_text(items, labels))
    run_stages(root, valued_params(), "ingest", "template", "weigh", "train", "evaluate")
    return root


def test_values_in_a_file_have_the_objective_of_crfsuite(valued, tmp_path):
    if importlib.util.find_spec("pycrfsuite") is None:
        pytest.skip("python-crfsuite is not installed: `make bench` installs the peers")
    import pycrfsuite

    items, labels = valued_data()
    theirs = pycrfsuite.Trainer(verbose=False)
    theirs.set_params({"c1": 0.0, "c2": 0.1, "max_iterations": 5000, "delta": 1e-14, "epsilon": 1e-12})
    theirs.set("feature.minfreq", -1e9)  # 0 would leave out pairs whose values sum to less than 0
    for row, names in zip(items, labels, strict=True):
        theirs.append(row, names)
    theirs.train(str(tmp_path / "a.crfsuite"))
    best = min(record["loss"] for record in theirs.logparser.iterations)
    model = load(valued / store.CANDIDATE)
    assert model.info["objective"] == pytest.approx(best, rel=SAME_OBJECTIVE)
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "a.crfsuite"))
    expected = [tagger.tag(row) for row in valued_data(20, 1)[0]]
    answer = b"".join(stream.tag_file(model, str(valued / "test.crfsuite"))).decode()
    assert answer == "".join("\n".join(row) + "\n\n" for row in expected)


def test_the_pipeline_takes_values_as_the_drop_in_does(valued):
    items, labels = valued_data()
    model, manifest = load(valued / store.CANDIDATE), store.read_manifest(valued)
    assert model.templates == ["U:%a[0,0,2,5]", "B"] and len(manifest["value_columns"]) == 5
    crf = CRF(c1=0.0, c2=0.1, delta=1e-12, min_freq=-1e9).fit(items, labels)
    assert model.info["objective"] == pytest.approx(crf.training_log_.last_iteration["loss"], rel=SAME_OBJECTIVE)
    answer = b"".join(stream.tag_file(model, str(valued / "test.crfsuite"))).decode()
    assert answer == "".join("\n".join(row) + "\n\n" for row in crf.predict(valued_data(20, 1)[0]))
    tagger = Tagger()
    tagger.open(valued / store.CANDIDATE)
    assert [tagger.tag(row) for row in items] == crf.predict(items)
    predicted = [label for row in crf.predict(valued_data(20, 1)[0]) for label in row]
    right = [label for row in valued_data(20, 1)[1] for label in row]
    errors = np.mean([a != b for a, b in zip(predicted, right, strict=True)])
    assert store.read_metrics(valued)["token_error"] == pytest.approx(errors, abs=1e-6)


def test_tagging_sees_the_values_that_evaluation_saw(valued, capsys):
    model, manifest = load(valued / store.CANDIDATE), store.read_manifest(valued)
    vocabulary = store.read_vocabulary(valued)["observation"].to_list()
    data = tagging.renumber(store.read_dataset(valued, "test", manifest), model, vocabulary, manifest["labels"])
    found = tagging.dataset_of(model, store.read_tokens(valued, "test")[0])
    for name in ("observations", "valued", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name), err_msg=name)
    for one in explain.explain(model, found):
        for reason in one.reasons:
            assert reason.difference == pytest.approx(sum(share.value for share in reason.shares), abs=1e-9)
    command = ["evaluate", str(valued / store.CANDIDATE), str(valued / "test.crfsuite"), "--json"]
    assert cli.main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["token_error"] == store.read_metrics(valued)["token_error"]


def test_scales_hold_for_attributes_with_and_without_a_value(tmp_path):
    """Where `both` has no value, it is 1 and scaled like its others; values ten times as large are the same fit."""
    objectives = []
    for factor in (1.0, 10.0):
        root = tmp_path / str(factor)
        root.mkdir()
        items, labels = valued_data()
        items = [[{n: v * factor if n in ("both", "x:y", "odd") else v for n, v in item.items()} for item in row]
                 for row in items]  # fmt: skip
        for name in ("a", "test"):
            (root / f"{name}.crfsuite").write_text(valued_text(items, labels))
        run_stages(root, valued_params(scale=True), "ingest", "template", "weigh", "train")
        model = load(root / store.CANDIDATE)
        values = [item["both"] for row in items for item in row]
        assert model.scales["U:both"] == pytest.approx(1.0 / np.std(values), rel=1e-9)
        assert "U:w=a" not in model.scales
        data = tagging.dataset_of(model, store.read_tokens(root, "train")[0])
        mine = np.sum(np.where(data.valued == model.observations.index("U:both"), data.values, 0.0), axis=1)
        assert np.std(mine) == pytest.approx(1.0, rel=1e-9) and not np.any(mine == 0.0)
        objectives.append(model.info["objective"])
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)


def test_attributes_with_values_have_no_weights_for_pairs(tmp_path):
    items, labels = valued_data(10)
    for name in ("a", "test"):
        (tmp_path / f"{name}.crfsuite").write_text(valued_text(items, labels))
    with pytest.raises(EspalierError, match=r"template `\*:%a\[0,0,2,3\]` looks at attributes with values"):
        run_stages(tmp_path, valued_params(lines=["*:%a"]), "ingest", "template")


def test_a_table_with_a_value_that_is_none_is_refused():
    with pytest.raises(EspalierError, match="the attribute 'len' has the value 'long', expected a finite number such"):
        attributes_in("w\tlen\x1flong")


def test_rows_of_columns_are_seen_as_the_pipeline_sees_them(valued):
    """Templates over Python's rows, with the attributes of the token before and a number from another column."""
    from espalier import CRF as Estimator

    templates = ["U:%a", "U-1:%a[-1,0]", "U:%v[0,1] %a", "B"]
    texts = store.read_tokens(valued, "train")[0]
    rows = {}
    for n, text, label in zip(texts["sequence"], texts["x0"], texts["label"], strict=True):
        rows.setdefault(n, ([], []))[0].append((text, "0.5"))
        rows[n][1].append(label)
    X, y = [row for row, _ in rows.values()], [labels for _, labels in rows.values()]
    model = Estimator(templates, rho1=0.0, rho2=0.1, verbose=False).fit(X, y).model_
    assert model.templates[1] == "U-1:%a[-1,0,2,3]"
    columns = [pa.array([cells[k] for row in X for cells in row], pa.large_string()) for k in (0, 1)]
    offsets = np.cumsum([0, *map(len, X)])
    data = features_of(model, columns, offsets)
    seen = dataset_of(
        [observations_of(model.parsed, row, n) for n, row in enumerate(X)],
        {text: i for i, text in enumerate(model.observations)}, None, None,
    )  # fmt: skip

    def bags(one):
        pairs = np.stack([np.c_[one.observations, one.valued], np.c_[np.ones(one.observations.shape), one.values]], 2)
        return [sorted((int(i), value) for i, value in row if i >= 0) for row in pairs.tolist()]

    assert bags(data) == bags(seen)
    both, number = model.observations.index("U:both"), model.observations.index("U:%v[0,1] both")
    found = dict(bags(data)[0])
    assert found[number] == 0.5 * found[both]

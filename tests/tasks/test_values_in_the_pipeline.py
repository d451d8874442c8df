"""Real values from a file to an answer: templates with %v, features, training, tagging, explaining."""

import json

import numpy as np
import pytest
from stage_runs import run_stages, small_params, tree

from espalier import CRF
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.text.templates import parse
from espalier.flows import cli
from espalier.tasks import store
from espalier.tasks.answering import explain, tagging
from espalier.tasks.params import Ingest
from espalier.tasks.training import plan

TEMPLATES = ["U:%v[0,1]", "U:%x[0,0]", "U:before:%v[-1,1]", "B"]


def sentences(count, seed=0):
    """The label is the sign of a number, but behind a large one it is Z."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        numbers = np.round(rng.normal(size=rng.integers(1, 6)), 3).tolist()
        before = [0.0, *numbers]
        yield [
            (str(rng.choice(["a", "b"])), number, "Z" if last > 1.0 else "P" if number > 0 else "N")
            for number, last in zip(numbers, before, strict=False)
        ]


def write_conll(path, rows):
    lines = ["\n".join(f"{word}\t{number}\t{label}" for word, number, label in row) for row in rows]
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def params_for(**template):
    params = small_params()
    params.ingest = Ingest(source="conll", path="data.conll", test_share=0.2)
    params.template.lines = TEMPLATES
    for name, value in template.items():
        setattr(params.template, name, value)
    return params


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("values")
    write_conll(root / "data.conll", sentences(400))
    run_stages(root, params_for(), "ingest", "template", "weigh", "train", "evaluate")
    return root


def test_the_pipeline_learns_from_numbers(trained):
    metrics = store.read_metrics(trained)
    assert metrics["token_error"] < 0.05
    model = load(trained / store.CANDIDATE)
    assert {"U:%v[0,1]", "U:before:%v[-1,1]"} <= set(model.observations)
    manifest = store.read_manifest(trained)
    assert manifest["value_columns"] == ["t00", "t02"] and manifest["columns"] == ["t01", "t03"]


def test_what_tagging_sees_is_what_training_saw(trained):
    model, manifest = load(trained / store.CANDIDATE), store.read_manifest(trained)
    vocabulary = store.read_vocabulary(trained)["observation"].to_list()
    data = tagging.renumber(store.read_dataset(trained, "test", manifest), model, vocabulary, manifest["labels"])
    tokens = store.read_tokens(trained, "test")[0]
    found = tagging.dataset_of(model, tokens)
    for name in ("observations", "valued", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name), err_msg=name)


def test_shards_of_any_size_leave_the_same_bytes(trained, tmp_path):
    found = set()
    for shard_tokens in (10**6, 97):
        root = tmp_path / str(shard_tokens)
        root.mkdir()
        (root / "data.conll").write_bytes((trained / "data.conll").read_bytes())
        run_stages(root, params_for(shard_tokens=shard_tokens), "ingest", "template", "weigh", "train")
        found.add((root / store.CANDIDATE).read_bytes())
    assert len(found) == 1


def test_the_plan_counts_values(trained):
    seen = plan.sample(store.read_shards(trained, "train", store.read_manifest(trained)))
    assert seen.valued.shape == (len(seen.labels), 2) and len(seen.values) == len(seen.labels)


def test_an_explanation_says_the_value_and_adds_up(trained):
    model = load(trained / store.CANDIDATE)
    tokens = store.read_tokens(trained, "test")[0]
    told = list(explain.explain(model, tagging.dataset_of(model, tokens)))
    rows = [explain.as_object(model, ["?"] * len(one.labels), one, 99) for one in told[:20]]
    weights = [weight for row in rows for token in row["tokens"] for weight in token.get("weights", [])]
    some = [weight for weight in weights if weight["observation"] == "U:%v[0,1]"]
    assert some and all(f" is {weight['value']:.6g}" in weight["text"] for weight in some)
    for one in told:
        for reason in one.reasons:
            assert reason.difference == pytest.approx(sum(share.value for share in reason.shares), abs=1e-9)


def test_the_command_tags_and_shows_weights(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(trained)
    (tmp_path / "new.conll").write_text("a\t2.5\nb\t-0.5\n\nb\t_\n", encoding="utf-8")
    assert cli.main(["tag", "--model", store.CANDIDATE, str(tmp_path / "new.conll")]) == 0
    labels = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if line]
    assert labels[:2] == ["P", "Z"] and len(labels) == 3
    assert cli.main(["inspect", store.CANDIDATE, "--json"]) == 0
    assert "U:%v[0,1]" in capsys.readouterr().out


def test_scaling_is_learned_on_train_and_stored(tmp_path):
    """Numbers a thousand times as large make the same model, but for its scales."""
    answers = []
    for folder, factor in (("small", 1.0), ("large", 1000.0)):
        root = tmp_path / folder
        root.mkdir()
        rows = [[(word, round(factor * number, 6), label) for word, number, label in row] for row in sentences(300, 1)]
        params = params_for(scale=True)
        for name, part in (("data", rows[:200]), ("dev", rows[200:250]), ("test", rows[250:])):
            write_conll(root / f"{name}.conll", part)
        params.ingest.dev_path, params.ingest.test_path = "dev.conll", "test.conll"
        run_stages(root, params, "ingest", "template", "weigh", "train")
        model = load(root / store.CANDIDATE)
        assert model.scales["U:%v[0,1]"] == pytest.approx(1.0 / factor, rel=0.2)
        answers.append((model.info["objective"], tagging.tag(model, store.read_tokens(root, "test")[0])))
        dataset = tagging.dataset_of(model, store.read_tokens(root, "train")[0])
        assert np.std(dataset.values[:, 0]) == pytest.approx(1.0, rel=1e-2)
    assert answers[0][0] == pytest.approx(answers[1][0], rel=1e-6) and answers[0][1] == answers[1][1]


def test_a_warm_start_knows_other_scales(tmp_path):
    write_conll(tmp_path / "data.conll", sentences(300, 1))
    params = params_for(scale=True)
    run_stages(tmp_path, params, "ingest", "template", "weigh", "train")
    scaled = load(tmp_path / store.CANDIDATE)
    (tmp_path / store.CANDIDATE).rename(tmp_path / "earlier.model")
    params = params_for()
    params.train.initial, params.train.max_iterations = "earlier.model", 1
    run_stages(tmp_path, params, "template", "weigh", "train")
    first = store.read_jsonl(tmp_path / store.TRACE)[0]["objective"]
    params.train.initial = None
    run_stages(tmp_path, params, "train")
    assert first < 0.9 * store.read_jsonl(tmp_path / store.TRACE)[0]["objective"], "it begins where the other ended"
    assert scaled.scales and not load(tmp_path / store.CANDIDATE).scales


# ---- templates


def test_a_line_with_a_value_has_one_observation():
    (template,) = parse(["U:%x[0,0]:%v[-1,1]  # the number before"])
    assert template.value.shift == -1 and template.value.source.column == 1
    assert [part if isinstance(part, str) else part.text for part in template.parts] == ["U:", "%x[0,0]", ":%v[-1,1]"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("B:%v[0,1]", "weights for pairs of labels cannot have; begin the line with U"),
        ("*:%v[0,1]", "weights for pairs of labels cannot have"),
        ("U:%v[0,1]%v[0,2]", r"has two values \(%v\); write each in a line of its own"),
        ("U:%v[0,1,3]", r"has a % that is no macro; expected %v\[row,col\]"),
    ],
)
def test_what_cannot_have_a_value(line, text):
    with pytest.raises(EspalierError, match=text):
        parse([line])


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "word", "1,5", "0x10", "१"])
def test_what_is_no_number_is_refused_with_its_place(trained, tmp_path, text):
    write_conll(tmp_path / "data.conll", [*sentences(30), [("a", 0.5, "P"), ("b", text, "N")]])
    params = params_for()
    run_stages(tmp_path, params, "ingest")
    before = tree(tmp_path)
    with pytest.raises(EspalierError, match=r"column 1 holds .* at position 1 of sequence \d+, where a template looks"):
        run_stages(tmp_path, params, "template")
    assert tree(tmp_path) == before


def test_columns_of_other_formats_are_numbers_too(trained, tmp_path):
    rows = list(sentences(200, 2))
    with (tmp_path / "data.jsonl").open("w", encoding="utf-8") as file:
        for row in rows:
            words, numbers, labels = zip(*row, strict=True)
            file.write(json.dumps({"tokens": words, "number": numbers, "labels": labels}) + "\n")
    params = params_for()
    params.ingest = Ingest(source="files", path="data.jsonl", columns=["tokens", "number"], test_share=0.2)
    run_stages(tmp_path, params, "ingest", "template", "weigh", "train", "evaluate")
    assert store.read_metrics(tmp_path)["token_error"] < 0.1


def test_a_family_without_values_says_so(trained, tmp_path):
    (tmp_path / "data.conll").write_bytes((trained / "data.conll").read_bytes())
    params = params_for()
    params.model.family = "hmm"
    with pytest.raises(EspalierError, match="hmm cannot learn from real values: set model.family to one of crf, memm"):
        run_stages(tmp_path, params, "ingest", "template", "weigh", "train")


def test_a_shard_with_a_value_that_is_not_finite_is_refused(trained, tmp_path):
    path = trained / store.FEATURES / "train" / "00000.arrow"
    shard = store.read_shard(path, 2, 2)
    values = shard.values.copy()
    values[5, 0] = np.inf
    store.write_shard(tmp_path / "bad.arrow", shard._replace(values=values))
    manifest = store.read_manifest(trained)
    with pytest.raises(EspalierError, match="bad.arrow: value inf of observation"):
        store.features._dataset_of(tmp_path / "bad.arrow", manifest, store.read_shard(tmp_path / "bad.arrow", 2, 2))


# ---- Python


def test_python_and_the_pipeline_agree(trained):
    model = load(trained / store.CANDIDATE)
    tokens = store.read_tokens(trained, "test")[0]
    labeller = CRF.load(trained / store.CANDIDATE)
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())
    rows = list(zip(tokens["x0"].to_list(), tokens["x1"].to_list(), strict=True))
    found = labeller.predict([rows[a:b] for a, b in zip(offsets, offsets[1:], strict=False)])
    assert [label for row in found for label in row] == tagging.tag(model, tokens)

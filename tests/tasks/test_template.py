"""From tokens to integers: a vocabulary that grows on the training data alone, and features by its ids."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import templates as reference
from stage_runs import run_stages, small_params, tree

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.engine.text import lookup
from espalier.tasks import store, template
from espalier.tasks.answering import tagging
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.templating.expansion import encode, parse

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=80)
LINES = ["U:%x[0,0]", "U:%x[1,0]", "*2:%x[-1,0]/%x[0,0]", "B"]
APART = ["U1:%x[0,0]/%x[1,0]", 'U2:%t[-1,0,"^a$"]', "B"]  # each has a name; one text in several ways, as at an edge
SEQUENCES = st.lists(st.lists(st.sampled_from(["a", "b", "/", "_x+1", "é"]).map(lambda x: [x]), min_size=1, max_size=4),
                     min_size=1, max_size=4)  # fmt: skip


def tokens_of(sequences, labels=None):
    columns = {
        "sequence": pl.Series([n for n, s in enumerate(sequences) for _ in s], dtype=pl.Int32),
        "x0": pl.Series([row[0] for s in sequences for row in s], dtype=pl.String),
    }
    return pl.DataFrame(columns | ({"label": pl.Series(labels, dtype=pl.String)} if labels is not None else {}))


def write(root, train, test, dev=(), unlabelled=()):
    """Token files of a project; each part is a list of words, the label of a letter is its capital."""
    info = {"source": "hand", "nouns": {"token": "t", "label": "l", "sequence": "s"}, "truth": None}
    for name, words in {"train": train, "dev": dev, "test": test, "unlabelled": unlabelled}.items():
        labels = None if name == "unlabelled" else [letter.upper() for word in words for letter in word]
        store.write_tokens(root, name, tokens_of([[[letter] for letter in word] for word in words], labels), info)


def run(root, lines=("U:%x[0,0]", "B"), **options):
    params = Params()
    params.template = type(params.template)(list(lines), **options)
    return template.main(root, params, Progress())


# ---- the vocabulary


@EXAMPLES
@given(SEQUENCES, st.integers(1, 3), st.sampled_from([LINES, APART]))
def test_the_vocabulary_is_that_of_a_count_by_hand(sequences, min_count, lines):
    expansions = encode(tokens_of(sequences), parse(lines))
    expected = reference.vocabulary(sequences, lines, min_count)
    if not expected:
        with pytest.raises(EspalierError, match=f"no observation occurs {min_count} times: lower template.min_count"):
            template.grow_vocabulary([expansions], min_count)
        return
    found = template.grow_vocabulary([expansions], min_count)
    assert found.select("observation", "template", "count").rows() == expected


@EXAMPLES
@given(SEQUENCES, SEQUENCES)
def test_ids_point_at_the_observation_and_unknown_ones_are_minus_one(train, other):
    templates = parse(LINES)
    vocabulary = template.grow_vocabulary([encode(tokens_of(train), templates)], 1)["observation"]
    known = {text: i for i, text in enumerate(vocabulary)}
    texts = lookup.make_vocabulary(store.arrow_texts(vocabulary))
    found = template.features(tokens_of(other), templates, texts, template.Labels(["X"], []))
    assert found.observations.dtype == np.int32 and found.labels.tolist() == [-1] * sum(map(len, other))
    expected = [[known.get(text, -1) for text in row] for row in reference.expand(other, LINES)]
    assert found.observations.tolist() == expected


@EXAMPLES
@given(st.lists(SEQUENCES, min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 5))
def test_the_vocabulary_of_blocks_is_that_of_all(blocks, min_count, merge):
    whole = [sequence for block in blocks for sequence in block]
    expected = reference.vocabulary(whole, LINES, min_count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template, "MERGE", merge)
        expansions = (encode(tokens_of(block), parse(LINES)) for block in blocks)
        if not expected:
            with pytest.raises(EspalierError, match="no observation occurs"):
                template.grow_vocabulary(expansions, min_count)
            return
        assert template.grow_vocabulary(expansions, min_count).rows() == expected


def test_labels_become_ids_and_unknown_ones_minus_one():
    tokens, labels = tokens_of([[["a"], ["b"], ["c"]]], ["X", "Q", "Y"]), template.Labels(["X", "Y"], [])
    assert labels.ids(tokens).tolist() == [0, -1, 1]
    assert labels.ids(tokens.drop("label")).tolist() == [-1, -1, -1]


def test_sets_of_labels_come_after_the_unknown_one():
    texts = ["X", "", "Y\x1fZ", "X\x1fY", "Y\x1fZ"]
    labels = template.Labels.of(texts)
    assert labels == (["X", "Y", "Z"], [["X", "Y"], ["Y", "Z"]])
    assert labels.ids(tokens_of([[["a"]] * 5], texts)).tolist() == [0, -1, -3, -2, -3]


def test_partial_labels_reach_the_data_set(tmp_path):
    write(tmp_path, train=["ab"], test=["b"])
    tokens = tokens_of([[["a"], ["b"], ["a"]]], ["A", "", "A\x1fB"])
    info = {"source": "hand", "nouns": {"token": "t", "label": "l", "sequence": "s"}, "truth": None}
    store.write_tokens(tmp_path, "train", tokens, info)
    run(tmp_path)
    manifest = store.read_manifest(tmp_path)
    assert manifest["labels"] == ["A", "B"] and manifest["label_sets"] == [["A", "B"]]
    train = store.read_dataset(tmp_path, "train", manifest)
    assert train.labels.tolist() == [0, -1, -2] and train.label_sets.tolist() == [[True, True]]


def test_training_data_without_a_known_label_are_refused(tmp_path):
    write(tmp_path, train=["ab"], test=["b"])
    info = {"source": "hand", "nouns": {"token": "t", "label": "l", "sequence": "s"}, "truth": None}
    store.write_tokens(tmp_path, "train", tokens_of([[["a"]]], [""]), info)
    with pytest.raises(EspalierError, match="no token of the training data has a known label: label some"):
        run(tmp_path)


# ---- the stage


def test_the_stage_by_hand(tmp_path):
    write(tmp_path, train=["ab", "b"], test=["bz"], unlabelled=["a"])
    figures = run(tmp_path)
    assert figures == {"templates": 2, "observations": 3, "labels": 2}
    vocabulary = store.read_vocabulary(tmp_path)
    assert vocabulary.rows() == [("U:b", 0, 2), ("U:a", 0, 1), ("B", 1, 3)]
    manifest = store.read_manifest(tmp_path)
    assert manifest["labels"] == ["A", "B"] and manifest["kinds"] == ["U", "B"]
    assert manifest["splits"]["dev"] == {"sequences": 0, "tokens": 0, "shards": ["dev/00000.arrow"]}
    assert manifest["splits"]["train"] == {"sequences": 2, "tokens": 3, "shards": ["train/00000.arrow"]}
    train = store.read_dataset(tmp_path, "train", manifest)
    assert train.observations.tolist() == [[1, 2], [0, 2], [0, 2]]
    assert (train.labels.tolist(), train.offsets.tolist()) == ([0, 1, 1], [0, 2, 3])
    test = store.read_dataset(tmp_path, "test", manifest)
    assert (test.observations.tolist(), test.labels.tolist()) == ([[0, 2], [-1, 2]], [1, -1])
    unlabelled = store.read_dataset(tmp_path, "unlabelled", manifest)
    assert (unlabelled.observations.tolist(), unlabelled.labels.tolist()) == ([[1, 2]], [-1])


def test_the_vocabulary_knows_nothing_of_the_other_parts(tmp_path):
    write(tmp_path, train=["ab"], test=["xy"], dev=["uv"], unlabelled=["pq"])
    run(tmp_path)
    first = (tmp_path / store.VOCABULARY).read_bytes()
    write(tmp_path, train=["ab"], test=["ba", "ab"], dev=[], unlabelled=[])
    run(tmp_path)
    assert (tmp_path / store.VOCABULARY).read_bytes() == first


def test_the_data_version_changes_with_any_part(tmp_path):
    versions = set()
    for change in ({}, {"test": ["bb"]}, {"dev": ["a"]}, {"unlabelled": ["a"]}, {"train": ["ba"]}):
        write(tmp_path, **({"train": ["ab"], "test": ["b"]} | change))
        run(tmp_path)
        versions.add(store.read_manifest(tmp_path)["data_version"])
    assert len(versions) == 5


@pytest.mark.parametrize("lines", [["U:%x[0,0]", "B"], ["U", "B"]])
def test_empty_parts_are_files_like_any_other(tmp_path, lines):
    write(tmp_path, train=["ab"], test=["b"], dev=[], unlabelled=[])
    run(tmp_path, lines)
    manifest = store.read_manifest(tmp_path)
    assert store.read_dataset(tmp_path, "dev", manifest).observations.shape == (0, 2)


def test_shards_cut_between_sequences_hold_the_same_data(tmp_path):
    words = ["abcab", "a", "bc", "c", "abcabcabc", "b"]
    write(tmp_path, train=words, test=["a"])
    run(tmp_path)
    whole = store.read_dataset(tmp_path, "train", store.read_manifest(tmp_path))
    run(tmp_path, shard_tokens=3)
    manifest = store.read_manifest(tmp_path)
    shards = manifest["splits"]["train"]["shards"]
    sizes = [len(store.read_arrow(tmp_path / store.FEATURES / name)[0]) for name in shards]
    assert sizes == [5, 3, 10, 1]  # each ends at the first end of a sequence at or after three positions
    parts = store.read_dataset(tmp_path, "train", manifest)
    assert all((a == b).all() for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("shard_tokens", [1, 3, 100])
def test_tokens_in_blocks_of_any_size_give_the_same_features(tmp_path, size, shard_tokens):
    words = ["abcab", "a", "bc", "c", "abcabcabc", "b"]
    write(tmp_path, train=words, test=["a"])
    run(tmp_path, shard_tokens=shard_tokens)
    before = {path: data for path, data in tree(tmp_path).items() if "features" in path and "manifest" not in path}
    tokens, info = store.read_tokens(tmp_path, "train")
    with store.token_writer(tmp_path, "train", info) as append:
        for begin in range(0, len(words), size):
            append(tokens.filter(pl.col("sequence").is_between(begin, begin + size - 1)))
    run(tmp_path, shard_tokens=shard_tokens)
    after = tree(tmp_path)
    assert {path: after[path] for path in before} == before


def test_stale_shards_go_away(tmp_path):
    write(tmp_path, train=["ab", "ba", "ab"], test=["a"])
    run(tmp_path, shard_tokens=1)
    assert len(list((tmp_path / "data/features/train").glob("*.arrow"))) == 3
    run(tmp_path)
    assert [path.name for path in (tmp_path / "data/features/train").iterdir()] == ["00000.arrow"]


def test_the_same_input_gives_the_same_bytes(project):
    before = tree(project)
    run_stages(project, small_params(), "template")
    assert tree(project) == before


def test_the_manifest_is_json_that_names_its_vocabulary(project):
    manifest = json.loads((project / store.MANIFEST).read_text(encoding="utf-8"))
    assert manifest["vocabulary_sha256"] == store.file_hash(project / store.VOCABULARY)
    assert manifest["observations"] == len(store.read_vocabulary(project))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["U:%x[0,7]"], "points at column 7, the data has column 0"),
        (["U", "U:%x[0;0]"], "template.lines, line 2"),
    ],
)
def test_a_bad_template_changes_nothing(project, lines, expected):
    before, params = tree(project), small_params()
    params.template.lines = lines
    with pytest.raises(EspalierError) as caught:
        run_stages(project, params, "template")
    assert expected in str(caught.value)
    assert tree(project) == before


@pytest.mark.parametrize("split", store.SPLITS)
def test_a_damaged_part_stops_the_stage_before_it_writes(project, split):
    """The training data are read first: features of a new run must not stand beside a vocabulary of the old one."""
    params = small_params()
    params.template.lines = ["U:%x[0,0]", "U9:%x[1,0]"]
    path = project / store.TOKENS.format(split)
    path.write_bytes(path.read_bytes()[:-40])
    before = tree(project)
    with pytest.raises(EspalierError, match=f"tokens/{split}.arrow: damaged .*run `espalier stage ingest` again"):
        run_stages(project, params, "template")
    assert tree(project) == before


def test_a_part_with_fewer_columns_stops_the_stage(project):
    train, info = store.read_tokens(project, "train")
    store.write_tokens(project, "train", train.select("sequence", "x0", pl.col("x0").alias("x1"), "label"), info)
    params = small_params()
    params.template.lines = ["U:%x[0,1]"]
    before = tree(project)
    with pytest.raises(EspalierError, match="points at column 1, the data has column 0"):
        run_stages(project, params, "template")
    assert tree(project) == before


# ---- templates with several values, bins and lists

RICH = ["U:%g[0,0,2]", 'U1:%l[0,0,"names.txt"]/%x[1,0]', "U2:%q[0,0,2]", "u3:%x[@-1,0]", "B"]


def rich_project(root, **options):
    """Training words over letters and digits, and a list of names beside them."""
    (root / "names.txt").write_text("a b\tpair\nb\n", encoding="utf-8")
    write(root, train=["ab1", "b2a", "3"], test=["ab", "é9"], unlabelled=["bab"])
    return run(root, RICH, **options)


def test_what_the_training_data_decide_is_in_the_manifest(tmp_path):
    rich_project(tmp_path)
    manifest = store.read_manifest(tmp_path)
    assert manifest["templates"] == ["U:%g[0,0,2,2]", RICH[1], 'U2:%q[0,0,"2.0"]', *RICH[3:]]
    assert manifest["columns"] == ["t00", "t00.1", "t01", "t02", "t03", "t04"]
    assert manifest["lists"] == {"names.txt": ["a b\tpair", "b"]} and manifest["kinds"] == ["U", "U", "U", "U", "B"]


@pytest.mark.parametrize("shard_tokens", [1, 1000])
def test_features_of_rich_templates_by_hand(tmp_path, shard_tokens):
    rich_project(tmp_path, shard_tokens=shard_tokens)
    manifest = store.read_manifest(tmp_path)
    words = {"train": ["ab1", "b2a", "3"], "test": ["ab", "é9"], "unlabelled": ["bab"]}
    lines, lists = manifest["templates"], manifest["lists"]
    names = store.read_vocabulary(tmp_path)["observation"].to_list()
    expected = reference.vocabulary([[[c] for c in word] for word in words["train"]], lines, 1, lists)
    assert store.read_vocabulary(tmp_path).rows() == expected
    for split, part in words.items():
        found = store.read_dataset(tmp_path, split, manifest).observations
        rows = reference.expand([[[c] for c in word] for word in part], lines, lists)
        assert found.tolist() == [[names.index(text) if text in names else -1 for text in row] for row in rows]


def test_a_model_alone_is_enough_to_tag_elsewhere(tmp_path):
    """Without the list, without the features: what the templates need is in the model file."""
    rich_project(tmp_path)
    params = small_params()
    params.template.lines = RICH
    params.crf.rho1 = 0.01
    run_stages(tmp_path, params, "template", "weigh", "train", "evaluate")
    (tmp_path / "names.txt").unlink()
    model = load_model(tmp_path / store.CANDIDATE)
    assert model.lists == {"names.txt": ["a b\tpair", "b"]}
    tokens = tokens_of([[["a"], ["b"], ["1"]], [["é"]]])
    found = tagging.dataset_of(model, tokens).observations
    rows = reference.expand([[["a"], ["b"], ["1"]], [["é"]]], model.templates, model.lists)
    known = {text: i for i, text in enumerate(model.observations)}
    expected = [[known[text] for text in row if text in known] for row in rows]
    assert [[i for i in row if i >= 0] for row in found.tolist()] == expected
    assert any(text.startswith("U1:B-pair/") for text in model.observations)


def test_a_file_of_templates(tmp_path):
    write(tmp_path, train=["ab"], test=["b"])
    (tmp_path / "pattern.txt").write_text("# Wapiti's\nu:%x[0,0]\n\n*\n", encoding="utf-8")
    run(tmp_path, ["U"], file=None)
    params = Params()
    params.template.lines, params.template.file = None, "pattern.txt"
    template.main(tmp_path, params, Progress())
    assert store.read_manifest(tmp_path)["templates"] == ["u:%x[0,0]", "*"]
    assert store.read_vocabulary(tmp_path)["observation"].to_list() == ["u:a", "u:b", "*"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['U:%l[0,0,"none.txt"]'], "there is no such list of names"),
        (["U:%q[0,0,4]"], "makes bins of column 0, which holds no number in the training data"),
        (["U:%q[0,3,4]"], "points at column 3"),
    ],
)
def test_what_cannot_be_resolved_changes_nothing(project, lines, expected):
    before, params = tree(project), small_params()
    params.template.lines = lines
    if "%q[0,0" in lines[0]:
        write(project, train=["ab"], test=["b"])
        before = tree(project)
    with pytest.raises(EspalierError) as caught:
        run_stages(project, params, "template")
    assert expected in str(caught.value)
    assert tree(project) == before


@settings(deadline=None, derandomize=True)
@given(st.lists(st.lists(st.text("Uab:", min_size=1, max_size=4), unique=True), max_size=4))
def test_series_are_apart_only_if_they_share_no_text(groups):
    together = [text for group in groups for text in group]
    if template.apart([pl.Series(group, dtype=pl.String) for group in groups]):
        assert len(set(together)) == len(together)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([["U1:a", "U1:b"], ["U2:a"]], True),
        ([["U1:a", "U1:b"], ["U1:a"]], False),
        ([["U", "U:"], ["U1:a"]], False),  # what the first begin with begins the second, too
        ([["U1:a"], []], True),
        ([], True),
    ],
)
def test_beginnings_tell_that_series_are_apart(groups, expected):
    assert template.apart([pl.Series(group, dtype=pl.String) for group in groups]) == expected

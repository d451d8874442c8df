"""Models of CRFsuite, Wapiti and CRF++: their labels are kept, and files that lie are refused."""

import gzip
import importlib.util
import itertools
import json
import random
import struct
import subprocess
import sys
import tracemalloc

import crfpp_files
import numpy as np
import pyarrow as pa
import pytest

from espalier.crfsuite import Tagger
from espalier.engine import importing
from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.engine.features import features_of
from espalier.engine.importing.edges import match

LABELS = ["A", "B", "C"]
WORDS = ["a", "b", "É", "_B-1", "_x-1", "12", "a/b"]


# ---- the obvious decoder


def best(unigram, bigram):
    """The labelling with the largest score, of all; unigram[t][y] and bigram[t][before][y]."""

    def score(path):
        total = sum(row[y] for row, y in zip(unigram, path, strict=True))
        return total + sum(bigram[t][path[t - 1]][path[t]] for t in range(1, len(path)))

    return list(max(itertools.product(range(len(LABELS)), repeat=len(unigram)), key=score))


def labelled(model, rows):
    """The labels that a model of templates says of one sequence of rows."""
    columns = [pa.array([row[i] for row in rows], pa.large_string()) for i in range(len(rows[0]))]
    return [model.labels[i] for i in model.best(features_of(model, columns, np.array([0, len(rows)])))]


def sequences(seed, width=1, longest=5, words=WORDS):
    chance = random.Random(seed)
    lengths = [chance.randint(1, longest) for _ in range(40)]
    return [[[chance.choice(words) for _ in range(width)] for _ in range(length)] for length in lengths]


# ---- CRFsuite


def text_list(texts):
    """A CQDB with its backward array; the hash tables are empty, since a reader of weights needs none."""
    records, places = b"", []
    for number, text in enumerate(texts):
        places.append(24 + 256 * 8 + len(records))
        raw = text.encode() + b"\0"
        records += struct.pack("<II", number, len(raw)) + raw
    backward = 24 + 256 * 8 + len(records)
    size = backward + 4 * len(places)
    head = struct.pack("<4s5I", b"CQDB", size, 0, 0x62445371, len(places), backward)
    return head + bytes(256 * 8) + records + struct.pack(f"<{len(places)}I", *places)


def crfsuite_file(labels, attributes, weights):
    """A binary model; weights are (type, source, label, weight)."""
    rows = b"".join(struct.pack("<IIId", *row) for row in weights)
    chunk = struct.pack("<4sII", b"FEAT", 12 + len(rows), len(weights)) + rows
    first, second = text_list(labels), text_list(attributes)
    places = 48, 48 + len(chunk), 48 + len(chunk) + len(first)
    size = 48 + len(chunk) + len(first) + len(second)
    head = struct.pack("<4sI4s9I", b"lCRF", size, b"FOMC", 100, 0, len(labels), len(attributes), *places, 0, 0)
    return head + chunk + first + second


def small_crfsuite(seed=0):
    chance = random.Random(seed)
    states = [(0, a, y, chance.gauss(0, 1)) for a in range(len(WORDS)) for y in range(3)]
    pairs = [(1, a, y, chance.gauss(0, 1)) for a in range(3) for y in range(3)]
    return crfsuite_file(LABELS, WORDS, states + pairs), states, pairs


def test_labels_of_a_crfsuite_model_are_those_of_all_labellings(tmp_path):
    data, states, pairs = small_crfsuite()
    (tmp_path / "a.crfsuite").write_bytes(data)
    state, pair = np.zeros((len(WORDS), 3)), np.zeros((3, 3))
    for _, a, y, weight in states:
        state[a, y] = weight
    for _, a, y, weight in pairs:
        pair[a, y] = weight
    tagger = Tagger()
    tagger.open(tmp_path / "a.crfsuite")
    for rows in sequences(1):
        items = [[row[0], "never seen"] for row in rows]
        expected = best([state[WORDS.index(row[0])] for row in rows], [pair] * len(rows))
        assert tagger.tag(items) == [LABELS[y] for y in expected]
    again = Tagger()
    again.open_inmemory(data)
    assert again.info().state_features == tagger.info().state_features


def peer(name, package):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{package} is not installed: `make bench` installs the peers")
    return importlib.import_module(name)


def test_labels_and_weights_are_those_of_python_crfsuite(tmp_path):
    crfsuite = peer("pycrfsuite", "python-crfsuite")
    chance, trainer = random.Random(3), crfsuite.Trainer(verbose=False)
    for rows in sequences(2):
        trainer.append([[f"w:{row[0]}"] for row in rows], [chance.choice(LABELS) for _ in rows])
    trainer.set_params({"c2": 0.01, "max_iterations": 20})
    trainer.train(str(tmp_path / "a.crfsuite"))
    theirs, ours = crfsuite.Tagger(), Tagger()
    theirs.open(str(tmp_path / "a.crfsuite")), ours.open(tmp_path / "a.crfsuite")
    assert theirs.labels() == ours.labels()
    for rows in sequences(4, longest=9):
        items = [[f"w:{row[0]}"] for row in rows]
        assert ours.tag(items) == theirs.tag(items)
        assert ours.probability(ours.tag()) == pytest.approx(theirs.probability(theirs.tag()), rel=1e-9)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda data: data[:30], "ends at byte 30, within what begins at byte 0"),
        (lambda data: data[:-1], "it says that it has"),
        (lambda data: data.replace(b"FOMC", b"XXXX"), "b'XXXX'"),
        (lambda data: data.replace(b"FEAT", b"TAEF"), "there are no 30 weights at byte 48"),
        (lambda data: data[:56] + b"\xff\xff\xff\x7f" + data[60:], "there are no 2,147,483,647 weights"),
        (lambda data: data[:28] + b"\xff\xff\xff\x7f" + data[32:], "within what begins at byte 2,147,483,647"),
        (lambda data: data[:20] + b"\xff\xff\xff\x7f" + data[24:], "different labels, expected at most 8,192"),
        (lambda data: data[:24] + b"\xff\xff\xff\x7f" + data[28:], "there are no 2,147,483,647 attributes"),
        (lambda data: data[:20] + b"\x02\0\0\0" + data[24:], "a weight is of label"),
        (lambda data: data[:60] + b"\x07\0\0\0" + data[64:], "a weight is of type 7"),
        (lambda data: data[:64] + b"\x99\0\0\0" + data[68:], "a weight is of attribute 153, there are 7"),
        (lambda data: data[:72] + struct.pack("<d", float("nan")) + data[80:], "weight 0 is not a finite number"),
        (lambda data: data[:80] + data[60:80] + data[100:], "a weight is there twice"),
        (lambda data: data.replace(b"12\0", b"\xff2\0"), "which is not UTF-8"),
        (lambda data: data.replace(b"12\0", b"a\0\0"), "attribute"),
    ],
)  # fmt: skip
def test_a_damaged_crfsuite_model_is_refused_in_words(change, words):
    with pytest.raises(EspalierError) as error:
        importing.read_crfsuite(change(small_crfsuite()[0]), "bad.crfsuite")
    assert words in str(error.value) and str(error.value).startswith("bad.crfsuite: ")


def test_texts_that_lie_over_each_other_are_refused_before_they_take_memory():
    """Each record is within the one before, so that all of them together would be far more than the file."""
    count = 4000
    records = bytearray(8 * count + 1)
    for i in range(count):
        struct.pack_into("<II", records, 8 * i, i, len(records) - 8 * i - 8)
    begin = 24 + 256 * 8
    places = struct.pack(f"<{count}I", *(begin + 8 * i for i in range(count)))
    size = begin + len(records) + len(places)
    head = struct.pack("<4s5I", b"CQDB", size, 0, 0x62445371, count, begin + len(records))
    hostile = head + bytes(256 * 8) + bytes(records) + places
    chunk, labels = struct.pack("<4sII", b"FEAT", 12, 0), text_list(LABELS)
    places = 48, 60, 60 + len(labels)
    total = 60 + len(labels) + len(hostile)
    data = struct.pack("<4sI4s9I", b"lCRF", total, b"FOMC", 100, 0, 3, count, *places, 0, 0) + chunk + labels + hostile
    tracemalloc.start()
    with pytest.raises(EspalierError, match="attribute 0 does not"):
        importing.read_crfsuite(data, "bad.crfsuite")
    assert tracemalloc.get_traced_memory()[1] < 20 * len(data)
    tracemalloc.stop()


# ---- CRF++

TEMPLATES = [
    "U00:%x[0,0]", "U01:%x[-1,0]/%x[0,0]", "U02:%x[-2,0]/%x[2,1]", "U_B-1:%x[1,0]%x[-1,1]", "B", "B01:%x[-1,0]",
]  # fmt: skip


def small_crfpp(seed=0):
    """The file, and the weights of each observation."""
    chance, seen = random.Random(seed), {}
    for rows in sequences(5, width=2):
        for t in range(len(rows)):
            for text in (text for part in crfpp_files.expand(TEMPLATES, rows, t) for text in part):
                seen.setdefault(text, [chance.gauss(0, 1) for _ in range(3 if text[0] == "U" else 9)])
    weights = [weight for run in seen.values() for weight in run]
    return crfpp_files.as_text(TEMPLATES, LABELS, seen, weights, 2), seen


def test_labels_of_a_crfpp_model_are_those_of_all_labellings(tmp_path):
    data, weights = small_crfpp()
    (tmp_path / "model.txt").write_bytes(data)
    model = importing.read(tmp_path / "model.txt")
    assert any(text.startswith("U01:_x-1/") for text in model.observations)
    assert not any(text.startswith("U01:_B") for text in model.observations)
    for rows in sequences(6, width=2, words=[word for word in WORDS if not word.startswith("_")]):
        unigram, bigram = [], []
        for t in range(len(rows)):
            states, pairs = crfpp_files.expand(TEMPLATES, rows, t)
            unigram.append(sum((np.array(weights[x]) for x in states if x in weights), np.zeros(3)))
            bigram.append(sum((np.array(weights[x]) for x in pairs if x in weights), np.zeros(9)).reshape(3, 3))
        assert labelled(model, rows) == [LABELS[y] for y in best(unigram, bigram)]


def test_the_cost_factor_scales_weights_and_ends_of_lines_may_be_those_of_windows():
    data, _ = small_crfpp()
    plain = importing.read_crfpp(data, "a")
    doubled = importing.read_crfpp(data.replace(b"cost-factor: 1", b"cost-factor: 2").replace(b"\n", b"\r\n"), "a")
    np.testing.assert_allclose(doubled.theta, 2 * plain.theta)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda data: data[:40], "parts with empty lines between them, expected 5"),
        (lambda data: data.replace(b"maxid: ", b"maxid: 1"), "weights, expected 1"),
        (lambda data: data.replace(b"maxid: ", b"minid: "), "its head has no maxid"),
        (lambda data: data.replace(b"\n0 U", b"\n1 U"), "do not have the slots that their weights take"),
        (lambda data: data.replace(b"\n0 U", b"\n-1 U"), "is no slot and observation that begins with U or B"),
        (lambda data: data.replace(b"U00:%x[0,0]", b"U00:%y[0,0]"), "templates, line 1: `U00:%y[0,0]` has a % that"),
        (lambda data: data[:-3] + b"zz\n", "a weight is no number"),
        (lambda data: data[:-12] + b"9" * 1000 + b"\n", "a weight is no number"),
        (lambda data: data.replace(b"\nA\n", b"\nB\n"), "a label is there twice"),
    ],
)
def test_a_damaged_crfpp_model_is_refused_in_words(change, words):
    with pytest.raises(EspalierError) as error:
        importing.read_crfpp(change(small_crfpp()[0]), "bad.txt")
    assert words in str(error.value)


def test_a_binary_crfpp_model_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "model").write_bytes(b"\x64\0\0\0\0\0\0\0" + bytes(50))
    with pytest.raises(EspalierError, match="a binary model of CRF.*`crf_learn -t`"):
        importing.read(tmp_path / "model")


# ---- Wapiti

PATTERNS = r"""U00:%x[0,0]
u01:%x[-1,0]/%x[+1,1]
*02:%X[0,1]
U03:%x[-6,0]|%x[5,0]
U04:%t[-1,0,"^\u"]%m[0,0,"\d*"]
b
"""
WAPITI = """
import json, sys
import wapiti
patterns, kind, train, test, path = json.load(sys.stdin)
model = wapiti.Model(patterns=patterns, algo="l-bfgs", nthread=1, maxiter=8, rho1=0.05, type=kind)
for sequence in train:
    model.add_training_sequence(sequence)
model.train()
model.save(path)
answers = [model.label_sequence(text).decode().strip().split("\\n") for text in test]
print(json.dumps([[line.split()[-1] for line in answer] for answer in answers]))
"""


def by_wapiti(patterns, kind, train, test, path):
    """Train by Wapiti in a process of its own, since its errors end the process; the labels of the test sequences."""
    peer("wapiti", "libwapiti")
    text = json.dumps([patterns, kind, train, test, str(path)])
    done = subprocess.run([sys.executable, "-c", WAPITI], input=text, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["crf", "memm"])
def test_labels_are_those_of_wapiti(tmp_path, kind):
    chance = random.Random(7)
    train = ["\n".join(f"{' '.join(row)} {chance.choice(LABELS)}" for row in rows) for rows in sequences(8, 2, 9)]
    tested = sequences(9, 2, 12)
    expected = by_wapiti(PATTERNS, kind, train, ["\n".join(map(" ".join, rows)) for rows in tested], tmp_path / "w.txt")
    importing.read(tmp_path / "w.txt").save(tmp_path / "w.model")
    model = load(tmp_path / "w.model")
    assert model.family == kind and model.info["imported_from"] == "Wapiti"
    assert [labelled(model, rows) for rows in tested] == expected


SMALL_WAPITI = b"""#mdl#2#6
#rdr#3/0/0
9:u:%x[0,0],
11:*a:%x[-1,0],
1:b,
#qrk#2
1:B,
1:O,
#qrk#7
3:u:a,
7:*a:_x-1,
1:b,
3:u:b,
4:*a:a,
5:u:c,d,
4:*a:b,
0=0x1.0p-2
1=-0x1.0p-2
2=0x1.0p-2
3=-0x1.0p-2
10=-0x1.4p-4
27=0x1.6p-2
"""


def test_a_wapiti_model_written_by_hand():
    model = importing.read_wapiti(SMALL_WAPITI, "w.txt")
    rows = model.table().to_pylist()
    assert [(r["observation"], r["previous"], r["label"], r["weight"]) for r in rows] == [
        ("u:a", None, "B", 0.25), ("u:a", None, "O", -0.25),
        ("*a:_x-1", None, "B", 0.25), ("*a:_x-1", None, "O", -0.25),
        ("b", "O", "B", -0.078125), ("*a:b", "O", "O", 0.34375),
    ]  # fmt: skip
    older = importing.read_wapiti(SMALL_WAPITI.replace(b"#mdl#2#6", b"#mdl#6").replace(b"3/0/0", b"3/0"), "w.txt")
    assert np.array_equal(older.theta, model.theta)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda data: data[:60], "at byte"),
        (lambda data: data.replace(b"#mdl#2#6", b"#mdl#0#6"), "a model of the type maxent: expected crf or memm"),
        (lambda data: data.replace(b"#mdl#2#6", b"#mdl#2#7"), "6 weights, expected 7"),
        (lambda data: data.replace(b"#qrk#7", b"#qrk#999999999999"), "expected 999,999,999,999 observations"),
        (lambda data: data.replace(b"3:u:a", b"999999999:u:a"), "expected a observation as SIZE:TEXT,"),
        (lambda data: data.replace(b"3:u:b", b"3:u:a"), "a observation is there twice"),
        (lambda data: data.replace(b"3:u:b", b"3:z:b"), "does not begin with u, b or *"),
        (lambda data: data.replace(b"27=", b"99="), "slot 99 of a weight belongs to no observation"),
        (lambda data: data.replace(b"27=", b"-1="), "slot -1 of a weight"),
        (lambda data: data.replace(b"27=", b"10="), "a weight is there twice"),
        (lambda data: data.replace(b"27=0x1.6p-2", b"27=inf"), "is not a finite number"),
        (lambda data: data.replace(b"27=0x1.6p-2", b"27=0x1p99999"), "is no SLOT=WEIGHT"),
        (lambda data: data.replace(b"9:u:%x[0,0],", b"9:u:%y[0,0],"), "its patterns, line 1: `u:%y[0,0]` has a % that"),
        (lambda data: data.replace(b"7:*a:_x-1,", b"7:*a:_x-\xff,"), "is not UTF-8"),
        (lambda data: data.replace(b"#rdr#3/0/0", b"#rdr#0/0/0").replace(b"9:u:%x[0,0],\n11:*a:%x[-1,0],\n1:b,\n", b""),
         "it has no patterns"),
        (lambda data: data.replace(b"11:*a:%x[-1,0],", b"19:*a:%x[-123456789,0],"), "rows away, expected at most 32"),
    ],
)  # fmt: skip
def test_a_damaged_wapiti_model_is_refused_in_words(change, words):
    with pytest.raises(EspalierError) as error:
        importing.read_wapiti(change(SMALL_WAPITI), "bad.txt")
    assert words in str(error.value)


# ---- all of them


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["crfsuite", "crfpp", "wapiti"])
def test_damaged_files_are_read_or_refused(kind, seed):
    """Bytes changed, cut, doubled, and numbers that lie: what comes is a model whose weights are finite, or words."""
    good = {"crfsuite": small_crfsuite()[0], "crfpp": small_crfpp()[0], "wapiti": SMALL_WAPITI}[kind]
    read = {"crfsuite": importing.read_crfsuite, "crfpp": importing.read_crfpp, "wapiti": importing.read_wapiti}[kind]
    chance, refused = random.Random(seed), 0
    for _ in range(100):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            at, size = chance.randrange(len(data)), chance.choice([1, 1, 4, 8])
            what = chance.choice(["random", "huge", "cut", "double", "digit"])
            new = {"random": chance.randbytes(size), "huge": b"\xff\xff\xff\x7f", "cut": b"",
                   "double": data[at:] + data[:9], "digit": str(chance.randrange(10**9)).encode()}[what]  # fmt: skip
            data[at : at + size] = new
        try:
            assert np.all(np.isfinite(read(bytes(data), "bad").theta))
        except EspalierError as error:
            refused += str(error).startswith("bad")
    assert refused > 30


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(EspalierError, match="there is no such file"):
        importing.read(tmp_path / "none")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(EspalierError, match="begins with b'', which no model does that we read"):
        importing.read(tmp_path / "empty")
    assert importing.kind_of(tmp_path / "empty") is None


@pytest.mark.parametrize(
    "parts, text, found",
    [
        (("U:", "_x-1", "/", None), "U:_x-1/a/b", ["a/b"]),
        (("U:", None, "/", None), "U:a/b/c", ["a", "b/c"]),
        (("U:", None, "/", "_x+1"), "U:a/b/_x+1", ["a/b"]),
        (("U:", None, None, "x"), "U:abx", ["", "ab"]),
        (("U:", None, "y", None), "U:abx", None),
        (("U:", None, "abx"), "U:bx", None),
        (("U:",), "U:a", None),
    ],
)
def test_parts_are_matched_from_the_left(parts, text, found):
    assert match(parts, text) == found


# ---- whole test sets


def chunks(corpora, name):
    with gzip.open(corpora / "conll2000" / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
        return [[line.split() for line in text.split("\n")] for text in file.read().strip().split("\n\n")]


@pytest.mark.corpus
@pytest.mark.slow
def test_labels_of_whole_test_sets_are_kept(corpora, tmp_path):
    """Chunks of CoNLL-2000, Wapiti's model and python-crfsuite's, each trained on a part of the corpus."""
    train, test = chunks(corpora, "train")[:800], chunks(corpora, "test")
    crfsuite = peer("pycrfsuite", "python-crfsuite")
    trainer = crfsuite.Trainer(verbose=False)

    def items(rows):
        before = [rows[0], *rows[:-1]]
        return [[f"w={a[0]}", f"p={a[1]}", f"p-1={b[1]}"] for a, b in zip(rows, before, strict=True)]

    for rows in train:
        trainer.append(items(rows), [row[2] for row in rows])
    trainer.set_params({"c1": 0.1, "c2": 0.01, "max_iterations": 30})
    trainer.train(str(tmp_path / "a.crfsuite"))
    theirs, ours = crfsuite.Tagger(), Tagger()
    theirs.open(str(tmp_path / "a.crfsuite")), ours.open(tmp_path / "a.crfsuite")
    assert [ours.tag(items(rows)) for rows in test] == [theirs.tag(items(rows)) for rows in test]

    texts = ["\n".join(map(" ".join, rows)) for rows in train]
    tested = ["\n".join(" ".join(row[:2]) for row in rows) for rows in test]
    expected = by_wapiti("U00:%x[0,0]\nU01:%x[-1,0]/%x[0,1]\nU02:%x[5,1]\n*03:%x[0,1]\nB\n", "crf", texts, tested,
                         tmp_path / "w.txt")  # fmt: skip
    model = importing.read(tmp_path / "w.txt")
    assert [labelled(model, [row[:2] for row in rows]) for rows in test] == expected


@pytest.mark.corpus
@pytest.mark.slow
def test_labels_are_those_of_the_tagger_of_crfpp(corpora, tmp_path):
    """Its own tagger reads the binary model, we the text of the same: observations of CoNLL-2000, drawn weights."""
    crfpp = peer("pycrfpp", "pycrfpp")
    train, test = chunks(corpora, "train")[:300], chunks(corpora, "test")
    labels = sorted({row[2] for rows in train for row in rows})
    templates = ["U00:%x[-2,0]", "U01:%x[-1,0]/%x[0,0]", "U02:%x[0,0]", "U03:%x[0,1]/%x[2,1]", "B", "B01:%x[-1,1]"]
    positions = (crfpp_files.expand(templates, rows, t) for rows in train for t in range(len(rows)))
    seen = dict.fromkeys(text for unigram, bigram in positions for text in (*unigram, *bigram))
    size = crfpp_files.first_slots(seen, len(labels))[1]
    weights = np.random.default_rng(0).normal(size=size).astype(np.float32).astype(float)
    (tmp_path / "m.bin").write_bytes(crfpp_files.as_binary(templates, labels, seen, weights, 2))
    theirs = crfpp.Tagger(f"-m {tmp_path / 'm.bin'}")
    model = importing.read_crfpp(crfpp_files.as_text(templates, labels, seen, weights, 2), "m.txt")
    for rows in test:
        theirs.clear()
        for row in rows:
            theirs.add(" ".join(row[:2]))
        assert theirs.parse()
        assert labelled(model, [row[:2] for row in rows]) == [theirs.y2(t) for t in range(len(rows))]

"""Entities of labels: against conlleval, against seqeval, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import conlleval
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOBES

from espalier.engine.labels.spans import (
    BOTH,
    ENDS,
    KIND,
    MISSED,
    RIGHT,
    SPURIOUS,
    Match,
    Span,
    marks_entities,
    matches,
    scores,
    spans,
    spans_of,
)  # fmt: skip

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=150)
EXACT = 1e-12  # ratios of small whole numbers
IOB = ("O", "B-A", "I-A", "B-B", "I-B", "B-A-x", "I-A-x")
ANY = st.lists(st.sampled_from(["O", *(f"{m}-{k}" for m in "BIESLU" for k in "AB")]), max_size=12)


@EXAMPLES
@given(st.lists(st.lists(st.sampled_from(IOB), min_size=1, max_size=6), min_size=1, max_size=4))
def test_iob_is_read_as_conlleval_reads_it(gold):
    found = spans_of([label for labels in gold for label in labels], np.cumsum([0, *map(len, gold)]))
    expected = [{(first, last + 1, kind) for first, last, kind in conlleval.chunks(labels)} for labels in gold]
    assert [{tuple(s) for s in some} for some in found] == expected
    assert [len(spans(labels)) for labels in gold] == [len(some) for some in expected]


@EXAMPLES
@given(ANY)
def test_entities_do_not_overlap_and_cover_all_that_is_not_outside(labels):
    found = spans(labels)
    assert all(a.end <= b.begin for a, b in zip(found, found[1:], strict=False))
    covered = {t for s in found for t in range(s.begin, s.end)}
    assert covered == {t for t, label in enumerate(labels) if label != "O"}
    assert all({labels[t][2:] for t in range(s.begin, s.end)} == {s.kind} for s in found)


@st.composite
def bioes(draw):
    """Well-formed BIOES."""
    labels = []
    for _ in range(draw(st.integers(1, 5))):
        kind, size = draw(st.sampled_from("AB")), draw(st.integers(0, 3))
        labels += {0: ["O"], 1: [f"S-{kind}"]}.get(size, [f"B-{kind}", *[f"I-{kind}"] * (size - 2), f"E-{kind}"])
    return labels


@EXAMPLES
@given(bioes())
def test_bioes_and_bilou_are_read_as_seqeval_reads_bioes(labels):
    expected = [Span(begin, end + 1, kind) for kind, begin, end in get_entities(labels)]
    assert spans(labels) == expected
    assert spans([label.replace("E-", "L-").replace("S-", "U-") for label in labels]) == expected


@EXAMPLES
@given(bioes(), st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_scores_are_those_of_seqeval(gold, random):
    blocks = [gold[s.begin : s.end] for s in spans(gold)]
    said = gold[:]
    for block, span in zip(blocks, spans(gold), strict=True):
        if random.random() < 0.4:
            said[span.begin : span.end] = ["O"] * len(block)
    overall, by_kind = scores(gold, said, np.array([0, len(gold)]))
    if set(gold) == {"O"}:
        assert by_kind == {}
        return
    ways = {"mode": "strict", "scheme": IOBES, "zero_division": 0}
    for name, function in {"precision": precision_score, "recall": recall_score, "f1": f1_score}.items():
        assert overall[name] == pytest.approx(function([gold], [said], **ways))


@EXAMPLES
@given(st.lists(st.tuples(st.sampled_from(IOB), st.sampled_from(IOB)), min_size=1, max_size=12))
def test_scores_of_iob_are_those_of_conlleval(pairs):
    gold, said = (list(column) for column in zip(*pairs, strict=True))
    overall, by_kind = scores(gold, said, np.array([0, len(gold)]))
    counts = conlleval.counts([gold], [said])
    assert set(by_kind) == set(counts)
    rows = [(overall, conlleval.overall([gold], [said])), *((by_kind[kind], counts[kind]) for kind in counts)]
    for mine, count in rows:
        assert (mine["gold"], mine["predicted"], mine["correct"]) == count
        assert (mine["precision"], mine["recall"], mine["f1"]) == pytest.approx(conlleval.scores(count), abs=EXACT)


@EXAMPLES
@given(st.lists(st.tuples(st.sampled_from(IOB[:5]), st.sampled_from(IOB[:5])), min_size=1, max_size=12))
def test_scores_of_iob_are_those_of_seqeval(pairs):
    """seqeval's default mode follows conlleval for IOB with simple kinds."""
    gold, said = (list(column) for column in zip(*pairs, strict=True))
    overall, _ = scores(gold, said, np.array([0, len(gold)]))
    for name, function in {"precision": precision_score, "recall": recall_score, "f1": f1_score}.items():
        assert overall[name] == pytest.approx(function([gold], [said], zero_division=0), abs=EXACT)


def test_an_entity_does_not_cross_the_end_of_a_sequence():
    found = spans_of(["O", "B-A", "I-A", "O"], np.array([0, 2, 4]))
    assert found == [{Span(1, 2, "A")}, {Span(0, 1, "A")}]


A, B = Span(0, 2, "A"), Span(5, 6, "B")


@pytest.mark.parametrize(
    ("gold", "said", "expected"),
    [
        ([A, B], [A, B], [(RIGHT, A, A), (RIGHT, B, B)]),
        ([A], [Span(0, 2, "B")], [(KIND, A, Span(0, 2, "B"))]),
        ([A], [Span(1, 3, "A")], [(ENDS, A, Span(1, 3, "A"))]),
        ([A], [Span(1, 3, "B")], [(BOTH, A, Span(1, 3, "B"))]),
        ([A], [B], [(MISSED, A, None), (SPURIOUS, None, B)]),
        # one right entity cut in two: the part of its own kind belongs to it, the other is spurious
        ([A], [Span(0, 1, "B"), Span(1, 2, "A")], [(ENDS, A, Span(1, 2, "A")), (SPURIOUS, None, Span(0, 1, "B"))]),
        # two in one: the larger part is found, the other missed
        ([Span(0, 3, "A"), Span(3, 4, "A")], [Span(0, 4, "A")],
         [(ENDS, Span(0, 3, "A"), Span(0, 4, "A")), (MISSED, Span(3, 4, "A"), None)]),
        ([], [], []),
    ],
)  # fmt: skip
def test_entities_are_matched_once(gold, said, expected):
    assert matches(gold, said) == [Match(*row) for row in expected]


@EXAMPLES
@given(ANY, ANY)
def test_every_entity_is_in_one_match(gold, said):
    gold, said = spans(gold), spans(said)
    found = matches(gold, said)
    assert sorted(m.gold for m in found if m.gold) == sorted(gold)
    assert sorted(m.said for m in found if m.said) == sorted(said)
    assert {m.gold for m in found if m.how == RIGHT} == set(gold) & set(said)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["O", "B-A", "I-A"], True), (["S-A"], True), (["U-A", "O"], True), (["O"], False), ([], False),
     (["O", "B"], False), (["NN", "B-A"], False)],
)  # fmt: skip
def test_which_labels_mark_entities(labels, expected):
    assert marks_entities(labels) is expected

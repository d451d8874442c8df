"""Labels left out where a model is not sure: by hand, refusals, the Python class."""

import numpy as np
import pytest

from espalier import CRF
from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES
from espalier.engine.labels.abstention import LIMITS, certainty, check_limit, curve, unsure

OFFSETS = np.array([0, 4, 6])
SAID = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"]
GOLD = ["B-PER", "I-PER", "O", "B-ORG", "B-LOC", "O"]
SURE = np.array([0.9, 0.7, 0.95, 0.6, 0.8, 0.5])


def test_an_entity_is_as_sure_as_its_least_sure_label():
    assert certainty(SAID, SURE, OFFSETS, True).tolist() == [0.7, 0.7, 0.95, 0.6, 0.8, 0.5]
    assert certainty(SAID, SURE, OFFSETS, False).tolist() == SURE.tolist()
    across = certainty(["O", "B-PER", "I-PER", "O"], np.array([1.0, 0.9, 0.2, 1.0]), np.array([0, 2, 4]), True)
    assert across.tolist() == [1.0, 0.9, 0.2, 1.0]  # I-PER begins another sequence


def test_precision_and_recall_of_entities_by_hand():
    rows = {row["limit"]: row for row in curve(GOLD, SAID, SURE, OFFSETS, True, (0.0, 0.65, 0.75, 0.99))}
    assert rows[0.0] == {"limit": 0.0, "kept": 3, "coverage": 1.0, "abstained": 0.0, "precision": 2 / 3,
                         "recall": 2 / 3}  # fmt: skip
    assert (rows[0.65]["kept"], rows[0.65]["precision"], rows[0.65]["recall"]) == (2, 1.0, 2 / 3)
    assert rows[0.65]["abstained"] == 2 / 6  # B-LOC and the O of the second sequence
    assert (rows[0.75]["kept"], rows[0.75]["precision"], rows[0.75]["recall"]) == (1, 1.0, 1 / 3)
    assert (rows[0.99]["kept"], rows[0.99]["precision"], rows[0.99]["recall"]) == (0, None, 0.0)


def test_accuracy_and_coverage_of_tokens_by_hand():
    sure = np.array([0.9, 0.8, 0.7, 0.6])
    rows = curve(list("abba"), list("abab"), sure, np.array([0, 4]), False, (0.0, 0.7, 0.8, 1))
    assert [(row["kept"], row["coverage"], row["accuracy"]) for row in rows] == [
        (4, 1.0, 0.5), (3, 0.75, 2 / 3), (2, 0.5, 1.0), (0, 0.0, None)
    ]  # fmt: skip
    assert [row["abstained"] for row in rows] == [0.0, 0.25, 0.5, 1.0]


def test_what_is_kept_only_shrinks_and_nothing_is_there_to_keep():
    rows = curve(GOLD, SAID, SURE, OFFSETS, True)
    assert [row["limit"] for row in rows] == list(LIMITS)
    assert all(a["kept"] >= b["kept"] and a["recall"] >= b["recall"] for a, b in zip(rows, rows[1:], strict=False))
    empty = curve(["O"], ["O"], np.array([0.4]), np.array([0, 1]), True, (0.5,))[0]
    assert empty == {"limit": 0.5, "kept": 0, "coverage": 0.0, "abstained": 1.0, "precision": None, "recall": 0.0}


@pytest.mark.parametrize("wrong", [1.5, -1, -0.001, float("nan"), float("inf"), "0.9", True, None])
def test_limits_that_are_none(wrong):
    with pytest.raises(EspalierError, match="expected a probability from 0 to 1, such as 0.9"):
        check_limit(wrong)
    if wrong is not None:
        with pytest.raises(EspalierError, match="abstain is .*: expected a probability"):
            fitted().predict([["x"]], abstain=wrong)


def fitted(**options):
    x = [["Ana", "Paz", "va"], ["Eva", "va"], ["va", "Ana"], ["Paz", "va"]] * 3
    y = [["B-PER", "I-PER", "O"], ["B-PER", "O"], ["O", "B-PER"], ["O", "O"]] * 3
    return CRF(**{"rho1": 0.0, "rho2": 1.0} | options).fit(x, y)


@pytest.mark.parametrize("options", [{}, {"family": "memm"}, {"family": "hmm"}])
def test_python(options):
    crf, asked = fitted(**options), [["Ana", "Paz", "va"], ["Paz"], ["va", "zzz"]]
    plain, chances = crf.predict(asked), crf.predict_marginals(asked)
    assert crf.predict(asked, abstain=0.0) == plain
    none = crf.predict(asked, abstain=1.0)
    assert any(label is None for row in none for label in row)
    limit = 0.7
    for row, left, table in zip(plain, crf.predict(asked, abstain=limit), chances, strict=True):
        sure = [table[t][crf.classes_.index(label)] for t, label in enumerate(row)]
        whole = certainty(row, np.array(sure), np.array([0, len(row)]), True)
        assert left == [label if level >= limit else None for label, level in zip(row, whole, strict=True)]
    assert crf.predict([], abstain=0.5) == []


def test_half_an_entity_is_not_left():
    names, ids = ["B-PER", "I-PER", "O"], np.array([0, 1, 2])
    assert unsure(names, ids, np.array([0.9, 0.4, 0.6]), np.array([0, 3]), 0.5).tolist() == [True, True, False]


def test_a_family_without_probabilities_is_refused(monkeypatch):
    crf = fitted()
    crf_family = FAMILIES["crf"]
    monkeypatch.setitem(FAMILIES, "crf", type(crf_family)(*(
        crf_family.where, crf_family.called, crf_family.help, crf_family.can - {"probability"}
    )))  # fmt: skip
    with pytest.raises(EspalierError, match="^crf cannot say how likely its labels are: set model.family"):
        crf.predict([["x"]], abstain=0.5)

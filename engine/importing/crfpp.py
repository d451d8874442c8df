"""Text models of CRF++, which `crf_learn -t` writes beside the binary ones.

A file has five parts with empty lines between them: a head (version, cost-factor, maxid, xsize), labels, templates,
lines with the first slot of an observation and its text, and a weight a line. An observation U… has a slot for each
label, B… one for each pair of labels.
"""

import numpy as np

from espalier.engine.data.dataset import check_label_count
from espalier.engine.errors import EspalierError, brief
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.importing.edges import renamed
from espalier.engine.importing.text_models import model_of_runs, text_of
from espalier.engine.text.templates import BLANKS, parse
from espalier.engine.weights.layout import BIGRAM, UNIGRAM

KINDS = {"U": UNIGRAM, "B": BIGRAM}
LONGEST_NUMBER = 400  # characters; a fixed number of decimals makes the largest ones long


def read_crfpp(data: bytes, name: str) -> CrfLabeller:
    """The model that the bytes of a file are; `name` stands in errors."""
    parts = data.replace(b"\r\n", b"\n").split(b"\n\n", 4)
    if len(parts) != 5:
        raise _broken(name, f"{len(parts)} parts with empty lines between them, expected 5")
    head = _head(text_of(parts[0], "the head", name), name)
    labels, lines, entries = (text_of(part, "the text", name).split("\n") for part in parts[1:4])
    check_label_count(len(labels), name)
    if len(set(labels)) != len(labels):
        raise _broken(name, "a label is there twice")
    weights = _weights(parts[4].split(), name) * head["cost-factor"]
    if len(weights) != head["maxid"]:
        raise _broken(name, f"{len(weights):,} weights, expected {head['maxid']:,.0f}")
    begins, observations = _observations(entries, name)
    templates = parse(lines, f"{name}, its templates")
    kinds = np.array([KINDS[text[0]] for text in observations], np.int64)
    _check_runs(begins, np.where(kinds == UNIGRAM, len(labels), len(labels) ** 2), len(weights), name)
    names = renamed(observations, templates, lambda distance: f"_B{distance:+d}", ("_B-", "_B+"), name)
    slots = np.flatnonzero(weights)
    return model_of_runs(
        CrfLabeller, labels, [template.line for template in templates], names, kinds, begins, slots, weights[slots],
        {"imported_from": "CRF++"}, name,
    )  # fmt: skip


def _head(text: str, name: str) -> dict[str, float]:
    found = {}
    for line in text.split("\n"):
        key, _, value = line.partition(":")
        try:
            found[key] = float(value)
        except ValueError:
            raise _broken(name, f"its head has the line {brief(line)!r}, expected a number") from None
    missing = [key for key in ("cost-factor", "maxid") if not np.isfinite(found.get(key, np.nan))]
    if missing:
        raise _broken(name, f"its head has no {missing[0]}")
    return found


def _weights(texts: list[bytes], name: str) -> np.ndarray:
    try:
        if max(map(len, texts), default=0) > LONGEST_NUMBER:
            raise ValueError("it is too long")
        return np.array(texts, dtype="S").astype(np.float64)
    except ValueError as error:
        raise _broken(name, f"a weight is no number ({brief(str(error))})") from None


def _observations(entries: list[str], name: str) -> tuple[np.ndarray, list[str]]:
    """The first slots, ascending, and the texts of observations."""
    found = []
    for line in entries:
        slot, _, text = line.partition(" ")
        text = text.rstrip(BLANKS)  # a template may end with blanks, which ours do not
        if not (slot.isdecimal() and slot.isascii() and len(slot) <= 18) or text[:1] not in KINDS:
            raise _broken(name, f"{brief(line)!r} is no slot and observation that begins with U or B")
        found.append((int(slot), text))
    found.sort()
    return np.array([slot for slot, _ in found], np.int64), [text for _, text in found]


def _check_runs(begins: np.ndarray, sizes: np.ndarray, count: int, name: str) -> None:
    """Runs must lie one behind the other."""
    expected = np.cumsum(sizes) - sizes
    if len(begins) and (not np.array_equal(begins, expected) or begins[-1] + sizes[-1] != count):
        raise _broken(name, "its observations do not have the slots that their weights take")


def _broken(name: str, reason: str) -> EspalierError:
    return EspalierError(f"{name}: a damaged text model of CRF++: {reason}; write it again with `crf_learn -t`")

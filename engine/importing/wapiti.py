"""Text models of Wapiti: conditional random fields and maximum-entropy Markov models with patterns.

A file is #mdl#TYPE#WEIGHTS (older ones have no type), #rdr#PATTERNS/… and the patterns, #qrk#COUNT and the labels,
#qrk#COUNT and the observations, each text as SIZE:TEXT, on a line, then lines SLOT=WEIGHT. An observation u… has a
slot for each label, b… one for each pair of labels, *… both.
"""

import re

import numpy as np

from espalier.engine.data.dataset import check_label_count
from espalier.engine.errors import EspalierError, brief
from espalier.engine.families import family
from espalier.engine.families.labeller import Labeller
from espalier.engine.importing.edges import renamed
from espalier.engine.importing.text_models import model_of_runs, text_of
from espalier.engine.text.templates import parse
from espalier.engine.weights.layout import BIGRAM, KINDS, UNIGRAM

TYPES = {b"0": "maxent", b"1": "memm", b"2": "crf"}
FAR = 4  # places further beyond an edge than this have one name


def read_wapiti(data: bytes, name: str) -> Labeller:
    """The model that the bytes of a file are; `name` stands in errors."""
    reader = _Reader(data, name)
    found = reader.line(rb"#mdl#(?:(\d{1,9})#)?(\d{1,18})", "the head of a model")
    kind, n_weights = TYPES.get(found[1] or b"2"), int(found[2])
    if kind not in ("crf", "memm"):
        raise EspalierError(f"{name}: a model of the type {kind or found[1].decode()}: expected crf or memm")
    n_patterns = int(reader.line(rb"#rdr#(\d{1,18})(?:/\d{1,18}){1,2}", "the head of the patterns")[1])
    lines = reader.texts(n_patterns, "pattern")
    if not lines:
        raise EspalierError(f"{name}: it has no patterns, its tokens are features: expected a model with patterns")
    labels, observations = (reader.texts(reader.count(), what) for what in ("label", "observation"))
    check_label_count(len(labels), name)
    slots, weights = reader.weights(n_weights)
    return _model(kind, lines, labels, observations, slots, weights, name)


def _model(kind: str, lines, labels, observations, slots, weights, name: str) -> Labeller:
    odd = next((text for text in observations if text[:1] not in KINDS), None)
    if odd is not None or not labels:
        found = "it has no label" if odd is None else f"the observation {brief(odd)!r} does not begin with u, b or *"
        raise EspalierError(f"{name}: {found}; fetch or train it again")
    templates = parse(lines, f"{name}, its patterns")
    kinds = np.array([KINDS[text[0]] for text in observations], np.int64)
    sizes = np.where(kinds & UNIGRAM, len(labels), 0) + np.where(kinds & BIGRAM, len(labels) ** 2, 0)
    begins = np.cumsum(sizes) - sizes
    if len(slots) and (not len(begins) or slots.max() >= begins[-1] + sizes[-1]):
        raise EspalierError(f"{name}: slot {slots.max()} of a weight belongs to no observation; fetch it again")
    names = renamed(observations, templates, _called, ("_x-#", "_x+#"), name)
    info = {"imported_from": "Wapiti"}
    lines = [template.line for template in templates]
    return model_of_runs(
        family(kind).labeller, labels, lines, names, kinds, begins, slots, weights, info, name
    )  # fmt: skip


def _called(distance: int) -> str:
    if abs(distance) <= FAR:
        return f"_x{distance:+d}"
    return "_x-#" if distance < 0 else "_x+#"


class _Reader:
    """Goes through the bytes once; whatever is not as expected is an error with its place."""

    def __init__(self, data: bytes, name: str):
        self.data, self.name, self.at = data, name, 0

    def line(self, pattern: bytes, what: str) -> re.Match:
        found = re.compile(pattern + rb"\r?\n").match(self.data, self.at)
        if not found:
            raise self.broken(f"expected {what}")
        self.at = found.end()
        return found

    def count(self) -> int:
        return int(self.line(rb"#qrk#(\d{1,18})", "a number of texts")[1])

    def texts(self, count: int, what: str) -> list[str]:
        """`count` texts, each SIZE:TEXT, on a line."""
        texts, size = [], re.compile(rb"(\d{1,9}):")
        if count > (len(self.data) - self.at) // 4:
            raise self.broken(f"expected {count:,} {what}s")
        for _ in range(count):
            found = size.match(self.data, self.at)
            end = found.end() + int(found[1]) if found else 0
            if not found or self.data[end : end + 2] != b",\n":
                raise self.broken(f"expected a {what} as SIZE:TEXT,")
            texts.append(text_of(self.data[found.end() : end], what, self.name))
            self.at = end + 2
        if len(set(texts)) != len(texts):
            raise self.broken(f"a {what} is there twice")
        return texts

    def weights(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Slots and weights of the lines that are left."""
        lines = self.data[self.at :].split()
        if len(lines) != count:
            raise self.broken(f"{len(lines):,} weights, expected {count:,}")
        slots, weights = np.empty(count, np.int64), np.empty(count)
        for i, line in enumerate(lines):
            slot, _, weight = line.partition(b"=")
            try:
                slots[i], weights[i] = int(slot), float.fromhex(weight.decode("ascii"))
            except (ValueError, OverflowError):
                raise self.broken(f"{brief(line)} is no SLOT=WEIGHT") from None
        if slots.min(initial=0) < 0:
            raise self.broken(f"slot {slots.min()} of a weight")
        return slots, weights

    def broken(self, reason: str) -> EspalierError:
        return EspalierError(
            f"{self.name}: a damaged model of Wapiti, at byte {self.at:,}: {reason}; fetch or train it again"
        )

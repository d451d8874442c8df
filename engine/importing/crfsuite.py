"""Binary models of CRFsuite, which chaine writes, too.

A file is a header of 48 bytes and five chunks: weights (FEAT), labels and attributes (two CQDBs), and references from
labels and attributes to weights, which say nothing that the weights do not say themselves. A CQDB has texts in records
(number, size, text), hash tables to find them, which we do not need, and an array with the place of each number.
"""

import struct

import numpy as np

from espalier.engine.data.dataset import check_label_count
from espalier.engine.errors import EspalierError, brief
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.fitting.encoding import ATTRIBUTES

HEADER = struct.Struct("<4sI4s9I")
CQDB = struct.Struct("<4s5I")
CHUNK = struct.Struct("<4sII")
BYTE_ORDER = 0x62445371
WEIGHT = np.dtype([("type", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])
STATE, TRANSITION = 0, 1


def read_crfsuite(data: bytes, name: str) -> CrfLabeller:
    """The model that the bytes of a file are; `name` stands in errors."""
    head = _unpacked(HEADER, data, 0, name)
    magic, size, kind, version, _, n_labels, n_attributes, weights_at, labels_at, attributes_at = head[:10]
    if magic != b"lCRF" or kind != b"FOMC" or version != 100:
        raise _broken(name, f"it says {magic!r}, {kind!r}, version {version}, expected b'lCRF', b'FOMC', version 100")
    if size > len(data):
        raise _broken(name, f"it says that it has {size:,} bytes and has {len(data):,}")
    check_label_count(n_labels, name)
    weights = _weights(data, weights_at, name)
    labels = _texts(data, labels_at, n_labels, "label", name)
    attributes = _texts(data, attributes_at, n_attributes, "attribute", name)
    return _model(weights, labels, attributes, name)


def _model(weights: np.ndarray, labels: list[str], attributes: list[str], name: str) -> CrfLabeller:
    state = weights["type"] == STATE
    if np.any(weights["type"] > TRANSITION):
        raise _broken(name, f"a weight is of type {weights['type'].max()}, expected 0 or 1")
    for chosen, count, what in ((state, len(attributes), "attribute"), (~state, len(labels), "label before")):
        if weights["source"][chosen].max(initial=0) >= max(count, 1) or (chosen.any() and not count):
            raise _broken(name, f"a weight is of {what} {weights['source'][chosen].max()}, there are {count:,}")
    if weights["label"].max(initial=0) >= len(labels):
        raise _broken(name, f"a weight is of label {weights['label'].max()}, there are {len(labels):,}")
    source = weights["source"].astype(np.int64)
    return CrfLabeller.of_weights(
        labels, [ATTRIBUTES, "B"], ["B", *(f"U:{text}" for text in attributes)],
        np.where(state, 0, 2), np.where(state, source + 1, 0), np.where(state, -1, source),
        weights["label"].astype(np.int64), weights["weight"].astype(np.float64),
        {"imported_from": "CRFsuite", "reading": {"format": "crfsuite"}}, name,
    )  # fmt: skip


def _weights(data: bytes, at: int, name: str) -> np.ndarray:
    chunk, _, count = _unpacked(CHUNK, data, at, name)
    begin = at + CHUNK.size
    if chunk != b"FEAT" or count * WEIGHT.itemsize > len(data) - begin:
        raise _broken(name, f"there are no {count:,} weights at byte {at:,}")
    return np.frombuffer(data, WEIGHT, count, begin)


def _texts(data: bytes, at: int, count: int, what: str, name: str) -> list[str]:
    """The texts of a CQDB, number 0 first."""
    chunk, size, _, order, _, backward = _unpacked(CQDB, data, at, name)
    if chunk != b"CQDB" or order != BYTE_ORDER or size > len(data) - at:
        raise _broken(name, f"there is no list of {what}s at byte {at:,}")
    if count and not (0 < backward and 4 * count <= size - backward):
        raise _broken(name, f"there are no {count:,} {what}s in {size:,} bytes")
    places = np.frombuffer(data, "<u4", count, at + backward).tolist() if count else []
    texts, total = [], 0
    for number, place in enumerate(places):
        begin = place + 8
        if place < CQDB.size or begin > size:
            raise _broken(name, f"{what} {number} lies outside of its list")
        said, length = struct.unpack_from("<II", data, at + place)
        total += length + 8
        if said != number or not 0 < length <= size - begin or total > size:  # no byte belongs to two texts
            raise _broken(name, f"{what} {number} does not lie where its list says")
        texts.append(_text(data[at + begin : at + begin + length], what, number, name))
    if len(set(texts)) != len(texts):
        raise _broken(name, f"a {what} is there twice")
    return texts


def _text(raw: bytes, what: str, number: int, name: str) -> str:
    """The text of a record, which ends with its only zero byte."""
    if raw.find(b"\0") != len(raw) - 1:
        raise _broken(name, f"{what} {number} does not end where its record does")
    try:
        return raw[:-1].decode("utf-8")
    except UnicodeDecodeError:
        raise EspalierError(
            f"{name}: {what} {number} is {brief(raw)}, which is not UTF-8: train the model again on data in UTF-8"
        ) from None


def _unpacked(form: struct.Struct, data: bytes, at: int, name: str) -> tuple:
    if at + form.size > len(data):
        raise _broken(name, f"it ends at byte {len(data):,}, within what begins at byte {at:,}")
    return form.unpack_from(data, at)


def _broken(name: str, reason: str) -> EspalierError:
    return EspalierError(f"{name}: a damaged model of CRFsuite, {reason}; fetch or train it again")

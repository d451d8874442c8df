"""Models of CRF++ as its programs write them: as text (`crf_learn -t`) and binary, for its own tagger."""

import struct

import numpy as np
from reference import templates as reference


def crfpp_name(text):
    """As CRF++ calls a place beyond the edge."""
    return text.replace("_x", "_B")


def expand(templates, rows, t):
    """(unigram, bigram) observations of a position, in the words of CRF++."""
    found = []
    for line in templates:
        parts = []
        for piece in reference.pieces(line):
            outside = not isinstance(piece, str) and not 0 <= t + piece[2] < len(rows)
            value = piece if isinstance(piece, str) else reference.values(rows, t, *piece, None)[0]
            parts.append(crfpp_name(value) if outside else value)
        found.append("".join(parts))
    return [text for text in found if text[0] == "U"], [text for text in found if text[0] == "B"]


def first_slots(observations, n_labels):
    """The first slot of each observation, and how many slots there are."""
    slots, size = {}, 0
    for text in observations:
        slots[text] = size
        size += n_labels if text[0] == "U" else n_labels**2
    return slots, size


def as_text(templates, labels, observations, weights, width):
    """What `crf_learn -t` writes."""
    slots, size = first_slots(observations, len(labels))
    entries = [f"{slot} {text}" for text, slot in slots.items()]
    head = f"version: 100\ncost-factor: 1\nmaxid: {size}\nxsize: {width}\n"
    parts = [head, "\n".join(labels) + "\n", "\n".join(templates) + "\n", "\n".join(sorted(entries)) + "\n"]
    return ("\n".join(parts) + "\n" + "".join(f"{weight:.16f}\n" for weight in weights)).encode()


def as_binary(templates, labels, observations, weights, width):
    """What `crf_learn` writes: a head, labels, templates, a double array of the observations, single weights."""
    slots, size = first_slots(observations, len(labels))
    names = b"".join(label.encode() + b"\0" for label in labels)
    lines = b"".join(line.encode() + b"\0" for line in sorted(templates, key=lambda line: line[0] != "U"))
    lines += b"\0" * (-(len(names) + len(lines)) % 4)
    units = double_array({text.encode(): slot for text, slot in slots.items()})
    head = struct.pack("<IIdIII", 100, 0, 1.0, size, width, len(units))
    texts = struct.pack("<I", len(names)) + names + struct.pack("<I", len(lines)) + lines
    return head + texts + units + np.asarray(weights, "<f4").tobytes()


def double_array(slots):
    """A trie as pairs (base, check): from a unit with base b, byte c leads to unit b + c + 1 if its check is b.

    The end of a key is code 0; there the base is -1 - slot. Each base is used once.
    """
    base, check, taken, end, free = {}, {}, set(), 1, 1

    def begin_of(codes):
        """The base of a node with these codes: only children fill gaps, others go to the end."""
        place = max(free, codes[0] + 1)
        while len(codes) == 1 and (place in check or place - codes[0] in taken):
            place += 1
        return place - codes[0] if len(codes) == 1 else end

    def insert(keys, depth):
        nonlocal end, free
        groups = {}
        for key in keys:
            groups.setdefault(key[depth] + 1 if depth < len(key) else 0, []).append(key)
        codes = sorted(groups)
        begin = begin_of(codes)
        taken.add(begin)
        check.update((begin + code, begin) for code in codes)
        end = max(end, begin + codes[-1] + 1)
        while free in check:
            free += 1
        for code in codes:
            base[begin + code] = insert(groups[code], depth + 1) if code else -1 - slots[groups[code][0]]
        return begin

    base[0] = insert(sorted(slots), 0)
    units = np.zeros((end + 257, 2), "<i4")  # a look past the last unit stays inside
    for column, filled in enumerate((base, check)):
        units[list(filled), column] = list(filled.values())
    return units.tobytes()

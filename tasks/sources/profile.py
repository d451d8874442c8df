"""Profile: what a corpus holds and what in it looks wrong, in one pass over its blocks.

Memory grows with sequences (32 bytes each, for duplicates) and labels, not with tokens. The result is plain data;
`rows` makes a table of texts of it and `section_body` the body of a section of a page.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from espalier.engine.text.macros import ATTRIBUTE_GAP, VALUE_MARK
from espalier.tasks.formats import schemes
from espalier.tasks.formats.labels import JOINT, UNKNOWN
from espalier.tasks.formats.reading import STRANGE, input_names
from espalier.tasks.pages.page import Html, cards, count, join, lead, message, number, percent, table, tag
from espalier.tasks.pages.page import card as make_card
from espalier.tasks.sources.sequence_hashes import sequence_hashes
from espalier.tasks.store import sequence_offsets

EXAMPLES = 3  # of each finding
MARK, BETWEEN = "_", "|"  # what many files write for an unknown label and between the members of a set
LONG, LONG_LEAST = 10, 100  # very long: so many times the median, and at least so many tokens
STRANGE_IN_LABELS = rf"{STRANGE}|[\u{{ad}}\u{{200c}}\u{{200d}}]"
QUANTILES = (("min", 0.0), ("median", 0.5), ("p95", 0.95), ("max", 1.0))
FINDINGS = {
    "long": "very long sequences",
    "single": "sequences of one token",
    "all_outside": "sequences that are all O",
    "strange_characters": "tokens with control, invisible or replacement characters",
    "strange_labels": "labels with control, invisible or replacement characters",
    "marks": "labels that may be marks: _ for unknown, | in a set (--unknown, --set-separator)",
    "rare_labels": "labels that occur once",
    "duplicates": "sequences whose input was seen before",
    "conflicts": "inputs with different labels",
    "illegal_transitions": "transitions that the scheme forbids",
}


def profile(blocks: Iterable[pl.DataFrame], files: Sequence[Path | str] = (), unit: str = "line") -> dict:
    """The profile of blocks of whole sequences (sequence, x0, …, label; file and line if places are to be told)."""
    found = Profiler([str(path) for path in files], unit)
    for block in blocks:
        found.add(block)
    return found.result()


class Profiler:
    """Counts that blocks add to."""

    def __init__(self, files: list[str], unit: str = "line"):
        self.files, self.unit = files, unit
        self.tokens = self.sequences = self.columns = 0
        self.labelled = False
        self.lengths = np.zeros(1, np.int64)  # [length] how many sequences have it
        self.labels: dict[str, int] = {}
        self.first_place: dict[str, str] = {}
        self.counts = dict.fromkeys(("all_outside", "strange_characters", "unknown", "sets"), 0)
        self.examples: dict[str, list[dict]] = {name: [] for name in FINDINGS}
        self.codes: set[int] = set()
        self.wrong = dict.fromkeys(schemes.LETTERS, 0)
        self.wrong_examples: dict[str, list[dict]] = {name: [] for name in schemes.LETTERS}
        self.longest: list[tuple[int, int, dict]] = []
        self.hashes: list[np.ndarray] = []  # of input, of labels, file, line

    def add(self, block: pl.DataFrame) -> None:
        if block.is_empty():
            return
        offsets = sequence_offsets(block["sequence"].to_numpy())
        lengths = np.diff(offsets)
        place = _Occurrences(block, self.files, self.unit)
        self.columns = len(input_names(block))
        self.labelled = "label" in block.columns
        self._sizes(lengths, offsets, place)
        self._characters(block, place)
        if self.labelled:
            self._labels(block, offsets, place)
        self._hash(block, offsets, place)
        self.tokens += len(block)
        self.sequences += len(lengths)

    def _note(self, examples: list[dict], rows: Iterable[int], place: "_Occurrences", text=lambda row: "") -> None:
        for row in rows:
            if len(examples) == EXAMPLES:
                return
            examples.append({"place": place(int(row)), "text": text(int(row))})

    def _sizes(self, lengths: np.ndarray, offsets: np.ndarray, place: "_Occurrences") -> None:
        counted = np.bincount(lengths, minlength=len(self.lengths))
        counted[: len(self.lengths)] += self.lengths
        self.lengths = counted
        self._note(self.examples["single"], offsets[:-1][lengths == 1][:EXAMPLES], place)
        for i in np.argsort(-lengths, kind="stable")[:EXAMPLES]:
            example = {"place": place(int(offsets[i])), "text": f"{lengths[i]:,} tokens"}
            self.longest.append((-int(lengths[i]), self.sequences + int(i), example))
        self.longest = sorted(self.longest, key=lambda item: item[:2])[:EXAMPLES]

    def _characters(self, block: pl.DataFrame, place: "_Occurrences") -> None:
        for name in input_names(block):
            seen = block[name].str.replace_all(f"[{ATTRIBUTE_GAP}{VALUE_MARK}]", " ")  # stand between attributes
            rows = np.flatnonzero(seen.str.contains(STRANGE).to_numpy())
            self.counts["strange_characters"] += len(rows)
            column = block[name]
            self._note(self.examples["strange_characters"], rows[:EXAMPLES], place, lambda row, c=column: ascii(c[row]))

    def _labels(self, block: pl.DataFrame, offsets: np.ndarray, place: "_Occurrences") -> None:
        labels = block["label"]
        counted = block.with_row_index("row").group_by("label").agg(pl.len().alias("n"), pl.col("row").min())
        for label, n, row in counted.sort("row").iter_rows():
            self.labels[label] = self.labels.get(label, 0) + n
            if label not in self.first_place:
                self.first_place[label] = place(row)
        tags = schemes.tags_of(labels, block["sequence"].to_numpy())
        self.codes |= set(np.unique(tags.code).tolist())
        for name in schemes.LETTERS:
            rows = np.flatnonzero(schemes.violations(tags, name))
            self.wrong[name] += len(rows)
            self._note(self.wrong_examples[name], rows[:EXAMPLES], place, lambda row: _transition(labels, tags, row))
        outside = np.logical_and.reduceat(tags.code == schemes.O, offsets[:-1])
        self.counts["all_outside"] += int(outside.sum())
        self._note(self.examples["all_outside"], offsets[:-1][outside][:EXAMPLES], place)

    def _hash(self, block: pl.DataFrame, offsets: np.ndarray, place: "_Occurrences") -> None:
        inputs = sequence_hashes(block, input_names(block), offsets)
        labels = sequence_hashes(block, ["label"], offsets) if self.labelled else inputs
        self.hashes.append(np.stack([inputs, labels, *place.numbers(offsets[:-1])]))

    def result(self) -> dict:
        """All of it as plain data."""
        known = {label: n for label, n in self.labels.items() if label != UNKNOWN and JOINT not in label}
        sets = sum(n for label, n in self.labels.items() if JOINT in label)
        scheme = schemes.choose(self.codes, self.wrong) if self.labelled else None
        chunks = self.codes & {schemes.B, schemes.I, schemes.E, schemes.S, schemes.L, schemes.U}
        median = quantile(self.lengths, 0.5)
        limit = max(LONG * median, LONG_LEAST)
        rare = [label for label, n in known.items() if n == 1]
        strange = pl.Series(list(known), dtype=pl.String)
        strange = strange.filter(strange.str.contains(STRANGE_IN_LABELS)).to_list()
        marks = [label for label in known if label == MARK or BETWEEN in label.strip(BETWEEN)]
        duplicates = self._duplicates()
        counts = {
            "long": int(self.lengths[limit + 1 :].sum()), "single": int(self.lengths[1:2].sum()),
            "all_outside": self.counts["all_outside"] if chunks or len(known) > 1 else 0,
            "strange_characters": self.counts["strange_characters"], "rare_labels": len(rare),
            "strange_labels": len(strange), "marks": len(marks),
            "illegal_transitions": self.wrong[scheme] if scheme else 0, **duplicates,
        }  # fmt: skip
        examples = dict(self.examples)
        examples["long"] = [example for length, _, example in self.longest if -length > limit]
        for name, labels in (("rare_labels", rare), ("strange_labels", strange), ("marks", marks)):
            examples[name] = [{"place": self.first_place[y], "text": shown(y)} for y in labels[:EXAMPLES]]
        examples["illegal_transitions"] = self.wrong_examples[scheme] if scheme else []
        return {
            "files": self.files, "sequences": self.sequences, "tokens": self.tokens, "columns": self.columns,
            "lengths": {name: quantile(self.lengths, share) for name, share in QUANTILES} | {
                "mean": self.tokens / self.sequences if self.sequences else 0.0},
            "labels": dict(sorted(known.items(), key=lambda item: (-item[1], item[0]))),
            "imbalance": imbalance(known), "unknown_labels": self.labels.get(UNKNOWN, 0), "set_labels": sets,
            "scheme": scheme,
            "findings": {name: {"count": counts[name], "examples": examples[name] if counts[name] else []}
                         for name in FINDINGS},
        }  # fmt: skip

    def _duplicates(self) -> dict[str, int]:
        """Sequences with an input that was there before, and inputs with more than one labelling."""
        if not self.hashes:
            return {"duplicates": 0, "conflicts": 0}
        inputs, labels, file, line = np.concatenate(self.hashes, axis=1)
        order = np.argsort(inputs, kind="stable")  # equal inputs together, the first one first
        again = np.append(False, inputs[order][1:] == inputs[order][:-1])
        heads = order[np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))]
        differs = labels[order] != labels[heads]
        for name, rows in (("duplicates", again), ("conflicts", differs)):
            pairs = sorted(zip(order[rows].tolist(), heads[rows].tolist(), strict=True))[:EXAMPLES]
            self.examples[name] = [
                {"place": self._told(file[i], line[i]), "text": f"as in {self._told(file[j], line[j])}"}
                for i, j in pairs
            ]
        return {"duplicates": int(again.sum()), "conflicts": len(np.unique(heads[differs]))}

    def _told(self, file: np.uint64, line: np.uint64) -> str:
        return told(self.files, self.unit, int(file), int(line))


class _Occurrences:
    """Where the tokens of a block stand: file and line where the block has them, else the sequence."""

    def __init__(self, block: pl.DataFrame, files: list[str], unit: str):
        self.block, self.files, self.unit = block, files, unit
        self.located = "line" in block.columns

    def __call__(self, row: int) -> str:
        if not self.located:
            return told(self.files, self.unit, None, self.block["sequence"][row])
        file = self.block["file"][row] if "file" in self.block.columns else 0
        return told(self.files, self.unit, file, self.block["line"][row])

    def numbers(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """File (the largest number if there is none) and line, or sequence, of each row."""
        if not self.located:
            return np.full(len(rows), NO_FILE), self.block["sequence"].to_numpy()[rows].astype(np.uint64)
        file = self.block["file"].to_numpy()[rows] if "file" in self.block.columns else np.zeros(len(rows))
        return file.astype(np.uint64), self.block["line"].to_numpy()[rows].astype(np.uint64)


NO_FILE = np.uint64(2**64 - 1)


def told(files: list[str], unit: str, file: int | None, number: int) -> str:
    if file is None or file == int(NO_FILE):
        return f"sequence {number}"
    name = files[file] if file < len(files) else f"file {file}"
    return f"{unit} {number} of {name}"


def shown(text: str) -> str:
    """A text as it is, or with escapes where something in it could not be seen."""
    return text if text.isprintable() else ascii(text)


def _transition(labels: pl.Series, tags: schemes.Tags, row: int) -> str:
    before = "⟨start⟩" if tags.first[row] else labels[row - 1]
    return f"{before} → {labels[row]}" + (" → ⟨end⟩" if tags.last[row] else "")


def quantile(counts: np.ndarray, share: float) -> int:
    """The smallest length that at least this share of the sequences does not exceed; `counts` [length]."""
    total = counts.sum()
    if not total:
        return 0
    return int(np.searchsorted(np.cumsum(counts), max(1, int(np.ceil(share * total)))))


def imbalance(labels: dict[str, int]) -> dict[str, Any]:
    """Share of the most frequent label, its ratio to the rarest, and how many equal labels would be as uncertain."""
    if not labels:
        return {"majority": None, "ratio": None, "effective_labels": None}
    counts = np.array(list(labels.values()), float)
    shares = counts / counts.sum()
    return {"majority": float(shares.max()), "ratio": float(counts.max() / counts.min()),
            "effective_labels": math.exp(-sum(share * math.log(share) for share in shares.tolist()))}  # fmt: skip


# For readers ----------------------------------------------------------------------------------------


def rows(found: dict) -> list[dict[str, str]]:
    """The profile as rows of texts: what, value, examples."""
    lengths, balance = found["lengths"], found["imbalance"]
    sizes = ", ".join(f"{name} {number(lengths[key])}" for name, key in
                      (("shortest", "min"), ("median", "median"), ("95 %", "p95"), ("longest", "max")))  # fmt: skip
    result = [
        ("sequences", number(found["sequences"]), ""),
        ("tokens", number(found["tokens"]), ""),
        ("input columns", number(found["columns"]), ""),
        ("tokens in a sequence", f"{number(lengths['mean'])} on average", sizes),
    ]
    if found["labels"]:
        most = ", ".join(f"{label} {number(n)}" for label, n in list(found["labels"].items())[:5])
        result += [
            ("labels", number(len(found["labels"])), most),
            ("most frequent label", percent(balance["majority"]), f"{number(balance['ratio'])} times the rarest"),
            ("tagging scheme", found["scheme"] or "none", ""),
        ]
    for key, name in (("unknown_labels", "unknown labels"), ("set_labels", "labels that are sets")):
        if found[key]:
            result.append((name, number(found[key]), percent(found[key] / found["tokens"])))
    result += [(text, number(item["count"]), _examples(item["examples"])) for text, item in _seen(found)]
    return [dict(zip(("what", "value", "examples"), row, strict=True)) for row in result]


def _seen(found: dict) -> list[tuple[str, dict]]:
    """The findings that are there, with their texts; a profile of an earlier version may not know of all."""
    known = [(text, found["findings"].get(name)) for name, text in FINDINGS.items()]
    return [(text, item) for text, item in known if item and item["count"]]


def _examples(examples: list[dict]) -> str:
    return "; ".join(f"{item['place']}: {item['text']}" if item["text"] else item["place"] for item in examples)


def section_body(found: dict) -> Html:
    """What a section of a page shows: sizes as cards, labels, and what looks wrong with examples."""
    lengths, balance = found["lengths"], found["imbalance"]
    shown = [
        make_card("Sequences", number(found["sequences"]), f"of {count(found['tokens'], 'token')}"),
        make_card("Length", number(lengths["median"]), "tokens, median", f"95% have at most {number(lengths['p95'])}",
                  f"from {number(lengths['min'])} to {number(lengths['max'])}"),
    ]  # fmt: skip
    if found["labels"]:
        shown.append(make_card("Labels", number(len(found["labels"])), f"scheme {found['scheme'] or 'none'}",
                               f"the most frequent is {percent(balance['majority'])}"))  # fmt: skip
    partial = found["unknown_labels"] + found["set_labels"]
    if partial:
        notes = (
            f"{count(found['unknown_labels'], 'token')} unknown",
            f"{count(found['set_labels'], 'token')} with a set",
        )
        shown.append(make_card("Partly labelled", percent(partial / found["tokens"]), *notes))
    if found.get("split"):
        shown.append(_split_card(found["split"]))
    return join([cards(shown), _finding_table(found), _label_table(found)])


def _split_card(split: dict) -> Html:
    """What the parts are, and what of the test part stands in training as well or was kept out of it."""
    sizes, kept = split["sequences"], split["kept_in_training"].get("test", 0)
    notes = [f"{number(sizes.get(part, 0))} {part}" for part in ("train", "dev", "unlabelled")]
    notes.append(f"{number(split['overlap']['test'])} of the test part also in training")
    notes += [f"{number(kept)} kept out of it, not fully labelled"] if kept else []
    return make_card("Test part", number(sizes.get("test", 0)), *notes)


def _finding_table(found: dict) -> Html:
    seen = _seen(found)
    if not seen:
        return message("Nothing in the data looks wrong.")
    opening = lead("What may be worth a look. Places are those of the source.")
    cells = [(text, number(item["count"]), _examples(item["examples"])) for text, item in seen]
    return join([opening, table("Worth a look", ("What", "Count", "Where"), cells, numeric=[1], class_="stack")])


def _label_table(found: dict, most: int = 50) -> Html:
    if not found["labels"]:
        return Html("")
    total = sum(found["labels"].values())
    cells = [(label, number(n), percent(n / total)) for label, n in list(found["labels"].items())[:most]]
    left = len(found["labels"]) - len(cells)
    caption = "Labels" + (f", the {most} most frequent of {number(left + most)}" if left else "")
    body = table(caption, ("Label", "Tokens", "Share"), cells, numeric=[1, 2])
    return tag("details", tag("summary", "Labels and their counts"), body)

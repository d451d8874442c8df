"""The account of a split: what went where, what stayed in training and why, and what stands in two parts.

Nothing is taken, left out or counted twice without a line that says so; the same figures are kept in the profile.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from espalier.tasks.pages.page import count, plural
from espalier.tasks.params import Ingest
from espalier.tasks.sources.profile import BETWEEN, MARK
from espalier.tasks.sources.sequence_hashes import input_hashes

MEASURED = ("dev", "test")  # parts that errors are counted on


@dataclass
class Split:
    """Counts that pieces of a corpus add to, as they are written."""

    options: Ingest
    sequences: Counter = field(default_factory=Counter)  # of each part
    kept: Counter = field(default_factory=Counter)  # not fully labelled: in training, and not in this part
    hashes: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in ("train", *MEASURED)})

    def add(self, part: str, piece: pl.DataFrame) -> None:
        self.sequences[part] += piece["sequence"].n_unique()
        if part in self.hashes:
            self.hashes[part].append(input_hashes(piece))

    def overlap(self) -> dict[str, int]:
        """How many sequences of each part that errors are counted on have an input that stands in training, too."""
        whole = {name: np.concatenate([np.empty(0, np.uint64), *found]) for name, found in self.hashes.items()}
        return {name: int(np.isin(whole[name], whole["train"]).sum()) for name in MEASURED}

    def figures(self) -> dict:
        """As the profile keeps it."""
        taken = self.options.share("unlabelled") if self.sequences["unlabelled"] else 0.0
        return {"sequences": dict(self.sequences), "kept_in_training": dict(self.kept), "overlap": self.overlap(),
                "pool_share": None if self.options.unlabelled_path else taken}  # fmt: skip


def lines(found: dict, options: Ingest, sequence: str) -> list[str]:
    """What a split took, kept back and found twice, a sentence each; `found` is `Split.figures`, `sequence` a noun."""
    said, sizes, names = [], found["sequences"], plural(sequence)
    if found["pool_share"]:
        asked = f"ingest.unlabelled_share is {found['pool_share']:g}"
        asked += f", the default of {options.source}; 0 takes none" if options.unlabelled_share is None else ""
        said.append(f"the labels of {count(sizes['unlabelled'], sequence)} are taken away: these are the unlabelled "
                    f"pool ({asked})")  # fmt: skip
    kept = {part: n for part, n in found["kept_in_training"].items() if n}
    if kept:
        parts = " and ".join(f"{n:,} in the {part} part" for part, n in kept.items())
        said.append(f"{count(sum(kept.values()), sequence)} with unknown labels or sets of labels (ingest.unknown, "
                    f"ingest.set_separator) stay in training and would have been {parts}: errors are counted on the "
                    f"fully labelled {names} alone")  # fmt: skip
    for part, n in found["overlap"].items():
        if n:
            said.append(f"{n:,} of {count(sizes[part], sequence)} of the {part} part also stand in the training part, "
                        "with the same input: what is known by heart is not the error on new data")  # fmt: skip
    return said


def marks(profile: dict, options: Ingest) -> list[str]:
    """Labels that are taken as they are, though they may mean something else, or be a slip."""
    labels, odd = profile["labels"], profile["findings"]["strange_labels"]
    said, total = [], sum(labels.values())
    if odd["count"]:
        first = odd["examples"][0]
        said.append(f"{count(odd['count'], 'label')} hold characters that cannot be seen, such as {first['text']} "
                    f"({first['place']}): labels that look alike may be different")  # fmt: skip
    if options.unknown is None and labels.get(MARK):
        said.append(f"{labels[MARK]:,} of {count(total, 'token')} have the label {MARK!r}, a label like any other "
                    f"here; ingest.unknown: {MARK} if it says that the label is not known")  # fmt: skip
    sets = [label for label in labels if BETWEEN in label.strip(BETWEEN)]
    if options.set_separator is None and sets:
        said.append(f"labels such as {sets[0]!r} are labels like any other here; ingest.set_separator: "
                    f"\"{BETWEEN}\" if it says that one of several is right")  # fmt: skip
    return said

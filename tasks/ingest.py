"""Ingest: a source becomes token tables, split without leakage, one block of sequences at a time."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.tasks import store
from espalier.tasks.formats.brackets import EMPTY_TREES, WITHOUT_TREE
from espalier.tasks.pages.page import count
from espalier.tasks.params import Ingest, Params
from espalier.tasks.progress import Progress
from espalier.tasks.sources import (
    Blocks,
    Corpus,
    cmudict,
    files,
    input_columns,
    is_trees,
    not_known,
    simulated,
    with_tags,
)
from espalier.tasks.sources.profile import Profiler
from espalier.tasks.sources.split import Split, lines, marks

SOURCES = {"cmudict": cmudict.read, "files": files.read, "conll": files.read, "simulated": simulated.read}
DRAWN = ("dev", "test", "unlabelled")  # parts that are split off the training data where they are not given


def input_fractions(tokens: pl.DataFrame, salt: str) -> np.ndarray:
    """A number in [0, 1) for each sequence that depends on its input (and the salt) alone."""
    columns = input_columns(tokens)
    text = pl.concat_str([pl.col(name) for name in columns], separator="\x1f")
    inputs = tokens.group_by("sequence", maintain_order=True).agg(text.str.join("\x1e").alias("input"))["input"]
    key = salt.encode()
    digests = (hashlib.blake2b(value.encode(), digest_size=8, key=key).digest() for value in inputs)
    numbers = np.frombuffer(b"".join(digests), "<u8")
    return (numbers >> np.uint64(11)) / float(1 << 53)


def take(tokens: pl.DataFrame, chosen: np.ndarray, first: int = 0) -> pl.DataFrame:
    """The sequences of a block where `chosen` [N] is true, numbered anew from `first`."""
    keep = chosen[tokens["sequence"].rle_id().to_numpy()]
    return tokens.filter(pl.Series(keep)).with_columns((pl.col("sequence").rle_id() + first).cast(pl.Int32))


def limited(blocks: Blocks, limit: int | None, seed: int) -> tuple[Blocks, int | None]:
    """The `limit` sequences with the smallest hash, in their old order; how many there were, if some are left out."""
    if limit is None:
        return blocks, None
    fractions = np.concatenate([np.empty(0), *(input_fractions(block, f"limit{seed}") for block in blocks())])
    if limit >= len(fractions):
        return blocks, None
    chosen = np.zeros(len(fractions), bool)
    chosen[np.argsort(fractions, kind="stable")[:limit]] = True
    return selected(blocks, chosen), len(fractions)


def selected(blocks: Blocks, chosen: np.ndarray) -> Blocks:
    """The sequences of all blocks where `chosen` [N] is true, numbered anew."""

    def again():
        begin = first = 0
        for block in blocks():
            mine = chosen[begin : begin + block["sequence"].n_unique()]
            begin += len(mine)
            yield take(block, mine, first)
            first += int(mine.sum())

    return again


def joined(first: Blocks, second: Blocks) -> Blocks:
    """The sequences of both, numbered on."""

    def both():
        count = 0
        for block in first():
            count += block["sequence"].n_unique()
            yield block
        for block in second():
            yield block.with_columns(pl.col("sequence") + count)

    return both


def partly_labelled(tokens: pl.DataFrame) -> np.ndarray:
    """For each sequence whether a label of it is unknown or a set of labels."""
    partial = not_known().any().alias("partial")
    return tokens.group_by("sequence", maintain_order=True).agg(partial)["partial"].to_numpy()


def pieces(corpus: Corpus, options: Ingest, kept: Counter | None = None) -> Iterator[tuple[str, pl.DataFrame]]:
    """(part, sequences to append to it): given parts as they are, the others by hash of the input.

    What is only partly labelled is of use for training alone, so it stays there; `kept` counts it by the part that it
    would have been in.
    """
    bounds, low = {}, 0.0
    for name in DRAWN:
        high = low + (0.0 if name in corpus.parts else options.share(name))
        bounds[name], low = (low, high), high
    bounds["train"], first = (low, np.inf), Counter()
    kept = Counter() if kept is None else kept
    for block in corpus.parts["train"]():
        fractions, partial = input_fractions(block, f"split{options.seed}"), partly_labelled(block)
        for name in DRAWN:
            kept[name] += int(np.sum(partial & (bounds[name][0] <= fractions) & (fractions < bounds[name][1])))
        fractions[partial] = 1.0
        for name, (low, high) in bounds.items():
            mine = (low <= fractions) & (fractions < high)
            piece = take(block, mine, first[name])
            first[name] += int(mine.sum())
            yield name, piece.drop("label") if name == "unlabelled" else piece
    for name in DRAWN:
        for block in corpus.parts[name]() if name in corpus.parts else ():
            yield name, block.drop("label", strict=False) if name == "unlabelled" else block


def watched(blocks: Blocks, profiler: Profiler, trees: bool) -> Blocks:
    """The same blocks; the profiler sees each as it passes, of trees their tags."""

    def passing():
        for block in blocks():
            profiler.add(with_tags(block) if trees else block)
            yield block

    return passing


def tree_lines(notes: dict) -> list[str]:
    """What was left out of a treebank, and what has no tree."""
    said = []
    if empty := notes.get(EMPTY_TREES):
        said.append(f"{count(empty, 'tree')} without a word, or with empty ones alone (-NONE-), left out")
    if bare := notes.get(WITHOUT_TREE):
        said.append(f"{count(bare, 'line')} without brackets: words whose tree is not known")
    return said


def corpus_of(root: Path, options: Ingest) -> tuple[Corpus, int | None]:
    """The corpus of a project, limited and with what was added; how many sequences there were, if some are left out."""
    reader = SOURCES[options.source]
    if options.more and reader is not files.read:
        raise EspalierError(
            f"ingest.more names files and ingest.source is {options.source}: only data from files can be "
            "added to; set ingest.source: files and ingest.path, or ingest.more: null"
        )
    corpus = reader(root, options)
    blocks, available = limited(corpus.parts["train"], options.most(), options.seed)
    if "more" in corpus.parts:  # after the limit: a file that was added must not drive others out of the test set
        blocks = joined(blocks, corpus.parts.pop("more"))
    corpus.parts["train"] = blocks
    return corpus, available


def main(root: Path, params: Params, progress: Progress) -> dict:
    progress.begin(None, "token")
    progress.step(0, note="reading")
    corpus, available = corpus_of(root, params.ingest)
    profiler = Profiler([])
    corpus.parts["train"] = watched(corpus.parts["train"], profiler, is_trees(corpus.info()))
    split, tokens = Split(params.ingest), 0
    with ExitStack() as stack:  # the files take their places together, when all are whole
        writers = {name: stack.enter_context(store.token_writer(root, name, corpus.info())) for name in store.SPLITS}
        for name, piece in pieces(corpus, params.ingest, split.kept):
            writers[name](piece)
            split.add(name, piece)
            tokens += len(piece)
            progress.step(len(piece), note=name)
        for name in ("train", "test"):
            if not split.sequences[name]:
                raise EspalierError(f"no sequence is left for {name}: give more data or change the shares in ingest")
        found, figures = profiler.result(), split.figures()
        store.write_json(stack.enter_context(store.replacing(root / store.PROFILE)), found | {"split": figures})
    if available:
        taken = f"{params.ingest.most():,} of {available:,} {corpus.nouns['sequence']}s are taken, chosen by hash"
        progress.say(f"{taken}; `ingest.limit: null` takes all")
    for line in [*lines(figures, params.ingest, corpus.nouns["sequence"]),
                 *(marks(found, params.ingest) if SOURCES[params.ingest.source] is files.read else []),
                 *tree_lines(corpus.notes)]:  # fmt: skip
        progress.say(line)
    counts = {name: split.sequences[name] for name in store.SPLITS}
    nouns = f"{corpus.nouns['sequence']}s"
    of = f"of {available:,} {nouns} (ingest.limit)" if available else nouns
    sizes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    progress.end(f"{sizes} {of}")
    return counts | {"tokens": tokens} | corpus.notes

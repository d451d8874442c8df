"""Template: token tables become integer features; the vocabulary grows on train and is locked there.

Two passes over blocks of tokens: the first counts the observations of the training data,
the second numbers those of all parts. Memory is that of one block and of the vocabulary.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, pairwise
from os.path import commonprefix
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.data.dataset import FIRST_SET, UNKNOWN, check_label_count
from espalier.engine.errors import EspalierError
from espalier.engine.text import lookup, values
from espalier.tasks import store
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.sources import input_columns
from espalier.tasks.templating.expansion import Expansion, Template, check_columns, column_names, encode, resolve, roomy
from espalier.tasks.templating.pattern_files import read_templates

MERGE = 1_000_000  # counts of blocks that are kept apart at least, before they are added up


def grow_vocabulary(blocks: Iterable[list[Expansion]], min_count: int) -> pl.DataFrame:
    """Observations of the training data: frequent ones first within the first template that yields them."""
    merged: list[pl.DataFrame] = []  # none or one
    waiting: list[pl.DataFrame] = []
    for expansions in blocks:
        waiting.append(_counts(expansions))
        if sum(map(len, waiting)) > max(MERGE, sum(map(len, merged))):
            merged, waiting = [_added([*merged, *waiting])], []
    vocabulary = _added([*merged, *waiting] or [_counts([])]).filter(pl.col("count") >= min_count)
    if vocabulary.is_empty():
        raise EspalierError(f"no observation occurs {min_count} times: lower template.min_count")
    return ordered(vocabulary)


def ordered(vocabulary: pl.DataFrame) -> pl.DataFrame:
    """By template, then frequent ones first, then by text; texts sorted alone and then by a number: half the time."""
    by_text = vocabulary["observation"].arg_sort()
    key = (vocabulary["template"].cast(pl.Int64) * (1 << 40) - vocabulary["count"]).gather(by_text)
    return vocabulary[by_text.gather(np.argsort(key.to_numpy(), kind="stable"))]


def _counts(expansions: list[Expansion]) -> pl.DataFrame:
    """How often each observation occurs in a block, and the first template that yields it."""
    schema = {"observation": pl.String, "template": pl.Int16, "count": pl.Int64}
    parts = []
    for codes, texts, i, _ in expansions:
        columns = {"observation": texts, "template": i, "count": np.bincount(codes[codes >= 0], minlength=len(texts))}
        parts.append(pl.DataFrame(columns, schema_overrides=schema))
    together, texts = [pl.DataFrame(schema=schema), *parts], [part["observation"] for part in parts]
    once = all(some.n_unique() == len(some) for some in texts) and apart(texts)
    return pl.concat(together) if once else _added(together)


def apart(texts: list[pl.Series]) -> bool:
    """Whether no text can be in two series: the beginning that those of one have in common begins none of another."""
    heads = sorted(commonprefix([some.min(), some.max()]) for some in texts if len(some))
    return not any(after.startswith(head) for head, after in pairwise(heads))


def _added(parts: list[pl.DataFrame]) -> pl.DataFrame:
    if len(parts) == 1:  # added up already
        return parts[0]
    return pl.concat(parts).group_by("observation").agg(pl.col("template").min(), pl.col("count").sum())


class Labels(NamedTuple):
    """The labels of the training data in order, and the sets of them that stand for a label there."""

    names: list[str]
    sets: list[list[str]]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Labels":
        texts = set(texts)
        sets = sorted(text.split(store.SET_MARK) for text in texts if store.SET_MARK in text)
        return cls(sorted({name for text in texts for name in text.split(store.SET_MARK) if name}), sets)

    def ids(self, tokens: pl.DataFrame) -> np.ndarray:
        """int32 [T]: a label's place, UNKNOWN for one that training has not seen, FIRST_SET - s for set s."""
        if "label" not in tokens.columns:
            return np.full(len(tokens), UNKNOWN, np.int32)
        known = [*self.names, *(store.SET_MARK.join(one) for one in self.sets)]
        codes = [*range(len(self.names)), *(FIRST_SET - s for s in range(len(self.sets)))]
        return tokens["label"].replace_strict(known, codes, default=UNKNOWN, return_dtype=pl.Int32).to_numpy()


def features(
    tokens: pl.DataFrame, templates: list[Template], vocabulary: lookup.Texts, labels: Labels,
    scale: np.ndarray | None = None,
) -> store.Shard:  # fmt: skip
    """The features of a block of whole sequences, by the locked vocabulary; values are multiplied by `scale` [V]."""
    sequence = tokens["sequence"].to_numpy()
    columns = [store.arrow_texts(tokens[name]) for name in input_columns(tokens)]
    offsets = store.sequence_offsets(sequence)
    ids = lookup.find(vocabulary, templates, columns, offsets)
    first = int(sequence[0]) if len(sequence) else 0
    plain, valued, numbers = values.apart(templates, ids, columns, offsets, first)
    if scale is not None:
        plain, valued, numbers = values.scaled(plain, valued, numbers, scale, values.attribute_columns(templates))
    return store.Shard(sequence, labels.ids(tokens), plain, valued, numbers)


def rebatched(blocks: Iterable[store.Shard], tokens: int) -> Iterator[store.Shard]:
    """The same sequences in shards that end with the first sequence at or after so many tokens; at least one shard."""
    waiting, count = [], 0
    for block in blocks:
        waiting.append(block)
        if sum(len(part.labels) for part in waiting) < tokens:
            continue
        whole = _joined(waiting)
        offsets, begin = store.sequence_offsets(whole.sequence), 0
        while len(whole.labels) - begin >= tokens:
            end = int(offsets[np.searchsorted(offsets, begin + tokens)])
            yield store.Shard(*(array[begin:end] for array in whole))
            begin, count = end, count + 1
        waiting = [store.Shard(*(array[begin:] for array in whole))]
    rest = _joined(waiting)
    if len(rest.labels) or not count:
        yield rest


def _joined(shards: list[store.Shard]) -> store.Shard:
    return store.Shard(*(np.concatenate(parts) for parts in zip(*shards, strict=True)))


def data_version(root: Path) -> str:
    """Sixteen hex digits that change with any token table."""
    digest = hashlib.sha256()
    for split in store.SPLITS:
        digest.update(store.file_hash(root / store.TOKENS.format(split)).encode())
    return digest.hexdigest()[:16]


def main(root: Path, params: Params, progress: Progress, project: Path | None = None) -> dict:
    """Features of the tokens in `root`; the files that templates name lie in `project`, which is `root` by default."""
    progress.begin(None, "token")
    (lines, lists), info = read_templates(project or root, params.template), store.token_info(root, "train")
    label_texts: set[str] = set()

    def blocks(split: str, note: str) -> Iterator[pl.DataFrame]:
        for tokens in store.token_blocks(root, split):
            check_columns(lines, len(input_columns(tokens)))
            yield tokens
            progress.step(len(tokens), note=note)

    templates = resolve(lines, blocks("train", "resolving"))
    templates = roomy(templates, lambda: chain.from_iterable(blocks(split, "resolving") for split in store.SPLITS))

    def counted() -> Iterator[list[Expansion]]:
        for tokens in blocks("train", "counting"):
            label_texts.update(tokens["label"].unique())
            yield encode(tokens, templates)

    vocabulary = grow_vocabulary(counted(), params.template.min_count)
    labels = Labels.of(label_texts)
    check_label_count(len(labels.names), str(root / store.TOKENS.format("train")))
    if not labels.names:
        raise EspalierError("no token of the training data has a known label: label some, or check ingest.unknown")
    texts, splits, scale = lookup.make_vocabulary(store.arrow_texts(vocabulary["observation"])), {}, None
    with_values, mixed = values.valued_columns(templates), values.attribute_columns(templates)
    if params.template.scale and with_values.any():
        raw = (features(tokens, templates, texts, labels) for tokens in blocks("train", "scaling"))
        parts = ((block.observations[:, mixed], block.valued, block.values) for block in raw)
        scale = values.unit_scales(parts, len(vocabulary))
    with ExitStack() as stack:  # shards take their places when all are written
        for split in store.SPLITS:
            numbered = (features(tokens, templates, texts, labels, scale) for tokens in blocks(split, split))
            sizes, shards = Counter(), []
            for shard in rebatched(numbered, params.template.shard_tokens):
                shards.append(store.shard_name(split, len(shards)))
                store.write_shard(stack.enter_context(store.replacing(root / store.FEATURES / shards[-1])), shard)
                sizes["tokens"] += len(shard.labels)
                sizes["sequences"] += len(store.sequence_offsets(shard.sequence)) - 1
            splits[split] = {"sequences": sizes["sequences"], "tokens": sizes["tokens"], "shards": shards}
    for split in store.SPLITS:
        store.remove_stale_shards(root, split, splits[split]["shards"])
    store.write_arrow(root / store.VOCABULARY, vocabulary.select("observation", "template", "count"))
    manifest = {
        "templates": [t.line for t in templates], "columns": column_names(templates),
        "kinds": [t.kind for t in templates], "lists": lists, "labels": labels.names, "label_sets": labels.sets,
        "nouns": info["nouns"], "reading": info.get("reading"), "observations": len(vocabulary), "splits": splits,
        "vocabulary_sha256": store.file_hash(root / store.VOCABULARY), "data_version": data_version(root),
    }  # fmt: skip
    if with_values.any():
        names = np.array(manifest["columns"])
        manifest |= {"columns": names[~with_values].tolist(), "value_columns": names[with_values].tolist()}
    if scale is not None:
        manifest["value_columns"] += names[~with_values][mixed].tolist()
        named = zip(vocabulary["observation"].to_list(), scale.tolist(), strict=True)
        manifest["scales"] = {text: factor for text, factor in named if factor != 1.0}
    store.write_json(root / store.MANIFEST, manifest)
    progress.end(f"{len(templates)} templates, {len(vocabulary):,} observations, {len(labels.names)} labels")
    return {"templates": len(templates), "observations": len(vocabulary), "labels": len(labels.names)}

"""Template: token tables become integer features; the vocabulary grows on train and is locked there."""

import hashlib
from pathlib import Path

import numpy as np
import polars as pl

from engine.errors import EspalierError
from tasks import store
from tasks.params import Params
from tasks.pattern_files import read_templates
from tasks.progress import Progress
from tasks.sources import input_columns
from tasks.templates import Expansion, check_columns, column_names, encode, resolve


def grow_vocabulary(expansions: list[Expansion], min_count: int) -> pl.DataFrame:
    """Observations of the training data: frequent ones first within the first template that yields them."""
    parts = [
        pl.DataFrame({"observation": texts, "count": np.bincount(codes[codes >= 0], minlength=len(texts))})
        .with_columns(template=pl.lit(i, pl.Int16)) for codes, texts, i, _ in expansions
    ]  # fmt: skip
    vocabulary = (
        pl.concat(parts).group_by("observation").agg(pl.col("template").min(), pl.col("count").sum())
        .filter(pl.col("count") >= min_count)
    )  # fmt: skip
    if vocabulary.is_empty():
        raise EspalierError(f"no observation occurs {min_count} times: lower template.min_count")
    return ordered(vocabulary)


def ordered(vocabulary: pl.DataFrame) -> pl.DataFrame:
    """By template, then frequent ones first, then by text; texts sorted alone and then by a number: half the time."""
    by_text = vocabulary["observation"].arg_sort()
    key = (vocabulary["template"].cast(pl.Int64) * (1 << 40) - vocabulary["count"]).gather(by_text)
    return vocabulary[by_text.gather(np.argsort(key.to_numpy(), kind="stable"))]


def look_up(expansions: list[Expansion], vocabulary: pl.DataFrame) -> pl.DataFrame:
    """Ids of the observations (t00, t01, …), -1 for what the locked vocabulary does not hold."""
    ids = vocabulary.select("observation").with_row_index("id").with_columns(pl.col("id").cast(pl.Int32))
    texts = pl.concat([expansion.texts for expansion in expansions])
    found = texts.alias("observation").to_frame().join(ids, on="observation", how="left", maintain_order="left")
    found, columns, begin = found["id"].fill_null(-1).to_numpy(), [], 0
    for codes, texts, _, name in expansions:
        mine = np.append(found[begin : begin + len(texts)], np.int32(-1))  # the last is for the code -1, no text
        columns.append(pl.Series(name, mine[codes]))
        begin += len(texts)
    return pl.DataFrame(columns)


def label_ids(tokens: pl.DataFrame, labels: list[str]) -> pl.Series:
    """Ids of the labels, -1 for unknown ones and for unlabelled data."""
    if "label" not in tokens.columns:
        return pl.Series("label", np.full(len(tokens), -1, np.int32))
    return tokens["label"].replace_strict(labels, range(len(labels)), default=-1, return_dtype=pl.Int32)


def features(tokens: pl.DataFrame, expansions: list[Expansion], vocabulary: pl.DataFrame, labels: list[str]):
    """The feature table of a split: sequence, label, then the columns of the templates."""
    ids = look_up(expansions, vocabulary)
    return pl.DataFrame([tokens["sequence"], label_ids(tokens, labels)]).hstack(ids)


def data_version(root: Path) -> str:
    """Sixteen hex digits that change with any token table."""
    digest = hashlib.sha256()
    for split in store.SPLITS:
        digest.update(store.file_hash(root / store.TOKENS.format(split)).encode())
    return digest.hexdigest()[:16]


def main(root: Path, params: Params, progress: Progress) -> dict:
    progress.begin(len(store.SPLITS) + 1, "part")
    templates, lists = read_templates(root, params.template)
    parts = {split: store.read_tokens(root, split)[0] for split in store.SPLITS}
    train, info = store.read_tokens(root, "train")
    for tokens in parts.values():
        check_columns(templates, len(input_columns(tokens)))
    templates = resolve(templates, [train])
    expansions = {split: encode(tokens, templates) for split, tokens in parts.items()}
    vocabulary = grow_vocabulary(expansions["train"], params.template.min_count)
    labels = sorted(train["label"].unique().to_list())
    progress.step(note=f"{len(vocabulary):,} observations")
    tables = {split: features(tokens, expansions[split], vocabulary, labels) for split, tokens in parts.items()}
    splits = {}
    for split, tokens in parts.items():  # nothing is written before all is computed
        shards = store.write_shards(root, split, tables[split], params.template.shard_tokens)
        splits[split] = {"sequences": tokens["sequence"].n_unique(), "tokens": len(tokens), "shards": shards}
        progress.step(note=split)
    store.write_arrow(root / store.VOCABULARY, vocabulary.select("observation", "template", "count"))
    manifest = {
        "templates": [t.line for t in templates], "columns": column_names(templates),
        "kinds": [t.kind for t in templates], "lists": lists, "labels": labels,
        "nouns": info["nouns"], "observations": len(vocabulary), "splits": splits,
        "vocabulary_sha256": store.file_hash(root / store.VOCABULARY), "data_version": data_version(root),
    }  # fmt: skip
    store.write_json(root / store.MANIFEST, manifest)
    progress.end(f"{len(templates)} templates, {len(vocabulary):,} observations, {len(labels)} labels")
    return {"templates": len(templates), "observations": len(vocabulary), "labels": len(labels)}

"""Sequences that a model draws, as columns or trees: `espalier sample`."""

from collections.abc import Iterator

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError, quoted
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels.trees import Tree, leaves, written

UNKNOWN = "<unknown>"  # stands for an observation that training has not seen


def lines(trees: list[Tree]) -> Iterator[str]:
    """A tree on each line, in brackets."""
    for tree in trees:
        for _, word in leaves(tree):
            if not word or set(word) & set("()") or word.split() != [word]:
                told = f"the sample has {quoted(word)}, which cannot stand in a tree"
                raise EspalierError(f"{told}: ask for another seed")
        yield f"{written(tree)}\n"


def columns(model: Labeller, data: Dataset) -> Iterator[str]:
    """A text for each sequence: at each token what its streams emit, and the label; an empty line behind it.

    A template without macros says nothing of the token and has no column.
    """
    texts = []
    for k in (k for k in model.streams() if model.parsed[k].macros):
        stream = model.stream(k)
        symbol = dict(zip(stream.observations.tolist(), model.symbols(stream), strict=True)) | {-1: UNKNOWN}
        texts.append([symbol[x] for x in data.observations[:, k].tolist()])
    texts.append([model.labels[y] for y in data.labels.tolist()])
    rows = list(zip(*texts, strict=True))
    for low, high in zip(data.offsets.tolist(), data.offsets.tolist()[1:], strict=False):
        for text in (text for row in rows[low:high] for text in row):
            if not text or "\t" in text or "\n" in text:
                raise EspalierError(
                    f"the sample has {quoted(text)}, which cannot stand in columns: ask for another seed"
                )
        yield "".join("\t".join(row) + "\n" for row in rows[low:high]) + "\n"

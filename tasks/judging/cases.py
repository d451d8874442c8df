"""Cases that must not break: labelled sequences from a file that every promoted model must get right.

In any of the formats of tasks/formats, with the columns of the training data. Where any label will do stands
`ingest.unknown`, or `_` where that is null and the models have no such label; where either of two will do `A|B`, with
`ingest.set_separator` or `|` in the same way.
"""

from dataclasses import replace
from pathlib import Path

import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.tasks import formats, store
from espalier.tasks.answering.tagging import tag
from espalier.tasks.params import Params
from espalier.tasks.sources import files

ANY, EITHER = "_", "|"  # marks of a place where any label or one of some will do, unless labels look like that


def read_cases(root: Path, params: Params, inputs: int, labels: list[str]) -> pl.DataFrame:
    """The tokens of all cases: sequence, line, x0, x1, …, label; `labels` are those of the model."""
    path = root / params.promote.cases
    if not path.is_file():
        raise EspalierError(f"promote.cases is {params.promote.cases!r}: there is no such file in {root}")
    options = files.reading(params.ingest, inputs)
    options = replace(
        options,
        unknown=options.unknown or (None if ANY in labels else ANY),
        set_separator=options.set_separator or (None if any(EITHER in label for label in labels) else EITHER),
    )
    try:
        name = formats.detect(path)
    except EspalierError:
        name = options.format or "conll"
    blocks = list(formats.read_located([path], replace(options, format=name), True))
    return pl.concat(blocks, rechunk=True).drop("file")


def check_cases(model: Labeller, cases: pl.DataFrame) -> list[dict]:
    """The cases that a model gets wrong: where, tokens, what was expected and what it said."""
    said, wrong = tag(model, cases.drop("line")), []
    offsets = store.sequence_offsets(cases["sequence"].to_numpy())
    tokens, labels, lines = (cases[name].to_list() for name in ("x0", "label", "line"))
    for lo, hi in zip(offsets, offsets[1:], strict=False):
        expected = [one.split(store.SET_MARK) if one else None for one in labels[lo:hi]]
        if any(some and got not in some for some, got in zip(expected, said[lo:hi], strict=True)):
            wrong.append({"line": int(lines[lo]), "tokens": tokens[lo:hi], "said": said[lo:hi],
                          "expected": ["|".join(some) if some else ANY for some in expected]})  # fmt: skip
    return wrong

"""Files of labelled sequences in any of the formats of tasks/formats."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from engine.errors import EspalierError
from tasks import formats
from tasks.formats import Reading
from tasks.params import Ingest
from tasks.sources import Blocks, Corpus

NOUNS = {"token": "token", "label": "label", "sequence": "sequence"}
PEEK = 1000  # tokens read beforehand, to know how many input columns there are


def reading(options: Ingest, inputs: int | None = None) -> Reading:
    """What the parameters say of reading; the source `conll` means the format of that name."""
    return Reading(
        format=options.format or ("conll" if options.source == "conll" else None),
        separator=options.separator, comment=options.comment, docstart=options.docstart,
        label_column=options.label_column, inputs=inputs,
        columns=tuple(options.columns) if options.columns else None, label=options.label, sequence=options.sequence,
        unknown=options.unknown, set_separator=options.set_separator,
        scheme_in=options.scheme_from, scheme_out=options.scheme,
    )  # fmt: skip


def tokens_of(paths: list[Path], options: Reading, labelled: bool) -> pl.DataFrame:
    """The token table of all files, in memory at once."""
    return pl.concat(list(formats.read_blocks(paths, options, labelled)), rechunk=True)


def read(root: Path, options: Ingest) -> Corpus:
    """The corpus of the files that the parameters name; each pass over a part reads its files again."""
    if not options.path:
        raise EspalierError(f"ingest.path is null: name the labelled file that the {options.source} source reads")
    paths = formats.expand(root, options.path)
    name, _ = formats.format_of(paths[0], reading(options).format)
    corpus = Corpus({}, f"{name}:{Path(options.path).name}", NOUNS)
    counted: dict[str, Counter] = {}

    def part(split: str, paths: list[Path], how: Reading) -> Blocks:
        def blocks() -> Iterator[pl.DataFrame]:
            notes: dict[str, int] = {}
            yield from formats.read_blocks(paths, how, split != "unlabelled", notes=notes)
            counted[split] = Counter(notes)  # of the last pass, not of all of them
            corpus.notes = dict(sum(counted.values(), Counter()))

        return blocks

    corpus.parts["train"] = part("train", paths, reading(options))
    inputs = None
    if options.more:
        inputs = _inputs(paths, reading(options))
        added = [path for pattern in options.more for path in formats.expand(root, pattern)]
        corpus.parts["more"] = part("more", _apart(paths, added), reading(options, inputs))
    for split in ("dev", "test", "unlabelled"):
        path = getattr(options, f"{split}_path")
        if path:
            inputs = inputs or _inputs(paths, reading(options))
            corpus.parts[split] = part(split, formats.expand(root, path), reading(options, inputs))
    return corpus


def _apart(paths: list[Path], added: list[Path]) -> list[Path]:
    """The added files, each of which must be new: sequences that are read twice would count twice."""
    seen: set[Path] = {path.resolve() for path in paths}
    for path in added:
        if path.resolve() in seen:
            raise EspalierError(f"{path}: ingest.path or ingest.more names this file twice; name it once")
        seen.add(path.resolve())
    return added


def _inputs(paths: list[Path], how: Reading) -> int:
    """The number of input columns of the training files."""
    return len(formats.input_names(next(formats.read_blocks(paths, how, True, PEEK))))

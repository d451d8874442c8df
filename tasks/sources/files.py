"""Files of labelled sequences in any of the formats of tasks/formats."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.labels.measures import BRACKET_F1
from espalier.tasks import formats
from espalier.tasks.formats import Reading, schemes
from espalier.tasks.params import Ingest
from espalier.tasks.sources import Blocks, Corpus, not_known

NOUNS = {"token": "token", "label": "label", "sequence": "sequence"}
OF_TREES = {"token": "word", "label": "tag", "sequence": "sentence"}
PEEK = 1000  # tokens read beforehand, to know how many input columns there are


def reading(options: Ingest, inputs: int | None = None) -> Reading:
    """What the parameters say of reading; the source `conll` means the format of that name."""
    return Reading(
        format=options.format or ("conll" if options.source == "conll" else None),
        separator=options.separator, comment=options.comment, docstart=options.docstart,
        label_column=options.label_column, inputs=inputs,
        columns=tuple(options.columns) if options.columns else None, label=options.label, sequence=options.sequence,
        unknown=options.unknown, set_separator=options.set_separator,
        scheme_in=options.scheme_from, scheme_out=options.scheme, functions=options.functions, bare=options.bare,
    )  # fmt: skip


def tokens_of(paths: list[Path], options: Reading, labelled: bool) -> pl.DataFrame:
    """The token table of all files, in memory at once."""
    return pl.concat(list(formats.read_blocks(paths, options, labelled)), rechunk=True)


def read(root: Path, options: Ingest) -> Corpus:
    """The corpus of the files that the parameters name; each pass over a part reads its files again."""
    if not options.path:
        raise EspalierError(f"ingest.path is null: name the labelled file that the {options.source} source reads")
    paths = formats.expand(root, options.path)
    name, item = formats.format_of(paths[0], reading(options).format)
    corpus = Corpus({}, f"{name}:{Path(options.path).name}", OF_TREES if item.trees else NOUNS)
    if item.trees:
        corpus.measure = {"name": BRACKET_F1, "labelled": not options.bare}
    counted: dict[str, Counter] = {}

    def part(split: str, paths: list[Path], how: Reading) -> Blocks:
        def blocks() -> Iterator[pl.DataFrame]:
            notes: dict[str, int] = {}
            for block in formats.read_located(paths, how, split != "unlabelled", notes=notes):
                if split in ("dev", "test"):
                    _check_known(block, split, paths, how)
                yield block.drop("file", "line")
            counted[split] = Counter(notes)  # of the last pass, not of all of them
            corpus.notes = dict(sum(counted.values(), Counter()))

        return blocks

    corpus.parts["train"] = part("train", paths, reading(options))
    inputs = _inputs(paths, reading(options))
    corpus.reading = _for_the_model(paths, name, options, inputs)
    if options.more:
        added = [path for pattern in options.more for path in formats.expand(root, pattern)]
        corpus.parts["more"] = part("more", _apart(paths, added), reading(options, inputs))
    for split in ("dev", "test", "unlabelled"):
        path = getattr(options, f"{split}_path")
        if path:
            corpus.parts[split] = part(split, formats.expand(root, path), reading(options, inputs))
    return corpus


def _for_the_model(paths: list[Path], name: str, options: Ingest, inputs: int) -> dict:
    """What a model is told of its files, as `tasks.answering.own_format` reads it."""
    how, scheme = reading(options), None
    if options.scheme:
        scheme = schemes.name_of(options.scheme_from) if options.scheme_from else formats.scheme_of(paths, how)
        scheme = None if scheme == schemes.name_of(options.scheme) else scheme
    names = ("separator", "comment", "docstart", "label_column", "columns", "label", "sequence", "unknown")
    names += ("functions", "bare") if formats.FORMATS[name].trees else ()
    told = {key: getattr(how, key) for key in names} | {"format": name, "inputs": inputs, "scheme": scheme}
    return told | {"columns": list(how.columns) if how.columns else None}


def _apart(paths: list[Path], added: list[Path]) -> list[Path]:
    """The added files, each of which must be new: sequences that are read twice would count twice."""
    seen: set[Path] = {path.resolve() for path in paths}
    for path in added:
        if path.resolve() in seen:
            raise EspalierError(f"{path}: ingest.path or ingest.more names this file twice; name it once")
        seen.add(path.resolve())
    return added


def _check_known(block: pl.DataFrame, split: str, paths: list[Path], how: Reading) -> None:
    """Refuse a label that is not known in a part to measure on, with its place and the parameter that says so."""
    odd = block.filter(not_known()).head(1)
    if odd.is_empty():
        return
    if formats.format_of(paths[odd["file"][0]], how.format)[1].trees:
        place = formats.place(paths[odd["file"][0]], odd["line"][0], how)
        raise EspalierError(
            f"{place}: words without a tree, and errors cannot be counted on them in the {split} part; move them to "
            "the training data or to ingest.unlabelled_path"
        )
    path, label = paths[odd["file"][0]], odd["label"][0]
    what, name = (f"{how.unknown!r}, unknown", "unknown") if label == "" else ("a set of labels", "set_separator")
    place = formats.place(path, odd["line"][0], how)
    raise EspalierError(
        f"{place}: the label is {what} by ingest.{name}, and errors cannot be counted on it in the {split} part; "
        f"label it, move the sequence to the training data, or set ingest.{name}: null if that is a label"
    )


def _inputs(paths: list[Path], how: Reading) -> int:
    """The number of input columns of the training files."""
    return len(formats.input_names(next(formats.read_blocks(paths, how, True, PEEK))))

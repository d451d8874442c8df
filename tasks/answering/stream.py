"""A model applied to a file or a stream: whole sequences in, answers out, as soon as they can be given.

What is read is cut behind empty lines (behind lines, where each is a sequence), so an answer depends on its
sequence alone and the bytes of the output never on how the input came. `incoming` cuts the bytes, `text_blocks`
makes texts of them, here they get their labels, and `answer_text` writes these down; `asked` is what a user wants.
Nothing here loads Polars, Prefect or DVC: a model file is enough to tag with.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from espalier.engine.data.dataset import UNKNOWN, Dataset
from espalier.engine.data.dataset import select as some_of
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families.labeller import Labeller
from espalier.engine.features import columns_needed, features_of
from espalier.engine.labels.abstention import unsure
from espalier.engine.labels.scheme import Transitions
from espalier.tasks.answering.answer_text import Labelled, writer
from espalier.tasks.answering.asked import Asked
from espalier.tasks.answering.incoming import BLOCK, SMALL_BLOCK, opened, pieces
from espalier.tasks.answering.own_format import Letters, OwnFormat
from espalier.tasks.answering.text_blocks import TextBlock, blocks, table_blocks


def features(
    model: Labeller, block: TextBlock, name: str, known: int | None = None, own: OwnFormat | None = None
) -> Dataset:
    """The data set of a block; the columns but the one of known labels are the input.

    A file that has a column more than the training files had inputs has their label column, which is left out.
    """
    width, needed = len(block.columns), columns_needed(model)
    if known is not None and not -width <= known < width:
        raise EspalierError(f"the known labels are in column {known}, but {name} has {width} columns")
    left_out = known
    if known is None and own is not None and block.fields is not None and width - 1 == own.inputs:
        left_out = own.label_column
    inputs = [c for w, c in enumerate(block.columns) if left_out is None or w != left_out % width]
    if len(inputs) < needed:
        beside = "" if known is None else " beside the known labels"
        raise EspalierError(
            f"{name} has {len(inputs)} columns{beside}, the model looks at {needed}: expected its input columns"
        )
    return features_of(model, inputs[:needed], block.offsets)


def known_labels(model: Labeller, block: TextBlock, name: str, asked: Asked) -> np.ndarray:
    """The labels that are known beforehand, int32 [T], -1 for the others."""
    column = block.columns[asked.known].dictionary_encode()
    code = {label: i for i, label in enumerate(model.labels)} | {asked.unknown: UNKNOWN}
    texts, which = column.dictionary.to_pylist(), column.indices.to_numpy()
    codes = np.array([code.get(text, UNKNOWN - 1) for text in texts], np.int32)[which]
    wrong = np.flatnonzero(codes < UNKNOWN)
    if len(wrong):
        raise EspalierError(
            f"line {block.line[wrong[0]]} of {name}: the known label {quoted(texts[which[wrong[0]]])} is not one of "
            f"the model's, {brief(', '.join(model.labels))}; expected one of them, or {asked.unknown} where "
            "none is known"
        )
    return codes


def labelled(model: Labeller, dataset: Dataset, asked: Asked, transitions: Transitions | None = None) -> Labelled:
    """The labellings that were asked for; labels that the data set has are taken as known."""
    only = {"allowed": None if asked.known is None else "labels", "transitions": transitions}
    if asked.nbest:
        best = model.nbest(dataset, asked.nbest, **only)
        found = Labelled(best.labels, best.count, best.log_probabilities)
    else:
        labels = model.decoded(dataset, asked.decode, **only)
        found = Labelled(labels[None], np.ones(len(dataset.weights), np.int64))
    if asked.likelihood:
        found = found._replace(log_likelihoods=model.log_likelihood(dataset))
    if not asked.scores and asked.abstain is None:
        return found
    gamma = model.marginals(dataset, **only)
    probabilities = gamma[np.arange(len(gamma)), np.maximum(found.labels, 0)]
    if asked.abstain is not None:
        left_out = unsure(model.labels, found.labels[0], probabilities[0], dataset.offsets, asked.abstain)
        found = found._replace(left_out=left_out)
    if not asked.scores:
        return found
    if found.log_probabilities is None:
        log_p = model.log_probability(dataset, found.labels[0], **only)
        found = found._replace(log_probabilities=np.minimum(log_p, 0.0)[:, None])
    return found._replace(probabilities=probabilities)


def _refuse_impossible(
    model: Labeller, dataset: Dataset, asked: Asked, transitions, block: TextBlock, name: str
) -> None:
    """An error that names the line of the first sequence that has no allowed labelling."""
    plain = Asked(known=asked.known, decode="viterbi")
    for n in range(len(dataset.weights)):
        try:
            labelled(model, some_of(dataset, np.array([n])), plain, transitions)
        except EspalierError:
            raise EspalierError(
                f"the sequence from line {block.line[block.offsets[n]]} of {name} on has no labelling with its known "
                f"labels that the scheme ({asked.scheme or model.info.get('scheme')}) allows: check them"
            ) from None


def answers(model: Labeller, data: Iterable[bytes], name: str, asked: Asked | None = None) -> Iterator[bytes]:
    """The answers to what is read, block by block."""
    asked = (asked or Asked()).completed(model)
    asked.check(model)
    return answered(model, blocks(data, name, asked), name, asked)


def answered(model: Labeller, read: Iterable[TextBlock], name: str, asked: Asked) -> Iterator[bytes]:
    """The answers to blocks, as a completed `asked` wants them."""
    transitions = asked.transitions(model)
    letters = Letters(model.labels, asked.labels) if asked.labels else None
    names = letters.names if letters else model.labels
    mark = [] if asked.abstain is None else [None if asked.format == "jsonl" else asked.mark]
    write = writer([*names, *mark], asked)
    for block in read:
        if not len(block.line):
            yield b"" if asked.format == "jsonl" else b"".join(one.written for one in block.passed)
            continue
        dataset = features(model, block, name, asked.known, asked.own)
        if asked.known is not None:
            dataset = dataset._replace(labels=known_labels(model, block, name, asked))
        try:
            found = labelled(model, dataset, asked, transitions)
        except EspalierError:
            if asked.known is not None:
                _refuse_impossible(model, dataset, asked, transitions, block, name)
            raise
        if letters:
            found = found._replace(labels=np.stack([letters(row, block.offsets) for row in found.labels]))
        if found.left_out is not None:
            found = found._replace(labels=np.where(found.left_out, len(names), found.labels))
        yield write(block, found)


def tag_file(model: Labeller, file: str, asked: Asked | None = None) -> Iterator[bytes]:
    """The answers to a file, or to standard input (-)."""
    asked = (asked or Asked()).completed(model, file)
    asked.check(model)
    if asked.source not in ("words", "conll", "jsonl"):
        if file == "-":
            raise EspalierError(f"{asked.source} cannot come on standard input: name the file")
        yield from answered(model, table_blocks(file, asked), file, asked)
        return
    size = SMALL_BLOCK if asked.scores or asked.nbest or asked.likelihood or asked.words else BLOCK
    with opened(file) as (source, name):
        yield from answered(model, blocks(pieces(source, name, size), name, asked), name, asked)

"""What a user gets who changes nothing: `CRF().fit` from lists of attributes beside CRFsuite's 150 iterations.

Attributes and penalties are CRFsuite's: those of its example for CoNLL-2000, those of python-crfsuite's
tutorial for Spanish named entities (tested on testb). All else is what either does by itself.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import corpora, peers
from benchmarks.cases import Context, conll2000
from benchmarks.rows import OURS
from espalier.engine.estimator import CRF
from espalier.engine.labels import spans

ITERATIONS = 150
WARM_UP = 20  # sentences
CASES = {  # corpus, c1, c2
    "CoNLL-2000 L2": ("conll2000", 0.0, 1.0),
    "CoNLL-2000 L1": ("conll2000", 0.5, 0.0005),
    "Spanish L1": ("conll2002-esp", 1.0, 0.001),
}


def rows(context: Context) -> Iterator[dict]:
    for name, (corpus, c1, c2) in CASES.items():
        iterations = 5 if context.quick else ITERATIONS
        arguments = {"corpus": corpus, "c1": c1, "c2": c2}
        setting = f"{name}, {iterations} iterations"
        found = context.job("defaults:peer", "python-crfsuite", setting, iterations=iterations, **arguments)
        if found:
            yield context.row("python-crfsuite", setting, found)
        for threads in (2, 1):
            found = context.job("defaults:fit", OURS, name, threads, **arguments)
            if found:
                yield context.row(OURS, f"{name}, {found['remark']}", found)


# ---- attributes


def tutorial_attributes(words: list[str], tags: list[str]) -> list[list[str]]:
    """Those of python-crfsuite's tutorial on Spanish named entities."""
    items = []
    for t, (word, tag) in enumerate(zip(words, tags, strict=True)):
        item = ["bias", f"word[-3:]={word[-3:]}", f"word[-2:]={word[-2:]}", f"word.isdigit={word.isdigit()}"]
        item += _of_word("", word, tag)
        item += _of_word("-1:", words[t - 1], tags[t - 1]) if t else ["BOS"]
        item += _of_word("+1:", words[t + 1], tags[t + 1]) if t + 1 < len(words) else ["EOS"]
        items.append(item)
    return items


def _of_word(where: str, word: str, tag: str) -> list[str]:
    return [
        f"{where}word.lower={word.lower()}", f"{where}word.istitle={word.istitle()}",
        f"{where}word.isupper={word.isupper()}", f"{where}postag={tag}", f"{where}postag[:2]={tag[:2]}",
    ]  # fmt: skip


ATTRIBUTES: dict[str, Callable] = {"conll2000": conll2000.attributes, "conll2002-esp": tutorial_attributes}


def sentences_of(data: str, quick: bool, corpus: str) -> tuple[list, list]:
    """(attributes, labels) of the sentences of train and test."""
    attributes = ATTRIBUTES[corpus]
    return tuple(
        [(attributes(words, tags), labels) for words, tags, labels in peers.read_text(path, quick)]
        for path in corpora.paths(data, corpus)
    )


# ---- jobs


def fit(data: str, quick: bool, corpus: str, c1: float, c2: float) -> dict:
    train, test = sentences_of(data, quick, corpus)
    penalty = {"rho1": c1, "rho2": 2 * c2, "verbose": False}
    CRF(**penalty, max_iterations=3).fit(*zip(*train[:WARM_UP], strict=True))
    begin = time.perf_counter()
    model = CRF(**penalty, **({"max_iterations": 5} if quick else {})).fit(*zip(*train, strict=True))
    seconds = time.perf_counter() - begin
    info = model.model_.info
    remark = f"{info['iterations']} iterations, {info['stop_reason'].replace('_', ' ')}"
    predicted = [label for row in model.predict([items for items, _ in test]) for label in row]
    active = len(model.model_.theta)
    return {"seconds": seconds, "objective": info["objective"], "active": active, "remark": remark,
            "f1": f1(test, predicted)}  # fmt: skip


def peer(data: str, quick: bool, corpus: str, c1: float, c2: float, iterations: int) -> dict:
    train, test = sentences_of(data, quick, corpus)
    with peers.temporary_folder() as folder:
        found = peers.train_crfsuite(train, c1, c2, iterations, folder)
        predicted = conll2000.tag(found.model, [items for items, _ in test])
    return {"seconds": found.seconds, "objective": found.curve[-1][1], "f1": f1(test, predicted)}


def f1(test: list, predicted: list[str]) -> float:
    """F1 of entities or chunks, as conlleval counts them."""
    gold = [label for _, labels in test for label in labels]
    offsets = np.cumsum([0, *(len(labels) for _, labels in test)])
    return spans.scores(gold, predicted, offsets)[0]["f1"]

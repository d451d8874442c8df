"""Perceptrons beside CRFsuite's: `ap`, `pa` and `arow` at their default parameters, 100 iterations, one thread.

Both are given attributes as texts by the same calls, ours by `espalier.crfsuite`; time runs from the first sequence
that is handed over to the end of the training. Attributes are those of CRFsuite's example for CoNLL-2000 and of
python-crfsuite's tutorial on Spanish named entities (tested on testb).
"""

import importlib
import time
from collections.abc import Iterator

from benchmarks import peers
from benchmarks.cases import Context, defaults
from benchmarks.rows import OURS

ALGORITHMS = ("ap", "pa", "arow")
CORPORA = {"CoNLL-2000": "conll2000", "Spanish": "conll2002-esp"}
ITERATIONS = 100
MODULES = {OURS: "espalier.crfsuite", "python-crfsuite": "pycrfsuite"}
WARM_UP = 20  # sentences


def rows(context: Context) -> Iterator[dict]:
    iterations = 3 if context.quick else ITERATIONS
    for name, corpus in CORPORA.items():
        for algorithm in ALGORITHMS:
            for system in MODULES:
                setting = f"{name} {algorithm}, {iterations} iterations"
                arguments = {"system": system, "corpus": corpus, "algorithm": algorithm, "iterations": iterations}
                found = context.job("perceptron:fit", system, setting, 1, **arguments)
                if found:
                    yield context.row(system, setting, found)


def fit(data: str, quick: bool, system: str, corpus: str, algorithm: str, iterations: int) -> dict:
    """Handing over and training; F1 by the tagger of the same module."""
    module = importlib.import_module(MODULES[system]) if system == OURS else peers.load(MODULES[system])
    train, test = defaults.sentences_of(data, quick, corpus)
    with peers.temporary_folder() as folder:
        path = f"{folder}/a.model"
        trained(module, train[:WARM_UP], algorithm, 2, path)
        begin = time.perf_counter()
        trainer = trained(module, train, algorithm, iterations, path)
        seconds = time.perf_counter() - begin
        predicted = labels_of(module, path, [items for items, _ in test])
    return {"seconds": seconds, "objective": trainer.logparser.last_iteration["loss"],
            "f1": defaults.f1(test, predicted)}  # fmt: skip


def trained(module, sentences: list, algorithm: str, iterations: int, path: str):
    """The trainer of a module that has the names of python-crfsuite, when it is done."""
    trainer = module.Trainer(algorithm, {"max_iterations": iterations}, verbose=False)
    for items, labels in sentences:
        trainer.append(items, labels)
    trainer.train(path)
    return trainer


def labels_of(module, path: str, sentences: list) -> list[str]:
    tagger = module.Tagger()
    tagger.open(path)
    return [label for items in sentences for label in tagger.tag(items)]

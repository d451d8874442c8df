"""Tokens a second of tagging CoNLL-2000's test part with a trained model."""

import gzip
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import corpora, ours, peers
from benchmarks.cases import Context
from benchmarks.cases.conll2000 import attributes, layout_of, problem_of
from benchmarks.rows import OURS
from espalier.engine.decoding import decode
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.optimise.penalty import ElasticNet
from espalier.tasks.answering import stream, tagging

ITERATIONS = 50  # of the training; the weights matter little for the speed
REPEATS = 5
C2 = 1.0
BOTH = "ready features and from text"


def rows(context: Context) -> Iterator[dict]:
    for threads in (2, 1):
        yield from _two(context, OURS, context.job("tag:ours_tags", OURS, BOTH, threads))
    yield from _two(context, "python-crfsuite", context.job("tag:crfsuite_tags", "python-crfsuite", BOTH))


def _two(context: Context, system: str, found: dict | None) -> Iterator[dict]:
    for setting in ("ready features", "from text") if found else ():
        yield context.row(system, setting, found | {"tokens_per_second": found[setting]})


def median_seconds(function: Callable) -> float:
    """Median over a few calls, after one that is not counted."""
    function()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def ours_tags(data: str, quick: bool) -> dict:
    """From a data set of the model's observations, and from the lines of the file, as `espalier tag` does it."""
    problem = problem_of(corpora.read_tokens(data, "conll2000", quick))
    layout = layout_of(problem)
    most = 5 if quick else ITERATIONS
    found = ours.fit(problem.train, layout, "lbfgs", ElasticNet(0.0, 2 * C2), max_iterations=most, tolerance=0.0)
    model = CrfLabeller.compact(layout, found.theta, problem.observations, problem.labels, problem.lines, {})
    tokens = corpora.read_part(data, "conll2000", 1, quick)
    ready = tagging.dataset_of(model, tokens.drop("label"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.txt"
        path.write_text(_plain(corpora.paths(data, "conll2000")[1], quick), encoding="utf-8")
        predicted = tagging.tag(model, tokens.drop("label"))
        return {
            "ready features": _rate(problem, lambda: decode.viterbi(ready, model.layout, model.theta)),
            "from text": _rate(problem, lambda: list(stream.tag_file(model, str(path)))),
            "active": int(np.count_nonzero(found.theta)), **ours.accuracy(problem, predicted),
        }  # fmt: skip


def _rate(problem: corpora.Problem, function: Callable) -> float:
    return len(problem.test_labels) / median_seconds(function)


def _plain(path: Path, quick: bool) -> str:
    """The test part as plain text, cut in a quick run."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().strip("\n").split("\n\n")
    return "\n\n".join(blocks[: corpora.QUICK] if quick else blocks) + "\n"


def crfsuite_tags(data: str, quick: bool) -> dict:
    """From ItemSequences, and from text by way of attributes in Python."""
    crfsuite = peers.load("pycrfsuite")
    train, test = corpora.paths(data, "conll2000")
    sentences = [(attributes(w, p), labels) for w, p, labels in peers.read_text(train, quick)]
    problem = problem_of(corpora.read_tokens(data, "conll2000", quick))
    with peers.temporary_folder() as folder:
        found = peers.train_crfsuite(sentences, 0.0, C2, 5 if quick else ITERATIONS, folder)
        tagger = crfsuite.Tagger()
        tagger.open(str(found.model))
        ready = [crfsuite.ItemSequence(attributes(w, p)) for w, p, _ in peers.read_text(test, quick)]
        plain = Path(folder) / "test.txt"
        plain.write_text(_plain(test, quick), encoding="utf-8")

        def from_text() -> list[str]:
            return [y for w, p, _ in peers.read_text(plain, quick) for y in tagger.tag(attributes(w, p))]

        return {
            "ready features": _rate(problem, lambda: [tagger.tag(items) for items in ready]),
            "from text": _rate(problem, from_text), **ours.accuracy(problem, from_text()),
        }  # fmt: skip

"""Every labelled corpus at hand, with few templates and with many, by L2 and by L1: ours as it comes beside the peers.

Nothing is tuned: `auto` is the solver, the tolerance is the default, templates and penalties are the same few for all.
Both sides have the same model (pairs of attribute and label that were seen, label bigrams that were seen, no weights
for the first or last label), so that objectives compare. Time runs from the text file: ours ends where the objective
is as low as CRFsuite's in the end (`seconds`), and where the test part is labelled as well as by CRFsuite's model
(`seconds_to_score`).
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks import corpora, ours, peers
from benchmarks.cases import Context
from benchmarks.job import Skip
from benchmarks.rows import OURS
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solver_table import fitting
from espalier.engine.optimise.solvers import minimise
from espalier.engine.weights.layout import Layout, seen_layout

Place = tuple[int, int, int]  # row, column, and how many letters of its value: 0 all, n the first, -n the last
WORDS = {
    "small": [*(((row, 0, 0),) for row in (-1, 0, 1))],
    "rich": [
        *(((row, 0, 0),) for row in range(-2, 3)), ((-1, 0, 0), (0, 0, 0)), ((0, 0, 0), (1, 0, 0)),
        *(((0, 0, n),) for n in (1, 2, 3, 4, -1, -2, -3, -4)), ((-1, 0, -3),), ((1, 0, -3),),
    ],
}  # fmt: skip
TAGS = {
    "small": [*(((row, 1, 0),) for row in (-1, 0, 1))],
    "rich": [
        *(((row, 1, 0),) for row in range(-2, 3)), *(((row, 1, 0), (row + 1, 1, 0)) for row in range(-2, 2)),
        *(((row, 1, 0), (row + 1, 1, 0), (row + 2, 1, 0)) for row in range(-2, 1)),
    ],
}  # fmt: skip
LETTERS = {
    "small": [*(((row, 0, 0),) for row in range(-2, 3))],
    "rich": [
        *(((row, 0, 0),) for row in range(-4, 5)), *(((row, 0, 0), (row + 1, 0, 0)) for row in range(-3, 3)),
        *(((row, 0, 0), (row + 1, 0, 0), (row + 2, 0, 0)) for row in range(-3, 2)),
    ],
}  # fmt: skip


class Corpus(NamedTuple):
    """Its files: train and test, or one of which every tenth sequence is for the test, or those behind the first n."""

    files: tuple[str, ...]
    templates: tuple[dict[str, list], ...]
    first: int | None = None
    every: int = 1  # of its sequences one in so many is taken


CORPORA = {
    "conll2000": Corpus(("conll2000/train.txt.gz", "conll2000/test.txt.gz"), (WORDS, TAGS)),
    "spanish": Corpus(("conll2002-esp/esp.train.gz", "conll2002-esp/esp.testb.gz"), (WORDS, TAGS)),
    "nettalk": Corpus(("nettalk/train.conll.gz", "nettalk/test.conll.gz"), (LETTERS,)),
    "cmudict": Corpus(("cmudict-aligned/cmudict-aligned.conll.gz",), (LETTERS,), every=5),
    "addresses": Corpus(("usaddress/train-labeled.conll.gz",), (WORDS,)),
    "references": Corpus(("citations/parscit-cora.conll.gz",), (WORDS,)),
    "headers": Corpus(("citations/cora-headers.conll.gz",), (WORDS,)),
    "tags": Corpus(("treebank-sample/pos.conll.gz",), (WORDS,), first=3000),
}
PENALTIES = {"L2": (0.0, 1.0), "L1": (0.5, 0.0)}
ITERATIONS, QUICK_ITERATIONS, FEW = 150, 5, 300
OTHERS = ("l2sgd", "ap", "pa", "arow")  # CRFsuite's other algorithms, which minimise something else
TOLERANCE, MOST = 4e-4, 1000  # and iterations at most: those of `CRF`
SAME = 1e-6  # of an objective: CRFsuite's last digits


# ---- rows


def rows(context: Context) -> Iterator[dict]:
    for group, arguments in _settings():
        found = context.job("suite:crfsuite", "python-crfsuite", f"{group}, lbfgs", algorithm="lbfgs", **arguments)
        if not found:
            continue
        yield context.row("python-crfsuite", f"{group}, lbfgs", found)
        for threads in (2, 1):
            ending = {"objective": found["objective"], "score": _score(found)}
            mine = context.job("suite:fit", OURS, f"{group}, defaults", threads, ending=ending, **arguments)
            if mine:
                yield context.row(OURS, f"{group}, {mine['remark']}", mine)


def other_rows(context: Context) -> Iterator[dict]:
    """CRFsuite's other algorithms, by what they cost and how well they label."""
    for group, arguments in _settings():
        for algorithm in OTHERS if arguments["c2"] else ():
            setting = f"{group}, {algorithm}"
            found = context.job("suite:crfsuite", "python-crfsuite", setting, algorithm=algorithm, **arguments)
            if found:
                yield context.row("python-crfsuite", setting, found)


def _settings() -> Iterator[tuple[str, dict]]:
    for corpus in CORPORA:
        for size in ("small", "rich"):
            for name, (c1, c2) in PENALTIES.items():
                yield f"{corpus} {size} {name}", {"corpus": corpus, "size": size, "c1": c1, "c2": c2}


def _score(found: dict) -> float:
    """How well the test part is labelled: F1 where labels mark entities, else the share of right tokens."""
    return found["f1"] if found.get("f1") is not None else 1.0 - found["error"]


# ---- the data, for both sides


def templates_of(corpus: str, size: str) -> list[tuple[Place, ...]]:
    return [window for templates in CORPORA[corpus].templates for window in templates[size]]


def line_of(number: int, window: tuple[Place, ...]) -> str:
    """The window in our language of templates."""
    macros = {0: "%x[{},{}]", 1: "%p[{},{},{}]", -1: "%s[{},{},{}]"}
    return f"U{number}=" + "|".join(macros[np.sign(n)].format(row, column, abs(n)) for row, column, n in window)


def attributes(columns: tuple[list[str], ...], windows: list[tuple[Place, ...]]) -> list[list[str]]:
    """The attributes of each token as a user of CRFsuite would write them; beyond the edges as our templates do."""
    length = len(columns[0])

    def value(t: int, column: int, n: int) -> str:
        if t < 0 or t >= length:
            return f"_x{t}" if t < 0 else f"_x+{t - length + 1}"
        text = columns[column][t]
        return text[:n] if n > 0 else text[n:] if n < 0 else text

    named = [(f"{k}=", window) for k, window in enumerate(windows)]
    return [
        [name + "|".join([value(t + row, column, n) for row, column, n in window]) for name, window in named]
        for t in range(length)
    ]


def _of_test(corpus: Corpus, quick: bool, n):
    """Whether sequence n, a number or a column of them, is for the test; a quick run has no more than the first few."""
    return n >= corpus.first if corpus.first and not quick else n % (10 * corpus.every) == 0


def _files(data: str, corpus: Corpus) -> list[Path]:
    found = [Path(data) / name for name in corpus.files]
    for path in found:
        if not path.is_file():
            raise Skip(f"no {path}: name the folder of corpora with --data or ESPALIER_DATA")
    return found


def sentences(data: str, quick: bool, name: str) -> tuple[list, list]:
    """Train and test as a user of a peer reads them: (columns …, labels) of each sequence."""
    corpus = CORPORA[name]
    parts = [peers.read_text(path, quick) for path in _files(data, corpus)]
    if len(parts) == 1:
        taken = list(enumerate(parts[0]))[:: corpus.every]
        parts = [[s for n, s in taken if _of_test(corpus, quick, n) is wanted] for wanted in (False, True)]
    return parts[0], parts[1]


def problem_of(data: str, quick: bool, name: str, size: str) -> corpora.Problem:
    """The same by our own path: text, tokens, templates, integers."""
    corpus = CORPORA[name]
    tokens = [corpora.read(path, FEW if quick else None) for path in _files(data, corpus)]
    if len(tokens) == 1:
        place = pl.col("sequence")
        taken = tokens[0].filter(place % corpus.every == 0)
        test = _of_test(corpus, quick, place)
        tokens = [taken.filter(~test), taken.filter(test)]
    lines = [*(line_of(k, window) for k, window in enumerate(templates_of(name, size))), "B"]
    return corpora.make_problem(*tokens, lines)


def layout_of(problem: corpora.Problem) -> Layout:
    return seen_layout(problem.train, len(problem.labels), problem.kinds, start=False)


# ---- jobs


def crfsuite(data: str, quick: bool, corpus: str, size: str, c1: float, c2: float, algorithm: str) -> dict:
    """CRFsuite from the text file to its model, and how well that labels the test part."""
    module, windows = peers.load("pycrfsuite"), templates_of(corpus, size)
    own = {"lbfgs": {"c1": c1, "c2": c2}, "l2sgd": {"c2": c2}}.get(algorithm, {})
    limit = {} if algorithm != "lbfgs" and not quick else {
        "max_iterations": QUICK_ITERATIONS if quick else ITERATIONS
    }  # fmt: skip
    begin = time.perf_counter()
    train, test = sentences(data, quick, corpus)
    trainer = module.Trainer(algorithm, own | limit, verbose=False)
    for *columns, labels in train:
        trainer.append(attributes(columns, windows), labels)
    with peers.temporary_folder() as folder:
        path = f"{folder}/a.model"
        trainer.train(path)
        seconds = time.perf_counter() - begin
        tagger = module.Tagger()
        tagger.open(path)
        predicted = [label for *columns, _ in test for label in tagger.tag(attributes(columns, windows))]
    gold = [sentence[-1] for sentence in test]
    return {"seconds": seconds, "objective": trainer.logparser.last_iteration["loss"], **figures(gold, predicted)}


def figures(gold: list[list[str]], predicted: list[str]) -> dict:
    """Error of tokens, and F1 where labels mark entities."""
    from espalier.engine.labels import spans

    labels = [label for row in gold for label in row]
    found = {"error": float(np.mean([a != b for a, b in zip(labels, predicted, strict=True)]))}
    if spans.marks_entities(sorted(set(labels))):
        offsets = np.cumsum([0, *map(len, gold)])
        found["f1"] = spans.scores(labels, predicted, offsets)[0]["f1"]
    return found


def fit(data: str, quick: bool, corpus: str, size: str, c1: float, c2: float, ending: dict) -> dict:
    """Ours from the text file by the default solver to its default tolerance, and when it was where CRFsuite ended.

    The clock stands while the test part is labelled after each iteration.
    """
    penalty = ElasticNet(c1, 2.0 * c2)
    small = problem_of(data, True, corpus, size)
    ours.warm_up(small.train, layout_of(small), fitting("auto"), penalty)
    begin, paused, reached = time.perf_counter(), 0.0, {}
    problem = problem_of(data, quick, corpus, size)
    layout = layout_of(problem)

    def watch(record: dict, theta: np.ndarray) -> bool:
        nonlocal paused
        now = time.perf_counter()
        if record["objective"] <= ending["objective"] * (1.0 + SAME):
            reached.setdefault("seconds", now - begin - paused)
        if "seconds_to_score" not in reached and _score(_accuracy(problem, layout, theta)) >= ending["score"]:
            reached["seconds_to_score"] = now - begin - paused
        paused += time.perf_counter() - now
        return False

    result = minimise(
        "auto", ChainObjective(problem.train, layout), penalty, None, MOST, TOLERANCE, on_iteration=watch
    )
    whole = time.perf_counter() - begin - paused
    remark = f"{result.iterations} iterations in {whole:.2f} s"
    if "seconds" not in reached:
        remark += f"; stopped {result.objective / ending['objective'] - 1.0:.1e} above"
    return {"objective": float(result.objective), "active": int(np.count_nonzero(result.theta)), "remark": remark,
            **reached, **_accuracy(problem, layout, result.theta)}  # fmt: skip


def _accuracy(problem: corpora.Problem, layout: Layout, theta: np.ndarray) -> dict:
    found = ours.accuracy(problem, ours.decoded(problem, layout, theta))
    return {name: found[name] for name in ("error", "f1") if name in found}

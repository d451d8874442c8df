"""Hidden Markov models: a sweep of Baum-Welch beside hmmlearn's, and what labels give: text to model, tagging.

The sweep is on the words of the treebank sample without their tags, with 45 states and parameters drawn at random.
hmmlearn has no end state and no unknown words: here q(F | y) = 1, rows add up to one without it, and every state emits
every word. Both compute the same log-likelihood, which is checked.
"""

import gzip
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import corpora, peers
from benchmarks.cases import Context
from benchmarks.job import Skip
from benchmarks.rows import OURS
from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.families import hmm
from espalier.engine.families.hmm_options import HmmOptions
from espalier.engine.families.hmm_space import HmmAmounts, HmmSpace, make_space, maximised
from espalier.engine.families.hmm_training import HmmData
from espalier.engine.labels.measures import token_error
from espalier.tasks.answering import stream
from espalier.tasks.experiments.family_fits import Tokens, make_tokens
from espalier.tasks.experiments.problems import read

CORPUS, STATES = "treebank-sample/pos.conll.gz", 45
SAME = 1e-9  # of two log-likelihoods at the same parameters
REPEATS = 7
LINES = ["Uw:%x[0,0]", "Ut:%x[0,1]"]
SWEEP, COUNTED = "45 states, one sweep", "CoNLL-2000 by counts"
IMPLEMENTATIONS = ("log", "scaling")  # of hmmlearn; the first is its default


def rows(context: Context) -> Iterator[dict]:
    for threads in (2, 1):
        found = context.job("hmm:our_sweep", OURS, SWEEP, threads)
        if found:
            yield context.row(OURS, SWEEP, found)
    for name in IMPLEMENTATIONS:
        found = context.job("hmm:hmmlearn_sweep", "hmmlearn", f"{SWEEP}, {name}", implementation=name)
        if found:
            yield context.row("hmmlearn", f"{SWEEP}, {name}", found)
    for threads in (2, 1):
        found = context.job("hmm:counted", OURS, COUNTED, threads)
        for name in ("text to model", "tag ready features", "tag from text") if found else ():
            yield context.row(OURS, f"{COUNTED}, {name}", found | found[name])


def least_seconds(function: Callable, repeats: int = REPEATS) -> float:
    """The least of several calls, after one that is not counted."""
    function()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


# ---- sweeps


class Sequences(NamedTuple):
    """Words as numbers, and the parameters of a model of them."""

    words: np.ndarray  # int64 [T]
    lengths: np.ndarray
    start: np.ndarray  # [Y]
    transitions: np.ndarray  # [Y, Y]
    emissions: np.ndarray  # [Y, words]


def sequences(data: str, quick: bool) -> Sequences:
    path = Path(data) / CORPUS
    if not path.is_file():
        raise Skip(f"no {path}: name the folder of corpora with --data or ESPALIER_DATA")
    tokens = read(path, corpora.QUICK if quick else None)
    words = np.unique(tokens["x0"].to_numpy(), return_inverse=True)[1]
    lengths = np.bincount(tokens["sequence"].to_numpy())
    return drawn(words, lengths, STATES)


def drawn(words: np.ndarray, lengths: np.ndarray, states: int) -> Sequences:
    """Parameters drawn at random, rows that add up to one."""
    random = np.random.default_rng(0)
    shapes = states, (states, states), (states, int(words.max()) + 1)
    start, transitions, emissions = (random.uniform(0.5, 1.5, shape) for shape in shapes)
    return Sequences(
        words.astype(np.int64), lengths, start / start.sum(), transitions / transitions.sum(axis=1, keepdims=True),
        emissions / emissions.sum(axis=1, keepdims=True),
    )  # fmt: skip


def our_model(of: Sequences) -> tuple[HmmData, np.ndarray]:
    """The data without labels, and theta: every state emits every word, and ends with probability one."""
    states, data = len(of.start), _dataset(of)
    space = make_space(data, states, np.zeros(of.emissions.shape[1], int), np.array([True]), anywhere=True)
    none, nothing = np.ones(states), np.zeros((1, states))
    made = HmmAmounts(of.start, of.transitions, none, of.emissions.T.ravel(), nothing, nothing)
    return HmmData(space, data), space.theta(made)


def _dataset(of: Sequences) -> Dataset:
    unknown = np.full(len(of.words), -1)
    return make_dataset(of.words[:, None], unknown, np.append(0, np.cumsum(of.lengths)))


def our_sweep(data: str, quick: bool) -> dict:
    """Expectation and maximisation, up to the weights of the next sweep."""
    return swept(*our_model(sequences(data, quick)))


def swept(data: HmmData, theta: np.ndarray) -> dict:
    space: HmmSpace = data.space

    def sweep() -> np.ndarray:
        counts, _ = data.expected(theta)
        return space.theta(maximised(space, space.amounts(counts), 0.0, np.zeros((1, space.n_labels))))

    return {"seconds": least_seconds(sweep), "objective": -data.expected(theta)[1]}


def hmmlearn_model(of: Sequences, implementation: str):
    model = peers.load("hmmlearn.hmm").CategoricalHMM(
        len(of.start), init_params="", implementation=implementation, n_features=of.emissions.shape[1]
    )
    model.startprob_, model.transmat_, model.emissionprob_ = of.start, of.transitions, of.emissions
    return model


def hmmlearn_sweep(data: str, quick: bool, implementation: str) -> dict:
    """Its own steps of `fit`; an error when its log-likelihood is not ours."""
    of = sequences(data, quick)
    model, words = hmmlearn_model(of, implementation), of.words[:, None]
    likelihood = same_likelihood(of, model)

    def sweep() -> None:
        statistics, _ = model._do_estep(words, of.lengths)
        model._do_mstep(statistics)

    model._init(words, of.lengths)
    repeats = 1 if implementation == "log" else 3
    return {"seconds": least_seconds(sweep, repeats), "objective": -likelihood}


def same_likelihood(of: Sequences, model) -> float:
    theirs, (data, theta) = float(model.score(of.words[:, None], of.lengths)), our_model(of)
    mine = data.expected(theta)[1]
    if not np.isclose(mine, theirs, rtol=SAME, atol=0.0):
        raise ValueError(f"hmmlearn's log-likelihood is {theirs}, ours {mine}: expected the same model")
    return mine


# ---- from labels


def trained(path: Path, quick: bool) -> tuple[Tokens, hmm.HmmLabeller]:
    """From the text file to the model."""
    train = read(path, corpora.QUICK if quick else None)
    tokens = make_tokens(train, train.clear(), LINES)
    parts = tokens.train, tokens.observations, tokens.stream, tokens.labels, tokens.lines
    return tokens, hmm.fit(*parts, {}, HmmOptions())


def counted(data: str, quick: bool) -> dict:
    """Seconds from the text to the model, and tokens a second of its tagging."""
    train, test = corpora.paths(data, "conll2000")
    seconds = least_seconds(lambda: trained(train, quick), 3)
    _, model = trained(train, quick)
    shown = read(test, corpora.QUICK if quick else None)
    ready = make_tokens(read(train, corpora.QUICK if quick else None), shown, LINES)
    names = {text: x for x, text in enumerate(model.observations)}
    ids = np.array([*(names.get(text, -1) for text in ready.observations), -1], np.int32)
    dataset = ready.test._replace(observations=ids[ready.test.observations])
    error = token_error(ready.test.labels, model.best(dataset))
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "test.txt"
        with gzip.open(test, "rt", encoding="utf-8") as file:
            blocks = file.read().strip("\n").split("\n\n")
        blocks = blocks[: corpora.QUICK] if quick else blocks
        plain.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
        count = len(ready.test.labels)
        rates = {
            "tag ready features": count / least_seconds(lambda: model.best(dataset)),
            "tag from text": count / least_seconds(lambda: list(stream.tag_file(model, str(plain)))),
        }
    found = {name: {"tokens_per_second": rate, "error": error} for name, rate in rates.items()}
    return found | {"text to model": {"seconds": seconds}, "active": len(model.theta)}

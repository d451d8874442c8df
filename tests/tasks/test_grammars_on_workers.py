"""Estimation of grammars on Dask workers: the same bytes as in one process, also when a worker goes."""

import os
import signal

import numpy as np
import pytest
from stage_runs import run_stages
from test_cluster import needs_dask, nothing_left
from test_trees_in_the_pipeline import params_of
from tree_data import strings, trees

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.estimation import GrammarOptions, count, counter, prepared, summed
from espalier.engine.grammar.expected import pieces_of
from espalier.engine.grammar.generating import generate
from espalier.engine.grammar.rules import full_grammar
from espalier.engine.runtime import threads
from espalier.tasks import store, train
from espalier.tasks.cluster import grammars, worker
from espalier.tasks.progress import Progress

WAYS = {"inside-outside": {}, "viterbi": {"brackets": False}, "k-best": {"k": 3}}


class Heard(Progress):
    def __init__(self, after=None):
        super().__init__()
        self.said, self.after = [], after

    def say(self, text):
        self.said.append(text)

    def record(self, record):
        if self.after:
            self.after(record)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("trees")
    (root / "trees.mrg").write_text("\n".join([*trees(90), *strings(30)]))
    (root / "test.mrg").write_text("\n".join(trees(10, 7)))
    run_stages(root, params_of(test_path="test.mrg"), "ingest", "template", "weigh")
    return root


def result_of(root, progress=None, **options):
    found = train.main(root, params_of(test_path="test.mrg", **options), progress or Heard())
    return [(root / path).read_bytes() for path in (store.CANDIDATE, store.TRACE)], found


@pytest.fixture
def data():
    grammar = full_grammar(4, ["a", "b", "c"], 1)
    return grammar, prepared(generate(grammar, 300, 2, 20).strings, GrammarOptions("io", brackets=True))


@pytest.mark.parametrize("training", ["io", "vs", "kvs"])
def test_pieces_add_up_to_what_is_counted_at_once(data, training, tmp_path):
    grammar, strings_of = data
    strings_of = strings_of._replace(weights=np.random.default_rng(0).uniform(0.1, 2.0, strings_of.total))
    options = GrammarOptions(training, brackets=True, k=2)
    whole, one = count(grammar, strings_of, options), counter(grammar, strings_of, options)
    pieces = pieces_of(strings_of)
    assert len(pieces) > 10
    (tmp_path / "job.json").write_text('{"root": ".", "threads": 2}')
    for name, value in strings_of._asdict().items():
        np.save(tmp_path / f"{name}.npy", value)
    nameless = grammar._replace(symbols=[""] * 4, words=[""] * 3)
    try:
        parts = [part for lo, hi in ((0, 5), (5, len(pieces))) for part in
                 grammars.count_pieces(str(tmp_path), lo, hi, nameless, options)]  # fmt: skip
    finally:
        worker._held.clear()
        threads.set_threads(None)
    for found in (summed([one(*piece) for piece in pieces]), summed(parts)):
        assert [part.tobytes() for part in found] == [part.tobytes() for part in whole]


@needs_dask
@pytest.mark.long
@pytest.mark.parametrize("training", WAYS)
def test_workers_leave_the_same_bytes(project, training):
    options = {"training": training, "max_iterations": 3} | WAYS[training]
    alone, _ = result_of(project, **options)
    assert result_of(project, cluster="local:2", **options)[0] == alone
    assert nothing_left(project)


@needs_dask
def test_a_worker_that_goes_is_replaced_and_leaves_the_same_bytes(project, monkeypatch):
    options, pids = {"training": "inside-outside", "max_iterations": 4}, []
    alone, _ = result_of(project, **options)
    ask = grammars.Workers.ask

    def seen(self, *args, **kwargs):
        if not pids:
            pids.extend(self.client.run(os.getpid).values())
            os.kill(pids[0], signal.SIGKILL)
        return ask(self, *args, **kwargs)

    monkeypatch.setattr(grammars.Workers, "ask", seen)
    progress = Heard()
    assert result_of(project, progress, cluster="local:2", **options)[0] == alone
    assert len(pids) == 2 and any("is lost" in text for text in progress.said)


def test_counts_of_trees_are_made_here_and_steps_refuse_workers(project, tmp_path):
    (tmp_path / "trees.mrg").write_text("\n".join(trees(60)))
    run_stages(tmp_path, params_of(), "ingest", "template", "weigh")
    progress = Heard()
    train.main(tmp_path, params_of(cluster="local:2"), progress)
    assert "trees are counted in this process: it takes one look at them" in progress.said
    with pytest.raises(EspalierError, match="pcfg.stepwise renews the grammar behind each batch of strings, too small"):
        result_of(project, training="inside-outside", stepwise=True, cluster="local:2")

"""Hidden Markov support vector machines on Spanish named entities with words and spelling in a window of three.

The sentences are those of LABELSEQ 4.6: shorter than 60 tokens, with at least three labels of names, 3,000 drawn by a
seed. Time runs from features to a duality gap of 1 %, C = 1, by degree. No other program that we know of has kernels of
sequences, so it stands alone; tested on testb.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.cases import Context
from benchmarks.cases.boosting import FILES
from benchmarks.rows import OURS
from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.families import hmsvm
from espalier.engine.families.hmsvm_options import HmsvmOptions
from espalier.engine.families.hmsvm_training import fit_hmsvm
from espalier.engine.weights.layout import observation_kinds
from espalier.tasks.experiments.ner_losses import entities_of, scores

SENTENCES, QUICK = 3000, 30
SHORTER, NAMES, SEED = 60, 3, 1
ITERATIONS, FEW = 200, 3
READ = 300  # sentences of a quick run, before they are drawn


def rows(context: Context) -> Iterator[dict]:
    for degree in (1, 2, 3):
        setting = f"degree {degree}, 2 threads"
        found = context.job("hmsvm:trained", OURS, setting, 2, degree=degree)
        if found:
            yield context.row(OURS, setting, found)


def drawn(data: Dataset, outside: int, count: int) -> Dataset:
    """Sentences as the source takes them, in the order of the data."""
    lengths = np.diff(data.offsets)
    names = np.add.reduceat(data.labels != outside, data.offsets[:-1])
    known = np.flatnonzero((lengths < SHORTER) & (names >= NAMES))
    kept = np.sort(np.random.default_rng(SEED).permutation(known)[:count])
    positions = np.concatenate([np.arange(data.offsets[n], data.offsets[n + 1]) for n in kept.tolist()])
    offsets = np.append(0, np.cumsum(lengths[kept]))
    return make_dataset(data.observations[positions], data.labels[positions], offsets, data.weights[kept])


def trained(data: str, quick: bool, degree: int) -> dict:
    entities = entities_of("S3", READ if quick else None, *(Path(data) / "conll2002-esp" / name for name in FILES))
    kinds, count = observation_kinds(entities.observations), len(entities.labels)
    options = HmsvmOptions(degree, max_iterations=FEW if quick else ITERATIONS)
    outside = entities.labels.index("O")
    few = hmsvm.chain_of(drawn(entities.train, outside, 3), count, kinds, options)
    fit_hmsvm(few, options._replace(max_iterations=FEW))  # compiles
    begin = time.perf_counter()
    chain = hmsvm.chain_of(drawn(entities.train, outside, QUICK if quick else SENTENCES), count, kinds, options)
    found = fit_hmsvm(chain, options)
    seconds = time.perf_counter() - begin
    model = hmsvm.labeller_of(chain, found, options, entities.observations, entities.labels, [], {})
    own = {part: model.renumbered(getattr(entities, part), entities.observations) for part in ("dev", "test")}
    entities = entities._replace(**own)
    return {"seconds": seconds, "objective": found.objective, "f1": scores(entities, model, "viterbi")["dev_f1"],
            "active": len(model.support.row)}  # fmt: skip

"""Gaussian processes on 1,000 sentences of Spanish named entities, about 21,000 words: degree 2, dense and sparse.

No other program trains them that we know of, so it stands alone. Time runs from features to the model, by products
with features that are written out, by rows, and with a quarter of the rows; seconds are of the processor, since a busy
machine says nothing by others. Tested on testb.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.data.dataset import select
from espalier.engine.families import gp
from espalier.engine.families.gp_options import GpOptions
from espalier.engine.labels import spans
from espalier.engine.weights.layout import observation_kinds
from espalier.tasks.experiments.ner_losses import Entities, entities_of

SENTENCES, SHORTER = 1000, 38  # sentences of fewer than 38 words have 21 on average, as many as the source's
QUICK, FEW = 60, 2
FILES = ("esp.train.gz", "esp.testb.gz", "esp.testa.gz")
SETTINGS = {
    "dense, by features": GpOptions(products="features"), "dense, by rows": GpOptions(products="rows"),
    "sparse, 25 %": GpOptions(method="sparse", share=0.25), "dense, degree 1": GpOptions(degree=1),
    "dense, degree 3": GpOptions(degree=3),
}  # fmt: skip


def rows(context: Context) -> Iterator[dict]:
    for setting, options in SETTINGS.items():
        found = context.job("gp:trained", OURS, setting, 1, options=options._asdict())
        if found:
            yield context.row(OURS, setting, found)


def trained(data: str, quick: bool, options: dict) -> dict:
    entities = entities_of("S3", QUICK if quick else None, *(Path(data) / "conll2002-esp" / name for name in FILES))
    settings = GpOptions(**options)
    fitted(entities, 3, settings._replace(max_iterations=FEW))  # compiles
    begin = time.process_time()
    model = fitted(entities, SENTENCES, settings._replace(max_iterations=FEW) if quick else settings)
    seconds = time.process_time() - begin
    said = model.best(model.renumbered(entities.dev, entities.observations))
    judged, _ = spans.scores(entities.dev_labels, [entities.labels[y] for y in said], entities.dev.offsets)
    return {"seconds": seconds, "objective": model.info["objective"], "f1": judged["f1"]}


def fitted(entities: Entities, count: int, options: GpOptions) -> gp.GpLabeller:
    """The model of so many of the shorter sentences, drawn by chance."""
    shorter = np.flatnonzero(np.diff(entities.train.offsets) < SHORTER)
    drawn = np.sort(np.random.default_rng(0).permutation(shorter)[:count])
    data, names = select(entities.train, drawn), entities.observations
    return gp.fit(data, names, observation_kinds(names), entities.labels, [], {}, options)

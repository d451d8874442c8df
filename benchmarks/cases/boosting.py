"""Boosting on Spanish named entities with words and spelling in a window of three: 1,000 exact rounds.

No other program boosts sequences that we know of, so it stands alone. Time runs from features to the last round,
without looks at development data; tested on testb by the weights of the last round.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.families.boosting import BoostingLabeller
from espalier.engine.families.boosting_options import BOUNDS, BoostingOptions
from espalier.engine.families.boosting_training import fit
from espalier.engine.weights.layout import make_layout, observation_kinds
from espalier.tasks.experiments.ner_losses import entities_of, scores

ROUNDS, QUICK, FEW = 1000, 100, 100  # FEW: of the bounds by themselves
FILES = ("esp.train.gz", "esp.testb.gz", "esp.testa.gz")


def rows(context: Context) -> Iterator[dict]:
    for bound, threads in (("exact", 2), ("exact", 1), *((bound, 1) for bound in BOUNDS if bound != "exact")):
        rounds = FEW if bound != "exact" or context.quick else ROUNDS
        setting = f"{rounds:,} rounds, {bound}, {threads} threads"
        found = context.job("boosting:boosted", OURS, setting, threads, bound=bound, rounds=rounds)
        if found:
            yield context.row(OURS, setting, found)


def boosted(data: str, quick: bool, bound: str, rounds: int) -> dict:
    entities = entities_of("S3", QUICK if quick else None, *(Path(data) / "conll2002-esp" / name for name in FILES))
    layout = make_layout("seen", entities.train, len(entities.labels), observation_kinds(entities.observations))
    fit(entities.train, layout, BoostingOptions(bound, rounds=1))  # compiles
    begin = time.perf_counter()
    found = fit(entities.train, layout, BoostingOptions(bound, rounds=rounds))
    seconds = time.perf_counter() - begin
    model = BoostingLabeller(entities.labels, [], entities.observations, layout, found.theta, {})
    return {"seconds": seconds, "objective": found.objective, "f1": scores(entities, model, "viterbi")["dev_f1"]}

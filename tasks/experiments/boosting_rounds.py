"""Sequence AdaBoost on Spanish named entities (LABELSEQ tables 3.1 and 3.3): cells of `boosting-rounds`."""

import time
from pathlib import Path

from espalier.engine.families.boosting import BoostingLabeller, rounds_of
from espalier.engine.families.boosting_options import BoostingOptions
from espalier.engine.families.boosting_training import fit
from espalier.engine.labels.scheme import transitions_of
from espalier.engine.weights.layout import make_layout, observation_kinds
from espalier.tasks.experiments.ner_losses import SCHEME, entities_of, scores


def boosted(
    patterns: str, bound: str, examples: str, rounds: int, looks: int, pi: float, limit: int | None, train: Path,
    dev: Path, test: Path,
) -> dict:  # fmt: skip
    """The rounds of a training, and F1 after each `looks` of them."""
    data = entities_of(patterns, limit, train, dev, test)
    layout = make_layout("seen", data.train, len(data.labels), observation_kinds(data.observations))
    whole = examples == "sequences"
    transitions = transitions_of(data.labels, SCHEME) if whole else None
    rows, begin = [], time.perf_counter()

    def listen(record: dict, theta) -> None:
        nonlocal begin
        if record["iteration"] % looks or not record["iteration"]:
            return
        seconds = time.perf_counter() - begin
        model = BoostingLabeller(data.labels, [], data.observations, layout, theta, {"scheme": SCHEME})
        rows.append({"rounds": record["iteration"], "objective": record["objective"], "seconds": seconds,
                     "active": int((theta != 0.0).sum()), **scores(data, model, "viterbi")})  # fmt: skip
        begin = time.perf_counter()

    options = BoostingOptions(bound, examples, rounds, pi)
    found = fit(data.train, layout, options, listen=listen, transitions=transitions)
    made = rounds_of(found.trace, found.iterations, data.observations, data.labels)
    return {"rounds": made, "rows": rows, "stop_reason": found.stop_reason, "weights": int(layout.size),
            "sequences": len(data.train.weights), "tokens": len(data.train.labels),
            "objectives": [record["objective"] for record in found.trace]}  # fmt: skip

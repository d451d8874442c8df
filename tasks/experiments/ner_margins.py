"""Perceptrons on Spanish named entities with the features S1 to S3 (LABELSEQ table 2.2): cells of `ner-margins`."""

import time
from pathlib import Path

import numpy as np

from espalier.engine.families.labeller import Labeller
from espalier.engine.families.perceptron import DualPerceptronLabeller, PerceptronLabeller
from espalier.engine.families.perceptron_dual import DualTraining, chain_of
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import PerceptronTraining, learn
from espalier.engine.labels import spans
from espalier.engine.labels.scheme import transitions_of
from espalier.engine.weights.layout import make_layout, observation_kinds
from espalier.tasks.experiments.ner_losses import SCHEME, Entities, entities_of


def judged(data: Entities, model: Labeller) -> dict:
    """F1 on the development data; F1, precision and recall on the test data; of labellings within the scheme."""
    found, transitions = {}, transitions_of(data.labels, SCHEME)
    for part, gold, prefix in ((data.dev, data.dev_labels, "dev_"), (data.test, data.test_labels, "")):
        known = model.renumbered(part, data.observations)
        said = [data.labels[y] for y in model.best(known, transitions=transitions)]
        of_entities = spans.scores(gold, said, part.offsets)[0]
        found |= {prefix + name: of_entities[name] for name in ("precision", "recall", "f1")}
    return found


def training_of(data: Entities, options: PerceptronOptions):
    """(a training in the form that the options say, what gives the model of its weights)."""
    kinds = observation_kinds(data.observations)
    if options.degree is not None:
        chain = chain_of(data.train, len(data.labels), kinds, options, "seen", True)

        def of_rows(theta: np.ndarray) -> Labeller:
            return DualPerceptronLabeller.of_theta(chain, theta, data.observations, data.labels, [], {}, options)

        return DualTraining(chain, options), of_rows
    layout = make_layout("seen", data.train, len(data.labels), kinds)

    def of_weights(theta: np.ndarray) -> Labeller:
        return PerceptronLabeller.compact(layout, theta, data.observations, data.labels, [], {})

    return PerceptronTraining(data.train, layout, options), of_weights


def learned(
    patterns: str, options: dict, epochs: int, looks: int, limit: int | None, train: Path, dev: Path, test: Path
) -> dict:  # fmt: skip
    """A model after each `looks` epochs, and after the last one."""
    data = entities_of(patterns, limit, train, dev, test)
    training, model_of = training_of(data, PerceptronOptions(epochs=epochs, **options))
    rows, seconds, begin = [], 0.0, time.process_time()

    def listen(record: dict, theta: np.ndarray) -> None:
        nonlocal begin, seconds
        seconds += time.process_time() - begin
        last = record["mistakes"] == 0 or record["iteration"] == epochs
        if record["iteration"] and (last or record["iteration"] % looks == 0):
            model = model_of(theta)
            rows.append({"epoch": record["iteration"], "mistakes": record["mistakes"], "seconds": seconds,
                         "active": sum(model.sizes().values()), **judged(data, model)})  # fmt: skip
            seconds = 0.0
        begin = time.process_time()

    found = learn(training, listen)
    return {"rows": rows, "stop_reason": found.stop_reason, "sequences": len(data.train.weights),
            "tokens": len(data.train.labels), "weights": int(training.layout.size)}  # fmt: skip

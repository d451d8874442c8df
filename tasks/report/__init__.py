"""The report: one page that says how good a model is, where it fails, what it knows and where it came from.

`main` reads the artefacts; `render` and the modules of this package, one for each part of the page, are pure
functions from plain data to markup.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from engine import measures
from tasks import store
from tasks.page import capital, join, page, plural, section
from tasks.params import Params
from tasks.profile import section_body
from tasks.progress import Progress
from tasks.report import calibration, confusions, drift, entities, learning, mistakes, provenance, summary, weights
from tasks.report.phrases import Phrases
from tasks.report.words import Metrics, Nouns, Trace, tagged


class Inputs(NamedTuple):
    """Everything the page shows, as plain data."""

    metrics: Metrics
    trace: Trace
    predictions: pa.Table
    calibration: list[dict[str, Any]]
    weights: pa.Table
    metadata: dict[str, Any]
    manifest: dict[str, Any]
    profile: dict[str, Any]
    clusters: dict[str, Any]
    parameters: dict[str, dict[str, Any]]


def main(root: Path, params: Params, progress: Progress) -> dict[str, Any]:
    """Reads what the stages before left, writes the page."""
    progress.begin(2, "steps")
    inputs = read_inputs(root, params)
    progress.step(note="read")
    text = render(inputs)
    store.write_text(root / store.REPORT, text)
    progress.step(note="written")
    size = len(text.encode("utf-8"))
    progress.end(f"{size / 1000:.0f} kB")
    return {"bytes": size}


def read_inputs(root: Path, params: Params) -> Inputs:
    """Calibration comes from the predictions by the function that evaluate uses, so both say the same."""
    weights, metadata = store.read_arrow(root / store.CANDIDATE, {"weight": "double"})
    predictions, _ = store.read_arrow(root / store.PREDICTIONS, {"sequence": "int32", "confidence": "double"})
    gold, said, confidence = (predictions.column(n).to_pylist() for n in ("label", "predicted", "confidence"))
    correct = np.array([a == b for a, b in zip(gold, said, strict=True)])
    _, bins = measures.calibration(np.array(confidence), correct, params.evaluate.bins)
    metrics, trace = store.read_json(root / store.METRICS), store.read_jsonl(root / store.TRACE)
    manifest, clusters = store.read_manifest(root), store.read_json(root / store.CLUSTERS)
    profile = store.read_json(root / store.PROFILE)
    return Inputs(metrics, trace, predictions, bins, weights, metadata, manifest, profile, clusters, params.as_dict())


def render(inputs: Inputs) -> str:
    """The whole page; a part that has nothing to say returns None and is left out."""
    meta, manifest, settings = inputs.metadata, inputs.manifest, inputs.parameters
    nouns = Nouns(**(meta.get("nouns") or manifest.get("nouns") or {}))
    phrases = Phrases(meta.get("templates") or manifest.get("templates") or [], nouns)
    sequences, limits = tagged(inputs.predictions), settings.get("report", {})
    parts = (
        ("results", "Results", summary.results(inputs.metrics, nouns)),
        ("learning", "Learning curve", learning.learning(inputs.trace)),
        ("confusions", "Confusions", confusions.confusions(sequences, nouns)),
        ("calibration", "Calibration", calibration.calibration(inputs.calibration, inputs.metrics, nouns)),
        ("mistakes", "Worst mistakes", mistakes.mistakes(sequences, nouns, limits.get("mistakes", 20))),
        ("chunks", "Chunks", entities.chunks(inputs.metrics)),
        ("weights", "Largest weights", weights.weights(inputs.weights, phrases, nouns, limits.get("weights", 30))),
        ("data", "Data", section_body(inputs.profile) if inputs.profile else None),
        ("drift", "Drift", drift.drift(inputs.clusters, phrases, nouns)),
        ("provenance", "Where it came from", provenance.provenance(meta, manifest, settings)),
    )
    shown = [(key, title, body) for key, title, body in parts if body]
    title = f"{capital(plural(nouns.token))} → {plural(nouns.label)}"
    top, foot = summary.header(title, inputs.metrics, meta, nouns), provenance.footer(meta)
    contents = [(key, name) for key, name, _ in shown]
    body = join(section(*part) for part in shown)
    return page(f"{title}: training report", body, header_html=top, contents=contents, footer_html=foot)

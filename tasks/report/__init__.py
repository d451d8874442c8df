"""The report: one page that says how good a model is, where it fails, what it knows and where it came from.

`main` reads the artefacts; `render` and the modules of this package, one for each part of the page, are pure
functions from plain data to markup.
"""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from espalier.engine.errors import EspalierError
from espalier.engine.families import FAMILIES
from espalier.engine.families.labeller import Round, States
from espalier.engine.labels import measures
from espalier.tasks import store
from espalier.tasks.judging.slices import Rate, with_intervals
from espalier.tasks.keeping import history
from espalier.tasks.pages import path_page, picture
from espalier.tasks.pages.page import Html, capital, heading_of, join, page, plural, section
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.report import (
    abstention,
    calibration,
    confusions,
    drift,
    entities,
    glance,
    learning,
    likelihood,
    mistakes,
    provenance,
    rounds,
    second_looks,
    slices,
    states,
    summary,
    trees,
    weights,
)
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.record import Run, public_profile, read_run
from espalier.tasks.report.words import Metrics, Nouns, Trace, tagged
from espalier.tasks.sources.profile import section_body


class Inputs(NamedTuple):
    """Everything the page shows, as plain data."""

    metrics: Metrics
    trace: Trace
    predictions: pa.Table
    calibration: list[dict[str, Any]] | None  # None for a model without probabilities
    weights: pa.Table
    metadata: dict[str, Any]
    manifest: dict[str, Any]
    profile: dict[str, Any]
    clusters: dict[str, Any]
    parameters: dict[str, dict[str, Any]]
    calibration_error: Rate = Rate(None, None, None)
    window: int = 1  # tokens of an input whose frequency was counted
    run: Run = Run()
    path: str = ""  # section on the path of rho1
    history: str = ""  # section on earlier retrainings
    states: States | None = None  # of a model that has them
    rounds: tuple[Round, ...] = ()  # of a model that was made weight by weight


def main(
    root: Path, params: Params, progress: Progress, seconds: dict[str, float] | None = None
) -> dict[str, Any]:  # fmt: skip
    """Reads what the stages before left and what is on record of the run, writes the page.

    `seconds` are those of the steps of a run that is about to end, which no file holds yet.
    """
    progress.begin(2, "steps")
    inputs = read_inputs(root, params)
    if seconds:
        inputs = inputs._replace(run=inputs.run._replace(seconds=seconds))
    progress.step(note="read")
    text = render(inputs)
    store.write_text(root / store.REPORT, text)
    progress.step(note="written")
    size = len(text.encode("utf-8"))
    progress.end(f"{size / 1000:.0f} kB")
    return {"bytes": size}


def read_inputs(root: Path, params: Params) -> Inputs:
    """Calibration comes from the predictions by the functions that evaluate uses, so both say the same."""
    model = store.read_model(root / store.CANDIDATE)
    metadata = model.info | {"labels": model.labels, "templates": model.templates, "family": model.family}
    columns = {"sequence": "int32"} | ({"confidence": "double"} if "probability" in model.can else {})
    predictions, info = store.read_arrow(root / store.PREDICTIONS, columns)
    found = slices.SliceColumns(predictions)
    bins, error = None, Rate(None, None, None)
    if "probability" in model.can:
        _, bins = measures.calibration(found.confidence, ~found.wrong, params.evaluate.bins)
        bins, error = with_intervals(bins, found.confidence, ~found.wrong, found.offsets)
    metrics, trace = store.read_metrics(root), store.read_trace(root)
    manifest, clusters = store.read_manifest(root), store.read_clusters(root)
    profile = public_profile(store.read_profile(root))
    return Inputs(
        metrics, trace, predictions, bins, model.shown_table(), metadata, manifest, profile, clusters, params.as_dict(),
        error, info.get("window", 1), read_run(root, params), path_page.section(root), history.section(root),
        model.states(), tuple(model.rounds()),
    )  # fmt: skip


def render(inputs: Inputs) -> str:
    """The whole page; a part that has nothing to say returns None or the empty text and is left out."""
    m, meta, manifest, settings = inputs.metrics, inputs.metadata, inputs.manifest, inputs.parameters
    nouns = Nouns(**(meta.get("nouns") or manifest.get("nouns") or {}))
    templates = meta.get("templates") or manifest.get("templates") or []
    phrases, run = Phrases(templates, nouns), inputs.run
    sequences, limits = tagged(inputs.predictions), settings.get("report", {})
    with_trees = trees.sentences(inputs.predictions)
    wrong_labels = not with_trees or any(one.wrong() for one in sequences)
    shows = FAMILIES[meta.get("family") or "crf"].labeller.shows
    scores = confusions.label_scores(confusions.label_counts(sequences))
    found, error = {"profile": inputs.profile, "clusters": inputs.clusters}, inputs.calibration_error
    rules_of = trees.rules(inputs.weights, phrases, nouns, limits.get("weights", 30))
    parts = (
        ("glance", "At a glance", glance.glance(run, m, found, scores, error, nouns)),
        ("results", "Results", summary.results(m, nouns)),
        ("chunks", "Entities", entities.chunks(m)),
        ("brackets", "Brackets", trees.brackets(with_trees, m, nouns)),
        ("lengths", "By length", trees.lengths(with_trees, m, nouns)),
        ("trees", "Worst trees", trees.worst(with_trees, nouns, limits.get("mistakes", 20) // 2)),
        ("confusions", "Confusions",
         wrong_labels and (entities.confusions(m, sequences, nouns) or confusions.confusions(sequences, nouns))),
        ("slices", "Where the errors are",
         wrong_labels and slices.slices(slices.SliceColumns(inputs.predictions), inputs.window, m, nouns)),
        ("calibration", "Calibration", calibration.calibration(inputs.calibration, error, m, nouns)),
        ("abstention", "Abstention", abstention.abstention(m, nouns)),
        ("decoders", "Decoding", second_looks.decoders(m, nouns)),
        ("mistakes", "Worst mistakes",
         not with_trees and mistakes.mistakes(sequences, nouns, limits.get("mistakes", 20))),
        ("learning", "Learning curve", learning.learning(inputs.trace)),
        ("rounds", "Rounds", rounds.rounds(inputs.rounds, phrases)),
        inputs.path,
        ("weights", "Rules" if rules_of else weights.TITLES[shows],
         rules_of or weights.weights(inputs.weights, phrases, nouns, limits.get("weights", 30), shows)),
        ("states", "States", states.states(inputs.states, nouns)),
        ("picture", "Picture of the weights", not rules_of and picture_of(inputs.weights, templates, nouns, limits)),
        ("data", "Data", section_body(inputs.profile) if inputs.profile else None),
        ("drift", "Drift", join([drift.drift(inputs.clusters, phrases, nouns),
                                 likelihood.likelihood(m, sequences, nouns) or ""])),
        inputs.history,
        ("provenance", "Where it came from",
         provenance.provenance(meta, manifest, settings, run.environment, run.seconds)),
    )  # fmt: skip
    shown = [made for part in parts if (made := part if isinstance(part, str) else part[2] and section(*part))]
    title = f"{capital(plural(nouns.token))} → {'trees' if with_trees else plural(nouns.label)}"
    top = summary.header(title, glance.badge(run.decision, m, nouns), m, meta, nouns, run)
    contents = [heading for made in shown if (heading := heading_of(made))]
    body = join(map(Html, shown))
    name = f"{title}: training report" + (f" of {run.project}" if run.project else "")
    return page(name, body, header_html=top, contents=contents, footer_html=provenance.footer(meta))


def picture_of(model: pa.Table, templates: list[str], nouns: Nouns, limits: dict[str, Any]) -> Html | None:
    """The maps of the weights; nothing where there are none, or templates that this version cannot read."""
    if not model.num_rows or not limits.get("weights", 30):
        return None
    try:
        return picture.section_body(model, templates, nouns._asdict())
    except EspalierError:
        return None

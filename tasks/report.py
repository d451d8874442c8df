"""The report: one page that says how good a model is, where it fails, what it knows and where it came from.

`main` reads the artefacts; `render` and all below it are pure functions from plain data to markup.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from engine import measures
from engine import templates as language
from engine.errors import EspalierError
from engine.monitor import STOP_REASONS
from engine.sources import Source
from engine.templates import Macro
from tasks import charts, store
from tasks.page import (
    MISSING,
    Html,
    capital,
    card,
    cards,
    count,
    escape,
    facts,
    figure,
    join,
    lead,
    message,
    missing,
    number,
    page,
    percent,
    plural,
    section,
    short,
    table,
    tag,
)
from tasks.params import Params
from tasks.profile import section_body
from tasks.progress import Progress

HEAT_LABELS = {"wide": 25, "narrow": 13}  # labels in the heat map of a large screen and of a phone
CONFUSIONS, EXAMPLES = 15, 3
CONTEXT = 4  # tokens shown either side of a mistake in a long sequence
MISTAKE_TOKENS = 40  # of a longer sequence only the part around its worst mistake
WEIGHTS_PER_LABEL, WEIGHTS_IN_PAGE = 10, 1500  # of each sign; what the filter can find
CURVE_POINTS, CURVE_ROWS = 240, 20
STRIP = 12  # places either side that a strip of values shows
READINGS = 64  # ways to read one observation that are looked at
SOLVERS = {
    "lbfgs": "L-BFGS", "owlqn": "OWL-QN", "pqn": "proximal quasi-Newton",
    "hybrid": "stochastic gradient, then limited-memory quasi-Newton", "sbcd": "blockwise coordinate descent (SBCD)",
    "cd": "coordinate descent (CD)", "cg-fr": "conjugate gradient (Fletcher-Reeves)",
    "cg-pr": "conjugate gradient (Polak-Ribière+)", "iis": "improved iterative scaling (IIS)",
    "sgd": "stochastic gradient (SGD)",
}  # fmt: skip
NOT_SHOWN = {"promote", "memory", "train.threads"}  # what can change neither the model nor this page

Trace = list[dict[str, Any]]
Metrics = dict[str, Any]


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


class Nouns(NamedTuple):
    """What a token, a label and a sequence are called in this data."""

    token: str = "token"
    label: str = "label"
    sequence: str = "sequence"


class Tagged(NamedTuple):
    """One test sequence: a list for each column."""

    tokens: list[str]
    gold: list[str]
    said: list[str]
    confidence: list[float]
    gold_probability: list[float]

    def wrong(self) -> list[int]:
        return [t for t, (gold, said) in enumerate(zip(self.gold, self.said, strict=True)) if gold != said]


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
    nouns = Nouns(**(inputs.metadata.get("nouns") or inputs.manifest.get("nouns") or {}))
    phrases = Phrases(inputs.metadata.get("templates") or inputs.manifest.get("templates") or [], nouns)
    sequences, limits = tagged(inputs.predictions), inputs.parameters.get("report", {})
    parts = (
        ("results", "Results", results(inputs.metrics, nouns)),
        ("learning", "Learning curve", learning(inputs.trace)),
        ("confusions", "Confusions", confusions(sequences, nouns)),
        ("calibration", "Calibration", calibration(inputs.calibration, inputs.metrics, nouns)),
        ("mistakes", "Worst mistakes", mistakes(sequences, nouns, limits.get("mistakes", 20))),
        ("chunks", "Chunks", chunks(inputs.metrics)),
        ("weights", "Largest weights", weights(inputs.weights, phrases, nouns, limits.get("weights", 30))),
        ("data", "Data", section_body(inputs.profile) if inputs.profile else None),
        ("drift", "Drift", drift(inputs.clusters, phrases, nouns)),
        ("provenance", "Where it came from", provenance(inputs)),
    )
    shown = [(key, title, body) for key, title, body in parts if body]
    title = f"{capital(plural(nouns.token))} → {plural(nouns.label)}"
    top, foot = header(title, inputs, nouns), footer(inputs.metadata)
    contents = [(key, name) for key, name, _ in shown]
    body = join(section(*part) for part in shown)
    return page(f"{title}: training report", body, header_html=top, contents=contents, footer_html=foot)


# Header and headline numbers ------------------------------------------------------------------------


def header(title: str, inputs: Inputs, nouns: Nouns) -> Html:
    """What was trained, on what, and how it ended."""
    m, meta = inputs.metrics, inputs.metadata
    sizes = [count(m.get(f"{split}_sequences") or 0, nouns.sequence) for split in ("train", "test")]
    what = f"A sparse conditional random field, trained on {sizes[0]}, tested on {sizes[1]} it had not seen."
    end = stop_words(m.get("stop_reason") or meta.get("stop_reason"), m.get("iterations"))
    told = (
        ("Solver", SOLVERS.get(meta.get("solver"), meta.get("solver") or MISSING)),
        ("Penalty", penalty_words(meta.get("penalty") or {})),
        ("Data version", version(meta.get("data_version"))),
        ("Code version", version(meta.get("code_version"))),
    )
    eyebrow = tag("p", "Espalier training report", class_="eyebrow")
    return join([eyebrow, tag("h1", title), lead(f"{what} {end}"), facts(told)])


def stop_words(reason: str | None, iterations: int | None) -> str:
    """The stop reason as a sentence; one that we do not know is shown as it is."""
    after = f" after {count(iterations, 'iteration')}" if iterations is not None else ""
    why = STOP_REASONS.get(reason or "", (reason or "no reason was recorded").replace("_", " "))
    return f"Training stopped{after}: {why}."


def penalty_words(penalty: dict[str, float]) -> str:
    rho1, rho2 = penalty.get("rho1") or 0, penalty.get("rho2") or 0
    name = {(True, True): "elastic net", (True, False): "L1", (False, True): "L2"}.get((rho1 > 0, rho2 > 0))
    return f"{name}, ρ₁\u00a0=\u00a0{rho1:g}, ρ₂\u00a0=\u00a0{rho2:g}" if name else "none"


def version(value: Any) -> Html:
    return tag("code", short(value), title=str(value)) if value else escape(MISSING)


def results(m: Metrics, nouns: Nouns) -> Html:
    """The headline numbers."""
    always = (*error_cards(m, nouns), loss_card(m, nouns), active_card(m), size_card(m, nouns))
    return cards([*always, *quality_cards(m, nouns)])


def error_cards(m: Metrics, nouns: Nouns) -> Iterator[Html]:
    kinds = ((nouns.label, "token", nouns.token), (nouns.sequence, "sequence", nouns.sequence))
    for name, key, counted in kinds:
        rate, total = m.get(f"{key}_error"), m.get(f"test_{key}s") or 0
        note = None if rate is None else f"{number(round(rate * total))} of {count(total, counted)} wrong"
        yield card(f"{capital(name)} error", percent(rate), note)


def loss_card(m: Metrics, nouns: Nouns) -> Html:
    loss = m.get("log_loss")
    if missing(loss):
        return card("Log-loss", MISSING)
    mean = f"the right {nouns.label} got {percent(math.exp(-loss), 0)} in geometric mean"
    unknown = m.get("sequences_with_unknown_labels")
    left_out = f"{count(unknown, nouns.sequence)} with labels new to the model left out" if unknown else None
    return card("Log-loss", number(loss), f"nats per {nouns.token}", mean, left_out)


def active_card(m: Metrics) -> Html:
    parts = [(name, m.get(f"active_{name}") or 0) for name in ("unigram", "start", "bigram")]
    active, possible = sum(n for _, n in parts), m.get("features")
    share = f"of {number(possible)} possible ({percent(active / possible, 2)})" if possible else None
    bar = charts.share_bar([(style, n) for style, (_, n) in zip("acb", parts, strict=True)])
    words = ", ".join(f"{number(n)} {name}" for name, n in parts)
    return card("Active weights", number(active), share, bar, words, broad=True)


def size_card(m: Metrics, nouns: Nouns) -> Html:
    size = f"{plural(nouns.sequence)} of {count(m.get('train_tokens') or 0, nouns.token)}"
    choice = f"{count(m.get('labels') or 0, nouns.label)} to choose from"
    return card("Training size", number(m.get("train_sequences")), size, choice)


def quality_cards(m: Metrics, nouns: Nouns) -> Iterator[Html]:
    """What only some runs have: F1 of chunks, and what is lost against the truth or a reference."""
    if m.get("f1") is not None:
        notes = (f"precision {percent(m.get('precision'))}", f"recall {percent(m.get('recall'))}")
        yield card("F1 of chunks", percent(m["f1"]), *notes)
    if m.get("excess_log_loss") is not None:
        above = f"nats per {nouns.token} above the reference"
        yield card("Excess log-loss", number(m["excess_log_loss"]), above)
    if m.get("excess_risk") is not None:
        least = None if m.get("bayes_error") is None else f"Bayes error {percent(m['bayes_error'])}"
        above = f"nats per {nouns.sequence} above the best possible"
        yield card("Excess risk", number(m["excess_risk"]), above, least)


# Learning curve -------------------------------------------------------------------------------------


def learning(trace: Trace) -> Html:
    """Objective, development error, sparsity and distance to the optimum, iteration by iteration."""
    if not trace:
        return message("The trace is empty: the solver recorded no iteration.")
    trace = [row for row in trace if row["iteration"]] or trace  # 0 is where it started: all weights zero
    thinned = thin(trace, CURVE_POINTS)
    objective, norm = [("objective", "a", "objective")], [("norm", "a", "gradient_norm")]
    active = [("unigram", "a", "active_unigram"), ("bigram", "b", "active_bigram")]
    cost, far = "loss on the training data plus penalty", "distance from the conditions of an optimum"
    panels = (
        panel("objective", "Objective", thinned, objective, cost, write=lambda v: number(v, 6)),
        development_panel(thinned, trace),
        panel("sparsity", "Active weights", thinned, active, "weights that are not zero"),
        panel("gradient", "Gradient norm", thinned, norm, far),
    )
    opening = lead("What each iteration of the solver achieved. Point at a curve to read its values.")
    return join([opening, tag("div", *panels, class_="panels"), trace_table(trace)])


def thin(rows: list[Any], limit: int) -> list[Any]:
    """At most `limit` rows, evenly spaced, with the first and the last: a screen shows no more."""
    if len(rows) <= limit:
        return rows
    return [rows[round(i * (len(rows) - 1) / (limit - 1))] for i in range(limit)]


def column(rows: Iterable[dict[str, Any]], key: str) -> list[Any]:
    """A column of the trace, None where a figure is missing or not finite."""
    return [None if missing(row.get(key)) else row[key] for row in rows]


def panel(key: str, title: str, trace: Trace, lines: Sequence[tuple[str, str, str]], note: str, **options: Any) -> Html:
    """A chart of columns of the trace, (name, style, column) each; a sentence when they hold nothing."""
    series = [charts.Series(name, style, column(trace, source)) for name, style, source in lines]
    if all(v is None for s in series for v in s.values):
        return figure(title, message(f"This run recorded no {title.lower()}."))
    drawn = charts.line_chart(key, title, "Iteration", column(trace, "iteration"), series, **options)
    return figure(title, join([charts.line_legend(series) if len(series) > 1 else "", drawn]), note)


def development_panel(thinned: Trace, trace: Trace) -> Html:
    """The error on development data, its lowest point marked."""
    errors = zip(column(trace, "dev_token_error"), column(trace, "iteration"), strict=True)
    found = [(error, at) for error, at in errors if error is not None]
    low, at = min(found, default=(None, None))
    note = f"lowest {percent(low, 2)}" + (f" at iteration {number(at)}" if found else "")
    ways = {"write": lambda v: percent(v, 2), "tick": lambda v: f"{100 * v:g}%", "best": at}
    lines = [("error", "b", "dev_token_error")]
    return panel("development", "Development error", thinned, lines, note, **ways)


def trace_table(trace: Trace) -> Html:
    """The same figures to read, for those who cannot see the curves."""
    rows = [
        (number(row["iteration"]), number(row.get("objective"), 6), number(row.get("active_unigram")),
         number(row.get("active_bigram")), percent(row.get("dev_token_error"), 2))
        for row in thin(trace, CURVE_ROWS)
    ]  # fmt: skip
    headings = ("Iteration", "Objective", "Unigram", "Bigram", "Dev error")
    figures = table("Selected iterations", headings, rows, numeric=range(5))
    return tag("details", tag("summary", "The curves as a table"), figures)


# Confusions -----------------------------------------------------------------------------------------


def tagged(predictions: pa.Table) -> list[Tagged]:
    """Rows of the table gathered into sequences."""
    names = ("sequence", "x0", "label", "predicted", "confidence", "gold_probability")
    rows = zip(*(predictions.column(name).to_pylist() for name in names), strict=True)
    groups = (list(group) for _, group in groupby(rows, key=lambda row: row[0]))
    return [Tagged(*map(list, list(zip(*group, strict=True))[1:])) for group in groups]


def confusions(sequences: list[Tagged], nouns: Nouns) -> Html:
    """The picture and the table of what is taken for what."""
    if not sequences:
        return message("There are no predictions: the test data are empty.")
    counts = Counter(pair for s in sequences for pair in zip(s.gold, s.said, strict=True))
    errors = Counter({pair: n for pair, n in counts.items() if pair[0] != pair[1]})
    if not errors:
        return message(f"Every {nouns.token} of the test data got the right {nouns.label}.")
    total = f"{count(errors.total(), 'error')} in {count(counts.total(), nouns.token)}"
    maps = [tag("div", heat_figure(key, counts, errors, nouns), class_=key) for key in HEAT_LABELS]
    opening = lead(f"What is taken for what: {total}.")
    return join([opening, *maps, confusion_table(sequences, counts, errors, nouns)])


def heat_figure(key: str, counts: Counter, errors: Counter, nouns: Nouns) -> Html:
    """One map for large screens, a smaller one for phones, so that neither scrolls; the style sheet picks."""
    labels = neighbours(most_confused(errors, HEAT_LABELS[key]), errors)
    inside = sum(n for (gold, said), n in errors.items() if gold in labels and said in labels)
    share = percent(inside / errors.total(), 0)
    note = (
        f"the {len(labels)} {plural(nouns.label)} with most errors, {share} of all errors; "
        "a stronger colour is more often, right answers are grey"
    )
    names = f"right {nouns.label}", f"predicted {nouns.label}"
    drawn = charts.heat_map(f"heat-{key}", f"Confusion of {plural(nouns.label)}", labels, counts, *names)
    return figure(f"Most confused {plural(nouns.label)}", drawn, note)


def most_confused(errors: Counter, size: int) -> list[str]:
    """The labels that take part in most errors, on either side."""
    total: Counter = Counter()
    for (gold, said), n in errors.items():
        total.update({gold: n})
        total.update({said: n})
    return sorted(total, key=lambda label: (-total[label], label))[:size]


def neighbours(labels: list[str], errors: Counter) -> list[str]:
    """Each label followed by the one it is most confused with: errors then gather near the diagonal."""
    order, left = labels[:1], labels[1:]
    while left:
        shared = [errors[order[-1], other] + errors[other, order[-1]] for other in left]
        order.append(left.pop(shared.index(max(shared))))
    return order


def confusion_table(sequences: list[Tagged], counts: Counter, errors: Counter, nouns: Nouns) -> Html:
    top = sorted(errors, key=lambda pair: (-errors[pair], pair))[:CONFUSIONS]
    seen, golds = examples(sequences, top), Counter()
    for (gold, _), n in counts.items():
        golds[gold] += n
    rows = [
        (code(gold), code(said), number(n), percent(n / errors.total()), percent(n / golds[gold]),
         seen[gold, said])
        for (gold, said), n in ((pair, errors[pair]) for pair in top)
    ]  # fmt: skip
    headings = ("Right", "Predicted", "Count", "Of all errors", f"Of this {nouns.label}", "Seen in")
    caption = f"The {len(rows)} most frequent confusions"
    long = any(len(label) > 6 for pair in top for label in pair)  # no room for both and figures in one line
    return table(caption, headings, rows, (2, 3, 4), "confused long" if long else "confused")


def examples(sequences: list[Tagged], pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Html]:
    """Up to three different sequences for each confusion, with the place marked."""
    found: dict[tuple[str, str], list[Html]] = {pair: [] for pair in pairs}
    glue = "" if all(len(token) == 1 for s in sequences for token in s.tokens) else " "
    for s in sequences:
        for t in s.wrong():
            shown = found.get((s.gold[t], s.said[t]))
            if shown is None or len(shown) == EXAMPLES:
                continue
            if (text := spelled(s.tokens, t, glue)) not in shown:
                shown.append(text)
    return {pair: join(shown, "" if glue else ", ") for pair, shown in found.items()}


def spelled(tokens: list[str], at: int, glue: str) -> Html:
    """The sequence with one token marked; letters stand together, of words only those around it are shown."""
    low, high = (max(0, at - CONTEXT), at + CONTEXT + 1) if glue else (0, len(tokens))
    parts = [tag("mark", token) if t == at else token for t, token in enumerate(tokens[low:high], low)]
    before, behind = "… " if low else "", " …" if high < len(tokens) else ""
    return tag("span", before, join(parts, glue), behind, class_="sample apart" if glue else "sample")


def code(text: str) -> Html:
    return tag("code", text)


# Calibration ----------------------------------------------------------------------------------------


def calibration(bins: list[dict[str, Any]], m: Metrics, nouns: Nouns) -> Html:
    """Whether a stated 90 % is right nine times in ten."""
    filled = [b for b in bins if b.get("count")]
    if not filled:
        return message("There is no confidence to check: the test data are empty.")
    unit = plural(nouns.token)
    note = f"dots on the dashed line are honest; the bars count the {unit} of each bin"
    diagram = charts.reliability("reliability", "Reliability diagram", filled, unit)
    beside = tag("div", calibration_words(filled, m), bin_table(filled, unit))
    opening = lead("When the model states a confidence, how often is it right?")
    return join([opening, tag("div", figure("Reliability", diagram, note), beside, class_="split")])


def calibration_words(bins: list[dict[str, Any]], m: Metrics) -> Html:
    fullest = max(bins, key=lambda b: b["count"])
    stated, right = percent(fullest["confidence"]), percent(fullest["accuracy"])
    error = facts([("Expected calibration error", percent(m.get("calibration_error"), 2))], "facts one")
    meaning = "The mean distance between confidence and accuracy, each bin weighed by its size."
    case = f"Where the model states about {stated}, it is right {right} of the time."
    return join([error, tag("p", f"{meaning} {case}")])


def bin_table(bins: list[dict[str, Any]], unit: str) -> Html:
    names = (f"{percent(b['bin_low'], 0)}–{percent(b['bin_high'], 0)}" for b in bins)
    figures = ((percent(b["confidence"]), percent(b["accuracy"]), number(b["count"])) for b in bins)
    rows = [(name, *row) for name, row in zip(names, figures, strict=True)]
    return table("Bins of stated confidence", ("Bin", "Stated", "Right", capital(unit)), rows, (1, 2, 3))


# Worst mistakes -------------------------------------------------------------------------------------


def mistakes(sequences: list[Tagged], nouns: Nouns, limit: int) -> Html | None:
    """The errors that the model was surest of: its blind spots, and often errors of the data."""
    if not limit:
        return None
    if not sequences:
        return message("There are no predictions: the test data are empty.")
    worst = worst_sequences(sequences, limit)
    if not worst:
        return message(f"No {nouns.sequence} has a mistake.")
    opening = lead(
        f"The {count(len(worst), nouns.sequence)} in which the right {nouns.label} was thought least likely: "
        f"blind spots of the model, or errors in the data. Under each {nouns.token} stands its "
        f"{nouns.label}; in a coloured box the predicted one stands below it in bold."
    )
    return join([opening, tag("ol", *(mistake(s, nouns) for s in worst), class_="mistakes")])


def worst_sequences(sequences: list[Tagged], limit: int) -> list[Tagged]:
    """By the least probable right label of a wrong token; a product over tokens would find the longest."""
    wrong = [s for s in sequences if s.wrong()]
    return sorted(wrong, key=lambda s: min(s.gold_probability[t] for t in s.wrong()))[:limit]


def mistake(s: Tagged, nouns: Nouns) -> Html:
    """The sequence, or the part of it around its worst mistake, and that mistake in words."""
    at = min(s.wrong(), key=lambda t: s.gold_probability[t])
    low = max(0, min(at - MISTAKE_TOKENS // 2, len(s.tokens) - MISTAKE_TOKENS))
    high = min(len(s.tokens), low + MISTAKE_TOKENS)
    more = tag("span", "…", class_="gap")
    before, behind = more if low else "", more if high < len(s.tokens) else ""
    pieces = tag("div", before, *(gloss(s, t) for t in range(low, high)), behind, class_="glosses")
    said = tag("q", s.tokens[at]), " predicted ", code(s.said[at]), f" at {percent(s.confidence[at])}; "
    right = "right is ", code(s.gold[at]), f", given {odds(s.gold_probability[at])}"
    others = f"; {count(len(s.wrong()), 'error')} in this {nouns.sequence}" if len(s.wrong()) > 1 else ""
    return tag("li", pieces, tag("p", *said, *right, others))


def gloss(s: Tagged, t: int) -> Html:
    """A token over its right label; where that was missed, the predicted one below."""
    missed = s.gold[t] != s.said[t]
    said = tag("del", s.said[t], title="predicted") if missed else ""
    rows = tag("b", s.tokens[t]), tag("i", s.gold[t]), said
    return tag("span", *rows, class_="gloss wrong" if missed else "gloss")


def odds(probability: float) -> str:
    """`4.2%`, or `1 in 1,700,000` where a percentage would be all zeros."""
    if probability >= 0.01:
        return percent(probability)
    if probability < 1e-9:
        return "less than 1\u00a0in a billion" if probability > 0 else "no chance"
    return f"1\u00a0in\u00a0{number(int(float(f'{1 / probability:.2g}')))}"


# Chunks ---------------------------------------------------------------------------------------------


def chunks(m: Metrics) -> Html | None:
    """F1 per chunk type, where labels mark chunks."""
    if not m.get("chunks"):
        return None
    types = sorted(m["chunks"].items(), key=lambda item: (-item[1]["gold"], item[0]))
    rows = [
        (code(name), *(percent(c[key]) for key in ("precision", "recall", "f1")),
         charts.bars([("a", c["f1"])], 1), *(number(c[key]) for key in ("gold", "predicted", "correct")))
        for name, c in types
    ]  # fmt: skip
    headings = ("Type", "Precision", "Recall", "F1", "", "Gold", "Predicted", "Correct")
    shown = table("Precision, recall and F1 for each type", headings, rows, (1, 2, 3, 5, 6, 7), "chunks")
    return join([lead("A chunk counts as correct when its type and both its ends are right."), shown])


# Observations and weights in words ------------------------------------------------------------------

BOUNDARY = re.compile(r"_x([+-])(\d+)")
ANYTHING = "∗"


class Template(NamedTuple):
    """A template line cut at its macros: literals[0] spots[0] literals[1] …"""

    literals: tuple[str, ...]
    spots: tuple[Macro, ...]


def parse_template(line: str) -> Template | None:
    """None for a line that is no template of ours: its observations are then shown as they are."""
    try:
        (found,) = language.parse([line])
    except EspalierError:
        return None
    literals = [""]
    for part in found.parts:
        if isinstance(part, str):
            literals[-1] += part
        else:
            literals.append("")
    return Template(tuple(literals), tuple(found.macros))


def readings(literals: Sequence[str], text: str) -> Iterator[tuple[str, ...]]:
    """Every way in which `text` is the literals with something between them."""
    if not text.startswith(literals[0]):
        return
    rest = text[len(literals[0]) :]
    if len(literals) == 1:
        yield from [()] if not rest else []
        return
    for cut in range(1, len(rest) + 1):
        yield from ((rest[:cut], *following) for following in readings(literals[1:], rest[cut:]))


def reading(template: Template, observation: str) -> tuple[str, ...] | None:
    """The macros' values; None when the observation is not of this template or cannot be told apart.

    A value may hold a separator: of several readings the one whose longest value is shortest is taken, of two
    such neither.
    """
    ways = islice(readings(template.literals, observation), READINGS)
    found = sorted((max(map(len, values), default=0), values) for values in ways)
    alone = len(found) == 1 or (len(found) > 1 and found[0][0] < found[1][0])
    return found[0][1] if alone else None


class Phrases:
    """Says observations and weights in words, by the templates that made them."""

    def __init__(self, templates: Sequence[str], nouns: Nouns) -> None:
        self.templates = [t for t in dict.fromkeys(map(parse_template, templates)) if t]
        self.nouns = nouns

    def context(self, observation: str) -> str:
        """What was seen, the current position in brackets: `t·[h]`. Empty for a template without macros."""
        found = [(t.spots, v) for t in self.templates if (v := reading(t, observation)) is not None]
        if len(found) == 1:
            return context_words(*found[0])
        spots = [spot for spots, _ in found for spot in spots]
        alike = len({spot.source for spot in spots}) == 1 and {spot.origin for spot in spots} == {language.HERE}
        if alike and all(len(mine) == 1 for mine, _ in found):  # a bag: the same name at several places
            places = ", ".join(f"{spot.shift:+d}" if spot.shift else "0" for spot in spots)
            return f"{source_words(spots[0].source)}{boundary_words(found[0][1][0])} at {places}"
        return observation

    def weight(self, row: dict[str, Any]) -> str:
        """`t·[h] → TH`, `AH → N when letter n`, `AH → N`."""
        seen, target = self.context(row["observation"]), row["label"]
        if row["family"] == "unigram":
            return f"{seen or 'any ' + self.nouns.token} → {target}"
        source = row["previous"] if row["family"] == "bigram" else "⟨start⟩"
        return f"{source} → {target}" + (f" when {self.when(seen)}" if seen else "")

    def when(self, seen: str) -> str:
        """`letter n` where only the current token was looked at."""
        alone = seen.startswith("[") and seen.endswith("]") and "·" not in seen[2:-2]
        return f"{self.nouns.token} {seen[1:-1]}" if alone else seen


def context_words(spots: Sequence[Macro], values: Sequence[str]) -> str:
    """One strip for each source: values in order, the current one bracketed, ∗ for what was not looked at."""
    strips: dict[tuple[int, str], dict[int, str]] = {}
    fixed = []
    for spot, value in zip(spots, values, strict=True):
        heading = source_words(spot.source)
        if spot.origin == language.HERE and abs(spot.shift) <= STRIP:
            strips.setdefault((spot.source.column, heading), {})[spot.shift] = boundary_words(value)
        else:
            fixed.append(f"{place_words(spot)} {heading}{boundary_words(value)}")
    return ", ".join([*(heading + strip(seen) for (_, heading), seen in sorted(strips.items())), *fixed])


def source_words(source: Source) -> str:
    """What stands before a value: nothing for the first column as it is, else `col 1: `, `last 3 of col 1: `."""
    first = source.arguments[0] if source.arguments else None
    name = {
        "x": "", "t": f"does `{first}` match", "m": f"match of `{first}`", "p": f"first {first}", "s": f"last {first}",
        "w": "shape", "g": f"{first}-gram", "l": f"list {first}", "q": "bin",
    }[source.letter]  # fmt: skip
    name += " without case" if name and source.lower else "lower case" if source.lower else ""
    column = f"col {source.column}" if source.column else ""
    return f"{' of '.join(filter(None, [name, column]))}: " if name or column else ""


def place_words(spot: Macro) -> str:
    """`first` and `last` of the sequence, `3 after first`, `2 before last`; `at +20` for what is far away."""
    if spot.origin == language.HERE:
        return f"at {spot.shift:+d}"
    if spot.origin == language.FIRST:
        return "first" if spot.shift == 0 else f"{spot.shift} after first"
    return "last" if spot.shift == -1 else f"{-1 - spot.shift} before last"


def strip(seen: dict[int, str]) -> str:
    offsets = range(min(0, *seen), max(0, *seen) + 1)
    return "·".join(seen.get(at, ANYTHING) if at else f"[{seen.get(0, ANYTHING)}]" for at in offsets)


def boundary_words(value: str) -> str:
    """`_x-1` is the place before the first token, `_x+1` the one behind the last."""
    found = BOUNDARY.fullmatch(value)
    if not found:
        return value
    name, sign = ("start", "−") if found[1] == "-" else ("end", "+")
    return f"⟨{name}⟩" if found[2] == "1" else f"⟨{name}{sign}{int(found[2]) - 1}⟩"


# Largest weights ------------------------------------------------------------------------------------


def weights(model: pa.Table, phrases: Phrases, nouns: Nouns, limit: int) -> Html | None:
    """What the model learned, in words; the page holds the strongest of every label, the box filters them."""
    if not limit:
        return None
    if not model.num_rows:
        return message("All weights are zero: the penalty is too strong for these data; try a smaller rho1.")
    rows = model.select(["family", "observation", "previous", "label", "weight"]).to_pylist()
    most = max(abs(row["weight"]) for row in rows)
    sides = ((name, strongest(rows, sign, limit)) for name, sign in (("For", 1), ("Against", -1)))
    tables = (weight_table(name, chosen, most, phrases) for name, chosen in sides)
    opening = lead(
        f"What speaks for a {nouns.label} and what against it. The current {nouns.token} stands in brackets, "
        f"{ANYTHING} is any; in A → B the {nouns.label} B follows A."
    )
    box = label_filter(sorted({row["label"] for row in rows}), nouns)
    return join([opening, box, tag("div", *tables, class_="panels")])


def strongest(rows: list[dict[str, Any]], sign: int, limit: int) -> list[tuple[dict[str, Any], bool]]:
    """Weights of one sign by size: the first `limit` (True), for the filter some of each label (False)."""
    mine = [row for row in rows if sign * row["weight"] > 0]
    mine.sort(key=lambda r: (-abs(r["weight"]), r["observation"], r["previous"] or "", r["label"]))
    quota = min(WEIGHTS_PER_LABEL, max(1, WEIGHTS_IN_PAGE // max(1, len({r["label"] for r in mine}))))
    taken, chosen = Counter(), []
    for rank, row in enumerate(mine):
        taken[row["label"]] += 1
        if rank < limit or taken[row["label"]] <= quota:
            chosen.append((row, rank < limit))
    return chosen[: max(limit, WEIGHTS_IN_PAGE)]


def weight_table(name: str, chosen: list[tuple[dict[str, Any], bool]], most: float, phrases: Phrases) -> Html:
    if not chosen:
        return tag("div", message(f"No weight speaks {name.lower()} a label."))
    heads = tag("th", "In words", scope="col"), tag("th", "Weight", scope="col", colspan=2, class_="num")
    body = (weight_row(row, shown, most, phrases) for row, shown in chosen)
    return tag("table", tag("caption", name), tag("thead", tag("tr", *heads)), tag("tbody", *body))


def weight_row(row: dict[str, Any], shown: bool, most: float, phrases: Phrases) -> Html:
    bar = charts.bars([("a" if row["weight"] > 0 else "b", abs(row["weight"]))], most)
    words = tag("th", phrases.weight(row), scope="row", class_="phrase")
    cells = tag("td", bar, class_="bar-cell"), tag("td", number(row["weight"]), class_="num")
    return tag("tr", words, *cells, data_label=row["label"], data_top=shown, hidden=not shown)


def label_filter(labels: list[str], nouns: Nouns) -> Html:
    """The box; hidden until the script that makes it work has run."""
    name = tag("label", f"Show one {nouns.label}", for_="label-filter")
    hint = {"placeholder": f"all {plural(nouns.label)}", "autocomplete": "off", "spellcheck": "false"}
    box = tag("input", type="search", id="label-filter", list="labels", **hint)
    known = tag("datalist", *(tag("option", value=label) for label in labels), id="labels")
    return tag("div", name, box, known, tag("output", for_="label-filter"), class_="filter", hidden=True)


# Drift ----------------------------------------------------------------------------------------------


def drift(found: dict[str, Any], phrases: Phrases, nouns: Nouns) -> Html:
    """Whether the unlabelled pool looks like the labelled data."""
    groups = found.get("clusters") or []
    if not groups:
        return message(f"No unlabelled pool was compared: every {nouns.sequence} counts the same.")
    opening = lead(
        f"Labelled and unlabelled {plural(nouns.sequence)}, grouped by what they contain. "
        "A group that is more frequent in the pool than in the labelled data has a weight above 1."
    )
    most = max(max(g["labelled_share"], g["pool_share"]) for g in groups)
    rows = [cluster_row(g, most, phrases) for g in groups]
    headings = ("Group", "Share", "Labelled", "Pool", "Weight", "Typical", "Such as")
    legend = charts.bar_legend([("a", "labelled"), ("b", "pool")])
    shares = table("Share of each group", headings, rows, numeric=(2, 3, 4), class_="drift")
    return join([opening, drift_cards(found, nouns), legend, shares])


def drift_cards(found: dict[str, Any], nouns: Nouns) -> Html:
    alike = "bits: 0 when both are alike, 1 when they share nothing"
    if found.get("drifted"):
        alike = f"bits, above the limit of {found['drift_limit']:g}: the pool has drifted"
    of = f"of {count(found.get('sequences') or 0, nouns.sequence)}, after weighing"
    shown = [
        card("Jensen-Shannon divergence", number(found.get("jensen_shannon"), 2), alike),
        card("Effective sample size", number(found.get("effective_sample_size"), 4), of),
    ]
    if out := found.get("pool_without_label_share"):
        shown.append(card("Pool without labels", percent(out), "in groups without a labelled example"))
    return cards(shown)


def cluster_row(g: dict[str, Any], most: float, phrases: Phrases) -> tuple[Any, ...]:
    seen = (tag("span", phrases.context(o) or o, class_="chip") for o in g.get("typical", []))
    pair = charts.bars([("a", g["labelled_share"]), ("b", g["pool_share"])], most)
    figures = percent(g["labelled_share"]), percent(g["pool_share"]), number(g.get("weight"))
    return number(g["cluster"]), pair, *figures, join(seen, " "), ", ".join(g.get("examples", []))


# Provenance -----------------------------------------------------------------------------------------


def provenance(inputs: Inputs) -> Html:
    """Versions and parameters: what it takes to train this model again."""
    meta, manifest = inputs.metadata, inputs.manifest
    versions = (
        ("Data version", code(meta.get("data_version") or manifest.get("data_version") or MISSING)),
        ("Code version", code(meta.get("code_version") or MISSING)),
        ("Vocabulary", code(manifest.get("vocabulary_sha256") or MISSING)),
    )
    lines = "\n".join(meta.get("templates") or manifest.get("templates") or [])
    opening = lead("The same data, code and parameters give the same model, byte for byte.")
    templates = tag("h3", "Templates"), tag("pre", lines)
    settings = tag("h3", "Parameters"), parameters(inputs.parameters)
    return join([opening, facts(versions, "facts long"), *templates, *settings])


def parameters(sections: dict[str, dict[str, Any]]) -> Html:
    """All that can have shaped the model and this page, section by section."""
    blocks = []
    for name, values in sections.items():
        kept = ((key, value) for key, value in values.items() if not NOT_SHOWN & {name, f"{name}.{key}"})
        shown = [(key, plain(value)) for key, value in kept]
        if shown:
            blocks.append(tag("div", tag("h4", name), facts(shown, "parameters")))
    return tag("div", *blocks, class_="sections") if blocks else message("No parameters were recorded.")


def plain(value: Any) -> Html:
    """A parameter as a person would write it; a long list by its length."""
    if isinstance(value, list | tuple):
        return join(map(plain, value), ", ") if len(value) <= 3 else escape(f"{len(value)} entries")
    if value is None or isinstance(value, bool):
        return code({True: "yes", False: "no", None: "not set"}[value])
    return code(f"{value:g}" if isinstance(value, float) else str(value))


def footer(meta: dict[str, Any]) -> Html:
    versions = f"Data {short(meta.get('data_version'))}, code {short(meta.get('code_version'))}."
    alone = "This page stands alone: it loads nothing and works offline."
    return tag("p", f"Espalier training report. {versions} {alone}")

"""The head of the report: what was trained, how it ended, and the headline numbers."""

import math
from collections.abc import Iterator
from typing import Any

from espalier.engine.families import FAMILIES
from espalier.engine.families.boosting_options import BOUNDS, EXAMPLES
from espalier.engine.families.perceptron_options import LEADS, UPDATES
from espalier.engine.labels.measures import BRACKET_F1, EDIT_ERROR
from espalier.engine.losses.loss_table import LOSSES
from espalier.engine.optimise.monitor import STOP_REASONS
from espalier.engine.optimise.solver_table import SOLVERS
from espalier.tasks.judging import headline
from espalier.tasks.pages import charts
from espalier.tasks.pages.page import (
    MISSING,
    Html,
    capital,
    card,
    cards,
    count,
    escape,
    facts,
    join,
    lead,
    missing,
    number,
    percent,
    plural,
    short,
    tag,
    when,
)
from espalier.tasks.report.record import Run
from espalier.tasks.report.second_looks import newness
from espalier.tasks.report.words import Metrics, Nouns
from espalier.tasks.shapes import active_of


def header(title: str, badge: Html, m: Metrics, meta: dict[str, Any], nouns: Nouns, run: Run) -> Html:
    """What was trained, what became of it, on what, and how it ended; whose run it was, and when."""
    sizes = [count(m.get(f"{split}_sequences") or 0, nouns.sequence) for split in ("train", "test")]
    called = FAMILIES[meta.get("family") or "crf"].called
    what = f"A {called}, trained on {sizes[0]}, tested on {sizes[1]} {newness(m, nouns)}"
    reason = m.get("stop_reason") or meta.get("stop_reason")
    end = stop_words(reason, m.get("iterations"), m.get("path_iterations"), m.get("best_iteration"))
    versions = ((f"{name.capitalize()} version", version(meta.get(f"{name}_version"))) for name in ("data", "code"))
    told = (*run_words(run), *versions, *how_words(meta))
    eyebrow = tag("p", "Espalier training report", class_="eyebrow")
    return join([eyebrow, tag("h1", title), badge, lead(f"{what} {end}"), facts(told)])


def run_words(run: Run) -> Iterator[tuple[str, Any]]:
    """Whose run it was, and when; what is not known is left out."""
    if run.project:
        yield "Project", run.project
    if run.time:
        yield "When (UTC)", when(run.time)
    if run.name:
        yield "Run", tag("code", run.name)


def how_words(meta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How it was trained, as its family tells it."""
    if "horizontal" in meta:
        yield from grammar_words(meta)
        return
    if "smoothing" in meta:
        yield "Estimated from", "relative counts"
        yield "Added to each", f"{meta['smoothing']:g}"
        return
    if "update" in meta:
        yield "Learnt from mistakes", f"{UPDATES.get(meta['update'], meta['update'])}"
        yield "Margin", LEADS.get(meta.get("lead"), MISSING)
        if "degree" in meta:
            yield "Kernel of rows", f"(attributes in common + 1) to the power of {number(meta['degree'])}"
        return
    if "bound" in meta:
        yield "Boosted by", f"{BOUNDS.get(meta['bound'], meta['bound'])}"
        yield "Examples", f"{EXAMPLES.get(meta.get('examples'), MISSING)}"
        return
    if meta.get("loss"):
        yield "Loss", loss_words(meta)
    yield "Solver", SOLVERS[meta["solver"]].title if meta.get("solver") in SOLVERS else meta.get("solver") or MISSING
    yield "Penalty", penalty_words(meta.get("penalty") or {})


def grammar_words(meta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How a grammar was estimated, and what its labels remember."""
    brackets = " within brackets" if meta.get("brackets") and meta.get("training") != "counts" else ""
    yield "Estimated by", f"{meta.get('training', MISSING)}{brackets}"
    if meta.get("symbols"):
        yield "Symbols", f"{number(meta['symbols'])}, begun by chance"
        return
    yield "Labels remember", f"{number(meta.get('vertical'))} up, {number(meta.get('horizontal'))} before"
    yield "Made binary", f"to the {meta.get('binarise', MISSING)}"


def loss_words(meta: dict[str, Any]) -> str:
    """The loss that was minimised, where it is not the log loss; one that we do not know is shown as it is."""
    name, pi = str(meta["loss"]), meta.get("pi", 1)
    length = f", π\u00a0=\u00a0{pi:g}" if isinstance(pi, int | float) and pi != 1 else ""
    return (LOSSES[name].title if name in LOSSES else name) + length


def stop_words(reason: str | None, iterations: int | None, searched: int | None = None, best: int | None = None) -> str:
    """The stop reason as a sentence; one that we do not know is shown as it is. `searched`: iterations of a search for
    the penalties before it; `best`: the iteration whose model was kept, where the development data chose it."""
    after = f" after {count(iterations, 'iteration')}" if iterations is not None else ""
    after += f", and {number(searched)} in the search for the penalties before" if searched else ""
    if reason == "counted":
        return f"{capital(STOP_REASONS[reason])}."
    why = STOP_REASONS.get(reason or "", (reason or "no reason was recorded").replace("_", " "))
    kept = "" if best is None else f" The model is that of iteration {number(best)}, the best on the development data."
    return f"Training stopped{after}: {why}.{kept}"


def penalty_words(penalty: dict[str, float]) -> str:
    rho1, rho2 = penalty.get("rho1") or 0, penalty.get("rho2") or 0
    name = {(True, True): "elastic net", (True, False): "L1", (False, True): "L2"}.get((rho1 > 0, rho2 > 0))
    return f"{name}, ρ₁\u00a0=\u00a0{rho1:g}, ρ₂\u00a0=\u00a0{rho2:g}" if name else "none"


def version(value: Any) -> Html:
    return tag("code", short(value), title=str(value)) if value else escape(MISSING)


def results(m: Metrics, nouns: Nouns) -> Html:
    """The headline numbers."""
    loss = [] if missing(m.get("log_loss")) else [loss_card(m, nouns)]
    always = (*error_cards(m, nouns), *loss, active_card(m), size_card(m, nouns))
    return cards([*always, *quality_cards(m, nouns)])


def error_cards(m: Metrics, nouns: Nouns) -> Iterator[Html]:
    """What the task is judged by first, with its interval; errors of tokens and sequences beside it."""
    measure = headline.measure_in(m)
    called, between = nouns.called(measure), headline.between(m, measure)
    if measure == headline.ENTITIES:
        parts = f"precision {percent(m.get('precision'))}, recall {percent(m.get('recall'))}"
        yield card(capital(called[measure]), percent(m.get(measure)), parts, between)
    elif measure == BRACKET_F1:
        b = m.get("brackets") or {}
        parts = f"precision {percent(b.get('labelled_precision'))}, recall {percent(b.get('labelled_recall'))}"
        yield card(capital(called[measure]), percent(m.get(measure)), parts, between)
        yield card("Exact trees", percent(b.get("exact_share")), f"all brackets of a {nouns.sequence} right")
    elif measure == EDIT_ERROR:
        meaning = f"edits for each {nouns.label} that is right"
        yield card(capital(called[measure]), percent(m.get(measure)), meaning, between)
    for key, counted in (("token", nouns.token), ("sequence", nouns.sequence)):
        if key == "sequence" and measure == BRACKET_F1:
            continue
        rate, total = m.get(f"{key}_error"), m.get(f"test_{key}s") or 0
        note = None if rate is None else f"{number(round(rate * total))} of {count(total, counted)} wrong"
        yield card(capital(called[f"{key}_error"]), percent(rate), note, between if f"{key}_error" == measure else None)


def loss_card(m: Metrics, nouns: Nouns) -> Html:
    loss = m["log_loss"]
    mean = f"the right {nouns.label} got {percent(math.exp(-loss), 0)} in geometric mean"
    unknown = m.get("sequences_with_unknown_labels")
    left_out = f"{count(unknown, nouns.sequence)} with labels new to the model left out" if unknown else None
    return card("Log-loss", number(loss), f"nats per {nouns.token}", mean, left_out)


def active_card(m: Metrics) -> Html:
    parts = list(active_of(m).items())
    active, possible = sum(n for _, n in parts), m.get("features")
    share = f"of {number(possible)} possible ({percent(active / possible, 2)})" if possible else None
    bar = charts.share_bar([(style, n) for style, (_, n) in zip("acbd", parts, strict=False)])
    words = ", ".join(f"{number(n)} {name}" for name, n in parts)
    name = "Rules" if "active_binary" in m else "Active weights"
    return card(name, number(active), share, bar, words, broad=True)


def size_card(m: Metrics, nouns: Nouns) -> Html:
    size = f"{plural(nouns.sequence)} of {count(m.get('train_tokens') or 0, nouns.token)}"
    labels = m.get("labels") or 0
    choice = f"{count(labels, nouns.label)} to choose from"
    if "brackets" in m:
        choice = f"{count(labels, 'label')} of brackets and {plural(nouns.token)}"
    return card("Training size", number(m.get("train_sequences")), size, choice)


def quality_cards(m: Metrics, nouns: Nouns) -> Iterator[Html]:
    """What only some runs have: perplexity, what is lost against the truth or a reference."""
    if m.get("perplexity") is not None:
        yield card("Perplexity", number(m["perplexity"]), f"of the {plural(nouns.token)} of the test data")
    if m.get("excess_log_loss") is not None:
        above = f"nats per {nouns.token} above the reference"
        yield card("Excess log-loss", number(m["excess_log_loss"]), above)
    if m.get("excess_risk") is not None:
        least = None if m.get("bayes_error") is None else f"Bayes error {percent(m['bayes_error'])}"
        above = f"nats per {nouns.sequence} above the best possible"
        yield card("Excess risk", number(m["excess_risk"]), above, least)

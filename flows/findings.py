"""What the dashboard shows of a run: short texts and tables, made from figures and files alone."""

from collections.abc import Iterable
from pathlib import Path

from engine.model import Model
from engine.monitor import STOP_REASONS
from tasks import profile, store

# Name in metrics.json, text ({label}, {token}, {sequence} are the data's own nouns), format.
MEASURES = (
    ("token_error", "{label} error", "{:.2%}"),
    ("sequence_error", "{sequence} error", "{:.2%}"),
    ("precision", "precision of chunks", "{:.2%}"),
    ("recall", "recall of chunks", "{:.2%}"),
    ("f1", "F1 of chunks", "{:.2%}"),
    ("log_loss", "log-loss, nats per {token}", "{:.4f}"),
    ("sequence_log_loss", "log-loss, nats per {sequence}", "{:.4f}"),
    ("excess_log_loss", "excess over the reference, nats per {token}", "{:+.4f}"),
    ("excess_risk", "excess risk, exact, nats per {sequence}", "{:.4f}"),
    ("calibration_error", "calibration error", "{:.2%}"),
    ("active", "active weights", "{:,}"),
    ("features", "possible weights", "{:,}"),
    ("objective", "objective", "{:,.2f}"),
    ("iterations", "iterations", "{:,}"),
    ("stop_reason", "why training stopped", "{}"),
    ("train_sequences", "{sequence}s trained on", "{:,}"),
    ("test_sequences", "{sequence}s tested on", "{:,}"),
)
HEADLINES = 3
MOST_ITERATIONS = 100  # rows of a table of iterations
SHOWN_LABELS = 20  # new labels that are named
# Of little use in a log, or too long for one.
UNSAID = {"time", "forced", "model_sha256", "data_version", "id", "kind", "test_version", "labels", "cases", "drift",
          "reasons", "warnings", "labels_compared", "by", "why"}  # fmt: skip
ACTIVE = ("active_unigram", "active_start", "active_bigram")


def line(figures: dict) -> str:
    """The figures of a step in one line of a log."""
    said = {name: value for name, value in figures.items() if value is not None and name not in UNSAID}
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in said.items())


def _plain(value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def profile_table(root: Path) -> list[dict[str, str]]:
    """What the data hold and what in them looks wrong."""
    return profile.rows(store.read_json(root / store.PROFILE))


def metrics_table(root: Path, champion: dict | None = None) -> list[dict[str, str]]:
    """Rows of measure and value, in the order of MEASURES; with the champion's metrics a column more."""
    metrics, nouns = _readable(store.read_json(root / store.METRICS)), store.read_manifest(root)["nouns"]
    other = _readable(champion) if champion else {}
    rows = []
    for name, text, form in MEASURES:
        if metrics.get(name) is not None:
            row = {"measure": text.format(**nouns), "value": form.format(metrics[name])}
            known = other.get(name) is not None
            rows.append(row | ({"champion": form.format(other[name]) if known else ""} if champion else {}))
    return rows


def _readable(metrics: dict) -> dict:
    total = {"active": sum(metrics[name] for name in ACTIVE)}
    return metrics | total | {"stop_reason": STOP_REASONS[metrics["stop_reason"]]}


def champion_metrics(root: Path) -> dict:
    """The champion on the test data of now, by its own features; what cannot be compared is not among them."""
    from engine import decode
    from tasks import evaluate

    model, (tokens, _) = Model.load(root / store.CHAMPION), store.read_tokens(root, "test")
    data, gold = evaluate.labelled(model, tokens), tokens["label"].to_list()
    said = [model.labels[y] for y in decode.viterbi(data, model.layout, model.theta)]
    found = evaluate.error_figures(gold, said, data.offsets) | evaluate.model_figures(model)
    found |= {"test_sequences": len(data.weights)}
    if data.labels.min(initial=0) >= 0:  # a label that it does not know has no probability
        loss = -float(decode.sequence_log_probability(data, model.layout, model.theta).sum())
        found |= {"log_loss": loss / len(data.labels), "sequence_log_loss": loss / len(data.weights)}
    return found


def news_table(found: dict) -> list[dict[str, str]]:
    """What is new since the champion, as rows of what, how many, and which."""
    rows = []
    for name, value in found.items():
        if not name.endswith("version"):
            names = ", ".join(value[:SHOWN_LABELS]) if isinstance(value, list) else ""
            count = len(value) if isinstance(value, list) else value
            rows.append({"what": name.replace("_", " "), "how many": "not known" if count is None else f"{count:,}",
                         "which": names})  # fmt: skip
    return rows


def plan_table(figures: dict) -> list[dict[str, str]]:
    """What a training will take, as rows."""
    virtual, needed, seconds = figures["virtual_features"], figures["bytes"], figures["seconds_per_iteration"]
    most = "" if figures["exact"] else "at most "
    parts = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in needed.items() if name != "all")
    rows = (
        ("training data", f"{figures['sequences']:,} sequences, {figures['tokens']:,} tokens",
         f"{figures['labels']:,} labels, {figures['observations']:,} observations"),
        ("possible weights", f"{virtual['all']:,}", ", ".join(f"{n} {v:,}" for n, v in virtual.items() if n != "all")),
        ("weights of the training", f"{most}{figures['features']:,}", ""),
        ("memory", f"{needed['all'] / 2**20:,.0f} MiB",
         f"of {figures['allowed_bytes'] / 2**20:,.0f} allowed: {parts}"),
        ("time", f"about {seconds:.2f} s an iteration",
         f"at most {seconds * figures['max_iterations']:,.0f} s for {figures['max_iterations']:,} iterations"),
    )  # fmt: skip
    return [dict(zip(("what", "value", "of which"), row, strict=True)) for row in rows]


def training_table(records: list[dict]) -> list[dict[str, str]]:
    """Iterations as rows, of a long training evenly spaced ones with the last among them."""
    step = -(-len(records) // MOST_ITERATIONS)
    kept = [row for i, row in enumerate(records) if (len(records) - 1 - i) % step == 0]
    return [_iteration(row) for row in kept]


def _iteration(row: dict) -> dict[str, str]:
    error = row.get("dev_token_error")
    return {
        "iteration": f"{row['iteration']:,}", "objective": f"{row['objective']:,.2f}",
        "active weights": f"{sum(row[name] for name in ACTIVE):,}",
        "development error": "" if error is None else f"{error:.2%}", "seconds": f"{row['seconds']:.1f}",
    }  # fmt: skip


def report_text(root: Path) -> str:
    """Markdown: the headline figures and where the page lies."""
    path = (root / store.REPORT).resolve()
    rows = [(row["measure"], row["value"]) for row in metrics_table(root)[:HEADLINES]]
    place = f"[The whole report]({path.as_uri()}) (if the link does nothing, open this file in a browser):"
    return f"{_table(('measure', 'value'), rows)}\n\n{place}\n\n`{path}`\n"


def decision_text(decision: dict) -> str:
    """Markdown: the verdict, why, and both errors."""
    rows = [("challenger", f"{decision['challenger_error']:.2%}")]
    if decision["champion_error"] is not None:
        rows.append(("champion", f"{decision['champion_error']:.2%}"))
        interval = f"{decision['difference']:+.2%} ({decision['low']:+.2%} to {decision['high']:+.2%})"
        rows.append(("difference and its interval", interval))
    model = f"Model `{decision['model_sha256'][:12]}`"
    verdict, reasons = "Promoted" if decision["promoted"] else "Refused", decision.get("reasons") or []
    why = decision["reason"] if len(reasons) < 2 else f"{len(reasons)} reasons to refuse it"
    listed = "".join(f"- {_capital(text)}\n" for text in reasons) if len(reasons) > 1 else ""
    listed += "".join(f"- Warning: {text}\n" for text in decision.get("warnings") or [])
    listed += f"- {cases_line(decision['cases'])}\n" if decision.get("cases") else ""
    listed = f"{listed}\n" if listed else ""
    return f"## {verdict}\n\n{_capital(why)}.\n\n{listed}{_table(('', 'error'), rows)}\n\n{model}\n"


def cases_line(found: dict) -> str:
    return f"Cases that must not break: {found['cases'] - found['failed']} of {found['cases']} right"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table(heads: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    cells = [heads, ("---", "---"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in cells)

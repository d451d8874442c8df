"""What the dashboard shows of a run: short texts and tables, made from figures and files alone."""

from collections.abc import Iterable
from pathlib import Path

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


def metrics_table(root: Path) -> list[dict[str, str]]:
    """Rows of measure and value, in the order of MEASURES."""
    metrics, nouns = store.read_json(root / store.METRICS), store.read_manifest(root)["nouns"]
    metrics["active"] = sum(metrics[name] for name in ACTIVE)
    metrics["stop_reason"] = STOP_REASONS[metrics["stop_reason"]]
    return [
        {"measure": text.format(**nouns), "value": form.format(metrics[name])}
        for name, text, form in MEASURES
        if metrics.get(name) is not None
    ]


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

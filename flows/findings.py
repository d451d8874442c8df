"""What the dashboard shows of a run: short texts and tables, made from figures and files alone."""

from collections.abc import Callable, Iterable
from pathlib import Path

from espalier.engine.families import FAMILIES
from espalier.engine.optimise.monitor import STOP_REASONS
from espalier.tasks import store
from espalier.tasks.judging import headline
from espalier.tasks.pages import tournament_page
from espalier.tasks.pages.page import percent
from espalier.tasks.pages.path_page import is_chosen
from espalier.tasks.shapes import active_of
from espalier.tasks.sources import profile

# Name in metrics.json, text ({label}, {token}, {sequence} are the data's own nouns), format; errors stand before them.
MEASURES = (
    ("precision", "precision of entities", "{:.2%}"),
    ("recall", "recall of entities", "{:.2%}"),
    ("log_loss", "log-loss, nats per {token}", "{:.4f}"),
    ("sequence_log_loss", "log-loss, nats per {sequence}", "{:.4f}"),
    ("excess_log_loss", "excess over the reference, nats per {token}", "{:+.4f}"),
    ("excess_risk", "excess risk, exact, nats per {sequence}", "{:.4f}"),
    ("calibration_error", "calibration error", "{:.2%}"),
    ("family", "family of models", "{}"),
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
          "reasons", "warnings", "labels_compared", "by", "why", "measure", "difference", "low", "high", "margin",
          "champion_value", "challenger_value", "measure_name"}  # fmt: skip


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
    return profile.rows(store.read_profile(root))


def metrics_table(root: Path, champion: dict | None = None) -> list[dict[str, str]]:
    """Rows of measure and value: what the task is judged by with its interval, other errors, then MEASURES.

    With the champion's metrics there is a column more.
    """
    metrics, nouns = _readable(store.read_metrics(root), root / store.CANDIDATE), store.read_manifest(root)["nouns"]
    other = _readable(champion, root / store.CHAMPION) if champion else {}
    measure = headline.measure_in(metrics)
    called = headline.names(measure, nouns)
    rows = [(name, called[name], headline.written) for name in headline.shown(measure)]
    rows += [(name, text.format(**nouns), _formatter(form)) for name, text, form in MEASURES]
    return [
        {"measure": text, "value": write(metrics, name)}
        | ({"champion": "" if other.get(name) is None else write(other, name)} if champion else {})
        for name, text, write in rows
        if metrics.get(name) is not None
    ]


def _formatter(form: str) -> Callable[[dict, str], str]:
    return lambda figures, name: form.format(figures[name])


def _readable(metrics: dict, model: Path) -> dict:
    """With the sum of active weights, the family of the model, and words for what is kept as a name."""
    total = {"active": sum(active_of(metrics).values()), "family": FAMILIES[store.read_model(model).family].called}
    return metrics | total | {"stop_reason": STOP_REASONS.get(metrics["stop_reason"], metrics["stop_reason"])}


def champion_metrics(root: Path) -> dict:
    """The champion on the test data of now."""
    from espalier.tasks.evaluate import other_figures

    return other_figures(root, root / store.CHAMPION)


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


def sweep_table(figures: dict) -> list[dict[str, str]]:
    """The points of a path of rho1 as rows, the chosen one marked; what the choice goes by stands first."""
    names = dict.fromkeys((figures["measure"], headline.TOKEN))
    return [
        {"chosen": "→" if is_chosen(point, figures) else "", "rho1": f"{point['rho1']:.4g}",
         "active weights": f"{point['active']:,}"}
        | {f"development {headline.HEADS[name]}": percent(point[f"dev_{name}"], 2) for name in names}
        | {"training token error": percent(point["train_token_error"], 2), "objective": f"{point['objective']:,.2f}",
           "iterations": f"{point['iterations']:,}"}
        for point in figures["points"]
    ]  # fmt: skip


def tournament_table(figures: dict) -> list[dict[str, str]]:
    """Entrants as rows, the winner first, then those without a model and why."""
    head = headline.HEADS[figures["measure"]]
    rows = [
        {"entrant": row["name"], head: percent(row["test"]["value"], 2),
         "against the winner": tournament_page.span(row["against_winner"]), "active weights": f"{row['active']:,}",
         "trained in": tournament_page.trained_in(figures["times"][row["name"]])}
        for row in figures["entrants"]
    ]  # fmt: skip
    empty = dict.fromkeys(rows[0], "")
    return rows + [empty | {"entrant": row["name"], head: row["how"], "against the winner": row["why"]}
                   for row in figures["others"]]  # fmt: skip


def training_table(records: list[dict]) -> list[dict[str, str]]:
    """Iterations as rows, of a long training evenly spaced ones with the last among them."""
    step = -(-len(records) // MOST_ITERATIONS)
    kept = [row for i, row in enumerate(records) if (len(records) - 1 - i) % step == 0]
    return [_iteration(row) for row in kept]


def _iteration(row: dict) -> dict[str, str]:
    error = row.get("dev_token_error")
    return {
        "iteration": f"{row['iteration']:,}", "objective": f"{row['objective']:,.2f}",
        "active weights": f"{sum(active_of(row).values()):,}",
        "development error": "" if error is None else f"{error:.2%}", "seconds": f"{row['seconds']:.1f}",
    }  # fmt: skip


def report_text(root: Path) -> str:
    """Markdown: the headline figures and where the page lies."""
    path = (root / store.REPORT).resolve()
    rows = [(row["measure"], row["value"]) for row in metrics_table(root)[:HEADLINES]]
    place = f"[The whole report]({path.as_uri()}) (if the link does nothing, open this file in a browser):"
    return f"{_table(('measure', 'value'), rows)}\n\n{place}\n\n`{path}`\n"


def decision_text(decision: dict) -> str:
    """Markdown: the verdict, why, and both models by what the task is judged by."""
    found, (words, reasons) = headline.compared(decision), headline.why(decision)
    rows = [("challenger", percent(found.challenger, 2))]
    if found.champion is not None:
        rows.append(("champion", percent(found.champion, 2)))
        rows.append(("difference and its interval", headline.difference_words(found)))
    model = f"Model `{decision['model_sha256'][:12]}`"
    verdict = "Promoted" if decision["promoted"] else "Refused"
    listed = "".join(f"- {_capital(text)}\n" for text in reasons)
    listed += "".join(f"- Warning: {text}\n" for text in decision.get("warnings") or [])
    listed += f"- {cases_line(decision['cases'])}\n" if decision.get("cases") else ""
    listed = f"{listed}\n" if listed else ""
    why = f"{_capital(words)}{':' if reasons else '.'}"
    return f"## {verdict}\n\n{why}\n\n{listed}{_table(('', found.name), rows)}\n\n{model}\n"


def cases_line(found: dict) -> str:
    return f"Cases that must not break: {found['cases'] - found['failed']} of {found['cases']} right"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table(heads: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    cells = [heads, ("---", "---"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in cells)

"""The history of a project: a line for every retraining, promoted, refused or failed, and for every roll back.

Wall-clock times and outcomes differ between equal runs, so nothing of it is an output of a stage: the file is
`models/history.jsonl`, one JSON object a line, oldest first.
"""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from espalier.engine.errors import EspalierError
from espalier.engine.labels.measures import NAMES
from espalier.tasks import store
from espalier.tasks.judging import headline
from espalier.tasks.pages import charts
from espalier.tasks.pages.page import (
    MISSING,
    Html,
    capital,
    count,
    figure,
    join,
    lead,
    message,
    number,
    percent,
    short,
    table,
    tag,
    when,
)
from espalier.tasks.pages.page import section as page_section
from espalier.tasks.pages.verdict import mark
from espalier.tasks.params import Params, renamed
from espalier.tasks.shapes import active_of

SECRET = ("notify",)  # sections that may hold addresses with keys in them
WITHOUT_EFFECT = (*SECRET, "version", "memory")
QUALITY = (
    "measure",
    *(f"{name}{end}" for name in NAMES for end in ("", "_low", "_high")),
    "sequence_error",
    "log_loss",
)
SHOWN_RUNS, SHOWN_ROWS = 100, 15  # in the charts, in the table of the page
RETRAIN, ROLLBACK, PROMOTE = "retrain", "rollback", "promote"


def read(root: Path) -> list[dict]:
    """All entries, oldest first; none when nothing has been recorded."""
    return store.read_history(root)


def append(root: Path, entry: dict) -> dict:
    """Write an entry behind the others, with the parameters that differ from those of the retraining before it."""
    earlier = read(root)
    if "parameters" in entry:
        before = next((row["parameters"] for row in reversed(earlier) if "parameters" in row), None)
        entry = entry | {"changed": {} if before is None else differences(before, entry["parameters"])}
    store.write_jsonl(root / store.HISTORY, [*earlier, entry])
    return entry


def amend(root: Path, entry: dict) -> None:
    """Put an entry in the place of the one with the same id."""
    store.write_jsonl(root / store.HISTORY, [entry if row["id"] == entry["id"] else row for row in read(root)])


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_id(root: Path, time: str, digest: str, taken: Iterable[str] = ()) -> str:
    """A name for a run: its time and the head of a hash, such as 20261117-031502-0f3c2a91b5d7."""
    name = f"{datetime.fromisoformat(time):%Y%m%d-%H%M%S}-{digest[:12]}"
    known = set(taken)
    with suppress(EspalierError):  # a damaged history must not stand in the way of a decision
        known |= {row["id"] for row in read(root)}
    return next(one for i in range(1, len(known) + 3) if (one := name if i == 1 else f"{name}-{i}") not in known)


def flat(params: Params) -> dict[str, Any]:
    """Every parameter that may change a result, as section.key."""
    sections = (item for item in params.as_dict().items() if item[0] not in WITHOUT_EFFECT)
    return {f"{name}.{key}": value for name, values in sections for key, value in values.items()}


def unusual(params: Params) -> dict[str, Any]:
    """Those that are not at their default."""
    usual = flat(Params())
    return {name: value for name, value in flat(params).items() if value != usual[name]}


def differences(before: dict, after: dict) -> dict[str, list]:
    """{name: [before, after]} of two sets of unusual parameters; what one does not have is at its default."""
    before, after = renamed(before), renamed(after)
    usual = flat(Params())
    pairs = {name: [(side.get(name, usual.get(name))) for side in (before, after)] for name in {*before, *after}}
    return {name: pairs[name] for name in sorted(pairs) if pairs[name][0] != pairs[name][1]}


def entry_of(
    root: Path,
    params: Params,
    time: str,
    seconds: dict[str, float],
    *,
    decision: dict | None = None,
    failed: tuple[str | None, str, str] | None = None,
) -> dict:
    """A retraining as a line of the history.

    Only steps that are in `seconds` have ended in this run: what others left is of an earlier one. `failed` is
    the step that failed, the outcome (failed or interrupted) and the error.
    """
    entry = {"kind": RETRAIN, "time": time, "parameters": unusual(params),
             "seconds": {name: round(value, 3) for name, value in seconds.items()}}  # fmt: skip
    if "template" in seconds:
        entry["data_version"] = store.read_manifest(root)["data_version"]
    if "weigh" in seconds:
        found = store.read_clusters(root)
        entry |= {"drift": found["jensen_shannon"], "drift_limit": found["drift_limit"], "drifted": found["drifted"]}
    if "train" in seconds:
        candidate = root / store.CANDIDATE
        entry |= {"model_sha256": store.file_hash(candidate), "bytes": candidate.stat().st_size}
    if "evaluate" in seconds:
        metrics = store.read_metrics(root)
        entry |= {name: metrics[name] for name in (*QUALITY, "iterations", "features") if name in metrics}
        entry["active"] = sum(active_of(metrics).values())
    if decision is not None:
        entry |= {"id": decision["id"], "outcome": outcome(decision), "warnings": list(decision.get("warnings", []))}
        entry |= {name: decision[name] for name in ("reason", "reasons", "forced") if name in decision}
    if failed is not None:
        step, how, error = failed
        digest = hashlib.sha256(f"{time} {step} {error}".encode()).hexdigest()
        entry |= {"id": new_id(root, time, digest), "outcome": how, "step": step, "error": error}
    return entry


def by_hand(record: dict) -> dict:
    """A promotion or a roll back that someone asked for, as a line of the history."""
    kind = ROLLBACK if record.get("kind") == ROLLBACK else PROMOTE
    names = ("id", "time", "reason", "model_sha256", "data_version")
    more = {name: record[name] for name in ("reasons", "forced", "measure") if name in record}
    value = {record["measure"]: record["challenger_value"]} if record.get("measure") else {}
    return {name: record[name] for name in names} | more | {
        "kind": kind, "outcome": outcome(record), "token_error": record["challenger_error"],
        "warnings": list(record.get("warnings", [])),
    } | value  # fmt: skip


def outcome(decision: dict) -> str:
    """promoted, forced, refused or rolled back."""
    if decision.get("kind") == ROLLBACK:
        return "rolled back"
    return ("forced" if decision["forced"] else "promoted") if decision["promoted"] else "refused"


def find(root: Path, what: str) -> dict:
    """The entry whose id, or whose model's hash, begins with `what`; of several with one model the newest."""
    if not what:
        raise EspalierError("'' names no retraining: write the beginning of its id; `espalier history` lists them")
    rows = [row for row in read(root) if row["id"] == what]
    rows = rows or [row for row in read(root) if row["id"].startswith(what)]
    rows = rows or [row for row in read(root) if (row.get("model_sha256") or "").startswith(what)]
    models = {row.get("model_sha256") or row["id"] for row in rows}
    if not rows:
        raise EspalierError(f"no retraining {what!r} in {root / store.HISTORY}: `espalier history` lists them")
    if len(models) > 1:
        several = ", ".join(row["id"] for row in rows[-5:])
        raise EspalierError(f"{what!r} is the beginning of several retrainings ({several}): write more of it")
    return rows[-1]


# For a terminal -------------------------------------------------------------------------------------


def as_text(rows: Sequence[dict]) -> str:
    """A table of the entries, newest last, each with why and what had changed below it."""
    measures = _measures(rows)
    heads = ("id", "outcome", *(head for _, head in measures), "active", "kB", "iterations", "seconds", "drift")
    lines = [heads, *(_cells(row, measures) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    texts = []
    for line, row in zip(lines, [None, *rows], strict=True):
        cells = [*map(str.ljust, line[:2], widths[:2]), *map(str.rjust, line[2:], widths[2:])]
        texts.append("  ".join(cells).rstrip())
        for note in _notes(row) if row else ():
            texts += [f"    - {reason}" for reason in note] if isinstance(note, list) else [f"    {note}"]
    return "\n".join(texts)


def _measures(rows: Sequence[dict]) -> list[tuple[str, str]]:
    """(key, head) of what the rows are judged by, and of errors of tokens, which every row has."""
    used = [name for name in NAMES if name != headline.TOKEN and any(row.get(name) is not None for row in rows)]
    return [(name, headline.HEADS[name]) for name in (*used, headline.TOKEN)]


def _figure(row: dict, key: str) -> str:
    """What a row is judged by has its interval."""
    return headline.written(row, key) if key == headline.measure_in(row) else percent(row.get(key), 2)


def _cells(row: dict, measures: list[tuple[str, str]]) -> tuple[str, ...]:
    size = row.get("bytes")
    return (row["id"], row["outcome"], *(_figure(row, key) for key, _ in measures),
            number(row.get("active")), MISSING if size is None else f"{size / 1000:,.1f}",
            number(row.get("iterations")), _total(row), _drift(row))  # fmt: skip


def _notes(row: dict) -> list[str | list[str]]:
    """What had changed, why it was decided so, and warnings; several reasons are a list of their own."""
    notes = [f"{name}: {_value(before)} → {_value(after)}" for name, (before, after) in row.get("changed", {}).items()]
    step = f"{row['step']}: " if row.get("step") else ""
    if row.get("error"):
        notes.append(f"{step}{row['error']}")
    elif row.get("reason"):
        words, reasons = headline.why(row)
        notes += [f"{words}:", reasons] if reasons else [words]
    return [*notes, *(f"warning: {text}" for text in row.get("warnings", []))]


def _value(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _total(row: dict) -> str:
    return f"{sum(row['seconds'].values()):,.1f}" if row.get("seconds") else MISSING


def _drift(row: dict) -> str:
    drift = row.get("drift")
    return MISSING if drift is None else f"{drift:.4f}" + (" !" if row.get("drifted") else "")


# For a page -----------------------------------------------------------------------------------------


def section(root: Path) -> str:
    """The history as a section of a page: trends of quality, size, time and drift, and the latest runs as a table.

    The empty text when nothing has been recorded.
    """
    try:
        rows = read(root)
    except EspalierError as error:  # a report must not fail for its past
        return page_section("history", "History", message(capital(str(error))))
    return page_section("history", "History", body(rows)) if rows else ""


def body(rows: list[dict]) -> Html:
    """What the section shows."""
    runs = [(i, row) for i, row in enumerate(_runs(rows), 1)][-SHOWN_RUNS:]
    kinds = [row["outcome"] for row in _runs(rows)]
    told = ", ".join(f"{kinds.count(name)} {name}" for name in dict.fromkeys(kinds))
    opening = lead(f"{capital(count(len(kinds), 'retraining'))} so far: {told}." if kinds else "No retraining so far.")
    panels = [panel for panel in _panels(runs) if panel]
    return join([opening, tag("div", *panels, class_="panels") if panels else "", _table(rows)])


def _runs(rows: list[dict]) -> list[dict]:
    return [row for row in rows if row["kind"] == RETRAIN]


def _panels(runs: list[tuple[int, dict]]) -> Iterable[Html | None]:
    share = {"write": lambda v: percent(v, 2), "tick": lambda v: f"{100 * v:g}%"}
    yield _panel("f1", "F1", runs, [("F1", "f1")], "of entities in the test data of each run", **share)
    yield _panel(
        "edits", "Edit error", runs, [("error", "edit_error")], "edits for each symbol of the right string", **share
    )
    yield _panel(
        "error", "Token error", runs, [("error", "token_error")], "positions of the test data of each run", **share
    )
    yield _panel("whole", "Sequence error", runs, [("error", "sequence_error")], "those with a wrong label", **share)
    yield _panel("size", "Size", runs, [("active weights", "active")], "weights that are not zero")
    timed = [(i, row | {"all": sum(row["seconds"].values()), "training": row["seconds"].get("train")})
             for i, row in runs if row.get("seconds")]  # fmt: skip
    yield _panel("time", "Time", timed, [("all steps", "all"), ("training", "training")], "seconds",
                 write=lambda v: f"{v:,.1f} s")  # fmt: skip
    yield _panel("drift", "Drift", runs, [("drift", "drift"), ("limit", "drift_limit")],
                 "bits between the labelled data and the pool", write=lambda v: f"{v:.4f} bits")  # fmt: skip


def _panel(key: str, title: str, runs, lines: list[tuple[str, str]], note: str, **options) -> Html | None:
    """A chart of figures by run; None where fewer than two runs have the first of them, which is no trend."""
    runs = [(i, row) for i, row in runs if row.get(lines[0][1]) is not None]
    if len(runs) < 2:
        return None
    found = [charts.Series(name, style, [row.get(source) for _, row in runs])
             for (name, source), style in zip(lines, "ab", strict=False)]  # fmt: skip
    found = [one for one in found if any(value is not None for value in one.values)]
    drawn = charts.line_chart(f"history-{key}", title, "Retraining", [i for i, _ in runs], found, **options)
    return figure(title, join([charts.line_legend(found) if len(found) > 1 else "", drawn]), note)


def _table(rows: list[dict]) -> Html:
    """The latest entries, latest first."""
    latest = rows[-SHOWN_ROWS:]
    measures = _measures(latest)
    heads = ("When (UTC)", "Outcome", *(capital(head) for _, head in measures), "Active", "Seconds", "Drift", "Model")
    shown = [
        (when(row["time"]), mark(row["outcome"]), *(_figure_cell(row, key) for key, _ in measures),
         number(row.get("active")), _total(row), _drift(row), short(row.get("model_sha256")))
        for row in reversed(latest)
    ]  # fmt: skip
    of = f" (of {number(len(rows))})" if len(rows) > SHOWN_ROWS else ""
    notes = [_notes_below(row) for row in reversed(latest)]
    caption = f"Latest first{of}; below each what had changed, and why it was decided so"
    return table(caption, heads, shown, range(2, 5 + len(measures)), "stack", notes)


def _figure_cell(row: dict, key: str) -> Html:
    """A figure; under what a row is judged by stands its interval."""
    ends = headline.ends(row, key) if key == headline.measure_in(row) else None
    return join([percent(row.get(key), 2), tag("small", f"{ends[0]} to {ends[1]}") if ends else ""])


def _notes_below(row: dict) -> Html:
    return join(
        tag("ul", *(tag("li", text) for text in note)) if isinstance(note, list) else tag("div", note)
        for note in _notes(row)
    )

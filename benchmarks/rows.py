"""Rows of figures: one per system and setting, as JSON and as a table."""

import json
import math
from pathlib import Path

from espalier.engine.errors import EspalierError

OURS = "espalier"
FIELDS = (
    "case", "system", "setting", "seconds", "seconds_to_1pct", "seconds_to_01pct", "seconds_to_score",
    "seconds_per_gradient", "objective", "error", "f1", "active", "tokens_per_second", "peak_mib", "threads",
)  # fmt: skip
WITH_HEADLINE = ("suite",)  # cases of many settings, which a mean sums up
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEADS = (
    "case", "system", "setting", "threads", "s", "s to 1 %", "s to 0.1 %", "s to score", "s/gradient", "objective",
    "error", "F1", "active", "tokens/s", "MiB", "ours / peer",
)  # fmt: skip


def make_row(case: str, system: str, setting: str, values: dict) -> dict:
    """A row with all fields and no other; what has no meaning is None."""
    unknown = sorted(set(values) - set(FIELDS))
    if unknown:
        raise EspalierError(f"{unknown[0]!r} is no field of a row: expected some of {', '.join(FIELDS)}")
    return dict.fromkeys(FIELDS) | values | {"case": case, "system": system, "setting": setting}


def merge(old: list[dict], new: list[dict]) -> list[dict]:
    """Old rows of the cases that were run give way to the new ones; a case keeps its place."""
    cases = list(dict.fromkeys(row["case"] for row in old + new))
    fresh = {row["case"] for row in new}
    return [row for case in cases for row in (new if case in fresh else old) if row["case"] == case]


def read(path: Path) -> list[dict]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EspalierError(f"{path}: there is no such file; `python -m benchmarks CASE --json` makes one") from None
    except ValueError as error:
        raise EspalierError(f"{path}: not JSON ({error}); remove it and run the benchmarks again") from None
    if not isinstance(rows, list) or any(not isinstance(row, dict) or set(row) != set(FIELDS) for row in rows):
        raise EspalierError(f"{path}: expected a list of rows with the fields {', '.join(FIELDS)}")
    return rows


def merge_into(path: Path, new: list[dict]) -> None:
    """Merge rows into a file, which is replaced whole."""
    rows = merge(read(path) if path.exists() else [], new)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


# ---- the table


def group(row: dict) -> str:
    """What a row may be compared with: the setting up to its first comma."""
    return row["setting"].partition(",")[0]


def ratio(ours: dict, peer: dict) -> float | None:
    """How much of the peer's time ours takes, by the first measure that both have; below 1 ours is faster."""
    for name, faster in (("tokens_per_second", -1), ("seconds", 1), ("seconds_per_gradient", 1)):
        if ours[name] and peer[name]:
            return (ours[name] / peer[name]) ** faster
    return None


def ratios(row: dict, rows: list[dict]) -> str:
    """Ours against each peer of the same case and group."""
    if row["system"] != OURS:
        return ""
    peers = [r for r in rows if r["case"] == row["case"] and group(r) == group(row) and r["system"] != OURS]
    found = [(ratio(row, peer), peer["system"]) for peer in peers]
    return ", ".join(f"{value:.2g} {system}" for value, system in found if value is not None)


def headline(rows: list[dict]) -> str:
    """How many times as fast as the peer ours is over all settings of a case: geometric mean and worst, by threads.

    A setting that ours did not bring to the peer's objective counts in no mean and is told of.
    """
    sentences = []
    for threads in sorted({row["threads"] for row in rows if row["system"] == OURS}, reverse=True):
        ours = [row for row in rows if row["system"] == OURS and row["threads"] == threads]
        pairs = [(row, peer) for row in ours for peer in rows if peer["system"] != OURS and group(peer) == group(row)]
        for measure, what in (("seconds", "objective"), ("seconds_to_score", "score")):
            times = {group(row): peer["seconds"] / row[measure] for row, peer in pairs if row[measure]}
            missed = [group(row) for row, _ in pairs if not row[measure]]
            told = f"{threads} thread{'s' * (threads > 1)} to the peer's {what}: "
            if times:
                mean = math.exp(sum(map(math.log, times.values())) / len(times))
                worst = min(times, key=times.__getitem__)
                told += f"{mean:.1f} times as fast (geometric mean of {len(times)}), {times[worst]:.1f} on {worst}"
            told += f"; not reached: {', '.join(missed)}" if missed else ""
            sentences.append(told)
    return "\n".join(sentences)


def _cells(row: dict, rows: list[dict]) -> list[str]:
    def show(name: str, form: str, scale: int = 1) -> str:
        return "" if row[name] is None else format(row[name] * scale, form)

    return [
        row["case"], row["system"], row["setting"], show("threads", "d"), show("seconds", ",.2f"),
        show("seconds_to_1pct", ",.2f"), show("seconds_to_01pct", ",.2f"), show("seconds_to_score", ",.2f"),
        show("seconds_per_gradient", ".4f"), show("objective", ",.1f"), show("error", ".2%"), show("f1", ".2f", 100),
        show("active", ",d"), show("tokens_per_second", ",.0f"), show("peak_mib", ",.0f"), ratios(row, rows),
    ]  # fmt: skip


def table(rows: list[dict]) -> str:
    """Markdown, aligned so that it reads well in a terminal, too; columns without a value are left out."""
    cells = [[cell.replace("|", "\\|") for cell in _cells(row, rows)] for row in rows]
    used = [i for i, head in enumerate(HEADS) if i < 3 or any(line[i] for line in cells)]
    lines = [[HEADS[i] for i in used], *([line[i] for i in used] for line in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(used))]
    aligned = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
               for line in lines]  # fmt: skip
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([aligned[0], rule, *aligned[1:]])


def with_table(text: str, rows: list[dict]) -> str:
    """The text with the table between the markers replaced."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise EspalierError(f"expected one {BEGIN} and after it one {END} in the page: put them back")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    parts = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = [row for row in rows if row["case"] == case]
        parts += ([headline(found)] if case in WITH_HEADLINE else []) + [table(found)]
    return f"{before}{BEGIN}\n" + "\n\n".join(parts) + f"\n{END}{after}"

"""The cost of a large training on many workers, from figures measured here: the table of docs/scaling.md.

`python -m benchmarks.large` writes it again from results.json. A constant that no row tells is assumed, and
the table says so.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- made by python -m benchmarks.large -->\n", "<!-- end -->\n"
MOVED = re.compile(r"([\d,]+) MiB out and ([\d,]+) back, ([\d.]+) s")
MIB = 2**20


@dataclass(frozen=True)
class Constant:
    value: float
    source: str  # measured or assumed

    def __format__(self, form: str) -> str:
        return f"{format(self.value, form)} ({self.source})"


@dataclass(frozen=True)
class Constants:
    """What a plan rests on beside sizes."""

    positions: Constant = Constant(100_000, "assumed")  # of one thread, a second
    two_threads: Constant = Constant(1.8, "assumed")  # times as fast as one
    driver: Constant = Constant(4e9, "assumed")  # bytes of theta and sums a second, through shared memory
    messages: Constant = Constant(1e9, "assumed")  # the same by messages
    network: Constant = Constant(3e9, "assumed")  # bytes a second of a line of 25 Gbit/s


@dataclass(frozen=True)
class Problem:
    positions: int = 10**9
    templates: int = 20
    labels: int = 20
    weights: int = 10**8
    workers: int = 64
    threads: int = 8  # of each
    share: float = 0.2  # of the weights that occur with one worker
    changed: float = 0.1  # of the weights, in one iteration with an L1 term
    pairs: int = 8  # that the solver keeps
    block: int = 500_000


def constants_of(rows: list[dict]) -> Constants:
    """From the rows of the cases `scale` and `rich`."""
    found, scale = {}, [row for row in rows if row["case"] == "scale"]
    for name, way in (("driver", "shared memory, 2 workers"), ("messages", "messages, 2 workers")):
        for row in scale:
            told = MOVED.search(row["setting"])
            if row["setting"].startswith(way) and told:
                out, back, seconds = (float(text.replace(",", "")) for text in told.groups())
                found[name] = (out + back) * MIB / max(seconds, 1e-3)
    for row in scale:
        if row["setting"].startswith("shared memory, 1 worker") and row["tokens_per_second"]:
            found["positions"] = row["tokens_per_second"]
    by_threads = {row["threads"]: row["seconds_per_gradient"] for row in rows
                  if row["case"] == "rich" and row["system"] == "espalier" and "dense" in row["setting"]}  # fmt: skip
    if 1 in by_threads and 2 in by_threads:
        found["two_threads"] = min(2.0, by_threads[1] / by_threads[2])
    return Constants(**{name: Constant(value, "measured") for name, value in found.items()})


def table(constants: Constants, problem: Problem | None = None) -> str:
    """The plan as a table in Markdown."""
    p, c = problem or Problem(), constants
    share = p.positions / p.workers
    own = p.share * p.weights
    blocks = p.positions / p.block
    speed_up = p.threads ** math.log2(c.two_threads.value)  # each doubling of threads brings as much
    worker = share / (c.positions.value * speed_up)
    back, out = 8 * own * p.workers, 12 * own * p.workers * p.changed
    line = min(c.network.value, c.messages.value)
    sums, theta = back / line, out / line
    passes = 8 * p.weights * (2 * p.pairs + 8) / c.driver.value
    whole = worker + sums + theta + passes
    width = 4 * math.ceil(p.labels / 4)
    data, room = share * (8 * p.templates + 60), 3 * 8 * width * p.block
    vectors = 8 * own * (2 + math.log2(blocks / p.workers))
    rows = [
        ("blocks", f"{p.positions:,} positions / {p.block:,}", f"{blocks:,.0f}, {blocks / p.workers:,.0f} a worker"),
        ("positions of a thread", f"{c.positions:,.0f} a second; two threads {c.two_threads:.2f} times",
         f"{c.positions.value * speed_up:,.0f} a second with {p.threads} threads"),
        ("a worker's gradient", f"{share:,.0f} positions", f"{worker:,.1f} s"),
        ("a worker's memory", f"data {data / 1e9:.1f} GB, one block at work {room / 1e9:.1f} GB, vectors of "
         f"{own / 1e6:,.0f} million weights {vectors / 1e9:.1f} GB", f"{(data + room + vectors) / 1e9:.1f} GB"),
        ("sums that come back", f"{p.workers} * {8 * own / 1e6:,.0f} MB at {line / 1e9:.1f} GB/s, the lesser of the "
         f"network's {c.network.value / 1e9:.1f} ({c.network.source}) and Dask's {c.messages.value / 1e9:.1f} "
         f"({c.messages.source})", f"{back / 1e9:,.1f} GB, {sums:,.1f} s"),
        ("theta that goes out", f"12 bytes for each of the {p.changed:.0%} that change (assumed)",
         f"{out / 1e9:,.1f} GB, {theta:,.1f} s"),
        ("the solver's vectors", f"{2 * p.pairs + 8} of {8 * p.weights / 1e9:.1f} GB at "
         f"{c.driver.value / 1e9:.1f} GB/s ({c.driver.source})", f"{passes:,.1f} s"),
        ("the driver's memory", "these vectors, and what arrives",
         f"{(8 * p.weights * (2 * p.pairs + 9) + back) / 1e9:,.0f} GB"),
        ("an iteration", "all of these, one evaluation", f"{whole:,.0f} s, {worker / whole:.0%} of it gradients"),
        ("100 iterations", "1.1 evaluations each", f"{110 * whole / 3600:,.1f} hours"),
        ("state of an interrupted run", f"{2 * p.pairs + 2} vectors",
         f"{8 * p.weights * (2 * p.pairs + 2) / 1e9:,.0f} GB"),
    ]  # fmt: skip
    lines = ["| what | reckoning | result |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def with_table(page: str, text: str) -> str:
    """The page with the table between its marks replaced."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + text + page[end:]


def main() -> None:
    made = table(constants_of(json.loads(RESULTS.read_text(encoding="utf-8"))))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()

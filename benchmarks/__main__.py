"""`python -m benchmarks CASE… | all | table FILE`"""

import argparse
import os
import sys
from pathlib import Path

from benchmarks import rows
from benchmarks.cases import CASES, Context
from espalier.engine.errors import EspalierError

HERE = Path(__file__).resolve().parent


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description="Our figures and the peers' in one run.")
    made.add_argument("what", nargs="+", metavar="CASE", help=f"{', '.join(CASES)}, or all; or: table FILE")
    made.add_argument("--json", type=Path, metavar="FILE", help="merge the rows into this file")
    made.add_argument("--data", metavar="DIR", help="folder of corpora (default: ESPALIER_DATA or ../shared/data)")
    made.add_argument("--quick", action="store_true", help="small data and few iterations: does it run at all?")
    return made


def data_folder(given: str | None) -> str:
    return given or os.environ.get("ESPALIER_DATA") or str(HERE.parent.parent / "shared" / "data")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(names: list[str], data: str, quick: bool, json: Path | None) -> list[str]:
    """Run cases; each prints its table and keeps its rows when it is done. Returns what failed."""
    failed = []
    for name in names:
        context = Context(name, data, quick, say, failed)
        found = list(CASES[name].rows(context))
        if not found:
            say(f"{name}: nothing could be run")
            continue
        if name in rows.WITH_HEADLINE:
            print(f"\n{rows.headline(found)}")
        print(f"\n{rows.table(found)}\n\nwe aim at: {CASES[name].target}\n", flush=True)
        if json:
            rows.merge_into(json, found)
    return failed


def rewrite_table(file: Path, page: Path = HERE / "README.md") -> None:
    page.write_text(rows.with_table(page.read_text(encoding="utf-8"), rows.read(file)), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.what[0] == "table":
            if len(options.what) != 2:
                raise EspalierError("table takes one file: python -m benchmarks table FILE")
            rewrite_table(Path(options.what[1]))
            return 0
        names = list(CASES) if options.what == ["all"] else options.what
        for name in names:
            if name not in CASES:
                raise EspalierError(f"case {name!r} is not known: choose some of {', '.join(CASES)}, or all")
        failed = run(names, data_folder(options.data), options.quick, options.json)
    except EspalierError as error:
        say(f"benchmarks: {error}")
        return 1
    for text in failed:
        say(f"failed: {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Commands that check and prepare: reproduce for experiments of the sources, doctor and warm for the installation."""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.declaring import Group, argument, flag
from espalier.flows.commands.shared import AS_JSON, DIRECT, QUIET, print_json
from espalier.tasks.experiments import MODULES as EXPERIMENTS

GROUP = Group()


@GROUP.command(
    "experiments of the sources, their figures beside ours",
    argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all"),
    flag("--quick", "few replications, for a first look"),
    argument("--data", type=Path, metavar="DIR", help="folder of corpora (ESPALIER_DATA)"),
    DIRECT,
    flag("--json", "print the comparisons as JSON"),
    QUIET,
    example="espalier reproduce semisup --quick",
)
def reproduce(args) -> None:
    from espalier.flows.experiments import corpora_folder, run_direct
    from espalier.flows.terminal import Terminal
    from espalier.tasks.experiments import Settings

    root = args.project.resolve()
    settings = Settings(args.quick, corpora_folder(root, args.data))
    terminal = Terminal(args.quiet)
    try:
        if args.direct:
            figures = run_direct(root, args.name, settings, terminal.progress_of)
        else:
            from espalier.flows.run import run_reproduce

            figures = run_reproduce(root, args.name, settings, terminal.progress_of)
    finally:
        terminal.close()
    if args.json:
        print_json(figures)
    else:
        print("\n".join(line for name, found in figures.items() for line in _comparison_lines(name, found)))


def _comparison_lines(name: str, found: dict) -> list[str]:
    """What an experiment found, for people."""
    if "skipped" in found:
        return [f"{name}: left out, {found['skipped']}"]
    rows = [f"  {c['place']}: {c['what']}: {_said_there(c['source'])}, {c['ours']} here" for c in found["comparisons"]]
    rows += [f"  {'holds' if c['holds'] else 'DOES NOT HOLD'}: {c['text']}: {c['ours']}" for c in found["checks"]]
    return [name, *rows, f"  report {found['paths']['html']}"]


def _said_there(source: str) -> str:
    """What the source says, or that it says nothing."""
    return source if source.startswith("not ") else f"{source} in the source"


@GROUP.command("check the installation and the project", AS_JSON, example="espalier doctor")
def doctor(args) -> int:
    from espalier.flows.doctor import doctor as examine

    checks = examine(args.project.resolve())
    if args.json:
        print_json([dict(zip(("check", "ok", "text", "remedy"), row, strict=True)) for row in checks])
    else:
        for check, ok, text, remedy in checks:
            print(
                f"{'ok  ' if ok else 'FAIL'}  {check:<22} {text}" + (f"\n      → {remedy}" if remedy and not ok else "")
            )
    return 0 if all(row[1] for row in checks) else 1


@GROUP.command(
    "compile ahead what training and tagging need, several kernels at once",
    flag("--all", "for all solvers and families, too"),
    QUIET,
    example="espalier warm",
)
def warm(args) -> None:
    from espalier.engine import warm_up
    from espalier.engine.runtime import compiling

    place = warm_up.DIRECTORY
    if place is None:
        raise EspalierError("compiled kernels cannot be kept: set NUMBA_CACHE_DIR to a folder that you can write to")
    with compiling.said(not args.quiet):
        failed = warm_up.compile_all(warm_up.EVERY if args.all else warm_up.USUAL)
    if failed:
        name, why = next(iter(failed.items()))
        raise EspalierError(f"{len(failed)} of the recipes failed; {name}: {why.splitlines()[-1]}")
    if not args.quiet:
        print(f"compiled kernels are in {place}")

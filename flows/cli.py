"""The command `espalier`. Heavy imports wait until a command needs them."""

import argparse
import errno
import json
import os
import signal
import sys
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import compiling
from espalier.tasks.experiments import MODULES as EXPERIMENTS

MODEL_HELP = "model file (models/champion.model)"
# As in tasks.store and flows.stages, which would load Polars; a test compares them.
CHAMPION = "models/champion.model"
REFUSED = 3  # the code of a run whose candidate was refused; 1 is a failure, 2 a mistake on the command line
CODES = (
    "Exit codes: 0 the candidate was promoted; 3 it was refused and the champion stays; 1 it failed; 2 the command "
    "line was not understood; 130 or 143 it was interrupted."
)
STAGE_NAMES = ("ingest", "template", "weigh", "train", "evaluate", "report")


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
    past.add_argument("--last", type=_count, default=0, metavar="N", help="only the newest N")
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
    tag.add_argument("--nbest", type=_count, default=0, metavar="N", help="the N best labellings of each sequence")
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
    explain.add_argument("--top", type=_count, default=5, metavar="N", help="weights shown for each token (5)")
    explain.add_argument("--json", action="store_true", help="as JSON, one sequence a line")

    inspect = _command(commands, "inspect", "what a model is and its strongest weights")
    inspect.add_argument("model", nargs="?", type=Path, metavar="MODEL", help=MODEL_HELP)
    inspect.add_argument("--label", help="only weights of this label")
    inspect.add_argument("--top", type=_count, default=20, metavar="N", help="weights shown (20)")
    inspect.add_argument("--json", action="store_true", help="as JSON")
    inspect.add_argument("--picture", type=Path, metavar="FILE",
                         help="draw the weights of a template by value and label, as .html or .svg")  # fmt: skip
    inspect.add_argument("--template", metavar="LINE", help="template of the picture (one with weights of pairs)")

    sweep = _command(commands, "sweep", "models along a path of rho1: size against quality", params=True)
    sweep.add_argument("--points", type=_count, default=10, metavar="N", help="values of rho1 (10)")
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


def _reading(args, options=None):
    """How files are read: what was said on the command line, else `options`, else the defaults; '' says none."""
    from dataclasses import replace

    from espalier.tasks.formats import Reading

    names = ("format", "separator", "comment", "label_column", "columns", "label", "sequence", "unknown",
             "set_separator")  # fmt: skip
    given = {name: value if value != "" else None for name in names if (value := getattr(args, name)) is not None}
    if given.get("columns"):
        given["columns"] = tuple(given["columns"].split(","))
    return replace(options or Reading(), **given)


def _count(text: str) -> int:
    """A whole number of at least 0, for argparse."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


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


def _project(args, add=()):
    from espalier.flows.pipeline import Project

    return Project.open(args.project.resolve(), args.params, args.overrides, add)


def _dump(data) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False, sort_keys=True))


def run(args) -> int:
    from espalier.flows.signals import ending_cleanly
    from espalier.flows.terminal import Terminal

    project = _project(args, args.add)
    project.check()
    terminal = Terminal(args.quiet)
    try:
        if args.direct:
            from espalier.flows.pipeline import run_direct

            with ending_cleanly():
                figures = run_direct(project, terminal.progress_of)
        else:
            from espalier.flows.run import run_flow

            figures = run_flow(project.root, args.params, args.overrides, terminal.progress_of, add=args.add)
    finally:
        terminal.close()
    _dump(figures) if args.json else print(summary(project))
    return _outcome_code(figures["promote"])


def _outcome_code(decision: dict) -> int:
    """0 for a promotion, REFUSED for a refusal."""
    return 0 if decision["promoted"] else REFUSED


def summary(project) -> str:
    """The last words of a run: quality, size, what was decided, where the report is."""
    from espalier.tasks import store
    from espalier.tasks.judging import headline

    metrics = store.read_metrics(project.root)
    nouns = store.read_manifest(project.root)["nouns"]
    decision = store.last_decision(project.root)
    active = sum(metrics[f"active_{family}"] for family in ("unigram", "start", "bigram"))
    lines = [
        headline.in_one_line(metrics, nouns),
        f"active features {active:,} of {metrics['features']:,} ({metrics['active_unigram']:,} unigram, "
        f"{metrics['active_start']:,} start, {metrics['active_bigram']:,} bigram)",
        *headline.verdict_lines(decision),
        f"report {project.root / store.REPORT}",
    ]
    if project.overridden and project.has_dvc:
        lines.append(
            "not recorded in DVC, because parameters were changed for this run; "
            "edit params.yaml or use `dvc exp run -S section.key=value` to keep it"
        )
    return "\n".join(lines)


def stage(args) -> None:
    from espalier.flows.locks import lease
    from espalier.flows.signals import ending_cleanly
    from espalier.flows.terminal import Terminal

    project = _project(args)
    project.check()
    terminal = Terminal(args.quiet)
    try:
        with ending_cleanly(), lease(project.root, f"stage {args.name}"):
            figures = project.run(args.name, terminal.progress_of(args.name))
    finally:
        terminal.close()
    if args.json:
        _dump(figures)


def plan(args) -> None:
    from espalier.tasks.training import plan as planning

    project = _project(args)
    figures = planning.main(project.root, project.params)
    if args.json:
        _dump(figures)
    else:
        print(plan_text(figures, project.params.train.max_iterations))
    planning.check(figures)


def plan_text(figures: dict, iterations: int) -> str:
    virtual, needed = figures["virtual_features"], figures["bytes"]
    parts = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in needed.items() if name != "all")
    most = "" if figures["exact"] else "at most "
    seconds = figures["seconds_per_iteration"]
    return "\n".join([
        f"{figures['sequences']:,} sequences, {figures['tokens']:,} positions, {figures['labels']} labels, "
        f"{figures['observations']:,} observations",
        f"features  {virtual['all']:,} possible ({virtual['unigram']:,} unigram, {virtual['start']:,} start, "
        f"{virtual['bigram']:,} bigram); {most}{figures['features']:,} in the model",
        f"memory    {needed['all'] / 2**20:,.0f} MiB of {figures['allowed_bytes'] / 2**20:,.0f} allowed: {parts}",
        f"time      about {seconds:.2f} s an iteration, {seconds * iterations:,.0f} s for train.max_iterations = "
        f"{iterations}",
        *([cluster_text(figures["cluster"])] if "cluster" in figures else []),
    ])  # fmt: skip


def cluster_text(found: dict) -> str:
    parts = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in found["worker_bytes"].items() if name != "all")
    out, back = (found["moved"][way] / 2**20 for way in ("out", "in"))
    return (
        f"workers   {found['parts']} of the {found['workers']} of {found['name']}, the largest with "
        f"{found['worker_bytes']['all'] / 2**20:,.0f} MiB: {parts}; an evaluation moves up to {out:,.0f} MiB out and "
        f"{back:,.0f} back"
    )


def promote(args) -> int:
    from espalier.flows.locks import lease
    from espalier.flows.records import by_hand
    from espalier.flows.terminal import Terminal
    from espalier.tasks import promote as promotion
    from espalier.tasks.judging import headline

    if args.force and not args.reason:
        raise EspalierError("--force needs --reason TEXT: it is recorded who promoted against the figures, and why")
    if args.reason and not args.force:
        raise EspalierError("--reason says why a promotion is forced: add --force, or leave it out")
    project = _project(args)
    terminal = Terminal(args.quiet)
    with lease(project.root, "a promotion by hand"):
        try:
            progress = terminal.progress_of("promote")
            record = promotion.main(project.root, project.params, progress, args.force, args.reason, args.by)
        finally:
            terminal.close()
        by_hand(project, record, _warn)
    print("\n".join(headline.verdict_lines(record)))
    return _outcome_code(record)


def _warn(text: str) -> None:
    print(f"espalier: {text}", file=sys.stderr)


def history(args) -> None:
    from espalier.tasks.keeping import history as past

    rows = past.read(args.project.resolve())[-args.last :]
    if args.json:
        _dump(rows)
    else:
        print(past.as_text(rows) if rows else "no retraining has been recorded; `espalier run` makes the first")


def rollback(args) -> None:
    from espalier.flows.locks import lease
    from espalier.flows.pipeline import Project
    from espalier.flows.records import by_hand
    from espalier.tasks.keeping import archive
    from espalier.tasks.promote import someone

    project = Project.open(args.project.resolve())
    with lease(project.root, "a roll back"):
        digest = archive.earlier_champion(project.root, args.to)
        record = archive.roll_back(project.root, digest, args.by or someone(), args.reason)
        by_hand(project, record, _warn)
    kept = archive.folder(project.root, record["restored_from"])
    print(f"champion {digest[:12]} again (it was {(record['from_sha256'] or 'none')[:12]}); its report is in {kept}")


def restore(args) -> None:
    from espalier.flows.locks import lease
    from espalier.tasks.keeping import archive
    from espalier.tasks.keeping import history as past

    if args.to and args.in_place:
        raise EspalierError("--to and --in-place exclude each other: choose one")
    root = args.project.resolve()
    name = args.id if args.id in archive.names(root) else past.find(root, args.id)["id"]
    target = None if args.in_place else args.to or root / "restored" / name
    with lease(root, f"a restoration of {name}"):
        restored = archive.restore(root, name, target)
    for path in restored:
        print(path)


def _model_path(args) -> Path:
    if args.model:
        return args.model
    champion = args.project / CHAMPION
    if champion.is_file():
        return champion
    from espalier.tasks.keeping.champion import path_of

    return path_of(args.project)


def tag(args) -> None:
    from espalier.engine import families
    from espalier.tasks.answering import stream

    asked = stream.Asked(
        args.words, args.separator, args.scores, args.nbest, args.format, args.scheme, args.known, args.unknown,
        args.source, args.decode, args.scheme_out,
    )  # fmt: skip
    out = sys.stdout.buffer  # UTF-8 whatever the terminal is set to
    for answer in stream.tag_file(families.load(_model_path(args)), args.file, asked):
        out.write(answer)
        out.flush()


def explain(args) -> None:
    from espalier.engine import families
    from espalier.tasks.answering import explain as explaining
    from espalier.tasks.answering import stream

    model = families.load(_model_path(args))
    asked = stream.Asked(args.words, args.separator).completed(model, args.file)
    if asked.source not in ("words", "conll", "jsonl"):
        raise EspalierError(f"{args.file}: explain reads columns and JSON lines, not {asked.source}; convert it first")
    with stream.opened(args.file) as (source, name):
        for block in stream.blocks(stream.pieces(source, name), name, asked):
            if not len(block.line):
                continue
            tokens, at = block.columns[0].to_pylist(), 0
            for found in explaining.explain(model, stream.features(model, block, name, own=asked.own)):
                told = explaining.as_object(model, tokens[at : at + len(found.labels)], found, args.top)
                at += len(found.labels)
                print(json.dumps(told, ensure_ascii=False) if args.json else explaining.as_text(told), flush=True)


def inspect(args) -> None:
    from espalier.engine import families
    from espalier.tasks.answering.explain import strongest

    path = _model_path(args)
    model = families.load(path)
    rows = strongest(model, args.label, args.top)
    lists = {name: f"{len(lines):,} lines" for name, lines in model.lists.items()}
    info = model.info | ({"lists": lists} if lists else {})
    if args.picture:
        from espalier.tasks.pages.picture import write_picture

        write_picture(args.picture, model, args.template)
    if args.json:
        _dump({"model": str(path), "info": info, "labels": model.labels, "templates": model.templates,
               "active": len(model.theta), "weights": rows})  # fmt: skip
        return
    print(f"{path}: {len(model.theta):,} active weights, {len(model.labels)} labels, {len(model.templates)} templates")
    for key in sorted(info):
        print(f"  {key:<16} {info[key]}")
    for row in rows:
        print(f"{row['weight']:+9.4f}  {row['text']}")
    if args.picture:
        print(f"picture {args.picture}")


def sweep(args) -> None:
    from espalier.flows.terminal import Terminal
    from espalier.tasks.pages.path_page import as_text
    from espalier.tasks.training import sweep as sweeping

    project = _project(args)
    options = {"points": args.points, "largest": args.largest, "smallest": args.smallest, "sparser": args.sparser}
    sweeping.check(**options)
    terminal = Terminal(args.quiet)
    try:
        if args.direct:
            from espalier.flows.pipeline import sweep_direct

            figures = sweep_direct(project, options, terminal.progress_of)
        else:
            from espalier.flows.run import run_sweep

            figures = run_sweep(project.root, options, args.params, args.overrides, terminal.progress_of)
    finally:
        terminal.close()
    _dump(figures) if args.json else print(as_text(figures, project.root))


def convert(args) -> None:
    from dataclasses import replace

    from espalier.tasks import formats

    options = replace(_reading(args), scheme_in=args.scheme_from, scheme_out=args.scheme)
    blocks = formats.read_blocks(formats.expand(Path("."), args.input), options, not args.unlabelled)
    marks = {"unknown": options.unknown, "set_separator": options.set_separator}
    counts = formats.write(args.output, blocks, args.to, args.separator, **marks)
    print(f"{args.output}: {counts['sequences']:,} sequences, {counts['tokens']:,} tokens")


def profile(args) -> None:
    from espalier.tasks.sources import profile as profiling

    found = profiling.profile(*_profiled(args))
    if args.json:
        _dump(found)
        return
    for row in profiling.rows(found):
        print(f"{row['what']:<46} {row['value']:>14}" + (f"  {row['examples']}" if row["examples"] else ""))


def _profiled(args) -> tuple:
    """Blocks, names of files and what places are counted in: of the files named, else of the project's source."""
    from espalier.tasks import formats

    if args.files:
        root, patterns, options = Path("."), args.files, _reading(args)
    else:
        from espalier.tasks.ingest import SOURCES
        from espalier.tasks.sources import files

        project = _project(args)
        root, ingest = project.root, project.params.ingest
        if SOURCES[ingest.source] is not files.read:
            if _reading(args) != formats.Reading():
                raise EspalierError(
                    f"ingest.source is {ingest.source}: it is no file that options could say how to read"
                )
            return SOURCES[ingest.source](root, ingest).parts["train"](), [ingest.source], "line"
        if not ingest.path:
            raise EspalierError("ingest.path is null: name the file to profile, here or there")
        patterns, options = [ingest.path, *(ingest.more or [])], _reading(args, files.reading(ingest))
    paths = [path for pattern in patterns for path in formats.expand(root, pattern)]
    unit = formats.format_of(paths[0], options.format)[1].unit
    return formats.read_located(paths, options, not args.unlabelled), paths, unit


def serve(args) -> None:
    from espalier.flows import serve as serving

    serving.serve(args.project.resolve(), args.cron, name=args.name, zone=args.timezone, port=args.port)


def dashboard(args) -> None:
    from espalier.flows import serve as serving

    if args.env:
        print(serving.client_environment(args.project.resolve()))
        return
    serving.dashboard(args.project.resolve(), args.port, args.open)


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
        _dump(figures)
    else:
        print("\n".join(line for name, found in figures.items() for line in _comparison_lines(name, found)))


def _comparison_lines(name: str, found: dict) -> list[str]:
    """What an experiment found, for people."""
    if "skipped" in found:
        return [f"{name}: left out, {found['skipped']}"]
    rows = [f"  {c['place']}: {c['what']}: {c['source']} in the source, {c['ours']} here" for c in found["comparisons"]]
    rows += [f"  {'holds' if c['holds'] else 'DOES NOT HOLD'}: {c['text']}: {c['ours']}" for c in found["checks"]]
    return [name, *rows, f"  report {found['paths']['html']}"]


def doctor(args) -> int:
    from espalier.flows.doctor import doctor as examine

    checks = examine(args.project.resolve())
    if args.json:
        _dump([dict(zip(("check", "ok", "text", "remedy"), row, strict=True)) for row in checks])
    else:
        for check, ok, text, remedy in checks:
            print(
                f"{'ok  ' if ok else 'FAIL'}  {check:<22} {text}" + (f"\n      → {remedy}" if remedy and not ok else "")
            )
    return 0 if all(row[1] for row in checks) else 1


COMMANDS = {
    "run": run, "stage": stage, "plan": plan, "promote": promote, "history": history, "rollback": rollback,
    "restore": restore, "tag": tag, "explain": explain,
    "inspect": inspect, "sweep": sweep, "convert": convert, "profile": profile, "serve": serve,
    "dashboard": dashboard, "reproduce": reproduce, "doctor": doctor,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())

"""Commands that use or choose a model: tag, parse, explain, inspect, sample, sweep."""

import json
import sys
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.declaring import Group, argument, flag
from espalier.flows.commands.shared import AS_JSON, DIRECT, PARAMETERS, print_json, project_of, warn, whole_number

GROUP = Group()

MODEL_HELP = "model file (models/champion.model)"
# As in tasks.store, which would load Polars; a test compares them.
CHAMPION = "models/champion.model"
# What tag and explain read.
INPUT = (
    argument("file", nargs="?", default="-", metavar="FILE", help="tokens in columns, plain or .gz (- for stdin)"),
    argument("--model", type=Path, metavar="MODEL", help=MODEL_HELP),
    flag("--words", "one sequence a line, its characters are the tokens"),
    argument("--separator", help="between columns (any run of blanks and tabs)"),
)


def _model_path(args) -> Path:
    """The model that was named, else the champion; fails where there is none."""
    if args.model:
        return args.model
    champion = args.project / CHAMPION
    if champion.is_file():
        return champion
    try:
        from espalier.tasks.keeping.champion import path_of
    except ModuleNotFoundError:  # without the pipeline there is no record that could say more
        raise EspalierError(f"{champion}: there is no champion here; name a model file") from None
    return path_of(args.project)


def _model_that(args, ability: str, other: str):
    """The model that was named, which must be able to; what it is for is said otherwise."""
    from espalier.engine import families
    from espalier.engine.families import ABILITIES

    path = _model_path(args)
    model = families.load(path)
    if ability not in model.can:
        cannot = f"{path} is a model of {model.family}, which cannot {ABILITIES[ability]}"
        raise EspalierError(f"{cannot}: use `espalier {other}`")
    return model


@GROUP.command(
    "label tokens in columns, of a file or as they come on standard input",
    *INPUT,
    flag("--scores", "the probability of each label, and of the sequence"),
    flag("--likelihood", "how likely each sequence is itself, as a logarithm (hmm)"),
    argument("--nbest", type=whole_number, default=0, metavar="N", help="the N best labellings of each sequence"),
    argument(
        "--from",
        dest="source",
        choices=("conll", "conllu", "jsonl", "arrow", "parquet", "crfsuite"),
        help="the format of the input (by the name of the file; columns on stdin)",
    ),
    argument("--format", choices=("columns", "jsonl"), help="of the output (jsonl for jsonl, else columns)"),
    argument(
        "--decode",
        choices=("viterbi", "posterior"),
        help="the likeliest labelling, or label of each token (as the model says)",
    ),
    argument(
        "--scheme-out",
        choices=("model", "iob1", "iob2", "bioes", "bilou"),
        help="write labels in this scheme (that of the training files)",
    ),
    argument("--scheme", choices=("auto", "iob2", "iob1", "bioes"), help="no transition that it forbids"),
    argument("--known", type=int, metavar="COLUMN", help="column of known labels, from 0 (-1: the last)"),
    argument(
        "--unknown", metavar="TEXT", help="what stands there where none is known (as in the training files, or _)"
    ),
    argument(
        "--abstain", type=float, metavar="LIMIT",
        help="leave out labels, and whole entities, that are less probable than this (0 to 1)",
    ),
    argument("--mark", default="?", metavar="TEXT", help="what stands for a label that is left out (?; null in JSON)"),
    example="espalier tag text.conll > tagged.conll",
)
def tag(args) -> None:
    from espalier.tasks.answering import stream

    asked = stream.Asked(
        args.words, args.separator, args.scores, args.nbest, args.format, args.scheme, args.known, args.unknown,
        args.source, args.decode, args.scheme_out, args.likelihood, args.abstain, args.mark,
    )  # fmt: skip
    out = sys.stdout.buffer  # UTF-8 whatever the terminal is set to
    for answer in stream.tag_file(_model_that(args, "labels", "parse"), args.file, asked):
        out.write(answer)
        out.flush()


@GROUP.command(
    "put trees over sentences, one a line, of a file or as they come on standard input",
    argument("file", nargs="?", default="-", metavar="FILE",
             help="a sentence or a tree on each line, plain or .gz (- for stdin)"),
    argument("--model", type=Path, metavar="MODEL", help=MODEL_HELP),
    flag("--json", "as JSON, one sentence a line"),
    argument("--nbest", type=whole_number, default=0, metavar="K", help="the K likeliest trees of each sentence"),
    flag("--scores", "log-probability of each tree, and its share of that of all trees"),
    epilog="A sentence that the grammar cannot derive is answered with () (null in JSON), and the exit code is 3. "
           "Brackets inside of words are written -LRB- and -RRB-.",
    example="echo 'the old man sees a boat .' | espalier parse",
)  # fmt: skip
def parse(args) -> int:
    from espalier.tasks.answering import incoming, parsing

    model = _model_that(args, "trees", "tag")
    answers = parsing.TreeAnswers(model, parsing.AskedTrees(args.json, args.nbest, args.scores))
    out = sys.stdout.buffer  # UTF-8 whatever the terminal is set to
    with incoming.opened(args.file) as (source, name):
        for answer in answers(incoming.pieces(source, name, incoming.SMALL_BLOCK), name):
            out.write(answer)
            out.flush()
    if answers.without:
        warn(f"{answers.without:,} of the sentences cannot be derived by this grammar and have no tree")
    return 3 if answers.without else 0


@GROUP.command(
    "why each token has its label: the weights for it and for the runner-up; of a grammar the rules of each tree",
    *INPUT,
    argument("--top", type=whole_number, default=5, metavar="N", help="weights of each token, rules of a tree (5)"),
    flag("--json", "as JSON, one sequence a line"),
    epilog="A grammar reads sentences or trees, one a line, as `espalier parse` does.",
    example="echo lattice | espalier explain --words",
)
def explain(args) -> None:
    from espalier.engine import families
    from espalier.tasks.answering import explain as explaining
    from espalier.tasks.answering import incoming, stream, text_blocks

    model = families.load(_model_path(args))
    if "trees" in model.can:
        _explain_trees(model, args)
        return
    asked = stream.Asked(args.words, args.separator).completed(model, args.file)
    if asked.source not in ("words", "conll", "jsonl"):
        raise EspalierError(f"{args.file}: explain reads columns and JSON lines, not {asked.source}; convert it first")
    with incoming.opened(args.file) as (source, name):
        for block in text_blocks.blocks(incoming.pieces(source, name), name, asked):
            if not len(block.line):
                continue
            tokens, at = block.columns[0].to_pylist(), 0
            for explained in explaining.explain(model, stream.features(model, block, name, own=asked.own)):
                reasons = explaining.as_object(model, tokens[at : at + len(explained.labels)], explained, args.top)
                at += len(explained.labels)
                print(json.dumps(reasons, ensure_ascii=False) if args.json else explaining.as_text(reasons), flush=True)


def _explain_trees(model, args) -> None:
    from espalier.tasks.answering import incoming, parsing

    for name in ("words", "separator"):
        if getattr(args, name):
            raise EspalierError(
                f"--{name} says how tokens in columns are read, and a model of {model.family} reads sentences, one a "
                "line: leave it out"
            )
    with incoming.opened(args.file) as (source, name):
        for group in parsing.sentences(incoming.pieces(source, name), name, model.longest(several=True)):
            for one in group:
                if one.words:
                    told = parsing.explained(model, one, args.top)
                    print(json.dumps(told, ensure_ascii=False) if args.json else parsing.as_text(told), flush=True)


@GROUP.command(
    "what a model is and its strongest weights, or the rules that a grammar uses most",
    argument("model", nargs="?", type=Path, metavar="MODEL", help=MODEL_HELP),
    argument("--label", help="only weights, or rules, of this label"),
    argument("--top", type=whole_number, default=20, metavar="N", help="weights shown (20)"),
    AS_JSON,
    argument(
        "--picture",
        type=Path,
        metavar="FILE",
        help="draw the weights of a template by value and label, as .html or .svg",
    ),
    argument("--template", metavar="LINE", help="template of the picture (one with weights of pairs)"),
    example="espalier inspect --label B-PER --top 10",
)
def inspect(args) -> None:
    from espalier.engine import families
    from espalier.tasks.answering.explain import round_in_words, rules_of, strongest

    path = _model_path(args)
    model = families.load(path)
    of_trees = "trees" in model.can
    rows = rules_of(model, args.label, args.top) if of_trees else strongest(model, args.label, args.top)
    lists = {name: f"{len(lines):,} lines" for name, lines in model.lists.items()}
    info = {key: value for key, value in model.info.items() if key not in model.unsaid}
    info |= {"family": model.family} | ({"lists": lists} if lists else {})
    if args.picture:
        model.require("weights")
        from espalier.tasks.pages.picture import write_picture

        write_picture(args.picture, model, args.template)
    rounds = [one for one in model.rounds() if args.label in (None, one.label)]
    active, what = sum(model.sizes().values()), "rules" if of_trees else "active weights"
    if args.json:
        told = {"model": str(path), "info": info, "labels": model.labels, "templates": model.templates,
                "active": active, "rules" if of_trees else "weights": rows}  # fmt: skip
        print_json(told | ({"rounds": [one._asdict() for one in rounds]} if rounds else {}))
        return
    print(f"{path}: {active:,} {what}, {len(model.labels)} labels, {len(model.templates)} templates")
    info = _parameters_in_words(info)
    for key in sorted(info):
        print(f"  {key:<16} {info[key]}")
    for row in rows:
        print(f"{row['probability']:9.4f}  {row['rule']}" if of_trees else f"{row['weight']:+9.4f}  {row['text']}")
    if rounds[: args.top]:
        print("rounds: step, Z (what it left of the odds against the right labellings), weight")
    for one in rounds[: args.top]:
        print(f"{one.step:+9.4f}  {one.z:.4f}  {round_in_words(one)}")
    if args.picture:
        print(f"picture {args.picture}")


def _parameters_in_words(info: dict) -> dict:
    """Of the parameters that `CRF.save` keeps those that are not the default."""
    from espalier.engine.estimator import CRF
    from espalier.engine.fitting.fits import PARAMETERS

    kept, defaults = info.get(PARAMETERS), CRF().get_params()
    if not isinstance(kept, dict):
        return info
    changed = {name: value for name, value in kept.items() if name not in defaults or value != defaults[name]}
    return info | {PARAMETERS: changed or "defaults"}


@GROUP.command(
    "sequences that a hidden Markov model draws, with their labels, as columns; trees of a grammar, one a line",
    argument("model", nargs="?", type=Path, metavar="MODEL", help=MODEL_HELP),
    argument("-n", type=whole_number, default=10, metavar="N", help="how many sequences (10)"),
    argument("--seed", type=whole_number, default=0, metavar="N", help="another seed draws others (0)"),
    argument("--longest", type=whole_number, default=1000, metavar="N",
             help="tokens behind which one is cut, or a tree drawn again (1000)"),
    example="espalier sample -n 3 --seed 1",
)
def sample(args) -> None:
    from espalier.engine import families
    from espalier.tasks.answering import samples

    model = families.load(_model_path(args))
    drawn = model.sample(args.n, args.seed, args.longest)
    out = sys.stdout.buffer  # UTF-8 whatever the terminal is set to
    for text in samples.lines(drawn) if "trees" in model.can else samples.columns(model, drawn):
        out.write(text.encode())
    out.flush()


@GROUP.command(
    "models along a path of rho1: size against quality",
    *PARAMETERS,
    argument("--points", type=whole_number, default=10, metavar="N", help="values of rho1 (10)"),
    argument("--from", type=float, default=None, metavar="RHO1", dest="largest", help="the largest (10)"),
    argument("--to", type=float, default=None, metavar="RHO1", dest="smallest", help="the smallest (0.05)"),
    flag("--sparser", "the smallest model within a standard error of the best"),
    DIRECT,
    flag("--json", "print the points as JSON"),
    example="espalier sweep --points 5",
)
def sweep(args) -> None:
    from espalier.flows.terminal import Terminal
    from espalier.tasks.pages.path_page import as_text
    from espalier.tasks.training import sweep as sweeping

    project = project_of(args)
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
    print_json(figures) if args.json else print(as_text(figures, project.root))

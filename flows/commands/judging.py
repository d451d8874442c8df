"""Commands that say how good a model is: evaluate, compare, cv."""

from pathlib import Path

from espalier.flows.commands.data import READING, reading_of
from espalier.flows.commands.declaring import Group, argument
from espalier.flows.commands.shared import AS_JSON, PARAMETERS, print_json, project_of, table_text, whole_number

GROUP = Group()
LABELLED = argument("file", type=Path, metavar="FILE", help="labelled sequences, written as the model's training files")
MOST_ROWS = 40  # of a table for people


@GROUP.command(
    "the figures of a model on a labelled file: F1 of entities, errors, every label",
    argument("model", type=Path, metavar="MODEL", help="model file, such as models/champion.model"),
    LABELLED,
    AS_JSON,
    *READING,
    example="espalier evaluate models/champion.model test.conll",
)
def evaluate(args) -> None:
    from espalier.engine import families
    from espalier.tasks.judging import on_file

    model = families.load(args.model)
    test = on_file.read_labelled(args.file, reading_of(args, on_file.own_reading(model, args.file)))
    figures = on_file.figures_of(model, test)
    print_json({"model": str(args.model)} | figures) if args.json else print(figures_text(figures))


def figures_text(figures: dict) -> str:
    """What a model does on a file, for people."""
    from espalier.tasks.judging import headline

    lines = [*_told_of(figures), headline.in_one_line(figures, figures["nouns"])]
    if figures["unknown_labels"]:
        shown = ", ".join(figures["unknown_labels"][:5]) + (", …" if len(figures["unknown_labels"]) > 5 else "")
        lines.append(f"{len(figures['unknown_labels'])} labels of the file are not the model's ({shown}): each of "
                     "them is an error")  # fmt: skip
    if figures.get("chunks"):
        rows = [(kind, *_shares(found), f"{found['gold']:,}", f"{found['predicted']:,}", f"{found['correct']:,}")
                for kind, found in figures["chunks"].items()]  # fmt: skip
        lines += ["", table_text(("entity", "precision", "recall", "F1", "in file", "predicted", "right"), rows)]
    rows = [(row["label"], *_shares(row), f"{row['count']:,}", f"{row['predicted']:,}", f"{row['correct']:,}")
            for row in figures["labels"][:MOST_ROWS]]  # fmt: skip
    lines += ["", table_text(("label", "precision", "recall", "F1", "in file", "predicted", "right"), rows)]
    return "\n".join([*lines, *_left(figures["labels"])])


def _told_of(figures: dict) -> list[str]:
    """What the file is."""
    scheme = f", labels in {figures['scheme']}" if figures["scheme"] else ""
    lines = [f"{figures['file']}: {figures['sequences']:,} sequences, {figures['tokens']:,} tokens{scheme}"]
    if figures["left_out"]:
        lines.append(f"{figures['left_out']:,} sequences are left out, because labels of them are not known")
    return lines


def _shares(found: dict) -> list[str]:
    return [f"{100 * found[name]:.2f}" for name in ("precision", "recall", "f1")]


def _left(rows: list) -> list[str]:
    return [f"and {len(rows) - MOST_ROWS} more labels; --json has all"] if len(rows) > MOST_ROWS else []


@GROUP.command(
    "two models on the same labelled file, and whether their difference is more than chance",
    argument("first", type=Path, metavar="A", help="model file"),
    argument("second", type=Path, metavar="B", help="model file; differences are B minus A"),
    LABELLED,
    argument("--rounds", type=whole_number, default=2000, metavar="N", help="resamples of the sequences (2000)"),
    argument("--seed", type=whole_number, default=0, metavar="N", help="of the resamples (0)"),
    AS_JSON,
    *READING,
    example="espalier compare models/champion.model models/candidate.model test.conll",
)
def compare(args) -> None:
    from espalier.engine import families
    from espalier.engine.errors import EspalierError
    from espalier.tasks.judging import on_file
    from espalier.tasks.params import Promote

    if args.rounds < 50:
        raise EspalierError(f"--rounds is {args.rounds}: expected at least 50, an interval of fewer says nothing")
    first, second = families.load(args.first), families.load(args.second)
    test = on_file.read_labelled(args.file, reading_of(args, on_file.own_reading(first, args.file)))
    options = Promote(rounds=args.rounds, seed=args.seed)
    figures = {"models": [str(args.first), str(args.second)]} | on_file.comparison(first, second, test, options)
    print_json(figures) if args.json else print(comparison_text(figures))


def comparison_text(figures: dict) -> str:
    """How two models differ on a file, for people."""
    from espalier.tasks.judging import headline
    from espalier.tasks.pages.page import percent, points

    called = headline.names(figures["measure"], figures["nouns"])
    rows = []
    for name in headline.shown(figures["measure"]):
        values = [figures[side][name] for side in ("first", "second")]
        found = figures["differences"].get(name)
        interval = f"{points(found['low']).removesuffix(' points')} to {points(found['high'])}" if found else ""
        rows.append((called[name], *(percent(value, 2) for value in values), points(values[1] - values[0]), interval))
    lines = [*_told_of(figures), f"A  {figures['models'][0]}", f"B  {figures['models'][1]}", ""]
    lines += [table_text(("", "A", "B", "B - A", f"interval ({figures['level']:.0%})"), rows), ""]
    found = figures["differences"][figures["measure"]]
    verdict = {"first": "A is better", "second": "B is better", None: "no difference that is more than chance"}
    lines.append(f"{verdict[found['better']]} by {called[figures['measure']]}; they agree on "
                 f"{percent(figures['agreement'], 2)} of the tokens")  # fmt: skip
    changed = [row for row in figures["labels"] if row["difference"] or row["low"] or row["high"]]
    rows = [(row["label"], f"{row['count']:,}", f"{100 * row['first_f1']:.2f}", f"{100 * row['second_f1']:.2f}",
             points(row["difference"]), f"{points(row['low']).removesuffix(' points')} to {points(row['high'])}")
            for row in changed[:MOST_ROWS]]  # fmt: skip
    if rows:
        heads = ("F1 of", "in file", "A", "B", "B - A", "interval for all rows")
        lines += ["", table_text(heads, rows), *_left(changed)]
    return "\n".join(lines)


@GROUP.command(
    "cross-validation: each part of the training data tested by a model of the others",
    *PARAMETERS,
    argument("--folds", type=whole_number, default=5, metavar="N", help="parts, and models that are trained (5)"),
    argument("--seed", type=whole_number, default=0, metavar="N", help="by which sequences are put into folds (0)"),
    AS_JSON,
    epilog="The project's own model, data and reports stay as they are.",
    example="espalier cv --folds 10 --set crf.rho1=0.2",
)
def cv(args) -> None:
    from espalier.flows.locks import lease, state_folder
    from espalier.flows.signals import ending_cleanly
    from espalier.flows.terminal import Terminal
    from espalier.tasks.progress import working
    from espalier.tasks.training import cross_validation

    cross_validation.check(args.folds)
    project = project_of(args)
    project.check()
    terminal = Terminal(args.quiet)
    try:
        with ending_cleanly(), lease(project.root, "a cross-validation"):
            progress, folder = terminal.progress_of("cv"), state_folder(project.root) / "cv"
            with working(progress):
                figures = cross_validation.main(project.root, project.params, progress, args.folds, args.seed, folder)
    finally:
        terminal.close()
    print_json(figures) if args.json else print(folds_text(figures))


def folds_text(figures: dict) -> str:
    """The figures of all folds, for people."""
    from espalier.tasks.judging import headline
    from espalier.tasks.pages.page import percent

    called = headline.names(figures["measure"], figures["nouns"])
    keys = [key for key in headline.shown(figures["measure"]) if key in figures["mean"]]
    heads = ("fold", "sequences", *(called[key] for key in keys), "active weights")
    rows = [(str(row["fold"]), f"{row['sequences']:,}", *(percent(row[key], 2) for key in keys), f"{row['active']:,}")
            for row in figures["folds"]]  # fmt: skip
    for name, found in (("mean", figures["mean"]), ("spread", figures["spread"])):
        rows.append((name, "", *(percent(found[key], 2) for key in keys), f"{found['active']:,.0f}"))
    measure = figures["measure"]
    last = (f"{called[measure]} {percent(figures['mean'][measure], 2)} ± {percent(figures['spread'][measure], 2)} "
            f"(mean and standard deviation of {len(figures['folds'])} folds, seed {figures['seed']})")  # fmt: skip
    return f"{table_text(heads, rows)}\n{last}"

"""Commands that set models side by side: tournament."""

from espalier.flows.commands.declaring import Group, argument, flag
from espalier.flows.commands.shared import DIRECT, PARAMETERS, print_json, project_of, table_text

GROUP = Group()

INCOMPLETE = 3  # the code of a tournament in which something that was asked for has no model
CODES = (
    "It trains on the features that are there (`espalier stage weigh` and the stages before make them), each entrant "
    "within memory.limit; models are kept in .espalier/tournament, so that one that was killed trains nothing twice. "
    "The best on the development data becomes the candidate; `espalier promote` decides on it. Exit codes: 0 all that "
    "were asked for have models; 3 some have none, and the others were compared; 1 it failed; 2 the command line was "
    "not understood; 130 or 143 it was interrupted."
)


def names(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


@GROUP.command(
    "models of several families on the same features, side by side",
    *PARAMETERS,
    argument(
        "--families", type=names, metavar="NAMES", help="families, with commas between (all that suit the data)"
    ),
    argument(
        "--with",
        action="append",
        default=[],
        metavar="SETTINGS",
        dest="settings",
        help="one more entrant, with settings of one family in quotes, such as 'crf.rho1=0.1 crf.loss=marginal'",
    ),
    DIRECT,
    flag("--json", "print the figures as JSON"),
    epilog=CODES,
    example="espalier tournament --families crf,hmm,perceptron --with crf.rho1=0.1",
)
def tournament(args) -> int:
    from espalier.flows.signals import ending_cleanly
    from espalier.flows.terminal import Terminal

    project = project_of(args)
    options = {"families": args.families, "settings": args.settings}
    terminal = Terminal(args.quiet)
    try:
        if args.direct:
            from espalier.flows.competition import tournament_direct

            with ending_cleanly():
                figures = tournament_direct(project, options, terminal.progress_of)
        else:
            from espalier.flows.run import run_tournament

            figures = run_tournament(project.root, options, args.params, args.overrides, terminal.progress_of)
    finally:
        terminal.close()
    print_json(figures) if args.json else print(standings_text(figures, project.root))
    return INCOMPLETE if any(row["how"] in ("refused", "failed") for row in figures["others"]) else 0


def standings_text(figures: dict, root) -> str:
    """The entrants, what became of the others and the next step, for people."""
    from espalier.tasks.pages import tournament_page as page
    from espalier.tasks.pages.page import capital, number, percent

    head, by_dev = figures["measure_name"], figures["chosen_by"] == "dev"
    heads = ("entrant", *([f"dev {head}"] if by_dev else []), f"test {head}", "against the winner", "active",
             "trained in", "tokens/s", "calibration")  # fmt: skip
    rows = []
    for row in figures["entrants"]:
        times = figures["times"][row["name"]]
        rows.append((row["name"], *([percent(row["chosen"], 2)] if by_dev else []), percent(row["test"]["value"], 2),
                     page.span(row["against_winner"]), number(row["active"]), page.trained_in(times),
                     page.speed(figures, times), percent(row["calibration_error"], 2)))  # fmt: skip
    lines = [table_text(heads, rows), *(f"{row['name']} is {row['how']}: {row['why']}" for row in figures["others"])]
    lines.append(
        f"{capital(page.verdict(figures))}; it is the candidate now, and `{page.next_command(figures)}` decides on it"
    )
    if (root / ".dvc").is_dir():
        lines.append("not recorded in DVC, which has the model of params.yaml: `dvc checkout` brings that back")
    return "\n".join([*lines, f"page {root / page.PAGE}"])

"""Commands that train and decide: run, stage, plan, promote."""

from espalier.engine.errors import EspalierError
from espalier.flows.commands.declaring import Group, argument, flag
from espalier.flows.commands.shared import AS_JSON, DIRECT, PARAMETERS, print_json, project_of, warn

GROUP = Group()

REFUSED = 3  # the code of a run whose candidate was refused; 1 is a failure, 2 a mistake on the command line
CODES = (
    "Exit codes: 0 the candidate was promoted; 3 it was refused and the champion stays; 1 it failed; 2 the command "
    "line was not understood; 130 or 143 it was interrupted."
)
# As in flows.stages, which would load Polars; a test compares them.
STAGE_NAMES = ("ingest", "template", "weigh", "train", "evaluate", "report")


@GROUP.command(
    "all stages, then the promotion, as a Prefect flow",
    *PARAMETERS,
    DIRECT,
    argument(
        "--add",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="labelled files to add to the data for good (ingest.more)",
    ),
    flag("--json", "print the figures of each step as JSON"),
    epilog=CODES,
    example="espalier run --set crf.rho1=2",
)
def run(args) -> int:
    from espalier.flows.signals import ending_cleanly
    from espalier.flows.terminal import Terminal

    project = project_of(args, args.add)
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
    print_json(figures) if args.json else print(summary(project))
    return _outcome_code(figures["promote"])


def _outcome_code(decision: dict) -> int:
    """0 for a promotion, REFUSED for a refusal."""
    return 0 if decision["promoted"] else REFUSED


def summary(project) -> str:
    """The last words of a run: quality, size, what was decided, where the report is."""
    from espalier.tasks import store
    from espalier.tasks.judging import headline
    from espalier.tasks.shapes import active_of

    metrics = store.read_metrics(project.root)
    nouns = store.read_manifest(project.root)["nouns"]
    decision = store.last_decision(project.root)
    active = active_of(metrics)
    parts = ", ".join(f"{count:,} {kind}" for kind, count in active.items())
    many = f"{sum(active.values()):,}"
    lines = [
        headline.in_one_line(metrics, nouns),
        f"rules {many} ({parts})" if "brackets" in metrics else
        f"active features {many} of {metrics['features']:,} ({parts})",
        *headline.verdict_lines(decision),
        f"report {project.root / store.REPORT}",
    ]
    if project.overridden and project.has_dvc:
        lines.append(
            "not recorded in DVC, because parameters were changed for this run; "
            "edit params.yaml or use `dvc exp run -S section.key=value` to keep it"
        )
    return "\n".join(lines)


@GROUP.command(
    "one stage, as `dvc repro` calls it",
    *PARAMETERS,
    argument("name", choices=STAGE_NAMES, metavar="NAME", help=", ".join(STAGE_NAMES)),
    flag("--json", "print its figures as JSON"),
    example="espalier stage ingest",
)
def stage(args) -> None:
    from espalier.flows.locks import lease
    from espalier.flows.signals import ending_cleanly
    from espalier.flows.terminal import Terminal

    project = project_of(args)
    project.check()
    terminal = Terminal(args.quiet)
    try:
        with ending_cleanly(), lease(project.root, f"stage {args.name}"):
            figures = project.run(args.name, terminal.progress_of(args.name))
    finally:
        terminal.close()
    if args.json:
        print_json(figures)


@GROUP.command(
    "features, bytes and seconds per iteration before training",
    *PARAMETERS,
    AS_JSON,
    example="espalier plan --set crf.rho1=2",
)
def plan(args) -> None:
    from espalier.tasks.training import plan as planning

    project = project_of(args)
    figures = planning.main(project.root, project.params)
    if args.json:
        print_json(figures)
    else:
        print(plan_text(figures, project.params.train.max_iterations))
    planning.check(figures)


def plan_text(figures: dict, iterations: int) -> str:
    """What a training will need, for people."""
    virtual, needed = figures["virtual_features"], figures["bytes"]
    parts = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in needed.items() if name != "all")
    most = "" if figures["exact"] else "at most "
    seconds = figures["seconds_per_iteration"]
    return "\n".join([
        f"{figures['sequences']:,} sequences, {figures['tokens']:,} positions, {figures['labels']} labels, "
        f"{figures['observations']:,} observations",
        f"features  {virtual['all']:,} possible "
        f"({', '.join(f'{count:,} {kind}' for kind, count in virtual.items() if kind != 'all')}); "
        f"{most}{figures['features']:,} in the model",
        f"memory    {needed['all'] / 2**20:,.0f} MiB of {figures['allowed_bytes'] / 2**20:,.0f} allowed: {parts}",
        f"time      about {seconds:.2f} s an iteration, {seconds * iterations:,.0f} s for train.max_iterations = "
        f"{iterations}",
        *([cluster_text(figures["cluster"])] if "cluster" in figures else []),
        *([kernels_text(figures)] if "rows" in figures else []),
        *([f"long      {figures['advice']}"] if "advice" in figures else []),
    ])  # fmt: skip


def kernels_text(figures: dict) -> str:
    """What an iteration of a kernel machine asks of its rows, for people."""
    pairs = figures["pairs_of_attributes"]
    written = f"; {pairs:,} attributes and pairs of them written out at most" if pairs else ""
    return f"kernels   {figures['kernel_evaluations']:,} an iteration, of {figures['rows']:,} distinct rows{written}"


def cluster_text(cluster: dict) -> str:
    """What a training on the workers of a cluster will need of them, for people."""
    parts = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in cluster["worker_bytes"].items() if name != "all")
    out, back = (cluster["moved"][way] / 2**20 for way in ("out", "in"))
    return (
        f"workers   {cluster['parts']} of the {cluster['workers']} of {cluster['name']}, the largest with "
        f"{cluster['worker_bytes']['all'] / 2**20:,.0f} MiB: {parts}; an evaluation moves up to {out:,.0f} MiB out and "
        f"{back:,.0f} back"
    )


@GROUP.command(
    "candidate against champion, once more",
    *PARAMETERS,
    flag("--force", "promote even a worse candidate; it is recorded"),
    argument("--reason", metavar="TEXT", help="why it is forced"),
    argument("--by", metavar="NAME", help="who forces it (user and machine)"),
    epilog=CODES,
    example='espalier promote --force --reason "the old labels were wrong"',
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
    project = project_of(args)
    terminal = Terminal(args.quiet)
    with lease(project.root, "a promotion by hand"):
        try:
            progress = terminal.progress_of("promote")
            record = promotion.main(project.root, project.params, progress, args.force, args.reason, args.by)
        finally:
            terminal.close()
        by_hand(project, record, warn)
    print("\n".join(headline.verdict_lines(record)))
    return _outcome_code(record)

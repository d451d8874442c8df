"""Commands that look at earlier retrainings and bring them back: history, rollback, restore."""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.declaring import Group, argument, flag
from espalier.flows.commands.shared import AS_JSON, print_json, warn, whole_number

GROUP = Group()


@GROUP.command(
    "all retrainings: quality, size, time, drift, and what was decided",
    argument("--last", type=whole_number, default=0, metavar="N", help="only the newest N"),
    AS_JSON,
    example="espalier history --last 10",
)
def history(args) -> None:
    from espalier.tasks.keeping import history as past

    rows = past.read(args.project.resolve())[-args.last :]
    if args.json:
        print_json(rows)
    else:
        print(past.as_text(rows) if rows else "no retraining has been recorded; `espalier run` makes the first")


@GROUP.command(
    "put an earlier champion back",
    argument("to", nargs="?", default="1", metavar="TO", help="how many champions back, or a model's hash (1)"),
    argument("--reason", metavar="TEXT", help="why; it is recorded"),
    argument("--by", metavar="NAME", help="who does it (user and machine)"),
    example='espalier rollback --reason "worse on names"',
)
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
        by_hand(project, record, warn)
    kept = archive.folder(project.root, record["restored_from"])
    print(f"champion {digest[:12]} again (it was {(record['from_sha256'] or 'none')[:12]}); its report is in {kept}")


@GROUP.command(
    "bring back model, metrics and report of an earlier retraining",
    argument("id", metavar="ID", help="of the retraining, or the hash of its model; the beginning will do"),
    argument("--to", type=Path, metavar="DIR", help="a new folder (restored/ID)"),
    flag("--in-place", "as the candidate and its report, for `promote`"),
    example="espalier restore 20261118 --to earlier",
)
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

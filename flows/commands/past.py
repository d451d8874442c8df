"""Commands that look at earlier retrainings and bring them back: history, rollback, restore."""

from espalier.engine.errors import EspalierError
from espalier.flows.commands.shared import print_json, warn


def history(args) -> None:
    from espalier.tasks.keeping import history as past

    rows = past.read(args.project.resolve())[-args.last :]
    if args.json:
        print_json(rows)
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
        by_hand(project, record, warn)
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

"""Commands on files of labelled sequences: convert, profile."""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.shared import print_json, project_of


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
        print_json(found)
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

        project = project_of(args)
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

"""Commands on files of labelled sequences: convert, profile."""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.declaring import Group, argument, flag
from espalier.flows.commands.shared import AS_JSON, PARAMETERS, print_json, project_of

GROUP = Group()
# What is said of files that no parameter file speaks of.
READING = (
    argument(
        "--from",
        dest="format",
        metavar="FORMAT",
        help="conll, conllu, jsonl, arrow, parquet, crfsuite or brackets (by the name of the file)",
    ),
    argument("--separator", help="conll: between columns (any run of blanks and tabs)"),
    argument("--comment", help="conll: lines that begin with this are left out (none)"),
    argument("--label-column", type=int, metavar="N", help="conll: column of the label (-1, the last)"),
    argument("--label", metavar="NAME", help="other formats: column of the label (UPOS, labels, label)"),
    argument("--columns", metavar="NAMES", help="other formats: input columns, with commas between"),
    argument("--sequence", metavar="NAME", help="arrow, parquet: column that tells sequences apart (sequence)"),
    argument("--unknown", metavar="MARK", help="label of tokens whose label is not known, such as _ (none)"),
    argument("--set-separator", metavar="TEXT", help="between labels of which one is right, such as | (none)"),
)
UNLABELLED = flag("--unlabelled", "the files have no labels")


def reading_of(args, options=None):
    """How files are read: what was said by `READING`, else `options`, else the defaults; '' says none."""
    from dataclasses import replace

    from espalier.tasks.formats import Reading

    names = ("format", "separator", "comment", "label_column", "columns", "label", "sequence", "unknown",
             "set_separator")  # fmt: skip
    given = {name: value if value != "" else None for name in names if (value := getattr(args, name)) is not None}
    if given.get("columns"):
        given["columns"] = tuple(given["columns"].split(","))
    return replace(options or Reading(), **given)


@GROUP.command(
    "write labelled sequences in another format or tagging scheme",
    argument("input", metavar="IN", help="a file or a pattern in quotes, plain, .gz or .zst"),
    argument("output", type=Path, metavar="OUT", help="the file to write; .gz and .zst compress it"),
    argument("--to", metavar="FORMAT", help="conll, jsonl or arrow (by the name of OUT)"),
    argument("--scheme", metavar="SCHEME", help="convert labels to iob1, iob2, bioes or bilou (as they are)"),
    argument("--scheme-from", metavar="SCHEME", help="the scheme that they have (by the labels)"),
    *READING,
    UNLABELLED,
    example="espalier convert train.conll train.jsonl --scheme bioes",
)
def convert(args) -> None:
    from dataclasses import replace

    from espalier.tasks import formats

    options = replace(reading_of(args), scheme_in=args.scheme_from, scheme_out=args.scheme)
    blocks = formats.read_blocks(formats.expand(Path("."), args.input), options, not args.unlabelled)
    marks = {"unknown": options.unknown, "set_separator": options.set_separator}
    counts = formats.write(args.output, blocks, args.to, args.separator, **marks)
    print(f"{args.output}: {counts['sequences']:,} sequences, {counts['tokens']:,} tokens")


@GROUP.command(
    "what a corpus holds and what in it looks wrong",
    *PARAMETERS,
    argument("files", nargs="*", metavar="FILE", help="files or patterns (the project's source)"),
    AS_JSON,
    *READING,
    UNLABELLED,
    example="espalier profile train.conll",
)
def profile(args) -> None:
    from espalier.tasks.sources import profile as profiling

    found = profiling.profile(*_profiled(args))
    if args.json:
        print_json(found)
        return
    for row in profiling.rows(found):
        print(f"{row['what']:<46} {row['value']:>14}" + (f"  {row['examples']}" if row["examples"] else ""))


def _profiled(args) -> tuple:
    """Blocks, names of files and what places are counted in: of the files named, else of the project's source.

    Of trees the tags are looked at.
    """
    from espalier.tasks import formats
    from espalier.tasks.sources import with_tags

    if args.files:
        root, patterns, options = Path("."), args.files, reading_of(args)
    else:
        from espalier.tasks.ingest import SOURCES
        from espalier.tasks.sources import files

        project = project_of(args)
        root, ingest = project.root, project.params.ingest
        if SOURCES[ingest.source] is not files.read:
            if reading_of(args) != formats.Reading():
                raise EspalierError(
                    f"ingest.source is {ingest.source}: it is no file that options could say how to read"
                )
            return SOURCES[ingest.source](root, ingest).parts["train"](), [ingest.source], "line"
        if not ingest.path:
            raise EspalierError("ingest.path is null: name the file to profile, here or there")
        patterns, options = [ingest.path, *(ingest.more or [])], reading_of(args, files.reading(ingest))
    paths = [path for pattern in patterns for path in formats.expand(root, pattern)]
    item = formats.format_of(paths[0], options.format)[1]
    blocks = formats.read_located(paths, options, not args.unlabelled)
    return map(with_tags, blocks) if item.trees else blocks, paths, item.unit

"""Commands that use or choose a model: tag, explain, inspect, sweep."""

import json
import sys
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.shared import print_json, project_of

MODEL_HELP = "model file (models/champion.model)"
# As in tasks.store, which would load Polars; a test compares them.
CHAMPION = "models/champion.model"


def _model_path(args) -> Path:
    if args.model:
        return args.model
    champion = args.project / CHAMPION
    if champion.is_file():
        return champion
    from espalier.tasks.keeping.champion import path_of

    return path_of(args.project)


def tag(args) -> None:
    from espalier.engine.model import Model
    from espalier.tasks.answering import stream

    asked = stream.Asked(
        args.words, args.separator, args.scores, args.nbest, args.format, args.scheme, args.known, args.unknown,
        args.source, args.decode, args.scheme_out,
    )  # fmt: skip
    out = sys.stdout.buffer  # UTF-8 whatever the terminal is set to
    for answer in stream.tag_file(Model.load(_model_path(args)), args.file, asked):
        out.write(answer)
        out.flush()


def explain(args) -> None:
    from espalier.engine.model import Model
    from espalier.tasks.answering import explain as explaining
    from espalier.tasks.answering import stream

    model = Model.load(_model_path(args))
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
    from espalier.engine.model import Model
    from espalier.tasks.answering.explain import strongest

    path = _model_path(args)
    model = Model.load(path)
    rows = strongest(model, args.label, args.top)
    lists = {name: f"{len(lines):,} lines" for name, lines in model.lists.items()}
    info = model.info | ({"lists": lists} if lists else {})
    if args.picture:
        from espalier.tasks.pages.picture import write_picture

        write_picture(args.picture, model, args.template)
    if args.json:
        print_json({"model": str(path), "info": info, "labels": model.labels, "templates": model.templates,
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

"""The commands that exchange models with other programs: import, export."""

import os
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.declaring import Group, argument

GROUP = Group()


@GROUP.command(
    "make a model of CRFsuite, Wapiti or CRF++ (crf_learn -t), or an HMM as text, one of ours",
    argument("model", type=Path, metavar="MODEL", help="the model file of the other program"),
    argument("-o", "--output", type=Path, metavar="OUT", help="the file to write (MODEL with the ending .model)"),
    argument("--labels", type=Path, metavar="FILE", help="HMM as text: the names of its states, one a line (0, 1, …)"),
    example="espalier import ner.crfsuite -o ner.model",
)
def import_(args) -> None:
    from espalier.engine import importing

    model = importing.read(args.model, args.labels)
    output = args.output or args.model.with_suffix(".model")
    _refuse_existing(output)
    model.save(output)
    print(f"{output}: {len(model.theta):,} active weights, {len(model.labels)} labels, from {args.model}")


@GROUP.command(
    "write a hidden Markov model as text (HMM n m), or its transitions as a graph for Graphviz",
    argument("model", type=Path, metavar="MODEL", help="a model file of the family hmm"),
    argument("-o", "--output", type=Path, metavar="OUT", required=True, help="the file to write"),
    argument("--format", choices=("hmm", "dot"), default="hmm", help="text that import reads again, or a graph (hmm)"),
    argument("--threshold", type=float, default=0.01, metavar="P", help="dot: transitions at least so likely (0.01)"),
    example="espalier export models/champion.model -o states.dot --format dot",
)
def export(args) -> None:
    from espalier.engine import families
    from espalier.engine.importing import dot, hmm_text

    model = families.load(args.model)
    model.require("states")
    _refuse_existing(args.output)
    text = dot.as_dot(model.states(), args.threshold) if args.format == "dot" else hmm_text.write_hmm(model)
    temporary = args.output.with_name(f".{args.output.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, args.output)
    finally:
        temporary.unlink(missing_ok=True)
    print(f"{args.output}: {len(model.labels)} states, from {args.model}")


def _refuse_existing(output: Path) -> None:
    if output.exists():
        raise EspalierError(f"{output} is there already: name another file with -o, or remove it")

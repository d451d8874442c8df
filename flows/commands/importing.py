"""The command that makes models of other programs ours: import."""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.commands.declaring import Group, argument

GROUP = Group()


@GROUP.command(
    "make a model of CRFsuite, Wapiti or CRF++ (crf_learn -t) one of ours",
    argument("model", type=Path, metavar="MODEL", help="the model file of the other program"),
    argument("-o", "--output", type=Path, metavar="OUT", help="the file to write (MODEL with the ending .model)"),
    example="espalier import ner.crfsuite -o ner.model",
)
def import_(args) -> None:
    from espalier.engine import importing

    model = importing.read(args.model)
    output = args.output or args.model.with_suffix(".model")
    if output.exists():
        raise EspalierError(f"{output} is there already: name another file with -o, or remove it")
    model.save(output)
    print(f"{output}: {len(model.theta):,} active weights, {len(model.labels)} labels, from {args.model}")

"""Commands for the first minute: init, schema, completion."""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.engine.text.pattern_sets import NAMES
from espalier.flows.commands.data import READING, reading_of
from espalier.flows.commands.declaring import Group, argument
from espalier.flows.commands.shared import print_json

GROUP = Group()


@GROUP.command(
    "a project for your data: parameters and templates that fit, with comments",
    argument("files", nargs="*", metavar="FILE", help="labelled files or patterns; none: the built-in task"),
    argument("--dev", metavar="FILE", help="development data (a file whose name says so, else a split)"),
    argument("--test", metavar="FILE", help="test data (a file whose name says so, else a split)"),
    argument("--templates", metavar="NAME", help=f"templates that come along: {', '.join(NAMES)} (those that fit)"),
    *READING,
    epilog="Nothing that is there is overwritten. What the files do not show is asked for by an option.",
    example="espalier init train.conll --test test.conll",
)
def init(args) -> None:
    from espalier.tasks import store
    from espalier.tasks.starting import texts

    root = args.project
    _refuse_to_overwrite(root, (texts.PARAMS, texts.TEMPLATES))
    made, said = _new_project(args)
    if (root / texts.IGNORED).exists():
        said.append(_told_of_ignored(root / texts.IGNORED, texts.WRITTEN_BY_RUNS))
        del made[texts.IGNORED]
    root.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        store.write_text(root / name, text)
    print("\n".join([*said, f"written: {', '.join(str(root / name) for name in sorted(made))}", *_next(root)]))


def _refuse_to_overwrite(root: Path, names: tuple[str, ...]) -> None:
    if root.exists() and not root.is_dir():
        raise EspalierError(f"{root}: is a file; expected a folder for the project, a new one or one that is there")
    there = [name for name in names if (root / name).exists()]
    if there:
        raise EspalierError(
            f"{root.resolve()} has {' and '.join(there)} already, which would be overwritten: choose another folder "
            "(-C DIR), or move them away"
        )


def _new_project(args) -> tuple[dict[str, str], list[str]]:
    """The texts of the files by their names, and what was seen and decided."""
    from espalier.tasks.starting import texts

    if not args.files:
        if args.dev or args.test:
            raise EspalierError("--dev and --test name parts of your data: name the training file first")
        if args.templates:
            raise EspalierError("--templates names templates for words of your data: name the training file first")
        return texts.for_built_in(), ["no file: the built-in task, English spelling to phonemes by a dictionary"]
    from espalier.tasks.starting.looking import look, roles_of

    files, by_name = roles_of(args.files, args.dev, args.test)
    found = look(files, reading_of(args))
    made, decided = texts.for_files(args.project, found, args.templates)
    sizes = f"{found.profile['sequences']:,} sequences, {found.profile['tokens']:,} tokens"
    return made, [f"{', '.join(map(str, files['train']))}: {sizes}", *by_name, *found.said, *decided]


def _told_of_ignored(path: Path, wanted: tuple[str, ...]) -> str:
    """What a .gitignore that is there should have."""
    lacks = [line for line in wanted if line not in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return f"{path} stays as it is" + (f"; add to it what runs write: {' '.join(lacks)}" if lacks else "")


def _next(root: Path) -> list[str]:
    """The next command, and how to keep versions where nobody does yet."""
    folder = "" if root.resolve() == Path.cwd() else f"-C {root} "
    lines = [f"next: espalier {folder}run"]
    if not (root / ".dvc").is_dir():
        begin, folder = _dvc_init(root.resolve()), root.resolve()
        lines.append(f"to keep versions of data and models: {begin} in {folder}, before the run")
    return lines


def _dvc_init(root: Path) -> str:
    """How DVC begins in a folder: git comes first, and may be that of a folder above."""
    if (root / ".git").exists():
        return "dvc init"
    above = any((folder / ".git").exists() for folder in root.parents)
    return "dvc init --subdir" if above else "git init && dvc init"


@GROUP.command(
    "the parameters as a JSON schema, by which an editor completes and checks params.yaml",
    epilog="Put `# yaml-language-server: $schema=params.schema.json` into the first line of params.yaml, or name the "
    "schema in the settings of your editor.",
    example="espalier schema > params.schema.json",
)
def schema(args) -> None:
    from espalier.tasks.params_schema import schema as made

    print_json(made())


@GROUP.command(
    "a script by which your shell completes commands, options and parameters",
    argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish"),
    epilog="To have it always, put the line of the example into ~/.bashrc or ~/.zshrc; for fish write the script to "
    "~/.config/fish/completions/espalier.fish.",
    example="source <(espalier completion bash)",
)
def completion(args) -> None:
    from espalier.flows import cli
    from espalier.flows.completion import script
    from espalier.tasks.params import Params

    parameters = [f"{section}.{key}" for section, keys in Params().as_dict().items() for key in keys]
    print(script(args.shell, cli.DECLARED, cli.BEFORE, parameters), end="")

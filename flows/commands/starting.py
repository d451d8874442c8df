"""Commands for the first minute: schema, completion."""

from espalier.flows.commands.declaring import Group, argument
from espalier.flows.commands.shared import print_json

GROUP = Group()


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

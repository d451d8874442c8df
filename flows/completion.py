"""Scripts by which a shell completes the command line: made of the declarations of the commands."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from espalier.flows.commands.declaring import Argument, Command

FILES, FOLDERS, ANYTHING = "files", "folders", "anything"
FILE_NAMES = ("FILE", "IN", "MODEL", "A", "B")  # metavars of files whose names are taken as texts


class Proposed(NamedTuple):
    """An argument as a shell sees it: its names (none for what stands alone), and what stands behind them."""

    names: tuple[str, ...]
    help: str
    metavar: str
    takes: str | None  # FILES, FOLDERS, ANYTHING; None: an option without a value
    words: tuple[str, ...] = ()  # of which one is expected


class CommandLine(NamedTuple):
    """A command with what is expected on its line."""

    name: str
    help: str
    options: tuple[Proposed, ...]
    alone: tuple[Proposed, ...]  # arguments without a name

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(name for option in self.options for name in option.names)


def script(shell: str, commands: Sequence[Command], before: Sequence[Argument], parameters: Sequence[str]) -> str:
    """The script for bash, zsh or fish; `before` are options of `espalier` itself, `parameters` names for --set."""
    lines = [line_of(command.name, command.help, command.arguments, parameters) for command in commands]
    return SHELLS[shell](line_of("espalier", "", before, parameters), lines)


def line_of(name: str, help: str, arguments: Sequence[Argument], parameters: Sequence[str]) -> CommandLine:
    found = [_expected(argument, parameters) for argument in arguments]
    options = [one for one in found if one.names]
    options.append(Proposed(("-h", "--help"), "show this help message and exit", "", None))
    return CommandLine(name, help, tuple(options), tuple(one for one in found if not one.names))


def _expected(argument: Argument, parameters: Sequence[str]) -> Proposed:
    names, settings = argument
    own = names if names[0].startswith("-") else ()
    metavar = str(settings.get("metavar") or names[-1].lstrip("-").upper())
    words = tuple(settings.get("choices") or ())
    if settings.get("dest") == "overrides":
        words = tuple(f"{name}=" for name in parameters)
    if settings.get("action") == "store_true":
        takes = None
    elif metavar == "DIR":
        takes = FOLDERS
    else:
        takes = FILES if settings.get("type") is Path or metavar in FILE_NAMES else ANYTHING
    return Proposed(own, settings.get("help", ""), metavar, takes, words)


# bash -----------------------------------------------------------------------------------------------

BASH = """\
# Completion of espalier for bash: source <(espalier completion bash)
_espalier() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= words= i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
            -C|--project) ((i++)) ;;
            -*) ;;
            *) command=${{COMP_WORDS[i]}}; break ;;
        esac
    done
    case "$command $before" in
{values}
        *)
            case "$command $current" in
                {options}
            esac ;;
    esac
    local IFS=$' \\t\\n'
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F _espalier espalier
"""  # where nothing is proposed, files are


def bash(top: CommandLine, commands: Sequence[CommandLine]) -> str:
    values = [_bash_value(line, option) for line in (top, *commands) for option in line.options if option.takes]
    options = [_bash_options(line, commands if line is top else ()) for line in (top, *commands)]
    return BASH.format(values="\n".join(values), options="\n                ".join(options))


def _bash_value(line: CommandLine, option: Proposed) -> str:
    """What is proposed behind an option that takes a value."""
    command = "" if line.name == "espalier" else line.name
    pattern = "|".join(f"'{command} {name}'" for name in option.names)
    if option.words:
        space = "compopt -o nospace 2>/dev/null; " if option.words[0].endswith("=") else ""
        does = f"{space}words='{' '.join(option.words)}'"
    else:
        does = "return"
    return f"        {pattern}) {does} ;;"


def _bash_options(line: CommandLine, commands: Sequence[CommandLine]) -> str:
    """What is proposed where no value is due: options behind a dash, else commands, words or files."""
    command = "" if line.name == "espalier" else line.name
    words = [word for one in line.alone for word in one.words] + [one.name for one in commands]
    if not words and not line.alone:
        words = list(line.words)
    rest = f"words='{' '.join(words)}'" if words else "return"
    return f"'{command} -'*) words='{' '.join(line.words)}' ;;\n                '{command} '*) {rest} ;;"


# zsh ------------------------------------------------------------------------------------------------


def zsh(top: CommandLine, commands: Sequence[CommandLine]) -> str:
    named = " ".join(f'{line.name}\\:"{_zsh_text(line.help)}"' for line in commands)
    cases = "\n".join(f"        {line.name}) _arguments {' '.join(_zsh_specs(line))} ;;" for line in commands)
    return (
        "#compdef espalier\n# Completion of espalier for zsh: source <(espalier completion zsh), after compinit\n"
        "_espalier() {\n    local context state line\n    typeset -A opt_args\n"
        f"    _arguments -C {' '.join(_zsh_specs(top))} '1:command:(({named}))' '*::argument:->rest'\n"
        f"    [[ $state == rest ]] || return\n    case $line[1] in\n{cases}\n    esac\n}}\n"
        'if [ "$funcstack[1]" = "_espalier" ]; then _espalier "$@"; else compdef _espalier espalier; fi\n'
    )


def _zsh_specs(line: CommandLine) -> list[str]:
    specs = [f"'{name}[{_zsh_text(option.help)}]{_zsh_value(option)}'" for option in line.options
             for name in option.names]  # fmt: skip
    return specs + [f"'*{_zsh_value(one)}'" for one in line.alone[:1]]


def _zsh_value(one: Proposed) -> str:
    if one.takes is None:
        return ""
    words, others = f"({' '.join(one.words)})", {FILES: "_files", FOLDERS: "_files -/", ANYTHING: " "}
    does = words if one.words else others[one.takes]
    return f":{one.metavar.replace(':', ' ')}:{does}"


def _zsh_text(text: str) -> str:
    """A text inside single quotes, brackets and colons."""
    for sign in '\\[]:"`$':
        text = text.replace(sign, f"\\{sign}")
    return text.replace("'", "'\\''")


# fish -----------------------------------------------------------------------------------------------


def fish(top: CommandLine, commands: Sequence[CommandLine]) -> str:
    lines = ["# Completion of espalier for fish: espalier completion fish | source", "complete -c espalier -f"]
    lines += [_fish_option(option, "__fish_use_subcommand") for option in top.options]
    for line in commands:
        lines.append(f"complete -c espalier -n __fish_use_subcommand -a {line.name} -d {_fish_text(line.help)}")
        within = f"__fish_seen_subcommand_from {line.name}"
        lines += [_fish_option(option, within) for option in line.options]
        lines += [f"complete -c espalier -n {_fish_text(within)}{_fish_value(one)}" for one in line.alone]
    return "\n".join(lines) + "\n"


def _fish_option(option: Proposed, within: str) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    behind = f" -r{_fish_value(option)}" if option.takes else ""
    return f"complete -c espalier -n {_fish_text(within)} {names}{behind} -d {_fish_text(option.help)}"


def _fish_value(one: Proposed) -> str:
    if one.words:
        return f" -f -a {_fish_text(' '.join(one.words))}"
    return {FILES: " -F", FOLDERS: " -f -a '(__fish_complete_directories)'", ANYTHING: " -f"}[one.takes or ANYTHING]


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[CommandLine, Sequence[CommandLine]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}

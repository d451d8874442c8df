"""How a command is declared: its help, its arguments and the function that runs it, stated once and side by side.

A module of commands makes a `Group` and puts `@GROUP.command(help, argument(…), …, example=…)` before each function,
whose name is that of the command (`import_` that of `import`, a word of Python). The function takes the parsed
arguments; what it returns is the exit code, None is 0.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Argument(NamedTuple):
    """An option or a positional argument, as `argparse.ArgumentParser.add_argument` takes it."""

    names: tuple[str, ...]
    settings: dict


def argument(*names: str, **settings) -> Argument:
    """An argument with the names and settings that argparse knows."""
    return Argument(names, settings)


def flag(name: str, help: str) -> Argument:
    """An option without a value: False, and True where it is given."""
    return argument(name, action="store_true", help=help)


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, whose help ends with an example that stands as it was written."""

    example: str | None = None

    def format_help(self) -> str:
        return super().format_help() + (f"\nexample:\n  {self.example}\n" if self.example else "")


class Command(NamedTuple):
    """A command with all that the parser must know of it."""

    name: str
    help: str
    arguments: tuple[Argument, ...]
    run: Callable[[argparse.Namespace], int | None]
    epilog: str | None = None
    example: str | None = None

    def add_to(self, parsers) -> None:
        """Add its parser to the subparsers of `espalier`, which make a `CommandParser`."""
        description = self.help[0].upper() + self.help[1:] + "."
        parser = parsers.add_parser(self.name, help=self.help, description=description, epilog=self.epilog)
        parser.example = self.example
        for names, settings in self.arguments:
            parser.add_argument(*names, **settings)


class Group:
    """The commands of a module, in the order in which they are declared."""

    def __init__(self):
        self.commands: list[Command] = []

    def command(
        self, help: str, *arguments: Argument, epilog: str | None = None, example: str | None = None
    ) -> Callable:
        """A decorator that declares a function as the command of its name and leaves it as it is."""

        def declare(function: Callable[[argparse.Namespace], int | None]) -> Callable:
            self.commands.append(Command(function.__name__.rstrip("_"), help, arguments, function, epilog, example))
            return function

        return declare

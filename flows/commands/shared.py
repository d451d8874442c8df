"""What several groups of commands use: the project, and how figures and warnings are printed."""

import argparse
import json
import sys


def count(text: str) -> int:
    """A whole number of at least 0, for argparse."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def project_of(args, add=()):
    from espalier.flows.pipeline import Project

    return Project.open(args.project.resolve(), args.params, args.overrides, add)


def print_json(data) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False, sort_keys=True))


def warn(text: str) -> None:
    print(f"espalier: {text}", file=sys.stderr)

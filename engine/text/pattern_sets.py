"""Templates that come along, each a file in `patterns/`: those of LABELSEQ appendix B, S1 to S3; `letters`, for letters
to phonemes; `trees`, of grammars.

A project names one as `template.file: espalier:S3`, `espalier init --templates S3` copies it to be changed.
"""

import difflib
from pathlib import Path

from espalier.engine.errors import EspalierError, quoted

PREFIX = "espalier:"
NAMES = ("S1", "S2", "S3", "S3-5", "letters", "trees")


def is_shipped(name: str | None) -> bool:
    """Whether a name of templates is that of a file that comes along, not of one in the project."""
    return bool(name) and name.startswith(PREFIX)


def shipped_text(name: str) -> str:
    """The text of the file, `name` with or without `espalier:` before it."""
    short = name.removeprefix(PREFIX)
    if short not in NAMES:
        known = {one.lower(): one for one in NAMES}
        near = difflib.get_close_matches(short.lower(), known, 1, 0.5)
        guess = f"did you mean {PREFIX}{known[near[0]]}? " if near else ""
        raise EspalierError(
            f"there are no templates {quoted(PREFIX + short)}: {guess}those that come along are "
            + ", ".join(PREFIX + one for one in NAMES)
        )
    return (Path(__file__).parent / "patterns" / f"{short}.txt").read_text(encoding="utf-8")


def shipped_lines(name: str) -> list[str]:
    """Its lines."""
    return shipped_text(name).split("\n")

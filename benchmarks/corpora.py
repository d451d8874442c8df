"""The corpora as the engine wants them, read as experiments read them; a corpus that is not there skips a case."""

from pathlib import Path

import polars as pl

from benchmarks.job import Skip
from espalier.tasks.experiments.problems import FILES, Problem, make_problem, read

__all__ = ["Problem", "make_problem", "paths", "read_part", "read_tokens"]
QUICK = 300  # sequences of a corpus in a quick run


def paths(data: str, corpus: str) -> tuple[Path, Path]:
    """The files of a corpus; Skip if they are not there."""
    found = tuple(Path(data) / name for name in FILES[corpus])
    for path in found:
        if not path.is_file():
            raise Skip(f"no {path}: name the folder of corpora with --data or ESPALIER_DATA")
    return found


def read_part(data: str, corpus: str, part: int, quick: bool) -> pl.DataFrame:
    """Tokens of one file of a corpus; in a quick run of its first sequences."""
    return read(paths(data, corpus)[part], QUICK if quick else None)


def read_tokens(data: str, corpus: str, quick: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tokens of train and test."""
    return read_part(data, corpus, 0, quick), read_part(data, corpus, 1, quick)

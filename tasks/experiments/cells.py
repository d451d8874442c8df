"""Cells that are finished are kept, each in a file named after its key, with a hash of all that it depends on.

That is its arguments, the bytes of the files that it reads, the sources of the engine, and those of the module of
its function and of every stage module which that one imports, directly or not. Change any, and the cell is
computed again.
"""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.tasks import store
from espalier.tasks.code_hash import code_hash
from espalier.tasks.experiments import Cell

FOLDER = ".espalier/reproduce"
LIBRARIES = ("numpy", "numba")  # their random numbers and machine code are in the results


def place(root: Path, experiment: str, cell: Cell) -> Path:
    return root / FOLDER / experiment / f"{cell.key}.json"


def cell_hash(cell: Cell) -> str:
    """Changes with anything that the result depends on."""
    said = {
        "function": f"{cell.function.__module__}.{cell.function.__qualname__}", "arguments": cell.arguments,
        "files": {name: store.file_hash(path) for name, path in cell.files.items()},
        "code": code_hash(cell.function), "libraries": {name: version(name) for name in LIBRARIES},
    }  # fmt: skip
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def finished(root: Path, experiment: str, cell: Cell) -> dict | None:
    """The result of a cell that was computed before; None when there is none, or it is another's or damaged."""
    path = place(root, experiment, cell)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return kept["result"] if kept["hash"] == cell_hash(cell) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compute(root: Path, experiment: str, cell: Cell) -> dict:
    """The result of a cell, computed now and kept."""
    before = cell_hash(cell)
    result = cell.function(**cell.arguments, **cell.files)
    store.write_json(place(root, experiment, cell), {"hash": before, "result": result})
    return result


def check_keys(cells: list[Cell]) -> None:
    """Two cells of one key would overwrite each other."""
    keys = [cell.key for cell in cells]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise EspalierError(f"two cells have the key {twice!r}: expected a key of its own for each")

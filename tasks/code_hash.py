"""A hash of the code that a function runs: what was computed by other code is computed again."""

import ast
import functools
import hashlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from espalier.engine.runtime.kernel_cache import source_hash


@functools.cache
def code_hash(function: Callable) -> str:
    """A hash of the engine and of the modules of tasks that the function needs.

    The engine counts as a whole: it loads its solvers by name, which no list of imports shows.
    """
    digest = hashlib.sha256(source_hash().encode())
    for name, path in sorted(modules_of(function.__module__).items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def modules_of(module: str) -> dict[str, Path]:
    """{name: file} of a module and of what it imports among our tasks, wherever in it the import stands."""
    own = sys.modules[module]
    found, waiting = {}, [(module, Path(own.__file__))]
    while waiting:
        name, path = waiting.pop()
        if name not in found:
            found[name] = path
            waiting += [(other, file) for other in sorted(_imports(path)) if (file := _file(other)) is not None]
    return found


def _imports(path: Path) -> set[str]:
    """Names that may be modules of tasks: of `from a import b` both a and a.b."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith("espalier.tasks.")}


def _file(module: str) -> Path | None:
    """The source of a module; None when the name is not one, but something inside one."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None

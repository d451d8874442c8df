"""Where compiled kernels are kept.

numba's own cache looks at one source file at a time, so a change in a callee of another module goes unnoticed and old
machine code runs. So the kernels of a module lie in a folder that is named after a hash of all it rests on: its own
source, the engine's modules that it imports, and those that they import. A change elsewhere compiles nothing anew.
"""

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from espalier.engine.runtime import fresh_memory

ENGINE = Path(__file__).resolve().parents[1]


def source_hash(folder: Path = ENGINE) -> str:
    """Sixteen hex digits that change whenever any source file below `folder` does."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


IMPORT = re.compile(
    rb"^[ \t]*(?:from espalier\.engine([\w.]*) import (\([^)]*\)|[^\n]*)|import espalier\.engine([\w.]*))", re.MULTILINE
)


@cache
def rests_on(path: Path, folder: Path = ENGINE) -> str:
    """Sixteen hex digits of a source file and of those in `folder` that it imports, directly or through others."""
    reached, waiting = {path}, [path]
    while waiting:
        new = set(_imported(waiting.pop(), folder)) - reached
        reached |= new
        waiting += new
    digest = hashlib.sha256()
    for one in sorted(reached):
        name = one.relative_to(folder).as_posix() if one.is_relative_to(folder) else one.name
        digest.update(name.encode() + b"\0" + _source(one) + b"\0")
    return digest.hexdigest()[:16]


@cache
def _source(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _imported(path: Path, folder: Path) -> list[Path]:
    """The engine's files that this one imports, wherever in it; a name may be a module or something inside one."""
    names = set()
    for module, several, plain in IMPORT.findall(_source(path)):
        module = (module or plain).decode().strip(".").replace(".", "/")
        names |= {module} | {f"{module}/{name.decode()}".strip("/") for name in re.findall(rb"\w+", several)}
    places = (folder / place for name in names for place in _beside(name))
    return [place for place in places if place.is_file()]


def _beside(name: str) -> Iterator[str]:
    """A module and the heads of the rooms that it is in: to import it runs them, too."""
    yield f"{name}.py"
    parts = name.split("/") if name else []
    for depth in range(len(parts) + 1):
        yield "/".join([*parts[:depth], "__init__.py"])


def candidates() -> list[Path]:
    """Places for the cache, best first: set by the user, the environment, the user's, a temporary one."""
    places = []
    if os.environ.get("NUMBA_CACHE_DIR"):
        places.append(Path(os.environ["NUMBA_CACHE_DIR"]))
    if sys.prefix != sys.base_prefix:
        places.append(Path(sys.prefix) / "var" / "cache")
    home = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME") and os.path.join(os.environ["HOME"], ".cache"))
    if home:
        places.append(Path(home))
    user = getattr(os, "getuid", lambda: 0)()
    places.append(Path(tempfile.gettempdir()) / f"espalier-{user}")
    return places


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (_trusted(folder) and _trusted(folder.parent)):
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _trusted(folder: Path) -> bool:
    """Cached kernels are executed: only folders of this user or of root may hold them."""
    return not hasattr(os, "getuid") or folder.stat().st_uid in (os.getuid(), 0)


def cache_directory() -> Path | None:
    """The first writable candidate; None when nothing is writable."""
    filled = fresh_memory.kind()
    name = "espalier-kernels" + (f"-{filled}" if filled else "")
    return next((place / name for place in candidates() if _usable(place / name)), None)

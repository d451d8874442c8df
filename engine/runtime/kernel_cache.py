"""Where compiled kernels are kept.

numba's own cache looks at one source file at a time, so a change in a callee of
another module goes unnoticed and old machine code runs. Our directory is named
after a hash of every source of the engine: other sources, other directory.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from espalier.engine.runtime import fresh_memory

ENGINE = Path(__file__).parents[1]


def source_hash(folder: Path = ENGINE) -> str:
    """Sixteen hex digits that change whenever any source file below `folder` does."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


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
    """The first writable candidate, one folder per hash of the sources; None when nothing is writable."""
    filled = fresh_memory.kind()
    name = f"espalier-{source_hash()}" + (f"-{filled}" if filled else "")
    return next((place / name for place in candidates() if _usable(place / name)), None)

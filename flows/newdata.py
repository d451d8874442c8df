"""What a run does before its first stage and after its data are read: the champion pinned, added files written down."""

import os
import shutil
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.tasks import formats, store
from espalier.tasks.judging import news
from espalier.tasks.params import Params
from espalier.tasks.params_text import with_value


def relative(root: Path, files: list[str]) -> list[str]:
    """Files or patterns as params.yaml names them: from the folder of the project where they are in it.

    A name counts from the working directory, as in a shell, and from the project where nothing is there.
    """
    found = []
    for name in files:
        here = Path(os.path.abspath(name))
        path = here if _matches(here) else root / name
        if not _matches(path):
            raise EspalierError(f"--add {name}: there is no such file here or in {root}; check its name and folder")
        path = Path(os.path.abspath(path))
        found.append(str(path.relative_to(root)) if path.is_relative_to(root) else str(path))
    return found


def _matches(path: Path) -> bool:
    try:
        return bool(formats.expand(Path(path.anchor), str(path.relative_to(path.anchor))))
    except EspalierError:
        return False


def with_files(params: Params, root: Path, files: list[str]) -> list[str]:
    """Add files to `ingest.more`; those that are new to the parameters, as they are named there."""
    new = [name for name in dict.fromkeys(relative(root, files))
           if name != params.ingest.path and name not in (params.ingest.more or [])]  # fmt: skip
    if new:
        params.ingest.more = [*(params.ingest.more or []), *new]
    return new


def write_down(file: Path, more: list[str]) -> None:
    """`ingest.more` in a parameter file; all else in it stays as it was."""
    text = file.read_bytes().decode("utf-8")
    with store.replacing(file) as temporary:
        temporary.write_bytes(with_value(text, "ingest", "more", more).encode("utf-8"))


def stays(files: list[str], params_file: Path) -> str:
    """What is to be known of files that were added in a run that did not end with a promotion."""
    them = "it" if len(files) == 1 else "them"
    return (
        f"{', '.join(files)} stays in ingest.more of {params_file.name}, and the next run trains on {them} again; to "
        f"set {them} aside take {them} out there"
    )


def pin_champion(root: Path, params: Params) -> bool:
    """Keep what the champion is and knows, for a warm start and for the news; True when the copy is another one now."""
    news.remember(root)
    champion, start = root / store.CHAMPION, root / store.START
    if params.train.initial != "champion" or not champion.is_file():
        return False
    if start.is_file() and store.file_hash(start) == store.file_hash(champion):
        return False
    with store.replacing(start) as temporary:
        shutil.copyfile(champion, temporary)
    return True

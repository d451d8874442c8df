"""The model in use: whether it is there, whether it is the one on record, and what to do when it is not.

A champion whose file is missing is lost, and not absent: nothing may be trained, promoted or used in its place until
someone has said what is to be done.
"""

from contextlib import suppress
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.tasks import store
from espalier.tasks.keeping import archive, history

POINTER = f"{store.CHAMPION}.dvc"  # git has it, and with it DVC finds the model again
WENT_LIVE = ("promoted", "forced", "rolled back")  # outcomes in the history


def on_record(root: Path) -> str | None:
    """The hash of the champion that decisions, or else the history, name; None when no model ever went live."""
    line = archive.reigns(store.read_decisions(root))
    if line:
        return line[-1]
    with suppress(EspalierError):  # a damaged history stands in nobody's way: decisions and DVC know more
        lived = [row.get("model_sha256") for row in history.read(root) if row["outcome"] in WENT_LIVE]
        return lived[-1] if lived else None
    return None


def lost(root: Path) -> str | None:
    """What has happened and what brings it back, when the file of a champion on record is missing; else None."""
    if (root / store.CHAMPION).is_file():
        return None
    known, tracked = on_record(root), (root / POINTER).is_file()
    if not known and not tracked:
        return None
    ways = []
    if tracked:
        ways.append(f"`dvc checkout {POINTER}` brings it back (`dvc pull {POINTER}` in a fresh clone)")
    if known and archive.kept_as(root, known):
        ways.append(f"`espalier rollback {known[:12]}` takes it out of {store.ARCHIVE}")
    ways = ways or [f"put its file back from a copy of yours, or run `espalier restore` on one of {store.ARCHIVE}"]
    whose = f"model {known[:12]} is the champion on record" if known else f"{POINTER} names one"
    return (
        f"{root / store.CHAMPION}: missing, but {whose}; {'; '.join(ways)}. To do without it, "
        '`espalier promote --force --reason "…"` promotes the candidate that is there'
    )


def require(root: Path) -> None:
    """Refuse to go on while a champion is on record and its file is missing."""
    if text := lost(root):
        raise EspalierError(text)


def path_of(root: Path) -> Path:
    """The file of the champion, for those who use it; never a model that was not promoted."""
    require(root)
    path, candidate = root / store.CHAMPION, root / store.CANDIDATE
    if path.is_file():
        return path
    other = f"; {candidate} was never promoted: name it to use it all the same" if candidate.is_file() else ""
    raise EspalierError(f"{path}: there is no champion here; `espalier run` trains one, or name a model file{other}")


def stranger(root: Path) -> str | None:
    """A word when the file that lies there is not the champion on record: put there by hand, or half checked out."""
    path, known = root / store.CHAMPION, on_record(root)
    if not path.is_file() or known in (None, found := store.file_hash(path)):
        return None
    return (
        f"{store.CHAMPION} is model {found[:12]}, not {known[:12]}, which was promoted last: it was put there by hand "
        f"or by git or DVC; `espalier rollback {known[:12]}` takes the promoted one back"
    )

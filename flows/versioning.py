"""DVC and git: record what a run has made, so that `dvc status` is clean and `dvc repro` has nothing to do.

Recording trusts the caller: a step is recorded only after it succeeded.
"""

import logging
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.pipeline import Project
from espalier.flows.signals import POLL_SECONDS
from espalier.tasks import store
from espalier.tasks.keeping import archive, champion

os.environ.setdefault("DVC_NO_ANALYTICS", "true")

GIT_SECONDS = 60
BUSY_SECONDS = 30  # that another DVC command may take before we give up
# What says which data, parameters and models a run had; the last are DVC's, and keep what it tracks out of git.
RECORDS = ("dvc.lock", "dvc.yaml", "params.yaml", store.DECISIONS, store.HISTORY, "models/*.dvc",
           f"{store.ARCHIVE}/*.dvc", f"{store.ARCHIVE}/.gitignore",
           "data/.gitignore", "data/tokens/.gitignore", "data/weights/.gitignore", "models/.gitignore",
           "reports/.gitignore", "reports/curves/.gitignore")  # fmt: skip


def record(project: Project, name: str) -> bool:
    """`dvc commit` of a stage, `dvc add` of the champion after a promotion; False when nothing was recorded.

    A stage that ran with other parameters than those of params.yaml is not recorded: the
    lock file would claim what is not so.
    """
    if not project.has_dvc:
        return False
    if name == "promote":
        return track(project, store.CHAMPION)
    if project.overridden:
        return False
    target = f"{project.root / 'dvc.yaml'}:{name}"  # not the one of the working directory
    _with_dvc(project, lambda repository: repository.commit(target, force=True))
    return True


def track(project: Project, path: str) -> bool:
    """`dvc add` of a file that no stage writes; False when there is nothing to add or nobody to add it to."""
    if not project.has_dvc or not (project.root / path).exists():
        return False
    _with_dvc(project, lambda repository: repository.add(str(project.root / path)))
    return True


def track_archive(project: Project) -> None:
    """One .dvc file for each retraining that is kept, so that two clones may retrain without contradicting each other.

    What is no longer kept is no longer tracked; git and the remote still have it.
    """
    if not project.has_dvc:
        return
    place = project.root / store.ARCHIVE
    ignored = place / ".gitignore"
    if ignored.is_file() and ignored.read_text(encoding="utf-8") == "*\n":  # of earlier versions: it hid the .dvc files
        ignored.unlink()
    pointers = {path.stem for path in place.glob("*.dvc")}
    new = [name for name in archive.names(project.root) if name not in pointers]
    if new:
        _with_dvc(project, lambda repository: repository.add([str(place / name) for name in new]))
    decisions, keep = store.read_decisions(project.root), project.params.version.keep
    for name in archive.surplus(project.root, {*pointers, *new}, decisions, keep):
        _with_dvc(project, lambda repository, name=name: repository.remove(str(place / f"{name}.dvc")))


# Champion and DVC in step ---------------------------------------------------------------------------


def keep_in_step(project: Project) -> None:
    """Before a run: what DVC records as the champion is the one that lies there, and DVC sees that record.

    A run that was killed after a promotion has left the record behind: it is made good here. Anything else that
    differs has come by git or by hand, and is for the user to decide.
    """
    if text := ignored_by_git(project.root):
        raise EspalierError(text)
    path = project.root / store.CHAMPION
    if not path.is_file() or not (project.root / champion.POINTER).is_file():
        return
    if not _with_dvc(project, lambda repository: repository.status([str(project.root / champion.POINTER)])):
        return
    found = store.file_hash(path)
    if found != champion.on_record(project.root):
        raise EspalierError(
            f"{path}: model {found[:12]} lies there, but {champion.POINTER} records another champion, as after `git "
            f"pull`; `dvc pull {champion.POINTER}` takes the recorded one, `dvc add {store.CHAMPION}` keeps this one"
        )
    track(project, store.CHAMPION)


def ignored_by_git(root: Path) -> str | None:
    """A word when git ignores what must travel with the project: DVC deletes what it tracks in ignored folders."""
    with opened(root) as repository:
        models = f"{root / Path(store.CHAMPION).parent}{os.sep}"
        if repository.scm.is_ignored(models) or repository.scm.is_ignored(str(root / champion.POINTER)):
            return (
                f"git ignores {models} or the .dvc files in it, so DVC does not see {champion.POINTER}: `dvc checkout` "
                "and `dvc pull` would delete the champion; name files in .gitignore (/models/*.model), not the folder"
            )
        for path in (store.DECISIONS, store.HISTORY):
            if repository.scm.is_ignored(str(root / path)):
                return f"git ignores {path}, so nobody else would see it; take it out of .gitignore"
    return None


def push(project: Project) -> list[str]:
    """`dvc push` to the remote of `version.push`; a word of warning when that did not work."""
    remote = project.params.version.push
    if not remote or project.overridden:
        return []
    if not project.has_dvc:
        return [f"version.push is {remote!r}, but {project.root} is no DVC project; run `dvc init` there"]
    try:
        _with_dvc(project, lambda repository: repository.push(remote=remote))
    except Exception as error:  # of any storage that DVC knows
        text = (str(error) or type(error).__name__).splitlines()[0]
        return [f"data and models could not be pushed to {remote!r}: {text}; `dvc push -r {remote}` tries again"]
    return []


def tag_of(project: Project, entry: dict) -> str | None:
    """The name of the tag that a run gets; None when it gets none."""
    return f"espalier/{entry['id']}" if project.params.version.git == "tag" and not project.overridden else None


def commit(project: Project, entry: dict) -> list[str]:
    """`git commit` of the files that record a run, and a tag, as `version.git` says; a word of warning if it failed.

    Whatever else the user has staged stays staged and is not part of the commit.
    """
    if project.params.version.git == "none" or project.overridden:
        return []
    try:
        paths = {str(path.relative_to(project.root)) for name in RECORDS for path in project.root.glob(name)}
        _commit(project.root, sorted(paths), entry)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        text = next((line.strip() for line in said.splitlines() if line.strip()), type(error).__name__)
        return [f"the run could not be committed to git: {text}"]
    return []


def _commit(root: Path, paths: list[str], entry: dict) -> None:
    known = set(_git(root, "ls-files", "-z", "--", *paths).split("\0"))
    new = [path for path in paths if path not in known]
    try:
        if new:  # so that they can be committed by name
            _git(root, "add", "--force", "--intent-to-add", "--", *new)
        if _git(root, "status", "--porcelain", "--", *paths):
            text = f"{entry['kind'].capitalize()}: {entry['outcome']} {(entry.get('model_sha256') or '')[:12]}"
            # Only these paths, as they lie there; hooks are for what people write.
            _git(root, "commit", "-q", "--no-verify", "--only", "-m", text, "-m", entry.get("reason", ""), "--", *paths)
    except subprocess.SubprocessError:
        if new:
            _git(root, "rm", "-q", "--cached", "--force", "--ignore-unmatch", "--", *new)
        raise
    if entry.get("tag"):
        _git(root, "tag", entry["tag"])


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True,
                          timeout=GIT_SECONDS, stdin=subprocess.DEVNULL)  # fmt: skip
    return done.stdout


def _with_dvc(project: Project, work: Callable):
    """What `work` returns of the repository; a DVC command of somebody else's is waited for."""
    from dvc.lock import LockError

    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with opened(project.root) as repository:
                return work(repository)
        except LockError as error:
            if time.monotonic() > end:
                text = " ".join(str(error).split())
                raise EspalierError(f"another DVC command is at work in this project, wait for it: {text}") from None
        time.sleep(POLL_SECONDS)


def opened(root: Path):
    """The repository of DVC, told to be quiet."""
    from dvc.repo import Repo
    from dvc.scm import SCMError

    _without_its_bars()
    try:
        repository = Repo(str(root))
    except SCMError as error:
        raise EspalierError(f"DVC cannot work in {root}: {error}; `git init` there, or remove .dvc") from None
    repository.scm_context.quiet = True  # no advice on git commands after each step
    return repository


def _without_its_bars() -> None:
    """The terminal has a bar of ours: DVC draws none into it. Its warnings stay."""
    from dvc.ui import ui

    logging.getLogger("dvc").setLevel(logging.WARNING)  # it tells of every update of the lock file
    for name in ("dvc.progress", "dvc_data.callbacks"):  # bars are drawn unless these are quieter than errors
        logging.getLogger(name).setLevel(logging.CRITICAL)
    ui.error_console.quiet = True  # where it spins

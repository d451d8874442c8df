"""DVC and git: record what a run has made, so that `dvc status` is clean and `dvc repro` has nothing to do.

Recording trusts the caller: a step is recorded only after it succeeded.
"""

import logging
import os
import subprocess
from pathlib import Path

from flows.pipeline import Project
from tasks import store

os.environ.setdefault("DVC_NO_ANALYTICS", "true")

GIT_SECONDS = 60
# What says which data, parameters and models a run had; the last are DVC's, and keep what it tracks out of git.
RECORDS = ("dvc.lock", "dvc.yaml", "params.yaml", store.DECISIONS, store.HISTORY, "models/*.dvc",
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
        return _add_champion(project)
    if project.overridden:
        return False
    with _repository(project) as repository:
        repository.commit(f"{project.root / 'dvc.yaml'}:{name}", force=True)  # not the one of the working directory
    return True


def _add_champion(project: Project) -> bool:
    return track(project, store.CHAMPION)


def track(project: Project, path: str) -> bool:
    """`dvc add` of a file that no stage writes; False when there is nothing to add or nobody to add it to."""
    if not project.has_dvc or not (project.root / path).exists():
        return False
    with _repository(project) as repository:
        repository.add(str(project.root / path))
    return True


def push(project: Project) -> list[str]:
    """`dvc push` to the remote of `version.push`; a word of warning when that did not work."""
    remote = project.params.version.push
    if not remote or project.overridden:
        return []
    if not project.has_dvc:
        return [f"version.push is {remote!r}, but {project.root} is no DVC project; run `dvc init` there"]
    try:
        with _repository(project) as repository:
            repository.push(remote=remote)
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


def _repository(project: Project):
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.WARNING)  # it tells of every update of the lock file
    repository = Repo(str(project.root))
    repository.scm_context.quiet = True  # no advice on git commands after each step
    return repository

"""DVC: record what a run has made, so that `dvc status` is clean and `dvc repro` has nothing to do.

Recording trusts the caller: a step is recorded only after it succeeded.
"""

import logging
import os

from flows.pipeline import Project
from tasks import store

os.environ.setdefault("DVC_NO_ANALYTICS", "true")


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


def _repository(project: Project):
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.WARNING)  # it tells of every update of the lock file
    repository = Repo(str(project.root))
    repository.scm_context.quiet = True  # no advice on git commands after each step
    return repository

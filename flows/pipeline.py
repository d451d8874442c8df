"""What all drivers share: one stage at a time, in the order of the table, then the promotion."""

import glob
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from espalier.flows import newdata
from espalier.flows.stages import STAGES, named_files, refresh_dvc_yaml, stage
from espalier.tasks import promote, report, store
from espalier.tasks.judging import news
from espalier.tasks.keeping import champion
from espalier.tasks.params import Faults, Params, load_params
from espalier.tasks.progress import Progress, working

STEPS = (*(item.name for item in STAGES), "promote")


@dataclass
class Project:
    """A folder with its parameters; `overridden` when they are not those of its params.yaml.

    `added` are files that `ingest.more` names for the first time: the parameter file gets them once they are read.
    """

    root: Path
    params: Params
    overridden: bool = False
    file: Path | None = None
    added: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # of these what this run has written there
    force: bool = False  # promote even a worse candidate
    seconds: dict[str, float] = field(default_factory=dict)
    step: str | None = None  # the one that was begun last

    @classmethod
    def open(
        cls, root: Path, params_file: Path | None = None, overrides: list[str] = (), add: list[str] = ()
    ) -> "Project":
        path = params_file or root / "params.yaml"
        own = path.resolve() == (root / "params.yaml").resolve()
        params = load_params(path, list(overrides))
        added = newdata.with_files(params, root.resolve(), list(add))
        return cls(root, params, bool(overrides) or not own, path, added)

    def check(self) -> None:
        """Refuse what can be known to be wrong before anything is written, all of it at once."""
        faults = Faults()
        for item in STAGES:
            for name in item.named:
                for value in named_files(self.params, name, self.root):
                    if not _is_there(self.root, value):
                        faults.add(f"{name} is {value!r}: there is no such file in {self.root}")
            with faults.collected():
                for path in item.lists(self.root, self.params):
                    if not (self.root / path).exists():
                        faults.add(f"the {item.name}s name the list {path!r}: there is no such file in {self.root}")
        cases = self.params.promote.cases
        if cases and not (self.root / cases).is_file():
            faults.add(f"promote.cases is {cases!r}: there is no such file in {self.root}")
        faults.tell()

    def run(self, name: str, progress: Progress) -> dict:
        """Run one step and return its figures."""
        self.step, begin = name, time.perf_counter()
        function = partial(promote.main, force=self.force) if name == "promote" else stage(name).main
        try:
            with working(progress):
                figures = function(self.root, self.params, progress)
        except Exception as error:
            if self.kept:
                error.add_note(newdata.stays(self.kept, self.file))
            raise
        if name == "promote" and self.kept and not figures["promoted"]:
            progress.say(newdata.stays(self.kept, self.file))
        if name == "ingest" and self.added:
            self._keep_added(progress)
        if name == "template" and (self.root / store.CHAMPION).is_file():
            found = news.compare(self.root)
            progress.say(news.text(found))
            figures |= news.figures(found)
        self.seconds[name] = time.perf_counter() - begin
        return figures

    def finish_report(self) -> None:
        """The report once more, now that the decision and the history are known.

        Only if it was made in this run: else the files that it is made of may be of another.
        """
        if "report" in self.seconds:
            report.main(self.root, self.params, Progress(), self.seconds)

    def _keep_added(self, progress: Progress) -> None:
        """What was added could be read: from now on it belongs to the project."""
        newdata.write_down(self.file, self.params.ingest.more)
        progress.say(f"ingest.more in {self.file.name} now names {', '.join(self.added)}")
        self.added, self.kept = [], self.added
        self._refresh()

    def _refresh(self) -> bool:
        return not self.overridden and refresh_dvc_yaml(self.root, self.params)

    def prepare(self) -> bool:
        """Check, pin the champion, and bring dvc.yaml up to date; True when dvc.yaml was written.

        A champion that is lost, or that DVC would not keep, stops the run before anything is trained.
        """
        self.check()
        if not self.force:
            champion.require(self.root)
        if self.has_dvc:
            from espalier.flows.versioning import keep_in_step

            keep_in_step(self)
        if newdata.pin_champion(self.root, self.params):
            from espalier.flows.versioning import track

            track(self, store.START)
        return not self.added and self._refresh()

    @property
    def has_dvc(self) -> bool:
        return (self.root / ".dvc").is_dir()


def _is_there(root: Path, value: str) -> bool:
    """Whether there is a file of this name, or one that the pattern matches."""
    pattern = glob.has_magic(value) and any(glob.iglob(value, root_dir=root, recursive=True))
    return pattern or (root / value).exists()


def run_direct(project: Project, progress_of: Callable[[str], Progress]) -> dict[str, dict]:
    """All steps without Prefect; each stage is recorded by DVC once it has succeeded."""
    from espalier.flows.locks import lease
    from espalier.flows.records import recorded
    from espalier.flows.versioning import record

    figures = {}
    with (
        lease(project.root, "a retraining"),
        recorded(project, lambda text: progress_of("record").say(text)) as decisions,
    ):
        project.prepare()
        for name in STEPS:
            figures[name] = project.run(name, progress_of(name))
            record(project, name)
        decisions.append(figures["promote"])
    return figures


def sweep_direct(project: Project, options: dict, progress_of: Callable[[str], Progress]) -> dict:
    """The path of rho1 without Prefect; its figures."""
    from espalier.flows.locks import lease
    from espalier.tasks.training import sweep

    with lease(project.root, "a sweep"):
        progress = progress_of("sweep")
        with working(progress):
            return sweep.main(project.root, project.params, progress, **options)

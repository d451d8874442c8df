"""What all drivers share: one stage at a time, in the order of the table, then the promotion."""

import glob
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import EspalierError
from flows.stages import STAGES, refresh_dvc_yaml, stage
from tasks import promote, report
from tasks.params import Params, load_params
from tasks.progress import Progress

STEPS = (*(item.name for item in STAGES), "promote")


@dataclass
class Project:
    """A folder with its parameters; `overridden` when they are not those of its params.yaml."""

    root: Path
    params: Params
    overridden: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    step: str | None = None  # the one that was begun last

    @classmethod
    def open(cls, root: Path, params_file: Path | None = None, overrides: list[str] = ()) -> "Project":
        path = params_file or root / "params.yaml"
        own = path.resolve() == (root / "params.yaml").resolve()
        return cls(root, load_params(path, list(overrides)), bool(overrides) or not own)

    def check(self) -> None:
        """What can be known to be wrong before anything is written."""
        for item in STAGES:
            for name in item.named:
                section, key = name.split(".")
                value = getattr(getattr(self.params, section), key)
                if value and not _is_there(self.root, value):
                    raise EspalierError(f"{name} is {value!r}: there is no such file in {self.root}")
            for path in item.lists(self.root, self.params):
                if not (self.root / path).exists():
                    raise EspalierError(
                        f"the {item.name}s name the list {path!r}: there is no such file in {self.root}"
                    )

        cases = self.params.promote.cases
        if cases and not (self.root / cases).is_file():
            raise EspalierError(f"promote.cases is {cases!r}: there is no such file in {self.root}")

    def run(self, name: str, progress: Progress) -> dict:
        """Run one step and return its figures."""
        self.step, begin = name, time.perf_counter()
        function = promote.main if name == "promote" else stage(name).main
        figures = function(self.root, self.params, progress)
        self.seconds[name] = time.perf_counter() - begin
        if name == "promote":
            self.finish_report()
        return figures

    def finish_report(self) -> None:
        """The report once more, now that the decision is known; DVC keeps this one.

        Only if it was made in this run: else the files that it is made of may be of another.
        """
        if "report" not in self.seconds:
            return
        from flows.versioning import record

        report.main(self.root, self.params, Progress(), self.seconds)
        record(self, "report")

    def prepare(self) -> bool:
        """Check, and bring dvc.yaml up to date; True when dvc.yaml was written."""
        self.check()
        return not self.overridden and refresh_dvc_yaml(self.root, self.params)

    @property
    def has_dvc(self) -> bool:
        return (self.root / ".dvc").is_dir()


def _is_there(root: Path, value: str) -> bool:
    """Whether there is a file of this name, or one that the pattern matches."""
    pattern = glob.has_magic(value) and any(glob.iglob(value, root_dir=root, recursive=True))
    return pattern or (root / value).exists()


def run_direct(project: Project, progress_of: Callable[[str], Progress]) -> dict[str, dict]:
    """All steps without Prefect; each stage is recorded by DVC once it has succeeded."""
    from flows.locks import alone
    from flows.records import recorded
    from flows.versioning import record

    figures = {}
    with (
        alone(project.root / ".espalier" / "run.lock", "another run is under way in this project"),
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
    from flows.locks import alone
    from tasks import sweep

    with alone(project.root / ".espalier" / "run.lock", "another run is under way in this project"):
        return sweep.main(project.root, project.params, progress_of("sweep"), **options)

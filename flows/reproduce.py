"""The flow `reproduce`: cells of experiments as Prefect tasks, the comparison with the source on the dashboard.

From the command line come in through `flows.run`, which sets the environment first.
"""

from collections.abc import Iterator
from pathlib import Path

from prefect import Task, flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from espalier.engine.runtime import threads
from espalier.flows.experiments import LOCK, REFUSAL, Reproduction, chosen, corpora_folder, summary
from espalier.flows.live import bars_until_the_end, run_name, unharmed
from espalier.flows.locks import alone
from espalier.flows.permitted import asked, folder_of
from espalier.flows.retrain import Bar, Both, listener_of
from espalier.tasks.experiments import Cell, Settings
from espalier.tasks.progress import working


def cell_task(work: Reproduction, cell: Cell) -> Task:
    """A cell as a task without parameters: Prefect would search them for results of other tasks."""

    @task(name=work.name, task_run_name=cell.key, cache_policy=NO_CACHE, persist_result=False)
    def compute() -> None:
        work.compute(cell)

    return compute


def report_task(work: Reproduction, computed: int) -> Task:
    @task(name="report", task_run_name=f"report of {work.name}", cache_policy=NO_CACHE, persist_result=False)
    def write() -> dict:
        return work.write(computed)

    return write


def publish(name: str, figures: dict) -> None:
    """The comparison as an artefact on the dashboard."""
    with unharmed(f"the report of {name}"):
        text = Path(figures["paths"]["md"]).read_text(encoding="utf-8")
        create_markdown_artifact(text, f"reproduce-{name}", "The source's figures beside ours")


def one_by_one(work: Reproduction, waiting: list[Cell]) -> Iterator[str]:
    """Compute cells in turn; the key of each when it is finished."""
    for cell in waiting:
        cell_task(work, cell)()
        yield cell.key


def side_by_side(work: Reproduction, waiting: list[Cell]) -> Iterator[str]:
    """The same with several at a time, in the order in which they end."""
    keys = {cell_task(work, cell).submit(): cell.key for cell in waiting}
    for future in as_completed(list(keys)):
        future.result()
        yield keys[future]


def run_experiment(root: Path, name: str, settings: Settings) -> dict:
    """Cells that are not finished fan out; when all are done, the report."""
    work = Reproduction.open(root, name, settings)
    waiting = work.missing()
    outside = listener_of.get()
    progress = Both(outside(name), Bar(name)) if outside else Bar(name)
    with working(progress):
        progress.begin(len(waiting), "cell")
        for key in (one_by_one if work.experiment.serial else side_by_side)(work, waiting):
            progress.step(note=key)
    figures = report_task(work, len(waiting))()
    progress.end(summary(figures))
    get_run_logger().info("%s: %s", name, summary(figures))
    publish(name, figures)
    return figures


@flow(name="reproduce", flow_run_name=run_name, persist_result=False, retries=0)
def reproduce(root: str = ".", name: str = "all", quick: bool = False) -> dict[str, dict]:
    """Compute experiments of the sources again and set our figures beside theirs.

    Args:
        root: Folder of the project that is served; no other is accepted. Finished cells are kept in its .espalier,
            reports go to reports/reproduce.
        name: Name of an experiment, or all
        quick: Few replications
    """
    if asked.get() is not None:
        folder, settings = asked.get()
    else:
        folder = folder_of(root)
        settings = Settings(quick, corpora_folder(folder))
    names, figures = chosen(name, settings)
    with alone(folder / LOCK, REFUSAL), bars_until_the_end():
        for key in names:
            figures[key] = run_experiment(folder, key, settings)
    return figures


def with_threads():
    """The flow, with as many tasks at a time as the process has threads."""
    return reproduce.with_options(task_runner=ThreadPoolTaskRunner(max_workers=threads.threads()))

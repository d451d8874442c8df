"""A tournament as a Prefect flow: an entrant is a task, several at a time; one task sets them side by side.

From the command line come in through `flows.run`, which sets the environment first.
"""

import threading

from prefect import Task, flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from espalier.flows import findings
from espalier.flows.competition import Turns, begun, told
from espalier.flows.live import bars_until_the_end, run_name, unharmed
from espalier.flows.locks import lease
from espalier.flows.permitted import checked_entrants, project_of
from espalier.flows.retrain import DELAYS, RETRIES, Bar, Both, listener_of, may_pass
from espalier.tasks.progress import Progress, working
from espalier.tasks.tournament.competing import Competition, Place, at_once
from espalier.tasks.tournament.entrants import Entrant


def entrant_task(work: Competition, entrant: Entrant, place: Place, progress: Progress) -> Task:
    """An entrant as a task without parameters: Prefect would search them for results of other tasks."""

    @task(
        name="entrant", task_run_name=entrant.name, description="one model of a tournament", cache_policy=NO_CACHE,
        persist_result=False, retries=RETRIES, retry_delay_seconds=DELAYS, retry_condition_fn=may_pass,
    )  # fmt: skip
    def train() -> str:
        outcome = work.attempt(entrant, progress, place)
        get_run_logger().info("%s: %s%s", entrant.name, outcome.how, f": {outcome.why}" if outcome.why else "")
        return outcome.how

    return train


def finish_task(work: Competition, progress: Progress) -> Task:
    """All models asked and set side by side."""

    @task(name="standings", task_run_name="standings", cache_policy=NO_CACHE, persist_result=False)
    def finish() -> dict:
        return work.finish(progress)

    return finish


def publish(figures: dict) -> None:
    """The standings as a table on the dashboard."""
    with unharmed("the standings of the tournament"):
        create_table_artifact(findings.tournament_table(figures), "tournament", f"{figures['winner']} wins")


def train_all(work: Competition, place: Place, progress: Progress, terminal: Progress) -> None:
    """Each entrant once, several at a time; one that fails is a failed task and no failed tournament.

    A terminal hears of each iteration, the server of each entrant.
    """
    lock = threading.Lock()
    waiting = {entrant_task(work, one, place, Turns(terminal, one, lock)).submit(): one for one in work.entrants}
    for future in as_completed(list(waiting)):
        future.result(raise_on_failure=waiting[future].name not in work.outcomes)
        with lock:
            told(work, waiting[future], progress)


@flow(name="tournament", flow_run_name=run_name, persist_result=False, retries=0)
def tournament(root: str = ".", options: dict | None = None, overrides: list[str] | None = None) -> dict:
    """Train families of models, and settings of one, on the features that are there, and set them side by side.

    The best on the development data becomes the candidate; promoting it is another step.

    Args:
        root: Folder of the project that is served; no other is accepted.
        options: families and settings, lists of texts, as `espalier tournament` takes them.
        overrides: Parameters to use instead of those in the file, such as crf.solver=pqn
    """
    project = project_of(root, overrides or [])
    entrants = checked_entrants(options or {})
    outside = listener_of.get()
    terminal = outside("tournament") if outside else Progress()
    progress = Both(terminal, Bar("tournament"))
    with lease(project.root, "a tournament"), bars_until_the_end(), working(progress):
        with begun(project, entrants, progress, at_once(project.params)) as (work, place):
            train_all(work, place, progress, terminal)
        figures = finish_task(work, progress)()
        publish(figures)
    return figures


def with_threads(count: int):
    """The flow, with so many tasks at a time."""
    return tournament.with_options(task_runner=ThreadPoolTaskRunner(max_workers=count))

"""The path of rho1 as a Prefect flow: one task, because each point begins with the one before.

From the command line come in through `flows.run`, which sets the environment first.
"""

from prefect import Task, flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from espalier.flows import findings
from espalier.flows.live import bars_until_the_end, run_name, unharmed
from espalier.flows.locks import lease
from espalier.flows.permitted import project_of
from espalier.flows.pipeline import Project
from espalier.flows.retrain import DELAYS, RETRIES, Bar, Both, listener_of, may_pass
from espalier.tasks.progress import working
from espalier.tasks.training import sweep as sweeping


def publish(figures: dict) -> None:
    """The points as a table on the dashboard."""
    with unharmed("the points of the sweep"):
        title = f"Models along a path of rho1; chosen {figures['chosen']:.4g}"
        create_table_artifact(findings.sweep_table(figures), "sweep", title)


def path_task(project: Project, options: dict) -> Task:
    """The whole path as a task without parameters: Prefect would search them for results of other tasks."""

    @task(
        name="sweep", task_run_name="sweep", description="models along a path of rho1", cache_policy=NO_CACHE,
        persist_result=False, retries=RETRIES, retry_delay_seconds=DELAYS, retry_condition_fn=may_pass,
    )  # fmt: skip
    def path() -> dict:
        outside = listener_of.get()
        progress = Both(outside("sweep"), Bar("sweep")) if outside else Bar("sweep")
        with working(progress):
            figures = sweeping.main(project.root, project.params, progress, **options)
        get_run_logger().info("sweep: chosen rho1 %.4g of %d points", figures["chosen"], len(figures["points"]))
        publish(figures)
        return figures

    return path


@flow(name="sweep", flow_run_name=run_name, persist_result=False, retries=0)
def sweep(root: str = ".", options: dict | None = None, overrides: list[str] | None = None) -> dict:
    """Train along a path of rho1 on the features that are there, and choose by the development data.

    Args:
        root: Folder of the project that is served; no other is accepted.
        options: points, largest, smallest and sparser, as `espalier sweep` takes them.
        overrides: Parameters to use instead of those in the file, such as crf.solver=pqn
    """
    project = project_of(root, overrides or [])
    with lease(project.root, "a sweep"), bars_until_the_end():
        return path_task(project, options or {})(return_state=True).result()

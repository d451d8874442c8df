"""The retraining flow: every step of the pipeline as a Prefect task, and what it found on the dashboard.

Prefect loads this module by its name, also in the processes of scheduled runs. From the
command line come in through `flows.run`, which sets the environment first.
"""

import json
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from prefect import Task, flow, get_client, get_run_logger, task
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.runtime import deployment, flow_run
from prefect.states import Cancelled, Completed, Crashed, State
from pydantic import Field

from espalier.engine.families import FAMILIES
from espalier.engine.runtime.compiling import Compiling
from espalier.flows import findings
from espalier.flows.live import Live, bars_until_the_end, run_name, unharmed, without_bars
from espalier.flows.locks import lease
from espalier.flows.permitted import project_of
from espalier.flows.pipeline import STEPS, Project
from espalier.flows.records import recorded
from espalier.flows.stages import STAGES
from espalier.flows.versioning import record
from espalier.tasks import store
from espalier.tasks.judging import headline, news
from espalier.tasks.params import SOLVERS
from espalier.tasks.progress import Progress

RETRIES, DELAYS = 2, [2, 10]  # of a step that met an I/O error; seconds before each
LASTING = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
UPDATE_SECONDS = 2.0  # between two updates of a bar on the dashboard
HELP = {item.name: item.help for item in STAGES} | {"promote": "the candidate against the champion"}

# Who else listens to a step: parameters of a flow are JSON, so a terminal cannot be one.
listener_of: ContextVar[Callable[[str], Progress] | None] = ContextVar("listener_of", default=None)


class Bar(Progress):
    """A bar on the dashboard, updated now and then; after a failure it is left alone.

    Where the total is not known the bar stays empty until the end, and its text counts.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic):
        self.name, self.clock = name, clock
        self.total, self.done, self.unit = 0, 0, ""
        self.artefact: UUID | None = None
        self.shown = 0.0

    def begin(self, total: int | None, unit: str) -> None:
        self.total, self.done, self.unit = total or 0, 0, unit
        if self.artefact:
            return
        with unharmed(f"the progress of {self.name}"):
            self.artefact = create_progress_artifact(0.0, f"progress-{self.name}", f"{self.name}: begun")
            self.shown = self.clock()

    def step(self, n: int = 1, note: str = "") -> None:
        self.done += n
        if self.artefact and self.clock() - self.shown >= UPDATE_SECONDS:
            of = f" of {self.total:,}" if self.total else ""
            self._show(self.percent, f"{self.done:,}{of}, {self.unit}" + (f": {note}" if note else ""))

    def compiling(self, state: Compiling) -> None:
        if self.artefact and self.clock() - self.shown >= UPDATE_SECONDS:
            self._show(self.percent, str(state))

    def say(self, text: str) -> None:
        with unharmed(f"a word from {self.name}"):
            get_run_logger().info("%s: %s", self.name, text)

    def end(self, note: str = "") -> None:
        if self.artefact:
            self._show(100.0, note or "done")

    @property
    def percent(self) -> float:
        return min(100.0, 100.0 * self.done / self.total) if self.total else 0.0

    def _show(self, percent: float, text: str) -> None:
        artefact, self.artefact = self.artefact, None
        with unharmed(f"the progress of {self.name}"):
            update_progress_artifact(artefact, percent, f"{self.name}: {text}")
            self.artefact, self.shown = artefact, self.clock()


class Both(Progress):
    """Several listeners to the same work."""

    def __init__(self, *listeners: Progress):
        self.listeners = listeners

    def begin(self, total: int | None, unit: str) -> None:
        for listener in self.listeners:
            listener.begin(total, unit)

    def step(self, n: int = 1, note: str = "") -> None:
        for listener in self.listeners:
            listener.step(n, note)

    def compiling(self, state: Compiling) -> None:
        for listener in self.listeners:
            listener.compiling(state)

    def plan(self, figures: dict) -> None:
        for listener in self.listeners:
            listener.plan(figures)

    def record(self, row: dict) -> None:
        for listener in self.listeners:
            listener.record(row)

    def say(self, text: str) -> None:
        for listener in self.listeners:
            listener.say(text)

    def end(self, note: str = "") -> None:
        for listener in self.listeners:
            listener.end(note)


def may_pass(task, run, state) -> bool:
    """Whether a failure is an I/O error that another try may not meet; what a user must mend is not."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError) and not isinstance(error, LASTING) and error.errno not in store.NO_ROOM


def publish(project: Project, name: str, figures: dict) -> None:
    """What a step found, as artefacts on the dashboard."""
    with unharmed(f"the result of {name}"):
        if name == "ingest":
            create_table_artifact(findings.profile_table(project.root), "corpus-profile", "What the data hold")
        if name == "template" and (found := news.read(project.root)):
            create_table_artifact(findings.news_table(found), "news", "What is new since the champion")
        if name == "evaluate":
            publish_metrics(project.root)
        if name == "report":
            create_markdown_artifact(findings.report_text(project.root), "report", "The report of this run")
        if name == "promote":
            create_markdown_artifact(findings.decision_text(figures), "decision", "Champion and challenger")


def publish_metrics(root: Path) -> None:
    """The candidate's figures, beside those of the champion of now where it can be measured on these data."""
    champion = None
    with unharmed("the champion's metrics"):
        if (root / store.CHAMPION).is_file():
            champion = findings.champion_metrics(root)
    title = "Measured on the test data" + (": candidate and champion" if champion else "")
    create_table_artifact(findings.metrics_table(root, champion), "metrics", title)


def run_step(project: Project, name: str) -> dict:
    """One step: run, recorded, logged and shown; its figures."""
    outside = listener_of.get()
    listeners = [*([outside(name)] if outside else []), Bar(name), *([Live()] if name == "train" else [])]
    progress = Both(*listeners)
    try:
        figures = project.run(name, progress)
        record(project, name)
    except OSError as error:
        get_run_logger().warning("%s: %s", name, error)
        raise
    get_run_logger().info("%s: %s [%.1f s]", name, findings.line(figures), project.seconds[name])
    publish(project, name, figures)
    return figures


def step_task(project: Project, name: str) -> Task:
    """A step as a task without parameters: Prefect would search them for results of other tasks."""

    @task(
        name=name, task_run_name=name, description=HELP[name], cache_policy=NO_CACHE, persist_result=False,
        retries=RETRIES, retry_delay_seconds=DELAYS, retry_condition_fn=may_pass,
    )  # fmt: skip
    def step() -> dict:
        return run_step(project, name)

    return step


def settle(schedule: UUID, kinds: list[StateType], state: State) -> None:
    """Give a schedule's runs that are in a state of these kinds, and should have begun by now, another state.

    What someone asked for on the page, and not the clock, is left to wait.
    """
    runs = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[schedule]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=kinds)),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC)),
    )
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=runs):
            if run.auto_scheduled or not run.state.is_scheduled():
                end(client, run.id, state)


def end(client, run: UUID, state: State) -> None:
    """Give a run that nobody works on any more its last state, and first the tasks that it was in the middle of."""
    under_way = TaskRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
    of_run = TaskRunFilter(
        flow_run_id=TaskRunFilterFlowRunId(any_=[run]), state=TaskRunFilterState(type=under_way)
    )  # fmt: skip
    for one in client.read_task_runs(task_run_filter=of_run):
        client.set_task_run_state(one.id, state, force=True)
    client.set_flow_run_state(run, state, force=True)
    without_bars(client, run)


def settle_earlier(schedule: UUID) -> None:
    """When a schedule begins to be served: what it left behind the last time is over."""
    settle(schedule, [StateType.SCHEDULED], Cancelled(message="The schedule was not served when this was due"))
    under_way = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
    settle(schedule, under_way, Crashed(message="The schedule ended while this was under way"))


def settle_dead(root: str) -> None:
    """Runs of this project that are said to be running while we hold its lock: their processes have died."""
    under_way = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING])
    runs = {"flow_filter": FlowFilter(name=FlowFilterName(any_=[retrain.name])),
            "flow_run_filter": FlowRunFilter(state=FlowRunFilterState(type=under_way))}  # fmt: skip
    with unharmed("what became of earlier runs"), get_client(sync_client=True) as client:
        for run in client.read_flow_runs(**runs):
            if str(run.id) != flow_run.id and run.parameters.get("root") == root:
                end(client, run.id, Crashed(message="Its process ended without a word"))


def leave_no_queue() -> None:
    """After a scheduled run: one that was due meanwhile would work on the same data, so it is cancelled."""
    if deployment.id:
        with unharmed("what was due meanwhile"):
            missed = Cancelled(message="Another run was under way when this was due")
            settle(UUID(deployment.id), [StateType.SCHEDULED], missed)


def run_steps(project: Project) -> dict[str, dict]:
    """The figures of all steps, each run after the one before it has succeeded."""
    figures: dict[str, dict] = {}
    done: list = []
    for name in STEPS:
        state = step_task(project, name)(return_state=True, wait_for=done)
        figures[name], done = state.result(), [state]
    return figures


def ended(figures: dict[str, dict]) -> dict[str, dict] | State:
    """What the flow returns: the figures of all steps, in a state of its own name when the model was refused.

    A refusal is a run that did its work, so it is complete and no failure; the page shows it as Refused.
    """
    decision = figures["promote"]
    if decision["promoted"]:
        return figures
    return Completed(name="Refused", message="\n".join(headline.verdict_lines(decision)), data=figures)


def named_overrides(trained: str, **values) -> list[str]:
    """Overrides as `--set` takes them, of the parameters that the page of the flow has fields for.

    `trained` is the family whose section rho1 and solver are in.
    """
    names = {"source": "ingest.path", "family": "model.family", "rho1": f"{trained}.rho1",
             "solver": f"{trained}.solver", "max_iterations": "train.max_iterations"}  # fmt: skip
    found = [f"{names[key]}={json.dumps(values[key])}" for key in names if values[key] is not None]
    if values["warm"] is not None:
        found.append(f"train.initial={'champion' if values['warm'] else 'null'}")
    return found


@flow(name="retrain", flow_run_name=run_name, persist_result=False, retries=0)
def retrain(
    root: str = ".",
    overrides: list[str] | None = None,
    add: list[str] | None = None,
    source: str | None = None,
    family: Literal[tuple(FAMILIES)] | None = None,
    rho1: Annotated[float, Field(ge=0)] | Literal["auto"] | None = None,
    solver: Literal[SOLVERS] | None = None,
    max_iterations: Annotated[int, Field(ge=1)] | None = None,
    warm: bool | None = None,
    force: bool = False,
) -> dict[str, dict]:
    """Train on fresh data, evaluate, report, and promote the model when it is good enough.

    What is left empty is as the parameter file has it. Nothing here can run a command, send data elsewhere or name a
    file outside the project.

    Args:
        root: Folder of the project that is served; no other is accepted.
        overrides: Parameters to use instead of those in the file, such as crf.rho1=0.2
        add: Labelled files of the project to add to the data for good; params.yaml names them from then on.
        source: Labelled file or pattern of the project to train on instead of ingest.path, for this run
        family: Family of models to train, for this run: crf (conditional random field), memm (maximum-entropy Markov
            model), hmm (hidden Markov model), gp (Gaussian process), hmsvm (support vector machine), perceptron
            (averaged perceptron) or boosting (sequence AdaBoost)
        rho1: Weight of the L1 norm for this run, or auto to choose it on the development data
        solver: How to minimise, for this run
        max_iterations: Iterations at most, for this run
        warm: Whether to start from the champion's weights, for this run
        force: Promote the model even when it is worse than the champion; the decision says so.
    """
    trained = family or project_of(root, overrides or []).params.model.family
    named = named_overrides(
        trained, source=source, family=family, rho1=rho1, solver=solver, max_iterations=max_iterations, warm=warm
    )
    project = project_of(root, [*(overrides or []), *named], add or [])
    project.force = force
    with lease(project.root, "a retraining"), bars_until_the_end():
        settle_dead(str(project.root))
        try:
            with recorded(project, get_run_logger().warning) as decisions:
                project.prepare()
                figures = run_steps(project)
                decisions.append(figures["promote"])
            return ended(figures)
        finally:
            leave_no_queue()

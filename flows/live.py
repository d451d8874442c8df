"""What the dashboard shows of a run while it runs: its name, what a training will cost, and a table of iterations."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from prefect import get_client, get_run_logger
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterType
from prefect.runtime import flow_run

from espalier.flows import findings
from espalier.flows.server import full_disk
from espalier.tasks.progress import Progress

UPDATE_SECONDS = 5.0  # between two versions of the table
TITLE = "Training, iteration by iteration"


@contextmanager
def unharmed(what: str) -> Iterator[None]:
    """Telling the server something must never end a run: a failure becomes a warning in the log."""
    try:
        yield
    except Exception as error:
        full = full_disk(Path(os.environ.get("PREFECT_HOME") or "."))
        get_run_logger().warning("%s could not be told to the server: %s", what, full or error)


def run_name() -> str:
    """What a run is called on the dashboard: its project and when it began, such as `names 2026-11-17 03:15:02`."""
    root = Path(flow_run.parameters.get("root") or ".")
    return f"{root.resolve().name} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"


def without_bars(client: SyncPrefectClient, run: UUID) -> None:
    """Take the progress bars of a run that is over from the dashboard: they say no more than its tasks."""
    bars = ArtifactFilter(
        flow_run_id=ArtifactFilterFlowRunId(any_=[run]), type=ArtifactFilterType(any_=["progress"])
    )  # fmt: skip
    for bar in client.read_artifacts(artifact_filter=bars):
        client.delete_artifact(bar.id)


@contextmanager
def bars_until_the_end() -> Iterator[None]:
    """The progress bars of this run stand on the dashboard until it ends, however it ends."""
    try:
        yield
    finally:
        with unharmed("the end of the progress"), get_client(sync_client=True) as client:
            without_bars(client, UUID(flow_run.id))


class Live(Progress):
    """The tables `cost-plan` and `training`. One artefact is updated, so that a long training leaves a single one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock, self.shown = clock, None
        self.rows: list[dict] = []
        self.artefact: UUID | None = None

    def plan(self, figures: dict) -> None:
        with unharmed("the plan of the training"):
            create_table_artifact(findings.plan_table(figures), "cost-plan", "What training will take")

    def record(self, row: dict) -> None:
        self.rows = [other for other in self.rows if other["iteration"] < row["iteration"]]  # an earlier try
        self.rows.append(row)
        if self.shown is None or self.clock() - self.shown >= UPDATE_SECONDS:
            self._show()

    def end(self, note: str = "") -> None:
        if self.rows:
            self._show(note)

    def _show(self, note: str = "") -> None:
        self.shown = self.clock()  # after a failure as well: the next try is as far away
        table, title = findings.training_table(self.rows), f"{TITLE}: {note}" if note else TITLE
        with unharmed("the table of the training"):
            if self.artefact is None:
                self.artefact = create_table_artifact(table, "training", title)
                return
            update = ArtifactUpdate(data=json.dumps(table), description=title)
            with get_client(sync_client=True) as client:
                client.update_artifact(self.artefact, update)

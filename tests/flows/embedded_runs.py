"""Runs on one embedded server, told as JSON: one that works, one that fails, one that is refused, one with parameters
of the page, one that meets an I/O error; and a tournament in which one entrant fails.

Run by test_retrain.py in a process of its own: `python embedded_runs.py PROJECT`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows import pipeline
from espalier.flows.run import run_flow, run_tournament
from espalier.tasks.progress import Progress
from espalier.tasks.tournament import competing


class Heard(Progress):
    """Remembers which steps told of their end."""

    ended: list[str] = []

    def __init__(self, name: str):
        self.name = name

    def end(self, note: str = "") -> None:
        Heard.ended.append(self.name)


def settled(read, count: int) -> list:
    """Task runs in order; the server writes their states down a little later than that of the flow run."""
    for _ in range(60):
        tasks = read()
        if len(tasks) >= count and all(task.start_time and task.state.is_final() for task in tasks):
            break
        time.sleep(0.5)
    return sorted(tasks, key=lambda task: task.start_time)


def told(client, count: int | None = None) -> dict:
    """The last flow run, its task runs in order, and the latest artefacts."""
    from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterFlowRunId
    from prefect.client.schemas.sorting import FlowRunSort

    run = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)[0]
    of_run = TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=[run.id]))
    count = count or (len(pipeline.STEPS) if run.state.is_completed() else 1)
    tasks = settled(lambda: client.read_task_runs(task_run_filter=of_run), count)
    inputs = [[source.id for sources in t.task_inputs.values() for source in sources] for t in tasks]
    artefacts = client.request("POST", "/artifacts/filter", json={}).json()
    return {
        "called": run.name, "state": run.state.type.value, "name": run.state.name, "message": run.state.message,
        "parameters": run.parameters,
        "tasks": [[t.name, t.state.type.value, t.run_count] for t in tasks],
        "waits": [found == [before.id] for before, found in zip(tasks, inputs[1:], strict=False)],
        "artefacts": {a["key"]: a for a in artefacts if a["flow_run_id"] == str(run.id)},
    }  # fmt: skip


def failing(root: Path, overrides: list[str]) -> dict:
    try:
        run_flow(root, None, overrides)
    except EspalierError as error:
        return {"type": type(error).__name__, "text": str(error)}
    return {}


def fail_once(name: str) -> None:
    """The step meets an I/O error the first time that it is run."""
    run, failures = pipeline.Project.run, [OSError(5, "Input/output error")]

    def sometimes(self, step, progress):
        if step == name and failures:
            raise failures.pop()
        return run(self, step, progress)

    pipeline.Project.run = sometimes


def fail_always(family: str) -> None:
    """Models of the family meet an error whenever they are trained."""
    train = competing.train_here

    def sometimes(root, params, *others):
        if params.model.family == family:
            raise ValueError("no such luck")
        return train(root, params, *others)

    competing.train_here = sometimes


def main(root: Path) -> dict:
    figures = run_flow(root, progress_of=Heard)
    from prefect import get_client

    from espalier.flows import retrain

    with get_client(sync_client=True) as client:
        result = {"figures": figures, "heard": Heard.ended, "good": told(client)}
        result["error"] = failing(root, ["ingest.source=conll", "ingest.path=ragged.conll"])
        result["bad"] = told(client)
        strict = ["weigh.drift_limit=1e-9", "promote.on_drift=refuse"]  # so that force is needed
        result["refused_figures"] = run_flow(root, None, strict)
        result["refused"] = told(client)
        result["typed_figures"] = retrain.retrain(
            root=str(root), overrides=strict, rho1="auto", solver="pqn", warm=True, force=True
        )
        result["typed"] = told(client)
        retrain.DELAYS[:] = [0, 0]
        fail_once("weigh")
        run_flow(root)
        result["again"] = told(client)
        fail_always("hmm")
        options = {"families": ["hmm", "perceptron"], "settings": ["perceptron.update=pa"]}
        result["tournament_figures"] = run_tournament(root, options)
        result["tournament"] = told(client, 4)
        # As after any run with other parameters than those of the file, DVC has what was there before.
        subprocess.run([sys.executable, "-m", "dvc", "checkout", "-q", "-f"], cwd=root, check=True, timeout=300)
    return result


if __name__ == "__main__":
    print("\n" + json.dumps(main(Path(sys.argv[1])), default=str))

"""Servers that several modules of tests look at: each is started once in a process of tests, by who needs it first."""

import json
from pathlib import Path

from small_project import Background, ask, eventually, own_port, run_python, write_project

from espalier.flows.pipeline import STEPS
from espalier.flows.settings import dashboard_file

QUICK = {"PREFECT_RUNNER_POLL_FREQUENCY": "2"}
DASHBOARD = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background are deaf to it
from espalier.engine.errors import EspalierError
from espalier.flows.serve import dashboard
try:
    dashboard(Path("."), *map(int, sys.argv[1:]))
except EspalierError as error:
    sys.exit(f"espalier: {error}")
"""
RUN = "from pathlib import Path; from espalier.flows.run import run_flow; run_flow(Path('.'))"
SERVE = """
import sys
from datetime import timedelta
from pathlib import Path
from espalier.flows.serve import serve
serve(Path("."), **eval(sys.argv[1], {"timedelta": timedelta}))
"""


def serving(project: Path, options: str) -> Background:
    return Background("-c", SERVE, options, cwd=project, **QUICK)


class Shared:
    """A process that tests share. One that was ended, as a test of its end does, is followed by another."""

    def __init__(self, start):
        self.start, self.process = start, None

    def get(self) -> Background:
        if self.process is None or self.process.process.poll() is not None:
            self.end()
            self.process = self.start()
        return self.process

    def end(self) -> None:
        if self.process is not None:
            self.process.end()


def start_dashboard(project: Path) -> Background:
    """The dashboard of a project, and one run that has gone there."""
    write_project(project)
    port = own_port()
    process = Background("-c", DASHBOARD, str(port), cwd=project)
    try:
        process.project, process.port = project, port
        process.url = process.wait_for("dashboard:", 300).split()[-1]
        process.password = process.wait_for("the page asks for a password:", 300).split()[-1]
        process.done = run_python("-c", RUN, cwd=project, timeout=400)
        assert process.done.returncode == 0, process.done.stderr
        (process.run,) = ask(project, "/flow_runs/filter", {})
        # The server writes the states of tasks down a little later than that of their run.
        completed = {"task_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
        eventually(lambda: ask(project, "/task_runs/count", completed) == len(STEPS), 300)
    except BaseException:
        process.end()
        raise
    return process


def start_schedule(project: Path) -> Background:
    """A schedule that is due every few seconds, with the server that it started."""
    write_project(project)
    process = serving(project, f"{{'interval': timedelta(seconds=5), 'port': {own_port()}}}")
    try:
        process.project = project
        process.wait_for("next run:", 300)
        process.server = json.loads(dashboard_file(project).read_text(encoding="utf-8"))
        process.api = process.server["api"]
        eventually(lambda: ask(project, "/deployments/filter", {}), 300)
    except BaseException:
        process.end()
        raise
    return process


def runs_of(project: Path, name: str, *kinds: str) -> list[dict]:
    states = {"state": {"type": {"any_": list(kinds)}}} if kinds else {}
    return ask(project, "/flow_runs/filter", {"deployments": {"name": {"any_": [name]}}, "flow_runs": states})


def deployment_of(project: Path, name: str) -> dict:
    return ask(project, f"/deployments/name/retrain/{name}")


def due(project: Path, whether: bool) -> None:
    """Let the schedule go on, or pause it."""
    what = "resume" if whether else "pause"
    ask(project, f"/deployments/{deployment_of(project, 'scheduled')['id']}/{what}_deployment", {})
    assert deployment_of(project, "scheduled")["paused"] is not whether

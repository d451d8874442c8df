"""The dashboard as a person sees it: a run, its steps, and what it found."""

import pytest
from small_project import Background, ask, eventually, run_python, write_project

from flows.pipeline import STEPS

pytestmark = [pytest.mark.server, pytest.mark.slow]
SECONDS = 30_000  # of patience with a page, in milliseconds
DASHBOARD = "from pathlib import Path; from flows.serve import dashboard; dashboard(Path('.'))"
RUN = "from pathlib import Path; from flows.run import run_flow; run_flow(Path('.'))"


@pytest.fixture(scope="module")
def dashboard(chromium_path, tmp_path_factory):
    """The dashboard of a project that has run once."""
    project = write_project(tmp_path_factory.mktemp("dashboard") / "project")
    with Background("-c", DASHBOARD, cwd=project) as process:
        process.url = process.wait_for("dashboard:", 100).split()[-1]
        process.project = project
        done = run_python("-c", RUN, cwd=project, timeout=100)
        assert done.returncode == 0, done.stderr
        api = f"{process.url}/api"
        (process.run,) = ask(api, "/flow_runs/filter", {})
        completed = {"task_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
        eventually(lambda: ask(api, "/task_runs/count", completed) == len(STEPS), 20)
        yield process


def elsewhere(watched, url: str) -> list[str]:
    """What was asked for outside the server itself."""
    own = (url, f"blob:{url}", "data:", url.replace("http:", "ws:"))
    return [request for request in watched.requests if not request.startswith(own)]


def test_the_first_page_counts_the_run_and_calls_nobody_else(dashboard, watch, picture):
    watched = watch()
    watched.page.goto(dashboard.url)
    for text in (r"Flow Runs\s+1\s+total", rf"Task Runs\s+{len(STEPS)}\s+{len(STEPS)}\s+Completed"):
        watched.page.wait_for_function(f"/{text}/.test(document.body.innerText)", timeout=SECONDS)
    picture(watched.page, "dashboard-home")
    assert elsewhere(watched, dashboard.url) == []


def test_the_run_is_shown_as_completed_with_its_steps(dashboard, watch, picture):
    watched = watch()
    page = watched.page
    page.goto(f"{dashboard.url}/runs/flow-run/{dashboard.run['id']}")
    page.get_by_text(dashboard.run["name"]).first.wait_for(timeout=SECONDS)
    page.get_by_text("Completed", exact=True).first.wait_for(timeout=SECONDS)
    page.get_by_text(f"{len(STEPS)} Task runs").wait_for(timeout=SECONDS)
    page.get_by_text("ingest: train 240").first.wait_for(timeout=SECONDS)
    page.wait_for_timeout(1000)  # the graph of the run is drawn after the text
    picture(page, "dashboard-run")
    page.get_by_text("Task Runs", exact=True).click()
    for name in STEPS:
        page.get_by_role("link", name=name, exact=True).first.wait_for(timeout=SECONDS)
    picture(page, "dashboard-tasks")
    assert elsewhere(watched, dashboard.url) == []


def test_the_artefacts_of_the_run_are_listed(dashboard, watch, picture):
    page = watch().page
    page.goto(f"{dashboard.url}/artifacts")
    for name in ("cost-plan", "training", "metrics", "report", "decision", "progress-train"):
        page.get_by_text(name, exact=True).first.wait_for(timeout=SECONDS)
    picture(page, "dashboard-artefacts")


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ("metrics", ["state error", "sequence error", "log-loss, nats per symbol", "active weights", "15.00%"]),
        ("decision", ["Promoted", "The first model: there was no champion.", "challenger"]),
        ("report", ["The whole report", "state error", "report.html"]),
        ("progress-train", ["train:", "active weights"]),
        ("cost-plan", ["weights of the training", "an iteration", "MiB"]),
        ("training", ["development error", "active weights", "2,150.11"]),
    ],
)
def test_an_artefact_is_readable(dashboard, watch, picture, key, texts):
    (artefact,) = ask(f"{dashboard.url}/api", "/artifacts/filter", {"artifacts": {"key": {"any_": [key]}}})
    page = watch().page
    page.goto(f"{dashboard.url}/artifacts/artifact/{artefact['id']}")
    for text in texts:
        page.get_by_text(text).first.wait_for(timeout=SECONDS)
    picture(page, f"dashboard-{key}")

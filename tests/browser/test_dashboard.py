"""The dashboard as a person sees it: a run, its steps, and what it found."""

import pytest
from small_project import ask

from espalier.flows.pipeline import STEPS
from espalier.tasks import store

pytestmark = [pytest.mark.server, pytest.mark.slow]
SECONDS = 90_000  # of patience with a page, in milliseconds


@pytest.fixture
def dashboard(chromium_path, dashboard):
    """The one that tests share; none is started where there is no browser."""
    return dashboard


@pytest.fixture
def logged_in(watch, dashboard):
    """Opens a page in a browser that knows the password, as after a first visit."""

    def open_page():
        watched = watch()
        watched.page.add_init_script(f"localStorage.setItem('prefect-password', btoa('{dashboard.password}'))")
        return watched

    return open_page


def test_the_page_asks_for_the_password_and_lets_in_who_knows_it(dashboard, watch, picture):
    watched = watch()
    page = watched.page
    page.goto(dashboard.url)
    field = page.get_by_placeholder("admin:pass")
    field.wait_for(timeout=SECONDS)
    assert dashboard.run["name"] not in page.inner_text("body")
    picture(page, "dashboard-login")
    field.fill("espalier:wrong")
    page.get_by_role("button", name="Login").click()
    page.get_by_text("Authentication failed").first.wait_for(timeout=SECONDS)
    field.fill(dashboard.password)
    page.get_by_role("button", name="Login").click()
    page.wait_for_function(r"/Flow Runs\s+1\s+total/.test(document.body.innerText)", timeout=SECONDS)
    page.reload()
    page.wait_for_function(r"/Flow Runs\s+1\s+total/.test(document.body.innerText)", timeout=SECONDS)
    assert elsewhere(watched, dashboard.url) == []


def elsewhere(watched, url: str) -> list[str]:
    """What was asked for outside the server itself."""
    own = (url, f"blob:{url}", "data:", url.replace("http:", "ws:"))
    return [request for request in watched.requests if not request.startswith(own)]


def test_the_first_page_counts_the_run_and_calls_nobody_else(dashboard, logged_in, picture):
    watched = logged_in()
    watched.page.goto(dashboard.url)
    for text in (r"Flow Runs\s+1\s+total", rf"Task Runs\s+{len(STEPS)}\s+{len(STEPS)}\s+Completed"):
        watched.page.wait_for_function(f"/{text}/.test(document.body.innerText)", timeout=SECONDS)
    picture(watched.page, "dashboard-home")
    assert elsewhere(watched, dashboard.url) == []


def test_the_run_is_shown_as_completed_with_its_steps(dashboard, logged_in, picture):
    watched = logged_in()
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


def test_the_artefacts_of_the_run_are_listed(dashboard, logged_in, picture):
    page = logged_in().page
    page.goto(f"{dashboard.url}/artifacts")
    for name in ("cost-plan", "training", "metrics", "report", "decision"):
        page.get_by_text(name, exact=True).first.wait_for(timeout=SECONDS)
    picture(page, "dashboard-artefacts")


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ("metrics", ["state error", "sequence error", "log-loss, nats per symbol", "active weights", "15.00%",
                     "sparse conditional random field"]),
        ("decision", ["Promoted", "The first model: there was no champion.", "challenger"]),
        ("report", ["The whole report", "state error", "report.html"]),
        ("cost-plan", ["weights of the training", "an iteration", "MiB"]),
        ("training", ["development error", "active weights"]),
    ],
)
def test_an_artefact_is_readable(dashboard, logged_in, picture, key, texts):
    (artefact,) = ask(dashboard.project, "/artifacts/filter", {"artifacts": {"key": {"any_": [key]}}})
    if key == "training":
        texts = [*texts, f"{store.read_trace(dashboard.project)[0]['objective']:,.2f}"]
    page = logged_in().page
    page.goto(f"{dashboard.url}/artifacts/artifact/{artefact['id']}")
    for text in texts:
        page.get_by_text(text).first.wait_for(timeout=SECONDS)
    picture(page, f"dashboard-{key}")

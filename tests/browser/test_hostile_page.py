"""A page of another site, open in the browser of someone who serves a schedule: nothing that it tries happens.

On a server that lets in whoever asks, it would create a run with a command of its choice, which the schedule executes.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.error import HTTPError

import pytest
from shared_servers import due, runs_of, serving
from small_project import ask, eventually

pytestmark = [pytest.mark.server, pytest.mark.slow]
PAGE = """<!doctype html><title>cats</title><script>
async function attempt(way) {
  const {api, deployment, body} = await (await fetch("/what")).json();
  const create = `${api}/deployments/${deployment}/create_flow_run`, text = JSON.stringify(body);
  const ways = {
    read: () => fetch(`${api}/deployments/filter`, {method: "POST", headers: {"Content-Type": "application/json"},
                                                   body: "{}"}).then(r => r.json()),
    json: () => fetch(create, {method: "POST", headers: {"Content-Type": "application/json"}, body: text}),
    credentials: () => fetch(create, {method: "POST", credentials: "include",
                                      headers: {"Content-Type": "application/json"}, body: text}),
    simple: () => fetch(create, {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: text}),
    untyped: () => fetch(create, {method: "POST", mode: "no-cors", body: new Blob([text])}),
    beacon: () => navigator.sendBeacon(create, new Blob([text], {type: "text/plain"})),
    socket: () => new Promise((resolve, reject) => {
      const socket = new WebSocket(api.replace("http", "ws") + "/events/out", ["prefect"]);
      socket.onopen = () => resolve("open"); socket.onerror = () => reject("refused");
    }),
  };
  try { const answer = await ways[way](); return answer && answer.status !== undefined ? answer.status : answer; }
  catch (error) { return "refused"; }
}
</script>"""


@pytest.fixture(scope="module")
def served(chromium_path, shared_schedule):
    """A schedule that is not due this year, served beside the one that tests share, which pauses meanwhile."""
    shared = shared_schedule.get()
    project = shared.project
    due(project, False)
    eventually(lambda: not runs_of(project, "scheduled", "PENDING", "RUNNING"), 300)
    with serving(project, "{'cron': '0 3 1 1 *', 'name': 'yearly'}") as process:
        process.wait_for("next run:", 300)
        process.project, process.server, process.mark = project, shared.server, project / "done-by-a-stranger"
        process.deployment = eventually(lambda: deployments(project, "yearly"), 300)[0]["id"]
        # A run that fails tells of it by notify.command.
        overrides = [f"notify.command=touch {process.mark}", "promote.cases=missing"]
        process.body = {"parameters": {"overrides": overrides}, "state": {"type": "SCHEDULED"}}
        yield process
    due(project, True)


def deployments(project, name) -> list[dict]:
    return ask(project, "/deployments/filter", {"deployments": {"name": {"any_": [name]}}})


def asked_for(project) -> list[dict]:
    """Runs that someone has asked for, and not the clock."""
    return [run for run in ask(project, "/flow_runs/filter", {}) if not run["auto_scheduled"]]


@pytest.fixture
def hostile(served):
    """The address of a web site that knows all but the password."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self):
            what = {"api": served.server["api"], "deployment": served.deployment, "body": served.body}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(what).encode() if self.path == "/what" else PAGE.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Site) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield site.server_port
        site.shutdown()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_sees_and_starts_nothing(served, hostile, watch, host):
    page = watch().page
    page.goto(f"http://{host}:{hostile}/")
    answers = {way: page.evaluate(f"attempt('{way}')")
               for way in ("read", "json", "credentials", "simple", "untyped", "beacon", "socket")}  # fmt: skip
    assert {way: answers[way] for way in ("read", "json", "credentials", "socket")} == dict.fromkeys(
        ("read", "json", "credentials", "socket"), "refused"
    )
    page.wait_for_timeout(3000)  # what was sent without waiting for an answer has arrived, and the runner has looked
    assert asked_for(served.project) == []
    assert not served.mark.exists()


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_not_even_the_password_lets_another_site_in(served, headers):
    """As after a name of the other site has been turned to this machine."""
    with pytest.raises(HTTPError, match="40[03]"):
        ask(served.project, f"/deployments/{served.deployment}/create_flow_run", served.body, **headers)
    assert asked_for(served.project) == []


def test_who_knows_the_password_can_set_nothing_that_executes(served):
    run = ask(served.project, f"/deployments/{served.deployment}/create_flow_run", served.body)
    done = eventually(lambda: [r for r in asked_for(served.project) if r["state_type"] in ("FAILED", "COMPLETED")], 300)
    assert [r["id"] for r in done] == [run["id"]]
    assert "'notify.command' cannot be set by a flow run" in done[0]["state"]["message"]
    assert not served.mark.exists()

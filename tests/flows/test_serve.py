"""Schedules on a real server: runs are created and finish, and everything ends when it is told to."""

import json
import os
import re
import signal
import socket
import urllib.request
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError

import psutil
import pytest
from shared_servers import DASHBOARD, SERVE, deployment_of, due, runs_of, serving
from small_project import Background, ask, eventually, own_port, run_python, write_project

from espalier.engine.errors import EspalierError
from espalier.flows.access import auth_file
from espalier.flows.pipeline import STEPS
from espalier.flows.server import choose_port
from espalier.flows.settings import answers, dashboard_file

# A signal in the midst of beginning, in code that is made of text, as imports of dataclasses run it.
EARLY = """
import prefect.runner
begin = prefect.runner.Runner.__aenter__
async def begin_and_be_told_to_end(self):
    exec("import os, signal; os.kill(os.getpid(), signal.SIGTERM); [0 for _ in range(1000)]")
    return await begin(self)
prefect.runner.Runner.__aenter__ = begin_and_be_told_to_end
"""


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestSchedule:
    def test_a_run_is_created_by_the_clock_and_completes(self, schedule):
        done = eventually(lambda: runs_of(schedule.project, "scheduled", "COMPLETED"), 300)
        assert done[0]["auto_scheduled"] is True
        assert done[0]["parameters"]["root"] == str(schedule.project)
        of_run = {"flow_runs": {"id": {"any_": [done[0]["id"]]}}}

        def tasks():
            return {(task["name"], task["state_type"]) for task in ask(schedule.project, "/task_runs/filter", of_run)}

        # The server writes the states of tasks down a little later than that of their run.
        eventually(lambda: tasks() == {(name, "COMPLETED") for name in STEPS}, 300)
        assert (schedule.project / "models" / "champion.model").is_file()

    def test_it_runs_again_and_one_at_a_time(self, schedule):
        done = eventually(lambda: len(found := runs_of(schedule.project, "scheduled", "COMPLETED")) > 1 and found, 300)
        spans = sorted((run["start_time"], run["end_time"]) for run in done)
        assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False))
        due(schedule.project, False)  # it would train all the time that the tests below take

    def test_the_server_listens_on_this_machine_only(self, schedule):
        connections = psutil.Process(schedule.server["pid"]).net_connections("inet")
        assert {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}

    def test_the_same_schedule_is_not_served_twice(self, schedule):
        done = run_python("-c", SERVE, "{'cron': '0 3 * * *'}", cwd=schedule.project, timeout=400)
        assert done.returncode == 1
        assert f"'scheduled' of this project is served already (process {schedule.process.pid} on " in done.stderr

    def test_a_cron_schedule_is_registered_and_its_run_created(self, schedule):
        """On the server that is there; SIGTERM pauses the schedule and leaves that server alone."""
        with serving(schedule.project, "{'cron': '30 3 * * *', 'name': 'nightly', 'zone': 'Europe/Berlin'}") as nightly:
            assert nightly.wait_for("dashboard:", 300).endswith(schedule.server["url"])
            assert "03:30:00 CE" in nightly.wait_for("next run:", 300)
            waiting = eventually(lambda: runs_of(schedule.project, "nightly", "SCHEDULED"), 300)
            first = min(datetime.fromisoformat(run["expected_start_time"]) for run in waiting)
            assert first.minute == 30 and timedelta(0) < first - datetime.now(UTC) < timedelta(hours=25)
            found = deployment_of(schedule.project, "nightly")
            assert found["schedules"][0]["schedule"]["cron"] == "30 3 * * *"
            assert found["schedules"][0]["schedule"]["timezone"] == "Europe/Berlin"
            assert found["paused"] is False
            assert nightly.end() == 0, nightly.output
        assert deployment_of(schedule.project, "nightly")["paused"] is True
        assert answers(schedule.api)

    @pytest.mark.long
    def test_a_schedule_that_was_paused_at_its_end_resumes(self, schedule):
        with serving(schedule.project, "{'cron': '0 4 * * *', 'name': 'nightly'}") as nightly:
            nightly.wait_for("next run:", 300)
            eventually(lambda: deployment_of(schedule.project, "nightly")["paused"] is False, 300)
            waiting = eventually(lambda: runs_of(schedule.project, "nightly", "SCHEDULED"), 300)
            assert all("T04:00:00" in run["expected_start_time"] for run in waiting), "nothing is left of the old times"
            assert nightly.end(signal.SIGINT) == 0, nightly.output

    @pytest.mark.long
    def test_what_was_due_while_it_was_not_served_is_made_up_for_once(self, schedule):
        """It was killed two days ago, so that it was due twice since."""
        times = {"cron": "30 3 * * *", "zone": "UTC", "seconds": None}
        two_days_ago = (datetime.now(UTC) - timedelta(days=2)).isoformat()
        note = schedule.project / ".espalier" / "serve-again.json"
        note.write_text(json.dumps({"times": times, "until": two_days_ago}), encoding="utf-8")
        options = "{'cron': '30 3 * * *', 'name': 'again'}"
        with serving(schedule.project, options) as again:
            assert "made up for now, once" in again.wait_for("missed:", 300)
            (run,) = eventually(lambda: [r for r in runs_of(schedule.project, "again") if "missed" in r["tags"]], 300)
            assert run["auto_scheduled"] is False
            assert again.end() == 0, again.output
        with serving(schedule.project, options) as again:  # nothing was missed meanwhile
            again.wait_for("next run:", 300)
            eventually(lambda: deployment_of(schedule.project, "again")["paused"] is False, 300)
            assert again.end() == 0, again.output
        assert "missed:" not in again.output
        assert len([r for r in runs_of(schedule.project, "again") if "missed" in r["tags"]]) == 1

    @pytest.mark.long
    def test_told_to_end_while_it_begins_it_ends_well(self, schedule):
        done = run_python("-c", EARLY + SERVE, "{'cron': '0 4 * * *', 'name': 'early'}", cwd=schedule.project,
                          timeout=400)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("the schedule has ended\n") and done.stderr == ""
        assert deployment_of(schedule.project, "early")["paused"] is True

    def test_sigterm_ends_it_and_its_server_and_every_process(self, schedule):
        due(schedule.project, True)
        eventually(lambda: runs_of(schedule.project, "scheduled", "RUNNING"), 300, every=0.1)
        family = psutil.Process(schedule.process.pid).children(recursive=True)
        assert schedule.server["pid"] in {process.pid for process in family}
        assert schedule.end(signal.SIGTERM) == 0, schedule.output
        assert "the schedule has ended" in schedule.output
        _, alive = psutil.wait_procs(family, timeout=60)
        assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
        assert not answers(schedule.api)
        assert not dashboard_file(schedule.project).exists()
        assert "Traceback" not in schedule.output


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestDashboard:
    def test_it_says_where_it_is_and_shows_its_page(self, dashboard):
        assert dashboard.url == f"http://127.0.0.1:{dashboard.port}"
        with urllib.request.urlopen(f"{dashboard.url}/ui-settings", timeout=300) as reply:
            settings = json.loads(reply.read())
        assert settings["api_url"] == f"{dashboard.url}/api" and settings["auth"] == "BASIC"

    def test_it_asks_for_a_password_that_only_the_user_can_read(self, dashboard):
        path = auth_file(dashboard.project)
        assert path.stat().st_mode & 0o777 == 0o600
        assert dashboard.password == path.read_text(encoding="utf-8").strip()
        assert re.fullmatch(r"espalier:[\w-]{32}", dashboard.password)
        for headers in ({}, {"Authorization": "Basic eDp5"}):
            with pytest.raises(HTTPError, match="401"):
                urllib.request.urlopen(
                    urllib.request.Request(f"{dashboard.url}/api/version", headers=headers), timeout=30
                )

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"Host": "evil.example"}, 400),
            ({"Host": "127.0.0.1.evil.example:4200"}, 400),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "OWN"}, 200),
        ],
    )
    def test_other_hosts_and_pages_are_refused_even_with_the_password(self, dashboard, headers, status):
        headers = {name: dashboard.url if text == "OWN" else text for name, text in headers.items()}
        if status == 200:
            assert ask(dashboard.project, "/flow_runs/count", {}, **headers) >= 0
        else:
            with pytest.raises(HTTPError, match=str(status)):
                ask(dashboard.project, "/flow_runs/count", {}, **headers)

    def test_a_shell_is_told_how_to_reach_it(self, dashboard):
        done = run_python("-m", "espalier.flows.cli", "dashboard", "--env", cwd=dashboard.project, timeout=400)
        assert done.stdout.splitlines() == [
            f"export PREFECT_API_URL={dashboard.url}/api", f"export PREFECT_API_AUTH_STRING={dashboard.password}"
        ]  # fmt: skip

    def test_another_folder_is_told_what_is_missing(self, dashboard, tmp_path):
        done = run_python("-m", "espalier.flows.cli", "run", "--quiet", cwd=write_project(tmp_path), timeout=400,
                          PREFECT_API_URL=f"{dashboard.url}/api")  # fmt: skip
        assert done.returncode == 1
        assert "asks for another authentication string; set PREFECT_API_AUTH_STRING" in done.stderr

    def test_a_run_of_the_project_goes_there(self, dashboard):
        assert dashboard.done.returncode == 0 and dashboard.done.stderr == "", dashboard.done.stderr
        (run,) = ask(dashboard.project, "/flow_runs/filter", {})
        assert run["state_type"] == "COMPLETED"

    def test_a_second_one_says_that_it_runs_already(self, dashboard):
        done = run_python("-c", DASHBOARD, cwd=dashboard.project, timeout=400)
        place = f"the page asks for a password: it is in {auth_file(dashboard.project)}\n"
        assert (done.returncode, done.stdout) == (0, f"dashboard: {dashboard.url} (it runs already)\n{place}")

    def test_a_port_in_use_is_named(self, dashboard, tmp_path):
        done = run_python("-c", DASHBOARD, str(dashboard.port), cwd=write_project(tmp_path), timeout=400)
        assert done.returncode == 1
        assert f"port {dashboard.port} is in use: choose another with --port" in done.stderr

    def test_ctrl_c_at_a_terminal_ends_it_and_its_server(self, dashboard):
        """A terminal sends the signal to the whole group."""
        server = json.loads(dashboard_file(dashboard.project).read_text(encoding="utf-8"))
        os.killpg(dashboard.process.pid, signal.SIGINT)
        assert dashboard.process.wait(300) == 0
        assert not psutil.pid_exists(server["pid"])
        assert not dashboard_file(dashboard.project).exists()


@pytest.mark.server
@pytest.mark.timeout(1800)
def test_a_server_ends_when_its_parent_is_killed(tmp_path):
    """Even when the parent could do nothing about it, and before the server is up."""
    with Background("-c", DASHBOARD, str(own_port()), cwd=write_project(tmp_path)) as process:
        (server,) = eventually(lambda: psutil.Process(process.process.pid).children(), 300, every=0.05)
        process.end(signal.SIGKILL)
    _, alive = psutil.wait_procs([server], timeout=400)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("cron", "text"),
        [
            ("61 * * * *", r"cron expression '61 \* \* \* \*' is not valid: expected five fields, minute hour"),
            ("every day", "has 2 fields: expected five fields"),
            ("", "has 0 fields"),
            ("* * * * * *", "has 6 fields"),
            ("@never", "is not valid"),
            ("0 0 31 2 *", "is never due"),
        ],
    )
    def test_a_cron_expression_that_is_none(self, cron, text):
        from espalier.flows.serve import next_time

        with pytest.raises(EspalierError, match=text):
            next_time(cron)

    def test_a_bad_expression_is_found_before_a_server_is_started(self, tmp_path):
        from espalier.flows.serve import serve

        with pytest.raises(EspalierError, match="is not valid"):
            serve(write_project(tmp_path), "99 * * * *")
        assert not (tmp_path / ".espalier").exists()

    def test_a_time_zone_that_is_not_known(self):
        from espalier.flows.serve import next_time

        for zone in ("Mars/Olympus", "", "../etc/passwd"):
            with pytest.raises(EspalierError, match="expected one such as Europe/Berlin"):
                next_time("0 3 * * *", zone)

    def test_neither_or_both_kinds_of_schedule(self, tmp_path):
        from espalier.flows.serve import serve

        for options in ({}, {"cron": "0 3 * * *", "interval": timedelta(hours=1)}):
            with pytest.raises(EspalierError, match="either a cron expression or an interval"):
                serve(write_project(tmp_path), **options)

    def test_a_name_that_would_be_a_path(self, tmp_path):
        from espalier.flows.serve import serve

        with pytest.raises(EspalierError, match="--name '../x': expected letters"):
            serve(write_project(tmp_path), "0 3 * * *", name="../x")

    def test_a_named_server_that_is_not_there(self, tmp_path, monkeypatch):
        from espalier.flows.serve import dashboard, serve

        monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
        for start in (dashboard, lambda root: serve(root, "0 3 * * *")):
            with pytest.raises(EspalierError, match="no Prefect server answers there.*and a local server is started"):
                start(write_project(tmp_path))

    @pytest.mark.parametrize("port", [0, -1, 65536])
    def test_a_port_that_is_none(self, port):
        with pytest.raises(EspalierError, match="expected a number from 1 to 65535"):
            choose_port(port)


def test_the_next_time_is_told_in_its_time_zone():
    from espalier.flows.serve import next_time

    berlin, utc = next_time("0 3 * * *", "Europe/Berlin"), next_time("@daily")
    assert (berlin.hour, berlin.minute) == (3, 0) and berlin.tzname() in ("CET", "CEST")
    assert (utc.hour, utc.minute) == (0, 0) and datetime.now(UTC) < utc <= datetime.now(UTC) + timedelta(days=1)


def test_another_port_is_taken_when_the_usual_one_is_in_use(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("espalier.flows.server.PORT", taken.getsockname()[1])
        assert choose_port(None) != taken.getsockname()[1]


NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "hours", "due"),
    [
        ({"cron": "0 3 * * *", "zone": "UTC", "seconds": None}, 50, datetime(2026, 3, 9, 3, tzinfo=UTC)),
        ({"cron": "0 3 * * *", "zone": "UTC", "seconds": None}, 8, None),
        ({"cron": "0 3 * * *", "zone": "Asia/Tokyo", "seconds": None}, 20, datetime(2026, 3, 9, 18, tzinfo=UTC)),
        ({"cron": None, "zone": "UTC", "seconds": 3600.0}, 5, NOON - timedelta(hours=4)),
        ({"cron": None, "zone": "UTC", "seconds": 3600.0}, 0.5, None),
    ],
)
def test_the_first_time_that_was_missed(times, hours, due):
    from espalier.flows.serve import missed

    assert missed(times, NOON - timedelta(hours=hours), NOON) == due
    assert missed(times, None, NOON) is None


def test_another_schedule_of_the_same_name_has_missed_nothing(tmp_path, monkeypatch):
    from espalier.flows import serve
    from espalier.flows.serve import _served

    monkeypatch.setattr(serve, "NOTE_SECONDS", 0.05)
    daily, weekly = ({"cron": cron, "zone": "UTC", "seconds": None} for cron in ("0 3 * * *", "0 3 * * 1"))
    with _served(tmp_path, "x", daily) as before:
        assert before is None
        first = json.loads((tmp_path / ".espalier" / "serve-x.json").read_text(encoding="utf-8"))
        eventually(lambda: first != json.loads((tmp_path / ".espalier" / "serve-x.json").read_text("utf-8")), 300)
    with _served(tmp_path, "x", daily) as before:
        assert datetime.now(UTC) - before < timedelta(minutes=1)
    with _served(tmp_path, "x", weekly) as before:
        assert before is None
    (tmp_path / ".espalier" / "serve-x.json").write_text("{", encoding="utf-8")
    with _served(tmp_path, "x", weekly) as before:
        assert before is None

"""What Prefect is told through the environment."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from espalier.engine.errors import EspalierError
from espalier.flows.settings import answers, dashboard_file, must_answer, prefect_environment, running_server


@pytest.fixture(autouse=True)
def empty_environment():
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("PREFECT") or name.lower().endswith("_proxy")]:
        del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def server():
    """Says what a Prefect server says of its health, until told to say something else."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(self.server.status if self.path == "/api/health" else 404)
            self.end_headers()
            self.wfile.write(self.server.text)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Health) as http:
        http.status, http.text = 200, b"true"
        http.api = f"http://127.0.0.1:{http.server_port}/api"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield http
        http.shutdown()
        thread.join()


def announce(root, **entry):
    dashboard_file(root).parent.mkdir(exist_ok=True)
    dashboard_file(root).write_text(json.dumps(entry), encoding="utf-8")


def dead_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_defaults_are_private_patient_quiet_and_without_a_cache(tmp_path):
    prefect_environment(tmp_path)
    assert os.environ["DO_NOT_TRACK"] == "1"
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] == "120"
    assert os.environ["PREFECT_HOME"] == str(tmp_path / ".espalier" / "prefect")
    assert os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] == "WARNING"
    assert os.environ["PREFECT_TASKS_DISABLE_CACHING"] == "true"
    assert "PREFECT_API_URL" not in os.environ
    assert not (tmp_path / ".espalier").exists(), "nothing is made before it is needed"


def test_prefect_understands_every_name(tmp_path):
    """A name that Prefect does not know would be ignored in silence."""
    prefect_environment(tmp_path)
    code = (
        "from prefect.settings import get_current_settings as get; s = get(); "
        "print(s.home, s.server.analytics_enabled, s.server.ephemeral.startup_timeout_seconds, "
        "s.results.persist_by_default, s.tasks.default_persist_result, s.tasks.disable_caching, "
        "s.server.ui.show_promotional_content, s.server.ui.v2_enabled); "
        "import logging; from prefect.logging.configuration import setup_logging; setup_logging(); "
        "print([h.level for h in logging.getLogger().handlers])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    home = tmp_path / ".espalier" / "prefect"
    assert done.stdout.splitlines() == [f"{home} False 120 False False True False False", "[30]"]


def test_what_the_user_has_set_stays(tmp_path):
    mine = {
        "DO_NOT_TRACK": "0",
        "PREFECT_HOME": "/elsewhere",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "true",
        "PREFECT_LOGGING_LEVEL": "DEBUG",
    }
    os.environ.update(mine)
    prefect_environment(tmp_path)
    prefect_environment(tmp_path)
    assert {name: os.environ[name] for name in mine} == mine
    assert "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL" not in os.environ, "who asks for a level wants to see it"


def test_a_schedule_may_talk(tmp_path):
    prefect_environment(tmp_path, quiet=False)
    assert "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL" not in os.environ


def test_with_a_server_of_the_users_home_and_address_stay(tmp_path, server):
    announce(tmp_path, url="u", api=server.api)
    os.environ["PREFECT_API_URL"] = "http://prefect.example/api"
    prefect_environment(tmp_path)
    assert os.environ["PREFECT_API_URL"] == "http://prefect.example/api"
    assert "PREFECT_HOME" not in os.environ


def test_a_running_dashboard_is_used(tmp_path, server):
    announce(tmp_path, url="u", api=server.api, pid=os.getpid())
    prefect_environment(tmp_path)
    assert os.environ["PREFECT_API_URL"] == server.api


def test_a_dashboard_that_is_gone_is_not_used(tmp_path, server):
    server.shutdown()
    server.server_close()
    announce(tmp_path, url="u", api=server.api, pid=os.getpid())
    prefect_environment(tmp_path)
    assert "PREFECT_API_URL" not in os.environ


def test_another_server_on_the_port_of_a_dead_one_is_not_ours(tmp_path, server):
    announce(tmp_path, url="u", api=server.api, pid=dead_process())
    assert running_server(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"api": 3}', '{"api": "no address"}', "\xff"])
def test_a_damaged_note_is_as_good_as_none(tmp_path, text):
    dashboard_file(tmp_path).parent.mkdir()
    dashboard_file(tmp_path).write_bytes(text.encode("latin-1"))
    assert running_server(tmp_path) is None


@pytest.mark.parametrize(("status", "text"), [(200, b"false"), (200, b"<html>"), (503, b"true"), (404, b"true")])
def test_only_a_server_that_is_well_answers(server, status, text):
    assert answers(server.api)
    assert answers(server.api + "/")
    server.status, server.text = status, text
    assert not answers(server.api)


def test_a_proxy_is_not_asked_for_this_machine(tmp_path, server):
    os.environ["HTTP_PROXY"] = os.environ["http_proxy"] = "http://127.0.0.1:9"
    os.environ["NO_PROXY"] = "intranet"
    assert answers(server.api)
    prefect_environment(tmp_path)
    prefect_environment(tmp_path)
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == "intranet,127.0.0.1,localhost"


def test_without_a_proxy_nothing_is_said_of_one(tmp_path):
    prefect_environment(tmp_path)
    assert "NO_PROXY" not in os.environ


def test_a_server_that_must_answer(server):
    must_answer(server.api, "and be happy")
    server.status = 500
    with pytest.raises(EspalierError, match="no Prefect server answers there; start it, or unset the variable and be"):
        must_answer(server.api, "and be happy")

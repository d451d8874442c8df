"""Notification with a real command and a real server; neither can harm a run."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tasks.notify import LONGEST, tell
from tasks.params import Notify

EVENT = {"event": "refused", "reason": "ärgerlich 'quoted' \"twice\" $HOME", "reasons": ["a", "b"], "error": None}


@pytest.fixture
def server():
    """A web server that remembers what was posted; `reply` is its answer, `delay` its hesitation."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(self.server.delay)
            self.server.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(self.server.reply)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        found.got, found.reply, found.delay = [], 200, 0.0
        found.url = f"http://127.0.0.1:{found.server_address[1]}/hook?key=secret"
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_a_command_gets_the_event_on_stdin_and_in_its_environment(tmp_path):
    command = f'cat > {tmp_path}/stdin; printf %s "$ESPALIER_EVENT" > {tmp_path}/environment'
    assert tell(EVENT, Notify(command=command)) == []
    for name in ("stdin", "environment"):
        assert json.loads((tmp_path / name).read_text(encoding="utf-8")) == EVENT


def test_a_web_address_gets_the_event(server):
    assert tell(EVENT, Notify(webhook=server.url)) == []
    assert server.got == [("/hook?key=secret", "application/json; charset=utf-8", EVENT)]


def test_both_and_none(server, tmp_path):
    assert tell(EVENT, Notify(command=f"touch {tmp_path}/told", webhook=server.url)) == []
    assert (tmp_path / "told").exists() and len(server.got) == 1
    assert tell(EVENT, Notify()) == []


def test_a_command_that_fails_is_a_warning_with_its_last_words():
    assert tell(EVENT, Notify(command="echo first >&2; echo no such channel >&2; exit 3")) == [
        "notify.command ended with code 3: no such channel"
    ]
    assert tell(EVENT, Notify(command="exit 1")) == ["notify.command ended with code 1: it said nothing"]


def test_a_command_that_does_not_end_is_ended():
    assert tell(EVENT, Notify(command="exec sleep 60", timeout=0.3)) == [
        "notify.command did not end within 0.3 s and was ended"
    ]


def test_a_command_that_does_not_read_its_input_is_fine():
    assert tell(EVENT | {"reason": "x" * LONGEST}, Notify(command="exit 0")) == []


@pytest.mark.parametrize("reply", [404, 500])
def test_a_server_that_refuses_is_a_warning_without_the_key_in_the_address(server, reply):
    server.reply = reply
    (warning,) = tell(EVENT, Notify(webhook=server.url))
    assert warning.startswith(f"notify.webhook: 127.0.0.1 did not take the event: HTTP Error {reply}")
    assert "secret" not in warning


def test_a_server_that_hesitates_or_is_not_there(server):
    server.delay = 1.0
    (warning,) = tell(EVENT, Notify(webhook=server.url, timeout=0.2))
    assert "timed out" in warning
    (warning,) = tell(EVENT, Notify(webhook="http://127.0.0.1:9/secret"))
    assert "127.0.0.1 did not take the event" in warning and "secret" not in warning


@pytest.mark.parametrize("address", ["file:///etc/passwd", "example.com/hook", "http://", "ftp://host/x"])
def test_what_is_no_web_address_is_not_opened(address):
    (warning,) = tell(EVENT, Notify(webhook=address))
    assert warning.startswith("notify.webhook is no address that begins with http://")


def test_an_endless_text_is_cut():
    seen = []
    event = {"error": "x" * (10 * LONGEST)}
    assert tell(event, Notify(command="test ${#ESPALIER_EVENT} -lt 30000")) == seen

"""Notification with a real command and a real server; neither can harm a run."""

import json
import os
import socketserver
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from espalier.engine.errors import EspalierError
from espalier.tasks.keeping.notify import LONGEST, tell
from espalier.tasks.params import Notify, load_params

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
    assert warning.startswith(f"notify.webhook: 127.0.0.1 did not take the event: HTTP {reply} ")
    assert "secret" not in warning


def test_a_server_that_hesitates_or_is_not_there(server):
    server.delay = 1.0
    (warning,) = tell(EVENT, Notify(webhook=server.url, timeout=0.2))
    assert "timed out" in warning
    (warning,) = tell(EVENT, Notify(webhook="http://127.0.0.1:9/secret"))
    assert "127.0.0.1 did not take the event" in warning and "secret" not in warning


@pytest.mark.parametrize("address", [
    "file:///etc/passwd", "example.com/secret", "http://", "ftp://host/secret", "http://[secret", "http://host:secret/",
    "http://user:secret@host/", "http://host/a secret", "http://host/\nsecret", "http://host/sécret", "http://hôst/secret",
    "http:///secret", "http://host\\@secret/", "https://host:99999999/secret",
])  # fmt: skip
def test_what_is_no_web_address_is_not_opened(address):
    (warning,) = tell(EVENT, Notify(webhook=address))
    assert warning.startswith("notify.webhook is no valid address that begins with http://")
    assert "secret" not in warning


def test_an_address_of_the_wrong_kind_is_refused_without_being_shown():
    with pytest.raises(EspalierError, match="notify.webhook is not shown, expected a text or null") as refusal:
        load_params(Path(os.devnull), ["notify.webhook=[https://host/secret]"])
    assert "secret" not in str(refusal.value)


@pytest.fixture
def talker():
    """Sends the same bytes again and again to whoever connects, as long as they are there."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with suppress(OSError):
                self.request.sendall(self.server.first)
                while not over.wait(0.05):
                    self.request.sendall(self.server.more)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as found:
        found.daemon_threads = True
        found.url = f"http://127.0.0.1:{found.server_address[1]}/hook?key=secret"
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        over.set()
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("first", "more"), [(b"HTTP/1.1 20", b"0"), (b"HTTP/1.1 200 OK\r\nX: ", b"x"), (b"HTTP/1.1 200 OK\r\n", b"")]
)
@pytest.mark.timeout(600)
def test_a_server_that_answers_in_drops_is_not_waited_for(talker, first, more):
    """Each byte comes well within the time limit; the answer never ends."""
    talker.first, talker.more = first, more
    (warning,) = tell(EVENT, Notify(webhook=talker.url, timeout=0.5))
    assert warning.startswith("notify.webhook: 127.0.0.1 did not take the event: timed out") and "secret" not in warning


def test_an_answer_that_goes_on_is_not_read(talker):
    talker.first, talker.more = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"
    assert tell(EVENT, Notify(webhook=talker.url, timeout=30)) == []


def test_a_redirect_is_not_followed(server, talker):
    talker.first = f"HTTP/1.1 302 secret\r\nLocation: {server.url}\r\nContent-Length: 0\r\n\r\n".encode()
    talker.more = b""
    (warning,) = tell(EVENT, Notify(webhook=talker.url, timeout=30))
    assert warning.endswith("did not take the event: HTTP 302 Found (redirects are not followed)")
    assert server.got == []


@pytest.mark.parametrize(
    ("command", "seconds", "warnings"),
    [
        ("sleep 300 & echo $! > {}; wait", 2.5, ["notify.command did not end within 2.5 s and was ended"]),
        ("(sleep 300 & echo $! > {}); exit 0", 30, []),
        ("(sleep 300 & echo $! > {}); echo sorry >&2; exit 5", 30, ["notify.command ended with code 5: sorry"]),
    ],
)
@pytest.mark.timeout(600)
def test_what_a_command_has_started_ends_with_it(tmp_path, command, seconds, warnings):
    """Also a child that holds the pipes open, and whose parent is gone."""
    assert tell(EVENT, Notify(command=command.format(tmp_path / "pid"), timeout=seconds)) == warnings
    child = int((tmp_path / "pid").read_text())
    gone, alive = psutil.wait_procs([psutil.Process(child)] if psutil.pid_exists(child) else [], timeout=60)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def test_an_endless_text_is_cut():
    seen = []
    event = {"error": "x" * (10 * LONGEST)}
    assert tell(event, Notify(command="test ${#ESPALIER_EVENT} -lt 30000")) == seen

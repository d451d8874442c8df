"""Telling someone: an event as JSON to a command or to a web address.

Neither may harm a run: what goes wrong is returned as words of warning.
"""

import http
import json
import os
import re
import signal
import subprocess
import threading
import urllib.request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from espalier.tasks.params import Notify

LONGEST = 20_000  # characters of a text in an event: an environment has little room
LAST_WORDS = 10_000  # bytes of what a command says on standard error that are looked at
PIPE_SECONDS = 1.0  # for the last bytes of a command that has ended


def tell(event: dict, options: Notify) -> list[str]:
    """Send an event wherever the parameters say; warnings of what did not work."""
    text = json.dumps({key: _cut(value) for key, value in event.items()}, ensure_ascii=False, sort_keys=True)
    warnings = []
    if options.command:
        warnings += _run(options.command, text, options.timeout)
    if options.webhook:
        warnings += _post(options.webhook, text, options.timeout)
    return warnings


def _cut(value):
    return f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value


def _run(command: str, text: str, seconds: float) -> list[str]:
    """The command in a session of its own: whatever it has started and left behind ends with it."""
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], env=os.environ | {"ESPALIER_EVENT": text}, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        return [f"notify.command could not be started: {error}"]
    last = bytearray()
    pipes = [_in_background(_write, process.stdin, text.encode()), _in_background(_keep_end, process.stderr, last)]
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return [f"notify.command did not end within {seconds:g} s and was ended"]
    finally:
        _end_group(process)
        for thread in pipes:
            thread.join(PIPE_SECONDS)  # not for ever: a child that left the session may hold the other end
    if code:
        words = (last.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        return [f"notify.command ended with code {code}: {words}"]
    return []


def _in_background(function, *arguments) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def _write(pipe, data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except OSError:  # the command does not read its input
        pass


def _keep_end(pipe, last: bytearray) -> None:
    with pipe:
        while piece := pipe.read1(LAST_WORDS):
            last += piece
            del last[:-LAST_WORDS]


def _end_group(process: subprocess.Popen) -> None:
    """Kill the command, if it still runs, and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:  # nobody is left
        pass
    process.wait()


class _Straight(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: the event is for the address that was named and for no other."""

    def redirect_request(self, *_) -> None:
        return None


def _post(address: str, text: str, seconds: float) -> list[str]:
    """Post within so many seconds in all. The address may hold a key, so a warning names only the host."""
    host = _host(address)
    if host is None:
        return ["notify.webhook is no valid address that begins with http:// or https://: nothing was posted"]
    outcome: list[str] = []
    # Each step of a connection has a time limit of its own, a look-up of the host none: who waits is not bound by them.
    thread = _in_background(_send, address, text, seconds, outcome)
    thread.join(seconds)
    problem = (outcome or [f"timed out after {seconds:g} s"])[0]
    return [f"notify.webhook: {host} did not take the event: {problem}"] if problem else []


def _host(address: str) -> str | None:
    """The host of a web address; None when it is none, or one that would have to be guessed at."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 (an error when it is no number)
        host = parts.hostname or ""
    except ValueError:
        return None
    printable = re.fullmatch(r"[!-~]+", address) and "@" not in parts.netloc
    valid = parts.scheme in ("http", "https") and re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", host)
    return host if printable and valid else None


def _send(address: str, text: str, seconds: float, outcome: list[str]) -> None:
    """Appends what went wrong, the empty text when nothing did; no text of an exception, which may hold the address."""
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "espalier"}
    try:
        request = urllib.request.Request(address, text.encode(), headers, method="POST")
        with urllib.request.build_opener(_Straight).open(request, timeout=seconds):
            outcome.append("")
    except Exception as error:
        outcome.append(_problem(error))


def _problem(error: Exception) -> str:
    """What went wrong, without words that another has chosen."""
    if isinstance(error, HTTPError):
        known = error.code in set(http.HTTPStatus)
        phrase = f" {http.HTTPStatus(error.code).phrase}" if known else ""
        error.close()
        return f"HTTP {error.code}{phrase}" + (" (redirects are not followed)" if 300 <= error.code < 400 else "")
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        error = error.reason
    if isinstance(error, TimeoutError):
        return "timed out"
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__

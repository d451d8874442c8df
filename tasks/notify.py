"""Telling someone: an event as JSON to a command or to a web address.

Neither may harm a run: what goes wrong is returned as words of warning.
"""

import json
import os
import subprocess
import urllib.request
from urllib.parse import urlsplit

from tasks.params import Notify

LONGEST = 20_000  # characters of a text in an event: an environment has little room


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
    environment = os.environ | {"ESPALIER_EVENT": text}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], input=text.encode(), env=environment, timeout=seconds,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"notify.command did not end within {seconds:g} s and was ended"]
    except OSError as error:
        return [f"notify.command could not be started: {error}"]
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        return [f"notify.command ended with code {done.returncode}: {last}"]
    return []


def _post(address: str, text: str, seconds: float) -> list[str]:
    """The address may hold a key, so a warning names only the host."""
    host = urlsplit(address).hostname
    if urlsplit(address).scheme not in ("http", "https") or not host:
        return ["notify.webhook is no address that begins with http:// or https://: nothing was posted"]
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "espalier"}
    try:
        request = urllib.request.Request(address, text.encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=seconds) as reply:
            reply.read(1000)
    except (OSError, ValueError) as error:  # URLError and HTTPError are errors of the system, too
        return [f"notify.webhook: {host} did not take the event: {str(error).replace(address, host)}"]
    return []

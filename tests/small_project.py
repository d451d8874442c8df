"""A project that trains in seconds, and processes that work on it."""

import base64
import contextlib
import io
import itertools
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from unittest import mock

import yaml

ROOT = Path(__file__).resolve().parents[1]
PARAMS = """\
ingest:
  source: simulated
  limit: 400
template:
  lines: ["U", "*:%x[0,0]", "B"]
train:
  max_iterations: 15
"""
# What a user may have set must not reach the tests, and neither must a server of theirs.
UNSET = ("PREFECT_", "DVC_", "ESPALIER_THREADS", "DO_NOT_TRACK")


def write_project(folder: Path, with_dvc: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
    if with_dvc:
        begin_dvc(folder)
    return folder


def begin_dvc(folder: Path) -> None:
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True)


def set_params(folder: Path, **sections: dict) -> None:
    """Add to the sections of params.yaml."""
    path = folder / "params.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, values in sections.items():
        data[name] = data.get(name, {}) | values
    path.write_text(yaml.safe_dump(data), encoding="utf-8")


def environment(**more: str) -> dict[str, str]:
    """The environment of a user who has set nothing but this."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(UNSET)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return kept | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "DVC_NO_ANALYTICS": "1"} | more


def run_python(*arguments: str, cwd: Path, timeout: float, **more: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(**more), timeout=timeout, capture_output=True, text=True)


def run_here(main, *arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess:
    """A command whose function `main` returns its exit code, in this process: a new one imports for a second or two."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        mock.patch.dict(os.environ, environment(**more), clear=True), contextlib.chdir(cwd),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
    ):  # fmt: skip
        code = main(list(arguments))
    return subprocess.CompletedProcess(arguments, code, *(text.buffer.getvalue().decode() for text in (out, err)))


def dvc_here(*arguments: str, cwd: Path, **more: str) -> str:
    """A command of DVC that succeeds, in this process: what it prints."""
    from dvc.cli import main

    done = run_here(main, *arguments, cwd=cwd, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Background:
    """A Python process whose lines can be waited for; the block ends it."""

    def __init__(self, *arguments: str, cwd: Path, **more: str):
        self.process = subprocess.Popen(
            [sys.executable, *arguments], cwd=cwd, env=environment(**more), text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.lines: list[str] = []
        self.fresh: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line)
            self.fresh.put(line)
        self.fresh.put(None)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, text: str, seconds: float) -> str:
        """The first line not yet seen that holds `text`."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.fresh.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {text!r} in {seconds} s:\n{self.output}") from None
            assert line is not None, f"it ended without a line with {text!r}:\n{self.output}"
            if text in line:
                return line.rstrip("\n")

    def end(self, by: int = signal.SIGTERM, seconds: float = 600) -> int:
        """Send a signal and wait; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(by)
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join(60)
            self.process.stdout.close()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_) -> None:
        self.end()


def own_port() -> int:
    """A free port that no other process of this run of tests takes: each has a range of its own."""
    begin = 23000 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for port in range(begin + next(_ports) % 100, begin + 100):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError(f"no free port from {begin} on")


_ports = itertools.count()


def authorisation(project: Path) -> dict[str, str]:
    """The header that a project's server asks for."""
    text = (project / ".espalier" / "prefect-auth").read_bytes().strip()
    return {"Authorization": f"Basic {base64.b64encode(text).decode()}"}


def ask(project: Path, path: str, body: dict | None = None, **headers: str):
    """What the server of a project says: GET without a body, else POST."""
    server = json.loads((project / ".espalier" / "dashboard.json").read_text(encoding="utf-8"))
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | authorisation(project) | headers
    request = urllib.request.Request(f"{server['api']}{path}", data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=300) as reply:
        return json.loads(reply.read())


def eventually(look, seconds: float, every: float = 0.5):
    """The first true result of `look`, which is called again and again."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not seen within {seconds} s"
        time.sleep(every)
    return found

"""A Prefect server of the project's own, as a child process on this machine's loopback address.

The child ends with its parent, however that ends: it reads a pipe that only the parent
holds open. Signals it does not hear, so that one sent to all processes at once does not
take the server away from those that still report to it.
`python -m flows.server PORT` is the child. Prefect's embedded server is started in the same way,
as `python -m flows.server uvicorn ...`, so that none is left behind by a run that was killed.
"""

import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from engine.errors import EspalierError
from flows.locks import waiting_for
from flows.settings import answers, dashboard_file, prefect_home, running_server
from flows.signals import children_deaf, hear_again
from tasks import store

HOST, PORT = "127.0.0.1", 4200
START_SECONDS, STOP_SECONDS = 120, 15
PACKAGES = Path(__file__).resolve().parents[1]


@contextmanager
def own_server(root: Path, port: int | None = None) -> Iterator[tuple[dict, subprocess.Popen | None]]:
    """The project's server: the one that runs already, else a new one and its process, for this block."""
    with waiting_for(prefect_home(root) / "start.lock"):
        server, process = running_server(root), None
        if server is None:
            process = _start(root, port := choose_port(port))
            server = {"url": f"http://{HOST}:{port}", "api": f"http://{HOST}:{port}/api", "pid": process.pid}
            _announce(root, server, process)
    try:
        yield server, process
    finally:
        if process is not None:
            _stop(process)
            if running_server(root) is None:
                dashboard_file(root).unlink(missing_ok=True)


def choose_port(wanted: int | None) -> int:
    """The port asked for, else Prefect's usual one, else any that is free."""
    if wanted is None:
        return PORT if _is_free(PORT) else _any_free()
    if not 0 < wanted < 65536:
        raise EspalierError(f"--port {wanted}: expected a number from 1 to 65535")
    if not _is_free(wanted):
        raise EspalierError(f"port {wanted} is in use: choose another with --port, or end what uses it")
    return wanted


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except PermissionError:
            raise EspalierError(f"port {port} is reserved: choose one from 1024 up with --port") from None
        except OSError:
            return False
    return True


def _any_free() -> int:
    with socket.socket() as trial:
        trial.bind((HOST, 0))
        return trial.getsockname()[1]


def log_file(root: Path) -> Path:
    return root.resolve() / ".espalier" / "server.log"


def _start(root: Path, port: int) -> subprocess.Popen:
    """Start the child; it is not ready yet."""
    environment = {name: value for name, value in with_packages(os.environ).items() if name != "PREFECT_API_URL"}
    environment["PREFECT_SERVER_UI_API_URL"] = f"http://{HOST}:{port}/api"
    with log_file(root).open("wb") as log, children_deaf():
        command = [sys.executable, "-m", "flows.server", str(port)]
        pipes = {"stdin": subprocess.PIPE, "stdout": log, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, env=environment, **pipes)


def _announce(root: Path, server: dict, process: subprocess.Popen) -> None:
    """Wait until the server is well and write down where it is."""
    try:
        _wait(root, server["api"], process)
        store.write_json(dashboard_file(root), server)
    except BaseException:
        _stop(process)
        raise


def _wait(root: Path, api: str, process: subprocess.Popen) -> None:
    end = time.monotonic() + START_SECONDS
    while not (_is_ours(api, process) and answers(api, 1.0)):
        if process.poll() is not None:
            raise EspalierError(f"the server ended while starting: {_last_words(root)}; see {log_file(root)}")
        if time.monotonic() > end:
            raise EspalierError(f"the server did not answer within {START_SECONDS} s; see {log_file(root)}")
        time.sleep(0.2)


def _is_ours(api: str, process: subprocess.Popen) -> bool:
    """Whether the child itself listens: of two that start at once on one port, one answers for both."""
    port = int(api.rsplit(":", 1)[1].split("/")[0])
    try:
        connections = psutil.Process(process.pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)


def _last_words(root: Path) -> str:
    lines = log_file(root).read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _stop(process: subprocess.Popen) -> None:
    """End the child by closing its pipe; by force when that is not enough."""
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_with_parent() -> None:
    """Wait for the pipe's end, which comes when the parent has ended."""
    while os.read(0, 1024):
        pass
    hear_again()
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def embedded_ends_with_us() -> Iterator[None]:
    """Processes that Prefect starts within it get a group of their own, and its embedded server a pipe that we hold.

    A group of their own, because it is not for us to say which signals they hear: see `children_deaf`.
    """
    original = subprocess.Popen

    class Child(original):
        def __init__(self, args, *others, **options):
            if list(args[1:3]) == ["-m", "uvicorn"]:
                args, options["stdin"] = [args[0], "-m", "flows.server", *args[2:]], subprocess.PIPE
                options["env"] = with_packages(options.get("env") or os.environ)
            super().__init__(args, *others, start_new_session=True, **options)

    subprocess.Popen = Child
    try:
        yield
    finally:
        subprocess.Popen = original


def with_packages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that can import what we can."""
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": path}


def main() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if sys.argv[1] == "uvicorn":
        sys.argv = sys.argv[1:]
        runpy.run_module("uvicorn", run_name="__main__", alter_sys=True)
        return
    sys.argv = ["prefect", "--no-prompt", "server", "start", "--host", HOST, "--port", sys.argv[1]]
    runpy.run_module("prefect", run_name="__main__")


if __name__ == "__main__":
    main()

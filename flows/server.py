"""A Prefect server of the project's own, as a child process on this machine's loopback address.

The child ends with its parent, however that ends: it reads a pipe that only the parent
holds open. Signals it does not hear, so that one sent to all processes at once does not
take the server away from those that still report to it.
`python -m espalier.flows.server PORT` is the child; with `embedded` it has no page and no schedules, and serves
one process that has no other server. Prefect's own embedded server would let in whoever asks, wait for minutes for one
that is dead, and be left behind by a run that was killed.
"""

import os
import shutil
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

from espalier.engine.errors import EspalierError
from espalier.flows.access import SERVER, guard, server_environment
from espalier.flows.locks import waiting_for
from espalier.flows.settings import answers, dashboard_file, prefect_home, running_server
from espalier.flows.signals import children_deaf, hear_again
from espalier.tasks import store

HOST, PORT = "127.0.0.1", 4200
START_SECONDS, STOP_SECONDS = 120, 15
FULL = 2**20  # bytes; a disk with fewer free is full: a first start of Prefect writes more
PACKAGES = Path(__file__).resolve().parents[1]


@contextmanager
def own_server(root: Path, port: int | None = None) -> Iterator[tuple[dict, subprocess.Popen | None]]:
    """The project's server: the one that runs already, else a new one and its process, for this block."""
    with waiting_for(prefect_home(root) / "start.lock"):
        server, process = running_server(root), None
        if server is None:
            server, process = _started(root, choose_port(port))
            store.write_json(dashboard_file(root), server)
    try:
        yield server, process
    finally:
        if process is not None:
            _stop(process)
            if running_server(root) is None:
                dashboard_file(root).unlink(missing_ok=True)


@contextmanager
def embedded_server(root: Path) -> Iterator[dict]:
    """A server for this block and this process, on any port; one starts at a time: two would both make the database."""
    home = Path(os.environ.get("PREFECT_HOME") or prefect_home(root))
    with waiting_for(home / "start.lock"):
        server, process = _started(root, _any_free(), embedded=True)
    try:
        yield server
    finally:
        _stop(process)


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


def log_file(root: Path, embedded: bool = False) -> Path:
    return root.resolve() / ".espalier" / ("embedded.log" if embedded else "server.log")


def _started(root: Path, port: int, embedded: bool = False) -> tuple[dict, subprocess.Popen]:
    """A new server that is well, as `running_server` describes it, and its process."""
    log = log_file(root, embedded)
    process = _start(root, port, embedded, log)
    server = {"url": f"http://{HOST}:{port}", "api": f"http://{HOST}:{port}/api", "pid": process.pid}
    try:
        _wait(server["api"], process, log)
    except BaseException:
        _stop(process)
        raise
    return server, process


def _start(root: Path, port: int, embedded: bool, log: Path) -> subprocess.Popen:
    """Start the child; it is not ready yet."""
    environment = {name: value for name, value in with_packages(os.environ).items() if name != "PREFECT_API_URL"}
    environment |= {"PREFECT_SERVER_UI_API_URL": f"http://{HOST}:{port}/api"} | server_environment(root, port)
    environment |= {"PREFECT_SERVER_UI_ENABLED": "false"} if embedded else {}
    with log.open("wb") as output, children_deaf():
        command = [sys.executable, "-m", "espalier.flows.server", str(port), *(["embedded"] if embedded else [])]
        pipes = {"stdin": subprocess.PIPE, "stdout": output, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, env=environment, **pipes)


def _wait(api: str, process: subprocess.Popen, log: Path) -> None:
    """Until the server is well; an error with the cause when it ends before, or takes too long."""
    end = time.monotonic() + START_SECONDS
    while not (_is_ours(api, process) and answers(api, 1.0)):
        if process.poll() is not None:
            full = full_disk(log.parent) or full_disk(Path(os.environ.get("PREFECT_HOME") or log.parent))
            raise EspalierError(full or f"the server ended while starting: {_last_words(log)}; see {log}")
        if time.monotonic() > end:
            raise EspalierError(f"the server did not answer within {START_SECONDS} s; see {log}")
        time.sleep(0.2)


def full_disk(place: Path) -> str | None:
    """Words for a disk without space, on which neither a database nor a log can say so; None when there is some."""
    place = next(folder for folder in (place, *place.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    return f"no space is left on the disk of {place} ({free:,} bytes free): make room there" if free < FULL else None


def _is_ours(api: str, process: subprocess.Popen) -> bool:
    """Whether the child itself listens: of two that start at once on one port, one answers for both."""
    port = int(api.rsplit(":", 1)[1].split("/")[0])
    try:
        connections = psutil.Process(process.pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    lines = [line.strip() for line in lines if line.strip()]
    told = [line for line in lines if "Error" in line]  # the line of a traceback that says what went wrong
    return (told or lines or ["it said nothing"])[-1]


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


def with_packages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that can import what we can."""
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": path}


def listen(port: int, embedded: bool) -> None:
    """Prefect's application behind our guard, in this process, until it is told to end."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    app, settings = create_app(final=True, ephemeral=embedded), get_current_settings().server.api
    if not settings.auth_string:
        raise EspalierError(f"{SERVER} is not set: the server is started by `espalier dashboard` or `espalier serve`")
    guard(app, settings.cors_allowed_origins.split(","))
    uvicorn.run(app, host=HOST, port=port, log_level="warning")


def main() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    listen(int(sys.argv[1]), sys.argv[2:] == ["embedded"])


if __name__ == "__main__":
    main()

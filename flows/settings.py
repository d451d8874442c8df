"""What Prefect is told through the environment, before it is imported, and where the project's own server is.

Nothing here overrides what the user has set.
"""

import json
import os
import urllib.request
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

from engine.errors import EspalierError

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # The second version of Prefect's page calls a host elsewhere even with analytics off.
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    # A first start migrates the database, and two at once wait for each other.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # DVC is the only cache.
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_TASKS_DEFAULT_PERSIST_RESULT": "false",
    "PREFECT_TASKS_DISABLE_CACHING": "true",
}
QUIET = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING"}  # the dashboard's log still gets everything
LOOPBACK = ("127.0.0.1", "localhost")


def prefect_environment(root: Path, quiet: bool = True) -> None:
    """Defaults for Prefect; the project's running dashboard is used when no other server is named.

    `quiet` leaves the terminal to progress bars: warnings and errors stay.
    """
    _set_defaults(DEFAULTS)
    if quiet and not os.environ.get("PREFECT_LOGGING_LEVEL"):
        _set_defaults(QUIET)
    _let_loopback_pass_the_proxy()
    if os.environ.get("PREFECT_API_URL"):
        return
    _set_defaults({"PREFECT_HOME": str(prefect_home(root))})
    if server := running_server(root):
        os.environ["PREFECT_API_URL"] = server["api"]


def _set_defaults(values: dict[str, str]) -> None:
    for name, value in values.items():
        if not os.environ.get(name):
            os.environ[name] = value


def _let_loopback_pass_the_proxy() -> None:
    """A proxy cannot reach this machine's own server; programs read either spelling of the variable."""
    if not any(os.environ.get(name) for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")):
        return
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    if "*" not in hosts:
        hosts += [host for host in LOOPBACK if host not in hosts]
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(hosts)


def prefect_home(root: Path) -> Path:
    return root.resolve() / ".espalier" / "prefect"


def dashboard_file(root: Path) -> Path:
    """Where a server of this project says that it runs: its page, its API and its process."""
    return root.resolve() / ".espalier" / "dashboard.json"


def running_server(root: Path) -> dict | None:
    """{"url", "api", "pid"} of the project's server; None when there is none or it is dead."""
    try:
        server = json.loads(dashboard_file(root).read_text(encoding="utf-8"))
        alive = _is_alive(server.get("pid")) and answers(server["api"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return server if alive else None


def _is_alive(pid: int | None) -> bool:
    """Whether the process exists, so that another's server on the same port is not taken for ours."""
    if pid is None:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def answers(api: str, seconds: float = 3.0) -> bool:
    """Whether a Prefect server at this address says that it is well."""
    proxies = urllib.request.ProxyHandler({} if _is_local(api) else None)
    try:
        with urllib.request.build_opener(proxies).open(f"{api.rstrip('/')}/health", timeout=seconds) as reply:
            return reply.status == 200 and json.loads(reply.read()) is True
    except HTTPError as error:
        return not _is_local(api) and error.code < 500  # someone is there and wants to know who asks
    except (OSError, ValueError):
        return False


def _is_local(address: str) -> bool:
    return urlsplit(address).hostname in LOOPBACK


def must_answer(api: str, otherwise: str) -> None:
    """An error when the server that the user named is not there; `otherwise` ends the advice."""
    if not answers(api, 10):
        raise EspalierError(
            f"PREFECT_API_URL is {api}: no Prefect server answers there; start it, or unset the variable {otherwise}"
        )

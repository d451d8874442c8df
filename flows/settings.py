"""What Prefect is told through the environment, before it is imported, and where the project's own server is.

Nothing here overrides what the user has set.
"""

import base64
import json
import os
import urllib.request
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

from espalier.engine.errors import EspalierError
from espalier.flows.access import CLIENT, NAMES, auth_string

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


def prefect_environment(root: Path, quiet: bool = True) -> None:
    """Defaults for Prefect; the project's running dashboard is used when no other server is named.

    `quiet` leaves the terminal to progress bars: warnings and errors stay.
    """
    _set_defaults(DEFAULTS)
    if quiet and not os.environ.get("PREFECT_LOGGING_LEVEL"):
        _set_defaults(QUIET)
    _let_loopback_pass_the_proxy()
    named = os.environ.get("PREFECT_API_URL")
    if not named:
        _set_defaults({"PREFECT_HOME": str(prefect_home(root))})
    elif not _is_local(named):
        return
    server = running_server(root)
    if server and named in (None, "", server["api"]):
        use(root, server)


def use(root: Path, server: dict) -> None:
    """From now on Prefect talks to the project's server."""
    os.environ["PREFECT_API_URL"] = server["api"]
    if string := auth_string(root):
        os.environ[CLIENT] = string


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
        hosts += [host for host in NAMES if host not in hosts]
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
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
    try:
        with _open(api, "/health", seconds) as reply:
            return reply.status == 200 and json.loads(reply.read()) is True
    except HTTPError as error:
        return not _is_local(api) and error.code < 500  # someone is there and wants to know who asks
    except (OSError, ValueError):
        return False


def lets_us_in(api: str) -> bool:
    """Whether a server of this machine takes our authentication string; one elsewhere may ask for other things."""
    try:
        with _open(api, "/version", 10):
            return True
    except HTTPError as error:
        return not (_is_local(api) and error.code == 401)
    except OSError:
        return True


def _open(api: str, path: str, seconds: float):
    proxies = urllib.request.ProxyHandler({} if _is_local(api) else None)
    request = urllib.request.Request(api.rstrip("/") + path)
    if _is_local(api) and os.environ.get(CLIENT):
        request.add_header("Authorization", f"Basic {base64.b64encode(os.environ[CLIENT].encode()).decode()}")
    return urllib.request.build_opener(proxies).open(request, timeout=seconds)


def _is_local(address: str) -> bool:
    return urlsplit(address).hostname in NAMES


def must_answer(api: str, otherwise: str) -> None:
    """An error when the server that the user named is not there; `otherwise` ends the advice."""
    if not answers(api, 10):
        raise EspalierError(
            f"PREFECT_API_URL is {api}: no Prefect server answers there; start it, or unset the variable {otherwise}"
        )
    if not lets_us_in(api):
        raise EspalierError(
            f"PREFECT_API_URL is {api}: the server there asks for another authentication string; set {CLIENT}, for the "
            'dashboard of a project by `eval "$(espalier -C DIR dashboard --env)"`'
        )

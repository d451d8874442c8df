"""Who may talk to the servers that we start: those who know the project's authentication string, from their own page.

A page of another site can send requests to this machine, also under a name of its own for it. So a server answers only
to its own address, only to its own page, and only with the string, which lies in a file that nobody else can read.
"""

import os
import secrets
import stat
import tempfile
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.flows.locks import state_folder

CLIENT, SERVER = "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"
NAMES = ("127.0.0.1", "localhost")  # of this machine, for its own browser
USER = "espalier"  # Prefect's strings are of the form user:password


def auth_file(root: Path) -> Path:
    return root.resolve() / ".espalier" / "prefect-auth"


def auth_string(root: Path) -> str | None:
    """What the user has set, else what the project's file holds; None when there is none yet."""
    given = os.environ.get(CLIENT) or os.environ.get(SERVER)
    path = auth_file(root)
    if given or not path.exists():
        return given or None
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise EspalierError(f"{path}: others can read it; end the project's servers and remove it, it is made anew")
    text = path.read_text(encoding="utf-8").strip()
    if ":" not in text:
        raise EspalierError(f"{path}: damaged, expected user:password; end the project's servers and remove it")
    return text


def make_auth_string(root: Path) -> str:
    """The same, made when there is none yet."""
    if found := auth_string(root):
        return found
    path = auth_file(root)
    with tempfile.NamedTemporaryFile("w", dir=state_folder(path.parents[1]), encoding="utf-8") as file:  # mode 0600
        file.write(f"{USER}:{secrets.token_urlsafe(24)}\n")
        file.flush()
        try:
            os.link(file.name, path)  # whole or not at all, and only the first of two
        except FileExistsError:
            pass
    return auth_string(root)


def pages(port: int) -> list[str]:
    """The origins of a server's own page."""
    return [f"http://{name}:{port}" for name in NAMES]


def server_environment(root: Path, port: int) -> dict[str, str]:
    """What Prefect's server is told; allowed origins that the user has set stay."""
    origins = os.environ.get("PREFECT_SERVER_CORS_ALLOWED_ORIGINS") or ",".join(pages(port))
    return {SERVER: make_auth_string(root), "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": origins}


def guard(app, origins: list[str]) -> None:
    """Make Prefect's application refuse requests for other hosts, and those that a page of another origin has sent."""
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    if "*" not in origins:
        app.add_middleware(_OwnPageOnly, origins=origins)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(NAMES), www_redirect=False)


class _OwnPageOnly:
    """CORS keeps a page from reading an answer; this keeps the request from being heard."""

    def __init__(self, app, origins: list[str]):
        self.app, self.origins = app, {origin.encode("latin-1") for origin in origins}

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] in ("http", "websocket"):
            sent = [value for name, value in scope["headers"] if name == b"origin"]
            if not self.origins.issuperset(sent):
                from starlette.responses import PlainTextResponse

                await PlainTextResponse("this server answers to its own page only", 403)(scope, receive, send)
                return
        await self.app(scope, receive, send)

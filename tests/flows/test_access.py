"""The authentication string of a project, and the guard before Prefect's application."""

import asyncio
import os
import stat

import pytest

from espalier.engine.errors import EspalierError
from espalier.flows.access import (
    CLIENT,
    SERVER,
    auth_file,
    auth_string,
    guard,
    make_auth_string,
    pages,
    server_environment,
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in (CLIENT, SERVER, "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"):
        monkeypatch.delenv(name, raising=False)


def test_a_string_is_made_once_and_only_the_user_can_read_it(tmp_path):
    assert auth_string(tmp_path) is None and not auth_file(tmp_path).exists()
    before = os.umask(0)
    try:
        first = make_auth_string(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(auth_file(tmp_path).stat().st_mode) == 0o600
    assert make_auth_string(tmp_path) == auth_string(tmp_path) == first
    assert make_auth_string(tmp_path / "other") != first
    assert sorted(path.name for path in auth_file(tmp_path).parent.iterdir()) == [".gitignore", "prefect-auth"]


@pytest.mark.parametrize("name", [CLIENT, SERVER])
def test_what_the_user_has_set_is_used(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "me:mine")
    assert make_auth_string(tmp_path) == server_environment(tmp_path, 1)[SERVER] == "me:mine"
    assert not auth_file(tmp_path).exists()


def test_a_file_that_others_can_read_or_that_is_damaged_is_refused(tmp_path):
    make_auth_string(tmp_path)
    auth_file(tmp_path).chmod(0o644)
    with pytest.raises(EspalierError, match="prefect-auth: others can read it; end the project's servers and remove"):
        make_auth_string(tmp_path)
    auth_file(tmp_path).chmod(0o600)
    auth_file(tmp_path).write_text("", encoding="utf-8")
    with pytest.raises(EspalierError, match="damaged, expected user:password"):
        make_auth_string(tmp_path)


def test_only_the_servers_own_page_is_an_allowed_origin(tmp_path, monkeypatch):
    assert server_environment(tmp_path, 4200)["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == (
        "http://127.0.0.1:4200,http://localhost:4200"
    )
    monkeypatch.setenv("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", "https://intranet")
    assert server_environment(tmp_path, 4200)["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == "https://intranet"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:4200"}, 200),
        ({"host": "localhost:4200", "origin": "http://localhost:4200"}, 200),
        ({"host": "evil.example:4200"}, 400),
        ({"host": "127.0.0.1.evil.example"}, 400),
        ({}, 400),
        ({"host": "127.0.0.1:4200", "origin": "http://evil.example"}, 403),
        ({"host": "127.0.0.1:4200", "origin": "http://127.0.0.1:8000"}, 403),
        ({"host": "127.0.0.1:4200", "origin": "https://127.0.0.1:4200"}, 403),
        ({"host": "127.0.0.1:4200", "origin": "null"}, 403),
        ({"host": "127.0.0.1:4200", "origin": ""}, 403),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_the_guard(headers, status, kind):
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route, WebSocketRoute

    async def welcome(websocket):
        await websocket.accept()

    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("in")), WebSocketRoute("/", welcome)])
    guard(app, pages(4200))
    sent = []

    async def receive():
        return {"type": "http.request" if kind == "http" else "websocket.connect"}

    async def send(message):
        sent.append(message)

    raw = [(name.encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": kind, "method": "GET", "path": "/", "headers": raw, "query_string": b"", "root_path": "",
             "extensions": {"websocket.http.response": {}}, "subprotocols": [], "scheme": "http"}  # fmt: skip
    asyncio.run(app(scope, receive, send))
    assert (sent[0].get("status", 200), sent[0]["type"] == "websocket.accept") == (
        status, kind == "websocket" and status == 200
    )  # fmt: skip

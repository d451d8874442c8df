"""Kernels compiled ahead: what is compiled is what is needed, by processes that leave nothing behind."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numba
import psutil
import pytest

from espalier.engine import recipes, warm_up
from espalier.engine.optimise.solver_table import SOLVERS
from espalier.engine.runtime import compiling, threads

ROOT = Path(__file__).resolve().parents[2]
compiled = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
QUICK = {"texts": 20}


def python(code, *arguments, **more):
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | more
    return subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True)


def test_every_recipe_is_named_and_every_solver_has_one():
    assert set(warm_up.EVERY) == set(recipes.RECIPES)
    assert set(warm_up.FIRST_FIT) < set(warm_up.USUAL) < set(warm_up.EVERY)
    assert {f"solver {name}" for name in SOLVERS} < set(warm_up.EVERY)


# ---- what is told


def test_kernels_compiled_elsewhere_fill_a_bar():
    heard = []
    with compiling.hears(lambda state: heard.append(str(state).removeprefix(f"{compiling.TEXT}: "))) as state:
        with compiling.elsewhere(4) as tell:
            for done in (False, True, True, True, True, True):
                tell(done)
    bars = ["░" * 20, "█" * 5 + "░" * 15, "█" * 10 + "░" * 10, "█" * 15 + "░" * 5, "█" * 20, "█" * 20]
    assert heard == [f"{bar} {n} done" for n, bar in enumerate(bars)]
    assert state.kernels == 5 and state.seconds > 0 and state.expected == 0


def test_nobody_needs_to_listen():
    with compiling.elsewhere(4) as tell:
        tell(True)


def test_in_a_terminal_the_bar_stands_in_one_line():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with compiling.said(stream=stream), compiling.elsewhere(2) as tell:
        tell(False)
        tell(True)
    assert "\respalier: compiling kernels for this machine, once: ██████████░░░░░░░░░░ 1 done …" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


# ---- processes


@compiled
def test_a_recipe_that_fails_says_why():
    failed = warm_up.compile_all({"no such recipe": 1} | QUICK)
    assert list(failed) == ["no such recipe"] and "KeyError" in failed["no such recipe"]


@compiled
def test_a_process_runs_one_recipe_after_the_other(monkeypatch):
    started, start = [], subprocess.Popen
    monkeypatch.setattr(threads, "_budget", 1)
    monkeypatch.setattr(
        subprocess, "Popen", lambda *given, **more: started.append(start(*given, **more)) or started[-1]
    )
    recipes = QUICK | {"no such recipe": 1, "gathered": 1, "smooth descent": 1}
    assert list(warm_up.compile_all(recipes)) == ["no such recipe"]
    assert len(started) == 2 and all(process.returncode is not None for process in started)


def test_an_interpreter_that_does_not_start_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", str(ROOT / "no" / "python"))
    assert "no/python" in warm_up.compile_all(QUICK)["texts"]


@pytest.fixture
def place(monkeypatch, tmp_path):
    """A cache in which nothing was fitted, and two threads; the recipes themselves use the real one."""
    monkeypatch.setattr(warm_up, "DIRECTORY", tmp_path)
    monkeypatch.setattr(warm_up, "FIRST_FIT", QUICK)
    monkeypatch.setattr(threads, "_budget", 2)
    return tmp_path


@compiled
def test_before_the_first_fit_and_never_again(place, monkeypatch):
    warm_up.before_first_fit()
    assert list(place.glob("first-fit-*"))
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: pytest.fail("it was done already"))
    warm_up.before_first_fit()


@compiled
def test_what_failed_is_tried_again(place, monkeypatch):
    monkeypatch.setattr(warm_up, "FIRST_FIT", {"no such recipe": 1})
    warm_up.before_first_fit()
    assert not list(place.glob("first-fit-*"))


@pytest.mark.parametrize("case", ["one thread", "frozen", "embedded", "no cache", "uncompiled"])
def test_no_process_where_it_could_not_help(place, monkeypatch, case):
    if case == "one thread":
        monkeypatch.setattr(threads, "_budget", 1)
    if case == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    if case == "embedded":
        monkeypatch.setattr(sys, "executable", "/usr/sbin/some-server")
    if case == "no cache":
        monkeypatch.setattr(warm_up, "DIRECTORY", None)
    if case == "uncompiled":
        monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: pytest.fail("a process was started"))
    warm_up.before_first_fit()
    assert not list(place.glob("first-fit-*"))


def test_a_cache_that_was_taken_away_is_no_error(place, monkeypatch):
    monkeypatch.setattr(warm_up, "DIRECTORY", place / "gone")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 0)
    warm_up.before_first_fit()


FIRST_FIT = """
from espalier.engine import warm_up
from espalier.engine.runtime import compiling, threads
threads.set_threads(2)
with compiling.hears(lambda state: print(state, flush=True)):
    warm_up.before_first_fit()
"""


@compiled
def test_an_interrupt_ends_the_processes(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FIRST_FIT], env=env, **pipes) as parent:
        assert compiling.TEXT in parent.stdout.readline()
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in parent.communicate(timeout=600)[1]
    end = time.monotonic() + 60
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < end, "a process goes on compiling"
        time.sleep(0.05)
    assert children and not list(tmp_path.rglob("first-fit-*"))


# ---- what is compiled

USED = """
import json, sys
from numba.core.dispatcher import Dispatcher
from espalier import CRF
from espalier.engine import recipes
words, labels = [["the", "dog", "barks"], ["a", "cat", "sleeps"]] * 5, [["D", "N", "V"]] * 10
if sys.argv[1:]:
    for name in sys.argv[1:]:
        recipes.RECIPES[name]()
else:
    CRF().fit(words, labels).predict(words)
kernels = {kernel for name, module in list(sys.modules.items()) if name.startswith("espalier.engine")
           for kernel in vars(module).values() if isinstance(kernel, Dispatcher)}
print(json.dumps([f"{kernel.py_func.__qualname__}{found}" for kernel in kernels for found in kernel.signatures]))
"""


def kernels_used(*names):
    done = python(USED, *names, ESPALIER_THREADS="1")
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@compiled
@pytest.mark.slow
def test_the_recipes_of_a_first_fit_meet_all_kernels_of_one():
    """The recipes first: what a process compiles shows its callees, too, and what it finds in the cache does not."""
    compiled_ahead = kernels_used(*warm_up.FIRST_FIT)
    used = kernels_used()
    assert len(used) > 20
    assert used <= compiled_ahead


FIT = """
from espalier import CRF
from espalier.engine.runtime import compiling
words, labels = [["the", "dog", "barks"], ["a", "cat", "sleeps"]] * 5, [["D", "N", "V"]] * 10
with compiling.hears(lambda state: None) as state:
    crf = CRF().fit(words, labels)
    crf.predict(words)
    crf.predict(words, "posterior"), crf.predict_marginals(words), crf.predict_nbest(words, 2)
print(state.kernels)
crf = CRF(templates=["U:%x[0,0]", "B"], rho1=0.01, max_iterations=5).fit(words, labels).save("some.model")
"""


@compiled
@pytest.mark.long
def test_after_warming_nothing_is_compiled(tmp_path):
    more = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    options = {"env": os.environ | more, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-m", "espalier.flows.cli", "warm"], **options)
    assert done.returncode == 0 and str(tmp_path) in done.stdout, done.stderr
    count = int(done.stderr.split(": ")[-1].split()[0])
    assert 0.7 < count / sum(warm_up.USUAL.values()) < 1.3, "the bar would be wrong"
    done = subprocess.run([sys.executable, "-c", FIT], **options)
    assert done.stdout == "0\n", done.stderr
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbi")}
    command = [sys.executable, "-m", "espalier.flows.cli", "tag", "--model", "some.model"]
    done = subprocess.run(command, input="the\ndog\n", **options)
    assert done.stdout == "the\tD\ndog\tN\n", done.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbi")} == before

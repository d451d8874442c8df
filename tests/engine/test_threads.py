"""One budget of threads: honoured, safe from many callers at once, and never carried into a forked child."""

import ast
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from chain_problems import pack, random_theta
from reference.problems import random_problem

from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.parts.sharded_objective import in_process
from espalier.engine.runtime import threads

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def default_budget():
    yield
    threads.set_threads(None)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_more_pieces_run_at_once_than_the_budget(count):
    threads.set_threads(count)
    running, most, lock, full = 0, 0, threading.Lock(), threading.Barrier(count)

    def piece(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(300)  # as many as the budget allows do run at the same time
        with lock:
            running -= 1

    threads.run(piece, range(4 * count))
    assert most == count


def test_results_come_in_the_order_of_the_pieces():
    threads.set_threads(3)
    assert threads.run(lambda x: x * x, range(50)) == [x * x for x in range(50)]


def test_the_environment_sets_the_budget_unless_the_caller_does(monkeypatch):
    monkeypatch.setenv("ESPALIER_THREADS", "3")
    assert threads.threads() == 3
    threads.set_threads(2)
    assert threads.threads() == 2
    threads.set_threads(None)
    monkeypatch.setenv("ESPALIER_THREADS", "many")
    with pytest.raises(EspalierError, match="ESPALIER_THREADS is 'many': expected a whole number"):
        threads.threads()


def test_an_error_in_a_piece_reaches_the_caller():
    threads.set_threads(2)
    with pytest.raises(ZeroDivisionError):
        threads.run(lambda x: 1 // x, [1, 0, 1])


@pytest.mark.parametrize("blocks", [False, True])
def test_many_callers_at_once_get_the_bytes_of_one(blocks):
    """Six threads, each with an objective of its own and two with the same, on a pool of three."""
    threads.set_threads(3)
    packed = pack(random_problem(2, 4, 12, 3, [6] * 120), "dense")

    def make():
        if blocks:
            return in_process(packed.dataset, packed.layout, block_tokens=150)
        return ChainObjective(packed.dataset, packed.layout)

    thetas = [random_theta(packed.layout.size, seed) for seed in range(4)]

    def bytes_at(objective, theta):
        value, gradient = objective.value_and_gradient(theta)
        return value, gradient.tobytes(), objective.value(theta)

    expected = [bytes_at(make(), theta) for theta in thetas]
    shared = None if blocks else make()

    def caller(k):
        objective = make() if shared is None or k < 4 else shared
        return [bytes_at(objective, theta) for theta in thetas for _ in range(3)]

    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(caller, range(6)):
            assert found == [item for item in expected for _ in range(3)]


FORKED = """
import os, sys, threading, time
import numpy as np
from espalier.engine.runtime import threads
from espalier.engine.runtime.vectors import dot
threads.set_threads(2)
a = np.arange(300_000.0)
expected = dot(a, a)
assert threads._pool is not None
busy = threading.Thread(target=lambda: [dot(a, a) for _ in range(200)])
busy.start()
child = os.fork()
if child == 0:
    found = dot(a, a)  # the pool of the parent is not there; waiting for it would last for ever
    os._exit(0 if found == expected else 3)
end = time.monotonic() + 600
while True:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    if time.monotonic() > end:
        os.kill(child, 9)
        sys.exit("the child hangs")
    time.sleep(0.05)
busy.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_gets_a_pool_of_its_own():
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", FORKED], env=env, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr


def test_no_module_forks():
    """Not by hand, and not through multiprocessing, whose default is to fork on Linux."""
    for path in (path for name in ("engine", "tasks", "flows") for path in sorted((ROOT / name).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not any(name.split(".")[0] == "multiprocessing" for name in names), path
                assert not {"ProcessPoolExecutor", "fork"} & set(names), path
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("fork", "forkpty", "ProcessPoolExecutor"), path


def test_workers_of_a_test_run_share_the_cores():
    """What tests/conftest.py does when pytest runs in several processes."""
    code = "import sys; sys.path.insert(0, 'tests'); import conftest\n"
    code += "from espalier.engine.runtime.threads import threads; print(threads())"
    for count, expected in (("1", threads.available_cores()), ("999", 1)):
        env = {**os.environ, "PYTEST_XDIST_WORKER_COUNT": count, "PYTHONPATH": str(ROOT)}
        env.pop("ESPALIER_THREADS", None)
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.stdout.strip() == str(expected), done.stderr


def test_vectors_are_summed_alike_for_any_budget():
    from espalier.engine.runtime.vectors import dot

    a = np.random.default_rng(0).normal(size=200_001)
    found = set()
    for count in (1, 2, 4):
        threads.set_threads(count)
        found.add(dot(a, a))
    assert len(found) == 1

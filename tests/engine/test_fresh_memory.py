"""Nothing is read before it is written: the same results whatever lies in fresh memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import fresh_memory

HERE = Path(__file__).resolve().parent
COMPILED = ("alignment", "clusters", "small_tables")  # those that compile in seconds


def results(*cases, **environment):
    """{case: numbers} of `memory_cases` in a process of its own."""
    environment = {**os.environ, "ESPALIER_THREADS": "1", **environment}
    command = [sys.executable, "-W", "ignore", str(HERE / "memory_cases.py"), *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: np.array(numbers) for name, numbers in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def with_zeros():
    """All cases uncompiled, fresh memory all zeros."""
    found = results(NUMBA_DISABLE_JIT="1", ESPALIER_FILL_MEMORY="zero")
    assert len(found) > 20 and all(np.isfinite(numbers).all() and len(numbers) for numbers in found.values())
    return found


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mixed", "nan", "huge"])
def test_uncompiled_kernels_read_nothing_that_was_not_written(with_zeros, kind):
    """Every objective, solver, decoder and family, to the last bit."""
    found = results(NUMBA_DISABLE_JIT="1", ESPALIER_FILL_MEMORY=kind)
    assert found.keys() == with_zeros.keys()
    for name, numbers in found.items():
        np.testing.assert_array_equal(numbers, with_zeros[name], err_msg=name)


def check_compiled(cases):
    """Compiled for memory with NaN and large numbers in turn, to the last bit what kernels give as they are."""
    found, plain = results(*cases, ESPALIER_FILL_MEMORY="mixed"), results(*cases)
    assert found.keys() == plain.keys() == set(cases)
    for name, numbers in found.items():
        np.testing.assert_array_equal(numbers, plain[name], err_msg=name)


@pytest.mark.long
@pytest.mark.timeout(1800)  # compiling, which a busy machine draws out
def test_some_compiled_kernels_read_nothing_that_was_not_written():
    check_compiled(COMPILED)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_other_compiled_kernels_read_nothing_that_was_not_written(with_zeros):
    check_compiled(sorted(with_zeros.keys() - set(COMPILED)))


FILLED = """
import numpy as np
from espalier.engine.runtime.jit import kernel
from espalier.engine.chain.scratch import Scratch

def made(n):
    return np.empty(n), np.empty((n, 2), np.int32), np.empty(n, np.bool_), np.empty_like(np.zeros(n)), np.zeros(n)

scratch = Scratch()
scratch.take(2)[:] = 1.0
for a in (*made(3), *kernel(made)(3), scratch.take(2)):
    print(a.ravel().tolist())
"""


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_the_switch_fills_what_python_and_kernels_ask_for(tmp_path, disabled):
    (tmp_path / "made.py").write_text(FILLED)
    environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled, "NUMBA_CACHE_DIR": str(tmp_path),
                   "PYTHONPATH": str(HERE.parents[1]), "ESPALIER_FILL_MEMORY": "mixed"}  # fmt: skip
    done = subprocess.run([sys.executable, "made.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lowest = -(2**30)
    made = [f"[nan, {1e300!r}, nan]", f"{[lowest] * 6}", "[True, True, True]", f"[nan, {1e300!r}, nan]", f"{[0.0] * 3}"]
    assert done.stdout.splitlines() == [*made, *made, f"[nan, {1e300!r}]"]
    assert disabled == "1" or [path.name.endswith("-mixed") for path in tmp_path.glob("espalier-*")] == [True]


def test_without_the_switch_nothing_is_touched(monkeypatch):
    monkeypatch.delenv(fresh_memory.VARIABLE, raising=False)
    before = np.empty, np.empty_like
    fresh_memory.install()
    assert (np.empty, np.empty_like) == before
    assert fresh_memory.fill(np.ones(2)).tolist() == [1.0, 1.0]


def test_an_unknown_kind_is_refused(monkeypatch):
    monkeypatch.setenv(fresh_memory.VARIABLE, "ones")
    with pytest.raises(EspalierError, match="ESPALIER_FILL_MEMORY is 'ones': expected one of zero, nan, huge, mixed"):
        fresh_memory.kind()

"""Kernels taken in by other kernels: the same results from either side, in either order, compiled or from the cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")

# Kernels that are called and not taken in, by two others whose calls differ in what the compiler knows.
CALLED = """
import sys
import numpy as np
from espalier.engine.runtime.jit import apart, kernel


@apart
def total(values, other):
    found = 0.0
    for i in range(len(values)):
        x, y = values[i] + 1.0, other[i] + 1.0
        found += x * y + np.log(x) * np.exp(-y) + np.log(y) * np.exp(-x) + np.sin(x) * np.cos(y) + np.sin(y) * np.cos(x)
    for i in range(len(values)):
        x, y = values[i] + 2.0, other[i] + 3.0
        found += x * y + np.log(x) * np.exp(-y) + np.log(y) * np.exp(-x) + np.sin(x) * np.cos(y) + np.sin(y) * np.cos(x)
    return found


@kernel
def squares(values):
    return total(values, values) + total(values[1:], values[1:])


@kernel
def neighbours(values):
    return total(values, np.ones(1003)) + total(values[1:], values)


values = np.random.default_rng(0).random(1003)
kernels = {"squares": squares, "neighbours": neighbours}
for name in sys.argv[1:]:
    print(name, float(kernels[name](values)).hex())
for name in sys.argv[1:] if not sum(kernels[sys.argv[1]].stats.cache_hits.values()) else ():
    ((compiled,),) = [kernels[name].overloads.values()]
    print([f.linkage.name for f in compiled.library._final_module.functions if "total" in f.name])
"""

KERNELS = """
import sys
import numpy as np
from espalier.engine.runtime.jit import kernel


@kernel
def total(values):
    found = 0.0
    for value in values:
        found += value
    if found > 1000.0:
        raise ValueError("too large", found)
    return found


@kernel
def halved(values):
    return total(values) / 2


@kernel
def shares(values):
    print("of", values[0], (1, 2.0))
    return values / halved(values)


values = np.random.default_rng(0).random(1003)
calls = {"total": lambda: total(values), "halved": lambda: halved(values), "shares": lambda: shares(values).sum()}
found = {name: calls[name]() for name in sys.argv[1:]}
for name, value in sorted(found.items()):
    print(name, float(value).hex())
try:
    shares(3 * values)
except ValueError as error:
    print(error)
print("compiled", sorted(kernel.__name__ for kernel in (total, halved, shares) if kernel.signatures))
print("from the cache", sum(sum(kernel.stats.cache_hits.values()) for kernel in (total, halved, shares)))
"""


def run(folder, *order, before="", kernels=KERNELS):
    path = folder / "kernels.py"
    path.write_text(before + kernels)
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(path), *order], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What Python sees that calls the outermost kernel alone, and the folder of its cache."""
    folder = tmp_path_factory.mktemp("alone")
    return run(folder, "shares"), folder


def test_what_python_does_not_call_is_not_compiled_for_it(alone):
    assert alone[0][-2:] == ["compiled ['shares']", "from the cache 0"]


def test_what_is_taken_in_prints_and_raises(alone):
    assert alone[0].count("of 0.6369616873214543 (1, 2.0)") == 1
    assert any("too large" in line for line in alone[0])


def test_from_the_cache_it_is_the_same(alone):
    again = run(alone[1], "shares")
    assert again[:-1] == alone[0][:-1] and again[-1] == "from the cache 1"


def test_what_python_called_before_changes_nothing(alone, tmp_path):
    """As it would where a kernel took in the machine code that another call had left."""
    called = run(tmp_path, "total", "halved", "shares")
    assert [line for line in called if line.startswith("shares")] == [
        line for line in alone[0] if line.startswith("shares")
    ]
    assert called[-2] == "compiled ['halved', 'shares', 'total']"


def test_a_kernel_that_is_compiled_later_finds_the_parts(alone):
    """The parts are there, the kernel itself is not."""
    assert run(alone[1], "halved")[-2:] == ["compiled ['halved', 'shares']", "from the cache 1"]


def test_with_another_numba_kernels_are_compiled_as_it_does_by_itself(alone, tmp_path):
    said = run(tmp_path, "shares", before="import numba\nnumba.__version__ = '0.99.1'\n")
    assert said[-2:] == ["compiled ['halved', 'shares', 'total']", "from the cache 0"]
    value = [float.fromhex(lines[-4].split()[1]) for lines in (said, alone[0])]
    assert value[0] == pytest.approx(value[1], rel=1e-12)


def test_what_is_called_is_a_copy_of_each_that_calls_it(tmp_path):
    """Of copies under one name the first that was loaded would run, whoever calls: other last bits in another order."""
    compiled = run(tmp_path, "squares", "neighbours", kernels=CALLED)
    assert compiled[2:] == ["['internal']"] * 2
    for order in (("squares",), ("neighbours", "squares")):
        assert set(run(tmp_path, *order, kernels=CALLED)) <= set(compiled[:2])

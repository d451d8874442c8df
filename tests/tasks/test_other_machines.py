"""The same bytes on every x86-64 machine with AVX2, as far as one machine can play another."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from stage_runs import tree

from espalier.engine.runtime import compile_target

HERE = Path(__file__).resolve().parent
TIMES = "models/timing.jsonl"
pytestmark = pytest.mark.skipif(
    compile_target.common_target() is None, reason="another kind of processor: nothing is promised"
)


def beyond_avx2():
    """What numpy would use of this machine that one with AVX2 need not have."""
    return [name for name in __cpu_dispatch__ if __cpu_features__[name] and name not in ("X86_V3", "AVX2", "FMA3")]


def artefacts(folder, solver, *processor, **environment):
    """All that the stages write, on the machine that the environment pretends to be."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_CPU", "OPENBLAS", "NPY_"))}
    command = [sys.executable, str(HERE / "other_machine.py"), str(folder), solver, *processor]
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: content for name, content in tree(folder).items() if name != TIMES}


@pytest.mark.parametrize("solver", ["owlqn", pytest.param("pqn", marks=pytest.mark.long)])
def test_the_processor_changes_no_byte(tmp_path, solver):
    """Other vectors for the compiler and numpy, other kernels of BLAS, other functions of the C library."""
    here = artefacts(tmp_path / "here", solver, OPENBLAS_CORETYPE="Haswell", ESPALIER_THREADS="2")
    other = artefacts(
        tmp_path / "other", solver, "haswell", OPENBLAS_CORETYPE="Nehalem", ESPALIER_THREADS="1",
        NPY_DISABLE_CPU_FEATURES=" ".join(beyond_avx2()), GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX512F,-AVX512VL",
    )  # fmt: skip
    assert "models/candidate.model" in here and "reports/metrics.json" in here
    assert here.keys() == other.keys()
    assert [name for name in here if here[name] != other[name]] == []


def test_the_target_is_named(monkeypatch):
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    assert compile_target.compile_target() == "x86-64-v3"
    monkeypatch.setenv("NUMBA_CPU_NAME", "znver4")
    assert compile_target.compile_target() == "znver4 (NUMBA_CPU_NAME)"


@pytest.mark.parametrize("lost", ["avx2", "fma", "bmi2"])
def test_an_older_processor_gets_code_of_its_own(monkeypatch, lost):
    class Config:
        CPU_NAME = CPU_FEATURES = None

    features = dict.fromkeys(compile_target.NEEDED, True) | {lost: False}
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    monkeypatch.setattr(compile_target.llvm, "get_host_cpu_features", lambda: features)
    monkeypatch.setattr(compile_target.llvm, "get_host_cpu_name", lambda: "nehalem")
    compile_target.pin(Config)
    assert (Config.CPU_NAME, compile_target.compile_target()) == (None, "nehalem, this processor alone")


def test_another_architecture_gets_code_of_its_own(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert compile_target.common_target() is None


def test_a_target_that_the_user_chose_is_kept():
    class Config:
        CPU_NAME, CPU_FEATURES = "znver4", None

    compile_target.pin(Config)
    assert (Config.CPU_NAME, Config.CPU_FEATURES) == ("znver4", None)

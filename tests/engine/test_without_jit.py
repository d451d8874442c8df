"""The tests marked `nojit` again with numba's compiler off: the kernels are right as plain Python too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="this is the inner run")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", ["5", pytest.param("1000000", marks=pytest.mark.long)])
def test_selected_tests_pass_uncompiled(examples):
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    options = ["-q", "-p", "no:cacheprovider", "-m", "nojit", "--examples", examples]
    command = [sys.executable, "-m", "pytest", *options, str(ROOT / "tests" / "engine")]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout

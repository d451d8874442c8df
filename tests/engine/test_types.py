"""The style of the code, and the types that a user of the Python class meets: what `make lint` checks."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / ".venv"


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("make") is None or Path(sys.prefix) != OWN, reason="make lint checks with the packages of .venv"
)
def test_style_and_types_are_clean():
    done = subprocess.run(["make", "-s", "lint"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Success: no issues found" in done.stdout

"""Shared by all tests: the oracles in tests/reference import as `reference`, whatever pytest's import mode."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
for folder in (TESTS.parent, TESTS, TESTS / "engine"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def pytest_configure(config):
    config.addinivalue_line("markers", "nojit: also run with NUMBA_DISABLE_JIT=1, so it must be quick uncompiled")

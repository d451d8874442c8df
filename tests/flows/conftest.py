"""Prefect is imported by some of these tests: never with the user's own settings."""

import os

import pytest
from small_project import UNSET


@pytest.fixture(scope="session", autouse=True)
def prefect_of_our_own(tmp_path_factory):
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(UNSET)]:
        del os.environ[name]
    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    yield
    os.environ.clear()
    os.environ.update(before)

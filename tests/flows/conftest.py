"""Prefect is imported by some of these tests: never with the user's own settings. The command in this process."""

import io
import os
import sys

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


@pytest.fixture
def espalier(capsys, monkeypatch):
    """Run the command in this process: (exit code, standard output, standard error)."""
    from espalier.flows import cli

    def run(*arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code
        return code, *capsys.readouterr()

    return run

"""That kernels are compiled is told to who listens; in a terminal or notebook a line says so by itself."""

import io
import os
import threading

import numba
import numpy as np
import pytest

from espalier import CRF
from espalier.engine.fitting import fits
from espalier.engine.runtime import compiling, vectors

pytestmark = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")


def compile_one():
    """A kernel of the engine compiled for real, whatever the cache holds."""
    return numba.njit(vectors._dot.py_func)(np.ones(2), np.ones(2), 0, 2)


@pytest.fixture
def compiling_fit(monkeypatch):
    """Training that meets a kernel which is not in the cache."""
    minimise = fits.minimise
    monkeypatch.setattr(fits, "minimise", lambda *a, **b: (compile_one(), minimise(*a, **b))[1])


def fitted(**options):
    return CRF(max_iterations=2, **options).fit([["a", "b"]], [["X", "Y"]])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_each_kernel_is_told_before_and_after():
    heard = []
    with compiling.hears(lambda state: heard.append((state.kernels, state.kernel))) as state:
        assert compile_one() == 2
        compile_one()
    assert heard == [(0, "_dot"), (1, ""), (1, "_dot"), (2, "")]
    assert state.kernels == 2 and state.seconds > 0
    compile_one()
    assert state.kernels == 2, "it is told after the block"


def test_what_is_found_compiled_is_not_told():
    kernel = numba.njit(vectors._dot.py_func)
    kernel(np.ones(2), np.ones(2), 0, 2)
    with compiling.hears(lambda state: pytest.fail("nothing was compiled")):
        kernel(np.ones(2), np.ones(2), 0, 2)


def test_kernels_of_all_rooms_are_ours():
    from espalier.engine.chain import logarithms

    heard = []
    with compiling.hears(lambda state: heard.append(state.kernel)):
        numba.njit(logarithms.log_sum.py_func)(np.zeros(2))
    assert "log_sum" in heard


def test_kernels_of_others_are_not_ours():
    with compiling.hears(lambda state: pytest.fail("it is no kernel of the engine")):
        assert numba.njit(lambda x: x + 1)(1) == 2


def test_functions_without_a_module_are_compiled_as_ever():
    """As code generators make them; numba tells us of those, too."""
    names = {}
    exec("def add(x): return x + 1", names)
    assert names["add"].__module__ is None
    with compiling.hears(lambda state: pytest.fail("it is no kernel of the engine")):
        assert numba.njit(names["add"])(1) == 2


def test_callees_count_and_their_time_counts_once():
    with compiling.hears(lambda state: None) as state:
        compiling.begins("outer")
        compiling.begins("inner")
        compiling.ends()
        assert (state.kernels, state.seconds, state.kernel) == (1, 0.0, "outer")
        compiling.ends()
    assert state.kernels == 2 and state.seconds > 0


def test_the_last_who_came_hears_it_from_any_thread():
    with compiling.hears(lambda state: pytest.fail("someone else listens")):
        with compiling.hears(lambda state: None) as state:
            thread = threading.Thread(target=compile_one)
            thread.start()
            thread.join()
    assert state.kernels == 1


def test_the_end_of_a_kernel_that_nobody_heard_begin():
    with compiling.hears(lambda state: None) as state:
        compiling.ends()
    assert state.kernels == 0


def test_fit_says_it_when_asked(compiling_fit, capsys):
    fitted(verbose=True)
    out, err = capsys.readouterr()
    assert out == "" and err.count("espalier: compiling kernels for this machine, once: ") == 1
    assert err.count("\n") == 2, "the other line tells of the training"


@pytest.mark.parametrize("verbose", [None, False])
def test_fit_says_nothing_where_nobody_looks(compiling_fit, verbose, capsys):
    fitted(verbose=verbose)
    assert capsys.readouterr() == ("", "")


def test_in_a_terminal_one_line_counts(compiling_fit, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    fitted()
    text = stream.getvalue()
    assert "\respalier: compiling kernels for this machine, once: 0 done …" in text
    assert text.endswith(" s\n") and text.count("\n") == 1
    widths = [len(part) for part in text.rstrip("\n").split("\r")[1:]]
    assert widths == sorted(widths), "a longer text before it would shine through"


def test_in_a_terminal_it_can_be_switched_off(compiling_fit, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    fitted(verbose=False)
    assert stream.getvalue() == ""


def test_it_is_said_once_where_somebody_listens(compiling_fit, capsys):
    with compiling.hears(lambda state: None) as state:
        fitted(verbose=True)
    assert state.kernels >= 1 and "compiling" not in capsys.readouterr().err

"""What surrounds the Python labeller: its repr, its page in a notebook, the line of a fit, its documentation."""

import doctest
import inspect
import io
import sys
from html.parser import HTMLParser

import pytest

import espalier
from espalier import CRF
from espalier.engine import estimator
from espalier.engine.fitting import fits
from espalier.engine.interface import conventions, fit_line

X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["dogs", "bark"]]
Y = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"]]


def test_the_repr_has_what_is_not_the_default():
    assert repr(CRF()) == "CRF()"
    assert repr(CRF(rho1=0.1, templates=["U", "B"], verbose=True)) == (
        "CRF(templates=['U', 'B'], rho1=0.1, verbose=True)"
    )
    assert len(repr(CRF(templates=["U:%x[0,0]"] * 1000))) < 300


def test_a_subclass_has_its_own_name_and_parameters():
    class Mine(CRF):
        def __init__(self, rho1=0.25, extra=3):
            super().__init__(rho1=rho1)
            self.extra = extra

    assert repr(Mine(extra=4)) == "Mine(extra=4)" and Mine().get_params() == {"rho1": 0.25, "extra": 3}


# The page of a notebook ---------------------------------------------------------------------------


class Parts(HTMLParser):
    """Texts and tags of a page; a tag that is closed out of order fails."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1] != "style":
            self.texts.append(text)


@pytest.mark.parametrize("family", ["crf", "memm", "hmm"])
def test_the_page_tells_sizes_labels_and_strongest_weights(family):
    crf = CRF(rho1=0.01, family=family).fit(X, Y)
    page = Parts(crf._repr_html_())
    text = " ".join(page.texts)
    kind = "probabilities" if family == "hmm" else "weights"
    assert "3 labels: D, N, V" in text and f"{len(crf.model_.theta):,} {kind}" in text
    assert "1 iterations" not in text
    assert page.tags.count("tr") == 1 + min(12, len(crf.model_.shown()[0]))
    strongest = max(map(abs, crf.model_.shown()[1]))
    numbers = [abs(float(cell)) for cell in page.texts if cell.lstrip("-").replace(".", "").isdigit()]
    assert numbers[0] == pytest.approx(strongest, abs=5e-4) and numbers == sorted(numbers, reverse=True)


def test_the_page_of_what_is_not_fitted_or_has_no_weight():
    assert "not fitted" in Parts(CRF(rho1=2)._repr_html_()).texts
    empty = CRF(rho1=1000.0).fit(X, Y)
    assert "table" not in Parts(empty._repr_html_()).tags


def test_the_page_escapes_what_comes_from_the_data():
    hostile = "<script>alert(1)</script>"
    crf = CRF([f"U{hostile}:%x[0,0]", "B"], rho1=0.001).fit([[hostile, "b"]] * 3, [[hostile, "&Y"]] * 3)
    page = Parts(crf._repr_html_())
    assert "script" not in page.tags and hostile in " ".join(page.texts) and "&Y" in " ".join(page.texts)


def test_the_colours_are_those_of_the_page_around_it():
    """Nothing but transparent greys: text on a ground of its own would vanish in a dark or a light notebook."""
    page = CRF()._repr_html_()
    assert "#" not in page and page.count("rgba(128,128,128") == page.count("rgba(") > 0
    assert "background:none" in page and "color:inherit" in page


# The line of a fit --------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watching(monkeypatch):
    """A terminal that sees each iteration; not a fixture, because pytest sets streams anew for each phase of a test.

    Kernels are compiled before, since that has a line of its own.
    """
    CRF(solver="owlqn", verbose=False).fit(X, Y)
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(fit_line, "PATIENCE", 0.0)
    monkeypatch.setattr(fit_line, "EVERY", 0.0)
    return stream


def drawn(text):
    """What stands on the last line of a terminal."""
    line = ""
    for part in text.split("\n")[-1].split("\r"):
        line = part + line[len(part) :]
    return line


def test_a_terminal_sees_the_iterations_and_is_left_clean(monkeypatch):
    terminal = watching(monkeypatch)
    crf = CRF(solver="owlqn").fit(X, Y)
    text = terminal.getvalue()
    assert "\respalier: iteration 1 of at most 1,000, objective " in text and " active" in text
    assert text.count("iteration ") == len(crf.trace_)
    assert drawn(text).strip() == "" and text.endswith("\r")
    assert max(map(len, text.split("\r"))) < 80, "a line that wraps is not written over"


def test_the_search_is_seen_as_well(monkeypatch):
    terminal = watching(monkeypatch)
    CRF(rho1="auto", dev_share=0.4).fit(X * 3, Y * 3)
    assert "\respalier: search: rho1 " in terminal.getvalue()


def test_an_interrupted_fit_leaves_the_line_clean(monkeypatch):
    terminal = watching(monkeypatch)
    minimise = fits.minimise

    def interrupted(*given, on_iteration, **options):
        def heard(record, theta):
            on_iteration(record, theta)
            raise KeyboardInterrupt

        return minimise(*given, on_iteration=heard, **options)

    monkeypatch.setattr(fits, "minimise", interrupted)
    crf = CRF()
    with pytest.raises(KeyboardInterrupt):
        crf.fit(X, Y)
    assert "iteration 0" in terminal.getvalue() and drawn(terminal.getvalue()).strip() == ""
    assert not hasattr(crf, "model_")


def test_verbose_leaves_a_sentence(monkeypatch):
    terminal = watching(monkeypatch)
    crf = CRF(verbose=True).fit(X, Y)
    lines = [drawn(line).strip() for line in terminal.getvalue().split("\n")]
    (said,) = [line for line in lines if " after " in line]
    assert said.startswith(f"espalier: {crf.stop_reason_} after ")
    assert said.endswith(f"{len(crf.model_.theta)} active weights of {crf.model_.info['features']}")


def test_a_quick_fit_shows_nothing(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(fit_line, "PATIENCE", 1000.0)
    CRF(max_iterations=3).fit(X, Y)
    assert "iteration" not in stream.getvalue()


@pytest.mark.parametrize(("verbose", "lines"), [(None, 0), (False, 0), (True, 1)])
def test_where_nobody_looks(verbose, lines, capsys, monkeypatch):
    monkeypatch.setattr(fit_line, "PATIENCE", 0.0)
    CRF(max_iterations=3, verbose=verbose).fit(X, Y)
    out, err = capsys.readouterr()
    told = [line for line in err.splitlines() if "compiling" not in line]
    assert out == "" and "\r" not in err and len(told) == lines


def test_verbose_false_is_silent_in_a_terminal(monkeypatch):
    terminal = watching(monkeypatch)
    CRF(verbose=False).fit(X, Y)
    assert terminal.getvalue() == ""


def test_no_stream_at_all(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert CRF(max_iterations=3, verbose=None).fit(X, Y).classes_ == ["D", "N", "V"]


# The documentation --------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [espalier, estimator, conventions])
def test_the_examples_run(module):
    found = doctest.testmod(module, verbose=False)
    assert found.attempted > 2 and found.failed == 0


def public_methods():
    return [(name, one) for name, one in inspect.getmembers(CRF) if not name.startswith("_") and callable(one)]


@pytest.mark.parametrize(("name", "method"), public_methods(), ids=lambda value: getattr(value, "__name__", value))
def test_every_public_method_says_what_it_does_and_takes(name, method):
    assert len(inspect.getdoc(method)) > 30
    signature = inspect.signature(method)
    taken = [one for one in signature.parameters.values() if one.name != "self"]
    assert signature.return_annotation is not signature.empty
    assert all(one.annotation is not one.empty for one in taken)


def test_every_parameter_is_explained():
    text = inspect.getdoc(CRF).split("Attributes\n")[0]
    heads = [name for line in text.splitlines() if " : " in line for name in line.split(" : ")[0].split(", ")]
    assert sorted(heads) == sorted(CRF().get_params())


def test_type_checkers_see_every_public_name():
    source = inspect.getsource(sys.modules["espalier"]).split("if TYPE_CHECKING:")[1].split("\n\n")[0]
    assert sorted(line.split(" as ")[1] for line in source.splitlines() if " as " in line) == espalier.__all__

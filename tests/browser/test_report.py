"""The report in a browser: whole without a network, at home on a phone, and its filter filters."""

import pytest
from small_project import write_project

from flows.pipeline import Project, run_direct
from tasks import store
from tasks.progress import Progress

PHONE, DESK = 390, 1280


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    project = Project.open(write_project(tmp_path_factory.mktemp("report")))
    run_direct(project, lambda name: Progress())
    return (project.root / store.REPORT).resolve().as_uri()


@pytest.fixture(scope="module")
def decision(address):
    return address.replace("report.html", "decision.html")


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_needs_nothing_and_complains_of_nothing(watch, picture, address, width):
    watched = watch(width)
    watched.page.goto(address)
    watched.page.wait_for_timeout(300)
    picture(watched.page, f"report-{width}")
    assert watched.errors == []
    assert [request for request in watched.requests if not request.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("width", [320, PHONE, 768, DESK])
def test_it_is_no_wider_than_the_window(watch, address, width):
    page = watch(width).page
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_decision_is_as_wide_and_as_quiet(watch, picture, decision):
    watched = watch(PHONE)
    watched.page.goto(decision)
    picture(watched.page, "decision")
    assert watched.errors == []
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE


class TestFilter:
    @pytest.fixture
    def page(self, watch, address):
        page = watch().page
        page.goto(address)
        return page

    def rows(self, page) -> list[str]:
        """The labels of the weights that are seen."""
        return page.locator("tr[data-label]:visible").evaluate_all("rows => rows.map(row => row.dataset.label)")

    def test_one_label_shows_its_weights_and_no_other(self, page):
        before = self.rows(page)
        label = before[0]
        page.locator("#label-filter").fill(label)
        shown = self.rows(page)
        assert shown and set(shown) == {label}
        said = page.locator(".filter output").inner_text()
        assert said == f"{len(shown)} weight" + "s" * (len(shown) > 1)
        page.locator("#label-filter").fill("")
        assert self.rows(page) == before
        assert page.locator(".filter output").inner_text() == ""

    def test_a_label_that_is_none_shows_nothing_and_says_so(self, page):
        page.locator("#label-filter").fill("no such thing")
        assert self.rows(page) == []
        assert page.locator(".filter output").inner_text() == "no such label"

    def test_without_scripts_the_page_is_whole_and_has_no_dead_box(self, chromium, address):
        context = chromium.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(address)
        assert page.locator("tr[data-label]:visible").count() > 0
        assert not page.locator("#label-filter").is_visible()
        context.close()


def test_a_point_of_a_chart_tells_its_figures(watch, address):
    page = watch().page
    page.goto(address)
    chart = page.locator("svg:has(.hit):visible").first
    chart.scroll_into_view_if_needed()
    chart.focus()
    page.keyboard.press("ArrowRight")
    tip = page.locator(".tip")
    assert tip.is_visible() and tip.inner_text().strip()
    page.keyboard.press("Escape")
    assert not tip.is_visible()

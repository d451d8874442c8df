"""A headless Chromium that is already on the machine; without one these tests are skipped."""

import os
import shutil
from pathlib import Path

import pytest

from espalier.flows.doctor import find_chromium

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def chromium_path() -> str:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium found: install chromium to run the tests in a browser")
    return path


@pytest.fixture(scope="module")
def chromium(chromium_path):
    """One for each module: while Playwright's loop runs, nothing else in this thread can use asyncio."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path, args=ARGUMENTS)
        yield browser
        browser.close()


class Watch:
    """A page, what it asked the network for, and what it complained of."""

    def __init__(self, page):
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))


@pytest.fixture
def watch(chromium):
    """Opens a page of a given width."""
    contexts = []

    def open_page(width: int = 1280, height: int = 900) -> Watch:
        contexts.append(chromium.new_context(viewport={"width": width, "height": height}))
        return Watch(contexts[-1].new_page())

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def picture(tmp_path):
    """Saves a screenshot; ESPALIER_SCREENSHOTS names a folder to keep it in."""

    def save(page, name: str, whole: bool = True) -> Path:
        path = tmp_path / f"{name}.png"
        page.screenshot(path=path, full_page=whole)
        if os.environ.get("ESPALIER_SCREENSHOTS"):
            Path(os.environ["ESPALIER_SCREENSHOTS"]).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, os.environ["ESPALIER_SCREENSHOTS"])
        return path

    return save

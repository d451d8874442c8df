"""The report in a browser: whole without a network, at home on a phone and on paper, and what can be used works."""

import pytest
from small_project import write_project

from espalier.flows.pipeline import Project, run_direct
from espalier.tasks import store
from espalier.tasks.progress import Progress

PHONE, DESK = 390, 1280
SIZES = [(360, 800), (820, 1180), (1440, 900)]
PAPER = 718  # pixels between the margins of a sheet of A4 as Chromium prints it
ENTITIES = """\
ingest:
  source: files
  path: names.conll
  format: conll
  unlabelled_share: 0.2
template:
  lines: ["*:%x[0,0]", "U:%x[-1,0]", "B"]
weigh:
  clusters: 2
train:
  max_iterations: 5
"""
SENTENCES = (
    "{} O|met O|Ann B-PER|Lee I-PER|in O|Rome B-LOC", "the O|{} O|of O|Paris B-LOC|fell O", "Bo B-PER|Lee I-PER|{} O",
    "{} B-PER|came O", "{} O|came O",  # nobody can tell these two apart
)  # fmt: skip


def made(root) -> str:
    """The address of the report of a run."""
    run_direct(Project.open(root), lambda name: Progress())
    return (root / store.REPORT).resolve().as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return made(write_project(tmp_path_factory.mktemp("report")))


@pytest.fixture(scope="module")
def entities(tmp_path_factory):
    """A report of labels that mark entities, some of which are missed."""
    root = tmp_path_factory.mktemp("entities")
    (root / "params.yaml").write_text(ENTITIES, encoding="utf-8")
    texts = (SENTENCES[i % len(SENTENCES)].format(f"w{i}").replace("|", "\n") for i in range(120))
    (root / "names.conll").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return made(root)


@pytest.fixture(params=["address", "entities"])
def either(request):
    """Each of the two reports."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def decision(address):
    return address.replace("report.html", "decision.html")


# Pairs of texts that lie over each other.
OVERLAPS = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), boxes = [], found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, around = text.parentElement, words = text.nodeValue.trim();
    if (!words || !around.checkVisibility() || around.closest(".skip, .tip")) continue;
    if (around.closest("details:not([open])") && !around.closest("summary")) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) if (box.width > 1 && box.height > 1) boxes.push([words, box]);
  }
  boxes.sort((one, other) => one[1].top - other[1].top);
  boxes.forEach(([text, box], at) => {
    for (let next = at + 1; next < boxes.length && boxes[next][1].top < box.bottom; next++) {
      const other = boxes[next][1];
      const width = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      if (width > 2 && Math.min(box.bottom, other.bottom) - other.top > 4) found.push([text, boxes[next][0]]);
    }
  });
  return found;
}"""


@pytest.mark.parametrize("size", SIZES)
def test_it_needs_nothing_complains_of_nothing_and_is_no_wider_than_the_window(watch, picture, either, size):
    watched = watch(*size)
    watched.page.goto(either)
    watched.page.wait_for_timeout(200)
    picture(watched.page, f"report-{size[0]}")
    assert watched.errors == []
    assert [request for request in watched.requests if not request.startswith(("file:", "data:"))] == []
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert watched.page.locator("#glance .verdict strong").inner_text() == "✓Promoted"
    assert watched.page.evaluate(OVERLAPS) == []
    assert watched.page.locator("#history svg").count() == 0, "one retraining is no trend"


@pytest.mark.parametrize("width", [320, 600])
def test_it_fits_windows_in_between(watch, either, width):
    page = watch(width).page
    page.goto(either)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


CUT = """() => Array.from(document.querySelectorAll("section *, header *")).filter(element => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || element.closest("svg") && element.tagName !== "svg") return false;
  return box.right > document.documentElement.clientWidth + 1 || box.left < -1;
}).map(element => element.tagName + "." + element.className)"""


def test_on_paper_nothing_is_cut_or_dark_and_no_chart_is_higher_than_a_sheet(chromium, either):
    context = chromium.new_context(viewport={"width": PAPER, "height": 1050}, color_scheme="dark")
    page = context.new_page()
    page.goto(either)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(CUT) == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    heights = page.evaluate("Array.from(document.querySelectorAll('figure'), f => f.getBoundingClientRect().height)")
    assert heights and max(heights) < 1000
    assert len(page.pdf(format="A4")) > 10_000
    context.close()


def test_the_decision_is_as_wide_and_as_quiet(watch, picture, decision):
    watched = watch(PHONE)
    watched.page.goto(decision)
    picture(watched.page, "decision")
    assert watched.errors == []
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert watched.page.evaluate(OVERLAPS) == []
    colour = "element => getComputedStyle(element).color"
    words = [watched.page.locator(place).first.evaluate(colour) for place in (".verdict strong", ".outcome", "body")]
    assert words[0] == words[1] != words[2], "the verdict is coloured"
    watched.page.get_by_role("link", name="Report").click()
    assert watched.page.locator("#glance").count() == 1


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


def test_a_tip_asked_for_by_keys_stays_with_its_mark_when_the_page_scrolls(watch, address):
    page = watch().page
    page.emulate_media(reduced_motion="reduce")
    page.goto(address)
    chart = page.locator("svg:has(.hit):visible").first
    chart.focus()
    page.keyboard.press("ArrowRight")
    top_of_tip_in_chart = """(chart) => {
        window.dispatchEvent(new Event("scroll"));
        return document.querySelector(".tip").getBoundingClientRect().top - chart.getBoundingClientRect().top;
    }"""
    before = chart.evaluate(top_of_tip_in_chart)
    page.evaluate("window.scrollBy(0, 20)")
    assert page.locator(".tip").is_visible()
    assert chart.evaluate(top_of_tip_in_chart) == pytest.approx(before, abs=1)


def column(table, at: int) -> list[str]:
    return table.locator(f"tbody tr > :nth-child({at})").all_inner_texts()


def test_a_heading_sorts_its_table_by_mouse_and_by_keyboard(watch, entities):
    page = watch().page
    page.goto(entities)
    table = page.locator("table.chunks")
    counts = [int(text) for text in column(table, 6)]
    table.get_by_role("button", name="Gold").click()
    assert [int(text) for text in column(table, 6)] == sorted(counts, reverse=True)
    head = table.locator("th", has_text="Gold")
    assert head.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Enter")  # the button still has the focus
    assert [int(text) for text in column(table, 6)] == sorted(counts)
    assert head.get_attribute("aria-sort") == "ascending"
    table.get_by_role("button", name="Kind").click()
    assert column(table, 1) == sorted(column(table, 1)) and head.get_attribute("aria-sort") is None


def test_what_waits_to_be_opened_opens_by_keyboard(watch, address):
    page = watch(360, 800).page
    page.goto(address)
    box = page.locator("#slices details")
    box.locator("summary").focus()
    assert not box.locator("table").first.is_visible()
    page.keyboard.press("Enter")
    assert box.locator("table").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_contents_lead_to_their_sections_and_findings_to_theirs(watch, entities):
    page = watch().page
    page.goto(entities)
    for link in page.locator("nav a, #glance a, .badge").all():
        target = link.get_attribute("href")
        assert target.startswith("#") and page.locator(target).count() == 1, target
    page.locator("nav a", has_text="Calibration").click()
    page.wait_for_timeout(800)  # it scrolls smoothly
    assert 0 <= page.locator("#calibration").bounding_box()["y"] < 300


def test_examples_of_missed_and_spurious_entities_are_shown(watch, entities):
    page = watch().page
    page.goto(entities)
    text = page.locator("#confusions").inner_text()
    assert "What became of the entities" in text and "In the examples the right entity is" in text
    assert page.locator("#confusions table.seen").count() > 0
    kinds = page.locator("#confusions svg text.tick").all_text_contents()
    assert "nothing" in kinds and "PER" in kinds and not any(kind.startswith(("B-", "I-")) for kind in kinds)
    assert not page.locator("#confusions table.labels").is_visible()
    page.locator("#confusions summary").click()
    assert page.locator("#confusions table.labels").is_visible()

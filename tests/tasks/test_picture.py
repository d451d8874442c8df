"""The picture of the weights: sizes as by hand, places as the names say, markup that stands alone."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from small_models import model_of

from espalier.engine.errors import EspalierError
from espalier.engine.families.crf import CrfLabeller
from espalier.engine.weights.layout import dense_layout, observation_kinds
from espalier.tasks.pages import charts, picture


def model_by_hand():
    names = ["*0:a", "*0:b", "U1:a/b", "U", "*0:<c>"]
    layout = dense_layout(2, observation_kinds(names))
    slots = list(zip(*(column.tolist() for column in layout.slots()), strict=True))
    value = {(0, 0, -1, 0): -1.5, (0, 1, -1, 1): 0.5, (1, 0, -1, 1): -2.0, (2, 0, 0, 1): 3.0, (2, 0, 1, 1): -4.0,
             (2, 1, 0, 0): 0.25, (0, 2, -1, 0): 9.0, (0, 3, -1, 0): 1.0, (0, 4, -1, 1): 0.125}  # fmt: skip
    theta = np.array([value.get(slot, 0.0) for slot in slots])
    lines = ["*0:%x[0,0]", "U1:%x[-1,0]/%x[0,0]", "U"]
    return CrfLabeller.compact(
        layout, theta, names, ["X", "Y"], lines, {"nouns": {"token": "letter", "label": "sound"}}
    )


def test_sizes_by_hand():
    model = model_by_hand()
    found = picture.make_picture(model.table(), model.templates)
    assert (found.template, found.values, found.labels) == ("*0:%x[0,0]", ["<c>", "a", "b"], ["X", "Y"])
    assert found.unigram.tolist() == [[0, 0.125], [1.5, 0], [0, 0.5]]
    assert found.bigram.tolist() == [[0, 0], [0, 2 + 3 + 4], [0.25, 0]]  # the start is a label before, too
    assert found.all_values == 3 and found.share == 1.0


def test_the_most_important_values_and_labels_are_kept():
    model = model_by_hand()
    found = picture.make_picture(model.table(), model.templates, rows=1, columns=1)
    assert (found.values, found.labels, found.all_values) == (["a"], ["Y"], 3)
    assert found.share == pytest.approx(9 / (0.125 + 1.5 + 0.5 + 9 + 0.25))
    other = picture.make_picture(model.table(), model.templates, "U1:%x[-1,0]/%x[0,0]")
    assert other.values == ["a/b"] and other.unigram.tolist() == [[9.0]]


def test_all_sizes_of_a_random_model_are_there():
    model = model_of(["*:%x[0,0]", "B"], seed=4, sparse=0.5)
    found = picture.make_picture(model.table(), model.templates)
    mine = [i for i, o in enumerate(model.layout.slots()[1]) if model.observations[o].startswith("*:")]
    assert found.unigram.sum() + found.bigram.sum() == pytest.approx(np.abs(model.theta[mine]).sum())
    for row, name in enumerate(found.values):
        for column, label in enumerate(found.labels):
            expected = sum(
                abs(weight)
                for family, o, _, y, weight in zip(*model.layout.slots(), model.theta, strict=True)
                if family > 0 and model.observations[o] == f"*:{name}" and model.labels[y] == label
            )
            assert found.bigram[row, column] == pytest.approx(expected)


def test_an_observation_finds_the_template_with_the_longest_text_before_its_macro():
    lines = ["U:%x[0,0]", "U:a%x[1,0]", "U", "B"]
    assert picture.of_templates(["U:b", "U:ab", "U", "B", "*:x"], lines) == [
        ("U:%x[0,0]", "b"), ("U:a%x[1,0]", "b"), ("U", ""), ("B", ""), None,
    ]  # fmt: skip


def test_what_cannot_be_drawn_is_told(tmp_path):
    model = model_by_hand()
    with pytest.raises(EspalierError, match=r"template `U` has no weights by value to draw: those with some are `\*0:"):
        picture.as_svg(model, "U")
    bare = CrfLabeller.compact(dense_layout(2, [1]), np.ones(2), ["U"], ["X", "Y"], ["U"], {})
    assert picture.section_body(bare.table(), bare.templates) is None
    empty = CrfLabeller.compact(dense_layout(2, [1]), np.zeros(2), ["U:a"], ["X", "Y"], ["U:%x[0,0]"], {})
    for nothing in (bare, empty):
        with pytest.raises(EspalierError, match="the model has no weights by value to draw"):
            picture.as_page(nothing)
    with pytest.raises(EspalierError, match="some.png: expected a name that ends with .html or .svg"):
        picture.write_picture(tmp_path / "some.png", model)
    assert list(tmp_path.iterdir()) == []


def test_a_drawing_that_stands_alone(tmp_path):
    path = tmp_path / "new" / "weights.svg"
    picture.write_picture(path, model_by_hand())
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{{{picture.NAMESPACE}}}svg" and "<c>" in "".join(root.itertext())
    tips = [e.text for e in root.iter(f"{{{picture.NAMESPACE}}}title")][1:]
    assert sorted(tips) == ["<c>, Y: 0.125", "a, X: 1.50", "a, Y: 9.00", "b, X: 0.250", "b, Y: 0.500"]


def test_the_page_names_the_template_and_escapes_values(tmp_path):
    path = tmp_path / "weights.html"
    picture.write_picture(path, model_by_hand())
    text = path.read_text(encoding="utf-8")
    assert "<code>*0:%x[0,0]</code>" in text and "&lt;c&gt;" in text and "<c>" not in text
    assert "Weights of a pair of sounds" in text and "all 3 values and the 2 sounds" in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert text == picture.as_page(model_by_hand())


# ---- the map itself


def test_colours_follow_sizes_and_empty_places_have_no_mark():
    sizes = [[0, 7.0, 1.0], [0.01, 0, 3.0]]
    drawn = charts.map_of_sizes("k", "T", ["r", "s"], ["x", "y", "z"], sizes, "value", "label")
    steps = re.findall(r"<title>([^<]*)</title><rect [^>]*class=\"heat (h\d)\"", drawn)
    assert steps == [("r, y: 7.00", "h7"), ("r, z: 1.00", "h3"), ("s, x: 0.0100", "h1"), ("s, z: 3.00", "h5")]
    assert "The largest size is 7.00, of r and y." in drawn
    assert "All sizes are zero." in charts.map_of_sizes("k", "T", ["r"], ["x"], [[0]], "value", "label")


def test_the_legend_tells_the_largest_size_of_each_colour():
    told = re.findall(r"≤ ([\d.]+)", charts.size_legend(49.0))
    assert list(map(float, told)) == [1, 4, 9, 16, 25, 36, 49]


def test_a_line_over_a_logarithmic_x():
    drawn = charts.line_chart("k", "T", "Size", [10, 100, 1000], [charts.Series("s", "a", [1, 2, 3])], log_x=True)
    points = [tuple(map(float, pair.split(","))) for pair in re.search(r'points="([^"]*)"', drawn)[1].split()]
    steps = np.diff([x for x, _ in points])
    assert steps[0] == pytest.approx(steps[1], abs=0.2)

"""Charts: ticks a person would choose, marks where the values say, nothing that breaks on odd data."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.tasks.pages import charts
from espalier.tasks.pages.charts import Scale, Series

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


def attributes(markup: str, element: str, class_: str = "") -> list[dict[str, str]]:
    """The attributes of each element of that name whose class holds `class_`."""
    found = [dict(re.findall(r'([\w:-]+)="([^"]*)"', text)) for text in re.findall(rf"<{element}\b([^>]*)>", markup)]
    return [a for a in found if class_ in a.get("class", "").split()] if class_ else found


def tips(markup: str) -> list[str]:
    return re.findall(r'<g class="hit"><title>(.*?)</title>', markup)


def ticks_of(markup: str) -> list[str]:
    return re.findall(r'class="tick"[^>]*>([^<]*)<', markup)


# Ticks and scales -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 100_000, [0, 20_000, 40_000, 60_000, 80_000, 100_000]),
        (0.1, 0.6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        (-3, 4, [-2, 0, 2, 4]),
    ],
)
def test_linear_ticks_are_round_numbers(low, high, expected):
    assert charts.linear_ticks(low, high) == expected


@given(FINITE, st.floats(1e-3, 1e9))
def test_linear_ticks_lie_inside_at_equal_steps_and_are_few(low, span):
    high = low + span
    if high - low < span / 2:  # the span is lost in rounding
        return
    ticks = charts.linear_ticks(low, high)
    slack = 1e-6 * max(span, abs(low), abs(high))
    assert 1 <= len(ticks) <= 6
    assert all(low - slack <= t <= high + slack for t in ticks)
    steps = [b - a for a, b in zip(ticks, ticks[1:], strict=False)]
    assert all(math.isclose(s, steps[0], rel_tol=1e-6, abs_tol=slack) for s in steps)


@given(st.floats(1e-9, 1e9), st.floats(charts.LOG_WORTH, 1e12))
def test_log_ticks_are_at_least_two_and_not_crowded(low, ratio):
    scale, ticks = charts.value_scale([low, low * ratio], 100, 0)
    assert scale.log
    assert 3 <= len(ticks) <= 7
    assert all(scale.low <= t <= scale.high for t in ticks)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1800, 21_000, [2000, 5000, 10_000, 20_000]),
        (1800, 640_000, [3000, 10_000, 30_000, 100_000, 300_000]),
        (0.2, 900, [0.3, 1, 3, 10, 30, 100, 300]),
        (0.2, 9000, [1, 10, 100, 1000]),
        (1e-5, 1e3, [1e-5, 1e-3, 0.1, 10, 1e3]),
    ],
)
def test_log_ticks_are_digits_a_person_would_choose(low, high, expected):
    assert charts.log_ticks(low, high) == expected


def test_iterations_are_never_halved():
    assert charts.whole_ticks(1, 3) == [1, 2, 3]
    assert charts.whole_ticks(1, 60) == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([1, 100], True),
        ([0, 100], False),
        ([-1, 100], False),
        ([50, 60], False),
        ([5], False),
        ([0, 0], False),
    ],
)
def test_log_scale_only_where_it_helps_and_is_possible(values, log):
    scale, ticks = charts.value_scale(values, 200, 20)
    assert scale.log is log
    assert ticks
    assert all(20 - 1e-9 <= scale(v) <= 200 + 1e-9 for v in values)


def test_scale_maps_ends_to_ends():
    assert [Scale(0, 10, 100, 0)(v) for v in (0, 5, 10)] == [100, 50, 0]
    assert Scale(1, 100, 0, 10, log=True)(10) == pytest.approx(5)


# Lines ----------------------------------------------------------------------------------------------


def line(xs, *series, **options):
    return charts.line_chart("k", "Title", "Iteration", xs, [Series(*s) for s in series], **options)


def test_line_chart_tells_every_value_and_names_itself():
    drawn = line([1, 2, 3], ("unigram", "a", [10, 20, 30]), ("bigram", "b", [3, 2, 1]))
    assert tips(drawn) == [
        "Iteration 1: unigram 10, bigram 3",
        "Iteration 2: unigram 20, bigram 2",
        "Iteration 3: unigram 30, bigram 1",
    ]
    assert '<title id="k-t">Title</title>' in drawn
    assert "unigram from 10 to 30; bigram from 3 to 1." in drawn


def test_line_chart_of_one_iteration_shows_a_dot_and_its_tick():
    drawn = line([1], ("objective", "a", [42.0]))
    (dot,) = attributes(drawn, "circle", "dot")
    assert float(dot["cx"]) == (charts.LEFT + charts.WIDTH - charts.RIGHT) / 2
    assert "1" in ticks_of(drawn)
    assert tips(drawn) == ["Iteration 1: objective 42.0"]


def test_gaps_are_bridged_and_have_no_tip():
    drawn = line([1, 2, 3, 4], ("error", "b", [0.4, None, 0.2, None]))
    assert [tip.split(":")[0] for tip in tips(drawn)] == ["Iteration 1", "Iteration 3"]
    (path,) = attributes(drawn, "polyline")
    assert len(path["points"].split()) == 2


def test_a_series_without_values_beside_one_with_values_draws_no_dot():
    drawn = line([1, 2], ("unigram", "a", [1, 2]), ("bigram", "b", [None, None]))
    assert len(attributes(drawn, "circle", "dot")) == 1


def test_the_best_iteration_is_marked():
    drawn = line([1, 2, 3], ("error", "b", [0.3, 0.1, 0.2]), best=2)
    assert len(attributes(drawn, "circle", "dot")) == 2


@given(st.lists(st.floats(0, 1e12, allow_nan=False), min_size=1, max_size=30))
def test_all_marks_and_texts_stay_inside_the_drawing(values):
    drawn = line(list(range(1, len(values) + 1)), ("v", "a", values))
    spots = [p.split(",") for p in attributes(drawn, "polyline")[0]["points"].split()]
    assert all(0 <= float(x) <= charts.WIDTH and 0 <= float(y) <= charts.HEIGHT for x, y in spots)
    texts = attributes(drawn, "text")
    assert all(0 <= float(t["x"]) <= charts.WIDTH and 0 <= float(t["y"]) <= charts.HEIGHT for t in texts)


@given(st.floats(1e-6, 1e8), st.floats(1, 1e6))
def test_labels_of_the_value_axis_do_not_overlap(low, ratio):
    texts = attributes(line([1, 2], ("v", "a", [low, low * ratio])), "text", "tick")
    heights = sorted(float(t["y"]) for t in texts if t["text-anchor"] == "end")
    assert all(b - a >= 12 for a, b in zip(heights, heights[1:], strict=False))


def test_strips_cover_the_width_once():
    strips = attributes(line([1, 5, 9], ("v", "a", [1, 2, 3])), "rect", "strip")
    ends = [(float(s["x"]), float(s["x"]) + float(s["width"])) for s in strips]
    assert [round(right, 1) for _, right in ends[:-1]] == [round(left, 1) for left, _ in ends[1:]]


# Heat map -------------------------------------------------------------------------------------------


def test_heat_map_colours_errors_and_mutes_the_diagonal():
    counts = {("A", "A"): 900, ("A", "B"): 49, ("B", "A"): 1}
    drawn = charts.heat_map("k", "T", ["A", "B"], counts, "right", "predicted")
    assert len(attributes(drawn, "rect", "same")) == 2
    assert len(attributes(drawn, "rect", "h7")) == 1
    assert len(attributes(drawn, "rect", "h1")) == 1
    assert tips(drawn) == ["A right: 900", "A taken for B: 49", "B taken for A: 1", "B right: 0"]


def test_rows_are_right_and_columns_predicted():
    drawn = charts.heat_map("k", "T", ["A", "B"], {("A", "B"): 5}, "right", "predicted")
    (cell,) = attributes(drawn, "rect", "h7")
    none = attributes(drawn, "rect", "none")[0]
    assert float(cell["y"]) < float(none["y"]) and float(cell["x"]) > float(none["x"])


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_heat_steps_run_from_one_to_seven(amount, more):
    step = charts.heat_step(amount, amount + more)
    assert 1 <= step <= charts.HEAT_STEPS
    assert charts.heat_step(amount + more, amount + more) == charts.HEAT_STEPS


def test_long_and_hostile_labels_are_cut_and_escaped():
    drawn = charts.heat_map("k", "T", ["<script>", "AddressNumberPrefix"], {}, "right", "predicted")
    assert "<script>" not in drawn and "&lt;script&gt;" in drawn
    assert "Addres…refix" in drawn


# Reliability and bars -------------------------------------------------------------------------------


def bin_of(low, high, confidence, accuracy, count):
    return {"bin_low": low, "bin_high": high, "confidence": confidence, "accuracy": accuracy, "count": count}


def test_reliability_puts_honest_bins_on_the_diagonal():
    bins = [bin_of(0.4, 0.5, 0.45, 0.45, 10), bin_of(0.9, 1, 0.95, 0.6, 1200)]
    drawn = charts.reliability("k", "T", bins, "letters")
    honest, sure = attributes(drawn, "circle", "dot")
    (ideal,) = attributes(drawn, "line", "ideal")
    slope = (float(ideal["y2"]) - float(ideal["y1"])) / (float(ideal["x2"]) - float(ideal["x1"]))
    on_line = float(ideal["y1"]) + slope * (float(honest["cx"]) - float(ideal["x1"]))
    assert float(honest["cy"]) == pytest.approx(on_line, abs=0.02)
    below = float(sure["cy"]) - (float(ideal["y1"]) + slope * (float(sure["cx"]) - float(ideal["x1"])))
    assert below == pytest.approx(-slope * (float(ideal["x2"]) - float(ideal["x1"])) * 0.35, rel=1e-3)
    shaft = attributes(drawn, "line", "shaft")[1]
    assert float(shaft["y2"]) - float(shaft["y1"]) == pytest.approx(below, abs=0.02)
    assert tips(drawn)[1] == "stated 95.0%, right 60.0%: 1,200 letters"
    assert ">1.2k<" in drawn


def test_narrow_bins_have_no_number_over_their_bar():
    bins = [bin_of(i / 50, (i + 1) / 50, i / 50, i / 50, 3) for i in range(50)]
    assert not attributes(charts.reliability("k", "T", bins, "letters"), "text", "small")


def test_bars_are_proportional():
    first, second = attributes(charts.bars([("a", 0.1), ("b", 0.4)], 0.4), "rect")
    assert (first["width"], second["width"]) == ("25", "100")


def test_shares_fill_the_bar_and_nothing_is_nothing():
    widths = [float(r["width"]) for r in attributes(charts.share_bar([("a", 1), ("b", 3)]), "rect")]
    assert widths == [25, 75]
    assert not attributes(charts.share_bar([("a", 0), ("b", 0)]), "rect")


# Boxes ----------------------------------------------------------------------------------------------


def box(name="10", mean=5.0, style="a"):
    return charts.Box(name, style, 1.0, 2.0, 4.0, 6.0, 8.0, mean)


def test_a_box_stands_where_its_values_say():
    drawn = charts.box_chart("k", "T", "n", [box(), box("20", mean=3.0, style="b")], theory=4.0, span=[0.0, 10.0])
    ground = attributes(drawn, "rect", "ground")
    body = attributes(drawn, "rect", "box")
    assert len(ground) == 2 and len(body) == 4
    grid = [float(line["y1"]) for line in attributes(drawn, "line", "grid")]
    labels = [float(t) for t in ticks_of(drawn)[: len(grid)]]
    zero, unit = grid[labels.index(0)], (grid[labels.index(0)] - grid[labels.index(10)]) / 10

    def value(y):
        return (zero - float(y)) / unit

    assert value(ground[0]["y"]) == pytest.approx(6, abs=0.05)
    assert float(ground[0]["height"]) / unit == pytest.approx(4, abs=0.05)
    stem = attributes(drawn, "line", "whisker")[0]
    assert (value(stem["y1"]), value(stem["y2"])) == (pytest.approx(1, abs=0.05), pytest.approx(8, abs=0.05))
    assert [value(line["y1"]) for line in attributes(drawn, "line", "median")] == pytest.approx([4, 4], abs=0.05)
    assert [value(dot["cy"]) for dot in attributes(drawn, "circle", "dot")] == pytest.approx([5, 3], abs=0.05)
    line, key = attributes(drawn, "line", "theory")
    assert value(line["y1"]) == pytest.approx(4, abs=0.05) and ">theory 4.00<" in drawn
    assert float(key["y1"]) < charts.TOP, "its name stands above the drawing, where no box is"


def test_boxes_are_told_in_words():
    drawn = charts.box_chart("k", "T", "sample size", [box()], theory=4.0, theory_name="Bayes error")
    assert tips(drawn) == ["10: mean 5.00, median 4.00, half between 2.00 and 6.00, nine in ten between 1.00 and 8.00"]
    assert "sample size 10: median 4.00, mean 5.00. Dashed: Bayes error 4.00." in drawn
    assert ">10<" in drawn and ">sample size<" in drawn


def test_drawings_that_share_values_share_an_axis():
    low, high = [box()], [charts.Box("10", "b", 100.0, 200.0, 400.0, 600.0, 800.0, 500.0)]
    span = [1.0, 800.0]
    one, other = (charts.box_chart("k", "T", "n", boxes, span=span) for boxes in (low, high))
    assert ticks_of(one) == ticks_of(other) and "log scale" in one
    assert not attributes(one, "line", "theory")


def test_a_box_without_height_is_drawn():
    same = charts.Box("10", "a", 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)
    assert attributes(charts.box_chart("k", "T", "n", [same]), "rect", "ground")[0]["height"] == "0"

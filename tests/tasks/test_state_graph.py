"""The drawing of states and transitions: what is in it, and that nothing lies over anything else."""

import re

import numpy as np
import pytest
from test_report import document

from espalier.engine.families.labeller import States
from espalier.tasks.pages import state_graph
from espalier.tasks.pages.state_graph import MOST, draw, make_graph


def random_states(n, seed=0, names=None):
    random = np.random.default_rng(seed)
    onward = random.dirichlet(np.full(n + 1, 0.3), n)
    names = names or [f"label {y}" for y in range(n)]
    return States(names, random.dirichlet(np.full(n, 0.3)), onward[:, :n], onward[:, n], random.random(n))


@pytest.mark.parametrize("n", [1, 2, 5, 12, 40])
def test_the_most_frequent_states_between_start_and_end(n):
    states = random_states(n)
    graph = make_graph(states)
    names = [node.name for node in graph.nodes]
    assert names[0] == "start" and names[-1] == "end" and len(names) == min(n, MOST) + 2
    often = set(np.argsort(-states.visits, kind="stable")[:MOST].tolist())
    assert {states.names.index(name) for name in names[1:-1]} == often
    assert graph.share == pytest.approx(states.visits[list(often)].sum() / states.visits.sum())
    for source, target, probability in graph.arrows:
        a, b = names[source], names[target]
        expected = states.start[states.names.index(b)] if a == "start" else (
            states.final[states.names.index(a)] if b == "end"
            else states.transitions[states.names.index(a), states.names.index(b)])  # fmt: skip
        assert probability == expected >= state_graph.LIKELY and a != b
    assert len(graph.arrows) <= state_graph.MOST_ARROWS


@pytest.mark.parametrize("seed", range(10))
def test_no_text_lies_over_another(seed):
    text = draw(random_states(14, seed, ["a long name indeed"] * 14), "k", "title")
    found = re.findall(r'<text x="([\d.-]+)" y="([\d.-]+)" class="([a-z-]+)"[^>]*>([^<]*)<', text)
    boxes = [(float(x), float(y), 3.6 * len(words), 12) for x, y, _, words in found]
    for i, (x, y, half, high) in enumerate(boxes):
        assert 0 <= x - half and x + half <= state_graph.WIDTH and high / 2 <= y <= state_graph.HEIGHT
        for px, py, other, _ in boxes[:i]:
            assert abs(x - px) >= half + other - 1 or abs(y - py) >= high, found[i]


def test_wider_arrows_are_likelier_and_large_ones_have_numbers():
    states = States(["A", "B"], np.array([1.0, 0.0]), np.array([[0.0, 0.9], [0.1, 0.4]]), np.array([0.1, 0.5]),
                    np.array([1.0, 1.0]))  # fmt: skip
    text = draw(states, "k", "title")
    widths = dict(re.findall(r'<title>([^<]*): [\d.]+</title><polyline [^>]*stroke-width="([\d.]+)"', text))
    assert float(widths["start → A"]) > float(widths["A → B"]) > float(widths["B → end"]) > float(widths["B → A"])
    written = re.findall(r'class="arrow-number"[^>]*>([^<]*)<', text)
    assert sorted(written) == [".50", ".90", "1"] and "↻ .40" in text


def test_names_are_no_markup():
    text = draw(random_states(2, names=["<script>", '"&']), "k", "title")
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_the_report_has_it_where_there_are_states():
    section = document(states=random_states(20)).section("states")
    assert "The 12 most frequent of 20 phonemes" in section and "The likeliest from one to another" in section
    assert "All 3 phonemes" in document(states=random_states(3)).section("states")
    assert "The one phoneme" in document(states=random_states(1)).section("states")
    assert 'id="states"' not in str([a for a, _ in document().all("section")])
    assert "states" not in [a["id"] for a, _ in document().all("section")]

"""Grammars against the enumeration of all trees; the toy grammar of the course; theorems about estimation."""

import math

import numpy as np
import pytest
from grammar_cases import WORDS, grammar_of, random_rules
from reference import grammar as oracle

from espalier.engine.errors import EspalierError
from espalier.engine.grammar import charts, estimation
from espalier.engine.grammar.best import Climber
from espalier.engine.grammar.closures import expected_visits
from espalier.engine.grammar.estimation import GrammarOptions as Options
from espalier.engine.grammar.estimation import fit
from espalier.engine.grammar.expected import Machine
from espalier.engine.grammar.generating import generate
from espalier.engine.grammar.kbest import Chooser
from espalier.engine.grammar.parsing import Parser
from espalier.engine.grammar.rules import full_grammar, make_grammar, normalised, pruned, used
from espalier.engine.grammar.strings import make_strings, merged, select
from espalier.engine.runtime import threads

SAME = 1e-12  # of probabilities that are sums in another order
CHAINS, DEPTH = 1e-4, 7  # enumeration follows chains of rules of one symbol so many steps
STRINGS = [[0, 1, 2, 0, 1], [2], [1, 1], [0, 2, 1], [2, 2, 0, 1]]
BRACKETS = [[(1, 3)], [], [(0, 2)], [(1, 3), (0, 1)], [(0, 3), (1, 3)]]
PATHS = ("dense", "sparse")
RULES = random_rules(3)
CYCLIC = random_rules(5, n=2, density=0.4, unary=1)
SHORT = [[1], [0, 1], [1, 2]]


def data(brackets=False, weights=None):
    return make_strings(STRINGS, weights, BRACKETS if brackets else None)


def by_oracle(rules, brackets, k=None):
    """(counts, log P of each string) from all trees, or from the k best."""
    counts, logs = 0.0, []
    for words, marks in zip(STRINGS, BRACKETS, strict=True):
        found = oracle.best(rules, words, k or 10**9, marks if brackets else ())
        counts = counts + (oracle.counts(rules, found) if found else 0.0)
        logs.append(math.log(math.fsum(p for p, _ in found)) if found else -math.inf)
    return counts, logs


# ---- inside, outside, trees


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("brackets", [False, True])
def test_log_p_and_expected_counts_are_those_of_all_trees(path, brackets):
    grammar, order = grammar_of(RULES)
    found = Machine(grammar, path).expected(data(brackets))
    counts, logs = by_oracle(RULES, brackets)
    assert found.log_p == pytest.approx(logs, abs=SAME)
    assert found.counts == pytest.approx(counts[order], abs=SAME)


def test_rules_of_one_symbol_may_go_round():
    grammar, order = grammar_of(CYCLIC, 2)
    found = Machine(grammar).expected(make_strings(SHORT))
    weighted = [oracle.trees(CYCLIC, words, (), DEPTH) for words in SHORT]
    assert np.exp(found.log_p) == pytest.approx([math.fsum(p for p, _ in one) for one in weighted], rel=CHAINS)
    assert found.counts == pytest.approx(sum(oracle.counts(CYCLIC, one) for one in weighted)[order], abs=1e-4)


@pytest.mark.parametrize("rules, n", [(RULES, 3), (CYCLIC, 2)], ids=["plain", "cyclic"])
def test_outside_times_inside_sums_to_one_at_every_word(rules, n):
    """Each position is below one lexical rule: the sum over symbols of f(A, i, i + 1) p(A -> x) is P."""
    grammar, _ = grammar_of(rules, n)
    for words in STRINGS:
        counts = Machine(grammar).expected(make_strings([words])).counts
        lexical = counts[len(grammar.binary) : len(grammar.binary) + len(grammar.lexical)]
        for word in set(words):
            assert lexical[grammar.word == word].sum() == pytest.approx(words.count(word), abs=SAME)
    posterior = Parser(grammar_of(RULES)[0]).posteriors(STRINGS[0])
    singles = [charts.cell(i, i + 1, 5) for i in range(5)]
    assert posterior[singles].sum(1) == pytest.approx(np.ones(5), abs=SAME)


def test_posteriors_of_spans_and_the_tree_of_most_recall():
    grammar, _ = grammar_of(RULES)
    parser, words = Parser(grammar), STRINGS[0]
    wanted = oracle.span_posteriors(RULES, words, 3)
    posterior = parser.posteriors(words)
    for (a, i, j), value in wanted.items():
        assert posterior[charts.cell(i, j, len(words)), a] == pytest.approx(value, abs=SAME)
    assert posterior.sum() == pytest.approx(math.fsum(wanted.values()), abs=SAME)
    spans = parser.most_recall(words)
    assert spans.expected == pytest.approx(oracle.most_recall(RULES, words, 3), abs=SAME)
    mine = sum(wanted.get((int(a), int(i), int(j)), 0.0) for a, i, j in zip(*spans[:3], strict=True))
    assert mine == pytest.approx(spans.expected, abs=SAME) and len(spans.symbol) == 2 * len(words) - 1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("brackets", [False, True])
def test_the_likeliest_tree(path, brackets):
    grammar, order = grammar_of(RULES)
    found = Climber(grammar, path).trees(data(brackets))
    counts, logs = by_oracle(RULES, brackets, 1)
    assert found.log_p == pytest.approx(logs, abs=SAME)
    assert found.counts.tolist() == counts[order].tolist()
    ranked = oracle.best(RULES, STRINGS[0], 9, BRACKETS[0] if brackets else ())
    equals = [tree for p, tree in ranked if p == pytest.approx(ranked[0][0], rel=SAME)]  # the last bits choose one
    nodes = found.nodes
    spans = list(zip(nodes.start[: nodes.at[1]], nodes.end[: nodes.at[1]], strict=True))
    assert spans in [[(i, j) for _, i, j in oracle.nodes(tree)] for tree in equals]


def test_the_k_likeliest_trees():
    grammar, _ = grammar_of(RULES)
    chooser = Chooser(grammar)
    for words in STRINGS:
        wanted = [math.log(p) for p, _ in oracle.best(RULES, words, 60)]
        found = chooser.several(np.array(words, np.int32), np.zeros((0, 2), np.int32), 60)
        assert found.log_p == pytest.approx(wanted, abs=1e-10)
        trees = {tuple(nodes.ravel()) for nodes in found.nodes}
        assert len(trees) == len(found.nodes) == len(wanted)
        for score, nodes in zip(found.log_p, found.nodes, strict=True):
            assert math.fsum(np.log(grammar.probabilities[nodes[0]])) == pytest.approx(score, abs=1e-10)


def test_the_k_likeliest_trees_of_a_chain_that_goes_round():
    grammar, _ = grammar_of(CYCLIC, 2)
    for words, k in (([1], 3), ([0, 1], 8)):  # those of which enumeration has all
        found = Chooser(grammar).several(np.array(words, np.int32), np.zeros((0, 2), np.int32), k)
        wanted = [math.log(p) for p, _ in oracle.best(CYCLIC, words, k, (), DEPTH)]
        assert found.log_p == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("brackets", [False, True])
def test_counts_over_k_trees(brackets):
    grammar, order = grammar_of(RULES)
    counts, log_p = Chooser(grammar).counted(data(brackets), 3)
    wanted, logs = by_oracle(RULES, brackets, 3)
    assert counts == pytest.approx(wanted[order], abs=SAME) and log_p == pytest.approx(logs, abs=SAME)


@pytest.mark.parametrize(
    "rules, n",
    [(random_rules(4, n=2, ends=0.9), 2), (random_rules(5, n=2, density=0.4, unary=1, ends=0.9), 2)],
    ids=["plain", "cyclic"],
)
def test_prefix_probabilities_are_sums_over_strings(rules, n):
    grammar, _ = grammar_of(rules, n)
    strings = oracle.strings_of(rules, 7, 1e-6)
    lost = 1.0 - math.fsum(strings.values())
    found = np.exp(Parser(grammar).prefixes([0, 1, 1]))
    for n, prefix in enumerate([(0,), (0, 1), (0, 1, 1)]):
        there = math.fsum(p for words, p in strings.items() if words[: n + 1] == prefix)
        assert there - SAME <= found[n] <= there + lost + SAME and lost < 0.02


# ---- lengths, memory, what cannot be derived


@pytest.mark.parametrize("path", PATHS)
def test_long_strings_neither_under_nor_overflow(path):
    """S -> S S .1, S -> a .9: P(a^n) = Catalan(n - 1) .1^(n - 1) .9^n; log P < -700: below the smallest double."""
    n = 120
    rare = make_grammar(["S"], ["a", "b"], 0, [[0, 0, 0, 0.1]], [[0, 0, 1e-3], [0, 1, 0.899]])
    found = Machine(rare, path).expected(make_strings([[0] * n]))
    log_p = math.lgamma(2 * n - 1) - math.lgamma(n + 1) - math.lgamma(n) + (n - 1) * math.log(0.1) + n * math.log(1e-3)
    assert log_p < -745 and found.log_p[0] == pytest.approx(log_p, rel=1e-12)
    assert found.counts[0] == pytest.approx(n - 1, rel=1e-10)
    assert Climber(rare, path).trees(make_strings([[0] * n])).log_p[0] == pytest.approx(
        (n - 1) * math.log(0.1) + n * math.log(1e-3), rel=1e-12
    )


@pytest.mark.parametrize("path", PATHS)
def test_what_cannot_be_derived_has_no_probability_and_no_tree(path):
    grammar = make_grammar(["S", "A", "B"], ["a", "b"], 0, [[0, 1, 2, 1.0]], [[1, 0, 1.0], [2, 1, 1.0]])
    strings = make_strings([[0, 1], [1, 0], [0], [0, -1], [0, 1]], [1.0, 2.0, 0.5, 1.0, 1.0])
    found = Machine(grammar, path).expected(strings)
    assert np.isfinite(found.log_p).tolist() == [True, False, False, False, True]
    assert found.counts.tolist() == [2.0, 2.0, 2.0]
    trees = Climber(grammar, path).trees(strings)
    assert np.diff(trees.nodes.at).tolist() == [3, 0, 0, 0, 3]
    assert fit(grammar, strings, Options(max_iterations=2)).skipped == 3.5
    with pytest.raises(EspalierError, match="derives none of 1 strings"):
        fit(grammar, make_strings([[1, 0]]), Options())
    with pytest.raises(EspalierError, match="cannot derive this string of 2 words"):
        Parser(grammar).posteriors([1, 0])


def test_a_string_that_does_not_fit_the_memory_is_refused_with_the_length_that_would():
    grammar, _ = grammar_of(RULES)
    with pytest.raises(EspalierError, match=r"a string of 3,000 words needs charts of .* at most (\d+) words") as told:
        Machine(grammar, memory=100_000).expected(make_strings([[0] * 3000]))
    allowed = int(str(told.value).split()[-2])
    Machine(grammar, memory=100_000).expected(make_strings([[0] * allowed]), wanted=False)
    assert charts.bytes_of_chart(allowed, 4) <= 100_000 < charts.bytes_of_chart(allowed + 1, 4)


def test_rules_that_go_round_for_ever_are_refused():
    with pytest.raises(EspalierError, match="rules of one symbol go round with probability one or more"):
        Machine(make_grammar(["S", "A"], ["a"], 0, [], [], [[0, 1, 1.0], [1, 0, 1.0]]))
    with pytest.raises(EspalierError, match="of 1,100 trees of the grammar too few end within 20 words"):
        generate(make_grammar(["S"], ["a"], 0, [[0, 0, 0, 1.0]], [[0, 0, 1e-9]]), 10, longest=20)


@pytest.mark.parametrize(
    "binary, lexical, told",
    [([[0, 1, 2, 1.0]], [], "names a symbol 2"), ([[0, 0, 1, -1.0]], [], "has probability -1.0"),
     ([], [[0, 5, 1.0]], "names a word 5"), ([], [[0, 0, 0.5], [0, 0, 0.5]], "occurs twice"),
     ([[0, 0, 1, math.nan]], [], "has probability nan")],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(binary, lexical, told):
    with pytest.raises(EspalierError, match=told):
        make_grammar(["S", "A"], ["a"], 0, binary, lexical)


def test_strings_are_checked_and_equal_ones_are_looked_at_once():
    with pytest.raises(EspalierError, match="string 1 is empty"):
        make_strings([[0], []])
    with pytest.raises(EspalierError, match="has brackets outside of it"):
        make_strings([[0, 1]], None, [[(1, 4)]])
    many = make_strings([[0, 1], [1], [0, 1], [0, 1]], [1, 2, 3, 4], [[(0, 1)], [], [(0, 1)], []])
    once = merged(many)
    assert once.weights.tolist() == [4.0, 2.0, 4.0] and once.lengths.tolist() == [2, 1, 2]
    grammar, _ = grammar_of(RULES)
    assert Machine(grammar).expected(many).counts == pytest.approx(Machine(grammar).expected(once).counts)
    assert select(many, np.array([1])).words.tolist() == [1]


# ---- estimation

SPANISH = """S Suj Pre 1|Suj Art Nom .5|Suj Art AN .3|AN Adj Nom 1|Suj Art NA .2|NA Nom Adj 1|Pre Verb Nom .3
Pre Verb .7
Art la 1|Nom vieja .1|Nom ayuda .2|Nom mujer .3|Nom pelea .2|Nom demanda .2|Verb demanda .3|Verb ayuda .2|Verb oculta .1
Verb pelea .4|Adj vieja .3|Adj oculta .7"""
SENTENCES = ["la vieja demanda ayuda", "la mujer oculta pelea", "la vieja ayuda"]


def spanish():
    """The toy grammar of the course, and its sentences as numbers; a rule of three symbols is cut in two."""
    rules = [line.split() for line in SPANISH.replace("\n", "|").split("|")]
    symbols = list(dict.fromkeys(rule[0] for rule in rules))
    words = sorted({rule[1] for rule in rules if len(rule) == 3 and rule[1] not in symbols})
    binary = [[*map(symbols.index, rule[:3]), float(rule[3])] for rule in rules if len(rule) == 4]
    unary = [[*map(symbols.index, rule[:2]), float(rule[2])] for rule in rules if len(rule) == 3 and rule[1] in symbols]
    lexical = [[symbols.index(rule[0]), words.index(rule[1]), float(rule[2])]
               for rule in rules if len(rule) == 3 and rule[1] not in symbols]  # fmt: skip
    strings = make_strings([[words.index(word) for word in text.split()] for text in SENTENCES])
    return make_grammar(symbols, words, 0, binary, lexical, unary), strings


def by_name(grammar):
    return {grammar.rule(n): float(p) for n, p in enumerate(grammar.probabilities)}


def test_the_toy_grammar_of_the_course_to_its_digits():
    """COURSE 4.3; it prints 8.7e-6 for the second likelihood and .2201 for Nom -> demanda, where its own numbers give
    1.54e-5 and .2210."""
    grammar, strings = spanish()
    seen = []
    fit(grammar, strings, Options(max_iterations=3, tolerance=0.0),
        lambda record, renewed: seen.append((math.exp(-record["objective"]), renewed)))  # fmt: skip
    assert np.exp(Parser(grammar).log_p(strings)) == pytest.approx([0.00342, 0.01266, 0.007])
    first = by_name(seen[1][1])
    wanted = {
        "Suj -> Art Nom": 0.4447, "Suj -> Art AN": 0.2456, "Suj -> Art NA": 0.3096, "Pre -> Verb": 0.8886,
        "Nom -> 'vieja'": 0.3788, "Nom -> 'demanda'": 0.2210, "Verb -> 'ayuda'": 0.5790, "Adj -> 'vieja'": 0.4423,
    }  # fmt: skip
    assert {name: first[name] for name in wanted} == pytest.approx(wanted, abs=1e-4)
    assert [p for p, _ in seen[:3]] == pytest.approx([3.03e-7, 1.54e-5, 4.92e-5], rel=5e-3)


def test_viterbi_score_converges_at_once_on_the_toy_grammar():
    grammar, strings = spanish()
    run = fit(grammar, strings, Options("vs", max_iterations=5, tolerance=0.0))
    found = by_name(run.grammar)
    assert found["Pre -> Verb"] == 1.0 and found["Verb -> 'ayuda'"] == pytest.approx(2 / 3)
    assert run.history[1]["objective"] == pytest.approx(run.history[2]["objective"], abs=SAME)


def consistent(grammar, strings):
    """(expected occurrences of each word in a string of the grammar, their means in the strings)."""
    rates = np.bincount(grammar.word, expected_visits(grammar)[grammar.tag] * grammar.lexical, len(grammar.words))
    seen = np.bincount(strings.words, np.repeat(strings.weights, strings.lengths), len(grammar.words))
    return rates, seen / strings.weights.sum()


@pytest.mark.parametrize("options", [Options("io"), Options("vs"), Options("kvs", k=3), Options("io", True),
                                     Options("vs", True), Options("kvs", True, k=2)],
                         ids=lambda one: one.training + "b" * one.brackets)  # fmt: skip
@pytest.mark.parametrize("start", [0, 1])
def test_every_update_generates_the_words_as_often_as_they_occur(options, start):
    """Sanchez and Benedi 1997: relative counts of trees make a grammar consistent, with the sample's expectations."""
    strings = make_strings(STRINGS, [1.0, 2.0, 0.5, 3.0, 1.5], BRACKETS)
    seen = []
    fit(full_grammar(3, WORDS, start), strings, options, lambda record, grammar: seen.append(grammar) or len(seen) > 3)
    for grammar in seen[1:]:
        rates, wanted = consistent(grammar, strings)
        assert rates == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("brackets", [False, True])
def test_inside_outside_never_lowers_the_probability(brackets):
    run = fit(full_grammar(4, WORDS, 2), data(True), Options(brackets=brackets, max_iterations=30, tolerance=0.0))
    values = [record["objective"] for record in run.history]
    assert all(after <= before + 1e-10 for before, after in zip(values, values[1:], strict=False))
    assert values[-1] < values[0] - 1.0


def test_the_likeliest_tree_is_near_the_sum_of_all():
    grammar = full_grammar(3, WORDS, 1)
    strings = data()
    gap = Parser(grammar).log_p(strings).sum() - Climber(grammar).trees(strings).log_p.sum()
    assert 0.0 <= gap <= 2 * strings.lengths.sum() * math.log(2 * 3)


def test_a_batch_of_all_strings_with_full_steps_is_the_batch_algorithm(monkeypatch):
    grammar, strings = full_grammar(3, WORDS, 1), data()
    monkeypatch.setattr(estimation.ForgettingMean, "step", lambda self: 1.0)
    stepped = fit(grammar, strings, Options(stepwise=True, batch=5, max_iterations=3, tolerance=0.0))
    batched = fit(grammar, strings, Options(max_iterations=3, tolerance=0.0))
    assert stepped.grammar.probabilities == pytest.approx(batched.grammar.probabilities, abs=SAME)


@pytest.mark.parametrize("order", ["random", "short", "long"])
def test_stepwise_training_learns_and_keeps_consistent(order):
    strings = data()
    run = fit(full_grammar(3, WORDS, 1), strings, Options(stepwise=True, batch=2, order=order, max_iterations=15))
    assert run.history[-1]["objective"] < run.history[0]["objective"] - 1.0
    assert expected_visits(run.grammar)[0] >= 1.0


def test_rules_that_are_never_used_go():
    grammar, strings = spanish()
    run = fit(grammar, strings, Options("vs", max_iterations=2, tolerance=0.0))
    assert used(run.grammar).all() and run.grammar.size == 15
    assert pruned(run.grammar)[0].size == 15
    assert Parser(run.grammar).log_p(strings) == pytest.approx(Parser(
        normalised(grammar, Climber(grammar).trees(strings).counts)).log_p(strings), abs=SAME)  # fmt: skip


# ---- generating, the same bytes


def test_generated_strings_occur_as_often_as_their_probability():
    rules = random_rules(4, ends=0.8)
    grammar, _ = grammar_of(rules)
    made = generate(grammar, 20_000, seed=3, longest=12)
    assert made.strings.total == 20_000 and made.strings.lengths.max() <= 12
    texts = [tuple(made.strings.row(n)[0].tolist()) for n in range(20_000)]
    strings = oracle.strings_of(rules, 4, 1e-6)
    for words in sorted(strings, key=strings.get)[-5:]:
        p = strings[words]
        assert abs(texts.count(words) / 20_000 - p) < 4 * math.sqrt(p / 20_000)
    assert np.isfinite(Parser(grammar).log_p(select(made.strings, np.arange(50)))).all()


@pytest.mark.parametrize("training", ["io", "vs", "kvs"])
def test_the_same_bytes_with_any_number_of_threads(training):
    grammar, found = full_grammar(5, WORDS, 4), []
    strings = generate(grammar, 60, seed=1, longest=12).strings
    for count in (1, 2, 8):
        threads.set_threads(count)
        run = fit(grammar, strings, Options(training, k=4, max_iterations=2))
        found.append((run.grammar.probabilities.tobytes(), run.objective))
    threads.set_threads(None)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("path", PATHS)
def test_a_weight_of_two_is_the_string_twice(path):
    grammar, _ = grammar_of(RULES)
    twice = make_strings([STRINGS[0], STRINGS[0], STRINGS[3]])
    weighted = make_strings([STRINGS[0], STRINGS[3]], [2.0, 1.0])
    a, b = (Machine(grammar, path).expected(one).counts for one in (twice, weighted))
    assert a == pytest.approx(b, abs=SAME)

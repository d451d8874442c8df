"""Palindromes (COURSE 4.2, 4.5): grammars learned from 1,000 strings; cells of `palindromes` and `stepwise`."""

import time
from functools import cache

import numpy as np

from espalier.engine.grammar.estimation import GrammarFit, GrammarOptions, fit
from espalier.engine.grammar.generating import generate
from espalier.engine.grammar.parsing import Parser
from espalier.engine.grammar.rules import Grammar, full_grammar, make_grammar
from espalier.engine.grammar.strings import Strings, merged, unbracketed

SYMBOLS, WORDS, LONGEST = 5, ["a", "b"], 400
DATA_SEED, CHECK_SEED, DRAWN_SEED = 1, 2, 3


@cache
def truth() -> Grammar:
    """S -> A C | B D .4 each, S -> A A | B B .1 each, C -> S A, D -> S B, A -> a, B -> b."""
    s, a, b, c, d = range(5)
    binary = [[s, a, c, 0.4], [s, b, d, 0.4], [s, b, b, 0.1], [s, a, a, 0.1], [c, s, a, 1.0], [d, s, b, 1.0]]
    return make_grammar(list("SABCD"), WORDS, s, binary, [[a, 0, 1.0], [b, 1, 1.0]])


@cache
def sample(strings: int) -> Strings:
    """Palindromes of the truth with the brackets of their trees."""
    return generate(truth(), strings, DATA_SEED, LONGEST).strings


def is_palindrome(data: Strings) -> np.ndarray:
    """Whether each string is w followed by its mirror."""
    rows = (data.row(n)[0] for n in range(data.total))
    return np.array([len(words) % 2 == 0 and np.array_equal(words, words[::-1]) for words in rows])


def share_of_palindromes(grammar: Grammar, drawn: int) -> tuple[float, float]:
    """(share among generated strings, share of trees that grew too long and were drawn again)."""
    made = generate(grammar, drawn, DRAWN_SEED, LONGEST)
    return float(is_palindrome(made.strings).mean()), made.dropped / (drawn + made.dropped)


def divergence(grammar: Grammar, checked: int) -> tuple[float, float]:
    """(mean log P(x) / Q(x) over strings of the truth that the grammar derives, share of those that it does not)."""
    data = merged(unbracketed(generate(truth(), checked, CHECK_SEED, LONGEST).strings))
    right, ours = (Parser(one).log_p(data) for one in (truth(), grammar))
    found = ours > -np.inf
    derived = float(data.weights[found].sum())
    gap = float(np.sum(data.weights[found] * (right[found] - ours[found]))) / derived if derived else float("inf")
    return gap, 1.0 - derived / float(data.weights.sum())


def mass(grammar: Grammar, drawn: int) -> tuple[float, float]:
    """Probability of the distinct ones among generated strings: of palindromes, and of others."""
    data = merged(unbracketed(generate(grammar, drawn, DRAWN_SEED, LONGEST).strings))
    p, right = np.array([np.e**x for x in Parser(grammar).log_p(data)]), is_palindrome(data)
    return float(p[right].sum()), float(p[~right].sum())


def figures(run: GrammarFit, drawn: int, checked: int, seconds: float) -> dict:
    share, dropped = share_of_palindromes(run.grammar, drawn)
    kld, underived = divergence(run.grammar, checked)
    right, wrong = mass(run.grammar, 1_000)
    return {"palindromes": share, "dropped": dropped, "kld": kld, "underived": underived, "mass": right,
            "others": wrong, "rules": run.grammar.size, "objective": run.objective, "iterations": len(run.history) - 1,
            "reason": run.reason, "seconds": seconds}  # fmt: skip


def estimated(
    training: str, brackets: bool, k: int, starts: int, iterations: int, tolerance: float, strings: int, drawn: int,
    checked: int,
) -> dict:  # fmt: skip
    """Grammars of all rules over five symbols, from so many random starts."""
    options, rows = GrammarOptions(training, brackets, k, iterations, tolerance), []
    for start in range(starts):
        begun = time.perf_counter()
        run = fit(full_grammar(SYMBOLS, WORDS, start), sample(strings), options)
        rows.append({"start": start} | figures(run, drawn, checked, time.perf_counter() - begun))
    return {"training": training, "brackets": brackets, "k": k, "rows": rows}


def stepwise(
    alpha: float, batch: int, order: str, starts: int, passes: int, strings: int, drawn: int
) -> dict:  # fmt: skip
    """The share of palindromes behind stepwise training from so many starts; batch 0 is the batch algorithm."""
    options = GrammarOptions(max_iterations=passes, tolerance=0.0, stepwise=batch > 0, alpha=alpha, batch=max(batch, 1),
                      order=order)  # fmt: skip
    begun, shares, values = time.perf_counter(), [], []
    for start in range(starts):
        run = fit(full_grammar(SYMBOLS, WORDS, start), sample(strings), options)
        shares.append(share_of_palindromes(run.grammar, drawn)[0])
        values.append(-run.objective / strings)
    return {"alpha": alpha, "batch": batch, "order": order, "shares": shares, "log_p": values,
            "seconds": time.perf_counter() - begun}  # fmt: skip

"""Grammars of parts of speech (COURSE 4.2, after Benedi and Sanchez 2005): cells of the experiment `wsj-pcfg`."""

import gzip
import math
import time
from functools import lru_cache
from pathlib import Path

import numpy as np

from espalier.engine.grammar.estimation import GrammarOptions, fit
from espalier.engine.grammar.parsing import Parser
from espalier.engine.grammar.rules import full_grammar
from espalier.engine.grammar.strings import Strings, make_strings, select, unbracketed

LONGEST = 50


def read_line(line: str) -> tuple[list[str], list[tuple[int, int]]]:
    """(tags, brackets) of a line of nested tags."""
    tags, brackets, begun = [], [], []
    for part in line.replace("(", " ( ").replace(")", " ) ").split():
        if part == "(":
            begun.append(len(tags))
        elif part == ")":
            brackets.append((begun.pop(), len(tags)))
        else:
            tags.append(part)
    return tags, brackets


@lru_cache(maxsize=2)
def sentences(corpus: Path) -> tuple[Strings, list[str]]:
    """All sentences with their brackets, and the tags that occur."""
    lines = gzip.decompress(Path(corpus).read_bytes()).decode().splitlines()
    rows = [read_line(line) for line in lines if line.strip()]
    names = sorted({tag for tags, _ in rows for tag in tags})
    place = {tag: n for n, tag in enumerate(names)}
    return make_strings([[place[tag] for tag in tags] for tags, _ in rows], None, [found for _, found in rows]), names


def parts(corpus: Path, train: int, test: int) -> tuple[Strings, Strings, list[str]]:
    """The first sentences of at most LONGEST words for training, the last ones for test."""
    data, names = sentences(corpus)
    numbers = np.arange(data.total)
    first, last = (some[data.lengths[some] <= LONGEST] for some in (numbers[:-test], numbers[-test:]))
    return select(data, first[:train]), unbracketed(select(data, last)), names


def estimated(
    training: str, brackets: bool, symbols: int, k: int, iterations: int, tolerance: float, train: int, test: int,
    corpus: Path,
) -> dict:  # fmt: skip
    """A grammar of all rules over so many symbols from a random start; its perplexity on the test sentences."""
    data, check, names = parts(corpus, train, test)
    begun = time.perf_counter()
    run = fit(full_grammar(symbols, names, 0), data, GrammarOptions(training, brackets, k, iterations, tolerance))
    seconds = time.perf_counter() - begun
    log_p = Parser(run.grammar).log_p(check)
    found = log_p > -np.inf
    words = int(check.lengths[found].sum())
    perplexity = math.exp(-float(log_p[found].sum()) / words) if words else None
    return {"training": training, "brackets": brackets, "symbols": symbols, "perplexity": perplexity,
            "underived": float(1.0 - found.mean()), "rules": run.grammar.size, "iterations": len(run.history) - 1,
            "reason": run.reason, "skipped": run.skipped, "seconds": seconds}  # fmt: skip

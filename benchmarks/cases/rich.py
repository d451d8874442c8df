"""A pattern in the style of Wapiti's with about 20 million features on CoNLL-2000: what one gradient costs."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from benchmarks import corpora, ours, peers
from benchmarks.cases import Context
from benchmarks.rows import OURS
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.weights.layout import dense_layout

WORD, TAG, PREFIX, SUFFIX, SHAPE = 0, 1, range(2, 6), range(6, 10), 10  # columns
SCALE, ZERO = 0.1, 0.95  # standard deviation of the weights, share of zeros in the sparse one


def _lines() -> list[str]:
    """Word, tag, affixes and shape in a window; pairs of words, pairs and triples of tags; transitions with tags."""
    words = [f"Uw{i}=%x[{i},{WORD}]" for i in range(-2, 3)]
    words += [f"Uww{i}=%x[{i},{WORD}]/%x[{i + 1},{WORD}]" for i in range(-2, 2)]
    shapes = [f"Us{i}=%x[{i},{SHAPE}]" for i in range(-1, 2)]
    affixes = [f"Ua{c}/{i}=%x[{i},{c}]" for c in (*PREFIX, *SUFFIX) for i in range(-1, 2)]
    tags = [f"*p{i}=%x[{i},{TAG}]" for i in range(-2, 3)]
    tags += [f"*pp{i}=%x[{i},{TAG}]/%x[{i + 1},{TAG}]" for i in range(-2, 2)]
    tags += [f"{'*' if i == -1 else 'U'}ppp{i}=%x[{i},{TAG}]/%x[{i + 1},{TAG}]/%x[{i + 2},{TAG}]" for i in range(-2, 1)]
    return ["U", *words, *shapes, *affixes, *tags, "B"]


LINES = _lines()


def rows(context: Context) -> Iterator[dict]:
    for name in ("dense theta", "95 % zeros"):
        for threads in (2, 1):
            found = context.job("rich:gradient", OURS, name, threads, zeros=name != "dense theta")
            if found:
                yield context.row(OURS, f"{name}, {found['size']:,} features", found)
    found = context.job("rich:wapiti", "libwapiti", "dense theta", 2)
    if found:
        yield context.row("libwapiti", f"dense theta, {found['size']:,} features, {found['remark']}", found)


def columns(tokens: pl.DataFrame) -> pl.DataFrame:
    """Affixes of one to four letters and the shape of each word, as further columns."""
    word = pl.col("x0")
    affixes = [word.str.head(n).alias(f"x{c}") for n, c in enumerate(PREFIX, 1)]
    affixes += [word.str.tail(n).alias(f"x{c}") for n, c in enumerate(SUFFIX, 1)]
    shape = word.str.replace_all("[A-Z]", "A").str.replace_all("[a-z]", "a").str.replace_all("[0-9]", "0")
    return tokens.with_columns(*affixes, shape.alias(f"x{SHAPE}"))


def _theta(size: int, zeros: bool) -> np.ndarray:
    random = np.random.default_rng(0)
    theta = random.normal(scale=SCALE, size=size)
    if zeros:
        theta[random.random(size) < ZERO] = 0.0
    return theta


def gradient(data: str, quick: bool, zeros: bool) -> dict:
    train = columns(corpora.read_part(data, "conll2000", 0, quick))
    problem = corpora.make_problem(train, train.clear(), LINES)
    layout = dense_layout(len(problem.labels), problem.kinds, start=False)
    objective = ChainObjective(problem.train, layout)
    theta = _theta(layout.size, zeros)
    seconds = ours.gradient_seconds(objective, theta)
    return {"seconds_per_gradient": seconds, "active": int(np.count_nonzero(theta)), "size": layout.size}


def wapiti(data: str, quick: bool) -> dict:
    """Wapiti's own gradient at random weights."""
    train = columns(corpora.read_part(data, "conll2000", 0, quick))
    names = [*(f"x{c}" for c in range(SHAPE + 1)), "label"]
    lines = train.select("sequence", text=pl.concat_str(names, separator=" "))
    texts = lines.group_by("sequence", maintain_order=True).agg(pl.col("text").str.join("\n"))["text"].to_list()
    model = peers.Wapiti(LINES, texts, 2, 0.0, 0.001)
    model.theta[:] = _theta(model.head.nftr, False)
    seconds, _ = model.gradients()
    size = int(model.head.nftr)
    return {"seconds_per_gradient": seconds, "active": size, "size": size, "remark": peers.wapiti_build()}

"""Slices of the test data: the error by length, by frequency of the input and by stated confidence, with intervals.

The positions of one sequence go wrong together, so they do not count as independent: an interval is Wilson's with the
number of positions divided by how much more the error varies between sequences than it would between positions.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from espalier.engine.runtime.vectors import product
from espalier.tasks import store

Z = 1.959963984540054  # of a two-sided interval of 95 %
FREQUENCIES = (0, 1, 2, 6, 21, 101, 1001)  # first count of each slice; the last has no end
WINDOWS = (1, 3, 5)  # tokens that an input may be
RARE, RARE_SHARE = 5, 0.02  # an input tells something when this share of the positions was seen so seldom
QUANTILES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.97)  # of the lengths, where slices end
ROUNDS, BATCH = 400, 50  # resamples of the calibration error


class Rate(NamedTuple):
    """A share with its interval; all three None where there is nothing to count."""

    value: float | None
    low: float | None
    high: float | None


def wilson(share: float, size: float) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share of `size` independent trials."""
    middle = (share + Z * Z / (2 * size)) / (1 + Z * Z / size)
    half = Z / (1 + Z * Z / size) * np.sqrt(share * (1 - share) / size + Z * Z / (4 * size * size))
    return max(0.0, min(share, float(middle - half))), min(1.0, max(share, float(middle + half)))  # rounding aside


def rate(hits: np.ndarray, sizes: np.ndarray) -> Rate:
    """sum(hits) / sum(sizes) over sequences [N], those with a size of 0 left out."""
    hits, sizes = hits[sizes > 0].astype(float), sizes[sizes > 0].astype(float)
    total, count = sizes.sum(), len(sizes)
    if not count:
        return Rate(None, None, None)
    share = hits.sum() / total
    independent = share * (1 - share) / total
    between = np.sum((hits - share * sizes) ** 2) / total**2 * count / (count - 1) if count > 1 else independent
    effect = max(1.0, between / independent) if independent else 1.0
    return Rate(float(share), *wilson(share, total / effect))


def rates(hits: np.ndarray, group: np.ndarray, sequence: np.ndarray, groups: int) -> list[Rate]:
    """The rate of each group; `hits` bool [T], `group` [T] and `sequence` [T] numbers from 0."""
    length = int(sequence[-1]) + 1 if len(sequence) else 0
    cell = group * length + sequence
    shape = groups, length
    sizes = np.bincount(cell, minlength=groups * length).reshape(shape)
    right = np.bincount(cell, hits, minlength=groups * length).reshape(shape)
    return [rate(*row) for row in zip(right, sizes, strict=True)]


def _numbers(offsets: np.ndarray) -> np.ndarray:
    """The number of its sequence for each position."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _row(counts: dict, **shares: Rate) -> dict:
    """Counts and rates as one flat row: error, error_low, error_high."""
    flat = {f"{name}{end}": v for name, r in shares.items() for end, v in zip(("", "_low", "_high"), r, strict=True)}
    return counts | flat


# By length ------------------------------------------------------------------------------------------


def length_starts(lengths: np.ndarray) -> np.ndarray:
    """First length of each slice: about as many sequences in each, the longest few in one of their own."""
    if not len(lengths):
        return np.empty(0, np.int64)
    ends = np.quantile(lengths, QUANTILES, method="higher")
    starts = np.unique([lengths.min(), *(ends + 1)])
    return starts[starts <= lengths.max()].astype(np.int64)


def by_length(wrong: np.ndarray, offsets: np.ndarray) -> list[dict]:
    """Errors of positions and of whole sequences, by length."""
    lengths, sequence = np.diff(offsets), _numbers(offsets)
    starts = length_starts(lengths)
    which = np.searchsorted(starts, lengths, side="right") - 1
    failed = np.zeros(len(lengths), bool)
    failed[sequence[wrong]] = True
    tokens = rates(wrong, which[sequence], sequence, len(starts))
    whole = rates(failed, which, np.arange(len(lengths)), len(starts))
    rows = []
    for i in range(len(starts)):
        mine = which == i
        counts = {"low": int(lengths[mine].min()), "high": int(lengths[mine].max()), "sequences": int(mine.sum()),
                  "tokens": int(lengths[mine].sum()), "errors": int(wrong[mine[sequence]].sum())}  # fmt: skip
        rows.append(_row(counts, error=tokens[i], sequence_error=whole[i]))
    return rows


# By frequency of the input --------------------------------------------------------------------------


def by_frequency(wrong: np.ndarray, seen: np.ndarray, offsets: np.ndarray) -> list[dict]:
    """Errors by how often the input stood in the training data; slices without a position are left out."""
    which = np.searchsorted(FREQUENCIES, seen, side="right") - 1
    found = rates(wrong, which, _numbers(offsets), len(FREQUENCIES))
    ends = [start - 1 for start in FREQUENCIES[1:]] + [None]
    rows = []
    for i, (low, high) in enumerate(zip(FREQUENCIES, ends, strict=True)):
        mine = which == i
        if mine.any():
            counts = {"low": low, "high": high, "tokens": int(mine.sum()), "errors": int(wrong[mine].sum())}
            rows.append(_row(counts, error=found[i]))
    return rows


def windows(tokens: pl.DataFrame, width: int) -> pl.Series:
    """The token of each position with those around it, `width` in all, as one text; nothing beyond the sequence."""
    half = width // 2
    around = [
        pl.when(pl.col("sequence").shift(-k) == pl.col("sequence")).then(pl.col("x0").shift(-k)).otherwise(pl.lit(""))
        for k in range(-half, half + 1)
    ]
    return tokens.select(window=pl.concat_str(around, separator="\x1f")).to_series()


def count_in(blocks: Iterator[pl.DataFrame], wanted: pl.Series, width: int) -> np.ndarray:
    """How often each of the `wanted` windows stands in the blocks, int64 [T]; one block is held at a time."""
    names = wanted.unique().to_frame()
    total = names.with_columns(n=pl.lit(0, pl.UInt32)).head(0)
    for block in blocks:
        here = windows(block, width).to_frame().join(names, on="window", how="semi").group_by("window").len("n")
        total = pl.concat([total, here]).group_by("window").agg(pl.col("n").sum())
    found = wanted.to_frame().join(total, on="window", how="left", maintain_order="left")
    return found["n"].fill_null(0).to_numpy().astype(np.int64)


def seen_in_training(root: Path, tokens: pl.DataFrame) -> tuple[np.ndarray, int]:
    """How often the input of each test position stood in the training data, and of how many tokens an input is.

    A word is an input by itself. Letters are all frequent: then the tokens beside it belong to the input, too.
    """
    first = None
    for width in WINDOWS:
        seen = count_in(store.token_blocks(root, "train"), windows(tokens, width), width)
        first = seen if first is None else first
        if len(seen) and np.mean(seen <= RARE) >= RARE_SHARE:
            return seen, width
    return first, WINDOWS[0]


# By stated confidence -------------------------------------------------------------------------------


def with_intervals(
    bins: list[dict], confidence: np.ndarray, correct: np.ndarray, offsets: np.ndarray
) -> tuple[list[dict], Rate]:
    """The bins of a calibration curve with intervals of their accuracy, and the calibration error with its own."""
    which = np.minimum((confidence * len(bins)).astype(int), len(bins) - 1)
    found = rates(correct, which, _numbers(offsets), len(bins))
    shown = [b | {"accuracy_low": r.low, "accuracy_high": r.high} for b, r in zip(bins, found, strict=True)]
    return shown, calibration_error(confidence - correct, which, offsets, len(bins))


def calibration_error(gap: np.ndarray, which: np.ndarray, offsets: np.ndarray, bins: int, seed: int = 0) -> Rate:
    """The expected calibration error with a percentile interval from resampled sequences, widened to hold it."""
    count = len(offsets) - 1
    if not count:
        return Rate(None, None, None)
    sums = np.bincount(_numbers(offsets) * bins + which, gap, count * bins).reshape(count, bins)
    sizes = np.diff(offsets).astype(float)
    value = float(np.abs(sums.sum(axis=0)).sum() / sizes.sum())
    random, drawn = np.random.default_rng(seed), []
    for _ in range(ROUNDS // BATCH):
        draws = random.integers(0, count, (BATCH, count))
        times = np.stack([np.bincount(row, minlength=count) for row in draws]).astype(float)
        drawn.append(np.abs(product(times, sums)).sum(axis=1) / product(times, sizes[:, None])[:, 0])
    low, high = np.quantile(np.concatenate(drawn), [0.025, 0.975])
    return Rate(value, min(value, float(low)), max(value, float(high)))

"""Numbers that tell sequences apart: 64 bits for the texts of each, computed for whole tables at once."""

import numpy as np
import polars as pl

from espalier.tasks.formats.reading import input_names
from espalier.tasks.store import sequence_offsets

MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def mixed(x: np.ndarray) -> np.ndarray:
    """Every bit of a number in every bit of the result (splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * MIX[1]
    x = (x ^ (x >> np.uint64(27))) * MIX[2]
    return x ^ (x >> np.uint64(31))


def sequence_hashes(block: pl.DataFrame, names: list[str], offsets: np.ndarray) -> np.ndarray:
    """For each sequence, uint64 [N], of the texts of these columns of all its tokens in order."""
    lengths = np.diff(offsets)
    position = (np.arange(len(block)) - np.repeat(offsets[:-1], lengths)).astype(np.uint64)
    total = np.zeros(len(block), np.uint64)
    for i, name in enumerate(names):
        total = mixed(total + block[name].hash(i).to_numpy() + MIX[0])
    total = mixed(total + position * MIX[0])
    return mixed(np.add.reduceat(total, offsets[:-1]) + lengths.astype(np.uint64))


def input_hashes(tokens: pl.DataFrame) -> np.ndarray:
    """Of the input of each sequence, its label aside, uint64 [N]."""
    if tokens.is_empty():
        return np.empty(0, np.uint64)
    return sequence_hashes(tokens, input_names(tokens), sequence_offsets(tokens["sequence"].to_numpy()))

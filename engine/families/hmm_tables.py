"""A hidden Markov model written out: its probabilities as tables, and sequences drawn from them.

`engine.families.hmm` has them as weights of a chain; what is here is for people, files and samples. P(x, y) is drawn as
it is written (THESIS, algorithm 1): a first label, what each stream emits there, the next label or the end.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, make_dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.hmm_space import FLOOR
from espalier.engine.families.labeller import States, check_whole
from espalier.engine.runtime.vectors import exp

NOTHING = FLOOR + 1e-6  # a logarithm up to this is that of zero: its sums with others are rounded
STEPS = 1000  # of a walk through the labels, to see how often each is met
LONGEST_SAMPLE = 10**6  # tokens


class Stream(NamedTuple):
    """What the labels emit by one template: V observations and, last, an unknown one."""

    template: int
    observations: np.ndarray  # int64 [V], numbers in the model
    emissions: np.ndarray  # float64 [V + 1, Y]


def probabilities(logs: np.ndarray) -> np.ndarray:
    """Of their logarithms, with zero where the model has the logarithm that stands for it."""
    return np.where(logs <= NOTHING, 0.0, exp(np.minimum(logs, 0.0)))


def expected_visits(start: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """How often each label is met in a walk from the start, of `STEPS` steps at most, float64 [Y]."""
    now, total = start, start.copy()
    for _ in range(STEPS):
        now = (now[:, None] * transitions).sum(axis=0)
        total += now
        if now.sum() < 1e-12:
            break
    return total


def sampled(
    states: States, stream_of: Callable[[int], Stream], emitting: list[int], n_templates: int, n: int, seed: int,
    longest: int,
) -> Dataset:  # fmt: skip
    """n sequences with their labels; one that goes on for `longest` tokens is cut off there."""
    check_whole(n=(n, 0), seed=(seed, 0), longest=(longest, 1))
    random = np.random.default_rng(seed)
    labels, lengths = _walks(states, n, longest, random)
    observations = np.full((len(labels), n_templates), -1, np.int32)
    for k in emitting:
        stream = stream_of(k)
        known = np.append(stream.observations, -1)  # an unknown one has no number
        for y in range(len(states.names)):
            at = np.flatnonzero(labels == y)
            observations[at, k] = known[_drawn(stream.emissions[:, y], random.random(len(at)))]
    return make_dataset(observations, labels, np.append(0, np.cumsum(lengths)).astype(np.int64))


def _walks(states: States, n: int, longest: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels of all sequences, one behind the other, and how long each is."""
    first = _cumulated(states.start)
    onward = [_cumulated(np.append(row, end)) for row, end in zip(states.transitions, states.final, strict=True)]
    end, labels, lengths = len(states.names), [], []
    for _ in range(n):
        y, length = int(np.searchsorted(first, random.random(), "right")), 0
        while y != end and length < longest:
            if len(labels) >= LONGEST_SAMPLE:
                raise EspalierError(
                    f"the samples have more than {LONGEST_SAMPLE:,} tokens: draw fewer sequences, or cut them off "
                    f"sooner than behind {longest:,} tokens"
                )
            labels.append(y)
            length += 1
            y = int(np.searchsorted(onward[y], random.random(), "right"))
        lengths.append(length)
    return np.array(labels, np.int32), np.array(lengths, np.int64)


def _drawn(probabilities: np.ndarray, chances: np.ndarray) -> np.ndarray:
    return np.searchsorted(_cumulated(probabilities), chances, "right")


def _cumulated(probabilities: np.ndarray) -> np.ndarray:
    """Where each outcome ends between 0 and 1; the last that can be at all ends at 1, whatever was rounded."""
    sums = np.cumsum(probabilities)
    if not sums[-1] > 0.0:
        raise EspalierError("a distribution of the model is zero everywhere: there is nothing to draw from it")
    return np.minimum(sums / sums[-1], 1.0)

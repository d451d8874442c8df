"""The n best labellings of each sequence, exactly."""

import numpy as np

from espalier.engine.chain.pair_sets import PairSets
from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding.constraints import Constraints, allowed_pairs, allowed_scores, refuse_impossible
from espalier.engine.runtime import threads
from espalier.engine.runtime.jit import kernel
from espalier.engine.runtime.threads import balanced
from espalier.engine.weights.layout import Layout


def best_labellings(theta, dataset: Dataset, layout: Layout, sets: PairSets, constraints: Constraints, n: int):
    """(count [N], scores [N, n], labels [n, T]) of the n best allowed labellings."""
    sequences = len(dataset.weights)
    count, scores = np.zeros(sequences, np.int64), np.full((sequences, n), -np.inf)
    labels = np.full((n, len(dataset.labels)), -1, np.int32)
    threads.run(
        lambda run: _nbest(theta, layout, dataset.observations, dataset.offsets, sets, constraints, n, *run, count,
                           scores, labels),
        balanced(np.diff(dataset.offsets)),
    )  # fmt: skip
    refuse_impossible(count > 0)
    return count, scores, labels


@kernel
def _nbest(theta, layout, observations, offsets, sets, constraints, n_best, lo, hi, count, scores, labels):
    """Viterbi (SBCD 10) with the n best ways into each label instead of the best one.

    best[y, r] is the score of the r-th best labelling up to t that ends in y, back[t, y, r]
    the label and the rank before it as label * n + rank. The lists of all labels before are
    sorted, so the next best way in is at the head of one of them; among equals the smallest
    label wins. Cost: n * Y^2 a position.
    """
    n_labels = layout.n_labels
    longest = 0
    for n in range(lo, hi):
        longest = max(longest, offsets[n + 1] - offsets[n])
    back = np.empty((longest, n_labels, n_best), np.int64)
    best = np.empty((n_labels, n_best + 1))  # a last column of -inf ends each list
    following = np.empty((n_labels, n_best + 1))
    here, pairs = np.empty(n_labels), np.empty(n_labels * n_labels)
    head, rank = np.empty(n_labels), np.empty(n_labels, np.int64)
    for n in range(lo, hi):
        first, end = offsets[n], offsets[n + 1]
        held = -2
        for t in range(first, end):
            allowed_scores(theta, layout, observations, constraints, t, t == first, t == end - 1, here)
            following[:] = -np.inf
            if t == first:
                following[:, 0] = here
            else:
                p = sets.of_position[t]
                if p != held:
                    allowed_pairs(theta, layout, sets, constraints, p, pairs)
                    held = p
                for y in range(n_labels):
                    if here[y] == -np.inf:
                        continue
                    for i in range(n_labels):
                        head[i], rank[i] = best[i, 0] + pairs[i * n_labels + y], 0
                    for r in range(n_best):
                        i = np.argmax(head)
                        if head[i] == -np.inf:
                            break
                        following[y, r] = head[i] + here[y]
                        back[t - first, y, r] = i * n_best + rank[i]
                        rank[i] += 1
                        head[i] = best[i, rank[i]] + pairs[i * n_labels + y]
            best, following = following, best
        rank[:] = 0
        for r in range(n_best):
            y = -1
            for i in range(n_labels):
                if best[i, rank[i]] > (best[y, rank[y]] if y >= 0 else -np.inf):
                    y = i
            if y < 0:
                break
            scores[n, r] = best[y, rank[y]]
            label, place = y, rank[y]
            for t in range(end - 1, first - 1, -1):
                labels[r, t] = label
                if t > first:
                    label, place = divmod(back[t - first, label, place], n_best)
            rank[y] += 1
            count[n] = r + 1

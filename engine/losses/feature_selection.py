"""Baselines for the selection of features (THESIS 6.2.1, 7.3.3), to compare with an L1 penalty.

Each baseline gives every weight of a layout a score: its count, its mutual information, or its
size in a model trained with L2. `keep` turns scores into the set of weights to keep, `keep_only`
makes the layout that holds just these. Slots stay in order, so theta[mask] fits the small
layout and `expand` takes it back.
"""

import numpy as np

from espalier.engine.chain.pair_sets import check_labels, check_observations
from espalier.engine.data.dataset import NO_VALUED, NO_VALUES, Dataset, every_observation
from espalier.engine.errors import EspalierError
from espalier.engine.losses.chain_objective import observed_counts
from espalier.engine.runtime.vectors import log
from espalier.engine.weights.layout import FIRST_ORDER, Layout, _assemble


def counts(dataset: Dataset, layout: Layout) -> np.ndarray:
    """How often each feature was seen, weighted by sequence: for the cut-off of rare ones."""
    check_observations(dataset, layout)
    check_labels(dataset.labels, layout)
    return observed_counts(dataset, layout)


def magnitudes(theta: np.ndarray) -> np.ndarray:
    """|theta|: for the thresholding of a model that was trained with L2."""
    return np.abs(theta)


def mutual_information(dataset: Dataset, layout: Layout) -> np.ndarray:
    """Information in nats (THESIS 6.3) between z = "the label is y" and v = "the rest of the feature is there".

    v is "x is observed" for unigram weights, over all positions; "x is observed after the label y'"
    for bigram weights, over the positions that have a label before them; start weights are
    unigram ones over the first positions. Positions count by the weight of their sequence. What has a value is there.
    """
    check_observations(dataset, layout)
    check_labels(dataset.labels, layout)
    data = dataset._replace(
        observations=_without_repeats(every_observation(dataset)), valued=NO_VALUED, values=NO_VALUES
    )
    both = observed_counts(data, layout)
    weights = np.repeat(data.weights, np.diff(data.offsets))
    first = np.zeros(len(data.labels), bool)
    first[data.offsets[:-1]] = True
    previous = np.where(first, 0, np.concatenate([[0], data.labels[:-1]])).astype(np.int64)
    context = {"unigram": None, "start": None, "bigram": previous}
    where = {"unigram": np.ones_like(first), "start": first, "bigram": ~first}
    family, observation, before, label = layout.slots()
    found = np.zeros(layout.size)
    for index, name in enumerate(FIRST_ORDER):
        mine, here = family == index, where[name]
        of_label = np.bincount(data.labels[here], weights[here], minlength=layout.n_labels)
        wanted = observation[mine].astype(np.int64)
        if name == "bigram":
            wanted = wanted * layout.n_labels + before[mine]
        of_rest = _totals(data.observations, weights, here, context[name], layout.n_labels, wanted)
        found[mine] = _information(both[mine], of_rest, of_label[label[mine]], weights[here].sum())
    return found


def _without_repeats(observations: np.ndarray) -> np.ndarray:
    """An observation that several templates yield at one position counts there once."""
    out = observations.copy()
    for c in range(1, out.shape[1]):
        out[(out[:, :c] == out[:, c : c + 1]).any(axis=1), c] = -1
    return out


def _totals(observations, weights, where, context, n_labels: int, wanted: np.ndarray) -> np.ndarray:
    """Weight of the positions `where` that have each wanted x, or x * Y + y' with the labels y' of `context`."""
    keys, shares = [], []
    for column in observations.T:
        there = where & (column >= 0)
        key = column[there].astype(np.int64)
        keys.append(key if context is None else key * n_labels + context[there])
        shares.append(weights[there])
    if not keys or not len(wanted):
        return np.zeros(len(wanted))
    known, inverse = np.unique(np.concatenate([*keys, wanted]), return_inverse=True)
    total = np.bincount(inverse[: -len(wanted)], np.concatenate(shares), minlength=len(known))
    return total[inverse[-len(wanted) :]]


def _information(both: np.ndarray, of_rest: np.ndarray, of_label: np.ndarray, total: float) -> np.ndarray:
    """Sum over the four cells of p(v, z) log p(v, z) / (p(v) p(z)); an empty cell adds nothing."""
    information = np.zeros(len(both))
    if total <= 0.0:
        return information
    cells = ((both, of_rest, of_label), (of_rest - both, of_rest, total - of_label),
             (of_label - both, total - of_rest, of_label),
             (total - of_rest - of_label + both, total - of_rest, total - of_label))  # fmt: skip
    for joint, one, other in cells:
        some = (joint > 0.0) & (one > 0.0) & (other > 0.0)
        information[some] += joint[some] / total * log(joint[some] * total / (one[some] * other[some]))
    return np.maximum(information, 0.0)


def keep(scores: np.ndarray, count: int | None = None, least: float | None = None) -> np.ndarray:
    """A mask of the `count` highest scores, or of those of `least` and more. Of equals the first slots are taken."""
    if (count is None) == (least is None):
        raise EspalierError("give either how many weights to keep or the least score, not both")
    if least is not None:
        return scores >= least
    if not 0 <= count <= len(scores):
        raise EspalierError(f"{count} weights to keep: expected 0 to {len(scores)}")
    mask = np.zeros(len(scores), bool)
    mask[np.argsort(-scores, kind="stable")[:count]] = True
    return mask


def keep_only(layout: Layout, mask: np.ndarray) -> Layout:
    """The layout of the weights in `mask`, with the same labels and observations."""
    where = _where(mask, layout.size)
    family, observation, previous, label = layout.slots(where)
    code = np.where(family == 2, previous.astype(np.int64) * layout.n_labels + label, label)
    families = [family == index for index in range(len(FIRST_ORDER))]
    return _assemble(
        layout.n_labels,
        [(np.bincount(observation[mine], minlength=layout.n_observations), code[mine]) for mine in families],
    )


def expand(theta: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """theta of a restricted layout in the slots of the whole one; the others are zero."""
    where = _where(mask, len(mask))
    if len(theta) != len(where):
        raise EspalierError(f"theta has {len(theta)} weights: expected the {len(where)} that were kept")
    whole = np.zeros(len(mask))
    whole[where] = theta
    return whole


def _where(mask: np.ndarray, size: int) -> np.ndarray:
    if mask.shape != (size,) or mask.dtype != bool:
        raise EspalierError(f"a mask of {mask.shape} {mask.dtype}: expected {size} values of true or false")
    return np.flatnonzero(mask)

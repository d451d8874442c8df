"""What a model's weights say: the strongest of all, and why a token has its label.

For the second the best labelling is compared with the best one that has the next likely label at that position,
found by Viterbi with one allowed label there. Scores are sums of weights, so the difference of the two
log-probabilities is a sum over the weights that count more often in one than in the other: nothing is estimated.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from engine import decode
from engine.data import Dataset, select
from engine.errors import EspalierError
from engine.layout import FAMILIES, Layout
from engine.model import Model

TOP = 5  # weights listed for each token
POSITIONS = 1 << 16  # of copies of a sequence that are decoded at once
START = "⟨start⟩"


class Share(NamedTuple):
    """A weight and what it adds to the difference: its value for each time it occurs more often."""

    slot: int
    times: int
    value: float


class Reason(NamedTuple):
    """One token: its label, the runner-up, the best labelling with that, and the difference, weight by weight."""

    label: int
    probability: float
    runner_up: int  # -1 when there is but one label
    runner_up_probability: float
    other: np.ndarray  # int32 [T], the best labelling that has the runner-up here
    difference: float  # of the log-probabilities, at least 0
    shares: list[Share]  # of all weights that differ, the largest first


class Explanation(NamedTuple):
    """One sequence."""

    labels: np.ndarray  # int32 [T]
    log_probability: float
    reasons: list[Reason]


# The numbers ----------------------------------------------------------------------------------------


def explain(model: Model, dataset: Dataset) -> Iterator[Explanation]:
    """An explanation of each sequence of a data set of the model's observations."""
    for n in range(len(dataset.weights)):
        yield explain_one(model.layout, model.theta, select(dataset, np.array([n])))


def explain_one(layout: Layout, theta: np.ndarray, sequence: Dataset) -> Explanation:
    """The explanation of a data set of one sequence."""
    labels = decode.viterbi(sequence, layout, theta)
    gamma = decode.marginals(sequence, layout, theta)
    log_p = float(decode.sequence_log_probability(sequence, layout, theta, labels)[0])
    if layout.n_labels == 1:
        alone = [Reason(0, 1.0, -1, 0.0, labels, 0.0, []) for _ in labels]
        return Explanation(labels, min(log_p, 0.0), alone)
    rest = gamma.copy()
    rest[np.arange(len(labels)), labels] = -1.0
    seconds = rest.argmax(axis=1).astype(np.int32)
    others = best_with(layout, theta, sequence, seconds)
    reasons = []
    for t, (label, second) in enumerate(zip(labels, seconds, strict=True)):
        shares = differing(layout, theta, sequence.observations, labels, others[t])
        total = float(np.sum([share.value for share in shares]))
        reasons.append(Reason(int(label), float(gamma[t, label]), int(second), float(gamma[t, second]), others[t],
                              total, shares))  # fmt: skip
    return Explanation(labels, min(log_p, 0.0), reasons)


def best_with(layout: Layout, theta: np.ndarray, sequence: Dataset, wanted: np.ndarray) -> np.ndarray:
    """Row t is the best labelling that has wanted[t] at position t, int32 [T, T]."""
    length = len(wanted)
    out, step = np.empty((length, length), np.int32), max(1, POSITIONS // length)
    for low in range(0, length, step):
        at = np.arange(low, min(length, low + step))
        copies = select(sequence, np.zeros(len(at), np.int64))
        labels = np.full((len(at), length), -1, np.int32)
        labels[np.arange(len(at)), at] = wanted[at]
        found = decode.viterbi(copies._replace(labels=labels.ravel()), layout, theta, allowed="labels")
        out[at] = found.reshape(len(at), length)
    return out


def differing(layout: Layout, theta: np.ndarray, observations: np.ndarray, labels, other) -> list[Share]:
    """What each weight adds to the score of the first labelling minus that of the second, the largest first."""
    changed = np.asarray(labels) != np.asarray(other)
    touched = np.flatnonzero(changed | np.append(False, changed[:-1]))  # the label here or the one before is another
    found = occurrences(layout, observations, labels, touched)
    found.subtract(occurrences(layout, observations, other, touched))
    shares = [Share(slot, n, n * float(theta[slot])) for slot, n in found.items() if n]
    return sorted(shares, key=lambda share: (-abs(share.value), share.slot))


def occurrences(layout: Layout, observations: np.ndarray, labels, positions) -> Counter:
    """How often each weight counts in the score of a labelling at these positions: {slot: times}."""
    found: Counter = Counter()
    for t in positions.tolist():
        here, before = int(labels[t]), int(labels[t - 1])
        for x in observations[t].tolist():
            if x < 0:
                continue
            _count(found, layout, "unigram", x, here)
            if t == 0:
                _count(found, layout, "start", x, here)
            else:
                _count(found, layout, "bigram", x, before * layout.n_labels + here)
    return found


def _count(found: Counter, layout: Layout, family: str, x: int, code: int) -> None:
    """Add one for the weight of this code in the run of observation x, if it has one; codes are sorted in a run."""
    codes = layout.run_codes(family, x)
    at = int(np.searchsorted(codes, code))
    if at < len(codes) and codes[at] == code:
        found[int(layout.family(family)[0][x]) + at] += 1


# In words -------------------------------------------------------------------------------------------


def strongest(model: Model, label: str | None, count: int) -> list[dict]:
    """The weights of largest size, all or of one label, in words."""
    if label is not None and label not in model.labels:
        raise EspalierError(f"label {label!r} is not one of the model's: {', '.join(model.labels)}")
    here = model.layout.slots()[3]
    mine = np.flatnonzero(here == model.labels.index(label)) if label is not None else np.arange(len(here))
    return weights_in_words(model, mine[np.argsort(-np.abs(model.theta[mine]), kind="stable")][:count])


def weights_in_words(model: Model, slots: np.ndarray) -> list[dict]:
    """Each weight with its family, observation, labels, value and a text for people, in the order given."""
    slots = np.asarray(slots, np.int64)
    order = np.argsort(slots, kind="stable")
    rows: list[dict] = [{}] * len(slots)
    columns = (column.tolist() for column in model.layout.slots(slots[order]))
    for i, family, observation, previous, label in zip(order.tolist(), *columns, strict=True):
        before = model.labels[previous] if previous >= 0 else None
        lead = f"{before} → " if before is not None else f"{START} → " if FAMILIES[family] == "start" else ""
        rows[i] = {
            "family": FAMILIES[family], "observation": model.observations[observation], "previous": before,
            "label": model.labels[label], "weight": float(model.theta[slots[i]]),
            "text": f"{lead}{model.labels[label]}  when {model.observations[observation]}",
        }  # fmt: skip
    return rows


def as_object(model: Model, tokens: list[str], found: Explanation, top: int = TOP) -> dict:
    """An explanation as plain data; `rest` is what the weights that are not listed add."""
    return {
        "labels": [model.labels[y] for y in found.labels], "log_probability": found.log_probability,
        "tokens": [_token(model, token, reason, top) for token, reason in zip(tokens, found.reasons, strict=True)],
    }  # fmt: skip


def _token(model: Model, token: str, reason: Reason, top: int) -> dict:
    listed, rest = reason.shares[:top], reason.shares[top:]
    words = weights_in_words(model, np.array([share.slot for share in listed], np.int64))
    told = {"token": token, "label": model.labels[reason.label], "probability": reason.probability, "runner_up": None}
    if reason.runner_up < 0:
        return told
    weights = [row | {"times": s.times, "adds": s.value} for row, s in zip(words, listed, strict=True)]
    return told | {
        "runner_up": model.labels[reason.runner_up], "runner_up_probability": reason.runner_up_probability,
        "otherwise": [model.labels[y] for y in reason.other], "difference": reason.difference, "weights": weights,
        "rest": float(np.sum([share.value for share in rest])), "rest_count": len(rest),
    }  # fmt: skip


def as_text(told: dict) -> str:
    """What `as_object` says, for people."""
    width = max((len(row["token"]) for row in told["tokens"]), default=0)
    labels = max((len(row["label"]) for row in told["tokens"]), default=0)
    lines = [f"log-probability {told['log_probability']:.4f}"]
    for at, row in enumerate(told["tokens"]):
        head = f"{row['token']:<{width}}  {row['label']:<{labels}}  {row['probability']:7.2%}"
        if row["runner_up"] is None:
            lines.append(head)
            continue
        lines.append(f"{head}   {row['difference']:+.3f} over {row['runner_up']} ({row['runner_up_probability']:.2%})"
                     + _elsewhere(told["labels"], row["otherwise"], at, told["tokens"]))  # fmt: skip
        lines += [f"    {weight['adds']:+8.3f}  {_side(weight)}{weight['text']}" for weight in row["weights"]]
        if row["rest_count"]:
            others = "1 more weight" if row["rest_count"] == 1 else f"{row['rest_count']} more weights"
            lines.append(f"    {row['rest']:+8.3f}  {others}")
    return "\n".join(lines) + "\n"


def _side(weight: dict) -> str:
    """Weights of the other labelling count against the best one."""
    often = f"{abs(weight['times'])} × " if abs(weight["times"]) > 1 else ""
    return ("not " if weight["times"] < 0 else "") + often


def _elsewhere(labels: list[str], other: list[str], at: int, tokens: list[dict]) -> str:
    """The labels that would change with this one."""
    changed = [
        f"{tokens[t]['token']} {label}"
        for t, (mine, label) in enumerate(zip(labels, other, strict=True))
        if t != at and mine != label
    ]
    return f", which would make {', '.join(changed[:3])}{', …' if len(changed) > 3 else ''}" if changed else ""

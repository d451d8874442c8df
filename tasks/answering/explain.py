"""What a model's weights say: the strongest of all, and why a token has its label.

For the second the best labelling is compared with the best one that has the next likely label at that position; of a
model that says no probabilities it is the label whose best labelling has the next best score.
Scores are sums of weights, so the difference of the two log-probabilities is a sum over the weights that count more
often in one than in the other: nothing is estimated. Where each label is normalised given the one before it (memm), the
logarithms of the sums that it is divided by differ, too, and are a share of their own.

The best labelling through a label at a position is the best way to it, by the pointers of Viterbi's recursion, and the
best way on from it, by those of the same recursion from the end. Either way soon meets the best labelling
and goes with it from there, so that only a few positions are looked at: all takes linear time and memory. Where
triples of labels have weights, a way is one to a pair of labels: see `engine.lattice.detours`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, at_positions, select
from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families.labeller import Contribution, Labeller, Predictor, Round
from espalier.engine.grammar.binary_trees import plain
from espalier.engine.text.macros import ATTRIBUTE_GAP, VALUE_MARK
from espalier.engine.weights.layout import FAMILIES
from espalier.engine.weights.stop_twins import STOP, is_twin, of_twin

TOP = 5  # weights listed for each token
REACH = 1000  # positions to either side that are followed; in text ways meet after a few
BLOCK = 1 << 24  # bytes of scores of pairs that are held at once
START = "⟨start⟩"


class Share(NamedTuple):
    """A weight and what it adds to the difference: its value for each time it occurs more often."""

    weight: Contribution | None  # None is what labels are divided by
    times: int
    value: float


class Reason(NamedTuple):
    """One token: its label, the runner-up, the best labelling with that, and the difference, weight by weight.

    That labelling is `other` from position `begin` on and the best one everywhere else.
    """

    label: int
    probability: float | None  # None where the model says none
    runner_up: int  # -1 when there is but one label
    runner_up_probability: float | None
    begin: int
    other: np.ndarray  # int32, the stretch around this position that differs
    difference: float  # of the log-probabilities, or of the scores, at least 0
    shares: list[Share]  # of all weights that differ, the largest first
    cut: bool = False  # whether they differ beyond `REACH` as well: then some of the difference is in no share


class Explanation(NamedTuple):
    """One sequence."""

    labels: np.ndarray  # int32 [T]
    log_probability: float | None
    reasons: list[Reason]


# The numbers ----------------------------------------------------------------------------------------


def explain(model: Labeller, dataset: Dataset) -> Iterator[Explanation]:
    """An explanation of each sequence of a data set of the model's observations."""
    model.require("weights")
    for n in range(len(dataset.weights)):
        yield explain_one(model, select(dataset, np.array([n])))


def explain_one(model: Labeller, sequence: Dataset) -> Explanation:
    """The explanation of a data set of one sequence."""
    labels, probable = model.best(sequence), "probability" in model.can
    log_p = min(float(model.log_probability(sequence, labels)[0]), 0.0) if probable else None
    if len(model.labels) == 1:
        certain = (1.0, -1, 0.0) if probable else (None, -1, None)
        return Explanation(
            labels, log_p, [Reason(0, *certain, t, labels[t : t + 1], 0.0, []) for t in range(len(labels))]
        )
    ways = model.ways(sequence, labels) if model.second_order else best_ways(model, sequence, labels)
    rest = model.marginals(sequence) if probable else ways.to + ways.on
    chances = rest.tolist() if probable else None
    rest[np.arange(len(labels)), labels] = -np.inf
    seconds = rest.argmax(axis=1).astype(np.int32)
    prepared, local = model.prepared(sequence), not model.linear
    reasons = []
    for t, (label, second) in enumerate(zip(labels.tolist(), seconds.tolist(), strict=True)):
        begin, other, cut = ways.through(t, second)
        shares = differing(model, prepared, labels, begin, other)
        total = float(np.sum([share.value for share in shares]))
        if cut or local:
            total, weights = ways.loss(t, second), total
            shares = shares if cut else with_normalisers(shares, total - weights)
        p, q = (chances[t][label], chances[t][second]) if chances else (None, None)
        reasons.append(Reason(label, p, second, q, begin, other, total, shares, cut))
    return Explanation(labels, log_p, reasons)


class Ways(NamedTuple):
    """The best way to each label at each position and the best way on from it; scores relative to the best one."""

    labels: np.ndarray  # int32 [T], the best labelling
    before: np.ndarray  # int16 [T, Y], the label before on the best way to it
    after: np.ndarray  # int16 [T, Y], the label after on the best way on
    to: np.ndarray  # float64 [T, Y], score of the best way to it, that of the position included
    on: np.ndarray  # float64 [T, Y], score of the best way on from it

    def through(self, t: int, label: int) -> tuple[int, np.ndarray, bool]:
        """(begin, labels) of the stretch in which the best labelling with `label` at t differs, and whether it is cut.

        From a label that the best labelling has too, the ways are the same.
        """
        back, ahead, cut = [], [label], False
        at, now = t, label
        while at > 0 and (now := int(self.before[at, now])) != self.labels[at - 1]:
            back.append(now)
            at -= 1
            if len(back) == REACH:
                cut = at > 0
                break
        at, now = t, label
        while at + 1 < len(self.labels) and (now := int(self.after[at, now])) != self.labels[at + 1]:
            ahead.append(now)
            at += 1
            if len(ahead) > REACH:
                cut = cut or at + 1 < len(self.labels)
                break
        return t - len(back), np.array(back[::-1] + ahead, np.int32), cut

    def loss(self, t: int, label: int) -> float:
        """How much worse than the best labelling the best one with `label` at t is."""
        total = self.to[t] + self.on[t]
        return float(total[self.labels[t]] - total[label])


def best_ways(model: Labeller, sequence: Dataset, labels: np.ndarray) -> Ways:
    """Viterbi's recursion in both directions. Among equals the smallest label counts, or the one of `labels`."""
    length, n = len(labels), len(model.labels)
    pointer = np.zeros((length, n), np.int16)
    ways = Ways(labels, pointer, pointer.copy(), np.zeros((length, n)), np.zeros((length, n)))
    step = max(2, BLOCK // (8 * n * n))
    starts = range(0, length, step)
    for lo in starts:
        here, between = _scores(model, sequence, lo, min(length, lo + step))
        for t in range(lo, min(length, lo + step)):
            if t == 0:
                ways.to[0] = here[0]
                continue
            total = ways.to[t - 1][:, None] + between[t - lo]
            ways.before[t] = total.argmax(axis=0)
            score = total.max(axis=0) + here[t - lo]
            ways.to[t] = score - score.max()  # only differences count, and sums stay small
    for lo in reversed(starts):
        here, between = _scores(model, sequence, lo, min(length, lo + step))
        for t in range(min(length, lo + step) - 1, max(lo, 1) - 1, -1):
            total = between[t - lo] + (here[t - lo] + ways.on[t])
            best = total.max(axis=1)
            ways.after[t - 1] = np.where(total[:, labels[t]] == best, labels[t], total.argmax(axis=1))
            ways.on[t - 1] = best - best.max()
    return ways


def _scores(model: Labeller, sequence: Dataset, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of positions lo to hi [., Y] and of the pairs that end there [., Y, Y]."""
    # A pair needs the position before; what is said of a last position, or of the next one, the one behind.
    first, last = max(0, lo - 1), min(len(sequence.labels), hi + 1)
    part = sequence._replace(
        **at_positions(sequence, slice(first, last)), offsets=np.array([0, last - first]), weights=np.ones(1)
    )
    here, between = model.scores(part)
    return here[lo - first : hi - first], between[lo - first : hi - first]


def with_normalisers(shares: list[Share], rest: float) -> list[Share]:
    """With what the labels are divided by among the shares, where that differs."""
    if abs(rest) < 1e-12:
        return shares
    return sorted([*shares, Share(None, 1, rest)], key=_largest_first)


def differing(
    model: Labeller, prepared: Dataset, labels: np.ndarray, begin: int, other: np.ndarray
) -> list[Share]:
    """What each weight adds to the score of the first labelling minus that of the other, the largest first."""
    reach = 2 if model.second_order else 1  # positions that a weight looks back
    low, high = max(0, begin - reach), min(len(labels), begin + len(other) + reach)
    mine = labels[low:high]
    theirs = mine.copy()
    theirs[begin - low : begin - low + len(other)] = other
    changed = mine != theirs
    near = changed.copy()  # whether the label here or one that a weight looks back to is another
    for back in range(1, reach + 1):
        near[back:] |= changed[:-back]
    touched = np.flatnonzero(near)
    values: dict[Contribution, float] = {}
    found = occurrences(model, prepared, low, mine, touched, values)
    found.subtract(occurrences(model, prepared, low, theirs, touched, values))
    shares = [Share(weight, n, n * values[weight]) for weight, n in found.items() if n]
    return sorted(shares, key=_largest_first)


def _largest_first(share: Share) -> tuple:
    kind = -1 if share.weight is None else FAMILIES.index(share.weight.kind)
    return -abs(share.value), kind, *(share.weight or ())[1:]


def occurrences(
    model: Labeller, prepared: Dataset, low: int, labels: np.ndarray, positions: np.ndarray,
    values: dict[Contribution, float],
) -> Counter:  # fmt: skip
    """How often each weight counts in the score of a labelling at these positions; `values` gets what it is worth.

    `labels` and `positions` begin at position `low`.
    """
    found, some, far = Counter(), prepared.valued.shape[1] > 0, model.second_order
    for t in positions.tolist():
        at, before = low + t, int(labels[t - 1]) if t else -1
        valued = zip(prepared.valued[at].tolist(), prepared.values[at].tolist(), strict=True) if some else ()
        more = (int(labels[t - 2]),) if far and t > 1 else ()
        for weight, value in model.contributions(prepared.observations[at], before, int(labels[t]), valued, *more):
            found[weight] += 1
            values[weight] = value
    return found


# In words -------------------------------------------------------------------------------------------


def strongest(model: Labeller, label: str | None, count: int) -> list[dict]:
    """The weights of largest size, all or of one label, in words."""
    if label is not None and label not in model.labels:
        raise EspalierError(f"label {quoted(label)} is not one of the model's: {brief(', '.join(model.labels))}")
    model.require("weights")
    found = model.listed(None if label is None else model.labels.index(label), count)
    return [weight_in_words(model, weight, value) for weight, value in found]


def rules_of(model: Predictor, label: str | None, count: int) -> list[dict]:
    """The rules that are used most, all or of one label, with their probabilities and how often a tree has them."""
    if label is not None and label not in model.labels:
        raise EspalierError(f"label {quoted(label)} is not one of the model's: {brief(', '.join(model.labels))}")
    found = []
    for row in model.shown_table().to_pylist():
        if label is None or plain(row["label"]) == label:
            found.append({"rule": row["rule"], "probability": row["weight"], "times_in_a_tree": row["uses"]})
        if len(found) == count:
            break
    return found


def weight_in_words(model: Labeller, weight: Contribution, value: float) -> dict:
    """A weight with its family, observation, labels, value and a text for people."""
    kind, observation, previous, label, amount = weight
    names = model.labels_before(previous, FAMILIES.index(kind))
    before = names[-1] if names else None
    lead = "".join(f"{name} → " for name in names) or (f"{START} → " if kind == "start" else "")
    text, end = model.text_of(observation), ""
    if is_twin(text):
        kind, text, end = STOP, of_twin(text), " at the end"
    return {
        "family": kind, "observation": text, "previous": before, "label": model.labels[label], "weight": value,
        "text": f"{lead}{model.labels[label]}  when {text}{end}" + (f" is {amount:.6g}" if amount != 1.0 else ""),
    } | ({"value": amount} if amount != 1.0 else {}) | ({"before": names[0]} if len(names) > 1 else {})  # fmt: skip


def round_in_words(made: Round) -> str:
    """The weight of a round, as those of a model are shown."""
    lead = f"{START} → " if made.family == "start" else f"{made.previous} → " if made.previous is not None else ""
    return f"{lead}{made.label}  when {made.observation}"


def in_words(model: Labeller, share: Share) -> dict:
    """The weight of a share, or what labels are divided by."""
    if share.weight is None:
        return {"family": "normaliser", "observation": None, "previous": None, "label": None, "weight": share.value,
                "text": "given their labels before, the others are more or less likely together"}  # fmt: skip
    return weight_in_words(model, share.weight, share.value / share.times)


def as_object(model: Labeller, tokens: list[str], found: Explanation, top: int = TOP) -> dict:
    """An explanation as plain data; `rest` is what the weights that are not listed add.

    `otherwise` has the labels of the other labelling from position `from` on, where it differs.
    """
    return {
        "labels": [model.labels[y] for y in found.labels], "log_probability": found.log_probability,
        "tokens": [_token(model, token, reason, top) for token, reason in zip(tokens, found.reasons, strict=True)],
    }  # fmt: skip


def _token(model: Labeller, token: str, reason: Reason, top: int) -> dict:
    listed, rest = reason.shares[:top], reason.shares[top:]
    words = [in_words(model, share) for share in listed]
    told = {"token": token, "label": model.labels[reason.label], "probability": reason.probability, "runner_up": None}
    if reason.runner_up < 0:
        return told
    weights = [row | {"times": s.times, "adds": s.value} for row, s in zip(words, listed, strict=True)]
    return told | {
        "runner_up": model.labels[reason.runner_up], "runner_up_probability": reason.runner_up_probability,
        "otherwise": {"from": reason.begin, "labels": [model.labels[y] for y in reason.other]},
        "difference": reason.difference, "weights": weights, "rest_count": len(rest),
        "rest": reason.difference - sum(s.value for s in listed) if reason.cut else float(sum(s.value for s in rest)),
    }  # fmt: skip


def as_text(told: dict) -> str:
    """What `as_object` says, for people."""
    width = max((len(_shown(row["token"])) for row in told["tokens"]), default=0)
    labels = max((len(row["label"]) for row in told["tokens"]), default=0)
    probable = told["log_probability"] is not None
    lines = [f"log-probability {told['log_probability']:.4f}"] if probable else []
    for at, row in enumerate(told["tokens"]):
        head = f"{_shown(row['token']):<{width}}  {row['label']:<{labels}}"
        head += f"  {row['probability']:7.2%}" if probable else ""
        if row["runner_up"] is None:
            lines.append(head)
            continue
        chance = f" ({row['runner_up_probability']:.2%})" if probable else ""
        lines.append(f"{head}   {row['difference']:+.3f} over {row['runner_up']}{chance}"
                     + _elsewhere(told["labels"], row["otherwise"], at, told["tokens"]))  # fmt: skip
        lines += [f"    {weight['adds']:+8.3f}  {_side(weight)}{weight['text']}" for weight in row["weights"]]
        if row["rest_count"]:
            others = "1 more weight" if row["rest_count"] == 1 else f"{row['rest_count']} more weights"
            lines.append(f"    {row['rest']:+8.3f}  {others}")
    return "\n".join(lines) + "\n"


def _shown(token: str) -> str:
    """A token; of a list of attributes the first, and how many there are beside it."""
    first, *more = token.replace(VALUE_MARK, ":").split(ATTRIBUTE_GAP)
    return f"{first} (+{len(more)})" if more else first


def _side(weight: dict) -> str:
    """Whether a weight belongs to the other labelling, and how often it counts."""
    often = f"{abs(weight['times'])} × " if abs(weight["times"]) > 1 else ""
    return ("otherwise " if weight["times"] < 0 else "") + often


def _elsewhere(labels: list[str], other: dict, at: int, tokens: list[dict]) -> str:
    """The labels that would change with this one."""
    changed = [
        f"{_shown(tokens[t]['token'])} {label}"
        for t, label in enumerate(other["labels"], other["from"])
        if t != at and labels[t] != label
    ]
    return f", which would make {', '.join(changed[:3])}{', …' if len(changed) > 3 else ''}" if changed else ""

"""F1 of single labels or kinds of chunks in resamples of sequences, the obvious way: resample, join, count."""

import random


def chunk_items(labels):
    """(begin, end, kind) of the chunks of one sequence."""
    found, begin, kind = [], None, None
    for t, label in enumerate([*labels, "O"]):
        prefix, _, here = label.partition("-")
        if begin is not None and not (prefix == "I" and here == kind):
            found.append((begin, t, kind))
            begin = None
        if prefix != "O" and begin is None:
            begin, kind = t, here
    return found


def token_items(labels):
    return [(t, t + 1, label) for t, label in enumerate(labels)]


def f1_of(kind, gold, guess, items):
    """Over lists of sequences of labels."""
    right = in_gold = in_guess = 0
    for one, other in zip(gold, guess, strict=True):
        wanted = {item for item in items(one) if item[2] == kind}
        said = {item for item in items(other) if item[2] == kind}
        right, in_gold, in_guess = right + len(wanted & said), in_gold + len(wanted), in_guess + len(said)
    return 2 * right / (in_gold + in_guess) if in_gold + in_guess else 0.0


def differences(kind, gold, champion, challenger, items, draws):
    """Challenger minus champion, for each list of drawn sequence numbers."""
    return [
        f1_of(kind, [gold[i] for i in draw], [challenger[i] for i in draw], items)
        - f1_of(kind, [gold[i] for i in draw], [champion[i] for i in draw], items)
        for draw in draws
    ]


def noisy(sequences, labels, share, seed):
    """Copies in which a share of the labels is another one."""
    source = random.Random(seed)
    return [[source.choice(labels) if source.random() < share else label for label in one] for one in sequences]

"""A maximum entropy Markov model by enumeration: each label normalised given the one before.

    p(y|x) = p(y_1|x) prod_{t>1} p(y_t|y_{t-1}, x),    p(y_t = y|y_{t-1} = y', x) ~ exp(here[t][y] + between[t][y'][y])

here [T][Y], between [T][Y][Y]; between[0] is not looked at. A score of -inf forbids. Training data are as in
`chain`: a position is a list of observation ids (-1 = none), and weights have the dicts mu, start and lam.
Sums are exact (`math.fsum`), so it holds at scores of 700.
"""

import itertools
import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np


def log_softmax(scores):
    """-inf everywhere if all are forbidden: what has no successor passes nothing on."""
    top = max(scores)
    if top == -math.inf:
        return [-math.inf] * len(scores)
    log_z = top + math.log(math.fsum(math.exp(score - top) for score in scores))
    return [score - log_z for score in scores]


def conditionals(here, between):
    """log p(y_1|x) [Y], and log p(y_t = y|y_{t-1} = y', x) at [t][y'][y], with None for the first t."""
    steps = [
        [log_softmax([a + b for a, b in zip(here[t], row, strict=True)]) for row in between[t]]
        for t in range(1, len(here))
    ]
    return log_softmax(here[0]), [None, *steps]


def chained(first, steps, labels):
    return math.fsum([first[labels[0]], *(steps[t][labels[t - 1]][labels[t]] for t in range(1, len(labels)))])


def log_probability(here, between, labels):
    return chained(*conditionals(here, between), labels)


def enumerate_all(here, between):
    """{labelling: log p(y|x)}"""
    first, steps = conditionals(here, between)
    return {y: chained(first, steps, y) for y in itertools.product(range(len(here[0])), repeat=len(here))}


def best(here, between):
    """The most probable labelling; among equals the smallest label wins, from the end as in `lattice.labellings`."""
    every = enumerate_all(here, between)
    return min(every, key=lambda y: (-every[y], y[::-1]))


def marginals(here, between):
    """[T][Y] p(y_t = y | x)"""
    table = np.zeros((len(here), len(here[0])))
    for labels, log_p in enumerate_all(here, between).items():
        for t, y in enumerate(labels):
            table[t, y] += math.exp(log_p)
    return table


# ---- training


def features_at(sequence, t, previous, label):
    """What fires when `label` follows `previous` at t, as keys of `chain`; `previous` does not matter at t = 0."""
    observations = [o for o in sequence[t] if o >= 0]
    last = [("start", o, label) if t == 0 else ("lam", o, previous, label) for o in observations]
    return [("mu", o, label) for o in observations] + last


def scores_at(sequence, t, previous, n_labels, weights):
    def weight(feature):
        return getattr(weights, feature[0]).get(feature[1:], 0.0)

    return [math.fsum(map(weight, features_at(sequence, t, previous, y))) for y in range(n_labels)]


def tables(sequence, n_labels, weights):
    """here and between of a sequence: mu and start are in the former, lam in the latter."""
    only_here = weights._replace(lam={})
    here = [scores_at(sequence, t, 0, n_labels, only_here) for t in range(len(sequence))]
    only_between = weights._replace(mu={}, start={})
    between = [
        [scores_at(sequence, t, previous, n_labels, only_between) for previous in range(n_labels)]
        for t in range(len(sequence))
    ]
    return here, between


def loss(sequences, labels, n_labels, weights, sequence_weights):
    """-sum_n w_n log p(y^n | x^n)"""
    return math.fsum(
        -w * log_probability(*tables(x, n_labels, weights), y)
        for x, y, w in zip(sequences, labels, sequence_weights, strict=True)
    )


def gradient(sequences, labels, n_labels, weights, sequence_weights):
    """Expected minus observed counts, the label before being the one of the data; a dict over what can fire."""
    terms = defaultdict(list)
    for x, labelling, w in zip(sequences, labels, sequence_weights, strict=True):
        for t, gold in enumerate(labelling):
            previous = labelling[t - 1]
            for y, log_p in enumerate(log_softmax(scores_at(x, t, previous, n_labels, weights))):
                for feature in features_at(x, t, previous, y):
                    terms[feature] += [w * math.exp(log_p), -w * (y == gold)]
    return {feature: math.fsum(values) for feature, values in terms.items()}


# ---- label bias


class Robot(NamedTuple):
    words: list  # the vocabulary
    states: list  # names of the labels, which are places in this list
    chunks: list  # [Y] the chunk label that each state stands for
    reads: list  # [Y] the words that lead into a state
    successors: list  # [Y] the states after a state
    sentences: list  # of lists of words, to train with
    labels: list  # of lists of labels
    lopsided: list  # weights of the sentences that make the first branch the more frequent one
    tests: list  # two of (words, right labels, the other branch's labels)


def robot():
    """The automaton of label bias (Wallach, section 2.3.2): two branches that part at `wheels`.

        the 1, robot 2, then   wheels 3, a name 4, round 5   or   wheels 7, a verb 8, round 9

    Only the fourth word tells the branches apart, and by then each state has one successor; its end state 6 reads
    no word and is left out. The source has one name and one verb. Here are four of each, since with one the weight
    of the word learns as much as that of the transition, and a model with both is hardly biased.
    """
    names, verbs = ["Fred", "Ann", "Tom", "Eve"], ["are", "were", "look", "seem"]
    states = ["1", "2", "3", "4", "5", "7", "8", "9"]
    first, second = [0, 1, 2, 3, 4], [0, 1, 5, 6, 7]

    def sentence(word):
        return ["the", "robot", "wheels", word, "round"]

    return Robot(
        words=["the", "robot", "wheels", *names, *verbs, "round"],
        states=states,
        chunks=["B-NP", "I-NP", "B-VP", "B-NP", "B-PP", "I-NP", "B-VP", "B-ADJP"],
        reads=[["the"], ["robot"], ["wheels"], names, ["round"], ["wheels"], verbs, ["round"]],
        successors=[[1], [2, 5], [3], [4], [], [6], [7], []],
        sentences=[sentence(word) for word in names + verbs],
        labels=[first] * len(names) + [second] * len(verbs),
        lopsided=[3.0] * len(names) + [2.0] * len(verbs),
        tests=[(sentence("Fred"), first, second), (sentence("are"), second, first)],
    )


def robot_tables(automaton, sentence, match=3.0):
    """here and between: `match` for a word that leads into the state, -inf for a step that the automaton lacks."""
    labels = range(len(automaton.states))
    here = [[match if word in automaton.reads[y] else 0.0 for y in labels] for word in sentence]
    here[0] = [score if y == 0 else -math.inf for y, score in enumerate(here[0])]
    step = [[0.0 if y in automaton.successors[before] else -math.inf for y in labels] for before in labels]
    return here, [step] * len(sentence)

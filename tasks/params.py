"""Every parameter: its name, default and help are stated here and nowhere else.

`params.yaml` in the project holds the values; `python -m espalier.tasks.params` writes it with the
defaults. Unknown keys are refused with the nearest known name.
"""

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import yaml

from espalier.engine.errors import EspalierError, brief, quoted
from espalier.engine.families import (
    FAMILIES,
    boosting_options,
    gp_options,
    hmm_options,
    hmsvm_options,
    pcfg_options,
    perceptron_options,
)
from espalier.engine.labels.scheme_names import AUTO, PREFIXES
from espalier.engine.losses.loss_table import LOSSES
from espalier.engine.optimise import solver_table
from espalier.engine.text.gazetteers import read_bounded

MOST_BYTES = 1 << 20  # of a parameter file
MOST_FAULTS = 20  # that an error lists
# What had another name before there were families of models.
MOVED = {f"train.{key}": f"crf.{key}" for key in ("solver", "rho1", "rho2", "pairs", "start", "sparse")}
MOVED |= {f"train.{key}": f"compute.{key}" for key in ("threads", "cluster")}
# Parameters that a section has not although another has, and why.
WITHOUT = {
    "memm.stop": ": a label there is normalised given the one before it, and an end that is no label cannot be; leave "
    "it out, or set model.family to crf",
}
MOST_DEPTH, MOST_ALIASES = 20, 20  # of values in YAML: far more than parameters need


def option(
    default: Any, help: str, kind: str, choices: tuple = (), least: float | None = None, most: float | None = None,
    word: str | None = None,
):  # fmt: skip
    """One parameter. `kind` is text, int, number, bool, lines or margin; a trailing ? admits null.

    `word` may stand instead of a value. A margin is a share, or a text such as 2%: so much of the champion's errors.
    """
    factory = {"default_factory": lambda: list(default)} if isinstance(default, list) else {"default": default}
    metadata = {"help": help, "kind": kind, "choices": choices, "least": least, "most": most, "word": word}
    return field(metadata=metadata, **factory)


LETTER_TEMPLATES = [
    "U",
    "*0:%x[0,0]",
    "U-1:%x[-1,0]/%x[0,0]",
    "U+1:%x[0,0]/%x[1,0]",
    "U-2:%x[-2,0]/%x[-1,0]/%x[0,0]",
    "U=1:%x[-1,0]/%x[0,0]/%x[1,0]",
    "U+2:%x[0,0]/%x[1,0]/%x[2,0]",
    "U-3:%x[-3,0]/%x[-2,0]/%x[-1,0]/%x[0,0]",
    "U+3:%x[0,0]/%x[1,0]/%x[2,0]/%x[3,0]",
    "U=2:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]",
    "B",
]


# The names in tasks.formats.FORMATS that hold tokens, and in tasks.formats.schemes.NAMES, which a test compares.
FORMATS = ("conll", "conllu", "jsonl", "arrow", "parquet", "crfsuite", "brackets")
SCHEMES = ("iob1", "iob2", "bioes", "bilou", "bio", "iobes", "bioul")

BUILT_IN = ("cmudict", "simulated")  # sources that come with the project: only of these is a part taken unasked
BUILT_IN_LIMIT = 40_000  # of their sequences, so that a first run is short
BUILT_IN_POOL = 0.2  # of them, to have weights and drift to show


@dataclass
class Ingest:
    source: str = option(
        "cmudict", "where the data comes from; conll means files in columns", "text",
        ("cmudict", "files", "conll", "simulated"),
    )  # fmt: skip
    path: str | None = option(None, "files: the labelled file or a pattern (plain, .gz or .zst)", "text?")
    more: list[str] | None = option(
        None, "files: more labelled files or patterns, added to `path` and taken whole", "lines?"
    )
    dev_path: str | None = option(None, "files: development file; null splits it off `path`", "text?")
    test_path: str | None = option(None, "files: test file; null splits it off `path`", "text?")
    unlabelled_path: str | None = option(None, "files: unlabelled file; null takes a share of `path`", "text?")
    format: str | None = option(None, "files: their format; null takes it from the name", "text?", FORMATS)
    separator: str | None = option(None, "conll: between columns; null is any run of blanks and tabs", "text?")
    comment: str | None = option(None, "conll: lines that begin with this are left out; null keeps all", "text?")
    docstart: str | None = option(
        "-DOCSTART-", "conll: lines with this in the first column end a sequence and are left out; null keeps them",
        "text?",
    )  # fmt: skip
    label_column: int = option(-1, "conll: which column is the label; -1 is the last", "int")
    columns: list[str] | None = option(
        None, "conllu, jsonl, arrow, parquet: names of the input columns; null takes FORM LEMMA UPOS XPOS FEATS "
        "without the label, tokens, or all but sequence and label", "lines?",
    )  # fmt: skip
    label: str | None = option(
        None, "conllu, jsonl, arrow, parquet: name of the label column; null takes UPOS, labels or label", "text?"
    )
    sequence: str | None = option(
        None, "arrow, parquet with a row a token: column that tells sequences apart; null takes sequence", "text?"
    )
    unknown: str | None = option(
        None, "files: label of tokens whose label is not known, such as _; null if there is none", "text?"
    )
    set_separator: str | None = option(
        None, "files: between labels of which one is right, such as |; null if there are no such sets", "text?"
    )
    scheme: str | None = option(None, "files: tagging scheme to convert labels to; null keeps them", "text?", SCHEMES)
    scheme_from: str | None = option(
        None, "files: tagging scheme they have; null looks at the labels", "text?", SCHEMES
    )
    functions: bool = option(False, "brackets: labels keep functional tags, as in NP-SBJ", "bool")
    bare: bool = option(
        False, "brackets: they have no labels, and a line is a string whose brackets no tree may cross", "bool"
    )
    limit: int | str | None = option(
        "auto", "sequences taken, chosen by hash; null takes all; auto takes 40000 of a built-in source, all of files",
        "int?", least=10, word="auto",
    )  # fmt: skip
    dev_share: float = option(0.1, "share of the sequences for development", "number", least=0)
    test_share: float = option(0.1, "share of the sequences for the test", "number", least=0)
    unlabelled_share: float | None = option(
        None, "share of the sequences whose labels are taken away, to be the unlabelled pool; null is 0.2 for cmudict "
        "and simulated, and none of the files of a user", "number?", least=0,
    )  # fmt: skip
    pair_count: int = option(50, "cmudict: a letter's phoneme pairs are kept from this many uses on", "int", least=1)
    align_iterations: int = option(30, "cmudict: EM iterations of the aligner", "int", least=1)
    seed: int = option(0, "of the split and of simulated data", "int", least=0)

    def most(self) -> int | None:
        """How many sequences are taken at most; None is all of them."""
        return (BUILT_IN_LIMIT if self.source in BUILT_IN else None) if self.limit == "auto" else self.limit

    def share(self, part: str) -> float:
        """The share of the sequences that goes to a part (dev, test, unlabelled) where no file of it is given."""
        value = getattr(self, f"{part}_share")
        return (BUILT_IN_POOL if self.source in BUILT_IN else 0.0) if value is None else value


@dataclass
class TemplateParams:
    lines: list[str] | None = option(
        LETTER_TEMPLATES, "feature templates: U, B, * (both) or T (three labels in a row), then text with %x[row,col]",
        "lines?",
    )
    file: str | None = option(
        None, "file of templates instead of `lines`, as for Wapiti or CRF++; espalier:S1 (or S2, S3, S3-5) comes "
        "along, and espalier:letters for letters to phonemes, espalier:trees for a pcfg over words", "text?",
    )  # fmt: skip
    min_count: int = option(1, "observations seen less often in training are dropped", "int", least=1)
    scale: bool = option(False, "divide values (%v) by how much they vary in the training data", "bool")
    shard_tokens: int = option(1_000_000, "positions in one shard of features", "int", least=1)


@dataclass
class Weigh:
    method: str = option(
        "cluster", "weights of labelled sequences: none, by cluster frequencies, or pool over labelled density", "text",
        ("none", "cluster", "covariate"),
    )  # fmt: skip
    clusters: int = option(
        10, "components of the mixture of multinomials; 0 for no clustering and no drift", "int", least=0
    )
    choose_clusters: bool = option(False, "choose their number, up to `clusters`, by held-out likelihood", "bool")
    least_effective: float = option(
        0.1, "refuse weights worth less than this share of the sequences", "number", least=0, most=1
    )
    drift_limit: float | None = option(
        0.1, "bits of divergence above which the pool is said to have drifted; null for no limit", "number?", least=0,
        most=1,
    )  # fmt: skip
    iterations: int = option(40, "EM iterations at most", "int", least=1)
    restarts: int = option(2, "random starts, the best is kept", "int", least=1)
    smoothing: float = option(0.1, "added to each count", "number", least=1e-6)
    seed: int = option(0, "of the random starts", "int", least=0)


SOLVERS = (solver_table.AUTO, *solver_table.SOLVERS)


@dataclass
class ModelParams:
    family: str = option("crf", "what is trained; each family has a section of its own below", "text", tuple(FAMILIES))


@dataclass
class Chain:
    """Weights of observations and labels, found by minimising a penalised loss."""

    solver: str = option("auto", "how to minimise; auto is hybrid, and pqn where rho1 is searched for", "text", SOLVERS)
    rho1: float | str = option(
        0.5, "weight of the L1 norm: more of it, fewer features; auto chooses it and rho2 on the development data",
        "number", least=0, word="auto",
    )  # fmt: skip
    rho2: float = option(0.001, "weight of half the squared L2 norm", "number", least=0)
    pairs: str = option(
        "seen", "weights for all labels of an observation, or those seen together", "text", ("all", "seen")
    )
    start: bool = option(True, "bigram weights of the first position, from a start label", "bool")


@dataclass
class Crf(Chain):
    stop: bool = option(
        False, "weights of the last label, alone and with what the bigram templates see at the end", "bool"
    )
    start_from: str | None = option(
        None, "train a memm with the same weights first and start from it; null starts from zero, or train.initial",
        "text?", ("memm",),
    )  # fmt: skip
    sparse: str = option(
        "auto", "forward-backward: dense, sparse, or by what is cheaper", "text", ("auto", "dense", "sparse")
    )
    loss: str = option(
        "log", "what is minimised: of whole labellings (log), of each label by itself (marginal: not convex, begun by "
        "auto with an epoch of the log loss; goes with evaluate.decode: posterior), or of odds as in boosting "
        "(exponential: the log of it, so that the same rho1 and rho2 weigh far more)", "text", tuple(LOSSES),
    )  # fmt: skip
    scheme: str | None = option(
        None, "transitions that this tagging scheme forbids (auto: that of the labels) are impossible in training and "
        "in answers; null allows all", "text?", (AUTO, *PREFIXES),
    )  # fmt: skip
    pi: float = option(
        1.0, "exponential loss: a sequence of T tokens counts pi^T, so that long ones do not decide all", "number",
        least=0.000001, most=1,
    )  # fmt: skip


@dataclass
class Memm(Chain):
    weights: str = option(
        "shared", "unigram templates have weights that all labels before share, or some for each label before", "text",
        ("shared", "per-label"),
    )  # fmt: skip


@dataclass
class Hmm:
    training: str = option(
        "counts", "how probabilities are found: counts of labelled data, expectation-maximisation (baum-welch, "
        "viterbi, stepwise), or what tells labellings apart (conditional, mmi, mce)", "text",
        tuple(hmm_options.TRAININGS),
    )  # fmt: skip
    smoothing: float = option(
        0.00001, "added to each count, of transitions and of what a label emits", "number", least=1e-12
    )
    rare: int = option(
        1, "observations seen so often or less in training tell how likely unknown ones are", "int", least=0
    )
    pool_weight: float = option(
        0.03, "baum-welch, viterbi, stepwise: what a sequence of the unlabelled pool counts; 0 leaves the pool out",
        "number", least=0,
    )  # fmt: skip
    restarts: int = option(
        1, "baum-welch, viterbi: starts, the best is kept; the first is by the labels, others by chance", "int", least=1
    )
    power: float = option(0.5, "mmi: what all probabilities are raised to", "number", least=1e-3)
    alpha: float = option(
        0.7, "stepwise: how fast steps shrink, (k + 2)^-alpha behind k of them", "number", least=0.5, most=1
    )
    batch: int = option(50, "stepwise: sequences between two steps", "int", least=1)
    order: str = option("random", "stepwise: sequences as chance has it, short or long ones first", "text",
                        hmm_options.ORDERS)  # fmt: skip


@dataclass
class Perceptron:
    update: str = option(
        "perceptron", "how far a mistake moves weights: by one (perceptron), as far as it asks for and c at most (pa), "
        "or less far where they were often moved (arow)", "text", tuple(perceptron_options.UPDATES),
    )  # fmt: skip
    lead: str = option(
        "none", "what a mistake is: a wrong labelling (none), or one that the right one does not lead by as much as it "
        "has labels wrong (hamming)", "text", tuple(perceptron_options.LEADS),
    )  # fmt: skip
    c: float = option(1.0, "pa: how far one sequence may move the weights", "number", least=1e-12)
    gamma: float = option(1.0, "arow: the larger, the shorter the steps", "number", least=1e-12)
    epochs: int = option(
        20, "passes over the training data at most; the one that does best on the development data is kept, without "
        "such data the last one", "int", least=1,
    )  # fmt: skip
    parts: int = option(
        1, "1: one sequence after the other; n: n parts of the data are learned from at the same time, by threads, and "
        "their weights are mixed after each epoch, which is another model", "int", least=1, most=1024,
    )  # fmt: skip
    average: bool = option(
        True, "perceptron, pa: keep the mean of the weights after every sequence, not the last ones", "bool"
    )
    degree: int | None = option(
        None, "null: attributes have weights; 1 to 8: the dual form, in which rows of the training data support labels "
        "by the kernel (m + 1)^degree, m being how many attributes two rows have in common", "int?", least=1, most=8,
    )  # fmt: skip
    eta: float = option(1.0, "with a degree: what a pair of labels in common adds to the kernel", "number", least=1e-9)
    pairs: str = option(
        "seen", "weights for all labels of an observation, or those seen together", "text", ("all", "seen")
    )
    start: bool = option(True, "bigram weights of the first position, from a start label", "bool")


@dataclass
class Boosting:
    bound: str = option(
        "exact", "what a round makes smallest: the odds themselves (exact), after the tight bound has chosen a weight; "
        "the tight bound, one for each sequence; or the loose one for all, by short steps", "text",
        tuple(boosting_options.BOUNDS),
    )  # fmt: skip
    examples: str = option(
        "sequences", "what is right or wrong: whole labellings; positions by themselves, without weights for pairs of "
        "labels; or positions given the right label before (neighbours)", "text", tuple(boosting_options.EXAMPLES),
    )  # fmt: skip
    rounds: int = option(
        1000, "weights that move, one after the other, at most; the round that does best on the development data is "
        "kept, without such data the last one", "int", least=1,
    )  # fmt: skip
    look: int = option(
        10, "rounds from one look at the development data to the next; 20 looks without a better one are the end, or "
        "as many rounds as train.patience says", "int", least=1,
    )  # fmt: skip
    pi: float = option(
        0.8, "a sequence of T tokens counts pi^T: below 1 the odds against long ones, which grow as fast, do not "
        "decide all", "number", least=1e-6, most=1,
    )  # fmt: skip
    epsilon: float = option(
        1e-5, "more of it, shorter steps: what a weight that is always right, or always wrong, is taken to be in "
        "error by", "number", least=1e-12,
    )  # fmt: skip
    scheme: str | None = option(
        None, "transitions that this tagging scheme forbids (auto: that of the labels) are impossible in training and "
        "in answers; null allows all", "text?", (AUTO, *PREFIXES),
    )  # fmt: skip
    pairs: str = option(
        "seen", "weights for all labels of an observation, or those seen together", "text", ("all", "seen")
    )
    start: bool = option(True, "bigram weights of the first position, from a start label", "bool")


@dataclass
class Kernel:
    """What all kernel machines have."""

    degree: int = option(
        2, "the kernel of two positions is (m + 1)^degree, m being how many attributes they have in common", "int",
        least=1, most=8,
    )  # fmt: skip
    pairs: str = option("seen", "weights for pairs of labels that occur together, or all of them", "text",
                        ("seen", "all"))  # fmt: skip
    start: bool = option(True, "weights of the first label of a sequence", "bool")


@dataclass
class Gp(Kernel):
    kappa: float = option(1.0, "weight of the squared norm: more of it, smoother scores", "number", least=1e-9)
    eta: float = option(1.0, "what a pair of labels in common adds to the kernel", "number", least=1e-9)
    method: str = option(
        "dense", "every row of the training data supports labels, or few of them, chosen one by one (sparse)", "text",
        tuple(gp_options.METHODS),
    )  # fmt: skip
    share: float = option(
        0.25, "sparse: supports at most, a row and a label each, as a share of the distinct rows", "number", least=1e-6,
    )  # fmt: skip
    coordinates: int = option(10, "sparse: supports that a sequence may bring when it is looked at", "int", least=1)
    threshold: float = option(0.001, "sparse: sequences with no gradient above it are passed over", "number", least=0)
    products: str = option(
        "auto", "products with the kernel of all pairs of rows by counting what each two have in common "
        "(rows), by attributes and pairs of them that are written out once (features, for degrees 1 and 2), or as is "
        "cheaper", "text", tuple(gp_options.PRODUCTS),
    )  # fmt: skip
    pick: str = option("random", "sparse: the next sequence as chance has it, or the one with the largest gradient "
                       "(slow)", "text", gp_options.PICKS)  # fmt: skip


@dataclass
class Hmsvm(Kernel):
    C: float = option(1.0, "what a margin that is missed costs: more of it, fewer wrong in training", "number",
                      least=1e-9)  # fmt: skip
    eta: float = option(1.0, "what a pair of labels in common adds to the kernel", "number", least=1e-9)
    slack: str = option(
        "sequence", "how missed margins count: as they are, one a sequence, squared, one for each labelling (for a C "
        "large enough that few are missed), or not allowed (hard)", "text", tuple(hmsvm_options.SLACKS),
    )  # fmt: skip
    margin: str = option(
        "one", "to every other labelling the same, or the number of its wrong labels (hamming); slacks are not "
        "rescaled by it, which no Viterbi search could follow", "text", tuple(hmsvm_options.MARGINS),
    )  # fmt: skip
    gap: float = option(
        0.01, "stop when primal and dual, which bound the optimum, differ by this share of the dual", "number", least=0
    )


@dataclass
class Pcfg:
    """Trees, from counts of trees or by expectation-maximisation; templates say what is seen of a word."""

    training: str = option(
        "counts", "what is counted: the trees of the data (counts), or what a grammar expects of strings: all trees "
        "(inside-outside), the likeliest (viterbi) or the k likeliest (k-best)", "text", tuple(pcfg_options.TRAININGS),
    )  # fmt: skip
    binarise: str = option("right", "the side on which the rest of a rule of three and more hangs", "text",
                           pcfg_options.SIDES)  # fmt: skip
    horizontal: int = option(1, "children before it that the rest of a rule remembers", "int", least=0)
    vertical: int = option(2, "labels that a label remembers, its own included", "int", least=1, most=10)
    rare: int = option(
        2, "words seen so often or less are left to what the templates behind the first one see of them", "int", least=0
    )
    unknown: float = option(
        0.01, "counts: what each tag of rare words, or each tag where none is rare, has of any word beside what was "
        "seen", "number", least=0,
    )  # fmt: skip
    symbols: int | None = option(
        None, "inside-outside, viterbi, k-best: begin with all rules over so many symbols, as chance has it; null "
        "begins with the counts of trees", "int?", least=1, most=200,
    )  # fmt: skip
    restarts: int = option(1, "with symbols: starts, the one with the likeliest strings is kept", "int", least=1)
    brackets: bool = option(True, "inside-outside, viterbi, k-best: trees cross no bracket of the data", "bool")
    k: int = option(128, "k-best: trees of each string", "int", least=1, most=100_000)
    smoothing: float = option(
        0.0, "inside-outside, viterbi, k-best: added to the count of each rule", "number", least=0
    )
    pool_weight: float = option(
        0.03, "inside-outside, viterbi, k-best: what a string of the unlabelled pool counts; 0 leaves the pool out",
        "number", least=0,
    )  # fmt: skip
    stepwise: bool = option(False, "renew the grammar behind each batch of strings, not behind all of them", "bool")
    alpha: float = option(
        0.7, "stepwise: how fast steps shrink, (k + 2)^-alpha behind k of them", "number", least=0.5, most=1
    )
    batch: int = option(50, "stepwise: strings between two steps", "int", least=1)
    order: str = option("random", "stepwise: strings as chance has it, short or long ones first", "text",
                        pcfg_options.ORDERS)  # fmt: skip


@dataclass
class Train:
    max_iterations: int = option(
        1000, "iterations (sweeps for sbcd and cd, epochs for sgd and perceptrons, rounds of boosting) at most", "int",
        least=1,
    )
    tolerance: float = option(
        0.0004, "stop when the last third of the iterations, 30 at least, lowered the objective by less than "
        "this share", "number", least=0,
    )  # fmt: skip
    patience: int | None = option(
        None, "stop when the development data got no better for so many iterations, and keep the best model on them; "
        "null goes on to the tolerance", "int?", least=1,
    )  # fmt: skip
    initial: str | None = option(
        None, "model to start from; champion is the one of when the run began, kept as models/start.model", "text?"
    )
    dev_every: int | None = option(
        1, "iterations from one development error in the trace to the next; null for none", "int?", least=1
    )
    dev_sequences: int | None = option(
        5000, "development sequences it is measured on at most, evenly spaced; null for all", "int?", least=1
    )
    seed: int = option(0, "sgd, hybrid, perceptron: of the order of sequences", "int", least=0)
    checkpoint_seconds: float | None = option(
        60, "a training that is interrupted goes on from a state this old at most; null keeps none", "number?", least=0
    )


@dataclass
class Compute:
    threads: int | None = option(None, "threads of the process; null is all cores", "int?", least=1)
    cluster: str | None = option(
        None, "where the data lie: null is this process, local:N are N processes, or tcp:// of a scheduler", "text?"
    )


@dataclass
class Evaluate:
    reference: str | None = option(None, "model that excess log-loss is measured against", "text?")
    decode: str = option(
        "viterbi", "labels of the likeliest labelling, or the likeliest label of each token; the model file keeps it",
        "text", ("viterbi", "posterior"),
    )  # fmt: skip
    bins: int = option(10, "bins of the calibration curve", "int", least=2)


@dataclass
class ReportParams:
    mistakes: int = option(20, "worst mistakes shown", "int", least=0)
    weights: int = option(30, "largest weights shown, of each sign", "int", least=0)


@dataclass
class Promote:
    margin: float | str = option(
        0.005, "what the challenger may lose to the champion by the measure of the task: 0.005 is half a point, "
        "2% a fiftieth of the champion's errors", "margin",
    )  # fmt: skip
    level: float = option(0.95, "of the bootstrap interval", "number", least=0, most=1)
    rounds: int = option(2000, "bootstrap resamples", "int", least=50)
    seed: int = option(0, "of the resamples", "int", least=0)
    label_margin: float | str | None = option(
        0.02, "F1 that one label (or kind of entity) may surely lose to the champion, like margin; null: no such check",
        "margin?",
    )  # fmt: skip
    label_count: int = option(
        50, "labels that are rarer than this in the test data are reported and never refused", "int", least=1
    )
    cases: str | None = option(
        None, "file of labelled sequences that every promoted model must get right; `_` where any label will do",
        "text?",
    )  # fmt: skip
    on_drift: str = option(
        "warn", "what to do when the pool has drifted beyond weigh.drift_limit", "text", ("warn", "refuse", "ignore")
    )


@dataclass
class Version:
    keep: int | None = option(
        20, "retrainings, and champions, whose model and report are kept in models/archive; null keeps all", "int?",
        least=1,
    )  # fmt: skip
    push: str | None = option(None, "DVC remote that data, model and metrics are pushed to after a run", "text?")
    git: str = option(
        "none", "after a run commit what records it (dvc.lock, params.yaml, decisions, history); tag: and tag that",
        "text", ("none", "commit", "tag"),
    )  # fmt: skip


@dataclass
class Notify:
    command: str | None = option(
        None, "shell command for a run that failed or was refused; the event as JSON on stdin and in ESPALIER_EVENT",
        "text?",
    )  # fmt: skip
    webhook: str | None = option(None, "address that the event is posted to as JSON", "text?")
    timeout: float = option(10, "seconds that either may take", "number", least=0.1)


@dataclass
class Memory:
    limit: float | None = option(
        None, "GiB that a training may take by its plan; null is what the machine has", "number?", least=0.1
    )


@dataclass
class Tournament:
    families: list[str] | None = option(
        None, "families that `espalier tournament` trains; null tries all that suit the data", "lines?"
    )
    settings: list[str] | None = option(
        None, "more entrants, each with settings of one family, such as crf.rho1=0.1 or \"perceptron.update=pa "
        "train.seed=1\"", "lines?",
    )  # fmt: skip


@dataclass
class Params:
    """One section for each stage and each family of models, and what holds for the whole process."""

    ingest: Ingest = field(default_factory=Ingest)
    template: TemplateParams = field(default_factory=TemplateParams)
    weigh: Weigh = field(default_factory=Weigh)
    model: ModelParams = field(default_factory=ModelParams)
    crf: Crf = field(default_factory=Crf)
    memm: Memm = field(default_factory=Memm)
    hmm: Hmm = field(default_factory=Hmm)
    gp: Gp = field(default_factory=Gp)
    hmsvm: Hmsvm = field(default_factory=Hmsvm)
    perceptron: Perceptron = field(default_factory=Perceptron)
    boosting: Boosting = field(default_factory=Boosting)
    pcfg: Pcfg = field(default_factory=Pcfg)
    train: Train = field(default_factory=Train)
    compute: Compute = field(default_factory=Compute)
    evaluate: Evaluate = field(default_factory=Evaluate)
    report: ReportParams = field(default_factory=ReportParams)
    promote: Promote = field(default_factory=Promote)
    version: Version = field(default_factory=Version)
    notify: Notify = field(default_factory=Notify)
    memory: Memory = field(default_factory=Memory)
    tournament: Tournament = field(default_factory=Tournament)
    given: ClassVar[tuple[str, ...]] = (
        "ingest", "template", "weigh", "model", *FAMILIES, "train", "compute", "evaluate", "report", "promote",
        "version", "notify", "memory", "tournament", "evaluate.decode",
    )  # fmt: skip
    # The sections and keys that the parameter file has; the others hold defaults, and DVC must not look for them.

    @property
    def of_family(self) -> Chain | Hmm | Gp | Hmsvm | Perceptron | Boosting | Pcfg:
        """The section of the family that is trained."""
        return getattr(self, self.model.family)

    def as_dict(self) -> dict[str, dict]:
        return {f.name: dict(vars(getattr(self, f.name))) for f in fields(self)}


def load_params(path: Path, overrides: list[str] = ()) -> Params:
    """Read a parameter file and apply `section.key=value` overrides; keys left out keep their default."""
    try:
        data = from_yaml(read_bounded(path, MOST_BYTES).decode("utf-8")) or {}
    except FileNotFoundError:
        raise EspalierError(f"{path}: there is no parameter file; `espalier init` begins one") from None
    except OSError as error:
        raise EspalierError(f"{path}: cannot be read ({error.strerror}); expected a file such as params.yaml") from None
    except EspalierError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise EspalierError(f"{path}{line}: not readable as YAML: {brief(str(error).splitlines()[0])}") from None
    if not isinstance(data, dict):
        raise EspalierError(f"{path}: expected sections such as `ingest:`, found {type(data).__name__}")
    return _checked(data, str(path), list(overrides))


def _checked(data: dict, where: str, overrides: list[str]) -> Params:
    """The parameters of a file and of overrides; an EspalierError that names all that is wrong."""
    params, faults = Params(), Faults()
    sections = [item.name for item in fields(params)]
    with faults.collected():
        _check_moved(_keys(data), where)
    for section, values in data.items():
        with faults.collected():
            _section(params, section if isinstance(section, str) else brief(section), where)
            if values is not None and not isinstance(values, dict):
                found = f"section {brief(section)} holds {quoted(values)}"
                raise EspalierError(f"{where}: {found}, expected keys with values")
        known = isinstance(values, dict) and section in sections
        for key in values if known else ():
            if f"{section}.{key}" not in MOVED:
                with faults.collected(section):
                    _assign(params, f"{section}.{key}", values[key], where)
    named = set(_keys(data))
    params.given = tuple(name for name in params.given if data.get(name) or name in named)
    for text in overrides:
        with faults.collected(text.partition("=")[0].partition(".")[0]):
            named.add(_override(params, text, "--set"))
    if params.template.file and "template.lines" not in named:
        params.template.lines = None  # the default is for those who say nothing
    checks = {"template": lambda: check_templates(params.template), "ingest": lambda: _check_shares(params.ingest)}
    for section, check in checks.items():
        if section not in faults.sections:  # else it would look at values that nobody gave
            with faults.collected():
                check()
    faults.tell()
    return params


def _keys(data: dict) -> list[str]:
    return [f"{section}.{key}" for section, values in data.items() if isinstance(values, dict) for key in values]


class Faults:
    """What is wrong in several places, told together: who mends one thing should not have to run again for the next."""

    def __init__(self):
        self.texts: list[str] = []
        self.sections: set[str] = set()

    def add(self, text: str) -> None:
        self.texts.append(text)

    @contextmanager
    def collected(self, section: str | None = None) -> Iterator[None]:
        """Within it an EspalierError is kept for later."""
        try:
            yield
        except EspalierError as error:
            self.add(str(error))
            self.sections |= {section} if section else set()

    def tell(self) -> None:
        """Raise what was collected; of very much the beginning."""
        if not self.texts:
            return
        if len(self.texts) == 1:
            raise EspalierError(self.texts[0])
        left = len(self.texts) - MOST_FAULTS
        shown = [f"  - {text}" for text in self.texts[:MOST_FAULTS]] + ([f"  and {left} more"] if left > 0 else [])
        raise EspalierError("\n".join([f"{len(self.texts)} things are wrong:", *shown]))


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    """Parameters on record, {section.key: value}, by the names that they have now."""
    return {MOVED.get(name, name): value for name, value in values.items()}


def _check_moved(names: list[str], where: str) -> None:
    """All names of before at once, with what they are now."""
    found = [f"{name} is now {MOVED[name]}" for name in names if name in MOVED]
    if found:
        raise EspalierError(f"{where}: {', '.join(found)}: write {'it' if len(found) == 1 else 'them'} there")


class BoundedLoader(yaml.SafeLoader):
    """YAML of plain values, without the few lines that unfold to gigabytes or are deeper than the stack."""

    depth = aliases = 0

    def compose_node(self, parent, index):
        self.aliases += self.check_event(yaml.AliasEvent)
        self.depth += 1
        problem = f"more than {MOST_DEPTH} brackets or lists inside each other" if self.depth > MOST_DEPTH else None
        problem = f"more than {MOST_ALIASES} aliases (*)" if self.aliases > MOST_ALIASES else problem
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.peek_event().start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def from_yaml(text: str) -> Any:
    """The value of a YAML text; a YAMLError or ValueError for what is none or has no end."""
    return yaml.load(text, BoundedLoader)


def changed(params: Params, overrides: Sequence[str], where: str) -> Params:
    """A copy with some parameters changed by `section.key=value`; all that is wrong with them is told together."""
    params, faults = deepcopy(params), Faults()
    for text in overrides:
        with faults.collected():
            _override(params, text, where)
    faults.tell()
    return params


def _override(params: Params, text: str, where: str) -> str:
    """Change the parameter of a `section.key=value`; its name."""
    name, equals, value = text.partition("=")
    if not equals or "." not in name:
        raise EspalierError(f"{where} {brief(text)}: expected section.key=value, for example {where} crf.rho1=0.2")
    _check_moved([name], where)
    try:
        found = from_yaml(value)
    except (yaml.YAMLError, ValueError) as error:
        reason = f" ({error.problem})" if str(getattr(error, "problem", "")).startswith("more than") else ""
        raise EspalierError(
            f"{where} {brief(text)}: the value is not readable as YAML{reason}; put a text in quotes"
        ) from None
    _assign(params, name, found, where)
    return name


def _section(params: Params, name: Any, where: str):
    known = [f.name for f in fields(params)]
    if name not in known:
        raise EspalierError(f"{where}: unknown section {quoted(name)}{_nearest(name, known)}")
    return getattr(params, name)


def _assign(params: Params, name: str, value: Any, where: str) -> None:
    section_name, _, key = name.partition(".")
    section = _section(params, section_name, where)
    known = {f.name: f for f in fields(section)}
    if key not in known:
        raise EspalierError(
            f"{where}: unknown parameter {quoted(name)}"
            f"{WITHOUT.get(name) or _nearest(key, list(known), section_name + '.')}"
        )
    setattr(section, key, _convert(name, value, known[key].metadata, where))


def _nearest(name: Any, known: list[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(brief(name), known, 1, 0.5)
    return f": did you mean {prefix + near[0]!r}?" if near else f": known are {', '.join(known)}"


def _convert(name: str, value: Any, meta: dict, where: str) -> Any:
    """The value in its type, or an error that says what was expected."""
    kind = meta["kind"]
    if value is None and kind.endswith("?"):
        return None
    if meta["word"] and value == meta["word"]:
        return value
    expected = {"text": "a text", "int": "a whole number", "number": "a number", "bool": "true or false",
                "lines": "a list of texts", "margin": "a share from 0 to 1 such as 0.005, or one of the champion's "
                "errors such as 2%"}[kind.rstrip("?")] + (" or null" if kind.endswith("?") else "")  # fmt: skip
    expected += f" or {meta['word']}" if meta["word"] else ""
    converted = _CONVERT[kind.rstrip("?")](value)
    if converted is None:
        shown = "not shown" if name == "notify.webhook" else quoted(value)  # it may hold a key
        raise EspalierError(f"{where}: {name} is {shown}, expected {expected}")
    if meta["choices"] and converted not in meta["choices"]:
        near = difflib.get_close_matches(brief(converted), list(meta["choices"]), 1, 0.5)
        guess = f": did you mean {near[0]!r}?" if near else ""
        raise EspalierError(f"{where}: {name} is {quoted(value)}, expected one of {', '.join(meta['choices'])}{guess}")
    if meta["least"] is not None and not converted >= meta["least"]:
        raise EspalierError(f"{where}: {name} is {quoted(value)}, expected at least {meta['least']}")
    if meta["most"] is not None and not converted <= meta["most"]:
        raise EspalierError(f"{where}: {name} is {quoted(value)}, expected at most {meta['most']}")
    return converted


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)  # YAML reads 1e-4 as a text
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def _is_text(value: Any) -> bool:
    """A text of whole characters: YAML can write half of one, which no file can hold."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _margin(value: Any) -> float | str | None:
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}(\.\d{1,6})?%", value):
        return value
    number = _number(value)
    return number if number is not None and 0 <= number <= 1 else None


def margin_of(value: float | str, errors: float) -> float:
    """A margin in points of what it is held against; one in per cent is a part of the champion's `errors`."""
    return float(value.removesuffix("%")) / 100 * errors if isinstance(value, str) else value


_CONVERT = {
    "text": lambda value: value if _is_text(value) and value else None,
    "int": lambda value: value if isinstance(value, int) and not isinstance(value, bool) else None,
    "number": _number,
    "bool": lambda value: value if isinstance(value, bool) else None,
    "margin": _margin,
    "lines": lambda value: list(value) if isinstance(value, list) and value and all(map(_is_text, value)) else None,
}


def check_templates(template: TemplateParams) -> None:
    """Templates come from one place."""
    if template.file and template.lines:
        raise EspalierError(
            f"template.file is {quoted(template.file)} and template.lines holds templates too: "
            "expected one of them, set the other to null"
        )
    if not template.file and not template.lines:
        raise EspalierError("template.lines and template.file are both null: expected templates in one of them")


def _check_shares(ingest: Ingest) -> None:
    total = sum(ingest.share(part) for part in ("dev", "test", "unlabelled"))
    if total >= 1:
        raise EspalierError(
            f"ingest: dev_share + test_share + unlabelled_share is {total:g}, expected less than 1 "
            "so that something is left to train on"
        )


def default_yaml() -> str:
    """The text of params.yaml with all defaults and their help."""
    lines = ["# Every parameter of Espalier. Written by `python -m espalier.tasks.params`; edit the values freely.", ""]
    params = Params()
    for section in fields(params):
        lines.append(f"{section.name}:")
        for item in fields(getattr(params, section.name)):
            lines += _yaml_entry(item, getattr(getattr(params, section.name), item.name))
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _yaml_entry(item, value: Any) -> list[str]:
    choices = f" ({' | '.join(item.metadata['choices'])})" if item.metadata["choices"] else ""
    comment = f"  # {item.metadata['help']}{choices}"
    if isinstance(value, list):
        return [comment, f"  {item.name}:", *(f'    - "{line}"' for line in value)]
    return [comment, f"  {item.name}: {_scalar(value)}"]


def _scalar(value: Any) -> str:
    """As YAML; a text that YAML would read as something else stands in quotes."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, float) and "e" in text:  # YAML would read an exponent without a point as a text
        text = f"{value:.15f}".rstrip("0")
    return text if not isinstance(value, str) or _plain(text) else f'"{text}"'


def _plain(text: str) -> bool:
    try:
        return yaml.safe_load(text) == text
    except yaml.YAMLError:
        return False


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "params.yaml")
    target.write_text(default_yaml(), encoding="utf-8")
    print(f"{target}: written with the defaults")

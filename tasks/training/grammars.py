"""Training of probabilistic grammars (pcfg): counts of trees, and what a grammar expects of strings."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset, join, select
from espalier.engine.errors import EspalierError
from espalier.engine.families import pcfg
from espalier.engine.families.pcfg_options import TRAININGS
from espalier.engine.grammar.best import Climber
from espalier.engine.grammar.charts import LANES, MEMORY, bytes_of_chart, check_length
from espalier.engine.grammar.estimation import Count, GrammarFit, GrammarOptions, count, prepared
from espalier.engine.grammar.estimation import fit as estimate
from espalier.engine.grammar.rules import Grammar, full_grammar
from espalier.engine.grammar.strings import Strings
from espalier.engine.grammar.treebank import Treebank, TreebankOptions, frequent_terminals, make_treebank, terminals_of
from espalier.engine.labels.bracket_scores import spans
from espalier.engine.labels.measures import measure_of
from espalier.engine.labels.trees import PIECE, Tree, leaves, tree_of
from espalier.engine.runtime import threads
from espalier.tasks import store
from espalier.tasks.training.job import Job, Trained
from espalier.tasks.training.plan import PROCESS

SECONDS_A_RULE = 2e-9  # at one split of one span, about: one symbol in so many is there
SECONDS_A_BRACKET = 2e-5  # to read, to make binary and to count
ACTIVE_SHARE = 0.05  # of the rules, at a split of a span, where not all rules exist
BYTES_A_TREE = 400  # for each bracket of trees in memory


class LearningData(NamedTuple):
    """Sequences with their trees, None where they have none, by the numbers of the vocabulary."""

    data: Dataset
    trees: list[Tree | None]


# ---- the plan


def plan(job: Job) -> dict:
    """Charts of the longest string for each thread, trees, rules; of rules an upper bound."""
    check(job)
    section, manifest, labels = job.params.pcfg, job.manifest, job.labels
    shards = store.read_shards(job.root, "train", manifest)
    pool = store.read_shards(job.root, "unlabelled", manifest) if uses_pool(job) else []
    lengths = np.concatenate([np.diff(shard.offsets) for shard in (*shards, *pool)])
    tokens, columns = int(lengths.sum()), len(manifest["columns"])
    opens = np.array([sum(found.group().startswith("(") for found in PIECE.finditer(piece)) for piece in labels] + [0])
    brackets = sum(int(opens[np.maximum(shard.labels, -1)].sum()) for shard in shards)
    n, v = section.symbols, len(job.kinds)
    virtual = {"binary": n**3, "lexical": n * v, "unary": 0} if n else (
        {"binary": brackets, "lexical": columns * tokens, "unary": brackets})  # fmt: skip
    rules, iterated = sum(virtual.values()), section.training != "counts"
    longest = int(lengths.max(initial=1))
    needed = {
        "process": PROCESS, "features": 4 * 4 * tokens * columns + 40 * tokens, "trees": BYTES_A_TREE * brackets,
        "weights": 8 * 12 * rules, "vocabulary": 2 * job.text_bytes + 84 * v,
    }  # fmt: skip
    wide = -(-(n or min(rules, 1000)) // LANES) * LANES
    splits = float(np.sum(lengths.astype(np.float64) ** 3)) / 6.0
    seconds = SECONDS_A_BRACKET * (brackets + tokens)
    if iterated:
        several = section.training == "k-best"
        check_length(longest, wide, MEMORY, 2, several)
        needed["charts"] = threads.threads() * bytes_of_chart(longest, wide, 2, several)
        seconds = SECONDS_A_RULE * splits * virtual["binary"] * (1.0 if n else ACTIVE_SHARE)
    return {
        "sequences": sum(len(shard.weights) for shard in shards), "tokens": tokens, "labels": len(labels),
        "observations": v, "virtual_features": virtual | {"all": rules}, "features": rules, "exact": False,
        "bytes": needed | {"all": sum(needed.values())}, "seconds_per_iteration": seconds,
        "remedy": "leave long sentences out, set pcfg.symbols lower, take fewer sequences (ingest.limit)",
    }  # fmt: skip


def check(job: Job) -> None:
    """Refuse templates that say nothing of a word by itself, and what does not go together."""
    section, kinds = job.params.pcfg, job.manifest["kinds"]
    if set(kinds) != {"U"} or job.manifest.get("value_columns"):
        raise EspalierError(
            "templates of pcfg say what is seen of a word, the first one its terminal: expected lines that begin with "
            "U and have no %v, or template.file: espalier:trees"
        )
    if section.training == "counts" and section.symbols is not None:
        raise EspalierError(
            f"pcfg.symbols is {section.symbols} and pcfg.training counts, which takes the symbols of the trees: set "
            "pcfg.symbols to null or pcfg.training to inside-outside"
        )
    if section.stepwise and section.training != "counts" and job.params.compute.cluster:
        raise EspalierError(
            "pcfg.stepwise renews the grammar behind each batch of strings, too small for workers, and compute.cluster "
            f"is {job.params.compute.cluster}: set compute.cluster to null or pcfg.stepwise to false"
        )
    if section.restarts > 1 and (section.symbols is None or job.params.train.patience is not None):
        raise EspalierError(
            f"pcfg.restarts is {section.restarts}, of starts that chance decides, and the likeliest is kept: give "
            "pcfg.symbols and set train.patience to null, or set pcfg.restarts to 1"
        )


def uses_pool(job: Job) -> bool:
    """Whether the unlabelled pool is learned from, too."""
    section, pool = job.params.pcfg, job.manifest["splits"]["unlabelled"]
    return section.training != "counts" and section.pool_weight > 0 and pool["sequences"] > 0


# ---- the data


def learning_data(job: Job) -> LearningData:
    """The training sequences with their trees, and behind them the pool where it is learned from."""
    section, train = job.params.pcfg, job.shards().read_all(job.weights)
    if section.training == "counts":
        job.check_labels(train, "pcfg.training to inside-outside (it is counts, of trees)")
    names = [*job.labels, ""]
    cuts = zip(train.offsets, train.offsets[1:], strict=False)
    trees = [tree_of([names[max(y, -1)] for y in train.labels[lo:hi].tolist()]) for lo, hi in cuts]
    if not uses_pool(job):
        return LearningData(train, trees)
    pool, weight = job.shards("unlabelled").read_all(), section.pool_weight
    job.progress.say(f"learning from the unlabelled pool, too: {len(pool.weights):,} strings that count {weight:g}")
    return LearningData(join(train, pool._replace(weights=pool.weights * weight)), trees + [None] * len(pool.weights))


def counted(job: Job, given: LearningData) -> Treebank:
    """A grammar by the counts of the trees; its terminals are numbers of the vocabulary."""
    section, with_tree = job.params.pcfg, np.array([tree is not None for tree in given.trees], bool)
    if not with_tree.any() or not all(tree.label for tree in given.trees if tree):
        raise EspalierError(
            "the training data have no trees with labels to count: set pcfg.symbols to a number and pcfg.training to "
            "inside-outside, which learn symbols of their own"
        )
    options = TreebankOptions(section.horizontal, section.vertical, section.binarise == "right", section.rare,
                              section.unknown)  # fmt: skip
    data = select(given.data, np.flatnonzero(with_tree))
    return make_treebank(filter(None, given.trees), data.observations, job.observations(), options, data.weights)


def random_start(job: Job, given: LearningData, seed: int) -> tuple[Grammar, np.ndarray]:
    """All rules over so many symbols, and terminals as in a grammar of counts."""
    section, texts = job.params.pcfg, job.observations()
    frequent = frequent_terminals(given.data.observations, len(texts), section.rare)
    if not frequent.any():
        raise EspalierError(f"no terminal occurs more than {section.rare} times: lower pcfg.rare, or give more data")
    terminals = np.flatnonzero(frequent).astype(np.int32)
    return full_grammar(section.symbols, [texts[x] for x in terminals.tolist()], seed), terminals


def strings_of(data: Dataset, terminals: np.ndarray, trees: list[Tree | None], n_observations: int) -> Strings:
    """Terminals of a grammar, and the brackets of the trees."""
    known = np.full(n_observations + 1, -1, np.int32)
    known[terminals] = np.arange(len(terminals), dtype=np.int32)
    listed = [np.array(brackets_of(tree), np.int32).reshape(-1, 2) for tree in trees]
    at = np.cumsum([0, *map(len, listed)], dtype=np.int64)
    return Strings(terminals_of(data.observations, known), data.offsets, data.weights, at, np.concatenate(listed))


def brackets_of(tree: Tree | None) -> list[tuple[int, int]]:
    """From and to of its spans of two words and more."""
    if tree is None:
        return []
    return sorted({(i, j) for _, i, j in spans(tree, [True] * len(leaves(tree))) if 1 < j - i})


# ---- training


class GrammarWatcher:
    """Completes the records of a training: sizes, errors on the development data, times; keeps the best where asked."""

    def __init__(self, job: Job, n_observations: int):
        train = job.params.train
        self.job, self.seconds, self.begin = job, [], time.perf_counter()
        self.patience, self.every = train.patience, train.dev_every
        self.best: tuple[dict, Grammar] | None = None
        dev, self.n = job.shards("dev").read_all(), n_observations
        tokens, info = store.read_tokens(job.root, "dev")
        total, most = len(dev.weights), train.dev_sequences
        chosen = np.arange(total) if most is None or total <= most else np.arange(most) * total // most
        gold = tokens["label"].to_list()
        self.gold = [piece for n in chosen.tolist() for piece in gold[dev.offsets[n] : dev.offsets[n + 1]]]
        self.dev, self.judged_by = select(dev, chosen) if total else dev, measure_of(info.get("measure"), [])
        if self.patience is not None and not (self.every and total):
            raise EspalierError(
                "train.patience judges iterations by the development data: give some, and set train.dev_every to 1, say"
            )

    def __call__(self, record: dict, grammar: Grammar, terminals: np.ndarray) -> str | None:
        sizes = {"binary": len(grammar.binary), "lexical": len(grammar.lexical), "unary": len(grammar.unary)}
        record |= {f"active_{kind}": size for kind, size in sizes.items()} | {"dev_token_error": None}
        if self.every and record["iteration"] % self.every == 0 and len(self.dev.weights):
            self._measure(record, grammar, terminals)
        self.seconds.append(time.perf_counter() - self.begin)
        progress = self.job.progress
        progress.record(record | {"seconds": self.seconds[-1]})
        dev = "" if record.get("dev_loss") is None else f", dev F1 of brackets {1 - record['dev_loss']:.2%}"
        progress.step(note=f"objective {record['objective']:,.0f}, {grammar.size:,} rules{dev}")
        late = self.best and self.patience and record["iteration"] - self.best[0]["iteration"] >= self.patience
        return "patience" if late else None

    def _measure(self, record: dict, grammar: Grammar, terminals: np.ndarray) -> None:
        strings = strings_of(self.dev, terminals, [None] * len(self.dev.weights), self.n)
        said = pcfg.pieces_of(grammar, Climber(grammar).trees(strings).nodes, self.dev.offsets)
        gold, other = self.judged_by.of_tokens(self.gold, said)
        record["dev_token_error"] = float(np.mean([a != b for a, b in zip(gold, other, strict=True)]))
        record["dev_loss"] = 1.0 - self.judged_by.counts(self.gold, said, self.dev.offsets).value
        if self.patience is not None and (self.best is None or record["dev_loss"] < self.best[0]["dev_loss"]):
            self.best = record, grammar


def options_of(job: Job, seed: int) -> GrammarOptions:
    section, train = job.params.pcfg, job.params.train
    names = "brackets", "k", "smoothing", "stepwise", "alpha", "batch", "order"
    same = {name: getattr(section, name) for name in names}
    return GrammarOptions(TRAININGS[section.training], max_iterations=train.max_iterations, tolerance=train.tolerance,
                          seed=seed, **same)  # fmt: skip


def fit(job: Job) -> Trained:
    """The grammar that `pcfg.training` makes; every iteration is a record of the trace."""
    section, train = job.params.pcfg, job.params.train
    check(job)
    job.progress.begin(1 if section.training == "counts" else train.max_iterations, "iteration")
    given, n = learning_data(job), len(job.observations())
    if section.symbols is not None and any(tree.label for tree in given.trees if tree):
        job.progress.say("symbols of its own are none of the labels of the trees, so that no labelled bracket will be "
                         "right: look at unlabelled F1, or set ingest.bare for data without labels")  # fmt: skip
    watcher = GrammarWatcher(job, n)
    if section.training == "counts":
        if job.params.compute.cluster:
            job.progress.say("trees are counted in this process: it takes one look at them")
        found = of_counts(counted(job, given), watcher)
    else:
        found = estimated(job, given, n, watcher)
    if watcher.best:
        found = found._replace(grammar=watcher.best[1], objective=watcher.best[0]["objective"])
    return told(job, found, watcher)


def of_counts(bank: Treebank, watcher: GrammarWatcher) -> GrammarFit:
    """What is on record of counts."""
    record = {"iteration": 1, "objective": bank.objective}
    watcher(record, bank.grammar, bank.terminals)
    return GrammarFit(bank.grammar, bank.objective, "counted", [record], 0.0)


def estimated(job: Job, given: LearningData, n: int, watcher: GrammarWatcher) -> GrammarFit:
    """By expectation-maximisation, from the counts of trees or from chance; of several starts the likeliest."""
    section, seed, best, trace = job.params.pcfg, job.params.train.seed, None, []
    of_trees = section.symbols is None
    grammar, terminals = counted(job, given)[:2] if of_trees else random_start(job, given, seed)
    strings = prepared(strings_of(given.data, terminals, given.trees, n), options_of(job, seed))
    with counting(job, strings) as count:
        for start in range(section.restarts):
            if start:
                grammar = random_start(job, given, seed + start)[0]
            heard: Callable = lambda record, grammar: watcher(record, grammar, terminals)  # noqa: E731
            found = estimate(grammar, strings, options_of(job, seed + start), heard, count)
            trace += [record | {"start": start} for record in found.history] if section.restarts > 1 else found.history
            if found.skipped:
                job.progress.say(f"strings of weight {found.skipped:g} cannot be derived and were skipped")
            if best is None or (found.skipped, found.objective) < (best.skipped, best.objective):
                best = found
    return best._replace(history=trace)


def counting(job: Job, strings: Strings) -> AbstractContextManager[Count]:
    """What counts the strings: the threads of this process, or workers of a cluster."""
    cluster = job.params.compute.cluster
    if not cluster:
        return nullcontext(count)
    from espalier.tasks.cluster import grammars as on_cluster

    return on_cluster.counting(cluster, job.root, strings, job.params.compute.threads, job.progress.say)


def told(job: Job, found: GrammarFit, watcher: GrammarWatcher) -> Trained:
    """The model with what its file says, and the figures of the stage."""
    section, iterations = job.params.pcfg, found.history[-1]["iteration"]
    names = ("training", "binarise", "horizontal", "vertical", "rare", "symbols", "brackets", "smoothing", "stepwise")
    info = job.described(
        **{name: getattr(section, name) for name in names}, stop_reason=found.reason, iterations=iterations,
        objective=found.objective, features=found.grammar.size, skipped=found.skipped,
    )  # fmt: skip
    if watcher.best:
        info["best_iteration"] = watcher.best[0]["iteration"]
    model = pcfg.make_model(found.grammar, job.manifest["templates"], info)
    figures = {
        "objective": found.objective, "iterations": iterations, "active": found.grammar.size,
        "features": found.grammar.size, "stop_reason": found.reason, "warm": False, "skipped": found.skipped,
    }  # fmt: skip
    done = "counted" if section.training == "counts" else f"{section.training}, {iterations:,} iterations"
    note = f"{found.grammar.size:,} rules over {len(found.grammar.symbols):,} symbols, {done}"
    return Trained(model, found.history, watcher.seconds, figures, note)

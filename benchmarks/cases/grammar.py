"""Grammars: inside over tag strings beside torch-struct's, likeliest trees beside nltk's, parsing of text.

torch-struct takes a batch of padded strings and log-potentials of its own layout; nltk a list of productions, all of
which it tries at every span. All compute the same log P, which is checked before anything is timed.
"""

import gzip
from collections.abc import Iterator
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.cases import Context
from benchmarks.cases.hmm import least_seconds
from benchmarks.job import Skip
from benchmarks.rows import OURS
from espalier.engine.data.dataset import Dataset
from espalier.engine.families import pcfg
from espalier.engine.families.pcfg import PcfgModel, make_model
from espalier.engine.features import features_of
from espalier.engine.grammar.best import Climber
from espalier.engine.grammar.binary_trees import joined
from espalier.engine.grammar.expected import Machine
from espalier.engine.grammar.rules import Grammar, full_grammar
from espalier.engine.grammar.strings import Strings, select, unbracketed
from espalier.engine.grammar.treebank import tree_of_rules
from espalier.engine.labels.bracket_scores import compare_all
from espalier.engine.labels.trees import Tree, cleaned, leaves, read_trees
from espalier.engine.runtime.arrow_arrays import text_array
from espalier.engine.text.pattern_sets import shipped_lines
from espalier.tasks.experiments.wsj_pcfg import parts

FOLDER, SYMBOLS, TRAIN = "treebank-sample", 35, 3_000
SAME = 1e-9  # both count in double precision
INSIDE, COUNTS, PARSING = "inside, 35 symbols", "inside-outside, 35 symbols", "treebank grammar, parse words"
BEST, SHORT = "likeliest trees of short strings, 35 symbols", "treebank grammar of short sentences, parse words"
LONG = 18, 22  # words of sentences
TAGS, WORDS, FEW = (3, 5), (5, 9), 5  # lengths of the strings and sentences for which nltk can be waited, how many


def rows(context: Context) -> Iterator[dict]:
    for threads in (2, 1):
        for setting, wanted in ((INSIDE, False), (COUNTS, True)):
            found = context.job("grammar:our_inside", OURS, setting, threads, wanted=wanted)
            if found:
                yield context.row(OURS, setting, found)
    found = context.job("grammar:torch_struct_inside", "torch-struct", INSIDE)
    if found:
        yield context.row("torch-struct", INSIDE, found)
    for threads in (2, 1):
        found = context.job("grammar:parsed", OURS, PARSING, threads)
        if found:
            yield context.row(OURS, PARSING, found)
    for setting, treebank in ((BEST, False), (SHORT, True)):
        for system in (OURS, "nltk"):
            found = context.job("grammar:short_parsed", system, setting, system=system, treebank=treebank)
            if found:
                yield context.row(system, setting, found)


def corpus(data: str, name: str) -> Path:
    path = Path(data) / FOLDER / name
    if not path.is_file():
        raise Skip(f"no {path}: name the folder of corpora with --data or ESPALIER_DATA")
    return path


def same(theirs: float, mine: float, name: str) -> None:
    if not np.isclose(mine, theirs, rtol=SAME, atol=0.0):
        raise ValueError(f"{name}'s log-probability is {theirs}, ours {mine}: expected the same grammar")


# ---- inside over tags


def strings(data: str, quick: bool) -> tuple[Strings, list[str]]:
    """Tag strings of at most 50 words."""
    train, _, names = parts(corpus(data, "brackets-pos.txt.gz"), TRAIN, 1)
    return unbracketed(select(train, np.arange(8 if quick else 200))), names


def our_inside(data: str, quick: bool, wanted: bool) -> dict:
    of, names = strings(data, quick)
    machine = Machine(full_grammar(SYMBOLS, names, 0))
    seconds = least_seconds(lambda: machine.expected(of, wanted), 3)
    return {"seconds": seconds, "objective": -float(machine.expected(of, False).log_p.sum()),
            "tokens_per_second": len(of.words) / seconds}  # fmt: skip


def torch_struct_inside(data: str, quick: bool) -> dict:
    """SentCFG has symbols of words and symbols of longer spans: here both are all of ours."""
    of, names = strings(data, quick)
    struct, torch = peers.load("torch_struct"), peers.load("torch")
    grammar = full_grammar(SYMBOLS, names, 0)
    potentials = [potentials_of(grammar, of.row(n)[0], torch) for n in range(of.total)]

    def inside() -> float:
        return sum(float(struct.SentCFG(one).partition) for one in potentials)

    torch.set_num_threads(1)
    theirs = inside()
    same(theirs, float(Machine(grammar).expected(of, False).log_p.sum()), "torch-struct")
    seconds = least_seconds(inside, 1)
    return {"seconds": seconds, "objective": -theirs, "tokens_per_second": len(of.words) / seconds}


def potentials_of(grammar: Grammar, words: np.ndarray, torch) -> tuple:
    """(words [1, T, N], rules [1, N, 2 N, 2 N], roots [1, N]): spans of one word are the second half of symbols."""
    n = len(grammar.symbols)
    with np.errstate(divide="ignore"):
        lexical, binary = np.zeros((n, len(grammar.words))), np.zeros((n, n, n))
        lexical[grammar.tag, grammar.word] = grammar.lexical
        binary[grammar.parent, grammar.left, grammar.right] = grammar.binary
        roots = np.full(n, -1e9)
        roots[grammar.start] = 0.0
        made = np.log(lexical.T[words])[None], np.tile(np.log(binary), (2, 2))[None], roots[None]
    return tuple(torch.tensor(part, dtype=torch.float64) for part in made)


# ---- trees over words


def trees_of(data: str) -> list[Tree]:
    text = gzip.decompress(corpus(data, "trees-clean.txt.gz").read_bytes()).decode()
    return [cleaned(tree) for tree in read_trees(text)]


def of_length(trees: list[Tree], ends: tuple[int, int]) -> list[Tree]:
    return [tree for tree in trees if ends[0] <= len(leaves(tree)) <= ends[1]]


def treebank_model(trees: list[Tree]) -> PcfgModel:
    return pcfg.fit(trees[:TRAIN], shipped_lines("trees"))


def words_of(model: PcfgModel, trees: list[Tree]) -> tuple[Dataset, list[str]]:
    """What the grammar sees of their words, and these."""
    words = [word for tree in trees for _, word in leaves(tree)]
    ends = np.cumsum([0, *(len(leaves(tree)) for tree in trees)], dtype=np.int64)
    return features_of(model, [text_array(words)], ends), words


def parsed(data: str, quick: bool) -> dict:
    """Sentences of 18 to 22 words a second, as tokens a second; F1 of labelled brackets as evalb counts."""
    trees = trees_of(data)
    model = treebank_model(trees)
    gold = of_length(trees[TRAIN:], LONG)[: 10 if quick else None]
    of, words = words_of(model, gold)
    seconds = least_seconds(lambda: model.parses(of, words), 3)
    said = [parse and parse.tree for parse in model.parses(of, words)]
    return {"seconds": seconds, "tokens_per_second": len(words) / seconds, "active": model.grammar.size,
            "f1": compare_all(gold, said).figures()["labelled_f1"]}  # fmt: skip


# ---- beside nltk, on what it can wait for


class Short(NamedTuple):
    """Strings of a grammar; of sentences the right trees, too."""

    model: PcfgModel
    data: Strings
    gold: list[Tree]


def short_tags(data: str, few: int) -> Short:
    train, _, names = parts(corpus(data, "brackets-pos.txt.gz"), TRAIN, 1)
    chosen = np.flatnonzero((train.lengths >= TAGS[0]) & (train.lengths <= TAGS[1]))[:few]
    model = make_model(full_grammar(SYMBOLS, names, 0), ["U:%x[0,0]"], {})
    return Short(model, unbracketed(select(train, chosen)), [])


def short_sentences(data: str, few: int) -> Short:
    """Those that have a tree: nltk has no answer for others."""
    trees = trees_of(data)
    model = treebank_model(trees)
    short = of_length(trees[TRAIN:], WORDS)
    log_p = model.log_likelihood(words_of(model, short)[0])
    gold = [tree for tree, one in zip(short, log_p, strict=True) if one > -np.inf][:few]
    return Short(model, model.strings(words_of(model, gold)[0]), gold)


def short_parsed(data: str, quick: bool, system: str, treebank: bool) -> dict:
    """The likeliest trees of short strings, by a grammar that both systems have."""
    of = (short_sentences if treebank else short_tags)(data, 2 if quick else FEW)
    climber = Climber(of.model.grammar)
    mine = climber.trees(of.data)
    seconds = least_seconds(lambda: climber.trees(of.data), 3)
    if system != OURS:
        parser = nltk_parser(of.model.grammar)
        tokens = [[of.model.grammar.words[w] for w in of.data.row(n)[0]] for n in range(of.data.total)]
        theirs = [next(parser.parse(row)) for row in tokens]
        same(sum(float(tree.logprob()) for tree in theirs) * np.log(2.0), float(mine.log_p.sum()), "nltk")
        seconds = least_seconds(lambda: [next(parser.parse(row)) for row in tokens], 1)
    found = {"seconds": seconds, "objective": -float(mine.log_p.sum()),
             "tokens_per_second": len(of.data.words) / seconds}  # fmt: skip
    if not of.gold:
        return found
    texts = [[word for _, word in leaves(tree)] for tree in of.gold]
    if system == OURS:
        nodes = zip(pairwise(mine.nodes.at), texts, strict=True)
        said = [tree_of_rules(of.model.grammar, mine.nodes.rule[a:b], words) for (a, b), words in nodes]
    else:
        said = [whole_tree(tree, iter(words)) for tree, words in zip(theirs, texts, strict=True)]
    return found | {"f1": compare_all(of.gold, said).figures()["labelled_f1"], "active": of.model.grammar.size}


def nltk_parser(grammar: Grammar):
    nltk = peers.load("nltk")
    symbols = [nltk.Nonterminal(name) for name in grammar.symbols]
    rights = [
        *([symbols[b], symbols[c]] for b, c in zip(grammar.left, grammar.right, strict=True)),
        *([grammar.words[w]] for w in grammar.word), *([symbols[b]] for b in grammar.below),
    ]  # fmt: skip
    rules = zip(grammar.owners, rights, grammar.probabilities.tolist(), strict=True)
    made = [nltk.ProbabilisticProduction(symbols[a], right, prob=p) for a, right, p in rules if p > 0.0]
    limit = {"max_time": None} if "max_time" in signature(nltk.ViterbiParser).parameters else {}  # five seconds
    return nltk.ViterbiParser(nltk.PCFG(symbols[grammar.start], made), **limit)


def whole_tree(tree, words: Iterator[str]) -> Tree:
    """A tree of nltk as ours, made whole again, over the words that stood behind its terminals."""
    if isinstance(tree[0], str):
        return Tree(tree.label(), (next(words),))
    return joined(tree.label(), *[whole_tree(child, words) for child in tree])

"""Grammars: inside over tag strings with 35 symbols beside torch-struct's, and parsing of text by a treebank grammar.

torch-struct takes a batch of padded strings and log-potentials of its own layout; both compute the same log P, which is
checked.
"""

import gzip
import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.cases import Context
from benchmarks.cases.hmm import least_seconds
from benchmarks.job import Skip
from benchmarks.rows import OURS
from espalier.engine.grammar.expected import Machine
from espalier.engine.grammar.rules import Grammar, full_grammar
from espalier.engine.grammar.strings import Strings, select, unbracketed
from espalier.engine.grammar.treebank import make_treebank
from espalier.engine.labels.bracket_scores import compare_all
from espalier.engine.labels.trees import cleaned, leaves, read_trees
from espalier.tasks.experiments.wsj_pcfg import parts

FOLDER, SYMBOLS, TRAIN = "treebank-sample", 35, 3_000
SAME = 1e-5  # torch counts in single precision unless told otherwise; here it is told
INSIDE, COUNTS, PARSING = "inside, 35 symbols", "inside-outside, 35 symbols", "treebank grammar, parse words"


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


def corpus(data: str, name: str) -> Path:
    path = Path(data) / FOLDER / name
    if not path.is_file():
        raise Skip(f"no {path}: name the folder of corpora with --data or ESPALIER_DATA")
    return path


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
    try:
        torch, struct = importlib.import_module("torch"), importlib.import_module("torch_struct")
    except ImportError as error:
        raise Skip(f"{error.name} is not installed: pip install torch torch-struct") from None
    grammar = full_grammar(SYMBOLS, names, 0)
    potentials = [potentials_of(grammar, of.row(n)[0], torch) for n in range(of.total)]

    def inside() -> float:
        return sum(float(struct.SentCFG(one).partition) for one in potentials)

    torch.set_num_threads(1)
    seconds = least_seconds(inside, 1)
    theirs, mine = inside(), float(Machine(grammar).expected(of, False).log_p.sum())
    if not np.isclose(mine, theirs, rtol=SAME, atol=0.0):
        raise ValueError(f"torch-struct's log-likelihood is {theirs}, ours {mine}: expected the same grammar")
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


def parsed(data: str, quick: bool) -> dict:
    """Sentences of 18 to 22 words a second, as tokens a second; F1 of labelled brackets as evalb counts."""
    text = gzip.decompress(corpus(data, "trees-clean.txt.gz").read_bytes()).decode()
    trees = [cleaned(tree) for tree in read_trees(text)]
    parser = make_treebank(trees[:TRAIN]).parser()
    gold = [tree for tree in trees[TRAIN:] if 18 <= len(leaves(tree)) <= 22][: 10 if quick else None]
    texts = [[word for _, word in leaves(tree)] for tree in gold]
    seconds = least_seconds(lambda: parser.parse(texts), 3)
    figures = compare_all(gold, parser.parse(texts)).figures()
    return {"seconds": seconds, "tokens_per_second": sum(map(len, texts)) / seconds, "f1": figures["labelled_f1"],
            "active": parser.bank.grammar.size}  # fmt: skip

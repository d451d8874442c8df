"""Probabilistic context-free grammars: trees over sequences by charts, in place of lattices.

The templates say what a grammar sees of a token: the first its terminal, such as the word or the tag, those behind it
classes for what is rare or unknown, the last of them as a rule `U`, which is the same everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from espalier.engine import model_file
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError, quoted
from espalier.engine.families.labeller import Predictor, check_whole
from espalier.engine.grammar.best import Nodes
from espalier.engine.grammar.binary_trees import HALF, plain
from espalier.engine.grammar.charts import MEMORY, longest_within, make_wide
from espalier.engine.grammar.expected import Machine
from espalier.engine.grammar.generating import draw_rules
from espalier.engine.grammar.kbest import Chooser
from espalier.engine.grammar.rules import Grammar, expected_uses, stored_grammar
from espalier.engine.grammar.strings import Strings
from espalier.engine.grammar.treebank import TreebankOptions, make_treebank, terminals_of, tree_of_rules
from espalier.engine.labels.trees import UNSEEN, Tree, leaves, pieces
from espalier.engine.model_file import REMEDY, TEXT, Tables, texts_column, texts_of
from espalier.engine.runtime.arrow_arrays import numbers_of
from espalier.engine.text.templates import expand_rows, parse

START = "start_symbol"  # the key of it in the info
RULES = pa.schema([
    pa.field("symbol", TEXT, nullable=False), pa.field("left", TEXT), pa.field("right", TEXT), pa.field("word", TEXT),
    pa.field("probability", pa.float64(), nullable=False),
])  # fmt: skip


class Parse(NamedTuple):
    """A tree of a sequence and the logarithm of its probability, with the numbers of its rules."""

    tree: Tree
    log_p: float
    rules: np.ndarray


@dataclass
class PcfgModel(Predictor):
    """A trained grammar. `observations` are its terminals, `labels` those that its trees can have."""

    family: ClassVar[str] = "pcfg"
    shows: ClassVar[str] = "probability"
    body: ClassVar[model_file.Body] = {"rules": RULES}

    labels: list[str]
    templates: list[str]
    observations: list[str]
    grammar: Grammar
    info: dict = field(default_factory=dict)

    # ---- what it says of data

    def strings(self, data: Dataset) -> Strings:
        """Its terminals of each sequence, without brackets."""
        known = np.append(np.arange(len(self.observations)), -1).astype(np.int32)
        words, n = terminals_of(data.observations, known), len(data.weights)
        return Strings(words, data.offsets, data.weights, np.zeros(n + 1, np.int64), np.zeros((0, 2), np.int32))

    def parses(self, data: Dataset, words: Sequence[str] | None = None) -> list[Parse | None]:
        """The likeliest tree of each sequence over its words (asterisks if none are given); None where it has none."""
        texts = [UNSEEN] * len(data.labels) if words is None else words
        if not len(data.weights):
            return []
        best = self._chooser.trees(self.strings(data))
        cuts = zip(pairwise(best.nodes.at), pairwise(data.offsets), best.log_p.tolist(), strict=True)
        return [self._parse(best.nodes.rule[a:b], texts[lo:hi], log_p) if b > a else None
                for (a, b), (lo, hi), log_p in cuts]  # fmt: skip

    def several(self, data: Dataset, n: int, words: Sequence[str]) -> list[list[Parse]]:
        """The n likeliest trees of each sequence, best first; fewer where there are not so many."""
        strings, found = self.strings(data), []
        for s in range(strings.total):
            row, brackets = strings.row(s)
            some = self._chooser.several(row, brackets, n)
            texts = words[data.offsets[s] : data.offsets[s + 1]]
            found.append([self._parse(nodes[0], texts, float(log_p))
                          for log_p, nodes in zip(some.log_p, some.nodes, strict=True)])  # fmt: skip
        return found

    def _parse(self, rules: np.ndarray, words: Sequence[str], log_p: float) -> Parse:
        return Parse(tree_of_rules(self.grammar, rules, words), log_p, rules)

    def decoded(self, data: Dataset, decoder: str | None = None) -> np.ndarray:
        """The pieces of the likeliest tree at each token, as texts; empty ones where a sequence has no tree."""
        if not len(data.weights):
            return np.empty(0, object)
        nodes = self._chooser.trees(self.strings(data)).nodes
        return np.array(pieces_of(self.grammar, nodes, data.offsets), object)

    def texts_of(self, answers: np.ndarray) -> list[str]:
        return answers.tolist()

    def log_likelihood(self, data: Dataset) -> np.ndarray:
        """log P(x) of each sequence over all its trees; -inf where there is none."""
        if not len(data.weights):
            return np.zeros(0)
        return self._machine.expected(self.strings(data), wanted=False).log_p

    def longest(self, several: bool = False) -> int:
        """The tokens of the longest sequence whose charts fit the memory, for the best tree or for several."""
        return longest_within(MEMORY, make_wide(self.grammar), 1, several)

    def sample(self, n: int, seed: int = 0, longest: int = 1000) -> list[Tree]:
        """n trees drawn from it, of at most so many words; the same seed draws the same ones.

        A word is what the first template sees; of a class of rare words it is the name of the class.
        """
        check_whole(n=(n, 0), seed=(seed, 0), longest=(longest, 1))
        begin = next((part for part in parse(self.templates)[0].parts if isinstance(part, str)), "")
        words = [text.removeprefix(begin) for text in self.observations]
        first, found = len(self.grammar.binary), []
        for rules in draw_rules(self.grammar, n, seed, longest):
            lexical = rules[(rules >= first) & (rules < first + len(self.grammar.lexical))] - first
            found.append(tree_of_rules(self.grammar, rules, [words[w] for w in self.grammar.word[lexical]]))
        return found

    @cached_property
    def _chooser(self) -> Chooser:
        return Chooser(self.grammar)

    @cached_property
    def _machine(self) -> Machine:
        return Machine(self.grammar)

    # ---- what it is made of

    def sizes(self) -> dict[str, int]:
        g = self.grammar
        return {"active_binary": len(g.binary), "active_lexical": len(g.lexical), "active_unary": len(g.unary)}

    def shown_table(self) -> pa.Table:
        """Rules in words, the most used ones first: probability, how often one is expected in a tree, its word."""
        probabilities, uses = self.grammar.probabilities, expected_uses(self.grammar)
        order = np.argsort(-uses, kind="stable")
        rules = [self.grammar.rule(int(n)) for n in order]
        owners = [self.grammar.symbols[a] for a in self.grammar.owners[order]]
        words = [self._word_of(int(n)) for n in order]
        columns = {"label": owners, "rule": rules, "word": words, "weight": probabilities[order], "uses": uses[order]}
        return pa.table({name: pa.array(values) for name, values in columns.items()})

    def _word_of(self, rule: int) -> str | None:
        """What a lexical rule has on its right; None of others."""
        g = self.grammar
        lexical = rule - len(g.binary)
        return g.words[g.word[lexical]] if 0 <= lexical < len(g.lexical) else None

    # ---- its file

    def tables(self) -> Tables:
        g = self.grammar
        lexical, unary = np.full(len(g.lexical), -1, np.int32), np.full(len(g.unary), -1, np.int32)
        none = np.full(len(g.binary), -1, np.int32)
        columns = {
            "symbol": texts_column(g.owners, g.symbols),
            "left": texts_column(np.concatenate([g.left, lexical, g.below]), g.symbols),
            "right": texts_column(np.concatenate([g.right, lexical, unary]), g.symbols),
            "word": texts_column(np.concatenate([none, g.word, unary]), self.observations),
            "probability": pa.array(g.probabilities, pa.float64()),
        }  # fmt: skip
        return {"rules": pa.table(columns, schema=RULES)}

    @classmethod
    def of_tables(cls, labels: list[str], templates: list[str], info: dict, tables: Tables, path: Path) -> Self:
        rules = tables["rules"]
        (symbol, symbols), (left, lefts), (right, rights), (word, words) = (
            texts_of(rules, name) for name in ("symbol", "left", "right", "word")
        )
        if not symbols or lefts != symbols or rights != symbols:
            raise EspalierError(f"{path}: its columns of symbols do not name the same ones; {REMEDY}")
        if info.get(START) not in symbols:
            raise EspalierError(f"{path}: {START} {quoted(info.get(START))} is none of its symbols; {REMEDY}")
        kind = np.where(word >= 0, 1, np.where(right >= 0, 0, 2))
        whole = np.where(kind == 1, (left < 0) & (right < 0), left >= 0)
        if not len(kind) or not np.all(whole) or np.any(np.diff(kind) < 0):
            raise EspalierError(f"{path}: rules that are none, or not in their order; {REMEDY}")
        values = numbers_of(rules.column("probability").combine_chunks(), np.float64)
        parts = [np.flatnonzero(kind == k) for k in range(3)]
        columns = (symbol, left, right, values), (symbol, word, values), (symbol, left, values)
        of_kinds = [[column[part] for column in some] for some, part in zip(columns, parts, strict=True)]
        try:
            grammar = stored_grammar(symbols, words, symbols.index(info[START]), *of_kinds)
        except EspalierError as error:
            raise EspalierError(f"{path}: {error}; {REMEDY}") from None
        return cls(labels, templates, words, grammar, info)

    def check(self) -> None:
        if self.labels != labels_of(self.grammar):
            raise ValueError("its labels are not those of its rules")


def pieces_of(grammar: Grammar, nodes: Nodes, offsets: np.ndarray) -> list[str]:
    """The likeliest trees as labels of their words, empty texts where there is none."""
    found: list[str] = []
    for n, length in enumerate(np.diff(offsets).tolist()):
        rules = nodes.rule[nodes.at[n] : nodes.at[n + 1]]
        found += pieces(tree_of_rules(grammar, rules, [UNSEEN] * length)) if len(rules) else [""] * length
    return found


def labels_of(grammar: Grammar) -> list[str]:
    """The labels of its trees."""
    return sorted({plain(name) for name in grammar.symbols if not name.startswith(HALF)})


def make_model(grammar: Grammar, templates: Sequence[str], info: dict) -> PcfgModel:
    """The model of a grammar whose words are observations; words that no rule has are left to their classes."""
    used = np.unique(grammar.word)
    words = [grammar.words[int(w)] for w in used]
    cut = grammar._replace(words=words, word=np.searchsorted(used, grammar.word).astype(np.int32))
    told = info | {START: grammar.symbols[grammar.start]}
    return PcfgModel(labels_of(grammar), list(templates), words, cut, told)


def fit(trees: Sequence[Tree], templates: Sequence[str], options: TreebankOptions | None = None) -> PcfgModel:
    """The grammar that is counted from trees; templates see the word in column 0 and the tag in column 1."""
    parsed, numbers = parse(list(templates)), {}
    rows = [[numbers.setdefault(text, len(numbers)) for text in row]
            for tree in trees for row in expand_rows(parsed, [(word, tag) for tag, word in leaves(tree)])]  # fmt: skip
    bank = make_treebank(trees, np.array(rows, np.int64), list(numbers), options)
    return make_model(bank.grammar, [template.line for template in parsed], {})

"""Trees over sentences as they come: `espalier parse`, and why a sentence has its tree: `espalier explain`.

A line is a sentence, its words between blanks; one that begins with a bracket is a tree, whose words are taken.
Brackets in words are written as treebanks write them, since a tree could not be read again. What the grammar cannot
derive has no tree: `()`, or null in JSON.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.pcfg import Parse, PcfgModel
from espalier.engine.features import columns_needed, features_of
from espalier.engine.labels.trees import leaves, located, written
from espalier.engine.runtime.arrow_arrays import text_array
from espalier.engine.runtime.vectors import log
from espalier.engine.text import column_text
from espalier.tasks.answering.incoming import whole

NO_TREE = "()"
LEFT, RIGHT = "-LRB-", "-RRB-"  # brackets in words, as treebanks have them
GROUP = 256  # sentences that are parsed together
TOP = 10  # rules that an explanation lists


@dataclass(frozen=True)
class AskedTrees:
    json: bool = False
    nbest: int = 0  # trees; 0 is the best alone
    scores: bool = False  # log-probability of each tree, and its share of that of the string


class GivenSentence(NamedTuple):
    line: int
    words: list[str]
    tags: list[str] | None  # of one that came as a tree


def sentences(data: Iterable[bytes], name: str, longest: int) -> Iterator[list[GivenSentence]]:
    """Groups of sentences of at most so many words; an empty line is one without words."""
    line = 0
    for text in whole(data, True, name):
        column_text.check_text(text, name, line + 1)
        group: list[GivenSentence] = []
        for one in _lines(text.decode()):
            line += 1
            group.append(_sentence(one, line, name, longest))
            if len(group) == GROUP:
                yield group
                group = []
        if group:
            yield group


def _lines(text: str) -> list[str]:
    """Cut at line ends alone; other characters that some take for one are blanks, so that answers keep their place."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _sentence(text: str, line: int, name: str, longest: int) -> GivenSentence:
    words, tags = text.replace("(", LEFT).replace(")", RIGHT).split(), None
    if text.lstrip().startswith("("):
        try:
            found = list(located(text, name, line - 1))
        except EspalierError as error:
            raise EspalierError(f"{error}; a word that is a bracket is written {LEFT} or {RIGHT}") from None
        if len(found) != 1 or found[0].tree is None:
            raise EspalierError(f"line {line} of {name} has {len(found)} trees: expected a sentence or a tree a line")
        words, tags = found[0].words, [tag for tag, _ in leaves(found[0].tree)]
    if len(words) > longest:
        raise EspalierError(
            f"line {line} of {name} has {len(words):,} words, and charts of at most {longest:,} fit the memory: "
            "cut the sentence into parts"
        )
    return GivenSentence(line, words, tags)


def features(model: PcfgModel, group: list[GivenSentence]) -> Dataset:
    """The terminals of sentences; without tags the words stand in all columns that the templates look at."""
    words = [word for one in group for word in one.words]
    tags = [tag for one in group for tag in (one.tags or one.words)]
    columns = [text_array(words), text_array(tags)]
    needed = columns_needed(model)
    if needed > 2:
        raise EspalierError(f"the model looks at {needed} columns, and sentences have words and tags: expected "
                            "templates of columns 0 and 1")  # fmt: skip
    return features_of(model, columns[:needed], np.cumsum([0, *(len(one.words) for one in group)], dtype=np.int64))


class Parsed(NamedTuple):
    """A sentence with its trees, best first, and the log-probability of its words."""

    sentence: GivenSentence
    trees: list[Parse]
    log_p: float | None


def parsed(model: PcfgModel, group: list[GivenSentence], n: int, log_p: bool) -> list[Parsed]:
    """Of sentences that have words."""
    data = features(model, group)
    words = [word for one in group for word in one.words]
    if n:
        trees = model.several(data, n, words)
    else:
        trees = [[best] if best else [] for best in model.parses(data, words)]
    totals = model.log_likelihood(data).tolist() if log_p else [None] * len(group)
    return [Parsed(*row) for row in zip(group, trees, totals, strict=True)]


class TreeAnswers:
    """The answers to what is read; `without` counts the sentences that have no tree."""

    def __init__(self, model: PcfgModel, asked: AskedTrees):
        self.model, self.asked, self.without = model, asked, 0

    def __call__(self, data: Iterable[bytes], name: str) -> Iterator[bytes]:
        for group in sentences(data, name, self.model.longest(several=self.asked.nbest > 0)):
            some = [one for one in group if one.words]
            made = parsed(self.model, some, self.asked.nbest, self.asked.scores) if some else []
            found = {one.sentence.line: one for one in made}
            yield "".join(self._answer(found.get(one.line)) for one in group).encode()

    def _answer(self, one: Parsed | None) -> str:
        if one is None:
            return "" if self.asked.json else "\n"
        self.without += not one.trees
        scores = [_scores(tree, one.log_p) for tree in one.trees] if self.asked.scores else [{} for _ in one.trees]
        if self.asked.json:
            trees = [{"tree": written(tree.tree)} | more for tree, more in zip(one.trees, scores, strict=True)]
            told = {"trees": trees} if self.asked.nbest else trees[0] if trees else {"tree": None}
            return json.dumps({"tokens": one.sentence.words} | told, ensure_ascii=False) + "\n"
        lines = ["\t".join([*(f"{value:.6g}" for value in more.values()), written(tree.tree)])
                 for tree, more in zip(one.trees, scores, strict=True)]  # fmt: skip
        return "\n".join(lines or [NO_TREE]) + ("\n\n" if self.asked.nbest else "\n")


def _scores(tree: Parse, log_p: float | None) -> dict[str, float]:
    return {"log_probability": tree.log_p, "probability": min(1.0, math.exp(tree.log_p - log_p))}


# Explanations ---------------------------------------------------------------------------------------


def explained(model: PcfgModel, one: GivenSentence, top: int = TOP) -> dict:
    """The rules of the tree, what each takes of its log-probability, and what the next tree would have instead."""
    found = parsed(model, [one], 2, True)[0]
    told = {"tokens": one.words, "tree": None}
    if not found.trees:
        return told
    best, logs = found.trees[0], log(model.grammar.probabilities)
    counts = Counter(best.rules.tolist())
    rows = sorted(counts.items(), key=lambda item: (item[1] * logs[item[0]], item[0]))
    rules = [{"rule": model.grammar.rule(n), "times": times, "log_probability": times * float(logs[n]),
              "share": times * float(logs[n]) / best.log_p if best.log_p else 0.0} for n, times in rows]  # fmt: skip
    told |= {"tree": written(best.tree)} | _scores(best, found.log_p) | {
        "rules": rules[:top], "rest_count": len(rules[top:]),
        "rest": float(sum(row["log_probability"] for row in rules[top:])), "otherwise": None,
    }  # fmt: skip
    if len(found.trees) > 1:
        other = found.trees[1]
        differ = counts.copy()
        differ.subtract(other.rules.tolist())
        changed = [(n, times) for n, times in differ.items() if times]
        changed.sort(key=lambda one: (-abs(one[1] * logs[one[0]]), one[0]))
        told["otherwise"] = {"tree": written(other.tree)} | _scores(other, found.log_p) | {
            "difference": best.log_p - other.log_p,
            "rules": [{"rule": model.grammar.rule(n), "times": times, "adds": times * float(logs[n])}
                      for n, times in changed[:top]],
            "rest": float(sum(times * logs[n] for n, times in changed[top:])),
        }  # fmt: skip
    return told


def as_text(told: dict) -> str:
    """What `explained` says, for people."""
    if told["tree"] is None:
        return f"{' '.join(told['tokens'])}\n  the grammar cannot derive it\n"
    share = f"{told['probability']:.2%} of that of all trees"
    lines = [told["tree"], f"  log-probability {told['log_probability']:.4f}, {share}"]
    for row in told["rules"]:
        often = f"  ({row['times']} times)" if row["times"] > 1 else ""
        lines.append(f"    {row['log_probability']:+9.3f}  {row['share']:6.1%}  {row['rule']}{often}")
    if told["rest_count"]:
        lines.append(f"    {told['rest']:+9.3f}          {told['rest_count']} more rules")
    if other := told["otherwise"]:
        lines.append(f"  {other['difference']:+.3f} over {other['tree']}")
        for row in other["rules"]:
            side = "otherwise " if row["times"] < 0 else ""
            lines.append(f"    {row['adds']:+9.3f}  {side}{row['rule']}")
    return "\n".join(lines) + "\n"

"""Trees: brackets that are found and missed, by label and by length; the worst sentences drawn; rules by weight."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from espalier.engine.labels.bracket_scores import EQUAL, PUNCTUATION, BracketCounts, comparable, compare, spans
from espalier.engine.labels.trees import TOP, Tree, leaves, tree_of
from espalier.tasks.judging.slices import length_starts, rate
from espalier.tasks.pages import charts, tree_picture
from espalier.tasks.pages.page import Html, count, figure, join, lead, message, number, percent, plural, table, tag
from espalier.tasks.report.confusions import most_confused, neighbours
from espalier.tasks.report.phrases import Phrases
from espalier.tasks.report.slices import span
from espalier.tasks.report.words import Metrics, Nouns, code
from espalier.tasks.store import sequence_offsets

NONE = "none"  # of a bracket that the other tree has not
HEAT_LABELS = {"wide": 22, "narrow": 12}
DRAWN = 40  # words of a sentence that is drawn at most
BY_LABEL = 30


class JudgedTree(NamedTuple):
    """A test sentence with both trees, and what evalb counts of it; brackets have labels in both, or in none."""

    gold: Tree
    said: Tree | None
    counts: BracketCounts
    kept: list[bool]  # the words that are no punctuation


def sentences(predictions: pa.Table) -> list[JudgedTree]:
    """Of predictions that hold trees; none of others."""
    if "tree" not in predictions.column_names:
        return []
    gold, said, words = (predictions.column(name).to_pylist() for name in ("tree", "predicted_tree", "x0"))
    cuts = [slice(*ends) for ends in pairwise(sequence_offsets(predictions.column("sequence").to_numpy()).tolist())]
    rights, answers = ([tree_of(pieces[cut], words[cut]) for cut in cuts] for pieces in (gold, said))
    return [JudgedTree(right, answer, compare(right, answer), [name not in PUNCTUATION for name, _ in leaves(right)])
            for right, answer in zip(rights, comparable(rights, answers), strict=True)]  # fmt: skip


# Brackets -------------------------------------------------------------------------------------------


def brackets(found: Sequence[JudgedTree], m: Metrics, nouns: Nouns) -> Html | None:
    """What is found, by label; what is taken for what."""
    if not found:
        return None
    b = m.get("brackets") or {}
    told = [count(int(b.get("gold", 0)), "bracket") + f" in {count(len(found), nouns.sequence)} of the test data"]
    if b.get("missing"):
        told.append(f"{count(int(b['missing']), nouns.sequence)} that the grammar cannot derive")
    opening = lead("; ".join(told) + f". Punctuation, {plural(nouns.label)} and the outermost label do not count, as "
                   "evalb has it.")  # fmt: skip
    labelled = any(one.gold.label for one in found)
    shown = "labelled" if labelled else "unlabelled"
    heads = ("", "Precision", "Recall", "F1", "Exact")
    kinds = (("With labels", "labelled"), ("Without labels", "unlabelled"))[not labelled :]
    rows = [(name, *(percent(b.get(f"{key}_{part}"), 2) for part in ("precision", "recall", "f1")),
             percent(b.get("exact_share"), 2) if key == shown else "") for name, key in kinds]  # fmt: skip
    more = [by_label(found), confusion(found)] if labelled else []
    return join([opening, table("Brackets", heads, rows, (1, 2, 3, 4)), *more])


def by_label(found: Sequence[JudgedTree]) -> Html:
    right, gold, said = Counter(), Counter(), Counter()
    for one in found:
        ours, theirs = _both(one)
        for counter, some in ((gold, ours), (said, theirs), (right, ours & theirs)):
            for (label, _, _), n in some.items():
                counter[label] += n
    order = sorted(gold | said, key=lambda label: (-gold[label], label))[:BY_LABEL]
    rows = [(code(label or "no label"), number(gold[label]), percent(_ratio(right[label], said[label])),
             percent(_ratio(right[label], gold[label])), percent(_ratio(2 * right[label], gold[label] + said[label])))
            for label in order]  # fmt: skip
    return table("Brackets by label", ("Label", "Right ones", "Precision", "Recall", "F1"), rows, (1, 2, 3, 4))


def _both(one: JudgedTree) -> tuple[Counter, Counter]:
    return spans(one.gold, one.kept), spans(one.said, one.kept) if one.said else Counter()


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def confusion(found: Sequence[JudgedTree]) -> Html | str:
    """Brackets over the same words with another label, and those that only one of the trees has."""
    counts: Counter = Counter()
    for one in found:
        ours, theirs = _both(one)
        counts.update({(label, label): n for (label, _, _), n in _by_label(ours & theirs).items()})
        left: dict[tuple[int, int], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, some in enumerate((ours - theirs, theirs - ours)):
            for (label, i, j), n in sorted(some.items()):
                left[i, j][side].extend([label] * n)
        for right, said in left.values():
            longest = max(len(right), len(said))
            pairs = zip(right + [NONE] * (longest - len(right)), said + [NONE] * (longest - len(said)), strict=True)
            counts.update(pairs)
    errors = Counter({pair: n for pair, n in counts.items() if pair[0] != pair[1]})
    if not errors:
        return ""
    maps = []
    for key, most in HEAT_LABELS.items():
        labels = neighbours(most_confused(errors, most), errors)
        drawn = charts.heat_map(f"brackets-{key}", "Confusion of brackets", labels, counts, "right", "predicted")
        note = f"over the same words; {NONE}: the other tree has no bracket there"
        maps.append(tag("div", figure("What is taken for what", drawn, note), class_=key))
    return join(maps)


def _by_label(some: Counter) -> Counter:
    made: Counter = Counter()
    for (label, _, _), n in some.items():
        made[label, 0, 0] += n
    return made


# By length ------------------------------------------------------------------------------------------


def lengths(found: Sequence[JudgedTree], m: Metrics, nouns: Nouns) -> Html | None:
    """F1 of brackets by the length of the sentence."""
    if not found:
        return None
    sizes = np.array([len(one.kept) for one in found])
    hits = np.array([2 * one.counts.labelled for one in found])
    of = np.array([one.counts.gold + one.counts.predicted for one in found])
    starts = length_starts(sizes)
    which = np.searchsorted(starts, sizes, side="right") - 1
    drawn, rows = [], []
    for i in range(len(starts)):
        mine = which == i
        share = rate(hits[mine], of[mine])
        if share.value is None:
            continue
        name = span(int(sizes[mine].min()), int(sizes[mine].max()))
        drawn.append(charts.Range(name, *share, number(int(mine.sum()))))
        ends = f"{percent(share.low)}–{percent(share.high)}"
        rows.append((name, number(int(mine.sum())), percent(share.value), ends))
    if not drawn:
        return message("No sentence of the test data has brackets to count.")
    title = f"F1 of brackets by length of the {nouns.sequence}"
    chart = charts.range_chart("trees-by-length", title, "F1 of brackets", drawn, whole=m.get("bracket_f1"),
                               note_name=plural(nouns.sequence))  # fmt: skip
    heads = (plural(nouns.token), plural(nouns.sequence), "F1", "95%")
    shown = figure(title, chart, f"{plural(nouns.token)} in a {nouns.sequence}, F1, and how many there are")
    return tag("div", shown, table("The same as a table", heads, rows, (1, 2, 3)), class_="panels")


# Worst sentences ------------------------------------------------------------------------------------


def worst(found: Sequence[JudgedTree], nouns: Nouns, limit: int) -> Html | None:
    """The sentences with the most wrong brackets, right and predicted tree; what is wrong in a tree is marked."""
    if not found or not limit:
        return None
    wrong = [one for one in found if not one.counts.exact and len(one.kept) <= DRAWN]
    if not wrong:
        return message(f"No {nouns.sequence} has a wrong bracket.")
    wrong.sort(key=lambda one: 2 * one.counts.labelled - one.counts.gold - one.counts.predicted)
    shown = wrong[:limit]
    opening = lead(
        f"The {count(len(shown), nouns.sequence)} with the most wrong brackets, of up to {DRAWN} "
        f"{plural(nouns.token)}. Brackets that the other tree has not are marked."
    )
    return join([opening, tag("ol", *(tag("li", _drawn(one)) for one in shown), class_="trees")])


def _drawn(one: JudgedTree) -> Html:
    ours, theirs = _both(one)
    ends = [sum(one.kept[:n]) for n in range(len(one.kept) + 1)]
    right = tree_picture.draw(one.gold, "Right tree", _marks(theirs, ends))
    if one.said is None:
        return join([tag("p", "The grammar cannot derive it. Right:", class_="tree-name"), right])
    return tree_picture.pair(right, tree_picture.draw(one.said, "Predicted tree", _marks(ours, ends)))


def _marks(others: Counter, ends: list[int]) -> tree_picture.Wrong:
    """Whether a bracket is none of the others; what does not count is not marked."""

    def wrong(label: str, begin: int, end: int) -> bool:
        low, high = ends[begin], ends[end]
        counts = high > low + (not label) and label != TOP
        return counts and (EQUAL.get(label, label), low, high) not in others

    return wrong


# Rules ----------------------------------------------------------------------------------------------


def rules(shown: pa.Table, phrases: Phrases, nouns: Nouns, limit: int) -> Html | None:
    """The rules that are used most; None for what has none."""
    if "rule" not in shown.column_names or not limit:
        return None
    rows: list[dict[str, Any]] = shown.to_pylist()
    others = [row for row in rows if row["word"] is None]
    lexical = [row | {"rule": f"{row['label']} -> {phrases.context(row['word']) or f'any {nouns.token}'}"}
               for row in rows if row["word"] is not None]  # fmt: skip
    opening = lead(
        f"The rules that are expected most often in a tree, of {count(shown.num_rows, 'rule')}. A label may remember "
        "the one above it (^), and one that begins with @ is the rest of a rule."
    )
    heads = ("Rule", "Probability", "Times in a tree")
    tables = []
    for name, some in (("Rules of labels", others), (f"Rules of {plural(nouns.token)}", lexical)):
        cells = [(code(row["rule"]), number(row["weight"]), number(row["uses"])) for row in some[:limit]]
        tables += [table(name, heads, cells, (1, 2))] if cells else []
    return join([opening, tag("div", *tables, class_="panels")])

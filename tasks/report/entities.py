"""Entities: how many are found, which are missed and which are spurious, with examples of each."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from espalier.engine.labels.spans import (
    BOTH,
    ENDS,
    KIND,
    MISSED,
    RIGHT,
    SPURIOUS,
    Match,
    Span,
    marks_entities,
    matches,
    spans,
)
from espalier.tasks.pages import charts
from espalier.tasks.pages.page import Html, count, figure, join, lead, number, percent, table, tag
from espalier.tasks.report.confusions import label_counts, label_table
from espalier.tasks.report.words import Metrics, Nouns, Tagged, code

GROUPS, EXAMPLES = 8, 3  # of each way to be wrong; of each group
CONTEXT, LONGEST = 4, 12  # tokens shown beside an entity, and of one at most
MAP_KINDS = 24
NOTHING = "nothing"
WAYS = (
    ((MISSED,), "Missed", "where nothing was predicted"),
    ((SPURIOUS,), "Spurious", "predicted where there is none"),
    ((KIND, BOTH), "Another kind", "found, but taken for another kind"),
    ((ENDS,), "Other ends", "of the right kind, but longer, shorter or moved"),
)


def chunks(m: Metrics) -> Html | None:
    """Scores for each kind of entity."""
    if not m.get("chunks"):
        return None
    return join([lead("An entity counts as correct when its kind and both its ends are right."), score_table(m)])


def confusions(m: Metrics, sequences: list[Tagged], nouns: Nouns) -> Html | None:
    """What became of the entities, what is taken for what, and where; single labels wait to be opened.

    None where the labels of the test data mark no entities, or none is wrong.
    """
    if not m.get("chunks") or not marks_entities(label for s in sequences for label in (*s.gold, *s.said)):
        return None
    found = [(s, matches(spans(s.gold), spans(s.said))) for s in sequences]
    fates = Counter(match.how for _, here in found for match in here)
    if fates[RIGHT] == fates.total():
        return None
    gold, spurious = count(fates.total() - fates[SPURIOUS], "entity"), fates[SPURIOUS]
    none = "1 predicted one is none" if spurious == 1 else f"{number(spurious)} predicted ones are none"
    opening = lead(f"What is taken for what: {number(fates[RIGHT])} of {gold} are right, and {none}.")
    single = label_table(label_counts(sequences), nouns, may_open=False)
    return join([opening, fate_table(found), confusion_map(found), *examples(found), single])


def score_table(m: Metrics) -> Html:
    kinds = sorted(m["chunks"].items(), key=lambda item: (-item[1]["gold"], item[0]))
    rows = [
        (code(name), *(percent(c[key]) for key in ("precision", "recall", "f1")),
         charts.bars([("a", c["f1"])], 1), *(number(c[key]) for key in ("gold", "predicted", "correct")))
        for name, c in kinds
    ]  # fmt: skip
    headings = ("Kind", "Precision", "Recall", "F1", "", "Gold", "Predicted", "Correct")
    return table("Precision, recall and F1 for each kind", headings, rows, (1, 2, 3, 5, 6, 7), "chunks sortable")


Found = list[tuple[Tagged, list[Match]]]


def fate_table(found: Found) -> Html:
    """What became of the right entities of each kind, and how many of its predictions stand for nothing."""
    fate = Counter(((m.gold or m.said).kind, m.how) for _, ms in found for m in ms)
    size = Counter(m.gold.kind for _, ms in found for m in ms if m.gold)
    columns = ((RIGHT,), (ENDS,), (KIND, BOTH), (MISSED,), (SPURIOUS,))
    rows = [
        (code(kind), *(number(sum(fate[kind, how] for how in hows)) for hows in columns))
        for kind in sorted({kind for kind, _ in fate}, key=lambda kind: (-size[kind], kind))
    ]
    heads = ("Kind", "Right", "Other ends", "Other kind", "Missed", "Spurious")
    return table("What became of the entities", heads, rows, range(1, 6), "fates sortable")


def confusion_map(found: Found) -> Html:
    """Kinds taken for kinds, and for nothing."""
    pairs = Counter(
        (m.gold.kind if m.gold else NOTHING, m.said.kind if m.said else NOTHING)
        for _, ms in found for m in ms if m.how != ENDS
    )  # fmt: skip
    size = Counter()
    for (gold, said), n in pairs.items():
        size.update({gold: n, said: n} if gold != said else {gold: n})
    kinds = [kind for kind, _ in sorted(size.items(), key=lambda item: (-item[1], item[0])) if kind != NOTHING]
    labels = [*kinds[:MAP_KINDS], NOTHING]
    cell = 34 if len(labels) <= 8 else 25
    drawn = charts.heat_map("entity-map", "Entities taken for others", labels, pairs, "right", "predicted", cell)
    note = f"the row {NOTHING} holds spurious entities, the column {NOTHING} missed ones; right answers are grey"
    return figure("Kinds of entities", drawn, note)


def examples(found: Found) -> Iterable[Html]:
    """For each way to be wrong a table of the most frequent groups, with places where it happened."""
    yield tag("p", "In the examples the right entity is ", tag("mark", "marked"), " and [ ] is the predicted one.")
    for hows, title, meaning in WAYS:
        groups: dict[tuple[str, str], list[tuple[Tagged, Match]]] = defaultdict(list)
        for s, ms in found:
            for m in ms:
                if m.how in hows:
                    groups[m.gold.kind if m.gold else "", m.said.kind if m.said else ""].append((s, m))
        if groups:
            yield example_table(title, meaning, groups)


def example_table(title: str, meaning: str, groups: dict) -> Html:
    order = sorted(groups, key=lambda pair: (-len(groups[pair]), pair))
    both = any(gold and said and gold != said for gold, said in order)
    rows = []
    for gold, said in order[:GROUPS]:
        name = join([code(gold), " → ", code(said)]) if both else code(gold or said)
        shown = dict.fromkeys(shown_in(s.tokens, m.gold, m.said) for s, m in groups[gold, said][: 4 * EXAMPLES])
        rows.append((name, number(len(groups[gold, said])), join(list(shown)[:EXAMPLES])))
    left = len(order) - len(rows)
    total = sum(map(len, groups.values()))
    entities = f"{number(total)} {'entity' if total == 1 else 'entities'}"
    caption = f"{title}: {entities} {meaning}" + (f"; the {GROUPS} largest groups of {len(order)}" if left else "")
    return table(caption, ("Kind", "Count", "Seen in"), rows, (1,), "seen")


def shown_in(tokens: list[str], gold: Span | None, said: Span | None) -> Html:
    """The tokens around an entity: the right one marked, the predicted one in brackets."""
    both = [span for span in (gold, said) if span]
    first, last = min(s.begin for s in both), max(s.end for s in both)
    low, high = max(0, first - CONTEXT), min(len(tokens), last + CONTEXT)
    words = []
    for t in range(low, high):
        word = tag("mark", tokens[t]) if gold and gold.begin <= t < gold.end else tokens[t]
        before = "[" if said and t == said.begin else ""
        behind = "]" if said and t == said.end - 1 else ""
        words.append(join([before, word, behind]))
    if len(words) > LONGEST + 2 * CONTEXT:
        words = [*words[: LONGEST // 2 + CONTEXT], "…", *words[-(LONGEST // 2 + CONTEXT) :]]
    edges = "… " if low else "", " …" if high < len(tokens) else ""
    return tag("span", edges[0], join(words, " "), edges[1], class_="sample apart")

"""What is taken for what: the picture and the table of confused labels, with examples."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from espalier.tasks.pages import charts
from espalier.tasks.pages.page import (
    Html,
    capital,
    count,
    figure,
    join,
    lead,
    message,
    number,
    percent,
    plural,
    table,
    tag,
)
from espalier.tasks.report.words import Nouns, Tagged, code

HEAT_LABELS = {"wide": 25, "narrow": 13}  # labels in the heat map of a large screen and of a phone
CONFUSIONS, EXAMPLES = 15, 3
LABELS, OPEN_LABELS = 200, 20  # in the table of labels; when there are more than that it waits to be opened
CONTEXT = 4  # tokens shown either side of a mistake in a long sequence


def confusions(sequences: list[Tagged], nouns: Nouns) -> Html:
    """The picture and the table of what is taken for what."""
    if not sequences:
        return message("There are no predictions: the test data are empty.")
    counts = label_counts(sequences)
    errors = Counter({pair: n for pair, n in counts.items() if pair[0] != pair[1]})
    if not errors:
        return message(f"Every {nouns.token} of the test data got the right {nouns.label}.")
    total = f"{count(errors.total(), 'error')} in {count(counts.total(), nouns.token)}"
    maps = [tag("div", heat_figure(key, counts, errors, nouns), class_=key) for key in HEAT_LABELS]
    opening = lead(f"What is taken for what: {total}.")
    return join([opening, *maps, confusion_table(sequences, counts, errors, nouns), label_table(counts, nouns)])


def label_counts(sequences: list[Tagged]) -> Counter:
    """How often each pair of a right and a predicted label occurs."""
    return Counter(pair for s in sequences for pair in zip(s.gold, s.said, strict=True))


def heat_figure(key: str, counts: Counter, errors: Counter, nouns: Nouns) -> Html:
    """One map for large screens, a smaller one for phones, so that neither scrolls; the style sheet picks."""
    labels = neighbours(most_confused(errors, HEAT_LABELS[key]), errors)
    inside = sum(n for (gold, said), n in errors.items() if gold in labels and said in labels)
    share = percent(inside / errors.total(), 0)
    note = (
        f"the {len(labels)} {plural(nouns.label)} with most errors, {share} of all errors; "
        "a stronger colour is more often, right answers are grey"
    )
    names = f"right {nouns.label}", f"predicted {nouns.label}"
    drawn = charts.heat_map(f"heat-{key}", f"Confusion of {plural(nouns.label)}", labels, counts, *names)
    return figure(f"Most confused {plural(nouns.label)}", drawn, note)


def most_confused(errors: Counter, size: int) -> list[str]:
    """The labels that take part in most errors, on either side."""
    total: Counter = Counter()
    for (gold, said), n in errors.items():
        total.update({gold: n})
        total.update({said: n})
    return sorted(total, key=lambda label: (-total[label], label))[:size]


def neighbours(labels: list[str], errors: Counter) -> list[str]:
    """Each label followed by the one it is most confused with: errors then gather near the diagonal."""
    order, left = labels[:1], labels[1:]
    while left:
        shared = [errors[order[-1], other] + errors[other, order[-1]] for other in left]
        order.append(left.pop(shared.index(max(shared))))
    return order


def confusion_table(sequences: list[Tagged], counts: Counter, errors: Counter, nouns: Nouns) -> Html:
    top = sorted(errors, key=lambda pair: (-errors[pair], pair))[:CONFUSIONS]
    seen, golds = examples(sequences, top), Counter()
    for (gold, _), n in counts.items():
        golds[gold] += n
    rows = [
        (code(gold), code(said), number(n), percent(n / errors.total()), percent(n / golds[gold]),
         seen[gold, said])
        for (gold, said), n in ((pair, errors[pair]) for pair in top)
    ]  # fmt: skip
    headings = ("Right", "Predicted", "Count", "Of all errors", f"Of this {nouns.label}", "Seen in")
    caption = f"The {len(rows)} most frequent confusions"
    long = any(len(label) > 6 for pair in top for label in pair)  # no room for both and figures in one line
    return table(caption, headings, rows, (2, 3, 4), "confused long" if long else "confused")


class Score(NamedTuple):
    """How well one label is found."""

    label: str
    precision: float | None  # None where it was never predicted
    recall: float | None  # None where it never was right
    f1: float
    support: int
    most: str  # what it is most often taken for


def label_scores(counts: Counter) -> list[Score]:
    """The scores of each label of (right, predicted) counts, those with most errors first."""
    gold, said, missed = Counter(), Counter(), Counter()
    taken: dict[str, Counter] = defaultdict(Counter)
    for (right, predicted), n in counts.items():
        gold[right] += n
        said[predicted] += n
        if right != predicted:
            missed[right] += n
            missed[predicted] += n
            taken[right][predicted] += n
    scores = []
    for label in {*gold, *said}:
        hits = counts[label, label]
        most = min(taken[label], key=lambda other: (-taken[label][other], other), default="")
        shares = (hits / n if n else None for n in (said[label], gold[label]))
        scores.append(Score(label, *shares, 2 * hits / (gold[label] + said[label]), gold[label], most))
    return sorted(scores, key=lambda s: (-missed[s.label], s.label))


def label_table(counts: Counter, nouns: Nouns, may_open: bool = True) -> Html:
    """Precision, recall and F1 of each label by itself; open where they are few, unless it may not be."""
    scores = label_scores(counts)
    rows = [
        (code(s.label), percent(s.precision), percent(s.recall), percent(s.f1), number(s.support),
         code(s.most) if s.most else "")
        for s in scores[:LABELS]
    ]  # fmt: skip
    heads = (capital(nouns.label), "Precision", "Recall", "F1", "Count", "Often taken for")
    caption = f"Each {nouns.label}, those with most errors first"
    caption += f" ({LABELS} of {number(len(scores))})" if len(scores) > LABELS else ""
    shown = table(caption, heads, rows, (1, 2, 3, 4), "labels sortable")
    summary = f"Precision, recall and F1 of each {nouns.label}"
    return tag("details", tag("summary", summary), shown, open=may_open and len(rows) <= OPEN_LABELS)


def examples(sequences: list[Tagged], pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Html]:
    """Up to three different sequences for each confusion, with the place marked."""
    found: dict[tuple[str, str], list[Html]] = {pair: [] for pair in pairs}
    glue = "" if all(len(token) == 1 for s in sequences for token in s.tokens) else " "
    for s in sequences:
        for t in s.wrong():
            shown = found.get((s.gold[t], s.said[t]))
            if shown is None or len(shown) == EXAMPLES:
                continue
            if (text := spelled(s.tokens, t, glue)) not in shown:
                shown.append(text)
    return {pair: join(shown, "" if glue else ", ") for pair, shown in found.items()}


def spelled(tokens: list[str], at: int, glue: str) -> Html:
    """The sequence with one token marked; letters stand together, of words only those around it are shown."""
    low, high = (max(0, at - CONTEXT), at + CONTEXT + 1) if glue else (0, len(tokens))
    parts = [tag("mark", token) if t == at else token for t, token in enumerate(tokens[low:high], low)]
    before, behind = "… " if low else "", " …" if high < len(tokens) else ""
    return tag("span", before, join(parts, glue), behind, class_="sample apart" if glue else "sample")

"""A labeller as a notebook shows it: parameters, sizes, labels and the strongest weights, in a light or a dark page."""

from html import escape
from typing import Any

import numpy as np

from espalier.engine.errors import brief
from espalier.engine.families import FAMILIES
from espalier.engine.families.labeller import Labeller, WeightLabeller

STRONGEST = 12  # weights that are shown
LABELS = 40  # labels that are named
# The colours are those of the page: only greys that let it shine through are added.
STYLE = (
    ".espalier-crf{font-size:.9em;border:1px solid rgba(128,128,128,.4);border-radius:4px;padding:.6em .9em;"
    "max-width:46em;overflow-wrap:anywhere}"
    ".espalier-crf p{margin:.3em 0}.espalier-crf code{color:inherit;background:none}"
    ".espalier-crf table{border-collapse:collapse;margin:.4em 0;color:inherit;font-size:inherit}"
    ".espalier-crf th,.espalier-crf td{padding:.15em .8em .15em 0;text-align:left;background:none;"
    "border-bottom:1px solid rgba(128,128,128,.25)}"
    ".espalier-crf td.n{text-align:right;font-variant-numeric:tabular-nums}"
)
HEADS = ("observation", "label before", "label")


def page_of(text: str, model: Labeller | None) -> str:
    """The HTML of a labeller: `text` is its repr, `model` None before it was fitted."""
    parts = [f"<p><strong><code>{escape(text)}</code></strong></p>"]
    if model is None:
        parts.append("<p>not fitted</p>")
    else:
        parts += [f"<p>{escape(words)}</p>" for words in _described(model)]
        parts.append(_strongest(model) if isinstance(model, WeightLabeller) else "")
    return f'<div class="espalier-crf"><style>{STYLE}</style>{"".join(parts)}</div>'


def _described(model: Labeller) -> list[str]:
    """What it is, how large it is, which labels it has."""
    sizes = ", ".join(f"{count:,} {name.removeprefix('active_')}" for name, count in model.sizes().items() if count)
    features, iterations = model.info.get("features"), model.info.get("iterations")
    of = f" of {features:,}" if isinstance(features, int) else ""
    after = f"; {iterations:,} iteration{'s' * (iterations != 1)}" if isinstance(iterations, int) else ""
    kind = "probabilities" if model.shows == "probability" else "weights"
    named = ", ".join(brief(label) for label in model.labels[:LABELS])
    more = f" and {len(model.labels) - LABELS:,} more" if len(model.labels) > LABELS else ""
    active = sum(model.sizes().values())
    return [
        f"{FAMILIES[model.family].called}: {active:,} {kind}{of} are not zero ({sizes or 'none'}), "
        f"{len(model.observations):,} observations{after}",
        f"{len(model.labels):,} labels: {named}{more}",
    ]


def _strongest(model: WeightLabeller) -> str:
    """A table of the largest of what the model shows of its weights."""
    slots, values = model.shown()
    chosen = np.sort(np.argsort(-np.abs(values), kind="stable")[:STRONGEST])
    if not len(chosen):
        return ""
    family, observation, previous, label = model.layout.slots(slots[chosen])
    weights = list(zip(family, observation, previous, label, values[chosen], strict=True))
    rows = [
        _row(model.observations[x], " → ".join(model.labels_before(before, kind)), model.labels[y], value)
        for kind, x, before, y, value in sorted(weights, key=lambda weight: -abs(weight[-1]))
    ]
    heads = "".join(f"<th>{head}</th>" for head in (*HEADS, f"strongest {model.shows}"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(observation: str, before: str, label: str, value: Any) -> str:
    texts = "".join(f"<td>{escape(brief(text))}</td>" for text in (observation, before, label))
    return f'<tr>{texts}<td class="n">{float(value):,.3f}</td></tr>'

"""Chunks: how many are found, where labels mark them."""

from tasks import charts
from tasks.page import Html, join, lead, number, percent, table
from tasks.report.words import Metrics, code


def chunks(m: Metrics) -> Html | None:
    """F1 per chunk type, where labels mark chunks."""
    if not m.get("chunks"):
        return None
    types = sorted(m["chunks"].items(), key=lambda item: (-item[1]["gold"], item[0]))
    rows = [
        (code(name), *(percent(c[key]) for key in ("precision", "recall", "f1")),
         charts.bars([("a", c["f1"])], 1), *(number(c[key]) for key in ("gold", "predicted", "correct")))
        for name, c in types
    ]  # fmt: skip
    headings = ("Type", "Precision", "Recall", "F1", "", "Gold", "Predicted", "Correct")
    shown = table("Precision, recall and F1 for each type", headings, rows, (1, 2, 3, 5, 6, 7), "chunks")
    return join([lead("A chunk counts as correct when its type and both its ends are right."), shown])

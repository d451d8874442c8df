"""The experiment `abstention`: labels that are not sure enough left out, on Spanish named entities (LABELSEQ 5.4)."""

from pathlib import Path

import numpy as np

from espalier.engine.families.crf import CrfLabeller
from espalier.engine.families.objectives import objective_of
from espalier.engine.labels.abstention import LIMITS, curve
from espalier.engine.labels.scheme import transitions_of
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.weights.layout import make_layout, observation_kinds
from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.ner_losses import SCHEME, entities_of
from espalier.tasks.experiments.ner_losses_report import FILES
from espalier.tasks.pages.page import figure, join, lead, number, percent, tag

NAME, KEY = "abstention", "S3-log"
RHO2 = 1.0
ITERATIONS, QUICK = 150, {"limit": 60, "iterations": 3}
SOURCE_SHARE = 0.1493  # of the tokens left out by the source
NOTES = [
    "The source leaves labels out in pitch accent prediction, which has two labels, by a Gaussian process; we have not "
    "its corpus. Ours is a CRF on Spanish named entities, nine labels of which O is by far the most frequent: there is "
    "far less error to be rid of. Only that the error falls compares.",
    "The source does not say whether its 8.54% are points or a share of the error, which is 23.52% with nothing left "
    "out (100% less the accuracy of its second degree). Both are beside it.",
    "A token is left out when the probability of its label is below the limit, an entity when that of any of its "
    "labels is. Labels are those of the likeliest labelling, probabilities those of each label by itself.",
    f"The penalty is ρ2 = {RHO2:g}, not tuned here; `ner-losses` has the grid. Transitions keep to the scheme, in "
    "training and in decoding.",
    "Precision rises while recall falls: an entity that is left out is missed. What is left out at the source's share "
    "of tokens takes most entities with it, as these are where a model is not sure.",
]


def left_out(rho2: float, iterations: int, limit: int | None, train: Path, dev: Path, test: Path) -> dict:
    """A CRF of the window of three; what is right of its labels as more is asked of them."""
    data = entities_of("S3", limit, train, dev, test)
    layout = make_layout("seen", data.train, len(data.labels), observation_kinds(data.observations))
    objective = objective_of("crf", data.train, layout, transitions=transitions_of(data.labels, SCHEME))
    found = minimise("lbfgs", objective, ElasticNet(0.0, rho2), max_iterations=iterations, tolerance=1e-3)
    model = CrfLabeller(data.labels, [], data.observations, layout, found.theta, {"scheme": SCHEME})
    ids = model.best(data.test)
    sure, said = model.marginals(data.test)[np.arange(len(ids)), ids], [data.labels[y] for y in ids]
    # The limit below which as many tokens are left out as the source leaves out.
    at = float(np.sort(sure)[min(len(sure) - 1, int(SOURCE_SHARE * len(sure)))])
    rows = {}
    for name, entities in (("entities", True), ("tokens", False)):
        rows[name] = curve(data.test_labels, said, sure, data.test.offsets, entities, [*LIMITS, at])
    return {"rows": rows, "tokens": len(ids), "sequences": len(data.test.weights)}


def cells(settings: Settings) -> list[Cell]:
    files = {name: settings.data / file for name, file in FILES.items()}
    return [Cell(KEY, left_out, {"rho2": RHO2} | (QUICK if settings.quick else {"limit": None,
                                                                               "iterations": ITERATIONS}), files)]


def error(row: dict) -> float:
    """Of the tokens that are left."""
    return 0.0 if row["accuracy"] is None else 1 - row["accuracy"]


def comparisons(rows: dict[str, list[dict]]) -> list[Comparison]:
    (all_tokens, *_, few), (all_entities, *_) = rows["tokens"], rows["entities"]
    place, gain = "LABELSEQ 5.4, figure 5.3", error(all_tokens) - error(few)
    made = [
        Comparison(place, "error of tokens, none left out", "23.52% (pitch accent)", share(error(all_tokens))),
        Comparison(place, "tokens left out", "14.93% (pitch accent)", share(few["abstained"]),
                   f"below {percent(few['limit'], 2)}"),
        Comparison(place, "the error of the others falls by", "8.54% (pitch accent)", f"{100 * gain:.2f} points",
                   f"to {share(error(few), 3)}: {share(gain / max(error(all_tokens), 1e-12), 1)} of the error"),
    ]  # fmt: skip
    for limit in (0.0, 0.7, 0.9, 0.99):
        row = next(row for row in rows["entities"] if row["limit"] == limit)
        precision = "nothing left" if row["precision"] is None else share(row["precision"])
        made.append(Comparison("ours", f"entities, at least {percent(limit, 0)} sure", "a drawing without numbers",
                               f"precision {precision}, recall {share(row['recall'])}",
                               f"{share(row['coverage'], 1)} of {number(all_entities['kept'])} kept"))  # fmt: skip
    return made


def checks(rows: dict[str, list[dict]]) -> list[Statement]:
    tokens, entities = rows["tokens"], rows["entities"]
    firm = [row["precision"] for row in entities[:-1] if row["kept"] >= 100]
    rising = all(b >= a - 0.002 for a, b in zip(firm, firm[1:], strict=False))
    return [
        Statement("Leaving out as many tokens as the source lowers the error of the others",
                  error(tokens[-1]) < error(tokens[0]), f"{share(error(tokens[0]))} to {share(error(tokens[-1]), 3)}",
                  "the second is smaller"),
        Statement("Precision of entities rises with what is asked of them", rising,
                  ", ".join(map(share, firm)), "no fall of more than 0.2 points"),
    ]  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    rows = results[KEY]["rows"]
    text = (
        f"{number(results[KEY]['tokens'])} test tokens of esp.testa by a CRF with words and spelling in a window of "
        "three: what is right of the labels that it is sure of."
    )
    shown = [row for row in rows["entities"][:-1] if row["precision"] is not None]
    title = "Precision against recall of entities"
    chart = xy_chart("entities", title, "recall", [Curve("CRF", [(r["recall"], r["precision"]) for r in shown])],
                     share, percent_tick)  # fmt: skip
    heads = ["at least", "entities kept", "precision", "recall", "tokens left out", "error of the other tokens"]
    table = rows_table("Limits", heads, [
        [f"{100 * e['limit']:g}%", number(e["kept"]), "" if e["precision"] is None else share(e["precision"]),
         share(e["recall"]), share(t["abstained"]), share(error(t), 3)]
        for e, t in zip(rows["entities"][:-1], rows["tokens"][:-1], strict=True)
    ])  # fmt: skip
    sections = [("entities", "Entities", join([lead(tag("span", text)), figure(title, chart), table]))]
    return Report("Labels left out", text, comparisons(rows), sections, NOTES, checks(rows))


EXPERIMENT = Experiment(
    NAME, "labels that are not sure enough left out, on Spanish named entities", cells, report, tuple(FILES.values())
)

"""The experiment `ner-margins`: perceptrons beside losses and boosting on Spanish named entities."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments import boosting_rounds_report as boosting
from espalier.tasks.experiments import ner_losses_report as losses
from espalier.tasks.experiments.drawings import Curve, minutes, rows_table, xy_chart
from espalier.tasks.experiments.ner_losses_report import FILES, PATTERNS, SOURCE, points
from espalier.tasks.experiments.ner_margins import learned
from espalier.tasks.pages.page import Html, figure, join, lead, number, tag

NAME = "ner-margins"
EPOCHS, LOOKS, DUAL_EPOCHS = 100, 5, 20  # a look at development data every so many, in the dual form each time
QUICK = {"limit": 60, "epochs": 3, "looks": 1}
WINDOW = "S3"
LEARNERS = {  # title and options; the first is that of the source
    "averaged": ("averaged perceptron", {}),
    "last": ("its last weights", {"average": False}),
    "lead": ("averaged, with a lead of the wrong labels", {"lead": "hamming"}),
    "pa": ("passive-aggressive", {"update": "pa"}),
    "arow": ("AROW", {"update": "arow"}),
    "dual-2": ("dual form, degree 2, averaged", {"degree": 2}),
}
LOSSES = {"log": "log loss", "marginal": "marginal loss", "exponential": "exponential loss"}
NOTES = [
    "Data, features and the choice by development data are those of `ner-losses`: tested on esp.testa, chosen on "
    "esp.testb. Losses and boosting are the cells of `ner-losses` and `boosting-rounds` once more.",
    f"The source does not say how many epochs its perceptron took, nor in which order. Ours takes {EPOCHS}, each in "
    f"an order drawn anew ({DUAL_EPOCHS} in the dual form), and of every {LOOKS} keeps the one that is best on "
    "development data. It takes as many because most of these attributes are of most words: a mistake moves what "
    "nearly all tokens have in common.",
    "Transitions that the scheme forbids are impossible when a perceptron labels development and test data, and not "
    "while it learns; the losses keep to the scheme in training, too. The source fixes their weights throughout.",
    "The source has a perceptron with the window alone. Its dual form with a kernel stands in another table of it, on "
    "fewer sentences: see `ner-kernels`. Here it is on all of them.",
    "Weights are for pairs of observation and label that training data have; in the dual form each row of attributes "
    "has an amount for each label. Times are of the processor.",
]


def cell(patterns: str, learner: str, settings: Settings) -> Cell:
    files = {name: settings.data / file for name, file in FILES.items()}
    options = LEARNERS[learner][1]
    epochs, looks = (DUAL_EPOCHS, 1) if "degree" in options else (EPOCHS, LOOKS)
    sizes = QUICK if settings.quick else {"limit": None, "epochs": epochs, "looks": looks}
    arguments = {"patterns": patterns, "options": options}
    return Cell(f"{patterns}-{learner}", learned, arguments | sizes, files)


def loss_cells(loss: str, settings: Settings) -> list[Cell]:
    return losses.by_loss(loss)(WINDOW, settings)


def boosting_cell(settings: Settings) -> Cell:
    rounds, pi = boosting.ROUNDS[WINDOW], boosting.PI
    return boosting.cell(f"{WINDOW}-exact", WINDOW, "exact", "sequences", rounds, pi, settings)


def cells(settings: Settings) -> list[Cell]:
    """Those of the same templates follow each other: they share the data."""
    first = [cell(patterns, "averaged", settings) for patterns in PATTERNS if patterns != WINDOW]
    window = [cell(WINDOW, learner, settings) for learner in LEARNERS]
    others = [one for loss in LOSSES for one in loss_cells(loss, settings)]
    return [*first, *window, boosting_cell(settings), *others]


# What was found ---------------------------------------------------------------------------------------


def best(rows: list[dict]) -> dict:
    """The epoch that the development data choose."""
    return max(rows, key=lambda row: row["dev_f1"])


def of_loss(results: dict[str, dict], loss: str, settings: Settings) -> float:
    """F1 of a loss on the test data."""
    decoder = losses.LEARNERS[loss].decoder
    rows = [row for one in loss_cells(loss, settings) for row in results[one.key]["rows"]]
    return losses.chosen(rows, decoder)[decoder]["f1"]


def others(results: dict[str, dict], settings: Settings) -> dict[str, float]:
    """F1 of losses and boosting with the window."""
    found = {loss: of_loss(results, loss, settings) for loss in LOSSES}
    return found | {"boosting": boosting.best(results[boosting_cell(settings).key]["rows"])["f1"]}


def comparisons(results: dict[str, dict], settings: Settings) -> list[Comparison]:
    made = []
    for patterns, words in PATTERNS.items():
        said, ours = SOURCE.get((patterns, "perceptron")), best(results[f"{patterns}-averaged"]["rows"])["f1"]
        made.append(Comparison("LABELSEQ table 2.2", f"F1, {words}, averaged perceptron",
                               "not in the source" if said is None else f"{said:.2f}", points(ours),
                               "" if said is None else f"{100 * ours - said:+.2f}"))  # fmt: skip
    for name, ours in others(results, settings).items():
        said, words = SOURCE[WINDOW, name], LOSSES.get(name, "sequence AdaBoost")
        made.append(Comparison("LABELSEQ tables 2.2 and 3.1", f"F1, {PATTERNS[WINDOW]}, {words}", f"{said:.2f}",
                               points(ours), f"{100 * ours - said:+.2f}"))  # fmt: skip
    for learner in [name for name in LEARNERS if name != "averaged"]:
        ours = best(results[f"{WINDOW}-{learner}"]["rows"])["f1"]
        made.append(Comparison("ours", f"F1, {PATTERNS[WINDOW]}, {LEARNERS[learner][0]}", "not in the source",
                               points(ours)))  # fmt: skip
    return made


def checks(results: dict[str, dict], settings: Settings) -> list[Statement]:
    rows = {key: one["rows"] for key, one in results.items() if key.split("-", 1)[-1] in LEARNERS}
    features = [best(rows[f"{patterns}-averaged"])["f1"] for patterns in PATTERNS]
    averaged, last = best(rows[f"{WINDOW}-averaged"])["f1"], best(rows[f"{WINDOW}-last"])["f1"]
    log, marked = of_loss(results, "log", settings), rows[f"{WINDOW}-averaged"]
    fewer = marked[-1]["mistakes"] < marked[0]["mistakes"]
    return [
        Statement("Spelling helps, and the window helps more", features[0] < features[1] < features[2],
                  ", ".join(map(points, features)), "rising"),
        Statement("The mean of the weights is better than the last ones", averaged > last,
                  f"{points(averaged)} and {points(last)}", "the first is larger"),
        Statement("The perceptron is not better than the log loss", averaged <= log,
                  f"{points(averaged)} and {points(log)}", "the first is not larger"),
        Statement("The last epoch makes fewer mistakes than the first", fewer,
                  f"{number(marked[0]['mistakes'])} and {number(marked[-1]['mistakes'])}", "the second is smaller"),
    ]  # fmt: skip


def table(results: dict[str, dict]) -> Html:
    rows = []
    for patterns, learner in [(p, "averaged") for p in PATTERNS if p != WINDOW] + [(WINDOW, name) for name in LEARNERS]:
        one = results[f"{patterns}-{learner}"]
        row = best(one["rows"])
        rows.append([PATTERNS[patterns], LEARNERS[learner][0], number(row["epoch"]), number(row["mistakes"]),
                     number(row["active"]), *(points(row[name]) for name in ("f1", "precision", "recall", "dev_f1")),
                     minutes(sum(row["seconds"] for row in one["rows"]))])  # fmt: skip
    heads = ["features", "learner", "epoch", "mistakes in it", "active", "F1", "precision", "recall", "development F1",
             "time of all epochs"]  # fmt: skip
    return rows_table("Models that the development data choose", heads, rows)


def report(results: dict[str, dict], settings: Settings) -> Report:
    some = results[f"{WINDOW}-averaged"]
    text = (
        f"Perceptrons on {number(some['sequences'])} training sentences of {number(some['tokens'])} tokens, beside "
        "losses of a chain and boosting, tested on esp.testa."
    )
    title = "F1 on development data, window of three words"
    drawn = [Curve(title_of, [(row["epoch"], row["dev_f1"]) for row in results[f"{WINDOW}-{name}"]["rows"]])
             for name, (title_of, _) in LEARNERS.items()]  # fmt: skip
    chart = figure(title, xy_chart("epochs", title, "epoch", drawn, number, points))
    sections = [("models", "The models", join([lead(tag("span", text)), table(results), chart]))]
    return Report("Perceptrons on Spanish named entities", text, comparisons(results, settings), sections, NOTES,
                  checks(results, settings))  # fmt: skip


EXPERIMENT = Experiment(
    NAME, "perceptrons beside losses and boosting on Spanish named entities (LABELSEQ tables 2.2 and 3.1)", cells,
    report, tuple(FILES.values()),
)  # fmt: skip

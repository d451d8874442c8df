"""The experiment `ner-losses`: losses of a chain on Spanish named entities, with words, spelling and a window.

A learner is a line in `LEARNERS`; one that is no loss of a chain brings cells of its own there, whose results have
`rows` with `dev_f1` and `f1` by decoder, as those of `ner_losses.path` have.
"""

from collections.abc import Callable
from typing import NamedTuple

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, rows_table, xy_chart
from espalier.tasks.experiments.ner_losses import path
from espalier.tasks.pages.page import Html, figure, join, lead, number, tag

NAME = "ner-losses"
FILES = {"train": "conll2002-esp/esp.train.gz", "dev": "conll2002-esp/esp.testb.gz",
         "test": "conll2002-esp/esp.testa.gz"}  # fmt: skip
PATTERNS = {"S1": "words (S1)", "S2": "words and spelling (S2)", "S3": "a window of three (S3)"}
ITERATIONS, QUICK = 150, {"limit": 60, "iterations": 3}
LENGTHS = {"S3": (1.0, 0.95)}  # pi of the exponential loss: with 36 tokens a sentence counts 0.16 with the second
LARGEST, STEP, POINTS = 1.0, 10**-0.5, 3  # L2 penalties of the log loss: 1, 0.32, 0.1
SIZES = {"log": 1.0, "marginal": 1 / 36, "exponential": 1 / 7_200}  # how large a loss is beside the log loss, about
SOURCE = {  # F1 of LABELSEQ tables 2.2 and 3.1
    ("S1", "log"): 59.92, ("S2", "log"): 70.26, ("S3", "log"): 74.83, ("S3", "marginal"): 74.17,
    ("S1", "exponential"): 59.68, ("S2", "exponential"): 69.11, ("S3", "exponential"): 74.22,
    ("S3", "perceptron"): 73.41,
    ("S1", "boosting"): 48.23, ("S2", "boosting"): 69.00, ("S3", "boosting"): 73.88,
}  # fmt: skip
NOTES = [
    "Test data are esp.testa and development data esp.testb, as in the source: the other way round than is usual.",
    "The features of the source are read from its appendix: 16 attributes of a word, itself among them, and "
    "conjunctions with four values. It does not say what its types of first letters are, nor how it writes places "
    "beyond edges. Ours are weights for pairs of observation and label that training has; the source may have all.",
    "The source has 7,230 sentences of 36 tokens on average, without saying how it comes to them. Leaving out "
    "sentences of one token gives 7,231, the weather report of 1,238 tokens among them; it is cut between names as "
    "the source does. Test and development data are whole.",
    "Transitions to I-X from anything but B-X and I-X are impossible in training and decoding (crf.scheme). The "
    "source fixes their weights at values that differ between methods.",
    "The L2 penalty is the best of three on development data, by F1: 1, 0.32 and 0.1 for the log loss, "
    "and as much beside the size of the others. For the exponential loss with the window so is the length weight "
    "pi, 1 or 0.95; else it is 1. The source adjusts penalties and pi on development data, too, and does not say "
    "among which.",
    "The marginal and the exponential loss begin at the log loss, each smaller penalty at the optimum before. The "
    "source starts the marginal loss again from perturbed optima until nothing gains; ours is not perturbed.",
    "Models of the marginal loss are judged by the likeliest label of each token, all others by the likeliest "
    "labelling within the scheme; the table has both decoders.",
    "For the exponential loss the logarithm is minimised: the same minimum without a penalty, another one with it.",
    "The source stops BFGS where it says nothing of; ours stops when the last third of the iterations lowered the "
    f"objective by less than 0.1%, after {ITERATIONS} iterations at most.",
]


class Learner(NamedTuple):
    """A column of the table: its name, the decoder that it is judged by, its cells for some patterns."""

    title: str
    decoder: str
    cells: Callable[[str, Settings], list[Cell]] | None  # None of one that `ner-margins` has


def penalties(loss: str, settings: Settings) -> list[float]:
    points = 2 if settings.quick else POINTS
    return [float(f"{SIZES[loss] * LARGEST * STEP**i:.3g}") for i in range(points)]


def cell(key: str, patterns: str, loss: str, pi: float, scheme: bool, settings: Settings) -> Cell:
    arguments = {"patterns": patterns, "loss": loss, "size": SIZES[loss], "pi": pi,
                 "penalties": penalties(loss, settings), "scheme": scheme}  # fmt: skip
    sizes = QUICK if settings.quick else {"limit": None, "iterations": ITERATIONS}
    files = {name: settings.data / file for name, file in FILES.items()}
    return Cell(key, path, arguments | sizes, files)


def by_loss(loss: str) -> Callable[[str, Settings], list[Cell]]:
    def made(patterns: str, settings: Settings) -> list[Cell]:
        lengths = LENGTHS.get(patterns, (1.0,)) if loss == "exponential" else (1.0,)
        return [cell(f"{patterns}-{loss}-{pi:g}", patterns, loss, pi, True, settings) for pi in lengths]

    return made


LEARNERS = {
    "log": Learner("log loss", "viterbi", by_loss("log")),
    "marginal": Learner("marginal loss", "posterior", by_loss("marginal")),
    "exponential": Learner("exponential loss", "viterbi", by_loss("exponential")),
    "perceptron": Learner("averaged perceptron", "viterbi", None),
    "boosting": Learner("sequence AdaBoost", "viterbi", None),
}
FREE = "S3-log-free"  # the log loss whose training allows all transitions


def cells(settings: Settings) -> list[Cell]:
    made = [one for patterns in PATTERNS for learner in LEARNERS.values() if learner.cells
            for one in learner.cells(patterns, settings)]  # fmt: skip
    return [*made, cell(FREE, "S3", "log", 1.0, False, settings)]


# What was found ---------------------------------------------------------------------------------------


def rows_of(results: dict[str, dict], patterns: str, name: str, settings: Settings) -> list[dict]:
    """All models of a learner; the length weight of each beside it."""
    made = LEARNERS[name].cells
    return [row | {"pi": one.arguments.get("pi", 1.0)} for one in (made(patterns, settings) if made else [])
            for row in results[one.key]["rows"]]  # fmt: skip


def chosen(rows: list[dict], decoder: str) -> dict:
    """The model that the development data choose."""
    return max(rows, key=lambda row: row[decoder]["dev_f1"])


def points(value: float) -> str:
    return f"{100 * value:.2f}"


def found(results: dict[str, dict], patterns: str, name: str, settings: Settings) -> float | None:
    """F1 on the test data."""
    rows, decoder = rows_of(results, patterns, name, settings), LEARNERS[name].decoder
    return chosen(rows, decoder)[decoder]["f1"] if rows else None


def comparisons(results: dict[str, dict], settings: Settings) -> list[Comparison]:
    made = []
    for patterns in PATTERNS:
        for name, learner in LEARNERS.items():
            said, ours = SOURCE.get((patterns, name)), found(results, patterns, name, settings)
            if said is None and ours is None:
                continue
            place = "LABELSEQ table 2.2" if name in ("marginal", "perceptron") else "LABELSEQ table 3.1"
            note = "" if said is None or ours is None else f"{100 * ours - said:+.2f}"
            made.append(Comparison(place, f"F1, {PATTERNS[patterns]}, {learner.title}",
                                   "not in the source" if said is None else f"{said:.2f}",
                                   "see ner-margins" if ours is None else points(ours), note))  # fmt: skip
    free = chosen(results[FREE]["rows"], "viterbi")["viterbi"]["f1"]
    made.append(Comparison("ours", f"F1, {PATTERNS['S3']}, log loss, scheme in decoding alone", "not measured",
                           points(free)))  # fmt: skip
    return made


def checks(results: dict[str, dict], settings: Settings) -> list[Statement]:
    ours = {(p, name): found(results, p, name, settings) for p in PATTERNS for name in LEARNERS}
    made = []
    for name in ("log", "exponential"):
        values = [ours[p, name] for p in PATTERNS]
        made.append(Statement(f"{LEARNERS[name].title}: spelling helps, and the window helps more",
                              values[0] < values[1] < values[2], ", ".join(map(points, values)), "rising"))  # fmt: skip
    for name in ("marginal", "exponential"):
        a, b = ours["S3", name], ours["S3", "log"]
        made.append(Statement(f"The {LEARNERS[name].title} is not better than the log loss (S3)", a <= b,
                              f"{points(a)} and {points(b)}", "the first is not larger"))  # fmt: skip
    return made


def table(results: dict[str, dict], settings: Settings) -> Html:
    rows = []
    for patterns in PATTERNS:
        for name, learner in LEARNERS.items():
            every = rows_of(results, patterns, name, settings)
            if not every:
                continue
            best = chosen(every, learner.decoder)
            pi = f", pi {best['pi']:g}" if name == "exponential" else ""
            rows.append([PATTERNS[patterns], learner.title, f"{best['rho2']:g}{pi}",
                         *(points(best[decoder]["f1"]) for decoder in ("viterbi", "posterior")),
                         points(best[learner.decoder]["precision"]), points(best[learner.decoder]["recall"]),
                         points(best[learner.decoder]["dev_f1"]),
                         number(best["iterations"]), minutes(sum(row["seconds"] for row in every))])  # fmt: skip
    heads = ["features", "learner", "chosen", "F1, labelling", "F1, labels", "precision", "recall", "development F1",
             "iterations", "time of the path"]  # fmt: skip
    return rows_table("Models that the development data choose", heads, rows)


def curves(results: dict[str, dict], settings: Settings) -> Html:
    """Development F1 along the penalties, each brought to the size of the log loss."""
    drawn = []
    for name in SIZES:
        rows = rows_of(results, "S3", name, settings)
        best = chosen(rows, LEARNERS[name].decoder)["pi"]
        drawn.append(Curve(LEARNERS[name].title, [(row["rho2"] / SIZES[name], row[LEARNERS[name].decoder]["dev_f1"])
                                                  for row in rows if row["pi"] == best]))  # fmt: skip
    title = "F1 on development data, window of three words"
    return figure(title, xy_chart("penalties", title, "L2 penalty over the size of the loss", drawn, points, points,
                                  log_x=True))  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    some = results["S3-log-1"]
    text = (
        f"Three losses of a chain on {number(some['sequences'])} training sentences of {number(some['tokens'])} "
        "tokens, with the word, its spelling, and both in a window, tested on esp.testa."
    )
    sections = [
        ("models", "The models", join([lead(tag("span", text)), table(results, settings)])),
        ("penalties", "Penalties", curves(results, settings)),
    ]
    return Report("Losses on Spanish named entities", text, comparisons(results, settings), sections, NOTES,
                  checks(results, settings))  # fmt: skip


EXPERIMENT = Experiment(
    NAME, "losses of a chain on Spanish named entities, three penalties each (LABELSEQ tables 2.2 and 3.1)",
    cells, report, tuple(FILES.values()),
)  # fmt: skip

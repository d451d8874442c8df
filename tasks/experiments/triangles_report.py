"""The experiment `triangles`: classes of triangles told apart by grammars, by estimation and size of the sample."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.triangles import CLASSES, classified
from espalier.tasks.pages.page import Html, figure, join, percent

SYMBOLS, TRAINS, TEST, ITERATIONS = 10, (100, 300, 1_000), 1_000, 100
WAYS = {"io": ("io", False), "vs": ("vs", False), "iob": ("io", True), "vsb": ("vs", True)}
NAMES = {"io": "inside-outside", "vs": "Viterbi score", "iob": "inside-outside, brackets",
         "vsb": "Viterbi score, brackets"}  # fmt: skip
SOURCE = {"equilateral": "7.7%", "isosceles": "78.0%", "right": "22.8%"}
NOTES = [
    "The source has its triangles from a program that is not described. Ours have sides of 2 to 10 steps: equilateral "
    "ones three alike, isosceles ones two, right ones two of any length and the third rounded to whole steps.",
    "An isosceles triangle of three equal sides is equilateral, too; one in nine is, so that some error is left.",
    "Right triangles have a direction that the others lack, so they are never taken for another class here.",
    f"Grammars of {SYMBOLS} symbols from one random start; strings that no grammar derives count as wrong.",
]


def cells(settings: Settings) -> list[Cell]:
    sizes = ({"symbols": 3, "test": 40, "iterations": 3} if settings.quick else
             {"symbols": SYMBOLS, "test": TEST, "iterations": ITERATIONS})  # fmt: skip
    return [Cell(f"{way}-{n}", classified, {"training": training, "brackets": brackets, "train": n} | sizes)
            for way, (training, brackets) in WAYS.items() for n in trains(settings)]  # fmt: skip


def trains(settings: Settings) -> tuple[int, ...]:
    return (20, 40) if settings.quick else TRAINS


def error(result: dict, name: str | None = None) -> float:
    """The share of triangles that are taken for another class: of all, or of one."""
    rows = [(at, row) for at, row in enumerate(result["table"]) if name in (None, CLASSES[at])]
    return sum(sum(row) - row[at] for at, row in rows) / sum(sum(row) for _, row in rows)


def comparisons(results: dict[str, dict], settings: Settings) -> list[Comparison]:
    last = results[f"io-{trains(settings)[-1]}"]
    made = [Comparison("COURSE 4.3", "error of all classes, inside-outside", "36.17%", share(error(last)))]
    return made + [Comparison("COURSE 4.3", f"error, {name}, inside-outside", said, share(error(last, name)))
                   for name, said in SOURCE.items()]  # fmt: skip


def checks(results: dict[str, dict], settings: Settings) -> list[Statement]:
    last = trains(settings)[-1]
    io, vs = (error(results[f"{way}-{last}"]) for way in ("io", "vs"))
    return [Statement("Inside-outside errs no more than Viterbi score", io <= vs,
                      f"{share(io)} and {share(vs)}", "the first is not larger")]  # fmt: skip


def figures(results: dict[str, dict], settings: Settings) -> Html:
    heads = ["estimation, triangles of a class", "error", *CLASSES, "time"]
    rows = [[f"{NAMES[way]}, {n}", share(error(one)), *(share(error(one, name)) for name in CLASSES),
             minutes(one["seconds"])]
            for way in WAYS for n in trains(settings) for one in [results[f"{way}-{n}"]]]  # fmt: skip
    curves = [Curve(NAMES[way], [(n, error(results[f"{way}-{n}"])) for n in trains(settings)]) for way in WAYS]
    title = "Error by the size of the sample"
    chart = xy_chart("triangles", title, "triangles of a class", curves, percent, percent_tick, log_x=True)
    return join([rows_table("Triangles taken for another class", heads, rows), figure(title, chart)])


def report(results: dict[str, dict], settings: Settings) -> Report:
    last = results[f"io-{trains(settings)[-1]}"]
    opening = f"Grammars of three classes of triangles take {share(error(last))} of new ones for another class."
    sections = [("figures", "Which are told apart", figures(results, settings))]
    return Report("Triangles told apart by grammars", opening, comparisons(results, settings), sections, NOTES,
                  checks(results, settings))  # fmt: skip


EXPERIMENT = Experiment("triangles", "classes of triangles told apart by grammars", cells, report)

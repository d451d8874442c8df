"""The experiment `palindromes`: what inside-outside, Viterbi score and the k best trees learn, and brackets."""

from statistics import fmean

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.palindromes import estimated
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent

KS = (2, 8, 32, 128, 512, 2048)
STARTS, ITERATIONS, TOLERANCE, STRINGS, DRAWN, CHECKED = 5, 340, 1e-7, 1_000, 10_000, 10_000
SOURCE = {  # Kullback-Leibler divergence, palindromes in %
    "io": (1.88, 76.0), "vs": (6.00, 1.9), "vsb": (4.49, 17.1), "iob": (0.00, 100.0),
    "kvs-2": (5.76, 2.3), "kvs-8": (5.56, 7.9), "kvs-32": (5.07, 13.2), "kvs-128": (4.98, 11.2),
    "kvs-512": (3.59, 17.6), "kvs-2048": (3.59, 17.9),
    "kvsb-2": (4.96, 12.8), "kvsb-8": (4.47, 18.2), "kvsb-32": (4.43, 16.9), "kvsb-128": (3.93, 22.5),
    "kvsb-512": (3.23, 27.1), "kvsb-2048": (1.88, 74.7),
}  # fmt: skip
NAMES = {"io": "inside-outside", "vs": "Viterbi score", "kvs": "k best trees"}
NOTES = [
    "The source starts from one random grammar. Ours starts from five and shows their mean and, in the tables, the "
    "best; which of them finds the palindromes is a matter of luck.",
    "Five symbols and two words make 135 rules; the source says 130.",
    "The divergence is the mean of log P(x) / Q(x) over strings of the truth that the grammar derives, with natural "
    "logarithms; the share of those that it does not derive stands beside it.",
    "The accumulated mass of the source is not defined there. Ours is the probability of the distinct ones among 1,000 "
    "generated strings, which is 0.73 for the truth.",
]


def cells(settings: Settings) -> list[Cell]:
    sizes = {"starts": STARTS, "iterations": ITERATIONS, "tolerance": TOLERANCE, "strings": STRINGS, "drawn": DRAWN,
             "checked": CHECKED}  # fmt: skip
    if settings.quick:
        sizes = {"starts": 2, "iterations": 6, "tolerance": 0.0, "strings": 60, "drawn": 300, "checked": 300}
    made = []
    for b in (False, True):
        for training, ks in (("io", (1,)), ("vs", (1,)), ("kvs", ks_of(settings))):
            made += [
                Cell(key(training, b, k), estimated, {"training": training, "brackets": b, "k": k} | sizes) for k in ks
            ]
    return made


def ks_of(settings: Settings) -> tuple[int, ...]:
    return (2, 8) if settings.quick else KS


def key(training: str, brackets: bool, k: int) -> str:
    return training + "b" * brackets + (f"-{k}" if training == "kvs" else "")


def name(result: dict) -> str:
    return NAMES[result["training"]] + (f", k = {result['k']:,}" if result["training"] == "kvs" else "") + (
        ", brackets" if result["brackets"] else ""
    )  # fmt: skip


def mean(result: dict, what: str) -> float:
    return fmean(row[what] for row in result["rows"])


def best(result: dict) -> dict:
    """The start that fits the strings best."""
    return min(result["rows"], key=lambda row: row["objective"])


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    made = []
    for cell, result in results.items():
        kld, right = SOURCE.get(cell, (None, None))
        said = ("not in the source",) * 2 if kld is None else (f"{kld:.2f}", f"{right}%")
        made.append(Comparison("COURSE 4.2", f"divergence, {name(result)}", said[0], f"{mean(result, 'kld'):.2f}",
                               f"{share(mean(result, 'underived'), 1)} of the strings are not derived"))  # fmt: skip
        made.append(Comparison("COURSE 4.2", f"palindromes, {name(result)}", said[1],
                               share(mean(result, "palindromes"), 1),
                               f"{share(best(result)['palindromes'], 1)} from the best of the starts"))  # fmt: skip
    return made


def checks(results: dict[str, dict], settings: Settings) -> list[Statement]:
    def above(text: str, more: str, less: str) -> Statement:
        a, b = (mean(results[one], "palindromes") for one in (more, less))
        return Statement(text, a >= b, f"{share(a, 1)} and {share(b, 1)}", "the first is not smaller")

    last = ks_of(settings)[-1]
    made = [
        above("Inside-outside learns more than Viterbi score", "io", "vs"),
        above("Brackets help inside-outside", "iob", "io"),
        above("Brackets help Viterbi score", "vsb", "vs"),
        above("Many trees teach more than one", f"kvs-{last}", "vs"),
    ]
    if settings.quick:  # a few iterations over a few strings cannot do it
        return made
    learned = mean(results["iob"], "palindromes")
    return [*made, Statement("With brackets inside-outside learns the language", learned > 0.95, share(learned, 1),
                             "more than 95 %")]  # fmt: skip


def whole_table(results: dict[str, dict]) -> Html:
    heads = ["estimation", "divergence", "not derived", "palindromes", "best start", "mass of palindromes",
             "mass of others", "rules", "iterations", "time"]  # fmt: skip
    rows = [[name(one), f"{mean(one, 'kld'):.2f}", share(mean(one, "underived"), 1), share(mean(one, "palindromes"), 1),
             share(best(one)["palindromes"], 1), f"{mean(one, 'mass'):.3f}", f"{mean(one, 'others'):.3f}",
             number(mean(one, "rules"), 3), number(mean(one, "iterations"), 3), minutes(mean(one, "seconds"))]
            for one in results.values()]  # fmt: skip
    return rows_table("Means over the starts", heads, rows)


def by_k(results: dict[str, dict], settings: Settings) -> Html:
    curves = [
        Curve(title, [(k, mean(results[key("kvs", b, k)], "palindromes")) for k in ks_of(settings)])
        for title, b in (("with brackets", True), ("without brackets", False))
    ]
    drawn = xy_chart("by-k", "Palindromes by the number of trees", "trees of each string", curves, percent,
                     percent_tick, log_x=True)  # fmt: skip
    return figure("Palindromes by the number of trees", drawn)


def report(results: dict[str, dict], settings: Settings) -> Report:
    opening = (
        f"Of the strings of learned grammars, {share(mean(results['io'], 'palindromes'), 1)} are palindromes "
        f"after inside-outside, {share(mean(results['vs'], 'palindromes'), 1)} after Viterbi score and "
        f"{share(mean(results['iob'], 'palindromes'), 1)} after inside-outside with brackets."
    )
    body = join([lead("Grammars of five symbols from random starts."), whole_table(results), by_k(results, settings)])
    sections = [("figures", "What was learned", body)]
    return Report("Grammars of palindromes", opening, comparisons(results), sections, NOTES, checks(results, settings))


EXPERIMENT = Experiment(
    "palindromes", "grammars of palindromes: inside-outside, Viterbi score, k best trees, brackets", cells, report
)

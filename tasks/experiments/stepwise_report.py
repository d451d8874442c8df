"""The experiment `stepwise`: expectation-maximisation in steps on palindromes: step, batch, order (COURSE 4.5)."""

from statistics import fmean, stdev

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.palindromes import stepwise
from espalier.tasks.pages.page import Html, figure, join, lead, percent, tag

ALPHAS, BATCHES = (0.5, 0.6, 0.7), (1, 5, 10, 20, 50)
ORDERS = {"random": "as chance has it", "short": "short strings first", "long": "long strings first"}
SOURCE = {
    "random": ("46.7 35.1 29.5 21.8 16.6", "34.1 20.3 16.8 15.8 14.9", "17.2 15.1 14.9 14.6 14.9"),
    "short": ("82.4 94.2 89.6 92.5 65.1", "86.8 90.8 92.7 84.7 50.7", "88.8 81.9 66.6 54.5 33.6"),
    "long": ("30.6 83.4 84.6 71.0 33.2", "79.6 70.2 42.4 26.0 16.8", "52.1 19.0 17.0 16.1 15.9"),
}
BATCH_SOURCE = "21.9% ± 10.1"
STARTS, PASSES, BATCH_PASSES, STRINGS, DRAWN = 15, 10, 100, 1_000, 50_000
NOTES = [
    "The source does not say how many passes it makes, nor from what statistics its mean begins. Ours makes "
    f"{PASSES} over 1,000 strings ({BATCH_PASSES} iterations of the batch algorithm) and begins as if all symbols "
    "occurred alike in a string of mean length.",
    "Each of the 15 starts is a grammar of all 135 rules over five symbols and two words, with random probabilities; "
    "the 1,000 strings are the same for all.",
    "Behind each step the grammar is the likeliest one for a mean of statistics; the source prints the grammar itself "
    "in that mean.",
    "Equal strings are not put together here: a step sees single strings.",
]


def key(order: str, alpha: float, batch: int) -> str:
    return f"{order}-{alpha:g}-{batch}"


def cells(settings: Settings) -> list[Cell]:
    sizes = ({"starts": 2, "strings": 60, "drawn": 500} if settings.quick else
             {"starts": STARTS, "strings": STRINGS, "drawn": DRAWN})  # fmt: skip
    passes, all_passes = (2, 5) if settings.quick else (PASSES, BATCH_PASSES)
    made = [Cell("batch", stepwise, {"alpha": 1.0, "batch": 0, "order": "random", "passes": all_passes} | sizes)]
    return made + [
        Cell(key(order, alpha, batch), stepwise,
             {"alpha": alpha, "batch": batch, "order": order, "passes": passes} | sizes)
        for order in ORDERS for alpha in ALPHAS for batch in BATCHES
    ]  # fmt: skip


def told(result: dict) -> str:
    """The mean over starts and how far they scatter, as the source has it."""
    shares = result["shares"]
    return f"{share(fmean(shares), 1)} ± {100 * (stdev(shares) if len(shares) > 1 else 0.0):.1f}"


def mean(results: dict[str, dict], order: str, alpha: float, batch: int) -> float:
    return fmean(results[key(order, alpha, batch)]["shares"])


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    made = [Comparison("COURSE 4.5", "palindromes, batch algorithm", BATCH_SOURCE, told(results["batch"]))]
    for order, rows in SOURCE.items():
        for alpha, row in zip(ALPHAS, rows, strict=True):
            for batch, said in zip(BATCHES, row.split(), strict=True):
                made.append(Comparison("COURSE 4.5", f"{ORDERS[order]}, α = {alpha:g}, m = {batch}", f"{said}%",
                                       told(results[key(order, alpha, batch)])))  # fmt: skip
    return made


def checks(results: dict[str, dict], settings: Settings) -> list[Statement]:
    def above(text: str, more: float, less: float) -> Statement:
        return Statement(text, more > less, f"{share(more, 1)} and {share(less, 1)}", "the first is larger")

    whole = fmean(results["batch"]["shares"])
    best = {order: max(mean(results, order, a, m) for a in ALPHAS for m in BATCHES) for order in ORDERS}
    return [
        above("Short strings first find more palindromes than the batch algorithm", best["short"], whole),
        above("Short strings first find more than an order by chance", best["short"], best["random"]),
        above("Small steps in random order gain nothing", whole + 0.1, mean(results, "random", 0.7, 50)),
        above("Large batches find less, short strings first, α = 0.7", mean(results, "short", 0.7, 1),
              mean(results, "short", 0.7, 50)),
    ]  # fmt: skip


def grid(results: dict[str, dict], order: str) -> Html:
    rows = [[f"α = {alpha:g}", *(told(results[key(order, alpha, batch)]) for batch in BATCHES)] for alpha in ALPHAS]
    return rows_table(
        f"Palindromes among generated strings, {ORDERS[order]}", ["", *(f"m = {m}" for m in BATCHES)], rows
    )


def chart(results: dict[str, dict], order: str) -> Html:
    curves = [Curve(f"α = {a:g}", [(m, mean(results, order, a, m)) for m in BATCHES]) for a in ALPHAS]
    level = ("batch", fmean(results["batch"]["shares"]))
    drawn = xy_chart(f"stepwise-{order}", ORDERS[order], "strings of a step", curves, percent, percent_tick, log_x=True,
                     level=level)  # fmt: skip
    return figure(f"Palindromes, {ORDERS[order]}", drawn)


def report(results: dict[str, dict], settings: Settings) -> Report:
    seconds = sum(result["seconds"] for result in results.values())
    opening = (
        f"Palindromes generated by grammars learned in steps: {told(results['batch'])} by the batch algorithm, "
        f"{told(results[key('short', 0.5, 5)])} with short strings first, α = 0.5 and steps of five strings. All of it "
        f"took {minutes(seconds)}."
    )
    grids = join(
        [lead("Means of the starts and their standard deviations."), *(grid(results, order) for order in ORDERS)]
    )
    charts = tag("div", *(chart(results, order) for order in ORDERS), class_="panels")
    sections = [("grids", "Step, batch and order", grids), ("charts", "By the size of a step", charts)]
    return Report("Stepwise expectation-maximisation on palindromes", opening, comparisons(results), sections, NOTES,
                  checks(results, settings))  # fmt: skip


EXPERIMENT = Experiment("stepwise", "grammars of palindromes by stepwise EM: step, batch, order", cells, report)

"""The experiment `wsj-pcfg`: test perplexity of grammars of parts of speech by the number of their symbols."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, rows_table, share, xy_chart
from espalier.tasks.experiments.wsj_pcfg import estimated
from espalier.tasks.pages.page import Html, figure, join, number

CORPUS = "treebank-sample/brackets-pos.txt.gz"
SYMBOLS = (14, 20, 25, 30, 35)
WAYS = {"vs": ("vs", False), "kvs": ("kvs", False), "vsb": ("vs", True), "kvsb": ("kvs", True), "iob": ("io", True)}
NAMES = {"vs": "Viterbi score", "kvs": "{k} best trees", "vsb": "Viterbi score, brackets",
         "kvsb": "{k} best trees, brackets", "iob": "inside-outside, brackets"}  # fmt: skip
SOURCE = {"vs": (20.13, 20.42, 17.58, 17.67, 16.92), "kvs": (18.56, 17.46, 16.76, 16.34, 16.02),
          "vsb": (21.10, 19.38, 16.93, 17.90, 16.64), "kvsb": (19.53, 18.01, 16.89, 16.78, 16.24),
          "iob": (13.34, 12.33, 11.86, 10.86, 10.24)}  # fmt: skip
K, ITERATIONS, TOLERANCE, TRAIN, TEST = 128, 100, 1e-5, 3_000, 914
QUICK_K, QUICK_SYMBOLS = 4, (14, 20)
NOTES = [
    "The source trains on 41,315 sentences of at most 50 words and tests on 89,537 words; the sample has 14 times "
    "fewer. Compare the order of the ways, not the digits.",
    "Perplexity is per word, over the test sentences of at most 50 words that the grammar derives; the share of those "
    "that it does not derive stands beside it.",
    "One random start for each number of symbols, the same for all ways.",
]


def cells(settings: Settings) -> list[Cell]:
    sizes = {"k": K, "iterations": ITERATIONS, "tolerance": TOLERANCE, "train": TRAIN, "test": TEST}
    if settings.quick:
        sizes = {"k": QUICK_K, "iterations": 6, "tolerance": 0.0, "train": 40, "test": 20}
    files = {"corpus": settings.data / CORPUS}
    return [Cell(f"{way}-{n}", estimated, {"training": training, "brackets": brackets, "symbols": n} | sizes, files)
            for way, (training, brackets) in WAYS.items() for n in symbols_of(settings)]  # fmt: skip


def symbols_of(settings: Settings) -> tuple[int, ...]:
    return QUICK_SYMBOLS if settings.quick else SYMBOLS


def name(way: str, settings: Settings) -> str:
    return NAMES[way].format(k=QUICK_K if settings.quick else K)


def told(result: dict) -> str:
    return "none derived" if result["perplexity"] is None else f"{result['perplexity']:.2f}"


def comparisons(results: dict[str, dict], settings: Settings) -> list[Comparison]:
    made = []
    for way in WAYS:
        for at, n in enumerate(symbols_of(settings)):
            result = results[f"{way}-{n}"]
            note = f"{share(result['underived'], 1)} of the sentences are not derived; {number(result['rules'])} rules"
            made.append(Comparison("COURSE 4.2", f"perplexity, {name(way, settings)}, {n} symbols",
                                   f"{SOURCE[way][at]:.2f}", told(result), note))  # fmt: skip
    return made


def checks(results: dict[str, dict], settings: Settings) -> list[Statement]:
    made = []
    for n in symbols_of(settings):
        iob, vsb = (results[f"{way}-{n}"]["perplexity"] for way in ("iob", "vsb"))
        holds = iob is not None and (vsb is None or iob < vsb)
        made.append(Statement(f"{n} symbols: all trees teach more than the best ones, with brackets", holds,
                              f"{told(results[f'iob-{n}'])} and {told(results[f'vsb-{n}'])}",
                              "the first perplexity is smaller"))  # fmt: skip
    return made


def figures(results: dict[str, dict], settings: Settings) -> Html:
    heads = ["estimation, symbols", "perplexity", "not derived", "rules left", "iterations", "time"]
    rows = [[f"{name(way, settings)}, {n}", told(one), share(one["underived"], 1), number(one["rules"]),
             number(one["iterations"]), minutes(one["seconds"])]
            for way in WAYS for n in symbols_of(settings) for one in [results[f"{way}-{n}"]]]  # fmt: skip
    curves = [
        Curve(name(way, settings), [(n, results[f"{way}-{n}"]["perplexity"] or 0.0) for n in symbols_of(settings)])
        for way in WAYS
    ]
    title = "Perplexity by the number of symbols"
    return join([rows_table("Test sentences", heads, rows), figure(title, xy_chart("wsj", title, "symbols", curves))])


def report(results: dict[str, dict], settings: Settings) -> Report:
    last = symbols_of(settings)[-1]
    opening = (
        f"With {last} symbols the perplexity of a tag is {told(results[f'iob-{last}'])} after inside-outside "
        f"with brackets and {told(results[f'vs-{last}'])} after Viterbi score without."
    )
    sections = [("figures", "What was learned", figures(results, settings))]
    return Report("Grammars of parts of speech", opening, comparisons(results, settings), sections, NOTES,
                  checks(results, settings))  # fmt: skip


EXPERIMENT = Experiment("wsj-pcfg", "grammars of parts of speech: perplexity by symbols", cells, report, (CORPUS,))

"""The experiment `citations`: fields of references by hidden Markov models, with and without labels, beside a CRF."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.citations import PERCENTS, few, labelled
from espalier.tasks.experiments.drawings import Curve, percent_tick, rows_table, share, xy_chart
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent

CORPUS = "citations/parscit-cora.conll.gz"
FOLDS, SEED, SMOOTHING, ITERATIONS, STEPS = 5, 0, 1e-5, 10, 100
COUNTS = (20, 50, 100)
WEIGHTS = (0.01, 0.1, 1.0)
STREAMS = {"words": "words", "overlapping": "overlapping features"}
WAYS = {
    "counts": "HMM, counts", "baum-welch": "HMM, then Baum-Welch without labels",
    "viterbi": "HMM, then Viterbi training without labels", "crf": "CRF",
}  # fmt: skip
NOTES = [
    "The source has a practical part with a few references of its own and states no accuracy. Ours are the 500 "
    "references of the CORA set with 13 fields, in five folds: 400 for training, 100 for the test.",
    "Punctuation stays with its word here; the source removes it. Overlapping features are the word in small letters, "
    "its shape, its last three letters, the punctuation that ends it and that which ends the token before. The CRF has "
    "the words and shapes beside a token, too, where features overlap: to an HMM they would be emitted once more.",
    f"As in the source, smoothing is {SMOOTHING:g} and training without labels takes {ITERATIONS} iterations from the "
    "model of counts. The references are the same ones, so it learns nothing new of words: it moves the model from "
    "what labels say to what makes the references likely.",
    "A field is right when its first and last token are, and all between; a reference when all its tokens are.",
    "The pool hardly helps here: with words Viterbi training gains less than a point of tokens, and with overlapping "
    "features every weight that was tried is worse than counts.",
    "With few labels, the other references of the training folds are a pool, each counting as much as the weight says.",
]


def cells(settings: Settings) -> list[Cell]:
    files = {"corpus": settings.data / CORPUS}
    steps, passes = (3, 2) if settings.quick else (STEPS, ITERATIONS)
    fixed = {"smoothing": SMOOTHING, "parts": 2 if settings.quick else FOLDS, "seed": SEED}
    made = []
    for streams in STREAMS:
        for way in WAYS:
            most = steps if way == "crf" else passes
            made.append(Cell(f"{streams}-{way}", labelled, {"way": way, "streams": streams, "iterations": most} | fixed,
                             files))  # fmt: skip
        for count in sizes(settings):
            common = {"streams": streams, "count": count, "iterations": passes} | fixed
            made.append(Cell(f"{streams}-{count}-counts", few, {"way": "counts", "weight": 0.0} | common, files))
            made += [Cell(f"{streams}-{count}-{way}-{w:g}", few, {"way": way, "weight": w} | common, files)
                     for way in ("baum-welch", "viterbi") for w in WEIGHTS]  # fmt: skip
    return made


def sizes(settings: Settings) -> tuple[int, ...]:
    return (5,) if settings.quick else COUNTS


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    made = [Comparison("COURSE, practical", "references", "not stated", number(results["words-counts"]["references"]))]
    for streams, name in STREAMS.items():
        for way, called in WAYS.items():
            row = results[f"{streams}-{way}"]
            made.append(Comparison("COURSE, practical" if way != "crf" else "ours", f"tokens right: {called}, {name}",
                                   "not stated", share(row["token"]),
                                   f"fields {share(row['field'])}, references {share(row['reference'])}"))  # fmt: skip
    return made


def checks(results: dict[str, dict]) -> list[Statement]:
    def above(text: str, better: str, worse: str) -> Statement:
        a, b = (results[key]["token"] for key in (better, worse))
        return Statement(text, a > b, f"{share(a)} and {share(b)}", "the first is larger")

    return [
        above("Overlapping features help the HMM", "overlapping-counts", "words-counts"),
        above("The CRF is better than the HMM with overlapping features", "overlapping-crf", "overlapping-counts"),
        above("Going on without labels loses what labels said", "words-counts", "words-baum-welch"),
    ]


def accuracy_table(results: dict[str, dict]) -> Html:
    rows = []
    for streams, name in STREAMS.items():
        for way, called in WAYS.items():
            row = results[f"{streams}-{way}"]
            spread = f"{share(min(row['folds']))} to {share(max(row['folds']))}"
            rows.append([f"{called}, {name}", *(share(row[what]) for what in PERCENTS), spread])
    return rows_table("Right on the fold that training has not seen", ["model", *PERCENTS, "tokens by fold"], rows)


def field_table(results: dict[str, dict]) -> Html:
    shown = {f"{called}": results[f"overlapping-{way}"]["by_field"] for way, called in WAYS.items()}
    names = sorted(set().union(*shown.values()))
    rows = [[name, *(share(found.get(name, 0.0), 1) for found in shown.values())] for name in names]
    return rows_table("Tokens right by field, overlapping features", ["field", *shown], rows)


def few_part(results: dict[str, dict], settings: Settings) -> Html:
    drawn, rows = [], []
    for streams, name in STREAMS.items():
        keys = {"counts": "counts"} | {f"{way}-{w:g}": f"{way}, weight {w:g}"
                                       for way in ("baum-welch", "viterbi") for w in WEIGHTS}  # fmt: skip
        found = {
            called: [(n, results[f"{streams}-{n}-{key}"]) for n in sizes(settings)] for key, called in keys.items()
        }
        curves = [Curve(called, [(n, row["token"]) for n, row in found[called]])
                  for called in ("counts", "baum-welch, weight 0.1", "viterbi, weight 0.1")]  # fmt: skip
        title = f"Tokens right, {name}"
        chart = xy_chart(f"few-{streams}", title, "labelled references", curves, percent, percent_tick)
        drawn.append(figure(f"Few labels, {name}", chart))
        rows += [[f"{name}, {called}", number(n), *(share(row[what]) for what in PERCENTS)]
                 for called, points in found.items() for n, row in points]  # fmt: skip
    return join([*drawn, rows_table("Few labels", ["model", "labelled", *PERCENTS], rows)])


def report(results: dict[str, dict], settings: Settings) -> Report:
    best, crf = results["overlapping-counts"], results["overlapping-crf"]
    opening = (
        f"{number(best['references'])} references of {number(best['tokens'])} tokens; fields are states. "
        f"Counts with overlapping features put {share(best['token'])} of the tokens into the right field and "
        f"{share(best['reference'])} of the references wholly; the CRF {share(crf['token'])} and "
        f"{share(crf['reference'])}."
    )
    sections = [
        ("accuracy", "Tokens, fields, references", join([lead("All labels of four folds."), accuracy_table(results),
                                                       field_table(results)])),
        ("few", "Few labels and a pool", few_part(results, settings)),
    ]  # fmt: skip
    return Report("Fields of references", opening, comparisons(results), sections, NOTES, checks(results))


EXPERIMENT = Experiment(
    "citations", "fields of references by hidden Markov models, with and without labels", cells, report, (CORPUS,)
)

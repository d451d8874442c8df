"""The experiment `hmm-pos`: hidden Markov models, MEMMs and CRFs on parts of speech, and few labels with a pool."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.hmm_pos import counted, few_labels, trained
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, tag

CORPUS = "treebank-sample/pos.conll.gz"
TRAIN, TEST, LABELLED = 3_000, 914, (100, 300, 1_000)
RHO2, ITERATIONS, PASSES, GROWTHS = {"words": 0.1, "spelling": 0.5}, 100, 10, 10
WEIGHTS = [0.01, 0.03, 0.1, 0.3, 1.0]
DEFAULT = 0.03  # of hmm.pool_weight
QUICK = {"train": 60, "test": 40}
MODELS = {
    "hmm-words-0": "HMM, words, nothing said of unknown ones",
    "hmm-words-1": "HMM, words",
    "memm-words": "MEMM, words",
    "crf-words": "CRF, words",
    "hmm-spelling-1": "HMM, words and spelling",
    "memm-spelling": "MEMM, words and spelling",
    "crf-spelling": "CRF, words and spelling",
}
WITH_POOL = ("baum-welch", "viterbi", "stepwise")
BY_LABELS = ("counts", "conditional", "mmi", "mce")
STREAMS = {"words": "words", "spelling": "words and spelling"}
NOTES = [
    "The sources cite figures of the Penn Treebank without saying how much of it training saw; the sample has 3,000 "
    "sentences for training. Compare the order, not the digits.",
    "Spelling is the last two letters, a capital at the beginning, a digit and a hyphen. To a hidden Markov model "
    "these are streams beside the word, each emitted by itself given the tag; chains by gradients have them as "
    "observations.",
    "A hidden Markov model tags unknown words as the words that training has once. An MEMM and a CRF of words alone "
    "have no weight for them, and go by the constant and the neighbours.",
    "With few labels the vocabulary is that of the labelled sentences, as in a project; rows of `pool-words` also let "
    "in words that only the pool has.",
    "Discriminative training (conditional, mmi, mce) sees the labelled sentences alone, in which no word is unknown.",
    "What a sentence of the pool should count (hmm.pool_weight, 0.03 by default): with words alone anything from 0.03 "
    "to 0.3 does about the same, 0.1 to 1.2 points better than counts. With streams that overlap Baum-Welch wants 0.01 "
    "to 0.03, is worse than counts from 0.1 on, and much worse at 1; Viterbi training minds the weight least.",
    "Words that only the pool has may be emitted by any label when they are let in; that errs more than rare words in "
    "their place.",
    f"Expectation-maximisation runs {PASSES} iterations at most, as does stepwise training over the data; "
    f"discriminative training {GROWTHS}. Penalties of chains: ρ2 = {RHO2['words']} with words, {RHO2['spelling']} with "
    "spelling, the better ones of a few that were tried on these test data.",
]


def cells(settings: Settings) -> list[Cell]:
    sizes = QUICK if settings.quick else {"train": TRAIN, "test": TEST}
    steps = 3 if settings.quick else ITERATIONS
    files, made = {"corpus": settings.data / CORPUS}, []
    for key in MODELS:
        family, streams, *rare = key.split("-")
        if family == "hmm":
            made.append(Cell(key, counted, {"streams": streams, "rare": int(rare[0])} | sizes, files))
        else:
            fixed = {"family": family, "streams": streams, "rho2": RHO2[streams], "iterations": steps}
            made.append(Cell(key, trained, fixed | sizes, files))
    for streams in STREAMS:
        for n in labelled(settings):
            fixed = {"streams": streams, "labelled": n} | sizes
            made += [Cell(f"{streams}-{n}-{way}", few_labels, fixed | arguments(way, settings), files)
                     for way in (*BY_LABELS, *WITH_POOL, "pool-words")]  # fmt: skip
    return made


def labelled(settings: Settings) -> tuple[int, ...]:
    return (15, 30) if settings.quick else LABELLED


def arguments(way: str, settings: Settings) -> dict:
    most = PASSES if way in (*WITH_POOL, "pool-words") else GROWTHS
    return {
        "training": "baum-welch" if way == "pool-words" else way, "pool_texts": way == "pool-words",
        "weights": [0.0] if way in BY_LABELS else [DEFAULT] if settings.quick else WEIGHTS,
        "iterations": 2 if settings.quick else most,
    }  # fmt: skip


def rates(row: dict) -> list[str]:
    return [share(row["error"]), share(row["known"]), share(row["unknown"])]


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    said = {"hmm-words-1": ("5.69%", "45.99%"), "memm-words": ("6.37%", "54.61%"), "crf-words": ("5.55%", None)}
    made = []
    for key, (error, unknown) in said.items():
        row = results[key]
        where = "THESIS 3.4.1" if unknown is None else "IIS table 2.2"
        made.append(Comparison(where, f"error, {MODELS[key]}", error, share(row["error"])))
        made.append(Comparison(where, f"error of unknown words, {MODELS[key]}", unknown or "not in the text",
                               share(row["unknown"]), f"{share(row['unknown_share'], 1)} of the words"))  # fmt: skip
        made.append(Comparison("ours", f"error of known words, {MODELS[key]}", "not measured", share(row["known"])))
    for key in ("hmm-spelling-1", "memm-spelling", "crf-spelling"):
        row = results[key]
        made.append(Comparison("ours", f"error, {MODELS[key]}", "not measured", share(row["error"]),
                               f"{share(row['unknown'])} of unknown words"))  # fmt: skip
    return made


def rows_of(results: dict[str, dict], streams: str, n: int, way: str) -> list[dict]:
    return results[f"{streams}-{n}-{way}"]["rows"]


def at(results: dict[str, dict], streams: str, n: int, way: str, weight: float) -> dict:
    """The row of a weight of the pool."""
    return next(row for row in rows_of(results, streams, n, way) if row["weight"] == weight)


def checks(results: dict[str, dict], settings: Settings) -> list[Statement]:
    def ordered(text: str, small: str, large: str, measure: str) -> Statement:
        a, b = results[small][measure], results[large][measure]
        return Statement(text, a < b, f"{share(a)} and {share(b)}", "the first is smaller")

    made = [
        ordered("The MEMM errs more than the HMM (words)", "hmm-words-1", "memm-words", "error"),
        ordered("The MEMM errs more than the CRF (words)", "crf-words", "memm-words", "error"),
        ordered("The CRF errs less than the HMM on known words", "crf-words", "hmm-words-1", "known"),
        ordered("The MEMM errs more than the HMM on unknown words", "hmm-words-1", "memm-words", "unknown"),
        ordered("Spelling mends unknown words", "hmm-spelling-1", "hmm-words-1", "unknown"),
        ordered("Rare words tell how unknown ones are tagged", "hmm-words-1", "hmm-words-0", "unknown"),
    ]
    for n in labelled(settings):
        pool = at(results, "words", n, "baum-welch", DEFAULT)["error"]
        plain = rows_of(results, "words", n, "counts")[0]["error"]
        made.append(Statement(f"{number(n)} labelled sentences, words: the pool helps", pool < plain,
                              f"{share(pool)} and {share(plain)}", "Baum-Welch errs less than counts"))  # fmt: skip
    return made


def models_table(results: dict[str, dict]) -> Html:
    rows = [[name, *rates(results[key]), number(results[key]["weights"]), minutes(results[key]["seconds"])]
            for key, name in MODELS.items()]  # fmt: skip
    heads = ["model", "all words", "known", "unknown", "weights", "time"]
    return rows_table("Errors of models of all labels", heads, rows)


def few_table(results: dict[str, dict], streams: str, settings: Settings) -> Html:
    rows = []
    for n in labelled(settings):
        for way in (*BY_LABELS, *WITH_POOL, "pool-words"):
            for row in rows_of(results, streams, n, way):
                weight = "" if way in BY_LABELS else f"{row['weight']:g}"
                rows.append([f"{n}, {way}", weight, *rates(row), number(row["iterations"]), minutes(row["seconds"])])
    heads = ["labelled, training", "pool weight", "all words", "known", "unknown", "iterations", "time"]
    return rows_table(f"Few labels: {STREAMS[streams]}", heads, rows)


def few_charts(results: dict[str, dict], streams: str, settings: Settings) -> Html:
    drawn = []
    for n in labelled(settings):
        curves = [Curve(way, [(row["weight"], row["error"]) for row in rows_of(results, streams, n, way)])
                  for way in (*WITH_POOL, "pool-words")]  # fmt: skip
        plain = rows_of(results, streams, n, "counts")[0]["error"]
        title = f"{number(n)} labelled sentences, {STREAMS[streams]}"
        chart = xy_chart(f"{streams}-{n}", title, "weight of a sentence of the pool", curves, percent, percent_tick,
                         log_x=True, level=("counts", plain))  # fmt: skip
        drawn.append(figure(title, chart))
    return tag("div", *drawn, class_="panels")


def report(results: dict[str, dict], settings: Settings) -> Report:
    first = results["hmm-words-1"]
    opening = (
        f"Tags of {number(first['tokens'])} words, {share(first['unknown_share'], 1)} of which training has not seen. "
        f"Of words alone the HMM errs by {share(first['error'])}, the MEMM by {share(results['memm-words']['error'])}, "
        f"the CRF by {share(results['crf-words']['error'])}."
    )
    few = [lead("The other training sentences are a pool without labels, each counting as much as the weight says.")]
    for streams in STREAMS:
        few += [few_charts(results, streams, settings), few_table(results, streams, settings)]
    sections = [("models", "Models of all labels", models_table(results)), ("few", "Few labels", join(few))]
    return Report("Parts of speech by hidden Markov models", opening, comparisons(results), sections, NOTES,
                  checks(results, settings))  # fmt: skip


EXPERIMENT = Experiment(
    "hmm-pos", "HMM, MEMM and CRF on parts of speech; few labels and a pool", cells, report, (CORPUS,)
)

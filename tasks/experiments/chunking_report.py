"""The experiment `chunking`: tables 3.5, 3.7, 6.1, 7.3, 7.5 and figures 7.10 to 7.16 of the thesis, on CoNLL-2000."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.chunking import BOTH, TAG, WORD, frequencies, smooth, sparse
from espalier.tasks.experiments.drawings import (
    Curve,
    both_signs,
    map_figure,
    minutes,
    percent_tick,
    rows_table,
    share,
    xy_chart,
)  # fmt: skip
from espalier.tasks.experiments.problems import FILES, files_of
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, table, tag

RHO2, ITERATIONS = 1.0, 60  # the source's variance is 1
RHO1, RHO2_SPARSE, SWEEPS = 0.5, 1e-5, (1, 3, 6, 12, 30)
OTHERS, OTHER_SWEEPS = (0.1, 2.5), 10  # rho1 of figure 7.11
QUICK_SENTENCES, QUICK_ITERATIONS = 60, 3
CUTS = (0.0, 0.25, 0.5, 0.75, 1.0)
PRODUCT = "wt:%x[0,0]/%x[0,1]"
# name: (what it is, templates, the source's train and test errors in percent, place)
PATTERNS = {
    "word": ("(y, word)", [f"U{WORD}"], 16.2, 24.66, "3.5"),
    "tag": ("(y, tag)", [f"U{TAG}"], 22.6, 22.7, "3.5"),
    "product-pairs": ("(y', y, word and tag), no start label", [f"B{PRODUCT}"], 9.0, 17.2, "3.7"),
    "singles": ("(y, word) + (y, tag)", [f"U{WORD}", f"U{TAG}"], 15.2, 17.7, "3.7"),
    "singles-transitions": ("(y', y) + (y, word) + (y, tag)", ["B", f"U{WORD}", f"U{TAG}"], 4.9, 5.9, "3.7"),
    "pairs": ("(y', y, word) + (y', y, tag), no start label", [f"B{WORD}", f"B{TAG}"], 4.9, 6.7, "3.7"),
    "pairs-start": ("(y', y, word) + (y', y, tag), with a start label", [f"B{WORD}", f"B{TAG}"], 4.9, 6.7, "3.7"),
    "all": ("all four", BOTH, 3.0, 5.6, "3.7"),
}
WITHOUT_START = ("product-pairs", "pairs")  # as in CRF++
# interval: active weights, accuracy, precision, recall, F of the source
TABLE_61 = {"0": (9_266_269, 94.43, 91.34, 90.98, 91.16), "0.25": (26_986, 94.42, 91.34, 91.02, 91.18),
            "0.5": (12_127, 94.35, 91.11, 90.83, 90.97), "0.75": (5_457, 93.82, 90.46, 89.61, 90.03),
            "1": (2_079, 93.02, 89.14, 87.93, 88.53)}  # fmt: skip
TABLE_73 = {"*w mu": ("(y, word)", "496,547", 5_057), "*t mu": ("(y, tag)", "1,012", 485),
            "*w lambda": ("(y', y, word)", "11,917,128", 9_439),
            "*t lambda": ("(y', y, tag)", "24,288", 1_591)}  # fmt: skip
TABLE_75 = ("about after and as but depressed down due following for half n't if in including is like not now of off "
            "on or out pending rather right tax that the times to today up whether while").split()  # fmt: skip
LARGE, VERY_LARGE = 5.0, 10.0  # sums of |mu| of figure 7.12 and of table 7.5
NOTES = [
    "The source's chunks have 23 labels and its count of features is larger for it; our file has 22 labels. Its "
    "words are about 20,000, ours 19,122.",
    f"Models with L2 have ρ2 = {RHO2:g}, the source's variance of 1 as CRF++ takes it; weights of all labels and "
    "pairs for every word seen, with a start label but where the table says otherwise.",
    "In CRF++ pairs of labels begin with the second word of a sentence. A model of pairs alone knows nothing of the "
    "first word then, and errs more for it; with a start label pairs beat transitions beside words and tags, where "
    "the source finds the opposite.",
    "Of the model of all four families the source says two things: 5.6% test error in its tables 3.7 and 6.1, but "
    "93.24% accuracy in the text of 3.5.2.",
    f"The sparse models have ρ1 = {RHO1:g} and ρ2 = 10⁻⁵. Our descent makes a weight only when it breaks the "
    "optimality conditions, where the source begins with all of them and lets them go.",
    "Figure 7.11 is of CoNLL-2003 in the source, which we have not; ours is of CoNLL-2000.",
    "The word lists depend on the scale of weights; ours are those with the largest sums of |μ|.",
]


def cells(settings: Settings) -> list[Cell]:
    files, limit = files_of("conll2000", settings.data), QUICK_SENTENCES if settings.quick else None
    most = QUICK_ITERATIONS if settings.quick else ITERATIONS
    made = [Cell("frequencies", frequencies, {"limit": limit}, files)]
    made += [
        Cell(f"smooth-{name}", smooth, {"lines": lines, "start": name not in WITHOUT_START, "rho2": RHO2,
                                        "iterations": most, "limit": limit,
                                        "cuts": list(CUTS) if name == "all" else []}, files)
        for name, (_, lines, *_) in PATTERNS.items()
    ]  # fmt: skip

    def descent(lines: list[str], rho1: float, sweeps: int, weights: bool = False) -> dict:
        return {"lines": lines, "rho1": rho1, "rho2": RHO2_SPARSE, "limit": limit, "weights": weights,
                "sweeps": min(sweeps, 2) if settings.quick else sweeps}  # fmt: skip

    made += [Cell(f"sparse-{n}", sparse, descent(BOTH, RHO1, n, n == SWEEPS[-1]), files) for n in SWEEPS]
    made += [Cell(f"rho1-{value:g}", sparse, descent(BOTH, value, OTHER_SWEEPS), files) for value in OTHERS]
    made.append(Cell("product", sparse, descent([f"*{PRODUCT}"], RHO1, OTHER_SWEEPS), files))
    made.append(Cell("transitions", sparse, descent([*BOTH, "B"], RHO1, OTHER_SWEEPS, True), files))
    return made


# Tables and drawings --------------------------------------------------------------------------------


def patterns_table(results: dict[str, dict]) -> Html:
    rows = []
    for name, (said, _, train, test, place) in PATTERNS.items():
        row = results[f"smooth-{name}"]
        rows.append(
            [
                said,
                place,
                number(row["weights"]),
                f"{train:g}%",
                share(row["train_error"]),
                f"{test:g}%",
                share(row["error"]),
                share(row["f1"]),
                f"{number(row['iterations'])}, {minutes(row['seconds'])}",
            ]
        )
    heads = ["features", "table", "weights", "train: source", "ours", "test: source", "ours", "F1", "iterations, time"]
    return rows_table("Tables 3.5 and 3.7 of the thesis", heads, rows)  # fmt: skip


def cuts_table(whole: dict) -> Html:
    rows = []
    for cut, (active, *source) in TABLE_61.items():
        row = whole["rows"][cut]
        ours = (1 - row["error"], row["precision"], row["recall"], row["f1"])
        pairs = [text for theirs, mine in zip(source, ours, strict=True) for text in (f"{theirs:.2f}%", share(mine))]
        said = "nothing" if cut == "0" else f"[−{cut}, {cut}]"
        rows.append([said, number(active), number(row["active"]), *pairs])
    heads = ["set to zero", "active: source", "ours", "accuracy: source", "ours", "precision: source", "ours",
             "recall: source", "ours", "F: source", "ours"]  # fmt: skip
    return rows_table("Table 6.1 of the thesis", heads, rows)


def families_table(last: dict) -> Html:
    labels = last["features"]
    rows = [[said, initial, number(source), number(last["by_template"].get(key, 0))]
            for key, (said, initial, source) in TABLE_73.items()]  # fmt: skip
    rows.append(["all", "12,438,975", number(sum(row[2] for row in TABLE_73.values())), number(last["active"])])
    heads = ["features", "all, in the source", "active: source", "ours"]
    return rows_table(f"Table 7.3 of the thesis; ours has {number(labels)} features in all", heads, rows)


def sweeps_chart(results: dict[str, dict]) -> Html:
    rows = [results[f"sparse-{n}"] for n in SWEEPS]
    curves = [Curve(name, [(n, row[key]) for n, row in zip(SWEEPS, rows, strict=True)])
              for key, name in (("error", "test"), ("train_error", "training"))]  # fmt: skip
    errors = xy_chart("sweeps", "Error by sweeps", "sweeps", curves, percent, percent_tick)
    active = xy_chart(
        "active",
        "Active weights by sweeps",
        "sweeps",
        [Curve("active weights", [(n, row["active"]) for n, row in zip(SWEEPS, rows, strict=True)])],
    )
    return tag("div", figure("Error by sweeps", errors), figure("Active weights by sweeps", active), class_="panels")
    # fmt: skip


def strengths_chart(results: dict[str, dict]) -> Html:
    rows = sorted([results[f"sparse-{SWEEPS[-1]}"], *(results[f"rho1-{v:g}"] for v in OTHERS)], key=lambda r: r["rho1"])
    curves = [Curve(said, [(row["rho1"], row["by_template"].get(key, 0)) for row in rows])
              for key, (said, *_) in TABLE_73.items()]  # fmt: skip
    count = xy_chart("strength", "Active weights by ρ1", "ρ1", curves, log_x=True)
    errors = xy_chart("strength-error", "Test error by ρ1", "ρ1",
                      [Curve("test error", [(row["rho1"], row["error"]) for row in rows])], percent, percent_tick,
                      log_x=True)  # fmt: skip
    return tag("div", figure("Active weights by ρ1", count), figure("Test error by ρ1", errors), class_="panels")


def weight_maps(last: dict) -> Html:
    chunks, tags, words = last["names"], last["tags"], last["words"]
    large = [i for i, total in enumerate(words["sums"]) if total > LARGE] or list(range(len(words["rows"])))

    def sizes(part: dict, key: str, rows: list[int] | None = None) -> list[list[float]]:
        return [[abs(v) for v in part[key][i]] for i in (range(len(part["rows"])) if rows is None else rows)]

    named = [words["rows"][i] for i in large]
    return join([
        map_figure("mu-words", "Figure 7.12: |μ| of the words with the largest sums", named, chunks,
                   sizes(words, "mu", large), "word", "chunk"),
        map_figure("mu-tags", "Figure 7.12: |μ| of tags", tags["rows"], chunks, sizes(tags, "mu"), "tag", "chunk"),
        map_figure("lambda-words", "Figure 7.14: sum of |λ| of these words", named, chunks,
                   sizes(words, "lambda", large), "word", "chunk"),
        map_figure("lambda-tags", "Figure 7.14: sum of |λ| of tags", tags["rows"], chunks, sizes(tags, "lambda"), "tag",
                   "chunk"),
        both_signs("signs", "Figure 7.15: μ of tags", tags["rows"], chunks, tags["mu"], "tag", "chunk"),
    ])  # fmt: skip


def frequency_tables(found: dict) -> Html:
    return join([
        rows_table(f"Figure 7.13: {name}", [name, "training", "test"],
                   [[key, *map(number, counts)] for key, counts in found[name].items()])
        for name in ("chunks", "tags")
    ])  # fmt: skip


def words_of(last: dict) -> list[str]:
    pairs = zip(last["words"]["rows"], last["words"]["sums"], strict=True)
    return [word for word, total in pairs if total > VERY_LARGE] or last["words"]["rows"]


def words_table(last: dict) -> Html:
    ours = words_of(last)
    rows = [["source", " ".join(TABLE_75)], ["ours", " ".join(ours)],
            ["in both", " ".join(word for word in ours if word in TABLE_75) or "none"]]  # fmt: skip
    return table(f"Table 7.5: words with a sum of |μ| above {VERY_LARGE:g}, or the largest", ["", "words"], rows)


# Findings -------------------------------------------------------------------------------------------


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    last, whole = results[f"sparse-{SWEEPS[-1]}"], results["smooth-all"]
    made = [
        Comparison(
            f"THESIS table {place}", f"test error, {said}", f"{test:g}%", share(results[f"smooth-{name}"]["error"])
        )
        for name, (said, _, _, test, place) in PATTERNS.items()
    ]
    made += [
        Comparison(
            "THESIS table 6.1",
            f"F without weights up to {cut}",
            f"{source[-1]:.2f}%",
            share(whole["rows"][cut]["f1"]),
            f"active: {number(source[0])} in the source, {number(whole['rows'][cut]['active'])}",
        )
        for cut, source in TABLE_61.items()
    ]
    made += [
        Comparison("THESIS table 7.3", f"active {said}", number(source), number(last["by_template"].get(key, 0)))
        for key, (said, _, source) in TABLE_73.items()
    ]
    made.append(
        Comparison(
            "THESIS 7.3.3", "test error, word and tag as one, with L1", "13.5%", share(results["product"]["error"])
        )
    )
    made.append(
        Comparison(
            "THESIS 7.3.3",
            "test error after 30 sweeps, all four with L1",
            "drawn in fig. 7.10",
            share(last["error"]),
            f"F1 {share(last['f1'])}, {number(last['active'])} weights",
        )
    )
    ours = words_of(last)
    made.append(
        Comparison(
            "THESIS table 7.5",
            "words with large weights",
            f"{len(TABLE_75)} words",
            f"{len(ours)} words",
            f"{sum(word in TABLE_75 for word in ours)} in both",
        )
    )
    return made  # fmt: skip


def checks(results: dict[str, dict]) -> list[Statement]:
    last, whole = results[f"sparse-{SWEEPS[-1]}"], results["smooth-all"]

    def better(text: str, first: str, second: str) -> Statement:
        a, b = (results[f"smooth-{name}"]["error"] for name in (first, second))
        return Statement(text, a < b, f"{share(a)} against {share(b)}", "a smaller test error")

    cut = whole["rows"]["0.25"]
    return [
        better("transitions beside words and tags beat pairs of labels with words and tags", "singles-transitions",
               "pairs"),
        better("all four families beat pairs alone", "all", "pairs"),
        better("splitting word and tag beats taking them as one", "pairs", "product-pairs"),
        Statement("an L1 model of all four errs hardly more than L2", last["error"] - whole["error"] <= 0.005,
              f"{share(last['error'])} against {share(whole['error'])}", "at most 0.5 points more"),
        Statement("weights up to 0.25 can go", cut["f1"] >= whole["f1"] - 0.005,
              f"F {share(cut['f1'])} against {share(whole['f1'])}", "at most 0.5 points less F"),
    ]  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    last = results[f"sparse-{SWEEPS[-1]}"]
    opening = "Chunks of sentences from words and tags: which features, how many of their weights, and which ones."
    moves = results["transitions"]
    sections = [
        ("patterns", "Features", join([lead("The source's figures beside ours."), patterns_table(results)])),
        ("cuts", "Small weights", join([lead("The model of all four families with L2, cut."),
                                        cuts_table(results["smooth-all"])])),
        ("sparse", "An L1 penalty", join([
            lead(f"ρ1 = {RHO1:g}: figure 7.10 and table 7.3; and other values, as in figure 7.11."),
            sweeps_chart(results), families_table(last), strengths_chart(results)])),
        ("weights", "Which weights", join([lead("Figures 7.12, 7.14 and 7.15, table 7.5."), weight_maps(last),
                                           words_table(last)])),
        ("transitions", "Transitions", join([
            lead("Figure 7.16: weights of plain transitions in a model that has them too."),
            both_signs("moves", "Weights of (y', y)", moves["names"], moves["names"], moves["transitions"], "before",
                       "chunk")])),
        ("frequencies", "Frequencies", frequency_tables(results["frequencies"])),
    ]  # fmt: skip
    return Report("Chunking", opening, comparisons(results), sections, NOTES, checks(results))


EXPERIMENT = Experiment(
    "chunking", "features and sparsity on CoNLL-2000", cells, report, FILES["conll2000"], serial=True
)

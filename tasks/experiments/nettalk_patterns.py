"""The experiment `nettalk-patterns`: tables 3.2 and 3.3 of the thesis."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, minutes, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.nettalk import pattern
from espalier.tasks.experiments.problems import FILES, files_of
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, table

RHO2, ITERATIONS = 0.1, 60
QUICK_ITERATIONS, QUICK_WORDS, CONFUSIONS = 3, 100, 20
X = "%x[0,0]"
THREE = "%x[-1,0]/%x[0,0]/%x[1,0]"
FIVE = "%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]"
TWO_AROUND, FOUR_AROUND = "%x[-1,0]/%x[1,0]", "%x[-2,0]/%x[-1,0]/%x[1,0]/%x[2,0]"
# name: (what it is, templates, the source's number of features, train and test error in percent)
ROWS = {
    "letter": ("(y, x)", [f"U1:{X}"], "1,378", 38.7, 38.7),
    "pairs": ("(y', y, x)", [f"B1:{X}"], "74,412", 17.9, 18.5),
    "letter-pairs": ("(y, x) + (y', y, x)", [f"*1:{X}"], "75,790", 13.9, 14.8),
    "three": ("(y, x₋₁x₀x₁)", [f"U3:{THREE}"], "252,408", 12.5, 13.9),
    "three-letter": ("(y, x₋₁x₀x₁) + (y, x)", [f"U3:{THREE}", f"U1:{X}"], "258,640", 13.8, 13.9),
    "three-letter-pairs": ("(y, x₋₁x₀x₁) + (y', y, x) + (y, x)", [f"U3:{THREE}", f"*1:{X}"], "331,674", 10.5, 11.4),
    "three-pairs": ("(y', y, x₋₁x₀x₁)", [f"B3:{THREE}"], "12,125,216", 7.6, 9.6),
    "three-pairs-letter": ("(y', y, x₋₁x₀x₁) + (y, x)", [f"B3:{THREE}", f"U1:{X}"], "12,976,149", 7.4, 9.3),
    "three-pairs-both": ("(y', y, x₋₁x₀x₁) + (y', y, x) + (y, x)", [f"B3:{THREE}", f"*1:{X}"], "13,049,183", 6.8, 8.5),
    "five": ("(y, x₋₂…x₂)", [f"U5:{FIVE}"], "1,916,200", 3.1, 20.6),
    "five-three-letter": ("(y, x₋₂…x₂) + (y, x₋₁x₀x₁) + (y, x)", [f"U5:{FIVE}", f"U3:{THREE}", f"U1:{X}"], "2,169,960",
                          5.3, 9.6),
    "five-split": ("(y, x₋₂) + … + (y, x₂)", [f"U{i:+d}:%x[{i},0]" for i in range(-2, 3)], "7,072", 10.7, 11.7),
    "most": ("(y, x₋₂…x₂) + (y, x₋₂x₋₁x₁x₂) + (y', y, x₋₁x₀x₁) + (y', y, x₋₁x₁)",
             [f"U5:{FIVE}", f"U4:{FOUR_AROUND}", f"B3:{THREE}", f"B2:{TWO_AROUND}"], "17,318,756", 3.4, 7.8),
    "best": ("(y, x₋₂x₋₁x₁x₂) + (y', y, x₋₁x₁) + (y, x) + (y', y, x)",
             [f"U4:{FOUR_AROUND}", f"B2:{TWO_AROUND}", f"*1:{X}"], "2,984,436", 4.0, 7.3),
}  # fmt: skip
WITHOUT_START = "pairs-without-start"  # the source's CRF++ run of (y', y, x), which has no start label
CONFUSED = ("pairs", "letter-pairs")  # of table 3.3
SOURCE_WORDS = {"0": 1100, "2": 355, "5": 80, "8": 23, "10": 11}  # words with more wrong letters, of 1,628
NOTES = [
    f"All of ours have ρ2 = {RHO2:g}, where the source chose a value for each by cross-validation and does not give "
    "it.",
    "Ours is another cut of the dictionary with fewer phonemes and other symbols, so numbers of features and "
    "errors differ; what is to be compared is how patterns rank.",
    "Spellings of our test part do not occur in the training part, and 21% of its five-letter patterns do not, 1% of "
    "those of three letters. A model of five letters alone can only guess there, so it is the row that differs most "
    "from the source, which does not say how its parts overlap.",
    "Stars in the source mark its own program, which has a start label; CRF++ has none. Ours has one in every row, "
    "and the row without says what it is worth.",
    "The source's confusions are in IPA, ours in the dictionary's own symbols; a dot or hyphen is silence.",
    "A pattern beyond the edge of a word holds a mark for the edge, so that k-grams at edges are observations too.",
    f"Training ends when the objective hardly falls any more (tolerance 10⁻⁴), or after {ITERATIONS} iterations; the "
    "table's last column says how many each took.",
]


def cells(settings: Settings) -> list[Cell]:
    files = files_of("nettalk", settings.data)
    common = {"rho2": RHO2, "iterations": QUICK_ITERATIONS if settings.quick else ITERATIONS, "confusions": CONFUSIONS,
              "limit": QUICK_WORDS if settings.quick else None}  # fmt: skip
    made = [Cell(name, pattern, {"lines": lines, "start": True} | common, files)
            for name, (_, lines, *_) in ROWS.items()]  # fmt: skip
    bare = {"lines": ROWS["pairs"][1], "start": False}
    return [*made, Cell(WITHOUT_START, pattern, bare | common, files)]


def big_table(results: dict[str, dict]) -> Html:
    rows = []
    for name, (said, _, features, train, test) in ROWS.items():
        row = results[name]
        rows.append([said, features, number(row["weights"]), f"{train:g}%", share(row["train_error"]), f"{test:g}%",
                     share(row["error"]), f"{number(row['iterations'])}, {minutes(row['seconds'])}"])  # fmt: skip
    heads = ["features", "number: source", "ours", "train: source", "ours", "test: source", "ours", "iterations, time"]
    return rows_table("Table 3.2 of the thesis", heads, rows)


def sizes_chart(results: dict[str, dict]) -> Html:
    """Errors by the number of weights: more is not better by itself."""
    rows = sorted((results[name] for name in ROWS), key=lambda row: row["weights"])
    curves = [Curve(said, [(row["weights"], row[key]) for row in rows])
              for key, said in (("error", "test"), ("train_error", "training"))]  # fmt: skip
    chart = xy_chart("sizes", "Error by number of weights", "weights", curves, percent, percent_tick, log_x=True)
    return figure("Error by number of weights", chart)


def confusion_table(results: dict[str, dict]) -> Html:
    sides = [results[name]["confusions"] for name in CONFUSED]
    rows = []
    for place in range(max(map(len, sides), default=0)):
        row = [number(place + 1)]
        for side in sides:
            row += [f"{side[place][0]} for {side[place][1]}", number(side[place][2])] if place < len(side) else ["", ""]
        rows.append(row)
    heads = ["", f"{ROWS[CONFUSED[0]][0]}: said for right", "times", f"{ROWS[CONFUSED[1]][0]}: said for right", "times"]
    return table("The most frequent confusions on the test part", heads, rows, (0, 2, 4))


def words_table(results: dict[str, dict]) -> Html:
    words = results["letter-pairs"]["words"]
    rows = [[f"more than {n}" if n != "0" else "at least one", f"{number(count)} of 1,628",
             f"{number(words[n])} of {number(words['all'])}"] for n, count in SOURCE_WORDS.items()]  # fmt: skip
    return rows_table("Words by wrong letters", ["wrong letters", "source", "ours"], rows)


def comparisons(results: dict[str, dict]) -> list[Comparison]:
    made = [Comparison("THESIS table 3.2", f"test error, {said}", f"{test:g}%", share(results[name]["error"]),
                       f"features: {features} in the source, {number(results[name]['weights'])}")
            for name, (said, _, features, _, test) in ROWS.items()]  # fmt: skip
    bare = results[WITHOUT_START]
    made.append(Comparison("THESIS 3.5.1", "test error, (y', y, x) without a start label", "27.8%",
                           share(bare["error"]), f"with one {share(results['pairs']['error'])}"))  # fmt: skip
    return made


def checks(results: dict[str, dict]) -> list[Statement]:
    def better(text: str, first: str, second: str) -> Statement:
        a, b = results[first]["error"], results[second]["error"]
        return Statement(text, a < b, f"{share(a)} against {share(b)}", "a smaller test error")

    return [
        better("ignoring the start label costs much", "pairs", WITHOUT_START),
        better("single letters beside pairs help", "letter-pairs", "pairs"),
        better("five letters one by one beat five at once", "five-split", "five"),
        better("shorter patterns beside five letters help", "five-three-letter", "five"),
        better("pairs in context beat single labels in context", "three-pairs", "three"),
    ]


def report(results: dict[str, dict], settings: Settings) -> Report:
    opening = "Which patterns of letters and phonemes make a good model of pronunciation, with an L2 penalty."
    sections = [
        ("patterns", "Patterns", join([lead("The source's figures beside ours."), big_table(results),
                                       sizes_chart(results)])),
        ("confusions", "Confusions", join([lead("Table 3.3 of the thesis, on our part of the dictionary."),
                                           confusion_table(results), words_table(results)])),
    ]  # fmt: skip
    return Report("Patterns of letters", opening, comparisons(results), sections, NOTES, checks(results))


EXPERIMENT = Experiment(
    "nettalk-patterns",
    "patterns of letters on Nettalk with an L2 penalty",
    cells,
    report,
    FILES["nettalk"],
    serial=True,
)
